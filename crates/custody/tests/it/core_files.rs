//! The export of a real wallet (`core-export` beside this folder is what `core_node.rs` once made), and what is refused of
//! one in which something is wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::engines;
use custody::bitcoin::import::{Export, import, read_core};
use domain::random::Random;
use serde_json::{Value, json};
use store::testing::{NOW, on};
use tempfile::TempDir;

const FILES: [&str; 8] = [
    "chain.json",
    "descriptors.json",
    "history.json",
    "unspent.json",
    "transactions.jsonl",
    "locked.json",
    "mempool.json",
    "balances.json",
];

fn original() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/core-export")
}

/// A copy whose files can be spoilt.
struct Copied(TempDir);

impl Copied {
    fn new() -> Self {
        let copied = Self(tempfile::tempdir().unwrap());
        for file in FILES {
            std::fs::copy(original().join(file), copied.path(file)).unwrap();
        }
        copied
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    fn text(&self, file: &str) -> String {
        std::fs::read_to_string(self.path(file)).unwrap()
    }

    fn write(&self, file: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.path(file), bytes).unwrap();
    }

    fn edit(&self, file: &str, change: impl FnOnce(&mut Value)) {
        // One value on a line becomes a list, which is read as well.
        let text = self.text(file);
        let mut values: Vec<Value> =
            serde_json::Deserializer::from_str(&text).into_iter().map(Result::unwrap).collect();
        let lines = file.ends_with('l') && !text.starts_with('[');
        let mut value = if lines { Value::Array(values) } else { values.remove(0) };
        change(&mut value);
        self.write(file, value.to_string());
    }

    fn read(&self) -> Result<Export, String> {
        read_core(self.0.path()).map_err(|error| {
            assert_eq!(error.code(), "UTXO_IMPORT_BAD_FILE");
            error.to_string()
        })
    }
}

#[test]
fn an_export_is_imported_on_both_engines() {
    let export = read_core(&original()).unwrap();
    for engine in engines() {
        on(engine, async |db| {
            let report = import(db, "w", &export, NOW, &mut |_| {}).await.unwrap();
            assert_eq!(report.transactions, export.transactions.len());
            assert!(report.balance.immature > 0 && report.balance.unconfirmed > 0);
            assert_eq!(db.check_utxo().await.unwrap(), []);
        });
    }
}

#[test]
fn one_file_says_the_same_as_the_folder() {
    let copied = Copied::new();
    let mut whole: BTreeMap<&str, Value> = BTreeMap::new();
    for file in FILES {
        copied.edit(file, |value| drop(whole.insert(file.split_once('.').unwrap().0, value.clone())));
    }
    let file = copied.path("whole");
    std::fs::write(&file, serde_json::to_string(&whole).unwrap()).unwrap();
    let export = read_core(&original()).unwrap();
    assert_eq!(read_core(&file).unwrap(), export);
    assert_eq!(copied.read().unwrap(), export);

    // As `listtransactions` prints them, and with the raw answers of `gettransaction`.
    copied.edit("history.json", |value| *value = value["transactions"].take());
    copied.edit("transactions.jsonl", |value| value[0]["details"] = json!([{"amount": -0.1}]));
    assert_eq!(copied.read().unwrap(), export);

    whole.remove("unspent");
    std::fs::write(&file, serde_json::to_string(&whole).unwrap()).unwrap();
    assert!(read_core(&file).unwrap_err().to_string().contains("missing field `unspent`"));
    whole.insert("unspent", json!([{"txid": 7}]));
    std::fs::write(&file, serde_json::to_string(&whole).unwrap()).unwrap();
    let error = read_core(&file).unwrap_err().to_string();
    assert!(error.contains("unspent: invalid type: integer `7`, expected a string at line 1 column 10"), "{error}");
}

/// The first entry of a kind.
fn first<'a>(value: &'a mut Value, category: &str) -> &'a mut Value {
    let list = value["transactions"].as_array_mut().unwrap();
    list.iter_mut().find(|entry| entry["category"] == category && entry["confirmations"].as_i64() > Some(0)).unwrap()
}

