//! The rules of the Bitcoin wallet as plain maps: too simple to be wrong, too slow to be used. What the store's rows
//! say after an event is compared with [`Model::rows`](super::readings), word for word.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use store::utxo::*;

/// What happens to a store. Wallets are numbers into the world's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Connect(Block, Vec<NewTx>),
    /// Back to a height; the transactions of the blocks that go, as far as somebody still has them.
    Disconnect(u32, Vec<NewTx>),
    See(Vec<NewTx>),
    /// The mempool has these and no others.
    Mempool(Vec<NewTx>),
    Pending(usize, NewTx),
    Replace(usize, NewTx),
    Publish(Hash),
    Abandon(Hash),
    /// Two people say that a published one can never be mined.
    GiveUp(Hash),
}

/// Wallet, hash, status and height of a transaction that changed.
pub type Changed = (usize, Hash, Status, Option<u32>);
/// What changed, or the code of the refusal.
pub type Answer = Result<BTreeSet<Changed>, &'static str>;

#[derive(Clone, Debug)]
pub struct Tx {
    /// Shared: a model is copied often.
    pub content: Arc<NewTx>,
    pub wallets: BTreeSet<usize>,
    pub status: Status,
    pub height: Option<u32>,
    pub own: bool,
    pub was_published: bool,
    pub given_up: bool,
    /// When it was first stored: a higher number is later.
    pub(super) number: usize,
}

#[derive(Clone, Debug)]
pub struct Edge {
    pub victim: Hash,
    pub winner: Hash,
    pub wallets: BTreeSet<usize>,
}

#[derive(Clone, Debug, Default)]
pub struct Model {
    /// Whose a script is: wallet and account.
    pub scripts: BTreeMap<Vec<u8>, (usize, u32)>,
    pub blocks: Vec<Block>,
    pub txs: BTreeMap<Hash, Tx>,
    /// Oldest first.
    pub edges: Vec<Edge>,
    /// How often law 5 made a transaction published again.
    pub revived: u32,
}

/// The beginning of a hash, enough to tell a test's transactions apart.
pub fn short(hash: &Hash) -> String {
    hash.to_string()[..8].to_owned()
}

fn share_an_input(one: &NewTx, other: &NewTx) -> bool {
    one.hash != other.hash && one.inputs.iter().any(|input| other.inputs.contains(input))
}

// ---- what is so ----------------------------------------------------------------------------------------------

impl Model {
    pub fn is_confirmed(&self, hash: &Hash) -> bool {
        self.txs.get(hash).is_some_and(|tx| tx.height.is_some())
    }

    /// A block has it, or something that depends on it.
    fn is_settled(&self, hash: &Hash) -> bool {
        let spends = |tx: &&Tx| tx.status.is_valid() && tx.content.inputs.iter().any(|input| input.hash == *hash);
        self.is_confirmed(hash) || self.txs.values().filter(spends).any(|tx| self.is_settled(&tx.content.hash))
    }

    pub fn tip(&self) -> Option<&Block> {
        self.blocks.last()
    }

    /// The wallet and account of an output that is stored.
    pub fn owner(&self, output: &OutPoint) -> Option<(usize, u32)> {
        let tx = &self.txs.get(&output.hash)?.content;
        let output = tx.outputs.get(usize::try_from(output.index).unwrap())?;
        self.scripts.get(&output.script).copied()
    }

    /// The valid transaction that spends each output, and with which input.
    pub fn spenders(&self) -> BTreeMap<OutPoint, (Hash, usize)> {
        let mut spenders = BTreeMap::new();
        for tx in self.txs.values().filter(|tx| tx.status.is_valid()) {
            for (index, input) in tx.content.inputs.iter().enumerate() {
                let other = spenders.insert(*input, (tx.content.hash, index));
                assert_eq!(other, None, "the model let two valid transactions spend {input}");
            }
        }
        spenders
    }

    pub(super) fn conflicts(&self, tx: &NewTx) -> Vec<&Tx> {
        self.txs.values().filter(|other| share_an_input(tx, &other.content)).collect()
    }

    pub(super) fn valid_conflicts(&self, tx: &NewTx) -> Vec<Hash> {
        self.conflicts(tx).into_iter().filter(|tx| tx.status.is_valid()).map(|tx| tx.content.hash).collect()
    }

    pub(super) fn has_invalid_parent(&self, tx: &NewTx) -> bool {
        tx.inputs.iter().any(|input| self.txs.get(&input.hash).is_some_and(|parent| !parent.status.is_valid()))
    }

