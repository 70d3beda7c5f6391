//! A wallet group with its mnemonic, on its way from a source to a keyring or back.

use domain::{GroupId, Purpose};
use tx::{Family, Group};

use super::error::KeyError;
use super::mnemonic::Mnemonic;

/// A purpose as it is written.
pub fn purpose_of(text: &str) -> Result<Purpose, KeyError> {
    Purpose::parse(text).ok_or(KeyError::BadGroup("purpose"))
}

/// A chain family as it is written.
pub fn family_of(text: &str) -> Result<Family, KeyError> {
    Family::parse(text).ok_or(KeyError::BadGroup("chain"))
}

#[derive(Debug)]
pub struct GroupSecret {
    pub id: GroupId,
    pub purpose: Purpose,
    pub family: Family,
    pub account: u32,
    pub mnemonic: Mnemonic,
}

impl GroupSecret {
    /// What may be known of it.
    pub fn group(&self) -> Result<Group, KeyError> {
        let key = super::secret::AccountSecret::of(&self.mnemonic, self.family, self.account)?.public()?;
        Ok(Group { id: self.id.clone(), purpose: self.purpose, key })
    }
}
