//! What the tests share: groups, payloads, and the secrets that must not be seen.

use domain::ChainName;
use signer::GroupId;
use signer::keys::{Family, GroupSecret, Keyring, Mnemonic, Purpose};

pub const ABANDON: &str =
    "abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon about";
pub const JUNK: &str = "test test test test test test test test test test test junk";

pub fn id(text: &str) -> GroupId {
    text.parse().expect("a group's name")
}

pub fn secret(name: &str, purpose: Purpose, chain: &str, account: u32, words: &str) -> GroupSecret {
    let family = Family::parse(chain).expect("a chain");
    let mnemonic = Mnemonic::parse(words).expect("a mnemonic");
    GroupSecret { id: id(name), purpose, family, account, mnemonic }
}

pub fn keyring(secrets: Vec<GroupSecret>) -> Keyring {
    Keyring::of(secrets).expect("a keyring")
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn unhex(text: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("two digits");
    (0..text.len()).step_by(2).map(digit).collect()
}

/// The name does not matter to a signature.
pub fn some_chain() -> ChainName {
    "some".parse().expect("a name")
}
