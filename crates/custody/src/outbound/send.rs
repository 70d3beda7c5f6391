//! One worker of a chain's lanes that sends.
//!
//! A round takes lanes, and for all of them together: writes slots and attempts down, has everything signed in one call, keeps the bytes,
//! tells the nodes, and keeps that they were told. Each step commits before the next begins.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use chain::{Broadcast, Chain, ChainError, Quote};
use domain::outbound::{MOST_TRIES, Nonces, Room, Urge, Wait, pause_micros};
use domain::{Clock, RawAmount, Timestamp};
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use signer::SignRequest;
use signer::client::SignAnswer;
use signer::names::SignerName;
use signer::wire::MOST_REQUESTS;
use store::Db;
use store::entry::ChainRow;
use store::outbound::send::SignedAnswer;
use store::outbound::{
    AttemptKind, AttemptRow, Duty, HeldLane, JobId, JobRow, LaneId, LaneRow, LaneWork, NewAttempt, NewSlot, OpenSlot,
    PutOff, SignedAttempt, SlotId, ToldAttempt,
};
use tx::{Address, BlockRef, Coin, Fee, Payment};

use super::ask::{Move, Wanted, judge};
use super::draft;
use super::purse::Ground;
use super::{AT_ONCE, MOST_LANES, MakeId, OutboundError, Signs, lease};
use crate::wallet::Pinned;

/// Nothing is sent while the chain's own books are so many blocks behind: fewer than a transaction of TRON lives.
const MOST_BEHIND: u64 = 100;

/// What one round has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SentRound {
    /// Slots that were taken.
    pub slots: usize,
    /// Attempts that offer more, or cancel.
    pub replaced: usize,
    pub signed: usize,
    pub refused: usize,
    /// Transactions that nodes were told of.
    pub told: usize,
    /// Jobs that were put off.
    pub put_off: usize,
    /// What kept it from going on.
    pub waits: Option<String>,
}

impl SentRound {
    pub const fn is_busy(&self) -> bool {
        self.slots + self.replaced + self.signed + self.refused + self.told + self.put_off > 0
    }
}

pub struct SendWorker<'a> {
    db: &'a Db,
    chain: &'a dyn Chain,
    signer: &'a dyn Signs,
    signer_name: SignerName,
    ids: MakeId<'a>,
    ground: Ground,
    worker: String,
    /// Lanes whose gaps are not filled before a time: the signer refused it.
    fillers: HashMap<LaneId, Timestamp>,
}

/// What is to be written before anything is signed.
#[derive(Default)]
struct Plan {
    slots: Vec<NewSlot>,
    attempts: Vec<NewAttempt>,
    put_off: Vec<PutOff>,
    /// What a quorum has mined of each lane's nonces.
    known: HashMap<LaneId, u64>,
    /// Attempts whose bytes are told once more.
    again: HashSet<SlotId>,
}

/// A job that may be paid now.
struct Ready<'a> {
    job: &'a JobRow,
    payment: Payment,
    quote: Quote,
}

/// What nodes said to an attempt of a slot.
type Told<'a> = (&'a OpenSlot, u32, Result<Broadcast, ChainError>);

impl<'a> SendWorker<'a> {
    #[expect(clippy::too_many_arguments, reason = "each is another neighbour")]
    pub fn new(
        db: &'a Db,
        chain: &'a dyn Chain,
        signer: &'a dyn Signs,
        signer_name: SignerName,
        ids: MakeId<'a>,
        row: ChainRow,
        pinned: Arc<Pinned>,
        worker: String,
    ) -> Result<Self, OutboundError> {
        let (ground, fillers) = (Ground::of(row, pinned)?, HashMap::new());
        Ok(Self { db, chain, signer, signer_name, ids, ground, worker, fillers })
    }

    /// Others may send from its lanes at once.
    pub async fn leave(&self) -> Result<(), OutboundError> {
        Ok(self.db.leave_lanes(&self.worker, Duty::Send).await?)
    }

