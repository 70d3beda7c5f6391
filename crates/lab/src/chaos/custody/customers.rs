//! Customers who want to be paid out, and people who let them or do not, while everything that pays is killed. Each withdrawal goes to an
//! address of its own, so what is there in the end is what it has paid; and each customer has books of their own: what they began with, less
//! what was paid.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use custody::wallet::Pinned;
use custody::withdrawal::{ApprovalDesk, ApproverKey, Approving, Remembers, cancel, decide};
use domain::ledger::{Movement, OpKey, Operation, Reference};
use domain::random::Random;
use domain::transfer::ClientOrderId;
use domain::withdrawal::{FeeRule, Velocity, WhenShort, WithdrawalPolicy, WithdrawalRefusal, WithdrawalState};
use domain::{AccountKind, Amount, AssetId, Clock, RawAmount, UserId};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use signer::access::Credential;
use signer::approval::{GivenApproval, Proof};
use signer::client::transport::SignerPlace;
use signer::client::{ClientSettings, SignerClient, SignerError};
use signer::names::{JobId as SignedJob, SignerName};
use signer::policy::PublicKey;
use signer::policy::signed::SigningKey;
use store::Db;
use store::catalog::Author;
use store::ledger::balances::funding_of;
use store::ledger::{NewAccount, Opened};
use store::withdrawal::policy::PolicySet;
use store::withdrawal::{
    CreatedWithdrawal, Decision, NewWithdrawal, WithdrawalApproved, WithdrawalDecision, WithdrawalId,
};
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Failure};
use transfer::IdMaker;
use tx::{Address, Coin};

use super::judge::Verdict;
use super::net::{Net, Payable};
use super::people::{destination, number};
use super::wrong;
use crate::bench::signer::System;

const AUTHOR: Author<'static> = Author { actor: "chaos", reason: "a scratch policy" };
const CUSTOMERS: [i64; 3] = [9_001, 9_002, 9_003];
/// What each of them begins with, of each asset, in ledger units.
const ENDOWMENT: i64 = 1_000_000_000_000_000;
/// Not more than the smallest amount that is asked for.
const FEE: i64 = 1;
/// A day.
const LIFE_MICROS: i64 = 24 * 3_600 * 1_000_000;
/// How long people wait for the signer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Half a minute of tries, ten in a second.
const MOST_TRIES: u32 = 300;
/// Policies change at one request of so many; while nothing or little is taken, at every second one.
const CHANGES: u64 = 8;
/// People look at one of the newest, half of the time: the others have their end mostly.
const NEWEST: usize = 8;
/// Decimals of all assets in the ledger.
pub(super) const PRECISION: u8 = 6;

/// What a customer asked for.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub id: WithdrawalId,
    pub user: UserId,
    /// Which of the chains.
    pub net: usize,
    pub symbol: &'static str,
    pub asset: AssetId,
    pub coin: Coin,
    pub to: Address,
    /// In the ledger's units, and in the chain's.
    pub units: i64,
    pub raw: RawAmount,
}

/// Who may say something of withdrawals, and with what: people whose key the signer knows.
pub(super) struct Office {
    pub db: Db,
    pub signer: SignerClient,
    pub pinned: Arc<Pinned>,
    pub key: SigningKey,
}

/// The name of the key, and of the person.
pub(super) const APPROVER: &str = "ada";

impl Remembers for Office {
    fn rounds<'a>(&'a self, jobs: &'a [SignedJob]) -> BoxFuture<'a, Result<Vec<Option<u32>>, SignerError>> {
        Box::pin(self.signer.rounds(jobs))
    }
}

