//! Jobs and lanes for people, and what people may ask of a job.

use std::collections::HashMap;

use domain::operator::OperatorAction;
use domain::outbound::{JobEvent, JobKind, JobState, SlotWord, fate};
use domain::{Approval, ChainKind, Timestamp};

use super::advance::{Change, Set, advance};
use super::coins::release_coins;
use super::lane::{HeldLane, lock_held};
use super::standing::read_slotted;
use super::types::{
    JOB, JobColumns, JobId, JobRow, LANE, LaneColumns, LaneRow, OpenSlot, SlotColumns, SlotId, job_row, lane_ids,
    lane_row, malformed, read_jobs, read_slots,
};
use crate::db::{Db, Tx};
use crate::dialect::Many;
use crate::entry::ChainId;
use crate::error::StoreError;
use crate::operator::log::{DONE, NewLogLine, write};
use crate::transact;

/// Which jobs to list. What is left open lets all through.
#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    pub chain: Option<String>,
    pub state: Option<JobState>,
    pub lane: Option<String>,
}

/// A job, who pays it, and in which coin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownJob {
    pub job: JobRow,
    pub chain: String,
    pub asset: String,
    pub decimals: u8,
    pub from: String,
    /// Why nothing is sent from the wallet that pays it.
    pub lane_stopped: Option<String>,
    /// Why nothing is sent to the wallet of ours that it pays.
    pub payee_stopped: Option<String>,
}

/// A step of a job's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobStep {
    pub version: i64,
    pub state: String,
    pub reason: String,
    pub at: Timestamp,
}

/// A lane with what goes on in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownLane {
    pub lane: LaneRow,
    pub chain: String,
    pub waiting: u64,
    pub open: u64,
    /// Who has it, for what, and until when.
    pub held: Vec<(String, String, Timestamp)>,
}

/// What came of something that people asked of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobReply {
    Done,
    NoSuchJob,
    /// It is in this state, in which that cannot be done.
    NotNow(JobState),
    /// Nothing may replace its transaction: it spends users' coins and has no change to pay more from, or TRON has it, where no slot lets only one of two
    /// be mined.
    NeverReplaced,
    /// Whoever asked for the payment does not agree to it.
    Requester,
    /// The treasury file has switched off the key, or the person who has it.
    KeyOff,
}

impl JobReply {
    /// As the log of operators has it: `done`, or the code of why not.
    pub const fn outcome(&self) -> &'static str {
        match self {
            Self::Done => DONE,
            Self::NoSuchJob => "JOB_NOT_FOUND",
            Self::NotNow(_) | Self::NeverReplaced => "JOB_NOT_NOW",
            Self::Requester => "APPROVAL_BY_REQUESTER",
            Self::KeyOff => "APPROVAL_BAD",
        }
    }
}

/// What two people say of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobVerdict {
    /// It counts as paid.
    Paid,
    /// It was not paid, and is over.
    Unpaid,
    /// It was not paid, and is tried again.
    Again,
}

impl JobVerdict {
    /// As it is typed.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Paid => "paid",
            Self::Unpaid => "unpaid",
            Self::Again => "again",
        }
    }
}

/// Why a job that nobody could send in its time ended, wherever that was noticed.
const OVERDUE: &str = "its time is over, and nothing was sent";
/// The same, noticed by who would have sent it.
pub const TOO_LATE: &str = "its time was over before it could be paid";

