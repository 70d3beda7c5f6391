//! The database and its spot engine are a pair (docs/adr/0009-pair.md).
//!
//! Each stores the other's identity and a counter that the other has reached. The database commits the next counter
//! before the engine hears it, and writes down afterwards that the engine has it. So at any moment
//!
//! ```text
//! heard (database)  ≤  counter (engine)  ≤  told (database)
//! ```
//!
//! and a side that was put back from a backup breaks this line, whatever it did since. Between two marks the operations
//! themselves are the witnesses: the newest that the engine has must be transfers of the database, and the newest that the
//! database believes applied must be known to the engine.
//!
//! **No call reaches the engine before the pair was checked**, and none after a check that failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use domain::Timestamp;
use spot::{Mark, OpId, PairStanding, Standing};
use store::pair::{Pair, PairAuthor, newest_applied, without_transfer};
use store::{Db, StoreError};
use tokio::sync::watch;

use crate::audit::{AuditError, check_totals};
use crate::coordinator::Coordinator;
use crate::invariant::compare_and_stop;
use crate::leg::spot::SpotLeg;
use crate::leg::{Leg, Reason, Record};

/// How many of the newest operations bear witness. More than can be on their way at a time: those are bounded by the
/// intake's buffer and the lanes behind it.
const WITNESSES: usize = 16_384;
const PAGE: usize = 4_096;

/// The part of [`crate::Readiness`] that this module speaks for.
const PART: &str = "pair";

#[derive(Debug, thiserror::Error)]
pub enum PairError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the spot engine does not answer: {0}")]
    NoAnswer(Reason),
    /// They never were a pair.
    #[error("{0}")]
    Other(String),
    #[error("the database is behind its spot engine: {0}")]
    DatabaseBehind(String),
    #[error("the spot engine is behind its database: {0}")]
    EngineBehind(String),
}

impl PairError {
    pub fn code(&self) -> &'static str {
        match self {
            Self::Store(error) => error.code(),
            Self::NoAnswer(_) => "SPOT_PAIR_UNCHECKED",
            Self::Other(_) => "SPOT_PAIR_OTHER",
            Self::DatabaseBehind(_) => "SPOT_PAIR_DATABASE_BEHIND",
            Self::EngineBehind(_) => "SPOT_PAIR_ENGINE_BEHIND",
        }
    }

    /// Is it certain that the two do not belong together as they are? Else the check could not be made.
    pub const fn is_certain(&self) -> bool {
        matches!(self, Self::Other(_) | Self::DatabaseBehind(_) | Self::EngineBehind(_))
    }
}

/// What this process knows of its engine. A client holds each new connection against it before anything is sent.
#[derive(Debug, Default)]
pub struct Floor {
    /// 0: no check has succeeded yet.
    engine: AtomicU64,
    counter: AtomicU64,
    sequence: AtomicU64,
    /// How many connections were accepted.
    connections: AtomicU64,
}

impl Floor {
    /// A new connection was accepted: the engine behind it may have been put back since the last mark.
    pub(crate) fn connected(&self) {
        self.connections.fetch_add(1, Ordering::SeqCst);
    }

    fn raise(&self, engine: u64, counter: u64, sequence: u64) {
        self.counter.fetch_max(counter, Ordering::SeqCst);
        self.sequence.fetch_max(sequence, Ordering::SeqCst);
        self.engine.store(engine, Ordering::SeqCst);
    }

    /// Is this still the engine, and is it no older than it was?
    pub fn check(&self, found: &PairStanding) -> Result<(), PairError> {
        let engine = self.engine.load(Ordering::SeqCst);
        if engine == 0 {
            return Ok(());
        }
        if engine != found.log_id {
            return Err(PairError::Other(format!(
                "engine {:016x} answers, this server works with engine {engine:016x}",
                found.log_id
            )));
        }
        let (counter, sequence) = (self.counter.load(Ordering::SeqCst), self.sequence.load(Ordering::SeqCst));
        behind(found, counter, sequence)
    }
}

