//! How the signer is asked for an attempt, and what its answer is worth.
//!
//! A request follows from the rows alone, so that whoever asks again after a crash asks the same and gets the same bytes.

use domain::utxo::Hash;
use domain::{ChainKind, GroupId, RawAmount, Timestamp};
use signer::client::SignAnswer;
use signer::names::{JobId as SignedJob, Person, SignerName};
use signer::{BitcoinTerms, Intent, IntentKind, Owner, SignRequest};
use store::outbound::send::SignedAnswer;
use store::outbound::{AttemptKind, AttemptRow, JobId, JobRow, LaneRow, OpenSlot, SignedAs};
use store::withdrawal::{WithdrawalId, WithdrawalRow};
use tx::{Address, Payment};

use super::OutboundError;
use super::purse::Ground;
use super::till::Unfolded;

/// A cancel is signed within this time, or asked for again under another number.
const CANCEL_LIFE_MICROS: i64 = 12 * 3_600 * 1_000_000;

/// One of the approvals that were sent along is no good.
pub(super) const APPROVAL_BAD: &str = "SIGNER_APPROVAL_BAD";

/// Who asks for what nobody in particular asks for.
const HOUSE: &str = "bursar";

/// One attempt of a slot, with whatever the request needs to know.
pub(super) struct Wanted<'a> {
    pub lane: &'a LaneRow,
    pub slot: &'a OpenSlot,
    pub attempt: &'a AttemptRow,
}

/// A job as the signer knows it.
pub(super) fn signed_job(name: SignedAs) -> SignedJob {
    match name {
        SignedAs::Withdrawal(withdrawal) => SignedJob::Withdrawal(withdrawal.number()),
        SignedAs::Job(job) => SignedJob::Job(job.number()),
    }
}

/// `None`: no row can have such a number.
fn known_as(job: SignedJob) -> Option<SignedAs> {
    match job {
        SignedJob::Withdrawal(number) => WithdrawalId::new(number).ok().map(SignedAs::Withdrawal),
        SignedJob::Job(number) => JobId::new(number).ok().map(SignedAs::Job),
    }
}

fn person(name: &str) -> Result<Person, OutboundError> {
    let plain = name.to_lowercase();
    plain.parse().or_else(|_| HOUSE.parse()).map_err(OutboundError::from)
}

impl Wanted<'_> {
    /// `None`: a row makes no sense, and nothing is signed for it.
    pub fn request(&self, ground: &Ground, signer: &SignerName) -> Result<Option<SignRequest>, OutboundError> {
        let Self { lane, slot, attempt } = self;
        let mut bitcoin = None;
        if ground.row.kind == ChainKind::Bitcoin {
            let unfolded = Unfolded::of(&attempt.payload, ground, &slot.jobs, &lane.group);
            bitcoin = unfolded.and_then(|unfolded| unfolded.terms(ground, lane));
            if bitcoin.is_none() {
                return Ok(None);
            }
        }
        let mut intents = Vec::with_capacity(slot.jobs.len());
        match attempt.kind {
            // It pays all of them, and one is paid or over by now.
            AttemptKind::Pay if slot.jobs.iter().any(|(job, _)| job.slot != Some(slot.id)) => return Ok(None),
            AttemptKind::Pay => {
                for (job, round) in &slot.jobs {
                    let Ok(payment) = ground.payment(job) else { return Ok(None) };
                    intents.push(pays(ground, signer, lane, job, *round, payment)?);
                }
            }
            AttemptKind::Cancel(number) => intents.push(self.cancels(ground, signer, number)?),
        }
        if intents.is_empty() {
            return Ok(None);
        }
        // The payload's hash is part of the name: other bytes are another request, whatever a restored database counts.
        let digest = signer::digest::hex(&signer::digest::sha256(&attempt.payload));
        let id = format!("s{}-{}-{}", slot.id.0, attempt.number, digest.get(..16).unwrap_or_default());
        Ok(Some(SignRequest {
            id: id.parse()?,
            chain: ground.row.name.clone(),
            group: lane.group.clone(),
            index: u64::try_from(lane.index).unwrap_or(u64::MAX),
            payload: attempt.payload.clone(),
            intents,
            bitcoin,
            replaces: None,
            approvals: Vec::new(),
        }))
    }

    fn cancels(&self, ground: &Ground, signer: &SignerName, number: JobId) -> Result<Intent, OutboundError> {
        let job = self.slot.jobs.first();
        // Where the signer has signed the nonce for a job that no row has there, only a cancel of that job shares it.
        let named = job.map(|(job, _)| job.signed_as()).or(self.slot.holder);
        let jobs = named.map(signed_job).into_iter().collect();
        let terms = Terms {
            round: 0,
            kind: IntentKind::Cancel { jobs },
            // What it may cost is what it can cost: settings that change meanwhile do not make it another request.
            most_fee: ground.most_fee(&self.attempt.payload).unwrap_or(ground.row.outbound.fee_cap),
            expires: self.attempt.created.plus_micros(CANCEL_LIFE_MICROS),
            requester: person(job.map_or(HOUSE, |(job, _)| job.requester.as_str()))?,
        };
        Ok(intent(ground, signer, &self.lane.group, SignedJob::Job(number.number()), terms))
    }
}

