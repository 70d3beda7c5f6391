//! What follows from an event in the model: descendants fall, and what was broadcast comes back.

use std::collections::BTreeSet;
use std::sync::Arc;

use store::utxo::*;

use super::model::{Edge, Model, Tx, short};

/// What is spent by a valid transaction, and which transactions are invalid.
pub(super) struct Moment {
    spent: BTreeSet<OutPoint>,
    invalid: BTreeSet<Hash>,
}

/// By which replacement, and when it was stored first.
type Order = (Option<usize>, usize);

impl Model {
    /// Writes it as it is now, in all wallets that it concerns. False: it concerns none.
    pub(super) fn store(&mut self, tx: &NewTx, status: Status, height: Option<u32>) -> bool {
        let concerned = self.concerned(tx);
        self.store_in(tx, status, height, concerned)
    }

    pub(super) fn store_in(
        &mut self,
        tx: &NewTx,
        status: Status,
        height: Option<u32>,
        mut wallets: BTreeSet<usize>,
    ) -> bool {
        let known = self.txs.get(&tx.hash);
        wallets.extend(known.iter().flat_map(|known| known.wallets.iter().copied()));
        if wallets.is_empty() {
            return false;
        }
        let was_published = status == Status::Published || known.is_some_and(|known| known.was_published);
        let number = known.map_or(self.txs.len(), |known| known.number);
        let own = known.is_some_and(|known| known.own);
        let content = Arc::new(tx.clone());
        let new = Tx { content, wallets, status, height, own, was_published, given_up: false, number };
        self.txs.insert(tx.hash, new);
        self.spread_to_children(tx.hash);
        true
    }

    /// Says of every valid transaction whether it is our own; of an invalid one it is no longer asked.
    pub(super) fn settle_own(&mut self) {
        loop {
            let valid = self.txs.values().filter(|tx| tx.status.is_valid());
            let wrong: Vec<Hash> =
                valid.filter(|tx| tx.own != self.is_own(&tx.content)).map(|tx| tx.content.hash).collect();
            if wrong.is_empty() {
                return;
            }
            for hash in wrong {
                let tx = self.txs.get_mut(&hash).unwrap();
                tx.own = !tx.own;
            }
        }
    }

    /// A valid spend that arrived before its parent spends from the parent's wallets too. One that is invalid learns
    /// of it when it becomes valid again.
    fn spread_to_children(&mut self, parent: Hash) {
        let spends: Vec<(Hash, usize)> = self
            .txs
            .values()
            .filter(|tx| tx.status.is_valid())
            .flat_map(|tx| tx.content.inputs.iter().map(|input| (tx.content.hash, *input)))
            .filter(|(_, input)| input.hash == parent)
            .filter_map(|(child, input)| Some((child, self.owner(&input)?.0)))
            .collect();
        for (child, wallet) in spends {
            self.txs.get_mut(&child).unwrap().wallets.insert(wallet);
        }
    }

    pub(super) fn take_inputs(&mut self, winner: Hash, victims: &[Hash], end: Status) {
        for victim in victims {
            self.invalidate(victim, end, Some(winner));
        }
        self.cascade(victims.to_vec());
    }

    pub(super) fn invalidate(&mut self, victim: &Hash, status: Status, winner: Option<Hash>) {
        let tx = self.txs.get_mut(victim).unwrap();
        assert!(tx.height.is_none(), "the world made {} impossible after it was in a block", short(victim));
        tx.status = status;
        let wallets = tx.wallets.clone();
        let Some(winner) = winner else { return };
        match self.edges.iter_mut().find(|edge| (edge.victim, edge.winner) == (*victim, winner)) {
            Some(edge) => edge.wallets.extend(wallets),
            None => self.edges.push(Edge { victim: *victim, winner, wallets }),
        }
    }

    /// Fails the descendants of what has become invalid.
    pub(super) fn cascade(&mut self, mut invalid: Vec<Hash>) {
        while let Some(parent) = invalid.pop() {
            let spends = |tx: &&Tx| tx.content.inputs.iter().any(|input| input.hash == parent);
            let children = self.txs.values().filter(spends).filter(|tx| tx.status.is_valid());
            let children: Vec<Hash> = children.map(|tx| tx.content.hash).collect();
            for child in children {
                self.invalidate(&child, Status::Failed, None);
                invalid.push(child);
            }
        }
    }

    pub(super) fn moment(&self) -> Moment {
        let (valid, invalid): (Vec<&Tx>, Vec<&Tx>) = self.txs.values().partition(|tx| tx.status.is_valid());
        Moment {
            spent: valid.into_iter().flat_map(|tx| tx.content.inputs.iter().copied()).collect(),
            invalid: invalid.into_iter().map(|tx| tx.content.hash).collect(),
        }
    }

    /// Law 5: what was broadcast may still be mined, so its inputs must not look free. After each step, whatever was
    /// published once and has nothing in its way any more is published again, the newest first.
    pub(super) fn revive(&mut self, before: &Moment) {
        let now = self.moment();
        let mut freed: BTreeSet<OutPoint> = before.spent.difference(&now.spent).copied().collect();
        let mut risen: BTreeSet<Hash> = before.invalid.difference(&now.invalid).copied().collect();
        // What one of those that fell now had itself replaced comes first, by the newest replacement.
        let mut fallen: BTreeSet<Hash> = now.invalid.difference(&before.invalid).copied().collect();
        while !freed.is_empty() || !risen.is_empty() {
            let concerned = |tx: &&Tx| {
                let mut inputs = tx.content.inputs.iter();
                inputs.any(|input| freed.contains(input) || risen.contains(&input.hash))
            };
            let gone = self
                .txs
                .values()
                .filter(|tx| !tx.status.is_valid() && !tx.content.coinbase && tx.was_published && !tx.given_up);
            let replaced_by_fallen = |tx: &Tx| {
                self.edges.iter().rposition(|edge| edge.victim == tx.content.hash && fallen.contains(&edge.winner))
            };
            let mut candidates: Vec<(Order, Arc<NewTx>)> = gone
                .filter(concerned)
                .map(|tx| ((replaced_by_fallen(tx), tx.number), Arc::clone(&tx.content)))
                .collect();
            candidates.sort_by_key(|(order, _)| std::cmp::Reverse(*order));
            fallen.clear();
            freed.clear();
            risen.clear();
            for (_, tx) in candidates {
                if self.valid_conflicts(&tx).is_empty() && !self.has_invalid_parent(&tx) {
                    // Parents may have come meanwhile.
                    let spent = tx.inputs.iter().filter_map(|input| self.owner(input));
                    let more: Vec<usize> = spent.map(|(wallet, _)| wallet).collect();
                    let revived = self.txs.get_mut(&tx.hash).unwrap();
                    revived.status = Status::Published;
                    revived.wallets.extend(more);
                    self.revived += 1;
                    risen.insert(tx.hash);
                }
            }
        }
    }
}
