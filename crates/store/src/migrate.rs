//! The schema, versioned: one folder of numbered files per engine, applied in order, once, by one process.

use domain::Timestamp;
use sqlx::AssertSqlSafe;

use crate::db::{Db, Engine, Tx, TxInner};
use crate::dialect::{LOCK_MIGRATIONS, READ_IS_READ_ONLY, READ_UNIQUE_INDEXES, is_missing_table};
use crate::error::StoreError;
use crate::transact;

#[derive(Debug)]
pub struct Migration {
    pub version: i64,
    pub name: &'static str,
    postgres: &'static str,
    sqlite: &'static str,
}

macro_rules! migrations {
    ($($version:literal $name:literal;)*) => {
        pub const MIGRATIONS: &[Migration] = &[$(Migration {
            version: $version,
            name: $name,
            postgres: include_str!(concat!("../migrations/postgres/", $name, ".sql")),
            sqlite: include_str!(concat!("../migrations/sqlite/", $name, ".sql")),
        }),*];
    };
}

migrations! {
    1 "0001_foundation";
    2 "0002_transfers";
    3 "0003_utxo";
    4 "0004_unproven";
    5 "0005_pair";
    6 "0006_stops";
    7 "0007_followed";
    8 "0008_chains";
    9 "0009_address_paths";
    10 "0010_given_up";
    11 "0011_claims";
    12 "0012_lease_locks";
    13 "0013_wallet_groups";
    14 "0014_deposits";
    15 "0015_signer_heads";
    16 "0016_looks";
    17 "0017_outbound";
    18 "0018_gather";
    19 "0019_treasury";
    20 "0020_live";
    21 "0021_views";
    22 "0022_lanes";
    23 "0023_withdrawals";
    24 "0024_payouts";
    25 "0025_named_coins";
    26 "0026_paid_withdrawals";
    27 "0027_quotes";
    28 "0028_operators";
    29 "0029_imports";
    30 "0030_received";
    31 "0031_judged";
    32 "0032_steps";
    33 "0033_outbound_mends";
}

impl Migration {
    pub(crate) const fn text(&self, engine: Engine) -> &'static str {
        match engine {
            Engine::Postgres => self.postgres,
            Engine::Sqlite => self.sqlite,
        }
    }

    fn checksum(&self, engine: Engine) -> i64 {
        i64::from(crc32c::crc32c(self.text(engine).as_bytes()))
    }
}

statements! {
    READ_VERSIONS = "SELECT version, checksum FROM schema_migrations ORDER BY version";
    INSERT_VERSION = "INSERT INTO schema_migrations (version, name, checksum, applied_at) VALUES ($1, $2, $3, $4)";
}

/// Made by `migrate` itself, so outside of the migrations.
const CREATE_VERSIONS: &str = "CREATE TABLE IF NOT EXISTS schema_migrations (
    version BIGINT NOT NULL PRIMARY KEY, name TEXT NOT NULL, checksum BIGINT NOT NULL, applied_at BIGINT NOT NULL)";

impl Db {
    /// Brings the schema up to date and says which migrations that took. All of them are one transaction, under a
    /// lock: two processes that migrate at once do it once.
    pub async fn migrate(&self, at: Timestamp) -> Result<Vec<&'static Migration>, StoreError> {
        transact!(self, tx => {
            fetch_optional!(tx, LOCK_MIGRATIONS => (String,))?;
            run_script(tx, CREATE_VERSIONS).await?;
            let applied = applied_versions(tx).await?;
            let pending: Vec<&Migration> = MIGRATIONS.iter().filter(|migration| migration.version > applied).collect();
            for migration in &pending {
                let engine = tx.engine();
                run_script(tx, migration.text(engine)).await?;
                let checksum = migration.checksum(engine);
                execute!(tx, INSERT_VERSION, migration.version, migration.name, checksum, at.micros())?;
            }
            check_guards(tx).await?;
            Ok(pending)
        })
    }

    /// Refuses to go on unless the schema is exactly the one that this program knows.
    /// Whether it has this program's schema and takes writes, as far as can be told without writing.
    pub async fn check_ready(&self) -> Result<(), StoreError> {
        self.check_schema().await?;
        match fetch_optional!(&mut self.read().await?, READ_IS_READ_ONLY => (bool,))? {
            Some((false,)) => Ok(()),
            Some((true,)) | None => Err(StoreError::ReadOnly),
        }
    }

    pub async fn check_schema(&self) -> Result<(), StoreError> {
        let mut tx = self.read().await?;
        let wanted = MIGRATIONS.last().map_or(0, |migration| migration.version);
        match applied_versions(&mut tx).await {
            Ok(found) if found == wanted => check_guards(&mut tx).await,
            Ok(0) => Err(StoreError::SchemaMissing),
            Ok(found) => Err(StoreError::SchemaOutdated { found, wanted }),
            Err(StoreError::Database(error)) if is_missing_table(&error) => Err(StoreError::SchemaMissing),
            Err(error) => Err(error),
        }
    }
}

/// A unique index that stands between a replay and a second effect.
#[derive(Clone, Copy, Debug)]
pub struct Guard {
    /// Its name in the schema. SQLite has names only for those that are not part of their table.
    pub name: &'static str,
    pub table: &'static str,
    pub columns: &'static str,
    /// It leaves out the rows that it does not concern.
    pub partial: bool,
}

