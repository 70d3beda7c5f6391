//! What a transaction may cost.

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
