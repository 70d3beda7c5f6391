//! What can happen to a wallet's transactions. Each is one transaction of the database: what the event can touch is
//! loaded, then decided in `domain::utxo`, then written. The same event again changes nothing.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use domain::utxo::{Graph, Word, check_sense};
use domain::{Approval, Timestamp};

use super::around::{Reach, Shown};
use super::blocks::{READ_BLOCKS, insert_blocks, read_tip};
use super::claimed::check_unclaimed_at;
use super::cluster::check_room;
use super::lease::check_leases;
use super::load::{Around, bytes, hash, number};
use super::types::{
    Block, Changes, FINAL_DEPTH, Hash, Imported, LockId, NewTx, OutPoint, Status, UtxoError, UtxoRefusal, WalletId,
    WalletStatus,
};
use super::wallet::mark_all_unread;
use super::watch::Watch;
use super::write::{Writer, Written};
use crate::db::{Db, Tx};
use crate::dialect::LOCK_UTXOS;
use crate::entry::bitcoin;
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Bytes, ColumnType::Int, RowsSql, execute_rows, fetch_rows};
use crate::transact;

statements! {
    DELETE_BLOCKS = "DELETE FROM blocks WHERE block_height > $1";
    /// Once for each wallet. (Not DISTINCT: SQLite would read all hashes in their order for it.)
    READ_ABOVE = "SELECT tx_hash FROM transactions WHERE block_height > $1";
    READ_HIGHEST_PRUNED = "SELECT MAX(block_height) FROM transaction_events WHERE status = 'pruned'";
    READ_WALLET = "SELECT status FROM wallets WHERE id = $1";
    READ_LAST_CONNECTED = "SELECT block_height, block_hash FROM blocks WHERE connected
        ORDER BY block_height DESC LIMIT 1";
}

/// Of these blocks those that an import has brought.
static READ_STALE: RowsSql = RowsSql::new(
    "READ_STALE",
    "SELECT b.block_height FROM {rows} {join} blocks b ON b.block_height = r.height AND b.block_hash = r.hash
     WHERE NOT b.connected",
    &[("height", Int), ("hash", Bytes)],
);

static READ_IN_BLOCKS: RowsSql = RowsSql::new(
    "READ_IN_BLOCKS",
    "SELECT t.tx_hash FROM {rows} {join} transactions t ON t.block_height = r.height",
    &[("height", Int)],
);

static READ_PRUNED_IN: RowsSql = RowsSql::new(
    "READ_PRUNED_IN",
    "SELECT e.block_height FROM {rows} {join} transaction_events e ON e.block_height = r.height
         AND e.status = 'pruned'",
    &[("height", Int)],
);

static DELETE_STALE: RowsSql = RowsSql::new(
    "DELETE_STALE",
    "DELETE FROM blocks WHERE NOT connected AND block_height IN (SELECT height FROM {rows})",
    &[("height", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 4] = [&READ_STALE, &READ_IN_BLOCKS, &READ_PRUNED_IN, &DELETE_STALE];

/// Lets a refusal pass through a transaction without a rollback: it is found before anything is written.
pub(crate) fn refused<T>(result: Result<T, UtxoError>) -> Result<Result<T, UtxoRefusal>, StoreError> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(UtxoError::Refused(refusal)) => Ok(Err(refusal)),
        Err(UtxoError::Store(error)) => Err(error),
    }
}

const fn by_chain(at: Timestamp) -> Written<'static> {
    Written { actor: "", words: None, at }
}

impl Db {
    /// The next block of the best chain. A block that is stored already is read once more for outputs that have become
    /// ours since, by an address that was added. Give all its transactions in the block's order, or at least those that
    /// pay us, spend an output of ours, or spend an outpoint that an unconfirmed transaction of ours spends.
    pub async fn connect_block(&self, block: &Block, txs: &[NewTx], at: Timestamp) -> Result<Changes, UtxoError> {
        txs.iter().try_for_each(check_sense)?;
        Ok(transact!(self, tx => refused(connect(tx, self.watch(), block, txs, at).await))??)
    }

    /// All blocks above a height leave the best chain. `stale` are their transactions, in the order of the blocks, as
    /// far as a node still has them: those that unconfirmed transactions of ours depend on are kept. `tip` is the last block
    /// that the caller has found to be on another branch: if another follower has gone on meanwhile, its blocks stay.
    pub async fn disconnect_blocks(
        &self,
        tip: (u32, Hash),
        down_to: u32,
        stale: &[NewTx],
        at: Timestamp,
    ) -> Result<Changes, UtxoError> {
        stale.iter().try_for_each(check_sense)?;
        Ok(transact!(self, tx => refused(disconnect(tx, tip, down_to, stale, at).await))??)
    }

