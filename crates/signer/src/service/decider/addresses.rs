//! The signer's own addresses, as they are derived for a decision.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use tx::Address;

use crate::intent::Addresses;
use crate::keys::{Keyring, Purpose};
use crate::names::GroupId;

/// So many addresses of operation wallets are kept. Policies allow tens.
const MOST_CACHED: usize = 4_096;

/// The signer's own addresses. Those of operation wallets are asked for again and again.
pub(super) struct Cached {
    keyring: Arc<Keyring>,
    known: RefCell<BTreeMap<GroupId, BTreeMap<u64, Address>>>,
    count: RefCell<usize>,
}

impl Cached {
    pub(super) fn new(keyring: Arc<Keyring>) -> Self {
        Self { keyring, known: RefCell::default(), count: RefCell::default() }
    }
}

impl Addresses for Cached {
    fn address(&self, group: &GroupId, index: u64) -> Option<Address> {
        if self.purpose(group)? == Purpose::Deposit {
            return Addresses::address(&*self.keyring, group, index);
        }
        if let Some(address) = self.known.borrow().get(group).and_then(|known| known.get(&index)) {
            return Some(address.clone());
        }
        let address = Addresses::address(&*self.keyring, group, index)?;
        let mut count = self.count.borrow_mut();
        if *count < MOST_CACHED {
            *count += 1;
            self.known.borrow_mut().entry(group.clone()).or_default().insert(index, address.clone());
        }
        Some(address)
    }

    fn purpose(&self, group: &GroupId) -> Option<Purpose> {
        Addresses::purpose(&*self.keyring, group)
    }
}
