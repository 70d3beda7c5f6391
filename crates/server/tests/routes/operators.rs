//! `/api/v1/operator/…`: who gets in, what each may do, every bad approval, and that all of it is written down.

use std::collections::BTreeMap;
use std::sync::Arc;

use custody::wallet::Pinned;
use domain::operator::{OperatorName, OperatorRole};
use domain::transfer::ClientOrderId;
use domain::withdrawal::{FeeRule, USUAL_LIFE_US, WhenShort, WithdrawalPolicy, WithdrawalState};
use domain::{Amount, AssetOnChain, Availability, Chain, ChainKind, Clock, Listing, Purpose, Symbol, WalletRole};
use serde_json::{Value, json};
use server::auth::{OperatorClaims, sign_operator_hs256};
use signer::policy::signed::SigningKey;
use signer::wire::IntentBody;
use store::catalog::Catalog;
use store::db_test;
use store::grants::DatabaseRole;
use store::operator::{CheckSetting, LogFilter, OperatorKey, OperatorSetting, PeopleSettings};
use store::outbound::JobId;
use store::testing::{NOW, TestDb};
use store::withdrawal::{
    CheckHeard, CheckVerdict, CreatedWithdrawal, Enqueue, Enqueued, NewWithdrawal, SignedRounds, WithdrawalId,
};
use tx::{AccountKey, Family, Group};

use crate::support::*;

const PATH: &str = "/api/v1/operator/withdrawals";
const OWN: &str = "/api/v1/withdrawals";
/// Of BIP-39's published words "abandon … about": m/44'/60'/0'.
const EVM: &str =
    "xpub6DCoCpSuQZB2jawqnGMEPS63ePKWkwWPH4TU45Q7LPXWuNd8TMtVxRrgjtEshuqpK3mdhaWHPFsBngh5GFZaM6si3yZdUsT8ddYM3PwnATt";
const TO: &str = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";

fn key(person: &str) -> SigningKey {
    let mut seed = [7_u8; 32];
    seed[..person.len()].copy_from_slice(person.as_bytes());
    let head = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
    SigningKey::read(&[&head[..], &seed].concat()).unwrap()
}

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
            min_deposit: Amount::from_units(10),
            status: Availability::Active,
        };
        catalog.listings.insert((listing.asset.clone(), listing.chain.clone()), listing);
    }
    catalog.people = people();
    catalog
}

/// ann is customer 1; ann, bob and cat are approvers, dan is an administrator, eve an operator, fay looks.
fn people() -> PeopleSettings {
    let mut operators: BTreeMap<OperatorName, OperatorSetting> = BTreeMap::new();
    for (name, role, of) in [
        ("ann", OperatorRole::Approver, Some(1)),
        ("bob", OperatorRole::Approver, None),
        ("cat", OperatorRole::Approver, None),
        ("dan", OperatorRole::Administrator, None),
        ("eve", OperatorRole::Operator, None),
        ("fay", OperatorRole::Viewer, None),
    ] {
        let public = signer::digest::hex(&key(name).public());
        let keys = if role.signs() {
            [(format!("{name}-1"), OperatorKey { public, place: None })].into()
        } else {
            BTreeMap::new()
        };
        operators.insert(name.parse().unwrap(), OperatorSetting { role, user: of.map(user), active: true, keys });
    }
    PeopleSettings { operators, ..PeopleSettings::default() }
}

/// Two people have to agree to whatever is asked for.
fn policy() -> WithdrawalPolicy {
    let all = Amount::from_units(1_000_000);
    WithdrawalPolicy {
        version: 0,
        enabled: true,
        incident: false,
        min: Amount::from_units(1),
        max: all,
        fee: FeeRule { fixed: Amount::from_units(10), share_bps: 0, least: Amount::ZERO },
        auto_approve: Amount::ZERO,
        auto_approve_daily: None,
        two_above: Amount::ZERO,
        many_above: all,
        many: 3,
        daily_user: None,
        daily_total: None,
        velocity: None,
        cooling_off_us: 0,
        book_only: false,
        when_short: WhenShort::Fail,
        quote_life_us: 0,
        life_us: USUAL_LIFE_US,
    }
}

struct Office {
    server: Server,
    listing: store::entry::ListingId,
}

impl Office {
    async fn open(db: &TestDb) -> Self {
        Self::with(db, Choice::default()).await
    }

