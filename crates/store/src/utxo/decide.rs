//! What an event does to the transactions around it.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::graph::{AGE_OF_NEW, Graph, Ours, Row, State, TxEntry};
use super::load::{self, corrupt};
use super::types::{Hash, MOST_GENERATIONS, NewTx, OutPoint, Status, UtxoError, UtxoRefusal, WalletId};
use crate::db::Tx;
use crate::error::StoreError;

pub(super) const UNCONFIRMED: State = State { status: Status::Published, height: None };

/// More satoshi than there will ever be is not an amount.
const MOST_SATOSHI: i64 = 2_100_000_000_000_000;

/// Who says that a block has a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// The chain: its next block.
    New,
    /// The chain: a block that is read once more. It overrules an import.
    Read,
    /// The source of an import. It may be wrong about the block: bdk_wallet gives a transaction the block of its
    /// spender, if it knows no better.
    Claimed,
}

/// Refuses a transaction that no chain could hold, before anything is read.
pub(super) fn check_sense(tx: &NewTx) -> Result<(), UtxoRefusal> {
    let distinct: HashSet<&OutPoint> = tx.inputs.iter().collect();
    if tx.coinbase != tx.inputs.is_empty() {
        return Err(UtxoRefusal::BadTransaction("it has no inputs, or a coinbase has some"));
    }
    if distinct.len() != tx.inputs.len() {
        return Err(UtxoRefusal::BadTransaction("it spends an output twice"));
    }
    if tx.inputs.iter().any(|input| input.hash == tx.hash) {
        return Err(UtxoRefusal::BadTransaction("it spends itself"));
    }
    if tx.outputs.iter().any(|output| !(0..=MOST_SATOSHI).contains(&output.amount)) {
        return Err(UtxoRefusal::BadTransaction("an amount is negative or more than all there is"));
    }
    if u32::try_from(tx.outputs.len()).is_err() || tx.outputs.is_empty() {
        return Err(UtxoRefusal::BadTransaction("it has no outputs"));
    }
    Ok(())
}

impl<'a> Graph<'a> {
    /// The rows around these transactions, and which of them may concern a wallet. Of a whole block those are few.
    pub async fn around(tx: &mut Tx, shown: &'a [NewTx]) -> Result<(Self, Vec<&'a NewTx>), StoreError> {
        let mut graph = Self::default();
        let scripts = shown.iter().flat_map(|one| &one.outputs).map(|output| output.script.as_slice()).collect();
        let owners = load::owners(tx, scripts).await?;
        let inputs: Vec<OutPoint> = shown.iter().flat_map(|one| &one.inputs).copied().collect();
        graph.load_entries(tx, shown.iter().map(|one| one.hash)).await?;
        graph.load_spenders(tx, &inputs).await?;
        graph.load_rivals(tx, &inputs).await?;
        graph.load_coins_at(tx, &inputs).await?;
        let mut touched: HashSet<OutPoint> = HashSet::new();
        let mut relevant: Vec<&NewTx> = Vec::new();
        for one in shown {
            let ours: Vec<(u32, Ours)> = (0_u32..)
                .zip(&one.outputs)
                .filter_map(|(index, output)| {
                    let (wallet, address, account) = *owners.get(&output.script)?;
                    Some((index, Ours { wallet, account, amount: output.amount, row: Row::New { address } }))
                })
                .collect();
            let spends = |input: &OutPoint| {
                touched.contains(input)
                    || graph.coins.contains_key(input)
                    || graph.spender(input).is_some()
                    || graph.rivals.contains_key(input)
            };
            if !ours.is_empty() || graph.entries.contains_key(&one.hash) || one.inputs.iter().any(spends) {
                touched.extend(&one.inputs);
                let coin = |(index, coin)| (OutPoint { hash: one.hash, index }, coin);
                graph.coins.extend(ours.into_iter().map(coin));
                relevant.push(one);
            }
        }
        let hashes: Vec<Hash> = relevant.iter().map(|one| one.hash).collect();
        // A wallet that has pruned a transaction takes no notice of it any more; another one may not know it yet.
        graph.pruned = load::once(tx, &hashes).await?.1;
        let pruned = &graph.pruned;
        graph.coins.retain(|outpoint, coin| !pruned.contains(&(coin.wallet, outpoint.hash)));
        let known: Vec<Hash> = hashes.iter().filter(|one| graph.entries.contains_key(*one)).copied().collect();
        graph.load_coins_made(tx, &known).await?;
        graph.load_children(tx, &hashes).await?;
        let parents: BTreeSet<Hash> = relevant.iter().flat_map(|one| &one.inputs).map(|input| input.hash).collect();
        graph.load_entries(tx, parents).await?;
        Ok((graph, relevant))
    }

