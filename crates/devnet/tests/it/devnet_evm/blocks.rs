//! What there is at height 0, what mining does, and the past.

use super::*;

#[test]
fn the_ten_accounts_own_coins_and_tokens() {
    let mut node = Local::new();
    let accounts = node.ask("eth_accounts", json!([]));
    assert_eq!(accounts.as_array().unwrap().len(), 10);
    assert_eq!(accounts[0], "0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266");
    for number in 0..10 {
        assert_eq!(node.balance(account(number)), U256::from(10_000 * COIN));
        assert_eq!(node.tokens(account(number)), U256::from(1_000_000 * COIN));
    }
    assert!(node.ask("eth_getCode", json!([text(TETHER), "latest"])).as_str().unwrap().len() > 1_000);
    assert_eq!(node.ask("eth_getCode", json!([text(account(0)), "latest"])), "0x");
    assert_eq!(node.ask("eth_chainId", json!([])), "0x38");
    assert_eq!(node.ask("net_version", json!([])), "56");
    assert_eq!(node.ask("eth_getTransactionCount", json!([text(FAUCET), "latest"])), "0x0");
}

#[test]
fn no_coin_appears_or_vanishes_but_for_the_burnt_base_fee() {
    let mut node = Local::new();
    let hash = node.send(&pay(0, 0, 5));
    let failed = node.send(&pay_tokens(1, 0, RECEIVER, 2_000_000 * COIN));
    node.mine(1);
    let (ok, bad) = (node.receipt(hash), node.receipt(failed));
    assert_eq!((ok["status"].as_str(), bad["status"].as_str()), (Some("0x1"), Some("0x0")));
    assert_eq!(bad["logs"], json!([]));
    let block = node.ask("eth_getBlockByNumber", json!(["latest", false]));
    let miner: Address = block["miner"].as_str().unwrap().parse().unwrap();
    let paid = |receipt: &Value| quantity(&receipt["gasUsed"]) * quantity(&receipt["effectiveGasPrice"]);
    let burnt = quantity(&block["gasUsed"]) * quantity(&block["baseFeePerGas"]);
    assert_eq!(node.balance(account(0)), U256::from(10_000 * COIN - 5) - paid(&ok));
    // What failed has moved nothing, and is paid for all the same.
    assert_eq!(node.balance(account(1)), U256::from(10_000 * COIN) - paid(&bad));
    assert_eq!(node.tokens(account(1)), U256::from(1_000_000 * COIN));
    assert_eq!(node.balance(miner), paid(&ok) + paid(&bad) - burnt);
    assert_eq!(node.balance(RECEIVER), U256::from(5));
}

#[test]
fn a_block_is_what_its_header_says() {
    use alloy_consensus::{Header, TxEnvelope, proofs};
    use alloy_eips::eip2718::Decodable2718;
    let mut node = Local::new();
    let raws = [pay(0, 0, 5), pay_tokens(1, 0, RECEIVER, 7), pay(0, 1, 6)];
    for raw in &raws {
        node.send(raw);
    }
    node.mine(1);
    let block = node.ask("eth_getBlockByNumber", json!(["0x1", true]));
    let word = |name: &str| block[name].as_str().unwrap().parse::<B256>().unwrap();
    let small = |name: &str| u64::try_from(quantity(&block[name])).unwrap();
    let header = Header {
        parent_hash: word("parentHash"),
        beneficiary: block["miner"].as_str().unwrap().parse().unwrap(),
        state_root: word("stateRoot"),
        transactions_root: word("transactionsRoot"),
        receipts_root: word("receiptsRoot"),
        logs_bloom: block["logsBloom"].as_str().unwrap().parse().unwrap(),
        number: 1,
        gas_limit: small("gasLimit"),
        gas_used: small("gasUsed"),
        timestamp: small("timestamp"),
        extra_data: block["extraData"].as_str().unwrap().parse().unwrap(),
        base_fee_per_gas: Some(small("baseFeePerGas")),
        withdrawals_root: Some(word("withdrawalsRoot")),
        blob_gas_used: Some(0),
        excess_blob_gas: Some(0),
        parent_beacon_block_root: Some(word("parentBeaconBlockRoot")),
        requests_hash: Some(word("requestsHash")),
        ..Header::default()
    };
    assert_eq!(header.hash_slow(), word("hash"));
    let find = |hash: &str| raws.iter().find(|raw| keccak256(raw).to_string() == hash).unwrap();
    let shown = block["transactions"].as_array().unwrap();
    let sent: Vec<_> = shown.iter().map(|one| find(one["hash"].as_str().unwrap())).collect();
    let sent: Vec<_> = sent.iter().map(|raw| TxEnvelope::decode_2718_exact(raw).unwrap()).collect();
    assert_eq!(sent.len(), 3);
    assert_eq!(proofs::calculate_transaction_root(&sent), word("transactionsRoot"));
    // The bloom holds the token's event, and the receipts add up.
    assert!(header.logs_bloom.contains_input(alloy_primitives::BloomInput::Raw(TETHER.as_slice())));
    let receipts = node.ask("eth_getBlockReceipts", json!(["0x1"]));
    let last = &receipts.as_array().unwrap()[2];
    assert_eq!(last["cumulativeGasUsed"], block["gasUsed"]);
    assert_eq!(word("parentHash").to_string(), node.ask("eth_getBlockByNumber", json!(["0x0", false]))["hash"]);
}

