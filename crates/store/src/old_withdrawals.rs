//! The withdrawals of another program, on PostgreSQL with the tables of the source before its refactoring, read as they stand. It is here because drivers
//! of databases are; what the rows mean is the caller's business.
//!
//! **Nothing there is changed** but for a backup, which is a new table, and is never overwritten.

use std::collections::BTreeMap;
use std::io::Write;

use futures_util::TryStreamExt;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Connection, Row};

use crate::db::parse_postgres;

#[derive(Debug, thiserror::Error)]
pub enum OldError {
    #[error("it is not the URL of a PostgreSQL database")]
    BadUrl,
    #[error("{0} is no name of a table: letters, digits and _, at most 48")]
    BadName(String),
    #[error("the other database cannot be read: {0}")]
    Database(#[source] sqlx::Error),
    #[error("the backup could not be written")]
    File(#[source] std::io::Error),
}

impl From<sqlx::Error> for OldError {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

/// A column that must be there, and the types that it may have.
struct Wanted {
    table: &'static str,
    column: &'static str,
    types: &'static [&'static str],
    optional: bool,
}

const TEXTS: &[&str] = &["text", "character varying"];

const fn wanted(table: &'static str, column: &'static str, types: &'static [&'static str]) -> Wanted {
    Wanted { table, column, types, optional: false }
}

const fn optional(table: &'static str, column: &'static str, types: &'static [&'static str]) -> Wanted {
    Wanted { table, column, types, optional: true }
}

/// The empty name stands for the table of the requests.
const SCHEMA: &[Wanted] = &[
    wanted("", "id", &["uuid"]),
    wanted("", "user_id", &["uuid"]),
    wanted("", "amount", &["numeric(28,18)"]),
    wanted("", "to_address", TEXTS),
    wanted("", "asset_id", &["uuid"]),
    wanted("", "chain_id", &["uuid"]),
    wanted("", "status", TEXTS),
    wanted("", "tx_hash", TEXTS),
    wanted("", "amount_raw", TEXTS),
    wanted("", "created_at", &["timestamp with time zone"]),
    wanted("", "updated_at", &["timestamp with time zone"]),
    optional("", "fee", &["numeric(28,18)"]),
    optional("", "memo", TEXTS),
    optional("", "operation_wallet_address_id", &["uuid"]),
    wanted("chains", "id", &["uuid"]),
    wanted("chains", "name", TEXTS),
    wanted("assets", "id", &["uuid"]),
    wanted("assets", "symbol", TEXTS),
    wanted("asset_on_chain", "id", &["uuid"]),
    wanted("asset_on_chain", "asset_id", &["uuid"]),
    wanted("asset_on_chain", "chain_id", &["uuid"]),
    wanted("asset_on_chain", "decimals", &["integer", "smallint", "bigint"]),
    optional("asset_on_chain", "contract_address", TEXTS),
    wanted("operation_wallet_addresses", "id", &["uuid"]),
    wanted("operation_wallet_addresses", "chain_id", &["uuid"]),
    wanted("operation_wallet_addresses", "address", TEXTS),
    wanted("operation_wallet_addresses", "role", TEXTS),
];

/// How a column is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaDifference {
    pub table: String,
    pub column: String,
    pub wanted: String,
    /// `None`: there is no such column.
    pub found: Option<String>,
}

impl std::fmt::Display for SchemaDifference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { table, column, wanted, found } = self;
        match found {
            None => write!(f, "{table} has no column {column}; it should be {wanted}"),
            Some(found) => write!(f, "{table}.{column} is {found}; it should be {wanted}"),
        }
    }
}

