//! What to pay, and what some bytes do when a chain runs them.

use domain::{RawAmount, Timestamp};

use crate::address::Address;
use crate::fee::Fee;
use crate::hash::{BlockRef, TxHash};

/// What is paid: the chain's own coin, or a listed token.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Coin {
    Native,
    Token(Address),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payment {
    pub to: Address,
    pub coin: Coin,
    pub amount: RawAmount,
}

/// Everything that the unsigned bytes depend on. The same draft gives the same bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Draft {
    Evm {
        from: Address,
        nonce: u64,
        payment: Payment,
        gas_limit: u64,
        fee: Fee,
    },
    Tron {
        from: Address,
        payment: Payment,
        /// Sun; zero for TRX transfers.
        fee_limit: i64,
        reference: BlockRef,
        created: Timestamp,
        expires: Timestamp,
    },
    /// Change is a payment like the others.
    Bitcoin {
        inputs: Vec<Input>,
        payments: Vec<Payment>,
        lock_time: u32,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    pub transaction: TxHash,
    pub index: u32,
    pub amount_sat: u64,
    pub script: Vec<u8>,
    /// Replaceable: below 0xfffffffe.
    pub sequence: u32,
}

/// Ready to be signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsigned {
    /// EVM: the payload whose keccak is signed. TRON: `raw_data`. Bitcoin: a PSBT.
    pub bytes: Vec<u8>,
    pub meaning: Meaning,
}

/// What some bytes do when a chain runs them: all of it, or they are refused as [`DecodeError::NotUnderstood`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// The hash that the chain will know it by. Not known before signing on EVM.
    pub hash: Option<TxHash>,
    /// Who pays. EVM: known once signed, by recovery. Bitcoin: the inputs' addresses may be many; see `slot`.
    pub from: Option<Address>,
    pub payments: Vec<Payment>,
    /// The most that it can cost beyond the payments, in the native coin. `None`: Bitcoin without the inputs' amounts.
    pub most_fee: Option<RawAmount>,
    pub fee: Fee,
    pub slot: Slot,
    /// EVM: the chain id that it is bound to.
    pub chain_id: Option<u64>,
}

/// What no other transaction can share with it once one of them is mined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slot {
    Nonce(u64),
    /// Nothing conflicts on TRON; only time ends it.
    Expiry(Timestamp),
    Inputs(Vec<(TxHash, u32)>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    #[error("the draft, an address or the fee is of another chain")]
    OtherChain,
    #[error("a payment of nothing")]
    NothingToPay,
    #[error("the amount is more than this chain can write")]
    AmountTooLarge,
    #[error("the amount is so small that nodes will not pass it on")]
    Dust,
    #[error("the inputs hold less than the payments")]
    InputsTooSmall,
    #[error("the fee is more than a transaction may cost")]
    FeeTooLarge,
    #[error("the draft contradicts itself: {0}")]
    Inconsistent(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("the bytes are not a transaction: {0}")]
    Malformed(&'static str),
    #[error("the transaction is well-formed but does more than pay: {0}")]
    NotUnderstood(&'static str),
    #[error("the transaction is for another network")]
    OtherNetwork,
    #[error("the signature does not fit")]
    BadSignature,
}
