//! Node numbers, which processes make ids with. A number is lent to one process for a while; the process renews it in
//! time, or stops making ids.
//!
//! A lease ends by its holder's clock, because it has to be longer than the time in every id that the holder makes.
//! Whether it has ended for others is judged by the borrower's clock and by the database's: both must be past it.

use domain::Timestamp;
use domain::id::NodeId;

use crate::clock::read_clock;
use crate::db::Db;
use crate::dialect::LOCK_NODES;
use crate::error::StoreError;
use crate::transact;

statements! {
    READ_NODES = "SELECT number, expires_at FROM nodes ORDER BY number";
    LEND_NODE = "INSERT INTO nodes (number, holder, expires_at) VALUES ($1, $2, $3)
        ON CONFLICT (number) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at";
    /// A lease never gets shorter: a clock that was ahead and was corrected has made ids up to the old end.
    RENEW_NODE = "UPDATE nodes SET expires_at = CASE WHEN expires_at > $3 THEN expires_at ELSE $3 END
        WHERE number = $1 AND holder = $2 AND expires_at > $4 RETURNING expires_at";
    /// The holder makes no more ids, so that the lease may end with the last one that it made.
    END_LEASE = "UPDATE nodes SET holder = '', expires_at = $3 WHERE number = $1 AND holder = $2 AND expires_at > $3";
}

/// For a minute after a lease ran out its number is not lent to another process: clocks differ between machines.
const MARGIN_MICROS: i64 = 60_000_000;

impl Db {
    /// A node number that no other process has, until the time given. `None`: all of them are lent.
    pub async fn lease_node(
        &self,
        holder: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<Option<NodeId>, StoreError> {
        transact!(self, tx => {
            fetch_optional!(tx, LOCK_NODES => (String,))?;
            // A borrower whose clock is ahead must not take a number that is in use.
            let now = read_clock(tx).await?.map_or(now, |database| database.min(now));
            let taken: Vec<i64> = fetch_all!(tx, READ_NODES => (i64, i64))?
                .into_iter()
                .filter(|(_, expires)| now.micros() <= expires.saturating_add(MARGIN_MICROS))
                .map(|(number, _)| number)
                .collect();
            let free = (0..NodeId::UNLENT).find(|number| !taken.contains(&i64::from(*number)));
            if let Some(number) = free {
                execute!(tx, LEND_NODE, i64::from(number), holder, until.micros())?;
            }
            Ok(free.and_then(NodeId::new))
        })
    }

    /// Until when the lease is good now. `None`: it has run out or went to another process, and no more ids may be made
    /// with it.
    pub async fn renew_node(
        &self,
        node: NodeId,
        holder: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<Option<Timestamp>, StoreError> {
        transact!(self, tx => {
            let number = i64::from(node.number());
            let renewed = fetch_optional!(tx, RENEW_NODE => (i64,), number, holder, until.micros(), now.micros())?;
            Ok(renewed.map(|(until,)| Timestamp::from_micros(until)))
        })
    }

    /// Gives the number back. `last` is not before the time in any id that was made with it.
    pub async fn give_back_node(&self, node: NodeId, holder: &str, last: Timestamp) -> Result<(), StoreError> {
        transact!(self, tx => {
            execute!(tx, END_LEASE, i64::from(node.number()), holder, last.micros())?;
            Ok(())
        })
    }
}
