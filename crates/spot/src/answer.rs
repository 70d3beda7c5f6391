//! What the engine answers. The numbers never change: those of decisions are in the checksums of the log, those of
//! standings are in snapshots, and those of answers are on the wire.

use std::fmt;

use domain::{AccountStatus, Amount, Timestamp};

use crate::operation::{BadLayout, Fields};

macro_rules! refusals {
    ($($Variant:ident = $number:literal, $code:literal, $text:literal;)*) => {
        /// Why an operation was refused. The guards look in this order, and the first that applies is the answer and
        /// is remembered under the operation's id. A trade looks at the buyer's account to the end, then at the
        /// seller's. The last but one and the one before it are no guards: they are the answer to a withdrawal that comes
        /// after its rollback. The last is only about marks.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum SpotRefusal { $($Variant,)* }

        impl SpotRefusal {
            pub const ALL: &'static [Self] = &[$(Self::$Variant),*];

            pub(crate) const fn number(self) -> u8 {
                match self { $(Self::$Variant => $number,)* }
            }

            pub(crate) const fn from_number(number: u8) -> Option<Self> {
                match number { $($number => Some(Self::$Variant),)* _ => None }
            }

            /// The name that stands for it in interfaces, and names its page in `docs/errors/`.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$Variant => $code,)* }
            }
        }

        impl fmt::Display for SpotRefusal {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$Variant => $text,)* })
            }
        }
    };
}

refusals! {
    InvalidAmount = 16, "INVALID_AMOUNT", "an amount must be greater than zero";
    InvalidFee = 17, "INVALID_FEE", "a fee must be between zero and the amount that it is taken from";
    InvalidAsset = 18, "INVALID_ASSET", "an asset is a number from 1 to 4294967295";
    SameAsset = 19, "SAME_ASSET", "a trade needs two different assets";
    AccountNotFound = 20, "ACCOUNT_NOT_FOUND", "the user never had a balance in this asset";
    AccountFrozen = 21, "ACCOUNT_FROZEN", "the account is frozen: it takes credits and gives nothing out";
    AccountDisabled = 22, "ACCOUNT_DISABLED", "the account is disabled: it neither takes nor gives";
    InsufficientBalance = 23, "INSUFFICIENT_BALANCE", "the available balance is less than the amount";
    InsufficientReserved = 24, "INSUFFICIENT_RESERVED", "the reserved balance is less than the amount";
    Overflow = 25, "OVERFLOW", "the total of the asset would not fit 64 bits";
    Voided = 26, "WITHDRAWAL_VOIDED", "the withdrawal was rolled back before it came: it will never run";
    RolledBack = 27, "WITHDRAWAL_ROLLED_BACK", "the withdrawal was rolled back: its money is with the user again";
    OtherDatabase = 28, "SPOT_PAIR_OTHER", "the engine is paired with another database";
}

/// What the engine decided about an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Applied,
    Refused(SpotRefusal),
}

impl Decision {
    /// `applied`, or the code of the refusal.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Refused(refusal) => refusal.code(),
        }
    }
}

/// What is remembered under an operation id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Applied,
    Refused(SpotRefusal),
    /// A withdrawal that was applied and then rolled back.
    RolledBack,
    /// A withdrawal that was rolled back before it came.
    Void,
}

impl Standing {
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Applied => 0,
            Self::RolledBack => 1,
            Self::Void => 2,
            Self::Refused(refusal) => refusal.number(),
        }
    }

    pub(crate) const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Applied),
            1 => Some(Self::RolledBack),
            2 => Some(Self::Void),
            number => match SpotRefusal::from_number(number) {
                Some(refusal) => Some(Self::Refused(refusal)),
                None => None,
            },
        }
    }

    /// The answer to the same operation when it comes again. A rollback is answered by `State::roll_back` instead.
    pub(crate) const fn decision(self) -> Decision {
        match self {
            Self::Applied => Decision::Applied,
            Self::Refused(refusal) => Decision::Refused(refusal),
            Self::RolledBack => Decision::Refused(SpotRefusal::RolledBack),
            Self::Void => Decision::Refused(SpotRefusal::Voided),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Balance {
    pub available: Amount,
    pub reserved: Amount,
    pub status: AccountStatus,
}

/// The answer to one request. **To an operation, only `First` and `Replay` say what became of it.** The others decided
/// nothing: a caller that takes them for a refusal and pays the money back may pay it twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was decided now.
    First(Decision),
    /// It was decided before, and this is what was decided then.
    Replay(Decision),
    /// The id stands for an operation with other content; that one stands, this one did nothing.
    Conflict,
    /// The id is older than what is remembered. Whether it ran is not known here; it will not run now.
    Expired,
    /// The id is from the future: a clock is wrong. Nothing was done, and it may be sent again.
    TooEarly,
    /// The total of the asset has no room for what a rollback gives back. Nothing was done; it must be sent again.
    NoRoom,
    /// To a query: what stands under the id, or `None` if nothing was ever decided under it.
    Standing(Option<Standing>),
    /// To a balance request: `None` if the user never had a balance in the asset.
    Balance(Option<Balance>),
    /// To a total request.
    Total(Amount),
    /// To a pair request.
    Pair(PairStanding),
}

/// Which engine this is, and how far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairStanding {
    /// The id of its log, which never changes.
    pub log_id: u64,
    /// The database that it is paired with. `None`: it was never marked.
    pub database: Option<u64>,
    /// The highest counter that the database has told.
    pub counter: u64,
    /// The last batch in the log.
    pub sequence: u64,
    /// The engine's time.
    pub time: Timestamp,
}

