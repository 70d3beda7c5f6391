//! A TRC-20 token like USDT, as a model of its contract: the real ABI and logs, and what its calls cost in energy.

use alloy_primitives::{U256, keccak256};

use super::state::{Owner, Slot, State};

/// The address of USDT on the main network, so that snippets carry over.
pub const TOKEN: Owner = [
    0xa6, 0x14, 0xf8, 0x03, 0xb6, 0xfd, 0x78, 0x09, 0x86, 0xa4, 0x2c, 0x78, 0xec, 0x9c, 0x7f, 0x77, 0xe6, 0xde, 0xd1,
    0x3c,
];
pub const NAME: &str = "Tether USD";
pub const SYMBOL: &str = "USDT";
pub const DECIMALS: u64 = 6;

const NAME_CALL: [u8; 4] = [0x06, 0xfd, 0xde, 0x03];
const SYMBOL_CALL: [u8; 4] = [0x95, 0xd8, 0x9b, 0x41];
const DECIMALS_CALL: [u8; 4] = [0x31, 0x3c, 0xe5, 0x67];
const TOTAL_SUPPLY: [u8; 4] = [0x18, 0x16, 0x0d, 0xdd];
const BALANCE_OF: [u8; 4] = [0x70, 0xa0, 0x82, 0x31];
const ALLOWANCE: [u8; 4] = [0xdd, 0x62, 0xed, 0x3e];
pub const TRANSFER: [u8; 4] = [0xa9, 0x05, 0x9c, 0xbb];
const TRANSFER_FROM: [u8; 4] = [0x23, 0xb8, 0x72, 0xdd];
const APPROVE: [u8; 4] = [0x09, 0x5e, 0xa7, 0xb3];

/// What a transfer to somebody who holds some costs on the main network.
pub const ENERGY_TO_HOLDER: i64 = 64_285;
/// And to somebody who holds none: a new storage word.
pub const ENERGY_TO_NEW: i64 = 130_285;
const ENERGY_ALLOWANCE: i64 = 12_000;
const ENERGY_APPROVE: i64 = 22_970;
const ENERGY_READ: i64 = 935;
const ENERGY_REVERT: i64 = 3_345;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    pub contract: Owner,
    pub topics: Vec<[u8; 32]>,
    pub data: Vec<u8>,
}

/// What a call did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Called {
    pub ok: bool,
    pub energy: i64,
    pub output: Vec<u8>,
    pub logs: Vec<Log>,
}

/// How the token answers `transfer` when it worked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Returns {
    True,
    /// As USDT on TRON does: it moves the tokens and answers `false`. Whoever believes the answer and not the receipt
    /// and the log loses every deposit.
    #[default]
    False,
}

/// Runs a call on the token. Nothing changes unless it answers `ok`.
pub fn call(state: &mut State, caller: &Owner, value: i64, data: &[u8], supply: U256, returns: Returns) -> Called {
    // No method takes TRX.
    if value > 0 {
        return reverted(None);
    }
    let Some((selector, arguments)) = data.split_first_chunk::<4>() else { return reverted(None) };
    let success = U256::from(u8::from(returns == Returns::True));
    match *selector {
        NAME_CALL => read(text(NAME)),
        SYMBOL_CALL => read(text(SYMBOL)),
        DECIMALS_CALL => read(word(U256::from(DECIMALS))),
        TOTAL_SUPPLY => read(word(supply)),
        BALANCE_OF => match owner(arguments, 0) {
            Some(holder) => read(word(state.amount(Slot::Holding(holder)))),
            None => reverted(None),
        },
        ALLOWANCE => match (owner(arguments, 0), owner(arguments, 1)) {
            (Some(holder), Some(spender)) => read(word(state.amount(Slot::Allowance(holder, spender)))),
            _ => reverted(None),
        },
        APPROVE => match (owner(arguments, 0), number(arguments, 1)) {
            (Some(spender), Some(amount)) => {
                state.set_amount(Slot::Allowance(*caller, spender), amount);
                done(ENERGY_APPROVE, U256::from(1), log("Approval(address,address,uint256)", caller, &spender, amount))
            }
            _ => reverted(None),
        },
        TRANSFER => match (owner(arguments, 0), number(arguments, 1)) {
            (Some(to), Some(amount)) => match moved(state, caller, &to, amount) {
                Ok(energy) => done(energy, success, transfer_log(caller, &to, amount)),
                Err(reason) => reverted(Some(reason)),
            },
            _ => reverted(None),
        },
        TRANSFER_FROM => match (owner(arguments, 0), owner(arguments, 1), number(arguments, 2)) {
            (Some(from), Some(to), Some(amount)) => {
                let allowed = Slot::Allowance(from, *caller);
                let Some(rest) = state.amount(allowed).checked_sub(amount) else {
                    return reverted(Some("TRC20: transfer amount exceeds allowance"));
                };
                match moved(state, &from, &to, amount) {
                    Ok(energy) => {
                        state.set_amount(allowed, rest);
                        done(energy + ENERGY_ALLOWANCE, success, transfer_log(&from, &to, amount))
                    }
                    Err(reason) => reverted(Some(reason)),
                }
            }
            _ => reverted(None),
        },
        _ => reverted(None),
    }
}

/// Whether a call by this data only reads.
pub fn is_view(data: &[u8]) -> bool {
    data.first_chunk::<4>().is_some_and(|selector| {
        [NAME_CALL, SYMBOL_CALL, DECIMALS_CALL, TOTAL_SUPPLY, BALANCE_OF, ALLOWANCE].contains(selector)
    })
}

