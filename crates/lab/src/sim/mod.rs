//! Seeded simulations: crashes, faults, and a model that must agree.

#[macro_use]
mod counters;
pub mod command;
pub mod custody;
pub mod deposits;
pub mod spot;
pub mod transfer;
mod turn;
