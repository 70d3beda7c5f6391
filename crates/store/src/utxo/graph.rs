//! The rows around an event, as they are stored and as they are to become. No I/O.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::types::{Hash, NewTx, OutPoint, Status, WalletId};
use crate::error::StoreError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub status: Status,
    pub height: Option<u32>,
}

/// A transaction, in all wallets that store it: its state is the same in each.
#[derive(Clone, Debug)]
pub(super) struct Node<'a> {
    /// `None`: not stored yet.
    pub before: Option<State>,
    pub now: State,
    pub coinbase: bool,
    pub own: bool,
    pub stored_in: BTreeSet<WalletId>,
    /// Wallets that it concerns since this event.
    pub joins: BTreeSet<WalletId>,
    /// Empty until they are loaded, for one that is stored.
    pub inputs: Vec<OutPoint>,
    pub given: Option<&'a NewTx>,
    /// Grows with the order in which they were stored first.
    pub age: i64,
    /// It was published before this event, or in it.
    pub once_published: bool,
    pub reason: &'static str,
    pub cause: Option<Hash>,
}

impl Node<'_> {
    pub const fn is_valid(&self) -> bool {
        self.now.status.is_valid()
    }

    pub fn wallets(&self) -> impl Iterator<Item = WalletId> {
        self.stored_in.iter().chain(&self.joins).copied()
    }
}

/// An output of ours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ours {
    pub wallet: WalletId,
    pub account: u32,
    pub amount: i64,
    /// Stored, and spent by whom; or to be stored at an address.
    pub row: Row,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Row {
    Stored { spender: Option<Hash> },
    New { address: i64 },
}

#[derive(Debug, Default)]
pub(super) struct Graph<'a> {
    pub nodes: HashMap<Hash, Node<'a>>,
    pub coins: HashMap<OutPoint, Ours>,
    /// The valid spender of each outpoint that was looked up, and with which input.
    pub spenders: HashMap<OutPoint, Option<(Hash, u32)>>,
    /// Stored transactions that are not valid and would spend an outpoint that an event shows to be spent.
    pub rivals: HashMap<OutPoint, Vec<Hash>>,
    /// Who became valid in this event, by the transactions whose outputs it spends.
    pub children: HashMap<Hash, Vec<Hash>>,
    /// Who took whose inputs: victim, winner.
    pub edges: Vec<(Hash, Hash)>,
    /// Every change in its order: what became of it, why, and through whom. The history has all of them, also what
    /// lasted only until the next transaction of the same event.
    pub changed: Vec<(Hash, State, &'static str, Option<Hash>)>,
    /// Outpoints that lost their spender, and transactions that are valid again, since somebody last looked whether this
    /// lets others be valid again.
    pub freed: Vec<OutPoint>,
    pub risen: Vec<Hash>,
    /// Transactions that stopped being valid since then.
    pub fallen: Vec<Hash>,
    /// Which wallets have pruned which of the transactions shown.
    pub pruned: HashSet<(WalletId, Hash)>,
}

/// What an account's totals change by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Delta {
    pub confirmed: i64,
    pub confirmed_count: i64,
    pub unconfirmed: i64,
    pub unconfirmed_count: i64,
}

impl<'a> Graph<'a> {
    pub fn is_valid(&self, hash: Hash) -> bool {
        self.nodes.get(&hash).is_some_and(Node::is_valid)
    }

    /// An output of ours whose transaction is stored, or is about to be.
    pub fn coin(&self, outpoint: &OutPoint) -> Option<&Ours> {
        self.coins.get(outpoint).filter(|coin| self.is_real(outpoint, coin))
    }

    /// Stored, or of a transaction that was taken in. Others were only looked at.
    pub fn is_real(&self, outpoint: &OutPoint, coin: &Ours) -> bool {
        match coin.row {
            Row::Stored { .. } => true,
            Row::New { .. } => self.nodes.get(&outpoint.hash).is_some_and(|node| node.given.is_some()),
        }
    }

    pub fn spender(&self, outpoint: &OutPoint) -> Option<Hash> {
        self.spenders.get(outpoint).copied().flatten().map(|(hash, _)| hash)
    }

    /// The valid transactions that have an input of this one, in the order of its inputs.
    pub fn conflicts(&self, tx: &NewTx) -> Vec<Hash> {
        let mut found = Vec::new();
        for hash in tx.inputs.iter().filter_map(|input| self.spender(input)) {
            if hash != tx.hash && !found.contains(&hash) {
                found.push(hash);
            }
        }
        found
    }

    pub fn invalid_parent(&self, inputs: &[OutPoint]) -> Option<Hash> {
        let invalid = |hash: &Hash| self.nodes.get(hash).is_some_and(|node| !node.is_valid());
        inputs.iter().map(|input| input.hash).find(invalid)
    }

