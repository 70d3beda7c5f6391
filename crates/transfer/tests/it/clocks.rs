//! Clocks that are wrong: no id is made twice, no transfer is hidden, and no money is put aside that the engine would not
//! take.

use std::sync::Arc;
use std::time::Duration;

use domain::transfer::{Direction::*, State};
use domain::{Clock, ManualClock, Timestamp};
use store::db_test;
use store::testing::{NOW, TestDb, on};
use transfer::{Begin, Coordinator, CoordinatorError, Created, IdMaker, Lent, Metrics, scanner};

use crate::support::*;

const SECOND: i64 = 1_000_000;
const HOUR: i64 = 3_600 * SECOND;

/// Another server of the same world, with a clock of its own and no node number yet.
fn server(world: &World, clock: &Arc<ManualClock>, name: &str) -> Coordinator {
    let (leg, clock): (_, Arc<dyn Clock>) = (world.leg.clone(), clock.clone());
    let ids = Arc::new(IdMaker::new(name.into()));
    Coordinator::new(world.db.clone(), leg, clock, ids, settings(), Arc::new(Metrics::default()))
}

fn step(clock: &ManualClock, micros: i64) {
    clock.set(clock.now().plus_micros(micros));
}

fn trouble(coordinator: &Coordinator) -> Option<String> {
    let (part, trouble) = coordinator.readiness().first_trouble()?;
    Some(format!("{part}: {}: {}", trouble.code, trouble.words))
}

/// It is refused, and nothing is recorded or put aside.
async fn assert_makes_no_transfer(world: &World, coordinator: &Coordinator) {
    let before = (world.all().await.len(), world.books(1).await);
    for begin in [Begin::Now, Begin::Later] {
        let made = coordinator.create(&[world.order(1, ToSpot, 100)], begin).await;
        let refused = matches!(made, Err(CoordinatorError::NoLease(_) | CoordinatorError::NotReady { .. }));
        assert!(refused, "{made:?}");
    }
    assert_eq!((world.all().await.len(), world.books(1).await), before);
}

