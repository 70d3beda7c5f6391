//! The proof over everything that was recorded: each history, each end at the engine, each entry of the journal.
//!
//! Memory does not grow with the run. Two sums prove that the journal has exactly the entries that the states call for:
//! each entry has a number, and the sum over the transfers must equal the sum over the journal.

use std::collections::BTreeMap;

use domain::transfer::{Direction, Event, State, Transfer, next};
use domain::{AssetId, UserId};
use store::Db;
use store::ledger::journal::{MovementFilter, list_movements};
use store::transfer::{HistoryRow, histories, page};

use super::laws::{Ground, ended_as_told, unread};
use super::report::Report;
use super::world::Shared;

const PAGE: i64 = 2_000;
/// How many ended transfers are proven at a time while the run goes on. The others are proven at its end.
const SAMPLE: i64 = 200;

#[derive(Default)]
pub(crate) struct Proof {
    /// The id after which the next page begins.
    after: i64,
    transfers: u64,
    /// The sum over the entries that the journal should have.
    expected: u64,
    ends: BTreeMap<(i64, i16), u64>,
    compensating: u64,
    /// What each user should have at the engine, by the committed transfers.
    spot: BTreeMap<(UserId, AssetId), i64>,
}

impl Proof {
    /// Proves some of the transfers that have ended since the last time: all with ids below the given one have.
    pub async fn sample(&mut self, db: &Db, world: &Shared, below: i64) -> Result<(), String> {
        self.some(db, world, below, SAMPLE).await?;
        self.after = self.after.max(below - 1);
        Ok(())
    }

    /// Proves the next page of all transfers. False: there are no more.
    pub async fn go_on(&mut self, db: &Db, world: &Shared) -> Result<bool, String> {
        self.some(db, world, i64::MAX, PAGE).await
    }

    async fn some(&mut self, db: &Db, world: &Shared, below: i64, most: i64) -> Result<bool, String> {
        let read = async {
            let mut tx = db.read().await?;
            let mut transfers = page(&mut tx, self.after, most).await?;
            transfers.retain(|transfer| transfer.id.number() < below);
            let through = transfers.last().map_or(self.after, |transfer| transfer.id.number());
            let rows = histories(&mut tx, self.after, through).await?;
            Ok((transfers, rows))
        };
        let (transfers, rows) = read.await.map_err(|error| unread(&error))?;
        let mut rows = rows.into_iter().peekable();
        for transfer in &transfers {
            let id = transfer.id.number();
            let mut history = Vec::new();
            while let Some((_, row)) = rows.next_if(|(of, _)| *of == id) {
                history.push(row);
            }
            lawful(transfer, &history).map_err(|what| format!("{what}: {transfer:?}, {history:?}"))?;
            ended_as_told(&mut world.lock(), transfer)?;
            self.count(transfer, &history);
            self.after = id;
        }
        match rows.next() {
            Some((id, row)) => Err(format!("there is a history without a transfer {id}: {row:?}")),
            None => Ok(!transfers.is_empty()),
        }
    }

    fn count(&mut self, transfer: &Transfer, history: &[HistoryRow]) {
        self.transfers += 1;
        *self.ends.entry((transfer.direction.number(), transfer.state.number())).or_default() += 1;
        self.compensating += u64::from(history.iter().any(|row| row.path.starts_with("COMPENSATING")));
        for (what, applied) in entries(transfer) {
            let entry = Entry { id: transfer.id.number(), what, applied: *applied, account: transfer.funding.0 };
            let sum = entry.number(transfer.asset.0, transfer.amount.units());
            self.expected = self.expected.wrapping_add(sum);
        }
        if transfer.state == State::Committed {
            let amount = match transfer.direction {
                Direction::ToSpot => transfer.amount.units(),
                Direction::ToFunding => -transfer.amount.units(),
            };
            *self.spot.entry((transfer.user, transfer.asset)).or_default() += amount;
        }
    }

