//! What people do to deposits and chains, beside what workers do: nothing is paid twice for it.

use std::collections::HashMap;

use domain::adjustment::{Adjustment, Party};
use domain::deposit::{Attribution, DepositState};
use domain::ledger::{Outcome, Reply};
use domain::{AccountKind, AccountStatus, Amount, Approval, AssetId};
use store::deposit::{Assigned, Assignment, Collected, PostedBatch};
use store::entry::{FoundEntry, Heard, Holding};
use store::ledger::{Adjusted, NewAccount, Opened, StatusChange};
use store::testing::races::meet;
use store::testing::{NOW, on};
use store::{Db, Engine, db_test};

use crate::books::{Books, UNIT, hash, later, spend_of_user, user};
use crate::operators::typed;
use crate::support::*;

fn people() -> Approval {
    Approval::new("ann", "bob", "case 4711").unwrap()
}

impl Books<'_> {
    fn asset(&self) -> AssetId {
        self.chain.listings.iter().find(|listing| listing.symbol.as_str() == "USDT").unwrap().asset
    }

    /// What the chain says that an address has of USDT, at the newest proven block.
    async fn see(&self, address: &str, units: i128) {
        let block = self.db.proven_block(&self.chain).await.unwrap().unwrap();
        let holding = Holding { address: address.to_owned(), listing: self.coin("USDT") };
        let looked = [(holding, Some((units * UNIT).to_string().parse().unwrap()))];
        self.db.look(&self.worker, &self.chain, block, &looked, Heard::Again, NOW).await.unwrap();
    }

    /// The block at this height is read again, and pays an address that was not watched before.
    async fn read_late(&self, height: u64, number: u64, address: &str, units: i128) {
        let mut late = self.paid(1, number, address, units * UNIT);
        (late.height, late.block) = (height, self.blocks[usize::try_from(height).unwrap()]);
        let there = self.deposits().await.into_iter().filter(|row| u64::try_from(row.height) == Ok(height));
        assert_eq!(there.filter(|row| row.address == address).count(), 0);
        self.read_again(height, vec![late]).await;
    }

    /// The block at this height is read again, with what it has.
    async fn read_again(&self, height: u64, entries: Vec<FoundEntry>) {
        self.db.order_rescan(&self.chain, (height, height), NOW).await.unwrap().unwrap();
        let at = usize::try_from(height).unwrap();
        let block = store::entry::BlockRow { height, hash: self.blocks[at], parent: self.blocks[at - 1] };
        let read = store::entry::Passed { blocks: vec![block], entries, source: "node 2".to_owned(), proven: true };
        self.db.rescan_blocks(&self.worker, &read, NOW).await.unwrap();
    }
}

async fn adjust(db: &Db, key: &str, ends: (Party, Party), asset: AssetId, units: i64) -> Adjusted {
    let wanted = Adjustment::new(key, ends, asset, Amount::from_units(units), people()).unwrap();
    db.adjust(&wanted, false, NOW).await.unwrap()
}

fn house(kind: &str) -> Party {
    Party::House(kind.parse::<AccountKind>().unwrap())
}