statements! {
    /// The last two: another program has used it and nothing of it is in a block; and we have bytes that were signed for it.
    READ_SLOT_ENDED = "SELECT s.state = 'settled', COALESCE(l.stopped, g.outbound_stopped) IS NOT NULL, s.imported, NOT EXISTS (SELECT 1 FROM outbound_attempts a
            WHERE a.slot_id = s.id AND a.mined_height IS NOT NULL), EXISTS (SELECT 1 FROM outbound_attempts a
            WHERE a.slot_id = s.id AND a.signed IS NOT NULL)
        FROM outbound_slots s JOIN outbound_lanes l ON l.id = s.lane_id JOIN wallet_groups g ON g.id = l.wallet_group_id WHERE s.id = $1";
    /// Whether the chain's own books have the transaction of a slot in a block, which whoever watches the slot may not have seen yet.
    READ_IN_BOOKS = "SELECT e.id FROM outbound_slots s JOIN outbound_lanes l ON l.id = s.lane_id JOIN outbound_attempts a ON a.slot_id = s.id
            JOIN chain_entries e ON e.chain_id = l.chain_id AND e.tx_hash = a.tx_hash AND e.alive AND e.tx_hash IS NOT NULL
        WHERE s.id = $1 LIMIT 1";
    /// Bitcoin: an open slot of which every signed transaction spends an output that will never be there again. Who made it is in no block, and has lost
    /// what it spent to one whose block is final, or was the coinbase of a block that left as deep, or was given up by two people. The chain proves
    /// that of the maker and not of the slot: nodes only say that they know no such output.
    READ_VANISHED = "SELECT s.id FROM outbound_slots s JOIN outbound_lanes l ON l.id = s.lane_id
            JOIN chains c ON c.id = l.chain_id AND c.kind = 'bitcoin'
        WHERE s.id = $1 AND s.state = 'open' AND EXISTS (SELECT 1 FROM outbound_attempts a WHERE a.slot_id = s.id AND a.signed IS NOT NULL)
            AND NOT EXISTS (SELECT 1 FROM outbound_attempts a WHERE a.slot_id = s.id AND a.signed IS NOT NULL AND NOT EXISTS (
                SELECT 1 FROM transactions t JOIN tx_inputs n ON n.wallet_id = t.wallet_id AND n.tx_id = t.id
                    JOIN transactions p ON p.wallet_id = n.wallet_id AND p.tx_hash = n.prev_hash
                WHERE t.tx_hash = a.tx_hash AND t.block_height IS NULL AND p.block_height IS NULL AND (p.given_up
                    OR (p.status = 'orphaned' AND EXISTS (SELECT 1 FROM transaction_events v WHERE v.wallet_id = p.wallet_id
                        AND v.tx_hash = p.tx_hash AND v.block_height <= (SELECT MAX(b.block_height) FROM blocks b) - c.final_confirmations))
                    OR EXISTS (SELECT 1 FROM tx_inputs i
                            JOIN tx_inputs o ON o.prev_hash = i.prev_hash AND o.prev_index = i.prev_index AND o.active
                            JOIN transactions r ON r.wallet_id = o.wallet_id AND r.id = o.tx_id
                        WHERE i.wallet_id = p.wallet_id AND i.tx_id = p.id AND NOT i.active
                            AND r.block_height <= (SELECT MAX(b.block_height) FROM blocks b) - c.final_confirmations))))";
    /// Whoever has the lane has read its jobs before they were judged, and writes nothing more.
    RAISE_FENCES = "UPDATE outbound_leases SET fence = fence + 1, worker = '', lease_until = 0 WHERE lane_id = $1";
    SET_JUDGED = "UPDATE outbound_jobs SET judged = $2 WHERE id = $1";
    /// When all of its jobs are judged. One that nothing was signed for holds no nonce: others are mined behind it.
    SETTLE_JUDGED = "UPDATE outbound_slots SET state = CASE WHEN EXISTS (SELECT 1 FROM outbound_attempts a WHERE a.slot_id = $1
                AND a.signed IS NOT NULL) THEN 'settled' ELSE 'released' END, reason = $2, updated_at = $3 WHERE id = $1 AND state = 'open'
        AND NOT EXISTS (SELECT 1 FROM outbound_jobs j WHERE j.slot_id = $1 AND j.state = 'signing')";
    LIST_JOBS(JOB) = "SELECT {columns} FROM outbound_jobs j JOIN chains c ON c.id = j.chain_id JOIN outbound_lanes l ON l.id = j.lane_id
        WHERE j.id < $1 AND ($2 = '' OR c.name = $2) AND ($3 = '' OR j.state = $3) AND ($4 = '' OR l.address = $4)
        ORDER BY j.id DESC LIMIT $5";
    READ_AROUND_JOBS = "SELECT j.id, c.name, a.symbol, k.decimals, l.address, COALESCE(l.stopped, g.outbound_stopped),
            (SELECT o.outbound_stopped FROM wallet_groups o WHERE o.name = j.owner_group) FROM outbound_jobs j
            JOIN chains c ON c.id = j.chain_id JOIN outbound_lanes l ON l.id = j.lane_id JOIN wallet_groups g ON g.id = l.wallet_group_id
            JOIN asset_on_chain k ON k.id = j.listing_id JOIN assets a ON a.id = k.asset_id
        WHERE j.id {in $1}";
    READ_JOB_EVENTS = "SELECT version, state, reason, at FROM outbound_job_events WHERE job_id = $1 ORDER BY version";
    READ_SLOTS_OF_JOB = "SELECT s.id, s.lane_id, s.nonce, s.since_height, s.imported, s.holder FROM outbound_slot_jobs k JOIN outbound_slots s ON s.id = k.slot_id
        WHERE k.job_id = $1 ORDER BY k.round";
    LIST_LANES(LANE) = "SELECT {columns} FROM outbound_lanes l JOIN wallet_groups g ON g.id = l.wallet_group_id
            JOIN chains c ON c.id = l.chain_id
        WHERE l.id > $1 AND ($2 = '' OR c.name = $2) AND ($3 = '' OR l.address = $3) ORDER BY l.id LIMIT $4";
    READ_AROUND_LANES = "SELECT l.id, c.name, (SELECT COUNT(*) FROM outbound_jobs j WHERE j.chain_id = l.chain_id AND j.lane_id = l.id AND j.waiting),
            (SELECT COUNT(*) FROM outbound_slots s WHERE s.lane_id = l.id AND s.state = 'open')
        FROM outbound_lanes l JOIN chains c ON c.id = l.chain_id WHERE l.id {in $1}";
    READ_HOLDERS_OF_LANES = "SELECT lane_id, duty, worker, lease_until FROM outbound_leases WHERE lane_id {in $1} AND worker <> ''
        ORDER BY lane_id, duty";
    LOCK_JOB_LANE = "SELECT l.id, c.kind FROM outbound_lanes l JOIN outbound_jobs j ON j.lane_id = l.id JOIN chains c ON c.id = l.chain_id
        WHERE j.id = $1 {FOR UPDATE OF l}";
    /// Without a slot, and too late for one. In the order of their lanes, as all who lock several.
    READ_OVERDUE = "SELECT id FROM outbound_jobs WHERE waiting AND chain_id = $1 AND expires_at <= $2
        ORDER BY lane_id, id LIMIT $3";
    ASK_GIVE_UP = "UPDATE outbound_jobs SET give_up = TRUE, updated_at = $2 WHERE id = $1";
    ASK_BUMP = "UPDATE outbound_jobs SET bump = TRUE, updated_at = $2 WHERE id = $1";
    DROP_BUMP = "UPDATE outbound_jobs SET bump = FALSE, updated_at = $2 WHERE id {in $1} AND lane_id {in $3} AND bump";
    ASK_NOW = "UPDATE outbound_jobs SET due_at = $2, updated_at = $2 WHERE id = $1";
    /// What the mined attempts of slots have cost, by their slots, behind one.
    READ_SLOT_FEES = "SELECT s.id, a.fee_raw FROM outbound_slots s JOIN outbound_lanes l ON l.id = s.lane_id AND l.chain_id = $1
            JOIN outbound_attempts a ON a.slot_id = s.id AND a.mined_height IS NOT NULL
        WHERE s.id > $2 AND s.state = 'settled' AND a.fee_raw IS NOT NULL ORDER BY s.id LIMIT $3";
}

