//! What is answered, and the smaller questions with their answers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{ApprovalBody, HeadBody, HexText};
use crate::names::{GroupId, JobId, Person, RequestId};
use crate::policy::signed::PolicySignature;
use crate::text::Hash;

/// What became of a batch, in its order.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct BatchAnswerBody {
    pub answers: Vec<AnswerBody>,
    pub head: HeadBody,
}

/// What became of one request: `signed_tx` and `tx_hash`, or `refused`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AnswerBody {
    #[schema(value_type = String)]
    pub id: RequestId,
    /// What nodes take: hexadecimal digits, on EVM chains with `0x`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed_tx: Option<String>,
    /// The hash that nodes will know it by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx_hash: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusedBody>,
    /// The version of the policy that decided; 0 if there is none.
    pub policy: u64,
    /// The rule that decided.
    pub rule: String,
}

/// Why not.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RefusedBody {
    /// A page of docs/errors.
    pub code: String,
    pub message: String,
    /// A transaction was signed for this id earlier, and may be out: the refusal says nothing about it.
    pub signed_before: bool,
    /// Of SIGNER_SLOT_TAKEN: the job that has the slot, wr-… or job-…. A cancel that names it shares the slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub holder: Option<JobId>,
}

/// The single form's answer.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SingleAnswerBody {
    #[serde(flatten)]
    pub answer: AnswerBody,
    pub head: HeadBody,
}

/// Addresses of one group.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddressesBody {
    #[schema(value_type = String)]
    pub wallet_group_id: GroupId,
    /// Users' numbers, or the indexes of operation wallets: at most 10,000.
    pub derivation_indexes: Vec<u64>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct AddressesAnswerBody {
    /// In the order of the numbers.
    pub addresses: Vec<String>,
    pub head: HeadBody,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct GroupsAnswerBody {
    pub groups: Vec<GroupBody>,
    pub head: HeadBody,
}

/// A wallet group, as everybody may know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupBody {
    pub id: String,
    /// deposit, hot, gas or treasury.
    pub purpose: String,
    /// evm, tron, bitcoin, or one of Bitcoin's test networks.
    pub chain: String,
    pub account: u32,
    pub path: String,
    pub xpub: String,
}

/// A policy with its administrators' signatures.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyBody {
    /// The file, byte for byte.
    pub text: String,
    pub signatures: Vec<SignatureBody>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignatureBody {
    #[schema(value_type = String)]
    pub by: Person,
    #[schema(value_type = String)]
    pub signature: HexText,
}

impl From<SignatureBody> for PolicySignature {
    fn from(body: SignatureBody) -> Self {
        Self { by: body.by, signature: body.signature.0 }
    }
}

/// Which policy holds, and which one waits for its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyAnswerBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force: Option<PolicyVersionBody>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<PolicyVersionBody>,
    pub head: HeadBody,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyVersionBody {
    pub version: u64,
    #[schema(value_type = String, pattern = "^[0-9a-f]{64}$")]
    pub sha256: Hash,
    /// From when it holds: microseconds since 1970.
    pub effective: i64,
}

/// A person takes an approval back.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeBody {
    /// The digest that was approved.
    #[schema(value_type = String, pattern = "^[0-9a-f]{64}$")]
    pub approved: Hash,
    /// The person's signature of the revocation's digest.
    pub revocation: ApprovalBody,
}

/// Whether the log contains a head that the asker was given.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HeadQuestionBody {
    pub pinned: HeadBody,
}

/// What was signed of some jobs.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RoundsBody {
    /// `wr-…` and `job-…`: at most 2,048.
    #[schema(value_type = Vec<String>)]
    pub jobs: Vec<JobId>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RoundsAnswerBody {
    /// In the order of the jobs: in how many slots each was signed. null: it was made in a time that is forgotten.
    pub rounds: Vec<Option<u32>>,
    pub head: HeadBody,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct DoneBody {
    pub head: HeadBody,
}

/// What went wrong with a call.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    pub error: ErrorWords,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<HeadBody>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ErrorWords {
    /// A page of docs/errors.
    pub code: String,
    pub message: String,
    pub docs: String,
}
