//! What a node relays, though blocks may hold more: standard forms, no dust, no bloat.

use ::bitcoin::opcodes::all::OP_RETURN;
use ::bitcoin::script::Instruction;
use ::bitcoin::{Amount, Script, ScriptBuf, Transaction, TxOut};

use super::chain::{Coin, is_unspendable};
use super::reject::Reject;

/// In satoshi for a thousand virtual bytes.
pub(super) const MIN_RELAY: u64 = 100;
pub(super) const INCREMENTAL: u64 = 100;
const DUST_RELAY: u64 = 3_000;
const TRANSACTION_WEIGHT: u64 = 400_000;
const SCRIPT_SIG: usize = 1_650;
const DATA_CARRIER: usize = 100_000;
const SIGOPS_COST: u64 = 16_000;
const LEGACY_SIGOPS: usize = 2_500;
const P2SH_SIGOPS: usize = 15;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    NonStandard,
    PubKey,
    PubKeyHash,
    ScriptHash,
    Multisig,
    NullData,
    Anchor,
    WitnessKeyHash,
    WitnessScriptHash,
    Taproot,
    WitnessUnknown,
}

impl Form {
    pub fn of(script: &Script) -> Self {
        let bytes = script.as_bytes();
        if script.is_p2sh() {
            Self::ScriptHash
        } else if script.is_p2wpkh() {
            Self::WitnessKeyHash
        } else if script.is_p2wsh() {
            Self::WitnessScriptHash
        } else if script.is_p2tr() {
            Self::Taproot
        } else if bytes == [0x51, 0x02, 0x4e, 0x73] {
            Self::Anchor
        } else if let Some(version) = script.witness_version() {
            if version.to_num() == 0 { Self::NonStandard } else { Self::WitnessUnknown }
        } else if bytes.first() == Some(&OP_RETURN.to_u8()) && Script::from_bytes(&bytes[1..]).is_push_only() {
            Self::NullData
        } else if script.is_p2pk() {
            Self::PubKey
        } else if script.is_p2pkh() {
            Self::PubKeyHash
        } else if script.is_multisig() {
            Self::Multisig
        } else {
            Self::NonStandard
        }
    }

    /// As `type` in Core's answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NonStandard => "nonstandard",
            Self::PubKey => "pubkey",
            Self::PubKeyHash => "pubkeyhash",
            Self::ScriptHash => "scripthash",
            Self::Multisig => "multisig",
            Self::NullData => "nulldata",
            Self::Anchor => "anchor",
            Self::WitnessKeyHash => "witness_v0_keyhash",
            Self::WitnessScriptHash => "witness_v0_scripthash",
            Self::Taproot => "witness_v1_taproot",
            Self::WitnessUnknown => "witness_unknown",
        }
    }
}

/// The fee at a rate, rounded up.
pub(super) fn fee_at(per_kvb: u64, vsize: u64) -> u64 {
    per_kvb.saturating_mul(vsize).div_ceil(1_000)
}

pub(super) fn dust_limit(output: &TxOut) -> Amount {
    if is_unspendable(&output.script_pubkey) {
        return Amount::ZERO;
    }
    // What it takes to spend it: outpoint, length, script and sequence, witnesses at a quarter.
    let spending =
        if output.script_pubkey.is_witness_program() { 32 + 4 + 1 + 107 / 4 + 4 } else { 32 + 4 + 1 + 107 + 4 };
    let size = u64::try_from(output.size()).unwrap_or(u64::MAX).saturating_add(spending);
    Amount::from_sat(fee_at(DUST_RELAY, size))
}

pub(super) fn dust_outputs(transaction: &Transaction) -> usize {
    transaction.output.iter().filter(|output| output.value < dust_limit(output)).count()
}

/// At most three keys in a bare multisig.
fn is_standard_multisig(script: &Script) -> bool {
    let bytes = script.as_bytes();
    let number = |byte: Option<&u8>| byte.and_then(|byte| byte.checked_sub(0x50)).unwrap_or(0);
    let keys = number(bytes.len().checked_sub(2).and_then(|at| bytes.get(at)));
    let needed = number(bytes.first());
    (1..=3).contains(&keys) && (1..=keys).contains(&needed)
}

