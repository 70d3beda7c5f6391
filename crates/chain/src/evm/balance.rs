//! Balances and nonces of many accounts in few calls.

use alloy_primitives::{Address as Account, B256, U256};
use domain::RawAmount;
use serde_json::{Value, json};
use tx::BlockHash;

use super::rpc::{chunked, tip};
use super::wire::{FromHex, Hex, Word, quantity};
use crate::client::Nonces;
use crate::endpoint::{CallError, Node};

/// `balanceOf(address)`.
const BALANCE_OF: &str = "0x70a08231";

const NO_TOKEN: &str = "a balance that is not one word: no token is there";

/// Whose balance, and of which token; `None` is the native coin.
pub(super) type BalanceOf = (Account, Option<Account>);

/// A quantity, or one word of a contract's answer: which of them depends on what was asked.
struct Units(U256);

impl FromHex for Units {
    fn from_hex(text: &str) -> Option<Self> {
        U256::from_hex(text).map(Self)
    }
}

/// All at the same block, so that they fit together.
pub(super) async fn balances(node: &Node, asked: &[BalanceOf], chunk: usize) -> Result<Vec<RawAmount>, CallError> {
    let at = quantity(tip(node).await?.height);
    let balances = balances_in(node, asked, &json!(at), chunk).await?;
    balances.into_iter().collect::<Option<_>>().ok_or_else(|| node.bad(NO_TOKEN))
}

/// At the block of this hash (EIP-1898). A node that is on another branch, or keeps no state of it, has no answer.
pub(super) async fn balances_at(
    node: &Node,
    asked: &[BalanceOf],
    block: BlockHash,
    chunk: usize,
) -> Result<Vec<RawAmount>, CallError> {
    let at = json!({ "blockHash": B256::from(block.0).to_string() });
    let balances = balances_in(node, asked, &at, chunk).await.map_err(|error| match error {
        CallError::Refused { message, .. } => node.lacks(message),
        other => other,
    })?;
    // A contract that is gone is no fault of the node's: it must not be set aside for every wallet that is looked at.
    balances.into_iter().collect::<Option<_>>().ok_or_else(|| node.lacks(NO_TOKEN))
}

/// `None` where a contract's answer is not one word.
async fn balances_in(
    node: &Node,
    asked: &[BalanceOf],
    at: &Value,
    chunk: usize,
) -> Result<Vec<Option<RawAmount>>, CallError> {
    let mut balances = vec![Some(RawAmount::ZERO); asked.len()];
    let native = of(asked, |token| token.is_none());
    let calls: Vec<_> = native.iter().map(|(_, (owner, _))| ("eth_getBalance", json!([text(owner), at]))).collect();
    let answers: Vec<Hex<Units>> = chunked(node, &calls, chunk).await?;
    for ((place, _), Hex(Units(units))) in native.iter().zip(answers) {
        balances[*place] = Some(RawAmount::from_u256(units));
    }
    let tokens = of(asked, |token| token.is_some());
    let calls: Vec<_> = tokens.iter().map(|(_, (owner, token))| ("eth_call", balance_of(owner, *token, at))).collect();
    let answers: Vec<Hex<Word>> = chunked(node, &calls, chunk).await?;
    for ((place, _), Hex(Word(word))) in tokens.iter().zip(answers) {
        balances[*place] = word.map(RawAmount::from_u256);
    }
    Ok(balances)
}

fn of(asked: &[BalanceOf], kind: fn(&Option<Account>) -> bool) -> Vec<(usize, BalanceOf)> {
    asked.iter().copied().enumerate().filter(|(_, (_, token))| kind(token)).collect()
}

fn text(account: &Account) -> String {
    format!("{account:#x}")
}

fn balance_of(owner: &Account, token: Option<Account>, at: &Value) -> Value {
    let data = format!("{BALANCE_OF}{}{}", "0".repeat(24), &text(owner)[2..]);
    json!([{ "to": token.as_ref().map(text), "data": data }, at])
}

pub(super) async fn nonces(node: &Node, of: &[Account], chunk: usize) -> Result<Vec<Nonces>, CallError> {
    // What is mined is asked for first: what comes in between can then only make `pending` the higher one.
    let calls: Vec<_> = of
        .iter()
        .flat_map(|account| ["latest", "pending"].map(|tag| ("eth_getTransactionCount", json!([text(account), tag]))))
        .collect();
    let counts: Vec<Hex<u64>> = chunked(node, &calls, chunk).await?;
    let nonces = counts.chunks_exact(2).map(|pair| {
        let (mined, pending) = (pair[0].0, pair[1].0);
        if pending < mined {
            return Err(node.bad("fewer transactions with those that wait than without"));
        }
        Ok(Nonces { mined, pending })
    });
    nonces.collect()
}

/// At the block of this hash, as [`balances_at`].
pub(super) async fn nonces_at(
    node: &Node,
    of: &[Account],
    block: BlockHash,
    chunk: usize,
) -> Result<Vec<u64>, CallError> {
    let at = json!({ "blockHash": B256::from(block.0).to_string() });
    let calls: Vec<_> = of.iter().map(|account| ("eth_getTransactionCount", json!([text(account), at]))).collect();
    let counts: Result<Vec<Hex<u64>>, CallError> = chunked(node, &calls, chunk).await;
    let counts = counts.map_err(|error| match error {
        CallError::Refused { message, .. } => node.lacks(message),
        other => other,
    })?;
    Ok(counts.into_iter().map(|count| count.0).collect())
}
