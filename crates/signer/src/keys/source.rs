//! Where mnemonics are kept: the one trait that a keyring knows.

use std::future::Future;
use std::io;

use super::error::KeyError;
use super::group::GroupSecret;

pub trait Source {
    /// Every group with its mnemonic. A group that is not the one that it was is an error, not another key.
    fn load(&self) -> impl Future<Output = Result<Vec<GroupSecret>, KeyError>> + Send;

    /// Keeps another group, durably before it returns. A group of that name, or with the same keys, is refused.
    fn add(&self, secret: GroupSecret) -> impl Future<Output = Result<(), KeyError>> + Send;
}

/// Random bytes that nobody can guess. The program takes them from the system; tests bring their own.
pub trait Entropy: Send + Sync {
    fn fill(&self, bytes: &mut [u8]) -> io::Result<()>;
}
