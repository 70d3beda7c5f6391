//! One worker of a chain's withdrawals.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use domain::deposit::{Attribution, Reason};
use domain::{Clock, Timestamp, UserId};
use store::Db;
use store::entry::ChainRow;
use store::outbound::JobId;
use store::withdrawal::{
    Decision, Enqueue, Enqueued, InsideReply, SettleInside, SettledBatch, WithdrawalDecision, WithdrawalId,
    WithdrawalRow,
};
use tx::Family;

use super::WithdrawalError;
use crate::deposit::owner::{Checked, owners};
use crate::deposit::read::House;
use crate::outbound::MakeId;
use crate::wallet::Pinned;

/// Withdrawals of one round, of each kind.
const MOST: i64 = 1_000;
/// What a chain took back for good is looked for this often: it is rare, and all jobs that ever failed are read.
const TAKEN_BACK_EVERY_MICROS: i64 = 60_000_000;

/// Under which terms jobs are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WithdrawalTerms {
    /// A job that could not be signed for so long is over, and its withdrawal fails.
    pub job_life_us: i64,
}

impl Default for WithdrawalTerms {
    /// A day, as `bursar job add` has it.
    fn default() -> Self {
        Self { job_life_us: 24 * 3_600 * 1_000_000 }
    }
}

/// What one round has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WithdrawalRound {
    pub queued: usize,
    pub inside: usize,
    pub completed: usize,
    pub failed: usize,
    pub given_back: usize,
    /// People have to look at these.
    pub doubted: Vec<WithdrawalId>,
    /// The customer's account takes nothing of these, which a chain took back.
    pub kept: Vec<WithdrawalId>,
    /// What kept it from queueing some.
    pub waits: Option<&'static str>,
    /// There is more of the same to do at once.
    pub more: bool,
}

