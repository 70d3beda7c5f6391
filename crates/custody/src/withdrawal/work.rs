//! One worker of a chain's withdrawals.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use domain::deposit::{Attribution, Reason};
use domain::{Clock, Timestamp, UserId};
use store::Db;
use store::entry::{ChainRow, Finding, FindingKind};
use store::outbound::JobId;
use store::withdrawal::{
    Decision, DecisionReply, DueAfter, Enqueue, Enqueued, InsideReply, SettleInside, SettledBatch, SignedRounds,
    WithdrawalDecision, WithdrawalId, WithdrawalRow,
};
use tx::Family;

use super::WithdrawalError;
use super::signed::{Remembers, signed_rounds};
use crate::deposit::owner::{Checked, owners};
use crate::deposit::read::House;
use crate::outbound::MakeId;
use crate::wallet::Pinned;

/// Withdrawals of one round, of each kind.
const MOST: i64 = 1_000;
/// What a chain took back for good, and what waits for people for too long, is looked for this often: the first is rare and reads all jobs that ever
/// failed, the second reads all that waits.
const SELDOM_MICROS: i64 = 60_000_000;

/// What one round has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WithdrawalRound {
    pub queued: usize,
    pub inside: usize,
    pub completed: usize,
    pub failed: usize,
    pub given_back: usize,
    /// The hot wallet had too little for these; they wait for another job.
    pub short: usize,
    /// People have to look at these.
    pub doubted: Vec<WithdrawalId>,
    /// The chain took the payment of these back, and the customer has not the money again: people have to look at them.
    pub kept: Vec<WithdrawalId>,
    /// What kept it from queueing some.
    pub waits: Option<String>,
    /// There is more of the same to do at once.
    pub more: bool,
}

pub struct WithdrawalWorker<'a> {
    db: &'a Db,
    signer: &'a dyn Remembers,
    ids: MakeId<'a>,
    row: ChainRow,
    pinned: Arc<Pinned>,
    house: House,
    checked: Checked,
    /// The last of each list that was looked at: what stays where it is does not keep those behind it waiting.
    after: DueAfter,
    after_taken_back: Option<WithdrawalId>,
    after_expired: Option<WithdrawalId>,
    /// When what is seldom was last looked for.
    looked: Option<Timestamp>,
    /// People were told that these were not given back.
    told: HashSet<WithdrawalId>,
}

/// What is looked for now and then.
#[derive(Default)]
struct Seldom {
    taken_back: Vec<WithdrawalId>,
    expired: Vec<WithdrawalId>,
}

/// Where a withdrawal goes.
enum Way {
    /// To an address that is not ours.
    Out,
    /// To this user's.
    Inside(UserId),
    /// Its row says that it is a user's, and the keys say otherwise.
    Unclear,
}

impl<'a> WithdrawalWorker<'a> {
    pub fn new(
        db: &'a Db,
        signer: &'a dyn Remembers,
        ids: MakeId<'a>,
        row: ChainRow,
        pinned: Arc<Pinned>,
    ) -> Result<Self, WithdrawalError> {
        if Family::of_chain(row.kind, &row.network).is_none() {
            return Err(WithdrawalError::Network { chain: row.name.to_string(), network: row.network.clone() });
        }
        let house = House::of(&pinned, &row.name);
        let (checked, after, told) = (Checked::default(), DueAfter::default(), HashSet::new());
        let (after_taken_back, after_expired, looked) = (None, None, None);
        Ok(Self { db, signer, ids, row, pinned, house, checked, after, after_taken_back, after_expired, looked, told })
    }

