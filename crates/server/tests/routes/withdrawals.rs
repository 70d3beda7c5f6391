//! `/api/v1/withdrawals…` and `/api/v1/address_book`: what a customer asks for, what it comes to, and every way in which it is refused.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use custody::wallet::Pinned;
use domain::outbound::OutboundLimits;
use domain::withdrawal::{FeeRule, USUAL_LIFE_US, Velocity, WhenShort, WithdrawalPolicy, WithdrawalRefusal};
use domain::{
    AccountStatus, Amount, AssetOnChain, Availability, Chain, ChainKind, Listing, Precision, Purpose, UserId,
    WalletRole,
};
use serde_json::{Value, json};
use store::catalog::Catalog;
use store::db_test;
use store::entry::ListingId;
use store::grants::DatabaseRole;
use store::outbound::{ApprovalSignature, JobId};
use store::testing::{NOW, TestDb};
use store::withdrawal::{
    Enqueue, Enqueued, NewWithdrawalApproval, PolicySetting, SettleInside, SignedRounds, WithdrawalId,
};
use tx::{AccountKey, Family, Group};

use crate::support::*;

pub const PATH: &str = "/api/v1/withdrawals";
const BATCHES: &str = "/api/v1/withdrawals/batch";
const QUOTE: &str = "/api/v1/withdrawals/quote";
const LIMITS: &str = "/api/v1/withdrawals/limits";
const BOOK: &str = "/api/v1/address_book";
// Of BIP-39's published words "abandon … about": m/44'/60'/0', m/44'/195'/0', m/84'/0'/0', m/84'/0'/1'.
const EVM: &str =
    "xpub6DCoCpSuQZB2jawqnGMEPS63ePKWkwWPH4TU45Q7LPXWuNd8TMtVxRrgjtEshuqpK3mdhaWHPFsBngh5GFZaM6si3yZdUsT8ddYM3PwnATt";
const TRON: &str =
    "xpub6D1AabNHCupeiLM65ZR9UStMhJ1vCpyV4XbZdyhMZBiJXALQtmn9p42VTQckoHVn8WNqS7dqnJokZHAHcHGoaQgmv8D45oNUKx6DZMNZBCd";
const BITCOIN: &str =
    "xpub6CatWdiZiodmUeTDp8LT5or8nmbKNcuyvz7WyksVFkKB4RHwCD3XyuvPEbvqAQY3rAPshWcMLoP2fMFMKHPJ4ZeZXYVUhLv1VMrjPC7PW6V";
const BITCOIN_HOT: &str =
    "xpub6CatWdiZiodmYVtWLtEQsAg1H9ooS1bmsJUBwQ83FE1Fyk386FWcyicJgEZv3quZSJKA5dh5Lo2PbubMGxCfZtRthV6ST2qquL9w3HSzcUn";
const TOKEN: &str = "0x55d398326f99059ff775485246999027b3197955";
const TOKEN_TRON: &str = "TLa2f6VPqDgRE67v1736s7bJ8Ray5wYjU7";
/// Nobody's.
pub const FAR: &str = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";
const FAR_BITCOIN: &str = "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4";
const FAR_TRON: &str = "TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t";
const SECOND: i64 = 1_000_000;

fn units(units: i64) -> Amount {
    Amount::from_units(units)
}

/// A fee of 0.10; up to 20.00 nobody has to agree.
pub fn policy() -> WithdrawalPolicy {
    WithdrawalPolicy {
        version: 0,
        enabled: true,
        incident: false,
        min: units(100),
        max: units(5_000),
        fee: FeeRule { fixed: units(10), share_bps: 0, least: units(0) },
        auto_approve: units(2_000),
        two_above: units(3_000),
        many_above: units(4_000),
        many: 3,
        daily_user: None,
        daily_total: None,
        velocity: None,
        cooling_off_us: 0,
        book_only: false,
        quote_life_us: 0,
        auto_approve_daily: None,
        when_short: WhenShort::Fail,
        life_us: USUAL_LIFE_US,
    }
}

/// | chain | what can be withdrawn |
/// |---|---|
/// | bsc | USDT, a token; WIDE, its own coin, cannot be; HALTED is suspended |
/// | closed | suspended, USDT |
/// | bitcoin | BTC, whose ledger unit is a satoshi here |
/// | tron | USDT |
fn treasury() -> Catalog {
    let mut catalog = catalog();
    for (name, kind, network, status) in [
        ("bsc", ChainKind::Evm, "56", Availability::Active),
        ("closed", ChainKind::Evm, "5", Availability::Suspended),
        ("bitcoin", ChainKind::Bitcoin, "mainnet", Availability::Active),
        ("tron", ChainKind::Tron, "mainnet", Availability::Active),
    ] {
        let chain = Chain {
            name: name.parse().unwrap(),
            kind,
            network: network.into(),
            confirmations: 2,
            final_confirmations: 4,
            outbound: OutboundLimits::usual(kind),
            status,
        };
        catalog.chains.insert(chain.name.clone(), chain);
    }
    let other = |last: char| format!("{}{last}", &TOKEN[..TOKEN.len() - 1]);
    for (asset, chain, contract, decimals, can) in [
        ("USDT", "bsc", Some(TOKEN.to_owned()), 18, true),
        ("WIDE", "bsc", None, 18, false),
        ("HALTED", "bsc", Some(other('6')), 18, true),
        ("USDT", "closed", Some(TOKEN.to_owned()), 18, true),
        ("BTC", "bitcoin", None, 2, true),
        ("USDT", "tron", Some(TOKEN_TRON.to_owned()), 6, true),
    ] {
        let precision = Precision::new(2).unwrap();
        let listing = Listing {
            asset: asset.parse().unwrap(),
            chain: chain.parse().unwrap(),
            form: AssetOnChain::new(precision, decimals, contract).unwrap(),
            min_deposit: units(10),
            status: Availability::Active,
        };
        let key = (listing.asset.clone(), listing.chain.clone());
        if can {
            let setting = PolicySetting { policy: policy(), enabled: None, incident: None };
            catalog.withdrawals.insert(key.clone(), setting);
        }
        catalog.listings.insert(key, listing);
    }
    catalog
}

fn group(name: &str, family: &str, xpub: &str, purpose: Purpose) -> Group {
    let key = AccountKey::parse(xpub, Family::parse(family).unwrap()).unwrap();
    Group { id: name.parse().unwrap(), purpose, key }
}

/// A hot wallet on each chain but the closed one; users have addresses on bitcoin. On PostgreSQL the server has the rights of its role and no more.
pub async fn with(db: &TestDb, choice: Choice) -> Server {
    db.with_role(DatabaseRole::Api).await;
    let mut pinned = Pinned::default();
    pinned.add_group(group("users-btc", "bitcoin", BITCOIN, Purpose::Deposit), true).unwrap();
    for (chain, hot) in [("bsc", hot_group("evm")), ("tron", hot_group("tron")), ("bitcoin", hot_group("bitcoin"))] {
        let (family, id) = (hot.family(), hot.id.clone());
        pinned.add_group(hot, true).unwrap();
        pinned.add_derived((chain.parse().unwrap(), family), WalletRole::Hot, (&id, 0), true).unwrap();
    }
    let pinned = Arc::new(pinned);
    db.apply_treasury(&treasury(), &pinned.settings(), &AUTHOR, NOW).await.unwrap();
    Server::pinning(db, choice, pinned).await
}

pub async fn start(db: &TestDb) -> Server {
    with(db, Choice::default()).await
}