fn behind(found: &PairStanding, counter: u64, sequence: u64) -> Result<(), PairError> {
    if found.counter < counter {
        let words = format!("it knows mark {}, and had mark {counter} on its disk", found.counter);
        return Err(PairError::EngineBehind(words));
    }
    if found.sequence < sequence {
        let words = format!("its last batch is {}, and it had batch {sequence} on its disk", found.sequence);
        return Err(PairError::EngineBehind(words));
    }
    Ok(())
}

/// Whether calls may go to the engine. It is open in a process that does not keep a pair: tests, and legs that are not
/// our engine.
#[derive(Debug)]
pub struct Gate(watch::Sender<Option<Reason>>);

impl Default for Gate {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl Gate {
    pub fn closed(&self) -> Option<Reason> {
        self.0.borrow().clone()
    }

    /// Waits until it is open.
    pub async fn opened(&self) {
        // The sender is here, so that it cannot be gone.
        self.0.subscribe().wait_for(Option::is_none).await.ok();
    }

    fn set(&self, closed: Option<Reason>) {
        self.0.send_replace(closed);
    }
}

/// What two readings of the database, with the engine's answer between them, say about identities and counters.
fn judge(before: &Pair, engine: &PairStanding, after: &Pair) -> Result<(), PairError> {
    let database = before.database;
    match (before.engine, engine.database) {
        (None, None) => return Ok(()),
        (None, Some(paired)) if paired == database => {
            let words = format!("engine {:016x} was paired with it, and it does not know", engine.log_id);
            return Err(PairError::DatabaseBehind(words));
        }
        (Some(bound), _) if bound != engine.log_id => {
            return Err(PairError::Other(format!(
                "this database belongs to engine {bound:016x}, and this is engine {:016x}",
                engine.log_id
            )));
        }
        (_, Some(paired)) if paired != database => {
            return Err(PairError::Other(format!(
                "engine {:016x} belongs to database {paired}, and this is database {database}",
                engine.log_id
            )));
        }
        (Some(_), None | Some(_)) | (None, Some(_)) => {}
    }
    behind(engine, before.heard, before.sequence)?;
    if engine.counter > after.told {
        let words = format!("the engine was told mark {}, and the database knows of {}", engine.counter, after.told);
        return Err(PairError::DatabaseBehind(words));
    }
    Ok(())
}

/// Compares identities and counters, without changing anything.
pub async fn check(db: &Db, leg: &SpotLeg) -> Result<(Pair, PairStanding), PairError> {
    // The database may move on while the engine answers: its lower bound is read before, its upper bound afterwards.
    let before = db.pair().await?;
    let engine = leg.pair().await.map_err(PairError::NoAnswer)?;
    let after = db.pair().await?;
    judge(&before, &engine, &after)?;
    Ok((after, engine))
}

/// Compares the newest operations of both sides. With the counters this leaves no gap: what one side lost since the last
/// mark is among the other's newest.
pub async fn compare_newest(db: &Db, leg: &SpotLeg) -> Result<(), PairError> {
    let mut before = OpId::new(i64::MAX);
    let mut seen = 0;
    while seen < WITNESSES
        && let Some(id) = before
    {
        let page = leg.crossings(id, PAGE).await.map_err(PairError::NoAnswer)?;
        // What was refused or undone moved nothing.
        let applied = page.iter().filter(|(_, standing)| *standing == Standing::Applied);
        let ids: Vec<i64> = applied.map(|(id, _)| id.number()).collect();
        if !ids.is_empty()
            && let Some(missing) = without_transfer(&mut db.read().await?, &ids).await?.first()
        {
            let words = format!("the engine has operation {missing}, and there is no transfer of that number");
            return Err(PairError::DatabaseBehind(words));
        }
        seen += page.len();
        before = page.last().filter(|_| page.len() == PAGE).map(|(id, _)| *id);
    }
    let mut before = i64::MAX;
    let mut seen = 0;
    while seen < WITNESSES {
        let most = i64::try_from(PAGE).unwrap_or(i64::MAX);
        let page = newest_applied(&mut db.read().await?, before, most).await?;
        let records = if page.is_empty() { Vec::new() } else { leg.query(&page).await };
        for (id, record) in page.iter().zip(&records) {
            match record {
                Record::Nothing => {
                    let words = format!("transfer {id} was carried out there, and it knows nothing of it");
                    return Err(PairError::EngineBehind(words));
                }
                Record::Unknown(reason) if reason.code() != "OPERATION_EXPIRED" => {
                    return Err(PairError::NoAnswer(reason.clone()));
                }
                Record::Applied | Record::Refused(_) | Record::RolledBack | Record::Unknown(_) => {}
            }
        }
        seen += page.len();
        match page.last() {
            Some(last) if page.len() == PAGE => before = last.number(),
            _ => return Ok(()),
        }
    }
    Ok(())
}

/// The whole check of a start: identities, counters, and the newest operations of both sides.
pub async fn prove(db: &Db, leg: &SpotLeg) -> Result<(), PairError> {
    check(db, leg).await?;
    compare_newest(db, leg).await
}

/// Keeps a coordinator and its engine a pair.
pub struct Keeper {
    coordinator: Arc<Coordinator>,
    /// The engine's last batch and counter when it was last marked. While only marks come after it, no new one is needed:
    /// several servers would mark for ever.
    marked: AtomicU64,
    marked_counter: AtomicU64,
    /// The connection and the time of the last comparison of operations.
    compared: Mutex<(u64, Timestamp)>,
}

/// How often the newest operations are compared while both sides run. A database that was exchanged in less than a second
/// has no other witness.
const COMPARE_MICROS: i64 = 60_000_000;
/// How long the comparisons of a beginning may take.
const BEGIN_PATIENCE: Duration = Duration::from_secs(60);

impl Keeper {
    /// Closes the gate until a check succeeds. `None`: the leg is not our engine, and there is nothing to keep.
    pub fn new(coordinator: &Arc<Coordinator>) -> Option<Self> {
        coordinator.leg().spot()?;
        let keeper = Self {
            coordinator: Arc::clone(coordinator),
            marked: AtomicU64::new(0),
            marked_counter: AtomicU64::new(0),
            compared: Mutex::default(),
        };
        let reason = Reason::new("SPOT_PAIR_UNCHECKED", "the engine was not asked yet");
        coordinator.readiness().not_yet(PART, "SPOT_PAIR_UNCHECKED", reason.to_string());
        coordinator.gate().set(Some(reason));
        Some(keeper)
    }