impl Db {
    /// Newest first, before a number.
    pub async fn jobs(&self, filter: &JobFilter, before: i64, most: i64) -> Result<Vec<ShownJob>, StoreError> {
        let tx = &mut self.read().await?;
        let (chain, lane) = (filter.chain.as_deref().unwrap_or(""), filter.lane.as_deref().unwrap_or(""));
        let state = filter.state.map_or("", JobState::as_str);
        let rows = fetch_all!(tx, LIST_JOBS => JobColumns, before, chain, state, lane, most)?;
        around(tx, rows.into_iter().map(job_row).collect::<Result<_, _>>()?).await
    }

    /// Those of these jobs that there are, by their numbers.
    pub async fn jobs_of(&self, ids: &[JobId]) -> Result<Vec<ShownJob>, StoreError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let tx = &mut self.read().await?;
        let mut jobs: Vec<JobRow> = read_jobs(tx, ids).await?.into_values().collect();
        jobs.sort_by_key(|job| job.id);
        around(tx, jobs).await
    }

    /// A job with its slots, each with all that was ever signed, and its history.
    pub async fn job(&self, id: JobId) -> Result<Option<(ShownJob, Vec<OpenSlot>, Vec<JobStep>)>, StoreError> {
        let tx = &mut self.read().await?;
        let Some(job) = read_jobs(tx, &[id]).await?.remove(&id) else { return Ok(None) };
        let Some(shown) = around(tx, vec![job]).await?.pop() else { return Ok(None) };
        let slots = fetch_all!(tx, READ_SLOTS_OF_JOB => SlotColumns, id.number())?;
        let slots = read_slots(tx, slots).await?;
        let events = fetch_all!(tx, READ_JOB_EVENTS => (i64, String, String, i64), id.number())?;
        let step = |(version, state, reason, at)| JobStep { version, state, reason, at: Timestamp::from_micros(at) };
        Ok(Some((shown, slots, events.into_iter().map(step).collect())))
    }

    /// What settled slots of a chain have cost, a page at a time, behind a slot's number.
    pub async fn slot_fees(
        &self,
        chain: ChainId,
        after: i64,
        most: i64,
    ) -> Result<Vec<(i64, domain::RawAmount)>, StoreError> {
        let rows = fetch_all!(&mut self.read().await?, READ_SLOT_FEES => (i64, String), chain.0, after, most)?;
        rows.into_iter().map(|(slot, fee)| Ok((slot, fee.parse().map_err(|_| malformed("fee"))?))).collect()
    }

    /// By their numbers, behind one.
    pub async fn lanes(
        &self,
        chain: Option<&str>,
        address: Option<&str>,
        after: i64,
        most: i64,
    ) -> Result<Vec<ShownLane>, StoreError> {
        let tx = &mut self.read().await?;
        let (chain, address) = (chain.unwrap_or(""), address.unwrap_or(""));
        let rows = fetch_all!(tx, LIST_LANES => LaneColumns, after, chain, address, most)?;
        let lanes = rows.into_iter().map(lane_row).collect::<Result<Vec<_>, _>>()?;
        let ids = lane_ids(&lanes.iter().map(|lane| lane.id).collect::<Vec<_>>());
        let counts = fetch_all!(tx, READ_AROUND_LANES => (i64, String, i64, i64), ids.clone())?;
        let mut counts: HashMap<i64, (String, i64, i64)> =
            counts.into_iter().map(|(lane, chain, waiting, open)| (lane, (chain, waiting, open))).collect();
        let mut held: HashMap<i64, Vec<(String, String, Timestamp)>> = HashMap::new();
        for (lane, duty, worker, until) in
            fetch_all!(tx, READ_HOLDERS_OF_LANES => (i64, String, String, i64), ids.clone())?
        {
            held.entry(lane).or_default().push((duty, worker, Timestamp::from_micros(until)));
        }
        let count = |number: i64| u64::try_from(number).unwrap_or(0);
        let shown = lanes.into_iter().map(|lane| {
            let (chain, waiting, open) = counts.remove(&lane.id.0).unwrap_or_default();
            let held = held.remove(&lane.id.0).unwrap_or_default();
            ShownLane { lane, chain, waiting: count(waiting), open: count(open), held }
        });
        Ok(shown.collect())
    }

    /// Ends a job that has no slot. One that has is to end as soon as that is safe: its slot is cancelled where a chain can, and it is not
    /// tried again when its slot has paid nothing. On Bitcoin nothing is cancelled that is signed; what is not ends when the signer refuses it. People
    /// do it at the command line only, and the log of operators has a line of it, also of what was refused.
    pub async fn cancel_job(&self, id: JobId, by: &str, at: Timestamp) -> Result<JobReply, StoreError> {
        transact!(self, tx => {
            let reply = call_off(tx, id, by, at).await?;
            write(tx, &[NewLogLine::typed(by, "cancel", &id, "", reply.outcome())], at).await?;
            Ok(reply)
        })
    }

    /// Ends jobs that wait for a slot and whose time is over: nothing was signed for them that can still be mined. Who sends does the same, but not in a lane that is stopped or of a coin that is suspended. Says of how many.
    pub async fn end_overdue_jobs(&self, chain: ChainId, now: Timestamp, most: i64) -> Result<usize, StoreError> {
        let overdue = fetch_all!(&mut self.read().await?, READ_OVERDUE => (i64,), chain.0, now.micros(), most)?;
        let overdue: Vec<JobId> =
            overdue.into_iter().map(|(id,)| JobId::new(id).map_err(|_| malformed("job"))).collect::<Result<_, _>>()?;
        if !overdue.is_empty() {
            transact!(self, tx => withdraw(tx, &overdue, OVERDUE, now).await)?;
        }
        Ok(overdue.len())
    }

    /// A job that rests is tried now. The log of operators has a line of it, also of what was refused.
    pub async fn retry_job(&self, id: JobId, by: &str, at: Timestamp) -> Result<JobReply, StoreError> {
        transact!(self, tx => {
            let reply = retry(tx, id, at).await?;
            write(tx, &[NewLogLine::typed(by, OperatorAction::Retry.as_str(), &id, "", reply.outcome())], at).await?;
            Ok(reply)
        })
    }

    /// More is offered for a job that waits for its block, at once. The log of operators has a line of it, also of what was refused.
    pub async fn bump_job(&self, id: JobId, by: &str, at: Timestamp) -> Result<JobReply, StoreError> {
        transact!(self, tx => {
            let reply = bump(tx, id, at).await?;
            write(tx, &[NewLogLine::typed(by, "bump", &id, "", reply.outcome())], at).await?;
            Ok(reply)
        })
    }

    /// As much is offered for these jobs as may be: nobody waits for more. Those of lanes that another worker has by now are left as they are.
    pub async fn drop_bumps(&self, held: &[HeldLane], jobs: &[JobId], at: Timestamp) -> Result<(), StoreError> {
        if jobs.is_empty() {
            return Ok(());
        }
        let ids: Many<i64> = Many(jobs.iter().map(|job| job.number()).collect());
        transact!(self, tx => {
            let still = lock_held(tx, held).await?;
            let lanes: Many<i64> = Many(still.iter().map(|lane| lane.0).collect());
            execute!(tx, DROP_BUMP, ids.clone(), at.micros(), lanes)?;
            Ok(())
        })
    }

    /// Two people say what the chain does not: what became of a job whose slot has ended without saying so, or that the signer says it has
    /// signed for in a time that this database does not know. Each has a line in the log of operators, also of what was refused.
    pub async fn judge_job(
        &self,
        id: JobId,
        verdict: JobVerdict,
        people: &Approval,
        at: Timestamp,
    ) -> Result<JobReply, StoreError> {
        transact!(self, tx => {
            let reply = judge(tx, id, verdict, people, at).await?;
            write(tx, &NewLogLine::by_two(people, "judge", &id, verdict.as_str(), reply.outcome()), at).await?;
            Ok(reply)
        })
    }
}

