//! What can be asked, and how strictly.

use super::*;

#[test]
fn tags_name_blocks() {
    let mut node = Local::new();
    node.mine(100);
    for (tag, number) in [("latest", 100), ("safe", 68), ("finalized", 36), ("earliest", 0)] {
        let block = node.ask("eth_getBlockByNumber", json!([tag, false]));
        assert_eq!(block["number"], format!("{number:#x}"), "{tag}");
    }
    let hash = node.send(&pay(0, 0, 1));
    let pending = node.ask("eth_getBlockByNumber", json!(["pending", false]));
    assert_eq!((pending["number"].as_str(), &pending["transactions"]), (Some("0x65"), &json!([text(hash)])));
    assert!(pending["hash"].is_null());
    let by_hash = json!([text(RECEIVER), {"blockHash": text(node.devnet.block_hash(100).unwrap())}]);
    assert_eq!(node.ask("eth_getBalance", by_hash), "0x0");
}

#[test]
fn logs_are_found_by_range_address_and_topics() {
    let mut node = Local::new();
    let topic = keccak256("Transfer(address,address,uint256)");
    for (number, to) in [(0, 5), (1, 6), (2, 5)] {
        node.send(&pay_tokens(number, 0, account(to), 5));
        node.mine(1);
    }
    let mut count = |filter: Value| node.ask("eth_getLogs", json!([filter])).as_array().unwrap().len();
    let word = |number: u32| account(number).into_word();
    assert_eq!(count(json!({"fromBlock": "0x0"})), 3);
    assert_eq!(count(json!({})), 1);
    assert_eq!(count(json!({"fromBlock": "0x2", "toBlock": "0x2"})), 1);
    assert_eq!(count(json!({"fromBlock": "earliest", "toBlock": "0x63"})), 3);
    assert_eq!(count(json!({"fromBlock": "0x0", "address": text(TETHER), "topics": [text(topic)]})), 3);
    assert_eq!(count(json!({"fromBlock": "0x0", "address": [text(TETHER), text(RECEIVER)]})), 3);
    assert_eq!(count(json!({"fromBlock": "0x0", "address": text(RECEIVER)})), 0);
    assert_eq!(count(json!({"fromBlock": "0x0", "address": []})), 3);
    assert_eq!(count(json!({"fromBlock": "0x0", "topics": [null, null, text(word(5))]})), 2);
    assert_eq!(
        count(
            json!({"fromBlock": "0x0", "topics": [text(topic), [text(word(0)), text(word(1))], [text(word(5)), text(word(6))]]})
        ),
        2
    );
    assert_eq!(count(json!({"fromBlock": "0x0", "topics": [text(word(5))]})), 0);
    assert_eq!(count(json!({"fromBlock": "0x0", "topics": [[], [], [], []]})), 0);
    let hash = node.devnet.block_hash(3).unwrap();
    let logs = node.ask("eth_getLogs", json!([{"blockHash": text(hash), "address": text(TETHER)}]));
    assert_eq!(
        logs[0]["transactionHash"],
        node.ask("eth_getBlockByHash", json!([text(hash), false]))["transactions"][0]
    );
    assert_eq!(logs[0]["logIndex"], "0x0");
    for bad in [
        json!({"fromBlock": "0x3", "toBlock": "0x1"}),
        json!({"fromBlock": "0x0", "toBlock": "0x1388"}),
        json!({"blockHash": text(hash), "fromBlock": "0x1"}),
        json!({"blockHash": text(B256::ZERO)}),
        json!({"address": "0x12"}),
        json!({"topics": [text(topic), text(topic), text(topic), text(topic), text(topic)]}),
        json!({"topics": "x"}),
        json!("x"),
    ] {
        assert!(node.rpc("eth_getLogs", json!([bad])).is_err(), "{bad}");
    }
    let mut small = Local::with(Settings { log_results: 1, ..Settings::default() });
    for nonce in 0..2 {
        small.send(&pay_tokens(0, nonce, RECEIVER, 5));
    }
    small.mine(1);
    assert_eq!(small.error("eth_getLogs", json!([{}])).0, -32_005);
    let receipts = small.ask("eth_getBlockReceipts", json!(["0x1"]));
    assert_eq!(
        (&receipts[0]["logs"][0]["logIndex"], &receipts[1]["logs"][0]["logIndex"]),
        (&json!("0x0"), &json!("0x1"))
    );
}

