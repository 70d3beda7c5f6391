//! What a user may ask for, and the ladder of rules that refuse it: one named reason per rule.
//!
//! The gate and the coordinator both check these rules; each leg then checks its own part again.

use std::fmt;

use super::State;
use crate::account::{AccountId, UserId};
use crate::amount::{Amount, AmountError};
use crate::asset::{Asset, AssetId, Availability, TransferLimits};
use crate::id::{self, Id};
use crate::time::Timestamp;

/// A kind of account that money can be moved between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Money at rest, in the SQL ledger.
    Funding,
    /// Money to trade with, in the spot engine.
    Spot,
}

impl Side {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Funding => "FUNDING",
            Self::Spot => "SPOT",
        }
    }

    /// Names that exist but are not served yet are told apart from those that do not exist.
    pub fn parse(text: &str) -> Result<Self, Rejection> {
        match text {
            "FUNDING" => Ok(Self::Funding),
            "SPOT" => Ok(Self::Spot),
            "FUTURE" | "MARGIN" => Err(Rejection::UnsupportedAccountType),
            _ => Err(Rejection::InvalidAccountType),
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Which way the money goes. The numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    ToSpot,
    ToFunding,
}

impl Direction {
    pub const fn between(from: Side, to: Side) -> Result<Self, Rejection> {
        match (from, to) {
            (Side::Funding, Side::Spot) => Ok(Self::ToSpot),
            (Side::Spot, Side::Funding) => Ok(Self::ToFunding),
            (Side::Funding, Side::Funding) | (Side::Spot, Side::Spot) => Err(Rejection::SameAccount),
        }
    }

    pub const fn from(self) -> Side {
        match self {
            Self::ToSpot => Side::Funding,
            Self::ToFunding => Side::Spot,
        }
    }

    pub const fn to(self) -> Side {
        match self {
            Self::ToSpot => Side::Spot,
            Self::ToFunding => Side::Funding,
        }
    }

    pub const fn number(self) -> i64 {
        match self {
            Self::ToSpot => 1,
            Self::ToFunding => 2,
        }
    }

    pub const fn from_number(number: i64) -> Option<Self> {
        match number {
            1 => Some(Self::ToSpot),
            2 => Some(Self::ToFunding),
            _ => None,
        }
    }
}

/// A client's own name for a request. The same name again is the same request: 1 to 64 visible ASCII characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientOrderId(String);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a client_order_id is 1 to 64 visible ASCII characters")]
pub struct BadClientOrderId;

impl ClientOrderId {
    pub fn new(text: impl Into<String>) -> Result<Self, BadClientOrderId> {
        let text = text.into();
        let fits = (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        if fits { Ok(Self(text)) } else { Err(BadClientOrderId) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

macro_rules! rejections {
    ($($Variant:ident = $code:literal, $text:literal;)*) => {
        /// Why a request is not taken, roughly in the order in which the rules are checked. Nothing was done.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Rejection { $($Variant,)* }

        impl Rejection {
            pub const ALL: &'static [Self] = &[$(Self::$Variant),*];

            /// The name that stands for it in interfaces, and names its page in `docs/errors/`.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$Variant => $code,)* }
            }
        }

        impl fmt::Display for Rejection {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$Variant => $text,)* })
            }
        }
    };
}

