//! What is accepted, what is refused, and what is the same request again.

use domain::transfer::{Direction::*, Rejection, State};
use domain::{AccountStatus, Amount, AssetId, Availability};
use store::db_test;
use transfer::{Begin, Created, Intake, IntakeSettings, Settings, TransferOrder};

use crate::support::*;

async fn rejection(world: &World, order: TransferOrder) -> Rejection {
    let created = world.coordinator.create(&[order], Begin::Now).await.unwrap();
    match created[0] {
        Created::Rejected(rejection) => rejection,
        ref other => panic!("{other:?}"),
    }
}

db_test! {
    async fn what_is_refused_leaves_nothing_behind(db: TestDb) {
        let world = World::open(db, 2).await;
        let order = |amount| world.order(1, ToSpot, amount);
        let stranger = |direction| TransferOrder { user: user(99), ..world.order(1, direction, 100) };
        for (order, expected) in [
            (order(0), Rejection::InvalidAmount),
            (order(-5), Rejection::InvalidAmount),
            (order(9), Rejection::AmountTooSmall),
            (order(5_001), Rejection::AmountTooLarge),
            (order(i64::MAX), Rejection::Overflow),
            (stranger(ToSpot), Rejection::SourceAccountNotFound),
            (stranger(ToFunding), Rejection::SourceAccountNotFound),
            (TransferOrder { asset: world.btc, ..order(100) }, Rejection::SourceAccountNotFound),
            (TransferOrder { asset: AssetId(12_345), ..order(100) }, Rejection::SourceAccountNotFound),
            // No balance at the engine yet.
            (world.order(1, ToFunding, 100), Rejection::SourceAccountNotFound),
        ] {
            assert_eq!(rejection(&world, order.clone()).await, expected, "{order:?}");
        }
        world.transfer(order(1_000)).await;
        assert_eq!(rejection(&world, world.order(1, ToFunding, 1_001)).await, Rejection::InsufficientBalance);
        world.transfer(world.order(2, ToSpot, 5_000)).await;
        world.transfer(world.order(2, ToSpot, 4_000)).await;
        assert_eq!(rejection(&world, world.order(2, ToSpot, 1_001)).await, Rejection::InsufficientBalance);
        for (status, expected) in
            [(AccountStatus::Frozen, Rejection::AccountFrozen), (AccountStatus::Disabled, Rejection::AccountDisabled)]
        {
            set_funding_status(&world, 1, status, &format!("{status:?}")).await;
            assert_eq!(rejection(&world, order(100)).await, expected);
            set_spot_status(&world, 2, status).await;
            assert_eq!(rejection(&world, world.order(2, ToFunding, 100)).await, expected);
        }
        // A disabled account does not take either.
        assert_eq!(rejection(&world, world.order(1, ToFunding, 100)).await, Rejection::AccountDisabled);
        for (status, enabled, expected) in [
            (Availability::Active, false, Rejection::TransferNotAllowed),
            (Availability::Suspended, false, Rejection::AssetSuspended),
        ] {
            let mut catalog = catalog();
            for asset in catalog.assets.values_mut() {
                (asset.status, asset.internal_transfer_enabled) = (status, enabled);
            }
            db.apply_catalog(&catalog, &AUTHOR, store::testing::NOW).await.unwrap();
            assert_eq!(rejection(&world, order(100)).await, expected);
        }
        assert_eq!(world.all().await.len(), 3, "only what was accepted is there");
        world.assert_whole().await;
    }

    async fn the_orders_of_a_batch_share_the_balance(db: TestDb) {
        let world = World::open(db, 1).await;
        let orders = vec![world.order(1, ToSpot, 4_000); 4];
        let created = world.coordinator.create(&orders, Begin::Now).await.unwrap();
        let accepted = created.iter().filter(|one| matches!(one, Created::New(_))).count();
        assert_eq!(accepted, 2);
        assert_eq!(created[2..], vec![Created::Rejected(Rejection::InsufficientBalance); 2]);
        assert_eq!(world.books(1).await, (2_000, 8_000, 0));
        world.recover().await;
        let orders = vec![world.order(1, ToFunding, 3_000); 4];
        let created = world.coordinator.create(&orders, Begin::Now).await.unwrap();
        assert_eq!(created.iter().filter(|one| matches!(one, Created::New(_))).count(), 2);
        world.recover().await;
        assert_eq!(world.books(1).await, (8_000, 0, 2_000));
        world.assert_whole().await;
    }

    async fn a_name_stands_for_one_transfer(db: TestDb) {
        let world = World::open(db, 2).await;
        let first = world.transfer(world.named(1, ToSpot, 100, "a")).await;
        let again = world.coordinator.create(&[world.named(1, ToSpot, 100, "a")], Begin::Now).await.unwrap();
        let Created::Duplicate(original) = &again[0] else { panic!("{again:?}") };
        assert_eq!((original.id, original.state), (first.id, State::Committed));
        for other in [
            world.named(1, ToSpot, 101, "a"),
            world.named(1, ToFunding, 100, "a"),
            TransferOrder { asset: world.btc, ..world.named(1, ToSpot, 100, "a") },
        ] {
            assert_eq!(rejection(&world, other).await, Rejection::DuplicateRequest);
        }
        // Another user's name is another name, and so is another case of it.
        assert_eq!(world.transfer(world.named(2, ToSpot, 100, "a")).await.state, State::Committed);
        assert_eq!(world.transfer(world.named(1, ToSpot, 100, "A")).await.state, State::Committed);
        let twice = [world.named(1, ToSpot, 50, "b"), world.named(1, ToSpot, 50, "b"), world.named(1, ToSpot, 51, "b")];
        let created = world.coordinator.create(&twice, Begin::Now).await.unwrap();
        let [Created::New(one), Created::Duplicate(same), Created::Rejected(Rejection::DuplicateRequest)] = &created[..]
        else { panic!("{created:?}") };
        assert_eq!(one.id, same.id);
        world.recover().await;
        assert_eq!(world.all().await.len(), 4);
        world.assert_whole().await;
    }

    async fn many_that_send_the_same_request_at_once_make_one_transfer(db: TestDb) {
        let world = World::open(db, 1).await;
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..16 {
            let (coordinator, order) = (world.coordinator.clone(), world.named(1, ToSpot, 100, "once"));
            tasks.spawn(async move { coordinator.create(&[order], Begin::Now).await.unwrap().remove(0) });
        }
        let mut new = 0;
        while let Some(created) = tasks.join_next().await {
            match created.unwrap() {
                Created::New(_) => new += 1,
                Created::Duplicate(_) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((new, world.all().await.len()), (1, 1));
        world.recover().await;
        assert_eq!(world.books(1).await, (9_900, 0, 100));
        world.assert_whole().await;
    }

    async fn daily_limits_count_what_was_accepted(db: TestDb) {
        let settings = Settings { daily_transfers: 4, ..settings() };
        let world = World::with(db, 3, settings, false).await;
        for _ in 0..2 {
            world.transfer(world.order(1, ToSpot, 5_000)).await;
            world.transfer(world.order(1, ToFunding, 5_000)).await;
        }
        assert_eq!(rejection(&world, world.order(1, ToSpot, 10)).await, Rejection::DailyLimitExceeded);
        world.transfer(world.order(2, ToSpot, 5_000)).await;
        // What is refused for another reason does not count.
        for _ in 0..5 {
            assert_eq!(rejection(&world, world.order(2, ToFunding, 4_999 + 2)).await, Rejection::AmountTooLarge);
        }
        let orders = vec![world.order(3, ToSpot, 100); 6];
        let created = world.coordinator.create(&orders, Begin::Now).await.unwrap();
        assert_eq!(created[4..], vec![Created::Rejected(Rejection::DailyLimitExceeded); 2]);
        // A request that is sent again is no new one.
        world.recover().await;
        world.wait(std::time::Duration::from_secs(86_400));
        let named = world.named(3, ToSpot, 100, "n");
        for _ in 0..8 {
            let created = world.coordinator.create(std::slice::from_ref(&named), Begin::Now).await.unwrap();
            assert!(!matches!(created[0], Created::Rejected(_)), "{created:?}");
        }
        world.recover().await;
        world.assert_whole().await;
    }

    async fn a_day_has_an_amount_too(db: TestDb) {
        let world = World::open(db, 1).await;
        for _ in 0..2 {
            world.transfer(world.order(1, ToSpot, 5_000)).await;
            world.transfer(world.order(1, ToFunding, 5_000)).await;
        }
        assert_eq!(rejection(&world, world.order(1, ToSpot, 10)).await, Rejection::DailyAmountExceeded);
        world.wait(std::time::Duration::from_secs(86_400));
        assert_eq!(world.transfer(world.order(1, ToSpot, 10)).await.state, State::Committed);
        world.assert_whole().await;
    }

    async fn what_does_not_fit_the_buffer_is_written_down(db: TestDb) {
        let world = World::open(db, 4).await;
        let settings = IntakeSettings { lanes: 1, ahead: 1, queue: 1, ..IntakeSettings::default() };
        let intake = std::sync::Arc::new(Intake::open(world.coordinator.clone(), settings));
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..40 {
            let (intake, order) = (intake.clone(), world.order(1 + number % 4, ToSpot, 100));
            tasks.spawn(async move { intake.place_one(order).await.unwrap() });
        }
        while let Some(created) = tasks.join_next().await {
            assert!(matches!(created.unwrap(), Created::New(_)));
        }
        let parked = world.coordinator.metrics().transfers_parked.load(std::sync::atomic::Ordering::Relaxed);
        assert!(parked > 0, "the buffer of one was full at least once");
        intake.close().await;
        assert!(intake.place_one(world.order(1, ToSpot, 100)).await.is_err(), "a closed intake takes nothing");
        world.recover().await;
        assert_eq!(world.all().await.iter().filter(|one| one.state == State::Committed).count(), 40);
        assert_eq!(world.books(1).await, (9_000, 0, 1_000));
        world.assert_whole().await;
    }

    async fn the_intake_answers_with_the_end(db: TestDb) {
        let world = World::open(db, 30).await;
        let intake = Intake::open(world.coordinator.clone(), IntakeSettings::default());
        let orders = (1..=3).map(|_| world.order(7, ToSpot, 100)).collect();
        let created = intake.place(orders).await;
        assert_eq!(created.len(), 3);
        for one in created {
            let Ok(Created::New(transfer)) = one else { panic!("{one:?}") };
            assert_eq!(transfer.state, State::Committed);
        }
        // A leg that does not answer: the request is on its way, and said to be.
        world.leg.plan(&[Mood::LoseAnswer]);
        let Created::New(transfer) = intake.place_one(world.order(8, ToSpot, 100)).await.unwrap() else {
            panic!("accepted")
        };
        assert_eq!(transfer.state, State::TargetPending);
        assert_eq!(transfer.amount, Amount::from_units(100));
        intake.close().await;
        world.recover().await;
        world.assert_whole().await;
    }
}
