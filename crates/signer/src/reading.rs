//! Decode and compare: the payload is read by `tx`, and every part of its meaning must be explained by the intents.
//!
//! Nothing here asks whether it is allowed; that is the policy's. A payload that passes does exactly what its intents
//! say: it pays them and nobody else, from the wallet that was named, on the network of the group, for at most the fee
//! that they agree to.

use std::collections::{BTreeMap, BTreeSet};

use domain::{RawAmount, Timestamp};
use tx::bitcoin::SpentInput;
use tx::{Address, Coin, Meaning, Payment, Slot, TxHash};

use crate::approved::SignerChain;
use crate::intent::{Addresses, BitcoinTerms, Intent, IntentKind, SignRequest};
use crate::refusal::SignerRefusal;

/// More payouts than fit a Bitcoin transaction that nodes pass on.
pub const MOST_INTENTS: usize = 4_000;
/// Each payout of a Bitcoin transaction holds its inputs, so the two together are bounded.
pub const MOST_HELD: usize = 50_000;
/// More than fit a Bitcoin transaction that nodes pass on: of P2WPKH about 1,470.
pub const MOST_INPUTS: usize = 1_500;
/// More than a policy's steps can ask for.
pub const MOST_APPROVALS: usize = 1_000;
/// A whole transaction that a PSBT brings along for each input can be large.
pub const MOST_PAYLOAD: usize = 4_000_000;

/// An output of a transaction.
pub type Outpoint = (TxHash, u32);

/// What a payload takes, that no other transaction can have once it is mined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    Nonce { account: [u8; 20], nonce: u64 },
    Expiry(Timestamp),
    Inputs(Vec<Outpoint>),
}

/// A payload that does what its intents say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    pub claim: Claim,
    /// The most that it can cost beyond the payments, in the chain's own coin.
    pub fee: RawAmount,
    /// Whose key signs; see [`crate::Approved::indexes`].
    pub indexes: Vec<u64>,
    /// Bitcoin: what is spent.
    pub inputs: Vec<SpentInput>,
}

/// Reads the payload and compares it with the intents.
pub fn read(
    request: &SignRequest,
    protocol: SignerChain,
    addresses: &impl Addresses,
) -> Result<Reading, SignerRefusal> {
    check_form(request, protocol)?;
    check_owners(request, addresses)?;
    match protocol {
        SignerChain::Evm { chain_id } => read_evm(request, chain_id, addresses),
        SignerChain::Tron => read_tron(request, addresses),
        SignerChain::Bitcoin(network) => read_bitcoin(request, network, addresses),
    }
}

/// Whether a request is no larger than one can be. Whatever is larger is not looked at.
pub fn check_size(request: &SignRequest) -> Result<(), SignerRefusal> {
    use SignerRefusal::Inconsistent;
    if request.payload.len() > MOST_PAYLOAD {
        return Err(Inconsistent("the payload is longer than any transaction"));
    }
    if request.intents.is_empty() || request.intents.len() > MOST_INTENTS {
        return Err(Inconsistent("no intent, or more than any transaction can pay"));
    }
    let inputs = request.bitcoin.as_ref().map_or(0, |terms| terms.inputs.len());
    if request.intents.len().saturating_mul(inputs) > MOST_HELD || request.approvals.len() > MOST_APPROVALS {
        return Err(Inconsistent("too many payouts for so many inputs, or too many approvals"));
    }
    let change = request.bitcoin.as_ref().map_or(0, |terms| terms.change.len());
    if inputs > MOST_INPUTS || change > MOST_INTENTS {
        return Err(Inconsistent("more inputs, or more change, than any transaction has"));
    }
    let cancelled = request.intents.iter().map(|intent| match &intent.kind {
        IntentKind::Cancel { jobs } => jobs.len(),
        IntentKind::Pay { .. } => 0,
    });
    if cancelled.fold(0, usize::saturating_add) > MOST_INTENTS {
        return Err(Inconsistent("more is cancelled than any transaction can pay"));
    }
    Ok(())
}

