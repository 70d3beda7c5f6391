//! Slots, attempts, signed bytes, and what nodes were told. Each is written before whoever is outside can know of it.

use std::collections::{BTreeSet, HashMap};

use domain::outbound::{JobEvent, JobState, MOST_TRIES, pause_micros};
use domain::utxo::Hash;
use domain::{RawAmount, Timestamp};

use super::advance::{Change, Set, advance_known};
use super::coins::{Reserved, Spend, is_built_on, release_coins, reserve, spend};
use super::lane::{HeldLane, lock_held, stop};
use super::standing::{
    JobStanding, SlotStanding, Standings, jobs_in, read_allowed, read_slot_standings, read_slotted, read_standings,
};
use super::types::{
    AttemptKind, JOB, JobColumns, JobId, JobRow, LaneId, LaneRow, OpenSlot, SignedAs, SlotId, SlotsRead, job_row,
    lane_ids, malformed, nonce_of, read_lanes, read_open_slots, row_nonce, signed_in_slots,
};
use crate::db::{Db, Tx};
use crate::dialect::Many;
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Bytes, ColumnType::Int, ColumnType::Text, RowsSql};
use crate::rows::{execute_rows, expect_rows, fetch_rows};
use crate::signer_head::{SignerHead, keep_signer_head};
use crate::transact;

/// All that is to be sent from some lanes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneWork {
    pub lanes: Vec<LaneRow>,
    /// The first of each lane that may be tried now, in their order. None of a lane that is stopped.
    pub due: Vec<JobRow>,
    /// As many of them as were asked for.
    pub slots: Vec<OpenSlot>,
    /// The newest nonces of each lane that a slot has, whatever became of it: all that no settled block of a quorum has used, and a thousand
    /// before.
    pub held: HashMap<LaneId, BTreeSet<u64>>,
}

/// A slot to be written down, with its first attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSlot {
    pub id: SlotId,
    pub lane: LaneId,
    pub nonce: Option<u64>,
    /// The chain's height now.
    pub since: u64,
    /// With their versions: if one has changed, nothing is written in its lane.
    pub jobs: Vec<(JobId, i64)>,
    pub kind: AttemptKind,
    pub payload: Vec<u8>,
    /// Bitcoin: what it spends.
    pub coins: Option<Reserved>,
    /// EVM: the slot whose nonce it takes, and whose that is by the signer's log. Nothing was signed for that slot; its jobs wait for another nonce.
    pub instead: Option<(SlotId, SignedAs)>,
}

/// One more attempt in a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewAttempt {
    pub lane: LaneId,
    pub slot: SlotId,
    pub number: u32,
    pub kind: AttemptKind,
    pub payload: Vec<u8>,
    /// Bitcoin: what it spends beyond what the slot has, which may be nothing.
    pub coins: Option<Reserved>,
}

/// A job that gets no slot now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutOff {
    pub lane: LaneId,
    pub job: JobId,
    pub version: i64,
    /// It never will.
    pub over: bool,
    pub words: String,
    /// What its history has instead: figures, where the words must always be the same.
    pub history: Option<String>,
    /// When it is tried again.
    pub due: Timestamp,
    /// Whether it counts as a try.
    pub tried: bool,
    /// Its wallet has too little.
    pub short: bool,
}

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenedSlots {
    pub slots: BTreeSet<SlotId>,
    /// Slots with one more attempt.
    pub attempts: BTreeSet<SlotId>,
}

/// What the signer said to an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedAttempt {
    pub lane: LaneId,
    pub slot: SlotId,
    pub number: u32,
    pub answer: SignedAnswer,
    /// Bitcoin: what was signed, for the wallet.
    pub spend: Option<Spend>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignedAnswer {
    Signed {
        bytes: Vec<u8>,
        hash: Hash,
    },
    /// Nothing was ever signed under its jobs' numbers by this refusal or before it.
    Refused {
        words: String,
        /// Whether it counts as a try.
        counts: bool,
    },
    /// Something was signed for it that this database does not know.
    SignedBefore {
        words: String,
    },
    /// EVM: its nonce was signed for another job, of which this database does not say so. Nothing was signed for this one.
    Held {
        words: String,
        by: SignedAs,
    },
    /// It is asked for again, as it is.
    Later,
}

/// A slot that is used up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormerSlot {
    /// Whose nonce it is: of a withdrawal the job before may have had another wallet.
    pub lane: LaneRow,
    pub nonce: Option<u64>,
    /// What was first signed for it.
    pub payload: Vec<u8>,
    /// What was in it, as the signer knows it.
    pub jobs: Vec<SignedAs>,
}

/// What people have not halted. A stopped lane or group signs nothing. Where a chain or a coin is suspended, or the group that would be paid is stopped,
/// nothing is paid, and a slot may still be cancelled: that pays nobody, and keeps a payment from going out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sendable {
    /// Whether each slot may pay.
    slots: HashMap<SlotId, bool>,
}

impl Sendable {
    /// Whether an attempt of the slot may be signed, and told to nodes that have not heard of it.
    pub fn lets(&self, slot: SlotId, kind: AttemptKind) -> bool {
        self.lets_out(slot, kind == AttemptKind::Pay)
    }

    fn lets_out(&self, slot: SlotId, pays: bool) -> bool {
        self.slots.get(&slot).is_some_and(|may_pay| *may_pay || !pays)
    }
}

/// What nodes were told of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToldAttempt {
    pub lane: LaneId,
    pub slot: SlotId,
    pub number: u32,
    pub said: String,
}

