//! Customers who want to be paid out, and people who let them: what is asked for, approved, refused and called off, at the worst moments; and the
//! law of it. Each withdrawal is paid at most once, completed exactly when it was paid, and given back exactly when it was not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use custody::wallet::assign;
use custody::withdrawal::{ApprovalDesk, ApproverKey, Approving, cancel, decide};
use domain::ledger::{Movement, OpKey, Operation, Reference};
use domain::transfer::ClientOrderId;
use domain::withdrawal::{FeeRule, Velocity, WhenShort, WithdrawalPolicy, WithdrawalRefusal, WithdrawalState};
use domain::{AccountKind, Amount, AssetId, UserId};
use signer::approval::{GivenApproval, Proof};
use signer::policy::PublicKey;
use store::catalog::Author;
use store::entry::ListingId;
use store::ledger::balances::funding_of;
use store::ledger::{NewAccount, Opened};
use store::outbound::read::ShownJob;
use store::withdrawal::policy::PolicySet;
use store::withdrawal::{
    CreatedWithdrawal, Decision, DecisionReply, NewWithdrawal, WithdrawalApproved, WithdrawalDecision, WithdrawalId,
};
use tx::Address;

use super::ground::{BITCOIN, PEOPLE, PLANS, Shut, approving_key};
use super::pen::Memory;
use super::run::{Open, Simulation, unread};

const AUTHOR: Author<'static> = Author { actor: "simulator", reason: "a simulated policy" };
/// Customers, beside those whose addresses are paid to.
const CUSTOMERS: [i64; 4] = [1_000_001, 1_000_002, 1_000_003, 1_000_004];
/// What each of them begins with, of each asset, in ledger units.
const ENDOWMENT: i64 = 1_000_000_000_000_000;
const FEE: i64 = 7;
/// A withdrawal that has not come to its end as far as the judge knows.
pub(super) struct OpenWithdrawal {
    net: usize,
    user: UserId,
    asset: AssetId,
    to: Address,
    /// In ledger units, and in the chain's.
    units: i64,
    raw: u128,
    /// It is to another customer's address: the books are changed, and no coin may move.
    payee: Option<i64>,
}

impl Counter {
    /// Customers' own addresses on a chain.
    pub fn addresses_on(&self, net: usize) -> impl Iterator<Item = String> {
        self.addresses.iter().filter(move |((on, _), _)| *on == net).map(|(_, address)| address.to_string())
    }
}

/// How much may be asked for, in ledger units, and how often in an hour. They hold for each asset on each chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AskLimits {
    daily_user: Option<i64>,
    daily_total: Option<i64>,
    hourly: Option<u32>,
}

/// What the judge knows of withdrawals.
#[derive(Default)]
pub(super) struct Counter {
    /// What people have written into the policies last.
    limits: AskLimits,
    pub asked: BTreeMap<WithdrawalId, OpenWithdrawal>,
    /// What each customer has left, by the judge's own books.
    left: BTreeMap<(i64, AssetId), i64>,
    /// The customers' own addresses, on the chains where users have some. Nobody else pays to these.
    addresses: BTreeMap<(usize, i64), Address>,
}

fn policy(enabled: bool, incident: bool, waits: bool, limits: AskLimits) -> WithdrawalPolicy {
    let units = Amount::from_units;
    WithdrawalPolicy {
        version: 0,
        enabled,
        incident,
        min: units(10),
        max: units(1_000_000_000),
        fee: FeeRule { fixed: units(FEE), share_bps: 0, least: units(0) },
        auto_approve: units(4_000_000),
        auto_approve_daily: None,
        two_above: units(6_000_000),
        many_above: units(60_000_000),
        many: 3,
        daily_user: limits.daily_user.map(units),
        daily_total: limits.daily_total.map(units),
        velocity: limits.hourly.map(|count| Velocity { count, window_us: 3_600 * 1_000_000 }),
        cooling_off_us: 0,
        book_only: false,
        when_short: if waits { WhenShort::Wait } else { WhenShort::Fail },
        quote_life_us: 0,
        life_us: 90 * 3_600 * 1_000_000,
    }
}