    /// Binds an engine that has no database to a database that has no engine, proves the pair, marks it, stops every asset
    /// of which their totals differ, and opens the gate.
    pub async fn begin(&self) -> Result<(), PairError> {
        let begun = self.try_to_begin().await;
        self.tell(&begun);
        begun
    }

    async fn try_to_begin(&self) -> Result<(), PairError> {
        let Some(leg) = self.coordinator.leg().spot() else { return Ok(()) };
        let db = self.coordinator.db();
        let (pair, engine) = check(db, leg).await?;
        if pair.engine.is_none() {
            self.bind(leg, &engine).await?;
        }
        self.compare(leg).await?;
        self.mark(leg, engine.log_id).await?;
        // Before the gate opens: what the engine has too much must not come back before the first check.
        match compare_and_stop(&self.coordinator).await {
            Ok(_) => Ok(()),
            Err(AuditError::Store(error)) => Err(error.into()),
            Err(AuditError::NoAnswer | AuditError::NotTold) => {
                Err(PairError::NoAnswer(Reason::new("SPOT_PAIR_UNCHECKED", "it does not tell its totals")))
            }
        }
    }

    /// Whether the newest operations are to be compared: on a new connection, and now and then.
    fn is_due(&self) -> bool {
        let (connection, at) = *self.compared.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = self.coordinator.leg().spot().map(|leg| leg.floor().connections.load(Ordering::SeqCst));
        newest != Some(connection) || at.plus_micros(COMPARE_MICROS) <= self.coordinator.now()
    }

    /// Compares the newest operations, and remembers when, and on which connection.
    async fn compare(&self, leg: &SpotLeg) -> Result<(), PairError> {
        let connection = leg.floor().connections.load(Ordering::SeqCst);
        compare_newest(self.coordinator.db(), leg).await?;
        *self.compared.lock().unwrap_or_else(PoisonError::into_inner) = (connection, self.coordinator.now());
        Ok(())
    }