statements! {
    /// Of all lanes of the lane's group, which on Bitcoin pay with the same coins.
    READ_WAITING_AMOUNTS = "SELECT j.id, j.amount_raw, j.most_fee_raw FROM outbound_lanes o
            JOIN outbound_lanes l ON l.chain_id = o.chain_id AND l.wallet_group_id = o.wallet_group_id
            JOIN outbound_jobs j ON j.chain_id = l.chain_id AND j.lane_id = l.id AND j.waiting
        WHERE o.id = $1";
    /// What would go to a wallet of a group that is stopped waits: whoever has stolen its key would have the coins as soon as they come.
    READ_DUE_JOBS(JOB) = "SELECT {columns} FROM outbound_lanes l JOIN LATERAL (SELECT i.* FROM outbound_jobs i
                JOIN asset_on_chain k ON k.id = i.listing_id AND k.status = 'active' JOIN assets a ON a.id = k.asset_id AND a.status = 'active'
            WHERE i.chain_id = l.chain_id AND i.lane_id = l.id AND i.waiting AND i.due_at <= $2
                AND NOT EXISTS (SELECT 1 FROM wallet_groups o WHERE o.name = i.owner_group AND o.outbound_stopped IS NOT NULL)
            ORDER BY i.priority, i.id LIMIT $3) j ON TRUE JOIN wallet_groups g ON g.id = l.wallet_group_id
        WHERE l.id {in $1} AND l.stopped IS NULL AND g.outbound_stopped IS NULL ORDER BY j.lane_id, j.priority, j.id"
        | "SELECT {columns} FROM outbound_lanes l CROSS JOIN outbound_jobs j ON j.id IN (SELECT i.id FROM outbound_jobs i
                JOIN asset_on_chain k ON k.id = i.listing_id AND k.status = 'active' JOIN assets a ON a.id = k.asset_id AND a.status = 'active'
            WHERE i.chain_id = l.chain_id AND i.lane_id = l.id AND i.waiting AND i.due_at <= $2
                AND NOT EXISTS (SELECT 1 FROM wallet_groups o WHERE o.name = i.owner_group AND o.outbound_stopped IS NOT NULL)
            ORDER BY i.priority, i.id LIMIT $3) JOIN wallet_groups g ON g.id = l.wallet_group_id
        WHERE l.id {in $1} AND l.stopped IS NULL AND g.outbound_stopped IS NULL ORDER BY j.lane_id, j.priority, j.id";
    /// One text for each lane: a thousand rows of each would cost more than all the rest of a round.
    READ_NONCES = "SELECT l.id, COALESCE((SELECT STRING_AGG(s.nonce::TEXT, ' ') FROM outbound_slots s WHERE s.lane_id = l.id
            AND s.nonce >= COALESCE(l.known_nonce, 1000) - 1000 AND s.state <> 'released' AND s.nonce IS NOT NULL), '')
        FROM outbound_lanes l WHERE l.id {in $1}"
        | "SELECT l.id, COALESCE((SELECT GROUP_CONCAT(s.nonce, ' ') FROM outbound_slots s WHERE s.lane_id = l.id
            AND s.nonce >= COALESCE(l.known_nonce, 1000) - 1000 AND s.state <> 'released' AND s.nonce IS NOT NULL), '')
        FROM outbound_lanes l WHERE l.id {in $1}";
    /// Whether each lane may send: read in the transaction that takes slots, never before. While another program's transaction may still be mined, nobody
    /// knows which nonce is free.
    READ_SENDING = "SELECT l.id FROM outbound_lanes l JOIN chains c ON c.id = l.chain_id JOIN wallet_groups g ON g.id = l.wallet_group_id
        WHERE l.id {in $1} AND l.stopped IS NULL AND g.outbound_stopped IS NULL AND c.status = 'active'
            AND NOT (c.kind = 'evm' AND EXISTS (SELECT 1 FROM outbound_slots s WHERE s.lane_id = l.id AND s.state = 'open' AND s.imported))";
    /// Those of these open slots whose lanes and groups send, and whether they may pay: their chain and the coins of all their jobs are active, and none
    /// of them pays to a wallet of a group that is stopped.
    READ_SENDABLE = "SELECT s.id, c.status = 'active' AND NOT EXISTS (SELECT 1 FROM outbound_slot_jobs k JOIN outbound_jobs j ON j.id = k.job_id
                JOIN asset_on_chain i ON i.id = j.listing_id JOIN assets a ON a.id = i.asset_id
            WHERE k.slot_id = s.id AND (i.status <> 'active' OR a.status <> 'active'
                OR EXISTS (SELECT 1 FROM wallet_groups o WHERE o.name = j.owner_group AND o.outbound_stopped IS NOT NULL)))
        FROM outbound_slots s JOIN outbound_lanes l ON l.id = s.lane_id JOIN chains c ON c.id = l.chain_id
            JOIN wallet_groups g ON g.id = l.wallet_group_id
        WHERE s.id {in $1} AND s.state = 'open' AND l.stopped IS NULL AND g.outbound_stopped IS NULL";
}

static INSERT_SLOTS: RowsSql = RowsSql::new(
    "INSERT_SLOTS",
    "INSERT INTO outbound_slots (id, lane_id, nonce, since_height, state, reason, holder, created_at, updated_at)
     SELECT r.id, r.lane_id, r.nonce, r.since_height, 'open', '', r.holder, r.at, r.at FROM {rows}",
    &[("id", Int), ("lane_id", Int), ("nonce", Int), ("since_height", Int), ("holder", Text), ("at", Int)],
);

/// Whose the nonces of slots are for which nothing was signed. By their ids: the addition hides that there is an index of all that are open.
static NAME_HOLDERS: RowsSql = RowsSql::new(
    "NAME_HOLDERS",
    "UPDATE outbound_slots SET holder = r.holder, updated_at = r.at
     FROM {rows} WHERE outbound_slots.id = r.id AND outbound_slots.state || '' = 'open'
         AND NOT EXISTS (SELECT 1 FROM outbound_attempts a WHERE a.slot_id = r.id AND a.signed IS NOT NULL)",
    &[("id", Int), ("holder", Text), ("at", Int)],
);

