//! The two ends of a transfer. Each answers `Success`, `Failed` or `Pending`, and only `Failed` ever sends money back.
//!
//! | leg | kind | how |
//! |---|---|---|
//! | [`funding`] | local | operations of the SQL ledger, in the same transaction as the change of state |
//! | [`spot`] | remote | the spot engine, in this process or over TCP |
//! | [`http`] | remote | any exchange's own engine: the contract is in `docs/http-leg.md` |
//!
//! **A leg trusts no caller**: it checks each call once more by itself.

pub mod funding;
pub mod http;
pub mod spot;

use self::spot::SpotLeg;
use std::borrow::Cow;
use std::fmt;
use std::pin::Pin;

use domain::id::{self, Id};
use domain::transfer::{MOST, Transfer};
use domain::{AccountStatus, Amount, AssetId, Timestamp, UserId};

use crate::readiness::Trouble;

/// What a remote leg can be asked to do with a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Take the money from the user.
    Withdraw,
    /// Give it to the user.
    Deposit,
    /// Make a withdrawal final.
    Commit,
    /// Undo a withdrawal, or forbid it if it never came.
    Rollback,
}

/// One call under the transfer's id. However often it is made, it takes effect once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub verb: Verb,
    pub id: Id<id::Transfer>,
    pub user: UserId,
    pub asset: AssetId,
    pub amount: Amount,
}

impl Call {
    pub const fn of(transfer: &Transfer, verb: Verb) -> Self {
        Self { verb, id: transfer.id, user: transfer.user, asset: transfer.asset, amount: transfer.amount }
    }
}

/// Why a leg refused, or why its answer is not known: a code for machines and words for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    code: Cow<'static, str>,
    words: Cow<'static, str>,
}

impl Reason {
    pub const fn new(code: &'static str, words: &'static str) -> Self {
        Self { code: Cow::Borrowed(code), words: Cow::Borrowed(words) }
    }

    /// With words from outside: they are cut to a length that fits a row, and lose their control characters.
    pub fn foreign(code: &'static str, words: &str) -> Self {
        let words: String = words.chars().filter(|one| !one.is_control()).take(150).collect();
        Self { code: Cow::Borrowed(code), words: Cow::Owned(words) }
    }

    pub fn code(&self) -> &str {
        &self.code
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.words)
    }
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It took effect, now or before.
    Success,
    /// It was refused, explicitly, and never will take effect.
    Failed(Reason),
    /// Not known: there was no answer, or a late one, or one that decides nothing or makes no sense. Ask again.
    Pending(Reason),
}

/// What a user has at a remote leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    pub available: Amount,
    pub reserved: Amount,
    pub status: AccountStatus,
}

/// What a leg remembers of a transfer's operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The withdrawal or deposit took effect.
    Applied,
    /// It was refused.
    Refused(Reason),
    /// The withdrawal was undone, or forbidden before it came.
    RolledBack,
    /// There is nothing under this id. It may still arrive.
    Nothing,
    /// The leg cannot say.
    Unknown(Reason),
}

pub type Answered<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The far end of every transfer. Calls come in batches, mixed; there are as many answers as calls, in their order.
pub trait Leg: Send + Sync {
    /// The coordinator waits for the answers with a deadline, and takes no answer for `Pending`.
    fn call<'a>(&'a self, calls: &'a [Call]) -> Answered<'a, Vec<Answer>>;

    /// What stands under the ids of these transfers.
    fn query<'a>(&'a self, ids: &'a [Id<id::Transfer>]) -> Answered<'a, Vec<Record>>;

    /// What users have there; inside, `None` for a user without an account. `None` for all: the leg does not tell, or
    /// does not answer.
    fn holdings<'a>(&'a self, of: &'a [(UserId, AssetId)]) -> Answered<'a, Option<Vec<Option<Holding>>>>;

    /// What all users together have there, per asset. `None`: the leg does not tell, or does not answer.
    fn totals<'a>(&'a self, of: &'a [AssetId]) -> Answered<'a, Option<Vec<Amount>>>;

    /// The latest time that the leg has seen: its own clock's, or later if that was set back since. `None`: it does not
    /// tell, or does not answer.
    fn time(&self) -> Answered<'_, Option<Timestamp>> {
        Box::pin(async { None })
    }

    /// How many times as long as one call a batch of so many calls may take.
    fn turns(&self, calls: usize) -> u32 {
        if calls == 0 { 0 } else { 1 }
    }

    /// Whether the far end can be worked with, as far as is known. It may be asked something that changes nothing, under
    /// an id that no transfer has. A leg in this process always can.
    fn reach(&self, _unused: Id<id::Transfer>) -> Answered<'_, Result<(), Trouble>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Whether a withdrawal only freezes the money until it is committed.
    fn freezes(&self) -> bool;

    /// Our own engine, if it is one: the database keeps a pair with it.
    fn spot(&self) -> Option<&SpotLeg> {
        None
    }
}

/// What every leg checks again by itself (`004` §1.5): that a user and a transfer are positive numbers is in their types,
/// the rest is here. A leg knows no limits of an asset and not whether it is suspended: those are the gate's, and a
/// transfer that was accepted before must still come to its end.
pub(crate) fn sane(amount: Amount, asset: AssetId) -> Result<(), Reason> {
    if !amount.is_positive() {
        return Err(Reason::new("INVALID_AMOUNT", "a leg was asked to move nothing or less"));
    }
    if amount > MOST {
        return Err(Reason::new("OVERFLOW", "a leg was asked to move more than any transfer may"));
    }
    // The spot engine keeps an asset in 32 bits.
    if u32::try_from(asset.0).is_ok_and(|number| number > 0) {
        Ok(())
    } else {
        Err(Reason::new("INVALID_ASSET", "a leg was asked to move an asset that cannot exist"))
    }
}
