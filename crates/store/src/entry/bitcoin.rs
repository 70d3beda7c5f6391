//! Bitcoin's books follow from the wallet store: one follower feeds both, in one transaction.
//!
//! A block that is connected has its merkle root checked against a header that a quorum has, so what it pays is proven at once.

use std::collections::{BTreeMap, BTreeSet};

use domain::deposit::{Cause, Place, Side};
use domain::utxo::{Hash, SpendTotals};
use domain::{RawAmount, RawSum, Timestamp};

use super::blocks::{set_proven, tell_foreign, undo};
use super::cursor::{Locked, READ_LAST_BITCOIN_BLOCK};
use super::types::{ChainId, EntryKey, FoundEntry, ListingId, hash_of, height_of, malformed};
use super::write::{read_known, write_entries};
use crate::db::{Db, Tx};
use crate::error::StoreError;
use crate::outbound::explain::{Explained, explained};
use crate::outbound::lane::stop_group;
use crate::rows::{Column, ColumnType::Bytes, RowsSql, fetch_rows, hex};
use crate::transact;
use crate::utxo::events;

statements! {
    /// `NULL` behind it: the chain's own coin is not listed, which nobody could begin with.
    LOCK_BITCOIN = "SELECT k.chain_id, k.first_height, k.proven_height,
            (SELECT MIN(l.id) FROM asset_on_chain l WHERE l.chain_id = k.chain_id AND l.contract IS NULL)
        FROM chain_cursors k JOIN chains c ON c.id = k.chain_id WHERE c.kind = 'bitcoin' {FOR UPDATE OF k}";
    /// What blocks pay us: whether a user's address gets it, and whether the transaction spends an output of ours.
    READ_BITCOIN_INCOME = "SELECT t.block_height, b.block_hash, t.tx_hash, u.output_index, u.amount, t.is_coinbase,
            a.script_pub_key, w.id IS NOT NULL,
            EXISTS (SELECT 1 FROM transactions o JOIN utxos s ON s.wallet_id = o.wallet_id AND s.spent_by_tx_id = o.id
                WHERE o.tx_hash = t.tx_hash)
        FROM transactions t JOIN utxos u ON u.wallet_id = t.wallet_id AND u.tx_id = t.id
            JOIN addresses a ON a.wallet_id = u.wallet_id AND a.id = u.address_id
            JOIN blocks b ON b.block_height = t.block_height
            LEFT JOIN address_texts x ON x.script_pub_key = a.script_pub_key LEFT JOIN user_wallets w ON w.address = x.address
        WHERE t.block_height BETWEEN $1 AND $2 AND b.connected";
    /// The lowest block above one that is stored and was not read, and how many were read from there on up to which.
    READ_CLAIMED_ABOVE = "SELECT MIN(block_height) FROM blocks WHERE NOT connected AND block_height > $1";
    READ_CONNECTED_ABOVE = "SELECT MIN(block_height), MAX(block_height), COUNT(*) FROM blocks WHERE connected AND block_height > $1";
    /// Why the chain cannot be followed: once, until somebody has seen to it.
    TELL_PARTED = "INSERT INTO chain_findings (chain_id, kind, subject, detail, at, resolved_by, resolved_at)
        SELECT k.chain_id, 'halted', c.name, $1, $2, NULL, NULL FROM chain_cursors k JOIN chains c ON c.id = k.chain_id
        WHERE c.kind = 'bitcoin' AND NOT EXISTS (SELECT 1 FROM chain_findings f WHERE f.chain_id = k.chain_id AND f.kind = 'halted'
            AND f.detail = $1 AND f.resolved_at IS NULL)";
    /// What they take from us, and whether we made the transaction that takes it.
    READ_BITCOIN_SPENT = "SELECT t.block_height, b.block_hash, t.tx_hash, u.spent_input_index, u.amount,
            a.script_pub_key,
            EXISTS (SELECT 1 FROM transaction_events e WHERE e.tx_hash = t.tx_hash AND e.wallet_id = t.wallet_id
                AND e.status = 'pending'), w.name
        FROM transactions t JOIN wallets w ON w.id = t.wallet_id JOIN utxos u ON u.wallet_id = t.wallet_id AND u.spent_by_tx_id = t.id
            JOIN addresses a ON a.wallet_id = u.wallet_id AND a.id = u.address_id
            JOIN blocks b ON b.block_height = t.block_height
        WHERE t.block_height BETWEEN $1 AND $2 AND b.connected";
}

