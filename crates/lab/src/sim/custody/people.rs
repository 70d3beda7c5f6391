//! What people want: addresses, payouts, an end of one, more offered for one. What rules want is noticed here too, and held against the chain.

use std::sync::Arc;

use custody::outbound::approve::intent_of;
use custody::wallet::assign;
use domain::outbound::{JobKind, JobState};
use domain::{UserId, WalletRole};
use store::outbound::read::JobReply;
use store::outbound::{Added, ApprovalSignature, JobApproval, JobFilter, JobId, NewJob, Payer, ShownJob};
use tx::Address;

use super::ground::{BITCOIN, PEOPLE, PLANS, approving_key};
use super::model::{Owner, raw, units};
use super::run::{Open, SECOND, Simulation, unread};
use super::treasury::{Errand, Inside};
use super::world::World;

/// Users of a chain who are paid at a time.
const USERS: usize = 24;
/// At one rest of so many the oldest leaves, and another comes: what is known of an address does not grow for ever.
const LEAVES: u64 = 8;

impl Simulation {
    /// The house has coins, and users have addresses.
    pub(super) async fn endow(&mut self) -> Result<(), String> {
        for (net, plan) in PLANS.iter().enumerate() {
            let Some(terms) = &plan.terms else { continue };
            self.welcome(net, USERS).await?;
            let mut world = self.world.lock();
            let World { nets, random, .. } = &mut *world;
            let mut house: Vec<(Address, Owner)> =
                nets[net].owners.iter().map(|(address, owner)| (address.clone(), *owner)).collect();
            house.sort_by_key(|(address, _)| address.to_string());
            for (address, owner) in house {
                match owner {
                    Owner::Hot => {
                        self.pays(&mut nets[net], net, random, (address.clone(), false, terms.target));
                        self.pays(&mut nets[net], net, random, (address, true, plan.endowment));
                    }
                    Owner::Gas | Owner::Treasury => {
                        self.pays(&mut nets[net], net, random, (address, true, plan.endowment));
                    }
                    Owner::User => {}
                }
            }
        }
        Ok(())
    }

    /// So many users get an address on a chain.
    pub(super) async fn welcome(&mut self, net: usize, count: usize) -> Result<(), String> {
        let group = PLANS[net].group("users").map_err(|error| error.to_string())?;
        let mut users = Vec::new();
        for _ in 0..count {
            self.last_user += 1;
            users.extend(UserId::new(self.last_user));
        }
        let now = self.world.lock().now();
        let ground = &self.ground;
        let assigned = assign(&ground.db, &ground.pinned, &group, &users, now).await;
        let mut wallets = assigned.map_err(|error| error.to_string())?.wallets;
        wallets.sort_by_key(|wallet| wallet.user.get());
        let mut world = self.world.lock();
        for wallet in wallets {
            world.nets[net].owners.insert(wallet.address.clone(), Owner::User);
            world.nets[net].users.push(wallet.address);
            world.report.users += 1;
        }
        Ok(())
    }

    /// Now and then a user leaves and another comes.
    pub(super) async fn change_users(&mut self) -> Result<(), String> {
        for (net, plan) in PLANS.iter().enumerate() {
            let leaves = plan.terms.is_some() && self.world.lock().random.below(LEAVES) == 0;
            if leaves {
                self.world.lock().nets[net].users.remove(0);
                self.welcome(net, 1).await?;
            }
        }
        Ok(())
    }

