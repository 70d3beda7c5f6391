//! One worker of a chain's lanes that watches: what became of the slots, until that is final.
//!
//! | the chain says | it is |
//! |---|---|
//! | a quorum has a block with one of the slot's transactions | mined; what it paid is judged by sender, recipient and exact amount |
//! | the block at that height is another one by now | it left, or stands elsewhere |
//! | the block is as deep as the chain's `confirmations`, then as `final_confirmations` | confirmed, then settled |
//! | none of them can be mined any more, by proof | lost: the jobs are tried again |
//! | anything else | nothing |

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use chain::client::Sent;
use chain::status::{Paid, Reason};
use chain::{Chain, ChainError, Head, Status};
use domain::outbound::{Effect, SlotWord};
use domain::utxo::Hash;
use domain::{ChainKind, Clock, Timestamp};
use store::Db;
use store::entry::ChainRow;
use store::outbound::{AttemptKind, AttemptRow, Duty, LaneId, MinedAttempt, SlotId, SlotNews, WatchedSlot};
use tx::{Address, Slot, TxHash};

use super::purse::Ground;
use super::{MOST_LANES, OutboundError, lease};
use crate::wallet::Pinned;

/// A slot is asked about at least so often, whatever one node says of its nonce.
const PATIENCE_MICROS: i64 = 10_000_000;

/// So many of the newest blocks are looked at for transactions of ours.
const NEWEST_BLOCKS: u64 = 20;

/// So many heights are asked for to find out how deep blocks are.
const MOST_STEPS: usize = 8;

/// What one round has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchedRound {
    /// Slots of which something new was written.
    pub changed: usize,
    /// What kept it from going on.
    pub waits: Option<String>,
}

pub struct WatchWorker<'a> {
    pub(super) db: &'a Db,
    pub(super) chain: &'a dyn Chain,
    pub(super) ground: Ground,
    worker: String,
    /// When each open slot was last asked about.
    asked: HashMap<SlotId, Timestamp>,
    /// The transactions of the newest blocks, with their heights, and up to which block they were looked at.
    seen: HashMap<TxHash, u64>,
    looked: Option<u64>,
}

/// What has become of a block that has a transaction of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    /// Another one is at its height.
    Gone,
    /// As many blocks are above it as for a credit.
    Deep,
    /// As many as it takes to be believed for good.
    Final,
}

/// By their heights and hashes.
type Depths = HashMap<(u64, Hash), Depth>;

/// What the chain said of the transactions of a slot.
pub(super) enum Found {
    Mined(u32, MinedAttempt),
    Lost { words: String, foreign: bool },
    Nothing,
}

impl<'a> WatchWorker<'a> {
    pub fn new(
        db: &'a Db,
        chain: &'a dyn Chain,
        row: ChainRow,
        pinned: Arc<Pinned>,
        worker: String,
    ) -> Result<Self, OutboundError> {
        let (asked, seen) = (HashMap::new(), HashMap::new());
        Ok(Self { db, chain, ground: Ground::of(row, pinned)?, worker, asked, seen, looked: None })
    }

    /// Asks about everything that may have changed. When it fails nothing is half done.
    pub async fn round(&mut self, clock: &dyn Clock) -> Result<WatchedRound, OutboundError> {
        let now = clock.now();
        let place = (self.ground.row.id, Duty::Watch);
        let held = self.db.take_lanes(place, &self.worker, MOST_LANES, now, lease(now)).await?;
        let mut round = WatchedRound::default();
        if held.is_empty() {
            self.asked.clear();
            return Ok(round);
        }
        let lanes: Vec<LaneId> = held.iter().map(|one| one.lane).collect();
        let mined = self.db.mined_blocks(&lanes).await?;
        let (own, _) = self.ground.addresses(&mined.lanes);
        let head = match self.chain.head().await {
            Ok(head) => head,
            Err(error) => {
                round.waits = Some(error.to_string());
                return Ok(round);
            }
        };
        let depths = self.depths(&mined.blocks, head, &mut round).await;
        let open = self.read(&lanes, &depths).await?;
        let still: HashSet<SlotId> = open.iter().map(|slot| slot.id).collect();
        self.asked.retain(|slot, _| still.contains(slot));
        let (mut news, mut doubtful) = (Vec::new(), Vec::new());
        for slot in &open {
            let Some((attempt, mined)) = slot.mined() else { continue };
            match depths.get(&(mined.height, mined.block)) {
                Some(Depth::Gone) => doubtful.push(slot),
                Some(Depth::Deep) if mined.fate == Effect::InFull => {
                    news.push(deeper(slot, attempt.number, mined, SlotWord::Deep(mined.fate)));
                }
                Some(Depth::Final) => news.push(deeper(slot, attempt.number, mined, SlotWord::Final(mined.fate))),
                Some(Depth::Deep) | None => {}
            }
        }
        doubtful.extend(self.unseen(&open, &own, head.tip.height, now).await);
        let hopeless = self.hopeless(&doubtful).await?;
        let mut imported = self.judge_imported(&doubtful, &own).await?;
        let statuses = self.statuses(&doubtful).await;
        let mut found: Vec<(&WatchedSlot, Result<Found, OutboundError>)> = Vec::with_capacity(doubtful.len());
        for (slot, statuses) in doubtful.into_iter().zip(statuses) {
            let judged = match imported.remove(&slot.id) {
                Some(judged) => judged,
                None => self.judge(slot, statuses, &hopeless).await,
            };
            found.push((slot, judged));
        }
        for (slot, found) in found {
            self.asked.insert(slot.id, now);
            match found {
                Ok(found) => news.extend(told(slot, found)),
                Err(OutboundError::Chain(error)) => round.waits = Some(error.to_string()),
                Err(error) => return Err(error),
            }
        }
        round.changed = self.db.keep_news(&held, &news, clock.now()).await?;
        Ok(round)
    }

