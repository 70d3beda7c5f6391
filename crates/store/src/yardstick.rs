//! The yardsticks that the benches compare with. They are here because all SQL is.
//!
//! | yardstick | of | is |
//! |---|---|---|
//! | [`Db::bare_update`] | `bursar bench ledger` | the plainest durable thing: one row changed and committed |
//! | [`PlainLine`] | `bursar bench transfer` | an internal transfer as the design documents tell it, step by step |
//!
//! The plain transfer makes every state durable by itself before it goes on: six commits, each one statement without
//! BEGIN on a connection that is kept, which is the fewest round trips that the algorithm can be done with.

use domain::id::{Id, Transfer};
use domain::transfer::State;
use domain::{Amount, AssetId, Timestamp, UserId};

use crate::db::{Db, Engine, Line};
use crate::error::StoreError;
use crate::transact;

statements! {
    CREATE_YARDSTICK = "CREATE TABLE IF NOT EXISTS bench_yardstick
        (id BIGINT NOT NULL PRIMARY KEY, balance BIGINT NOT NULL) WITH (fillfactor = 50)"
        | "CREATE TABLE IF NOT EXISTS bench_yardstick
        (id INTEGER NOT NULL PRIMARY KEY, balance INTEGER NOT NULL) STRICT";
    FILL_YARDSTICK = "INSERT INTO bench_yardstick (id, balance)
        WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < $1) SELECT id, 0 FROM n WHERE true
        ON CONFLICT (id) DO NOTHING";
    BARE_UPDATE = "UPDATE bench_yardstick SET balance = balance + 1 WHERE id = $1";

    CREATE_PLAIN_BALANCES = "CREATE TABLE IF NOT EXISTS bench_plain_balances
        (user_id BIGINT NOT NULL, asset_id BIGINT NOT NULL, amount BIGINT NOT NULL, PRIMARY KEY (user_id, asset_id))
        WITH (fillfactor = 50)"
        | "CREATE TABLE IF NOT EXISTS bench_plain_balances
        (user_id INTEGER NOT NULL, asset_id INTEGER NOT NULL, amount INTEGER NOT NULL, PRIMARY KEY (user_id, asset_id))
        STRICT, WITHOUT ROWID";
    FILL_PLAIN_BALANCES = "INSERT INTO bench_plain_balances (user_id, asset_id, amount)
        WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < $1)
        SELECT id, $2, $3 FROM n WHERE true
        ON CONFLICT (user_id, asset_id) DO NOTHING";
    /// The table of 004 §7.1. transfer_type: 1 funding to spot, 2 spot to funding. source_type: 1 funding, 2 spot.
    CREATE_PLAIN_TRANSFERS = "CREATE TABLE IF NOT EXISTS bench_plain_transfers
        (transfer_id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, req_id TEXT NOT NULL UNIQUE,
        user_id BIGINT NOT NULL, asset_id BIGINT NOT NULL, amount BIGINT NOT NULL, transfer_type SMALLINT NOT NULL,
        source_type SMALLINT NOT NULL, state SMALLINT NOT NULL DEFAULT 0, error_message TEXT,
        retry_count INTEGER NOT NULL DEFAULT 0, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL)"
        | "CREATE TABLE IF NOT EXISTS bench_plain_transfers
        (transfer_id INTEGER PRIMARY KEY, req_id TEXT NOT NULL UNIQUE,
        user_id INTEGER NOT NULL, asset_id INTEGER NOT NULL, amount INTEGER NOT NULL, transfer_type INTEGER NOT NULL,
        source_type INTEGER NOT NULL, state INTEGER NOT NULL DEFAULT 0, error_message TEXT,
        retry_count INTEGER NOT NULL DEFAULT 0, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL) STRICT";
    /// For the worker that looks for transfers that stand still.
    CREATE_PLAIN_INDEX = "CREATE INDEX IF NOT EXISTS bench_plain_transfers_state ON bench_plain_transfers (state)
        WHERE state NOT IN (40, -10, -30)";
    PLAIN_INSERT = "INSERT INTO bench_plain_transfers
        (req_id, user_id, asset_id, amount, transfer_type, source_type, state, created_at, updated_at)
        VALUES ($1, $2, $3, $4, $5, $5, $6, $7, $7) RETURNING transfer_id";
    PLAIN_ADVANCE = "UPDATE bench_plain_transfers SET state = $3, updated_at = $4 WHERE req_id = $1 AND state = $2";
    PLAIN_WITHDRAW = "UPDATE bench_plain_balances SET amount = amount - $3
        WHERE user_id = $1 AND asset_id = $2 AND amount >= $3";
    PLAIN_DEPOSIT = "INSERT INTO bench_plain_balances (user_id, asset_id, amount) VALUES ($1, $2, $3)
        ON CONFLICT (user_id, asset_id) DO UPDATE SET amount = bench_plain_balances.amount + excluded.amount";
}

