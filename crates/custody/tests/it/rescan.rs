//! Blocks that are read again, and addresses that come late, on a real node: nothing that is found looks free before all is known.

use bitcoin::constants::genesis_block;
use chain::ChainError;
use chain::bitcoin::BitcoinChain;
use custody::bitcoin::{Follow, FollowError, Step, check, tx_of_bytes};
use devnet::Key;
use serde_json::{Value, json};
use store::Engine;
use store::testing::{NOW, TestDb, fresh, on};
use store::utxo::{AddressKind, Allow, Hash, Network, NewAddress, Path, Paths, Status, WalletId, WalletStatus, Want};

use crate::node::Node;
use crate::wallet::{KINDS, QUICK, Wallet, our_address, our_script};
use crate::world::{NETWORK, pay};

const WANT: Want =
    Want { target: 1, allow: Allow { pending: false, unconfirmed_foreign: false, settled: None }, seed: 0 };

async fn another() -> TestDb {
    let db = fresh(Engine::Sqlite).await;
    db.migrate(NOW).await.unwrap();
    db
}

/// Account 0's first address of the wallet that pays in these tests.
fn address() -> NewAddress {
    let path = Some(Path { branch: 0, index: 0 });
    NewAddress { account: 0, path, kind: KINDS[0], script: our_script(0, 0, KINDS[0]) }
}

async fn add(db: &TestDb, wallet: WalletId) {
    db.add_addresses(wallet, &[address()], Paths::Exact, NOW).await.unwrap();
}

async fn sync(follow: &mut Follow<'_>) {
    while follow.step(50, NOW).await.unwrap() != Step::Idle {}
    follow.look(NOW).await.unwrap();
}

/// A deposit to the address in a block of its own, and some blocks later one that spends all of it. Says where the deposit is.
async fn paid_and_spent(wallet: &mut Wallet<'_>) -> u32 {
    let deposit = wallet.deposit(&[(our_address(0, 0, KINDS[0]), 900_000)], 3_000).await;
    wallet.mine(3, "a deposit").await;
    wallet.pay(0, pay(&[800_000]), QUICK).await.unwrap();
    wallet.sync().await;
    wallet.mine(3, "spent").await;
    wallet.status(tx_of_bytes(&deposit).unwrap().hash).await.unwrap().1.unwrap()
}

async fn is_as_bitcoind_says(db: &TestDb, id: WalletId, node: &Node) {
    let found = node.unspent(&[our_script(0, 0, KINDS[0])]).await;
    assert_eq!(db.balance(id, NOW).await.unwrap()[&0].confirmed, found.iter().map(|one| one.amount).sum::<i64>());
    assert_eq!(check(db, |_| ()).await.unwrap(), []);
}

#[test]
fn a_rescan_of_bitcoind_that_is_interrupted_shows_no_coin_that_a_later_block_spent() {
    on(Engine::Sqlite, async |db| {
        let node = Node::start().await;
        let chain = node.client();
        let mut wallet = Wallet::open(db, &chain, node).await;
        let late = another().await;
        let id = late.create_wallet("late", Network::Regtest, NOW).await.unwrap();
        let mut follow = Follow::new(&late, &chain, 0);
        let deposit = paid_and_spent(&mut wallet).await;
        sync(&mut follow).await;
        add(&late, id).await;
        late.begin_rescan(deposit - 2).await.unwrap();
        while late.followed().await.unwrap().rescan_next != Some(deposit + 1) {
            assert!(matches!(follow.step(1, NOW).await.unwrap(), Step::Again { .. }));
        }
        // It dies here. What it has found looks unspent, and is nobody's to spend.
        assert_eq!(late.balance(id, NOW).await.unwrap()[&0].confirmed, 900_000);
        assert_eq!(late.candidates(id, 0, &WANT, NOW).await.unwrap(), []);
        follow.look(NOW).await.unwrap();
        assert_eq!(late.candidates(id, 0, &WANT, NOW).await.unwrap(), []);
        assert_eq!(late.followed().await.unwrap().rescan_next, Some(deposit + 1));
        // Another follower, who was asked for nothing, goes on there, also with a block that came meanwhile.
        wallet.mine(1, "meanwhile").await;
        let mut follow = Follow::new(&late, &chain, 0);
        assert!(matches!(follow.step(1, NOW).await.unwrap(), Step::Forward(_)));
        let (tip, _) = late.tip().await.unwrap().unwrap();
        let step = follow.step(1, NOW).await.unwrap();
        assert_eq!(step, Step::Again { height: deposit + 1, left: tip - deposit - 1 });
        sync(&mut follow).await;
        assert_eq!(late.followed().await.unwrap().rescan_next, None);
        is_as_bitcoind_says(&late, id, &wallet.node).await;
        assert_eq!(late.balance(id, NOW).await.unwrap()[&0].confirmed, 0);
    });
}

