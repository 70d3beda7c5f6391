//! The devnet's TRON chain, through its wire.

mod costs;
mod driven;
mod faults;

use bitcoin::hashes::{Hash, sha256};
use devnet::tron::{PREFUND, Settings, TOKEN, TronDevnet};
use devnet::{Key, Model, View, Wire};
use domain::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::cases_tron::{self, Draft, Expect, Reference, account, base58, call, token_transfer, transfer, trigger};

const EXPIRED: &str = "TRANSACTION_EXPIRATION_ERROR";
const NOW: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

/// A chain, and how one endpoint of it sees it.
struct Net {
    chain: TronDevnet,
    view: View,
}

impl Net {
    fn new(settings: Settings) -> Self {
        let mut chain = TronDevnet::new(settings);
        chain.mine(2, NOW);
        Self { chain, view: View::default() }
    }

    fn ask(&mut self, path: &str, body: Value) -> Value {
        let body = body.to_string();
        let wire = Wire { method: "POST", path, query: "", body: body.as_bytes() };
        let reply = self.chain.answer(&self.view, wire, NOW);
        assert_eq!(reply.status, 200, "{path}");
        serde_json::from_slice(&reply.body).unwrap()
    }

    fn get(&mut self, path: &str, query: &str) -> Value {
        let reply = self.chain.answer(&self.view, Wire { method: "GET", path, query, body: b"" }, NOW);
        serde_json::from_slice(&reply.body).unwrap()
    }

    fn reference(&mut self) -> Reference {
        let block = self.ask("/wallet/getblock", json!({"detail": false}));
        reference_of(&block)
    }

    fn send(&mut self, bytes: &[u8]) -> Value {
        self.ask("/wallet/broadcasthex", json!({"transaction": alloy_primitives::hex::encode(bytes)}))
    }

    /// Signs for the newest block, sends, and returns the id.
    fn pay(&mut self, key: u32, contract: Vec<u8>) -> String {
        let draft = Draft { fee_limit: 100_000_000, ..Draft::of(&self.reference(), contract) };
        let sent = self.send(&draft.signed(key));
        assert_eq!(sent["result"], true, "{sent}");
        sent["txid"].as_str().unwrap().to_owned()
    }

    fn mine(&mut self, blocks: u64) {
        self.chain.mine(blocks, NOW);
    }

    fn info(&mut self, id: &str) -> Value {
        self.ask("/wallet/gettransactioninfobyid", json!({"value": id}))
    }

    fn balance(&mut self, key: u32) -> i64 {
        self.ask("/wallet/getaccount", json!({"address": base58(key), "visible": true}))["balance"]
            .as_i64()
            .unwrap_or(0)
    }

    fn tokens(&mut self, key: u32) -> u64 {
        self.tokens_by("/wallet/triggerconstantcontract", key)
    }

    fn tokens_by(&mut self, path: &str, key: u32) -> u64 {
        let answer = self.ask(
            path,
            json!({"owner_address": base58(0), "contract_address": TOKEN.to_string(), "visible": true,
                "function_selector": "balanceOf(address)",
                "parameter": format!("{:0>64}", alloy_primitives::hex::encode(Key::numbered(key).account()))}),
        );
        u64::from_str_radix(answer["constant_result"][0].as_str().unwrap(), 16).unwrap()
    }
}

fn reference_of(block: &Value) -> Reference {
    let id = alloy_primitives::hex::decode(block["blockID"].as_str().unwrap()).unwrap();
    let raw = &block["block_header"]["raw_data"];
    Reference {
        height: raw["number"].as_u64().unwrap_or(0),
        block: id.try_into().unwrap(),
        time_ms: raw["timestamp"].as_i64().unwrap(),
    }
}

fn unhex(text: &Value) -> Vec<u8> {
    alloy_primitives::hex::decode(text.as_str().unwrap()).unwrap()
}