/// What can be said before the payload is looked at.
fn check_form(request: &SignRequest, protocol: SignerChain) -> Result<(), SignerRefusal> {
    use SignerRefusal::Inconsistent;
    let bitcoin = matches!(protocol, SignerChain::Bitcoin(_));
    if request.bitcoin.is_some() != bitcoin {
        return Err(Inconsistent("inputs, change and lock time are given for Bitcoin, and only for Bitcoin"));
    }
    if !bitcoin && request.intents.len() != 1 {
        return Err(Inconsistent("a transaction of this chain pays one job"));
    }
    let mut jobs: Vec<_> = request.intents.iter().map(|intent| intent.job).collect();
    jobs.sort_unstable();
    jobs.dedup();
    if jobs.len() != request.intents.len() {
        return Err(Inconsistent("a job is named twice"));
    }
    for intent in &request.intents {
        if intent.chain != request.chain || intent.group != request.group {
            return Err(Inconsistent("an intent is of another chain or group"));
        }
        if intent.builds != 1 && protocol != SignerChain::Tron || intent.builds == 0 {
            return Err(Inconsistent("only TRON builds a transaction more than once"));
        }
        match &intent.kind {
            IntentKind::Pay { payment, .. } if payment.amount == RawAmount::ZERO => {
                return Err(Inconsistent("an intent pays nothing"));
            }
            IntentKind::Pay { .. } => {}
            IntentKind::Cancel { .. } if request.intents.len() > 1 => {
                return Err(Inconsistent("a cancel pays nobody"));
            }
            IntentKind::Cancel { .. } if protocol == SignerChain::Tron => {
                return Err(Inconsistent("nothing cancels a TRON transaction but its expiry"));
            }
            IntentKind::Cancel { jobs } if !bitcoin && jobs.len() > 1 => {
                return Err(Inconsistent("a nonce belongs to one job"));
            }
            IntentKind::Cancel { jobs } if bitcoin && jobs.is_empty() => {
                return Err(Inconsistent("Bitcoin has no gaps to fill"));
            }
            IntentKind::Cancel { jobs } if jobs.iter().collect::<BTreeSet<_>>().len() != jobs.len() => {
                return Err(Inconsistent("a job is cancelled twice"));
            }
            IntentKind::Cancel { jobs } if jobs.contains(&intent.job) => {
                return Err(Inconsistent("a cancel has a job id of its own"));
            }
            IntentKind::Cancel { .. } => {}
        }
    }
    Ok(())
}

/// Wherever an intent says whose address it pays, the signer derives that address itself.
fn check_owners(request: &SignRequest, addresses: &impl Addresses) -> Result<(), SignerRefusal> {
    for intent in &request.intents {
        if let IntentKind::Pay { payment, owner: Some(owner) } = &intent.kind {
            let derived = addresses.address(&owner.group, owner.index).ok_or(SignerRefusal::OwnerDiffers)?;
            if !same(&derived, &payment.to) {
                return Err(SignerRefusal::OwnerDiffers);
            }
        }
    }
    Ok(())
}

/// Whether paying one is paying the other. Two texts of one Bitcoin script are the same to the chain.
fn same(one: &Address, other: &Address) -> bool {
    match (one, other) {
        (Address::Bitcoin(_), Address::Bitcoin(_)) => one.script_bytes() == other.script_bytes(),
        _ => one == other,
    }
}

fn own_address(request: &SignRequest, addresses: &impl Addresses, index: u64) -> Result<Address, SignerRefusal> {
    addresses.address(&request.group, index).ok_or(SignerRefusal::IndexUnknown)
}

/// The one payment of a payload against the one intent.
fn explain(meaning: &Meaning, intent: &Intent, own: &Address) -> Result<RawAmount, SignerRefusal> {
    let [paid] = meaning.payments.as_slice() else { return Err(SignerRefusal::Unexplained) };
    let explained = match &intent.kind {
        IntentKind::Pay { payment, .. } => paid == payment,
        IntentKind::Cancel { .. } => *paid == Payment { to: own.clone(), coin: Coin::Native, amount: RawAmount::ZERO },
    };
    if !explained {
        return Err(SignerRefusal::Unexplained);
    }
    let fee = meaning.most_fee.ok_or(SignerRefusal::Inconsistent("a payload whose cost has no bound"))?;
    if fee > intent.most_fee { Err(SignerRefusal::FeeAboveIntent) } else { Ok(fee) }
}

fn only(request: &SignRequest) -> Result<&Intent, SignerRefusal> {
    request.intents.first().ok_or(SignerRefusal::Inconsistent("no intent"))
}

fn read_evm(request: &SignRequest, chain_id: u64, addresses: &impl Addresses) -> Result<Reading, SignerRefusal> {
    let meaning = tx::evm::decode_unsigned(&request.payload, chain_id)?;
    let own = own_address(request, addresses, request.index)?;
    let fee = explain(&meaning, only(request)?, &own)?;
    let Slot::Nonce(nonce) = meaning.slot else { return Err(SignerRefusal::Unexplained) };
    // The bytes of an EVM transaction do not say who pays: whoever's key signs. That is this wallet, and no other.
    let Address::Evm(account) = own else { return Err(SignerRefusal::OtherWallet) };
    let claim = Claim::Nonce { account: account.into_array(), nonce };
    Ok(Reading { claim, fee, indexes: vec![request.index], inputs: Vec::new() })
}

