//! What the house does by itself with coins: gas for users' addresses, their coins brought home, hot wallets within their bands.
//!
//! | | |
//! |---|---|
//! | reads | balances by final blocks, rules, bands, prices, what became of earlier jobs; what nodes say that transactions cost |
//! | writes | flags and reasons of balances, new jobs; each with the progress that it belongs to, in one transaction |
//! | may never do | send, sign or choose again who pays a job; act on coins that are not final, or on a balance that does not know of an earlier job |
//!
//! | module | holds |
//! |---|---|
//! | [`rules`] | one worker of a chain's rules: which addresses, what is decided, what is written |
//! | `bundle` | Bitcoin: what users' addresses hold goes home by groups |
//! | `fees` | what transactions cost now |
//! | [`watch`] | what the last day has cost, and how long gas wallets will do |
//! | `home` | where swept coins go: addresses that keys give |

mod bundle;
mod fees;
mod home;
pub mod rules;
pub mod watch;

use chain::ChainError;
use store::StoreError;
use store::utxo::UtxoError;

use crate::deposit::BadCoins;
use crate::wallet::WalletError;

pub use rules::{Decided, DryRun, REQUESTER, RulesRound, RulesWorker};
pub use watch::{GAS_RUNS_DRY, TreasuryStanding, TreasuryWatch};

#[derive(Debug, thiserror::Error)]
pub enum TreasuryError {
    #[error("the database cannot be used")]
    Store(#[from] StoreError),
    #[error("the chain cannot be asked now")]
    Chain(#[from] ChainError),
    #[error("the Bitcoin wallet cannot be used")]
    Wallet(#[from] UtxoError),
    #[error("whose addresses coins lie at cannot be looked up")]
    Users(#[from] WalletError),
    #[error("chain {chain} has coins that cannot be moved")]
    Coins { chain: String, source: BadCoins },
    #[error("chain {chain}: there are no wallets of network {network}")]
    Network { chain: String, network: String },
    /// No number can be had for a new job.
    #[error("this process has no number to make ids with")]
    NoIds,
}

impl TreasuryError {
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Store(error) => error.code(),
            Self::Chain(error) => error.code(),
            Self::Wallet(error) => error.code(),
            Self::Users(error) => error.code(),
            Self::Coins { .. } => "CHAIN_COINS",
            Self::Network { .. } => "CHAIN_WRONG_NETWORK",
            Self::NoIds => "NODE_NUMBERS_EXHAUSTED",
        }
    }
}
