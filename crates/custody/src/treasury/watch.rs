//! What the treasury costs and how long its gas will do, looked at every now and then: for metrics and alerts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use domain::treasury::Price;
use domain::{AssetId, Timestamp};
use store::treasury::cost::{Costs, GasWallet};
use store::withdrawal::OpenWithdrawals;
use store::{Db, StoreError};

/// Costs and the use of gas are those of the last day.
pub const DAY_MICROS: i64 = 24 * 3_600 * 1_000_000;

/// A gas wallet has less than it used in the last day.
pub const GAS_RUNS_DRY: &str = "GAS_RUNS_DRY";

/// As it was when it was looked at.
#[derive(Clone, Debug, Default)]
pub struct TreasuryStanding {
    pub costs: Costs,
    pub gas: Vec<GasWallet>,
    pub prices: HashMap<AssetId, Price>,
    /// What customers want paid out, and what holds their money for it.
    pub withdrawals: Vec<OpenWithdrawals>,
}

impl TreasuryStanding {
    /// What the last day has cost, and what gas wallets have.
    pub async fn read(db: &Db, now: Timestamp) -> Result<Self, StoreError> {
        Self::since(db, now.plus_micros(-DAY_MICROS)).await
    }

    /// The same since another time.
    pub async fn since(db: &Db, since: Timestamp) -> Result<Self, StoreError> {
        let costs = db.costs(since).await?;
        let gas = db.gas_wallets(&costs).await?;
        let withdrawals = db.open_withdrawals().await?;
        Ok(Self { costs, gas, prices: db.newest_prices().await?, withdrawals })
    }

    /// Gas wallets that have less than they used in a day, or than jobs wait for.
    pub fn dry(&self) -> impl Iterator<Item = &GasWallet> {
        self.gas.iter().filter(|wallet| wallet.supply.runs_dry())
    }
}

/// The watch of one process over one database.
#[derive(Debug, Default)]
pub struct TreasuryWatch {
    standing: Mutex<Option<Arc<TreasuryStanding>>>,
}

impl TreasuryWatch {
    /// Looks once. What was seen before must not pass for what is: when it cannot be read, nothing is known.
    pub async fn look(&self, db: &Db, now: Timestamp) -> Result<(), StoreError> {
        let read = TreasuryStanding::read(db, now).await;
        let (standing, done) = match read {
            Ok(standing) => (Some(Arc::new(standing)), Ok(())),
            Err(error) => (None, Err(error)),
        };
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner) = standing;
        done
    }

    /// `None`: it was not looked at yet, or could not be read.
    pub fn standing(&self) -> Option<Arc<TreasuryStanding>> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
