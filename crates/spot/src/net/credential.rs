//! Who may ask for what. The engine has a file of credentials, a line each: a role and a token. A client shows a token,
//! and the line that has it decides what it may do.
//!
//! | role | may |
//! |---|---|
//! | `coordinator` | deposit, withdraw, roll back: money enters and leaves the engine; mark it as its database's own |
//! | `order-engine` | reserve, release, settle: money moves between users who have it |
//! | `operator` | set a status, have a snapshot taken |
//! | `observer` | nothing of that |
//!
//! All of them may ask: query, balance, total. **No token but a coordinator's can make money**, and an operator's is no
//! exception.

use std::fmt;
use std::sync::Arc;

use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use crate::{Operation, Request};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Coordinator,
    OrderEngine,
    Operator,
    Observer,
}

impl Role {
    pub const ALL: [Self; 4] = [Self::Coordinator, Self::OrderEngine, Self::Operator, Self::Observer];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Coordinator => "coordinator",
            Self::OrderEngine => "order-engine",
            Self::Operator => "operator",
            Self::Observer => "observer",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }

    pub(super) const fn number(self) -> u8 {
        match self {
            Self::Coordinator => 1,
            Self::OrderEngine => 2,
            Self::Operator => 3,
            Self::Observer => 4,
        }
    }

    pub(super) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.number() == number)
    }

    /// May a client of this role make this request?
    pub const fn may(self, request: &Request) -> bool {
        let operation = match request {
            Request::Query(_) | Request::Balance { .. } | Request::Total(_) | Request::Pair => return true,
            Request::Run(operation) => operation,
        };
        match operation {
            Operation::Deposit(_) | Operation::Withdraw(_) | Operation::Rollback(_) | Operation::Mark(_) => {
                matches!(self, Self::Coordinator)
            }
            Operation::Reserve(_) | Operation::Release(_) | Operation::Settle(_) => matches!(self, Self::OrderEngine),
            Operation::SetStatus { .. } => matches!(self, Self::Operator),
        }
    }

    /// Lists of operations are long: only the engine's own database needs them.
    pub const fn may_list(self) -> bool {
        matches!(self, Self::Coordinator)
    }

    pub const fn may_order_snapshots(self) -> bool {
        matches!(self, Self::Operator)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The longest token, in bytes.
pub(super) const TOKEN_MAX: usize = 256;

/// What a client shows: 16 to 256 bytes, never printed.
#[derive(Clone)]
pub struct Token(Arc<[u8]>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a token has between 16 and 256 bytes")]
pub struct BadToken;

impl Token {
    pub fn new(text: &str) -> Result<Self, BadToken> {
        if (16..=TOKEN_MAX).contains(&text.len()) { Ok(Self(text.as_bytes().into())) } else { Err(BadToken) }
    }

    /// Compares in a time that does not tell how many bytes are right. It may tell whether the length is.
    fn is(&self, shown: &[u8]) -> Choice {
        self.0.ct_eq(shown)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// The lines of a file of credentials. A role may have several tokens, so that one can be replaced without an outage.
#[derive(Clone, Debug)]
pub struct Credentials(Arc<[(Role, Token)]>);

/// What is wrong with a file of credentials. It never repeats a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCredentials {
    #[error("there is no line in it")]
    Empty,
    #[error("line {line}: a line is a role and a token")]
    Line { line: usize },
    #[error("line {line}: there is no such role; there are coordinator, order-engine, operator and observer")]
    Role { line: usize },
    #[error("line {line}: {source}")]
    Token { line: usize, source: BadToken },
    #[error("line {line}: the token stands on an earlier line too")]
    Twice { line: usize },
}

impl Credentials {
    /// Reads lines of `role token`. Empty lines and those that begin with `#` do not count.
    pub fn parse(text: &str) -> Result<Self, BadCredentials> {
        let mut all: Vec<(Role, Token)> = Vec::new();
        for (number, words) in text.lines().enumerate() {
            let line = number + 1;
            let words: Vec<&str> = words.split_whitespace().collect();
            let (role, token) = match words[..] {
                [] => continue,
                [first, ..] if first.starts_with('#') => continue,
                [role, token] => (role, token),
                _ => return Err(BadCredentials::Line { line }),
            };
            let role = Role::from_name(role).ok_or(BadCredentials::Role { line })?;
            let token = Token::new(token).map_err(|source| BadCredentials::Token { line, source })?;
            if all.iter().any(|(_, other)| bool::from(other.is(token.bytes()))) {
                return Err(BadCredentials::Twice { line });
            }
            all.push((role, token));
        }
        if all.is_empty() { Err(BadCredentials::Empty) } else { Ok(Self(all.into())) }
    }

    /// One token, of one role.
    pub fn one(role: Role, token: Token) -> Self {
        Self(Arc::new([(role, token)]))
    }

    /// The role of a token that was shown. It is compared with every line, also after one that fits.
    pub(super) fn role_of(&self, shown: &[u8]) -> Option<Role> {
        let mut number = 0;
        for (role, token) in self.0.iter() {
            number.conditional_assign(&role.number(), token.is(shown));
        }
        Role::from_number(number)
    }

    /// The token that a client of this role shows: the first line of the role.
    pub fn token(&self, role: Role) -> Option<&Token> {
        self.0.iter().find_map(|(of, token)| (*of == role).then_some(token))
    }
}

#[cfg(test)]
mod tests {
    use domain::{AccountStatus, Amount, AssetId, UserId};

    use super::*;
    use crate::{Move, OpId, Settle};

    /// The table at the top of this file, cell by cell.
    #[test]
    fn each_role_may_do_its_own_work_and_no_other() {
        let (user, asset) = (UserId::new(7).expect("positive"), AssetId(1));
        let of = Move { id: OpId::new(1).expect("positive"), user, asset, amount: Amount::from_units(5) };
        let five = Amount::from_units(5);
        let settle = Settle {
            id: of.id,
            buyer: user,
            seller: user,
            fees: user,
            base: asset,
            quote: asset,
            base_amount: five,
            quote_amount: five,
            buyer_fee: five,
            seller_fee: five,
        };
        let status = Operation::SetStatus { id: of.id, user, asset, status: AccountStatus::Frozen };
        let requests: [(Request, &[Role]); 10] = [
            (Operation::Deposit(of).into(), &[Role::Coordinator]),
            (Operation::Withdraw(of).into(), &[Role::Coordinator]),
            (Operation::Rollback(of).into(), &[Role::Coordinator]),
            (Operation::Reserve(of).into(), &[Role::OrderEngine]),
            (Operation::Release(of).into(), &[Role::OrderEngine]),
            (Operation::Settle(settle).into(), &[Role::OrderEngine]),
            (status.into(), &[Role::Operator]),
            (Request::Query(of.id), &Role::ALL),
            (Request::Balance { user, asset }, &Role::ALL),
            (Request::Total(asset), &Role::ALL),
        ];
        for (request, allowed) in &requests {
            for role in Role::ALL {
                assert_eq!(role.may(request), allowed.contains(&role), "{role} {request:?}");
            }
        }
    }

    #[test]
    fn a_token_has_the_role_of_its_line() {
        let text = "# for the exchange\ncoordinator first-token-of-many\n\n observer\tsecond-token-of-many \r\n\
                    observer third-token-of-many!\n";
        let all = Credentials::parse(text).expect("well formed");
        assert_eq!(all.role_of(b"first-token-of-many"), Some(Role::Coordinator));
        assert_eq!(all.role_of(b"second-token-of-many"), Some(Role::Observer));
        assert_eq!(all.role_of(b"third-token-of-many!"), Some(Role::Observer));
        assert_eq!(all.role_of(b"first-token-of-man"), None);
        assert_eq!(all.role_of(b""), None);
        assert_eq!(all.token(Role::Observer).map(Token::bytes), Some(&b"second-token-of-many"[..]));
        assert!(all.token(Role::Operator).is_none());
        assert!(!format!("{all:?}").contains("many"));
    }

    #[test]
    fn a_bad_line_is_named_and_no_token_is() {
        let good = "observer a-token-that-is-long\n";
        for (text, expected) in [
            (String::new(), BadCredentials::Empty),
            ("# only a comment\n".to_owned(), BadCredentials::Empty),
            ("a-token-and-nothing-else\n".to_owned(), BadCredentials::Line { line: 1 }),
            (format!("{good}observer two words\n"), BadCredentials::Line { line: 2 }),
            (format!("{good}admin another-token-that-is-long\n"), BadCredentials::Role { line: 2 }),
            (format!("{good}operator short\n"), BadCredentials::Token { line: 2, source: BadToken }),
            (format!("{good}\n{good}"), BadCredentials::Twice { line: 3 }),
            (format!("{good}coordinator a-token-that-is-long\n"), BadCredentials::Twice { line: 2 }),
        ] {
            let error = Credentials::parse(&text).expect_err("refused");
            assert_eq!(error, expected, "{text:?}");
            assert!(!error.to_string().contains("a-token"), "{error}");
        }
    }
}
