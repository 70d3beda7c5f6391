//! What a keystore is encrypted with.

use std::fmt;

use zeroize::Zeroizing;

use super::error::KeyError;

/// Fewer bytes can be guessed, whatever each guess costs.
pub const SHORTEST: usize = 12;
/// Nobody types more; a file that is longer is another file.
pub const LONGEST: usize = 1_024;

pub struct Passphrase(Zeroizing<Vec<u8>>);

impl fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Passphrase")
    }
}

impl Passphrase {
    /// For a new keystore: what is too short to protect it is refused.
    pub fn new(bytes: Zeroizing<Vec<u8>>) -> Result<Self, KeyError> {
        if (SHORTEST..=LONGEST).contains(&bytes.len()) { Ok(Self(bytes)) } else { Err(KeyError::WeakPassphrase) }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}
