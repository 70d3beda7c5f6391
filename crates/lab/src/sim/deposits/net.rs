//! One chain with its three nodes: blocks are mined, branches are left, and the nodes follow as they can.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use domain::random::Random;
use domain::{AssetId, ChainKind, ChainName, RawAmount, RawSum, Timestamp};
use tx::{Address, BlockHash, Family, TxHash};

use super::ground::{HOLLOW, TOKEN};
use super::model::{Block, Branch, Money, Transaction, bytes};
use super::owner::{Effect, Kind, Owners};

pub(crate) const NODES: usize = 3;
pub(crate) const QUORUM: usize = 2;
/// No branch that is left is longer.
pub(crate) const DEEPEST: u64 = 60;

/// What does not change in a run.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub name: ChainName,
    pub kind: ChainKind,
    pub family: Family,
    pub confirmations: u64,
    pub final_confirmations: u64,
    /// Chain units in a ledger unit, of the coin and of the token.
    pub unit: BTreeMap<Money, u128>,
    pub asset: BTreeMap<Money, AssetId>,
    /// In ledger units.
    pub least: i64,
    pub coin: &'static str,
    pub token: Address,
    pub hollow: Address,
    pub air: Address,
    pub stranger: Address,
    pub gas: Address,
    pub hot: Address,
}

/// How a node lies about the blocks that it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    Truth,
    LeavesOut,
    Inflates,
    Invents,
    /// Shows payments of the chain in blocks that they are not in.
    Misplaces,
    /// Has blocks of its own that nobody else has.
    Forks,
}

impl Lie {
    pub const LIES: [Self; 5] = [Self::LeavesOut, Self::Inflates, Self::Invents, Self::Misplaces, Self::Forks];
}

#[derive(Debug)]
pub(crate) struct SimNode {
    pub name: String,
    pub view: Branch,
    pub lie: Lie,
    pub down: bool,
    /// It gets no new blocks.
    pub stuck: bool,
    /// The heights of the blocks that it has lied about.
    pub lied_at: BTreeSet<u64>,
}

/// What is known of a block that was mined, whatever became of it.
#[derive(Debug)]
pub(crate) struct Record {
    pub block: Arc<Block>,
    /// A quorum has it, or had it last.
    pub agreed: bool,
    /// The highest block above it that a quorum had when it had this one. 0: no quorum ever had it.
    pub deepest: u64,
    /// The turn in which a quorum had another block in its place.
    pub left: Option<u64>,
}

/// What the chain says that our addresses have.
#[derive(Debug, Default)]
pub(crate) struct ChainBooks {
    pub balances: HashMap<(Address, Money), RawSum>,
    /// Those that have changed since somebody last looked.
    pub changed: HashSet<(Address, Money)>,
    /// Of each coin: everything that came and left, without what moves inside and what no ledger can hold.
    pub sums: BTreeMap<Money, i128>,
    /// Of each coin: what left and nothing explains.
    pub left: BTreeMap<Money, i128>,
}

pub(crate) fn signed(raw: RawAmount, sign: i8) -> RawSum {
    match sign {
        0 => RawSum::ZERO,
        1 => raw.into(),
        _ => -RawSum::from(raw),
    }
}

/// `None`: so much that the ledger's 64 bits cannot hold it.
pub(crate) fn number(raw: RawAmount, unit: u128) -> Option<i128> {
    let raw: u128 = raw.to_string().parse().ok()?;
    i64::try_from(raw / unit).ok()?;
    i128::try_from(raw).ok()
}

impl ChainBooks {
    /// Whether nobody pays what is not there, and nobody gets more than a chain can write.
    fn can(&self, effects: &[Effect]) -> bool {
        let mut after: HashMap<(&Address, Money), RawSum> = HashMap::new();
        // What a transaction takes must have been there before it.
        let outs = effects.iter().filter(|effect| effect.kind.sign() < 0);
        let ins = effects.iter().filter(|effect| effect.kind.sign() > 0);
        outs.chain(ins).all(|effect| {
            let balance = after.entry((&effect.address, effect.money)).or_insert_with(|| {
                self.balances.get(&(effect.address.clone(), effect.money)).copied().unwrap_or_default()
            });
            *balance = balance.plus(signed(effect.raw, effect.kind.sign()));
            balance.to_raw().is_some()
        })
    }

