//! Which transactions of a block can concern a wallet, decided in memory.
//!
//! Of the thousands of transactions in a block a few are ours. To ask the database about each script and each input
//! costs more than all the rest. So a follower keeps a filter of the scripts of all addresses, of all transactions that
//! are stored, and of all that these spend from: what is not in it concerns nobody here.
//!
//! **The filter never says no wrongly.** Rows are only ever added to these tables under the lock of changes, and get
//! larger ids. Whoever holds the lock reads what has come since the last time, whichever process wrote it, before the
//! filter is asked. What is rolled back was never read. A row that is not what it was when it was last read (another
//! database was put in place of this one) makes the filter be built anew.
//!
//! **Its size is bounded.** What does not fit makes it say yes more often; then the database is asked as before.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Mutex;

use super::types::{Hash, NewTx};
use crate::db::{Db, Tx};
use crate::error::StoreError;

statements! {
    READ_WATCHED_WALLETS = "SELECT id FROM wallets ORDER BY id";
    READ_WATCHED_ADDRESSES = "SELECT id, script_pub_key FROM addresses
        WHERE wallet_id = $1 AND id >= $2 ORDER BY id LIMIT 10000";
    READ_WATCHED_TRANSACTIONS = "SELECT id, tx_hash FROM transactions
        WHERE wallet_id = $1 AND id >= $2 ORDER BY id LIMIT 10000";
    READ_WATCHED_INPUTS = "SELECT prev_hash FROM tx_inputs WHERE wallet_id = $1 AND tx_id > $2 AND tx_id <= $3";
}

/// A page of the statements above.
const PAGE: usize = 10_000;

/// Bits for each thing that is watched; one in two hundred others is then taken for one.
const BITS_EACH: u64 = 12;
const PROBES: u64 = 6;
/// From 128 KiB to 64 MiB: forty million things.
const LEAST_BITS: u64 = 1 << 20;
const MOST_BITS: u64 = 1 << 29;

/// Part of a [`Db`], shared by its clones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    wanted: Arc<AtomicBool>,
    filter: Arc<Mutex<Filter>>,
}

/// The last row that was read: its id, and what it said.
type Last = (i64, Vec<u8>);

#[derive(Debug, Default)]
struct Filter {
    bits: Vec<u64>,
    count: u64,
    /// By wallet: of its addresses, and of its transactions.
    addresses: BTreeMap<i64, Last>,
    transactions: BTreeMap<i64, Last>,
}

impl Db {
    /// From now on blocks are held against a filter in memory before the database is asked. To build it takes one
    /// reading of all addresses and transactions: it pays for whoever reads many blocks.
    pub fn watch_in_memory(&self) {
        self.watch().wanted.store(true, Ordering::Relaxed);
    }
}

impl Watch {
    /// Those of these that may concern a wallet. To be called under the lock of changes, before anything is written.
    pub async fn sift<'t>(&self, tx: &mut Tx, shown: &'t [NewTx]) -> Result<Vec<&'t NewTx>, StoreError> {
        if !self.wanted.load(Ordering::Relaxed) {
            return Ok(shown.iter().collect());
        }
        let mut filter = self.filter.lock().await;
        if let Err(error) = filter.catch_up(tx).await {
            // What was read of a page must not pass for all of it.
            *filter = Filter::default();
            return Err(error);
        }
        Ok(filter.sift(shown))
    }
}

impl Filter {
    async fn catch_up(&mut self, tx: &mut Tx) -> Result<(), StoreError> {
        while !self.read_new(tx).await? {}
        Ok(())
    }

