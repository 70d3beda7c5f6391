//! The people who look after other people's money, and what each of them may do.

use std::fmt;
use std::str::FromStr;

use crate::name::{BadName, is_name};

/// An operator, for ever. It begins with a letter, so that it is never a customer's number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperatorName(String);

impl OperatorName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for OperatorName {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WHY: BadName =
            BadName::new("an operator's name is 1 to 64 of a-z, 0-9, -, _ and ., and begins with a letter");
        let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
        (begins && is_name(text)).then(|| Self(text.to_owned())).ok_or(WHY)
    }
}

impl fmt::Display for OperatorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// What a person is trusted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OperatorRole {
    /// Looks.
    Viewer,
    /// Sees to what waits, and says no.
    Operator,
    /// Says yes, with a signature, or no.
    Approver,
    /// All of that. Agrees only beside an approver.
    Administrator,
}

/// What an operator does to a withdrawal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OperatorAction {
    /// Says who sees to it.
    Assign,
    /// Says that people have to look at it first.
    Review,
    /// Lets what rests be tried now.
    Retry,
    Reject,
    Approve,
}

impl OperatorRole {
    pub const ALL: [Self; 4] = [Self::Viewer, Self::Operator, Self::Approver, Self::Administrator];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Approver => "approver",
            Self::Administrator => "administrator",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }

    /// Everybody may look.
    pub const fn may(self, action: OperatorAction) -> bool {
        use OperatorAction::{Approve, Assign, Reject, Retry, Review};
        match self {
            Self::Viewer => false,
            Self::Operator => match action {
                Assign | Review | Retry | Reject => true,
                Approve => false,
            },
            Self::Approver => match action {
                Reject | Approve => true,
                Assign | Review | Retry => false,
            },
            Self::Administrator => match action {
                Assign | Review | Retry | Reject | Approve => true,
            },
        }
    }

    /// Whether such a person signs with keys of their own.
    pub const fn signs(self) -> bool {
        self.may(OperatorAction::Approve)
    }
}

impl OperatorAction {
    pub const ALL: [Self; 5] = [Self::Assign, Self::Review, Self::Retry, Self::Reject, Self::Approve];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Assign => "assign",
            Self::Review => "review",
            Self::Retry => "retry",
            Self::Reject => "reject",
            Self::Approve => "approve",
        }
    }
}

/// Whether these people, each a different one, are enough for what wants so many. Administrators alone never are: whoever can make operators could make
/// a second one.
pub fn are_enough(roles: &[OperatorRole], wanted: u32) -> bool {
    let agree = roles.iter().filter(|role| role.signs()).count();
    let besides = roles.iter().any(|role| role.signs() && *role != OperatorRole::Administrator);
    besides && u32::try_from(agree).unwrap_or(u32::MAX) >= wanted.max(1)
}

impl fmt::Display for OperatorRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for OperatorAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is not here is forbidden.
    #[test]
    fn each_role_may_do_what_the_table_says_and_nothing_else() {
        let table = [
            (OperatorRole::Viewer, ""),
            (OperatorRole::Operator, "assign review retry reject"),
            (OperatorRole::Approver, "reject approve"),
            (OperatorRole::Administrator, "assign review retry reject approve"),
        ];
        for (role, may) in table {
            let does: Vec<&str> = OperatorAction::ALL
                .into_iter()
                .filter(|action| role.may(*action))
                .map(OperatorAction::as_str)
                .collect();
            assert_eq!(does.join(" "), may, "{role}");
        }
    }

    #[test]
    fn administrators_never_agree_alone() {
        use OperatorRole::{Administrator, Approver, Operator, Viewer};
        for (roles, wanted, enough) in [
            (&[][..], 0, false),
            (&[Approver], 0, true),
            (&[Approver], 1, true),
            (&[Approver], 2, false),
            (&[Administrator], 1, false),
            (&[Administrator, Administrator, Administrator], 2, false),
            (&[Administrator, Approver], 2, true),
            (&[Administrator, Approver], 1, true),
            (&[Operator, Approver], 2, false),
            (&[Viewer, Operator], 1, false),
        ] {
            assert_eq!(are_enough(roles, wanted), enough, "{roles:?} of {wanted}");
        }
    }

    #[test]
    fn no_name_is_a_customers_number() {
        for good in ["ann", "a", "ann.lee-2", "a_b"] {
            assert_eq!(good.parse::<OperatorName>().map(|name| name.to_string()), Ok(good.to_owned()));
        }
        for bad in ["", "7", "7ann", "Ann", "-ann", ".ann", "ann lee", "änn", "_ann", &"a".repeat(65)] {
            assert!(bad.parse::<OperatorName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn words_are_read_back() {
        for role in OperatorRole::ALL {
            assert_eq!(OperatorRole::parse(role.as_str()), Some(role));
        }
        assert_eq!(OperatorRole::parse("Approver"), None);
    }
}