#[test]
fn an_estimate_is_the_least_gas_that_will_do() {
    let mut node = Local::new();
    let plain = json!([{"from": text(account(0)), "to": text(RECEIVER), "value": "0x1"}]);
    assert_eq!(node.ask("eth_estimateGas", plain), "0x5208");
    let data = transfer(RECEIVER, U256::from(7));
    let gas = quantity(
        &node.ask("eth_estimateGas", json!([{"from": text(account(0)), "to": text(TETHER), "data": text(&data)}])),
    );
    let gas = u64::try_from(gas).unwrap();
    let mut ok = |number: u32, gas_limit: u64| {
        let s = setting(number);
        let transaction = TxLegacy {
            to: TxKind::Call(TETHER),
            value: U256::ZERO,
            gas_limit,
            // Another receiver each time, whose slot is as new.
            input: transfer(Address::repeat_byte(u8::try_from(number).unwrap() + 1), U256::from(7)),
            ..cases_evm::legacy(&s)
        };
        let hash = node.send(&signed(s.key, transaction));
        node.mine(1);
        node.receipt(hash)["status"] == "0x1"
    };
    assert!(ok(1, gas) && !ok(2, gas - 1));
    // All that one has: clearing the slot gives gas back, which must be there before.
    for number in 12..=24_usize {
        let to: U256 = U256::MAX >> (8 * number);
        let data = text(transfer(Address::from_word(to.into()), U256::from(1_000_000 * COIN)));
        // Another limit each time leads the search along another way.
        let limit = format!("{:#x}", 100_000 + 977 * number);
        let call = json!({"from": text(account(0)), "to": text(TETHER), "data": data, "gas": limit});
        let gas = u64::try_from(quantity(&node.ask("eth_estimateGas", json!([call])))).unwrap();
        let with = |gas: u64| json!([{"from": text(account(0)), "to": text(TETHER), "data": data, "gas": format!("{gas:#x}")}, "latest"]);
        let revert = node.error("eth_call", with(gas - 1));
        assert_eq!((node.ask("eth_call", with(gas)), revert.1.as_str()), (json!("0x"), "out of gas"));
    }
    let answer =
        node.error("eth_estimateGas", json!([{"from": text(RECEIVER), "to": text(TETHER), "data": text(&data)}]));
    assert_eq!(answer, (3, "execution reverted: balance is short".to_owned()));
    assert_eq!(
        node.error("eth_call", json!([{"from": text(RECEIVER), "to": text(TETHER), "data": text(&data)}, "latest"])).0,
        3
    );
    let poor = json!([{"from": text(Address::repeat_byte(9)), "to": text(RECEIVER), "value": "0x1"}]);
    assert!(node.error("eth_estimateGas", poor).1.starts_with("insufficient funds"));
    let low = json!([{"from": text(account(0)), "to": text(RECEIVER), "maxFeePerGas": "0x1"}, "latest"]);
    assert_eq!(node.error("eth_call", low).1, "max fee per gas less than block base fee");
}

