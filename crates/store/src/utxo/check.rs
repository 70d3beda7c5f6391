//! Finds rows that disagree with the facts. The facts are the blocks, the inputs of each transaction, the replacements
//! and the history; everything else is derived from them once more and compared.

use std::collections::{HashMap, HashSet};

use super::load::{self, hash, number};
use super::types::{Finding, Hash, OutPoint, Status, UtxoError, WalletId};
use crate::db::Db;
use crate::dialect::PREFER_ONE_PASS;
use crate::rows::{Column, ColumnType::Int, RowsSql, fetch_rows};

statements! {
    CHECK_TOTALS = "SELECT COALESCE(k.wallet_id, f.wallet_id), COALESCE(k.account, f.account),
            COALESCE(k.confirmed, 0) || '/' || COALESCE(k.confirmed_count, 0) || ' and '
                || COALESCE(k.unconfirmed, 0) || '/' || COALESCE(k.unconfirmed_count, 0) || ' instead of '
                || COALESCE(f.confirmed, 0) || '/' || COALESCE(f.confirmed_count, 0) || ' and '
                || COALESCE(f.unconfirmed, 0) || '/' || COALESCE(f.unconfirmed_count, 0)
        FROM account_totals k FULL JOIN (
            SELECT u.wallet_id, u.account,
                CAST(SUM(CASE WHEN t.block_height IS NULL THEN 0 ELSE u.amount END) AS BIGINT) AS confirmed,
                CAST(SUM(CASE WHEN t.block_height IS NULL THEN 0 ELSE 1 END) AS BIGINT) AS confirmed_count,
                CAST(SUM(CASE WHEN t.block_height IS NULL THEN u.amount ELSE 0 END) AS BIGINT) AS unconfirmed,
                CAST(SUM(CASE WHEN t.block_height IS NULL THEN 1 ELSE 0 END) AS BIGINT) AS unconfirmed_count
            FROM utxos u JOIN transactions t ON t.wallet_id = u.wallet_id AND t.id = u.tx_id
            WHERE u.spent_by_tx_id IS NULL AND t.status IN ('pending', 'published')
            GROUP BY u.wallet_id, u.account) f ON f.wallet_id = k.wallet_id AND f.account = k.account
        WHERE COALESCE(k.confirmed, 0) <> COALESCE(f.confirmed, 0)
            OR COALESCE(k.confirmed_count, 0) <> COALESCE(f.confirmed_count, 0)
            OR COALESCE(k.unconfirmed, 0) <> COALESCE(f.unconfirmed, 0)
            OR COALESCE(k.unconfirmed_count, 0) <> COALESCE(f.unconfirmed_count, 0)
        LIMIT 100";

    CHECK_VALID = "SELECT u.wallet_id, t.tx_hash, u.output_index FROM utxos u
            JOIN transactions t ON t.wallet_id = u.wallet_id AND t.id = u.tx_id
        WHERE (u.valid AND t.status NOT IN ('pending', 'published'))
            OR (NOT u.valid AND t.status IN ('pending', 'published'))
        LIMIT 100";

    CHECK_ACTIVE = "SELECT i.wallet_id, t.tx_hash, i.input_index FROM tx_inputs i
            JOIN transactions t ON t.wallet_id = i.wallet_id AND t.id = i.tx_id
        WHERE (i.active AND t.status NOT IN ('pending', 'published'))
            OR (NOT i.active AND t.status IN ('pending', 'published'))
        LIMIT 100";

    /// An output is spent by the valid transaction that has it among its inputs, and by no other.
    CHECK_SPENDERS = "SELECT u.wallet_id, t.tx_hash, u.output_index FROM utxos u
            JOIN transactions t ON t.wallet_id = u.wallet_id AND t.id = u.tx_id
            LEFT JOIN tx_inputs i ON i.prev_hash = t.tx_hash AND i.prev_index = u.output_index
                AND i.wallet_id = u.wallet_id AND i.active
        WHERE COALESCE(u.spent_by_tx_id, -1) <> COALESCE(i.tx_id, -1)
            OR COALESCE(u.spent_input_index, -1) <> COALESCE(i.input_index, -1)
        LIMIT 100";

    /// A valid transaction spends nothing of an invalid one.
    CHECK_PARENTS = "SELECT i.wallet_id, t.tx_hash, i.input_index FROM transactions p
            JOIN tx_inputs i ON i.prev_hash = p.tx_hash AND i.wallet_id = p.wallet_id AND i.active
            JOIN transactions t ON t.wallet_id = i.wallet_id AND t.id = i.tx_id
        WHERE p.status NOT IN ('pending', 'published')
        LIMIT 100";

    /// An invalid transaction has a cause: another one took its inputs (perhaps pruned since), or a parent is invalid
    /// or gone. One that was never published needs none: it may have been abandoned. Nor does one that two people gave up.
    CHECK_CAUSES = "SELECT t.wallet_id, t.tx_hash, CAST(0 AS BIGINT) FROM transactions t
        WHERE t.status IN ('replaced', 'failed') AND NOT t.given_up
            AND NOT EXISTS (SELECT 1 FROM tx_replacements e WHERE e.wallet_id = t.wallet_id AND e.replaced_tx_id = t.id)
            AND NOT EXISTS (SELECT 1 FROM transaction_events v JOIN transaction_events g ON g.tx_hash = v.cause
                    AND g.wallet_id = v.wallet_id AND g.status = 'pruned'
                WHERE v.tx_hash = t.tx_hash AND v.wallet_id = t.wallet_id AND v.status = t.status)
            AND (t.status = 'replaced' OR (
                NOT EXISTS (SELECT 1 FROM tx_inputs i JOIN transactions p ON p.tx_hash = i.prev_hash
                    WHERE i.wallet_id = t.wallet_id AND i.tx_id = t.id AND p.status NOT IN ('pending', 'published'))
                AND NOT EXISTS (SELECT 1 FROM tx_inputs i JOIN tx_inputs o ON o.prev_hash = i.prev_hash
                        AND o.prev_index = i.prev_index AND o.active
                    WHERE i.wallet_id = t.wallet_id AND i.tx_id = t.id)
                AND EXISTS (SELECT 1 FROM transaction_events v WHERE v.tx_hash = t.tx_hash AND v.status = 'published')))
        LIMIT 100";

    /// A transaction that was broadcast is valid again when no other contradicts it any more (law 5), unless two people gave
    /// it up.
    CHECK_REVIVED = "SELECT t.wallet_id, t.tx_hash, CAST(0 AS BIGINT) FROM transactions t
        WHERE t.status IN ('replaced', 'failed') AND NOT t.given_up
            AND EXISTS (SELECT 1 FROM transaction_events v WHERE v.tx_hash = t.tx_hash AND v.status = 'published')
            AND NOT EXISTS (SELECT 1 FROM tx_inputs i JOIN tx_inputs o ON o.prev_hash = i.prev_hash
                    AND o.prev_index = i.prev_index AND o.active
                WHERE i.wallet_id = t.wallet_id AND i.tx_id = t.id)
            AND NOT EXISTS (SELECT 1 FROM tx_inputs i JOIN transactions p ON p.tx_hash = i.prev_hash
                WHERE i.wallet_id = t.wallet_id AND i.tx_id = t.id AND p.status NOT IN ('pending', 'published'))
            AND NOT EXISTS (SELECT 1 FROM transaction_events v JOIN transaction_events g ON g.tx_hash = v.cause
                    AND g.status = 'pruned'
                WHERE v.tx_hash = t.tx_hash)
        LIMIT 100";

    /// Of what was given up the history says by whom.
    CHECK_GIVEN_UP = "SELECT t.wallet_id, t.tx_hash, CAST(0 AS BIGINT) FROM transactions t
        WHERE t.given_up AND NOT EXISTS (SELECT 1 FROM transaction_events v
            WHERE v.tx_hash = t.tx_hash AND v.reason LIKE 'given up: % + %')
        LIMIT 100";

    /// One status in all wallets.
    CHECK_SAME = "SELECT a.wallet_id, a.tx_hash, CAST(0 AS BIGINT) FROM transactions a
            JOIN transactions b ON b.tx_hash = a.tx_hash
        WHERE b.wallet_id > a.wallet_id
            AND (a.status <> b.status OR COALESCE(a.block_height, -1) <> COALESCE(b.block_height, -1)
                OR a.given_up <> b.given_up)
        LIMIT 100";

    /// Only while a rescan is open an output is held without an end.
    CHECK_RESCAN = "SELECT l.wallet_id, t.tx_hash, u.output_index FROM utxo_leases l
            JOIN utxos u ON u.wallet_id = l.wallet_id AND u.id = l.utxo_id
            JOIN transactions t ON t.wallet_id = u.wallet_id AND t.id = u.tx_id
        WHERE l.expires_at = 9223372036854775807
            AND NOT EXISTS (SELECT 1 FROM utxo_followed WHERE rescan_next IS NOT NULL)
        LIMIT 100";

    /// A free output is claimed if an invalid transaction that was broadcast spends it and may still be mined: no block has
    /// spent an input of that, or of what it depends on, and nobody gave it up.
    CHECK_UNCLAIMED = "WITH RECURSIVE hopeless(tx_hash) AS (
            SELECT t.tx_hash FROM transactions t
            WHERE t.status NOT IN ('pending', 'published') AND (t.status = 'orphaned' OR t.given_up
                OR NOT EXISTS (SELECT 1 FROM transaction_events v WHERE v.tx_hash = t.tx_hash AND v.status = 'published')
                OR EXISTS (SELECT 1 FROM tx_inputs i
                        JOIN tx_inputs o ON o.prev_hash = i.prev_hash AND o.prev_index = i.prev_index AND o.active
                        JOIN transactions s ON s.wallet_id = o.wallet_id AND s.id = o.tx_id
                    WHERE i.wallet_id = t.wallet_id AND i.tx_id = t.id AND s.block_height IS NOT NULL))
            UNION
            SELECT c.tx_hash FROM hopeless h JOIN tx_inputs i ON i.prev_hash = h.tx_hash AND NOT i.active
                JOIN transactions c ON c.wallet_id = i.wallet_id AND c.id = i.tx_id)
        SELECT DISTINCT u.wallet_id, p.tx_hash, u.output_index FROM tx_inputs i
            JOIN transactions t ON t.wallet_id = i.wallet_id AND t.id = i.tx_id
            JOIN transactions p ON p.tx_hash = i.prev_hash
            JOIN utxos u ON u.wallet_id = p.wallet_id AND u.tx_id = p.id AND u.output_index = i.prev_index
        WHERE NOT i.active AND u.valid AND u.spent_by_tx_id IS NULL
            AND NOT EXISTS (SELECT 1 FROM hopeless h WHERE h.tx_hash = t.tx_hash)
            AND NOT EXISTS (SELECT 1 FROM utxo_claims c WHERE c.wallet_id = u.wallet_id AND c.utxo_id = u.id)
        LIMIT 100";

    /// And no other output is.
    CHECK_CLAIMED = "WITH RECURSIVE hopeless(tx_hash) AS (
            SELECT t.tx_hash FROM transactions t
            WHERE t.status NOT IN ('pending', 'published') AND (t.status = 'orphaned' OR t.given_up
                OR NOT EXISTS (SELECT 1 FROM transaction_events v WHERE v.tx_hash = t.tx_hash AND v.status = 'published')
                OR EXISTS (SELECT 1 FROM tx_inputs i
                        JOIN tx_inputs o ON o.prev_hash = i.prev_hash AND o.prev_index = i.prev_index AND o.active
                        JOIN transactions s ON s.wallet_id = o.wallet_id AND s.id = o.tx_id
                    WHERE i.wallet_id = t.wallet_id AND i.tx_id = t.id AND s.block_height IS NOT NULL))
            UNION
            SELECT c.tx_hash FROM hopeless h JOIN tx_inputs i ON i.prev_hash = h.tx_hash AND NOT i.active
                JOIN transactions c ON c.wallet_id = i.wallet_id AND c.id = i.tx_id)
        SELECT u.wallet_id, p.tx_hash, u.output_index FROM utxo_claims k
            JOIN utxos u ON u.wallet_id = k.wallet_id AND u.id = k.utxo_id
            JOIN transactions p ON p.wallet_id = u.wallet_id AND p.id = u.tx_id
        WHERE NOT u.valid OR u.spent_by_tx_id IS NOT NULL
            OR NOT EXISTS (SELECT 1 FROM transactions t
                    JOIN tx_inputs i ON i.wallet_id = t.wallet_id AND i.tx_id = t.id AND NOT i.active
                WHERE t.tx_hash = k.claimant AND i.prev_hash = p.tx_hash AND i.prev_index = u.output_index
                    AND NOT EXISTS (SELECT 1 FROM hopeless h WHERE h.tx_hash = t.tx_hash))
        LIMIT 100";

    /// The last row of its history says what it is.
    CHECK_HISTORY = "SELECT t.wallet_id, t.tx_hash, CAST(0 AS BIGINT) FROM transactions t
            LEFT JOIN (SELECT wallet_id, tx_hash, status, block_height,
                    ROW_NUMBER() OVER (PARTITION BY tx_hash, wallet_id ORDER BY id DESC) AS place
                FROM transaction_events) e ON e.tx_hash = t.tx_hash AND e.wallet_id = t.wallet_id AND e.place = 1
        WHERE COALESCE(e.status, '') <> t.status OR COALESCE(e.block_height, -1) <> COALESCE(t.block_height, -1)
        LIMIT 100";

    /// A page of transactions in the order of their ids, with the bytes that `custody` compares with the rows.
    READ_PAGE = "SELECT wallet_id, id, tx_hash, raw_tx, is_coinbase, status FROM transactions
        WHERE (wallet_id, id) > ($1, $2)
        ORDER BY wallet_id, id LIMIT 500";
    COUNT_TRANSACTIONS = "SELECT COUNT(*) FROM transactions";

    /// Every account with an address has its totals.
    CHECK_ACCOUNTS = "SELECT DISTINCT a.wallet_id, a.account, 'has no totals' FROM addresses a
            LEFT JOIN account_totals k ON k.wallet_id = a.wallet_id AND k.account = a.account
        WHERE k.account IS NULL LIMIT 100";
}