async fn bump(tx: &mut Tx, id: JobId, at: Timestamp) -> Result<JobReply, StoreError> {
    let lane = fetch_optional!(tx, LOCK_JOB_LANE => (i64, String), id.number())?;
    let Some(job) = read_jobs(tx, &[id]).await?.remove(&id) else { return Ok(JobReply::NoSuchJob) };
    if job.state != JobState::Broadcasted {
        return Ok(JobReply::NotNow(job.state));
    }
    let on = |chain: ChainKind| lane.as_ref().is_some_and(|(_, kind)| kind == chain.as_str());
    if on(ChainKind::Tron) || (on(ChainKind::Bitcoin) && job.kind == JobKind::Consolidation) {
        return Ok(JobReply::NeverReplaced);
    }
    execute!(tx, ASK_BUMP, id.number(), at.micros())?;
    Ok(JobReply::Done)
}

/// As [`Db::cancel_job`]. Whoever calls off several does it in the order of their lanes.
pub(crate) async fn call_off(tx: &mut Tx, id: JobId, by: &str, at: Timestamp) -> Result<JobReply, StoreError> {
    let lane = fetch_optional!(tx, LOCK_JOB_LANE => (i64, String), id.number())?;
    let Some(job) = read_jobs(tx, &[id]).await?.remove(&id) else { return Ok(JobReply::NoSuchJob) };
    // Others share its transaction, which nothing cancels when it is signed.
    let shared = lane.is_some_and(|(_, kind)| kind == ChainKind::Bitcoin.as_str());
    match job.state {
        JobState::Queued | JobState::FailedRetryable => {
            give_up(tx, &job, format!("given up by {by}"), at).await?;
            Ok(JobReply::Done)
        }
        JobState::Broadcasting | JobState::Broadcasted if shared => Ok(JobReply::NotNow(job.state)),
        JobState::Signing | JobState::Broadcasting | JobState::Broadcasted => {
            execute!(tx, ASK_GIVE_UP, id.number(), at.micros())?;
            Ok(JobReply::Done)
        }
        JobState::Picked
        | JobState::BuildingTx
        | JobState::Confirming
        | JobState::Confirmed
        | JobState::FailedFinal => Ok(JobReply::NotNow(job.state)),
    }
}