#[test]
fn who_pays_more_comes_first_and_nonces_keep_their_order() {
    let mut node = Local::new();
    let with_tip = |number: u32, nonce: u64, tip: u128| {
        let s = setting(number);
        signed(s.key, TxEip1559 { nonce, max_priority_fee_per_gas: tip, ..cases_evm::dynamic(&s) })
    };
    let cheap = node.send(&with_tip(0, 0, GWEI));
    let dear_but_later = node.send(&with_tip(0, 1, 9 * GWEI));
    let dear = node.send(&with_tip(1, 0, 5 * GWEI));
    let same_but_later = node.send(&with_tip(2, 0, GWEI));
    node.mine(1);
    let block = node.ask("eth_getBlockByNumber", json!(["latest", false]));
    assert_eq!(block["transactions"], json!([text(dear), text(cheap), text(dear_but_later), text(same_but_later)]));
}

#[test]
fn a_block_holds_no_more_gas_than_its_limit() {
    let mut node = Local::with(Settings { gas_limit: 50_000, ..Settings::default() });
    let hashes: Vec<_> = (0..5).map(|number| node.send(&pay(number, 0, 1))).collect();
    node.mine(1);
    let mined = hashes.iter().filter(|hash| !node.receipt(**hash).is_null()).count();
    assert_eq!(mined, 2);
    node.mine(2);
    assert!(hashes.iter().all(|hash| node.receipt(*hash).is_object()));
}

#[test]
fn the_base_fee_follows_eip_1559_down_to_its_floor() {
    let mut node = Local::new();
    node.mine(1);
    let fee = |node: &mut Local, height: &str| {
        quantity(&node.ask("eth_getBlockByNumber", json!([height, false]))["baseFeePerGas"])
    };
    assert_eq!(fee(&mut node, "0x0"), U256::from(GWEI));
    assert_eq!(fee(&mut node, "0x1"), U256::from(875_000_000));
    node.mine(100);
    assert_eq!(fee(&mut node, "latest"), U256::from(100_000_000));
    let mut bsc = Local::with(Settings::bsc());
    bsc.mine(3);
    assert_eq!(fee(&mut bsc, "latest"), U256::ZERO);
    assert_eq!(bsc.ask("eth_gasPrice", json!([])), format!("{:#x}", 50_000_000));
    let cheap = {
        let s = setting(0);
        signed(s.key, TxLegacy { gas_price: 49_999_999, ..cases_evm::legacy(&s) })
    };
    let (code, message) = bsc.error("eth_sendRawTransaction", json!([text(Bytes::from(cheap))]));
    assert_eq!((code, &message[..23]), (-32_000, "transaction underpriced"));
}