static INSERT_SLOT_JOBS: RowsSql = RowsSql::new(
    "INSERT_SLOT_JOBS",
    "INSERT INTO outbound_slot_jobs (slot_id, job_id, round) SELECT r.slot_id, r.job_id, r.round FROM {rows}",
    &[("slot_id", Int), ("job_id", Int), ("round", Int)],
);

static INSERT_ATTEMPTS: RowsSql = RowsSql::new(
    "INSERT_ATTEMPTS",
    "INSERT INTO outbound_attempts (slot_id, number, kind, cancel_id, payload, signed, tx_hash, refused, told_at, said, mined_height,
         mined_block, paid, fee_raw, created_at, updated_at)
     SELECT r.slot_id, r.number, r.kind, r.cancel_id, r.payload, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, r.at, r.at
     FROM {rows}",
    &[("slot_id", Int), ("number", Int), ("kind", Text), ("cancel_id", Int), ("payload", Bytes), ("at", Int)],
);

static KNOW_NONCES: RowsSql = RowsSql::new(
    "KNOW_NONCES",
    "UPDATE outbound_lanes SET known_nonce = r.nonce, updated_at = r.at FROM {rows} WHERE outbound_lanes.id = r.id",
    &[("id", Int), ("nonce", Int), ("at", Int)],
);

/// What is signed stays signed: the same bytes again change nothing.
static SIGN_ATTEMPTS: RowsSql = RowsSql::new(
    "SIGN_ATTEMPTS",
    "UPDATE outbound_attempts SET signed = r.bytes, tx_hash = r.tx_hash, refused = NULL, updated_at = r.at
     FROM {rows} WHERE outbound_attempts.slot_id = r.slot_id AND outbound_attempts.number = r.number
         AND (outbound_attempts.signed IS NULL OR outbound_attempts.signed = r.bytes)",
    &[("slot_id", Int), ("number", Int), ("bytes", Bytes), ("tx_hash", Bytes), ("at", Int)],
);

static REFUSE_ATTEMPTS: RowsSql = RowsSql::new(
    "REFUSE_ATTEMPTS",
    "UPDATE outbound_attempts SET refused = r.words, updated_at = r.at
     FROM {rows} WHERE outbound_attempts.slot_id = r.slot_id AND outbound_attempts.number = r.number
         AND outbound_attempts.signed IS NULL",
    &[("slot_id", Int), ("number", Int), ("words", Text), ("at", Int)],
);

static RELEASE_SLOTS: RowsSql = RowsSql::new(
    "RELEASE_SLOTS",
    "UPDATE outbound_slots SET state = 'released', reason = r.words, updated_at = r.at
     FROM {rows} WHERE outbound_slots.id = r.id AND outbound_slots.state || '' = 'open'
         AND NOT EXISTS (SELECT 1 FROM outbound_attempts a WHERE a.slot_id = r.id AND a.signed IS NOT NULL)",
    &[("id", Int), ("words", Text), ("at", Int)],
);

static TELL_ATTEMPTS: RowsSql = RowsSql::new(
    "TELL_ATTEMPTS",
    "UPDATE outbound_attempts SET told_at = r.at, said = r.said, updated_at = r.at
     FROM {rows} WHERE outbound_attempts.slot_id = r.slot_id AND outbound_attempts.number = r.number
         AND outbound_attempts.signed IS NOT NULL",
    &[("slot_id", Int), ("number", Int), ("said", Text), ("at", Int)],
);

/// The slot before the one that a job is in, which is used up, and what was first signed there. Of a withdrawal it may have been another job's.
static READ_FORMER: RowsSql = RowsSql::new(
    "READ_FORMER",
    "SELECT DISTINCT s.id, s.lane_id, s.nonce, a.payload FROM {rows} {join} outbound_jobs j ON j.id = r.id
         {join} outbound_jobs o ON o.id = j.id OR o.withdrawal_id = j.withdrawal_id
         {join} outbound_slot_jobs k ON k.job_id = o.id AND k.round = j.rounds - 2 {join} outbound_slots s ON s.id = k.slot_id
         {join} outbound_attempts a ON a.slot_id = s.id AND a.number = (SELECT MIN(f.number) FROM outbound_attempts f
             WHERE f.slot_id = s.id AND f.signed IS NOT NULL)
     WHERE s.state = 'settled'",
    &[("id", Int)],
);