#[test]
fn every_case_of_the_table_is_taken_or_refused_as_java_tron_does() {
    let table = cases_tron::table();
    assert!(table.len() >= 25);
    for case in table {
        let name = format!("{} ({})", case.name, case.source);
        let mut net = Net::new(Settings::default());
        let bytes = (case.build)(&net.reference());
        let before = (net.balance(0), net.tokens(0), net.balance(1), net.tokens(1));
        let answer = net.send(&bytes);
        let id = answer["txid"].as_str().unwrap().to_owned();
        match case.expect {
            Expect::Mined(ret) => {
                assert_eq!(answer["result"], true, "{name}: {answer}");
                assert_eq!(answer["code"], "SUCCESS", "{name}");
                net.mine(1);
                let mined = net.ask("/wallet/gettransactionbyid", json!({"value": id}));
                assert_eq!(mined["ret"][0]["contractRet"], ret, "{name}: {mined}");
                assert_eq!(net.info(&id)["result"] == "FAILED", ret != "SUCCESS", "{name}");
                // The same bytes again are a duplicate, whatever became of them, until their time is over.
                let again = net.send(&bytes)["code"].clone();
                let over = case.name.starts_with("expires a millisecond");
                assert_eq!(again, if over { EXPIRED } else { "DUP_TRANSACTION_ERROR" }, "{name}");
            }
            Expect::Refused(code, reason) => {
                assert_eq!(answer["result"], false, "{name}: {answer}");
                assert_eq!(answer["code"], code, "{name}: {answer}");
                let message = answer["message"].as_str().unwrap();
                assert!(message.starts_with(&cases_tron::message(code, reason)), "{name}: {message}");
                assert_eq!(net.ask("/wallet/getpendingsize", json!({}))["pendingSize"], 0, "{name}");
                net.mine(1);
                assert_eq!(net.ask("/wallet/gettransactionbyid", json!({"value": id})), json!({}), "{name}");
                let after = (net.balance(0), net.tokens(0), net.balance(1), net.tokens(1));
                assert_eq!(after, before, "{name}");
            }
        }
    }
}

#[test]
fn what_waits_in_the_pool_is_a_duplicate_and_spends_what_it_takes() {
    let mut net = Net::new(Settings::default());
    let most = Draft::of(&net.reference(), transfer(0, 1, PREFUND - 10_000_000)).signed(0);
    assert_eq!(net.send(&most)["code"], "SUCCESS");
    assert_eq!(net.send(&most)["code"], "DUP_TRANSACTION_ERROR");
    let too_much = Draft::of(&net.reference(), transfer(0, 2, 20_000_000)).signed(0);
    assert_eq!(net.send(&too_much)["code"], "CONTRACT_VALIDATE_ERROR");
    // The balance that is told is that of the newest block.
    assert_eq!(net.balance(0), PREFUND);
    net.mine(1);
    assert_eq!(net.balance(1), PREFUND + PREFUND - 10_000_000);
}

/// A trap for whoever believes that what is refused as expired was never mined.
#[test]
fn a_mined_transaction_that_is_sent_again_after_its_time_is_called_expired() {
    let mut net = Net::new(Settings::default());
    let draft = Draft::of(&net.reference(), transfer(0, 1, 5));
    net.send(&draft.signed(0));
    net.mine(1);
    assert_eq!(net.send(&draft.signed(0))["code"], "DUP_TRANSACTION_ERROR");
    net.mine(20);
    assert_eq!(net.send(&draft.signed(0))["code"], EXPIRED);
    assert_eq!(net.info(&alloy_primitives::hex::encode(draft.id()))["blockNumber"], 4);
}

#[test]
fn the_json_form_is_taken_like_the_bytes_and_its_messages_are_hex() {
    let mut net = Net::new(Settings::default());
    for visible in [false, true] {
        let (owner, to) = if visible { (base58(0), base58(1)) } else { (hex_of(0), hex_of(1)) };
        let made = net.ask(
            "/wallet/createtransaction",
            json!({"owner_address": owner, "to_address": to, "amount": 7, "visible": visible}),
        );
        assert_eq!(made["visible"], visible);
        let id = sha256::Hash::hash(&unhex(&made["raw_data_hex"])).to_byte_array();
        assert_eq!(unhex(&made["txID"]), id);
        let (rs, odd) = Key::numbered(0).sign(id);
        let mut signed = made.clone();
        signed["signature"] = json!([alloy_primitives::hex::encode([&rs[..], &[u8::from(odd)]].concat())]);
        let mut bad = signed.clone();
        bad["raw_data"]["contract"][0]["parameter"]["value"]["amount"] = json!(8);
        let refused = net.ask("/wallet/broadcasttransaction", bad);
        assert_eq!(refused["code"], "SIGERROR");
        let message = refused["message"].as_str().unwrap();
        let message = if visible { message.as_bytes().to_vec() } else { unhex(&refused["message"]) };
        assert!(message.starts_with(b"Validate signature error: "));
        let taken = net.ask("/wallet/broadcasttransaction", signed);
        assert_eq!(taken, json!({"result": true, "txid": made["txID"]}));
        net.mine(1);
    }
    assert_eq!(net.balance(1), PREFUND + 14);
}

fn hex_of(key: u32) -> String {
    alloy_primitives::hex::encode(account(key))
}

