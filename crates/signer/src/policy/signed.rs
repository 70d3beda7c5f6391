//! Which policy is in force. A new one is signed by the administrators of the one before it; what is tighter holds at
//! once, what is looser after the cooling-off time of the one before it, and a version never goes back.

use std::collections::BTreeSet;

use domain::Timestamp;
use ring::signature::{ED25519, UnparsedPublicKey};
use zeroize::Zeroizing;

use super::file::{BadPolicy, parse};
use super::tighter::loosened;
use super::{Administrators, Policy};
use crate::names::{Person, SignerName};

/// What stands before the policy's bytes in what administrators sign.
pub const POLICY_LABEL: &[u8] = b"bursar-signer-policy-v1\0";

/// One administrator's signature of a policy's exact bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicySignature {
    pub by: Person,
    pub signature: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error(transparent)]
    Bad(#[from] BadPolicy),
    #[error("{0} is no administrator")]
    Stranger(Person),
    #[error("the signature of {0} does not fit these bytes")]
    BadSignature(Person),
    #[error("{given} of {needed} signatures")]
    SignaturesMissing { given: usize, needed: usize },
    #[error("version {new} does not follow version {newest}")]
    OldVersion { new: u64, newest: u64 },
    #[error("this is a policy of the signer {0}, and a signer keeps its name")]
    OtherSigner(SignerName),
    #[error("this is another policy than the one in force under the same version")]
    OtherContent,
}

impl PolicyError {
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Bad(_) | Self::OtherSigner(_) => "SIGNER_POLICY_INVALID",
            Self::Stranger(_) | Self::BadSignature(_) | Self::SignaturesMissing { .. } => "SIGNER_POLICY_UNSIGNED",
            Self::OldVersion { .. } | Self::OtherContent => "SIGNER_POLICY_OLD",
        }
    }
}

/// What an administrator signs.
pub fn message(bytes: &[u8]) -> Vec<u8> {
    [POLICY_LABEL, bytes].concat()
}

impl Administrators {
    /// Whether so many of them signed. A signature that does not fit spoils the whole: somebody should look.
    pub fn check(&self, bytes: &[u8], signatures: &[PolicySignature]) -> Result<(), PolicyError> {
        let mut signed = BTreeSet::new();
        for one in signatures {
            let key = self.keys.get(&one.by).ok_or_else(|| PolicyError::Stranger(one.by.clone()))?;
            UnparsedPublicKey::new(&ED25519, key)
                .verify(&message(bytes), &one.signature)
                .map_err(|_| PolicyError::BadSignature(one.by.clone()))?;
            signed.insert(&one.by);
        }
        if signed.len() < self.needed {
            return Err(PolicyError::SignaturesMissing { given: signed.len(), needed: self.needed });
        }
        Ok(())
    }
}

/// A person's Ed25519 key as `openssl genpkey -algorithm ed25519` writes it: PKCS#8, as PEM or DER. Administrators sign policies
/// with it, approvers intents.
pub struct SigningKey(ring::signature::Ed25519KeyPair);

impl SigningKey {
    /// `None`: it is no such key.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        use base64::Engine as _;
        let pem = std::str::from_utf8(bytes).ok().and_then(|text| {
            let body =
                text.trim().strip_prefix("-----BEGIN PRIVATE KEY-----")?.strip_suffix("-----END PRIVATE KEY-----")?;
            let mut packed = Zeroizing::new(String::with_capacity(body.len()));
            packed.extend(body.split_whitespace());
            base64::engine::general_purpose::STANDARD.decode(packed.as_bytes()).ok().map(Zeroizing::new)
        });
        let der = pem.as_ref().map_or(bytes, |der| der.as_slice());
        ring::signature::Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).ok().map(Self)
    }

    pub fn public(&self) -> Vec<u8> {
        use ring::signature::KeyPair as _;
        self.0.public_key().as_ref().to_vec()
    }

    /// An approval of what has this digest.
    pub fn sign_approval(&self, digest: &crate::digest::Digest32) -> Vec<u8> {
        self.0.sign(&crate::approval::message(digest)).as_ref().to_vec()
    }

    /// A signature of a policy's exact bytes.
    pub fn sign_policy(&self, bytes: &[u8]) -> Vec<u8> {
        self.0.sign(&message(bytes)).as_ref().to_vec()
    }
}