static READ_PAGE_INPUTS: RowsSql = RowsSql::new(
    "READ_PAGE_INPUTS",
    "SELECT i.tx_id, i.prev_hash, i.prev_index
     FROM {rows} {join} tx_inputs i ON i.wallet_id = r.wallet AND i.tx_id = r.id ORDER BY i.tx_id, i.input_index",
    &[("wallet", Int), ("id", Int)],
);

static READ_PAGE_OUTPUTS: RowsSql = RowsSql::new(
    "READ_PAGE_OUTPUTS",
    "SELECT u.tx_id, u.output_index, u.amount, a.script_pub_key
     FROM {rows} {join} utxos u ON u.wallet_id = r.wallet AND u.tx_id = r.id
         {join} addresses a ON a.wallet_id = u.wallet_id AND a.id = u.address_id
     ORDER BY u.tx_id, u.output_index",
    &[("wallet", Int), ("id", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 2] = [&READ_PAGE_INPUTS, &READ_PAGE_OUTPUTS];

/// A stored transaction with what the other tables say of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTx {
    pub id: i64,
    pub wallet: WalletId,
    pub hash: Hash,
    pub raw: Vec<u8>,
    pub coinbase: bool,
    pub status: Status,
    pub inputs: Vec<OutPoint>,
    /// The outputs that the rows give to this wallet: index, amount, script.
    pub outputs: Vec<(u32, i64, Vec<u8>)>,
}

type Page = (i64, i64, Vec<u8>, Vec<u8>, bool, String);

/// Wallet, transaction, which of its outputs or inputs.
type Place = (i64, Vec<u8>, i64);

impl Db {
    pub async fn count_transactions(&self) -> Result<u64, UtxoError> {
        let row = fetch_optional!(&mut self.read().await?, COUNT_TRANSACTIONS => (i64,))?;
        Ok(row.and_then(|(count,)| u64::try_from(count).ok()).unwrap_or(0))
    }

    /// The next transactions after one, with their bytes; none at the end.
    pub async fn stored_transactions(&self, after: Option<(WalletId, i64)>) -> Result<Vec<StoredTx>, UtxoError> {
        let mut tx = self.read().await?;
        let after = after.map_or((i64::MIN, i64::MIN), |(wallet, id)| (wallet.0, id));
        let rows = fetch_all!(&mut tx, READ_PAGE => Page, after.0, after.1)?;
        let columns = || {
            vec![
                Column::Ints(rows.iter().map(|row| row.0).collect()),
                Column::Ints(rows.iter().map(|row| row.1).collect()),
            ]
        };
        let mut inputs: HashMap<i64, Vec<OutPoint>> = HashMap::new();
        let found: Vec<(i64, Vec<u8>, i64)> = fetch_rows(&mut tx, &READ_PAGE_INPUTS, columns()).await?;
        for (id, made_by, index) in found {
            inputs.entry(id).or_default().push(OutPoint { hash: hash(&made_by)?, index: number(index)? });
        }
        let mut outputs: HashMap<i64, Vec<(u32, i64, Vec<u8>)>> = HashMap::new();
        let found: Vec<(i64, i64, i64, Vec<u8>)> = fetch_rows(&mut tx, &READ_PAGE_OUTPUTS, columns()).await?;
        for (id, index, amount, script) in found {
            outputs.entry(id).or_default().push((number(index)?, amount, script));
        }
        let stored = |(wallet, id, bytes, raw, coinbase, text): Page| {
            Ok(StoredTx {
                id,
                wallet: WalletId(wallet),
                hash: hash(&bytes)?,
                raw,
                coinbase,
                status: load::status(&text)?,
                inputs: inputs.remove(&id).unwrap_or_default(),
                outputs: outputs.remove(&id).unwrap_or_default(),
            })
        };
        rows.into_iter().map(stored).collect()
    }

    /// Which wallet and account own each of these scripts, as far as one does.
    pub async fn owners_of(&self, scripts: HashSet<&[u8]>) -> Result<HashMap<Vec<u8>, (WalletId, u32)>, UtxoError> {
        let owners = load::owners(&mut self.read().await?, scripts).await?;
        Ok(owners.into_iter().map(|(script, (wallet, _, account))| (script, (wallet, account))).collect())
    }

    /// At most a hundred rows for each rule; none when all is as it should be. It reads everything once, from one
    /// snapshot.
    pub async fn check_utxo(&self) -> Result<Vec<Finding>, UtxoError> {
        let mut tx = self.read().await?;
        fetch_optional!(&mut tx, PREFER_ONE_PASS => (String,))?;
        let mut findings = Vec::new();
        for (wallet, account, what) in fetch_all!(&mut tx, CHECK_TOTALS => (i64, i64, String))? {
            findings.push(Finding {
                check: "totals",
                wallet: WalletId(wallet),
                what: format!("account {account} has {what}"),
            });
        }
        for (wallet, account, what) in fetch_all!(&mut tx, CHECK_ACCOUNTS => (i64, i64, String))? {
            findings.push(Finding {
                check: "totals",
                wallet: WalletId(wallet),
                what: format!("account {account} {what}"),
            });
        }
        let places: [(&'static str, &str, Vec<Place>); 12] = [
            ("valid", "output", fetch_all!(&mut tx, CHECK_VALID => Place)?),
            ("active", "input", fetch_all!(&mut tx, CHECK_ACTIVE => Place)?),
            ("spender", "output", fetch_all!(&mut tx, CHECK_SPENDERS => Place)?),
            ("parent", "input", fetch_all!(&mut tx, CHECK_PARENTS => Place)?),
            ("cause", "", fetch_all!(&mut tx, CHECK_CAUSES => Place)?),
            ("revived", "", fetch_all!(&mut tx, CHECK_REVIVED => Place)?),
            ("given up", "", fetch_all!(&mut tx, CHECK_GIVEN_UP => Place)?),
            ("same", "", fetch_all!(&mut tx, CHECK_SAME => Place)?),
            ("history", "", fetch_all!(&mut tx, CHECK_HISTORY => Place)?),
            ("unclaimed", "output", fetch_all!(&mut tx, CHECK_UNCLAIMED => Place)?),
            ("claimed", "output", fetch_all!(&mut tx, CHECK_CLAIMED => Place)?),
            ("rescan", "output", fetch_all!(&mut tx, CHECK_RESCAN => Place)?),
        ];
        for (check, part, rows) in places {
            for (wallet, bytes, index) in rows {
                let transaction = hash(&bytes)?;
                let place = if part.is_empty() { String::new() } else { format!(", {part} {index}") };
                findings.push(Finding {
                    check,
                    wallet: WalletId(wallet),
                    what: format!("transaction {transaction}{place}"),
                });
            }
        }
        Ok(findings)
    }
}
