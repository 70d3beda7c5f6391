//! A wallet in a store that follows a real node, pays, and is held against the node after each step.

use std::collections::{BTreeMap, BTreeSet};

use bitcoin::Transaction;
use bitcoin::consensus::{deserialize, serialize};
use chain::bitcoin::BitcoinChain;
use chain::{Broadcast, Chain};
use custody::bitcoin::{
    Aim, Costs, Follow, Plan, Recipient, ReplacementTerms, ScriptKind, SpendError, Step, Target, Waiting, check, child,
    chooser, kind_of_script, plan, replacement, tx_hash_of, tx_of,
};
use domain::Timestamp;
use store::Db;
use store::testing::NOW;
use store::utxo::{
    AddressKind, Allow, Balance, Coin, Hash, ListFilter, LockId, NewAddress, NewTx, OutPoint, OutputRow, Path, Status,
    WalletId, Want, is_mature,
};
use tx::Address;

use crate::node::Node;
use crate::world::{NETWORK, fee_for, held, paid, script_of, signed};

/// Keys of each account.
const KEYS: u32 = 3;
pub const KINDS: [AddressKind; 2] = [AddressKind::P2wpkh, AddressKind::P2tr];
pub const QUICK: Costs = Costs { rate: 10_000, long_term_rate: 3_000, most_fee: 1_000_000 };
pub const SLOW: Costs = Costs { rate: 1_000, ..QUICK };

/// A transaction of ours, as far as it has come.
#[derive(Clone, Debug)]
pub struct Payout {
    pub hash: Hash,
    pub raw: Vec<u8>,
    pub plan: Plan,
    pub account: u32,
    pub rate: u64,
}

impl Payout {
    pub fn new_tx(&self) -> NewTx {
        tx_of(&deserialize(&self.raw).unwrap()).unwrap()
    }

    fn weight(&self) -> u64 {
        deserialize::<Transaction>(&self.raw).unwrap().weight().to_wu()
    }

    pub fn change(&self) -> Option<&Recipient> {
        self.plan.change.map(|at| &self.plan.outputs[at])
    }

    pub fn recipients(&self) -> Vec<Recipient> {
        let outputs = self.plan.outputs.iter().enumerate();
        outputs.filter(|(at, _)| Some(*at) != self.plan.change).map(|(_, output)| output.clone()).collect()
    }
}

pub struct Wallet<'a> {
    pub db: &'a Db,
    pub chain: &'a BitcoinChain,
    pub node: Node,
    pub follow: Follow<'a>,
    pub id: WalletId,
    pub now: Timestamp,
    /// Our scripts, and whose account each is.
    owners: BTreeMap<Vec<u8>, u32>,
    locks: u64,
}

pub fn our_script(account: u32, key: u32, kind: AddressKind) -> Vec<u8> {
    script_of(account * KEYS + key % KEYS, kind)
}

pub fn our_address(account: u32, key: u32, kind: AddressKind) -> Address {
    address_of(&our_script(account, key, kind))
}

pub fn address_of(script: &[u8]) -> Address {
    let script = bitcoin::Script::from_bytes(script);
    Address::Bitcoin(bitcoin::Address::from_script(script, NETWORK).unwrap())
}

pub const fn change_kind(kind: AddressKind) -> ScriptKind {
    match kind {
        AddressKind::P2tr => ScriptKind::P2tr,
        AddressKind::P2wpkh | AddressKind::Other => ScriptKind::P2wpkh,
    }
}

impl<'a> Wallet<'a> {
    /// Two accounts, with three keys each, and both kinds of address of each key.
    pub async fn open(db: &'a Db, chain: &'a BitcoinChain, node: Node) -> Self {
        let id = db.create_wallet("hot", store::utxo::Network::Regtest, NOW).await.unwrap();
        let mut addresses = Vec::new();
        for (account, key) in (0..2).flat_map(|account| (0..KEYS).map(move |key| (account, key))) {
            addresses.extend(KINDS.map(|kind| NewAddress {
                account,
                path: Some(Path { branch: u8::from(key == KEYS - 1), index: key * 2 + u32::from(kind == KINDS[1]) }),
                kind,
                script: our_script(account, key, kind),
            }));
        }
        db.add_addresses(id, &addresses, store::utxo::Paths::Exact, NOW).await.unwrap();
        let owners = addresses.into_iter().map(|one| (one.script, one.account)).collect();
        Self { db, chain, node, follow: Follow::new(db, chain, 1), id, now: NOW, owners, locks: 0 }
    }