/// A request as its row has it. Numbers are text, so that nothing is rounded on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldWithdrawal {
    pub id: String,
    pub user: String,
    pub amount: String,
    pub fee: Option<String>,
    pub memo: Option<String>,
    pub to: String,
    pub status: String,
    pub hash: Option<String>,
    pub raw: Option<String>,
    pub created_us: i64,
    /// `None`: the row names one that is not there.
    pub chain: Option<String>,
    pub symbol: Option<String>,
    /// Of the asset on the chain.
    pub decimals: Option<i64>,
    pub contract: Option<String>,
    /// The wallet that the row names, if it names one.
    pub wallet: Option<String>,
    /// How many rows have its hash, however they spell it.
    pub same_hash: i64,
    /// What says that it was tried before: a try that has failed may have been told all the same.
    pub tried: Vec<String>,
    /// What it is in the table that is written today, where that is another than the one that is read. `None`: it is not there.
    pub live: Option<String>,
}

/// How many rows there are of a status, with and without a hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldCount {
    pub status: String,
    pub hashed: bool,
    pub rows: i64,
}

/// How a row that was taken over stands now, whether it has ended or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldTaken {
    pub id: String,
    /// `None`: there is no such row any more.
    pub status: Option<String>,
    pub hash: Option<String>,
}

/// All that is read of it, of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OldBooks {
    pub counts: Vec<OldCount>,
    /// Those that have not ended, in the order in which they were made.
    pub open: Vec<OldWithdrawal>,
    /// Those that were taken over before, in the order of their ids.
    pub taken: Vec<OldTaken>,
    /// Of each chain, the wallets that pay customers.
    pub hot_wallets: BTreeMap<String, Vec<String>>,
    /// The table is a copy of an earlier time: what it calls pending may have been paid since.
    pub stale: bool,
    /// The table that is written today, if the one that is read is a copy and it is there.
    pub live: Option<String>,
    /// Id and status of those that only the table of today has, and that have not ended: they were made after the copy.
    pub newer: Vec<(String, String)>,
}

/// What became of the backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldBackup {
    pub table: String,
    /// Made now. Else it was there, and was left as it is.
    pub made: bool,
    pub rows: i64,
    /// Rows of now that it does not have: they were made since.
    pub newer: i64,
}

/// Words that a request has in the end, in the source and in what people have made of it.
pub const ENDED: [&str; 5] = ["completed", "failed", "rejected", "cancelled", "canceled"];

/// The source's own table of requests, and how its copies are called.
const REQUESTS: &str = "withdrawal_requests";
const BACKUP: &str = "_backup";

/// Columns of a request that only somebody who tried to pay it has written, as far as there are such columns; and what they say before that.
const TRACES: [(&str, &[&str]); 6] = [
    ("retry_count", &["", "0"]),
    ("error_message", &[""]),
    ("queued_at", &[""]),
    ("scheduled_at", &[""]),
    ("processed_at", &[""]),
    ("final_tx_hash", &[""]),
];

/// A hash in its one spelling: small hexadecimal digits, without 0x and without anything between.
fn plain_hash(column: &str) -> String {
    format!("regexp_replace(lower({column}), '^[^0-9a-f]*0x|[^0-9a-f]', '', 'g')")
}

#[derive(Debug)]
pub struct OldDatabase {
    connection: PgConnection,
    table: String,
}

impl OldDatabase {
    /// `table` is that of the requests.
    pub async fn open(url: &str, table: &str) -> Result<Self, OldError> {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if table.is_empty() || table.len() > 48 || !table.bytes().all(good) {
            return Err(OldError::BadName(table.to_owned()));
        }
        let options = parse_postgres(url).map_err(|_| OldError::BadUrl)?;
        let connection = PgConnection::connect_with(&options.application_name("bursar import")).await?;
        Ok(Self { connection, table: table.to_owned() })
    }

