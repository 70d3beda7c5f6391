//! The database and its spot engine are a pair. A backup that was put back is played by changing rows by hand;
//! `crates/bursar/tests/pair.rs` does it with real copies.

use domain::Clock as _;
use domain::transfer::{Direction::*, State};
use spot::Request;
use store::db_test;
use store::testing::NOW;
use transfer::pair::{Keeper, PairError, prove};
use transfer::{Begin, CoordinatorError};

use crate::support::*;

async fn keeper(world: &World) -> Keeper {
    let keeper = Keeper::new(&world.coordinator).expect("our engine");
    keeper.begin().await.expect("a pair");
    keeper
}

async fn standing(world: &World) -> spot::PairStanding {
    match world.engine.ask(Request::Pair).await.expect("answered") {
        spot::Answer::Pair(pair) => pair,
        other => panic!("{other:?}"),
    }
}

/// Nothing is accepted, and nothing is called, while the gate is closed.
async fn assert_closed(world: &World, code: &str) {
    let books = world.books(1).await;
    let calls = world.leg.calls.lock().unwrap().len();
    let refused = world.coordinator.create(&[world.order(1, ToSpot, 1)], Begin::Now).await.unwrap_err();
    let CoordinatorError::NotReady { part, trouble } = refused else { panic!("{refused:?}") };
    assert_eq!((part, trouble.code), ("pair", code));
    for transfer in world.all().await.into_iter().filter(|transfer| !transfer.state.is_terminal()) {
        let waits = world.coordinator.step(vec![transfer]).await.unwrap().remove(0);
        assert_eq!(waits.error.as_deref().map(|error| error.split(':').next().unwrap_or_default()), Some(code));
    }
    assert_eq!(world.leg.calls.lock().unwrap().len(), calls, "the engine was not called");
    assert_eq!(world.books(1).await, books);
}