    pub fn tick(&mut self) -> Timestamp {
        self.now = self.now.plus_micros(1_000_000);
        self.now
    }

    fn lock(&mut self) -> LockId {
        self.locks += 1;
        let mut lock = [7; 32];
        lock[..8].copy_from_slice(&self.locks.to_be_bytes());
        LockId(lock)
    }

    /// All that the node has.
    pub async fn sync(&mut self) {
        let now = self.tick();
        while self.follow.step(50, now).await.unwrap() != Step::Idle {}
        self.follow.look(now).await.unwrap();
    }

    pub async fn sync_and_agree(&mut self, what: &str) {
        self.sync().await;
        self.agree(what, &[]).await;
    }

    pub async fn mine(&mut self, blocks: u64, what: &str) {
        self.node.mine(blocks).await;
        self.sync_and_agree(what).await;
    }

    pub async fn reorg(&mut self, depth: u32, with: &[Vec<u8>], what: &str) -> String {
        let lost = self.node.reorg(depth, with).await;
        self.sync().await;
        self.resend(what).await;
        lost
    }

    // ---- paying ------------------------------------------------------------------------------------------------

    /// A foreign coin pays our scripts. It is in the mempool then.
    pub async fn deposit(&mut self, payments: &[(Address, u64)], fee: u64) -> Vec<u8> {
        let coin = self.node.purse.pop().expect("the purse is not empty");
        let raw = self.node.pays(&coin, payments, fee);
        self.node.send(&raw).await.unwrap();
        raw
    }

    /// Leased and planned, not stored.
    pub async fn make(
        &mut self,
        account: u32,
        target: &Target,
        change: &[u8],
        allow: Allow,
    ) -> Result<(Payout, LockId), SpendError> {
        let lock = self.lock();
        let now = self.tick();
        let kept = if target.kept().is_empty() { None } else { plan(&[], target, change).ok() };
        let made = match kept {
            Some(made) => made,
            None => {
                let mut refused = None;
                let want = Want { target: target.wanted()?, allow, seed: self.locks };
                let until = now.plus_micros(60_000_000);
                let choose = chooser(target, &mut refused);
                let coins = self.db.select_and_lease(self.id, account, &want, lock, until, now, choose).await.unwrap();
                match coins {
                    Some(coins) => plan(&coins, target, change)?,
                    None => return Err(refused.expect("a reason")),
                }
            }
        };
        let (tip, _) = self.db.tip().await.unwrap().expect("a block");
        let transaction = signed(&made, tip);
        let raw = serialize(&transaction);
        let hash = tx_of(&transaction).unwrap().hash;
        assert_eq!(held(&made.coins), paid(&made.outputs) + made.fee);
        Ok((Payout { hash, raw, plan: made, account, rate: target.costs.rate }, lock))
    }

    pub async fn prepare(&mut self, account: u32, target: &Target, change: &[u8]) -> Result<Payout, SpendError> {
        let (payout, lock) = self.make(account, target, change, Allow::default()).await?;
        self.db.add_pending(self.id, &payout.new_tx(), Some(lock), self.now).await.unwrap();
        Ok(payout)
    }

    /// Selected, signed, stored, broadcast, published. A node that refuses it is told apart by `Err`.
    pub async fn pay(&mut self, account: u32, recipients: Vec<Recipient>, costs: Costs) -> Result<Payout, SpendError> {
        let kind = KINDS[usize::from(self.locks % 2 == 1)];
        let target = Target { recipients, change: change_kind(kind), costs, aim: Aim::Pay };
        let payout = self.prepare(account, &target, &our_script(account, KEYS - 1, kind)).await?;
        self.fair(&payout).await;
        self.broadcast(&payout).await;
        Ok(payout)
    }

