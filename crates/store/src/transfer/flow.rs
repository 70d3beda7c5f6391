//! What went through `clearing:spot`, and what is on its way there or back. The check that runs by itself compares it with
//! the engine. Its cost does not grow with history: it starts at the last checkpoint.

use std::collections::BTreeMap;

use domain::{AccountId, AssetId};

use super::audit::READ_CLEARING;
use crate::db::Tx;
use crate::dialect::Many;
use crate::error::StoreError;
use crate::ledger::balances::{HIGHEST_MOVEMENT, join_halves, latest_checkpoint};

statements! {
    /// In two halves of 32 bits, after movement $1: what the accounts $2 got (1), gave (2) and were refused to give (3);
    /// and by asset, of the transfers that have not ended, deposits that may have happened (4), withdrawals that may have
    /// (5), and those of the latter that are being given back (6).
    ///
    /// One statement, because it is one snapshot at every level of isolation: a deposit that is settled between two
    /// statements would be in neither sum.
    SUM_FLOWS = "SELECT subject, what, CAST(SUM(amount >> 32) AS BIGINT), CAST(SUM(amount & 4294967295) AS BIGINT)
        FROM (SELECT to_account AS subject, CAST(1 AS BIGINT) AS what, amount FROM movements
                WHERE id > $1 AND outcome = 0 AND to_account < 0 AND to_account {in $2}
            UNION ALL
            SELECT from_account, CAST(CASE WHEN outcome = 0 THEN 2 ELSE 3 END AS BIGINT), amount FROM movements
                WHERE id > $1 AND from_account < 0 AND from_account {in $2}
            UNION ALL
            SELECT asset_id, CAST(CASE WHEN direction = 1 THEN 4 WHEN state = -20 THEN 6 ELSE 5 END AS BIGINT), amount
                FROM transfers WHERE state NOT IN (40, -10, -30)
                    AND ((direction = 1 AND state = 30) OR (direction = 2 AND state IN (10, 20, 30, -20)))) flows
        GROUP BY subject, what";
}

/// Ledger units of one asset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// What `clearing:spot` held at the checkpoint.
    pub base: i128,
    /// What came and went since.
    pub came: i128,
    pub went: i128,
    /// Withdrawals that FUNDING refused to take since: the engine takes them back.
    pub refused: i128,
    /// What transfers that have not ended may have deposited at the engine, or withdrawn there.
    pub maybe_deposited: i128,
    pub maybe_withdrawn: i128,
    /// The part of the latter that is being given back.
    pub undoing: i128,
}

impl Flow {
    /// What `clearing:spot` holds.
    pub const fn clearing(&self) -> i128 {
        self.base + self.came - self.went
    }

    /// What may come back: what was given, and what may have been given by deposits whose answer is not known yet.
    pub const fn room(&self) -> i128 {
        self.clearing() + self.maybe_deposited
    }
}

/// Where the sums begin: two readings are comparable if they begin at the same checkpoint.
#[derive(Clone, Debug)]
pub struct FlowStart {
    through: i64,
    clearing: BTreeMap<AccountId, (AssetId, i128)>,
}

impl FlowStart {
    pub async fn read(tx: &mut Tx) -> Result<Self, StoreError> {
        let (through, balances) = latest_checkpoint(tx).await?;
        let accounts = fetch_all!(tx, READ_CLEARING => (i64, i64))?;
        let clearing = accounts.into_iter().map(|(id, asset)| {
            let account = AccountId(id);
            (account, (AssetId(asset), balances.get(&account).copied().unwrap_or(0)))
        });
        Ok(Self { through, clearing: clearing.collect() })
    }

    /// How many movements there may be since the checkpoint.
    pub async fn age(&self, tx: &mut Tx) -> Result<i64, StoreError> {
        let highest = fetch_optional!(tx, HIGHEST_MOVEMENT => (i64,))?.map_or(0, |row| row.0);
        Ok(highest.saturating_sub(self.through))
    }

    /// The flows of all assets, all as of one snapshot, in any transaction.
    pub async fn flows(&self, tx: &mut Tx) -> Result<BTreeMap<AssetId, Flow>, StoreError> {
        let mut flows: BTreeMap<AssetId, Flow> =
            self.clearing.values().map(|(asset, base)| (*asset, Flow { base: *base, ..Flow::default() })).collect();
        let accounts = Many(self.clearing.keys().map(|account| account.0).collect::<Vec<i64>>());
        for (subject, what, high, low) in fetch_all!(tx, SUM_FLOWS => (i64, i64, i64, i64), self.through, accounts)? {
            let sum = join_halves(high, low);
            let asset = match what {
                1..=3 => self.clearing.get(&AccountId(subject)).map(|(asset, _)| *asset),
                _ => Some(AssetId(subject)),
            };
            let Some(asset) = asset else { continue };
            let flow = flows.entry(asset).or_default();
            match what {
                1 => flow.came += sum,
                2 => flow.went += sum,
                3 => flow.refused += sum,
                4 => flow.maybe_deposited += sum,
                5 => flow.maybe_withdrawn += sum,
                _ => {
                    flow.maybe_withdrawn += sum;
                    flow.undoing += sum;
                }
            }
        }
        Ok(flows)
    }
}
