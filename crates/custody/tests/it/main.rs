//! What the wallet decides: money adds up, rules of nodes are kept, and what is built can be signed. Imports of other people's wallets: Bitcoin
//! Core is found by `BURSAR_TEST_BITCOIN_WALLET`, the program around bdk_wallet by `BURSAR_TEST_BDK`; `./test` sets both.

#![allow(clippy::unwrap_used, reason = "in a test an unwrap is an assertion")]

mod bdk_files;
mod build;
mod bump;
mod core_files;
mod core_node;
mod read;
mod select;
mod world;

/// PostgreSQL only where there is one: `./test --quick` has none.
fn engines() -> Vec<store::Engine> {
    let postgres = std::env::var_os("BURSAR_TEST_POSTGRES_URL").map(|_| store::Engine::Postgres);
    [store::Engine::Sqlite].into_iter().chain(postgres).collect()
}