    /// Removes blocks that an import has brought and the nodes do not have. Which blocks have their transactions is
    /// known only when the chain was read again from the lowest of them on; until then no wallet is spent from.
    pub async fn undo_imported(&self, blocks: &[(u32, Hash)], at: Timestamp) -> Result<Changes, UtxoError> {
        Ok(transact!(self, tx => refused(undo_imported(tx, blocks, at).await))??)
    }

    /// Transactions of another wallet's history, in blocks that need not follow each other, or in none.
    pub async fn import_transactions(&self, imported: &[Imported], at: Timestamp) -> Result<Changes, UtxoError> {
        let txs: Vec<NewTx> = imported.iter().map(|one| one.tx.clone()).collect();
        txs.iter().try_for_each(check_sense)?;
        Ok(transact!(self, tx => refused(import(tx, self.watch(), imported, &txs, Word::Claimed, at).await))??)
    }

    /// The mempool shows these.
    pub async fn see_transactions(&self, txs: &[NewTx], at: Timestamp) -> Result<Changes, UtxoError> {
        txs.iter().try_for_each(check_sense)?;
        Ok(transact!(self, tx => refused(see(tx, self.watch(), txs, None, at).await))??)
    }

    /// The same, and these are all that wait there: what is not among them gives way to a transaction that conflicts
    /// with it and is there again. `at` is when the mempool began to be read.
    pub async fn see_mempool(
        &self,
        txs: &[NewTx],
        waiting: &HashSet<Hash>,
        at: Timestamp,
    ) -> Result<Changes, UtxoError> {
        txs.iter().try_for_each(check_sense)?;
        Ok(transact!(self, tx => refused(see(tx, self.watch(), txs, Some(waiting), at).await))??)
    }

    /// A transaction that was made here and will be broadcast. It is stored before it is sent (law 3).
    pub async fn add_pending(
        &self,
        wallet: WalletId,
        new: &NewTx,
        lock: Option<LockId>,
        at: Timestamp,
    ) -> Result<Changes, UtxoError> {
        check_sense(new)?;
        Ok(transact!(self, tx => refused(make(tx, wallet, new, lock, false, at).await))??)
    }

    /// The same, for one that takes inputs of unconfirmed transactions of ours (RBF).
    pub async fn replace(
        &self,
        wallet: WalletId,
        new: &NewTx,
        lock: Option<LockId>,
        at: Timestamp,
    ) -> Result<Changes, UtxoError> {
        check_sense(new)?;
        Ok(transact!(self, tx => refused(make(tx, wallet, new, lock, true, at).await))??)
    }

    /// A pending transaction is about to be broadcast. Call this before the broadcast, so that a transaction that is
    /// still pending was certainly never sent.
    pub async fn publish(&self, hash: Hash, at: Timestamp) -> Result<Changes, UtxoError> {
        Ok(transact!(self, tx => refused(publish(tx, hash, at).await))??)
    }

    /// Gives up a transaction that was never broadcast. One that was may still be mined; it can only be replaced.
    pub async fn abandon(&self, hash: Hash, actor: &str, reason: &str, at: Timestamp) -> Result<Changes, UtxoError> {
        let written = Written { actor, words: Some((hash, reason)), at };
        Ok(transact!(self, tx => refused(end_by_hand(tx, hash, written, |graph, hash| graph.abandoned(hash)).await))??)
    }

    /// Two people give up a published transaction that is in no block: they have seen that it can never be mined. What
    /// depends on it fails with it. A node that shows it brings it back.
    pub async fn give_up(&self, hash: Hash, people: &Approval, at: Timestamp) -> Result<Changes, UtxoError> {
        let words = people.to_string();
        let written = Written { actor: people.actor(), words: Some((hash, &words)), at };
        Ok(transact!(self, tx => refused(end_by_hand(tx, hash, written, |graph, hash| graph.given_up(hash)).await))??)
    }
}

pub(crate) async fn lock(tx: &mut Tx) -> Result<(), StoreError> {
    fetch_optional!(tx, LOCK_UTXOS => (String,)).map(|_| ())
}

/// A wallet that is being restored must not be spent from: its rows may be older than the chain.
pub(super) async fn check_active(tx: &mut Tx, wallet: WalletId) -> Result<(), UtxoError> {
    let (status,) = fetch_optional!(tx, READ_WALLET => (String,), wallet.0)?.ok_or(UtxoRefusal::UnknownWallet)?;
    if status == WalletStatus::Active.text() { Ok(()) } else { Err(UtxoRefusal::Restoring.into()) }
}

