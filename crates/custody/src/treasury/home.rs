//! Where swept coins go: hot wallets that lack some, else the treasury. Addresses follow from keys.

use domain::treasury::{CoinId, Homes, Waits};
use domain::{ChainName, GroupId, RawAmount, Timestamp, WalletRole};
use store::treasury::house::{HotRow, StoppedWallets};
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
    /// Or why nothing goes there.
    treasury: Result<Home, Waits>,
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

/// A wallet of the house that nothing goes to until people have looked.
fn is_stopped(home: &Home, stopped: &StoppedWallets) -> bool {
    stopped.groups.contains(&home.group) || stopped.addresses.contains(&home.address.to_string())
}

impl Destinations {
    pub fn of(
        (pinned, chain): (&Pinned, &ChainName),
        (bands, formers): (&[HotRow], &Formers),
        stopped: &StoppedWallets,
        now: Timestamp,
    ) -> Self {
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
        let treasuries = wallets_of(pinned, chain, WalletRole::Treasury);
        let none = if treasuries.is_empty() { Waits::NoHome } else { Waits::HomeStopped };
        let treasury = treasuries.into_iter().find(|home| !is_stopped(home, stopped)).ok_or(none);
        Self { treasury, hot, homes }
    }

    /// Where so much of a coin goes. `None`: there is no treasury that anything may go to.
    pub fn place(&mut self, coin: CoinId, amount: RawAmount) -> Option<&Home> {
        let hot = self.homes.place(coin, amount).and_then(|at| self.hot.get(at)).and_then(Option::as_ref);
        hot.or(self.treasury.as_ref().ok())
    }

    /// The hot wallets that some of a coin may go to, to ask what that costs: one that has none of a token yet is dearer to pay.
    pub fn hot_of(&self, coin: CoinId) -> Vec<Address> {
        let homes = self.homes.of(coin).filter_map(|at| self.hot(at));
        homes.map(|home| home.address.clone()).collect()
    }

    /// These take nothing of a coin: it refuses them as recipients.
    pub fn leave_out(&mut self, refused: &[(CoinId, Address)]) {
        for (coin, address) in refused {
            let same = |home: &Home| home.address == *address;
            let numbers = self.hot.iter().enumerate().filter(|(_, home)| home.as_ref().is_some_and(same));
            for (number, _) in numbers {
                self.homes.leave_out(*coin, number);
            }
        }
    }

    /// The hot wallet of a row, if its key gives the row's address.
    pub fn hot(&self, row: usize) -> Option<&Home> {
        self.hot.get(row).and_then(Option::as_ref)
    }

    /// Where coins come home; or why nothing goes there.
    pub const fn treasury(&self) -> Result<&Home, Waits> {
        match &self.treasury {
            Ok(home) => Ok(home),
            Err(why) => Err(*why),
        }
    }
}
