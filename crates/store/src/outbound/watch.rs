//! What the chain says of slots, and what that makes of their jobs.

use std::collections::HashMap;

use domain::Timestamp;
use domain::outbound::{Effect, JobEvent, MOST_TRIES, SlotWord, fate, pause_micros};
use domain::utxo::Hash;

use super::advance::{Change, Set, advance_known};
use super::coins::release_coins;
use super::lane::{HeldLane, lock_held, stop};
use super::standing::{JobStanding, SlotStanding, jobs_in, read_slot_standings};
use super::types::{
    JobId, JobRow, LaneId, LaneRow, MinedAttempt, OpenSlot, SlotId, SlotsRead, WatchedSlot, fate_word, jobs_of_slots,
    malformed, read_jobs, read_lanes, read_mined_blocks, read_open_slots, read_watched,
};
use crate::db::{Db, Tx};
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Bytes, ColumnType::Int, ColumnType::Text, RowsSql};
use crate::rows::{execute_rows, expect_rows};
use crate::transact;

/// What the chain says of one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotNews {
    pub lane: LaneId,
    pub slot: SlotId,
    pub said: SlotWord,
    /// Which of its attempts is mined, and where. None when it left, or is lost.
    pub mined: Option<(u32, MinedAttempt)>,
    /// How many signed attempts it had when the chain was asked. That none of them can be mined says nothing of one that was signed meanwhile.
    pub asked: usize,
    /// In one sentence, for people.
    pub words: String,
    /// Somebody else has used the slot: nothing more is sent from the lane.
    pub foreign: bool,
}

impl SlotNews {
    /// The slot is over, and none of its attempts is in a block.
    fn is_end_unpaid(&self) -> bool {
        self.mined.is_none()
            && match self.said {
                SlotWord::Lost | SlotWord::Final(_) => true,
                SlotWord::Mined(_) | SlotWord::Left | SlotWord::Deep(_) => false,
            }
    }
}

/// The blocks in which transactions of some lanes are, as far as is known, that may still leave the chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MinedBlocks {
    pub lanes: Vec<LaneRow>,
    pub blocks: Vec<(u64, Hash)>,
}

/// The same bytes are told again, whatever else keeps new ones from being sent.
static UNMINE_ATTEMPTS: RowsSql = RowsSql::new(
    "UNMINE_ATTEMPTS",
    "UPDATE outbound_attempts SET mined_height = NULL, mined_block = NULL, paid = NULL, fee_raw = NULL, told_at = NULL, updated_at = r.at
     FROM {rows} WHERE outbound_attempts.slot_id = r.slot_id AND outbound_attempts.mined_height IS NOT NULL",
    &[("slot_id", Int), ("at", Int)],
);

static MINE_ATTEMPTS: RowsSql = RowsSql::new(
    "MINE_ATTEMPTS",
    "UPDATE outbound_attempts SET mined_height = r.height, mined_block = r.block, paid = r.paid, fee_raw = r.fee, updated_at = r.at
     FROM {rows} WHERE outbound_attempts.slot_id = r.slot_id AND outbound_attempts.number = r.number
         AND outbound_attempts.signed IS NOT NULL",
    &[("slot_id", Int), ("number", Int), ("height", Int), ("block", Bytes), ("paid", Text), ("fee", Text), ("at", Int)],
);