    /// A block has it.
    pub async fn confirm(
        &mut self,
        tx: &mut Tx,
        new: &'a NewTx,
        (height, block): (u32, Hash),
        word: Word,
    ) -> Result<(), UtxoError> {
        let state = State { status: Status::Published, height: Some(height) };
        let concerned = self.concerned(new);
        if let Some(entry) = self.entries.get(&new.hash) {
            if entry.now == state && !self.has_news_of(new) {
                return Ok(());
            }
            if let Some(elsewhere) = entry.now.height.filter(|elsewhere| *elsewhere != height) {
                match word {
                    Word::Claimed => return Ok(()),
                    Word::New if !load::is_imported(tx, elsewhere).await? => {
                        return Err(UtxoRefusal::BadTransaction("another block has it already").into());
                    }
                    Word::New | Word::Read => {}
                }
            }
        } else if concerned.is_empty() {
            return Ok(());
        }
        let victims = self.conflicts(new);
        if victims.iter().any(|one| self.entries.get(one).is_some_and(|entry| entry.now.height.is_some())) {
            return Err(UtxoRefusal::BadTransaction("another block has spent its inputs").into());
        }
        self.invalidate(tx, &victims, Status::Failed, "a block has spent its input", Some(new.hash)).await?;
        self.admit(new, &concerned, state, "connected", Some(block));
        self.revive(tx).await
    }

    /// The mempool shows it.
    pub async fn see(&mut self, tx: &mut Tx, new: &'a NewTx) -> Result<(), UtxoError> {
        let (conflicts, concerned) = (self.conflicts(new), self.concerned(new));
        let confirmed_conflict = |one: &Hash| self.entries.get(one).is_some_and(|entry| entry.now.height.is_some());
        let orphaned = self.invalid_parent(&new.inputs);
        match self.entries.get(&new.hash).map(|entry| entry.now) {
            Some(State { status: Status::Pending, .. }) => self.admit(new, &concerned, UNCONFIRMED, "seen", None),
            Some(state) if state.status.is_valid() => {
                if self.has_news_of(new) {
                    self.admit(new, &concerned, state, "an address was added", None);
                }
            }
            Some(state) => {
                if conflicts.is_empty() && orphaned.is_none() {
                    self.admit(new, &concerned, UNCONFIRMED, "seen again", None);
                } else if !load::once(tx, &[new.hash]).await?.0.contains(&new.hash) {
                    // The network has seen it, so it may come back when the transactions in its way are gone.
                    self.remember(new.hash, state, conflicts.first().copied().or(orphaned));
                }
            }
            None if concerned.is_empty() || conflicts.iter().any(confirmed_conflict) => {}
            None => match orphaned {
                Some(parent) => {
                    let failed = State { status: Status::Failed, height: None };
                    self.changed.push((new.hash, UNCONFIRMED, "seen", None));
                    self.admit(new, &concerned, failed, "its parent is not valid", Some(parent));
                    // Children that came before it fail with it.
                    let mut children = self.load_children(tx, &[new.hash]).await?;
                    children.extend(self.children.get(&new.hash).into_iter().flatten());
                    self.invalidate(tx, &children, Status::Failed, "its parent is not valid", None).await?;
                }
                None => self.take_over(tx, new, &conflicts, UNCONFIRMED, "seen").await?,
            },
        }
        self.revive(tx).await
    }

