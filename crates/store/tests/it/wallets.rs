//! Wallet groups, operation wallets and users' wallets as rows: what the database itself refuses, what applying a treasury
//! file may change, and wallets that are added by many at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use domain::{Availability, GroupId, Purpose, Timestamp, UserId, WalletRole};
use store::catalog::{Catalog, CatalogError};
use store::error::Constraint;
use store::faults::{Faults, Point, Strike, simulated};
use store::testing::races::{Shell, meet};
use store::testing::{NOW, TestDb, on};
use store::utxo::{AddressKind, Network, NewAddress, Paths, is_watched};
use store::wallet::users::{
    MOST, count_user_wallets, list_addresses, list_user_wallets, user_wallets_at, user_wallets_of,
};
use store::wallet::{
    BitcoinGroup, NewBitcoinWallet, NewUserWallet, OperationWallet, Place, WalletGroup, WalletSettings,
    read_wallet_settings,
};
use store::{Db, Engine, StoreError, db_test};

use crate::support::*;

fn group(name: &str) -> GroupId {
    name.parse().expect("a name")
}

fn user(number: i64) -> UserId {
    UserId::new(number).expect("positive")
}

fn wallet_group(purpose: Purpose, xpub: &str) -> WalletGroup {
    WalletGroup { family: "evm".into(), purpose, xpub: xpub.into(), path: "m/44'/60'/0'/hi/lo".into(), active: true }
}

fn derived(name: &str, index: i64) -> (domain::ChainName, Place) {
    ("bsc".parse().expect("a name"), Place::Derived { group: group(name), index })
}

/// Users' wallets, a gas wallet and a cold one.
fn settings() -> WalletSettings {
    let mut settings = WalletSettings::default();
    settings.groups.insert(group("users"), wallet_group(Purpose::Deposit, "xpub-users"));
    settings.groups.insert(group("gas"), wallet_group(Purpose::Gas, "xpub-gas"));
    settings.wallets.insert(derived("gas", 0), OperationWallet::new(WalletRole::Gas, "0xgas0".into(), true));
    let cold = ("bsc".parse().expect("a name"), Place::Written("0xcold".into()));
    settings.wallets.insert(cold, OperationWallet::new(WalletRole::Cold, "0xcold".into(), true));
    settings
}

async fn apply(db: &Db, wanted: &WalletSettings) -> Result<usize, CatalogError> {
    db.apply_treasury(&catalog(), wanted, &AUTHOR, NOW).await.map(|changes| changes.len())
}

fn new(number: i64) -> NewUserWallet {
    NewUserWallet { user: user(number), address: format!("0xuser{number}") }
}

/// With ids that no sequence has come to.
const SETUP: &str = "
INSERT INTO chains (id, name, kind, network, confirmations, status, created_at, updated_at)
    VALUES (1, 'bsc', 'evm', '56', 12, 'active', 0, 0);
INSERT INTO wallet_groups (id, name, family, purpose, xpub, derivation_path_template, is_active, created_at, updated_at)
    VALUES (51, 'users', 'evm', 'deposit', 'x1', '', TRUE, 0, 0), (52, 'gas', 'evm', 'gas', 'x2', '', TRUE, 0, 0);
INSERT INTO operation_wallet_addresses
    (id, chain_id, wallet_group_id, derivation_index, address, role, is_active, created_at, updated_at)
    VALUES (51, 1, 52, 0, 'g0', 'gas', TRUE, 0, 0), (52, 1, NULL, NULL, 'c0', 'cold', TRUE, 0, 0);
INSERT INTO user_wallets (id, wallet_group_id, user_id, derivation_index, address, created_at) VALUES (51, 51, 7, 7, 'u7', 0);";

const GROUP: &str = "INSERT INTO wallet_groups (name, family, purpose, xpub, derivation_path_template, is_active,
    created_at, updated_at) VALUES ";
const OPERATION: &str =
    "INSERT INTO operation_wallet_addresses (chain_id, wallet_group_id, derivation_index, address, role,
    is_active, created_at, updated_at) VALUES ";
