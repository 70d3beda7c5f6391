//! Two that write at once on PostgreSQL, interrupted at every point: the outcome is that of one after the other.
//!
//! SQLite has one writer, so there is nothing to race there. What goes wrong without which clause is in `tests/mutants`.

use domain::ledger::{Outcome, Refusal, Reply};
use domain::{AccountStatus, Timestamp, UserId};
use store::ledger::{NewAccount, StatusChange};
use store::testing::races::{Shell, meet};
use store::testing::{NOW, TestDb, fresh, on};
use store::{Db, Engine};

use crate::support::*;

const APPLIED: Reply = Reply::First(Outcome::Applied);

/// No piece of writing has more points than this.
const MOST_POINTS: i64 = 60;

fn change(name: &str, bank: &Bank, user: usize, status: AccountStatus) -> StatusChange {
    StatusChange { key: key(name), account: bank.users[user], status, actor: "test".into(), reason: "test".into() }
}

fn on_postgres(test: impl AsyncFnOnce(&TestDb)) {
    on(Engine::Postgres, test);
}

#[test]
fn postgres_what_is_decided_on_a_balance_is_decided_on_the_newest() {
    on_postgres(async |db| {
        let bank = Bank::open(db, MOST_POINTS, 100).await;
        for at in 0.. {
            let user = usize::try_from(at).unwrap();
            let hold = async |db: Db, name: &str| {
                db.post(&[bank.hold(&format!("{name}-{at}"), user, 60)], NOW).await.unwrap().remove(0)
            };
            let met = meet(db, at, async |db| hold(db, "one").await, async |db| hold(db, "two").await).await;
            let applied = [met.first, met.second].iter().filter(|reply| **reply == APPLIED).count();
            assert_eq!(applied, 1, "point {at}: two holds of 60 on 100: {met:?}");
            assert_eq!(balance(db, bank.users[user]).await, "40/60", "point {at}");
            if !met.reached {
                break;
            }
        }
        assert_clean(db).await;
    });
}

#[test]
fn postgres_a_key_has_one_effect_though_two_accounts_are_asked() {
    on_postgres(async |db| {
        let bank = Bank::open(db, 2 * MOST_POINTS, 100).await;
        for at in 0.. {
            let [one, two] = [2 * usize::try_from(at).unwrap(), 2 * usize::try_from(at).unwrap() + 1];
            let hold = async |db: Db, user: usize| {
                db.post(&[bank.hold(&format!("same-{at}"), user, 60)], NOW).await.unwrap().remove(0)
            };
            let met = meet(db, at, async |db| hold(db, one).await, async |db| hold(db, two).await).await;
            let mut balances = [balance(db, bank.users[one]).await, balance(db, bank.users[two]).await];
            balances.sort();
            assert_eq!(balances, ["100/0", "40/60"], "point {at}: {met:?}");
            let conflicts = [met.first, met.second].iter().filter(|one| matches!(one, Reply::Conflict(_))).count();
            assert_eq!(conflicts, 1, "point {at}: {met:?}");
            if !met.reached {
                break;
            }
        }
        assert_clean(db).await;
    });
}

#[test]
fn postgres_a_hold_is_either_settled_or_released() {
    on_postgres(async |db| {
        let bank = Bank::open(db, MOST_POINTS, 100).await;
        for at in 0.. {
            let user = usize::try_from(at).unwrap();
            let hold = format!("hold-{at}");
            assert_all_applied(&db.post(&[bank.hold(&hold, user, 60)], NOW).await.unwrap());
            let settle = async |db: Db| {
                db.post(&[bank.settle(&format!("settle-{at}"), &hold, user, 60)], NOW).await.unwrap().remove(0)
            };
            let release = async |db: Db| {
                db.post(&[bank.release(&format!("release-{at}"), &hold, user, 60)], NOW).await.unwrap().remove(0)
            };
            let met = meet(db, at, settle, release).await;
            let ended = [met.first, met.second];
            assert!(ended.contains(&APPLIED), "point {at}: {met:?}");
            assert!(ended.contains(&Reply::First(Outcome::Refused(Refusal::HoldAlreadyEnded))), "point {at}: {met:?}");
            let expected = if ended[0] == APPLIED { "40/0" } else { "100/0" };
            assert_eq!(balance(db, bank.users[user]).await, expected, "point {at}: {met:?}");
            if !met.reached {
                break;
            }
        }
        assert_clean(db).await;
    });
}

#[test]
fn postgres_the_history_of_a_status_has_no_gap() {
    on_postgres(async |db| {
        let bank = Bank::open(db, 2 * MOST_POINTS, 100).await;
        for at in 0.. {
            let user = 2 * usize::try_from(at).unwrap();
            let set = async |db: Db, name: &str, status| {
                db.set_status(&[change(&format!("{name}-{at}"), &bank, user, status)], NOW).await.unwrap().remove(0)
            };
            let met = meet(
                db,
                at,
                async |db| set(db, "freeze", AccountStatus::Frozen).await,
                async |db| set(db, "disable", AccountStatus::Disabled).await,
            )
            .await;
            assert_eq!([met.first, met.second], [APPLIED; 2], "point {at}");
            // The audit finds a status that is not what the last change said, and a change that does not begin where
            // the one before ended.
            let mut shell = Shell::open(db).await;
            let gaps = format!(
                "SELECT COUNT(*) FROM (SELECT before_status, LAG(after_status, 1, 'active') OVER (ORDER BY id) AS last
                     FROM account_status_changes WHERE account_id = {}) AS c WHERE before_status <> last",
                bank.users[user].0
            );
            assert_eq!(shell.number(&gaps).await, 0, "point {at}");
            // One key, two accounts: one of the two orders stands.
            let same = async |db: Db, user: usize| {
                let wanted = change(&format!("same-{at}"), &bank, user, AccountStatus::Active);
                db.set_status(&[wanted], NOW).await.map(|mut replies| replies.remove(0))
            };
            let met = meet(db, at, async |db| same(db, user).await, async |db| same(db, user + 1).await).await;
            let stands =
                [&met.first, &met.second].into_iter().filter(|one| matches!(one, Ok(reply) if *reply == APPLIED));
            assert_eq!(stands.count(), 1, "point {at}: {met:?}");
            if !met.reached {
                break;
            }
        }
        assert_clean(db).await;
    });
}

