//! What a command says when it fails: a code, what happened, and what to do next.

use std::borrow::Cow;
use std::process::ExitCode;

use serde_json::{Value, json};
use spot::SpotError;
use store::StoreError;
use store::catalog::CatalogError;
use store::utxo::UtxoError;

pub use crate::exit::Exit;
use crate::output::{plain, warn};

#[derive(Debug)]
pub struct Failure {
    /// It names a page in `docs/errors/`.
    pub code: Cow<'static, str>,
    /// From the outermost to the innermost cause, each without its source.
    pub messages: Vec<String>,
    pub hint: String,
    pub exit: Exit,
}

pub type CommandResult = Result<(), Failure>;

impl Failure {
    pub fn bad_input(code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code: code.into(), messages: vec![message.into()], hint: hint.into(), exit: Exit::BadInput }
    }

    pub fn outside(code: &'static str, error: &(dyn std::error::Error + 'static), hint: impl Into<String>) -> Self {
        Self { code: code.into(), messages: causes(error), hint: hint.into(), exit: Exit::Outside }
    }

    /// What another process of this program reported, as [`report`](Self::report) prints it for machines. `None`: this is
    /// no such report.
    pub fn reported(text: &str, exit: Option<i32>) -> Option<Self> {
        let body: Value = serde_json::from_str(text).ok()?;
        let field = |name: &str| body["error"][name].as_str().map(str::to_owned);
        let exit =
            [Exit::Found, Exit::BadInput, Exit::Outside].into_iter().find(|known| exit == Some(*known as i32))?;
        Some(Self { code: field("code")?.into(), messages: vec![field("message")?], hint: field("hint")?, exit })
    }

    /// Prints it to standard error and gives the exit code. What others have written in it stays on its line.
    pub fn report(&self, as_json: bool) -> ExitCode {
        if as_json {
            let body = json!({ "error": {
                "code": self.code, "message": self.messages.join(": "), "hint": self.hint, "help": self.page(),
            }});
            warn(body);
        } else {
            let message = plain(&self.messages.join(": "));
            let (code, hint, page) = (plain(&self.code), plain(&self.hint), plain(&self.page()));
            warn(format!("error {code}: {message}\n  hint: {hint}\n  help: {page}, or: bursar explain {code}"));
        }
        ExitCode::from(self.exit as u8)
    }

    fn page(&self) -> String {
        format!("docs/errors/{}.md", self.code)
    }
}

fn causes(error: &(dyn std::error::Error + 'static)) -> Vec<String> {
    let mut messages: Vec<String> = Vec::new();
    for error in std::iter::successors(Some(error), |error| error.source()) {
        let message = error.to_string();
        // Some errors from outside repeat their cause in their own words.
        if !messages.last().is_some_and(|last| last.contains(&message)) {
            messages.push(message);
        }
    }
    messages
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let exit = match error {
            StoreError::BadUrl(_) | StoreError::BatchTooLarge { .. } => Exit::BadInput,
            StoreError::Corrupt { .. } | StoreError::Damaged(_) => Exit::Found,
            _ => Exit::Outside,
        };
        Self { code: error.code().into(), messages: causes(&error), hint: error.hint().to_owned(), exit }
    }
}

impl From<SpotError> for Failure {
    fn from(error: SpotError) -> Self {
        let exit = match error {
            SpotError::Damaged { .. }
            | SpotError::Foreign { .. }
            | SpotError::Incomplete { .. }
            | SpotError::Diverged { .. } => Exit::Found,
            SpotError::Missing { .. } | SpotError::Exists { .. } | SpotError::Setting(_) => Exit::BadInput,
            SpotError::Storage { .. }
            | SpotError::Newer { .. }
            | SpotError::InUse { .. }
            | SpotError::SnapshotRunning
            | SpotError::ClockAhead { .. }
            | SpotError::Stopped => Exit::Outside,
        };
        Self { code: error.code().into(), messages: causes(&error), hint: error.hint().to_owned(), exit }
    }
}

impl From<CatalogError> for Failure {
    fn from(error: CatalogError) -> Self {
        match error {
            CatalogError::Store(error) => error.into(),
            refused => Self::bad_input(refused.code(), refused.to_string(), refused.hint()),
        }
    }
}

impl From<UtxoError> for Failure {
    fn from(error: UtxoError) -> Self {
        match error {
            UtxoError::Store(error) => error.into(),
            UtxoError::Refused(refusal) => Self::bad_input(refusal.code(), refusal.to_string(), refusal.hint()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_that_another_process_reported_keeps_its_code_and_exit() {
        let line = r#"{"error":{"code":"LEG_TIMEOUT","message":"no answer","hint":"does it run?","help":"a page"}}"#;
        let failure = Failure::reported(line, Some(3)).expect("a report");
        assert_eq!(
            (failure.code.as_ref(), failure.hint.as_str(), failure.exit),
            ("LEG_TIMEOUT", "does it run?", Exit::Outside)
        );
        assert!(Failure::reported("thread 'main' panicked", Some(101)).is_none());
        assert!(Failure::reported(line, None).is_none(), "a process that was killed reports nothing");
    }
}
