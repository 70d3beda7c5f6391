//! Which free outputs of ours are claimed.
//!
//! A transaction that was broadcast may still be mined although another one has taken an input of it, as long as that one is in
//! no block (law 5). Its other inputs are free then, but whoever spent one would build on sand. Such an output is *claimed*: it is
//! counted, and nothing selects, leases or spends it. What is claimed follows from the transactions alone, so it is decided anew
//! after every event, for all outputs that the event can touch.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::graph::{Graph, TxEntry};
use super::types::{Hash, OutPoint};

impl Graph<'_> {
    /// Transactions that the event has changed, shown or spoken of.
    pub fn stirred(&self) -> BTreeSet<Hash> {
        self.changed.iter().map(|told| told.0).collect()
    }

    /// Transactions that are invalid now and want what these want, or an output of these; and these themselves.
    pub fn suspects(&self, of: &BTreeSet<Hash>) -> BTreeSet<Hash> {
        let inputs = self.inputs_of(of.iter().copied());
        let rivals = inputs.iter().filter_map(|input| self.claims.get(input)).flatten();
        let children = of.iter().filter_map(|hash| self.children.get(hash)).flatten();
        rivals.chain(children).chain(of).copied().filter(|hash| self.is_invalid(*hash)).collect()
    }

    /// Invalid transactions that spend an output of one of these.
    pub fn invalid_children(&self, of: &BTreeSet<Hash>) -> BTreeSet<Hash> {
        let children = of.iter().filter_map(|hash| self.children.get(hash)).flatten();
        children.copied().filter(|hash| self.is_invalid(*hash)).collect()
    }

    /// Invalid transactions that one of these spends from.
    pub fn invalid_parents(&self, of: &BTreeSet<Hash>) -> BTreeSet<Hash> {
        let inputs = self.inputs_of(of.iter().copied());
        inputs.into_iter().map(|input| input.hash).filter(|hash| self.is_invalid(*hash)).collect()
    }

    pub fn is_invalid(&self, hash: Hash) -> bool {
        self.entries.get(&hash).is_some_and(|entry| !entry.is_valid())
    }

    /// Whether one of these was not valid before the event.
    pub fn some_were_invalid(&self, of: &BTreeSet<Hash>) -> bool {
        let before = of.iter().filter_map(|hash| self.entries.get(hash)).filter_map(|entry| entry.before);
        before.into_iter().any(|before| !before.status.is_valid())
    }

    /// Of the outputs in question those that are claimed when all is written, each with the transaction that claims it; of
    /// several the one with the lowest hash.
    pub fn claimed(&self) -> BTreeMap<OutPoint, Hash> {
        if self.in_question.is_empty() {
            return BTreeMap::new();
        }
        let hopeless = self.hopeless();
        let may_be_mined = |hash: &&Hash| self.is_invalid(**hash) && !hopeless.contains(*hash);
        let claimant = |outpoint: &OutPoint| {
            let coin = self.coin(outpoint)?;
            let is_free = self.is_valid(outpoint.hash) && self.spender_after(outpoint, coin).is_none();
            let claimants = self.claims.get(outpoint).filter(|_| is_free)?;
            Some((*outpoint, *claimants.iter().find(may_be_mined)?))
        };
        self.in_question.iter().filter_map(claimant).collect()
    }

    /// Whether it is invalid, was broadcast, and may still be mined. All that it depends on must be loaded.
    pub(super) fn may_rise(&self, hash: Hash) -> bool {
        self.is_invalid(hash) && !self.hopeless().contains(&hash)
    }

    /// The invalid transactions that can never be mined, as far as is known: they were never broadcast, or two people gave them up;
    /// they are a coinbase whose block is gone; a block has spent an input of theirs; or they spend from such a one.
    fn hopeless(&self) -> HashSet<Hash> {
        let lost = |input: &OutPoint| self.spender(input).is_some_and(|spender| self.is_confirmed(spender));
        let is_hopeless = |entry: &TxEntry<'_>| {
            !entry.is_beaten() || !entry.once_published || entry.given_up || entry.inputs.iter().any(lost)
        };
        let invalid = self.entries.iter().filter(|(_, entry)| !entry.is_valid());
        let mut open: Vec<Hash> = invalid.filter(|(_, entry)| is_hopeless(entry)).map(|(hash, _)| *hash).collect();
        let mut found = HashSet::new();
        while let Some(hash) = open.pop() {
            if found.insert(hash) {
                let children = self.children.get(&hash).into_iter().flatten().copied();
                open.extend(children.filter(|child| self.is_invalid(*child)));
            }
        }
        found
    }
}
