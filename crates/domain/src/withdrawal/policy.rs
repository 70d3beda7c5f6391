//! Whether a request is taken, what it costs, and who has to agree: policy as data for each asset on a chain, and the one function that reads it.
//!
//! It is asked once for each request, in the transaction that holds the money. What it said, by which version and on which facts, is kept with the
//! request, so that everybody can see later why it was so. All amounts are in ledger units; a sum that does not fit is a refusal.

use serde::{Serialize, Serializer};

use super::refusal::WithdrawalRefusal;
use crate::account::AccountStatus;
use crate::amount::Amount;
use crate::asset::Availability;
use crate::time::Timestamp;

/// What a withdrawal costs its customer: a fixed part and a share of the amount, and never less than `least`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeeRule {
    pub fixed: Amount,
    /// Hundredths of a percent of the amount, rounded up.
    pub share_bps: u32,
    pub least: Amount,
}

impl FeeRule {
    /// `None`: it does not fit.
    pub fn fee(&self, amount: Amount) -> Option<Amount> {
        let product = i128::from(amount.units()).checked_mul(i128::from(self.share_bps))?;
        let whole = product.div_euclid(BPS);
        let share = if product.rem_euclid(BPS) == 0 { whole } else { whole.checked_add(1)? };
        let share = Amount::from_units(i64::try_from(share).ok()?);
        Some(self.fixed.checked_add(share)?.max(self.least))
    }
}

const BPS: i128 = 10_000;

/// What a customer was promised: the fee that a version of the policy says, up to a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeeQuote {
    pub version: i64,
    pub expires: Timestamp,
}

impl FeeQuote {
    /// Whether it is still good. The time in it is the customer's word: it can only shorten what the policy's own rows give, which is the version's
    /// life from the moment when the next version took its place (`superseded`). Nobody can have been given a longer promise.
    pub fn holds(self, now: Timestamp, life_us: i64, superseded: Option<Timestamp>) -> bool {
        life_us > 0 && now <= self.expires && superseded.is_none_or(|at| now <= at.plus_micros(life_us))
    }
}

/// What the fee of a request follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeeTerms {
    /// The policy that it is judged by.
    Current,
    /// A version that was promised, and still holds.
    Quoted(FeeRule),
    /// A promise that is over, or that nobody made.
    Expired,
}

impl FeeTerms {
    fn is_current(&self) -> bool {
        *self == Self::Current
    }
}

/// At most so many requests of one user in so long a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Velocity {
    pub count: u32,
    pub window_us: i64,
}

/// What becomes of a withdrawal that the hot wallet has too little for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenShort {
    /// It fails, as in the source, and the customer has the money back.
    Fail,
    /// It is approved again and waits for its next job, until its time is over. The money stays held.
    Wait,
}

impl WhenShort {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Wait => "wait",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Fail, Self::Wait].into_iter().find(|one| one.as_str() == text)
    }
}

/// How long a withdrawal may be signed after it was asked for, unless its policy says otherwise.
pub const USUAL_LIFE_US: i64 = 24 * 3_600 * 1_000_000;

/// What holds for one asset on one chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithdrawalPolicy {
    /// 1 for the first, then one more for each that replaced it.
    pub version: i64,
    pub enabled: bool,
    /// Nothing is approved without a person.
    pub incident: bool,
    pub min: Amount,
    pub max: Amount,
    pub fee: FeeRule,
    /// Up to and with this amount nobody has to agree. Above it one person has to.
    pub auto_approve: Amount,
    /// The same of all that a user asks for on a day of UTC without anybody agreeing, this one included: many small requests are as good as a large one.
    /// `None`: only the amount of each counts.
    pub auto_approve_daily: Option<Amount>,
    /// Above this amount two people have to agree.
    pub two_above: Amount,
    /// Above this amount `many` people have to agree.
    pub many_above: Amount,
    pub many: u32,
    /// For each user on a day of UTC. `None`: there is no limit.
    pub daily_user: Option<Amount>,
    /// For all users together on a day of UTC.
    pub daily_total: Option<Amount>,
    pub velocity: Option<Velocity>,
    /// A destination can be used so long after it was first known. 0: at once.
    pub cooling_off_us: i64,
    /// Only what is in the user's address book is paid to.
    pub book_only: bool,
    /// A fee that was quoted is good for so long, whatever the policy says meanwhile. 0: none is quoted.
    pub quote_life_us: i64,
    pub when_short: WhenShort,
    /// So long after it was asked for it may be signed. Then it fails. The signer takes no longer life than its own policy says.
    pub life_us: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error("the smallest withdrawal is more than zero, and not more than the largest")]
    Range,
    #[error("no part of a fee is negative, and its share is at most 10,000 hundredths of a percent")]
    Fee,
    #[error(
        "auto_approve, two_above and many_above are not negative, and each is at least the one before; auto_approve_daily is at least auto_approve"
    )]
    Approvals,
    #[error("many is at least 3")]
    Many,
    #[error("a daily limit is at least the smallest withdrawal")]
    Daily,
    #[error("a velocity has a count and a window of more than zero")]
    Velocity,
    #[error("a cooling-off time is not negative")]
    CoolingOff,
    #[error("a quoted fee is good for a day at most")]
    QuoteLife,
    #[error("the life of a withdrawal is a minute or more")]
    Life,
}

