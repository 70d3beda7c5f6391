//! All that an event can touch, read before it is decided.
//!
//! [`Around::shown`] reads what the transactions shown meet, [`Around::close`] what follows from there. Each takes a constant
//! number of statements for each generation.
//!
//! What can be touched: *down* from a transaction whose state may change go the valid transactions that depend on it,
//! for they fall with it, or their parents' state says whether they are our own. *Beside* those that may fall are the
//! invalid transactions that want the inputs which they would free, and behind these the invalid ones that spend
//! them: they may come back. All other transactions that these spend, or that spend what these want, only stand there.

use std::collections::{BTreeSet, HashMap, HashSet};

use domain::Timestamp;
use domain::utxo::{Ours, Row};

use super::load::{Around, owners};
use super::types::{Hash, MOST_GENERATIONS, NewTx, OutPoint, Status, UtxoError, WalletId};
use crate::db::Tx;
use crate::error::StoreError;

/// A transaction gets so many microseconds from the moment when it was last published, until it counts that a mempool does
/// not have it.
const TIME_TO_ARRIVE: i64 = 60_000_000;

/// What an event may change, besides what it shows.
#[derive(Default)]
pub(super) struct Reach {
    /// Their state, or what is known of them, may change.
    pub touched: BTreeSet<Hash>,
    /// Those of them that may stop being valid.
    pub may_fall: BTreeSet<Hash>,
    /// Those of them that are invalid and may become valid.
    pub may_rise: BTreeSet<Hash>,
}

/// How transactions come to be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// All of them are in blocks, and stay there.
    InBlocks,
    /// Some are in no block: others that are shown with them may take their place.
    Unconfirmed,
}

