//! Selections of one process that end at the same time are leased together: one transaction of the database, one sync.
//!
//! Whoever comes first leases for all that wait; there is no timer and no task of its own. While one transaction commits,
//! the next ones gather. The caller that leases may be dropped at any moment: the others then lease alone, which the same
//! lock may do again and again.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use domain::Timestamp;
use tokio::sync::oneshot;

use super::lease::{NewLease, lock_free, lock_idle, read_holders, write_leases};
use super::types::{Coin, LockId, UtxoId, WalletId};
use crate::db::{Db, Tx};
use crate::error::StoreError;
use crate::transact;

/// So many are leased in one transaction.
const TOGETHER: usize = 64;

/// Outputs that a selection has chosen.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    pub wallet: WalletId,
    pub ids: Vec<UtxoId>,
    pub lock: LockId,
    pub until: Timestamp,
    pub now: Timestamp,
}

#[derive(Debug)]
struct Waiting {
    chosen: Chosen,
    answer: oneshot::Sender<Option<Vec<Coin>>>,
}

#[derive(Debug, Default)]
pub(crate) struct LeaseQueue {
    waiting: Mutex<VecDeque<Waiting>>,
    /// Held by the caller that leases for the others.
    turn: tokio::sync::Mutex<()>,
}

impl LeaseQueue {
    fn push(&self, waiting: Waiting) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push_back(waiting);
    }

    /// The next ones, all of one wallet. Those whose callers are gone are passed over.
    fn take(&self) -> Vec<Waiting> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|one| !one.answer.is_closed());
        let Some(wallet) = waiting.front().map(|one| one.chosen.wallet) else { return Vec::new() };
        let (mut taken, mut left) = (Vec::new(), VecDeque::new());
        for one in waiting.drain(..) {
            if one.chosen.wallet == wallet && taken.len() < TOGETHER {
                taken.push(one);
            } else {
                left.push_back(one);
            }
        }
        *waiting = left;
        taken
    }
}

impl Db {
    /// Leases all of these or none. `None`: one of them is spent, leased to another lock, or in another's hands just now.
    pub(super) async fn lease_chosen(&self, chosen: Chosen) -> Result<Option<Vec<Coin>>, StoreError> {
        let (answer, mut answered) = oneshot::channel();
        self.leases.push(Waiting { chosen: chosen.clone(), answer });
        loop {
            let turn = tokio::select! {
                biased;
                answer = &mut answered => match answer {
                    Ok(coins) => return Ok(coins),
                    Err(_) => break,
                },
                turn = self.leases.turn.lock() => turn,
            };
            let batch = self.leases.take();
            if batch.is_empty() {
                // Another had taken it along, and is gone.
                break;
            }
            let all: Vec<Chosen> = batch.iter().map(|one| one.chosen.clone()).collect();
            match transact!(self, tx => lease_together(tx, &all).await) {
                Ok(answers) => {
                    for (one, coins) in batch.into_iter().zip(answers) {
                        // A caller that is gone has no use for its lease, which ends by itself.
                        drop(one.answer.send(coins));
                    }
                }
                // Each tries alone, and learns its own error.
                Err(error) => tracing::debug!(code = error.code(), "selections are leased one by one"),
            }
            // Only now: whoever is next finds its answer.
            drop(turn);
        }
        let one = [chosen];
        let mut answers = transact!(self, tx => lease_together(tx, &one).await)?;
        Ok(answers.pop().flatten())
    }
}

/// Selections of one wallet, each as if the ones before it had been leased already.
async fn lease_together(tx: &mut Tx, all: &[Chosen]) -> Result<Vec<Option<Vec<Coin>>>, StoreError> {
    let Some(first) = all.first() else { return Ok(Vec::new()) };
    let wanted: HashSet<UtxoId> = all.iter().flat_map(|one| &one.ids).copied().collect();
    let wanted: Vec<UtxoId> = wanted.into_iter().collect();
    let coins = lock_idle(tx, first.wallet, &wanted).await?;
    decide_and_write(tx, all, coins).await
}

/// One selection alone that waits for whoever has locked its outputs.
pub(super) async fn lease_in_line(tx: &mut Tx, chosen: &Chosen) -> Result<Option<Vec<Coin>>, StoreError> {
    let coins = lock_free(tx, chosen.wallet, &chosen.ids).await?;
    let answers = decide_and_write(tx, std::slice::from_ref(chosen), coins).await?;
    Ok(answers.into_iter().next().flatten())
}

/// The coins are locked, and were free when they were.
async fn decide_and_write(tx: &mut Tx, all: &[Chosen], coins: Vec<Coin>) -> Result<Vec<Option<Vec<Coin>>>, StoreError> {
    let Some(first) = all.first() else { return Ok(Vec::new()) };
    let mut holders = read_holders(tx, first.wallet, &coins).await?;
    // The earliest of their clocks: a lease has ended for all of them or for none.
    let now = all.iter().map(|one| one.now).min().unwrap_or(first.now);
    let coins: HashMap<UtxoId, Coin> = coins.into_iter().map(|coin| (coin.id, coin)).collect();
    let (mut answers, mut leases) = (Vec::with_capacity(all.len()), HashMap::new());
    for one in all {
        let held = |id: &UtxoId| holders.get(id).is_some_and(|(lock, until)| *lock != one.lock && *until > now);
        let mut ids = one.ids.clone();
        ids.sort_unstable();
        ids.dedup();
        let got: Option<Vec<Coin>> =
            if ids.iter().any(held) { None } else { ids.iter().map(|id| coins.get(id).cloned()).collect() };
        if got.is_some() {
            for id in ids {
                // Also for one whose lease ends before the others begin: two in one batch never share an output.
                holders.insert(id, (one.lock, Timestamp::from_micros(i64::MAX)));
                leases.insert(id, NewLease { id, lock: one.lock, until: one.until });
            }
        }
        answers.push(got);
    }
    let mut leases: Vec<NewLease> = leases.into_values().collect();
    leases.sort_unstable_by_key(|lease| lease.id);
    write_leases(tx, first.wallet, &leases, now).await?;
    Ok(answers)
}