    /// The fee is what was asked for, by the node's own measure.
    pub async fn fair(&self, payout: &Payout) {
        let (size, fee) = self.node.test(&payout.raw).await.expect("a transaction that nodes take");
        assert_eq!(fee, payout.plan.fee);
        let least = fee_for(payout.rate, size * 4);
        assert!(fee >= least, "{fee} for {size} virtual bytes at {}", payout.rate);
        if payout.plan.change.is_some() {
            assert!(fee * 100 <= least * 102, "{fee} for {size} virtual bytes at {}", payout.rate);
        }
    }

    pub async fn broadcast(&mut self, payout: &Payout) {
        let answer = self.chain.broadcast(&payout.raw).await.unwrap();
        assert_eq!(answer, Broadcast::Taken, "{payout:?}");
        self.db.publish(payout.hash, self.tick()).await.unwrap();
    }

    /// Of one that waits. The target that replaces it.
    pub async fn replacing(&mut self, old: &Payout, costs: Costs) -> (Target, Vec<u8>) {
        let facts = self.chain.mempool_facts(tx_hash_of(old.hash)).await.unwrap().expect("it waits");
        let increment = self.chain.fee_facts().await.unwrap().increment;
        let waiting = Waiting {
            coins: old.plan.coins.clone(),
            recipients: old.recipients(),
            change: old.change().cloned(),
            weight: old.weight(),
        };
        assert_eq!(waiting.fee().unwrap(), facts.fee);
        let terms = ReplacementTerms { evicted_fee: facts.descendants.fee - facts.fee, increment, at_least: 0 };
        let script = old.change().map_or_else(|| our_script(old.account, 2, KINDS[0]), |change| change.script.clone());
        let kind = change_kind(kind_of_script(&script));
        let target = replacement(&waiting, terms, costs, kind).unwrap();
        let Ok(first) = plan(&[], &target, &script) else { return (target, script) };
        // Every other time no node is asked: our own arithmetic must be enough.
        if self.locks.is_multiple_of(2) {
            return (target, script);
        }
        let at_least =
            self.chain.replacement_fee(&[tx_hash_of(old.hash)], first.weight).await.unwrap().expect("it waits");
        (replacement(&waiting, ReplacementTerms { at_least, ..terms }, costs, kind).unwrap(), script)
    }

    pub async fn replace(&mut self, old: &Payout, costs: Costs) -> Result<Payout, SpendError> {
        let (target, script) = self.replacing(old, costs).await;
        let (payout, lock) = self.make(old.account, &target, &script, Allow::default()).await?;
        let (size, fee) = self.node.test(&payout.raw).await.expect("a replacement that nodes take");
        assert!(fee >= fee_for(costs.rate, size * 4));
        self.db.replace(self.id, &payout.new_tx(), Some(lock), self.now).await.unwrap();
        self.broadcast(&payout).await;
        Ok(payout)
    }

    /// One that offers too little: stored, refused, given up.
    pub async fn replace_in_vain(&mut self, old: &Payout) {
        let (mut target, script) = self.replacing(old, SLOW).await;
        // Another fee each time: the same bytes again would be known, and given up.
        target.costs.rate = 100 + self.locks * 37 % 300;
        if let Aim::Replace(replaced) = &mut target.aim {
            (replaced.fee, replaced.evicted_fee, replaced.increment, replaced.at_least) = (0, 0, 0, 0);
        }
        let (payout, lock) = self.make(old.account, &target, &script, Allow::default()).await.unwrap();
        self.db.replace(self.id, &payout.new_tx(), Some(lock), self.now).await.unwrap();
        // The mempool still shows the old one, which changes nothing.
        self.sync().await;
        assert_eq!(self.status(payout.hash).await, Some((Status::Pending, None)));
        assert_eq!(self.status(old.hash).await, Some((Status::Replaced, None)));
        let answer = self.chain.broadcast(&payout.raw).await.unwrap();
        assert!(matches!(answer, Broadcast::Refused(chain::NodeRefusal::Underpriced, _)), "{answer:?}");
        let now = self.tick();
        self.db.abandon(payout.hash, "test", "the node wants more", now).await.unwrap();
        assert_eq!(self.status(old.hash).await, Some((Status::Published, None)));
    }

