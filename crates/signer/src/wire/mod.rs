//! Requests and answers as JSON: what the service reads and the client writes, and the other way round. Answers are in [`answer`]. Amounts are decimal text, bytes
//! hexadecimal digits. A member that nobody knows makes a request malformed: it may be what mattered most to its sender.

pub mod answer;

use std::fmt;

use domain::{ChainName, Timestamp};
use serde::de::{self, Deserializer, IgnoredAny};
use serde::{Deserialize, Serialize, Serializer};
use tx::Payment;
use utoipa::ToSchema;

use crate::approval::{GivenApproval, Proof};
use crate::approved::SignerChain;
use crate::digest::{hex, unhex};
use crate::intent::{BitcoinTerms, Intent, IntentKind, Owner, SignRequest, coin_text};
use crate::log::Head;
use crate::names::{GroupId, JobId, KeyName, Person, RequestId, SignerName};
use crate::policy::file::{address, coin};
use crate::slots::is_default;
use crate::text::{Hash, RawText};
pub use answer::*;

/// The most requests in one call.
pub const MOST_REQUESTS: usize = 1_024;
/// The most addresses in one call.
pub const MOST_ADDRESSES: usize = 10_000;
/// Jobs of one question about what was signed.
pub const MOST_ROUNDS: usize = 2_048;

/// Why a body cannot be taken. Nothing of it was done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadBody(pub String);

fn bad(why: impl Into<String>) -> BadBody {
    BadBody(why.into())
}

/// Any body. Depth is bounded by serde_json, length by whoever read it.
pub fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, BadBody> {
    serde_json::from_slice(bytes).map_err(|error| {
        let mut words = error.to_string();
        words.truncate(words.char_indices().nth(200).map_or(words.len(), |(end, _)| end));
        bad(words)
    })
}

/// Bytes as hexadecimal digits; `0x` before them is read over.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct HexText(pub Vec<u8>);

impl fmt::Debug for HexText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Serialize for HexText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex(&self.0))
    }
}

impl<'de> Deserialize<'de> for HexText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(HexVisitor)
    }
}

/// Reads the digits where they are: the copy would be as long as the payload twice.
struct HexVisitor;

impl de::Visitor<'_> for HexVisitor {
    type Value = HexText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<HexText, E> {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        unhex(digits).map(HexText).ok_or_else(|| de::Error::custom("bytes are small hexadecimal digits, two for each"))
    }
}

/// How far the log goes. Keep the newest, and send it with the next request. It is in every answer, so a client reads over what a newer signer adds to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeadBody {
    /// The number of the newest entry.
    pub entries: u64,
    /// The hash of the batch that it is in.
    #[schema(value_type = String, pattern = "^[0-9a-f]{64}$")]
    pub hash: Hash,
    /// Shows that the signer gave this head. Keep it with the head: a log that lacks a head with its proof is an old copy, and the signer stops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^[0-9a-f]{64}$")]
    pub proof: Option<Hash>,
}

impl From<Head> for HeadBody {
    fn from(head: Head) -> Self {
        Self { entries: head.entries, hash: head.hash, proof: None }
    }
}

impl From<HeadBody> for Head {
    fn from(head: HeadBody) -> Self {
        Self { entries: head.entries, hash: head.hash }
    }
}

/// Many things to sign at once: decided in their order, logged with one sync.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchBody {
    pub requests: Vec<RequestBody>,
    /// The newest head that the asker was given. A log that does not contain it is an old copy, and nothing is signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<HeadBody>,
}

/// One thing to sign.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RequestBody {
    /// The asker's name for it. The same name with the same content gets the same bytes, and counts once. In the single form it may be left
    /// out: it then follows from the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false, pattern = "^[a-z0-9_][a-z0-9_.-]{0,63}$")]
    pub id: Option<RequestId>,
    /// The chain's name in the policy.
    #[schema(example = "bsc")]
    pub chain: String,
    #[schema(value_type = String, example = "hot-evm")]
    pub wallet_group_id: GroupId,
    /// The number of the wallet in the group. Bitcoin has one for each input instead: see `bitcoin`.
    pub derivation_index: u64,
    /// Hexadecimal digits. EVM: the bytes whose keccak is signed. TRON: `raw_data`. Bitcoin: a PSBT.
    #[schema(value_type = String)]
    pub unsigned_tx_payload: HexText,
    /// What the payload is for: every part of it must be explained by one of these.
    pub intents: Vec<IntentBody>,
    /// Bitcoin only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bitcoin: Option<BitcoinBody>,
    /// TRON only, when the job was built before: the id of that transaction, which is the SHA-256 of its `raw_data`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^[0-9a-f]{64}$")]
    pub replaces: Option<Hash>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub approvals: Vec<ApprovalBody>,
    /// In the single form only: as in a batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<HeadBody>,
}

