//! Entries, the balances that follow from them, and new deposits. Whoever calls holds the chain's row, so that nobody else
//! writes entries of that chain meanwhile.

use std::collections::{BTreeMap, HashMap};

use domain::deposit::{Cause, DepositEvent, Place, Side};
use domain::utxo::Hash;
use domain::{RawSum, Timestamp};

use super::bitcoin::script_of;
use super::types::{ChainId, EntryKey, FoundEntry, ListingId, MATURITY, hash_of, height_of, malformed, row_height};
use crate::db::Tx;
use crate::deposit::advance::{Change, advance};
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Bytes, ColumnType::Int, ColumnType::Text, RowsSql};
use crate::rows::{execute_rows, expect_rows, fetch_rows};

/// What the ledger has made of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Booked {
    NotYet,
    Done,
    Never,
    Beyond,
}

impl Booked {
    pub(crate) const fn number(self) -> i64 {
        match self {
            Self::NotYet => 0,
            Self::Done => 1,
            Self::Never => 2,
            Self::Beyond => 3,
        }
    }

    pub(crate) fn of_number(number: i64) -> Result<Self, StoreError> {
        [Self::NotYet, Self::Done, Self::Never, Self::Beyond]
            .into_iter()
            .find(|one| one.number() == number)
            .ok_or_else(|| malformed("posting"))
    }
}

/// An entry as its row has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryRow {
    pub id: i64,
    pub found: FoundEntry,
    pub booked: Booked,
}

pub(crate) const ENTRY: &str = "e.id, e.listing_id, e.address, e.height, e.block_hash, e.tx_hash, e.place, e.side, e.amount_raw, e.cause, e.posting";

pub(crate) type EntryColumns = (i64, i64, String, i64, Vec<u8>, Option<Vec<u8>>, String, i64, String, String, i64);

pub(crate) fn entry_row(row: EntryColumns) -> Result<EntryRow, StoreError> {
    let (id, listing, address, height, block, transaction, place, side, amount, cause, posting) = row;
    let key = EntryKey {
        // What only a look has shown has no transaction: zeros stand for it.
        transaction: transaction.as_deref().map_or(Ok(Hash([0; 32])), hash_of)?,
        place: place.parse().map_err(|_| malformed("place"))?,
        side: Side::of_number(side).ok_or_else(|| malformed("side"))?,
    };
    let found = FoundEntry {
        key,
        height: height_of(height)?,
        block: hash_of(&block)?,
        address,
        listing: ListingId(listing),
        amount: amount.parse().map_err(|_| malformed("amount"))?,
        cause: Cause::parse(&cause).ok_or_else(|| malformed("cause"))?,
        coinbase: false,
    };
    Ok(EntryRow { id, found, booked: Booked::of_number(posting)? })
}

/// Of these changes: how often each was there (NULL: never), and whether it is now. Each is looked up by itself, in words that only one index
/// serves: as long as PostgreSQL thinks that there are no entries, it would go through all of another one for each.
static READ_KNOWN: RowsSql = RowsSql::new(
    "READ_KNOWN",
    "SELECT r.tx_hash, r.place, r.side,
         (SELECT MAX(e.generation) FROM chain_entries e WHERE e.chain_id = r.chain_id AND e.tx_hash = r.tx_hash
             AND e.place = r.place AND e.side = r.side AND e.reverses IS NULL AND e.tx_hash IS NOT NULL),
         (SELECT COUNT(*) FROM chain_entries e WHERE e.chain_id = r.chain_id AND e.tx_hash = r.tx_hash
             AND e.place = r.place AND e.side = r.side AND e.reverses IS NULL AND e.tx_hash IS NOT NULL AND COALESCE(e.alive, FALSE))
     FROM {rows}",
    &[("chain_id", Int), ("tx_hash", Bytes), ("place", Text), ("side", Int)],
);

