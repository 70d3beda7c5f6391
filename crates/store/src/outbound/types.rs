//! Jobs, lanes, slots and attempts as their rows have them.

use std::collections::HashMap;
use std::fmt;

use domain::id::{Id, Job};
use domain::outbound::{Effect, JobKind, JobState};
use domain::utxo::Hash;
use domain::{GroupId, RawAmount, Timestamp};

use crate::db::Tx;
use crate::dialect::Many;
use crate::entry::ListingId;
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Int, RowsSql, fetch_rows};
use crate::withdrawal::WithdrawalId;

pub type JobId = Id<Job>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(pub i64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub i64);

/// A payment to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRow {
    pub id: JobId,
    pub lane: LaneId,
    pub listing: ListingId,
    pub kind: JobKind,
    pub reference: String,
    pub to: String,
    /// Whose address that is, if it is one of ours.
    pub owner: Option<(GroupId, i64)>,
    pub amount: RawAmount,
    pub most_fee: RawAmount,
    pub priority: i64,
    pub requester: String,
    pub expires: Timestamp,
    /// The withdrawal that it pays.
    pub withdrawal: Option<WithdrawalId>,
    pub state: JobState,
    pub version: i64,
    pub tries: u32,
    pub rounds: u32,
    pub slot: Option<SlotId>,
    pub give_up: bool,
    pub bump: bool,
    pub reason: String,
    pub due: Timestamp,
    pub created: Timestamp,
}

/// By which number the signer knows what a job pays. A second job for a withdrawal is the same payment to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SignedAs {
    Withdrawal(WithdrawalId),
    Job(JobId),
}

impl fmt::Display for SignedAs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Withdrawal(withdrawal) => withdrawal.fmt(f),
            Self::Job(job) => job.fmt(f),
        }
    }
}

/// As it is displayed.
pub(crate) fn signed_as(text: &str) -> Result<SignedAs, StoreError> {
    let withdrawal = text.parse().map(SignedAs::Withdrawal);
    withdrawal.or_else(|_| text.parse().map(SignedAs::Job)).map_err(|_| malformed("holder of a nonce"))
}

impl JobRow {
    pub const fn signed_as(&self) -> SignedAs {
        match self.withdrawal {
            Some(withdrawal) => SignedAs::Withdrawal(withdrawal),
            None => SignedAs::Job(self.id),
        }
    }
}

/// A sending wallet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneRow {
    pub id: LaneId,
    pub group: GroupId,
    pub index: i64,
    /// As the row claims it: whoever sends from it derives it again.
    pub address: String,
    pub known_nonce: Option<u64>,
    pub stopped: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptKind {
    /// It pays the jobs of its slot.
    Pay,
    /// It only takes the slot. It is signed under this number.
    Cancel(JobId),
}

impl AttemptKind {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Pay => "pay",
            Self::Cancel(_) => "cancel",
        }
    }
}

/// Where an attempt was mined, and what it did there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MinedAttempt {
    pub height: u64,
    pub block: Hash,
    pub fate: Effect,
    /// What it cost, as far as it is known.
    pub fee: Option<RawAmount>,
}

/// A transaction that was asked for in a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptRow {
    pub number: u32,
    pub kind: AttemptKind,
    pub payload: Vec<u8>,
    /// The bytes, and their hash.
    pub signed: Option<(Vec<u8>, Hash)>,
    pub refused: Option<String>,
    pub told: Option<Timestamp>,
    pub said: Option<String>,
    pub mined: Option<MinedAttempt>,
    pub created: Timestamp,
}

/// A slot of which a transaction may be mined, or leave the chain again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenSlot {
    pub id: SlotId,
    pub lane: LaneId,
    pub nonce: Option<u64>,
    /// Whose the nonce is by the signer's log, although no row says so. A slot with jobs is never signed for then; without, its cancel names that job.
    pub holder: Option<SignedAs>,
    pub since: u64,
    /// With the round that each is signed in.
    pub jobs: Vec<(JobRow, u32)>,
    /// By their numbers.
    pub attempts: Vec<AttemptRow>,
}

impl OpenSlot {
    pub fn mined(&self) -> Option<(&AttemptRow, &MinedAttempt)> {
        self.attempts.iter().find_map(|attempt| Some((attempt, attempt.mined.as_ref()?)))
    }