/// What was taken at one moment, added up by the judge: it can be no more than the limits that were written before. (That a whole day adds up is the
/// audit's to say.)
#[derive(Default)]
struct TakenAtOnce {
    all: BTreeMap<ListingId, i64>,
    /// How much, and how often.
    users: BTreeMap<(ListingId, i64), (i64, u32)>,
}

impl TakenAtOnce {
    fn add(&mut self, new: &NewWithdrawal, limits: AskLimits) -> Result<(), String> {
        let all = self.all.entry(new.listing).or_default();
        *all += new.amount.units();
        let (sum, count) = self.users.entry((new.listing, new.user.get())).or_default();
        (*sum, *count) = (*sum + new.amount.units(), *count + 1);
        let is_beyond = limits.daily_total.is_some_and(|most| *all > most)
            || limits.daily_user.is_some_and(|most| *sum > most)
            || limits.hourly.is_some_and(|most| *count > most);
        if is_beyond { Err(format!("{} was taken above {limits:?}", new.id)) } else { Ok(()) }
    }
}

impl Simulation {
    /// Customers have money, and policies let them have it.
    pub(super) async fn fund_customers(&mut self) -> Result<(), String> {
        let (db, now) = (&self.ground.db, self.world.lock().now());
        let assets: BTreeSet<AssetId> =
            self.ground.rows.iter().flat_map(|row| &row.listings).map(|listing| listing.asset).collect();
        for asset in assets {
            let house = NewAccount::system(&AccountKind::Suspense, asset).into_iter();
            let users = CUSTOMERS.into_iter().filter_map(UserId::new).map(|user| NewAccount::funding(user, asset));
            let wanted: Vec<NewAccount> = house.chain(users).collect();
            let mut accounts = Vec::new();
            for opened in db.open(&wanted, now).await.map_err(|error| unread(&error))? {
                let Opened::Account(account) = opened else { return Err("an asset is missing".to_owned()) };
                accounts.push(account);
            }
            let Some((house, users)) = accounts.split_first() else { return Err("no accounts".to_owned()) };
            let mut operations = Vec::new();
            for (account, user) in users.iter().zip(CUSTOMERS) {
                let amount = Amount::from_units(ENDOWMENT);
                let movement = Movement { from: *house, to: *account, asset, amount };
                let key = OpKey::new(format!("endow-{account}")).map_err(|error| error.to_string())?;
                let reference = Reference::new("what a customer begins with").map_err(|error| error.to_string())?;
                operations.push(
                    Operation::move_available(key, vec![movement], reference).map_err(|error| error.to_string())?,
                );
                self.counter.left.insert((user, asset), ENDOWMENT);
            }
            db.post(&operations, now).await.map_err(|error| unread(&error))?;
        }
        for (net, _) in PLANS.iter().enumerate().filter(|(_, plan)| plan.terms.is_some()) {
            let group = PLANS[net].group("users").map_err(|error| error.to_string())?;
            let users: Vec<UserId> = CUSTOMERS.into_iter().filter_map(UserId::new).collect();
            let assigned = assign(db, &self.ground.pinned, &group, &users, now).await;
            for wallet in assigned.map_err(|error| error.to_string())?.wallets {
                self.counter.addresses.insert((net, wallet.user.get()), wallet.address);
            }
        }
        self.set_policies(true, false, AskLimits::default()).await
    }

    pub(super) async fn set_policies(
        &mut self,
        enabled: bool,
        incident: bool,
        limits: AskLimits,
    ) -> Result<(), String> {
        self.counter.limits = limits;
        let (now, waits) = {
            let mut world = self.world.lock();
            (world.now(), world.random.below(2) == 0)
        };
        for listing in self.ground.rows.iter().flat_map(|row| &row.listings) {
            let policy = policy(enabled, incident, waits, limits);
            let set = self.ground.db.set_withdrawal_policy(listing.id, &policy, &AUTHOR, now).await;
            match set.map_err(|error| unread(&error))? {
                PolicySet::New(_) | PolicySet::Same(_) => {}
                refused => return Err(format!("a policy is not taken: {refused:?}")),
            }
        }
        Ok(())
    }

