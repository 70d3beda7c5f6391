//! The only delete of a transaction: an operator asks for it, it is final, and the history keeps a row of it.

use std::collections::BTreeSet;

use domain::Timestamp;

use super::blocks::read_tip;
use super::events::{lock, refused};
use super::load::{self, hash, status};
use super::types::{FINAL_DEPTH, Hash, Status, UtxoError, UtxoRefusal, WalletId};
use crate::db::{Db, Tx};
use crate::error::StoreError;
use crate::transact;

/// How many transactions that one depends on are looked at; with a longer line of them it is not pruned.
const MOST_ANCESTORS: usize = 1_000;

statements! {
    READ_PRUNED_TX = "SELECT id, status, block_height FROM transactions WHERE wallet_id = $1 AND tx_hash = $2";

    /// Outputs of it that are not spent by something final; and outputs of ours that it spends.
    COUNT_OPEN_OUTPUTS = "SELECT COUNT(*) FROM utxos u
            LEFT JOIN transactions s ON s.wallet_id = u.wallet_id AND s.id = u.spent_by_tx_id
        WHERE u.wallet_id = $1 AND u.tx_id = $2 AND (s.block_height IS NULL OR s.block_height > $3)";
    COUNT_SPENT_OUTPUTS = "SELECT COUNT(*) FROM utxos WHERE wallet_id = $1 AND spent_by_tx_id = $2";

    /// Transactions that it kept from being mined. Without it nothing proves that they cannot be.
    COUNT_RIVALS = "SELECT COUNT(*) FROM tx_inputs i
            JOIN tx_inputs o ON o.prev_hash = i.prev_hash AND o.prev_index = i.prev_index AND NOT o.active
        WHERE i.wallet_id = $1 AND i.tx_id = $2 AND o.wallet_id = $1";

    /// Something final that has spent an input of it.
    COUNT_FINAL_CONFLICTS = "SELECT COUNT(*) FROM tx_inputs i
            JOIN tx_inputs o ON o.prev_hash = i.prev_hash AND o.prev_index = i.prev_index AND o.active
            JOIN transactions s ON s.wallet_id = o.wallet_id AND s.id = o.tx_id
        WHERE i.wallet_id = $1 AND i.tx_id = $2 AND s.block_height <= $3";

    /// Transactions that spend it, in any wallet. Without it they would seem to spend an output that is still there.
    COUNT_CHILDREN = "SELECT COUNT(*) FROM tx_inputs WHERE prev_hash = $1 AND active";
    COUNT_DEAD_CHILDREN = "SELECT COUNT(*) FROM tx_inputs WHERE prev_hash = $1 AND NOT active";

    /// Invalid transactions that it spends from.
    READ_DEAD_PARENTS = "SELECT DISTINCT p.id, p.tx_hash FROM tx_inputs i
            JOIN transactions p ON p.tx_hash = i.prev_hash AND p.wallet_id = i.wallet_id
        WHERE i.wallet_id = $1 AND i.tx_id = $2 AND p.status NOT IN ('pending', 'published')";

    /// The highest block that has spent an output of it.
    READ_LAST_SPENT = "SELECT MAX(s.block_height) FROM utxos u
            JOIN transactions s ON s.wallet_id = u.wallet_id AND s.id = u.spent_by_tx_id
        WHERE u.wallet_id = $1 AND u.tx_id = $2";

    /// Whether it was ever published, and the highest block that it was in.
    READ_PAST = "SELECT COUNT(*), MAX(block_height) FROM transaction_events
        WHERE wallet_id = $1 AND tx_hash = $2 AND status = 'published'";

    /// Both columns: a spender without an input would break their pair.
    CLEAR_SPENDS = "UPDATE utxos SET spent_by_tx_id = NULL, spent_input_index = NULL
        WHERE wallet_id = $1 AND spent_by_tx_id = $2";
    DELETE_OUTPUTS = "DELETE FROM utxos WHERE wallet_id = $1 AND tx_id = $2";
    DELETE_TRANSACTION = "DELETE FROM transactions WHERE wallet_id = $1 AND id = $2";
    INSERT_PRUNED = "INSERT INTO transaction_events (wallet_id, tx_hash, status, block_height, reason, actor, at)
        VALUES ($1, $2, 'pruned', $3, $4, $5, $6)";

    /// Those of this wallet that may be final, the oldest first; each is examined before it goes.
    READ_PRUNABLE = "SELECT t.tx_hash FROM transactions t
        WHERE t.wallet_id = $1 AND t.id > $2
            AND (t.status IN ('replaced', 'failed', 'orphaned') OR t.block_height <= $3)
            AND NOT EXISTS (SELECT 1 FROM utxos u
                    LEFT JOIN transactions s ON s.wallet_id = u.wallet_id AND s.id = u.spent_by_tx_id
                WHERE u.wallet_id = t.wallet_id AND u.tx_id = t.id AND u.valid
                    AND (s.block_height IS NULL OR s.block_height > $3))
            AND NOT EXISTS (SELECT 1 FROM utxos u WHERE u.wallet_id = t.wallet_id AND u.spent_by_tx_id = t.id)
        ORDER BY t.id LIMIT 1000";
    READ_PRUNABLE_ID = "SELECT id FROM transactions WHERE wallet_id = $1 AND tx_hash = $2";
}

