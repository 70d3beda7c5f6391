//! Transactions that depend on strangers' unconfirmed ones, and transactions that come back, on a real node.

use custody::bitcoin::{Aim, ScriptKind, Target, tx_of_bytes};
use store::Engine;
use store::testing::on;
use store::utxo::{Allow, Hash, Status};

use crate::node::{Node, coin_of, purse};
use crate::wallet::{KINDS, Payout, QUICK, Wallet, our_address, our_script};
use crate::world::pay;

fn hash_of(raw: &[u8]) -> Hash {
    tx_of_bytes(raw).unwrap().hash
}

const FOREIGN: Allow = Allow { pending: false, unconfirmed_foreign: true, settled: None };

/// Spends all that the account has, a waiting deposit too.
async fn spend_all(wallet: &mut Wallet<'_>, amount: u64) -> Payout {
    let target = Target { recipients: pay(&[amount]), change: ScriptKind::P2tr, costs: QUICK, aim: Aim::Pay };
    let (payout, lock) = wallet.make(0, &target, &our_script(0, 2, KINDS[1]), FOREIGN).await.unwrap();
    wallet.db.add_pending(wallet.id, &payout.new_tx(), Some(lock), wallet.now).await.unwrap();
    wallet.broadcast(&payout).await;
    payout
}

/// A stranger pays us out of a transaction that waits, we spend it together with a confirmed coin, and the stranger
/// replaces his transaction.
#[test]
fn a_deposit_that_bitcoind_can_never_mine_ends_by_itself_and_comes_back_with_the_chain() {
    on(Engine::Sqlite, async |db| {
        let node = Node::start().await;
        let chain = node.client();
        let mut wallet = Wallet::open(db, &chain, node).await;
        wallet.deposit(&[(our_address(0, 0, KINDS[1]), 500_000)], 3_000).await;
        wallet.mine(1, "a confirmed coin").await;
        let coin = wallet.node.purse.pop().unwrap();
        let whole = coin.amount_sat;
        let parent = wallet.node.foreign(std::slice::from_ref(&coin), &[(purse(), whole - 2_000)]);
        wallet.node.send(&parent).await.unwrap();
        // It is seen before there is a reason to keep it.
        wallet.sync_and_agree("a stranger's").await;
        assert_eq!(wallet.status(hash_of(&parent)).await, None);
        let ours = (our_address(0, 1, KINDS[1]), 1_000_000);
        let deposit = wallet.node.pays(&coin_of(&parent, 0), &[ours], 3_000);
        wallet.node.send(&deposit).await.unwrap();
        wallet.sync_and_agree("a deposit waits").await;
        assert_eq!(wallet.status(hash_of(&parent)).await, Some((Status::Published, None)));
        let payout = spend_all(&mut wallet, 1_400_000).await;
        assert_eq!(payout.plan.coins.len(), 2, "the deposit and the confirmed coin");
        wallet.sync_and_agree("both are spent").await;

        let rival = wallet.node.foreign(std::slice::from_ref(&coin), &[(purse(), whole - 200_000)]);
        wallet.node.mine_only(std::slice::from_ref(&rival)).await;
        wallet.sync_and_agree("the deposit is gone").await;
        for lost in [hash_of(&parent), hash_of(&deposit), payout.hash] {
            assert_eq!(wallet.status(lost).await, Some((Status::Failed, None)));
        }
        let free: Vec<i64> =
            wallet.outputs().await.into_iter().filter(|one| one.spent_by.is_none()).map(|one| one.amount).collect();
        assert!(free.contains(&500_000), "the confirmed coin is free again: {free:?}");
        let balance = wallet.db.balance(wallet.id, wallet.now).await.unwrap()[&0];
        assert_eq!((balance.confirmed, balance.unconfirmed), (500_000, 0));

        wallet.node.reorg(1, &[parent.clone(), deposit.clone()]).await;
        wallet.sync().await;
        assert!(matches!(wallet.status(hash_of(&deposit)).await, Some((Status::Published, Some(_)))));
        assert_eq!(wallet.status(payout.hash).await, Some((Status::Published, None)));
        wallet.node.send(&payout.raw).await.unwrap();
        wallet.mine(1, "the payout is mined after all").await;
        assert!(matches!(wallet.status(payout.hash).await, Some((Status::Published, Some(_)))));
    });
}

