//! Jobs and slots as those must know them who move them on: where each stands, and nothing of what it pays. They are read after the lanes
//! were locked, at every step of every payment, so they are as small as they can be.

use std::collections::HashMap;

use domain::Timestamp;
use domain::outbound::JobState;

use super::types::{JobId, LaneId, MinedAttempt, SlotId, job_id, malformed, mined_attempt};
use crate::db::Tx;
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Int, RowsSql, fetch_rows};

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JobStanding {
    pub id: JobId,
    pub lane: LaneId,
    pub state: JobState,
    pub version: i64,
    pub tries: u32,
    pub rounds: u32,
    pub slot: Option<SlotId>,
    pub give_up: bool,
    pub bump: bool,
    pub due: Timestamp,
}

/// Where an attempt stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AttemptStanding {
    pub number: u32,
    /// It pays the jobs of its slot.
    pub pays: bool,
    pub signed: bool,
    pub mined: Option<MinedAttempt>,
}

/// An open slot, with where its jobs and attempts stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlotStanding {
    pub id: SlotId,
    pub lane: LaneId,
    pub jobs: Vec<JobStanding>,
    /// By their numbers.
    pub attempts: Vec<AttemptStanding>,
}

impl SlotStanding {
    pub(crate) fn mined(&self) -> Option<(u32, &MinedAttempt)> {
        self.attempts.iter().find_map(|attempt| Some((attempt.number, attempt.mined.as_ref()?)))
    }

    pub(crate) fn is_signed(&self) -> bool {
        self.attempts.iter().any(|attempt| attempt.signed)
    }

    pub(crate) fn signed_count(&self) -> usize {
        self.attempts.iter().filter(|attempt| attempt.signed).count()
    }
}

const STANDING: &str = "j.id, j.lane_id, j.state, j.version, j.tries, j.rounds, j.slot_id, j.give_up, j.bump, j.due_at";

type Columns = (i64, i64, String, i64, i64, i64, Option<i64>, bool, bool, i64);

static READ_STANDINGS: RowsSql = RowsSql::listing(
    "READ_STANDINGS",
    "SELECT {columns} FROM {rows} {join} outbound_jobs j ON j.id = r.id",
    STANDING,
    &[("id", Int)],
);

/// Of those jobs whose coin may be sent, and to whom they pay: not to a wallet of a group that is stopped.
static READ_ALLOWED: RowsSql = RowsSql::listing(
    "READ_ALLOWED",
    "SELECT {columns} FROM {rows} {join} outbound_jobs j ON j.id = r.id {join} asset_on_chain l ON l.id = j.listing_id
         {join} assets a ON a.id = l.asset_id
     WHERE l.status = 'active' AND a.status = 'active'
         AND NOT EXISTS (SELECT 1 FROM wallet_groups o WHERE o.name = j.owner_group AND o.outbound_stopped IS NOT NULL)",
    STANDING,
    &[("id", Int)],
);

/// Of all jobs that these slots are for.
static READ_SLOTTED: RowsSql = RowsSql::listing(
    "READ_SLOTTED",
    "SELECT k.slot_id AS of_slot, {columns} FROM {rows} {join} outbound_slot_jobs k ON k.slot_id = r.slot_id
         {join} outbound_jobs j ON j.id = k.job_id
     ORDER BY k.slot_id, k.job_id",
    STANDING,
    &[("slot_id", Int)],
);

