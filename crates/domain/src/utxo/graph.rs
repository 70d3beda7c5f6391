//! The transactions and outputs around an event, as they are stored and as they are to become.
//!
//! Whoever fills a graph loads all that the event can touch before it is decided. What is missing counts as not there.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::types::{Hash, NewTx, OutPoint, Status, WalletId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    pub status: Status,
    pub height: Option<u32>,
}

pub const UNCONFIRMED: State = State { status: Status::Published, height: None };

/// Ages from here on belong to transactions that come with this event, each larger than the one before. Ids of the
/// database do not get near it, and as many ages are left above it.
pub const AGE_OF_NEW: i64 = i64::MAX / 2;

/// A transaction, in all wallets that store it: its state is the same in each.
#[derive(Clone, Debug)]
pub struct TxEntry<'a> {
    /// `None`: not stored yet.
    pub before: Option<State>,
    pub now: State,
    pub coinbase: bool,
    /// Whether the row says that it is our own, and whether it is.
    pub own_before: bool,
    pub own: bool,
    /// Whether the row says that two people gave it up although it was broadcast, and whether that stands. It does not come
    /// back by itself then, only when a node shows it.
    pub given_up_before: bool,
    pub given_up: bool,
    pub stored_in: BTreeSet<WalletId>,
    /// Wallets that it concerns since this event.
    pub joins: BTreeSet<WalletId>,
    /// Empty for a coinbase, and for one that the event cannot touch.
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
    /// One that is stored. Which wallets have it, and what it spends, is added as it is read.
    pub fn stored(state: State, coinbase: bool, own: bool, age: i64) -> Self {
        Self {
            before: Some(state),
            now: state,
            coinbase,
            own_before: own,
            own,
            given_up_before: false,
            given_up: false,
            stored_in: BTreeSet::new(),
            joins: BTreeSet::new(),
            inputs: Vec::new(),
            given: None,
            age,
            once_published: state.status == Status::Published,
            reason: "",
            cause: None,
        }
    }

    pub const fn is_valid(&self) -> bool {
        self.now.status.is_valid()
    }

    pub fn wallets(&self) -> impl Iterator<Item = WalletId> {
        self.stored_in.iter().chain(&self.joins).copied()
    }

    /// Whether its rows say something else than they shall.
    pub fn is_changed(&self) -> bool {
        let flags_changed = self.own_before != self.own || self.given_up_before != self.given_up;
        self.before.is_some_and(|before| before != self.now || flags_changed)
    }

    /// Invalid, and not because its block is gone: it may become valid again.
    pub(super) const fn is_beaten(&self) -> bool {
        match self.now.status {
            Status::Replaced | Status::Failed => true,
            Status::Pending | Status::Published | Status::Orphaned => false,
        }
    }
}

/// An output of ours.
#[derive(Clone, Copy, Debug)]
pub struct Ours {
    pub wallet: WalletId,
    pub account: u32,
    pub amount: i64,
    /// Stored under an id, and spent by whom; or to be stored at an address.
    pub row: Row,
}

#[derive(Clone, Copy, Debug)]
pub enum Row {
    Stored { id: i64, spender: Option<Hash> },
    New { address: i64 },
}

/// Whether a valid transaction spends an outpoint: which one, and with which of its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spent {
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

/// A transaction's new state, the reason, and the transaction or block that caused it.
pub type Told = (Hash, State, &'static str, Option<Hash>);

#[derive(Debug, Default)]
pub struct Graph<'a> {
    pub entries: HashMap<Hash, TxEntry<'a>>,
    pub coins: HashMap<OutPoint, Ours>,
    /// Whether an outpoint is validly spent.
    pub spenders: HashMap<OutPoint, Spent>,
    /// Which transactions have an outpoint among their inputs, valid or not.
    pub claims: HashMap<OutPoint, BTreeSet<Hash>>,
    /// Which transactions spend an output of a transaction, valid or not.
    pub children: HashMap<Hash, BTreeSet<Hash>>,
    /// Which transactions these had replaced before, each with a number: a later replacement has a higher one.
    pub had_replaced: HashMap<Hash, BTreeMap<Hash, i64>>,
    /// Who took whose inputs in this event: victim, winner.
    pub edges: Vec<(Hash, Hash)>,
    /// Every change in its order. The history has all of them, also a state that lasted only until the next
    /// transaction of the same event.
    pub changed: Vec<Told>,
    /// Which wallets have pruned which of the transactions shown.
    pub pruned: HashSet<(WalletId, Hash)>,
    /// Blocks that are only known from an import.
    pub imported: HashSet<u32>,
    /// Outputs of which the event may change whether they are claimed, and those of them that were before it, by whom.
    pub in_question: BTreeSet<OutPoint>,
    pub claimed_before: BTreeMap<OutPoint, Hash>,
    /// Outpoints that lost their spender, and transactions that are valid again, since `revive` last asked whether this
    /// lets others be valid again.
    pub(super) freed: Vec<OutPoint>,
    pub(super) risen: Vec<Hash>,
    /// Transactions that stopped being valid since then.
    pub(super) fallen: Vec<Hash>,
}

