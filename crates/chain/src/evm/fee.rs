//! What the network asks, and what may be offered.

use alloy_primitives::{Address as Account, U256};
use domain::RawAmount;
use futures_util::future::try_join;
use serde_json::{Value, json};
use tx::evm::transaction::{LEAST_GAS, call_data, most_fee};
use tx::{Fee, FeeCap};

use super::wire::{FeeHistory, HasCode, Hex};
use crate::client::Quote;
use crate::endpoint::json_rpc::call;
use crate::endpoint::{CallError, Node};

/// How many blocks the usual priority fee is taken from.
const BLOCKS: u64 = 10;
/// No transfer needs more than this; whoever estimates more is wrong.
const MOST_GAS: u64 = 100_000_000;

/// What is to be paid, as far as gas depends on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub from: Account,
    pub to: Account,
    /// The contract of a token, or nothing for the native coin.
    pub token: Option<Account>,
    pub amount: U256,
}

/// What the network asks now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AskingPrice {
    /// `None`: the chain has no base fee, or the node does not say.
    base: Option<u128>,
    priority: u128,
}

pub(super) async fn quote(node: &Node, wanted: Call, cap: FeeCap) -> Result<Quote, CallError> {
    let (asked, gas) = try_join(asked(node, cap), gas(node, wanted)).await?;
    let (fee, capped) = offer(asked, cap).ok_or_else(|| node.bad("a price of gas that cannot be"))?;
    let most = most_fee(gas, fee).ok_or_else(|| node.bad("a price of gas that cannot be"))?;
    Ok(Quote { fee, capped, gas, most: RawAmount::from_u256(most), reference: None })
}

async fn asked(node: &Node, cap: FeeCap) -> Result<AskingPrice, CallError> {
    let price = async {
        let Hex(price): Hex<u128> = call(node, "eth_gasPrice", json!([])).await?;
        Ok::<_, CallError>(price)
    };
    if matches!(cap.0, Fee::Legacy { .. }) {
        return Ok(AskingPrice { base: None, priority: price.await? });
    }
    let params = json!([super::wire::quantity(BLOCKS), "latest", [50]]);
    let history: FeeHistory = match call(node, "eth_feeHistory", params).await {
        Ok(history) => history,
        // A node that does not know the call serves a chain without a base fee.
        Err(CallError::Refused { .. }) => return Ok(AskingPrice { base: None, priority: price.await? }),
        Err(error) => return Err(error),
    };
    let Some(Hex(base)) = history.base_fee_per_gas.last().copied() else {
        return Err(node.bad("no base fee at all"));
    };
    let rewards = history.reward.into_iter().flatten().filter_map(|block| block.first().map(|reward| reward.0));
    match usual(rewards) {
        Some(priority) => Ok(AskingPrice { base: Some(base), priority }),
        // Nobody paid anything: empty blocks. The node's own advice is base fee and priority together.
        None => Ok(AskingPrice { base: Some(base), priority: price.await?.saturating_sub(base) }),
    }
}

/// The middle one of those that were paid at all.
fn usual(rewards: impl Iterator<Item = u128>) -> Option<u128> {
    let mut rewards: Vec<u128> = rewards.filter(|reward| *reward > 0).collect();
    rewards.sort_unstable();
    rewards.get(rewards.len() / 2).copied()
}

/// What to offer, and whether the network asks for more than that. `None`: absurd.
///
/// The base fee may rise by an eighth in each block, so twice of it is offered as far as the cap allows; what is not
/// needed is not paid. That the cap cuts this reserve is not yet "capped": only a price that is too low now is.
fn offer(asked: AskingPrice, cap: FeeCap) -> Option<(Fee, bool)> {
    let now = asked.base.unwrap_or(0).checked_add(asked.priority)?;
    if now == 0 {
        return None;
    }
    match (cap.0, asked.base) {
        (Fee::Legacy { gas_price }, _) => Some((Fee::Legacy { gas_price: now.min(gas_price) }, now > gas_price)),
        (Fee::Eip1559 { max_fee, .. }, None) => Some((Fee::Legacy { gas_price: now.min(max_fee) }, now > max_fee)),
        (Fee::Eip1559 { max_fee, max_priority }, Some(base)) => {
            let reserve = base.checked_mul(2)?.checked_add(asked.priority)?;
            let offered = reserve.min(max_fee);
            let fee = Fee::Eip1559 { max_fee: offered, max_priority: asked.priority.min(max_priority).min(offered) };
            Some((fee, now > max_fee || asked.priority > max_priority))
        }
        (Fee::PerKvb(_) | Fee::FeeLimit(_), _) => None,
    }
}

