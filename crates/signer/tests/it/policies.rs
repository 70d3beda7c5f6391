//! Who may change what is allowed, from when it holds, and what it would have changed.

use signer::SignerRefusal;
use signer::authorizer::ApplyError;
use signer::log::walk;
use signer::policy::file::parse;
use signer::policy::signed::PolicyError;
use signer::policy::simulate::Simulation;
use signer::policy::tighter::loosened;

use crate::world::*;

fn edited(version: u64, from: &str, to: &str) -> String {
    let text = policy(version);
    assert!(text.contains(from), "{from}");
    text.replace(from, to)
}

#[test]
fn a_policy_is_signed_by_so_many_administrators_of_the_one_before() {
    let (mut signer, _) = signer();
    let text = edited(2, "hour = \"3000000\"", "hour = \"2000000\"");
    let mut apply = |text: &str, names: &[&str]| signer.apply_policy(text.as_bytes(), &signed(text, names), after(0));
    let refused = |result: Result<_, ApplyError>| match result {
        Err(ApplyError::Policy(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(apply(&text, &["ada"])), PolicyError::SignaturesMissing { given: 1, needed: 2 });
    assert_eq!(refused(apply(&text, &["ada", "ada"])), PolicyError::SignaturesMissing { given: 1, needed: 2 });
    assert_eq!(refused(apply(&text, &["ada", "bob"])), PolicyError::Stranger("bob".parse().unwrap()));
    // A policy that makes bob an administrator is not his to sign.
    let bob = format!("ben = \"{}\"", signer::digest::hex(ring::signature::KeyPair::public_key(&key("bob")).as_ref()));
    let coup = regex_free_replace(&text, "ben = \"", &bob);
    let signatures = signed(&coup, &["ada", "bob"]);
    let signatures: Vec<_> = signatures
        .into_iter()
        .map(|mut one| {
            one.by = if one.by.as_str() == "bob" { "ben".parse().unwrap() } else { one.by };
            one
        })
        .collect();
    assert_eq!(
        refused(signer.apply_policy(coup.as_bytes(), &signatures, after(0))),
        PolicyError::BadSignature("ben".parse().unwrap())
    );
    // A signature is for every byte.
    let signatures = signed(&text, &["ada", "cyd"]);
    let spaced = format!("{text} ");
    assert!(matches!(
        refused(signer.apply_policy(spaced.as_bytes(), &signatures, after(0))),
        PolicyError::BadSignature(_)
    ));
    signer.apply_policy(text.as_bytes(), &signatures, after(0)).unwrap().unwrap();
    assert_eq!(signer.policy(after(0)).unwrap().version, 2);
}

/// Replaces what stands between this beginning and the end of its value.
fn regex_free_replace(text: &str, from: &str, to: &str) -> String {
    let start = text.find(from).unwrap();
    let end = start + from.len() + text[start + from.len()..].find('"').unwrap() + 1;
    format!("{}{to}{}", &text[..start], &text[end..])
}

#[test]
fn what_is_tighter_holds_at_once_and_what_is_looser_after_a_day() {
    let (mut signer, folder) = signer();
    let both = &["ada", "ben"];
    let looser = edited(2, "hour = \"3000000\"", "hour = \"3000001\"");
    let accepted = signer.apply_policy(looser.as_bytes(), &signed(&looser, both), after(0)).unwrap().unwrap();
    assert_eq!(accepted.effective.micros(), NOW + DAY);
    for number in 0..3 {
        let nonce = u64::try_from(number).unwrap();
        approved(&mut signer, &evm(number, nonce, 1_000_000).request(&format!("a-{number}")), 0);
    }
    assert_eq!(signer.policy(after(DAY - 1)).unwrap().version, 1);
    let mut signer = reopen(&folder, None, DAY - 1);
    assert_eq!(signer.policy(after(DAY - 1)).unwrap().version, 1);
    assert_eq!(signer.policy(after(DAY)).unwrap().version, 2);
    signer.snapshot(30 * DAY, after(DAY)).unwrap();
    let mut signer = reopen(&folder, None, DAY);
    assert_eq!(signer.policy(after(DAY)).unwrap().version, 2, "a snapshot keeps what waits");
    // A version never goes back, and none has two contents.
    let old = signer.apply_policy(policy(1).as_bytes(), &signed(&policy(1), both), after(DAY));
    assert!(matches!(old, Err(ApplyError::Policy(PolicyError::OldVersion { new: 1, newest: 2 }))), "{old:?}");
    let other = edited(2, "hour = \"3000000\"", "hour = \"1\"");
    let other = signer.apply_policy(other.as_bytes(), &signed(&other, both), after(DAY));
    assert!(matches!(other, Err(ApplyError::Policy(PolicyError::OtherContent))), "{other:?}");
    // The same again is nothing new.
    assert_eq!(signer.apply_policy(looser.as_bytes(), &signed(&looser, both), after(DAY)).unwrap(), None);
    // A tightening drops what waits.
    let wide = edited(3, "hour = \"3000000\"", "hour = \"9000000\"");
    signer.apply_policy(wide.as_bytes(), &signed(&wide, both), after(DAY)).unwrap().unwrap();
    let tight = edited(4, "hour = \"3000000\"", "hour = \"5\"");
    signer.apply_policy(tight.as_bytes(), &signed(&tight, both), after(DAY)).unwrap().unwrap();
    assert_eq!(signer.policy(after(DAY)).unwrap().version, 4);
    assert_eq!(signer.policy(after(9 * DAY)).unwrap().version, 4);
    assert_eq!(
        refusal(&mut signer, &evm(9, 9, 6).at(3 * DAY).request("b"), 3 * DAY),
        SignerRefusal::ApprovalsMissing { given: 0, needed: 1 }
    );
}

/// For each field a change in one direction; the other direction is the opposite. What is neither is a loosening both ways.
#[test]
fn every_field_knows_which_way_is_tighter() {
    let cold = stranger(7).evm().to_string();
    let other = stranger(8).evm().to_string();
    let two_cold = format!("destinations = [\"{cold}\", \"{other}\"]");
    let one_cold = format!("destinations = [\"{cold}\"]");
    let dave = format!(
        "[[approver]]\nkey = \"dave-2\"\nperson = \"dave\"\ned25519 = \"{}\"\n\n[[chain]]",
        signer::digest::hex(ring::signature::KeyPair::public_key(&key("dave-2")).as_ref())
    );
    let tighter: &[(&str, &str)] = &[
        ("cooling_off_hours = 24", "cooling_off_hours = 25"),
        ("most_intent_life_hours = 48", "most_intent_life_hours = 47"),
        ("cooling_off_hours = 24\n", "cooling_off_hours = 24\nmost_tron_life_hours = 23\n"),
        ("cooling_off_hours = 24\n", "cooling_off_hours = 24\ntron_margin_minutes = 11\n"),
        ("cooling_off_hours = 24\n", "cooling_off_hours = 24\nmost_tron_builds = 2\n"),
        ("needed = 2", "needed = 3"),
        ("operators = [\"olga\"]", "operators = []"),
        ("payment = \"1000000\"", "payment = \"999999\""),
        ("hour = \"3000000\"", "hour = \"2999999\""),
        ("day = \"10000000\"", "day = \"9999999\""),
        ("most_fee = \"100000\"", "most_fee = \"99999\""),
        ("most_fee_day = \"10000000\"", "most_fee_day = \"9999999\""),
        ("highest_index = 9", "highest_index = 8"),
        ("highest_index = 9\n", ""),
        ("approvals = 1, of = [\"bob\", \"carol\", \"erin\"]", "approvals = 2, of = [\"bob\", \"carol\", \"erin\"]"),
        ("approvals = 1, of = [\"bob\", \"carol\", \"erin\"]", "approvals = 1, of = [\"bob\", \"erin\"]"),
        ("up_to = \"100000000\"", "up_to = \"99999999\""),
        ("up_to = \"5000000\"", "up_to = \"4999999\""),
        (&two_cold, &one_cold),
        (&dave, "[[chain]]"),
        ("role = \"hot\"\nmost_fee = \"100000\"", "role = \"hot\"\ndestinations = []\nmost_fee = \"100000\""),
    ];
    for (from, to) in tighter {
        let base = policy(1).replacen(&one_cold, &two_cold, 1).replacen("[[chain]]", &dave, 1);
        assert!(base.contains(from), "{from}");
        let (old, new) = (parse(base.as_bytes()).unwrap(), parse(base.replacen(from, to, 1).as_bytes()).unwrap());
        assert_eq!(loosened(&old, &new), Vec::<String>::new(), "{from} to {to}");
        assert!(!loosened(&new, &old).is_empty(), "{to} to {from}");
    }
    let neither: &[(&str, &str)] = &[
        ("role = \"gas\"\nmost_fee = \"100000\"", "role = \"hot\"\nmost_fee = \"100000\""),
        ("chain_id = 56", "chain_id = 57"),
        ("network = \"regtest\"", "network = \"signet\""),
        ("of = [\"bob\", \"carol\", \"erin\"]", "of = [\"bob\", \"carol\", \"dave\"]"),
        ("key = \"bob\"\nperson = \"bob\"", "key = \"bob-2\"\nperson = \"bob\""),
        ("key = \"carol-2\"\nperson = \"carol\"", "key = \"carol-2\"\nperson = \"dave\""),
    ];
    for (from, to) in neither {
        let base = policy(1);
        assert!(base.contains(from), "{from}");
        let (old, new) = (parse(base.as_bytes()).unwrap(), parse(base.replacen(from, to, 1).as_bytes()).unwrap());
        assert!(!loosened(&old, &new).is_empty() && !loosened(&new, &old).is_empty(), "{from} to {to}");
    }
    // A coin, a group or a chain less is tighter; more is not.
    let whole = parse(policy(1).as_bytes()).unwrap();
    for part in 0..3 {
        let mut fewer = whole.clone();
        match part {
            0 => drop(fewer.chains.pop_first()),
            1 => drop(fewer.groups.pop_first()),
            _ => drop(fewer.groups.values_mut().next().unwrap().coins.pop_first()),
        }
        assert!(loosened(&whole, &fewer).is_empty() && !loosened(&fewer, &whole).is_empty(), "{part}");
    }
}

#[test]
fn a_file_that_could_never_be_meant_is_no_policy() {
    for (from, to) in [
        ("version = 1", "version = 0"),
        ("version = 1", "version = 1\nmost_tron_builds = 0"),
        ("version = 1", "version = 1\nversions = 2"),
        ("needed = 2", "needed = 4"),
        ("needed = 2", "needed = 0"),
        ("approvals = 2", "approvals = 5"),
        ("approvals = 1", "approvals = 0"),
        ("of = [\"bob\"", "of = [\"mallory\""),
        ("operators = [\"olga\"]", "operators = [\"mallory\"]"),
        ("up_to = \"5000000\"", "up_to = \"100000000\""),
        ("up_to = \"5000000\"", "up_to = \"05\""),
        ("hour = \"3000000\"\n", ""),
        ("role = \"hot\"", "role = \"warm\""),
        ("id = \"gas-bsc\"", "id = \"hot-bsc\""),
        ("chain = \"btc\"", "chain = \"ltc\""),
        ("name = \"tron\"\nkind = \"tron\"", "name = \"tron\"\nkind = \"tron\"\nchain_id = 1"),
        ("network = \"regtest\"", "network = \"doge\""),
        // Only EVM's transactions say which chain they are for.
        ("id = \"gas-btc\"\nchain = \"btc\"", "id = \"gas-tron\"\nchain = \"btc\""),
        ("key = \"carol-2\"", "key = \"carol\""),
        ("highest_index = 9", "highest_index = 2147483648"),
        ("role = \"deposit\"", "role = \"deposit\"\nhighest_index = 9"),
    ] {
        let text = policy(1);
        assert!(text.contains(from), "{from}");
        assert!(parse(text.replace(from, to).as_bytes()).is_err(), "{from} to {to}");
    }
    // One key cannot be two people.
    let bob = signer::digest::hex(ring::signature::KeyPair::public_key(&key("bob")).as_ref());
    let dave = signer::digest::hex(ring::signature::KeyPair::public_key(&key("dave")).as_ref());
    assert!(parse(policy(1).replace(&dave, &bob).as_bytes()).is_err());
}

#[test]
fn one_evm_group_has_caps_of_its_own_on_each_chain() {
    let mut text = policy(1);
    let hot = text.split("\n[[group]]\n").find(|part| part.starts_with("id = \"hot-bsc\"")).unwrap().to_owned();
    text = text.replacen("[[chain]]", "[[chain]]\nname = \"eth\"\nkind = \"evm\"\nchain_id = 1\n\n[[chain]]", 1);
    text +=
        &format!("\n[[group]]\n{}", hot.replace("chain = \"bsc\"", "chain = \"eth\"").replace("3000000", "1000000"));
    let folder = crate::faulty::FaultyFolder::new(1);
    let mut signer = signer::Authorizer::open(folder, None, after(0)).unwrap();
    signer.apply_policy(text.as_bytes(), &signed(&text, &["ada", "ben"]), after(0)).unwrap();
    let on_eth = |number, nonce, id: &str| {
        let base = evm(number, nonce, 1_000_000);
        let mut request = base.request(id);
        request.chain = "eth".parse().unwrap();
        request.intents[0].chain = "eth".parse().unwrap();
        request.intents[0].network = signer::SignerChain::Evm { chain_id: 1 };
        let draft = tx::Draft::Evm {
            from: own("hot-bsc", 0),
            nonce,
            payment: base.payment.clone(),
            gas_limit: 60_000,
            fee: base.fee,
        };
        request.payload = tx::evm::build(&draft, 1).unwrap().bytes;
        request
    };
    // The same nonce of the same account is another slot on another chain, and what went out there counts there.
    approved(&mut signer, &evm(1, 4, 1_000_000).request("a"), 0);
    approved(&mut signer, &on_eth(2, 4, "b"), 0);
    approved(&mut signer, &evm(3, 5, 1_000_000).request("c"), 0);
    assert_eq!(
        refusal(&mut signer, &on_eth(4, 5, "d"), 0),
        SignerRefusal::ApprovalsMissing { given: 0, needed: 1 },
        "one million an hour there"
    );
    let mut crossed = on_eth(5, 6, "e");
    crossed.payload = evm(5, 6, 1_000_000).payload();
    assert_eq!(refusal(&mut signer, &crossed, 0), SignerRefusal::OtherNetwork);
}

#[test]
fn a_draft_is_held_against_what_was_decided() {
    let (mut signer, folder) = signer();
    approved(&mut signer, &evm(1, 1, 900_000).request("a"), 0);
    approved(&mut signer, &evm(1, 1, 900_000).gas_price(20).request("a-again"), 0);
    approved(&mut signer, &evm(2, 2, 400_000).request("b"), MINUTE);
    refusal(&mut signer, &evm(3, 3, 4_000_000).request("c"), 2 * MINUTE);
    refusal(&mut signer, &evm(1, 9, 900_000).request("d"), 2 * MINUTE);
    let mut large = evm(4, 4, 4_000_000).request("e");
    large.approvals = vec![approve("bob", large.intents[0].digest())];
    approved(&mut signer, &large, 2 * MINUTE);
    let differences = |text: &str| {
        let draft = parse(text.as_bytes()).unwrap();
        let mut simulation = Simulation::new(&draft);
        walk(&folder, |number, entry| simulation.take(number, entry)).unwrap();
        assert_eq!(simulation.asked, 5, "all but the slot and the policy itself");
        let line = |one: &signer::policy::simulate::Difference| format!("{} {} -> {}", one.request, one.was, one.would);
        simulation.differences.iter().map(line).collect::<Vec<_>>()
    };
    assert_eq!(differences(&policy(2)), Vec::<String>::new());
    assert_eq!(
        differences(&edited(2, "hour = \"3000000\"", "hour = \"1200000\"")),
        ["b approved -> SIGNER_APPROVALS_MISSING"]
    );
    assert_eq!(
        differences(&edited(
            2,
            "payment = \"1000000\"\nhour = \"3000000\"",
            "payment = \"4000000\"\nhour = \"9000000\""
        )),
        ["c SIGNER_APPROVALS_MISSING -> approved"]
    );
    assert_eq!(
        differences(&edited(2, "of = [\"bob\", \"carol\", \"erin\"]", "of = [\"carol\", \"erin\"]")),
        ["e approved -> SIGNER_APPROVALS_MISSING"]
    );
}
