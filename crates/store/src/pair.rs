//! The database's half of the pair with its spot engine: who each of them is, and how far the other has come.

use domain::Timestamp;
use domain::id::{self, Id};

use crate::db::{Db, Tx};
use crate::dialect::Many;
use crate::error::StoreError;
use crate::transact;

statements! {
    READ_PAIR = "SELECT database_id, engine_id, told, heard, sequence FROM spot_pair";
    /// Only while no engine is bound: of two that come at once, one is too late.
    BIND_ENGINE = "UPDATE spot_pair SET engine_id = $1 WHERE engine_id IS NULL";
    TELL = "UPDATE spot_pair SET told = told + 1 WHERE engine_id = $1 RETURNING told";
    HEAR = "UPDATE spot_pair SET heard = CASE WHEN heard < $2 THEN $2 ELSE heard END,
            sequence = CASE WHEN sequence < $3 THEN $3 ELSE sequence END
        WHERE engine_id = $1";
    REBIND = "UPDATE spot_pair SET engine_id = $1, told = $2, heard = $2, sequence = $3";
    INSERT_PAIR_EVENT = "INSERT INTO spot_pair_events (engine_id, counter, sequence, actor, second, reason, at)
        VALUES ($1, $2, $3, $4, $5, $6, $7)";
    /// Those that may have been carried out by the engine, and those that two people have accepted as they are. A
    /// transfer that ended without moving money contradicts an engine that has moved it.
    FIND_TRANSFERS = "SELECT id FROM transfers WHERE id {in $1} AND state NOT IN (-10, -30)
        UNION SELECT id FROM spot_pair_accepted WHERE id {in $1}";
    INSERT_ACCEPTED = "INSERT INTO spot_pair_accepted (id, problem, at) VALUES ($1, $2, $3) ON CONFLICT (id) DO NOTHING";
    /// Transfers that the engine has applied for certain, the newest first. Not what people ended without proof, nor what
    /// they accepted.
    NEWEST_APPLIED = "SELECT id FROM transfers
        WHERE (direction = 1 AND state = 40 OR direction = 2 AND state IN (20, 30, 40)) AND id < $1
            AND NOT EXISTS (SELECT 1 FROM unproven_transfers u WHERE u.transfer_id = transfers.id)
            AND NOT EXISTS (SELECT 1 FROM spot_pair_accepted a WHERE a.id = transfers.id)
        ORDER BY id DESC LIMIT $2";
}

/// What the database knows of itself and of its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    pub database: u64,
    /// The id of the engine's log. `None`: no engine has come yet.
    pub engine: Option<u64>,
    /// The engine knows no higher counter than this.
    pub told: u64,
    /// The engine knows at least this counter, and has at least this batch.
    pub heard: u64,
    pub sequence: u64,
}

/// Who changed the pairing, and why.
#[derive(Clone, Copy, Debug)]
pub struct PairAuthor<'a> {
    pub actor: &'a str,
    pub second: Option<&'a str>,
    pub reason: &'a str,
}

const fn signed(number: u64) -> i64 {
    number.cast_signed()
}

impl Db {
    pub async fn pair(&self) -> Result<Pair, StoreError> {
        let row = fetch_optional!(&mut self.read().await?, READ_PAIR => (i64, Option<i64>, i64, i64, i64))?;
        let missing = || StoreError::Corrupt { what: "the row of spot_pair is missing".to_owned() };
        let (database, engine, told, heard, sequence) = row.ok_or_else(missing)?;
        Ok(Pair {
            database: database.cast_unsigned(),
            engine: engine.map(i64::cast_unsigned),
            told: told.cast_unsigned(),
            heard: heard.cast_unsigned(),
            sequence: sequence.cast_unsigned(),
        })
    }

    /// Binds the first engine. False: another one was first.
    pub async fn bind_engine(&self, engine: u64, author: PairAuthor<'_>, at: Timestamp) -> Result<bool, StoreError> {
        transact!(self, tx => {
            if execute!(tx, BIND_ENGINE, signed(engine))? != 1 {
                return Ok(false);
            }
            write_event(tx, engine, 0, 0, author, at).await?;
            Ok(true)
        })
    }

    /// The next counter for the engine to hear, durable before it does. `None`: the engine is not this one any more.
    pub async fn tell_engine(&self, engine: u64) -> Result<Option<u64>, StoreError> {
        let told = transact!(self, tx => fetch_optional!(tx, TELL => (i64,), signed(engine)))?;
        Ok(told.map(|row| row.0.cast_unsigned()))
    }

    /// The engine has this counter and this batch on its disk.
    pub async fn hear_engine(&self, engine: u64, counter: u64, sequence: u64) -> Result<(), StoreError> {
        transact!(self, tx => execute!(tx, HEAR, signed(engine), signed(counter), signed(sequence)))?;
        Ok(())
    }

    /// Accepts an engine as it is, after people have looked at it: its counter and its last batch count from now on, and
    /// so do the differences that could not be mended, each with its problem.
    pub async fn rebind_engine(
        &self,
        engine: u64,
        counter: u64,
        sequence: u64,
        accepted: &[(i64, String)],
        author: PairAuthor<'_>,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        transact!(self, tx => {
            for (id, problem) in accepted {
                execute!(tx, INSERT_ACCEPTED, *id, problem, at.micros())?;
            }
            execute!(tx, REBIND, signed(engine), signed(counter), signed(sequence))?;
            write_event(tx, engine, counter, sequence, author, at).await
        })
    }
}

async fn write_event(
    tx: &mut Tx,
    engine: u64,
    counter: u64,
    sequence: u64,
    author: PairAuthor<'_>,
    at: Timestamp,
) -> Result<(), StoreError> {
    let (engine, counter, sequence) = (signed(engine), signed(counter), signed(sequence));
    let PairAuthor { actor, second, reason } = author;
    execute!(tx, INSERT_PAIR_EVENT, engine, counter, sequence, actor, second, reason, at.micros())?;
    Ok(())
}

/// Those of the ids, sorted, that no transfer has which may have been carried out.
pub async fn without_transfer(tx: &mut Tx, ids: &[i64]) -> Result<Vec<i64>, StoreError> {
    let wanted = Many(ids.to_vec());
    let mut there: Vec<i64> =
        fetch_all!(tx, FIND_TRANSFERS => (i64,), wanted.clone())?.into_iter().map(|row| row.0).collect();
    there.sort_unstable();
    let mut missing: Vec<i64> = ids.iter().copied().filter(|id| there.binary_search(id).is_err()).collect();
    missing.sort_unstable();
    Ok(missing)
}

/// At most so many of the transfers before `before` that the engine has applied for certain, the newest first.
pub async fn newest_applied(tx: &mut Tx, before: i64, most: i64) -> Result<Vec<Id<id::Transfer>>, StoreError> {
    let rows = fetch_all!(tx, NEWEST_APPLIED => (i64,), before, most)?;
    let corrupt = |_| StoreError::Corrupt { what: "a transfer has an impossible id".to_owned() };
    rows.into_iter().map(|row| Id::new(row.0).map_err(corrupt)).collect()
}
