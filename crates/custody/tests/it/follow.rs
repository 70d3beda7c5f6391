//! How the store is kept in step with a real node: what lags, what moves while it is read, what comes in another order.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bitcoin::consensus::encode::serialize_hex;
use bitcoin::consensus::{deserialize, serialize};
use bitcoin::hex::FromHex;
use bitcoin::{Transaction, TxIn};
use custody::bitcoin::{Aim, Follow, FollowError, ScriptKind, Step, Target, block_of, tx_of_bytes};
use serde_json::json;
use store::Engine;
use store::testing::{NOW, TestDb, fresh, on};
use store::utxo::{Allow, Hash, Imported, OutPoint, Status};

use crate::node::Node;
use crate::wallet::{KINDS, Payout, QUICK, Wallet, our_address, our_script};
use crate::world::pay;

async fn another() -> TestDb {
    let db = fresh(Engine::Sqlite).await;
    db.migrate(NOW).await.unwrap();
    db
}

/// Pays all of a waiting deposit to others, so that the transaction which spends it pays us nothing.
async fn passed_on(wallet: &mut Wallet<'_>) -> (Hash, Payout) {
    let deposit = wallet.deposit(&[(our_address(0, 0, KINDS[1]), 1_000_000)], 3_000).await;
    wallet.sync().await;
    let target =
        Target { recipients: pay(&[1_000_000 - 1_500]), change: ScriptKind::P2tr, costs: QUICK, aim: Aim::Pay };
    let allow = Allow { unconfirmed_foreign: true, settled: None, ..Allow::default() };
    let (payout, lock) = wallet.make(0, &target, &our_script(0, 2, KINDS[1]), allow).await.unwrap();
    assert_eq!(payout.plan.change, None);
    wallet.db.add_pending(wallet.id, &payout.new_tx(), Some(lock), wallet.now).await.unwrap();
    wallet.broadcast(&payout).await;
    (tx_of_bytes(&deposit).unwrap().hash, payout)
}

#[test]
fn a_bitcoind_that_lags_undoes_nothing() {
    on(Engine::Sqlite, async |db| {
        let node = Node::start().await;
        let chain = node.client();
        let mut wallet = Wallet::open(db, &chain, node).await;
        wallet.deposit(&[(our_address(0, 0, KINDS[0]), 50_000)], 3_000).await;
        wallet.mine(3, "a deposit").await;
        let (tip, known) = (db.tip().await.unwrap(), wallet.outputs().await);
        let lost = wallet.node.hash_at(wallet.node.height().await - 2).await;
        wallet.node.invalidate(&lost).await;
        assert_eq!(wallet.follow.step(10, NOW).await.unwrap(), Step::Idle);
        wallet.sync().await;
        assert_eq!((db.tip().await.unwrap(), wallet.outputs().await), (tip, known), "three blocks fewer");
        // Another branch, and still lower: it is not known yet which of the two will win.
        wallet.node.mine_only(&[]).await;
        assert_eq!(wallet.follow.step(10, NOW).await.unwrap(), Step::Idle);
        assert_eq!(db.tip().await.unwrap(), tip);
        wallet.node.mine_only(&[]).await;
        wallet.node.mine_only(&[]).await;
        let (height, _) = tip.unwrap();
        assert_eq!(wallet.follow.step(10, NOW).await.unwrap(), Step::Back(height - 3), "as high as ours");
        wallet.sync_and_agree("the other branch").await;
    });
}

#[test]
fn bitcoind_reorganises_while_it_is_read() {
    on(Engine::Sqlite, async |db| {
        let node = Node::start().await;
        let chain = node.client();
        let mut wallet = Wallet::open(db, &chain, node).await;
        wallet.node.mine_to(10, &our_address(1, 0, KINDS[0])).await;
        let top = wallet.node.height().await;
        while db.tip().await.unwrap().is_none_or(|(height, _)| height + 6 < top) {
            assert!(matches!(wallet.follow.step(5, NOW).await.unwrap(), Step::Forward(_)));
        }
        wallet.node.reorg(9, &[]).await;
        let (height, _) = db.tip().await.unwrap().unwrap();
        assert!(height > top - 9);
        assert_eq!(wallet.follow.step(2, NOW).await.unwrap(), Step::Back(top - 9));
        assert_eq!(wallet.follow.step(2, NOW).await.unwrap(), Step::Forward(top - 7));
        wallet.node.reorg(10, &[]).await;
        assert_eq!(wallet.follow.step(2, NOW).await.unwrap(), Step::Back(top - 9), "the fork is at the same place");
        wallet.sync_and_agree("in the end").await;
    });
}