    /// Every transfer has ended: compares the journal and the engine with the transfers.
    pub async fn end(&self, db: &Db, world: &Shared, ground: &Ground) -> Result<(), String> {
        let recorded = world.lock().report.transfers;
        if self.transfers != recorded {
            return Err(format!("{recorded} transfers were recorded, and {} are there", self.transfers));
        }
        let mut found = 0_u64;
        let mut before = i64::MAX;
        let mut tx = db.read().await.map_err(|error| unread(&error))?;
        loop {
            let listed = list_movements(&mut tx, &MovementFilter::All, before, PAGE).await;
            let listed = listed.map_err(|error| unread(&error))?;
            for row in &listed.movements {
                let Some(entry) = Entry::of_row(row) else { continue };
                found = found.wrapping_add(entry.number(row.asset_id, row.amount));
            }
            match listed.next_before {
                Some(next) => before = next,
                None => break,
            }
        }
        drop(tx);
        if found != self.expected {
            return Err("the journal has other entries than the states of the transfers call for".to_owned());
        }
        let world = world.lock();
        for (user, asset, balance) in world.engine.balances() {
            let expected = self.spot.get(&(user, asset)).copied().unwrap_or(0);
            if balance.available.units() != expected {
                return Err(format!("user {user:?} has {balance:?} of {asset:?} at the engine, not {expected}"));
            }
        }
        let missing =
            |pair: &&(UserId, AssetId)| world.engine.balances().all(|(user, asset, _)| (user, asset) != **pair);
        match ground.accounts.keys().filter(missing).find(|pair| self.spot.get(pair).is_some_and(|sum| *sum != 0)) {
            Some(pair) => Err(format!("{pair:?} has nothing at the engine")),
            None => Ok(()),
        }
    }

    /// Counts in the report how the transfers ended.
    pub fn tell(&self, report: &mut Report) {
        let ends = |direction: Direction, state: State| {
            self.ends.get(&(direction.number(), state.number())).copied().unwrap_or(0)
        };
        report.committed_to_spot = ends(Direction::ToSpot, State::Committed);
        report.committed_to_funding = ends(Direction::ToFunding, State::Committed);
        report.failed_to_spot = ends(Direction::ToSpot, State::Failed);
        report.failed_to_funding = ends(Direction::ToFunding, State::Failed);
        report.rolled_back_to_spot = ends(Direction::ToSpot, State::RolledBack);
        report.rolled_back_to_funding = ends(Direction::ToFunding, State::RolledBack);
        report.compensating = self.compensating;
    }
}

/// Checks a history: its versions have no gap, each path begins where the one before ended, and each step is one of the
/// state machine's.
fn lawful(transfer: &Transfer, history: &[HistoryRow]) -> Result<(), String> {
    let mut at: Option<State> = None;
    for (number, row) in (1..).zip(history) {
        if row.version != number {
            return Err(format!("version {} is missing", number));
        }
        for (place, name) in row.path.split('>').enumerate() {
            let state = State::ALL.into_iter().find(|state| state.as_str() == name);
            let state = state.ok_or_else(|| format!("there is no state {name}"))?;
            let fits = match at {
                None => state == State::Init,
                Some(before) if place == 0 => before == state,
                Some(before) => Event::ALL.iter().any(|event| next(before, *event) == Ok(state)),
            };
            if !fits {
                return Err(format!("{at:?} does not lead to {state}"));
            }
            at = Some(state);
        }
    }
    if i64::try_from(history.len()) != Ok(transfer.version) {
        return Err("the history has another length than the version".to_owned());
    }
    if at != Some(transfer.state) {
        return Err(format!("the history ends with {at:?}"));
    }
    if transfer.state.is_terminal() { Ok(()) } else { Err("it has not ended".to_owned()) }
}

/// What the journal must have for a transfer that has ended, and whether it was applied.
const fn entries(transfer: &Transfer) -> &'static [(&'static str, bool)] {
    match (transfer.direction, transfer.state) {
        (Direction::ToSpot, State::Committed) => &[("hold", true), ("settle", true)],
        (Direction::ToSpot, State::RolledBack) => &[("hold", true), ("release", true)],
        (Direction::ToSpot, State::Failed) => &[("hold", false)],
        (Direction::ToFunding, State::Committed) => &[("deposit", true)],
        (Direction::ToFunding, State::RolledBack) => &[("deposit", false)],
        (Direction::ToFunding, State::Failed) => &[],
        (_, State::Init | State::SourcePending | State::SourceDone | State::TargetPending | State::Compensating) => &[],
    }
}

struct Entry<'a> {
    id: i64,
    what: &'a str,
    applied: bool,
    /// The user's account.
    account: i64,
}

impl<'a> Entry<'a> {
    /// `None` for a row that does not belong to a transfer.
    fn of_row(row: &'a store::ledger::row::MovementRow) -> Option<Self> {
        let (id, what) = row.op_key.strip_prefix("sr-")?.split_once(':')?;
        let account = if what == "deposit" { row.to_account } else { row.from_account };
        Some(Self { id: id.parse().unwrap_or(0), what, applied: row.outcome == 0, account })
    }

    fn number(&self, asset: i64, amount: i64) -> u64 {
        let what = self.what.bytes().fold(u64::from(self.applied), |sum, byte| sum.wrapping_mul(31) + u64::from(byte));
        let words = [self.id, self.account, asset, amount].map(i64::cast_unsigned);
        words.into_iter().fold(what, |hash, word| {
            let mixed = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(31)
        })
    }
}
