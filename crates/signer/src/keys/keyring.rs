//! All groups of a signer, opened from a source. Afterwards the mnemonics are gone from memory; what stays is one private key
//! for each group, at the level of its account.

use std::collections::BTreeMap;

use tx::{Address, AddressPath, Group};

use super::error::KeyError;
use super::group::GroupSecret;
use super::secret::AccountSecret;
use super::sign;
use super::source::Source;
use crate::approved::{Approved, Signed};
use crate::names::GroupId;

#[derive(Debug)]
pub struct Keyring {
    groups: BTreeMap<GroupId, Held>,
}

#[derive(Debug)]
struct Held {
    group: Group,
    secret: AccountSecret,
}

impl Keyring {
    pub async fn open(source: &impl Source) -> Result<Self, KeyError> {
        Self::of(source.load().await?)
    }

    /// The mnemonics are wiped here. Two groups with the same keys are refused: what one may not do, the other could.
    pub fn of(secrets: Vec<GroupSecret>) -> Result<Self, KeyError> {
        let mut groups = BTreeMap::new();
        let mut keys: BTreeMap<String, GroupId> = BTreeMap::new();
        for GroupSecret { id, purpose, family, account, mnemonic } in secrets {
            let secret = AccountSecret::of(&mnemonic, family, account)?;
            let group = Group { id: id.clone(), purpose, key: secret.public()? };
            if let Some(other) = keys.insert(group.key.to_string(), id.clone()) {
                return Err(KeyError::SameKeys { group: id, other });
            }
            if groups.insert(id.clone(), Held { group, secret }).is_some() {
                return Err(KeyError::GroupExists(id));
            }
        }
        Ok(Self { groups })
    }

    /// All groups, by their ids.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.values().map(|held| &held.group)
    }

    pub fn group(&self, id: &GroupId) -> Result<&Group, KeyError> {
        self.held(id).map(|held| &held.group)
    }

    /// Derived from the group's own key, never from a row or a request.
    pub fn address(&self, id: &GroupId, path: AddressPath) -> Result<Address, KeyError> {
        Ok(self.group(id)?.key.address(path)?)
    }

    /// The signed transaction. The payload is read again here: one that does more than pay, or that other keys would have to
    /// sign, is refused whoever approved it.
    pub fn sign(&self, approved: &Approved) -> Result<Signed, KeyError> {
        let held = self.held(approved.group())?;
        if held.group.family() != approved.protocol().family() {
            return Err(KeyError::OtherChain { group: approved.group().clone() });
        }
        let key = |index: &u64| held.secret.key(AddressPath::of_number(*index)?);
        let keys = approved.indexes().iter().map(key).collect::<Result<Vec<_>, _>>()?;
        sign::sign(approved.protocol(), &keys, approved.payload())
    }

    fn held(&self, id: &GroupId) -> Result<&Held, KeyError> {
        self.groups.get(id).ok_or_else(|| KeyError::GroupUnknown(id.clone()))
    }
}