static READ_RAW: RowsSql = RowsSql::new(
    "READ_RAW_TRANSACTIONS",
    "SELECT t.tx_hash, t.raw_tx FROM {rows} {join} transactions t ON t.tx_hash = r.tx_hash",
    &[("tx_hash", Bytes)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 1] = [&READ_RAW];

type Cursor = (i64, i64, i64, Option<i64>);
type Income = (i64, Vec<u8>, Vec<u8>, i64, i64, bool, Vec<u8>, bool, bool);
type Spent = (i64, Vec<u8>, Vec<u8>, i64, i64, Vec<u8>, bool, String);

impl Db {
    /// The chain has parted from our blocks below the oldest of them: people must look. Nothing else has to stop it, for no block is read.
    pub async fn tell_parted(&self, why: &str, at: Timestamp) -> Result<(), StoreError> {
        transact!(self, tx => {
            fetch_optional!(tx, LOCK_BITCOIN => Cursor)?;
            execute!(tx, TELL_PARTED, why, at.micros()).map(|_| ())
        })
    }
}

/// These blocks are connected, with all their rows: their entries are written, if the payments of the chain are kept.
pub(crate) async fn connected(tx: &mut Tx, from: i64, to: i64, at: Timestamp) -> Result<(), StoreError> {
    let Some((chain, first, proven, coin)) = fetch_optional!(tx, LOCK_BITCOIN => Cursor)? else { return Ok(()) };
    let coin = ListingId(coin.ok_or_else(|| malformed("native coin"))?);
    let from = from.max(first.saturating_add(1));
    if from > to {
        return Ok(());
    }
    let mut found = Vec::new();
    for row in fetch_all!(tx, READ_BITCOIN_INCOME => Income, from, to)? {
        found.push(income(row, coin)?);
    }
    let mut groups: BTreeSet<(Hash, String)> = BTreeSet::new();
    for row in fetch_all!(tx, READ_BITCOIN_SPENT => Spent, from, to)? {
        groups.insert((hash_of(&row.2)?, row.7.clone()));
        found.push(spent(row, coin)?);
    }
    let chain = ChainId(chain);
    let Explained { entries, foreign } = explained(tx, chain, &found).await?;
    let entries = with_fees(tx, chain, entries).await?;
    let new = write_entries(tx, chain, &entries, "bitcoin", at).await?;
    tell_foreign(tx, chain, &new, &foreign, at).await?;
    // A Bitcoin wallet has the name of its group. Its blocks are proven.
    for (hash, group) in groups {
        let foreign = |one: &FoundEntry| one.cause == Cause::ForeignSpend && one.key.transaction == hash;
        if new.iter().any(|one| foreign(&one.found)) {
            let why = format!("transaction {hash} took its coins, and is none of ours");
            stop_group(tx, &group, &why, at).await?;
        }
    }
    set_proven(tx, chain, proven.max(to), at).await
}

/// What our own transactions cost is an entry of its own, as on other chains, so that it ends in `gas`: it is taken off the largest input's. Where not all
/// inputs are ours nobody can say what of it we paid.
async fn with_fees(tx: &mut Tx, chain: ChainId, mut entries: Vec<FoundEntry>) -> Result<Vec<FoundEntry>, StoreError> {
    let is_paid = |entry: &FoundEntry| entry.key.side == Side::Out && entry.cause == Cause::Payout;
    let mut spent: BTreeMap<Hash, Vec<usize>> = BTreeMap::new();
    for (place, entry) in entries.iter().enumerate().filter(|(_, entry)| is_paid(entry)) {
        spent.entry(entry.key.transaction).or_default().push(place);
    }
    if spent.is_empty() {
        return Ok(entries);
    }
    // What was written before there were such entries stays as it is.
    let keys: Vec<EntryKey> = spent.values().flatten().map(|place| entries[*place].key).collect();
    let known = read_known(tx, chain, keys.iter()).await?;
    let columns = vec![Column::Bytes(spent.keys().map(|hash| hash.0.to_vec()).collect())];
    let rows: Vec<(Vec<u8>, Vec<u8>)> = fetch_rows(tx, &READ_RAW, columns).await?;
    for (hash, raw) in rows {
        // Wallets that share a transaction have it each.
        let Some(places) = spent.remove(&hash_of(&hash)?) else { continue };
        let is_new = places.iter().all(|place| !known.get(&entries[*place].key).is_some_and(|(_, alive)| *alive));
        let Some(totals) = SpendTotals::of(&raw).filter(|totals| is_new && totals.inputs == places.len()) else {
            continue;
        };
        let Some((largest, rest, cost)) = fee_of(&entries, &places, totals.paid) else { continue };
        let fee = FoundEntry {
            key: EntryKey { place: Place::Fee, ..entries[largest].key },
            amount: -RawSum::from(cost),
            cause: Cause::Fee,
            ..entries[largest].clone()
        };
        entries[largest].amount = -RawSum::from(rest);
        entries.push(fee);
    }
    Ok(entries)
}

/// The largest of these inputs, what is left of it without the fee, and the fee. `None`: nothing was paid for it, or it does not add up.
fn fee_of(entries: &[FoundEntry], places: &[usize], paid: u64) -> Option<(usize, RawAmount, RawAmount)> {
    let amounts: Option<Vec<(RawAmount, usize)>> =
        places.iter().map(|place| Some((entries[*place].amount.magnitude()?, *place))).collect();
    let amounts = amounts?;
    let spent = amounts.iter().try_fold(RawAmount::ZERO, |sum, (amount, _)| sum.checked_add(*amount))?;
    let cost = spent.checked_sub(paid.to_string().parse().ok()?)?;
    let (amount, largest) = amounts.into_iter().max_by_key(|(amount, place)| (*amount, std::cmp::Reverse(*place)))?;
    let rest = amount.checked_sub(cost).filter(|rest| *rest > RawAmount::ZERO)?;
    (cost > RawAmount::ZERO).then_some((largest, rest, cost))
}

/// The lowest block above a height that the wallet store should have read by now and has not: an import only claims it, or it lies below the
/// first that was followed. `None`: it has read all, or nothing yet.
pub(crate) async fn first_unread(tx: &mut Tx, first: i64) -> Result<Option<i64>, StoreError> {
    let claimed = fetch_optional!(tx, READ_CLAIMED_ABOVE => (Option<i64>,), first)?.and_then(|row| row.0);
    let read = fetch_optional!(tx, READ_CONNECTED_ABOVE => (Option<i64>, Option<i64>, i64), first)?;
    let missing = match read {
        Some((Some(_), Some(last), count)) if count < last - first => Some(first + 1),
        Some(_) | None => None,
    };
    Ok(claimed.into_iter().chain(missing).min())
}

/// The wallet store goes on only when this transaction has ended.
pub(crate) async fn hold_followers(tx: &mut Tx) -> Result<(), StoreError> {
    events::lock(tx).await
}

/// Everything that the wallet store has read above a block already.
pub(crate) async fn connected_above(tx: &mut Tx, first: i64, at: Timestamp) -> Result<(), StoreError> {
    // Blocks that an import only claims prove nothing.
    match fetch_optional!(tx, READ_LAST_BITCOIN_BLOCK => (i64, Vec<u8>))? {
        Some((tip, _)) if tip > first => connected(tx, first + 1, tip, at).await,
        Some(_) | None => Ok(()),
    }
}

/// The blocks above a height have left the chain.
pub(crate) async fn disconnected(tx: &mut Tx, down_to: i64, at: Timestamp) -> Result<(), StoreError> {
    let Some((chain, _, proven, _)) = fetch_optional!(tx, LOCK_BITCOIN => Cursor)? else { return Ok(()) };
    undo(tx, ChainId(chain), &Locked { proven, halted: None }, down_to, at).await.map(|_| ())
}

/// Satoshi are never negative: the schema sees to it.
fn satoshi(amount: i64) -> Result<RawSum, StoreError> {
    let raw: RawAmount = amount.to_string().parse().map_err(|_| malformed("amount"))?;
    Ok(raw.into())
}

fn number(index: i64) -> Result<u32, StoreError> {
    u32::try_from(index).map_err(|_| malformed("index"))
}

/// The script that the chain shows. What it is called, a row may say and nobody may believe: whoever credits it writes the address
/// from the script.
fn address_text(script: &[u8]) -> String {
    format!("{SCRIPT}{}", hex(script))
}

const SCRIPT: &str = "script:";

/// The script that an entry names in place of an address. `None`: it has an address.
pub(super) fn script_of(address: &str) -> Option<Vec<u8>> {
    let digits = address.strip_prefix(SCRIPT)?;
    let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    (0..digits.len()).step_by(2).map(byte).collect()
}

fn income(row: Income, listing: ListingId) -> Result<FoundEntry, StoreError> {
    let (height, block, transaction, index, amount, coinbase, script, of_user, by_us) = row;
    let address = address_text(&script);
    // What our own transaction pays to a wallet of the house is change. What it pays to a user is a deposit.
    let cause = if by_us && !of_user { Cause::Change } else { Cause::Deposit };
    let place = Place::Output(number(index)?);
    Ok(FoundEntry {
        coinbase,
        ..entry((height, &block, &transaction), place, Side::In, address, listing, satoshi(amount)?, cause)?
    })
}

fn spent(row: Spent, listing: ListingId) -> Result<FoundEntry, StoreError> {
    let (height, block, transaction, index, amount, script, made, _) = row;
    let address = address_text(&script);
    let cause = if made { Cause::Payout } else { Cause::ForeignSpend };
    let place = Place::Input(number(index)?);
    entry((height, &block, &transaction), place, Side::Out, address, listing, -satoshi(amount)?, cause)
}

fn entry(
    (height, block, transaction): (i64, &[u8], &[u8]),
    place: Place,
    side: Side,
    address: String,
    listing: ListingId,
    amount: RawSum,
    cause: Cause,
) -> Result<FoundEntry, StoreError> {
    let transaction: Hash = hash_of(transaction)?;
    let key = EntryKey { transaction, place, side };
    let (height, block) = (height_of(height)?, hash_of(block)?);
    Ok(FoundEntry { key, height, block, address, listing, amount, cause, coinbase: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_read_as_it_was_written() {
        for script in [&[][..], &[0], &[0, 20, 255, 171]] {
            assert_eq!(script_of(&address_text(script)).as_deref(), Some(script));
        }
        for other in ["0xabc", "script", "script:0", "script:0g", "script:é1"] {
            assert_eq!(script_of(other), None, "{other}");
        }
    }
}
