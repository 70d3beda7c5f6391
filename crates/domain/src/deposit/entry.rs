//! One change of a balance of ours, as the chain shows it.

use std::fmt;
use std::str::FromStr;

/// Where in its transaction a change stands. With the transaction's hash and its [`Side`] it is the key of an entry, so it
/// does not depend on the block: a transaction that is mined again elsewhere keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// The value of an EVM transaction, or the amount of a TRX transfer.
    Value,
    /// An output of a Bitcoin transaction.
    Output(u32),
    /// An input of a Bitcoin transaction.
    Input(u32),
    /// A token's log, counted within its own transaction.
    Log(u32),
    /// A value that a contract moved, counted within the transaction's trace.
    Internal(u32),
    /// What the transaction cost its sender.
    Fee,
    /// No transaction shows it: a look at the balance itself did.
    Balance,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a place in a transaction")]
pub struct BadPlace;

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value => f.write_str("value"),
            Self::Output(number) => write!(f, "output:{number}"),
            Self::Input(number) => write!(f, "input:{number}"),
            Self::Log(number) => write!(f, "log:{number}"),
            Self::Internal(number) => write!(f, "internal:{number}"),
            Self::Fee => f.write_str("fee"),
            Self::Balance => f.write_str("balance"),
        }
    }
}

impl FromStr for Place {
    type Err = BadPlace;

    fn from_str(text: &str) -> Result<Self, BadPlace> {
        let place = match text.split_once(':') {
            None => match text {
                "value" => Self::Value,
                "fee" => Self::Fee,
                "balance" => Self::Balance,
                _ => return Err(BadPlace),
            },
            Some((word, number)) => {
                let number = number.parse().map_err(|_| BadPlace)?;
                match word {
                    "output" => Self::Output(number),
                    "input" => Self::Input(number),
                    "log" => Self::Log(number),
                    "internal" => Self::Internal(number),
                    _ => return Err(BadPlace),
                }
            }
        };
        // `log:07` would be a second text for one place.
        if place.to_string() == text { Ok(place) } else { Err(BadPlace) }
    }
}

/// Whether it came to an address of ours or left one. A payment between two of ours is two entries of one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    In,
    Out,
}

impl Side {
    /// The number that stands for it in rows.
    pub const fn number(self) -> i64 {
        match self {
            Self::In => 1,
            Self::Out => -1,
        }
    }

    pub const fn of_number(number: i64) -> Option<Self> {
        match number {
            1 => Some(Self::In),
            -1 => Some(Self::Out),
            _ => None,
        }
    }
}

macro_rules! causes {
    ($($(#[$doc:meta])* $Name:ident = $text:literal;)*) => {
        /// Why a balance of ours changed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Cause { $($(#[$doc])* $Name),* }

        impl Cause {
            pub const ALL: &'static [Self] = &[$(Self::$Name),*];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$Name => $text),* }
            }

            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$Name),)* _ => None }
            }
        }
    };
}

causes! {
    /// Somebody paid an address of ours: a deposit of a user, or unattributed.
    Deposit = "deposit";
    /// A transaction that was to pay us and did not run to its end. It moved nothing.
    Reverted = "reverted";
    /// What a transaction of ours cost.
    Fee = "fee";
    /// A payment that we made.
    Payout = "payout";
    /// A gas wallet gives a user's address the coin for its fees.
    TopupIn = "topup_in";
    TopupOut = "topup_out";
    /// Coins that only change places among our own addresses.
    SweepIn = "sweep_in";
    SweepOut = "sweep_out";
    /// What our own Bitcoin transaction gives back to us.
    Change = "change";
    /// It is on the chain, and no transaction that we can see brought it.
    UnattributedIn = "unattributed_in";
    /// It left, and nothing of ours explains it: a stolen or shared key.
    ForeignSpend = "foreign_spend";
}

impl Cause {
    /// Moved between two of our own addresses by one transaction that shows both: the two entries cancel out, and the
    /// ledger knows nothing of them.
    pub const fn is_internal(self) -> bool {
        match self {
            Self::TopupIn | Self::TopupOut | Self::SweepIn | Self::SweepOut => true,
            Self::Deposit
            | Self::Reverted
            | Self::Fee
            | Self::Payout
            | Self::Change
            | Self::UnattributedIn
            | Self::ForeignSpend => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_read_back_and_have_one_text() {
        let places = [
            Place::Value,
            Place::Fee,
            Place::Balance,
            Place::Output(0),
            Place::Input(7),
            Place::Log(u32::MAX),
            Place::Internal(1),
        ];
        for place in places {
            assert_eq!(place.to_string().parse(), Ok(place));
        }
        for text in ["", "value:1", "log", "log:", "log:07", "log:+7", "log:-1", "log:4294967296", "Log:1"] {
            assert_eq!(text.parse::<Place>(), Err(BadPlace), "{text:?}");
        }
    }

    #[test]
    fn causes_and_sides_read_back() {
        for cause in Cause::ALL {
            assert_eq!(Cause::parse(cause.as_str()), Some(*cause));
        }
        for side in [Side::In, Side::Out] {
            assert_eq!(Side::of_number(side.number()), Some(side));
        }
    }
}
