//! All that the events of a random world were made of, and whether one of them could happen.

use std::collections::{BTreeMap, BTreeSet};

use store::utxo::*;

use super::model::{Event, Model};
use super::stage::BASE;

/// Every transaction and block that events were made of.
#[derive(Default)]
pub struct Universe {
    pub txs: Vec<NewTx>,
    pub(super) places: BTreeMap<Hash, usize>,
    pub(super) blocks: BTreeMap<Hash, (Block, Vec<NewTx>)>,
}

impl Universe {
    pub fn of(events: &[Event]) -> Self {
        let mut universe = Self::default();
        for event in events {
            universe.learn(event);
        }
        universe
    }

    pub(super) fn learn(&mut self, event: &Event) {
        let txs = match event {
            Event::Connect(block, txs) => {
                self.blocks.insert(block.hash, (*block, txs.clone()));
                txs.as_slice()
            }
            Event::See(txs) | Event::Mempool(txs) => txs,
            Event::Pending(_, tx) | Event::Replace(_, tx) => std::slice::from_ref(tx),
            Event::Disconnect(..) | Event::Publish(_) | Event::Abandon(_) | Event::GiveUp(_) => &[],
        };
        txs.iter().for_each(|tx| self.add(tx));
    }

    pub(super) fn add(&mut self, tx: &NewTx) {
        if !self.places.contains_key(&tx.hash) {
            self.places.insert(tx.hash, self.txs.len());
            self.txs.push(tx.clone());
        }
    }

    fn get(&self, hash: &Hash) -> Option<&NewTx> {
        self.places.get(hash).map(|place| &self.txs[*place])
    }

    /// All transactions of the model's chain, those too that no wallet stores.
    pub(super) fn in_chain(&self, model: &Model) -> Chain {
        let mut chain = Chain::default();
        for block in &model.blocks {
            for tx in &self.blocks[&block.hash].1 {
                chain.add(tx);
            }
        }
        chain
    }

    /// The transactions of the model's blocks above a height.
    pub(super) fn above(&self, model: &Model, height: u32) -> Vec<NewTx> {
        let gone = model.blocks.iter().filter(|block| block.height > height);
        gone.flat_map(|block| &self.blocks[&block.hash].1).cloned().collect()
    }

    /// Whether such a thing can happen: the rules say nothing about blocks that no node would accept, nor about
    /// transactions that spend what they themselves make impossible.
    pub fn is_plausible(&self, model: &Model, event: &Event) -> bool {
        match event {
            Event::Connect(block, txs) => {
                let fits = model.tip().is_none_or(|tip| tip.hash == block.parent && tip.height + 1 == block.height);
                let mut chain = self.in_chain(model);
                !fits || txs.iter().all(|tx| chain.takes(self, tx))
            }
            Event::See(txs) | Event::Mempool(txs) => txs.iter().all(|tx| self.is_sane(tx)),
            Event::Pending(_, tx) | Event::Replace(_, tx) => self.is_sane(tx),
            // The first block stays: without any, the next may be of another chain.
            Event::Disconnect(down_to, stale) => {
                *down_to >= BASE && (stale.is_empty() || *stale == self.above(model, *down_to))
            }
            Event::Publish(_) | Event::Abandon(_) | Event::GiveUp(_) => true,
        }
    }

    /// No ancestor of it shares an input with it, or with another ancestor.
    fn is_sane(&self, tx: &NewTx) -> bool {
        let mut spent = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let mut left = vec![tx.clone()];
        while let Some(tx) = left.pop() {
            if !seen.insert(tx.hash) {
                continue;
            }
            if !tx.inputs.iter().all(|input| spent.insert(*input)) {
                return false;
            }
            left.extend(tx.inputs.iter().filter_map(|input| self.get(&input.hash)).cloned());
        }
        true
    }
}

#[derive(Default)]
pub(super) struct Chain {
    txs: BTreeSet<Hash>,
    spent: BTreeSet<OutPoint>,
}

impl Chain {
    fn add(&mut self, tx: &NewTx) {
        self.txs.insert(tx.hash);
        self.spent.extend(&tx.inputs);
    }

    /// Adds it if the chain can have it.
    pub(super) fn takes(&mut self, universe: &Universe, tx: &NewTx) -> bool {
        let parent_is_there = |input: &OutPoint| self.txs.contains(&input.hash) || universe.get(&input.hash).is_none();
        let possible = !self.txs.contains(&tx.hash)
            && tx.inputs.iter().all(|input| !self.spent.contains(input) && parent_is_there(input));
        if possible {
            self.add(tx);
        }
        possible
    }
}
