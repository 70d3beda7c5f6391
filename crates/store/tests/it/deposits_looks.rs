//! What wallets have on their chain, held against their entries; and what people order a chain to do.

use domain::deposit::{Cause, DepositState, Place, Side};
use domain::{Approval, RawAmount};
use store::db_test;
use store::entry::{BlockRow, CursorError, FoundEntry, Heard, Holding, OrderRefusal, Passed};
use store::testing::NOW;

use crate::books::{Books, UNIT, hash, later, sum};
use crate::support::*;

fn raw(value: i128) -> RawAmount {
    value.to_string().parse().unwrap()
}

impl Books<'_> {
    /// What a wallet has at the newest block that is proven. Says whether it differs from its entries.
    async fn find(&self, address: &str, symbol: &str, balance: i128) -> bool {
        let block = self.db.proven_block(&self.chain).await.unwrap().unwrap();
        let holding = Holding { address: address.to_owned(), listing: self.coin(symbol) };
        let looked = [(holding, Some(raw(balance)))];
        let batch = self.db.look(&self.worker, &self.chain, block, &looked, Heard::Again, NOW).await.unwrap();
        assert_eq!(batch.same + batch.differing, 1);
        batch.differing == 1
    }

    async fn findings(&self) -> Vec<String> {
        self.db.open_findings(0, 100).await.unwrap().into_iter().map(|one| one.kind).collect()
    }

    async fn balance(&self, address: &str, symbol: &str) -> String {
        let all = self.db.wallet_balances(&self.chain, "", 100).await.unwrap();
        let one = all.into_iter().find(|one| one.address == address && one.asset.as_str() == symbol);
        one.map_or_else(|| "0".to_owned(), |one| one.raw)
    }

    fn native(&self, branch: u8, number: u64, address: &str, value: i128) -> FoundEntry {
        let paid = self.paid(branch, number, address, value);
        let key = store::entry::EntryKey { place: Place::Value, ..paid.key };
        FoundEntry { key, listing: self.coin("BNB"), ..paid }
    }

    /// Blocks of the chain as they are, read again.
    fn again(&self, from: u64, to: u64, entries: Vec<FoundEntry>) -> Passed {
        let block = |height: u64| {
            let at = usize::try_from(height).unwrap();
            BlockRow { height, hash: self.blocks[at], parent: self.blocks[at - 1] }
        };
        Passed { blocks: (from..=to).map(block).collect(), entries, source: "node 2".to_owned(), proven: true }
    }
}

/// A ledger unit of BNB.
const BNB: i128 = 10_000_000_000;

