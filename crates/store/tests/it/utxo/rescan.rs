//! What followers share. What a rescan finds is nobody's to spend until every block was read; a database that is behind its mark is closed.

use super::candidates::everything;
use super::stage::*;
use store::db_test;
use store::testing::{NOW, TestDb};
use store::utxo::*;

const LOCK: LockId = LockId([7; 32]);
const NONE: [i64; 0] = [];

/// The outputs that a selection from account 0 is offered.
async fn offered(db: &TestDb, wallet: WalletId) -> Vec<i64> {
    let mut amounts: Vec<i64> =
        db.candidates(wallet, 0, &everything(), NOW).await.unwrap().iter().map(|one| one.amount).collect();
    amounts.sort_unstable();
    amounts
}

async fn tip(db: &TestDb) -> (u32, Hash) {
    db.tip().await.unwrap().unwrap()
}

/// Two wallets. When the blocks came the second had no address yet: the first block pays it, and the third spends that; the second
/// block pays both wallets.
async fn late(db: &TestDb) -> (WalletId, WalletId, Vec<(Block, Vec<NewTx>)>) {
    let early = open_wallets(db, 1).await[0];
    let paid = tx("paid", &[elsewhere("a")], &[(script(1, 0, 0), 10_000)]);
    let both = tx("both", &[elsewhere("b")], &[(script(1, 0, 0), 20_000), (script(0, 0, 0), 30_000)]);
    let spends = tx("spends", &[output(&paid, 0)], &[(foreign_script(), 9_000)]);
    let mut blocks = Vec::new();
    let mut parent = Hash([0; 32]);
    for (height, one) in (BASE..).zip([paid, both, spends]) {
        let block = block(height, &format!("block {height}"), parent);
        parent = block.hash;
        db.connect_block(&block, std::slice::from_ref(&one), NOW).await.unwrap();
        blocks.push((block, vec![one]));
    }
    let late = db.create_wallet("late", Network::Regtest, NOW).await.unwrap();
    db.add_addresses(late, &addresses(1), Paths::Exact, NOW).await.unwrap();
    (early, late, blocks)
}

async fn read(db: &TestDb, block: &(Block, Vec<NewTx>)) {
    db.read_block_again(&block.0, &block.1, NOW).await.unwrap();
}

