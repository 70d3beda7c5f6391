//! The requests that the engine takes, and their layouts in the log and on the wire.
//!
//! | kind | bytes | what it does to the balances |
//! |---|---|---|
//! | deposit | 32 | available + amount; makes the account |
//! | withdraw | 32 | available − amount |
//! | rollback | 32 | undoes the withdrawal of the same id, or forbids it if it never came |
//! | reserve | 32 | available → reserved |
//! | release | 32 | reserved → available |
//! | set-status | 32 | active, frozen, disabled |
//! | settle | 80 | a trade: both sides pay out of what they reserved, fees to a fee account |
//! | mark | 32 | nothing: the database that the engine is paired with says how far it has come |
//! | query, balance, total, pair | 32 | nothing: they only read, and never stand in the log |
//!
//! A layout never changes: a new one is a new kind.

use std::fmt;
use std::num::NonZeroU64;

use domain::id::{self, Id, IdKind};
use domain::{AccountStatus, Amount, AssetId, Timestamp, UserId};

/// The 64-bit id of an operation: a snowflake, so that it says when it was made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(NonZeroU64);

impl OpId {
    pub fn new(number: i64) -> Option<Self> {
        u64::try_from(number).ok().and_then(NonZeroU64::new).map(Self)
    }

    /// Every id was made from an `i64`, so the number fits.
    pub const fn number(self) -> i64 {
        self.0.get().cast_signed()
    }

    pub const fn made_at(self) -> Timestamp {
        id::made_at(self.number())
    }
}

impl<K: IdKind> From<Id<K>> for OpId {
    fn from(id: Id<K>) -> Self {
        // An `Id` is positive by construction.
        Self(NonZeroU64::new(id.number().cast_unsigned()).unwrap_or(NonZeroU64::MIN))
    }
}

impl fmt::Display for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// An operation on one balance: whose, in which asset, and by how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    pub id: OpId,
    pub user: UserId,
    pub asset: AssetId,
    pub amount: Amount,
}

/// A trade. The buyer pays `quote_amount` and gets `base_amount` less `buyer_fee`; the seller the other way round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settle {
    pub id: OpId,
    pub buyer: UserId,
    pub seller: UserId,
    /// Who earns the fees.
    pub fees: UserId,
    pub base: AssetId,
    pub quote: AssetId,
    pub base_amount: Amount,
    pub quote_amount: Amount,
    /// In base, out of what the buyer gets.
    pub buyer_fee: Amount,
    /// In quote, out of what the seller gets.
    pub seller_fee: Amount,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Deposit(Move),
    Withdraw(Move),
    /// Carries the id and the content of the withdrawal that it undoes.
    Rollback(Move),
    Reserve(Move),
    Release(Move),
    Settle(Settle),
    SetStatus {
        id: OpId,
        user: UserId,
        asset: AssetId,
        status: AccountStatus,
    },
    Mark(Mark),
}

/// What a database says to the engine that it is paired with (docs/adr/0009-pair.md): who it is, and a counter that it
/// has reached. The first mark pairs the engine; after that only the same database may mark it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub id: OpId,
    pub database: u64,
    pub counter: u64,
}

const DEPOSIT: u8 = 1;
const WITHDRAW: u8 = 2;
const ROLLBACK: u8 = 3;
const RESERVE: u8 = 4;
const RELEASE: u8 = 5;
const SETTLE: u8 = 6;
const SET_STATUS: u8 = 7;
const QUERY: u8 = 8;
const BALANCE: u8 = 9;
const TOTAL: u8 = 10;
const MARK: u8 = 11;
const PAIR: u8 = 12;

/// The length of the largest layout.
pub const LONGEST: usize = 80;

/// Bytes that are no operation, or not one that this version knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadLayout {
    #[error("the bytes end inside an operation")]
    Short,
    #[error("kind {0} is unknown")]
    Kind(u8),
    #[error("an id, user, asset or status is out of range")]
    Field,
}

pub(crate) const fn status_number(status: AccountStatus) -> u8 {
    match status {
        AccountStatus::Active => 0,
        AccountStatus::Frozen => 1,
        AccountStatus::Disabled => 2,
    }
}

