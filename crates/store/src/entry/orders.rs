//! What people order a chain's worker to do: to read blocks again, to go back, to go on.

use std::collections::BTreeMap;

use domain::deposit::Place;
use domain::utxo::Hash;
use domain::{Approval, ChainKind, Timestamp};

use super::blocks::{
    DELETE_BLOCKS_ABOVE, Passed, READ_ALIVE_BETWEEN, READ_BLOCKS_BETWEEN, alive_at, finding, in_a_row, insert_trail,
    same_change, stop_foreign, tell_foreign, undo,
};
use super::cursor::{CursorError, CursorRow, HALT, LOCK_CURSOR, Locked, Worker, lock_moving};
use super::findings::{Finding, FindingKind, add_findings, add_resolved};
use super::look::READ_BLOCK_HASH;
use super::types::{ChainId, ChainRow, EntryKey, FoundEntry, hash_of, height_of, row_height};
use super::write::{EntryColumns, EntryRow, entry_row, take_back, write_entries};
use crate::db::{Db, Tx};
use crate::error::StoreError;
use crate::outbound::explain::{Explained, explained};
use crate::transact;

/// Why an order is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderRefusal {
    #[error("the payments of this chain are not kept yet")]
    NotBegun,
    #[error("the chain's books begin with block {first}, and are proven up to block {proven}")]
    OutOfRange { first: i64, proven: i64 },
    #[error("the blocks of Bitcoin are read by its own follower")]
    Bitcoin,
    #[error("the chain is not halted")]
    NotHalted,
    #[error("the quorum has another block {height} than was read: the chain parts from ours below it")]
    PartsBelow { height: u64 },
}

statements! {
    /// Rules look at what changed since the last block that they know. What was found below it they see when they look at all addresses. Each
    /// order writes another number: a pass that is under way sees that it counts no more.
    EVALUATE_AGAIN = "UPDATE rule_cursors SET passed_address = NULL, passed_at = CASE WHEN passed_at > 0 THEN 0 ELSE passed_at - 1 END WHERE chain_id = $1";
    READ_ENTRY_BLOCKS = "SELECT DISTINCT height, block_hash FROM chain_entries
        WHERE chain_id = $1 AND height <= $2 AND alive ORDER BY height DESC LIMIT $3";
    READ_FIRST = "SELECT first_height FROM chain_cursors WHERE chain_id = $1";
    READ_RESCAN = "SELECT rescan_from, rescan_to FROM chain_cursors WHERE chain_id = $1 AND rescan_from IS NOT NULL";
    SET_RESCAN = "UPDATE chain_cursors SET rescan_from = $2, rescan_to = $3, updated_at = $4 WHERE chain_id = $1";
    /// Whoever reads the chain now is told by the number that it has changed.
    RAISE_FENCE = "UPDATE chain_cursors SET fence = fence + 1, lease_until = 0 WHERE chain_id = $1";
}

/// Ordered by people: the chain's row, whoever reads the chain.
async fn ordered(tx: &mut Tx, chain: &ChainRow) -> Result<Result<(i64, Locked), OrderRefusal>, StoreError> {
    if chain.kind == ChainKind::Bitcoin {
        return Ok(Err(OrderRefusal::Bitcoin));
    }
    let Some((_, _, _, halted, proven)) = fetch_optional!(tx, LOCK_CURSOR => CursorRow, chain.id.0)? else {
        return Ok(Err(OrderRefusal::NotBegun));
    };
    let first = fetch_optional!(tx, READ_FIRST => (i64,), chain.id.0)?.map_or(0, |row| row.0);
    Ok(Ok((first, Locked { proven, halted })))
}

impl Db {
    /// Blocks to be read again: what they pay to addresses that were not watched then, or in coins that were not listed, is taken
    /// in. Beside an order that is not done yet both are.
    pub async fn order_rescan(
        &self,
        chain: &ChainRow,
        (from, to): (u64, u64),
        at: Timestamp,
    ) -> Result<Result<(), OrderRefusal>, StoreError> {
        let (from, to) = (row_height(from)?, row_height(to)?);
        transact!(self, tx => {
            let (first, locked) = match ordered(tx, chain).await? {
                Ok(ordered) => ordered,
                Err(refusal) => return Ok(Err(refusal)),
            };
            if from <= first || to > locked.proven || from > to {
                return Ok(Err(OrderRefusal::OutOfRange { first, proven: locked.proven }));
            }
            let open = fetch_optional!(tx, READ_RESCAN => (i64, i64), chain.id.0)?;
            let (from, to) = open.map_or((from, to), |(open_from, open_to)| (from.min(open_from), to.max(open_to)));
            execute!(tx, SET_RESCAN, chain.id.0, Some(from), Some(to), at.micros())?;
            Ok(Ok(()))
        })
    }

