//! Reorganisations, and endpoints that misbehave.

use super::*;

#[test]
fn a_reorganisation_replaces_blocks_and_decides_about_their_transactions() {
    for fate in [Fate::Moved, Fate::Dropped, Fate::Returned] {
        let mut node = Local::new();
        node.mine(2);
        let hash = node.send(&pay(0, 0, 5));
        node.mine(1);
        let token = node.send(&pay_tokens(1, 0, RECEIVER, 9));
        node.mine(2);
        let old: Vec<_> = (0..=5).map(|height| node.devnet.block_hash(height).unwrap()).collect();
        let logs = node.ask("eth_getLogs", json!([{"fromBlock": "0x0", "address": text(TETHER)}]));
        assert_eq!(logs.as_array().unwrap().len(), 1);
        node.devnet.reorg(3, fate, &[], NOW).unwrap();
        assert_eq!(node.devnet.height(), 6);
        for height in 0..=2 {
            assert_eq!(node.devnet.block_hash(height).unwrap(), old[height as usize]);
        }
        for height in 3..=5_u64 {
            let block = node.ask("eth_getBlockByNumber", json!([format!("{height:#x}"), false]));
            assert_ne!(block["hash"], old[height as usize].to_string());
            assert_eq!(block["parentHash"], node.devnet.block_hash(height - 1).unwrap().to_string());
            assert!(node.ask("eth_getBlockByHash", json!([text(old[height as usize]), false])).is_null());
        }
        let shown = node.ask("eth_getTransactionByHash", json!([text(hash)]));
        let (receipt, balance) = (node.receipt(hash), node.balance(RECEIVER));
        let tokens = node.tokens(RECEIVER);
        match fate {
            Fate::Moved => {
                assert_eq!((receipt["blockNumber"].as_str(), balance), (Some("0x6"), U256::from(5)));
                assert_eq!(node.receipt(token)["blockNumber"], "0x6");
                assert_eq!(tokens, U256::from(9));
            }
            Fate::Dropped => assert!(receipt.is_null() && shown.is_null() && balance.is_zero() && tokens.is_zero()),
            Fate::Returned => {
                assert!(receipt.is_null() && balance.is_zero());
                assert!(shown["blockHash"].is_null() && shown.is_object());
                assert_eq!(node.ask("eth_getTransactionCount", json!([text(account(0)), "pending"])), "0x1");
                node.mine(1);
                assert_eq!(node.balance(RECEIVER), U256::from(5));
            }
        }
    }
}

#[test]
fn what_a_reorganisation_makes_impossible_is_dropped() {
    for fate in [Fate::Moved, Fate::Returned] {
        let mut node = Local::new();
        let hash = node.send(&pay(0, 0, 5));
        node.mine(1);
        let rival = pay(0, 0, 6);
        let as_hex = alloy_primitives::hex::encode_prefixed(&rival).into_bytes();
        node.devnet.reorg(1, fate, &[as_hex], NOW).unwrap();
        node.mine(1);
        assert!(node.receipt(hash).is_null());
        assert!(node.ask("eth_getTransactionByHash", json!([text(hash)])).is_null());
        assert_eq!(node.receipt(keccak256(&rival))["blockNumber"], "0x1");
        assert_eq!(node.balance(RECEIVER), U256::from(6));
    }
}

#[test]
fn a_reorganisation_that_cannot_be_leaves_all_as_it_was() {
    let mut node = Local::new();
    node.mine(2);
    let hash = node.send(&pay(0, 0, 5));
    node.mine(1);
    let head = node.devnet.block_hash(3);
    for with in [pay(0, 7, 1), vec![1, 2, 3], b"0xzz".to_vec(), Vec::new()] {
        assert!(node.devnet.reorg(2, Fate::Dropped, &[pay(1, 0, 3), with], NOW).is_err());
    }
    assert!(node.devnet.reorg(4, Fate::Dropped, &[], NOW).is_err());
    assert!(node.devnet.reorg(u64::MAX, Fate::Dropped, &[], NOW).is_err());
    assert_eq!((node.devnet.height(), node.devnet.block_hash(3)), (3, head));
    assert_eq!(node.receipt(hash)["blockNumber"], "0x3");
    assert_eq!(node.balance(RECEIVER), U256::from(5));
    assert_eq!(node.balance(account(1)), U256::from(10_000 * COIN));
}

// Endpoints that misbehave.

