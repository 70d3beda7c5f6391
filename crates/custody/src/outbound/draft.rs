//! The bytes to be signed: a payment, one that offers more in the same slot, and one that only takes the slot.

use chain::{Chain, Quote};
use domain::outbound::OutboundLimits;
use domain::{ChainKind, RawAmount};
use ruint::aliases::U256;
use store::outbound::JobRow;
use tx::bitcoin::transaction::Spending;
use tx::evm::transaction::LEAST_GAS;
use tx::tron::transaction::MOST_FEE_LIMIT;
use tx::{Address, Coin, Draft, Fee, FeeCap, Input, Meaning, Payment, Slot};

/// How long a transaction of TRON may be mined, by the chain's own time. Only when this is over, by proof, another may be built.
const TRON_LIFE_MICROS: i64 = 20 * 60 * 1_000_000;

/// Satoshi.
const BACK_FEE: u64 = 2_000;

/// The most that may be offered for a payment that may cost so much.
pub(crate) fn cap(kind: ChainKind, limits: &OutboundLimits, most: RawAmount) -> FeeCap {
    match kind {
        ChainKind::Evm => {
            let price = u128::from(limits.price_cap);
            FeeCap(Fee::Eip1559 { max_fee: price, max_priority: price })
        }
        ChainKind::Tron => FeeCap(Fee::FeeLimit(i64::try_from(most.to_u256()).unwrap_or(i64::MAX).min(MOST_FEE_LIMIT))),
        ChainKind::Bitcoin => FeeCap(Fee::PerKvb(limits.price_cap)),
    }
}

/// The payment of a job by a quote. Why it cannot be built: its amount or its address is nothing that the chain can pay.
pub(super) fn pay(
    chain: &dyn Chain,
    from: &Address,
    nonce: Option<u64>,
    job: &JobRow,
    payment: &Payment,
    quote: &Quote,
) -> Result<Vec<u8>, String> {
    let draft = match (nonce, quote.reference, quote.fee) {
        (Some(nonce), ..) => {
            Draft::Evm { from: from.clone(), nonce, payment: payment.clone(), gas_limit: quote.gas, fee: quote.fee }
        }
        (None, Some((reference, time)), Fee::FeeLimit(fee_limit)) => Draft::Tron {
            from: from.clone(),
            payment: payment.clone(),
            fee_limit,
            reference,
            // Two payments of the same to the same must not be the same bytes: milliseconds tell them apart.
            created: time.plus_micros(job.id.number().rem_euclid(60_000) * 1_000),
            expires: time.plus_micros(TRON_LIFE_MICROS),
        },
        _ => return Err("the chain has not said what its payments need".to_owned()),
    };
    chain.build(&draft).map(|unsigned| unsigned.bytes).map_err(|error| error.to_string())
}

/// What is offered for a job that may cost so much and no more: of the reserve for prices that rise there is only what that leaves. `None`: what the
/// network asks now is more.
pub(super) fn within(
    chain: &dyn Chain,
    from: &Address,
    job: &JobRow,
    payment: &Payment,
    quote: Quote,
) -> Option<Quote> {
    let most = job.most_fee;
    match quote.fee {
        Fee::FeeLimit(limit) if payment.coin != Coin::Native => {
            if quote.capped || quote.needs > most {
                return None;
            }
            // Bandwidth that is free now may be used up when its turn comes, and the signer counts it in any case.
            let bytes = pay(chain, from, None, job, payment, &quote).ok()?;
            let counted = chain.decode_unsigned(&bytes).ok()?.most_fee?.to_u256();
            let sun = |amount: i64| Some(U256::from(u64::try_from(amount).ok()?));
            let burnt = sun(limit)?;
            let for_bytes = counted.checked_sub(burnt)?.max(quote.most.to_u256().saturating_sub(burnt));
            let room = i64::try_from(most.to_u256().checked_sub(for_bytes)?).unwrap_or(i64::MAX);
            let lowered = limit.min(room);
            let offered = sun(lowered)?.saturating_add(for_bytes);
            let most = quote.most.min(RawAmount::from_u256(offered));
            (lowered > 0).then_some(Quote { fee: Fee::FeeLimit(lowered), most, ..quote })
        }
        Fee::Eip1559 { max_priority, .. } if quote.most > most && quote.expected <= most && !quote.capped => {
            let max_fee = u128::try_from(most.to_u256().checked_div(U256::from(quote.gas))?).ok()?;
            let fee = Fee::Eip1559 { max_fee, max_priority: max_priority.min(max_fee) };
            let most = RawAmount::from_u256(tx::evm::transaction::most_fee(quote.gas, fee)?);
            Some(Quote { fee, most, needs: most, ..quote })
        }
        Fee::FeeLimit(_) | Fee::Legacy { .. } | Fee::Eip1559 { .. } | Fee::PerKvb(_) => {
            (quote.most <= most).then_some(quote)
        }
    }
}

