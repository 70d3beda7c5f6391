//! A wallet's life on a real node, compared with the node after each step.

use custody::bitcoin::{Recipient, tx_of_bytes};

use store::db_test;
use store::utxo::{AddressKind, OutPoint, Status};

use crate::node::Node;
use crate::wallet::{KINDS, QUICK, SLOW, Wallet, our_address, our_script};
use crate::world::pay;

const BTC: u64 = 100_000_000;

fn received(raw: &[u8], index: u32) -> OutPoint {
    OutPoint { hash: tx_of_bytes(raw).unwrap().hash, index }
}

db_test! {
    async fn a_wallet_agrees_with_bitcoind_at_every_step_of_its_life(db: TestDb) {
        let node = Node::start().await;
        let chain = node.client();
        let mut wallet = Wallet::open(db, &chain, node).await;
        wallet.sync_and_agree("before anything").await;
        coinbases(&mut wallet).await;
        payouts(&mut wallet).await;
        replacements(&mut wallet).await;
        stuck(&mut wallet).await;
        double_spends(&mut wallet).await;
        reorgs(&mut wallet).await;
        orphans(&mut wallet).await;
    }
}

/// Immature, then mature, and spent at once.
async fn coinbases(wallet: &mut Wallet<'_>) {
    wallet.node.mine_to(2, &our_address(0, 0, AddressKind::P2tr)).await;
    wallet.node.mine_to(1, &our_address(1, 0, AddressKind::P2wpkh)).await;
    wallet.sync_and_agree("our own blocks").await;
    let immature = wallet.db.balance(wallet.id, wallet.now).await.unwrap()[&0];
    assert_eq!((immature.immature, immature.outputs), (immature.confirmed, 2));
    assert!(wallet.pay(0, pay(&[BTC]), QUICK).await.is_err(), "nothing is mature");
    wallet.mine(97, "nearly mature").await;
    assert!(wallet.pay(0, pay(&[BTC]), QUICK).await.is_err(), "nothing is mature");
    wallet.mine(1, "one is mature").await;
    wallet.pay(0, pay(&[BTC]), QUICK).await.unwrap();
    wallet.sync_and_agree("a coinbase is spent").await;
    wallet.mine(3, "all are mature").await;
    assert_eq!(wallet.db.balance(wallet.id, wallet.now).await.unwrap()[&0].immature, 0);
}

async fn payouts(wallet: &mut Wallet<'_>) {
    let to = [(our_address(0, 0, KINDS[0]), 3_000_000), (our_address(0, 1, KINDS[1]), 4_000_000)];
    wallet.deposit(&to, 5_000).await;
    wallet.sync_and_agree("a deposit waits").await;
    wallet.deposit(&[(our_address(1, 1, KINDS[0]), 7_000_000), (our_address(0, 1, KINDS[0]), 600)], 5_000).await;
    wallet.mine(1, "two deposits are mined").await;
    for count in [1, 2, 100] {
        let recipients = pay(&vec![20_000; count]);
        let payout = wallet.pay(0, recipients, QUICK).await.unwrap();
        assert_eq!(payout.recipients().len(), count);
        wallet.sync_and_agree("a payout waits").await;
    }
    // To another account of ours, from unconfirmed change where there is nothing else.
    let internal = vec![Recipient { amount: 2_000_000, script: our_script(1, 0, KINDS[1]) }];
    let internal = wallet.pay(0, internal, SLOW).await.unwrap();
    wallet.sync_and_agree("from one account to the other").await;
    let mut before = internal.hash;
    for step in 0..4 {
        let most = wallet.db.balance(wallet.id, wallet.now).await.unwrap()[&1];
        let all = u64::try_from(most.confirmed + most.unconfirmed).unwrap();
        let payout = wallet.pay(1, pay(&[all / 4 * 3]), QUICK).await.unwrap();
        assert!(step == 0 || payout.plan.coins.iter().any(|coin| coin.outpoint.hash == before), "from its change");
        before = payout.hash;
        wallet.sync_and_agree(&format!("unconfirmed change, {step}")).await;
    }
    wallet.mine(1, "all payouts are mined").await;
    assert_eq!(wallet.db.unconfirmed(wallet.id).await.unwrap(), []);
}

