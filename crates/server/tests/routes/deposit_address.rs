//! `/api/v1/deposit_address`: one address for a user and a chain, derived whenever it is shown.

use std::sync::Arc;

use custody::wallet::{Pinned, assign};
use domain::{AssetOnChain, Availability, Chain, ChainKind, Listing, Purpose};
use serde_json::{Value, json};
use store::catalog::Catalog;
use store::grants::DatabaseRole;
use store::testing::{NOW, TestDb};
use store::utxo::is_watched;
use store::{Engine, db_test};
use tx::{AccountKey, Family, Group};

use crate::support::*;

const PATH: &str = "/api/v1/deposit_address";
// Of BIP-39's published words "abandon … about": m/44'/60'/0', m/84'/0'/0'.
const EVM: &str =
    "xpub6DCoCpSuQZB2jawqnGMEPS63ePKWkwWPH4TU45Q7LPXWuNd8TMtVxRrgjtEshuqpK3mdhaWHPFsBngh5GFZaM6si3yZdUsT8ddYM3PwnATt";
const BITCOIN: &str =
    "xpub6CatWdiZiodmUeTDp8LT5or8nmbKNcuyvz7WyksVFkKB4RHwCD3XyuvPEbvqAQY3rAPshWcMLoP2fMFMKHPJ4ZeZXYVUhLv1VMrjPC7PW6V";
const THIEF: &str = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";

fn group(name: &str, family: Family, xpub: &str) -> Group {
    let key = AccountKey::parse(xpub, family).unwrap();
    Group { id: name.parse().unwrap(), purpose: Purpose::Deposit, key }
}

fn on_evm() -> Group {
    group("users-evm", Family::Evm, EVM)
}

fn on_bitcoin() -> Group {
    group("users-btc", Family::parse("bitcoin").unwrap(), BITCOIN)
}

/// | chain | | assets |
/// |---|---|---|
/// | bsc | active | USDT by a contract; WIDE, its own coin; HALTED is suspended; BTC there is suspended |
/// | other | active, EVM too | none |
/// | closed | suspended, EVM | |
/// | bitcoin | active | BTC |
/// | tron | active, no group | |
fn treasury() -> Catalog {
    use Availability::{Active, Suspended};
    let mut catalog = catalog();
    for (name, kind, network, confirmations, status) in [
        ("bsc", ChainKind::Evm, "56", 12, Active),
        ("other", ChainKind::Evm, "1", 30, Active),
        ("closed", ChainKind::Evm, "5", 30, Suspended),
        ("bitcoin", ChainKind::Bitcoin, "mainnet", 3, Active),
        ("tron", ChainKind::Tron, "mainnet", 19, Active),
    ] {
        let chain = Chain {
            name: name.parse().unwrap(),
            kind,
            network: network.into(),
            confirmations,
            final_confirmations: confirmations,
            outbound: domain::outbound::OutboundLimits::usual(kind),
            status,
        };
        catalog.chains.insert(chain.name.clone(), chain);
    }
    for (asset, chain, contract, status) in [
        ("USDT", "bsc", Some("0x55d398326f99059ff775485246999027b3197955"), Active),
        ("WIDE", "bsc", None, Active),
        ("HALTED", "bsc", Some("0x55d398326f99059ff775485246999027b3197956"), Active),
        ("BTC", "bsc", Some("0x55d398326f99059ff775485246999027b3197957"), Suspended),
        ("BTC", "bitcoin", None, Active),
    ] {
        let precision = domain::Precision::new(2).unwrap();
        let listing = Listing {
            asset: asset.parse().unwrap(),
            chain: chain.parse().unwrap(),
            form: AssetOnChain::new(precision, 8, contract.map(str::to_owned)).unwrap(),
            min_deposit: domain::Amount::from_units(150),
            status,
        };
        catalog.listings.insert((listing.asset.clone(), listing.chain.clone()), listing);
    }
    catalog
}

