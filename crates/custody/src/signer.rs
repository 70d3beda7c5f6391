//! The signer, as the server knows it: whether it has the keys that the treasury file pins, and whether its log is the one that answered before.
//!
//! | | |
//! |---|---|
//! | reads | the signer's groups; the newest head of its log that one of ours was given |
//! | writes | that head |
//! | may never do | take silence for agreement: whatever depends on the signer asks [`SignerWatch::agrees`] |
//!
//! What is paid to an address whose key the signer does not have is lost. So what gives addresses away, or pays, waits until the signer has said
//! that it has these keys.

use std::sync::{Arc, Mutex, PoisonError};

use domain::{GroupId, Purpose, Timestamp};
use signer::client::{SignerClient, SignerError};
use signer::text::Hash;
use signer::wire::{GroupBody, HeadBody};
use store::signer_head::SignerHead;
use store::{Db, StoreError};
use tx::{AccountKey, Family, Group};

use crate::wallet::{Difference, Pinned, compare_groups};

/// What is known of the signer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignerStanding {
    /// It was not asked yet.
    New,
    /// It has the pinned keys, and a log that contains what was answered before.
    Agrees,
    /// It could not be asked, or did not answer what was asked. The code is that of the reason.
    Away { code: String, why: String },
    /// It has other keys than the treasury file pins, or lacks a group.
    Differs(Vec<Difference>),
    /// Its log is an old copy, or another one.
    OldCopy { why: String },
}

impl SignerStanding {
    /// The page in `docs/errors`. `None`: there is nothing to tell.
    pub const fn code(&self) -> Option<&'static str> {
        match self {
            Self::New | Self::Agrees => None,
            Self::Away { .. } => Some("SIGNER_UNAVAILABLE"),
            Self::Differs(_) => Some("WALLET_GROUPS_DIFFER"),
            Self::OldCopy { .. } => Some("SIGNER_LOG_ROLLED_BACK"),
        }
    }

    /// Another try will not mend it: people must look.
    pub const fn is_certain(&self) -> bool {
        match self {
            Self::Differs(_) | Self::OldCopy { .. } => true,
            Self::New | Self::Agrees | Self::Away { .. } => false,
        }
    }

    pub fn words(&self) -> String {
        match self {
            Self::New => "the signer was not asked yet".to_owned(),
            Self::Agrees => "the signer has the keys of the treasury file".to_owned(),
            Self::Away { code, why } => format!("the signer cannot be asked ({code}): {why}"),
            Self::Differs(differ) => {
                let first = differ.first().map(|first| format!("; the first: {}: {}", first.row, first.what));
                let first = first.unwrap_or_default();
                format!(
                    "the signer's wallet groups are not those of the treasury file, in {} places{first}",
                    differ.len()
                )
            }
            Self::OldCopy { why } => format!("the signer's log is not the one that answered before: {why}"),
        }
    }
}

/// One signer, and what its last answer was worth.
pub struct SignerWatch {
    client: SignerClient,
    /// Under which its head is kept.
    name: String,
    standing: Mutex<(SignerStanding, Timestamp)>,
}

impl SignerWatch {
    pub fn new(client: SignerClient, name: String) -> Self {
        Self { client, name, standing: Mutex::new((SignerStanding::New, Timestamp::from_micros(0))) }
    }

