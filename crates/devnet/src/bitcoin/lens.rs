//! The one state as one endpoint sees it.

use std::collections::BTreeMap;

use ::bitcoin::block::Header;
use ::bitcoin::consensus::serialize;
use ::bitcoin::{Amount, BlockHash, OutPoint, Transaction, Txid};

use super::super::{Lie, View};
use super::BitcoinDevnet;
use super::chain::{Chain, Coin, Stored, solve};
use super::pool::{Entry, Pool};

/// So many contradicting views are remembered.
const SHADOWS: usize = 8;

/// A block that is shown in place of a real one: the same transactions under another header.
pub(super) struct Shadow {
    real: usize,
    header: Header,
    hash: BlockHash,
}

/// A block as this view shows it.
#[derive(Clone, Copy)]
pub(super) struct Shown<'a> {
    pub at: usize,
    pub stored: &'a Stored,
    pub header: Header,
    pub hash: BlockHash,
    pub active: bool,
}

pub(super) struct Lens<'a> {
    pub chain: &'a Chain,
    pool: &'a Pool,
    view: &'a View,
    shadows: &'a [Shadow],
}

impl BitcoinDevnet {
    pub(super) fn lens<'a>(&'a mut self, view: &'a View) -> Lens<'a> {
        if let Some(from) = view.contradict {
            self.cast_shadows(from);
        }
        let shadows = view.contradict.and_then(|from| self.shadows.get(&from)).map_or(&[][..], Vec::as_slice);
        Lens { chain: &self.chain, pool: &self.pool, view, shadows }
    }

    fn cast_shadows(&mut self, from: u64) {
        if self.shadows.len() >= SHADOWS && !self.shadows.contains_key(&from) {
            self.shadows.clear();
        }
        let Ok(from_height) = u32::try_from(from) else { return };
        let shadows = self.shadows.entry(from).or_default();
        let real = |chain: &Chain, at: usize| chain.active_at(from_height.saturating_add(u32::try_from(at).ok()?));
        let fits = shadows.iter().enumerate().take_while(|(at, shadow)| real(&self.chain, *at) == Some(shadow.real));
        let fits = fits.count();
        shadows.truncate(fits);
        while let Some(at) = real(&self.chain, shadows.len()) {
            let stored = self.chain.stored(at);
            let mut header = stored.block.header;
            if let Some(parent) = shadows.last() {
                header.prev_blockhash = parent.hash;
            }
            header.nonce ^= 1 << 31;
            let hash = solve(&mut header);
            shadows.push(Shadow { real: at, header, hash });
        }
    }
}

impl<'a> Lens<'a> {
    /// The height of the newest block that it knows.
    pub fn height(&self) -> u32 {
        let lag = u32::try_from(self.view.lag).unwrap_or(u32::MAX);
        self.chain.height().saturating_sub(lag)
    }

