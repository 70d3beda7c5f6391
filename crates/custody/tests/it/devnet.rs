//! The same follower on the devnet: three nodes, two of which must agree, one of which is not honest or not there.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};

use bitcoin::consensus::serialize;
use chain::bitcoin::{BitcoinChain, BitcoinSettings};
use chain::endpoint::{EndpointSettings, Pool, PoolSettings};
use chain::{Broadcast, Chain};
use custody::bitcoin::{
    Aim, Follow, FollowError, ScriptKind, Step, Target, block_of_bytes, check, chooser, plan, tx_of, tx_of_bytes,
};
use custody::deposit::work::begin;
use custody::wallet::Pinned;
use devnet::bitcoin::{BitcoinDevnet, Settings};
use devnet::{Connection, Fate, Lie, Model, Served, View, WireFaults};
use domain::{Clock, ManualClock, Timestamp};
use store::testing::{NOW, TestDb, on};
use store::utxo::{AddressKind, Allow, Hash, Imported, LockId, NewAddress, NewTx, Status, WalletId, Want};
use store::{Db, Engine};
use tx::{Address, Input};

use crate::payouts::{GATHER, catalog};
use crate::wallet::{QUICK, address_of};
use crate::world::{NETWORK, pay, script_of, signed, spend};

const NODES: usize = 3;

struct Devnet {
    served: Served<BitcoinDevnet>,
    clock: Arc<ManualClock>,
}

impl Devnet {
    async fn start() -> Self {
        let settings = Settings::default();
        let clock = Arc::new(ManualClock::at(settings.start));
        let free: SocketAddr = ([127, 0, 0, 1], 0).into();
        let served = Served::start(BitcoinDevnet::new(settings), &[free; NODES], clock.clone()).await.unwrap();
        Self { served, clock }
    }

    fn client(&self) -> BitcoinChain {
        let endpoint = |(number, endpoint): (usize, &devnet::Endpoint)| EndpointSettings {
            name: format!("devnet-{number}"),
            url: endpoint.url(),
            authorization: None,
            key: None,
            headers: Vec::new(),
            per_second: 0,
        };
        let endpoints: Vec<_> = self.served.endpoints.iter().enumerate().map(endpoint).collect();
        let settings = PoolSettings { quorum: Some(2), ..PoolSettings::default() };
        BitcoinChain::new(BitcoinSettings::new(NETWORK), Pool::new(&endpoints, &settings, self.clock.clone()).unwrap())
    }