async fn replacements(wallet: &mut Wallet<'_>) {
    let first = wallet.pay(0, pay(&[50_000, 60_000]), SLOW).await.unwrap();
    wallet.sync_and_agree("one that waits").await;
    wallet.replace_in_vain(&first).await;
    wallet.sync_and_agree("a replacement was refused").await;
    let second = wallet.replace(&first, QUICK).await.unwrap();
    wallet.sync_and_agree("it is replaced").await;
    assert_eq!(wallet.status(first.hash).await, Some((Status::Replaced, None)));
    let third = wallet.replace(&second, QUICK).await.unwrap();
    wallet.sync_and_agree("and again").await;
    // A chain of change: replacing its root takes the children with it.
    let change = wallet.db.balance(wallet.id, wallet.now).await.unwrap()[&0];
    let all = u64::try_from(change.confirmed + change.unconfirmed).unwrap();
    let child = wallet.pay(0, pay(&[all - 1_000_000]), SLOW).await.unwrap();
    assert!(child.plan.coins.iter().any(|coin| coin.outpoint.hash == third.hash));
    wallet.sync_and_agree("its change is spent").await;
    let fourth = wallet.replace(&third, QUICK).await.unwrap();
    wallet.sync_and_agree("the root of a chain is replaced").await;
    assert_eq!(wallet.status(child.hash).await, Some((Status::Failed, None)));
    // A block may have the one that was replaced.
    wallet.node.mine_only(std::slice::from_ref(&first.raw)).await;
    wallet.sync_and_agree("the replaced one is mined").await;
    assert!(wallet.status(first.hash).await.unwrap().1.is_some());
    assert_eq!(wallet.status(fourth.hash).await, Some((Status::Failed, None)));
}

/// A receive that pays hardly anything, pushed by a child.
async fn stuck(wallet: &mut Wallet<'_>) {
    let raw = wallet.deposit(&[(our_address(1, 0, KINDS[1]), 1_500_000)], 200).await;
    wallet.sync_and_agree("stuck").await;
    let child = wallet.push(received(&raw, 0), QUICK).await;
    wallet.sync_and_agree("pushed").await;
    wallet.mine(1, "both are mined").await;
    assert!(wallet.status(child.hash).await.unwrap().1.is_some());
}

/// Others who pay us with a coin that they spend elsewhere, too.
async fn double_spends(wallet: &mut Wallet<'_>) {
    for to_us in [true, false] {
        let coin = wallet.node.purse.pop().unwrap();
        let us = |key, amount| vec![(our_address(0, key, KINDS[0]), amount)];
        let shown = wallet.node.pays(&coin, &us(0, 900_000), 2_000);
        let other = if to_us { us(1, 800_000) } else { Vec::new() };
        let mined = wallet.node.pays(&coin, &other, 9_000);
        wallet.node.send(&shown).await.unwrap();
        wallet.sync_and_agree("the one").await;
        // The payer spends a coin twice: we push the payment that will lose, and lose the child with it.
        let child = wallet.push(received(&shown, 0), QUICK).await;
        wallet.sync_and_agree("and our child").await;
        wallet.node.mine_only(std::slice::from_ref(&mined)).await;
        wallet.sync_and_agree("the other is mined").await;
        assert_eq!(wallet.status(child.hash).await, Some((Status::Failed, None)));
        wallet.reorg(1, &[], "the other is mined no more").await;
        wallet.reorg(1, std::slice::from_ref(&mined), "and again").await;
        // Out-bid while both wait.
        let coin = wallet.node.purse.pop().unwrap();
        wallet.node.send(&wallet.node.pays(&coin, &us(0, 900_000), 2_000)).await.unwrap();
        wallet.sync_and_agree("one waits").await;
        wallet.node.send(&wallet.node.pays(&coin, &other, 20_000)).await.unwrap();
        wallet.sync_and_agree("one was out-bid").await;
    }
    wallet.mine(1, "whatever waits").await;
}

