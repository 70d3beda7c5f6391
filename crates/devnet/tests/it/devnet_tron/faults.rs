//! How the chain misbehaves.

use devnet::tron::ENERGY_TO_HOLDER;
use devnet::{BroadcastFault, Fate, Lie};
use domain::RawAmount;
use ruint::aliases::U256;

use super::*;

fn raw(amount: u64) -> RawAmount {
    RawAmount::from_u256(U256::from(amount))
}

fn books(net: &mut Net) -> Vec<(i64, u64)> {
    (0..10).chain([50, 900]).map(|key| (net.balance(key), net.tokens(key))).collect()
}

/// A transaction that refers to block 1, which no reorganisation here removes.
fn lasting(net: &mut Net, key: u32, contract: Vec<u8>) -> (Vec<u8>, String) {
    let first = reference_of(&net.ask("/wallet/getblockbynum", json!({"num": 1})));
    let time_ms = net.reference().time_ms;
    let draft = Draft {
        fee_limit: 100_000_000,
        expiration: time_ms + 3_600_000,
        timestamp: time_ms,
        ..Draft::of(&first, contract)
    };
    (draft.signed(key), alloy_primitives::hex::encode(draft.id()))
}

#[test]
fn an_endpoint_that_lags_knows_nothing_of_the_newest_blocks() {
    let mut net = Net::new(Settings { solid_depth: 1, ..Settings::default() });
    let id = net.pay(0, token_transfer(0, 50, 40));
    net.pay(1, transfer(1, 2, 7));
    net.mine(2);
    net.view.lag = 2;
    assert_eq!(net.reference().height, 3);
    assert_eq!(net.info(&id), json!({}));
    assert_eq!(net.ask("/wallet/getblockbynum", json!({"num": 4})), json!({}));
    assert_eq!((net.tokens(50), net.balance(2)), (0, PREFUND));
    assert!(net.ask("/wallet/getnodeinfo", json!({}))["block"].as_str().unwrap().starts_with("Num:3,ID:"));
    let path = format!("/v1/contracts/{TOKEN}/events");
    assert_eq!(net.get(&path, "")["data"], json!([]));
    let solid = net.ask("/walletsolidity/getnowblock", json!({}));
    assert_eq!(solid["block_header"]["raw_data"]["number"], 2);
    net.view.lag = 1;
    assert_eq!((net.tokens(50), net.balance(2)), (40, PREFUND + 7));
    assert_eq!(net.info(&id)["blockNumber"], 4);
    net.view.lag = 1_000;
    assert_eq!(net.reference().height, 0);
}

#[test]
fn an_endpoint_lies_about_receipts_and_only_about_them() {
    let mut net = Net::new(Settings::default());
    let good = net.pay(0, token_transfer(0, 1, 40));
    let bad = net.pay(2, token_transfer(2, 1, 2_000_000_000_000));
    net.mine(1);
    let truth = (net.info(&good), net.info(&bad));
    let block = net.reference().block;
    let ret = |net: &mut Net, id: &str| net.ask("/wallet/gettransactionbyid", json!({"value": id}))["ret"][0].clone();

    net.view.lie = Lie::Missing;
    assert_eq!(net.info(&good), json!({}));
    assert_eq!(net.ask("/wallet/gettransactionbyid", json!({"value": good})), json!({}));
    assert_eq!(net.ask("/wallet/gettransactionfrompending", json!({"value": good})), json!({}));
    assert_eq!(net.ask("/wallet/gettransactioninfobyblocknum", json!({"num": 4})), json!([]));

    net.view.lie = Lie::Flipped;
    assert_eq!(net.info(&good)["receipt"]["result"], "REVERT");
    assert_eq!(net.info(&good)["result"], "FAILED");
    assert_eq!(net.info(&good).get("log"), None);
    assert_eq!(ret(&mut net, &good), json!({"contractRet": "REVERT"}));
    assert_eq!(net.info(&bad)["receipt"]["result"], "SUCCESS");
    assert_eq!(net.info(&bad).get("result"), None);
    assert_eq!(net.info(&bad)["log"][0]["data"], format!("{:064x}", 2_000_000_000_000_u64));
    assert_eq!(ret(&mut net, &bad), json!({"contractRet": "SUCCESS"}));

    net.view.lie = Lie::Inflated;
    assert_eq!(net.info(&good)["log"][0]["data"], format!("{:064x}", 400));
    let infos = net.ask("/wallet/gettransactioninfobyblocknum", json!({"num": 4}));
    assert_eq!(infos[0]["log"][0]["data"], format!("{:064x}", 400));
    assert_eq!(net.reference().block, block);

    net.view.lie = Lie::Truth;
    assert_eq!((net.info(&good), net.info(&bad)), truth);
}

