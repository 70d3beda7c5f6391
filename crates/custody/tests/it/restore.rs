//! A backup is put back, while the node went on.

use chain::ChainError;
use custody::bitcoin::{Aim, FollowError, ScriptKind, Target, tx_of_bytes};
use store::testing::{NOW, on};
use store::utxo::{Allow, Hash, ListFilter, Status, UtxoError, UtxoRefusal, WalletStatus, Want};
use store::{Db, Engine, Options};

use crate::node::Node;
use crate::wallet::{KINDS, Payout, QUICK, SLOW, Wallet, our_address, our_script};
use crate::world::pay;

/// What has happened since the backup.
struct Since {
    /// Was waiting in the backup; replaced since, and the replacement mined.
    replaced: Payout,
    replacement: Payout,
    /// Was waiting in the backup, and is waiting still.
    waiting: Payout,
    /// Was made and not sent when the backup was taken, and is not sent yet.
    pending: Payout,
    /// Was in a block; a reorg took it out, and a double spend took its coin.
    unmined: Hash,
    /// Made since, mined and not mined.
    made: Vec<Payout>,
}

async fn before(wallet: &mut Wallet<'_>) -> (Payout, Payout, Payout) {
    for key in 0..3 {
        for kind in KINDS {
            wallet.deposit(&[(our_address(0, key, kind), 900_000), (our_address(1, key, kind), 500_000)], 3_000).await;
        }
    }
    wallet.mine(5, "coins").await;
    let replaced = wallet.pay(0, pay(&[100_000]), SLOW).await.unwrap();
    let waiting = wallet.pay(1, pay(&[50_000, 60_000]), SLOW).await.unwrap();
    let target = Target { recipients: pay(&[70_000]), change: ScriptKind::P2tr, costs: QUICK, aim: Aim::Pay };
    let pending = wallet.prepare(0, &target, &our_script(0, 2, KINDS[1])).await.unwrap();
    (replaced, waiting, pending)
}

async fn after(wallet: &mut Wallet<'_>, open: (Payout, Payout, Payout), coin: &tx::Input, unmined: Hash) -> Since {
    let (replaced, waiting, pending) = open;
    // The branch of the backup is left, and a double spend is in the other one.
    let double = wallet.node.pays(coin, &[(our_address(1, 0, KINDS[0]), 123_000)], 9_000);
    wallet.reorg(3, &[double], "a reorg since").await;
    let replacement = wallet.replace(&replaced, QUICK).await.unwrap();
    wallet.node.mine_only(std::slice::from_ref(&replacement.raw)).await;
    wallet.sync().await;
    wallet.resend("replaced and mined since").await;
    let mined = wallet.pay(0, pay(&[200_000]), QUICK).await.unwrap();
    wallet.node.mine_only(std::slice::from_ref(&mined.raw)).await;
    wallet.sync().await;
    wallet.resend("mined since").await;
    let mut made = vec![mined];
    for count in [1, 2, 100] {
        made.push(wallet.pay(0, pay(&vec![3_000; count]), QUICK).await.unwrap());
    }
    // A deposit since, passed on since without change: nothing of it is in the backup.
    let deposit = wallet.deposit(&[(our_address(1, 1, KINDS[1]), 7_000_000)], 3_000).await;
    wallet.sync().await;
    let target =
        Target { recipients: pay(&[7_000_000 - 1_500]), change: ScriptKind::P2tr, costs: QUICK, aim: Aim::Pay };
    let allow = Allow { unconfirmed_foreign: true, settled: None, ..Allow::default() };
    let (passed_on, lock) = wallet.make(1, &target, &our_script(1, 2, KINDS[1]), allow).await.unwrap();
    assert_eq!(passed_on.plan.coins[0].outpoint.hash, tx_of_bytes(&deposit).unwrap().hash);
    wallet.db.add_pending(wallet.id, &passed_on.new_tx(), Some(lock), wallet.now).await.unwrap();
    wallet.broadcast(&passed_on).await;
    made.push(passed_on);
    wallet.sync().await;
    wallet.resend("waiting since").await;
    Since { replaced, replacement, waiting, pending, unmined, made }
}

