//! One transaction for a batch of transfers: what the remote leg said, every local action that follows from it, the new
//! states and their history, all or nothing.

use std::collections::HashMap;

use domain::ledger::{AccountState, HoldState, OpKey, Operation};
use domain::transfer::{Direction, State};
use domain::{AccountId, AssetId, Timestamp};
use store::ledger::{decide, load_accounts, system_state};
use store::transfer::{Changed, change, insert, write_history};
use store::{StoreError, Tx, Writes};

use crate::update::Draft;
use crate::leg::funding;
use crate::settings::Settings;

/// What every round needs to know.
pub(crate) struct Terms<'a> {
    pub clearing: &'a HashMap<AssetId, AccountId>,
    pub freezes: bool,
    pub settings: &'a Settings,
    pub at: Timestamp,
}

/// Does in the ledger what the drafts ask for, wave by wave, until each has ended or needs its remote leg. `locked` are
/// accounts that this transaction has locked already, if it has all that the first wave needs. What the last wave writes
/// is only collected, so that it goes together with the transfers.
pub(crate) async fn advance(
    tx: &mut Tx,
    drafts: &mut [Draft],
    mut locked: Option<HashMap<AccountId, AccountState>>,
    terms: &Terms<'_>,
    writes: &mut Writes,
) -> Result<(), StoreError> {
    loop {
        let mut operations: Vec<Operation> = Vec::new();
        let mut owners: Vec<usize> = Vec::new();
        for (at, draft) in drafts.iter_mut().enumerate() {
            let asset = draft.transfer.asset;
            let clearing = *terms.clearing.get(&asset).ok_or_else(|| StoreError::Corrupt {
                what: format!("asset {} has no clearing:spot account", asset.0),
            })?;
            if let Some(operation) = draft.local(clearing)? {
                operations.push(operation);
                owners.push(at);
            }
        }
        if operations.is_empty() {
            return Ok(());
        }
        let (accounts, holds) = match locked.take() {
            Some(mut accounts) => {
                let system = terms.clearing.iter().map(|(asset, account)| (*account, system_state(*asset)));
                accounts.extend(system);
                (accounts, Some(holds_of(drafts)?))
            }
            None => {
                writes.run(tx).await?;
                (load_accounts(tx, &operations).await?, None)
            }
        };
        let replies = decide(tx, accounts, holds, &operations, terms.at, writes).await?;
        for (owner, reply) in owners.into_iter().zip(replies) {
            drafts[owner].posted(reply, terms.freezes, terms.at, terms.settings)?;
        }
    }
}

/// The holds of transfers that are past taking one: it was recorded in the commit that took them there.
fn holds_of(drafts: &[Draft]) -> Result<HashMap<OpKey, HoldState>, StoreError> {
    let broken = |_| StoreError::Corrupt { what: "a transfer's id makes no key".to_owned() };
    let held = drafts.iter().map(|draft| &draft.transfer).filter(|transfer| {
        transfer.direction == Direction::ToSpot
            && matches!(transfer.state, State::SourceDone | State::TargetPending | State::Compensating)
    });
    held.map(|transfer| {
        let hold = HoldState { account: transfer.funding, amount: transfer.amount, ended: false };
        Ok((funding::key(transfer, "hold").map_err(broken)?, hold))
    })
    .collect()
}

/// Writes what has changed, and why, with whatever was collected before.
pub(crate) async fn write(
    tx: &mut Tx,
    drafts: &mut [Draft],
    at: Timestamp,
    writes: &mut Writes,
) -> Result<(), StoreError> {
    let mut history = Vec::new();
    for draft in drafts.iter_mut().filter(|draft| draft.is_changed()) {
        draft.transfer.updated_at = at;
        history.extend(draft.history());
    }
    let new: Vec<_> = drafts.iter().filter(|draft| draft.seen.is_none()).map(|draft| &draft.transfer).collect();
    insert(writes, &new);
    let known = drafts.iter().filter(|draft| draft.is_changed());
    let known: Vec<Changed<'_>> =
        known.filter_map(|draft| draft.seen.map(|seen| Changed { seen, transfer: &draft.transfer })).collect();
    change(writes, &known);
    write_history(writes, history, at);
    writes.run(tx).await
}