#[test]
fn an_endpoint_that_contradicts_shows_a_chain_that_fits() {
    let mut net = Net::new(Settings::default());
    net.mine(2);
    let truth: Vec<_> = (0..=5).map(|height| net.ask("/wallet/getblockbynum", json!({"num": height}))).collect();
    net.view.contradict = Some(3);
    let shown: Vec<_> = (0..=5).map(|height| net.ask("/wallet/getblockbynum", json!({"num": height}))).collect();
    for height in 0..=5 {
        assert_eq!(shown[height]["blockID"] == truth[height]["blockID"], height < 3, "{height}");
        assert_eq!(&unhex(&shown[height]["blockID"])[..8], (height as u64).to_be_bytes());
        if height > 0 {
            assert_eq!(shown[height]["block_header"]["raw_data"]["parentHash"], shown[height - 1]["blockID"]);
        }
    }
    assert_eq!(net.ask("/wallet/getblockbyid", json!({"value": shown[4]["blockID"]})), shown[4]);
    assert_eq!(net.ask("/wallet/getblockbyid", json!({"value": truth[4]["blockID"]})), json!({}));
    net.mine(1);
    let next = net.ask("/wallet/getnowblock", json!({}));
    assert_eq!(next["block_header"]["raw_data"]["parentHash"], shown[5]["blockID"]);
    // It follows a reorganisation as well.
    net.chain.reorg(1, Fate::Dropped, &[], NOW).unwrap();
    let other = net.ask("/wallet/getblockbynum", json!({"num": 6}));
    assert_ne!(other["blockID"], next["blockID"]);
    net.view.contradict = None;
    assert_ne!(net.ask("/wallet/getblockbynum", json!({"num": 6}))["blockID"], other["blockID"]);
}

#[test]
fn a_broadcast_is_dropped_delayed_or_duplicated() {
    let mut net = Net::new(Settings::default());
    net.chain.broadcasts(BroadcastFault::Drop);
    let dropped = net.pay(0, transfer(0, 1, 5));
    assert_eq!(net.ask("/wallet/getpendingsize", json!({})), json!({"pendingSize": 0}));
    net.mine(1);
    assert_eq!(net.info(&dropped), json!({}));
    assert_eq!(net.balance(1), PREFUND);

    net.chain.broadcasts(BroadcastFault::Delay(2));
    let delayed = net.pay(0, transfer(0, 1, 6));
    for _ in 0..2 {
        net.mine(1);
        assert_eq!(net.info(&delayed), json!({}));
        let pending = net.ask("/wallet/gettransactionfrompending", json!({"value": delayed}));
        assert_eq!(pending["txID"], delayed.as_str());
        assert_eq!(net.ask("/wallet/gettransactionlistfrompending", json!({})), json!({"txId": [delayed]}));
    }
    net.mine(1);
    assert_eq!(net.info(&delayed)["blockNumber"], net.chain.height());

    net.chain.broadcasts(BroadcastFault::Duplicate);
    let twice = net.pay(0, transfer(0, 1, 7));
    net.mine(1);
    assert_eq!(net.info(&twice)["blockNumber"], net.chain.height());
    assert_eq!(net.balance(1), PREFUND + 13);
    // A bad one is refused under every fault.
    for fault in [BroadcastFault::Drop, BroadcastFault::Delay(1), BroadcastFault::Duplicate] {
        net.chain.broadcasts(fault);
        let draft = Draft::of(&net.reference(), transfer(0, 1, 5));
        assert_eq!(net.send(&draft.signed(1))["code"], "SIGERROR");
    }
}