const MOST_QUOTE_LIFE_US: i64 = 86_400_000_000;
/// Nothing is signed and told in less.
const LEAST_LIFE_US: i64 = 60_000_000;

impl WithdrawalPolicy {
    /// Whether it makes sense at all. One that does not is never written.
    pub fn check(&self) -> Result<(), PolicyError> {
        if !self.min.is_positive() || self.min > self.max {
            return Err(PolicyError::Range);
        }
        if self.fee.fixed < Amount::ZERO || self.fee.least < Amount::ZERO || i128::from(self.fee.share_bps) > BPS {
            return Err(PolicyError::Fee);
        }
        let steps = [Amount::ZERO, self.auto_approve, self.two_above, self.many_above];
        if steps.windows(2).any(|pair| pair[0] > pair[1]) {
            return Err(PolicyError::Approvals);
        }
        if self.auto_approve_daily.is_some_and(|daily| daily < self.auto_approve) {
            return Err(PolicyError::Approvals);
        }
        if self.many < 3 {
            return Err(PolicyError::Many);
        }
        if [self.daily_user, self.daily_total].into_iter().flatten().any(|limit| limit < self.min) {
            return Err(PolicyError::Daily);
        }
        if self.velocity.is_some_and(|velocity| velocity.count == 0 || velocity.window_us <= 0) {
            return Err(PolicyError::Velocity);
        }
        if self.cooling_off_us < 0 {
            return Err(PolicyError::CoolingOff);
        }
        if !(0..=MOST_QUOTE_LIFE_US).contains(&self.quote_life_us) {
            return Err(PolicyError::QuoteLife);
        }
        if self.life_us < LEAST_LIFE_US {
            return Err(PolicyError::Life);
        }
        Ok(())
    }

    /// The promise of the fee that holds now. `None`: no fee is quoted.
    pub fn quote(&self, now: Timestamp) -> Option<FeeQuote> {
        let expires = now.plus_micros(self.quote_life_us);
        (self.quote_life_us > 0).then_some(FeeQuote { version: self.version, expires })
    }

    /// From when on a destination can be used that has been known since then.
    pub const fn available_at(&self, known_since: Timestamp) -> Timestamp {
        known_since.plus_micros(self.cooling_off_us)
    }

    /// The whole ladder: the first rule that applies is the answer.
    pub fn judge(&self, request: &Request, facts: &Facts) -> Judgement {
        let (fee, verdict) = match self.check_request(request, facts) {
            Ok(fee) => (fee, self.approvals(request.amount, facts)),
            Err(refusal) => (Amount::ZERO, Verdict::Refused(refusal)),
        };
        Judgement { verdict, rule: verdict.rule(), version: self.version, fee, request: *request, facts: *facts }
    }

    /// The fee, if nothing speaks against the request.
    fn check_request(&self, request: &Request, facts: &Facts) -> Result<Amount, WithdrawalRefusal> {
        self.check_switches(facts)?;
        let fee = self.check_amount(request)?;
        self.check_destination(facts)?;
        self.check_limits(request, facts)?;
        check_balance(request, fee, facts)?;
        Ok(fee)
    }

    fn check_switches(&self, facts: &Facts) -> Result<(), WithdrawalRefusal> {
        if facts.chain != Availability::Active {
            return Err(WithdrawalRefusal::ChainSuspended);
        }
        if facts.asset != Availability::Active {
            return Err(WithdrawalRefusal::AssetSuspended);
        }
        if !self.enabled {
            return Err(WithdrawalRefusal::SwitchedOff);
        }
        Ok(())
    }

