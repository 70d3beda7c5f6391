//! Wallet groups, the house's own wallets, and users' deposit wallets, as rows.
//!
//! | module | holds |
//! |---|---|
//! | [`settings`] | groups and operation wallets: read, compared with the treasury file, and written by `bursar apply` |
//! | [`users`] | users' wallets: added in batches, found by user or by address, read a page at a time |
//!
//! | | |
//! |---|---|
//! | reads | `wallet_groups`, `operation_wallet_addresses`, `user_wallets`, `chains` |
//! | writes | the first three; rows are added, and only `is_active` ever changes. On Bitcoin also what the Bitcoin wallet watches |
//! | may never do | say what an address is. That follows from a key and a number, which `custody::wallet` derives |

pub mod settings;
pub mod users;

pub use settings::{OperationWallet, Place, WalletGroup, WalletSettings, read_wallet_settings};
pub use users::{AssignedRows, BitcoinGroup, NewBitcoinWallet, NewUserWallet, UserWalletRow};

/// An address as a row claims it. It can be compared with one that was derived. It has no `Display`, so that it is not
/// shown to anybody by mistake.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClaimedAddress(String);

impl ClaimedAddress {
    pub(crate) const fn new(text: String) -> Self {
        Self(text)
    }

    pub fn is(&self, derived: &str) -> bool {
        self.0 == derived
    }

    /// What the row says, for a report that the row is wrong.
    pub fn claimed(&self) -> &str {
        &self.0
    }
}
