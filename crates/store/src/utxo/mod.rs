//! The Bitcoin wallet: outputs that pay our addresses, and the transactions that make and spend them.
//!
//! | module | holds |
//! |---|---|
//! | `types` | wallets, addresses, blocks, transactions as they come in; what is refused |
//! | `wallet` | wallets and their addresses |
//! | `graph` | the rows around an event, and what each of them becomes: no I/O |
//! | `load`, `write` | reading those rows and writing what changed, many at a time |
//! | `events` | what can happen: a block connected or disconnected, a transaction seen, made, published, replaced, abandoned |
//! | `balance` | what an account has |
//! | `coins` | candidates for a selection, lists of outputs |
//! | `lease` | outputs that somebody is about to spend |
//! | `history` | one transaction with all that is known of it; labels |
//! | `prune` | the only delete |
//! | `check` | every row that disagrees with the facts |
//!
//! **An output has at most one valid spender, and only valid transactions spend.** Everything else follows: a
//! transaction is *valid* while it is pending or published; `utxos.valid`, `tx_inputs.active` and the spender of an
//! output say so again where the hot paths look, and triggers keep them true.
//!
//! **All changes of transactions wait in one line** (a lock of the database), so none of them meets half of another.
//! Leases do not: they lock their outputs' rows, in the order of their ids.

mod types;

pub use types::*;