#[test]
fn a_block_id_is_the_hash_of_its_header_with_the_height_in_front() {
    let mut net = Net::new(Settings::default());
    net.pay(0, transfer(0, 1, 5));
    net.pay(1, token_transfer(1, 2, 5));
    net.pay(2, transfer(2, 3, 5));
    net.mine(1);
    let mut parent = Value::Null;
    for height in 0..=4 {
        let block = net.ask("/wallet/getblockbynum", json!({"num": height}));
        let raw = &block["block_header"]["raw_data"];
        let mut header = Vec::new();
        let mut number = |field: u8, value: i64| {
            if value != 0 {
                header.push(field << 3);
                let mut value = value;
                while value >= 128 {
                    header.push(u8::try_from(value % 128).unwrap() | 128);
                    value /= 128;
                }
                header.push(u8::try_from(value).unwrap());
            }
        };
        number(1, raw["timestamp"].as_i64().unwrap());
        let bytes = |header: &mut Vec<u8>, field: u8, value: &[u8]| {
            header.extend([field << 3 | 2, u8::try_from(value.len()).unwrap()]);
            header.extend(value);
        };
        bytes(&mut header, 2, &unhex(&raw["txTrieRoot"]));
        bytes(&mut header, 3, &unhex(&raw["parentHash"]));
        if height > 0 {
            header.extend([7 << 3, u8::try_from(height).unwrap()]);
        } else {
            assert_eq!(raw.get("number"), None, "java-tron leaves out a zero");
        }
        bytes(&mut header, 9, &unhex(&raw["witness_address"]));
        header.extend([10 << 3, u8::try_from(raw["version"].as_u64().unwrap()).unwrap()]);
        let mut id = sha256::Hash::hash(&header).to_byte_array();
        id[..8].copy_from_slice(&(height as u64).to_be_bytes());
        assert_eq!(unhex(&block["blockID"]), id, "block {height}");
        if height > 0 {
            assert_eq!(raw["parentHash"], parent);
        }
        parent = block["blockID"].clone();
    }
}

#[test]
fn the_root_of_a_block_is_the_merkle_root_of_its_transactions() {
    let mut net = Net::new(Settings::default());
    for key in 0..3 {
        net.pay(key, transfer(key, key + 4, 5));
    }
    net.mine(1);
    let block = net.ask("/wallet/getnowblock", json!({}));
    let leaves: Vec<_> = (0..3)
        .map(|place| {
            let transaction = &block["transactions"][place];
            let (raw, signature) = (unhex(&transaction["raw_data_hex"]), unhex(&transaction["signature"][0]));
            let mut bytes = vec![0x0a];
            assert!((128..256).contains(&raw.len()));
            bytes.extend([u8::try_from(raw.len() % 128).unwrap() | 128, 1]);
            bytes.extend(raw);
            bytes.extend([0x12, 65]);
            bytes.extend(signature);
            // ret: contractRet SUCCESS.
            bytes.extend([0x2a, 2, 0x18, 1]);
            sha256::Hash::hash(&bytes).to_byte_array()
        })
        .collect();
    let pair = sha256::Hash::hash(&[leaves[0], leaves[1]].concat()).to_byte_array();
    let root = sha256::Hash::hash(&[pair, leaves[2]].concat()).to_byte_array();
    assert_eq!(unhex(&block["block_header"]["raw_data"]["txTrieRoot"]), root);
}

#[test]
fn solidity_calls_see_only_what_is_solidified() {
    let mut net = Net::new(Settings::default());
    let id = net.pay(0, transfer(0, 50, 5_000_000));
    let token_id = net.pay(1, token_transfer(1, 50, 9));
    net.mine(1);
    let solid = |net: &mut Net, id: &str| net.ask("/walletsolidity/gettransactioninfobyid", json!({"value": id}));
    assert_eq!(net.info(&id)["id"], id.as_str());
    for _ in 0..19 {
        assert_eq!(solid(&mut net, &id), json!({}));
        assert_eq!(net.ask("/walletsolidity/getaccount", json!({"address": hex_of(50)})), json!({}));
        assert_eq!(net.tokens_by("/walletsolidity/triggerconstantcontract", 50), 0);
        assert_eq!(net.ask("/walletsolidity/getblockbynum", json!({"num": 4})), json!({}));
        assert_eq!(net.ask("/walletsolidity/gettransactioninfobyblocknum", json!({"num": 4})), json!([]));
        net.mine(1);
    }
    assert_eq!(solid(&mut net, &id), net.info(&id));
    assert_eq!(solid(&mut net, &token_id)["log"][0]["address"], alloy_primitives::hex::encode(TOKEN.0));
    let account = net.ask("/walletsolidity/getaccount", json!({"address": hex_of(50)}));
    assert_eq!(account["balance"], 5_000_000);
    assert_eq!(net.tokens_by("/walletsolidity/triggerconstantcontract", 50), 9);
    let now = net.ask("/walletsolidity/getnowblock", json!({}));
    assert_eq!(now["block_header"]["raw_data"]["number"], net.chain.height() - 19);
    assert_eq!(now["transactions"].as_array().unwrap().len(), 2);
}

