//! People's signatures count when they are for this very intent, by people whom the policy names, and once each.

use domain::Timestamp;
use serde_json::Value;
use signer::approval::{GivenApproval, Proof, revoke_digest};
use signer::digest::{hex, unhex, unhex32};
use signer::names::JobId;
use signer::policy::{Approver, Passkey, PublicKey};
use signer::text::Hash;
use signer::{Intent, IntentKind, SignRequest, SignerChain, SignerRefusal};
use tx::{Address, Coin, Payment};

use crate::world::*;

fn vectors() -> Value {
    serde_json::from_str(include_str!("../vectors/approvals.json")).unwrap()
}

fn text<'a>(case: &'a Value, field: &str) -> &'a str {
    case[field].as_str().unwrap_or_else(|| panic!("no {field} in {case}"))
}

fn evm_address(text: &str) -> Address {
    Address::Evm(tx::evm::address::parse(text).unwrap())
}

/// An intent from the fields that Python hashed.
fn intent(case: &Value) -> Intent {
    let kind = if text(case, "kind") == "pay" {
        let coin = match text(case, "coin") {
            "native" => Coin::Native,
            contract => Coin::Token(evm_address(contract)),
        };
        let payment =
            Payment { to: evm_address(text(case, "to")), coin, amount: text(case, "amount").parse().unwrap() };
        IntentKind::Pay { payment, owner: None }
    } else {
        IntentKind::Cancel { jobs: text(case, "cancels").split(',').map(|job| job.parse::<JobId>().unwrap()).collect() }
    };
    let network = match text(case, "network").split_once(':') {
        Some(("evm", chain_id)) => SignerChain::Evm { chain_id: chain_id.parse().unwrap() },
        Some(("bitcoin", network)) => SignerChain::Bitcoin(network.parse().unwrap()),
        _ => SignerChain::Tron,
    };
    Intent {
        signer: text(case, "signer").parse().unwrap(),
        network,
        job: text(case, "job").parse().unwrap(),
        round: text(case, "round").parse().unwrap(),
        chain: text(case, "chain").parse().unwrap(),
        group: text(case, "group").parse().unwrap(),
        kind,
        most_fee: text(case, "most_fee").parse().unwrap(),
        expires: Timestamp::from_micros(text(case, "expires").parse().unwrap()),
        builds: text(case, "builds").parse().unwrap(),
        requester: text(case, "requester").parse().unwrap(),
    }
}

#[test]
fn the_digest_is_what_its_description_says() {
    let cases = vectors();
    let cases = cases["intents"].as_array().unwrap();
    assert_eq!(cases.len(), 17);
    for case in cases {
        assert_eq!(hex(&intent(case).digest()), text(case, "digest"), "{}", text(case, "name"));
    }
}

#[test]
fn an_ed25519_approval_is_good_for_its_digest_alone() {
    let cases = vectors();
    let cases = cases["ed25519"].as_array().unwrap();
    for case in cases {
        let person = "bob".parse().unwrap();
        let approver = Approver { person, key: PublicKey::Ed25519(unhex32(text(case, "public")).unwrap()) };
        for other in cases {
            let given = GivenApproval {
                digest: unhex32(text(other, "digest")).unwrap(),
                key: "bob".parse().unwrap(),
                proof: Proof::Ed25519(unhex(text(case, "signature")).unwrap()),
            };
            assert_eq!(given.check(&approver).is_ok(), case == other);
        }
    }
}

fn passkey(vectors: &Value, case: &Value) -> (GivenApproval, Approver) {
    let bytes = |field: &str| unhex(text(case, field)).unwrap();
    let given = GivenApproval {
        digest: unhex32(text(case, "digest")).unwrap(),
        key: "alice".parse().unwrap(),
        proof: Proof::Passkey {
            authenticator_data: bytes("authenticator_data"),
            client_data: bytes("client_data"),
            signature: bytes("signature"),
        },
    };
    let key = PublicKey::Passkey(Passkey {
        public: bytes("public"),
        relying_party: text(vectors, "relying_party").to_owned(),
        origins: [text(vectors, "origin").to_owned()].into(),
    });
    (given, Approver { person: "alice".parse().unwrap(), key })
}

