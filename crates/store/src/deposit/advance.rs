//! A deposit goes on to its next state, with its history.

use std::collections::{BTreeMap, HashMap};

use domain::deposit::posting::Given;
use domain::deposit::{DepositEvent, DepositState, Reason};
use domain::{Amount, Timestamp, UserId};

use crate::db::Tx;
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Int, ColumnType::Text, RowsSql, execute_rows, expect_rows, fetch_rows};

/// What happens to one deposit.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub id: i64,
    pub event: DepositEvent,
    /// For its history.
    pub words: String,
    pub set: Set,
}

/// What else changes in its row. `None` leaves it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Set {
    pub given: Option<Given>,
    pub receivable: Option<Amount>,
    /// `Some(None)`: it is no user's.
    pub user: Option<Option<UserId>>,
    pub reason: Option<Reason>,
}

impl Change {
    pub(crate) fn new(id: i64, event: DepositEvent, words: impl Into<String>) -> Self {
        Self { id, event, words: words.into(), set: Set::default() }
    }
}

/// Whoever calls holds the chain's row, so nobody else moves them.
static READ_DEPOSITS: RowsSql = RowsSql::new(
    "READ_DEPOSITS",
    "SELECT d.id, d.state, d.version, d.user_id, d.reason, d.amount, d.repaid, d.left_over, d.receivable
     FROM {rows} {join} deposits d ON d.id = r.id",
    &[("id", Int)],
);

static UPDATE_DEPOSITS: RowsSql = RowsSql::new(
    "UPDATE_DEPOSITS",
    "UPDATE deposits SET state = r.state, version = r.version, user_id = r.user_id, reason = r.reason, amount = r.amount,
         repaid = r.repaid, left_over = r.left_over, receivable = r.receivable, updated_at = r.at
     FROM {rows} WHERE deposits.id = r.id AND deposits.version = r.version - 1",
    &[
        ("id", Int),
        ("state", Text),
        ("version", Int),
        ("user_id", Int),
        ("reason", Text),
        ("amount", Int),
        ("repaid", Int),
        ("left_over", Int),
        ("receivable", Int),
        ("at", Int),
    ],
);

static INSERT_EVENTS: RowsSql = RowsSql::new(
    "INSERT_DEPOSIT_EVENTS",
    "INSERT INTO deposit_events (deposit_id, version, state, reason, at)
     SELECT r.id, r.version, r.state, r.reason, r.at FROM {rows}",
    &[("id", Int), ("version", Int), ("state", Text), ("reason", Text), ("at", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 3] = [&READ_DEPOSITS, &UPDATE_DEPOSITS, &INSERT_EVENTS];

type Columns = (i64, String, i64, Option<i64>, Option<String>, i64, i64, i64, i64);

/// Carries out the changes, at most one for each deposit, in three statements.
pub(crate) async fn advance(tx: &mut Tx, changes: &[Change], at: Timestamp) -> Result<(), StoreError> {
    if changes.is_empty() {
        return Ok(());
    }
    let changes: BTreeMap<i64, &Change> = changes.iter().map(|change| (change.id, change)).collect();
    let ids = vec![Column::Ints(changes.keys().copied().collect())];
    let rows: Vec<Columns> = fetch_rows(tx, &READ_DEPOSITS, ids).await?;
    let mut rows: HashMap<i64, Columns> = rows.into_iter().map(|row| (row.0, row)).collect();
    let mut after = Vec::with_capacity(changes.len());
    for (id, change) in &changes {
        let row = rows.remove(id).ok_or_else(|| broken(*id, "there is no such deposit".to_owned()))?;
        after.push(next(row, change)?);
    }
    let count = after.len();
    let columns = vec![
        Column::Ints(after.iter().map(|row| row.0).collect()),
        Column::Strings(after.iter().map(|row| row.1.clone()).collect()),
        Column::Ints(after.iter().map(|row| row.2).collect()),
        Column::OptionalInts(after.iter().map(|row| row.3).collect()),
        Column::OptionalStrings(after.iter().map(|row| row.4.clone()).collect()),
        Column::Ints(after.iter().map(|row| row.5).collect()),
        Column::Ints(after.iter().map(|row| row.6).collect()),
        Column::Ints(after.iter().map(|row| row.7).collect()),
        Column::Ints(after.iter().map(|row| row.8).collect()),
        Column::Ints(vec![at.micros(); count]),
    ];
    expect_rows(execute_rows(tx, &UPDATE_DEPOSITS, columns).await?, count, "deposits")?;
    let columns = vec![
        Column::Ints(after.iter().map(|row| row.0).collect()),
        Column::Ints(after.iter().map(|row| row.2).collect()),
        Column::Strings(after.iter().map(|row| row.1.clone()).collect()),
        Column::Texts(changes.values().map(|change| change.words.as_str()).collect()),
        Column::Ints(vec![at.micros(); count]),
    ];
    expect_rows(execute_rows(tx, &INSERT_EVENTS, columns).await?, count, "events of deposits")
}

fn broken(id: i64, what: String) -> StoreError {
    StoreError::Corrupt { what: format!("deposit dp-{id}: {what}") }
}

fn next(row: Columns, change: &Change) -> Result<Columns, StoreError> {
    let (id, state, version, user, reason, amount, repaid, left_over, receivable) = row;
    let state = DepositState::parse(&state).ok_or_else(|| broken(id, format!("the unknown state {state:?}")))?;
    let state = state.next(change.event).map_err(|illegal| broken(id, illegal.to_string()))?;
    let Set { given, receivable: owed, user: named, reason: why } = &change.set;
    let given = given.map_or((amount, repaid, left_over), |given| {
        (given.user.units(), given.repaid.units(), given.left_over.units())
    });
    Ok((
        id,
        state.as_str().to_owned(),
        version + 1,
        named.map_or(user, |user| user.map(UserId::get)),
        why.map_or(reason, |why| Some(why.as_str().to_owned())),
        given.0,
        given.1,
        given.2,
        owed.map_or(receivable, Amount::units),
    ))
}
