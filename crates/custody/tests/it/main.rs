//! The wallet's decisions: money adds up, rules of nodes are kept, and built transactions can be signed. Then the same
//! with a store and a real node.
//!
//! Tests whose name holds `bitcoind` start the node whose path is in `BURSAR_TEST_BITCOIND`. Imports of other people's
//! wallets: Bitcoin Core is found by `BURSAR_TEST_BITCOIN_WALLET`, the program around bdk_wallet by `BURSAR_TEST_BDK`.
//! Those that hold `anvil` start the EVM node of `BURSAR_TEST_ANVIL`. `./test` sets all of them.

#![allow(clippy::unwrap_used, reason = "in a test an unwrap is an assertion")]

mod anvil;
mod bdk_files;
mod bent;
mod build;
mod bump;
mod bundles;
mod chains;
mod check;
mod core_files;
mod core_node;
mod deposits;
mod deposits_bitcoin;
mod deposits_deep;
mod devnet;
mod faulty;
mod follow;
mod grants;
mod imports;
mod journey;
mod node;
mod outbound;
mod outbound_prices;
mod outbound_slots;
mod outside;
mod parents;
mod pay;
mod payouts;
mod payouts_words;
mod random;
mod read;
mod rescan;
mod restore;
mod select;
mod treasury;
mod treasury_people;
mod treasury_stopped;
mod upkeep;
mod wallet;
mod wallet_rows;
mod withdrawals;
mod world;

/// PostgreSQL only where there is one: `./test --quick` has none.
fn engines() -> Vec<store::Engine> {
    let postgres = std::env::var_os("BURSAR_TEST_POSTGRES_URL").map(|_| store::Engine::Postgres);
    [store::Engine::Sqlite].into_iter().chain(postgres).collect()
}
