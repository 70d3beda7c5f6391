//! The database fails or the process dies at every statement and on both sides of the commit: all of an event or
//! nothing of it, and delivering it again gives what the model says. Duplicates of every event change nothing.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use store::faults::{Faults, Point, Strike, simulated};
use store::testing::TestDb;
use store::utxo::UtxoError;
use store::{StoreError, db_test};

use super::model::{Answer, Event};
use super::stage::*;
use super::world::events;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// An error comes back.
    Fails,
    /// The process dies there.
    Dies,
}

/// Strikes at the n-th point, once.
#[derive(Debug)]
struct Nth {
    left: AtomicI64,
    kind: Kind,
    struck: Mutex<Option<Point>>,
}

impl Faults for Nth {
    fn strike(&self, point: Point) -> Strike {
        if self.left.fetch_sub(1, Ordering::SeqCst) != 0 {
            return Box::pin(std::future::ready(Ok(())));
        }
        *self.struck.lock().unwrap() = Some(point);
        match (self.kind, point) {
            (Kind::Dies, _) => Box::pin(std::future::pending()),
            (Kind::Fails, Point::AfterCommit) => {
                Box::pin(std::future::ready(Err(StoreError::CommitUnknown(simulated()))))
            }
            (Kind::Fails, Point::Statement | Point::BeforeCommit) => {
                Box::pin(std::future::ready(Err(StoreError::Unavailable(simulated()))))
            }
        }
    }
}

/// Where it was struck, or what it answered.
enum Came {
    Struck(Point),
    Through(Answer),
}

async fn deliver_with_fault(stage: &Stage<'_>, event: &Event, n: i64, kind: Kind) -> Came {
    let faults = Arc::new(Nth { left: AtomicI64::new(n), kind, struck: Mutex::new(None) });
    let db = stage.db.with_faults(faults.clone());
    let died = async {
        while kind == Kind::Fails || faults.left.load(Ordering::SeqCst) >= 0 {
            tokio::task::yield_now().await;
        }
    };
    // A process that dies never ends its work; dropping it is its death.
    let result = tokio::select! {
        biased;
        result = deliver(&db, &stage.wallets, event, stage.now) => Some(result),
        () = died => None,
    };
    let struck = *faults.struck.lock().unwrap();
    match (struck, result) {
        (Some(point), None) => Came::Struck(point),
        (Some(point), Some(result)) => {
            let error = result.expect_err("a fault is not swallowed");
            assert!(matches!(error, UtxoError::Store(_)), "{error:?}");
            Came::Struck(point)
        }
        (None, Some(result)) => Came::Through(answer_of(&stage.wallets, result).unwrap()),
        (None, None) => unreachable!("only a strike is a death"),
    }
}

/// Delivers the event with a fault at each point in turn, then once more. Says at how many points it was struck.
async fn at_every_point(stage: &mut Stage<'_>, event: &Event, kind: Kind) -> usize {
    let before = stage.model.rows();
    let expected = stage.model.apply(event);
    let after = stage.model.rows();
    for n in 0.. {
        assert!(n < 200, "there is no end to the points of {event:?}");
        let came = deliver_with_fault(stage, event, n, kind).await;
        let rows = stage.reader.rows().await;
        match came {
            Came::Struck(Point::Statement | Point::BeforeCommit) => {
                let difference = difference(&rows, &before);
                assert!(difference.is_empty(), "point {n} of {event:?} left something behind:\n{difference}");
                continue;
            }
            Came::Struck(Point::AfterCommit) => {}
            Came::Through(answer) => assert_eq!(answer, expected, "{event:?}"),
        }
        let difference = difference(&rows, &after);
        assert!(difference.is_empty(), "point {n} of {event:?}:\n{difference}");
        let again = stage.play(event.clone()).await;
        assert_eq!(again.map_or(0, |changed| changed.len()), 0, "{event:?} again");
        return usize::try_from(n).unwrap();
    }
    unreachable!("the loop returns");
}

