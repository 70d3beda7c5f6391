//! Money that two people move by hand: once, never more than there is, and never without their names.

use domain::adjustment::{Adjustment, EngineHas, Party};
use domain::ledger::{Difference, Movement, OpKey, Operation, Outcome, Reference, Refusal, Reply};
use domain::{AccountKind, Amount, Approval, UserId};
use store::db_test;
use store::ledger::balances::totals;
use store::ledger::{Adjusted, NewAccount, Opened};
use store::testing::{NOW, TestDb};

use crate::support::*;

fn house(kind: &str) -> Party {
    Party::House(kind.parse().expect(kind))
}

fn user(number: i64) -> Party {
    Party::User(UserId::new(number).expect("positive"))
}

fn adjustment(bank: &Bank, key: &str, from: Party, to: Party, units: i64) -> Adjustment {
    let approval = Approval::new("ann", "bob", "case 1").expect("two people");
    Adjustment::new(key, (from, to), bank.usdt, Amount::from_units(units), approval).expect("an adjustment")
}

async fn system(db: &TestDb, bank: &Bank, kind: &str) -> i128 {
    totals(&mut db.read().await.expect("a snapshot")).await.expect("totals")[&bank.usdt].system[kind]
}

const APPLIED: Adjusted = Adjusted::Decided(Reply::First(Outcome::Applied));