#[test]
fn what_is_wrong_is_refused_with_the_reason() {
    type Change = fn(&mut Value);
    let txid = "\"1111111111111111111111111111111111111111111111111111111111111111\"";
    let unknown: Value = serde_json::from_str(txid).unwrap();
    assert_eq!(unknown.as_str().unwrap().len(), 64);
    let cases: &[(&str, Change, &str)] = &[
        ("chain.json", |value| value["chain"] = json!("moon"), "no chain is called moon"),
        ("chain.json", |value| value["chain"] = json!("main"), "its key is not of the network bitcoin"),
        ("chain.json", |value| value["blocks"] = json!(-1), "invalid value: integer `-1`"),
        ("chain.json", |value| value["blocks"] = json!(4_294_967_296_u64), "invalid value"),
        ("chain.json", |value| value["blocks"] = json!(1), "a block came in between"),
        ("chain.json", |value| value["bestblockhash"] = json!("00"), "a hash is 64 hexadecimal digits: 00"),
        (
            "descriptors.json",
            |value| value["descriptors"][0]["desc"] = json!("pkh(what)"),
            "descriptor pkh(what): not a descriptor",
        ),
        ("descriptors.json", |value| value["descriptors"][0]["range"] = json!([0, -1]), "invalid value"),
        (
            "descriptors.json",
            |value| value["descriptors"][0]["range"] = json!([9, 8]),
            "its range ends before it begins",
        ),
        (
            "descriptors.json",
            |value| value["descriptors"][0]["range"] = json!([0, 4_294_967_295_u32]),
            "more than 5000000 addresses",
        ),
        (
            "descriptors.json",
            |value| value["descriptors"][0]["range"] = json!([2_147_483_647, 2_147_483_648_u32]),
            "no script at index 2147483648",
        ),
        ("descriptors.json", |value| value["descriptors"][0]["range"] = json!(null), "no range"),
        ("descriptors.json", |value| value["descriptors"] = json!([]), "the wallet has no descriptors"),
        ("descriptors.json", |value| *value = json!([[]]), "a list is there instead of an object"),
        (
            "descriptors.json",
            |value| {
                value["descriptors"][0]["desc"] = json!("wpkh(cMahea7zqjxrtgAbB7LSGbcQUr1uX1ojuat9jZodMN87JcbXMTcA)")
            },
            "a private key",
        ),
        (
            "history.json",
            |value| first(value, "receive")["confirmations"] = json!("many"),
            "invalid type: string \"many\"",
        ),
        ("history.json", |value| first(value, "receive")["blockheight"] = json!(3), "a block came in between"),
        ("history.json", |value| first(value, "receive")["blockhash"] = json!(null), "no block height, hash and time"),
        ("history.json", |value| first(value, "receive")["blocktime"] = json!(1), "there is another block at height"),
        ("history.json", |value| first(value, "receive")["abandoned"] = json!(1), "expected a boolean"),
        (
            "history.json",
            |value| {
                let mut again = first(value, "send").clone();
                again["confirmations"] = json!(0);
                value["transactions"].as_array_mut().unwrap().push(again);
            },
            "is there twice in different states",
        ),
        (
            "history.json",
            |value| first(value, "receive")["address"] = json!("bc1qcr8te4kr609gcawutmrza0j4xv80jy8z306fyu"),
            "is not an address of the network regtest",
        ),
        ("history.json", |value| first(value, "send")["address"] = json!("nowhere"), "nowhere is not an address"),
        (
            "history.json",
            |value| {
                let mut other = first(value, "send").clone();
                other["txid"] = json!("11".repeat(32));
                value["transactions"].as_array_mut().unwrap().push(other);
            },
            "the bytes of 1111111111111111111111111111111111111111111111111111111111111111 are missing",
        ),
        ("unspent.json", |value| value[0]["amount"] = json!(-0.1), "not an amount of bitcoin: -0.1"),
        ("unspent.json", |value| value[0]["amount"] = json!(21_000_001), "not an amount of bitcoin: 21000001"),
        ("unspent.json", |value| value[0]["amount"] = json!("0.1"), "not an amount of bitcoin: \"0.1\""),
        ("unspent.json", |value| value[0]["amount"] = json!(0.12345678), "is not the output that its transaction has"),
        ("unspent.json", |value| value[0]["vout"] = json!(99), "the transaction has no output"),
        ("unspent.json", |value| value[0]["vout"] = json!(-1), "invalid value"),
        (
            "unspent.json",
            |value| value[0]["txid"] = json!("11".repeat(32)),
            "is of a transaction that the history lacks",
        ),
        ("unspent.json", |value| value[0]["scriptPubKey"] = json!("0014"), "is not that of its address"),
        ("unspent.json", |value| value[0]["scriptPubKey"] = json!("001"), "not hexadecimal"),
        (
            "unspent.json",
            |value| {
                let again = value[0].clone();
                value.as_array_mut().unwrap().push(again);
            },
            "is there twice",
        ),
        ("unspent.json", |value| drop(value.as_array_mut().unwrap().pop()), "they are not of one moment"),
        ("transactions.jsonl", |value| drop(value.as_array_mut().unwrap().pop()), "are missing"),
        ("transactions.jsonl", |value| value[0]["hex"] = value[1]["hex"].clone(), "the bytes that stand for"),
        ("transactions.jsonl", |value| value[0]["hex"] = json!("02000000"), "are no transaction"),
        ("transactions.jsonl", |value| value[0]["hex"] = json!("xy"), "not hexadecimal"),
        (
            "transactions.jsonl",
            |value| value[0]["txid"] = value[1]["txid"].clone(),
            "is there twice with different bytes",
        ),
        ("locked.json", |value| value[0]["txid"] = json!("11".repeat(32)), "the history lacks"),
        ("balances.json", |value| value["mine"]["trusted"] = json!(1.5), "they are not of one moment"),
        ("balances.json", |value| value["mine"]["trusted"] = json!(-1.5), "not an amount"),
        ("mempool.json", |value| value[0] = json!("x"), "a hash is 64 hexadecimal digits"),
    ];
    for (file, change, reason) in cases {
        let copied = Copied::new();
        copied.edit(file, change);
        let error = copied.read().expect_err(reason);
        assert!(error.contains(reason), "{reason}: {error}");
    }
}

