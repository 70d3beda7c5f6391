//! What an event does to the transactions around it. Nothing is looked up here: the graph has all that can be touched.
//!
//! | event | function |
//! |---|---|
//! | a block has it | [`Graph::connected`] |
//! | its block left the chain | [`Graph::gone`] |
//! | a mempool shows it | [`Graph::seen`] |
//! | another wallet's history says that it lost | [`Graph::lost`] |
//! | it was made here, perhaps in place of others | [`Graph::made`] |
//! | it is about to be broadcast | [`Graph::published`] |
//! | it was given up before it was broadcast | [`Graph::abandoned`] |
//! | two people gave it up although it was broadcast | [`Graph::given_up`] |
//!
//! **That a transaction leaves a mempool is no event.** It may still be mined (law 4).

use std::collections::{BTreeSet, HashMap, HashSet};

use super::graph::{Graph, State, TxEntry, UNCONFIRMED};
use super::refusal::UtxoRefusal;
use super::types::{COINBASE_MATURITY, Hash, NewTx, OutPoint, Status, WalletId, is_mature};

/// How long a line of transactions, each spending the one before, is followed. Nodes relay lines of 25, so a line of
/// this many is a fault of the source that we read.
pub const MOST_GENERATIONS: usize = 5_000;

/// More satoshi than there will ever be is not an amount.
const MOST_SATOSHI: i64 = 2_100_000_000_000_000;

/// Who says that a block has a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// The chain: its next block.
    New,
    /// The chain: a block that is read once more. It overrules an import.
    Read,
    /// The source of an import. It may be wrong about the block: bdk_wallet gives a transaction the block of its
    /// spender, if it knows no better.
    Claimed,
}

