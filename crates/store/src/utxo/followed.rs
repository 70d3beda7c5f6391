//! What the processes that follow the chain share: how far a rescan has come, whether addresses were added, and a mark that they
//! also write down outside of the database.
//!
//! **What a rescan finds is held until the rescan has reached the last block.** A block that is not read yet may have spent it.
//! Only these outputs are held: every other one was known when the blocks above it were connected, so its spends are known.
//! They are held by a lease that has no end, so every path that selects, leases or spends obeys without looking here.

use std::collections::{BTreeSet, HashSet};

use domain::Timestamp;
use domain::utxo::check_sense;

use super::blocks::read_tip;
use super::events::{lock, read_again, refused};
use super::load::number;
use super::types::{Block, Changes, Hash, LockId, NewTx, UtxoError};
use super::wallet::{begin_restore, read_wallets};
use super::watch::Watch;
use crate::db::{Db, Tx};
use crate::entry::bitcoin;
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Bytes, ColumnType::Int, RowsSql, execute_rows};
use crate::transact;

statements! {
    READ_FOLLOWED = "SELECT addresses, rescan_next FROM utxo_followed";
    COUNT_ADDRESSES = "UPDATE utxo_followed SET addresses = addresses + $1";
    /// A rescan that is open and began lower has these blocks before it too.
    BEGIN_RESCAN = "UPDATE utxo_followed SET rescan_next = CASE WHEN rescan_next < $1 THEN rescan_next ELSE $1 END";
    /// Unless another process has begun one lower down meanwhile, or has read this block as well.
    ADVANCE_RESCAN = "UPDATE utxo_followed SET rescan_next = $1 + 1 WHERE rescan_next = $1";
    /// Not before it has passed the last block.
    END_RESCAN = "UPDATE utxo_followed SET rescan_next = NULL WHERE rescan_next > $1";
    RELEASE_FOUND = "DELETE FROM utxo_leases WHERE external_lock_id = $1";
    READ_MARK = "SELECT p.database_id, f.mark FROM utxo_followed f CROSS JOIN spot_pair p";
    /// Not in a database that is behind what was written down.
    RAISE_MARK = "UPDATE utxo_followed SET mark = mark + 1 WHERE mark >= $1 RETURNING mark";
    LIFT_MARK = "UPDATE utxo_followed SET mark = $1 WHERE mark < $1";
    READ_IN_BLOCK = "SELECT tx_hash FROM transactions WHERE block_height = $1";
    /// A block that pays nobody of ours has no row before.
    SET_CONNECTED = "INSERT INTO blocks (block_height, block_hash, block_time, connected) VALUES ($1, $2, $3, TRUE)
        ON CONFLICT (block_height) DO UPDATE SET connected = TRUE WHERE blocks.block_hash = excluded.block_hash AND NOT blocks.connected";
    READ_OUTPUTS_IN = "SELECT u.wallet_id, u.id FROM transactions t
            JOIN utxos u ON u.wallet_id = t.wallet_id AND u.tx_id = t.id
        WHERE t.block_height = $1";
}

/// Another lock's lease is taken over: its holder must not spend the output either.
static HOLD_FOUND: RowsSql = RowsSql::new(
    "HOLD_FOUND",
    "INSERT INTO utxo_leases (wallet_id, utxo_id, external_lock_id, expires_at)
     SELECT wallet, id, holder, until FROM {rows} WHERE TRUE
     ON CONFLICT (wallet_id, utxo_id) DO UPDATE
         SET external_lock_id = EXCLUDED.external_lock_id, expires_at = EXCLUDED.expires_at",
    &[("wallet", Int), ("id", Int), ("holder", Bytes), ("until", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 1] = [&HOLD_FOUND];

/// Holds what a rescan has found. It is nobody's to renew or to release.
pub const RESCAN_LOCK: LockId = LockId([0xff; 32]);

/// The end of a lease that has none. (`END_LEASES` leaves such a lease alone, although its output is spent: the spender may
/// turn out to be another one further up, or none.)
const WITHOUT_END: i64 = i64::MAX;

/// What followers of all processes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Followed {
    /// How many addresses were ever added.
    pub addresses: i64,
    /// The next block of the rescan that is open.
    pub rescan_next: Option<u32>,
}

/// The database's identity, and how often followers have raised its mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marked {
    pub database: i64,
    pub mark: i64,
}

impl Db {
    pub async fn marked(&self) -> Result<Marked, UtxoError> {
        let row = fetch_optional!(&mut self.read().await?, READ_MARK => (i64, i64))?;
        let (database, mark) = row.ok_or_else(|| super::load::corrupt("the row of utxo_followed is missing"))?;
        Ok(Marked { database, mark })
    }

    /// Raises the mark, and says what it is now. `None`: this database is behind `known`, which was written down outside of it,
    /// so it was put back from a backup.
    pub async fn raise_mark(&self, known: i64) -> Result<Option<i64>, UtxoError> {
        Ok(transact!(self, tx => Ok(fetch_optional!(tx, RAISE_MARK => (i64,), known)?.map(|row| row.0)))?)
    }

    /// This database was put back from a backup: until the nodes were asked, nothing of any wallet is selected, and what is
    /// pending may have been broadcast since. False: its mark is not behind `known`, and nothing was changed.
    pub async fn notice_backup(&self, known: i64, at: Timestamp) -> Result<bool, UtxoError> {
        Ok(transact!(self, tx => refused(restore_all(tx, known, at).await))??)
    }