rejections! {
    Unauthorized = "UNAUTHORIZED", "the request carries no valid token";
    Forbidden = "FORBIDDEN", "the request is for another user's account";
    InvalidAccountType = "INVALID_ACCOUNT_TYPE", "from and to must be FUNDING or SPOT";
    SameAccount = "SAME_ACCOUNT", "from and to are the same account";
    UnsupportedAccountType = "UNSUPPORTED_ACCOUNT_TYPE", "this kind of account is not served yet";
    InvalidAsset = "INVALID_ASSET", "there is no such asset";
    AssetSuspended = "ASSET_SUSPENDED", "the asset is suspended";
    TransferNotAllowed = "TRANSFER_NOT_ALLOWED", "this asset cannot be moved between own accounts";
    TransferStopped = "TRANSFER_STOPPED", "transfers of this asset from SPOT to FUNDING are stopped for a check; try again later";
    InvalidAmount = "INVALID_AMOUNT", "the amount must be a plain decimal string greater than zero";
    PrecisionOverflow = "PRECISION_OVERFLOW", "the amount has more decimals than the asset";
    Overflow = "OVERFLOW", "the amount is beyond any balance";
    AmountTooSmall = "AMOUNT_TOO_SMALL", "the amount is below the asset's smallest transfer";
    AmountTooLarge = "AMOUNT_TOO_LARGE", "the amount is above the asset's largest transfer";
    RateLimitExceeded = "RATE_LIMIT_EXCEEDED", "too many requests of this user in one second";
    DailyLimitExceeded = "DAILY_LIMIT_EXCEEDED", "the user has made as many transfers today as are allowed";
    DailyAmountExceeded = "DAILY_AMOUNT_EXCEEDED", "the user would move more of the asset today than is allowed";
    DuplicateRequest = "DUPLICATE_REQUEST", "the client_order_id stands for a transfer with other content";
    SourceAccountNotFound = "SOURCE_ACCOUNT_NOT_FOUND", "the user has no such account to move from";
    TargetAccountNotFound = "TARGET_ACCOUNT_NOT_FOUND", "the user has no such account to move to";
    AccountFrozen = "ACCOUNT_FROZEN", "the account to move from is frozen";
    AccountDisabled = "ACCOUNT_DISABLED", "an account of the transfer is disabled";
    InsufficientBalance = "INSUFFICIENT_BALANCE", "the available balance is less than the amount";
}

/// The most that one transfer may ask for, whatever the asset's limits: a quarter of what 64 bits hold, so that sums
/// of a few of them fit too.
pub const MOST: Amount = Amount::from_units(i64::MAX / 4);

/// What an asset allows at all.
pub const fn check_asset(status: Availability, internal_transfer_enabled: bool) -> Result<(), Rejection> {
    match status {
        Availability::Suspended => Err(Rejection::AssetSuspended),
        Availability::Active if !internal_transfer_enabled => Err(Rejection::TransferNotAllowed),
        Availability::Active => Ok(()),
    }
}

/// How much may be moved at once.
pub fn check_amount(amount: Amount, limits: &TransferLimits) -> Result<(), Rejection> {
    if !amount.is_positive() {
        return Err(Rejection::InvalidAmount);
    }
    if amount > MOST {
        return Err(Rejection::Overflow);
    }
    if amount < limits.min {
        return Err(Rejection::AmountTooSmall);
    }
    if amount > limits.max {
        return Err(Rejection::AmountTooLarge);
    }
    Ok(())
}

/// The amount that a text says, as far as the asset allows it.
pub fn parse_amount(text: &str, asset: &Asset) -> Result<Amount, Rejection> {
    let amount = Amount::parse(text, asset.precision).map_err(|error| match error {
        AmountError::Malformed => Rejection::InvalidAmount,
        // A negative amount is no amount, however long it is.
        AmountError::TooPrecise(_) | AmountError::TooLarge if text.starts_with('-') => Rejection::InvalidAmount,
        AmountError::TooPrecise(_) => Rejection::PrecisionOverflow,
        AmountError::TooLarge => Rejection::Overflow,
    })?;
    check_amount(amount, &asset.transfer)?;
    Ok(amount)
}

