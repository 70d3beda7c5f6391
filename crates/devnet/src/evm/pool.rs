//! Transactions that wait for a block.

use std::collections::BTreeMap;
use std::sync::Arc;

use alloy_primitives::{Address, B256, U256};

use super::state::State;
use super::transaction::Received;

/// A pool of more says that it is full.
const LARGEST: usize = 65_536;
/// A replacement pays so many percent more, in both its fees.
const BUMP_PERCENT: u128 = 10;

#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub sent: Arc<Received>,
    /// The order in which they came.
    pub arrival: u64,
    /// No block below this height may hold it.
    pub not_before: u64,
    /// The faucet's: first in its block, whatever it pays.
    pub first: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Pool {
    senders: BTreeMap<Address, BTreeMap<u64, Waiting>>,
    places: BTreeMap<B256, (Address, u64)>,
    arrivals: u64,
}

impl Pool {
    pub(super) fn get(&self, hash: B256) -> Option<&Arc<Received>> {
        let (sender, nonce) = self.places.get(&hash)?;
        self.at(*sender, *nonce).map(|waiting| &waiting.sent)
    }

    pub(super) fn at(&self, sender: Address, nonce: u64) -> Option<&Waiting> {
        self.senders.get(&sender)?.get(&nonce)
    }

    pub(super) fn senders(&self) -> impl Iterator<Item = &Address> {
        self.senders.keys()
    }

    /// The first nonce, from `next` on, that nothing here uses.
    pub(super) fn next_nonce(&self, sender: Address, next: u64) -> u64 {
        let waiting = self.senders.get(&sender).into_iter().flat_map(|nonces| nonces.range(next..));
        let mut free = next;
        for (nonce, _) in waiting {
            if *nonce != free {
                break;
            }
            free = free.saturating_add(1);
        }
        free
    }

    /// The rules that need the chain and the pool, in geth's order and words.
    pub(super) fn check(&self, sent: &Received, state: &State) -> Result<(), String> {
        if self.places.contains_key(&sent.hash) {
            return Err("already known".to_owned());
        }
        let account = state.account(sent.from);
        if account.has_code() {
            return Err(format!("sender not an eoa: address {}, codehash: {}", sent.from, account.code));
        }
        if sent.nonce() < account.nonce {
            return Err(format!("nonce too low: next nonce {}, tx nonce {}", account.nonce, sent.nonce()));
        }
        let cost = sent.cost();
        if account.balance < cost {
            return Err(format!(
                "insufficient funds for gas * price + value: balance {}, tx cost {cost}, overshot {}",
                account.balance,
                cost - account.balance
            ));
        }
        let queued = self.queued_cost(sent.from, account.nonce, sent.nonce());
        let wanted = queued.saturating_add(cost);
        if account.balance < wanted {
            return Err(format!(
                "insufficient funds for gas * price + value: balance {}, queued cost {queued}, tx cost {cost}, \
                 overshot {}",
                account.balance,
                wanted - account.balance
            ));
        }
        match self.at(sent.from, sent.nonce()) {
            Some(old) if !outbids(sent, &old.sent) => Err("replacement transaction underpriced".to_owned()),
            None if self.places.len() >= LARGEST => Err("txpool is full".to_owned()),
            Some(_) | None => Ok(()),
        }
    }

    /// What the sender's other executable transactions may cost together.
    fn queued_cost(&self, sender: Address, next: u64, but: u64) -> U256 {
        let end = self.next_nonce(sender, next);
        let waiting = self.senders.get(&sender).into_iter().flat_map(|nonces| nonces.range(next..end));
        let others = waiting.filter(|(nonce, _)| **nonce != but);
        others.fold(U256::ZERO, |sum, (_, waiting)| sum.saturating_add(waiting.sent.cost()))
    }

    pub(super) fn insert(&mut self, sent: Arc<Received>, not_before: u64, first: bool) {
        let (sender, nonce, hash) = (sent.from, sent.nonce(), sent.hash);
        self.arrivals += 1;
        let waiting = Waiting { sent, arrival: self.arrivals, not_before, first };
        if let Some(old) = self.senders.entry(sender).or_default().insert(nonce, waiting) {
            self.places.remove(&old.sent.hash);
        }
        self.places.insert(hash, (sender, nonce));
    }

    pub(super) fn remove(&mut self, sender: Address, nonce: u64) {
        let Some(nonces) = self.senders.get_mut(&sender) else { return };
        if let Some(old) = nonces.remove(&nonce) {
            self.places.remove(&old.sent.hash);
        }
        if nonces.is_empty() {
            self.senders.remove(&sender);
        }
    }

    /// Drops what the state has made impossible.
    pub(super) fn prune(&mut self, state: &State) {
        let mut gone = Vec::new();
        for (sender, nonces) in &self.senders {
            let account = state.account(*sender);
            let impossible = |sent: &Received| sent.nonce() < account.nonce || sent.cost() > account.balance;
            gone.extend(nonces.values().filter(|w| impossible(&w.sent)).map(|w| (*sender, w.sent.nonce())));
        }
        for (sender, nonce) in gone {
            self.remove(sender, nonce);
        }
    }
}

/// Both fees are higher, by a tenth at least.
fn outbids(new: &Received, old: &Received) -> bool {
    let beats = |new: u128, old: u128| {
        let bar = old.saturating_mul(100 + BUMP_PERCENT) / 100;
        new > old && new >= bar
    };
    beats(new.fee_cap(), old.fee_cap()) && beats(new.tip_cap(), old.tip_cap())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;
    use crate::evm::genesis::{TETHER, gift};
    use crate::evm::{EvmDevnet, FAUCET, Settings};

    #[test]
    fn an_account_with_code_sends_nothing() {
        let settings = Settings::default();
        let mut state = EvmDevnet::new(settings.clone()).chain.state().clone();
        let to = Address::from(Key::numbered(0).account());
        let sent = gift(&settings, 0, to, None, U256::from(1), 1).expect("a good transaction");
        assert_eq!(Pool::default().check(&sent, &state), Ok(()));
        let balance = state.account(FAUCET).balance;
        state.relocate(TETHER, FAUCET);
        state.endow(FAUCET, balance);
        let refused = Pool::default().check(&sent, &state);
        assert!(refused.is_err_and(|reason| reason.starts_with("sender not an eoa")));
    }
}
