//! Two people who answer for an action that no rule can decide: who asks for it, who agrees, and why.

use std::fmt;

/// It is written down as `ann + bob: why`, and reads back from that text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    actor: String,
    second: String,
    reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadApproval {
    #[error("a person's name is 1 to 40 of the characters A-Z, a-z, 0-9 and . _ @ -")]
    Name,
    #[error("the two people are one")]
    SamePerson,
    #[error("a reason is 1 to 110 bytes without control characters")]
    Reason,
}

impl Approval {
    /// So that the text fits a movement's reference.
    pub const LONGEST_NAME: usize = 40;
    pub const LONGEST_REASON: usize = 110;

    /// Blanks around a text and the size of letters do not make another person. Letters that look like others, of which
    /// Unicode has many, would: names are plain ASCII.
    pub fn new(actor: &str, second: &str, reason: &str) -> Result<Self, BadApproval> {
        let plain = |one: char| one.is_ascii_alphanumeric() || matches!(one, '.' | '_' | '@' | '-');
        if ![actor, second].iter().all(|name| name.trim().chars().all(plain)) {
            return Err(BadApproval::Name);
        }
        Self::recorded(actor, second, reason)
    }

    /// One that was written down before. Names were once freer than [`Self::new`] allows, and what was recorded stays.
    pub fn recorded(actor: &str, second: &str, reason: &str) -> Result<Self, BadApproval> {
        let [actor, second, reason] = [actor, second, reason].map(str::trim);
        let name = |name: &str| {
            let plain = |one: char| !one.is_control() && one != '+' && one != ':';
            (1..=Self::LONGEST_NAME).contains(&name.len()) && name.chars().all(plain)
        };
        if !name(actor) || !name(second) {
            return Err(BadApproval::Name);
        }
        if actor.to_lowercase() == second.to_lowercase() {
            return Err(BadApproval::SamePerson);
        }
        if !(1..=Self::LONGEST_REASON).contains(&reason.len()) || reason.chars().any(char::is_control) {
            return Err(BadApproval::Reason);
        }
        Ok(Self { actor: actor.to_owned(), second: second.to_owned(), reason: reason.to_owned() })
    }

    pub fn parse(text: &str) -> Option<Self> {
        let (people, reason) = text.split_once(": ")?;
        let (actor, second) = people.split_once(" + ")?;
        Self::recorded(actor, second, reason).ok().filter(|approval| approval.to_string() == text)
    }

    pub fn actor(&self) -> &str {
        &self.actor
    }

    pub fn second(&self) -> &str {
        &self.second
    }

    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for Approval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} + {}: {}", self.actor, self.second, self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_person_is_not_two() {
        for (actor, second) in [("ann", "ann"), ("ann", " Ann "), ("a.nn@X-1", "A.NN@x-1")] {
            assert_eq!(Approval::new(actor, second, "why"), Err(BadApproval::SamePerson), "{actor:?} {second:?}");
        }
        for (actor, second) in [("", "bob"), ("ann", "  "), ("ann + x", "bob"), ("a:b", "bob"), ("a\nb", "bob")] {
            assert_eq!(Approval::new(actor, second, "why"), Err(BadApproval::Name), "{actor:?} {second:?}");
        }
        // A Cyrillic letter, an accent of its own, a wide letter, a blank of no width, a blank within.
        for alike in ["\u{430}nn", "a\u{301}nn", "\u{ff41}nn", "a\u{200b}nn", "a nn"] {
            assert_eq!(Approval::new("ann", alike, "why"), Err(BadApproval::Name), "{alike:?}");
            assert_eq!(Approval::new(alike, "ann", "why"), Err(BadApproval::Name), "{alike:?}");
        }
        assert_eq!(Approval::new("ann", "bob", " "), Err(BadApproval::Reason));
        assert_eq!(Approval::new("ann", "bob", &"x".repeat(111)), Err(BadApproval::Reason));
    }

    #[test]
    fn an_approval_reads_back_and_fits_a_reference() {
        let long = Approval::new(&"a".repeat(40), &"b".repeat(40), &"x".repeat(110)).expect("the longest");
        assert!(crate::ledger::Reference::new(long.to_string()).is_ok());
        let approval = Approval::new("ann", "bob", "case 7: credited twice").expect("fine");
        assert_eq!(Approval::parse("ann + bob: case 7: credited twice"), Some(approval));
        assert!(Approval::parse("Ann Lee + bob: what was written down once stays").is_some());
        for text in ["", "ann: why", "ann + ann: why", "ann +bob: why", "ann + bob:  why", "test"] {
            assert_eq!(Approval::parse(text), None, "{text:?}");
        }
    }
}