/// Refuses a transaction that no chain could hold, before anything is read.
pub fn check_sense(tx: &NewTx) -> Result<(), UtxoRefusal> {
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

// ---- the chain ---------------------------------------------------------------------------------------------

impl<'a> Graph<'a> {
    /// A block has it.
    pub fn connected(&mut self, new: &'a NewTx, (height, block): (u32, Hash), word: Word) -> Result<(), UtxoRefusal> {
        let state = State { status: Status::Published, height: Some(height) };
        let concerned = self.concerned(new);
        if let Some(now) = self.state(new.hash) {
            if now == state && !self.has_news_of(new) {
                return Ok(());
            }
            if let Some(elsewhere) = now.height.filter(|elsewhere| *elsewhere != height) {
                match word {
                    Word::Claimed => return Ok(()),
                    Word::New if !self.imported.contains(&elsewhere) => {
                        return Err(UtxoRefusal::BadTransaction("another block has it already"));
                    }
                    Word::New | Word::Read => {}
                }
            }
        } else if concerned.is_empty() {
            return Ok(());
        }
        let victims = self.conflicts(new);
        if victims.iter().any(|victim| self.is_confirmed(*victim)) {
            return Err(UtxoRefusal::BadTransaction("another block has spent its inputs"));
        }
        self.invalidate(&victims, Status::Failed, "a block has spent its input", Some(new.hash))?;
        self.admit(new, &concerned, state, "connected", Some(block));
        self.revive();
        Ok(())
    }

    /// Blocks that held these left the chain. Plain transactions become unconfirmed; coinbases are orphaned, and the
    /// transactions that spend them fail. `stale` are transactions of these blocks, as far as somebody still has their
    /// bytes: one that an unconfirmed transaction of ours depends on is kept from now on, for it is unconfirmed too.
    pub fn gone(&mut self, hashes: &BTreeSet<Hash>, stale: &'a [NewTx]) -> Result<(), UtxoRefusal> {
        let is_coinbase = |hash: &Hash| self.entries.get(hash).is_some_and(|entry| entry.coinbase);
        let (coinbases, plain): (Vec<Hash>, Vec<Hash>) = hashes.iter().copied().partition(is_coinbase);
        for hash in plain {
            self.set(hash, UNCONFIRMED, "disconnected", None);
        }
        self.invalidate(&coinbases, Status::Orphaned, "its block was disconnected", None)?;
        // Children before their parents: a parent concerns those whom its child concerns.
        for one in stale.iter().rev().filter(|one| !hashes.contains(&one.hash)) {
            let concerned = self.concerned_by_children(one);
            if self.entries.contains_key(&one.hash) || concerned.is_empty() || !self.conflicts(one).is_empty() {
                continue;
            }
            if one.coinbase {
                let orphaned = State { status: Status::Orphaned, height: None };
                self.admit(one, &concerned, orphaned, "its block was disconnected", None);
                let children: Vec<Hash> = self.valid_children(one.hash).collect();
                self.invalidate(&children, Status::Failed, "its parent is not valid", None)?;
            } else {
                self.admit(one, &concerned, UNCONFIRMED, "disconnected", None);
            }
        }
        self.revive();
        Ok(())
    }
}

// ---- the mempool -------------------------------------------------------------------------------------------

impl<'a> Graph<'a> {
    /// A mempool shows it. `absent` are transactions that the same mempool does not have: of two that conflict the one
    /// that is there stands. What the other one spends besides is claimed by it from then on.
    pub fn seen(&mut self, new: &'a NewTx, absent: &HashSet<Hash>) -> Result<(), UtxoRefusal> {
        let conflicts = self.conflicts(new);
        let mut concerned = self.concerned(new);
        concerned.extend(self.concerned_by_children(new));
        let orphaned = self.invalid_parent(&new.inputs);
        match self.state(new.hash) {
            Some(State { status: Status::Pending, .. }) => self.admit(new, &concerned, UNCONFIRMED, "seen", None),
            Some(state) if state.status.is_valid() => {
                if self.has_news_of(new) {
                    self.admit(new, &concerned, state, "an address was added", None);
                }
            }
            Some(state) => {
                let gives_way = |hash: &Hash| {
                    self.state(*hash) == Some(UNCONFIRMED) && absent.contains(hash) && !self.is_settled(*hash)
                };
                if orphaned.is_none() && conflicts.iter().all(gives_way) {
                    self.take_over(new, &conflicts, &concerned, UNCONFIRMED, "seen again")?;
                } else if !self.entries.get(&new.hash).is_some_and(|entry| entry.once_published && !entry.given_up) {
                    // The network has seen it, so it may come back when the transactions in its way are gone.
                    self.remember(new.hash, state, conflicts.first().copied().or(orphaned));
                }
            }
            None if concerned.is_empty() || conflicts.iter().any(|one| self.is_settled(*one)) => {}
            None => match orphaned {
                Some(parent) => {
                    let failed = State { status: Status::Failed, height: None };
                    self.changed.push((new.hash, UNCONFIRMED, "seen", None));
                    self.admit(new, &concerned, failed, "its parent is not valid", Some(parent));
                    if let Some(entry) = self.entries.get_mut(&new.hash) {
                        entry.once_published = true;
                    }
                    // Children that came before it fail with it.
                    let children: Vec<Hash> = self.valid_children(new.hash).collect();
                    self.invalidate(&children, Status::Failed, "its parent is not valid", None)?;
                }
                None => self.take_over(new, &conflicts, &concerned, UNCONFIRMED, "seen")?,
            },
        }
        self.revive();
        Ok(())
    }

    /// Another wallet's history has it, and says that it lost to one that is here already.
    pub fn lost(&mut self, new: &'a NewTx) {
        let (concerned, conflicts) = (self.concerned(new), self.conflicts(new));
        let Some(winner) = conflicts.first().copied().filter(|_| !concerned.is_empty()) else { return };
        let mined = conflicts.iter().any(|one| self.is_confirmed(*one));
        let status = if mined { Status::Failed } else { Status::Replaced };
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

    /// The wallets of unconfirmed transactions that spend its outputs. While it is in no block itself, what becomes of
    /// it decides about them, so these wallets keep it although it pays none of them.
    fn concerned_by_children(&self, tx: &NewTx) -> BTreeSet<WalletId> {
        let children = self.children.get(&tx.hash).into_iter().flatten().filter_map(|child| self.entries.get(child));
        let unconfirmed = children.filter(|child| child.now.height.is_none());
        let mut wallets: BTreeSet<WalletId> = unconfirmed.flat_map(TxEntry::wallets).collect();
        wallets.retain(|wallet| !self.pruned.contains(&(*wallet, tx.hash)));
        wallets
    }
}

// ---- the wallet --------------------------------------------------------------------------------------------

impl<'a> Graph<'a> {
    /// A wallet has made it and will broadcast it; or refuses it. `replaces`: it takes inputs of others of ours.
    pub fn made(&mut self, wallet: WalletId, new: &'a NewTx, replaces: bool) -> Result<(), UtxoRefusal> {
        let victims = self.check_own(wallet, new, replaces)?;
        let pending = State { status: Status::Pending, height: None };
        let concerned = self.concerned(new);
        self.take_over(new, &victims, &concerned, pending, "made here")?;
        self.revive();
        Ok(())
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
        match conflicts.iter().find(|one| self.is_settled(**one)) {
            Some(hash) => Err(UtxoRefusal::Confirmed(*hash)),
            None => Ok(conflicts),
        }
    }

    /// Refuses a transaction that no block may have yet: it spends a coinbase that is not mature with this last block.
    pub fn check_mature(&self, new: &NewTx, tip: Option<u32>) -> Result<(), UtxoRefusal> {
        for outpoint in &new.inputs {
            let maker = self.entries.get(&outpoint.hash).filter(|maker| maker.coinbase);
            if let Some(height) = maker.and_then(|maker| maker.now.height)
                && !tip.is_some_and(|tip| is_mature(height, tip))
            {
                let from = height.saturating_add(COINBASE_MATURITY);
                return Err(UtxoRefusal::Immature { outpoint: *outpoint, from });
            }
        }
        Ok(())
    }

    /// Pending transactions are about to be broadcast, with those that they spend: a node that gets one needs the
    /// others.
    pub fn published(&mut self, hashes: &[Hash], reason: &'static str) {
        let mut open: Vec<Hash> = hashes.to_vec();
        while let Some(hash) = open.pop() {
            let Some(entry) = self.entries.get(&hash).filter(|entry| entry.now.status == Status::Pending) else {
                continue;
            };
            open.extend(entry.inputs.iter().map(|input| input.hash));
            self.set(hash, UNCONFIRMED, reason, None);
        }
    }

    /// It is given up before anybody else has seen it.
    pub fn abandoned(&mut self, hash: Hash) -> Result<(), UtxoRefusal> {
        let entry = self.entries.get(&hash).ok_or(UtxoRefusal::UnknownTransaction(hash))?;
        match entry.now.status {
            // A failed transaction that was broadcast may come back, so it does not count as abandoned.
            Status::Failed if !entry.once_published => return Ok(()),
            Status::Pending => {}
            status => return Err(UtxoRefusal::NotPending(hash, status)),
        }
        self.invalidate(&[hash], Status::Failed, "abandoned", None)?;
        self.revive();
        Ok(())
    }

    /// Two people say that it can never be mined, though nothing that is stored proves it. It fails with all that depend on
    /// it. It comes back when a node shows it, in a mempool or in a block, and not before.
    pub fn given_up(&mut self, hash: Hash) -> Result<(), UtxoRefusal> {
        let entry = self.entries.get(&hash).ok_or(UtxoRefusal::UnknownTransaction(hash))?;
        let was_valid = entry.is_valid();
        match entry.now {
            _ if entry.given_up => return Ok(()),
            UNCONFIRMED if self.is_settled(hash) => return Err(UtxoRefusal::ChildInBlock(hash)),
            UNCONFIRMED => {}
            // It has ended, but may still be mined, and keeps what it spends from being free.
            State { height: None, .. } if self.may_rise(hash) => {}
            State { height: Some(height), .. } => return Err(UtxoRefusal::InBlock { hash, height }),
            State { status, .. } => return Err(UtxoRefusal::NotPublished(hash, status)),
        }
        self.invalidate(&[hash], Status::Failed, "given up", None)?;
        let Some(entry) = self.entries.get_mut(&hash) else { return Ok(()) };
        entry.given_up = true;
        if !was_valid {
            let told = (hash, entry.now, "given up", None);
            self.changed.push(told);
        }
        self.revive();
        Ok(())
    }
}

// ---- what follows ------------------------------------------------------------------------------------------

impl<'a> Graph<'a> {
    /// A transaction that is not valid yet takes its inputs from those that have them.
    fn take_over(
        &mut self,
        new: &'a NewTx,
        victims: &[Hash],
        concerned: &BTreeSet<WalletId>,
        state: State,
        reason: &'static str,
    ) -> Result<(), UtxoRefusal> {
        self.invalidate(victims, Status::Replaced, "replaced", Some(new.hash))?;
        if self.invalid_parent(&new.inputs).is_some() {
            return Err(UtxoRefusal::BadTransaction("it spends an output of what it replaces"));
        }
        self.admit(new, concerned, state, reason, None);
        Ok(())
    }

    /// Makes these, and all valid transactions that depend on them, invalid.
    fn invalidate(
        &mut self,
        victims: &[Hash],
        status: Status,
        reason: &'static str,
        winner: Option<Hash>,
    ) -> Result<(), UtxoRefusal> {
        let mut generation: Vec<Hash> = victims.iter().filter(|one| self.is_valid(**one)).copied().collect();
        // Replacements are numbered as they are noted: not by the order of somebody's inputs.
        generation.sort_unstable_by_key(|one| self.entries.get(one).map(|entry| (entry.age, *one)));
        if let Some(winner) = winner {
            self.edges.extend(generation.iter().map(|victim| (*victim, winner)));
        }
        let cause_of_children = winner.or_else(|| generation.first().copied());
        let mut fate = (status, reason, winner);
        let (mut count, mut generations) = (0, 0);
        while !generation.is_empty() {
            generations += 1;
            count += generation.len();
            if generations > MOST_GENERATIONS {
                return Err(UtxoRefusal::CascadeTooDeep { count, most: MOST_GENERATIONS });
            }
            for hash in &generation {
                let (status, reason, cause) = fate;
                self.set(*hash, State { status, height: None }, reason, cause);
            }
            let next: BTreeSet<Hash> = generation.iter().flat_map(|parent| self.valid_children(*parent)).collect();
            generation = next.into_iter().collect();
            fate = (Status::Failed, "its parent is not valid", cause_of_children);
        }
        Ok(())
    }

    /// Makes transactions valid again whose reason to be invalid is gone. A transaction that was broadcast once may be
    /// mined after all, so its inputs must not look free (law 5). To be called after each step of an event.
    ///
    /// **Of all that can come back at a moment the first in rank does; then the same is asked again.** First in rank are those
    /// that a transaction which fell in this step had replaced, the newest replacement first, because the nodes may still have them;
    /// then those that were stored last.
    fn revive(&mut self) {
        let (freed, fallen) = (std::mem::take(&mut self.freed), std::mem::take(&mut self.fallen));
        let replaced = self.replaced_by(&fallen);
        let claimants = freed.iter().filter_map(|outpoint| self.claims.get(outpoint)).flatten().copied();
        let mut open: BTreeSet<Rank> = claimants.filter_map(|hash| self.rank(hash, &replaced)).collect();
        loop {
            // One whose parent is still invalid is asked again when the parent has come back.
            for parent in std::mem::take(&mut self.risen) {
                let children = self.children.get(&parent).into_iter().flatten().copied();
                open.extend(children.filter_map(|hash| self.rank(hash, &replaced)));
            }
            let Some((_, _, hash)) = open.pop_last() else { return };
            if self.can_rise(hash) {
                self.set(hash, UNCONFIRMED, "what stood in its way is gone", None);
            }
        }
    }

    /// The place of a transaction that waits among all that do.
    fn rank(&self, hash: Hash, replaced: &HashMap<Hash, i64>) -> Option<Rank> {
        let age = self.entries.get(&hash).filter(|_| self.waits(hash))?.age;
        Some((replaced.get(&hash).copied(), age, hash))
    }

    fn can_rise(&self, hash: Hash) -> bool {
        let Some(entry) = self.entries.get(&hash) else { return false };
        entry.inputs.iter().all(|input| self.spender(input).is_none()) && self.invalid_parent(&entry.inputs).is_none()
    }
}

/// The number of the replacement that ended it, if the winner fell; its age; the transaction. The highest comes back first.
type Rank = (Option<i64>, i64, Hash);