    /// No blocks are read again any more. Says whether there were any.
    pub async fn stop_rescan(&self, chain: &ChainRow, at: Timestamp) -> Result<bool, StoreError> {
        transact!(self, tx => {
            fetch_optional!(tx, LOCK_CURSOR => CursorRow, chain.id.0)?;
            let open = fetch_optional!(tx, READ_RESCAN => (i64, i64), chain.id.0)?;
            execute!(tx, SET_RESCAN, chain.id.0, None::<i64>, None::<i64>, at.micros())?;
            Ok(open.is_some())
        })
    }

    /// Blocks that were read again, proven. What they have and the books have not is taken in, and what means something else by now is
    /// booked anew; what only the books have is told, and stays: the nodes may no longer show everything of old blocks. Says how
    /// much is new.
    pub async fn rescan_blocks(&self, worker: &Worker, proven: &Passed, at: Timestamp) -> Result<usize, CursorError> {
        transact!(self, tx => {
            match lock_moving(tx, worker).await? {
                Ok(locked) => rescan(tx, worker.chain, &locked, proven, at).await,
                Err(refused) => Ok(Err(refused)),
            }
        })?
    }

    /// A halted chain goes on where it is, by the word of one person: what halted it was the nodes' fault.
    pub async fn resume_chain(
        &self,
        chain: &ChainRow,
        (actor, reason): (&str, &str),
        at: Timestamp,
    ) -> Result<Result<(), OrderRefusal>, StoreError> {
        transact!(self, tx => {
            match ordered(tx, chain).await? {
                Ok((_, Locked { halted: None, .. })) => return Ok(Err(OrderRefusal::NotHalted)),
                Ok(_) => {}
                Err(refusal) => return Ok(Err(refusal)),
            }
            execute!(tx, HALT, chain.id.0, None::<&str>, at.micros())?;
            let told = Finding {
                kind: FindingKind::Resumed,
                subject: chain.name.to_string(),
                detail: reason.to_owned(),
            };
            add_resolved(tx, chain.id, &told, actor, at).await?;
            Ok(Ok(()))
        })
    }

    /// The newest blocks up to a height that have paid or cost us something, as they were read.
    pub async fn entry_blocks(&self, chain: ChainId, up_to: u64, most: i64) -> Result<Vec<(u64, Hash)>, StoreError> {
        let up_to = row_height(up_to)?;
        let rows = fetch_all!(&mut self.read().await?, READ_ENTRY_BLOCKS => (i64, Vec<u8>), chain.0, up_to, most)?;
        rows.into_iter().map(|(height, hash)| Ok((height_of(height)?, hash_of(&hash)?))).collect()
    }

    /// Two people take everything above a block back, however deep it is: the chain has parted from ours there. The block itself
    /// is what a quorum has at that height. Says how many entries were taken back.
    pub async fn rewind_chain(
        &self,
        chain: &ChainRow,
        (height, hash): (u64, Hash),
        people: &Approval,
        at: Timestamp,
    ) -> Result<Result<usize, OrderRefusal>, StoreError> {
        let height = row_height(height)?;
        transact!(self, tx => {
            let (first, locked) = match ordered(tx, chain).await? {
                Ok(ordered) => ordered,
                Err(refusal) => return Ok(Err(refusal)),
            };
            if height < first || height > locked.proven {
                return Ok(Err(OrderRefusal::OutOfRange { first, proven: locked.proven }));
            }
            let ours = fetch_optional!(tx, READ_BLOCK_HASH => (Vec<u8>,), chain.id.0, height)?;
            if ours.as_ref().is_some_and(|(ours,)| ours.as_slice() != hash.0) {
                return Ok(Err(OrderRefusal::PartsBelow { height: height_of(height)? }));
            }
            let count = undo(tx, chain.id, &locked, height, at).await?;
            execute!(tx, DELETE_BLOCKS_ABOVE, chain.id.0, height)?;
            if ours.is_none() {
                insert_trail(tx, chain.id, &[(height, hash)], "").await?;
            }
            // What is above is read anyhow; what is below is still to be read again.
            let open = fetch_optional!(tx, READ_RESCAN => (i64, i64), chain.id.0)?;
            let rest = open.map(|(from, to)| (from, to.min(height))).filter(|(from, to)| from <= to);
            execute!(tx, SET_RESCAN, chain.id.0, rest.map(|(from, _)| from), rest.map(|(_, to)| to), at.micros())?;
            execute!(tx, HALT, chain.id.0, None::<&str>, at.micros())?;
            execute!(tx, RAISE_FENCE, chain.id.0)?;
            let told = Finding {
                kind: FindingKind::Rewound,
                subject: chain.name.to_string(),
                detail: format!("to block {height}, {count} entries taken back: {people}"),
            };
            add_resolved(tx, chain.id, &told, people.actor(), at).await?;
            Ok(Ok(count))
        })
    }
}

