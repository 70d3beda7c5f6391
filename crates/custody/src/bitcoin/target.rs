//! What a transaction has to do, and the arithmetic of its size and of its fee: integers only.

use std::slice;

use ::bitcoin::{Amount, Script, ScriptBuf};
use store::utxo::{AddressKind, Coin};
use tx::BuildError;
use tx::bitcoin::transaction::MOST_FEE;
use tx::bitcoin::{MOST_FEE_PER_KVB, MOST_WEIGHT, PackageFacts, cpfp_fee};

/// Satoshi to a script: a payment, or change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Recipient {
    // The order of the fields is the order that BIP 69 gives to outputs.
    pub amount: u64,
    pub script: Vec<u8>,
}

/// The scripts that we can sign for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScriptKind {
    P2wpkh,
    P2tr,
}

/// Outpoint, length of an empty script, sequence number.
const BARE_INPUT_WEIGHT: u64 = 4 * (36 + 1 + 4);

impl ScriptKind {
    /// `None`: a script that we cannot sign for.
    pub const fn of(kind: AddressKind) -> Option<Self> {
        match kind {
            AddressKind::P2wpkh => Some(Self::P2wpkh),
            AddressKind::P2tr => Some(Self::P2tr),
            AddressKind::Other => None,
        }
    }

    /// Weight of an input that spends it, with its signature at its largest.
    pub const fn input_weight(self) -> u64 {
        BARE_INPUT_WEIGHT
            + match self {
                // Count of items; signature and public key, each with its length.
                Self::P2wpkh => 1 + 1 + 72 + 1 + 33,
                Self::P2tr => 1 + 1 + 64,
            }
    }

    const fn script_length(self) -> u64 {
        match self {
            Self::P2wpkh => 22,
            Self::P2tr => 34,
        }
    }

    pub const fn output_weight(self) -> u64 {
        4 * (8 + 1 + self.script_length())
    }

    /// Nodes do not pass on a transaction with an output below this.
    pub fn dust(self) -> u64 {
        let program = match self {
            Self::P2wpkh => [&[0, 20][..], &[0; 20]].concat(),
            Self::P2tr => [&[0x51, 32][..], &[0; 32]].concat(),
        };
        ScriptBuf::from_bytes(program).minimal_non_dust().to_sat()
    }
}

/// What may be spent on fees. Rates are satoshi per 1,000 virtual bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    pub rate: u64,
    /// What we expect to pay in quiet times: the price of spending the change later.
    pub long_term_rate: u64,
    /// Satoshi; a transaction that would cost more is not made.
    pub most_fee: u64,
}

/// What a transaction has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub recipients: Vec<Recipient>,
    /// The script itself is only needed once there is change: see [`super::plan`].
    pub change: ScriptKind,
    pub costs: Costs,
    pub aim: Aim,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Aim {
    Pay,
    Replace(Replaced),
    Push(Pushed),
}

/// A transaction that waits and is to be replaced: BIP 125.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// All of its inputs, which all stay.
    pub coins: Vec<Coin>,
    pub fee: u64,
    /// As it was signed.
    pub weight: u64,
    /// Fees of all that builds on it and leaves the mempools with it.
    pub evicted_fee: u64,
    /// What a replacement pays for its own size, per 1,000 virtual bytes.
    pub increment: u64,
    /// The least fee by the word of a node; zero if none was asked.
    pub at_least: u64,
}

/// An unconfirmed output of ours whose transaction is stuck.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pushed {
    pub coin: Coin,
    /// The transaction that makes it, and all that this one depends on.
    pub ancestors: PackageFacts,
    /// The least rate that nodes pass on.
    pub relay: u64,
}

/// Why there is no transaction. Each has a page in `docs/errors/`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpendError {
    #[error("the coins hold {available} satoshi, {missing} too few")]
    InsufficientFunds { available: u64, missing: u64 },
    #[error("there is nothing to pay")]
    NothingToPay,
    #[error("a payment of {amount} satoshi is dust: nodes pass on {least} or more to that script")]
    Dust { amount: u64, least: u64 },
    #[error("the request contradicts itself: {0}")]
    Contradiction(&'static str),
    #[error("the transaction cannot be built")]
    NotBuilt(#[from] BuildError),
    #[error("the transaction would weigh {weight} units, more than the {MOST_WEIGHT} that nodes pass on")]
    TooLarge { weight: u64 },
    #[error("the fee would be {fee} satoshi, more than the {cap} that it may be")]
    FeeOverCap { fee: u64, cap: u64 },
}

impl SpendError {
    /// The name of its page in `docs/errors/`.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::InsufficientFunds { .. } => "UTXO_INSUFFICIENT_FUNDS",
            Self::NothingToPay | Self::Dust { .. } | Self::Contradiction(_) | Self::NotBuilt(_) => "UTXO_BAD_TARGET",
            Self::TooLarge { .. } => "UTXO_TOO_LARGE",
            Self::FeeOverCap { .. } => "UTXO_FEE_OVER_CAP",
        }
    }

    /// What the reader should do next.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::InsufficientFunds { .. } => {
                "pay less, pay a lower rate, or wait for coins that are leased or unconfirmed"
            }
            Self::NothingToPay | Self::Dust { .. } | Self::Contradiction(_) | Self::NotBuilt(_) => {
                "correct the request; nothing was made"
            }
            Self::TooLarge { .. } => "pay in several transactions, or first merge small coins into a large one",
            Self::FeeOverCap { .. } => "wait until the network asks for less, or allow a higher fee",
        }
    }
}