    /// The newest that was signed: it offers most.
    pub fn newest(&self) -> Option<&AttemptRow> {
        self.attempts.iter().rev().find(|attempt| attempt.signed.is_some())
    }

    /// Those that wait for their signature.
    pub fn unsigned(&self) -> impl Iterator<Item = &AttemptRow> {
        self.attempts.iter().filter(|attempt| attempt.signed.is_none() && attempt.refused.is_none())
    }
}

/// An open slot as whoever watches it must know it: its jobs are read when something is to be written of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedSlot {
    /// Another program has used it: of its transaction there is only the hash.
    pub imported: bool,
    pub id: SlotId,
    pub lane: LaneId,
    pub nonce: Option<u64>,
    pub since: u64,
    /// By their numbers.
    pub attempts: Vec<AttemptRow>,
}

impl WatchedSlot {
    pub fn is_signed(&self) -> bool {
        self.attempts.iter().any(|attempt| attempt.signed.is_some())
    }

    /// How many of its attempts a block can have. Only of these the chain is asked.
    pub fn signed_count(&self) -> usize {
        self.attempts.iter().filter(|attempt| attempt.signed.is_some()).count()
    }

    pub fn mined(&self) -> Option<(&AttemptRow, &MinedAttempt)> {
        self.attempts.iter().find_map(|attempt| Some((attempt, attempt.mined.as_ref()?)))
    }
}

pub(crate) fn malformed(what: &str) -> StoreError {
    StoreError::Corrupt { what: format!("the outbound rows have a malformed {what}") }
}

pub(crate) const JOB: &str = "j.id, j.lane_id, j.listing_id, j.kind, j.reference, j.to_address, j.owner_group, j.owner_index, j.amount_raw, j.most_fee_raw, j.priority, \
    j.requester, j.expires_at, j.withdrawal_id, j.state, j.version, j.tries, j.rounds, j.slot_id, j.give_up, j.bump, j.reason, j.due_at, j.created_at";

/// More columns than a tuple can have.
pub(crate) struct JobColumns {
    id: i64,
    lane: i64,
    listing: i64,
    kind: String,
    reference: String,
    to: String,
    owner_group: Option<String>,
    owner_index: Option<i64>,
    amount: String,
    most_fee: String,
    priority: i64,
    requester: String,
    expires: i64,
    withdrawal: Option<i64>,
    state: String,
    version: i64,
    tries: i64,
    rounds: i64,
    slot: Option<i64>,
    give_up: bool,
    bump: bool,
    reason: String,
    due: i64,
    created: i64,
}

from_row!(JobColumns {
    id = "id",
    lane = "lane_id",
    listing = "listing_id",
    kind = "kind",
    reference = "reference",
    to = "to_address",
    owner_group = "owner_group",
    owner_index = "owner_index",
    amount = "amount_raw",
    most_fee = "most_fee_raw",
    priority = "priority",
    requester = "requester",
    expires = "expires_at",
    withdrawal = "withdrawal_id",
    state = "state",
    version = "version",
    tries = "tries",
    rounds = "rounds",
    slot = "slot_id",
    give_up = "give_up",
    bump = "bump",
    reason = "reason",
    due = "due_at",
    created = "created_at",
});

pub(crate) fn job_row(row: JobColumns) -> Result<JobRow, StoreError> {
    let count = |number: i64| u32::try_from(number).map_err(|_| malformed("count"));
    Ok(JobRow {
        id: job_id(row.id)?,
        lane: LaneId(row.lane),
        listing: ListingId(row.listing),
        kind: JobKind::parse(&row.kind).ok_or_else(|| malformed("kind of job"))?,
        reference: row.reference,
        to: row.to,
        owner: match row.owner_group.zip(row.owner_index) {
            Some((group, index)) => Some((group.parse().map_err(|_| malformed("group's name"))?, index)),
            None => None,
        },
        amount: row.amount.parse().map_err(|_| malformed("amount"))?,
        most_fee: row.most_fee.parse().map_err(|_| malformed("fee"))?,
        priority: row.priority,
        requester: row.requester,
        expires: Timestamp::from_micros(row.expires),
        withdrawal: row
            .withdrawal
            .map(|number| WithdrawalId::new(number).map_err(|_| malformed("withdrawal")))
            .transpose()?,
        state: JobState::parse(&row.state).ok_or_else(|| malformed("state of a job"))?,
        version: row.version,
        tries: count(row.tries)?,
        rounds: count(row.rounds)?,
        slot: row.slot.map(SlotId),
        give_up: row.give_up,
        bump: row.bump,
        reason: row.reason,
        due: Timestamp::from_micros(row.due),
        created: Timestamp::from_micros(row.created),
    })
}