async fn reorgs(wallet: &mut Wallet<'_>) {
    for depth in [1, 6, 120] {
        let what = |step: &str| format!("{depth} blocks, {step}");
        // Across the fork: a coinbase of ours, deposits, a payout, and its replacement in the other branch.
        wallet.node.mine_to(1, &our_address(0, 1, KINDS[0])).await;
        wallet.deposit(&[(our_address(0, 0, KINDS[1]), 2_000_000)], 4_000).await;
        wallet.sync().await;
        let old = wallet.pay(0, pay(&[30_000]), SLOW).await.unwrap();
        let new = wallet.replace(&old, QUICK).await.unwrap();
        let coin = wallet.node.purse.pop().unwrap();
        let here = wallet.node.pays(&coin, &[(our_address(1, 0, KINDS[0]), 700_000)], 5_000);
        let there = wallet.node.pays(&coin, &[(our_address(1, 1, KINDS[0]), 600_000)], 5_000);
        wallet.node.send(&here).await.unwrap();
        wallet.mine(1, &what("mined")).await;
        wallet.pay(0, pay(&[40_000]), QUICK).await.unwrap();
        wallet.mine(u64::from(depth) - 1, &what("buried")).await;
        assert!(wallet.status(new.hash).await.unwrap().1.is_some());

        let lost = wallet.reorg(depth, &[old.raw.clone(), there], &what("the other branch")).await;
        assert!(wallet.status(old.hash).await.unwrap().1.is_some(), "mined after all");
        assert_eq!(wallet.status(new.hash).await, Some((Status::Failed, None)));
        let further = wallet.pay(1, pay(&[25_000]), QUICK).await.unwrap();
        wallet.mine(1, &what("a payout in the other branch")).await;
        wallet.node.back_to(&lost).await;
        wallet.sync().await;
        wallet.resend(&what("back")).await;
        assert!(wallet.status(new.hash).await.unwrap().1.is_some());
        assert_eq!(wallet.status(old.hash).await, Some((Status::Failed, None)));
        assert_eq!(wallet.status(further.hash).await.unwrap().0, Status::Published);
        wallet.mine(2, &what("on")).await;
    }
}

/// A coinbase of ours that was spent is of another branch: what spends it cannot be.
async fn orphans(wallet: &mut Wallet<'_>) {
    wallet.node.mine_to(1, &our_address(1, 0, KINDS[0])).await;
    wallet.mine(100, "mature").await;
    let all = wallet.db.balance(wallet.id, wallet.now).await.unwrap()[&1];
    let all = u64::try_from(all.confirmed + all.unconfirmed).unwrap();
    let payout = wallet.pay(1, pay(&[all - 2_000_000]), QUICK).await.unwrap();
    wallet.mine(1, "a coinbase is spent").await;
    let child = wallet.pay(1, pay(&[1_000_000]), QUICK).await.unwrap();
    assert_eq!(child.plan.coins[0].outpoint.hash, payout.hash);
    wallet.sync_and_agree("and its change").await;
    let lost = wallet.reorg(102, &[], "the coinbase is gone").await;
    assert_eq!(wallet.status(payout.hash).await, Some((Status::Failed, None)));
    assert_eq!(wallet.status(child.hash).await, Some((Status::Failed, None)));
    wallet.node.back_to(&lost).await;
    wallet.sync().await;
    wallet.resend("the coinbase is back").await;
    assert!(wallet.status(payout.hash).await.unwrap().1.is_some());
    assert_eq!(wallet.status(child.hash).await, Some((Status::Published, None)));
}
