//! Bitcoin: more is offered for a transaction that waits.
//!
//! It is replaced by one that makes the same payments and spends all the same coins: whichever is mined, each payout is paid once. One that
//! another of ours builds on is left alone, because that one would leave with it: the last one of such a line is replaced, and pays for all.

use std::collections::{HashMap, HashSet};

use domain::outbound::JobState;
use domain::utxo::Hash;
use domain::{ChainKind, GroupId, RawAmount, Timestamp};
use ruint::aliases::U256;
use store::outbound::{AttemptKind, AttemptRow, LaneId, LaneRow, LaneWork, NewAttempt, OpenSlot, Reserved};
use store::utxo::{Coin, UtxoError};
use tx::{Address, Coin as Money, Fee, Payment};

use super::gather::more_coins;
use super::plan::Plan;
use super::send::SendWorker;
use super::till::{Till, Unfolded, newest_of};
use super::{OutboundError, draft};
use crate::bitcoin::{self, Costs, Recipient, ReplacementTerms, ScriptKind, Target, Waiting};

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
                let unfolded = newest_of(slot, &self.ground, own.get(&slot.lane)?)?;
                Some(Waits { slot, newest, hash: newest.signed.as_ref()?.1, told: newest.told?, unfolded })
            })
            .collect();
        let since = |from: Timestamp| now.micros().saturating_sub(from.micros());
        let is_due = |one: &&Waits<'_>| self.is_due(one, now) && one.slot.unsigned().next().is_none();
        let due: Vec<&Waits<'_>> = waiting.iter().filter(is_due).collect();
        let rate = if due.is_empty() { None } else { self.rate(own, &due).await? };
        let built_on: HashSet<Hash> =
            waiting.iter().flat_map(|one| one.unfolded.outpoints()).map(|outpoint| outpoint.hash).collect();
        let mut raised = HashSet::new();
        for one in due {
            let (Some(rate), Some(lane), Some(address)) = (rate, lanes.get(&one.slot.lane), own.get(&one.slot.lane))
            else {
                continue;
            };
            let Some(till) = tills.get(&lane.group).filter(|_| lane.stopped.is_none()) else { continue };
            if built_on.contains(&one.hash) {
                continue;
            }
            if let Some(attempt) = self.replacement(one, &waiting, *till, address, rate, now).await? {
                raised.insert(one.slot.id);
                plan.attempts.push(attempt);
            }
        }
        let forgotten = waiting.iter().filter(|one| !(0..AGAIN_MICROS).contains(&since(one.told)));
        plan.again.extend(forgotten.map(|one| one.slot.id).filter(|slot| !raised.contains(slot)));
        Ok(())
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

    /// What is asked for 1,000 virtual bytes now, up to the cap.
    async fn rate(&self, own: &HashMap<LaneId, Address>, due: &[&Waits<'_>]) -> Result<Option<u64>, OutboundError> {
        let Some(from) = due.iter().find_map(|one| own.get(&one.slot.lane)) else { return Ok(None) };
        let limits = &self.ground.row.outbound;
        let payment = Payment { to: from.clone(), coin: Money::Native, amount: RawAmount::ZERO };
        let quote = self.chain.quote(from, &payment, draft::cap(ChainKind::Bitcoin, limits, limits.fee_cap)).await?;
        Ok(match quote.fee {
            Fee::PerKvb(rate) => Some(rate),
            Fee::Legacy { .. } | Fee::Eip1559 { .. } | Fee::FeeLimit(_) => None,
        })
    }

    /// `None`: it offers enough already, with what it depends on, or nothing more may be offered.
    async fn replacement(
        &self,
        one: &Waits<'_>,
        waiting: &[Waits<'_>],
        till: Till,
        own: &Address,
        rate: u64,
        now: Timestamp,
    ) -> Result<Option<NewAttempt>, OutboundError> {
        let asked = one.slot.jobs.iter().any(|(job, _)| job.bump);
        let (fee, weight) = (one.unfolded.fee(), one.weight());
        let line = line_of(one, waiting);
        let size: u64 =
            line.iter().map(|other| other.weight().div_ceil(4)).fold(weight.div_ceil(4), u64::saturating_add);
        let paid: u64 = line.iter().map(|other| other.unfolded.fee()).fold(0, u64::saturating_add);
        let wanted = size.saturating_mul(rate).div_ceil(1_000).saturating_sub(paid);
        if fee >= wanted && !asked {
            return Ok(None);
        }
        let at_least = wanted.max(fee.saturating_add(fee.div_ceil(8)));
        let most_fee =
            one.slot.jobs.iter().map(|(job, _)| job.most_fee.to_u256()).fold(U256::ZERO, U256::saturating_add);
        let costs =
            Costs { rate, long_term_rate: rate.min(INCREMENT), most_fee: u64::try_from(most_fee).unwrap_or(u64::MAX) };
        let Some(old) = self.waiting(one, till, weight).await? else { return Ok(None) };
        let terms = ReplacementTerms { evicted_fee: 0, increment: INCREMENT, at_least };
        let back = own.script_bytes().unwrap_or_default();
        let Some(kind) = ScriptKind::of(bitcoin::kind_of_script(&back)) else { return Ok(None) };
        let Ok(target) = bitcoin::replacement(&old, terms, costs, kind) else { return Ok(None) };
        let (planned, more) = match bitcoin::plan(&[], &target, &back) {
            Ok(planned) => (planned, Vec::new()),
            Err(_) => match self.with_more(one, till, &target, &back, now).await? {
                Some(found) => found,
                None => return Ok(None),
            },
        };
        let Ok(unsigned) = bitcoin::unsigned(&planned, till.network, 0) else { return Ok(None) };
        let outpoints: Vec<_> = more.iter().map(|coin: &Coin| coin.outpoint).collect();
        Ok(Some(NewAttempt {
            lane: one.slot.lane,
            slot: one.slot.id,
            number: one.slot.attempts.last().map_or(1, |last| last.number.saturating_add(1)),
            kind: AttemptKind::Pay,
            payload: unsigned.bytes,
            coins: (!outpoints.is_empty()).then_some(Reserved { wallet: till.wallet, outpoints }),
        }))
    }

    /// The same with further coins, which are in blocks.
    async fn with_more(
        &self,
        one: &Waits<'_>,
        till: Till,
        target: &Target,
        back: &[u8],
        now: Timestamp,
    ) -> Result<Option<(bitcoin::Plan, Vec<Coin>)>, OutboundError> {
        let Some(coins) = more_coins(self, till, target, one.slot.id, now).await? else { return Ok(None) };
        match bitcoin::plan(&coins, target, back) {
            Ok(planned) => Ok(Some((planned, coins))),
            Err(_) => Ok(None),
        }
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
