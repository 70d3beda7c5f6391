//! For tests and for the simulator in `lab`, behind the feature `sim`: a disk that lies, a model that cannot be wrong,
//! and the internals that a simulation drives or looks at directly.

pub mod disk;
pub mod model;

pub use disk::{Faults, FaultyDisk};

pub use crate::log::format::{RecordHeader, SegmentHeader};
pub use crate::log::write::prepare;
pub use crate::state::Window;