static INSERT_ENTRIES: RowsSql = RowsSql::new(
    "INSERT_ENTRIES",
    "INSERT INTO chain_entries (chain_id, listing_id, address, height, block_hash, tx_hash, place, side, amount_raw, cause,
         generation, reverses, alive, posting, due_height, source, at)
     SELECT r.chain_id, r.listing_id, r.address, r.height, r.block_hash, r.tx_hash, r.place, r.side, r.amount_raw, r.cause,
         r.generation, r.reverses, r.alive <> 0, r.posting, r.due_height, r.source, r.at FROM {rows}",
    &[
        ("chain_id", Int),
        ("listing_id", Int),
        ("address", Text),
        ("height", Int),
        ("block_hash", Bytes),
        ("tx_hash", Bytes),
        ("place", Text),
        ("side", Int),
        ("amount_raw", Text),
        ("cause", Text),
        ("generation", Int),
        ("reverses", Int),
        ("alive", Int),
        ("posting", Int),
        ("due_height", Int),
        ("source", Text),
        ("at", Int),
    ],
);

/// What the ledger has not booked it never will: by a trigger, so that who only looks at balances has no right to `posting`.
static KILL_ENTRIES: RowsSql = RowsSql::new(
    "KILL_ENTRIES",
    "UPDATE chain_entries SET alive = FALSE FROM {rows} WHERE chain_entries.id = r.id AND chain_entries.alive",
    &[("id", Int)],
);

static READ_BALANCES: RowsSql = RowsSql::new(
    "READ_BALANCES",
    "SELECT b.address, b.listing_id, b.on_chain_balance_raw FROM {rows} {join} wallet_balances b
         ON b.chain_id = r.chain_id AND b.address = r.address AND b.listing_id = r.listing_id",
    &[("chain_id", Int), ("address", Text), ("listing_id", Int)],
);

/// A look below the change still stands; one at or above it does not.
static WRITE_BALANCES: RowsSql = RowsSql::new(
    "WRITE_BALANCES",
    "INSERT INTO wallet_balances (chain_id, address, listing_id, on_chain_balance_raw, needs_gas, needs_consolidation,
         changed_height, checked_height, updated_at)
     SELECT r.chain_id, r.address, r.listing_id, r.balance, FALSE, FALSE, r.height, -1, r.at FROM {rows} WHERE true
     ON CONFLICT (chain_id, address, listing_id) DO UPDATE SET on_chain_balance_raw = excluded.on_chain_balance_raw,
         changed_height = CASE WHEN excluded.changed_height > wallet_balances.changed_height THEN excluded.changed_height
             ELSE wallet_balances.changed_height END, updated_at = excluded.updated_at,
         checked_height = CASE WHEN excluded.changed_height <= wallet_balances.checked_height THEN -1
             ELSE wallet_balances.checked_height END",
    &[("chain_id", Int), ("address", Text), ("listing_id", Int), ("balance", Text), ("height", Int), ("at", Int)],
);

/// A deposit has the id of its entry. Whose it is, is what the row of its address says, by its script on Bitcoin; the key is asked before the credit.
static INSERT_DEPOSITS: RowsSql = RowsSql::new(
    "INSERT_DEPOSITS",
    "INSERT INTO deposits (id, chain_id, listing_id, tx_hash, place, generation, address, amount_raw, height, block_hash,
         user_id, state, reason, amount, repaid, left_over, receivable, version, created_at, updated_at)
     SELECT e.id, e.chain_id, e.listing_id, e.tx_hash, e.place, e.generation, e.address, r.amount_raw, e.height, e.block_hash,
         COALESCE(w.user_id, (SELECT s.user_id FROM address_texts x {join} user_wallets s ON s.address = x.address WHERE x.script_pub_key = r.script)),
         CASE WHEN e.cause = 'reverted' THEN 'refused' ELSE 'detected' END,
         CASE WHEN e.cause = 'reverted' THEN 'reverted' ELSE NULL END, 0, 0, 0, 0, 1, r.at, r.at
     FROM {rows} {join} chain_entries e ON e.id = (SELECT same.id FROM chain_entries same WHERE same.chain_id = r.chain_id
             AND same.tx_hash = r.tx_hash AND same.place = r.place AND same.side = 1 AND same.reverses IS NULL AND same.tx_hash IS NOT NULL
             AND COALESCE(same.alive, FALSE))
         LEFT JOIN user_wallets w ON w.address = e.address",
    &[("chain_id", Int), ("tx_hash", Bytes), ("place", Text), ("amount_raw", Text), ("script", Bytes), ("at", Int)],
);

