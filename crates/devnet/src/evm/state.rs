//! Accounts, storage and code, with one undo journal per block.
//!
//! The journals serve two purposes: a reorganisation goes back along them, and a question about an older height is
//! answered by looking into them before looking at the present.

use std::collections::BTreeMap;
use std::convert::Infallible;

use alloy_primitives::{Address, B256, KECCAK256_EMPTY, U256, keccak256};
use revm::DatabaseRef;
use revm::state::{AccountInfo, Bytecode, EvmState};

use super::block::Block;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Account {
    pub nonce: u64,
    pub balance: U256,
    pub code: B256,
}

impl Account {
    const EMPTY: Self = Self { nonce: 0, balance: U256::ZERO, code: KECCAK256_EMPTY };

    pub(super) fn has_code(&self) -> bool {
        self.code != KECCAK256_EMPTY
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct State {
    accounts: BTreeMap<Address, Account>,
    storage: BTreeMap<(Address, U256), U256>,
    /// By its hash, so that it needs no undoing.
    codes: BTreeMap<B256, Bytecode>,
}

/// What a block changed, as it was before.
#[derive(Clone, Debug, Default)]
pub(super) struct Undo {
    accounts: BTreeMap<Address, Option<Account>>,
    storage: BTreeMap<(Address, U256), U256>,
}

impl State {
    pub(super) fn account(&self, address: Address) -> Account {
        self.accounts.get(&address).copied().unwrap_or(Account::EMPTY)
    }

    /// Puts an account in place, outside of any transaction. Only the genesis does so.
    pub(super) fn endow(&mut self, address: Address, balance: U256) {
        self.accounts.entry(address).or_insert(Account::EMPTY).balance = balance;
    }

    /// The account with its code and storage lives at another address from now on. Only the genesis does so.
    pub(super) fn relocate(&mut self, from: Address, to: Address) {
        if let Some(account) = self.accounts.remove(&from) {
            self.accounts.insert(to, account);
        }
        let slots: Vec<_> = self.storage.range((from, U256::ZERO)..=(from, U256::MAX)).map(|(k, v)| (*k, *v)).collect();
        for (key, value) in slots {
            self.storage.remove(&key);
            self.storage.insert((to, key.1), value);
        }
    }

    pub(super) fn forget(&mut self, address: Address) {
        self.accounts.remove(&address);
    }

    /// Takes over what a transaction changed, and notes in `undo` what was there before the block.
    pub(super) fn apply(&mut self, changes: EvmState, undo: &mut Undo) {
        for (address, account) in changes {
            if !account.is_touched() {
                continue;
            }
            let before = self.accounts.get(&address).copied();
            // Since Cancun only what the same transaction created can destroy itself, so it had no storage before.
            let gone = account.is_selfdestructed() || account.info.is_empty();
            let after = (!gone).then_some(Account {
                nonce: account.info.nonce,
                balance: account.info.balance,
                code: account.info.code_hash,
            });
            if before != after {
                undo.accounts.entry(address).or_insert(before);
                match after {
                    Some(after) => self.accounts.insert(address, after),
                    None => self.accounts.remove(&address),
                };
            }
            if gone {
                continue;
            }
            if let Some(code) = account.info.code.filter(|_| account.info.code_hash != KECCAK256_EMPTY) {
                self.codes.entry(account.info.code_hash).or_insert(code);
            }
            for (slot, value) in account.storage.iter().filter(|(_, value)| value.is_changed()) {
                let key = (address, *slot);
                let before = self.set(key, value.present_value);
                undo.storage.entry(key).or_insert(before);
            }
        }
    }

    /// The slot's old value.
    fn set(&mut self, key: (Address, U256), value: U256) -> U256 {
        let before = match value.is_zero() {
            true => self.storage.remove(&key),
            false => self.storage.insert(key, value),
        };
        before.unwrap_or_default()
    }

    pub(super) fn undo(&mut self, undo: Undo) {
        for (address, before) in undo.accounts {
            match before {
                Some(account) => self.accounts.insert(address, account),
                None => self.accounts.remove(&address),
            };
        }
        for (key, before) in undo.storage {
            self.set(key, before);
        }
    }

    /// The `stateRoot` of a block. It commits to the whole history of changes, but it is not Ethereum's trie: that
    /// would cost a walk over all accounts in each block, and nobody asks this chain for state proofs.
    pub(super) fn commitment(&self, parent: B256, undo: &Undo) -> B256 {
        if undo.accounts.is_empty() && undo.storage.is_empty() {
            return parent;
        }
        let mut bytes = parent.to_vec();
        for address in undo.accounts.keys() {
            let account = self.account(*address);
            bytes.extend_from_slice(address.as_slice());
            bytes.extend_from_slice(&account.nonce.to_be_bytes());
            bytes.extend_from_slice(&account.balance.to_be_bytes::<32>());
            bytes.extend_from_slice(account.code.as_slice());
        }
        for (address, slot) in undo.storage.keys() {
            let value = self.storage.get(&(*address, *slot)).copied().unwrap_or_default();
            bytes.extend_from_slice(address.as_slice());
            bytes.extend_from_slice(&slot.to_be_bytes::<32>());
            bytes.extend_from_slice(&value.to_be_bytes::<32>());
        }
        keccak256(bytes)
    }
}

/// The state as it was after one of the recent blocks.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    pub state: &'a State,
    /// The journals of all blocks after that one, oldest first.
    pub later: &'a [Undo],
    /// For the opcode BLOCKHASH.
    pub blocks: &'a [Block],
}

impl At<'_> {
    pub(super) fn account(&self, address: Address) -> Account {
        let noted = self.later.iter().find_map(|undo| undo.accounts.get(&address));
        match noted {
            Some(before) => before.unwrap_or(Account::EMPTY),
            None => self.state.account(address),
        }
    }

    pub(super) fn slot(&self, address: Address, slot: U256) -> U256 {
        let key = (address, slot);
        let noted = self.later.iter().find_map(|undo| undo.storage.get(&key));
        noted.or_else(|| self.state.storage.get(&key)).copied().unwrap_or_default()
    }

    pub(super) fn code(&self, hash: B256) -> Bytecode {
        self.state.codes.get(&hash).cloned().unwrap_or_default()
    }
}

impl DatabaseRef for At<'_> {
    type Error = Infallible;

    fn basic_ref(&self, address: Address) -> Result<Option<AccountInfo>, Infallible> {
        let account = self.account(address);
        if account == Account::EMPTY {
            return Ok(None);
        }
        Ok(Some(AccountInfo {
            balance: account.balance,
            nonce: account.nonce,
            code_hash: account.code,
            code: Some(self.code(account.code)),
            ..AccountInfo::default()
        }))
    }

    fn code_by_hash_ref(&self, hash: B256) -> Result<Bytecode, Infallible> {
        Ok(self.code(hash))
    }

    fn storage_ref(&self, address: Address, slot: U256) -> Result<U256, Infallible> {
        Ok(self.slot(address, slot))
    }

    fn block_hash_ref(&self, number: u64) -> Result<B256, Infallible> {
        let block = usize::try_from(number).ok().and_then(|number| self.blocks.get(number));
        Ok(block.map(|block| block.hash).unwrap_or_default())
    }
}
