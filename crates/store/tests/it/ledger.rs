//! Laws 1 and 2 of the ledger.

use std::time::Duration;

use domain::ledger::{Difference, Outcome, Refusal, Reply};
use domain::{AccountId, AccountStatus, AssetId, UserId};
use store::ledger::journal::{MovementFilter, list_movements};
use store::ledger::{MAX_BATCH, NewAccount, Opened, StatusChange, balances};
use store::testing::{NOW, on};
use store::{Engine, db_test, transact};

use crate::support::*;

const APPLIED: Reply = Reply::First(Outcome::Applied);

fn refused(refusal: Refusal) -> Reply {
    Reply::First(Outcome::Refused(refusal))
}

db_test! {
    async fn a_refused_operation_does_not_spoil_its_neighbours(db: TestDb) {
        let bank = Bank::open(db, 2, 0).await;
        let [a, b] = [bank.users[0], bank.users[1]];
        let replies = db.post(&[
            bank.deposit("1", 0, 100),
            bank.post("2", &[(a, b, 500)]),
            bank.post("3", &[(a, b, 40), (a, bank.clearing, 10)]),
            bank.post("4", &[(a, b, 40), (a, b, 40)]),
            bank.post("5", &[(b, a, 0)]),
            bank.post("6", &[(b, b, 1)]),
            bank.post("7", &[(b, AccountId(999_999), 1)]),
            bank.hold("8", 1, 15),
        ], NOW).await.unwrap();
        assert_eq!(replies, [
            APPLIED,
            refused(Refusal::InsufficientBalance),
            APPLIED,
            refused(Refusal::InsufficientBalance),
            refused(Refusal::InvalidAmount),
            refused(Refusal::SameAccount),
            refused(Refusal::AccountNotFound),
            APPLIED,
        ]);
        assert_eq!((balance(db, a).await, balance(db, b).await), ("50/0".into(), "25/15".into()));
        assert_clean(db).await;
    }

    async fn a_replay_returns_the_first_outcome_refusals_too(db: TestDb) {
        let bank = Bank::open(db, 2, 0).await;
        let [a, b] = [bank.users[0], bank.users[1]];
        let early = bank.post("early", &[(a, b, 10)]);
        assert_eq!(db.post(std::slice::from_ref(&early), NOW).await.unwrap(), [refused(Refusal::InsufficientBalance)]);
        let deposit = bank.deposit("d", 0, 100);
        assert_eq!(db.post(std::slice::from_ref(&deposit), NOW).await.unwrap(), [APPLIED]);
        let rows = movements(db).await;
        // Beside something new, and twice in one batch.
        let replies = db.post(&[
            deposit.clone(), early, bank.deposit("new", 1, 7), deposit.clone(), bank.deposit("new", 1, 7),
        ], NOW).await.unwrap();
        assert_eq!(replies, [
            Reply::Replay(Outcome::Applied),
            Reply::Replay(Outcome::Refused(Refusal::InsufficientBalance)),
            APPLIED,
            Reply::Replay(Outcome::Applied),
            Reply::Replay(Outcome::Applied),
        ]);
        assert_eq!(movements(db).await, rows + 1);
        assert_eq!((balance(db, a).await, balance(db, b).await), ("100/0".into(), "7/0".into()));
        assert_clean(db).await;
    }

    async fn a_key_used_for_something_else_is_refused(db: TestDb) {
        let bank = Bank::open(db, 2, 100).await;
        let [a, b] = [bank.users[0], bank.users[1]];
        assert_all_applied(&db.post(&[bank.post("k", &[(a, b, 10)])], NOW).await.unwrap());
        let mut other_asset = bank.movement(a, b, 10);
        other_asset.asset = bank.btc;
        let replies = db.post(&[
            bank.post("k", &[(a, b, 11)]),
            bank.post("k", &[(b, a, 10)]),
            bank.post("k", &[(a, bank.clearing, 10)]),
            bank.post("k", &[(a, b, 10), (a, b, 10)]),
            bank.hold("k", 0, 10),
            domain::ledger::Operation::move_available(key("k"), vec![other_asset], note()).unwrap(),
        ], NOW).await.unwrap();
        assert_eq!(replies, [
            Reply::Conflict(Difference::Amount),
            Reply::Conflict(Difference::From),
            Reply::Conflict(Difference::To),
            Reply::Conflict(Difference::MovementCount),
            Reply::Conflict(Difference::Action),
            Reply::Conflict(Difference::Asset),
        ]);
        assert_eq!((balance(db, a).await, balance(db, b).await), ("90/0".into(), "110/0".into()));
        assert_clean(db).await;
    }

    async fn a_hold_ends_exactly_once(db: TestDb) {
        let bank = Bank::open(db, 1, 100).await;
        assert_all_applied(&db.post(&[bank.hold("h1", 0, 30), bank.hold("h2", 0, 20)], NOW).await.unwrap());
        assert_eq!(balance(db, bank.users[0]).await, "50/50");
        assert_all_applied(&db.post(&[bank.settle("s1", "h1", 0, 30), bank.release("r2", "h2", 0, 20)], NOW).await.unwrap());
        assert_eq!(balance(db, bank.users[0]).await, "70/0");
        // In a later batch, while another hold keeps something frozen.
        assert_all_applied(&db.post(&[bank.hold("h3", 0, 70)], NOW).await.unwrap());
        let replies = db.post(&[
            bank.settle("again", "h1", 0, 30),
            bank.release("again2", "h2", 0, 20),
            bank.settle("none", "h9", 0, 20),
            bank.settle("part", "h3", 0, 69),
            bank.settle("s1", "h1", 0, 30),
        ], NOW).await.unwrap();
        assert_eq!(replies, [
            refused(Refusal::HoldAlreadyEnded),
            refused(Refusal::HoldAlreadyEnded),
            refused(Refusal::HoldNotFound),
            refused(Refusal::HoldAmountMismatch),
            Reply::Replay(Outcome::Applied),
        ]);
        assert_eq!(balance(db, bank.users[0]).await, "0/70");
        assert_clean(db).await;
    }

    async fn taken_and_ended_in_one_batch_a_hold_still_ends_once(db: TestDb) {
        let bank = Bank::open(db, 1, 100).await;
        let replies = db.post(&[
            bank.hold("h", 0, 30),
            bank.settle("s", "h", 0, 30),
            bank.release("r", "h", 0, 30),
        ], NOW).await.unwrap();
        assert_eq!(replies, [APPLIED, APPLIED, refused(Refusal::HoldAlreadyEnded)]);
        assert_eq!(balance(db, bank.users[0]).await, "70/0");
        assert_clean(db).await;
    }

    async fn what_is_recorded_does_not_depend_on_the_try(db: TestDb) {
        let bank = Bank::open(db, 1, 100).await;
        let operations = [bank.hold("h", 0, 10), bank.release("r", "h", 0, 10), bank.hold("h2", 0, 50)];
        assert_all_applied(&db.post(&operations, NOW).await.unwrap());
        // Ended, and with a wrong amount: that it has ended comes first, on the first try too.
        let replies = db.post(&[bank.settle("s", "h", 0, 9)], NOW).await.unwrap();
        assert_eq!(replies, [refused(Refusal::HoldAlreadyEnded)]);
    }

    async fn statuses_bind_and_are_recorded_once(db: TestDb) {
        let bank = Bank::open(db, 2, 100).await;
        let [a, b] = [bank.users[0], bank.users[1]];
        assert_all_applied(&db.post(&[bank.hold("h", 0, 10)], NOW).await.unwrap());
        let change = |name: &str, account, status| StatusChange {
            key: key(name), account, status, actor: "ana".into(), reason: "case 7".into(),
        };
        let freeze = change("f1", a, AccountStatus::Frozen);
        let replies = db.set_status(&[
            freeze.clone(),
            change("d1", b, AccountStatus::Disabled),
            freeze.clone(),
            change("f1", a, AccountStatus::Disabled),
            change("f1", b, AccountStatus::Frozen),
            change("f2", AccountId(424_242), AccountStatus::Frozen),
            change("f3", bank.custody, AccountStatus::Frozen),
        ], NOW).await.unwrap();
        assert_eq!(replies, [
            APPLIED,
            APPLIED,
            Reply::Replay(Outcome::Applied),
            Reply::Conflict(Difference::Status),
            Reply::Conflict(Difference::Account),
            refused(Refusal::AccountNotFound),
            refused(Refusal::SystemAccountStatus),
        ]);
        assert_eq!(db.set_status(&[freeze], NOW).await.unwrap(), [Reply::Replay(Outcome::Applied)]);
        let replies = db.post(&[
            bank.post("out", &[(a, b, 1)]),
            bank.deposit("in", 0, 1),
            bank.deposit("in-disabled", 1, 1),
            bank.post("out-disabled", &[(b, bank.clearing, 1)]),
            bank.settle("s", "h", 0, 10),
        ], NOW).await.unwrap();
        assert_eq!(replies, [
            refused(Refusal::AccountFrozen),
            APPLIED,
            refused(Refusal::AccountDisabled),
            refused(Refusal::AccountDisabled),
            APPLIED,
        ]);
        let activate = change("a1", a, AccountStatus::Active);
        assert_eq!(db.set_status(&[activate], NOW).await.unwrap(), [APPLIED]);
        assert_all_applied(&db.post(&[bank.post("out2", &[(a, bank.clearing, 1)])], NOW).await.unwrap());
        assert_clean(db).await;
    }

    async fn opening_again_finds_the_same_account(db: TestDb) {
        let bank = Bank::open(db, 3, 0).await;
        assert!(bank.users.iter().all(|id| id.0 > 0) && bank.custody.0 < 0 && bank.clearing.0 < 0);
        let user = |id| NewAccount::funding(UserId::new(id).unwrap(), bank.usdt);
        let nothing = NewAccount::funding(UserId::new(1).unwrap(), AssetId(77));
        let wanted = [user(3), user(1), user(9), user(9), nothing];
        let first = db.open(&wanted, NOW).await.unwrap();
        assert_eq!(first, db.open(&wanted, NOW).await.unwrap());
        assert_eq!(&first[..2], [Opened::Account(bank.users[2]), Opened::Account(bank.users[0])]);
        assert_eq!((first[2], first[4]), (first[3], Opened::UnknownAsset));
    }

    async fn many_openers_at_once_agree(db: TestDb) {
        let bank = Bank::open(db, 0, 0).await;
        let wanted: Vec<_> = (1..=200).map(|id| NewAccount::funding(UserId::new(id).unwrap(), bank.usdt)).collect();
        let mut backwards = wanted.clone();
        backwards.reverse();
        let tasks: Vec<_> = (0..8).map(|task| {
            let (db, wanted) = (db.db.clone(), if task % 2 == 0 { wanted.clone() } else { backwards.clone() });
            tokio::spawn(async move { db.open(&wanted, NOW).await })
        }).collect();
        let mut answers = Vec::new();
        for (number, task) in tasks.into_iter().enumerate() {
            let mut answer = task.await.unwrap().unwrap();
            if number % 2 == 1 {
                answer.reverse();
            }
            answers.push(answer);
        }
        assert!(answers.windows(2).all(|pair| pair[0] == pair[1]));
    }

    async fn overlapping_batches_neither_deadlock_nor_lose(db: TestDb) {
        const WRITERS: usize = 8;
        const ROUNDS: usize = 12;
        let bank = std::sync::Arc::new(Bank::open(db, 20, 1_000_000).await);
        let tasks: Vec<_> = (0..WRITERS).map(|writer| {
            let (db, bank) = (db.db.clone(), bank.clone());
            tokio::spawn(async move {
                for round in 0..ROUNDS {
                    // The same accounts in another order for each writer: without ordered locks this deadlocks.
                    let operations: Vec<_> = (0..20).map(|step| {
                        let at = if writer % 2 == 0 { step } else { 19 - step };
                        let to = bank.users[(at + 1 + writer) % 20];
                        // Uneven amounts: what one batch does must not cancel out, or a lost update would not show.
                        let units = 1 + ((writer + 3 * step + round) % 7) as i64;
                        if to == bank.users[at] {
                            bank.hold(&format!("{writer}-{round}-{step}"), at, units)
                        } else {
                            bank.post(&format!("{writer}-{round}-{step}"), &[(bank.users[at], to, units)])
                        }
                    }).collect();
                    assert_all_applied(&db.post(&operations, NOW).await.unwrap());
                }
            })
        }).collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(movements(db).await, 20 + (WRITERS * ROUNDS * 20) as u64);
        assert_clean(db).await;
    }

    async fn the_same_batch_from_eight_senders_takes_effect_once(db: TestDb) {
        let bank = std::sync::Arc::new(Bank::open(db, 10, 100).await);
        let operations: Vec<_> = (0..10).flat_map(|user| [
            bank.hold(&format!("h{user}"), user, 60),
            bank.post(&format!("p{user}"), &[(bank.users[user], bank.clearing, 60)]),
            // Touches no user at all.
            bank.post(&format!("sys{user}"), &[(bank.custody, bank.clearing, 5)]),
        ]).collect();
        let mut backwards = operations.clone();
        backwards.reverse();
        let backwards_differs = bank.post("p0", &[(bank.users[0], bank.clearing, 61)]);
        let tasks: Vec<_> = (0..8).map(|_| {
            let (db, operations) = (db.db.clone(), operations.clone());
            tokio::spawn(async move { db.post(&operations, NOW).await.unwrap() })
        }).collect();
        let mut first = 0;
        for task in tasks {
            let replies = task.await.unwrap();
            let fresh = replies.iter().filter(|reply| matches!(reply, Reply::First(_))).count();
            assert!(fresh == 0 || fresh == replies.len(), "a batch is one transaction");
            first += usize::from(fresh > 0);
        }
        assert_eq!(first, 1);
        assert_eq!(db.post(&[backwards_differs], NOW).await.unwrap(), [Reply::Conflict(Difference::Amount)]);
        assert!(db.post(&backwards, NOW).await.unwrap().iter().all(|reply| matches!(reply, Reply::Replay(_))));
        assert_eq!(movements(db).await, 10 + 30);
        assert_clean(db).await;
    }

    async fn a_batch_is_a_constant_number_of_statements(db: TestDb) {
        let bank = Bank::open(db, 500, 1_000).await;
        let mut counts = Vec::new();
        for size in [1_usize, 10, 500] {
            let holds: Vec<_> = (0..size).map(|user| bank.hold(&format!("h{size}-{user}"), user, 1)).collect();
            let settles: Vec<_> =
                (0..size).map(|user| bank.settle(&format!("s{size}-{user}"), &format!("h{size}-{user}"), user, 1)).collect();
            let count = async |operations: &[domain::ledger::Operation]| {
                let count: Result<u32, store::StoreError> = transact!(db, tx => {
                    store::ledger::post(tx, operations, NOW).await?;
                    Ok(tx.statements())
                });
                count.unwrap()
            };
            counts.push((count(&holds).await, count(&settles).await, count(&settles).await));
        }
        // Lock, [system accounts, the first time], [holds], [ended, history on a replay], movements and balances, which
        // PostgreSQL takes in one.
        match db.engine() {
            store::Engine::Sqlite => assert_eq!(counts, [(3, 5, 4), (3, 4, 4), (3, 4, 4)]),
            store::Engine::Postgres => assert_eq!(counts, [(2, 4, 4), (2, 3, 4), (2, 3, 4)]),
        }
        assert_clean(db).await;
    }

    async fn a_batch_beyond_the_limit_changes_nothing(db: TestDb) {
        let bank = Bank::open(db, 1, 0).await;
        let one = bank.deposit("x", 0, 1);
        let error = db.post(&vec![one; MAX_BATCH + 1], NOW).await.unwrap_err();
        assert_eq!(error.code(), "BATCH_TOO_LARGE");
        assert_eq!(movements(db).await, 0);
        assert_eq!(db.post(&[], NOW).await.unwrap(), []);
    }

    async fn system_balances_are_the_same_before_and_after_a_checkpoint(db: TestDb) {
        let bank = Bank::open(db, 3, 1_000).await;
        let read = async || balances::system_balances(&mut db.read().await.unwrap()).await.unwrap();
        let before = read().await;
        assert_eq!(before[&bank.custody], -3_000);
        let line = db.checkpoint(NOW).await.unwrap();
        assert!(line >= 3);
        assert_eq!(read().await, before);
        assert_eq!(db.checkpoint(NOW).await.unwrap(), line, "nothing new, nothing written");
        assert_all_applied(&db.post(&[bank.post("p", &[(bank.users[0], bank.clearing, 10)])], NOW).await.unwrap());
        assert_eq!(read().await[&bank.clearing], 10);
        assert!(db.checkpoint(NOW).await.unwrap() > line);
        assert_eq!(read().await[&bank.clearing], 10);
        assert_clean(db).await;
    }

    async fn a_statement_shows_each_hold_with_its_end(db: TestDb) {
        let bank = Bank::open(db, 2, 100).await;
        let [a, b] = [bank.users[0], bank.users[1]];
        let settle = domain::ledger::Operation::settle(
            key("s"), key("h1"), vec![bank.movement(a, bank.clearing, 9), bank.movement(a, b, 1)], note(),
        ).unwrap();
        let operations = [bank.hold("h1", 0, 10), bank.hold("h2", 0, 5), settle, bank.post("p", &[(b, a, 3)])];
        assert_all_applied(&db.post(&operations, NOW).await.unwrap());
        let statement = async |account: AccountId, before: i64, limit: i64| {
            let mut tx = db.read().await.unwrap();
            let filter = MovementFilter::Account(account.0);
            let page = list_movements(&mut tx, &filter, before, limit).await.unwrap();
            page.movements.iter().map(|row| format!("{}/{}", row.op_key, row.position)).collect::<Vec<_>>()
        };
        assert_eq!(statement(a, i64::MAX, 50).await, ["p/0", "h2/0", "h1/0", "s/0", "s/1", "fund-0/0"]);
        assert_eq!(statement(b, i64::MAX, 50).await, ["p/0", "s/1", "fund-1/0"]);
        assert_eq!(statement(a, i64::MAX, 1).await, ["p/0"]);
        assert_eq!(statement(bank.clearing, i64::MAX, 50).await, ["s/0"]);
    }

    async fn checkpoints_under_traffic_miss_nothing(db: TestDb) {
        let bank = std::sync::Arc::new(Bank::open(db, 40, 1_000_000).await);
        let writers: Vec<_> = (0..4).map(|writer: usize| {
            let (db, bank) = (db.db.clone(), bank.clone());
            tokio::spawn(async move {
                for round in 0..25 {
                    let operations: Vec<_> = (0..10).map(|step| {
                        let user = bank.users[writer * 10 + step];
                        bank.post(&format!("{writer}-{round}-{step}"), &[(user, bank.clearing, 1)])
                    }).collect();
                    assert_all_applied(&db.post(&operations, NOW).await.unwrap());
                }
            })
        }).collect();
        let mut drawn = 0;
        while writers.iter().any(|task| !task.is_finished()) {
            db.checkpoint(NOW).await.unwrap();
            assert_clean(db).await;
            drawn += 1;
        }
        for task in writers {
            task.await.unwrap();
        }
        assert!(drawn > 0);
        assert_clean(db).await;
        let balances = balances::system_balances(&mut db.read().await.unwrap()).await.unwrap();
        assert_eq!(balances[&bank.clearing], 1_000);
    }
}