/// Every unique index that exactly once rests on (law 2), and those that let one of two have a number, a lease or an
/// output. `tests/mutants` takes each away and names the test that notices.
pub const GUARDS: &[Guard] = &[
    whole("movements_key", "movements", "op_key, leg"),
    partial("movements_hold_end", "movements", "hold_key"),
    whole("account_status_changes_key", "account_status_changes", "op_key"),
    whole("accounts_owner_kind_asset", "accounts", "owner, kind, asset_id"),
    whole("transfers_pkey", "transfers", "id"),
    partial("transfers_client_order", "transfers", "user_id, client_order_id"),
    whole("transfer_events_pkey", "transfer_events", "transfer_id, version"),
    whole("transfer_days_pkey", "transfer_days", "user_id, day, asset_id"),
    whole("nodes_pkey", "nodes", "number"),
    whole("uidx_addresses_script", "addresses", "script_pub_key"),
    whole("uidx_transactions_hash", "transactions", "tx_hash, wallet_id"),
    whole("uidx_utxos_outpoint", "utxos", "wallet_id, tx_id, output_index"),
    partial("uidx_tx_inputs_active", "tx_inputs", "prev_hash, prev_index, wallet_id"),
    whole("pidx_utxo_leases", "utxo_leases", "wallet_id, utxo_id"),
    whole("wallet_groups_name", "wallet_groups", "name"),
    whole("wallet_groups_xpub", "wallet_groups", "xpub"),
    whole("operation_wallets_address", "operation_wallet_addresses", "chain_id, address"),
    whole("operation_wallets_index", "operation_wallet_addresses", "wallet_group_id, derivation_index, chain_id"),
    whole("user_wallets_user", "user_wallets", "user_id, wallet_group_id"),
    whole("user_wallets_address", "user_wallets", "address"),
    partial("chain_entries_alive", "chain_entries", "chain_id, tx_hash, place, side"),
    partial("chain_entries_key", "chain_entries", "chain_id, tx_hash, place, side, generation"),
    partial("chain_entries_reverses", "chain_entries", "reverses"),
    whole("wallet_balances_pkey", "wallet_balances", "chain_id, address, listing_id"),
    whole("deposits_key", "deposits", "chain_id, tx_hash, place, generation"),
    whole("deposit_events_pkey", "deposit_events", "deposit_id, version"),
    whole("outbound_lanes_address", "outbound_lanes", "chain_id, address"),
    partial("outbound_slots_nonce", "outbound_slots", "lane_id, nonce"),
    partial("outbound_jobs_reference", "outbound_jobs", "kind, reference"),
    whole("outbound_job_events_pkey", "outbound_job_events", "job_id, version"),
    partial("outbound_attempts_one_mined", "outbound_attempts", "slot_id"),
    whole("treasury_jobs_generation", "treasury_jobs", "chain_id, address, listing_id, kind, generation"),
    whole("withdrawal_requests_client_order", "withdrawal_requests", "user_id, client_order_id"),
    whole("withdrawal_events_pkey", "withdrawal_events", "withdrawal_id, version"),
    whole("withdrawal_jobs_once", "withdrawal_jobs", "job_id"),
    whole("withdrawal_imports_pkey", "withdrawal_imports", "old_id"),
    partial("withdrawal_imports_paid_by", "withdrawal_imports", "chain_id, tx_hash"),
];

const fn whole(name: &'static str, table: &'static str, columns: &'static str) -> Guard {
    Guard { name, table, columns, partial: false }
}

const fn partial(name: &'static str, table: &'static str, columns: &'static str) -> Guard {
    Guard { name, table, columns, partial: true }
}

/// The first try of a batch relies on these indexes to refuse what was done before. Without one, a replay would pay
/// twice; nothing may run then. They are looked for by what they hold, not by name: an index that was made again by hand
/// on other columns is none.
async fn check_guards(tx: &mut Tx) -> Result<(), StoreError> {
    let there = fetch_all!(tx, READ_UNIQUE_INDEXES => (String, String, bool))?;
    let holds = |guard: &Guard| {
        there.iter().any(|(table, columns, partial)| {
            table == guard.table && columns == guard.columns && (guard.partial || !partial)
        })
    };
    match GUARDS.iter().find(|guard| !holds(guard)) {
        None => Ok(()),
        Some(Guard { name, .. }) => {
            Err(StoreError::Corrupt { what: format!("the unique index {name} is missing or invalid") })
        }
    }
}

/// The newest version applied; 0 for none. Refuses versions from the future, and texts that were changed since.
async fn applied_versions(tx: &mut Tx) -> Result<i64, StoreError> {
    let rows = fetch_all!(tx, READ_VERSIONS => (i64, i64))?;
    let known = MIGRATIONS.last().map_or(0, |migration| migration.version);
    let found = rows.last().map_or(0, |row| row.0);
    if found > known {
        return Err(StoreError::SchemaTooNew { found, known });
    }
    let engine = tx.engine();
    for (version, checksum) in rows {
        let migration = MIGRATIONS.iter().find(|migration| migration.version == version);
        if migration.map(|migration| migration.checksum(engine)) != Some(checksum) {
            return Err(StoreError::MigrationChanged { version });
        }
    }
    Ok(found)
}

async fn run_script(tx: &mut Tx, text: &'static str) -> Result<(), StoreError> {
    match &mut tx.inner {
        TxInner::Postgres(tx) => sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut **tx).await.map(|_| ())?,
        TxInner::Sqlite(tx) => sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut **tx).await.map(|_| ())?,
    }
    Ok(())
}
