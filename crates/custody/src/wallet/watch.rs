//! What a server does all the time: it holds groups and operation wallets against the pinned ones, and goes through the
//! users' wallets, a page at each look.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use store::Db;
use store::wallet::read_wallet_settings;

use super::{Difference, Pinned, WalletError, compare_settings, list};

/// So many users' wallets are checked at each look.
const PAGE: i64 = 1_000;

/// What was found, for `/metrics`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Rows that differ: of the settings at the last look, of users' wallets in the last round or in this one.
    pub differ: u64,
    /// Users' wallets that were checked since the start, over and over.
    pub checked: u64,
    /// The first of those that differ.
    pub first: Option<Difference>,
}

#[derive(Debug, Default)]
struct Round {
    after: Option<i64>,
    differ_now: u64,
    differ_before: u64,
    /// The first row that differed, until a whole round finds none.
    first: Option<Difference>,
    /// Rows that somebody met in this round, and that were counted then.
    met: BTreeSet<String>,
}

/// No more rows are remembered, so that a database full of them does not fill the memory too.
const MOST_MET: usize = 1_000;

/// The watch over the rows of one database.
#[derive(Debug, Default)]
pub struct WalletRows {
    standing: Mutex<Standing>,
    round: tokio::sync::Mutex<Round>,
}

impl WalletRows {
    /// Looks once.
    pub async fn look(&self, db: &Db, pinned: &Arc<Pinned>) -> Result<(), WalletError> {
        let mut round = self.round.lock().await;
        let settings = read_wallet_settings(&mut db.read().await?).await?;
        let settings = compare_settings(pinned, &settings);
        let page = list(db, pinned, None, round.after.unwrap_or(i64::MIN), PAGE).await?;
        let counted_before = page.differ.iter().filter(|one| round.met.contains(&one.row)).count();
        round.differ_now += count(page.differ.len() - counted_before);
        if let Some(first) = page.differ.first() {
            round.first.get_or_insert_with(|| first.clone());
        }
        round.after = page.last;
        if page.last.is_none() {
            if round.differ_now == 0 {
                round.first = None;
            }
            round.differ_before = round.differ_now;
            round.differ_now = 0;
            round.met.clear();
        }
        let users = round.differ_now.max(round.differ_before);
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        standing.differ = count(settings.len()) + users;
        standing.checked += count(page.wallets.len() + page.differ.len());
        let first = settings.into_iter().next().or_else(|| round.first.clone());
        if let Some(new) = first.as_ref().filter(|new| standing.first.as_ref() != Some(*new)) {
            new.log();
        }
        standing.first = first;
        Ok(())
    }

    /// Somebody met a row that differs while it was wanted. It is an alert at once: a round over all rows may take hours.
    pub async fn met(&self, difference: &Difference) {
        let mut round = self.round.lock().await;
        if round.met.len() >= MOST_MET || !round.met.insert(difference.row.clone()) {
            return;
        }
        round.differ_now += 1;
        round.first.get_or_insert_with(|| difference.clone());
        let users = round.differ_now.max(round.differ_before);
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        standing.differ = standing.differ.max(users);
        standing.first.get_or_insert_with(|| difference.clone());
    }

    pub fn standing(&self) -> Standing {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