impl Office {
    pub fn open(db: &Db, home: &Path, pinned: Arc<Pinned>, key: SigningKey) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(home.join("server.credential")).map_err(wrong)?;
        let credential = Credential::parse(&text).map_err(wrong)?;
        let settings = ClientSettings { deadline: PATIENCE, try_time: PATIENCE, ..ClientSettings::default() };
        let place = SignerPlace::unix(&home.join("signer/socket"));
        let signer = SignerClient::new(place, credential, Arc::new(SystemClock), Arc::new(System), settings, None);
        Ok(Self { db: db.clone(), signer, pinned, key })
    }

    async fn say(&self, id: WithdrawalId, decision: Decision) -> CommandResult {
        let decision =
            WithdrawalDecision { id, decision, actor: APPROVER.to_owned(), reason: "a look at it".to_owned() };
        decide(&self.db, Some(self), &[decision], SystemClock.now()).await?;
        Ok(())
    }

    /// Reads what is to be paid, and signs it. Whether it may be paid for that: it may have been approved, or be over.
    async fn agree(&self, net: &Net, id: WithdrawalId) -> Result<bool, Failure> {
        let public = self.key.public().try_into().map_err(|_| wrong("a public key"))?;
        let approver = ApproverKey {
            person: APPROVER.parse().map_err(wrong)?,
            name: APPROVER.parse().map_err(wrong)?,
            public: PublicKey::Ed25519(public),
        };
        let signer: SignerName = "signer".parse().map_err(wrong)?;
        let desk = ApprovalDesk {
            row: &net.row,
            pinned: &self.pinned,
            signer: &signer,
            approvers: std::slice::from_ref(&approver),
        };
        let Some((_, Ok(intent))) = desk.read(&self.db, id).await.map_err(wrong)? else {
            return Err(wrong(format!("{id} cannot be signed")));
        };
        let digest = intent.digest();
        let proof = Proof::Ed25519(self.key.sign_approval(&digest));
        let given = GivenApproval { digest, key: approver.name.clone(), proof };
        match desk.approve(&self.db, id, &given, SystemClock.now()).await.map_err(wrong)? {
            Approving::Taken(WithdrawalApproved::Approved(_)) => Ok(true),
            Approving::Taken(WithdrawalApproved::NotNow(_)) => Ok(false),
            other => Err(wrong(format!("{id} was signed, and the answer is {other:?}"))),
        }
    }
}

pub(super) struct Customers {
    pub db: Db,
    pub office: Arc<Office>,
    pub nets: Vec<Arc<Net>>,
    pub withdrawals: usize,
    /// Between two requests, on average.
    pub pause: Duration,
    pub random: Random,
    pub stop: Arc<AtomicBool>,
}

fn customers() -> impl Iterator<Item = UserId> {
    CUSTOMERS.into_iter().filter_map(UserId::new)
}

/// What people want to be so for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    /// Two of three are paid without people; of the others one person has to sign.
    Usual,
    /// Somebody has to sign whatever is asked for from now on.
    Careful,
    /// Nothing is paid that nobody has signed, whatever was said of it before.
    Incident,
    /// Little is taken: of each customer, of all together, and not often. What was asked for before counts.
    Limited,
    /// Nothing is taken, and nothing gets a job.
    Off,
}

/// What is answered beyond a limit.
const LIMITS: [WithdrawalRefusal; 3] = [
    WithdrawalRefusal::TooManyWithdrawals,
    WithdrawalRefusal::DailyAmountExceeded,
    WithdrawalRefusal::DailyTotalExceeded,
];

/// What a payable coin's withdrawals ask for at least, in the ledger's units: up to twice as much.
fn least_of(net: &Net, payable: &Payable) -> Result<u64, Failure> {
    let listing = net.row.listing(payable.listing).ok_or_else(|| wrong("a coin is not listed"))?;
    let unit = u64::try_from(listing.form.raw_per_unit()).map_err(wrong)?;
    Ok((payable.unit / unit).max(1))
}