    /// A child that brings an unconfirmed output of ours to the rate.
    pub async fn push(&mut self, outpoint: OutPoint, costs: Costs) -> Payout {
        let parent = tx_hash_of(outpoint.hash);
        let coins: Vec<Coin> = self.db.coins_of(self.id, &[outpoint]).await.unwrap();
        let [coin] = coins.as_slice() else { panic!("{outpoint} is not ours") };
        let (account, lock, now) = (coin.account, self.lock(), self.tick());
        self.db.lease(self.id, &[outpoint], lock, now.plus_micros(60_000_000), now).await.unwrap();
        let facts = self.chain.mempool_facts(parent).await.unwrap().expect("it waits");
        let relay = self.chain.fee_facts().await.unwrap().relay_minimum;
        let target = child(coin.clone(), facts.ancestors, relay, costs, ScriptKind::P2tr);
        let script = our_script(account, 2, AddressKind::P2tr);
        let (payout, more) = self.make(account, &target, &script, Allow::default()).await.unwrap();
        assert_eq!(payout.plan.coins.len(), 1, "{more:?}");
        self.db.add_pending(self.id, &payout.new_tx(), Some(lock), self.now).await.unwrap();
        self.broadcast(&payout).await;
        let facts = self.chain.mempool_facts(tx_hash_of(payout.hash)).await.unwrap().expect("it waits");
        assert!(facts.ancestors.fee >= fee_for(costs.rate, facts.ancestors.size * 4), "{facts:?}");
        payout
    }

    pub async fn status(&self, hash: Hash) -> Option<(Status, Option<u32>)> {
        let detail = self.db.transaction(self.id, hash, self.now).await.unwrap();
        detail.map(|detail| (detail.status, detail.height))
    }

    /// Every output of ours that is there to be spent, by the store.
    pub async fn outputs(&self) -> Vec<OutputRow> {
        let filter = ListFilter { account: None, unspent_only: true, after: None, most: 100_000 };
        self.db.list_outputs(self.id, &filter, self.now).await.unwrap()
    }

    // ---- the store held against the node -----------------------------------------------------------------------

    /// After a reorg a node drops transactions that are not final any more, or that spend a coinbase which is not mature
    /// any more. The store keeps them, and they are sent again, as a wallet does. If the node refuses one even so, it has
    /// one of these reasons.
    pub async fn resend(&mut self, what: &str) {
        let mut absent = Vec::new();
        for (hash, raw, status) in self.db.unconfirmed(self.id).await.unwrap() {
            if status == Status::Pending {
                absent.push(hash);
                continue;
            }
            if let Err(words) = self.node.send(&raw).await {
                let transaction: Transaction = deserialize(&raw).unwrap();
                let parents = tx_of(&transaction).unwrap().inputs;
                let orphan = words.contains("missingorspent") && parents.iter().any(|one| absent.contains(&one.hash));
                let early = words.contains("non-final") || words.contains("premature-spend");
                assert!(early || orphan, "{what}: {hash}: {words}");
                absent.push(hash);
            }
        }
        self.sync().await;
        self.agree(what, &absent).await;
    }