/// A block with all that a block can do, and the way back from it.
async fn connect_and_disconnect(db: &TestDb, kind: Kind) {
    let mut stage = Stage::open(db, 2).await;
    let ours = |amount| (script(0, 0, 0), amount);
    let coins = tx("coins", &[elsewhere("coins")], &[ours(1_000), ours(2_000), ours(3_000), (script(1, 0, 0), 4_000)]);
    stage.mine("root", &[coinbase("old reward", &[ours(5_000)]), coins.clone()]).await.unwrap();
    // Published, and replaced by one that the block makes impossible: comes back.
    let kept = tx("kept", &[output(&coins, 0)], &[ours(900)]);
    let loser = tx("loser", &[output(&coins, 0), output(&coins, 1)], &[ours(2_900)]);
    let child = tx("child of the loser", &[output(&loser, 0), output(&coins, 3)], &[(script(1, 1, 0), 2_800)]);
    let waiting = tx("waiting", &[elsewhere("waiting")], &[(script(1, 0, 1), 7_000)]);
    stage.play(Event::See(vec![kept.clone(), loser.clone(), child.clone(), waiting.clone()])).await.unwrap();
    let winner = tx("winner", &[output(&coins, 1)], &[(foreign_script(), 1_900)]);
    let reward = coinbase("reward", &[(script(1, 0, 0), 6_000)]);
    let spent_at_once = tx("spent at once", &[output(&waiting, 0)], &[ours(6_900)]);
    let block = stage.next_block("root");
    let connect = Event::Connect(block, vec![reward.clone(), winner, waiting, spent_at_once]);
    let points = at_every_point(&mut stage, &connect, kind).await;
    assert!(points > 5, "connecting has only {points} points");
    assert_eq!(stage.status(&kept), store::utxo::Status::Published);
    assert_eq!(stage.status(&child), store::utxo::Status::Failed);
    // Its reward is spent, also by one in the mempool.
    let spends_reward = tx("spends the reward", &[output(&reward, 0)], &[ours(5_900)]);
    let next = tx("next", &[output(&spends_reward, 0)], &[ours(5_800)]);
    stage.mine("root", std::slice::from_ref(&spends_reward)).await.unwrap();
    stage.play(Event::See(vec![next.clone()])).await.unwrap();
    let points = at_every_point(&mut stage, &Event::Disconnect(BASE, vec![]), kind).await;
    assert!(points > 4, "disconnecting has only {points} points");
    assert_eq!(stage.status(&reward), store::utxo::Status::Orphaned);
    assert_eq!(stage.status(&next), store::utxo::Status::Failed);
    stage.assert_checked().await;
}

async fn world_at_every_point(db: &TestDb, seed: u64, kind: Kind) {
    let mut stage = Stage::open(db, 2).await;
    for event in events(seed, 2, 16) {
        at_every_point(&mut stage, &event, kind).await;
    }
    stage.assert_checked().await;
}

db_test! {
    async fn a_failure_at_any_statement_of_connect_and_disconnect_is_all_or_nothing(db: TestDb) {
        connect_and_disconnect(db, Kind::Fails).await;
    }

    async fn a_death_at_any_statement_of_connect_and_disconnect_is_all_or_nothing(db: TestDb) {
        connect_and_disconnect(db, Kind::Dies).await;
    }

    async fn a_failure_at_any_statement_of_any_event_is_all_or_nothing(db: TestDb) {
        world_at_every_point(db, 100, Kind::Fails).await;
    }

    async fn a_death_at_any_statement_of_any_event_is_all_or_nothing(db: TestDb) {
        world_at_every_point(db, 101, Kind::Dies).await;
    }

    async fn every_event_may_come_twice(db: TestDb) {
        let mut stage = Stage::open(db, 3).await;
        for event in events(102, 3, 80) {
            let first = stage.play(event.clone()).await;
            let second = stage.play(event.clone()).await;
            match first {
                Ok(_) => assert_eq!(second, Ok([].into()), "{event:?}"),
                Err(code) => assert_eq!(second, Err(code), "{event:?}"),
            }
        }
        stage.assert_checked().await;
    }
}
