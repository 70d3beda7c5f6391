//! Who pays a job and what it pays, as addresses that keys give and not as rows claim.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use domain::{ChainKind, GroupId, Purpose, RawAmount};
use signer::SignerChain;
use store::entry::{ChainRow, ListingId};
use store::outbound::{JobRow, LaneId, LaneRow};
use tx::{Address, Family, Payment};

use super::OutboundError;
use crate::deposit::Coins;
use crate::wallet::Pinned;

/// One chain as payments see it.
pub(super) struct Ground {
    pub row: ChainRow,
    pub family: Family,
    pub network: SignerChain,
    coins: Coins,
    pub pinned: Arc<Pinned>,
    /// Bitcoin: scripts of users' addresses, with their groups and numbers. Each was derived from its key here, so it stays true.
    pub numbers: Mutex<HashMap<Vec<u8>, (GroupId, u64)>>,
}

impl Ground {
    pub fn of(row: ChainRow, pinned: Arc<Pinned>) -> Result<Self, OutboundError> {
        let unknown = || OutboundError::Network { chain: row.name.to_string(), network: row.network.clone() };
        let family = Family::of_chain(row.kind, &row.network).ok_or_else(unknown)?;
        let network = match family {
            Family::Evm => SignerChain::Evm { chain_id: row.network.parse().map_err(|_| unknown())? },
            Family::Tron => SignerChain::Tron,
            Family::Bitcoin(network) => SignerChain::Bitcoin(network),
        };
        let coins =
            Coins::of(&row, family).map_err(|source| OutboundError::Coins { chain: row.name.to_string(), source })?;
        Ok(Self { row, family, network, coins, pinned, numbers: Mutex::default() })
    }

    pub fn has_nonces(&self) -> bool {
        self.row.kind == ChainKind::Evm
    }

    /// The address that the lane's key gives. Why it may not send: its row says another one. `None`: this worker does not know its group.
    pub fn address(&self, lane: &LaneRow) -> Option<Result<Address, String>> {
        let group = self.pinned.group(&lane.group)?;
        let derived = match u64::try_from(lane.index) {
            Ok(number) => group.group.address(number).map_err(|error| error.to_string()),
            Err(_) => Err("its row has no good index".to_owned()),
        };
        Some(derived.and_then(|derived| {
            if derived.to_string() == lane.address {
                Ok(derived)
            } else {
                Err(format!("its row says {}, and its key gives {derived}", lane.address))
            }
        }))
    }

    /// The lanes' addresses, and those lanes that have none and are not stopped for it.
    pub fn addresses(&self, lanes: &[LaneRow]) -> (HashMap<LaneId, Address>, Vec<(LaneId, String)>) {
        let (mut good, mut bad) = (HashMap::new(), Vec::new());
        for lane in lanes {
            match self.address(lane) {
                Some(Ok(address)) => drop(good.insert(lane.id, address)),
                Some(Err(why)) if lane.stopped.is_none() => bad.push((lane.id, why)),
                Some(Err(_)) => {}
                // Somebody has applied a newer treasury file than this worker has: it waits for that, or for another worker.
                None => {
                    tracing::warn!(lane = lane.address, group = %lane.group, "the treasury file has no such wallet group")
                }
            }
        }
        (good, bad)
    }

    /// What a job pays. Why it pays nothing: its row makes no sense here.
    pub fn payment(&self, job: &JobRow) -> Result<Payment, String> {
        self.payment_to(&job.to, job.listing, job.amount)
    }

    /// So much of a listed coin to an address. Why it makes no sense here.
    pub fn payment_to(&self, to: &str, listing: ListingId, amount: RawAmount) -> Result<Payment, String> {
        let to = self.family.parse_address(to).map_err(|error| format!("{to}: {error}"))?;
        let coin = self.coins.coin(listing).ok_or_else(|| "its coin is not listed any more".to_owned())?;
        Ok(Payment { to, coin, amount })
    }

    /// Whether a group's addresses are users'.
    pub fn is_users(&self, id: &GroupId) -> bool {
        self.group(id).is_some_and(|group| group.purpose == Purpose::Deposit)
    }

    pub fn group(&self, id: &GroupId) -> Option<&tx::derivation::Group> {
        self.pinned.group(id).map(|found| &found.group)
    }

    /// The house's wallets on this chain.
    pub fn house(&self) -> impl Iterator<Item = (&store::wallet::Place, &Address)> {
        let here = self.pinned.wallets().filter(|(on, ..)| **on == self.row.name);
        here.map(|(_, place, wallet)| (place, &wallet.address))
    }

    /// The hash that a payload will have once it is signed, where that is known.
    pub fn hash_of(&self, payload: &[u8]) -> Option<tx::TxHash> {
        match self.network {
            SignerChain::Bitcoin(network) => tx::bitcoin::transaction::decode_unsigned(payload, network).ok()?.hash,
            SignerChain::Evm { .. } | SignerChain::Tron => None,
        }
    }

    /// The most that a payload can cost.
    pub fn most_fee(&self, payload: &[u8]) -> Option<RawAmount> {
        match self.network {
            SignerChain::Evm { chain_id } => tx::evm::decode_unsigned(payload, chain_id).ok()?.most_fee,
            SignerChain::Tron => tx::tron::transaction::decode_unsigned(payload).ok()?.most_fee,
            SignerChain::Bitcoin(network) => tx::bitcoin::transaction::decode_unsigned(payload, network).ok()?.most_fee,
        }
    }
}