    /// What has ended first: it gives customers their money back, or the house its fee. Then what may be paid.
    pub async fn round(&mut self, clock: &dyn Clock) -> Result<WithdrawalRound, WithdrawalError> {
        let now = clock.now();
        let mut done = WithdrawalRound::default();
        let due = self.db.withdrawals_due(self.row.id, self.after, MOST).await?;
        let seldom = self.seldom(now).await?;
        let ended: Vec<WithdrawalId> = due.paid.iter().chain(&due.failed).copied().collect();
        let ids: BTreeSet<WithdrawalId> =
            ended.iter().chain(&seldom.taken_back).chain(&seldom.expired).copied().collect();
        let ids: BTreeSet<WithdrawalId> = ids.into_iter().chain(due.approved.iter().map(|row| row.id)).collect();
        let signed = match signed_rounds(self.signer, &ids.into_iter().collect::<Vec<_>>()).await {
            Ok(signed) => signed,
            // What was paid is settled all the same. Nothing is given back, and no job is made.
            Err(error) => {
                done.waits = Some(format!("what was signed of them cannot be asked: {error}"));
                SignedRounds::default()
            }
        };
        // One row that cannot be carried out keeps those of its list waiting, and nobody else.
        let settled = self.db.settle_withdrawals(&ended, &signed, now).await.map(|batch| done.add(batch));
        done.goes_on(settled.map_err(WithdrawalError::from), "what became of jobs cannot be written");
        let taken_back = self.take_back(&seldom.taken_back, &signed, now).await.map(|batch| done.add(batch));
        done.goes_on(taken_back, "what the chain took back cannot be given back");
        let expired = self.expire(&seldom.expired, &signed, now, &mut done).await;
        done.goes_on(expired, "what is too old cannot be given back");
        let paid = self.pay(&due.approved, &signed, now, &mut done).await;
        done.goes_on(paid, "what was approved cannot be given a job");
        let approved: Vec<WithdrawalId> = due.approved.iter().map(|row| row.id).collect();
        self.after = DueAfter { approved: last_of_full(&approved), failed: last_of_full(&due.failed) };
        // What waits for the signer is no reason to come again at once.
        let ended = last_of_full(&due.paid).or(self.after.failed);
        done.more = self.after.approved.is_some() || ended.is_some() && done.waits.is_none();
        for id in &done.doubted {
            tracing::error!(withdrawal = %id, "people have to look at a withdrawal");
        }
        let told = self.tell_kept(&done.kept, now).await;
        done.goes_on(told, "what was not given back cannot be written down");
        Ok(done)
    }

    /// What a chain took back and was not given back is nobody's until people look: once for each, until somebody has seen to it.
    async fn tell_kept(&mut self, kept: &[WithdrawalId], now: Timestamp) -> Result<(), WithdrawalError> {
        for id in kept {
            if self.told.contains(id) {
                continue;
            }
            let detail = "the chain took its payment back for good, and the customer has not the money again: the account takes nothing, or it may have \
                been paid otherwise";
            tracing::error!(withdrawal = %id, code = "CHAIN_FINDING", "{detail}");
            let finding =
                Finding { kind: FindingKind::NotGivenBack, subject: id.to_string(), detail: detail.to_owned() };
            self.db.add_finding_once(self.row.id, &finding, now).await?;
            self.told.insert(*id);
        }
        Ok(())
    }

    /// What a chain took back, and what waits for people for too long. Nothing if that was looked for lately.
    async fn seldom(&mut self, now: Timestamp) -> Result<Seldom, WithdrawalError> {
        if self.looked.is_some_and(|looked| looked.plus_micros(SELDOM_MICROS) > now && looked <= now) {
            return Ok(Seldom::default());
        }
        let taken_back = self.db.withdrawals_taken_back(self.row.id, self.after_taken_back, MOST).await?;
        let expired = self.db.withdrawals_expired(self.row.id, now, self.after_expired, MOST).await?;
        (self.after_taken_back, self.after_expired) = (last_of_full(&taken_back), last_of_full(&expired));
        self.looked = Some(now);
        Ok(Seldom { taken_back, expired })
    }