db_test! {
    async fn what_a_rescan_finds_is_held_until_every_block_was_read(db: TestDb) {
        let (early, late, blocks) = late(db).await;
        db.begin_rescan(BASE).await.unwrap();
        read(db, &blocks[0]).await;
        let found = output(&blocks[0].1[0], 0);
        // It is there, and looks unspent: the block that spends it was not read yet.
        assert_eq!(db.balance(late, NOW).await.unwrap()[&0].confirmed, 10_000);
        assert_eq!(offered(db, late).await, NONE);
        let stat = db.lease_stat(NOW).await.unwrap();
        assert_eq!((stat.active, stat.found), (0, 1), "nobody is about to spend it");
        let until = NOW.plus_micros(1_000_000);
        assert_eq!(db.lease(late, &[found], LOCK, until, NOW).await.unwrap_err().code(), "UTXO_LEASED");
        let spend = tx("spend", &[found], &[(foreign_script(), 9_500)]);
        for lock in [None, Some(LOCK), Some(RESCAN_LOCK)] {
            assert_eq!(db.add_pending(late, &spend, lock, NOW).await.unwrap_err().code(), "UTXO_LEASED");
        }
        // Nor can anybody let go of it.
        for refused in [db.release(late, RESCAN_LOCK).await, db.renew(late, RESCAN_LOCK, until, NOW).await] {
            assert_eq!(refused.unwrap_err().code(), "UTXO_RESCANNING");
        }
        assert_eq!(db.lease(late, &[found], RESCAN_LOCK, until, NOW).await.unwrap_err().code(), "UTXO_RESCANNING");
        db.sweep_leases(NOW.plus_micros(i64::MAX / 4)).await.unwrap();
        assert_eq!(offered(db, late).await, NONE);
        assert!(!db.end_rescan(tip(db).await).await.unwrap());

        read(db, &blocks[1]).await;
        // What was known all the time is still there to be spent, also of the block that was just read again.
        assert_eq!((offered(db, late).await, offered(db, early).await), (vec![], vec![30_000]));
        read(db, &blocks[2]).await;
        assert_eq!(offered(db, late).await, NONE);
        assert!(db.end_rescan(tip(db).await).await.unwrap());
        assert_eq!(offered(db, late).await, [20_000], "the other one is spent");
        assert_eq!(db.leases(late, None, 10).await.unwrap(), []);
        assert_eq!(db.followed().await.unwrap().rescan_next, None);
        assert_eq!(db.check_utxo().await.unwrap(), []);
    }

    async fn a_rescan_goes_on_where_it_was_and_takes_a_lower_one_along(db: TestDb) {
        let (_, _, blocks) = late(db).await;
        let next = async || db.followed().await.unwrap().rescan_next;
        assert_eq!(next().await, None);
        db.begin_rescan(BASE + 1).await.unwrap();
        read(db, &blocks[1]).await;
        assert_eq!(next().await, Some(BASE + 2));
        // A block out of turn moves nothing on.
        read(db, &blocks[1]).await;
        assert_eq!(next().await, Some(BASE + 2));
        db.begin_rescan(BASE).await.unwrap();
        assert_eq!(next().await, Some(BASE));
        db.begin_rescan(BASE + 2).await.unwrap();
        assert_eq!(next().await, Some(BASE), "a higher one is part of it");
    }

    /// Another follower connects a block while this one reads. The block may have spent what was not found yet.
    async fn a_rescan_ends_only_at_the_last_block(db: TestDb) {
        let (_, late, blocks) = late(db).await;
        db.begin_rescan(BASE).await.unwrap();
        let before = tip(db).await;
        let spends = tx("spends too", &[output(&blocks[1].1[0], 0)], &[(foreign_script(), 19_000)]);
        let newest = block(BASE + 3, "meanwhile", before.1);
        db.connect_block(&newest, std::slice::from_ref(&spends), NOW).await.unwrap();
        for block in &blocks {
            read(db, block).await;
        }
        assert!(!db.end_rescan(before).await.unwrap(), "that is not the last one any more");
        assert!(!db.end_rescan(tip(db).await).await.unwrap(), "the last one was not read");
        assert_eq!(offered(db, late).await, NONE);
        read(db, &(newest, vec![spends])).await;
        assert!(db.end_rescan(tip(db).await).await.unwrap());
        assert_eq!(offered(db, late).await, NONE);
        assert_eq!(db.balance(late, NOW).await.unwrap()[&0].confirmed, 0);
        assert_eq!(db.check_utxo().await.unwrap(), []);
    }

    /// What waits in the mempool and spends it may fail, and the output is unspent again.
    async fn what_a_rescan_found_is_held_although_a_spender_came_and_went(db: TestDb) {
        let (_, late, blocks) = late(db).await;
        db.begin_rescan(BASE).await.unwrap();
        read(db, &blocks[0]).await;
        let waits = tx("waits", &[output(&blocks[0].1[0], 0), elsewhere("x")], &[(foreign_script(), 9_000)]);
        db.see_transactions(std::slice::from_ref(&waits), NOW).await.unwrap();
        let rival = tx("rival", &[elsewhere("x")], &[(foreign_script(), 100)]);
        db.connect_block(&block(BASE + 3, "rival", tip(db).await.1), &[rival], NOW).await.unwrap();
        let status = db.transaction(late, waits.hash, NOW).await.unwrap().unwrap().status;
        assert_eq!(status, Status::Failed);
        assert_eq!(db.balance(late, NOW).await.unwrap()[&0].confirmed, 10_000, "unspent, as far as is known");
        assert_eq!(offered(db, late).await, NONE);
    }

    async fn a_hold_without_a_rescan_is_found(db: TestDb) {
        let (_, _, blocks) = late(db).await;
        db.begin_rescan(BASE).await.unwrap();
        read(db, &blocks[0]).await;
        assert_eq!(db.check_utxo().await.unwrap(), []);
        db.by_hand("UPDATE utxo_followed SET rescan_next = NULL").await.unwrap();
        let found = db.check_utxo().await.unwrap();
        assert_eq!(found.iter().map(|one| one.check).collect::<Vec<_>>(), ["rescan"]);
    }

    /// Another follower has ended the rescan while this one fetched a block: it must not find what nobody would hold.
    async fn a_block_that_comes_after_the_rescan_finds_nothing(db: TestDb) {
        let (_, late, blocks) = late(db).await;
        read(db, &blocks[0]).await;
        assert_eq!(db.balance(late, NOW).await.unwrap()[&0].confirmed, 0);
        assert_eq!(offered(db, late).await, NONE);
        assert_eq!(db.followed().await.unwrap().rescan_next, None);
    }

    async fn every_address_is_counted_once(db: TestDb) {
        let counted = async || db.followed().await.unwrap().addresses;
        let wallet = open_wallets(db, 1).await[0];
        let before = counted().await;
        assert_eq!(before, i64::try_from(addresses(0).len()).unwrap());
        db.add_addresses(wallet, &addresses(0), Paths::Exact, NOW).await.unwrap();
        assert_eq!(counted().await, before);
    }

    async fn a_database_that_is_behind_its_mark_spends_nothing_and_gives_nothing_up(db: TestDb) {
        let wallet = open_wallets(db, 1).await[0];
        let coins = tx("coins", &[elsewhere("c")], &[(script(0, 0, 0), 10_000), (script(0, 0, 1), 20_000)]);
        db.connect_block(&block(BASE, "coins", Hash([0; 32])), std::slice::from_ref(&coins), NOW).await.unwrap();
        let pending = tx("pending", &[output(&coins, 0)], &[(foreign_script(), 9_000)]);
        db.add_pending(wallet, &pending, None, NOW).await.unwrap();
        for expected in 1..=3 {
            assert_eq!(db.raise_mark(expected - 1).await.unwrap(), Some(expected));
        }
        assert!(!db.notice_backup(3, NOW).await.unwrap(), "it is as far as was written down");
        assert_eq!(offered(db, wallet).await, [20_000]);
        // As a backup from before the last two has it.
        db.by_hand("UPDATE utxo_followed SET mark = 1").await.unwrap();
        assert_eq!(db.raise_mark(3).await.unwrap(), None);
        assert!(db.notice_backup(3, NOW).await.unwrap());
        assert_eq!(db.marked().await.unwrap().mark, 3);
        assert_eq!(db.wallets().await.unwrap()[0].status, WalletStatus::Restoring);
        let refused = db.candidates(wallet, 0, &everything(), NOW).await.unwrap_err();
        assert_eq!(refused.code(), "UTXO_RESTORING");
        let status = db.transaction(wallet, pending.hash, NOW).await.unwrap().unwrap().status;
        assert_eq!(status, Status::Published, "it may have been broadcast since");
        assert!(!db.notice_backup(3, NOW).await.unwrap(), "once");
        assert_eq!(db.raise_mark(3).await.unwrap(), Some(4));
        assert_eq!(db.check_utxo().await.unwrap(), []);
    }
}
