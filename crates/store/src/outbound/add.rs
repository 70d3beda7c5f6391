//! New jobs. Who pays each is chosen here, once: the wallet that was given a job the longest ago, then the one with the fewest open.

use std::collections::{BTreeMap, HashMap};

use domain::outbound::{JobKind, JobState};
use domain::utxo::OutPoint;
use domain::{GroupId, RawAmount, Timestamp, WalletRole};

use super::advance::{Step, write_steps};
use super::coins::name_coins;
use super::lane::Duty;
use super::types::{JOB, JobColumns, JobId, JobRow, job_row, malformed};
use crate::db::{Db, Tx};
use crate::dialect::Many;
use crate::entry::{ChainId, ListingId};
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Int, ColumnType::Text, RowsSql, execute_rows, expect_rows, fetch_rows};
use crate::transact;
use crate::withdrawal::WithdrawalId;

/// Who pays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payer {
    /// One of the house's wallets of this role, on the job's chain.
    Role(WalletRole),
    /// This one: a user's address, for one.
    Wallet { group: GroupId, index: i64, address: String },
    /// Bitcoin: coins of a group, all of these and no others. The address only gives the lane its name.
    Coins { group: GroupId, index: i64, address: String, coins: Vec<OutPoint> },
}

impl Payer {
    /// The coins that it names.
    fn coins(&self) -> &[OutPoint] {
        match self {
            Self::Role(_) | Self::Wallet { .. } => &[],
            Self::Coins { coins, .. } => coins,
        }
    }
}

/// Which withdrawal a job pays. The signer knows it by the withdrawal's number, and its rounds go on over all of its jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Paying {
    pub withdrawal: WithdrawalId,
    /// In how many slots it was written down before.
    pub rounds: u32,
    /// A wallet of this group pays, and none that sends nothing now.
    pub group: Option<GroupId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJob {
    pub id: JobId,
    pub listing: ListingId,
    pub kind: JobKind,
    /// Two jobs of one kind with the same reference are one, unless the first has failed for good.
    pub reference: String,
    pub to: String,
    /// Whose address that is, if it is one of ours.
    pub owner: Option<(GroupId, i64)>,
    pub amount: RawAmount,
    pub most_fee: RawAmount,
    pub priority: i64,
    pub requester: String,
    pub expires: Timestamp,
    pub payer: Payer,
}

/// What became of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Added {
    New {
        id: JobId,
        from: String,
    },
    /// It was made before, with the same content.
    Before(JobId),
    /// The reference is another job's.
    Taken(JobId),
    /// The reference is a withdrawal's name, and a withdrawal makes its own jobs.
    OfWithdrawal,
    /// No wallet of the role is active on the chain.
    NoWallet,
}

statements! {
    /// Who adds jobs at the same time waits here, so that two do not take turns with one wallet. The last: nothing is sent from it now, because people
    /// look, or because another program's transaction may still be mined there.
    LOCK_PAYERS = "SELECT w.id, w.wallet_group_id, g.name, w.derivation_index, w.address, w.role, COALESCE(w.last_used_at, -1),
            (SELECT COUNT(*) FROM outbound_lanes l JOIN outbound_jobs j ON j.chain_id = l.chain_id AND j.lane_id = l.id
                AND j.waiting WHERE l.chain_id = w.chain_id AND l.address = w.address),
            g.outbound_stopped IS NOT NULL OR EXISTS (SELECT 1 FROM outbound_lanes l
                WHERE l.chain_id = w.chain_id AND l.address = w.address AND (l.stopped IS NOT NULL OR c.kind = 'evm' AND EXISTS (SELECT 1
                    FROM outbound_slots s WHERE s.lane_id = l.id AND s.state = 'open' AND s.imported)))
        FROM operation_wallet_addresses w JOIN wallet_groups g ON g.id = w.wallet_group_id JOIN chains c ON c.id = w.chain_id
        WHERE w.chain_id = $1 AND w.is_active ORDER BY w.id {FOR UPDATE OF w}";
    READ_GROUP_IDS = "SELECT id, name FROM wallet_groups WHERE name {in $1}";
}

static READ_REFERENCED: RowsSql = RowsSql::listing(
    "READ_REFERENCED",
    "SELECT {columns} FROM {rows} {join} outbound_jobs j ON j.kind = r.kind AND j.reference = r.reference
     WHERE NOT j.failed",
    JOB,
    &[("kind", Text), ("reference", Text)],
);