    async fn take_back(
        &self,
        taken_back: &[WithdrawalId],
        signed: &SignedRounds,
        now: Timestamp,
    ) -> Result<SettledBatch, WithdrawalError> {
        let batch = self.db.settle_withdrawals(taken_back, signed, now).await?;
        for id in &batch.given_back {
            tracing::warn!(withdrawal = %id, "the chain took a payment back for good; the customer has the money again");
        }
        Ok(batch)
    }

    /// Their time is over before there was a job for them.
    async fn expire(
        &self,
        expired: &[WithdrawalId],
        signed: &SignedRounds,
        now: Timestamp,
        done: &mut WithdrawalRound,
    ) -> Result<(), WithdrawalError> {
        for (id, reply) in expired.iter().zip(self.db.expire_withdrawals(expired, signed, now).await?) {
            match reply {
                DecisionReply::Done(_) => done.failed += 1,
                DecisionReply::SignerKnowsMore => done.doubted.push(*id),
                DecisionReply::SignerNotAsked
                | DecisionReply::Before(_)
                | DecisionReply::NoSuchWithdrawal
                | DecisionReply::NotNow(_)
                | DecisionReply::NothingToJudge => {}
            }
        }
        Ok(())
    }

    /// Coins are not paid to ourselves: what goes to a user's address is settled in the books.
    async fn pay(
        &self,
        approved: &[WithdrawalRow],
        signed: &SignedRounds,
        now: Timestamp,
        done: &mut WithdrawalRound,
    ) -> Result<(), WithdrawalError> {
        // Those whose time is over are given back, not paid; and what may have been paid elsewhere is not even given back.
        let (approved, over): (Vec<&WithdrawalRow>, Vec<&WithdrawalRow>) =
            approved.iter().partition(|row| row.expires > now);
        let ways = self.ways(&approved).await?;
        let review = |row: &WithdrawalRow, reason: &str| WithdrawalDecision {
            id: row.id,
            decision: Decision::Review,
            actor: "custody".to_owned(),
            reason: reason.to_owned(),
        };
        let (mut inside, mut out, mut unclear) = (Vec::new(), Vec::new(), Vec::new());
        for row in over.into_iter().filter(|row| row.may_be_paid_elsewhere()) {
            let why = "its time is over, and another program may have paid it: two people must say whether";
            unclear.push(review(row, why));
        }
        for row in approved {
            match ways.get(row.to.as_str()).unwrap_or(&Way::Out) {
                Way::Inside(payee) => inside.push(SettleInside { withdrawal: row.id, payee: *payee }),
                Way::Out => out.push(row.id),
                // Nothing is paid by a row that lies. The difference is in the log, and people look at the withdrawal.
                Way::Unclear => {
                    unclear.push(review(row, "whose the destination is cannot be said: a row and the keys differ"));
                }
            }
        }
        self.db.decide_withdrawals(&unclear, signed, now).await?;
        done.doubted.extend(unclear.iter().map(|one| one.id));
        for (wanted, reply) in inside.iter().zip(self.db.settle_inside(&inside, signed, now).await?) {
            match reply {
                InsideReply::Settled(_) => done.inside += 1,
                InsideReply::Doubted(_) | InsideReply::Refused(_) => done.doubted.push(wanted.withdrawal),
                InsideReply::SwitchedOff => done.wait(SWITCHED_OFF),
                InsideReply::AccountClosed => done.wait(ACCOUNT_CLOSED),
                // Somebody else was here first, or it is said above why.
                InsideReply::NoSuchWithdrawal | InsideReply::NotNow(_) | InsideReply::SignerNotAsked => {}
            }
        }
        // A number is wanted for jobs alone, so the others do not wait for one.
        let enqueue = |withdrawal: WithdrawalId| self.job_id().map(|job| Enqueue { withdrawal, job });
        let out = out.into_iter().map(enqueue).collect::<Result<Vec<Enqueue>, WithdrawalError>>()?;
        for (wanted, reply) in out.iter().zip(self.db.enqueue_withdrawals(&self.row, &out, signed, now).await?) {
            match reply {
                Enqueued::Queued { .. } => done.queued += 1,
                Enqueued::Doubted { job, .. } => {
                    tracing::error!(withdrawal = %wanted.withdrawal, %job, "a job has the name of a withdrawal that it was not made for");
                    done.doubted.push(wanted.withdrawal);
                }
                Enqueued::SignerKnowsMore(_) => done.doubted.push(wanted.withdrawal),
                Enqueued::SwitchedOff => done.wait(SWITCHED_OFF),
                Enqueued::AccountClosed => done.wait(ACCOUNT_CLOSED),
                Enqueued::NoWallet => done.wait("no hot wallet of its group is active on the chain and sends"),
                Enqueued::Resting => done.wait("the hot wallets have too little; another job is made later"),
                Enqueued::NoSuchWithdrawal | Enqueued::NotNow(_) | Enqueued::TooLate | Enqueued::SignerNotAsked => {}
            }
        }
        Ok(())
    }

