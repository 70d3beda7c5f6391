//! Bandwidth, energy, and what the token does.

use devnet::tron::{ACCOUNT_BANDWIDTH_FEE, ACCOUNT_FEE, ENERGY_TO_HOLDER, ENERGY_TO_NEW, MEMO_FEE, Returns};

use super::*;

#[test]
fn bandwidth_is_free_up_to_six_hundred_bytes_a_day_and_burned_beyond() {
    let mut net = Net::new(Settings::default());
    let mut usages = Vec::new();
    for amount in 1..=3 {
        let id = net.pay(0, transfer(0, 1, amount));
        net.mine(1);
        let info = net.info(&id);
        usages.push((info["receipt"]["net_usage"].as_i64(), info["fee"].as_i64()));
    }
    let Some(bytes) = usages[0].0 else { panic!("the first was not free") };
    assert!((260..300).contains(&bytes), "{bytes}");
    assert_eq!(usages, [(Some(bytes), None), (Some(bytes), None), (None, Some(bytes * 1_000))]);
    assert_eq!(net.balance(0), PREFUND - 6 - bytes * 1_000);
    let resources = net.ask("/wallet/getaccountresource", json!({"address": hex_of(0)}));
    assert_eq!(resources["freeNetLimit"], 600);
    // A little comes back with every block.
    assert!((2 * bytes - 4..2 * bytes).contains(&resources["freeNetUsed"].as_i64().unwrap()), "{resources}");
    // And all of it in a day.
    net.chain.mine(1, Timestamp::from_micros(NOW.micros() + 2 * 86_400_000_000));
    assert_eq!(net.ask("/wallet/getaccountresource", json!({"address": hex_of(0)})).get("freeNetUsed"), None);
}

#[test]
fn a_new_account_costs_a_tenth_for_bandwidth_and_one_trx() {
    let mut net = Net::new(Settings::default());
    let id = net.pay(0, transfer(0, 50, 3));
    net.mine(1);
    let info = net.info(&id);
    assert_eq!(info["fee"], ACCOUNT_FEE + ACCOUNT_BANDWIDTH_FEE);
    assert_eq!(info["receipt"], json!({"net_fee": ACCOUNT_BANDWIDTH_FEE}));
    assert_eq!(net.balance(0), PREFUND - 3 - ACCOUNT_FEE - ACCOUNT_BANDWIDTH_FEE);
    assert_eq!(net.balance(50), 3);
}

#[test]
fn an_account_that_cannot_pay_its_bytes_is_refused_for_bandwidth() {
    let mut net = Net::new(Settings::default());
    net.pay(0, transfer(0, 50, 3));
    net.mine(1);
    for amount in [1, 1] {
        let mut draft = Draft::of(&net.reference(), transfer(50, 0, amount));
        draft.timestamp += net.chain.height() as i64;
        assert_eq!(net.send(&draft.signed(50))["code"], "SUCCESS");
        net.mine(1);
    }
    let draft = Draft::of(&net.reference(), transfer(50, 0, 1));
    let answer = net.send(&draft.signed(50));
    assert_eq!(answer["code"], "BANDWITH_ERROR");
    assert_eq!(answer["message"], "Account resource insufficient error.");
    // A new account costs more than there is as well.
    let draft = Draft::of(&net.reference(), transfer(50, 51, 1));
    assert_eq!(net.send(&draft.signed(50))["code"], "BANDWITH_ERROR");
}

