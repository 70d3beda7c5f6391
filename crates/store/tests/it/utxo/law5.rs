//! Law 5: what was broadcast may still be mined. While the chain does not prove otherwise, its inputs do not look free.

use store::db_test;
use store::utxo::*;

use super::candidates::everything;
use super::model::Event;
use super::stage::*;

/// A wallet with three confirmed coins of 10,000, 20,000 and 30,000.
pub async fn funded<'a>(db: &'a store::testing::TestDb) -> (Stage<'a>, NewTx) {
    let mut stage = Stage::open(db, 1).await;
    let ours = |amount| (script(0, 0, 0), amount);
    let coins = tx("coins", &[elsewhere("coins")], &[ours(10_000), ours(20_000), ours(30_000)]);
    stage.mine("root", std::slice::from_ref(&coins)).await.unwrap();
    (stage, coins)
}

pub fn pay(name: &str, inputs: &[OutPoint]) -> NewTx {
    tx(name, inputs, &[(foreign_script(), 5_000)])
}

pub async fn publish(stage: &mut Stage<'_>, tx: &NewTx) {
    stage.play(Event::Pending(0, tx.clone())).await.unwrap();
    stage.play(Event::Publish(tx.hash)).await.unwrap();
}

/// The amounts of all that a selection could take.
pub async fn free(stage: &Stage<'_>) -> Vec<i64> {
    let coins = stage.db.candidates(stage.wallets[0], 0, &everything(), stage.now).await.unwrap();
    let mut amounts: Vec<i64> = coins.iter().map(|coin| coin.amount).collect();
    amounts.sort_unstable();
    amounts
}