fn policy(mood: Mood, least: u64) -> Result<WithdrawalPolicy, Failure> {
    let units = Amount::from_units;
    let alone = least.saturating_add(least.saturating_mul(2) / 3);
    let alone = if mood == Mood::Careful { 0 } else { i64::try_from(alone).map_err(wrong)? };
    let limited = mood == Mood::Limited;
    let limit = |times: u64| {
        let most = i64::try_from(least.saturating_mul(times)).map_err(wrong)?;
        Ok::<_, Failure>(limited.then(|| units(most)))
    };
    Ok(WithdrawalPolicy {
        version: 0,
        enabled: mood != Mood::Off,
        incident: mood == Mood::Incident,
        min: units(1),
        max: units(ENDOWMENT),
        fee: FeeRule { fixed: units(FEE), share_bps: 0, least: units(0) },
        auto_approve: units(alone),
        auto_approve_daily: None,
        two_above: units(ENDOWMENT),
        many_above: units(ENDOWMENT),
        many: 3,
        daily_user: limit(20)?,
        daily_total: limit(40)?,
        velocity: limited.then_some(Velocity { count: 2, window_us: 2_000_000 }),
        cooling_off_us: 0,
        book_only: false,
        when_short: WhenShort::Fail,
        quote_life_us: 0,
        life_us: LIFE_MICROS,
    })
}

/// Each coin has its own policy, and all of them are told the same. Each as often as it takes: the database may be away.
async fn set_policies(db: &Db, nets: &[Arc<Net>], mood: Mood) -> CommandResult {
    for net in nets {
        for payable in &net.coins {
            let policy = policy(mood, least_of(net, payable)?)?;
            let mut tries = 0;
            loop {
                match db.set_withdrawal_policy(payable.listing, &policy, &AUTHOR, SystemClock.now()).await {
                    Ok(PolicySet::New(_) | PolicySet::Same(_)) => break,
                    Ok(refused) => return Err(wrong(format!("a policy is not taken: {refused:?}"))),
                    Err(error) if tries >= MOST_TRIES => return Err(error.into()),
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                }
                tries += 1;
            }
        }
    }
    Ok(())
}

/// Customers have money, and policies let them have it.
pub(super) async fn endow(db: &Db, nets: &[Arc<Net>]) -> CommandResult {
    let now = SystemClock.now();
    let listings = || nets.iter().flat_map(|net| &net.row.listings);
    set_policies(db, nets, Mood::Usual).await?;
    for asset in listings().map(|listing| listing.asset).collect::<BTreeSet<_>>() {
        let house = NewAccount::system(&AccountKind::Suspense, asset).into_iter();
        let wanted: Vec<NewAccount> = house.chain(customers().map(|user| NewAccount::funding(user, asset))).collect();
        let mut accounts = Vec::new();
        for opened in db.open(&wanted, now).await? {
            let Opened::Account(account) = opened else { return Err(wrong("an asset is missing")) };
            accounts.push(account);
        }
        let (house, users) = accounts.split_first().ok_or_else(|| wrong("no accounts"))?;
        let operation = |account: &domain::AccountId| -> Result<Operation, Failure> {
            let movement = Movement { from: *house, to: *account, asset, amount: Amount::from_units(ENDOWMENT) };
            let key = OpKey::new(format!("endow-{account}")).map_err(wrong)?;
            let reference = Reference::new("what a customer begins with").map_err(wrong)?;
            Operation::move_available(key, vec![movement], reference).map_err(wrong)
        };
        db.post(&users.iter().map(operation).collect::<Result<Vec<_>, _>>()?, now).await?;
    }
    Ok(())
}

/// What customers asked for, and what became of policies meanwhile.
#[derive(Debug, Default)]
pub(super) struct AskedOf {
    pub wanted: Vec<Wanted>,
    /// Those that were not taken, because withdrawals were switched off or a limit was used up: nobody may be paid for them.
    pub refused: Vec<Wanted>,
    pub policies_changed: u64,
    /// By people, while things went wrong, of what waited for them.
    pub signed: u64,
}

