//! Wallets: an address is a function, not a row (CUSTODY.md §4, ADR 12).
//!
//! | | |
//! |---|---|
//! | reads | the keys that the treasury file pins; the rows of groups, operation wallets and users' wallets |
//! | writes | users' wallets, with the addresses that it derived itself; those on Bitcoin together with the watch for them |
//! | may never do | believe an address, an index or a key because a row says so; hold a private key |
//!
//! | module | holds |
//! |---|---|
//! | [`pinned`] | the groups and operation wallets of the treasury file |
//! | [`compare`] | rows of groups and operation wallets, and what a signer says, held against the pinned ones |
//! | [`house`] | operation wallets on Bitcoin, which the wallet store has to be told of |
//! | [`users`] | users' wallets: given, shown, listed, found by address; each derived again before anybody sees it |
//! | [`verify`] | every row derived again, in parallel |
//! | [`watch`] | the same all the time, a page at a time, for a server |

pub mod compare;
pub mod house;
pub mod pinned;
pub mod users;
pub mod verify;
pub mod watch;

pub use compare::{compare_groups, compare_settings};
pub use house::watch_house;
pub use pinned::{PinError, Pinned, PinnedGroup, PinnedWallet};
pub use users::{Assigned, Checked, UserWallet, assign, deposit_wallet, list, owners, show};
pub use verify::{Verified, is_outdated, verify};
pub use watch::WalletRows;

use domain::GroupId;
use store::StoreError;
use store::utxo::UtxoError;
use tx::{DerivationError, Family};

/// A row that is not as the pinned keys say. It is never used; somebody has changed the database, or the treasury file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The table, and the row's id where it has one that people can look for.
    pub row: String,
    /// What the row says, and what it should say.
    pub what: String,
}

/// The code of a [`Difference`].
pub const ROW_DIFFERS: &str = "WALLET_ROW_DIFFERS";

impl Difference {
    pub(crate) fn new(row: impl Into<String>, what: impl Into<String>) -> Self {
        Self { row: row.into(), what: what.into() }
    }

    /// Every one that is found is in the log, whoever found it.
    pub(crate) fn log(&self) {
        tracing::error!(code = ROW_DIFFERS, row = self.row, what = self.what, "a row of the wallets is refused");
    }
}

#[derive(Debug, thiserror::Error)]
pub enum WalletError {
    #[error("wallet group {group}: {why}")]
    GroupUnusable { group: GroupId, why: &'static str },
    #[error("users can be given no {} wallet: {why}", family.as_str())]
    NoDepositGroup { family: Family, why: &'static str },
    /// The row is never used; it was logged when it was found.
    #[error("a row of the wallets is not as the keys say: {}: {}", .0.row, .0.what)]
    Differs(Difference),
    #[error(transparent)]
    Derivation(#[from] DerivationError),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The Bitcoin wallet that would watch the address.
    #[error(transparent)]
    Bitcoin(UtxoError),
    #[error("a task that derives addresses has ended early")]
    Ended(#[from] tokio::task::JoinError),
}

impl From<UtxoError> for WalletError {
    fn from(error: UtxoError) -> Self {
        match error {
            UtxoError::Store(error) => Self::Store(error),
            refused @ UtxoError::Refused(_) => Self::Bitcoin(refused),
        }
    }
}

impl WalletError {
    pub const fn code(&self) -> &'static str {
        match self {
            Self::GroupUnusable { .. } | Self::NoDepositGroup { .. } => "WALLET_GROUP_UNUSABLE",
            Self::Differs(_) => ROW_DIFFERS,
            Self::Derivation(error) => error.code(),
            Self::Store(error) => error.code(),
            Self::Bitcoin(error) => error.code(),
            Self::Ended(_) => "INTERNAL",
        }
    }

    pub const fn hint(&self) -> &'static str {
        match self {
            Self::GroupUnusable { .. } | Self::NoDepositGroup { .. } => {
                "the treasury file that treasury.file names has the groups; bursar apply brings them into the database"
            }
            Self::Differs(_) => "bursar wallet verify lists every row that differs",
            Self::Derivation(error) => error.hint(),
            Self::Store(error) => error.hint(),
            Self::Bitcoin(error) => error.hint(),
            Self::Ended(_) => "this is a bug in Bursar: please report it",
        }
    }
}