async fn gas(node: &Node, wanted: Call) -> Result<u64, CallError> {
    let Some(token) = wanted.token else {
        let Hex(HasCode(code)) = call(node, "eth_getCode", json!([format!("{:#x}", wanted.to), "latest"])).await?;
        if !code {
            return Ok(LEAST_GAS);
        }
        let value = json!({
            "from": format!("{:#x}", wanted.from),
            "to": format!("{:#x}", wanted.to),
            "value": format!("{:#x}", wanted.amount),
        });
        return estimate(node, value).await;
    };
    let data = alloy_primitives::hex::encode_prefixed(call_data(wanted.to, wanted.amount));
    let transfer = json!({ "from": format!("{:#x}", wanted.from), "to": format!("{token:#x}"), "data": data });
    estimate(node, transfer).await
}

/// With a quarter more: a balance that becomes zero, or stops being zero, changes what a transfer costs.
async fn estimate(node: &Node, transaction: Value) -> Result<u64, CallError> {
    // Without a block some nodes take the pending one, and make it first of all that waits: with a thousand waiting that takes ten times as
    // long. What our own transactions that wait will take is counted by whoever asks.
    let Hex(gas): Hex<u64> = call(node, "eth_estimateGas", json!([transaction, "latest"])).await?;
    if !(LEAST_GAS..=MOST_GAS).contains(&gas) {
        return Err(node.bad(format!("an estimate of {gas} gas for a transfer")));
    }
    Ok(gas + gas / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn legacy(gas_price: u128) -> Fee {
        Fee::Legacy { gas_price }
    }

    const fn dynamic(max_fee: u128, max_priority: u128) -> Fee {
        Fee::Eip1559 { max_fee, max_priority }
    }

    #[test]
    fn the_offer_never_passes_the_cap_and_says_when_it_would() {
        let asked = |base, priority| AskingPrice { base, priority };
        for (asked, cap, expected) in [
            (asked(None, 5), legacy(10), Some((legacy(5), false))),
            (asked(None, 11), legacy(10), Some((legacy(10), true))),
            (asked(Some(7), 1), dynamic(100, 10), Some((dynamic(15, 1), false))),
            // Only the reserve is cut.
            (asked(Some(70), 1), dynamic(100, 10), Some((dynamic(100, 1), false))),
            (asked(Some(100), 1), dynamic(100, 10), Some((dynamic(100, 1), true))),
            (asked(Some(7), 20), dynamic(100, 10), Some((dynamic(34, 10), true))),
            // BSC: no base fee to speak of.
            (asked(Some(0), 3), dynamic(20, 20), Some((dynamic(3, 3), false))),
            (asked(None, 30), dynamic(20, 5), Some((legacy(20), true))),
            (asked(Some(0), 0), dynamic(20, 20), None),
            (asked(None, 0), legacy(20), None),
            (asked(Some(u128::MAX), 1), dynamic(20, 20), None),
            (asked(Some(u128::MAX / 2 + 1), 0), dynamic(20, 20), None),
            (asked(None, 5), Fee::PerKvb(1), None),
        ] {
            assert_eq!(offer(asked, FeeCap(cap)), expected, "{asked:?} {cap:?}");
        }
    }

    #[test]
    fn the_usual_priority_is_the_middle_of_what_was_paid() {
        assert_eq!(usual([].into_iter()), None);
        assert_eq!(usual([0, 0].into_iter()), None);
        assert_eq!(usual([0, 9, 1, 5].into_iter()), Some(5));
    }
}
