//! Selections of one process, leased together: each as if it were alone, whoever of them goes away.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use store::db_test;
use store::faults::{Faults, Point, Strike};
use store::utxo::*;

use super::candidates::want;
use super::lease::{MINUTE, first, funded, lock};

/// Counts commits, and keeps the first caller at its n-th point for ever: it died there.
#[derive(Debug)]
struct Dies {
    left: AtomicI64,
    commits: AtomicI64,
}

impl Dies {
    fn at(point: i64) -> Arc<Self> {
        Arc::new(Self { left: AtomicI64::new(point), commits: AtomicI64::new(0) })
    }
}

impl Faults for Dies {
    fn strike(&self, point: Point) -> Strike {
        if point == Point::BeforeCommit {
            self.commits.fetch_add(1, Ordering::SeqCst);
        }
        if self.left.fetch_sub(1, Ordering::SeqCst) == 0 {
            return Box::pin(std::future::pending());
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

db_test! {
    async fn selections_at_once_share_transactions_and_no_output(db: TestDb) {
        let (stage, coins) = funded(db, 200).await;
        let (wallet, now) = (stage.wallets[0], stage.now);
        let until = now.plus_micros(MINUTE);
        let counted = Dies::at(i64::MAX);
        let shared = db.with_faults(counted.clone());
        let select = |number: u8| {
            let shared = shared.clone();
            async move {
                let want = Want { target: 1_000, seed: u64::from(number), ..want(Allow::default()) };
                // Each wants two, and names one twice.
                let two = |coins: &[Candidate]| {
                    let at = usize::from(number) % (coins.len() - 1);
                    Some(vec![coins[at].id, coins[at + 1].id, coins[at].id])
                };
                shared.select_and_lease(wallet, 0, &want, lock(number), until, now, two).await.unwrap().unwrap()
            }
        };
        let all = futures_util::future::join_all((1..=32).map(select)).await;
        let outpoints: Vec<OutPoint> = all.iter().flatten().map(|coin| coin.outpoint).collect();
        let different: BTreeSet<OutPoint> = outpoints.iter().copied().collect();
        assert_eq!((outpoints.len(), different.len()), (64, 64), "an output was given twice");
        let leases = db.leases(wallet, None, 1_000).await.unwrap();
        assert_eq!(leases.len(), 64);
        for lease in &leases {
            let holder = all.iter().position(|coins| coins.iter().any(|coin| coin.id == lease.id)).unwrap();
            assert_eq!((lease.lock, lease.until), (Some(lock(u8::try_from(holder + 1).unwrap())), Some(until)));
        }
        assert!(coins.outputs.len() > 64);
        let commits = counted.commits.load(Ordering::SeqCst);
        assert!(commits < 32, "{commits} commits for 32 selections");
    }

    /// The caller that leases for all is dropped at every point: those that waited for it get theirs.
    async fn a_caller_that_dies_while_it_leases_for_others_does_not_take_them_along(db: TestDb) {
        let (stage, _) = funded(db, 200).await;
        let (wallet, now) = (stage.wallets[0], stage.now);
        let until = now.plus_micros(MINUTE);
        let mut died = 0;
        for point in 0..12 {
            let dies = Dies::at(point);
            let shared = db.with_faults(dies.clone());
            let want = want(Allow::default());
            let mut doomed = Box::pin(shared.select_and_lease(wallet, 0, &want, lock(1), until, now, first(1)));
            let struck = async {
                while dies.left.load(Ordering::SeqCst) >= 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::select! {
                got = &mut doomed => {
                    assert!(got.unwrap().is_some());
                    // It has no such point. The second is not meant.
                    dies.left.store(-1, Ordering::SeqCst);
                }
                () = struck => died += 1,
            }
            let second = shared.select_and_lease(wallet, 0, &want, lock(2), until, now, first(1));
            let mut second = Box::pin(second);
            // It waits for the first, which never comes back.
            let waited = tokio::time::timeout(Duration::from_millis(50), &mut second).await;
            drop(doomed);
            let got = match waited {
                Ok(got) => got,
                Err(_) => tokio::time::timeout(Duration::from_secs(20), second).await.expect("it goes on"),
            };
            assert_eq!(got.unwrap().map(|coins| coins.len()), Some(1), "point {point}");
            for holder in [1, 2] {
                db.release(wallet, lock(holder)).await.unwrap();
            }
        }
        assert!(died > 5, "only {died} points were reached");
        stage.assert_checked().await;
    }
}