/// The spend waits in the mempool, where the follower has seen it before the output was known.
#[test]
fn a_rescan_of_bitcoind_ends_with_what_waits_in_the_mempool() {
    on(Engine::Sqlite, async |db| {
        let node = Node::start().await;
        let chain = node.client();
        let mut wallet = Wallet::open(db, &chain, node).await;
        wallet.deposit(&[(our_address(0, 0, KINDS[0]), 900_000)], 3_000).await;
        wallet.mine(3, "a deposit").await;
        wallet.pay(0, pay(&[800_000]), QUICK).await.unwrap();
        let late = another().await;
        let id = late.create_wallet("late", Network::Regtest, NOW).await.unwrap();
        let mut follow = Follow::new(&late, &chain, 0);
        sync(&mut follow).await;
        add(&late, id).await;
        follow.rescan(1, NOW, |_, _| ()).await.unwrap();
        assert_eq!(late.balance(id, NOW).await.unwrap()[&0].confirmed, 0);
        assert_eq!(late.candidates(id, 0, &WANT, NOW).await.unwrap(), []);
        assert_eq!(late.unconfirmed(id).await.unwrap().len(), 1);
    });
}

/// Another process adds the address; the follower that runs must not go by what it has seen before.
#[test]
fn an_address_that_is_added_shows_what_waits_at_bitcoind_already() {
    on(Engine::Sqlite, async |db| {
        let node = Node::start().await;
        let chain = node.client();
        let mut wallet = Wallet::open(db, &chain, node).await;
        let late = another().await;
        let id = late.create_wallet("late", Network::Regtest, NOW).await.unwrap();
        let mut follow = Follow::new(&late, &chain, 0);
        let deposit =
            tx_of_bytes(&wallet.deposit(&[(our_address(0, 0, KINDS[0]), 900_000)], 3_000).await).unwrap().hash;
        wallet.sync().await;
        let allow = Allow { unconfirmed_foreign: true, settled: None, ..Allow::default() };
        let target = custody::bitcoin::Target {
            recipients: pay(&[800_000]),
            change: custody::bitcoin::ScriptKind::P2tr,
            costs: QUICK,
            aim: custody::bitcoin::Aim::Pay,
        };
        let (spend, lock) = wallet.make(0, &target, &our_script(0, 2, KINDS[1]), allow).await.unwrap();
        db.add_pending(wallet.id, &spend.new_tx(), Some(lock), wallet.now).await.unwrap();
        wallet.broadcast(&spend).await;
        sync(&mut follow).await;
        assert_eq!(follow.look(NOW).await.unwrap(), 0, "both were seen, and were nobody's");
        add(&late, id).await;
        follow.look(NOW).await.unwrap();
        let status =
            async |hash: Hash| late.transaction(id, hash, NOW).await.unwrap().map(|one| (one.status, one.height));
        assert_eq!(status(deposit).await, Some((Status::Published, None)), "a deposit that waits");
        assert_eq!(status(spend.hash).await, Some((Status::Published, None)), "and what spends it");
        // Of the two only the deposit is mined: what it pays is spent all the same.
        let raw = late.transaction(id, deposit, NOW).await.unwrap().unwrap().raw;
        wallet.node.mine_only(&[raw]).await;
        sync(&mut follow).await;
        assert_eq!(late.candidates(id, 0, &WANT, NOW).await.unwrap(), []);
        assert_eq!(follow.look(NOW).await.unwrap(), 0, "once is enough");
    });
}

/// A wallet that is imported while the store is behind: what the rescan finds below, the blocks above have spent already.
#[test]
fn an_import_shows_no_coin_that_bitcoind_spent_while_the_store_was_behind() {
    on(Engine::Sqlite, async |db| {
        let node = Node::start().await;
        let chain = node.client();
        let mut wallet = Wallet::open(db, &chain, node).await;
        wallet.deposit(&[(our_address(0, 0, KINDS[0]), 900_000)], 3_000).await;
        wallet.mine(3, "a deposit").await;
        let late = another().await;
        let id = late.create_wallet("late", Network::Regtest, NOW).await.unwrap();
        sync(&mut Follow::new(&late, &chain, 0)).await;
        let (followed, _) = late.tip().await.unwrap().unwrap();
        late.begin_import(id).await.unwrap();
        add(&late, id).await;
        late.end_import(id, followed - 10).await.unwrap();
        wallet.pay(0, pay(&[800_000]), QUICK).await.unwrap();
        wallet.mine(3, "spent").await;
        Follow::new(&late, &chain, 0).restore(id, NOW, |_, _| ()).await.unwrap();
        assert_eq!(late.wallets().await.unwrap()[0].status, WalletStatus::Active);
        is_as_bitcoind_says(&late, id, &wallet.node).await;
        assert_eq!(late.candidates(id, 0, &WANT, NOW).await.unwrap(), []);
    });
}