db_test! {
    async fn a_first_start_makes_the_pair_and_traffic_marks_it(db: TestDb) {
        let world = World::open(db, 1).await;
        let keeper = keeper(&world).await;
        let (pair, engine) = (world.db.pair().await.unwrap(), standing(&world).await);
        assert_eq!((pair.engine, engine.database), (Some(engine.log_id), Some(pair.database)));
        assert_eq!((pair.told, pair.heard, engine.counter), (1, 1, 1));
        // An idle pair is compared, and nothing is written for it.
        keeper.turn().await.unwrap();
        assert_eq!(standing(&world).await.sequence, engine.sequence);
        world.transfer(world.order(1, ToSpot, 100)).await;
        keeper.turn().await.unwrap();
        let (pair, engine) = (world.db.pair().await.unwrap(), standing(&world).await);
        assert_eq!((pair.told, pair.heard, engine.counter), (2, 2, 2));
        assert_eq!(engine.sequence, pair.sequence + 1, "the batch of the mark itself");
        world.assert_whole().await;
    }

    async fn a_database_that_was_put_back_is_recognised_by_its_counter(db: TestDb) {
        let world = World::open(db, 1).await;
        let keeper = keeper(&world).await;
        world.transfer(world.order(1, ToSpot, 100)).await;
        keeper.turn().await.unwrap();
        db.by_hand("UPDATE spot_pair SET told = 1, heard = 1, sequence = 0").await.unwrap();
        assert!(matches!(keeper.turn().await, Err(PairError::DatabaseBehind(_))), "while it runs");
        assert_closed(&world, "SPOT_PAIR_DATABASE_BEHIND").await;
        // And at the next start.
        let again = Keeper::new(&world.coordinator).unwrap();
        assert!(matches!(again.begin().await, Err(PairError::DatabaseBehind(_))));
        assert_closed(&world, "SPOT_PAIR_DATABASE_BEHIND").await;
    }

    async fn a_database_that_was_put_back_between_two_marks_is_recognised_by_the_operations(db: TestDb) {
        let world = World::open(db, 1).await;
        let keeper = keeper(&world).await;
        world.transfer(world.order(1, ToSpot, 100)).await;
        // The backup was made after the last mark and before this transfer: the counters agree.
        db.by_hand("DELETE FROM transfer_events").await.unwrap();
        db.by_hand("DELETE FROM transfers").await.unwrap();
        keeper.turn().await.unwrap();
        let spot = transfer::leg::Leg::spot(&*world.leg).unwrap();
        let error = prove(&world.db, spot).await.unwrap_err();
        assert!(matches!(error, PairError::DatabaseBehind(_)), "{error:?}");
        let again = Keeper::new(&world.coordinator).unwrap();
        assert!(matches!(again.begin().await, Err(PairError::DatabaseBehind(_))));
        assert_closed(&world, "SPOT_PAIR_DATABASE_BEHIND").await;
    }

    async fn an_engine_that_was_put_back_is_recognised_by_its_counter_or_its_last_batch(db: TestDb) {
        let world = World::open(db, 1).await;
        let keeper = keeper(&world).await;
        db.by_hand("UPDATE spot_pair SET told = 5, heard = 5").await.unwrap();
        assert!(matches!(keeper.turn().await, Err(PairError::EngineBehind(_))));
        assert_closed(&world, "SPOT_PAIR_ENGINE_BEHIND").await;
        // Trades alone leave no transfer behind: the batch says it.
        db.by_hand("UPDATE spot_pair SET told = 1, heard = 1, sequence = 50").await.unwrap();
        assert!(matches!(keeper.turn().await, Err(PairError::EngineBehind(_))));
        // What was put right is noticed without a restart.
        db.by_hand("UPDATE spot_pair SET sequence = 0").await.unwrap();
        keeper.turn().await.unwrap();
        assert_eq!(world.transfer(world.order(1, ToSpot, 100)).await.state, State::Committed);
        world.assert_whole().await;
    }

    async fn an_engine_that_was_put_back_between_two_marks_is_recognised_by_the_operations(db: TestDb) {
        let world = World::open(db, 1).await;
        keeper(&world).await;
        world.leg.plan(&[Mood::LoseCall]);
        world.transfer(world.order(1, ToSpot, 100)).await;
        // As if the engine had carried it out and forgotten it.
        db.by_hand("UPDATE transfers SET state = 40").await.unwrap();
        let again = Keeper::new(&world.coordinator).unwrap();
        assert!(matches!(again.begin().await, Err(PairError::EngineBehind(_))));
    }

    /// Two lives of one backup: in the one the engine moved the money, in the other the transfer ended without it.
    async fn a_transfer_that_ended_without_moving_money_contradicts_an_engine_that_moved_it(db: TestDb) {
        let world = World::open(db, 1).await;
        keeper(&world).await;
        world.transfer(world.order(1, ToSpot, 100)).await;
        db.by_hand("UPDATE transfers SET state = -30, error = 'ACCOUNT_DISABLED'").await.unwrap();
        let again = Keeper::new(&world.coordinator).unwrap();
        assert!(matches!(again.begin().await, Err(PairError::DatabaseBehind(_))));
    }

    async fn a_running_server_compares_operations_too(db: TestDb) {
        let world = World::open(db, 1).await;
        let keeper = keeper(&world).await;
        world.transfer(world.order(1, ToSpot, 100)).await;
        db.by_hand("DELETE FROM transfer_events").await.unwrap();
        db.by_hand("DELETE FROM transfers").await.unwrap();
        keeper.turn().await.unwrap();
        world.wait(std::time::Duration::from_secs(61));
        assert!(matches!(keeper.turn().await, Err(PairError::DatabaseBehind(_))));
        assert_closed(&world, "SPOT_PAIR_DATABASE_BEHIND").await;
    }

    /// A clock that is wrong takes the node number away, and with it the marks. It must not strand what is on its way.
    async fn without_a_node_number_what_is_on_its_way_goes_on(db: TestDb) {
        let world = World::open(db, 1).await;
        keeper(&world).await;
        world.leg.plan(&[Mood::LoseCall]);
        let waits = world.transfer(world.order(1, ToSpot, 100)).await;
        let none = without_lease(&world);
        let keeper = Keeper::new(&none).unwrap();
        assert!(none.readiness().first_trouble().is_some(), "not ready before it was compared");
        keeper.begin().await.unwrap();
        assert!(none.readiness().first_trouble().is_none());
        let ended = none.step(vec![waits]).await.unwrap().remove(0);
        assert_eq!(ended.state, State::Committed);
        world.assert_whole().await;
    }

    async fn a_gate_that_opens_late_opens_after_the_first_check(db: TestDb) {
        let world = World::open(db, 1).await;
        let keeper = keeper(&world).await;
        world.transfer(world.order(1, ToSpot, 1_000)).await;
        keeper.turn().await.unwrap();
        db.by_hand("UPDATE spot_pair SET heard = heard + 9, told = told + 9").await.unwrap();
        assert!(matches!(keeper.turn().await, Err(PairError::EngineBehind(_))));
        // While the gate is closed the engine gets more than it was given. Its operation is known, so the pair is proven.
        let id = domain::id::first_at(world.clock.now()) + (9 << 12);
        let (of, amount) = (spot::OpId::new(id).unwrap(), domain::Amount::from_units(500));
        let of = spot::Move { id: of, user: user(1), asset: world.usdt, amount };
        world.engine.ask(spot::Operation::Deposit(of)).await.unwrap();
        db.by_hand(&format!("INSERT INTO spot_pair_accepted (id, problem, at) VALUES ({id}, 'test', 1)")).await.unwrap();
        db.by_hand("UPDATE spot_pair SET heard = heard - 9, told = told - 9").await.unwrap();
        keeper.turn().await.unwrap();
        let back = world.coordinator.create(&[world.order(1, ToFunding, 1_000)], Begin::Now).await.unwrap().remove(0);
        assert_eq!(back, transfer::Created::Rejected(domain::transfer::Rejection::TransferStopped));
        assert_eq!(world.books(1).await, (9_000, 0, 1_500));
    }

    async fn another_engine_and_another_database_are_refused(db: TestDb) {
        let world = World::open(db, 1).await;
        let keeper = keeper(&world).await;
        db.by_hand("UPDATE spot_pair SET engine_id = 99").await.unwrap();
        assert!(matches!(keeper.turn().await, Err(PairError::Other(_))));
        assert_closed(&world, "SPOT_PAIR_OTHER").await;
        db.by_hand("UPDATE spot_pair SET engine_id = 7, database_id = database_id + 1").await.unwrap();
        assert!(matches!(keeper.turn().await, Err(PairError::Other(_))));
        assert_closed(&world, "SPOT_PAIR_OTHER").await;
    }

    async fn two_whose_books_differ_are_not_made_a_pair(db: TestDb) {
        let world = World::open(db, 1).await;
        let id = spot::OpId::new(domain::id::first_at(world.clock.now()) + 1).unwrap();
        let of = spot::Move { id, user: user(1), asset: world.usdt, amount: domain::Amount::from_units(5) };
        world.engine.ask(spot::Operation::Deposit(of)).await.unwrap();
        let keeper = Keeper::new(&world.coordinator).unwrap();
        assert!(matches!(keeper.begin().await, Err(PairError::Other(_))));
        assert_eq!(world.db.pair().await.unwrap().engine, None);
        assert_eq!(standing(&world).await.database, None);
        assert_closed(&world, "SPOT_PAIR_OTHER").await;
    }

    async fn of_two_engines_that_come_at_once_one_is_bound(db: TestDb) {
        let world = World::open(db, 1).await;
        let author = store::pair::PairAuthor { actor: "a", second: None, reason: "b" };
        assert!(world.db.bind_engine(3, author, NOW).await.unwrap());
        assert!(!world.db.bind_engine(4, author, NOW).await.unwrap());
        let keeper = Keeper::new(&world.coordinator).unwrap();
        assert!(matches!(keeper.begin().await, Err(PairError::Other(_))));
    }
}
