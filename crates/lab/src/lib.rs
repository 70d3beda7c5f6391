//! Benches, simulators, chaos, load, yardsticks: what proves and measures Bursar, and never runs in production.
//!
//! | module | holds |
//! |---|---|
//! | [`demo`] | first success: a treasury that runs by itself |
//! | [`chaos`] | the rig under load while its parts are killed |
//! | [`bench`] | speed, as a ratio to a yardstick measured in the same run |
//! | [`sim`] | seeded simulations: crashes, faults, and a model that must agree |
//! | [`drill`] | programs for tests and benches to kill or to measure |
//! | [`rig`] | a whole Bursar in processes of its own, and customers who keep their own records |
//! | [`load`] | many clients over HTTP, every answer looked at |
//! | [`scratch`] | made-up money stays out of real databases |
//! | [`with_postgres`], [`postgres`] | a private PostgreSQL server in a temporary folder |
//!
//! The lab uses Bursar as its users do: it runs the program and talks to the server. Where it needs the inside (a bench
//! of the ledger, a simulated disk) it uses the product crates, never the crate `bursar`.

pub mod bench;
pub mod chaos;
pub mod demo;
pub mod drill;
pub mod load;
pub mod postgres;
pub mod rig;
pub mod scratch;
pub mod sim;
pub mod with_postgres;
