//! What a transaction may cost.

use domain::{RawAmount, Timestamp};

use crate::block::BlockRef;

/// A price, in the chain's own terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fee {
    /// Wei per gas, before EIP-1559 and on chains without a base fee.
    Legacy { gas_price: u128 },
    /// Wei per gas: at most, and of it for the producer.
    Eip1559 { max_fee: u128, max_priority: u128 },
    /// Satoshi per 1,000 virtual bytes, as Bitcoin Core counts.
    PerKvb(u64),
    /// Sun: the most that the energy of a contract call may burn. A TRX transfer has none.
    FeeLimit(i64),
}

/// The most that may be offered. What the network asks beyond it is not followed: the payment waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeeCap(pub Fee);

/// All that a chain has to say before a payment can be drafted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quote {
    pub fee: Fee,
    /// The network asks for more than the cap; `fee` is the cap.
    pub capped: bool,
    /// EVM: the gas limit. TRON: the energy. Bitcoin: unused, zero.
    pub gas: u64,
    /// The most that this payment can cost, in the native coin. On Bitcoin it depends on the inputs: zero here.
    pub most: RawAmount,
    /// TRON: the block to refer to, and the time that it says.
    pub reference: Option<(BlockRef, Timestamp)>,
}
