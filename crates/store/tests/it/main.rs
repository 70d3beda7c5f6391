//! The store's behaviour, each test on SQLite and on PostgreSQL.
#![allow(clippy::unwrap_used, reason = "in a test an unwrap is an assertion")]

mod adjust;
mod audit;
mod books;
mod bulk;
mod catalog;
mod constraints;
mod copy;
mod deposits;
mod deposits_bitcoin;
mod deposits_looks;
mod deposits_people;
mod faults;
mod grants;
mod imports;
mod ledger;
mod model;
mod operators;
mod outbound;
mod races;
mod schema;
mod signer_heads;
mod support;
mod treasury;
mod utxo;
mod utxo_reads;
mod utxo_rules;
mod views;
mod wallets;
mod withdrawals;
mod withdrawals_ended;
mod yardstick;