static INSERT_FIRST_EVENTS: RowsSql = RowsSql::new(
    "INSERT_FIRST_EVENTS",
    "INSERT INTO deposit_events (deposit_id, version, state, reason, at)
     SELECT d.id, 1, d.state, COALESCE(d.reason, r.source), r.at
     FROM {rows} {join} deposits d ON d.id = (SELECT same.id FROM chain_entries same WHERE same.chain_id = r.chain_id
             AND same.tx_hash = r.tx_hash AND same.place = r.place AND same.side = 1 AND same.reverses IS NULL AND same.tx_hash IS NOT NULL
             AND COALESCE(same.alive, FALSE))",
    &[("chain_id", Int), ("tx_hash", Bytes), ("place", Text), ("source", Text), ("at", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 7] = [
    &READ_KNOWN,
    &INSERT_ENTRIES,
    &KILL_ENTRIES,
    &READ_BALANCES,
    &WRITE_BALANCES,
    &INSERT_DEPOSITS,
    &INSERT_FIRST_EVENTS,
];

/// A change that was not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewEntry {
    pub found: FoundEntry,
    /// It was there before, and was taken back.
    pub again: bool,
}

/// Writes the changes that are not there yet, and says which these were. One that is there, in whatever block, stays as it is:
/// only a proof or a reorganisation takes it away.
pub(crate) async fn write_entries(
    tx: &mut Tx,
    chain: ChainId,
    found: &[FoundEntry],
    source: &str,
    at: Timestamp,
) -> Result<Vec<NewEntry>, StoreError> {
    let mut once: BTreeMap<EntryKey, &FoundEntry> = BTreeMap::new();
    for one in found {
        once.entry(one.key).or_insert(one);
    }
    if once.is_empty() {
        return Ok(Vec::new());
    }
    let known = read_known(tx, chain, once.keys()).await?;
    let new = once.into_values().filter_map(|one| match known.get(&one.key) {
        Some((_, true)) => None,
        Some((generation, false)) => Some((one, generation + 1)),
        None => Some((one, 0)),
    });
    let new: Vec<(&FoundEntry, i64)> = new.collect();
    if new.is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<NewRow<'_>> =
        new.iter().map(|(one, generation)| NewRow::first(one, *generation)).collect::<Result<_, _>>()?;
    insert_rows(tx, chain, &rows, source, at).await?;
    change_balances(tx, chain, new.iter().map(|(one, _)| (*one, one.amount)), at).await?;
    let deposits: Vec<&FoundEntry> = new.iter().map(|(one, _)| *one).filter(|one| one.is_deposit()).collect();
    insert_deposits(tx, chain, &deposits, source, at).await?;
    Ok(new.into_iter().map(|(one, generation)| NewEntry { found: one.clone(), again: generation > 0 }).collect())
}

pub(crate) async fn read_known(
    tx: &mut Tx,
    chain: ChainId,
    keys: impl Iterator<Item = &EntryKey>,
) -> Result<HashMap<EntryKey, (i64, bool)>, StoreError> {
    let keys: Vec<&EntryKey> = keys.collect();
    let columns = vec![
        Column::Ints(vec![chain.0; keys.len()]),
        Column::Bytes(keys.iter().map(|key| key.transaction.0.to_vec()).collect()),
        Column::Strings(keys.iter().map(|key| key.place.to_string()).collect()),
        Column::Ints(keys.iter().map(|key| key.side.number()).collect()),
    ];
    type Row = (Vec<u8>, String, i64, Option<i64>, i64);
    let rows: Vec<Row> = fetch_rows(tx, &READ_KNOWN, columns).await?;
    rows.into_iter()
        .filter_map(|(transaction, place, side, generation, alive)| {
            generation.map(|generation| (transaction, place, side, generation, alive))
        })
        .map(|(transaction, place, side, generation, alive)| {
            let key = EntryKey {
                transaction: hash_of(&transaction)?,
                place: place.parse().map_err(|_| malformed("place"))?,
                side: Side::of_number(side).ok_or_else(|| malformed("side"))?,
            };
            Ok((key, (generation, alive == 1)))
        })
        .collect()
}

/// A row of `chain_entries` to add.
struct NewRow<'a> {
    found: &'a FoundEntry,
    amount: RawSum,
    generation: i64,
    reverses: Option<i64>,
    booked: Booked,
    due: i64,
}

