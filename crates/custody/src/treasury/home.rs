//! Where swept coins go: hot wallets that lack some, else the treasury. Addresses follow from keys.

use domain::treasury::{CoinId, Homes};
use domain::{ChainName, GroupId, RawAmount, Timestamp, WalletRole};
use store::treasury::house::HotRow;
use store::treasury::pass::Formers;
use store::wallet::Place;
use tx::Address;

use crate::wallet::Pinned;

/// An address of the house, by what it follows from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Home {
    pub address: Address,
    pub group: GroupId,
    pub index: i64,
}

pub(super) struct Destinations {
    treasury: Option<Home>,
    hot: Vec<Option<Home>>,
    homes: Homes,
}

/// The active wallets of a role on a chain, as their keys give them.
pub(super) fn wallets_of(pinned: &Pinned, chain: &ChainName, role: WalletRole) -> Vec<Home> {
    let here = pinned.wallets().filter(|(on, _, wallet)| *on == chain && wallet.role == role && wallet.active);
    here.filter_map(|(_, place, wallet)| match place {
        Place::Derived { group, index } => {
            Some(Home { address: wallet.address.clone(), group: group.clone(), index: *index })
        }
        Place::Written(_) => None,
    })
    .collect()
}

impl Destinations {
    pub fn of(pinned: &Pinned, chain: &ChainName, bands: &[HotRow], formers: &Formers, now: Timestamp) -> Self {
        let known = wallets_of(pinned, chain, WalletRole::Hot);
        // A row that says another address than its key gives gets nothing.
        let hot: Vec<Option<Home>> = bands
            .iter()
            .map(|row| {
                let same = |home: &&Home| {
                    home.address.to_string() == row.address && home.group == row.group && home.index == row.index
                };
                known.iter().find(same).cloned()
            })
            .collect();
        let homes = bands.iter().enumerate().filter(|(at, _)| hot.get(*at).is_some_and(Option::is_some));
        let homes = Homes::new(homes.map(|(at, row)| (at, row.hot_coin(formers, now))));
        Self { treasury: wallets_of(pinned, chain, WalletRole::Treasury).into_iter().next(), hot, homes }
    }

    /// Where so much of a coin goes. `None`: there is no treasury.
    pub fn place(&mut self, coin: CoinId, amount: RawAmount) -> Option<&Home> {
        let hot = self.homes.place(coin, amount).and_then(|at| self.hot.get(at)).and_then(Option::as_ref);
        hot.or(self.treasury.as_ref())
    }

    /// All of them, to ask what a transaction costs: one that has none of a token yet is dearer to pay.
    pub fn all(&self) -> Vec<Address> {
        let mut all: Vec<Address> = Vec::new();
        for home in self.treasury.iter().chain(self.hot.iter().flatten()) {
            if !all.contains(&home.address) {
                all.push(home.address.clone());
            }
        }
        all
    }

    /// The hot wallet of a row, if its key gives the row's address.
    pub fn hot(&self, row: usize) -> Option<&Home> {
        self.hot.get(row).and_then(Option::as_ref)
    }

    pub const fn treasury(&self) -> Option<&Home> {
        self.treasury.as_ref()
    }
}
