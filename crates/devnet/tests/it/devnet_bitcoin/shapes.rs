//! The devnet's answers beside bitcoind's.

use bitcoin::consensus::encode::serialize_hex;
use bitcoin::{Address, Amount, Network, OutPoint, TxOut};
use serde_json::{Value, json};

use super::nodes::Direct;
use crate::cases_bitcoin::{Coin, Context, Kind, Node, pays, spend};
use crate::nodes::bitcoind::Bitcoind;

/// Where two answers have other fields or other types. Numbers and texts may differ.
fn shape_differences(path: &str, left: &Value, right: &Value, found: &mut Vec<String>) {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) if !left.is_empty() && left.keys().all(|key| key.len() == 64) => {
            // By hashes, which differ from chain to chain.
            let values = |object: &serde_json::Map<String, Value>| Value::Array(object.values().cloned().collect());
            shape_differences(&format!("{path}.#"), &values(left), &values(right), found);
        }
        (Value::Object(left), Value::Object(right)) => {
            for key in left.keys().chain(right.keys()).collect::<std::collections::BTreeSet<_>>() {
                match (left.get(key), right.get(key)) {
                    (Some(left), Some(right)) => shape_differences(&format!("{path}.{key}"), left, right, found),
                    (Some(_), None) => found.push(format!("{path}.{key} is only in bitcoind's")),
                    (None, _) => found.push(format!("{path}.{key} is only in the devnet's")),
                }
            }
        }
        (Value::Array(left), Value::Array(right)) => {
            if let (Some(left), Some(right)) = (left.first(), right.first()) {
                shape_differences(&format!("{path}[0]"), left, right, found);
            }
        }
        (Value::String(_), Value::String(_))
        | (Value::Number(_), Value::Number(_))
        | (Value::Bool(_), Value::Bool(_))
        | (Value::Null, Value::Null) => {}
        _ => found.push(format!("{path}: {left} against {right}")),
    }
}

