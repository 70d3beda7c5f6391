//! The engine and the books are compared by themselves, and an asset that does not add up is stopped.

use std::sync::Arc;

use domain::transfer::{Direction::*, Rejection, State};
use domain::{AccountStatus, Amount, Approval, Clock};
use store::db_test;
use store::transfer::read_stops;
use transfer::invariant::{check, check_and_stop};
use transfer::{Begin, Created, Intake, IntakeSettings};

use crate::support::*;

/// Money at the engine that no transfer brought there, or its way out again.
async fn forge(world: &World, number: i64, amount: i64) {
    static NEXT: std::sync::atomic::AtomicI64 = std::sync::atomic::AtomicI64::new(1);
    let next = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let id = spot::OpId::new(domain::id::first_at(world.clock.now()) + (9 << 12) + next).unwrap();
    let of = spot::Move { id, user: user(number), asset: world.usdt, amount: Amount::from_units(amount.abs()) };
    let operation = if amount > 0 { spot::Operation::Deposit(of) } else { spot::Operation::Withdraw(of) };
    assert_eq!(world.engine.ask(operation).await.unwrap(), spot::Answer::First(spot::Decision::Applied));
}

async fn clearing(world: &World) -> i128 {
    let totals = store::ledger::balances::totals(&mut world.db.read().await.unwrap()).await.unwrap();
    totals[&world.usdt].system["clearing:spot"]
}

/// How many stops there ever were, and whether the newest still holds.
async fn stops(world: &World) -> (usize, bool) {
    let stops = read_stops(&mut world.db.read().await.unwrap(), 100).await.unwrap();
    (stops.len(), stops.first().is_some_and(|stop| stop.resumed.is_none()))
}

async fn resume(world: &World) {
    let people = Approval::new("ana", "bo", "mended").unwrap();
    assert!(world.db.resume_asset(world.usdt, &people, world.clock.now()).await.unwrap());
}

async fn create(world: &World, number: i64, direction: domain::transfer::Direction, amount: i64) -> Created {
    world.coordinator.create(&[world.order(number, direction, amount)], Begin::Now).await.unwrap().remove(0)
}

