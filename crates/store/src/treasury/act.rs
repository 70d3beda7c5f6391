//! What was decided: flags, reasons and jobs, in one transaction that names the worker's fence.

use std::collections::{BTreeMap, BTreeSet};

use domain::{RawAmount, Timestamp};

use super::pass::RuleWorker;
use crate::db::{Db, Tx};
use crate::entry::ListingId;
use crate::error::StoreError;
use crate::outbound::JobId;
use crate::outbound::add::{Added, NewJob, add};
use crate::outbound::read::withdraw;
use crate::rows::{Column, ColumnType::Int, ColumnType::Text, RowsSql, execute_rows, expect_rows};
use crate::transact;

/// What a job of the treasury is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TreasuryKind {
    GasTopup,
    Consolidation,
    Refill,
    Surplus,
}

impl TreasuryKind {
    pub const ALL: [Self; 4] = [Self::GasTopup, Self::Consolidation, Self::Refill, Self::Surplus];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::GasTopup => "gas_topup",
            Self::Consolidation => "consolidation",
            Self::Refill => "refill",
            Self::Surplus => "surplus",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// A job to make, and what it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTreasuryJob {
    pub job: NewJob,
    pub kind: TreasuryKind,
    /// The address that it is about.
    pub address: String,
    pub listing: ListingId,
    /// One more than that of the newest that the decision knew of.
    pub generation: i64,
    pub rule: Option<i64>,
    pub expected_cost: RawAmount,
}

/// What is to become of jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewJobs {
    pub made: Vec<NewTreasuryJob>,
    /// These end, if they still wait for a slot.
    pub withdrawn: Vec<JobId>,
}

/// What rules say of a coin at an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flags {
    pub address: String,
    pub listing: ListingId,
    pub needs_gas: bool,
    pub needs_consolidation: bool,
    pub waits: Option<String>,
}

/// How far the evaluation has come with this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleProgress {
    /// All that changed up to this block.
    Changed(i64),
    /// A page of a pass over all addresses, up to this one, as final blocks up to this one say. Neither this nor the next counts if a new pass was
    /// ordered since the worker took the rules: other rules hold by then, or other entries.
    Page(String, i64),
    /// The pass is over. What changed since it began is evaluated next.
    Passed(i64),
    /// Neither: some were looked at once more.
    None,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acted {
    /// Jobs that were made.
    pub jobs: usize,
    /// Coins whose flags or reasons changed.
    pub flags: usize,
}

statements! {
    LOCK_RULE_FENCE = "SELECT fence FROM rule_cursors WHERE chain_id = $1 {FOR UPDATE}";
    /// Read in the transaction that makes jobs, never before.
    READ_CHAIN_ACTS = "SELECT status = 'active' FROM chains WHERE id = $1";
    READ_COINS_ACT = "SELECT k.id FROM asset_on_chain k JOIN assets a ON a.id = k.asset_id AND a.status = 'active'
        WHERE k.chain_id = $1 AND k.status = 'active'";
    SET_EVALUATED = "UPDATE rule_cursors SET evaluated_height = $2, updated_at = $3 WHERE chain_id = $1";
    READ_ACTIVE_RULES = "SELECT 'gas_topup', id FROM gas_topup_rules WHERE chain_id = $1 AND is_active
        UNION ALL SELECT 'consolidation', id FROM consolidation_rules WHERE chain_id = $1 AND is_active";
    /// What changes above the block that the first pass began at is evaluated when it is over. A pass that is to begin anew, because people have ordered it
    /// meanwhile, begins anew.
    SET_PAGE = "UPDATE rule_cursors SET passed_address = $2,
        evaluated_height = CASE WHEN evaluated_height < 0 OR evaluated_height > $3 THEN $3 ELSE evaluated_height END, updated_at = $4
        WHERE chain_id = $1 AND passed_at = $5";
    SET_PASSED = "UPDATE rule_cursors SET passed_address = NULL, passed_at = $3,
        evaluated_height = CASE WHEN evaluated_height < 0 OR evaluated_height > $2 THEN $2 ELSE evaluated_height END, updated_at = $3
        WHERE chain_id = $1 AND passed_at = $4";
}