#[test]
fn an_expired_transaction_is_never_mined() {
    let mut net = Net::new(Settings::default());
    net.chain.broadcasts(BroadcastFault::Delay(3));
    // It may be in a block whose parent is older than it, and in no later one.
    for (life_ms, mined) in [(9_000, false), (9_001, true)] {
        let reference = net.reference();
        let draft = Draft { expiration: reference.time_ms + life_ms, ..Draft::of(&reference, transfer(0, 1, life_ms)) };
        let id = net.send(&draft.signed(0))["txid"].as_str().unwrap().to_owned();
        net.mine(4);
        assert_eq!(net.info(&id) != json!({}), mined, "{life_ms}");
        net.mine(30);
        assert_eq!(net.info(&id) != json!({}), mined, "{life_ms}");
        assert_eq!(net.ask("/wallet/getpendingsize", json!({})), json!({"pendingSize": 0}));
    }
}

#[test]
fn what_waits_is_forgotten_when_its_time_is_over() {
    let mut net = Net::new(Settings::default());
    net.chain.broadcasts(BroadcastFault::Delay(30));
    let reference = net.reference();
    let draft = Draft { expiration: reference.time_ms + 3_001, ..Draft::of(&reference, transfer(0, 1, 5)) };
    net.send(&draft.signed(0));
    net.mine(1);
    assert_eq!(net.ask("/wallet/getpendingsize", json!({})), json!({"pendingSize": 1}));
    net.mine(1);
    assert_eq!(net.ask("/wallet/getpendingsize", json!({})), json!({"pendingSize": 0}));
}

#[test]
fn a_reorganisation_takes_back_every_change() {
    let mut net = Net::new(Settings::default());
    let before = books(&mut net);
    let fork = net.reference();
    let (bytes, id) = lasting(&mut net, 0, token_transfer(0, 50, 40));
    net.send(&bytes);
    let (bytes, _) = lasting(&mut net, 1, transfer(1, 50, 7));
    net.send(&bytes);
    net.mine(3);
    let after = books(&mut net);
    assert_ne!(after, before);
    let old: Vec<_> = (4..=6).map(|height| net.chain.block_id(height).unwrap()).collect();

    net.chain.reorg(3, Fate::Dropped, &[], NOW).unwrap();
    assert_eq!(net.chain.height(), 7);
    assert_eq!(net.chain.block_id(3).unwrap(), fork.block);
    for height in 4..=6 {
        assert_ne!(net.chain.block_id(height).unwrap(), old[usize::try_from(height).unwrap() - 4]);
    }
    assert_eq!(books(&mut net), before);
    assert_eq!(net.info(&id), json!({}));
    assert_eq!(net.ask("/wallet/getpendingsize", json!({})), json!({"pendingSize": 0}));
    // What was dropped may come again.
    assert_eq!(net.send(&bytes)["code"], "SUCCESS");
}

#[test]
fn a_reorganisation_moves_or_returns_what_it_removes() {
    for fate in [Fate::Moved, Fate::Returned] {
        let mut net = Net::new(Settings::default());
        let (bytes, id) = lasting(&mut net, 0, transfer(0, 1, 7));
        net.send(&bytes);
        net.mine(2);
        net.chain.reorg(2, fate, &[], NOW).unwrap();
        assert_eq!(net.chain.height(), 6);
        if fate == Fate::Returned {
            assert_eq!(net.ask("/wallet/gettransactionlistfrompending", json!({})), json!({"txId": [id]}));
            assert_eq!(net.balance(1), PREFUND);
            net.mine(1);
        }
        assert_eq!(net.info(&id)["blockNumber"], net.chain.height());
        assert_eq!(net.balance(1), PREFUND + 7);
    }
}

