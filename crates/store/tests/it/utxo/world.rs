//! Random events from a seed, as a node and a wallet might make them: blocks that fit on each other, transactions that
//! conflict, children before their parents, forks and ways back, duplicates, and things that must be refused.
//!
//! The events are made with a model alone, before any database is asked. **Every block is possible**: it spends what
//! its chain has and nothing twice. That is all that the rules rely on.

use std::collections::{BTreeSet, VecDeque};

use domain::random::Random;
use store::utxo::*;

use super::model::{Event, Model};
use super::stage::*;
use super::universe::Universe;

pub struct World {
    random: Random,
    seed: u64,
    wallets: usize,
    made: u64,
    model: Model,
    universe: Universe,
    /// Blocks of branches that were left, lowest first.
    left: Vec<Vec<Block>>,
    planned: VecDeque<Event>,
    past: Vec<Event>,
}

/// The first `count` events of a seed.
pub fn events(seed: u64, wallets: usize, count: usize) -> Vec<Event> {
    let mut world = World {
        random: Random::from_seed(seed),
        seed,
        wallets,
        made: 0,
        model: model(wallets),
        universe: Universe::default(),
        left: Vec::new(),
        planned: VecDeque::new(),
        past: Vec::new(),
    };
    while world.past.len() < count {
        world.step();
    }
    world.past
}

impl World {
    fn step(&mut self) {
        let event = self.planned.pop_front().unwrap_or_else(|| self.next());
        if !self.universe.is_plausible(&self.model, &event) {
            return;
        }
        self.universe.learn(&event);
        // What it answers is compared later, when a database is asked the same.
        drop(self.model.apply(&event));
        self.past.push(event);
    }

    fn next(&mut self) -> Event {
        if self.model.blocks.is_empty() {
            return self.mine();
        }
        match self.random.below(100) {
            0..=17 => self.mine(),
            18..=22 => self.reorg(),
            23..=24 => self.way_back(),
            25..=37 => self.see_new(),
            38..=43 => self.see_conflict(),
            44..=46 => self.see_child_first(),
            47..=49 => self.see_again(),
            50..=52 => self.see_back(),
            53..=63 => self.pending(),
            64..=71 => self.replace(),
            72..=79 => self.publish(),
            80..=83 => self.abandon(),
            84..=86 => self.give_up(),
            87..=94 => self.past[self.random.index(self.past.len())].clone(),
            _ => self.bad(),
        }
    }

    // ---- transactions ----------------------------------------------------------------------------------------

    fn name(&mut self, what: &str) -> String {
        self.made += 1;
        format!("{what} {} of seed {}", self.made, self.seed)
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.random.below(one_in) == 0
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        if from.is_empty() { None } else { Some(from[self.random.index(from.len())].clone()) }
    }

    fn our_script(&mut self, wallet: Option<usize>) -> Vec<u8> {
        let wallet = wallet.unwrap_or_else(|| self.random.index(self.wallets));
        let account = u32::try_from(self.random.index(ACCOUNTS as usize)).unwrap();
        script(wallet, account, u32::try_from(self.random.index(ADDRESSES as usize)).unwrap())
    }

    /// One to three outputs, mostly ours.
    fn outputs(&mut self) -> Vec<(Vec<u8>, i64)> {
        let count = 1 + self.random.index(3);
        let mut outputs = Vec::new();
        for _ in 0..count {
            let script = if self.chance(3) { foreign_script() } else { self.our_script(None) };
            outputs.push((script, i64::try_from(self.random.below(1_000_000)).unwrap()));
        }
        outputs
    }

    fn spending(&mut self, what: &str, inputs: &[OutPoint]) -> NewTx {
        let mut inputs: Vec<OutPoint> = inputs.to_vec();
        let mut seen = BTreeSet::new();
        inputs.retain(|input| seen.insert(*input));
        let (name, outputs) = (self.name(what), self.outputs());
        let made = tx(&name, &inputs, &outputs);
        self.universe.add(&made);
        made
    }