#[test]
fn unknown_things_are_empty_objects_and_bad_ones_are_errors() {
    let mut net = Net::new(Settings::default());
    for (path, body) in [
        ("/wallet/getblockbynum", json!({"num": 5})),
        ("/wallet/getblockbynum", json!({"num": -1})),
        ("/wallet/getblockbyid", json!({"value": "00".repeat(32)})),
        ("/wallet/getblock", json!({"id_or_num": "99"})),
        ("/wallet/getblockbylimitnext", json!({"startNum": 0, "endNum": 101})),
        ("/wallet/getblockbylatestnum", json!({"num": 100})),
        ("/wallet/gettransactionbyid", json!({"value": "zz"})),
        ("/wallet/gettransactioninfobyid", json!({"value": "00".repeat(32)})),
        ("/wallet/gettransactioninfobyblocknum", json!({"num": 0})),
        ("/wallet/gettransactionfrompending", json!({"value": "00".repeat(32)})),
        ("/wallet/getaccount", json!({"address": hex_of(77)})),
        ("/wallet/getaccountresource", json!({"address": hex_of(77)})),
        ("/wallet/getcontract", json!({"value": hex_of(0)})),
    ] {
        assert_eq!(net.ask(path, body), json!({}), "{path}");
    }
    for (path, body, class) in [
        ("/wallet/getaccount", json!({"address": base58(0)}), "JsonFormat$ParseException"),
        ("/wallet/getblockbynum", json!({"num": "x"}), "java.lang.NumberFormatException"),
        ("/wallet/getblock", json!({"id_or_num": "x"}), "java.lang.NumberFormatException"),
        ("/wallet/getnowblock", json!([1]), "com.alibaba.fastjson.JSONException"),
        ("/wallet/broadcasttransaction", json!({}), "java.lang.NullPointerException"),
        ("/wallet/broadcasthex", json!({"transaction": "0a05"}), "InvalidProtocolBufferException"),
        (
            "/wallet/createtransaction",
            json!({"owner_address": hex_of(77), "to_address": hex_of(1), "amount": 1}),
            "ContractValidateException : Validate TransferContract error, no OwnerAccount.",
        ),
    ] {
        let answer = net.ask(path, body);
        assert!(answer["Error"].as_str().unwrap().contains(class), "{path}: {answer}");
    }
    let nobody = net.ask(
        "/wallet/triggerconstantcontract",
        json!({"owner_address": hex_of(0), "contract_address": hex_of(1), "function_selector": "decimals()"}),
    );
    assert_eq!(nobody["result"]["code"], "CONTRACT_VALIDATE_ERROR");
    assert_eq!(unhex(&nobody["result"]["message"]), b"Smart contract is not exist.");
}

#[test]
fn blocks_are_found_by_number_id_range_and_from_the_end() {
    let mut net = Net::new(Settings::default());
    net.mine(110);
    let by_number = net.ask("/wallet/getblockbynum", json!({"num": 7}));
    assert_eq!(net.get("/wallet/getblockbynum", "num=7"), by_number);
    assert_eq!(net.ask("/wallet/getblockbyid", json!({"value": by_number["blockID"]})), by_number);
    assert_eq!(net.ask("/wallet/getblock", json!({"id_or_num": "7", "detail": true})), by_number);
    assert_eq!(net.ask("/wallet/getblock", json!({"id_or_num": by_number["blockID"]})), by_number);
    let range = net.ask("/wallet/getblockbylimitnext", json!({"startNum": 7, "endNum": 107}));
    let range = range["block"].as_array().unwrap();
    assert_eq!((range.len(), &range[0]), (100, &by_number));
    // A range ends where the chain does.
    let last = net.ask("/wallet/getblockbylimitnext", json!({"startNum": 113, "endNum": 120}));
    assert_eq!(last["block"].as_array().unwrap().len(), 1);
    let latest = net.ask("/wallet/getblockbylatestnum", json!({"num": 2}));
    assert_eq!(latest["block"][1], net.ask("/wallet/getnowblock", json!({})));
}