/// How many nonces of each lane from one on and below another are slots of ours.
static COUNT_NONCES: RowsSql = RowsSql::new(
    "COUNT_NONCES",
    "SELECT r.lane_id, COUNT(s.id) FROM {rows} LEFT JOIN outbound_slots s ON s.lane_id = r.lane_id AND s.nonce >= r.from_nonce
         AND s.nonce < r.to_nonce AND s.state <> 'released' AND s.nonce IS NOT NULL
     GROUP BY r.lane_id",
    &[("lane_id", Int), ("from_nonce", Int), ("to_nonce", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 11] = [
    &INSERT_SLOTS,
    &NAME_HOLDERS,
    &INSERT_SLOT_JOBS,
    &INSERT_ATTEMPTS,
    &KNOW_NONCES,
    &SIGN_ATTEMPTS,
    &REFUSE_ATTEMPTS,
    &RELEASE_SLOTS,
    &TELL_ATTEMPTS,
    &READ_FORMER,
    &COUNT_NONCES,
];

impl Db {
    /// What is to be done in these lanes: so many jobs of each at most. Where each slot is one job's, only as many as the slots that wait for
    /// a block leave room for.
    pub async fn lane_work(
        &self,
        lanes: &[LaneId],
        most: i64,
        which: SlotsRead,
        now: Timestamp,
    ) -> Result<LaneWork, StoreError> {
        let tx = &mut self.read().await?;
        let ids = lane_ids(lanes);
        let slots = read_open_slots(tx, lanes, which).await?;
        let most = most.saturating_sub(if which == SlotsRead::Unmined { fewest_of_a_lane(lanes, &slots) } else { 0 });
        let due = if most > 0 {
            fetch_all!(tx, READ_DUE_JOBS => JobColumns, ids.clone(), now.micros(), most)?
        } else {
            Vec::new()
        };
        let mut held: HashMap<LaneId, BTreeSet<u64>> = HashMap::new();
        for (lane, nonces) in fetch_all!(tx, READ_NONCES => (i64, String), ids.clone())? {
            let nonces = nonces.split_whitespace().map(|nonce| nonce.parse::<u64>().map_err(|_| malformed("nonce")));
            let nonces = nonces.collect::<Result<BTreeSet<u64>, StoreError>>()?;
            if !nonces.is_empty() {
                held.insert(LaneId(lane), nonces);
            }
        }
        Ok(LaneWork {
            lanes: read_lanes(tx, lanes).await?,
            due: due.into_iter().map(job_row).collect::<Result<_, _>>()?,
            slots,
            held,
        })
    }

    /// What each job that waits for a slot of a lane, or of another of its group, takes at most, also those that rest.
    pub async fn waiting_amounts(&self, lane: LaneId) -> Result<Vec<(JobId, RawAmount)>, StoreError> {
        let rows = fetch_all!(&mut self.read().await?, READ_WAITING_AMOUNTS => (i64, String, String), lane.0)?;
        let amount = |text: String| text.parse::<RawAmount>().map_err(|_| malformed("amount"));
        let takes = |(id, pays, fee): (i64, String, String)| {
            let takes = amount(pays)?.checked_add(amount(fee)?).ok_or_else(|| malformed("amount"))?;
            Ok((JobId::new(id).map_err(|_| malformed("job"))?, takes))
        };
        rows.into_iter().map(takes).collect()
    }

    /// Those lanes of which more nonces were used than slots of ours explain: from, up to, and how many slots there are.
    pub async fn unexplained_nonces(&self, asked: &[(LaneId, u64, u64)]) -> Result<Vec<(LaneId, u64)>, StoreError> {
        let asked: Vec<_> = asked.iter().filter(|(_, from, to)| from < to).collect();
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        let columns = vec![
            Column::Ints(asked.iter().map(|(lane, ..)| lane.0).collect()),
            Column::Ints(asked.iter().map(|(_, from, _)| row_nonce(*from)).collect::<Result<_, _>>()?),
            Column::Ints(asked.iter().map(|(.., to)| row_nonce(*to)).collect::<Result<_, _>>()?),
        ];
        let counts: Vec<(i64, i64)> = fetch_rows(&mut self.read().await?, &COUNT_NONCES, columns).await?;
        let counts: HashMap<LaneId, u64> = counts
            .into_iter()
            .map(|(lane, count)| Ok((LaneId(lane), nonce_of(count)?)))
            .collect::<Result<_, StoreError>>()?;
        let missing = asked.into_iter().filter_map(|(lane, from, to)| {
            let missing = (to - from).saturating_sub(counts.get(lane).copied().unwrap_or(0));
            (missing > 0).then_some((*lane, missing))
        });
        Ok(missing.collect())
    }

    /// The slots that these jobs were in before those that they are in now, and that are used up.
    pub async fn former_slots(&self, jobs: &[JobId]) -> Result<Vec<FormerSlot>, StoreError> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let tx = &mut self.read().await?;
        let columns = vec![Column::Ints(jobs.iter().map(|job| job.number()).collect())];
        let rows: Vec<(i64, i64, Option<i64>, Vec<u8>)> = fetch_rows(tx, &READ_FORMER, columns).await?;
        let lanes: BTreeSet<LaneId> = rows.iter().map(|row| LaneId(row.1)).collect();
        let lanes = read_lanes(tx, &lanes.into_iter().collect::<Vec<_>>()).await?;
        let lanes: HashMap<LaneId, LaneRow> = lanes.into_iter().map(|lane| (lane.id, lane)).collect();
        let mut in_slots = signed_in_slots(tx, &rows.iter().map(|row| SlotId(row.0)).collect::<Vec<_>>()).await?;
        let former = |(slot, lane, nonce, payload): (i64, i64, Option<i64>, Vec<u8>)| {
            let jobs = in_slots.remove(&SlotId(slot)).unwrap_or_default();
            let lane = lanes.get(&LaneId(lane)).cloned().ok_or_else(|| malformed("lane"))?;
            Ok(FormerSlot { lane, nonce: nonce.map(nonce_of).transpose()?, payload, jobs })
        };
        rows.into_iter().map(former).collect()
    }

    /// Writes slots and attempts down before anything is signed, and puts jobs off that get none. `known` is what a quorum has mined of each
    /// lane's nonces. Lanes that another has by now, and those with a job that has changed meanwhile, are left out.
    pub async fn open_slots(
        &self,
        held: &[HeldLane],
        slots: &[NewSlot],
        attempts: &[NewAttempt],
        put_off: &[PutOff],
        known: &HashMap<LaneId, u64>,
        at: Timestamp,
    ) -> Result<OpenedSlots, StoreError> {
        if slots.is_empty() && attempts.is_empty() && put_off.is_empty() {
            return Ok(OpenedSlots::default());
        }
        transact!(self, tx => {
            let still = lock_held(tx, held).await?;
            let (mut rows_of_jobs, mut changes) = put_off_changes(tx, &still, put_off).await?;
            let mut opened = OpenedSlots::default();
            let (new, slotted, more) = new_slots(tx, &still, slots, at).await?;
            rows_of_jobs.extend(slotted);
            opened.slots.extend(new.iter().map(|slot| slot.id));
            changes.extend(more);
            let mut rows: Vec<(SlotId, u32, AttemptKind, &[u8])> =
                new.iter().map(|slot| (slot.id, 1, slot.kind, slot.payload.as_slice())).collect();
            let (further, raised, bumped) = new_attempts(tx, &still, attempts, at).await?;
            rows_of_jobs.extend(raised);
            opened.attempts.extend(further.iter().map(|one| one.slot));
            rows.extend(further.iter().map(|one| (one.slot, one.number, one.kind, one.payload.as_slice())));
            changes.extend(bumped);
            write_attempts(tx, &rows, at).await?;
            let known: Vec<(LaneId, u64)> =
                known.iter().filter(|(lane, _)| still.contains(lane)).map(|(lane, nonce)| (*lane, *nonce)).collect();
            know_nonces(tx, &known, at).await?;
            advance_known(tx, rows_of_jobs, changes, at).await?;
            Ok(opened)
        })
    }

    /// What people have not halted of these slots.
    pub async fn sendable(&self, slots: &[SlotId]) -> Result<Sendable, StoreError> {
        if slots.is_empty() {
            return Ok(Sendable::default());
        }
        read_sendable(&mut self.read().await?, slots).await
    }

    /// Keeps what the signer said, with the head of its log. Bytes are kept before any node sees them. Says of which slots nodes may be told: those
    /// that have not ended meanwhile and whose lanes are still held, but of no payment that somebody has given up or halted meanwhile.
    pub async fn keep_signed(
        &self,
        held: &[HeldLane],
        answers: &[SignedAttempt],
        head: Option<(&str, &SignerHead)>,
        at: Timestamp,
    ) -> Result<BTreeSet<SlotId>, StoreError> {
        transact!(self, tx => {
            let still = lock_held(tx, held).await?;
            let mine: Vec<&SignedAttempt> = answers.iter().filter(|one| still.contains(&one.lane)).collect();
            keep_bytes(tx, &mine, at).await?;
            keep_holders(tx, &mine, at).await?;
            let named: Vec<SlotId> = mine.iter().map(|one| one.slot).collect();
            let slots = read_slot_standings(tx, &named).await?;
            let sendable = read_sendable(tx, &named).await?;
            let (mut changes, mut open) = (Vec::new(), BTreeSet::new());
            let mut released: Vec<(SlotId, &str)> = Vec::new();
            for one in mine {
                let Some(slot) = slots.get(&one.slot) else { continue };
                let pays = |slot: &SlotStanding| {
                    slot.attempts.iter().any(|attempt| attempt.number == one.number && attempt.pays)
                };
                let given_up = pays(slot) && slot.jobs.iter().any(|job| job.give_up);
                if !given_up && sendable.lets_out(slot.id, pays(slot)) {
                    open.insert(slot.id);
                }
                let signing = slot.jobs.iter().filter(|job| job.state == JobState::Signing);
                if let (SignedAnswer::Signed { .. }, Some(made)) = (&one.answer, &one.spend) {
                    let before = slot.attempts.iter().any(|other| other.number != one.number && other.signed);
                    spend(tx, slot.id, made, before, at).await?;
                }
                match &one.answer {
                    SignedAnswer::Signed { .. } if pays(slot) => {
                        changes.extend(signing.map(|job| Change::new(job.id, vec![JobEvent::Signed], "is sent to the nodes")));
                    }
                    SignedAnswer::Signed { .. } => {}
                    // Of a slot in which something was signed, only this attempt is over.
                    SignedAnswer::Refused { .. } if slot.is_signed() => {}
                    SignedAnswer::Refused { words, counts } => {
                        released.push((slot.id, words));
                        changes.extend(signing.map(|job| refused(job, words, *counts, at)));
                    }
                    SignedAnswer::SignedBefore { words } | SignedAnswer::Held { words, .. } => {
                        stop(tx, one.lane, words, at).await?;
                    }
                    SignedAnswer::Later => {}
                }
            }
            release(tx, &released, at).await?;
            advance_known(tx, jobs_in(slots.into_values()), changes, at).await?;
            // Last, because every sender of the signer waits for this one row.
            if let Some((name, head)) = head {
                keep_signer_head(tx, name, head, at).await?;
            }
            Ok(open)
        })
    }

    /// Nodes were told. What they said is kept for people, and decides nothing.
    pub async fn keep_told(&self, held: &[HeldLane], told: &[ToldAttempt], at: Timestamp) -> Result<(), StoreError> {
        if told.is_empty() {
            return Ok(());
        }
        transact!(self, tx => {
            let still = lock_held(tx, held).await?;
            let mine: Vec<&ToldAttempt> = told.iter().filter(|one| still.contains(&one.lane)).collect();
            let columns = vec![
                Column::Ints(mine.iter().map(|one| one.slot.0).collect()),
                Column::Ints(mine.iter().map(|one| one.number.into()).collect()),
                Column::Texts(mine.iter().map(|one| one.said.as_str()).collect()),
                Column::Ints(vec![at.micros(); mine.len()]),
            ];
            if !mine.is_empty() {
                expect_rows(execute_rows(tx, &TELL_ATTEMPTS, columns).await?, mine.len(), "attempts")?;
            }
            let said: HashMap<SlotId, &str> = mine.iter().map(|one| (one.slot, one.said.as_str())).collect();
            let slotted = read_slotted(tx, &said.keys().copied().collect::<Vec<_>>()).await?;
            let rows: Standings = slotted.into_iter().map(|(_, job)| (job.id, job)).collect();
            let sent = rows.values().filter(|job| job.state == JobState::Broadcasting);
            let told = |job: &JobStanding| {
                let said = said.get(&job.slot?)?;
                Some(Change::new(job.id, vec![JobEvent::Told], format!("waits for a block; {said}")))
            };
            let changes = sent.filter_map(told).collect();
            advance_known(tx, rows, changes, at).await
        })
    }
}

/// How many slots the lane has that has the fewest of them.
fn fewest_of_a_lane(lanes: &[LaneId], slots: &[OpenSlot]) -> i64 {
    let mut counts: HashMap<LaneId, i64> = lanes.iter().map(|lane| (*lane, 0)).collect();
    for slot in slots {
        *counts.entry(slot.lane).or_default() += 1;
    }
    counts.into_values().min().unwrap_or(0)
}

/// Each job counts its own tries: one that was tried once does not end with one that was tried often.
fn refused(job: &JobStanding, words: &str, counts: bool, at: Timestamp) -> Change {
    let tries = job.tries.saturating_add(u32::from(counts));
    let event = if tries >= MOST_TRIES || job.give_up { JobEvent::Never } else { JobEvent::NotNow };
    let mut change = Change::new(job.id, vec![event], format!("the signer refused: {words}"));
    let due = Some(at.plus_micros(pause_micros(tries)));
    change.set = Set { due, tried: counts, unslotted: true, ..Set::default() };
    change
}

/// What brings a job that waits to be picked.
fn picked(job: &JobStanding) -> Vec<JobEvent> {
    match job.state {
        JobState::FailedRetryable => vec![JobEvent::Due, JobEvent::Picked],
        _ => vec![JobEvent::Picked],
    }
}

fn is_waiting(job: &JobStanding) -> bool {
    matches!(job.state, JobState::Queued | JobState::FailedRetryable)
}

async fn put_off_changes(
    tx: &mut Tx,
    still: &BTreeSet<LaneId>,
    put_off: &[PutOff],
) -> Result<(Standings, Vec<Change>), StoreError> {
    let mine: Vec<&PutOff> = put_off.iter().filter(|one| still.contains(&one.lane)).collect();
    let rows = read_standings(tx, &mine.iter().map(|one| one.job).collect::<Vec<_>>()).await?;
    let change = |one: &&PutOff| {
        let job = rows.get(&one.job).filter(|job| job.version == one.version && is_waiting(job))?;
        let mut events = picked(job);
        events.push(if one.over { JobEvent::Never } else { JobEvent::NotNow });
        let mut change = Change::new(job.id, events, one.words.clone());
        change.history.clone_from(&one.history);
        change.set = Set { due: Some(one.due), tried: one.tried, short: one.over && one.short, ..Set::default() };
        Some(change)
    };
    let changes = mine.iter().filter_map(change).collect();
    Ok((rows, changes))
}

/// Those slots that may be opened, and what becomes of their jobs. A lane of which one job has changed gets none: the nonces behind it
/// would leave a gap.
async fn new_slots<'a>(
    tx: &mut Tx,
    still: &BTreeSet<LaneId>,
    slots: &'a [NewSlot],
    at: Timestamp,
) -> Result<(Vec<&'a NewSlot>, Standings, Vec<Change>), StoreError> {
    let lanes: Vec<LaneId> = slots.iter().map(|slot| slot.lane).collect::<BTreeSet<_>>().into_iter().collect();
    if lanes.is_empty() {
        return Ok((Vec::new(), Standings::new(), Vec::new()));
    }
    let sending = fetch_all!(tx, READ_SENDING => (i64,), lane_ids(&lanes))?;
    let mut open: BTreeSet<LaneId> =
        sending.into_iter().map(|(lane,)| LaneId(lane)).filter(|lane| still.contains(lane)).collect();
    let wanted: Vec<JobId> = slots.iter().flat_map(|slot| slot.jobs.iter().map(|(job, _)| *job)).collect();
    let rows = read_allowed(tx, &wanted).await?;
    for slot in slots {
        let fresh = |(id, version): &(JobId, i64)| {
            rows.get(id).is_some_and(|job| job.version == *version && job.lane == slot.lane && is_waiting(job))
        };
        if !slot.jobs.iter().all(fresh) {
            open.remove(&slot.lane);
        }
    }
    let (yielded, back) = yield_nonces(tx, &mut open, slots, at).await?;
    let mut new: Vec<&NewSlot> = Vec::new();
    for slot in slots.iter().filter(|slot| open.contains(&slot.lane)) {
        if reserved(tx, slot.id, slot.coins.as_ref(), at).await? {
            new.push(slot);
        }
    }
    let mut changes = back;
    let mut links: Vec<(SlotId, &JobStanding)> = Vec::new();
    for slot in &new {
        for job in slot.jobs.iter().filter_map(|(id, _)| rows.get(id)) {
            let mut events = picked(job);
            events.extend([JobEvent::Checked, JobEvent::Slotted]);
            let mut change = Change::new(job.id, events, "waits for its signature");
            change.set = Set { slot: Some(slot.id), slotted: true, ..Set::default() };
            changes.push(change);
            links.push((slot.id, job));
        }
    }
    write_slots(tx, &new, &links, at).await?;
    let mut rows = rows;
    rows.extend(yielded);
    Ok((new, rows, changes))
}