db_test! {
    async fn an_abandoned_replacement_gives_the_published_one_back(db: TestDb) {
        let (mut stage, coins) = funded(db).await;
        let first = pay("first", &[output(&coins, 0)]);
        let second = pay("second", &[output(&coins, 0), output(&coins, 1)]);
        publish(&mut stage, &first).await;
        stage.play(Event::Replace(0, second.clone())).await.unwrap();
        assert_eq!(free(&stage).await, [30_000]);
        stage.play(Event::Abandon(second.hash)).await.unwrap();
        assert_eq!((stage.status(&first), stage.status(&second)), (Status::Published, Status::Failed));
        assert_eq!(free(&stage).await, [20_000, 30_000]);
        stage.assert_checked().await;
    }

    async fn what_was_never_published_does_not_come_back(db: TestDb) {
        let (mut stage, coins) = funded(db).await;
        let first = pay("first", &[output(&coins, 0)]);
        let second = pay("second", &[output(&coins, 0)]);
        stage.play(Event::Pending(0, first.clone())).await.unwrap();
        stage.play(Event::Replace(0, second.clone())).await.unwrap();
        stage.play(Event::Abandon(second.hash)).await.unwrap();
        assert_eq!(stage.status(&first), Status::Replaced);
        assert_eq!(free(&stage).await, [10_000, 20_000, 30_000]);
        stage.assert_checked().await;
    }

    async fn a_replacement_that_a_block_makes_impossible_gives_back_what_it_is_not_about(db: TestDb) {
        let (mut stage, coins) = funded(db).await;
        let first = pay("first", &[output(&coins, 0)]);
        let second = pay("second", &[output(&coins, 0), output(&coins, 1)]);
        let third = pay("third", &[output(&coins, 1)]);
        publish(&mut stage, &first).await;
        stage.play(Event::Replace(0, second.clone())).await.unwrap();
        stage.play(Event::Publish(second.hash)).await.unwrap();
        stage.mine("root", std::slice::from_ref(&third)).await.unwrap();
        assert_eq!((stage.status(&first), stage.status(&second)), (Status::Published, Status::Failed));
        assert_eq!(free(&stage).await, [30_000]);
        stage.assert_checked().await;
    }

    async fn the_newest_of_two_replaced_ones_comes_back(db: TestDb) {
        let (mut stage, coins) = funded(db).await;
        // Both conflict with the last; only one of the two can be valid.
        let (first, second) = (pay("first", &[output(&coins, 0)]), pay("second", &[output(&coins, 0)]));
        let last = pay("last", &[output(&coins, 0)]);
        publish(&mut stage, &first).await;
        stage.play(Event::Replace(0, second.clone())).await.unwrap();
        stage.play(Event::Publish(second.hash)).await.unwrap();
        stage.play(Event::Replace(0, last.clone())).await.unwrap();
        stage.play(Event::Abandon(last.hash)).await.unwrap();
        assert_eq!((stage.status(&first), stage.status(&second)), (Status::Replaced, Status::Published));
        stage.assert_checked().await;
    }

    /// The one in the middle was never broadcast; the one before it was, and may be mined any time.
    async fn what_was_published_comes_back_from_behind_two_replacements(db: TestDb) {
        let (mut stage, coins) = funded(db).await;
        let first = pay("first", &[output(&coins, 0)]);
        let (second, third) = (pay("second", &[output(&coins, 0)]), pay("third", &[output(&coins, 0)]));
        publish(&mut stage, &first).await;
        stage.play(Event::Replace(0, second.clone())).await.unwrap();
        stage.play(Event::Replace(0, third.clone())).await.unwrap();
        stage.play(Event::Abandon(third.hash)).await.unwrap();
        assert_eq!(stage.status(&second), Status::Replaced);
        assert_eq!(stage.status(&first), Status::Published);
        assert_eq!(free(&stage).await, [20_000, 30_000]);
        stage.assert_checked().await;
    }

    /// It failed by a block that is no longer in the chain, and what stood in its way has fallen too.
    async fn what_a_block_had_made_impossible_comes_back_when_the_block_is_gone(db: TestDb) {
        let (mut stage, coins) = funded(db).await;
        let victim = pay("victim", &[output(&coins, 0)]);
        let winner = pay("winner", &[output(&coins, 0), output(&coins, 1)]);
        let other = pay("other", &[output(&coins, 1)]);
        publish(&mut stage, &victim).await;
        stage.mine("first", std::slice::from_ref(&winner)).await.unwrap();
        assert_eq!(stage.status(&victim), Status::Failed);
        stage.play(Event::Disconnect(BASE, vec![])).await.unwrap();
        assert_eq!(stage.status(&victim), Status::Failed, "the winner is still about");
        stage.mine("second", std::slice::from_ref(&other)).await.unwrap();
        assert_eq!((stage.status(&winner), stage.status(&victim)), (Status::Failed, Status::Published));
        assert_eq!(free(&stage).await, [30_000]);
        stage.assert_checked().await;
    }

    /// A child that fell only with its parent comes back with it.
    async fn published_children_come_back_with_their_parent(db: TestDb) {
        let (mut stage, coins) = funded(db).await;
        let parent = tx("parent", &[output(&coins, 0)], &[(script(0, 0, 0), 9_000)]);
        let child = pay("child", &[output(&parent, 0), output(&coins, 1)]);
        let replacement = pay("replacement", &[output(&coins, 0)]);
        publish(&mut stage, &parent).await;
        publish(&mut stage, &child).await;
        stage.play(Event::Replace(0, replacement.clone())).await.unwrap();
        assert_eq!(free(&stage).await, [30_000], "the child may be mined with its parent");
        stage.play(Event::Abandon(replacement.hash)).await.unwrap();
        assert_eq!((stage.status(&parent), stage.status(&child)), (Status::Published, Status::Published));
        assert_eq!(free(&stage).await, [30_000]);
        stage.assert_checked().await;
    }

    /// The mempool showed both at once; the first was published all the same.
    async fn what_was_published_for_a_moment_only_comes_back_too(db: TestDb) {
        let (mut stage, coins) = funded(db).await;
        let first = pay("first", &[output(&coins, 0)]);
        let second = pay("second", &[output(&coins, 0), output(&coins, 1)]);
        stage.play(Event::See(vec![first.clone(), second.clone()])).await.unwrap();
        assert_eq!(stage.status(&first), Status::Replaced);
        stage.mine("root", &[pay("third", &[output(&coins, 1)])]).await.unwrap();
        assert_eq!(stage.status(&first), Status::Published);
        stage.assert_checked().await;
    }

    /// A block spends an input of something that is invalid already. It pays nobody here, yet must be known: else the
    /// invalid one would come back when its rival falls, and be counted for ever.
    async fn what_the_chain_has_made_impossible_does_not_come_back(db: TestDb) {
        let (mut stage, _) = funded(db).await;
        let incoming = |name, inputs: &[OutPoint]| tx(name, inputs, &[(script(0, 0, 0), 700)]);
        let outgoing = |name, input| tx(name, &[input], &[(foreign_script(), 1)]);
        let (a, b, c) = (elsewhere("a"), elsewhere("b"), elsewhere("c"));
        let first = incoming("first", &[a, b]);
        let rival = incoming("rival", &[a, c]);
        stage.play(Event::See(vec![first.clone()])).await.unwrap();
        stage.play(Event::See(vec![rival.clone()])).await.unwrap();
        stage.mine("root", &[outgoing("takes b", b)]).await.unwrap();
        stage.mine("root", &[outgoing("takes c", c)]).await.unwrap();
        assert_eq!((stage.status(&first), stage.status(&rival)), (Status::Replaced, Status::Failed));
        stage.play(Event::See(vec![first.clone()])).await.unwrap();
        assert_eq!(stage.status(&first), Status::Replaced);
        assert_eq!(stage.model.balances()[&(0, 0)].unconfirmed, 0);
        stage.assert_checked().await;
    }

    /// It is shown under a parent that is invalid, after its own child.
    async fn a_child_that_came_first_falls_with_a_parent_that_is_born_invalid(db: TestDb) {
        let (mut stage, coins) = funded(db).await;
        let gone = pay("gone", &[output(&coins, 0)]);
        let parent = tx("parent", &[output(&gone, 0)], &[(script(0, 0, 2), 800)]);
        let child = tx("child", &[output(&parent, 0)], &[(script(0, 0, 1), 700)]);
        publish(&mut stage, &gone).await;
        stage.play(Event::See(vec![child.clone()])).await.unwrap();
        stage.mine("root", &[pay("winner", &[output(&coins, 0)])]).await.unwrap();
        stage.play(Event::See(vec![parent.clone()])).await.unwrap();
        assert_eq!((stage.status(&parent), stage.status(&child)), (Status::Failed, Status::Failed));
        stage.assert_checked().await;
    }

    /// A stranger pays us out of an unconfirmed transaction that another one beats. We had spent the deposit already,
    /// together with a confirmed coin.
    async fn a_deposit_ends_when_its_unconfirmed_parent_can_no_longer_be_mined(db: TestDb) {
        let (mut stage, coins) = funded(db).await;
        let parent = tx("parent", &[elsewhere("stranger")], &[(foreign_script(), 900)]);
        let deposit = tx("deposit", &[output(&parent, 0)], &[(script(0, 0, 0), 800)]);
        let payout = pay("payout", &[output(&deposit, 0), output(&coins, 0)]);
        stage.play(Event::See(vec![parent.clone(), deposit.clone()])).await.unwrap();
        assert!(!stage.model.txs.contains_key(&parent.hash), "it was shown before there was a reason to keep it");
        assert_eq!(db.unknown_parents(None).await.unwrap(), [parent.hash]);
        stage.play(Event::See(vec![parent.clone()])).await.unwrap();
        assert_eq!(db.unknown_parents(None).await.unwrap(), [elsewhere("stranger").hash]);
        publish(&mut stage, &payout).await;
        let before = free(&stage).await;
        let rival = tx("rival", &[elsewhere("stranger")], &[(foreign_script(), 850)]);
        stage.mine("first", std::slice::from_ref(&rival)).await.unwrap();
        for lost in [&parent, &deposit, &payout] {
            assert_eq!(stage.status(lost), Status::Failed);
        }
        assert_eq!((before, free(&stage).await), (vec![20_000, 30_000], vec![10_000, 20_000, 30_000]));
        assert_eq!(stage.model.balances()[&(0, 0)].unconfirmed, 0);
        stage.assert_checked().await;
        // The other branch has the parent after all.
        stage.play(Event::Disconnect(BASE, vec![rival])).await.unwrap();
        stage.mine("second", std::slice::from_ref(&parent)).await.unwrap();
        assert_eq!((stage.status(&deposit), stage.status(&payout)), (Status::Published, Status::Published));
        assert_eq!(free(&stage).await, [20_000, 30_000]);
        stage.assert_checked().await;
    }

    /// The parent was in a block when the deposit came, so nobody had a reason to keep it.
    async fn a_deposit_ends_when_a_reorganisation_takes_its_parent_away(db: TestDb) {
        let (mut stage, _) = funded(db).await;
        let reward = coinbase("reward", &[(foreign_script(), 5_000)]);
        let parent = tx("parent", &[elsewhere("stranger")], &[(foreign_script(), 900)]);
        let gone = vec![reward.clone(), parent.clone()];
        stage.mine("first", &gone).await.unwrap();
        let from_reward = tx("from reward", &[output(&reward, 0)], &[(script(0, 0, 0), 4_000)]);
        let deposit = tx("deposit", &[output(&parent, 0)], &[(script(0, 0, 0), 800)]);
        stage.play(Event::See(vec![from_reward.clone(), deposit.clone()])).await.unwrap();
        let way_back = stage.model.blocks[1];
        assert_eq!(db.unknown_parents(Some(BASE)).await.unwrap().len(), 2);
        stage.play(Event::Disconnect(BASE, gone.clone())).await.unwrap();
        assert_eq!((stage.status(&reward), stage.status(&from_reward)), (Status::Orphaned, Status::Failed));
        assert_eq!((stage.status(&parent), stage.status(&deposit)), (Status::Published, Status::Published));
        let rival = tx("rival", &[elsewhere("stranger")], &[(foreign_script(), 850)]);
        stage.mine("second", &[rival]).await.unwrap();
        assert_eq!(stage.status(&deposit), Status::Failed);
        assert_eq!(stage.model.balances()[&(0, 0)].unconfirmed, 0);
        stage.assert_checked().await;
        stage.play(Event::Disconnect(BASE, vec![])).await.unwrap();
        stage.play(Event::Connect(way_back, gone)).await.unwrap();
        assert_eq!((stage.status(&from_reward), stage.status(&deposit)), (Status::Published, Status::Published));
        stage.assert_checked().await;
    }

    /// Two strangers' transactions of the gone block, one of which spends the other: neither was kept before. What falls
    /// with them had itself replaced one that comes back.
    async fn what_a_strangers_lost_coinbase_lets_fall_gives_back_what_it_had_replaced(db: TestDb) {
        let (mut stage, coins) = funded(db).await;
        let reward = coinbase("reward", &[(foreign_script(), 5_000)]);
        let parent = tx("parent", &[output(&reward, 0)], &[(foreign_script(), 4_900)]);
        let gone = vec![reward, parent.clone()];
        stage.mine("first", &gone).await.unwrap();
        let deposit = tx("deposit", &[output(&parent, 0)], &[(script(0, 0, 0), 4_800)]);
        let waits = pay("waits", &[output(&coins, 0)]);
        let payout = pay("payout", &[output(&deposit, 0), output(&coins, 0)]);
        stage.play(Event::See(vec![deposit.clone()])).await.unwrap();
        publish(&mut stage, &waits).await;
        stage.play(Event::Replace(0, payout.clone())).await.unwrap();
        stage.play(Event::Publish(payout.hash)).await.unwrap();
        stage.play(Event::Disconnect(BASE, gone)).await.unwrap();
        assert_eq!((stage.status(&deposit), stage.status(&payout)), (Status::Failed, Status::Failed));
        assert_eq!(stage.status(&waits), Status::Published);
        assert_eq!(free(&stage).await, [20_000, 30_000]);
        stage.assert_checked().await;
    }

    /// Its rival left the mempool, and it is there again with a child.
    async fn what_was_replaced_and_is_in_the_mempool_again_holds_its_inputs(db: TestDb) {
        let (mut stage, coins) = funded(db).await;
        let first = tx("first", &[output(&coins, 0), output(&coins, 1)], &[(script(0, 0, 0), 9_000)]);
        let child = pay("child", &[output(&first, 0)]);
        let rival = pay("rival", &[output(&coins, 0)]);
        stage.play(Event::See(vec![first.clone(), child.clone()])).await.unwrap();
        stage.play(Event::See(vec![rival.clone()])).await.unwrap();
        assert_eq!((stage.status(&first), stage.status(&child)), (Status::Replaced, Status::Failed));
        stage.play(Event::See(vec![first.clone()])).await.unwrap();
        assert_eq!(stage.status(&first), Status::Replaced, "the rival may be there too");
        stage.play(Event::Mempool(vec![first.clone(), child.clone()])).await.unwrap();
        assert_eq!((stage.status(&first), stage.status(&child)), (Status::Published, Status::Published));
        assert_eq!(stage.status(&rival), Status::Replaced);
        assert_eq!(free(&stage).await, [30_000]);
        let detail = db.transaction(stage.wallets[0], first.hash, stage.now).await.unwrap().unwrap();
        assert_eq!((detail.replaced, detail.replaced_by), (vec![rival.hash], vec![rival.hash]));
        // And the other way round. The first one has an input more, and may still be mined.
        stage.play(Event::Mempool(vec![rival.clone()])).await.unwrap();
        assert_eq!((stage.status(&first), stage.status(&rival)), (Status::Replaced, Status::Published));
        assert_eq!(free(&stage).await, [30_000]);
        stage.assert_checked().await;
    }

    /// It was published just before the mempool was read, so that it is not there says nothing.
    async fn what_was_published_just_now_does_not_give_way(db: TestDb) {
        let (mut stage, coins) = funded(db).await;
        let (first, second) = (pay("first", &[output(&coins, 0)]), pay("second", &[output(&coins, 0)]));
        publish(&mut stage, &first).await;
        stage.play(Event::Replace(0, second.clone())).await.unwrap();
        stage.play(Event::Publish(second.hash)).await.unwrap();
        db.see_mempool(std::slice::from_ref(&first), &[first.hash].into(), stage.now.plus_micros(59_000_000)).await.unwrap();
        stage.assert_same().await;
        assert_eq!(stage.status(&second), Status::Published);
    }

    async fn what_is_published_cannot_be_abandoned(db: TestDb) {
        let (mut stage, coins) = funded(db).await;
        let payment = pay("payment", &[output(&coins, 0)]);
        publish(&mut stage, &payment).await;
        assert_eq!(stage.play(Event::Abandon(payment.hash)).await, Err("UTXO_NOT_PENDING"));
        stage.mine("root", std::slice::from_ref(&payment)).await.unwrap();
        assert_eq!(stage.play(Event::Abandon(payment.hash)).await, Err("UTXO_NOT_PENDING"));
        let other = pay("other", &[output(&coins, 0)]);
        assert_eq!(stage.play(Event::Replace(0, other)).await, Err("UTXO_NOT_REPLACEABLE"));
        assert_eq!(free(&stage).await, [20_000, 30_000]);
    }
}