// ---- filling it --------------------------------------------------------------------------------------------

impl Graph<'_> {
    /// A stored transaction has this outpoint as this one of its inputs.
    pub fn add_claim(&mut self, outpoint: OutPoint, claimant: Hash, input: u32) {
        self.claims.entry(outpoint).or_default().insert(claimant);
        self.children.entry(outpoint.hash).or_default().insert(claimant);
        if self.is_valid(claimant) {
            self.spenders.insert(outpoint, Spent::By { spender: claimant, input });
        }
    }

    /// These and the valid transactions that depend on them.
    pub fn with_descendants(&self, of: impl IntoIterator<Item = Hash>) -> BTreeSet<Hash> {
        let mut open: Vec<Hash> = of.into_iter().collect();
        let mut found = BTreeSet::new();
        while let Some(hash) = open.pop() {
            if found.insert(hash) {
                open.extend(self.valid_children(hash));
            }
        }
        found
    }

    pub fn inputs_of(&self, hashes: impl IntoIterator<Item = Hash>) -> Vec<OutPoint> {
        let inputs = hashes.into_iter().filter_map(|hash| self.entries.get(&hash)).flat_map(|entry| &entry.inputs);
        inputs.copied().collect::<BTreeSet<OutPoint>>().into_iter().collect()
    }
}

// ---- what is so --------------------------------------------------------------------------------------------

impl Graph<'_> {
    pub fn state(&self, hash: Hash) -> Option<State> {
        self.entries.get(&hash).map(|entry| entry.now)
    }

    pub fn is_valid(&self, hash: Hash) -> bool {
        self.entries.get(&hash).is_some_and(TxEntry::is_valid)
    }

    pub(super) fn is_confirmed(&self, hash: Hash) -> bool {
        self.entries.get(&hash).is_some_and(|entry| entry.now.height.is_some())
    }

    /// Whether a block has it, or something that depends on it: then a block has it too, one that was read when it concerned
    /// nobody here.
    pub(super) fn is_settled(&self, hash: Hash) -> bool {
        self.with_descendants([hash]).into_iter().any(|one| self.is_confirmed(one))
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

    pub(super) fn valid_children(&self, hash: Hash) -> impl Iterator<Item = Hash> {
        self.children.get(&hash).into_iter().flatten().copied().filter(|child| self.is_valid(*child))
    }

    /// Its outputs that are ours.
    pub(super) fn outputs_of<'b>(&'b self, tx: &'b NewTx) -> impl Iterator<Item = (OutPoint, &'b Ours)> {
        let outpoints = (0_u32..).zip(&tx.outputs).map(|(index, _)| OutPoint { hash: tx.hash, index });
        outpoints.filter_map(|outpoint| self.coins.get(&outpoint).map(|coin| (outpoint, coin)))
    }

    /// Whose wallets it pays, spends from, or competes in.
    pub(super) fn concerned(&self, tx: &NewTx) -> BTreeSet<WalletId> {
        let mut wallets: BTreeSet<WalletId> = self.outputs_of(tx).map(|(_, coin)| coin.wallet).collect();
        wallets.extend(tx.inputs.iter().filter_map(|input| self.coin(input)).map(|coin| coin.wallet));
        // Wallets of invalid rivals too: they must know what a block has spent, or one of the rivals could come back.
        let rivals = tx.inputs.iter().filter_map(|input| self.claims.get(input)).flatten().copied();
        for rival in rivals.filter(|rival| *rival != tx.hash) {
            wallets.extend(self.entries.get(&rival).into_iter().flat_map(TxEntry::wallets));
        }
        wallets.retain(|wallet| !self.pruned.contains(&(*wallet, tx.hash)));
        wallets
    }

    /// All its inputs are ours, from transactions that are in a block or our own, so that no stranger can take them
    /// back.
    fn is_own(&self, inputs: &[OutPoint]) -> bool {
        let trusted = |input: &OutPoint| {
            self.coin(input).is_some()
                && self.entries.get(&input.hash).is_some_and(|parent| parent.now.height.is_some() || parent.own)
        };
        !inputs.is_empty() && inputs.iter().all(trusted)
    }

    /// Whether an event that shows this stored transaction once more shows more of it than is stored: an address was
    /// added since.
    pub(super) fn has_news_of(&self, tx: &NewTx) -> bool {
        self.outputs_of(tx).any(|(_, coin)| matches!(coin.row, Row::New { .. }))
    }
}

// ---- what becomes of it ------------------------------------------------------------------------------------

