//! Files of bdk_wallet: one that it has written itself, and ones with something wrong in them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::engines;
use custody::bitcoin::import::{Export, import, read_bdk};
use serde_json::Value;
use store::testing::{NOW, on, sqlite_by_hand};
use store::utxo::{ListFilter, OutPoint};
use tempfile::TempDir;

/// The descriptors of BIP 84's test key, and a file of the newest schema without any transaction.
const TABLES: &str = "
    CREATE TABLE bdk_schemas (name TEXT PRIMARY KEY NOT NULL, version INTEGER NOT NULL) STRICT;
    INSERT INTO bdk_schemas VALUES ('bdk_wallet', 1), ('bdk_localchain', 0), ('bdk_txgraph', 3), ('bdk_keychaintxout', 1);
    CREATE TABLE bdk_wallet (id INTEGER PRIMARY KEY NOT NULL CHECK (id = 0), descriptor TEXT, change_descriptor TEXT, network TEXT) STRICT;
    INSERT INTO bdk_wallet VALUES (0, 'wpkh([73c5da0a/84h/0h/0h]xpub6CatWdiZiodmUeTDp8LT5or8nmbKNcuyvz7WyksVFkKB4RHwCD3XyuvPEbvqAQY3rAPshWcMLoP2fMFMKHPJ4ZeZXYVUhLv1VMrjPC7PW6V/0/*)', NULL, 'bitcoin');
    CREATE TABLE bdk_descriptor_last_revealed (descriptor_id TEXT PRIMARY KEY NOT NULL, last_revealed INTEGER NOT NULL) STRICT;
    CREATE TABLE bdk_blocks (block_height INTEGER PRIMARY KEY NOT NULL, block_hash TEXT NOT NULL) STRICT;
    INSERT INTO bdk_blocks VALUES (0, '000000000019d6689c085ae165831e934ff763ae46a2a6c172b3f1b60a8ce26f');
    CREATE TABLE bdk_txs (txid TEXT PRIMARY KEY NOT NULL, raw_tx BLOB, last_seen INTEGER, last_evicted INTEGER, first_seen INTEGER) STRICT;
    CREATE TABLE bdk_anchors (txid TEXT NOT NULL, block_height INTEGER NOT NULL, block_hash TEXT NOT NULL, confirmation_time INTEGER NOT NULL) STRICT;";

/// The first coinbase of all; its output is not of the wallet.
const GENESIS: &str = "X'01000000010000000000000000000000000000000000000000000000000000000000000000ffffffff4d04ffff001d0104455468652054696d65732030332f4a616e2f32303039204368616e63656c6c6f72206f6e206272696e6b206f66207365636f6e64206261696c6f757420666f722062616e6b73ffffffff0100f2052a01000000434104678afdb0fe5548271967f1a67130b7105cd6a828e03909a67962e0ea1f61deb649f6bc3f4cef38c4f35504e51ec112de5c384df7ba0b8d578a4c702b6bf11d5fac00000000'";
const GENESIS_HASH: &str = "4a5e1e4baab89f3a32518a88c31bc87f618f76673e2cc77ab2127b7afdeda33b";

fn file_of(folder: &TempDir, sql: &str) -> PathBuf {
    let file = folder.path().join("wallet.sqlite");
    let url = format!("sqlite://{}?mode=rwc", file.display());
    sqlite_by_hand(&url, String::leak(sql.to_owned()));
    file
}

fn read(file: &Path) -> Result<Export, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let read = runtime.block_on(read_bdk(file));
    read.map_err(|error| {
        assert_eq!(error.code(), "UTXO_IMPORT_BAD_FILE");
        assert!(error.to_string().starts_with(&file.display().to_string()), "{error}");
        error.to_string()
    })
}

