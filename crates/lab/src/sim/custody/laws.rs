//! Rests: everything comes to its end, and is held against the chains.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use domain::outbound::{JobKind, JobState};
use domain::utxo::Hash;
use domain::{Approval, ChainKind, RawAmount};
use store::outbound::read::{JobReply, JobVerdict, ShownJob};
use store::outbound::{JobId, OpenSlot, SlotId};

use super::coins::{NETWORK, inputs_of};
use super::ground::{BITCOIN, PLANS, say_prices};
use super::model::units;
use super::process::Part;
use super::run::{Open, SECOND, Simulation, unread};
use super::withdrawals::AskLimits;
use super::world::World;

/// Why a lane may be stopped, if it does not name a thief's transaction.
const STOLEN: [&str; 2] = ["were used by somebody else", "which is none that this database knows"];

/// Rounds of a rest after which somebody is stranded.
const MOST_ROUNDS: u32 = 600;

fn people() -> Result<Approval, String> {
    Approval::new("ann", "bob", "the thief is caught").map_err(|error| error.to_string())
}

impl Simulation {
    /// Nothing goes wrong for a while: everything must come to its end, and be as it should be.
    pub(super) async fn rest(&mut self) -> Result<(), String> {
        self.end_suspension().await?;
        {
            let mut world = self.world.lock();
            world.calm = true;
            self.stalled.values_mut().for_each(|one| one.until = 0);
            world.nets.iter_mut().for_each(super::model::Net::heal);
        }
        let now = self.world.lock().now();
        say_prices(&self.ground.db, now).await.map_err(|error| error.to_string())?;
        self.set_policies(true, false, AskLimits::default()).await?;
        for round in 0_u32.. {
            // Soon only pauses and times that must be over are waited for.
            let seconds = match round {
                0..8 => 3,
                8..16 => 30,
                _ => 120,
            };
            self.world.lock().pass(seconds * SECOND);
            for net in 0..PLANS.len() {
                // Where nothing waits, only depth is missing.
                let blocks = if self.world.lock().nets[net].pool.is_empty() { 3 } else { 1 };
                (0..blocks).for_each(|_| self.mine(net));
                self.world.lock().nets[net].heal();
            }
            for at in 0..self.count_of_processes() {
                self.run_round(at).await?;
            }
            if round % 3 != 2 {
                continue;
            }
            let withdrawals = self.withdrawals_left().await?;
            let left = self.is_done().await?.or(withdrawals);
            let left = if left.is_none() { self.is_home() } else { left };
            let Some(left) = left else { break };
            if round > MOST_ROUNDS {
                return Err(format!("stranded: {left}"));
            }
        }
        self.judge().await?;
        self.compare().await?;
        self.change_users().await?;
        let jobs = {
            let mut world = self.world.lock();
            (world.calm, self.last_rest) = (false, world.turn);
            world.report.rests += 1;
            world.report.jobs
        };
        if jobs >= self.next_audit {
            self.next_audit = jobs + jobs / 2;
            self.audit().await?;
        }
        self.unbroken()
    }

    /// Jobs that have not come to their end.
    async fn not_ended(&self) -> Result<Vec<ShownJob>, String> {
        let ids: Vec<JobId> = self.open.keys().copied().collect();
        let shown = self.ground.db.jobs_of(&ids).await.map_err(|error| unread(&error))?;
        let ended = |shown: &ShownJob| matches!(shown.job.state, JobState::Confirmed | JobState::FailedFinal);
        Ok(shown.into_iter().filter(|shown| !ended(shown)).collect())
    }

    /// Two people look at jobs whose slot somebody else has used, and at the chain.
    async fn judge_unclear(&self, left: &[ShownJob]) -> Result<(), String> {
        let people = people()?;
        for shown in left.iter().filter(|shown| shown.job.state == JobState::Broadcasted) {
            let (verdict, now) = {
                let world = self.world.lock();
                let Some(open) = self.open.get(&shown.job.id) else { continue };
                let net = &world.nets[open.net];
                let paid = match &open.inside {
                    None => net.paid.get(&open.to).is_some_and(|(count, _)| *count > 0),
                    Some(key) => net.inside.has_moved(key),
                };
                (if paid { JobVerdict::Paid } else { JobVerdict::Again }, world.now())
            };
            // Refused as long as the slot is open.
            let judged =
                self.ground.db.judge_job(shown.job.id, verdict, &people, now).await.map_err(|error| unread(&error))?;
            self.world.lock().report.judged += u64::from(judged == JobReply::Done);
        }
        Ok(())
    }

