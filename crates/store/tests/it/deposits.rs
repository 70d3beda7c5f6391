//! The chains' own books and users' deposits: exactly once, at depth, taken back and given again.

use std::collections::HashMap;

use domain::deposit::{Attribution, Cause, DepositState, Place, Side};
use domain::{AccountStatus, Amount, Approval, RawSum};
use store::deposit::{Assigned, Assignment, PostedBatch};
use store::entry::{BlockRow, CursorError, EntryKey, FoundEntry, Passed, Proof};
use store::testing::races::meet;
use store::testing::{NOW, on};
use store::{Db, Engine, db_test};

use crate::books::*;
use crate::operators::typed;
use crate::support::*;

use DepositState::*;

db_test! {
    async fn a_payment_is_credited_once_at_depth_and_final_deeper(db: TestDb) {
        let mut books = Books::begin(db).await;
        let paid = books.paid(1, 1, "u7", 5_000 * UNIT + 3);
        books.mine(1, vec![paid.clone()]).await;
        assert_eq!((books.states().await, books.mark().await, books.states().await), (vec![Detected], 1, vec![Proven]));
        assert_eq!(books.mark().await, 0, "once");
        books.mine_empty(1, 1).await;
        assert_eq!(books.post().await, PostedBatch::default(), "two confirmations are not three");
        books.mine_empty(1, 1).await;
        assert_eq!(books.post().await.credited, 1);
        assert_eq!(books.post().await, PostedBatch::default(), "once");
        assert_eq!(books.has(7, "USDT").await.0, 5_000);
        assert_eq!((books.states().await, books.house("custody:bsc", "USDT").await), (vec![Credited], -5_000));
        assert_eq!(db.settle_deposits(&books.worker, &books.chain, NOW).await.unwrap(), 0);
        books.mine_empty(1, 2).await;
        assert_eq!(db.settle_deposits(&books.worker, &books.chain, NOW).await.unwrap(), 1);
        assert_eq!(books.states().await, [Final]);
        assert_eq!(books.path(books.deposits().await[0].id).await, ["detected", "proven", "credited", "final"]);
        assert_clean(db).await;
    }

    async fn what_is_not_proven_is_not_credited_however_deep(db: TestDb) {
        let mut books = Books::begin(db).await;
        let paid = books.paid(1, 1, "u7", 5_000 * UNIT);
        books.pass(1, vec![paid]).await;
        for _ in 0..9 {
            books.pass(1, Vec::new()).await;
        }
        assert_eq!((books.post().await, books.states().await), (PostedBatch::default(), vec![Detected]));
        // Nor when somebody says that it is due, and has looked at what its address has.
        db.by_hand("UPDATE wallet_balances SET checked_height = 1000").await.unwrap();
        let id = books.deposits().await[0].id;
        let whose = HashMap::from([(id, Attribution::User(user(7)))]);
        let posted = db.post_entries(&books.worker, &books.chain, &[id], &whose, NOW).await.unwrap();
        assert_eq!((posted, books.states().await, books.has(7, "USDT").await.0), (PostedBatch::default(), vec![Detected], 0));
        assert_clean(db).await;
    }

    /// A worker that is behind: what is proven, credited and final at once has a history as if it had been there step by step.
    async fn what_is_booked_late_goes_through_all_its_states_at_once(db: TestDb) {
        let mut books = Books::begin(db).await;
        let (deep, nobodys) = (books.paid(1, 1, "u7", 5_000 * UNIT), books.paid(1, 2, "hot", 4_000 * UNIT));
        books.mine(1, vec![deep, nobodys]).await;
        books.mine_empty(1, 1).await;
        let young = books.paid(1, 3, "u8", 2_000 * UNIT);
        books.mine(1, vec![young]).await;
        books.mine_empty(1, 1).await;
        let newest = books.paid(1, 4, "u8", 3_000 * UNIT);
        books.mine(1, vec![newest]).await;
        assert_eq!(books.states().await, [Detected; 4]);
        let posted = books.post().await;
        assert_eq!((posted.credited, posted.left_over, posted.settled), (2, 1, 1));
        assert_eq!(books.states().await, [Final, Unattributed, Credited, Proven]);
        let ids: Vec<i64> = books.deposits().await.iter().map(|row| row.id).collect();
        for (id, path) in ids.iter().zip([
            &["detected", "proven", "credited", "final"][..],
            &["detected", "proven", "unattributed"],
            &["detected", "proven", "credited"],
            &["detected", "proven"],
        ]) {
            assert_eq!(books.path(*id).await, path);
        }
        assert_eq!((books.has(7, "USDT").await.0, books.has(8, "USDT").await.0), (5_000, 2_000));
        assert_clean(db).await;
        assert_eq!(db.settle_deposits(&books.worker, &books.chain, NOW).await.unwrap(), 0);
        books.back_to(0).await;
        assert_eq!(books.post().await.taken_back, 3);
        assert_eq!(books.states().await, [Reversed, Reversed, Reversed, Orphaned]);
        assert_eq!(books.house("custody:bsc", "USDT").await, 0);
        assert_clean(db).await;
    }

    /// What one node alone has shown is taken back by the proof, and is never proven, however late it is booked.
    async fn what_the_proof_does_not_have_is_neither_marked_nor_booked(db: TestDb) {
        let mut books = Books::begin(db).await;
        let (real, lie) = (books.paid(1, 1, "u7", 5_000 * UNIT), books.paid(1, 2, "u8", 9_000 * UNIT));
        books.pass(1, vec![real.clone(), lie]).await;
        let proof = books.prove(1, vec![real]).await.unwrap();
        assert_eq!(proof, Proof { taken_in: 0, disproven: 1 });
        assert_eq!(books.states().await, [Detected, Orphaned]);
        books.mine_empty(1, 4).await;
        assert_eq!(books.post().await.credited, 1);
        assert_eq!((books.states().await, books.has(8, "USDT").await.0), (vec![Final, Orphaned], 0));
        assert_clean(db).await;
    }

    async fn a_block_that_goes_before_the_credit_orphans_its_payments(db: TestDb) {
        let mut books = Books::begin(db).await;
        let paid = books.paid(1, 1, "u7", 5_000 * UNIT);
        books.mine(1, vec![paid]).await;
        books.back_to(0).await;
        assert_eq!(books.states().await, [Orphaned]);
        // Mined again elsewhere it is another deposit, and only that one is credited.
        books.mine_empty(2, 1).await;
        let again = books.paid(2, 1, "u7", 5_000 * UNIT);
        books.mine(2, vec![again]).await;
        books.mine_empty(2, 2).await;
        assert_eq!(books.post().await.credited, 1);
        assert_eq!((books.states().await, books.has(7, "USDT").await.0), (vec![Orphaned, Credited], 5_000));
        assert_clean(db).await;
    }

    async fn a_credit_whose_block_goes_is_taken_back_and_given_again(db: TestDb) {
        let mut books = Books::begin(db).await;
        let paid = books.paid(1, 1, "u7", 5_000 * UNIT + 3);
        books.mine(1, vec![paid]).await;
        books.mine_empty(1, 4).await;
        assert_eq!(books.post().await.credited, 1);
        // The user sends 3,000 on.
        let listing = books.chain.listings.iter().find(|listing| listing.symbol.as_str() == "USDT").unwrap();
        let spend = spend_of_user(db, 7, 3_000, listing.asset).await;
        assert_all_applied(&spend);
        books.back_to(0).await;
        assert_eq!(books.states().await, [Final], "the books still have it");
        assert_eq!(books.post().await.taken_back, 1);
        assert_eq!(books.has(7, "USDT").await, (0, AccountStatus::Frozen));
        assert_eq!(books.deposits().await[0].receivable, Amount::from_units(3_000));
        assert_eq!((books.states().await, books.house("custody:bsc", "USDT").await), (vec![Reversed], 0));
        assert_eq!(db.open_findings(0, 10).await.unwrap()[0].kind, "taken_back");
        assert_clean(db).await;
        let again = books.paid(2, 1, "u7", 5_000 * UNIT + 3);
        books.mine(2, vec![again]).await;
        books.mine_empty(2, 2).await;
        assert_eq!(books.post().await.credited, 1);
        // What was owed is repaid first.
        assert_eq!((books.has(7, "USDT").await.0, books.house("custody:bsc", "USDT").await), (2_000, -5_000));
        assert_eq!(books.house("suspense", "USDT").await, 3_000, "what the user had sent there");
        assert_clean(db).await;
    }

    /// Credited and spent, gone, mined and orphaned, mined a third time: the debt of the first is not forgotten over the second.
    async fn a_debt_outlives_a_mining_that_was_never_credited(db: TestDb) {
        let mut books = Books::begin(db).await;
        let usdt = books.chain.listings.iter().find(|listing| listing.symbol.as_str() == "USDT").unwrap().asset;
        let paid = books.paid(1, 1, "u7", 5_000 * UNIT);
        books.mine(1, vec![paid]).await;
        books.mine_empty(1, 2).await;
        books.post().await;
        assert_all_applied(&spend_of_user(db, 7, 5_000, usdt).await);
        books.back_to(0).await;
        books.post().await;
        let second = books.paid(2, 1, "u7", 5_000 * UNIT);
        books.mine(2, vec![second]).await;
        books.back_to(0).await;
        books.post().await;
        let third = books.paid(3, 1, "u7", 5_000 * UNIT);
        books.mine(3, vec![third]).await;
        books.mine_empty(3, 2).await;
        assert_eq!(books.post().await.credited, 1);
        assert_eq!(books.states().await, [Reversed, Orphaned, Credited]);
        assert_eq!((books.has(7, "USDT").await.0, books.house("custody:bsc", "USDT").await), (0, -5_000));
        assert_clean(db).await;
    }

    /// The worker was away while the block went and the payment was mined again: the debt is known before the second credit.
    async fn what_is_taken_back_is_booked_before_what_comes_again(db: TestDb) {
        let mut books = Books::begin(db).await;
        let usdt = books.chain.listings.iter().find(|listing| listing.symbol.as_str() == "USDT").unwrap().asset;
        let paid = books.paid(1, 1, "u7", 5_000 * UNIT);
        books.mine(1, vec![paid]).await;
        books.mine_empty(1, 2).await;
        books.post().await;
        assert_all_applied(&spend_of_user(db, 7, 5_000, usdt).await);
        books.back_to(0).await;
        let again = books.paid(2, 1, "u7", 5_000 * UNIT);
        books.mine(2, vec![again]).await;
        books.mine_empty(2, 2).await;
        assert_eq!(books.post().await, PostedBatch { taken_back: 1, ..PostedBatch::default() });
        assert_eq!(books.post().await.credited, 1);
        assert_eq!(books.has(7, "USDT").await.0, 0, "what was owed is repaid");
        assert_clean(db).await;
    }

    /// A node shows a payment in a later block than it is in: the proof puts it where it is.
    async fn a_payment_that_was_shown_in_the_wrong_block_is_credited_in_its_own(db: TestDb) {
        let mut books = Books::begin(db).await;
        let honest = books.paid(1, 1, "u7", 5_000 * UNIT);
        books.pass(1, Vec::new()).await;
        books.pass(1, vec![FoundEntry { height: 2, block: hash(1, 2), ..honest.clone() }]).await;
        assert_eq!(books.prove(1, vec![honest]).await.unwrap(), Proof { taken_in: 1, disproven: 1 });
        assert_eq!(books.prove(2, Vec::new()).await.unwrap(), Proof::default());
        books.mine_empty(1, 2).await;
        assert_eq!((books.post().await.credited, books.has(7, "USDT").await.0), (1, 5_000));
        assert_clean(db).await;
    }

    /// One account that can hold no more does not stop the others.
    async fn a_full_account_stops_nobody_else(db: TestDb) {
        let mut books = Books::begin(db).await;
        let most = i128::from(i64::MAX) * UNIT;
        let full = books.paid(1, 1, "u7", most);
        let more = FoundEntry { amount: sum(5_000 * UNIT), key: EntryKey { place: Place::Log(1), ..full.key }, ..full.clone() };
        let other = FoundEntry { key: EntryKey { place: Place::Log(2), ..full.key }, address: "u8".into(), ..more.clone() };
        books.mine(1, vec![full]).await;
        let height = books.next();
        let later = |entry: FoundEntry| FoundEntry { height, block: hash(1, height), ..entry };
        books.mine(1, vec![later(more), later(other)]).await;
        books.mine_empty(1, 2).await;
        let posted = books.post().await;
        assert_eq!((posted.credited, posted.left_over), (2, 1), "{:?}", books.states().await);
        assert_eq!(books.has(8, "USDT").await.0, 5_000);
        assert_clean(db).await;
    }

    async fn the_proof_takes_in_what_was_left_out_and_takes_back_what_was_made_up(db: TestDb) {
        let mut books = Books::begin(db).await;
        let honest = books.paid(1, 1, "u7", 5_000 * UNIT);
        let inflated = FoundEntry { amount: sum(9_000_000 * UNIT), ..honest.clone() };
        let invented = FoundEntry { key: EntryKey { transaction: hash(77, 9), ..honest.key }, ..honest.clone() };
        let left_out = FoundEntry { key: EntryKey { place: Place::Log(3), ..honest.key }, address: "u8".into(), ..honest.clone() };
        books.pass(1, vec![inflated, invented]).await;
        let proof = books.prove(1, vec![honest, left_out]).await.unwrap();
        assert_eq!(proof, Proof { taken_in: 2, disproven: 2 });
        let findings = db.open_findings(0, 10).await.unwrap();
        let told: Vec<(&str, &str)> = findings.iter().map(|one| (one.kind.as_str(), one.subject.as_str())).collect();
        assert_eq!(told, [("disproven", "node 1"), ("disproven", "node 1"), ("left_out", "node 1")]);
        books.mine_empty(1, 2).await;
        assert_eq!(books.post().await.credited, 2);
        assert_eq!((books.has(7, "USDT").await.0, books.has(8, "USDT").await.0), (5_000, 5_000));
        assert_clean(db).await;
    }

    async fn a_proof_of_another_block_proves_nothing(db: TestDb) {
        let mut books = Books::begin(db).await;
        let paid = books.paid(1, 1, "u7", 5_000 * UNIT);
        books.pass(1, vec![paid.clone()]).await;
        books.blocks[1] = hash(2, 1);
        assert!(matches!(books.prove(1, vec![paid]).await, Err(CursorError::NotOnTrail)));
        assert_eq!(books.states().await, [Detected]);
    }

    async fn a_worker_that_was_paused_writes_nothing(db: TestDb) {
        let mut books = Books::begin(db).await;
        let paid = books.paid(1, 1, "u7", 5_000 * UNIT);
        books.mine(1, vec![paid.clone()]).await;
        books.mine_empty(1, 2).await;
        books.look().await;
        let refused = db.take_chain(books.chain.id, "two", later(59), later(120)).await;
        assert!(matches!(refused, Err(CursorError::Taken { .. })));
        let second = db.take_chain(books.chain.id, "two", later(61), later(120)).await.unwrap();
        let block = books.block(1, Vec::new(), false);
        let fenced = |result: Result<(), CursorError>| assert!(matches!(result, Err(CursorError::Fenced)));
        fenced(db.pass_blocks(&books.worker, &block, NOW).await.map(|_| ()));
        fenced(db.undo_blocks(&books.worker, 0, NOW).await.map(|_| ()));
        fenced(books.prove(3, Vec::new()).await.map(|_| ()));
        fenced(db.renew_chain(&books.worker, later(600), NOW).await);
        fenced(db.settle_deposits(&books.worker, &books.chain, NOW).await.map(|_| ()));
        let id = books.deposits().await[0].id;
        let whose = HashMap::from([(id, Attribution::User(user(7)))]);
        fenced(db.post_entries(&books.worker, &books.chain, &[id], &whose, NOW).await.map(|_| ()));
        assert_eq!(db.post_entries(&second, &books.chain, &[id], &whose, NOW).await.unwrap().credited, 1);
        assert_clean(db).await;
    }

    async fn a_halted_chain_moves_nothing_until_a_person_looks(db: TestDb) {
        let mut books = Books::begin(db).await;
        let paid = books.paid(1, 1, "u7", 5_000 * UNIT);
        books.mine(1, vec![paid]).await;
        books.mine_empty(1, 2).await;
        db.halt_chain(books.chain.id, Some("a fork below the trail"), NOW).await.unwrap();
        let id = books.deposits().await[0].id;
        let whose = HashMap::from([(id, Attribution::User(user(7)))]);
        let posted = db.post_entries(&books.worker, &books.chain, &[id], &whose, NOW).await;
        assert!(matches!(posted, Err(CursorError::Halted { .. })));
        db.halt_chain(books.chain.id, None, NOW).await.unwrap();
        assert_eq!(books.post().await.credited, 1);
    }

    async fn blocks_that_do_not_follow_are_refused(db: TestDb) {
        let mut books = Books::begin(db).await;
        books.mine_empty(1, 2).await;
        let again = Passed { blocks: vec![BlockRow { height: 2, hash: hash(1, 2), parent: hash(1, 1) }], ..Passed::default() };
        let other = Passed { blocks: vec![BlockRow { height: 3, hash: hash(2, 3), parent: hash(2, 2) }], ..Passed::default() };
        let gap = Passed { blocks: vec![BlockRow { height: 4, hash: hash(1, 4), parent: hash(1, 3) }], ..Passed::default() };
        for passed in [again, other, gap] {
            assert!(matches!(db.pass_blocks(&books.worker, &passed, NOW).await, Err(CursorError::NotOnTrail)));
        }
    }

    async fn ten_payments_of_one_transaction_to_one_address_are_ten(db: TestDb) {
        let mut books = Books::begin(db).await;
        let one = books.paid(1, 1, "u7", 1_000 * UNIT);
        let ten = (0..10).map(|place| FoundEntry { key: EntryKey { place: Place::Log(place), ..one.key }, ..one.clone() });
        books.mine(1, ten.collect()).await;
        books.mine_empty(1, 2).await;
        assert_eq!((books.post().await.credited, books.has(7, "USDT").await.0), (10, 10_000));
        assert_clean(db).await;
    }

    async fn amounts_that_no_account_can_hold_stay_outside_and_go_again(db: TestDb) {
        let mut books = Books::begin(db).await;
        let most: RawSum = domain::RawAmount::MAX.into();
        let huge = FoundEntry { amount: most, ..books.paid(1, 1, "u7", 0) };
        let more = FoundEntry { key: EntryKey { place: Place::Log(1), ..huge.key }, ..huge.clone() };
        books.mine(1, vec![huge, more]).await;
        books.mine_empty(1, 2).await;
        assert_eq!(books.post().await.left_over, 2);
        assert_eq!(books.deposits().await[0].reason.as_deref(), Some("beyond_ledger"));
        assert_clean(db).await;
        books.back_to(0).await;
        assert_eq!(books.post().await.taken_back, 2);
        assert_eq!(books.states().await, [Reversed, Reversed]);
        assert_clean(db).await;
    }

    async fn what_is_nobodys_waits_in_suspense_until_two_people_say_whose_it_is(db: TestDb) {
        let mut books = Books::begin(db).await;
        let small = books.paid(1, 1, "u7", 999 * UNIT);
        let foreign = books.paid(1, 2, "hot", 4_000 * UNIT);
        books.mine(1, vec![small, foreign]).await;
        books.mine_empty(1, 2).await;
        assert_eq!(books.post().await.left_over, 2);
        let rows = books.deposits().await;
        let reasons: Vec<Option<&str>> = rows.iter().map(|row| row.reason.as_deref()).collect();
        assert_eq!(reasons, [Some("below_minimum"), Some("no_user")]);
        assert_eq!((books.house("suspense", "USDT").await, books.has(7, "USDT").await.0), (4_999, 0));
        let people = Approval::new("ann", "bob", "it came with a letter").unwrap();
        let wanted = Assignment { deposit: rows[1].id, user: user(8), people };
        assert_eq!(db.assign_deposit(&wanted, NOW).await.unwrap(), Assigned::Done { amount: Amount::from_units(4_000) });
        assert_eq!(db.assign_deposit(&wanted, NOW).await.unwrap(), Assigned::Before);
        let other = Assignment { user: user(7), ..wanted.clone() };
        assert_eq!(db.assign_deposit(&other, NOW).await.unwrap(), Assigned::NotUnattributed(Credited));
        assert_eq!(db.assign_deposit(&Assignment { deposit: 99, ..wanted }, NOW).await.unwrap(), Assigned::NoSuchDeposit);
        assert_eq!((books.has(8, "USDT").await.0, books.house("suspense", "USDT").await), (4_000, 999));
        let deposit = format!("dp-{}", rows[1].id);
        assert_eq!(typed(db).await, [
            format!("ann assign {deposit} done: user 8: it came with a letter"), format!("bob assign {deposit} done: user 8: it came with a letter"),
            format!("ann assign {deposit} done: user 8: it came with a letter"), format!("bob assign {deposit} done: user 8: it came with a letter"),
            format!("ann assign {deposit} DEPOSIT_NOT_ASSIGNABLE: user 7: it came with a letter"),
            format!("bob assign {deposit} DEPOSIT_NOT_ASSIGNABLE: user 7: it came with a letter"),
            "ann assign dp-99 DEPOSIT_NOT_FOUND: user 8: it came with a letter".to_owned(),
            "bob assign dp-99 DEPOSIT_NOT_FOUND: user 8: it came with a letter".to_owned(),
        ]);
        assert_clean(db).await;
        // And gone with its block: the user gives it back.
        books.back_to(0).await;
        assert_eq!(books.post().await.taken_back, 2);
        assert_eq!((books.has(8, "USDT").await.0, books.house("suspense", "USDT").await), (0, 0));
        assert_eq!(books.house("custody:bsc", "USDT").await, 0);
        assert_clean(db).await;
    }

    async fn fees_and_foreign_spends_are_booked_and_sweeps_are_not(db: TestDb) {
        let mut books = Books::begin(db).await;
        let paid = FoundEntry { listing: books.coin("BNB"), ..books.paid(1, 1, "u7", 100_000_000_000_000_000) };
        books.mine(1, vec![paid.clone()]).await;
        let height = books.next();
        let of = |number, place, side, address: &str, raw, cause| FoundEntry {
            key: EntryKey { transaction: hash(77, number), place, side },
            height,
            block: hash(1, height),
            address: address.to_owned(),
            amount: sum(raw),
            cause,
            ..paid.clone()
        };
        let moved = vec![
            of(2, Place::Value, Side::Out, "u7", -30_000_000_000_000_000, Cause::SweepOut),
            of(2, Place::Value, Side::In, "hot", 30_000_000_000_000_000, Cause::SweepIn),
            of(2, Place::Fee, Side::Out, "u7", -21_000_000_000_001, Cause::Fee),
            of(3, Place::Value, Side::Out, "u7", -40_000_000_000_000_000, Cause::ForeignSpend),
            of(3, Place::Fee, Side::Out, "u7", -21_000_000_000_001, Cause::Fee),
        ];
        books.mine(1, moved).await;
        books.mine_empty(1, 2).await;
        assert_eq!(books.post().await, PostedBatch { credited: 1, booked: 3, ..PostedBatch::default() });
        // 10^10 raw units are a ledger unit: each fee is 2,100 units and one raw unit.
        assert_eq!(books.house("gas", "BNB").await, -4_201);
        assert_eq!(books.house("suspense", "BNB").await, -4_000_000);
        assert_eq!(db.open_findings(0, 10).await.unwrap()[0].kind, "foreign_spend");
        assert_clean(db).await;
        books.back_to(1).await;
        assert_eq!(books.post().await.booked, 3);
        assert_eq!((books.house("gas", "BNB").await, books.house("suspense", "BNB").await), (0, 0));
        assert_clean(db).await;
    }

    /// Coins that only change places among our own addresses, or a mere fee, by a transaction that nothing of ours explains: the key is
    /// somebody else's too. People sign for a wallet that is only written down, so what it gives the house is theirs to move.
    async fn a_move_within_the_house_that_nobody_of_us_made_stops_its_group(db: TestDb) {
        let mut books = Books::begin(db).await;
        db.by_hand("INSERT INTO operation_wallet_addresses (id, chain_id, role, address, is_active, created_at, updated_at)
                SELECT 61, id, 'cold', 'cold', TRUE, 0, 0 FROM chains WHERE name = 'bsc';
            INSERT INTO outbound_lanes (chain_id, wallet_group_id, derivation_index, address, updated_at)
                SELECT id, 51, 7, 'u7', 0 FROM chains WHERE name = 'bsc'").await.unwrap();
        let stopped = async || db.lanes(None, None, 0, 9).await.unwrap()[0].lane.stopped.clone();
        let paid = FoundEntry { listing: books.coin("BNB"), ..books.paid(1, 1, "u7", 100_000_000_000_000_000) };
        let cold = FoundEntry { address: "cold".to_owned(), key: EntryKey { transaction: hash(9, 9), ..paid.key }, ..paid.clone() };
        books.mine(1, vec![paid.clone(), cold]).await;
        let out = |books: &Books<'_>, number, place, address: &str, cause| FoundEntry {
            key: EntryKey { transaction: hash(79, number), place, side: Side::Out },
            height: books.next(),
            block: hash(1, books.next()),
            address: address.to_owned(),
            amount: sum(-21_000_000_000_001),
            cause,
            ..paid.clone()
        };
        let entries = vec![
            out(&books, 2, Place::Value, "cold", Cause::SweepOut),
            out(&books, 2, Place::Fee, "cold", Cause::Fee),
        ];
        books.mine(1, entries).await;
        assert_eq!((stopped().await, db.open_findings(0, 10).await.unwrap().len()), (None, 0), "people move what is cold");
        for (number, place, cause) in [
            (3, Place::Value, Cause::SweepOut),
            (4, Place::Value, Cause::TopupOut),
            (5, Place::Fee, Cause::Fee),
        ] {
            let entry = out(&books, number, place, "u7", cause);
            books.mine(1, vec![entry]).await;
            let told = db.open_findings(0, 10).await.unwrap();
            assert!(told.iter().any(|one| one.kind == "foreign_spend" && one.subject == hash(79, number).to_string()), "{told:?}");
            let why = stopped().await.expect("it is stopped");
            assert!(why.contains(&hash(79, number).to_string()), "{why}");
            db.by_hand("UPDATE wallet_groups SET outbound_stopped = NULL").await.unwrap();
        }
    }

    async fn a_reverted_payment_is_shown_and_pays_nothing(db: TestDb) {
        let mut books = Books::begin(db).await;
        let reverted = FoundEntry { amount: RawSum::ZERO, cause: Cause::Reverted, ..books.paid(1, 1, "u7", 0) };
        books.mine(1, vec![reverted]).await;
        books.mine_empty(1, 4).await;
        assert_eq!((books.post().await, books.states().await), (PostedBatch::default(), vec![Refused]));
        assert_clean(db).await;
        books.back_to(0).await;
        assert_eq!(books.states().await, [Orphaned]);
        let again = books.paid(2, 1, "u7", 5_000 * UNIT);
        books.mine(2, vec![again]).await;
        books.mark().await;
        assert_eq!(books.states().await, [Orphaned, Proven]);
        assert_clean(db).await;
    }

    async fn a_coinbase_waits_for_a_hundred_blocks(db: TestDb) {
        let mut books = Books::begin(db).await;
        let coinbase = FoundEntry { coinbase: true, ..books.paid(1, 1, "u7", 5_000 * UNIT) };
        books.mine(1, vec![coinbase]).await;
        books.mine_empty(1, 100).await;
        assert_eq!(books.post().await, PostedBatch::default());
        books.mine_empty(1, 1).await;
        assert_eq!(books.post().await.credited, 1);
    }

    /// The database's own rules, each broken by hand: the last line when code errs.
    async fn one_change_is_in_one_block(db: TestDb) {
        let mut books = Books::begin(db).await;
        let paid = books.paid(1, 1, "u7", 5_000 * UNIT);
        books.mine(1, vec![paid.clone()]).await;
        books.back_to(0).await;
        books.mine(2, vec![FoundEntry { block: hash(2, 1), ..paid }]).await;
        const COLUMNS: &str = "chain_id, listing_id, address, height, block_hash, tx_hash, place, side, amount_raw, cause";
        let copy = |more: &str, from: &str| {
            format!("INSERT INTO chain_entries ({COLUMNS}, generation, reverses, alive, posting, due_height, source, at)
                SELECT {COLUMNS}, {more}, 0, 0, '', 0 FROM chain_entries WHERE {from}")
        };
        for (rule, text) in [
            ("chain_entries_alive", copy("9, NULL, TRUE", "alive")),
            ("chain_entries_key", copy("generation, NULL, FALSE", "alive")),
            ("chain_entries_reverses", copy("9, reverses, FALSE", "reverses IS NOT NULL")),
            ("wallet_balances_pkey", "INSERT INTO wallet_balances SELECT * FROM wallet_balances".to_owned()),
            ("deposits_key", "INSERT INTO deposits (id, chain_id, listing_id, tx_hash, place, generation, address, amount_raw, height,
                block_hash, state, amount, repaid, left_over, receivable, version, created_at, updated_at)
                SELECT id + 1000, chain_id, listing_id, tx_hash, place, generation, address, amount_raw, height,
                block_hash, state, amount, repaid, left_over, receivable, version, created_at, updated_at FROM deposits".to_owned()),
            ("deposit_events_pkey", "INSERT INTO deposit_events SELECT * FROM deposit_events".to_owned()),
        ] {
            let error = db.by_hand(&text).await.expect_err(rule).to_string();
            let sqlite = db.engine() == Engine::Sqlite && error.contains("UNIQUE constraint failed");
            assert!(error.contains(rule) || sqlite, "{rule}: {error}");
        }
        assert_clean(db).await;
    }

    async fn a_suspended_asset_waits_and_is_credited_later(db: TestDb) {
        let mut books = Books::begin(db).await;
        let paid = books.paid(1, 1, "u7", 5_000 * UNIT);
        books.mine(1, vec![paid]).await;
        books.mine_empty(1, 2).await;
        db.by_hand("UPDATE asset_on_chain SET status = 'suspended'").await.unwrap();
        assert_eq!(books.post().await, PostedBatch::default());
        db.by_hand("UPDATE asset_on_chain SET status = 'active'").await.unwrap();
        assert_eq!(books.post().await.credited, 1);
    }

    /// What the chain showed cannot be unsaid, by whatever hand.
    async fn entries_deposits_and_histories_stay(db: TestDb) {
        let mut books = Books::begin(db).await;
        let paid = books.paid(1, 1, "u7", 5_000 * UNIT);
        books.mine(1, vec![paid]).await;
        for text in [
            "DELETE FROM deposit_events",
            "UPDATE deposit_events SET reason = 'x'",
            "DELETE FROM deposits",
            "DELETE FROM chain_entries",
            "UPDATE chain_entries SET amount_raw = '1'",
            "UPDATE chain_entries SET address = 'u8'",
        ] {
            assert!(db.by_hand(text).await.is_err(), "{text}");
        }
    }

    /// Each law of the audit, broken by hand.
    async fn the_audit_finds_what_was_changed_by_hand(db: TestDb) {
        let mut books = Books::begin(db).await;
        let paid = books.paid(1, 1, "u7", 5_000 * UNIT + 3);
        books.mine(1, vec![paid]).await;
        books.mine_empty(1, 2).await;
        books.post().await;
        assert_clean(db).await;
        for (check, breaks, mends) in [
            ("wallet_balances", "UPDATE wallet_balances SET on_chain_balance_raw = '1'", "UPDATE wallet_balances SET on_chain_balance_raw = '5000000000000003'"),
            ("custody", "UPDATE chain_residues SET residue_raw = '4' WHERE residue_raw = '3'", "UPDATE chain_residues SET residue_raw = '3' WHERE residue_raw = '4'"),
            ("custody", "UPDATE chain_entries SET posting = 0", "UPDATE chain_entries SET posting = 1"),
            ("deposits", "UPDATE deposits SET state = 'final'", "UPDATE deposits SET state = 'credited'"),
            ("deposits", "UPDATE chain_cursors SET proven_height = 0", "UPDATE chain_cursors SET proven_height = 3"),
        ] {
            db.by_hand(breaks).await.unwrap();
            let report = db.audit(|_| ()).await.unwrap();
            let found: Vec<&str> =
                report.findings.iter().filter(|finding| finding.violation.is_some()).map(|finding| finding.check).collect();
            assert!(found.contains(&check), "{breaks}: {found:?}");
            db.by_hand(mends).await.unwrap();
            assert_clean(db).await;
        }
    }
}

/// A worker is stopped at every point of a write while another takes the chain over: what the second finds is all that there
/// is, and the first writes nothing behind its back.
#[test]
fn postgres_what_a_worker_writes_is_there_before_another_takes_over() {
    on(Engine::Postgres, async |db| {
        let mut books = Books::begin(db).await;
        for at in 0.. {
            let block = books.block(1, Vec::new(), false);
            let worker = books.worker;
            let write = async |db: Db| db.pass_blocks(&worker, &block, NOW).await.is_ok();
            let take = async |db: Db| {
                let second = db.take_chain(books.chain.id, "one", NOW, later(60)).await.unwrap();
                (second, db.trail(books.chain.id).await.unwrap())
            };
            let met = meet(db, at, write, take).await;
            let (second, seen) = met.second;
            assert_eq!(db.trail(books.chain.id).await.unwrap(), seen, "point {at}");
            books.worker = second;
            if met.first {
                books.blocks.push(block.blocks[0].hash);
            }
            if !met.reached {
                break;
            }
        }
    });
}

/// Two people assign a deposit while its block goes and the worker takes it back: one or the other, never both.
#[test]
fn postgres_what_is_assigned_and_what_is_taken_back_wait_for_each_other() {
    on(Engine::Postgres, async |db| {
        let mut books = Books::begin(db).await;
        for at in 0.. {
            let number = 1_000 + u64::try_from(at).unwrap();
            let paid = books.paid(1, number, "hot", 4_000 * UNIT);
            books.mine(1, vec![paid]).await;
            books.mine_empty(1, 2).await;
            assert_eq!(books.post().await.left_over, 1);
            let deposit = books.deposits().await.last().unwrap().id;
            let people = Approval::new("ann", "bob", "it came with a letter").unwrap();
            let wanted = Assignment { deposit, user: user(8), people };
            books.back_to(books.next() - 4).await;
            let ids: Vec<i64> = db.due_entries(&books.chain, 0).await.unwrap().iter().map(|entry| entry.id).collect();
            assert_eq!(ids.len(), 1, "what takes back is due at any height");
            let (worker, chain) = (books.worker, books.chain.clone());
            let back = async |db: Db| db.post_entries(&worker, &chain, &ids, &HashMap::new(), NOW).await.unwrap();
            let met = meet(db, at, back, async |db| db.assign_deposit(&wanted, NOW).await.unwrap()).await;
            assert_eq!(met.first.taken_back, 1, "point {at}");
            assert!(
                matches!(met.second, Assigned::Nothing | Assigned::NotUnattributed(Reversed)),
                "point {at}: {met:?}"
            );
            assert_eq!(books.has(8, "USDT").await.0, 0, "point {at}");
            assert_clean(db).await;
            books.mine_empty(2, 1).await;
            if !met.reached {
                break;
            }
        }
    });
}
