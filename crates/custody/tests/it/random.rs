//! Steps of a wallet's life in a random order, compared with the node after each. The seed makes it
//! repeatable, as far as a node is: only hashes and the time of blocks differ.

use std::collections::BTreeMap;

use chain::{Broadcast, Chain};
use custody::bitcoin::{Aim, Costs, Follow, Recipient, Target, tx_of_bytes};
use domain::random::Random;
use store::db_test;
use store::utxo::{Allow, Hash, Status};
use tx::Address;
use tx::Input;

use crate::node::Node;
use crate::wallet::{KINDS, Payout, QUICK, Wallet, change_kind, our_address, our_script};
use crate::world::foreign_script;

const STEPS: u32 = 150;

db_test! {
    async fn a_random_life_agrees_with_bitcoind(db: TestDb) {
        let node = Node::start().await;
        let chain = node.client();
        let wallet = Wallet::open(db, &chain, node).await;
        let random = Random::from_seed(seed());
        Life { wallet, random, ours: BTreeMap::new(), paid: Vec::new(), lost: None }.live().await;
    }
}

/// One that is fixed; another by `BURSAR_TEST_SEED`, to search with.
fn seed() -> u64 {
    std::env::var("BURSAR_TEST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(6)
}

struct Life<'a> {
    wallet: Wallet<'a>,
    random: Random,
    ours: BTreeMap<Hash, Payout>,
    /// Foreign payments to us, and the coin that each spends.
    paid: Vec<(Input, Vec<u8>)>,
    /// The first block of a branch that was left.
    lost: Option<String>,
}