/// The package `webauthn` accepts every one of these, for what `accepted_for` says.
#[test]
fn a_passkeys_assertion_is_good_for_its_digest_site_and_user_alone() {
    let vectors = vectors();
    let mut refused = 0;
    for case in vectors["passkeys"].as_array().unwrap() {
        let (given, approver) = passkey(&vectors, case);
        let name = text(case, "name");
        match (case["refuse"].as_str(), given.check(&approver)) {
            (None, Ok(Some(counter))) => assert!(counter > 0, "{name}"),
            (Some(why), Err(said)) => {
                assert!(said.contains(why), "{name}: {said}");
                refused += 1;
            }
            (_, other) => panic!("{name}: {other:?}"),
        }
    }
    assert_eq!(refused, 22);
}

#[test]
fn no_changed_byte_of_an_assertion_is_good() {
    let vectors = vectors();
    let (good, approver) = passkey(&vectors, &vectors["passkeys"][0]);
    assert!(good.check(&approver).is_ok());
    let Proof::Passkey { authenticator_data, client_data, signature } = &good.proof else { panic!("a passkey") };
    let parts = [authenticator_data, client_data, signature];
    for (number, part) in parts.iter().enumerate() {
        for at in 0..part.len() {
            let mut changed = parts.map(Clone::clone);
            changed[number][at] ^= 1 << (at % 8);
            let [authenticator_data, client_data, signature] = changed;
            let given =
                GivenApproval { proof: Proof::Passkey { authenticator_data, client_data, signature }, ..good.clone() };
            assert!(given.check(&approver).is_err(), "part {number}, byte {at}");
        }
    }
}

/// A payment above the first step needs two of four.
fn large(names: &[&str]) -> SignRequest {
    let mut request = evm(1, 4, 20_000_000).request("large");
    let digest = request.intents[0].digest();
    request.approvals = names.iter().map(|name| approve(name, digest)).collect();
    request
}

#[test]
fn above_a_step_so_many_different_people_sign_and_never_the_requester() {
    let (mut signer, _) = signer();
    let missing = |given| SignerRefusal::ApprovalsMissing { given, needed: 2 };
    for (names, given) in [
        (&[][..], 0),
        (&["bob"], 1),
        (&["bob", "bob"], 1),
        // Two keys of one person.
        (&["carol", "carol-2"], 1),
        // Erin asked for it.
        (&["bob", "erin"], 1),
        // Olga is nobody's approver.
        (&["bob", "olga"], 1),
    ] {
        assert_eq!(refusal(&mut signer, &large(names), 0), missing(given), "{names:?}");
    }
    let mut strange = large(&["bob", "dave"]);
    strange.approvals[1].key = "nobody".parse().unwrap();
    assert!(matches!(refusal(&mut signer, &strange, 0), SignerRefusal::BadApproval(..)));
    let mut swapped = large(&["bob", "dave"]);
    swapped.approvals[1].key = "carol".parse().unwrap();
    assert!(matches!(refusal(&mut signer, &swapped, 0), SignerRefusal::BadApproval(..)));
    let mut other = large(&["bob", "dave"]);
    other.intents[0].most_fee = raw(600_000_000_000_001);
    assert!(matches!(refusal(&mut signer, &other, 0), SignerRefusal::BadApproval(..)), "they signed another fee");
    assert_eq!(approved(&mut signer, &large(&["carol", "dave"]), 0), "hot-bsc/native/step 2 (2 of 4)");
    // What people approved leaves the window as it was.
    approved(&mut signer, &evm(2, 5, 1_000_000).request("small"), 0);
}

#[test]
fn an_approved_payment_is_replaced_without_them_as_long_as_the_intent_is_the_same() {
    let (mut signer, _) = signer();
    let base = evm(1, 4, 20_000_000).gas_price(30);
    let make = |id: &str, price: u128, names: &[&str], most_fee: u128, at: i64| {
        let mut request = base.clone().gas_price(price).at(at).request(id);
        request.intents[0].most_fee = raw(most_fee);
        let digest = request.intents[0].digest();
        request.approvals = names.iter().map(|name| approve(name, digest)).collect();
        request
    };
    let most = 60_000 * 40 * GWEI;
    approved(&mut signer, &make("a", 30, &["bob", "dave"], most, 0), 0);
    // After its expiry too: it pays no more than before.
    assert_eq!(approved(&mut signer, &make("b", 40, &[], most, 0), 2 * DAY), "hot-bsc/native/again");
    assert_eq!(
        refusal(&mut signer, &make("c", 41, &[], most + 60_000 * GWEI, 2 * DAY), 2 * DAY),
        SignerRefusal::ApprovalsMissing { given: 0, needed: 2 },
        "a higher fee is another intent"
    );
}