pub(crate) const fn status_of(number: u8) -> Option<AccountStatus> {
    match number {
        0 => Some(AccountStatus::Active),
        1 => Some(AccountStatus::Frozen),
        2 => Some(AccountStatus::Disabled),
        _ => None,
    }
}

/// Little-endian fields, one after the other.
pub(crate) struct Fields<'a> {
    bytes: &'a [u8],
}

impl<'a> Fields<'a> {
    pub const fn of(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub fn take<const N: usize>(&mut self) -> Result<[u8; N], BadLayout> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(BadLayout::Short)?;
        self.bytes = rest;
        Ok(*taken)
    }

    pub fn u8(&mut self) -> Result<u8, BadLayout> {
        Ok(u8::from_le_bytes(self.take()?))
    }

    pub fn u32(&mut self) -> Result<u32, BadLayout> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    pub fn u64(&mut self) -> Result<u64, BadLayout> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    pub fn i64(&mut self) -> Result<i64, BadLayout> {
        Ok(i64::from_le_bytes(self.take()?))
    }

    fn id(&mut self) -> Result<OpId, BadLayout> {
        OpId::new(self.i64()?).ok_or(BadLayout::Field)
    }

    fn user(&mut self) -> Result<UserId, BadLayout> {
        UserId::new(self.i64()?).ok_or(BadLayout::Field)
    }

    fn asset(&mut self) -> Result<AssetId, BadLayout> {
        Ok(AssetId(i64::from(self.u32()?)))
    }

    fn amount(&mut self) -> Result<Amount, BadLayout> {
        Ok(Amount::from_units(self.i64()?))
    }

    pub const fn rest(&self) -> &'a [u8] {
        self.bytes
    }
}

/// The layouts keep an asset in 32 bits. An asset that does not fit is laid out as 0, which no asset has, so that it is
/// refused alike when it is read back.
pub(crate) fn asset_number(asset: AssetId) -> Option<u32> {
    u32::try_from(asset.0).ok().filter(|number| *number > 0)
}

/// 32 bytes: kind, status, two spare, asset, id, user, amount.
fn put_short(out: &mut Vec<u8>, kind: u8, status: u8, of: &Move) {
    let mut bytes = [0; 32];
    bytes[0] = kind;
    bytes[1] = status;
    bytes[4..8].copy_from_slice(&asset_number(of.asset).unwrap_or(0).to_le_bytes());
    bytes[8..16].copy_from_slice(&of.id.number().to_le_bytes());
    bytes[16..24].copy_from_slice(&of.user.get().to_le_bytes());
    bytes[24..32].copy_from_slice(&of.amount.units().to_le_bytes());
    out.extend_from_slice(&bytes);
}

impl Operation {
    pub const fn id(&self) -> OpId {
        match self {
            Self::Deposit(of) | Self::Withdraw(of) | Self::Rollback(of) | Self::Reserve(of) | Self::Release(of) => {
                of.id
            }
            Self::Settle(of) => of.id,
            Self::SetStatus { id, .. } => *id,
            Self::Mark(of) => of.id,
        }
    }

    /// Does the operation move money between the engine and the database? Then a transfer of the database has its id.
    pub const fn crosses(&self) -> bool {
        match self {
            Self::Deposit(_) | Self::Withdraw(_) | Self::Rollback(_) => true,
            Self::Reserve(_) | Self::Release(_) | Self::Settle(_) | Self::SetStatus { .. } | Self::Mark(_) => false,
        }
    }

