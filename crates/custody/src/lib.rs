//! Money on chains: what a Bitcoin wallet decides before anything is signed or sent, whose address is whose, and what is paid to it.
//!
//! | | |
//! |---|---|
//! | reads | the rows of the wallet store; blocks and waiting transactions of nodes; exports of other wallets |
//! | writes | the wallet store, by the functions of the crate `store` |
//! | may never do | hold a key, sign, or take one node's word for a block |
//!
//! | module | holds |
//! |---|---|
//! | [`bitcoin`] | the wallet: choosing coins, building transactions, following the chain, importing |
//! | [`deposit`] | what chains pay to our addresses: found, proven, credited once, taken back |
//! | [`outbound`] | what leaves: jobs are given slots, signed for, sent, and watched until they are paid for good |
//! | [`signer`] | whether the signer has the keys that the treasury file pins, and whether its log is the one that answered before |
//! | [`treasury`] | gas for users' addresses, their coins brought home, hot wallets within their bands |
//! | [`wallet`] | wallet groups, operation wallets and users' wallets: addresses derived again whenever they matter |
//! | [`withdrawal`] | what customers want paid out: jobs for it, what is settled inside, what became of the jobs |

pub mod bitcoin;
pub mod deposit;
pub mod outbound;
pub mod signer;
pub mod treasury;
pub mod wallet;
pub mod withdrawal;
