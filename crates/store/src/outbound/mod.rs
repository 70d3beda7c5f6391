//! Payments that leave, as rows.
//!
//! | module | holds |
//! |---|---|
//! | `types` | jobs, lanes, slots and attempts as rows have them |
//! | `add` | new jobs: in batches, each given to a wallet |
//! | [`lane`] | who sends from a lane and who watches it; stopped lanes |
//! | `standing` | where jobs and slots stand, as those read it who move them on |
//! | `advance` | a job goes on to its next state, with its history |
//! | [`coins`] | Bitcoin: the coins of a slot, leased with its row and spent with its bytes |
//! | [`send`] | slots, attempts, signed bytes, what nodes were told |
//! | [`watch`] | what the chain says of slots |
//! | [`read`] | jobs and lanes for people |
//! | `explain` | whether a spend that a block shows is a transaction of ours |
//! | `audit` | what must hold of all of them |
//!
//! | | |
//! |---|---|
//! | reads | `outbound_*`, wallets and their groups, chains and their coins |
//! | writes | `outbound_*`, when a wallet was last given a job, the log of operators, and on Bitcoin leases and transactions of its wallet |
//! | may never do | change or remove what was signed; let a job go that may be out; believe a worker that has lost its lane |

pub(crate) mod add;
pub(crate) mod advance;
pub mod approve;
pub(crate) mod audit;
pub mod coins;
pub(crate) mod explain;
pub mod lane;
pub mod read;
pub mod send;
pub(crate) mod standing;
mod types;
pub mod watch;

pub use add::{Added, NewJob, Payer};
pub use approve::{ApprovalSignature, JobApproval};
pub use coins::{Reserved, Spend};
pub use lane::{Duty, HeldLane, Share};
pub use read::{JobFilter, ShownJob, ShownLane, TOO_LATE};
pub use send::{LaneWork, NewAttempt, NewSlot, OpenedSlots, PutOff, SignedAttempt, ToldAttempt};
pub use types::{
    AttemptKind, AttemptRow, JobId, JobRow, LaneId, LaneRow, MinedAttempt, OpenSlot, SignedAs, SlotId, SlotsRead,
    WatchedSlot,
};
pub use watch::{MinedBlocks, SlotNews};

#[cfg(feature = "testing")]
pub(crate) mod statements {
    use crate::rows::RowsSql;
    use crate::sql::Sql;

    pub(crate) const ALL: [&[Sql]; 9] = [
        super::add::STATEMENTS,
        super::approve::STATEMENTS,
        super::audit::STATEMENTS,
        super::coins::STATEMENTS,
        super::explain::STATEMENTS,
        super::lane::STATEMENTS,
        super::read::STATEMENTS,
        super::send::STATEMENTS,
        super::types::STATEMENTS,
    ];

    pub(crate) fn rows() -> Vec<&'static RowsSql> {
        let groups: [&'static [&'static RowsSql]; 9] = [
            &super::add::ROWS_STATEMENTS,
            &super::advance::ROWS_STATEMENTS,
            &super::coins::ROWS_STATEMENTS,
            &super::explain::ROWS_STATEMENTS,
            &super::lane::ROWS_STATEMENTS,
            &super::send::ROWS_STATEMENTS,
            &super::standing::ROWS_STATEMENTS,
            &super::types::ROWS_STATEMENTS,
            &super::watch::ROWS_STATEMENTS,
        ];
        groups.into_iter().flatten().copied().collect()
    }
}
