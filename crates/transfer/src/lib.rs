//! Internal transfers: money between a user's funding account (the SQL ledger) and spot account (a remote engine). The
//! two cannot share a transaction; no crash, timeout, replay, race or lie may create, lose or strand a unit.
//!
//! | module | holds |
//! |---|---|
//! | [`coordinator`] | `create` and `step`: the one path that every transfer takes |
//! | [`create`] | the rules that need the database, and the first commit of a transfer |
//! | `update` | one transaction that takes a batch of transfers on |
//! | [`leg`] | the two ends: the ledger, and the engine on the other side |
//! | [`intake`] | the bounded buffer in front of the coordinator, and its lanes |
//! | [`scanner`] | recovery: transfers that have not ended are taken up again, for ever |
//! | [`assets`] | the assets of the database, in memory |
//! | [`operator`] | what a person may do with a transfer that is stuck |
//! | [`audit`] | compares the two ends |
//! | [`clocks`] | compares our clock with the database's and the engine's, and keeps the lease on the node number |
//! | [`invariant`] | the same of the totals, by itself while traffic runs; an asset that does not add up is stopped |
//! | `room` | how much may come back from the engine |
//! | [`id_maker`] | ids, made with a leased node number |
//! | [`metrics`] | counters |
//! | `engine_watch` | says whether the engine at the far end can be worked with |
//! | [`pair`] | the database and its spot engine are a pair: identities, counters, the gate |
//! | [`reconcile`] | what one side of the pair has and the other has not, and its mends |
//! | [`readiness`] | what keeps this process from taking new transfers |
//! | [`supervisor`] | background tasks that are started again after a panic |
//!
//! **Only an explicit refusal sends money back.** **Every call is committed before it is made.** **No money is kept in
//! memory**: a process that dies loses the answers that it owed to clients, and nothing else.

pub mod assets;
pub mod audit;
pub mod clocks;
pub mod coordinator;
pub mod create;
mod engine_watch;
pub mod id_maker;
pub mod intake;
pub mod invariant;
pub mod leg;
pub mod metrics;
pub mod operator;
pub mod pair;
pub mod readiness;
pub mod reconcile;
mod room;
pub mod scanner;
pub mod settings;
pub mod supervisor;
mod update;

pub use assets::Assets;
pub use clocks::Lent;
pub use coordinator::{Coordinator, CoordinatorError};
pub use create::{Begin, Created, TransferOrder};
pub use id_maker::IdMaker;
pub use intake::{Intake, IntakeError, IntakeSettings};
pub use metrics::Metrics;
pub use readiness::Readiness;
pub use settings::Settings;
pub use supervisor::Supervisor;