#[test]
fn core_says_itself_who_lost_when_no_mempool_is_given() {
    let (copied, whole) = (Copied::new(), read_core(&original()).unwrap());
    std::fs::remove_file(copied.path("mempool.json")).unwrap();
    let without = copied.read().unwrap();
    assert_eq!((without.transactions, without.left_out), (whole.transactions, whole.left_out));
}

#[test]
fn a_coinbase_without_a_block_is_left_out() {
    let (copied, whole) = (Copied::new(), read_core(&original()).unwrap());
    copied.edit("history.json", |value| {
        let list = value["transactions"].as_array_mut().unwrap();
        list.iter_mut().find(|entry| entry["category"] == "orphan").unwrap()["abandoned"] = json!(false);
    });
    let export = copied.read().unwrap();
    assert_eq!(export.transactions, whole.transactions);
    assert!(export.left_out.iter().any(|(_, reason)| *reason == "a coinbase whose block was orphaned"));
}

#[test]
fn an_output_that_is_not_ours_may_be_locked() {
    let copied = Copied::new();
    copied.edit("locked.json", |value| {
        // An output that we paid to others. One that we paid to ourselves has a second entry, as received.
        let history: Value = serde_json::from_str(&copied.text("history.json")).unwrap();
        let entries = history["transactions"].as_array().unwrap();
        let same = |one: &Value, other: &Value| one["txid"] == other["txid"] && one["vout"] == other["vout"];
        let foreign = |one: &&Value| entries.iter().filter(|other| same(one, other)).count() == 1;
        let mut paid =
            entries.iter().filter(|one| one["category"] == "send" && one["confirmations"].as_i64() > Some(0));
        let paid = paid.find(foreign).unwrap();
        value.as_array_mut().unwrap().push(json!({"txid": paid["txid"], "vout": paid["vout"]}));
    });
    assert_eq!(copied.read().unwrap(), read_core(&original()).unwrap());
}

