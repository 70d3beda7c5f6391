//! Looks at what wallets have on their chain. What a look finds is an entry, never a balance that is overwritten.

use std::collections::{BTreeSet, HashMap};

use domain::deposit::Place;
use domain::deposit::look::{ByEntries, Look, entry_of};
use domain::utxo::Hash;
use domain::{ChainKind, RawAmount, RawSum, Timestamp};

use super::cursor::{CursorError, Locked, Worker, lock_moving, lock_visited};
use super::findings::{Finding, FindingKind, add_findings};
use super::types::{ChainId, ChainRow, EntryKey, FoundEntry, ListingId, hash_of, height_of, malformed, row_height};
use super::write::{
    ENTRY, EntryColumns, EntryRow, change_balances, entry_row, insert_unexplained, read_balances, take_back,
};
use crate::db::{Db, Tx};
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Int, ColumnType::Text, RowsSql, execute_rows, fetch_rows};
use crate::transact;

/// A coin of a wallet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holding {
    pub address: String,
    pub listing: ListingId,
}

/// How often the chain has said what a wallet has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// What differs is not written down: it is to be asked about again.
    Once,
    Again,
}

/// What looks have come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LookedBatch {
    pub same: usize,
    pub differing: usize,
    /// Those that differ and were heard of once. A node in the middle of a block may say what the next one has.
    pub unsure: Vec<Holding>,
}

statements! {
    /// Those that changed since the last look, the oldest change first. One coin's must not crowd out another's.
    READ_UNCHECKED = "SELECT address FROM wallet_balances
        WHERE chain_id = $1 AND listing_id = $2 AND checked_height < changed_height ORDER BY changed_height LIMIT $3";
    READ_PROVEN_BLOCK = "SELECT b.height, b.block_hash FROM chain_cursors k
        JOIN chain_blocks b ON b.chain_id = k.chain_id AND b.height = k.proven_height WHERE k.chain_id = $1";
    READ_BLOCK_HASH = "SELECT block_hash FROM chain_blocks WHERE chain_id = $1 AND height = $2";
    READ_LOOKED_AFTER = "SELECT looked_after FROM chain_cursors WHERE chain_id = $1";
    SET_LOOKED_AFTER = "UPDATE chain_cursors SET looked_after = $2 WHERE chain_id = $1";
}

static READ_ABOVE: RowsSql = RowsSql::new(
    "READ_ABOVE",
    "SELECT e.address, e.listing_id, e.amount_raw FROM {rows} {join} chain_entries e
         ON e.address = r.address AND e.chain_id = r.chain_id AND e.listing_id = r.listing_id
     WHERE e.alive AND e.height > r.height",
    &[("chain_id", Int), ("address", Text), ("listing_id", Int), ("height", Int)],
);

static READ_EARLIER_LOOKS: RowsSql = RowsSql::listing(
    "READ_EARLIER_LOOKS",
    "SELECT {columns} FROM {rows} {join} chain_entries e
         ON e.address = r.address AND e.chain_id = r.chain_id AND e.listing_id = r.listing_id
     WHERE e.alive AND e.place = 'balance' ORDER BY e.id",
    ENTRY,
    &[("chain_id", Int), ("address", Text), ("listing_id", Int)],
);

static SET_CHECKED: RowsSql = RowsSql::new(
    "SET_CHECKED",
    "UPDATE wallet_balances SET checked_height = CASE WHEN checked_height > r.height THEN checked_height ELSE r.height END
     FROM {rows} WHERE wallet_balances.chain_id = r.chain_id AND wallet_balances.address = r.address
         AND wallet_balances.listing_id = r.listing_id",
    &[("chain_id", Int), ("address", Text), ("listing_id", Int), ("height", Int)],
);

/// Nothing of it is credited until a look has come to an end, and the next round looks again.
static SET_UNCHECKED: RowsSql = RowsSql::new(
    "SET_UNCHECKED",
    "UPDATE wallet_balances SET checked_height = -1 FROM {rows} WHERE wallet_balances.chain_id = r.chain_id
         AND wallet_balances.address = r.address AND wallet_balances.listing_id = r.listing_id",
    &[("chain_id", Int), ("address", Text), ("listing_id", Int)],
);

/// Deposits of a token that are not in the books, at an address that has less of it than was logged.
/// By the address: the rest is written so that no index of all that are due seems to serve.
static DOUBT_DEPOSITS: RowsSql = RowsSql::new(
    "DOUBT_DEPOSITS",
    "UPDATE deposits SET reason = 'balance_differs'
     WHERE id IN (SELECT e.id FROM {rows} {join} chain_entries e
             ON e.address = r.address AND e.chain_id = r.chain_id AND e.listing_id = r.listing_id
         WHERE COALESCE(e.alive, FALSE) AND e.posting + 0 = 0 AND e.height <= r.height)
         AND COALESCE(state, '') IN ('detected', 'proven') AND COALESCE(reason, '') <> 'balance_differs'",
    &[("chain_id", Int), ("address", Text), ("listing_id", Int), ("height", Int)],
);