    pub fn tip(&self) -> Shown<'a> {
        self.at_height(self.height()).unwrap_or_else(|| self.show(0))
    }

    fn shadow(&self, height: u32) -> Option<&'a Shadow> {
        let from = u32::try_from(self.view.contradict?).ok()?;
        self.shadows.get(usize::try_from(height.checked_sub(from)?).ok()?)
    }

    fn show(&self, at: usize) -> Shown<'a> {
        let stored = self.chain.stored(at);
        let active = self.chain.is_active(at);
        match self.shadow(stored.height).filter(|shadow| active && shadow.real == at) {
            Some(shadow) => Shown { at, stored, header: shadow.header, hash: shadow.hash, active },
            None => Shown { at, stored, header: stored.block.header, hash: stored.hash, active },
        }
    }

    /// Blocks of other branches may stand higher than the tip, after `invalidateblock`.
    pub fn knows(&self, height: u32) -> bool {
        self.view.lag == 0 || height <= self.height()
    }

    pub fn at_height(&self, height: u32) -> Option<Shown<'a>> {
        if height > self.height() {
            return None;
        }
        self.chain.active_at(height).map(|at| self.show(at))
    }

    pub fn by_hash(&self, hash: &BlockHash) -> Option<Shown<'a>> {
        let shadow = || self.shadows.iter().find(|shadow| shadow.hash == *hash).map(|shadow| shadow.real);
        let at = self.chain.by_hash(hash).or_else(shadow)?;
        // Neither a block that it does not know yet, nor the real one where it shows another.
        Some(self.show(at)).filter(|shown| shown.hash == *hash && self.knows(shown.stored.height))
    }

    pub fn confirmations(&self, block: &Shown<'_>) -> i64 {
        if !block.active {
            return -1;
        }
        i64::from(self.height()).saturating_sub(i64::from(block.stored.height)).saturating_add(1)
    }

    /// The block as bytes, with amounts that do not fit its hash if it inflates them.
    pub fn raw_block(&self, block: &Shown<'_>) -> Vec<u8> {
        if self.inflates() {
            let mut forged = block.stored.block.clone();
            forged.header = block.header;
            forged.txdata = forged.txdata.iter().map(|transaction| self.forged(transaction)).collect();
            return serialize(&forged);
        }
        if self.view.lie == Lie::TransactionLeftOut && block.stored.block.txdata.len() > 1 {
            let mut cut = block.stored.block.clone();
            cut.header = block.header;
            cut.txdata.pop();
            return serialize(&cut);
        }
        let count = block.stored.block.txdata.len();
        if self.view.lie == Lie::Swapped && count > 2 {
            let mut swapped = block.stored.block.clone();
            swapped.header = block.header;
            swapped.txdata.swap(count - 2, count - 1);
            return serialize(&swapped);
        }
        let mut raw = block.stored.raw.clone();
        if block.hash != block.stored.hash {
            raw.splice(..Header::SIZE, serialize(&block.header));
        }
        raw
    }

    /// All that a transaction here pays is in its outputs, so two lies are one.
    const fn inflates(&self) -> bool {
        matches!(self.view.lie, Lie::Inflated | Lie::ValueInflated)
    }

    fn forged(&self, transaction: &Transaction) -> Transaction {
        let mut forged = transaction.clone();
        for output in &mut forged.output {
            output.value = Amount::from_sat(self.value(output.value));
        }
        forged
    }

    /// The bytes of a transaction, with amounts that do not fit its hash if it inflates them.
    pub fn raw_transaction(&self, transaction: &Transaction) -> Vec<u8> {
        if self.inflates() { serialize(&self.forged(transaction)) } else { serialize(transaction) }
    }

    /// What it says that an output is worth.
    pub fn value(&self, amount: Amount) -> u64 {
        amount.to_sat().saturating_mul(if self.inflates() { 10 } else { 1 })
    }

    /// A transaction is in no block, in no pool, and none of its outputs anywhere.
    pub fn hides(&self) -> bool {
        matches!(self.view.lie, Lie::Missing | Lie::Flipped)
    }

    pub fn waiting(&self, txid: &Txid) -> Option<&'a Entry> {
        if self.hides() { None } else { self.pool.get(txid) }
    }

    pub fn pool(&self) -> &'a Pool {
        self.pool
    }

    pub fn all_waiting(&self) -> impl Iterator<Item = &'a Entry> + use<'a> {
        let hides = self.hides();
        self.pool.entries().filter(move |_| !hides)
    }

    /// The block that holds it, and where in it.
    pub fn mined(&self, txid: &Txid) -> Option<(Shown<'a>, usize)> {
        if self.hides() {
            return None;
        }
        let (at, position) = self.chain.find(txid)?;
        if self.leaves_out(at, position) {
            return None;
        }
        Some((self.show(at), position)).filter(|(block, _)| block.stored.height <= self.height())
    }

    /// How many of a block's transactions it shows.
    pub fn shown_of(&self, stored: &Stored) -> usize {
        let all = stored.block.txdata.len();
        if self.view.lie == Lie::TransactionLeftOut && all > 1 { all - 1 } else { all }
    }

    fn leaves_out(&self, at: usize, position: usize) -> bool {
        position >= self.shown_of(self.chain.stored(at))
    }

    /// The unspent coins that the blocks which it does not know yet have spent.
    fn unspent_of_late(&self) -> BTreeMap<OutPoint, &'a Coin> {
        let mut coins = BTreeMap::new();
        for height in self.height().saturating_add(1)..=self.chain.height() {
            let Some(at) = self.chain.active_at(height) else { break };
            let stored = self.chain.stored(at);
            for (transaction, spent) in stored.block.txdata.iter().skip(1).zip(&stored.undo) {
                let known = transaction.input.iter().zip(spent).filter(|(_, coin)| coin.height <= self.height());
                coins.extend(known.map(|(input, coin)| (input.previous_output, coin)));
            }
        }
        coins
    }

    /// Unspent at its tip.
    pub fn coin(&self, outpoint: &OutPoint) -> Option<&'a Coin> {
        let coin = self.chain.coin(outpoint).filter(|coin| coin.height <= self.height());
        let left_out = || self.chain.find(&outpoint.txid).is_some_and(|(at, position)| self.leaves_out(at, position));
        coin.or_else(|| self.unspent_of_late().remove(outpoint)).filter(|_| !self.hides() && !left_out())
    }

    pub fn coins(&self) -> impl Iterator<Item = (OutPoint, &'a Coin)> {
        let height = self.height();
        let now = self.chain.coins().iter().map(|(outpoint, coin)| (*outpoint, coin));
        let mut all: Vec<_> = now.filter(|(_, coin)| coin.height <= height).collect();
        if self.view.lag > 0 {
            all.extend(self.unspent_of_late());
            all.sort_by_key(|(outpoint, _)| *outpoint);
        }
        all.into_iter()
    }
}
