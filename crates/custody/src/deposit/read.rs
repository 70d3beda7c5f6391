//! What blocks mean for our books: each change of a balance of ours, with its cause.

use std::collections::HashMap;

use chain::{Output, Place as ChainPlace, Scan, Spend};
use domain::deposit::{Cause, Place, Side};
use domain::utxo::Hash;
use domain::{ChainName, RawSum, WalletRole};
use store::entry::{BlockRow, ChainRow, EntryKey, FoundEntry, ListingId, Passed};
use tx::{Address, BadAddress, Coin, Family, TxHash};

use crate::wallet::Pinned;

/// The coins of a chain that are listed.
#[derive(Clone, Debug)]
pub struct Coins {
    native: ListingId,
    tokens: HashMap<Address, ListingId>,
}

#[derive(Debug, thiserror::Error)]
pub enum BadCoins {
    #[error("the chain's own coin is not listed, and fees are paid in it")]
    NoNative,
    #[error("{contract} is no contract of this chain")]
    Contract { contract: String, source: BadAddress },
}

impl Coins {
    pub fn of(chain: &ChainRow, family: Family) -> Result<Self, BadCoins> {
        let native = chain.native().ok_or(BadCoins::NoNative)?.id;
        let mut tokens = HashMap::new();
        for listing in &chain.listings {
            if let Some(contract) = listing.form.contract() {
                let bad = |source| BadCoins::Contract { contract: contract.to_owned(), source };
                tokens.insert(family.parse_address(contract).map_err(bad)?, listing.id);
            }
        }
        Ok(Self { native, tokens })
    }

    pub fn coin(&self, listing: ListingId) -> Option<Coin> {
        if listing == self.native {
            return Some(Coin::Native);
        }
        self.tokens.iter().find(|(_, id)| **id == listing).map(|(contract, _)| Coin::Token(contract.clone()))
    }

    /// `None`: it is not listed, so it is air.
    fn listing(&self, coin: &Coin) -> Option<ListingId> {
        match coin {
            Coin::Native => Some(self.native),
            Coin::Token(contract) => self.tokens.get(contract).copied(),
        }
    }
}

/// The house's own wallets on a chain. Every other watched address is a user's.
#[derive(Clone, Debug, Default)]
pub struct House(HashMap<Address, WalletRole>);

impl House {
    pub fn of(pinned: &Pinned, chain: &ChainName) -> Self {
        let here = pinned.wallets().filter(|(on, ..)| *on == chain);
        Self(here.map(|(_, _, wallet)| (wallet.address.clone(), wallet.role)).collect())
    }

    pub fn role(&self, address: &Address) -> Option<WalletRole> {
        self.0.get(address).copied()
    }

    pub fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.0.keys()
    }

    /// Coins that only change places: a gas wallet helps a user's address, or coins come home, or move within the house. What the
    /// house pays to a user's address is a payout there, and a deposit here.
    fn moves_inside(&self, from: &Address, to: &Address) -> Option<Inside> {
        match (self.role(from), self.role(to)) {
            (Some(WalletRole::Gas), None) => Some(Inside::Topup),
            (None | Some(WalletRole::Gas | WalletRole::Hot | WalletRole::Treasury | WalletRole::Cold), Some(_)) => {
                Some(Inside::Sweep)
            }
            (None | Some(WalletRole::Hot | WalletRole::Treasury | WalletRole::Cold), None) => None,
        }
    }
}

#[derive(Clone, Copy)]
enum Inside {
    Topup,
    Sweep,
}

/// Blocks as the store takes them.
pub fn passed(scan: &Scan, coins: &Coins, house: &House, proven: bool) -> Passed {
    let block = |header: &chain::Header| BlockRow {
        height: header.height,
        hash: Hash(header.hash.0),
        parent: Hash(header.parent.0),
    };
    Passed {
        blocks: scan.headers.iter().map(block).collect(),
        entries: entries(scan, coins, house),
        source: scan.source.clone(),
        proven,
    }
}

/// Every change of a balance of ours.
pub fn entries(scan: &Scan, coins: &Coins, house: &House) -> Vec<FoundEntry> {
    let spent: HashMap<(TxHash, ChainPlace), &Spend> =
        scan.spends.iter().map(|spend| ((spend.transaction, spend.place), spend)).collect();
    let paid: HashMap<(TxHash, ChainPlace), &Output> =
        scan.outputs.iter().map(|output| ((output.transaction, output.place), output)).collect();
    let came = scan.outputs.iter().filter_map(|output| {
        let from = spent.get(&(output.transaction, output.place)).map(|spend| &spend.from);
        income(output, from, coins, house)
    });
    let left = scan.spends.iter().filter_map(|spend| {
        let to = paid.get(&(spend.transaction, spend.place)).map(|output| &output.to);
        outgoing(spend, to, coins, house)
    });
    came.chain(left).collect()
}

fn income(output: &Output, from: Option<&Address>, coins: &Coins, house: &House) -> Option<FoundEntry> {
    let inside = from.and_then(|from| house.moves_inside(from, &output.to));
    let (cause, amount) = match (output.ok, inside) {
        (false, _) => (Cause::Reverted, RawSum::ZERO),
        (true, Some(Inside::Topup)) => (Cause::TopupIn, output.amount.into()),
        (true, Some(Inside::Sweep)) => (Cause::SweepIn, output.amount.into()),
        (true, None) => (Cause::Deposit, output.amount.into()),
    };
    Some(FoundEntry {
        key: EntryKey { transaction: Hash(output.transaction.0), place: place(output.place), side: Side::In },
        height: output.block.height,
        block: Hash(output.block.hash.0),
        address: output.to.to_string(),
        listing: coins.listing(&output.coin)?,
        amount,
        cause,
        coinbase: output.coinbase,
    })
}

fn outgoing(spend: &Spend, to: Option<&Address>, coins: &Coins, house: &House) -> Option<FoundEntry> {
    let inside = to.and_then(|to| house.moves_inside(&spend.from, to));
    let cause = match (spend.place, inside) {
        (ChainPlace::Fee, _) => Cause::Fee,
        (_, Some(Inside::Topup)) => Cause::TopupOut,
        (_, Some(Inside::Sweep)) => Cause::SweepOut,
        (_, None) => Cause::ForeignSpend,
    };
    Some(FoundEntry {
        key: EntryKey { transaction: Hash(spend.transaction.0), place: place(spend.place), side: Side::Out },
        height: spend.block.height,
        block: Hash(spend.block.hash.0),
        address: spend.from.to_string(),
        listing: coins.listing(&spend.coin)?,
        amount: -RawSum::from(spend.amount),
        cause,
        coinbase: false,
    })
}

const fn place(place: ChainPlace) -> Place {
    match place {
        ChainPlace::Value => Place::Value,
        ChainPlace::Output(number) => Place::Output(number),
        ChainPlace::Log(number) => Place::Log(number),
        ChainPlace::Internal(number) => Place::Internal(number),
        ChainPlace::Fee => Place::Fee,
    }
}
