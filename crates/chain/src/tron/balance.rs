//! Balances, and calls that change nothing.

use alloy_primitives::U256;
use domain::RawAmount;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Deserialize;
use serde_json::{Value, json};

use tx::tron::TronAddress;

use super::wire;
use crate::endpoint::{CallError, Node};

/// `{}` when there is no such account.
#[derive(Deserialize)]
pub(super) struct Account {
    pub address: Option<String>,
    #[serde(default)]
    balance: i64,
}

#[derive(Deserialize)]
struct Constant {
    #[serde(default)]
    result: CallResult,
    #[serde(default)]
    energy_used: i64,
    #[serde(default)]
    constant_result: Vec<String>,
    #[serde(default)]
    transaction: Ran,
}

#[derive(Default, Deserialize)]
struct CallResult {
    #[serde(default)]
    result: bool,
    code: Option<String>,
    message: Option<String>,
}

#[derive(Default, Deserialize)]
struct Ran {
    #[serde(default)]
    ret: Vec<RanRet>,
}

#[derive(Deserialize)]
struct RanRet {
    ret: Option<String>,
}

/// What a call would give, and the energy that it would take.
pub(super) struct Tried {
    pub energy: u64,
    pub words: Vec<String>,
}

/// Runs a call without sending it. One that would fail is [`CallError::Refused`], with the node's reason.
pub(super) async fn try_call(
    node: &Node,
    from: &TronAddress,
    contract: &TronAddress,
    (function, parameter): (&str, String),
) -> Result<Tried, CallError> {
    let body = json!({
        "owner_address": from.wire(),
        "contract_address": contract.wire(),
        "function_selector": function,
        "parameter": parameter,
        "visible": false,
    });
    let answer: Constant = wire::call(node, "/wallet/triggerconstantcontract", &body).await?;
    let failed = answer.transaction.ret.iter().any(|ret| ret.ret.as_deref() == Some("FAILED"));
    if !answer.result.result || failed {
        let code = answer.result.code.unwrap_or_else(|| "it would fail".to_owned());
        let words = answer.result.message.as_deref().map(wire::printable).unwrap_or_default();
        let message = node.quote(&format!("{}: {words}", wire::printable(&code)));
        return Err(CallError::Refused { endpoint: node.name().to_owned(), code: 0, message });
    }
    let energy = u64::try_from(answer.energy_used).map_err(|_| node.bad("negative energy"))?;
    Ok(Tried { energy, words: answer.constant_result })
}

pub(super) async fn account(node: &Node, address: &TronAddress) -> Result<Account, CallError> {
    let body: Value = json!({ "address": address.wire(), "visible": false });
    let account: Account = wire::call(node, "/wallet/getaccount", &body).await?;
    if let Some(text) = &account.address
        && wire::account(node, text)? != *address
    {
        return Err(node.bad("another account than was asked for"));
    }
    Ok(account)
}

/// In the order of `wanted`; a token is `Some`.
pub(super) async fn balances(
    node: &Node,
    wanted: &[(TronAddress, Option<TronAddress>)],
    calls: usize,
) -> Result<Vec<RawAmount>, CallError> {
    let asked = wanted.iter().copied().map(|(address, token)| async move {
        match token {
            None => native(node, &address).await,
            Some(token) => token_balance(node, &address, &token).await,
        }
    });
    stream::iter(asked).buffered(calls).try_collect().await
}

async fn native(node: &Node, address: &TronAddress) -> Result<RawAmount, CallError> {
    let account = account(node, address).await?;
    let sun = u64::try_from(account.balance).map_err(|_| node.bad("a negative balance"))?;
    Ok(RawAmount::from_u256(U256::from(sun)))
}

async fn token_balance(node: &Node, address: &TronAddress, token: &TronAddress) -> Result<RawAmount, CallError> {
    let parameter = format!("{:0>64}", alloy_primitives::hex::encode(address.0));
    let tried = try_call(node, address, token, ("balanceOf(address)", parameter)).await?;
    let [word] = tried.words.as_slice() else { return Err(node.bad("a balance that is not one word")) };
    Ok(RawAmount::from_u256(U256::from_be_bytes(wire::digest(node, word)?)))
}