#[test]
fn a_lagging_endpoint_knows_nothing_of_the_newest_blocks() {
    let mut node = Local::new();
    node.mine(3);
    let hash = node.send(&pay_tokens(0, 0, RECEIVER, 5));
    node.mine(2);
    let head = node.devnet.block_hash(4).unwrap();
    node.seen_through(View { lag: 2, ..View::default() }, |node| {
        assert_eq!(node.ask("eth_blockNumber", json!([])), "0x3");
        assert!(node.receipt(hash).is_null());
        assert!(node.ask("eth_getTransactionByHash", json!([text(hash)]))["blockHash"].is_null());
        assert!(node.ask("eth_getBlockByNumber", json!(["0x4", false])).is_null());
        assert!(node.ask("eth_getBlockByHash", json!([text(head), false])).is_null());
        assert_eq!(node.ask("eth_getBlockByNumber", json!(["latest", false]))["number"], "0x3");
        assert_eq!(node.tokens(RECEIVER), U256::ZERO);
        assert_eq!(node.ask("eth_getTransactionCount", json!([text(account(0)), "latest"])), "0x0");
        assert_eq!(node.ask("eth_getLogs", json!([{"fromBlock": "0x0", "toBlock": "0x9"}])), json!([]));
        assert_eq!(node.error("eth_getLogs", json!([{"blockHash": text(head)}])).1, "unknown block");
        assert!(node.ask("eth_getBlockReceipts", json!(["0x4"])).is_null());
        assert_eq!(node.error("debug_traceTransaction", json!([text(hash), {"tracer": "callTracer"}])).0, -32_000);
    });
    node.seen_through(View { lag: 99, ..View::default() }, |node| {
        assert_eq!(node.ask("eth_blockNumber", json!([])), "0x0");
    });
    assert_eq!(node.receipt(hash)["blockNumber"], "0x4");
}

#[test]
fn a_lying_endpoint_lies_about_receipts_and_logs_alike() {
    let mut node = Local::new();
    let good = node.send(&pay_tokens(0, 0, RECEIVER, 5));
    let bad = node.send(&pay_tokens(1, 0, RECEIVER, 2_000_000 * COIN));
    node.mine(1);
    let filter = json!([{"fromBlock": "0x1", "address": text(TETHER)}]);
    // Before anybody has heard the truth, too.
    for lie in [Lie::Missing, Lie::Flipped, Lie::Inflated] {
        node.seen_through(View { lie, ..View::default() }, |node| {
            node.ask("eth_getBlockReceipts", json!(["0x1"]));
        });
    }
    let truth = node.ask("eth_getBlockReceipts", json!(["0x1"]));
    assert_eq!((&truth[0]["status"], &truth[1]["status"]), (&json!("0x1"), &json!("0x0")));
    assert_eq!(truth[0]["logs"][0]["data"], format!("0x{:064x}", 5));
    node.seen_through(View { lie: Lie::Missing, ..View::default() }, |node| {
        assert!(node.receipt(good).is_null() && node.ask("eth_getTransactionByHash", json!([text(good)])).is_null());
        assert_eq!(node.ask("eth_getLogs", filter.clone()), json!([]));
        assert_eq!(node.ask("eth_getBlockReceipts", json!(["0x1"])), json!([]));
    });
    node.seen_through(View { lie: Lie::Flipped, ..View::default() }, |node| {
        assert_eq!((&node.receipt(good)["status"], &node.receipt(bad)["status"]), (&json!("0x0"), &json!("0x1")));
        assert_eq!(node.receipt(good)["logs"], json!([]));
        assert_eq!(node.ask("eth_getLogs", filter.clone()), json!([]));
    });
    node.seen_through(View { lie: Lie::Inflated, ..View::default() }, |node| {
        let data = format!("0x{:064x}", 50);
        assert_eq!(node.receipt(good)["logs"][0]["data"], data);
        assert_eq!(node.ask("eth_getLogs", filter.clone())[0]["data"], data);
        assert_eq!(node.ask("eth_getBlockReceipts", json!(["0x1"]))[0]["logs"][0]["data"], data);
    });
    assert_eq!(node.ask("eth_getBlockReceipts", json!(["0x1"])), truth);
}