    /// Every column that is needed and is not there, or is of another type; and the optional ones that are there.
    pub async fn differences(&mut self) -> Result<Vec<SchemaDifference>, OldError> {
        let there = self.columns().await?;
        let mut found = Vec::new();
        for one in SCHEMA {
            let table = if one.table.is_empty() { self.table.as_str() } else { one.table };
            let is = there.get(&(table.to_owned(), one.column.to_owned()));
            let fits = match is {
                None => one.optional,
                Some(is) => one.types.iter().any(|wanted| is == wanted || is.starts_with(&format!("{wanted}("))),
            };
            if !fits {
                let wanted = one.types.join(" or ");
                found.push(SchemaDifference {
                    table: table.to_owned(),
                    column: one.column.to_owned(),
                    wanted,
                    found: is.cloned(),
                });
            }
        }
        // A copy is held against the table of today, so that must say what its rows are.
        for (column, types) in [("id", &["uuid"][..]), ("status", TEXTS)] {
            let Some(live) = self.live(&there) else { break };
            let is = there.get(&(live.clone(), column.to_owned()));
            if !is.is_some_and(|is| types.iter().any(|wanted| is == wanted || is.starts_with(&format!("{wanted}(")))) {
                found.push(SchemaDifference {
                    table: live,
                    column: column.to_owned(),
                    wanted: types.join(" or "),
                    found: is.cloned(),
                });
            }
        }
        Ok(found)
    }

    /// What the table that is written today may be called, if this one is a copy.
    fn live_name(&self) -> Option<&str> {
        match self.table.strip_suffix(BACKUP) {
            Some(name) => Some(name),
            None => Some(REQUESTS).filter(|name| *name != self.table),
        }
    }

    /// The same, if it is there.
    fn live(&self, there: &BTreeMap<(String, String), String>) -> Option<String> {
        let name = self.live_name()?;
        there.keys().any(|(table, _)| table == name).then(|| name.to_owned())
    }

    /// Table and column, with the type as people write it.
    async fn columns(&mut self) -> Result<BTreeMap<(String, String), String>, OldError> {
        let rows: Vec<(String, String, String)> = sqlx::query_as(
            "SELECT c.relname::TEXT, a.attname::TEXT, format_type(a.atttypid, a.atttypmod)
             FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
             WHERE pg_table_is_visible(c.oid) AND c.relkind IN ('r', 'p', 'v', 'm') AND a.attnum > 0 AND NOT a.attisdropped
                 AND c.relname::TEXT = ANY($1)",
        )
        .bind(vec![
            self.table.clone(),
            self.live_name().unwrap_or_default().to_owned(),
            "chains".to_owned(),
            "assets".to_owned(),
            "asset_on_chain".to_owned(),
            "operation_wallet_addresses".to_owned(),
        ])
        .fetch_all(&mut self.connection)
        .await?;
        Ok(rows.into_iter().map(|(table, column, kind)| ((table, column), kind)).collect())
    }