    /// What has become of blocks that have transactions of ours. Nothing of those that are there still, and not deep enough for anything.
    async fn depths(&self, blocks: &[(u64, Hash)], head: Head, round: &mut WatchedRound) -> Depths {
        let heights: BTreeSet<u64> = blocks.iter().map(|(height, _)| *height).collect();
        let heights: Vec<u64> = heights.into_iter().filter(|height| *height <= head.tip.height).collect();
        if heights.is_empty() {
            return Depths::new();
        }
        let headers = match self.chain.headers(&heights).await {
            Ok(headers) => headers,
            Err(error) => {
                round.waits = Some(error.to_string());
                return Depths::new();
            }
        };
        let now: HashMap<u64, Hash> = headers.iter().map(|header| (header.height, Hash(header.hash.0))).collect();
        let top = self.top(&heights, head).await;
        let (deep, settled) =
            (u64::from(self.ground.row.confirmations), u64::from(self.ground.row.final_confirmations));
        let depth = |(height, block): &(u64, Hash)| match now.get(height) {
            // The nodes have not come so far again.
            None => None,
            Some(now) if now != block => Some(Depth::Gone),
            Some(_) if top.saturating_sub(*height) >= settled => Some(Depth::Final),
            Some(_) if top.saturating_sub(*height) >= deep => Some(Depth::Deep),
            Some(_) => None,
        };
        blocks.iter().filter_map(|block| Some((*block, depth(block)?))).collect()
    }

    /// The highest block that a quorum has, of those that would make one of these deeper. The newest tip may be one node's word.
    async fn top(&self, heights: &[u64], head: Head) -> u64 {
        let steps = [u64::from(self.ground.row.final_confirmations), u64::from(self.ground.row.confirmations)];
        let mut wanted: BTreeSet<u64> = BTreeSet::new();
        for mined in heights {
            wanted.extend(
                steps.iter().map(|step| mined.saturating_add(*step)).filter(|height| *height <= head.tip.height),
            );
        }
        // The highest first: whoever has it has all below.
        for height in wanted.into_iter().rev().take(MOST_STEPS) {
            if self.chain.headers(&[height]).await.is_ok() {
                return height;
            }
        }
        0
    }

    /// The slots that something may be new of. Those that only wait to be deeper are left where they are.
    async fn read(&self, lanes: &[LaneId], depths: &Depths) -> Result<Vec<WatchedSlot>, OutboundError> {
        let (mut heights, mut deep) = (BTreeSet::new(), BTreeSet::new());
        for ((height, _), depth) in depths {
            match depth {
                Depth::Gone | Depth::Final => heights.insert(*height),
                Depth::Deep => deep.insert(*height),
            };
        }
        let (heights, deep): (Vec<u64>, Vec<u64>) = (heights.into_iter().collect(), deep.into_iter().collect());
        Ok(self.db.watched_slots(lanes, &heights, &deep).await?)
    }

    /// The transactions of the newest blocks, on chains where nothing else hints at what is mined.
    async fn look(&mut self, tip: u64) {
        let oldest = tip.saturating_sub(NEWEST_BLOCKS - 1);
        let from = self.looked.map_or(oldest, |looked| looked.saturating_add(1).clamp(oldest, tip.saturating_add(1)));
        self.seen.retain(|_, height| (oldest..=tip).contains(height));
        if from > tip {
            return;
        }
        // What could not be looked at is asked about later.
        if let Ok(Some(seen)) = self.chain.glimpse(from, tip).await {
            self.seen.extend(seen);
            self.looked = Some(tip);
        }
    }

