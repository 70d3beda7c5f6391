//! Unconfirmed transactions that hang together. Nodes take only so many of them, and refuse the next one.
//!
//! **The whole cluster is counted**, not only ancestors or descendants: whoever keeps within it keeps within both, so one
//! number is right for every version of Bitcoin Core. What strangers have built on our payments is not stored here, so a
//! node may still refuse what we take for short enough.

use std::collections::{HashMap, HashSet};

use super::load::{bytes, hash};
use super::types::{ChainSize, Hash, NewTx, UtxoError, UtxoRefusal, WalletId};
use crate::db::{Db, Tx};
use crate::error::StoreError;
use crate::rows::{ColumnType::Bytes, RowsSql, fetch_rows};
use crate::transact;

statements! {
    READ_CHAIN_LIMITS = "SELECT most_chained, most_chained_bytes FROM wallets WHERE id = $1";
    LIMIT_CHAINS = "UPDATE wallets SET most_chained = $1, most_chained_bytes = $2
        WHERE most_chained <> $1 OR most_chained_bytes <> $2";
}

/// The unconfirmed transactions above these, and all below any of those: with their sizes, what they spend, and whether
/// they are above.
static READ_CLUSTER: RowsSql = RowsSql::new(
    "READ_CLUSTER",
    "WITH RECURSIVE above(tx_hash) AS (
         SELECT t.tx_hash FROM {rows} {join} transactions t ON t.tx_hash = r.hash
         WHERE t.block_height IS NULL AND t.status IN ('pending', 'published')
         UNION
         SELECT p.tx_hash FROM above {join} transactions c ON c.tx_hash = above.tx_hash
             {join} tx_inputs i ON i.wallet_id = c.wallet_id AND i.tx_id = c.id
             {join} transactions p ON p.tx_hash = i.prev_hash
         WHERE p.block_height IS NULL AND p.status IN ('pending', 'published')
     ), below(tx_hash) AS (
         SELECT tx_hash FROM above
         UNION
         SELECT c.tx_hash FROM below {join} tx_inputs i ON i.prev_hash = below.tx_hash AND i.active
             {join} transactions c ON c.wallet_id = i.wallet_id AND c.id = i.tx_id
         WHERE c.block_height IS NULL
     )
     SELECT DISTINCT t.tx_hash, CAST(length(t.raw_tx) AS BIGINT), i.prev_hash,
         EXISTS (SELECT 1 FROM above a WHERE a.tx_hash = t.tx_hash)
     FROM below {join} transactions t ON t.tx_hash = below.tx_hash
         {join} tx_inputs i ON i.wallet_id = t.wallet_id AND i.tx_id = t.id",
    &[("hash", Bytes)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 1] = [&READ_CLUSTER];

impl Db {
    /// What nodes take of transactions that hang together; of all wallets.
    pub async fn limit_chains(&self, most: ChainSize) -> Result<(), UtxoError> {
        let (count, bytes) = (i64::from(most.transactions), i64::from(most.bytes));
        transact!(self, tx => execute!(tx, LIMIT_CHAINS, count, bytes))?;
        Ok(())
    }

    pub async fn chain_limits(&self, wallet: WalletId) -> Result<ChainSize, UtxoError> {
        read_limits(&mut self.read().await?, wallet).await
    }
}

async fn read_limits(tx: &mut Tx, wallet: WalletId) -> Result<ChainSize, UtxoError> {
    let row = fetch_optional!(tx, READ_CHAIN_LIMITS => (i64, i64), wallet.0)?.ok_or(UtxoRefusal::UnknownWallet)?;
    Ok(limits(row)?)
}

pub(super) fn limits((transactions, bytes): (i64, i64)) -> Result<ChainSize, StoreError> {
    Ok(ChainSize { transactions: super::load::number(transactions)?, bytes: super::load::number(bytes)? })
}

