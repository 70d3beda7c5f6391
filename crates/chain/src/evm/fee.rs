//! What the network asks, and what may be offered.

use alloy_primitives::{Address as Account, U256};
use domain::RawAmount;
use futures_util::future::try_join;
use serde_json::{Value, json};
use tx::evm::transaction::{LEAST_GAS, call_data, most_fee};
use tx::{Fee, FeeCap};

use super::rpc::separately;
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
    offered(node, asked, gas, cap)
}

/// As [`quote`] of each, with one price for all of them. What the node says to one is that one's alone.
pub(super) async fn quotes(
    node: &Node,
    wanted: &[(Call, FeeCap)],
    requests: (usize, usize),
) -> Result<Vec<Result<Quote, CallError>>, CallError> {
    let legacy = |cap: &FeeCap| matches!(cap.0, Fee::Legacy { .. });
    let price = async |kind: bool| match wanted.iter().find(|(_, cap)| legacy(cap) == kind) {
        Some((_, cap)) => asked(node, *cap).await.map(Some),
        None => Ok(None),
    };
    let ((by_gas, by_base), gas) =
        try_join(try_join(price(true), price(false)), gas_of_all(node, wanted, requests)).await?;
    let quote = |((_, cap), gas): (&(Call, FeeCap), Result<u64, CallError>)| {
        let asked = if legacy(cap) { by_gas } else { by_base };
        offered(node, asked.ok_or_else(|| node.bad("no price of gas"))?, gas?, *cap)
    };
    Ok(wanted.iter().zip(gas).map(quote).collect())
}

fn offered(node: &Node, asked: AskingPrice, gas: u64, cap: FeeCap) -> Result<Quote, CallError> {
    let (fee, capped) = offer(asked, cap).ok_or_else(|| node.bad("a price of gas that cannot be"))?;
    let most = most_fee(gas, fee).ok_or_else(|| node.bad("a price of gas that cannot be"))?;
    let most = RawAmount::from_u256(most);
    // The reserve of the price is paid only if it is needed. Nodes want to see all of it.
    let now = U256::from(gas).saturating_mul(U256::from(asked.base.unwrap_or(0).saturating_add(asked.priority)));
    let expected = RawAmount::from_u256(now).min(most);
    Ok(Quote { fee, capped, gas, most, expected, needs: most, reference: None })
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
    if wanted.token.is_none() {
        let Hex(HasCode(code)) = call(node, CODE, code_of(wanted)).await?;
        if !code {
            return Ok(LEAST_GAS);
        }
    }
    let estimate = call(node, ESTIMATE, transfer(wanted)).await?;
    with_reserve(node, estimate)
}

/// As [`gas`] of each.
async fn gas_of_all(
    node: &Node,
    wanted: &[(Call, FeeCap)],
    requests: (usize, usize),
) -> Result<Vec<Result<u64, CallError>>, CallError> {
    let plain: Vec<usize> = (0..wanted.len()).filter(|place| wanted[*place].0.token.is_none()).collect();
    let calls: Vec<_> = plain.iter().map(|place| (CODE, code_of(wanted[*place].0))).collect();
    let codes: Vec<Result<Hex<HasCode>, CallError>> = separately(node, &calls, requests).await?;
    let mut gas: Vec<Option<Result<u64, CallError>>> = vec![None; wanted.len()];
    for (place, code) in plain.into_iter().zip(codes) {
        gas[place] = match code {
            Ok(Hex(HasCode(false))) => Some(Ok(LEAST_GAS)),
            Ok(Hex(HasCode(true))) => None,
            Err(error) => Some(Err(error)),
        };
    }
    let open: Vec<usize> = (0..wanted.len()).filter(|place| gas[*place].is_none()).collect();
    let calls: Vec<_> = open.iter().map(|place| (ESTIMATE, transfer(wanted[*place].0))).collect();
    let estimates: Vec<Result<Hex<u64>, CallError>> = separately(node, &calls, requests).await?;
    for (place, estimate) in open.into_iter().zip(estimates) {
        gas[place] = Some(estimate.and_then(|estimate| with_reserve(node, estimate)));
    }
    let missing = || Err(node.bad("no estimate"));
    Ok(gas.into_iter().map(|gas| gas.unwrap_or_else(missing)).collect())
}

const CODE: &str = "eth_getCode";
const ESTIMATE: &str = "eth_estimateGas";

fn code_of(wanted: Call) -> Value {
    json!([format!("{:#x}", wanted.to), "latest"])
}

/// The payment as nodes simulate it.
fn transfer(wanted: Call) -> Value {
    let from = format!("{:#x}", wanted.from);
    let transaction = match wanted.token {
        None => json!({ "from": from, "to": format!("{:#x}", wanted.to), "value": format!("{:#x}", wanted.amount) }),
        Some(token) => {
            let data = alloy_primitives::hex::encode_prefixed(call_data(wanted.to, wanted.amount));
            json!({ "from": from, "to": format!("{token:#x}"), "data": data })
        }
    };
    // Without a block some nodes take the pending one, and make it first of all that waits: with a thousand waiting that takes ten times as
    // long. What our own transactions that wait will take is counted by whoever asks.
    json!([transaction, "latest"])
}

/// With a quarter more: a balance that becomes zero, or stops being zero, changes what a transfer costs.
fn with_reserve(node: &Node, Hex(gas): Hex<u64>) -> Result<u64, CallError> {
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