pub struct WithdrawalWorker<'a> {
    db: &'a Db,
    ids: MakeId<'a>,
    row: ChainRow,
    pinned: Arc<Pinned>,
    house: House,
    checked: Checked,
    terms: WithdrawalTerms,
    /// The last approved one that was looked at: what cannot be queued now does not keep those behind it waiting.
    after: Option<WithdrawalId>,
    /// When what was taken back was last looked for.
    looked: Option<Timestamp>,
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
        ids: MakeId<'a>,
        row: ChainRow,
        pinned: Arc<Pinned>,
        terms: WithdrawalTerms,
    ) -> Result<Self, WithdrawalError> {
        if Family::of_chain(row.kind, &row.network).is_none() {
            return Err(WithdrawalError::Network { chain: row.name.to_string(), network: row.network.clone() });
        }
        let house = House::of(&pinned, &row.name);
        Ok(Self { db, ids, row, pinned, house, checked: Checked::default(), terms, after: None, looked: None })
    }

    /// What has ended first: it gives customers their money back, or the house its fee. Then what may be paid.
    pub async fn round(&mut self, clock: &dyn Clock) -> Result<WithdrawalRound, WithdrawalError> {
        let now = clock.now();
        let mut done = WithdrawalRound::default();
        let due = self.db.withdrawals_due(self.row.id, self.after, MOST).await?;
        let full = i64::try_from(due.ended.len()).unwrap_or(MOST) >= MOST;
        done.add(self.db.settle_withdrawals(&due.ended, now).await?);
        done.add(self.take_back(now).await?);
        self.pay(&due.approved, now, &mut done).await?;
        let page_full = i64::try_from(due.approved.len()).unwrap_or(MOST) >= MOST;
        self.after = if page_full { due.approved.last().map(|row| row.id) } else { None };
        done.more = full || page_full;
        Ok(done)
    }

    async fn take_back(&mut self, now: Timestamp) -> Result<SettledBatch, WithdrawalError> {
        if self.looked.is_some_and(|looked| looked.plus_micros(TAKEN_BACK_EVERY_MICROS) > now && looked <= now) {
            return Ok(SettledBatch::default());
        }
        let taken_back = self.db.withdrawals_taken_back(self.row.id, MOST).await?;
        let batch = self.db.settle_withdrawals(&taken_back, now).await?;
        for id in &batch.given_back {
            tracing::warn!(withdrawal = %id, "the chain took a payment back for good; the customer has the money again");
        }
        self.looked = Some(now);
        Ok(batch)
    }

    /// Coins are not paid to ourselves: what goes to a user's address is settled in the books.
    async fn pay(
        &self,
        approved: &[WithdrawalRow],
        now: Timestamp,
        done: &mut WithdrawalRound,
    ) -> Result<(), WithdrawalError> {
        let ways = self.ways(approved).await?;
        let (mut inside, mut out, mut unclear) = (Vec::new(), Vec::new(), Vec::new());
        for row in approved {
            match ways.get(row.to.as_str()).unwrap_or(&Way::Out) {
                Way::Inside(payee) => inside.push(SettleInside { withdrawal: row.id, payee: *payee }),
                Way::Out => out.push(Enqueue {
                    withdrawal: row.id,
                    job: self.job_id()?,
                    most_fee: self.row.outbound.fee_cap,
                    expires: now.plus_micros(self.terms.job_life_us),
                }),
                // Nothing is paid by a row that lies. The difference is in the log, and people look at the withdrawal.
                Way::Unclear => unclear.push(WithdrawalDecision {
                    id: row.id,
                    decision: Decision::Review,
                    actor: "custody".to_owned(),
                    reason: "whose the destination is cannot be said: a row and the keys differ".to_owned(),
                }),
            }
        }
        self.db.decide_withdrawals(&unclear, now).await?;
        done.doubted.extend(unclear.iter().map(|one| one.id));
        for (wanted, reply) in inside.iter().zip(self.db.settle_inside(&inside, now).await?) {
            match reply {
                InsideReply::Settled(_) => done.inside += 1,
                InsideReply::Doubted(_) | InsideReply::Refused(_) => done.doubted.push(wanted.withdrawal),
                InsideReply::SwitchedOff => done.waits = Some(SWITCHED_OFF),
                InsideReply::AccountClosed => done.waits = Some(ACCOUNT_CLOSED),
                // Somebody else was here first.
                InsideReply::NoSuchWithdrawal | InsideReply::NotNow(_) => {}
            }
        }
        for (wanted, reply) in out.iter().zip(self.db.enqueue_withdrawals(&self.row, &out, now).await?) {
            match reply {
                Enqueued::Queued { .. } => done.queued += 1,
                Enqueued::Doubted { job, .. } => {
                    tracing::error!(withdrawal = %wanted.withdrawal, %job, "a job has the name of a withdrawal that it was not made for");
                    done.doubted.push(wanted.withdrawal);
                }
                Enqueued::SwitchedOff => done.waits = Some(SWITCHED_OFF),
                Enqueued::AccountClosed => done.waits = Some(ACCOUNT_CLOSED),
                Enqueued::NoWallet => done.waits = Some("no hot wallet is active on the chain"),
                Enqueued::NoSuchWithdrawal | Enqueued::NotNow(_) => {}
            }
        }
        Ok(())
    }

    /// Whose the destinations are, by the keys. One that no row knows is not ours.
    async fn ways(&self, approved: &[WithdrawalRow]) -> Result<HashMap<String, Way>, WithdrawalError> {
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

const ACCOUNT_CLOSED: &str = "the account of a customer is frozen or disabled";
const SWITCHED_OFF: &str = "withdrawals are switched off, or the chain or an asset is suspended";

impl WithdrawalRound {
    fn add(&mut self, batch: SettledBatch) {
        self.completed += batch.completed.len();
        self.failed += batch.failed.len();
        self.given_back += batch.given_back.len();
        self.kept.extend(batch.kept);
    }
}