fn answers(node: &mut dyn Node) -> Vec<(String, Value)> {
    let mut context = Context::prepare(node);
    let (coin, other) = (context.take(Kind::P2wpkh), context.take(Kind::P2pkh));
    let parent = spend(
        &[coin, other],
        vec![
            TxOut { value: coin.value, script_pubkey: Kind::P2wpkh.script() },
            TxOut { value: coin.value - Amount::from_sat(9_000), script_pubkey: Kind::P2tr.script() },
        ],
    );
    let hash = parent.compute_txid();
    let txid = hash.to_string();
    let child = pays(Coin { kind: Kind::P2wpkh, at: OutPoint { txid: hash, vout: 0 }, value: coin.value }, 3_000);
    let raw = serialize_hex(&parent);
    let mut package = |fee: u64| {
        let coin = context.take(Kind::P2wpkh);
        let parent = pays(coin, 0);
        let at = OutPoint { txid: parent.compute_txid(), vout: 0 };
        [serialize_hex(&parent), serialize_hex(&pays(Coin { at, ..coin }, fee))]
    };
    let (free, poor) = (package(5_000), package(1));
    let tip = node.must("getbestblockhash", json!([]));
    let split = node.must("getblockhash", json!([context.height - 1]));
    let old = coin.at.txid.to_string();
    let child_id = child.compute_txid().to_string();
    let home = Address::from_script(&Kind::P2wpkh.script(), Network::Regtest).unwrap().to_string();
    let mut calls = vec![
        ("testmempoolaccept", json!([[raw, serialize_hex(&child)]])),
        ("sendrawtransaction", json!([raw])),
        ("sendrawtransaction", json!([serialize_hex(&child)])),
        ("getblockchaininfo", json!([])),
        ("getblockcount", json!([])),
        ("getnetworkinfo", json!([])),
        ("getindexinfo", json!([])),
        ("getblockheader", json!([tip])),
        ("getblockheader", json!([tip, false])),
        ("getrawtransaction", json!([txid, 0])),
        ("getrawtransaction", json!([txid, 1])),
        ("getrawtransaction", json!([txid, 2])),
        ("getrawtransaction", json!([old, 1])),
        ("getrawtransaction", json!([old, 2])),
        ("getrawtransaction", json!([old, 2, split])),
        ("decoderawtransaction", json!([raw])),
        ("decodescript", json!([Kind::P2pkh.script().to_hex_string()])),
        ("gettxout", json!([txid, 1])),
        ("gettxout", json!([txid, 1, false])),
        ("gettxout", json!([old, 3])),
        ("getmempoolinfo", json!([])),
        ("getrawmempool", json!([])),
        ("getrawmempool", json!([false, true])),
        ("getmempoolentry", json!([txid])),
        ("getmempoolancestors", json!([child_id])),
        ("getmempoolancestors", json!([child_id, true])),
        ("getrawmempool", json!([true])),
        ("testmempoolaccept", json!([free])),
        ("submitpackage", json!([free])),
        ("submitpackage", json!([free])),
        ("submitpackage", json!([poor])),
        ("submitpackage", json!([[raw, free[1]]])),
        ("getmempooldescendants", json!([txid])),
        ("gettxspendingprevout", json!([[{ "txid": old, "vout": coin.at.vout }]])),
        ("estimatesmartfee", json!([6])),
        ("getchaintips", json!([])),
        ("validateaddress", json!([home])),
        ("validateaddress", json!(["bcrt1nonsense"])),
        ("scantxoutset", json!(["start", [format!("addr({home})")]])),
        ("scantxoutset", json!(["status"])),
        ("scantxoutset", json!(["abort"])),
        ("generateblock", json!([home, [txid]])),
        ("uptime", json!([])),
    ];
    for verbosity in 0..4 {
        calls.push(("getblock", json!([split, verbosity])));
    }
    // What is refused must be refused in the same words.
    let nobody = "11".repeat(32);
    for (method, parameters) in [
        ("getblockhash", json!([1_000_000])),
        ("getblockhash", json!([-1])),
        ("getblockhash", json!(["x"])),
        ("getblockhash", json!([1.5])),
        ("getblock", json!(["xx"])),
        ("getblock", json!(["zz".repeat(32)])),
        ("getblock", json!([nobody])),
        ("getblockheader", json!([nobody])),
        ("getblockheader", json!(["xx"])),
        ("getrawtransaction", json!([nobody])),
        ("getrawtransaction", json!(["xx"])),
        ("getrawtransaction", json!([nobody, 0, nobody])),
        ("getrawtransaction", json!([nobody, 0, tip])),
        ("getmempoolentry", json!([nobody])),
        ("getmempoolancestors", json!([nobody])),
        ("gettxout", json!([nobody, 0])),
        ("gettxspendingprevout", json!([[]])),
        ("gettxspendingprevout", json!([[{ "txid": nobody, "vout": -1 }]])),
        ("sendrawtransaction", json!(["00"])),
        ("sendrawtransaction", json!([raw, 1])),
        ("sendrawtransaction", json!([5])),
        ("testmempoolaccept", json!([[]])),
        ("testmempoolaccept", json!([["00"]])),
        ("submitpackage", json!([[]])),
        ("decoderawtransaction", json!(["00"])),
        ("estimatesmartfee", json!([0])),
        ("estimatesmartfee", json!([6, "fast"])),
        ("generatetoaddress", json!([1, "x"])),
        ("generateblock", json!(["x", []])),
        ("generateblock", json!([home, [nobody]])),
        ("generateblock", json!([home, ["00"]])),
        ("invalidateblock", json!([nobody])),
        ("reconsiderblock", json!([nobody])),
        ("scantxoutset", json!(["begin"])),
        ("scantxoutset", json!(["start"])),
        ("scantxoutset", json!(["start", ["addr(x)"]])),
        ("scantxoutset", json!(["start", ["raw(x)"]])),
        ("scantxoutset", json!(["start", [format!("addr({home})#aaaaaaaa")]])),
        ("scantxoutset", json!(["start", [format!("addr({home})#aa")]])),
        ("scantxoutset", json!(["start", [7]])),
        ("getrawmempool", json!([true, true])),
        ("createwallet", json!(["x"])),
        ("getbalance", json!([])),
        ("getblockhash", json!({ "heigt": 1 })),
        ("getblockhash", json!({ "height": 1 })),
        ("getblockheader", json!({ "blockhash": nobody, "verbose": true })),
    ] {
        calls.push((method, parameters));
    }
    let mut answers = Vec::new();
    for (method, parameters) in calls {
        let text = parameters.to_string();
        let answer = match node.call(method, parameters) {
            Ok(answer) => answer,
            Err((code, message)) => json!(format!("{code} {message}")),
        };
        answers.push((format!("{method} {}", &text[..text.len().min(60)]), answer));
    }
    answers
}