    /// What waits or is out, if anything does. Lanes that were stopped go on, by two people.
    async fn is_done(&self) -> Result<Option<String>, String> {
        let jobs = self.not_ended().await?;
        self.judge_unclear(&jobs).await?;
        for refill in jobs.iter().filter(|shown| shown.job.kind == JobKind::Refill) {
            self.approve(refill).await?;
        }
        let now = self.world.lock().now();
        let mut left = jobs.first().map(|shown| {
            let job = &shown.job;
            format!(
                "{} is {}: {} ({} rounds, lane {:?})",
                job.id, job.state, job.reason, job.rounds, shown.lane_stopped
            )
        });
        for lane in self.lanes(None).await? {
            if let Some(why) = &lane.lane.stopped {
                // Nobody but a thief, of whom there are some, may give a reason.
                if !STOLEN.iter().any(|words| why.contains(words)) && !self.names_a_thief(why) {
                    return Err(format!("lane {} was stopped: {why}", lane.lane.address));
                }
                self.ground.db.resume_lane(lane.lane.id, &people()?, now).await.map_err(|error| unread(&error))?;
                self.world.lock().report.lanes_stopped += 1;
            }
            if left.is_none() && (lane.open > 0 || lane.waiting > 0) {
                left = Some(format!("lane {} has {} slots", lane.lane.address, lane.open));
            }
        }
        self.resume_groups().await?;
        if left.is_some() {
            // What rests is due some time later.
            self.world.lock().pass(60 * SECOND);
        }
        Ok(left)
    }

    /// Groups may be stopped before any of their wallets has sent, so that no lane says it.
    async fn resume_groups(&self) -> Result<(), String> {
        let (db, now, people) = (&self.ground.db, self.world.lock().now(), people()?);
        for (net, row) in self.ground.rows.iter().enumerate() {
            let stopped = db.stopped_wallets(row.id).await.map_err(|error| unread(&error))?;
            if stopped.groups.is_empty() {
                continue;
            }
            let house = self.ground.pinned.wallets().filter(|(on, ..)| **on == row.name);
            let house = house.map(|(.., wallet)| wallet.address.to_string());
            for address in house.chain(self.counter.addresses_on(net)) {
                db.resume_group_of(row.id, &address, &people, now).await.map_err(|error| unread(&error))?;
            }
        }
        Ok(())
    }

    /// Whether a sentence names a transaction of somebody else who has our keys.
    fn names_a_thief(&self, why: &str) -> bool {
        let world = self.world.lock();
        let mut foreign = world.nets.iter().flat_map(|net| &net.foreign);
        foreign.any(|hash| why.contains(&Hash(hash.0).to_string()))
    }

    /// Whether everything is where rules want it, as the chains have it: what is not, if anything. What only people can do is done here.
    fn is_home(&self) -> Option<String> {
        let mut world = self.world.lock();
        let World { nets, random, .. } = &mut *world;
        let mut left = None;
        for (net, plan) in PLANS.iter().enumerate() {
            let Some(terms) = &plan.terms else { continue };
            let chain = &mut nets[net];
            // A thief's may wait for ever: the wallet that he has the key of may have nothing to pay its fee with.
            let waits = chain.pool.iter().filter(|one| !chain.foreign.contains(&one.hash)).count();
            if waits > 0 {
                left = Some(format!("{waits} transactions wait on {}", plan.name));
                continue;
            }
            let here = chain.unswept(terms).or_else(|| chain.above_ceiling(terms));
            left = left.or(here);
            // What was brought at first may have left with a branch, and nobody told of it again.
            for wallet in chain.penniless() {
                left = Some(format!("{wallet} has nothing to pay fees with"));
                self.pays(chain, net, random, (wallet, true, plan.endowment));
            }
            for (wallet, amount) in chain.below_floor(terms) {
                left = Some(format!("{wallet} is below its floor"));
                // Else rules ask for a refill, which people approve.
                if chain.in_treasury() < amount {
                    self.pays(chain, net, random, (wallet, false, amount));
                }
            }
        }
        left
    }

