//! What an entry does to the ledger, to the last unit of the chain.
//!
//! The ledger counts in ledger units and chains in smaller ones. What is too small for a ledger unit stays in the *residue*
//! of its coin on its chain, which is at least zero and less than one unit. So, always:
//!
//! ```text
//! sum of the posted entries  =  what custody says × raw units in a ledger unit  +  residue
//! ```

use crate::account::{AccountStatus, UserId};
use crate::amount::Amount;
use crate::asset::AssetOnChain;
use crate::raw::RawAmount;
use crate::raw_sum::RawSum;

use super::entry::Cause;

/// Why an inflow is nobody's. It is kept in `suspense` until two people say whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its address is a wallet of the house.
    HouseWallet,
    /// No row knows its address as a user's.
    NoUser,
    /// The row that names a user has another address than the user's key gives.
    RowDiffers,
    BelowMinimum,
    /// More than the ledger's 64 bits can hold.
    BeyondLedger,
    /// The user's account takes nothing.
    AccountDisabled,
    /// The token's log says that it came, and the balance does not.
    BalanceDiffers,
    /// Its blocks were read again. A look had found it before, and people have given money out since that may be this.
    FoundBefore,
}

impl Reason {
    pub const ALL: [Self; 8] = [
        Self::HouseWallet,
        Self::NoUser,
        Self::RowDiffers,
        Self::BelowMinimum,
        Self::BeyondLedger,
        Self::AccountDisabled,
        Self::BalanceDiffers,
        Self::FoundBefore,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HouseWallet => "house_wallet",
            Self::NoUser => "no_user",
            Self::RowDiffers => "row_differs",
            Self::BelowMinimum => "below_minimum",
            Self::BeyondLedger => "beyond_ledger",
            Self::AccountDisabled => "account_disabled",
            Self::BalanceDiffers => "balance_differs",
            Self::FoundBefore => "found_before",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }
}

/// Whose an inflow is, as far as keys say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribution {
    User(UserId),
    Nobody(Reason),
}

/// What the user's account allows, when its row is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountNow {
    pub status: AccountStatus,
    pub available: Amount,
    /// Held for something; it counts towards what the account can hold.
    pub frozen: Amount,
}

/// What the books have of a deposit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// To its user; zero of an unattributed one.
    pub user: Amount,
    /// To `suspense`, for its user: what an earlier mining of the same payment still owed.
    pub repaid: Amount,
    /// To `suspense`, because it is nobody's.
    pub left_over: Amount,
}

impl Given {
    fn whole(self) -> Option<Amount> {
        self.user.checked_add(self.repaid)?.checked_add(self.left_over)
    }
}

/// An entry whose time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    Deposit {
        raw: RawAmount,
        attribution: Attribution,
        /// Of the user, if there is one.
        account: Option<AccountNow>,
        /// What earlier minings of this payment took from `suspense` and did not give back.
        owed: Amount,
        /// Why it is nobody's, whoever's address it is: the address has less of the token than its log says, or it was found before.
        held: Option<Reason>,
    },
    TakeBack {
        raw: RawAmount,
        given: Given,
        account: Option<AccountNow>,
        /// What its user owed from earlier minings when it was credited. Whatever of it was not repaid is still owed.
        owed: Amount,
    },
    /// A look has found it, and no transaction explains it.
    Found {
        raw: RawAmount,
        /// What custody had of the coin when the chain's books began, as far as no coins on the chain were found for it.
        opening: Amount,
    },
    Other {
        change: RawSum,
        cause: Cause,
    },
}

/// An account of the ledger, as seen from one coin on one chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    Custody,
    User,
    Suspense,
    Dust,
    Gas,
}