    /// Whose the destinations are, by the keys. One that no row knows is not ours.
    async fn ways(&self, approved: &[&WithdrawalRow]) -> Result<HashMap<String, Way>, WithdrawalError> {
        let texts: BTreeSet<&str> = approved.iter().map(|row| row.to.as_str()).collect();
        if texts.is_empty() {
            return Ok(HashMap::new());
        }
        let texts: Vec<&str> = texts.into_iter().collect();
        let owners = owners(self.db, (&self.pinned, &self.checked), &self.house, &texts).await?;
        let way = |owner: Attribution| match owner {
            Attribution::User(user) => Way::Inside(user),
            Attribution::Nobody(Reason::NoUser) => Way::Out,
            Attribution::Nobody(
                Reason::HouseWallet
                | Reason::RowDiffers
                | Reason::BelowMinimum
                | Reason::BeyondLedger
                | Reason::AccountDisabled
                | Reason::BalanceDiffers
                | Reason::FoundBefore,
            ) => Way::Unclear,
        };
        Ok(owners.into_iter().map(|(address, owner)| (address, way(owner))).collect())
    }

    fn job_id(&self) -> Result<JobId, WithdrawalError> {
        (self.ids)().and_then(|number| JobId::new(number).ok()).ok_or(WithdrawalError::NoIds)
    }
}

/// The last one, if there may be more behind it.
fn last_of_full(ids: &[WithdrawalId]) -> Option<WithdrawalId> {
    let full = i64::try_from(ids.len()).unwrap_or(MOST) >= MOST;
    ids.last().copied().filter(|_| full)
}

const ACCOUNT_CLOSED: &str = "the account of a customer is frozen or disabled";
const SWITCHED_OFF: &str = "withdrawals are switched off, or the chain or an asset is suspended";

impl WithdrawalRound {
    /// What a later round has done besides.
    pub fn join(&mut self, later: Self) {
        self.queued += later.queued;
        self.inside += later.inside;
        self.completed += later.completed;
        self.failed += later.failed;
        self.given_back += later.given_back;
        self.short += later.short;
        self.doubted.extend(later.doubted);
        self.kept.extend(later.kept);
        self.waits = later.waits;
        self.more = later.more;
    }

    fn wait(&mut self, why: &str) {
        self.waits.get_or_insert_with(|| why.to_owned());
    }

    /// What failed is tried again, and keeps nothing else from being done.
    fn goes_on(&mut self, result: Result<(), WithdrawalError>, what: &str) {
        if let Err(error) = result {
            let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            tracing::error!(code = error.code(), %error, cause, "{what}");
            self.wait(what);
        }
    }

    fn add(&mut self, batch: SettledBatch) {
        self.completed += batch.completed.len();
        self.failed += batch.failed.len();
        self.given_back += batch.given_back.len();
        self.short += batch.short.len();
        self.doubted.extend(batch.doubted);
        self.kept.extend(batch.kept);
    }
}
