//! The scripts that a descriptor stands for, with the account and the path of each.

use std::collections::{HashMap, HashSet};
use std::str::FromStr;

use bitcoin::NetworkKind;
use bitcoin::bip32::{ChildNumber, DerivationPath};
use miniscript::descriptor::{DescriptorPublicKey, DescriptorType, Wildcard};
use miniscript::{Descriptor, ForEachKey};
use store::utxo::{AddressKind, Network, NewAddress, Path};

use super::super::read::network_of;

/// More addresses than any wallet has, few enough to fit into memory.
const MOST: usize = 5_000_000;

#[derive(Debug)]
pub(super) struct Script {
    descriptor: Descriptor<DescriptorPublicKey>,
    account: u32,
    kind: AddressKind,
    branch: Option<u8>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadDescriptor {
    #[error("it holds a private key; export public descriptors only, and remove this file")]
    Private,
    #[error("its key is not of the network {0}")]
    OtherNetwork(Network),
    #[error("{0}")]
    Malformed(String),
    /// Some descriptors of Core cannot be derived from public keys, and some are known to Core alone.
    #[error("its scripts cannot be derived: {0}")]
    NotDerivable(String),
}

impl Script {
    pub fn parse(text: &str, network: Network) -> Result<Self, BadDescriptor> {
        if is_private(text) {
            return Err(BadDescriptor::Private);
        }
        if let Some(function) =
            ["combo(", "addr(", "raw(", "rawtr("].into_iter().find(|function| text.starts_with(*function))
        {
            return Err(BadDescriptor::NotDerivable(format!("{}) is not supported", function)));
        }
        let descriptor = Descriptor::from_str(text)
            .map_err(|error| BadDescriptor::Malformed(format!("not a descriptor: {error}")))?;
        if descriptor.is_multipath() {
            return Err(BadDescriptor::Malformed("it stands for several descriptors at once".to_owned()));
        }
        let main = network_of(network) == bitcoin::Network::Bitcoin;
        let kind_of_network = if main { NetworkKind::Main } else { NetworkKind::Test };
        if descriptor.for_any_key(|key| extended(key).is_some_and(|key| key.xkey.network != kind_of_network)) {
            return Err(BadDescriptor::OtherNetwork(network));
        }
        if descriptor.for_any_key(DescriptorPublicKey::has_hardened_step)
            || descriptor.for_any_key(|key| extended(key).is_some_and(|key| key.wildcard == Wildcard::Hardened))
        {
            return Err(BadDescriptor::NotDerivable("it has hardened steps after its key".to_owned()));
        }
        Ok(Self::of(descriptor))
    }

    /// An address is selected only if one key, whose path is known, can spend from it.
    fn of(descriptor: Descriptor<DescriptorPublicKey>) -> Self {
        let (mut keys, mut count) = (None, 0_u32);
        descriptor.for_each_key(|key| {
            count = count.saturating_add(1);
            keys = Some(key.clone());
            true
        });
        let key = keys.as_ref().and_then(extended);
        let account = key.map_or(0, |key| account_of(key.origin.as_ref().map(|(_, path)| path), &key.derivation_path));
        let kind = match (descriptor.desc_type(), &descriptor) {
            (DescriptorType::Wpkh, _) => AddressKind::P2wpkh,
            (DescriptorType::Tr, Descriptor::Tr(tr)) if tr.tap_tree().is_none() => AddressKind::P2tr,
            _ => AddressKind::Other,
        };
        let branch = key.filter(|key| count == 1 && key.wildcard == Wildcard::Unhardened).and_then(|key| {
            match key.derivation_path.as_ref().last() {
                Some(ChildNumber::Normal { index: 0 }) => Some(0),
                Some(ChildNumber::Normal { index: 1 }) => Some(1),
                _ => None,
            }
        });
        let kind = if branch.is_some() { kind } else { AddressKind::Other };
        let branch = branch.filter(|_| kind != AddressKind::Other);
        Self { descriptor, account, kind, branch }
    }

    pub fn is_ranged(&self) -> bool {
        self.descriptor.has_wildcard()
    }