    fn check_amount(&self, request: &Request) -> Result<Amount, WithdrawalRefusal> {
        let rule = match request.terms {
            FeeTerms::Current => self.fee,
            FeeTerms::Quoted(rule) => rule,
            FeeTerms::Expired => {
                self.check_range(request.amount)?;
                return Err(WithdrawalRefusal::QuoteExpired);
            }
        };
        let fee = self.fee_by(rule, request.amount)?;
        if fee > request.most_fee {
            return Err(WithdrawalRefusal::FeeAboveAgreed);
        }
        Ok(fee)
    }

    /// What a withdrawal of so much would cost now, or what is wrong with the amount.
    pub fn fee_of(&self, amount: Amount) -> Result<Amount, WithdrawalRefusal> {
        self.fee_by(self.fee, amount)
    }

    fn fee_by(&self, rule: FeeRule, amount: Amount) -> Result<Amount, WithdrawalRefusal> {
        self.check_range(amount)?;
        let fee = rule.fee(amount).ok_or(WithdrawalRefusal::Overflow)?;
        if fee > amount { Err(WithdrawalRefusal::FeeAboveAmount) } else { Ok(fee) }
    }

    fn check_range(&self, amount: Amount) -> Result<(), WithdrawalRefusal> {
        if !amount.is_positive() {
            return Err(WithdrawalRefusal::InvalidAmount);
        }
        if amount < self.min {
            return Err(WithdrawalRefusal::AmountTooSmall);
        }
        if amount > self.max {
            return Err(WithdrawalRefusal::AmountTooLarge);
        }
        Ok(())
    }

    fn check_destination(&self, facts: &Facts) -> Result<(), WithdrawalRefusal> {
        if facts.house_wallet {
            return Err(WithdrawalRefusal::DestinationOurs);
        }
        if facts.own_address {
            return Err(WithdrawalRefusal::DestinationOwn);
        }
        if self.book_only && facts.in_book_since.is_none() {
            return Err(WithdrawalRefusal::DestinationUnknown);
        }
        if self.cooling_off_us > 0 {
            let known =
                if self.book_only { [facts.in_book_since, None] } else { [facts.in_book_since, facts.paid_since] };
            let since = known.into_iter().flatten().min().ok_or(WithdrawalRefusal::DestinationUnknown)?;
            if self.available_at(since) > facts.now {
                return Err(WithdrawalRefusal::DestinationCoolingOff);
            }
        }
        Ok(())
    }

    fn check_limits(&self, request: &Request, facts: &Facts) -> Result<(), WithdrawalRefusal> {
        if self.velocity.is_some_and(|velocity| facts.recent >= i64::from(velocity.count)) {
            return Err(WithdrawalRefusal::TooManyWithdrawals);
        }
        let above = |used: Amount, limit: Option<Amount>| match (used.checked_add(request.amount), limit) {
            (None, _) => Err(WithdrawalRefusal::Overflow),
            (Some(total), Some(limit)) => Ok(total > limit),
            (Some(_), None) => Ok(false),
        };
        if above(facts.used_by_user, self.daily_user)? {
            return Err(WithdrawalRefusal::DailyAmountExceeded);
        }
        if above(facts.used_in_total, self.daily_total)? {
            return Err(WithdrawalRefusal::DailyTotalExceeded);
        }
        Ok(())
    }

    /// How many people would have to agree to this amount, if nothing speaks against it and nothing was approved without them before.
    pub fn people(&self, amount: Amount) -> u32 {
        self.reviewed(self.by_amount(amount, Amount::ZERO)).people()
    }

    fn approvals(&self, amount: Amount, facts: &Facts) -> Verdict {
        self.reviewed(self.by_amount(amount, facts.auto_approved))
    }

    fn reviewed(&self, by_amount: Verdict) -> Verdict {
        if self.incident { Verdict::Review(by_amount.people().max(1)) } else { by_amount }
    }

    fn by_amount(&self, amount: Amount, auto_approved: Amount) -> Verdict {
        let sum = auto_approved.checked_add(amount);
        let is_small = self.auto_approve_daily.is_none_or(|daily| sum.is_some_and(|sum| sum <= daily));
        if amount <= self.auto_approve && is_small {
            return Verdict::Approved;
        }
        if amount <= self.two_above {
            return Verdict::People(1);
        }
        if amount <= self.many_above {
            return Verdict::People(2);
        }
        Verdict::People(self.many)
    }
}