#[test]
fn a_backup_is_brought_up_to_date_from_bitcoind() {
    on(Engine::Sqlite, async |db| {
        let node = Node::start().await;
        let chain = node.client();
        let mut wallet = Wallet::open(db, &chain, node).await;
        let open = before(&mut wallet).await;
        let coin = wallet.node.purse.last().unwrap().clone();
        let unmined = wallet.deposit(&[(our_address(1, 2, KINDS[0]), 345_000)], 3_000).await;
        wallet.node.mine_only(std::slice::from_ref(&unmined)).await;
        wallet.node.mine_only(&[]).await;
        wallet.sync().await;
        wallet.agree("the backup", &[open.2.hash]).await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("backup.db");
        db.by_hand(&format!("VACUUM INTO '{}'", file.display())).await.unwrap();
        let since = after(&mut wallet, open, &coin, tx_of_bytes(&unmined).unwrap().hash).await;

        let backup = Db::connect(&format!("sqlite://{}", file.display()), &Options::default()).await.unwrap();
        let Wallet { node, now, .. } = wallet;
        let mut wallet = Wallet::open(&backup, &chain, node).await;
        wallet.now = now;
        nothing_is_selected_before(&mut wallet).await;
        let restored = wallet.follow.restore(wallet.id, now, |_, _| ()).await.unwrap();
        assert_eq!(backup.wallets().await.unwrap()[0].status, WalletStatus::Active);
        assert_eq!(restored.unheard, [since.pending.hash]);
        assert!(restored.waiting.contains(&since.waiting.hash));
        assert!(since.made[1..].iter().all(|payout| restored.waiting.contains(&payout.hash)));
        wallet.agree("restored", &[since.pending.hash]).await;
        all_is_known(&wallet, &since).await;
        // It may have been sent after the backup, so it cannot be given up. It can be sent.
        let refused = wallet.db.abandon(since.pending.hash, "test", "no longer wanted", now).await.unwrap_err();
        assert_eq!(refused.code(), "UTXO_NOT_PENDING");
        wallet.broadcast(&since.pending).await;
        // It goes on as if nothing had been.
        for account in 0..2 {
            wallet.pay(account, pay(&[300_000]), QUICK).await.unwrap();
            wallet.sync_and_agree("a payout after all").await;
        }
        wallet.mine(1, "mined").await;
        assert_eq!(backup.unconfirmed(wallet.id).await.unwrap(), []);
        backup.close().await;
    });
}

async fn nothing_is_selected_before(wallet: &mut Wallet<'_>) {
    wallet.db.begin_restore(wallet.id, wallet.now).await.unwrap();
    let want = Want { target: 1, allow: Allow::default(), seed: 0 };
    for account in 0..2 {
        let refused = wallet.db.candidates(wallet.id, account, &want, wallet.now).await;
        assert!(matches!(refused, Err(UtxoError::Refused(UtxoRefusal::Restoring))), "{refused:?}");
        let lock = store::utxo::LockId([1; 32]);
        let until = wallet.now.plus_micros(1_000_000);
        let choose = |_: &[store::utxo::Candidate]| panic!("nothing is offered");
        let refused = wallet.db.select_and_lease(wallet.id, account, &want, lock, until, wallet.now, choose).await;
        assert!(matches!(refused, Err(UtxoError::Refused(UtxoRefusal::Restoring))), "{refused:?}");
    }
    // Blocks alone do not end it.
    wallet.follow.step(1, wallet.now).await.unwrap();
    assert!(wallet.db.candidates(wallet.id, 0, &want, wallet.now).await.is_err());
}

async fn all_is_known(wallet: &Wallet<'_>, since: &Since) {
    assert_eq!(wallet.status(since.replaced.hash).await, Some((Status::Failed, None)));
    assert!(wallet.status(since.replacement.hash).await.unwrap().1.is_some());
    assert_eq!(wallet.status(since.waiting.hash).await, Some((Status::Published, None)));
    assert_eq!(wallet.status(since.pending.hash).await, Some((Status::Published, None)));
    assert_eq!(wallet.status(since.unmined).await, Some((Status::Failed, None)));
    let filter = ListFilter { account: None, unspent_only: false, after: None, most: 100_000 };
    let rows = wallet.db.list_outputs(wallet.id, &filter, wallet.now).await.unwrap();
    for payout in since.made.iter().chain([&since.replacement, &since.waiting, &since.pending]) {
        for coin in &payout.plan.coins {
            let row = rows.iter().find(|row| row.outpoint == coin.outpoint).unwrap();
            assert_eq!(row.spent_by, Some(payout.hash), "no candidate: {row:?}");
        }
    }
}

/// A node that is not as far as the backup cannot say what has happened since.
#[test]
fn a_backup_stays_closed_while_bitcoind_is_behind_it() {
    on(Engine::Sqlite, async |db| {
        let node = Node::start().await;
        let chain = node.client();
        let mut wallet = Wallet::open(db, &chain, node).await;
        wallet.deposit(&[(our_address(0, 0, KINDS[0]), 900_000)], 3_000).await;
        wallet.mine(3, "a coin").await;
        let lost = wallet.node.hash_at(wallet.node.height().await - 1).await;
        wallet.node.invalidate(&lost).await;
        let restored = wallet.follow.restore(wallet.id, NOW, |_, _| ()).await;
        assert!(matches!(restored, Err(FollowError::Chain(ChainError::BlockMissing { .. }))), "{restored:?}");
        assert_eq!(db.wallets().await.unwrap()[0].status, WalletStatus::Restoring);
        assert!(
            wallet
                .db
                .candidates(wallet.id, 0, &Want { target: 1, allow: Allow::default(), seed: 0 }, NOW)
                .await
                .is_err()
        );
        wallet.node.mine(3).await;
        wallet.follow.restore(wallet.id, NOW, |_, _| ()).await.unwrap();
        assert_eq!(db.wallets().await.unwrap()[0].status, WalletStatus::Active);
        wallet.agree("caught up", &[]).await;
    });
}
