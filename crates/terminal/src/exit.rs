//! The exit codes.

/// The exit codes of `bursar`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The command did its work and found something wrong with the data.
    Found = 1,
    /// The command was asked for something it cannot do.
    BadInput = 2,
    /// Something outside failed: the database, the disk, the machine.
    Outside = 3,
}