const FIRST: u8 = 1;
const REPLAY: u8 = 2;
const CONFLICT: u8 = 3;
const EXPIRED: u8 = 4;
const TOO_EARLY: u8 = 5;
const STANDING: u8 = 6;
const BALANCE: u8 = 7;
const TOTAL: u8 = 8;
const NO_ROOM: u8 = 9;
const PAIR: u8 = 10;
/// The second byte of a `STANDING` or `BALANCE` that has nothing to tell. No standing and no status has this number.
const NOTHING: u8 = u8::MAX;

impl Decision {
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Applied => 0,
            Self::Refused(refusal) => refusal.number(),
        }
    }

    const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Applied),
            number => match SpotRefusal::from_number(number) {
                Some(refusal) => Some(Self::Refused(refusal)),
                None => None,
            },
        }
    }
}

impl Answer {
    /// The code of an answer that refused the operation or left it undecided; it names a page in `docs/errors/`.
    pub const fn code(&self) -> Option<&'static str> {
        match self {
            Self::First(Decision::Refused(refusal)) | Self::Replay(Decision::Refused(refusal)) => Some(refusal.code()),
            Self::Conflict => Some("EXISTS_WITH_DIFFERENT_CONTENT"),
            Self::Expired => Some("OPERATION_EXPIRED"),
            Self::TooEarly => Some("OPERATION_FROM_THE_FUTURE"),
            Self::NoRoom => Some("ROLLBACK_HAS_NO_ROOM"),
            Self::First(Decision::Applied)
            | Self::Replay(Decision::Applied)
            | Self::Standing(_)
            | Self::Balance(_)
            | Self::Total(_)
            | Self::Pair(_) => None,
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::First(decision) => out.extend_from_slice(&[FIRST, decision.number()]),
            Self::Replay(decision) => out.extend_from_slice(&[REPLAY, decision.number()]),
            Self::Conflict => out.extend_from_slice(&[CONFLICT, 0]),
            Self::Expired => out.extend_from_slice(&[EXPIRED, 0]),
            Self::TooEarly => out.extend_from_slice(&[TOO_EARLY, 0]),
            Self::NoRoom => out.extend_from_slice(&[NO_ROOM, 0]),
            Self::Standing(standing) => {
                out.extend_from_slice(&[STANDING, standing.map_or(NOTHING, Standing::number)]);
            }
            Self::Balance(None) => out.extend_from_slice(&[BALANCE, NOTHING]),
            Self::Balance(Some(balance)) => {
                out.extend_from_slice(&[BALANCE, crate::operation::status_number(balance.status)]);
                out.extend_from_slice(&balance.available.units().to_le_bytes());
                out.extend_from_slice(&balance.reserved.units().to_le_bytes());
            }
            Self::Total(amount) => {
                out.extend_from_slice(&[TOTAL, 0]);
                out.extend_from_slice(&amount.units().to_le_bytes());
            }
            Self::Pair(pair) => {
                out.extend_from_slice(&[PAIR, u8::from(pair.database.is_some())]);
                let time = pair.time.micros().cast_unsigned();
                for number in [pair.log_id, pair.database.unwrap_or(0), pair.counter, pair.sequence, time] {
                    out.extend_from_slice(&number.to_le_bytes());
                }
            }
        }
    }

    pub(crate) fn decode(fields: &mut Fields<'_>) -> Result<Self, BadLayout> {
        let [tag, number] = fields.take()?;
        let decision = || Decision::from_number(number).ok_or(BadLayout::Field);
        Ok(match tag {
            FIRST => Self::First(decision()?),
            REPLAY => Self::Replay(decision()?),
            CONFLICT => Self::Conflict,
            EXPIRED => Self::Expired,
            TOO_EARLY => Self::TooEarly,
            NO_ROOM => Self::NoRoom,
            STANDING if number == NOTHING => Self::Standing(None),
            STANDING => Self::Standing(Some(Standing::from_number(number).ok_or(BadLayout::Field)?)),
            BALANCE if number == NOTHING => Self::Balance(None),
            BALANCE => {
                let status = crate::operation::status_of(number).ok_or(BadLayout::Field)?;
                let (available, reserved) = (Amount::from_units(fields.i64()?), Amount::from_units(fields.i64()?));
                Self::Balance(Some(Balance { available, reserved, status }))
            }
            TOTAL => Self::Total(Amount::from_units(fields.i64()?)),
            PAIR => {
                let (log_id, database, counter, sequence) =
                    (fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?);
                let database = match number {
                    0 => None,
                    1 => Some(database),
                    _ => return Err(BadLayout::Field),
                };
                let time = Timestamp::from_micros(fields.i64()?);
                Self::Pair(PairStanding { log_id, database, counter, sequence, time })
            }
            unknown => return Err(BadLayout::Kind(unknown)),
        })
    }
}