fn moved(state: &mut State, from: &Owner, to: &Owner, amount: U256) -> Result<i64, &'static str> {
    if *to == [0; 20] {
        return Err("TRC20: transfer to the zero address");
    }
    let (source, target) = (Slot::Holding(*from), Slot::Holding(*to));
    let rest = state.amount(source).checked_sub(amount).ok_or("TRC20: transfer amount exceeds balance")?;
    let energy = if state.amount(target).is_zero() { ENERGY_TO_NEW } else { ENERGY_TO_HOLDER };
    // In this order a transfer to oneself changes nothing.
    state.set_amount(source, rest);
    let sum = state.amount(target).checked_add(amount).ok_or("SafeMath: addition overflow")?;
    state.set_amount(target, sum);
    Ok(energy)
}

pub fn transfer_log(from: &Owner, to: &Owner, amount: U256) -> Log {
    log("Transfer(address,address,uint256)", from, to, amount)
}

fn log(event: &str, first: &Owner, second: &Owner, amount: U256) -> Log {
    let topics = vec![keccak256(event.as_bytes()).0, padded(first), padded(second)];
    Log { contract: TOKEN, topics, data: word(amount) }
}

/// The recipient and the amount of the call data of a `transfer`.
pub fn transfer_arguments(data: &[u8]) -> Option<(Owner, U256)> {
    let arguments = data.strip_prefix(&TRANSFER)?;
    Some((owner(arguments, 0)?, number(arguments, 1)?))
}

fn read(output: Vec<u8>) -> Called {
    Called { ok: true, energy: ENERGY_READ, output, logs: Vec::new() }
}

fn done(energy: i64, answer: U256, log: Log) -> Called {
    Called { ok: true, energy, output: word(answer), logs: vec![log] }
}

fn reverted(reason: Option<&str>) -> Called {
    // `Error(string)`, as Solidity encodes the reason of a `require`.
    let output = reason.map_or_else(Vec::new, |reason| [&[0x08, 0xc3, 0x79, 0xa0][..], &text(reason)].concat());
    Called { ok: false, energy: ENERGY_REVERT, output, logs: Vec::new() }
}

fn word(number: U256) -> Vec<u8> {
    number.to_be_bytes_vec()
}

fn padded(owner: &Owner) -> [u8; 32] {
    let mut padded = [0; 32];
    padded[12..].copy_from_slice(owner);
    padded
}

fn text(text: &str) -> Vec<u8> {
    let mut encoded = [word(U256::from(32)), word(U256::from(text.len())), text.as_bytes().to_vec()].concat();
    encoded.resize(encoded.len().next_multiple_of(32), 0);
    encoded
}

fn number(arguments: &[u8], index: usize) -> Option<U256> {
    arguments.get(index * 32..index * 32 + 32).map(U256::from_be_slice)
}

/// The contract looks at 20 bytes only, so that an address with its 0x41 before it is read as well.
fn owner(arguments: &[u8], index: usize) -> Option<Owner> {
    arguments.get(index * 32 + 12..index * 32 + 32)?.try_into().ok()
}

/// The ABI in java-tron's form.
pub const ABI: &str = concat!(
    r#"{"entrys":["#,
    r#"{"constant":true,"name":"name","outputs":[{"type":"string"}],"type":"Function","stateMutability":"View"},"#,
    r#"{"constant":true,"name":"symbol","outputs":[{"type":"string"}],"type":"Function","stateMutability":"View"},"#,
    r#"{"constant":true,"name":"decimals","outputs":[{"type":"uint8"}],"type":"Function","stateMutability":"View"},"#,
    r#"{"constant":true,"name":"totalSupply","outputs":[{"type":"uint256"}],"type":"Function","stateMutability":"View"},"#,
    r#"{"constant":true,"name":"balanceOf","inputs":[{"name":"who","type":"address"}],"outputs":[{"type":"uint256"}],"type":"Function","stateMutability":"View"},"#,
    r#"{"constant":true,"name":"allowance","inputs":[{"name":"owner","type":"address"},{"name":"spender","type":"address"}],"outputs":[{"type":"uint256"}],"type":"Function","stateMutability":"View"},"#,
    r#"{"name":"transfer","inputs":[{"name":"to","type":"address"},{"name":"value","type":"uint256"}],"outputs":[{"type":"bool"}],"type":"Function","stateMutability":"Nonpayable"},"#,
    r#"{"name":"transferFrom","inputs":[{"name":"from","type":"address"},{"name":"to","type":"address"},{"name":"value","type":"uint256"}],"outputs":[{"type":"bool"}],"type":"Function","stateMutability":"Nonpayable"},"#,
    r#"{"name":"approve","inputs":[{"name":"spender","type":"address"},{"name":"value","type":"uint256"}],"outputs":[{"type":"bool"}],"type":"Function","stateMutability":"Nonpayable"},"#,
    r#"{"name":"Transfer","inputs":[{"indexed":true,"name":"from","type":"address"},{"indexed":true,"name":"to","type":"address"},{"name":"value","type":"uint256"}],"type":"Event"},"#,
    r#"{"name":"Approval","inputs":[{"indexed":true,"name":"owner","type":"address"},{"indexed":true,"name":"spender","type":"address"},{"name":"value","type":"uint256"}],"type":"Event"}"#,
    r#"]}"#,
);
