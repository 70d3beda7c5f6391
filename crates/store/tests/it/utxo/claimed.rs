//! Law 5: what a replacement drops is not free while the transaction that it replaced can still be mined.

use store::db_test;
use store::utxo::*;

use super::candidates::everything;
use super::law5::{free, funded, pay, publish};
use super::model::Event;
use super::stage::*;

/// T spends A (10,000) and B (20,000), T' made elsewhere spends A only and waits. A third coin is free.
async fn dropped<'a>(db: &'a store::testing::TestDb) -> (Stage<'a>, NewTx, NewTx, NewTx) {
    let (mut stage, coins) = funded(db).await;
    let old = pay("old", &[output(&coins, 0), output(&coins, 1)]);
    let new = pay("new", &[output(&coins, 0)]);
    publish(&mut stage, &old).await;
    stage.play(Event::See(vec![new.clone()])).await.unwrap();
    assert_eq!((stage.status(&old), stage.status(&new)), (Status::Replaced, Status::Published));
    (stage, coins, old, new)
}

const LOCK: LockId = LockId([7; 32]);

/// Whether somebody can lease it.
async fn can_lease(stage: &Stage<'_>, coin: OutPoint) -> Result<(), &'static str> {
    let until = stage.now.plus_micros(1_000_000);
    let taken = stage.db.lease(stage.wallets[0], &[coin], LOCK, until, stage.now).await;
    if taken.is_ok() {
        stage.db.release(stage.wallets[0], LOCK).await.unwrap();
    }
    taken.map_err(|error| error.code())
}

db_test! {
    async fn what_a_replacement_drops_is_not_free_while_the_old_one_can_still_be_mined(db: TestDb) {
        let (mut stage, coins, old, new) = dropped(db).await;
        let dropped = output(&coins, 1);
        assert_eq!(free(&stage).await, [30_000]);
        assert_eq!(can_lease(&stage, dropped).await, Err("UTXO_CLAIMED"));
        assert_eq!(stage.play(Event::Pending(0, pay("builds on sand", &[dropped]))).await, Err("UTXO_CLAIMED"));
        let balance = stage.model.balances()[&(0, 0)];
        assert_eq!((balance.confirmed, balance.leased), (50_000, 20_000), "it is counted, and not available");
        let filter = ListFilter { account: None, unspent_only: true, after: None, most: 10 };
        let listed = db.list_outputs(stage.wallets[0], &filter, stage.now).await.unwrap();
        let told: Vec<_> = listed.iter().map(|one| (one.outpoint, one.claimed_by)).collect();
        assert_eq!(told, [(dropped, Some(old.hash)), (output(&coins, 2), None)]);
        let leases = db.leases(stage.wallets[0], None, 10).await.unwrap();
        let told: Vec<_> = leases.iter().map(|one| (one.outpoint, one.lock, one.until, one.claimed_by)).collect();
        assert_eq!(told, [(dropped, None, None, Some(old.hash))]);
        assert_eq!(db.lease_stat(stage.now).await.unwrap(), LeaseStat { claimed: 1, ..LeaseStat::default() });
        stage.assert_checked().await;

        // A block has T': T can never be mined.
        let fork = stage.next_block("first");
        stage.play(Event::Connect(fork, vec![new.clone()])).await.unwrap();
        assert_eq!(free(&stage).await, [20_000, 30_000]);
        assert_eq!(can_lease(&stage, dropped).await, Ok(()));
        stage.assert_checked().await;
        // A reorganisation takes it out of its block again.
        stage.play(Event::Disconnect(BASE, vec![new.clone()])).await.unwrap();
        assert_eq!(free(&stage).await, [30_000]);
        assert_eq!(can_lease(&stage, dropped).await, Err("UTXO_CLAIMED"));
        stage.assert_checked().await;
        // And the other branch has T.
        stage.mine("second", std::slice::from_ref(&old)).await.unwrap();
        assert_eq!((stage.status(&old), stage.status(&new)), (Status::Published, Status::Failed));
        assert_eq!(free(&stage).await, [30_000]);
        assert_eq!(can_lease(&stage, dropped).await, Err("UTXO_NOT_SPENDABLE"));
        stage.assert_checked().await;
    }

    /// T' is in no mempool any more, and T is.
    async fn what_is_back_spends_what_it_claimed(db: TestDb) {
        let (mut stage, coins, old, new) = dropped(db).await;
        stage.play(Event::Mempool(vec![old.clone()])).await.unwrap();
        assert_eq!((stage.status(&old), stage.status(&new)), (Status::Published, Status::Replaced));
        assert_eq!(can_lease(&stage, output(&coins, 1)).await, Err("UTXO_NOT_SPENDABLE"));
        assert_eq!(db.lease_stat(stage.now).await.unwrap().claimed, 0, "nothing is free");
        stage.assert_checked().await;
        // Our own replacement may drop an input as well.
        let third = pay("third", &[output(&coins, 0)]);
        stage.play(Event::Replace(0, third.clone())).await.unwrap();
        assert_eq!(free(&stage).await, [30_000]);
        stage.play(Event::Abandon(third.hash)).await.unwrap();
        assert_eq!(stage.status(&old), Status::Published);
        stage.assert_checked().await;
    }

    /// A child of T spends a coin of its own. It may be mined with T.
    async fn what_a_child_of_a_replaced_transaction_spends_is_claimed_too(db: TestDb) {
        let (mut stage, coins) = funded(db).await;
        let parent = tx("parent", &[output(&coins, 0)], &[(script(0, 0, 0), 9_000)]);
        let child = pay("child", &[output(&parent, 0), output(&coins, 1)]);
        let rival = pay("rival", &[output(&coins, 0)]);
        publish(&mut stage, &parent).await;
        publish(&mut stage, &child).await;
        stage.play(Event::See(vec![rival.clone()])).await.unwrap();
        assert_eq!((stage.status(&parent), stage.status(&child)), (Status::Replaced, Status::Failed));
        assert_eq!(free(&stage).await, [30_000]);
        stage.mine("root", &[rival]).await.unwrap();
        assert_eq!(free(&stage).await, [20_000, 30_000]);
        stage.assert_checked().await;
    }

    async fn what_two_people_gave_up_claims_nothing_any_more(db: TestDb) {
        let (mut stage, coins, old, _) = dropped(db).await;
        stage.play(Event::GiveUp(old.hash)).await.unwrap();
        assert_eq!(stage.status(&old), Status::Replaced);
        assert_eq!(free(&stage).await, [20_000, 30_000]);
        let history = db.transaction_events(stage.wallets[0], old.hash).await.unwrap();
        assert_eq!(history.last().unwrap().reason, "given up: ann + bob: the test says so");
        stage.assert_checked().await;
        // A node has it: that counts for more.
        stage.play(Event::See(vec![old.clone()])).await.unwrap();
        assert_eq!(can_lease(&stage, output(&coins, 1)).await, Err("UTXO_CLAIMED"));
        stage.assert_checked().await;
    }

    /// B was free and leased while T' was in a block. Its holder cannot spend it now, but nobody has taken its lease away.
    async fn a_claim_leaves_a_lease_as_it_is_and_binds_its_holder(db: TestDb) {
        let (mut stage, coins, _, new) = dropped(db).await;
        let wallet = stage.wallets[0];
        stage.mine("first", std::slice::from_ref(&new)).await.unwrap();
        let until = stage.now.plus_micros(3_600_000_000);
        db.lease(wallet, &[output(&coins, 1)], LOCK, until, stage.now).await.unwrap();
        stage.play_unseen(&Event::Disconnect(BASE, vec![new.clone()])).await;
        let leases = db.leases(wallet, None, 10).await.unwrap();
        assert_eq!(leases.iter().map(|one| (one.lock, one.until)).collect::<Vec<_>>(), [(Some(LOCK), Some(until))]);
        assert_eq!(db.balance(wallet, stage.now).await.unwrap()[&0].leased, 20_000, "once");
        let payment = pay("payment", &[output(&coins, 1)]);
        let refused = db.add_pending(wallet, &payment, Some(LOCK), stage.now).await.unwrap_err();
        assert_eq!(refused.code(), "UTXO_CLAIMED");
        let refused = db.renew(wallet, LOCK, until.plus_micros(1), stage.now).await.unwrap_err();
        assert_eq!(refused.code(), "UTXO_CLAIMED");
        stage.assert_checked().await;
        // It is let go, and the output is still not free.
        assert_eq!(db.release(wallet, LOCK).await.unwrap(), 1);
        assert_eq!(free(&stage).await, [30_000]);
        stage.assert_same().await;
        // T' is mined again: its holder may go on.
        db.lease(wallet, &[output(&coins, 2)], LOCK, until, stage.now).await.unwrap();
        stage.play_unseen(&Event::Connect(stage.next_block("second"), vec![new])).await;
        db.lease(wallet, &[output(&coins, 1)], LOCK, until, stage.now).await.unwrap();
        db.add_pending(wallet, &payment, Some(LOCK), stage.now).await.unwrap();
        stage.assert_checked().await;
    }

    /// What a selection has chosen before the claim came.
    async fn a_selection_takes_nothing_that_is_claimed(db: TestDb) {
        let (stage, ..) = dropped(db).await;
        let want = everything();
        let claimed = db.leases(stage.wallets[0], None, 10).await.unwrap()[0].id;
        let mut tries = 0;
        let choose = |offered: &[Candidate]| {
            tries += 1;
            let ids: Vec<UtxoId> = offered.iter().map(|one| one.id).collect();
            assert!(!ids.contains(&claimed));
            Some(if tries == 1 { vec![claimed] } else { ids })
        };
        let until = stage.now.plus_micros(1);
        let chosen = db.select_and_lease(stage.wallets[0], 0, &want, LOCK, until, stage.now, choose).await;
        let coins = chosen.unwrap().unwrap();
        assert_eq!(coins.iter().map(|coin| coin.amount).collect::<Vec<_>>(), [30_000]);
    }

    async fn the_check_finds_claims_that_are_missing_and_claims_without_a_reason(db: TestDb) {
        let (stage, ..) = dropped(db).await;
        let found = async || db.check_utxo().await.unwrap().iter().map(|one| one.check).collect::<Vec<_>>();
        db.by_hand("DELETE FROM utxo_claims").await.unwrap();
        assert_eq!(found().await, ["unclaimed"]);
        let claim = "INSERT INTO utxo_claims (wallet_id, utxo_id, claimant) SELECT wallet_id, id, ";
        let old = "(SELECT tx_hash FROM transactions WHERE status = 'replaced') FROM utxos WHERE amount = ";
        db.by_hand(&format!("{claim}{old}20000")).await.unwrap();
        assert_eq!(found().await, [""; 0]);
        db.by_hand(&format!("{claim}{old}30000")).await.unwrap();
        assert_eq!(found().await, ["claimed"], "it spends no such output");
        db.by_hand("DELETE FROM utxo_claims").await.unwrap();
        let new = "(SELECT tx_hash FROM transactions WHERE status = 'published' AND block_height IS NULL) FROM utxos WHERE amount = ";
        db.by_hand(&format!("{claim}{new}20000")).await.unwrap();
        assert_eq!(found().await, ["claimed"], "that one is valid");
        assert_eq!(stage.wallets.len(), 1);
    }
}
