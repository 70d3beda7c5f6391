//! The dependency table of ARCHITECTURE.md, as a test. A crate that uses what the table does not allow would put a key
//! beside a database, or SQL beside an HTTP handler. Within `bursar` no module may use one that uses it, and the build
//! for production contains nothing of the lab.

#[path = "architecture/modules.rs"]
mod modules;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// Crate, and what of ours it may use.
const TABLE: [(&str, &[&str]); 13] = [
    ("domain", &[]),
    ("tx", &["domain"]),
    ("store", &["domain"]),
    ("spot", &["domain"]),
    ("chain", &["domain", "tx"]),
    ("signer", &["domain", "tx"]),
    ("transfer", &["domain", "store", "spot"]),
    ("custody", &["domain", "tx", "store", "chain", "signer"]),
    ("server", &["domain", "tx", "store", "spot", "chain", "signer", "transfer", "custody"]),
    ("terminal", &["domain", "store", "spot"]),
    ("devnet", &["domain", "tx"]),
    (
        "lab",
        &["domain", "tx", "store", "spot", "chain", "signer", "transfer", "custody", "server", "terminal", "devnet"],
    ),
    (
        "bursar",
        &[
            "domain", "tx", "store", "spot", "chain", "signer", "transfer", "custody", "server", "terminal", "devnet",
            "lab",
        ],
    ),
];

/// Crates from outside that only some of ours may use.
const RESERVED: [(&str, &[&str]); 1] = [("sqlx", &["store"])];

/// Each of our crates with what it depends on, tests and build scripts left out.
fn workspace() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--locked", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let name = |value: &Value| value["name"].as_str().expect("a name").to_owned();
    let packages = metadata["packages"].as_array().expect("packages");
    packages
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().expect("dependencies").iter();
            (name(package), dependencies.filter(|one| one["kind"].is_null()).map(name).collect())
        })
        .collect()
}

#[test]
fn crates_use_only_what_the_table_allows() {
    let workspace = workspace();
    assert!(workspace.len() >= 12);
    for (name, uses) in &workspace {
        let allowed = TABLE.iter().find(|(known, _)| known == name).map(|(_, allowed)| *allowed);
        let allowed = allowed.unwrap_or_else(|| panic!("{name} is not in the table of ARCHITECTURE.md"));
        for used in uses.iter().filter(|used| workspace.contains_key(*used)) {
            assert!(allowed.contains(&used.as_str()), "{name} must not use {used}");
        }
        for (reserved, users) in RESERVED {
            assert!(!uses.contains(reserved) || users.contains(&name.as_str()), "{name} must not use {reserved}");
        }
    }
}

#[test]
fn the_table_stands_in_the_architecture_document() {
    let document =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../ARCHITECTURE.md")).expect("there");
    for (name, allowed) in TABLE {
        let uses = if allowed.is_empty() { "nothing of ours".to_owned() } else { allowed.join(", ") };
        let row = document.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        let row = row.unwrap_or_else(|| panic!("ARCHITECTURE.md has no row for {name}"));
        assert!(row.ends_with(&format!("| {uses} |")), "ARCHITECTURE.md, row {name}: should end with | {uses} |");
    }
}

/// What a build for production (`--no-default-features`) must not contain.
const NOT_IN_PRODUCTION: [&str; 4] = ["lab", "devnet", "revm", "bitcoinconsensus"];

/// What reads and writes transactions must not contain: the signer links it beside keys.
const NOT_BESIDE_KEYS: [&str; 8] = ["tokio", "hyper", "futures-util", "rustls", "sqlx", "revm", "devnet", "chain"];

/// The names of all crates that one of ours is linked from.
fn linked(name: &str, options: &[&str]) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "-p", name, "-e", "normal", "--offline", "--locked", "--prefix", "none", "--format", "{p}"])
        .args(options)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().filter_map(|line| line.split(' ').next()).map(ToOwned::to_owned).collect()
}

#[test]
fn production_is_built_without_the_lab() {
    let (production, everything) = (linked("bursar", &["--no-default-features"]), linked("bursar", &[]));
    assert!(production.contains("store"), "{production:?}");
    for name in NOT_IN_PRODUCTION {
        assert!(!production.contains(name), "{name} is in the build for production");
        assert!(everything.contains(name), "{name} is in no build: correct the list");
    }
}

/// Features of our crates that only tests and the lab turn on: signing without a policy, a disk that lies, a clock that is wrong, a method that
/// drops indexes.
const FEATURES_NOT_IN_PRODUCTION: [(&str, &str); 5] =
    [("signer", "testing"), ("spot", "sim"), ("store", "lab"), ("store", "testing"), ("terminal", "lab")];

#[test]
fn production_is_built_without_what_only_tests_may_do() {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "-p", "bursar", "--no-default-features", "-e", "normal", "--offline", "--locked"])
        .args(["--prefix", "none", "--format", "{p} features {f}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    for (name, feature) in FEATURES_NOT_IN_PRODUCTION {
        let mut found = text.lines().filter(|line| line.starts_with(&format!("{name} v"))).peekable();
        assert!(found.peek().is_some(), "{name} is not in the build");
        for line in found {
            let features = line.split(" features ").nth(1).unwrap_or_default();
            assert!(!features.split([',', ' ']).any(|one| one == feature), "{line}");
        }
    }
}

#[test]
fn what_the_signer_will_link_has_no_network() {
    let (tx, everything) = (linked("tx", &[]), linked("bursar", &[]));
    assert!(tx.contains("secp256k1"), "{tx:?}");
    for name in NOT_BESIDE_KEYS {
        assert!(!tx.contains(name), "{name} is in tx");
        assert!(everything.contains(name), "{name} is in no build: correct the list");
    }
}

/// A stolen credential of a database or a node must not lead to a key, nor a devnet's key into the signer.
#[test]
fn the_signer_links_no_database_no_node_and_no_devnet() {
    let (signer, everything) = (linked("signer", &[]), linked("bursar", &[]));
    assert!(signer.contains("bip39"), "{signer:?}");
    for name in ["sqlx", "store", "chain", "devnet", "revm", "custody", "server", "reqwest"] {
        assert!(!signer.contains(name), "{name} is in the signer");
        assert!(name == "reqwest" || everything.contains(name), "{name} is in no build: correct the list");
    }
}

/// Words that once named several types, and now name one or none. Another type takes another noun, or its crate's name
/// in front (`SpotRefusal`).
const ONE_TYPE: [&str; 9] = ["Outcome", "Refusal", "Sent", "Asked", "Node", "Wallet", "Draft", "Wish", "Desk"];

#[test]
fn a_word_names_one_type() {
    let mut named: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (file, text) in modules::every_source() {
        for line in text.lines() {
            let words: Vec<&str> = line.split(|letter: char| !letter.is_alphanumeric() && letter != '_').collect();
            for pair in words.windows(2) {
                if ["struct", "enum", "trait", "type"].contains(&pair[0]) && ONE_TYPE.contains(&pair[1]) {
                    named.entry(pair[1].to_owned()).or_default().insert(file.display().to_string());
                }
            }
        }
    }
    assert!(named.contains_key("Outcome"), "the sources were not read");
    for (word, files) in named {
        assert!(files.len() == 1, "{word} names a type in each of {files:?}");
    }
}
