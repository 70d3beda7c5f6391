//! `/api/v1/deposits`: own deposits with their blocks and histories, and nobody else's.

use std::collections::HashMap;

use domain::deposit::{Attribution, Cause, Place, Reason, Side};
use domain::utxo::Hash;
use domain::{AssetOnChain, Availability, Chain, ChainKind, Listing};
use serde_json::{Value, json};
use store::catalog::Catalog;
use store::db_test;
use store::entry::{BlockRow, EntryKey, FoundEntry, Heard, Passed};
use store::grants::DatabaseRole;
use store::testing::{NOW, TestDb};

use crate::support::*;

const PATH: &str = "/api/v1/deposits";

fn treasury() -> Catalog {
    let mut catalog = catalog();
    let chain = Chain {
        name: "bsc".parse().unwrap(),
        kind: ChainKind::Evm,
        network: "56".into(),
        confirmations: 2,
        final_confirmations: 4,
        outbound: domain::outbound::OutboundLimits::usual(ChainKind::Evm),
        status: Availability::Active,
    };
    catalog.chains.insert(chain.name.clone(), chain);
    for (asset, contract) in [("USDT", Some("0x55d398326f99059ff775485246999027b3197955")), ("WIDE", None)] {
        let precision = domain::Precision::new(2).unwrap();
        let listing = Listing {
            asset: asset.parse().unwrap(),
            chain: "bsc".parse().unwrap(),
            form: AssetOnChain::new(precision, 18, contract.map(str::to_owned)).unwrap(),
            min_deposit: domain::Amount::from_units(10),
            status: Availability::Active,
        };
        catalog.listings.insert((listing.asset.clone(), listing.chain.clone()), listing);
    }
    catalog
}

fn hash(number: u64) -> Hash {
    let mut bytes = [0; 32];
    bytes[24..].copy_from_slice(&number.to_be_bytes());
    Hash(bytes)
}

/// Five payments, one in each block from 1 on, and nothing in the two after those; two confirmations credit.
///
/// | block | to | asset | raw |
/// |---|---|---|---|
/// | 1 | user 1 | USDT | 1.5 and one wei |
/// | 2 | user 2 | USDT | 2 |
/// | 3 | user 1 | WIDE | 3 |
/// | 4 | nobody | USDT | 4 |
/// | 5 | user 1 | USDT | 5, not deep enough |
///
/// On PostgreSQL the server has the rights of its role and no more.
pub async fn start(db: &TestDb) -> Server {
    db.with_role(DatabaseRole::Api).await;
    db.apply_catalog(&treasury(), &AUTHOR, NOW).await.unwrap();
    let server = Server::pinning(db, Choice::default(), Default::default()).await;
    let chain = db.chain(&"bsc".parse().unwrap()).await.unwrap().unwrap();
    db.begin_chain(&chain, 0, hash(0), NOW).await.unwrap();
    let worker = db.take_chain(chain.id, "test", NOW, NOW.plus_micros(60_000_000)).await.unwrap();
    let coin = |symbol: &str| chain.listings.iter().find(|one| one.symbol.as_str() == symbol).unwrap().id;
    let ether = "000000000000000000";
    for (height, address, symbol, raw) in [
        (1_u64, "user-1", "USDT", "1500000000000000001".to_owned()),
        (2, "user-2", "USDT", format!("2{ether}")),
        (3, "user-1", "WIDE", format!("3{ether}")),
        (4, "nobody", "USDT", format!("4{ether}")),
        (5, "user-1", "USDT", format!("5{ether}")),
    ] {
        let entry = FoundEntry {
            key: EntryKey { transaction: hash(1_000 + height), place: Place::Log(0), side: Side::In },
            height,
            block: hash(height),
            address: address.to_owned(),
            listing: coin(symbol),
            amount: raw.parse().unwrap(),
            cause: Cause::Deposit,
            coinbase: false,
        };
        let block = BlockRow { height, hash: hash(height), parent: hash(height - 1) };
        let mut passed = Passed { blocks: vec![block], entries: vec![entry], source: "one".to_owned(), proven: false };
        db.pass_blocks(&worker, &passed, NOW).await.unwrap();
        passed.proven = true;
        db.prove_blocks(&worker, &passed, NOW).await.unwrap();
    }
    // Nothing is compared: what the chain has is not what these tests are about.
    let block = db.proven_block(&chain).await.unwrap().unwrap();
    for listing in &chain.listings {
        let holdings = db.unchecked_holdings(chain.id, listing.id, 10).await.unwrap();
        let looked: Vec<_> = holdings.into_iter().map(|holding| (holding, None)).collect();
        db.look(&worker, &chain, block, &looked, Heard::Again, NOW).await.unwrap();
    }
    let due = db.due_entries(&chain, 5).await.unwrap();
    let whose: HashMap<i64, Attribution> = due
        .iter()
        .map(|entry| {
            let number = entry.address.strip_prefix("user-").and_then(|number| number.parse().ok());
            (entry.id, number.map_or(Attribution::Nobody(Reason::NoUser), |number| Attribution::User(user(number))))
        })
        .collect();
    let ids: Vec<i64> = due.iter().map(|entry| entry.id).collect();
    let posted = db.post_entries(&worker, &chain, &ids, &whose, NOW).await.unwrap();
    assert_eq!(posted.credited, 3);
    db.mark_proven(&worker, NOW).await.unwrap();
    db.settle_deposits(&worker, &chain, NOW).await.unwrap();
    server
}