impl Life<'_> {
    async fn live(&mut self) {
        // Coinbases of ours that mature one after the other while the journey lasts.
        for account in 0..2 {
            self.wallet.node.mine_to(8, &our_address(account, 0, KINDS[1])).await;
        }
        self.wallet.node.mine(84).await;
        for step in 0..STEPS {
            let what = match self.random.below(100) {
                0..10 => self.mine().await,
                10..14 => self.odd_block().await,
                14..32 => self.deposit().await,
                32..56 => self.pay().await,
                56..66 => self.replace().await,
                66..72 => self.finish_pending().await,
                72..78 => self.push().await,
                78..86 => self.double_spend().await,
                86..93 => self.reorg().await,
                93..96 => self.back().await,
                _ => self.restart().await,
            };
            println!("step {step}: {what}");
            let what = format!("step {step}, {what}");
            self.wallet.sync().await;
            self.wallet.resend(&what).await;
        }
        // Something has happened.
        let balances = self.wallet.db.balance(self.wallet.id, self.wallet.now).await.unwrap();
        assert!(balances.values().all(|balance| balance.outputs > 0), "{balances:?}");
    }

    fn account(&mut self) -> u32 {
        u32::from(self.random.below(2) == 1)
    }

    fn address(&mut self) -> Address {
        let account = self.account();
        our_address(account, u32::from(self.random.below(2) == 1), KINDS[self.random.index(2)])
    }

    fn costs(&mut self) -> Costs {
        Costs { rate: 500 + self.random.below(12_000), ..QUICK }
    }

    async fn mine(&mut self) -> &'static str {
        let blocks = 1 + self.random.below(4);
        if self.random.below(3) == 0 {
            let to = self.address();
            self.wallet.node.mine_to(blocks, &to).await;
        } else {
            self.wallet.node.mine(blocks).await;
        }
        "blocks"
    }

    /// A miner has one of ours that was replaced, given up, not sent yet, or is of another branch.
    async fn odd_block(&mut self) -> &'static str {
        for _ in 0..5 {
            let at = self.random.index(self.ours.len().max(1));
            let Some(raw) = self.ours.values().nth(at).map(|payout| payout.raw.clone()) else { break };
            if self.wallet.node.try_mine_only(&[raw]).await {
                return "a block that nobody expected";
            }
        }
        "no odd block"
    }

    async fn deposit(&mut self) -> &'static str {
        let count = 1 + self.random.below(3);
        let mut payments = Vec::new();
        for _ in 0..count {
            let address = self.address();
            payments.push((address, 1_000 + self.random.below(4_000_000)));
        }
        let fee = 150 + self.random.below(4_000);
        let coin = self.wallet.node.purse.last().unwrap().clone();
        let raw = self.wallet.deposit(&payments, fee).await;
        self.paid.push((coin, raw));
        "a deposit"
    }

    async fn pay(&mut self) -> &'static str {
        let account = self.account();
        let most = self.wallet.db.balance(self.wallet.id, self.wallet.now).await.unwrap()[&account];
        let most = u64::try_from(most.confirmed + most.unconfirmed - most.immature).unwrap();
        let count = 1 + self.random.below(5);
        let mut recipients = Vec::new();
        for _ in 0..count {
            let script = if self.random.below(4) == 0 {
                our_script(self.account(), 0, KINDS[self.random.index(2)])
            } else {
                foreign_script(u8::try_from(self.random.below(200)).unwrap())
            };
            recipients.push(Recipient { amount: 1_000 + self.random.below(most / count / 2 + 1), script });
        }
        let (kind, costs) = (KINDS[self.random.index(2)], self.costs());
        let target = Target { recipients, change: change_kind(kind), costs, aim: Aim::Pay };
        let allow = Allow { pending: self.random.below(4) == 0, ..Allow::default() };
        let Ok((payout, lock)) = self.wallet.make(account, &target, &our_script(account, 2, kind), allow).await else {
            return "too little for a payout";
        };
        self.wallet.db.add_pending(self.wallet.id, &payout.new_tx(), Some(lock), self.wallet.now).await.unwrap();
        self.ours.insert(payout.hash, payout.clone());
        if self.random.below(6) == 0 {
            return "a payout that is not sent yet";
        }
        self.offer(&payout).await;
        "a payout"
    }

    /// Broadcast; given up when the node has a reason that lies with its parents.
    async fn offer(&mut self, payout: &Payout) {
        let now = self.wallet.tick();
        match self.wallet.chain.broadcast(&payout.raw).await.unwrap() {
            Broadcast::Taken => drop(self.wallet.db.publish(payout.hash, now).await.unwrap()),
            Broadcast::Refused(_, words) => {
                let known = ["too-long-mempool-chain", "too-large-cluster", "missingorspent", "insufficient fee"];
                assert!(known.iter().any(|one| words.contains(one)), "{words}");
                self.wallet.db.abandon(payout.hash, "test", &words, now).await.unwrap();
            }
        }
    }

    /// One of ours that is in this state.
    async fn one_of_ours(&mut self, status: Status) -> Option<Payout> {
        let open = self.wallet.db.unconfirmed(self.wallet.id).await.unwrap();
        let mut open: Vec<Payout> =
            open.iter().filter(|one| one.2 == status).filter_map(|one| self.ours.get(&one.0)).cloned().collect();
        if open.is_empty() { None } else { Some(open.swap_remove(self.random.index(open.len()))) }
    }

    async fn waits(&self, hash: Hash) -> bool {
        self.wallet.chain.mempool_facts(tx::TxHash(hash.0)).await.unwrap().is_some()
    }

    async fn replace(&mut self) -> &'static str {
        let Some(old) = self.one_of_ours(Status::Published).await else { return "nothing to replace" };
        if !self.waits(old.hash).await || old.recipients().is_empty() {
            return "nothing to replace that waits";
        }
        if self.random.below(3) == 0 {
            self.wallet.replace_in_vain(&old).await;
            return "a replacement in vain";
        }
        let costs = self.costs();
        match self.wallet.replace(&old, costs).await {
            Ok(new) => {
                self.ours.insert(new.hash, new);
                "a replacement"
            }
            Err(_) => "no money for a replacement",
        }
    }

    async fn finish_pending(&mut self) -> &'static str {
        let Some(payout) = self.one_of_ours(Status::Pending).await else { return "nothing is pending" };
        if self.random.below(2) == 0 {
            let now = self.wallet.tick();
            self.wallet.db.abandon(payout.hash, "test", "no longer wanted", now).await.unwrap();
            return "a pending one is abandoned";
        }
        self.offer(&payout).await;
        "a pending one is sent"
    }

    /// An output of a foreign transaction that waits.
    async fn push(&mut self) -> &'static str {
        for row in self.wallet.outputs().await {
            let foreign = !self.ours.contains_key(&row.outpoint.hash);
            if foreign && row.height.is_none() && row.amount > 100_000 && self.waits(row.outpoint.hash).await {
                let costs = self.costs();
                let payout = self.wallet.push(row.outpoint, costs).await;
                self.ours.insert(payout.hash, payout);
                return "a child that pushes";
            }
        }
        "nothing to push"
    }

    async fn double_spend(&mut self) -> &'static str {
        let Some((coin, raw)) = self.paid.pop() else { return "nothing to spend twice" };
        let known = tx_of_bytes(&raw).unwrap().hash;
        if self.wallet.status(known).await != Some((Status::Published, None)) {
            return "it is done";
        }
        let to: Vec<(Address, u64)> =
            if self.random.below(2) == 0 { Vec::new() } else { vec![(self.address(), 500_000)] };
        let other = self.wallet.node.pays(&coin, &to, 400_000);
        if self.random.below(2) == 0 {
            self.wallet.node.mine_only(std::slice::from_ref(&other)).await;
            return "a double spend is mined";
        }
        // With so much more, a node takes it.
        match self.wallet.node.send(&other).await {
            Ok(()) => "a double spend replaces",
            Err(words) => panic!("{words}"),
        }
    }

    async fn reorg(&mut self) -> &'static str {
        let depth = 1 + u32::try_from(self.random.below(8)).unwrap();
        self.lost = Some(self.wallet.node.reorg(depth, &[]).await);
        if self.random.below(2) == 0 {
            return self.odd_block().await;
        }
        "a reorg"
    }

    async fn back(&mut self) -> &'static str {
        let Some(lost) = self.lost.take() else { return "no other branch" };
        self.wallet.node.back_to(&lost).await;
        "back to the other branch"
    }

    async fn restart(&mut self) -> &'static str {
        self.wallet.follow = Follow::new(self.wallet.db, self.wallet.chain, 1);
        // After a restore a pending transaction cannot be given up any more.
        if self.random.below(2) == 0 && self.one_of_ours(Status::Pending).await.is_none() {
            self.wallet.follow.restore(self.wallet.id, self.wallet.now, |_, _| ()).await.unwrap();
            return "a restore";
        }
        "a restart"
    }
}