    pub fn add(&mut self, effects: &[Effect], units: &BTreeMap<Money, u128>, direction: i8) {
        for effect in effects {
            let sign = effect.kind.sign() * direction;
            let balance = self.balances.entry((effect.address.clone(), effect.money)).or_default();
            *balance = balance.plus(signed(effect.raw, sign));
            self.changed.insert((effect.address.clone(), effect.money));
            let unit = units.get(&effect.money).copied().unwrap_or(1);
            let Some(raw) = number(effect.raw, unit).filter(|_| !effect.kind.is_inside()) else { continue };
            *self.sums.entry(effect.money).or_default() += i128::from(sign) * raw;
            if effect.kind == Kind::Left {
                *self.left.entry(effect.money).or_default() += i128::from(direction) * raw;
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct Net {
    pub spec: Spec,
    pub owners: Owners,
    pub truth: Branch,
    pub nodes: Vec<SimNode>,
    /// The newest chain that a quorum had. That nodes lag does not shorten it.
    pub agreed: Branch,
    pub records: HashMap<BlockHash, Record>,
    pub waiting: Vec<Arc<Transaction>>,
    pub books: ChainBooks,
    /// Rounds of a worker since the last one that found something to do.
    pub idle_rounds: u32,
    /// Transactions that took coins from an address of ours. One that only moved them inside looks like a theft when a node
    /// leaves the other half out.
    pub took: BTreeSet<TxHash>,
}

impl Net {
    pub fn new(spec: Spec, random: &mut Random, now: Timestamp) -> Self {
        let hash = BlockHash(bytes(random));
        let first = Block { height: 100, hash, parent: BlockHash::default(), time: now, transactions: Vec::new() };
        let truth = Branch::new(Arc::new(first));
        let node = |number: usize| SimNode {
            name: format!("{}-{number}", spec.name),
            view: truth.clone(),
            lie: Lie::Truth,
            down: false,
            stuck: false,
            lied_at: BTreeSet::new(),
        };
        let nodes = (0..NODES).map(node).collect();
        Self {
            owners: Owners::default(),
            nodes,
            agreed: truth.clone(),
            truth,
            records: HashMap::new(),
            waiting: Vec::new(),
            books: ChainBooks::default(),
            idle_rounds: 0,
            took: BTreeSet::new(),
            spec,
        }
    }

    pub fn height(&self) -> u64 {
        self.truth.tip().height
    }

    pub fn wait(&mut self, transaction: Transaction) {
        let took = |effect: &Effect| matches!(effect.kind, Kind::Left | Kind::InsideOut | Kind::Fee);
        if self.owners.effects(&transaction).iter().any(took) {
            self.took.insert(transaction.hash);
        }
        self.waiting.push(Arc::new(transaction));
    }

    /// The next block, with some of what waits. The nodes hear of it by [`Net::spread`].
    pub fn mine(&mut self, random: &mut Random, now: Timestamp) {
        let mut taken = Vec::new();
        for one in std::mem::take(&mut self.waiting) {
            if taken.len() >= 12 || random.below(5) == 0 {
                self.waiting.push(one);
                continue;
            }
            let effects = self.owners.effects(&one);
            // Whoever pays must have it; otherwise nobody mines it.
            if self.books.can(&effects) {
                self.books.add(&effects, &self.spec.unit, 1);
                taken.push(one);
            }
        }
        let parent = self.truth.tip();
        let (height, parent, hash) = (parent.height + 1, parent.hash, BlockHash(bytes(random)));
        let block = Arc::new(Block { height, hash, parent, time: now, transactions: taken });
        let record = Record { block: Arc::clone(&block), agreed: false, deepest: 0, left: None };
        self.records.insert(hash, record);
        self.truth.push(block);
        if height.is_multiple_of(1_024) {
            self.forget();
        }
    }

    /// What is too old to matter.
    fn forget(&mut self) {
        let oldest = self.height().saturating_sub(2_048);
        self.records.retain(|_, record| record.block.height >= oldest);
        for node in &mut self.nodes {
            node.lied_at = node.lied_at.split_off(&oldest);
        }
    }

    fn unbook(&mut self, block: &Block) {
        for transaction in &block.transactions {
            self.books.add(&self.owners.effects(transaction), &self.spec.unit, -1);
        }
    }

    /// The newest blocks leave the chain. Gives what was in them, oldest first.
    pub fn leave(&mut self, depth: u64) -> Vec<Arc<Transaction>> {
        let mut blocks = Vec::new();
        for _ in 0..depth {
            let Some(block) = self.truth.pop() else { break };
            self.unbook(&block);
            blocks.push(block);
        }
        blocks.reverse();
        blocks.iter().flat_map(|block| block.transactions.iter().map(Arc::clone)).collect()
    }

    /// Nodes that can hear of the newest blocks.
    pub fn spread(&mut self, random: &mut Random, turn: u64) {
        for node in &mut self.nodes {
            let hears = !node.down && !node.stuck && node.lie != Lie::Forks && random.below(12) != 0;
            if hears {
                node.view.follow(&self.truth, self.truth.tip().height);
            }
        }
        self.agree(turn);
    }

    /// All nodes are well and have all blocks.
    pub fn heal(&mut self, turn: u64) {
        for node in &mut self.nodes {
            (node.lie, node.down, node.stuck) = (Lie::Truth, false, false);
            node.view.follow(&self.truth, self.truth.tip().height);
        }
        self.agree(turn);
    }

    /// Looks for what a quorum has now.
    pub fn agree(&mut self, turn: u64) {
        let mut best: Option<(usize, u64)> = None;
        for (at, one) in self.nodes.iter().enumerate() {
            for other in &self.nodes[at + 1..] {
                let fork = one.view.fork_with(&other.view);
                if best.is_none_or(|(_, height)| fork > height) {
                    best = Some((at, fork));
                }
            }
        }
        let Some((node, height)) = best else { return };
        let Some(top) = self.nodes[node].view.at(height).map(|block| block.at()) else { return };
        // They only lag.
        if self.agreed.has(top) {
            return;
        }
        let (before, fork) = (self.agreed.tip().height, self.agreed.fork_with(&self.nodes[node].view));
        for left in self.agreed.follow(&self.nodes[node].view, height) {
            if let Some(record) = self.records.get_mut(&left.hash) {
                (record.agreed, record.left) = (false, Some(turn));
                record.deepest = record.deepest.max(before);
            }
        }
        for block in self.agreed.above(fork) {
            if let Some(record) = self.records.get_mut(&block.hash) {
                record.agreed = true;
            }
        }
    }

    /// How many blocks a quorum has had on top of this one, itself included.
    pub fn depth_of(&self, record: &Record) -> u64 {
        let top = if record.agreed { self.agreed.tip().height.max(record.deepest) } else { record.deepest };
        (top + 1).saturating_sub(record.block.height)
    }

    /// What the assets of this chain are called.
    pub fn symbols(&self) -> impl Iterator<Item = (&str, AssetId)> {
        self.spec.asset.iter().map(|(money, asset)| (self.symbol(*money), *asset))
    }

    pub fn symbol(&self, money: Money) -> &str {
        match money {
            Money::Native => self.spec.coin,
            Money::Token | Money::Air => TOKEN,
            Money::Hollow => HOLLOW,
        }
    }

    pub fn money_of(&self, symbol: &str) -> Money {
        match symbol {
            TOKEN => Money::Token,
            HOLLOW => Money::Hollow,
            _ => Money::Native,
        }
    }

    /// Whether the newest blocks, down to some depth that a look may not have come to, log so much to an address that it has not got.
    pub fn logged_lately(&self, to: &Address, sum: RawSum) -> bool {
        let mut logged = RawSum::ZERO;
        let newest = self.truth.above((self.height() + 1).saturating_sub(self.spec.confirmations));
        for block in newest.collect::<Vec<_>>().into_iter().rev() {
            for effect in block.transactions.iter().flat_map(|one| self.owners.effects(one)) {
                if effect.kind == Kind::Logged && effect.address == *to {
                    logged = logged.plus(effect.raw.into());
                }
            }
            if logged == sum {
                return true;
            }
        }
        false
    }
}
