//! The rules that every node enforces, for one transaction after the tip of a chain.

use std::collections::BTreeSet;

use ::bitcoin::{Amount, Transaction};

use super::chain::{Chain, Coin};
use super::reject::Reject;
use super::script;

pub(super) const MATURITY: u32 = 100;
pub(super) const BLOCK_WEIGHT: u64 = 4_000_000;

/// What a transaction must be, whatever the chain holds.
pub(super) fn check_alone(transaction: &Transaction) -> Result<(), Reject> {
    if transaction.input.is_empty() {
        return Err(Reject::rule("bad-txns-vin-empty"));
    }
    if transaction.output.is_empty() {
        return Err(Reject::rule("bad-txns-vout-empty"));
    }
    if u64::try_from(transaction.base_size()).unwrap_or(u64::MAX).saturating_mul(4) > BLOCK_WEIGHT {
        return Err(Reject::rule("bad-txns-oversize"));
    }
    let mut total = Amount::ZERO;
    for output in &transaction.output {
        if i64::try_from(output.value.to_sat()).is_err() {
            return Err(Reject::rule("bad-txns-vout-negative"));
        }
        if output.value > Amount::MAX_MONEY {
            return Err(Reject::rule("bad-txns-vout-toolarge"));
        }
        total = total.checked_add(output.value).unwrap_or(Amount::MAX);
        if total > Amount::MAX_MONEY {
            return Err(Reject::rule("bad-txns-txouttotal-toolarge"));
        }
    }
    let mut seen = BTreeSet::new();
    if !transaction.input.iter().all(|input| seen.insert(input.previous_output)) {
        return Err(Reject::rule("bad-txns-inputs-duplicate"));
    }
    if transaction.is_coinbase() {
        let length = transaction.input[0].script_sig.len();
        if !(2..=100).contains(&length) {
            return Err(Reject::rule("bad-cb-length"));
        }
    } else if transaction.input.iter().any(|input| input.previous_output.is_null()) {
        return Err(Reject::rule("bad-txns-prevout-null"));
    }
    Ok(())
}

/// BIP113: may it stand in the block after the tip?
pub(super) fn is_final(chain: &Chain, transaction: &Transaction) -> bool {
    let lock = transaction.lock_time.to_consensus_u32();
    let limit = if lock < 500_000_000 { chain.height().saturating_add(1) } else { chain.tip().median_time };
    lock == 0 || lock < limit || transaction.input.iter().all(|input| input.sequence.is_final())
}

/// BIP68. `coins` are those of the inputs, in order; a coin of the pool counts as mined in the next block.
pub(super) fn is_sequence_final(chain: &Chain, transaction: &Transaction, coins: &[Coin]) -> bool {
    // The version is unsigned since Core 28.
    if transaction.version.0 == 1 || transaction.version.0 == 0 {
        return true;
    }
    let next = u64::from(chain.height()).saturating_add(1);
    let median = u64::from(chain.tip().median_time);
    transaction.input.iter().zip(coins).all(|(input, coin)| {
        let sequence = input.sequence.to_consensus_u32();
        if sequence & (1 << 31) != 0 {
            return true;
        }
        let wait = u64::from(sequence & 0xffff);
        if sequence & (1 << 22) != 0 {
            let from = u64::from(chain.median_time_at(coin.height.saturating_sub(1)));
            // One second less than the sum must have passed: `from + wait * 512 - 1 < median`.
            from.saturating_add(wait << 9) <= median
        } else {
            u64::from(coin.height).saturating_add(wait) <= next
        }
    })
}

/// The sums, and that no fresh coinbase is spent. The fee.
pub(super) fn check_inputs(chain: &Chain, transaction: &Transaction, coins: &[Coin]) -> Result<Amount, Reject> {
    let height = chain.height().saturating_add(1);
    let mut total = Amount::ZERO;
    for coin in coins {
        let depth = height.saturating_sub(coin.height);
        if coin.coinbase && depth < MATURITY {
            return Err(Reject::rule("bad-txns-premature-spend-of-coinbase")
                .because(format!("tried to spend coinbase at depth {depth}")));
        }
        total = total.checked_add(coin.out.value).unwrap_or(Amount::MAX);
        if total > Amount::MAX_MONEY {
            return Err(Reject::rule("bad-txns-inputvalues-outofrange"));
        }
    }
    let out = transaction.output.iter().map(|output| output.value).sum::<Amount>();
    total.checked_sub(out).ok_or_else(|| {
        Reject::rule("bad-txns-in-belowout").because(format!(
            "value in ({}) < value out ({})",
            money(total),
            money(out)
        ))
    })
}

/// Core's `FormatMoney`: at least two decimals, no more zeros than that.
pub(super) fn money(amount: Amount) -> String {
    let text = super::json::coins(amount.to_sat());
    let keep = text.find('.').map_or(0, |dot| dot.saturating_add(3));
    let short = text.trim_end_matches('0');
    text[..short.len().max(keep)].to_owned()
}

/// All of it, for a transaction that a block holds.
pub(super) fn check_in_block(chain: &Chain, transaction: &Transaction) -> Result<Amount, Reject> {
    if transaction.is_coinbase() {
        return Err(Reject::rule("bad-cb-multiple").because("more than one coinbase"));
    }
    check_alone(transaction)?;
    if !is_final(chain, transaction) {
        return Err(Reject::rule("bad-txns-nonfinal").because("non-final transaction"));
    }
    let mut coins = Vec::with_capacity(transaction.input.len());
    for input in &transaction.input {
        let coin = chain.coin(&input.previous_output);
        coins.push(coin.ok_or_else(|| Reject::missing().because("CheckTxInputs: inputs missing/spent"))?.clone());
    }
    let fee = check_inputs(chain, transaction, &coins)?;
    if !is_sequence_final(chain, transaction, &coins) {
        return Err(Reject::rule("bad-txns-nonfinal").because("contains a non-BIP68-final transaction"));
    }
    script::verify(transaction, &coins)
        .map_err(|(_, why)| Reject::rule(format!("block-script-verify-flag-failed ({why})")))?;
    Ok(fee)
}