    fn somewhere(&mut self) -> OutPoint {
        let name = self.name("input");
        elsewhere(&name)
    }

    /// Valid unspent outputs: of one wallet, or of all.
    fn unspent(&self, wallet: Option<usize>) -> Vec<OutPoint> {
        let all = self.model.unspent().into_iter();
        all.filter(|(_, owner, _, _)| wallet.is_none_or(|wallet| wallet == *owner)).map(|(one, ..)| one).collect()
    }

    /// One to three of the wallet's outputs, if it has any.
    fn own_inputs(&mut self, wallet: Option<usize>) -> Vec<OutPoint> {
        let unspent = self.unspent(wallet);
        let count = 1 + self.random.index(3);
        (0..count).filter_map(|_| self.pick(&unspent)).collect()
    }

    fn unconfirmed(&self) -> Vec<NewTx> {
        let open = |tx: &&super::model::Tx| tx.status.is_valid() && tx.height.is_none();
        self.model.txs.values().filter(open).map(|tx| NewTx::clone(&tx.content)).collect()
    }

    /// It takes at least one input of the victim, and some others.
    fn conflicting(&mut self, victim: &NewTx, wallet: Option<usize>) -> NewTx {
        let mut inputs: Vec<OutPoint> = self.pick(&victim.inputs).into_iter().collect();
        for input in &victim.inputs {
            if self.chance(2) {
                inputs.push(*input);
            }
        }
        if self.chance(3) {
            inputs.extend(self.own_inputs(wallet));
        }
        if self.chance(3) {
            // Of another victim: one replacement for two.
            let others = self.unconfirmed();
            inputs.extend(self.pick(&others).and_then(|other| self.pick(&other.inputs)));
        }
        self.spending("conflict", &inputs)
    }

    /// It spends what nobody here has seen, or something recent, a coinbase perhaps.
    fn foreign(&mut self) -> NewTx {
        let recent: Vec<OutPoint> = self.universe.txs.iter().rev().take(20).map(|tx| output(tx, 0)).collect();
        let recent = if self.chance(3) { self.pick(&recent) } else { None };
        let input = recent.unwrap_or_else(|| self.somewhere());
        self.spending("foreign", &[input])
    }

    fn own(&mut self) -> NewTx {
        let mut inputs = self.own_inputs(None);
        if inputs.is_empty() || self.chance(5) {
            inputs.push(self.somewhere());
        }
        self.spending("own", &inputs)
    }

    // ---- blocks ----------------------------------------------------------------------------------------------

    fn mine(&mut self) -> Event {
        let name = self.name("block");
        let next = match self.model.tip() {
            None => block(BASE, &name, hash("before all")),
            Some(tip) => block(tip.height + 1, &name, tip.hash),
        };
        let mut chain = self.universe.in_chain(&self.model);
        let script = if self.chance(2) { foreign_script() } else { self.our_script(None) };
        let name = self.name("coinbase");
        let reward = coinbase(&name, &[(script, 5_000_000)]);
        let mut txs = vec![reward];
        for tx in self.fresh_for_block() {
            self.universe.add(&tx);
        }
        // Parents were made before their children, so that one pass finds all.
        let share = 1 + self.random.below(4);
        for place in 0..self.universe.txs.len() {
            let tx = self.universe.txs[place].clone();
            let recent = place + 40 > self.universe.txs.len();
            if recent && !tx.coinbase && self.random.below(4) < share && chain.takes(&self.universe, &tx) {
                txs.push(tx);
            }
        }
        Event::Connect(next, txs)
    }

    /// What nobody saw before it was mined: payments, conflicts, spends of outputs of the same block.
    fn fresh_for_block(&mut self) -> Vec<NewTx> {
        let mut fresh = Vec::new();
        if self.chance(2) {
            fresh.push(self.foreign());
        }
        if self.chance(2) {
            fresh.push(self.own());
        }
        let open = self.unconfirmed();
        if let Some(victim) = self.pick(&open)
            && self.chance(2)
        {
            fresh.push(self.conflicting(&victim, None));
        }
        if let Some(parent) = self.pick(&fresh)
            && self.chance(2)
        {
            let extra = self.somewhere();
            fresh.push(self.spending("child", &[output(&parent, 0), extra]));
        }
        fresh
    }