pub(super) fn check_standard(transaction: &Transaction) -> Result<(), Reject> {
    if !(1..=3).contains(&transaction.version.0) {
        return Err(Reject::rule("version"));
    }
    if transaction.weight().to_wu() > TRANSACTION_WEIGHT {
        return Err(Reject::rule("tx-size"));
    }
    for input in &transaction.input {
        if input.script_sig.len() > SCRIPT_SIG {
            return Err(Reject::rule("scriptsig-size"));
        }
        if !input.script_sig.is_push_only() {
            return Err(Reject::rule("scriptsig-not-pushonly"));
        }
    }
    let mut data_left = DATA_CARRIER;
    for output in &transaction.output {
        let script = &output.script_pubkey;
        match Form::of(script) {
            Form::NonStandard => return Err(Reject::rule("scriptpubkey")),
            Form::Multisig if !is_standard_multisig(script) => return Err(Reject::rule("scriptpubkey")),
            Form::NullData => {
                data_left = data_left.checked_sub(script.len()).ok_or_else(|| Reject::rule("datacarrier"))?;
            }
            _ => {}
        }
    }
    if dust_outputs(transaction) > 1 {
        return Err(Reject::rule("dust"));
    }
    Ok(())
}

/// The last thing that a script of pushes leaves on the stack.
pub(super) fn last_push(script: &Script) -> Option<ScriptBuf> {
    match script.instructions().last()?.ok()? {
        Instruction::PushBytes(bytes) => Some(ScriptBuf::from_bytes(bytes.as_bytes().to_vec())),
        Instruction::Op(op) => op.to_u8().checked_sub(0x50).map(|number| ScriptBuf::from_bytes(vec![number])),
    }
}

/// What the spent outputs must look like.
pub(super) fn check_inputs(transaction: &Transaction, coins: &[Coin]) -> Result<(), Reject> {
    let nonstandard = |details: String| Reject::rule("bad-txns-nonstandard-inputs").because(details);
    let mut legacy = 0_usize;
    for (input, coin) in transaction.input.iter().zip(coins) {
        legacy = legacy.saturating_add(input.script_sig.count_sigops());
        let script = &coin.out.script_pubkey;
        let inner = if script.is_p2sh() { last_push(&input.script_sig) } else { None };
        legacy = legacy.saturating_add(inner.as_ref().unwrap_or(script).count_sigops());
    }
    if legacy > LEGACY_SIGOPS {
        return Err(nonstandard("non-witness sigops exceed bip54 limit".to_owned()));
    }
    for (at, (input, coin)) in transaction.input.iter().zip(coins).enumerate() {
        match Form::of(&coin.out.script_pubkey) {
            Form::NonStandard => return Err(nonstandard(format!("input {at} script unknown"))),
            Form::WitnessUnknown => {
                return Err(nonstandard(format!("input {at} witness program is undefined")));
            }
            Form::ScriptHash => {
                let inner = last_push(&input.script_sig)
                    .ok_or_else(|| nonstandard(format!("input {at} P2SH redeemscript missing")))?;
                let sigops = inner.count_sigops();
                if sigops > P2SH_SIGOPS {
                    return Err(nonstandard(format!(
                        "p2sh redeemscript sigops exceed limit (input {at}: {sigops} > {P2SH_SIGOPS})"
                    )));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// No witness may be larger than its script needs.
pub(super) fn check_witnesses(transaction: &Transaction, coins: &[Coin]) -> Result<(), Reject> {
    let fine =
        transaction.input.iter().zip(coins).filter(|(input, _)| !input.witness.is_empty()).all(|(input, coin)| {
            let script = &coin.out.script_pubkey;
            let inner = if script.is_p2sh() { last_push(&input.script_sig) } else { Some(script.clone()) };
            let Some(inner) = inner else { return false };
            let (items, last) = (input.witness.len(), input.witness.last().unwrap_or_default());
            match Form::of(&inner) {
                Form::WitnessScriptHash => {
                    last.len() <= 3_600
                        && items <= 101
                        && input.witness.iter().take(items - 1).all(|item| item.len() <= 80)
                }
                Form::Taproot if !script.is_p2sh() => {
                    let annex = items >= 2 && last.first() == Some(&0x50);
                    // Tapscripts have small arguments; other leaf versions mean nothing yet.
                    let tapscript = last.first().is_some_and(|first| first & 0xfe == 0xc0);
                    let small = input.witness.iter().take(items.saturating_sub(2)).all(|item| item.len() <= 80);
                    !annex && (items < 2 || (!last.is_empty() && (!tapscript || small)))
                }
                _ => inner.is_witness_program() && Form::of(script) != Form::Anchor,
            }
        });
    if fine { Ok(()) } else { Err(Reject::rule("bad-witness-nonstandard")) }
}

pub(super) fn check_sigops(cost: u64) -> Result<(), Reject> {
    if cost > SIGOPS_COST {
        return Err(Reject::rule("bad-txns-too-many-sigops").because(cost.to_string()));
    }
    Ok(())
}

/// Pays at least the rate below which nothing is relayed.
pub(super) fn check_fee(fee: u64, vsize: u64) -> Result<(), Reject> {
    let least = fee_at(MIN_RELAY, vsize);
    if fee < least { Err(Reject::fee("min relay fee not met", format!("{fee} < {least}"))) } else { Ok(()) }
}