async fn connect(
    tx: &mut Tx,
    watch: &Watch,
    block: &Block,
    txs: &[NewTx],
    at: Timestamp,
) -> Result<Changes, UtxoError> {
    lock(tx).await?;
    let there = fetch_all!(tx, READ_BLOCKS => (i64, Vec<u8>), i64::from(block.height), i64::from(block.height))?;
    let again = there.first().is_some_and(|(_, bytes)| bytes == &block.hash.0);
    if let Some((height, tip)) = read_tip(tx).await?
        && !again
        && (height.checked_add(1) != Some(block.height) || tip != block.parent)
    {
        return Err(UtxoRefusal::NotOnTip(Some((height, tip))).into());
    }
    let sifted = watch.sift(tx, txs).await?;
    let (mut around, relevant) = Around::shown(tx, &sifted, Shown::InBlocks).await?;
    for new in relevant {
        around.graph.connected(new, (block.height, block.hash), Word::New)?;
    }
    if !again {
        insert_blocks(tx, &[(block.height, block.hash, block.time)], true).await?;
    }
    let changes = write(tx, around, by_chain(at)).await?;
    // What the block means for the books is written with it.
    bitcoin::connected(tx, i64::from(block.height), i64::from(block.height), at).await?;
    Ok(changes)
}

/// Writes what was decided, with what follows for outputs that are claimed.
async fn write(tx: &mut Tx, mut around: Around<'_>, written: Written<'_>) -> Result<Changes, UtxoError> {
    around.load_claims(tx).await?;
    write_loaded(tx, around, written).await
}

async fn write_loaded(tx: &mut Tx, mut around: Around<'_>, written: Written<'_>) -> Result<Changes, UtxoError> {
    around.graph.settle();
    Ok(Writer(&around.graph).write(tx, written).await?)
}

async fn disconnect(
    tx: &mut Tx,
    tip: (u32, Hash),
    down_to: u32,
    stale: &[NewTx],
    at: Timestamp,
) -> Result<Changes, UtxoError> {
    lock(tx).await?;
    let last = read_tip(tx).await?;
    if last != Some(tip) {
        return Err(UtxoRefusal::NotOnTip(last).into());
    }
    let pruned = fetch_optional!(tx, READ_HIGHEST_PRUNED => (Option<i64>,))?.and_then(|row| row.0);
    if let Some(pruned) = pruned.map(number).transpose()?.filter(|pruned| *pruned > down_to) {
        return Err(UtxoRefusal::ReorgTooDeep { pruned }.into());
    }
    let rows = fetch_all!(tx, READ_ABOVE => (Vec<u8>,), i64::from(down_to))?;
    let hashes: BTreeSet<Hash> = rows.iter().map(|row| hash(&row.0)).collect::<Result<_, _>>()?;
    let changes = leave_chain(tx, hashes, stale, at).await?;
    bitcoin::disconnected(tx, i64::from(down_to), at).await?;
    execute!(tx, DELETE_BLOCKS, i64::from(down_to))?;
    Ok(changes)
}

async fn undo_imported(tx: &mut Tx, blocks: &[(u32, Hash)], at: Timestamp) -> Result<Changes, UtxoError> {
    lock(tx).await?;
    if blocks.is_empty() {
        return Ok(Changes::default());
    }
    let columns =
        vec![Column::Ints(blocks.iter().map(|one| i64::from(one.0)).collect()), bytes(blocks.iter().map(|one| &one.1))];
    let rows: Vec<(i64,)> = fetch_rows(tx, &READ_STALE, columns).await?;
    let stale: Vec<i64> = rows.into_iter().map(|(height,)| height).collect();
    let Some(lowest) = stale.iter().min().copied().map(number).transpose()? else { return Ok(Changes::default()) };
    let heights = || vec![Column::Ints(stale.clone())];
    let pruned: Vec<(i64,)> = fetch_rows(tx, &READ_PRUNED_IN, heights()).await?;
    if let Some((pruned,)) = pruned.first() {
        return Err(UtxoRefusal::ReorgTooDeep { pruned: number(*pruned)? }.into());
    }
    let rows: Vec<(Vec<u8>,)> = fetch_rows(tx, &READ_IN_BLOCKS, heights()).await?;
    let hashes = rows.iter().map(|row| hash(&row.0)).collect::<Result<_, _>>()?;
    let changes = leave_chain(tx, hashes, &[], at).await?;
    execute_rows(tx, &DELETE_STALE, heights()).await?;
    // The branch that they were on may have begun below them.
    mark_all_unread(tx, lowest.saturating_sub(FINAL_DEPTH)).await?;
    Ok(changes)
}

