//! What follows from an event in the model: descendants fall, and what was broadcast comes back.

use std::collections::BTreeSet;
use std::sync::Arc;

use store::utxo::*;

use super::model::{Edge, Model, Tx, short};

/// Which transactions are valid.
pub(super) struct Moment(BTreeSet<Hash>);

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
        // The one that was stored first is noted first.
        let mut victims = victims.to_vec();
        victims.sort_by_key(|victim| self.txs[victim].number);
        for victim in &victims {
            self.invalidate(victim, end, Some(winner));
        }
        self.cascade(victims);
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
        Moment(self.txs.values().filter(|tx| tx.status.is_valid()).map(|tx| tx.content.hash).collect())
    }

    /// Law 5: what was broadcast may still be mined, so its inputs must not look free. After each step, as long as there is
    /// a transaction that was published once and has nothing in its way any more, the first of these is published again.
    pub(super) fn revive(&mut self, before: &Moment) {
        let fell = |hash: &Hash| before.0.contains(hash) && !self.txs[hash].status.is_valid();
        let fallen: BTreeSet<Hash> = self.txs.keys().copied().filter(fell).collect();
        while let Some(first) = self.first_to_come_back(&fallen) {
            // Parents may have come meanwhile.
            let inputs = &self.txs[&first].content.inputs;
            let wallets: Vec<usize> =
                inputs.iter().filter_map(|input| self.owner(input)).map(|(wallet, _)| wallet).collect();
            let tx = self.txs.get_mut(&first).unwrap();
            tx.status = Status::Published;
            tx.wallets.extend(wallets);
            self.revived += 1;
        }
    }

    /// Of all that can come back now: one that a transaction which fell had replaced is before one that none of them had, the
    /// later replacement before the earlier, and then the one that was stored later before the one that was stored earlier.
    fn first_to_come_back(&self, fallen: &BTreeSet<Hash>) -> Option<Hash> {
        let broadcast = |tx: &&Tx| tx.was_published && !tx.given_up && !tx.content.coinbase;
        let in_nobodys_way =
            |tx: &&Tx| !self.has_invalid_parent(&tx.content) && self.valid_conflicts(&tx.content).is_empty();
        let invalid = self.txs.values().filter(|tx| !tx.status.is_valid());
        let replacement = |tx: &Tx| {
            self.edges.iter().rposition(|edge| edge.victim == tx.content.hash && fallen.contains(&edge.winner))
        };
        let can = invalid.filter(broadcast).filter(in_nobodys_way);
        can.max_by_key(|tx| (replacement(tx), tx.number)).map(|tx| tx.content.hash)
    }
}