    pub const fn name(&self) -> &'static str {
        match self {
            Self::Deposit(_) => "deposit",
            Self::Withdraw(_) => "withdraw",
            Self::Rollback(_) => "rollback",
            Self::Reserve(_) => "reserve",
            Self::Release(_) => "release",
            Self::Settle(_) => "settle",
            Self::SetStatus { .. } => "set-status",
            Self::Mark(_) => "mark",
        }
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Deposit(of) => put_short(out, DEPOSIT, 0, of),
            Self::Withdraw(of) => put_short(out, WITHDRAW, 0, of),
            Self::Rollback(of) => put_short(out, ROLLBACK, 0, of),
            Self::Reserve(of) => put_short(out, RESERVE, 0, of),
            Self::Release(of) => put_short(out, RELEASE, 0, of),
            Self::SetStatus { id, user, asset, status } => {
                let of = Move { id: *id, user: *user, asset: *asset, amount: Amount::ZERO };
                put_short(out, SET_STATUS, status_number(*status), &of);
            }
            Self::Mark(of) => {
                let mut bytes = [0; 32];
                bytes[0] = MARK;
                bytes[8..16].copy_from_slice(&of.id.number().to_le_bytes());
                bytes[16..24].copy_from_slice(&of.database.to_le_bytes());
                bytes[24..32].copy_from_slice(&of.counter.to_le_bytes());
                out.extend_from_slice(&bytes);
            }
            Self::Settle(of) => {
                out.extend_from_slice(&[SETTLE, 0, 0, 0]);
                out.extend_from_slice(&asset_number(of.base).unwrap_or(0).to_le_bytes());
                for number in [of.id.number(), of.buyer.get(), of.seller.get(), of.fees.get()] {
                    out.extend_from_slice(&number.to_le_bytes());
                }
                out.extend_from_slice(&asset_number(of.quote).unwrap_or(0).to_le_bytes());
                out.extend_from_slice(&[0; 4]);
                for amount in [of.base_amount, of.quote_amount, of.buyer_fee, of.seller_fee] {
                    out.extend_from_slice(&amount.units().to_le_bytes());
                }
            }
        }
    }

    /// Reads one operation and leaves the rest.
    pub(crate) fn decode(fields: &mut Fields<'_>) -> Result<Self, BadLayout> {
        match Request::decode(fields)? {
            Request::Run(operation) => Ok(operation),
            Request::Query(_) => Err(BadLayout::Kind(QUERY)),
            Request::Balance { .. } => Err(BadLayout::Kind(BALANCE)),
            Request::Total(_) => Err(BadLayout::Kind(TOTAL)),
            Request::Pair => Err(BadLayout::Kind(PAIR)),
        }
    }

    /// A number that stands for the whole content but the id. A rollback has that of its withdrawal. The same content
    /// gives the same number in every version: snapshots hold it.
    pub(crate) fn fingerprint(&self) -> u64 {
        let of_move = |kind: u8, of: &Move| {
            mix(&[
                kind.into(),
                asset_number(of.asset).unwrap_or(0).into(),
                word(of.user.get()),
                word(of.amount.units()),
            ])
        };
        match self {
            Self::Deposit(of) => of_move(DEPOSIT, of),
            Self::Withdraw(of) | Self::Rollback(of) => of_move(WITHDRAW, of),
            Self::Reserve(of) => of_move(RESERVE, of),
            Self::Release(of) => of_move(RELEASE, of),
            Self::SetStatus { user, asset, status, .. } => mix(&[
                SET_STATUS.into(),
                asset_number(*asset).unwrap_or(0).into(),
                word(user.get()),
                status_number(*status).into(),
            ]),
            Self::Mark(of) => mix(&[MARK.into(), of.database, of.counter]),
            Self::Settle(of) => mix(&[
                SETTLE.into(),
                asset_number(of.base).unwrap_or(0).into(),
                asset_number(of.quote).unwrap_or(0).into(),
                word(of.buyer.get()),
                word(of.seller.get()),
                word(of.fees.get()),
                word(of.base_amount.units()),
                word(of.quote_amount.units()),
                word(of.buyer_fee.units()),
                word(of.seller_fee.units()),
            ]),
        }
    }
}

const fn word(number: i64) -> u64 {
    number.cast_unsigned()
}

/// Mixes the words with folded 128-bit products, so that each word changes all bits. The two odd constants are those of
/// well-known hashes (the golden ratio, wyhash) and must never change, because snapshots hold fingerprints.
fn mix(words: &[u64]) -> u64 {
    words.iter().fold(0x9e37_79b9_7f4a_7c15, |state, word| fold(state ^ word, 0xa076_1d64_78bd_642f).rotate_left(23))
}