impl<'a> Graph<'a> {
    /// Takes in a transaction that an event shows: it is stored in this state, in all wallets that it concerned when
    /// the event came.
    pub(super) fn admit(
        &mut self,
        tx: &'a NewTx,
        concerned: &BTreeSet<WalletId>,
        now: State,
        reason: &'static str,
        cause: Option<Hash>,
    ) {
        let age = AGE_OF_NEW + i64::try_from(self.changed.len()).unwrap_or(0);
        let rises = self.entries.get(&tx.hash).is_some_and(|entry| !entry.is_valid()) && now.status.is_valid();
        let entry = self.entries.entry(tx.hash).or_insert_with(|| TxEntry {
            before: None,
            once_published: false,
            ..TxEntry::stored(now, tx.coinbase, false, age)
        });
        entry.once_published |= now.status == Status::Published;
        (entry.now, entry.reason, entry.cause) = (now, reason, cause);
        entry.given = Some(tx);
        entry.given_up = false;
        entry.inputs.clone_from(&tx.inputs);
        entry.joins.extend(concerned.difference(&entry.stored_in));
        self.changed.push((tx.hash, now, reason, cause));
        if rises {
            self.risen.push(tx.hash);
        }
        for input in &tx.inputs {
            self.claims.entry(*input).or_default().insert(tx.hash);
            self.children.entry(input.hash).or_default().insert(tx.hash);
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
    pub(super) fn join(&mut self, hash: Hash, wallets: &BTreeSet<WalletId>, reason: &'static str, cause: Hash) {
        let Some(entry) = self.entries.get_mut(&hash) else { return };
        for wallet in wallets {
            if !entry.stored_in.contains(wallet) && entry.joins.insert(*wallet) {
                (entry.reason, entry.cause) = (reason, Some(cause));
                self.changed.push((hash, entry.now, reason, Some(cause)));
            }
        }
    }

    /// Writes into the history that a mempool has shown a transaction which is not valid here.
    pub(super) fn remember(&mut self, hash: Hash, state: State, cause: Option<Hash>) {
        if let Some(entry) = self.entries.get_mut(&hash) {
            entry.once_published = true;
            entry.given_up = false;
            self.changed.push((hash, UNCONFIRMED, "seen", None));
            self.changed.push((hash, state, "seen, and not valid", cause));
        }
    }

    /// Changes the state of a transaction that is stored.
    pub(super) fn set(&mut self, hash: Hash, now: State, reason: &'static str, cause: Option<Hash>) {
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
        for (input, outpoint) in (0_u32..).zip(inputs) {
            self.spenders.insert(outpoint, Spent::By { spender: hash, input });
        }
    }

    fn vacate(&mut self, hash: Hash) {
        let inputs = self.entries.get(&hash).map(|entry| entry.inputs.clone()).unwrap_or_default();
        for input in inputs {
            if self.spender(&input) == Some(hash) {
                self.spenders.insert(input, Spent::No);
                self.freed.push(input);
            }
        }
    }

    /// Whether it may come back: it was broadcast once, another one or its parent's end has made it invalid, and nobody gave it up.
    pub(super) fn waits(&self, hash: Hash) -> bool {
        self.entries.get(&hash).is_some_and(|entry| entry.is_beaten() && entry.once_published && !entry.given_up)
    }

    /// Which transactions those that fell had replaced, each with the number of the newest of these replacements.
    pub(super) fn replaced_by(&self, fallen: &[Hash]) -> HashMap<Hash, i64> {
        let mut newest: HashMap<Hash, i64> = HashMap::new();
        let mut raise = |victim: Hash, number: i64| {
            let most = newest.entry(victim).or_insert(number);
            *most = number.max(*most);
        };
        for winner in fallen {
            let before = self.had_replaced.get(winner).into_iter().flatten();
            before.for_each(|(victim, number)| raise(*victim, *number));
        }
        // Replacements of this event have no number yet and get one above all that are stored, unless they have
        // happened before.
        for (number, (victim, winner)) in (AGE_OF_NEW..).zip(&self.edges) {
            let is_new = !self.had_replaced.get(winner).is_some_and(|before| before.contains_key(victim));
            if is_new && fallen.contains(winner) {
                raise(*victim, number);
            }
        }
        newest
    }

    /// Says anew of each valid transaction whether it is our own, where the transactions that it spends have changed.
    /// To be called last.
    pub fn settle(&mut self) {
        let counts = |state: State| (state.status.is_valid(), state.height.is_some());
        let is_touched =
            |entry: &TxEntry<'_>| entry.given.is_some() || entry.before.map(counts) != Some(counts(entry.now));
        let touched = self.entries.iter().filter(|(_, entry)| is_touched(entry));
        let mut open: BTreeSet<Hash> = touched.map(|(hash, _)| *hash).collect();
        let children: Vec<Hash> = open.iter().flat_map(|hash| self.valid_children(*hash)).collect();
        open.extend(children);
        while let Some(hash) = open.pop_first() {
            let Some(entry) = self.entries.get(&hash).filter(|entry| entry.is_valid()) else { continue };
            let own = self.is_own(&entry.inputs);
            if own != entry.own && !entry.inputs.is_empty() {
                open.extend(self.valid_children(hash).collect::<Vec<_>>());
                self.entries.entry(hash).and_modify(|entry| entry.own = own);
            }
        }
    }

    /// Who spends it when all is written. An outpoint that the event did not look up keeps the spender it has.
    pub fn spender_after(&self, outpoint: &OutPoint, coin: &Ours) -> Option<Hash> {
        let unchanged = match coin.row {
            Row::Stored { spender, .. } => spender,
            Row::New { .. } => None,
        };
        self.spenders.get(outpoint).map_or(unchanged, |spent| spent.spender())
    }
}
