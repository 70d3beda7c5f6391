//! What there is at height 0.

use alloy_consensus::{SignableTransaction, TxEip1559};
use alloy_eips::eip2718::Encodable2718;
use alloy_primitives::{Address, B256, Bytes, Signature, TxKind, U256, address, hex};
use revm::context::TxEnv;

use super::block::Block;
use super::chain::{Chain, blank_header};
use super::state::State;
use super::transaction::{Envelope, Received};
use super::{BaseFee, Settings, coins};
use crate::{Key, PREFUNDED};

/// The token: USDT, where BSC has it.
pub const TETHER: Address = address!("0x55d398326f99059ff775485246999027b3197955");
/// Who gives coins away. It is the account of the key numbered [`FAUCET_KEY`].
pub const FAUCET: Address = address!("0x628ceee14445b9315884a58fc529ee2d387e475a");
const FAUCET_KEY: u32 = 1_000_000;

/// As on BSC.
const DECIMALS: u8 = 18;
const COINS_EACH: u64 = 10_000;
const TOKENS_EACH: u64 = 1_000_000;
/// What the faucet begins with, in whole coins and in whole tokens.
const FAUCET_COINS: u64 = 1_000_000_000_000;

/// `{name: {abi, bytecode, runtime}}`, made by `contracts/compile.mjs`.
const CONTRACTS: &str = include_str!("contracts/contracts.json");

/// The decimals of [`TETHER`].
pub const fn token_decimals() -> u8 {
    DECIMALS
}

/// The bytecode that creates one of the contracts beside this file; its constructor's arguments go behind it.
pub fn contract(name: &str) -> Option<Bytes> {
    let contracts: serde_json::Value = serde_json::from_str(CONTRACTS).ok()?;
    let bytecode = contracts.get(name)?.get("bytecode")?.as_str()?;
    hex::decode(bytecode).ok().map(Bytes::from)
}

pub(super) fn chain(settings: &Settings) -> Chain {
    let base_fee = match settings.base_fee {
        BaseFee::Zero => 0,
        BaseFee::Dynamic { first, floor } => first.max(floor),
    };
    let mut state = State::default();
    let mut header = blank_header(settings, base_fee, 0);
    header.timestamp = settings.genesis_time;
    put_token(&mut state, settings, &header);
    state.endow(FAUCET, coins(FAUCET_COINS));
    for number in 0..PREFUNDED {
        state.endow(Address::from(Key::numbered(number).account()), coins(COINS_EACH));
    }
    header.state_root = B256::repeat_byte(0x01);
    let block = Block::seal(header, Vec::new(), Vec::new(), base_fee);
    Chain::new(state, block)
}

/// Runs the constructor and ten transfers. The account that sent them is forgotten afterwards, so that the faucet
/// starts with nonce 0, and the contract moves to where BSC has it.
fn put_token(state: &mut State, settings: &Settings, header: &alloy_consensus::Header) {
    let mut header = header.clone();
    header.base_fee_per_gas = Some(0);
    state.endow(FAUCET, coins(1));
    let mut data = contract("Tether").expect("contracts.json is part of the source and holds the token").to_vec();
    let supply = coins(FAUCET_COINS);
    for word in [U256::from(0x60), U256::from(DECIMALS), supply, U256::from(4)] {
        data.extend_from_slice(&word.to_be_bytes::<32>());
    }
    let mut symbol = [0; 32];
    symbol[..4].copy_from_slice(b"USDT");
    data.extend_from_slice(&symbol);
    let created = FAUCET.create(0);
    let mut calls = vec![(TxKind::Create, Bytes::from(data))];
    for number in 0..PREFUNDED {
        let to = Address::from(Key::numbered(number).account());
        calls.push((TxKind::Call(created), transfer(to, coins(TOKENS_EACH))));
    }
    for (nonce, (kind, data)) in (0..).zip(calls) {
        let transaction = TxEnv {
            caller: FAUCET,
            gas_limit: 5_000_000,
            gas_price: 0,
            kind,
            data,
            nonce,
            chain_id: Some(settings.chain_id),
            ..TxEnv::default()
        };
        let header = alloy_consensus::Header { gas_limit: 30_000_000, ..header.clone() };
        let done = Chain::execute_at_genesis(state, settings.chain_id, &header, transaction);
        assert!(matches!(done, Ok(true)), "the token's own code runs: {done:?}");
    }
    state.relocate(created, TETHER);
    state.forget(FAUCET);
}

/// `transfer(address,uint256)`.
fn transfer(to: Address, amount: U256) -> Bytes {
    let mut data = vec![0xa9, 0x05, 0x9c, 0xbb];
    data.extend_from_slice(to.into_word().as_slice());
    data.extend_from_slice(&amount.to_be_bytes::<32>());
    Bytes::from(data)
}

/// The faucet's signed transaction that gives coins or tokens.
pub(super) fn gift(
    settings: &Settings,
    nonce: u64,
    to: Address,
    token: Option<Address>,
    amount: U256,
    tip: u128,
) -> Result<Received, String> {
    let (to, value, input, gas_limit) = match token {
        None => (to, amount, Bytes::new(), 100_000),
        Some(token) => (token, U256::ZERO, transfer(to, amount), 200_000),
    };
    // It pays any base fee that there can be: a gift must not get stuck in a fee spike.
    let transaction = TxEip1559 {
        chain_id: settings.chain_id,
        nonce,
        gas_limit,
        max_fee_per_gas: u128::from(u64::MAX).max(tip),
        max_priority_fee_per_gas: tip,
        to: TxKind::Call(to),
        value,
        access_list: Default::default(),
        input,
    };
    let (bytes, odd) = Key::numbered(FAUCET_KEY).sign(transaction.signature_hash().0);
    let envelope = Envelope::from(transaction.into_signed(Signature::from_bytes_and_parity(&bytes, odd)));
    Received::decode(&envelope.encoded_2718(), settings.chain_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_faucet_has_the_address_of_its_key() {
        assert_eq!(FAUCET, Address::from(Key::numbered(FAUCET_KEY).account()));
    }
}
