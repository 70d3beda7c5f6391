//! Seeded simulations: crashes, faults, and a model that must agree.

pub mod command;
pub mod spot;
pub mod transfer;
