//! Coins on chains: so far what a Bitcoin wallet decides before anything is signed or sent.
//!
//! | module | holds |
//! |---|---|
//! | [`bitcoin`] | the wallet: choosing coins, building transactions, following the chain, importing |

pub mod bitcoin;
