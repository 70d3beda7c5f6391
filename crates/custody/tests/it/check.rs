//! Rows that were changed behind the store's back are found.

use custody::bitcoin::{ScriptKind, block_of, check, plan, tx_of};
use store::Engine;
use store::testing::{NOW, TestDb, on};
use store::utxo::{AddressKind, Block, Hash, NewAddress, NewOutput, NewTx};

use crate::world::{COSTS, coin, script_of, signed, target};

/// Removes the triggers that refuse such changes.
const UNGUARDED: &str = "DROP TRIGGER trg_transaction_fixed; DROP TRIGGER trg_input_fixed; \
                         DROP TRIGGER trg_output_fixed; DROP TRIGGER trg_output_kept";

/// A change by hand, how it is undone, and the words of the finding.
const CASES: [(&str, &str, &str); 8] = [
    (
        "UPDATE transactions SET raw_tx = substr(raw_tx, 1, length(raw_tx) - 1) WHERE id = 1",
        "UPDATE transactions SET raw_tx = (SELECT raw_tx FROM kept) WHERE id = 1",
        "its bytes cannot be read",
    ),
    (
        "UPDATE transactions SET raw_tx = (SELECT raw_tx FROM transactions WHERE id = 2) WHERE id = 1",
        "UPDATE transactions SET raw_tx = (SELECT raw_tx FROM kept) WHERE id = 1",
        "its bytes are those of",
    ),
    (
        "UPDATE tx_inputs SET prev_index = prev_index + 1 WHERE tx_id = 1",
        "UPDATE tx_inputs SET prev_index = prev_index - 1 WHERE tx_id = 1",
        "its inputs are not",
    ),
    (
        "UPDATE tx_inputs SET prev_hash = zeroblob(32) WHERE tx_id = 2",
        "UPDATE tx_inputs SET prev_hash = (SELECT prev_hash FROM was) WHERE tx_id = 2",
        "its inputs are not",
    ),
    (
        "UPDATE utxos SET amount = amount + 1 WHERE tx_id = 2",
        "UPDATE utxos SET amount = amount - 1 WHERE tx_id = 2",
        "its outputs are not",
    ),
    (
        "UPDATE utxos SET output_index = output_index + 7 WHERE tx_id = 2",
        "UPDATE utxos SET output_index = output_index - 7 WHERE tx_id = 2",
        "its outputs are not",
    ),
    (
        "UPDATE utxos SET address_id = address_id + 1 WHERE tx_id = 1",
        "UPDATE utxos SET address_id = address_id - 1 WHERE tx_id = 1",
        "its outputs are not",
    ),
    (
        "UPDATE transactions SET is_coinbase = 0 WHERE is_coinbase",
        "UPDATE transactions SET is_coinbase = 1 WHERE id = 3",
        "it is a coinbase by its bytes or by its row",
    ),
];

fn paying(number: u32) -> NewTx {
    let coins = [coin(number, 5_000_000, AddressKind::P2wpkh)];
    let mut target = target(&[300_000, 700_000], COSTS, ScriptKind::P2tr);
    target.recipients[0].script = script_of(0, AddressKind::P2wpkh);
    let made = plan(&coins, &target, &script_of(9, AddressKind::P2tr)).unwrap();
    tx_of(&signed(&made, 0)).unwrap()
}

/// The first block of regtest, as if it paid us.
fn coinbase() -> (Block, NewTx) {
    let genesis = bitcoin::constants::genesis_block(bitcoin::Network::Regtest);
    let (block, mut transactions) = block_of(7, &genesis).unwrap();
    (block, transactions.pop().unwrap())
}

async fn found(db: &TestDb) -> Vec<(Hash, String)> {
    let findings = check(db, |_| {}).await.unwrap();
    let ours = findings.iter().filter(|finding| finding.check == "bytes");
    let parse = |text: &str| {
        text["transaction ".len()..].split_once(": ").map(|(hash, what)| (hash.parse().unwrap(), what.to_owned()))
    };
    ours.map(|finding| parse(&finding.what).unwrap()).collect()
}

#[test]
fn rows_that_are_not_those_of_their_bytes_are_found() {
    on(Engine::Sqlite, async |db| {
        let wallet = db.create_wallet("hot", store::utxo::Network::Regtest, NOW).await.unwrap();
        let (block, genesis) = coinbase();
        let address = |kind, script| NewAddress { account: 0, path: None, kind, script };
        let NewOutput { script, .. } = genesis.outputs[0].clone();
        let scripts = [
            address(AddressKind::P2wpkh, script_of(0, AddressKind::P2wpkh)),
            address(AddressKind::P2wpkh, script_of(1, AddressKind::P2wpkh)),
            address(AddressKind::Other, script),
        ];
        db.add_addresses(wallet, &scripts, store::utxo::Paths::Exact, NOW).await.unwrap();
        let transactions = [paying(1), paying(2)];
        db.see_transactions(&transactions, NOW).await.unwrap();
        db.connect_block(&block, std::slice::from_ref(&genesis), NOW).await.unwrap();
        let hashes = [transactions[0].hash, transactions[1].hash, genesis.hash];
        let mut read = 0;
        assert_eq!(check(db, |count| read += count).await.unwrap(), []);
        assert_eq!(read, 3, "all were read");
        db.by_hand(UNGUARDED).await.unwrap();
        db.by_hand("CREATE TABLE kept AS SELECT raw_tx FROM transactions WHERE id = 1").await.unwrap();
        db.by_hand("CREATE TABLE was AS SELECT prev_hash FROM tx_inputs WHERE tx_id = 2").await.unwrap();
        for (change, undo, expected) in CASES {
            db.by_hand(change).await.unwrap_or_else(|error| panic!("{change}: {error}"));
            let found = found(db).await;
            assert_eq!(found.len(), 1, "{change}: {found:?}");
            assert!(hashes.contains(&found[0].0) && found[0].1.starts_with(expected), "{change}: {found:?}");
            db.by_hand(undo).await.unwrap_or_else(|error| panic!("{undo}: {error}"));
            assert_eq!(check(db, |_| {}).await.unwrap(), [], "{undo}");
        }
        // An address that is added later: what paid it before must be shown once more.
        db.add_addresses(
            wallet,
            &[address(AddressKind::P2tr, script_of(9, AddressKind::P2tr))],
            store::utxo::Paths::Exact,
            NOW,
        )
        .await
        .unwrap();
        let hidden: Vec<Hash> = found(db).await.into_iter().map(|one| one.0).collect();
        assert_eq!(hidden, &hashes[..2]);
        db.see_transactions(&transactions, NOW).await.unwrap();
        assert_eq!(check(db, |_| {}).await.unwrap(), []);
    });
}
