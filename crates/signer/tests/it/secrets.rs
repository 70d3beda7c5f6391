//! No secret is in what can be printed.

use signer::keys::{GroupSecret, Keyring, Mnemonic, Purpose, extended_keys};

use crate::made::{JUNK, keyring, secret};

/// Whatever could give the key away: words, entropy, the private keys of account and address, as digits and as the lists of
/// numbers that a derived `Debug` prints.
fn needles() -> Vec<String> {
    let words: Vec<String> = JUNK.split(' ').filter(|word| *word == "junk").map(str::to_owned).collect();
    let first_key = "ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80";
    let bytes: Vec<String> = (0..16)
        .step_by(2)
        .map(|at| u8::from_str_radix(&first_key[at..at + 2], 16).expect("digits").to_string())
        .collect();
    [words, vec![first_key.to_owned(), bytes.join(", "), "xprv".to_owned(), "tprv".to_owned()]].concat()
}

#[test]
fn debug_shows_no_secret() {
    let secret: GroupSecret = secret("hot", Purpose::Hot, "evm", 0, JUNK);
    let shown = format!("{secret:?} {secret:#?} {:?}", Mnemonic::parse(JUNK).expect("words"));
    let keyring: Keyring = keyring(vec![secret]);
    let shown = format!("{shown} {keyring:?} {keyring:#?}");
    assert!(shown.contains("12 words") && shown.contains("AccountSecret"), "{shown}");
    for needle in needles() {
        assert!(!shown.contains(&needle), "{needle} is in {shown}");
    }
    assert!(extended_keys(&[1; 32], &[]).expect("keys").0.starts_with("xprv"), "only tests can ask for it");
}