/// Between asking for headers and asking for blocks the node leaves the branch.
#[test]
fn bitcoind_forgets_a_block_between_two_questions() {
    on(Engine::Sqlite, async |db| {
        let node = Node::start().await;
        let forgetful = Arc::new(AtomicBool::new(false));
        let forgets = Arc::clone(&forgetful);
        let chain = node.client_through(move |method, answer| {
            if method == "getblock" && forgets.load(Ordering::SeqCst) {
                *answer = json!({ "id": answer["id"], "error": { "code": -5, "message": "Block not found" } });
            }
        });
        let mut wallet = Wallet::open(db, &chain, node).await;
        wallet.sync_and_agree("as always").await;
        wallet.node.mine(1).await;
        let tip = db.tip().await.unwrap();
        forgetful.store(true, Ordering::SeqCst);
        assert_eq!(wallet.follow.step(10, NOW).await.unwrap(), Step::Idle);
        assert_eq!(db.tip().await.unwrap(), tip);
        let restored = wallet.follow.restore(wallet.id, NOW, |_, _| ()).await;
        assert!(
            matches!(&restored, Err(FollowError::Chain(error)) if error.code() == "CHAIN_BLOCK_MISSING"),
            "{restored:?}"
        );
        forgetful.store(false, Ordering::SeqCst);
        wallet.follow.restore(wallet.id, NOW, |_, _| ()).await.unwrap();
        wallet.sync_and_agree("it remembers").await;
    });
}

#[test]
fn a_child_that_bitcoind_lists_before_its_parent_is_known() {
    on(Engine::Sqlite, async |db| {
        let node = Node::start().await;
        let chain = node.client();
        let mut wallet = Wallet::open(db, &chain, node).await;
        wallet.sync().await;
        let (deposit, payout) = passed_on(&mut wallet).await;
        wallet.sync_and_agree("whoever made it knows it").await;
        let Wallet { node, .. } = wallet;
        let listed: Vec<String> = node.call("getrawmempool", json!([])).await;
        assert_eq!(listed, [deposit.to_string(), payout.hash.to_string()], "Core's order");

        let backwards = node.client_through(|method, answer| {
            if method == "getrawmempool" {
                answer["result"].as_array_mut().unwrap().reverse();
            }
        });
        let db = another().await;
        let mut wallet = Wallet::open(&db, &backwards, node).await;
        wallet.sync_and_agree("backwards").await;
        assert_eq!(wallet.status(payout.hash).await, Some((Status::Published, None)));
        assert_eq!(wallet.outputs().await, []);
    });
}

/// It was read when the store had not the block yet that makes it ours.
#[test]
fn what_bitcoind_showed_too_early_is_shown_again() {
    on(Engine::Sqlite, async |db| {
        let node = Node::start().await;
        let chain = node.client();
        let mut wallet = Wallet::open(db, &chain, node).await;
        wallet.sync().await;
        let (deposit, payout) = passed_on(&mut wallet).await;
        let raw = db.transaction(wallet.id, deposit, NOW).await.unwrap().unwrap().raw;
        let Wallet { mut node, .. } = wallet;

        let db = another().await;
        let mut wallet = {
            node.mine(1).await;
            let tip = node.height().await;
            let lost = node.hash_at(tip).await;
            node.invalidate(&lost).await;
            Wallet::open(&db, &chain, node).await
        };
        while wallet.follow.step(50, NOW).await.unwrap() != Step::Idle {}
        wallet.node.mine_only(&[raw]).await;
        assert_eq!(wallet.follow.look(NOW).await.unwrap(), 1, "a payout of somebody, it seems");
        assert_eq!(wallet.status(payout.hash).await, None);
        wallet.sync_and_agree("the block is read").await;
        assert_eq!(wallet.status(payout.hash).await, Some((Status::Published, None)));
        assert_eq!(wallet.follow.look(NOW).await.unwrap(), 0, "once is enough now");
    });
}