#[test]
fn an_expired_or_endless_intent_takes_no_slot() {
    let (mut signer, _) = signer();
    let request = evm(1, 4, 900).request("a");
    assert_eq!(refusal(&mut signer, &request, DAY), SignerRefusal::IntentExpired);
    let mut endless = request.clone();
    endless.intents[0].expires = Timestamp::from_micros(NOW + 49 * HOUR);
    assert_eq!(refusal(&mut signer, &endless, 0), SignerRefusal::IntentLivesTooLong);
    approved(&mut signer, &request, DAY - 1);
}

#[test]
fn an_approval_that_was_taken_back_does_not_count() {
    let (mut signer, folder) = signer();
    let request = large(&["bob", "dave"]);
    let digest = request.intents[0].digest();
    let revoked = Hash(digest);
    // Nobody else can take it back, and no other signature of his is one.
    assert!(signer.revoke(&revoked, &approve("dave", digest), after(0)).is_err());
    let mut forged = approve("carol", revoke_digest(&digest));
    forged.key = "dave".parse().unwrap();
    assert!(signer.revoke(&revoked, &forged, after(0)).is_err());
    signer.revoke(&revoked, &approve("dave", revoke_digest(&digest)), after(0)).unwrap();
    let missing = SignerRefusal::ApprovalsMissing { given: 1, needed: 2 };
    assert_eq!(refusal(&mut signer, &request, 0), missing);
    let mut signer = reopen(&folder, Some(signer.head()), 0);
    assert_eq!(refusal(&mut signer, &request, 0), missing);
    approved(&mut signer, &large(&["bob", "carol"]), 0);
}

/// The policy of the tests with alice's passkey of the vectors in bob's place.
fn with_passkey(vectors: &Value) -> String {
    let alice = format!(
        "\n[[approver]]\nkey = \"alice\"\nperson = \"alice\"\npasskey = {{ public = \"{}\", relying_party = \"{}\", origins = [\"{}\"] }}\n\n[[chain]]",
        text(&vectors["passkeys"][0], "public"),
        text(vectors, "relying_party"),
        text(vectors, "origin"),
    );
    let text = policy(1).replacen("\n[[chain]]", &alice, 1).replace("of = [\"bob\", ", "of = [\"alice\", ");
    // The vectors' payment is five coins.
    text.replace("\"5000000\"", "\"5000000000000000000\"").replace("\"100000000\"", "\"50000000000000000000\"")
}

#[test]
fn a_counter_stands_under_one_digest() {
    let vectors = vectors();
    let folder = crate::faulty::FaultyFolder::new(1);
    let mut signer = signer::Authorizer::open(folder.clone(), None, after(0)).unwrap();
    let text = with_passkey(&vectors);
    signer.apply_policy(text.as_bytes(), &signed(&text, &["ada", "ben"]), after(0)).unwrap();
    let intent = intent(&vectors["intents"][0]);
    let IntentKind::Pay { payment, .. } = &intent.kind else { panic!("a payment") };
    let base = evm(1, 4, 1).to(payment.to.clone());
    let base = Evm { payment: payment.clone(), ..base };
    let mut request = base.request("passkey");
    request.intents = vec![intent.clone()];
    let cases = vectors["passkeys"].as_array().unwrap();
    let forged = cases.iter().find(|case| text_of(case) == "for one unit more").unwrap();
    let mut wrong = request.clone();
    wrong.approvals = vec![passkey(&vectors, forged).0];
    assert!(matches!(refusal(&mut signer, &wrong, 0), SignerRefusal::BadApproval(..)));
    // The same counter for another digest is a copied passkey. Python signs digest after digest, so a second device that
    // begins at the same count is made of the state instead.
    request.approvals = vec![passkey(&vectors, &cases[0]).0];
    approved(&mut signer, &request, 0);
    let counter = 1;
    let (key, digest) = ("alice".parse().unwrap(), Hash(intent.digest()));
    let state = signer.state();
    assert!(state.counter_is_good(&key, counter, &digest), "a replacement brings the same assertion");
    assert!(!state.counter_is_good(&key, counter, &Hash([1; 32])));
    assert!(!state.counter_is_good(&key, 0, &Hash([1; 32])), "a counter that counted does not stop");
    assert!(state.counter_is_good(&key, 2, &Hash([1; 32])));
    let signer = reopen(&folder, Some(signer.head()), 0);
    assert!(!signer.state().counter_is_good(&key, counter, &Hash([1; 32])), "after a start too");
}

fn text_of(case: &Value) -> &str {
    text(case, "name")
}