    /// Outputs, balances and transactions are those of the node; `absent` are valid here and not in the mempool.
    pub async fn agree(&self, what: &str, absent: &[Hash]) {
        let (tip, hash) = self.db.tip().await.unwrap().expect("a block");
        assert_eq!((tip, hash.to_string()), (self.node.height().await, self.node.hash_at(tip).await), "{what}: tip");

        let scripts: Vec<Vec<u8>> = self.owners.keys().cloned().collect();
        let confirmed = self.node.unspent(&scripts).await;
        let waiting: BTreeMap<Hash, NewTx> =
            self.node.mempool().await.iter().map(|one| tx_of(one).unwrap()).map(|one| (one.hash, one)).collect();
        let unconfirmed = self.db.unconfirmed(self.id).await.unwrap();
        let known: BTreeSet<Hash> = unconfirmed.iter().map(|one| one.0).collect();
        let missing: BTreeSet<Hash> = known.iter().filter(|one| !waiting.contains_key(one)).copied().collect();
        assert_eq!(missing, absent.iter().copied().collect(), "{what}: not in the mempool");

        let mut expected: BTreeMap<OutPoint, (i64, u32, Option<u32>, bool)> = BTreeMap::new();
        for one in &confirmed {
            let outpoint = OutPoint { hash: one.hash, index: one.index };
            expected.insert(outpoint, (one.amount, self.account_of(outpoint).await, Some(one.height), one.coinbase));
        }
        let absent = unconfirmed.iter().filter(|one| missing.contains(&one.0));
        let absent: Vec<NewTx> = absent.map(|one| tx_of(&deserialize(&one.1).unwrap()).unwrap()).collect();
        for one in waiting.values().chain(&absent) {
            for (index, output) in (0..).zip(&one.outputs) {
                if let Some(account) = self.owners.get(&output.script) {
                    assert!(known.contains(&one.hash), "{what}: {} waits and pays us", one.hash);
                    expected.insert(OutPoint { hash: one.hash, index }, (output.amount, *account, None, false));
                }
            }
        }
        for one in waiting.values().chain(&absent) {
            for input in &one.inputs {
                let ours = expected.remove(input).is_some();
                assert!(!ours || known.contains(&one.hash), "{what}: {} waits and spends from us", one.hash);
            }
        }

        let rows = self.outputs().await;
        let stored: BTreeMap<_, _> =
            rows.iter().map(|row| (row.outpoint, (row.amount, row.account, row.height, row.coinbase))).collect();
        assert_eq!(stored, expected, "{what}: outputs");
        let mut balances = self.balances(&expected, tip);
        // What a transaction spent that was replaced, or whose parent was, is kept for it until a block decides.
        for (row, claimant) in rows.iter().filter_map(|row| Some((row, row.claimed_by?))) {
            assert!(!known.contains(&claimant) && !waiting.contains_key(&claimant), "{what}: {claimant} is valid");
            let detail = self.db.transaction(self.id, claimant, self.now).await.unwrap().expect("it is stored");
            assert!(
                detail.inputs.iter().any(|input| input.outpoint == row.outpoint),
                "{what}: {claimant} does not spend it"
            );
            balances.entry(row.account).or_default().leased += row.amount;
        }
        assert_eq!(balances, self.db.balance(self.id, self.now).await.unwrap(), "{what}: balances");
        assert_eq!(check(self.db, |_| {}).await.unwrap(), Vec::new(), "{what}: findings");
    }

    /// By the script that the store has for it: the node's search says only that it is one of ours.
    async fn account_of(&self, outpoint: OutPoint) -> u32 {
        let coins = self.db.coins_of(self.id, &[outpoint]).await.unwrap();
        let [coin] = coins.as_slice() else { panic!("the node has {outpoint}, which the store does not know") };
        *self.owners.get(&coin.script).expect("an address of ours")
    }

    fn balances(
        &self,
        outputs: &BTreeMap<OutPoint, (i64, u32, Option<u32>, bool)>,
        tip: u32,
    ) -> BTreeMap<u32, Balance> {
        let mut balances = BTreeMap::from([(0, Balance::default()), (1, Balance::default())]);
        for &(amount, account, height, coinbase) in outputs.values() {
            let balance = balances.entry(account).or_default();
            balance.outputs += 1;
            match height {
                Some(_) => balance.confirmed += amount,
                None => balance.unconfirmed += amount,
            }
            if height.is_some_and(|height| coinbase && !is_mature(height, tip)) {
                balance.immature += amount;
            }
        }
        balances
    }
}
