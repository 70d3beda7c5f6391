//! What a reader who meant harm found: each of these once cost money.
use super::candidates::everything;
use super::stage::*;
use store::db_test;
use store::testing::NOW;
use store::utxo::*;

async fn status(db: &store::Db, w: WalletId, tx: &NewTx) -> Option<Status> {
    db.transaction(w, tx.hash, NOW).await.unwrap().map(|d| d.status)
}
async fn mine(db: &store::Db, txs: &[NewTx]) {
    let (height, parent) = db.tip().await.unwrap().map_or((BASE, Hash([0; 32])), |(h, p)| (h + 1, p));
    db.connect_block(&block(height, &format!("m{height}"), parent), txs, NOW).await.unwrap();
}
async fn free(db: &store::Db, w: WalletId) -> Vec<OutPoint> {
    let f = ListFilter { account: None, unspent_only: true, after: None, most: 1000 };
    db.list_outputs(w, &f, NOW).await.unwrap().iter().map(|r| r.outpoint).collect()
}
fn ours(w: usize, a: i64) -> (Vec<u8>, i64) {
    (script(w, 0, 0), a)
}
fn theirs(a: i64) -> (Vec<u8>, i64) {
    (foreign_script(), a)
}

db_test! {
    async fn a_dead_parent_is_pruned_after_its_children(db: TestDb) {
        let w = open_wallets(db, 1).await[0];
        let coins = tx("coins", &[elsewhere("c")], &[ours(0, 10_000), ours(0, 20_000)]);
        mine(db, std::slice::from_ref(&coins)).await;
        let a = tx("a", &[elsewhere("x")], &[ours(0, 5_000)]);
        db.see_transactions(std::slice::from_ref(&a), NOW).await.unwrap();
        let k = tx("k", &[output(&a, 0), output(&coins, 1)], &[theirs(1_000), ours(0, 20_000)]);
        db.add_pending(w, &k, None, NOW).await.unwrap();
        db.publish(k.hash, NOW).await.unwrap();
        let win = tx("win", &[elsewhere("x")], &[theirs(4_000)]);
        mine(db, std::slice::from_ref(&win)).await;
        assert_eq!(status(db, w, &k).await, Some(Status::Failed));
        let t = tx("t", &[output(&coins, 1)], &[theirs(1_000)]);
        db.add_pending(w, &t, None, NOW).await.unwrap();
        for _ in 0..101 { mine(db, &[]).await; }
        assert_eq!(db.prune(w, a.hash, "x", "x", NOW).await.unwrap_err().code(), "UTXO_NOT_FINAL");
        db.abandon(t.hash, "x", "x", NOW).await.unwrap();
        assert_eq!(status(db, w, &k).await, Some(Status::Failed), "it can never be mined");
        assert!(free(db, w).await.contains(&output(&coins, 1)), "nothing keeps the coin");
        db.prune(w, k.hash, "x", "x", NOW).await.unwrap();
        db.prune(w, a.hash, "x", "x", NOW).await.unwrap();
        assert_eq!(db.check_utxo().await.unwrap(), []);
    }

    async fn what_one_wallet_has_pruned_another_still_learns(db: TestDb) {
        let w = open_wallets(db, 1).await[0];
        let p = tx("p", &[elsewhere("c")], &[ours(1, 50_000)]);
        let s = tx("s", &[output(&p, 0)], &[ours(0, 40_000)]);
        let s2 = tx("s2", &[output(&s, 0)], &[theirs(39_000)]);
        mine(db, &[p.clone(), s.clone(), s2.clone()]).await;
        let (height, hash) = db.tip().await.unwrap().unwrap();
        for _ in 0..101 { mine(db, &[]).await; }
        db.prune(w, s.hash, "x", "x", NOW).await.unwrap();
        let w2 = db.create_wallet("late", Network::Regtest, NOW).await.unwrap();
        db.add_addresses(w2, &addresses(1), Paths::Exact, NOW).await.unwrap();
        let at = Some((height, hash, 1_700_000_000 + height));
        db.import_transactions(&[Imported { tx: p.clone(), block: at, lost: false }, Imported { tx: s.clone(), block: at, lost: false }], NOW).await.unwrap();
        assert_eq!(db.candidates(w2, 0, &everything(), NOW).await.unwrap(), [], "the chain has spent it");
        assert_eq!(status(db, w, &s).await, None, "the wallet that pruned it does not get it back");
        assert_eq!(db.check_utxo().await.unwrap(), []);
    }

    async fn what_failed_and_was_broadcast_cannot_be_abandoned(db: TestDb) {
        let w = open_wallets(db, 1).await[0];
        let coins = tx("coins", &[elsewhere("c")], &[ours(0, 10_000)]);
        mine(db, std::slice::from_ref(&coins)).await;
        let a = tx("a", &[output(&coins, 0)], &[ours(0, 9_000)]);
        db.add_pending(w, &a, None, NOW).await.unwrap();
        db.publish(a.hash, NOW).await.unwrap();
        let t = tx("t", &[output(&a, 0)], &[theirs(8_000)]);
        db.add_pending(w, &t, None, NOW).await.unwrap();
        db.publish(t.hash, NOW).await.unwrap();
        let b = tx("b", &[output(&coins, 0)], &[ours(0, 8_500)]);
        db.replace(w, &b, None, NOW).await.unwrap();
        assert_eq!(status(db, w, &t).await, Some(Status::Failed));
        let refused = db.abandon(t.hash, "ann", "give up", NOW).await.unwrap_err();
        assert_eq!(refused.code(), "UTXO_NOT_PENDING");
        db.abandon(b.hash, "ann", "give up", NOW).await.unwrap();
        assert_eq!(status(db, w, &t).await, Some(Status::Published));
    }

    async fn a_published_child_publishes_its_parents(db: TestDb) {
        let w = open_wallets(db, 1).await[0];
        let coins = tx("coins", &[elsewhere("c")], &[ours(0, 10_000), ours(0, 20_000)]);
        mine(db, std::slice::from_ref(&coins)).await;
        let t = tx("t", &[output(&coins, 0)], &[ours(0, 9_000)]);
        db.add_pending(w, &t, None, NOW).await.unwrap();
        let k = tx("k", &[output(&t, 0), output(&coins, 1)], &[theirs(8_000)]);
        db.add_pending(w, &k, None, NOW).await.unwrap();
        db.publish(k.hash, NOW).await.unwrap();
        assert_eq!(status(db, w, &t).await, Some(Status::Published));
        let refused = db.abandon(t.hash, "ann", "give up", NOW).await.unwrap_err();
        assert_eq!(refused.code(), "UTXO_NOT_PENDING");
        assert_eq!(free(db, w).await, []);
    }

    async fn what_the_mempool_showed_of_an_invalid_one_is_remembered(db: TestDb) {
        let w = open_wallets(db, 1).await[0];
        let coins = tx("coins", &[elsewhere("c")], &[ours(0, 10_000)]);
        mine(db, std::slice::from_ref(&coins)).await;
        let t1 = tx("t1", &[output(&coins, 0)], &[theirs(9_000)]);
        let t2 = tx("t2", &[output(&coins, 0)], &[theirs(8_000)]);
        db.add_pending(w, &t1, None, NOW).await.unwrap();
        db.replace(w, &t2, None, NOW).await.unwrap();
        db.see_transactions(std::slice::from_ref(&t1), NOW).await.unwrap();
        db.abandon(t2.hash, "ann", "x", NOW).await.unwrap();
        assert_eq!(status(db, w, &t1).await, Some(Status::Published));
        assert_eq!(free(db, w).await, []);
    }

    async fn a_block_read_again_finds_what_is_ours_since_and_no_import_passes_the_tip(db: TestDb) {
        let w = open_wallets(db, 1).await[0];
        mine(db, &[]).await;
        let late = tx("late", &[elsewhere("l")], &[ours(1, 7_000)]);
        let (height, parent) = db.tip().await.unwrap().unwrap();
        let second = block(height + 1, "second", parent);
        db.connect_block(&second, std::slice::from_ref(&late), NOW).await.unwrap();
        let w2 = db.create_wallet("late", Network::Regtest, NOW).await.unwrap();
        db.add_addresses(w2, &addresses(1), Paths::Exact, NOW).await.unwrap();
        db.connect_block(&second, std::slice::from_ref(&late), NOW).await.unwrap();
        assert_eq!(free(db, w2).await, [output(&late, 0)]);
        let far = tx("far", &[elsewhere("f")], &[ours(0, 7_000)]);
        let given = [Imported { tx: far, block: Some((height + 500, hash("far block"), 1)), lost: false }];
        let refused = db.import_transactions(&given, NOW).await.unwrap_err();
        assert_eq!(refused.code(), "UTXO_NOT_ON_TIP");
        assert_eq!((db.tip().await.unwrap().unwrap().0, free(db, w).await), (height + 1, vec![]));
        assert_eq!(db.check_utxo().await.unwrap(), []);
    }

    async fn what_a_node_showed_too_late_ends_when_the_block_is_read_again(db: TestDb) {
        let w = open_wallets(db, 1).await[0];
        // A block has a transaction that is nobody's of ours, so it is not stored.
        let mined = tx("mined", &[elsewhere("x")], &[theirs(9_000)]);
        mine(db, std::slice::from_ref(&mined)).await;
        let (height, hash) = db.tip().await.unwrap().unwrap();
        // Nodes that have not seen the block yet show what it has made impossible.
        let late = tx("late", &[elsewhere("x")], &[ours(0, 8_000)]);
        db.see_transactions(std::slice::from_ref(&late), NOW).await.unwrap();
        assert_eq!(status(db, w, &late).await, Some(Status::Published));
        let at = Some((height, hash, 1_700_000_000 + height));
        db.import_transactions(&[Imported { tx: mined.clone(), block: at, lost: false }], NOW).await.unwrap();
        assert_eq!(status(db, w, &late).await, Some(Status::Failed));
        assert_eq!(db.balance(w, NOW).await.unwrap()[&0].unconfirmed, 0);
        assert_eq!(db.check_utxo().await.unwrap(), []);
    }

    async fn dust_does_not_hide_the_coin_that_pays(db: TestDb) {
        let w = open_wallets(db, 1).await[0];
        let dust: Vec<_> = (0..400).map(|_| ours(0, 546)).collect();
        let big = tx("big", &[elsewhere("b")], &[ours(0, 10_000_000_000)]);
        mine(db, &[big, tx("dust", &[elsewhere("d")], &dust)]).await;
        let want = Want { target: 300, allow: Allow::default(), seed: 1 };
        // As at a fee rate at which dust costs more than it holds.
        let choose = |found: &[Candidate]| found.iter().find(|one| one.amount > 1_000).map(|one| vec![one.id]);
        let lock = LockId([7; 32]);
        let until = NOW.plus_micros(1_000_000);
        let coins = db.select_and_lease(w, 0, &want, lock, until, NOW, choose).await.unwrap();
        assert_eq!(coins.map(|coins| coins[0].amount), Some(10_000_000_000));
    }

    async fn nothing_is_leased_or_paid_while_restoring(db: TestDb) {
        let w = open_wallets(db, 1).await[0];
        let coins = tx("coins", &[elsewhere("c")], &[ours(0, 10_000)]);
        mine(db, std::slice::from_ref(&coins)).await;
        db.begin_restore(w, NOW).await.unwrap();
        let lock = LockId([7; 32]);
        let refused = db.lease(w, &[output(&coins, 0)], lock, NOW.plus_micros(1_000_000), NOW).await.unwrap_err();
        assert_eq!(refused.code(), "UTXO_RESTORING");
        let payout = tx("t", &[output(&coins, 0)], &[theirs(9_000)]);
        assert_eq!(db.add_pending(w, &payout, Some(lock), NOW).await.unwrap_err().code(), "UTXO_RESTORING");
        db.finish_restore(w, None).await.unwrap();
        db.add_pending(w, &payout, None, NOW).await.unwrap();
    }

    /// It may have been broadcast after the backup was taken: to give it up could pay twice.
    async fn what_is_pending_in_a_backup_is_not_given_up(db: TestDb) {
        let w = open_wallets(db, 1).await[0];
        let coins = tx("coins", &[elsewhere("c")], &[ours(0, 10_000)]);
        mine(db, std::slice::from_ref(&coins)).await;
        let parent = tx("parent", &[output(&coins, 0)], &[ours(0, 9_000)]);
        let child = tx("child", &[output(&parent, 0)], &[theirs(8_000)]);
        db.add_pending(w, &parent, None, NOW).await.unwrap();
        db.add_pending(w, &child, None, NOW).await.unwrap();
        db.begin_restore(w, NOW).await.unwrap();
        assert_eq!(db.abandon(child.hash, "x", "x", NOW).await.unwrap_err().code(), "UTXO_RESTORING");
        for one in [&parent, &child] {
            assert_eq!(status(db, w, one).await, Some(Status::Published));
        }
        db.begin_restore(w, NOW).await.unwrap();
        db.finish_restore(w, None).await.unwrap();
        assert_eq!(db.abandon(child.hash, "x", "x", NOW).await.unwrap_err().code(), "UTXO_NOT_PENDING");
        assert_eq!(free(db, w).await, []);
        assert_eq!(db.check_utxo().await.unwrap(), []);
    }

    /// bdk_wallet gives a transaction the block of whatever spends it. The chain knows better.
    async fn a_block_that_is_read_beats_what_an_import_says(db: TestDb) {
        let w = open_wallets(db, 1).await[0];
        let parent = tx("parent", &[elsewhere("c")], &[ours(0, 10_000), ours(0, 20_000)]);
        let child = tx("child", &[output(&parent, 0)], &[theirs(9_000)]);
        let at = |height: u32| Some((height, Hash([u8::try_from(height).unwrap(); 32]), height));
        let both = [Imported { tx: parent.clone(), block: at(12), lost: false }, Imported { tx: child.clone(), block: at(12), lost: false }];
        db.import_transactions(&both, NOW).await.unwrap();
        let word = db.import_transactions(&[Imported { tx: parent.clone(), block: at(11), lost: false }], NOW).await.unwrap();
        assert_eq!(word.transactions, [], "one word against another");
        let eleven = Block { height: 11, hash: Hash([11; 32]), parent: Hash([10; 32]), time: 11 };
        db.begin_rescan(11).await.unwrap();
        db.read_block_again(&eleven, std::slice::from_ref(&parent), NOW).await.unwrap();
        let height = async |one: &NewTx| db.transaction(w, one.hash, NOW).await.unwrap().unwrap().height;
        assert_eq!((height(&parent).await, height(&child).await), (Some(11), Some(12)));
        assert_eq!(db.balance(w, NOW).await.unwrap()[&0].confirmed, 20_000);
        assert_eq!(db.check_utxo().await.unwrap(), []);
        // What a connected block has no other one has.
        let parent_of = Hash([12; 32]);
        let mined = tx("mined", &[elsewhere("d")], &[ours(0, 5_000)]);
        db.connect_block(&block(13, "thirteen", parent_of), std::slice::from_ref(&mined), NOW).await.unwrap();
        db.import_transactions(&[Imported { tx: mined.clone(), block: at(12), lost: false }], NOW).await.unwrap();
        assert_eq!(height(&mined).await, Some(13));
        // An import that placed it in a block which was connected is as wrong.
        let late = tx("late", &[elsewhere("e")], &[ours(0, 4_000)]);
        let thirteen = db.tip().await.unwrap().unwrap();
        let place = Some((thirteen.0, thirteen.1, 13));
        db.import_transactions(&[Imported { tx: late.clone(), block: place, lost: false }], NOW).await.unwrap();
        db.read_block_again(&eleven, std::slice::from_ref(&late), NOW).await.unwrap();
        assert_eq!(height(&late).await, Some(11));
        assert_eq!(db.check_utxo().await.unwrap(), []);
    }

    async fn an_import_does_not_give_the_loser_what_the_winner_has(db: TestDb) {
        let w = open_wallets(db, 1).await[0];
        let coins = tx("coins", &[elsewhere("c")], &[ours(0, 10_000), ours(0, 20_000)]);
        mine(db, std::slice::from_ref(&coins)).await;
        let loser = tx("loser", &[output(&coins, 0)], &[theirs(9_000)]);
        let winner = tx("winner", &[output(&coins, 0), output(&coins, 1)], &[theirs(28_000)]);
        db.see_transactions(std::slice::from_ref(&winner), NOW).await.unwrap();
        let history = [(&loser, true), (&winner, false)];
        let history = history.map(|(tx, lost)| Imported { tx: tx.clone(), block: None, lost });
        db.import_transactions(&history, NOW).await.unwrap();
        assert_eq!(status(db, w, &winner).await, Some(Status::Published));
        assert_eq!(free(db, w).await, [], "the winner's");
        // Nor does a child of the loser become money.
        let child = tx("child", &[output(&loser, 0)], &[ours(0, 8_000)]);
        db.import_transactions(&[Imported { tx: child.clone(), block: None, lost: true }], NOW).await.unwrap();
        assert_eq!(status(db, w, &loser).await, Some(Status::Replaced));
        assert_eq!(status(db, w, &child).await, Some(Status::Failed));
        assert_eq!(free(db, w).await, [], "the winner's");
        assert_eq!(db.check_utxo().await.unwrap(), []);
        // To a store that knows neither they come in their order.
        let other = tx("other", &[elsewhere("d")], &[ours(0, 7_000)]);
        let replaced = tx("replaced", &[elsewhere("d")], &[ours(0, 8_000)]);
        let history = [(&replaced, true), (&other, false)];
        let history = history.map(|(tx, lost)| Imported { tx: tx.clone(), block: None, lost });
        db.import_transactions(&history, NOW).await.unwrap();
        assert_eq!(status(db, w, &replaced).await, Some(Status::Replaced));
        assert_eq!(status(db, w, &other).await, Some(Status::Published));
    }

    async fn the_check_knows_every_cause(db: TestDb) {
        let w = open_wallets(db, 1).await[0];
        let coins = tx("coins", &[elsewhere("c")], &[ours(0, 10_000), ours(0, 20_000)]);
        mine(db, std::slice::from_ref(&coins)).await;
        let paid = tx("paid", &[output(&coins, 0)], &[ours(0, 9_000)]);
        db.add_pending(w, &paid, None, NOW).await.unwrap();
        db.publish(paid.hash, NOW).await.unwrap();
        // Nobody ever had the one child; the other one also spends what somebody else takes while it is not valid.
        let never = tx("never", &[output(&paid, 0)], &[theirs(8_000)]);
        db.add_pending(w, &never, None, NOW).await.unwrap();
        let instead = tx("instead", &[output(&coins, 0)], &[theirs(8_500)]);
        db.replace(w, &instead, None, NOW).await.unwrap();
        db.publish(instead.hash, NOW).await.unwrap();
        let both = tx("both", &[output(&paid, 0), output(&coins, 1)], &[theirs(28_000)]);
        db.see_transactions(std::slice::from_ref(&both), NOW).await.unwrap();
        let other = tx("other", &[output(&coins, 1)], &[theirs(19_000)]);
        db.see_transactions(std::slice::from_ref(&other), NOW).await.unwrap();
        mine(db, std::slice::from_ref(&paid)).await;
        assert_eq!(status(db, w, &never).await, Some(Status::Failed));
        assert_eq!(status(db, w, &both).await, Some(Status::Failed));
        assert_eq!(db.check_utxo().await.unwrap(), []);
    }

    async fn imported_blocks_that_the_chain_does_not_have_are_undone(db: TestDb) {
        let w = open_wallets(db, 1).await[0];
        let coin = tx("coin", &[elsewhere("c")], &[ours(0, 10_000)]);
        let reward = NewTx { coinbase: true, inputs: vec![], ..tx("reward", &[elsewhere("r")], &[ours(0, 7_000)]) };
        let later = tx("later", &[elsewhere("l")], &[ours(0, 500)]);
        let at = |height: u32| Some((height, Hash([u8::try_from(height).unwrap(); 32]), height));
        let given = [(&coin, 11), (&reward, 11), (&later, 12)];
        let given = given.map(|(tx, height)| Imported { tx: tx.clone(), block: at(height), lost: false });
        db.import_transactions(&given, NOW).await.unwrap();
        let stale = (11, Hash([11; 32]));
        // Another block of that height, and one that was connected, stay.
        db.connect_block(&block(13, "thirteen", Hash([12; 32])), &[], NOW).await.unwrap();
        let connected = db.tip().await.unwrap().unwrap();
        let kept = db.undo_imported(&[(12, Hash([99; 32])), connected], NOW).await.unwrap();
        assert_eq!((kept.transactions.len(), db.wallets().await.unwrap()[0].unread_from), (0, None));
        db.undo_imported(&[stale], NOW).await.unwrap();
        let state = async |one: &NewTx| {
            let found = db.transaction(w, one.hash, NOW).await.unwrap().unwrap();
            (found.status, found.height)
        };
        assert_eq!(state(&coin).await, (Status::Published, None));
        assert_eq!(state(&reward).await, (Status::Orphaned, None));
        assert_eq!(state(&later).await, (Status::Published, Some(12)));
        let wallet = &db.wallets().await.unwrap()[0];
        let from = (11_u32).saturating_sub(FINAL_DEPTH);
        assert_eq!((wallet.status, wallet.unread_from), (WalletStatus::Restoring, Some(from)));
        assert_eq!(db.undo_imported(&[stale], NOW).await.unwrap().transactions.len(), 0, "once is enough");
        assert_eq!(db.check_utxo().await.unwrap(), []);
    }

}