async fn judge(
    tx: &mut Tx,
    id: JobId,
    verdict: JobVerdict,
    people: &Approval,
    at: Timestamp,
) -> Result<JobReply, StoreError> {
    let lane = fetch_optional!(tx, LOCK_JOB_LANE => (i64, String), id.number())?;
    let Some((lane, _)) = lane else { return Ok(JobReply::NoSuchJob) };
    let Some(job) = read_jobs(tx, &[id]).await?.remove(&id) else { return Ok(JobReply::NoSuchJob) };
    let Some(slot) = job.slot else { return Ok(JobReply::NotNow(job.state)) };
    let ended = fetch_optional!(tx, READ_SLOT_ENDED => (bool, bool, bool, bool, bool), slot.0)?;
    let (settled, stopped, imported, nowhere, signed) = ended.unwrap_or_default();
    // What another program has sent and no block shows nobody else can say. And it is paid by nobody here again: the customer asks anew.
    let settled = settled || imported && nowhere;
    let vanished = !settled
        && nowhere
        && verdict != JobVerdict::Paid
        && fetch_optional!(tx, READ_VANISHED => (i64,), slot.0)?.is_some();
    let settled = settled || vanished;
    // The books have called it a payment of ours: were the money given back now, nobody would hear of it.
    let unseen = imported && nowhere && verdict == JobVerdict::Unpaid;
    if unseen && fetch_optional!(tx, READ_IN_BOOKS => (i64,), slot.0)?.is_some() {
        return Ok(JobReply::NotNow(job.state));
    }
    let events = match (job.state, verdict) {
        (JobState::Broadcasted | JobState::Broadcasting, JobVerdict::Again) if imported => {
            return Ok(JobReply::NotNow(job.state));
        }
        // Its block has left the chain, and there are no bytes to send again.
        (JobState::Broadcasting, JobVerdict::Paid) if imported && nowhere => {
            vec![JobEvent::Told, JobEvent::Mined, JobEvent::Deep]
        }
        (JobState::Broadcasting, JobVerdict::Unpaid) if imported && nowhere => {
            vec![JobEvent::Told, JobEvent::PaidNothing, JobEvent::GivenUp]
        }
        (JobState::Broadcasted, JobVerdict::Paid) if settled => vec![JobEvent::Mined, JobEvent::Deep],
        (JobState::Broadcasted, JobVerdict::Unpaid) if settled => vec![JobEvent::PaidNothing, JobEvent::GivenUp],
        (JobState::Broadcasted, JobVerdict::Again) if settled => vec![JobEvent::PaidNothing],
        (JobState::Signing, JobVerdict::Paid) if stopped => {
            vec![JobEvent::Signed, JobEvent::Told, JobEvent::Mined, JobEvent::Deep]
        }
        (JobState::Signing, JobVerdict::Unpaid) if stopped => vec![JobEvent::Never],
        _ => return Ok(JobReply::NotNow(job.state)),
    };
    // What the signer may have signed elsewhere is not this slot's: whoever gives money back must see that it knows more than these rows.
    let unslotted = !signed && events == [JobEvent::Never];
    let change = Change::new(id, events, people.to_string());
    let mut changes = vec![Change { set: Set { unslotted, ..change.set }, ..change }];
    if job.state == JobState::Signing && !signed {
        changes.extend(others_of(tx, slot, id, at).await?);
    }
    if vanished {
        changes.extend(lost_with(tx, slot, id, at).await?);
    }
    advance(tx, changes, at).await?;
    execute!(tx, RAISE_FENCES, lane)?;
    execute!(tx, SET_JUDGED, id.number(), people.to_string())?;
    if execute!(tx, SETTLE_JUDGED, slot.0, people.to_string(), at.micros())? == 1 {
        release_coins(tx, &[slot]).await?;
    }
    Ok(JobReply::Done)
}