/// A transfer as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    pub id: Id<id::Transfer>,
    pub user: UserId,
    pub asset: AssetId,
    pub amount: Amount,
    pub direction: Direction,
    /// The user's funding account: source or target, as the direction says.
    pub funding: AccountId,
    pub state: State,
    /// The code of the refusal that ended it, or of the last trouble on its way.
    pub error: Option<String>,
    pub client_order_id: Option<ClientOrderId>,
    /// How often a leg was asked without a deciding answer.
    pub tries: i64,
    /// When a scanner takes it up, unless it has ended.
    pub due_at: Timestamp,
    pub alerted_at: Option<Timestamp>,
    /// How many rows of history it has.
    pub version: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl Transfer {
    /// Whether a request is this one, sent again.
    pub fn is_same(&self, asset: AssetId, amount: Amount, direction: Direction) -> bool {
        self.asset == asset && self.amount == amount && self.direction == direction
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amount::Precision;
    use std::collections::HashSet;

    fn asset() -> Asset {
        let limits = TransferLimits {
            min: Amount::from_units(10),
            max: Amount::from_units(i64::MAX),
            daily: Amount::from_units(i64::MAX),
        };
        Asset {
            symbol: "USDT".parse().expect("a symbol"),
            precision: Precision::new(2).expect("at most 18"),
            status: Availability::Active,
            internal_transfer_enabled: true,
            transfer: limits,
        }
    }

    #[test]
    fn amounts_are_plain_decimals_within_the_limits() {
        let mut asset = asset();
        asset.transfer.max = Amount::from_units(1_000);
        for (text, expected) in [
            ("0.10", Ok(10)),
            ("10", Ok(1_000)),
            ("10.00", Ok(1_000)),
            ("0", Err(Rejection::InvalidAmount)),
            ("0.00", Err(Rejection::InvalidAmount)),
            ("-1", Err(Rejection::InvalidAmount)),
            ("-99999999999999999999999", Err(Rejection::InvalidAmount)),
            ("-0.001", Err(Rejection::InvalidAmount)),
            ("", Err(Rejection::InvalidAmount)),
            ("+1", Err(Rejection::InvalidAmount)),
            ("1e2", Err(Rejection::InvalidAmount)),
            ("1,000", Err(Rejection::InvalidAmount)),
            (" 1", Err(Rejection::InvalidAmount)),
            ("0x10", Err(Rejection::InvalidAmount)),
            ("NaN", Err(Rejection::InvalidAmount)),
            ("١٢", Err(Rejection::InvalidAmount)),
            ("1.", Err(Rejection::InvalidAmount)),
            (".5", Err(Rejection::InvalidAmount)),
            ("1.001", Err(Rejection::PrecisionOverflow)),
            ("1.000", Err(Rejection::PrecisionOverflow)),
            ("0.09", Err(Rejection::AmountTooSmall)),
            ("10.01", Err(Rejection::AmountTooLarge)),
            ("92233720368547758.08", Err(Rejection::Overflow)),
            ("23058430092136939.52", Err(Rejection::Overflow)),
            ("99999999999999999999999", Err(Rejection::Overflow)),
        ] {
            assert_eq!(parse_amount(text, &asset).map(Amount::units), expected, "{text:?}");
        }
    }

    #[test]
    fn an_asset_says_no_by_its_status_first() {
        assert_eq!(check_asset(Availability::Active, true), Ok(()));
        assert_eq!(check_asset(Availability::Active, false), Err(Rejection::TransferNotAllowed));
        assert_eq!(check_asset(Availability::Suspended, false), Err(Rejection::AssetSuspended));
    }

    #[test]
    fn sides_and_directions() {
        assert_eq!(Side::parse("FUNDING"), Ok(Side::Funding));
        assert_eq!(Side::parse("MARGIN"), Err(Rejection::UnsupportedAccountType));
        for bad in ["", "funding", "SPOT ", "SPÖT"] {
            assert_eq!(Side::parse(bad), Err(Rejection::InvalidAccountType), "{bad:?}");
        }
        for side in [Side::Funding, Side::Spot] {
            assert_eq!(Direction::between(side, side), Err(Rejection::SameAccount));
        }
        for direction in [Direction::ToSpot, Direction::ToFunding] {
            assert_eq!(Direction::between(direction.from(), direction.to()), Ok(direction));
            assert_eq!(Direction::from_number(direction.number()), Some(direction));
        }
        assert_eq!(Direction::from_number(3), None);
    }

    #[test]
    fn codes_are_unique() {
        let codes: HashSet<&str> = Rejection::ALL.iter().map(|one| one.code()).collect();
        assert_eq!(codes.len(), Rejection::ALL.len());
    }

    #[test]
    fn client_order_ids_are_short_and_visible() {
        assert!(ClientOrderId::new("a-1").is_ok());
        for bad in ["", " ", "a b", "é", "a\n", &"x".repeat(65)] {
            assert_eq!(ClientOrderId::new(bad), Err(BadClientOrderId), "{bad:?}");
        }
    }
}
