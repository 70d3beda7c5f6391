//! Blocks passed, proven and undone, each with its entries in one transaction.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use domain::Timestamp;
use domain::deposit::{Place, Side};
use domain::utxo::Hash;

use super::cursor::{CursorError, Locked, READ_LAST_BLOCK, SET_PROVEN, Worker, lock_moving};
use super::findings::{Finding, FindingKind, add_findings};
use super::types::{BlockRow, ChainId, EntryKey, FoundEntry, hash_of, height_of, row_height};
use super::write::{ENTRY, EntryColumns, EntryRow, NewEntry, entry_row, take_back, write_entries};
use crate::db::{Db, Tx};
use crate::error::StoreError;
use crate::outbound::explain::{Explained, explained};
use crate::outbound::lane::stop_groups;
use crate::rows::{Column, ColumnType::Bytes, ColumnType::Int, ColumnType::Text, RowsSql};
use crate::rows::{execute_rows, expect_rows, fetch_rows};
use crate::transact;

/// Blocks in a row that were read, and what they changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Each is the parent of the next.
    pub blocks: Vec<BlockRow>,
    pub entries: Vec<FoundEntry>,
    /// The node that they were read from.
    pub source: String,
    /// They were held against headers that a quorum has.
    pub proven: bool,
}

/// What a proof found that was not known before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// What the scan had left out.
    pub taken_in: usize,
    /// What the scan had, and the chain has not.
    pub disproven: usize,
}

/// So many of the newest blocks are kept to find a fork.
pub const TRAIL: u64 = 2_048;

statements! {
    READ_ALIVE_ABOVE(ENTRY) = "SELECT {columns} FROM chain_entries e WHERE e.chain_id = $1 AND e.height > $2 AND e.alive
        ORDER BY e.id";
    READ_ALIVE_BETWEEN(ENTRY) = "SELECT {columns} FROM chain_entries e
        WHERE e.chain_id = $1 AND e.height BETWEEN $2 AND $3 AND e.alive ORDER BY e.id";
    READ_BLOCKS_BETWEEN = "SELECT height, block_hash, source FROM chain_blocks
        WHERE chain_id = $1 AND height BETWEEN $2 AND $3 ORDER BY height";
    DELETE_BLOCKS_ABOVE = "DELETE FROM chain_blocks WHERE chain_id = $1 AND height > $2";
    DELETE_BLOCKS_BELOW = "DELETE FROM chain_blocks WHERE chain_id = $1 AND height < $2";
}

static INSERT_TRAIL: RowsSql = RowsSql::new(
    "INSERT_TRAIL",
    "INSERT INTO chain_blocks (chain_id, height, block_hash, source)
     SELECT r.chain_id, r.height, r.block_hash, r.source FROM {rows}",
    &[("chain_id", Int), ("height", Int), ("block_hash", Bytes), ("source", Text)],
);