    /// Slots that are in no block as far as is known, and may be in one by now.
    async fn unseen<'s>(
        &mut self,
        slots: &'s [WatchedSlot],
        own: &HashMap<LaneId, Address>,
        tip: u64,
        now: Timestamp,
    ) -> Vec<&'s WatchedSlot> {
        let waiting = slots.iter().filter(|slot| slot.mined().is_none() && slot.is_signed());
        let waiting: Vec<&WatchedSlot> = waiting.collect();
        let lanes: Vec<(LaneId, Address)> = waiting
            .iter()
            .map(|slot| slot.lane)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .filter_map(|lane| Some((lane, own.get(&lane)?.clone())))
            .collect();
        // One node's word, which only says where to look.
        let mut used: HashMap<LaneId, u64> = HashMap::new();
        if self.ground.has_nonces() && !lanes.is_empty() {
            let addresses: Vec<Address> = lanes.iter().map(|(_, address)| address.clone()).collect();
            if let Ok(nonces) = self.chain.nonces(&addresses).await {
                used = lanes.iter().map(|(lane, _)| *lane).zip(nonces.iter().map(|one| one.mined)).collect();
            }
        }
        if !waiting.is_empty() {
            self.look(tip).await;
        }
        let hints = self.ground.row.kind != ChainKind::Bitcoin;
        let is_due = |slot: &&WatchedSlot| {
            let hinted = slot.nonce.zip(used.get(&slot.lane)).is_some_and(|(nonce, used)| nonce < *used);
            let signed = slot.attempts.iter().filter_map(|attempt| attempt.signed.as_ref());
            let seen = signed.map(|(_, hash)| TxHash(hash.0)).any(|hash| self.seen.contains_key(&hash));
            // Where new blocks are looked at, what has just been sent is in none that was not shown.
            // (Not since it was told: what nodes are told again and again would never be asked about.)
            let made = slot.attempts.first().map(|attempt| attempt.created).filter(|_| hints);
            let rested = self.asked.get(&slot.id).copied().or(made).is_none_or(|since| {
                let since = now.micros().saturating_sub(since.micros());
                !(0..PATIENCE_MICROS).contains(&since)
            });
            hinted || seen || rested
        };
        waiting.into_iter().filter(is_due).collect()
    }

    /// Bitcoin: slots of which every transaction spends an output that there will never be, because the transaction of ours that would make
    /// it was replaced, and its replacement is final.
    async fn hopeless(&self, slots: &[&WatchedSlot]) -> Result<HashSet<SlotId>, OutboundError> {
        if self.ground.row.kind != ChainKind::Bitcoin {
            return Ok(HashSet::new());
        }
        let mut spent: Vec<(SlotId, Vec<HashSet<Hash>>)> = Vec::new();
        for slot in slots.iter().filter(|slot| slot.mined().is_none()) {
            let parents = |attempt: &AttemptRow| {
                let meaning = self.chain.decode_signed(&attempt.signed.as_ref()?.0).ok()?;
                let Slot::Inputs(inputs) = meaning.slot else { return None };
                Some(inputs.iter().map(|(transaction, _)| Hash(transaction.0)).collect())
            };
            spent.push((slot.id, slot.attempts.iter().filter_map(parents).collect()));
        }
        let asked: HashSet<Hash> = spent.iter().flat_map(|(_, attempts)| attempts.iter().flatten().copied()).collect();
        let gone = self.db.hopeless(&asked).await?;
        let is_lost = |attempts: &Vec<HashSet<Hash>>| {
            !attempts.is_empty() && attempts.iter().all(|parents| !parents.is_disjoint(&gone))
        };
        Ok(spent.into_iter().filter(|(_, attempts)| is_lost(attempts)).map(|(slot, _)| slot).collect())
    }

    /// What the chain says of the signed attempts of each slot, the newest first: all of them are asked about together.
    async fn statuses<'s>(&self, slots: &[&'s WatchedSlot]) -> Vec<Vec<(&'s AttemptRow, Result<Status, ChainError>)>> {
        let (mut sent, mut asked) = (Vec::new(), Vec::new());
        for (place, slot) in slots.iter().enumerate() {
            for attempt in slot.attempts.iter().rev() {
                let Some((bytes, hash)) = &attempt.signed else { continue };
                let Ok(meaning) = self.chain.decode_signed(bytes) else { continue };
                sent.push(Sent { meaning, hash: TxHash(hash.0), since: slot.since });
                asked.push((place, attempt));
            }
        }
        let mut statuses: Vec<Vec<_>> = slots.iter().map(|_| Vec::new()).collect();
        for ((place, attempt), status) in asked.into_iter().zip(self.chain.statuses(&sent).await) {
            statuses[place].push((attempt, status));
        }
        statuses
    }

    /// The newest is looked at first. At most one of them is in a block.
    async fn judge(
        &self,
        slot: &WatchedSlot,
        statuses: Vec<(&AttemptRow, Result<Status, ChainError>)>,
        hopeless: &HashSet<SlotId>,
    ) -> Result<Found, OutboundError> {
        let (mut lost, mut open) = (None, false);
        for (attempt, status) in statuses {
            match status? {
                Status::Mined(mined) => {
                    let fate = match (attempt.kind, mined.paid) {
                        (AttemptKind::Cancel(_), _) | (AttemptKind::Pay, Paid::Nothing) => Effect::Nothing,
                        (AttemptKind::Pay, Paid::InFull) => Effect::InFull,
                        (AttemptKind::Pay, Paid::Otherwise) => Effect::Unclear,
                    };
                    let (height, block) = (mined.block.height, Hash(mined.block.hash.0));
                    return Ok(Found::Mined(attempt.number, MinedAttempt { height, block, fate, fee: mined.fee }));
                }
                Status::Impossible(proof) => lost = Some(proof.reason()),
                // What is known of one says nothing of the others: an older one may be in a block.
                Status::Unknown | Status::Mempool => open = true,
            }
        }
        match lost.filter(|_| !open) {
            None if hopeless.contains(&slot.id) => {
                let words = "what it spends was made by a transaction that another has replaced".to_owned();
                Ok(Found::Lost { words, foreign: false })
            }
            None => Ok(Found::Nothing),
            Some(reason) => self.lost(slot, reason).await,
        }
    }

    /// None of the slot's transactions can be mined, as deep as it takes to be believed for good.
    async fn lost(&self, slot: &WatchedSlot, reason: Reason) -> Result<Found, OutboundError> {
        let ours =
            |by: TxHash| slot.attempts.iter().any(|one| one.signed.as_ref().is_some_and(|(_, hash)| hash.0 == by.0));
        match reason {
            Reason::Expired { .. } => {
                Ok(Found::Lost { words: "its time was over before a block took it".to_owned(), foreign: false })
            }
            Reason::NonceTaken { by, block } | Reason::InputSpent { by, block, .. } => {
                let deep = block.height.saturating_add(u64::from(self.ground.row.final_confirmations));
                if ours(by) || self.chain.headers(&[deep]).await.is_err() {
                    return Ok(Found::Nothing);
                }
                if self.db.ours(self.ground.row.id, &HashSet::from([Hash(by.0)])).await?.contains(&Hash(by.0)) {
                    let words = format!("what it spends was spent by {by}, another payment of ours");
                    return Ok(Found::Lost { words, foreign: false });
                }
                let words = format!(
                    "its slot was used by {by}, which is none that this database knows: another program has the wallet's key, or the database \
                     is old; two people must say whether that paid it"
                );
                Ok(Found::Lost { words, foreign: true })
            }
        }
    }
}