#[test]
fn a_token_transfer_moves_logs_and_burns_energy() {
    let mut net = Net::new(Settings::default());
    let (old, new) = (net.pay(0, token_transfer(0, 1, 40)), net.pay(2, token_transfer(2, 50, 60)));
    net.mine(1);
    let info = net.info(&old);
    assert_eq!(info["receipt"]["energy_usage_total"], ENERGY_TO_HOLDER);
    assert_eq!(info["receipt"]["energy_fee"], ENERGY_TO_HOLDER * 100);
    assert_eq!(info["receipt"]["result"], "SUCCESS");
    assert_eq!(info["fee"], ENERGY_TO_HOLDER * 100);
    assert_eq!(info.get("result"), None);
    assert_eq!(info["contract_address"], alloy_primitives::hex::encode(cases_tron::token()));
    assert_eq!(info["blockNumber"], 4);
    assert_eq!(
        info["log"],
        json!([{"address": alloy_primitives::hex::encode(TOKEN.0),
            "topics": ["ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef",
                format!("{:0>64}", &hex_of(0)[2..]), format!("{:0>64}", &hex_of(1)[2..])],
            "data": format!("{:064x}", 40)}])
    );
    assert_eq!(net.info(&new)["receipt"]["energy_usage_total"], ENERGY_TO_NEW);
    assert_eq!(net.balance(0), PREFUND - ENERGY_TO_HOLDER * 100);
    assert_eq!((net.tokens(0), net.tokens(1), net.tokens(50)), (999_999_999_960, 1_000_000_000_040, 60));
    // Tokens make no account.
    assert_eq!(net.ask("/wallet/getaccount", json!({"address": hex_of(50)})), json!({}));
    let both = net.ask("/wallet/gettransactioninfobyblocknum", json!({"num": 4}));
    assert_eq!(both, json!([info, net.info(&new)]));
    let visible = net.ask("/wallet/gettransactioninfobyid", json!({"value": old, "visible": true}));
    assert_eq!(visible["log"][0]["address"], TOKEN.to_string());
}

#[test]
fn a_call_that_fails_leaves_nothing_but_its_fee() {
    let mut net = Net::new(Settings::default());
    let reverted = net.pay(0, token_transfer(0, 1, 1_000_000_000_001));
    let draft = Draft { fee_limit: 1_000_000, ..Draft::of(&net.reference(), token_transfer(2, 1, 5)) };
    let starved = net.send(&draft.signed(2))["txid"].as_str().unwrap().to_owned();
    net.mine(1);
    let info = net.info(&reverted);
    assert_eq!((&info["result"], &info["receipt"]["result"]), (&json!("FAILED"), &json!("REVERT")));
    assert_eq!(unhex(&info["resMessage"]), b"REVERT opcode executed");
    assert!(unhex(&info["contractResult"][0]).starts_with(&[0x08, 0xc3, 0x79, 0xa0]));
    assert_eq!(info.get("log"), None);
    let fee = info["fee"].as_i64().unwrap();
    assert!(fee > 0 && fee < ENERGY_TO_HOLDER * 100);
    assert_eq!(net.balance(0), PREFUND - fee);
    let info = net.info(&starved);
    assert_eq!((&info["result"], &info["receipt"]["result"]), (&json!("FAILED"), &json!("OUT_OF_ENERGY")));
    assert_eq!(info["receipt"]["energy_usage_total"], 10_000);
    assert_eq!(info["fee"], 1_000_000);
    assert!(unhex(&info["resMessage"]).starts_with(b"Not enough energy for 'SSTORE' operation executing"));
    assert_eq!(net.balance(2), PREFUND - 1_000_000);
    for key in [0, 1, 2] {
        assert_eq!(net.tokens(key), 1_000_000_000_000);
    }
}

#[test]
fn energy_is_bought_with_what_the_caller_has() {
    let mut net = Net::new(Settings::default());
    net.pay(0, transfer(0, 50, 2_000_030));
    net.pay(1, token_transfer(1, 50, 9));
    net.mine(1);
    let id = net.pay(50, token_transfer(50, 1, 9));
    net.mine(1);
    let info = net.info(&id);
    assert_eq!(info["receipt"]["result"], "OUT_OF_ENERGY");
    assert_eq!(info["receipt"]["energy_usage_total"], 20_000);
    assert_eq!((net.balance(50), net.tokens(50)), (30, 9));
}