#[test]
fn a_trace_shows_the_calls_within() {
    let mut node = Local::new();
    let s = setting(0);
    let code = devnet::evm::contract("Disperse").unwrap();
    let deploy =
        TxLegacy { to: TxKind::Create, value: U256::ZERO, input: code, gas_limit: 3_000_000, ..cases_evm::legacy(&s) };
    let deploy = node.send(&signed(s.key, deploy));
    node.mine(1);
    let disperse: Address = node.receipt(deploy)["contractAddress"].as_str().unwrap().parse().unwrap();
    let failed = node.send(&pay_tokens(1, 0, RECEIVER, 2_000_000 * COIN));
    let plain = node.send(&pay(2, 0, 7));
    node.mine(1);
    let options = json!({"tracer": "callTracer"});
    let trace = node.ask("debug_traceTransaction", json!([text(deploy), options]));
    assert_eq!(
        (trace["type"].as_str(), trace["to"].as_str()),
        (Some("CREATE"), Some(format!("{disperse:#x}").as_str()))
    );
    let trace = node.ask("debug_traceTransaction", json!([text(failed), options]));
    assert_eq!(
        (trace["error"].as_str(), trace["revertReason"].as_str()),
        (Some("execution reverted"), Some("balance is short"))
    );
    let block = node.ask("debug_traceBlockByNumber", json!(["0x2", options]));
    let of = |hash: B256| block.as_array().unwrap().iter().find(|one| one["txHash"] == hash.to_string()).unwrap();
    assert_eq!(of(plain)["result"]["value"], "0x7");
    assert_eq!(of(plain)["result"]["gasUsed"], "0x5208");
    assert_eq!(of(failed)["result"], trace);
    assert_eq!(node.error("debug_traceTransaction", json!([text(B256::ZERO), options])).1, "transaction not found");
    assert_eq!(node.error("debug_traceTransaction", json!([text(plain)])).0, -32_000);
}

#[test]
fn fee_history_tells_what_was_paid() {
    let mut node = Local::new();
    node.send(&pay(0, 0, 1));
    node.mine(2);
    let history = node.ask("eth_feeHistory", json!(["0x5", "latest", [0, 50.5, 100]]));
    assert_eq!(history["oldestBlock"], "0x0");
    assert_eq!(history["baseFeePerGas"].as_array().unwrap().len(), 4);
    assert_eq!(history["gasUsedRatio"], json!([0, 0.0007, 0]));
    let tip = format!("{GWEI:#x}");
    assert_eq!(history["reward"][1], json!([tip, tip, tip]));
    assert_eq!(history["reward"][2], json!(["0x0", "0x0", "0x0"]));
    let s = setting(1);
    let generous = TxEip1559 { max_priority_fee_per_gas: 2 * GWEI, ..cases_evm::dynamic(&s) };
    node.send(&signed(s.key, generous));
    node.send(&pay(2, 0, 1));
    node.mine(1);
    let rewards = &node.ask("eth_feeHistory", json!([1, "latest", [50, 51]]))["reward"][0];
    assert_eq!(rewards, &json!([tip, format!("{:#x}", 2 * GWEI)]));
    for bad in [json!(["0x1", "latest", [50, 10]]), json!(["0x1", "latest", [101]]), json!(["0x1", "0x63"])] {
        assert!(node.rpc("eth_feeHistory", bad.clone()).is_err(), "{bad}");
    }
}