/// With so many blocks above its own as the chain wants.
fn deeper(slot: &WatchedSlot, number: u32, mined: &MinedAttempt, said: SlotWord) -> SlotNews {
    let words = match (said, mined.fate) {
        (SlotWord::Deep(_), _) => format!("paid, in block {}", mined.height),
        (_, Effect::InFull) => "paid".to_owned(),
        (_, Effect::Nothing) => "its slot is used up, and paid nothing".to_owned(),
        (_, Effect::Unclear) => {
            "it paid something else than was asked for: two people must say what that is worth".to_owned()
        }
    };
    let (mined, asked) = (Some((number, mined.clone())), slot.signed_count());
    SlotNews { lane: slot.lane, slot: slot.id, said, mined, asked, words, foreign: false }
}

/// What is new of a slot, if anything is.
fn told(slot: &WatchedSlot, found: Found) -> Option<SlotNews> {
    let asked = slot.signed_count();
    let news = |said, mined, words, foreign| {
        Some(SlotNews { lane: slot.lane, slot: slot.id, said, mined, asked, words, foreign })
    };
    match found {
        Found::Mined(number, mined) => {
            let words = match mined.fate {
                Effect::InFull => format!("in block {}, not deep enough yet", mined.height),
                Effect::Nothing => {
                    format!("its slot was used in block {} and paid nothing; that may still change", mined.height)
                }
                Effect::Unclear => format!("it paid something else in block {}", mined.height),
            };
            news(SlotWord::Mined(mined.fate), Some((number, mined)), words, false)
        }
        // Who used it may have paid it: a replacement that a database forgot looks the same as a thief's.
        Found::Lost { words, foreign: true } => news(SlotWord::Final(Effect::Unclear), None, words, true),
        Found::Lost { words, foreign: false } => news(SlotWord::Lost, None, words, false),
        Found::Nothing => {
            slot.mined()?;
            news(SlotWord::Left, None, "its block left the chain; the same is sent again".to_owned(), false)
        }
    }
}