    /// On PostgreSQL the server has the rights of its role and no more.
    async fn with(db: &TestDb, choice: Choice) -> Self {
        db.with_role(DatabaseRole::Api).await;
        let mut pinned = Pinned::default();
        let xpub = AccountKey::parse(EVM, Family::Evm).unwrap();
        let group = Group { id: "hot".parse().unwrap(), purpose: Purpose::Hot, key: xpub };
        pinned.add_group(group, true).unwrap();
        let hot = "hot".parse().unwrap();
        pinned.add_derived(("bsc".parse().unwrap(), Family::Evm), WalletRole::Hot, (&hot, 0), true).unwrap();
        let pinned = Arc::new(pinned);
        db.apply_treasury(&treasury(), &pinned.settings(), &AUTHOR, NOW).await.unwrap();
        let server = Server::pinning(db, choice, pinned).await;
        let chain = db.chain(&"bsc".parse().unwrap()).await.unwrap().unwrap();
        let usdt: Symbol = "USDT".parse().unwrap();
        let listing = chain.listings.iter().find(|one| one.symbol == usdt).unwrap().id;
        db.set_withdrawal_policy(listing, &policy(), &AUTHOR, NOW).await.unwrap();
        Self { server, listing }
    }

    /// User 1 wants 1.00 USDT; its fee is 0.10.
    async fn asked(&self, number: i64) -> WithdrawalId {
        let id = WithdrawalId::new(domain::id::first_at(NOW) + number).unwrap();
        let new = NewWithdrawal {
            id,
            user: user(1),
            client_order_id: ClientOrderId::new(format!("order-{number}")).unwrap(),
            listing: self.listing,
            to: TO.to_owned(),
            amount: Amount::from_units(100),
            most_fee: Amount::from_units(10),
            quote: None,
            travel_rule: None,
        };
        let made = self.server.db.create_withdrawals(&[new], self.server.clock.now()).await.unwrap().remove(0);
        assert!(matches!(made, CreatedWithdrawal::New(_)), "{made:?}");
        id
    }

    fn token(&self, name: &str) -> String {
        let now = self.server.clock.now();
        let claims = OperatorClaims {
            operator: name.parse().unwrap(),
            issuer: "login".into(),
            audience: "bursar-operators".into(),
            issued_at: now,
            expires_at: now.plus_micros(600_000_000),
        };
        sign_operator_hs256(&SECRET, None, &claims).unwrap()
    }

    async fn get(&self, name: &str, path: impl Into<String>) -> Reply {
        self.server.send(&Ask::get(path).token(&self.token(name))).await
    }

    async fn post(&self, name: &str, path: &str, body: Value) -> Reply {
        self.server.send(&Ask::post(path, body.to_string()).token(&self.token(name))).await
    }

    async fn act(&self, name: &str, id: WithdrawalId, what: &str, body: Value) -> Reply {
        self.post(name, &format!("{PATH}/{id}/{what}"), body).await
    }

    async fn state(&self, id: WithdrawalId) -> WithdrawalState {
        self.server.db.withdrawals(&[id]).await.unwrap()[0].state
    }

    /// The digest of what is shown, made anew.
    async fn digest(&self, id: WithdrawalId) -> [u8; 32] {
        let shown = self.get("bob", format!("{PATH}/{id}/intent")).await;
        assert_eq!(shown.status, 200, "{shown:?}");
        let shown = shown.json();
        let body: IntentBody = serde_json::from_value(shown["intent"].clone()).unwrap();
        let text = |name: &str| shown[name].as_str().unwrap().to_owned();
        let intent = body.intent(&text("chain").parse().unwrap(), &text("group").parse().unwrap()).unwrap();
        assert_eq!(signer::digest::hex(&intent.digest()), text("digest"));
        intent.digest()
    }

    /// A signature by one key under the name of another.
    fn signature(&self, digest: &[u8; 32], named: &str, by: &str) -> Value {
        let signed = key(by).sign_approval(digest);
        json!({ "digest": signer::digest::hex(digest), "key": named, "ed25519": signer::digest::hex(&signed) })
    }

    async fn approve(&self, name: &str, id: WithdrawalId) -> Reply {
        let digest = self.digest(id).await;
        self.act(name, id, "approve", self.signature(&digest, &format!("{name}-1"), name)).await
    }