#[test]
fn what_referred_to_a_removed_block_is_gone() {
    for fate in [Fate::Returned, Fate::Moved] {
        let mut net = Net::new(Settings::default());
        net.mine(1);
        let id = net.pay(0, transfer(0, 1, 7));
        net.mine(1);
        net.chain.reorg(2, fate, &[], NOW).unwrap();
        net.mine(1);
        assert_eq!(net.info(&id), json!({}));
        assert_eq!(net.balance(1), PREFUND);
    }
}

#[test]
fn a_new_branch_holds_what_conflicts_with_the_old_one() {
    let mut net = Net::new(Settings::default());
    let (first, first_id) = lasting(&mut net, 0, transfer(0, 1, PREFUND - 3_000_000));
    let (second, second_id) = lasting(&mut net, 0, transfer(0, 2, PREFUND - 3_000_000));
    net.send(&first);
    net.mine(2);
    let text = alloy_primitives::hex::encode(&second).into_bytes();
    net.chain.reorg(2, Fate::Returned, &[text], NOW).unwrap();
    assert_eq!(net.info(&second_id)["blockNumber"], 4);
    net.mine(1);
    assert_eq!(net.info(&first_id), json!({}));
    assert_eq!((net.balance(1), net.balance(2)), (PREFUND, 2 * PREFUND - 3_000_000));
    // One that no block can hold changes nothing.
    let (height, books_before) = (net.chain.height(), books(&mut net));
    assert!(net.chain.reorg(2, Fate::Moved, &[first], NOW).is_err());
    assert!(net.chain.reorg(2, Fate::Moved, &[b"nonsense".to_vec()], NOW).is_err());
    assert_eq!((net.chain.height(), books(&mut net)), (height, books_before));
}

#[test]
fn solidified_blocks_cannot_be_reorganised() {
    let mut net = Net::new(Settings::default());
    net.mine(30);
    let (height, solid) = (net.chain.height(), net.chain.solid_height());
    assert_eq!(height - solid, 19);
    assert!(net.chain.reorg(20, Fate::Dropped, &[], NOW).is_err());
    assert!(net.chain.reorg(0, Fate::Dropped, &[], NOW).is_err());
    assert_eq!(net.chain.height(), height);
    let id = net.chain.block_id(solid);
    net.chain.reorg(19, Fate::Dropped, &[], NOW).unwrap();
    assert_eq!((net.chain.height(), net.chain.block_id(solid)), (height + 1, id));

    let mut net = Net::new(Settings { solid_depth: 300, ..Settings::default() });
    net.mine(400);
    net.chain.reorg(20, Fate::Dropped, &[], NOW).unwrap();
    net.chain.reorg(300, Fate::Dropped, &[], NOW).unwrap();
    assert_eq!(net.chain.height(), 405);
}

#[test]
fn a_fee_spike_raises_both_prices_from_now_on() {
    let mut net = Net::new(Settings { energy_price: 210, ..Settings::default() });
    let value = |net: &mut Net, key: &str| {
        let all = net.ask("/wallet/getchainparameters", json!({}));
        let found = all["chainParameter"].as_array().unwrap().iter().find(|parameter| parameter["key"] == key).cloned();
        found.unwrap()["value"].as_i64().unwrap()
    };
    assert_eq!((value(&mut net, "getEnergyFee"), value(&mut net, "getTransactionFee")), (210, 1_000));
    net.chain.fee_factor(3);
    assert_eq!((value(&mut net, "getEnergyFee"), value(&mut net, "getTransactionFee")), (630, 3_000));
    let prices = net.ask("/wallet/getenergyprices", json!({}));
    assert!(
        prices["prices"].as_str().unwrap().starts_with("0:210,")
            && prices["prices"].as_str().unwrap().ends_with(":630")
    );
    let id = net.pay(0, token_transfer(0, 1, 40));
    net.mine(1);
    assert_eq!(net.info(&id)["receipt"]["energy_fee"], ENERGY_TO_HOLDER * 630);
}