/// A writer that has taken an id but not committed yet: the line waits for it, or its money would never be counted.
#[test]
fn postgres_a_checkpoint_waits_for_open_writers() {
    on(Engine::Postgres, async |db| {
        let bank = Bank::open(db, 2, 100).await;
        let mut early = db.tries();
        let mut tx = early.begin().await.unwrap();
        store::ledger::post(&mut tx, &[bank.post("early", &[(bank.users[0], bank.clearing, 1)])], NOW).await.unwrap();
        // A later id, committed first.
        db.post(&[bank.post("late", &[(bank.users[1], bank.clearing, 2)])], NOW).await.unwrap();
        let checkpoint = {
            let db = db.db.clone();
            tokio::spawn(async move { db.checkpoint(NOW).await })
        };
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!checkpoint.is_finished(), "the line was drawn while a writer was open");
        early.end(tx, Ok(())).await.unwrap().unwrap();
        checkpoint.await.unwrap().unwrap();
        let balances = balances::system_balances(&mut db.read().await.unwrap()).await.unwrap();
        assert_eq!(balances[&bank.clearing], 3);
        assert_clean(db).await;
    });
}

/// Operations that touch no user wait at their payer, so that the same ones in another order do not deadlock.
#[test]
fn postgres_operations_between_system_accounts_take_turns() {
    on(Engine::Postgres, async |db| {
        let bank = Bank::open(db, 0, 0).await;
        // The server would otherwise resolve a deadlock after a second, and the retry would hide it.
        let patient =
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET deadlock_timeout = ''60s''', current_database());
            END $$";
        db.by_hand(patient).await.unwrap();
        let db = &store::Db::connect(&db.url, &store::Options::default()).await.unwrap();
        let operation = |name: &str| bank.post(name, &[(bank.custody, bank.clearing, 1)]);
        let mut first = db.tries();
        let mut tx = first.begin().await.unwrap();
        store::ledger::post(&mut tx, &[operation("a")], NOW).await.unwrap();
        let second = {
            let (db, operations) = (db.clone(), [operation("b"), operation("a")]);
            tokio::spawn(async move { db.post(&operations, NOW).await })
        };
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!second.is_finished());
        let other_order = [operation("b")];
        let posted = store::ledger::post(&mut tx, &other_order, NOW);
        tokio::time::timeout(Duration::from_secs(5), posted).await.expect("no deadlock").unwrap();
        first.end(tx, Ok(())).await.unwrap().unwrap();
        assert_eq!(second.await.unwrap().unwrap(), [Reply::Replay(Outcome::Applied); 2]);
        assert_clean(db).await;
    });
}