    /// Its outputs that are ours.
    pub fn outputs_of<'b>(&'b self, tx: &'b NewTx) -> impl Iterator<Item = (OutPoint, &'b Ours)> {
        let outpoints = (0_u32..).zip(&tx.outputs).map(|(index, _)| OutPoint { hash: tx.hash, index });
        outpoints.filter_map(|outpoint| self.coins.get(&outpoint).map(|coin| (outpoint, coin)))
    }

    /// Whose wallets it pays, spends from, or competes in.
    pub fn concerned(&self, tx: &NewTx) -> BTreeSet<WalletId> {
        let mut wallets: BTreeSet<WalletId> = self.outputs_of(tx).map(|(_, coin)| coin.wallet).collect();
        wallets.extend(tx.inputs.iter().filter_map(|input| self.coin(input)).map(|coin| coin.wallet));
        // Also of those that are not valid: what a block has spent must stay known, or one of them could come back.
        let rivals = tx.inputs.iter().filter_map(|input| self.rivals.get(input)).flatten().copied();
        for conflict in self.conflicts(tx).into_iter().chain(rivals) {
            wallets.extend(self.nodes.get(&conflict).into_iter().flat_map(Node::wallets));
        }
        wallets.retain(|wallet| !self.pruned.contains(&(*wallet, tx.hash)));
        wallets
    }

    /// All its inputs are ours, and nobody else can take them back.
    fn is_own(&self, tx: &NewTx) -> bool {
        let trusted = |input: &OutPoint| {
            self.coin(input).is_some()
                && self.nodes.get(&input.hash).is_some_and(|parent| parent.now.height.is_some() || parent.own)
        };
        !tx.inputs.is_empty() && tx.inputs.iter().all(trusted)
    }

    /// Whether an event that shows this stored transaction once more shows more of it than is stored: an address was
    /// added since.
    pub fn has_news_of(&self, tx: &NewTx) -> bool {
        self.outputs_of(tx).any(|(_, coin)| matches!(coin.row, Row::New { .. }))
    }

    /// Takes in a transaction that an event shows: it is stored in this state, in all wallets that it concerned when the
    /// event came.
    pub fn admit(
        &mut self,
        tx: &'a NewTx,
        concerned: &BTreeSet<WalletId>,
        now: State,
        reason: &'static str,
        cause: Option<Hash>,
    ) {
        let own = self.is_own(tx);
        // Younger than whatever is stored, each than the one before.
        let age = i64::MAX / 2 + i64::try_from(self.changed.len()).unwrap_or(0);
        let node = self.nodes.entry(tx.hash).or_insert_with(|| Node {
            before: None,
            now,
            coinbase: tx.coinbase,
            own,
            stored_in: BTreeSet::new(),
            joins: BTreeSet::new(),
            inputs: Vec::new(),
            given: None,
            age,
            once_published: false,
            reason,
            cause,
        });
        let rises = node.before.is_some() && !node.is_valid() && now.status.is_valid();
        node.once_published |= now.status == Status::Published;
        (node.now, node.own, node.reason, node.cause) = (now, own, reason, cause);
        node.given = Some(tx);
        node.inputs.clone_from(&tx.inputs);
        node.joins.extend(concerned.difference(&node.stored_in));
        self.changed.push((tx.hash, now, reason, cause));
        if rises {
            self.risen.push(tx.hash);
        }
        if now.status.is_valid() {
            self.occupy(tx.hash);
        } else {
            self.vacate(tx.hash);
        }
        self.adopt_spenders(tx);
    }

    /// Whoever spends its outputs, and was here before it, concerns the outputs' wallets too.
    fn adopt_spenders(&mut self, tx: &NewTx) {
        let spent: Vec<(WalletId, Hash)> = self
            .outputs_of(tx)
            .filter_map(|(outpoint, coin)| self.spender(&outpoint).map(|spender| (coin.wallet, spender)))
            .collect();
        for (wallet, spender) in spent {
            self.join(spender, &BTreeSet::from([wallet]), "its parent has arrived", tx.hash);
        }
    }

    /// A stored transaction concerns these wallets too, since another one has come.
    pub fn join(&mut self, hash: Hash, wallets: &BTreeSet<WalletId>, reason: &'static str, cause: Hash) {
        let Some(node) = self.nodes.get_mut(&hash) else { return };
        for wallet in wallets {
            if !node.stored_in.contains(wallet) && node.joins.insert(*wallet) {
                (node.reason, node.cause) = (reason, Some(cause));
                self.changed.push((hash, node.now, reason, Some(cause)));
            }
        }
    }

    /// Keeps in the history that an invalid transaction was shown to the network.
    pub fn remember(&mut self, hash: Hash, state: State, cause: Option<Hash>) {
        if let Some(node) = self.nodes.get_mut(&hash) {
            node.once_published = true;
            self.changed.push((hash, State { status: Status::Published, height: None }, "seen", None));
            self.changed.push((hash, state, "seen, and not valid", cause));
        }
    }

    /// Changes the state of a transaction that is stored; its inputs must be loaded.
    pub fn set(&mut self, hash: Hash, now: State, reason: &'static str, cause: Option<Hash>) {
        let Some(node) = self.nodes.get_mut(&hash) else { return };
        let was_valid = node.is_valid();
        node.once_published |= now.status == Status::Published;
        (node.now, node.reason, node.cause) = (now, reason, cause);
        self.changed.push((hash, now, reason, cause));
        match (was_valid, now.status.is_valid()) {
            (false, true) => {
                self.risen.push(hash);
                self.join_spent(hash);
                self.occupy(hash);
            }
            (true, false) => {
                self.fallen.push(hash);
                self.vacate(hash);
            }
            (true, true) | (false, false) => {}
        }
    }

    /// A parent may have arrived while it was not valid.
    fn join_spent(&mut self, hash: Hash) {
        let Some(node) = self.nodes.get(&hash) else { return };
        let spent: Vec<WalletId> =
            node.inputs.iter().filter_map(|input| self.coin(input)).map(|coin| coin.wallet).collect();
        if let Some(node) = self.nodes.get_mut(&hash) {
            node.joins.extend(spent.into_iter().filter(|wallet| !node.stored_in.contains(wallet)));
        }
    }

    fn occupy(&mut self, hash: Hash) {
        let inputs = self.nodes.get(&hash).map(|node| node.inputs.clone()).unwrap_or_default();
        for (index, input) in (0_u32..).zip(inputs) {
            self.children.entry(input.hash).or_default().push(hash);
            self.spenders.insert(input, Some((hash, index)));
        }
    }

    fn vacate(&mut self, hash: Hash) {
        let inputs = self.nodes.get(&hash).map(|node| node.inputs.clone()).unwrap_or_default();
        for input in inputs {
            self.rivals.entry(input).or_default().push(hash);
            // What was not looked up was its own: it was valid.
            if self.spenders.get(&input).is_none_or(|found| found.is_some_and(|(spender, _)| spender == hash)) {
                self.spenders.insert(input, None);
                self.freed.push(input);
            }
        }
    }

    /// What the accounts' totals change by, over all outputs loaded. Those of changed transactions, and those whose
    /// spender has changed, must be loaded.
    pub fn deltas(&self) -> Result<BTreeMap<(WalletId, u32), Delta>, StoreError> {
        let mut deltas: BTreeMap<(WalletId, u32), Delta> = BTreeMap::new();
        for (outpoint, coin) in self.coins.iter().filter(|(outpoint, coin)| self.is_real(outpoint, coin)) {
            let Some(node) = self.nodes.get(&outpoint.hash) else { continue };
            let before = match coin.row {
                Row::New { .. } => None,
                Row::Stored { spender } => node.before.filter(|_| spender.is_none()),
            };
            let after = Some(node.now).filter(|_| self.spender_after(outpoint, coin).is_none());
            let delta = deltas.entry((coin.wallet, coin.account)).or_default();
            delta.add(before, coin.amount, -1)?;
            delta.add(after, coin.amount, 1)?;
        }
        deltas.retain(|_, delta| *delta != Delta::default());
        Ok(deltas)
    }

    /// Who spends it when all is written. What nobody looked up has not changed.
    pub fn spender_after(&self, outpoint: &OutPoint, coin: &Ours) -> Option<Hash> {
        let unchanged = match coin.row {
            Row::Stored { spender } => spender,
            Row::New { .. } => None,
        };
        self.spenders.get(outpoint).map_or(unchanged, |found| found.map(|(hash, _)| hash))
    }
}

impl Delta {
    fn add(&mut self, state: Option<State>, amount: i64, sign: i64) -> Result<(), StoreError> {
        let Some(state) = state.filter(|state| state.status.is_valid()) else { return Ok(()) };
        let (total, count) = match state.height {
            Some(_) => (&mut self.confirmed, &mut self.confirmed_count),
            None => (&mut self.unconfirmed, &mut self.unconfirmed_count),
        };
        let too_large = || StoreError::Corrupt { what: "more money than there can be".to_owned() };
        *total = total.checked_add(sign * amount).ok_or_else(too_large)?;
        *count += sign;
        Ok(())
    }
}