    /// Everything, of one moment, and how these stand, which were taken over before. The schema must be without differences.
    pub async fn read(&mut self, taken: &[String]) -> Result<OldBooks, OldError> {
        let columns = self.columns().await?;
        let table = self.table.clone();
        let has = |table: &str, column: &str| columns.contains_key(&(table.to_owned(), column.to_owned()));
        let own =
            |column: &str| if has(&table, column) { format!("w.{column}::TEXT") } else { "NULL::TEXT".to_owned() };
        let wallet = if has(&table, "operation_wallet_address_id") {
            "(SELECT o.address::TEXT FROM operation_wallet_addresses o WHERE o.id = w.operation_wallet_address_id)"
        } else {
            "NULL::TEXT"
        };
        let contract =
            if has("asset_on_chain", "contract_address") { "k.contract_address::TEXT" } else { "NULL::TEXT" };
        let ended = ENDED.map(|word| format!("'{word}'")).join(", ");
        let live = self.live(&columns);
        let stale = live.is_some() || table.ends_with(BACKUP);
        let (status_now, join_live) = match &live {
            None => ("NULL::TEXT", String::new()),
            Some(live) => ("l.status::TEXT", format!("LEFT JOIN {live} l ON l.id = w.id")),
        };
        let traces: Vec<String> = TRACES
            .iter()
            .filter(|(column, _)| has(&table, column))
            .map(|(column, before)| {
                let before: Vec<String> = before.iter().map(|word| format!("'{word}'")).collect();
                let text = format!("btrim(COALESCE(w.{column}::TEXT, ''))");
                format!("CASE WHEN {text} NOT IN ({}) THEN '{column}' END", before.join(", "))
            })
            .collect();
        let tried = format!("array_remove(ARRAY[{}]::TEXT[], NULL)", traces.join(", "));
        // Every row with a hash counts, also those that have ended: one payment is one withdrawal's.
        let open = format!(
            "WITH hashes AS (SELECT {each_hash} AS hash, COUNT(*) AS rows FROM {table} WHERE {each_hash} <> '' GROUP BY 1)
             SELECT w.id::TEXT AS id, w.user_id::TEXT AS user_id, w.amount::TEXT AS amount, {fee} AS fee, {memo} AS memo,
                 w.to_address::TEXT AS to_address, w.status::TEXT AS status, NULLIF(w.tx_hash, '')::TEXT AS tx_hash,
                 NULLIF(w.amount_raw, '')::TEXT AS amount_raw, (EXTRACT(EPOCH FROM w.created_at) * 1000000)::BIGINT AS created_us,
                 c.name::TEXT AS chain, a.symbol::TEXT AS symbol, k.decimals::BIGINT AS decimals, {contract} AS contract, {wallet} AS wallet,
                 COALESCE(h.rows, 0) AS same_hash, {tried} AS tried, {status_now} AS live
             FROM {table} w LEFT JOIN chains c ON c.id = w.chain_id LEFT JOIN assets a ON a.id = w.asset_id
                 LEFT JOIN asset_on_chain k ON k.asset_id = w.asset_id AND k.chain_id = w.chain_id
                 LEFT JOIN hashes h ON h.hash = {its_hash} {join_live}
             WHERE lower(w.status) NOT IN ({ended}) ORDER BY w.created_at, w.id",
            fee = own("fee"),
            memo = own("memo"),
            each_hash = plain_hash("tx_hash"),
            its_hash = plain_hash("w.tx_hash"),
        );
        let counts = format!(
            "SELECT lower(status)::TEXT, COALESCE(tx_hash, '') <> '', COUNT(*) FROM {table} GROUP BY 1, 2 ORDER BY 1, 2"
        );
        // Of a copy, the table of today says what they are.
        let status = if live.is_some() { status_now } else { "w.status::TEXT" };
        let now = format!(
            "SELECT t.id, {status}, NULLIF(w.tx_hash, '')::TEXT FROM unnest($1::TEXT[]) t (id) LEFT JOIN {table} w ON w.id::TEXT = t.id
             {join_live} ORDER BY t.id"
        );
        let newer = live.as_ref().map(|live| {
            format!(
                "SELECT l.id::TEXT, l.status::TEXT FROM {live} l WHERE lower(l.status) NOT IN ({ended})
                     AND NOT EXISTS (SELECT 1 FROM {table} w WHERE w.id = l.id) ORDER BY 1"
            )
        });
        sqlx::raw_sql("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").execute(&mut self.connection).await?;
        let counts: Vec<(String, bool, i64)> =
            sqlx::query_as(AssertSqlSafe(counts)).fetch_all(&mut self.connection).await?;
        let open = sqlx::query(AssertSqlSafe(open)).fetch_all(&mut self.connection).await?;
        let taken: Vec<(String, Option<String>, Option<String>)> =
            sqlx::query_as(AssertSqlSafe(now)).bind(taken.to_vec()).fetch_all(&mut self.connection).await?;
        let newer: Vec<(String, String)> = match newer {
            Some(newer) => sqlx::query_as(AssertSqlSafe(newer)).fetch_all(&mut self.connection).await?,
            None => Vec::new(),
        };
        let hot: Vec<(String, String)> = sqlx::query_as(
            "SELECT c.name::TEXT, o.address::TEXT FROM operation_wallet_addresses o JOIN chains c ON c.id = o.chain_id
             WHERE o.role IN ('hot_wallet', 'hot') ORDER BY 1, 2",
        )
        .fetch_all(&mut self.connection)
        .await?;
        sqlx::raw_sql("COMMIT").execute(&mut self.connection).await?;
        let mut hot_wallets: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (chain, address) in hot {
            hot_wallets.entry(chain).or_default().push(address);
        }
        Ok(OldBooks {
            counts: counts.into_iter().map(|(status, hashed, rows)| OldCount { status, hashed, rows }).collect(),
            open: open.iter().map(withdrawal).collect::<Result<_, _>>()?,
            taken: taken.into_iter().map(|(id, status, hash)| OldTaken { id, status, hash }).collect(),
            hot_wallets,
            stale,
            live,
            newer,
        })
    }