    /// What is confirmed was paid once, what failed was not, and every fee is known.
    async fn judge(&mut self) -> Result<(), String> {
        self.judge_withdrawals().await?;
        let opened = std::mem::take(&mut self.open);
        let ids: Vec<JobId> = opened.keys().copied().collect();
        let shown = self.ground.db.jobs_of(&ids).await.map_err(|error| unread(&error))?;
        let shown: BTreeMap<JobId, ShownJob> = shown.into_iter().map(|shown| (shown.job.id, shown)).collect();
        let mut slots_seen: HashSet<SlotId> = HashSet::new();
        for (id, open) in opened {
            let shown = shown.get(&id).ok_or_else(|| format!("{id} is gone"))?;
            // Many share a slot there. Of those that never were in another, one is enough.
            let known = shown.job.rounds == 1 && shown.job.slot.is_some_and(|slot| !slots_seen.insert(slot));
            if open.net == BITCOIN && !known {
                let found = self.ground.db.job(id).await.map_err(|error| unread(&error))?;
                let (_, slots, _) = found.ok_or_else(|| format!("{id} is gone"))?;
                for slot in &slots {
                    let of_several = keeps_its_coins(slot)?;
                    self.world.lock().report.several_coins_replaced += of_several;
                }
            }
            self.judge_one(shown, &open)?;
        }
        for (net, plan) in PLANS.iter().enumerate() {
            self.count_fees(net).await?;
            let mut world = self.world.lock();
            let chain = &mut world.nets[net];
            // All that were asked for were looked at above, and taken out.
            if let Some((to, _)) = chain.paid.drain().find(|(_, (count, _))| *count > 0) {
                return Err(format!("{to} was paid for a job that had ended before"));
            }
            // Nonces that are used up for good are given to nobody any more.
            chain.given.clear();
            if let Some(stray) = chain.inside.stray() {
                return Err(format!("{} paid {} for a job that had ended before", stray.from, stray.to));
            }
            if chain.fees != self.fees[net] {
                return Err(format!(
                    "the wallets of {} paid {} in fees, and the slots know of {}",
                    plan.name, chain.fees, self.fees[net]
                ));
            }
            world.report.fees_counted += 1;
        }
        Ok(())
    }

    fn judge_one(&self, shown: &ShownJob, open: &Open) -> Result<(), String> {
        let (job, mut world) = (&shown.job, self.world.lock());
        let chain = &mut world.nets[open.net];
        let state = job.state;
        let (right, got) = match &open.inside {
            None => {
                let paid = chain.paid.remove(&open.to).unwrap_or_default();
                let right = match state {
                    JobState::Confirmed => paid == (1, open.amount),
                    JobState::FailedFinal => paid.0 == 0,
                    _ => false,
                };
                (right, format!("{} got {} in {} payments", open.to, paid.1, paid.0))
            }
            Some(key) => {
                let paid = state == JobState::Confirmed;
                let ended = paid || state == JobState::FailedFinal;
                (chain.inside.ended(key, paid) && ended, format!("{} got nothing of {}", key.to, key.from))
            }
        };
        if !right {
            return Err(format!("{} is {state}, and {got} instead of {}: {}", job.id, open.amount, job.reason));
        }
        let report = &mut world.report;
        report.moved_to_another_slot += u64::from(job.rounds > 1);
        report.expired += u64::from(PLANS[open.net].kind == ChainKind::Tron && job.rounds > 1);
        report.confirmed += u64::from(state == JobState::Confirmed);
        report.failed_for_good += u64::from(state == JobState::FailedFinal);
        report.cancelled_in_its_slot += u64::from(state == JobState::FailedFinal && job.give_up && job.rounds > 0);
        Ok(())
    }