#[test]
fn postgres_a_number_is_lent_to_one_of_two_that_ask_at_once() {
    on_postgres(async |db| {
        let until = NOW.plus_micros(60_000_000);
        let mut lent = std::collections::BTreeSet::new();
        for at in 0.. {
            let lease =
                async |db: Db, name: &str| db.lease_node(&format!("{name}-{at}"), NOW, until).await.unwrap().unwrap();
            let met = meet(db, at, async |db| lease(db, "one").await, async |db| lease(db, "two").await).await;
            assert!(lent.insert(met.first.number()) && lent.insert(met.second.number()), "point {at}: {met:?}");
            if !met.reached {
                break;
            }
        }
    });
}

#[test]
fn postgres_a_change_of_settings_is_told_once() {
    on_postgres(async |_| {
        for at in 0.. {
            let db = &fresh_and_migrated().await;
            let apply = async |db: Db| db.apply_catalog(&catalog(), &AUTHOR, NOW).await.unwrap().len();
            let met = meet(db, at, apply, apply).await;
            assert_eq!(met.first.min(met.second), 0, "point {at}: both say that they made it: {met:?}");
            assert!(met.first.max(met.second) > 0, "point {at}");
            let mut shell = Shell::open(db).await;
            let twice =
                "SELECT COUNT(*) FROM (SELECT 1 FROM setting_changes GROUP BY entity, field HAVING COUNT(*) > 1) AS c";
            assert_eq!(shell.number(twice).await, 0, "point {at}");
            drop(shell);
            db.close().await;
            store::testing::drop_database(db).await;
            if !met.reached {
                break;
            }
        }
    });
}

async fn fresh_and_migrated() -> TestDb {
    let db = fresh(Engine::Postgres).await;
    db.migrate(NOW).await.unwrap();
    db
}

#[test]
fn postgres_two_that_open_the_same_accounts_get_the_same_accounts() {
    on_postgres(async |db| {
        let bank = Bank::open(db, 0, 0).await;
        for at in 0.. {
            let user = |number: i64| UserId::new(1_000 + 2 * at + number).unwrap();
            let wanted = [NewAccount::funding(user(0), bank.usdt), NewAccount::funding(user(1), bank.usdt)];
            let open = async |db: Db| db.open(&wanted, NOW).await.unwrap();
            let met = meet(db, at, open, open).await;
            assert_eq!(met.first, met.second, "point {at}");
            if !met.reached {
                break;
            }
        }
        assert_clean(db).await;
    });
}

/// Whoever wants several rows locks them in the order of their ids. In any other order two could wait for each other.
#[test]
fn postgres_accounts_are_locked_in_one_order() {
    on_postgres(async |db| {
        let bank = Bank::open(db, 2, 100).await;
        let [low, high] = [bank.users[0], bank.users[1]].map(|account| format!("id = {}", account.0));
        let [mut one, mut other] = [Shell::open(db).await, Shell::open(db).await];
        let batch = [bank.hold("high", 1, 10), bank.hold("low", 0, 10)];
        let posted = one.assert_order(&mut other, "accounts", &low, &high, db.post(&batch, NOW)).await;
        assert_all_applied(&posted.unwrap());
        let freeze = [change("b", &bank, 1, AccountStatus::Frozen), change("a", &bank, 0, AccountStatus::Frozen)];
        let set = one.assert_order(&mut other, "accounts", &low, &high, db.set_status(&freeze, NOW)).await;
        assert_eq!(set.unwrap(), [APPLIED; 2]);
        assert_clean(db).await;
    });
}

#[test]
fn postgres_assets_are_locked_in_one_order() {
    on_postgres(async |db| {
        Bank::open(db, 0, 0).await;
        let [mut one, mut other] = [Shell::open(db).await, Shell::open(db).await];
        let wanted = catalog();
        let applied =
            one.assert_order(&mut other, "assets", "id = 1", "id = 2", db.apply_catalog(&wanted, &AUTHOR, NOW));
        assert!(applied.await.unwrap().is_empty());
    });
}

/// The lease of a node number is renewed by its holder, and only while it is good.
#[test]
fn postgres_a_lease_that_ended_or_went_to_another_is_not_renewed() {
    on_postgres(async |db| {
        let later = |seconds: i64| Timestamp::from_micros(NOW.micros() + seconds * 1_000_000);
        let node = db.lease_node("one", NOW, later(60)).await.unwrap().unwrap();
        assert!(!db.renew_node(node, "two", later(10), later(70)).await.unwrap(), "another process has it");
        assert!(db.renew_node(node, "one", later(10), later(70)).await.unwrap());
        assert!(!db.renew_node(node, "one", later(70), later(130)).await.unwrap(), "it has ended");
    });
}