#[test]
fn a_contradicting_endpoint_is_on_a_branch_of_its_own() {
    let mut node = Local::new();
    let hash = node.send(&pay_tokens(0, 0, RECEIVER, 5));
    node.mine(1);
    let view = View { contradict: Some(1), ..View::default() };
    let check = |node: &mut Local| {
        let height = node.devnet.height();
        let mut parent = node.devnet.block_hash(0).unwrap().to_string();
        for number in 1..=height {
            let real = node.devnet.block_hash(number).unwrap();
            let block = node.ask("eth_getBlockByNumber", json!([format!("{number:#x}"), true]));
            assert_ne!(block["hash"], real.to_string());
            assert_eq!(block["parentHash"], parent.as_str());
            assert!(node.ask("eth_getBlockByHash", json!([text(real), false])).is_null());
            assert_eq!(node.ask("eth_getBlockByHash", json!([block["hash"], true])), block);
            parent = block["hash"].as_str().unwrap().to_owned();
        }
        let block = node.ask("eth_getBlockByNumber", json!(["0x1", true]));
        assert_eq!(block["transactions"][0]["blockHash"], block["hash"]);
        let receipt = node.receipt(hash);
        assert_eq!(receipt["blockHash"], block["hash"]);
        assert_eq!(receipt["logs"][0]["blockHash"], block["hash"]);
        let logs = node.ask("eth_getLogs", json!([{"blockHash": block["hash"]}]));
        assert_eq!(logs[0]["blockHash"], block["hash"]);
        assert_eq!(node.ask("eth_getBlockReceipts", json!(["0x1"]))[0]["blockHash"], block["hash"]);
    };
    node.seen_through(view.clone(), check);
    node.mine(3);
    node.seen_through(view.clone(), check);
    node.devnet.reorg(2, Fate::Dropped, &[], NOW).unwrap();
    node.seen_through(view, check);
    assert_eq!(node.receipt(hash)["blockHash"], node.devnet.block_hash(1).unwrap().to_string());
}

#[test]
fn broadcasts_get_lost_late_or_doubled() {
    let mut node = Local::new();
    node.devnet.broadcasts(BroadcastFault::Drop);
    let lost = node.send(&pay(0, 0, 5));
    assert!(node.ask("eth_getTransactionByHash", json!([text(lost)])).is_null());
    assert!(node.error("eth_sendRawTransaction", json!(["0x01"])).1.starts_with("rlp"));
    node.mine(1);
    assert!(node.receipt(lost).is_null());
    node.devnet.broadcasts(BroadcastFault::Delay(3));
    let late = node.send(&pay(0, 0, 5));
    node.mine(3);
    assert!(node.receipt(late).is_null() && node.ask("eth_getTransactionByHash", json!([text(late)])).is_object());
    node.mine(1);
    assert_eq!(node.receipt(late)["blockNumber"], "0x5");
    node.devnet.broadcasts(BroadcastFault::Duplicate);
    let twice = node.send(&pay(0, 1, 5));
    node.mine(3);
    assert_eq!(node.receipt(twice)["blockNumber"], "0x6");
    assert_eq!(node.balance(RECEIVER), U256::from(10));
    assert_eq!(node.ask("eth_getTransactionCount", json!([text(account(0)), "pending"])), "0x2");
}

#[test]
fn a_fee_spike_leaves_waiting_what_pays_the_usual_fee() {
    let mut node = Local::new();
    let usual = quantity(&node.ask("eth_gasPrice", json!([])));
    node.devnet.fee_factor(100);
    assert_eq!(quantity(&node.ask("eth_gasPrice", json!([]))), usual * U256::from(100));
    let hash = node.send(&pay(0, 0, 5));
    node.mine(1);
    assert!(node.receipt(hash).is_null());
    let dear = {
        let s = setting(0);
        TxEip1559 { max_fee_per_gas: 1_000 * GWEI, max_priority_fee_per_gas: 100 * GWEI, ..cases_evm::dynamic(&s) }
    };
    let dear = node.send(&signed(Key::numbered(0), dear));
    assert!(node.ask("eth_getTransactionByHash", json!([text(hash)])).is_null());
    assert_eq!(node.ask("eth_getTransactionByHash", json!([text(dear)]))["hash"], text(dear));
    node.mine(1);
    assert!(node.receipt(dear).is_object());
    assert!(node.ask("eth_getTransactionByHash", json!([text(hash)])).is_null());
    node.devnet.fee_factor(1);
    node.mine(1);
    let fee = quantity(&node.ask("eth_getBlockByNumber", json!(["latest", false]))["baseFeePerGas"]);
    assert!(fee < U256::from(GWEI));
}

#[test]
fn a_reorganisation_replaces_empty_blocks_by_others() {
    let mut node = Local::new();
    node.mine(3);
    let old = [node.devnet.block_hash(2), node.devnet.block_hash(3)];
    node.devnet.reorg(2, Fate::Moved, &[], NOW).unwrap();
    assert_ne!(node.devnet.block_hash(2), old[0]);
    assert_ne!(node.devnet.block_hash(3), old[1]);
    let second = node.devnet.block_hash(3);
    node.devnet.reorg(2, Fate::Moved, &[], NOW).unwrap();
    assert_ne!(node.devnet.block_hash(3), second);
}

