//! What one transaction moves, as a node writes it out: TRX, tokens, what contracts move, and its fee.

use alloy_primitives::{B256, U256, b256};
use domain::RawAmount;
use serde::Deserialize;
use tx::tron::TronAddress;
use tx::{Address, BlockRef, Coin, TxHash};

use super::{bytes, wire};
use crate::block::{Output, Place, Spend};
use crate::endpoint::{CallError, Node};
use crate::watch::{WatchKey, Watched};

/// keccak of `Transfer(address,address,uint256)`.
const TRANSFER: B256 = b256!("ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef");
/// The notes of those internal transactions that move coin: `call`, `create`, `suicide`. Others freeze, vote and delegate,
/// and the amounts in them are none that anybody gets.
const MOVES: [&str; 3] = ["63616c6c", "637265617465", "73756963696465"];

/// What to look for.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub watched: &'a Watched,
    /// Sorted.
    pub tokens: &'a [TronAddress],
    /// Also what contracts move.
    pub internal: bool,
}

impl Wanted<'_> {
    fn find(&self, account: &TronAddress) -> Option<u32> {
        self.watched.find(&WatchKey::of_account(&account.0))
    }
}

/// What a transaction asks for, as far as TRX is concerned.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    /// Who sent it, and pays its fee. `None`: nobody, or in a form that is no address.
    pub owner: Option<TronAddress>,
    pub to: Option<TronAddress>,
    /// The sun that leave the owner. Those that freeze or vote for him stay his, and are not told.
    pub amount: u64,
    pub runs_contract: bool,
}

impl Asked {
    pub(super) fn read(node: &Node, transaction: &wire::Transaction<'_>) -> Result<Self, CallError> {
        let Some([contract]) = transaction.raw_data.as_ref().map(|raw| raw.contract.as_slice()) else {
            return Err(node.bad("a transaction without its one contract"));
        };
        let (Some(kind), Some(parameter)) = (contract.r#type, contract.parameter) else {
            return Err(node.bad("a contract without its type or its content"));
        };
        // Of a transfer everything must be right. Of other types there are many, and what is no address there is not ours.
        let lenient = |text: Option<&str>| text.and_then(|text| wire::account(node, text).ok());
        let sun = |amount: i64| u64::try_from(amount).map_err(|_| node.bad("a negative amount"));
        Ok(match kind {
            "TransferContract" => {
                let value: wire::TransferValue<'_> = value(node, parameter)?;
                let owner = value.owner_address.map(|text| wire::account(node, text)).transpose()?;
                let to = Some(wire::account(node, value.to_address)?);
                Self { owner, to, amount: sun(value.amount)?, runs_contract: false }
            }
            "TriggerSmartContract" => {
                let value: wire::TriggerValue<'_> = value(node, parameter)?;
                let (owner, to) = (lenient(value.owner_address), lenient(value.contract_address));
                Self { owner, to, amount: sun(value.call_value)?, runs_contract: true }
            }
            "CreateSmartContract" => {
                let value: wire::CreateValue<'_> = value(node, parameter)?;
                let amount = sun(value.new_contract.call_value)?;
                Self { owner: lenient(value.owner_address), to: None, amount, runs_contract: true }
            }
            _ => {
                let value: wire::OwnedValue<'_> = value(node, parameter)?;
                Self { owner: lenient(value.owner_address), ..Self::default() }
            }
        })
    }
}

impl Asked {
    /// The same, from the bytes that the transaction's id is the hash of.
    pub(super) fn of_bytes(raw: &[u8]) -> Option<Self> {
        let contract = bytes::message(raw, 11)?;
        let (kind, parameter) = (bytes::number(&contract, 1)?, bytes::message(&contract, 2)?);
        let value = bytes::message(&parameter, 2)?;
        let account = |field| Some(bytes::text(&value, field)?.and_then(TronAddress::from_prefixed));
        let sun = |amount: u64| u64::try_from(amount.cast_signed()).ok();
        Some(match kind {
            1 => {
                let amount = sun(bytes::number(&value, 3)?)?;
                Self { owner: account(1)?, to: account(2)?, amount, runs_contract: false }
            }
            31 => {
                let amount = sun(bytes::number(&value, 3)?)?;
                Self { owner: account(1)?, to: account(2)?, amount, runs_contract: true }
            }
            30 => {
                let amount = sun(bytes::number(&bytes::message(&value, 2)?, 5)?)?;
                Self { owner: account(1)?, to: None, amount, runs_contract: true }
            }
            // Those that name something else first.
            2 | 10 | 19 => Self { owner: account(2)?, ..Self::default() },
            // A shielded transfer has no owner.
            51 => Self::default(),
            _ => Self { owner: account(1)?, ..Self::default() },
        })
    }
}

fn value<'a, T: Deserialize<'a>>(node: &Node, parameter: &'a serde_json::value::RawValue) -> Result<T, CallError> {
    let parameter: wire::Parameter<T> = wire::read(node, parameter.get().as_bytes())?;
    Ok(parameter.value)
}

/// What the receipt of a transaction tells.
#[derive(Debug, Default)]
pub(super) struct Movements {
    pub outputs: Vec<Output>,
    pub spends: Vec<Spend>,
}