impl Db {
    /// Deletes a transaction with its outputs, inputs, labels and replacements. Refuses one that is not final: that
    /// could still be mined, that a reorganisation could undo, or without which an output would look unspent.
    pub async fn prune(
        &self,
        wallet: WalletId,
        wanted: Hash,
        actor: &str,
        reason: &str,
        at: Timestamp,
    ) -> Result<(), UtxoError> {
        Ok(transact!(self, tx => refused(prune(tx, wallet, wanted, (actor, reason), at).await))??)
    }

    /// Says what [`Db::prune`] would, and deletes nothing.
    pub async fn may_prune(&self, wallet: WalletId, wanted: Hash) -> Result<(), UtxoError> {
        examine(&mut self.read().await?, wallet, wanted).await.map(|_| ())
    }

    /// Transactions of this wallet that may be pruned, the oldest first, after one; at most a thousand. Others may
    /// become prunable when these are gone, so ask again.
    pub async fn prunable(&self, wallet: WalletId, after: Option<Hash>) -> Result<Vec<Hash>, UtxoError> {
        let mut tx = self.read().await?;
        let Some((tip, _)) = read_tip(&mut tx).await? else { return Ok(Vec::new()) };
        let after = match after {
            None => None,
            Some(after) => fetch_optional!(&mut tx, READ_PRUNABLE_ID => (i64,), wallet.0, after.0.as_slice())?,
        };
        let after = after.map_or(i64::MIN, |row| row.0);
        let rows = fetch_all!(&mut tx, READ_PRUNABLE => (Vec<u8>,), wallet.0, after, final_height(tip))?;
        rows.iter().map(|row| Ok(hash(&row.0)?)).collect()
    }
}

fn final_height(tip: u32) -> i64 {
    i64::from(tip) - i64::from(FINAL_DEPTH)
}

async fn prune(
    tx: &mut Tx,
    wallet: WalletId,
    wanted: Hash,
    (actor, reason): (&str, &str),
    at: Timestamp,
) -> Result<(), UtxoError> {
    lock(tx).await?;
    let (id, height) = examine(tx, wallet, wanted).await?;
    // A reorganisation that reaches the block which spent its outputs would need its rows, and is refused by this
    // height.
    let spent = fetch_optional!(tx, READ_LAST_SPENT => (Option<i64>,), wallet.0, id)?.and_then(|row| row.0);
    let height = height.map(|height| spent.map_or(height, |spent| spent.max(height)));
    execute!(tx, CLEAR_SPENDS, wallet.0, id)?;
    execute!(tx, DELETE_OUTPUTS, wallet.0, id)?;
    execute!(tx, DELETE_TRANSACTION, wallet.0, id)?;
    execute!(tx, INSERT_PRUNED, wallet.0, wanted.0.as_slice(), height, reason, actor, at.micros())?;
    Ok(())
}

/// Its id and the height of its block, if it is final.
async fn examine(tx: &mut Tx, wallet: WalletId, wanted: Hash) -> Result<(i64, Option<i64>), UtxoError> {
    let key = wanted.0.as_slice();
    let row = fetch_optional!(tx, READ_PRUNED_TX => (i64, String, Option<i64>), wallet.0, key)?;
    let (id, text, height) = row.ok_or(UtxoRefusal::UnknownTransaction(wanted))?;
    let (tip, _) = read_tip(tx).await?.ok_or(UtxoRefusal::NotFinal("no block was connected yet"))?;
    let deep = final_height(tip);
    match (status(&text)?, height) {
        (Status::Published, Some(height)) => check_spent(tx, wallet, id, height, deep).await?,
        (Status::Published | Status::Pending, _) => return Err(UtxoRefusal::NotFinal("it may still be mined").into()),
        (Status::Replaced | Status::Failed | Status::Orphaned, _) => check_dead(tx, wallet, id, wanted, deep).await?,
    }
    Ok((id, height))
}