pub(crate) fn job_id(number: i64) -> Result<JobId, StoreError> {
    JobId::new(number).map_err(|_| malformed("number of a job"))
}

pub(crate) fn nonce_of(nonce: i64) -> Result<u64, StoreError> {
    u64::try_from(nonce).map_err(|_| malformed("nonce"))
}

pub(crate) fn row_nonce(nonce: u64) -> Result<i64, StoreError> {
    i64::try_from(nonce).map_err(|_| malformed("nonce"))
}

fn hash(bytes: &[u8]) -> Result<Hash, StoreError> {
    <[u8; 32]>::try_from(bytes).map(Hash).map_err(|_| malformed("hash"))
}

pub(crate) const fn fate_word(fate: Effect) -> &'static str {
    match fate {
        Effect::InFull => "in_full",
        Effect::Nothing => "nothing",
        Effect::Unclear => "unclear",
    }
}

fn fate_of(text: &str) -> Result<Effect, StoreError> {
    [Effect::InFull, Effect::Nothing, Effect::Unclear]
        .into_iter()
        .find(|fate| fate_word(*fate) == text)
        .ok_or_else(|| malformed("fate"))
}

pub(crate) type LaneColumns = (i64, String, i64, String, Option<i64>, Option<String>);

pub(crate) const LANE: &str = "l.id, g.name, l.derivation_index, l.address, l.known_nonce, COALESCE(l.stopped, g.outbound_stopped, \
    (SELECT 'another program has sent from it, and that is not final yet' FROM outbound_slots s JOIN chains c ON c.id = l.chain_id AND c.kind = 'evm' \
        WHERE s.lane_id = l.id AND s.state = 'open' AND s.imported LIMIT 1))";

pub(crate) fn lane_row((id, group, index, address, known, stopped): LaneColumns) -> Result<LaneRow, StoreError> {
    Ok(LaneRow {
        id: LaneId(id),
        group: group.parse().map_err(|_| malformed("group's name"))?,
        index,
        address,
        known_nonce: known.map(nonce_of).transpose()?,
        stopped,
    })
}

type AttemptColumns = (
    i64,
    i64,
    String,
    Option<i64>,
    Vec<u8>,
    Option<Vec<u8>>,
    Option<Vec<u8>>,
    Option<String>,
    Option<i64>,
    Option<String>,
    Option<i64>,
    Option<Vec<u8>>,
    Option<String>,
    Option<String>,
    i64,
);

/// Where an attempt was mined, if it was.
pub(crate) fn mined_attempt(
    height: Option<i64>,
    block: Option<Vec<u8>>,
    paid: Option<String>,
    fee: Option<String>,
) -> Result<Option<MinedAttempt>, StoreError> {
    let (Some(height), Some(block), Some(paid)) = (height, block, paid) else { return Ok(None) };
    Ok(Some(MinedAttempt {
        height: u64::try_from(height).map_err(|_| malformed("height"))?,
        block: hash(&block)?,
        fate: fate_of(&paid)?,
        fee: fee.map(|fee| fee.parse().map_err(|_| malformed("fee"))).transpose()?,
    }))
}

/// The slot, and its attempt.
fn attempt_row(row: AttemptColumns) -> Result<(SlotId, AttemptRow), StoreError> {
    let (slot, number, kind, cancel, payload, signed, tx_hash, refused, told, said, height, block, paid, fee, created) =
        row;
    let kind = match (kind.as_str(), cancel) {
        ("pay", None) => AttemptKind::Pay,
        ("cancel", Some(number)) => AttemptKind::Cancel(job_id(number)?),
        _ => return Err(malformed("kind of attempt")),
    };
    let signed = signed.zip(tx_hash).map(|(bytes, tx_hash)| Ok::<_, StoreError>((bytes, hash(&tx_hash)?)));
    let attempt = AttemptRow {
        number: u32::try_from(number).map_err(|_| malformed("number of an attempt"))?,
        kind,
        payload,
        signed: signed.transpose()?,
        refused,
        told: told.map(Timestamp::from_micros),
        said,
        mined: mined_attempt(height, block, paid, fee)?,
        created: Timestamp::from_micros(created),
    };
    Ok((SlotId(slot), attempt))
}

