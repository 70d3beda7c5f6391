//! `bursar utxo give-up`: two people, and only what no node could mine.

use domain::Timestamp;
use serde_json::json;
use store::utxo::OutPoint;

use crate::follow::Nodes;
use crate::shell::*;

/// The devnet begins with coins for it.
const PURSE: &str = "bcrt1q5428vq2uzwhm3taey9sr9x5vm6tk78ew8pf2xw";

#[test]
fn what_may_still_be_mined_is_not_given_up() {
    let (shell, nodes) = (Shell::with_wallet(), Nodes::start());
    let (one, other) = (nodes.url(0), nodes.url(1));
    let of = |hash: String, second: &str| -> Vec<String> {
        let words = ["utxo", "give-up", "hot", &hash, "--actor", "ann", "--second", second, "--reason", "case 7"];
        [&words[..], &["--node", &one, "--node", &other]].concat().into_iter().map(str::to_owned).collect()
    };
    let code = |code: &str, words: &[String]| shell.code(code, &words.iter().map(String::as_str).collect::<Vec<_>>());
    // Nobody has ever made what it spends.
    shell.fill(async |db, _| {
        db.see_transactions(&[transaction(UNCONFIRMED)], THEN).await.expect("stored");
    });
    let lost = hash(UNCONFIRMED).to_string();
    code("UTXO_NOT_ON_TIP", &of(lost.clone(), "bob"));
    shell.ok(&["utxo", "address", "add", "hot", "--account", "7", "--address", PURSE]);
    shell.ok(&["utxo", "follow", "--once", "--node", &one, "--node", &other]);
    code("SECOND_PERSON_MISSING", &of(lost.clone(), "Ann"));
    code("UTXO_UNKNOWN_TRANSACTION", &of(hash(THIRD).to_string(), "bob"));

    // This one spends an output that is there, and waits nowhere.
    let coins = shell.json(&["utxo", "list", "hot", "--account", "7"]);
    let (hash_of_coin, index) =
        coins["outputs"][0]["outpoint"].as_str().and_then(|one| one.split_once(':')).expect("a coin");
    let coin = OutPoint { hash: hash_of_coin.parse().expect("a hash"), index: index.parse().expect("an index") };
    let open = bytes(&[coin], &[(account_0(), 1_000)]);
    shell.fill(async |db, _| {
        db.see_transactions(std::slice::from_ref(&open), THEN).await.expect("stored");
    });
    let words = of(open.hash.to_string(), "bob");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (code_found, message, ..) = shell.refused(&words);
    assert_eq!(code_found, "UTXO_MAY_BE_MINED");
    assert!(message.contains("all that it spends is there"), "{message}");
    assert_eq!(shell.json(&["utxo", "tx", "hot", &open.hash.to_string()])["status"], "published");

    let words = of(lost.clone(), "bob");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = shell.json(&words);
    assert_eq!((&done["hash"], &done["second"]), (&json!(lost), &json!("bob")));
    assert_eq!(done["changed"], json!([{ "hash": lost, "status": "failed", "reason": "given up" }]));
    let told = shell.json(&["utxo", "tx", "hot", &lost]);
    assert_eq!((&told["status"], &told["given_up"]), (&json!("failed"), &json!(true)));
    assert!(told["history"].to_string().contains("given up: ann + bob: case 7"), "{told}");
    assert!(shell.ok(&words).contains("was given up already"));
    // A node shows it after all.
    shell.fill(async |db, _| {
        let later: Timestamp = THEN.plus_micros(1_000_000);
        db.see_transactions(&[transaction(UNCONFIRMED)], later).await.expect("stored");
    });
    let told = shell.json(&["utxo", "tx", "hot", &lost]);
    assert_eq!((&told["status"], &told["given_up"]), (&json!("published"), &json!(false)));
    assert_eq!(shell.json(&["utxo", "check"])["findings"], json!([]));
    // Without their answer nothing is given up.
    drop(nodes);
    let (code_found, _, _, exit) = shell.refused(&words);
    assert_eq!((code_found.as_str(), exit), ("CHAIN_UNREACHABLE", 3));
    assert_eq!(shell.json(&["utxo", "tx", "hot", &lost])["status"], "published");
}
