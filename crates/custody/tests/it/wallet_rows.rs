//! An address is a function, not a row: whatever somebody writes into the tables of wallets, nobody is shown it, nothing is
//! credited by it, and it is found.

use std::sync::Arc;

use bitcoin::NetworkKind;
use bitcoin::bip32::{ChildNumber, Xpriv, Xpub};
use bitcoin::secp256k1::SECP256K1;
use custody::wallet::{
    Pinned, WalletError, WalletRows, assign, compare_settings, deposit_wallet, list, owners, show, verify, watch_house,
};
use domain::{GroupId, Purpose, UserId, WalletRole};
use store::catalog::{Author, Catalog};
use store::testing::{NOW, TestDb};
use store::utxo::is_watched;
use store::wallet::{NewUserWallet, read_wallet_settings};
use store::{Engine, db_test};
use tx::{AccountKey, Address, DerivationError, Family, Group};

const AUTHOR: Author<'static> = Author { actor: "test", reason: "set-up" };

/// The key of an account of a tree that only these tests have.
pub fn key(family: Family, account: u32) -> AccountKey {
    let [purpose, coin] = family.above_account();
    let master = Xpriv::new_master(NetworkKind::Main, &[7; 32]).unwrap();
    let path = [purpose, coin, ChildNumber::Hardened { index: account }];
    let private = master.derive_priv(SECP256K1, &path).unwrap();
    AccountKey::new(Xpub::from_priv(SECP256K1, &private), family).unwrap()
}

fn regtest_key(account: u32) -> AccountKey {
    let family = Family::Bitcoin(bitcoin::Network::Regtest);
    let [purpose, coin] = family.above_account();
    let master = Xpriv::new_master(NetworkKind::Test, &[7; 32]).unwrap();
    let path = [purpose, coin, ChildNumber::Hardened { index: account }];
    let private = master.derive_priv(SECP256K1, &path).unwrap();
    AccountKey::new(Xpub::from_priv(SECP256K1, &private), family).unwrap()
}

fn id(name: &str) -> GroupId {
    name.parse().unwrap()
}

fn user(number: i64) -> UserId {
    UserId::new(number).unwrap()
}

fn group(name: &str, purpose: Purpose, account: u32) -> Group {
    Group { id: id(name), purpose, key: key(Family::Evm, account) }
}

fn address(number: i64) -> Address {
    group("users", Purpose::Deposit, 0).address(number.unsigned_abs()).unwrap()
}

fn bsc() -> (domain::ChainName, Family) {
    ("bsc".parse().unwrap(), Family::Evm)
}

fn pinned() -> Pinned {
    let mut pinned = Pinned::default();
    pinned.add_group(group("users", Purpose::Deposit, 0), true).unwrap();
    pinned.add_group(group("gas", Purpose::Gas, 1), true).unwrap();
    pinned.add_derived(bsc(), WalletRole::Gas, (&id("gas"), 0), true).unwrap();
    pinned.add_cold(bsc(), "0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed", true).unwrap();
    pinned
}

fn catalog() -> Catalog {
    let mut catalog = Catalog::default();
    let chain = domain::Chain {
        name: "bsc".parse().unwrap(),
        kind: domain::ChainKind::Evm,
        network: "56".into(),
        confirmations: 12,
        final_confirmations: 12,
        outbound: domain::outbound::OutboundLimits::usual(domain::ChainKind::Evm),
        status: domain::Availability::Active,
    };
    catalog.chains.insert(chain.name.clone(), chain);
    catalog
}

/// The tables with wallets of users 1 to 9.
async fn set_up(db: &TestDb) -> Arc<Pinned> {
    let pinned = Arc::new(pinned());
    db.apply_treasury(&catalog(), &pinned.settings(), &AUTHOR, NOW).await.unwrap();
    let users: Vec<UserId> = (1..=9).map(user).collect();
    let assigned = assign(db, &pinned, &id("users"), &users, NOW).await.unwrap();
    assert_eq!((assigned.added, assigned.wallets.len(), assigned.differ.len()), (9, 9, 0));
    assert!(assigned.wallets.iter().zip(1..).all(|(wallet, number)| wallet.address == address(number)));
    pinned
}