    /// Reads what has come since. False: it has to be done once more, with a filter that is empty and perhaps larger.
    async fn read_new(&mut self, tx: &mut Tx) -> Result<bool, StoreError> {
        if self.bits.is_empty() {
            self.bits = vec![0; usize::try_from(LEAST_BITS / 64).unwrap_or(1)];
        }
        let wallets = fetch_all!(tx, READ_WATCHED_WALLETS => (i64,))?;
        for (wallet,) in wallets {
            let known = self.addresses.get(&wallet).cloned();
            let (mut from, mut expected) = known.map_or((i64::MIN, None), |last| (last.0, Some(last)));
            loop {
                let rows = fetch_all!(tx, READ_WATCHED_ADDRESSES => (i64, Vec<u8>), wallet, from)?;
                let Some(new) = after(&rows, expected.as_ref()) else { return Ok(self.start_anew()) };
                new.iter().for_each(|(_, script)| self.insert(of_script(script)));
                let Some(last) = rows.last().cloned() else { break };
                (from, expected) = (last.0, Some(last.clone()));
                self.addresses.insert(wallet, last);
                if rows.len() < PAGE {
                    break;
                }
            }
            let known = self.transactions.get(&wallet).cloned();
            let (mut from, mut expected) = known.map_or((i64::MIN, None), |last| (last.0, Some(last)));
            loop {
                let rows = fetch_all!(tx, READ_WATCHED_TRANSACTIONS => (i64, Vec<u8>), wallet, from)?;
                let Some(new) = after(&rows, expected.as_ref()) else { return Ok(self.start_anew()) };
                let Some(last) = rows.last().cloned() else { break };
                if !new.is_empty() {
                    new.iter().for_each(|(_, hash)| self.insert(of_hash(hash)));
                    let before = expected.as_ref().map_or(i64::MIN, |last| last.0);
                    let inputs = fetch_all!(tx, READ_WATCHED_INPUTS => (Vec<u8>,), wallet, before, last.0)?;
                    inputs.iter().for_each(|(hash,)| self.insert(of_hash(hash)));
                }
                (from, expected) = (last.0, Some(last.clone()));
                self.transactions.insert(wallet, last);
                if rows.len() < PAGE {
                    break;
                }
            }
        }
        let bits = self.bit_count();
        if self.count * BITS_EACH > bits && bits < MOST_BITS {
            let larger = (self.count * BITS_EACH * 2).next_power_of_two().min(MOST_BITS);
            *self = Self { bits: vec![0; usize::try_from(larger / 64).unwrap_or(1)], ..Self::default() };
            return Ok(false);
        }
        Ok(true)
    }

    fn start_anew(&mut self) -> bool {
        *self = Self { bits: vec![0; self.bits.len()], ..Self::default() };
        false
    }

    fn bit_count(&self) -> u64 {
        u64::try_from(self.bits.len()).unwrap_or(0).saturating_mul(64)
    }

    fn places(&self, thing: u64) -> impl Iterator<Item = (usize, u64)> {
        let mask = self.bit_count().saturating_sub(1);
        let step = (thing >> 29) | 1;
        (0..PROBES).map(move |probe| {
            let bit = thing.wrapping_add(step.wrapping_mul(probe)) & mask;
            (usize::try_from(bit / 64).unwrap_or(0), 1 << (bit % 64))
        })
    }

    fn insert(&mut self, thing: u64) {
        let places: Vec<(usize, u64)> = self.places(thing).collect();
        let mut is_new = false;
        for (word, bit) in places {
            is_new |= self.bits[word] & bit == 0;
            self.bits[word] |= bit;
        }
        self.count += u64::from(is_new);
    }

    fn has(&self, thing: u64) -> bool {
        self.places(thing).all(|(word, bit)| self.bits[word] & bit != 0)
    }

    /// With what passes, whatever spends from it or from the same transactions, or is spent by it, passes too.
    fn sift<'t>(&self, shown: &'t [NewTx]) -> Vec<&'t NewTx> {
        let mut here: HashSet<Hash> = HashSet::new();
        let mut passed = Vec::new();
        for one in shown {
            let is_met = |hash: &Hash| here.contains(hash) || self.has(of_hash(&hash.0));
            let passes = is_met(&one.hash)
                || one.inputs.iter().any(|input| is_met(&input.hash))
                || one.outputs.iter().any(|output| self.has(of_script(&output.script)));
            if passes {
                here.insert(one.hash);
                here.extend(one.inputs.iter().map(|input| input.hash));
                passed.push(one);
            }
        }
        passed
    }
}

/// The rows after the one that was read last, which must be there as it was. `None`: it is not.
fn after<'r>(rows: &'r [Last], expected: Option<&Last>) -> Option<&'r [Last]> {
    match expected {
        None => Some(rows),
        Some(expected) => rows.split_first().filter(|(first, _)| *first == expected).map(|(_, rest)| rest),
    }
}

/// A hash is as good as random already.
fn of_hash(hash: &[u8]) -> u64 {
    hash.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn of_script(script: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(script);
    hasher.finish()
}