/// A later look thinks better of them. Nearly all looks find that the chain says what the entries say, and nearly no deposit is doubted:
/// these few are found by an index of their own, not among all that the address was ever paid.
static TRUST_DEPOSITS: RowsSql = RowsSql::new(
    "TRUST_DEPOSITS",
    "UPDATE deposits SET reason = NULL
     WHERE id IN (SELECT d.id FROM {rows} {join} deposits d
             ON d.address = r.address AND d.chain_id = r.chain_id AND d.listing_id = r.listing_id
         WHERE d.reason = 'balance_differs' AND d.state IN ('detected', 'proven') AND d.height <= r.height)",
    &[("chain_id", Int), ("address", Text), ("listing_id", Int), ("height", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 6] =
    [&READ_ABOVE, &READ_EARLIER_LOOKS, &SET_CHECKED, &SET_UNCHECKED, &DOUBT_DEPOSITS, &TRUST_DEPOSITS];

impl Db {
    /// Wallets whose entries of a coin changed since the last look.
    pub async fn unchecked_holdings(
        &self,
        chain: ChainId,
        listing: ListingId,
        most: i64,
    ) -> Result<Vec<Holding>, StoreError> {
        let rows = fetch_all!(&mut self.read().await?, READ_UNCHECKED => (String,), chain.0, listing.0, most)?;
        Ok(rows.into_iter().map(|(address,)| Holding { address, listing }).collect())
    }

    /// The newest block that is proven. `None`: there is none, or the chain is one whose blocks the wallet store keeps.
    pub async fn proven_block(&self, chain: &ChainRow) -> Result<Option<(u64, Hash)>, StoreError> {
        if chain.kind == ChainKind::Bitcoin {
            return Ok(None);
        }
        let row = fetch_optional!(&mut self.read().await?, READ_PROVEN_BLOCK => (i64, Vec<u8>), chain.id.0)?;
        row.map(|(height, hash)| Ok((height_of(height)?, hash_of(&hash)?))).transpose()
    }

    /// The last wallet of a user that was looked at in turn.
    pub async fn looked_after(&self, chain: ChainId) -> Result<i64, StoreError> {
        Ok(fetch_optional!(&mut self.read().await?, READ_LOOKED_AFTER => (i64,), chain.0)?.map_or(0, |row| row.0))
    }

    pub async fn set_looked_after(&self, worker: &Worker, after: i64) -> Result<(), CursorError> {
        transact!(self, tx => {
            let locked = lock_moving(tx, worker).await?;
            if locked.is_ok() {
                execute!(tx, SET_LOOKED_AFTER, worker.chain.0, after)?;
            }
            Ok(locked.map(|_| ()))
        })?
    }

    /// The same by somebody who does not have the chain. Two who go round at once look at some wallets twice.
    pub async fn set_visited_after(&self, chain: ChainId, after: i64) -> Result<(), StoreError> {
        transact!(self, tx => execute!(tx, SET_LOOKED_AFTER, chain.0, after).map(|_| ()))
    }

    /// What holdings of a chain have at one of its proven blocks, each named once. `None`: its address is not ours by its key,
    /// and nothing is compared. Refused if the block is not on the trail, or not proven.
    pub async fn look(
        &self,
        worker: &Worker,
        chain: &ChainRow,
        block: (u64, Hash),
        looked: &[(Holding, Option<RawAmount>)],
        heard: Heard,
        at: Timestamp,
    ) -> Result<LookedBatch, CursorError> {
        if looked.is_empty() {
            return Ok(LookedBatch::default());
        }
        transact!(self, tx => {
            let locked = lock_moving(tx, worker).await?;
            look_locked(tx, locked, chain, block, looked, heard, at).await
        })?
    }

    /// The same by somebody who does not have the chain. What a wallet has at a block is true as long as the block is on the trail, whoever asked,
    /// and that is looked at under the lock; so it needs no fence.
    pub async fn visit(
        &self,
        chain: &ChainRow,
        block: (u64, Hash),
        looked: &[(Holding, Option<RawAmount>)],
        heard: Heard,
        at: Timestamp,
    ) -> Result<LookedBatch, CursorError> {
        if looked.is_empty() {
            return Ok(LookedBatch::default());
        }
        transact!(self, tx => {
            let locked = lock_visited(tx, chain.id).await?;
            look_locked(tx, locked, chain, block, looked, heard, at).await
        })?
    }
}

async fn look_locked(
    tx: &mut Tx,
    locked: Result<Locked, CursorError>,
    chain: &ChainRow,
    block: (u64, Hash),
    looked: &[(Holding, Option<RawAmount>)],
    heard: Heard,
    at: Timestamp,
) -> Result<Result<LookedBatch, CursorError>, StoreError> {
    let locked = match locked {
        Ok(locked) => locked,
        Err(refused) => return Ok(Err(refused)),
    };
    let height = row_height(block.0)?;
    let hash = fetch_optional!(tx, READ_BLOCK_HASH => (Vec<u8>,), chain.id.0, height)?;
    if locked.proven < height || hash.is_none_or(|(hash,)| hash.as_slice() != block.1.0) {
        return Ok(Err(CursorError::NotOnTrail));
    }
    compare(tx, chain, block, looked, heard, at).await.map(Ok)
}

/// Holds what the chain has against the entries, and writes down what differs.
async fn compare(
    tx: &mut Tx,
    chain: &ChainRow,
    block: (u64, Hash),
    looked: &[(Holding, Option<RawAmount>)],
    heard: Heard,
    at: Timestamp,
) -> Result<LookedBatch, StoreError> {
    let height = row_height(block.0)?;
    let holdings: Vec<&Holding> = looked.iter().map(|(holding, _)| holding).collect();
    let Known { entries, earlier, newer } = by_entries(tx, chain.id, &holdings, height).await?;
    // One that was looked at above this block is known better there.
    let looked: Vec<&(Holding, Option<RawAmount>)> =
        looked.iter().filter(|(holding, _)| !newer.contains(holding)).collect();
    let mut batch = LookedBatch::default();
    let (mut wrong, mut new, mut findings, mut doubted) = (BTreeSet::new(), Vec::new(), Vec::new(), Vec::new());
    let mut shortfalls: HashMap<Holding, i64> = HashMap::new();
    for row in &earlier {
        let found = row_height(row.found.height)?;
        shortfalls.entry(holding_of(row)).and_modify(|at| *at = found.max(*at)).or_insert(found);
    }
    for (holding, balance) in looked.iter().filter_map(|(holding, balance)| Some((holding, (*balance)?))) {
        let known = entries.get(holding).copied().unwrap_or_default();
        let look = Look::at(balance, known);
        if look != Look::Same && heard == Heard::Once {
            batch.unsure.push(holding.clone());
            continue;
        }
        if chain.listing(holding.listing).is_some_and(|listing| listing.form.contract().is_some()) {
            // What came after the shortfall was found is all there, or this look would differ.
            let since = match look {
                Look::Same => shortfalls.get(holding).copied().unwrap_or(height),
                Look::Differs { .. } => height,
            };
            doubted.push((holding, look.unexplained(known).is_negative(), since));
        }
        let Look::Differs { by, unexplained } = look else {
            batch.same += 1;
            continue;
        };
        batch.differing += 1;
        wrong.insert(holding);
        new.extend(unexplained.map(|amount| unexplained_entry(holding, amount, block)));
        findings.push(finding(chain, holding, (by, balance), block.0));
    }
    let earlier: Vec<EntryRow> = earlier.into_iter().filter(|row| wrong.contains(&holding_of(row))).collect();
    take_back(tx, chain.id, &earlier, "a later look found another balance", at).await?;
    insert_unexplained(tx, chain.id, &new, at).await?;
    change_balances(tx, chain.id, new.iter().map(|one| (one, one.amount)), at).await?;
    doubt(tx, chain.id, doubted).await?;
    add_findings(tx, chain.id, &findings, at).await?;
    if !batch.unsure.is_empty() {
        execute_rows(tx, &SET_UNCHECKED, named(chain.id, &batch.unsure.iter().collect::<Vec<_>>())).await?;
    }
    let unsure: BTreeSet<&Holding> = batch.unsure.iter().collect();
    let sure = looked.iter().map(|(holding, _)| holding).filter(|holding| !unsure.contains(holding));
    set_checked(tx, chain.id, &sure.collect::<Vec<_>>(), height).await?;
    Ok(batch)
}

fn holding_of(row: &EntryRow) -> Holding {
    Holding { address: row.found.address.clone(), listing: row.found.listing }
}

/// The columns that name holdings.
fn named<'a>(chain: ChainId, holdings: &[&'a Holding]) -> Vec<Column<'a>> {
    vec![
        Column::Ints(vec![chain.0; holdings.len()]),
        Column::Texts(holdings.iter().map(|holding| holding.address.as_str()).collect()),
        Column::Ints(holdings.iter().map(|holding| holding.listing.0).collect()),
    ]
}