fn ids(body: &Value) -> Vec<String> {
    let deposits = body["deposits"].as_array().unwrap();
    deposits.iter().map(|one| one["deposit_id"].as_str().unwrap().to_owned()).collect()
}

db_test! {
    async fn own_deposits_are_listed_newest_first_and_nobody_elses(db: TestDb) {
        let server = start(db).await;
        let one = server.get(1, PATH).await;
        assert_eq!(one.status, 200, "{one:?}");
        let one = one.json();
        let shown: Vec<(&Value, &Value, &Value, &Value)> = one["deposits"].as_array().unwrap().iter()
            .map(|deposit| (&deposit["asset"], &deposit["paid"], &deposit["credited"], &deposit["state"])).collect();
        let [usdt, wide, paid, wide_paid, credited, wide_credited] =
            ["USDT", "WIDE", "1.500000000000000001", "3.000000000000000000", "1.50", "3.00"].map(|text| json!(text));
        assert_eq!(shown, [
            (&wide, &wide_paid, &wide_credited, &json!("credited")), (&usdt, &paid, &credited, &json!("final")),
        ], "what is not deep enough has no user yet: {one}");
        let two = server.get(2, PATH).await.json();
        assert_eq!(ids(&two).len(), 1);
        assert_eq!(server.get(3, PATH).await.json(), json!({ "deposits": [] }));
        // Another user's is as good as none.
        let others = format!("{PATH}/{}", ids(&two)[0]);
        let reply = server.get(1, others.as_str()).await;
        assert_eq!((reply.status, reply.code().as_str()), (404, "DEPOSIT_NOT_FOUND"));
        assert_eq!(server.get(2, others).await.status, 200);
    }

    async fn one_deposit_has_its_block_and_its_history(db: TestDb) {
        let server = start(db).await;
        let id = ids(&server.get(1, PATH).await.json()).pop().unwrap();
        let one = server.get(1, format!("{PATH}/{id}")).await.json();
        let (block, transaction) = (format!("0x{}", hash(1)), format!("0x{}", hash(1_001)));
        assert_eq!(one["block"], json!({
            "height": 1, "hash": block, "confirmations": 5, "credited_at": 2, "final_at": 4,
        }));
        assert_eq!((&one["transaction"], &one["place"], &one["address"]), (&json!(transaction), &json!("log:0"), &json!("user-1")));
        let history: Vec<&Value> = one["history"].as_array().unwrap().iter().map(|step| &step["state"]).collect();
        assert!(!one.to_string().contains("\"one\""), "which node showed it is the house's own: {one}");
        assert_eq!(history, [&json!("detected"), &json!("proven"), &json!("credited"), &json!("final")]);
    }

    async fn filters_and_pages_hold(db: TestDb) {
        let server = start(db).await;
        let all = ids(&server.get(1, PATH).await.json());
        let (mut paged, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = server.get(1, format!("{PATH}?limit=1{cursor}")).await.json();
            paged.extend(ids(&page));
            let Some(next) = page["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(paged, all);
        for (query, count) in [("chain=bsc", 2), ("asset=WIDE", 1), ("asset=BTC", 0), ("state=final", 1), ("state=reversed", 0)] {
            assert_eq!(ids(&server.get(1, format!("{PATH}?{query}")).await.json()).len(), count, "{query}");
        }
        for (query, code) in [
            ("?state=lost", "INVALID_REQUEST"), ("?limit=0", "INVALID_REQUEST"), ("?limit=201", "INVALID_REQUEST"),
            ("?cursor=4", "INVALID_REQUEST"), ("?user=2", "INVALID_REQUEST"), ("?chain=nowhere", "INVALID_CHAIN"),
            ("?asset=NONE", "INVALID_ASSET"), ("/dp-0", "INVALID_REQUEST"), ("/7", "INVALID_REQUEST"),
        ] {
            let reply = server.get(1, format!("{PATH}{query}")).await;
            assert_eq!((reply.status, reply.code().as_str()), (400, code), "{query}: {reply:?}");
        }
        assert_eq!(server.send(&Ask::get(PATH)).await.status, 401, "a token is needed");
    }
}