/// By their ids: the addition hides that there is an index of all that are open.
static SETTLE_SLOTS: RowsSql = RowsSql::new(
    "SETTLE_SLOTS",
    "UPDATE outbound_slots SET state = 'settled', reason = r.words, updated_at = r.at
     FROM {rows} WHERE outbound_slots.id = r.id AND outbound_slots.state || '' = 'open'",
    &[("id", Int), ("words", Text), ("at", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 3] = [&UNMINE_ATTEMPTS, &MINE_ATTEMPTS, &SETTLE_SLOTS];

impl Db {
    /// The blocks that have transactions of open slots of these lanes.
    pub async fn mined_blocks(&self, lanes: &[LaneId]) -> Result<MinedBlocks, StoreError> {
        let tx = &mut self.read().await?;
        Ok(MinedBlocks { lanes: read_lanes(tx, lanes).await?, blocks: read_mined_blocks(tx, lanes).await? })
    }

    /// The open slots of these lanes of which nothing is in a block, and those of which something is at one of the heights. At one of the
    /// heights `deep`, only those with a job that is not known to be deep.
    pub async fn watched_slots(
        &self,
        lanes: &[LaneId],
        heights: &[u64],
        deep: &[u64],
    ) -> Result<Vec<WatchedSlot>, StoreError> {
        read_watched(&mut self.read().await?, lanes, heights, deep).await
    }

    /// The jobs of slots that another program has used, with the slots. Each has one.
    pub async fn imported_jobs(&self, slots: &[SlotId]) -> Result<HashMap<SlotId, JobRow>, StoreError> {
        let tx = &mut self.read().await?;
        let of_slots = jobs_of_slots(tx, slots).await?;
        let ids: Vec<JobId> = of_slots.values().flatten().copied().collect();
        let mut jobs = read_jobs(tx, &ids).await?;
        let job = |(slot, jobs_of_it): (SlotId, Vec<JobId>)| Some((slot, jobs.remove(jobs_of_it.first()?)?));
        Ok(of_slots.into_iter().filter_map(job).collect())
    }

    /// Some of the open slots of these lanes.
    pub async fn open_slots_of(&self, lanes: &[LaneId], which: SlotsRead) -> Result<Vec<OpenSlot>, StoreError> {
        read_open_slots(&mut self.read().await?, lanes, which).await
    }

    /// Takes up what the chain says. Says of how many slots that changed anything; those of lanes that another watches by now are left.
    pub async fn keep_news(&self, held: &[HeldLane], news: &[SlotNews], at: Timestamp) -> Result<usize, StoreError> {
        if news.is_empty() {
            return Ok(0);
        }
        transact!(self, tx => {
            let still = lock_held(tx, held).await?;
            let named: Vec<SlotId> =
                news.iter().filter(|one| still.contains(&one.lane)).map(|one| one.slot).collect();
            let slots = read_slot_standings(tx, &named).await?;
            // What was signed stays signed, so as many are the same ones.
            let known = |one: &SlotNews, slot: &SlotStanding| slot.lane == one.lane && (!one.is_end_unpaid() || slot.signed_count() == one.asked);
            let news: Vec<(&SlotNews, &SlotStanding)> =
                news.iter().filter_map(|one| Some((one, slots.get(&one.slot).filter(|slot| known(one, slot))?))).collect();
            write_mined(tx, &news, at).await?;
            let mut changes = Vec::new();
            for (one, slot) in &news {
                // What has gone to another slot has nothing to do with this one any more.
                for job in slot.jobs.iter().filter(|job| job.slot == Some(slot.id)) {
                    match change(job, one, at) {
                        Some(change) => changes.extend(change),
                        None => {
                            let why = format!("{} is {}, and the chain says {:?} of its slot", job.id, job.state, one.said);
                            stop(tx, one.lane, &why, at).await?;
                        }
                    }
                }
                if one.foreign {
                    stop(tx, one.lane, &one.words, at).await?;
                }
            }
            settle(tx, &news, at).await?;
            let changed = news.len();
            advance_known(tx, jobs_in(slots.into_values()), changes, at).await?;
            Ok(changed)
        })
    }
}

/// What becomes of a job. The inner `None`: it knows already. The outer one: this cannot be.
fn change(job: &JobStanding, news: &SlotNews, at: Timestamp) -> Option<Option<Change>> {
    let mut events = fate(job.state, news.said)?;
    let failed = events.last() == Some(&JobEvent::PaidNothing);
    let unclear = matches!(news.said, SlotWord::Final(Effect::Unclear));
    if events.is_empty() && !unclear {
        return Some(None);
    }
    let (tries, mut set) = (job.tries.saturating_add(1), Set::default());
    if failed {
        let over = job.give_up || tries >= MOST_TRIES;
        events.extend(over.then_some(JobEvent::GivenUp));
        set = Set { due: Some(at.plus_micros(pause_micros(tries))), tried: true, ..Set::default() };
    }
    Some(Some(Change { id: job.id, events, words: news.words.clone(), history: None, set }))
}

/// At most one attempt of a slot is mined: what stood there before goes first.
async fn write_mined(tx: &mut Tx, news: &[(&SlotNews, &SlotStanding)], at: Timestamp) -> Result<(), StoreError> {
    let same = |one: &SlotNews, slot: &SlotStanding| {
        slot.mined() == one.mined.as_ref().map(|(number, mined)| (*number, mined))
    };
    let differ: Vec<&(&SlotNews, &SlotStanding)> = news.iter().filter(|(one, slot)| !same(one, slot)).collect();
    let gone: Vec<i64> = differ.iter().filter(|(_, slot)| slot.mined().is_some()).map(|(_, slot)| slot.id.0).collect();
    if !gone.is_empty() {
        let count = gone.len();
        let columns = vec![Column::Ints(gone), Column::Ints(vec![at.micros(); count])];
        expect_rows(execute_rows(tx, &UNMINE_ATTEMPTS, columns).await?, count, "attempts that left")?;
    }
    let mined: Vec<(SlotId, u32, &MinedAttempt)> = differ
        .iter()
        .filter_map(|(one, slot)| one.mined.as_ref().map(|(number, mined)| (slot.id, *number, mined)))
        .collect();
    if mined.is_empty() {
        return Ok(());
    }
    let height = |height: u64| i64::try_from(height).map_err(|_| malformed("height"));
    let columns = vec![
        Column::Ints(mined.iter().map(|(slot, ..)| slot.0).collect()),
        Column::Ints(mined.iter().map(|(_, number, _)| (*number).into()).collect()),
        Column::Ints(mined.iter().map(|(.., mined)| height(mined.height)).collect::<Result<_, _>>()?),
        Column::Bytes(mined.iter().map(|(.., mined)| mined.block.0.to_vec()).collect()),
        Column::Texts(mined.iter().map(|(.., mined)| fate_word(mined.fate)).collect()),
        Column::OptionalStrings(mined.iter().map(|(.., mined)| mined.fee.map(|fee| fee.to_string())).collect()),
        Column::Ints(vec![at.micros(); mined.len()]),
    ];
    expect_rows(execute_rows(tx, &MINE_ATTEMPTS, columns).await?, mined.len(), "mined attempts")
}

async fn settle(tx: &mut Tx, news: &[(&SlotNews, &SlotStanding)], at: Timestamp) -> Result<(), StoreError> {
    let ended = |said: SlotWord| match said {
        SlotWord::Final(_) | SlotWord::Lost => true,
        SlotWord::Mined(_) | SlotWord::Left | SlotWord::Deep(_) => false,
    };
    let ended: Vec<&(&SlotNews, &SlotStanding)> = news.iter().filter(|(one, _)| ended(one.said)).collect();
    if ended.is_empty() {
        return Ok(());
    }
    let columns = vec![
        Column::Ints(ended.iter().map(|(_, slot)| slot.id.0).collect()),
        Column::Texts(ended.iter().map(|(one, _)| one.words.as_str()).collect()),
        Column::Ints(vec![at.micros(); ended.len()]),
    ];
    expect_rows(execute_rows(tx, &SETTLE_SLOTS, columns).await?, ended.len(), "settled slots")?;
    release_coins(tx, &ended.iter().map(|(_, slot)| slot.id).collect::<Vec<_>>()).await
}