const ATTEMPT: &str = "a.slot_id, a.number, a.kind, a.cancel_id, a.payload, a.signed, a.tx_hash, a.refused, a.told_at, a.said, \
    a.mined_height, a.mined_block, a.paid, a.fee_raw, a.created_at";

statements! {
    READ_LANES(LANE) = "SELECT {columns} FROM outbound_lanes l JOIN wallet_groups g ON g.id = l.wallet_group_id
        WHERE l.id {in $1} ORDER BY l.id";
    READ_OPEN_SLOTS = "SELECT s.id, s.lane_id, s.nonce, s.since_height, s.imported, s.holder FROM outbound_slots s
        WHERE s.lane_id {in $1} AND s.state = 'open' ORDER BY s.id";
    /// The blocks that have a transaction of an open slot, as far as is known.
    READ_MINED_BLOCKS = "SELECT DISTINCT a.mined_height, a.mined_block FROM outbound_slots s
            JOIN outbound_attempts a ON a.slot_id = s.id AND a.mined_height IS NOT NULL
        WHERE s.lane_id {in $1} AND s.state = 'open'";
    /// Those that are in blocks of some heights; of others, those with a job that is not known to be deep.
    READ_MINED_SLOTS = "SELECT s.id, s.lane_id, s.nonce, s.since_height, s.imported, s.holder FROM outbound_slots s
            JOIN outbound_attempts a ON a.slot_id = s.id AND a.mined_height IS NOT NULL
        WHERE s.lane_id {in $1} AND s.state = 'open' AND (a.mined_height {in $2} OR a.mined_height {in $3} AND EXISTS (
            SELECT 1 FROM outbound_jobs j WHERE j.slot_id = s.id AND j.state = 'confirming')) ORDER BY s.id";
    READ_UNMINED_SLOTS = "SELECT s.id, s.lane_id, s.nonce, s.since_height, s.imported, s.holder FROM outbound_slots s
        WHERE s.lane_id {in $1} AND s.state = 'open' AND NOT EXISTS (SELECT 1 FROM outbound_attempts a
            WHERE a.slot_id = s.id AND a.mined_height IS NOT NULL) ORDER BY s.id";
    READ_UNSIGNED_SLOTS = "SELECT s.id, s.lane_id, s.nonce, s.since_height, s.imported, s.holder FROM outbound_slots s
        WHERE s.lane_id {in $1} AND s.state = 'open' AND EXISTS (SELECT 1 FROM outbound_attempts a
            WHERE a.slot_id = s.id AND a.signed IS NULL AND a.refused IS NULL) ORDER BY s.id";
}

/// Which of the open slots are read: a lane has many that are in a block and only wait to be final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotsRead {
    All,
    /// Those of which nothing is in a block, as far as is known.
    Unmined,
    /// Those with an attempt that waits for its signature.
    Unsigned,
}

static READ_ATTEMPTS: RowsSql = RowsSql::listing(
    "READ_ATTEMPTS",
    "SELECT {columns} FROM {rows} {join} outbound_attempts a ON a.slot_id = r.slot_id ORDER BY a.slot_id, a.number",
    ATTEMPT,
    &[("slot_id", Int)],
);

static READ_SLOT_JOBS: RowsSql = RowsSql::new(
    "READ_SLOT_JOBS",
    "SELECT k.slot_id, k.job_id, k.round FROM {rows} {join} outbound_slot_jobs k ON k.slot_id = r.slot_id
     ORDER BY k.slot_id, k.job_id",
    &[("slot_id", Int)],
);

static READ_SIGNED_AS: RowsSql = RowsSql::new(
    "READ_SIGNED_AS",
    "SELECT k.slot_id, k.job_id, j.withdrawal_id FROM {rows} {join} outbound_slot_jobs k ON k.slot_id = r.slot_id
         {join} outbound_jobs j ON j.id = k.job_id
     ORDER BY k.slot_id, k.job_id",
    &[("slot_id", Int)],
);

