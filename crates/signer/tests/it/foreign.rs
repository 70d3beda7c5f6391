//! A thousand random cases that ethers, tronweb and bitcoinjs-lib have made by themselves: the same account keys, the same
//! addresses, and the same signed bytes to the last one, since a nonce follows from key and digest in all of them.

use std::process::Command;

use domain::UserId;
use serde_json::Value;
use signer::keys::{AddressPath, Family, Purpose};
use signer::{Approved, SignerChain};

use crate::made::{hex, id, keyring, secret, some_chain, unhex};

fn text<'a>(case: &'a Value, field: &str) -> &'a str {
    case[field].as_str().unwrap_or_else(|| panic!("{field} of {case}"))
}

fn cases(program: &mut Command) -> Vec<Value> {
    let output = program.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).expect("text");
    lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn script(name: &str) -> String {
    format!("{}/tests/foreign/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn paths(case: &Value) -> Vec<AddressPath> {
    let users = case["users"].as_array().expect("users").iter();
    let user = |user: &Value| UserId::new(user.as_str().and_then(|text| text.parse().ok()).expect("a number"));
    users.map(|one| AddressPath::of_user(user(one).expect("positive")).expect("a path")).collect()
}

fn chain(case: &Value, family: Family) -> SignerChain {
    match family {
        Family::Evm => SignerChain::Evm { chain_id: case["chain_id"].as_u64().expect("a chain id") },
        Family::Tron => SignerChain::Tron,
        Family::Bitcoin(network) => SignerChain::Bitcoin(network),
    }
}

fn check(case: &Value) {
    let (name, account) = (text(case, "chain"), case["account"].as_u64().expect("an account"));
    let account = u32::try_from(account).expect("31 bits");
    let keyring = keyring(vec![secret("one", Purpose::Deposit, name, account, text(case, "mnemonic"))]);
    let group = id("one");
    let known = keyring.group(&group).expect("there");
    assert_eq!(known.key.to_string(), text(case, "xpub"), "{case}");
    let paths = paths(case);
    for (path, address) in paths.iter().zip(case["addresses"].as_array().expect("addresses")) {
        assert_eq!(Some(keyring.address(&group, *path).expect("one").to_string().as_str()), address.as_str(), "{case}");
    }
    let indexes = paths.iter().map(|path| path.number()).collect();
    let payload = unhex(text(case, "payload"));
    let approved = Approved::for_tests(some_chain(), chain(case, known.family()), group, indexes, payload);
    let signed = keyring.sign(&approved).unwrap_or_else(|error| panic!("{error}: {case}"));
    assert_eq!(hex(&signed.bytes), text(case, "signed"), "{case}");
    assert_eq!(signed.hash.to_string(), text(case, "hash"), "{case}");
}

#[test]
fn foreign_libraries_derive_the_same_addresses_and_sign_the_same_bytes() {
    let modules = std::env::var("BURSAR_TEST_NODE_MODULES").expect("BURSAR_TEST_NODE_MODULES is set by ./test");
    let mut node = Command::new("node");
    node.arg(script("keys.mjs")).args(["1000", "1"]).env("BURSAR_TEST_NODE_MODULES", modules);
    let cases = cases(&mut node);
    assert_eq!(cases.len(), 1_000);
    let mut chains = std::collections::BTreeMap::<&str, u32>::new();
    for case in &cases {
        *chains.entry(text(case, "chain")).or_default() += 1;
    }
    std::thread::scope(|scope| {
        for part in cases.chunks(250) {
            scope.spawn(|| part.iter().for_each(check));
        }
    });
    assert_eq!(chains.len(), 5, "{chains:?}");
    assert!(chains.values().all(|count| *count > 100), "{chains:?}");
}

/// Trezor's own BIP-39, another BIP-32, and tronpy, which signs a given id.
#[test]
fn foreign_python_derives_the_same_keys_and_signs_the_same() {
    let python = std::env::var("BURSAR_TEST_PYTHON").expect("BURSAR_TEST_PYTHON is set by ./test");
    let cases = cases(Command::new(python).arg(script("keys.py")).args(["200", "2"]));
    assert_eq!(cases.len(), 200);
    for case in &cases {
        let account = u32::try_from(case["account"].as_u64().expect("an account")).expect("31 bits");
        let keyring = keyring(vec![secret("one", Purpose::Gas, "tron", account, text(case, "mnemonic"))]);
        let group = id("one");
        assert_eq!(keyring.group(&group).expect("there").key.to_string(), text(case, "xpub"), "{case}");
        let paths = paths(case);
        assert_eq!(keyring.address(&group, paths[0]).expect("one").to_string(), text(case, "address"), "{case}");
        let indexes = paths.iter().map(|path| path.number()).collect();
        let payload = unhex(text(case, "payload"));
        let approved = Approved::for_tests(some_chain(), SignerChain::Tron, group, indexes, payload);
        let signed = keyring.sign(&approved).unwrap_or_else(|error| panic!("{error}: {case}"));
        assert_eq!(signed.hash.to_string(), text(case, "hash"), "{case}");
        // tronpy writes the last byte as 0 or 1, tronweb and we as 27 or 28.
        let signature = &signed.bytes[signed.bytes.len() - 65..];
        assert_eq!(hex(&signature[..64]), text(case, "signature")[..128], "{case}");
        assert_eq!(u64::from(signature[64] - 27), case["odd"].as_u64().expect("0 or 1"), "{case}");
    }
}
