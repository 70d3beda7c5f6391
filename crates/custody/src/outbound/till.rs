//! Bitcoin: the coins that a lane pays with, and its transactions as their payloads have them.
//!
//! A lane is a wallet of the house. It pays with the coins of all wallets of its group, which lie in the Bitcoin wallet of the group's
//! name, and takes its change back to its own address, if one of the coins was there, or to where the first of them was. A lane of users'
//! addresses brings their coins home, and takes nothing back (`bundle`).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::PoisonError;

use domain::GroupId;
use ruint::aliases::U256;
use signer::{BitcoinTerms, SignerChain};
use store::outbound::{JobRow, LaneId, LaneRow, OpenSlot};
use store::utxo::{Coin, OutPoint, WalletId};
use store::wallet::Place;
use tx::bitcoin::transaction::{Spending, read_unsigned};
use tx::{Address, Payment};

use super::OutboundError;
use super::purse::Ground;
use super::send::SendWorker;
use crate::bitcoin::{Recipient, hash_of_tx};
use crate::wallet::owners;

/// So many scripts of users' addresses are remembered, some 10 MB.
const REMEMBERED: usize = 100_000;

/// Where a group's coins are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Till {
    pub wallet: WalletId,
    pub account: u32,
    pub network: ::bitcoin::Network,
}

/// A transaction of a slot, before it was signed.
pub(super) struct Unfolded {
    pub spending: Spending,
    /// What it pays to the slot's jobs.
    pub recipients: Vec<Recipient>,
    /// What it brings back, to wallets of its group.
    pub change: Vec<Recipient>,
}

/// A payment as an output. `None`: no output can pay it.
pub(super) fn recipient(payment: &Payment) -> Option<Recipient> {
    let script = payment.to.script_bytes()?;
    Some(Recipient { amount: satoshi(payment.amount.to_u256())?, script })
}

fn satoshi(amount: U256) -> Option<u64> {
    u64::try_from(amount).ok()
}

impl Unfolded {
    /// `None`: the payload is not that of a slot with these jobs.
    pub fn of(payload: &[u8], ground: &Ground, jobs: &[(JobRow, u32)], group: &GroupId) -> Option<Self> {
        let SignerChain::Bitcoin(network) = ground.network else { return None };
        let spending = read_unsigned(payload, network).ok()?;
        let mut wanted: BTreeMap<Recipient, usize> = BTreeMap::new();
        for (job, _) in jobs {
            *wanted.entry(recipient(&ground.payment(job).ok()?)?).or_default() += 1;
        }
        let (mut recipients, mut change) = (Vec::new(), Vec::new());
        for output in spending.meaning.payments.iter().map(recipient) {
            let output = output?;
            match wanted.get_mut(&output).filter(|left| **left > 0) {
                Some(left) => {
                    *left -= 1;
                    recipients.push(output);
                }
                None => change.push(output),
            }
        }
        // What comes back to a user's address would be credited to the user.
        let stays = |one: &Recipient| !ground.is_users(group) && ground.number_of(group, &one.script).is_some();
        let whole = wanted.values().all(|left| *left == 0) && change.iter().all(stays);
        whole.then_some(Self { spending, recipients, change })
    }

    pub fn outpoints(&self) -> Vec<OutPoint> {
        outpoints(&self.spending)
    }

    /// Satoshi.
    pub fn fee(&self) -> u64 {
        self.spending.meaning.most_fee.and_then(|fee| satoshi(fee.to_u256())).unwrap_or(0)
    }

    /// What the signer has to be told of it.
    pub fn terms(&self, ground: &Ground, lane: &LaneRow) -> Option<BitcoinTerms> {
        let inputs = input_numbers(&self.spending, ground, &lane.group)?;
        let number = |one: &Recipient| ground.number_of(&lane.group, &one.script);
        let change = self.change.iter().map(number).collect::<Option<Vec<u64>>>()?;
        Some(terms_of(&self.spending, inputs, change))
    }
}

/// The numbers of the addresses that a transaction spends from, in its group.
pub(super) fn input_numbers(spending: &Spending, ground: &Ground, group: &GroupId) -> Option<Vec<u64>> {
    spending.inputs.iter().map(|spent| ground.number_of(group, &spent.input.script)).collect()
}

pub(super) fn terms_of(spending: &Spending, inputs: Vec<u64>, change: Vec<u64>) -> BitcoinTerms {
    let sequence = spending.inputs.first().map_or(0, |spent| spent.input.sequence);
    BitcoinTerms { inputs, change, lock_time: spending.lock_time, sequence }
}

pub(super) fn outpoints(spending: &Spending) -> Vec<OutPoint> {
    let outpoint = |input: &tx::Input| OutPoint { hash: hash_of_tx(input.transaction), index: input.index };
    spending.inputs.iter().map(|spent| outpoint(&spent.input)).collect()
}