/// Of those slots that are open. Each has an attempt.
static READ_TRIED: RowsSql = RowsSql::new(
    "READ_TRIED",
    "SELECT s.id, s.lane_id, a.number, a.kind = 'pay', a.signed IS NOT NULL, a.mined_height, a.mined_block, a.paid, a.fee_raw
     FROM {rows} {join} outbound_slots s ON s.id = r.id {join} outbound_attempts a ON a.slot_id = s.id
     WHERE s.state = 'open' ORDER BY a.slot_id, a.number",
    &[("id", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 4] = [&READ_STANDINGS, &READ_ALLOWED, &READ_SLOTTED, &READ_TRIED];

pub(crate) type Standings = HashMap<JobId, JobStanding>;

pub(crate) async fn read_standings(tx: &mut Tx, ids: &[JobId]) -> Result<Standings, StoreError> {
    read_by(tx, &READ_STANDINGS, ids).await
}

/// Of those that may be sent.
pub(crate) async fn read_allowed(tx: &mut Tx, ids: &[JobId]) -> Result<Standings, StoreError> {
    read_by(tx, &READ_ALLOWED, ids).await
}

async fn read_by(tx: &mut Tx, sql: &RowsSql, ids: &[JobId]) -> Result<Standings, StoreError> {
    if ids.is_empty() {
        return Ok(Standings::new());
    }
    let columns = vec![Column::Ints(ids.iter().map(|id| id.number()).collect())];
    let rows: Vec<Columns> = fetch_rows(tx, sql, columns).await?;
    rows.into_iter().map(|row| standing(row).map(|job| (job.id, job))).collect()
}

/// Of all jobs that were ever in these slots.
pub(crate) async fn read_slotted(tx: &mut Tx, slots: &[SlotId]) -> Result<Vec<(SlotId, JobStanding)>, StoreError> {
    if slots.is_empty() {
        return Ok(Vec::new());
    }
    type Slotted = (i64, i64, i64, String, i64, i64, i64, Option<i64>, bool, bool, i64);
    let columns = vec![Column::Ints(slots.iter().map(|slot| slot.0).collect())];
    let rows: Vec<Slotted> = fetch_rows(tx, &READ_SLOTTED, columns).await?;
    let slotted = |(slot, id, lane, state, version, tries, rounds, now, give_up, bump, due): Slotted| {
        Ok((SlotId(slot), standing((id, lane, state, version, tries, rounds, now, give_up, bump, due))?))
    };
    rows.into_iter().map(slotted).collect()
}

/// Those of these slots that are open.
pub(crate) async fn read_slot_standings(
    tx: &mut Tx,
    slots: &[SlotId],
) -> Result<HashMap<SlotId, SlotStanding>, StoreError> {
    type Tried = (i64, i64, i64, bool, bool, Option<i64>, Option<Vec<u8>>, Option<String>, Option<String>);
    let mut open: HashMap<SlotId, SlotStanding> = HashMap::new();
    if slots.is_empty() {
        return Ok(open);
    }
    let columns = vec![Column::Ints(slots.iter().map(|slot| slot.0).collect())];
    let tried: Vec<Tried> = fetch_rows(tx, &READ_TRIED, columns).await?;
    for (slot, lane, number, pays, signed, height, block, paid, fee) in tried {
        let id = SlotId(slot);
        let new = || SlotStanding { id, lane: LaneId(lane), jobs: Vec::new(), attempts: Vec::new() };
        let number = u32::try_from(number).map_err(|_| malformed("number of an attempt"))?;
        let mined = mined_attempt(height, block, paid, fee)?;
        open.entry(id).or_insert_with(new).attempts.push(AttemptStanding { number, pays, signed, mined });
    }
    for (slot, job) in read_slotted(tx, &open.keys().copied().collect::<Vec<_>>()).await? {
        open.entry(slot).and_modify(|slot| slot.jobs.push(job));
    }
    Ok(open)
}

/// The jobs of slots, as they were read with them.
pub(crate) fn jobs_in(slots: impl Iterator<Item = SlotStanding>) -> Standings {
    slots.flat_map(|slot| slot.jobs).map(|job| (job.id, job)).collect()
}

fn standing(
    (id, lane, state, version, tries, rounds, slot, give_up, bump, due): Columns,
) -> Result<JobStanding, StoreError> {
    let count = |number: i64| u32::try_from(number).map_err(|_| malformed("count"));
    Ok(JobStanding {
        id: job_id(id)?,
        lane: LaneId(lane),
        state: JobState::parse(&state).ok_or_else(|| malformed("state of a job"))?,
        version,
        tries: count(tries)?,
        rounds: count(rounds)?,
        slot: slot.map(SlotId),
        give_up,
        bump,
        due: Timestamp::from_micros(due),
    })
}