    /// Neither side knows a partner. They may be told to be one only if their books agree.
    async fn bind(&self, leg: &SpotLeg, engine: &PairStanding) -> Result<(), PairError> {
        let db = self.coordinator.db();
        match check_totals(db, leg).await {
            Ok(None) => {}
            Ok(Some(violation)) => {
                return Err(PairError::Other(format!(
                    "engine {:016x} was never paired with this database, and their books differ: {}: {}",
                    engine.log_id, violation.row, violation.problem
                )));
            }
            Err(AuditError::Store(error)) => return Err(error.into()),
            Err(AuditError::NoAnswer | AuditError::NotTold) => {
                return Err(PairError::NoAnswer(Reason::new("SPOT_PAIR_UNCHECKED", "it does not tell its totals")));
            }
        }
        let author = PairAuthor { actor: "bursar serve", second: None, reason: "the first start of the two together" };
        if db.bind_engine(engine.log_id, author, self.coordinator.now()).await? {
            tracing::info!(
                engine = format!("{:016x}", engine.log_id),
                "the database and the spot engine are a pair now"
            );
            return Ok(());
        }
        // Another server was first, perhaps with the same engine.
        check(db, leg).await.map(|_| ())
    }

    /// Tells the engine the next counter. It is durable here before the engine hears it, and written down as heard
    /// afterwards.
    async fn mark(&self, leg: &SpotLeg, engine: u64) -> Result<(), PairError> {
        let db = self.coordinator.db();
        // Without a node number, because the clock is wrong, nothing new is taken. What is on its way goes on: the pair was
        // just compared, and the next mark comes with the next number.
        let Ok(id) = self.coordinator.next_id() else { return Ok(()) };
        let Some(counter) = db.tell_engine(engine).await? else {
            return Err(PairError::Other("the database was bound to another engine meanwhile".to_owned()));
        };
        let database = db.pair().await?.database;
        let standing = leg.mark(Mark { id: id.into(), database, counter }).await.map_err(PairError::NoAnswer)?;
        db.hear_engine(engine, counter, standing.sequence).await?;
        leg.floor().raise(engine, counter, standing.sequence);
        // The batch of the mark itself comes after the one that the engine told.
        self.marked.store(standing.sequence + 1, Ordering::SeqCst);
        self.marked_counter.store(counter, Ordering::SeqCst);
        Ok(())
    }

    /// One turn: check, and mark if the engine has moved on.
    pub async fn turn(&self) -> Result<(), PairError> {
        let done = self.try_turn().await;
        self.tell(&done);
        done
    }

    async fn try_turn(&self) -> Result<(), PairError> {
        let Some(leg) = self.coordinator.leg().spot() else { return Ok(()) };
        if self.coordinator.gate().closed().is_some() {
            return self.try_to_begin().await;
        }
        let (pair, engine) = check(self.coordinator.db(), leg).await?;
        if pair.engine != Some(engine.log_id) {
            return Err(PairError::Other("the database lost its engine while this server ran".to_owned()));
        }
        leg.floor().raise(engine.log_id, engine.counter, engine.sequence);
        if self.is_due() {
            self.compare(leg).await?;
        }
        let (marked, counter) = (self.marked.load(Ordering::SeqCst), self.marked_counter.load(Ordering::SeqCst));
        if engine.sequence.saturating_sub(marked) <= engine.counter.saturating_sub(counter) {
            self.marked.store(engine.sequence, Ordering::SeqCst);
            self.marked_counter.store(engine.counter, Ordering::SeqCst);
            return Ok(());
        }
        self.mark(leg, engine.log_id).await
    }

    fn tell(&self, done: &Result<(), PairError>) {
        match done {
            Ok(()) => {
                self.coordinator.gate().set(None);
                self.coordinator.readiness().well(PART);
            }
            Err(error) => self.close(error),
        }
    }

    fn close(&self, error: &PairError) {
        self.coordinator.gate().set(Some(Reason::foreign(error.code(), &error.to_string())));
        self.coordinator.readiness().trouble(PART, error.code(), error.to_string());
    }

