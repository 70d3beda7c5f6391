//! What the house does by itself with coins that lie at users' addresses and in its own wallets: pure decisions over balances, rules, prices
//! and what is under way.
//!
//! | module | holds |
//! |---|---|
//! | [`rule`] | rules as data: a condition on a balance, how often, how urgent |
//! | [`price`] | what coins are worth, and whether a sweep pays |
//! | [`wallet`] | a user's address: gas for it, or its coins brought home, or why neither |
//! | [`bundle`] | Bitcoin: coins of many users' addresses that go home together |
//! | [`supply`] | a gas wallet: how long it will do |
//! | [`band`] | a hot wallet: too little, too much, or enough; and where swept coins go |
//!
//! Nothing is decided on coins that are not final, and nothing while an earlier job of the same address is not final in the chain's own books:
//! the balance that a decision rests on knows of everything that was done before.

pub mod band;
pub mod bundle;
pub mod price;
pub mod rule;
pub mod supply;
pub mod wallet;

pub use band::{Band, BandAction, Homes, HotCoin};
pub use bundle::{Bundle, BundleCosts, BundleSight, LooseCoin, LooseCoins};
pub use price::{Fee, Fees, Price, Worth, coins_of_share, share_bps};
pub use rule::{Budget, Condition, GasRule, Operator, Pace, RuleId, SweepRule};
pub use supply::GasSupply;
pub use wallet::{CoinNow, Former, Sight, TreasuryAction, Verdict, Waits, WalletNow};

/// The number of an asset on a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoinId(pub i64);
