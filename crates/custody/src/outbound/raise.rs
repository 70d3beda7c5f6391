//! Bitcoin: more is offered for a transaction that waits.
//!
//! It is replaced by one that makes the same payments and spends all the same coins: whichever is mined, each payout is paid once. One that
//! another of ours builds on is left alone, because that one would leave with it: the last one of such a line is replaced, and pays for all.

use std::collections::{HashMap, HashSet};
use std::sync::PoisonError;

use domain::outbound::JobState;
use domain::utxo::Hash;
use domain::{GroupId, Timestamp};
use ruint::aliases::U256;
use signer::SignerChain;
use signer::reading::MOST_HELD;
use store::outbound::{AttemptKind, AttemptRow, LaneId, LaneRow, LaneWork, NewAttempt, OpenSlot, Reserved, SlotId};
use store::utxo::UtxoError;
use tx::Address;
use tx::bitcoin::transaction::read_unsigned;

use super::OutboundError;
use super::gather::{Market, more_coins};
use super::plan::Plan;
use super::send::SendWorker;
use super::till::{Till, Unfolded, back_to, newest_of, outpoints};
use crate::bitcoin::{self, Costs, Recipient, ReplacementTerms, ScriptKind, SpendError, Waiting};

/// The same bytes are told again after so long: a pool that forgot them gets them back.
const AGAIN_MICROS: i64 = 60_000_000;

/// Nobody is asked for more sooner, whoever wants it.
const LEAST_MICROS: i64 = 5_000_000;

/// What a replacement pays for its own size at the most that nodes ask for by default, satoshi for 1,000 virtual bytes.
const INCREMENT: u64 = 1_000;

/// A transaction of ours that waits.
struct Waits<'a> {
    slot: &'a OpenSlot,
    newest: &'a AttemptRow,
    hash: Hash,
    told: Timestamp,
    unfolded: Unfolded,
}

impl Waits<'_> {
    /// Weight units, once signed.
    fn weight(&self) -> u64 {
        let scripts =
            self.unfolded.spending.inputs.iter().map(|spent| ::bitcoin::Script::from_bytes(&spent.input.script));
        let paid: Vec<Vec<u8>> =
            self.unfolded.recipients.iter().chain(&self.unfolded.change).map(|output| output.script.clone()).collect();
        let paid = paid.iter().map(|script| ::bitcoin::Script::from_bytes(script));
        tx::bitcoin::estimated_weight(scripts, paid).unwrap_or(0)
    }
}

