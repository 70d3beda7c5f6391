//! Withdrawals that another program has begun, taken over: each with its hold, in one commit, once.
//!
//! | the other program's row | becomes |
//! |---|---|
//! | has a hash, and has not ended | a request that is queued, with a job that is followed by that hash and by nothing else |
//! | has none | a request that waits for people |
//!
//! A job that is followed has one slot with one attempt, of which there is a hash and no bytes. **Nobody signs, tells, replaces or cancels anything in such a
//! slot**; the watcher asks the chain about the hash, and what the chain does not say people do.

use std::collections::{BTreeSet, HashMap, HashSet};

use domain::ledger::{AccountState, Outcome, Reply};
use domain::outbound::{JobEvent, JobKind, JobState};
use domain::transfer::ClientOrderId;
use domain::utxo::Hash;
use domain::withdrawal::{WithdrawalEvent, WithdrawalPolicy, WithdrawalState};
use domain::{AccountId, AccountStatus, Amount, AssetId, GroupId, RawAmount, Timestamp, UserId};

use super::MOST;
use super::advance::{Change, Step, add_steps, advance};
use super::check;
use super::create::{hold, insert};
use super::facts::{self, Coin};
use super::queue::INSERT_JOB_LINKS;
use super::types::{MAY_BE_PAID, WithdrawalId, WithdrawalRow, lock, malformed, numbers, withdrawal_id};
use crate::db::{Db, Tx};
use crate::dialect::Many;
use crate::entry::{ChainId, ListingId};
use crate::error::StoreError;
use crate::ledger::decide;
use crate::outbound::add::{Paying, add_paying};
use crate::outbound::advance as job_advance;
use crate::outbound::read::{JobReply, call_off};
use crate::outbound::{Added, JobId, NewJob, Payer, SlotId};
use crate::rows::{
    Column, ColumnType::Bytes, ColumnType::Int, ColumnType::Text, RowsSql, Writes, execute_rows, expect_rows,
};
use crate::transact;
use crate::transfer::lock_funding_accounts;

/// A withdrawal of another program, as it is to be here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewImport {
    /// Its id there.
    pub old_id: String,
    pub old_status: String,
    /// Its number here, if it is taken over.
    pub id: WithdrawalId,
    pub user: UserId,
    pub asset: AssetId,
    pub chain: ChainId,
    pub listing: ListingId,
    /// As the chain writes it.
    pub to: String,
    pub amount: Amount,
    pub fee: Amount,
    /// What is known of it, as JSON, for people.
    pub inputs: String,
    pub course: ImportCourse,
}

/// How it goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImportCourse {
    /// So many people have to agree, and as many as the policy wants.
    Waits { people: u32 },
    /// It may have been paid: nobody may pay it before so many people have looked and agree, and as many as the policy wants.
    MayBePaid { people: u32 },
    /// It was sent.
    Followed(FollowedPayment),
}

/// A payment of which only the hash is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowedPayment {
    pub hash: Hash,
    /// The numbers of the job and of its slot here.
    pub job: JobId,
    pub slot: SlotId,
    /// The wallet that sent it.
    pub group: GroupId,
    pub index: i64,
    pub address: String,
    pub raw: RawAmount,
}

impl ImportCourse {
    const fn hash(&self) -> Option<Hash> {
        match self {
            Self::Followed(payment) => Some(payment.hash),
            Self::Waits { .. } | Self::MayBePaid { .. } => None,
        }
    }
}

/// Why a row is not taken over. Nothing was changed for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportRefusal {
    /// Nothing says yet what holds for withdrawals of the coin.
    NoPolicy,
    AccountNotFound,
    /// It is frozen or disabled: it gives nothing out.
    AccountClosed,
    /// The customer does not have amount and fee.
    InsufficientBalance,
    /// Another withdrawal was taken over with the same hash.
    HashTaken,
    /// The customer has asked for a withdrawal here under its name: it may be the same.
    NameTaken,
    /// The wallet is none that pays here.
    NoWallet,
}