/// It was read when the store still had the block that makes it impossible.
#[test]
fn what_bitcoind_showed_before_a_reorg_is_shown_again() {
    on(Engine::Sqlite, async |db| {
        let node = Node::start().await;
        let chain = node.client();
        let mut wallet = Wallet::open(db, &chain, node).await;
        let coin = wallet.node.purse.pop().unwrap();
        // So cheap that no mempool takes it, but a miner may.
        let mined = wallet.node.pays(&coin, &[(our_address(0, 0, KINDS[0]), 90_000)], 1);
        let other = wallet.node.pays(&coin, &[(our_address(0, 1, KINDS[0]), 80_000)], 5_000);
        wallet.node.mine_only(std::slice::from_ref(&mined)).await;
        wallet.sync_and_agree("mined").await;
        let lost = wallet.node.hash_at(wallet.node.height().await).await;
        wallet.node.invalidate(&lost).await;
        wallet.node.mine_only(&[]).await;
        wallet.node.send(&other).await.unwrap();
        assert_eq!(wallet.follow.look(NOW).await.unwrap(), 1);
        wallet.sync_and_agree("the other waits").await;
        assert_eq!(wallet.status(tx_of_bytes(&other).unwrap().hash).await, Some((Status::Published, None)));
        assert_eq!(wallet.status(tx_of_bytes(&mined).unwrap().hash).await, Some((Status::Replaced, None)));
    });
}

/// It left the mempool between the list and the question for its bytes, and came back.
#[test]
fn what_bitcoind_could_not_show_is_asked_for_again() {
    on(Engine::Sqlite, async |db| {
        let node = Node::start().await;
        let away = Arc::new(AtomicBool::new(true));
        let hidden = Arc::clone(&away);
        let chain = node.client_through(move |method, answer| {
            if method == "getrawtransaction" && hidden.load(Ordering::SeqCst) {
                *answer =
                    json!({ "id": answer["id"], "error": { "code": -5, "message": "No such mempool transaction." } });
            }
        });
        let mut wallet = Wallet::open(db, &chain, node).await;
        wallet.sync().await;
        wallet.deposit(&[(our_address(0, 0, KINDS[0]), 50_000)], 3_000).await;
        assert_eq!(wallet.follow.look(NOW).await.unwrap(), 0);
        away.store(false, Ordering::SeqCst);
        assert_eq!(wallet.follow.look(NOW).await.unwrap(), 1);
        wallet.agree("it is back", &[]).await;
    });
}

/// It lists a transaction that cannot be: it spends a coin once more, and what came of spending it.
#[test]
fn a_bitcoind_that_invents_a_transaction_hides_no_other() {
    on(Engine::Sqlite, async |db| {
        let node = Node::start().await;
        let invented: Arc<Mutex<Option<(String, String)>>> = Arc::default();
        let says = Arc::clone(&invented);
        let chain = node.client_through(move |method, answer| {
            let said = says.lock().unwrap();
            let Some((hash, hex)) = said.as_ref() else { return };
            match method {
                "getrawmempool" => answer["result"].as_array_mut().unwrap().insert(0, json!(hash)),
                "getrawtransaction" if !answer["error"].is_null() => {
                    *answer = json!({ "id": answer["id"], "result": hex });
                }
                _ => {}
            }
        });
        let mut wallet = Wallet::open(db, &chain, node).await;
        let real = wallet.deposit(&[(our_address(0, 0, KINDS[0]), 500_000)], 3_000).await;
        wallet.sync_and_agree("a deposit").await;
        let mut lie: Transaction = deserialize(&real).unwrap();
        let txid = lie.compute_txid();
        lie.input.push(TxIn { previous_output: bitcoin::OutPoint { txid, vout: 0 }, ..lie.input[0].clone() });
        *invented.lock().unwrap() = Some((lie.compute_txid().to_string(), serialize_hex(&lie)));
        wallet.deposit(&[(our_address(0, 1, KINDS[0]), 600_000)], 3_000).await;
        wallet.sync_and_agree("another deposit").await;
        assert_eq!(wallet.outputs().await.len(), 2);
    });
}

