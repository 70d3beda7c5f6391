//! The intake: users take turns, what does not fit is written in groups, and a duplicate waits for the first one's end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use domain::id::{self, Id};
use domain::transfer::{Direction::*, State};
use futures_util::future::join_all;
use store::db_test;
use store::testing::{TestDb, fresh};
use transfer::{Begin, Created, Intake, IntakeError, IntakeSettings, TransferOrder};

use crate::support::*;

/// On one thread, and on SQLite: requests that are polled together have all come in before a lane looks.
fn in_turns(test: impl AsyncFnOnce(&TestDb)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let db = fresh(store::Engine::Sqlite).await;
        db.migrate(store::testing::NOW).await.unwrap();
        test(&db).await;
        db.close().await;
    });
}

fn one_lane(world: &World, queue: usize) -> Intake {
    Intake::open(world.coordinator.clone(), IntakeSettings { lanes: 1, queue, ..IntakeSettings::default() })
}

fn new_ids(placed: &[Result<Created, IntakeError>]) -> Vec<Id<id::Transfer>> {
    let new = placed.iter().filter_map(|one| match one {
        Ok(Created::New(transfer)) => Some(transfer.id),
        Ok(_) | Err(_) => None,
    });
    new.collect()
}

fn batches(world: &World) -> u64 {
    world.coordinator.metrics().transfer_batches.load(Ordering::Relaxed)
}

#[test]
fn a_user_who_sends_much_does_not_hold_up_the_others() {
    in_turns(async |db| {
        let world = World::open(db, 9).await;
        let intake = one_lane(&world, 10_000);
        // User 1 sends as much as may be sent at once, three times, and then the others send one order each.
        let much: Vec<TransferOrder> = vec![world.order(1, ToSpot, 10); 1_000];
        let mut requests = vec![much.clone(), much.clone(), much];
        requests.extend((2..=9).map(|number| vec![world.order(number, ToSpot, 100)]));
        let placed = join_all(requests.into_iter().map(|orders| intake.place(orders))).await;
        let first = new_ids(&placed[0]);
        assert_eq!((first.len(), new_ids(&placed[1]).len()), (1_000, 0), "they have taken all of the money");
        assert!(placed[2].iter().all(|one| matches!(one, Err(IntakeError::UserBusy))), "a quarter of the buffer");
        for other in &placed[3..] {
            let Ok(Created::New(transfer)) = &other[0] else { panic!("{other:?}") };
            assert_eq!(transfer.state, State::Committed);
            // Ids are made when a batch is recorded: all the others were in the first one.
            let before = first.iter().filter(|id| **id < transfer.id).count();
            assert!(before <= 100, "{before} orders of one user were recorded before another user's only one");
        }
        intake.close().await;
        world.recover().await;
        assert_eq!((world.books(1).await, world.books(9).await), ((0, 0, FUNDS), (FUNDS - 100, 0, 100)));
        world.assert_whole().await;
    });
}

#[test]
fn what_does_not_fit_the_buffer_is_written_in_groups() {
    in_turns(async |db| {
        let world = World::open(db, 4).await;
        let intake = one_lane(&world, 0);
        let before = batches(&world);
        let orders = (0..200).map(|number| world.order(1 + number % 4, ToSpot, 10));
        let placed = join_all(orders.map(|order| intake.place_one(order))).await;
        assert!(placed.iter().all(|one| matches!(one, Ok(Created::New(transfer)) if transfer.state == State::Init)));
        assert_eq!(batches(&world) - before, 1, "200 requests are one commit");
        assert_eq!(world.coordinator.metrics().transfers_parked.load(Ordering::Relaxed), 200);
        intake.close().await;
        assert!(matches!(intake.place_one(world.order(1, ToSpot, 10)).await, Err(IntakeError::Stopping)));
        world.recover().await;
        assert_eq!(world.books(4).await, (FUNDS - 500, 0, 500));
        world.assert_whole().await;
    });
}

#[test]
fn the_same_order_twice_in_one_batch_ends_together() {
    in_turns(async |db| {
        let world = World::open(db, 1).await;
        let intake = one_lane(&world, 100);
        let order = || world.named(1, ToSpot, 100, "twice");
        let (one, two) = tokio::join!(intake.place_one(order()), intake.place_one(order()));
        let (Ok(Created::New(one)), Ok(Created::Duplicate(two))) = (one, two) else { panic!("one is new") };
        assert_eq!((one.state, &two), (State::Committed, &one));
        intake.close().await;
        assert_eq!(world.books(1).await, (FUNDS - 100, 0, 100));
        world.assert_whole().await;
    });
}

