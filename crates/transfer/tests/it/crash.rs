//! The database fails or the process dies at every single point; afterwards everything is whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use domain::AccountStatus;
use domain::transfer::{Direction::*, State};
use store::faults::{Faults, Point, Strike};
use store::{StoreError, db_test};
use transfer::{Begin, Created};

use crate::support::*;

/// Fails at the n-th point, once.
#[derive(Debug)]
struct Nth {
    left: AtomicI64,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// An error comes back.
    Fails,
    /// The process dies there.
    Dies,
}

impl Faults for Nth {
    fn strike(&self, point: Point) -> Strike {
        if self.left.fetch_sub(1, Ordering::SeqCst) != 0 {
            return Box::pin(std::future::ready(Ok(())));
        }
        match self.kind {
            Kind::Dies => Box::pin(std::future::pending()),
            Kind::Fails => {
                let lost = sqlx_error();
                Box::pin(std::future::ready(Err(match point {
                    Point::AfterCommit => StoreError::CommitUnknown(lost),
                    Point::Statement | Point::BeforeCommit => StoreError::Unavailable(lost),
                })))
            }
        }
    }
}

fn sqlx_error() -> store::faults::Cause {
    store::faults::simulated()
}

/// Runs one transfer of each kind with the n-th point failing. Says whether that point was reached.
async fn run(world: &World, n: i64, kind: Kind) -> bool {
    let faults = Arc::new(Nth { left: AtomicI64::new(n), kind });
    let db = world.db.with_faults(faults.clone());
    let victim = coordinator(db, world.leg.clone(), world.clock.clone(), 20, settings());
    let orders = [
        world.named(1, ToSpot, 110, &format!("there-{n}-{kind:?}")),
        world.named(2, ToFunding, 120, &format!("back-{n}-{kind:?}")),
        // Refused by the engine: its account there is disabled.
        world.named(3, ToSpot, 130, &format!("refused-{n}-{kind:?}")),
    ];
    let work = async {
        let created = victim.create(&orders, Begin::Now).await.ok()?;
        let new = created.into_iter().filter_map(|one| match one {
            Created::New(transfer) => Some(transfer),
            Created::Duplicate(_) | Created::Rejected(_) => None,
        });
        victim.step(new.collect()).await.ok()
    };
    tokio::pin!(work);
    // A process that dies never ends its work; dropping it is its death.
    let died = async {
        while faults.left.load(Ordering::SeqCst) >= 0 || kind == Kind::Fails {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = &mut work => {}
        () = died => {}
    }
    faults.left.load(Ordering::SeqCst) < 0
}

async fn every_point(world: &World, kind: Kind) {
    world.transfer(world.order(2, ToSpot, 5_000)).await;
    world.transfer(world.order(3, ToSpot, 100)).await;
    set_spot_status(world, 3, AccountStatus::Disabled).await;
    for n in 0.. {
        assert!(n < 200, "there is no end to the points");
        let struck = run(world, n, kind).await;
        world.recover().await;
        world.assert_whole().await;
        // The client sends the same again. An order that was recorded is found, another is recorded now: each once.
        for (number, direction, amount, name) in
            [(1, ToSpot, 110, "there"), (2, ToFunding, 120, "back"), (3, ToSpot, 130, "refused")]
        {
            let name = format!("{name}-{n}-{kind:?}");
            world.coordinator.create(&[world.named(number, direction, amount, &name)], Begin::Now).await.unwrap();
            world.recover().await;
            let ended: Vec<_> = world
                .all()
                .await
                .into_iter()
                .filter(|one| one.client_order_id.as_ref().is_some_and(|one| one.as_str() == name))
                .collect();
            assert_eq!(ended.len(), 1, "{name}");
            let expected = if number == 3 { State::RolledBack } else { State::Committed };
            assert_eq!(ended[0].state, expected, "{name}");
        }
        world.assert_whole().await;
        world.wait(std::time::Duration::from_secs(86_400));
        if !struck {
            assert!(n > 15, "only {n} points");
            return;
        }
        // Money to go on with.
        for (number, direction, amount) in [(1, ToFunding, 110), (2, ToSpot, 120)] {
            assert_eq!(world.transfer(world.order(number, direction, amount)).await.state, State::Committed);
        }
    }
}

db_test! {
    async fn the_database_may_fail_anywhere(db: TestDb) {
        let world = World::open(db, 3).await;
        every_point(&world, Kind::Fails).await;
    }

    async fn the_process_may_die_anywhere(db: TestDb) {
        let world = World::open(db, 3).await;
        every_point(&world, Kind::Dies).await;
    }
}
