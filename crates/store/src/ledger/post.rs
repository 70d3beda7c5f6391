//! Posting operations in batches.
//!
//! One batch is one transaction and a constant number of statements: lock the users' rows in the order of their
//! ids, read the system accounts and the holds, let [`Book`] decide each operation in turn, write all movements in
//! one statement and all changed balances in another.
//!
//! The first try relies on the journal's unique indexes: a key seen before, or a hold that has ended, makes the
//! insert fail and undoes the batch. The second try then looks both up first ("careful"), and answers replays from
//! the journal. What is new costs no look-up; what is repeated costs a second transaction.

use std::collections::{BTreeSet, HashMap};
use std::sync::PoisonError;

use domain::ledger::{AccountState, Book, HoldState, OpKey, Operation, Outcome, Reply};
use domain::{AccountId, AccountStatus, Amount, AssetId, Timestamp};

use super::row::{COLUMNS, Content, MovementRow, operation};
use crate::db::{Db, Tx};
use crate::dialect::Many;
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Int, ColumnType::Text, RowsSql, Writes};
use crate::transact;

/// The most operations that one batch may have.
pub const MAX_BATCH: usize = 8_192;

statements! {
    /// In the order of their ids: two batches that overlap wait for each other, they never deadlock.
    LOCK_ACCOUNTS(ACCOUNT) = "SELECT {columns} FROM accounts WHERE id {in $1} ORDER BY id {FOR UPDATE}";
    READ_ACCOUNTS(ACCOUNT) = "SELECT {columns} FROM accounts WHERE id {in $1}";
    /// The holds behind these keys, as they were taken.
    READ_HOLDS = "SELECT op_key, from_account, amount FROM movements
        WHERE op_key {in $1} AND leg = 0 AND action = 2 AND outcome = 0";
    /// Which of these holds have ended.
    READ_ENDED_HOLDS = "SELECT hold_key FROM movements
        WHERE hold_key {in $1} AND hold_key IS NOT NULL AND outcome = 0 AND leg = 0";
    /// Everything recorded under these keys.
    READ_HISTORY(COLUMNS) = "SELECT {columns} FROM movements WHERE op_key {in $1} ORDER BY op_key, leg";
}

pub(crate) static INSERT_MOVEMENTS: RowsSql = RowsSql::new(
    "INSERT_MOVEMENTS",
    "INSERT INTO movements (op_key, leg, action, outcome, from_account, to_account, asset_id, amount, hold_key,
         reference, at, checksum)
     SELECT op_key, leg, action, outcome, from_account, to_account, asset_id, amount, hold_key,
         reference, at, checksum
     FROM {rows}",
    &[
        ("op_key", Text),
        ("leg", Int),
        ("action", Int),
        ("outcome", Int),
        ("from_account", Int),
        ("to_account", Int),
        ("asset_id", Int),
        ("amount", Int),
        ("hold_key", Text),
        ("reference", Text),
        ("at", Int),
        ("checksum", Int),
    ],
);

pub(crate) static UPDATE_BALANCES: RowsSql = RowsSql::new(
    "UPDATE_BALANCES",
    "UPDATE accounts SET available = r.available, frozen = r.frozen FROM {rows} WHERE accounts.id = r.id",
    &[("id", Int), ("available", Int), ("frozen", Int)],
);

impl Db {
    /// Posts a batch in a transaction of its own. Replies are in the order of the operations.
    pub async fn post(&self, operations: &[Operation], at: Timestamp) -> Result<Vec<Reply>, StoreError> {
        if operations.is_empty() {
            return Ok(Vec::new());
        }
        transact!(self, tx => post(tx, operations, at).await)
    }
}

/// Locks these accounts, system accounts too: for those who must take turns.
pub async fn lock_accounts(tx: &mut Tx, accounts: &[AccountId]) -> Result<(), StoreError> {
    let ids = accounts.iter().map(|account| account.0).collect::<BTreeSet<_>>();
    let ids = Many(ids.into_iter().collect::<Vec<i64>>());
    fetch_all!(tx, LOCK_ACCOUNTS => AccountRow, ids.clone())?;
    Ok(())
}

/// Posts a batch within a transaction: each operation has its own outcome, and one refused does not spoil its
/// neighbours. Later operations see what earlier ones did.
pub async fn post(tx: &mut Tx, operations: &[Operation], at: Timestamp) -> Result<Vec<Reply>, StoreError> {
    if operations.len() > MAX_BATCH {
        return Err(StoreError::BatchTooLarge { count: operations.len(), most: MAX_BATCH });
    }
    let accounts = load_accounts(tx, operations).await?;
    let mut writes = Writes::default();
    let replies = decide(tx, accounts, None, operations, at, &mut writes).await?;
    writes.run(tx).await?;
    Ok(replies)
}