/// Satoshi for so much weight, which counts in whole virtual bytes; rounded up, as Bitcoin Core rounds.
pub(super) fn fee_at(rate: u64, weight: u64) -> u64 {
    let fee = (u128::from(rate) * u128::from(weight.div_ceil(4))).div_ceil(1_000);
    u64::try_from(fee).unwrap_or(u64::MAX)
}

/// Bytes of the number of items that stands before a list.
const fn count_length(count: u64) -> u64 {
    match count {
        0..=0xfc => 1,
        0xfd..=0xffff => 3,
        _ => 5,
    }
}

/// What some inputs hold and weigh together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub held: u64,
    pub inputs: u64,
    pub weight: u64,
}

impl Tally {
    pub const fn with(self, amount: u64, weight: u64) -> Self {
        Self {
            held: self.held.saturating_add(amount),
            inputs: self.inputs.saturating_add(1),
            weight: self.weight.saturating_add(weight),
        }
    }

    /// `None`: one of the coins is not ours to spend.
    pub fn of_coins<'a>(coins: impl IntoIterator<Item = &'a Coin>) -> Option<Self> {
        coins.into_iter().try_fold(Self::default(), |tally, coin| {
            let amount = u64::try_from(coin.amount).ok().filter(|&amount| amount > 0)?;
            Some(tally.with(amount, ScriptKind::of(coin.kind)?.input_weight()))
        })
    }
}

/// How the money of a choice of coins is split: what the payments leave is change and fee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Split {
    pub change: Option<u64>,
    pub fee: u64,
    pub weight: u64,
}

/// A target that was checked, with everything about it that does not depend on the choice.
pub(super) struct Frame<'a> {
    pub target: &'a Target,
    pub paid: u64,
    /// The inputs that the transaction has in any case.
    pub kept: Tally,
    /// What spending the change will cost.
    pub spend_cost: u64,
    dust: u64,
    outputs: u64,
    output_weight: u64,
}

impl<'a> Frame<'a> {
    pub fn of(target: &'a Target) -> Result<Self, SpendError> {
        if target.costs.rate > MOST_FEE_PER_KVB || target.costs.long_term_rate > MOST_FEE_PER_KVB {
            return Err(SpendError::Contradiction("a fee rate beyond all reason"));
        }
        if target.recipients.is_empty() && !target.is_sweep() {
            return Err(SpendError::NothingToPay);
        }
        let kept = Tally::of_coins(target.kept())
            .ok_or(SpendError::Contradiction("an input that has to stay is not ours to spend"))?;
        let mut frame = Self {
            target,
            paid: 0,
            kept,
            spend_cost: fee_at(target.costs.long_term_rate, target.change.input_weight()),
            dust: target.change.dust(),
            outputs: 0,
            output_weight: 0,
        };
        target.recipients.iter().try_for_each(|recipient| frame.add(recipient))?;
        let weight = frame.weight(frame.kept, false);
        if weight > MOST_WEIGHT { Err(SpendError::TooLarge { weight }) } else { Ok(frame) }
    }

    fn add(&mut self, recipient: &Recipient) -> Result<(), SpendError> {
        let length = u64::try_from(recipient.script.len()).unwrap_or(u64::MAX);
        let weight = 4_u64.saturating_mul(length.saturating_add(8 + count_length(length)));
        self.output_weight = self.output_weight.saturating_add(weight);
        self.outputs += 1;
        if self.output_weight > MOST_WEIGHT {
            return Err(SpendError::TooLarge { weight: self.output_weight });
        }
        let least = Script::from_bytes(&recipient.script).minimal_non_dust().to_sat().max(1);
        if recipient.amount < least {
            return Err(SpendError::Dust { amount: recipient.amount, least });
        }
        self.paid = self
            .paid
            .checked_add(recipient.amount)
            .filter(|&paid| paid <= Amount::MAX_MONEY.to_sat())
            .ok_or(SpendError::Contradiction("payments of more money than there is"))?;
        Ok(())
    }

    /// The weight once signed, at most. The same as `tx::bitcoin::estimated_weight`, without making a transaction.
    pub const fn weight(&self, inputs: Tally, change: bool) -> u64 {
        let (outputs, change_weight) =
            if change { (self.outputs + 1, self.target.change.output_weight()) } else { (self.outputs, 0) };
        // Version, lock time and the two counts; marker and flag of a transaction that has witnesses.
        let rest = 4 * (4 + 4 + count_length(inputs.inputs) + count_length(outputs)) + 2;
        rest + inputs.weight + self.output_weight + change_weight
    }