    pub fn script(&self, index: u32) -> Result<Vec<u8>, BadDescriptor> {
        let definite = self.descriptor.at_derivation_index(index);
        let definite =
            definite.map_err(|error| BadDescriptor::Malformed(format!("no script at index {index}: {error}")))?;
        Ok(definite.script_pubkey().to_bytes())
    }
}

const fn extended(key: &DescriptorPublicKey) -> Option<&miniscript::descriptor::DescriptorXKey<bitcoin::bip32::Xpub>> {
    match key {
        DescriptorPublicKey::XPub(key) => Some(key),
        DescriptorPublicKey::Single(_) | DescriptorPublicKey::MultiXPub(_) => None,
    }
}

/// The third step of `purpose'/coin'/account'/…`, if all three are hardened.
fn account_of(origin: Option<&DerivationPath>, behind: &DerivationPath) -> u32 {
    let mut steps = origin.into_iter().flat_map(|path| path.as_ref().iter()).chain(behind.as_ref().iter());
    match (steps.next(), steps.next(), steps.next()) {
        (
            Some(ChildNumber::Hardened { .. }),
            Some(ChildNumber::Hardened { .. }),
            Some(ChildNumber::Hardened { index }),
        ) => *index,
        _ => 0,
    }
}

/// An extended private key, or one in WIF, where a key stands. It is looked for before anything else reads the text, so
/// that no message repeats it.
fn is_private(text: &str) -> bool {
    text.split(['(', ')', ',', '/', '{', '}', ']', '#']).any(|key| {
        ["xprv", "tprv"].iter().any(|prefix| key.starts_with(prefix)) || bitcoin::PrivateKey::from_wif(key).is_ok()
    })
}

/// The addresses of a wallet, each script once.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    list: Vec<NewAddress>,
    scripts: HashSet<Vec<u8>>,
    /// Which descriptor has the paths of an account, a kind and a branch. One path has one key.
    owners: HashMap<(u32, AddressKind, u8), usize>,
    /// How many descriptors came so far, and how many of them are of a kind that is never selected.
    descriptors: usize,
    pub never_selected: usize,
}

impl Addresses {
    /// The scripts of a descriptor from one index to another.
    pub fn add(&mut self, script: &Script, from: u32, to: u32) -> Result<(), BadDescriptor> {
        let number = self.descriptors;
        self.descriptors += 1;
        // Another key has these paths already. Rows hold paths and no keys, so addresses of this one are never
        // selected.
        let branch = script
            .branch
            .filter(|branch| *self.owners.entry((script.account, script.kind, *branch)).or_insert(number) == number);
        let kind = if branch.is_some() { script.kind } else { AddressKind::Other };
        if branch.is_none() {
            self.never_selected += 1;
        }
        let (from, to) = if script.is_ranged() { (from, to) } else { (0, 0) };
        // Before anything is derived: a range that no wallet has would take hours.
        let count = to.checked_sub(from).and_then(|steps| usize::try_from(steps).ok());
        let count = count.ok_or_else(|| BadDescriptor::Malformed("its range ends before it begins".to_owned()))?;
        if count >= MOST - self.list.len() {
            return Err(BadDescriptor::Malformed(format!("the wallet has more than {MOST} addresses")));
        }
        for index in from..=to {
            let bytes = script.script(index)?;
            if self.scripts.insert(bytes.clone()) {
                let path = branch.map(|branch| Path { branch, index });
                self.list.push(NewAddress { account: script.account, path, kind, script: bytes });
            }
        }
        Ok(())
    }

    /// Adds a script that no descriptor gave. `true`: it is new.
    pub fn add_script(&mut self, script: &[u8]) -> bool {
        let new = self.scripts.insert(script.to_vec());
        if new {
            let address = NewAddress { account: 0, path: None, kind: AddressKind::Other, script: script.to_vec() };
            self.list.push(address);
        }
        new
    }

    pub fn has(&self, script: &[u8]) -> bool {
        self.scripts.contains(script)
    }