#[test]
fn a_follower_that_begins_anew_shows_bitcoinds_mempool_again_and_changes_nothing() {
    on(Engine::Sqlite, async |db| {
        let node = Node::start().await;
        let chain = node.client();
        let mut wallet = Wallet::open(db, &chain, node).await;
        for key in 0..3 {
            wallet.deposit(&[(our_address(0, key, KINDS[0]), 50_000)], 3_000).await;
        }
        wallet.sync_and_agree("three wait").await;
        assert_eq!(wallet.follow.look(NOW).await.unwrap(), 0);
        let hashes: Vec<Hash> = db.unconfirmed(wallet.id).await.unwrap().iter().map(|one| one.0).collect();
        let mut before = Vec::new();
        for hash in &hashes {
            before.push(db.transaction_events(wallet.id, *hash).await.unwrap());
        }
        wallet.follow = Follow::new(db, &chain, 1);
        assert_eq!(wallet.follow.look(NOW).await.unwrap(), 3);
        for (hash, before) in hashes.iter().zip(before) {
            assert_eq!(db.transaction_events(wallet.id, *hash).await.unwrap(), before);
        }
        wallet.agree("as before", &[]).await;
    });
}

/// A history from elsewhere: some blocks, far apart. The follower goes on above them, and finds its way back among them.
#[test]
fn an_imported_history_is_followed_on_bitcoind() {
    on(Engine::Sqlite, async |db| {
        let node = Node::start().await;
        let chain = node.client();
        let mut wallet = Wallet::open(db, &chain, node).await;
        let mut history = Vec::new();
        for gap in [60, 50, 7, 1] {
            let raw = wallet.deposit(&[(our_address(0, 0, KINDS[1]), 70_000)], 3_000).await;
            wallet.node.mine(1).await;
            history.push(imported(&wallet.node, &raw).await);
            wallet.node.mine(gap).await;
        }
        db.import_transactions(&history, NOW).await.unwrap();
        let tops: Vec<u32> = history.iter().map(|one| one.block.unwrap().0).collect();
        assert_eq!(db.tip().await.unwrap().unwrap().0, tops[3]);
        wallet.sync_and_agree("the last block").await;
        wallet.deposit(&[(our_address(1, 0, KINDS[1]), 70_000)], 3_000).await;
        wallet.mine(2, "on").await;
        // Below the newest imported blocks, where no block of ours is for a long way.
        let depth = wallet.node.height().await - tops[1] - 5;
        wallet.node.reorg(depth, &[]).await;
        assert_eq!(wallet.follow.step(1_000, NOW).await.unwrap(), Step::Back(tops[1]));
        wallet.sync().await;
        wallet.resend("another branch").await;
        assert_eq!(wallet.status(history[1].tx.hash).await.unwrap().1, Some(tops[1]));
        assert_eq!(wallet.status(history[2].tx.hash).await, Some((Status::Published, None)));
        // Below all of them there is nothing to hold on to.
        let depth = wallet.node.height().await - tops[0] + 2;
        wallet.node.reorg(depth, &[]).await;
        let deep = wallet.follow.step(10, NOW).await;
        assert!(matches!(deep, Err(FollowError::ForkTooDeep { height }) if height == tops[0]), "{deep:?}");
    });
}

async fn imported(node: &Node, raw: &[u8]) -> Imported {
    let height = node.height().await;
    let hash = node.hash_at(height).await;
    let hex: String = node.call("getblock", json!([hash, 0])).await;
    let block: bitcoin::Block = deserialize(&Vec::from_hex(&hex).unwrap()).unwrap();
    assert!(block.txdata.iter().any(|one| serialize(one) == raw));
    let (block, _) = block_of(height, &block).unwrap();
    Imported { tx: tx_of_bytes(raw).unwrap(), block: Some((height, block.hash, block.time)), lost: false }
}