db_test! {
    async fn nothing_of_a_suspended_chain_is_credited_or_final_and_all_of_it_is_taken_back(db: TestDb) {
        let mut books = Books::begin(db).await;
        let early = books.paid(1, 1, "u7", 5_000 * UNIT);
        books.mine(1, vec![early]).await;
        books.mine_empty(1, 2).await;
        assert_eq!(books.post().await.credited, 1);
        let late = books.paid(1, 2, "u8", 5_000 * UNIT);
        books.mine(1, vec![late]).await;
        books.mine_empty(1, 3).await;
        let late = books.deposits().await.pop().unwrap().id;
        db.by_hand("UPDATE chains SET status = 'suspended'").await.unwrap();
        assert_eq!(books.post().await, PostedBatch::default());
        // Nor when the worker had read what is due a moment before.
        let whose = HashMap::from([(late, Attribution::User(user(8)))]);
        let posted = db.post_entries(&books.worker, &books.chain, &[late], &whose, NOW).await.unwrap();
        assert_eq!(posted, PostedBatch::default());
        assert_eq!(db.settle_deposits(&books.worker, &books.chain, NOW).await.unwrap(), 0);
        assert_eq!(books.states().await, [DepositState::Credited, DepositState::Proven]);
        db.by_hand("UPDATE chains SET status = 'active'").await.unwrap();
        assert_eq!((books.post().await.credited, db.settle_deposits(&books.worker, &books.chain, NOW).await.unwrap()), (1, 1));
        db.by_hand("UPDATE chains SET status = 'suspended'").await.unwrap();
        books.back_to(0).await;
        books.mine_empty(2, 8).await;
        assert_eq!(books.post().await.taken_back, 2, "what is gone is gone");
        assert_clean(db).await;
    }

    /// The same of a coin, and of a token whose balance nobody has looked at: a worker had read the payment as due a moment before.
    async fn what_is_due_no_more_is_not_credited(db: TestDb) {
        let mut books = Books::begin(db).await;
        let paid = books.paid(1, 1, "u8", 5_000 * UNIT);
        books.mine(1, vec![paid]).await;
        books.mine_empty(1, 2).await;
        let id = books.deposits().await.pop().unwrap().id;
        let whose = HashMap::from([(id, Attribution::User(user(8)))]);
        let post = async || db.post_entries(&books.worker, &books.chain, &[id], &whose, NOW).await.unwrap();
        assert_eq!(post().await, PostedBatch::default(), "nobody has looked");
        books.look().await;
        for table in ["asset_on_chain", "assets"] {
            db.by_hand(&format!("UPDATE {table} SET status = 'suspended'")).await.unwrap();
            assert_eq!(post().await, PostedBatch::default(), "{table}");
            db.by_hand(&format!("UPDATE {table} SET status = 'active'")).await.unwrap();
        }
        assert_eq!(post().await.credited, 1);
    }

    async fn custody_of_a_chain_that_is_read_is_not_moved_by_hand(db: TestDb) {
        crate::books::set_up(db).await;
        let chain = db.chain(&"bsc".parse().unwrap()).await.unwrap().unwrap();
        let asset = chain.listings.iter().find(|listing| listing.symbol.as_str() == "USDT").unwrap().asset;
        db.open(&[store::ledger::NewAccount::funding(user(7), asset)], NOW).await.unwrap();
        let ends = || (house("custody:bsc"), Party::User(user(7)));
        assert_eq!(adjust(db, "before", ends(), asset, 9).await, Adjusted::Decided(Reply::First(Outcome::Applied)));
        db.begin_chain(&chain, 0, hash(0, 0), NOW).await.unwrap();
        assert_eq!(adjust(db, "after", ends(), asset, 9).await, Adjusted::Kept("bsc".parse().unwrap()));
        let (from, to) = ends();
        assert_eq!(adjust(db, "back", (to, from), asset, 9).await, Adjusted::Kept("bsc".parse().unwrap()));
        assert_eq!(adjust(db, "before", ends(), asset, 9).await, Adjusted::Decided(Reply::Replay(Outcome::Applied)));
        assert_clean(db).await;
    }

    async fn what_people_have_given_out_is_not_credited_when_its_block_is_read_again(db: TestDb) {
        let mut books = Books::begin(db).await;
        books.mine_empty(1, 3).await;
        books.see("u7", 5_000).await;
        books.mine_empty(1, 2).await;
        books.post().await;
        assert_eq!(books.house("suspense", "USDT").await, 5_000);
        db.open(&[store::ledger::NewAccount::funding(user(7), books.asset())], NOW).await.unwrap();
        // By somebody whose clock is an hour behind the worker's.
        let ends = (house("suspense"), Party::User(user(7)));
        let wanted = Adjustment::new("it-is-theirs", ends, books.asset(), Amount::from_units(5_000), people()).unwrap();
        let given = db.adjust(&wanted, false, later(-3_600)).await.unwrap();
        assert_eq!(given, Adjusted::Decided(Reply::First(Outcome::Applied)));
        books.read_late(2, 1, "u7", 5_000).await;
        // The look that follows takes its own entry back, and must not think better of the payment.
        books.see("u7", 5_000).await;
        books.mine_empty(1, 2).await;
        books.post().await;
        books.post().await;
        let row = books.deposits().await.remove(0);
        assert_eq!((row.state, row.reason.as_deref()), (DepositState::Unattributed, Some("found_before")));
        assert_eq!((books.has(7, "USDT").await.0, books.house("suspense", "USDT").await), (5_000, 0), "once");
        assert_clean(db).await;
    }

    /// Nobody had given it out when its block was read again, and somebody did before it was booked: before the look took the find
    /// back, and after.
    async fn what_people_give_out_before_the_booking_is_not_credited_either(db: TestDb) {
        let mut books = Books::begin(db).await;
        for (number, address, look_first) in [(7, "u7", false), (8, "u8", true)] {
            books.mine_empty(1, 3).await;
            books.see(address, 5_000).await;
            books.mine_empty(1, 2).await;
            books.post().await;
            assert_eq!(books.house("suspense", "USDT").await, 5_000);
            db.open(&[store::ledger::NewAccount::funding(user(number), books.asset())], NOW).await.unwrap();
            let found = books.next() - 3;
            books.read_late(found, u64::try_from(number).unwrap(), address, 5_000).await;
            if look_first {
                books.see(address, 5_000).await;
            }
            let ends = (house("suspense"), Party::User(user(number)));
            let given = adjust(db, address, ends, books.asset(), 5_000).await;
            assert_eq!(given, Adjusted::Decided(Reply::First(Outcome::Applied)));
            books.see(address, 5_000).await;
            books.mine_empty(1, 2).await;
            books.post().await;
            books.post().await;
            let row = books.deposits().await.pop().unwrap();
            assert_eq!((row.state, row.reason.as_deref()), (DepositState::Unattributed, Some("found_before")));
            assert_eq!((books.has(number, "USDT").await.0, books.house("suspense", "USDT").await), (5_000, 0), "once");
            // What comes above the find is nothing that it found.
            let new = books.paid(1, 100 + u64::try_from(number).unwrap(), address, 2_000 * UNIT);
            books.mine(1, vec![new]).await;
            books.see(address, 7_000).await;
            books.mine_empty(1, 2).await;
            assert_eq!((books.post().await.credited, books.has(number, "USDT").await.0), (1, 7_000));
            assert_clean(db).await;
        }
    }

    /// The find is in the books no longer when people take something out of `suspense`: that was something else.
    async fn what_people_give_out_after_the_find_is_taken_back_is_something_else(db: TestDb) {
        let mut books = Books::begin(db).await;
        let nobodys = books.paid(1, 1, "hot", 5_000 * UNIT);
        books.mine(1, vec![nobodys]).await;
        books.see("hot", 5_000).await;
        books.see("u7", 5_000).await;
        books.mine_empty(1, 2).await;
        books.post().await;
        assert_eq!(books.house("suspense", "USDT").await, 10_000);
        books.read_late(1, 2, "u7", 5_000).await;
        books.see("u7", 5_000).await;
        books.mine_empty(1, 2).await;
        let due = db.due_entries(&books.chain, books.next() - 1).await.unwrap();
        let back: Vec<i64> = due.iter().filter(|entry| !entry.is_deposit).map(|entry| entry.id).collect();
        assert_eq!((back.len(), due.len()), (1, 2));
        db.post_entries(&books.worker, &books.chain, &back, &HashMap::new(), NOW).await.unwrap();
        assert_eq!(books.house("suspense", "USDT").await, 5_000);
        db.open(&[store::ledger::NewAccount::funding(user(8), books.asset())], NOW).await.unwrap();
        let given = adjust(db, "hot's", (house("suspense"), Party::User(user(8))), books.asset(), 5_000).await;
        assert_eq!(given, Adjusted::Decided(Reply::First(Outcome::Applied)));
        assert_eq!((books.post().await.credited, books.has(7, "USDT").await.0), (1, 5_000));
        assert_clean(db).await;
    }

    async fn what_comes_after_a_shortfall_is_credited(db: TestDb) {
        let mut books = Books::begin(db).await;
        let short = books.paid(1, 1, "u7", 5_000 * UNIT);
        books.mine(1, vec![short]).await;
        books.see("u7", 4_900).await;
        books.mine_empty(1, 2).await;
        let whole = books.paid(1, 2, "u7", 3_000 * UNIT);
        books.mine(1, vec![whole]).await;
        books.see("u7", 7_900).await;
        books.mine_empty(1, 3).await;
        let posted = books.post().await;
        assert_eq!((posted.credited, posted.left_over), (1, 1));
        assert_eq!((books.has(7, "USDT").await.0, books.house("suspense", "USDT").await), (3_000, 4_900));
        assert_clean(db).await;
    }

    async fn nothing_of_a_halted_chain_is_assigned(db: TestDb) {
        let mut books = Books::begin(db).await;
        let paid = books.paid(1, 1, "hot", 4_000 * UNIT);
        books.mine(1, vec![paid]).await;
        books.mine_empty(1, 2).await;
        assert_eq!(books.post().await.left_over, 1);
        db.halt_chain(books.chain.id, Some("a fork"), NOW).await.unwrap();
        let wanted = Assignment { deposit: books.deposits().await[0].id, user: user(8), people: people() };
        assert_eq!(db.assign_deposit(&wanted, NOW).await.unwrap(), Assigned::Halted { why: "a fork".to_owned() });
        assert_eq!(books.has(8, "USDT").await.0, 0);
        db.halt_chain(books.chain.id, None, NOW).await.unwrap();
        assert!(matches!(db.assign_deposit(&wanted, NOW).await.unwrap(), Assigned::Done { .. }));
    }

    async fn whoever_takes_a_chain_back_keeps_what_is_to_be_read_again(db: TestDb) {
        let mut books = Books::begin(db).await;
        books.mine_empty(1, 6).await;
        db.order_rescan(&books.chain, (2, 5), NOW).await.unwrap().unwrap();
        for (to, rest) in [(4, Some((2, 4))), (1, None)] {
            db.rewind_chain(&books.chain, (to, hash(1, to)), &people(), NOW).await.unwrap().unwrap();
            assert_eq!(db.chain_standing(&books.chain).await.unwrap().unwrap().rescan, rest, "back to {to}");
        }
        books.worker = db.take_chain(books.chain.id, "two", NOW, later(60)).await.unwrap();
    }

    /// Credited and spent, gone, credited again and gone again: what is owed is owed once, for the newest, and is not kept back after it was collected.
    async fn a_debt_that_went_through_a_second_credit_is_owed_once(db: TestDb) {
        let mut books = Books::begin(db).await;
        let paid = books.paid(1, 1, "u7", 5_000 * UNIT);
        books.mine(1, vec![paid.clone()]).await;
        books.mine_empty(1, 2).await;
        assert_eq!(books.post().await.credited, 1);
        spend_of_user(db, 7, 5_000, books.asset()).await;
        books.back_to(0).await;
        assert_eq!(books.post().await.taken_back, 1);
        let again = FoundEntry { height: books.next(), block: hash(2, books.next()), ..paid.clone() };
        books.mine(2, vec![again]).await;
        books.mine_empty(2, 2).await;
        assert_eq!((books.post().await.credited, books.has(7, "USDT").await.0), (1, 0), "it repays what was owed");
        books.back_to(0).await;
        assert_eq!(books.post().await.taken_back, 1);
        let (first, second) = (books.deposits().await[0].id, books.deposits().await[1].id);
        let other = books.paid(3, 2, "u7", 9_000 * UNIT);
        books.mine(3, vec![other]).await;
        books.mine_empty(3, 2).await;
        assert_eq!((books.post().await.credited, books.has(7, "USDT").await.0), (1, 9_000));
        assert_eq!(db.collect_receivable(first, &people(), NOW).await.unwrap(), Collected::RepaidBy(second));
        let done = Collected::Done { amount: Amount::from_units(5_000), left: Amount::ZERO };
        assert_eq!(db.collect_receivable(second, &people(), NOW).await.unwrap(), done);
        assert_eq!(db.collect_receivable(second, &people(), NOW).await.unwrap(), Collected::NothingOwed);
        assert_eq!(db.collect_receivable(first, &people(), NOW).await.unwrap(), Collected::RepaidBy(second));
        let third = FoundEntry { height: books.next(), block: hash(3, books.next()), ..paid };
        books.mine(3, vec![third]).await;
        books.mine_empty(3, 2).await;
        assert_eq!((books.post().await.credited, books.has(7, "USDT").await.0), (1, 9_000), "4,000 are left, and it is mined again");
        assert_clean(db).await;
    }

    /// An account that takes nothing is no fault of the books.
    async fn nothing_is_assigned_to_an_account_that_takes_nothing(db: TestDb) {
        let mut books = Books::begin(db).await;
        let nobodys = books.paid(1, 1, "hot", 4_000 * UNIT);
        books.mine(1, vec![nobodys]).await;
        books.mine_empty(1, 2).await;
        assert_eq!(books.post().await.left_over, 1);
        let wanted = Assignment { deposit: books.deposits().await[0].id, user: user(8), people: people() };
        let opened = db.open(&[NewAccount::funding(user(8), books.asset())], NOW).await.unwrap();
        let Opened::Account(account) = opened[0] else { panic!("it is listed") };
        let turn = async |name: &str, status: AccountStatus| {
            let change = StatusChange { key: key(name), account, status, actor: "test".to_owned(), reason: "test".to_owned() };
            assert_all_applied(&db.set_status(&[change], NOW).await.unwrap());
        };
        turn("off", AccountStatus::Disabled).await;
        let before = books.house("suspense", "USDT").await;
        assert_eq!(db.assign_deposit(&wanted, NOW).await.unwrap(), Assigned::TakesNothing);
        assert_eq!(books.house("suspense", "USDT").await, before);
        let lines = typed(db).await;
        assert_eq!(lines.iter().filter(|line| line.contains("DEPOSIT_NOT_ASSIGNABLE")).count(), 2, "{lines:#?}");
        turn("on", AccountStatus::Active).await;
        assert_eq!(db.assign_deposit(&wanted, NOW).await.unwrap(), Assigned::Done { amount: Amount::from_units(4_000) });
        assert_clean(db).await;
    }

    async fn what_is_owed_is_collected_once_and_from_a_frozen_account_too(db: TestDb) {
        let mut books = Books::begin(db).await;
        let paid = books.paid(1, 1, "u7", 5_000 * UNIT);
        books.mine(1, vec![paid.clone()]).await;
        books.mine_empty(1, 2).await;
        assert_eq!(books.post().await.credited, 1);
        let id = books.deposits().await[0].id;
        assert_eq!(db.collect_receivable(id, &people(), NOW).await.unwrap(), Collected::NothingOwed);
        assert_eq!(db.collect_receivable(999, &people(), NOW).await.unwrap(), Collected::NoSuchDeposit);
        spend_of_user(db, 7, 3_000, books.asset()).await;
        books.back_to(0).await;
        books.mine_empty(2, 4).await;
        assert_eq!(books.post().await.taken_back, 1);
        assert_eq!((books.has(7, "USDT").await, books.deposits().await[0].receivable.units()), ((0, AccountStatus::Frozen), 3_000));
        assert_eq!(db.collect_receivable(id, &people(), NOW).await.unwrap(), Collected::NothingThere);
        // Something else comes in for the user, and a part of it is taken.
        let other = books.paid(2, 2, "u7", 2_000 * UNIT);
        books.mine(2, vec![other]).await;
        books.mine_empty(2, 2).await;
        books.post().await;
        let before = books.house("suspense", "USDT").await;
        let done = Collected::Done { amount: Amount::from_units(2_000), left: Amount::from_units(1_000) };
        assert_eq!(db.collect_receivable(id, &people(), NOW).await.unwrap(), done);
        assert_eq!((books.has(7, "USDT").await, books.house("suspense", "USDT").await), ((0, AccountStatus::Frozen), before + 2_000));
        assert_clean(db).await;
        // The payment is mined again: only what is still owed is kept back.
        let again = FoundEntry { height: books.next(), block: hash(2, books.next()), ..paid };
        books.mine(2, vec![again]).await;
        books.mine_empty(2, 2).await;
        books.post().await;
        assert_eq!(books.has(7, "USDT").await.0, 4_000);
        let newest = books.deposits().await.last().unwrap().id;
        assert_eq!(db.collect_receivable(id, &people(), NOW).await.unwrap(), Collected::RepaidBy(newest));
        let (lines, done) = (typed(db).await, format!(" collect dp-{id} done: "));
        assert_eq!((lines.len(), lines.iter().filter(|line| line.contains(&done)).count()), (10, 2), "{lines:#?}");
        assert_clean(db).await;
    }
}