/// The same on accounts that this transaction has read already, with the users' rows locked. The writes are only
/// collected; they must run before the rows they concern are read again.
///
/// A caller that knows the holds which the operations end gives them, and saves a look-up. The journal's index still
/// refuses a hold that has ended; **that they were taken is the caller's word**, which must come from a row that was
/// written in the same commit as the hold. A second try looks for itself.
pub async fn decide(
    tx: &mut Tx,
    accounts: HashMap<AccountId, AccountState>,
    holds: Option<HashMap<OpKey, HoldState>>,
    operations: &[Operation],
    at: Timestamp,
    writes: &mut Writes,
) -> Result<Vec<Reply>, StoreError> {
    if operations.is_empty() {
        return Ok(Vec::new());
    }
    let holds = match holds {
        Some(holds) if !tx.careful => holds,
        Some(_) | None => load_holds(tx, operations).await?,
    };
    let history = if tx.careful { load_history(tx, operations).await? } else { Vec::new() };

    let mut book = Book::new(accounts, holds);
    if tx.careful {
        book = book.with_history(&history);
    }
    let replies = operations.iter().map(|operation| book.apply(operation)).collect::<Result<Vec<_>, _>>()?;

    insert_movements(writes, operations, &replies, at);
    update_balances(writes, &book.changed());
    Ok(replies)
}

pub type Accounts = HashMap<AccountId, AccountState>;

/// Users' rows are locked, system accounts' only read, so that writers do not queue for those. (An operation between
/// system accounts alone locks its payer: see `Operation::locks`.)
pub async fn load_accounts(tx: &mut Tx, operations: &[Operation]) -> Result<Accounts, StoreError> {
    let locks: BTreeSet<AccountId> = operations.iter().flat_map(Operation::locks).collect();
    let reads: BTreeSet<AccountId> = operations
        .iter()
        .flat_map(Operation::movements)
        .flat_map(|movement| [movement.from, movement.to])
        .filter(|id| !locks.contains(id))
        .collect();
    load_accounts_of(tx, &locks, &reads).await
}

/// The same by name: accounts to lock, and system accounts to read.
pub(crate) async fn load_accounts_of(
    tx: &mut Tx,
    locks: &BTreeSet<AccountId>,
    reads: &BTreeSet<AccountId>,
) -> Result<Accounts, StoreError> {
    let locks = Many(locks.iter().map(|id| id.0).collect::<Vec<i64>>());
    let rows = fetch_all!(tx, LOCK_ACCOUNTS => AccountRow, locks.clone())?;
    let mut accounts = rows.into_iter().map(state).collect::<Result<Accounts, StoreError>>()?;
    // Only system accounts are read without a lock. Their assets never change, so they are read once.
    let mut unknown = Vec::new();
    {
        let known = tx.system.read().unwrap_or_else(PoisonError::into_inner);
        for id in reads {
            match known.get(id) {
                Some(asset) => drop(accounts.insert(*id, system_state(*asset))),
                None => unknown.push(id.0),
            }
        }
    }
    if !unknown.is_empty() {
        let ids = Many(unknown);
        let rows = fetch_all!(tx, READ_ACCOUNTS => AccountRow, ids.clone())?;
        let found = rows.into_iter().map(state).collect::<Result<Accounts, StoreError>>()?;
        let mut known = tx.system.write().unwrap_or_else(PoisonError::into_inner);
        if !tx.opened {
            known.extend(found.iter().filter(|(id, _)| id.is_system()).map(|(id, state)| (*id, state.asset)));
        }
        accounts.extend(found);
    }
    Ok(accounts)
}

/// The state in the row of a system account: all of them have the same but for the asset.
pub const fn system_state(asset: AssetId) -> AccountState {
    AccountState { asset, status: AccountStatus::Active, available: Amount::ZERO, frozen: Amount::ZERO }
}

/// The columns of an [`AccountRow`], in its order.
pub(crate) const ACCOUNT: &str = "id, asset_id, status, available, frozen";

/// By position, not by name: this is decoded a thousand times per batch.
pub(crate) type AccountRow = (i64, i64, String, i64, i64);