#[test]
fn gifts_come_in_the_next_block_as_real_transfers() {
    let mut node = Local::new();
    let someone = Address::repeat_byte(0xab);
    let amount = RawAmount::from_u256(U256::from(123));
    node.devnet.fund(&someone.to_string(), None, amount, NOW).unwrap();
    node.devnet.fund(&someone.to_string(), Some("usdt"), amount, NOW).unwrap();
    node.devnet.fund(&someone.to_string(), Some(&TETHER.to_string()), amount, NOW).unwrap();
    assert_eq!(node.balance(someone), U256::ZERO);
    node.devnet.fee_factor(1_000_000);
    node.mine(1);
    assert_eq!(node.balance(someone), U256::from(123));
    assert_eq!(node.tokens(someone), U256::from(246));
    let logs = node.ask("eth_getLogs", json!([{"fromBlock": "0x1", "address": text(TETHER)}]));
    assert_eq!(logs.as_array().unwrap().len(), 2);
    let bad = [("0x12", None), ("bc1q", None), ("0xF39fd6e51aad88F6F4ce6aB8827279cffFb92266", None)];
    let bad = bad.into_iter().chain([("0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266", Some("DOGE"))]);
    for (address, token) in bad {
        assert!(node.devnet.fund(address, token, amount, NOW).is_err(), "{address} {token:?}");
    }
    assert!(node.devnet.fund(&someone.to_string(), Some("USDT"), RawAmount::MAX, NOW).is_err());
    assert!(node.devnet.fund(&someone.to_string(), None, RawAmount::MAX, NOW).is_err());
}

#[test]
fn the_same_orders_make_the_same_chain() {
    let hash = || {
        let mut node = Local::new();
        for number in 0..10 {
            node.send(&pay(number, 0, 5));
        }
        node.mine(3);
        node.devnet.reorg(2, Fate::Moved, &[], NOW).unwrap();
        node.devnet.block_hash(4).unwrap()
    };
    assert_eq!(hash(), hash());
}

// The past.

#[test]
fn the_recent_past_can_be_asked_and_the_older_cannot() {
    let mut node = Local::with(Settings { history: 10, ..Settings::default() });
    for nonce in 0..20 {
        node.send(&pay(0, nonce, 1));
        node.send(&pay_tokens(1, nonce, RECEIVER, 1));
        node.mine(1);
    }
    for height in 10..=20_u64 {
        let at = format!("{height:#x}");
        assert_eq!(quantity(&node.ask("eth_getBalance", json!([text(RECEIVER), at]))), U256::from(height));
        assert_eq!(quantity(&node.ask("eth_getTransactionCount", json!([text(account(0)), at]))), U256::from(height));
        let tokens = node.ask("eth_call", json!([{"to": text(TETHER), "input": text(balance_of(RECEIVER))}, at]));
        assert_eq!(tokens.as_str().unwrap().parse::<U256>().unwrap(), U256::from(height));
    }
    let (code, message) = node.error("eth_getBalance", json!([text(RECEIVER), "0x9"]));
    assert!(code == -32_000 && message.starts_with("missing trie node"), "{message}");
    assert_eq!(node.error("eth_getBalance", json!([text(RECEIVER), "0x15"])), (-32_000, "header not found".to_owned()));
    // The journals are bounded, and so is a reorganisation.
    assert!(node.devnet.reorg(11, Fate::Dropped, &[], NOW).is_err());
    assert_eq!(node.devnet.height(), 20);
    node.devnet.reorg(10, Fate::Dropped, &[], NOW).unwrap();
    assert_eq!(node.balance(RECEIVER), U256::from(10));
}

#[test]
fn old_blocks_stay_when_their_state_is_gone() {
    let mut node = Local::with(Settings { history: 10, ..Settings::default() });
    let hash = node.send(&pay(0, 0, 1));
    node.mine(300);
    assert_eq!(node.receipt(hash)["blockNumber"], "0x1");
    assert!(node.ask("eth_getBlockByNumber", json!(["0x1", true]))["transactions"][0].is_object());
    for height in [290_u64, 291, 300] {
        node.ask("eth_getBalance", json!([text(RECEIVER), format!("{height:#x}")]));
    }
    assert!(node.error("eth_getBalance", json!([text(RECEIVER), "0x121"])).1.starts_with("missing trie node"));
}