fn hot_group(family: &str) -> Group {
    let xpub = match family {
        "evm" => EVM,
        "tron" => TRON,
        _ => BITCOIN_HOT,
    };
    group(&format!("hot-{family}"), family, xpub, Purpose::Hot)
}

/// The house's own wallet there.
fn hot_of(family: &str) -> String {
    hot_group(family).address(0).unwrap().to_string()
}

fn hot() -> String {
    hot_of("evm")
}

fn hot_neighbour() -> String {
    hot_group("evm").address(1).unwrap().to_string()
}

/// The usual request under this name, with other values for some members; null leaves one out.
pub fn ask(name: &str, changes: Value) -> String {
    let mut body = json!({
        "client_order_id": name, "asset": "USDT", "chain": "bsc", "address": FAR, "amount": "10.00", "max_fee": "1.00",
    });
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            body.as_object_mut().unwrap().remove(name);
        } else {
            body[name] = value.clone();
        }
    }
    body.to_string()
}

async fn listing(server: &Server, asset: &str, chain: &str) -> ListingId {
    let row = server.db.chain(&chain.parse().unwrap()).await.unwrap().unwrap();
    row.listings.iter().find(|one| one.symbol.as_str() == asset).unwrap().id
}

/// Of USDT on bsc, from now on.
async fn set(server: &Server, policy: &WithdrawalPolicy) {
    let usdt = listing(server, "USDT", "bsc").await;
    server.db.set_withdrawal_policy(usdt, policy, &AUTHOR, server.app.clock.now()).await.unwrap();
    server.app.coins.refresh(&server.db).await.unwrap();
}

async fn taken(server: &Server, number: i64, body: String) -> Value {
    let reply = server.post(number, PATH, body).await;
    assert_eq!(reply.status, 202, "{reply:?}");
    reply.json()
}

fn id_of(answer: &Value) -> WithdrawalId {
    answer["withdrawal_id"].as_str().unwrap().parse().unwrap()
}

/// As if this person had signed it: the signature itself is the operators' routes' matter.
async fn approve(server: &Server, answer: &Value, person: &str) {
    let signed = NewWithdrawalApproval {
        withdrawal: id_of(answer),
        digest: [7; 32],
        round: 0,
        group: "hot-evm".parse().unwrap(),
        person: person.to_owned(),
        key: format!("{person}-1"),
        signature: ApprovalSignature::Ed25519(vec![7; 64]),
    };
    server.db.approve_withdrawal(&signed, NOW).await.unwrap();
}

async fn enqueue(server: &Server, answer: &Value) {
    let id = id_of(answer);
    let terms = Enqueue { withdrawal: id, job: JobId::new(id.number() + 1).unwrap() };
    let chain = server.db.chain(&"bsc".parse().unwrap()).await.unwrap().unwrap();
    let signed = SignedRounds::of([(id, Some(0))]);
    let queued = server.db.enqueue_withdrawals(&chain, &[terms], &signed, NOW).await.unwrap().remove(0);
    assert!(matches!(queued, Enqueued::Queued { .. }), "{queued:?}");
}

/// Available and frozen.
async fn usdt(server: &Server, number: i64) -> (i64, i64) {
    let (available, frozen, _) = server.usdt(number).await;
    (available, frozen)
}

/// All codes that this test file has seen refuse something.
static SEEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Sends what must be refused, and checks that it changed nothing.
async fn refuses(server: &Server, attack: &str, number: i64, body: String, status: u16, code: &str) -> Reply {
    let ask = Ask::post(PATH, body).token(&server.token(number));
    let reply = server.refuses(attack, &ask, status, code).await;
    SEEN.lock().unwrap_or_else(PoisonError::into_inner).insert(code.to_owned());
    reply
}

