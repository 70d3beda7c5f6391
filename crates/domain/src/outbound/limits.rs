//! What may be spent on getting a payment through, and how much may be out at a time. Rows of a chain; these are what is usual.

use ruint::aliases::U256;

use crate::asset::ChainKind;
use crate::raw::RawAmount;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutboundLimits {
    /// The highest price: wei for a unit of gas, satoshi for 1,000 virtual bytes. TRON has none: its price is the network's.
    pub price_cap: u64,
    /// The most that one payment may cost, in the smallest unit of the chain's own coin.
    pub fee_cap: RawAmount,
    /// So many transactions of one wallet wait for a block at a time.
    pub in_flight: u32,
    /// After so long without a block a transaction is sent again, or replaced.
    pub stuck_after_s: u32,
    /// Bitcoin: so long a payout waits for others that share its transaction. Elsewhere nothing is shared.
    pub gather_s: u32,
    /// Bitcoin: with so many nobody waits for more.
    pub gather_most: u32,
    /// Bitcoin: while the price is no higher, payouts take small coins along. Satoshi for 1,000 virtual bytes.
    pub join_below: u64,
}

impl OutboundLimits {
    pub fn usual(kind: ChainKind) -> Self {
        let raw = |units: u64| RawAmount::from_u256(U256::from(units));
        match kind {
            // 20 Gwei for 200,000 of gas.
            ChainKind::Evm => Self {
                price_cap: 20_000_000_000,
                fee_cap: raw(4_000_000_000_000_000),
                in_flight: 16,
                stuck_after_s: 30,
                gather_s: 0,
                gather_most: 1,
                join_below: 0,
            },
            // 100 TRX.
            ChainKind::Tron => Self {
                price_cap: 0,
                fee_cap: raw(100_000_000),
                in_flight: 64,
                stuck_after_s: 15,
                gather_s: 0,
                gather_most: 1,
                join_below: 0,
            },
            // 200 satoshi for a virtual byte; 0.0005 BTC. Small coins are joined at 3 satoshi for a virtual byte, or less.
            ChainKind::Bitcoin => Self {
                price_cap: 200_000,
                fee_cap: raw(50_000),
                in_flight: 16,
                stuck_after_s: 1_800,
                gather_s: 30,
                gather_most: 100,
                join_below: 3_000,
            },
        }
    }
}