impl SendWorker<'_> {
    /// What waits for its block is told again, or replaced by what offers more.
    pub(super) async fn raise(
        &self,
        work: &LaneWork,
        own: &HashMap<LaneId, Address>,
        tills: &HashMap<GroupId, Till>,
        market: Market,
        now: Timestamp,
        plan: &mut Plan,
    ) -> Result<(), OutboundError> {
        let lanes: HashMap<LaneId, &LaneRow> = work.lanes.iter().map(|lane| (lane.id, lane)).collect();
        let waiting: Vec<Waits<'_>> = work
            .slots
            .iter()
            .filter(|slot| slot.mined().is_none())
            .filter_map(|slot| {
                let newest = slot.newest()?;
                let unfolded = newest_of(slot, &self.ground, &lanes.get(&slot.lane)?.group)?;
                Some(Waits { slot, newest, hash: newest.signed.as_ref()?.1, told: newest.told?, unfolded })
            })
            .collect();
        let built_on = self.built_on(&work.slots);
        let mut raised = HashSet::new();
        for one in waiting.iter().filter(|one| self.is_due(one, now) && one.slot.unsigned().next().is_none()) {
            let (Some(lane), Some(address)) = (lanes.get(&one.slot.lane), own.get(&one.slot.lane)) else { continue };
            // What brings users' coins home has nothing more to offer.
            let raises = lane.stopped.is_none() && !self.ground.is_users(&lane.group);
            let Some(till) = tills.get(&lane.group).filter(|_| raises) else { continue };
            let signed = one.slot.attempts.iter().filter_map(|attempt| attempt.signed.as_ref());
            if signed.map(|(_, hash)| *hash).any(|hash| built_on.contains(&hash)) || !self.may_try(one.slot.id, now) {
                continue;
            }
            if let Some(attempt) = self.replacement(one, &waiting, (*till, lane, address), market, now).await? {
                raised.insert(one.slot.id);
                plan.attempts.push(attempt);
            }
        }
        let since = |from: Timestamp| now.micros().saturating_sub(from.micros());
        let forgotten = waiting.iter().filter(|one| !(0..AGAIN_MICROS).contains(&since(one.told)));
        plan.again.extend(forgotten.map(|one| one.slot.id).filter(|slot| !raised.contains(slot)));
        Ok(())
    }

    /// What any transaction of ours spends that is signed, or is about to be.
    fn built_on(&self, slots: &[OpenSlot]) -> HashSet<Hash> {
        let SignerChain::Bitcoin(network) = self.ground.network else { return HashSet::new() };
        let payloads = slots.iter().flat_map(|slot| &slot.attempts).map(|attempt| &attempt.payload);
        let spending = payloads.filter_map(|payload| read_unsigned(payload, network).ok());
        spending.flat_map(|spending| outpoints(&spending)).map(|outpoint| outpoint.hash).collect()
    }

    /// A slot is tried once in a while: at the cap it would be tried all the time.
    fn may_try(&self, slot: SlotId, now: Timestamp) -> bool {
        let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        tried.retain(|_, at| (0..AGAIN_MICROS).contains(&now.micros().saturating_sub(at.micros())));
        let rests = tried.contains_key(&slot);
        if !rests {
            tried.insert(slot, now);
        }
        !rests
    }

    /// Whether it has waited too long, or people want more to be offered.
    fn is_due(&self, one: &Waits<'_>, now: Timestamp) -> bool {
        let after = i64::from(self.ground.row.outbound.stuck_after_s) * 1_000_000;
        // What the signer has refused is asked for again later and later.
        let refused = one.slot.attempts.iter().rev().take_while(|attempt| attempt.refused.is_some()).count();
        let patience = after.saturating_mul(1 << refused.min(10));
        let last = one.slot.attempts.last().map_or(one.newest.created, |last| last.created);
        let waited = now.micros().saturating_sub(last.micros());
        let asked = one.slot.jobs.iter().any(|(job, _)| job.bump && job.state == JobState::Broadcasted);
        !(0..patience).contains(&waited) || (asked && refused == 0 && waited >= LEAST_MICROS)
    }

    /// `None`: it offers enough already, with what it depends on, or nothing more may be offered.
    async fn replacement(
        &self,
        one: &Waits<'_>,
        waiting: &[Waits<'_>],
        (till, lane, own): (Till, &LaneRow, &Address),
        market: Market,
        now: Timestamp,
    ) -> Result<Option<NewAttempt>, OutboundError> {
        let asked = one.slot.jobs.iter().any(|(job, _)| job.bump);
        let (fee, weight, rate) = (one.unfolded.fee(), one.weight(), market.rate);
        let line = line_of(one, waiting);
        let sizes = line.iter().map(|other| other.weight().div_ceil(4));
        let size: u64 = sizes.fold(weight.div_ceil(4), u64::saturating_add);
        let paid: u64 = line.iter().map(|other| other.unfolded.fee()).fold(0, u64::saturating_add);
        let wanted = size.saturating_mul(rate).div_ceil(1_000).saturating_sub(paid);
        if fee >= wanted && !asked {
            return Ok(None);
        }
        let most = one.slot.jobs.iter().map(|(job, _)| job.most_fee.to_u256()).fold(U256::ZERO, U256::saturating_add);
        let most_fee = u64::try_from(most).unwrap_or(u64::MAX);
        // As much as is wanted, or as is agreed; in any case an eighth more than before.
        let at_least = wanted.min(most_fee).max(fee.saturating_add(fee.div_ceil(8)));
        let rate = rate.min(most_fee.saturating_mul(1_000) / weight.div_ceil(4).max(1));
        let costs = Costs { rate, long_term_rate: rate.min(INCREMENT), most_fee };
        let Some(old) = self.waiting(one, till, weight).await? else { return Ok(None) };
        let terms = ReplacementTerms { evicted_fee: 0, increment: INCREMENT, at_least };
        let back = old.change.as_ref().map_or_else(|| back_to(&old.coins, own), |change| change.script.clone());
        let Some(kind) = ScriptKind::of(bitcoin::kind_of_script(&back)) else { return Ok(None) };
        let Ok(target) = bitcoin::replacement(&old, terms, costs, kind) else { return Ok(None) };
        let (planned, more) = match bitcoin::plan(&[], &target, &back) {
            Ok(planned) => (planned, Vec::new()),
            Err(SpendError::InsufficientFunds { .. }) => {
                let Some(coins) = more_coins(self, (till, market.last), &target, one.slot.id, now).await? else {
                    return Ok(None);
                };
                let held = one.slot.jobs.len().saturating_mul(old.coins.len().saturating_add(coins.len()));
                match bitcoin::plan(&coins, &target, &back) {
                    Ok(planned) if self.foreign(&lane.group, &coins).is_empty() && held <= MOST_HELD => {
                        (planned, coins)
                    }
                    Ok(_) | Err(_) => {
                        self.db.release_further(till.wallet, one.slot.id).await?;
                        return Ok(None);
                    }
                }
            }
            Err(_) => return Ok(None),
        };
        let Ok(unsigned) = bitcoin::unsigned(&planned, till.network, 0) else { return Ok(None) };
        Ok(Some(NewAttempt {
            lane: one.slot.lane,
            slot: one.slot.id,
            number: one.slot.attempts.last().map_or(1, |last| last.number.saturating_add(1)),
            kind: AttemptKind::Pay,
            payload: unsigned.bytes,
            coins: Some(Reserved { wallet: till.wallet, outpoints: more.iter().map(|coin| coin.outpoint).collect() }),
        }))
    }

    /// The transaction as its replacement must know it. `None`: the wallet does not know its coins.
    async fn waiting(&self, one: &Waits<'_>, till: Till, weight: u64) -> Result<Option<Waiting>, OutboundError> {
        let outpoints = one.unfolded.outpoints();
        let coins = match self.db.coins_of(till.wallet, &outpoints).await {
            Ok(coins) => coins,
            Err(UtxoError::Store(error)) => return Err(error.into()),
            Err(UtxoError::Refused(_)) => return Ok(None),
        };
        let mut change: Vec<Recipient> = one.unfolded.change.clone();
        if coins.len() != outpoints.len() || change.len() > 1 {
            return Ok(None);
        }
        Ok(Some(Waiting { coins, recipients: one.unfolded.recipients.clone(), change: change.pop(), weight }))
    }
}

/// Those that it depends on, which wait too.
fn line_of<'w, 'a>(one: &Waits<'_>, waiting: &'w [Waits<'a>]) -> Vec<&'w Waits<'a>> {
    let by_hash: HashMap<Hash, &Waits<'a>> = waiting.iter().map(|other| (other.hash, other)).collect();
    let (mut line, mut seen): (Vec<&Waits<'a>>, HashSet<Hash>) = (Vec::new(), HashSet::new());
    let mut open: Vec<Hash> = one.unfolded.outpoints().iter().map(|outpoint| outpoint.hash).collect();
    while let Some(hash) = open.pop() {
        if let Some(other) = by_hash.get(&hash).filter(|_| seen.insert(hash)) {
            line.push(other);
            open.extend(other.unfolded.outpoints().iter().map(|outpoint| outpoint.hash));
        }
    }
    line
}