#[test]
fn bitcoind_answers_in_the_same_shapes_and_refuses_in_the_same_words() {
    let real = answers(&mut Bitcoind::blocking());
    let ours = answers(&mut Direct::new());
    let mut found = Vec::new();
    for ((name, real), (_, ours)) in real.iter().zip(&ours) {
        shape_differences(name, real, ours, &mut found);
        let error = |answer: &Value| answer.as_str().filter(|text| text.starts_with('-')).map(str::to_owned);
        if error(real).is_some() || error(ours).is_some() {
            let hash_free = |answer: &Value| answer.to_string().replace(|letter: char| letter.is_ascii_hexdigit(), "");
            if hash_free(real) != hash_free(ours) {
                found.push(format!("{name}:\n  bitcoind {real}\n  devnet   {ours}"));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn bitcoind_reads_scripts_and_transactions_in_the_same_words() {
    let (mut real, mut ours) = (Bitcoind::blocking(), Direct::new());
    let key = "02".to_owned() + "79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798";
    for script in [
        String::new(),
        "6a0281800151".to_owned(),
        "6a04ffffff7f".to_owned(),
        "6a0581000000004f".to_owned(),
        "76a914a55476015c13afb8afb92160329a8cde976f1f2e88ac".to_owned(),
        "a914a55476015c13afb8afb92160329a8cde976f1f2e87".to_owned(),
        format!("21{key}ac"),
        format!("5121{key}21{key}52ae"),
        format!("5120{}", &key[2..]),
        format!("5120{}", "ff".repeat(32)),
        format!("5220{}", "07".repeat(32)),
        "51024e73".to_owned(),
        "03e80300b17503102700b2754f60".to_owned(),
        "4cff".to_owned(),
        "ba".to_owned(),
        "0014a55476015c13afb8afb92160329a8cde976f1f2e".to_owned(),
    ] {
        let plain = |node: &mut dyn Node| {
            let mut answer = node.must("decodescript", json!([script]));
            // How else a script could be wrapped is nothing that custody asks.
            for key in ["p2sh", "segwit"] {
                answer.as_object_mut().unwrap().remove(key);
            }
            answer
        };
        assert_eq!(plain(&mut ours), plain(&mut real), "{script}");
    }
    for kind in Kind::ALL {
        let at = OutPoint { txid: "11".repeat(32).parse().unwrap(), vout: 7 };
        let transaction = serialize_hex(&pays(Coin { kind, at, value: Amount::ONE_BTC }, 1_000));
        let read = |node: &mut dyn Node| node.must("decoderawtransaction", json!([transaction]));
        assert_eq!(read(&mut ours), read(&mut real), "{kind:?}");
    }
}

/// The hundredth block on top of a coinbase may spend it; the one before may not.
fn matures(node: &mut dyn Node) {
    let home = Address::from_script(&Kind::P2wpkh.script(), Network::Regtest).unwrap().to_string();
    let elsewhere = Address::from_script(&Kind::P2tr.script(), Network::Regtest).unwrap().to_string();
    let block = node.must("generatetoaddress", json!([1, home]))[0].clone();
    let txid = node.must("getblock", json!([block]))["tx"][0].clone();
    node.must("generatetoaddress", json!([98, elsewhere]));
    let value = node.must("gettxout", json!([txid, 0]))["value"].to_string();
    let value = Amount::from_str_in(&value, bitcoin::Denomination::Bitcoin).unwrap();
    let at = OutPoint { txid: txid.as_str().unwrap().parse().unwrap(), vout: 0 };
    let spent = serialize_hex(&pays(Coin { kind: Kind::P2wpkh, at, value }, 1_000));
    let young = node.call("sendrawtransaction", json!([spent])).unwrap_err();
    let words = "bad-txns-premature-spend-of-coinbase, tried to spend coinbase at depth 99";
    assert_eq!(young, (-26, words.to_owned()));
    node.must("generatetoaddress", json!([1, elsewhere]));
    node.must("sendrawtransaction", json!([spent]));
}

#[test]
fn a_coinbase_can_be_spent_after_a_hundred_blocks() {
    matures(&mut Direct::new());
}

#[test]
fn bitcoind_lets_a_coinbase_be_spent_after_a_hundred_blocks() {
    matures(&mut Bitcoind::blocking());
}

/// Dust may be made by who pays nothing, if a child takes it away at once.
fn takes_dust_away(node: &mut dyn Node) {
    let mut context = Context::prepare(node);
    for (taken, message) in [(false, "unspent-dust"), (true, "success")] {
        let coin = context.take(Kind::P2wpkh);
        let out = |value: u64| TxOut { value: Amount::from_sat(value), script_pubkey: Kind::P2wpkh.script() };
        let parent = spend(&[coin], vec![out(coin.value.to_sat() - 100), out(100)]);
        let made = |vout: u32, value: u64| {
            let at = OutPoint { txid: parent.compute_txid(), vout };
            Coin { kind: Kind::P2wpkh, at, value: Amount::from_sat(value) }
        };
        let mut coins = vec![made(0, coin.value.to_sat() - 100), made(1, 100)];
        coins.truncate(if taken { 2 } else { 1 });
        let child = spend(&coins, vec![out(coin.value.to_sat() - 10_000)]);
        let answer = node.must("submitpackage", json!([[serialize_hex(&parent), serialize_hex(&child)]]));
        assert_eq!(answer["package_msg"], message, "{answer}");
        let waits = node.call("getmempoolentry", json!([child.compute_txid().to_string()])).is_ok();
        assert_eq!(waits, taken);
    }
}

#[test]
fn dust_must_be_taken_away_by_a_child() {
    takes_dust_away(&mut Direct::new());
}

#[test]
fn bitcoind_wants_dust_taken_away_by_a_child() {
    takes_dust_away(&mut Bitcoind::blocking());
}
