//! Balances, and calls that change nothing.

use alloy_primitives::U256;
use domain::RawAmount;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Deserialize;
use serde_json::{Value, json};

use tx::BlockRef;
use tx::tron::TronAddress;

use super::wire;
use crate::endpoint::{CallError, Node};

/// The two families of calls: the newest state, and the newest that cannot change any more.
const NEWEST: &str = "/wallet";
const SOLIDIFIED: &str = "/walletsolidity";

/// So often balances are read again because the solidified block moved meanwhile.
const TRIES: u32 = 4;

/// Whose balance, and of which token; `None` is TRX.
pub(super) type BalanceOf = (TronAddress, Option<TronAddress>);

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
    call: (&str, String),
) -> Result<Tried, CallError> {
    try_call_in(node, NEWEST, from, contract, call).await
}

async fn try_call_in(
    node: &Node,
    state: &str,
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
    let answer: Constant = wire::call(node, &format!("{state}/triggerconstantcontract"), &body).await?;
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
    account_in(node, NEWEST, address).await
}

async fn account_in(node: &Node, state: &str, address: &TronAddress) -> Result<Account, CallError> {
    let body: Value = json!({ "address": address.wire(), "visible": false });
    let account: Account = wire::call(node, &format!("{state}/getaccount"), &body).await?;
    if let Some(text) = &account.address
        && wire::account(node, text)? != *address
    {
        return Err(node.bad("another account than was asked for"));
    }
    Ok(account)
}

/// In the order of `wanted`; a token is `Some`.
pub(super) async fn balances(node: &Node, wanted: &[BalanceOf], calls: usize) -> Result<Vec<RawAmount>, CallError> {
    balances_in(node, NEWEST, wanted, calls).await
}

/// At the solidified block, which must be the same before and after.
pub(super) async fn solidified(
    node: &Node,
    wanted: &[BalanceOf],
    calls: usize,
) -> Result<(BlockRef, Vec<RawAmount>), CallError> {
    for _ in 0..TRIES {
        let before = solid_head(node).await?;
        let balances = balances_in(node, SOLIDIFIED, wanted, calls).await?;
        if solid_head(node).await? == before {
            return Ok((before, balances));
        }
    }
    Err(node.lacks("the solidified block moves faster than balances can be read"))
}

async fn solid_head(node: &Node) -> Result<BlockRef, CallError> {
    let answer = wire::ask(node, &format!("{SOLIDIFIED}/getnowblock"), &json!({})).await?;
    let header = wire::read::<wire::Block<'_>>(node, &answer)?.header(node)?;
    header.map(|header| header.at()).ok_or_else(|| node.lacks("no block is solidified"))
}

async fn balances_in(
    node: &Node,
    state: &str,
    wanted: &[BalanceOf],
    calls: usize,
) -> Result<Vec<RawAmount>, CallError> {
    let asked = wanted.iter().copied().map(|(address, token)| async move {
        match token {
            None => native(node, state, &address).await,
            Some(token) => token_balance(node, state, &address, &token).await,
        }
    });
    stream::iter(asked).buffered(calls).try_collect().await
}

async fn native(node: &Node, state: &str, address: &TronAddress) -> Result<RawAmount, CallError> {
    let account = account_in(node, state, address).await?;
    let sun = u64::try_from(account.balance).map_err(|_| node.bad("a negative balance"))?;
    Ok(RawAmount::from_u256(U256::from(sun)))
}

async fn token_balance(
    node: &Node,
    state: &str,
    address: &TronAddress,
    token: &TronAddress,
) -> Result<RawAmount, CallError> {
    let parameter = format!("{:0>64}", alloy_primitives::hex::encode(address.0));
    let tried = try_call_in(node, state, address, token, ("balanceOf(address)", parameter)).await?;
    let [word] = tried.words.as_slice() else { return Err(node.bad("a balance that is not one word")) };
    Ok(RawAmount::from_u256(U256::from_be_bytes(wire::digest(node, word)?)))
}