    /// Policies change while withdrawals are on their way; at a rest they are as they were.
    pub(super) async fn change_policies(&mut self) -> Result<(), String> {
        let (choice, limits) = {
            let mut world = self.world.lock();
            world.report.policies_changed += 1;
            let choice = world.random.below(3);
            // Some of them at once, and often none: what was asked for earlier that day counts, so little is taken then.
            let mut drawn = |least: u64| {
                let most = i64::try_from(least + world.random.below(least)).unwrap_or(i64::MAX);
                (world.random.below(4) == 0).then_some(most)
            };
            let (daily_user, daily_total) = (drawn(40_000), drawn(120_000));
            let hourly = drawn(2).and_then(|count| u32::try_from(count).ok());
            (choice, AskLimits { daily_user, daily_total, hourly })
        };
        self.set_policies(choice != 0, choice == 1, limits).await
    }

    /// People suspend a chain or an asset, or what they have suspended is active again; at a rest all is.
    pub(super) async fn suspend(&mut self, net: usize) -> Result<(), String> {
        if self.ground.shut.is_some() {
            return self.end_suspension().await;
        }
        let (shut, now) = {
            let mut world = self.world.lock();
            let token = PLANS[net].terms.is_some() && world.random.below(2) == 0;
            let asset = Shut::Asset(if token { "USD" } else { PLANS[net].coin });
            let shut = if world.random.below(2) == 0 { Shut::Chain(net) } else { asset };
            world.report.chains_suspended += u64::from(shut != asset);
            world.report.assets_suspended += u64::from(shut == asset);
            (shut, world.now())
        };
        self.ground.suspend(Some(shut), now).await.map_err(|error| error.to_string())?;
        if let Shut::Chain(net) = shut {
            let lanes = self.lanes(Some(PLANS[net].name)).await?;
            self.open_then = lanes.into_iter().map(|lane| (lane.lane.id, lane.open)).collect();
        }
        Ok(())
    }

    /// What was suspended is active again. On a chain that was, no wallet may have taken a slot meanwhile.
    pub(super) async fn end_suspension(&mut self) -> Result<(), String> {
        let Some(shut) = self.ground.shut else { return Ok(()) };
        if let Shut::Chain(net) = shut {
            let then = std::mem::take(&mut self.open_then);
            for lane in self.lanes(Some(PLANS[net].name)).await? {
                if lane.open > then.get(&lane.lane.id).copied().unwrap_or(0) {
                    return Err(format!("{} has taken a slot while its chain was suspended", lane.lane.address));
                }
            }
        }
        let now = self.world.lock().now();
        self.ground.suspend(None, now).await.map_err(|error| error.to_string())
    }

