//! The devnet's Bitcoin, by itself, against a real bitcoind, and driven by a client that others have written.
#![allow(clippy::unwrap_used, reason = "in a test an unwrap is an assertion")]

mod nodes;
mod shapes;

use std::process::Command;

use bitcoin::consensus::encode::{deserialize_hex, serialize_hex};
use bitcoin::consensus::serialize;
use bitcoin::{Amount, Block, Network, OutPoint, Transaction, TxOut};
use devnet::bitcoin::{BitcoinDevnet, Settings};
use devnet::{BroadcastFault, Fate, Key, Lie, Model, PREFUNDED, Served, View, Wire};
use domain::{RawAmount, Timestamp};
use serde_json::{Value, json};

use crate::cases_bitcoin::{CASES, Case, Coin, Context, Kind, Node, judge, pays, spend};
use crate::nodes::bitcoind::Bitcoind;
use crate::nodes::post;
use nodes::Direct;

/// A year after the devnet's first blocks.
const NOW: Timestamp = Timestamp::from_micros(1_798_761_600_000_000);

fn run_all(node: &mut dyn Node) -> Vec<(&'static Case, crate::cases_bitcoin::Verdict)> {
    let mut context = Context::prepare(node);
    CASES.iter().map(|case| (case, judge(node, &mut context, case))).collect()
}

#[test]
fn the_devnet_judges_every_case_of_the_table() {
    let mut sent = String::new();
    for (case, verdict) in run_all(&mut Direct::new()) {
        let expected = case.except.map_or(case.reason, |(instead, _)| Some(instead));
        assert_eq!(verdict.reason.as_deref(), expected, "{}", case.name);
        let words = verdict.sent.map_or_else(|(code, words)| format!("{code} {words}"), |()| "taken".to_owned());
        sent.push_str(&format!("{}: {words}\n", case.name));
    }
    // What `sendrawtransaction` said; the test with bitcoind compares it with the real one.
    expect_test::expect_file!["cases_bitcoin/sent.txt"].assert_eq(&sent);
}