/// Somebody gives a find out while the payment that explains it is booked: the user has it once, whoever is first.
#[test]
fn postgres_what_is_given_out_and_what_is_credited_wait_for_each_other() {
    on(Engine::Postgres, async |db| {
        let mut books = Books::begin(db).await;
        db.open(&[store::ledger::NewAccount::funding(user(7), books.asset())], NOW).await.unwrap();
        let (mut refused, mut held) = (0, 0);
        for at in 0.. {
            let round = at + 1;
            let has = i128::from(round) * 5_000;
            books.mine_empty(1, 1).await;
            let height = books.next() - 1;
            books.see("u7", has).await;
            books.mine_empty(1, 2).await;
            books.post().await;
            books.read_late(height, u64::try_from(round).unwrap(), "u7", 5_000).await;
            books.mine_empty(1, 2).await;
            books.see("u7", has).await;
            let due = db.due_entries(&books.chain, books.next() - 1).await.unwrap();
            assert_eq!(due.len(), 2, "the find goes, and the payment comes");
            let ids: Vec<i64> = due.iter().map(|entry| entry.id).collect();
            let whose = due.iter().filter(|one| one.is_deposit).map(|one| (one.id, Attribution::User(user(7))));
            let whose: HashMap<i64, Attribution> = whose.collect();
            let (worker, chain, asset) = (books.worker, books.chain.clone(), books.asset());
            let post = async |db: Db| db.post_entries(&worker, &chain, &ids, &whose, NOW).await.unwrap();
            let ends = (house("suspense"), Party::User(user(7)));
            let give = async |db: Db| adjust(&db, &format!("round-{round}"), ends, asset, 5_000).await;
            let met = meet(db, at, post, give).await;
            match met.second {
                Adjusted::TooLow { .. } => refused += 1,
                Adjusted::Decided(_) => held += 1,
                Adjusted::NoAccount(_) | Adjusted::Kept(_) => panic!("point {at}: {met:?}"),
            }
            assert_eq!(books.has(7, "USDT").await.0, round * 5_000, "point {at}: {met:?}");
            assert_clean(db).await;
            if !met.reached {
                break;
            }
        }
        assert!(refused > 0 && held > 0, "{refused} {held}");
    });
}