/// Nothing to oneself, which only takes the nonce.
pub(super) fn cancel(chain: &dyn Chain, own: &Address, nonce: u64, fee: Fee) -> Result<Vec<u8>, String> {
    let payment = Payment { to: own.clone(), coin: Coin::Native, amount: RawAmount::ZERO };
    let draft = Draft::Evm { from: own.clone(), nonce, payment, gas_limit: LEAST_GAS, fee };
    chain.build(&draft).map(|unsigned| unsigned.bytes).map_err(|error| error.to_string())
}

/// What is sent in the slot of `old` when that offers too little: the same, with an eighth more in every field, or what is asked now.
/// `None`: the cap, or what was agreed, does not allow it.
pub(super) fn offer_more(
    chain: &dyn Chain,
    own: &Address,
    old: &Meaning,
    asked: Fee,
    (price_cap, most): (FeeCap, RawAmount),
) -> Option<Vec<u8>> {
    let ([payment], Slot::Nonce(nonce)) = (old.payments.as_slice(), &old.slot) else { return None };
    let fee = tx::evm::replacement(old.fee, asked, price_cap)?;
    let gas_limit = gas_of(old)?;
    let draft = Draft::Evm { from: own.clone(), nonce: *nonce, payment: payment.clone(), gas_limit, fee };
    let unsigned = chain.build(&draft).ok()?;
    unsigned.meaning.most_fee.filter(|fee| *fee <= most)?;
    Some(unsigned.bytes)
}

/// The cancel of a slot, which must offer more than what it takes the place of.
pub(super) fn cancel_instead(
    chain: &dyn Chain,
    own: &Address,
    old: &Meaning,
    asked: Fee,
    price_cap: FeeCap,
) -> Option<Vec<u8>> {
    let Slot::Nonce(nonce) = old.slot else { return None };
    let fee = tx::evm::replacement(old.fee, asked, price_cap)?;
    cancel(chain, own, nonce, fee).ok()
}

/// All that a transaction of Bitcoin spends, back to where the first of it was.
pub(super) fn all_back(chain: &dyn Chain, network: bitcoin::Network, old: &Spending) -> Option<Vec<u8>> {
    let inputs: Vec<Input> = old.inputs.iter().map(|spent| spent.input.clone()).collect();
    let held = inputs.iter().try_fold(0_u64, |sum, input| sum.checked_add(input.amount_sat))?;
    // A little is left for the fee: nobody is ever shown it.
    let amount = RawAmount::from_u256(U256::from(held.saturating_sub(BACK_FEE.min(held / 2))));
    let first = bitcoin::ScriptBuf::from_bytes(inputs.first()?.script.clone());
    let to = Address::Bitcoin(bitcoin::Address::from_script(&first, network).ok()?);
    let payments = vec![Payment { to, coin: Coin::Native, amount }];
    chain.build(&Draft::Bitcoin { inputs, payments, lock_time: 0 }).ok().map(|unsigned| unsigned.bytes)
}

/// Whether it offers less than is asked now.
pub(super) const fn is_cheap(offered: Fee, asked: Fee) -> bool {
    let (offered, asked) = (prices(offered), prices(asked));
    // What is asked for now has a reserve of twice the base fee in it: half of it is enough to be mined.
    offered.0 < asked.0.div_ceil(2) || offered.1 < asked.1
}

const fn prices(fee: Fee) -> (u128, u128) {
    match fee {
        Fee::Legacy { gas_price } => (gas_price, gas_price),
        Fee::Eip1559 { max_fee, max_priority } => (max_fee, max_priority),
        Fee::PerKvb(_) | Fee::FeeLimit(_) => (0, 0),
    }
}

/// The gas that a transaction may use, from the most that it can cost.
fn gas_of(meaning: &Meaning) -> Option<u64> {
    let price = match meaning.fee {
        Fee::Legacy { gas_price } => gas_price,
        Fee::Eip1559 { max_fee, .. } => max_fee,
        Fee::PerKvb(_) | Fee::FeeLimit(_) => return None,
    };
    let gas = meaning.most_fee?.to_u256().checked_div(U256::from(price))?;
    u64::try_from(gas).ok()
}