/// Refuses a transaction of ours that nodes would not take because too many that wait hang together with it. What it
/// replaces leaves the mempools, with all that depends on it.
pub(super) async fn check_room(tx: &mut Tx, wallet: WalletId, new: &NewTx, replaced: &[Hash]) -> Result<(), UtxoError> {
    let parents: Vec<Hash> = new.inputs.iter().map(|input| input.hash).collect();
    let mut clusters = Clusters::default();
    clusters.load(tx, &parents).await?;
    clusters.remove(replaced);
    let would = clusters.with_one_more(&parents, u32::try_from(new.raw.len()).unwrap_or(u32::MAX));
    if would.transactions == 1 {
        return Ok(());
    }
    let most = read_limits(tx, wallet).await?;
    if would.fits(most) { Ok(()) } else { Err(UtxoRefusal::ChainTooLong { would, most }.into()) }
}

/// A transaction of a cluster.
#[derive(Debug)]
struct Member {
    bytes: u32,
    parents: HashSet<Hash>,
}

/// Whole clusters around some transactions.
#[derive(Debug, Default)]
pub(super) struct Clusters {
    members: HashMap<Hash, Member>,
}

impl Clusters {
    /// Adds the clusters of these; those that are in a block have none.
    pub async fn load(&mut self, tx: &mut Tx, hashes: &[Hash]) -> Result<(), StoreError> {
        let mut start: Vec<Hash> = hashes.iter().filter(|one| !self.members.contains_key(*one)).copied().collect();
        while !start.is_empty() {
            let rows: Vec<(Vec<u8>, i64, Vec<u8>, bool)> = fetch_rows(tx, &READ_CLUSTER, vec![bytes(&start)]).await?;
            // Whatever is below, and not above, may have other parents: they are looked for in the next round.
            let mut others: HashSet<Hash> = HashSet::new();
            for (one, size, parent, above) in rows {
                let one = hash(&one)?;
                let known = self.members.contains_key(&one);
                let size = u32::try_from(size).unwrap_or(u32::MAX);
                let member = self.members.entry(one).or_insert_with(|| Member { bytes: size, parents: HashSet::new() });
                member.parents.insert(hash(&parent)?);
                if !above && !known {
                    others.insert(one);
                }
            }
            start = others.into_iter().collect();
        }
        Ok(())
    }

    /// What one more transaction would hang together with, itself included, if it spent outputs of these.
    pub fn with_one_more(&self, parents: &[Hash], size: u32) -> ChainSize {
        let found = self.connected(parents);
        let bytes =
            found.iter().filter_map(|one| self.members.get(one)).fold(size, |sum, one| sum.saturating_add(one.bytes));
        ChainSize { transactions: u32::try_from(found.len()).unwrap_or(u32::MAX).saturating_add(1), bytes }
    }

    fn children(&self) -> HashMap<Hash, Vec<Hash>> {
        let mut children: HashMap<Hash, Vec<Hash>> = HashMap::new();
        for (one, member) in &self.members {
            for parent in &member.parents {
                children.entry(*parent).or_default().push(*one);
            }
        }
        children
    }

    /// Takes these out, and all that depend on them.
    fn remove(&mut self, gone: &[Hash]) {
        let children = self.children();
        let mut open: Vec<Hash> = gone.to_vec();
        while let Some(one) = open.pop() {
            if self.members.remove(&one).is_some() {
                open.extend(children.get(&one).into_iter().flatten());
            }
        }
    }

    /// All that hang together with these.
    pub fn connected(&self, start: &[Hash]) -> HashSet<Hash> {
        let children = self.children();
        let mut found: HashSet<Hash> = HashSet::new();
        let mut open: Vec<Hash> = start.to_vec();
        while let Some(one) = open.pop() {
            let Some(member) = self.members.get(&one) else { continue };
            if found.insert(one) {
                open.extend(&member.parents);
                open.extend(children.get(&one).into_iter().flatten());
            }
        }
        found
    }
}
