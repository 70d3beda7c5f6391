//! The audit, against books broken by hand: it names the row.

use domain::ledger::Operation;
use domain::{Amount, ledger::Movement};
use store::db_test;
use store::testing::{NOW, TestDb};

use crate::support::*;

/// The first violation of each check, as `check: row`.
async fn verdict(db: &TestDb) -> Vec<String> {
    let report = db.audit(|_| ()).await.expect("the audit runs");
    report
        .findings
        .iter()
        .filter_map(|finding| {
            finding.violation.as_ref().map(|violation| format!("{}: {}", finding.check, violation.row))
        })
        .collect()
}

async fn some_history(db: &TestDb) -> Bank {
    let bank = Bank::open(db, 3, 1_000).await;
    let operations = [
        bank.post("refused", &[(bank.users[0], bank.users[1], 5_000)]),
        bank.hold("h", 0, 10),
        bank.settle("s", "h", 0, 10),
        bank.post("two", &[(bank.users[0], bank.users[1], 5), (bank.users[0], bank.clearing, 6)]),
    ];
    db.post(&operations, NOW).await.expect("posted");
    db.checkpoint(NOW).await.expect("a checkpoint");
    assert_eq!(verdict(db).await, Vec::<String>::new());
    bank
}

db_test! {
    async fn a_changed_movement_is_named(db: TestDb) {
        some_history(db).await;
        db.by_hand("UPDATE movements SET amount = amount + 1 WHERE id = 2").await.unwrap();
        let verdict = verdict(db).await;
        assert_eq!(verdict[0], "movements: movements id=2");
        assert!(verdict.iter().any(|line| line.starts_with("balances: accounts id=")), "{verdict:?}");
    }

    async fn a_changed_balance_is_named(db: TestDb) {
        let bank = some_history(db).await;
        let id = bank.users[1];
        db.by_hand(&format!("UPDATE accounts SET available = available + 1 WHERE id = {id}")).await.unwrap();
        let asset = bank.usdt.0;
        assert_eq!(verdict(db).await, [
            format!("balances: accounts id={id}"),
            format!("conservation: assets id={asset} symbol=USDT"),
        ]);
    }

    async fn a_removed_movement_is_missed(db: TestDb) {
        let bank = some_history(db).await;
        db.by_hand("DELETE FROM movements WHERE op_key = 'two' AND leg = 0").await.unwrap();
        let verdict = verdict(db).await;
        assert!(verdict[0].starts_with("history: journal_marks through_movement="), "{verdict:?}");
        assert_eq!(verdict[1], "operations: movements op_key=two");
        assert_eq!(verdict[2], format!("balances: accounts id={}", bank.users[0]));
    }

    async fn a_removed_refusal_is_missed_though_it_moved_nothing(db: TestDb) {
        some_history(db).await;
        db.by_hand("DELETE FROM movements WHERE op_key = 'refused'").await.unwrap();
        let verdict = verdict(db).await;
        assert_eq!(verdict.len(), 1, "{verdict:?}");
        assert!(verdict[0].starts_with("history: journal_marks through_movement="), "{verdict:?}");
    }

    async fn a_forged_credit_is_found_though_its_checksum_is_right(db: TestDb) {
        let bank = some_history(db).await;
        // Somebody who knows how rows are made copies one, checksum and all, under a new key.
        db.by_hand("INSERT INTO movements (op_key, leg, action, outcome, from_account, to_account, asset_id, amount,
            hold_key, reference, at, checksum) SELECT 'fund-9', leg, action, outcome, from_account, to_account,
            asset_id, amount, hold_key, reference, at, checksum FROM movements WHERE op_key = 'fund-0'").await.unwrap();
        let verdict = verdict(db).await;
        assert!(verdict.contains(&format!("balances: accounts id={}", bank.users[0])), "{verdict:?}");
    }

    async fn a_wrong_checkpoint_is_named(db: TestDb) {
        let bank = some_history(db).await;
        let id = bank.clearing;
        db.by_hand(&format!("UPDATE checkpoints SET balance = '12345' WHERE account_id = {id}")).await.unwrap();
        let verdict = verdict(db).await;
        assert!(verdict[0].starts_with("checkpoints: checkpoints through_movement="), "{verdict:?}");
        assert!(verdict[0].ends_with(&format!("account_id={id}")), "{verdict:?}");
        assert!(verdict[1].starts_with("conservation:"), "{verdict:?}");
    }

    async fn a_checkpoint_of_the_future_is_named(db: TestDb) {
        some_history(db).await;
        db.by_hand("UPDATE checkpoints SET through_movement = through_movement + 1000").await.unwrap();
        assert!(verdict(db).await[0].starts_with("checkpoints: checkpoints through_movement="));
    }

    async fn an_account_given_to_somebody_else_is_named(db: TestDb) {
        let bank = some_history(db).await;
        let id = bank.users[1];
        db.by_hand(&format!("UPDATE accounts SET owner = 77 WHERE id = {id}")).await.unwrap();
        assert_eq!(verdict(db).await, [format!("owners: accounts id={id}")]);
    }

    async fn a_status_that_nobody_set_is_named(db: TestDb) {
        let bank = some_history(db).await;
        let id = bank.users[1];
        let change = |name: &str, status| store::ledger::StatusChange {
            key: key(name), account: id, status, actor: "ana".into(), reason: "case".into(),
        };
        use domain::AccountStatus::{Active, Disabled, Frozen};
        db.set_status(&[change("z", Disabled), change("a", Frozen)], NOW).await.unwrap();
        assert_clean(db).await;
        db.by_hand(&format!("UPDATE accounts SET status = 'active' WHERE id = {id}")).await.unwrap();
        assert_eq!(verdict(db).await, [format!("owners: accounts id={id}")]);
        db.set_status(&[change("b", Active)], NOW).await.unwrap();
        assert_clean(db).await;
    }

    async fn the_house_may_pass_64_bits(db: TestDb) {
        let bank = Bank::open(db, 2, 0).await;
        let huge = i64::MAX - 5;
        assert_all_applied(&db.post(&[bank.deposit("a", 0, huge), bank.deposit("b", 1, huge)], NOW).await.unwrap());
        db.checkpoint(NOW).await.unwrap();
        assert_clean(db).await;
        let balances = store::ledger::balances::system_balances(&mut db.read().await.unwrap()).await.unwrap();
        assert_eq!(balances[&bank.custody], -2 * i128::from(huge));
    }

    async fn an_end_without_its_hold_is_named(db: TestDb) {
        some_history(db).await;
        db.by_hand("DELETE FROM movements WHERE op_key = 'h'").await.unwrap();
        assert!(verdict(db).await.contains(&"holds: movements hold_key=h".to_owned()));
    }

    async fn balances_near_the_end_of_64_bits_are_no_false_alarm(db: TestDb) {
        let bank = Bank::open(db, 2, 0).await;
        let huge = i64::MAX - 10;
        let asset = bank.usdt;
        let mut operations = vec![bank.deposit("d", 0, huge)];
        // Each sum of what went in, taken alone, is far beyond 64 bits.
        for round in 0..6 {
            let (from, to) = (bank.users[round % 2], bank.users[(round + 1) % 2]);
            let movement = Movement { from, to, asset, amount: Amount::from_units(huge) };
            operations.push(Operation::move_available(key(&format!("m{round}")), vec![movement], note()).unwrap());
        }
        operations.push(bank.deposit("too-much", 0, 11));
        let replies = db.post(&operations, NOW).await.unwrap();
        assert_all_applied(&replies[..7]);
        assert_eq!(
            replies[7],
            domain::ledger::Reply::First(domain::ledger::Outcome::Refused(domain::ledger::Refusal::Overflow))
        );
        assert_clean(db).await;
        db.checkpoint(NOW).await.unwrap();
        assert_clean(db).await;
    }

    async fn traffic_causes_no_false_alarm(db: TestDb) {
        let bank = std::sync::Arc::new(Bank::open(db, 10, 1_000_000).await);
        let writer = {
            let (db, bank) = (db.db.clone(), bank.clone());
            tokio::spawn(async move {
                for round in 0..60 {
                    let operations: Vec<_> = (0..10).flat_map(|user| {
                        let hold = format!("h{round}-{user}");
                        [bank.hold(&hold, user, 3), bank.settle(&format!("s{round}-{user}"), &hold, user, 3)]
                    }).collect();
                    assert_all_applied(&db.post(&operations, NOW).await.unwrap());
                }
            })
        };
        while !writer.is_finished() {
            assert_clean(db).await;
        }
        writer.await.unwrap();
        assert_clean(db).await;
    }
}