    /// As much of everything as one commit each takes. When it fails nothing is half done, and the next round begins at the rows.
    pub async fn round(&mut self, clock: &dyn Clock) -> Result<SentRound, OutboundError> {
        let now = clock.now();
        let place = (self.ground.row.id, Duty::Send);
        let held = self.db.take_lanes(place, &self.worker, MOST_LANES, now, lease(now)).await?;
        let mut sent = SentRound::default();
        if held.is_empty() {
            return Ok(sent);
        }
        let lanes: Vec<LaneId> = held.iter().map(|one| one.lane).collect();
        let work = self.db.lane_work(&lanes, i64::from(self.ground.row.outbound.in_flight), now).await?;
        let (own, strangers) = self.ground.addresses(&work.lanes);
        for (lane, why) in strangers {
            self.db.stop_lane(lane, &why, now).await?;
        }
        // What was signed and not told comes first: it needs nobody but the nodes.
        self.tell(&held, &work.slots, &HashSet::new(), clock, &mut sent).await?;
        let planned = if self.signer.is_ready() {
            self.plan(&work, &own, now).await
        } else {
            // A slot that nobody signs for only waits, and on TRON it ends.
            sent.waits = Some("the signer has not said that it has the keys of the treasury file".to_owned());
            Ok(Plan::default())
        };
        let plan = match planned {
            Ok(plan) => plan,
            // What is written down goes on, whatever keeps new ones from being written.
            Err(OutboundError::Chain(error)) => {
                sent.waits = Some(error.to_string());
                Plan::default()
            }
            Err(error) => return Err(error),
        };
        let opened =
            self.db.open_slots(&held, &plan.slots, &plan.attempts, &plan.put_off, &plan.known, clock.now()).await?;
        sent.slots = opened.slots.len();
        sent.replaced = opened.attempts.len();
        sent.put_off = plan.put_off.len();
        let open = self.db.open_lanes(&lanes).await?.slots;
        self.sign(&held, &work, &open, &own, clock, &mut sent).await?;
        let open = if sent.signed > 0 { self.db.open_lanes(&lanes).await?.slots } else { open };
        self.tell(&held, &open, &plan.again, clock, &mut sent).await?;
        Ok(sent)
    }

    // ---- what is to be written -------------------------------------------------------------------------------

    async fn plan(
        &self,
        work: &LaneWork,
        own: &HashMap<LaneId, Address>,
        now: Timestamp,
    ) -> Result<Plan, OutboundError> {
        let mut plan = Plan::default();
        let sending: Vec<&LaneRow> =
            work.lanes.iter().filter(|lane| lane.stopped.is_none() && own.contains_key(&lane.id)).collect();
        if sending.is_empty() {
            return Ok(plan);
        }
        let head = self.chain.head().await?;
        // A payment that an old backup has forgotten shows in the chain's books as one that is none of ours, and stops its group. So nothing is
        // sent before the books have been read.
        let books = self.db.chain_standing(&self.ground.row).await?;
        if let Some(proven) = books.map(|books| books.proven_height.unwrap_or(0))
            && proven.saturating_add(MOST_BEHIND) < head.tip.height
        {
            return Err(ChainError::BlockMissing { height: proven.saturating_add(1) }.into());
        }
        let mined = if self.ground.has_nonces() {
            // What is settled is a quorum's word; without one, nothing is known of nonces.
            let young = head.tip.height < u64::from(self.ground.row.confirmations);
            let settled = head.settled.or(young.then_some(0)).ok_or(ChainError::NoQuorum { wanted: 1, agreed: 0 })?;
            self.mined(&sending, own, settled).await?
        } else {
            HashMap::new()
        };
        let usable = self.explained(work, &sending, &mined, now).await?;
        plan.known =
            mined.iter().filter(|(lane, _)| usable.contains(lane)).map(|(lane, nonce)| (*lane, *nonce)).collect();
        self.urge(work, own, &mined, &usable, now, &mut plan).await?;
        let ready = self.ready(work, own, &usable, now, &mut plan).await?;
        for lane in sending.iter().filter(|lane| usable.contains(&lane.id)) {
            let Some(address) = own.get(&lane.id) else { continue };
            let mine: Vec<&Ready<'_>> = ready.iter().filter(|ready| ready.job.lane == lane.id).collect();
            let open: Vec<&OpenSlot> = work.slots.iter().filter(|slot| slot.lane == lane.id).collect();
            let held = work.held.get(&lane.id).cloned().unwrap_or_default();
            let fills = self.fillers.get(&lane.id).is_none_or(|until| *until <= now);
            let nonces = mined.get(&lane.id).map(|mined| (*mined, held, fills));
            self.slots(address, &mine, &open, nonces, head.tip.height, &mut plan)?;
        }
        Ok(plan)
    }