    fn reorg(&mut self) -> Event {
        let deep = self.random.below(8) == 0;
        let depth = 1 + self.random.index(if deep { 8 } else { 3 });
        let keep = self.model.blocks.len().saturating_sub(depth).max(1);
        let down_to = self.model.blocks[keep - 1].height;
        let left = self.model.blocks[keep..].to_vec();
        if !left.is_empty() {
            self.left.push(left);
        }
        self.back_to(down_to)
    }

    /// Mostly a node still has the blocks that go.
    fn back_to(&mut self, height: u32) -> Event {
        let stale = if self.chance(4) { Vec::new() } else { self.universe.above(&self.model, height) };
        Event::Disconnect(height, stale)
    }

    /// The chain turns out to be another one, that was left before.
    fn way_back(&mut self) -> Event {
        let branches = self.left.clone();
        let Some(branch) = self.pick(&branches) else { return self.reorg() };
        let fork = self.model.blocks.iter().find(|block| block.hash == branch[0].parent);
        let Some(fork) = fork.copied() else { return self.mine() };
        for block in branch {
            let (block, txs) = self.universe.blocks[&block.hash].clone();
            self.planned.push_back(Event::Connect(block, txs));
        }
        self.back_to(fork.height)
    }

    // ---- the mempool -----------------------------------------------------------------------------------------

    fn see_new(&mut self) -> Event {
        let count = 1 + self.random.index(3);
        let mut txs = Vec::new();
        for _ in 0..count {
            let new = if self.chance(2) { self.foreign() } else { self.own() };
            txs.push(new);
            // A chain of unconfirmed ones.
            if self.chance(3) {
                let parent = txs[txs.len() - 1].clone();
                txs.push(self.spending("child", &[output(&parent, 0)]));
            }
        }
        Event::See(txs)
    }

    fn see_conflict(&mut self) -> Event {
        let open = self.unconfirmed();
        let all = self.universe.txs.clone();
        let victim = if self.chance(6) { self.pick(&all) } else { self.pick(&open) };
        let tx = match victim {
            Some(victim) if !victim.inputs.is_empty() => self.conflicting(&victim, None),
            _ => self.foreign(),
        };
        Event::See(vec![tx])
    }

    fn see_child_first(&mut self) -> Event {
        let parent = if self.chance(2) { self.foreign() } else { self.own() };
        let extra = if self.chance(2) { self.somewhere() } else { output(&parent, 1) };
        let mut child = self.spending("early child", &[output(&parent, 0), extra]);
        // It is seen at all only if it pays us.
        let script = self.our_script(None);
        child.outputs.push(NewOutput { script, amount: 7_000 });
        let place = self.universe.places[&child.hash];
        self.universe.txs[place] = child.clone();
        if self.chance(2) {
            self.planned.push_back(Event::See(vec![parent]));
            return Event::See(vec![child]);
        }
        if self.chance(2) { Event::See(vec![child, parent]) } else { Event::See(vec![child]) }
    }

    fn see_again(&mut self) -> Event {
        let all: Vec<NewTx> = self.universe.txs.iter().filter(|tx| !tx.coinbase).cloned().collect();
        let count = 1 + self.random.index(3);
        Event::See((0..count).filter_map(|_| self.pick(&all)).collect())
    }

    /// What was beaten once is in the mempool, and its rivals are not.
    fn see_back(&mut self) -> Event {
        let any = self.chance(4);
        let beaten = |tx: &&super::model::Tx| tx.status == Status::Replaced || any && tx.status == Status::Failed;
        let beaten: Vec<NewTx> = self.model.txs.values().filter(beaten).map(|tx| NewTx::clone(&tx.content)).collect();
        match self.pick(&beaten) {
            Some(tx) => Event::Mempool(vec![tx]),
            None => self.see_again(),
        }
    }