const USER: &str = "INSERT INTO user_wallets (wallet_group_id, user_id, derivation_index, address, created_at) VALUES ";

/// A statement for each rule that breaks exactly it: the table's INSERT, or nothing, and the rest.
const BREAKING: [(Constraint, &str, &str); 20] = [
    (Constraint::GroupName, GROUP, "('users', 'evm', 'hot', 'x9', '', TRUE, 0, 0)"),
    (Constraint::GroupXpub, GROUP, "('hot', 'evm', 'hot', 'x1', '', TRUE, 0, 0)"),
    (Constraint::GroupFamily, GROUP, "('hot', 'solana', 'hot', 'x9', '', TRUE, 0, 0)"),
    (Constraint::GroupPurpose, GROUP, "('hot', 'evm', 'cold', 'x9', '', TRUE, 0, 0)"),
    (Constraint::OperationWalletAddress, OPERATION, "(1, 52, 1, 'g0', 'gas', TRUE, 0, 0)"),
    (Constraint::OperationWalletIndex, OPERATION, "(1, 52, 0, 'g9', 'gas', TRUE, 0, 0)"),
    (Constraint::OperationWalletIndexRange, OPERATION, "(1, 52, -1, 'g9', 'gas', TRUE, 0, 0)"),
    (Constraint::OperationWalletAddressLength, OPERATION, "(1, 52, 1, '', 'gas', TRUE, 0, 0)"),
    (Constraint::OperationWalletRole, OPERATION, "(1, 52, 1, 'g9', 'deposit', TRUE, 0, 0)"),
    (Constraint::OperationWalletCold, OPERATION, "(1, NULL, NULL, 'g9', 'hot', TRUE, 0, 0)"),
    (Constraint::UserWalletOwner, USER, "(51, 7, 7, 'u9', 0)"),
    (Constraint::UserWalletAddress, USER, "(51, 8, 8, 'u7', 0)"),
    (Constraint::UserWalletUserRange, USER, "(51, 4611686018427387904, 4611686018427387904, 'u9', 0)"),
    (Constraint::UserWalletIndex, USER, "(51, 8, 9, 'u9', 0)"),
    (Constraint::UserWalletAddressLength, USER, "(51, 8, 8, '', 0)"),
    (Constraint::GroupFixed, "", "UPDATE wallet_groups SET xpub = 'x9' WHERE id = 51"),
    (Constraint::GroupKept, "", "DELETE FROM wallet_groups WHERE name = 'empty'"),
    (Constraint::OperationWalletFixed, "", "UPDATE operation_wallet_addresses SET address = 'g9' WHERE id = 51"),
    (Constraint::OperationWalletKept, "", "DELETE FROM operation_wallet_addresses WHERE id = 51"),
    (Constraint::UserWalletFixed, "", "UPDATE user_wallets SET address = 'u9' WHERE id = 51"),
];

/// What is a truth value by its type on PostgreSQL.
const BREAKING_FLAGS: [(Constraint, &str); 2] = [
    (Constraint::GroupActiveFlag, "UPDATE wallet_groups SET is_active = 2 WHERE id = 51"),
    (Constraint::OperationWalletActiveFlag, "UPDATE operation_wallet_addresses SET is_active = 2 WHERE id = 51"),
];

pub fn tried() -> impl Iterator<Item = Constraint> {
    BREAKING.into_iter().map(|(constraint, ..)| constraint).chain(BREAKING_FLAGS.into_iter().map(|(one, _)| one))
}

async fn assert_violates(db: &TestDb, constraint: Constraint, statement: &str) {
    let error: StoreError = db.by_hand(statement).await.expect_err(statement).into();
    assert!(matches!(error, StoreError::Violates(found) if found == constraint), "{constraint:?}: {error:?}");
}