#[test]
fn a_deposit_that_was_out_bid_on_bitcoind_takes_its_children_with_it() {
    on(Engine::Sqlite, async |db| {
        let node = Node::start().await;
        let chain = node.client();
        let mut wallet = Wallet::open(db, &chain, node).await;
        wallet.sync().await;
        let coin = wallet.node.purse.pop().unwrap();
        let first = wallet.node.pays(&coin, &[(our_address(0, 0, KINDS[0]), 500_000)], 2_000);
        wallet.node.send(&first).await.unwrap();
        wallet.sync().await;
        let outpoint = OutPoint { hash: tx_of_bytes(&first).unwrap().hash, index: 0 };
        let child = wallet.push(outpoint, QUICK).await;
        wallet.node.send(&wallet.node.pays(&coin, &[], 50_000)).await.unwrap();
        wallet.sync_and_agree("out-bid").await;
        assert_eq!(wallet.status(outpoint.hash).await, Some((Status::Replaced, None)));
        assert_eq!(wallet.status(child.hash).await, Some((Status::Failed, None)));
        assert_eq!(wallet.outputs().await, []);
    });
}

#[test]
fn a_bitcoind_is_read_again_for_an_address_that_came_late() {
    on(Engine::Sqlite, async |db| {
        let node = Node::start().await;
        let chain = node.client();
        let mut wallet = Wallet::open(db, &chain, node).await;
        wallet.deposit(&[(our_address(0, 0, KINDS[0]), 50_000)], 3_000).await;
        wallet.mine(3, "a deposit").await;
        let late = another().await;
        let id = late.create_wallet("late", store::utxo::Network::Regtest, NOW).await.unwrap();
        let mut follow = Follow::new(&late, &chain, 0);
        while follow.step(200, NOW).await.unwrap() != Step::Idle {}
        let script = our_script(0, 0, KINDS[0]);
        let path = Some(store::utxo::Path { branch: 0, index: 0 });
        let address = store::utxo::NewAddress { account: 0, path, kind: KINDS[0], script: script.clone() };
        late.add_addresses(id, &[address], store::utxo::Paths::Exact, NOW).await.unwrap();
        assert_eq!(late.balance(id, NOW).await.unwrap()[&0].confirmed, 0, "those blocks went by");
        let mut read = 0;
        let mut last = None;
        follow.rescan(0, NOW, |height, left| (read, last) = (read + 1, Some((height, left)))).await.unwrap();
        let (tip, _) = late.tip().await.unwrap().unwrap();
        assert_eq!((read, last), ((tip + 1).div_ceil(32), Some((tip, 0))));
        let wanted: i64 = wallet.node.unspent(&[script]).await.iter().map(|one| one.amount).sum();
        assert_eq!(late.balance(id, NOW).await.unwrap()[&0].confirmed, wanted);
        assert!(wanted >= 50_000);
        assert_eq!(custody::bitcoin::check(&late, |_| ()).await.unwrap(), []);
    });
}