    /// Who, what and what came of it; the oldest first.
    async fn log(&self) -> Vec<String> {
        let mut lines = self.server.db.operator_log(&LogFilter::default(), i64::MAX, 1_000).await.unwrap();
        lines.reverse();
        lines.iter().map(|line| format!("{} {} {}", line.line.operator, line.line.action, line.line.outcome)).collect()
    }
}

#[track_caller]
fn refused(reply: &Reply, status: u16, code: &str) {
    assert_eq!((reply.status, reply.code().as_str()), (status, code), "{reply:?}");
}

db_test! {
    async fn a_customers_token_opens_no_door_of_operators_and_the_other_way_round(db: TestDb) {
        let office = Office::open(db).await;
        let id = office.asked(1).await;
        for path in ["/figures", "/log", "/withdrawals", "/withdrawals/ID", "/withdrawals/ID/intent"] {
            let path = format!("/api/v1/operator{}", path.replace("ID", &id.to_string()));
            refused(&office.server.get(1, path.as_str()).await, 401, "UNAUTHORIZED");
            refused(&office.server.send(&Ask::get(path.as_str())).await, 401, "UNAUTHORIZED");
            assert_eq!(office.get("fay", path).await.status, 200, "a viewer sees all");
        }
        for what in ["approve", "reject", "review", "assign", "retry"] {
            let path = format!("{PATH}/{id}/{what}");
            refused(&office.server.post(1, &path, "{}").await, 401, "UNAUTHORIZED");
        }
        for path in ["/api/v1/balances", "/api/v1/internal_transfer", "/api/v1/deposits"] {
            refused(&office.get("dan", path).await, 401, "UNAUTHORIZED");
        }
        assert_eq!(office.log().await, Vec::<String>::new(), "whoever is nobody is not written down");
    }

    async fn whoever_is_switched_off_is_refused_at_once(db: TestDb) {
        let office = Office::open(db).await;
        let id = office.asked(1).await;
        let token = office.token("bob");
        let ask = |path: &str| Ask::get(format!("/api/v1/operator{path}")).token(&token);
        assert_eq!(office.server.send(&ask("/figures")).await.status, 200);
        let mut without = treasury();
        without.people.operators.get_mut(&"bob".parse().unwrap()).unwrap().active = false;
        db.apply_catalog(&without, &AUTHOR, NOW).await.unwrap();
        refused(&office.server.send(&ask("/figures")).await, 401, "UNAUTHORIZED");
        let sent = Ask::post(format!("{PATH}/{id}/reject"), r#"{"reason":"x"}"#).token(&token);
        refused(&office.server.send(&sent).await, 401, "UNAUTHORIZED");
        refused(&office.get("zoe", "/api/v1/operator/log").await, 401, "UNAUTHORIZED");
        // Another role holds from the next request on.
        let mut viewer = treasury();
        let bob = viewer.people.operators.get_mut(&"bob".parse().unwrap()).unwrap();
        (bob.role, bob.keys) = (OperatorRole::Viewer, BTreeMap::new());
        db.apply_catalog(&viewer, &AUTHOR, NOW).await.unwrap();
        refused(&office.server.send(&sent).await, 403, "OPERATOR_FORBIDDEN");
    }

    /// Each refusal has a line in the log: nobody fills the disk with them, and nobody else waits for that.
    async fn whoever_is_refused_too_often_is_not_written_down_any_more(db: TestDb) {
        let office = Office::with(db, Choice { per_second: 5, ..Choice::default() }).await;
        let id = office.asked(1).await;
        let try_it = async || office.act("fay", id, "reject", json!({ "reason": "x" })).await;
        for _ in 0..5 {
            refused(&try_it().await, 403, "OPERATOR_FORBIDDEN");
        }
        for _ in 0..20 {
            let reply = try_it().await;
            refused(&reply, 429, "RATE_LIMIT_EXCEEDED");
            assert_eq!(reply.header("retry-after"), Some("1"), "{reply:?}");
        }
        refused(&office.get("fay", "/api/v1/operator/log").await, 429, "RATE_LIMIT_EXCEEDED");
        assert_eq!(office.log().await, ["fay reject OPERATOR_FORBIDDEN"; 5]);
        assert_eq!(office.get("eve", PATH).await.status, 200, "it is each operator's own");
        office.server.pass(std::time::Duration::from_secs(1));
        refused(&try_it().await, 403, "OPERATOR_FORBIDDEN");
        assert_eq!(office.log().await.len(), 6);
    }

    async fn two_different_people_agree_over_http(db: TestDb) {
        let office = Office::open(db).await;
        let id = office.asked(1).await;
        let shown = office.get("bob", format!("{PATH}/{id}/intent")).await.json();
        let sentence = shown["sentence"].as_str().unwrap();
        for part in ["pay 1 USDT", "0x55d398326f99059ff775485246999027b3197955", TO, "bsc", "WIDE of fee", "user-1"] {
            assert!(sentence.to_lowercase().contains(&part.to_lowercase()), "{part}: {sentence}");
        }
        let queue = office.get("fay", PATH).await.json();
        assert_eq!(queue["withdrawals"][0]["waits_for"], "0 of 2 people have agreed");
        let first = office.approve("bob", id).await;
        assert_eq!((first.status, first.json()["state"].clone(), first.json()["agree"].clone()), (200, json!("pending"), json!(1)));
        let again = office.approve("bob", id).await.json();
        assert_eq!((&again["again"], &again["agree"]), (&json!(true), &json!(1)), "the same person counts once");
        let whole = office.get("fay", format!("{PATH}/{id}")).await.json();
        assert_eq!((&whole["waits_for"], &whole["approvals"][0]["person"]), (&json!("1 of 2 people have agreed"), &json!("bob")));
        assert_eq!((&whole["rule"], &whole["inputs"]["facts"]["available"]), (&json!("two_people"), &json!(FUNDS.to_string())));
        let second = office.approve("cat", id).await.json();
        assert_eq!((&second["state"], office.state(id).await), (&json!("approved"), WithdrawalState::Approved));
        assert_eq!(office.log().await, ["bob approve done", "bob approve done", "cat approve done"]);
        let lines = office.get("fay", "/api/v1/operator/log?operator=cat").await.json();
        assert_eq!(lines["lines"].as_array().unwrap().len(), 1);
        assert!(lines["lines"][0]["request_id"].as_str().unwrap().starts_with("req-"), "{lines}");
    }

    /// Whoever could make operators could make a second administrator.
    async fn of_two_administrators_it_is_said_that_an_approver_is_missing(db: TestDb) {
        let office = Office::open(db).await;
        let mut two = treasury();
        let public = signer::digest::hex(&key("gus").public());
        let keys = [("gus-1".to_owned(), OperatorKey { public, place: None })].into();
        let gus = OperatorSetting { role: OperatorRole::Administrator, user: None, active: true, keys };
        two.people.operators.insert("gus".parse().unwrap(), gus);
        db.apply_catalog(&two, &AUTHOR, NOW).await.unwrap();
        let id = office.asked(1).await;
        let waits = async || office.get("fay", PATH).await.json()["withdrawals"][0]["waits_for"].clone();
        for (name, words) in [("dan", "1 of 2 people have agreed"), ("gus", "2 of 2 people have agreed, and an approver is missing")] {
            assert_eq!(office.approve(name, id).await.json()["state"], json!("pending"));
            assert_eq!(waits().await, json!(words));
        }
        // One of them is switched off: then somebody else is missing.
        two.people.operators.get_mut(&"gus".parse().unwrap()).unwrap().active = false;
        db.apply_catalog(&two, &AUTHOR, NOW).await.unwrap();
        assert_eq!(waits().await, json!("1 of 2 people have agreed"));
        assert_eq!(office.approve("bob", id).await.json()["state"], json!("approved"));
    }

    /// Each of these changes nothing, and is written down.
    async fn every_bad_approval_is_refused(db: TestDb) {
        let office = Office::open(db).await;
        let (id, other) = (office.asked(1).await, office.asked(2).await);
        let (digest, of_other) = (office.digest(id).await, office.digest(other).await);
        let good = |name: &str, by: &str| office.signature(&digest, &format!("{name}-1"), by);
        let try_it = async |name: &str, body: Value| office.act(name, id, "approve", body).await;
        // Forged: signed by somebody else, or garbage, or with the digest of something else in the body.
        refused(&try_it("bob", good("bob", "cat")).await, 422, "APPROVAL_BAD");
        let mut garbage = good("bob", "bob");
        garbage["ed25519"] = json!("00".repeat(64));
        refused(&try_it("bob", garbage).await, 422, "APPROVAL_BAD");
        let mut mixed = good("bob", "bob");
        mixed["digest"] = json!(signer::digest::hex(&of_other));
        refused(&try_it("bob", mixed).await, 409, "APPROVAL_OTHER_DIGEST");
        // Replayed: it was signed for another withdrawal.
        refused(&try_it("bob", office.signature(&of_other, "bob-1", "bob")).await, 409, "APPROVAL_OTHER_DIGEST");
        // By whose money it is.
        refused(&try_it("ann", good("ann", "ann")).await, 403, "APPROVAL_BY_REQUESTER");
        // A key that is nobody's, and one that is another person's.
        refused(&try_it("bob", good("zoe", "bob")).await, 422, "APPROVAL_BAD");
        refused(&try_it("bob", good("cat", "cat")).await, 422, "APPROVAL_BAD");
        // Whoever may not.
        for name in ["eve", "fay"] {
            refused(&try_it(name, good("bob", "bob")).await, 403, "OPERATOR_FORBIDDEN");
        }
        refused(&office.server.post(1, &format!("{PATH}/{id}/approve"), good("bob", "bob").to_string()).await, 401, "UNAUTHORIZED");
        // What is no approval at all.
        for body in [json!({}), json!([]), json!({ "digest": "00", "key": "bob-1", "ed25519": "00" }), json!({ "digest": signer::digest::hex(&digest), "key": "bob-1" })] {
            refused(&try_it("bob", body).await, 400, "INVALID_REQUEST");
        }
        let nowhere = WithdrawalId::new(5).unwrap();
        refused(&office.act("bob", nowhere, "approve", good("bob", "bob")).await, 404, "WITHDRAWAL_NOT_FOUND");
        assert_eq!((office.state(id).await, office.server.db.withdrawal_approvals(&[id, other]).await.unwrap().len()), (WithdrawalState::Pending, 0));
        // After its time.
        office.server.clock.set(NOW.plus_micros(USUAL_LIFE_US));
        refused(&office.act("bob", id, "approve", good("bob", "bob")).await, 409, "WITHDRAWAL_EXPIRED");
        assert_eq!(office.log().await, [
            "bob approve APPROVAL_BAD", "bob approve APPROVAL_BAD", "bob approve APPROVAL_OTHER_DIGEST", "bob approve APPROVAL_OTHER_DIGEST",
            "ann approve APPROVAL_BY_REQUESTER", "bob approve APPROVAL_BAD", "bob approve APPROVAL_BAD", "eve approve OPERATOR_FORBIDDEN",
            "fay approve OPERATOR_FORBIDDEN", "bob approve WITHDRAWAL_NOT_FOUND", "bob approve WITHDRAWAL_EXPIRED",
        ]);
    }

    async fn an_administrator_needs_somebody_who_is_none(db: TestDb) {
        let office = Office::open(db).await;
        let one = WithdrawalPolicy { two_above: Amount::from_units(1_000_000), ..policy() };
        db.set_withdrawal_policy(office.listing, &one, &AUTHOR, NOW).await.unwrap();
        let id = office.asked(1).await;
        let alone = office.approve("dan", id).await.json();
        assert_eq!((&alone["state"], &alone["wanted"], &alone["agree"]), (&json!("pending"), &json!(2), &json!(1)));
        assert_eq!(office.approve("bob", id).await.json()["state"], "approved");
    }

    /// All three come in over HTTP, on connections of their own. Whichever is first: it ends called off, since nothing is paid yet, and the money
    /// comes back once.
    async fn two_cancels_and_one_approve_at_once(db: TestDb) {
        let office = Office::open(db).await;
        let one = WithdrawalPolicy { two_above: Amount::from_units(1_000_000), ..policy() };
        db.set_withdrawal_policy(office.listing, &one, &AUTHOR, NOW).await.unwrap();
        for number in 1..=8 {
            let id = office.asked(number).await;
            let digest = office.digest(id).await;
            let (calls_off, agrees) = (format!("{OWN}/{id}/cancel"), format!("{PATH}/{id}/approve"));
            let body = office.signature(&digest, "bob-1", "bob");
            let cancel = || office.server.post(1, &calls_off, "");
            let approve = office.post("bob", &agrees, body);
            let (approved, first, second) = match number % 3 {
                0 => tokio::join!(approve, cancel(), cancel()),
                1 => {
                    let (first, approved, second) = tokio::join!(cancel(), approve, cancel());
                    (approved, first, second)
                }
                _ => {
                    let (first, second, approved) = tokio::join!(cancel(), cancel(), approve);
                    (approved, first, second)
                }
            };
            for told in [&first, &second] {
                assert_eq!((told.status, told.code().as_str()), (200, "cancelled"), "{told:?}");
            }
            assert_eq!(first.json(), second.json(), "both are told the same");
            match approved.status {
                200 => assert_eq!(approved.json()["state"], "approved"),
                _ => refused(&approved, 409, "WITHDRAWAL_NOT_NOW"),
            }
            let whole = office.get("fay", format!("{PATH}/{id}")).await.json();
            let steps: Vec<&str> = whole["history"].as_array().unwrap().iter().map(|step| step["state"].as_str().unwrap()).collect();
            let expected: &[&str] =
                if approved.status == 200 { &["pending", "approved", "cancelled"] } else { &["pending", "cancelled"] };
            assert_eq!(steps, expected, "one of the cancels ended it, and the other found it ended");
            let (available, frozen, _) = office.server.usdt(1).await;
            assert_eq!((available, frozen), (FUNDS, 0), "it is given back once");
        }
        assert_eq!(office.log().await.len(), 8, "each approval is written down, whatever came of it");
        assert!(db.audit(|_| ()).await.unwrap().clean());
    }

    /// Bob has a laptop and a telephone, and is one person.
    async fn a_second_key_of_the_same_person_does_not_count_twice(db: TestDb) {
        let office = Office::open(db).await;
        let mut both = treasury();
        let bob = both.people.operators.get_mut(&"bob".parse().unwrap()).unwrap();
        bob.keys.insert("bob-2".to_owned(), OperatorKey { public: signer::digest::hex(&key("bob-two").public()), place: None });
        db.apply_catalog(&both, &AUTHOR, NOW).await.unwrap();
        let id = office.asked(1).await;
        let digest = office.digest(id).await;
        let sign = async |name: &str, named: &str, by: &str| office.act(name, id, "approve", office.signature(&digest, named, by)).await;
        refused(&sign("bob", "bob-2", "bob").await, 422, "APPROVAL_BAD");
        let first = sign("bob", "bob-1", "bob").await.json();
        assert_eq!((&first["agree"], &first["wanted"], &first["again"]), (&json!(1), &json!(2), &json!(false)));
        let second = sign("bob", "bob-2", "bob-two").await;
        assert_eq!(second.status, 200, "{second:?}");
        let second = second.json();
        assert_eq!((&second["state"], &second["agree"], &second["again"]), (&json!("pending"), &json!(1), &json!(true)));
        assert_eq!(office.state(id).await, WithdrawalState::Pending);
        let whole = office.get("fay", format!("{PATH}/{id}")).await.json();
        assert_eq!((&whole["agreed"], &whole["waits_for"]), (&json!(1), &json!("1 of 2 people have agreed")));
        let mut kept: Vec<&str> = whole["approvals"].as_array().unwrap().iter().map(|one| one["key"].as_str().unwrap()).collect();
        kept.sort_unstable();
        assert_eq!(kept, ["bob-1", "bob-2"], "both signatures are kept");
        assert_eq!(sign("cat", "cat-1", "cat").await.json()["state"], "approved");
    }

    async fn what_a_customer_says_of_the_destination_is_shown_to_operators(db: TestDb) {
        let office = Office::open(db).await;
        let ask = |name: &str, said: &Value| {
            json!({
                "client_order_id": name, "asset": "USDT", "chain": "bsc", "address": TO, "amount": "1.00", "max_fee": "0.10",
                "travel_rule": said,
            })
            .to_string()
        };
        let said = json!({ "beneficiary": "Ada Lovelace", "place": { "b": 1, "a": "ä" } });
        let reply = office.server.post(1, OWN, ask("one", &said)).await;
        assert_eq!(reply.status, 202, "{reply:?}");
        let id = reply.json()["withdrawal_id"].as_str().unwrap().to_owned();
        let shown = office.get("fay", format!("{PATH}/{id}")).await.json();
        assert_eq!(shown["travel_rule"], said, "{shown}");
        // The same again is the same; with another it is another request.
        assert_eq!(office.server.post(1, OWN, ask("one", &said)).await.json()["withdrawal_id"], json!(id));
        refused(&office.server.post(1, OWN, ask("one", &json!({ "beneficiary": "Bob" }))).await, 409, "DUPLICATE_REQUEST");
        refused(&office.server.post(1, OWN, ask("two", &json!([]))).await, 400, "INVALID_REQUEST");
        let without = office.asked(1).await;
        let shown = office.get("fay", format!("{PATH}/{without}")).await.json();
        assert!(shown.get("travel_rule").is_none(), "nothing was said of this one: {shown}");
    }

    /// It has no slot, so nothing of it can be out. Who serves may make it due, and no more.
    async fn a_job_that_rests_is_tried_now(db: TestDb) {
        let office = Office::open(db).await;
        let id = office.asked(1).await;
        for name in ["bob", "cat"] {
            assert_eq!(office.approve(name, id).await.status, 200);
        }
        let why = json!({ "reason": "coins have come" });
        let reply = office.act("eve", id, "retry", why.clone()).await;
        refused(&reply, 409, "RETRY_NOT_SAFE");
        assert!(reply.body.contains("has no job yet"), "{reply:?}");
        let chain = db.chain(&"bsc".parse().unwrap()).await.unwrap().unwrap();
        let job = JobId::new(id.number() + 1).unwrap();
        let signed = SignedRounds::of([(id, Some(0))]);
        let queued = db.enqueue_withdrawals(&chain, &[Enqueue { withdrawal: id, job }], &signed, NOW).await.unwrap().remove(0);
        assert!(matches!(queued, Enqueued::Queued { .. }), "{queued:?}");
        db.by_hand("UPDATE outbound_jobs SET due_at = due_at + 1000000000").await.unwrap();
        let reply = office.act("eve", id, "retry", why).await;
        assert_eq!((reply.status, reply.code().as_str()), (200, "queued"), "{reply:?}");
        let due = db.ask("", "SELECT due_at FROM outbound_jobs").await.unwrap();
        assert_eq!(due, [[Some(NOW.micros().to_string())]]);
        let whole = office.get("fay", format!("{PATH}/{id}")).await.json();
        assert_eq!((&whole["job"]["job_id"], &whole["job"]["state"]), (&json!(job.to_string()), &json!("queued")));
        assert_eq!(whole["transactions"], json!([]), "nothing was signed");
    }

    async fn operators_refuse_doubt_assign_and_retry(db: TestDb) {
        let office = Office::open(db).await;
        let (first, second) = (office.asked(1).await, office.asked(2).await);
        let why = json!({ "reason": "on a list" });
        refused(&office.act("fay", first, "reject", why.clone()).await, 403, "OPERATOR_FORBIDDEN");
        for bad in [json!({}), json!({ "reason": "" }), json!({ "reason": " " }), json!({ "reason": "x\ny" }), json!({ "reason": "x".repeat(201) }), json!({ "reason": "x", "more": 1 })] {
            refused(&office.act("eve", first, "reject", bad).await, 400, "INVALID_REQUEST");
        }
        assert_eq!(office.act("eve", second, "review", why.clone()).await.json()["state"], "manual_review");
        assert_eq!(office.act("eve", second, "assign", json!({ "to": "cat" })).await.status, 200);
        refused(&office.act("eve", second, "assign", json!({ "to": "zoe" })).await, 404, "OPERATOR_NOT_FOUND");
        let of_cat = office.get("fay", format!("{PATH}?assigned_to=cat")).await.json();
        assert_eq!((of_cat["withdrawals"].as_array().unwrap().len(), &of_cat["withdrawals"][0]["assigned_to"]), (1, &json!("cat")));
        let reply = office.act("eve", second, "retry", why.clone()).await;
        refused(&reply, 409, "RETRY_NOT_SAFE");
        assert!(reply.body.contains("waits for people"), "{reply:?}");
        let rejected = office.act("bob", first, "reject", why.clone()).await.json();
        assert_eq!((&rejected["state"], &rejected["again"]), (&json!("rejected"), &json!(false)));
        assert_eq!(office.act("eve", first, "reject", why.clone()).await.json()["again"], true);
        refused(&office.act("eve", first, "review", why).await, 409, "WITHDRAWAL_NOT_NOW");
        assert_eq!(office.server.usdt(1).await.0, FUNDS - 110, "one was given back, the other is still held");
        let whole = office.get("fay", format!("{PATH}/{first}")).await.json();
        let last = whole["history"].as_array().unwrap().last().unwrap().clone();
        assert_eq!((&last["actor"], &last["reason"]), (&json!("bob"), &json!("on a list")));
    }

    async fn pages_and_filters_hold(db: TestDb) {
        let office = Office::open(db).await;
        let mut ids = Vec::new();
        for number in 1..=5 {
            ids.push(office.asked(number).await.to_string());
        }
        let listed = |page: &Value| -> Vec<String> {
            page["withdrawals"].as_array().unwrap().iter().map(|one| one["withdrawal_id"].as_str().unwrap().to_owned()).collect()
        };
        let (mut paged, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = office.get("fay", format!("{PATH}?limit=2{cursor}")).await.json();
            paged.extend(listed(&page));
            let Some(next) = page["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(paged, ids, "the oldest first");
        for (query, count) in [("state=pending", 5), ("state=completed", 0), ("chain=bsc", 5), ("chain=tron", 0), ("asset=USDT", 5), ("asset=BTC", 0), ("user_id=1", 5), ("user_id=2", 0)] {
            assert_eq!(listed(&office.get("fay", format!("{PATH}?{query}")).await.json()).len(), count, "{query}");
        }
        for query in ["state=lost", "limit=0", "limit=201", "cursor=4", "user_id=0", "user_id=01", "assigned_to=7", "chain=x%20y", "more=1"] {
            refused(&office.get("fay", format!("{PATH}?{query}")).await, 400, "INVALID_REQUEST");
        }
        for path in ["/api/v1/operator/figures?hours=0", "/api/v1/operator/figures?hours=8761", "/api/v1/operator/log?limit=0", "/api/v1/operator/log?cursor=-1", "/api/v1/operator/withdrawals/4", "/api/v1/operator/withdrawals/wr-0"] {
            refused(&office.get("fay", path).await, 400, "INVALID_REQUEST");
        }
        refused(&office.get("fay", format!("{PATH}/wr-7")).await, 404, "WITHDRAWAL_NOT_FOUND");
        let figures = office.get("fay", "/api/v1/operator/figures").await.json();
        assert_eq!((&figures["pending_approvals"], &figures["requests"], &figures["gas"]), (&json!(5), &json!({ "pending": 5 }), &json!([])));
    }

    async fn nobody_agrees_before_the_check_outside_has_answered(db: TestDb) {
        let office = Office::open(db).await;
        let mut checked = treasury();
        checked.people.checks.insert(("USDT".parse().unwrap(), "bsc".parse().unwrap()), CheckSetting { from: Some(Amount::ZERO) });
        db.apply_catalog(&checked, &AUTHOR, NOW).await.unwrap();
        let id = office.asked(1).await;
        refused(&office.approve("bob", id).await, 409, "CHECK_WAITS");
        let shown = office.get("fay", PATH).await.json();
        assert_eq!((&shown["withdrawals"][0]["check"]["state"], &shown["withdrawals"][0]["waits_for"]), (&json!("waiting"), &json!("the check outside has not answered yet")));
        assert_eq!(office.act("eve", id, "retry", json!({ "reason": "again" })).await.status, 200);
        let heard = CheckHeard::Answer { verdict: CheckVerdict::Allow, reason: "fine".to_owned(), digest: "d".repeat(64) };
        db.keep_check_answers(&[(id, heard)], NOW).await.unwrap();
        assert_eq!(office.approve("bob", id).await.status, 200);
    }

    /// With a listener of their own, operators are not found at the public one.
    async fn operators_have_a_listener_of_their_own(db: TestDb) {
        let choice = Choice { pages: server::api::Pages { docs: true, metrics: false }, ..Choice::default() };
        let office = Office::with(db, choice).await;
        let figures = Ask::get("/api/v1/operator/figures").token(&office.token("fay"));
        let mut line = Line::open(office.server.operations).await.unwrap();
        assert_eq!(line.exchange(&figures.bytes()).await.unwrap().status, 200);
        refused(&office.server.send(&figures).await, 404, "PATH_NOT_FOUND");
    }
}