impl ImportRefusal {
    pub const fn words(self) -> &'static str {
        match self {
            Self::NoPolicy => "no policy says what holds for withdrawals of the coin on the chain",
            Self::AccountNotFound => "the customer has no account in the asset",
            Self::AccountClosed => "the customer's account is frozen or disabled",
            Self::InsufficientBalance => "the customer has less than amount and fee",
            Self::HashTaken => "another withdrawal was taken over with the same hash",
            Self::NameTaken => {
                "the customer has asked for a withdrawal here under the same name: people look whether it is the same"
            }
            Self::NoWallet => "the wallet that sent it is none of the house's that pay on the chain",
        }
    }
}

/// What became of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImportReply {
    New(Box<WithdrawalRow>),
    /// It was taken over before, as it is now.
    Before(WithdrawalId),
    /// It was taken over before, and the other program has changed it since: it is still at work.
    Changed {
        id: WithdrawalId,
        old_status: String,
        hash: Option<Hash>,
    },
    Refused(ImportRefusal),
}

/// A withdrawal that was taken over, as its row there was then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedWithdrawal {
    /// Its id there.
    pub old_id: String,
    pub id: WithdrawalId,
    pub old_status: String,
    pub hash: Option<Hash>,
}

/// The other program has gone on with one that was taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedThere {
    pub id: WithdrawalId,
    /// It was sent there before it was taken over, and is followed by its hash.
    pub followed: bool,
    /// What it has done, in words.
    pub words: String,
}

/// What became of one that the other program has gone on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangedReply {
    /// It waits for two people.
    Doubted,
    /// It has a job, which may pay it again, and this came of calling that off; when it ends unpaid, two people have to look.
    DoubtedWithJob(JobReply),
    /// It waited for two people already.
    Before,
    /// It is in this state, in which people who look at it change nothing by that alone.
    TooLate(WithdrawalState),
}

statements! {
    READ_ALL_IMPORTS = "SELECT old_id, withdrawal_id, old_status, tx_hash FROM withdrawal_imports ORDER BY old_id";
    READ_IMPORTS = "SELECT old_id, withdrawal_id, old_status, tx_hash FROM withdrawal_imports WHERE old_id {in $1}";
    /// The newest of each, in the order of their lanes, as all who lock several.
    READ_DOUBTED_JOBS = "SELECT w.id, j.id FROM withdrawal_requests w JOIN withdrawal_jobs k ON k.withdrawal_id = w.id AND k.number = w.jobs
            JOIN outbound_jobs j ON j.id = k.job_id
        WHERE w.id {in $1} ORDER BY j.lane_id, j.id";
}

/// By chain and hash.
static READ_IMPORTED_HASHES: RowsSql = RowsSql::new(
    "READ_IMPORTED_HASHES",
    "SELECT i.chain_id, i.tx_hash FROM {rows} {join} withdrawal_imports i ON i.chain_id = r.chain_id AND i.tx_hash = r.tx_hash",
    &[("chain_id", Int), ("tx_hash", Bytes)],
);

static INSERT_IMPORTS: RowsSql = RowsSql::new(
    "INSERT_IMPORTS",
    "INSERT INTO withdrawal_imports (old_id, withdrawal_id, chain_id, old_status, tx_hash, actor, at)
     SELECT r.old_id, r.withdrawal_id, r.chain_id, r.old_status, r.tx_hash, r.actor, r.at FROM {rows}",
    &[
        ("old_id", Text),
        ("withdrawal_id", Int),
        ("chain_id", Int),
        ("old_status", Text),
        ("tx_hash", Bytes),
        ("actor", Text),
        ("at", Int),
    ],
);

static INSERT_IMPORTED_SLOTS: RowsSql = RowsSql::new(
    "INSERT_IMPORTED_SLOTS",
    "INSERT INTO outbound_slots (id, lane_id, nonce, since_height, state, reason, imported, created_at, updated_at)
     SELECT r.id, j.lane_id, NULL, 0, 'open', 'another program has used it', TRUE, r.at, r.at FROM {rows} {join} outbound_jobs j ON j.id = r.job_id",
    &[("id", Int), ("job_id", Int), ("at", Int)],
);