#[test]
fn a_block_of_an_import_that_bitcoind_does_not_have_goes() {
    on(Engine::Sqlite, async |db| {
        let node = Node::start().await;
        let chain = node.client();
        let mut wallet = Wallet::open(db, &chain, node).await;
        let first = wallet.deposit(&[(our_address(0, 0, KINDS[0]), 50_000)], 3_000).await;
        wallet.mine(1, "a deposit").await;
        let second = wallet.deposit(&[(our_address(0, 0, KINDS[0]), 60_000)], 3_000).await;
        wallet.mine(1, "another").await;
        let (height, hash) = db.tip().await.unwrap().unwrap();
        let late = another().await;
        let id = late.create_wallet("late", store::utxo::Network::Regtest, NOW).await.unwrap();
        let path = Some(store::utxo::Path { branch: 0, index: 0 });
        let script = our_script(0, 0, KINDS[0]);
        let address = store::utxo::NewAddress { account: 0, path, kind: KINDS[0], script };
        late.add_addresses(id, std::slice::from_ref(&address), store::utxo::Paths::Exact, NOW).await.unwrap();
        let imported = [
            Imported { tx: tx_of_bytes(&first).unwrap(), block: Some((height - 1, Hash([0x5a; 32]), 1)), lost: false },
            Imported { tx: tx_of_bytes(&second).unwrap(), block: Some((height, hash, 1)), lost: false },
        ];
        late.import_transactions(&imported, NOW).await.unwrap();
        let stale = Hash([0x5a; 32]);
        let mut follow = Follow::new(&late, &chain, 0);
        follow.restore(id, NOW, |_, _| ()).await.unwrap();
        let now = &late.wallets().await.unwrap()[0];
        assert_eq!((now.status, now.unread_from), (store::utxo::WalletStatus::Active, None));
        let found = late.transaction(id, tx_of_bytes(&first).unwrap().hash, NOW).await.unwrap().unwrap();
        assert_eq!(found.height, Some(height - 1), "in the block that has it");
        assert!(late.block_hashes(height - 1, height).await.unwrap().iter().all(|(_, hash)| *hash != stale));
        assert_eq!(late.balance(id, NOW).await.unwrap()[&0].confirmed, 110_000);
        assert_eq!(custody::bitcoin::check(&late, |_| ()).await.unwrap(), []);

        // Nothing but such blocks.
        let lost = another().await;
        let id = lost.create_wallet("lost", store::utxo::Network::Regtest, NOW).await.unwrap();
        lost.add_addresses(id, &[address], store::utxo::Paths::Exact, NOW).await.unwrap();
        lost.import_transactions(&imported[..1], NOW).await.unwrap();
        Follow::new(&lost, &chain, 0).restore(id, NOW, |_, _| ()).await.unwrap();
        assert_eq!(lost.balance(id, NOW).await.unwrap()[&0].confirmed, 110_000);
    });
}

/// An import knows the chain up to its source's last block; the store may have been followed further.
#[test]
fn what_an_import_did_not_see_of_the_chain_is_read_from_bitcoind() {
    on(Engine::Sqlite, async |db| {
        let node = Node::start().await;
        let chain = node.client();
        let mut wallet = Wallet::open(db, &chain, node).await;
        wallet.deposit(&[(our_address(0, 0, KINDS[0]), 50_000)], 3_000).await;
        wallet.mine(2, "a deposit").await;
        let late = another().await;
        let id = late.create_wallet("late", store::utxo::Network::Regtest, NOW).await.unwrap();
        let mut follow = Follow::new(&late, &chain, 0);
        while follow.step(200, NOW).await.unwrap() != Step::Idle {}
        let (tip, _) = late.tip().await.unwrap().unwrap();
        late.begin_import(id).await.unwrap();
        let path = Some(store::utxo::Path { branch: 0, index: 0 });
        let script = our_script(0, 0, KINDS[0]);
        let address = store::utxo::NewAddress { account: 0, path, kind: KINDS[0], script };
        late.add_addresses(id, &[address], store::utxo::Paths::Exact, NOW).await.unwrap();
        // Not without having read it.
        let refused = late.finish_restore(id, Some(1)).await.unwrap_err();
        assert_eq!(refused.code(), "UTXO_RESTORING");
        late.end_import(id, tip - 3).await.unwrap();
        for read_from in [None, Some(tip - 2)] {
            let refused = late.finish_restore(id, read_from).await.unwrap_err();
            assert_eq!(refused.code(), "UTXO_RESTORING");
        }
        let mut read = Vec::new();
        // The birthday counts only for a store that begins anew, so it may be the tip here.
        let mut follow = Follow::new(&late, &chain, tip);
        follow.restore(id, NOW, |height, left| read.push((height, left))).await.unwrap();
        assert_eq!(read, [(tip, 0)]);
        assert_eq!(late.wallets().await.unwrap()[0].status, store::utxo::WalletStatus::Active);
        assert_eq!(late.balance(id, NOW).await.unwrap()[&0].confirmed, 50_000);
    });
}
