//! A group as text: in the header of a keystore, and in the file that pins the groups of a Vault.

use serde::{Deserialize, Serialize};
use tx::{AccountKey, DerivationError, Group};

use super::error::KeyError;
use super::group::{family_of, purpose_of};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GroupRecord {
    id: String,
    purpose: String,
    chain: String,
    account: u32,
    xpub: String,
}

impl GroupRecord {
    pub(super) fn of(group: &Group) -> Self {
        Self {
            id: group.id.to_string(),
            purpose: group.purpose.as_str().to_owned(),
            chain: group.family().as_str().to_owned(),
            account: group.account(),
            xpub: group.key.to_string(),
        }
    }

    pub(super) fn read(&self) -> Result<Group, KeyError> {
        let key = AccountKey::parse(&self.xpub, family_of(&self.chain)?)?;
        if key.account() != self.account {
            return Err(DerivationError::BadXpub("it is of another account").into());
        }
        Ok(Group { id: self.id.parse()?, purpose: purpose_of(&self.purpose)?, key })
    }
}

/// Each name once, and each key once.
pub(super) fn check_new(groups: &[Group], new: &Group) -> Result<(), KeyError> {
    for old in groups {
        if old.id == new.id {
            return Err(KeyError::GroupExists(new.id.clone()));
        }
        if old.key.to_string() == new.key.to_string() {
            return Err(KeyError::SameKeys { group: new.id.clone(), other: old.id.clone() });
        }
    }
    Ok(())
}