    /// What a quorum has mined of each lane's nonces, up to the newest settled block.
    async fn mined(
        &self,
        lanes: &[&LaneRow],
        own: &HashMap<LaneId, Address>,
        settled: u64,
    ) -> Result<HashMap<LaneId, u64>, OutboundError> {
        let header = self.chain.headers(&[settled]).await?.pop();
        let header = header.ok_or(ChainError::BlockMissing { height: settled })?;
        let at = BlockRef { height: header.height, hash: header.hash };
        let asked: Vec<(LaneId, Address)> =
            lanes.iter().filter_map(|lane| Some((lane.id, own.get(&lane.id)?.clone()))).collect();
        let addresses: Vec<Address> = asked.iter().map(|(_, address)| address.clone()).collect();
        let counts = self.chain.nonces_at(&addresses, at).await?;
        Ok(asked.into_iter().map(|(lane, _)| lane).zip(counts).collect())
    }

    /// The lanes whose nonces make sense. One of which somebody else has used some is stopped; one of which the nodes know less than was
    /// settled waits for better nodes.
    async fn explained(
        &self,
        work: &LaneWork,
        lanes: &[&LaneRow],
        mined: &HashMap<LaneId, u64>,
        now: Timestamp,
    ) -> Result<BTreeSet<LaneId>, OutboundError> {
        let mut usable: BTreeSet<LaneId> = lanes.iter().map(|lane| lane.id).collect();
        if !self.ground.has_nonces() {
            return Ok(usable);
        }
        let asked: Vec<(LaneId, u64, u64)> =
            lanes.iter().filter_map(|lane| Some((lane.id, lane.known_nonce?, mined.get(&lane.id).copied()?))).collect();
        for (lane, missing) in self.db.unexplained_nonces(&asked).await? {
            let why = format!(
                "{missing} of its nonces were used by somebody else: another program has its key, or this database is old"
            );
            self.db.stop_lane(lane, &why, now).await?;
            usable.remove(&lane);
        }
        for lane in lanes {
            let Some(mined) = mined.get(&lane.id).copied() else {
                usable.remove(&lane.id);
                continue;
            };
            // A reorganisation may take back what was counted: as long as these are slots of ours, they are sent again.
            let held = work.held.get(&lane.id);
            let ours = |nonce: u64| held.is_some_and(|held| held.contains(&nonce));
            if lane.known_nonce.is_some_and(|known| known.saturating_sub(mined) > 1_000 || !(mined..known).all(ours)) {
                tracing::warn!(
                    lane = lane.address,
                    mined,
                    "the nodes know fewer transactions of a wallet than were settled"
                );
                usable.remove(&lane.id);
            }
        }
        Ok(usable)
    }