    /// Customers ask for some, in one batch. Half of the time they ask for the same again: their answer did not come.
    pub(super) async fn withdraw(&mut self, net: usize, most: u64) -> Result<(), String> {
        let row = self.ground.rows[net].clone();
        let (mut new, mut asked) = (Vec::new(), Vec::new());
        let (now, twice) = {
            let mut world = self.world.lock();
            for _ in 0..=world.random.below(12) {
                if world.report.jobs >= most {
                    break;
                }
                let place = world.random.index(CUSTOMERS.len());
                let native = net == BITCOIN || world.random.below(2) == 0;
                let small = 10_000 + i64::try_from(world.random.below(10_000)).unwrap_or(0);
                let large = !native && world.random.below(16) == 0;
                let units = if large { small * 500 } else { small };
                let listing = row.listings.iter().find(|one| one.form.contract().is_none() == native);
                let id = WithdrawalId::new(world.next_id()).map_err(|error| format!("{error:?}"))?;
                let (Some(listing), Some(user)) = (listing, UserId::new(CUSTOMERS[place])) else {
                    return Err("a listing is missing".to_owned());
                };
                world.report.jobs += 1;
                world.report.withdrawals += 1;
                // Each has a destination of its own.
                let mut account = [0xd1; 20];
                account[12..].copy_from_slice(&world.report.withdrawals.to_be_bytes());
                // Some go to the next customer, and no coin may move for them.
                let next = CUSTOMERS[(place + 1) % CUSTOMERS.len()];
                let inside = self.counter.addresses.get(&(net, next)).filter(|_| world.random.below(8) == 0);
                world.report.withdrawals_inside += u64::from(inside.is_some());
                let payee = inside.map(|_| next);
                let to = inside.cloned().unwrap_or_else(|| (PLANS[net].account)(account));
                let decimals = if native { PLANS[net].decimals } else { super::ground::DOLLAR_DECIMALS };
                let unit = 10_u128.pow(u32::from(decimals - super::ground::PRECISION));
                let raw = u128::try_from(units).map_err(|error| error.to_string())? * unit;
                new.push(NewWithdrawal {
                    id,
                    user,
                    client_order_id: ClientOrderId::new(id.to_string()).map_err(|error| format!("{error:?}"))?,
                    listing: listing.id,
                    to: to.to_string(),
                    amount: Amount::from_units(units),
                    most_fee: Amount::from_units(FEE),
                    quote: None,
                    travel_rule: None,
                });
                asked.push(OpenWithdrawal { net, user, asset: listing.asset, to, units, raw, payee });
            }
            (world.now(), world.random.below(2) == 0)
        };
        if twice {
            let first = self.create(&new, now).await?;
            self.world.lock().report.withdrawals_asked_again += first.len() as u64;
        }
        let limits = self.counter.limits;
        let mut counted = TakenAtOnce::default();
        for ((created, new), asked) in self.create(&new, now).await?.into_iter().zip(&new).zip(asked) {
            match created {
                CreatedWithdrawal::New(row) | CreatedWithdrawal::Before(row) if row.id == new.id => {
                    if self.ground.is_shut(net, new.listing) {
                        return Err(format!("{} was taken while {:?} is suspended", new.id, self.ground.shut));
                    }
                    counted.add(new, limits)?;
                    self.counter.asked.insert(row.id, asked);
                }
                CreatedWithdrawal::Refused { refusal: WithdrawalRefusal::DailyAmountExceeded, .. }
                    if limits.daily_user.is_some() =>
                {
                    self.world.lock().report.withdrawals_limited += 1;
                }
                CreatedWithdrawal::Refused { refusal: WithdrawalRefusal::DailyTotalExceeded, .. }
                    if limits.daily_total.is_some() =>
                {
                    self.world.lock().report.withdrawals_limited += 1;
                }
                CreatedWithdrawal::Refused { refusal: WithdrawalRefusal::TooManyWithdrawals, .. }
                    if limits.hourly.is_some() =>
                {
                    self.world.lock().report.withdrawals_limited += 1;
                }
                CreatedWithdrawal::Refused {
                    refusal: WithdrawalRefusal::ChainSuspended | WithdrawalRefusal::AssetSuspended,
                    ..
                } if self.ground.is_shut(net, new.listing) => {
                    self.world.lock().report.withdrawals_suspended += 1;
                }
                CreatedWithdrawal::Refused { refusal: WithdrawalRefusal::SwitchedOff, .. } => {
                    self.world.lock().report.withdrawals_refused += 1;
                }
                other => return Err(format!("{} was answered with {other:?}", new.id)),
            }
        }
        Ok(())
    }

    async fn create(&self, new: &[NewWithdrawal], now: domain::Timestamp) -> Result<Vec<CreatedWithdrawal>, String> {
        self.ground.db.create_withdrawals(new, now).await.map_err(|error| unread(&error))
    }

    /// Customers call some off and people decide others, whatever state they are in: only one of them can be first.
    pub(super) async fn decide(&mut self) -> Result<(), String> {
        let some: Vec<(WithdrawalId, UserId, u64)> = {
            let mut world = self.world.lock();
            let newest = self.counter.asked.len().min(100);
            let newest: Vec<(WithdrawalId, UserId)> =
                self.counter.asked.iter().rev().take(newest).map(|(id, asked)| (*id, asked.user)).collect();
            (0..12.min(newest.len()))
                .map(|_| {
                    let (id, user) = newest[world.random.index(newest.len())];
                    (id, user, world.random.below(10))
                })
                .collect()
        };
        for (id, user, draw) in some {
            match draw {
                0 => self.call_off(user, id).await?,
                1 => self.say(id, Decision::Refuse).await?,
                2 => {
                    self.call_off(user, id).await?;
                    self.agree(id).await?;
                }
                3 => self.say(id, Decision::Review).await?,
                4 => {
                    self.agree(id).await?;
                    self.call_off(user, id).await?;
                }
                _ => self.agree(id).await?,
            }
        }
        Ok(())
    }