/// What is known of holdings at a height.
struct Known {
    entries: HashMap<Holding, ByEntries>,
    /// The entries of earlier looks.
    earlier: Vec<EntryRow>,
    /// Those that a look above this height has found different.
    newer: BTreeSet<Holding>,
}

async fn by_entries(tx: &mut Tx, chain: ChainId, holdings: &[&Holding], height: i64) -> Result<Known, StoreError> {
    type Row = (String, i64, String);
    let read = |(address, listing, amount): Row| {
        let amount: RawSum = amount.parse().map_err(|_| malformed("amount"))?;
        Ok::<_, StoreError>((Holding { address, listing: ListingId(listing) }, amount))
    };
    let mut entries: HashMap<Holding, ByEntries> = HashMap::new();
    let addresses = holdings.iter().map(|holding| holding.address.as_str()).collect();
    let listings = holdings.iter().map(|holding| holding.listing.0).collect();
    for ((address, listing), sum) in read_balances(tx, chain, (addresses, listings)).await? {
        let holding = Holding { address, listing: ListingId(listing) };
        entries.insert(holding, ByEntries { sum, looks: RawSum::ZERO });
    }
    let mut columns = named(chain, holdings);
    columns.push(Column::Ints(vec![height; holdings.len()]));
    let rows: Vec<Row> = fetch_rows(tx, &READ_ABOVE, columns).await?;
    for row in rows {
        let (holding, amount) = read(row)?;
        let held = entries.entry(holding).or_default();
        held.sum = held.sum.plus(-amount);
    }
    let rows: Vec<EntryColumns> = fetch_rows(tx, &READ_EARLIER_LOOKS, named(chain, holdings)).await?;
    let earlier = rows.into_iter().map(entry_row).collect::<Result<Vec<_>, _>>()?;
    let is_below = |row: &EntryRow| row_height(row.found.height).is_ok_and(|at| at <= height);
    let (earlier, newer): (Vec<EntryRow>, Vec<EntryRow>) = earlier.into_iter().partition(is_below);
    for row in &earlier {
        let held = entries.entry(holding_of(row)).or_default();
        held.looks = held.looks.plus(row.found.amount);
    }
    Ok(Known { entries, earlier, newer: newer.iter().map(holding_of).collect() })
}

