//! A job goes on to its next states, with its history.

use std::collections::BTreeMap;

use domain::Timestamp;
use domain::outbound::{JobEvent, JobState};

use super::standing::{JobStanding, Standings, read_standings};
use super::types::{JobId, SlotId, malformed};
use crate::db::Tx;
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Int, ColumnType::Text, RowsSql, execute_rows, expect_rows};

/// What happens to one job. Its events are carried out in their order, and each leaves a row of its history.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub id: JobId,
    pub events: Vec<JobEvent>,
    /// Why it is as it is then, in one sentence.
    pub words: String,
    /// What the rows of its history have instead.
    pub history: Option<String>,
    pub set: Set,
}

/// What else changes in its row. `None` leaves it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Set {
    /// The slot that it is in from now on. It leaves its slot by itself when nothing of it may be out any more.
    pub slot: Option<SlotId>,
    pub due: Option<Timestamp>,
    /// One more try, or one more slot.
    pub tried: bool,
    pub slotted: bool,
    /// Its slot was released: nothing was signed there, so it does not count.
    pub unslotted: bool,
    /// More was offered, as was wanted.
    pub bumped: bool,
    /// It is over because its wallet has too little.
    pub short: bool,
}

impl Change {
    pub(crate) fn new(id: JobId, events: Vec<JobEvent>, words: impl Into<String>) -> Self {
        Self { id, events, words: words.into(), history: None, set: Set::default() }
    }
}

static UPDATE_JOBS: RowsSql = RowsSql::new(
    "UPDATE_JOBS",
    "UPDATE outbound_jobs SET state = r.state, version = r.version, tries = r.tries, rounds = r.rounds, slot_id = r.slot_id,
         bump = r.bump <> 0, short = r.short <> 0, reason = r.reason, due_at = r.due_at, updated_at = r.at
     FROM {rows} WHERE outbound_jobs.id = r.id AND outbound_jobs.version = r.before",
    &[
        ("id", Int),
        ("state", Text),
        ("version", Int),
        ("before", Int),
        ("tries", Int),
        ("rounds", Int),
        ("slot_id", Int),
        ("bump", Int),
        ("short", Int),
        ("reason", Text),
        ("due_at", Int),
        ("at", Int),
    ],
);

static INSERT_JOB_EVENTS: RowsSql = RowsSql::new(
    "INSERT_JOB_EVENTS",
    "INSERT INTO outbound_job_events (job_id, version, state, reason, at)
     SELECT r.id, r.version, r.state, r.reason, r.at FROM {rows}",
    &[("id", Int), ("version", Int), ("state", Text), ("reason", Text), ("at", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 2] = [&UPDATE_JOBS, &INSERT_JOB_EVENTS];

/// One step of a job's history.
pub(crate) struct Step {
    pub job: JobId,
    pub version: i64,
    pub state: JobState,
    pub words: String,
}

/// Carries out the changes, at most one for each job, in three statements. Whoever calls holds the jobs' lanes, so nobody else moves them.
pub(crate) async fn advance(tx: &mut Tx, changes: Vec<Change>, at: Timestamp) -> Result<(), StoreError> {
    let rows = read_standings(tx, &changes.iter().map(|change| change.id).collect::<Vec<_>>()).await?;
    advance_known(tx, rows, changes, at).await
}

/// The same with the jobs as they were read in this transaction, after their lanes were locked.
pub(crate) async fn advance_known(
    tx: &mut Tx,
    mut rows: Standings,
    changes: Vec<Change>,
    at: Timestamp,
) -> Result<(), StoreError> {
    let changes: BTreeMap<JobId, Change> = changes.into_iter().map(|change| (change.id, change)).collect();
    if changes.is_empty() {
        return Ok(());
    }
    let (mut after, mut steps) = (Vec::with_capacity(changes.len()), Vec::new());
    for (id, change) in &changes {
        let row = rows.remove(id).ok_or_else(|| malformed("number of a job"))?;
        after.push((row.version, next(row, change, &mut steps)?));
    }
    let count = after.len();
    let columns = vec![
        Column::Ints(after.iter().map(|(_, row)| row.id.number()).collect()),
        Column::Texts(after.iter().map(|(_, row)| row.state.as_str()).collect()),
        Column::Ints(after.iter().map(|(_, row)| row.version).collect()),
        Column::Ints(after.iter().map(|(before, _)| *before).collect()),
        Column::Ints(after.iter().map(|(_, row)| row.tries.into()).collect()),
        Column::Ints(after.iter().map(|(_, row)| row.rounds.into()).collect()),
        Column::OptionalInts(after.iter().map(|(_, row)| row.slot.map(|slot| slot.0)).collect()),
        Column::Ints(after.iter().map(|(_, row)| row.bump.into()).collect()),
        Column::Ints(changes.values().map(|change| change.set.short.into()).collect()),
        Column::Texts(changes.values().map(|change| change.words.as_str()).collect()),
        Column::Ints(after.iter().map(|(_, row)| row.due.micros()).collect()),
        Column::Ints(vec![at.micros(); count]),
    ];
    expect_rows(execute_rows(tx, &UPDATE_JOBS, columns).await?, count, "jobs")?;
    write_steps(tx, &steps, at).await
}

pub(crate) async fn write_steps(tx: &mut Tx, steps: &[Step], at: Timestamp) -> Result<(), StoreError> {
    if steps.is_empty() {
        return Ok(());
    }
    let columns = vec![
        Column::Ints(steps.iter().map(|step| step.job.number()).collect()),
        Column::Ints(steps.iter().map(|step| step.version).collect()),
        Column::Texts(steps.iter().map(|step| step.state.as_str()).collect()),
        Column::Texts(steps.iter().map(|step| step.words.as_str()).collect()),
        Column::Ints(vec![at.micros(); steps.len()]),
    ];
    expect_rows(execute_rows(tx, &INSERT_JOB_EVENTS, columns).await?, steps.len(), "events of jobs")
}

fn next(mut row: JobStanding, change: &Change, steps: &mut Vec<Step>) -> Result<JobStanding, StoreError> {
    for event in &change.events {
        let broken =
            |illegal: domain::outbound::Illegal| StoreError::Corrupt { what: format!("{}: {illegal}", row.id) };
        row.state = row.state.next(*event).map_err(broken)?;
        row.version += 1;
        let words = change.history.as_ref().unwrap_or(&change.words).clone();
        steps.push(Step { job: row.id, version: row.version, state: row.state, words });
    }
    let Set { slot, due, tried, slotted, unslotted, bumped, short: _ } = &change.set;
    row.slot = slot.or(row.slot).filter(|_| row.state.may_be_out());
    row.due = due.unwrap_or(row.due);
    row.tries = row.tries.saturating_add(u32::from(*tried));
    row.rounds = row.rounds.saturating_add(u32::from(*slotted)).saturating_sub(u32::from(*unslotted));
    row.bump = row.bump && !bumped;
    Ok(row)
}