static INSERT_IMPORTED_SLOT_JOBS: RowsSql = RowsSql::new(
    "INSERT_IMPORTED_SLOT_JOBS",
    "INSERT INTO outbound_slot_jobs (slot_id, job_id, round) SELECT r.slot_id, r.job_id, 0 FROM {rows}",
    &[("slot_id", Int), ("job_id", Int)],
);

/// Of what was signed there are no bytes.
static INSERT_IMPORTED_ATTEMPTS: RowsSql = RowsSql::new(
    "INSERT_IMPORTED_ATTEMPTS",
    "INSERT INTO outbound_attempts (slot_id, number, kind, cancel_id, payload, signed, tx_hash, refused, told_at, said, mined_height,
         mined_block, paid, fee_raw, created_at, updated_at)
     SELECT r.slot_id, 1, 'pay', NULL, r.no_bytes, r.no_bytes, r.tx_hash, NULL, r.at, 'by another program', NULL, NULL, NULL, NULL, r.at, r.at
     FROM {rows}",
    &[("slot_id", Int), ("no_bytes", Bytes), ("tx_hash", Bytes), ("at", Int)],
);

/// Its money waits for two people from now on, and nothing else gives it back or pays it.
static DOUBT_IMPORTS: RowsSql = RowsSql::new(
    "DOUBT_IMPORTS",
    "UPDATE withdrawal_requests SET status = r.status, version = r.version, rule = r.rule, people = r.people, updated_at = r.at
     FROM {rows} WHERE withdrawal_requests.id = r.id AND withdrawal_requests.version = r.version - 1",
    &[("id", Int), ("status", Text), ("version", Int), ("rule", Text), ("people", Int), ("at", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 6] = [
    &DOUBT_IMPORTS,
    &READ_IMPORTED_HASHES,
    &INSERT_IMPORTS,
    &INSERT_IMPORTED_SLOTS,
    &INSERT_IMPORTED_SLOT_JOBS,
    &INSERT_IMPORTED_ATTEMPTS,
];

impl Db {
    /// Takes these over, or says of each why not, in their order and in one transaction. The same again gives the same answer, so one that was killed
    /// in the middle is simply run again.
    pub async fn import_withdrawals(
        &self,
        new: &[NewImport],
        actor: &str,
        at: Timestamp,
    ) -> Result<Vec<ImportReply>, StoreError> {
        if new.is_empty() {
            return Ok(Vec::new());
        }
        if new.len() > MOST {
            return Err(StoreError::BatchTooLarge { count: new.len(), most: MOST });
        }
        transact!(self, tx => import(tx, new, actor, at).await)
    }

    /// Everything that was ever taken over, in the order of the other program's ids.
    pub async fn all_imported_withdrawals(&self) -> Result<Vec<ImportedWithdrawal>, StoreError> {
        let rows = fetch_all!(&mut self.read().await?, READ_ALL_IMPORTS => ImportColumns)?;
        rows.into_iter().map(imported).collect()
    }

    /// The other program has gone on with these, so it may have paid them: they wait for two people; what has a job here, when that has ended. The job is
    /// called off in the same commit, and again whenever that is said again: whoever is killed in between has not left it to pay. The answers are in their
    /// order.
    pub async fn doubt_imports(
        &self,
        changed: &[ChangedThere],
        actor: &str,
        at: Timestamp,
    ) -> Result<Vec<ChangedReply>, StoreError> {
        if changed.is_empty() {
            return Ok(Vec::new());
        }
        if changed.len() > MOST {
            return Err(StoreError::BatchTooLarge { count: changed.len(), most: MOST });
        }
        transact!(self, tx => doubt(tx, changed, actor, at).await)
    }

    /// What was taken over before, of these ids of the other program.
    pub async fn imported_withdrawals(&self, old_ids: &[String]) -> Result<HashMap<String, WithdrawalId>, StoreError> {
        let known = read_imports(&mut self.read().await?, old_ids.to_vec()).await?;
        Ok(known.into_iter().map(|(old, before)| (old, before.id)).collect())
    }
}

type ImportColumns = (String, i64, String, Option<Vec<u8>>);

fn imported((old_id, id, old_status, hash): ImportColumns) -> Result<ImportedWithdrawal, StoreError> {
    let hash = hash.map(|bytes| <[u8; 32]>::try_from(bytes).map(Hash).map_err(|_| malformed("hash"))).transpose()?;
    Ok(ImportedWithdrawal { old_id, id: withdrawal_id(id)?, old_status, hash })
}

async fn read_imports(tx: &mut Tx, old_ids: Vec<String>) -> Result<HashMap<String, ImportedWithdrawal>, StoreError> {
    let rows = fetch_all!(tx, READ_IMPORTS => ImportColumns, Many(old_ids.clone()))?;
    rows.into_iter().map(|row| imported(row).map(|before| (before.old_id.clone(), before))).collect()
}

/// So many people look at what may have been paid, at least.
const LOOKERS: u32 = 2;

async fn doubt(
    tx: &mut Tx,
    changed: &[ChangedThere],
    actor: &str,
    at: Timestamp,
) -> Result<Vec<ChangedReply>, StoreError> {
    let mut rows: HashMap<WithdrawalId, WithdrawalRow> =
        lock(tx, changed.iter().map(|one| one.id)).await?.into_iter().map(|row| (row.id, row)).collect();
    let (mut replies, mut after, mut steps) = (Vec::with_capacity(changed.len()), Vec::new(), Vec::new());
    for one in changed {
        let row = rows.get_mut(&one.id).ok_or_else(|| malformed("import"))?;
        // What is followed is the other program's own payment: the chain says what became of it.
        if row.state == WithdrawalState::Queued && one.followed {
            replies.push(ChangedReply::TooLate(row.state));
            continue;
        }
        let Ok(next) = row.state.next(WithdrawalEvent::ChangedThere) else {
            replies.push(ChangedReply::TooLate(row.state));
            continue;
        };
        if row.state == next && row.rule == MAY_BE_PAID {
            replies.push(ChangedReply::Before);
            continue;
        }
        row.state = next;
        row.version += 1;
        MAY_BE_PAID.clone_into(&mut row.rule);
        row.people = row.people.max(LOOKERS);
        steps.push(Step::new(row, actor.to_owned(), one.words.clone()));
        after.push(row.clone());
        replies.push(ChangedReply::Doubted);
    }
    write_doubts(tx, &after, steps, at).await?;
    let queued = |one: &&ChangedThere| {
        !one.followed && rows.get(&one.id).is_some_and(|row| row.state == WithdrawalState::Queued)
    };
    let queued: Vec<WithdrawalId> = changed.iter().filter(queued).map(|one| one.id).collect();
    let called = call_off_jobs(tx, &queued, actor, at).await?;
    for (one, reply) in changed.iter().zip(&mut replies) {
        match called.get(&one.id) {
            // It is over, and was doubted before it was: two people look at it by themselves.
            Some(JobReply::NotNow(JobState::FailedFinal)) | None => {}
            Some(called) => *reply = ChangedReply::DoubtedWithJob(*called),
        }
    }
    Ok(replies)
}

/// What is about to be paid a second time is called off, as far as that can still be done.
async fn call_off_jobs(
    tx: &mut Tx,
    queued: &[WithdrawalId],
    actor: &str,
    at: Timestamp,
) -> Result<HashMap<WithdrawalId, JobReply>, StoreError> {
    let mut called = HashMap::new();
    if queued.is_empty() {
        return Ok(called);
    }
    let jobs = fetch_all!(tx, READ_DOUBTED_JOBS => (i64, i64), numbers(queued.iter().copied()))?;
    for (id, job) in jobs {
        let job = JobId::new(job).map_err(|_| malformed("job"))?;
        called.insert(withdrawal_id(id)?, call_off(tx, job, actor, at).await?);
    }
    Ok(called)
}

async fn write_doubts(tx: &mut Tx, after: &[WithdrawalRow], steps: Vec<Step>, at: Timestamp) -> Result<(), StoreError> {
    if after.is_empty() {
        return Ok(());
    }
    let columns = vec![
        Column::Ints(after.iter().map(|row| row.id.number()).collect()),
        Column::Texts(after.iter().map(|row| row.state.as_str()).collect()),
        Column::Ints(after.iter().map(|row| row.version).collect()),
        Column::Strings(after.iter().map(|row| row.rule.clone()).collect()),
        Column::Ints(after.iter().map(|row| row.people.into()).collect()),
        Column::Ints(vec![at.micros(); after.len()]),
    ];
    let mut writes = Writes::default();
    writes.add(&DOUBT_IMPORTS, columns, "withdrawals");
    add_steps(&mut writes, steps, at);
    writes.run(tx).await
}

async fn taken_hashes(tx: &mut Tx, new: &[NewImport]) -> Result<HashSet<(ChainId, Hash)>, StoreError> {
    let hashes: Vec<(ChainId, Hash)> = new.iter().filter_map(|one| Some((one.chain, one.course.hash()?))).collect();
    if hashes.is_empty() {
        return Ok(HashSet::new());
    }
    let columns = vec![
        Column::Ints(hashes.iter().map(|(chain, _)| chain.0).collect()),
        Column::Bytes(hashes.iter().map(|(_, hash)| hash.0.to_vec()).collect()),
    ];
    let rows: Vec<(i64, Vec<u8>)> = crate::rows::fetch_rows(tx, &READ_IMPORTED_HASHES, columns).await?;
    let taken = |(chain, hash): (i64, Vec<u8>)| {
        <[u8; 32]>::try_from(hash).map(|hash| (ChainId(chain), Hash(hash))).map_err(|_| malformed("hash"))
    };
    rows.into_iter().map(taken).collect()
}

async fn import(tx: &mut Tx, new: &[NewImport], actor: &str, at: Timestamp) -> Result<Vec<ImportReply>, StoreError> {
    let pairs: BTreeSet<(UserId, AssetId)> = new.iter().map(|one| (one.user, one.asset)).collect();
    // Two imports at once meet here; the second sees what the first has taken over.
    let accounts = lock_funding_accounts(tx, &pairs).await?;
    let mut known = read_imports(tx, new.iter().map(|one| one.old_id.clone()).collect()).await?;
    let mut hashes = taken_hashes(tx, new).await?;
    let asked: HashSet<(UserId, String)> = facts::earlier(tx, new.iter().map(|one| (one.user, one.old_id.as_str())))
        .await?
        .into_iter()
        .map(|row| (row.user, row.client_order_id.as_str().to_owned()))
        .collect();
    let listings: BTreeSet<ListingId> = new.iter().map(|one| one.listing).collect();
    let policies = super::policy::newest(tx, &listings.iter().copied().collect::<Vec<_>>()).await?;
    let checks = check::rules(tx, listings.iter().copied()).await?;
    let coins = facts::coins_of(tx, listings.iter().copied()).await?;
    let limited = policies.iter().filter(|(_, policy)| policy.daily_total.is_some()).map(|(listing, _)| *listing);
    // What is taken over counts for its day, as everything that is asked for.
    let mut totals = facts::lock_totals(tx, &listings, &limited.collect(), at).await?;
    let mut left: HashMap<AccountId, Amount> =
        accounts.values().map(|funding| (funding.account, funding.state.available)).collect();
    let mut replies: Vec<Option<ImportReply>> = Vec::with_capacity(new.len());
    let mut taken: Vec<(usize, &NewImport, WithdrawalRow)> = Vec::new();
    for one in new {
        if let Some(before) = known.get(&one.old_id) {
            replies.push(Some(meets(before, one)));
            continue;
        }
        let funding = accounts.get(&(one.user, one.asset));
        let policy = policies.get(&one.listing).zip(coins.get(&one.listing));
        let hash = one.course.hash().map(|hash| (one.chain, hash));
        let checked = match (funding, policy) {
            (_, None) => Err(ImportRefusal::NoPolicy),
            (None, Some(_)) => Err(ImportRefusal::AccountNotFound),
            (Some(funding), _) if funding.state.status != AccountStatus::Active => Err(ImportRefusal::AccountClosed),
            // One that was taken over is known by its id there, so this is the customer's own.
            _ if asked.contains(&(one.user, one.old_id.clone())) => Err(ImportRefusal::NameTaken),
            _ if hash.is_some_and(|hash| hashes.contains(&hash)) => Err(ImportRefusal::HashTaken),
            (Some(funding), Some((policy, coin))) => {
                let held = one.amount.checked_add(one.fee);
                let available = left.get(&funding.account).copied().unwrap_or(Amount::ZERO);
                let after = held.and_then(|held| available.checked_sub(held)).filter(|after| *after >= Amount::ZERO);
                after.map(|after| (funding.account, policy, coin, after)).ok_or(ImportRefusal::InsufficientBalance)
            }
        };
        match checked {
            Err(refusal) => replies.push(Some(ImportReply::Refused(refusal))),
            Ok((account, policy, coin, after)) => {
                left.insert(account, after);
                if let Some(total) = totals.get_mut(&one.listing) {
                    *total = total.checked_add(one.amount).ok_or_else(|| malformed("sum"))?;
                }
                hashes.extend(hash);
                let row = row(one, account, policy, coin, at)?;
                // One that is named twice in this batch is the same one.
                let (old_id, old_status, hash) = (one.old_id.clone(), one.old_status.clone(), one.course.hash());
                known.insert(one.old_id.clone(), ImportedWithdrawal { old_id, id: one.id, old_status, hash });
                taken.push((replies.len(), one, row));
                replies.push(None);
            }
        }
    }
    if !taken.is_empty() {
        let locked: HashMap<AccountId, AccountState> =
            accounts.values().map(|funding| (funding.account, funding.state.clone())).collect();
        let checked = checked(&taken, &checks);
        write_requests(tx, &mut taken, locked, (&totals, &checked), (actor, at)).await?;
        let rows = follow(tx, &taken, at).await?;
        for ((place, ..), row) in taken.iter().zip(rows) {
            replies[*place] = Some(ImportReply::New(Box::new(row)));
        }
    }
    replies.into_iter().map(|reply| reply.ok_or_else(|| malformed("answer"))).collect()
}

fn meets(before: &ImportedWithdrawal, now: &NewImport) -> ImportReply {
    let same = before.old_status == now.old_status && before.hash == now.course.hash();
    if same {
        ImportReply::Before(before.id)
    } else {
        ImportReply::Changed { id: before.id, old_status: before.old_status.clone(), hash: before.hash }
    }
}

/// As it stands before anybody has agreed or doubted.
fn row(
    new: &NewImport,
    account: AccountId,
    policy: &WithdrawalPolicy,
    coin: &Coin,
    at: Timestamp,
) -> Result<WithdrawalRow, StoreError> {
    let (rule, group) = match &new.course {
        ImportCourse::Waits { .. } => ("imported", coin.group.clone()),
        ImportCourse::MayBePaid { .. } => (MAY_BE_PAID, coin.group.clone()),
        ImportCourse::Followed(payment) => ("imported", Some(payment.group.clone())),
    };
    // As many as for everything else of that size, and for what may have been paid no fewer than two. What was sent nobody agrees to any more.
    let people = match &new.course {
        ImportCourse::Waits { people } | ImportCourse::MayBePaid { people } => policy.people(new.amount).max(*people),
        ImportCourse::Followed(_) => 0,
    };
    Ok(WithdrawalRow {
        id: new.id,
        user: new.user,
        account,
        asset: new.asset,
        chain: new.chain,
        listing: new.listing,
        client_order_id: ClientOrderId::new(new.old_id.clone()).map_err(|_| malformed("old id"))?,
        to: new.to.clone(),
        amount: new.amount,
        fee: new.fee,
        most_fee: new.fee,
        group,
        network_fee: coin.network_fee,
        expires: at.plus_micros(policy.life_us),
        judged: None,
        state: WithdrawalState::Pending,
        version: 1,
        policy_version: policy.version,
        rule: rule.to_owned(),
        people,
        inputs: new.inputs.clone(),
        jobs: 0,
        payee: None,
        queued: None,
        created: at,
        updated: at,
    })
}

/// Those that somebody outside is asked about before anybody agrees. Of what was sent there is nothing left to ask.
fn checked(taken: &[(usize, &NewImport, WithdrawalRow)], checks: &HashMap<ListingId, Amount>) -> Vec<WithdrawalId> {
    let asks = |one: &NewImport| match one.course {
        ImportCourse::Waits { .. } | ImportCourse::MayBePaid { .. } => {
            checks.get(&one.listing).is_some_and(|from| one.amount >= *from)
        }
        ImportCourse::Followed(_) => false,
    };
    taken.iter().filter(|(_, one, _)| asks(one)).map(|(.., row)| row.id).collect()
}

/// Rows, holds, histories, checks, and whose they were.
async fn write_requests(
    tx: &mut Tx,
    taken: &mut [(usize, &NewImport, WithdrawalRow)],
    locked: HashMap<AccountId, AccountState>,
    (totals, checked): (&HashMap<ListingId, Amount>, &[WithdrawalId]),
    (actor, at): (&str, Timestamp),
) -> Result<(), StoreError> {
    let operations = taken.iter().map(|(.., row)| hold(row)).collect::<Result<Vec<_>, _>>()?;
    let mut writes = Writes::default();
    let replies = decide(tx, locked, None, &operations, at, &mut writes).await?;
    for (operation, reply) in operations.iter().zip(replies) {
        // The account was looked at under its lock, and the number is new.
        if reply != Reply::First(Outcome::Applied) {
            return Err(StoreError::Corrupt { what: format!("{}: the ledger says {reply:?}", operation.key()) });
        }
    }
    let mut rows = Vec::with_capacity(taken.len());
    for (_, one, row) in taken.iter_mut() {
        let from = format!("taken over: it was {} there, under {}", one.old_status, one.old_id);
        let mut steps = vec![Step::new(row, actor.to_owned(), from)];
        let next = match &one.course {
            ImportCourse::Waits { .. } => None,
            ImportCourse::MayBePaid { .. } => Some((WithdrawalEvent::Doubted, "it may have been paid there")),
            ImportCourse::Followed(_) => Some((WithdrawalEvent::Approved, "it was sent there")),
        };
        if let Some((event, words)) = next {
            row.state = row.state.next(event).map_err(|_| malformed("course"))?;
            row.version += 1;
            steps.push(Step::new(row, actor.to_owned(), words));
        }
        rows.push((row.clone(), steps));
    }
    insert(&mut writes, &rows, at);
    add_steps(&mut writes, rows.into_iter().flat_map(|(_, steps)| steps).collect(), at);
    let count = taken.len();
    let columns = vec![
        Column::Strings(taken.iter().map(|(_, one, _)| one.old_id.clone()).collect()),
        Column::Ints(taken.iter().map(|(_, one, _)| one.id.number()).collect()),
        Column::Ints(taken.iter().map(|(_, one, _)| one.chain.0).collect()),
        Column::Strings(taken.iter().map(|(_, one, _)| one.old_status.clone()).collect()),
        Column::OptionalBytes(taken.iter().map(|(_, one, _)| one.course.hash().map(|hash| hash.0.to_vec())).collect()),
        Column::Strings(vec![actor.to_owned(); count]),
        Column::Ints(vec![at.micros(); count]),
    ];
    writes.add(&INSERT_IMPORTS, columns, "imports");
    check::add(&mut writes, checked, &[], at);
    facts::set_totals(&mut writes, totals, at);
    writes.run(tx).await
}

/// Jobs for those that were sent, each in a slot of its own. Says how all of them stand then, in their order.
async fn follow(
    tx: &mut Tx,
    taken: &[(usize, &NewImport, WithdrawalRow)],
    at: Timestamp,
) -> Result<Vec<WithdrawalRow>, StoreError> {
    let sent: Vec<(&NewImport, &FollowedPayment, &WithdrawalRow)> = taken
        .iter()
        .filter_map(|(_, one, row)| match &one.course {
            ImportCourse::Followed(payment) => Some((*one, payment, row)),
            ImportCourse::Waits { .. } | ImportCourse::MayBePaid { .. } => None,
        })
        .collect();
    let mut after: HashMap<WithdrawalId, WithdrawalRow> = HashMap::new();
    if !sent.is_empty() {
        let chains: BTreeSet<ChainId> = sent.iter().map(|(one, ..)| one.chain).collect();
        for chain in chains {
            let jobs: Vec<(NewJob, Paying)> =
                sent.iter().filter(|(one, ..)| one.chain == chain).map(|(_, payment, row)| job(payment, row)).collect();
            for added in add_paying(tx, chain, &jobs, at).await? {
                match added {
                    Added::New { .. } => {}
                    // Its number is new, so nobody can have made a job by its name; and its wallet was looked up before.
                    Added::Before(_) | Added::Taken(_) | Added::OfWithdrawal | Added::NoWallet => {
                        return Err(malformed("job"));
                    }
                }
            }
        }
        write_slots(tx, &sent, at).await?;
        let changes = sent.iter().map(|(_, payment, row)| {
            let words = format!("{} follows it by its hash, from {}", payment.job, payment.address);
            Change::new((*row).clone(), WithdrawalEvent::Queued, "import", words)
        });
        let rows = advance(tx, changes.collect(), at).await?;
        let columns = vec![
            Column::Ints(rows.iter().map(|row| row.id.number()).collect()),
            Column::Ints(rows.iter().map(|row| row.jobs).collect()),
            Column::Ints(sent.iter().map(|(_, payment, _)| payment.job.number()).collect()),
            Column::Ints(vec![at.micros(); rows.len()]),
        ];
        expect_rows(execute_rows(tx, &INSERT_JOB_LINKS, columns).await?, rows.len(), "jobs of withdrawals")?;
        after.extend(rows.into_iter().map(|row| (row.id, row)));
    }
    Ok(taken.iter().map(|(.., row)| after.remove(&row.id).unwrap_or_else(|| row.clone())).collect())
}

fn job(payment: &FollowedPayment, row: &WithdrawalRow) -> (NewJob, Paying) {
    let FollowedPayment { group, index, address, .. } = payment;
    let job = NewJob {
        id: payment.job,
        listing: row.listing,
        kind: JobKind::Withdrawal,
        reference: row.id.to_string(),
        to: row.to.clone(),
        owner: None,
        amount: payment.raw,
        most_fee: row.network_fee,
        priority: JobKind::Withdrawal.priority(),
        requester: row.requester(),
        expires: row.expires,
        payer: Payer::Wallet { group: group.clone(), index: *index, address: address.clone() },
    };
    (job, Paying { withdrawal: row.id, rounds: 0, group: Some(group.clone()) })
}

async fn write_slots(
    tx: &mut Tx,
    sent: &[(&NewImport, &FollowedPayment, &WithdrawalRow)],
    at: Timestamp,
) -> Result<(), StoreError> {
    let count = sent.len();
    let slots = || Column::Ints(sent.iter().map(|(_, payment, _)| payment.slot.0).collect());
    let jobs = || Column::Ints(sent.iter().map(|(_, payment, _)| payment.job.number()).collect());
    let times = || Column::Ints(vec![at.micros(); count]);
    expect_rows(execute_rows(tx, &INSERT_IMPORTED_SLOTS, vec![slots(), jobs(), times()]).await?, count, "slots")?;
    expect_rows(execute_rows(tx, &INSERT_IMPORTED_SLOT_JOBS, vec![slots(), jobs()]).await?, count, "jobs of slots")?;
    let nothing = Column::Bytes(vec![Vec::new(); count]);
    let hashes = Column::Bytes(sent.iter().map(|(_, payment, _)| payment.hash.0.to_vec()).collect());
    let columns = vec![slots(), nothing, hashes, times()];
    expect_rows(execute_rows(tx, &INSERT_IMPORTED_ATTEMPTS, columns).await?, count, "attempts")?;
    let change = |(_, payment, _): &(&NewImport, &FollowedPayment, &WithdrawalRow)| {
        use JobEvent::{Checked, Picked, Signed, Slotted, Told};
        let words = "another program has sent it; it is followed by its hash";
        let mut change = job_advance::Change::new(payment.job, vec![Picked, Checked, Slotted, Signed, Told], words);
        change.set.slot = Some(payment.slot);
        change.set.slotted = true;
        change
    };
    job_advance::advance(tx, sent.iter().map(change).collect(), at).await
}