/// In a deep block, all its outputs spent as deep, and no output of ours that would seem unspent without it.
async fn check_spent(tx: &mut Tx, wallet: WalletId, id: i64, height: i64, deep: i64) -> Result<(), UtxoError> {
    if height > deep {
        return Err(UtxoRefusal::NotFinal("its block is not deep enough").into());
    }
    let open = fetch_optional!(tx, COUNT_OPEN_OUTPUTS => (i64,), wallet.0, id, deep)?;
    if open.is_none_or(|row| row.0 > 0) {
        return Err(UtxoRefusal::NotFinal("an output of it is unspent, or was spent not long ago").into());
    }
    let spent = fetch_optional!(tx, COUNT_SPENT_OUTPUTS => (i64,), wallet.0, id)?;
    if spent.is_none_or(|row| row.0 > 0) {
        return Err(
            UtxoRefusal::NotFinal("outputs that it spends are still there; prune their transactions first").into()
        );
    }
    let rivals = fetch_optional!(tx, COUNT_RIVALS => (i64,), wallet.0, id)?;
    if rivals.is_none_or(|row| row.0 > 0) {
        return Err(UtxoRefusal::NotFinal("others that wanted its inputs are still there; prune them first").into());
    }
    Ok(())
}

/// It was never published; or a deep block has spent an input of it, or of a transaction that it depends on.
async fn check_dead(tx: &mut Tx, wallet: WalletId, id: i64, wanted: Hash, deep: i64) -> Result<(), UtxoError> {
    let key = wanted.0.as_slice();
    for children in
        [fetch_optional!(tx, COUNT_CHILDREN => (i64,), key)?, fetch_optional!(tx, COUNT_DEAD_CHILDREN => (i64,), key)?]
    {
        if children.is_none_or(|row| row.0 > 0) {
            return Err(UtxoRefusal::NotFinal("what would spend it is still there; prune that first").into());
        }
    }
    let (published, _) = past(tx, wallet, wanted).await?;
    if published == 0 {
        return Ok(());
    }
    let mut looked_at: BTreeSet<i64> = BTreeSet::new();
    let mut open = vec![(id, wanted)];
    while let Some((id, hash)) = open.pop() {
        if !looked_at.insert(id) || looked_at.len() > MOST_ANCESTORS {
            continue;
        }
        let conflicts = fetch_optional!(tx, COUNT_FINAL_CONFLICTS => (i64,), wallet.0, id, deep)?;
        if conflicts.is_some_and(|row| row.0 > 0) || was_orphaned_long_ago(tx, wallet, hash, deep).await? {
            return Ok(());
        }
        for (parent, bytes) in fetch_all!(tx, READ_DEAD_PARENTS => (i64, Vec<u8>), wallet.0, id)? {
            open.push((parent, load::hash(&bytes)?));
        }
    }
    Err(UtxoRefusal::NotFinal("no deep block has proven yet that it cannot be mined").into())
}

/// How often it was published, and the highest block that it was in.
async fn past(tx: &mut Tx, wallet: WalletId, wanted: Hash) -> Result<(i64, Option<i64>), StoreError> {
    let row = fetch_optional!(tx, READ_PAST => (i64, Option<i64>), wallet.0, wanted.0.as_slice())?;
    Ok(row.unwrap_or((0, None)))
}

async fn was_orphaned_long_ago(tx: &mut Tx, wallet: WalletId, wanted: Hash, deep: i64) -> Result<bool, StoreError> {
    let (_, highest) = past(tx, wallet, wanted).await?;
    let row = fetch_optional!(tx, READ_PRUNED_TX => (i64, String, Option<i64>), wallet.0, wanted.0.as_slice())?;
    let orphaned = row.is_some_and(|row| row.1 == Status::Orphaned.text());
    Ok(orphaned && highest.is_some_and(|height| height <= deep))
}
