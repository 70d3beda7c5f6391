//! What transactions cost now: one question for each coin, asked with an address that really has it.

use std::collections::HashMap;

use chain::{Chain, ChainError, Quote};
use domain::RawAmount;
use domain::treasury::{CoinId, Fee as JobFee, Fees};
use tx::{Address, Coin, Fee, FeeCap, Payment};

/// An address with something of a coin, for a question.
pub(super) struct Sample {
    pub coin: CoinId,
    pub form: Coin,
    pub from: Address,
    pub amount: RawAmount,
}

/// What is expected of a quote. Where the network's price may rise until the block, a quote has room for twice of it: on TRON that is energy, which only
/// tokens take.
fn expected(quote: &Quote, coin: &Coin) -> JobFee {
    let expected = match quote.fee {
        Fee::Legacy { .. } => quote.most,
        Fee::FeeLimit(_) if *coin == Coin::Native => quote.most,
        Fee::Eip1559 { .. } | Fee::FeeLimit(_) | Fee::PerKvb(_) => {
            RawAmount::from_u256(quote.most.to_u256().wrapping_shr(1))
        }
    };
    JobFee { expected, most: quote.most }
}

/// `None`: nobody can say now, or the network asks for more than is allowed.
async fn ask(chain: &dyn Chain, from: &Address, payment: &Payment, cap: FeeCap) -> Result<Option<JobFee>, ChainError> {
    match chain.quote(from, payment, cap).await {
        Ok(quote) if quote.capped => Ok(None),
        Ok(quote) => Ok(Some(expected(&quote, &payment.coin))),
        // It would not be paid: a token that is paused, for one. The others need not wait for it.
        Err(ChainError::Refused(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What one payment is expected to cost. Zero: nobody can say now.
pub(super) async fn expected_cost(
    chain: &dyn Chain,
    from: &Address,
    payment: &Payment,
    cap: FeeCap,
) -> Result<RawAmount, ChainError> {
    Ok(ask(chain, from, payment, cap).await?.map_or(RawAmount::ZERO, |fee| fee.expected))
}

/// What payments to an address of the house cost. `None`: the chain's own coin cannot be sent now, so nothing can.
pub(super) async fn fees(
    chain: &dyn Chain,
    (samples, home, gas): (&[Sample], &Address, Option<&Address>),
    cap: FeeCap,
) -> Result<Option<Fees>, ChainError> {
    let Some(first) = samples.first() else { return Ok(None) };
    let nothing = Payment { to: home.clone(), coin: Coin::Native, amount: RawAmount::ZERO };
    let Some(mut native) = ask(chain, &first.from, &nothing, cap).await? else { return Ok(None) };
    // Gas goes to an address that the chain may never have seen, which costs more on TRON.
    if let Some(gas) = gas {
        let topup = Payment { to: first.from.clone(), coin: Coin::Native, amount: RawAmount::ZERO };
        let fee = ask(chain, gas, &topup, cap).await?;
        native.expected = fee.map_or(native.expected, |fee| fee.expected.max(native.expected));
    }
    let mut tokens = HashMap::new();
    for sample in samples.iter().filter(|sample| sample.form != Coin::Native) {
        let payment = Payment { to: home.clone(), coin: sample.form.clone(), amount: sample.amount };
        if let Some(fee) = ask(chain, &sample.from, &payment, cap).await? {
            tokens.insert(sample.coin, fee);
        }
    }
    Ok(Some(Fees { native, tokens }))
}
