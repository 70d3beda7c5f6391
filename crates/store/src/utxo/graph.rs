//! The rows around an event, as they are stored and as they are to become. No I/O.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::types::{Hash, NewTx, OutPoint, Status, WalletId};
use crate::error::StoreError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub status: Status,
    pub height: Option<u32>,
}

/// Ages from here on belong to transactions that come with this event, each larger than the one before. Ids of the
/// database do not get near it, and as many ages are left above it.
pub(super) const AGE_OF_NEW: i64 = i64::MAX / 2;

/// A transaction, in all wallets that store it: its state is the same in each.
#[derive(Clone, Debug)]
pub(super) struct TxEntry<'a> {
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
    /// Grows with the order in which transactions were first stored: the lowest id of its rows, and above
    /// [`AGE_OF_NEW`] for one that is not stored yet.
    pub age: i64,
    /// It was published before this event, or in it.
    pub once_published: bool,
    pub reason: &'static str,
    pub cause: Option<Hash>,
}

impl TxEntry<'_> {
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

/// Whether a valid transaction spends an outpoint: which one, and with which of its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spent {
    No,
    By { spender: Hash, input: u32 },
}

impl Spent {
    pub const fn spender(self) -> Option<Hash> {
        match self {
            Self::No => None,
            Self::By { spender, .. } => Some(spender),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Graph<'a> {
    pub entries: HashMap<Hash, TxEntry<'a>>,
    pub coins: HashMap<OutPoint, Ours>,
    /// Whether an outpoint is validly spent. One that is not here was not looked up.
    pub spenders: HashMap<OutPoint, Spent>,
    /// Stored transactions that are not valid and would spend an outpoint that an event shows to be spent.
    pub rivals: HashMap<OutPoint, Vec<Hash>>,
    /// Who became valid in this event, by the transactions whose outputs it spends.
    pub children: HashMap<Hash, Vec<Hash>>,
    /// Who took whose inputs: victim, winner.
    pub edges: Vec<(Hash, Hash)>,
    /// Every change in its order: the new state, the reason, and the transaction or block that caused it. The history
    /// has all of them, also a state that lasted only until the next transaction of the same event.
    pub changed: Vec<(Hash, State, &'static str, Option<Hash>)>,
    /// Outpoints that lost their spender, and transactions that are valid again, since `revive` last asked whether this
    /// lets others be valid again.
    pub freed: Vec<OutPoint>,
    pub risen: Vec<Hash>,
    /// Transactions that stopped being valid since then.
    pub fallen: Vec<Hash>,
    /// Which wallets have pruned which of the transactions shown.
    pub pruned: HashSet<(WalletId, Hash)>,
}

/// The change of an account's totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Delta {
    pub confirmed: i64,
    pub confirmed_count: i64,
    pub unconfirmed: i64,
    pub unconfirmed_count: i64,
}

impl<'a> Graph<'a> {
    pub fn is_valid(&self, hash: Hash) -> bool {
        self.entries.get(&hash).is_some_and(TxEntry::is_valid)
    }

    /// An output of ours whose transaction is stored, or is about to be.
    pub fn coin(&self, outpoint: &OutPoint) -> Option<&Ours> {
        self.coins.get(outpoint).filter(|coin| self.is_real(outpoint, coin))
    }

    /// Whether the output is stored, or belongs to a transaction that this event stores. The event has only looked at
    /// the others.
    pub fn is_real(&self, outpoint: &OutPoint, coin: &Ours) -> bool {
        match coin.row {
            Row::Stored { .. } => true,
            Row::New { .. } => self.entries.get(&outpoint.hash).is_some_and(|entry| entry.given.is_some()),
        }
    }

    pub fn spender(&self, outpoint: &OutPoint) -> Option<Hash> {
        self.spenders.get(outpoint).and_then(|spent| spent.spender())
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
        let invalid = |hash: &Hash| self.entries.get(hash).is_some_and(|entry| !entry.is_valid());
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
        // Wallets of invalid rivals too: they must know what a block has spent, or one of the rivals could come back.
        let rivals = tx.inputs.iter().filter_map(|input| self.rivals.get(input)).flatten().copied();
        for conflict in self.conflicts(tx).into_iter().chain(rivals) {
            wallets.extend(self.entries.get(&conflict).into_iter().flat_map(TxEntry::wallets));
        }
        wallets.retain(|wallet| !self.pruned.contains(&(*wallet, tx.hash)));
        wallets
    }

    /// All its inputs are ours, from transactions that are in a block or our own, so that no stranger can take them
    /// back.
    fn is_own(&self, tx: &NewTx) -> bool {
        let trusted = |input: &OutPoint| {
            self.coin(input).is_some()
                && self.entries.get(&input.hash).is_some_and(|parent| parent.now.height.is_some() || parent.own)
        };
        !tx.inputs.is_empty() && tx.inputs.iter().all(trusted)
    }

    /// Whether an event that shows this stored transaction once more shows more of it than is stored: an address was
    /// added since.
    pub fn has_news_of(&self, tx: &NewTx) -> bool {
        self.outputs_of(tx).any(|(_, coin)| matches!(coin.row, Row::New { .. }))
    }

    /// Takes in a transaction that an event shows: it is stored in this state, in all wallets that it concerned when
    /// the event came.
    pub fn admit(
        &mut self,
        tx: &'a NewTx,
        concerned: &BTreeSet<WalletId>,
        now: State,
        reason: &'static str,
        cause: Option<Hash>,
    ) {
        let own = self.is_own(tx);
        let age = AGE_OF_NEW + i64::try_from(self.changed.len()).unwrap_or(0);
        let entry = self.entries.entry(tx.hash).or_insert_with(|| TxEntry {
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
        let rises = entry.before.is_some() && !entry.is_valid() && now.status.is_valid();
        entry.once_published |= now.status == Status::Published;
        (entry.now, entry.own, entry.reason, entry.cause) = (now, own, reason, cause);
        entry.given = Some(tx);
        entry.inputs.clone_from(&tx.inputs);
        entry.joins.extend(concerned.difference(&entry.stored_in));
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

    /// A transaction that spends its outputs, and was here before it, concerns the outputs' wallets too.
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
        let Some(entry) = self.entries.get_mut(&hash) else { return };
        for wallet in wallets {
            if !entry.stored_in.contains(wallet) && entry.joins.insert(*wallet) {
                (entry.reason, entry.cause) = (reason, Some(cause));
                self.changed.push((hash, entry.now, reason, Some(cause)));
            }
        }
    }

    /// Writes into the history that a mempool has shown a transaction which is not valid here.
    pub fn remember(&mut self, hash: Hash, state: State, cause: Option<Hash>) {
        if let Some(entry) = self.entries.get_mut(&hash) {
            entry.once_published = true;
            self.changed.push((hash, State { status: Status::Published, height: None }, "seen", None));
            self.changed.push((hash, state, "seen, and not valid", cause));
        }
    }

    /// Changes the state of a transaction that is stored; its inputs must be loaded.
    pub fn set(&mut self, hash: Hash, now: State, reason: &'static str, cause: Option<Hash>) {
        let Some(entry) = self.entries.get_mut(&hash) else { return };
        let was_valid = entry.is_valid();
        entry.once_published |= now.status == Status::Published;
        (entry.now, entry.reason, entry.cause) = (now, reason, cause);
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
        let Some(entry) = self.entries.get(&hash) else { return };
        let spent: Vec<WalletId> =
            entry.inputs.iter().filter_map(|input| self.coin(input)).map(|coin| coin.wallet).collect();
        if let Some(entry) = self.entries.get_mut(&hash) {
            entry.joins.extend(spent.into_iter().filter(|wallet| !entry.stored_in.contains(wallet)));
        }
    }

    fn occupy(&mut self, hash: Hash) {
        let inputs = self.entries.get(&hash).map(|entry| entry.inputs.clone()).unwrap_or_default();
        for (index, input) in (0_u32..).zip(inputs) {
            self.children.entry(input.hash).or_default().push(hash);
            self.spenders.insert(input, Spent::By { spender: hash, input: index });
        }
    }

    fn vacate(&mut self, hash: Hash) {
        let inputs = self.entries.get(&hash).map(|entry| entry.inputs.clone()).unwrap_or_default();
        for input in inputs {
            self.rivals.entry(input).or_default().push(hash);
            // It was valid, so it spent the inputs whose spender was not looked up.
            if self.spenders.get(&input).is_none_or(|spent| spent.spender() == Some(hash)) {
                self.spenders.insert(input, Spent::No);
                self.freed.push(input);
            }
        }
    }

    /// The change of the accounts' totals, over all outputs loaded. Outputs of changed transactions, and outputs whose
    /// spender has changed, must be loaded.
    pub fn deltas(&self) -> Result<BTreeMap<(WalletId, u32), Delta>, StoreError> {
        let mut deltas: BTreeMap<(WalletId, u32), Delta> = BTreeMap::new();
        for (outpoint, coin) in self.coins.iter().filter(|(outpoint, coin)| self.is_real(outpoint, coin)) {
            let Some(entry) = self.entries.get(&outpoint.hash) else { continue };
            let before = match coin.row {
                Row::New { .. } => None,
                Row::Stored { spender } => entry.before.filter(|_| spender.is_none()),
            };
            let after = Some(entry.now).filter(|_| self.spender_after(outpoint, coin).is_none());
            let delta = deltas.entry((coin.wallet, coin.account)).or_default();
            delta.add(before, coin.amount, -1)?;
            delta.add(after, coin.amount, 1)?;
        }
        deltas.retain(|_, delta| *delta != Delta::default());
        Ok(deltas)
    }

    /// Who spends it when all is written. An outpoint that the event did not look up keeps the spender it has.
    pub fn spender_after(&self, outpoint: &OutPoint, coin: &Ours) -> Option<Hash> {
        let unchanged = match coin.row {
            Row::Stored { spender } => spender,
            Row::New { .. } => None,
        };
        self.spenders.get(outpoint).map_or(unchanged, |spent| spent.spender())
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