    /// What was found last, and since when it has been so.
    pub fn standing(&self) -> (SignerStanding, Timestamp) {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether what depends on the signer may be done.
    pub fn agrees(&self) -> bool {
        self.standing().0 == SignerStanding::Agrees
    }

    /// For whoever has something signed. The head that comes with an answer is to be kept with [`store::signer_head::keep_signer_head`], in the
    /// transaction that keeps the bytes.
    pub const fn client(&self) -> &SignerClient {
        &self.client
    }

    /// The newest head, and the name that it is kept under.
    pub fn newest_head(&self) -> Option<(String, SignerHead)> {
        self.client.pinned().map(|head| (self.name.clone(), kept_head(head)))
    }

    /// Asks the signer. Whether its log contains the newest head comes first, so that an old copy stops by itself.
    pub async fn look(&self, db: &Db, pinned: &Pinned, now: Timestamp) -> Result<SignerStanding, StoreError> {
        let kept = db.signer_head(&self.name).await?;
        if let Some(head) = kept.as_ref().and_then(head_body) {
            self.client.know(head);
        }
        let found = match self.ask(pinned).await {
            Ok(differ) if differ.is_empty() => self.keep(db, kept.as_ref(), now).await?,
            Ok(differ) => SignerStanding::Differs(differ),
            Err(SignerError::RolledBack { why }) => SignerStanding::OldCopy { why },
            Err(error) => SignerStanding::Away { code: error.code().to_owned(), why: error.to_string() },
        };
        self.note(found.clone(), now);
        Ok(found)
    }

    async fn ask(&self, pinned: &Pinned) -> Result<Vec<Difference>, SignerError> {
        self.client.confirm().await?;
        let told = self.client.groups().await?;
        let mut differ = Vec::new();
        let groups: Vec<Group> = told
            .iter()
            .filter_map(|body| {
                let group = read_group(body);
                // A signer may have groups of kinds that are not known here, for others. One that is pinned must be understood.
                let id: Option<GroupId> = body.id.parse().ok();
                if group.is_none() && id.is_some_and(|id| pinned.group(&id).is_some()) {
                    differ.push(Difference::new(
                        format!("signer, {}", body.id),
                        "what the signer says of it cannot be read",
                    ));
                }
                group
            })
            .collect();
        let unread: Vec<String> = differ.iter().map(|one| one.row.clone()).collect();
        differ.extend(compare_groups(pinned, &groups).into_iter().filter(|one| !unread.contains(&one.row)));
        Ok(differ)
    }

    /// Keeps the newest head, of a signer that has our keys and of no other.
    async fn keep(&self, db: &Db, kept: Option<&SignerHead>, now: Timestamp) -> Result<SignerStanding, StoreError> {
        let Some(head) = self.client.pinned().map(kept_head) else { return Ok(SignerStanding::Agrees) };
        if kept.is_some_and(|kept| kept.entries == head.entries) {
            return Ok(SignerStanding::Agrees);
        }
        if i64::try_from(head.entries).is_err() {
            let why = format!("it says that its log has {} entries", head.entries);
            return Ok(SignerStanding::Away { code: "SIGNER_ANSWER_WRONG".to_owned(), why });
        }
        let newest = db.keep_signer_head(&self.name, &head, now).await?;
        // Another server was answered from another log of the same length.
        if newest.entries == head.entries && newest.hash != head.hash {
            let why = format!("two servers were given different entries {}", head.entries);
            return Ok(SignerStanding::OldCopy { why });
        }
        Ok(SignerStanding::Agrees)
    }

    fn note(&self, found: SignerStanding, now: Timestamp) {
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        let same = standing.0.code() == found.code() && standing.0 != SignerStanding::New;
        if !same {
            match found.code() {
                Some(code) => tracing::error!(code, signer = self.name, words = found.words(), "the signer"),
                None => tracing::info!(signer = self.name, "the signer has the keys of the treasury file"),
            }
        }
        let since = if same { standing.1 } else { now };
        *standing = (found, since);
    }
}

/// Looks once; what could not be kept or read is told by the readiness of the database.
pub async fn look_once(watch: &Arc<SignerWatch>, db: &Db, pinned: &Pinned, now: Timestamp) {
    if let Err(error) = watch.look(db, pinned, now).await {
        tracing::debug!(code = error.code(), %error, "the signer was not asked");
    }
}

fn read_group(body: &GroupBody) -> Option<Group> {
    let family = Family::parse(&body.chain)?;
    let key = AccountKey::parse(&body.xpub, family).ok()?;
    Some(Group { id: body.id.parse().ok()?, purpose: Purpose::parse(&body.purpose)?, key })
}

/// A row that is none, because somebody has changed it, is as good as no row.
fn head_body(kept: &SignerHead) -> Option<HeadBody> {
    let proof = kept.proof.as_ref().map(|proof| proof.parse::<Hash>()).transpose().ok()?;
    Some(HeadBody { entries: kept.entries, hash: kept.hash.parse().ok()?, proof })
}

fn kept_head(head: HeadBody) -> SignerHead {
    SignerHead { entries: head.entries, hash: head.hash.to_string(), proof: head.proof.map(|proof| proof.to_string()) }
}
