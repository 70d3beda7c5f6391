//! What transactions cost now: asked for each coin with an address that really has it.

use std::collections::HashMap;

use chain::{Chain, ChainError};
use domain::RawAmount;
use domain::treasury::{CoinId, Fee as JobFee, Fees};
use tx::{Address, Coin, FeeCap, Payment};

/// So many addresses are asked for before a coin cannot be sent at all.
pub(super) const MOST_SAMPLES: usize = 4;

/// Addresses with something of a coin, for a question.
pub(super) struct Sample {
    pub coin: CoinId,
    pub form: Coin,
    pub from: Vec<(Address, RawAmount)>,
    /// Hot wallets that it may go to instead of the treasury.
    pub hot: Vec<Address>,
}

/// Who would pay whom.
pub(super) struct Parties<'a> {
    pub samples: &'a [Sample],
    pub treasury: &'a Address,
    /// Hot wallets that the chain's own coin may go to.
    pub hot: &'a [Address],
    /// Who brings gas, and an address that needs it.
    pub topup: Option<(Address, Address)>,
}

/// `None`: it would not be paid, or the network asks for more than is allowed.
async fn ask(chain: &dyn Chain, from: &Address, payment: &Payment, cap: FeeCap) -> Result<Option<JobFee>, ChainError> {
    match chain.quote(from, payment, cap).await {
        Ok(quote) if quote.capped => Ok(None),
        Ok(quote) => Ok(Some(JobFee { expected: quote.expected, most: quote.needs })),
        // A token that is paused, an address that the token's owner has frozen, one whose coins have just left.
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

/// What the dearest of the homes costs to pay, and the hot wallets that would not be paid: one that a token's owner has frozen must not keep all of
/// that token from coming home. `None`: not even the treasury would be.
async fn dearest<'h>(
    chain: &dyn Chain,
    (from, coin, amount): (&Address, &Coin, RawAmount),
    (treasury, hot): (&Address, &'h [Address]),
    cap: FeeCap,
) -> Result<Option<(JobFee, Vec<&'h Address>)>, ChainError> {
    let payment = |to: &Address| Payment { to: to.clone(), coin: coin.clone(), amount };
    let Some(mut most) = ask(chain, from, &payment(treasury), cap).await? else { return Ok(None) };
    let mut refused = Vec::new();
    for home in hot {
        match ask(chain, from, &payment(home), cap).await? {
            Some(fee) => {
                most = JobFee { expected: most.expected.max(fee.expected), most: most.most.max(fee.most) };
            }
            None => refused.push(home),
        }
    }
    Ok(Some((most, refused)))
}

/// What payments within the house cost, and the hot wallets that a coin cannot go to now.
pub(super) struct HouseFees {
    pub fees: Fees,
    pub refused: Vec<(CoinId, Address)>,
}

/// `None`: the chain's own coin cannot be sent now, so nothing can.
pub(super) async fn fees(
    chain: &dyn Chain,
    parties: &Parties<'_>,
    native_coin: CoinId,
    cap: FeeCap,
) -> Result<Option<HouseFees>, ChainError> {
    let Some((first, _)) = parties.samples.iter().find_map(|sample| sample.from.first()) else { return Ok(None) };
    let nothing = (first, &Coin::Native, RawAmount::ZERO);
    let homes = (parties.treasury, parties.hot);
    let Some((mut native, unpaid)) = dearest(chain, nothing, homes, cap).await? else { return Ok(None) };
    let mut refused: Vec<(CoinId, Address)> = unpaid.into_iter().map(|home| (native_coin, home.clone())).collect();
    // Gas goes to an address that the chain may never have seen, which costs more on TRON.
    if let Some((gas, needy)) = &parties.topup {
        let topup = Payment { to: needy.clone(), coin: Coin::Native, amount: RawAmount::ZERO };
        let fee = ask(chain, gas, &topup, cap).await?;
        native.expected = fee.map_or(native.expected, |fee| fee.expected.max(native.expected));
    }
    let mut tokens = HashMap::new();
    for sample in parties.samples.iter().filter(|sample| sample.form != Coin::Native) {
        // One address that cannot pay must not keep all others waiting.
        for (from, amount) in &sample.from {
            let homes = (parties.treasury, sample.hot.as_slice());
            if let Some((fee, unpaid)) = dearest(chain, (from, &sample.form, *amount), homes, cap).await? {
                tokens.insert(sample.coin, fee);
                refused.extend(unpaid.into_iter().map(|home| (sample.coin, home.clone())));
                break;
            }
        }
    }
    Ok(Some(HouseFees { fees: Fees { native, tokens }, refused }))
}