/// By the whole key: with `e.alive` alone an index by heights would seem to serve.
static READ_ALIVE_AT: RowsSql = RowsSql::listing(
    "READ_ALIVE_AT",
    "SELECT {columns} FROM {rows} {join} chain_entries e ON e.id = (SELECT same.id FROM chain_entries same
             WHERE same.chain_id = r.chain_id AND same.tx_hash = r.tx_hash AND same.place = r.place AND same.side = r.side
                 AND same.reverses IS NULL AND same.tx_hash IS NOT NULL AND COALESCE(same.alive, FALSE))",
    ENTRY,
    &[("chain_id", Int), ("tx_hash", Bytes), ("place", Text), ("side", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 2] = [&INSERT_TRAIL, &READ_ALIVE_AT];

pub(crate) async fn insert_trail(
    tx: &mut Tx,
    chain: ChainId,
    blocks: &[(i64, Hash)],
    source: &str,
) -> Result<(), StoreError> {
    let columns = vec![
        Column::Ints(vec![chain.0; blocks.len()]),
        Column::Ints(blocks.iter().map(|(height, _)| *height).collect()),
        Column::Bytes(blocks.iter().map(|(_, hash)| hash.0.to_vec()).collect()),
        Column::Texts(vec![source; blocks.len()]),
    ];
    expect_rows(execute_rows(tx, &INSERT_TRAIL, columns).await?, blocks.len(), "blocks")
}

impl Db {
    /// The next blocks of a chain, with what they changed. Refused if they do not follow the last block that was passed. Says
    /// how many entries are new.
    pub async fn pass_blocks(&self, worker: &Worker, passed: &Passed, at: Timestamp) -> Result<usize, CursorError> {
        transact!(self, tx => {
            match lock_moving(tx, worker).await? {
                Ok(locked) => pass(tx, worker.chain, &locked, passed, at).await,
                Err(refused) => Ok(Err(refused)),
            }
        })?
    }

    /// The blocks `from..=to` were read again and held against headers that a quorum has: `blocks` with the same hashes as were
    /// passed, or nothing is done. What the scan left out is taken in, and what the chain has not is taken back.
    pub async fn prove_blocks(&self, worker: &Worker, proven: &Passed, at: Timestamp) -> Result<Proof, CursorError> {
        transact!(self, tx => {
            match lock_moving(tx, worker).await? {
                Ok(locked) => prove(tx, worker.chain, &locked, proven, at).await,
                Err(refused) => Ok(Err(refused)),
            }
        })?
    }

    /// All blocks above a height have left the chain. Says how many entries were taken back.
    pub async fn undo_blocks(&self, worker: &Worker, down_to: u64, at: Timestamp) -> Result<usize, CursorError> {
        transact!(self, tx => {
            match lock_moving(tx, worker).await? {
                Ok(locked) => {
                    let down_to = row_height(down_to)?;
                    let count = undo(tx, worker.chain, &locked, down_to, at).await?;
                    execute!(tx, DELETE_BLOCKS_ABOVE, worker.chain.0, down_to)?;
                    Ok(Ok(count))
                }
                Err(refused) => Ok(Err(refused)),
            }
        })?
    }
}

async fn pass(
    tx: &mut Tx,
    chain: ChainId,
    locked: &Locked,
    passed: &Passed,
    at: Timestamp,
) -> Result<Result<usize, CursorError>, StoreError> {
    let (Some(first), Some(last)) = (passed.blocks.first(), passed.blocks.last()) else { return Ok(Ok(0)) };
    let tip = fetch_optional!(tx, READ_LAST_BLOCK => (i64, Vec<u8>), chain.0)?;
    let follows = match tip {
        Some((height, hash)) => {
            height_of(height)?.checked_add(1) == Some(first.height) && hash_of(&hash)? == first.parent
        }
        None => false,
    };
    if !follows || !in_a_row(&passed.blocks) {
        return Ok(Err(CursorError::NotOnTrail));
    }
    let rows = passed.blocks.iter().map(|block| Ok((row_height(block.height)?, block.hash)));
    insert_trail(tx, chain, &rows.collect::<Result<Vec<_>, StoreError>>()?, &passed.source).await?;
    let Explained { entries, foreign } = explained(tx, chain, &passed.entries).await?;
    let new = write_entries(tx, chain, &entries, &passed.source, at).await?;
    tell_foreign(tx, chain, &new, &foreign, at).await?;
    if passed.proven && locked.proven == row_height(first.height)? - 1 {
        set_proven(tx, chain, row_height(last.height)?, at).await?;
    }
    let oldest = row_height(last.height.saturating_sub(TRAIL))?;
    // What is not proven yet must be there to be proven.
    execute!(tx, DELETE_BLOCKS_BELOW, chain.0, oldest.min(locked.proven))?;
    Ok(Ok(new.len()))
}

pub(crate) fn in_a_row(blocks: &[BlockRow]) -> bool {
    let joins =
        |pair: &[BlockRow]| pair[0].height.checked_add(1) == Some(pair[1].height) && pair[0].hash == pair[1].parent;
    blocks.windows(2).all(joins)
}

/// All blocks up to this one are proven. The chain's row alone says so: a deposit that is booked next goes through `proven` then, and
/// one that is not deep enough is marked by `mark_proven`.
pub(crate) async fn set_proven(tx: &mut Tx, chain: ChainId, height: i64, at: Timestamp) -> Result<(), StoreError> {
    execute!(tx, SET_PROVEN, chain.0, height, at.micros()).map(|_| ())
}

async fn prove(
    tx: &mut Tx,
    chain: ChainId,
    locked: &Locked,
    proven: &Passed,
    at: Timestamp,
) -> Result<Result<Proof, CursorError>, StoreError> {
    let (Some(first), Some(last)) = (proven.blocks.first(), proven.blocks.last()) else {
        return Ok(Ok(Proof::default()));
    };
    let (from, to) = (row_height(first.height)?, row_height(last.height)?);
    let trail = fetch_all!(tx, READ_BLOCKS_BETWEEN => (i64, Vec<u8>, String), chain.0, from, to)?;
    let same = trail.len() == proven.blocks.len()
        && trail.iter().zip(&proven.blocks).all(|((_, hash, _), block)| hash.as_slice() == block.hash.0);
    if locked.proven != from - 1 || !same {
        return Ok(Err(CursorError::NotOnTrail));
    }
    let sources: BTreeMap<i64, String> = trail.into_iter().map(|(height, _, source)| (height, source)).collect();
    let rows = fetch_all!(tx, READ_ALIVE_BETWEEN => EntryColumns, chain.0, from, to)?;
    // What a look at a balance has shown is in no block.
    let rows = rows.into_iter().map(entry_row).collect::<Result<Vec<_>, _>>()?;
    let rows = rows.into_iter().filter(|row| row.found.key.place != Place::Balance);
    let mut stored: BTreeMap<EntryKey, EntryRow> = rows.map(|row| (row.found.key, row)).collect();
    // What the proof has here may stand in another block, where a node that lies has shown it. A change is alive in one block only, so
    // those that were found here need no second look.
    let Explained { entries, foreign } = explained(tx, chain, &proven.entries).await?;
    let elsewhere = entries.iter().filter(|one| !stored.contains_key(&one.key)).cloned().collect::<Vec<_>>();
    stored.extend(alive_at(tx, chain, &elsewhere).await?.into_iter().map(|row| (row.found.key, row)));
    let wanted: BTreeMap<EntryKey, &FoundEntry> = entries.iter().map(|one| (one.key, one)).collect();
    let differs = |row: &&EntryRow| wanted.get(&row.found.key).is_none_or(|one| !same_change(&row.found, one));
    let wrong: Vec<EntryRow> = stored.values().filter(differs).cloned().collect();
    let mut findings: Vec<Finding> =
        wrong.iter().map(|row| finding(FindingKind::Disproven, &row.found, &sources)).collect();
    take_back(tx, chain, &wrong, "the proof does not have it", at).await?;
    for row in &wrong {
        stored.remove(&row.found.key);
    }
    // All others are there already.
    let missing = entries.iter().filter(|one| !stored.contains_key(&one.key)).cloned().collect::<Vec<_>>();
    let new = write_entries(tx, chain, &missing, &proven.source, at).await?;
    // One that was there before may have stood in another block, by a liar's word: this node did not leave it out.
    let left_out = new.iter().filter(|one| !one.again);
    findings.extend(left_out.map(|one| finding(FindingKind::LeftOut, &one.found, &sources)));
    add_findings(tx, chain, &findings, at).await?;
    tell_foreign(tx, chain, &new, &foreign, at).await?;
    stop_foreign(tx, chain, &entries, &foreign, at).await?;
    set_proven(tx, chain, to, at).await?;
    Ok(Ok(Proof { taken_in: new.len(), disproven: wrong.len() }))
}

/// The entries that are alive under the keys of these, in whatever block.
pub(crate) async fn alive_at(tx: &mut Tx, chain: ChainId, wanted: &[FoundEntry]) -> Result<Vec<EntryRow>, StoreError> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let columns = vec![
        Column::Ints(vec![chain.0; wanted.len()]),
        Column::Bytes(wanted.iter().map(|one| one.key.transaction.0.to_vec()).collect()),
        Column::Strings(wanted.iter().map(|one| one.key.place.to_string()).collect()),
        Column::Ints(wanted.iter().map(|one| one.key.side.number()).collect()),
    ];
    let rows: Vec<EntryColumns> = fetch_rows(tx, &READ_ALIVE_AT, columns).await?;
    rows.into_iter().map(entry_row).collect()
}

