//! The database's own clock. PostgreSQL runs on a machine of its own; SQLite has no clock but this machine's.

use domain::{Clock, ClockReading, Timestamp};

use crate::db::{Db, Engine, Tx};
use crate::error::StoreError;

statements! {
    /// The moment itself, not the start of the transaction. SQLite is never asked.
    READ_CLOCK = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)" | "SELECT 0";
}

impl Db {
    /// The database's clock beside ours. `None`: it has none of its own.
    pub async fn clock(&self, ours: &dyn Clock) -> Result<Option<ClockReading>, StoreError> {
        if self.engine() == Engine::Sqlite {
            return Ok(None);
        }
        // Waiting for a connection is no part of the round trip.
        let mut tx = self.read().await?;
        let before = ours.now();
        let theirs = read_clock(&mut tx).await?;
        Ok(theirs.map(|theirs| ClockReading { before, theirs, after: ours.now() }))
    }
}

/// What the database's clock says. `None`: it has none of its own.
pub(crate) async fn read_clock(tx: &mut Tx) -> Result<Option<Timestamp>, StoreError> {
    if tx.engine() == Engine::Sqlite {
        return Ok(None);
    }
    let read = fetch_optional!(tx, READ_CLOCK => (i64,))?;
    Ok(read.map(|(micros,)| Timestamp::from_micros(micros)))
}
