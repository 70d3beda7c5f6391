//! The wallets of a treasury file: groups with their keys, and the house's own wallets.

use std::collections::BTreeMap;

use custody::wallet::{PinError, Pinned};
use domain::{Chain, ChainName, GroupId, Purpose, WalletRole};
use serde::Deserialize;
use terminal::failure::Failure;
use tx::{AccountKey, Family, Group};

use super::{bad, yes};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GroupEntry {
    chain: String,
    purpose: String,
    xpub: String,
    #[serde(default = "yes")]
    active: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WalletEntry {
    role: String,
    chain: String,
    group: Option<String>,
    index: Option<u64>,
    address: Option<String>,
    #[serde(default = "yes")]
    active: bool,
}

/// Every address that the file's groups and operation wallets have, derived from the file's own keys.
pub(super) fn pin<'c>(
    groups: &BTreeMap<String, GroupEntry>,
    wallets: &[WalletEntry],
    chain: impl Fn(&ChainName) -> Option<&'c Chain>,
) -> Result<Pinned, Failure> {
    let mut pinned = Pinned::default();
    for (name, entry) in groups {
        let place = format!("wallet_groups.{name}");
        pinned.add_group(group(&place, name, entry)?, entry.active).map_err(|error| refused(&place, &error))?;
    }
    for (at, entry) in wallets.iter().enumerate() {
        let place = format!("operation_wallets, entry {}", at + 1);
        wallet(&place, entry, &chain, &mut pinned)?;
    }
    Ok(pinned)
}

fn group(place: &str, name: &str, entry: &GroupEntry) -> Result<Group, Failure> {
    let id: GroupId = name.parse().map_err(|error| bad(place, error, "write it like users-evm"))?;
    let families = "evm, tron, bitcoin, bitcoin-testnet, bitcoin-testnet4, bitcoin-signet, bitcoin-regtest";
    let family = Family::parse(&entry.chain).ok_or_else(|| bad(place, "its chain is none", families))?;
    let purpose = Purpose::parse(&entry.purpose)
        .ok_or_else(|| bad(place, "its purpose is none", "deposit, hot, gas or treasury"))?;
    // The text is not repeated: it might be a private key.
    let key = AccountKey::parse(&entry.xpub, family)
        .map_err(|error| Failure::bad_input(error.code(), format!("{place}: {error}"), error.hint()))?;
    Ok(Group { id, purpose, key })
}

fn wallet<'c>(
    place: &str,
    entry: &WalletEntry,
    chain: &impl Fn(&ChainName) -> Option<&'c Chain>,
    pinned: &mut Pinned,
) -> Result<(), Failure> {
    let role = WalletRole::parse(&entry.role)
        .ok_or_else(|| bad(place, "its role is none", "gas, hot, treasury or cold; users' wallets are not listed"))?;
    let name: ChainName = entry.chain.parse().map_err(|error| bad(place, error, "write it like bsc"))?;
    let found = chain(&name).ok_or_else(|| {
        let hint = "add it under [chains], or correct the name";
        Failure::bad_input("INVALID_CHAIN", format!("{place}: there is no chain {name}"), hint)
    })?;
    let family = Family::of_chain(found.kind, &found.network)
        .ok_or_else(|| bad(place, "its chain has no addresses that are known here", "see [chains]"))?;
    let added = match (role, &entry.group, entry.index, &entry.address) {
        (WalletRole::Cold, None, None, Some(address)) => pinned.add_cold((name, family), address, entry.active),
        (WalletRole::Cold, ..) => {
            let hint = "a wallet with a group has the role gas, hot or treasury";
            return Err(bad(place, "a cold wallet has an address, and neither group nor index", hint));
        }
        (_, Some(group), Some(index), None) => {
            let group: GroupId = group.parse().map_err(|error| bad(place, error, "write it like gas-evm"))?;
            pinned.add_derived((name, family), role, (&group, index), entry.active)
        }
        _ => {
            let hint = "its address follows from them; only a cold wallet's is written down";
            return Err(bad(place, "a gas, hot or treasury wallet has a group and an index, and no address", hint));
        }
    };
    added.map_err(|error| refused(place, &error))
}

fn refused(place: &str, error: &PinError) -> Failure {
    match error {
        PinError::Address(why) => Failure::bad_input(
            why.code(),
            format!("{place}: {why}"),
            "copy the address once more from where it was made",
        ),
        PinError::Derivation(why) => Failure::bad_input(why.code(), format!("{place}: {why}"), why.hint()),
        PinError::SameKeys(_) => bad(place, error, "each group has a key of its own: bursar signer group list"),
        PinError::NoSuchGroup(_) => bad(place, error, "add it under [wallet_groups], with its key"),
        PinError::OtherFamily { .. } | PinError::OtherPurpose { .. } => {
            bad(place, error, "take a group of this chain and purpose")
        }
        PinError::IndexTooLarge => bad(place, error, "count the wallets of a group from 0"),
        PinError::Twice | PinError::SameAddress => bad(place, error, "keep one of the two"),
    }
}
