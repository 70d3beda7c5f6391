//! Node numbers, which processes make ids with. A number is lent to one process for a while; the process renews it in
//! time, or stops making ids.

use domain::Timestamp;
use domain::id::NodeId;

use crate::db::Db;
use crate::dialect::LOCK_NODES;
use crate::error::StoreError;
use crate::transact;

statements! {
    READ_NODES = "SELECT number, expires_at FROM nodes ORDER BY number";
    LEND_NODE = "INSERT INTO nodes (number, holder, expires_at) VALUES ($1, $2, $3)
        ON CONFLICT (number) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at";
    RENEW_NODE = "UPDATE nodes SET expires_at = $3 WHERE number = $1 AND holder = $2 AND expires_at > $4";
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

    /// False: the lease has run out or went to another process. No more ids may be made with it.
    pub async fn renew_node(
        &self,
        node: NodeId,
        holder: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<bool, StoreError> {
        transact!(self, tx => {
            let renewed =
                execute!(tx, RENEW_NODE, i64::from(node.number()), holder, until.micros(), now.micros())?;
            Ok(renewed == 1)
        })
    }
}