    pub(super) async fn add(&mut self, net: usize, most: u64) -> Result<(), String> {
        let row = &self.ground.rows[net];
        let (mut jobs, mut opened) = (Vec::new(), Vec::new());
        let now = {
            let mut world = self.world.lock();
            let now = world.now();
            for _ in 0..=world.random.below(16) {
                if world.report.jobs >= most {
                    break;
                }
                world.report.jobs += 1;
                world.report.payouts += 1;
                let number = world.next_id();
                let mut account = [0xd0; 20];
                account[12..].copy_from_slice(&world.report.payouts.to_be_bytes());
                let to = (PLANS[net].account)(account);
                let native = net == BITCOIN || world.random.below(2) == 0;
                let small = 1_000_000 + u128::from(world.random.below(1_000_000));
                // Some empty a hot wallet.
                let large = !native && world.random.below(16) == 0;
                let amount = if large { small * 500 } else { small };
                let listing = row.listings.iter().find(|one| one.form.contract().is_none() == native);
                let (Some(listing), Ok(id)) = (listing, JobId::new(number)) else {
                    return Err("a listing is missing".to_owned());
                };
                jobs.push(NewJob {
                    id,
                    listing: listing.id,
                    kind: JobKind::Withdrawal,
                    reference: to.to_string(),
                    to: to.to_string(),
                    owner: None,
                    amount: raw(amount),
                    most_fee: row.outbound.fee_cap,
                    priority: i64::try_from(world.random.below(3)).unwrap_or(0),
                    requester: "alice".to_owned(),
                    expires: now.plus_micros(90 * 3_600 * SECOND),
                    payer: Payer::Role(WalletRole::Hot),
                });
                opened.push((id, Open { net, to, amount, inside: None }));
            }
            now
        };
        let added = self.ground.db.add_jobs(row.id, &jobs, now).await.map_err(|error| unread(&error))?;
        if !added.iter().all(|one| matches!(one, Added::New { .. })) {
            return Err(format!("a job was not made: {added:?}"));
        }
        self.open.extend(opened);
        Ok(())
    }

    /// People want a job to end, or more to be offered for it.
    pub(super) async fn ask(&self) -> Result<(), String> {
        let (some, any, cancel, now) = {
            let mut world = self.world.lock();
            // Some of the newest, in no order.
            let newest = self.open.len().min(200);
            let places: Vec<usize> = (0..24.min(newest)).map(|_| world.random.index(newest)).collect();
            let ids: Vec<JobId> = self.open.keys().rev().take(newest).copied().collect();
            let some: Vec<JobId> = places.into_iter().filter_map(|at| ids.get(at).copied()).collect();
            (some, world.random.below(3) == 0, world.random.below(2) == 0, world.now())
        };
        let shown = self.ground.db.jobs_of(&some).await.map_err(|error| unread(&error))?;
        for refill in shown.iter().filter(|shown| shown.job.kind == JobKind::Refill) {
            self.approve(refill).await?;
        }
        // One that waits for its block, or one of them, whatever it does.
        let is_out = |shown: &&ShownJob| shown.job.state == JobState::Broadcasted;
        // Only where nonces are is a payment cancelled in its slot.
        let first = shown.iter().filter(|shown| shown.chain == PLANS[0].name).find(is_out);
        let out = first.or_else(|| shown.iter().find(is_out));
        let Some(job) = out.filter(|_| !any).or(shown.first()).map(|shown| shown.job.id) else { return Ok(()) };
        let db = &self.ground.db;
        let asked = if cancel { db.cancel_job(job, "ann", now).await } else { db.bump_job(job, "ann", now).await };
        let done = asked.map_err(|error| unread(&error))? == JobReply::Done;
        let mut world = self.world.lock();
        world.report.cancel_asked += u64::from(done && cancel);
        world.report.bump_asked += u64::from(done && !cancel);
        Ok(())
    }

    /// Two people approve what is to leave the treasury.
    pub(super) async fn approve(&self, shown: &ShownJob) -> Result<(), String> {
        let ground = &self.ground;
        let Some(net) = PLANS.iter().position(|plan| plan.name == shown.chain) else { return Ok(()) };
        let lanes =
            ground.db.lanes(Some(&shown.chain), Some(&shown.from), 0, 1).await.map_err(|error| unread(&error))?;
        let lane = lanes.into_iter().next().ok_or_else(|| format!("{} has no lane", shown.from))?.lane;
        let signer = "sim".parse().map_err(|error| format!("{error:?}"))?;
        let intent = intent_of(ground.rows[net].clone(), Arc::clone(&ground.pinned), &signer, &lane, &shown.job);
        let Ok(Ok(intent)) = intent else { return Err(format!("{} cannot be approved: {intent:?}", shown.job.id)) };
        let now = self.world.lock().now();
        for person in PEOPLE {
            let key = approving_key(person).ok_or_else(|| format!("{person} has no key"))?;
            let signature = ApprovalSignature::Ed25519(key.sign_approval(&intent.digest()));
            let approval =
                JobApproval { job: shown.job.id, digest: intent.digest(), key: person.to_owned(), signature };
            let done = ground.db.approve_job(&approval, now).await.map_err(|error| unread(&error))?;
            self.world.lock().report.approvals += u64::from(done == JobReply::Done);
        }
        Ok(())
    }