    /// Step 1 of the source's guide: a copy of the table beside it. One that is there stays as it is.
    pub async fn back_up(&mut self) -> Result<OldBackup, OldError> {
        let (table, backup) = (self.table.clone(), format!("{}_backup", self.table));
        let made = format!("CREATE TABLE IF NOT EXISTS {backup} AS SELECT * FROM {table}");
        let mut tx = self.connection.begin().await?;
        // Two at once make one.
        sqlx::raw_sql("SELECT pg_advisory_xact_lock(4848290)").execute(&mut *tx).await?;
        let there: bool =
            sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL").bind(&backup).fetch_one(&mut *tx).await?;
        if !there {
            sqlx::raw_sql(AssertSqlSafe(made)).execute(&mut *tx).await?;
        }
        let rows: i64 =
            sqlx::query_scalar(AssertSqlSafe(format!("SELECT COUNT(*) FROM {backup}"))).fetch_one(&mut *tx).await?;
        let newer =
            format!("SELECT COUNT(*) FROM {table} w WHERE NOT EXISTS (SELECT 1 FROM {backup} b WHERE b.id = w.id)");
        let newer: i64 = sqlx::query_scalar(AssertSqlSafe(newer)).fetch_one(&mut *tx).await?;
        tx.commit().await?;
        Ok(OldBackup { table: backup, made: !there, rows, newer })
    }

    /// The same as a file, for who may not make tables there: a row as JSON on each line. How many, and the CRC-32C of all bytes.
    pub async fn dump(&mut self, into: &mut dyn Write) -> Result<(u64, u32), OldError> {
        let query = format!("SELECT row_to_json(w)::TEXT FROM {} w ORDER BY w.id", self.table);
        let mut rows = sqlx::query(AssertSqlSafe(query)).fetch(&mut self.connection);
        let (mut count, mut sum) = (0, 0);
        while let Some(row) = rows.try_next().await? {
            let line: String = row.try_get(0)?;
            let line = format!("{line}\n");
            into.write_all(line.as_bytes()).map_err(OldError::File)?;
            sum = crc32c::crc32c_append(sum, line.as_bytes());
            count += 1;
        }
        Ok((count, sum))
    }

    pub async fn close(self) -> Result<(), OldError> {
        Ok(self.connection.close().await?)
    }
}

fn withdrawal(row: &PgRow) -> Result<OldWithdrawal, sqlx::Error> {
    Ok(OldWithdrawal {
        id: row.try_get("id")?,
        user: row.try_get("user_id")?,
        amount: row.try_get("amount")?,
        fee: row.try_get("fee")?,
        memo: row.try_get("memo")?,
        to: row.try_get("to_address")?,
        status: row.try_get("status")?,
        hash: row.try_get("tx_hash")?,
        raw: row.try_get("amount_raw")?,
        created_us: row.try_get("created_us")?,
        chain: row.try_get("chain")?,
        symbol: row.try_get("symbol")?,
        decimals: row.try_get("decimals")?,
        contract: row.try_get("contract")?,
        wallet: row.try_get("wallet")?,
        same_hash: row.try_get("same_hash")?,
        tried: row.try_get("tried")?,
        live: row.try_get("live")?,
    })
}
