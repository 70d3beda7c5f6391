//! What operators did, and what they tried and were refused. A line is written in the transaction of its change, and never changed.

use std::fmt::Display;

use domain::{Approval, Timestamp};

use super::malformed;
use crate::db::{Db, Tx};
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Int, ColumnType::Text, RowsSql, execute_rows, expect_rows};
use crate::transact;

/// Through which door somebody came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    Http,
    CommandLine,
}

impl Door {
    pub const ALL: [Self; 2] = [Self::Http, Self::CommandLine];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::CommandLine => "command_line",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|door| door.as_str() == text)
    }
}

/// What is to be written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewLogLine {
    pub operator: String,
    pub door: Door,
    pub action: String,
    pub subject: String,
    pub reason: String,
    /// Empty over the command line.
    pub request_id: String,
    /// `done`, or the code of why not.
    pub outcome: String,
}

/// The outcome of what was done.
pub const DONE: &str = "done";

/// The longest name and reason that a line has, in letters.
const LONGEST_NAME: usize = 64;
const LONGEST_REASON: usize = 500;

impl NewLogLine {
    /// What somebody at the command line did, by the name that was typed. It need be no operator's.
    pub(crate) fn typed(who: &str, action: &str, subject: &impl Display, reason: &str, outcome: &str) -> Self {
        let who = who.trim();
        let first = |text: &str, most: usize| text.chars().take(most).collect::<String>();
        Self {
            operator: first(if who.is_empty() { "?" } else { who }, LONGEST_NAME),
            door: Door::CommandLine,
            action: action.to_owned(),
            subject: subject.to_string(),
            reason: first(reason, LONGEST_REASON),
            request_id: String::new(),
            outcome: outcome.to_owned(),
        }
    }

    /// What two people at the command line said: a line for each, so that each is found by the name. The first words are the verdict, if there is one.
    pub(crate) fn by_two(
        people: &Approval,
        action: &str,
        subject: &impl Display,
        verdict: &str,
        outcome: &str,
    ) -> [Self; 2] {
        let colon = if verdict.is_empty() { "" } else { ": " };
        let reason = format!("{verdict}{colon}{}", people.reason());
        [people.actor(), people.second()].map(|who| Self::typed(who, action, subject, &reason, outcome))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    pub id: i64,
    pub line: NewLogLine,
    pub at: Timestamp,
}

/// Which lines. What is empty lets all through.
#[derive(Clone, Debug, Default)]
pub struct LogFilter {
    pub operator: String,
    pub subject: String,
    pub action: String,
}

statements! {
    LIST_OPERATOR_LOG = "SELECT id, operator, door, action, subject, reason, request_id, outcome, at FROM operator_log
        WHERE id < $1 AND ($2 = '' OR operator = $2) AND ($3 = '' OR subject = $3) AND ($4 = '' OR action = $4) ORDER BY id DESC LIMIT $5";
}

static INSERT_OPERATOR_LOG: RowsSql = RowsSql::new(
    "INSERT_OPERATOR_LOG",
    "INSERT INTO operator_log (operator, door, action, subject, reason, request_id, outcome, at)
     SELECT r.operator, r.door, r.action, r.subject, r.reason, r.request_id, r.outcome, r.at FROM {rows}",
    &[
        ("operator", Text),
        ("door", Text),
        ("action", Text),
        ("subject", Text),
        ("reason", Text),
        ("request_id", Text),
        ("outcome", Text),
        ("at", Int),
    ],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 1] = [&INSERT_OPERATOR_LOG];

/// Writes these down with whatever else the transaction does.
pub(crate) async fn write(tx: &mut Tx, lines: &[NewLogLine], at: Timestamp) -> Result<(), StoreError> {
    if lines.is_empty() {
        return Ok(());
    }
    let texts = |each: fn(&NewLogLine) -> &str| Column::Texts(lines.iter().map(each).collect());
    let columns = vec![
        texts(|line| &line.operator),
        texts(|line| line.door.as_str()),
        texts(|line| &line.action),
        texts(|line| &line.subject),
        texts(|line| &line.reason),
        texts(|line| &line.request_id),
        texts(|line| &line.outcome),
        Column::Ints(vec![at.micros(); lines.len()]),
    ];
    expect_rows(execute_rows(tx, &INSERT_OPERATOR_LOG, columns).await?, lines.len(), "lines of the operators' log")
}

impl Db {
    /// Writes down what changed nothing here: a refusal, or what another process is about to do.
    pub async fn log_operator(&self, line: &NewLogLine, at: Timestamp) -> Result<(), StoreError> {
        transact!(self, tx => write(tx, std::slice::from_ref(line), at).await)
    }

    /// Newest first, before a number.
    pub async fn operator_log(&self, filter: &LogFilter, before: i64, most: i64) -> Result<Vec<LogLine>, StoreError> {
        type Row = (i64, String, String, String, String, String, String, String, i64);
        let (operator, subject, action) = (filter.operator.as_str(), filter.subject.as_str(), filter.action.as_str());
        let tx = &mut self.read().await?;
        let rows = fetch_all!(tx, LIST_OPERATOR_LOG => Row, before, operator, subject, action, most)?;
        let line = |(id, operator, door, action, subject, reason, request_id, outcome, at): Row| {
            let door = Door::parse(&door).ok_or_else(|| malformed("door"))?;
            let line = NewLogLine { operator, door, action, subject, reason, request_id, outcome };
            Ok(LogLine { id, line, at: Timestamp::from_micros(at) })
        };
        rows.into_iter().map(line).collect()
    }
}