db_test! {
    async fn what_is_asked_for_is_held_and_the_answer_says_what_comes_next(db: TestDb) {
        let server = start(db).await;
        // Small letters are the same address: it is shown as the chain writes it.
        let one = taken(&server, 1, ask("one", json!({ "address": FAR.to_lowercase() }))).await;
        let shown = ["client_order_id", "asset", "chain", "address", "amount", "fee", "total", "max_fee", "state"];
        let shown: Vec<&str> = shown.iter().map(|name| one[*name].as_str().unwrap()).collect();
        assert_eq!(shown, ["one", "USDT", "bsc", FAR, "10.00", "0.10", "10.10", "1.00", "approved"]);
        assert_eq!((&one["next"]["action"], one["settled_inside"].as_bool()), (&json!("payment"), Some(false)));
        assert!(one["next"]["expected_by"].is_string(), "{one}");
        assert_eq!(usdt(&server, 1).await, (FUNDS - 1_010, 1_010));
        for (amount, people) in [("20.01", 1), ("30.01", 2), ("40.01", 3)] {
            let two = taken(&server, 2, ask(&format!("two-{people}"), json!({ "amount": amount }))).await;
            assert_eq!((&two["state"], &two["next"]["action"]), (&json!("pending"), &json!("approval")));
            assert!(two["next"].get("expected_by").is_none(), "people take their time: {two}");
        }
        assert_eq!(usdt(&server, 2).await, (FUNDS - 2_011 - 3_011 - 4_011, 2_011 + 3_011 + 4_011));
        assert!(server.db.audit(|_| ()).await.unwrap().clean());
    }

    async fn the_same_again_is_one_payout_and_other_content_a_conflict(db: TestDb) {
        let server = start(db).await;
        let one = taken(&server, 1, ask("n", json!({}))).await;
        let again = taken(&server, 1, ask("n", json!({ "amount": "10", "max_fee": "1" }))).await;
        assert_eq!(again, one, "the same amount in fewer digits is the same");
        for (name, value) in [("amount", "10.01"), ("max_fee", "1.01"), ("address", hot_neighbour().as_str()), ("chain", "tron")] {
            let mut changes = json!({ name: value });
            if name == "chain" {
                changes["address"] = json!(FAR_TRON);
            }
            refuses(&server, name, 1, ask("n", changes), 409, "DUPLICATE_REQUEST").await;
        }
        // Another user's name is another user's.
        let other = taken(&server, 2, ask("n", json!({}))).await;
        assert_ne!(other["withdrawal_id"], one["withdrawal_id"]);
        // When it has ended, the answer says so, and pays nothing.
        let cancelled = server.post(1, &format!("{PATH}/{}/cancel", one["withdrawal_id"].as_str().unwrap()), "").await;
        assert_eq!(cancelled.status, 200);
        let reply = server.post(1, PATH, ask("n", json!({}))).await;
        assert_eq!((reply.status, reply.code().as_str()), (200, "cancelled"));
        assert_eq!((usdt(&server, 1).await, usdt(&server, 2).await), ((FUNDS, 0), (FUNDS - 1_010, 1_010)));
    }

    /// No coin moves, so no chain tells the payee; their own list does.
    async fn what_was_settled_inside_stands_in_both_histories(db: TestDb) {
        let server = start(db).await;
        let mut ids = Vec::new();
        for name in ["one", "two", "three"] {
            ids.push(id_of(&taken(&server, 1, ask(name, json!({}))).await));
        }
        let inside: Vec<SettleInside> =
            ids[..2].iter().map(|id| SettleInside { withdrawal: *id, payee: UserId::new(2).unwrap() }).collect();
        let signed = SignedRounds::of(ids.iter().map(|id| (*id, Some(0))));
        assert_eq!(server.db.settle_inside(&inside, &signed, NOW).await.unwrap().len(), 2);
        assert_eq!(usdt(&server, 2).await, (FUNDS + 2_000, 0));
        let sent = server.get(1, &format!("{PATH}/{}", ids[0])).await.json();
        assert_eq!((&sent["state"], &sent["settled_inside"]), (&json!("completed"), &json!(true)));
        const RECEIVED: &str = "/api/v1/deposits/inside";
        let mut received = Vec::new();
        let mut path = format!("{RECEIVED}?limit=1");
        loop {
            let reply = server.get(2, &path).await;
            assert_eq!(reply.status, 200, "{reply:?}");
            let page = reply.json();
            received.extend(page["received"].as_array().unwrap().clone());
            let Some(cursor) = page["next_cursor"].as_str() else { break };
            path = format!("{RECEIVED}?limit=1&cursor={cursor}");
        }
        let told: Vec<[&str; 5]> = received
            .iter()
            .map(|one| ["withdrawal_id", "asset", "chain", "address", "amount"].map(|name| one[name].as_str().unwrap()))
            .collect();
        let [first, second] = [ids[0].to_string(), ids[1].to_string()];
        assert_eq!(told, [[&second, "USDT", "bsc", FAR, "10.00"], [&first, "USDT", "bsc", FAR, "10.00"]]);
        // It is the payee's list, and says nothing of who sent it.
        assert_eq!(server.get(1, RECEIVED).await.json(), json!({ "received": [] }));
        assert!(!received[0].to_string().contains("user"), "{}", received[0]);
        for bad in ["limit=0", "limit=201", "cursor=dp-1", "cursor=wr-0", "more=1"] {
            let ask = Ask::get(format!("{RECEIVED}?{bad}")).token(&server.token(2));
            server.refuses(bad, &ask, 400, "INVALID_REQUEST").await;
        }
    }

    /// As transfers take them: zeros before the point say nothing, and one text of an amount is as good as another.
    async fn an_amount_may_be_written_in_several_ways(db: TestDb) {
        let server = start(db).await;
        for (number, (amount, shown)) in [("000.99", ""), ("001.1", "1.10"), ("5", "5.00"), ("1.10", "1.10"), ("0020.0", "20.00")].into_iter().enumerate() {
            let text = ask(&format!("n-{number}"), json!({ "amount": amount, "max_fee": "000.1" }));
            if shown.is_empty() {
                refuses(&server, amount, 1, text, 400, "AMOUNT_TOO_SMALL").await;
                continue;
            }
            let one = taken(&server, 1, text).await;
            assert_eq!((&one["amount"], &one["max_fee"]), (&json!(shown), &json!("0.10")), "{amount}");
            let again = taken(&server, 1, ask(&format!("n-{number}"), json!({ "amount": shown, "max_fee": "0.10" }))).await;
            assert_eq!(again, one, "{amount}");
        }
        let held = 110 + 500 + 110 + 2_000 + 4 * 10;
        assert_eq!(usdt(&server, 1).await, (FUNDS - held, held));
    }

    /// The gate has not read the change yet; the store reads asset and chain with the policy.
    async fn what_was_suspended_a_moment_ago_is_refused(db: TestDb) {
        let server = start(db).await;
        type Suspend = fn(&mut Catalog);
        let table: [(&str, Suspend, &str); 3] = [
            ("the asset", |all| all.assets.get_mut(&"USDT".parse().unwrap()).unwrap().status = Availability::Suspended, "ASSET_SUSPENDED"),
            ("the asset on this chain", |all| {
                let here = |one: &&mut Listing| one.asset.as_str() == "USDT" && one.chain.as_str() == "bsc";
                all.listings.values_mut().find(here).unwrap().status = Availability::Suspended;
            }, "ASSET_SUSPENDED"),
            ("the chain", |all| all.chains.get_mut(&"bsc".parse().unwrap()).unwrap().status = Availability::Suspended, "CHAIN_SUSPENDED"),
        ];
        for (attack, suspend, code) in table {
            let mut all = treasury();
            suspend(&mut all);
            db.apply_catalog(&all, &AUTHOR, NOW).await.unwrap();
            refuses(&server, attack, 1, ask("x", json!({})), 422, code).await;
        }
        db.apply_catalog(&treasury(), &AUTHOR, NOW).await.unwrap();
        taken(&server, 1, ask("x", json!({}))).await;
    }

    /// It is an object of 16 KiB at the most. A request of that size has no room for one that is larger; a batch has.
    async fn what_is_no_travel_rule_is_refused(db: TestDb) {
        let server = start(db).await;
        for bad in [json!([]), json!([{ "name": "Ann" }]), json!("Ann"), json!(7), json!(true)] {
            refuses(&server, &bad.to_string(), 1, ask("x", json!({ "travel_rule": bad })), 400, "INVALID_REQUEST").await;
        }
        let null = ask("x", json!({})).replacen('{', r#"{"travel_rule":null,"#, 1);
        refuses(&server, "null", 1, null, 400, "INVALID_REQUEST").await;
        let of = |name: &str, length: usize| ask(name, json!({ "travel_rule": { "x": "y".repeat(length) } }));
        refuses(&server, "more than a request may have", 1, of("x", 16_384), 413, "PAYLOAD_TOO_LARGE").await;
        // {"x":"…"} has eight characters around what is in it.
        let body = format!("{{\"withdrawals\":[{},{}]}}", of("longer", 16_384 - 7), of("longest", 16_384 - 8));
        let reply = server.post(1, BATCHES, body).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let results = reply.json()["results"].clone();
        assert_eq!((&results[0]["status"], &results[0]["error"]["code"]), (&json!(400), &json!("INVALID_REQUEST")), "{results}");
        assert_eq!((&results[1]["status"], &results[1]["withdrawal"]["client_order_id"]), (&json!(202), &json!("longest")), "{results}");
        assert_eq!(usdt(&server, 1).await, (FUNDS - 1_010, 1_010));
    }

    async fn a_thousand_at_once_have_an_outcome_each(db: TestDb) {
        let mut server = start(db).await;
        server.fund(9, "USDT", 111_000).await;
        let items: Vec<String> = (0..1_000).map(|number| ask(&format!("n-{number}"), json!({ "amount": "1.00" }))).collect();
        let body = format!("{{\"withdrawals\":[{}]}}", items.join(","));
        let reply = server.post(9, BATCHES, body.clone()).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let answer = reply.json();
        let results = answer["results"].as_array().unwrap();
        let told: Vec<(u64, &str)> = results.iter()
            .map(|one| (one["status"].as_u64().unwrap(), one["withdrawal"]["client_order_id"].as_str().unwrap())).collect();
        let names: Vec<String> = (0..1_000).map(|number| format!("n-{number}")).collect();
        assert_eq!(told, names.iter().map(|name| (202, name.as_str())).collect::<Vec<_>>(), "in their order");
        let ids: BTreeSet<&str> = results.iter().map(|one| one["withdrawal"]["withdrawal_id"].as_str().unwrap()).collect();
        assert_eq!(ids.len(), 1_000);
        assert_eq!(usdt(&server, 9).await, (1_000, 110_000), "1.00 and a fee of 0.10 for each");
        // The whole batch again is the same thousand.
        assert_eq!(server.post(9, BATCHES, body).await.json(), answer);
        assert_eq!(usdt(&server, 9).await, (1_000, 110_000));
        assert!(server.db.audit(|_| ()).await.unwrap().clean());
    }

    /// What is asked for early and settled late comes last: whoever has read the newest ones misses nothing.
    async fn what_came_last_from_another_customer_is_listed_first(db: TestDb) {
        let server = start(db).await;
        let mut ids = Vec::new();
        for name in ["one", "two", "three"] {
            ids.push(id_of(&taken(&server, 1, ask(name, json!({}))).await));
        }
        let signed = SignedRounds::of(ids.iter().map(|id| (*id, Some(0))));
        for (second, at) in [(1, 2), (2, 0), (3, 1)] {
            let inside = [SettleInside { withdrawal: ids[at], payee: UserId::new(2).unwrap() }];
            let settled = server.db.settle_inside(&inside, &signed, NOW.plus_micros(second * 1_000_000)).await.unwrap();
            assert_eq!(settled.len(), 1);
        }
        let (mut received, mut path) = (Vec::new(), "/api/v1/deposits/inside?limit=1".to_owned());
        loop {
            let page = server.get(2, &path).await.json();
            received.extend(page["received"].as_array().unwrap().iter().map(|one| one["withdrawal_id"].clone()));
            let Some(cursor) = page["next_cursor"].as_str() else { break };
            path = format!("/api/v1/deposits/inside?limit=1&cursor={cursor}");
        }
        assert_eq!(received, [1, 0, 2].map(|at: usize| json!(ids[at].to_string())));
    }

    async fn a_batch_has_an_outcome_for_each(db: TestDb) {
        let server = start(db).await;
        let items = [
            (ask("a", json!({})), 202, "approved"),
            (ask("b", json!({ "amount": "0.50" })), 400, "AMOUNT_TOO_SMALL"),
            ("17".to_owned(), 400, "INVALID_REQUEST"),
            (ask("c", json!({ "user_id": 2 })), 403, "FORBIDDEN"),
            (ask("d", json!({ "amount": "25.00" })), 202, "pending"),
            (ask("a", json!({})), 202, "approved"),
            (ask("a", json!({ "amount": "11.00" })), 409, "DUPLICATE_REQUEST"),
            (ask("e", json!({ "amount": "50.00" })), 202, "pending"),
            // The purse is empty now: what those before it hold counts.
            (ask("f", json!({ "amount": "15.00" })), 422, "INSUFFICIENT_BALANCE"),
            (ask("g", json!({ "amount": "14.60" })), 202, "approved"),
        ];
        let texts: Vec<&str> = items.iter().map(|(text, _, _)| text.as_str()).collect();
        let body = format!("{{\"withdrawals\":[{}]}}", texts.join(","));
        let reply = server.post(1, BATCHES, body).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let results = reply.json()["results"].as_array().unwrap().clone();
        let told: Vec<(u64, &str)> = results.iter().map(|one| {
            assert!(one["error"].is_null() != one["withdrawal"].is_null(), "{one}");
            (one["status"].as_u64().unwrap(), one["error"]["code"].as_str().or(one["withdrawal"]["state"].as_str()).unwrap())
        }).collect();
        assert_eq!(told, items.iter().map(|(_, status, code)| (*status, *code)).collect::<Vec<_>>());
        assert_eq!(results[0]["withdrawal"], results[5]["withdrawal"], "asked for twice, it is one");
        assert_eq!(usdt(&server, 1).await, (0, FUNDS));
        for (attack, count) in [("none", 0), ("1,001", 1_001)] {
            let body = format!("{{\"withdrawals\":[{}]}}", vec!["1"; count].join(","));
            let ask = Ask::post(BATCHES, body).token(&server.token(2));
            server.refuses(attack, &ask, 400, "INVALID_REQUEST").await;
        }
        let bad = Ask::post(BATCHES, r#"{"withdrawals":[],"more":1}"#).token(&server.token(2));
        server.refuses("an unknown member", &bad, 400, "INVALID_REQUEST").await;
        let large = Ask::post(BATCHES, vec![b' '; (1 << 20) + 1]).token(&server.token(2));
        server.refuses("too many bytes", &large, 413, "PAYLOAD_TOO_LARGE").await;
    }

    async fn what_is_called_off_is_given_back_once_and_only_while_no_job_pays_it(db: TestDb) {
        let server = start(db).await;
        let one = taken(&server, 1, ask("one", json!({}))).await;
        let path = |answer: &Value| format!("{PATH}/{}/cancel", answer["withdrawal_id"].as_str().unwrap());
        // Another user's is as good as none.
        let reply = server.post(2, &path(&one), "").await;
        assert_eq!((reply.status, reply.code().as_str()), (404, "WITHDRAWAL_NOT_FOUND"));
        assert_eq!(usdt(&server, 1).await, (FUNDS - 1_010, 1_010));
        for _ in 0..2 {
            let reply = server.post(1, &path(&one), "").await;
            assert_eq!((reply.status, reply.code().as_str()), (200, "cancelled"));
            assert_eq!(usdt(&server, 1).await, (FUNDS, 0));
        }
        let two = taken(&server, 1, ask("two", json!({}))).await;
        enqueue(&server, &two).await;
        let reply = server.post(1, &path(&two), "").await;
        assert_eq!((reply.status, reply.code().as_str()), (409, "WITHDRAWAL_NOT_NOW"));
        assert_eq!(usdt(&server, 1).await, (FUNDS - 1_010, 1_010));
        for (bad, status, code) in [("wr-1", 404, "WITHDRAWAL_NOT_FOUND"), ("7", 400, "INVALID_REQUEST"), ("wr-0", 400, "INVALID_REQUEST")] {
            let reply = server.post(1, &format!("{PATH}/{bad}/cancel"), "").await;
            assert_eq!((reply.status, reply.code().as_str()), (status, code), "{bad}");
        }
        assert!(server.db.audit(|_| ()).await.unwrap().clean());
    }

    async fn what_is_asked_too_often_is_not_looked_at(db: TestDb) {
        let server = with(db, Choice { per_second: 5, ..Choice::default() }).await;
        taken(&server, 1, ask("a", json!({}))).await;
        // A batch counts as many as it has, and one that could never be let through is no batch.
        let batch = |count: usize| {
            let items: Vec<String> = (0..count).map(|at| ask(&format!("b-{at}"), json!({}))).collect();
            format!("{{\"withdrawals\":[{}]}}", items.join(","))
        };
        let asked = |path: &str, body: String| Ask::post(path, body).token(&server.token(1));
        let reply = server.refuses("five more", &asked(BATCHES, batch(5)), 429, "RATE_LIMIT_EXCEEDED").await;
        assert!(reply.header("retry-after").is_some(), "{reply:?}");
        server.refuses("six at once", &asked(BATCHES, batch(6)), 400, "INVALID_REQUEST").await;
        assert_eq!(server.get(1, PATH).await.status, 200);
        assert_eq!(server.get(1, LIMITS).await.status, 200);
        let book = json!({ "chain": "bsc", "address": FAR }).to_string();
        server.refuses("the book", &asked(BOOK, book), 429, "RATE_LIMIT_EXCEEDED").await;
        server.refuses("one more", &asked(PATH, ask("c", json!({}))), 429, "RATE_LIMIT_EXCEEDED").await;
        assert_eq!(server.get(2, PATH).await.status, 200, "it is each user's own");
        server.pass(Duration::from_secs(1));
        taken(&server, 1, ask("c", json!({}))).await;
    }

    /// A request that makes no sense costs as much to read as a good one.
    async fn what_makes_no_sense_counts_as_well(db: TestDb) {
        let server = with(db, Choice { per_second: 4, ..Choice::default() }).await;
        let asked = |path: &str, body: String| Ask::post(path, body).token(&server.token(1));
        let wrong = ask("a", json!({ "amount": "much" }));
        server.refuses("no request", &asked(PATH, "{".to_owned()), 400, "INVALID_REQUEST").await;
        server.refuses("no amount", &asked(PATH, wrong.clone()), 400, "INVALID_AMOUNT").await;
        server.refuses("no batch", &asked(BATCHES, "[]".to_owned()), 400, "INVALID_REQUEST").await;
        server.refuses("an empty batch", &asked(BATCHES, "{\"withdrawals\":[]}".to_owned()), 400, "INVALID_REQUEST").await;
        for body in [wrong, "{".to_owned(), ask("b", json!({}))] {
            let reply = server.refuses("one more", &asked(PATH, body), 429, "RATE_LIMIT_EXCEEDED").await;
            assert!(reply.header("retry-after").is_some(), "{reply:?}");
        }
        server.refuses("one more batch", &asked(BATCHES, "[]".to_owned()), 429, "RATE_LIMIT_EXCEEDED").await;
        assert_eq!(usdt(&server, 1).await, (FUNDS, 0));
        taken(&server, 2, ask("a", json!({}))).await;
        server.pass(Duration::from_secs(1));
        taken(&server, 1, ask("b", json!({}))).await;
    }

    async fn nothing_is_called_off_without_the_signers_word(db: TestDb) {
        for (passed, says, status, code) in [(1, None, 409, "WITHDRAWALS_WAIT"), (2, Some(1), 409, "WITHDRAWAL_NOT_NOW"), (3, Some(0), 200, "cancelled")] {
            let server = with(db, Choice { signed: says, ..Choice::default() }).await;
            // Each has the same node number and begins at the same moment: one after the other, as it were.
            server.pass(Duration::from_secs(passed));
            let one = taken(&server, 1, ask(code, json!({}))).await;
            let held = usdt(&server, 1).await;
            let path = format!("{PATH}/{}/cancel", one["withdrawal_id"].as_str().unwrap());
            let reply = server.post(1, &path, "").await;
            assert_eq!((reply.status, reply.code().as_str()), (status, code), "{says:?}: {reply:?}");
            assert_eq!(usdt(&server, 1).await == held, says != Some(0), "{says:?}");
        }
    }

    async fn two_cancels_and_one_approval_at_once_end_in_one_of_two_ways(db: TestDb) {
        let server = start(db).await;
        for round in 0..4 {
            let one = taken(&server, 1, ask(&format!("race-{round}"), json!({ "amount": "25.00" }))).await;
            let path = format!("{PATH}/{}/cancel", one["withdrawal_id"].as_str().unwrap());
            let (first, second, ()) =
                tokio::join!(server.post(1, &path, ""), server.post(1, &path, ""), approve(&server, &one, "zoe-who-agrees"));
            // A cancel may come after the approval: it is not queued yet.
            assert_eq!([first.status, second.status], [200, 200], "{first:?} {second:?}");
            let shown = server.get(1, format!("{PATH}/{}", one["withdrawal_id"].as_str().unwrap())).await.json();
            assert_eq!(shown["state"], json!("cancelled"));
            assert_eq!(usdt(&server, 1).await, (FUNDS, 0), "given back once");
        }
        assert!(server.db.audit(|_| ()).await.unwrap().clean());
    }

    async fn one_withdrawal_has_its_history_and_nobody_elses_name(db: TestDb) {
        let server = start(db).await;
        let one = taken(&server, 1, ask("one", json!({ "amount": "25.00" }))).await;
        approve(&server, &one, "zoe-who-agrees").await;
        enqueue(&server, &one).await;
        let path = format!("{PATH}/{}", one["withdrawal_id"].as_str().unwrap());
        let shown = server.get(1, path.as_str()).await.json();
        let steps: Vec<(&str, &str)> = shown["history"].as_array().unwrap().iter()
            .map(|step| (step["state"].as_str().unwrap(), step["by"].as_str().unwrap())).collect();
        assert_eq!(steps, [("pending", "you"), ("approved", "house"), ("queued", "house")]);
        assert!(!shown.to_string().contains("zoe"), "who it was is the house's own: {shown}");
        assert!(shown.get("payment").is_none(), "no block has it: {shown}");
        assert_eq!(shown["next"]["action"], json!("confirmation"));
        let reply = server.get(2, path.as_str()).await;
        assert_eq!((reply.status, reply.code().as_str()), (404, "WITHDRAWAL_NOT_FOUND"));
        assert_eq!(server.send(&Ask::get(path)).await.status, 401, "a token is needed");
    }

    async fn filters_and_pages_hold(db: TestDb) {
        let server = start(db).await;
        for (name, changes) in [
            ("a", json!({})), ("b", json!({ "amount": "25.00" })), ("c", json!({ "chain": "tron", "address": FAR_TRON })), ("d", json!({})),
        ] {
            taken(&server, 1, ask(name, changes)).await;
        }
        taken(&server, 2, ask("a", json!({}))).await;
        let names = |body: &Value| -> Vec<String> {
            body["withdrawals"].as_array().unwrap().iter().map(|one| one["client_order_id"].as_str().unwrap().to_owned()).collect()
        };
        let (mut paged, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = server.get(1, format!("{PATH}?limit=1{cursor}")).await.json();
            paged.extend(names(&page));
            let Some(next) = page["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(paged, ["d", "c", "b", "a"]);
        for (query, wanted) in [
            ("", &["d", "c", "b", "a"][..]), ("?state=pending", &["b"]), ("?chain=tron", &["c"]), ("?asset=USDT&chain=bsc&state=approved", &["d", "a"]),
            ("?client_order_id=b", &["b"]), ("?asset=BTC", &[]), ("?state=failed", &[]),
        ] {
            assert_eq!(names(&server.get(1, format!("{PATH}{query}")).await.json()), wanted, "{query}");
        }
        for (query, code) in [
            ("?state=lost", "INVALID_REQUEST"), ("?limit=0", "INVALID_REQUEST"), ("?limit=201", "INVALID_REQUEST"), ("?cursor=4", "INVALID_REQUEST"),
            ("?user=2", "INVALID_REQUEST"), ("?chain=nowhere", "INVALID_CHAIN"), ("?asset=NONE", "INVALID_ASSET"), ("/wr-0", "INVALID_REQUEST"),
            ("?client_order_id=a%20b", "INVALID_REQUEST"),
        ] {
            let reply = server.get(1, format!("{PATH}{query}")).await;
            assert_eq!((reply.status, reply.code().as_str()), (400, code), "{query}: {reply:?}");
        }
    }

    async fn a_quoted_fee_holds_while_it_was_promised_and_not_a_moment_longer(db: TestDb) {
        let server = start(db).await;
        let path = |amount: &str| format!("{QUOTE}?asset=USDT&chain=bsc&amount={amount}");
        let plain = server.get(1, path("10.00")).await.json();
        assert_eq!(plain, json!({ "asset": "USDT", "chain": "bsc", "amount": "10.00", "fee": "0.10", "total": "10.10" }), "no fee is quoted");
        set(&server, &WithdrawalPolicy { quote_life_us: 60 * SECOND, ..policy() }).await;
        let quote = server.get(1, path("10.00")).await.json();
        let id = quote["quote_id"].as_str().unwrap().to_owned();
        assert_eq!((quote["fee"].as_str(), quote["expires_at"].as_str()), (Some("0.10"), Some(NOW.plus_micros(60 * SECOND).to_string().as_str())));
        server.pass(Duration::from_secs(30));
        // The fee rises, and quotes live longer from now on: that does not make the old one live longer.
        let dear = FeeRule { fixed: units(90), ..policy().fee };
        set(&server, &WithdrawalPolicy { quote_life_us: 3_600 * SECOND, fee: dear, ..policy() }).await;
        let quoted = |name: &str, id: &str| ask(name, json!({ "quote_id": id, "max_fee": "0.10" }));
        let one = taken(&server, 1, quoted("one", &id)).await;
        assert_eq!(one["fee"], json!("0.10"), "it is the promise");
        let reply = refuses(&server, "without it", 1, ask("two", json!({ "max_fee": "0.10" })), 409, "FEE_ABOVE_AGREED").await;
        assert!(reply.json()["error"]["message"].as_str().unwrap().contains("the fee is 0.90 USDT"), "{reply:?}");
        let version: i64 = id.split('-').nth(1).unwrap().parse().unwrap();
        let later = NOW.plus_micros(9_999 * SECOND).micros();
        for (attack, forged) in [
            ("a version that is not there yet", format!("fq-{}-{later}", version + 2)),
            ("a version that quoted nothing", format!("fq-1-{later}")),
            ("a promise that is over", format!("fq-{version}-{}", NOW.plus_micros(29 * SECOND).micros())),
        ] {
            refuses(&server, attack, 1, quoted("three", &forged), 409, "QUOTE_EXPIRED").await;
        }
        server.pass(Duration::from_secs(31));
        refuses(&server, "a second late", 1, quoted("four", &id), 409, "QUOTE_EXPIRED").await;
        // Up to here somebody can have been told so; a later time in the name does not help.
        let stretched = format!("fq-{version}-{later}");
        taken(&server, 2, quoted("five", &stretched)).await;
        server.pass(Duration::from_secs(30));
        refuses(&server, "a promise that nobody can have been given", 2, quoted("six", &stretched), 409, "QUOTE_EXPIRED").await;
        // What was taken stays taken, whatever became of the quote.
        assert_eq!(taken(&server, 1, quoted("one", &id)).await["withdrawal_id"], one["withdrawal_id"]);
        for (query, status, code) in [
            ("asset=USDT&chain=bsc", 400, "INVALID_REQUEST"), ("asset=USDT&chain=bsc&amount=1&x=1", 400, "INVALID_REQUEST"),
            ("asset=NONE&chain=bsc&amount=1", 400, "INVALID_ASSET"), ("asset=USDT&chain=none&amount=1", 400, "INVALID_CHAIN"),
            ("asset=WIDE&chain=bsc&amount=1", 422, "WITHDRAWAL_NOT_OFFERED"), ("asset=USDT&chain=bsc&amount=0.99", 400, "AMOUNT_TOO_SMALL"),
            ("asset=USDT&chain=bsc&amount=50.01", 400, "AMOUNT_TOO_LARGE"), ("asset=USDT&chain=bsc&amount=1.001", 400, "PRECISION_OVERFLOW"),
            ("asset=USDT&chain=bsc&amount=-1", 400, "INVALID_AMOUNT"),
        ] {
            let reply = server.get(1, format!("{QUOTE}?{query}")).await;
            assert_eq!((reply.status, reply.code().as_str()), (status, code), "{query}: {reply:?}");
        }
    }

    async fn limits_say_what_is_left_today(db: TestDb) {
        let server = start(db).await;
        let velocity = Some(Velocity { count: 3, window_us: 3_600 * SECOND });
        set(&server, &WithdrawalPolicy { daily_user: Some(units(3_000)), velocity, ..policy() }).await;
        taken(&server, 1, ask("a", json!({}))).await;
        let shown = server.get(1, format!("{LIMITS}?asset=USDT&chain=bsc")).await.json();
        let [one] = &shown["limits"].as_array().unwrap()[..] else { panic!("{shown}") };
        let next_day = transfer::create::next_day(NOW).to_string();
        assert_eq!(one["daily"], json!({ "limit": "30.00", "used": "10.00", "left": "20.00", "resets_at": next_day }));
        assert_eq!(one["requests"], json!({ "limit": 3, "window_s": 3600, "left": 2 }));
        assert_eq!((&one["withdrawable"], &one["min"], &one["max"], &one["open"]), (&json!("89.90"), &json!("1.00"), &json!("50.00"), &json!(true)));
        let other = server.get(2, format!("{LIMITS}?asset=USDT&chain=bsc")).await.json();
        assert_eq!(other["limits"][0]["daily"]["left"], json!("30.00"), "it is each user's own");
        // What is said to be left can be had, and no more.
        refuses(&server, "a unit more", 1, ask("b", json!({ "amount": "20.01" })), 429, "DAILY_AMOUNT_EXCEEDED").await;
        taken(&server, 1, ask("c", json!({ "amount": "20.00" }))).await;
        let all = server.get(1, LIMITS).await.json();
        let coins: Vec<(&str, &str, bool)> = all["limits"].as_array().unwrap().iter()
            .map(|one| (one["asset"].as_str().unwrap(), one["chain"].as_str().unwrap(), one["open"].as_bool().unwrap())).collect();
        assert_eq!(coins, [("BTC", "bitcoin", true), ("HALTED", "bsc", false), ("USDT", "bsc", true), ("USDT", "closed", false), ("USDT", "tron", true)]);
        for (query, code) in [("?asset=NONE", "INVALID_ASSET"), ("?chain=none", "INVALID_CHAIN"), ("?user=2", "INVALID_REQUEST")] {
            let reply = server.get(1, format!("{LIMITS}{query}")).await;
            assert_eq!((reply.status, reply.code().as_str()), (400, code), "{query}");
        }
    }

    async fn an_address_of_the_book_can_be_used_when_it_says_so(db: TestDb) {
        let server = start(db).await;
        let hour = 3_600 * SECOND;
        set(&server, &WithdrawalPolicy { book_only: true, cooling_off_us: hour, ..policy() }).await;
        let add = |chain: &str, address: &str, label: &str| json!({ "chain": chain, "address": address, "label": label }).to_string();
        refuses(&server, "not in the book", 1, ask("a", json!({})), 422, "DESTINATION_UNKNOWN").await;
        let entry = server.post(1, BOOK, add("bsc", &FAR.to_lowercase(), "mine")).await;
        assert_eq!(entry.status, 200, "{entry:?}");
        let entry = entry.json();
        let from = NOW.plus_micros(hour).to_string();
        assert_eq!((&entry["address"], &entry["label"], &entry["available_at"]), (&json!(FAR), &json!("mine"), &json!(from)));
        assert!(entry["assets"].as_array().unwrap().contains(&json!({ "asset": "USDT", "available_at": from })), "{entry}");
        let reply = refuses(&server, "too new", 1, ask("a", json!({})), 422, "DESTINATION_COOLING_OFF").await;
        assert!(reply.json()["error"]["message"].as_str().unwrap().contains(&from), "{reply:?}");
        refuses(&server, "another user's book", 2, ask("a", json!({})), 422, "DESTINATION_UNKNOWN").await;
        server.pass(Duration::from_secs(3_599));
        refuses(&server, "a second early", 1, ask("a", json!({})), 422, "DESTINATION_COOLING_OFF").await;
        // Added again it stays as old as it is.
        assert_eq!(server.post(1, BOOK, add("bsc", FAR, "other")).await.json(), entry);
        server.pass(Duration::from_secs(1));
        taken(&server, 1, ask("a", json!({}))).await;
        // Only its owner removes it; removed, it is gone; added again, it is new.
        let path = format!("{BOOK}/{}", entry["entry_id"].as_str().unwrap());
        let remove = |number: i64| Ask { method: "DELETE", ..Ask::get(path.as_str()) }.token(&server.token(number));
        let reply = server.send(&remove(2)).await;
        assert_eq!((reply.status, reply.code().as_str()), (404, "ADDRESS_NOT_FOUND"));
        assert_eq!(server.get(1, BOOK).await.json()["entries"], json!([entry]));
        assert_eq!(server.send(&remove(1)).await.status, 200);
        assert_eq!(server.send(&remove(1)).await.status, 404, "once");
        assert_eq!(server.get(1, BOOK).await.json(), json!({ "entries": [] }));
        refuses(&server, "removed", 1, ask("b", json!({})), 422, "DESTINATION_UNKNOWN").await;
        let again = server.post(1, BOOK, add("bsc", FAR, "mine")).await.json();
        assert_eq!(again["available_at"], json!(NOW.plus_micros(2 * hour).to_string()));
        for (attack, text, status, code) in [
            ("another chain's", add("bsc", FAR_BITCOIN, ""), 400, "ADDRESS_MALFORMED"), ("no chain", add("none", FAR, ""), 400, "INVALID_CHAIN"),
            ("a token", add("bsc", TOKEN, ""), 400, "DESTINATION_TOKEN"), ("ours", add("bsc", &hot(), ""), 422, "DESTINATION_OURS"),
            ("a long label", add("bsc", FAR, &"x".repeat(101)), 400, "INVALID_REQUEST"), ("a label of two lines", add("bsc", FAR, "a\nb"), 400, "INVALID_REQUEST"),
            ("an unknown member", json!({ "chain": "bsc", "address": FAR, "more": 1 }).to_string(), 400, "INVALID_REQUEST"),
        ] {
            let ask = Ask::post(BOOK, text).token(&server.token(1));
            let reply = server.refuses(attack, &ask, status, code).await;
            assert!(reply.json()["error"]["docs"].as_str().unwrap().ends_with(&format!("{code}.md")));
        }
        assert_eq!(server.get(1, BOOK).await.json()["entries"], json!([again]), "nothing was added");
    }

    async fn what_is_credited_and_not_final_is_not_withdrawn(db: TestDb) {
        // User 1 has 3.00 WIDE of a deposit that a reorganisation could still take back.
        let server = crate::deposits::start(db).await;
        let wide = listing(&server, "WIDE", "bsc").await;
        let most = WithdrawalPolicy { max: Amount::MAX, ..policy() };
        server.db.set_withdrawal_policy(wide, &most, &AUTHOR, NOW).await.unwrap();
        server.app.coins.refresh(&server.db).await.unwrap();
        let of = |name: &str, amount: &str| ask(name, json!({ "asset": "WIDE", "amount": amount }));
        refuses(&server, "a unit of it", 1, of("a", "99.91"), 422, "DEPOSIT_NOT_FINAL").await;
        refuses(&server, "more than there is", 1, of("a", "102.91"), 422, "INSUFFICIENT_BALANCE").await;
        let shown = server.get(1, format!("{LIMITS}?asset=WIDE")).await.json();
        assert_eq!(shown["limits"][0]["withdrawable"], json!("100.00"), "{shown}");
        taken(&server, 1, of("a", "99.90")).await;
    }

    async fn every_refusal_is_told_by_its_code_and_nothing_is_held(db: TestDb) {
        let mut server = start(db).await;
        // By the request alone.
        for (attack, changes, status, code) in [
            ("nothing", json!({ "amount": "0" }), 400, "INVALID_AMOUNT"),
            ("nothing, exactly", json!({ "amount": "0.00" }), 400, "INVALID_AMOUNT"),
            ("negative zero", json!({ "amount": "-0" }), 400, "INVALID_AMOUNT"),
            ("less than nothing", json!({ "amount": "-1" }), 400, "INVALID_AMOUNT"),
            ("a power", json!({ "amount": "1e1" }), 400, "INVALID_AMOUNT"),
            ("a negative fee", json!({ "max_fee": "-0.10" }), 400, "INVALID_AMOUNT"),
            ("no number", json!({ "max_fee": "free" }), 400, "INVALID_AMOUNT"),
            ("the least negative", json!({ "amount": "-0.01" }), 400, "INVALID_AMOUNT"),
            ("a negative zero of a fee", json!({ "max_fee": "-0" }), 400, "INVALID_AMOUNT"),
            ("a third of a cent", json!({ "amount": "10.001" }), 400, "PRECISION_OVERFLOW"),
            ("a third decimal that is 0", json!({ "amount": "10.000" }), 400, "PRECISION_OVERFLOW"),
            ("a fee with a third decimal that is 0", json!({ "max_fee": "1.000" }), 400, "PRECISION_OVERFLOW"),
            ("less than a unit", json!({ "amount": "0.001" }), 400, "PRECISION_OVERFLOW"),
            ("too precise and too large", json!({ "amount": "99999999999999999999.001" }), 400, "PRECISION_OVERFLOW"),
            ("a fee of a third of a cent", json!({ "max_fee": "0.001" }), 400, "PRECISION_OVERFLOW"),
            ("all there is", json!({ "amount": "99999999999999999999" }), 400, "OVERFLOW"),
            ("a number", json!({ "amount": 10 }), 400, "INVALID_REQUEST"),
            ("a number for the fee", json!({ "max_fee": 1 }), 400, "INVALID_REQUEST"),
            ("no fee", json!({ "max_fee": null }), 400, "INVALID_REQUEST"),
            ("no name", json!({ "client_order_id": null }), 400, "INVALID_REQUEST"),
            ("an empty name", json!({ "client_order_id": "" }), 400, "INVALID_REQUEST"),
            ("a name with a blank", json!({ "client_order_id": "a b" }), 400, "INVALID_REQUEST"),
            ("an unknown member", json!({ "memo": "x" }), 400, "INVALID_REQUEST"),
            ("another owner", json!({ "user_id": 2 }), 403, "FORBIDDEN"),
            ("no such asset", json!({ "asset": "NONE" }), 400, "INVALID_ASSET"),
            ("in small letters", json!({ "asset": "usdt" }), 400, "INVALID_ASSET"),
            ("no such chain", json!({ "chain": "ethereum" }), 400, "INVALID_CHAIN"),
            ("not there", json!({ "asset": "BTC" }), 422, "WITHDRAWAL_NOT_OFFERED"),
            ("not offered there", json!({ "asset": "WIDE" }), 422, "WITHDRAWAL_NOT_OFFERED"),
            ("no quote", json!({ "quote_id": "fq-x" }), 400, "INVALID_REQUEST"),
            ("no address", json!({ "address": "" }), 400, "ADDRESS_MALFORMED"),
            ("Bitcoin's on bsc", json!({ "address": FAR_BITCOIN }), 400, "ADDRESS_MALFORMED"),
            ("TRON's on bsc", json!({ "address": FAR_TRON }), 400, "ADDRESS_MALFORMED"),
            ("bsc's on TRON", json!({ "chain": "tron" }), 400, "ADDRESS_WRONG_NETWORK"),
            ("bsc's on Bitcoin", json!({ "asset": "BTC", "chain": "bitcoin" }), 400, "ADDRESS_MALFORMED"),
            ("a digit short", json!({ "address": &FAR[..41] }), 400, "ADDRESS_LENGTH"),
            ("one letter in the wrong case", json!({ "address": FAR.replacen("5aA", "5AA", 1) }), 400, "ADDRESS_CHECKSUM"),
            ("both cases on Bitcoin", json!({ "asset": "BTC", "chain": "bitcoin", "address": FAR_BITCOIN.replacen("qw5", "Qw5", 1) }), 400, "ADDRESS_MIXED_CASE"),
            ("the zero address", json!({ "address": format!("0x{}", "0".repeat(40)) }), 400, "ADDRESS_UNSPENDABLE"),
            ("the burn address", json!({ "address": format!("0x{}dead", "0".repeat(36)) }), 400, "ADDRESS_UNSPENDABLE"),
            ("a precompiled contract", json!({ "address": format!("0x{}1", "0".repeat(39)) }), 400, "ADDRESS_UNSPENDABLE"),
            ("TRON's zero address", json!({ "chain": "tron", "address": "T9yD14Nj9j7xAB4dbGeiX9h8unkKHxuWwb" }), 400, "ADDRESS_UNSPENDABLE"),
            ("a typing error on TRON", json!({ "chain": "tron", "address": FAR_TRON.replace("TR7", "TR8") }), 400, "ADDRESS_CHECKSUM"),
            ("a typing error on Bitcoin", json!({ "asset": "BTC", "chain": "bitcoin", "address": FAR_BITCOIN.replace("bc1qw", "bc1qv") }), 400, "ADDRESS_CHECKSUM"),
            ("the test network's", json!({ "asset": "BTC", "chain": "bitcoin", "address": "tb1qw508d6qejxtdg4y5r3zarvary0c5xw7kxpjzsx" }), 400, "ADDRESS_WRONG_NETWORK"),
            ("the token's contract", json!({ "address": TOKEN }), 400, "DESTINATION_TOKEN"),
            ("the token's contract on TRON", json!({ "chain": "tron", "address": TOKEN_TRON }), 400, "DESTINATION_TOKEN"),
            ("a suspended token's contract", json!({ "address": format!("{}6", &TOKEN[..41]) }), 400, "DESTINATION_TOKEN"),
            ("our hot wallet", json!({ "address": hot() }), 422, "DESTINATION_OURS"),
            ("our hot wallet in small letters", json!({ "address": hot().to_lowercase() }), 422, "DESTINATION_OURS"),
            ("our hot wallet on TRON", json!({ "chain": "tron", "address": hot_of("tron") }), 422, "DESTINATION_OURS"),
            ("our hot wallet on Bitcoin", json!({ "asset": "BTC", "chain": "bitcoin", "address": hot_of("bitcoin") }), 422, "DESTINATION_OURS"),
            ("dust", json!({ "asset": "BTC", "chain": "bitcoin", "address": FAR_BITCOIN, "amount": "2.93" }), 400, "AMOUNT_DUST"),
            ("the smallest", json!({ "amount": "0.99" }), 400, "AMOUNT_TOO_SMALL"),
            ("the largest", json!({ "amount": "50.01" }), 400, "AMOUNT_TOO_LARGE"),
            ("a fee that is too high", json!({ "max_fee": "0.09" }), 409, "FEE_ABOVE_AGREED"),
            ("a closed chain", json!({ "chain": "closed" }), 422, "CHAIN_SUSPENDED"),
            ("an asset of which the user has nothing, suspended or not", json!({ "asset": "HALTED" }), 422, "ACCOUNT_NOT_FOUND"),
            ("no account", json!({ "asset": "BTC", "chain": "bitcoin", "address": FAR_BITCOIN, "amount": "2.94" }), 422, "ACCOUNT_NOT_FOUND"),
        ] {
            refuses(&server, attack, 1, ask("x", changes), status, code).await;
        }
        server.fund(1, "HALTED", 5_000).await;
        refuses(&server, "a suspended asset of which the user has enough", 1, ask("x", json!({ "asset": "HALTED" })), 422, "ASSET_SUSPENDED").await;
        let large = ask("x", json!({ "address": "x".repeat(17 << 10) }));
        refuses(&server, "too many bytes", 1, large, 413, "PAYLOAD_TOO_LARGE").await;
        // By what holds.
        let share = FeeRule { fixed: units(500), ..policy().fee };
        set(&server, &WithdrawalPolicy { fee: share, ..policy() }).await;
        refuses(&server, "a fee above it", 1, ask("x", json!({ "amount": "4.99", "max_fee": "9" })), 422, "FEE_ABOVE_AMOUNT").await;
        set(&server, &WithdrawalPolicy { enabled: false, ..policy() }).await;
        refuses(&server, "off", 1, ask("x", json!({})), 422, "WITHDRAWALS_OFF").await;
        set(&server, &WithdrawalPolicy { max: Amount::MAX, ..policy() }).await;
        refuses(&server, "beyond any balance", 1, ask("x", json!({ "amount": "92233720368547758.07" })), 400, "OVERFLOW").await;
        set(&server, &WithdrawalPolicy { daily_total: Some(units(500)), ..policy() }).await;
        let reply = refuses(&server, "all together", 1, ask("x", json!({})), 429, "DAILY_TOTAL_EXCEEDED").await;
        assert!(reply.header("retry-after").is_some() && !reply.body.contains("5.00"), "the limit is the house's own: {reply:?}");
        set(&server, &WithdrawalPolicy { daily_user: Some(units(500)), ..policy() }).await;
        let reply = refuses(&server, "one user", 1, ask("x", json!({})), 429, "DAILY_AMOUNT_EXCEEDED").await;
        assert!(reply.body.contains("5.00 USDT in a day"), "{reply:?}");
        set(&server, &WithdrawalPolicy { velocity: Some(Velocity { count: 1, window_us: SECOND }), ..policy() }).await;
        taken(&server, 3, ask("first", json!({}))).await;
        refuses(&server, "too often", 3, ask("second", json!({})), 429, "TOO_MANY_WITHDRAWALS").await;
        refuses(&server, "the same name", 3, ask("first", json!({ "amount": "11.00" })), 409, "DUPLICATE_REQUEST").await;
        set(&server, &WithdrawalPolicy { book_only: true, cooling_off_us: SECOND, ..policy() }).await;
        refuses(&server, "not in the book", 1, ask("x", json!({})), 422, "DESTINATION_UNKNOWN").await;
        server.post(1, BOOK, json!({ "chain": "bsc", "address": FAR }).to_string()).await;
        refuses(&server, "too new", 1, ask("x", json!({})), 422, "DESTINATION_COOLING_OFF").await;
        set(&server, &policy()).await;
        refuses(&server, "a promise of nothing", 1, ask("x", json!({ "quote_id": "fq-1-1" })), 409, "QUOTE_EXPIRED").await;
        taken(&server, 2, ask("most", json!({ "amount": "50.00" }))).await;
        refuses(&server, "more than there is", 2, ask("x", json!({ "amount": "49.90" })), 422, "INSUFFICIENT_BALANCE").await;
        // By whose it is.
        server.fund(1, "BTC", 100_000).await;
        let own = server.post(1, "/api/v1/deposit_address", json!({ "chain": "bitcoin" }).to_string()).await.json();
        let to = |address: &Value| json!({ "asset": "BTC", "chain": "bitcoin", "address": address });
        refuses(&server, "the own address", 1, ask("x", to(&own["address"])), 422, "DESTINATION_OWN").await;
        let others = server.post(2, "/api/v1/deposit_address", json!({ "chain": "bitcoin" }).to_string()).await.json();
        taken(&server, 1, ask("to-two", to(&others["address"]))).await;
        for (status, code) in [(AccountStatus::Frozen, "ACCOUNT_FROZEN"), (AccountStatus::Disabled, "ACCOUNT_DISABLED")] {
            server.set_funding_status(4, "USDT", status).await;
            refuses(&server, "closed", 4, ask("x", json!({})), 422, code).await;
        }
        // None is left out: what is credited and not final has a test of its own.
        let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
        let unseen: Vec<&str> = WithdrawalRefusal::ALL.iter().map(|one| one.code()).filter(|code| !seen.contains(*code)).collect();
        let elsewhere = ["DEPOSIT_NOT_FINAL"];
        assert!(unseen.iter().all(|code| elsewhere.contains(code)), "{unseen:?}");
    }
}
