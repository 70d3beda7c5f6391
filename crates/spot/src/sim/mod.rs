//! The engine on a disk that lies, beside a model that cannot be wrong, from a seed.

pub mod disk;
pub mod model;
pub mod run;

pub use disk::{Faults, FaultyDisk};
pub use run::{Report, Simulation};
