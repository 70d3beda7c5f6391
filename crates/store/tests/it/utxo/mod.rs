//! The Bitcoin wallet's store, held to its rules from outside.
//!
//! | module | holds |
//! |---|---|
//! | `model` | the rules as plain maps |
//! | `consequences` | what follows from an event in them: what falls, and what comes back |
//! | `readings` | what rows and balances follow from them |
//! | `rows` | what the database says, in the model's words |
//! | `stage` | a database and a model that are told the same events |
//! | `universe` | what a random world is made of |
//! | `world` | random but plausible events from a seed |
//! | `property` | random worlds: model and rows agree after every event |
//! | `reorg` | forks, long chains, spends before their parents |
//! | `law5` | what was broadcast keeps its inputs |
//! | `claimed` | free outputs that a transaction which may still be mined spends |
//! | `given_up` | what two people gave up although it was broadcast |
//! | `bad` | other wallets' addresses, and what no chain could show |
//! | `faults` | a crash at every statement; every event twice |
//! | `lease` | eight writers, expiry, renewal, sweeping |
//! | `together` | selections of one process, leased in one transaction |
//! | `chains` | unconfirmed transactions that hang together, and no more of them than nodes take |
//! | `races` | two that want one output at once, on PostgreSQL |
//! | `watch` | what is sifted in memory |
//! | `candidates` | what a selection is shown |
//! | `rescan` | what a rescan finds is held until every block was read |

mod bad;
mod candidates;
mod chains;
mod claimed;
mod consequences;
mod faults;
mod given_up;
mod hostile;
mod law5;
mod lease;
mod model;
mod property;
mod races;
mod readings;
mod reorg;
mod rescan;
mod rows;
mod stage;
mod together;
mod universe;
mod watch;
mod world;
