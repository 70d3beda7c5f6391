//! Wallet groups and their keys.
//!
//! | module | holds |
//! |---|---|
//! | `group` | a wallet group with its mnemonic; what everybody may know of it, and its addresses, are in [`tx::derivation`] |
//! | [`mnemonic`] | BIP-39 words, 12 or 24, with their checksum |
//! | `secret` | private keys: derived, used, wiped |
//! | [`keyring`] | all groups of a signer, opened from a source |
//! | `sign` | the signature of each chain over a payload that was decided on |
//! | [`source`] | where mnemonics are kept: the one trait |
//! | [`keystore`], [`passphrase`] | mnemonics in an encrypted file |
//! | [`vault`] | mnemonics in OpenBao or HashiCorp Vault |
//! | `file` | files that are replaced as a whole, and only their owner may read |
//! | [`error`] | everything that can go wrong, with a code and a hint |
//!
//! | may | may never |
//! |---|---|
//! | give extended public keys and addresses to anybody | give a private key or a mnemonic to anybody but the operator who makes it |
//! | sign an [`crate::Approved`] | sign a hash that somebody names |

pub mod error;
mod file;
mod group;
pub mod keyring;
pub mod keystore;
pub mod mnemonic;
pub mod passphrase;
mod record;
mod secret;
mod sign;
pub mod source;
pub mod vault;

pub use domain::Purpose;
pub use error::KeyError;
#[cfg(feature = "testing")]
pub use file::{Step, replace};
pub(crate) use file::{read_private, while_locked, write_private};
pub use group::{GroupSecret, family_of, purpose_of};
pub use keyring::Keyring;
pub use keystore::{Cost, Keystore};
pub use mnemonic::Mnemonic;
pub use passphrase::Passphrase;
#[cfg(feature = "testing")]
pub use secret::extended_keys;
pub use source::{Entropy, Source};
pub use tx::{AccountKey, AddressPath, Family, Group};
pub use vault::{Vault, VaultError, VaultSettings};