/// Their blocks are gone. `stale` are transactions of these blocks, as far as somebody still has their bytes.
async fn leave_chain(
    tx: &mut Tx,
    hashes: BTreeSet<Hash>,
    stale: &[NewTx],
    at: Timestamp,
) -> Result<Changes, UtxoError> {
    let mut around = Around::default();
    around.load_entries(tx, hashes.iter().copied()).await?;
    let entries = &around.graph.entries;
    let is_coinbase = |one: &&Hash| entries.get(*one).is_some_and(|entry| entry.coinbase);
    let orphans: BTreeSet<Hash> = hashes.iter().filter(is_coinbase).copied().collect();
    let shown: BTreeSet<Hash> = stale.iter().map(|one| one.hash).collect();
    // A coinbase that is nobody's may be among those shown, and others of them may spend it.
    let may_fall = orphans.union(&shown).copied().collect();
    let touched = hashes.union(&shown).copied().collect();
    around.load_stale(tx, stale).await?;
    around.close(tx, Reach { touched, may_fall, may_rise: BTreeSet::new() }).await?;
    around.graph.gone(&hashes, stale)?;
    write(tx, around, by_chain(at)).await
}

/// A block that is read again is an import whose word is better than a source's.
pub(super) async fn read_again(
    tx: &mut Tx,
    watch: &Watch,
    block: &Block,
    txs: &[NewTx],
    at: Timestamp,
) -> Result<Changes, UtxoError> {
    let place = Some((block.height, block.hash, block.time));
    let read: Vec<Imported> = txs.iter().map(|tx| Imported { tx: tx.clone(), block: place, lost: false }).collect();
    import(tx, watch, &read, txs, Word::Read, at).await
}

async fn import(
    tx: &mut Tx,
    watch: &Watch,
    imported: &[Imported],
    txs: &[NewTx],
    word: Word,
    at: Timestamp,
) -> Result<Changes, UtxoError> {
    lock(tx).await?;
    let mut blocks: BTreeMap<u32, (Hash, u32)> = BTreeMap::new();
    for (height, block, time) in imported.iter().filter_map(|one| one.block) {
        if blocks.insert(height, (block, time)).is_some_and(|(other, _)| other != block) {
            return Err(UtxoRefusal::BadTransaction("two blocks of one height").into());
        }
    }
    if let (Some(first), Some(last)) = (blocks.keys().next(), blocks.keys().next_back()) {
        let rows = fetch_all!(tx, READ_BLOCKS => (i64, Vec<u8>), i64::from(*first), i64::from(*last))?;
        for (height, stored) in rows {
            let known = blocks.remove(&number(height)?);
            if known.is_some_and(|(block, _)| block.0 != stored.as_slice()) {
                return Err(UtxoRefusal::NotOnTip(Some((number(height)?, hash(&stored)?))).into());
            }
        }
    }
    // Above the last block that was followed, whole blocks must be read: an import has only some of their transactions.
    let connected = fetch_optional!(tx, READ_LAST_CONNECTED => (i64, Vec<u8>))?;
    if let (Some(_), Some((tip, last))) = (connected, read_tip(tx).await?)
        && blocks.keys().next_back().is_some_and(|highest| *highest > tip)
    {
        return Err(UtxoRefusal::NotOnTip(Some((tip, last))).into());
    }
    let new_blocks: Vec<(u32, Hash, u32)> =
        blocks.into_iter().map(|(height, (block, time))| (height, block, time)).collect();
    let how = if imported.iter().all(|one| one.block.is_some()) { Shown::InBlocks } else { Shown::Unconfirmed };
    let sifted = watch.sift(tx, txs).await?;
    let (mut around, relevant) = Around::shown(tx, &sifted, how).await?;
    let graph = &mut around.graph;
    let sources: BTreeMap<Hash, &Imported> = imported.iter().map(|one| (one.tx.hash, one)).collect();
    for (new, source) in relevant.into_iter().filter_map(|new| Some((new, *sources.get(&new.hash)?))) {
        match source.block {
            Some((height, block, _)) => graph.connected(new, (height, block), word)?,
            None if new.coinbase => return Err(UtxoRefusal::BadTransaction("a coinbase is always in a block").into()),
            // The transaction that beat it is here already, and must not be replaced by it.
            None if source.lost && !graph.entries.contains_key(&new.hash) && !graph.conflicts(new).is_empty() => {
                graph.lost(new);
            }
            None => graph.seen(new, &HashSet::new())?,
        }
    }
    insert_blocks(tx, &new_blocks, false).await?;
    write(tx, around, by_chain(at)).await
}

