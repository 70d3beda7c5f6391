//! Bitcoin: payouts of a lane that share a transaction.
//!
//! Coins are leased while the transaction is planned, and with the slot's row for as long as it is open. Whoever dies in between leaves a
//! lease that ends by itself.

use std::collections::HashMap;

use domain::outbound::{Gathering, goes};
use domain::{ChainKind, GroupId, Timestamp};
use ruint::aliases::U256;
use signer::reading::MOST_HELD;
use store::outbound::{AttemptKind, JobRow, LaneId, LaneRow, LaneWork, NewSlot, Reserved, SlotId};
use store::utxo::{Allow, Candidate, Coin, UtxoError, UtxoId, Want};
use tx::{Address, Fee};

use super::plan::{Plan, later, over};
use super::send::SendWorker;
use super::till::{Till, recipient};
use super::{OutboundError, draft};
use crate::bitcoin::{self, Aim, Costs, Recipient, ScriptKind, SpendError, Target, chooser};

/// A choice of coins becomes a slot within this time, or is let go.
const LEASE_MICROS: i64 = 300_000_000;

/// So many small coins are taken along at most.
const MOST_JOINED: usize = 20;

/// A coin is small when it holds less than so many times what it costs to spend.
const SMALL: u64 = 50;

/// A payout that could be part of the transaction.
struct Payout<'a> {
    job: &'a JobRow,
    output: Recipient,
}

/// The lane that pays, and the price.
struct Payer<'a> {
    lane: &'a LaneRow,
    till: Till,
    own: &'a Address,
    kind: ScriptKind,
    rate: u64,
}

/// Why a transaction was not planned.
enum Unplanned {
    /// With fewer payouts it might be.
    TooMuch(String),
    /// Not now, whatever is left out.
    NotNow(String),
    /// The house's rows and its keys do not fit together.
    Broken(String),
}