pub(crate) fn state(row: AccountRow) -> Result<(AccountId, AccountState), StoreError> {
    let (id, asset, status, available, frozen) = row;
    let status = AccountStatus::parse(&status)
        .ok_or_else(|| StoreError::Corrupt { what: format!("account {id} has the unknown status {status:?}") })?;
    let state = AccountState {
        asset: AssetId(asset),
        status,
        available: Amount::from_units(available),
        frozen: Amount::from_units(frozen),
    };
    Ok((AccountId(id), state))
}

/// Read after the accounts are locked: a hold belongs to one account, so no other transaction can end it meanwhile.
async fn load_holds(tx: &mut Tx, operations: &[Operation]) -> Result<HashMap<OpKey, HoldState>, StoreError> {
    let ends = operations.iter().filter_map(|operation| operation.action().ends());
    let keys: BTreeSet<String> = ends.map(|key| key.as_str().to_owned()).collect();
    if keys.is_empty() {
        return Ok(HashMap::new());
    }
    let keys = Many(keys.into_iter().collect::<Vec<_>>());
    let rows = fetch_all!(tx, READ_HOLDS => (String, i64, i64), keys.clone())?;
    let mut holds = HashMap::with_capacity(rows.len());
    for (key, account, amount) in rows {
        let hold = HoldState { account: AccountId(account), amount: Amount::from_units(amount), ended: false };
        holds.insert(stored_key(key)?, hold);
    }
    if tx.careful {
        for (key,) in fetch_all!(tx, READ_ENDED_HOLDS => (String,), keys.clone())? {
            if let Some(hold) = holds.get_mut(&stored_key(key)?) {
                hold.ended = true;
            }
        }
    }
    Ok(holds)
}

fn stored_key(text: String) -> Result<OpKey, StoreError> {
    OpKey::new(text).map_err(|_| StoreError::Corrupt { what: "the journal has a malformed operation key".to_owned() })
}

async fn load_history(tx: &mut Tx, operations: &[Operation]) -> Result<Vec<(Operation, Outcome)>, StoreError> {
    let keys = Many(operations.iter().map(|operation| operation.key().as_str().to_owned()).collect::<Vec<_>>());
    let rows = fetch_all!(tx, READ_HISTORY => MovementRow, keys.clone())?;
    rows.chunk_by(|a, b| a.op_key == b.op_key).map(operation).collect()
}

fn insert_movements(writes: &mut Writes, operations: &[Operation], replies: &[Reply], at: Timestamp) {
    let mut keys = Vec::new();
    let mut holds = Vec::new();
    let mut references = Vec::new();
    let mut checksums = Vec::new();
    let mut numbers: [Vec<i64>; 8] = Default::default();
    for (operation, reply) in operations.iter().zip(replies) {
        let Reply::First(outcome) = reply else { continue };
        for (position, movement) in (0_i64..).zip(operation.movements()) {
            let row = [
                position,
                i64::from(operation.action().number()),
                i64::from(outcome.number()),
                movement.from.0,
                movement.to.0,
                movement.asset.0,
                movement.amount.units(),
                at.micros(),
            ];
            let content = Content {
                op_key: operation.key().as_str(),
                numbers: row,
                hold_key: operation.action().ends().map(OpKey::as_str),
                reference: operation.reference().as_str(),
            };
            keys.push(content.op_key.to_owned());
            holds.push(content.hold_key.map(ToOwned::to_owned));
            references.push(content.reference.to_owned());
            checksums.push(content.checksum());
            for (column, number) in numbers.iter_mut().zip(row) {
                column.push(number);
            }
        }
    }
    let [position, action, outcome, from, to, asset, amount, at] = numbers.map(Column::Ints);
    let columns = vec![
        Column::Strings(keys),
        position,
        action,
        outcome,
        from,
        to,
        asset,
        amount,
        Column::OptionalStrings(holds),
        Column::Strings(references),
        at,
        Column::Ints(checksums),
    ];
    writes.add(&INSERT_MOVEMENTS, columns, "movements");
}

fn update_balances(writes: &mut Writes, changed: &[(AccountId, &AccountState)]) {
    let columns = vec![
        Column::Ints(changed.iter().map(|(id, _)| id.0).collect()),
        Column::Ints(changed.iter().map(|(_, state)| state.available.units()).collect()),
        Column::Ints(changed.iter().map(|(_, state)| state.frozen.units()).collect()),
    ];
    writes.add(&UPDATE_BALANCES, columns, "accounts");
}