/// Signatures as a file beside the policy: a line for each, name and hexadecimal digits.
pub fn read_signatures(text: &str) -> Result<Vec<PolicySignature>, BadPolicy> {
    let read = |line: &str| {
        let (by, signature) = line.split_once(' ')?;
        Some(PolicySignature { by: by.parse().ok()?, signature: crate::digest::unhex(signature.trim())? })
    };
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines
        .map(|line| read(line).ok_or_else(|| BadPolicy("a signature is a name and hexadecimal digits".to_owned())))
        .collect()
}

/// A policy that was accepted: its bytes, and from when it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    pub policy: Policy,
    pub text: String,
    pub effective: Timestamp,
}

/// The policy in force, and at most one that waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policies {
    current: Option<Accepted>,
    waiting: Option<Accepted>,
}

impl Policies {
    /// The policy that holds at this time.
    pub fn at(&self, now: Timestamp) -> Option<&Policy> {
        self.accepted_at(now).map(|accepted| &accepted.policy)
    }

    fn accepted_at(&self, now: Timestamp) -> Option<&Accepted> {
        match &self.waiting {
            Some(waiting) if waiting.effective <= now => Some(waiting),
            _ => self.current.as_ref(),
        }
    }

    pub const fn waiting(&self) -> Option<&Accepted> {
        self.waiting.as_ref()
    }

    pub fn all(&self) -> impl Iterator<Item = &Accepted> {
        self.current.iter().chain(&self.waiting)
    }

    /// Checks a new policy, and says from when it would hold. The first one is signed by its own administrators: whoever
    /// sets up the signer answers for it. `None`: it is the one in force, byte for byte.
    pub fn check(
        &self,
        bytes: &[u8],
        signatures: &[PolicySignature],
        now: Timestamp,
    ) -> Result<Option<Accepted>, PolicyError> {
        let policy = parse(bytes)?;
        let text = String::from_utf8_lossy(bytes).into_owned();
        let Some(current) = self.at(now) else {
            policy.administrators.check(bytes, signatures)?;
            return Ok(Some(Accepted { policy, text, effective: now }));
        };
        if policy.hash == current.hash {
            return Ok(None);
        }
        // Whatever people approve names the signer, so that nothing approved for one is good for another.
        if policy.signer != current.signer {
            return Err(PolicyError::OtherSigner(policy.signer));
        }
        current.administrators.check(bytes, signatures)?;
        let newest = self.all().map(|one| one.policy.version).max().unwrap_or_default();
        if policy.version == newest {
            return Err(PolicyError::OtherContent);
        }
        if policy.version < newest {
            return Err(PolicyError::OldVersion { new: policy.version, newest });
        }
        let looser = !loosened(current, &policy).is_empty();
        let effective = if looser { now.plus_micros(current.cooling_off_us) } else { now };
        Ok(Some(Accepted { policy, text, effective }))
    }

    /// What a snapshot kept: the one in force, and the one that waits.
    pub fn restore(mut kept: Vec<Accepted>) -> Self {
        let waiting = if kept.len() > 1 { kept.pop() } else { None };
        Self { current: kept.pop(), waiting }
    }

    /// Takes up what was checked. A policy that waited is dropped: its version is older now.
    pub fn accept(&mut self, accepted: Accepted, now: Timestamp) {
        if let Some(current) = self.accepted_at(now).cloned() {
            self.current = Some(current);
        }
        self.waiting = None;
        if accepted.effective <= now {
            self.current = Some(accepted);
        } else {
            self.waiting = Some(accepted);
        }
    }
}
