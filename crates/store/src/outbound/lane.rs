//! Who sends from a lane and who watches it: leased, and fenced by a number that rises whenever another takes over.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use domain::{Approval, Timestamp};

use super::types::{LaneId, lane_ids};
use crate::db::{Db, Tx};
use crate::entry::ChainId;
use crate::entry::findings::{Finding, FindingKind, add_findings, add_resolved};
use crate::error::StoreError;
use crate::operator::log::{DONE, NewLogLine, write};
use crate::rows::{Column, ColumnType::Int, ColumnType::Text, RowsSql, fetch_rows};
use crate::transact;

/// What a worker does with a lane. Two may have it for different duties.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Duty {
    /// Takes slots, has them signed, tells nodes.
    Send,
    /// Asks the chain what became of them.
    Watch,
}

impl Duty {
    pub const ALL: [Self; 2] = [Self::Send, Self::Watch];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Watch => "watch",
        }
    }
}

/// Which lanes a worker takes: those whose number leaves this rest. Workers of one process share the lanes so, and none has another's. On Bitcoin it is the
/// number of the wallet group: its lanes spend the same coins, and who offers more for a transaction must know all that it is built on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    pub part: i64,
    pub of: i64,
}

impl Share {
    pub const ALL: Self = Self { part: 0, of: 1 };
}

/// A lane that a worker has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeldLane {
    pub lane: LaneId,
    pub duty: Duty,
    fence: i64,
}

statements! {
    /// Lanes with something to do that nobody has, or this worker: found by what waits and what is open, however many lanes there were once. A job that
    /// pays to a wallet of a stopped group is nothing to do.
    /// A lease that is longer than this one asks for was given by a clock that was wrong: it keeps nobody out. The house's own wallets come
    /// first: they pay customers, and ten thousand users' addresses that are swept must not stand before them. Then those that nobody has
    /// looked at the longest: no lane starves another. On Bitcoin one worker sends from all lanes of a group: while somebody has one of them, nobody
    /// else takes another.
    FIND_LANES = "SELECT l.id FROM (SELECT s.lane_id FROM outbound_slots s WHERE s.state = 'open'
            UNION SELECT j.lane_id FROM outbound_jobs j JOIN outbound_lanes w ON w.id = j.lane_id AND w.stopped IS NULL
                JOIN wallet_groups g ON g.id = w.wallet_group_id AND g.outbound_stopped IS NULL
            WHERE $2 = 'send' AND j.chain_id = $1 AND j.waiting AND j.due_at <= $4
                AND NOT EXISTS (SELECT 1 FROM wallet_groups o WHERE o.name = j.owner_group AND o.outbound_stopped IS NOT NULL)) b
            JOIN outbound_lanes l ON l.id = b.lane_id JOIN outbound_leases h ON h.lane_id = l.id AND h.duty = $2
            JOIN chains c ON c.id = l.chain_id
            LEFT JOIN operation_wallet_addresses o ON o.chain_id = l.chain_id AND o.address = l.address
        WHERE l.chain_id = $1 AND (h.worker = $3 OR h.lease_until <= $4 OR h.lease_until > $5)
            AND (CASE WHEN c.kind = 'bitcoin' THEN l.wallet_group_id ELSE l.id END) % $7 = $8
            AND NOT (c.kind = 'bitcoin' AND h.duty = 'send' AND EXISTS (SELECT 1 FROM outbound_lanes n
                JOIN outbound_leases x ON x.lane_id = n.id AND x.duty = 'send' AND x.lease_until > $4 AND x.lease_until <= $5
                WHERE n.chain_id = l.chain_id AND n.wallet_group_id = l.wallet_group_id AND x.worker <> $3))
        ORDER BY o.id IS NULL, h.lease_until, l.id LIMIT $6 {FOR UPDATE OF h SKIP LOCKED}";
    LOCK_LANES = "SELECT l.id FROM outbound_lanes l WHERE l.id {in $1} ORDER BY l.id {FOR UPDATE}";
    READ_FENCES = "SELECT lane_id, fence FROM outbound_leases WHERE lane_id {in $1} AND duty = $2";
    LEAVE_LANES = "UPDATE outbound_leases SET worker = '', lease_until = 0 WHERE worker = $1 AND duty = $2";
    STOP_LANE = "UPDATE outbound_lanes SET stopped = $2, updated_at = $3 WHERE id = $1 AND stopped IS NULL";
    /// All nonces below this one are explained by people.
    RESUME_LANE = "UPDATE outbound_lanes SET stopped = NULL, known_nonce = NULL, updated_at = $2
        WHERE id = $1 AND stopped IS NOT NULL";
    /// The same of a lane that only its group had stopped.
    EXPLAIN_LANE = "UPDATE outbound_lanes SET known_nonce = NULL, updated_at = $2 WHERE id = $1";
    /// What the signer refused in a time that the database does not know is asked for again.
    ASK_AGAIN = "UPDATE outbound_attempts SET refused = NULL, updated_at = $2 WHERE signed IS NULL AND refused IS NOT NULL
        AND slot_id IN (SELECT s.id FROM outbound_slots s WHERE s.lane_id = $1 AND s.state = 'open' AND NOT EXISTS
            (SELECT 1 FROM outbound_attempts a WHERE a.slot_id = s.id AND a.signed IS NOT NULL))";
    READ_LANE_CHAIN = "SELECT chain_id, address FROM outbound_lanes WHERE id = $1";
    /// A key that somebody else has may sign for every wallet of its group, also for those that have never sent.
    STOP_GROUP = "UPDATE wallet_groups SET outbound_stopped = $3, updated_at = $4 WHERE outbound_stopped IS NULL AND id IN (
        SELECT l.wallet_group_id FROM outbound_lanes l WHERE l.chain_id = $1 AND l.address {in $2}
        UNION SELECT o.wallet_group_id FROM operation_wallet_addresses o WHERE o.chain_id = $1 AND o.address {in $2}
            AND o.wallet_group_id IS NOT NULL
        UNION SELECT u.wallet_group_id FROM user_wallets u WHERE u.address {in $2})";
    STOP_NAMED_GROUP = "UPDATE wallet_groups SET outbound_stopped = $2, updated_at = $3 WHERE outbound_stopped IS NULL AND name = $1";
    RESUME_GROUP = "UPDATE wallet_groups SET outbound_stopped = NULL, updated_at = $2 WHERE outbound_stopped IS NOT NULL
        AND id = (SELECT l.wallet_group_id FROM outbound_lanes l WHERE l.id = $1)";
    /// The same for a group by one of its addresses, which may never have sent anything.
    RESUME_GROUP_OF = "UPDATE wallet_groups SET outbound_stopped = NULL, updated_at = $3 WHERE outbound_stopped IS NOT NULL AND id IN (
        SELECT o.wallet_group_id FROM operation_wallet_addresses o WHERE o.chain_id = $1 AND o.address = $2 AND o.wallet_group_id IS NOT NULL
        UNION SELECT u.wallet_group_id FROM user_wallets u WHERE u.address = $2)";
}