#[test]
fn bad_files_are_refused_with_the_reason() {
    let hash = "0".repeat(64);
    let good = format!("INSERT INTO bdk_txs VALUES ('{GENESIS_HASH}', {GENESIS}, NULL, NULL, NULL);");
    let cases = [
        ("", ""),
        (good.as_str(), ""),
        ("DROP TABLE bdk_schemas", "not a wallet of bdk"),
        (
            "UPDATE bdk_schemas SET version = 4 WHERE name = 'bdk_txgraph'",
            "its part bdk_txgraph has version 4, and the newest known is 3",
        ),
        ("UPDATE bdk_schemas SET version = -1 WHERE name = 'bdk_wallet'", "its part bdk_wallet has version -1"),
        ("DELETE FROM bdk_schemas WHERE name = 'bdk_localchain'", "it has no bdk_localchain"),
        ("DROP TABLE bdk_anchors", "no such table: bdk_anchors"),
        ("DELETE FROM bdk_wallet", "it has no descriptor and network"),
        ("UPDATE bdk_wallet SET network = NULL", "it has no descriptor and network"),
        ("UPDATE bdk_wallet SET network = 'mainnet'", "no network is called mainnet"),
        ("UPDATE bdk_wallet SET network = 'signet'", "its key is not of the network signet"),
        ("UPDATE bdk_wallet SET descriptor = 'wpkh(what)'", "not a descriptor"),
        ("UPDATE bdk_wallet SET descriptor = replace(descriptor, '/*', '/*h')", "hardened steps"),
        ("INSERT INTO bdk_blocks VALUES (-7, 'x')", "bdk_blocks, row 1: -7 is out of range"),
        ("INSERT INTO bdk_blocks VALUES (99999999999, 'x')", "bdk_blocks, row 2: 99999999999 is out of range"),
        ("INSERT INTO bdk_blocks VALUES (7, 'x')", "bdk_blocks, row 2: a hash is 64"),
        ("INSERT INTO bdk_txs VALUES ('xyz', X'00', 1, NULL, NULL)", "bdk_txs, row 1: a hash is 64"),
        (&format!("INSERT INTO bdk_txs VALUES ('{hash}', {GENESIS}, 1, NULL, NULL)"), "are those of 4a5e1e4b"),
        (&format!("INSERT INTO bdk_txs VALUES ('{hash}', X'0100', 1, NULL, NULL)"), "are no transaction"),
        (&format!("INSERT INTO bdk_txs VALUES ('{hash}', NULL, -1, NULL, NULL)"), "bdk_txs, row 1: -1 is out of range"),
        (
            &format!(
                "{good} INSERT INTO bdk_anchors VALUES ('{GENESIS_HASH}', 0, '000000000019d6689c085ae165831e934ff763ae46a2a6c172b3f1b60a8ce26f', 99999999999)"
            ),
            "no possible time",
        ),
    ];
    for (sql, reason) in cases {
        let folder = tempfile::tempdir().unwrap();
        let file = file_of(&folder, &format!("{TABLES} {sql}"));
        match read(&file) {
            Ok(export) => {
                assert!(reason.is_empty(), "{sql}: not refused");
                assert_eq!((export.addresses.len(), export.transactions.len(), export.unspent.len()), (25, 0, 0));
            }
            Err(error) => assert!(!reason.is_empty() && error.contains(reason), "{sql}: {error}"),
        }
    }
}

#[test]
fn what_is_no_whole_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = file_of(&folder, TABLES);
    let bytes = std::fs::read(&file).unwrap();
    let put = |name: &str, bytes: &[u8]| {
        let file = folder.path().join(name);
        std::fs::write(&file, bytes).unwrap();
        file
    };
    assert!(read(&folder.path().join("missing")).unwrap_err().contains("cannot be read"));
    assert!(read(&put("empty", b"")).unwrap_err().contains("not a SQLite file"));
    assert!(read(&put("text", b"{\"descriptors\": [1, 2, 3, 4, 5]}")).unwrap_err().contains("not a SQLite file"));
    assert!(read(&put("cut", &bytes[..bytes.len() / 2])).unwrap_err().contains("SQLite reads it no further"));
    let mut spoilt = bytes.clone();
    spoilt[4_096..6_000].fill(0xaa);
    assert!(read(&put("spoilt", &spoilt)).is_err());

    // A log with rows that are not in the file yet.
    let open = put("open", &bytes);
    put("open-wal", b"rows");
    assert!(read(&open).unwrap_err().contains("another program has it open"));
    std::fs::remove_file(folder.path().join("open-wal")).unwrap();
    read(&open).unwrap();
}

