//! All groups of a signer, opened from a source. Afterwards the mnemonics are gone from memory; what stays is one private key
//! for each group, at the level of its account.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use domain::Purpose;
use ring::hmac;
use tx::{Address, AddressPath, Group};

use super::error::KeyError;
use super::group::GroupSecret;
use super::secret::{AccountSecret, AddressSecret};
use super::sign;
use super::source::Source;
use crate::approved::{Approved, Signed};
use crate::digest::Fields;
use crate::log::Head;
use crate::names::GroupId;
use crate::text::Hash;

#[derive(Debug)]
pub struct Keyring {
    groups: BTreeMap<GroupId, Held>,
    /// What proves that a head of the log was given by whoever has these keys: a key for each group, made from its secret.
    head_keys: Vec<hmac::Key>,
    /// Keys of operation wallets, which sign again and again: deriving one takes longer than signing with it. They follow from the keys above, so
    /// whoever could read them here could have them anyway.
    derived: Mutex<BTreeMap<GroupId, BTreeMap<u64, Arc<AddressSecret>>>>,
}

/// So many of them are kept for each group. Policies allow tens.
const MOST_DERIVED: usize = 256;

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
        let head_keys = groups.values().map(|held: &Held| held.secret.head_key()).collect();
        Ok(Self { groups, head_keys, derived: Mutex::default() })
    }

    /// The proof that goes with a head. With it, somebody who comes back with a head that the log lacks shows that the log is an old
    /// copy; without it, that is only something that somebody says. `None`: there are no groups.
    pub(crate) fn prove(&self, head: &Head) -> Option<Hash> {
        let tag = hmac::sign(self.head_keys.first()?, &head_message(head));
        tag.as_ref().try_into().ok().map(Hash)
    }

    /// Whether this signer gave the head. Groups are added in time, so the key of any of them may have made the proof.
    pub(crate) fn has_given(&self, head: &Head, proof: &Hash) -> bool {
        let message = head_message(head);
        self.head_keys.iter().any(|key| hmac::verify(key, &message, &proof.0).is_ok())
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
        let keys = approved.indexes().iter().map(|index| self.key(held, *index)).collect::<Result<Vec<_>, _>>()?;
        sign::sign(approved.protocol(), &keys, approved.payload())
    }

    fn key(&self, held: &Held, index: u64) -> Result<Arc<AddressSecret>, KeyError> {
        let derive = || Ok::<_, KeyError>(Arc::new(held.secret.key(AddressPath::of_number(index)?)?));
        // A user's wallet is swept once in a while, and there are millions.
        if held.group.purpose == Purpose::Deposit {
            return derive();
        }
        let known = || self.derived.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = known().get(&held.group.id).and_then(|keys| keys.get(&index)) {
            return Ok(Arc::clone(key));
        }
        let key = derive()?;
        let mut known = known();
        let keys = known.entry(held.group.id.clone()).or_default();
        if keys.len() < MOST_DERIVED {
            keys.insert(index, Arc::clone(&key));
        }
        Ok(key)
    }

    fn held(&self, id: &GroupId) -> Result<&Held, KeyError> {
        self.groups.get(id).ok_or_else(|| KeyError::GroupUnknown(id.clone()))
    }
}

fn head_message(head: &Head) -> [u8; 32] {
    Fields::new("bursar-signer-head-v1").text(&head.entries).bytes(&head.hash.0).finish()
}