    /// The least fee of a transaction of this weight.
    pub fn least_fee(&self, weight: u64) -> u64 {
        let rate = self.target.costs.rate;
        match &self.target.aim {
            Aim::Pay => fee_at(rate, weight),
            Aim::Replace(old) => fee_at(rate, weight).max(old.least_fee(weight)),
            Aim::Push(stuck) => cpfp_fee(stuck.ancestors, weight.div_ceil(4), rate, stuck.relay),
        }
    }

    /// What one more weight unit costs, in satoshi per 4,000 units: a coin that does not bring more than that is left.
    pub fn marginal_rate(&self) -> u64 {
        match &self.target.aim {
            Aim::Pay => self.target.costs.rate,
            Aim::Replace(old) => self.target.costs.rate.max(old.increment),
            Aim::Push(stuck) => self.target.costs.rate.max(stuck.relay),
        }
    }

    /// The caller's cap, or what is sane for the size if that is less. A child that pushes a large parent, or a small
    /// transaction that gives away what is too little for change, can keep the one and pass the other.
    fn most_fee(&self, weight: u64) -> u64 {
        let sane = MOST_FEE_PER_KVB.saturating_mul(weight.div_ceil(4)) / 1_000;
        self.target.costs.most_fee.min(MOST_FEE).min(sane)
    }

    /// Change and fee of a choice; `None` when it holds too little.
    ///
    /// There is change when it is worth more than it will cost to spend, and is no dust. A smaller rest goes to the
    /// fee, unless that would lift the fee over its cap.
    pub fn split(&self, inputs: Tally) -> Option<Split> {
        let (bare, full) = (self.weight(inputs, false), self.weight(inputs, true));
        let unpaid = inputs.held.checked_sub(self.paid)?;
        let change = unpaid.checked_sub(self.least_fee(full)).filter(|&change| change >= self.dust);
        let alone = !self.target.recipients.is_empty() && unpaid >= self.least_fee(bare);
        match change {
            Some(change) if !alone || change > self.spend_cost || unpaid > self.most_fee(bare) => {
                Some(Split { change: Some(change), fee: unpaid - change, weight: full })
            }
            _ if alone => Some(Split { change: None, fee: unpaid, weight: bare }),
            _ => None,
        }
    }

    /// The fee, and what spending the change will cost.
    pub fn long_term_fee(&self, split: Split) -> i128 {
        let later = if split.change.is_some() { self.spend_cost } else { 0 };
        i128::from(split.fee) + i128::from(later)
    }

    /// What these inputs lack. Positive whenever [`Frame::split`] has no answer.
    pub fn missing(&self, inputs: Tally) -> u64 {
        let sweep = self.target.is_sweep();
        let change = if sweep { self.dust } else { 0 };
        let fee = self.least_fee(self.weight(inputs, sweep));
        self.paid.saturating_add(change).saturating_add(fee).saturating_sub(inputs.held).max(1)
    }

    /// The split, if it keeps the limits.
    pub fn permitted(&self, split: Split) -> Result<Split, SpendError> {
        let cap = self.most_fee(split.weight);
        if split.weight > MOST_WEIGHT {
            Err(SpendError::TooLarge { weight: split.weight })
        } else if split.fee > cap {
            Err(SpendError::FeeOverCap { fee: split.fee, cap })
        } else {
            Ok(split)
        }
    }
}

impl Target {
    /// The inputs that it has in any case.
    pub fn kept(&self) -> &[Coin] {
        match &self.aim {
            Aim::Pay => &[],
            Aim::Replace(old) => &old.coins,
            Aim::Push(stuck) => slice::from_ref(&stuck.coin),
        }
    }

    /// A child that pushes its parent pays only us: its one output is the change.
    pub(super) const fn is_sweep(&self) -> bool {
        match self.aim {
            Aim::Push(_) => self.recipients.is_empty(),
            Aim::Pay | Aim::Replace(_) => false,
        }
    }

    /// Inputs that are added to a waiting transaction must be in a block: BIP 125 demands it of replacements (rule 2),
    /// and a child with other unconfirmed parents would have to pay for those as well.
    pub(super) const fn wants_confirmed(&self) -> bool {
        match self.aim {
            Aim::Pay => false,
            Aim::Replace(_) | Aim::Push(_) => true,
        }
    }

    /// What further coins have to hold, the cost of spending them not counted: for `Want::target` of the store.
    pub fn wanted(&self) -> Result<i64, SpendError> {
        let frame = Frame::of(self)?;
        Ok(i64::try_from(frame.missing(frame.kept)).unwrap_or(i64::MAX))
    }
}

impl Replaced {
    /// BIP 125: it pays for all that leaves (rule 3) and for its own size (rule 4). Besides, nodes want its rate above
    /// that of what it replaces, however many inputs were added.
    fn least_fee(&self, weight: u64) -> u64 {
        let relayed = self.fee.saturating_add(self.evicted_fee).saturating_add(fee_at(self.increment, weight));
        let same_rate = u128::from(self.fee) * u128::from(weight) / u128::from(self.weight.max(1));
        let better_rate = u64::try_from(same_rate).unwrap_or(u64::MAX).saturating_add(1);
        relayed.max(better_rate).max(self.at_least)
    }
}
