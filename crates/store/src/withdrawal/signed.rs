//! What the signer knows of withdrawals, held against what this database knows. A database that was put back from a backup has forgotten payments; the
//! signer has not. While it knows more of a withdrawal, nothing gives its money back and no job is made for it.

use std::collections::{BTreeSet, HashMap};

use super::types::{WithdrawalId, malformed, numbers, withdrawal_id};
use crate::db::{Db, Tx};
use crate::error::StoreError;

statements! {
    /// In how many slots each was written down, over all its jobs.
    READ_ROUNDS = "SELECT k.withdrawal_id, CAST(MAX(j.rounds) AS BIGINT) FROM withdrawal_jobs k JOIN outbound_jobs j ON j.id = k.job_id
        WHERE k.withdrawal_id {in $1} GROUP BY k.withdrawal_id";
}

/// In how many slots the signer has signed withdrawals. What it was not asked about is not in here, and what needs its word then waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SignedRounds(HashMap<WithdrawalId, u32>);

/// What the signer's word says of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignerWord {
    /// It was not asked.
    Unasked,
    /// It has signed nothing that this database does not know.
    Same,
    /// It has.
    More,
}

impl SignedRounds {
    /// `None` of one: the signer has forgotten whether it has signed it, which is as bad as that it has.
    pub fn of(answers: impl IntoIterator<Item = (WithdrawalId, Option<u32>)>) -> Self {
        Self(answers.into_iter().map(|(id, rounds)| (id, rounds.unwrap_or(u32::MAX))).collect())
    }

    pub(crate) fn word(&self, id: WithdrawalId, known: &HashMap<WithdrawalId, u32>) -> SignerWord {
        match self.0.get(&id) {
            None => SignerWord::Unasked,
            Some(signed) if *signed > known.get(&id).copied().unwrap_or(0) => SignerWord::More,
            Some(_) => SignerWord::Same,
        }
    }
}

/// Those that never had a job are left out.
pub(crate) async fn rounds(
    tx: &mut Tx,
    ids: impl Iterator<Item = WithdrawalId>,
) -> Result<HashMap<WithdrawalId, u32>, StoreError> {
    let rows = fetch_all!(tx, READ_ROUNDS => (i64, i64), numbers(ids))?;
    let one = |(id, rounds): (i64, i64)| {
        Ok((withdrawal_id(id)?, u32::try_from(rounds).map_err(|_| malformed("number of rounds"))?))
    };
    rows.into_iter().map(one).collect()
}

impl Db {
    /// In how many slots each of these was written down, over all its jobs: the round of its next payment.
    pub async fn rounds_of_withdrawals(&self, ids: &[WithdrawalId]) -> Result<HashMap<WithdrawalId, u32>, StoreError> {
        let distinct: BTreeSet<WithdrawalId> = ids.iter().copied().collect();
        rounds(&mut self.read().await?, distinct.into_iter()).await
    }
}
