//! Runs transactions through revm.

use std::convert::Infallible;

use alloy_consensus::Header;
use alloy_primitives::{Bytes, U256};
use revm::context::result::{EVMError, ExecutionResult, HaltReason, InvalidTransaction, ResultAndState};
use revm::context::{BlockEnv, CfgEnv, TxEnv};
use revm::context_interface::block::BlobExcessGasAndPrice;
use revm::database_interface::WrapDatabaseRef;
use revm::inspector::InspectEvm;
use revm::{Context, DatabaseRef, ExecuteEvm, MainBuilder};

use super::trace::{Frame, Tracer};
use super::transaction::FORK;

pub(super) type Failure = EVMError<Infallible>;

pub(super) fn block_env(header: &Header) -> BlockEnv {
    BlockEnv {
        number: U256::from(header.number),
        beneficiary: header.beneficiary,
        timestamp: U256::from(header.timestamp),
        gas_limit: header.gas_limit,
        basefee: header.base_fee_per_gas.unwrap_or_default(),
        difficulty: U256::ZERO,
        prevrandao: Some(header.mix_hash),
        blob_excess_gas_and_price: Some(BlobExcessGasAndPrice { excess_blob_gas: 0, blob_gasprice: 1 }),
        slot_num: 0,
    }
}

fn configuration(chain_id: u64) -> CfgEnv {
    CfgEnv::new_with_spec(FORK).with_chain_id(chain_id)
}

/// A signed transaction, with every check.
pub(super) fn run<D: DatabaseRef<Error = Infallible>>(
    state: D,
    chain_id: u64,
    block: BlockEnv,
    transaction: TxEnv,
) -> Result<ResultAndState, Failure> {
    let context = Context::<BlockEnv, TxEnv, CfgEnv, _>::new(WrapDatabaseRef(state), FORK);
    context.with_cfg(configuration(chain_id)).with_block(block).build_mainnet().transact(transaction)
}

/// The same, and all the calls within it.
pub(super) fn traced<D: DatabaseRef<Error = Infallible>>(
    state: D,
    chain_id: u64,
    block: BlockEnv,
    transaction: TxEnv,
) -> Result<(ResultAndState, Option<Frame>), Failure> {
    let context = Context::<BlockEnv, TxEnv, CfgEnv, _>::new(WrapDatabaseRef(state), FORK);
    let context = context.with_cfg(configuration(chain_id)).with_block(block);
    let mut evm = context.build_mainnet_with_inspector(Tracer::default());
    let outcome = evm.inspect_tx(transaction)?;
    Ok((outcome, evm.inspector.finish()))
}

/// A call that nobody signed: no nonce, and no base fee unless it names a price.
pub(super) fn call<D: DatabaseRef<Error = Infallible>>(
    state: D,
    chain_id: u64,
    mut block: BlockEnv,
    transaction: TxEnv,
) -> Result<ExecutionResult, Failure> {
    let mut configuration = configuration(chain_id);
    configuration.disable_nonce_check = true;
    configuration.tx_gas_limit_cap = Some(u64::MAX);
    if transaction.gas_price == 0 {
        block.basefee = 0;
    }
    let context = Context::<BlockEnv, TxEnv, CfgEnv, _>::new(WrapDatabaseRef(state), FORK);
    let mut evm = context.with_cfg(configuration).with_block(block).build_mainnet();
    evm.transact(transaction).map(|outcome| outcome.result)
}

/// In geth's words.
pub(super) fn words(failure: &Failure) -> String {
    match failure {
        EVMError::Transaction(invalid) => invalid_words(invalid),
        EVMError::Header(error) => error.to_string(),
        EVMError::Database(never) => match *never {},
        EVMError::Custom(text) => text.clone(),
        EVMError::CustomAny(error) => error.to_string(),
    }
}

fn invalid_words(invalid: &InvalidTransaction) -> String {
    match invalid {
        InvalidTransaction::PriorityFeeGreaterThanMaxFee => {
            "max priority fee per gas higher than max fee per gas".to_owned()
        }
        InvalidTransaction::GasPriceLessThanBasefee => "max fee per gas less than block base fee".to_owned(),
        InvalidTransaction::CallerGasLimitMoreThanBlock => "gas limit reached".to_owned(),
        InvalidTransaction::CallGasCostMoreThanGasLimit { initial_gas, gas_limit } => {
            format!("intrinsic gas too low: have {gas_limit}, want {initial_gas}")
        }
        InvalidTransaction::GasFloorMoreThanGasLimit { gas_floor, gas_limit } => {
            format!("insufficient gas for floor data gas cost: have {gas_limit}, want {gas_floor}")
        }
        InvalidTransaction::RejectCallerWithCode => "sender not an eoa".to_owned(),
        InvalidTransaction::LackOfFundForMaxFee { fee, balance } => {
            format!("insufficient funds for gas * price + value: have {balance} want {fee}")
        }
        InvalidTransaction::NonceTooHigh { tx, state } => format!("nonce too high: tx: {tx} state: {state}"),
        InvalidTransaction::NonceTooLow { tx, state } => format!("nonce too low: tx: {tx} state: {state}"),
        InvalidTransaction::CreateInitCodeSizeLimit => "max initcode size exceeded".to_owned(),
        other => other.to_string(),
    }
}

/// Why a run stopped, in geth's words.
pub(super) fn halt_words(reason: &HaltReason) -> String {
    match reason {
        HaltReason::OutOfGas(_) => "out of gas".to_owned(),
        HaltReason::OpcodeNotFound | HaltReason::InvalidFEOpcode => "invalid opcode: INVALID".to_owned(),
        HaltReason::InvalidJump => "invalid jump destination".to_owned(),
        HaltReason::StackUnderflow => "stack underflow".to_owned(),
        HaltReason::StackOverflow => "stack limit reached 1024 (1023)".to_owned(),
        HaltReason::CreateCollision => "contract address collision".to_owned(),
        HaltReason::CreateContractSizeLimit => "max code size exceeded".to_owned(),
        HaltReason::CreateContractStartingWithEF => "invalid code: must not begin with 0xef".to_owned(),
        HaltReason::OutOfFunds => "insufficient balance for transfer".to_owned(),
        other => other.to_string(),
    }
}

/// What a Solidity contract says when it gives up.
pub(super) fn revert_reason(output: &Bytes) -> Option<String> {
    let data = output.strip_prefix(&[0x08, 0xc3, 0x79, 0xa0])?;
    let length = usize::try_from(U256::try_from_be_slice(data.get(32..64)?)?).ok()?;
    let text = data.get(64..)?.get(..length)?;
    Some(String::from_utf8_lossy(text).into_owned())
}