async fn rescan(
    tx: &mut Tx,
    chain: ChainId,
    locked: &Locked,
    proven: &Passed,
    at: Timestamp,
) -> Result<Result<usize, CursorError>, StoreError> {
    let (Some(first), Some(last)) = (proven.blocks.first(), proven.blocks.last()) else { return Ok(Ok(0)) };
    let (from, to) = (row_height(first.height)?, row_height(last.height)?);
    let trail = fetch_all!(tx, READ_BLOCKS_BETWEEN => (i64, Vec<u8>, String), chain.0, from, to)?;
    let hashes: BTreeMap<i64, Hash> = proven
        .blocks
        .iter()
        .map(|block| Ok((row_height(block.height)?, block.hash)))
        .collect::<Result<_, StoreError>>()?;
    let others = trail.iter().any(|(height, hash, _)| hashes.get(height).is_none_or(|ours| hash.as_slice() != ours.0));
    let open = fetch_optional!(tx, READ_RESCAN => (i64, i64), chain.0)?;
    let Some((_, until)) = open.filter(|(next, until)| *next == from && *until >= to) else {
        return Ok(Err(CursorError::NotOnTrail));
    };
    if others || to > locked.proven || !in_a_row(&proven.blocks) {
        return Ok(Err(CursorError::NotOnTrail));
    }
    let rows = fetch_all!(tx, READ_ALIVE_BETWEEN => EntryColumns, chain.0, from, to)?;
    let mut rows = rows.into_iter().map(entry_row).collect::<Result<Vec<EntryRow>, _>>()?;
    let Explained { entries, foreign } = explained(tx, chain, &proven.entries).await?;
    rows.extend(alive_at(tx, chain, &entries).await?);
    let shown: BTreeMap<EntryKey, &FoundEntry> = entries.iter().map(|one| (one.key, one)).collect();
    let stored: BTreeMap<EntryKey, EntryRow> =
        rows.into_iter().filter(|row| row.found.key.place != Place::Balance).map(|row| (row.found.key, row)).collect();
    // A wallet that was pinned since makes a payment a move within the house: both halves of it must say so.
    let changed = |row: &&EntryRow| shown.get(&row.found.key).is_some_and(|one| !same_change(&row.found, one));
    let changed: Vec<EntryRow> = stored.values().filter(changed).cloned().collect();
    take_back(tx, chain, &changed, "it was read again, and means something else", at).await?;
    let nobody = BTreeMap::new();
    let gone = stored.values().filter(|row| !shown.contains_key(&row.found.key));
    let mut findings: Vec<Finding> = gone.map(|row| finding(FindingKind::NotFoundAgain, &row.found, &nobody)).collect();
    let new = write_entries(tx, chain, &entries, &proven.source, at).await?;
    findings.extend(new.iter().map(|one| finding(FindingKind::FoundLate, &one.found, &nobody)));
    add_findings(tx, chain, &findings, at).await?;
    tell_foreign(tx, chain, &new, &foreign, at).await?;
    stop_foreign(tx, chain, &entries, &foreign, at).await?;
    if !new.is_empty() {
        execute!(tx, EVALUATE_AGAIN, chain.0)?;
    }
    let rest = (to < until).then_some((to + 1, until));
    execute!(tx, SET_RESCAN, chain.0, rest.map(|(from, _)| from), rest.map(|(_, to)| to), at.micros())?;
    Ok(Ok(new.len()))
}
