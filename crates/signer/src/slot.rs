//! A slot: what of the chain only one transaction can take. Outside it is its one text, `bsc:0x…:7` for a nonce and
//! `bitcoin:<transaction>:<output>` for an input; it is remembered in thirty-two or forty bytes.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use domain::ChainName;
use serde::{Deserialize, Serialize};

use crate::text::{Hash, SpentOutput};

/// What is taken on a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Nonce { account: [u8; 20], nonce: u64 },
    Input(SpentOutput),
}

/// The order of their texts, in which operators sign them: output 10 stands before output 2.
impl Ord for Place {
    fn cmp(&self, other: &Self) -> Ordering {
        let texts = |one: &dyn ToString, other: &dyn ToString| one.to_string().cmp(&other.to_string());
        match (self, other) {
            (Self::Nonce { .. }, Self::Input(_)) => Ordering::Less,
            (Self::Input(_), Self::Nonce { .. }) => Ordering::Greater,
            (Self::Nonce { account, nonce }, Self::Nonce { account: other, nonce: than }) => {
                account.cmp(other).then_with(|| texts(nonce, than))
            }
            (Self::Input(one), Self::Input(other)) => one.0.cmp(&other.0).then_with(|| texts(&one.1, &other.1)),
        }
    }
}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// What is taken, and on which chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    pub chain: ChainName,
    pub place: Place,
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Nonce { account, nonce } => {
                write!(f, "{}:{}:{nonce}", self.chain, tx::Address::Evm((*account).into()))
            }
            Place::Input(output) => write!(f, "{}:{output}", self.chain),
        }
    }
}

impl FromStr for Slot {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || {
            let (chain, rest) = text.split_once(':')?;
            let chain: ChainName = chain.parse().ok()?;
            let place = match rest.split_once(':')? {
                (account, nonce) if account.starts_with("0x") => {
                    let account = tx::evm::address::parse(account).ok()?.into_array();
                    Place::Nonce { account, nonce: nonce.parse().ok()? }
                }
                _ => Place::Input(rest.parse().ok()?),
            };
            Some(Self { chain, place })
        };
        // It has one text: capitals, zeros and signs that mean the same do not stand for it.
        let slot = read().filter(|slot| slot.to_string() == text);
        slot.ok_or_else(|| "a slot is a chain, an account or a transaction, and a number".to_owned())
    }
}

/// What a job holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", try_from = "HeldText")]
pub enum Held {
    Nonce(Slot),
    /// Inputs that every transaction of the job has spent.
    Inputs(Vec<Slot>),
    /// Microseconds: when the last transaction of the job ends.
    Until(i64),
}

/// [`Held`] as the log has it, before it is known to be one.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum HeldText {
    Nonce(Slot),
    Inputs(Vec<Slot>),
    Until(i64),
}

impl TryFrom<HeldText> for Held {
    type Error = &'static str;

    fn try_from(text: HeldText) -> Result<Self, Self::Error> {
        let is_nonce = |slot: &Slot| matches!(slot.place, Place::Nonce { .. });
        match text {
            HeldText::Nonce(slot) if is_nonce(&slot) => Ok(Self::Nonce(slot)),
            HeldText::Inputs(core) if !core.iter().any(is_nonce) => Ok(Self::Inputs(core)),
            HeldText::Until(micros) => Ok(Self::Until(micros)),
            HeldText::Nonce(_) | HeldText::Inputs(_) => Err("a nonce is no input, and an input no nonce"),
        }
    }
}

impl Held {
    /// As an operator signs it.
    pub fn text(&self) -> String {
        match self {
            Self::Nonce(slot) => slot.to_string(),
            Self::Inputs(core) => core.iter().map(Slot::to_string).collect::<Vec<_>>().join(","),
            Self::Until(micros) => micros.to_string(),
        }
    }

    pub fn slots(&self) -> &[Slot] {
        match self {
            Self::Nonce(slot) => std::slice::from_ref(slot),
            Self::Inputs(core) => core,
            Self::Until(_) => &[],
        }
    }
}

/// A nonce in memory: its chain's number, and bytes in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KeptNonce {
    pub chain: [u8; 4],
    pub account: [u8; 20],
    pub nonce: [u8; 8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KeptInput {
    pub chain: [u8; 4],
    pub transaction: [u8; 32],
    pub output: [u8; 4],
}

impl KeptNonce {
    pub(crate) const fn place(&self) -> Place {
        Place::Nonce { account: self.account, nonce: u64::from_be_bytes(self.nonce) }
    }
}

impl KeptInput {
    pub(crate) const fn place(&self) -> Place {
        Place::Input(SpentOutput(tx::TxHash(self.transaction), u32::from_be_bytes(self.output)))
    }
}

/// One or the other, of a chain that has a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum KeptSlot {
    Nonce(KeptNonce),
    Input(KeptInput),
}

/// The names of chains by their numbers. A number never changes its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chains(Vec<ChainName>);

impl Chains {
    pub(crate) fn names(&self) -> &[ChainName] {
        &self.0
    }

    /// `None`: there are two of one name.
    pub(crate) fn of(names: Vec<ChainName>) -> Option<Self> {
        let distinct: std::collections::BTreeSet<&ChainName> = names.iter().collect();
        (distinct.len() == names.len()).then_some(Self(names))
    }

    pub(crate) fn number(&self, name: &ChainName) -> Option<[u8; 4]> {
        let place = self.0.iter().position(|one| one == name)?;
        u32::try_from(place).ok().map(u32::to_be_bytes)
    }

    /// The chain's number, which it gets here if it has none.
    pub(crate) fn keep(&mut self, name: &ChainName) -> [u8; 4] {
        self.number(name).unwrap_or_else(|| {
            self.0.push(name.clone());
            // Memory ends before four thousand million names.
            u32::try_from(self.0.len() - 1).unwrap_or(u32::MAX).to_be_bytes()
        })
    }

    pub(crate) fn name(&self, number: [u8; 4]) -> Option<&ChainName> {
        self.0.get(usize::try_from(u32::from_be_bytes(number)).ok()?)
    }
}

impl Place {
    pub(crate) const fn kept(&self, chain: [u8; 4]) -> KeptSlot {
        match self {
            Self::Nonce { account, nonce } => {
                KeptSlot::Nonce(KeptNonce { chain, account: *account, nonce: nonce.to_be_bytes() })
            }
            Self::Input(SpentOutput(transaction, output)) => {
                KeptSlot::Input(KeptInput { chain, transaction: transaction.0, output: output.to_be_bytes() })
            }
        }
    }
}

/// What a job holds, in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeptHeld {
    Nonce(KeptNonce),
    Inputs(Box<[KeptInput]>),
    Until(Box<KeptUntil>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptUntil {
    pub micros: i64,
    /// SHA-256 of the payload, which is the slot where there is none: asked again, the same bytes are the same transaction.
    pub payload: Hash,
}
