//! Why a transaction or a block is refused, in the words of Bitcoin Core.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// An input is not there, or not any more. Core gives these another code, and no details.
    MissingInputs,
    /// It pays too little alone; together with a child it may still pay enough.
    Fee,
    Rule,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reject {
    pub cause: Cause,
    pub reason: String,
    pub details: String,
}

impl Reject {
    pub fn rule(reason: impl Into<String>) -> Self {
        Self { cause: Cause::Rule, reason: reason.into(), details: String::new() }
    }

    pub fn fee(reason: &str, details: String) -> Self {
        Self { cause: Cause::Fee, reason: reason.to_owned(), details }
    }

    pub fn missing() -> Self {
        Self { cause: Cause::MissingInputs, ..Self::rule("bad-txns-inputs-missingorspent") }
    }

    pub fn because(mut self, details: impl Into<String>) -> Self {
        self.details = details.into();
        self
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        if self.details.is_empty() { Ok(()) } else { write!(f, ", {}", self.details) }
    }
}