static WRITE_FLAGS: RowsSql = RowsSql::new(
    "WRITE_FLAGS",
    "UPDATE wallet_balances SET needs_gas = r.needs_gas = 1, needs_consolidation = r.needs_consolidation = 1, waits = r.waits
     FROM {rows} WHERE wallet_balances.chain_id = r.chain_id AND wallet_balances.address = r.address
         AND wallet_balances.listing_id = r.listing_id",
    &[
        ("chain_id", Int),
        ("address", Text),
        ("listing_id", Int),
        ("needs_gas", Int),
        ("needs_consolidation", Int),
        ("waits", Text),
    ],
);

static INSERT_TREASURY_JOBS: RowsSql = RowsSql::new(
    "INSERT_TREASURY_JOBS",
    "INSERT INTO treasury_jobs (job_id, kind, chain_id, address, listing_id, generation, rule_id, expected_cost_raw, created_at)
     SELECT r.job_id, r.kind, r.chain_id, r.address, r.listing_id, r.generation, r.rule_id, r.expected_cost_raw, r.at FROM {rows}",
    &[
        ("job_id", Int),
        ("kind", Text),
        ("chain_id", Int),
        ("address", Text),
        ("listing_id", Int),
        ("generation", Int),
        ("rule_id", Int),
        ("expected_cost_raw", Text),
        ("at", Int),
    ],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 2] = [&WRITE_FLAGS, &INSERT_TREASURY_JOBS];

/// Why a job that waited was withdrawn. `READ_FORMERS` counts no failure for it, nor for the other words that it names.
pub(super) const NOT_NEEDED: &str = "it is not needed any more";
/// Why a sweep that waited for a slot ended: prices have risen since it was decided. It has not failed either.
pub const TOO_DEAR: &str = "sending it would cost more than the rule's share of its value";
/// Why gas that waited for a slot ended: somebody else has brought it. It was not needed, and has not failed.
pub const ENOUGH_GAS: &str = "its address has enough gas already";
/// Why a job was not made.
const NO_WALLET: &str = "no wallet of the house that could pay for it is active";
const SUSPENDED: &str = "the chain is suspended";
const COIN_SUSPENDED: &str = "its coin is suspended";
const RULE_OVER: &str = "its rule is not active any more";

impl Db {
    /// Writes what was decided. `None`: another worker has the rules by now, and nothing is written.
    pub async fn act_on_rules(
        &self,
        worker: &RuleWorker,
        jobs: &NewJobs,
        flags: &[Flags],
        progress: &RuleProgress,
        at: Timestamp,
    ) -> Result<Option<Acted>, StoreError> {
        transact!(self, tx => {
            let fence = fetch_optional!(tx, LOCK_RULE_FENCE => (i64,), worker.chain.0)?;
            if fence != Some((worker.fence,)) {
                return Ok(None);
            }
            let mut flags: BTreeMap<(String, ListingId), Flags> =
                flags.iter().map(|one| ((one.address.clone(), one.listing), one.clone())).collect();
            let made = make(tx, worker, &jobs.made, &mut flags, at).await?;
            withdraw(tx, &jobs.withdrawn, NOT_NEEDED, at).await?;
            let acted = Acted { jobs: made, flags: flags.len() };
            write_flags(tx, worker, &flags.into_values().collect::<Vec<_>>()).await?;
            let chain = worker.chain.0;
            match progress {
                RuleProgress::Changed(height) => execute!(tx, SET_EVALUATED, chain, *height, at.micros())?,
                RuleProgress::Page(last, settled) => {
                    execute!(tx, SET_PAGE, chain, last.as_str(), *settled, at.micros(), worker.passed)?
                }
                RuleProgress::Passed(height) => execute!(tx, SET_PASSED, chain, *height, at.micros(), worker.passed)?,
                RuleProgress::None => 0,
            };
            Ok(Some(acted))
        })
    }
}