    /// Wallets that it pays, spends from, or in which a stored transaction conflicts with it.
    pub(super) fn concerned(&self, tx: &NewTx) -> BTreeSet<usize> {
        let paid = tx.outputs.iter().filter_map(|output| self.scripts.get(&output.script));
        let spent = tx.inputs.iter().filter_map(|input| self.owner(input));
        let mut wallets: BTreeSet<usize> = paid.copied().chain(spent).map(|(wallet, _)| wallet).collect();
        wallets.extend(self.conflicts(tx).into_iter().flat_map(|tx| tx.wallets.iter().copied()));
        wallets
    }

    /// Wallets of unconfirmed transactions that spend its outputs.
    fn concerned_by_children(&self, tx: &NewTx) -> BTreeSet<usize> {
        let spends = |other: &&Tx| other.content.inputs.iter().any(|input| input.hash == tx.hash);
        let unconfirmed = self.txs.values().filter(|other| other.height.is_none());
        unconfirmed.filter(spends).flat_map(|other| other.wallets.iter().copied()).collect()
    }

    pub(super) fn is_own(&self, tx: &NewTx) -> bool {
        let trusted = |input: &OutPoint| {
            let parent = self.txs.get(&input.hash);
            self.owner(input).is_some() && parent.is_some_and(|parent| parent.height.is_some() || parent.own)
        };
        !tx.coinbase && tx.inputs.iter().all(trusted)
    }
}

// ---- what happens --------------------------------------------------------------------------------------------

impl Model {
    /// What the event comes to. A refusal changes nothing.
    pub fn apply(&mut self, event: &Event) -> Answer {
        let before = self.clone();
        let done = match event {
            Event::Connect(block, txs) => self.connect(block, txs),
            Event::Disconnect(down_to, stale) => self.disconnect(*down_to, stale),
            Event::See(txs) => self.see_all(txs, false),
            Event::Mempool(txs) => self.see_all(txs, true),
            Event::Pending(wallet, tx) => self.pending(*wallet, tx),
            Event::Replace(wallet, tx) => self.replace(*wallet, tx),
            Event::Publish(hash) => self.publish(hash),
            Event::Abandon(hash) => self.abandon(hash),
            Event::GiveUp(hash) => self.give_up(hash),
        };
        self.settle_own();
        match done {
            Ok(()) => Ok(self.changed_since(&before)),
            Err(code) => {
                *self = before;
                Err(code)
            }
        }
    }

    fn changed_since(&self, before: &Self) -> BTreeSet<Changed> {
        let states = |model: &Self| -> BTreeSet<Changed> {
            let of = |tx: &Tx| {
                let (hash, status, height) = (tx.content.hash, tx.status, tx.height);
                tx.wallets.iter().map(move |wallet| (*wallet, hash, status, height)).collect::<Vec<_>>()
            };
            model.txs.values().flat_map(of).collect()
        };
        states(self).difference(&states(before)).copied().collect()
    }