#[test]
fn funds_come_as_transactions_that_a_scanner_sees() {
    let mut net = Net::new(Settings::default());
    net.chain.broadcasts(BroadcastFault::Drop);
    net.chain.fund(&base58(50), None, raw(5_000_000), NOW).unwrap();
    net.chain.fund(&base58(50), None, raw(5_000_000), NOW).unwrap();
    net.chain.fund(&hex_of(50), Some("USDT"), raw(9), NOW).unwrap();
    net.chain.fund(&base58(51), Some(&TOKEN.to_string()), raw(8), NOW).unwrap();
    net.mine(1);
    assert_eq!((net.balance(50), net.tokens(50), net.tokens(51)), (10_000_000, 9, 8));
    let block = net.ask("/wallet/getnowblock", json!({"visible": true}));
    let value = &block["transactions"][0]["raw_data"]["contract"][0]["parameter"]["value"];
    assert_eq!((&value["to_address"], &value["amount"]), (&json!(base58(50)), &json!(5_000_000)));
    let infos = net.ask("/wallet/gettransactioninfobyblocknum", json!({"num": net.chain.height()}));
    assert_eq!(infos[2]["log"][0]["data"], format!("{:064x}", 9));
    for (address, token, amount) in [
        ("TRX", None, raw(1)),
        (&base58(50)[..], Some("USDC"), raw(1)),
        (&base58(50), None, raw(u64::MAX)),
        (&base58(50), None, raw(0)),
    ] {
        assert!(net.chain.fund(address, token, amount, NOW).is_err(), "{address} {token:?}");
    }
}

#[test]
fn blocks_are_three_seconds_apart_or_as_late_as_the_clock() {
    let mut net = Net::new(Settings::default());
    let first = net.reference().time_ms;
    net.mine(2);
    assert_eq!(net.reference().time_ms, first + 6_000);
    net.chain.mine(1, Timestamp::from_micros((first + 60_000) * 1_000));
    assert_eq!(net.reference().time_ms, first + 60_000);
    net.mine(1);
    assert_eq!(net.reference().time_ms, first + 63_000);
}

/// What all keys own, what was burned, and what the token says it has made.
fn totals(net: &mut Net) -> (i64, u64) {
    let keys: Vec<u32> = (0..10).chain([50, 51, 900]).collect();
    let mut burned = 0;
    for height in 1..=net.chain.height() {
        let infos = net.ask("/wallet/gettransactioninfobyblocknum", json!({"num": height}));
        burned += infos.as_array().unwrap().iter().map(|info| info["fee"].as_i64().unwrap_or(0)).sum::<i64>();
    }
    let trx = keys.iter().map(|key| net.balance(*key)).sum::<i64>() + burned;
    (trx, keys.iter().map(|key| net.tokens(*key)).sum())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_coin_appears_or_vanishes(steps in prop::collection::vec((0u8..6, 0u32..3, 0i64..900_000_000_000), 1..25)) {
        let mut net = Net::new(Settings::default());
        let before = totals(&mut net);
        for (step, key, amount) in steps {
            let to = [key + 1, 50, 51][usize::try_from(amount % 3).unwrap()];
            match step {
                0 | 1 => {
                    let (bytes, _) = lasting(&mut net, key, transfer(key, to, amount));
                    net.send(&bytes);
                }
                2 | 3 => {
                    let (bytes, _) = lasting(&mut net, key, token_transfer(key, to, amount.unsigned_abs() * 2));
                    net.send(&bytes);
                }
                4 => net.mine(1 + amount.unsigned_abs() % 3),
                _ => {
                    let fate = [Fate::Moved, Fate::Dropped, Fate::Returned][usize::try_from(key).unwrap()];
                    let depth = 1 + amount.unsigned_abs() % net.chain.height().min(5);
                    // Block 1 is what everything refers to.
                    if net.chain.height() - depth >= 1 {
                        net.chain.reorg(depth, fate, &[], NOW).unwrap();
                    }
                }
            }
            prop_assert_eq!(totals(&mut net), before);
        }
    }
}