    pub async fn followed(&self) -> Result<Followed, UtxoError> {
        Ok(read_followed(&mut self.read().await?).await?)
    }

    /// Blocks from this one on, up to the last, will be read again. What they turn out to pay us is held until then. It is
    /// kept in the database: whichever follower comes goes on with it.
    pub async fn begin_rescan(&self, from: u32) -> Result<(), UtxoError> {
        Ok(transact!(self, tx => {
            lock(tx).await?;
            execute!(tx, BEGIN_RESCAN, i64::from(from)).map(|_| ())
        })?)
    }

    /// A block of the chain that is stored, or lies below those, read once more for outputs that have become ours
    /// since. Where an import said otherwise, the block is right. If it is the next block of the rescan, that goes on; without a
    /// rescan nothing is read.
    pub async fn read_block_again(&self, block: &Block, txs: &[NewTx], at: Timestamp) -> Result<Changes, UtxoError> {
        txs.iter().try_for_each(check_sense)?;
        Ok(transact!(self, tx => refused(read_and_hold(tx, self.watch(), block, txs, at).await))??)
    }

    /// Every block was read up to this one, which is the last, and the mempool was shown. False: there are more blocks by now.
    pub async fn end_rescan(&self, tip: (u32, Hash)) -> Result<bool, UtxoError> {
        Ok(transact!(self, tx => {
            lock(tx).await?;
            if read_tip(tx).await? != Some(tip) || execute!(tx, END_RESCAN, i64::from(tip.0))? != 1 {
                return Ok(false);
            }
            execute!(tx, RELEASE_FOUND, RESCAN_LOCK.0.as_slice())?;
            Ok(true)
        })?)
    }
}

async fn restore_all(tx: &mut Tx, known: i64, at: Timestamp) -> Result<bool, UtxoError> {
    lock(tx).await?;
    // The same transaction: a crash leaves it unnoticed as a whole, and the next process notices it.
    if execute!(tx, LIFT_MARK, known)? == 0 {
        return Ok(false);
    }
    for wallet in read_wallets(tx).await? {
        begin_restore(tx, wallet.id, at).await?;
    }
    Ok(true)
}

async fn read_followed(tx: &mut Tx) -> Result<Followed, StoreError> {
    let row = fetch_optional!(tx, READ_FOLLOWED => (i64, Option<i64>))?;
    let (addresses, next) = row.ok_or_else(|| super::load::corrupt("the row of utxo_followed is missing"))?;
    Ok(Followed { addresses, rescan_next: next.map(number).transpose()? })
}

/// Addresses were added, in this transaction.
pub(super) async fn count_addresses(tx: &mut Tx, added: usize) -> Result<(), StoreError> {
    execute!(tx, COUNT_ADDRESSES, i64::try_from(added).unwrap_or(i64::MAX)).map(|_| ())
}

async fn read_and_hold(
    tx: &mut Tx,
    watch: &Watch,
    block: &Block,
    txs: &[NewTx],
    at: Timestamp,
) -> Result<Changes, UtxoError> {
    lock(tx).await?;
    // Another follower has ended the rescan while this one fetched the block. What it would find now, for an address that came
    // since, nobody would hold.
    if read_followed(tx).await?.rescan_next.is_none() {
        return Ok(Changes::default());
    }
    let before = outputs_in(tx, block.height).await?;
    let changes = read_again(tx, watch, block, txs, at).await?;
    // It was read whole, from nodes: what an import only claimed of it is known now.
    let own = fetch_all!(tx, READ_IN_BLOCK => (Vec<u8>,), i64::from(block.height))?;
    let shown: HashSet<&[u8]> = txs.iter().map(|one| one.hash.0.as_slice()).collect();
    if own.iter().all(|(hash,)| shown.contains(hash.as_slice())) {
        execute!(tx, SET_CONNECTED, i64::from(block.height), block.hash.0.as_slice(), i64::from(block.time))?;
    } else {
        tracing::warn!(height = block.height, "an import has transactions in this block that it does not have");
    }
    // What an address that was added since was paid is booked as any other block's.
    bitcoin::connected(tx, i64::from(block.height), i64::from(block.height), at).await?;
    let found: Vec<(i64, i64)> = outputs_in(tx, block.height).await?.difference(&before).copied().collect();
    hold(tx, &found).await?;
    execute!(tx, ADVANCE_RESCAN, i64::from(block.height))?;
    Ok(changes)
}

/// Wallets and ids of the outputs that transactions of a block have made.
async fn outputs_in(tx: &mut Tx, height: u32) -> Result<BTreeSet<(i64, i64)>, StoreError> {
    Ok(fetch_all!(tx, READ_OUTPUTS_IN => (i64, i64), i64::from(height))?.into_iter().collect())
}

async fn hold(tx: &mut Tx, found: &[(i64, i64)]) -> Result<(), StoreError> {
    if found.is_empty() {
        return Ok(());
    }
    let columns = vec![
        Column::Ints(found.iter().map(|one| one.0).collect()),
        Column::Ints(found.iter().map(|one| one.1).collect()),
        Column::Bytes(vec![RESCAN_LOCK.0.to_vec(); found.len()]),
        Column::Ints(vec![WITHOUT_END; found.len()]),
    ];
    execute_rows(tx, &HOLD_FOUND, columns).await.map(|_| ())
}