    fn act<T>(&self, act: impl FnOnce(&mut BitcoinDevnet) -> T) -> T {
        act(&mut self.served.model.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn mine(&self, blocks: u64) {
        self.act(|model| model.mine(blocks, self.clock.now()));
    }

    fn reorg(&self, depth: u64, fate: Fate) {
        self.act(|model| model.reorg(depth, fate, &[], self.clock.now())).unwrap();
    }

    fn height(&self) -> u32 {
        u32::try_from(self.act(|model| model.height())).unwrap()
    }

    /// A block that pays us, and its payment as an import would bring it.
    async fn deposit(&self, chain: &BitcoinChain) -> Imported {
        self.gift(chain, script_of(0, AddressKind::P2tr), 70_000).await
    }

    /// A block that pays a script so much.
    async fn gift(&self, chain: &BitcoinChain, script: Vec<u8>, amount: i64) -> Imported {
        let address = address_of(&script).to_string();
        let amount_raw = amount.to_string().parse().unwrap();
        self.act(|model| model.fund(&address, None, amount_raw, self.clock.now())).unwrap();
        self.mine(1);
        let height = self.height();
        let header = chain.headers(&[u64::from(height)]).await.unwrap()[0];
        let bytes = chain.block_bytes(header.at()).await.unwrap();
        let (block, transactions) = block_of_bytes(height, &bytes).unwrap();
        let pays_us = |one: &store::utxo::NewTx| {
            !one.coinbase && one.outputs.iter().any(|out| out.amount == amount && out.script == script)
        };
        let tx = transactions.into_iter().find(pays_us).expect("the gift is in the newest block");
        Imported { tx, block: Some((height, block.hash, block.time)), lost: false }
    }

    fn lag_all(&self, lag: u64) {
        for endpoint in &self.served.endpoints {
            *endpoint.view.lock().unwrap_or_else(PoisonError::into_inner) = View { lag, ..View::default() };
        }
    }
}

/// Of two keys that the devnet gives coins to, one for each account.
fn scripts() -> BTreeMap<Vec<u8>, u32> {
    let kinds = [AddressKind::P2wpkh, AddressKind::P2tr];
    (0..2).flat_map(|account| kinds.map(|kind| (script_of(account, kind), account))).collect()
}

async fn wallet(db: &Db) -> WalletId {
    let id = db.create_wallet("hot", store::utxo::Network::Regtest, NOW).await.unwrap();
    let address = |(script, account): (Vec<u8>, u32)| NewAddress {
        account,
        path: None,
        kind: custody::bitcoin::kind_of_script(&script),
        script,
    };
    db.add_addresses(id, &scripts().into_iter().map(address).collect::<Vec<_>>(), store::utxo::Paths::Exact, NOW)
        .await
        .unwrap();
    id
}

async fn sync(follow: &mut Follow<'_>) {
    sync_at(follow, NOW).await;
}

async fn sync_at(follow: &mut Follow<'_>, now: Timestamp) {
    while follow.step(50, now).await.unwrap() != Step::Idle {}
    follow.look(now).await.unwrap();
}

/// Confirmed money that no waiting transaction spends is what the nodes' own search finds.
async fn agree(db: &TestDb, id: WalletId, chain: &BitcoinChain, what: &str) {
    assert_eq!(db.unconfirmed(id).await.unwrap(), [], "{what}");
    let head = chain.head().await.unwrap().tip;
    assert_eq!(db.tip().await.unwrap().map(|(_, hash)| hash.0), Some(head.hash.0), "{what}");
    let mut expected: BTreeMap<u32, i64> = BTreeMap::new();
    for (script, account) in scripts() {
        let found = chain.balances(&[(address_of(&script), tx::Coin::Native)]).await.unwrap();
        *expected.entry(account).or_default() += found[0].to_string().parse::<i64>().unwrap();
    }
    let stored = db.balance(id, NOW).await.unwrap();
    assert_eq!(stored.into_iter().map(|(account, one)| (account, one.confirmed)).collect::<BTreeMap<_, _>>(), expected);
    assert_eq!(check(db, |_| {}).await.unwrap(), [], "{what}");
}

async fn payout(db: &TestDb, id: WalletId, chain: &BitcoinChain, number: u8) -> store::utxo::Hash {
    let target = Target { recipients: pay(&[123_456]), change: ScriptKind::P2tr, costs: QUICK, aim: Aim::Pay };
    let mut refused = None;
    let want = Want { target: target.wanted().unwrap(), allow: Allow::default(), seed: 0 };
    let lock = LockId([number; 32]);
    let choose = chooser(&target, &mut refused);
    let coins = db.select_and_lease(id, 0, &want, lock, NOW.plus_micros(1_000_000), NOW, choose).await.unwrap();
    let made = plan(&coins.expect("prefunded"), &target, &script_of(0, AddressKind::P2tr)).unwrap();
    let transaction = signed(&made, db.tip().await.unwrap().unwrap().0);
    let new = tx_of(&transaction).unwrap();
    db.add_pending(id, &new, Some(lock), NOW).await.unwrap();
    assert_eq!(chain.broadcast(&serialize(&transaction)).await.unwrap(), Broadcast::Taken);
    db.publish(new.hash, NOW).await.unwrap();
    new.hash
}

#[test]
fn a_wallet_agrees_with_the_devnet() {
    on(Engine::Sqlite, async |db| {
        let net = Devnet::start().await;
        let chain = net.client();
        let id = wallet(db).await;
        let mut follow = Follow::new(db, &chain, 0);
        sync(&mut follow).await;
        agree(db, id, &chain, "what it begins with").await;
        for (number, (depth, fate)) in
            (1..).zip([(1, Fate::Returned), (3, Fate::Moved), (7, Fate::Returned), (2, Fate::Moved)])
        {
            let hash = payout(db, id, &chain, number).await;
            net.mine(depth);
            sync(&mut follow).await;
            agree(db, id, &chain, "paid").await;
            net.reorg(depth, fate);
            sync(&mut follow).await;
            let detail = db.transaction(id, hash, NOW).await.unwrap().unwrap();
            assert_eq!((detail.status, detail.height.is_some()), (Status::Published, fate == Fate::Moved));
            net.mine(1);
            sync(&mut follow).await;
            agree(db, id, &chain, "in the other branch").await;
        }
        // Gone from every node: here it is not forgotten, and nothing that it spends is free.
        let hash = payout(db, id, &chain, 100).await;
        net.mine(2);
        sync(&mut follow).await;
        net.reorg(2, Fate::Dropped);
        sync(&mut follow).await;
        assert_eq!(db.unconfirmed(id).await.unwrap().iter().map(|one| one.0).collect::<Vec<_>>(), [hash]);
        assert_eq!(follow.restore(id, NOW, |_, _| ()).await.unwrap().unheard, [hash]);
    });
}

#[test]
fn one_bad_node_of_three_does_not_lead_the_wallet_astray() {
    let lie = |lie| View { lie, ..View::default() };
    let views = [
        View { lag: 3, ..View::default() },
        View { contradict: Some(20), ..View::default() },
        lie(Lie::Missing),
        lie(Lie::Inflated),
    ];
    on(Engine::Sqlite, async |db| {
        let net = Devnet::start().await;
        let chain = net.client();
        let id = wallet(db).await;
        let mut follow = Follow::new(db, &chain, 0);
        sync(&mut follow).await;
        for (number, view) in (1..).zip(views) {
            for bad in 0..NODES {
                let set = |view: &View| {
                    *net.served.endpoints[bad].view.lock().unwrap_or_else(PoisonError::into_inner) = view.clone();
                };
                set(&view);
                payout(db, id, &chain, number).await;
                follow.look(NOW).await.unwrap();
                net.mine(4);
                sync(&mut follow).await;
                assert_eq!(check(db, |_| {}).await.unwrap(), []);
                // Honest again, and with that the pool has two that are as far as it gets.
                set(&View::default());
                sync(&mut follow).await;
                agree(db, id, &chain, &format!("{view:?} at {bad}")).await;
            }
        }
        *net.served.endpoints[0].wire.lock().unwrap_or_else(PoisonError::into_inner) =
            WireFaults { connection: Connection::HalfClosed, ..WireFaults::default() };
        net.mine(4);
        sync(&mut follow).await;
        agree(db, id, &chain, "one is not there").await;
    });
}

/// At the border of what a quorum is asked at once, and around it.
#[test]
fn a_fork_of_any_depth_on_the_devnet_is_found() {
    on(Engine::Sqlite, async |db| {
        let net = Devnet::start().await;
        let chain = net.client();
        let id = wallet(db).await;
        let mut follow = Follow::new(db, &chain, 0);
        net.mine(70);
        sync(&mut follow).await;
        for depth in [1, 2, 31, 32, 33, 63, 64, 65] {
            let (height, _) = db.tip().await.unwrap().unwrap();
            net.reorg(depth, Fate::Returned);
            let step = follow.step(50, NOW).await.unwrap();
            assert_eq!(step, Step::Back(height - u32::try_from(depth).unwrap()), "{depth}");
            sync(&mut follow).await;
            agree(db, id, &chain, &format!("{depth} blocks")).await;
        }
    });
}

#[test]
fn devnet_nodes_that_lag_undo_nothing() {
    on(Engine::Sqlite, async |db| {
        let net = Devnet::start().await;
        let chain = net.client();
        wallet(db).await;
        let mut follow = Follow::new(db, &chain, 0);
        net.mine(40);
        sync(&mut follow).await;
        let tip = db.tip().await.unwrap();
        for lag in [1, 3, 33] {
            net.lag_all(lag);
            assert_eq!(follow.step(10, NOW).await.unwrap(), Step::Idle, "{lag}");
            assert_eq!(db.tip().await.unwrap(), tip);
        }
        // Another branch that the nodes show only below our height: which of the two it will be is not known yet.
        net.reorg(10, Fate::Returned);
        net.lag_all(2);
        assert_eq!(follow.step(10, NOW).await.unwrap(), Step::Idle);
        assert_eq!(db.tip().await.unwrap(), tip);
        net.lag_all(1);
        assert_eq!(follow.step(10, NOW).await.unwrap(), Step::Back(tip.unwrap().0 - 10), "as high as ours");
    });
}

/// A history from elsewhere: some blocks, far apart. The follower goes on above them, and finds its way back among them.
#[test]
fn an_imported_history_is_followed_on_the_devnet() {
    on(Engine::Sqlite, async |db| {
        let net = Devnet::start().await;
        let chain = net.client();
        wallet(db).await;
        let mut history = Vec::new();
        for gap in [60, 50, 7, 1] {
            history.push(net.deposit(&chain).await);
            net.mine(gap);
        }
        db.import_transactions(&history, NOW).await.unwrap();
        let tops: Vec<u32> = history.iter().map(|one| one.block.unwrap().0).collect();
        assert_eq!(db.tip().await.unwrap().unwrap().0, tops[3]);
        let mut follow = Follow::new(db, &chain, 0);
        sync(&mut follow).await;
        assert_eq!(db.tip().await.unwrap().unwrap().0, net.height());
        // Below the newest imported blocks, where the store has no block for a long way.
        net.reorg(u64::from(net.height() - tops[1] - 5), Fate::Returned);
        assert_eq!(follow.step(1_000, NOW).await.unwrap(), Step::Back(tops[1]));
        sync(&mut follow).await;
        // Just above the oldest, and then the oldest itself: there is nothing left to go back to.
        net.reorg(u64::from(net.height() - tops[0]), Fate::Returned);
        assert_eq!(follow.step(1_000, NOW).await.unwrap(), Step::Back(tops[0]));
        sync(&mut follow).await;
        let author = store::catalog::Author { actor: "test", reason: "set-up" };
        db.apply_treasury(&catalog(GATHER), &Pinned::default().settings(), &author, NOW).await.unwrap();
        let row = db.chain(&"net".parse().unwrap()).await.unwrap().unwrap();
        begin(db, &chain, &row, Some(net.height().into()), NOW).await.unwrap();
        net.reorg(u64::from(net.height() - tops[0] + 1), Fate::Returned);
        let tip = db.tip().await.unwrap();
        for _ in 0..2 {
            let deep = follow.step(10, NOW).await;
            assert!(matches!(deep, Err(FollowError::ForkTooDeep { height }) if height == tops[0]), "{deep:?}");
        }
        assert_eq!(db.tip().await.unwrap(), tip, "nothing was undone");
        let findings = db.open_findings(0, 10).await.unwrap();
        let told: Vec<(&str, &str)> = findings.iter().map(|one| (one.kind.as_str(), one.subject.as_str())).collect();
        assert_eq!(told, [("halted", "net")], "people are told, once: {findings:#?}");
    });
}

/// The same on the devnet: added by another process, found in what was seen before, held until all blocks were read.
#[test]
fn what_comes_late_on_the_devnet_is_found_and_held_until_all_was_read() {
    on(Engine::Sqlite, async |db| {
        let net = Devnet::start().await;
        let chain = net.client();
        let id = db.create_wallet("hot", store::utxo::Network::Regtest, NOW).await.unwrap();
        let mut follow = Follow::new(db, &chain, 0);
        let deposit = net.deposit(&chain).await;
        net.mine(5);
        sync(&mut follow).await;
        let script = script_of(0, AddressKind::P2tr);
        let amount_raw = "60000".parse().unwrap();
        net.act(|model| model.fund(&address_of(&script).to_string(), None, amount_raw, net.clock.now())).unwrap();
        follow.look(NOW).await.unwrap();
        let path = Some(store::utxo::Path { branch: 0, index: 0 });
        let new = NewAddress { account: 0, path, kind: AddressKind::P2tr, script };
        db.add_addresses(id, &[new], store::utxo::Paths::Exact, NOW).await.unwrap();
        follow.look(NOW).await.unwrap();
        let waits = db.balance(id, NOW).await.unwrap()[&0];
        assert_eq!((waits.confirmed, waits.unconfirmed), (0, 60_000), "it waited before the address came");

        let (height, ..) = deposit.block.unwrap();
        db.begin_rescan(height).await.unwrap();
        assert_eq!(follow.step(1, NOW).await.unwrap(), Step::Again { height, left: 5 });
        let want = Want { target: 1, allow: Allow::default(), seed: 0 };
        assert!(db.balance(id, NOW).await.unwrap()[&0].confirmed >= 70_000);
        assert_eq!(db.candidates(id, 0, &want, NOW).await.unwrap(), []);
        sync(&mut follow).await;
        assert_eq!(db.followed().await.unwrap().rescan_next, None);
        assert_eq!(db.candidates(id, 0, &want, NOW).await.unwrap().len(), 1);
        assert_eq!(check(db, |_| {}).await.unwrap(), []);
    });
}

// ---- transactions that depend on strangers' unconfirmed ones, and transactions that come back ------------------------------

const STRANGER: u32 = 3;

fn stranger() -> Address {
    address_of(&script_of(STRANGER, AddressKind::P2wpkh))
}

fn ours() -> Address {
    address_of(&script_of(0, AddressKind::P2wpkh))
}

/// The output of a transaction that pays an address so much.
pub fn coin_of(new: &NewTx, to: &Address, amount: i64) -> Input {
    let script = to.script_bytes().unwrap();
    let is_it = |out: &store::utxo::NewOutput| out.script == script && out.amount == amount;
    let index = new.outputs.iter().position(is_it).expect("it pays that");
    Input {
        transaction: tx::TxHash(new.hash.0),
        index: u32::try_from(index).unwrap(),
        amount_sat: u64::try_from(amount).unwrap(),
        script,
        sequence: 0xffff_fffd,
    }
}

async fn send(chain: &BitcoinChain, raw: &[u8]) -> NewTx {
    assert_eq!(chain.broadcast(raw).await.unwrap(), Broadcast::Taken);
    tx_of_bytes(raw).unwrap()
}

async fn status(db: &TestDb, id: WalletId, hash: Hash) -> Option<(Status, bool)> {
    let detail = db.transaction(id, hash, NOW).await.unwrap();
    detail.map(|detail| (detail.status, detail.height.is_some()))
}

/// Who would spend our confirmed coin.
async fn spender_of(db: &TestDb, id: WalletId, coin: &Input) -> Option<Hash> {
    let filter = store::utxo::ListFilter { account: Some(0), unspent_only: false, after: None, most: 1_000 };
    let outputs = db.list_outputs(id, &filter, NOW).await.unwrap();
    let row = outputs.iter().find(|row| (row.outpoint.hash.0, row.outpoint.index) == (coin.transaction.0, coin.index));
    row.expect("ours").spent_by
}

/// A payout of ours that spends a deposit and a confirmed coin.
async fn spend_both(db: &TestDb, id: WalletId, chain: &BitcoinChain, deposit: &Input, confirmed: &Input) -> Vec<u8> {
    let amount = deposit.amount_sat + confirmed.amount_sat - 3_000;
    let raw = spend(0, &[deposit.clone(), confirmed.clone()], &[(stranger(), amount)]);
    let new = tx_of_bytes(&raw).unwrap();
    db.add_pending(id, &new, None, NOW).await.unwrap();
    send(chain, &raw).await;
    db.publish(new.hash, NOW).await.unwrap();
    raw
}

/// A stranger pays us out of a transaction that waits, and replaces that one.
#[test]
fn a_deposit_that_the_devnet_can_never_mine_ends_by_itself_and_comes_back_with_the_chain() {
    on(Engine::Sqlite, async |db| {
        let net = Devnet::start().await;
        let chain = net.client();
        let id = wallet(db).await;
        let mut follow = Follow::new(db, &chain, 0);
        let confirmed = net.gift(&chain, ours().script_bytes().unwrap(), 500_000).await.tx;
        let confirmed = coin_of(&confirmed, &ours(), 500_000);
        let coin = net.gift(&chain, stranger().script_bytes().unwrap(), 9_000_000).await.tx;
        let coin = coin_of(&coin, &stranger(), 9_000_000);
        sync(&mut follow).await;
        let parent_raw = spend(STRANGER, std::slice::from_ref(&coin), &[(stranger(), 8_998_000)]);
        let parent = send(&chain, &parent_raw).await;
        sync(&mut follow).await;
        assert_eq!(status(db, id, parent.hash).await, None, "there is no reason to keep it");
        let of_parent = coin_of(&parent, &stranger(), 8_998_000);
        let deposit_raw = spend(STRANGER, &[of_parent], &[(ours(), 1_000_000), (stranger(), 7_995_000)]);
        let deposit = send(&chain, &deposit_raw).await;
        sync(&mut follow).await;
        assert_eq!(status(db, id, parent.hash).await, Some((Status::Published, false)));
        let payout_raw = spend_both(db, id, &chain, &coin_of(&deposit, &ours(), 1_000_000), &confirmed).await;
        let payout = tx_of_bytes(&payout_raw).unwrap().hash;
        sync(&mut follow).await;
        assert_eq!(spender_of(db, id, &confirmed).await, Some(payout));

        send(&chain, &spend(STRANGER, &[coin], &[(stranger(), 8_000_000)])).await;
        net.mine(1);
        sync(&mut follow).await;
        for lost in [parent.hash, deposit.hash, payout] {
            assert_eq!(status(db, id, lost).await, Some((Status::Failed, false)));
        }
        assert_eq!(spender_of(db, id, &confirmed).await, None, "the confirmed coin is free again");
        agree(db, id, &chain, "without the deposit").await;

        let with = [parent_raw, deposit_raw];
        net.act(|model| model.reorg(1, Fate::Dropped, &with, net.clock.now())).unwrap();
        sync(&mut follow).await;
        assert_eq!(status(db, id, deposit.hash).await, Some((Status::Published, true)));
        assert_eq!(status(db, id, payout).await, Some((Status::Published, false)));
        assert_eq!(spender_of(db, id, &confirmed).await, Some(payout));
        send(&chain, &payout_raw).await;
        net.mine(1);
        sync(&mut follow).await;
        assert_eq!(status(db, id, payout).await, Some((Status::Published, true)));
        agree(db, id, &chain, "mined after all").await;
    });
}

/// The stranger replaces his payment, the replacement is gone from every node, and the first one is sent again.
#[test]
fn what_was_replaced_and_is_in_the_mempool_of_the_devnet_again_stands() {
    on(Engine::Sqlite, async |db| {
        let net = Devnet::start().await;
        let chain = net.client();
        let id = wallet(db).await;
        let mut follow = Follow::new(db, &chain, 0);
        let confirmed = net.gift(&chain, ours().script_bytes().unwrap(), 500_000).await.tx;
        let confirmed = coin_of(&confirmed, &ours(), 500_000);
        let coin = net.gift(&chain, stranger().script_bytes().unwrap(), 9_000_000).await.tx;
        let coin = coin_of(&coin, &stranger(), 9_000_000);
        let first_raw = spend(STRANGER, std::slice::from_ref(&coin), &[(ours(), 1_000_000), (stranger(), 7_997_000)]);
        let first = send(&chain, &first_raw).await;
        sync(&mut follow).await;
        let payout_raw = spend_both(db, id, &chain, &coin_of(&first, &ours(), 1_000_000), &confirmed).await;
        let payout = tx_of_bytes(&payout_raw).unwrap().hash;
        let rival = send(&chain, &spend(STRANGER, &[coin], &[(ours(), 900_000), (stranger(), 8_000_000)])).await;
        sync(&mut follow).await;
        assert_eq!(status(db, id, first.hash).await, Some((Status::Replaced, false)));
        assert_eq!(status(db, id, payout).await, Some((Status::Failed, false)));

        // Nobody saw the block that had it.
        net.mine(1);
        net.reorg(1, Fate::Dropped);
        send(&chain, &first_raw).await;
        send(&chain, &payout_raw).await;
        sync(&mut follow).await;
        assert_eq!(status(db, id, first.hash).await, Some((Status::Replaced, false)), "the rival may be on its way");
        sync_at(&mut follow, NOW.plus_micros(61_000_000)).await;
        assert_eq!(status(db, id, first.hash).await, Some((Status::Published, false)));
        assert_eq!(status(db, id, payout).await, Some((Status::Published, false)));
        assert_eq!(status(db, id, rival.hash).await, Some((Status::Replaced, false)));
        assert_eq!(spender_of(db, id, &confirmed).await, Some(payout), "nobody else gets it");
        net.mine(1);
        sync_at(&mut follow, NOW.plus_micros(61_000_000)).await;
        agree(db, id, &chain, "mined").await;
    });
}