impl Customers {
    /// Asks for all of them, often in the same words again, calls some off, and has people look at some and sign some, while they change their
    /// policies. When it ends all is switched on again.
    pub async fn ask(mut self) -> Result<AskedOf, Failure> {
        let ids = IdMaker::new(format!("customers-{}", std::process::id()));
        let (mut asked, mut mood) = (AskedOf::default(), Mood::Usual);
        while asked.wanted.len() < self.withdrawals && !self.stop.load(Ordering::Relaxed) {
            let twice_us = u64::try_from(self.pause.as_micros()).unwrap_or(u64::MAX).saturating_mul(2);
            tokio::time::sleep(Duration::from_micros(self.random.below(twice_us.max(1)))).await;
            if self.random.below(if matches!(mood, Mood::Off | Mood::Limited) { 2 } else { CHANGES }) == 0 {
                let moods = [Mood::Usual, Mood::Usual, Mood::Careful, Mood::Incident, Mood::Limited, Mood::Off];
                mood = moods[self.random.index(moods.len())];
                set_policies(&self.db, &self.nets, mood).await?;
                asked.policies_changed += 1;
            }
            let number = number(&self.db, &ids).await?;
            let drawn = asked.wanted.len() + asked.refused.len();
            let (one, new) = self.draw(WithdrawalId::new(number).map_err(wrong)?, drawn)?;
            let mut taken = self.create(&new, mood).await?;
            if self.random.below(3) == 0 {
                taken |= self.create(&new, mood).await?;
            }
            let kept = if taken { &mut asked.wanted } else { &mut asked.refused };
            kept.push(one);
            if !asked.wanted.is_empty() && self.random.below(2) == 0 {
                let newest = asked.wanted.len().saturating_sub(NEWEST);
                let from = if self.random.below(2) == 0 { newest } else { 0 };
                let chosen = asked.wanted[from + self.random.index(asked.wanted.len() - from)].clone();
                asked.signed += u64::from(self.meddle(&chosen).await);
            }
        }
        set_policies(&self.db, &self.nets, Mood::Usual).await?;
        Ok(asked)
    }

    fn draw(&mut self, id: WithdrawalId, drawn: usize) -> Result<(Wanted, NewWithdrawal), Failure> {
        let net_at = self.random.index(self.nets.len());
        let net = &self.nets[net_at];
        let payable = &net.coins[self.random.index(net.coins.len())];
        let listing = net.row.listing(payable.listing).ok_or_else(|| wrong("a coin is not listed"))?;
        let unit = u64::try_from(listing.form.raw_per_unit()).map_err(wrong)?;
        let least = least_of(net, payable)?;
        let units = least + self.random.below(least);
        let raw: RawAmount = (u128::from(units) * u128::from(unit)).to_string().parse().map_err(wrong)?;
        let to = destination(net.kind, &mut self.random, 1_000_000 + u32::try_from(drawn).map_err(wrong)?);
        let user = UserId::new(CUSTOMERS[self.random.index(CUSTOMERS.len())]).ok_or_else(|| wrong("a customer"))?;
        let units = i64::try_from(units).map_err(wrong)?;
        let new = NewWithdrawal {
            id,
            user,
            client_order_id: ClientOrderId::new(id.to_string()).map_err(|error| wrong(format!("{error:?}")))?,
            listing: payable.listing,
            to: to.to_string(),
            amount: Amount::from_units(units),
            most_fee: Amount::from_units(FEE),
            quote: None,
            travel_rule: None,
        };
        let (symbol, coin, asset) = (payable.symbol, payable.coin.clone(), listing.asset);
        Ok((Wanted { id, user, net: net_at, symbol, asset, coin, to, units, raw }, new))
    }

