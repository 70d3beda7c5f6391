//! What a wallet needs beside blocks and mempool: leases that ended are swept, tables that have grown are analysed, the nodes' limits
//! are learned, and what an operator watches is read.
//!
//! Any number of processes may do it at the same time. A lease that has ended binds nobody, so a sweep that is late or
//! does not come costs room and nothing else.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use chain::bitcoin::BitcoinChain;
use domain::{Clock, Timestamp};
use store::Db;
use store::utxo::{ChainSize, LeaseStat, SWEPT_AT_ONCE, TableStat, UtxoError};

use super::follow::FollowError;

/// A lease is swept so long after its end: a process whose clock is ahead must not sweep what another still holds.
const GRACE_MICROS: i64 = 60_000_000;

/// One round sweeps so many times at most; the rest waits for the next round.
const MOST_SWEEPS: u32 = 20;

/// How the wallets' tables and leases stand, and what the sweeps of this process have removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalletStanding {
    pub leases: LeaseStat,
    /// Rows that each table has had since it was made.
    pub rows_made: Vec<TableStat>,
    pub unspent: i64,
    pub sweeps: Sweeps,
}

/// Since the process was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sweeps {
    pub swept: u64,
    /// How long after its end the lease was swept that had waited longest, in the last round that swept any.
    pub latency_micros: i64,
}

#[derive(Debug, Default)]
pub struct Upkeep {
    sweeps: Mutex<Sweeps>,
    standing: Mutex<Option<WalletStanding>>,
}

impl Upkeep {
    /// As it was when it was last read. `None`: there is no wallet, or it could not be read; an old number would pass for
    /// a new one.
    pub fn standing(&self) -> Option<WalletStanding> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// One round after another, for ever.
    pub async fn watch(&self, db: &Db, chain: Option<&BitcoinChain>, clock: &dyn Clock, pause: Duration) {
        loop {
            match self.round(db, chain, clock.now()).await {
                Ok(()) => {}
                // Whoever follows says so by itself.
                Err(FollowError::Chain(error)) => {
                    tracing::debug!(code = error.code(), "the nodes' limits are not known")
                }
                Err(error) => tracing::warn!(code = error.code(), %error, "the wallets' upkeep waits"),
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Sweeps, analyses, learns, and reads.
    pub async fn round(&self, db: &Db, chain: Option<&BitcoinChain>, now: Timestamp) -> Result<(), FollowError> {
        let mut standing = None;
        let done = self.try_round(db, chain, now, &mut standing).await;
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner) = standing;
        done
    }

    async fn try_round(
        &self,
        db: &Db,
        chain: Option<&BitcoinChain>,
        now: Timestamp,
        standing: &mut Option<WalletStanding>,
    ) -> Result<(), FollowError> {
        if db.wallets().await?.is_empty() {
            return Ok(());
        }
        let sweeps = self.sweep(db, now).await?;
        db.analyse_after_growth().await.map_err(UtxoError::from)?;
        *standing = Some(WalletStanding {
            leases: db.lease_stat(now).await?,
            rows_made: db.utxo_rows_made().await?,
            unspent: db.unspent_count().await?,
            sweeps,
        });
        match chain {
            Some(chain) => learn_chain_limits(db, chain).await,
            None => Ok(()),
        }
    }

    async fn sweep(&self, db: &Db, now: Timestamp) -> Result<Sweeps, UtxoError> {
        let (mut count, mut oldest) = (0, None);
        for _ in 0..MOST_SWEEPS {
            let swept = db.sweep_some_leases(now.plus_micros(-GRACE_MICROS)).await?;
            count += swept.count;
            // The first sweep has the oldest.
            oldest = oldest.or(swept.oldest);
            if swept.count < SWEPT_AT_ONCE {
                break;
            }
        }
        let mut sweeps = self.sweeps.lock().unwrap_or_else(PoisonError::into_inner);
        sweeps.swept = sweeps.swept.saturating_add(count);
        if let Some(oldest) = oldest {
            sweeps.latency_micros = now.micros().saturating_sub(oldest.micros());
        }
        Ok(*sweeps)
    }
}

/// Writes down how many unconfirmed transactions may hang together. What our nodes would take beyond the usual is not
/// used: a payment must also pass the nodes between ours and the miners.
pub async fn learn_chain_limits(db: &Db, chain: &BitcoinChain) -> Result<(), FollowError> {
    let said = chain.cluster_limits().await?;
    let said = said.map(|said| ChainSize { transactions: said.transactions, bytes: said.size });
    Ok(db.limit_chains(said.map_or(ChainSize::USUAL, |said| said.least(ChainSize::USUAL))).await?)
}
