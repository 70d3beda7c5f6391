//! Coins and payments in their order, and the PSBT.

use std::collections::BTreeSet;

use ::bitcoin::{Address, Network, Script};
use domain::RawAmount;
use ruint::aliases::U256;
use store::utxo::Coin;
use tx::Input;
use tx::bitcoin::estimated_weight;
use tx::bitcoin::transaction::build;
use tx::{Draft, Payment, Unsigned};

use super::read::{kind_of_script, tx_hash_of};
use super::target::{Aim, Costs, Frame, Recipient, ScriptKind, SpendError, Split, Tally, Target};

/// The sequence number of every input: the transaction may be replaced (BIP 125), and its lock time counts.
pub const SEQUENCE: u32 = 0xffff_fffd;

/// A transaction before it is signed. Inputs and outputs are in the order of BIP 69, which follows from what they are:
/// the place of the change does not show that it is the change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub coins: Vec<Coin>,
    pub outputs: Vec<Recipient>,
    /// Which of the outputs is the change.
    pub change: Option<usize>,
    pub fee: u64,
    /// Once signed, at most.
    pub weight: u64,
}

/// The transaction that spends `coins`, and those of [`Target::kept`]. A replacement or a child may need no further
/// coins: try it without any first, and ask the store for coins when that is refused.
pub fn plan(coins: &[Coin], target: &Target, change: &[u8]) -> Result<Plan, SpendError> {
    let frame = Frame::of(target)?;
    let mut coins: Vec<Coin> = target.kept().iter().chain(coins).cloned().collect();
    coins.sort_by_key(|coin| coin.outpoint);
    check_coins(&coins)?;
    if ScriptKind::of(kind_of_script(change)) != Some(target.change) {
        return Err(SpendError::Contradiction("the change script is of another kind"));
    }
    let inputs = Tally::of_coins(&coins).ok_or(SpendError::Contradiction("a coin that is not ours to spend"))?;
    let split = frame
        .split(inputs)
        .ok_or_else(|| SpendError::InsufficientFunds { available: inputs.held, missing: frame.missing(inputs) })?;
    let split = frame.permitted(split)?;
    let change = split.change.map(|amount| Recipient { amount, script: change.to_vec() });
    let mut outputs: Vec<Recipient> = target.recipients.iter().chain(&change).cloned().collect();
    outputs.sort();
    let change = change.and_then(|change| outputs.iter().position(|output| *output == change));
    let plan = Plan { coins, outputs, change, fee: split.fee, weight: split.weight };
    plan.check(&frame, inputs)?;
    Ok(plan)
}

/// The transaction that spends these coins whole: it pays one, nothing comes back, and what the payment leaves is the fee. The fee is at least
/// what `costs` ask for, and at most what they allow.
pub fn plan_whole(coins: &[Coin], to: &Recipient, costs: Costs) -> Result<Plan, SpendError> {
    let target = Target { recipients: vec![to.clone()], change: ScriptKind::P2wpkh, costs, aim: Aim::Pay };
    let frame = Frame::of(&target)?;
    let mut coins = coins.to_vec();
    coins.sort_by_key(|coin| coin.outpoint);
    check_coins(&coins)?;
    let inputs = Tally::of_coins(&coins).ok_or(SpendError::Contradiction("a coin that is not ours to spend"))?;
    let weight = frame.weight(inputs, false);
    let fee = inputs.held.checked_sub(to.amount).filter(|fee| *fee >= frame.least_fee(weight));
    let too_little = || SpendError::InsufficientFunds { available: inputs.held, missing: frame.missing(inputs) };
    let split = frame.permitted(Split { change: None, fee: fee.ok_or_else(too_little)?, weight })?;
    let plan = Plan { coins, outputs: target.recipients.clone(), change: None, fee: split.fee, weight: split.weight };
    plan.check(&frame, inputs)?;
    Ok(plan)
}

fn check_coins(coins: &[Coin]) -> Result<(), SpendError> {
    let distinct: BTreeSet<_> = coins.iter().map(|coin| coin.outpoint).collect();
    if distinct.len() != coins.len() {
        return Err(SpendError::Contradiction("a coin is given twice"));
    }
    if coins.iter().any(|coin| kind_of_script(&coin.script) != coin.kind) {
        return Err(SpendError::Contradiction("a coin's script is not what its row says"));
    }
    Ok(())
}

impl Plan {
    /// Counts the whole again in another way: by the scripts, and by the sum of the outputs.
    fn check(&self, frame: &Frame<'_>, inputs: Tally) -> Result<(), SpendError> {
        let scripts = self.outputs.iter().map(|output| Script::from_bytes(&output.script));
        let spent = self.coins.iter().map(|coin| Script::from_bytes(&coin.script));
        if estimated_weight(spent, scripts) != Some(self.weight) {
            return Err(SpendError::Contradiction("the weight is not that of its scripts"));
        }
        let paid = self.outputs.iter().try_fold(self.fee, |sum, output| sum.checked_add(output.amount));
        if paid != Some(inputs.held) || self.fee < frame.least_fee(self.weight) {
            return Err(SpendError::Contradiction("the money does not add up"));
        }
        Ok(())
    }
}

/// The PSBT, with the spent output of every input (`witness_utxo`), and what it means. `lock_time` is zero, or the
/// height of the last block: then a miner who replaces that block cannot take this fee into the new one.
pub fn unsigned(plan: &Plan, network: Network, lock_time: u32) -> Result<Unsigned, SpendError> {
    let inputs = plan.coins.iter().map(input_of).collect::<Result<Vec<_>, _>>()?;
    let payments = plan.outputs.iter().map(|output| payment_of(output, network)).collect::<Result<Vec<_>, _>>()?;
    let unsigned = build(&Draft::Bitcoin { inputs, payments, lock_time }, network)?;
    if unsigned.meaning.most_fee != Some(RawAmount::from_u256(U256::from(plan.fee))) {
        return Err(SpendError::Contradiction("the transaction costs something else than planned"));
    }
    Ok(unsigned)
}

fn input_of(coin: &Coin) -> Result<Input, SpendError> {
    Ok(Input {
        transaction: tx_hash_of(coin.outpoint.hash),
        index: coin.outpoint.index,
        amount_sat: u64::try_from(coin.amount).map_err(|_| SpendError::Contradiction("a coin of less than nothing"))?,
        script: coin.script.clone(),
        sequence: SEQUENCE,
    })
}

fn payment_of(output: &Recipient, network: Network) -> Result<Payment, SpendError> {
    let to = Address::from_script(Script::from_bytes(&output.script), network)
        .map_err(|_| SpendError::Contradiction("a payment to a script that is no address"))?;
    let amount = RawAmount::from_u256(U256::from(output.amount));
    Ok(Payment { to: tx::Address::Bitcoin(to), coin: tx::Coin::Native, amount })
}
