//! `bursar utxo prune`.

use expect_test::expect;
use serde_json::json;
use store::utxo::{NewTx, OutPoint};

use crate::shell::*;

/// A line of four that is final (deposit, what was replaced, what replaced it, what spent that), and one that was
/// replaced not long ago.
fn grown_old(shell: &Shell) {
    sample(shell);
    shell.fill(async |db, _| {
        db.publish(hash(SECOND), THEN).await.expect("stored");
        connect(db, 102, &[transaction(SECOND)]).await;
        connect(db, 103, &[transaction(THIRD)]).await;
        for height in 104..=250 {
            connect(db, height, &[]).await;
        }
        db.see_transactions(&[transaction(LOSER)], THEN).await.expect("stored");
        connect(db, 251, &[transaction(WINNER)]).await;
    });
}

#[test]
fn pruning_takes_what_is_final_in_waves_and_leaves_the_history() {
    let shell = Shell::with_wallet();
    grown_old(&shell);
    let all = ["utxo", "prune", "hot", "--all", "--actor", "ann", "--reason", "spring cleaning"];
    let dry = [&all[..], &["--dry-run"]].concat();
    expect![[r#"
        2 transactions would be pruned at once; what depends on them may follow
        1 not final yet
          1: no deep block has proven yet that it cannot be mined
    "#]]
    .assert_eq(&shell.ok(&dry));
    assert_eq!(
        shell.json(&dry),
        json!({
            "wallet": "hot", "dry_run": true, "pruned": 2, "refused": 1,
            "reasons": { "no deep block has proven yet that it cannot be mined": 1 },
        }),
        "nothing has gone"
    );
    let before = shell.json(&["utxo", "balance"]);
    expect![[r#"
        4 transactions pruned; the history stays
        1 not final yet
          1: no deep block has proven yet that it cannot be mined
    "#]]
    .assert_eq(&shell.ok(&all));
    assert_eq!(shell.json(&["utxo", "balance"]), before, "no coin is lost or comes back");
    let again = shell.json(&all);
    assert_eq!((&again["pruned"], &again["refused"]), (&json!(0), &json!(1)));
    expect![[r#"
        all 5 transactions agree
    "#]]
    .assert_eq(&shell.ok(&["utxo", "check"]));

    let text = shell.ok(&["utxo", "tx", "hot", &hash(FIRST).to_string()]);
    let last = text.lines().last().expect("a line");
    assert!(text.contains("pruned: this is all that is left") && last.contains("spring cleaning"), "{text}");
    let body = shell.json(&["utxo", "tx", "hot", &hash(SECOND).to_string()]);
    assert_eq!(body["pruned"], true);
    let history = body["history"].as_array().expect("a history");
    let became: Vec<&str> = history.iter().map(|one| one["status"].as_str().unwrap()).collect();
    assert_eq!(became, ["pending", "published", "published", "pruned"]);
    assert_eq!(history[3]["actor"], "ann");
}

/// More than one page of what stays and of what goes, what stays first. And a child that was seen before its parent: it
/// is final only when the parent is gone.
#[test]
fn pruning_goes_on_past_what_is_not_final() {
    let shell = Shell::with_wallet();
    let elsewhere = unhex(ELSEWHERE);
    let given = |index: u32| [OutPoint { hash: foreign(0xee), index }];
    shell.fill(async |db, _| {
        let lost: Vec<NewTx> = (0..1_050).map(|n| bytes(&given(n), &[(account_1(), 1_000)])).collect();
        db.see_transactions(&lost, THEN).await.expect("stored");
        let parent = bytes(&given(9_000), &[(account_1(), 700)]);
        let child = bytes(&[OutPoint { hash: parent.hash, index: 0 }], &[(account_1(), 600)]);
        db.see_transactions(&[child], THEN).await.expect("stored");
        db.see_transactions(&[parent], THEN).await.expect("stored");
        let mut block: Vec<NewTx> = (5_000..6_050).map(|n| bytes(&given(n), &[(account_0(), 1_000)])).collect();
        let spent: Vec<OutPoint> = block.iter().map(|one| OutPoint { hash: one.hash, index: 0 }).collect();
        block.push(bytes(&given(9_000), &[(elsewhere.clone(), 600)]));
        connect(db, 100, &block).await;
        connect(db, 101, &[bytes(&spent, &[(elsewhere.clone(), 1_000_000)])]).await;
        for height in 102..=250 {
            connect(db, height, &[]).await;
        }
        let winners: Vec<NewTx> = (0..1_050).map(|n| bytes(&given(n), &[(elsewhere.clone(), 900)])).collect();
        connect(db, 251, &winners).await;
    });
    let by = ["--actor", "ann", "--reason", "spring cleaning"];
    let dry = shell.json(&[&["utxo", "prune", "hot", "--all", "--dry-run"], &by[..]].concat());
    assert_eq!((&dry["pruned"], &dry["refused"]), (&json!(1_051), &json!(1_052)));
    let done = shell.json(&[&["utxo", "prune", "hot", "--all"], &by[..]].concat());
    assert_eq!((&done["pruned"], &done["refused"]), (&json!(1_054), &json!(1_050)), "what had spent them has gone too");
    assert_eq!(shell.json(&["utxo", "check"])["clean"], true);
}

#[test]
fn one_transaction_is_pruned_only_when_it_is_final_and_somebody_says_why() {
    let shell = Shell::with_wallet();
    grown_old(&shell);
    let refused = |number: u8, why: &str| {
        let wanted = hash(number).to_string();
        let (code, message, _, exit) =
            shell.refused(&["utxo", "prune", "hot", &wanted, "--actor", "ann", "--reason", "case 4711"]);
        assert_eq!((code.as_str(), exit), ("UTXO_NOT_FINAL", 2));
        assert!(message.contains(why), "{message}");
    };
    refused(COINBASE, "an output of it is unspent");
    refused(UNCONFIRMED, "it may still be mined");
    refused(LOSER, "no deep block has proven");
    refused(WINNER, "its block is not deep enough");
    refused(SECOND, "prune their transactions first");

    let tx = hash(DEPOSIT).to_string();
    for usage in [
        &["utxo", "prune", "hot", &tx][..],
        &["utxo", "prune", "hot", &tx, "--actor", "ann"],
        &["utxo", "prune", "hot", &tx, "--reason", "x"],
        &["utxo", "prune", "hot", &tx, "--actor", " ", "--reason", "x"],
        &["utxo", "prune", "hot", "--actor", "ann", "--reason", "x"],
        &["utxo", "prune", "hot", &tx, "--all", "--actor", "ann", "--reason", "x"],
    ] {
        shell.code("BAD_USAGE", usage);
    }
    let dry = shell.ok(&["utxo", "prune", "hot", &tx, "--actor", "ann", "--reason", "x", "--dry-run"]);
    assert_eq!(dry, format!("transaction {tx} would be pruned\n"));
    let done = shell.ok(&["utxo", "prune", "hot", &tx, "--actor", "ann", "--reason", "x"]);
    assert_eq!(done, format!("transaction {tx} was pruned; its history stays\n"));
    shell.code("UTXO_UNKNOWN_TRANSACTION", &["utxo", "prune", "hot", &tx, "--actor", "ann", "--reason", "x"]);
}