fn read_tron(request: &SignRequest, addresses: &impl Addresses) -> Result<Reading, SignerRefusal> {
    let meaning = tx::tron::transaction::decode_unsigned(&request.payload)?;
    let own = own_address(request, addresses, request.index)?;
    if meaning.from.as_ref() != Some(&own) {
        return Err(SignerRefusal::OtherWallet);
    }
    let fee = explain(&meaning, only(request)?, &own)?;
    let Slot::Expiry(expiry) = meaning.slot else { return Err(SignerRefusal::Unexplained) };
    Ok(Reading { claim: Claim::Expiry(expiry), fee, indexes: vec![request.index], inputs: Vec::new() })
}

fn read_bitcoin(
    request: &SignRequest,
    network: bitcoin::Network,
    addresses: &impl Addresses,
) -> Result<Reading, SignerRefusal> {
    let terms = request.bitcoin.as_ref().ok_or(SignerRefusal::Inconsistent("no inputs are named"))?;
    let spending = tx::bitcoin::read_unsigned(&request.payload, network)?;
    if spending.inputs.len() != terms.inputs.len() {
        return Err(SignerRefusal::Inconsistent("an address for each input"));
    }
    let same_sequence = spending.inputs.iter().all(|spent| spent.input.sequence == terms.sequence);
    if spending.lock_time != terms.lock_time || !same_sequence {
        return Err(SignerRefusal::LockDiffers);
    }
    for (spent, index) in spending.inputs.iter().zip(&terms.inputs) {
        let own = own_address(request, addresses, *index)?;
        if own.script_bytes().as_ref() != Some(&spent.input.script) {
            return Err(SignerRefusal::OtherWallet);
        }
    }
    explain_outputs(request, terms, &spending.meaning.payments, network, addresses)?;
    let agreed = request.intents.iter().try_fold(RawAmount::ZERO, |sum, intent| sum.checked_add(intent.most_fee));
    let fee = spending.meaning.most_fee.ok_or(SignerRefusal::Inconsistent("a payload whose cost has no bound"))?;
    if agreed.is_some_and(|agreed| fee > agreed) {
        return Err(SignerRefusal::FeeAboveIntent);
    }
    let outpoints = spending.inputs.iter().map(|spent| (spent.input.transaction, spent.input.index)).collect();
    Ok(Reading { claim: Claim::Inputs(outpoints), fee, indexes: terms.inputs.clone(), inputs: spending.inputs })
}

/// Each output is one intent's payment or goes to one of the change addresses; each intent has its output.
fn explain_outputs(
    request: &SignRequest,
    terms: &BitcoinTerms,
    outputs: &[Payment],
    network: bitcoin::Network,
    addresses: &impl Addresses,
) -> Result<(), SignerRefusal> {
    let script = |address: &Address| address.script_bytes().ok_or(SignerRefusal::Unexplained);
    let mut wanted: BTreeMap<(Vec<u8>, RawAmount), usize> = BTreeMap::new();
    for payment in request.intents.iter().filter_map(Intent::payment) {
        // A token, or an address of another chain or network, is nothing that an output can pay.
        let here = matches!(&payment.to, Address::Bitcoin(to) if tx::bitcoin::address::is_on(to, network));
        let to = payment.to.script_bytes().filter(|_| here && payment.coin == Coin::Native);
        let to = to.ok_or(SignerRefusal::NotPaid)?;
        *wanted.entry((to, payment.amount)).or_default() += 1;
    }
    let mut change: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    for index in &terms.change {
        *change.entry(script(&own_address(request, addresses, *index)?)?).or_default() += 1;
    }
    for output in outputs {
        let to = script(&output.to)?;
        let left = match wanted.get_mut(&(to.clone(), output.amount)) {
            Some(left) if *left > 0 => left,
            _ => change.get_mut(&to).ok_or(SignerRefusal::Unexplained)?,
        };
        *left = left.checked_sub(1).ok_or(SignerRefusal::Unexplained)?;
    }
    if wanted.values().any(|left| *left > 0) {
        return Err(SignerRefusal::NotPaid);
    }
    if change.values().any(|left| *left > 0) {
        return Err(SignerRefusal::Inconsistent("a change address that no output pays"));
    }
    Ok(())
}
