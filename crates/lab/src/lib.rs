//! Benches, simulators, chaos, load, yardsticks: what proves and measures Bursar, and never runs in production.

pub mod sim;