    // ---- what rules have made -----------------------------------------------------------------------------------

    /// Looks at the jobs that rules have made since their numbers were above one: each must have had a reason.
    pub(super) async fn notice(&mut self, at: usize, above: i64) -> Result<(), String> {
        let known = self.world.lock().rules_know.get(&at).copied().flatten().unwrap_or(0);
        let mut before = i64::MAX;
        loop {
            let page = self.ground.db.jobs(&JobFilter::default(), before, 32).await.map_err(|error| unread(&error))?;
            let new = |shown: &&ShownJob| shown.job.id.number() > above && !self.open.contains_key(&shown.job.id);
            let some: Vec<ShownJob> = page.iter().filter(new).cloned().collect();
            for shown in &some {
                if shown.job.kind == JobKind::Withdrawal {
                    self.made_for(shown)?;
                } else {
                    self.made(shown, known).await?;
                }
            }
            match page.last().map(|shown| shown.job.id.number()) {
                Some(last) if last > above => before = last,
                _ => return Ok(()),
            }
        }
    }

    async fn made(&mut self, shown: &ShownJob, known: u64) -> Result<(), String> {
        let net = PLANS.iter().position(|plan| plan.name == shown.chain);
        let terms = net.and_then(|net| Some((net, PLANS[net].terms?)));
        let (net, terms) = terms.ok_or_else(|| format!("rules made {} on {}", shown.job.id, shown.chain))?;
        let address = |text: &str| {
            PLANS[net].family.parse_address(text).map_err(|error| format!("{} names {text}: {error}", shown.job.id))
        };
        let (from, to) = (address(&shown.from)?, address(&shown.job.to)?);
        let native = shown.asset == PLANS[net].coin;
        let key = Inside { from, to, native, amount: units(shown.job.amount) };
        let busy = self.is_swept(&key.to).await?;
        let mut world = self.world.lock();
        let errand = world.nets[net].has_reason(&terms, &key, known, busy);
        let report = &mut world.report;
        report.jobs += 1;
        match errand.map_err(|why| format!("{}: {why}", shown.job.id))? {
            Errand::TopUp => {
                report.top_ups += 1;
                self.waited.insert(key.to.clone());
            }
            Errand::Sweep { native: false } => {
                report.token_sweeps += 1;
                report.waited_for_gas += u64::from(self.waited.remove(&key.from));
            }
            Errand::Sweep { native: true } => report.coin_sweeps += 1,
            Errand::Surplus => report.surpluses += 1,
            Errand::Refill => report.refills += 1,
        }
        world.nets[net].inside.ask(key.clone());
        let open = Open { net, to: key.to.clone(), amount: key.amount, inside: Some(key) };
        self.open.insert(shown.job.id, open);
        Ok(())
    }

    /// Whether a sweep of an address is not over.
    async fn is_swept(&self, address: &Address) -> Result<bool, String> {
        let of = |open: &Open| open.inside.as_ref().is_some_and(|inside| inside.from == *address);
        let ids: Vec<JobId> = self.open.iter().filter(|(_, open)| of(open)).map(|(id, _)| *id).collect();
        if ids.is_empty() {
            return Ok(false);
        }
        let shown = self.ground.db.jobs_of(&ids).await.map_err(|error| unread(&error))?;
        Ok(shown.iter().any(|shown| !matches!(shown.job.state, JobState::Confirmed | JobState::FailedFinal)))
    }
}