    /// Asks until there is an answer. Its name makes it one request, however often it is asked for. Whether it was taken: what is switched off, or
    /// beyond a limit while there are some, is refused, and nothing else is.
    async fn create(&self, new: &NewWithdrawal, mood: Mood) -> Result<bool, Failure> {
        for _ in 0..MOST_TRIES {
            match self.db.create_withdrawals(std::slice::from_ref(new), SystemClock.now()).await.as_deref() {
                Ok([CreatedWithdrawal::New(_) | CreatedWithdrawal::Before(_)]) => return Ok(true),
                Ok([CreatedWithdrawal::Refused { refusal: WithdrawalRefusal::SwitchedOff, .. }])
                    if mood == Mood::Off =>
                {
                    return Ok(false);
                }
                Ok([CreatedWithdrawal::Refused { refusal, .. }])
                    if mood == Mood::Limited && LIMITS.contains(refusal) =>
                {
                    return Ok(false);
                }
                Ok(other) => return Err(wrong(format!("{} was not taken: {other:?}", new.id))),
                // The database is away, or was when it answered.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
        Err(wrong("no answer from the database in half a minute"))
    }

    /// The customer and people at once, whatever state it is in: only one of them can be first. Whether somebody has signed it.
    async fn meddle(&mut self, wanted: &Wanted) -> bool {
        let (customer, people) = match self.random.below(8) {
            0 => (true, Say::Nothing),
            1 => (false, Say::Decide(Decision::Review)),
            2 => (true, Say::Decide(Decision::Review)),
            3 => (true, Say::Decide(Decision::Refuse)),
            4 => (true, Say::Agree),
            _ => (false, Say::Agree),
        };
        let now = SystemClock.now();
        let calls_off = async {
            if customer {
                let cancelled = cancel(&self.db, Some(&*self.office), &[(wanted.user, wanted.id)], now).await;
                cancelled.inspect_err(|error| tracing::debug!(%error, "a customer got no answer")).ok();
            }
        };
        let decides = async {
            let said = match people {
                Say::Nothing => Ok(false),
                Say::Decide(decision) => self.office.say(wanted.id, decision).await.map(|()| false),
                Say::Agree => self.office.agree(&self.nets[wanted.net], wanted.id).await,
            };
            said.inspect_err(|error| tracing::debug!(?error, "people got no answer")).unwrap_or(false)
        };
        let ((), signed) = tokio::join!(calls_off, decides);
        signed
    }
}

/// What people say of a withdrawal.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Say {
    Nothing,
    Decide(Decision),
    Agree,
}

/// People agree to what waits for them. How many withdrawals have not come to their end.
pub(super) async fn left(office: &Office, nets: &[Arc<Net>], asked: &[Wanted]) -> Result<usize, Failure> {
    let of: BTreeMap<WithdrawalId, usize> = asked.iter().map(|one| (one.id, one.net)).collect();
    let ids: Vec<WithdrawalId> = of.keys().copied().collect();
    let mut left = 0;
    for some in ids.chunks(1_000) {
        for row in office.db.withdrawals(some).await? {
            if is_over(row.state) {
                continue;
            }
            left += 1;
            let net = of.get(&row.id).and_then(|net| nets.get(*net)).ok_or_else(|| wrong("a chain"))?;
            if matches!(row.state, WithdrawalState::Pending | WithdrawalState::ManualReview) {
                office.agree(net, row.id).await?;
            }
        }
    }
    Ok(left)
}

const fn is_over(state: WithdrawalState) -> bool {
    match state {
        WithdrawalState::Completed
        | WithdrawalState::Failed
        | WithdrawalState::Rejected
        | WithdrawalState::Cancelled => true,
        WithdrawalState::Pending
        | WithdrawalState::ManualReview
        | WithdrawalState::Approved
        | WithdrawalState::Queued => false,
    }
}

/// Completed exactly when it was paid, once and in full; given back exactly when it was not; and every customer has what is left.
pub(super) async fn judge(
    db: &Db,
    nets: &[Arc<Net>],
    (asked, refused): (&[Wanted], &[Wanted]),
    verdict: &mut Verdict,
) -> Result<BTreeMap<&'static str, u64>, Failure> {
    let mut states: BTreeMap<WithdrawalId, WithdrawalState> = BTreeMap::new();
    for some in asked.chunks(1_000) {
        let ids: Vec<WithdrawalId> = some.iter().map(|one| one.id).collect();
        states.extend(db.withdrawals(&ids).await?.into_iter().map(|row| (row.id, row.state)));
    }
    let mut spent: BTreeMap<(i64, AssetId), i64> = BTreeMap::new();
    for (number, net) in nets.iter().enumerate() {
        let mine: Vec<&Wanted> = refused.iter().filter(|one| one.net == number).collect();
        let places: Vec<(Address, Coin)> = mine.iter().map(|one| (one.to.clone(), one.coin.clone())).collect();
        for (one, has) in mine.into_iter().zip(net.balances(&places).await?) {
            if has != RawAmount::ZERO {
                verdict.add("failed_and_paid", format!("{} was never taken, and {} has {has}", one.id, one.to));
            }
        }
    }
    let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
    for (number, net) in nets.iter().enumerate() {
        let mine: Vec<&Wanted> = asked.iter().filter(|one| one.net == number).collect();
        let places: Vec<(Address, Coin)> = mine.iter().map(|one| (one.to.clone(), one.coin.clone())).collect();
        for (one, has) in mine.into_iter().zip(net.balances(&places).await?) {
            let state = states.get(&one.id).copied();
            let words = || {
                let state = state.map_or("missing", WithdrawalState::as_str);
                format!(
                    "{} of {} {} to {} is {state}, and the recipient has {has}",
                    one.id, one.raw, one.symbol, one.to
                )
            };
            let Some(state) = state else {
                verdict.add("lost", words());
                continue;
            };
            *counts.entry(state.as_str()).or_default() += 1;
            if has > one.raw {
                verdict.add("paid_twice", words());
            } else if has != RawAmount::ZERO && has != one.raw {
                verdict.add("paid_otherwise", words());
            }
            let paid = has == one.raw;
            if !is_over(state) {
                verdict.add("stranded", words());
            } else if state == WithdrawalState::Completed {
                *spent.entry((one.user.get(), one.asset)).or_default() += one.units + FEE;
                if !paid {
                    verdict.add("lost", words());
                }
            } else if has != RawAmount::ZERO {
                verdict.add("failed_and_paid", words());
            }
        }
    }
    let tx = &mut db.read().await?;
    for user in customers() {
        for (_, account) in funding_of(tx, user).await? {
            let wanted = ENDOWMENT - spent.get(&(user.get(), account.asset)).copied().unwrap_or(0);
            let (has, held) = (account.available.units(), account.frozen.units());
            if has != wanted || held != 0 {
                let words = format!("customer {} has {has} and {held} held, and should have {wanted}", user.get());
                verdict.add("customers_differ", words);
            }
        }
    }
    Ok(counts)
}

/// For somebody who walks the chains: each is as a job with a destination of its own.
pub(super) async fn record(db: &Db, asked: &[Wanted]) -> Result<Vec<(usize, Value)>, Failure> {
    let mut told = Vec::with_capacity(asked.len());
    for some in asked.chunks(1_000) {
        let ids: Vec<WithdrawalId> = some.iter().map(|one| one.id).collect();
        let rows = db.withdrawals(&ids).await?;
        let states: BTreeMap<WithdrawalId, WithdrawalState> = rows.into_iter().map(|row| (row.id, row.state)).collect();
        for one in some {
            let state = match states.get(&one.id) {
                None => "missing",
                Some(WithdrawalState::Completed) => "confirmed",
                Some(state) if is_over(*state) => "failed_final",
                Some(state) => state.as_str(),
            };
            let amount = one.raw.to_string();
            let words = json!({
                "job": one.id.to_string(), "to": one.to.to_string(), "asset": one.symbol, "amount": amount, "state": state,
            });
            told.push((one.net, words));
        }
    }
    Ok(told)
}