#[test]
fn the_envelope_is_json_rpc_2() {
    let mut node = Local::new();
    assert_eq!(node.post("{")["error"]["code"], -32_700);
    assert_eq!(node.post("[]")["error"]["code"], -32_600);
    assert_eq!(node.post("1")["error"]["code"], -32_600);
    assert_eq!(node.post(r#"{"id":1,"method":"eth_chainId"}"#)["error"]["code"], -32_600);
    assert_eq!(node.post(r#"{"jsonrpc":"2.0","id":{},"method":"eth_chainId"}"#)["error"]["code"], -32_600);
    assert_eq!(node.post(r#"{"jsonrpc":"2.0","method":"eth_chainId"}"#), Value::Null);
    let text = r#"[{"jsonrpc":"2.0","id":"a","method":"eth_chainId","params":[]},{"jsonrpc":"2.0","id":null,"method":"nope"},7]"#;
    let batch = node.post(text);
    assert_eq!(batch[0], json!({"jsonrpc": "2.0", "id": "a", "result": "0x38"}));
    assert_eq!(
        batch[1]["error"],
        json!({"code": -32_601, "message": "the method nope does not exist/is not available"})
    );
    assert_eq!(batch[2]["error"]["code"], -32_600);
    let many = format!("[{}]", vec!["1"; 1_001].join(","));
    assert_eq!(node.post(&many)["error"]["message"], "batch too large");
    let wire = Wire { method: "PUT", path: "/", query: "", body: b"" };
    assert_eq!(node.devnet.answer(&View::default(), wire, NOW).status, 405);
    let wire = Wire { method: "POST", path: "/other", query: "", body: b"" };
    assert_eq!(node.devnet.answer(&View::default(), wire, NOW).status, 404);
}

#[test]
fn parameters_are_checked() {
    let mut node = Local::new();
    for (method, params) in [
        ("eth_getBalance", json!([])),
        ("eth_getBalance", json!([text(RECEIVER), "latest", 1])),
        ("eth_getBalance", json!(["0x12", "latest"])),
        ("eth_getBalance", json!([text(RECEIVER), "0x01"])),
        ("eth_getBalance", json!([text(RECEIVER), "0x"])),
        ("eth_getBalance", json!([text(RECEIVER), 1])),
        ("eth_getBalance", json!([text(RECEIVER), "newest"])),
        ("eth_getBalance", json!({"address": text(RECEIVER)})),
        ("eth_getBlockByNumber", json!(["0x10000000000000000", false])),
        ("eth_getBlockByNumber", json!(["latest", "yes"])),
        ("eth_getBlockByHash", json!(["0x1234", false])),
        ("eth_sendRawTransaction", json!(["0x0x1"])),
        ("eth_sendRawTransaction", json!(["01"])),
        ("eth_sendRawTransaction", json!(["0x1"])),
        ("eth_call", json!([{"to": text(TETHER), "value": "1"}, "latest"])),
        ("eth_call", json!([7, "latest"])),
        ("eth_getStorageAt", json!([text(TETHER), "0xzz", "latest"])),
        ("eth_feeHistory", json!(["0x1", "latest", "x"])),
        ("evm_mine", json!([{"blocks": 1_000_000}])),
    ] {
        let (code, message) = node.error(method, params.clone());
        assert_eq!(code, -32_602, "{method} {params}: {message}");
    }
    assert!(node.ask("eth_getBlockByNumber", json!(["0x99", false])).is_null());
    assert!(node.ask("eth_getTransactionReceipt", json!([text(B256::ZERO)])).is_null());
    assert!(node.ask("eth_getTransactionByBlockNumberAndIndex", json!(["0x0", "0x0"])).is_null());
    assert_eq!(node.ask("eth_getStorageAt", json!([text(TETHER), "0x99", "latest"])), format!("0x{:064x}", 0));
}

/// A contract of the folder, deployed by key 9.
fn deploy(node: &mut Local, code: Bytes) -> Address {
    let s = setting(9);
    let nonce =
        u64::try_from(quantity(&node.ask("eth_getTransactionCount", json!([text(account(9)), "latest"])))).unwrap();
    let create = TxKind::Create;
    let transaction =
        TxLegacy { nonce, to: create, value: U256::ZERO, input: code, gas_limit: 3_000_000, ..cases_evm::legacy(&s) };
    let hash = node.send(&signed(s.key, transaction));
    node.mine(1);
    let receipt = node.receipt(hash);
    assert_eq!(receipt["status"], "0x1");
    receipt["contractAddress"].as_str().unwrap().parse().unwrap()
}

#[test]
fn a_trace_tells_payments_that_happened_from_those_that_were_undone() {
    let mut node = Local::new();
    let disperse = deploy(&mut node, devnet::evm::contract("Disperse").unwrap());
    let (kept, undone) = (Address::repeat_byte(0x11), Address::repeat_byte(0x22));
    let mut input = keccak256("pretend(address,address,uint256)")[..4].to_vec();
    for word in [kept.into_word(), undone.into_word(), B256::with_last_byte(5)] {
        input.extend_from_slice(word.as_slice());
    }
    let s = setting(3);
    let to = TxKind::Call(disperse);
    let value = U256::from(10);
    let call = TxLegacy { to, value, input: input.into(), gas_limit: 300_000, ..cases_evm::legacy(&s) };
    let hash = node.send(&signed(s.key, call));
    node.mine(1);
    assert_eq!(node.receipt(hash)["status"], "0x1");
    assert_eq!((node.balance(kept), node.balance(undone)), (U256::from(5), U256::ZERO));
    let trace = node.ask("debug_traceTransaction", json!([text(hash), {"tracer": "callTracer"}]));
    assert!(trace.get("error").is_none());
    let calls = trace["calls"].as_array().unwrap();
    assert_eq!(
        (calls[0]["to"].as_str(), calls[0]["value"].as_str()),
        (Some(format!("{kept:#x}").as_str()), Some("0x5"))
    );
    assert!(calls[0].get("error").is_none());
    // The inner payment has no error of its own: the frame around it was undone.
    assert_eq!(calls[1]["error"], "execution reverted");
    assert_eq!(calls[1]["calls"][0]["to"], format!("{undone:#x}"));
    assert!(calls[1]["calls"][0].get("error").is_none());
    let top = json!([text(hash), {"tracer": "callTracer", "tracerConfig": {"onlyTopCall": true}}]);
    assert!(node.ask("debug_traceTransaction", top).get("calls").is_none());
}

#[test]
fn calls_nested_as_deep_as_gas_allows_can_be_traced() {
    let mut node = Local::new();
    // Copies the nine bytes behind it and returns them; they call themselves with all gas that is left.
    let code = Bytes::from_static(&[
        0x60, 0x09, 0x60, 0x0b, 0x5f, 0x39, 0x60, 0x09, 0x5f, 0xf3, 0x00, 0x5f, 0x5f, 0x5f, 0x5f, 0x5f, 0x30, 0x5a,
        0xf1, 0x00,
    ]);
    let hole = deploy(&mut node, code);
    let s = setting(3);
    let call = TxLegacy { to: TxKind::Call(hole), value: U256::ZERO, gas_limit: 1 << 24, ..cases_evm::legacy(&s) };
    let hash = node.send(&signed(s.key, call));
    node.mine(1);
    // As text: it is nested more deeply than many a JSON reader will follow.
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "debug_traceTransaction", "params": [text(hash), {"tracer": "callTracer"}]
    });
    let body = call.to_string();
    let wire = Wire { method: "POST", path: "/", query: "", body: body.as_bytes() };
    let reply = node.devnet.answer(&node.view, wire, NOW);
    let depth = String::from_utf8(reply.body).unwrap().matches("\"type\":\"CALL\"").count();
    assert!(depth > 200, "{depth}");
}

/// What the names are that a node gives to what it shows.
fn fields(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn anvil_shows_blocks_and_receipts_with_the_same_fields() {
    let mut shown = Vec::new();
    let (mut ours, mut theirs) = (Local::new(), Anvil::osaka(CHAIN_ID));
    let nodes: [&mut dyn Node; 2] = [&mut ours, &mut theirs];
    for node in nodes {
        let s = setting(0);
        let create = TxLegacy {
            to: TxKind::Create,
            value: U256::ZERO,
            input: token_code(U256::from(COIN)),
            gas_limit: 3_000_000,
            ..cases_evm::legacy(&s)
        };
        for raw in [signed(s.key, create), pay(1, 0, 5)] {
            node.rpc("eth_sendRawTransaction", json!([text(Bytes::from(raw))])).unwrap();
        }
        node.rpc("evm_mine", json!([])).unwrap();
        let block = node.rpc("eth_getBlockByNumber", json!(["0x1", true])).unwrap();
        let receipts = node.rpc("eth_getBlockReceipts", json!(["0x1"])).unwrap();
        let of =
            |list: &Value, kind: &str| list.as_array().unwrap().iter().find(|one| one["type"] == kind).unwrap().clone();
        let legacy = of(&receipts, "0x0");
        shown.push([
            of(&block["transactions"], "0x0"),
            of(&block["transactions"], "0x2"),
            legacy["logs"][0].clone(),
            legacy,
            block,
        ]);
    }
    // The same transaction is the same on both.
    for field in ["hash", "v", "r", "s", "input", "nonce", "from", "to", "value", "gas", "chainId", "type"] {
        for which in [0, 1] {
            assert_eq!(shown[0][which][field], shown[1][which][field], "{field}");
        }
    }
    for field in ["gasUsed", "contractAddress", "status", "logsBloom", "from", "to"] {
        assert_eq!(shown[0][3][field], shown[1][3][field], "{field}");
    }
    for field in ["address", "topics", "data"] {
        assert_eq!(shown[0][2][field], shown[1][2][field], "{field}");
    }
    assert_eq!(shown[0][4]["transactionsRoot"], shown[1][4]["transactionsRoot"]);
    assert_eq!(shown[0][4]["receiptsRoot"], shown[1][4]["receiptsRoot"]);
    for (ours, theirs) in shown[0].iter().zip(&shown[1]) {
        let missing: Vec<_> = fields(theirs).into_iter().filter(|name| ours.get(name).is_none()).collect();
        let known = ["totalDifficulty", "blobGasPrice", "blockTimestamp"];
        assert!(missing.iter().all(|name| known.contains(name)), "missing: {missing:?}");
    }
}

mod anything {
    use proptest::prelude::*;

    use super::*;

    fn value() -> impl Strategy<Value = Value> {
        let word = prop_oneof![
            Just(json!(null)),
            Just(json!(true)),
            Just(json!("latest")),
            Just(json!("0x0")),
            Just(json!("0x1")),
            Just(json!(text(TETHER))),
            Just(json!(text(B256::ZERO))),
            any::<i64>().prop_map(|number| json!(number)),
            any::<u64>().prop_map(|number| json!(format!("{number:#x}"))),
            "0x[0-9a-f]{0,70}".prop_map(|text| json!(text)),
        ];
        let name = prop_oneof![
            Just("to"),
            Just("from"),
            Just("data"),
            Just("value"),
            Just("gas"),
            Just("gasPrice"),
            Just("fromBlock"),
            Just("toBlock"),
            Just("blockHash"),
            Just("topics"),
            Just("address"),
            Just("tracer"),
            Just("maxFeePerGas"),
            Just("accessList"),
            Just("blockNumber"),
            Just("blocks"),
        ];
        word.prop_recursive(3, 12, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
                prop::collection::vec((name.clone(), inner), 0..4)
                    .prop_map(|fields| fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
            ]
        })
    }

    const METHODS: [&str; 20] = [
        "eth_getBlockByNumber",
        "eth_getBlockByHash",
        "eth_getBlockReceipts",
        "eth_getTransactionByHash",
        "eth_getTransactionReceipt",
        "eth_getTransactionByBlockNumberAndIndex",
        "eth_getTransactionCount",
        "eth_getBalance",
        "eth_getCode",
        "eth_getStorageAt",
        "eth_call",
        "eth_estimateGas",
        "eth_gasPrice",
        "eth_feeHistory",
        "eth_sendRawTransaction",
        "eth_getLogs",
        "debug_traceTransaction",
        "debug_traceBlockByNumber",
        "eth_getBlockTransactionCountByNumber",
        "eth_syncing",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn any_question_gets_an_answer(
            calls in prop::collection::vec((0..METHODS.len(), prop::collection::vec(value(), 0..4)), 1..60),
            lag in 0..4_u64,
            contradict in prop::option::of(0..5_u64),
        ) {
            let mut node = Local::new();
            node.send(&pay_tokens(0, 0, RECEIVER, 5));
            node.mine(2);
            node.view = View { lag, lie: Lie::Inflated, contradict };
            for (method, params) in calls {
                let call = json!({"jsonrpc": "2.0", "id": 1, "method": METHODS[method], "params": params});
                let answer = node.post(&call.to_string());
                prop_assert!(answer.get("result").is_some() != answer.get("error").is_some(), "{call}: {answer}");
            }
        }

        #[test]
        fn any_bytes_get_an_answer(body in prop::collection::vec(any::<u8>(), 0..200), at in 0..200_usize, byte: u8) {
            let mut node = Local::new();
            let ask = |node: &mut Local, body: &[u8]| {
                node.devnet.answer(&View::default(), Wire { method: "POST", path: "/", query: "", body }, NOW)
            };
            ask(&mut node, &body);
            let mut raw = pay_tokens(0, 0, RECEIVER, 5);
            let at = at % raw.len();
            raw[at] ^= byte;
            let call = json!({
                "jsonrpc": "2.0", "id": 1, "method": "eth_sendRawTransaction", "params": [text(Bytes::from(raw))]
            });
            ask(&mut node, call.to_string().as_bytes());
            node.mine(1);
        }
    }
}