/// On PostgreSQL the server has the rights of its role and no more.
async fn start(db: &TestDb) -> (Server, Arc<Pinned>) {
    db.with_role(DatabaseRole::Api).await;
    let mut pinned = Pinned::default();
    pinned.add_group(on_evm(), true).unwrap();
    pinned.add_group(on_bitcoin(), true).unwrap();
    let pinned = Arc::new(pinned);
    db.apply_treasury(&treasury(), &pinned.settings(), &AUTHOR, NOW).await.unwrap();
    (Server::pinning(db, Choice::default(), Arc::clone(&pinned)).await, pinned)
}

/// What an owner of the tables can do, who knows how to get the trigger out of the way.
async fn tamper(db: &TestDb, statement: &str) {
    let free = match db.engine() {
        Engine::Postgres => "ALTER TABLE user_wallets DISABLE TRIGGER USER",
        Engine::Sqlite => "DROP TRIGGER trg_user_wallet_fixed_update",
    };
    db.by_hand(&format!("{free}; {statement}")).await.unwrap();
}

fn body(chain: &str) -> String {
    json!({ "chain": chain }).to_string()
}

fn address(group: &Group, user: u64) -> String {
    group.address(user).unwrap().to_string()
}

db_test! {
    async fn a_user_has_one_address_on_a_chain_and_it_is_the_keys_own(db: TestDb) {
        let (server, _) = start(db).await;
        let first = server.post(1, PATH, body("bsc")).await;
        assert_eq!(first.status, 200, "{first:?}");
        assert_eq!(first.json(), json!({
            "chain": "bsc", "address": address(&on_evm(), 1), "current": true, "status": "active", "confirmations": 12,
            "assets": [
                { "asset": "USDT", "contract": "0x55d398326f99059ff775485246999027b3197955", "min_deposit": "1.50" },
                { "asset": "WIDE", "min_deposit": "1.50" },
            ],
        }), "what is suspended may not be paid");
        for _ in 0..3 {
            assert_eq!(server.post(1, PATH, body("bsc")).await.json(), first.json(), "the same every time");
        }
        let rows = store::wallet::users::count_user_wallets(&mut db.read().await.unwrap(), None).await.unwrap();
        assert_eq!(rows, 1);
        let two = server.post(2, PATH, body("bsc")).await.json();
        assert_eq!(two["address"], address(&on_evm(), 2));
        let bitcoin = server.post(1, PATH, body("bitcoin")).await.json();
        assert_eq!((&bitcoin["address"], &bitcoin["assets"][0]["asset"]), (&json!(address(&on_bitcoin(), 1)), &json!("BTC")));
        // Before anybody has seen it.
        let script = on_bitcoin().address(1).unwrap().script_bytes().unwrap();
        assert!(is_watched(&mut db.read().await.unwrap(), &script).await.unwrap());
    }

    async fn own_addresses_are_listed_by_chain(db: TestDb) {
        let (server, _) = start(db).await;
        assert_eq!(server.get(1, PATH).await.json(), json!({ "addresses": [] }));
        server.post(1, PATH, body("bsc")).await;
        server.post(1, PATH, body("bitcoin")).await;
        server.post(2, PATH, body("bitcoin")).await;
        let listed = server.get(1, PATH).await.json();
        let shown: Vec<(&Value, &Value, &Value)> = listed["addresses"].as_array().unwrap().iter()
            .map(|one| (&one["chain"], &one["address"], &one["status"])).collect();
        let (evm, bitcoin) = (json!(address(&on_evm(), 1)), json!(address(&on_bitcoin(), 1)));
        let (active, suspended) = (json!("active"), json!("suspended"));
        // All EVM chains share the address.
        assert_eq!(shown, [
            (&json!("bitcoin"), &bitcoin, &active), (&json!("bsc"), &evm, &active), (&json!("closed"), &evm, &suspended),
            (&json!("other"), &evm, &active),
        ]);
        assert_eq!(server.send(&Ask::get(PATH)).await.status, 401, "a token is needed");
    }

    async fn an_older_address_is_listed_behind_the_current_one(db: TestDb) {
        let (server, pinned) = start(db).await;
        assign(db, &pinned, &on_evm().id, &[user(1)], NOW).await.unwrap();
        server.shut_down().await;
        let mut newer = Pinned::default();
        newer.add_group(on_evm(), false).unwrap();
        let next = group("users-evm-2", Family::Evm, BITCOIN);
        newer.add_group(next.clone(), true).unwrap();
        let newer = Arc::new(newer);
        db.by_hand("UPDATE wallet_groups SET is_active = FALSE WHERE name = 'users-evm'").await.unwrap();
        db.by_hand("INSERT INTO wallet_groups (id, name, family, purpose, xpub, derivation_path_template, is_active,
            created_at, updated_at) VALUES (99, 'users-evm-2', 'evm', 'deposit', 'other', '', TRUE, 0, 0)").await.unwrap();
        let server = Server::pinning(db, Choice::default(), newer).await;
        assert_eq!(server.post(1, PATH, body("bsc")).await.json()["address"], address(&next, 1));
        let listed = server.get(1, PATH).await.json();
        let bsc: Vec<(&Value, &Value)> = listed["addresses"].as_array().unwrap().iter().filter(|one| one["chain"] == "bsc")
            .map(|one| (&one["address"], &one["current"])).collect();
        let (new, old) = (json!(address(&next, 1)), json!(address(&on_evm(), 1)));
        assert_eq!(bsc, [(&new, &json!(true)), (&old, &json!(false))]);
    }

    async fn what_cannot_be_given_is_refused_and_nothing_is_written(db: TestDb) {
        let (server, _) = start(db).await;
        let token = server.token(1);
        let ask = |body: &str| Ask::post(PATH, body).token(&token);
        for (body, status, code) in [
            (r#"{"chain":"nowhere"}"#, 400, "INVALID_CHAIN"),
            (r#"{"chain":"BSC"}"#, 400, "INVALID_CHAIN"),
            (r#"{"chain":7}"#, 400, "INVALID_REQUEST"),
            (r#"{"chain":"bsc","user_id":2}"#, 400, "INVALID_REQUEST"),
            (r#"["bsc"]"#, 400, "INVALID_REQUEST"),
            ("{}", 400, "INVALID_REQUEST"),
            (r#"{"chain":"closed"}"#, 422, "CHAIN_SUSPENDED"),
            (r#"{"chain":"tron"}"#, 422, "WALLET_GROUP_UNUSABLE"),
        ] {
            server.refuses(body, &ask(body), status, code).await;
        }
        assert_eq!(server.send(&Ask::post(PATH, body("bsc"))).await.status, 401);
        let rows = store::wallet::users::count_user_wallets(&mut db.read().await.unwrap(), None).await.unwrap();
        assert_eq!(rows, 0);
    }

    async fn a_row_that_somebody_changed_is_shown_to_nobody_and_is_an_alert(db: TestDb) {
        let (server, pinned) = start(db).await;
        assign(db, &pinned, &on_evm().id, &[user(1), user(2)], NOW).await.unwrap();
        tamper(db, &format!("UPDATE user_wallets SET address = '{THIEF}' WHERE user_id = 1")).await;
        for reply in [server.post(1, PATH, body("bsc")).await, server.get(1, PATH).await] {
            assert_eq!((reply.status, reply.code().as_str()), (503, "WALLET_ROW_DIFFERS"), "{reply:?}");
            let text = reply.json().to_string();
            assert!(!text.contains(THIEF) && !text.contains(&address(&on_evm(), 1)), "{text}");
        }
        // No round over all rows is waited for.
        let standing = server.app.wallet_rows.standing();
        assert_eq!(standing.differ, 1);
        assert!(standing.first.unwrap().what.contains(THIEF));
        assert_eq!(server.post(2, PATH, body("bsc")).await.status, 200, "a neighbour is not concerned");
        assert_eq!(server.get(2, PATH).await.status, 200);
    }
}
