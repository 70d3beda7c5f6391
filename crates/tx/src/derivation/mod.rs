//! How an address follows from a group's extended public key and a number. Signer and server both derive here, with the same
//! function: what the one shows to a user, the other can spend.
//!
//! | module | holds |
//! |---|---|
//! | `family` | which chains a group's keys are for, and the path of its account |
//! | `path` | the path of an address: `hi/lo` below the account |
//! | `account` | a group's extended public key, and every address that follows from it |
//!
//! **There is no secret here.**

mod account;
mod family;
mod path;

use domain::{GroupId, Purpose};

pub use account::{AccountKey, address_of};
pub use family::Family;
pub use path::AddressPath;

/// Why there is no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DerivationError {
    #[error("this is no extended public key of a wallet group: {0}")]
    BadXpub(&'static str),
    #[error("the number {0} is too large for an address")]
    NumberTooLarge(u64),
    /// One in 2^127; BIP-32 says to take the next one.
    #[error("there is no key at this path")]
    NoSuchKey,
}

impl DerivationError {
    pub const fn code(self) -> &'static str {
        match self {
            Self::BadXpub(_) => "SIGNER_XPUB_INVALID",
            Self::NumberTooLarge(_) | Self::NoSuchKey => "SIGNER_PATH_INVALID",
        }
    }

    pub const fn hint(self) -> &'static str {
        match self {
            Self::BadXpub(_) => "bursar signer export-xpub prints it",
            Self::NumberTooLarge(_) | Self::NoSuchKey => "users' numbers and indexes are below 2^62",
        }
    }
}

/// A wallet group as everybody may know it: one mnemonic, one purpose, one chain family, one account; so one extended public
/// key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub id: GroupId,
    pub purpose: Purpose,
    /// Family and account are the key's own.
    pub key: AccountKey,
}

impl Group {
    pub const fn family(&self) -> Family {
        self.key.family()
    }

    pub const fn account(&self) -> u32 {
        self.key.account()
    }

    /// The address of a user, or of an operation wallet by its index.
    pub fn address(&self, number: u64) -> Result<crate::Address, DerivationError> {
        self.key.address(AddressPath::of_number(number)?)
    }
}