/// What a job is to do in its slot of this round, as people approve it and the signer reads it.
pub(super) fn pays(
    ground: &Ground,
    signer: &SignerName,
    lane: &LaneRow,
    job: &JobRow,
    round: u32,
    payment: Payment,
) -> Result<Intent, OutboundError> {
    let owner = job
        .owner
        .as_ref()
        .and_then(|(group, index)| Some(Owner { group: group.clone(), index: u64::try_from(*index).ok()? }));
    let terms = Terms {
        round,
        kind: IntentKind::Pay { payment, owner },
        most_fee: job.most_fee,
        expires: job.expires,
        requester: person(&job.requester)?,
    };
    Ok(intent(ground, signer, &lane.group, signed_job(job.signed_as()), terms))
}

/// The same of a withdrawal that has no job yet: what its job will be asked with, so that people can sign it now. The other error: its row makes no
/// sense here.
pub(super) fn withdraws(
    ground: &Ground,
    signer: &SignerName,
    row: &WithdrawalRow,
    round: u32,
) -> Result<Result<Intent, String>, OutboundError> {
    let Some(group) = &row.group else { return Ok(Err("no hot wallet of its chain is active".to_owned())) };
    let Some(listing) = ground.row.listing(row.listing) else {
        return Ok(Err("its coin is not listed any more".to_owned()));
    };
    let payment = RawAmount::from_ledger(row.amount, &listing.form).map_err(|error| error.to_string());
    let payment = payment.and_then(|amount| ground.payment_to(&row.to, row.listing, amount));
    let payment = match payment {
        Ok(payment) => payment,
        Err(why) => return Ok(Err(why)),
    };
    let terms = Terms {
        round,
        kind: IntentKind::Pay { payment, owner: None },
        most_fee: row.network_fee,
        expires: row.expires,
        requester: person(&row.requester())?,
    };
    Ok(Ok(intent(ground, signer, group, SignedJob::Withdrawal(row.id.number()), terms)))
}

fn intent(ground: &Ground, signer: &SignerName, group: &GroupId, job: SignedJob, terms: Terms) -> Intent {
    Intent {
        signer: signer.clone(),
        network: ground.network,
        job,
        round: terms.round,
        chain: ground.row.name.clone(),
        group: group.clone(),
        kind: terms.kind,
        most_fee: terms.most_fee,
        expires: terms.expires,
        builds: 1,
        requester: terms.requester,
    }
}

struct Terms {
    round: u32,
    kind: IntentKind,
    most_fee: RawAmount,
    expires: Timestamp,
    requester: Person,
}

/// A cancel of a slot that is used up: the signer lets a job go to another slot only when it has cancelled the first. The nonce is in a
/// settled block, or an input is gone, so what is signed here can be mined nowhere, and nobody is shown it.
pub(super) struct Move<'a> {
    pub lane: &'a LaneRow,
    pub requester: &'a str,
    /// All that were in the slot: one transaction paid them.
    pub jobs: Vec<SignedAs>,
    pub number: i64,
    pub payload: Vec<u8>,
    pub bitcoin: Option<BitcoinTerms>,
    pub now: Timestamp,
}

impl Move<'_> {
    pub fn request(&self, ground: &Ground, signer: &SignerName) -> Result<SignRequest, OutboundError> {
        let intent = Intent {
            signer: signer.clone(),
            network: ground.network,
            job: SignedJob::Job(self.number),
            round: 0,
            chain: ground.row.name.clone(),
            group: self.lane.group.clone(),
            kind: IntentKind::Cancel { jobs: self.jobs.iter().map(|job| signed_job(*job)).collect() },
            most_fee: ground.row.outbound.fee_cap,
            expires: self.now.plus_micros(CANCEL_LIFE_MICROS),
            builds: 1,
            requester: person(self.requester)?,
        };
        Ok(SignRequest {
            id: format!("m{}", self.number).parse()?,
            chain: ground.row.name.clone(),
            group: self.lane.group.clone(),
            index: u64::try_from(self.lane.index).unwrap_or(u64::MAX),
            payload: self.payload.clone(),
            intents: vec![intent],
            bitcoin: self.bitcoin.clone(),
            replaces: None,
            approvals: Vec::new(),
        })
    }
}