/// Says how many were made. An address whose job was not made says why.
async fn make(
    tx: &mut Tx,
    worker: &RuleWorker,
    jobs: &[NewTreasuryJob],
    flags: &mut BTreeMap<(String, ListingId), Flags>,
    at: Timestamp,
) -> Result<usize, StoreError> {
    if jobs.is_empty() {
        return Ok(0);
    }
    let active = fetch_optional!(tx, READ_CHAIN_ACTS => (bool,), worker.chain.0)?;
    let mut refuse = |job: &NewTreasuryJob, why: &str| {
        for one in
            flags.values_mut().filter(|one| one.address == job.address && (one.needs_gas || one.listing == job.listing))
        {
            one.waits = Some(why.to_owned());
        }
    };
    if active != Some((true,)) {
        jobs.iter().for_each(|job| refuse(job, SUSPENDED));
        return Ok(0);
    }
    let acting = fetch_all!(tx, READ_COINS_ACT => (i64,), worker.chain.0)?;
    let acting: BTreeSet<i64> = acting.into_iter().map(|(listing,)| listing).collect();
    let (jobs, stopped): (Vec<&NewTreasuryJob>, Vec<_>) = jobs.iter().partition(|job| acting.contains(&job.listing.0));
    stopped.into_iter().for_each(|job| refuse(job, COIN_SUSPENDED));
    let rules = fetch_all!(tx, READ_ACTIVE_RULES => (String, i64), worker.chain.0)?;
    let rules: BTreeSet<(String, i64)> = rules.into_iter().collect();
    let holds =
        |job: &&NewTreasuryJob| job.rule.is_none_or(|rule| rules.contains(&(job.kind.as_str().to_owned(), rule)));
    let (jobs, over): (Vec<&NewTreasuryJob>, Vec<_>) = jobs.into_iter().partition(holds);
    over.into_iter().for_each(|job| refuse(job, RULE_OVER));
    let new: Vec<NewJob> = jobs.iter().map(|one| one.job.clone()).collect();
    let added = add(tx, worker.chain, &new, at).await?;
    let mut made = Vec::new();
    for (job, added) in jobs.into_iter().zip(added) {
        match added {
            Added::New { .. } => made.push(job),
            // No rule has made that one: whoever has typed its reference keeps this address waiting, and no other.
            Added::Before(other) | Added::Taken(other) => {
                refuse(job, &format!("{other} has the reference {}, and no rule has made it", job.job.reference));
            }
            Added::OfWithdrawal => refuse(job, "its reference is a withdrawal's name"),
            Added::NoWallet => refuse(job, NO_WALLET),
        }
    }
    let columns = vec![
        Column::Ints(made.iter().map(|one| one.job.id.number()).collect()),
        Column::Texts(made.iter().map(|one| one.kind.as_str()).collect()),
        Column::Ints(vec![worker.chain.0; made.len()]),
        Column::Texts(made.iter().map(|one| one.address.as_str()).collect()),
        Column::Ints(made.iter().map(|one| one.listing.0).collect()),
        Column::Ints(made.iter().map(|one| one.generation).collect()),
        Column::OptionalInts(made.iter().map(|one| one.rule).collect()),
        Column::Strings(made.iter().map(|one| one.expected_cost.to_string()).collect()),
        Column::Ints(vec![at.micros(); made.len()]),
    ];
    expect_rows(execute_rows(tx, &INSERT_TREASURY_JOBS, columns).await?, made.len(), "jobs of the treasury")?;
    Ok(made.len())
}

async fn write_flags(tx: &mut Tx, worker: &RuleWorker, flags: &[Flags]) -> Result<(), StoreError> {
    if flags.is_empty() {
        return Ok(());
    }
    let columns = vec![
        Column::Ints(vec![worker.chain.0; flags.len()]),
        Column::Texts(flags.iter().map(|one| one.address.as_str()).collect()),
        Column::Ints(flags.iter().map(|one| one.listing.0).collect()),
        Column::Ints(flags.iter().map(|one| one.needs_gas.into()).collect()),
        Column::Ints(flags.iter().map(|one| one.needs_consolidation.into()).collect()),
        Column::OptionalTexts(flags.iter().map(|one| one.waits.as_deref()).collect()),
    ];
    expect_rows(execute_rows(tx, &WRITE_FLAGS, columns).await?, flags.len(), "balances of wallets")
}