/// But for whether it is a coinbase, which its row does not say.
pub(crate) fn same_change(stored: &FoundEntry, proven: &FoundEntry) -> bool {
    let FoundEntry { key, height, block, address, listing, amount, cause, coinbase: _ } = stored;
    (key, height, block, address, listing, amount, cause)
        == (&proven.key, &proven.height, &proven.block, &proven.address, &proven.listing, &proven.amount, &proven.cause)
}

pub(crate) fn finding(kind: FindingKind, entry: &FoundEntry, sources: &BTreeMap<i64, String>) -> Finding {
    let source = i64::try_from(entry.height).ok().and_then(|height| sources.get(&height));
    let detail = format!(
        "transaction {} {} at {} in block {}: {}",
        entry.key.transaction, entry.key.place, entry.address, entry.height, entry.amount
    );
    Finding { kind, subject: source.cloned().unwrap_or_default(), detail }
}

/// Coins left, and nothing of ours explains it.
pub(crate) async fn tell_foreign(
    tx: &mut Tx,
    chain: ChainId,
    new: &[NewEntry],
    foreign: &HashSet<Hash>,
    at: Timestamp,
) -> Result<(), StoreError> {
    let mut left: BTreeMap<Hash, BTreeSet<&str>> = BTreeMap::new();
    for one in new.iter().map(|one| &one.found).filter(|one| has_left(one, foreign)) {
        left.entry(one.key.transaction).or_default().insert(one.address.as_str());
    }
    let told = |(hash, addresses): (Hash, BTreeSet<&str>)| {
        let from = addresses.into_iter().collect::<Vec<_>>().join(", ");
        Finding {
            kind: FindingKind::ForeignSpend,
            subject: hash.to_string(),
            detail: format!("coins left {from}, and nothing of ours explains it"),
        }
    };
    let findings: Vec<Finding> = left.into_iter().map(told).collect();
    add_findings(tx, chain, &findings, at).await
}

