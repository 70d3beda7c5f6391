//! What a sending worker is to write before anything is signed. Nothing is written here, and nothing is told: nodes are asked, rows were read.

use std::collections::{BTreeSet, HashMap, HashSet};

use chain::{ChainError, Quote, QuoteRequest};
use domain::outbound::{JobKind, MOST_TRIES, Nonces, Room, Urge, Wait, pause_micros};
use domain::{ChainKind, GroupId, RawAmount, Timestamp};
use store::outbound::{
    AttemptKind, JobId, JobRow, LaneId, LaneRow, LaneWork, NewAttempt, NewSlot, OpenSlot, PutOff, SlotId, TOO_LATE,
};
use store::treasury::act::{ENOUGH_GAS, TOO_DEAR};
use tx::{Address, BlockRef, Coin, Fee, Payment};

use super::gather::Market;
use super::send::SendWorker;
use super::till::Till;
use super::{OutboundError, draft};
use crate::treasury::REQUESTER;

/// Nothing is sent while the chain's own books are so many blocks behind: fewer than a transaction of TRON lives.
const MOST_BEHIND: u64 = 100;

/// Bitcoin: the same of the wallet's own blocks, which come every ten minutes.
const MOST_UNREAD: u64 = 6;

/// Satoshi for 1,000 virtual bytes: what nodes pass on by default.
pub(crate) const LEAST_RATE: u64 = 1_000;

/// What is to be written before anything is signed.
#[derive(Default)]
pub(super) struct Plan {
    pub slots: Vec<NewSlot>,
    pub attempts: Vec<NewAttempt>,
    pub put_off: Vec<PutOff>,
    /// What a quorum has mined of each lane's nonces.
    pub known: HashMap<LaneId, u64>,
    /// Attempts whose bytes are told once more.
    pub again: HashSet<SlotId>,
    /// Jobs for which people want more to be offered, and no more may be.
    pub at_most: Vec<JobId>,
}

/// A job that may be paid now.
struct Ready<'a> {
    job: &'a JobRow,
    payment: Payment,
    quote: Quote,
}

