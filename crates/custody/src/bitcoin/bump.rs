//! Replacing a transaction that waits (RBF), or pushing it by a child (CPFP). Both give a [`Target`], for which coins
//! are chosen and leased as for any other.

use ::bitcoin::Amount;
use store::utxo::Coin;
use tx::bitcoin::{MOST_WEIGHT, PackageFacts};

use super::read::kind_of_script;
use super::target::{Aim, Costs, Pushed, Recipient, Replaced, ScriptKind, SpendError, Target};

/// A transaction of ours that was sent and waits in mempools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub coins: Vec<Coin>,
    pub recipients: Vec<Recipient>,
    pub change: Option<Recipient>,
    /// As it was signed.
    pub weight: u64,
}

/// What nodes ask of a replacement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplacementTerms {
    /// Fees of all that builds on the old transaction and leaves with it, its own not counted.
    pub evicted_fee: u64,
    /// Satoshi per 1,000 virtual bytes.
    pub increment: u64,
    /// The answer of `BitcoinChain::replacement_fee` for the weight that the replacement will have; zero if no node was
    /// asked.
    pub at_least: u64,
}

impl Waiting {
    /// What it pays to the miner.
    pub fn fee(&self) -> Result<u64, SpendError> {
        let wrong = SpendError::Contradiction("the old transaction pays more than it has");
        let amount =
            |coin: &Coin| u64::try_from(coin.amount).ok().filter(|&amount| amount <= Amount::MAX_MONEY.to_sat());
        let held = self.coins.iter().try_fold(0_u64, |sum, coin| sum.checked_add(amount(coin)?));
        let mut paid = self.recipients.iter().chain(&self.change);
        let paid = paid.try_fold(0_u64, |sum, output| sum.checked_add(output.amount));
        held.zip(paid).and_then(|(held, paid)| held.checked_sub(paid)).ok_or(wrong)
    }
}

/// The replacement makes the same payments, and spends all coins that the old transaction spends. One of them would be
/// enough to replace it, but a coin that was dropped would look free while the old transaction can still be mined.
///
/// The additional fee comes out of the change, then out of further coins. The change keeps its script: give that to
/// [`super::plan`] again, or a script of the kind `otherwise` where there was no change.
pub fn replacement(
    old: &Waiting,
    terms: ReplacementTerms,
    costs: Costs,
    otherwise: ScriptKind,
) -> Result<Target, SpendError> {
    if old.coins.is_empty() {
        return Err(SpendError::Contradiction("the old transaction spends nothing"));
    }
    if old.weight == 0 || old.weight > MOST_WEIGHT {
        return Err(SpendError::Contradiction("the old transaction has no weight that nodes pass on"));
    }
    let change = match &old.change {
        None => otherwise,
        Some(change) => ScriptKind::of(kind_of_script(&change.script))
            .ok_or(SpendError::Contradiction("the old change is not ours to spend"))?,
    };
    let replaced = Replaced {
        coins: old.coins.clone(),
        fee: old.fee()?,
        weight: old.weight,
        evicted_fee: terms.evicted_fee,
        increment: terms.increment,
        at_least: terms.at_least,
    };
    Ok(Target { recipients: old.recipients.clone(), change, costs, aim: Aim::Replace(replaced) })
}

/// A child that moves an unconfirmed output of ours to a script of ours, with a fee that brings both, and all that they
/// depend on, to the wanted rate. An output that is too small for that gets further coins beside it.
pub const fn child(coin: Coin, ancestors: PackageFacts, relay: u64, costs: Costs, to: ScriptKind) -> Target {
    let aim = Aim::Push(Pushed { coin, ancestors, relay });
    Target { recipients: Vec::new(), change: to, costs, aim }
}