/// What becomes of the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    Credited(Given),
    LeftOver(Reason, Given),
    TakenBack {
        /// What the user no longer had: `suspense` paid it, and the user owes it.
        receivable: Amount,
    },
    /// So much of it was in custody when the books began.
    Found {
        opening: Amount,
    },
    Booked,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posting {
    pub posted: Posted,
    /// None of zero.
    pub movements: Vec<(Party, Party, Amount)>,
    pub residue: RawAmount,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostingError {
    #[error("it is more than the ledger's 64 bits can hold")]
    BeyondLedger,
    #[error("the books gave more than came")]
    GaveMore,
}

impl Posting {
    /// `residue` is that of the coin before; `least` the least that a user is credited with.
    pub fn decide(due: &Due, residue: RawAmount, form: &AssetOnChain, least: Amount) -> Result<Self, PostingError> {
        match *due {
            Due::Deposit { held, raw, attribution, account, owed } => {
                let judged = held.map_or_else(|| judge(raw, attribution, account, form, least), Err);
                Self::deposit(raw, judged, owed, residue, form)
            }
            Due::TakeBack { raw, given, account, owed } => Self::take_back(raw, given, (account, owed), residue, form),
            Due::Found { raw, opening } => Self::found(raw, opening, residue, form),
            Due::Other { change, cause } => Self::other(change, cause, residue, form),
        }
    }

    fn deposit(
        raw: RawAmount,
        judged: Result<(), Reason>,
        owed: Amount,
        residue: RawAmount,
        form: &AssetOnChain,
    ) -> Result<Self, PostingError> {
        let Ok(floored) = raw.to_ledger(form) else {
            // No account can hold it. It stays outside of the books, where the audit counts it.
            let posted = Posted::LeftOver(Reason::BeyondLedger, Given::default());
            return Ok(Self { posted, movements: Vec::new(), residue });
        };
        let (posted, given) = match judged {
            Ok(()) => {
                let repaid = owed.min(floored.amount);
                let user = floored.amount.checked_sub(repaid).ok_or(PostingError::BeyondLedger)?;
                let given = Given { user, repaid, left_over: Amount::ZERO };
                (Posted::Credited(given), given)
            }
            Err(reason) => {
                let given = Given { left_over: floored.amount, ..Given::default() };
                (Posted::LeftOver(reason, given), given)
            }
        };
        let mut posting = Self {
            posted,
            movements: vec![
                (Party::Custody, Party::User, given.user),
                (Party::Custody, Party::Suspense, given.repaid),
                (Party::Custody, Party::Suspense, given.left_over),
            ],
            residue,
        };
        posting.absorb(floored.residue.into(), Party::Dust, form)?;
        Ok(posting.without_zeros())
    }

    fn take_back(
        raw: RawAmount,
        given: Given,
        (account, owed): (Option<AccountNow>, Amount),
        residue: RawAmount,
        form: &AssetOnChain,
    ) -> Result<Self, PostingError> {
        // Money of an account that gives nothing out stays there until a person looks.
        let has = account.filter(|account| account.status == AccountStatus::Active);
        let taken = has.map_or(Amount::ZERO, |account| account.available.min(given.user)).max(Amount::ZERO);
        let beyond = PostingError::BeyondLedger;
        let short = given.user.checked_sub(taken).ok_or(beyond)?;
        let from_suspense = short.checked_add(given.repaid).ok_or(beyond)?;
        let receivable = short.checked_add(owed.max(given.repaid)).ok_or(beyond)?;
        let whole = RawAmount::from_ledger(given.whole().ok_or(beyond)?, form).map_err(|_| beyond)?;
        let mut posting = Self {
            posted: Posted::TakenBack { receivable },
            movements: vec![
                (Party::User, Party::Custody, taken),
                (Party::Suspense, Party::Custody, from_suspense),
                (Party::Suspense, Party::Custody, given.left_over),
            ],
            residue,
        };
        // What no account could hold was never in the books.
        if given != Given::default() || raw.to_ledger(form).is_ok() {
            let rest = raw.checked_sub(whole).ok_or(PostingError::GaveMore)?;
            posting.absorb(-RawSum::from(rest), Party::Dust, form)?;
        }
        Ok(posting.without_zeros())
    }

    /// The coins that the books began with are somewhere: what is found first is them, and only the rest is nobody's.
    fn found(raw: RawAmount, opening: Amount, residue: RawAmount, form: &AssetOnChain) -> Result<Self, PostingError> {
        let beyond = |_| PostingError::BeyondLedger;
        let whole = raw.to_ledger(form).map_err(beyond)?.amount;
        let opening = opening.max(Amount::ZERO).min(whole);
        let known = RawAmount::from_ledger(opening, form).map_err(beyond)?;
        let rest = raw.checked_sub(known).ok_or(PostingError::GaveMore)?;
        let posting = Self::other(rest.into(), Cause::UnattributedIn, residue, form)?;
        Ok(Self { posted: Posted::Found { opening }, ..posting })
    }

    fn other(change: RawSum, cause: Cause, residue: RawAmount, form: &AssetOnChain) -> Result<Self, PostingError> {
        let counterpart = match cause {
            Cause::Fee => Party::Gas,
            Cause::Deposit
            | Cause::Reverted
            | Cause::TopupIn
            | Cause::TopupOut
            | Cause::SweepIn
            | Cause::SweepOut
            | Cause::Change
            | Cause::Payout
            | Cause::UnattributedIn
            | Cause::ForeignSpend => Party::Suspense,
        };
        let mut posting = Self { posted: Posted::Booked, movements: Vec::new(), residue };
        posting.absorb(change, counterpart, form)?;
        Ok(posting.without_zeros())
    }

    /// Takes a change into the residue, and moves what then is too much for it, or too little, in whole units.
    fn absorb(&mut self, change: RawSum, counterpart: Party, form: &AssetOnChain) -> Result<(), PostingError> {
        let sum = RawSum::from(self.residue).plus(change);
        let (units, residue) = sum.div_floor(form.raw_per_unit()).ok_or(PostingError::BeyondLedger)?;
        self.residue = residue;
        let amount = Amount::from_units(units.checked_abs().ok_or(PostingError::BeyondLedger)?);
        self.movements.push(if units >= 0 {
            (Party::Custody, counterpart, amount)
        } else {
            (counterpart, Party::Custody, amount)
        });
        Ok(())
    }

    fn without_zeros(mut self) -> Self {
        self.movements.retain(|(_, _, amount)| *amount > Amount::ZERO);
        self
    }
}

/// One reason for each rule, in the order in which they are looked at.
fn judge(
    raw: RawAmount,
    attribution: Attribution,
    account: Option<AccountNow>,
    form: &AssetOnChain,
    least: Amount,
) -> Result<(), Reason> {
    if let Attribution::Nobody(reason) = attribution {
        return Err(reason);
    }
    let amount = raw.to_ledger(form).map_err(|_| Reason::BeyondLedger)?.amount;
    if amount < least {
        return Err(Reason::BelowMinimum);
    }
    if account.is_some_and(|account| account.status == AccountStatus::Disabled) {
        return Err(Reason::AccountDisabled);
    }
    let room = |account: AccountNow| account.available.checked_add(account.frozen)?.checked_add(amount);
    if account.is_some_and(|account| room(account).is_none()) {
        return Err(Reason::BeyondLedger);
    }
    Ok(())
}

#[cfg(test)]
#[path = "posting_tests.rs"]
mod tests;