#[test]
fn bitcoind_judges_every_case_as_the_devnet_does() {
    let real = run_all(&mut Bitcoind::blocking());
    let ours = run_all(&mut Direct::new());
    let mut wrong = Vec::new();
    for ((case, real), (_, ours)) in real.into_iter().zip(ours) {
        if real.reason.as_deref() != case.reason {
            wrong.push(format!("{}: bitcoind says {real:?}", case.name));
        }
        let same = real == ours;
        if same != case.except.is_none() {
            wrong.push(format!("{}:\n  bitcoind {real:?}\n  devnet   {ours:?}", case.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_devnet_starts_with_matured_coins_on_all_twenty_addresses() {
    let mut node = Direct::new();
    for number in 0..PREFUNDED {
        for address in
            [Key::numbered(number).bitcoin(Network::Regtest), Key::numbered(number).taproot(Network::Regtest)]
        {
            let found = node.must("scantxoutset", json!(["start", [format!("addr({address})")]]));
            assert_eq!(found["total_amount"].to_string(), "50.0", "{address}");
            assert_eq!(found["unspents"].as_array().unwrap().len(), 5);
            assert!(found["unspents"].as_array().unwrap().iter().all(|coin| coin["coinbase"] == false));
        }
    }
    assert_eq!(node.must("getrawmempool", json!([])), json!([]));
}

#[test]
fn two_devnets_are_the_same_to_the_last_hash() {
    let (mut one, mut other) = (Direct::new(), Direct::new());
    one.mine(3);
    other.mine(3);
    assert_eq!(one.must("getbestblockhash", json!([])), other.must("getbestblockhash", json!([])));
}

#[test]
fn every_block_is_a_real_block() {
    let mut node = Direct::new();
    let coin = coins(&mut node, 0)[0];
    node.must("sendrawtransaction", json!([serialize_hex(&pays(coin, 1_000))]));
    node.mine(1);
    let mut parent = node.block(0);
    assert_eq!(parent, bitcoin::constants::genesis_block(Network::Regtest));
    for height in 1..=node.height() {
        let block = node.block(height);
        assert_eq!(block.header.prev_blockhash, parent.block_hash());
        assert!(block.check_merkle_root() && block.check_witness_commitment(), "{height}");
        assert!(block.header.validate_pow(block.header.target()).is_ok());
        // rust-bitcoin cannot read the short form of the first sixteen.
        assert_eq!(block.bip34_block_height().unwrap_or(height), height);
        let made: Amount = block.coinbase().unwrap().output.iter().map(|output| output.value).sum();
        let fees = if height == node.height() { 1_000 } else { 0 };
        let subsidy = if height < 150 { 5_000_000_000 } else { 2_500_000_000 };
        if block.txdata.len() == 1 || fees > 0 {
            assert_eq!(made.to_sat(), subsidy + fees, "{height}");
        }
        parent = block;
    }
    assert_eq!(parent.txdata.len(), 2);
    let coinbase = parent.coinbase().unwrap().compute_txid().to_string();
    assert!(!node.must("gettxout", json!([coinbase, 0])).is_null());
    assert!(node.must("gettxout", json!([coinbase, 1])).is_null(), "a commitment is no coin");
}

fn coins(node: &mut dyn Node, number: u32) -> Vec<Coin> {
    assert_eq!(number, 0, "the table signs with the first key");
    let wanted = format!("raw({})", Kind::P2wpkh.script().to_hex_string());
    let found = node.must("scantxoutset", json!(["start", [wanted]]));
    let coin = |coin: &Value| Coin {
        kind: Kind::P2wpkh,
        at: OutPoint {
            txid: coin["txid"].as_str().unwrap().parse().unwrap(),
            vout: u32::try_from(coin["vout"].as_u64().unwrap()).unwrap(),
        },
        value: Amount::from_str_in(&coin["amount"].to_string(), bitcoin::Denomination::Bitcoin).unwrap(),
    };
    found["unspents"].as_array().unwrap().iter().filter(|found| found["coinbase"] == false).map(coin).collect()
}

fn send(node: &mut dyn Node, transaction: &Transaction) -> String {
    node.must("sendrawtransaction", json!([serialize_hex(transaction)])).as_str().unwrap().to_owned()
}

fn confirmations(node: &mut dyn Node, txid: &str) -> Option<i64> {
    let found = node.call("getrawtransaction", json!([txid, 1])).ok()?;
    Some(found["confirmations"].as_i64().unwrap_or(0))
}

#[test]
fn a_reorganisation_moves_drops_or_returns_what_it_removes() {
    for (fate, expected) in [(Fate::Moved, Some(1)), (Fate::Dropped, None), (Fate::Returned, Some(0))] {
        let mut node = Direct::new();
        let coin = coins(&mut node, 0)[0];
        let txid = send(&mut node, &pays(coin, 1_000));
        node.mine(5);
        let (height, old) = (node.height(), node.must("getbestblockhash", json!([])));
        assert_eq!(confirmations(&mut node, &txid), Some(5));
        let fork = node.must("getblockhash", json!([height - 5]));
        node.net.reorg(5, fate, &[], NOW).unwrap();
        assert_eq!(node.height(), height + 1);
        assert_eq!(node.must("getblockhash", json!([height - 5])), fork);
        assert_ne!(node.must("getblockhash", json!([height])), old);
        assert_eq!(confirmations(&mut node, &txid), expected, "{fate:?}");
        assert_eq!(node.must("getblockheader", json!([old]))["confirmations"], -1);
        let spent = node.must("gettxout", json!([coin.at.txid.to_string(), coin.at.vout])).is_null();
        assert_eq!(spent, fate != Fate::Dropped, "{fate:?}");
        let tips = node.must("getchaintips", json!([]));
        assert_eq!(tips[1]["status"], "valid-fork");
        assert_eq!(tips[1]["branchlen"], 5);
        node.mine(1);
        assert_eq!(confirmations(&mut node, &txid).is_some(), fate != Fate::Dropped);
        // Of branches that are equally long the one seen first is right, as in Core.
        let new = node.must("getblockhash", json!([height + 1]));
        node.must("invalidateblock", json!([new]));
        assert_eq!(node.must("getbestblockhash", json!([])), old);
        assert_eq!(confirmations(&mut node, &txid), Some(5));
    }
}

#[test]
fn a_reorganisation_with_a_conflict_makes_what_was_mined_impossible() {
    for fate in [Fate::Moved, Fate::Returned, Fate::Dropped] {
        let mut node = Direct::new();
        let coin = coins(&mut node, 0)[0];
        let first = pays(coin, 1_000);
        let child = pays(
            Coin {
                kind: Kind::P2wpkh,
                at: OutPoint { txid: first.compute_txid(), vout: 0 },
                value: first.output[0].value,
            },
            1_000,
        );
        let txid = send(&mut node, &first);
        node.mine(1);
        let waiting = send(&mut node, &child);
        let other = pays(coin, 2_000);
        node.net.reorg(1, fate, &[serialize(&other)], NOW).unwrap();
        assert_eq!(confirmations(&mut node, &txid), None);
        assert_eq!(confirmations(&mut node, &waiting), None, "the child of what cannot be mined");
        assert_eq!(confirmations(&mut node, &other.compute_txid().to_string()), Some(2));
        let refused = node.call("sendrawtransaction", json!([serialize_hex(&first)])).unwrap_err();
        assert_eq!(refused, (-25, "bad-txns-inputs-missingorspent".to_owned()));
    }
}

#[test]
fn a_block_ends_the_wait_of_what_it_contradicts() {
    let mut node = Direct::new();
    let coin = coins(&mut node, 0)[0];
    let parent = pays(coin, 1_000);
    let at = OutPoint { txid: parent.compute_txid(), vout: 0 };
    send(&mut node, &parent);
    send(&mut node, &pays(Coin { at, value: parent.output[0].value, ..coin }, 1_000));
    let home = Key::numbered(1).bitcoin(Network::Regtest).to_string();
    // Less fee than what waits: relay would refuse it, a block may hold it.
    node.must("generateblock", json!([home, [serialize_hex(&pays(coin, 10))]]));
    assert_eq!(node.must("getrawmempool", json!([])), json!([]));
    let info = node.must("getmempoolinfo", json!([]));
    assert_eq!(
        (&info["bytes"], &info["size"], info["total_fee"].to_string()),
        (&json!(0), &json!(0), "0.0".to_owned())
    );
    node.mine(1);
}

#[test]
fn a_reorganisation_that_cannot_be_changes_nothing() {
    let mut node = Direct::new();
    let coin = coins(&mut node, 0)[0];
    let txid = send(&mut node, &pays(coin, 1_000));
    node.mine(2);
    let tip = node.must("getbestblockhash", json!([]));
    let forged =
        spend(&[coin], vec![TxOut { value: coin.value + Amount::ONE_BTC, script_pubkey: Kind::P2tr.script() }]);
    assert!(node.net.reorg(2, Fate::Dropped, &[serialize(&forged)], NOW).unwrap_err().contains("bad-txns-in-belowout"));
    assert!(node.net.reorg(2, Fate::Dropped, &[vec![1]], NOW).is_err());
    assert!(node.net.reorg(0, Fate::Moved, &[], NOW).is_err());
    assert!(node.net.reorg(node.net.height(), Fate::Moved, &[], NOW).is_err());
    assert_eq!(node.must("getbestblockhash", json!([])), tip);
    assert_eq!(confirmations(&mut node, &txid), Some(2));
    node.net.reorg(20, Fate::Moved, &[], NOW).unwrap();
    assert_eq!(confirmations(&mut node, &txid), Some(1));
}

#[test]
fn the_coins_are_the_same_after_blocks_are_taken_back_and_put_back() {
    let mut node = Direct::new();
    let set = |node: &mut Direct| node.must("gettxoutsetinfo", json!([]));
    let before = set(&mut node);
    let coin = coins(&mut node, 0)[0];
    let parent = pays(coin, 1_000);
    send(&mut node, &parent);
    let child = Coin {
        kind: Kind::P2wpkh,
        at: OutPoint { txid: parent.compute_txid(), vout: 0 },
        value: parent.output[0].value,
    };
    let child = send(&mut node, &pays(child, 1_000));
    node.mine(1);
    let first = node.must("getbestblockhash", json!([]));
    node.mine(3);
    let after = set(&mut node);
    node.must("invalidateblock", json!([first]));
    assert_eq!(set(&mut node), before);
    assert_eq!(confirmations(&mut node, &child), Some(0), "it waits again, and its parent");
    assert_eq!(node.must("getchaintips", json!([]))[0]["status"], "invalid");
    node.must("reconsiderblock", json!([first]));
    assert_eq!(set(&mut node), after);
    assert_eq!(confirmations(&mut node, &child), Some(4));
    assert_eq!(node.must("getrawmempool", json!([])), json!([]));
}

#[test]
fn a_broadcast_is_dropped_delayed_or_doubled() {
    let mut node = Direct::new();
    let coins = coins(&mut node, 0);
    node.net.broadcasts(BroadcastFault::Drop);
    let refused = node.call("sendrawtransaction", json!([serialize_hex(&pays(coins[0], 0))])).unwrap_err();
    assert_eq!(refused.0, -26, "what is dropped is checked before");
    let dropped = send(&mut node, &pays(coins[0], 1_000));
    assert_eq!(confirmations(&mut node, &dropped), None);
    node.net.broadcasts(BroadcastFault::Delay(2));
    let parent = pays(coins[1], 1_000);
    let delayed = send(&mut node, &parent);
    node.net.broadcasts(BroadcastFault::None);
    let child = Coin {
        kind: Kind::P2wpkh,
        at: OutPoint { txid: parent.compute_txid(), vout: 0 },
        value: parent.output[0].value,
    };
    let child = send(&mut node, &pays(child, 50_000));
    for _ in 0..2 {
        node.mine(1);
        assert_eq!(confirmations(&mut node, &delayed), Some(0));
        assert_eq!(confirmations(&mut node, &child), Some(0));
    }
    node.mine(1);
    assert_eq!(confirmations(&mut node, &delayed), Some(1));
    assert_eq!(confirmations(&mut node, &child), Some(1));
    node.net.broadcasts(BroadcastFault::Delay(9));
    let delayed = send(&mut node, &pays(coins[3], 1_000));
    node.net.reorg(1, Fate::Moved, &[], NOW).unwrap();
    node.mine(1);
    assert_eq!(confirmations(&mut node, &delayed), Some(0), "a reorganisation does not end the delay");
    node.mine(9);
    assert_eq!(confirmations(&mut node, &delayed), Some(2));
    node.net.broadcasts(BroadcastFault::Duplicate);
    let doubled = send(&mut node, &pays(coins[2], 1_000));
    assert_eq!(node.must("getrawmempool", json!([])), json!([doubled]));
}

#[test]
fn a_lagging_view_knows_nothing_of_the_newest_blocks() {
    let mut node = Direct::new();
    let before = node.height();
    let coin = coins(&mut node, 0)[0];
    let set = node.must("gettxoutsetinfo", json!([]));
    let paid = pays(coin, 1_000);
    let txid = send(&mut node, &paid);
    node.mine(2);
    let tip = node.must("getbestblockhash", json!([]));
    let node = node.seen_by(View { lag: 2, ..View::default() });
    assert_eq!(node.height(), before);
    assert_eq!(node.call("getblockhash", json!([before + 1])).unwrap_err().0, -8);
    assert_eq!(node.call("getblock", json!([tip])).unwrap_err().0, -5);
    assert_eq!(confirmations(node, &txid), None);
    assert!(!node.must("gettxout", json!([coin.at.txid.to_string(), coin.at.vout])).is_null());
    assert!(node.must("gettxout", json!([txid, 0])).is_null());
    assert_eq!(node.must("gettxoutsetinfo", json!([])), set);
    let last = node.must("getblockhash", json!([before]));
    assert!(node.must("getblockheader", json!([last])).get("nextblockhash").is_none());
}

#[test]
fn a_lying_view_hides_or_inflates_and_the_bytes_betray_it() {
    let mut node = Direct::new();
    let coin = coins(&mut node, 0)[0];
    let txid = send(&mut node, &pays(coin, 1_000));
    node.mine(1);
    let other = coins(&mut node, 0)[0];
    let waiting = send(&mut node, &pays(other, 1_000));
    for lie in [Lie::Missing, Lie::Flipped] {
        let node = node.seen_by(View { lie, ..View::default() });
        for txid in [&txid, &waiting] {
            assert_eq!(node.call("getrawtransaction", json!([txid])).unwrap_err().0, -5);
            assert_eq!(node.call("getmempoolentry", json!([txid])).unwrap_err().0, -5);
            assert!(node.must("gettxout", json!([txid, 0])).is_null());
        }
        assert_eq!(node.must("getrawmempool", json!([])), json!([]));
    }
    let node = node.seen_by(View { lie: Lie::Inflated, ..View::default() });
    assert_eq!(node.must("getrawtransaction", json!([txid, 1]))["vout"][0]["value"].to_string(), "99.9999");
    assert_eq!(node.must("gettxout", json!([txid, 0, false]))["value"].to_string(), "99.9999");
    let raw = node.must("getrawtransaction", json!([txid]));
    let forged: Transaction = deserialize_hex(raw.as_str().unwrap()).unwrap();
    assert_ne!(forged.compute_txid().to_string(), txid);
    let height = node.height();
    assert!(!node.block(height).check_merkle_root());
    let node = node.seen_by(View::default());
    assert!(node.block(height).check_merkle_root());
}

#[test]
fn a_contradicting_view_shows_another_chain_that_fits_together() {
    let mut node = Direct::new();
    node.mine(4);
    let height = node.height();
    let real: Vec<Block> = (0..=height).map(|height| node.block(height)).collect();
    let node = node.seen_by(View { contradict: Some(height - 2), ..View::default() });
    let mut parent = node.block(height - 3);
    assert_eq!(Some(&parent), real.get(usize::try_from(height - 3).unwrap()));
    for height in height - 2..=height {
        let block = node.block(height);
        let same = &real[usize::try_from(height).unwrap()];
        assert_ne!(block.block_hash(), same.block_hash());
        assert_eq!(block.header.prev_blockhash, parent.block_hash());
        assert!(block.check_merkle_root() && block.header.validate_pow(block.header.target()).is_ok());
        assert_eq!(block.txdata, same.txdata);
        let unknown = node.call("getblock", json!([same.block_hash().to_string()])).unwrap_err();
        assert_eq!(unknown, (-5, "Block not found".to_owned()));
        let header = node.must("getblockheader", json!([block.block_hash().to_string()]));
        assert_eq!(header["previousblockhash"], parent.block_hash().to_string());
        parent = block;
    }
    node.net.reorg(2, Fate::Moved, &[], NOW).unwrap();
    let now = node.block(height - 1);
    assert_eq!(now.header.prev_blockhash, node.block(height - 2).block_hash());
    assert_ne!(now.block_hash(), parent.header.prev_blockhash);
}

#[test]
fn a_child_pays_for_a_parent_that_nobody_would_relay() {
    let mut node = Direct::new();
    let coin = coins(&mut node, 0)[0];
    let parent = pays(coin, 0);
    let child = pays(
        Coin { kind: Kind::P2wpkh, at: OutPoint { txid: parent.compute_txid(), vout: 0 }, value: coin.value },
        5_000,
    );
    assert!(node.call("sendrawtransaction", json!([serialize_hex(&parent)])).is_err());
    let package = json!([[serialize_hex(&parent), serialize_hex(&child)]]);
    let answer = node.must("submitpackage", package);
    assert_eq!(answer["package_msg"], "success");
    let result = &answer["tx-results"][parent.compute_wtxid().to_string()];
    assert_eq!(result["fees"]["effective-includes"].as_array().unwrap().len(), 2);
    let entry = node.must("getmempoolentry", json!([child.compute_txid().to_string()]));
    assert_eq!((entry["ancestorcount"].as_i64(), entry["fees"]["chunk"].to_string()), (Some(2), "0.00005".to_owned()));
    node.mine(1);
    assert_eq!(confirmations(&mut node, &parent.compute_txid().to_string()), Some(1));
    let poor = pays(coins(&mut node, 0)[0], 0);
    let poorer = pays(
        Coin { kind: Kind::P2wpkh, at: OutPoint { txid: poor.compute_txid(), vout: 0 }, value: poor.output[0].value },
        1,
    );
    let answer = node.must("submitpackage", json!([[serialize_hex(&poor), serialize_hex(&poorer)]]));
    assert_eq!(answer["package_msg"], "transaction failed");
    assert_eq!(node.must("getrawmempool", json!([])), json!([]));
}

#[test]
fn money_comes_from_the_faucet_and_nowhere_else() {
    let mut node = Direct::new();
    let total = |node: &mut Direct| {
        let text = node.must("gettxoutsetinfo", json!([]))["total_amount"].to_string();
        Amount::from_str_in(&text, bitcoin::Denomination::Bitcoin).unwrap().to_sat()
    };
    let before = total(&mut node);
    let address = Key::numbered(77).bitcoin(Network::Regtest).to_string();
    for _ in 0..40 {
        node.net.fund(&address, None, "12345678".parse::<RawAmount>().unwrap(), NOW).unwrap();
    }
    assert_eq!(total(&mut node), before);
    node.mine(1);
    assert_eq!(total(&mut node), before + if node.height() < 150 { 5_000_000_000 } else { 2_500_000_000 });
    let found = node.must("scantxoutset", json!(["start", [format!("addr({address})")]]));
    assert_eq!(found["unspents"].as_array().unwrap().len(), 40);
    assert_eq!(found["total_amount"].to_string(), "4.9382712");
    for (address, amount) in [("x", "1000"), (address.as_str(), "99"), (address.as_str(), "2100000000000001")] {
        assert!(node.net.fund(address, None, amount.parse::<RawAmount>().unwrap(), NOW).is_err(), "{amount}");
    }
    assert!(node.net.fund(&address, Some("USDT"), "5000".parse::<RawAmount>().unwrap(), NOW).is_err());
    node.net.fund(&address, None, "30000000000".parse::<RawAmount>().unwrap(), NOW).unwrap();
}

#[test]
fn a_fee_estimate_needs_transactions_and_follows_the_factor() {
    let mut node = Direct::new();
    let nothing = node.must("estimatesmartfee", json!([2]));
    assert_eq!(nothing["errors"][0], "Insufficient data or no feerate found");
    let address = Key::numbered(77).bitcoin(Network::Regtest).to_string();
    for _ in 0..10 {
        node.net.fund(&address, None, "5000".parse::<RawAmount>().unwrap(), NOW).unwrap();
    }
    node.mine(1);
    let rate = |node: &mut Direct| {
        let text = node.must("estimatesmartfee", json!([2]))["feerate"].to_string();
        Amount::from_str_in(&format!("{:.8}", text.parse::<f64>().unwrap()), bitcoin::Denomination::Bitcoin)
            .unwrap()
            .to_sat()
    };
    let usual = rate(&mut node);
    node.net.fee_factor(7);
    assert_eq!(rate(&mut node), usual * 7);
}

#[test]
fn the_best_payers_are_mined_first_and_parents_before_children() {
    let mut node = Direct::new();
    let coins = coins(&mut node, 0);
    let poor = send(&mut node, &pays(coins[0], 500));
    let rich = send(&mut node, &pays(coins[1], 9_000));
    let parent = pays(coins[2], 200);
    let child = Coin {
        kind: Kind::P2wpkh,
        at: OutPoint { txid: parent.compute_txid(), vout: 0 },
        value: parent.output[0].value,
    };
    let parent_id = send(&mut node, &parent);
    let child_id = send(&mut node, &pays(child, 90_000));
    node.mine(1);
    let hash = node.must("getbestblockhash", json!([]));
    let order = node.must("getblock", json!([hash]))["tx"].as_array().unwrap()[1..].to_vec();
    assert_eq!(order, [parent_id, child_id, rich, poor].map(Value::from));
}

#[test]
fn every_form_of_a_request_has_its_own_form_of_answer() {
    let mut node = Direct::new();
    let height = node.height();
    for (body, status, answer) in [
        (r#"{"method":"getblockcount","id":1}"#, 200, json!({ "result": height, "error": null, "id": 1 })),
        (
            r#"{"jsonrpc":"1.0","method":"getblockcount","id":"a"}"#,
            200,
            json!({ "result": height, "error": null, "id": "a" }),
        ),
        (
            r#"{"jsonrpc":"2.0","method":"getblockcount","id":1}"#,
            200,
            json!({ "jsonrpc": "2.0", "result": height, "id": 1 }),
        ),
        (r#"{"jsonrpc":"2.0","method":"getblockcount"}"#, 204, Value::Null),
        (r#"[{"jsonrpc":"2.0","method":"getblockcount"}]"#, 204, Value::Null),
        ("[]", 200, json!([])),
        (
            r#"{"method":"x","id":1}"#,
            404,
            json!({ "result": null, "error": { "code": -32601, "message": "Method not found" }, "id": 1 }),
        ),
        (
            r#"{"jsonrpc":"2.0","method":"x","id":1}"#,
            200,
            json!({ "jsonrpc": "2.0", "error": { "code": -32601, "message": "Method not found" }, "id": 1 }),
        ),
        (
            r#"{"method":"getblockhash","params":[9999],"id":1}"#,
            500,
            json!({ "result": null, "error": { "code": -8, "message": "Block height out of range" }, "id": 1 }),
        ),
        (
            r#"{"method":3,"id":1}"#,
            400,
            json!({ "result": null, "error": { "code": -32600, "message": "Method must be a string" }, "id": 1 }),
        ),
        (
            r#"{"jsonrpc":"2.0","method":3,"id":1}"#,
            400,
            json!({ "jsonrpc": "2.0", "error": { "code": -32600, "message": "Method must be a string" }, "id": 1 }),
        ),
        (
            r#"{"method":"x","params":3,"id":1}"#,
            400,
            json!({ "result": null, "error": { "code": -32600, "message": "Params must be an array or object" }, "id": 1 }),
        ),
        ("{", 500, json!({ "result": null, "error": { "code": -32700, "message": "Parse error" }, "id": null })),
        (
            r#""a""#,
            500,
            json!({ "result": null, "error": { "code": -32700, "message": "Top-level object parse error" }, "id": null }),
        ),
    ] {
        assert_eq!(node.post(body), (status, answer), "{body}");
    }
    let (status, batch) = node.post(r#"[{"method":"getblockcount","id":1},{"jsonrpc":"2.0","method":"x","id":2},{"jsonrpc":"2.0","method":"getblockcount"}]"#);
    assert_eq!((status, batch.as_array().unwrap().len()), (200, 2));
    for (method, path, expected) in [("GET", "/", 405), ("POST", "/wallet/x", 404), ("POST", "/x", 404)] {
        let wire = Wire { method, path, query: "", body: br#"{"method":"getblockcount","id":1}"# };
        assert_eq!(node.net.answer(&View::default(), wire, NOW).status, expected);
    }
}

#[test]
fn no_request_makes_the_devnet_panic() {
    let mut node = Direct::new();
    let odd = [
        json!(null),
        json!(true),
        json!(-1),
        json!(4_294_967_296_i64),
        json!(1e300),
        json!(""),
        json!("é"),
        json!("00"),
        json!("ff".repeat(32)),
        json!("0100000000010000000000"),
        json!([]),
        json!([[]]),
        json!([null, 1, "x"]),
        json!({}),
        json!([{ "txid": "x" }]),
        json!("addr()"),
        json!("raw()#"),
        json!("start"),
        json!(["raw(6a)", "raw(00)"]),
    ];
    let help = node.must("help", json!([]));
    for line in help.as_str().unwrap().lines() {
        let method = line.split(' ').next().unwrap();
        for first in &odd {
            node.call(method, json!([first])).ok();
            for second in &odd {
                node.call(method, json!([first, second])).ok();
                node.call(method, json!([first, second, first])).ok();
            }
        }
    }
    for view in
        [View { lag: u64::MAX, ..View::default() }, View { contradict: Some(u64::MAX), lag: 3, ..View::default() }]
    {
        let node = node.seen_by(view);
        node.call("getblockchaininfo", json!([])).unwrap();
        node.call("getblockhash", json!([0])).unwrap();
        node.call("gettxoutsetinfo", json!([])).unwrap();
    }
}

struct Fixed;

impl domain::Clock for Fixed {
    fn now(&self) -> Timestamp {
        NOW
    }
}

async fn served() -> Served<BitcoinDevnet> {
    let net = BitcoinDevnet::new(Settings::default());
    Served::start(net, &["127.0.0.1:0".parse().unwrap()], std::sync::Arc::new(Fixed)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_devnet_answers_over_http_as_core_does() {
    let served = served().await;
    let address = served.endpoints[0].address;
    let ask =
        move |path: &'static str, body: &'static str| tokio::task::spawn_blocking(move || post(address, path, body));
    let (status, body) = ask("/", r#"{"method":"getblockcount","id":1}"#).await.unwrap();
    assert_eq!((status, body.contains("\"error\":null")), (200, true));
    assert_eq!(ask("/", r#"{"method":"x","id":1}"#).await.unwrap().0, 404);
    assert_eq!(ask("/wallet/", r#"{"method":"getblockcount","id":1}"#).await.unwrap().0, 404);
    served.endpoints[0].view.lock().unwrap().lag = 5;
    let (_, later) = ask("/", r#"{"method":"getblockcount","id":1}"#).await.unwrap();
    assert_ne!(later, body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_client_reads_builds_signs_and_sends() {
    let modules = std::env::var("BURSAR_TEST_NODE_MODULES").expect("the folder in BURSAR_TEST_NODE_MODULES");
    let served = served().await;
    let address = served.endpoints[0].address.to_string();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/foreign/bitcoin.mjs");
    let output = tokio::task::spawn_blocking(move || {
        Command::new("node").arg(script).arg(address).env("BURSAR_TEST_NODE_MODULES", modules).output().unwrap()
    });
    let output = output.await.unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
}