db_test! {
    async fn an_engine_with_more_than_it_was_given_is_caught_before_it_can_be_withdrawn(db: TestDb) {
        let world = World::open(db, 2).await;
        world.transfer(world.order(1, ToSpot, 1_000)).await;
        assert_eq!(check_and_stop(&world.coordinator).await.unwrap(), []);
        forge(&world, 2, 500).await;
        let breaches = check_and_stop(&world.coordinator).await.unwrap();
        assert_eq!(breaches.len(), 1, "{breaches:?}");
        assert_eq!(breaches[0].problem, "the engine has 1500 ledger units, the transfers allow 1000 to 1000");
        assert_eq!(create(&world, 2, ToFunding, 500).await, Created::Rejected(Rejection::TransferStopped));
        // The way to SPOT is open, and so is every other asset.
        assert!(matches!(create(&world, 1, ToSpot, 10).await, Created::New(_)));
        let btc = transfer::TransferOrder { asset: world.btc, ..world.order(1, ToFunding, 10) };
        let other = world.coordinator.create(&[btc], Begin::Now).await.unwrap().remove(0);
        assert_ne!(other, Created::Rejected(Rejection::TransferStopped));
        world.recover().await;
        // It lasts: there is one stop, however often it is found. A resumption without a remedy does not last.
        check_and_stop(&world.coordinator).await.unwrap();
        assert_eq!(stops(&world).await, (1, true));
        resume(&world).await;
        assert_eq!(stops(&world).await, (1, false));
        world.wait(std::time::Duration::from_secs(1));
        check_and_stop(&world.coordinator).await.unwrap();
        assert_eq!(stops(&world).await, (2, true));
        forge(&world, 2, -500).await;
        assert_eq!(check_and_stop(&world.coordinator).await.unwrap(), []);
        assert_eq!(stops(&world).await, (2, true), "only two people resume");
        resume(&world).await;
        assert_eq!(world.transfer(world.order(1, ToFunding, 1_000)).await.state, State::Committed);
        world.assert_whole().await;
    }

    async fn an_engine_with_less_than_it_was_given_is_found(db: TestDb) {
        let world = World::open(db, 1).await;
        world.transfer(world.order(1, ToSpot, 1_000)).await;
        db.checkpoint(world.clock.now()).await.unwrap();
        world.transfer(world.order(1, ToFunding, 200)).await;
        assert_eq!(check_and_stop(&world.coordinator).await.unwrap(), [], "the sums begin at the checkpoint");
        forge(&world, 1, -1).await;
        let breaches = check_and_stop(&world.coordinator).await.unwrap();
        assert_eq!(breaches[0].problem, "the engine has 799 ledger units, the transfers allow 800 to 800");
    }

    async fn a_credit_beyond_what_the_engine_was_given_waits_and_stops_the_asset(db: TestDb) {
        let world = World::open(db, 2).await;
        world.transfer(world.order(1, ToSpot, 1_000)).await;
        // The engine lies: it gives out what it never got. No check has run yet.
        forge(&world, 2, 2_000).await;
        let waits = world.transfer(world.order(2, ToFunding, 2_000)).await;
        assert_eq!((waits.state, waits.error.as_deref()), (State::TargetPending, Some("TRANSFER_STOPPED")));
        assert_eq!(world.books(2).await, (FUNDS, 0, 0));
        assert_eq!(clearing(&world).await, 1_000, "clearing:spot is never below what the engine was given");
        assert_eq!(stops(&world).await, (1, true));
        assert_eq!(create(&world, 1, ToFunding, 10).await, Created::Rejected(Rejection::TransferStopped));
        // A part of it fits, and is as much a lie: the asset stays stopped, also for another server.
        let other = coordinator(world.db.clone(), world.leg.clone(), world.clock.clone(), 2, settings());
        let orders = [world.order(1, ToFunding, 10)];
        let there = other.create(&orders, Begin::Now).await.unwrap().remove(0);
        assert_eq!(there, Created::Rejected(Rejection::TransferStopped));
        let report = world.db.audit(|_| {}).await.unwrap();
        assert!(report.clean(), "{:?}", report.findings);
    }

    async fn what_is_on_its_way_waits_while_its_asset_is_stopped(db: TestDb) {
        let world = World::open(db, 1).await;
        world.transfer(world.order(1, ToSpot, 1_000)).await;
        // One has left the engine, one was never asked for, one is only written down.
        world.leg.plan(&[Mood::LoseAnswer, Mood::LoseCall]);
        let left = world.transfer(world.order(1, ToFunding, 100)).await;
        let lost = world.transfer(world.order(1, ToFunding, 200)).await;
        let later = world.coordinator.create(&[world.order(1, ToFunding, 300)], Begin::Later).await.unwrap().remove(0);
        let Created::New(later) = later else { panic!("{later:?}") };
        assert!(world.db.stop_asset(world.usdt, "ana", "a look", world.clock.now()).await.unwrap());
        assert!(!world.db.stop_asset(world.usdt, "bo", "another", world.clock.now()).await.unwrap());
        for _ in 0..3 {
            world.wait(std::time::Duration::from_secs(120));
            transfer::scanner::scan_once(&world.coordinator).await.unwrap();
        }
        // Only what had left the engine before has left it now.
        assert_eq!(world.books(1).await, (FUNDS - 1_000, 0, 900), "a stop holds back what was not sent");
        let states = [world.read(left.id).await.state, world.read(lost.id).await.state];
        assert_eq!(states, [State::TargetPending, State::SourcePending], "what was sent is settled by asking");
        for id in [left.id, lost.id, later.id] {
            let waits = world.read(id).await;
            assert!(!waits.state.is_terminal(), "{waits:?}");
            assert_eq!(waits.error.as_deref(), Some("TRANSFER_STOPPED"), "{waits:?}");
        }
        assert_eq!(world.books(1).await.0, FUNDS - 1_000, "nothing came back");
        resume(&world).await;
        world.recover().await;
        assert_eq!(world.books(1).await, (FUNDS - 400, 0, 400));
        world.assert_whole().await;
    }

    async fn a_refused_withdrawal_ends_while_its_asset_is_stopped(db: TestDb) {
        let world = World::open(db, 1).await;
        world.transfer(world.order(1, ToSpot, 1_000)).await;
        world.leg.plan(&[Mood::LoseCall]);
        let lost = world.transfer(world.order(1, ToFunding, 600)).await;
        // The call was only late: the engine refused it.
        forge(&world, 1, -900).await;
        let of = spot::Move { id: lost.id.into(), user: user(1), asset: world.usdt, amount: lost.amount };
        world.engine.ask(spot::Operation::Withdraw(of)).await.unwrap();
        assert!(world.db.stop_asset(world.usdt, "ana", "a look", world.clock.now()).await.unwrap());
        let ended = world.coordinator.step(vec![lost]).await.unwrap().remove(0);
        assert_eq!((ended.state, ended.error.as_deref()), (State::Failed, Some("INSUFFICIENT_BALANCE")));
        assert_eq!(world.books(1).await, (FUNDS - 1_000, 0, 100));
    }

    async fn a_deposit_whose_answer_is_lost_may_come_back_before_it_is_settled(db: TestDb) {
        let world = World::open(db, 1).await;
        world.leg.plan(&[Mood::LoseAnswer]);
        let there = world.transfer(world.order(1, ToSpot, 100)).await;
        assert_eq!(there.state, State::TargetPending);
        assert_eq!(check_and_stop(&world.coordinator).await.unwrap(), []);
        // The engine has it, and clearing:spot has not.
        assert_eq!(world.transfer(world.order(1, ToFunding, 100)).await.state, State::Committed);
        assert_eq!(clearing(&world).await, -100);
        assert_eq!(check_and_stop(&world.coordinator).await.unwrap(), []);
        world.recover().await;
        assert_eq!(check_and_stop(&world.coordinator).await.unwrap(), []);
        world.assert_whole().await;
    }

    async fn traffic_stops_nothing(db: TestDb) {
        let world = World::open(db, 12).await;
        let intake = Arc::new(Intake::open(world.coordinator.clone(), IntakeSettings::default()));
        // What this user withdraws is given back: FUNDING takes nothing from it any more.
        world.transfer(world.order(12, ToSpot, 4_000)).await;
        let back: Vec<_> = (0..20).map(|_| world.order(12, ToFunding, 50)).collect();
        world.coordinator.create(&back, Begin::Later).await.unwrap();
        set_funding_status(&world, 12, AccountStatus::Disabled, "off").await;
        let mut tasks = tokio::task::JoinSet::new();
        for number in 1..=11 {
            let (intake, there, back) =
                (intake.clone(), world.order(number, ToSpot, 100), world.order(number, ToFunding, 60));
            tasks.spawn(async move {
                for _ in 0..25 {
                    assert!(intake.place(vec![there.clone(), there.clone()]).await.iter().all(Result::is_ok));
                    assert!(intake.place(vec![back.clone(), back.clone(), back.clone()]).await.iter().all(Result::is_ok));
                }
            });
        }
        let mut checks = 0;
        loop {
            world.leg.plan(&[Mood::LoseAnswer]);
            assert_eq!(check(&world.db, &*world.leg).await.unwrap(), [], "check {checks}");
            checks += 1;
            transfer::scanner::scan_once(&world.coordinator).await.unwrap();
            if checks % 5 == 0 {
                db.checkpoint(world.clock.now()).await.unwrap();
            }
            if tasks.is_empty() {
                break;
            }
            while tasks.try_join_next().is_some() {}
        }
        assert!(checks > 2, "only {checks} checks ran beside the traffic");
        intake.close().await;
        world.recover().await;
        assert_eq!(check_and_stop(&world.coordinator).await.unwrap(), []);
        assert_eq!(stops(&world).await, (0, false));
    }
}
