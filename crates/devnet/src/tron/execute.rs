//! Running a transaction: bandwidth, then the transfer or the call, then its energy.

use super::check::unprefixed;
use super::proto::{Raw, Transfer, Trigger};
use super::refusal::TronRefusal;
use super::state::{Account, Owner, State};
use super::token::{self, Called, Log, Returns, TOKEN};
use super::transaction::{Action, Received};
use alloy_primitives::U256;

/// Bytes a day that every account has for nothing.
pub const FREE_BYTES: i64 = 600;
/// What java-tron adds to every transaction for its result (`MAX_RESULT_SIZE_IN_TX`).
const RESULT_BYTES: i64 = 64;
/// A day in slots of three seconds, over which used bandwidth comes back.
const WINDOW_SLOTS: i64 = 28_800;
/// `getCreateAccountFee`: in place of bandwidth, when a transfer makes an account.
pub const ACCOUNT_BANDWIDTH_FEE: i64 = 100_000;
/// `getCreateNewAccountFeeInSystemContract`.
pub const ACCOUNT_FEE: i64 = 1_000_000;
/// `getMemoFee`.
pub const MEMO_FEE: i64 = 1_000_000;
/// `getMaxFeeLimit`.
pub const FEE_LIMIT: i64 = 15_000_000_000;

/// What running depends on besides the state.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Sun per byte beyond the free ones.
    pub bandwidth_price: i64,
    /// Sun per unit of energy.
    pub energy_price: i64,
    pub supply: U256,
    pub returns: Returns,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ret {
    Success,
    Revert,
    OutOfEnergy,
}

impl Ret {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Success => "SUCCESS",
            Self::Revert => "REVERT",
            Self::OutOfEnergy => "OUT_OF_ENERGY",
        }
    }

    /// The number in `Transaction.Result.contractResult`.
    pub const fn number(self) -> i32 {
        match self {
            Self::Success => 1,
            Self::Revert => 2,
            Self::OutOfEnergy => 10,
        }
    }
}

/// What a block says about a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Execution {
    pub ret: Ret,
    pub fee: i64,
    pub net_usage: i64,
    pub net_fee: i64,
    pub energy_used: i64,
    pub energy_fee: i64,
    /// Of a call; a transfer has none.
    pub contract: Option<Owner>,
    pub output: Vec<u8>,
    pub logs: Vec<Log>,
    /// Why it failed.
    pub message: String,
}

/// Runs it, or refuses it and changes nothing.
pub fn execute(state: &mut State, rules: &Rules, sent: &Received, head_ms: i64) -> Result<Execution, TronRefusal> {
    state.attempt(|state| run(state, rules, sent, head_ms))
}

fn run(state: &mut State, rules: &Rules, sent: &Received, head_ms: i64) -> Result<Execution, TronRefusal> {
    let owner = unprefixed(sent.owner()).ok_or_else(|| TronRefusal::contract("Invalid ownerAddress!"))?;
    let (net_usage, net_fee) = pay_bandwidth(state, rules, sent, &owner, head_ms)?;
    let mut fee = net_fee;
    if !sent.raw.data.is_empty() {
        charge(state, &owner, MEMO_FEE)?;
        fee += MEMO_FEE;
    }
    let mut outcome = Execution {
        ret: Ret::Success,
        fee,
        net_usage,
        net_fee,
        energy_used: 0,
        energy_fee: 0,
        contract: None,
        output: Vec::new(),
        logs: Vec::new(),
        message: String::new(),
    };
    match &sent.action {
        Action::Transfer(transfer) => {
            has_type(&sent.raw, Transfer::URL, "TransferContract")?;
            outcome.fee += pay(state, transfer, head_ms)?;
        }
        Action::Trigger(trigger) => {
            has_type(&sent.raw, Trigger::URL, "TriggerSmartContract")?;
            call(state, rules, trigger, &owner, sent.raw.fee_limit, &mut outcome)?;
        }
        Action::Other => return Err(TronRefusal::contract("contract type is not served by this devnet")),
    }
    if let Some(account) = state.account(&owner) {
        state.set_account(&owner, Account { last_operation_ms: head_ms, ..account });
    }
    Ok(outcome)
}