/// What an owner of the database can write, who knows how to get the triggers and checks out of the way.
pub async fn tamper(db: &TestDb, statements: &str) {
    let free = match db.engine() {
        Engine::Postgres => {
            "ALTER TABLE user_wallets DISABLE TRIGGER USER; ALTER TABLE wallet_groups DISABLE TRIGGER USER;
             ALTER TABLE operation_wallet_addresses DISABLE TRIGGER USER;
             ALTER TABLE user_wallets DROP CONSTRAINT IF EXISTS user_wallets_index_is_user;
             ALTER TABLE user_wallets DROP CONSTRAINT IF EXISTS user_wallets_user_range"
        }
        Engine::Sqlite => {
            "PRAGMA ignore_check_constraints = ON; DROP TRIGGER IF EXISTS trg_user_wallet_fixed_update;
             DROP TRIGGER IF EXISTS trg_user_wallet_fixed_delete; DROP TRIGGER IF EXISTS trg_wallet_group_fixed;
             DROP TRIGGER IF EXISTS trg_operation_wallet_fixed"
        }
    };
    db.by_hand(&format!("{free}; {statements}")).await.unwrap();
}

/// Of users 1 to 9, those whose wallets are still shown, by every way there is; and how many rows are found to be wrong.
async fn still_shown(db: &TestDb, pinned: &Arc<Pinned>) -> (Vec<i64>, u64) {
    let page = list(db, pinned, None, i64::MIN, 100).await.unwrap();
    let listed: Vec<i64> = page.wallets.iter().map(|wallet| wallet.user.get()).collect();
    let mut listed_in_order = listed.clone();
    listed_in_order.sort_unstable();
    let (mut shown, mut found_by_address) = (Vec::new(), Vec::new());
    for number in 1..=9 {
        let own = show(db, pinned, user(number)).await.unwrap();
        for wallet in &own.wallets {
            assert_eq!((wallet.user, &wallet.address), (user(number), &address(number)), "a wrong address is shown");
            shown.push(number);
        }
        // Money that is paid to the user's real address is the user's, or nobody's until people have looked.
        let (owned, _) = owners(db, pinned, &[address(number)]).await.unwrap();
        for wallet in owned.values() {
            assert_eq!(wallet.user, user(number), "credited to somebody else");
            found_by_address.push(number);
        }
    }
    assert_eq!(shown, found_by_address);
    assert_eq!(shown, listed_in_order);
    let mut found = Vec::new();
    let verified = verify(db, pinned, None, |difference| found.push(difference), |_, _| ()).await.unwrap();
    assert_eq!(verified.differ, u64::try_from(found.len()).unwrap());
    (shown, verified.differ)
}

const ALL: [i64; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 9];
const THIEF: &str = "0x9858EfFD232B4033E47d90003D41EC34EcaEda94";