/// What an answer makes of an attempt.
pub(super) fn judge(
    answer: SignAnswer,
    ground: &Ground,
    own: &Address,
    (lane, slot, attempt): (&LaneRow, &OpenSlot, &AttemptRow),
) -> SignedAnswer {
    let (code, message, signed_before, holder, rule) = match answer {
        SignAnswer::Signed { signed, from, .. } => {
            // A signer with other keys signs the same payment from somewhere else.
            return match from {
                Some(from) if from != *own => SignedAnswer::SignedBefore {
                    words: format!("the signer has signed with the key of {from}, and not of {own}"),
                },
                // Where the hash is known before, it is the payload's.
                Some(_) | None if ground.hash_of(&attempt.payload).is_some_and(|hash| hash != signed.hash) => {
                    SignedAnswer::SignedBefore {
                        words: "the signer has signed something else than it was asked for".to_owned(),
                    }
                }
                Some(_) | None => SignedAnswer::Signed { bytes: signed.bytes, hash: Hash(signed.hash.0) },
            };
        }
        SignAnswer::Refused { code, message, signed_before, holder, rule, .. } => {
            (code, message, signed_before, holder, rule)
        }
    };
    let words = format!("{message} ({code})");
    let round = slot.jobs.first().map_or(0, |(_, round)| *round);
    match code.as_str() {
        // The slot, or the job, was signed for in a time that this database does not know: it is older than its signer.
        "SIGNER_SLOT_DIFFERS" | "SIGNER_JOB_CHANGED" | "SIGNER_BUILD_UNKNOWN" => SignedAnswer::SignedBefore { words },
        "SIGNER_SLOT_TAKEN" => match ground.row.kind {
            ChainKind::Evm => match holder.and_then(known_as).filter(|_| !signed_before) {
                Some(by) => {
                    let words = format!(
                        "{words}: the signer has signed this nonce for {by}, and no row says so; two people must say whether the wallet goes on, \
                         with a cancel of {by} at this nonce"
                    );
                    SignedAnswer::Held { words, by }
                }
                None => SignedAnswer::SignedBefore { words },
            },
            // What brings users' coins home names them, and has no others: people must look at whom the signer has signed them for.
            ChainKind::Bitcoin if ground.is_users(&lane.group) => SignedAnswer::SignedBefore { words },
            // A coin is another job's, and nothing was signed with it for this one: later it has other coins.
            ChainKind::Bitcoin => SignedAnswer::Refused { words, counts: false },
            // Another job has the very same bytes: later they are others.
            ChainKind::Tron => SignedAnswer::Refused { words, counts: true },
        },
        // The first build of a job that the signer has built before: the same.
        "SIGNER_NOT_EXPIRED_YET" if round == 0 => SignedAnswer::SignedBefore { words },
        // By the signer's clock the build before may still be mined. Its end is proven; the signer only waits longer.
        "SIGNER_NOT_EXPIRED_YET" => SignedAnswer::Later,
        _ if signed_before => SignedAnswer::SignedBefore { words },
        code => SignedAnswer::Refused { words, counts: !passes(code, &rule) },
    }
}

/// Whether a refusal passes by itself, or when people do something: a clock that was set, what may be paid in an hour or a day, approvals. The
/// signer names its rule as group/coin/cap.
fn passes(code: &str, rule: &str) -> bool {
    match code {
        "SIGNER_CLOCK_DISAGREES" | "SIGNER_APPROVALS_MISSING" | APPROVAL_BAD => true,
        "SIGNER_CAP_REACHED" => !rule.ends_with("/payment"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_no_time_changes_counts_as_a_try() {
        for (code, rule) in [
            ("SIGNER_CAP_REACHED", "hot/native/hour"),
            ("SIGNER_CAP_REACHED", "hot/native/day"),
            ("SIGNER_CAP_REACHED", "hot/most_fee_day"),
            ("SIGNER_APPROVALS_MISSING", "treasury/native/step 1 (2 of 3)"),
            ("SIGNER_APPROVAL_BAD", ""),
            ("SIGNER_CLOCK_DISAGREES", ""),
        ] {
            assert!(passes(code, rule), "{code} {rule}");
        }
        for (code, rule) in [
            ("SIGNER_CAP_REACHED", "hot/native/payment"),
            ("SIGNER_FEE_ABOVE_CAP", "hot/most_fee"),
            ("SIGNER_ABOVE_ALL_STEPS", "treasury/native/steps"),
            ("SIGNER_DESTINATION_FORBIDDEN", "users/native/to"),
        ] {
            assert!(!passes(code, rule), "{code} {rule}");
        }
    }
}