#[test]
fn what_cannot_be_derived_is_watched_where_it_was_paid() {
    let copied = Copied::new();
    copied.edit("descriptors.json", |value| {
        for described in value["descriptors"].as_array_mut().unwrap() {
            let text = described["desc"].as_str().unwrap().to_owned();
            if text.starts_with("tr(") {
                described["desc"] = json!(text.split_once('#').unwrap().0.replace("/*)", "/*h)"));
            }
        }
    });
    let (export, whole) = (copied.read().unwrap(), read_core(&original()).unwrap());
    assert_eq!(export.unspent, whole.unspent);
    assert!(export.addresses.len() < whole.addresses.len());
    assert!(export.notes.iter().any(|note| note.contains("only addresses that were paid are watched")));
    // Spent ones too.
    assert_eq!(outputs(&export), outputs(&whole));
}

fn outputs(export: &Export) -> usize {
    let scripts: BTreeSet<&[u8]> = export.addresses.iter().map(|address| address.script.as_slice()).collect();
    let outputs = export.transactions.iter().flat_map(|given| &given.tx.outputs);
    outputs.filter(|output| scripts.contains(output.script.as_slice())).count()
}

#[test]
fn the_same_bytes_twice_are_one_transaction() {
    let copied = Copied::new();
    copied.edit("transactions.jsonl", |value| {
        let again = value[0].clone();
        value.as_array_mut().unwrap().push(again);
    });
    assert_eq!(copied.read().unwrap(), read_core(&original()).unwrap());
}

#[test]
fn a_private_key_is_refused_and_not_repeated() {
    let copied = Copied::new();
    let key = "tprv8ZgxMBicQKsPd7Uf69XL1XwhmjHopUGep8GuEiJDZmbQz6o58LninorQAfcKZWARbtRtfnLcJ5MQ2AtHcQJCCRUcMRvmDUjyEmNUWwx8UbK";
    copied.edit("descriptors.json", |value| value["descriptors"][0]["desc"] = json!(format!("wpkh({key}/0/*)")));
    let error = copied.read().unwrap_err();
    assert!(error.contains("private key") && !error.contains("tprv"), "{error}");
}

#[test]
fn files_that_are_cut_missing_or_something_else_are_refused() {
    for file in FILES {
        let copied = Copied::new();
        let text = copied.text(file);
        for junk in ["", "null", "{}", "[]", "[[]]", "[{}]", "\"x\"", "1e999", "{\"chain\":", "\u{0}", "[1,2", "tru"] {
            copied.write(file, junk);
            // An empty list can be right where the others do not say more.
            if let Err(error) = copied.read() {
                assert!(error.contains(copied.0.path().to_str().unwrap()), "{file} {junk}: {error}");
            } else {
                assert!(["[]", ""].contains(&junk), "{file} is not refused when it is {junk}");
            }
        }
        copied.write(file, &text[..text.len() / 2]);
        let error = copied.read().unwrap_err();
        assert!(error.contains(file) && error.contains("line"), "{file}: {error}");
        copied.write(file, [0xff, 0xfe, 0x00]);
        assert!(copied.read().unwrap_err().contains("cannot be read"), "{file}");
        std::fs::remove_file(copied.path(file)).unwrap();
        let needed = FILES.iter().position(|one| *one == file) < Some(5);
        assert!(!needed || copied.read().unwrap_err().contains("cannot be read"), "{file}");
    }
    assert!(read_core(Path::new("/nowhere")).is_err());
}

#[test]
fn no_damage_makes_it_panic() {
    let mut random = Random::from_seed(7);
    let copied = Copied::new();
    let below =
        |random: &mut Random, bound: usize| usize::try_from(random.below(u64::try_from(bound).unwrap())).unwrap();
    for _ in 0..400 {
        let file = FILES[below(&mut random, FILES.len())];
        let bytes = std::fs::read(original().join(file)).unwrap();
        let mut spoilt = bytes.clone();
        for _ in 0..=below(&mut random, 3) {
            let at = below(&mut random, spoilt.len());
            match below(&mut random, 3) {
                0 => spoilt[at] = u8::try_from(32 + random.below(95)).unwrap(),
                1 => drop(spoilt.remove(at)),
                _ => spoilt.truncate(at.max(1)),
            }
        }
        copied.write(file, &spoilt);
        drop(copied.read());
        copied.write(file, &bytes);
    }
}