fn check_balance(request: &Request, fee: Amount, facts: &Facts) -> Result<(), WithdrawalRefusal> {
    match facts.account {
        AccountStatus::Active => {}
        AccountStatus::Frozen => return Err(WithdrawalRefusal::AccountFrozen),
        AccountStatus::Disabled => return Err(WithdrawalRefusal::AccountDisabled),
    }
    let held = request.amount.checked_add(fee).ok_or(WithdrawalRefusal::Overflow)?;
    if facts.available < held {
        return Err(WithdrawalRefusal::InsufficientBalance);
    }
    let settled = facts.available.checked_sub(facts.not_final).ok_or(WithdrawalRefusal::Overflow)?;
    if settled < held {
        return Err(WithdrawalRefusal::DepositNotFinal);
    }
    Ok(())
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Request {
    /// What the destination gets.
    #[serde(serialize_with = "units")]
    pub amount: Amount,
    /// The most that the customer agrees to pay on top of it.
    #[serde(serialize_with = "units")]
    pub most_fee: Amount,
    /// Kept with the request only where they are not those of the policy's version.
    #[serde(skip_serializing_if = "FeeTerms::is_current", serialize_with = "terms")]
    pub terms: FeeTerms,
}

/// What was known when it was judged, while the customer's account was locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Facts {
    #[serde(serialize_with = "micros")]
    pub now: Timestamp,
    #[serde(serialize_with = "availability")]
    pub chain: Availability,
    /// Of the asset, and of its form on the chain.
    #[serde(serialize_with = "availability")]
    pub asset: Availability,
    #[serde(serialize_with = "status")]
    pub account: AccountStatus,
    #[serde(serialize_with = "units")]
    pub available: Amount,
    /// Credited by deposits that a chain could still take back.
    #[serde(serialize_with = "units")]
    pub not_final: Amount,
    /// Of this asset on this chain, on this day of UTC, without what was given back.
    #[serde(serialize_with = "units")]
    pub used_by_user: Amount,
    /// Of that, what nobody had to agree to.
    #[serde(serialize_with = "units")]
    pub auto_approved: Amount,
    #[serde(serialize_with = "units")]
    pub used_in_total: Amount,
    /// Requests of the user in the policy's window, whatever became of them.
    pub recent: i64,
    /// The destination is a wallet of the house.
    pub house_wallet: bool,
    /// It is a deposit address of the customer who asks.
    pub own_address: bool,
    /// Since when it is in the customer's address book.
    #[serde(serialize_with = "maybe_micros")]
    pub in_book_since: Option<Timestamp>,
    /// When the first withdrawal of the customer to it was made, of those that were paid.
    #[serde(serialize_with = "maybe_micros")]
    pub paid_since: Option<Timestamp>,
}

/// What a request comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may be paid at once.
    Approved,
    /// So many people have to agree.
    People(u32),
    /// So many people have to look at it first, at least one.
    Review(u32),
    Refused(WithdrawalRefusal),
}

impl Verdict {
    /// The rule that decided.
    pub const fn rule(self) -> &'static str {
        match self {
            Self::Approved => "auto_approve",
            Self::People(1) => "one_person",
            Self::People(2) => "two_people",
            Self::People(_) => "many_people",
            Self::Review(_) => "incident",
            Self::Refused(refusal) => refusal.code(),
        }
    }

    /// How many people have to agree before it may be paid.
    pub const fn people(self) -> u32 {
        match self {
            Self::Approved | Self::Refused(_) => 0,
            Self::People(people) | Self::Review(people) => people,
        }
    }
}

/// A verdict, with all that led to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Judgement {
    #[serde(skip)]
    pub verdict: Verdict,
    pub rule: &'static str,
    pub version: i64,
    /// What the customer pays. Zero of what was refused.
    #[serde(serialize_with = "units")]
    pub fee: Amount,
    pub request: Request,
    pub facts: Facts,
}

/// No JSON number holds money.
fn units<S: Serializer>(amount: &Amount, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&amount.units())
}

fn terms<S: Serializer>(terms: &FeeTerms, serializer: S) -> Result<S::Ok, S::Error> {
    match terms {
        FeeTerms::Current => serializer.serialize_str("current"),
        FeeTerms::Quoted(rule) => serializer.collect_str(&format_args!(
            "quoted {}+{}bps, at least {}",
            rule.fixed.units(),
            rule.share_bps,
            rule.least.units()
        )),
        FeeTerms::Expired => serializer.serialize_str("expired"),
    }
}

fn micros<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(time)
}

fn maybe_micros<S: Serializer>(time: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => micros(time, serializer),
        None => serializer.serialize_none(),
    }
}

fn availability<S: Serializer>(one: &Availability, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(one.as_str())
}

fn status<S: Serializer>(one: &AccountStatus, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(one.as_str())
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
