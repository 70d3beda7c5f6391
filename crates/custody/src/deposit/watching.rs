//! The addresses that a scan looks for: the house's own, and those of all users.

use chain::{WatchKey, Watched};
use domain::random::Random;
use domain::{ChainName, GroupId, Purpose};
use store::wallet::users::list_addresses;
use store::{Db, StoreError};
use tx::Family;

use super::read::House;
use crate::wallet::Pinned;

/// So many rows are read at a time.
const PAGE: usize = 50_000;

pub struct Watching {
    watched: Watched,
    family: Family,
    groups: Vec<GroupId>,
    /// The last row that was read. Rows become visible in the order of their ids, so none below it is missed.
    after: i64,
}

impl Watching {
    /// With the house's wallets; users' are loaded by [`Watching::load`].
    pub fn new(pinned: &Pinned, chain: &ChainName, family: Family, house: &House, random: &mut Random) -> Self {
        tracing::debug!(chain = chain.as_str(), family = family.as_str(), "addresses to watch");
        let mut watched = Watched::new(random);
        for address in house.addresses() {
            watched.insert(WatchKey::of(address));
        }
        Self { watched, family, groups: groups_of_users(pinned, family), after: i64::MIN }
    }

    /// The groups whose wallets are users'.
    pub fn groups(&self) -> &[GroupId] {
        &self.groups
    }

    pub const fn watched(&self) -> &Watched {
        &self.watched
    }

    /// Adds the addresses of rows that are new. Says how many. They are only looked for: whose they are is derived before a credit.
    pub async fn load(&mut self, db: &Db) -> Result<usize, StoreError> {
        let mut added = 0;
        loop {
            let page = list_addresses(&mut db.read().await?, &self.groups, self.after, PAGE).await?;
            let Some((last, _)) = page.last() else { return Ok(added) };
            self.after = *last;
            for (row, text) in &page {
                match self.family.parse_address(text) {
                    Ok(address) => {
                        self.watched.insert(WatchKey::of(&address));
                        added += 1;
                    }
                    // The verifier names it too. One row that somebody spoilt must not stop the scan of all others.
                    Err(error) => {
                        tracing::error!(row, code = error.code(), "the row of a user's wallet has no address")
                    }
                }
            }
            if page.len() < PAGE {
                return Ok(added);
            }
        }
    }
}

/// The groups whose wallets are users', also those of which no new wallets are given: their addresses may be paid for ever.
pub(super) fn groups_of_users(pinned: &Pinned, family: Family) -> Vec<GroupId> {
    let of_users =
        |group: &&crate::wallet::PinnedGroup| group.group.purpose == Purpose::Deposit && group.group.family() == family;
    pinned.groups().filter(of_users).map(|group| group.group.id.clone()).collect()
}
