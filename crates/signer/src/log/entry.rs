//! What the log keeps, as JSON: it is read by people and by other programs, and replayed at every start. An approval says
//! what it changed (slots, counters, amounts), so a replay does not depend on rules that may since have changed.

use std::fmt;

use domain::{ChainName, Timestamp};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use tx::Payment;

use crate::approved::SignerChain;
use crate::intent::{Intent, IntentKind, Owner, coin_text};
use crate::names::{GroupId, JobId, KeyName, Person, RequestId, SignerName};
use crate::policy::file::{address, coin};
use crate::slots::{JobRecord, is_default};
use crate::text::{Hash, RawText, SpentOutput};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum Entry {
    Approved { decision: Decision, effects: Effects },
    Refused { decision: Decision, code: String, why: String },
    Policy { at: i64, text: String, effective: i64, signed_by: Vec<Person> },
    Revoked { at: i64, digest: Hash, person: Person, key: KeyName },
}

/// What an entry is, which is written first.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Approved,
    Refused,
    Policy,
    Revoked,
}

#[derive(Deserialize)]
struct ApprovedFields {
    decision: Decision,
    effects: Effects,
}

#[derive(Deserialize)]
struct RefusedFields {
    decision: Decision,
    code: String,
    why: String,
}

#[derive(Deserialize)]
struct PolicyFields {
    at: i64,
    text: String,
    effective: i64,
    signed_by: Vec<Person>,
}

#[derive(Deserialize)]
struct RevokedFields {
    at: i64,
    digest: Hash,
    person: Person,
    key: KeyName,
}

/// A start reads tens of thousands of entries. What serde makes for a tag would first keep all that follows it aside; every version of ours has written the
/// tag first, so what follows is read straight to its place, and a tag elsewhere is no entry.
impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntryVisitor)
    }
}

struct EntryVisitor;

impl<'de> Visitor<'de> for EntryVisitor {
    type Value = Entry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an entry, which first says what it is")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entry, A::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum First {
            Entry,
        }
        let Some((First::Entry, kind)) = map.next_entry()? else {
            return Err(de::Error::missing_field("entry"));
        };
        let rest = MapAccessDeserializer::new(map);
        Ok(match kind {
            Kind::Approved => {
                let ApprovedFields { decision, effects } = Deserialize::deserialize(rest)?;
                Entry::Approved { decision, effects }
            }
            Kind::Refused => {
                let RefusedFields { decision, code, why } = Deserialize::deserialize(rest)?;
                Entry::Refused { decision, code, why }
            }
            Kind::Policy => {
                let PolicyFields { at, text, effective, signed_by } = Deserialize::deserialize(rest)?;
                Entry::Policy { at, text, effective, signed_by }
            }
            Kind::Revoked => {
                let RevokedFields { at, digest, person, key } = Deserialize::deserialize(rest)?;
                Entry::Revoked { at, digest, person, key }
            }
        })
    }
}

/// What was asked, when, and which rule of which policy decided it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// Microseconds on the signer's own clock.
    pub at: i64,
    pub request: RequestId,
    /// [`crate::intent::SignRequest::digest`].
    pub content: Hash,
    /// 0 if there is none.
    pub policy: u64,
    pub rule: String,
    pub chain: String,
    pub group: GroupId,
    pub intents: Vec<IntentText>,
    /// Those that were good.
    #[serde(default, skip_serializing_if = "is_default")]
    pub approvals: Vec<ApprovalText>,
    /// What the payload can cost; nothing if it was not read.
    #[serde(default, skip_serializing_if = "is_default")]
    pub fee: Option<RawText>,
    /// Of that, what counts.
    #[serde(default, skip_serializing_if = "is_default")]
    pub fee_added: RawText,
    /// The numbers of the wallets that pay, and of those that change goes to; none if it was not read.
    #[serde(default, skip_serializing_if = "is_default")]
    pub indexes: Vec<u64>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub change: Vec<u64>,
    /// The jobs that were signed before in the same slot.
    #[serde(default, skip_serializing_if = "is_default")]
    pub again: Vec<JobId>,
}

/// What an approval changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effects {
    pub payload: Hash,
    pub jobs: Vec<(JobId, JobRecord)>,
    /// Coins and amounts that count against caps.
    #[serde(default, skip_serializing_if = "is_default")]
    pub counted: Vec<(String, RawText)>,
    /// Inputs and their satoshi.
    #[serde(default, skip_serializing_if = "is_default")]
    pub amounts: Vec<(SpentOutput, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalText {
    pub digest: Hash,
    pub key: KeyName,
    pub person: Person,
    #[serde(default, skip_serializing_if = "is_default")]
    pub counter: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntentText {
    pub job: JobId,
    #[serde(default, skip_serializing_if = "is_default")]
    pub round: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub pay: Option<PayText>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub cancels: Vec<JobId>,
    pub most_fee: RawText,
    pub expires: i64,
    pub builds: u32,
    pub requester: Person,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PayText {
    pub coin: String,
    pub to: String,
    pub amount: RawText,
    #[serde(default, skip_serializing_if = "is_default")]
    pub owner: Option<(GroupId, u64)>,
}

impl From<&Intent> for IntentText {
    fn from(intent: &Intent) -> Self {
        let (pay, cancels) = match &intent.kind {
            IntentKind::Pay { payment, owner } => {
                let owner = owner.as_ref().map(|owner| (owner.group.clone(), owner.index));
                let (coin, to) = (coin_text(&payment.coin), payment.to.to_string());
                (Some(PayText { coin, to, amount: RawText(payment.amount), owner }), Vec::new())
            }
            IntentKind::Cancel { jobs } => (None, jobs.clone()),
        };
        Self {
            job: intent.job,
            round: intent.round,
            pay,
            cancels,
            most_fee: RawText(intent.most_fee),
            expires: intent.expires.micros(),
            builds: intent.builds,
            requester: intent.requester.clone(),
        }
    }
}

impl IntentText {
    /// The intent again. `None`: it speaks of addresses that this chain does not have.
    pub fn read(&self, signer: &SignerName, name: &ChainName, group: &GroupId, chain: SignerChain) -> Option<Intent> {
        let kind = match &self.pay {
            Some(pay) => IntentKind::Pay {
                payment: Payment {
                    to: address(&pay.to, chain).ok()?,
                    coin: coin(&pay.coin, chain).ok()?,
                    amount: pay.amount.0,
                },
                owner: pay.owner.clone().map(|(group, index)| Owner { group, index }),
            },
            None => IntentKind::Cancel { jobs: self.cancels.clone() },
        };
        Some(Intent {
            signer: signer.clone(),
            network: chain,
            job: self.job,
            round: self.round,
            chain: name.clone(),
            group: group.clone(),
            kind,
            most_fee: self.most_fee.0,
            expires: Timestamp::from_micros(self.expires),
            builds: self.builds,
            requester: self.requester.clone(),
        })
    }
}

impl Entry {
    pub const fn at(&self) -> Timestamp {
        match self {
            Self::Approved { decision, .. } | Self::Refused { decision, .. } => Timestamp::from_micros(decision.at),
            Self::Policy { at, .. } | Self::Revoked { at, .. } => Timestamp::from_micros(*at),
        }
    }
}