db_test! {
    async fn each_rule_of_the_wallet_tables_is_refused_by_its_name(db: TestDb) {
        db.by_hand(SETUP).await.unwrap();
        let empty = "INSERT INTO wallet_groups VALUES (59, 'empty', 'evm', 'hot', 'x8', '', TRUE, 0, 0, NULL)";
        db.by_hand(empty).await.unwrap();
        for (constraint, table, statement) in BREAKING {
            assert_violates(db, constraint, &format!("{table}{statement}")).await;
        }
        let flags = BREAKING_FLAGS.into_iter().filter(|_| db.engine() == Engine::Sqlite);
        for (constraint, statement) in flags {
            assert_violates(db, constraint, statement).await;
        }
        assert_violates(db, Constraint::UserWalletFixed, "DELETE FROM user_wallets WHERE id = 51").await;
        assert_violates(db, Constraint::UserWalletFixed, "UPDATE user_wallets SET user_id = 8, derivation_index = 8").await;
        // Whether something is used may change, and when it was last used.
        db.by_hand("UPDATE wallet_groups SET is_active = FALSE, updated_at = 5;
            UPDATE operation_wallet_addresses SET is_active = FALSE, last_used_at = 5").await.unwrap();
    }

    // By the foreign key on group and purpose.
    async fn an_operation_wallet_has_the_purpose_of_its_group(db: TestDb) {
        db.by_hand(SETUP).await.unwrap();
        for wrong in ["(1, 52, 1, 'h0', 'hot', TRUE, 0, 0)", "(1, 51, 1, 'h0', 'gas', TRUE, 0, 0)"] {
            db.by_hand(&format!("{OPERATION}{wrong}")).await.expect_err(wrong);
        }
        db.by_hand(&format!("{OPERATION}(1, 52, 1, 'g1', 'gas', TRUE, 0, 0)")).await.unwrap();
    }

    async fn what_is_applied_reads_back_and_only_active_changes(db: TestDb) {
        let mut wanted = settings();
        assert!(apply(db, &wanted).await.unwrap() > 10);
        assert_eq!(read_wallet_settings(&mut db.read().await.unwrap()).await.unwrap(), wanted);
        assert_eq!(apply(db, &wanted).await.unwrap(), 0);
        // What a file leaves out stays.
        assert_eq!(apply(db, &WalletSettings::default()).await.unwrap(), 0);
        wanted.groups.get_mut(&group("users")).unwrap().active = false;
        wanted.wallets.get_mut(&derived("gas", 0)).unwrap().active = false;
        let planned = db.plan_treasury(&catalog(), &wanted).await.unwrap();
        let applied = db.apply_treasury(&catalog(), &wanted, &AUTHOR, NOW).await.unwrap();
        assert_eq!(planned, applied);
        let shown: Vec<String> = applied.iter().map(|change| format!("{} {}", change.entity, change.field)).collect();
        assert_eq!(shown, ["wallet group users active", "wallet 0 of gas on bsc active"]);
        assert_eq!(read_wallet_settings(&mut db.read().await.unwrap()).await.unwrap(), wanted);
    }

    async fn a_key_an_address_and_a_role_never_change(db: TestDb) {
        let wanted = settings();
        apply(db, &wanted).await.unwrap();
        let changed = |change: &dyn Fn(&mut WalletSettings)| { let mut other = wanted.clone(); change(&mut other); other };
        let users = |settings: &mut WalletSettings| settings.groups.remove(&group("users")).unwrap();
        for (other, field) in [
            (changed(&|one| one.groups.get_mut(&group("users")).unwrap().xpub = "xpub-thief".into()), "xpub"),
            (changed(&|one| one.groups.get_mut(&group("users")).unwrap().family = "tron".into()), "chain"),
            (changed(&|one| one.groups.get_mut(&group("users")).unwrap().purpose = Purpose::Hot), "purpose"),
            (changed(&|one| {
                one.wallets.insert(derived("gas", 0), OperationWallet::new(WalletRole::Gas, "0xthief".into(), true));
            }), "address"),
        ] {
            for error in [
                db.plan_treasury(&catalog(), &other).await.unwrap_err(),
                db.apply_treasury(&catalog(), &other, &AUTHOR, NOW).await.unwrap_err(),
            ] {
                assert!(matches!(&error, CatalogError::WalletFixed { field: found, .. } if *found == field), "{error:?}");
                assert_eq!(error.code(), "WALLET_FIXED");
            }
        }
        // A key and an address are taken once.
        let twice = changed(&|one| { let group_of_users = users(one); one.groups.insert(group("more"), group_of_users); });
        let again = changed(&|one| {
            one.wallets.insert(derived("gas", 1), OperationWallet::new(WalletRole::Gas, "0xgas0".into(), true));
        });
        for other in [twice, again] {
            assert_eq!(apply(db, &other).await.unwrap_err().code(), "WALLET_TAKEN");
        }
        assert_eq!(read_wallet_settings(&mut db.read().await.unwrap()).await.unwrap(), wanted, "nothing half-written");
    }

    // What is swept there would be credited to the user.
    async fn a_users_address_is_no_wallet_of_the_house(db: TestDb) {
        let mut wanted = settings();
        apply(db, &wanted).await.unwrap();
        db.assign_user_wallets(&group("users"), &[new(7)], NOW).await.unwrap();
        let cold = ("bsc".parse().unwrap(), Place::Written("0xuser7".into()));
        wanted.wallets.insert(cold, OperationWallet::new(WalletRole::Cold, "0xuser7".into(), true));
        let error = apply(db, &wanted).await.unwrap_err();
        assert!(matches!(&error, CatalogError::WalletTaken { holder, .. } if holder == "user 7 in users"), "{error:?}");
    }

    async fn wallets_are_added_once_and_found_by_user_and_by_address(db: TestDb) {
        apply(db, &settings()).await.unwrap();
        let users = group("users");
        let wanted: Vec<NewUserWallet> = [1, 7, (1 << 31) - 1, 1 << 31, (1 << 62) - 1].map(new).to_vec();
        let first = db.assign_user_wallets(&users, &wanted, NOW).await.unwrap();
        assert_eq!((first.added, first.rows.len(), first.holders.len()), (5, 5, 0));
        let again = db.assign_user_wallets(&users, &wanted, NOW).await.unwrap();
        assert_eq!((again.added, again.rows.len()), (0, 5));
        // Some of them are new.
        let more = db.assign_user_wallets(&users, &[new(7), new(8)], NOW).await.unwrap();
        assert_eq!((more.added, more.rows.len()), (1, 2));
        let mut tx = db.read().await.unwrap();
        let found = user_wallets_of(&mut tx, user(7)).await.unwrap();
        assert_eq!(found.len(), 1);
        assert!(found[0].address.is("0xuser7") && !found[0].address.is("0xuser8"));
        assert_eq!((found[0].group.as_str(), found[0].user, found[0].index), ("users", 7, 7));
        assert_eq!(user_wallets_at(&mut tx, &["0xuser7", "0xnobody"]).await.unwrap(), found);
        assert_eq!(count_user_wallets(&mut tx, None).await.unwrap(), 6);
        assert_eq!(count_user_wallets(&mut tx, Some(&users)).await.unwrap(), 6);
        assert_eq!(count_user_wallets(&mut tx, Some(&group("gas"))).await.unwrap(), 0);
        // Page by page, each once.
        for of in [None, Some(&users)] {
            let (mut seen, mut after) = (Vec::new(), i64::MIN);
            loop {
                let page = list_user_wallets(&mut tx, of, after, 2).await.unwrap();
                let Some(last) = page.last() else { break };
                after = last.id;
                seen.extend(page.iter().map(|row| row.user));
            }
            seen.sort_unstable();
            assert_eq!(seen, [1, 7, 8, (1 << 31) - 1, 1 << 31, (1 << 62) - 1]);
        }
        assert_clean(db).await;
    }

    async fn an_address_that_another_has_leaves_the_user_without_a_wallet(db: TestDb) {
        apply(db, &settings()).await.unwrap();
        let users = group("users");
        let thief = NewUserWallet { user: user(66), address: "0xuser7".into() };
        db.assign_user_wallets(&users, &[thief], NOW).await.unwrap();
        let assigned = db.assign_user_wallets(&users, &[new(7), new(8)], NOW).await.unwrap();
        assert_eq!(assigned.rows.iter().map(|row| row.user).collect::<Vec<_>>(), [8], "the neighbour has one");
        assert_eq!(assigned.holders.iter().map(|row| row.user).collect::<Vec<_>>(), [66]);
    }

    async fn without_its_group_nothing_is_added(db: TestDb) {
        let assigned = db.assign_user_wallets(&group("users"), &[new(7)], NOW).await.unwrap();
        assert_eq!((assigned.added, assigned.rows.len(), assigned.holders.len()), (0, 0, 0));
        let many: Vec<NewUserWallet> = (1..=i64::try_from(MOST).unwrap() + 1).map(new).collect();
        let error = db.assign_user_wallets(&group("users"), &many, NOW).await.unwrap_err();
        assert_eq!(error.code(), "BATCH_TOO_LARGE");
    }

    async fn ten_thousand_wallets_are_three_statements(db: TestDb) {
        apply(db, &settings()).await.unwrap();
        let many: Vec<NewUserWallet> = (1..=i64::try_from(MOST).unwrap()).map(new).collect();
        let counted = Arc::new(Counted::default());
        let counting = db.with_faults(Arc::clone(&counted) as Arc<dyn Faults>);
        let assigned = counting.assign_user_wallets(&group("users"), &many, NOW).await.unwrap();
        assert_eq!((assigned.added, assigned.rows.len()), (10_000, 10_000));
        assert_eq!(counted.0.load(Ordering::SeqCst), 3, "the lock, the rows, and what there is");
    }

    async fn what_is_watched_is_read_in_the_order_of_the_ids_across_groups(db: TestDb) {
        let mut wanted = settings();
        wanted.groups.insert(group("older"), wallet_group(Purpose::Deposit, "xpub-older"));
        apply(db, &wanted).await.unwrap();
        let (users, older) = (group("users"), group("older"));
        // Now in the one, now in the other.
        for number in 1..=9 {
            let (group, address) = if number % 3 == 0 { (&older, "0xolder") } else { (&users, "0xuser") };
            let new = NewUserWallet { user: user(number), address: format!("{address}{number}") };
            db.assign_user_wallets(group, &[new], NOW).await.unwrap();
        }
        let mut tx = db.read().await.unwrap();
        let both = [users.clone(), older.clone(), group("nobody")];
        for most in [1, 2, 4, 100] {
            let (mut seen, mut after) = (Vec::new(), i64::MIN);
            loop {
                let page = list_addresses(&mut tx, &both, after, most).await.unwrap();
                assert!(page.len() <= most, "{page:?}");
                let Some(last) = page.last() else { break };
                after = last.0;
                seen.extend(page);
            }
            assert_eq!(seen.len(), 9, "{most} at a time: {seen:?}");
            assert!(seen.is_sorted_by(|a, b| a.0 < b.0), "{seen:?}");
            assert_eq!(seen[2].1, "0xolder3");
        }
        let alone = list_addresses(&mut tx, &[older], i64::MIN, 100).await.unwrap();
        assert_eq!(alone.iter().map(|(_, address)| address.as_str()).collect::<Vec<_>>(), ["0xolder3", "0xolder6", "0xolder9"]);
        assert_eq!(list_addresses(&mut tx, &[], i64::MIN, 100).await.unwrap(), []);
    }

    async fn a_bitcoin_wallet_is_watched_from_the_moment_it_is_there(db: TestDb) {
        apply(db, &settings()).await.unwrap();
        let users = group("users");
        let first = db.assign_bitcoin_wallets(&users, REGTEST, &[on_bitcoin(7), on_bitcoin(8)], NOW).await.unwrap();
        assert_eq!((first.added, first.rows.len(), first.holders.len()), (2, 2, 0));
        let wallets = db.wallets().await.unwrap();
        assert_eq!(wallets.iter().map(|one| (one.name.as_str(), one.network)).collect::<Vec<_>>(), [("users", Network::Regtest)]);
        let watched = db.addresses(wallets[0].id, None, None, 10).await.unwrap();
        assert_eq!(watched.iter().map(|one| (one.account, one.path, one.script.clone())).collect::<Vec<_>>(),
            [(3, None, on_bitcoin(7).script), (3, None, on_bitcoin(8).script)]);
        // Followers count addresses to know that there are new ones.
        assert_eq!(db.followed().await.unwrap().addresses, 2);
        let again = db.assign_bitcoin_wallets(&users, REGTEST, &[on_bitcoin(7)], NOW).await.unwrap();
        assert_eq!((again.added, again.rows.len(), db.followed().await.unwrap().addresses), (0, 1, 2));
        // One that was given before anybody watched is watched from now on.
        db.assign_user_wallets(&users, &[on_bitcoin(9).wallet], NOW).await.unwrap();
        assert!(!is_watched(&mut db.read().await.unwrap(), &on_bitcoin(9).script).await.unwrap());
        let late = db.assign_bitcoin_wallets(&users, REGTEST, &[on_bitcoin(9)], NOW).await.unwrap();
        assert_eq!((late.added, late.rows.len()), (0, 1));
        assert!(is_watched(&mut db.read().await.unwrap(), &on_bitcoin(9).script).await.unwrap());
        assert_clean(db).await;
    }

    async fn a_script_that_another_wallet_has_gives_the_user_nothing(db: TestDb) {
        apply(db, &settings()).await.unwrap();
        let other = db.create_wallet("hot", Network::Regtest, NOW).await.unwrap();
        let taken = NewAddress { account: 0, path: None, kind: AddressKind::P2wpkh, script: on_bitcoin(8).script };
        db.add_addresses(other, &[taken], Paths::Exact, NOW).await.unwrap();
        let wanted = [on_bitcoin(7), on_bitcoin(8)];
        let error = db.assign_bitcoin_wallets(&group("users"), REGTEST, &wanted, NOW).await.unwrap_err();
        assert_eq!(error.code(), "UTXO_ADDRESS_TAKEN");
        let mut tx = db.read().await.unwrap();
        assert_eq!(count_user_wallets(&mut tx, None).await.unwrap(), 0, "nobody is shown an address that is not watched for them");
        assert!(!is_watched(&mut tx, &on_bitcoin(7).script).await.unwrap());
        drop(tx);
        let testnet = BitcoinGroup { network: Network::Testnet4, account: 0 };
        let error = db.assign_bitcoin_wallets(&group("users"), testnet, &[on_bitcoin(7)], NOW).await.unwrap_err();
        assert_eq!(error.code(), "UTXO_OTHER_NETWORK");
    }

    // A process that ends anywhere in between leaves neither a wallet that nobody watches nor one that is watched for nobody.
    async fn a_bitcoin_wallet_and_its_watch_are_there_together_or_not_at_all(db: TestDb) {
        apply(db, &settings()).await.unwrap();
        let users = group("users");
        let mut failures = 0;
        for at in 0.. {
            let dying = db.with_faults(Arc::new(DiesAt(AtomicI64::new(at))) as Arc<dyn Faults>);
            let number = 100 + at;
            let died = dying.assign_bitcoin_wallets(&users, REGTEST, &[on_bitcoin(number)], NOW).await.is_err();
            let mut tx = db.read().await.unwrap();
            let row = !user_wallets_of(&mut tx, user(number)).await.unwrap().is_empty();
            let watched = is_watched(&mut tx, &on_bitcoin(number).script).await.unwrap();
            assert_eq!(row, watched, "point {at}: a row: {row}, watched: {watched}");
            assert!(died || row, "point {at}");
            drop(tx);
            // Whoever asks again gets it.
            db.assign_bitcoin_wallets(&users, REGTEST, &[on_bitcoin(number)], NOW).await.unwrap();
            assert!(is_watched(&mut db.read().await.unwrap(), &on_bitcoin(number).script).await.unwrap());
            failures += u32::from(died);
            if !died {
                break;
            }
        }
        assert!(failures >= 6, "it died at {failures} points only");
        let rows = count_user_wallets(&mut db.read().await.unwrap(), None).await.unwrap();
        assert_eq!(rows, db.followed().await.unwrap().addresses.unsigned_abs());
        assert_clean(db).await;
    }

    // The wallets hang on a chain; what it is may not change under them without the file that pins them.
    async fn a_suspended_chain_keeps_its_wallets(db: TestDb) {
        apply(db, &settings()).await.unwrap();
        let mut other: Catalog = catalog();
        other.chains.get_mut(&"bsc".parse().unwrap()).unwrap().status = Availability::Suspended;
        db.apply_treasury(&other, &settings(), &AUTHOR, Timestamp::from_micros(NOW.micros() + 1)).await.unwrap();
        assert_eq!(read_wallet_settings(&mut db.read().await.unwrap()).await.unwrap(), settings());
    }
}

/// Account 3, so that it is told from the account that nobody named.
const REGTEST: BitcoinGroup = BitcoinGroup { network: Network::Regtest, account: 3 };

fn on_bitcoin(number: i64) -> NewBitcoinWallet {
    let wallet = NewUserWallet { user: user(number), address: format!("bcrt1user{number}") };
    NewBitcoinWallet { wallet, script: format!("script of {number}").into_bytes() }
}

/// The process ends at the n-th point of its transaction.
#[derive(Debug)]
struct DiesAt(AtomicI64);

impl Faults for DiesAt {
    fn strike(&self, _: Point) -> Strike {
        let dies = self.0.fetch_sub(1, Ordering::SeqCst) == 0;
        Box::pin(std::future::ready(if dies { Err(StoreError::Unavailable(simulated())) } else { Ok(()) }))
    }
}

/// Counts statements, and lets all of them through.
#[derive(Debug, Default)]
struct Counted(AtomicU32);

impl Faults for Counted {
    fn strike(&self, point: Point) -> Strike {
        if matches!(point, Point::Statement) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

/// One that waits for a low number has not written a higher one yet, whatever the order it was given.
#[test]
fn postgres_users_get_their_wallets_in_one_order() {
    on(Engine::Postgres, async |db| {
        apply(db, &settings()).await.unwrap();
        let add = |number: i64| {
            format!(
                "INSERT INTO user_wallets (wallet_group_id, user_id, derivation_index, address, created_at)
                 SELECT id, {number}, {number}, '0xuser{number}', 0 FROM wallet_groups WHERE name = 'users'"
            )
        };
        let (mut shell, mut other) = (Shell::open(db).await, Shell::open(db).await);
        shell.run(&format!("BEGIN; {}", add(5))).await.unwrap();
        let users = group("users");
        let wanted = [new(9), new(5)];
        let mut assigning = Box::pin(db.assign_user_wallets(&users, &wanted, NOW));
        tokio::select! {
            done = &mut assigning => panic!("it did not wait for user 5: {done:?}"),
            () = other.until_somebody_waits() => {}
        }
        let higher = format!("SET lock_timeout = '200ms'; {}", add(9));
        other.run(&higher).await.expect("user 9 is not written before user 5");
        shell.run("COMMIT").await.unwrap();
        let assigned = assigning.await.unwrap();
        assert_eq!((assigned.added, assigned.rows.len(), assigned.holders.len()), (0, 2, 0));
    });
}

/// Two that assign overlapping users, one stopped at every point of its transaction: each user has one wallet, and both
/// are told of the same one.
#[test]
fn postgres_two_who_assign_at_once_agree() {
    on(Engine::Postgres, async |db| {
        apply(db, &settings()).await.unwrap();
        let users = group("users");
        for at in 0.. {
            let first = at * 10 + 1;
            let [one, two] = [[first, first + 1, first + 2], [first + 2, first + 1, first + 3]];
            let assign = async |db: Db, numbers: [i64; 3]| {
                let mut rows = db.assign_user_wallets(&users, &numbers.map(new), NOW).await.unwrap().rows;
                rows.sort_by_key(|row| row.user);
                rows
            };
            let met = meet(db, at, async |db| assign(db, one).await, async |db| assign(db, two).await).await;
            assert_eq!((met.first.len(), met.second.len()), (3, 3), "point {at}: {met:?}");
            assert_eq!(met.first[1..], met.second[..2], "point {at}: the same wallets");
            if !met.reached {
                break;
            }
        }
        assert_clean(db).await;
    });
}

/// A scan reads what is new and remembers the last id. One who assigns is stopped at every point of its transaction, another one
/// assigns meanwhile and then the scan reads: no id below the last one appears afterwards.
#[test]
fn postgres_no_wallet_appears_below_one_that_was_seen() {
    on(Engine::Postgres, async |db| {
        apply(db, &settings()).await.unwrap();
        let groups = [group("users")];
        let (mut seen, mut last, mut waited) = (0, i64::MIN, false);
        for at in 0.. {
            let assign = async |db: &Db, number: i64| {
                db.assign_user_wallets(&groups[0], &[new(number)], NOW).await.unwrap();
            };
            let scan = async |db: &Db, after: i64| {
                list_addresses(&mut db.read().await.unwrap(), &groups, after, 1_000).await.unwrap()
            };
            let second = async |db: Db| {
                assign(&db, at * 2 + 2).await;
                scan(&db, last).await
            };
            let met = meet(db, at, async |db| assign(&db, at * 2 + 1).await, second).await;
            waited |= met.waited;
            seen += met.second.len();
            last = met.second.last().map_or(last, |(id, _)| *id);
            let later = scan(db, last).await;
            seen += later.len();
            last = later.last().map_or(last, |(id, _)| *id);
            assert_eq!(seen, usize::try_from(at * 2 + 2).unwrap(), "point {at}: a wallet that was passed over");
            if !met.reached {
                break;
            }
        }
        assert!(waited, "the second waits for the first");
    });
}

/// What a scan reads at its start. `BURSAR_TEST_WALLETS=10000000` and `time` show that ten million take less than a minute.
#[test]
fn postgres_addresses_are_read_page_by_page_without_a_sort() {
    on(Engine::Postgres, async |db| {
        apply(db, &settings()).await.unwrap();
        let count: usize =
            std::env::var("BURSAR_TEST_WALLETS").map_or(120_000, |text| text.parse().expect("a number of wallets"));
        db.by_hand(&format!(
            "INSERT INTO user_wallets (wallet_group_id, user_id, derivation_index, address, created_at)
             SELECT (SELECT id FROM wallet_groups WHERE name = 'users'), n, n, '0x' || lpad(to_hex(n), 40, '0'), 0
             FROM generate_series(1, {count}) n"
        ))
        .await
        .unwrap();
        let mut shell = Shell::open(db).await;
        let plan = shell.plan(
            "SELECT id, address FROM user_wallets
             WHERE wallet_group_id = (SELECT id FROM wallet_groups WHERE name = 'users') AND id > 0 ORDER BY id LIMIT 50000",
        );
        let plan = plan.await;
        assert!(!plan.contains("Sort") && plan.contains("Index Scan"), "{plan}");
        let (mut tx, groups) = (db.read().await.unwrap(), [group("users")]);
        let (mut seen, mut after) = (0, i64::MIN);
        loop {
            let page = list_addresses(&mut tx, &groups, after, 50_000).await.unwrap();
            let Some(last) = page.last() else { break };
            after = last.0;
            seen += page.len();
        }
        assert_eq!(seen, count);
    });
}