#[test]
fn older_versions_are_read_and_no_file_is_changed() {
    let genesis_block = "000000000019d6689c085ae165831e934ff763ae46a2a6c172b3f1b60a8ce26f";
    let fill = format!("INSERT INTO bdk_txs VALUES ('{GENESIS_HASH}', {GENESIS}, NULL);
        INSERT INTO bdk_anchors VALUES ('{GENESIS_HASH}', 0, '{genesis_block}', '{{\"confirmation_time\": 1231006505}}');");
    let older = TABLES
        .replace(", last_evicted INTEGER, first_seen INTEGER", "")
        .replace("confirmation_time INTEGER", "anchor TEXT")
        .replace("('bdk_txgraph', 3)", "('bdk_txgraph', 0)");
    let folder = tempfile::tempdir().unwrap();
    // Kept with a write-ahead log: a reader that asked for it would make files beside this one.
    let file = file_of(&folder, &format!("PRAGMA journal_mode = WAL; {older} {fill}"));
    let before = std::fs::read(&file).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o444)).unwrap();
    let export = read(&file).unwrap();
    assert_eq!(export.transactions[0].block.map(|block| (block.0, block.2)), Some((0, 1_231_006_505)));
    assert_eq!(std::fs::read(&file).unwrap(), before);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
}

#[test]
fn a_foreign_wallet_of_bdk_is_taken_over_whole() {
    let yardstick = std::env::var("BURSAR_TEST_BDK").expect("the path of bdk-yardstick: tests/tools/bdk.sh");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sample.sqlite");
    let output = Command::new(yardstick).args(["sample", "--file"]).arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let dump: Value = serde_json::from_slice(&output.stdout).unwrap();
    let before = std::fs::read(&file).unwrap();
    let export = read(&file).unwrap();
    assert_eq!(std::fs::read(&file).unwrap(), before);

    // What bdk itself says: every output that counts, its amount and height, and whether it is spent.
    let outputs = dump["utxos"].as_array().unwrap().iter().map(|row| {
        let outpoint = OutPoint {
            hash: row[0].as_str().unwrap().parse().unwrap(),
            index: u32::try_from(row[1].as_u64().unwrap()).unwrap(),
        };
        let height = row[3].as_u64().map(|height| u32::try_from(height).unwrap());
        (outpoint, (row[2].as_i64().unwrap(), height, row[4].as_bool().unwrap()))
    });
    let bdks: BTreeMap<OutPoint, (i64, Option<u32>, bool)> = outputs.collect();
    let unspent: BTreeMap<OutPoint, (i64, Option<u32>, bool)> =
        export.unspent.iter().map(|(outpoint, claim)| (*outpoint, (claim.amount, claim.height, false))).collect();
    let bdks_unspent: BTreeMap<_, _> = bdks.iter().filter(|(_, row)| !row.2).map(|(one, row)| (*one, *row)).collect();
    assert_eq!(unspent, bdks_unspent);

    for engine in engines() {
        on(engine, async |db| {
            let report = import(db, "w", &export, NOW, &mut |_| {}).await.unwrap_or_else(|error| panic!("{error}"));
            let filter = ListFilter { account: None, unspent_only: false, after: None, most: 10_000 };
            let rows = db.list_outputs(report.wallet, &filter, NOW).await.unwrap();
            let valid = rows.iter().filter(|row| row.status.is_valid());
            let ours: BTreeMap<_, _> =
                valid.map(|row| (row.outpoint, (row.amount, row.height, row.spent_by.is_some()))).collect();
            assert_eq!(ours, bdks);
            assert!(rows.iter().any(|row| !row.status.is_valid()), "what was replaced is kept");
            let balance = &dump["balance"];
            let kind = |kind: &str| balance[kind].as_i64().unwrap();
            // bdk leaves out of `confirmed` what is immature, and counts it mature one block earlier.
            assert_eq!(report.balance.confirmed, kind("confirmed") + kind("immature"));
            assert_eq!(report.balance.unconfirmed, kind("unconfirmed"));
            assert_eq!(db.check_utxo().await.unwrap(), []);
            let again = import(db, "w", &export, NOW, &mut |_| {}).await.unwrap();
            assert_eq!((again.changes, again.balance), (0, report.balance));
        });
    }
}