#[test]
fn a_reorganisation_undoes_all_that_a_block_did_to_one_account() {
    let mut node = Local::new();
    for nonce in 0..3 {
        node.send(&pay_tokens(0, nonce, RECEIVER, 5));
    }
    node.send(&pay(1, 0, 7));
    node.mine(1);
    assert_eq!(node.tokens(RECEIVER), U256::from(15));
    let before = json!([text(account(0)), "0x0"]);
    assert_eq!(node.ask("eth_getTransactionCount", before.clone()), "0x0");
    assert_eq!(quantity(&node.ask("eth_getBalance", before)), U256::from(10_000 * COIN));
    let tokens = node.ask("eth_call", json!([{"to": text(TETHER), "data": text(balance_of(account(0)))}, "0x0"]));
    assert_eq!(tokens.as_str().unwrap().parse::<U256>().unwrap(), U256::from(1_000_000 * COIN));
    node.devnet.reorg(1, Fate::Dropped, &[], NOW).unwrap();
    assert_eq!((node.tokens(RECEIVER), node.balance(RECEIVER)), (U256::ZERO, U256::ZERO));
    assert_eq!(node.tokens(account(0)), U256::from(1_000_000 * COIN));
    assert_eq!(node.balance(account(0)), U256::from(10_000 * COIN));
    assert_eq!(node.ask("eth_getTransactionCount", json!([text(account(0)), "latest"])), "0x0");
}

#[test]
fn a_fee_spike_holds_without_a_base_fee_too() {
    let mut node = Local::with(Settings::bsc());
    let with_price = |gas_price: u128| {
        let s = setting(0);
        signed(s.key, TxLegacy { gas_price, ..cases_evm::legacy(&s) })
    };
    node.devnet.fee_factor(10);
    let usual = node.send(&with_price(50_000_000));
    node.mine(2);
    assert!(node.receipt(usual).is_null());
    let dear = node.send(&with_price(500_000_000));
    node.mine(1);
    assert!(node.receipt(dear).is_object());
}

#[test]
fn what_its_sender_can_no_longer_pay_leaves_the_pool() {
    let mut node = Local::new();
    let s = setting(50);
    node.endow(account(50), COIN);
    let value = U256::from(COIN / 10 * 6);
    // There is no nonce 1, so the later one is never tried.
    let later = node.send(&signed(s.key, TxLegacy { value, nonce: 2, ..cases_evm::legacy(&s) }));
    node.send(&signed(s.key, TxLegacy { value, ..cases_evm::legacy(&s) }));
    assert!(node.ask("eth_getTransactionByHash", json!([text(later)])).is_object());
    node.mine(1);
    assert!(node.ask("eth_getTransactionByHash", json!([text(later)])).is_null());
}

#[test]
fn a_reorganisation_takes_out_of_the_pool_what_it_makes_impossible() {
    let mut node = Local::new();
    node.mine(1);
    let waiting = node.send(&pay(0, 0, 5));
    node.devnet.reorg(1, Fate::Moved, &[pay(0, 0, 6)], NOW).unwrap();
    assert!(node.ask("eth_getTransactionByHash", json!([text(waiting)])).is_null());
}

#[test]
fn what_a_fee_spike_keeps_from_moving_waits() {
    let mut node = Local::new();
    let hash = node.send(&pay(0, 0, 5));
    node.mine(1);
    node.devnet.fee_factor(100);
    node.devnet.reorg(1, Fate::Moved, &[], NOW).unwrap();
    assert!(node.receipt(hash).is_null());
    assert!(node.ask("eth_getTransactionByHash", json!([text(hash)])).is_object());
    node.devnet.fee_factor(1);
    node.mine(1);
    assert!(node.receipt(hash).is_object());
}

#[test]
fn a_reorganisation_moves_transactions_in_their_order() {
    let mut node = Local::new();
    let mut hashes = Vec::new();
    for nonce in 0..3 {
        hashes.push(node.send(&pay(0, nonce, 5)));
        node.mine(1);
    }
    node.devnet.reorg(3, Fate::Moved, &[], NOW).unwrap();
    let block = node.ask("eth_getBlockByNumber", json!(["0x4", false]));
    assert_eq!(block["transactions"], json!(hashes.into_iter().map(text).collect::<Vec<_>>()));
}
