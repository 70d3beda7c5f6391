//! What happens to transfers whose legs answer, refuse, or do neither.

use std::sync::Arc;
use std::time::Duration;

use domain::transfer::{Direction::*, State};
use domain::{AccountStatus, Clock};
use store::db_test;
use transfer::leg::Verb;
use transfer::{Begin, Created, Settings};

use crate::support::*;

db_test! {
    async fn both_ways_commit_in_two_commits(db: TestDb) {
        let world = World::open(db, 1).await;
        let there = world.transfer(world.order(1, ToSpot, 3_000)).await;
        assert_eq!(there.state, State::Committed);
        assert_eq!(world.books(1).await, (7_000, 0, 3_000));
        assert_eq!(world.paths(there.id).await,
            ["INIT>SOURCE_PENDING>SOURCE_DONE>TARGET_PENDING", "TARGET_PENDING>COMMITTED"]);
        let back = world.transfer(world.order(1, ToFunding, 1_000)).await;
        assert_eq!(back.state, State::Committed);
        assert_eq!(world.books(1).await, (8_000, 0, 2_000));
        assert_eq!(world.paths(back.id).await,
            ["INIT>SOURCE_PENDING", "SOURCE_PENDING>SOURCE_DONE>TARGET_PENDING>COMMITTED"]);
        world.assert_whole().await;
    }

    async fn a_timeout_never_refunds(db: TestDb) {
        let world = World::open(db, 2).await;
        world.transfer(world.order(2, ToSpot, 500)).await;
        for mood in [Mood::LoseAnswer, Mood::LoseCall, Mood::TooManyAnswers] {
            world.leg.plan(&[mood]);
            let there = world.transfer(world.order(1, ToSpot, 100)).await;
            assert_eq!(there.state, State::TargetPending, "{mood:?}");
            assert_eq!(there.tries, 1);
            assert_eq!(world.books(1).await.1, 100, "the money stays held");
            world.leg.plan(&[mood]);
            let back = world.transfer(world.order(2, ToFunding, 100)).await;
            assert_eq!(back.state, State::SourcePending, "{mood:?}");
            // Nothing is due yet: the scanner does not ask again before its time.
            assert_eq!(transfer::scanner::scan_once(&world.coordinator).await.unwrap(), 0);
            world.recover().await;
            assert_eq!(world.read(there.id).await.state, State::Committed);
            assert_eq!(world.read(back.id).await.state, State::Committed);
        }
        world.leg.plan(&[Mood::Twice]);
        assert_eq!(world.transfer(world.order(1, ToSpot, 100)).await.state, State::Committed);
        assert_eq!(world.books(1).await, (9_600, 0, 400));
        assert_eq!(world.books(2).await, (9_800, 0, 200));
        world.assert_whole().await;
    }

    async fn an_explicit_refusal_of_spot_gives_the_hold_back(db: TestDb) {
        let world = World::open(db, 1).await;
        world.transfer(world.order(1, ToSpot, 100)).await;
        set_spot_status(&world, 1, AccountStatus::Disabled).await;
        let refused = world.transfer(world.order(1, ToSpot, 200)).await;
        assert_eq!((refused.state, refused.error.as_deref()), (State::RolledBack, Some("ACCOUNT_DISABLED")));
        assert_eq!(world.books(1).await, (9_900, 0, 100));
        assert_eq!(world.paths(refused.id).await[1], "TARGET_PENDING>COMPENSATING>ROLLED_BACK");
        // A lagging worker that still asks the engine changes nothing.
        assert!(world.coordinator.step(vec![refused.clone()]).await.unwrap()[0].state == State::RolledBack);
        world.assert_whole().await;
    }

    async fn an_explicit_refusal_of_funding_gives_the_withdrawal_back_however_long_it_takes(db: TestDb) {
        let world = World::open(db, 1).await;
        world.transfer(world.order(1, ToSpot, 1_000)).await;
        let created = world.coordinator.create(&[world.order(1, ToFunding, 400)], Begin::Now).await.unwrap();
        let Created::New(transfer) = created[0].clone() else { panic!("{created:?}") };
        set_funding_status(&world, 1, AccountStatus::Disabled, "disable").await;
        // The withdrawal is answered, the answers of the rollbacks are lost.
        let moods = [Mood::LoseAnswer; 12];
        let stuck = {
            world.leg.plan(&[]);
            let leg = Arc::clone(&world.leg);
            let step = world.coordinator.step(vec![transfer.clone()]);
            // The first call is the withdrawal; the answers of later calls are lost.
            leg.plan(&[Mood::Twice]);
            leg.plan(&moods);
            step.await.unwrap().remove(0)
        };
        assert_eq!((stuck.state, stuck.error.as_deref()), (State::Compensating, Some("ACCOUNT_DISABLED")));
        world.recover().await;
        let ended = world.read(transfer.id).await;
        assert_eq!((ended.state, ended.error.as_deref()), (State::RolledBack, Some("ACCOUNT_DISABLED")));
        assert_eq!(ended.tries, 12);
        assert_eq!(world.books(1).await, (9_000, 0, 1_000));
        world.assert_whole().await;
    }

    async fn a_source_that_refuses_fails_the_transfer_and_moves_nothing(db: TestDb) {
        let world = World::open(db, 1).await;
        world.transfer(world.order(1, ToSpot, 1_000)).await;
        // The early check accepts each of the two by itself; together they ask for too much.
        let one = world.coordinator.create(&[world.order(1, ToFunding, 700)], Begin::Now).await.unwrap();
        let two = world.coordinator.create(&[world.order(1, ToFunding, 700)], Begin::Now).await.unwrap();
        let batch = [one, two].concat().into_iter().map(|created| match created {
            Created::New(transfer) => transfer,
            other => panic!("{other:?}"),
        });
        let ended = world.coordinator.step(batch.collect()).await.unwrap();
        let mut states: Vec<State> = ended.iter().map(|transfer| transfer.state).collect();
        states.sort_by_key(|state| state.number());
        assert_eq!(states, [State::Failed, State::Committed]);
        // Both are written down for later. When the second is begun, the first has taken the money.
        world.coordinator.create(&[world.order(1, ToSpot, 5_000)], Begin::Later).await.unwrap();
        world.coordinator.create(&[world.order(1, ToSpot, 5_000)], Begin::Later).await.unwrap();
        world.recover().await;
        let failed: Vec<_> = world.all().await.into_iter().filter(|one| one.state == State::Failed).collect();
        assert_eq!(failed.len(), 2);
        assert!(failed.iter().all(|one| one.error.as_deref() == Some("INSUFFICIENT_BALANCE")));
        assert!(world.paths(failed[0].id).await.iter().any(|path| path == "INIT>SOURCE_PENDING>FAILED"));
        world.assert_whole().await;
    }

    async fn an_engine_that_freezes_is_committed_before_the_transfer_is(db: TestDb) {
        let world = World::with(db, 1, settings(), true).await;
        world.transfer(world.order(1, ToSpot, 1_000)).await;
        world.leg.calls.lock().unwrap().clear();
        world.leg.plan(&[Mood::Twice, Mood::LoseAnswer]);
        let back = world.transfer(world.order(1, ToFunding, 300)).await;
        assert_eq!(back.state, State::TargetPending, "the user has it, the source is not settled");
        assert_eq!(world.books(1).await, (9_300, 0, 700));
        world.recover().await;
        assert_eq!(world.read(back.id).await.state, State::Committed);
        assert_eq!(*world.leg.calls.lock().unwrap(), [Verb::Withdraw, Verb::Commit, Verb::Commit]);
        world.assert_whole().await;
    }

    async fn somebody_is_told_of_a_stuck_transfer_once(db: TestDb) {
        let settings = Settings { alert_tries: 3, alert_after: Duration::from_secs(100_000), ..settings() };
        let world = World::with(db, 1, settings, false).await;
        world.leg.plan(&[Mood::LoseCall; 6]);
        let stuck = world.transfer(world.order(1, ToSpot, 100)).await;
        world.recover().await;
        assert_eq!(world.read(stuck.id).await.tries, 6);
        let rows = store::transfer::history(&mut world.db.read().await.unwrap(), stuck.id).await.unwrap();
        let alerts = rows.iter().filter(|row| row.reason.starts_with("ALERT")).count();
        assert_eq!(alerts, 1, "{rows:?}");
        // One row for the first trouble, one for the alert; the same trouble again is not worth a row.
        assert_eq!(rows.len(), 4, "{rows:?}");
        let counted = world.coordinator.metrics().transfer_alerts.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(counted, 1);
        world.assert_whole().await;
    }

    async fn pauses_grow_up_to_a_ceiling(db: TestDb) {
        let world = World::open(db, 1).await;
        world.leg.plan(&[Mood::LoseCall; 12]);
        let mut transfer = world.transfer(world.order(1, ToSpot, 100)).await;
        let mut pauses = Vec::new();
        for _ in 0..11 {
            pauses.push(transfer.due_at.micros() - world.clock.now().micros());
            world.clock.set(transfer.due_at);
            assert_eq!(transfer::scanner::scan_once(&world.coordinator).await.unwrap(), 1);
            transfer = world.read(transfer.id).await;
        }
        assert!((125_000..=250_000).contains(&pauses[0]), "{pauses:?}");
        assert!(pauses[5] > pauses[0] * 8, "{pauses:?}");
        assert!(pauses.iter().all(|pause| *pause <= 60_000_000), "{pauses:?}");
        assert!(pauses[10] >= 30_000_000, "{pauses:?}");
        world.recover().await;
        world.assert_whole().await;
    }

    async fn a_clock_that_was_wrong_for_a_moment_strands_nothing(db: TestDb) {
        let world = World::open(db, 1).await;
        world.leg.plan(&[Mood::LoseCall]);
        world.transfer(world.order(1, ToSpot, 100)).await;
        let next_year = world.clock.now().plus_micros(366 * 86_400_000_000).micros();
        db.by_hand(&format!("UPDATE transfers SET due_at = {next_year}")).await.unwrap();
        assert_eq!(transfer::scanner::scan_once(&world.coordinator).await.unwrap(), 1, "it is taken up all the same");
        world.recover().await;
        world.assert_whole().await;
    }

    async fn workers_on_the_same_transfers_are_harmless(db: TestDb) {
        let world = World::open(db, 8).await;
        let mut open = Vec::new();
        for round in 0..5 {
            for number in 1..=8 {
                world.leg.plan(&[Mood::LoseAnswer]);
                let direction = if round < 3 { ToSpot } else { ToFunding };
                open.push(world.transfer(world.order(number, direction, 50 + round)).await);
            }
            world.recover().await;
        }
        for number in 1..=8 {
            world.leg.plan(&[Mood::LoseAnswer, Mood::LoseCall]);
            open.push(world.transfer(world.order(number, ToSpot, 70)).await);
            open.push(world.transfer(world.order(number, ToFunding, 30)).await);
        }
        world.wait(Duration::from_secs(60));
        // Four coordinators with old rows, and four scanners, all at once.
        let mut tasks = tokio::task::JoinSet::new();
        for node in 10..14 {
            let other = coordinator(world.db.clone(), world.leg.clone(), world.clock.clone(), node, settings());
            let (other, seen) = (Arc::new(other), open.clone());
            let scanner = Arc::clone(&other);
            tasks.spawn(async move { other.step(seen).await.map(|_| ()) });
            tasks.spawn(async move { transfer::scanner::scan_once(&scanner).await.map(|_| ()) });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap().unwrap();
        }
        world.recover().await;
        world.assert_whole().await;
    }
}