/// Slots whose nonces the signer has signed for others go, and their jobs wait for other nonces. That is no try. A lane of which something was signed for
/// such a slot meanwhile gets no slots.
async fn yield_nonces(
    tx: &mut Tx,
    open: &mut BTreeSet<LaneId>,
    slots: &[NewSlot],
    at: Timestamp,
) -> Result<(Standings, Vec<Change>), StoreError> {
    let instead = |slot: &NewSlot| slot.instead.map(|(before, by)| (slot.lane, before, by));
    let named: Vec<(LaneId, SlotId, SignedAs)> = slots.iter().filter_map(instead).collect();
    if named.is_empty() {
        return Ok((Standings::new(), Vec::new()));
    }
    let mut standings =
        read_slot_standings(tx, &named.iter().map(|(_, before, _)| *before).collect::<Vec<_>>()).await?;
    for (lane, before, _) in &named {
        if standings.get(before).is_none_or(|slot| slot.lane != *lane || slot.is_signed()) {
            open.remove(lane);
        }
    }
    let mut changes = Vec::new();
    let mut over: Vec<(SlotId, String)> = Vec::new();
    standings.retain(|_, slot| open.contains(&slot.lane));
    for (_, before, by) in &named {
        let Some(slot) = standings.get(before) else { continue };
        let words = format!("the signer has signed its nonce for {by}, which a cancel takes now");
        for job in slot.jobs.iter().filter(|job| job.state == JobState::Signing && job.slot == Some(slot.id)) {
            let event = if job.give_up { JobEvent::Never } else { JobEvent::NotNow };
            let mut change = Change::new(job.id, vec![event], words.clone());
            change.set = Set { due: Some(at), unslotted: true, ..Set::default() };
            changes.push(change);
        }
        over.push((slot.id, words));
    }
    release(tx, &over.iter().map(|(slot, words)| (*slot, words.as_str())).collect::<Vec<_>>(), at).await?;
    Ok((jobs_in(standings.into_values()), changes))
}

