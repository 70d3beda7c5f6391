//! The newest head of each signer's log that one of ours was given.
//!
//! | | |
//! |---|---|
//! | reads, writes | `signer_heads` |
//! | may never do | put an older head in the place of a newer one: it would not be noticed that a log was put back |

use domain::Timestamp;

use crate::db::{Db, Tx};
use crate::error::StoreError;
use crate::transact;

statements! {
    READ_SIGNER_HEAD = "SELECT entries, hash, proof FROM signer_heads WHERE name = $1";
    /// Of two servers that were answered at the same time, the newer answer stays.
    KEEP_SIGNER_HEAD = "INSERT INTO signer_heads (name, entries, hash, proof, updated_at) VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (name) DO UPDATE SET entries = excluded.entries, hash = excluded.hash, proof = excluded.proof,
            updated_at = excluded.updated_at
        WHERE signer_heads.entries < excluded.entries";
}

/// A head, as its signer gave it: hashes are hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignerHead {
    pub entries: u64,
    pub hash: String,
    pub proof: Option<String>,
}

impl Db {
    /// The newest head of a signer. `None`: nobody has asked it yet.
    pub async fn signer_head(&self, name: &str) -> Result<Option<SignerHead>, StoreError> {
        read_signer_head(&mut self.read().await?, name).await
    }

    /// Keeps a head unless a newer one is kept, and gives the newest.
    pub async fn keep_signer_head(
        &self,
        name: &str,
        head: &SignerHead,
        at: Timestamp,
    ) -> Result<SignerHead, StoreError> {
        transact!(self, tx => keep_signer_head(tx, name, head, at).await)
    }
}

/// The same, together with whatever else the transaction writes: a signature that is kept without the head that came with it could be
/// followed by an older log.
pub async fn keep_signer_head(
    tx: &mut Tx,
    name: &str,
    head: &SignerHead,
    at: Timestamp,
) -> Result<SignerHead, StoreError> {
    let corrupt = |what: &str| StoreError::Corrupt { what: what.to_owned() };
    let entries =
        i64::try_from(head.entries).map_err(|_| corrupt("a signer's log has more entries than there can be"))?;
    execute!(tx, KEEP_SIGNER_HEAD, name, entries, &head.hash, head.proof.as_deref(), at.micros())?;
    read_signer_head(tx, name).await?.ok_or_else(|| corrupt("the head of a signer that was just kept is missing"))
}

async fn read_signer_head(tx: &mut Tx, name: &str) -> Result<Option<SignerHead>, StoreError> {
    let row = fetch_optional!(tx, READ_SIGNER_HEAD => (i64, String, Option<String>), name)?;
    row.map(|(entries, hash, proof)| match u64::try_from(entries) {
        Ok(entries) => Ok(SignerHead { entries, hash, proof }),
        Err(_) => Err(StoreError::Corrupt { what: "the head of a signer has a negative number".to_owned() }),
    })
    .transpose()
}
