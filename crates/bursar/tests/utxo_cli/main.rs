//! `bursar utxo …` as an operator meets it: what it prints, its exit codes, and what it leaves in the database.

#[cfg(feature = "lab")]
mod follow;
#[cfg(feature = "lab")]
mod give_up;
mod prune;
mod shell;

use expect_test::expect;
use serde_json::{Value, json};
use store::utxo::LockId;

use crate::shell::*;

#[test]
fn a_wallet_is_made_once_and_a_script_has_one_owner() {
    let shell = Shell::with_wallet();
    let made = shell.json(&["utxo", "create", "hot", "--network", "regtest"]);
    assert_eq!(made, json!({ "id": 1, "wallet": "hot", "network": "regtest" }), "the same name is the same wallet");
    shell.code("UTXO_OTHER_NETWORK", &["utxo", "create", "cold", "--network", "mainnet"]);
    shell.ok(&["utxo", "create", "cold", "--network", "regtest"]);
    shell.code("UTXO_ADDRESS_TAKEN", &["utxo", "address", "add", "cold", "--address", RECEIVING]);
    shell.code("UTXO_ADDRESS_TAKEN", &["utxo", "address", "add", "hot", "--account", "1", "--address", RECEIVING]);
    let path = ["--branch", "0", "--index", "0"];
    let add = ["utxo", "address", "add", "hot", "--script"];
    shell.code("UTXO_PATH_TAKEN", &[&add[..], &[ELSEWHERE], &path].concat());
    // A script of another kind has its own.
    let same_path = hex(&[&[0x51, 32][..], &account_1()[3..], &[0x55]].concat());
    shell.ok(&[&add[..], &[&same_path], &path].concat());
    let again = shell.json(&[&add[..], &[&hex(&account_0())]].concat());
    assert_eq!((&again["added"], &again["address"]), (&json!(false), &json!(RECEIVING)));
    let odd = shell.json(&["utxo", "address", "add", "cold", "--script", "51"]);
    assert_eq!((&odd["kind"], &odd["address"], &odd["added"]), (&json!("other"), &Value::Null, &json!(true)));
    // Without its path it is only watched; the path can come later, and then stays.
    let add = ["utxo", "address", "add", "hot", "--account", "1", "--script"];
    let watched = hex(&account_1());
    expect![[r#"
        bcrt1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqc8gma6 was already in wallet hot, account 1
    "#]]
    .assert_eq(&shell.ok(&[&add[..], &[&watched]].concat()));
    expect![[r#"
        bcrt1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqc8gma6 of wallet hot, account 1 has its path now (p2tr)
    "#]]
    .assert_eq(&shell.ok(&[&add[..], &[&watched], &path].concat()));
    shell.code("UTXO_PATH_TAKEN", &[&add[..], &[&watched, "--branch", "1", "--index", "0"]].concat());
}

#[test]
fn balances_are_by_wallet_and_account_with_a_total() {
    let shell = Shell::with_wallet();
    shell.ok(&["utxo", "create", "cold", "--network", "regtest"]);
    expect![[r#"
        wallet  account   confirmed  unconfirmed    immature      leased  outputs
        ──────  ───────  ──────────  ───────────  ──────────  ──────────  ───────
        hot           0  0.00000000   0.00000000  0.00000000  0.00000000        0
        hot           1  0.00000000   0.00000000  0.00000000  0.00000000        0
        cold          -  0.00000000   0.00000000  0.00000000  0.00000000        0
        total            0.00000000   0.00000000  0.00000000  0.00000000        0
        no block was connected yet
    "#]]
    .assert_eq(&shell.ok(&["utxo", "balance"]));
    sample(&shell);
    shell.ok(&["utxo", "lease", "take", "hot", &at(OTHER_ACCOUNT, 0).to_string(), "--new-lock", "--for", "10m"]);
    expect![[r#"
        wallet  account    confirmed  unconfirmed     immature      leased  outputs
        ──────  ───────  ───────────  ───────────  ───────────  ──────────  ───────
        hot           0  50.00000000   0.29990546  50.00000000  0.00000000        3
        hot           1   0.25000000   0.00000000   0.00000000  0.25000000        1
        cold          -   0.00000000   0.00000000   0.00000000  0.00000000        0
        total            50.25000000   0.29990546  50.00000000  0.25000000        4
        in BTC, as of block 101 b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b000000065
    "#]]
    .assert_eq(&shell.ok(&["utxo", "balance"]));
    let body = shell.json(&["utxo", "balance", "hot"]);
    assert_eq!(
        body["wallets"],
        json!([{
            "wallet": "hot", "network": "regtest", "status": "active",
            "accounts": [
                {
                    "account": 0, "confirmed": "50.00000000", "unconfirmed": "0.29990546",
                    "immature": "50.00000000", "leased": "0.00000000", "outputs": 3,
                },
                {
                    "account": 1, "confirmed": "0.25000000", "unconfirmed": "0.00000000",
                    "immature": "0.00000000", "leased": "0.25000000", "outputs": 1,
                },
            ],
        }])
    );
    assert_eq!(body["total"]["confirmed"], "50.25000000");
    assert_eq!(body["tip"], json!({ "height": 101, "hash": block_hash(101).to_string() }));
    shell.fill(async |db, wallet| db.begin_restore(wallet, THEN).await.expect("stored"));
    assert!(shell.ok(&["utxo", "balance", "hot"]).contains("\nhot (restoring)        0  50.00000000"));
}

#[test]
fn outputs_are_listed_by_page_and_account_spent_ones_on_request() {
    let shell = Shell::with_wallet();
    expect![[r#"
        no unspent outputs; --all shows the others
    "#]]
    .assert_eq(&shell.ok(&["utxo", "list", "hot"]));
    sample(&shell);
    shell.ok(&["utxo", "label", "hot", "address", RECEIVING, "customer 7", "--actor", "ann"]);
    expect![[r#"
        id  outpoint                                                                 amount  account  in           coinbase  label       address
        ──  ──────────────────────────────────────────────────────────────────  ───────────  ───────  ───────────  ────────  ──────────  ────────────────────────────────────────────────────────────────
         2  d43b1deaaa127929ee2e087b65c98f758b5013b71cb0f8c96c4699058053656d:0  50.00000000        0  block 100    immature  customer 7  bcrt1q9zcjpapdx647gyp7xhwpwjshv2zldprhzlz0xj
         3  20892b9b83b8a21486a43938243a463c0184df4df8701c0368e64d13b5e881f1:0   0.25000000        1  block 101                          bcrt1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqc8gma6
         4  871a530b918181b864ff7a8516fae5355dd9d72297188ab336ed519b676daab3:0   0.00000546        0  unconfirmed            customer 7  bcrt1q9zcjpapdx647gyp7xhwpwjshv2zldprhzlz0xj
         6  d898fd1b91cdccd10a6cb13a0565d0774fd3a4614a9a0faed4cb0c676cf8c0eb:1   0.29990000        0  pending                customer 7  bcrt1q9zcjpapdx647gyp7xhwpwjshv2zldprhzlz0xj
    "#]].assert_eq(&shell.ok(&["utxo", "list", "hot"]));
    expect![[r#"
        id  outpoint                                                                 amount  account  in           coinbase  spent by                                                          label       address
        ──  ──────────────────────────────────────────────────────────────────  ───────────  ───────  ───────────  ────────  ────────────────────────────────────────────────────────────────  ──────────  ────────────────────────────────────────────
         1  1dd7cf54f20da8715a2f94711403842771c11e33a2787ad2c5c59fc4b85fee31:1   1.50000000        0  block 100              d898fd1b91cdccd10a6cb13a0565d0774fd3a4614a9a0faed4cb0c676cf8c0eb  customer 7  bcrt1q9zcjpapdx647gyp7xhwpwjshv2zldprhzlz0xj
         2  d43b1deaaa127929ee2e087b65c98f758b5013b71cb0f8c96c4699058053656d:0  50.00000000        0  block 100    immature                                                                    customer 7  bcrt1q9zcjpapdx647gyp7xhwpwjshv2zldprhzlz0xj
         4  871a530b918181b864ff7a8516fae5355dd9d72297188ab336ed519b676daab3:0   0.00000546        0  unconfirmed                                                                              customer 7  bcrt1q9zcjpapdx647gyp7xhwpwjshv2zldprhzlz0xj
         5  a3b162213ea009ddf492a3eefc564554df84a344c9c640bbff777724ff90385f:1   0.29999000        0  replaced                                                                                 customer 7  bcrt1q9zcjpapdx647gyp7xhwpwjshv2zldprhzlz0xj
         6  d898fd1b91cdccd10a6cb13a0565d0774fd3a4614a9a0faed4cb0c676cf8c0eb:1   0.29990000        0  pending                                                                                  customer 7  bcrt1q9zcjpapdx647gyp7xhwpwjshv2zldprhzlz0xj
    "#]].assert_eq(&shell.ok(&["utxo", "list", "hot", "--all", "--account", "0"]));
    let first = shell.json(&["utxo", "list", "hot", "--limit", "2"]);
    let next = first["next_after"].to_string();
    let rest = shell.json(&["utxo", "list", "hot", "--after", &next]);
    let outpoints = |page: &Value| -> Vec<String> {
        page["outputs"].as_array().unwrap().iter().map(|one| one["outpoint"].as_str().unwrap().to_owned()).collect()
    };
    let all = [outpoints(&first), outpoints(&rest)].concat();
    assert_eq!(all, outpoints(&shell.json(&["utxo", "list", "hot"])), "two pages are the whole");
    assert_eq!((all.len(), &rest["next_after"]), (4, &Value::Null));
    assert_eq!(
        shell.json(&["utxo", "list", "hot", "--account", "1"])["outputs"][0],
        json!({
            "id": 3, "outpoint": at(OTHER_ACCOUNT, 0).to_string(), "amount": "0.25000000", "account": 1, "kind": "other",
            "script": hex(&account_1()), "path": null, "label": null, "status": "published", "height": 101,
            "address": "bcrt1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqc8gma6",
            "coinbase": false, "spent_by": null, "leased_until": null, "claimed_by": null,
        })
    );
}

#[test]
fn a_transaction_is_shown_with_who_replaced_it_and_its_history() {
    let shell = Shell::with_wallet();
    sample(&shell);
    shell.ok(&["utxo", "label", "hot", "tx", &hash(SECOND).to_string(), "rent", "--actor", "ann"]);
    expect![[r#"
        transaction  d898fd1b91cdccd10a6cb13a0565d0774fd3a4614a9a0faed4cb0c676cf8c0eb
        status       pending
        received     2026-09-21T14:13:20.000000Z
        size         113 bytes
        own          yes: all that it spends was ours
        label        rent
        replaced     a3b162213ea009ddf492a3eefc564554df84a344c9c640bbff777724ff90385f

        inputs

        outpoint                                                                amount  account
        ──────────────────────────────────────────────────────────────────  ──────────  ───────
        1dd7cf54f20da8715a2f94711403842771c11e33a2787ad2c5c59fc4b85fee31:1  1.50000000        0

        outputs of ours

        id  outpoint                                                                amount  account  in       address
        ──  ──────────────────────────────────────────────────────────────────  ──────────  ───────  ───────  ────────────────────────────────────────────
         6  d898fd1b91cdccd10a6cb13a0565d0774fd3a4614a9a0faed4cb0c676cf8c0eb:1  0.29990000        0  pending  bcrt1q9zcjpapdx647gyp7xhwpwjshv2zldprhzlz0xj

        history

        time                         became   reason
        ───────────────────────────  ───────  ─────────
        2026-09-21T14:13:20.000000Z  pending  made here
    "#]].assert_eq(&shell.ok(&["utxo", "tx", "hot", &hash(SECOND).to_string()]));
    expect![[r#"
        transaction  a3b162213ea009ddf492a3eefc564554df84a344c9c640bbff777724ff90385f
        status       replaced
        received     2026-09-21T14:13:20.000000Z
        size         113 bytes
        own          yes: all that it spends was ours
        replaced by  d898fd1b91cdccd10a6cb13a0565d0774fd3a4614a9a0faed4cb0c676cf8c0eb

        inputs

        outpoint                                                                amount  account
        ──────────────────────────────────────────────────────────────────  ──────────  ───────
        1dd7cf54f20da8715a2f94711403842771c11e33a2787ad2c5c59fc4b85fee31:1  1.50000000        0

        outputs of ours

        id  outpoint                                                                amount  account  in        address
        ──  ──────────────────────────────────────────────────────────────────  ──────────  ───────  ────────  ────────────────────────────────────────────
         5  a3b162213ea009ddf492a3eefc564554df84a344c9c640bbff777724ff90385f:1  0.29999000        0  replaced  bcrt1q9zcjpapdx647gyp7xhwpwjshv2zldprhzlz0xj

        history

        time                         became     reason     cause
        ───────────────────────────  ─────────  ─────────  ────────────────────────────────────────────────────────────────
        2026-09-21T14:13:20.000000Z  pending    made here
        2026-09-21T14:13:20.000000Z  published  broadcast
        2026-09-21T14:13:20.000000Z  replaced   replaced   d898fd1b91cdccd10a6cb13a0565d0774fd3a4614a9a0faed4cb0c676cf8c0eb
    "#]].assert_eq(&shell.ok(&["utxo", "tx", "hot", &hash(FIRST).to_string()]));
    expect![[r#"
        transaction  d43b1deaaa127929ee2e087b65c98f758b5013b71cb0f8c96c4699058053656d
        status       published, in block 100
        received     2026-09-21T14:13:20.000000Z
        size         84 bytes
        coinbase     yes

        outputs of ours

        id  outpoint                                                                 amount  account  in         coinbase  address
        ──  ──────────────────────────────────────────────────────────────────  ───────────  ───────  ─────────  ────────  ────────────────────────────────────────────
         2  d43b1deaaa127929ee2e087b65c98f758b5013b71cb0f8c96c4699058053656d:0  50.00000000        0  block 100  immature  bcrt1q9zcjpapdx647gyp7xhwpwjshv2zldprhzlz0xj

        history

        time                         became     block  reason     cause
        ───────────────────────────  ─────────  ─────  ─────────  ────────────────────────────────────────────────────────────────
        2026-09-21T14:13:20.000000Z  published    100  connected  b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b000000064
    "#]].assert_eq(&shell.ok(&["utxo", "tx", "hot", &hash(COINBASE).to_string()]));
    let body = shell.json(&["utxo", "tx", "hot", &hash(SECOND).to_string()]);
    assert_eq!(body["replaced"], json!([hash(FIRST).to_string()]));
    assert_eq!((&body["label"], &body["status"], &body["pruned"]), (&json!("rent"), &json!("pending"), &json!(false)));
    assert_eq!(body["inputs"][0]["amount"], "1.50000000");
    assert_eq!(body["raw"], hex(&transaction(SECOND).raw));
    shell.code("UTXO_UNKNOWN_TRANSACTION", &["utxo", "tx", "hot", &"00".repeat(32)]);
}

#[test]
fn leases_keep_others_away_until_they_end() {
    let shell = Shell::with_wallet();
    sample(&shell);
    let (coin, other) = (at(OTHER_ACCOUNT, 0).to_string(), at(UNCONFIRMED, 0).to_string());
    let taken = shell.json(&["utxo", "lease", "take", "hot", &coin, &other, "--new-lock", "--for", "10m"]);
    let lock = taken["lock"].as_str().expect("a lock").to_owned();
    assert_eq!(taken["outpoints"], json!([coin, other]));
    shell.code("UTXO_LEASED", &["utxo", "lease", "take", "hot", &coin, "--new-lock", "--for", "10m"]);
    shell.ok(&["utxo", "lease", "take", "hot", &coin, "--lock", &lock, "--for", "2m"]);
    let spent = at(DEPOSIT, 1).to_string();
    shell.code("UTXO_NOT_SPENDABLE", &["utxo", "lease", "take", "hot", &spent, "--new-lock", "--for", "10m"]);
    let listed = shell.json(&["utxo", "lease", "list", "hot"]);
    assert_eq!(listed["leases"].as_array().map(Vec::len), Some(2));
    assert_eq!(listed["leases"][0]["lock"], lock.as_str());
    assert_eq!((&listed["leases"][0]["state"], &listed["leases"][0]["amount"]), (&json!("held"), &json!("0.25000000")));
    let page = shell.json(&["utxo", "lease", "list", "hot", "--limit", "1"]);
    let next = page["next_after"].to_string();
    assert_eq!(shell.json(&["utxo", "lease", "list", "hot", "--after", &next])["leases"], json!([listed["leases"][1]]));
    assert!(shell.ok(&["utxo", "lease", "list", "hot"]).contains(&lock));

    let renewed = shell.json(&["utxo", "lease", "renew", "hot", &lock, "--for", "20m"]);
    assert_eq!(renewed["renewed"], 2);
    assert!(renewed["until"].as_str() > taken["until"].as_str());
    assert_eq!(shell.ok(&["utxo", "lease", "release", "hot", &lock]), "2 outputs released\n");
    assert_eq!(shell.ok(&["utxo", "lease", "release", "hot", &lock]), "0 outputs released\n", "again is no error");
    shell.code("UTXO_LEASE_ENDED", &["utxo", "lease", "renew", "hot", &lock, "--for", "20m"]);
    assert_eq!(shell.ok(&["utxo", "lease", "list", "hot"]), "no leases\n");
}

#[test]
fn a_lease_that_has_ended_is_listed_until_it_is_swept() {
    let shell = Shell::with_wallet();
    sample(&shell);
    shell.fill(async |db, wallet| {
        let until = THEN.plus_micros(60_000_000);
        db.lease(wallet, &[at(OTHER_ACCOUNT, 0)], LockId([0x77; 32]), until, THEN).await.expect("stored");
    });
    expect![[r#"
        id  outpoint                                                                amount  account  lock                                                              until                        state
        ──  ──────────────────────────────────────────────────────────────────  ──────────  ───────  ────────────────────────────────────────────────────────────────  ───────────────────────────  ─────
         3  20892b9b83b8a21486a43938243a463c0184df4df8701c0368e64d13b5e881f1:0  0.25000000        1  7777777777777777777777777777777777777777777777777777777777777777  2026-09-21T14:14:20.000000Z  ended
    "#]].assert_eq(&shell.ok(&["utxo", "lease", "list", "hot"]));
    assert_eq!(shell.json(&["utxo", "list", "hot", "--account", "1"])["outputs"][0]["leased_until"], Value::Null);
    shell.code("UTXO_LEASE_ENDED", &["utxo", "lease", "renew", "hot", &"77".repeat(32), "--for", "20m"]);
    assert_eq!(shell.json(&["utxo", "lease", "sweep"])["swept"], 1);
    assert_eq!(shell.ok(&["utxo", "lease", "sweep"]), "0 ended leases removed\n");
    assert_eq!(shell.ok(&["utxo", "lease", "list", "hot"]), "no leases\n");
}

#[test]
fn the_tables_and_leases_are_counted_and_the_addresses_listed() {
    let shell = Shell::with_wallet();
    sample(&shell);
    let now = |shell: &Shell| shell.json(&["utxo", "stat"]);
    let before = now(&shell);
    assert_eq!(before["leases"], json!({ "active": 0, "ended": 0, "oldest_ended_s": null, "rescan": 0 }));
    assert_eq!(before["most_chained"], json!({ "transactions": 25, "bytes": 101_000 }));
    assert_eq!(before["rows"]["wallets"], 1);
    assert!(before["rows"]["transactions"].as_i64() > Some(2) && before["unspent"].as_i64() > Some(1), "{before}");
    shell.ok(&["utxo", "lease", "take", "hot", &at(OTHER_ACCOUNT, 0).to_string(), "--new-lock", "--for", "10m"]);
    assert_eq!((&now(&shell)["leases"]["active"], &now(&shell)["rows"]["utxo_leases"]), (&json!(1), &json!(1)));
    assert!(shell.ok(&["utxo", "stat"]).contains("leases    1 active, 0 ended and not swept yet"));

    let all = shell.json(&["utxo", "address", "list", "hot"]);
    let count = all["addresses"].as_array().map(Vec::len).expect("a list");
    assert_eq!(before["rows"]["addresses"], count);
    assert_eq!(all["next_after"], Value::Null);
    assert!(all["addresses"][0]["address"].as_str().is_some_and(|one| one.starts_with("bcrt1")), "{all}");
    let page = shell.json(&["utxo", "address", "list", "hot", "--limit", "1"]);
    assert_eq!(page["addresses"], json!([all["addresses"][0]]));
    let next = page["next_after"].to_string();
    let rest = shell.json(&["utxo", "address", "list", "hot", "--after", &next]);
    assert_eq!(rest["addresses"].as_array().map(Vec::len), Some(count - 1));
    assert_eq!(shell.ok(&["utxo", "address", "list", "hot", "--account", "77"]), "no addresses\n");
    assert!(shell.ok(&["utxo", "address", "list", "hot"]).contains("bcrt1"));
}

#[test]
fn what_nobody_has_seen_can_be_given_up() {
    let shell = Shell::with_wallet();
    sample(&shell);
    let text = |number| hash(number).to_string();
    let abandon = ["utxo", "abandon", "hot", "--actor", "ann", "--reason", "its maker crashed"];
    shell.code("UTXO_NOT_PENDING", &[&abandon[..], &[&text(FIRST)]].concat());
    shell.code("UTXO_NOT_PENDING", &[&abandon[..], &[&text(DEPOSIT)]].concat());
    shell.code("UTXO_UNKNOWN_TRANSACTION", &[&abandon[..], &[&text(THIRD)]].concat());
    shell.code("BAD_USAGE", &["utxo", "abandon", "hot", &text(SECOND), "--actor", "ann"]);
    // What it had replaced is in the network still, and is back.
    let done = shell.json(&[&abandon[..], &[&text(SECOND)]].concat());
    let told: Vec<_> = done["changed"].as_array().unwrap().iter().map(|one| (&one["hash"], &one["status"])).collect();
    let (first, second) = (json!(text(FIRST)), json!(text(SECOND)));
    assert_eq!(told, [(&second, &json!("failed")), (&first, &json!("published"))]);
    assert_eq!(shell.json(&[&abandon[..], &[&text(SECOND)]].concat())["changed"], json!([]), "once is enough");
    let history = shell.json(&["utxo", "tx", "hot", &text(SECOND)])["history"].to_string();
    assert!(history.contains("its maker crashed") && history.contains("ann"), "{history}");
    assert_eq!(shell.json(&["utxo", "check"])["findings"], json!([]));
}

#[test]
fn labels_are_set_changed_and_taken_away() {
    let shell = Shell::with_wallet();
    sample(&shell);
    let tx = hash(DEPOSIT).to_string();
    let label = |shell: &Shell| shell.json(&["utxo", "tx", "hot", &tx])["label"].clone();
    shell.ok(&["utxo", "label", "hot", "tx", &tx, "refill", "--actor", "ann"]);
    assert_eq!(label(&shell), "refill");
    let said = shell.ok(&["utxo", "label", "hot", "tx", &tx, "refill from cold", "--actor", "ann"]);
    assert_eq!(said, format!("transaction {tx} is labelled \"refill from cold\"\n"));
    assert_eq!(label(&shell), "refill from cold");
    shell.ok(&["utxo", "label", "hot", "tx", &tx, "--clear", "--actor", "ann"]);
    assert_eq!(label(&shell), Value::Null);
    shell.ok(&["utxo", "label", "hot", "address", &hex(&account_1()), "vault", "--actor", "ann"]);
    assert_eq!(shell.json(&["utxo", "list", "hot", "--account", "1"])["outputs"][0]["label"], "vault");

    shell.code("UTXO_BAD_LABEL", &["utxo", "label", "hot", "tx", &tx, "", "--actor", "ann"]);
    shell.code("UTXO_BAD_LABEL", &["utxo", "label", "hot", "tx", &tx, &"x".repeat(501), "--actor", "ann"]);
    shell.code("UTXO_UNKNOWN_TRANSACTION", &["utxo", "label", "hot", "tx", &"00".repeat(32), "x", "--actor", "ann"]);
    shell.code("UTXO_UNKNOWN_ADDRESS", &["utxo", "label", "hot", "address", ELSEWHERE, "x", "--actor", "ann"]);
    for usage in [
        &["utxo", "label", "hot", "tx", &tx, "no actor"][..],
        &["utxo", "label", "hot", "tx", &tx, "--actor", "ann"],
        &["utxo", "label", "hot", "tx", &tx, "both", "--clear", "--actor", "ann"],
        &["utxo", "label", "hot", "tx", &tx, "\u{1b}[2J", "--actor", "ann"],
        &["utxo", "label", "hot", "tx", "9f64", "x", "--actor", "ann"],
    ] {
        shell.code("BAD_USAGE", usage);
    }
}

#[test]
fn a_damaged_row_is_found() {
    let shell = Shell::with_wallet();
    sample(&shell);
    assert_eq!(shell.ok(&["utxo", "check"]), "all 6 transactions agree\n");
    assert_eq!(
        shell.json(&["utxo", "check"]),
        json!({ "clean": true, "transactions": 6, "findings": [], "rescan_next": null })
    );
    store::testing::sqlite_by_hand(
        &shell.url(),
        "UPDATE account_totals SET confirmed = confirmed + 1 WHERE account = 1",
    );
    let output = shell.run(&["utxo", "check"]);
    assert_eq!(output.status.code(), Some(1));
    expect![[r#"
        check   wallet  what
        ──────  ──────  ──────────────────────────────────────────────────────────────
        totals  hot     account 1 has 25000001/1 and 0/0 instead of 25000000/1 and 0/0
    "#]]
    .assert_eq(&String::from_utf8_lossy(&output.stdout));
    expect![[r#"
        error UTXO_BROKEN: not as the facts say: 1 row; the first: totals of wallet hot, account 1 has 25000001/1 and 0/0 instead of 25000000/1 and 0/0
          hint: stop the writers, keep the database as it is, and compare the rows with a backup
          help: docs/errors/UTXO_BROKEN.md, or: bursar explain UTXO_BROKEN
    "#]].assert_eq(&String::from_utf8_lossy(&output.stderr));
    let output = shell.run(&["utxo", "check", "--json"]);
    let body: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&body["clean"], &body["findings"][0]["check"]), (&json!(false), &json!("totals")));
    assert_eq!(body["findings"][0]["wallet"], "hot");

    store::testing::sqlite_by_hand(
        &shell.url(),
        "UPDATE account_totals SET confirmed = confirmed - 1 WHERE account = 1;
         DELETE FROM tx_replacements",
    );
    let (code, message, _, exit) = shell.refused(&["utxo", "check"]);
    assert_eq!((code.as_str(), exit), ("UTXO_BROKEN", 1));
    assert!(message.contains(&format!("cause of wallet hot, transaction {}", hash(FIRST))), "{message}");
}

#[test]
fn rows_are_held_against_bytes() {
    let shell = Shell::with_wallet();
    sample(&shell);
    store::testing::sqlite_by_hand(&shell.url(), "UPDATE transactions SET raw_tx = x'00' WHERE is_coinbase");
    let (code, message, _, exit) = shell.refused(&["utxo", "check"]);
    assert_eq!((code.as_str(), exit), ("UTXO_BROKEN", 1));
    let place = format!("1 row; the first: bytes of wallet hot, transaction {}", hash(COINBASE));
    assert!(message.contains(&place), "{message}");
}

/// What is not valid gets its outputs when it is shown again; nothing shows it, so nothing is wrong.
#[test]
fn an_address_that_came_late_is_missed_only_where_it_was_paid() {
    let shell = Shell::with_wallet();
    sample(&shell);
    shell.ok(&["utxo", "address", "add", "hot", "--script", ELSEWHERE]);
    let (_, message, ..) = shell.refused(&["utxo", "check"]);
    assert!(message.contains("2 rows") && message.contains("--rescan-from"), "{message}");
    assert!(!message.contains(&hash(FIRST).to_string()), "{message}");
}

#[test]
fn wrong_input_says_what_to_do() {
    let shell = Shell::with_wallet();
    let (code, message, hint, exit) = shell.refused(&["utxo", "list", "hto"]);
    assert_eq!((code.as_str(), exit), ("UTXO_UNKNOWN_WALLET", 2));
    assert_eq!((message.as_str(), hint.as_str()), ("there is no wallet \"hto\"", "did you mean hot? there are: hot"));
    let (_, _, hint, _) = shell.refused(&["utxo", "balance", "zzz"]);
    assert_eq!(hint, "there are: hot");
    let tx = "9f".repeat(32);
    for rest in [
        &["tx", "HOT", &tx][..],
        &["lease", "list", "cold"],
        &["label", "cold", "tx", &tx, "x", "--actor", "ann"],
        &["prune", "cold", &tx, "--actor", "ann", "--reason", "x"],
        &["address", "add", "cold", "--address", RECEIVING],
    ] {
        shell.code("UTXO_UNKNOWN_WALLET", &[&["utxo"], rest].concat());
    }
    let coin = format!("{tx}:0");
    let take = ["utxo", "lease", "take", "hot"];
    for (usage, said) in [
        (&["utxo", "tx", "hot", "9f64"][..], "a hash is 64 hexadecimal digits"),
        (&["utxo", "tx", "hot", &"xy".repeat(32)], "a 'x' in it"),
        (&[&take[..], &[&tx, "--new-lock", "--for", "1m"]].concat(), "an outpoint is"),
        (&[&take[..], &[&format!("{tx}:-1"), "--new-lock", "--for", "1m"]].concat(), "an outpoint is"),
        (&[&take[..], &[&coin, "--lock", "ff", "--for", "1m"]].concat(), "a lock is 64"),
        (&[&take[..], &[&coin, "--new-lock", "--for", "soon"]].concat(), "write a time such as"),
        (&[&take[..], &[&coin, "--new-lock", "--for", "2000m"]].concat(), "a day"),
        (&[&take[..], &[&coin, "--new-lock", "--lock", &tx, "--for", "1m"]].concat(), "cannot be used with"),
        (&[&take[..], &[&coin, "--for", "1m"]].concat(), "required"),
        (&["utxo", "create", "cold", "--network", "main"], "the networks are mainnet"),
        (&["utxo", "create", "", "--network", "regtest"], "a name has 1 to 64"),
        (&["utxo", "address", "add", "hot", "--script", "0"], "an output script is"),
        (&["utxo", "address", "add", "hot"], "required"),
        (&["utxo", "address", "add", "hot", "--script", "51", "--branch", "0"], "required"),
        (&["utxo", "list", "hot", "--limit", "0"], "1..=10000"),
        (&["utxo", "list", "hot", "--account", "-1"], "-1"),
    ] {
        let (code, message, _, exit) = shell.refused(usage);
        assert_eq!((code.as_str(), exit), ("BAD_USAGE", 2), "{usage:?}");
        assert!(message.contains(said), "{usage:?}: {message}");
    }
    let address = |text: &str| shell.refused(&["utxo", "address", "add", "hot", "--address", text]).0;
    assert_eq!(address("bc1qtzz8gdlwlpvtpva6c55yct4r0ew8pgzr2dqq5k"), "ADDRESS_WRONG_NETWORK");
    assert_eq!(address("bcrt1q9zcjpapdx647gyp7xhwpwjshv2zldprhzlz0xk"), "ADDRESS_CHECKSUM");
    assert_eq!(address(""), "ADDRESS_LENGTH");
}

#[test]
fn help_teaches_by_example() {
    let shell = Shell { folder: tempfile::tempdir().expect("a temporary folder") };
    let text = shell.ok(&["utxo", "--help"]);
    for word in ["create", "address", "balance", "list", "tx", "lease", "label", "prune", "stat", "check"] {
        assert!(text.contains(&format!("\n  {word} ")), "{word} is missing:\n{text}");
    }
    for command in ["create", "balance", "list", "tx", "lease", "label", "prune", "stat", "check"] {
        let text = shell.ok(&["utxo", command, "--help"]);
        assert!(text.contains(&format!("bursar utxo {command}")), "{text}");
    }
}

/// The export of a real Bitcoin Core wallet, which custody's own tests made.
#[test]
fn an_import_is_compared_with_its_source_and_may_be_run_again() {
    let shell = Shell { folder: tempfile::tempdir().expect("a temporary folder") };
    shell.ok(&["migrate"]);
    let export = root().join("crates/custody/tests/core-export").display().to_string();
    let arguments = ["utxo", "import", "--from", "core", "--wallet", "savings", &export];
    let first = shell.json(&arguments);
    assert!(first["changes"].as_u64() > Some(0) && first["outputs"].as_u64() > Some(0), "{first}");
    let balance = shell.json(&["utxo", "balance", "savings"]);
    assert!(balance.to_string().contains(first["confirmed"].as_str().expect("BTC")), "{balance} {first}");
    let again = shell.json(&arguments);
    assert_eq!((&again["changes"], &again["new_addresses"]), (&json!(0), &json!(0)), "{again}");
    assert_eq!((&again["confirmed"], &again["outputs"]), (&first["confirmed"], &first["outputs"]));
    assert!(shell.ok(&arguments).contains("as the source says"));
    shell.ok(&["utxo", "check"]);
    // What the source says may be behind the chain: nothing is spent before the nodes were asked.
    let listed = shell.json(&["utxo", "list", "savings"]);
    let outpoint = listed["outputs"][0]["outpoint"].as_str().expect("an outpoint");
    shell.code("UTXO_RESTORING", &["utxo", "lease", "take", "savings", outpoint, "--new-lock", "--for", "10m"]);
}

#[test]
fn what_is_no_wallet_is_not_imported() {
    let shell = Shell { folder: tempfile::tempdir().expect("a temporary folder") };
    shell.ok(&["migrate"]);
    let text = shell.folder.path().join("text");
    std::fs::write(&text, "this is no wallet").expect("a file");
    for (from, path) in [("core", "nowhere"), ("bdk", "nowhere"), ("core", "text"), ("bdk", "text"), ("bdk", ".")] {
        shell.code("UTXO_IMPORT_BAD_FILE", &["utxo", "import", "--from", from, "--wallet", "w", path]);
    }
    assert_eq!(shell.json(&["utxo", "balance"])["wallets"], json!([]), "nothing is left of it");
    let output = shell.run(&["utxo", "import", "--from", "electrum", "--wallet", "w", "text"]);
    assert_eq!(output.status.code(), Some(2));
}