/// Whether what is to be spent is the slot's own.
async fn reserved(tx: &mut Tx, slot: SlotId, coins: Option<&Reserved>, at: Timestamp) -> Result<bool, StoreError> {
    match coins {
        Some(coins) => reserve(tx, slot, coins, at).await,
        None => Ok(true),
    }
}

/// The slots, and which jobs they are for.
async fn write_slots(
    tx: &mut Tx,
    slots: &[&NewSlot],
    links: &[(SlotId, &JobStanding)],
    at: Timestamp,
) -> Result<(), StoreError> {
    if slots.is_empty() {
        return Ok(());
    }
    let height = |height: u64| i64::try_from(height).map_err(|_| malformed("height"));
    let columns = vec![
        Column::Ints(slots.iter().map(|slot| slot.id.0).collect()),
        Column::Ints(slots.iter().map(|slot| slot.lane.0).collect()),
        Column::OptionalInts(slots.iter().map(|slot| slot.nonce.map(row_nonce).transpose()).collect::<Result<_, _>>()?),
        Column::Ints(slots.iter().map(|slot| height(slot.since)).collect::<Result<_, _>>()?),
        Column::OptionalStrings(slots.iter().map(|slot| slot.instead.map(|(_, by)| by.to_string())).collect()),
        Column::Ints(vec![at.micros(); slots.len()]),
    ];
    expect_rows(execute_rows(tx, &INSERT_SLOTS, columns).await?, slots.len(), "slots")?;
    if links.is_empty() {
        return Ok(());
    }
    let columns = vec![
        Column::Ints(links.iter().map(|(slot, _)| slot.0).collect()),
        Column::Ints(links.iter().map(|(_, job)| job.id.number()).collect()),
        Column::Ints(links.iter().map(|(_, job)| job.rounds.into()).collect()),
    ];
    expect_rows(execute_rows(tx, &INSERT_SLOT_JOBS, columns).await?, links.len(), "jobs of slots")
}