    /// Takes turns until it is told to stop.
    pub async fn keep(&self, pause: Duration, patience: Duration, mut stop: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            // An engine that is away may keep a call waiting for ever. Comparing operations has more time than a question.
            let compares = self.coordinator.gate().closed().is_some() || self.is_due();
            let patience = if compares { patience.max(BEGIN_PATIENCE) } else { patience };
            if tokio::time::timeout(patience, self.turn()).await.is_err() {
                let reason = Reason::new("LEG_TIMEOUT", "it did not answer in time");
                self.close(&PairError::NoAnswer(reason));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATABASE: u64 = 5;
    const ENGINE: u64 = 9;

    fn pair(engine: Option<u64>, told: u64, heard: u64, sequence: u64) -> Pair {
        Pair { database: DATABASE, engine, told, heard, sequence }
    }

    fn engine(database: Option<u64>, counter: u64, sequence: u64) -> PairStanding {
        PairStanding { log_id: ENGINE, database, counter, sequence, time: Timestamp::default() }
    }

    #[test]
    fn every_side_that_is_behind_or_elses_is_recognised() {
        let bound = |told, heard, sequence| pair(Some(ENGINE), told, heard, sequence);
        let cases = [
            ("ok", pair(None, 0, 0, 0), engine(None, 0, 0)),
            ("ok", bound(3, 3, 10), engine(Some(DATABASE), 3, 10)),
            // The mark was told and never arrived, or arrived and was not written down.
            ("ok", bound(4, 3, 10), engine(Some(DATABASE), 3, 12)),
            ("ok", bound(4, 3, 10), engine(Some(DATABASE), 4, 12)),
            ("ok", bound(1, 0, 0), engine(None, 0, 0)),
            ("SPOT_PAIR_OTHER", pair(Some(8), 3, 3, 1), engine(Some(DATABASE), 3, 10)),
            ("SPOT_PAIR_OTHER", pair(Some(8), 3, 3, 1), engine(None, 0, 0)),
            ("SPOT_PAIR_OTHER", bound(3, 3, 10), engine(Some(6), 3, 10)),
            ("SPOT_PAIR_OTHER", pair(None, 0, 0, 0), engine(Some(6), 3, 10)),
            ("SPOT_PAIR_DATABASE_BEHIND", pair(None, 0, 0, 0), engine(Some(DATABASE), 3, 10)),
            ("SPOT_PAIR_DATABASE_BEHIND", bound(3, 3, 10), engine(Some(DATABASE), 4, 12)),
            ("SPOT_PAIR_ENGINE_BEHIND", bound(4, 3, 10), engine(Some(DATABASE), 2, 12)),
            ("SPOT_PAIR_ENGINE_BEHIND", bound(4, 3, 10), engine(Some(DATABASE), 3, 9)),
            ("SPOT_PAIR_ENGINE_BEHIND", bound(4, 3, 10), engine(None, 0, 0)),
        ];
        for (expected, pair, engine) in cases {
            let found = judge(&pair, &engine, &pair).map_or_else(|error| error.code(), |()| "ok");
            assert_eq!(found, expected, "{pair:?} {engine:?}");
        }
    }

    #[test]
    fn a_mark_that_is_told_while_the_engine_answers_is_no_time_travel() {
        let (before, after) = (pair(Some(ENGINE), 3, 3, 10), pair(Some(ENGINE), 4, 4, 12));
        assert!(judge(&before, &engine(Some(DATABASE), 4, 12), &after).is_ok());
        assert!(judge(&before, &engine(Some(DATABASE), 3, 11), &after).is_ok());
    }

    #[test]
    fn a_reconnection_meets_the_same_engine_no_older_than_it_was() {
        let floor = Floor::default();
        assert!(floor.check(&engine(None, 0, 0)).is_ok());
        floor.raise(ENGINE, 7, 40);
        assert!(floor.check(&engine(Some(DATABASE), 7, 41)).is_ok());
        let code = |found: &PairStanding| floor.check(found).map_or_else(|error| error.code(), |()| "ok");
        assert_eq!(code(&engine(Some(DATABASE), 6, 41)), "SPOT_PAIR_ENGINE_BEHIND");
        assert_eq!(code(&engine(Some(DATABASE), 7, 39)), "SPOT_PAIR_ENGINE_BEHIND");
        assert_eq!(code(&PairStanding { log_id: 1, ..engine(Some(DATABASE), 9, 90) }), "SPOT_PAIR_OTHER");
    }
}