impl Db {
    /// A table of its own with rows 1 to `rows`. Only a bench makes it.
    pub async fn prepare_yardstick(&self, rows: i64) -> Result<(), StoreError> {
        transact!(self, tx => {
            execute!(tx, CREATE_YARDSTICK)?;
            execute!(tx, FILL_YARDSTICK, rows)?;
            Ok(())
        })
    }

    /// One statement in a transaction of its own, without BEGIN: the fewest round trips there are.
    pub async fn bare_update(&self, row: i64) -> Result<(), StoreError> {
        self.autocommit(&BARE_UPDATE, row).await
    }

    /// The tables of the plain transfer, with a balance for each of the users 1 to `users`. Only a bench makes them.
    pub async fn prepare_plain(&self, users: i64, asset: AssetId, balance: Amount) -> Result<(), StoreError> {
        transact!(self, tx => {
            execute!(tx, CREATE_PLAIN_BALANCES)?;
            execute!(tx, CREATE_PLAIN_TRANSFERS)?;
            execute!(tx, CREATE_PLAIN_INDEX)?;
            execute!(tx, FILL_PLAIN_BALANCES, users, asset.0, balance.units())?;
            Ok(())
        })
    }

    /// Connections that the caller keeps: so many, or the one that SQLite writes with. A pool would ask the server
    /// whether a connection still lives each time that it changes hands.
    pub async fn plain_lines(&self, most: u32) -> Result<Vec<PlainLine>, StoreError> {
        let count = match self.engine() {
            Engine::Postgres => most,
            Engine::Sqlite => 1,
        };
        let mut lines = Vec::new();
        for _ in 0..count {
            lines.push(PlainLine(self.line().await?));
        }
        Ok(lines)
    }
}

/// Which way a plain transfer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    FundingToSpot,
    SpotToFunding,
}

impl Direction {
    /// As its type, and as the type of its source.
    const fn number(self) -> i16 {
        match self {
            Self::FundingToSpot => 1,
            Self::SpotToFunding => 2,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct PlainTransfer {
    pub id: Id<Transfer>,
    pub direction: Direction,
    pub user: UserId,
    pub asset: AssetId,
    pub amount: Amount,
}

/// A connection on which each step of a plain transfer is one statement, committed by itself.
#[derive(Debug)]
pub struct PlainLine(Line);

/// Rows changed.
macro_rules! commit {
    ($line:expr, $sql:path $(, $bind:expr)*) => {{
        const {
            assert!($sql.binds == <[&str]>::len(&[$(stringify!($bind)),*]), "as many binds as the statement takes");
        }
        match $line {
            Line::Postgres(line) => sqlx::query($sql.postgres)$(.bind($bind))*
                .execute(&mut **line).await.map(|done| done.rows_affected()),
            Line::Sqlite(line) => sqlx::query($sql.sqlite)$(.bind($bind))*
                .execute(&mut **line).await.map(|done| done.rows_affected()),
        }.map_err(StoreError::at_commit)
    }};
}

/// The first column of the one row that comes back.
macro_rules! commit_returning {
    ($line:expr, $sql:path $(, $bind:expr)*) => {{
        const {
            assert!($sql.binds == <[&str]>::len(&[$(stringify!($bind)),*]), "as many binds as the statement takes");
        }
        match $line {
            Line::Postgres(line) => sqlx::query_scalar($sql.postgres)$(.bind($bind))*.fetch_one(&mut **line).await,
            Line::Sqlite(line) => sqlx::query_scalar($sql.sqlite)$(.bind($bind))*.fetch_one(&mut **line).await,
        }.map_err(StoreError::at_commit)
    }};
}

impl PlainLine {
    /// The record, in INIT. Returns its number.
    pub async fn insert(&mut self, transfer: &PlainTransfer, at: Timestamp) -> Result<i64, StoreError> {
        let (key, kind) = (transfer.id.to_string(), transfer.direction.number());
        let (user, asset, amount) = (transfer.user.get(), transfer.asset.0, transfer.amount.units());
        let state = State::Init.number();
        commit_returning!(&mut self.0, PLAIN_INSERT, key.as_str(), user, asset, amount, kind, state, at.micros())
    }

    /// From one state to another; false if it stood elsewhere.
    pub async fn advance(
        &mut self,
        id: Id<Transfer>,
        [from, to]: [State; 2],
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        let key = id.to_string();
        let changed = commit!(&mut self.0, PLAIN_ADVANCE, key.as_str(), from.number(), to.number(), at.micros())?;
        Ok(changed == 1)
    }

    /// Takes the amount out of the user's balance; false if there is not enough.
    pub async fn withdraw(&mut self, of: &PlainTransfer) -> Result<bool, StoreError> {
        Ok(commit!(&mut self.0, PLAIN_WITHDRAW, of.user.get(), of.asset.0, of.amount.units())? == 1)
    }

    pub async fn deposit(&mut self, of: &PlainTransfer) -> Result<(), StoreError> {
        commit!(&mut self.0, PLAIN_DEPOSIT, of.user.get(), of.asset.0, of.amount.units()).map(|_| ())
    }
}