async fn read_sendable(tx: &mut Tx, slots: &[SlotId]) -> Result<Sendable, StoreError> {
    if slots.is_empty() {
        return Ok(Sendable::default());
    }
    let ids: Many<i64> = Many(slots.iter().map(|slot| slot.0).collect());
    let rows = fetch_all!(tx, READ_SENDABLE => (i64, bool), ids)?;
    Ok(Sendable { slots: rows.into_iter().map(|(slot, may_pay)| (SlotId(slot), may_pay)).collect() })
}

/// Those attempts that may be added: their slots are open, nothing of them is mined, nobody has halted them, and the number is the next one.
async fn new_attempts<'a>(
    tx: &mut Tx,
    still: &BTreeSet<LaneId>,
    attempts: &'a [NewAttempt],
    at: Timestamp,
) -> Result<(Vec<&'a NewAttempt>, Standings, Vec<Change>), StoreError> {
    let mine: Vec<&NewAttempt> = attempts.iter().filter(|one| still.contains(&one.lane)).collect();
    if mine.is_empty() {
        return Ok((Vec::new(), Standings::new(), Vec::new()));
    }
    let named: Vec<SlotId> = mine.iter().map(|one| one.slot).collect();
    let open = read_slot_standings(tx, &named).await?;
    let sendable = read_sendable(tx, &named).await?;
    let mine = mine.into_iter().filter(|one| open.get(&one.slot).is_some_and(|slot| slot.lane == one.lane));
    let mine = mine.filter(|one| sendable.lets(one.slot, one.kind));
    let next = |slot: &SlotStanding| slot.attempts.last().map_or(1, |last| last.number.saturating_add(1));
    let fits =
        |one: &&NewAttempt| open.get(&one.slot).is_some_and(|slot| slot.mined().is_none() && next(slot) == one.number);
    let mut new = Vec::new();
    for one in mine.filter(fits) {
        if one.coins.is_some() && is_built_on(tx, one.slot, at).await? {
            continue;
        }
        if reserved(tx, one.slot, one.coins.as_ref(), at).await? {
            new.push(one);
        }
    }
    let asked = new.iter().filter_map(|one| open.get(&one.slot)).flat_map(|slot| &slot.jobs).filter(|job| job.bump);
    let bumped = |job: &JobStanding| {
        let mut change = Change::new(job.id, Vec::new(), "more is offered, as people wanted");
        change.set.bumped = true;
        change
    };
    let changes = asked.map(bumped).collect();
    Ok((new, jobs_in(open.into_values()), changes))
}

