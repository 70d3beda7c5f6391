//! The watched set: ten million addresses in less than 400 MB, one set per chain.
//!
//! | module | holds |
//! |---|---|
//! | `key` | [`WatchKey`]: what an address or a script is watched by |
//! | `hash` | the seeded hash: nobody outside can choose keys that crowd together |
//! | `table` | the filter, and the exact keys behind it |
//! | `measure` | strangers by the million, and how often the filter errs |
//!
//! **A hit is exact.** The filter only decides whether the key itself is compared. **A number never changes**, and
//! numbers are dense: the n-th new key has the number n. **Nothing is ever taken out**: an address that was given to
//! somebody may be paid for ever.

mod hash;
mod key;
mod measure;
mod table;

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use domain::random::Random;

pub use key::WatchKey;
pub use measure::{false_positives, fill_with_strangers};
pub use table::Full;

use table::Table;

/// Keys that are looked up under one lock. A writer waits for no more than these.
const BLOCK: usize = 64;

/// The watched set of one chain. Scanners read it while others add to it: share it in an `Arc` and use [`Watched::add`].
///
/// The lock is held for one lookup, one block of a batch, or one addition, whose longest is that one thousandth of the
/// filter is made twice as large: below a millisecond at ten million. No guard leaves this module, so none
/// can be held across an await.
#[derive(Debug)]
pub struct Watched {
    table: RwLock<Table>,
}

/// The seed is the same each time: for tests and tools. What scans a real chain is made by [`Watched::new`].
impl Default for Watched {
    fn default() -> Self {
        Self::new(&mut Random::from_seed(0))
    }
}

impl Watched {
    pub fn new(random: &mut Random) -> Self {
        Self::with_capacity(0, random)
    }

    /// A hint: with it the filter need not grow while so many keys are loaded. More keys are no error.
    pub fn with_capacity(keys: u32, random: &mut Random) -> Self {
        Self { table: RwLock::new(Table::with_capacity(keys, hash::Secret::new(random))) }
    }

    /// Its number; the same when it is watched already.
    pub fn add(&self, key: WatchKey) -> Result<u32, Full> {
        // Most of what is added again was there before, and readers need not wait for that.
        if let Some(number) = self.find(&key) {
            return Ok(number);
        }
        self.table.write().unwrap_or_else(PoisonError::into_inner).insert(key)
    }

    /// Like [`Watched::add`] for who has the set to himself: no lock is taken.
    ///
    /// # Panics
    /// When the set is [`Full`], with 4,294,967,295 keys.
    pub fn insert(&mut self, key: WatchKey) -> u32 {
        let table = self.table.get_mut().unwrap_or_else(PoisonError::into_inner);
        table.insert(key).expect("the keys alone would take 90 GB")
    }

    pub fn find(&self, key: &WatchKey) -> Option<u32> {
        self.read().find(key)
    }

    /// Appends the position and the number of each key that is watched, in the order of `keys`.
    ///
    /// For the thousands of outputs of a block: the memory that they need is asked for together, so that the waits
    /// overlap. Additions may come between the blocks of a long batch.
    pub fn find_all(&self, keys: &[WatchKey], hits: &mut Vec<(usize, u32)>) {
        for (at, block) in keys.chunks(BLOCK).enumerate() {
            self.read().find_block(block, |within, number| hits.push((at * BLOCK + within, number)));
        }
    }

    /// The key that got this number.
    pub fn key_of(&self, number: u32) -> Option<WatchKey> {
        self.read().key_of(number)
    }

    /// Whether the filter lets it through to the comparison of keys. For measuring: [`Watched::find`] does both.
    pub fn passes_filter(&self, key: &WatchKey) -> bool {
        self.read().passes_filter(key)
    }

    pub fn len(&self) -> usize {
        self.read().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory that it has allocated, used or not.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.read().bytes()
    }

    /// A thread that panicked while it held the lock has left the table whole: see [`Table::insert`].
    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