/// The birthday is where a new wallet begins. An import says itself how far its source has come.
#[test]
fn a_birthday_hides_nothing_of_bitcoind_that_an_import_did_not_cover() {
    on(Engine::Sqlite, async |db| {
        let node = Node::start().await;
        let chain = node.client();
        let mut wallet = Wallet::open(db, &chain, node).await;
        wallet.deposit(&[(our_address(0, 0, KINDS[0]), 900_000)], 3_000).await;
        wallet.mine(1, "a deposit").await;
        let deposit = wallet.node.height().await;
        wallet.node.mine(150).await;
        let birthday = wallet.node.height().await;
        // A store without blocks, one that has followed the chain, and one whose import did not come to its end.
        for (follows, ends) in [(false, true), (true, true), (true, false), (false, false)] {
            let late = another().await;
            let id = late.create_wallet("late", Network::Regtest, NOW).await.unwrap();
            let mut follow = Follow::new(&late, &chain, birthday);
            if follows {
                sync(&mut follow).await;
            }
            late.begin_import(id).await.unwrap();
            add(&late, id).await;
            if ends {
                late.end_import(id, deposit - 1).await.unwrap();
            }
            follow.restore(id, NOW, |_, _| ()).await.unwrap();
            assert_eq!(late.balance(id, NOW).await.unwrap()[&0].confirmed, 900_000, "{follows} {ends}");
            is_as_bitcoind_says(&late, id, &wallet.node).await;
        }
    });
}

#[test]
fn the_first_coinbase_of_bitcoind_is_no_money() {
    on(Engine::Sqlite, async |db| {
        let node = Node::empty().await;
        let chain = node.client();
        node.mine_to(2, &Key::numbered(1).bitcoin(NETWORK)).await;
        let script = genesis_block(NETWORK).txdata[0].output[0].script_pubkey.to_bytes();
        assert_eq!(node.unspent(std::slice::from_ref(&script)).await, [], "no node has it");
        let id = db.create_wallet("first", Network::Regtest, NOW).await.unwrap();
        let first = NewAddress { account: 0, path: None, kind: AddressKind::Other, script };
        db.add_addresses(id, &[first], Paths::Exact, NOW).await.unwrap();
        let mut follow = Follow::new(db, &chain, 0);
        sync(&mut follow).await;
        assert_eq!(db.tip().await.unwrap().unwrap().0, 2);
        assert_eq!(db.balance(id, NOW).await.unwrap()[&0], store::utxo::Balance::default());
        follow.rescan(0, NOW, |_, _| ()).await.unwrap();
        assert_eq!(db.balance(id, NOW).await.unwrap()[&0], store::utxo::Balance::default());
    });
}

fn not_kept<T>(result: &Result<T, FollowError>) -> Option<(u64, &str)> {
    match result {
        Err(FollowError::Chain(ChainError::BlockNotKept { height, said })) => Some((*height, said)),
        _ => None,
    }
}

#[test]
fn a_bitcoind_that_has_pruned_a_block_says_which_one_is_missing() {
    on(Engine::Sqlite, async |db| {
        let node = Node::empty_with(&["-prune=1", "-fastprune"]).await;
        let chain: BitcoinChain = node.client();
        node.mine_to(900, &Key::numbered(1).bitcoin(NETWORK)).await;
        let pruned: Value = node.call("pruneblockchain", json!([500])).await;
        let pruned = pruned.as_u64().unwrap();
        assert!(pruned > 100, "{pruned}");
        let id = db.create_wallet("hot", Network::Regtest, NOW).await.unwrap();
        add(db, id).await;
        let step = Follow::new(db, &chain, 200).step(10, NOW).await;
        assert_eq!(not_kept(&step), Some((100, "Block not available (pruned data)")), "{step:?}");
        assert_eq!(step.unwrap_err().code(), "CHAIN_BLOCK_NOT_KEPT");
        assert_eq!(db.tip().await.unwrap(), None);
        // Above what it has pruned it can be followed; a rescan below says what is missing, and stays open.
        let birthday = u32::try_from(pruned).unwrap() + 102;
        let mut follow = Follow::new(db, &chain, birthday);
        sync(&mut follow).await;
        assert_eq!(db.tip().await.unwrap().unwrap().0, 900);
        let rescan = follow.rescan(50, NOW, |_, _| ()).await;
        assert_eq!(not_kept(&rescan), Some((50, "Block not available (pruned data)")), "{rescan:?}");
        assert_eq!(db.followed().await.unwrap().rescan_next, Some(50));
    });
}