impl Ground {
    /// The number of an address in its group: of the house's wallets, and of users' as far as they were learned.
    pub fn number_of(&self, group: &GroupId, script: &[u8]) -> Option<u64> {
        if self.is_users(group) {
            let known = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
            return known.get(script).filter(|(of, _)| of == group).map(|(_, number)| *number);
        }
        self.house().find_map(|(place, address)| match place {
            Place::Derived { group: of, index } if of == group && address.script_bytes().as_deref() == Some(script) => {
                u64::try_from(*index).ok()
            }
            Place::Derived { .. } | Place::Written(_) => None,
        })
    }
}

impl SendWorker<'_> {
    /// Where the coins of these lanes' groups are. None for other chains.
    pub(super) async fn tills(&self, lanes: &[LaneRow]) -> Result<HashMap<GroupId, Till>, OutboundError> {
        let SignerChain::Bitcoin(network) = self.ground.network else { return Ok(HashMap::new()) };
        let mut tills = HashMap::new();
        for wallet in self.db.wallets().await? {
            let of = |lane: &&LaneRow| lane.group.as_str() == wallet.name;
            let group = lanes.iter().find(of).and_then(|lane| self.ground.group(&lane.group));
            if let Some(group) = group.filter(|_| crate::bitcoin::network_of(wallet.network) == network) {
                tills.insert(group.id.clone(), Till { wallet: wallet.id, account: group.account(), network });
            }
        }
        Ok(tills)
    }
}

impl SendWorker<'_> {
    /// Learns the numbers of users' addresses with these scripts, from rows that are held against their keys. A row that differs is in the log,
    /// and its address has no number: nothing is spent from it.
    pub(super) async fn learn_numbers(&self, scripts: impl Iterator<Item = &[u8]>) -> Result<(), OutboundError> {
        let SignerChain::Bitcoin(network) = self.ground.network else { return Ok(()) };
        let wanted: BTreeSet<&[u8]> = scripts.collect();
        let new: BTreeSet<&[u8]> = {
            let mut known = self.ground.numbers.lock().unwrap_or_else(PoisonError::into_inner);
            // All of these are wanted together: none of them is forgotten before the others are learned.
            if known.len().saturating_add(wanted.len()) > REMEMBERED {
                known.clear();
            }
            wanted.into_iter().filter(|script| !known.contains_key(*script)).collect()
        };
        let address = |script: &&[u8]| ::bitcoin::Address::from_script(::bitcoin::Script::from_bytes(script), network);
        let addresses: Vec<Address> = new.iter().filter_map(|one| address(one).ok()).map(Address::Bitcoin).collect();
        if addresses.is_empty() {
            return Ok(());
        }
        let (found, _) = owners(self.db, &self.ground.pinned, &addresses).await?;
        let mut known = self.ground.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        known.extend(found.into_values().filter_map(|one| {
            let number = one.user.get().cast_unsigned();
            Some((one.address.script_bytes()?, (one.group, number)))
        }));
        Ok(())
    }

    /// The same of all that is to be signed in lanes of users' addresses.
    pub(super) async fn learn_unsigned(
        &self,
        lanes: &HashMap<LaneId, &LaneRow>,
        open: &[OpenSlot],
    ) -> Result<(), OutboundError> {
        let SignerChain::Bitcoin(network) = self.ground.network else { return Ok(()) };
        let of_users = |slot: &&OpenSlot| lanes.get(&slot.lane).is_some_and(|lane| self.ground.is_users(&lane.group));
        let payloads = open.iter().filter(of_users).flat_map(OpenSlot::unsigned).map(|attempt| &attempt.payload);
        let spending = payloads.filter_map(|payload| read_unsigned(payload, network).ok());
        let scripts: Vec<Vec<u8>> = spending.flat_map(|one| one.inputs).map(|spent| spent.input.script).collect();
        self.learn_numbers(scripts.iter().map(Vec::as_slice)).await
    }
}

/// The transaction that a slot waits with: the newest that was signed.
pub(super) fn newest_of(slot: &OpenSlot, ground: &Ground, group: &GroupId) -> Option<Unfolded> {
    Unfolded::of(&slot.newest()?.payload, ground, &slot.jobs, group)
}

/// Where change goes: to the lane, or, because the signer lets it go only where coins came from, to the first of these.
pub(super) fn back_to(coins: &[Coin], own: &Address) -> Vec<u8> {
    let own = own.script_bytes().unwrap_or_default();
    match coins.first() {
        Some(first) if coins.iter().all(|coin| coin.script != own) => first.script.clone(),
        Some(_) | None => own,
    }
}