#[test]
fn a_memo_costs_one_trx() {
    let mut net = Net::new(Settings::default());
    let draft = Draft { memo: b"hello".to_vec(), ..Draft::of(&net.reference(), transfer(0, 1, 5)) };
    let id = net.send(&draft.signed(0))["txid"].as_str().unwrap().to_owned();
    net.mine(1);
    assert_eq!(net.info(&id)["fee"], MEMO_FEE);
    assert_eq!(net.balance(0), PREFUND - 5 - MEMO_FEE);
    let mined = net.ask("/wallet/gettransactionbyid", json!({"value": id}));
    assert_eq!(unhex(&mined["raw_data"]["data"]), b"hello");
}

#[test]
fn allowances_are_spent_and_transfers_to_oneself_change_nothing() {
    let mut net = Net::new(Settings::default());
    let approve = call("095ea7b3", &[&Key::numbered(1).account(), &[100]]);
    net.pay(0, trigger(0, &cases_tron::token(), 0, &approve));
    net.mine(1);
    let (from, to) = (Key::numbered(0).account(), Key::numbered(2).account());
    let spend = |amount: u8| trigger(1, &cases_tron::token(), 0, &call("23b872dd", &[&from, &to, &[amount]]));
    let first = net.pay(1, spend(70));
    net.mine(1);
    let second = net.pay(1, spend(31));
    net.pay(3, token_transfer(3, 3, 500));
    net.mine(1);
    assert_eq!(net.info(&first)["receipt"]["result"], "SUCCESS");
    assert_eq!(net.info(&second)["receipt"]["result"], "REVERT");
    assert_eq!((net.tokens(0), net.tokens(2), net.tokens(3)), (999_999_999_930, 1_000_000_000_070, 1_000_000_000_000));
    let allowance = net.ask(
        "/wallet/triggerconstantcontract",
        json!({"owner_address": hex_of(5), "contract_address": alloy_primitives::hex::encode(cases_tron::token()),
            "data": alloy_primitives::hex::encode(call("dd62ed3e", &[&from, &Key::numbered(1).account()]))}),
    );
    assert_eq!(allowance["constant_result"][0], format!("{:064x}", 30));
}

/// See <https://github.com/andelf/tronpy/issues/3>: the receipt of a real transfer of USDT.
#[test]
fn the_token_moves_and_answers_false_as_usdt_does_unless_it_is_told_otherwise() {
    for (settings, answer) in
        [(Settings::default(), 0), (Settings { returns: Returns::True, ..Settings::default() }, 1)]
    {
        let mut net = Net::new(settings);
        let id = net.pay(0, token_transfer(0, 1, 40));
        net.mine(1);
        let info = net.info(&id);
        assert_eq!(info["contractResult"][0], format!("{answer:064x}"));
        assert_eq!(info["receipt"]["result"], "SUCCESS");
        assert_eq!(net.tokens(1), 1_000_000_000_040);
    }
}

#[test]
fn an_estimate_is_what_the_call_will_burn() {
    let mut net = Net::new(Settings::default());
    let mut ask = |to: u32, amount: u64| {
        let parameter = call("", &[&Key::numbered(to).account(), &amount.to_be_bytes()]);
        let body = json!({"owner_address": base58(0), "contract_address": TOKEN.to_string(), "visible": true,
            "function_selector": "transfer(address,uint256)", "parameter": alloy_primitives::hex::encode(parameter)});
        (net.ask("/wallet/estimateenergy", body.clone()), net.ask("/wallet/triggerconstantcontract", body))
    };
    let (estimate, constant) = ask(1, 5);
    assert_eq!(estimate, json!({"result": {"result": true}, "energy_required": ENERGY_TO_HOLDER}));
    assert_eq!(constant["energy_used"], ENERGY_TO_HOLDER);
    assert_eq!(ask(50, 5).0["energy_required"], ENERGY_TO_NEW);
    let (estimate, constant) = ask(1, u64::MAX);
    assert_eq!(estimate["result"]["code"], "CONTRACT_EXE_ERROR");
    assert_eq!(constant["result"], json!({"result": true, "message": "REVERT opcode executed"}));
    assert_eq!(constant["transaction"]["ret"], json!([{"ret": "FAILED"}]));
    assert_eq!(net.tokens(0), 1_000_000_000_000);
}