    /// What waits for its block is sent again, offers more, or is cancelled.
    async fn urge(
        &self,
        work: &LaneWork,
        own: &HashMap<LaneId, Address>,
        mined: &HashMap<LaneId, u64>,
        usable: &BTreeSet<LaneId>,
        now: Timestamp,
        plan: &mut Plan,
    ) -> Result<(), OutboundError> {
        let after = i64::from(self.ground.row.outbound.stuck_after_s) * 1_000_000;
        let mut waiting = Vec::new();
        for slot in work.slots.iter().filter(|slot| usable.contains(&slot.lane) && slot.mined().is_none()) {
            let Some((newest, told)) = slot.newest().and_then(|newest| Some((newest, newest.told?))) else { continue };
            let used = slot.nonce.zip(mined.get(&slot.lane)).is_some_and(|(nonce, mined)| nonce < *mined);
            let given_up = slot.jobs.iter().any(|(job, _)| job.give_up);
            let asked = slot.jobs.iter().any(|(job, _)| job.bump) && slot.nonce.is_some();
            let end = given_up && newest.kind == AttemptKind::Pay && slot.nonce.is_some();
            if given_up && slot.nonce.is_none() {
                // Nothing cancels it but its time: it is not told again.
                continue;
            }
            // What the signer has refused is asked for again later and later.
            let refused = slot.attempts.iter().rev().take_while(|attempt| attempt.refused.is_some()).count();
            let patience = after.saturating_mul(1 << refused.min(10));
            let fresh = refused > 0
                && slot
                    .attempts
                    .last()
                    .is_some_and(|last| now.micros().saturating_sub(last.created.micros()) < patience);
            let rests = Wait { told, first: false, cheap: false, asked: asked || end }.urge(now, after) == Urge::Rest;
            if !used && !fresh && !rests && slot.unsigned().next().is_none() {
                waiting.push((slot, newest, told, asked, end));
            }
        }
        if waiting.is_empty() {
            return Ok(());
        }
        if !self.ground.has_nonces() {
            plan.again.extend(waiting.iter().map(|(slot, ..)| slot.id));
            return Ok(());
        }
        let price = self.price(own, &waiting.iter().map(|(slot, ..)| slot.lane).collect::<Vec<_>>()).await?;
        for (slot, newest, told, asked, end) in waiting {
            let (Some(address), Ok(old)) = (own.get(&slot.lane), self.chain.decode_unsigned(&newest.payload)) else {
                continue;
            };
            let first = !work.slots.iter().any(|other| {
                other.lane == slot.lane
                    && other.nonce < slot.nonce
                    && other.mined().is_none()
                    && other.nonce.zip(mined.get(&slot.lane)).is_some_and(|(nonce, mined)| nonce >= *mined)
            });
            let wait = Wait { told, first, cheap: draft::is_cheap(old.fee, price), asked };
            let limits = &self.ground.row.outbound;
            let most = slot.jobs.first().map_or(limits.fee_cap, |(job, _)| job.most_fee);
            let cap = draft::cap(self.ground.row.kind, limits, most);
            let next = if end {
                draft::cancel_instead(self.chain, address, &old, price, cap).map(|payload| (payload, true))
            } else if wait.urge(now, after) == Urge::Replace {
                let cancels = matches!(newest.kind, AttemptKind::Cancel(_));
                draft::offer_more(self.chain, address, &old, price, (cap, most)).map(|payload| (payload, cancels))
            } else {
                None
            };
            let number = slot.attempts.last().map_or(1, |last| last.number.saturating_add(1));
            match next {
                Some((payload, cancels)) => {
                    // One number for all cancels of a slot: to the signer they are one job, which offers more.
                    let before =
                        slot.attempts.iter().rev().find(|one| one.kind != AttemptKind::Pay).map(|one| one.kind);
                    let kind = match (cancels, before) {
                        (false, _) => AttemptKind::Pay,
                        (true, Some(before)) => before,
                        (true, None) => AttemptKind::Cancel(self.job_id()?),
                    };
                    plan.attempts.push(NewAttempt { lane: slot.lane, slot: slot.id, number, kind, payload });
                }
                None => drop(plan.again.insert(slot.id)),
            }
        }
        Ok(())
    }

    /// What is asked for a unit of gas now.
    async fn price(&self, own: &HashMap<LaneId, Address>, lanes: &[LaneId]) -> Result<Fee, OutboundError> {
        let from = lanes.iter().find_map(|lane| own.get(lane)).ok_or(ChainError::ForeignAddress)?;
        let limits = &self.ground.row.outbound;
        let payment = Payment { to: from.clone(), coin: Coin::Native, amount: RawAmount::ZERO };
        let cap = draft::cap(self.ground.row.kind, limits, limits.fee_cap);
        Ok(self.chain.quote(from, &payment, cap).await?.fee)
    }