#[test]
fn the_same_calls_give_the_same_chain() {
    let chains: Vec<_> = (0..2)
        .map(|_| {
            let mut net = Net::new(Settings::default());
            net.pay(0, token_transfer(0, 1, 40));
            net.mine(2);
            net.chain.block_id(5).unwrap()
        })
        .collect();
    assert_eq!(chains[0], chains[1]);
}

#[test]
fn events_tell_the_logs_newest_first_and_page() {
    let mut net = Net::new(Settings::default());
    for amount in 1..=3 {
        net.pay(0, token_transfer(0, 1, amount));
        net.mine(1);
    }
    let approve = call("095ea7b3", &[&Key::numbered(1).account(), &[100]]);
    let approval = net.pay(0, trigger(0, &cases_tron::token(), 0, &approve));
    net.mine(1);
    let path = format!("/v1/contracts/{TOKEN}/events");
    let page = net.get(&path, "event_name=Transfer&limit=2");
    assert_eq!((&page["success"], &page["meta"]["page_size"]), (&json!(true), &json!(2)));
    assert_eq!(page["data"][0]["result"]["value"], "3");
    assert_eq!(page["data"][0]["result"]["to"], format!("0x{}", &hex_of(1)[2..]));
    assert_eq!(page["data"][0]["_unconfirmed"], true);
    let query = format!("event_name=Transfer&limit=2&fingerprint={}", page["meta"]["fingerprint"].as_str().unwrap());
    let rest = net.get(&path, &query);
    assert_eq!((&rest["data"][0]["result"]["value"], rest["data"].as_array().unwrap().len()), (&json!("1"), 1));
    assert_eq!(rest["meta"].get("fingerprint"), None);
    let oldest = net.get(&path, "order_by=block_timestamp%2Casc&limit=1");
    assert_eq!(oldest["data"][0]["result"]["value"], "1");
    assert_eq!(net.get(&path, "only_confirmed=true")["data"], json!([]));
    let one = net.get(&format!("/v1/transactions/{approval}/events"), "");
    assert_eq!(one["data"][0]["event_name"], "Approval");
    assert_eq!(one["data"][0]["result"]["spender"], format!("0x{}", &hex_of(1)[2..]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Paths that exist, with bodies and queries that nobody would send.
    #[test]
    fn nothing_from_outside_panics(
        call in 0usize..32,
        name in prop::sample::select(vec!["value", "num", "id_or_num", "address", "owner_address", "transaction",
            "startNum", "endNum", "raw_data", "contract_address", "data", "limit", "fingerprint", "visible"]),
        text in ".{0,80}",
        number in any::<i64>(),
        body in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let calls = ["getnowblock", "getblock", "getblockbynum", "getblockbyid", "getblockbylimitnext",
            "getblockbylatestnum", "broadcasttransaction", "broadcasthex", "createtransaction", "triggersmartcontract",
            "triggerconstantcontract", "estimateenergy", "getcontract", "getcontractinfo", "gettransactionbyid",
            "gettransactioninfobyid", "gettransactioninfobyblocknum", "gettransactionfrompending",
            "gettransactionlistfrompending", "getpendingsize", "getaccount", "getaccountresource", "getaccountnet",
            "getchainparameters", "getenergyprices", "getbandwidthprices", "getnodeinfo", "listnodes",
            "validateaddress", "getsignweight", "gettransactioncountbyblocknum", "nosuchcall"];
        let mut net = Net::new(Settings::default());
        let address = hex_of(0);
        let json = json!({"owner_address": address, "to_address": address, "contract_address": address, name: text});
        let numbered = json!({"num": number, "startNum": number, "endNum": number.wrapping_add(3), name: number});
        let hex = json!({"transaction": alloy_primitives::hex::encode(&body), "value": alloy_primitives::hex::encode(&body)});
        let bodies = [json.to_string().into_bytes(), numbered.to_string().into_bytes(), hex.to_string().into_bytes(), body];
        for body in &bodies {
            for family in ["wallet", "walletsolidity", "v1"] {
                let path = format!("/{family}/{}", calls[call]);
                let wire = Wire { method: "POST", path: &path, query: "", body };
                let reply = net.chain.answer(&net.view, wire, NOW);
                prop_assert!(serde_json::from_slice::<Value>(&reply.body).is_ok());
            }
        }
        let query = format!("{name}={text}&num={number}&%");
        for path in [format!("/wallet/{}", calls[call]), format!("/v1/contracts/{text}/events"), text.clone()] {
            let reply = net.chain.answer(&net.view, Wire { method: "GET", path: &path, query: &query, body: b"" }, NOW);
            prop_assert!(serde_json::from_slice::<Value>(&reply.body).is_ok());
        }
    }
}