    /// Fees of slots that were settled since the last time.
    async fn count_fees(&mut self, net: usize) -> Result<(), String> {
        let chain = self.ground.rows[net].id;
        loop {
            let page = self.ground.db.slot_fees(chain, self.counted[net], 500).await.map_err(|error| unread(&error))?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            self.counted[net] = *last;
            self.fees[net] += page.iter().map(|(_, fee): &(i64, RawAmount)| units(*fee)).sum::<u128>();
        }
    }

    /// The books catch up with their chains, and every wallet has what its entries say, and the other way round.
    async fn compare(&mut self) -> Result<(), String> {
        for _ in 0..40 {
            if self.books_are_there().await? {
                break;
            }
            self.world.lock().pass(5 * SECOND);
            for at in self.those_who(Part::Keeps) {
                self.run_round(at).await?;
            }
        }
        for (net, plan) in PLANS.iter().enumerate().filter(|(_, plan)| plan.terms.is_some()) {
            let row = &self.ground.rows[net];
            let mut said: BTreeMap<(String, bool), String> = BTreeMap::new();
            let mut after = String::new();
            loop {
                let page = self.ground.db.wallet_balances(row, &after, 1_000).await.map_err(|error| unread(&error))?;
                let full = page.len() == 1_000;
                // The last address of a full page may have more coins than there was room for.
                let last = page.last().map(|one| one.address.clone()).unwrap_or_default();
                for one in page.into_iter().filter(|one| !full || one.address != last) {
                    after.clone_from(&one.address);
                    said.insert((one.address, one.asset.as_str() == plan.coin), one.raw);
                }
                if !full {
                    break;
                }
            }
            let mut world = self.world.lock();
            let World { nets, report, .. } = &mut *world;
            for (address, purse) in &nets[net].purses {
                for (native, has) in [(true, purse.native), (false, purse.token)] {
                    let by_entries = said.remove(&(address.to_string(), native)).unwrap_or_else(|| "0".to_owned());
                    if by_entries != has.to_string() {
                        let coin = if native { "coins" } else { "tokens" };
                        return Err(format!("{address} has {has} {coin}, and its entries say {by_entries}"));
                    }
                    report.balances_compared += 1;
                }
            }
            if let Some(((address, _), raw)) = said.into_iter().find(|(_, raw)| raw != "0") {
                return Err(format!("{address} has nothing, and its entries say {raw}"));
            }
        }
        Ok(())
    }

    async fn books_are_there(&self) -> Result<bool, String> {
        for (net, plan) in PLANS.iter().enumerate().filter(|(_, plan)| plan.terms.is_some()) {
            let standing = self.ground.db.chain_standing(&self.ground.rows[net]).await;
            let proven = standing.map_err(|error| unread(&error))?.and_then(|standing| standing.proven_height);
            let world = self.world.lock();
            if proven != Some(world.nets[net].truth.tip().height) {
                tracing::debug!(chain = plan.name, proven, "the books are behind");
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(super) async fn audit(&self) -> Result<(), String> {
        self.world.lock().report.audits += 1;
        let audit = self.ground.db.audit(|_| {}).await.map_err(|error| unread(&error))?;
        if audit.clean() { Ok(()) } else { Err(format!("the audit finds: {:?}", audit.findings)) }
    }
}

/// Bitcoin: whatever was signed later in a slot spends all that was signed before: a coin that was dropped would look free while the
/// transaction before can still be mined. How many took the place of one that spends several: only those could have dropped one.
fn keeps_its_coins(slot: &OpenSlot) -> Result<u64, String> {
    let (mut before, mut of_several): (BTreeSet<(tx::TxHash, u32)>, u64) = (BTreeSet::new(), 0);
    for (bytes, hash) in slot.attempts.iter().filter_map(|attempt| attempt.signed.as_ref()) {
        let meaning = tx::bitcoin::transaction::decode_signed(bytes, NETWORK)
            .map_err(|error| format!("{hash} was signed, and cannot be read: {error}"))?;
        let now: BTreeSet<(tx::TxHash, u32)> = inputs_of(&meaning).iter().copied().collect();
        if !before.is_subset(&now) {
            return Err(format!("{hash} does not spend all that the one before it in its slot does"));
        }
        of_several += u64::from(before.len() > 1);
        before = now;
    }
    Ok(of_several)
}