    pub fn into_list(self) -> Vec<NewAddress> {
        self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // BIP 84's and BIP 86's own test vectors: account 0 of "abandon … about".
    const ZPUB: &str = "xpub6CatWdiZiodmUeTDp8LT5or8nmbKNcuyvz7WyksVFkKB4RHwCD3XyuvPEbvqAQY3rAPshWcMLoP2fMFMKHPJ4ZeZXYVUhLv1VMrjPC7PW6V";
    const TAPROOT: &str = "xpub6BgBgsespWvERF3LHQu6CnqdvfEvtMcQjYrcRzx53QJjSxarj2afYWcLteoGVky7D3UKDP9QyrLprQ3VCECoY49yfdDEHGCtMMj92pReUsQ";

    fn scripts(text: &str, to: u32) -> Vec<NewAddress> {
        let mut addresses = Addresses::default();
        addresses.add(&Script::parse(text, Network::Bitcoin).unwrap(), 0, to).unwrap();
        addresses.into_list()
    }

    fn printed(address: &NewAddress) -> String {
        let script = bitcoin::ScriptBuf::from_bytes(address.script.clone());
        bitcoin::Address::from_script(&script, bitcoin::Network::Bitcoin).unwrap().to_string()
    }

    #[test]
    fn the_published_vectors_come_out() {
        let receiving = scripts(&format!("wpkh([73c5da0a/84h/0h/0h]{ZPUB}/0/*)"), 1);
        assert_eq!(printed(&receiving[0]), "bc1qcr8te4kr609gcawutmrza0j4xv80jy8z306fyu");
        assert_eq!(printed(&receiving[1]), "bc1qnjg0jd8228aq7egyzacy8cys3knf9xvrerkf9g");
        assert_eq!(receiving[1].path, Some(Path { branch: 0, index: 1 }));
        assert_eq!((receiving[1].account, receiving[1].kind), (0, AddressKind::P2wpkh));
        let change = scripts(&format!("wpkh([73c5da0a/84'/0'/7']{ZPUB}/1/*)"), 0);
        assert_eq!(printed(&change[0]), "bc1q8c6fshw2dlwun7ekn9qwf37cu2rn755upcp6el");
        assert_eq!((change[0].path, change[0].account), (Some(Path { branch: 1, index: 0 }), 7));
        let taproot = scripts(&format!("tr([73c5da0a/86h/0h/0h]{TAPROOT}/0/*)"), 0);
        assert_eq!(printed(&taproot[0]), "bc1p5cyxnuxmeuwuvkwfem96lqzszd02n6xdcjrs20cac6yqjjwudpxqkedrcr");
        assert_eq!(taproot[0].kind, AddressKind::P2tr);
    }

    #[test]
    fn what_no_path_can_spend_is_never_selected() {
        let other = |text: String| scripts(&text, 1).iter().all(|a| a.kind == AddressKind::Other && a.path.is_none());
        assert!(other(format!("pkh([73c5da0a/44h/0h/0h]{ZPUB}/0/*)")));
        assert!(other(format!("sh(wpkh([73c5da0a/49h/0h/0h]{ZPUB}/0/*))")));
        assert!(other(format!("wpkh({ZPUB}/*)")), "no branch");
        assert!(other(format!("wpkh({ZPUB}/2/*)")), "no such branch");
        assert!(other(format!("wsh(multi(1,{ZPUB}/0/*,{TAPROOT}/0/*))")));
        assert!(other(format!("tr({TAPROOT}/0/*,pk({ZPUB}/0/*))")), "a script tree");
        assert!(other("wpkh(0279be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798)".to_owned()));
        assert_eq!(scripts("wpkh(0279be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798)", 9).len(), 1);
    }

    #[test]
    fn one_path_has_one_key() {
        let mut addresses = Addresses::default();
        let parse = |key| Script::parse(&format!("wpkh([73c5da0a/84h/0h/0h]{key}/0/*)"), Network::Bitcoin).unwrap();
        addresses.add(&parse(ZPUB), 0, 1).unwrap();
        addresses.add(&parse(TAPROOT), 0, 1).unwrap();
        addresses.add(&parse(ZPUB), 0, 1).unwrap();
        assert_eq!(addresses.never_selected, 2);
        let kinds: Vec<_> = addresses.into_list().iter().map(|address| address.kind).collect();
        assert_eq!(kinds, [AddressKind::P2wpkh, AddressKind::P2wpkh, AddressKind::Other, AddressKind::Other]);
    }

    #[test]
    fn bad_descriptors_are_told_apart() {
        let error = |text: &str, network| Script::parse(text, network).unwrap_err();
        let xprv = "xprv9s21ZrQH143K3GJpoapnV8SFfukcVBSfeCficPSGfubmSFDxo1kuHnLisriDvSnRRuL2Qrg5ggqHKNVpxR86QEC8w35uxmGoggxtQTPvfUu";
        assert_eq!(error(&format!("wpkh({xprv}/0/*)"), Network::Bitcoin), BadDescriptor::Private);
        assert_eq!(error(&format!("wpkh([73c5da0a/84h]{xprv}/0/*)"), Network::Regtest), BadDescriptor::Private);
        let wif = "wpkh(KwDiBf89QgGbjEhKnhXJuH7LrciVrZi3qYjgd9M7rFU73sVHnoWn)";
        assert_eq!(error(wif, Network::Bitcoin), BadDescriptor::Private);
        assert_eq!(error(&format!("wpkh({ZPUB}/0/*)"), Network::Signet), BadDescriptor::OtherNetwork(Network::Signet));
        for text in [
            "",
            "wpkh(",
            "wpkh(x)",
            "nonsense",
            "wpkh()",
            &format!("wpkh({ZPUB}/0/*)#qqqqqqqq"),
            &format!("wpkh({ZPUB}/<0;1>/*)"),
        ] {
            assert!(matches!(error(text, Network::Bitcoin), BadDescriptor::Malformed(_)), "{text}");
        }
        for text in [
            format!("combo({ZPUB}/0/*)"),
            format!("wpkh({ZPUB}/0/*h)"),
            format!("wpkh({ZPUB}/0h/*)"),
            "addr(bc1x)".to_owned(),
        ] {
            assert!(matches!(error(&text, Network::Bitcoin), BadDescriptor::NotDerivable(_)), "{text}");
        }
    }
}