/// Who can sign for one wallet of a group can sign for all of them: nothing more is sent from any. One node's word is not enough for that.
pub(crate) async fn stop_foreign(
    tx: &mut Tx,
    chain: ChainId,
    proven: &[FoundEntry],
    foreign: &HashSet<Hash>,
    at: Timestamp,
) -> Result<(), StoreError> {
    let left = || proven.iter().filter(|one| has_left(one, foreign));
    let addresses: BTreeSet<&str> = left().map(|one| one.address.as_str()).collect();
    let Some(first) = left().next() else { return Ok(()) };
    let why = format!("transaction {} took coins of {}, and is none of ours", first.key.transaction, first.address);
    stop_groups(tx, chain, &addresses, &why, at).await
}

fn has_left(one: &FoundEntry, foreign: &HashSet<Hash>) -> bool {
    one.key.side == Side::Out && foreign.contains(&one.key.transaction)
}

/// Takes back what is above a height. The caller removes the blocks.
pub(crate) async fn undo(
    tx: &mut Tx,
    chain: ChainId,
    locked: &Locked,
    down_to: i64,
    at: Timestamp,
) -> Result<usize, StoreError> {
    let rows = fetch_all!(tx, READ_ALIVE_ABOVE => EntryColumns, chain.0, down_to)?;
    let entries = rows.into_iter().map(entry_row).collect::<Result<Vec<_>, _>>()?;
    take_back(tx, chain, &entries, "its block left the chain", at).await?;
    if locked.proven > down_to {
        execute!(tx, SET_PROVEN, chain.0, down_to, at.micros())?;
    }
    Ok(entries.len())
}