db_test! {
    async fn a_payment_of_a_token_waits_for_a_look_and_one_of_the_coin_does_not(db: TestDb) {
        let mut books = Books::begin(db).await;
        let (token, coin) = (books.paid(1, 1, "u7", 5_000 * UNIT), books.native(1, 2, "u7", 7 * BNB));
        books.mine(1, vec![token, coin]).await;
        books.mine_empty(1, 2).await;
        let due = db.due_entries(&books.chain, 3).await.unwrap();
        assert_eq!(due.len(), 1, "the log of a token moves nothing");
        assert!(!books.find("u7", "USDT", 5_000 * UNIT).await);
        assert_eq!(db.due_entries(&books.chain, 3).await.unwrap().len(), 2);
        assert_eq!(books.post().await.credited, 2);
        // A later payment waits for a later look.
        let later = books.paid(1, 3, "u7", 5_000 * UNIT);
        books.mine(1, vec![later]).await;
        books.mine_empty(1, 2).await;
        assert!(db.due_entries(&books.chain, 6).await.unwrap().is_empty());
        assert_clean(db).await;
    }

    async fn a_token_that_logs_and_pays_nothing_credits_nobody(db: TestDb) {
        let mut books = Books::begin(db).await;
        let paid = books.paid(1, 1, "u7", 5_000 * UNIT);
        books.mine(1, vec![paid]).await;
        books.mine_empty(1, 2).await;
        assert!(books.find("u7", "USDT", 0).await);
        assert_eq!(books.balance("u7", "USDT").await, "0");
        books.mine_empty(1, 2).await;
        let posted = books.post().await;
        assert_eq!((posted.credited, posted.left_over), (0, 1));
        let row = books.deposits().await.remove(0);
        assert_eq!((row.state, row.reason.as_deref()), (DepositState::Unattributed, Some("balance_differs")));
        assert_eq!((books.has(7, "USDT").await.0, books.house("suspense", "USDT").await), (0, 0));
        assert_eq!(books.findings().await, ["balance_differs"]);
        assert_clean(db).await;
    }

    async fn a_token_that_keeps_a_fee_credits_nobody_more_than_came(db: TestDb) {
        let mut books = Books::begin(db).await;
        let paid = books.paid(1, 1, "u7", 5_000 * UNIT);
        books.mine(1, vec![paid]).await;
        books.mine_empty(1, 2).await;
        assert!(books.find("u7", "USDT", 4_900 * UNIT).await);
        books.mine_empty(1, 2).await;
        books.post().await;
        assert_eq!((books.has(7, "USDT").await.0, books.house("suspense", "USDT").await), (0, 4_900));
        assert_eq!(books.house("custody:bsc", "USDT").await, -4_900, "what the chain has");
        assert_clean(db).await;
    }

    async fn coin_that_no_transaction_brought_is_kept_until_one_explains_it(db: TestDb) {
        let mut books = Books::begin(db).await;
        books.mine_empty(1, 3).await;
        assert!(books.find("u7", "BNB", 7 * BNB + 5).await);
        assert!(!books.find("u7", "BNB", 7 * BNB + 5).await, "the second look finds what the first has written");
        assert_eq!(books.balance("u7", "BNB").await, (7 * BNB + 5).to_string());
        books.mine_empty(1, 2).await;
        books.post().await;
        assert_eq!((books.has(7, "BNB").await.0, books.house("suspense", "BNB").await), (0, 7));
        assert_clean(db).await;
        // The block that brought it is read again, for somebody who was not watched then.
        db.order_rescan(&books.chain, (2, 3), NOW).await.unwrap().unwrap();
        let mut late = books.native(1, 1, "u7", 7 * BNB + 5);
        (late.height, late.block) = (2, books.blocks[2]);
        assert_eq!(db.rescan_blocks(&books.worker, &books.again(2, 3, vec![late]), NOW).await.unwrap(), 1);
        assert!(books.find("u7", "BNB", 7 * BNB + 5).await);
        books.mine_empty(1, 2).await;
        books.post().await;
        assert_eq!((books.has(7, "BNB").await.0, books.house("suspense", "BNB").await), (7, 0));
        assert_eq!(books.balance("u7", "BNB").await, (7 * BNB + 5).to_string());
        assert_clean(db).await;
    }

    async fn a_payment_of_a_token_that_is_found_late_is_credited(db: TestDb) {
        let mut books = Books::begin(db).await;
        books.mine_empty(1, 3).await;
        assert!(books.find("u7", "USDT", 5_000 * UNIT).await);
        books.mine_empty(1, 2).await;
        books.post().await;
        db.order_rescan(&books.chain, (2, 3), NOW).await.unwrap().unwrap();
        let mut late = books.paid(1, 1, "u7", 5_000 * UNIT);
        (late.height, late.block) = (2, books.blocks[2]);
        assert_eq!(db.rescan_blocks(&books.worker, &books.again(2, 3, vec![late]), NOW).await.unwrap(), 1);
        assert!(db.due_entries(&books.chain, 5).await.unwrap().is_empty(), "it waits for a look");
        assert!(books.find("u7", "USDT", 5_000 * UNIT).await);
        books.mine_empty(1, 2).await;
        // What the look had found goes first, then the payment is credited.
        books.post().await;
        books.post().await;
        assert_eq!((books.has(7, "USDT").await.0, books.house("suspense", "USDT").await), (5_000, 0));
        assert_clean(db).await;
    }

    async fn a_later_look_may_think_better_of_a_payment(db: TestDb) {
        let mut books = Books::begin(db).await;
        let paid = books.paid(1, 1, "u7", 5_000 * UNIT);
        books.mine(1, vec![paid]).await;
        assert!(books.find("u7", "USDT", 0).await);
        assert_eq!(books.deposits().await[0].reason.as_deref(), Some("balance_differs"));
        books.mine_empty(1, 2).await;
        assert!(books.find("u7", "USDT", 5_000 * UNIT).await);
        assert_eq!(books.deposits().await[0].reason, None);
        assert_eq!(books.post().await.credited, 1);
        assert_eq!((books.has(7, "USDT").await.0, books.house("suspense", "USDT").await), (5_000, 0));
        assert_clean(db).await;
    }

    async fn a_change_below_the_last_one_keeps_nobody_from_being_looked_at(db: TestDb) {
        let mut books = Books::begin(db).await;
        let first = books.paid(1, 1, "u7", 5_000 * UNIT);
        books.mine(1, vec![first.clone()]).await;
        let second = books.paid(1, 2, "u7", 5_000 * UNIT);
        books.pass(1, vec![second.clone()]).await;
        // The look is at the first block, and finds something there.
        assert!(books.find("u7", "USDT", 5_001 * UNIT).await);
        books.prove(2, vec![second]).await.unwrap();
        let usdt = books.coin("USDT");
        assert_eq!(db.unchecked_holdings(books.chain.id, usdt, 9).await.unwrap().len(), 1);
        assert!(!books.find("u7", "USDT", 10_001 * UNIT).await);
        assert!(db.unchecked_holdings(books.chain.id, usdt, 9).await.unwrap().is_empty());
        books.mine_empty(1, 3).await;
        assert_eq!(books.post().await.credited, 2);
        assert_clean(db).await;
    }

    async fn what_differs_is_written_down_when_it_was_heard_again(db: TestDb) {
        let mut books = Books::begin(db).await;
        let paid = books.native(1, 1, "u7", 5 * BNB);
        books.mine(1, vec![paid]).await;
        books.mine_empty(1, 2).await;
        let holding = Holding { address: "u7".to_owned(), listing: books.coin("BNB") };
        let same = Holding { address: "u8".to_owned(), ..holding.clone() };
        let looked = [(holding.clone(), Some(raw(9 * BNB))), (same, Some(raw(0)))];
        let block = db.proven_block(&books.chain).await.unwrap().unwrap();
        let once = db.look(&books.worker, &books.chain, block, &looked, Heard::Once, NOW).await.unwrap();
        assert_eq!((once.same, once.differing, once.unsure), (1, 0, vec![holding.clone()]));
        assert!(books.findings().await.is_empty());
        let left = db.unchecked_holdings(books.chain.id, holding.listing, 10).await.unwrap();
        assert_eq!(left, [holding], "it is looked at again, whatever happens to this worker");
        assert_eq!(books.balance("u7", "BNB").await, (5 * BNB).to_string());
        assert!(books.find("u7", "BNB", 9 * BNB).await);
        assert_eq!(books.findings().await, ["balance_differs"]);
        assert_eq!(books.balance("u7", "BNB").await, (9 * BNB).to_string());
    }

    // Its issuer takes the token back, without a log, while the deposit waits for its confirmations.
    async fn what_was_found_right_once_waits_for_the_end_of_the_next_look(db: TestDb) {
        let mut books = Books::begin(db).await;
        let paid = books.paid(1, 1, "u7", 5_000 * UNIT);
        books.mine(1, vec![paid]).await;
        books.mine_empty(1, 2).await;
        assert!(!books.find("u7", "USDT", 5_000 * UNIT).await);
        assert_eq!(db.due_entries(&books.chain, 3).await.unwrap().len(), 1);
        let holding = Holding { address: "u7".to_owned(), listing: books.coin("USDT") };
        let block = db.proven_block(&books.chain).await.unwrap().unwrap();
        let looked = [(holding.clone(), Some(raw(0)))];
        let once = db.look(&books.worker, &books.chain, block, &looked, Heard::Once, NOW).await.unwrap();
        assert_eq!(once.unsure, std::slice::from_ref(&holding));
        assert!(db.due_entries(&books.chain, 3).await.unwrap().is_empty(), "nobody is credited meanwhile");
        assert_eq!(db.unchecked_holdings(books.chain.id, holding.listing, 10).await.unwrap(), [holding]);
    }

    async fn a_look_below_an_earlier_one_finds_nothing_twice(db: TestDb) {
        let mut books = Books::begin(db).await;
        books.mine_empty(1, 4).await;
        assert!(books.find("u7", "BNB", 7 * BNB).await);
        let holding = Holding { address: "u7".to_owned(), listing: books.coin("BNB") };
        let looked = [(holding, Some(raw(7 * BNB)))];
        let below = (2, books.blocks[2]);
        let batch = db.look(&books.worker, &books.chain, below, &looked, Heard::Again, NOW).await.unwrap();
        assert_eq!((batch.same, batch.differing), (0, 0));
        assert_eq!(books.balance("u7", "BNB").await, (7 * BNB).to_string());
    }

    async fn what_256_bits_cannot_say_stops_nobody(db: TestDb) {
        let mut books = Books::begin(db).await;
        let most: i128 = 5_000 * UNIT;
        let paid = books.paid(1, 1, "u8", most);
        let left = |number: u64| {
            let mut spend = books.paid(1, number, "u7", 1);
            spend.key.side = Side::Out;
            spend.cause = Cause::ForeignSpend;
            spend.amount = format!("-{}", RawAmount::MAX).parse().unwrap();
            spend
        };
        let block = vec![paid, left(2), left(3)];
        books.mine(1, block).await;
        assert!(books.find("u7", "USDT", 0).await);
        assert!(!books.find("u8", "USDT", most).await);
        books.mine_empty(1, 3).await;
        assert_eq!(books.post().await.credited, 1);
        assert_clean(db).await;
    }

    async fn a_wallet_that_is_pinned_later_makes_both_halves_a_move_within_the_house(db: TestDb) {
        let mut books = Books::begin(db).await;
        // The hot wallet got coins from an address that nobody knew for ours.
        let came = books.native(1, 1, "hot", 5 * BNB);
        books.mine(1, vec![came.clone()]).await;
        books.mine_empty(1, 3).await;
        books.post().await;
        assert_eq!(books.house("suspense", "BNB").await, 5);
        db.order_rescan(&books.chain, (1, 2), NOW).await.unwrap().unwrap();
        let paid = FoundEntry { address: "u7".to_owned(), ..books.native(1, 9, "u7", 5 * BNB) };
        let paid = FoundEntry { height: 1, block: books.blocks[1], ..paid };
        let swept_in = FoundEntry { cause: Cause::SweepIn, ..came.clone() };
        let mut swept_out = FoundEntry { cause: Cause::SweepOut, address: "u7".to_owned(), ..came };
        swept_out.key.side = Side::Out;
        swept_out.amount = sum(-5 * BNB);
        let read = books.again(1, 2, vec![paid, swept_in, swept_out]);
        db.rescan_blocks(&books.worker, &read, NOW).await.unwrap();
        books.post().await;
        books.post().await;
        assert_eq!((books.has(7, "BNB").await.0, books.house("suspense", "BNB").await), (5, 0));
        assert_eq!((books.balance("u7", "BNB").await, books.balance("hot", "BNB").await), ("0".to_owned(), (5 * BNB).to_string()));
        assert_eq!(books.house("custody:bsc", "BNB").await, -5);
        assert_clean(db).await;
    }

    async fn what_the_books_began_with_explains_what_is_found(db: TestDb) {
        let mut books = Books::begin(db).await;
        db.by_hand(&format!("UPDATE chain_residues SET opening = 4 WHERE listing_id = {}", books.coin("BNB").0)).await.unwrap();
        books.mine_empty(1, 3).await;
        books.find("hot", "BNB", 3 * BNB).await;
        books.mine_empty(1, 3).await;
        books.post().await;
        assert_eq!(books.house("suspense", "BNB").await, 0);
        books.find("hot", "BNB", 6 * BNB).await;
        books.mine_empty(1, 3).await;
        // The first look is taken back and the whole is written: one unit of the opening is left for it.
        books.post().await;
        assert_eq!(books.house("suspense", "BNB").await, 2);
    }

    async fn a_look_at_a_block_that_is_gone_or_not_proven_changes_nothing(db: TestDb) {
        let mut books = Books::begin(db).await;
        books.mine_empty(1, 3).await;
        books.pass(1, Vec::new()).await;
        let holding = Holding { address: "u7".to_owned(), listing: books.coin("BNB") };
        for block in [(4, books.blocks[4]), (3, hash(9, 3)), (77, hash(1, 77))] {
            let looked = [(holding.clone(), Some(raw(5)))];
            let refused = db.look(&books.worker, &books.chain, block, &looked, Heard::Again, NOW).await;
            assert!(matches!(refused, Err(CursorError::NotOnTrail)), "{refused:?}");
        }
        assert_eq!(books.balance("u7", "BNB").await, "0");
        // What is above the block of the look does not count at it.
        let above = books.native(1, 1, "u7", 9 * BNB);
        books.pass(1, vec![above]).await;
        assert!(!books.find("u7", "BNB", 0).await);
    }

    async fn a_block_that_leaves_takes_what_a_look_found_there_along(db: TestDb) {
        let mut books = Books::begin(db).await;
        books.mine_empty(1, 3).await;
        books.find("u7", "BNB", 7 * BNB).await;
        books.mine_empty(1, 2).await;
        books.post().await;
        assert_eq!(books.house("suspense", "BNB").await, 7);
        books.back_to(2).await;
        books.mine_empty(2, 3).await;
        books.post().await;
        assert_eq!((books.balance("u7", "BNB").await, books.house("suspense", "BNB").await), ("0".to_owned(), 0));
        assert_clean(db).await;
    }

    async fn blocks_that_are_read_again_add_and_take_nothing(db: TestDb) {
        let mut books = Books::begin(db).await;
        let (seven, eight) = (books.native(1, 1, "u7", 5 * BNB), books.native(1, 2, "u8", 5 * BNB));
        books.mine(1, vec![seven.clone()]).await;
        books.mine_empty(1, 3).await;
        books.post().await;
        for (from, to) in [(0, 3), (3, 2), (2, 5)] {
            let refused = db.order_rescan(&books.chain, (from, to), NOW).await.unwrap();
            assert_eq!(refused, Err(OrderRefusal::OutOfRange { first: 0, proven: 4 }), "{from} to {to}");
        }
        db.order_rescan(&books.chain, (1, 3), NOW).await.unwrap().unwrap();
        // The nodes show the one and not the other.
        let read = books.again(1, 2, vec![eight.clone()]);
        let other = books.again(2, 3, Vec::new());
        let refused = db.rescan_blocks(&books.worker, &other, NOW).await;
        assert!(matches!(refused, Err(CursorError::NotOnTrail)), "not where it was: {refused:?}");
        assert_eq!(db.rescan_blocks(&books.worker, &read, NOW).await.unwrap(), 1);
        assert_eq!(db.chain_standing(&books.chain).await.unwrap().unwrap().rescan, Some((3, 3)));
        assert_eq!(books.post().await.credited, 1);
        assert_eq!((books.has(7, "BNB").await.0, books.has(8, "BNB").await.0), (5, 5));
        let mut findings = books.findings().await;
        findings.sort();
        assert_eq!(findings, ["found_late", "not_found_again"]);
        assert_eq!(db.rescan_blocks(&books.worker, &books.again(3, 3, Vec::new()), NOW).await.unwrap(), 0);
        assert_eq!(db.chain_standing(&books.chain).await.unwrap().unwrap().rescan, None);
        assert!(!db.stop_rescan(&books.chain, NOW).await.unwrap());
        assert_clean(db).await;
    }

    async fn two_people_take_a_chain_back_below_its_trail(db: TestDb) {
        let mut books = Books::begin(db).await;
        let (paid, spent) = (books.native(1, 1, "u7", 5 * BNB), books.native(1, 2, "u8", 5 * BNB));
        books.mine(1, vec![paid]).await;
        books.mine(1, vec![FoundEntry { height: 2, block: hash(1, 2), ..spent }]).await;
        books.mine_empty(1, 3).await;
        books.post().await;
        db.halt_chain(books.chain.id, Some("a fork below the trail"), NOW).await.unwrap();
        let people = Approval::new("ann", "bob", "case 4711").unwrap();
        for height in [6, 99] {
            let refused = db.rewind_chain(&books.chain, (height, hash(2, height)), &people, NOW).await.unwrap();
            assert_eq!(refused, Err(OrderRefusal::OutOfRange { first: 0, proven: 5 }));
        }
        // What was read of a block that is not the quorum's would stay.
        let refused = db.rewind_chain(&books.chain, (1, hash(2, 1)), &people, NOW).await.unwrap();
        assert_eq!(refused, Err(OrderRefusal::PartsBelow { height: 1 }));
        assert_eq!(db.entry_blocks(books.chain.id, 5, 9).await.unwrap(), [(2, hash(1, 2)), (1, hash(1, 1))]);
        // The trail does not go so far back.
        db.by_hand("DELETE FROM chain_blocks WHERE height < 4").await.unwrap();
        assert_eq!(db.rewind_chain(&books.chain, (1, hash(1, 1)), &people, NOW).await.unwrap(), Ok(1));
        let late = db.pass_blocks(&books.worker, &books.again(5, 5, Vec::new()), NOW).await;
        assert!(matches!(late, Err(CursorError::Fenced)), "{late:?}");
        books.worker = db.take_chain(books.chain.id, "two", NOW, later(60)).await.unwrap();
        books.blocks = vec![hash(0, 0), hash(1, 1)];
        books.mine_empty(2, 3).await;
        books.post().await;
        assert_eq!((books.has(7, "BNB").await.0, books.has(8, "BNB").await.0), (5, 0));
        let resumed = db.resume_chain(&books.chain, ("ann", "mended"), NOW).await.unwrap();
        assert_eq!(resumed, Err(OrderRefusal::NotHalted), "to go back is to go on");
        assert_clean(db).await;
    }

    async fn a_lease_that_a_wrong_clock_gave_keeps_nobody_out(db: TestDb) {
        let books = Books::begin(db).await;
        db.take_chain(books.chain.id, "one", later(86_400), later(86_460)).await.unwrap();
        let taken = db.take_chain(books.chain.id, "two", NOW, later(60)).await;
        assert!(taken.is_ok(), "{taken:?}");
        let third = db.take_chain(books.chain.id, "three", NOW, later(60)).await;
        assert!(matches!(third, Err(CursorError::Taken { .. })), "{third:?}");
        let late = db.renew_chain(&books.worker, later(600), NOW).await;
        assert!(matches!(late, Err(CursorError::Fenced)), "{late:?}");
    }

    async fn findings_are_seen_to_together_or_not_at_all(db: TestDb) {
        let mut books = Books::begin(db).await;
        books.mine_empty(1, 3).await;
        books.find("u7", "BNB", 5).await;
        books.find("u8", "BNB", 5).await;
        let open = db.open_findings_of("bsc", 0, 10).await.unwrap();
        assert_eq!((open.len(), db.open_findings_of("tron", 0, 10).await.unwrap().len()), (2, 0));
        let ids: Vec<i64> = open.iter().map(|one| one.id).collect();
        assert_eq!(db.resolve_findings(&[ids[0], 999], "ann", NOW).await.unwrap(), Err(999));
        assert_eq!(db.open_findings(0, 10).await.unwrap().len(), 2);
        assert_eq!(db.resolve_findings(&ids, "ann", NOW).await.unwrap(), Ok(()));
        assert_eq!(db.resolve_findings(&ids[..1], "ann", NOW).await.unwrap(), Err(ids[0]));
    }

    async fn what_a_look_writes_is_no_deposit(db: TestDb) {
        let mut books = Books::begin(db).await;
        books.mine_empty(1, 3).await;
        books.find("u7", "BNB", 5 * BNB).await;
        assert!(books.deposits().await.is_empty());
        let lost = books.native(1, 1, "u8", 5 * BNB);
        books.mine(1, vec![lost]).await;
        // Coin that is gone without a transaction is written down, and what was paid is not doubted for it.
        books.find("u8", "BNB", BNB).await;
        books.mine_empty(1, 3).await;
        assert_eq!(books.post().await.credited, 1);
        assert_eq!((books.has(8, "BNB").await.0, books.house("suspense", "BNB").await), (5, 5 - 4));
        assert_eq!(sum(BNB).to_string(), books.balance("u8", "BNB").await);
        assert_clean(db).await;
    }
}
