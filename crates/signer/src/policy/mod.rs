//! What the signer may sign, whoever asks: a file with a version, signed by its administrators.
//!
//! | module | holds |
//! |---|---|
//! | this one | the policy's words |
//! | [`file`] | its TOML, and what makes a file no policy |
//! | [`judge`] | whether a reading is allowed, by which rule |
//! | [`tighter`] | whether one policy allows nothing that another does not |
//! | [`signed`] | administrators' signatures, what is in force, and what waits |
//! | [`simulate`] | what a draft would have decided otherwise |

pub mod file;
pub mod judge;
pub mod signed;
pub mod simulate;
pub mod tighter;

use std::collections::{BTreeMap, BTreeSet};

use domain::{ChainName, RawAmount};
use tx::{Address, Coin};

use crate::approved::SignerChain;
use crate::digest::Digest32;
use crate::keys::Purpose;
use crate::names::{GroupId, KeyName, Person, SignerName};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Deposit,
    Hot,
    Gas,
    Treasury,
}

impl Role {
    /// What keys must have been made for, to have this role.
    pub const fn purpose(self) -> Purpose {
        match self {
            Self::Deposit => Purpose::Deposit,
            Self::Hot => Purpose::Hot,
            Self::Gas => Purpose::Gas,
            Self::Treasury => Purpose::Treasury,
        }
    }
}

/// Caps on what goes out without approvals. Each counts the whole group and one coin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caps {
    /// Of one payment: on EVM and TRON one transaction, on Bitcoin one payout.
    pub payment: RawAmount,
    pub hour: RawAmount,
    pub day: RawAmount,
}

/// So many different people of a list, for payments up to an amount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub up_to: RawAmount,
    pub approvals: usize,
    pub of: BTreeSet<Person>,
}

/// What a group may send of a coin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoinRule {
    /// `None` for a deposit group, whose money stays with us.
    pub free: Option<Caps>,
    /// In rising order of amounts.
    pub steps: Vec<Step>,
}

/// A wallet group on one chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub role: Role,
    pub coins: BTreeMap<Coin, CoinRule>,
    /// Of one transaction, in the chain's own coin.
    pub most_fee: RawAmount,
    /// Of all transactions of a day.
    pub most_fee_day: RawAmount,
    /// Our own wallets of this group that others pay have at most this number. Of a deposit group it is not asked: its numbers
    /// are users'.
    pub highest_index: u64,
    /// Hot: if there, only these. Treasury: the cold addresses.
    pub destinations: Option<BTreeSet<Address>>,
}

/// A passkey, and where it may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passkey {
    /// The point: 4, x and y.
    pub public: Vec<u8>,
    pub relying_party: String,
    pub origins: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublicKey {
    Ed25519([u8; 32]),
    Passkey(Passkey),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approver {
    pub person: Person,
    pub key: PublicKey,
}

/// Those who may change the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Administrators {
    pub needed: usize,
    pub keys: BTreeMap<Person, [u8; 32]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Never changes.
    pub signer: SignerName,
    pub version: u64,
    /// Of the file's bytes.
    pub hash: Digest32,
    pub cooling_off_us: i64,
    /// No intent may expire later than so long from now.
    pub most_intent_life_us: i64,
    /// No TRON payload may expire later than so long from now.
    pub most_tron_life_us: i64,
    /// A TRON transaction counts as past only so long after its expiry.
    pub tron_margin_us: i64,
    /// TRON: under one approval no more transactions are built than so many, whatever the intent says that people signed.
    pub most_tron_builds: u32,
    pub administrators: Administrators,
    pub approvers: BTreeMap<KeyName, Approver>,
    /// Who may move a job to another slot.
    pub operators: BTreeSet<Person>,
    pub chains: BTreeMap<ChainName, SignerChain>,
    /// A group with a chain: an EVM group may have several.
    pub groups: BTreeMap<(GroupId, ChainName), Group>,
}

/// Where the change of a wallet may always go: `1/0`, which BIP-84 puts beside the address `0/0`.
pub const FIRST_CHANGE: u64 = 1 << 31;

impl Group {
    /// Whether coins may go to this number of the group, so that they are found again. A number has 62 bits, and what lies at one
    /// that nobody else knows is in the hands of whoever chose it.
    pub const fn may_hold(&self, index: u64) -> bool {
        matches!(self.role, Role::Deposit) || index <= self.highest_index
    }
}

impl Policy {
    pub fn group(&self, id: &GroupId, chain: &ChainName) -> Option<&Group> {
        self.groups.get(&(id.clone(), chain.clone()))
    }
}