impl<'a> Around<'a> {
    /// The rows around these transactions, and which of them may concern a wallet. Of a whole block those are few.
    pub async fn shown(tx: &mut Tx, shown: &[&'a NewTx], how: Shown) -> Result<(Self, Vec<&'a NewTx>), UtxoError> {
        let mut around = Self::default();
        let scripts = shown.iter().flat_map(|one| &one.outputs).map(|output| output.script.as_slice()).collect();
        let owners = owners(tx, scripts).await?;
        let inputs: Vec<OutPoint> = shown.iter().flat_map(|one| &one.inputs).copied().collect();
        let hashes: Vec<Hash> = shown.iter().map(|one| one.hash).collect();
        around.load_entries(tx, hashes.iter().copied().chain(inputs.iter().map(|input| input.hash))).await?;
        around.load_spenders(tx, &inputs).await?;
        around.load_waiting_for(tx, &inputs).await?;
        around.load_coins_at(tx, &inputs).await?;
        if how == Shown::Unconfirmed {
            // An unconfirmed transaction is of interest too when one of ours depends on it.
            around.load_children(tx, &hashes).await?;
            around.load_waiting_on(tx, &hashes).await?;
        }
        let relevant = around.relevant(shown, &owners);
        let hashes: Vec<Hash> = relevant.iter().map(|one| one.hash).collect();
        // A wallet that has pruned a transaction takes no notice of it any more; another one may not know it yet.
        let once = around.load_once(tx, &hashes).await?;
        around.graph.coins.retain(|outpoint, coin| !once.pruned.contains(&(coin.wallet, outpoint.hash)));
        around.graph.pruned = once.pruned;
        around.load_imported(tx, &hashes).await?;
        around.close(tx, around.reach(&relevant, how)).await?;
        Ok((around, relevant))
    }

    /// Those that pay us, spend from us, are stored, want an input that a stored one wants, or have a stored child.
    /// Their outputs of ours are noted.
    fn relevant(&mut self, shown: &[&'a NewTx], owners: &HashMap<Vec<u8>, (WalletId, i64, u32)>) -> Vec<&'a NewTx> {
        let graph = &mut self.graph;
        let mut touched: HashSet<OutPoint> = HashSet::new();
        let mut spent_from: HashSet<Hash> = HashSet::new();
        let mut relevant: Vec<&'a NewTx> = Vec::new();
        for one in shown.iter().copied() {
            let ours: Vec<(u32, Ours)> = (0_u32..)
                .zip(&one.outputs)
                .filter_map(|(index, output)| {
                    let (wallet, address, account) = *owners.get(&output.script)?;
                    Some((index, Ours { wallet, account, amount: output.amount, row: Row::New { address } }))
                })
                .collect();
            let meets = |input: &OutPoint| {
                touched.contains(input) || graph.coins.contains_key(input) || graph.claims.contains_key(input)
            };
            // A child that is shown first is not stored yet.
            let is_parent = graph.children.contains_key(&one.hash) || spent_from.contains(&one.hash);
            let is_known = graph.entries.contains_key(&one.hash) || is_parent;
            if !ours.is_empty() || is_known || one.inputs.iter().any(meets) {
                touched.extend(&one.inputs);
                spent_from.extend(one.inputs.iter().map(|input| input.hash));
                for (index, coin) in ours {
                    // One that is stored is read later.
                    graph.coins.entry(OutPoint { hash: one.hash, index }).or_insert(coin);
                }
                relevant.push(one);
            }
        }
        relevant
    }

    fn reach(&self, relevant: &[&NewTx], how: Shown) -> Reach {
        let mut reach = Reach::default();
        for one in relevant {
            reach.touched.insert(one.hash);
            reach.may_fall.extend(self.graph.conflicts(one));
            match self.graph.state(one.hash) {
                Some(state) if !state.status.is_valid() => {
                    reach.may_rise.insert(one.hash);
                }
                Some(_) | None => {}
            }
            if how == Shown::Unconfirmed {
                reach.may_fall.insert(one.hash);
            }
        }
        reach
    }

    /// Of the transactions that stand in the way of these, those that this mempool does not have. One that was
    /// published not long before the mempool was read may be on its way there.
    pub async fn absent(
        &mut self,
        tx: &mut Tx,
        relevant: &[&NewTx],
        waiting: &HashSet<Hash>,
        read_at: Timestamp,
    ) -> Result<HashSet<Hash>, StoreError> {
        let invalid =
            relevant.iter().filter(|one| self.graph.state(one.hash).is_some_and(|now| !now.status.is_valid()));
        let rivals: BTreeSet<Hash> = invalid.flat_map(|one| self.graph.conflicts(one)).collect();
        let rivals: Vec<Hash> = rivals.into_iter().filter(|one| !waiting.contains(one)).collect();
        self.load_once(tx, &rivals).await?;
        let late = read_at.plus_micros(-TIME_TO_ARRIVE).micros();
        let on_its_way = |one: &Hash| self.published.get(one).is_none_or(|at| *at > late);
        Ok(rivals.into_iter().filter(|one| !on_its_way(one)).collect())
    }

    /// Which stored transactions, valid or not, spend outputs of these, or want their inputs.
    pub async fn load_stale(&mut self, tx: &mut Tx, stale: &[NewTx]) -> Result<(), StoreError> {
        let hashes: Vec<Hash> = stale.iter().map(|one| one.hash).collect();
        self.load_children(tx, &hashes).await?;
        self.load_waiting_on(tx, &hashes).await?;
        // Few have a child here: only these, and what they depend on in turn, can be kept.
        let mut kept: HashSet<Hash> = self.graph.children.keys().copied().collect();
        let mut inputs: Vec<OutPoint> = Vec::new();
        for one in stale.iter().rev().filter(|one| !one.coinbase) {
            if kept.contains(&one.hash) {
                kept.extend(one.inputs.iter().map(|input| input.hash));
                inputs.extend(&one.inputs);
            }
        }
        self.load_entries(tx, hashes.iter().copied().filter(|one| kept.contains(one))).await?;
        self.load_spenders(tx, &inputs).await?;
        self.load_waiting_for(tx, &inputs).await.map(|_| ())
    }

    /// Pending transactions, with the pending ones that they depend on.
    pub async fn load_pending(&mut self, tx: &mut Tx, pending: &[Hash]) -> Result<(), UtxoError> {
        let mut members: BTreeSet<Hash> = BTreeSet::new();
        let mut generation: BTreeSet<Hash> = pending.iter().copied().collect();
        while !generation.is_empty() {
            self.load_entries(tx, generation.iter().copied()).await?;
            let is_pending = |one: &Hash| self.graph.state(*one).is_some_and(|now| now.status == Status::Pending);
            generation.retain(|one| is_pending(one) && members.insert(*one));
            self.load_inputs(tx, &generation).await?;
            let inputs = self.graph.inputs_of(generation);
            generation = inputs.into_iter().map(|input| input.hash).collect();
        }
        Ok(self.load_coins_made(tx, &members.into_iter().collect::<Vec<_>>()).await?)
    }

    /// Reads all that follows from a change of these.
    pub async fn close(&mut self, tx: &mut Tx, reach: Reach) -> Result<(), UtxoError> {
        let Reach { touched, may_fall, may_rise } = reach;
        let mut members: BTreeSet<Hash> = touched.union(&may_fall).copied().collect();
        let mut generation: Vec<Hash> = members.iter().copied().collect();
        // A longer line than this is refused where it falls; one that stands is not read to its end.
        for _ in 0..=MOST_GENERATIONS {
            if generation.is_empty() {
                break;
            }
            let children = self.load_children(tx, &generation).await?;
            generation = children.into_iter().filter(|child| members.insert(*child)).collect();
        }
        self.load_inputs(tx, &members).await?;
        let falling = self.graph.with_descendants(may_fall);
        if !falling.is_empty() || !may_rise.is_empty() {
            let rising = self.load_rising(tx, &falling, &may_rise).await?;
            members.extend(&rising);
            let claimed = self.graph.inputs_of(rising.iter().copied());
            self.load_spenders(tx, &claimed).await?;
            self.load_replaced(tx, falling.union(&rising).copied().collect()).await?;
        }
        let inputs = self.graph.inputs_of(members.iter().copied());
        self.load_coins_at(tx, &inputs).await?;
        self.load_entries(tx, inputs.iter().map(|input| input.hash)).await?;
        let stored: Vec<Hash> = members.into_iter().filter(|one| self.graph.entries.contains_key(one)).collect();
        Ok(self.load_coins_made(tx, &stored).await?)
    }

    /// The invalid transactions that may become valid when these fall, or those rise; with their inputs.
    async fn load_rising(
        &mut self,
        tx: &mut Tx,
        falling: &BTreeSet<Hash>,
        may_rise: &BTreeSet<Hash>,
    ) -> Result<BTreeSet<Hash>, StoreError> {
        let mut rising: BTreeSet<Hash> = may_rise.clone();
        let mut parents: Vec<Hash> = falling.union(may_rise).copied().collect();
        while !parents.is_empty() {
            let freed = self.graph.inputs_of(parents.iter().copied());
            let mut found = self.load_waiting_for(tx, &freed).await?;
            found.extend(self.load_waiting_on(tx, &parents).await?);
            let mut new: Vec<Hash> = found.difference(&rising).copied().collect();
            self.load_once(tx, &new).await?;
            let entries = &self.graph.entries;
            new.retain(|one| entries.get(one).is_some_and(|entry| entry.once_published));
            self.load_inputs(tx, &new.iter().copied().collect()).await?;
            rising.extend(&new);
            parents = new;
        }
        Ok(rising)
    }
}