static TAKE_LANES: RowsSql = RowsSql::new(
    "TAKE_LANES",
    "UPDATE outbound_leases SET fence = CASE WHEN outbound_leases.worker = r.worker THEN outbound_leases.fence
             ELSE outbound_leases.fence + 1 END, worker = r.worker, lease_until = r.lease_until
     FROM {rows} WHERE outbound_leases.lane_id = r.lane_id AND outbound_leases.duty = r.duty
     RETURNING outbound_leases.lane_id, outbound_leases.fence",
    &[("lane_id", Int), ("duty", Text), ("worker", Text), ("lease_until", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 1] = [&TAKE_LANES];

impl Db {
    /// Takes lanes of a chain that have something to do, so many at most, until a time. Those that the worker has already it has longer.
    pub async fn take_lanes(
        &self,
        place: (ChainId, Duty),
        worker: &str,
        most: i64,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<HeldLane>, StoreError> {
        self.take_share(place, worker, (Share::ALL, most), now, until).await
    }

    /// The same of a share of the lanes.
    pub async fn take_share(
        &self,
        (chain, duty): (ChainId, Duty),
        worker: &str,
        (share, most): (Share, i64),
        now: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<HeldLane>, StoreError> {
        transact!(self, tx => {
            let (duty_word, now, until) = (duty.as_str(), now.micros(), until.micros());
            let Share { part, of } = share;
            let found = fetch_all!(tx, FIND_LANES => (i64,), chain.0, duty_word, worker, now, until, most, of, part)?;
            if found.is_empty() {
                return Ok(Vec::new());
            }
            let count = found.len();
            let columns = vec![
                Column::Ints(found.into_iter().map(|(id,)| id).collect()),
                Column::Texts(vec![duty_word; count]),
                Column::Texts(vec![worker; count]),
                Column::Ints(vec![until; count]),
            ];
            let taken: Vec<(i64, i64)> = fetch_rows(tx, &TAKE_LANES, columns).await?;
            let mut held: Vec<HeldLane> =
                taken.into_iter().map(|(lane, fence)| HeldLane { lane: LaneId(lane), duty, fence }).collect();
            held.sort_unstable();
            Ok(held)
        })
    }

    /// Others may have them at once.
    pub async fn leave_lanes(&self, worker: &str, duty: Duty) -> Result<(), StoreError> {
        transact!(self, tx => {
            execute!(tx, LEAVE_LANES, worker, duty.as_str())?;
            Ok(())
        })
    }

    /// Nothing is sent from the lane until two people let it. Says whether it did send.
    pub async fn stop_lane(&self, lane: LaneId, why: &str, at: Timestamp) -> Result<bool, StoreError> {
        transact!(self, tx => stop(tx, lane, why, at).await)
    }

    /// Two people let the lane send again, and its group if that was stopped. What was used of its nonces up to now is explained by them. Each has a
    /// line in the log of operators, also if there was nothing to do. False: it was not stopped.
    pub async fn resume_lane(&self, lane: LaneId, people: &Approval, at: Timestamp) -> Result<bool, StoreError> {
        transact!(self, tx => {
            fetch_all!(tx, LOCK_LANES => (i64,), lane_ids(&[lane]))?;
            let Some((chain, address)) = fetch_optional!(tx, READ_LANE_CHAIN => (i64, String), lane.0)? else {
                return Ok(false);
            };
            let group = execute!(tx, RESUME_GROUP, lane.0, at.micros())? == 1;
            let resumed = execute!(tx, RESUME_LANE, lane.0, at.micros())? == 1 || group;
            let outcome = if resumed { DONE } else { "LANE_NOT_STOPPED" };
            write(tx, &NewLogLine::by_two(people, "resume", &address, "", outcome), at).await?;
            if resumed {
                execute!(tx, EXPLAIN_LANE, lane.0, at.micros())?;
                execute!(tx, ASK_AGAIN, lane.0, at.micros())?;
                tell_resumed(tx, ChainId(chain), address, people, at).await?;
            }
            Ok(resumed)
        })
    }

    /// The same for the group of an address that has no lane because nothing was ever sent from it: rules make no job for a group that is stopped, so its
    /// addresses may never get one. False: it is no address of a group that is stopped.
    pub async fn resume_group_of(
        &self,
        chain: ChainId,
        address: &str,
        people: &Approval,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        transact!(self, tx => {
            let resumed = execute!(tx, RESUME_GROUP_OF, chain.0, address, at.micros())? > 0;
            let outcome = if resumed { DONE } else { "LANE_NOT_STOPPED" };
            write(tx, &NewLogLine::by_two(people, "resume", &address, "", outcome), at).await?;
            if resumed {
                tell_resumed(tx, chain, address.to_owned(), people, at).await?;
            }
            Ok(resumed)
        })
    }
}

async fn tell_resumed(
    tx: &mut Tx,
    chain: ChainId,
    subject: String,
    people: &Approval,
    at: Timestamp,
) -> Result<(), StoreError> {
    let told = Finding { kind: FindingKind::Resumed, subject, detail: format!("it sends again: {people}") };
    add_resolved(tx, chain, &told, &people.to_string(), at).await
}

pub(crate) async fn stop(tx: &mut Tx, lane: LaneId, why: &str, at: Timestamp) -> Result<bool, StoreError> {
    fetch_all!(tx, LOCK_LANES => (i64,), lane_ids(&[lane]))?;
    if execute!(tx, STOP_LANE, lane.0, why, at.micros())? == 0 {
        return Ok(false);
    }
    if let Some((chain, address)) = fetch_optional!(tx, READ_LANE_CHAIN => (i64, String), lane.0)? {
        let finding = Finding { kind: FindingKind::LaneStopped, subject: address, detail: why.to_owned() };
        add_findings(tx, ChainId(chain), &[finding], at).await?;
    }
    Ok(true)
}

/// Coins left these addresses, and no transaction of ours explains it: nothing more is sent by the keys of their groups.
pub(crate) async fn stop_groups(
    tx: &mut Tx,
    chain: ChainId,
    addresses: &BTreeSet<&str>,
    why: &str,
    at: Timestamp,
) -> Result<(), StoreError> {
    let addresses =
        crate::dialect::Many(addresses.iter().map(|address| (*address).to_owned()).collect::<Vec<String>>());
    execute!(tx, STOP_GROUP, chain.0, addresses.clone(), why, at.micros()).map(|_| ())
}

/// The same for a group by its name.
pub(crate) async fn stop_group(tx: &mut Tx, group: &str, why: &str, at: Timestamp) -> Result<(), StoreError> {
    execute!(tx, STOP_NAMED_GROUP, group, why, at.micros()).map(|_| ())
}

/// Locks the lanes, in their order, and says which of them the worker still has.
pub(crate) async fn lock_held(tx: &mut Tx, held: &[HeldLane]) -> Result<BTreeSet<LaneId>, StoreError> {
    let mut by_duty: BTreeMap<Duty, HashMap<LaneId, i64>> = BTreeMap::new();
    for one in held {
        by_duty.entry(one.duty).or_default().insert(one.lane, one.fence);
    }
    let lanes: BTreeSet<LaneId> = held.iter().map(|one| one.lane).collect();
    let ids = lane_ids(&lanes.iter().copied().collect::<Vec<_>>());
    fetch_all!(tx, LOCK_LANES => (i64,), ids.clone())?;
    let mut still = lanes;
    for (duty, fences) in by_duty {
        let rows = fetch_all!(tx, READ_FENCES => (i64, i64), ids.clone(), duty.as_str())?;
        let now: HashMap<LaneId, i64> = rows.into_iter().map(|(lane, fence)| (LaneId(lane), fence)).collect();
        still.retain(|lane| fences.get(lane).is_none_or(|fence| now.get(lane) == Some(fence)));
    }
    Ok(still)
}