fn unexplained_entry(holding: &Holding, amount: RawSum, (height, hash): (u64, Hash)) -> FoundEntry {
    let (side, cause) = entry_of(amount);
    FoundEntry {
        key: EntryKey { transaction: Hash([0; 32]), place: Place::Balance, side },
        height,
        block: hash,
        address: holding.address.clone(),
        listing: holding.listing,
        amount,
        cause,
        coinbase: false,
    }
}

fn finding(chain: &ChainRow, holding: &Holding, (by, balance): (RawSum, RawAmount), height: u64) -> Finding {
    let symbol = chain.listing(holding.listing).map_or("?", |listing| listing.symbol.as_str());
    let what = if by.is_negative() { "less" } else { "more" };
    let size = by.magnitude().map_or_else(|| "too much to say".to_owned(), |size| size.to_string());
    Finding {
        kind: FindingKind::BalanceDiffers,
        subject: holding.address.clone(),
        detail: format!("it has {balance} chain units of {symbol} at block {height}, {size} {what} than its entries"),
    }
}

/// The log of a token that moved nothing must credit nobody.
async fn doubt(tx: &mut Tx, chain: ChainId, judged: Vec<(&Holding, bool, i64)>) -> Result<(), StoreError> {
    type Judged<'a> = Vec<(&'a Holding, bool, i64)>;
    let (doubted, trusted): (Judged<'_>, Judged<'_>) = judged.into_iter().partition(|(_, doubted, _)| *doubted);
    for (sql, judged) in [(&DOUBT_DEPOSITS, doubted), (&TRUST_DEPOSITS, trusted)] {
        if judged.is_empty() {
            continue;
        }
        let mut columns = named(chain, &judged.iter().map(|(holding, ..)| *holding).collect::<Vec<_>>());
        columns.push(Column::Ints(judged.iter().map(|(_, _, since)| *since).collect()));
        execute_rows(tx, sql, columns).await?;
    }
    Ok(())
}

/// A coin that was never there has no row, and needs none.
async fn set_checked(tx: &mut Tx, chain: ChainId, holdings: &[&Holding], height: i64) -> Result<(), StoreError> {
    let mut columns = named(chain, holdings);
    columns.push(Column::Ints(vec![height; holdings.len()]));
    execute_rows(tx, &SET_CHECKED, columns).await.map(|_| ())
}