db_test! {
    async fn a_clash_of_ids_is_tried_again_with_another_number(db: TestDb) {
        let world = World::open(db, 2).await;
        let first = world.transfer(world.order(1, ToSpot, 1_000)).await;
        world.transfer(world.order(1, ToFunding, 300)).await;
        // A second process believes that it has the same number, and its clock says the same.
        for begin in [Begin::Now, Begin::Later] {
            for orders in [
                vec![world.order(2, ToSpot, 500)],
                vec![world.order(1, ToSpot, 1_000)],
                vec![world.order(1, ToFunding, 100), world.order(2, ToSpot, 100), world.order(1, ToSpot, 10)],
            ] {
                let twin = coordinator(world.db.clone(), world.leg.clone(), world.clock.clone(), 1, settings());
                let created = twin.create(&orders, begin).await.unwrap();
                assert_eq!(created.len(), orders.len());
                for one in created {
                    let Created::New(transfer) = one else { panic!("{one:?}") };
                    assert_ne!(transfer.id, first.id);
                }
            }
        }
        world.recover().await;
        assert_eq!(world.all().await.len(), 2 + 2 * 5);
        assert_eq!(world.books(1).await, (FUNDS - 700 - 2 * 910, 0, 700 + 2 * 910));
        assert_eq!(world.books(2).await, (FUNDS - 1_200, 0, 1_200));
        world.assert_whole().await;
    }

    async fn a_transfer_that_a_wrong_clock_put_off_is_due(db: TestDb) {
        let world = World::open(db, 2).await;
        let ahead = Arc::new(ManualClock::at(world.clock.now().plus_micros(HOUR / 6 * 5)));
        let wrong = coordinator(world.db.clone(), world.leg.clone(), ahead, 2, settings());
        // It dies after the first commit of one, and while it waits to ask again for the other.
        wrong.create(&[world.order(1, ToSpot, 100)], Begin::Now).await.unwrap();
        world.leg.plan(&[Mood::LoseCall]);
        let Created::New(second) = wrong.create(&[world.order(2, ToSpot, 100)], Begin::Now).await.unwrap().remove(0)
        else { panic!("accepted") };
        assert_eq!(wrong.step(vec![second]).await.unwrap()[0].state, State::TargetPending);
        assert_eq!(scanner::scan_once(&world.coordinator).await.unwrap(), 2);
        world.assert_whole().await;
        assert_eq!((world.books(1).await, world.books(2).await), ((9_900, 0, 100), (9_900, 0, 100)));
    }

    async fn a_transfer_that_a_good_clock_put_off_waits(db: TestDb) {
        let world = World::open(db, 1).await;
        // As long a pause as there is, written by a clock that is as far ahead as it may be.
        world.leg.plan(&[Mood::LoseCall; 12]);
        let ahead = Arc::new(ManualClock::at(world.clock.now().plus_micros(5 * SECOND)));
        let other = coordinator(world.db.clone(), world.leg.clone(), ahead, 2, settings());
        let Created::New(mut transfer) = other.create(&[world.order(1, ToSpot, 100)], Begin::Now).await.unwrap().remove(0)
        else { panic!("accepted") };
        // We are as far behind as we may be.
        step(&world.clock, -5 * SECOND);
        for tries in 1..=12 {
            assert_eq!(scanner::scan_once(&world.coordinator).await.unwrap(), 0, "after {tries} tries");
            transfer = other.step(vec![transfer]).await.unwrap().remove(0);
            assert_eq!(transfer.tries, tries);
        }
        assert_eq!(scanner::scan_once(&world.coordinator).await.unwrap(), 0);
        world.recover().await;
        world.assert_whole().await;
    }

    async fn a_server_whose_clock_disagrees_makes_no_transfer(db: TestDb) {
        let world = World::open(db, 1).await;
        // On PostgreSQL the database's clock is compared too.
        let at = db.clock(&*world.clock).await.unwrap().map_or(NOW, |reading| reading.theirs);
        world.clock.set(at);
        // An engine's time never goes back: only a database's clock shows that ours is behind.
        let wrong: &[i64] = match db.engine() {
            store::Engine::Postgres => &[2 * HOUR, 6 * SECOND, -6 * SECOND, -2 * HOUR],
            store::Engine::Sqlite => &[2 * HOUR, 6 * SECOND],
        };
        for ahead in wrong.iter().copied() {
            world.leg.tell_time(Some(at));
            let clock = Arc::new(ManualClock::at(at.plus_micros(ahead)));
            let server = server(&world, &clock, "server");
            assert_eq!(server.renew_lease().await.unwrap(), Lent::WrongClock);
            let found = trouble(&server).expect("it is not ready");
            assert!(found.starts_with("clock: CLOCK_DISAGREES: this server's clock is "), "{found}");
            assert!(!server.has_lease());
            assert_makes_no_transfer(&world, &server).await;
            // The clock is put right.
            clock.set(at.plus_micros(SECOND));
            assert_eq!(server.renew_lease().await.unwrap(), Lent::Number);
            assert_eq!(trouble(&server), None);
            let created = server.create(&[world.order(1, ToSpot, 100)], Begin::Now).await.unwrap();
            assert!(matches!(created[0], Created::New(_)), "{created:?}");
            // It jumps ahead before it was compared again: the lease has ended for it.
            clock.set(at.plus_micros(HOUR));
            assert_makes_no_transfer(&world, &server).await;
            // It is wrong again: at the next renewal no more is made.
            clock.set(at.plus_micros(ahead));
            assert_eq!(server.renew_lease().await.unwrap(), Lent::WrongClock);
            assert_makes_no_transfer(&world, &server).await;
            server.give_back_lease().await;
        }
        world.recover().await;
        let moved = 100 * i64::try_from(wrong.len()).unwrap();
        assert_eq!(world.books(1).await, (FUNDS - moved, 0, moved));
        world.assert_whole().await;
    }

    async fn retry_and_resolve_need_no_node_number(db: TestDb) {
        let world = World::open(db, 1).await;
        world.leg.plan(&[Mood::LoseAnswer]);
        let stuck = world.transfer(world.order(1, ToSpot, 100)).await;
        let operator = server(&world, &world.clock, "operator");
        let author = transfer::operator::Author { actor: "ana".into(), reason: "ticket".into() };
        assert_eq!(operator.retry(stuck.id, &author).await.unwrap().state, State::Committed);
        operator.give_back_lease().await;
        // No number was lent to it: the first one is free.
        let ids = IdMaker::new("server".into());
        let clock: Arc<dyn Clock> = world.clock.clone();
        assert!(ids.renew(&world.db, &clock).await.unwrap());
        assert_eq!(ids.number().unwrap().number(), 0);
        world.assert_whole().await;
    }
}

/// Only PostgreSQL has a clock of its own.
fn on_postgres(test: impl AsyncFnOnce(&TestDb)) {
    on(store::Engine::Postgres, test);
}

#[test]
fn postgres_a_number_in_use_is_not_lent_to_a_clock_that_is_ahead() {
    on_postgres(async |db| {
        let right = Arc::new(ManualClock::at(NOW));
        right.set(db.clock(&*right).await.unwrap().expect("it has one").theirs);
        let ahead: Arc<dyn Clock> = Arc::new(ManualClock::at(right.now().plus_micros(HOUR)));
        let right: Arc<dyn Clock> = right;
        let (one, two) = (IdMaker::new("one".into()), IdMaker::new("two".into()));
        assert!(one.renew(db, &right).await.unwrap() && two.renew(db, &ahead).await.unwrap());
        assert_ne!(one.number(), two.number());
    });
}

#[test]
fn postgres_the_round_trip_is_no_difference() {
    on_postgres(async |db| {
        let clock = ManualClock::at(NOW);
        let first = db.clock(&clock).await.unwrap().expect("it has one");
        assert_eq!((first.before, first.after), (NOW, NOW));
        let old = first.theirs.micros() - NOW.micros();
        assert!(first.ahead_micros() == -old && old > 0, "{first:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
        let second = db.clock(&clock).await.unwrap().expect("it has one");
        assert!(second.theirs > first.theirs.plus_micros(2_000), "it is the moment, in microseconds");
        assert!(second.theirs < first.theirs.plus_micros(HOUR), "{second:?}");
        assert_ne!(first.theirs, Timestamp::default());
    });
}