    /// Another wallet's history has it, and says that it lost to one that is here already.
    pub fn lose(&mut self, new: &'a NewTx) {
        let (concerned, conflicts) = (self.concerned(new), self.conflicts(new));
        let Some(winner) = conflicts.first().copied().filter(|_| !concerned.is_empty()) else { return };
        let mined = |one: &Hash| self.entries.get(one).is_some_and(|entry| entry.now.height.is_some());
        let status = if conflicts.iter().any(mined) { Status::Failed } else { Status::Replaced };
        // It was broadcast, so it may come back when the transactions that beat it are gone.
        self.changed.push((new.hash, UNCONFIRMED, "seen", None));
        self.admit(new, &concerned, State { status, height: None }, "it had lost before the import", Some(winner));
        if let Some(entry) = self.entries.get_mut(&new.hash) {
            entry.once_published = true;
        }
        for winner in conflicts {
            self.edges.push((new.hash, winner));
            self.join(winner, &concerned, "one that had lost to it has arrived", new.hash);
        }
    }

    /// A transaction that was not there before takes its inputs from those that had them.
    pub async fn take_over(
        &mut self,
        tx: &mut Tx,
        new: &'a NewTx,
        victims: &[Hash],
        state: State,
        reason: &'static str,
    ) -> Result<(), UtxoError> {
        let concerned = self.concerned(new);
        self.invalidate(tx, victims, Status::Replaced, "replaced", Some(new.hash)).await?;
        if self.invalid_parent(&new.inputs).is_some() {
            return Err(UtxoRefusal::BadTransaction("it spends an output of what it replaces").into());
        }
        self.admit(new, &concerned, state, reason, None);
        self.revive(tx).await
    }

    /// Whether a wallet may add this as its own pending transaction, and whom it would replace.
    pub fn check_own(&self, wallet: WalletId, new: &NewTx, replaces: bool) -> Result<Vec<Hash>, UtxoRefusal> {
        if new.coinbase {
            return Err(UtxoRefusal::BadTransaction("a coinbase is not made by a wallet"));
        }
        let spends = |input: &OutPoint| self.coin(input).is_some_and(|coin| coin.wallet == wallet);
        if !new.inputs.iter().any(spends) {
            return Err(UtxoRefusal::BadTransaction("it spends nothing of this wallet"));
        }
        if let Some(parent) = self.invalid_parent(&new.inputs) {
            return Err(UtxoRefusal::InvalidParent(parent));
        }
        let conflicts = self.conflicts(new);
        match conflicts.first() {
            Some(first) if !replaces => return Err(UtxoRefusal::Conflict(*first)),
            None if replaces => return Err(UtxoRefusal::NothingReplaced),
            Some(_) | None => {}
        }
        let confirmed = |one: &&Hash| self.entries.get(*one).is_some_and(|entry| entry.now.height.is_some());
        match conflicts.iter().find(confirmed) {
            Some(hash) => Err(UtxoRefusal::Confirmed(*hash)),
            None => Ok(conflicts),
        }
    }

    /// Makes these, and all valid transactions that depend on them, invalid.
    pub async fn invalidate(
        &mut self,
        tx: &mut Tx,
        victims: &[Hash],
        status: Status,
        reason: &'static str,
        winner: Option<Hash>,
    ) -> Result<(), UtxoError> {
        let mut all: Vec<Hash> = Vec::new();
        let mut generation: Vec<Hash> = victims.iter().filter(|one| self.is_valid(**one)).copied().collect();
        if let Some(winner) = winner {
            self.edges.extend(generation.iter().map(|victim| (*victim, winner)));
        }
        let mut fate = (status, reason, winner);
        let mut generations = 0;
        while !generation.is_empty() {
            generations += 1;
            if generations > MOST_GENERATIONS {
                return Err(UtxoRefusal::CascadeTooDeep {
                    count: all.len() + generation.len(),
                    most: MOST_GENERATIONS,
                }
                .into());
            }
            self.load_inputs(tx, &generation).await?;
            for hash in &generation {
                let (status, reason, cause) = fate;
                self.set(*hash, State { status, height: None }, reason, cause);
            }
            all.extend(&generation);
            let mut next: BTreeSet<Hash> = self.load_children(tx, &generation).await?.into_iter().collect();
            next.extend(generation.iter().filter_map(|parent| self.children.get(parent)).flatten());
            generation = next.into_iter().filter(|child| self.is_valid(*child)).collect();
            fate = (
                Status::Failed,
                "its parent is not valid",
                all.first().copied().filter(|_| winner.is_none()).or(winner),
            );
        }
        if all.iter().any(|hash| {
            self.entries.get(hash).is_some_and(|entry| entry.coinbase && entry.now.status != Status::Orphaned)
        }) {
            return Err(corrupt("a coinbase depends on another transaction").into());
        }
        Ok(())
    }