impl<'a> NewRow<'a> {
    fn first(found: &'a FoundEntry, generation: i64) -> Result<Self, StoreError> {
        let height = row_height(found.height)?;
        let due = if found.coinbase { height.saturating_add(MATURITY) } else { height };
        let booked = if is_booked_nowhere(found.cause) { Booked::Done } else { Booked::NotYet };
        Ok(Self { found, amount: found.amount, generation, reverses: None, booked, due })
    }

    /// The opposite of an entry, under a generation of its own kind: it takes that one back.
    const fn opposite(row: &'a EntryRow, amount: RawSum) -> Self {
        let booked = match row.booked {
            Booked::NotYet | Booked::Never => Booked::Never,
            Booked::Done if is_booked_nowhere(row.found.cause) => Booked::Done,
            Booked::Done | Booked::Beyond => Booked::NotYet,
        };
        Self { found: &row.found, amount, generation: 0, reverses: Some(row.id), booked, due: 0 }
    }
}

/// The ledger knows nothing of what moves among our own addresses, and of what moved nothing.
const fn is_booked_nowhere(cause: Cause) -> bool {
    cause.is_internal() || matches!(cause, Cause::Reverted)
}

async fn insert_rows(
    tx: &mut Tx,
    chain: ChainId,
    rows: &[NewRow<'_>],
    source: &str,
    at: Timestamp,
) -> Result<(), StoreError> {
    let count = rows.len();
    let transaction = |row: &NewRow<'_>| match row.found.key.place {
        Place::Balance => None,
        Place::Value | Place::Output(_) | Place::Input(_) | Place::Log(_) | Place::Internal(_) | Place::Fee => {
            Some(row.found.key.transaction.0.to_vec())
        }
    };
    let heights = rows.iter().map(|row| row_height(row.found.height)).collect::<Result<_, _>>()?;
    let columns = vec![
        Column::Ints(vec![chain.0; count]),
        Column::Ints(rows.iter().map(|row| row.found.listing.0).collect()),
        Column::Texts(rows.iter().map(|row| row.found.address.as_str()).collect()),
        Column::Ints(heights),
        Column::Bytes(rows.iter().map(|row| row.found.block.0.to_vec()).collect()),
        Column::OptionalBytes(rows.iter().map(transaction).collect()),
        Column::Strings(rows.iter().map(|row| row.found.key.place.to_string()).collect()),
        Column::Ints(rows.iter().map(|row| row.found.key.side.number()).collect()),
        Column::Strings(rows.iter().map(|row| row.amount.to_string()).collect()),
        Column::Texts(rows.iter().map(|row| row.found.cause.as_str()).collect()),
        Column::Ints(rows.iter().map(|row| row.generation).collect()),
        Column::OptionalInts(rows.iter().map(|row| row.reverses).collect()),
        Column::Ints(rows.iter().map(|row| i64::from(row.reverses.is_none())).collect()),
        Column::Ints(rows.iter().map(|row| row.booked.number()).collect()),
        Column::Ints(rows.iter().map(|row| row.due).collect()),
        Column::Texts(vec![source; count]),
        Column::Ints(vec![at.micros(); count]),
    ];
    let written = execute_rows(tx, &INSERT_ENTRIES, columns).await?;
    expect_rows(written, count, "entries")
}

/// What only looks have shown: there is no transaction to know them by. The caller changes the balances.
pub(crate) async fn insert_unexplained(
    tx: &mut Tx,
    chain: ChainId,
    found: &[FoundEntry],
    at: Timestamp,
) -> Result<(), StoreError> {
    if found.is_empty() {
        return Ok(());
    }
    let rows: Vec<NewRow<'_>> = found.iter().map(|one| NewRow::first(one, 0)).collect::<Result<_, _>>()?;
    insert_rows(tx, chain, &rows, "balance", at).await
}

/// What these addresses have of these coins by their entries. One that never had any is missing.
pub(crate) async fn read_balances(
    tx: &mut Tx,
    chain: ChainId,
    (addresses, listings): (Vec<&str>, Vec<i64>),
) -> Result<HashMap<(String, i64), RawSum>, StoreError> {
    let columns = vec![Column::Ints(vec![chain.0; listings.len()]), Column::Texts(addresses), Column::Ints(listings)];
    let rows: Vec<(String, i64, String)> = fetch_rows(tx, &READ_BALANCES, columns).await?;
    let read = |(address, listing, balance): (String, i64, String)| {
        Ok(((address, listing), balance.parse().map_err(|_| malformed("balance"))?))
    };
    rows.into_iter().map(read).collect()
}