/// The other jobs that wait for the signature of a slot. What is written down for it pays the judged one too, so nobody may sign that: they go back
/// to where they wait for a slot of their own.
async fn others_of(tx: &mut Tx, slot: SlotId, judged: JobId, at: Timestamp) -> Result<Vec<Change>, StoreError> {
    let others = read_slotted(tx, &[slot]).await?.into_iter().map(|(_, job)| job);
    let signing = others.filter(|job| job.id != judged && job.slot == Some(slot) && job.state == JobState::Signing);
    let back = signing.map(|job| {
        let event = if job.give_up { JobEvent::Never } else { JobEvent::NotNow };
        let words = format!("{judged} was judged, which shared its transaction; nothing was signed there");
        let mut change = Change::new(job.id, vec![event], words);
        change.set = Set { due: Some(at), unslotted: true, ..Set::default() };
        change
    });
    Ok(back.collect())
}

/// The other jobs of a slot of which nothing can ever be mined: they are tried again, as when its own transactions are proven lost.
async fn lost_with(tx: &mut Tx, slot: SlotId, judged: JobId, at: Timestamp) -> Result<Vec<Change>, StoreError> {
    let others = read_slotted(tx, &[slot]).await?.into_iter().map(|(_, job)| job);
    let lost = others.filter(|job| job.id != judged && job.slot == Some(slot)).filter_map(|job| {
        let mut events = fate(job.state, SlotWord::Lost)?;
        events.extend(job.give_up.then_some(JobEvent::GivenUp));
        let mut change = Change::new(job.id, events, "what its transaction spends has left the chain for good");
        change.set.due = Some(at);
        Some(change)
    });
    Ok(lost.collect())
}