    // ---- the wallet ------------------------------------------------------------------------------------------

    fn pending(&mut self) -> Event {
        let wallet = self.random.index(self.wallets);
        let mut inputs = self.own_inputs(Some(wallet));
        // No chain here is long enough for a coinbase to be mature: mostly others are spent.
        if !self.chance(8) {
            inputs.retain(|input| !self.model.txs[&input.hash].content.coinbase);
        }
        match self.random.below(10) {
            // Perhaps spent, perhaps invalid, perhaps another wallet's.
            0 => {
                let all: Vec<OutPoint> = self.universe.txs.iter().map(|tx| output(tx, 0)).collect();
                inputs.extend(self.pick(&all));
            }
            1 => inputs.extend(self.own_inputs(None)),
            _ => {}
        }
        if inputs.is_empty() {
            return self.see_new();
        }
        let tx = self.spending("payment", &inputs);
        if self.chance(2) {
            self.planned.push_back(Event::Publish(tx.hash));
        }
        Event::Pending(wallet, tx)
    }

    fn replace(&mut self) -> Event {
        let open = self.unconfirmed();
        let all = self.universe.txs.clone();
        let victim = if self.chance(8) { self.pick(&all) } else { self.pick(&open) };
        let Some(victim) = victim.filter(|victim| !victim.inputs.is_empty()) else { return self.pending() };
        let owner = victim.inputs.iter().find_map(|input| self.model.owner(input));
        let wallet = owner.map_or(0, |(wallet, _)| wallet);
        let tx = self.conflicting(&victim, Some(wallet));
        if self.chance(2) {
            self.planned.push_back(Event::Publish(tx.hash));
        }
        Event::Replace(wallet, tx)
    }

    fn of_status(&mut self, status: Status) -> Hash {
        let fit = |tx: &&super::model::Tx| tx.status == status;
        let fitting: Vec<Hash> = self.model.txs.values().filter(fit).map(|tx| tx.content.hash).collect();
        let all: Vec<Hash> = self.universe.txs.iter().map(|tx| tx.hash).collect();
        let one = if self.chance(6) { None } else { self.pick(&fitting) };
        one.or_else(|| self.pick(&all)).unwrap_or_else(|| hash("nothing"))
    }

    fn publish(&mut self) -> Event {
        Event::Publish(self.of_status(Status::Pending))
    }

    fn abandon(&mut self) -> Event {
        Event::Abandon(self.of_status(Status::Pending))
    }

    /// Mostly one that waits, or one that claims something.
    fn give_up(&mut self) -> Event {
        let waiting: Vec<Hash> = self.unconfirmed().iter().map(|tx| tx.hash).collect();
        let claimants: Vec<Hash> = self.model.claimed().into_values().collect();
        let one = match self.random.below(6) {
            0..=2 => self.pick(&waiting),
            3..=4 => self.pick(&claimants),
            _ => None,
        };
        Event::GiveUp(one.unwrap_or_else(|| self.of_status(Status::Published)))
    }

    // ---- what must be refused --------------------------------------------------------------------------------

    fn bad(&mut self) -> Event {
        let tip = *self.model.tip().expect("the first event is a block");
        let name = self.name("bad");
        let script = self.our_script(None);
        match self.random.below(8) {
            0 => Event::Connect(block(tip.height + 1, &name, hash("no parent")), vec![]),
            1 => Event::Connect(block(tip.height + 2, &name, tip.hash), vec![]),
            2 => Event::Connect(block(tip.height, &name, tip.parent), vec![]),
            3 => Event::See(vec![self.foreign(), coinbase(&name, &[(script, 1)])]),
            4 => Event::Pending(0, coinbase(&name, &[(script, 1)])),
            5 => Event::Publish(hash(&name)),
            6 => Event::GiveUp(hash(&name)),
            _ => Event::Abandon(hash(&name)),
        }
    }
}