static INSERT_LANES: RowsSql = RowsSql::new(
    "INSERT_LANES",
    "INSERT INTO outbound_lanes (chain_id, wallet_group_id, derivation_index, address, known_nonce, stopped, updated_at)
     SELECT r.chain_id, r.group_id, r.derivation_index, r.address, NULL, NULL, r.at FROM {rows} WHERE true
     ON CONFLICT (chain_id, address) DO NOTHING",
    &[("chain_id", Int), ("group_id", Int), ("derivation_index", Int), ("address", Text), ("at", Int)],
);

static INSERT_LEASES: RowsSql = RowsSql::new(
    "INSERT_LEASES",
    "INSERT INTO outbound_leases (lane_id, duty, worker, fence, lease_until)
     SELECT l.id, r.duty, '', 0, 0 FROM {rows} {join} outbound_lanes l ON l.chain_id = r.chain_id AND l.address = r.address WHERE true
     ON CONFLICT (lane_id, duty) DO NOTHING",
    &[("chain_id", Int), ("address", Text), ("duty", Text)],
);

static INSERT_JOBS: RowsSql = RowsSql::new(
    "INSERT_JOBS",
    "INSERT INTO outbound_jobs (id, chain_id, lane_id, listing_id, kind, reference, to_address, owner_group, owner_index, amount_raw,
         most_fee_raw, priority, requester, expires_at, withdrawal_id, state, version, tries, rounds, slot_id, give_up, bump, reason, due_at, created_at,
         updated_at)
     SELECT r.id, r.chain_id, l.id, r.listing_id, r.kind, r.reference, r.to_address, r.owner_group, r.owner_index, r.amount_raw,
         r.most_fee_raw, r.priority, r.requester, r.expires_at, r.withdrawal_id, 'queued', 1, 0, r.rounds, NULL, FALSE, FALSE, r.reason, r.at, r.at, r.at
     FROM {rows} {join} outbound_lanes l ON l.chain_id = r.chain_id AND l.address = r.address",
    &[
        ("id", Int),
        ("chain_id", Int),
        ("address", Text),
        ("listing_id", Int),
        ("kind", Text),
        ("reference", Text),
        ("to_address", Text),
        ("owner_group", Text),
        ("owner_index", Int),
        ("amount_raw", Text),
        ("most_fee_raw", Text),
        ("priority", Int),
        ("requester", Text),
        ("expires_at", Int),
        ("withdrawal_id", Int),
        ("rounds", Int),
        ("reason", Text),
        ("at", Int),
    ],
);

static USE_PAYERS: RowsSql = RowsSql::new(
    "USE_PAYERS",
    "UPDATE operation_wallet_addresses SET last_used_at = r.used_at FROM {rows} WHERE operation_wallet_addresses.id = r.id",
    &[("id", Int), ("used_at", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 5] =
    [&READ_REFERENCED, &INSERT_LANES, &INSERT_LEASES, &INSERT_JOBS, &USE_PAYERS];

/// A wallet that pays, while its row is locked.
#[derive(Clone, Debug)]
struct Candidate {
    id: i64,
    group: i64,
    group_name: String,
    index: i64,
    address: String,
    role: WalletRole,
    used: i64,
    open: i64,
    /// Nothing is sent from it until people look, or until what another program has sent is final.
    stopped: bool,
}

/// How the names of withdrawals begin. The database refuses them to other jobs as well.
const WITHDRAWAL_NAMES: &str = "wr-";

/// Where a job is paid from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Source {
    address: String,
    group: i64,
    index: i64,
}

impl Db {
    /// Makes jobs of one chain, in one transaction. The answers are in their order.
    pub async fn add_jobs(&self, chain: ChainId, jobs: &[NewJob], at: Timestamp) -> Result<Vec<Added>, StoreError> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        transact!(self, tx => add(tx, chain, jobs, at).await)
    }
}

pub(crate) async fn add(tx: &mut Tx, chain: ChainId, jobs: &[NewJob], at: Timestamp) -> Result<Vec<Added>, StoreError> {
    add_all(tx, chain, &jobs.iter().map(|job| (job, None)).collect::<Vec<_>>(), at).await
}

/// The same for withdrawals.
pub(crate) async fn add_paying(
    tx: &mut Tx,
    chain: ChainId,
    jobs: &[(NewJob, Paying)],
    at: Timestamp,
) -> Result<Vec<Added>, StoreError> {
    add_all(tx, chain, &jobs.iter().map(|(job, paying)| (job, Some(paying))).collect::<Vec<_>>(), at).await
}

/// A job to be, and the withdrawal that it pays.
type Wanted<'a> = (&'a NewJob, Option<&'a Paying>);