impl SendWorker<'_> {
    /// One transaction for each lane whose payouts have waited long enough.
    pub(super) async fn gather(
        &self,
        work: &LaneWork,
        own: &HashMap<LaneId, Address>,
        tills: &HashMap<GroupId, Till>,
        settled: u64,
        now: Timestamp,
        plan: &mut Plan,
    ) -> Result<(), OutboundError> {
        let limits = &self.ground.row.outbound;
        let most = usize::try_from(limits.in_flight).unwrap_or(usize::MAX);
        for lane in work.lanes.iter().filter(|lane| lane.stopped.is_none()) {
            let (Some(address), Some(till)) = (own.get(&lane.id), tills.get(&lane.group)) else { continue };
            let payouts = self.payouts(work, lane.id, now, plan);
            let waiting: Vec<Gathering> = payouts
                .iter()
                .map(|payout| Gathering { since: payout.job.created, priority: payout.job.priority })
                .collect();
            let waits = work.slots.iter().filter(|slot| slot.lane == lane.id && slot.mined().is_none()).count();
            if waits >= most || !goes(&waiting, limits, now) {
                continue;
            }
            let Some(first) = payouts.first() else { continue };
            let Some(kind) = address.script_bytes().and_then(|script| ScriptKind::of(bitcoin::kind_of_script(&script)))
            else {
                continue;
            };
            let Ok(payment) = self.ground.payment(first.job) else { continue };
            let quote =
                self.chain.quote(address, &payment, draft::cap(ChainKind::Bitcoin, limits, limits.fee_cap)).await?;
            let Fee::PerKvb(rate) = quote.fee else { continue };
            if quote.capped {
                let why = "the network asks for a higher price than is allowed";
                plan.put_off.extend(payouts.iter().map(|payout| later(payout.job, why.to_owned(), now, false)));
                continue;
            }
            let payer = Payer { lane, till: *till, own: address, kind, rate };
            self.share(&payer, &payouts, settled, now, plan).await?;
        }
        Ok(())
    }

    /// The jobs of a lane that an output can pay, in their order. The others are over.
    fn payouts<'w>(&self, work: &'w LaneWork, lane: LaneId, now: Timestamp, plan: &mut Plan) -> Vec<Payout<'w>> {
        let mut payouts = Vec::new();
        for job in work.due.iter().filter(|job| job.lane == lane) {
            if job.give_up {
                plan.put_off.push(over(job, "people gave it up".to_owned(), now));
                continue;
            }
            if job.expires <= now {
                plan.put_off.push(over(job, "its time was over before it could be paid".to_owned(), now));
                continue;
            }
            let output = self
                .ground
                .payment(job)
                .and_then(|payment| recipient(&payment).ok_or_else(|| "no output can pay so much".to_owned()));
            let output = output.and_then(|output| {
                let least = ::bitcoin::Script::from_bytes(&output.script).minimal_non_dust().to_sat().max(1);
                if output.amount < least {
                    return Err(format!(
                        "{} satoshi are dust: nodes pass on {least} or more to that address",
                        output.amount
                    ));
                }
                Ok(output)
            });
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
        payouts: &[Payout<'_>],
        settled: u64,
        now: Timestamp,
        plan: &mut Plan,
    ) -> Result<(), OutboundError> {
        let mut count = payouts.len();
        loop {
            let some = payouts.get(..count).unwrap_or_default();
            let Some(first) = some.first() else { return Ok(()) };
            let id = SlotId((self.ids)().ok_or(OutboundError::NoIds)?);
            match self.transaction(payer, some, id, now).await? {
                Ok((payload, coins)) => {
                    plan.slots.push(NewSlot {
                        id,
                        lane: payer.lane.id,
                        nonce: None,
                        since: settled,
                        jobs: some.iter().map(|payout| (payout.job.id, payout.job.version)).collect(),
                        kind: AttemptKind::Pay,
                        payload,
                        coins: Some(coins),
                    });
                    return Ok(());
                }
                Err(Unplanned::TooMuch(_)) if count > 1 => count /= 2,
                Err(Unplanned::TooMuch(why)) => {
                    plan.put_off.push(later(first.job, why, now, true));
                    return Ok(());
                }
                Err(Unplanned::NotNow(why)) => {
                    plan.put_off.extend(some.iter().map(|payout| later(payout.job, why.clone(), now, false)));
                    return Ok(());
                }
                Err(Unplanned::Broken(why)) => {
                    self.db.stop_lane(payer.lane.id, &why, now).await?;
                    return Ok(());
                }
            }
        }
    }

    /// Coins for these payouts, leased, and the transaction that spends them.
    async fn transaction(
        &self,
        payer: &Payer<'_>,
        payouts: &[Payout<'_>],
        slot: SlotId,
        now: Timestamp,
    ) -> Result<Result<(Vec<u8>, Reserved), Unplanned>, OutboundError> {
        let most_fee =
            payouts.iter().map(|payout| payout.job.most_fee.to_u256()).fold(U256::ZERO, U256::saturating_add);
        let costs = Costs {
            rate: payer.rate,
            long_term_rate: self.ground.row.outbound.join_below.min(payer.rate.max(1_000)),
            most_fee: u64::try_from(most_fee).unwrap_or(u64::MAX),
        };
        let recipients: Vec<Recipient> = payouts.iter().map(|payout| payout.output.clone()).collect();
        let target = Target { recipients, change: payer.kind, costs, aim: Aim::Pay };
        let small = self.small_coins(payer, now).await?;
        for along in [small, Vec::new()] {
            let joins = !along.is_empty();
            let coins = match lease(self, payer.till, &target, slot, &along, now).await? {
                Ok(coins) => coins,
                Err(why) => return Ok(Err(why)),
            };
            match self.planned(payer, payouts.len(), &coins, &target) {
                Ok(payload) => {
                    let outpoints = coins.iter().map(|coin| coin.outpoint).collect();
                    return Ok(Ok((payload, Reserved { wallet: payer.till.wallet, outpoints })));
                }
                Err(why) => {
                    self.let_go(payer.till, slot).await?;
                    // Without the small ones it may be cheap enough, and small enough.
                    if !joins || matches!(why, Unplanned::Broken(_)) {
                        return Ok(Err(why));
                    }
                }
            }
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
        if coins.iter().any(|coin| self.ground.number_of(&payer.lane.group, &coin.script).is_none()) {
            let group = &payer.lane.group;
            return Err(Unplanned::Broken(format!(
                "the Bitcoin wallet {group} has a coin at an address that no wallet of the house has"
            )));
        }
        if coins.len().saturating_mul(payouts) > MOST_HELD {
            return Err(Unplanned::TooMuch("it needs more coins than the signer takes for so many payouts".to_owned()));
        }
        let back = payer.own.script_bytes().unwrap_or_default();
        let planned = bitcoin::plan(coins, target, &back).map_err(unplanned)?;
        let unsigned = bitcoin::unsigned(&planned, payer.till.network, 0).map_err(unplanned)?;
        Ok(unsigned.bytes)
    }

    /// Small coins that may be taken along while that is cheap.
    async fn small_coins(&self, payer: &Payer<'_>, now: Timestamp) -> Result<Vec<UtxoId>, OutboundError> {
        let below = self.ground.row.outbound.join_below;
        if payer.rate > below {
            return Ok(Vec::new());
        }
        let cost = |kind: ScriptKind| kind.input_weight().div_ceil(4).saturating_mul(payer.rate).div_ceil(1_000);
        let limit = cost(payer.kind).saturating_mul(SMALL);
        let want = Want { target: i64::try_from(limit).unwrap_or(i64::MAX), allow: Allow::default(), seed: 0 };
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

    /// What was leased for a slot that there will not be.
    pub(super) async fn let_go(&self, till: Till, slot: SlotId) -> Result<(), OutboundError> {
        self.db.release(till.wallet, slot.lock()).await?;
        Ok(())
    }
}

/// Leases what the target needs beside what it has, and `along`.
async fn lease(
    worker: &SendWorker<'_>,
    till: Till,
    target: &Target,
    slot: SlotId,
    along: &[UtxoId],
    now: Timestamp,
) -> Result<Result<Vec<Coin>, Unplanned>, OutboundError> {
    let wanted = match target.wanted() {
        Ok(wanted) => wanted,
        Err(error) => return Ok(Err(unplanned(error))),
    };
    let want = Want { target: wanted, allow: Allow::default(), seed: slot.0.unsigned_abs() };
    let until = now.plus_micros(LEASE_MICROS);
    let mut refused = None;
    let leased = {
        let mut choose = chooser(target, &mut refused);
        let with = |candidates: &[Candidate]| {
            let mut chosen = choose(candidates)?;
            chosen.extend(along.iter().filter(|one| !chosen.contains(one)).copied().collect::<Vec<_>>());
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
    till: Till,
    target: &Target,
    slot: SlotId,
    now: Timestamp,
) -> Result<Option<Vec<Coin>>, OutboundError> {
    Ok(lease(worker, till, target, slot, &[], now).await?.ok())
}

fn unplanned(error: SpendError) -> Unplanned {
    match error {
        SpendError::InsufficientFunds { .. } => Unplanned::TooMuch(format!("its wallet cannot pay it: {error}")),
        SpendError::TooLarge { .. } | SpendError::FeeOverCap { .. } => Unplanned::TooMuch(error.to_string()),
        SpendError::NothingToPay | SpendError::Dust { .. } | SpendError::Contradiction(_) | SpendError::NotBuilt(_) => {
            Unplanned::NotNow(error.to_string())
        }
    }
}