impl SendWorker<'_> {
    pub(super) async fn plan(
        &self,
        work: &LaneWork,
        own: &HashMap<LaneId, Address>,
        tills: &HashMap<GroupId, Till>,
        now: Timestamp,
    ) -> Result<Plan, OutboundError> {
        let mut plan = Plan::default();
        let sending: Vec<&LaneRow> =
            work.lanes.iter().filter(|lane| lane.stopped.is_none() && own.contains_key(&lane.id)).collect();
        if sending.is_empty() {
            return Ok(plan);
        }
        let head = self.chain.head().await?;
        // What is settled is a quorum's word; without one, nothing is known of nonces, and nothing of how far the books are.
        let young = head.tip.height < u64::from(self.ground.row.confirmations);
        let settled = head.settled.or(young.then_some(0)).ok_or(ChainError::NoQuorum { wanted: 1, agreed: 0 })?;
        // A payment that an old backup has forgotten shows in the chain's books as one that is none of ours, and stops its group. So nothing is
        // sent before the books have been read.
        let books = self.db.chain_standing(&self.ground.row).await?;
        if let Some(proven) = books.map(|books| books.proven_height.unwrap_or(0))
            && proven.saturating_add(MOST_BEHIND) < settled
        {
            return Err(OutboundError::BooksBehind { proven, settled });
        }
        if self.ground.row.kind == ChainKind::Bitcoin {
            let market = self.market(own, settled).await?;
            self.raise(work, own, tills, market, now, &mut plan).await?;
            self.gather(work, own, tills, market, now, &mut plan).await?;
            return Ok(plan);
        }
        let mined = if self.ground.has_nonces() { self.mined(&sending, own, settled).await? } else { HashMap::new() };
        let usable = self.explained(work, &sending, &mined, now).await?;
        plan.known =
            mined.iter().filter(|(lane, _)| usable.contains(lane)).map(|(lane, nonce)| (*lane, *nonce)).collect();
        self.urge(work, own, &mined, &usable, now, &mut plan).await?;
        self.yield_nonces(work, own, &usable, head.tip.height, &mut plan).await?;
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

    /// Bitcoin: what is asked now, and how far the chain and the wallet are.
    async fn market(&self, own: &HashMap<LaneId, Address>, settled: u64) -> Result<Market, OutboundError> {
        // The wallet chooses its coins by what it has read.
        let read = self.db.tip().await?.map_or(0, |(height, _)| u64::from(height));
        if read.saturating_add(MOST_UNREAD) < settled {
            return Err(OutboundError::BooksBehind { proven: read, settled });
        }
        let from = own.values().next().ok_or(ChainError::ForeignAddress)?;
        let limits = &self.ground.row.outbound;
        let payment = Payment { to: from.clone(), coin: Coin::Native, amount: RawAmount::ZERO };
        let cap = draft::cap(self.ground.row.kind, limits, limits.fee_cap);
        let quote = self.chain.quote(from, &payment, cap).await?;
        let Fee::PerKvb(rate) = quote.fee else { return Err(ChainError::ForeignAddress.into()) };
        // One node's word for nothing would leave a payment where nobody takes it up.
        let row = &self.ground.row;
        let last = settled.saturating_sub(u64::from(row.final_confirmations.saturating_sub(row.confirmations)));
        Ok(Market { rate: rate.max(LEAST_RATE).min(limits.price_cap), capped: quote.capped, settled, last, read })
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
            let given_up = slot.jobs.iter().any(|(job, _)| job.give_up);
            let Some(newest) = slot.newest() else { continue };
            // A payment that was given up before it was told is never told: its cancel does not wait for that.
            let untold = given_up && newest.kind == AttemptKind::Pay;
            let last = || slot.attempts.iter().filter_map(|one| one.told).max().unwrap_or(newest.created);
            let Some(told) = newest.told.or_else(|| untold.then(last)) else { continue };
            let used = slot.nonce.zip(mined.get(&slot.lane)).is_some_and(|(nonce, mined)| nonce < *mined);
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
        let lanes: BTreeSet<LaneId> = waiting.iter().map(|(slot, ..)| slot.lane).collect();
        let price = self.price(own, &lanes.iter().copied().collect::<Vec<_>>()).await?;
        let purses = self.native_balances(&lanes, own).await;
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
                // Where no node was told of anything, as much as the payment offers is enough: at the cap it could offer no more, and would wait for ever.
                let heard = slot.attempts.iter().any(|one| one.told.is_some());
                let same = || draft::cancel(self.chain, address, slot.nonce.filter(|_| !heard)?, old.fee).ok();
                let cancel = draft::cancel_instead(self.chain, address, &old, price, cap).or_else(same);
                cancel.map(|payload| (payload, true))
            } else if wait.urge(now, after) == Urge::Replace {
                let cancels = matches!(newest.kind, AttemptKind::Cancel(_));
                draft::offer_more(self.chain, address, &old, price, (cap, most)).map(|payload| (payload, cancels))
            } else {
                None
            };
            // What its wallet cannot pay no node takes, and what it offered before would be told no more: that goes on being told instead.
            let next = next.filter(|(payload, _)| self.is_affordable(payload, purses.get(&slot.lane).copied()));
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
                    plan.attempts.push(NewAttempt {
                        lane: slot.lane,
                        slot: slot.id,
                        number,
                        kind,
                        payload,
                        coins: None,
                    });
                }
                None => {
                    // Or the same would be told every few seconds for as long as it waits.
                    let wanted = slot.jobs.iter().filter(|(job, _)| job.bump && !end).map(|(job, _)| job.id);
                    plan.at_most.extend(wanted);
                    plan.again.insert(slot.id);
                }
            }
        }
        Ok(())
    }

    /// Nonces that the signer has signed for jobs which no row has there. Two people have let the wallet go on since it said so: a cancel of such a job takes
    /// its nonce, so that at most one of the two is mined, and what was to be paid there waits for another.
    async fn yield_nonces(
        &self,
        work: &LaneWork,
        own: &HashMap<LaneId, Address>,
        usable: &BTreeSet<LaneId>,
        height: u64,
        plan: &mut Plan,
    ) -> Result<(), OutboundError> {
        let is_held =
            |slot: &&OpenSlot| usable.contains(&slot.lane) && !slot.jobs.is_empty() && slot.newest().is_none();
        let mut fee = None;
        for slot in work.slots.iter().filter(is_held) {
            let (Some(by), Some(nonce), Some(address)) = (slot.holder, slot.nonce, own.get(&slot.lane)) else {
                continue;
            };
            let offered = match fee {
                Some(offered) => offered,
                None => *fee.insert(self.price(own, &[slot.lane]).await?),
            };
            let Ok(payload) = draft::cancel(self.chain, address, nonce, offered) else { continue };
            plan.slots.push(NewSlot {
                id: SlotId((self.ids)().ok_or(OutboundError::NoIds)?),
                lane: slot.lane,
                nonce: Some(nonce),
                since: slot.since.min(height),
                jobs: Vec::new(),
                kind: AttemptKind::Cancel(self.job_id()?),
                payload,
                coins: None,
                instead: Some((slot.id, by)),
            });
        }
        Ok(())
    }

    /// What these lanes have of the chain's own coin. Empty: nobody can say now.
    async fn native_balances(
        &self,
        lanes: &BTreeSet<LaneId>,
        own: &HashMap<LaneId, Address>,
    ) -> HashMap<LaneId, RawAmount> {
        let lanes: Vec<LaneId> = lanes.iter().copied().filter(|lane| own.contains_key(lane)).collect();
        let asked: Vec<(Address, Coin)> =
            lanes.iter().filter_map(|lane| Some((own.get(lane)?.clone(), Coin::Native))).collect();
        let balances = self.chain.balances(&asked).await.unwrap_or_default();
        lanes.into_iter().zip(balances).collect()
    }

    /// Whether a wallet with so much can pay for it. Where that is not known, nodes say.
    fn is_affordable(&self, payload: &[u8], has: Option<RawAmount>) -> bool {
        let Some(has) = has else { return true };
        let Ok(meaning) = self.chain.decode_unsigned(payload) else { return false };
        let pays = meaning.payments.iter().filter(|payment| payment.coin == Coin::Native).map(|payment| payment.amount);
        let most = meaning.most_fee.unwrap_or(RawAmount::ZERO);
        let needs = pays.into_iter().try_fold(most, RawAmount::checked_add);
        needs.is_some_and(|needs| needs <= has)
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
            if *room == 0 {
                continue;
            }
            if job.give_up {
                plan.put_off.push(over(job, "people gave it up".to_owned(), now));
                continue;
            }
            if job.expires <= now {
                plan.put_off.push(over(job, TOO_LATE.to_owned(), now));
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
        let candidates = self.still_needed(candidates, now, plan).await?;
        let mut requests = Vec::with_capacity(candidates.len());
        for (job, payment) in &candidates {
            let cap = draft::cap(self.ground.row.kind, limits, job.most_fee);
            // Lanes without an address are not usable.
            let from = own.get(&job.lane).ok_or(ChainError::ForeignAddress)?;
            requests.push(QuoteRequest { from, payment, cap });
        }
        let quotes = self.chain.quotes(&requests).await;
        let mut purses = self.available(work, own, &candidates).await?;
        let mut ready = Vec::new();
        for ((job, payment), quote) in candidates.into_iter().zip(quotes) {
            let quote = match quote {
                Ok(quote) if self.is_of_a_share(job) => {
                    // Lanes without an address are not usable.
                    let from = own.get(&job.lane).ok_or(ChainError::ForeignAddress)?;
                    match draft::within(self.chain, from, job, &payment, quote) {
                        Some(quote) => quote,
                        // The rule decides again, by the prices of then: that is no try, and no failure.
                        None => {
                            plan.put_off.push(over(job, TOO_DEAR.to_owned(), now));
                            continue;
                        }
                    }
                }
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
            match take(&mut purses, job.lane, &payment, quote.needs) {
                Ok(()) => ready.push(Ready { job, payment, quote }),
                Err(why) => plan.put_off.push(short(job, why, now, true)),
            }
        }
        Ok(ready)
    }

    /// A sweep that may cost no more than its rule's share of what it brings.
    fn is_of_a_share(&self, job: &JobRow) -> bool {
        job.kind == JobKind::Consolidation
            && job.requester == REQUESTER
            && job.most_fee < self.ground.row.outbound.fee_cap
    }

    /// Gas for an address that has enough by now is not sent: somebody else has paid it, or this database has forgotten that it did. Enough is what its
    /// rule calls so; where no rule says it any more, as much as it would bring.
    async fn still_needed<'w>(
        &self,
        candidates: Vec<(&'w JobRow, Payment)>,
        now: Timestamp,
        plan: &mut Plan,
    ) -> Result<Vec<(&'w JobRow, Payment)>, OutboundError> {
        let is_gas = |job: &JobRow| job.kind == JobKind::GasTopup;
        let asked: Vec<(Address, Coin)> = candidates
            .iter()
            .filter(|(job, _)| is_gas(job))
            .map(|(_, payment)| (payment.to.clone(), Coin::Native))
            .collect();
        if asked.is_empty() {
            return Ok(candidates);
        }
        let gas: Vec<JobId> =
            candidates.iter().map(|(job, _)| *job).filter(|job| is_gas(job)).map(|job| job.id).collect();
        let conditions = self.db.topup_conditions(&self.ground.row, &gas).await?;
        let balances = self.chain.balances(&asked).await;
        let mut balances = balances.map(Vec::into_iter);
        let mut needed = Vec::with_capacity(candidates.len());
        for (job, payment) in candidates {
            if !is_gas(job) {
                needed.push((job, payment));
                continue;
            }
            match &mut balances {
                Ok(balances) => match balances.next() {
                    Some(has)
                        if has >= payment.amount || conditions.get(&job.id).is_some_and(|needs| !needs.holds(has)) =>
                    {
                        // Always the same words: by them rules know that it has not failed.
                        let figures = format!("{ENOUGH_GAS}: {has}, and it would bring {}", payment.amount);
                        let over = over(job, ENOUGH_GAS.to_owned(), now);
                        plan.put_off.push(PutOff { history: Some(figures), ..over });
                    }
                    Some(_) | None => needed.push((job, payment)),
                },
                Err(error) => {
                    let why = format!("what its address has cannot be asked now: {error}");
                    plan.put_off.push(later(job, why, now, false));
                }
            }
        }
        Ok(needed)
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
        let (mined, held, fills) = match nonces {
            Some((mined, held, fills)) => (Some(mined), held, fills),
            None => (None, BTreeSet::new(), false),
        };
        // What is in a block already waits for nothing but its depth.
        let waiting: HashSet<u64> =
            open.iter().filter(|slot| slot.mined().is_none()).filter_map(|slot| slot.nonce).collect();
        let in_block = held.iter().filter(|nonce| Some(**nonce) >= mined && !waiting.contains(nonce)).count();
        let mut nonces = mined.map(|mined| Nonces::new(mined, held));
        let most = usize::try_from(self.ground.row.outbound.in_flight).unwrap_or(usize::MAX).saturating_add(in_block);
        for ready in ready {
            let nonce = match &nonces {
                None => None,
                Some(nonces) => match nonces.room(most) {
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
            if let (Some(nonces), Some(nonce)) = (&mut nonces, nonce) {
                nonces.hold(nonce);
            }
            plan.slots.push(NewSlot {
                id: SlotId((self.ids)().ok_or(OutboundError::NoIds)?),
                lane: ready.job.lane,
                nonce,
                // The block that it refers to is a solidified one: no block below holds it.
                since: ready.quote.reference.map_or(height, |(reference, _)| reference.height.min(height)),
                jobs: vec![(ready.job.id, ready.job.version)],
                kind: AttemptKind::Pay,
                payload,
                coins: None,
                instead: None,
            });
        }
        let Some(nonces) = nonces else { return Ok(()) };
        if fills && let Room::Gap(gaps) = nonces.room(most) {
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
                    coins: None,
                    instead: None,
                });
            }
        }
        Ok(())
    }

    fn job_id(&self) -> Result<JobId, OutboundError> {
        (self.ids)().and_then(|number| JobId::new(number).ok()).ok_or(OutboundError::NoIds)
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

pub(super) fn over(job: &JobRow, words: String, now: Timestamp) -> PutOff {
    PutOff {
        lane: job.lane,
        job: job.id,
        version: job.version,
        over: true,
        words,
        history: None,
        due: now,
        tried: true,
        short: false,
    }
}

/// It rests, twice as long each time; after so many tries it is over.
pub(super) fn later(job: &JobRow, words: String, now: Timestamp, tried: bool) -> PutOff {
    let tries = job.tries.saturating_add(u32::from(tried));
    PutOff {
        lane: job.lane,
        job: job.id,
        version: job.version,
        over: tries >= MOST_TRIES,
        words,
        history: None,
        due: now.plus_micros(pause_micros(tries.saturating_sub(1))),
        tried,
        short: false,
    }
}

/// The same, because its wallet has too little.
pub(super) fn short(job: &JobRow, words: String, now: Timestamp, tried: bool) -> PutOff {
    PutOff { short: true, ..later(job, words, now, tried) }
}
