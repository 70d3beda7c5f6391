//! A withdrawal goes on to its next states, with its history and with its money. What each step does to the hold is decided by
//! `domain::withdrawal`; here it is carried out, in the transaction that changes the row.

use std::collections::{BTreeMap, HashMap};

use domain::ledger::{Movement, Operation, Outcome, Reference, Reply};
use domain::withdrawal::{MoneyStep, WithdrawalEvent, WithdrawalState};
use domain::{AccountId, AccountKind, AssetId, Timestamp, UserId};

use super::facts::{LOCK_WITHDRAWAL_DAYS, listing_numbers, lock_uncounted};
use super::types::{LedgerStep, WithdrawalId, WithdrawalRow, day_of, malformed};
use crate::db::Tx;
use crate::deposit::post::READ_SYSTEM_OF_ASSETS;
use crate::dialect::Many;
use crate::entry::ListingId;
use crate::error::StoreError;
use crate::ledger::post;
use crate::rows::{Column, ColumnType::Int, ColumnType::Text, RowsSql, Writes, execute_rows};

/// What happens to one withdrawal. Its row is locked.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub row: WithdrawalRow,
    pub event: WithdrawalEvent,
    pub actor: String,
    /// Why, in one sentence.
    pub words: String,
    /// Who gets it, if it is settled inside: the user, and the account.
    pub payee: Option<(UserId, AccountId)>,
    /// Who has judged it.
    pub judged: Option<String>,
}

impl Change {
    pub(crate) fn new(row: WithdrawalRow, event: WithdrawalEvent, actor: &str, words: impl Into<String>) -> Self {
        Self { row, event, actor: actor.to_owned(), words: words.into(), payee: None, judged: None }
    }
}

/// A row of history to be.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    id: WithdrawalId,
    version: i64,
    state: WithdrawalState,
    actor: String,
    words: String,
}

impl Step {
    /// The row has come to this state.
    pub(crate) fn new(row: &WithdrawalRow, actor: String, words: impl Into<String>) -> Self {
        Self { id: row.id, version: row.version, state: row.state, actor, words: words.into() }
    }
}

/// Only where it is still as it was seen.
static UPDATE_WITHDRAWALS: RowsSql = RowsSql::new(
    "UPDATE_WITHDRAWALS",
    "UPDATE withdrawal_requests SET status = r.status, version = r.version, jobs = r.jobs, payee_id = r.payee_id, queued_at = r.queued_at,
         judged = r.judged, updated_at = r.at
     FROM {rows} WHERE withdrawal_requests.id = r.id AND withdrawal_requests.version = r.version - 1 AND withdrawal_requests.status = r.seen",
    &[
        ("id", Int),
        ("seen", Text),
        ("status", Text),
        ("version", Int),
        ("jobs", Int),
        ("payee_id", Int),
        ("queued_at", Int),
        ("judged", Text),
        ("at", Int),
    ],
);

static INSERT_STEPS: RowsSql = RowsSql::new(
    "INSERT_WITHDRAWAL_EVENTS",
    "INSERT INTO withdrawal_events (withdrawal_id, version, status, actor, reason, at)
     SELECT r.id, r.version, r.status, r.actor, r.reason, r.at FROM {rows}",
    &[("id", Int), ("version", Int), ("status", Text), ("actor", Text), ("reason", Text), ("at", Int)],
);