/// Only what rests has no slot, so that nothing of it can be out.
pub(crate) async fn retry(tx: &mut Tx, id: JobId, at: Timestamp) -> Result<JobReply, StoreError> {
    fetch_optional!(tx, LOCK_JOB_LANE => (i64, String), id.number())?;
    let Some(job) = read_jobs(tx, &[id]).await?.remove(&id) else { return Ok(JobReply::NoSuchJob) };
    if !matches!(job.state, JobState::Queued | JobState::FailedRetryable) {
        return Ok(JobReply::NotNow(job.state));
    }
    execute!(tx, ASK_NOW, id.number(), at.micros())?;
    Ok(JobReply::Done)
}

/// Ends these jobs if they still wait for a slot.
pub(crate) async fn withdraw(tx: &mut Tx, jobs: &[JobId], why: &str, at: Timestamp) -> Result<(), StoreError> {
    for id in jobs {
        fetch_optional!(tx, LOCK_JOB_LANE => (i64, String), id.number())?;
        let job = read_jobs(tx, &[*id]).await?.remove(id);
        if let Some(job) = job.filter(|job| matches!(job.state, JobState::Queued | JobState::FailedRetryable)) {
            give_up(tx, &job, why.to_owned(), at).await?;
        }
    }
    Ok(())
}

/// The caller has locked its lane, and it has no slot.
async fn give_up(tx: &mut Tx, job: &JobRow, why: String, at: Timestamp) -> Result<(), StoreError> {
    advance(tx, vec![Change::new(job.id, vec![JobEvent::GivenUp], why)], at).await.map(|_| ())
}

/// With who pays each, and in which coin; in their order.
async fn around(tx: &mut Tx, jobs: Vec<JobRow>) -> Result<Vec<ShownJob>, StoreError> {
    type Columns = (i64, String, String, i64, String, Option<String>, Option<String>);
    let ids = Many(jobs.iter().map(|job| job.id.number()).collect::<Vec<i64>>());
    let rows = fetch_all!(tx, READ_AROUND_JOBS => Columns, ids.clone())?;
    let mut rows: HashMap<i64, Columns> = rows.into_iter().map(|row| (row.0, row)).collect();
    let shown = jobs.into_iter().filter_map(|job| {
        let (_, chain, asset, decimals, from, lane_stopped, payee_stopped) = rows.remove(&job.id.number())?;
        let decimals = u8::try_from(decimals).unwrap_or(0);
        Some(ShownJob { job, chain, asset, decimals, from, lane_stopped, payee_stopped })
    });
    Ok(shown.collect())
}