/// What one job is to do, as people approve it: `pay` or `cancel`. Chain and group are the request's.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IntentBody {
    /// The signer's name in its policy.
    #[schema(value_type = String)]
    pub signer: SignerName,
    #[schema(value_type = String, example = "evm:56")]
    pub network: SignerChain,
    #[schema(value_type = String, example = "wr-1234567890123456789")]
    pub job: JobId,
    /// 0 for the job's first slot, one more for each that it moves to.
    #[serde(default, skip_serializing_if = "is_default")]
    pub round: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pay: Option<PayBody>,
    /// Takes the slot of these jobs without paying; of none: fills a gap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>)]
    pub cancel: Option<Vec<JobId>>,
    /// In the chain's own coin.
    #[schema(value_type = String, pattern = "^[0-9]+$")]
    pub most_fee: RawText,
    /// Microseconds since 1970.
    pub expires: i64,
    /// TRON: how many transactions may be built for it. 1 elsewhere.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub builds: u32,
    #[schema(value_type = String)]
    pub requester: Person,
}

const fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks in this way")]
const fn is_one(number: &u32) -> bool {
    *number == 1
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PayBody {
    /// `native`, or the token's contract.
    pub coin: String,
    pub to: String,
    /// In the chain's smallest unit.
    #[schema(value_type = String, pattern = "^[0-9]+$")]
    pub amount: RawText,
    /// Whose address it is, where the policy only allows one that the signer derives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<OwnerBody>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OwnerBody {
    #[schema(value_type = String)]
    pub wallet_group_id: GroupId,
    pub derivation_index: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BitcoinBody {
    /// For each input, the number of the wallet that it spends from.
    pub inputs: Vec<u64>,
    /// The numbers of the wallets that change goes to.
    pub change: Vec<u64>,
    pub lock_time: u32,
    pub sequence: u32,
}

/// A person's signature: `ed25519` or `passkey`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalBody {
    #[schema(value_type = String, pattern = "^[0-9a-f]{64}$")]
    pub digest: Hash,
    /// The key's name in the policy.
    #[schema(value_type = String)]
    pub key: KeyName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub ed25519: Option<HexText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passkey: Option<PasskeyBody>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PasskeyBody {
    #[schema(value_type = String)]
    pub authenticator_data: HexText,
    #[schema(value_type = String)]
    pub client_data: HexText,
    #[schema(value_type = String)]
    pub signature: HexText,
}

impl From<&GivenApproval> for ApprovalBody {
    fn from(given: &GivenApproval) -> Self {
        let (ed25519, passkey) = match &given.proof {
            Proof::Ed25519(signature) => (Some(HexText(signature.clone())), None),
            Proof::Passkey { authenticator_data, client_data, signature } => {
                let [authenticator_data, client_data, signature] =
                    [authenticator_data, client_data, signature].map(|bytes| HexText(bytes.clone()));
                (None, Some(PasskeyBody { authenticator_data, client_data, signature }))
            }
        };
        Self { digest: Hash(given.digest), key: given.key.clone(), ed25519, passkey }
    }
}

impl ApprovalBody {
    pub fn given(self) -> Result<GivenApproval, BadBody> {
        let proof = match (self.ed25519, self.passkey) {
            (Some(signature), None) => Proof::Ed25519(signature.0),
            (None, Some(passkey)) => Proof::Passkey {
                authenticator_data: passkey.authenticator_data.0,
                client_data: passkey.client_data.0,
                signature: passkey.signature.0,
            },
            _ => return Err(bad("an approval has ed25519 or passkey")),
        };
        Ok(GivenApproval { digest: self.digest.0, key: self.key, proof })
    }
}

impl From<&Intent> for IntentBody {
    fn from(intent: &Intent) -> Self {
        let (pay, cancel) = match &intent.kind {
            IntentKind::Pay { payment, owner } => {
                let owner = owner
                    .as_ref()
                    .map(|owner| OwnerBody { wallet_group_id: owner.group.clone(), derivation_index: owner.index });
                let (coin, to) = (coin_text(&payment.coin), payment.to.to_string());
                (Some(PayBody { coin, to, amount: RawText(payment.amount), owner }), None)
            }
            IntentKind::Cancel { jobs } => (None, Some(jobs.clone())),
        };
        Self {
            signer: intent.signer.clone(),
            network: intent.network,
            job: intent.job,
            round: intent.round,
            pay,
            cancel,
            most_fee: RawText(intent.most_fee),
            expires: intent.expires.micros(),
            builds: intent.builds,
            requester: intent.requester.clone(),
        }
    }
}

impl IntentBody {
    /// The intent, on this chain and for this group. Its digest follows from all that is here.
    pub fn intent(self, chain: &ChainName, group: &GroupId) -> Result<Intent, BadBody> {
        let of_policy = |error: crate::policy::file::BadPolicy| bad(error.0);
        let kind = match (self.pay, self.cancel) {
            (Some(pay), None) => IntentKind::Pay {
                payment: Payment {
                    to: address(&pay.to, self.network).map_err(of_policy)?,
                    coin: coin(&pay.coin, self.network).map_err(of_policy)?,
                    amount: pay.amount.0,
                },
                owner: pay.owner.map(|owner| Owner { group: owner.wallet_group_id, index: owner.derivation_index }),
            },
            (None, Some(jobs)) => IntentKind::Cancel { jobs },
            _ => return Err(bad("an intent has pay or cancel")),
        };
        Ok(Intent {
            signer: self.signer,
            network: self.network,
            job: self.job,
            round: self.round,
            chain: chain.clone(),
            group: group.clone(),
            kind,
            most_fee: self.most_fee.0,
            expires: Timestamp::from_micros(self.expires),
            builds: self.builds,
            requester: self.requester,
        })
    }
}

impl RequestBody {
    /// The same request as JSON. An intent of another chain or group than the request's cannot be written.
    pub fn of(request: &SignRequest) -> Result<Self, BadBody> {
        if request.intents.iter().any(|one| one.chain != request.chain || one.group != request.group) {
            return Err(bad("an intent is of another chain or wallet group than its request"));
        }
        Ok(Self {
            id: Some(request.id.clone()),
            chain: request.chain.to_string(),
            wallet_group_id: request.group.clone(),
            derivation_index: request.index,
            unsigned_tx_payload: HexText(request.payload.clone()),
            intents: request.intents.iter().map(IntentBody::from).collect(),
            bitcoin: request.bitcoin.clone().map(|terms| BitcoinBody {
                inputs: terms.inputs,
                change: terms.change,
                lock_time: terms.lock_time,
                sequence: terms.sequence,
            }),
            replaces: request.replaces.map(Hash),
            approvals: request.approvals.iter().map(ApprovalBody::from).collect(),
            pinned: None,
        })
    }

    /// The request. Without an id it gets one that follows from its content.
    pub fn request(self) -> Result<SignRequest, BadBody> {
        let chain: ChainName = self.chain.parse().map_err(|_| bad("this is no name of a chain"))?;
        let group = self.wallet_group_id;
        let intents = self.intents.into_iter().map(|one| one.intent(&chain, &group)).collect::<Result<_, _>>()?;
        let approvals = self.approvals.into_iter().map(ApprovalBody::given).collect::<Result<_, _>>()?;
        let named = |text: &str| text.parse::<RequestId>().map_err(|error| bad(error.to_string()));
        let mut request = SignRequest {
            id: self.id.clone().map_or_else(|| named("content"), Ok)?,
            chain,
            group,
            index: self.derivation_index,
            payload: self.unsigned_tx_payload.0,
            intents,
            bitcoin: self.bitcoin.map(|terms| BitcoinTerms {
                inputs: terms.inputs,
                change: terms.change,
                lock_time: terms.lock_time,
                sequence: terms.sequence,
            }),
            replaces: self.replaces.map(|before| before.0),
            approvals,
        };
        if self.id.is_none() {
            let digest = hex(&request.digest());
            request.id = named(&format!("content-{}", digest.get(..40).unwrap_or_default()))?;
        }
        Ok(request)
    }
}

/// What `POST /v1/sign` is sent: a batch, or one request by itself.
#[derive(Debug)]
pub struct SignBody {
    pub requests: Vec<SignRequest>,
    pub pinned: Option<HeadBody>,
    pub single: bool,
}

/// Tells the two forms apart.
#[derive(Deserialize)]
struct Form {
    #[serde(default)]
    requests: Option<IgnoredAny>,
}

impl SignBody {
    /// `may` is asked for each group before anything else of its request is read.
    pub fn read(bytes: &[u8], may: impl Fn(&GroupId) -> bool) -> Result<Result<Self, GroupId>, BadBody> {
        let (bodies, pinned, single) = if read::<Form>(bytes)?.requests.is_some() {
            let batch: BatchBody = read(bytes)?;
            if batch.requests.iter().any(|one| one.pinned.is_some() || one.id.is_none()) {
                return Err(bad("in a batch each request has an id, and pinned stands beside requests"));
            }
            (batch.requests, batch.pinned, false)
        } else {
            let mut one: RequestBody = read(bytes)?;
            let pinned = one.pinned.take();
            (vec![one], pinned, true)
        };
        if bodies.is_empty() || bodies.len() > MOST_REQUESTS {
            return Err(bad(format!("a batch has 1 to {MOST_REQUESTS} requests")));
        }
        if let Some(other) = bodies.iter().find(|one| !may(&one.wallet_group_id)) {
            return Ok(Err(other.wallet_group_id.clone()));
        }
        let requests = bodies.into_iter().map(RequestBody::request).collect::<Result<_, _>>()?;
        Ok(Ok(Self { requests, pinned, single }))
    }
}
