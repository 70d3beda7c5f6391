//! The groups and operation wallets of the treasury file. They are what every row is held against.

use std::collections::{BTreeMap, BTreeSet};

use domain::{ChainName, GroupId, Purpose, WalletRole};
use store::wallet::{OperationWallet, Place, WalletGroup, WalletSettings};
use tx::{Address, BadAddress, DerivationError, Family, Group};

/// A group with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedGroup {
    pub group: Group,
    /// Whether users get wallets of it.
    pub active: bool,
}

/// One of the house's own wallets, with the address that its group's key gives, or that the file has written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedWallet {
    pub role: WalletRole,
    pub address: Address,
    pub active: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pinned {
    groups: BTreeMap<GroupId, PinnedGroup>,
    wallets: BTreeMap<(ChainName, Place), PinnedWallet>,
}

/// Why a treasury file's wallets cannot be pinned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PinError {
    #[error("it has the same key as wallet group {0}")]
    SameKeys(GroupId),
    #[error("there is no wallet group {0} in this file")]
    NoSuchGroup(GroupId),
    #[error("wallet group {group} is for {family}, and the chain is not")]
    OtherFamily { group: GroupId, family: &'static str },
    #[error("wallet group {group} is for {purpose}, and the wallet's role is {role}")]
    OtherPurpose { group: GroupId, purpose: &'static str, role: &'static str },
    #[error("an index is below 2147483648")]
    IndexTooLarge,
    #[error("it is there twice")]
    Twice,
    #[error("another wallet on this chain has the same address")]
    SameAddress,
    #[error(transparent)]
    Address(BadAddress),
    #[error(transparent)]
    Derivation(#[from] DerivationError),
}

impl Pinned {
    pub fn add_group(&mut self, group: Group, active: bool) -> Result<(), PinError> {
        if let Some(other) = self.groups.values().find(|other| other.group.key == group.key) {
            return Err(PinError::SameKeys(other.group.id.clone()));
        }
        self.groups.insert(group.id.clone(), PinnedGroup { group, active });
        Ok(())
    }

    /// A wallet of a group, by its index. The role must be what the group is for.
    pub fn add_derived(
        &mut self,
        (chain, family): (ChainName, Family),
        role: WalletRole,
        (group, index): (&GroupId, u64),
        active: bool,
    ) -> Result<(), PinError> {
        let pinned = self.groups.get(group).ok_or_else(|| PinError::NoSuchGroup(group.clone()))?;
        let (found, purpose) = (pinned.group.family(), pinned.group.purpose);
        if role.purpose() != Some(purpose) {
            let (purpose, role) = (purpose.as_str(), role.as_str());
            return Err(PinError::OtherPurpose { group: group.clone(), purpose, role });
        }
        if found != family {
            return Err(PinError::OtherFamily { group: group.clone(), family: found.as_str() });
        }
        // From there on a path is where other wallet software puts change.
        if index >= 1 << 31 {
            return Err(PinError::IndexTooLarge);
        }
        let address = pinned.group.address(index)?;
        let place = Place::Derived { group: group.clone(), index: index.cast_signed() };
        self.add(chain, place, PinnedWallet { role, address, active })
    }

    /// A cold wallet, whose key is somewhere else.
    pub fn add_cold(
        &mut self,
        (chain, family): (ChainName, Family),
        address: &str,
        active: bool,
    ) -> Result<(), PinError> {
        let address = family.parse_address(address).map_err(PinError::Address)?;
        let place = Place::Written(address.to_string());
        self.add(chain, place, PinnedWallet { role: WalletRole::Cold, address, active })
    }

    fn add(&mut self, chain: ChainName, place: Place, wallet: PinnedWallet) -> Result<(), PinError> {
        let key = (chain, place);
        if self.wallets.contains_key(&key) {
            return Err(PinError::Twice);
        }
        if self.wallets.iter().any(|((chain, _), other)| *chain == key.0 && other.address == wallet.address) {
            return Err(PinError::SameAddress);
        }
        self.wallets.insert(key, wallet);
        Ok(())
    }

    pub fn group(&self, id: &GroupId) -> Option<&PinnedGroup> {
        self.groups.get(id)
    }

    pub fn groups(&self) -> impl Iterator<Item = &PinnedGroup> {
        self.groups.values()
    }

    /// The groups whose addresses users have on chains of this family, active or not: all of them are watched.
    pub fn deposit_groups(&self, family: Family) -> impl Iterator<Item = &PinnedGroup> {
        let of_users = move |one: &&PinnedGroup| one.group.purpose == Purpose::Deposit && one.group.family() == family;
        self.groups.values().filter(of_users)
    }

    /// The one that users get new wallets of. Why there is none: none is active, or which of several is not said.
    pub fn deposit_group(&self, family: Family) -> Result<&PinnedGroup, &'static str> {
        let mut active = self.deposit_groups(family).filter(|one| one.active);
        match (active.next(), active.next()) {
            (Some(one), None) => Ok(one),
            (None, _) => Err("no deposit group of the treasury file is active there"),
            (Some(_), Some(_)) => Err("several deposit groups of the treasury file are active there"),
        }
    }

    pub fn wallets(&self) -> impl Iterator<Item = (&ChainName, &Place, &PinnedWallet)> {
        self.wallets.iter().map(|((chain, place), wallet)| (chain, place, wallet))
    }

    /// The addresses of all operation wallets.
    pub fn addresses(&self) -> BTreeSet<&Address> {
        self.wallets.values().map(|wallet| &wallet.address).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.wallets.is_empty()
    }

    /// As rows should have it.
    pub fn settings(&self) -> WalletSettings {
        let group = |pinned: &PinnedGroup| WalletGroup {
            family: pinned.group.family().as_str().to_owned(),
            purpose: pinned.group.purpose,
            xpub: pinned.group.key.to_string(),
            path: format!("{}/hi/lo", pinned.group.family().account_path(pinned.group.account())),
            active: pinned.active,
        };
        let wallet = |one: &PinnedWallet| OperationWallet::new(one.role, one.address.to_string(), one.active);
        WalletSettings {
            groups: self.groups.iter().map(|(id, pinned)| (id.clone(), group(pinned))).collect(),
            wallets: self.wallets.iter().map(|(key, one)| (key.clone(), wallet(one))).collect(),
        }
    }
}