/// Adds changes to the balances of their addresses.
pub(crate) async fn change_balances<'a>(
    tx: &mut Tx,
    chain: ChainId,
    changes: impl Iterator<Item = (&'a FoundEntry, RawSum)>,
    at: Timestamp,
) -> Result<(), StoreError> {
    let mut sums: BTreeMap<(&str, i64), (RawSum, u64)> = BTreeMap::new();
    for (found, amount) in changes {
        let (sum, height) = sums.entry((found.address.as_str(), found.listing.0)).or_default();
        *sum = sum.plus(amount);
        *height = found.height.max(*height);
    }
    if sums.is_empty() {
        return Ok(());
    }
    let addresses = || sums.keys().map(|(address, _)| *address).collect::<Vec<_>>();
    let listings = || sums.keys().map(|(_, listing)| *listing).collect::<Vec<_>>();
    let before = read_balances(tx, chain, (addresses(), listings())).await?;
    let after = |((address, listing), (sum, _)): (&(&str, i64), &(RawSum, u64))| {
        let key = ((*address).to_owned(), *listing);
        before.get(&key).copied().unwrap_or_default().plus(*sum).to_string()
    };
    let columns = vec![
        Column::Ints(vec![chain.0; sums.len()]),
        Column::Texts(addresses()),
        Column::Ints(listings()),
        Column::Strings(sums.iter().map(after).collect()),
        Column::Ints(sums.values().map(|(_, height)| row_height(*height)).collect::<Result<_, _>>()?),
        Column::Ints(vec![at.micros(); sums.len()]),
    ];
    let count = sums.len();
    let written = execute_rows(tx, &WRITE_BALANCES, columns).await?;
    expect_rows(written, count, "balances")
}

async fn insert_deposits(
    tx: &mut Tx,
    chain: ChainId,
    deposits: &[&FoundEntry],
    source: &str,
    at: Timestamp,
) -> Result<(), StoreError> {
    if deposits.is_empty() {
        return Ok(());
    }
    let count = deposits.len();
    let keys = || {
        vec![
            Column::Ints(vec![chain.0; count]),
            Column::Bytes(deposits.iter().map(|one| one.key.transaction.0.to_vec()).collect()),
            Column::Strings(deposits.iter().map(|one| one.key.place.to_string()).collect()),
        ]
    };
    let mut columns = keys();
    columns.push(Column::Strings(deposits.iter().map(|one| one.amount.to_string()).collect()));
    columns.push(Column::OptionalBytes(deposits.iter().map(|one| script_of(&one.address)).collect()));
    columns.push(Column::Ints(vec![at.micros(); count]));
    expect_rows(execute_rows(tx, &INSERT_DEPOSITS, columns).await?, count, "deposits")?;
    let mut columns = keys();
    columns.push(Column::Texts(vec![source; count]));
    columns.push(Column::Ints(vec![at.micros(); count]));
    expect_rows(execute_rows(tx, &INSERT_FIRST_EVENTS, columns).await?, count, "events of deposits")
}

/// Takes entries back: each gets its opposite. What the ledger has not booked it never will; the rest it books back. Deposits
/// that the books know nothing of end here.
pub(crate) async fn take_back(
    tx: &mut Tx,
    chain: ChainId,
    entries: &[EntryRow],
    why: &'static str,
    at: Timestamp,
) -> Result<(), StoreError> {
    if entries.is_empty() {
        return Ok(());
    }
    let columns = vec![Column::Ints(entries.iter().map(|row| row.id).collect())];
    expect_rows(execute_rows(tx, &KILL_ENTRIES, columns).await?, entries.len(), "entries that end")?;
    let opposites: Vec<NewRow<'_>> = entries.iter().map(|row| NewRow::opposite(row, -row.found.amount)).collect();
    insert_rows(tx, chain, &opposites, why, at).await?;
    change_balances(tx, chain, entries.iter().map(|row| (&row.found, -row.found.amount)), at).await?;
    let unbooked = |row: &&EntryRow| {
        row.found.is_deposit() && (row.booked == Booked::NotYet || row.found.cause == Cause::Reverted)
    };
    let gone: Vec<Change> =
        entries.iter().filter(unbooked).map(|row| Change::new(row.id, DepositEvent::Gone, why)).collect();
    advance(tx, gone, at).await
}
