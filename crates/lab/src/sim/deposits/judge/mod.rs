//! The judge. It has books of its own, made from the chains as they are and from what users did; of the program it reads only
//! what the program shows to people.
//!
//! | module | holds |
//! |---|---|
//! | this one | what the judge knows |
//! | `moment` | what must hold after every turn of a worker |
//! | `verdict` | what must become of one payment |
//! | `rest` | what must hold when all nodes are well and the workers have nothing to do |

mod moment;
mod rest;
mod verdict;

use std::collections::{BTreeMap, HashMap};

use domain::deposit::DepositState;
use domain::{AccountStatus, AssetId};
use store::StoreError;
use tx::{BlockRef, TxHash};

use super::model::Money;

pub(crate) fn unread(error: &StoreError) -> String {
    format!("the books could not be looked at: {error} ({error:?})")
}

/// One payment, whenever it was mined.
pub(crate) type PaymentKey = (usize, TxHash, String);

/// A deposit as the program last showed it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub key: PaymentKey,
    pub block: BlockRef,
    pub money: Money,
    pub asset: AssetId,
    pub generation: i64,
    pub state: DepositState,
    /// Who has it, or had it.
    pub user: Option<i64>,
    pub given: i64,
    pub repaid: i64,
    pub left_over: i64,
    /// The turn in which it was first seen.
    pub since: u64,
}

/// The books have it.
pub(crate) const fn is_posted(state: DepositState) -> bool {
    match state {
        DepositState::Credited | DepositState::Final | DepositState::Unattributed => true,
        DepositState::Detected
        | DepositState::Proven
        | DepositState::Orphaned
        | DepositState::Reversed
        | DepositState::Refused => false,
    }
}

/// It is over.
pub(crate) const fn is_dead(state: DepositState) -> bool {
    matches!(state, DepositState::Orphaned | DepositState::Reversed)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub available: i64,
    pub status: AccountStatus,
}

impl Default for Account {
    fn default() -> Self {
        Self { available: 0, status: AccountStatus::Active }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Judge {
    /// Deposits that may still change, by their ids.
    pub open: BTreeMap<i64, Seen>,
    /// No deposit below this id changes any more.
    low: i64,
    /// The highest id that was seen.
    highest: i64,
    /// The states of all deposits that may change, when they were last looked at; and from which id on.
    glance: Option<(i64, String)>,
    /// What became of those.
    closed: HashMap<i64, DepositState>,
    /// Which deposit of a payment is in the books.
    standing: HashMap<PaymentKey, i64>,
    pub accounts: BTreeMap<(i64, AssetId), Account>,
    /// What users owe since a payment was taken back.
    debts: HashMap<(PaymentKey, i64), i64>,
    /// What `suspense` has, but for what thieves took.
    suspense: BTreeMap<AssetId, i128>,
    pub spent: BTreeMap<AssetId, i128>,
    /// The token is suspended, so nothing of it may be credited.
    pub suspended: bool,
    findings_after: i64,
    /// Of each chain: the height up to which every payment was found as it must be, for good.
    settled: BTreeMap<usize, u64>,
    pub rests: u64,
    /// Of each chain: what logs say that paid nothing, as far as it is in the books. It is nobody's.
    logged: BTreeMap<usize, i128>,
    /// Of each chain: what the program last said of each balance, by address and symbol. It was right then.
    balances: BTreeMap<usize, HashMap<String, String>>,
}

impl Judge {
    pub fn debt(&self, key: &PaymentKey, user: i64) -> i64 {
        self.debts.get(&(key.clone(), user)).copied().unwrap_or(0)
    }

    /// A log that paid nothing is in the books, or no longer.
    fn logs(&mut self, seen: &Seen, change: i64) {
        if seen.money == Money::Hollow {
            *self.logged.entry(seen.key.0).or_default() += i128::from(change);
        }
    }

    fn suspense(&mut self, asset: AssetId, change: i64) {
        *self.suspense.entry(asset).or_default() += i128::from(change);
    }

    /// People gave an unattributed deposit to a user. Says what the user must get.
    pub fn assigns(&mut self, id: i64, user: i64) -> Option<i64> {
        let seen = self.open.get(&id)?.clone();
        let repaid = self.debt(&seen.key, user).min(seen.left_over);
        let given = seen.left_over - repaid;
        self.suspense(seen.asset, repaid - seen.left_over);
        self.accounts.entry((user, seen.asset)).or_default().available += given;
        let seen = Seen { user: Some(user), given, repaid, left_over: 0, state: DepositState::Credited, ..seen };
        self.open.insert(id, seen);
        Some(given)
    }
}