db_test! {
    async fn a_duplicate_waits_for_the_end_that_another_process_brings(db: TestDb) {
        let world = World::open(db, 2).await;
        let order = world.named(1, ToSpot, 100, "first");
        let Created::New(first) = world.coordinator.create(std::slice::from_ref(&order), Begin::Now).await.unwrap().remove(0)
        else { panic!("accepted") };
        let other = coordinator(world.db.clone(), world.leg.clone(), world.clock.clone(), 2, settings());
        let other = Arc::new(other);
        let settings = IntakeSettings { wait: Duration::from_secs(60), ..IntakeSettings::default() };
        let intake = Intake::open(other.clone(), settings);
        let drive = async {
            while other.metrics().transfers_duplicate.load(Ordering::Relaxed) == 0 {
                tokio::task::yield_now().await;
            }
            world.coordinator.step(vec![first.clone()]).await.unwrap();
        };
        let (placed, ()) = tokio::join!(intake.place_one(order), drive);
        let Ok(Created::Duplicate(transfer)) = placed else { panic!("{placed:?}") };
        assert_eq!((transfer.id, transfer.state), (first.id, State::Committed));
        intake.close().await;
        world.assert_whole().await;
    }

    async fn a_duplicate_waits_no_longer_than_a_first_request(db: TestDb) {
        let world = World::open(db, 1).await;
        let order = world.named(1, ToSpot, 100, "first");
        world.coordinator.create(std::slice::from_ref(&order), Begin::Now).await.unwrap();
        let settings = IntakeSettings { wait: Duration::from_millis(50), ..IntakeSettings::default() };
        let intake = Intake::open(world.coordinator.clone(), settings);
        // Nobody drives it.
        let placed = tokio::time::timeout(Duration::from_secs(30), intake.place_one(order)).await.expect("an answer");
        assert!(matches!(placed, Ok(Created::Duplicate(transfer)) if transfer.state == State::TargetPending));
        intake.close().await;
        world.recover().await;
        world.assert_whole().await;
    }
}

/// By hand: `cargo test -p transfer --test it fair -- --ignored --nocapture`.
mod timed {
    use super::*;

    const OTHERS: i64 = 16;

    fn p99(mut times: Vec<Duration>) -> Duration {
        times.sort_unstable();
        times[times.len() * 99 / 100]
    }

    /// What each of the others waits for an answer, one request after the other. Half of the requests go back, so that
    /// the money lasts.
    #[allow(clippy::disallowed_methods, reason = "a figure is taken by the machine's clock")]
    async fn others(world: &World, intake: &Intake, requests: usize) -> Vec<Duration> {
        let one = async |number: i64| {
            let mut times = Vec::with_capacity(requests);
            for at in 0..requests {
                let way = if at % 2 == 0 { ToSpot } else { ToFunding };
                let order = world.order(number, way, 10);
                let start = std::time::Instant::now();
                assert!(matches!(intake.place_one(order).await, Ok(Created::New(_))));
                times.push(start.elapsed());
            }
            times
        };
        join_all((2..2 + OTHERS).map(one)).await.concat()
    }

    db_test! {
        #[ignore = "takes figures"]
        async fn fair(db: TestDb) {
            let world = World::open(db, 1 + OTHERS).await;
            let intake = Intake::open(world.coordinator.clone(), IntakeSettings::default());
            others(&world, &intake, 50).await;
            let alone = p99(others(&world, &intake, 400).await);
            let flood = async {
                loop {
                    let there = vec![world.order(1, ToSpot, 10); 1_000];
                    let back = vec![world.order(1, ToFunding, 10); 1_000];
                    tokio::join!(intake.place(there), intake.place(back));
                }
            };
            let beside = tokio::select! {
                times = others(&world, &intake, 400) => p99(times),
                () = flood => Duration::MAX,
            };
            println!("{:?}: p99 alone {alone:?}, beside a flood {beside:?}", db.engine());
            assert!(beside <= 2 * alone, "{beside:?} is more than twice {alone:?}");
            intake.close().await;
        }
    }
}