    /// Makes transactions valid again whose reason to be invalid is gone. A transaction that was broadcast once may be
    /// mined after all, so its inputs must not look free (law 5). To be called after each step of an event.
    pub async fn revive(&mut self, tx: &mut Tx) -> Result<(), UtxoError> {
        loop {
            let mut freed = std::mem::take(&mut self.freed);
            freed.retain(|outpoint| self.spender(outpoint).is_none());
            let risen = std::mem::take(&mut self.risen);
            if freed.is_empty() && risen.is_empty() {
                self.fallen.clear();
                return Ok(());
            }
            for hash in self.waiting(tx, &freed, &risen).await? {
                let Some(entry) = self.entries.get(&hash) else { continue };
                let free = entry.inputs.iter().all(|input| self.spender(input).is_none());
                if free && self.invalid_parent(&entry.inputs).is_none() {
                    self.set(hash, UNCONFIRMED, "what stood in its way is gone", None);
                }
            }
        }
    }

    /// Transactions that were once published, are invalid now, and spend one of these outpoints or an output of one of
    /// these transactions; the newest first. Loads the rows that decide about them.
    async fn waiting(&mut self, tx: &mut Tx, freed: &[OutPoint], risen: &[Hash]) -> Result<Vec<Hash>, StoreError> {
        let fallen: HashSet<Hash> = self.fallen.iter().copied().collect();
        let stored = load::waiting(tx, freed, risen).await?;
        self.load_entries(tx, stored.iter().copied()).await?;
        let (freed, risen): (HashSet<OutPoint>, HashSet<Hash>) =
            (freed.iter().copied().collect(), risen.iter().copied().collect());
        let concerned =
            |entry: &TxEntry<'_>| entry.inputs.iter().any(|input| freed.contains(input) || risen.contains(&input.hash));
        let invalid = |entry: &TxEntry<'_>| matches!(entry.now.status, Status::Replaced | Status::Failed);
        // The rows do not say yet which transactions this event has made invalid; the graph does.
        let here = self.entries.iter().filter(|(_, entry)| invalid(entry) && concerned(entry)).map(|(hash, _)| *hash);
        let mut waiting: Vec<Hash> = here.chain(stored).collect::<BTreeSet<Hash>>().into_iter().collect();
        waiting.retain(|hash| self.entries.get(hash).is_some_and(invalid));
        let (published, _) = load::once(tx, &waiting).await?;
        waiting.retain(|hash| {
            published.contains(hash) || self.entries.get(hash).is_some_and(|entry| entry.once_published)
        });
        self.load_inputs(tx, &waiting).await?;
        let inputs: Vec<OutPoint> =
            waiting.iter().filter_map(|hash| self.entries.get(hash)).flat_map(|entry| entry.inputs.clone()).collect();
        self.load_spenders(tx, &inputs).await?;
        self.load_coins_at(tx, &inputs).await?;
        self.load_entries(tx, inputs.iter().map(|input| input.hash)).await?;
        // First the transactions that a fallen one had replaced, the newest replacement first: the nodes still have
        // them. Then the newest transactions. Replacements of this event have no number yet and get one above all that
        // are stored.
        let edges = load::replaced(tx, &std::mem::take(&mut self.fallen)).await?;
        let here = (AGE_OF_NEW..).zip(&self.edges).filter(|(_, edge)| fallen.contains(&edge.1));
        let mut newest: HashMap<Hash, i64> = edges.into_iter().collect();
        newest.extend(here.map(|(number, edge)| (edge.0, number)));
        waiting.sort_by_key(|hash| {
            std::cmp::Reverse((newest.get(hash).copied(), self.entries.get(hash).map(|entry| entry.age)))
        });
        Ok(waiting)
    }
}