async fn add_all(tx: &mut Tx, chain: ChainId, jobs: &[Wanted<'_>], at: Timestamp) -> Result<Vec<Added>, StoreError> {
    let mut payers = lock_payers(tx, chain).await?;
    let groups = group_ids(tx, jobs).await?;
    let columns = vec![
        Column::Texts(jobs.iter().map(|(job, _)| job.kind.as_str()).collect()),
        Column::Texts(jobs.iter().map(|(job, _)| job.reference.as_str()).collect()),
    ];
    let rows: Vec<JobColumns> = fetch_rows(tx, &READ_REFERENCED, columns).await?;
    let rows = rows.into_iter().map(job_row).collect::<Result<Vec<_>, _>>()?;
    let mut known: HashMap<(JobKind, String), Known> =
        rows.into_iter().map(|row| ((row.kind, row.reference.clone()), Known::of_row(&row))).collect();
    let (mut answers, mut new, mut used) = (Vec::with_capacity(jobs.len()), Vec::new(), BTreeMap::new());
    for (job, paying) in jobs {
        // What pays under a withdrawal's name and is not known as its payment could pay it beside its hold.
        if paying.is_none() && job.reference.starts_with(WITHDRAWAL_NAMES) {
            answers.push(Added::OfWithdrawal);
            continue;
        }
        if let Some(before) = known.get(&(job.kind, job.reference.clone())) {
            answers.push(before.meets(job));
            continue;
        }
        let source = match &job.payer {
            Payer::Role(role) => choose(&mut payers, *role, *paying, at, &mut used),
            Payer::Wallet { group, index, address } | Payer::Coins { group, index, address, .. } => groups
                .get(group.as_str())
                .map(|group| Source { address: address.clone(), group: *group, index: *index }),
        };
        let Some(source) = source else {
            answers.push(Added::NoWallet);
            continue;
        };
        answers.push(Added::New { id: job.id, from: source.address.clone() });
        known.insert((job.kind, job.reference.clone()), Known::of_new(job));
        new.push(((*job, *paying), source));
    }
    if !new.is_empty() {
        write(tx, chain, &new, at).await?;
        let columns =
            vec![Column::Ints(used.keys().copied().collect()), Column::Ints(used.values().copied().collect())];
        if !used.is_empty() {
            expect_rows(execute_rows(tx, &USE_PAYERS, columns).await?, used.len(), "wallets")?;
        }
    }
    Ok(answers)
}

/// What makes a job with a reference the same job.
struct Known {
    id: JobId,
    content: (ListingId, String, RawAmount),
}

impl Known {
    fn of_row(row: &JobRow) -> Self {
        Self { id: row.id, content: (row.listing, row.to.clone(), row.amount) }
    }

    fn of_new(job: &NewJob) -> Self {
        Self { id: job.id, content: (job.listing, job.to.clone(), job.amount) }
    }

    fn meets(&self, job: &NewJob) -> Added {
        if self.content == (job.listing, job.to.clone(), job.amount) {
            Added::Before(self.id)
        } else {
            Added::Taken(self.id)
        }
    }
}

async fn lock_payers(tx: &mut Tx, chain: ChainId) -> Result<Vec<Candidate>, StoreError> {
    type Columns = (i64, i64, String, i64, String, String, i64, i64, bool);
    let rows = fetch_all!(tx, LOCK_PAYERS => Columns, chain.0)?;
    let candidate = |(id, group, group_name, index, address, role, used, open, stopped): Columns| {
        let role = WalletRole::parse(&role).ok_or_else(|| malformed("role of a wallet"))?;
        Ok(Candidate { id, group, group_name, index, address, role, used, open, stopped })
    };
    rows.into_iter().map(candidate).collect()
}

async fn group_ids(tx: &mut Tx, jobs: &[Wanted<'_>]) -> Result<HashMap<String, i64>, StoreError> {
    let named = jobs.iter().filter_map(|(job, _)| match &job.payer {
        Payer::Wallet { group, .. } | Payer::Coins { group, .. } => Some(group.to_string()),
        Payer::Role(_) => None,
    });
    let names = Many(named.collect::<Vec<String>>());
    if names.0.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = fetch_all!(tx, READ_GROUP_IDS => (i64, String), names.clone())?;
    Ok(rows.into_iter().map(|(id, name)| (name, id)).collect())
}

/// The one that has rested longest, then the one with the fewest jobs. The next job of the batch sees that it was used. One that is stopped pays no
/// withdrawal, and anything else only where all are.
fn choose(
    payers: &mut [Candidate],
    role: WalletRole,
    paying: Option<&Paying>,
    at: Timestamp,
    used: &mut BTreeMap<i64, i64>,
) -> Option<Source> {
    let newest = payers.iter().map(|one| one.used).max().unwrap_or(-1);
    let fits = |one: &&mut Candidate| {
        let pays = |paying: &Paying| {
            !one.stopped && paying.group.as_ref().is_none_or(|group| group.as_str() == one.group_name)
        };
        one.role == role && paying.is_none_or(pays)
    };
    let payer = payers.iter_mut().filter(fits).min_by_key(|one| (one.stopped, one.used, one.open, one.id))?;
    // Later than all others, also when the clock has not moved.
    payer.used = at.micros().max(newest.saturating_add(1));
    payer.open += 1;
    used.insert(payer.id, payer.used);
    Some(Source { address: payer.address.clone(), group: payer.group, index: payer.index })
}

async fn write(tx: &mut Tx, chain: ChainId, new: &[(Wanted<'_>, Source)], at: Timestamp) -> Result<(), StoreError> {
    let sources: std::collections::BTreeSet<&Source> = new.iter().map(|(_, source)| source).collect();
    let columns = vec![
        Column::Ints(vec![chain.0; sources.len()]),
        Column::Ints(sources.iter().map(|source| source.group).collect()),
        Column::Ints(sources.iter().map(|source| source.index).collect()),
        Column::Texts(sources.iter().map(|source| source.address.as_str()).collect()),
        Column::Ints(vec![at.micros(); sources.len()]),
    ];
    execute_rows(tx, &INSERT_LANES, columns).await?;
    let leases: Vec<(&Source, Duty)> =
        sources.iter().flat_map(|source| Duty::ALL.map(|duty| (*source, duty))).collect();
    let columns = vec![
        Column::Ints(vec![chain.0; leases.len()]),
        Column::Texts(leases.iter().map(|(source, _)| source.address.as_str()).collect()),
        Column::Texts(leases.iter().map(|(_, duty)| duty.as_str()).collect()),
    ];
    execute_rows(tx, &INSERT_LEASES, columns).await?;
    let words = "waits for its turn";
    let columns = vec![
        Column::Ints(new.iter().map(|((job, _), _)| job.id.number()).collect()),
        Column::Ints(vec![chain.0; new.len()]),
        Column::Texts(new.iter().map(|(_, source)| source.address.as_str()).collect()),
        Column::Ints(new.iter().map(|((job, _), _)| job.listing.0).collect()),
        Column::Texts(new.iter().map(|((job, _), _)| job.kind.as_str()).collect()),
        Column::Texts(new.iter().map(|((job, _), _)| job.reference.as_str()).collect()),
        Column::Texts(new.iter().map(|((job, _), _)| job.to.as_str()).collect()),
        Column::OptionalTexts(
            new.iter().map(|((job, _), _)| job.owner.as_ref().map(|(group, _)| group.as_str())).collect(),
        ),
        Column::OptionalInts(new.iter().map(|((job, _), _)| job.owner.as_ref().map(|(_, index)| *index)).collect()),
        Column::Strings(new.iter().map(|((job, _), _)| job.amount.to_string()).collect()),
        Column::Strings(new.iter().map(|((job, _), _)| job.most_fee.to_string()).collect()),
        Column::Ints(new.iter().map(|((job, _), _)| job.priority).collect()),
        Column::Texts(new.iter().map(|((job, _), _)| job.requester.as_str()).collect()),
        Column::Ints(new.iter().map(|((job, _), _)| job.expires.micros()).collect()),
        Column::OptionalInts(new.iter().map(|((_, paying), _)| paying.map(|one| one.withdrawal.number())).collect()),
        Column::Ints(new.iter().map(|((_, paying), _)| paying.map_or(0, |one| one.rounds.into())).collect()),
        Column::Texts(vec![words; new.len()]),
        Column::Ints(vec![at.micros(); new.len()]),
    ];
    expect_rows(execute_rows(tx, &INSERT_JOBS, columns).await?, new.len(), "jobs")?;
    let named = new.iter().flat_map(|((job, _), _)| job.payer.coins().iter().map(|coin| (job.id, *coin)));
    name_coins(tx, &named.collect::<Vec<_>>()).await?;
    let first = |((job, _), _): &(Wanted<'_>, Source)| Step {
        job: job.id,
        version: 1,
        state: JobState::Queued,
        words: format!("made by {}", job.requester),
    };
    write_steps(tx, &new.iter().map(first).collect::<Vec<_>>(), at).await
}