    fn connect(&mut self, block: &Block, txs: &[NewTx]) -> Result<(), &'static str> {
        let again = self.blocks.iter().any(|known| known.hash == block.hash && known.height == block.height);
        if let Some(tip) = self.tip()
            && !again
            && (block.height != tip.height + 1 || block.parent != tip.hash)
        {
            return Err("UTXO_NOT_ON_TIP");
        }
        if !again {
            self.blocks.push(*block);
        }
        // One after another: what an earlier one has made invalid is no victim of a later one. A block that is read again
        // may concern us since: a node that lagged has shown what it had made impossible.
        for tx in txs {
            if self.txs.get(&tx.hash).is_some_and(|known| known.height == Some(block.height)) {
                continue;
            }
            let before = self.moment();
            let victims = self.valid_conflicts(tx);
            if self.store(tx, Status::Published, Some(block.height)) {
                self.take_inputs(tx.hash, &victims, Status::Failed);
            }
            self.revive(&before);
        }
        Ok(())
    }

    fn disconnect(&mut self, down_to: u32, stale: &[NewTx]) -> Result<(), &'static str> {
        let before = self.moment();
        self.blocks.retain(|block| block.height <= down_to);
        let mut orphans = Vec::new();
        for tx in self.txs.values_mut().filter(|tx| tx.height.is_some_and(|height| height > down_to)) {
            tx.height = None;
            if tx.content.coinbase {
                tx.status = Status::Orphaned;
                orphans.push(tx.content.hash);
            }
        }
        self.cascade(orphans);
        // Children before their parents.
        for tx in stale.iter().rev() {
            let concerned = self.concerned_by_children(tx);
            if self.txs.contains_key(&tx.hash) || concerned.is_empty() || !self.valid_conflicts(tx).is_empty() {
                continue;
            }
            let status = if tx.coinbase { Status::Orphaned } else { Status::Published };
            self.store_in(tx, status, None, concerned);
            if tx.coinbase {
                self.cascade(vec![tx.hash]);
            }
        }
        self.revive(&before);
        Ok(())
    }

    fn see_all(&mut self, txs: &[NewTx], is_all: bool) -> Result<(), &'static str> {
        if txs.iter().any(|tx| tx.coinbase) {
            return Err("UTXO_BAD_TRANSACTION");
        }
        let waiting: Option<BTreeSet<Hash>> = is_all.then(|| txs.iter().map(|tx| tx.hash).collect());
        for tx in txs {
            let before = self.moment();
            self.see(tx, waiting.as_ref());
            self.revive(&before);
        }
        Ok(())
    }

    fn see(&mut self, tx: &NewTx, waiting: Option<&BTreeSet<Hash>>) {
        let conflicts = self.valid_conflicts(tx);
        let known = self.txs.get(&tx.hash).map(|known| known.status);
        let mut concerned = self.concerned(tx);
        concerned.extend(self.concerned_by_children(tx));
        if known == Some(Status::Pending) {
            self.store_in(tx, Status::Published, None, concerned);
            return;
        }
        if known.is_some_and(Status::is_valid) {
            return;
        }
        if known.is_none() && conflicts.iter().any(|conflict| self.is_settled(conflict)) {
            return;
        }
        match (known.is_some(), self.has_invalid_parent(tx)) {
            (true, invalid_parent) => {
                // Whatever it is: the network has seen it.
                let seen = self.txs.get_mut(&tx.hash).unwrap();
                seen.was_published = true;
                seen.given_up = false;
                let gives_way = |hash: &Hash| {
                    let rival = &self.txs[hash];
                    let published = rival.status == Status::Published && !self.is_settled(hash);
                    published && waiting.is_some_and(|waiting| !waiting.contains(hash))
                };
                if !invalid_parent && conflicts.iter().all(gives_way) {
                    self.store_in(tx, Status::Published, None, concerned);
                    self.take_inputs(tx.hash, &conflicts, Status::Replaced);
                }
            }
            (false, true) => {
                // Children that came before it fall with it.
                if self.store_in(tx, Status::Failed, None, concerned) {
                    self.txs.get_mut(&tx.hash).unwrap().was_published = true;
                    self.cascade(vec![tx.hash]);
                }
            }
            (false, false) => {
                if self.store_in(tx, Status::Published, None, concerned) {
                    self.take_inputs(tx.hash, &conflicts, Status::Replaced);
                }
            }
        }
    }

    fn pending(&mut self, wallet: usize, tx: &NewTx) -> Result<(), &'static str> {
        if self.is_known_or_impossible(wallet, tx)? {
            return Ok(());
        }
        if !self.valid_conflicts(tx).is_empty() {
            return Err("UTXO_CONFLICT");
        }
        self.check_room(tx, &[])?;
        self.check_mature(tx)?;
        self.check_unclaimed(tx)?;
        self.store(tx, Status::Pending, None);
        Ok(())
    }

    fn replace(&mut self, wallet: usize, tx: &NewTx) -> Result<(), &'static str> {
        if self.is_known_or_impossible(wallet, tx)? {
            return Ok(());
        }
        let conflicts = self.valid_conflicts(tx);
        if conflicts.is_empty() || conflicts.iter().any(|conflict| self.is_settled(conflict)) {
            return Err("UTXO_NOT_REPLACEABLE");
        }
        self.check_room(tx, &conflicts)?;
        self.check_mature(tx)?;
        self.check_unclaimed(tx)?;
        let before = self.moment();
        self.store(tx, Status::Pending, None);
        self.take_inputs(tx.hash, &conflicts, Status::Replaced);
        self.revive(&before);
        Ok(())
    }

    fn check_mature(&self, tx: &NewTx) -> Result<(), &'static str> {
        let tip = self.tip().map_or(0, |tip| tip.height);
        let immature = |input: &OutPoint| {
            let maker = self.txs.get(&input.hash).filter(|maker| maker.content.coinbase);
            maker.and_then(|maker| maker.height).is_some_and(|height| !is_mature(height, tip))
        };
        if tx.inputs.iter().any(immature) { Err("UTXO_IMMATURE") } else { Ok(()) }
    }

    fn check_unclaimed(&self, tx: &NewTx) -> Result<(), &'static str> {
        let claimed = self.claimed();
        if tx.inputs.iter().any(|input| claimed.contains_key(input)) { Err("UTXO_CLAIMED") } else { Ok(()) }
    }

    /// Nodes take a transaction only if few that wait hang together with it; what it replaces is gone by then.
    fn check_room(&self, tx: &NewTx, replaced: &[Hash]) -> Result<(), &'static str> {
        let spends = |tx: &Tx, from: &BTreeSet<Hash>| tx.content.inputs.iter().any(|input| from.contains(&input.hash));
        let waits = |tx: &&Tx| tx.status.is_valid() && tx.height.is_none();
        let grow = |set: &mut BTreeSet<Hash>, joins: &dyn Fn(&Tx, &BTreeSet<Hash>) -> bool| {
            loop {
                let new =
                    self.txs.values().filter(waits).filter(|tx| !set.contains(&tx.content.hash) && joins(tx, set));
                let new: Vec<Hash> = new.map(|tx| tx.content.hash).collect();
                if new.is_empty() {
                    return;
                }
                set.extend(new);
            }
        };
        let mut gone: BTreeSet<Hash> = replaced.iter().copied().collect();
        grow(&mut gone, &spends);
        let is_left = |hash: &Hash| self.txs.get(hash).is_some_and(|tx| waits(&tx)) && !gone.contains(hash);
        let mut cluster: BTreeSet<Hash> = tx.inputs.iter().map(|input| input.hash).filter(is_left).collect();
        grow(&mut cluster, &|tx, set| {
            let parent_of = |hash: &Hash| self.txs[hash].content.inputs.iter().any(|one| one.hash == tx.content.hash);
            is_left(&tx.content.hash) && (spends(tx, set) || set.iter().any(parent_of))
        });
        let most = usize::try_from(ChainSize::USUAL.transactions).unwrap();
        if cluster.len() < most { Ok(()) } else { Err("UTXO_CHAIN_TOO_LONG") }
    }

    fn is_known_or_impossible(&self, wallet: usize, tx: &NewTx) -> Result<bool, &'static str> {
        if let Some(known) = self.txs.get(&tx.hash) {
            return if known.status.is_valid() { Ok(true) } else { Err("UTXO_ENDED") };
        }
        let spends = tx.inputs.iter().any(|input| self.owner(input).is_some_and(|(owner, _)| owner == wallet));
        if tx.coinbase || !spends {
            return Err("UTXO_BAD_TRANSACTION");
        }
        if self.has_invalid_parent(tx) { Err("UTXO_INVALID_PARENT") } else { Ok(false) }
    }

    fn publish(&mut self, hash: &Hash) -> Result<(), &'static str> {
        match self.txs.get(hash).ok_or("UTXO_UNKNOWN_TRANSACTION")?.status {
            Status::Published => Ok(()),
            Status::Pending => {
                // With it everything that it needs is shown.
                let mut open = vec![*hash];
                while let Some(one) = open.pop() {
                    let tx = self.txs.get_mut(&one).unwrap();
                    tx.status = Status::Published;
                    tx.was_published = true;
                    let parents: Vec<Hash> = tx.content.inputs.iter().map(|input| input.hash).collect();
                    let pending = |hash: &Hash| self.txs.get(hash).is_some_and(|tx| tx.status == Status::Pending);
                    open.extend(parents.into_iter().filter(pending));
                }
                Ok(())
            }
            Status::Replaced | Status::Failed | Status::Orphaned => Err("UTXO_NOT_PENDING"),
        }
    }

    fn abandon(&mut self, hash: &Hash) -> Result<(), &'static str> {
        match self.txs.get(hash).ok_or("UTXO_UNKNOWN_TRANSACTION")?.status {
            Status::Failed if !self.txs[hash].was_published => Ok(()),
            Status::Pending => {
                let before = self.moment();
                self.invalidate(hash, Status::Failed, None);
                self.cascade(vec![*hash]);
                self.revive(&before);
                Ok(())
            }
            Status::Failed | Status::Published | Status::Replaced | Status::Orphaned => Err("UTXO_NOT_PENDING"),
        }
    }

    fn give_up(&mut self, hash: &Hash) -> Result<(), &'static str> {
        let tx = self.txs.get(hash).ok_or("UTXO_UNKNOWN_TRANSACTION")?;
        if tx.given_up {
            return Ok(());
        }
        let waits = tx.status == Status::Published && !self.is_settled(hash);
        if !waits && (tx.status.is_valid() || !self.may_be_mined(hash)) {
            return Err("UTXO_NOT_WAITING");
        }
        let before = self.moment();
        self.txs.get_mut(hash).unwrap().given_up = true;
        if waits {
            self.invalidate(hash, Status::Failed, None);
            self.cascade(vec![*hash]);
        }
        self.revive(&before);
        Ok(())
    }
}
