//! Bitcoin: payouts of a lane that share a transaction.
//!
//! Coins are leased while the transaction is planned, and with the slot's row for as long as it is open. Whoever dies in between leaves a
//! lease that ends by itself.

use std::collections::{HashMap, HashSet};

use domain::outbound::{Gathering, goes};
use domain::{GroupId, Timestamp};
use ruint::aliases::U256;
use signer::reading::MOST_HELD;
use store::outbound::{
    AttemptKind, JobId, JobRow, LaneId, LaneRow, LaneWork, NewSlot, PutOff, Reserved, SlotId, TOO_LATE,
};
use store::utxo::{Allow, Candidate, Coin, UtxoError, UtxoId, Want};
use tx::{Address, Payment};

use super::OutboundError;
use super::bundle::Sweeper;
use super::plan::{Plan, later, over, short};
use super::send::SendWorker;
use super::till::{Till, back_to, recipient};
use crate::bitcoin::{self, Aim, Costs, Recipient, ScriptKind, SpendError, Target, chooser};

/// A choice of coins becomes a slot within this time, or is let go.
const LEASE_MICROS: i64 = 300_000_000;

/// So many small coins are taken along at most.
const MOST_JOINED: usize = 20;

/// So often coins are chosen for a transaction in a round.
const MOST_CHOICES: usize = 4;

/// A coin is small when it holds less than so many times what it costs to spend.
const SMALL: u64 = 50;

const FOREIGN: &str = "its coins lie at addresses that no wallet of the house has";

/// A payout that could be part of the transaction.
pub(super) struct Payout<'a> {
    pub job: &'a JobRow,
    pub output: Recipient,
}

/// The lane that pays, and what is known when it does.
struct Payer<'a> {
    lane: &'a LaneRow,
    till: Till,
    own: &'a Address,
    market: Market,
    /// Transactions of it wait for their blocks.
    busy: bool,
    /// What sweeps bring it that are in no block.
    coming_home: HashSet<UtxoId>,
}

/// What a round knows of the chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Market {
    /// Satoshi for 1,000 virtual bytes.
    pub rate: u64,
    /// The network asks for more than is allowed.
    pub capped: bool,
    /// The newest block that a quorum has settled.
    pub settled: u64,
    /// The newest that is final.
    pub last: u64,
    /// The last block that the wallet store has read.
    pub read: u64,
}

/// Why a transaction was not planned.
enum Unplanned {
    /// With fewer payouts it might be.
    TooMuch(String),
    /// The same, because its wallet has too little.
    TooLittle(String),
    /// Not now, whatever is left out.
    NotNow(String),
    /// Nobody here can sign for these coins.
    Foreign(Vec<UtxoId>),
}