/// `Any.is`: only what comes after the last slash counts.
fn has_type(raw: &Raw, url: &str, expected: &str) -> Result<(), TronRefusal> {
    let given = raw.contract.first().and_then(|contract| contract.parameter.as_ref());
    let name = |url: &str| url.rsplit('/').next().map(str::to_owned);
    if given.and_then(|given| name(&given.type_url)) == name(url) {
        return Ok(());
    }
    Err(TronRefusal::contract(&format!(
        "contract type error, expected type [{expected}],real type[class com.google.protobuf.Any]"
    )))
}

/// `BandwidthProcessor.consume`: how many bytes were free, or what they cost.
fn pay_bandwidth(
    state: &mut State,
    rules: &Rules,
    sent: &Received,
    owner: &Owner,
    head_ms: i64,
) -> Result<(i64, i64), TronRefusal> {
    let account = state.account(owner).ok_or_else(|| TronRefusal::no_account(owner))?;
    if let Action::Transfer(transfer) = &sent.action
        && let Some(to) = unprefixed(&transfer.to_address)
        && state.account(&to).is_none()
    {
        charge(state, owner, ACCOUNT_BANDWIDTH_FEE)?;
        return Ok((0, ACCOUNT_BANDWIDTH_FEE));
    }
    let bytes = i64::try_from(sent.size).unwrap_or(i64::MAX).saturating_add(RESULT_BYTES);
    let slot = head_ms / 3_000;
    let used = free_used(&account, slot);
    if used.saturating_add(bytes) <= FREE_BYTES {
        state.set_account(owner, Account { free_used: used + bytes, free_slot: slot, ..account });
        return Ok((bytes, 0));
    }
    let fee = bytes.saturating_mul(rules.bandwidth_price);
    charge(state, owner, fee)?;
    Ok((0, fee))
}

/// Used bandwidth comes back evenly over a day.
pub fn free_used(account: &Account, slot: i64) -> i64 {
    let passed = slot.saturating_sub(account.free_slot).clamp(0, WINDOW_SLOTS);
    account.free_used * (WINDOW_SLOTS - passed) / WINDOW_SLOTS
}

fn charge(state: &mut State, owner: &Owner, fee: i64) -> Result<(), TronRefusal> {
    let account = state.account(owner).ok_or_else(|| TronRefusal::no_account(owner))?;
    let balance = account.balance.checked_sub(fee).filter(|rest| *rest >= 0).ok_or_else(TronRefusal::resources)?;
    state.set_account(owner, Account { balance, ..account });
    Ok(())
}

/// `TransferActuator`: moves TRX, and says what a new account cost.
fn pay(state: &mut State, transfer: &Transfer, head_ms: i64) -> Result<i64, TronRefusal> {
    let (owner, to) = transfer_parties(state, transfer).map_err(TronRefusal::contract)?;
    let target = state.account(&to);
    let fee = if target.is_none() { ACCOUNT_FEE } else { 0 };
    if let Some(account) = state.account(&owner) {
        state.set_account(&owner, Account { balance: account.balance - transfer.amount - fee, ..account });
    }
    let target = target.unwrap_or(Account { created_ms: head_ms, ..Account::default() });
    let balance = target.balance.checked_add(transfer.amount).ok_or_else(|| TronRefusal::contract("long overflow"))?;
    state.set_account(&to, Account { balance, ..target });
    Ok(fee)
}