async fn see(
    tx: &mut Tx,
    watch: &Watch,
    txs: &[NewTx],
    waiting: Option<&HashSet<Hash>>,
    at: Timestamp,
) -> Result<Changes, UtxoError> {
    if txs.iter().any(|one| one.coinbase) {
        return Err(UtxoRefusal::BadTransaction("a coinbase is never unconfirmed").into());
    }
    lock(tx).await?;
    let sifted = watch.sift(tx, txs).await?;
    let (mut around, relevant) = Around::shown(tx, &sifted, Shown::Unconfirmed).await?;
    let absent = match waiting {
        None => HashSet::new(),
        Some(waiting) => around.absent(tx, &relevant, waiting, at).await?,
    };
    for new in relevant {
        around.graph.seen(new, &absent)?;
    }
    write(tx, around, by_chain(at)).await
}

pub(crate) async fn make(
    tx: &mut Tx,
    wallet: WalletId,
    new: &NewTx,
    lease: Option<LockId>,
    replaces: bool,
    at: Timestamp,
) -> Result<Changes, UtxoError> {
    lock(tx).await?;
    check_active(tx, wallet).await?;
    let (mut around, _) = Around::shown(tx, &[new], Shown::Unconfirmed).await?;
    let graph = &mut around.graph;
    match graph.state(new.hash).map(|state| state.status) {
        None => {}
        Some(status) if status.is_valid() => return Ok(Changes::default()),
        // An answer without a refusal would promise that its inputs are reserved.
        Some(status) => return Err(UtxoRefusal::Ended(new.hash, status).into()),
    }
    check_room(tx, wallet, new, &graph.check_own(wallet, new, replaces)?).await?;
    graph.check_mature(new, read_tip(tx).await?.map(|(tip, _)| tip))?;
    let ours: Vec<OutPoint> = new.inputs.iter().filter(|input| graph.coin(input).is_some()).copied().collect();
    graph.made(wallet, new, replaces)?;
    around.load_claims(tx).await?;
    // First lock all outputs in one order, then look at their leases: no lease can be taken in between.
    Writer(&around.graph).lock_affected(tx, &ours).await?;
    check_leases(tx, &ours, lease, at).await?;
    check_unclaimed_at(tx, &ours).await?;
    write_loaded(tx, around, by_chain(at)).await
}

async fn publish(tx: &mut Tx, hash: Hash, at: Timestamp) -> Result<Changes, UtxoError> {
    lock(tx).await?;
    let mut around = Around::default();
    around.load_entries(tx, [hash]).await?;
    match around.graph.state(hash).map(|state| state.status) {
        None => Err(UtxoRefusal::UnknownTransaction(hash).into()),
        Some(Status::Published) => Ok(Changes::default()),
        Some(Status::Pending) => publish_all(tx, vec![hash], "broadcast", at).await,
        Some(status) => Err(UtxoRefusal::NotPending(hash, status).into()),
    }
}

/// Publishes pending transactions with those that they spend: a node that gets one needs the others.
pub(crate) async fn publish_all(
    tx: &mut Tx,
    pending: Vec<Hash>,
    reason: &'static str,
    at: Timestamp,
) -> Result<Changes, UtxoError> {
    let mut around = Around::default();
    around.load_pending(tx, &pending).await?;
    around.graph.published(&pending, reason);
    write(tx, around, by_chain(at)).await
}

/// Somebody says of one transaction that it has ended.
async fn end_by_hand(
    tx: &mut Tx,
    hash: Hash,
    written: Written<'_>,
    decide: fn(&mut Graph<'_>, Hash) -> Result<(), UtxoRefusal>,
) -> Result<Changes, UtxoError> {
    lock(tx).await?;
    let mut around = Around::default();
    around.load_entries(tx, [hash]).await?;
    // In a backup that was put back it may be another than it is: pending though it was broadcast, waiting though it is mined.
    for wallet in around.graph.entries.get(&hash).map(|entry| entry.stored_in.clone()).unwrap_or_default() {
        check_active(tx, wallet).await?;
    }
    let touched = BTreeSet::from([hash]);
    around.load_once(tx, &[hash]).await?;
    around.close(tx, Reach { may_fall: touched.clone(), touched, may_rise: BTreeSet::new() }).await?;
    around.load_prospects(tx, BTreeSet::from([hash])).await?;
    decide(&mut around.graph, hash)?;
    write(tx, around, written).await
}
