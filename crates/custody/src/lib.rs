//! Coins on chains: so far what a Bitcoin wallet decides before anything is signed or sent.
//!
//! | module | holds |
//! |---|---|
//! | [`bitcoin`] | choosing coins, building, replacing and pushing transactions; reading them from bytes |

pub mod bitcoin;