/// The parent was in a block when the deposit came; the branch that wins has another.
#[test]
fn a_deposit_ends_when_bitcoind_reorganises_its_parent_away() {
    on(Engine::Sqlite, async |db| {
        let node = Node::start().await;
        let chain = node.client();
        let mut wallet = Wallet::open(db, &chain, node).await;
        wallet.sync().await;
        let coin = wallet.node.purse.pop().unwrap();
        let whole = coin.amount_sat;
        let parent = wallet.node.foreign(std::slice::from_ref(&coin), &[(purse(), whole - 2_000)]);
        wallet.node.mine_only(std::slice::from_ref(&parent)).await;
        let ours = (our_address(0, 1, KINDS[1]), 1_000_000);
        let deposit = wallet.node.pays(&coin_of(&parent, 0), &[ours], 3_000);
        wallet.node.send(&deposit).await.unwrap();
        wallet.sync_and_agree("a deposit waits").await;
        assert_eq!(wallet.status(hash_of(&parent)).await, None, "its parent is in a block");
        let rival = wallet.node.foreign(std::slice::from_ref(&coin), &[(purse(), whole - 200_000)]);
        let lost = wallet.node.reorg(1, &[rival]).await;
        wallet.sync_and_agree("another branch").await;
        assert_eq!(wallet.status(hash_of(&deposit)).await, Some((Status::Failed, None)));
        assert_eq!(wallet.db.balance(wallet.id, wallet.now).await.unwrap()[&0].unconfirmed, 0);
        wallet.node.back_to(&lost).await;
        wallet.sync().await;
        assert_eq!(wallet.status(hash_of(&deposit)).await, Some((Status::Published, None)));
        // The node may have forgotten it meanwhile.
        if wallet.node.mempool().await.is_empty() {
            wallet.node.send(&deposit).await.unwrap();
        }
        wallet.sync_and_agree("the first branch").await;
    });
}

/// The stranger replaces his payment, the replacement is forgotten, and the first one is sent again.
#[test]
fn what_was_replaced_and_is_in_the_mempool_of_bitcoind_again_stands() {
    on(Engine::Sqlite, async |db| {
        let node = Node::start().await;
        let chain = node.client();
        let mut wallet = Wallet::open(db, &chain, node).await;
        wallet.deposit(&[(our_address(0, 0, KINDS[1]), 500_000)], 3_000).await;
        wallet.mine(1, "a confirmed coin").await;
        let coin = wallet.node.purse.pop().unwrap();
        let first = wallet.node.pays(&coin, &[(our_address(0, 1, KINDS[1]), 1_000_000)], 3_000);
        wallet.node.send(&first).await.unwrap();
        wallet.sync_and_agree("the first").await;
        let payout = spend_all(&mut wallet, 1_400_000).await;
        let rival = wallet.node.pays(&coin, &[(our_address(0, 1, KINDS[1]), 900_000)], 100_000);
        wallet.node.send(&rival).await.unwrap();
        wallet.sync_and_agree("replaced").await;
        assert_eq!(wallet.status(hash_of(&first)).await, Some((Status::Replaced, None)));
        assert_eq!(wallet.status(payout.hash).await, Some((Status::Failed, None)));
        wallet.node.restart().await;
        wallet.node.send(&first).await.unwrap();
        wallet.node.send(&payout.raw).await.unwrap();
        wallet.sync().await;
        assert_eq!(wallet.status(hash_of(&first)).await, Some((Status::Replaced, None)), "the rival may be on its way");
        wallet.now = wallet.now.plus_micros(61_000_000);
        wallet.sync_and_agree("it is there again").await;
        assert_eq!(wallet.status(hash_of(&first)).await, Some((Status::Published, None)));
        assert_eq!(wallet.status(payout.hash).await, Some((Status::Published, None)));
        assert_eq!(wallet.status(hash_of(&rival)).await, Some((Status::Replaced, None)));
        assert!(wallet.outputs().await.iter().all(|one| one.amount != 500_000 || one.spent_by == Some(payout.hash)));
        wallet.mine(1, "mined").await;
        assert!(matches!(wallet.status(payout.hash).await, Some((Status::Published, Some(_)))));
    });
}