/// A day that nobody counts has no row, and needs none.
static GIVE_BACK_DAYS: RowsSql = RowsSql::new(
    "GIVE_BACK_DAYS",
    "UPDATE withdrawal_days SET used = CASE WHEN withdrawal_days.used > r.amount THEN withdrawal_days.used - r.amount ELSE 0 END FROM {rows}
     WHERE withdrawal_days.listing_id = r.listing_id AND withdrawal_days.day = r.day",
    &[("listing_id", Int), ("day", Int), ("amount", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 3] = [&UPDATE_WITHDRAWALS, &INSERT_STEPS, &GIVE_BACK_DAYS];

pub(crate) fn add_steps(writes: &mut Writes, steps: Vec<Step>, at: Timestamp) {
    let count = steps.len();
    let mut numbers = [Vec::with_capacity(count), Vec::with_capacity(count)];
    let mut texts = [const { Vec::new() }; 3];
    for Step { id, version, state, actor, words } in steps {
        for (column, number) in numbers.iter_mut().zip([id.number(), version]) {
            column.push(number);
        }
        for (column, text) in texts.iter_mut().zip([state.as_str().to_owned(), actor, words]) {
            column.push(text);
        }
    }
    let [ids, versions] = numbers.map(Column::Ints);
    let [states, actors, words] = texts.map(Column::Strings);
    let columns = vec![ids, versions, states, actors, words, Column::Ints(vec![at.micros(); count])];
    writes.add(&INSERT_STEPS, columns, "events of withdrawals");
}

/// Carries out the changes, at most one for each withdrawal, whose rows the caller has locked. Says how they stand then, in the same order.
pub(crate) async fn advance(
    tx: &mut Tx,
    changes: Vec<Change>,
    at: Timestamp,
) -> Result<Vec<WithdrawalRow>, StoreError> {
    if changes.is_empty() {
        return Ok(Vec::new());
    }
    let house = house_accounts(tx, changes.iter().map(|change| change.row.asset)).await?;
    let (mut after, mut seen, mut steps) = (Vec::with_capacity(changes.len()), Vec::new(), Vec::new());
    let (mut operations, mut given_back) = (Vec::new(), BTreeMap::new());
    for change in changes {
        let Change { mut row, event, actor, words, payee, judged } = change;
        let before = row.state;
        row.state = before.next(event).map_err(|error| corrupt(row.id, error))?;
        row.version += 1;
        row.updated = at;
        if row.state == WithdrawalState::Queued {
            row.jobs += 1;
            row.queued = Some(at);
        }
        row.payee = payee.map(|(user, _)| user).or(row.payee);
        row.judged = judged.or(row.judged);
        operations.extend(operation(&row, before.money_to(row.state), payee.map(|(_, account)| account), &house)?);
        if row.state.is_released() {
            let sum: &mut i64 = given_back.entry((row.listing, day_of(row.created))).or_default();
            *sum = sum.saturating_add(row.amount.units());
        }
        steps.push(Step::new(&row, actor, words));
        seen.push(before);
        after.push(row);
    }
    if !operations.is_empty() {
        let replies = post(tx, &operations, at).await?;
        for (operation, reply) in operations.iter().zip(replies) {
            // The row says that this has not happened yet, and the journal must say the same.
            if reply != Reply::First(Outcome::Applied) {
                return Err(StoreError::Corrupt { what: format!("{}: the ledger says {reply:?}", operation.key()) });
            }
        }
    }
    let mut writes = Writes::default();
    update(&mut writes, &after, &seen, at);
    add_steps(&mut writes, steps, at);
    writes.run(tx).await?;
    give_back_days(tx, &given_back).await?;
    Ok(after)
}

fn corrupt(id: WithdrawalId, error: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt { what: format!("{id}: {error}") }
}

/// The house's accounts, by kind and asset.
type House = HashMap<(AccountKind, AssetId), AccountId>;

async fn house_accounts(tx: &mut Tx, assets: impl Iterator<Item = AssetId>) -> Result<House, StoreError> {
    let assets: std::collections::BTreeSet<i64> = assets.map(|asset| asset.0).collect();
    let assets = Many(assets.into_iter().collect::<Vec<i64>>());
    let rows = fetch_all!(tx, READ_SYSTEM_OF_ASSETS => (i64, i64, String), assets.clone())?;
    let account = |(id, asset, kind): (i64, i64, String)| {
        Some(((kind.parse::<AccountKind>().ok()?, AssetId(asset)), AccountId(id)))
    };
    Ok(rows.into_iter().filter_map(account).collect())
}

/// What a step does in the ledger. Coins that leave are booked from `suspense` to custody when the chain shows them, so what is paid out goes to
/// `suspense`, and the two cancel out.
fn operation(
    row: &WithdrawalRow,
    money: MoneyStep,
    payee: Option<AccountId>,
    house: &House,
) -> Result<Option<Operation>, StoreError> {
    let broken = |_| malformed("operation");
    let of_house = |kind: AccountKind| {
        let missing = || corrupt(row.id, format!("the asset {} has no account {kind}", row.asset.0));
        house.get(&(kind.clone(), row.asset)).copied().ok_or_else(missing)
    };
    let words = |what: &str| Reference::new(format!("withdrawal {} {what}", row.id)).map_err(broken);
    let movement = |from, to, amount| Movement { from, to, asset: row.asset, amount };
    let hold = row.key(LedgerStep::Hold)?;
    let operation = match money {
        MoneyStep::Stays => return Ok(None),
        MoneyStep::Release => {
            let key = row.key(LedgerStep::Release)?;
            Operation::release(key, hold, row.account, row.asset, row.held()?, words(row.state.as_str())?)
        }
        MoneyStep::Settle => {
            let to = match payee {
                Some(account) => account,
                None => of_house(AccountKind::Suspense)?,
            };
            let mut movements = vec![movement(row.account, to, row.amount)];
            if row.fee.is_positive() {
                movements.push(movement(row.account, of_house(AccountKind::Fees)?, row.fee));
            }
            let what = words(if payee.is_some() { "settled inside" } else { "paid" })?;
            Operation::settle(row.key(LedgerStep::Settle)?, hold, movements, what).map_err(broken)?
        }
        MoneyStep::GiveBack => {
            let mut movements = vec![movement(of_house(AccountKind::Suspense)?, row.account, row.amount)];
            if row.fee.is_positive() {
                movements.push(movement(of_house(AccountKind::Fees)?, row.account, row.fee));
            }
            let what = words("taken back by its chain")?;
            Operation::move_available(row.key(LedgerStep::GiveBack)?, movements, what).map_err(broken)?
        }
    };
    Ok(Some(operation))
}

fn update(writes: &mut Writes, after: &[WithdrawalRow], seen: &[WithdrawalState], at: Timestamp) {
    let text = |state: &WithdrawalState| state.as_str().to_owned();
    let columns = vec![
        Column::Ints(after.iter().map(|row| row.id.number()).collect()),
        Column::Strings(seen.iter().map(text).collect()),
        Column::Strings(after.iter().map(|row| text(&row.state)).collect()),
        Column::Ints(after.iter().map(|row| row.version).collect()),
        Column::Ints(after.iter().map(|row| row.jobs).collect()),
        Column::OptionalInts(after.iter().map(|row| row.payee.map(UserId::get)).collect()),
        Column::OptionalInts(after.iter().map(|row| row.queued.map(Timestamp::micros)).collect()),
        Column::OptionalStrings(after.iter().map(|row| row.judged.clone()).collect()),
        Column::Ints(vec![at.micros(); after.len()]),
    ];
    writes.add(&UPDATE_WITHDRAWALS, columns, "withdrawals");
}

async fn give_back_days(tx: &mut Tx, sums: &BTreeMap<(ListingId, i64), i64>) -> Result<(), StoreError> {
    if sums.is_empty() {
        return Ok(());
    }
    let listings = listing_numbers(sums.keys().map(|(listing, _)| *listing));
    let days: std::collections::BTreeSet<i64> = sums.keys().map(|(_, day)| *day).collect();
    let days = Many(days.into_iter().collect::<Vec<i64>>());
    // Whoever makes the first sum of a day either sees these as given back, or has committed it, and it is found here.
    lock_uncounted(tx, sums.keys().map(|(listing, _)| *listing)).await?;
    let counted = fetch_all!(tx, LOCK_WITHDRAWAL_DAYS => (i64, i64, i64), listings.clone(), days.clone())?;
    if counted.is_empty() {
        return Ok(());
    }
    let columns = vec![
        Column::Ints(sums.keys().map(|(listing, _)| listing.0).collect()),
        Column::Ints(sums.keys().map(|(_, day)| *day).collect()),
        Column::Ints(sums.values().copied().collect()),
    ];
    execute_rows(tx, &GIVE_BACK_DAYS, columns).await.map(|_| ())
}