db_test! {
    async fn rows_that_nobody_changed_are_shown(db: TestDb) {
        let pinned = set_up(db).await;
        assert_eq!(still_shown(db, &pinned).await, (ALL.to_vec(), 0));
        let again = assign(db, &pinned, &id("users"), &[user(7), user(7)], NOW).await.unwrap();
        assert_eq!((again.added, again.wallets.len()), (0, 1));
    }

    async fn a_user_gets_one_address_and_always_the_same(db: TestDb) {
        let pinned = set_up(db).await;
        for number in [7, 10, 10] {
            let wallet = deposit_wallet(db, &pinned, Family::Evm, user(number), NOW).await.unwrap();
            assert_eq!((wallet.user, wallet.address), (user(number), address(number)));
        }
        let error = deposit_wallet(db, &pinned, Family::Tron, user(7), NOW).await.unwrap_err();
        assert_eq!((error.code(), error.to_string().contains("no deposit group")), ("WALLET_GROUP_UNUSABLE", true));
        tamper(db, &format!("UPDATE user_wallets SET address = '{THIEF}' WHERE user_id = 7")).await;
        let error = deposit_wallet(db, &pinned, Family::Evm, user(7), NOW).await.unwrap_err();
        assert!(matches!(&error, WalletError::Differs(one) if one.what.contains(THIEF)), "{error:?}");
        // A row that has the address of a user who has none yet keeps that user from it: it is not handed out under another name.
        let stolen = address(11);
        tamper(db, &format!("UPDATE user_wallets SET address = '{stolen}' WHERE user_id = 8")).await;
        let error = deposit_wallet(db, &pinned, Family::Evm, user(11), NOW).await.unwrap_err();
        assert_eq!(error.code(), "WALLET_ROW_DIFFERS");
    }

    async fn several_active_groups_are_not_chosen_from(db: TestDb) {
        set_up(db).await;
        let mut several = pinned();
        several.add_group(group("users-2", Purpose::Deposit, 2), true).unwrap();
        let several = Arc::new(several);
        let error = deposit_wallet(db, &several, Family::Evm, user(7), NOW).await.unwrap_err();
        assert!(error.to_string().contains("several deposit groups"), "{error}");
        let mut newer = Pinned::default();
        newer.add_group(group("users", Purpose::Deposit, 0), false).unwrap();
        newer.add_group(group("users-2", Purpose::Deposit, 2), true).unwrap();
        let newer = Arc::new(newer);
        db.apply_treasury(&catalog(), &newer.settings(), &AUTHOR, NOW).await.unwrap();
        let wallet = deposit_wallet(db, &newer, Family::Evm, user(7), NOW).await.unwrap();
        assert_eq!(wallet.group, id("users-2"));
        assert_ne!(wallet.address, address(7), "a new group is a new address; the old one is still the user's");
        assert_eq!(show(db, &newer, user(7)).await.unwrap().wallets.len(), 2);
    }

    async fn a_bitcoin_address_is_watched_before_it_is_shown(db: TestDb) {
        let mut pinned = Pinned::default();
        let family = Family::Bitcoin(bitcoin::Network::Regtest);
        let of = Group { id: id("users-btc"), purpose: Purpose::Deposit, key: regtest_key(4) };
        pinned.add_group(of.clone(), true).unwrap();
        let pinned = Arc::new(pinned);
        db.apply_treasury(&catalog(), &pinned.settings(), &AUTHOR, NOW).await.unwrap();
        let shown = deposit_wallet(db, &pinned, family, user(7), NOW).await.unwrap();
        assert_eq!(shown.address, of.address(7).unwrap());
        let by_hand = assign(db, &pinned, &of.id, &[user(7), user(8), user(9)], NOW).await.unwrap();
        assert_eq!((by_hand.added, by_hand.wallets.len()), (2, 3));
        let wallets = db.wallets().await.unwrap();
        assert_eq!(wallets.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["users-btc"]);
        let watched = db.addresses(wallets[0].id, Some(4), None, 10).await.unwrap();
        let scripts: Vec<Vec<u8>> = [7, 8, 9].map(|user| of.address(user).unwrap().script_bytes().unwrap()).to_vec();
        assert_eq!(watched.into_iter().map(|one| one.script).collect::<Vec<_>>(), scripts);
        // One that was given before the Bitcoin wallet watched for it is watched when it is shown again.
        let old = NewUserWallet { user: user(10), address: of.address(10).unwrap().to_string() };
        db.assign_user_wallets(&of.id, &[old], NOW).await.unwrap();
        let script = of.address(10).unwrap().script_bytes().unwrap();
        assert!(!is_watched(&mut db.read().await.unwrap(), &script).await.unwrap());
        deposit_wallet(db, &pinned, family, user(10), NOW).await.unwrap();
        assert!(is_watched(&mut db.read().await.unwrap(), &script).await.unwrap());
    }

    async fn the_houses_wallets_on_bitcoin_are_watched_wherever_they_are(db: TestDb) {
        let family = Family::Bitcoin(bitcoin::Network::Regtest);
        let chain: domain::ChainName = "bitcoin".parse().unwrap();
        let mut pinned = Pinned::default();
        pinned.add_group(Group { id: id("hot-btc"), purpose: Purpose::Hot, key: regtest_key(5) }, true).unwrap();
        for index in [0, 1] {
            pinned.add_derived((chain.clone(), family), WalletRole::Hot, (&id("hot-btc"), index), true).unwrap();
        }
        let elsewhere = Group { id: id("cold"), purpose: Purpose::Treasury, key: regtest_key(6) }.address(0).unwrap();
        pinned.add_cold((chain.clone(), family), &elsewhere.to_string(), true).unwrap();
        let names = async || db.wallets().await.unwrap().into_iter().map(|one| one.name).collect::<Vec<_>>();
        watch_house(db, &pinned, (&chain, Family::Evm), NOW).await.unwrap();
        assert!(names().await.is_empty(), "other chains need no such thing");
        for _ in 0..2 {
            watch_house(db, &pinned, (&chain, family), NOW).await.unwrap();
            assert_eq!(names().await, ["hot-btc", "house cold"]);
            for (_, _, wallet) in pinned.wallets() {
                let script = wallet.address.script_bytes().unwrap();
                assert!(is_watched(&mut db.read().await.unwrap(), &script).await.unwrap(), "{}", wallet.address);
            }
        }
    }

    // What somebody met is told at once, and is told until a whole round finds nothing.
    async fn a_row_that_somebody_met_is_counted_once_and_stays(db: TestDb) {
        let pinned = set_up(db).await;
        let rows = WalletRows::default();
        rows.look(db, &pinned).await.unwrap();
        assert_eq!(rows.standing().differ, 0);
        tamper(db, &format!("UPDATE user_wallets SET address = '{THIEF}' WHERE user_id = 7")).await;
        let found = show(db, &pinned, user(7)).await.unwrap();
        for _ in 0..3 {
            rows.met(&found.differ[0]).await;
            assert_eq!((rows.standing().differ, rows.standing().first.as_ref()), (1, Some(&found.differ[0])));
        }
        for _ in 0..4 {
            rows.look(db, &pinned).await.unwrap();
            assert_eq!((rows.standing().differ, rows.standing().first.as_ref()), (1, Some(&found.differ[0])));
        }
        tamper(db, &format!("UPDATE user_wallets SET address = '{}' WHERE user_id = 7", address(7))).await;
        for _ in 0..4 {
            rows.look(db, &pinned).await.unwrap();
        }
        assert_eq!((rows.standing().differ, rows.standing().first), (0, None));
    }

    async fn a_row_with_another_address_is_refused_everywhere(db: TestDb) {
        let pinned = set_up(db).await;
        tamper(db, &format!("UPDATE user_wallets SET address = '{THIEF}' WHERE user_id = 7")).await;
        assert_eq!(still_shown(db, &pinned).await, (vec![1, 2, 3, 4, 5, 6, 8, 9], 1));
        // Nor is the thief's coin credited to the user.
        let thief = Family::Evm.parse_address(THIEF).unwrap();
        let (owned, differ) = owners(db, &pinned, &[thief]).await.unwrap();
        assert_eq!((owned.len(), differ.len()), (0, 1));
        let own = show(db, &pinned, user(7)).await.unwrap();
        assert!(own.differ[0].what.contains(THIEF) && own.differ[0].what.contains(&address(7).to_string()));
        // Nor is it mended in silence.
        let assigned = assign(db, &pinned, &id("users"), &[user(7), user(10)], NOW).await.unwrap();
        assert_eq!((assigned.added, assigned.wallets.len(), assigned.differ.len()), (1, 1, 1));
    }

    async fn two_users_whose_rows_were_swapped_get_nothing_of_each_other(db: TestDb) {
        let pinned = set_up(db).await;
        let (seven, eight) = (address(7), address(8));
        tamper(db, &format!("UPDATE user_wallets SET address = 'x' WHERE user_id = 7;
            UPDATE user_wallets SET address = '{seven}' WHERE user_id = 8;
            UPDATE user_wallets SET address = '{eight}' WHERE user_id = 7")).await;
        assert_eq!(still_shown(db, &pinned).await, (vec![1, 2, 3, 4, 5, 6, 9], 2));
    }

    async fn an_index_that_is_not_the_user_is_refused(db: TestDb) {
        let pinned = set_up(db).await;
        // Even with an address that the group's key gives for that index.
        let other = address(77);
        tamper(db, &format!("UPDATE user_wallets SET derivation_index = 77, address = '{other}' WHERE user_id = 7;
            UPDATE user_wallets SET derivation_index = 78 WHERE user_id = 8")).await;
        assert_eq!(still_shown(db, &pinned).await, (vec![1, 2, 3, 4, 5, 6, 9], 2));
    }

    async fn a_row_that_was_given_to_another_user_is_refused(db: TestDb) {
        let pinned = set_up(db).await;
        tamper(db, "UPDATE user_wallets SET user_id = 66, derivation_index = 66 WHERE user_id = 7").await;
        assert_eq!(still_shown(db, &pinned).await, (vec![1, 2, 3, 4, 5, 6, 8, 9], 1));
        let theirs = show(db, &pinned, user(66)).await.unwrap();
        assert_eq!((theirs.wallets.len(), theirs.differ.len()), (0, 1));
        // The user's own address is in another row now, and it says whose.
        let assigned = assign(db, &pinned, &id("users"), &[user(7)], NOW).await.unwrap();
        assert!(assigned.differ[0].what.starts_with("user 66 in users has "), "{assigned:?}");
        assert_eq!(assigned.wallets, []);
    }

    async fn numbers_that_are_no_users_and_groups_that_are_not_for_users_are_refused(db: TestDb) {
        let pinned = set_up(db).await;
        // The last even has the address that the key of that group gives.
        let of_gas = group("gas", Purpose::Gas, 1).address(9).unwrap();
        tamper(db, &format!("UPDATE user_wallets SET user_id = -7, derivation_index = -7 WHERE user_id = 7;
            UPDATE user_wallets SET user_id = 4611686018427387904, derivation_index = 4611686018427387904 WHERE user_id = 8;
            UPDATE user_wallets SET wallet_group_id = (SELECT id FROM wallet_groups WHERE name = 'gas'), address = '{of_gas}'
                WHERE user_id = 9")).await;
        assert_eq!(still_shown(db, &pinned).await, (vec![1, 2, 3, 4, 5, 6], 3));
    }

    async fn a_key_that_was_changed_in_the_database_changes_no_address(db: TestDb) {
        let pinned = set_up(db).await;
        let other = key(Family::Evm, 9);
        tamper(db, &format!("UPDATE wallet_groups SET xpub = '{other}' WHERE name = 'users'")).await;
        // The addresses come from the file; the row is found.
        assert_eq!(still_shown(db, &pinned).await, (ALL.to_vec(), 1));
        let rows = read_wallet_settings(&mut db.read().await.unwrap()).await.unwrap();
        let differ = compare_settings(&pinned, &rows);
        assert_eq!(differ[0].row, "wallet_groups, users");
        assert!(differ[0].what.starts_with(&format!("its xpub is {other}; ")), "{differ:?}");
        // And applying the file does not overwrite it.
        let error = db.apply_treasury(&catalog(), &pinned.settings(), &AUTHOR, NOW).await.unwrap_err();
        assert_eq!(error.code(), "WALLET_FIXED");
    }

    async fn groups_and_wallets_of_the_house_that_differ_are_found(db: TestDb) {
        let pinned = set_up(db).await;
        let found = async |statements: String| {
            tamper(db, &statements).await;
            let rows = read_wallet_settings(&mut db.read().await.unwrap()).await.unwrap();
            let differ = compare_settings(&pinned, &rows);
            assert_eq!(differ.len(), 1, "{statements}: {differ:?}");
            format!("{}: {}", differ[0].row, differ[0].what)
        };
        let wallets = "UPDATE operation_wallet_addresses SET";
        let gas = group("gas", Purpose::Gas, 1).address(0).unwrap();
        let said = found(format!("{wallets} address = '{THIEF}' WHERE role = 'gas'")).await;
        assert!(said.starts_with("operation_wallet_addresses, wallet 0 of gas on bsc: its address is 0x9858"), "{said}");
        let said = found(format!("{wallets} address = '{gas}', is_active = FALSE WHERE role = 'gas'")).await;
        assert!(said.ends_with("its active is false; by the treasury file it is true"), "{said}");
        let said = found(format!("{wallets} is_active = TRUE WHERE role = 'gas';
            UPDATE wallet_groups SET is_active = FALSE WHERE name = 'users'")).await;
        assert!(said.starts_with("wallet_groups, users: its active is false"), "{said}");
        // A wallet that somebody has added is no wallet of ours.
        let said = found(format!("UPDATE wallet_groups SET is_active = TRUE WHERE name = 'users';
            INSERT INTO operation_wallet_addresses (chain_id, address, role, is_active, created_at, updated_at)
            SELECT id, '{THIEF}', 'cold', TRUE, 0, 0 FROM chains WHERE name = 'bsc'")).await;
        assert!(said.ends_with("the database has it, the treasury file has not"), "{said}");
        // A database without any of them, too.
        let nothing = compare_settings(&pinned, &store::wallet::WalletSettings::default());
        assert_eq!(nothing.len(), 4, "{nothing:?}");
    }

    async fn numbers_at_the_edges_have_their_own_addresses(db: TestDb) {
        let pinned = set_up(db).await;
        let edges: Vec<UserId> = [(1 << 31) - 1, 1 << 31, (1 << 31) + 1, (1 << 62) - 1].map(user).to_vec();
        let assigned = assign(db, &pinned, &id("users"), &edges, NOW).await.unwrap();
        assert_eq!((assigned.added, assigned.differ.len()), (4, 0));
        let mut addresses: Vec<&Address> = assigned.wallets.iter().map(|wallet| &wallet.address).collect();
        addresses.sort();
        addresses.dedup();
        assert_eq!(addresses.len(), 4);
        // One of them has no address: none is written.
        let error = assign(db, &pinned, &id("users"), &[user(11), user(1 << 62)], NOW).await.unwrap_err();
        assert!(matches!(error, WalletError::Derivation(DerivationError::NumberTooLarge(_))), "{error:?}");
        assert_eq!(show(db, &pinned, user(11)).await.unwrap().wallets, []);
    }

    async fn only_an_active_deposit_group_of_file_and_database_gives_wallets(db: TestDb) {
        set_up(db).await;
        let mut other = pinned();
        other.add_group(group("old", Purpose::Deposit, 5), false).unwrap();
        other.add_group(group("unapplied", Purpose::Deposit, 6), true).unwrap();
        let other = Arc::new(other);
        for (name, why) in [
            ("gas", "it is not for users' deposits"),
            ("old", "it is not active: users get no new wallets of it"),
            ("nowhere", "the treasury file has no such group"),
            ("unapplied", "the database has no such group"),
        ] {
            let error = assign(db, &other, &id(name), &[user(7)], NOW).await.unwrap_err();
            assert!(matches!(&error, WalletError::GroupUnusable { why: found, .. } if *found == why), "{name}: {error:?}");
        }
    }

    // What is swept there would be the user's deposit.
    async fn a_cold_wallet_at_a_users_address_gives_that_user_no_wallet(db: TestDb) {
        let mut pinned = pinned();
        pinned.add_cold(bsc(), &address(20).to_string(), true).unwrap();
        let pinned = Arc::new(pinned);
        db.apply_treasury(&catalog(), &pinned.settings(), &AUTHOR, NOW).await.unwrap();
        let assigned = assign(db, &pinned, &id("users"), &[user(19), user(20)], NOW).await.unwrap();
        assert_eq!((assigned.added, assigned.wallets.len(), assigned.differ.len()), (1, 1, 1));
    }

    async fn many_pages_are_verified_in_one_snapshot(db: TestDb) {
        let pinned = set_up(db).await;
        let users: Vec<UserId> = (100..=10_200).map(user).collect();
        assign(db, &pinned, &id("users"), &users, NOW).await.unwrap();
        tamper(db, &format!("UPDATE user_wallets SET address = '{THIEF}' WHERE user_id = 10200")).await;
        let (mut found, mut steps) = (Vec::new(), Vec::new());
        let progress = |all, done| steps.push((all, done));
        let verified = verify(db, &pinned, Some(&id("users")), |one| found.push(one), progress).await.unwrap();
        assert_eq!((verified.user_wallets, verified.differ, found.len()), (10_110, 1, 1));
        assert_eq!(steps, [(10_110, 0), (10_110, 10_000), (10_110, 10_110)]);
    }

    async fn a_server_finds_a_row_within_a_round_and_forgets_it_after_a_good_one(db: TestDb) {
        let pinned = set_up(db).await;
        let rows = WalletRows::default();
        let look = async || {
            // A page, and then the end of the round.
            rows.look(db, &pinned).await.unwrap();
            rows.look(db, &pinned).await.unwrap();
            rows.standing()
        };
        let standing = look().await;
        assert_eq!((standing.differ, standing.checked, standing.first), (0, 9, None));
        tamper(db, &format!("UPDATE user_wallets SET address = '{THIEF}' WHERE user_id = 7")).await;
        let standing = look().await;
        assert_eq!(standing.differ, 1);
        assert!(standing.first.unwrap().what.starts_with("user 7 in users: "));
        let own = address(7);
        tamper(db, &format!("UPDATE user_wallets SET address = '{own}' WHERE user_id = 7")).await;
        let standing = look().await;
        assert_eq!((standing.differ, standing.first), (0, None));
        tamper(db, "UPDATE wallet_groups SET is_active = FALSE WHERE name = 'users'").await;
        rows.look(db, &pinned).await.unwrap();
        assert_eq!(rows.standing().differ, 1, "settings are compared at every look");
    }
}

#[test]
fn a_file_that_contradicts_itself_pins_nothing() {
    use custody::wallet::PinError;
    let mut file = pinned();
    let again = group("more", Purpose::Hot, 0);
    assert_eq!(file.add_group(again, true), Err(PinError::SameKeys(id("users"))));
    let gas = id("gas");
    assert_eq!(file.add_derived(bsc(), WalletRole::Gas, (&gas, 0), true), Err(PinError::Twice));
    assert_eq!(file.add_derived(bsc(), WalletRole::Gas, (&gas, 1 << 31), true), Err(PinError::IndexTooLarge));
    assert!(matches!(
        file.add_derived(bsc(), WalletRole::Hot, (&gas, 1), true),
        Err(PinError::OtherPurpose { purpose: "gas", role: "hot", .. })
    ));
    let tron = ("tron".parse().unwrap(), Family::Tron);
    assert!(matches!(file.add_derived(tron, WalletRole::Gas, (&gas, 1), true), Err(PinError::OtherFamily { .. })));
    let own = group("gas", Purpose::Gas, 1).address(0).unwrap();
    assert_eq!(file.add_cold(bsc(), &own.to_string(), true), Err(PinError::SameAddress));
    assert_eq!(file, pinned());
}
