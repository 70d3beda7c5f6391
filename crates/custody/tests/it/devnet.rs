//! The same follower on the devnet: three nodes, two of which must agree, one of which is not honest or not there.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};

use bitcoin::consensus::serialize;
use chain::bitcoin::{BitcoinChain, BitcoinSettings};
use devnet::bitcoin::{BitcoinDevnet, Settings};
use devnet::{Connection, Fate, Lie, Model, Served, View, WireFaults};
use chain::endpoint::{EndpointSettings, Pool, PoolSettings};
use chain::{Broadcast, Chain};
use custody::bitcoin::{Aim, Follow, ScriptKind, Step, Target, check, chooser, plan, tx_of};
use domain::{Clock, ManualClock};
use store::testing::{NOW, TestDb, on};
use store::utxo::{AddressKind, Allow, LockId, NewAddress, Status, WalletId, Want};
use store::{Db, Engine};

use crate::wallet::{QUICK, address_of};
use crate::world::{NETWORK, pay, script_of, signed};

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
            per_second: 0,
        };
        let endpoints: Vec<_> = self.served.endpoints.iter().enumerate().map(endpoint).collect();
        let settings = PoolSettings { quorum: 2, ..PoolSettings::default() };
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
    while follow.step(50, NOW).await.unwrap() != Step::Idle {}
    follow.look(NOW).await.unwrap();
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