db_test! {
    async fn an_adjustment_happens_once_under_its_key(db: TestDb) {
        let bank = Bank::open(db, 1, 0).await;
        let credit = adjustment(&bank, "case-1", house("custody:bsc"), user(1), 100);
        assert_eq!(db.adjust(&credit, false, NOW).await.unwrap(), APPLIED);
        assert_eq!(db.adjust(&credit, false, NOW).await.unwrap(), Adjusted::Decided(Reply::Replay(Outcome::Applied)));
        let other = adjustment(&bank, "case-1", house("custody:bsc"), user(1), 101);
        assert_eq!(db.adjust(&other, false, NOW).await.unwrap(), Adjusted::Decided(Reply::Conflict(Difference::Amount)));
        let approval = Approval::new("ann", "eve", "case 1").expect("two people");
        let others =
            Adjustment::new("case-1", (house("custody:bsc"), user(1)), bank.usdt, Amount::from_units(100), approval);
        let reply = db.adjust(&others.expect("an adjustment"), false, NOW).await.unwrap();
        assert_eq!(reply, Adjusted::Decided(Reply::Conflict(Difference::Reference)), "other people are another content");
        assert_eq!(balance(db, bank.users[0]).await, "100/0");
        assert_eq!(system(db, &bank, "custody:bsc").await, -100);
        assert_clean(db).await;
    }

    async fn an_adjustment_never_takes_what_is_not_there(db: TestDb) {
        let bank = Bank::open(db, 1, 50).await;
        let debit = adjustment(&bank, "too-much", user(1), house("custody:bsc"), 51);
        let refused = Adjusted::Decided(Reply::First(Outcome::Refused(Refusal::InsufficientBalance)));
        assert_eq!(db.adjust(&debit, false, NOW).await.unwrap(), refused);
        let too_low = |kind: &str, balance| Adjusted::TooLow { kind: kind.parse::<AccountKind>().expect(kind), balance };
        for (from, to, units, reply) in [
            // The house has put in nothing and earned nothing.
            (house("external:bsc"), user(1), 1, too_low("external:bsc", -1)),
            (house("fees"), user(1), 1, too_low("fees", -1)),
            (house("external:bsc"), house("custody:bsc"), 1, too_low("external:bsc", -1)),
            // 50 coins are on our addresses: no more can have left them.
            (house("suspense"), house("custody:bsc"), 51, too_low("suspense", -51)),
            // Nothing is in suspense, so nothing is paid out of it.
            (house("suspense"), user(1), 1, too_low("suspense", -1)),
            (house("suspense"), house("fees"), 1, too_low("suspense", -1)),
        ] {
            assert_eq!(db.adjust(&adjustment(&bank, "k", from, to, units), false, NOW).await.unwrap(), reply);
        }
        // What was not done left no trace: the key is free.
        let capital = adjustment(&bank, "k", house("custody:bsc"), house("external:bsc"), 1_000);
        assert_eq!(db.adjust(&capital, false, NOW).await.unwrap(), APPLIED);
        let gift = adjustment(&bank, "gift", house("external:bsc"), user(1), 1_000);
        assert_eq!(db.adjust(&gift, false, NOW).await.unwrap(), APPLIED);
        let again = adjustment(&bank, "gift-2", house("external:bsc"), user(1), 1);
        assert_eq!(db.adjust(&again, false, NOW).await.unwrap(), too_low("external:bsc", -1));
        assert_eq!(balance(db, bank.users[0]).await, "1050/0");
        // What is there is paid out, and no more; what is missing is made good in parts.
        let put = adjustment(&bank, "put", user(1), house("suspense"), 30);
        assert_eq!(db.adjust(&put, false, NOW).await.unwrap(), APPLIED);
        let out = |key: &str, units| adjustment(&bank, key, house("suspense"), user(1), units);
        assert_eq!(db.adjust(&out("out", 31), false, NOW).await.unwrap(), too_low("suspense", -1));
        assert_eq!(db.adjust(&out("out", 30), false, NOW).await.unwrap(), APPLIED);
        let (one, two) = (UserId::new(1).expect("positive"), Approval::new("ann", "bob", "lost").expect("two people"));
        let loss = Adjustment::of_spot("loss", one, EngineHas::More, bank.usdt, Amount::from_units(20), two);
        assert_eq!(db.adjust(&loss.expect("an adjustment"), false, NOW).await.unwrap(), APPLIED);
        let part = adjustment(&bank, "part", user(1), house("suspense"), 5);
        assert_eq!(db.adjust(&part, false, NOW).await.unwrap(), APPLIED);
        assert_eq!((system(db, &bank, "suspense").await, system(db, &bank, "clearing:spot").await), (-15, 20));
        assert_eq!(balance(db, bank.users[0]).await, "1045/0");
        assert_clean(db).await;
    }

    async fn clearing_that_moves_against_anything_but_suspense_is_named_by_the_audit(db: TestDb) {
        let bank = Bank::open(db, 1, 50).await;
        let approved = "ann + bob: case 1";
        let kind = |kind: &str| NewAccount::system(&kind.parse().expect(kind), bank.usdt).expect("of the house");
        let opened = db.open(&[kind("clearing:spot"), kind("suspense")], NOW).await.expect("opened");
        let [Opened::Account(clearing), Opened::Account(suspense)] = opened[..] else { panic!("{opened:?}") };
        let post = |key: &str, from, to| {
            let movement = Movement { from, to, asset: bank.usdt, amount: Amount::from_units(1) };
            let (key, reference) = (OpKey::new(key).expect("a key"), Reference::new(approved).expect("a reference"));
            Operation::move_available(key, vec![movement], reference).expect("an operation")
        };
        db.post(&[post("adjust:spot:1:case", clearing, suspense)], NOW).await.expect("posted");
        assert_clean(db).await;
        // Two people are named, and still: whose money is it, and where does it come from?
        for (key, from, to) in [("adjust:case", suspense, clearing), ("adjust:spot:1:more", clearing, bank.users[0])] {
            db.post(&[post(key, from, to)], NOW).await.expect("posted");
            let report = db.audit(|_| ()).await.expect("the audit runs");
            assert!(report.findings.iter().any(|one| one.check == "adjustments" && one.violation.is_some()), "{key}");
        }
    }

    async fn a_dry_run_changes_nothing(db: TestDb) {
        let bank = Bank::open(db, 1, 0).await;
        let credit = adjustment(&bank, "case-1", house("custody:bsc"), user(1), 100);
        assert_eq!(db.adjust(&credit, true, NOW).await.unwrap(), APPLIED);
        assert_eq!((balance(db, bank.users[0]).await.as_str(), movements(db).await), ("0/0", 0));
        let nobody = adjustment(&bank, "case-2", house("custody:bsc"), user(2), 100);
        assert_eq!(db.adjust(&nobody, false, NOW).await.unwrap(), Adjusted::NoAccount(user(2)));
        let nowhere = adjustment(&bank, "case-2", house("custody:tron"), user(1), 100);
        assert_eq!(db.adjust(&nowhere, false, NOW).await.unwrap(), Adjusted::NoAccount(house("custody:tron")));
        assert_eq!(movements(db).await, 0);
    }

    async fn two_adjustments_at_once_do_not_spend_the_same_capital(db: TestDb) {
        let bank = Bank::open(db, 2, 0).await;
        let capital = adjustment(&bank, "capital", house("custody:bsc"), house("external:bsc"), 100);
        assert_eq!(db.adjust(&capital, false, NOW).await.unwrap(), APPLIED);
        let gifts: Vec<Adjustment> = (1..=8)
            .map(|number| adjustment(&bank, &format!("gift-{number}"), house("external:bsc"), user(1 + number % 2), 60))
            .collect();
        let replies = futures_util::future::join_all(gifts.iter().map(|gift| db.adjust(gift, false, NOW))).await;
        let applied = replies.into_iter().filter(|reply| reply.as_ref().expect("an answer") == &APPLIED).count();
        assert_eq!(applied, 1);
        assert_eq!(system(db, &bank, "external:bsc").await, 40);
        assert_clean(db).await;
    }

    async fn an_adjustment_without_two_people_is_named_by_the_audit(db: TestDb) {
        let bank = Bank::open(db, 1, 0).await;
        // Somebody posts under an adjustment's key without going through the two people.
        let forged = bank.post("adjust:case-1", &[(bank.custody, bank.users[0], 5)]);
        db.post(&[forged], NOW).await.expect("posted");
        let report = db.audit(|_| ()).await.expect("the audit runs");
        let named: Vec<&str> =
            report.findings.iter().filter(|one| one.violation.is_some()).map(|one| one.check).collect();
        assert_eq!(named, ["adjustments"]);
    }
}
