//! What two people gave up although it was broadcast: what it held is free, and a node that shows it brings it back.

use domain::Approval;
use store::db_test;
use store::utxo::*;

use super::law5::{free, funded, pay, publish};
use super::model::Event;
use super::stage::*;

/// A stranger's deposit whose own parent nobody has seen, and a payout of ours that spends it together with a confirmed coin.
async fn waiting_for_ever<'a>(db: &'a store::testing::TestDb) -> (Stage<'a>, NewTx, NewTx, NewTx) {
    let (mut stage, coins) = funded(db).await;
    let deposit = tx("deposit", &[elsewhere("stranger")], &[(script(0, 0, 0), 800)]);
    let payout = pay("payout", &[output(&deposit, 0), output(&coins, 0)]);
    stage.play(Event::See(vec![deposit.clone()])).await.unwrap();
    publish(&mut stage, &payout).await;
    assert_eq!(free(&stage).await, [20_000, 30_000]);
    (stage, coins, deposit, payout)
}

db_test! {
    async fn what_two_people_gave_up_frees_what_its_descendants_held(db: TestDb) {
        let (mut stage, _, deposit, payout) = waiting_for_ever(db).await;
        stage.play(Event::GiveUp(deposit.hash)).await.unwrap();
        assert_eq!((stage.status(&deposit), stage.status(&payout)), (Status::Failed, Status::Failed));
        assert_eq!(free(&stage).await, [10_000, 20_000, 30_000]);
        assert_eq!(stage.model.balances()[&(0, 0)].unconfirmed, 0);
        assert_eq!(stage.play(Event::GiveUp(deposit.hash)).await, Ok([].into()), "once more is nothing new");
        stage.assert_checked().await;
        let history = db.transaction_events(stage.wallets[0], deposit.hash).await.unwrap();
        let last = history.last().unwrap();
        assert_eq!((last.actor.as_str(), last.reason.as_str()), ("ann", "given up: ann + bob: the test says so"));
        // Blocks that have nothing to do with it do not bring it back.
        stage.mine("root", &[]).await.unwrap();
        stage.play(Event::Disconnect(BASE, vec![])).await.unwrap();
        assert_eq!(stage.status(&deposit), Status::Failed);
        stage.assert_checked().await;
    }

    async fn what_two_people_gave_up_comes_back_when_a_node_shows_it(db: TestDb) {
        let (mut stage, _, deposit, payout) = waiting_for_ever(db).await;
        for (round, in_block) in [false, true].into_iter().enumerate() {
            stage.play(Event::GiveUp(deposit.hash)).await.unwrap();
            if in_block {
                stage.mine(&format!("round {round}"), std::slice::from_ref(&deposit)).await.unwrap();
            } else {
                stage.play(Event::Mempool(vec![deposit.clone()])).await.unwrap();
            }
            assert_eq!((stage.status(&deposit), stage.status(&payout)), (Status::Published, Status::Published));
            assert_eq!(free(&stage).await, [20_000, 30_000]);
            stage.assert_checked().await;
        }
    }

    /// It was a mistake: the freed coin is spent by then.
    async fn what_was_given_up_and_is_mined_takes_its_inputs_from_what_was_built_on_them(db: TestDb) {
        let (mut stage, coins, deposit, payout) = waiting_for_ever(db).await;
        stage.play(Event::GiveUp(payout.hash)).await.unwrap();
        assert_eq!(stage.status(&deposit), Status::Published, "only what was named, and what depends on it");
        let other = pay("other", &[output(&coins, 0)]);
        publish(&mut stage, &other).await;
        // The node's word is kept, though the payout cannot stand beside the other one.
        stage.play(Event::See(vec![payout.clone()])).await.unwrap();
        assert_eq!((stage.status(&payout), stage.status(&other)), (Status::Failed, Status::Published));
        stage.assert_checked().await;
        stage.mine("root", &[deposit.clone(), payout.clone()]).await.unwrap();
        assert_eq!((stage.status(&payout), stage.status(&other)), (Status::Published, Status::Failed));
        assert_eq!(free(&stage).await, [20_000, 30_000]);
        stage.assert_checked().await;
    }

    async fn what_is_in_a_block_was_never_sent_or_has_ended_is_not_given_up(db: TestDb) {
        let (mut stage, coins) = funded(db).await;
        assert_eq!(stage.play(Event::GiveUp(coins.hash)).await, Err("UTXO_NOT_WAITING"));
        let (first, second) = (pay("first", &[output(&coins, 0)]), pay("second", &[output(&coins, 0)]));
        stage.play(Event::Pending(0, first.clone())).await.unwrap();
        assert_eq!(stage.play(Event::GiveUp(first.hash)).await, Err("UTXO_NOT_WAITING"));
        stage.play(Event::Abandon(first.hash)).await.unwrap();
        assert_eq!(stage.play(Event::GiveUp(first.hash)).await, Err("UTXO_NOT_WAITING"));
        assert_eq!(stage.play(Event::GiveUp(second.hash)).await, Err("UTXO_UNKNOWN_TRANSACTION"));
        publish(&mut stage, &second).await;
        stage.mine("root", &[pay("rival", &[output(&coins, 0)])]).await.unwrap();
        assert_eq!(stage.play(Event::GiveUp(second.hash)).await, Err("UTXO_NOT_WAITING"));
        stage.assert_checked().await;
    }

    /// In a backup it may be waiting though it was mined since.
    async fn nothing_is_given_up_while_the_wallet_is_restored(db: TestDb) {
        let (stage, _, deposit, _) = waiting_for_ever(db).await;
        db.begin_restore(stage.wallets[0], stage.now).await.unwrap();
        let people = Approval::new("ann", "bob", "why").unwrap();
        let refused = db.give_up(deposit.hash, &people, stage.now).await.unwrap_err();
        assert_eq!(refused.code(), "UTXO_RESTORING");
        stage.assert_checked().await;
    }

    async fn the_check_finds_what_was_given_up_by_nobody(db: TestDb) {
        let (mut stage, coins) = funded(db).await;
        let first = pay("first", &[output(&coins, 0)]);
        publish(&mut stage, &first).await;
        stage.mine("root", &[pay("rival", &[output(&coins, 0)])]).await.unwrap();
        db.by_hand("UPDATE transactions SET given_up = TRUE WHERE status = 'failed'").await.unwrap();
        let findings = db.check_utxo().await.unwrap();
        assert_eq!(findings.iter().map(|one| one.check).collect::<Vec<_>>(), ["given up"], "{findings:?}");
    }
}