/// The high and the low half of the product, folded together.
pub(crate) const fn fold(left: u64, right: u64) -> u64 {
    let product = left as u128 * right as u128;
    (product as u64) ^ ((product >> 64) as u64)
}

/// An operation to run, or something to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    Run(Operation),
    /// Asks what stands under an operation id.
    Query(OpId),
    Balance {
        user: UserId,
        asset: AssetId,
    },
    /// Asks what all users together have in an asset.
    Total(AssetId),
    /// Asks which engine this is, and which database it is paired with.
    Pair,
}

impl From<Operation> for Request {
    fn from(operation: Operation) -> Self {
        Self::Run(operation)
    }
}

impl Request {
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut put = |kind: u8, asset: AssetId, id: i64, user: i64| {
            let mut bytes = [0; 32];
            bytes[0] = kind;
            bytes[4..8].copy_from_slice(&asset_number(asset).unwrap_or(0).to_le_bytes());
            bytes[8..16].copy_from_slice(&id.to_le_bytes());
            bytes[16..24].copy_from_slice(&user.to_le_bytes());
            out.extend_from_slice(&bytes);
        };
        match self {
            Self::Run(operation) => operation.encode(out),
            Self::Query(id) => put(QUERY, AssetId(0), id.number(), 0),
            Self::Balance { user, asset } => put(BALANCE, *asset, 0, user.get()),
            Self::Total(asset) => put(TOTAL, *asset, 0, 0),
            Self::Pair => put(PAIR, AssetId(0), 0, 0),
        }
    }

    pub(crate) fn decode(fields: &mut Fields<'_>) -> Result<Self, BadLayout> {
        let [kind, status, spare, spare_too] = fields.take()?;
        if spare != 0 || spare_too != 0 || (status != 0 && kind != SET_STATUS) {
            return Err(BadLayout::Field);
        }
        let asset = fields.asset()?;
        if kind == SETTLE {
            let (id, buyer, seller, fees) = (fields.id()?, fields.user()?, fields.user()?, fields.user()?);
            let quote = fields.asset()?;
            if fields.u32()? != 0 {
                return Err(BadLayout::Field);
            }
            let (base_amount, quote_amount) = (fields.amount()?, fields.amount()?);
            let (buyer_fee, seller_fee) = (fields.amount()?, fields.amount()?);
            let base = asset;
            let of = Settle { id, buyer, seller, fees, base, quote, base_amount, quote_amount, buyer_fee, seller_fee };
            return Ok(Self::Run(Operation::Settle(of)));
        }
        let (id, user, amount) = (fields.i64()?, fields.i64()?, fields.amount()?);
        match kind {
            QUERY => return OpId::new(id).map(Self::Query).ok_or(BadLayout::Field),
            BALANCE => {
                return UserId::new(user).map(|user| Self::Balance { user, asset }).ok_or(BadLayout::Field);
            }
            TOTAL => return Ok(Self::Total(asset)),
            PAIR => return Ok(Self::Pair),
            _ => {}
        }
        let id = OpId::new(id).ok_or(BadLayout::Field)?;
        if kind == MARK {
            let (database, counter) = (user.cast_unsigned(), amount.units().cast_unsigned());
            return Ok(Self::Run(Operation::Mark(Mark { id, database, counter })));
        }
        let user = UserId::new(user).ok_or(BadLayout::Field)?;
        let of = Move { id, user, asset, amount };
        Ok(Self::Run(match kind {
            DEPOSIT => Operation::Deposit(of),
            WITHDRAW => Operation::Withdraw(of),
            ROLLBACK => Operation::Rollback(of),
            RESERVE => Operation::Reserve(of),
            RELEASE => Operation::Release(of),
            SET_STATUS => {
                let status = status_of(status).ok_or(BadLayout::Field)?;
                Operation::SetStatus { id, user, asset, status }
            }
            unknown => return Err(BadLayout::Kind(unknown)),
        }))
    }
}