    /// The jobs that can be paid now: simulated, covered, and not dearer than agreed. The others are put off.
    async fn ready<'w>(
        &self,
        work: &'w LaneWork,
        own: &HashMap<LaneId, Address>,
        usable: &BTreeSet<LaneId>,
        now: Timestamp,
        plan: &mut Plan,
    ) -> Result<Vec<Ready<'w>>, OutboundError> {
        let mut candidates = Vec::new();
        let limits = &self.ground.row.outbound;
        let most = usize::try_from(limits.in_flight).unwrap_or(usize::MAX);
        let mut room: HashMap<LaneId, usize> = HashMap::new();
        for job in work.due.iter().filter(|job| usable.contains(&job.lane)) {
            let open = || work.slots.iter().filter(|slot| slot.lane == job.lane && slot.mined().is_none()).count();
            let room = room.entry(job.lane).or_insert_with(|| most.saturating_sub(open()));
            if *room == 0 || !self.ground.is_active(job) {
                continue;
            }
            if job.give_up {
                plan.put_off.push(over(job, "people gave it up".to_owned(), now));
                continue;
            }
            if job.expires <= now {
                plan.put_off.push(over(job, "its time was over before it could be paid".to_owned(), now));
                continue;
            }
            match self.ground.payment(job) {
                Ok(payment) => {
                    *room -= 1;
                    candidates.push((job, payment));
                }
                Err(why) => plan.put_off.push(over(job, why, now)),
            }
        }
        let mut quotes: Vec<BoxFuture<'_, Result<Quote, ChainError>>> = Vec::with_capacity(candidates.len());
        for (job, payment) in &candidates {
            let cap = draft::cap(self.ground.row.kind, limits, job.most_fee);
            quotes.push(match own.get(&job.lane) {
                Some(from) => self.chain.quote(from, payment, cap),
                None => Box::pin(std::future::ready(Err(ChainError::ForeignAddress))),
            });
        }
        let quotes: Vec<Result<Quote, ChainError>> = stream::iter(quotes).buffered(AT_ONCE).collect().await;
        let mut purses = self.available(work, own, &candidates).await?;
        let mut ready = Vec::new();
        for ((job, payment), quote) in candidates.into_iter().zip(quotes) {
            let quote = match quote {
                Ok(quote) => quote,
                // It would not be paid: that costs no slot.
                Err(error @ ChainError::Refused(_)) => {
                    let why = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
                    plan.put_off.push(later(job, format!("a node says that it would not be paid: {why}"), now, true));
                    continue;
                }
                // Nobody could say. The others need not wait for it.
                Err(error) => {
                    plan.put_off.push(later(job, format!("what it costs cannot be asked now: {error}"), now, false));
                    continue;
                }
            };
            if quote.capped {
                plan.put_off.push(later(
                    job,
                    "the network asks for a higher price than is allowed".to_owned(),
                    now,
                    false,
                ));
                continue;
            }
            if quote.most > job.most_fee {
                let why = format!("it may cost {}, and {} is agreed", quote.most, job.most_fee);
                plan.put_off.push(later(job, why, now, true));
                continue;
            }
            if !purses.contains_key(&(job.lane, payment.coin.clone())) {
                plan.put_off.push(later(
                    job,
                    "what its wallet has of the coin cannot be asked now".to_owned(),
                    now,
                    false,
                ));
                continue;
            }
            match take(&mut purses, job.lane, &payment, quote.most) {
                Ok(()) => ready.push(Ready { job, payment, quote }),
                Err(why) => plan.put_off.push(later(job, why, now, true)),
            }
        }
        Ok(ready)
    }

    /// What each lane has of each coin beyond what its open slots may still take.
    async fn available(
        &self,
        work: &LaneWork,
        own: &HashMap<LaneId, Address>,
        candidates: &[(&JobRow, Payment)],
    ) -> Result<HashMap<(LaneId, Coin), RawAmount>, OutboundError> {
        let mut keys: BTreeSet<(LaneId, Coin)> = BTreeSet::new();
        for (job, payment) in candidates {
            keys.insert((job.lane, Coin::Native));
            keys.insert((job.lane, payment.coin.clone()));
        }
        let keys: Vec<(LaneId, Coin)> = keys.into_iter().filter(|(lane, _)| own.contains_key(lane)).collect();
        let asked: Vec<(Address, Coin)> =
            keys.iter().filter_map(|(lane, coin)| Some((own.get(lane)?.clone(), coin.clone()))).collect();
        if asked.is_empty() {
            return Ok(HashMap::new());
        }
        let mut purses: HashMap<(LaneId, Coin), RawAmount> = HashMap::new();
        match self.chain.balances(&asked).await {
            Ok(balances) => purses.extend(keys.into_iter().zip(balances)),
            // One coin that cannot be asked for must not keep the others from being paid.
            Err(_) => {
                for (key, one) in keys.into_iter().zip(&asked) {
                    if let Ok(balance) = self.chain.balances(std::slice::from_ref(one)).await {
                        purses.extend(balance.first().map(|balance| (key, *balance)));
                    }
                }
            }
        }
        for slot in work.slots.iter().filter(|slot| slot.mined().is_none()) {
            let fees =
                slot.attempts.iter().filter_map(|attempt| self.chain.decode_unsigned(&attempt.payload).ok()?.most_fee);
            let mut reserved = vec![(Coin::Native, fees.max().unwrap_or(RawAmount::ZERO))];
            reserved.extend(slot.jobs.iter().filter_map(|(job, _)| {
                let payment = self.ground.payment(job).ok()?;
                Some((payment.coin, payment.amount))
            }));
            for (coin, amount) in reserved {
                if let Some(purse) = purses.get_mut(&(slot.lane, coin)) {
                    *purse = purse.checked_sub(amount).unwrap_or(RawAmount::ZERO);
                }
            }
        }
        Ok(purses)
    }

    /// Slots for the jobs of one lane, in their order; gaps first. What is left of a gap is filled with nothing.
    fn slots(
        &self,
        own: &Address,
        ready: &[&Ready<'_>],
        open: &[&OpenSlot],
        nonces: Option<(u64, BTreeSet<u64>, bool)>,
        height: u64,
        plan: &mut Plan,
    ) -> Result<(), OutboundError> {
        let Some(first) = ready.first().map(|ready| ready.job.lane).or_else(|| open.first().map(|slot| slot.lane))
        else {
            return Ok(());
        };
        let (mined, mut held, fills) = match nonces {
            Some((mined, held, fills)) => (Some(mined), held, fills),
            None => (None, BTreeSet::new(), false),
        };
        // What is in a block already waits for nothing but its depth.
        let waits = |nonce: &u64| open.iter().any(|slot| slot.nonce == Some(*nonce) && slot.mined().is_none());
        let in_block = held.iter().filter(|nonce| Some(**nonce) >= mined && !waits(nonce)).count();
        let most = usize::try_from(self.ground.row.outbound.in_flight).unwrap_or(usize::MAX).saturating_add(in_block);
        for ready in ready {
            let nonce = match mined {
                None => None,
                Some(mined) => match Nonces::new(mined, held.iter().copied()).room(most) {
                    Room::Next(nonce) => Some(nonce),
                    Room::Gap(gaps) => gaps.first().copied(),
                    Room::Full => return Ok(()),
                },
            };
            let payload = match draft::pay(self.chain, own, nonce, ready.job, &ready.payment, &ready.quote) {
                Ok(payload) => payload,
                Err(why) => {
                    plan.put_off.push(over(ready.job, why, ready.job.due));
                    continue;
                }
            };
            held.extend(nonce);
            plan.slots.push(NewSlot {
                id: SlotId((self.ids)().ok_or(OutboundError::NoIds)?),
                lane: ready.job.lane,
                nonce,
                // The block that it refers to is a solidified one: no block below holds it.
                since: ready.quote.reference.map_or(height, |(reference, _)| reference.height.min(height)),
                jobs: vec![(ready.job.id, ready.job.version)],
                kind: AttemptKind::Pay,
                payload,
            });
        }
        let Some(mined) = mined else { return Ok(()) };
        if fills && let Room::Gap(gaps) = Nonces::new(mined, held.iter().copied()).room(most) {
            // What is behind the gap says what is offered.
            let fee = open
                .iter()
                .filter_map(|slot| self.chain.decode_unsigned(&slot.newest()?.payload).ok())
                .map(|old| old.fee);
            let Some(fee) = fee.last() else { return Ok(()) };
            for nonce in gaps {
                let Ok(payload) = draft::cancel(self.chain, own, nonce, fee) else { continue };
                plan.slots.push(NewSlot {
                    id: SlotId((self.ids)().ok_or(OutboundError::NoIds)?),
                    lane: first,
                    nonce: Some(nonce),
                    since: height,
                    jobs: Vec::new(),
                    kind: AttemptKind::Cancel(self.job_id()?),
                    payload,
                });
            }
        }
        Ok(())
    }

    fn job_id(&self) -> Result<JobId, OutboundError> {
        (self.ids)().and_then(|number| JobId::new(number).ok()).ok_or(OutboundError::NoIds)
    }

    // ---- signatures ------------------------------------------------------------------------------------------

    /// Has everything signed that is written down and is not, in one call.
    async fn sign(
        &mut self,
        held: &[HeldLane],
        work: &LaneWork,
        open: &[OpenSlot],
        own: &HashMap<LaneId, Address>,
        clock: &dyn Clock,
        sent: &mut SentRound,
    ) -> Result<(), OutboundError> {
        let lanes: HashMap<LaneId, &LaneRow> = work.lanes.iter().map(|lane| (lane.id, lane)).collect();
        let mut wanted: Vec<(Wanted<'_>, SignRequest)> = Vec::new();
        for slot in open {
            let Some(lane) =
                lanes.get(&slot.lane).filter(|lane| own.contains_key(&slot.lane) && lane.stopped.is_none())
            else {
                continue;
            };
            for attempt in slot.unsigned() {
                let one = Wanted { lane, slot, attempt };
                if let Some(request) = one.request(&self.ground, &self.signer_name)? {
                    wanted.push((one, request));
                }
            }
        }
        if wanted.is_empty() {
            return Ok(());
        }
        if !self.signer.is_ready() {
            return Ok(());
        }
        // At most one cancel goes before each.
        wanted.truncate(MOST_REQUESTS / 2);
        let asked: BTreeSet<SlotId> = wanted.iter().map(|(one, _)| one.slot.id).collect();
        let moves = self.moves(open, &asked, &lanes, own, clock.now()).await?;
        let leading = moves.len();
        let mut first: Vec<SignRequest> = moves.iter().map(|(_, request)| request.clone()).collect();
        first.extend(wanted.iter().map(|(_, request)| request.clone()));
        let answers = match self.signer.sign(&first).await {
            Ok(answers) => answers,
            // What may have been signed is asked for again, by the same names.
            Err(error) => {
                sent.waits = Some(error.to_string());
                return Ok(());
            }
        };
        let now = clock.now();
        // A job whose move was refused stays where it is; what its payment was told follows from that.
        let stays: BTreeSet<SlotId> = moves
            .iter()
            .zip(&answers)
            .filter(
                |(_, answer)| matches!(answer, SignAnswer::Refused { code, .. } if code != "SIGNER_NOTHING_TO_CANCEL"),
            )
            .map(|((slot, _), _)| *slot)
            .collect();
        let answers = answers.into_iter().skip(leading);
        let kept: Vec<SignedAttempt> = wanted
            .iter()
            .zip(answers)
            .filter_map(|((one, _), answer)| {
                let answer = if stays.contains(&one.slot.id) {
                    SignedAnswer::Later
                } else {
                    judge(answer, own.get(&one.slot.lane)?, one.slot, now)
                };
                Some(SignedAttempt { lane: one.slot.lane, slot: one.slot.id, number: one.attempt.number, answer })
            })
            .collect();
        let head = self.signer.head();
        let head = head.as_ref().map(|(name, head)| (name.as_str(), head));
        self.db.keep_signed(held, &kept, head, now).await?;
        let after = now.plus_micros(i64::from(self.ground.row.outbound.stuck_after_s) * 1_000_000);
        for (one, _) in wanted.iter().filter(|(one, _)| one.slot.jobs.is_empty()) {
            self.fillers.insert(one.slot.lane, after);
        }
        sent.signed = kept.iter().filter(|one| matches!(one.answer, SignedAnswer::Signed { .. })).count();
        sent.refused = kept.iter().filter(|one| matches!(one.answer, SignedAnswer::Refused { .. })).count();
        Ok(())
    }

    /// The cancels that let jobs go to another slot: of the nonce before, which is used up.
    async fn moves(
        &self,
        open: &[OpenSlot],
        asked: &BTreeSet<SlotId>,
        lanes: &HashMap<LaneId, &LaneRow>,
        own: &HashMap<LaneId, Address>,
        now: Timestamp,
    ) -> Result<Vec<(SlotId, SignRequest)>, OutboundError> {
        let moving: Vec<(&OpenSlot, &JobRow)> = open
            .iter()
            .filter(|slot| asked.contains(&slot.id) && slot.nonce.is_some() && slot.newest().is_none())
            .filter_map(|slot| slot.jobs.first().filter(|(_, round)| *round > 0).map(|(job, _)| (slot, job)))
            .collect();
        let former = self.db.former_nonces(&moving.iter().map(|(_, job)| job.id).collect::<Vec<_>>()).await?;
        let mut requests = Vec::new();
        for (slot, job) in moving {
            let (Some(lane), Some(own), Some(nonce)) =
                (lanes.get(&slot.lane), own.get(&slot.lane), former.get(&job.id))
            else {
                continue;
            };
            let Ok(payload) = draft::cancel(self.chain, own, *nonce, Fee::Legacy { gas_price: 1 }) else { continue };
            let number = (self.ids)().ok_or(OutboundError::NoIds)?;
            let request = Move { lane, job, number, payload, now }.request(&self.ground, &self.signer_name)?;
            requests.push((slot.id, request));
        }
        Ok(requests)
    }

    // ---- nodes -----------------------------------------------------------------------------------------------

    /// Tells the nodes of what is signed and was not told, and once more of what is to be told again.
    async fn tell(
        &self,
        held: &[HeldLane],
        open: &[OpenSlot],
        again: &HashSet<SlotId>,
        clock: &dyn Clock,
        sent: &mut SentRound,
    ) -> Result<(), OutboundError> {
        let mut wanted: Vec<(&OpenSlot, &AttemptRow, &[u8])> = Vec::new();
        // Nothing cancels what has no nonce but its time: given up, it is not told.
        let is_over = |slot: &OpenSlot| slot.nonce.is_none() && slot.jobs.iter().any(|(job, _)| job.give_up);
        for slot in open.iter().filter(|slot| slot.mined().is_none() && !is_over(slot)) {
            let untold = slot.attempts.iter().filter(|attempt| attempt.told.is_none());
            let newest = slot.newest().filter(|_| again.contains(&slot.id));
            for attempt in untold.chain(newest) {
                if let Some((bytes, _)) = &attempt.signed {
                    wanted.push((slot, attempt, bytes));
                }
            }
        }
        if wanted.is_empty() {
            return Ok(());
        }
        // In the order of their nonces, as far as nodes take them in order.
        wanted.sort_by_key(|(slot, attempt, _)| (slot.nonce, slot.id, attempt.number));
        let mut tellings: Vec<BoxFuture<'_, Told<'_>>> = Vec::with_capacity(wanted.len());
        for (slot, attempt, bytes) in wanted {
            tellings.push(Box::pin(async move { (slot, attempt.number, self.chain.broadcast(bytes).await) }));
        }
        let said: Vec<_> = stream::iter(tellings).buffered(AT_ONCE).collect().await;
        let mut told: Vec<ToldAttempt> = Vec::new();
        for (slot, number, answer) in said {
            let said = match answer {
                Ok(Broadcast::Taken) => "nodes have it".to_owned(),
                Ok(Broadcast::Refused(_, words)) => format!("nodes say: {words}"),
                // Nobody may have heard of it.
                Err(error) => {
                    sent.waits = Some(error.to_string());
                    continue;
                }
            };
            told.push(ToldAttempt { lane: slot.lane, slot: slot.id, number, said });
        }
        sent.told += told.len();
        Ok(self.db.keep_told(held, &told, clock.now()).await?)
    }
}

/// Takes what a payment needs out of what a lane has, or says what is missing.
fn take(
    purses: &mut HashMap<(LaneId, Coin), RawAmount>,
    lane: LaneId,
    payment: &Payment,
    fee: RawAmount,
) -> Result<(), String> {
    let has = |coin: &Coin| purses.get(&(lane, coin.clone())).copied().unwrap_or(RawAmount::ZERO);
    let native = if payment.coin == Coin::Native { fee.checked_add(payment.amount) } else { Some(fee) };
    let native = native.ok_or_else(|| "no wallet can have so much".to_owned())?;
    let lacks = |what: &str, has: RawAmount, wanted: RawAmount| {
        format!("its wallet has {has} of {what} to spare, and needs {wanted}")
    };
    let left =
        has(&Coin::Native).checked_sub(native).ok_or_else(|| lacks("the chain's coin", has(&Coin::Native), native))?;
    if payment.coin != Coin::Native {
        let rest = has(&payment.coin).checked_sub(payment.amount);
        let rest = rest.ok_or_else(|| lacks("the coin", has(&payment.coin), payment.amount))?;
        purses.insert((lane, payment.coin.clone()), rest);
    }
    purses.insert((lane, Coin::Native), left);
    Ok(())
}

fn over(job: &JobRow, words: String, now: Timestamp) -> PutOff {
    PutOff { lane: job.lane, job: job.id, version: job.version, over: true, words, due: now, tried: true }
}

/// It rests, twice as long each time; after so many tries it is over.
fn later(job: &JobRow, words: String, now: Timestamp, tried: bool) -> PutOff {
    let tries = job.tries.saturating_add(u32::from(tried));
    PutOff {
        lane: job.lane,
        job: job.id,
        version: job.version,
        over: tries >= MOST_TRIES,
        words,
        due: now.plus_micros(pause_micros(tries.saturating_sub(1))),
        tried,
    }
}