static READ_JOBS: RowsSql = RowsSql::listing(
    "READ_JOBS",
    "SELECT {columns} FROM {rows} {join} outbound_jobs j ON j.id = r.id",
    JOB,
    &[("id", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 4] = [&READ_ATTEMPTS, &READ_SLOT_JOBS, &READ_SIGNED_AS, &READ_JOBS];

pub(crate) fn lane_ids(lanes: &[LaneId]) -> Many<i64> {
    Many(lanes.iter().map(|lane| lane.0).collect())
}

pub(crate) async fn read_lanes(tx: &mut Tx, lanes: &[LaneId]) -> Result<Vec<LaneRow>, StoreError> {
    let rows = fetch_all!(tx, READ_LANES => LaneColumns, lane_ids(lanes))?;
    rows.into_iter().map(lane_row).collect()
}

pub(crate) async fn read_jobs(tx: &mut Tx, ids: &[JobId]) -> Result<HashMap<JobId, JobRow>, StoreError> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let columns = vec![Column::Ints(ids.iter().map(|id| id.number()).collect())];
    let rows: Vec<JobColumns> = fetch_rows(tx, &READ_JOBS, columns).await?;
    rows.into_iter().map(|row| job_row(row).map(|row| (row.id, row))).collect()
}

/// Which jobs are and were in each of these slots.
pub(crate) async fn jobs_of_slots(tx: &mut Tx, slots: &[SlotId]) -> Result<HashMap<SlotId, Vec<JobId>>, StoreError> {
    let mut jobs: HashMap<SlotId, Vec<JobId>> = HashMap::new();
    if slots.is_empty() {
        return Ok(jobs);
    }
    let columns = vec![Column::Ints(slots.iter().map(|slot| slot.0).collect())];
    for (slot, job, _) in fetch_rows::<(i64, i64, i64)>(tx, &READ_SLOT_JOBS, columns).await? {
        jobs.entry(SlotId(slot)).or_default().push(job_id(job)?);
    }
    Ok(jobs)
}

/// By which numbers the signer knows what was in each of these slots.
pub(crate) async fn signed_in_slots(
    tx: &mut Tx,
    slots: &[SlotId],
) -> Result<HashMap<SlotId, Vec<SignedAs>>, StoreError> {
    let mut jobs: HashMap<SlotId, Vec<SignedAs>> = HashMap::new();
    if slots.is_empty() {
        return Ok(jobs);
    }
    let columns = vec![Column::Ints(slots.iter().map(|slot| slot.0).collect())];
    for (slot, job, withdrawal) in fetch_rows::<(i64, i64, Option<i64>)>(tx, &READ_SIGNED_AS, columns).await? {
        let signed = match withdrawal {
            Some(number) => SignedAs::Withdrawal(WithdrawalId::new(number).map_err(|_| malformed("withdrawal"))?),
            None => SignedAs::Job(job_id(job)?),
        };
        jobs.entry(SlotId(slot)).or_default().push(signed);
    }
    Ok(jobs)
}

/// The last two say whether another program has used it, and whose its nonce is by the signer's log.
pub(crate) type SlotColumns = (i64, i64, Option<i64>, i64, bool, Option<String>);

/// Open slots of these lanes, with their jobs and attempts, in four statements.
pub(crate) async fn read_open_slots(
    tx: &mut Tx,
    lanes: &[LaneId],
    which: SlotsRead,
) -> Result<Vec<OpenSlot>, StoreError> {
    let lanes = lane_ids(lanes);
    let rows = match which {
        SlotsRead::All => fetch_all!(tx, READ_OPEN_SLOTS => SlotColumns, lanes)?,
        SlotsRead::Unmined => fetch_all!(tx, READ_UNMINED_SLOTS => SlotColumns, lanes)?,
        SlotsRead::Unsigned => fetch_all!(tx, READ_UNSIGNED_SLOTS => SlotColumns, lanes)?,
    };
    // What another program has sent is nothing that anybody here could sign, tell or replace.
    read_slots(tx, rows.into_iter().filter(|row| !row.4).collect()).await
}

/// The attempts of these slots, by their numbers.
async fn read_attempts(tx: &mut Tx, slots: &[SlotColumns]) -> Result<HashMap<SlotId, Vec<AttemptRow>>, StoreError> {
    let mut attempts: HashMap<SlotId, Vec<AttemptRow>> = HashMap::new();
    let ids = vec![Column::Ints(slots.iter().map(|row| row.0).collect())];
    for row in fetch_rows::<AttemptColumns>(tx, &READ_ATTEMPTS, ids).await? {
        let (slot, attempt) = attempt_row(row)?;
        attempts.entry(slot).or_default().push(attempt);
    }
    Ok(attempts)
}

/// The blocks that have a transaction of an open slot of these lanes, as far as is known.
pub(crate) async fn read_mined_blocks(tx: &mut Tx, lanes: &[LaneId]) -> Result<Vec<(u64, Hash)>, StoreError> {
    let rows = fetch_all!(tx, READ_MINED_BLOCKS => (i64, Vec<u8>), lane_ids(lanes))?;
    let block =
        |(height, block): (i64, Vec<u8>)| Ok((u64::try_from(height).map_err(|_| malformed("height"))?, hash(&block)?));
    rows.into_iter().map(block).collect()
}

/// Open slots of these lanes of which nothing is in a block; with those in a block of one of the heights, and of those that are in a block of
/// one of the other heights the ones with a job that is not known to be deep.
pub(crate) async fn read_watched(
    tx: &mut Tx,
    lanes: &[LaneId],
    heights: &[u64],
    deep: &[u64],
) -> Result<Vec<WatchedSlot>, StoreError> {
    let numbers = |heights: &[u64]| -> Result<Many<i64>, StoreError> {
        let height = |height: &u64| i64::try_from(*height).map_err(|_| malformed("height"));
        Ok(Many(heights.iter().map(height).collect::<Result<_, _>>()?))
    };
    let mut rows = fetch_all!(tx, READ_UNMINED_SLOTS => SlotColumns, lane_ids(lanes))?;
    if !heights.is_empty() || !deep.is_empty() {
        let (heights, deep) = (numbers(heights)?, numbers(deep)?);
        rows.extend(fetch_all!(tx, READ_MINED_SLOTS => SlotColumns, lane_ids(lanes), heights, deep)?);
    }
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let mut attempts = read_attempts(tx, &rows).await?;
    let slot = |(id, lane, nonce, since, imported, _): SlotColumns| {
        Ok(WatchedSlot {
            imported,
            id: SlotId(id),
            lane: LaneId(lane),
            nonce: nonce.map(nonce_of).transpose()?,
            since: u64::try_from(since).map_err(|_| malformed("height"))?,
            attempts: attempts.remove(&SlotId(id)).unwrap_or_default(),
        })
    };
    rows.into_iter().map(slot).collect()
}

pub(crate) async fn read_slots(tx: &mut Tx, rows: Vec<SlotColumns>) -> Result<Vec<OpenSlot>, StoreError> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let mut attempts = read_attempts(tx, &rows).await?;
    let ids = vec![Column::Ints(rows.iter().map(|row| row.0).collect())];
    let links: Vec<(i64, i64, i64)> = fetch_rows(tx, &READ_SLOT_JOBS, ids).await?;
    let wanted = links.iter().map(|(_, job, _)| job_id(*job)).collect::<Result<Vec<_>, _>>()?;
    let rows_of_jobs = read_jobs(tx, &wanted).await?;
    let mut jobs: HashMap<SlotId, Vec<(JobRow, u32)>> = HashMap::new();
    for (slot, job, round) in links {
        let job = rows_of_jobs.get(&job_id(job)?).cloned().ok_or_else(|| malformed("job of a slot"))?;
        let round = u32::try_from(round).map_err(|_| malformed("round"))?;
        jobs.entry(SlotId(slot)).or_default().push((job, round));
    }
    let slot = |(id, lane, nonce, since, _, holder): SlotColumns| {
        Ok(OpenSlot {
            id: SlotId(id),
            lane: LaneId(lane),
            nonce: nonce.map(nonce_of).transpose()?,
            holder: holder.as_deref().map(signed_as).transpose()?,
            since: u64::try_from(since).map_err(|_| malformed("height"))?,
            jobs: jobs.remove(&SlotId(id)).unwrap_or_default(),
            attempts: attempts.remove(&SlotId(id)).unwrap_or_default(),
        })
    };
    rows.into_iter().map(slot).collect()
}