    async fn call_off(&self, user: UserId, id: WithdrawalId) -> Result<(), String> {
        let (now, remembers) = (self.world.lock().now(), self.asked_signer());
        let replies = cancel(&self.ground.db, Some(&remembers), &[(user, id)], now).await;
        let done = matches!(replies.map_err(|error| unread(&error))?.first(), Some(DecisionReply::Done(_)));
        self.world.lock().report.withdrawals_called_off += u64::from(done);
        Ok(())
    }

    async fn say(&self, id: WithdrawalId, decision: Decision) -> Result<(), String> {
        let (now, remembers) = (self.world.lock().now(), self.asked_signer());
        let decision = WithdrawalDecision { id, decision, actor: "ann".to_owned(), reason: "a look at it".to_owned() };
        decide(&self.ground.db, Some(&remembers), &[decision], now).await.map_err(|error| unread(&error))?;
        Ok(())
    }

    /// People ask the signer by themselves, and it is always there for them.
    fn asked_signer(&self) -> Memory {
        Memory(Arc::clone(&self.ground.signer))
    }

    /// As many people as there are sign it.
    async fn agree(&self, id: WithdrawalId) -> Result<(), String> {
        let ground = &self.ground;
        let Some(asked) = self.counter.asked.get(&id) else { return Ok(()) };
        let signer = "sim".parse().map_err(|error| format!("{error:?}"))?;
        let mut approvers = Vec::new();
        for person in PEOPLE {
            let key = approving_key(person).ok_or_else(|| format!("{person} has no key"))?;
            let name = person.parse().map_err(|error| format!("{error:?}"))?;
            let public = key.public().try_into().map_err(|_| "a public key".to_owned())?;
            let of = person.parse().map_err(|error| format!("{error:?}"))?;
            approvers.push(ApproverKey { person: of, name, public: PublicKey::Ed25519(public) });
        }
        let desk = ApprovalDesk {
            row: &ground.rows[asked.net],
            pinned: &ground.pinned,
            signer: &signer,
            approvers: &approvers,
        };
        let now = self.world.lock().now();
        for person in PEOPLE {
            let key = approving_key(person).ok_or_else(|| format!("{person} has no key"))?;
            let read = desk.read(&ground.db, id).await.map_err(|error| format!("{error}"))?;
            let Some((_, Ok(intent))) = read else { return Err(format!("{id} cannot be signed: {read:?}")) };
            let name = person.parse().map_err(|error| format!("{error:?}"))?;
            let proof = Proof::Ed25519(key.sign_approval(&intent.digest()));
            let given = GivenApproval { digest: intent.digest(), key: name, proof };
            let done = desk.approve(&ground.db, id, &given, now).await.map_err(|error| format!("{error}"))?;
            match done {
                Approving::Taken(WithdrawalApproved::Approved(_)) => {
                    self.world.lock().report.withdrawals_approved += 1;
                }
                Approving::Taken(
                    WithdrawalApproved::Kept { .. }
                    | WithdrawalApproved::Before { .. }
                    | WithdrawalApproved::NotNow(_)
                    | WithdrawalApproved::TooLate,
                ) => {}
                other => return Err(format!("{id}: {person} has signed it, and the answer is {other:?}")),
            }
        }
        Ok(())
    }