impl SendWorker<'_> {
    /// One transaction for each lane whose payouts have waited long enough.
    pub(super) async fn gather(
        &self,
        work: &LaneWork,
        own: &HashMap<LaneId, Address>,
        tills: &HashMap<GroupId, Till>,
        market: Market,
        now: Timestamp,
        plan: &mut Plan,
    ) -> Result<(), OutboundError> {
        let limits = &self.ground.row.outbound;
        let most = usize::try_from(limits.in_flight).unwrap_or(usize::MAX);
        for lane in work.lanes.iter().filter(|lane| lane.stopped.is_none()) {
            let Some(address) = own.get(&lane.id) else { continue };
            let payouts = self.payouts(work, lane.id, now, plan);
            let put_off =
                |why: &str| payouts.iter().map(|payout| later(payout.job, why.to_owned(), now, false)).collect();
            let Some(till) = tills.get(&lane.group) else {
                let all: Vec<PutOff> =
                    put_off("there is no Bitcoin wallet with the name of its group: bursar apply makes it");
                plan.put_off.extend(all);
                continue;
            };
            if market.capped {
                let all: Vec<PutOff> = put_off("the network asks for a higher price than is allowed");
                plan.put_off.extend(all);
                continue;
            }
            let open = work.slots.iter().filter(|slot| slot.lane == lane.id && slot.mined().is_none()).count();
            let mut room = most.saturating_sub(open);
            if self.ground.is_users(&lane.group) {
                self.bundles(&Sweeper { lane, till: *till, market, room }, &payouts, now, plan).await?;
                continue;
            }
            let coming_home = self.db.coming_home(till.wallet, self.ground.row.id).await?.into_iter().collect();
            let payer = Payer { lane, till: *till, own: address, market, busy: open > 0, coming_home };
            for some in batches(&payouts, usize::try_from(limits.gather_most).unwrap_or(usize::MAX)) {
                let waiting: Vec<Gathering> = some
                    .iter()
                    .map(|payout| Gathering { since: payout.job.created, priority: payout.job.priority })
                    .collect();
                if room > 0 && goes(&waiting, limits, now) {
                    room -= 1;
                    self.share(&payer, &some, now, plan).await?;
                }
            }
        }
        Ok(())
    }

    /// The jobs of a lane that an output can pay, in their order. The others are over.
    fn payouts<'w>(&self, work: &'w LaneWork, lane: LaneId, now: Timestamp, plan: &mut Plan) -> Vec<Payout<'w>> {
        let mut payouts = Vec::new();
        for job in work.due.iter().filter(|job| job.lane == lane) {
            let output = if job.give_up {
                Err("people gave it up".to_owned())
            } else if job.expires <= now {
                Err(TOO_LATE.to_owned())
            } else {
                self.ground.payment(job).and_then(|payment| output_of(&payment))
            };
            match output {
                Ok(output) => payouts.push(Payout { job, output }),
                Err(why) => plan.put_off.push(over(job, why, now)),
            }
        }
        payouts
    }

    /// A transaction for as many of these as one can pay, the first ones in any case. If even the first cannot be paid, it rests.
    async fn share(
        &self,
        payer: &Payer<'_>,
        payouts: &[&Payout<'_>],
        now: Timestamp,
        plan: &mut Plan,
    ) -> Result<(), OutboundError> {
        let mut count = payouts.len();
        loop {
            let some = payouts.get(..count).unwrap_or_default();
            let Some(first) = some.first() else { return Ok(()) };
            let id = SlotId((self.ids)().ok_or(OutboundError::NoIds)?);
            match self.transaction(payer, some, &plan.slots, id, now).await? {
                Ok((payload, coins)) => {
                    plan.slots.push(NewSlot {
                        id,
                        lane: payer.lane.id,
                        nonce: None,
                        // Whatever spent these coins was in no block that the wallet has read.
                        since: payer.market.settled.min(payer.market.read),
                        jobs: some.iter().map(|payout| (payout.job.id, payout.job.version)).collect(),
                        kind: AttemptKind::Pay,
                        payload,
                        coins: Some(coins),
                        instead: None,
                    });
                    return Ok(());
                }
                Err(Unplanned::TooMuch(_) | Unplanned::TooLittle(_)) if count > 1 => count /= 2,
                Err(why @ (Unplanned::TooMuch(_) | Unplanned::TooLittle(_))) => {
                    // While something is out, what it brings back may be enough.
                    let counts = !payer.busy && plan.slots.is_empty();
                    plan.put_off.push(match why {
                        Unplanned::TooLittle(why) => short(first.job, why, now, counts),
                        Unplanned::TooMuch(why) | Unplanned::NotNow(why) => later(first.job, why, now, counts),
                        Unplanned::Foreign(_) => later(first.job, FOREIGN.to_owned(), now, counts),
                    });
                    return Ok(());
                }
                Err(Unplanned::NotNow(why)) => {
                    plan.put_off.extend(some.iter().map(|payout| later(payout.job, why.clone(), now, false)));
                    return Ok(());
                }
                Err(Unplanned::Foreign(_)) => {
                    plan.put_off.extend(some.iter().map(|payout| later(payout.job, FOREIGN.to_owned(), now, false)));
                    return Ok(());
                }
            }
        }
    }

    /// Coins for these payouts, leased, and the transaction that spends them. Beside it are those that this round has planned before.
    async fn transaction(
        &self,
        payer: &Payer<'_>,
        payouts: &[&Payout<'_>],
        beside: &[NewSlot],
        slot: SlotId,
        now: Timestamp,
    ) -> Result<Result<(Vec<u8>, Reserved), Unplanned>, OutboundError> {
        let most_fee =
            payouts.iter().map(|payout| payout.job.most_fee.to_u256()).fold(U256::ZERO, U256::saturating_add);
        let rate = payer.market.rate;
        let costs = Costs {
            rate,
            long_term_rate: self.ground.row.outbound.join_below.min(rate),
            most_fee: u64::try_from(most_fee).unwrap_or(u64::MAX),
        };
        let kind = payer.own.script_bytes().and_then(|script| ScriptKind::of(bitcoin::kind_of_script(&script)));
        let recipients: Vec<Recipient> = payouts.iter().map(|payout| payout.output.clone()).collect();
        let target = Target { recipients, change: kind.unwrap_or(ScriptKind::P2wpkh), costs, aim: Aim::Pay };
        let mut along = self.small_coins(payer, now).await?;
        // A payout that builds on a sweep of users' addresses could not bring it into a block: the sweep offers what it offers.
        let mut avoid: HashSet<UtxoId> = payer.coming_home.clone();
        for _ in 0..MOST_CHOICES {
            let wish = Choice { till: payer.till, last: payer.market.last, along: &along, avoid: &avoid };
            let coins = match lease(self, &wish, &target, slot, now).await? {
                Ok(coins) => coins,
                Err(why) => return Ok(Err(why)),
            };
            if !along.is_empty() && !self.leaves_enough(payer, payouts, beside, now).await? {
                self.let_go(payer.till, slot).await?;
                along.clear();
                continue;
            }
            let why = match self.planned(payer, payouts.len(), &coins, &target) {
                Ok(payload) => {
                    let outpoints = coins.iter().map(|coin| coin.outpoint).collect();
                    return Ok(Ok((payload, Reserved { wallet: payer.till.wallet, outpoints })));
                }
                Err(why) => why,
            };
            self.let_go(payer.till, slot).await?;
            match why {
                Unplanned::Foreign(coins) => avoid.extend(coins),
                // Without the small ones it may be cheap enough, and small enough.
                _ if !along.is_empty() => {}
                why => return Ok(Err(why)),
            }
            along.clear();
        }
        Ok(Err(Unplanned::NotNow("its coins cannot be chosen now".to_owned())))
    }

    fn planned(
        &self,
        payer: &Payer<'_>,
        payouts: usize,
        coins: &[Coin],
        target: &Target,
    ) -> Result<Vec<u8>, Unplanned> {
        let foreign = self.foreign(&payer.lane.group, coins);
        if !foreign.is_empty() {
            return Err(Unplanned::Foreign(foreign));
        }
        if coins.len().saturating_mul(payouts) > MOST_HELD {
            return Err(Unplanned::TooMuch("it needs more coins than the signer takes for so many payouts".to_owned()));
        }
        let planned = bitcoin::plan(coins, target, &back_to(coins, payer.own)).map_err(unplanned)?;
        let unsigned = bitcoin::unsigned(&planned, payer.till.network, 0).map_err(unplanned)?;
        Ok(unsigned.bytes)
    }

    /// Those that lie where no wallet of the group is.
    pub(super) fn foreign(&self, group: &GroupId, coins: &[Coin]) -> Vec<UtxoId> {
        let strange = |coin: &&Coin| self.ground.number_of(group, &coin.script).is_none();
        coins.iter().filter(strange).map(|coin| coin.id).collect()
    }

    /// Small coins that may be taken along while that is cheap.
    async fn small_coins(&self, payer: &Payer<'_>, now: Timestamp) -> Result<Vec<UtxoId>, OutboundError> {
        let rate = payer.market.rate;
        if rate > self.ground.row.outbound.join_below {
            return Ok(Vec::new());
        }
        let cost = |kind: ScriptKind| kind.input_weight().div_ceil(4).saturating_mul(rate).div_ceil(1_000);
        let limit = cost(ScriptKind::P2wpkh).saturating_mul(SMALL);
        let want = want(i64::try_from(limit).unwrap_or(i64::MAX), 0, payer.market.last);
        let candidates = match self.db.candidates(payer.till.wallet, payer.till.account, &want, now).await {
            Ok(candidates) => candidates,
            Err(UtxoError::Store(error)) => return Err(error.into()),
            Err(UtxoError::Refused(_)) => return Ok(Vec::new()),
        };
        let is_small = |one: &&Candidate| {
            let worth = ScriptKind::of(one.kind).zip(u64::try_from(one.amount).ok());
            one.confirmed && worth.is_some_and(|(kind, amount)| amount > cost(kind) && amount <= limit)
        };
        let mut small: Vec<&Candidate> = candidates.iter().filter(is_small).collect();
        small.sort_by_key(|one| (one.amount, one.id));
        Ok(small.into_iter().take(MOST_JOINED).map(|one| one.id).collect())
    }

    /// Whether what is in blocks and held by nobody, these coins left out, is enough for the other payouts that wait for this
    /// wallet and for others of its group, which spend the same coins.
    async fn leaves_enough(
        &self,
        payer: &Payer<'_>,
        payouts: &[&Payout<'_>],
        beside: &[NewSlot],
        now: Timestamp,
    ) -> Result<bool, OutboundError> {
        let waiting = self.db.waiting_amounts(payer.lane.id).await?;
        let paid: HashSet<JobId> = payouts
            .iter()
            .map(|payout| payout.job.id)
            .chain(beside.iter().flat_map(|slot| slot.jobs.iter().map(|(job, _)| *job)))
            .collect();
        let others = waiting.into_iter().filter(|(id, _)| !paid.contains(id));
        let needed = others.map(|(_, takes)| takes.to_u256()).fold(U256::ZERO, U256::saturating_add);
        if needed.is_zero() {
            return Ok(true);
        }
        let accounts = match self.db.balance(payer.till.wallet, now).await {
            Ok(accounts) => accounts,
            Err(UtxoError::Store(error)) => return Err(error.into()),
            Err(UtxoError::Refused(_)) => return Ok(false),
        };
        let left = accounts.get(&payer.till.account).map_or(0, |one| one.confirmed - one.immature - one.leased);
        Ok(needed <= U256::from(u64::try_from(left).unwrap_or(0)))
    }

    /// What was leased for a slot that there will not be.
    pub(super) async fn let_go(&self, till: Till, slot: SlotId) -> Result<(), OutboundError> {
        self.db.release(till.wallet, slot.lock()).await?;
        Ok(())
    }
}

/// What may be chosen.
struct Choice<'a> {
    till: Till,
    last: u64,
    /// Taken in any case.
    along: &'a [UtxoId],
    /// Taken in no case.
    avoid: &'a HashSet<UtxoId>,
}

/// Strangers' coins count when their blocks are final: what spends one that leaves the chain can never be mined, and nothing proves that.
fn want(target: i64, seed: u64, last: u64) -> Want {
    let allow = Allow { settled: Some(u32::try_from(last).unwrap_or(u32::MAX)), ..Allow::default() };
    Want { target, allow, seed }
}

/// Leases what the target needs beside what it has.
async fn lease(
    worker: &SendWorker<'_>,
    choice: &Choice<'_>,
    target: &Target,
    slot: SlotId,
    now: Timestamp,
) -> Result<Result<Vec<Coin>, Unplanned>, OutboundError> {
    let wanted = match target.wanted() {
        Ok(wanted) => wanted,
        Err(error) => return Ok(Err(unplanned(error))),
    };
    let want = want(wanted, slot.0.unsigned_abs(), choice.last);
    let until = now.plus_micros(LEASE_MICROS);
    let (mut refused, mut first) = (None, true);
    let till = choice.till;
    let leased = {
        let mut choose = chooser(target, &mut refused);
        let with = |candidates: &[Candidate]| {
            let good: Vec<Candidate> =
                candidates.iter().filter(|one| !choice.avoid.contains(&one.id)).copied().collect();
            let mut chosen = choose(&good)?;
            // Who wants the same small coins at the same time does without them the next time.
            if std::mem::replace(&mut first, false) {
                let more: Vec<UtxoId> = choice.along.iter().filter(|one| !chosen.contains(one)).copied().collect();
                chosen.extend(more);
            }
            Some(chosen)
        };
        worker.db.select_and_lease(till.wallet, till.account, &want, slot.lock(), until, now, with).await
    };
    match leased {
        Ok(Some(coins)) => Ok(Ok(coins)),
        Ok(None) => Ok(Err(refused.map_or_else(|| Unplanned::NotNow("no coins can be had now".to_owned()), unplanned))),
        Err(UtxoError::Store(error)) => Err(error.into()),
        Err(UtxoError::Refused(refusal)) => Ok(Err(Unplanned::NotNow(refusal.to_string()))),
    }
}

/// Further coins for a transaction that is to offer more. `None`: there are none that would do.
pub(super) async fn more_coins(
    worker: &SendWorker<'_>,
    (till, last): (Till, u64),
    target: &Target,
    slot: SlotId,
    now: Timestamp,
) -> Result<Option<Vec<Coin>>, OutboundError> {
    let avoid = worker.db.coming_home(till.wallet, worker.ground.row.id).await?.into_iter().collect();
    let choice = Choice { till, last, along: &[], avoid: &avoid };
    Ok(lease(worker, &choice, target, slot, now).await?.ok())
}

/// Those that share a transaction, so many at most. One that could not be paid before goes alone: it may be what the others were refused for.
fn batches<'p, 'a>(payouts: &'p [Payout<'a>], most: usize) -> Vec<Vec<&'p Payout<'a>>> {
    let (fresh, tried): (Vec<&Payout<'a>>, Vec<&Payout<'a>>) = payouts.iter().partition(|payout| payout.job.tries == 0);
    fresh.chunks(most.max(1)).map(<[&Payout<'a>]>::to_vec).chain(tried.into_iter().map(|payout| vec![payout])).collect()
}

/// A payment as an output. Why there is none: nodes would not pass it on.
fn output_of(payment: &Payment) -> Result<Recipient, String> {
    let output = recipient(payment).filter(|output| output.amount <= ::bitcoin::Amount::MAX_MONEY.to_sat());
    let output = output.ok_or_else(|| "no output can pay so much".to_owned())?;
    let least = ::bitcoin::Script::from_bytes(&output.script).minimal_non_dust().to_sat().max(1);
    if output.amount < least {
        return Err(format!("{} satoshi are dust: nodes pass on {least} or more to that address", output.amount));
    }
    Ok(output)
}

fn unplanned(error: SpendError) -> Unplanned {
    match error {
        SpendError::InsufficientFunds { .. } => Unplanned::TooLittle(format!("its wallet cannot pay it: {error}")),
        SpendError::TooLarge { .. } | SpendError::FeeOverCap { .. } => Unplanned::TooMuch(error.to_string()),
        SpendError::NothingToPay | SpendError::Dust { .. } | SpendError::Contradiction(_) | SpendError::NotBuilt(_) => {
            Unplanned::NotNow(error.to_string())
        }
    }
}