async fn write_attempts(
    tx: &mut Tx,
    rows: &[(SlotId, u32, AttemptKind, &[u8])],
    at: Timestamp,
) -> Result<(), StoreError> {
    if rows.is_empty() {
        return Ok(());
    }
    let cancel = |kind: AttemptKind| match kind {
        AttemptKind::Pay => None,
        AttemptKind::Cancel(number) => Some(number.number()),
    };
    let columns = vec![
        Column::Ints(rows.iter().map(|(slot, ..)| slot.0).collect()),
        Column::Ints(rows.iter().map(|(_, number, ..)| (*number).into()).collect()),
        Column::Texts(rows.iter().map(|(_, _, kind, _)| kind.as_str()).collect()),
        Column::OptionalInts(rows.iter().map(|(_, _, kind, _)| cancel(*kind)).collect()),
        Column::Bytes(rows.iter().map(|(.., payload)| payload.to_vec()).collect()),
        Column::Ints(vec![at.micros(); rows.len()]),
    ];
    expect_rows(execute_rows(tx, &INSERT_ATTEMPTS, columns).await?, rows.len(), "attempts")
}

async fn know_nonces(tx: &mut Tx, known: &[(LaneId, u64)], at: Timestamp) -> Result<(), StoreError> {
    if known.is_empty() {
        return Ok(());
    }
    let columns = vec![
        Column::Ints(known.iter().map(|(lane, _)| lane.0).collect()),
        Column::Ints(known.iter().map(|(_, nonce)| row_nonce(*nonce)).collect::<Result<_, _>>()?),
        Column::Ints(vec![at.micros(); known.len()]),
    ];
    expect_rows(execute_rows(tx, &KNOW_NONCES, columns).await?, known.len(), "lanes")
}

async fn keep_bytes(tx: &mut Tx, answers: &[&SignedAttempt], at: Timestamp) -> Result<(), StoreError> {
    let signed: Vec<(&SignedAttempt, &[u8], Hash)> = answers
        .iter()
        .filter_map(|one| match &one.answer {
            SignedAnswer::Signed { bytes, hash } => Some((*one, bytes.as_slice(), *hash)),
            SignedAnswer::Refused { .. }
            | SignedAnswer::SignedBefore { .. }
            | SignedAnswer::Held { .. }
            | SignedAnswer::Later => None,
        })
        .collect();
    if !signed.is_empty() {
        let columns = vec![
            Column::Ints(signed.iter().map(|(one, ..)| one.slot.0).collect()),
            Column::Ints(signed.iter().map(|(one, ..)| one.number.into()).collect()),
            Column::Bytes(signed.iter().map(|(_, bytes, _)| bytes.to_vec()).collect()),
            Column::Bytes(signed.iter().map(|(.., hash)| hash.0.to_vec()).collect()),
            Column::Ints(vec![at.micros(); signed.len()]),
        ];
        expect_rows(execute_rows(tx, &SIGN_ATTEMPTS, columns).await?, signed.len(), "signed attempts")?;
    }
    let refused: Vec<(&SignedAttempt, &str)> = answers
        .iter()
        .filter_map(|one| match &one.answer {
            SignedAnswer::Signed { .. } | SignedAnswer::Later => None,
            SignedAnswer::Refused { words, .. }
            | SignedAnswer::SignedBefore { words }
            | SignedAnswer::Held { words, .. } => Some((*one, words.as_str())),
        })
        .collect();
    if refused.is_empty() {
        return Ok(());
    }
    let columns = vec![
        Column::Ints(refused.iter().map(|(one, _)| one.slot.0).collect()),
        Column::Ints(refused.iter().map(|(one, _)| one.number.into()).collect()),
        Column::Texts(refused.iter().map(|(_, words)| *words).collect()),
        Column::Ints(vec![at.micros(); refused.len()]),
    ];
    execute_rows(tx, &REFUSE_ATTEMPTS, columns).await.map(|_| ())
}

async fn keep_holders(tx: &mut Tx, answers: &[&SignedAttempt], at: Timestamp) -> Result<(), StoreError> {
    let held = answers.iter().filter_map(|one| match &one.answer {
        SignedAnswer::Held { by, .. } => Some((one.slot, by.to_string())),
        SignedAnswer::Signed { .. }
        | SignedAnswer::Refused { .. }
        | SignedAnswer::SignedBefore { .. }
        | SignedAnswer::Later => None,
    });
    let held: Vec<(SlotId, String)> = held.collect();
    if held.is_empty() {
        return Ok(());
    }
    let columns = vec![
        Column::Ints(held.iter().map(|(slot, _)| slot.0).collect()),
        Column::Texts(held.iter().map(|(_, by)| by.as_str()).collect()),
        Column::Ints(vec![at.micros(); held.len()]),
    ];
    execute_rows(tx, &NAME_HOLDERS, columns).await.map(|_| ())
}

/// Slots for which nothing was ever signed. Their nonces are free again.
async fn release(tx: &mut Tx, slots: &[(SlotId, &str)], at: Timestamp) -> Result<(), StoreError> {
    if slots.is_empty() {
        return Ok(());
    }
    let columns = vec![
        Column::Ints(slots.iter().map(|(slot, _)| slot.0).collect()),
        Column::Texts(slots.iter().map(|(_, words)| *words).collect()),
        Column::Ints(vec![at.micros(); slots.len()]),
    ];
    expect_rows(execute_rows(tx, &RELEASE_SLOTS, columns).await?, slots.len(), "released slots")?;
    release_coins(tx, &slots.iter().map(|(slot, _)| *slot).collect::<Vec<_>>()).await
}
