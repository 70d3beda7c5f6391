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
    /// What the accounts $2 got (1), gave (2) and were refused to give (3) after movement $1, in two halves of 32 bits.
    SUM_CLEARING = "SELECT account_id, what, CAST(SUM(amount >> 32) AS BIGINT),
            CAST(SUM(amount & 4294967295) AS BIGINT)
        FROM (SELECT to_account AS account_id, CAST(1 AS BIGINT) AS what, amount FROM movements
                WHERE id > $1 AND outcome = 0 AND to_account < 0 AND to_account {in $2}
            UNION ALL
            SELECT from_account, CAST(CASE WHEN outcome = 0 THEN 2 ELSE 3 END AS BIGINT), amount FROM movements
                WHERE id > $1 AND from_account < 0 AND from_account {in $2}) flows
        GROUP BY account_id, what";
    /// Of the transfers that have not ended: deposits that may have happened (1), withdrawals that may have (2), and
    /// those of the latter that are being given back (3).
    SUM_OPEN = "SELECT asset_id, CAST(CASE WHEN direction = 1 THEN 1 WHEN state = -20 THEN 3 ELSE 2 END AS BIGINT),
            CAST(SUM(amount >> 32) AS BIGINT), CAST(SUM(amount & 4294967295) AS BIGINT)
        FROM transfers WHERE state NOT IN (40, -10, -30)
            AND ((direction = 1 AND state = 30) OR (direction = 2 AND state IN (10, 20, 30, -20)))
        GROUP BY 1, 2";
    /// Of those that were resolved without proof the same, for ever.
    SUM_UNPROVEN = "SELECT asset_id, direction, CAST(SUM(amount >> 32) AS BIGINT), CAST(SUM(amount & 4294967295) AS BIGINT)
        FROM unproven_transfers JOIN transfers ON id = transfer_id GROUP BY asset_id, direction";
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
    /// What transfers that have not ended, or ended without proof, may have deposited at the engine, or withdrawn there.
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

    /// The flows of all assets, as of this transaction's snapshot.
    pub async fn flows(&self, tx: &mut Tx) -> Result<BTreeMap<AssetId, Flow>, StoreError> {
        let mut flows: BTreeMap<AssetId, Flow> =
            self.clearing.values().map(|(asset, base)| (*asset, Flow { base: *base, ..Flow::default() })).collect();
        let accounts = Many(self.clearing.keys().map(|account| account.0).collect::<Vec<i64>>());
        for (account, what, high, low) in
            fetch_all!(tx, SUM_CLEARING => (i64, i64, i64, i64), self.through, accounts.clone())?
        {
            let Some((asset, _)) = self.clearing.get(&AccountId(account)) else { continue };
            let flow = flows.entry(*asset).or_default();
            let sum = match what {
                1 => &mut flow.came,
                2 => &mut flow.went,
                _ => &mut flow.refused,
            };
            *sum = join_halves(high, low);
        }
        let open = fetch_all!(tx, SUM_OPEN => (i64, i64, i64, i64))?;
        let unproven = fetch_all!(tx, SUM_UNPROVEN => (i64, i64, i64, i64))?;
        for (asset, what, high, low) in open.into_iter().chain(unproven) {
            let (flow, sum) = (flows.entry(AssetId(asset)).or_default(), join_halves(high, low));
            match what {
                1 => flow.maybe_deposited += sum,
                2 => flow.maybe_withdrawn += sum,
                _ => {
                    flow.maybe_withdrawn += sum;
                    flow.undoing += sum;
                }
            }
        }
        Ok(flows)
    }
}
