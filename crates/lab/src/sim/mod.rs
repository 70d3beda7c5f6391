//! Seeded simulations: crashes, faults, and a model that must agree.

pub mod spot;
