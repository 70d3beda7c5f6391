//! Who owns what, and how to take back what a block or the pool changed.

use std::collections::{BTreeMap, VecDeque};

use alloy_primitives::U256;

/// The 20 bytes of an account, without the 0x41 before them.
pub type Owner = [u8; 20];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    pub balance: i64,
    pub created_ms: i64,
    pub last_operation_ms: i64,
    /// Bytes of the free bandwidth that were used, as of `free_slot`.
    pub free_used: i64,
    pub free_slot: i64,
    pub is_contract: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Slot {
    Account(Owner),
    Holding(Owner),
    Allowance(Owner, Owner),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    Account(Account),
    Amount(U256),
}

/// What the changed cells held before.
pub type Journal = BTreeMap<Slot, Option<Cell>>;

#[derive(Clone, Debug, Default)]
pub struct State {
    cells: BTreeMap<Slot, Cell>,
    journal: Journal,
}

impl State {
    pub fn get(&self, slot: Slot) -> Option<Cell> {
        self.cells.get(&slot).copied()
    }

    pub fn set(&mut self, slot: Slot, cell: Option<Cell>) {
        let before = match cell {
            Some(cell) => self.cells.insert(slot, cell),
            None => self.cells.remove(&slot),
        };
        self.journal.entry(slot).or_insert(before);
    }

    /// Ends a stretch of changes: they can be undone with what this returns.
    pub fn checkpoint(&mut self) -> Journal {
        std::mem::take(&mut self.journal)
    }

    /// Takes back a stretch. Stretches are undone newest first.
    pub fn undo(&mut self, journal: &Journal) {
        for (slot, before) in journal {
            match before {
                Some(cell) => self.cells.insert(*slot, *cell),
                None => self.cells.remove(slot),
            };
        }
    }

    /// Runs `change`; what it changed is taken back when it fails.
    pub fn attempt<T, E>(&mut self, change: impl FnOnce(&mut Self) -> Result<T, E>) -> Result<T, E> {
        let outer = self.checkpoint();
        let result = change(self);
        let inner = std::mem::replace(&mut self.journal, outer);
        match &result {
            Ok(_) => {
                for (slot, before) in inner {
                    self.journal.entry(slot).or_insert(before);
                }
            }
            Err(_) => self.undo(&inner),
        }
        result
    }

    pub fn account(&self, owner: &Owner) -> Option<Account> {
        account_in(self.get(Slot::Account(*owner)))
    }

    pub fn set_account(&mut self, owner: &Owner, account: Account) {
        self.set(Slot::Account(*owner), Some(Cell::Account(account)));
    }

    pub fn amount(&self, slot: Slot) -> U256 {
        amount_in(self.get(slot))
    }

    pub fn set_amount(&mut self, slot: Slot, amount: U256) {
        self.set(slot, (!amount.is_zero()).then_some(Cell::Amount(amount)));
    }
}

pub fn account_in(cell: Option<Cell>) -> Option<Account> {
    match cell {
        Some(Cell::Account(account)) => Some(account),
        Some(Cell::Amount(_)) | None => None,
    }
}

pub fn amount_in(cell: Option<Cell>) -> U256 {
    match cell {
        Some(Cell::Amount(amount)) => amount,
        Some(Cell::Account(_)) | None => U256::ZERO,
    }
}

/// The journals of the newest blocks, oldest first.
#[derive(Clone, Debug, Default)]
pub struct History {
    journals: VecDeque<Journal>,
    kept: usize,
}

impl History {
    pub fn keeping(blocks: u64) -> Self {
        Self { journals: VecDeque::new(), kept: usize::try_from(blocks).unwrap_or(usize::MAX) }
    }

    pub fn push(&mut self, journal: Journal) {
        self.journals.push_back(journal);
        while self.journals.len() > self.kept {
            self.journals.pop_front();
        }
    }

    pub fn pop(&mut self) -> Option<Journal> {
        self.journals.pop_back()
    }

    /// What a cell held `ago` blocks before the newest; `pending` is what the pool changed on top of that.
    pub fn read(&self, state: &State, pending: &Journal, ago: u64, slot: Slot) -> Option<Cell> {
        let ago = usize::try_from(ago).unwrap_or(usize::MAX).min(self.journals.len());
        let first = self.journals.len() - ago;
        let later = self.journals.range(first..).chain(std::iter::once(pending));
        later.filter_map(|journal| journal.get(&slot)).next().copied().unwrap_or_else(|| state.get(slot))
    }
}