/// `TransferActuator.validate`, with its texts in its order.
pub fn transfer_parties(state: &State, transfer: &Transfer) -> Result<(Owner, Owner), &'static str> {
    let owner = unprefixed(&transfer.owner_address).ok_or("Invalid ownerAddress!")?;
    let to = unprefixed(&transfer.to_address).ok_or("Invalid toAddress!")?;
    if owner == to {
        return Err("Cannot transfer TRX to yourself.");
    }
    let account = state.account(&owner).ok_or("Validate TransferContract error, no OwnerAccount.")?;
    if transfer.amount <= 0 {
        return Err("Amount must be greater than 0.");
    }
    let target = state.account(&to);
    if target.is_some_and(|target| target.is_contract) {
        return Err("Cannot transfer TRX to a smartContract.");
    }
    let fee = if target.is_none() { ACCOUNT_FEE } else { 0 };
    let needed = transfer.amount.checked_add(fee).ok_or("long overflow")?;
    if account.balance < needed {
        return Err("Validate TransferContract error, balance is not sufficient.");
    }
    Ok((owner, to))
}

/// `VMActuator`, as far as it can refuse a call before it is run.
pub fn check_call(state: &State, trigger: &Trigger, fee_limit: i64) -> Result<(), &'static str> {
    if unprefixed(&trigger.contract_address) != Some(TOKEN) {
        return Err("No contract or not a smart contract");
    }
    if !(0..=FEE_LIMIT).contains(&fee_limit) {
        return Err("feeLimit must be >= 0 and <= 15000000000");
    }
    if trigger.call_value < 0 {
        return Err("callValue must be >= 0");
    }
    if trigger.call_token_value != 0 || trigger.token_id != 0 {
        return Err("No asset !");
    }
    let balance = unprefixed(&trigger.owner_address).and_then(|owner| state.account(&owner)).map_or(0, |a| a.balance);
    if balance < trigger.call_value {
        return Err("Validate InternalTransfer error, balance is not sufficient.");
    }
    Ok(())
}

fn call(
    state: &mut State,
    rules: &Rules,
    trigger: &Trigger,
    owner: &Owner,
    fee_limit: i64,
    outcome: &mut Execution,
) -> Result<(), TronRefusal> {
    check_call(state, trigger, fee_limit).map_err(TronRefusal::contract)?;
    let balance = state.account(owner).map_or(0, |account| account.balance);
    let limit = fee_limit.min(balance - trigger.call_value) / rules.energy_price.max(1);
    outcome.contract = Some(TOKEN);
    // A call that fails, for whatever reason, leaves nothing but its fee.
    let called = state.attempt(|state| {
        let called = token::call(state, owner, trigger.call_value, &trigger.data, rules.supply, rules.returns);
        if called.ok && called.energy <= limit { Ok(called) } else { Err(called) }
    });
    match called {
        Ok(Called { energy, output, logs, .. }) => {
            (outcome.energy_used, outcome.output, outcome.logs) = (energy, output, logs);
        }
        Err(Called { energy, output, .. }) if energy <= limit => {
            (outcome.energy_used, outcome.output, outcome.ret) = (energy, output, Ret::Revert);
            outcome.message = "REVERT opcode executed".to_owned();
        }
        Err(Called { energy, .. }) => {
            (outcome.energy_used, outcome.ret) = (limit, Ret::OutOfEnergy);
            outcome.message = format!(
                "Not enough energy for 'SSTORE' operation executing: curInvokeEnergyLimit[{limit}], \
                 curOpEnergy[{}], usedEnergy[{limit}]",
                energy - limit
            );
        }
    }
    outcome.energy_fee = outcome.energy_used.saturating_mul(rules.energy_price);
    outcome.fee += outcome.energy_fee;
    charge(state, owner, outcome.energy_fee)
}

/// What a call would do and cost, with all the energy that it wants. Nothing changes.
pub fn simulate(state: &mut State, rules: &Rules, trigger: &Trigger) -> Called {
    let caller = unprefixed(&trigger.owner_address).unwrap_or_default();
    let run = |state: &mut State| -> Result<(), Called> {
        Err(token::call(state, &caller, trigger.call_value, &trigger.data, rules.supply, rules.returns))
    };
    match state.attempt(run) {
        Err(called) => called,
        Ok(()) => Called { ok: false, energy: 0, output: Vec::new(), logs: Vec::new() },
    }
}
