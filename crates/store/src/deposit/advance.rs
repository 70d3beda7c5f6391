//! A deposit goes on, by one state or by several at once, with its history.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use domain::deposit::posting::Given;
use domain::deposit::{DepositEvent, DepositState, Reason};
use domain::{Amount, Timestamp, UserId};

use crate::db::Tx;
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Int, ColumnType::Text, RowsSql, Writes, fetch_rows};

/// What happens to one deposit.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub id: i64,
    /// In order, each with words for its history: every state that the deposit comes to has its own row there.
    pub steps: Vec<(DepositEvent, Cow<'static, str>)>,
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
    pub(crate) fn new(id: i64, event: DepositEvent, words: impl Into<Cow<'static, str>>) -> Self {
        Self { id, steps: vec![(event, words.into())], set: Set::default() }
    }
}

/// The state of a deposit before a change, and the number of its newest event.
pub(crate) type Before = (DepositState, i64);

/// Whoever calls holds the chain's row, so nobody else moves them.
static READ_DEPOSITS: RowsSql = RowsSql::new(
    "READ_DEPOSITS",
    "SELECT d.id, d.state, d.version FROM {rows} {join} deposits d ON d.id = r.id",
    &[("id", Int)],
);

/// Several states of one deposit are one update: each would write the row and all of its index entries anew.
static UPDATE_DEPOSITS: RowsSql = RowsSql::new(
    "UPDATE_DEPOSITS",
    "UPDATE deposits SET state = r.state, version = r.version,
         user_id = CASE WHEN r.names_user = 1 THEN r.user_id ELSE deposits.user_id END,
         reason = COALESCE(r.reason, deposits.reason), amount = COALESCE(r.amount, deposits.amount),
         repaid = COALESCE(r.repaid, deposits.repaid), left_over = COALESCE(r.left_over, deposits.left_over),
         receivable = COALESCE(r.receivable, deposits.receivable), updated_at = r.at
     FROM {rows} WHERE deposits.id = r.id AND deposits.version = r.version - r.steps",
    &[
        ("id", Int),
        ("state", Text),
        ("version", Int),
        ("steps", Int),
        ("names_user", Int),
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

/// Carries out the changes, at most one for each deposit.
pub(crate) async fn advance(tx: &mut Tx, changes: Vec<Change>, at: Timestamp) -> Result<(), StoreError> {
    if changes.is_empty() {
        return Ok(());
    }
    let ids = vec![Column::Ints(changes.iter().map(|change| change.id).collect())];
    let rows: Vec<(i64, String, i64)> = fetch_rows(tx, &READ_DEPOSITS, ids).await?;
    let before = rows.into_iter().map(|(id, state, version)| Ok((id, (state_of(id, &state)?, version))));
    let before = before.collect::<Result<HashMap<i64, Before>, StoreError>>()?;
    let mut writes = Writes::default();
    add_changes(&mut writes, changes, &before, at)?;
    writes.run(tx).await
}

pub(crate) fn state_of(id: i64, text: &str) -> Result<DepositState, StoreError> {
    DepositState::parse(text).ok_or_else(|| broken(id, format!("the unknown state {text:?}")))
}

/// The same for a caller that has read the deposits already, in this transaction. The writes are only collected.
pub(crate) fn add_changes(
    writes: &mut Writes,
    changes: Vec<Change>,
    before: &HashMap<i64, Before>,
    at: Timestamp,
) -> Result<(), StoreError> {
    let changes: BTreeMap<i64, Change> = changes.into_iter().map(|change| (change.id, change)).collect();
    let count = changes.len();
    let (mut ids, mut states, mut versions, mut steps) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut named, mut users, mut reasons) = (Vec::new(), Vec::new(), Vec::new());
    let mut units: [Vec<Option<i64>>; 4] = Default::default();
    let mut events: (Vec<i64>, Vec<i64>, Vec<&'static str>, Vec<String>) = Default::default();
    for (id, change) in changes {
        let (mut state, first) = *before.get(&id).ok_or_else(|| broken(id, "there is no such deposit".to_owned()))?;
        let mut version = first;
        for (event, words) in change.steps {
            state = state.next(event).map_err(|illegal| broken(id, illegal.to_string()))?;
            version += 1;
            events.0.push(id);
            events.1.push(version);
            events.2.push(state.as_str());
            events.3.push(words.into_owned());
        }
        let Set { given, receivable, user, reason } = change.set;
        ids.push(id);
        states.push(state.as_str());
        versions.push(version);
        steps.push(version - first);
        named.push(i64::from(user.is_some()));
        users.push(user.flatten().map(UserId::get));
        reasons.push(reason.map(Reason::as_str));
        let amounts =
            [given.map(|one| one.user), given.map(|one| one.repaid), given.map(|one| one.left_over), receivable];
        for (column, amount) in units.iter_mut().zip(amounts) {
            column.push(amount.map(Amount::units));
        }
    }
    let [amount, repaid, left_over, receivable] = units.map(Column::OptionalInts);
    let columns = vec![
        Column::Ints(ids),
        Column::Texts(states),
        Column::Ints(versions),
        Column::Ints(steps),
        Column::Ints(named),
        Column::OptionalInts(users),
        Column::OptionalTexts(reasons),
        amount,
        repaid,
        left_over,
        receivable,
        Column::Ints(vec![at.micros(); count]),
    ];
    writes.add(&UPDATE_DEPOSITS, columns, "deposits");
    let (ids, versions, states, words) = events;
    let times = vec![at.micros(); ids.len()];
    let columns = vec![
        Column::Ints(ids),
        Column::Ints(versions),
        Column::Texts(states),
        Column::Strings(words),
        Column::Ints(times),
    ];
    writes.add(&INSERT_EVENTS, columns, "events of deposits");
    Ok(())
}

fn broken(id: i64, what: String) -> StoreError {
    StoreError::Corrupt { what: format!("deposit dp-{id}: {what}") }
}