/// What the `Transfer` logs of listed tokens pay and take, and the TRX that contracts moved.
pub(super) fn by_info(
    node: &Node,
    info: &wire::Info<'_>,
    at: (BlockRef, TxHash),
    wanted: Wanted<'_>,
) -> Result<Movements, CallError> {
    let mut moved = Movements::default();
    let ok = info.ran();
    let mut add = |place: Place, (from, to): (TronAddress, TronAddress), coin: Coin, amount: U256| {
        if amount.is_zero() {
            return;
        }
        let amount = RawAmount::from_u256(amount);
        if let Some(number) = wanted.find(&to) {
            moved.outputs.push(output(at, (place, number), (to, coin.clone(), amount), ok));
        }
        // What failed took nothing.
        if let Some(number) = wanted.find(&from).filter(|_| ok) {
            moved.spends.push(spend(at, (place, number), (from, Some(to), coin, amount), ok));
        }
    };
    for (number, log) in (0_u32..).zip(&info.log) {
        let Some(TokenTransfer { token, from, to, amount }) = token_transfer(node, log, wanted.tokens)? else {
            continue;
        };
        add(Place::Log(number), (from, to), Coin::Token(Address::Tron(token)), amount);
    }
    if wanted.internal && ok {
        for (position, (from, to, sun)) in (1_u32..).zip(internals(node, info)?) {
            add(Place::Internal(position), (from, to), Coin::Native, U256::from(sun));
        }
    }
    Ok(moved)
}

/// The TRX that contracts moved: from, to, sun. Those that moved nothing are not among them.
fn internals(node: &Node, info: &wire::Info<'_>) -> Result<Vec<(TronAddress, TronAddress, u64)>, CallError> {
    let mut moved = Vec::new();
    for one in info.internal_transactions.iter().filter(|one| !one.rejected) {
        if !one.note.is_none_or(|note| MOVES.contains(&note)) {
            continue;
        }
        for value in one.values.iter().filter(|value| value.token.is_none_or(str::is_empty) && value.amount != 0) {
            let sun = u64::try_from(value.amount).map_err(|_| node.bad("a negative amount"))?;
            let (Some(from), Some(to)) = (one.caller_address, one.to) else {
                return Err(node.bad("an internal transfer without its parties"));
            };
            moved.push((wire::account(node, from)?, wire::account(node, to)?, sun));
        }
    }
    Ok(moved)
}

/// What the transaction cost its sender, whatever kind it is and however it ended. `None`: nothing.
pub(super) fn fee(
    node: &Node,
    info: &wire::Info<'_>,
    at: (BlockRef, TxHash),
    (number, from): (u32, TronAddress),
) -> Result<Option<Spend>, CallError> {
    let sun = u64::try_from(info.fee).map_err(|_| node.bad("a negative fee"))?;
    let what = (from, None, Coin::Native, RawAmount::from_u256(U256::from(sun)));
    Ok((sun > 0).then(|| spend(at, (Place::Fee, number), what, info.ran())))
}

/// A transfer of a listed token.
pub(super) struct TokenTransfer {
    pub token: TronAddress,
    pub from: TronAddress,
    pub to: TronAddress,
    pub amount: U256,
}

/// `None`: the log is no `Transfer` of a listed token.
pub(super) fn token_transfer(
    node: &Node,
    log: &wire::Log<'_>,
    tokens: &[TronAddress],
) -> Result<Option<TokenTransfer>, CallError> {
    let mut token = [0; 20];
    if log.address.len() != 40 || alloy_primitives::hex::decode_to_slice(log.address, &mut token).is_err() {
        return Err(node.bad("a log whose address is not 40 digits"));
    }
    let token = TronAddress(token);
    if tokens.binary_search(&token).is_err() {
        return Ok(None);
    }
    let [event, from, to] = log.topics.as_slice() else { return Ok(None) };
    if wire::digest(node, event)? != TRANSFER.0 {
        return Ok(None);
    }
    let account = |word: [u8; 32]| match word.split_at(12) {
        (upper, lower) if upper == [0; 12] => <[u8; 20]>::try_from(lower).ok().map(TronAddress),
        _ => None,
    };
    let (from, to) = (account(wire::digest(node, from)?), account(wire::digest(node, to)?));
    let (Some(from), Some(to)) = (from, to) else {
        // Not the form of a transfer. All nodes say the same, so it must not stop the scan.
        return Ok(None);
    };
    if log.data.len() != 64 {
        return Ok(None);
    }
    let amount = wire::digest(node, log.data)?;
    Ok(Some(TokenTransfer { token, from, to, amount: U256::from_be_bytes(amount) }))
}

pub(super) fn output(
    (block, transaction): (BlockRef, TxHash),
    (place, watched): (Place, u32),
    (to, coin, amount): (TronAddress, Coin, RawAmount),
    ok: bool,
) -> Output {
    Output { block, transaction, place, watched, to: Address::Tron(to), coin, amount, ok, coinbase: false }
}

pub(super) fn spend(
    (block, transaction): (BlockRef, TxHash),
    (place, watched): (Place, u32),
    (from, to, coin, amount): (TronAddress, Option<TronAddress>, Coin, RawAmount),
    ok: bool,
) -> Spend {
    Spend { block, transaction, place, watched, from: Address::Tron(from), to: to.map(Address::Tron), coin, amount, ok }
}
