//! Operators, as rows: who looks after other people's money, with which keys, and what each has done.
//!
//! | module | holds |
//! |---|---|
//! | [`settings`] | operators and what is asked outside, as the treasury file says them, held against the rows |
//! | [`read`] | one operator as it stands now; all of them for people |
//! | [`log`] | what was done and what was refused over HTTP and at the command line, which nobody changes |
//!
//! | | |
//! |---|---|
//! | reads | `operators`, `operator_keys`, `operator_log` |
//! | writes | the same, and rules of checks; each change with a row of `setting_changes` |
//! | may never do | remove an operator, a key or a line of the log; give a key to somebody else |

pub mod log;
pub mod read;
pub mod settings;

pub use log::{Door, LogFilter, LogLine, NewLogLine};
pub use read::{OperatorRow, ShownOperator};
pub use settings::{CheckSetting, OperatorKey, OperatorSetting, PasskeyPlace, PeopleSettings};

use crate::error::StoreError;

pub(crate) fn malformed(what: &str) -> StoreError {
    StoreError::Corrupt { what: format!("the operators have a malformed {what}") }
}

#[cfg(feature = "testing")]
pub(crate) mod statements {
    use crate::rows::RowsSql;
    use crate::sql::Sql;

    pub(crate) const ALL: [&[Sql]; 3] = [super::log::STATEMENTS, super::read::STATEMENTS, super::settings::STATEMENTS];

    pub(crate) fn rows() -> Vec<&'static RowsSql> {
        let groups: [&'static [&'static RowsSql]; 2] =
            [&super::log::ROWS_STATEMENTS, &super::settings::ROWS_STATEMENTS];
        groups.into_iter().flatten().copied().collect()
    }
}