    /// A job that was made for a withdrawal.
    pub(super) fn made_for(&mut self, shown: &ShownJob) -> Result<(), String> {
        let id: WithdrawalId = shown
            .job
            .reference
            .parse()
            .map_err(|_| format!("{} is for nothing: {}", shown.job.id, shown.job.reference))?;
        let asked =
            self.counter.asked.get(&id).ok_or_else(|| format!("{} is for {id}, which has ended", shown.job.id))?;
        if asked.payee.is_some() {
            return Err(format!("{} pays {id} on the chain, to an address of ours", shown.job.id));
        }
        let open = Open { net: asked.net, to: asked.to.clone(), amount: asked.raw, inside: None };
        if shown.job.to != asked.to.to_string() || super::model::units(shown.job.amount) != asked.raw {
            return Err(format!("{} does not pay what {id} asks for", shown.job.id));
        }
        self.open.insert(shown.job.id, open);
        Ok(())
    }

    /// At a rest people agree to what is left, and what was asked for comes to its end. What is not there yet, if anything.
    pub(super) async fn withdrawals_left(&self) -> Result<Option<String>, String> {
        let ids: Vec<WithdrawalId> = self.counter.asked.keys().copied().collect();
        let mut left = None;
        for row in self.ground.db.withdrawals(&ids).await.map_err(|error| unread(&error))? {
            match row.state {
                WithdrawalState::Pending | WithdrawalState::ManualReview => self.agree(row.id).await?,
                WithdrawalState::Approved | WithdrawalState::Queued => {}
                WithdrawalState::Completed
                | WithdrawalState::Failed
                | WithdrawalState::Rejected
                | WithdrawalState::Cancelled => continue,
            }
            left = Some(format!("{} is {}", row.id, row.state.as_str()));
        }
        Ok(left)
    }

    /// Completed exactly when it was paid, once and in full; given back exactly when it was not. And every customer has what is left by the judge's
    /// own books.
    pub(super) async fn judge_withdrawals(&mut self) -> Result<(), String> {
        let asked = std::mem::take(&mut self.counter.asked);
        let ids: Vec<WithdrawalId> = asked.keys().copied().collect();
        let rows = self.ground.db.withdrawals(&ids).await.map_err(|error| unread(&error))?;
        if rows.len() != asked.len() {
            return Err("a withdrawal is gone".to_owned());
        }
        for row in rows {
            let asked = &asked[&row.id];
            let mut world = self.world.lock();
            let paid = world.nets[asked.net].paid.get(&asked.to).copied().unwrap_or_default();
            let right = match row.state {
                WithdrawalState::Completed if asked.payee.is_some() => paid.0 == 0,
                WithdrawalState::Completed => paid == (1, asked.raw),
                WithdrawalState::Failed | WithdrawalState::Rejected | WithdrawalState::Cancelled => paid.0 == 0,
                WithdrawalState::Pending
                | WithdrawalState::ManualReview
                | WithdrawalState::Approved
                | WithdrawalState::Queued => false,
            };
            if !right {
                let (count, got) = paid;
                let state = row.state.as_str();
                return Err(format!("{} is {state}, and {} got {got} in {count} payments", row.id, asked.to));
            }
            let completed = row.state == WithdrawalState::Completed;
            world.report.withdrawals_completed += u64::from(completed);
            world.report.withdrawals_failed += u64::from(row.state == WithdrawalState::Failed);
            if completed {
                *self.counter.left.entry((asked.user.get(), asked.asset)).or_default() -= asked.units + FEE;
                if let Some(payee) = asked.payee {
                    *self.counter.left.entry((payee, asked.asset)).or_default() += asked.units;
                }
            }
        }
        self.compare_customers().await
    }

    async fn compare_customers(&self) -> Result<(), String> {
        let tx = &mut self.ground.db.read().await.map_err(|error| unread(&error))?;
        for user in CUSTOMERS.into_iter().filter_map(UserId::new) {
            for (_, account) in funding_of(tx, user).await.map_err(|error| unread(&error))? {
                let wanted = self.counter.left.get(&(user.get(), account.asset)).copied().unwrap_or(0);
                let (has, held) = (account.available.units(), account.frozen.units());
                if has != wanted || held != 0 {
                    return Err(format!("customer {} has {has} and {held} held, and should have {wanted}", user.get()));
                }
                self.world.lock().report.customers_compared += 1;
            }
        }
        Ok(())
    }
}
