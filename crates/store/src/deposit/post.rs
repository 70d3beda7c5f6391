//! Entries whose time has come are booked in the ledger, in batches.
//!
//! A worker reads what is due, derives whose addresses these are, and hands both back. The batch is one transaction: the chain's
//! row is locked, the entries are read again, `domain::deposit::Posting` decides each, and movements, residues, deposits and
//! entries are written together. What was undone meanwhile is left out.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use domain::deposit::posting::{AccountNow, Given, Party};
use domain::deposit::{Attribution, Cause, DepositEvent, Due, Posted, Posting, PostingError, Reason};
use domain::ledger::{Movement, OpKey, Operation, Outcome, Reference, Reply};
use domain::{
    AccountId, AccountKind, AccountStatus, Amount, AssetId, Availability, RawAmount, RawSum, Timestamp, UserId,
};

use super::advance::{Before, Change, Set, add_changes, state_of};
use super::depth::{PROVEN, SETTLED, deep_enough};
use super::given_out::{Payment, given_out};
use crate::db::{Db, Tx};
use crate::entry::cursor::{CursorError, Locked, Worker, lock_moving};
use crate::entry::findings::{Finding, FindingKind, add_findings};
use crate::entry::types::row_height;
use crate::entry::write::Booked;
use crate::entry::{ChainRow, ListingId, ListingRow};
use crate::error::StoreError;
use crate::ledger::accounts::{NewAccount, Opened, StatusChange, open, set_status};
use crate::ledger::post::{Accounts, decide, load_accounts_of};
use crate::rows::{Column, ColumnType::Int, ColumnType::Text, RowsSql, Writes, fetch_rows};
use crate::transact;

/// An entry that may be booked now, as far as is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueEntry {
    pub id: i64,
    /// Whose it is has to be derived before it is credited.
    pub is_deposit: bool,
    pub address: String,
}

/// What a batch came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PostedBatch {
    pub credited: usize,
    pub left_over: usize,
    pub taken_back: usize,
    pub booked: usize,
    /// Of those credited: so many are deep enough to be final at once.
    pub settled: usize,
}

impl PostedBatch {
    pub fn add(&mut self, more: &Self) {
        let Self { credited, left_over, taken_back, booked, settled } = more;
        self.credited += credited;
        self.left_over += left_over;
        self.taken_back += taken_back;
        self.booked += booked;
        self.settled += settled;
    }
}

/// The most entries of one batch, and of [`Db::due_entries`]: each is at most one operation, or two.
pub const MOST: i64 = 2_048;

/// With the entry that it takes back, if it does, and the deposit of the one or the other. An earlier mining of the same payment
/// may have left something that its user owes: the newest that had to do with it knows how much, also when that is nothing any more.
const DUE: &str =
    "e.id, e.listing_id, e.address, e.amount_raw, e.cause, e.reverses, d.user_id, d.amount, d.repaid, d.left_over,
    o.receivable, o.user_id, d.reason, d.state, d.version, e.height";

statements! {
    READ_DUE = "SELECT e.id, CAST(CASE WHEN e.cause = 'deposit' AND e.reverses IS NULL THEN 1 ELSE 0 END AS BIGINT), e.address
        FROM chain_entries e JOIN asset_on_chain l ON l.id = e.listing_id JOIN assets a ON a.id = l.asset_id
            JOIN chains c ON c.id = e.chain_id
        WHERE e.chain_id = $1 AND e.posting = 0 AND e.due_height <= $2
            AND (e.reverses IS NOT NULL OR (l.status = 'active' AND a.status = 'active' AND c.status = 'active'))
            AND (e.reverses IS NOT NULL OR e.cause <> 'deposit' OR l.contract IS NULL OR EXISTS (SELECT 1 FROM wallet_balances b
                WHERE b.chain_id = e.chain_id AND b.address = e.address AND b.listing_id = e.listing_id
                    AND b.checked_height >= e.height))
        ORDER BY e.due_height, e.id LIMIT $3";
    READ_STATUS = "SELECT status FROM chains WHERE id = $1";
    READ_SYSTEM_OF_ASSETS = "SELECT id, asset_id, kind FROM accounts WHERE id < 0 AND asset_id {in $1}";
}

/// By their ids: the addition hides that there is an index of all that are due. What else keeps an entry from being due is looked at again: people may have
/// suspended its coin since the worker has read it, and its balance may differ by now.
static READ_ENTRIES_DUE: RowsSql = RowsSql::listing(
    "READ_ENTRIES_DUE",
    "SELECT {columns} FROM {rows} {join} chain_entries e ON e.id = r.id
     LEFT JOIN deposits d ON d.id = COALESCE(e.reverses, e.id)
     LEFT JOIN deposits o ON o.id = (SELECT p.id FROM deposits p WHERE p.chain_id = d.chain_id AND p.tx_hash = d.tx_hash
         AND p.place = d.place AND p.generation < d.generation AND p.state = 'reversed' AND (p.receivable > 0 OR p.repaid > 0)
         ORDER BY p.generation DESC LIMIT 1)
     WHERE e.posting + 0 = 0 AND e.due_height <= r.height AND (e.reverses IS NOT NULL OR EXISTS (
         SELECT 1 FROM asset_on_chain l JOIN assets a ON a.id = l.asset_id
         WHERE l.id = e.listing_id AND l.status = 'active' AND a.status = 'active'
             AND (e.cause <> 'deposit' OR l.contract IS NULL OR EXISTS (SELECT 1 FROM wallet_balances b
                 WHERE b.chain_id = e.chain_id AND b.address = e.address AND b.listing_id = e.listing_id
                     AND b.checked_height >= e.height))))
     ORDER BY e.id",
    DUE,
    &[("id", Int), ("height", Int)],
);

static READ_RESIDUES: RowsSql = RowsSql::new(
    "READ_RESIDUES",
    "SELECT c.listing_id, c.residue_raw, c.opening FROM {rows} {join} chain_residues c ON c.listing_id = r.listing_id",
    &[("listing_id", Int)],
);

static WRITE_RESIDUES: RowsSql = RowsSql::new(
    "WRITE_RESIDUES",
    "INSERT INTO chain_residues (listing_id, residue_raw, opening) SELECT r.listing_id, r.residue, r.opening FROM {rows} WHERE true
     ON CONFLICT (listing_id) DO UPDATE SET residue_raw = excluded.residue_raw, opening = excluded.opening",
    &[("listing_id", Int), ("residue", Text), ("opening", Int)],
);

static BOOK_ENTRIES: RowsSql = RowsSql::new(
    "BOOK_ENTRIES",
    "UPDATE chain_entries SET posting = r.posting FROM {rows} WHERE chain_entries.id = r.id AND chain_entries.posting + 0 = 0",
    &[("id", Int), ("posting", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 4] = [&READ_ENTRIES_DUE, &READ_RESIDUES, &WRITE_RESIDUES, &BOOK_ENTRIES];

impl Db {
    /// Entries that are deep enough below `proven` to be booked, the oldest first. Those of a suspended asset or chain wait, and so do
    /// payments of a token until the balance of their address was looked at: a log alone moves nothing.
    pub async fn due_entries(&self, chain: &ChainRow, proven: u64) -> Result<Vec<DueEntry>, StoreError> {
        // What takes back is due at any height: it stands at zero.
        let height = deep_enough(row_height(proven)?, chain.confirmations).unwrap_or(0);
        let rows = fetch_all!(&mut self.read().await?, READ_DUE => (i64, i64, String), chain.id.0, height, MOST)?;
        Ok(rows.into_iter().map(|(id, deposit, address)| DueEntry { id, is_deposit: deposit == 1, address }).collect())
    }

    /// Books these entries. Of each deposit among them the caller says whose it is; one that it says nothing of waits.
    pub async fn post_entries(
        &self,
        worker: &Worker,
        chain: &ChainRow,
        entries: &[i64],
        whose: &HashMap<i64, Attribution>,
        at: Timestamp,
    ) -> Result<PostedBatch, CursorError> {
        if entries.is_empty() {
            return Ok(PostedBatch::default());
        }
        transact!(self, tx => {
            match lock_moving(tx, worker).await? {
                Ok(locked) => post_locked(tx, &locked, chain, entries, whose, at).await.map(Ok),
                Err(refused) => Ok(Err(refused)),
            }
        })?
    }
}

type Columns = (
    i64,
    i64,
    String,
    String,
    String,
    Option<i64>,
    Option<i64>,
    Option<i64>,
    Option<i64>,
    Option<i64>,
    Option<i64>,
    Option<i64>,
    Option<String>,
    Option<String>,
    Option<i64>,
    i64,
);

/// One entry of the batch.
struct Entry<'a> {
    id: i64,
    listing: &'a ListingRow,
    address: String,
    height: i64,
    /// It is the opposite of an entry whose block has left the chain.
    takes_back: bool,
    what: What,
}

/// How far the chain is proven, under the lock.
#[derive(Clone, Copy)]
struct Depth {
    proven: i64,
    /// What is not above this block may be withdrawn. `None`: no block is deep enough.
    settled: Option<i64>,
}

enum What {
    Deposit { raw: RawAmount, whose: Attribution, owed: Amount, held: Option<Reason>, before: Before },
    TakeBack { raw: RawAmount, deposit: i64, user: Option<UserId>, given: Given, owed: Amount, before: Before },
    Found { raw: RawAmount },
    Other { change: RawSum, cause: Cause },
}

impl What {
    /// It takes back what no account could hold.
    fn is_beyond(&self, listing: &ListingRow) -> bool {
        match self {
            Self::TakeBack { raw, given, .. } => *given == Given::default() && raw.to_ledger(&listing.form).is_err(),
            Self::Deposit { .. } | Self::Found { .. } | Self::Other { .. } => false,
        }
    }

    /// The user whose account it touches.
    const fn user(&self) -> Option<UserId> {
        match self {
            Self::Deposit { whose: Attribution::User(user), .. } => Some(*user),
            Self::Deposit { whose: Attribution::Nobody(_), .. } | Self::Found { .. } | Self::Other { .. } => None,
            Self::TakeBack { user, .. } => *user,
        }
    }
}

fn malformed(id: i64) -> StoreError {
    StoreError::Corrupt { what: format!("entry {id} makes no sense") }
}

async fn post_locked(
    tx: &mut Tx,
    locked: &Locked,
    chain: &ChainRow,
    entries: &[i64],
    whose: &HashMap<i64, Attribution>,
    at: Timestamp,
) -> Result<PostedBatch, StoreError> {
    // What takes back is due at any height, also when no block is proven any more.
    let height = deep_enough(locked.proven, chain.confirmations).unwrap_or(0);
    let mut entries = read_entries(tx, chain, entries, height, whose).await?;
    // People may have suspended the chain since the worker has read what is due: what is gone is taken back, and the rest waits.
    let status = fetch_optional!(tx, READ_STATUS => (String,), chain.id.0)?;
    if status.is_none_or(|(status,)| status != Availability::Active.as_str()) {
        entries.retain(|entry| entry.takes_back);
    }
    hold_given_out(tx, chain, &mut entries).await?;
    let depth = Depth { proven: locked.proven, settled: deep_enough(locked.proven, chain.final_confirmations) };
    let mut batch = Batch::load(tx, chain, &entries, depth, at).await?;
    for entry in &entries {
        batch.book(entry)?;
    }
    batch.write(tx, chain, at).await
}

/// What people have given out before its payment was read is not given again: two people say.
async fn hold_given_out(tx: &mut Tx, chain: &ChainRow, entries: &mut [Entry<'_>]) -> Result<(), StoreError> {
    let (mut payments, mut finds_end) = (Vec::new(), BTreeSet::new());
    for entry in entries.iter() {
        let (listing, asset) = (entry.listing.id, entry.listing.asset);
        match entry.what {
            What::Deposit { .. } => {
                let (id, height) = (entry.id, entry.height);
                payments.push(Payment { id, address: &entry.address, listing, asset, height });
            }
            What::Other { cause: Cause::UnattributedIn, .. } if entry.takes_back => drop(finds_end.insert(asset)),
            What::TakeBack { .. } | What::Found { .. } | What::Other { .. } => {}
        }
    }
    let given_out = given_out(tx, chain.id, &payments, finds_end).await?;
    for entry in entries.iter_mut().filter(|entry| given_out.contains(&entry.id)) {
        if let What::Deposit { held, .. } = &mut entry.what {
            held.get_or_insert(Reason::FoundBefore);
        }
    }
    Ok(())
}

async fn read_entries<'a>(
    tx: &mut Tx,
    chain: &'a ChainRow,
    ids: &[i64],
    height: i64,
    whose: &HashMap<i64, Attribution>,
) -> Result<Vec<Entry<'a>>, StoreError> {
    let ids: BTreeSet<i64> = ids.iter().copied().collect();
    let columns = vec![Column::Ints(ids.iter().copied().collect()), Column::Ints(vec![height; ids.len()])];
    let rows: Vec<Columns> = fetch_rows(tx, &READ_ENTRIES_DUE, columns).await?;
    let mut entries = Vec::with_capacity(rows.len());
    for row in rows {
        let (id, listing, address, amount, cause, reverses, user, given, repaid, left_over, owed, owing, ..) = row;
        let (.., reason, state, version, height) = row;
        let broken = || malformed(id);
        let change: RawSum = amount.parse().map_err(|_| broken())?;
        let cause = Cause::parse(&cause).ok_or_else(broken)?;
        let listing = chain.listing(ListingId(listing)).ok_or_else(broken)?;
        let units = |units: Option<i64>| Amount::from_units(units.unwrap_or(0));
        // A debt is its user's, whoever the payment belongs to now.
        let owed_by = |user: Option<UserId>| if user.map(UserId::get) == owing { units(owed) } else { Amount::ZERO };
        let before = || -> Result<Before, StoreError> {
            let (state, version) = state.as_deref().zip(version).ok_or_else(broken)?;
            Ok((state_of(id, state)?, version))
        };
        let what = match (cause, reverses) {
            (Cause::Deposit, None) => {
                let Some(whose) = whose.get(&id) else { continue };
                let user = match whose {
                    Attribution::User(user) => Some(*user),
                    Attribution::Nobody(_) => None,
                };
                let held = reason.as_deref().and_then(Reason::parse);
                let (raw, owed) = (change.to_raw().ok_or_else(broken)?, owed_by(user));
                What::Deposit { raw, whose: *whose, owed, held, before: before()? }
            }
            (Cause::Deposit, Some(deposit)) => {
                let given = Given { user: units(given), repaid: units(repaid), left_over: units(left_over) };
                let had = given.user > Amount::ZERO || given.repaid > Amount::ZERO;
                let user = user.and_then(UserId::new).filter(|_| had);
                let owed = owed_by(user);
                let raw = (-change).to_raw().ok_or_else(broken)?;
                What::TakeBack { raw, deposit, user, given, owed, before: before()? }
            }
            // More than 256 bits stay outside of the books, as all that no account can hold.
            (Cause::UnattributedIn, None) => {
                change.to_raw().map_or(What::Other { change, cause }, |raw| What::Found { raw })
            }
            (_, _) => What::Other { change, cause },
        };
        entries.push(Entry { id, listing, address, height, takes_back: reverses.is_some(), what });
    }
    // What is taken back leaves debts that a credit of the same payment must see: it waits for the next batch.
    let is_back = |entry: &Entry<'_>| matches!(entry.what, What::TakeBack { .. });
    if entries.iter().any(is_back) {
        entries.retain(is_back);
    }
    Ok(entries)
}

/// Everything that a batch of entries touches, in memory.
struct Batch {
    /// The users' accounts, locked; with what earlier entries of the batch have changed.
    accounts: Accounts,
    users: HashMap<(UserId, AssetId), AccountId>,
    house: HashMap<(AccountKind, AssetId), AccountId>,
    custody: AccountKind,
    depth: Depth,
    /// With what custody had when the books began, as far as no coins were found for it.
    residues: BTreeMap<ListingId, (RawAmount, Amount)>,
    operations: Vec<Operation>,
    booked: Vec<(i64, Booked)>,
    changes: Vec<Change>,
    /// The deposits that change, as they were.
    before: HashMap<i64, Before>,
    freezes: Vec<StatusChange>,
    findings: Vec<Finding>,
    sum: PostedBatch,
    /// What each account gained in this batch, for take-backs behind it.
    gained: HashMap<AccountId, i128>,
}

impl Batch {
    async fn load(
        tx: &mut Tx,
        chain: &ChainRow,
        entries: &[Entry<'_>],
        depth: Depth,
        at: Timestamp,
    ) -> Result<Self, StoreError> {
        let wanted: BTreeSet<(UserId, AssetId)> =
            entries.iter().filter_map(|entry| Some((entry.what.user()?, entry.listing.asset))).collect();
        let new: Vec<NewAccount> = wanted.iter().map(|(user, asset)| NewAccount::funding(*user, *asset)).collect();
        let opened = open(tx, &new, at).await?;
        let mut users = HashMap::new();
        for (key, opened) in wanted.into_iter().zip(opened) {
            let Opened::Account(account) = opened else {
                return Err(StoreError::Corrupt { what: format!("there is no asset {}", key.1.0) });
            };
            users.insert(key, account);
        }
        let assets: BTreeSet<i64> = entries.iter().map(|entry| entry.listing.asset.0).collect();
        let assets = crate::dialect::Many(assets.into_iter().collect::<Vec<i64>>());
        let mut house = HashMap::new();
        for (id, asset, kind) in fetch_all!(tx, READ_SYSTEM_OF_ASSETS => (i64, i64, String), assets.clone())? {
            if let Ok(kind) = kind.parse::<AccountKind>() {
                house.insert((kind, AssetId(asset)), AccountId(id));
            }
        }
        let locks: BTreeSet<AccountId> = users.values().copied().collect();
        let reads: BTreeSet<AccountId> = house.values().copied().collect();
        let accounts = load_accounts_of(tx, &locks, &reads).await?;
        let listings: BTreeSet<i64> = entries.iter().map(|entry| entry.listing.id.0).collect();
        let rows: Vec<(i64, String, i64)> =
            fetch_rows(tx, &READ_RESIDUES, vec![Column::Ints(listings.into_iter().collect())]).await?;
        let mut residues = BTreeMap::new();
        for (listing, residue, opening) in rows {
            let residue =
                residue.parse().map_err(|_| StoreError::Corrupt { what: "a malformed residue".to_owned() })?;
            residues.insert(ListingId(listing), (residue, Amount::from_units(opening)));
        }
        Ok(Self {
            accounts,
            users,
            house,
            custody: AccountKind::Custody(chain.name.clone()),
            depth,
            residues,
            operations: Vec::new(),
            booked: Vec::new(),
            changes: Vec::new(),
            before: HashMap::new(),
            freezes: Vec::new(),
            findings: Vec::new(),
            sum: PostedBatch::default(),
            gained: HashMap::new(),
        })
    }

    fn account_now(&self, user: Option<UserId>, asset: AssetId) -> Option<AccountNow> {
        let id = self.users.get(&(user?, asset))?;
        let state = self.accounts.get(id)?;
        let now = i128::from(state.available.units()) + self.gained.get(id).copied().unwrap_or(0);
        let available = Amount::from_units(i64::try_from(now).unwrap_or(i64::MAX));
        // What froze earlier in this batch gives nothing more.
        let frozen = self.freezes.iter().any(|freeze| freeze.account == *id);
        let status = if frozen && state.status == AccountStatus::Active { AccountStatus::Frozen } else { state.status };
        Some(AccountNow { status, available, frozen: state.frozen })
    }

    /// Decides one entry.
    fn book(&mut self, entry: &Entry<'_>) -> Result<(), StoreError> {
        let (user, asset) = (entry.what.user(), entry.listing.asset);
        let account = self.account_now(user, asset);
        let (residue, opening) = self.residues.get(&entry.listing.id).copied().unwrap_or_default();
        let due = match entry.what {
            What::Deposit { raw, whose, owed, held, .. } => {
                Due::Deposit { raw, attribution: whose, account, owed, held }
            }
            What::Found { raw } => Due::Found { raw, opening },
            What::TakeBack { raw, given, owed, .. } => Due::TakeBack { raw, given, account, owed },
            What::Other { change, cause } => Due::Other { change, cause },
        };
        let posting = match Posting::decide(&due, residue, &entry.listing.form, entry.listing.min_deposit) {
            Ok(posting) => posting,
            // It stays outside of the books, where the audit counts it.
            Err(PostingError::BeyondLedger) => {
                self.booked.push((entry.id, Booked::Beyond));
                return Ok(());
            }
            Err(PostingError::GaveMore) => return Err(malformed(entry.id)),
        };
        let left = match posting.posted {
            Posted::Found { opening: found } => opening.checked_sub(found).ok_or_else(|| malformed(entry.id))?,
            Posted::Credited(_) | Posted::LeftOver(..) | Posted::TakenBack { .. } | Posted::Booked => opening,
        };
        self.residues.insert(entry.listing.id, (posting.residue, left));
        self.operation(entry, &posting, user)?;
        self.follow_up(entry, &posting, user)
    }

    fn operation(&mut self, entry: &Entry<'_>, posting: &Posting, user: Option<UserId>) -> Result<(), StoreError> {
        if posting.movements.is_empty() {
            return Ok(());
        }
        let asset = entry.listing.asset;
        let mut movements = Vec::with_capacity(posting.movements.len());
        for (from, to, amount) in &posting.movements {
            let (from, to) = (self.party(*from, user, asset)?, self.party(*to, user, asset)?);
            for (id, sign) in [(from, -1), (to, 1)] {
                if !id.is_system() {
                    *self.gained.entry(id).or_default() += sign * i128::from(amount.units());
                }
            }
            movements.push(Movement { from, to, asset, amount: *amount });
        }
        let broken = |_| malformed(entry.id);
        let key = OpKey::new(format!("entry:{}", entry.id)).map_err(broken)?;
        let words = match entry.what {
            What::Deposit { .. } => format!("deposit dp-{}", entry.id),
            What::TakeBack { deposit, .. } => format!("deposit dp-{deposit} taken back"),
            What::Found { .. } => format!("{} at {}", Cause::UnattributedIn.as_str(), entry.address),
            What::Other { cause, .. } => format!("{} at {}", cause.as_str(), entry.address),
        };
        let reference = Reference::new(words).map_err(broken)?;
        self.operations.push(Operation::move_available(key, movements, reference).map_err(broken)?);
        Ok(())
    }

    fn party(&self, party: Party, user: Option<UserId>, asset: AssetId) -> Result<AccountId, StoreError> {
        let kind = match party {
            Party::User => {
                let account = user.and_then(|user| self.users.get(&(user, asset)));
                return account
                    .copied()
                    .ok_or_else(|| StoreError::Corrupt { what: "a user has no account".to_owned() });
            }
            Party::Custody => self.custody.clone(),
            Party::Suspense => AccountKind::Suspense,
            Party::Dust => AccountKind::Dust,
            Party::Gas => AccountKind::Gas,
        };
        let missing = || StoreError::Corrupt { what: format!("the asset {} has no account {kind}", asset.0) };
        self.house.get(&(kind.clone(), asset)).copied().ok_or_else(missing)
    }

    /// What else the posting changes: the entry, its deposit, and the account of a user who owes something.
    fn follow_up(&mut self, entry: &Entry<'_>, posting: &Posting, user: Option<UserId>) -> Result<(), StoreError> {
        let booked = match posting.posted {
            Posted::LeftOver(Reason::BeyondLedger, given) if given == Given::default() => Booked::Beyond,
            // What was never in the books did not leave them either.
            Posted::TakenBack { .. } if entry.what.is_beyond(entry.listing) => Booked::Beyond,
            Posted::Credited(_)
            | Posted::LeftOver(..)
            | Posted::TakenBack { .. }
            | Posted::Found { .. }
            | Posted::Booked => Booked::Done,
        };
        self.booked.push((entry.id, booked));
        match (posting.posted, &entry.what) {
            (Posted::Credited(given), What::Deposit { before, .. }) => {
                self.sum.credited += 1;
                let set = Set { given: Some(given), user: Some(user), ..Set::default() };
                self.given(entry, *before, (true, "credited"), set);
            }
            (Posted::LeftOver(reason, given), What::Deposit { before, .. }) => {
                self.sum.left_over += 1;
                let set = Set { given: Some(given), user: Some(user), reason: Some(reason), ..Set::default() };
                self.given(entry, *before, (false, reason.as_str()), set);
                if reason == Reason::RowDiffers {
                    self.findings.push(Finding {
                        kind: FindingKind::RowDiffers,
                        subject: format!("dp-{}", entry.id),
                        detail: format!(
                            "the row of {} does not fit its key; the deposit is credited to nobody",
                            entry.address
                        ),
                    });
                }
            }
            (Posted::TakenBack { receivable }, What::TakeBack { deposit, before, .. }) => {
                self.before.insert(*deposit, *before);
                self.taken_back(*deposit, receivable, user, entry.listing);
            }
            (Posted::Credited(_) | Posted::LeftOver(..), _) => return Err(malformed(entry.id)),
            (Posted::TakenBack { .. } | Posted::Found { .. } | Posted::Booked, _) => self.sum.booked += 1,
        }
        Ok(())
    }

    /// The user has it, or `suspense` has. One that was only detected is proven with it, and one that is deep enough is final at once.
    fn given(&mut self, entry: &Entry<'_>, before: Before, (credited, words): (bool, &'static str), set: Set) {
        let is_final = self.depth.settled.is_some_and(|height| entry.height <= height);
        let events = before.0.booked(entry.height <= self.depth.proven, credited, is_final);
        let told = |event: DepositEvent| match event {
            DepositEvent::Proven => (event, PROVEN.into()),
            DepositEvent::Settled => (event, SETTLED.into()),
            DepositEvent::Credited
            | DepositEvent::LeftOver
            | DepositEvent::Assigned
            | DepositEvent::Gone
            | DepositEvent::TakenBack
            | DepositEvent::Collected => (event, words.into()),
        };
        self.sum.settled += usize::from(events.contains(&DepositEvent::Settled));
        self.before.insert(entry.id, before);
        self.changes.push(Change { id: entry.id, steps: events.into_iter().map(told).collect(), set });
    }

    fn taken_back(&mut self, deposit: i64, receivable: Amount, user: Option<UserId>, listing: &ListingRow) {
        self.sum.taken_back += 1;
        let set = Set { receivable: Some(receivable), ..Set::default() };
        let change = Change::new(deposit, DepositEvent::TakenBack, "its block left the chain");
        self.changes.push(Change { set, ..change });
        let account = user.and_then(|user| self.users.get(&(user, listing.asset))).copied();
        let active = |id: &AccountId| self.accounts.get(id).is_some_and(|state| state.status == AccountStatus::Active);
        // An account that is disabled stays so.
        let owes = receivable > Amount::ZERO && account.as_ref().is_some_and(active);
        if let (Some(account), true) = (account, owes)
            && let Ok(key) = OpKey::new(format!("deposit:{deposit}:freeze"))
        {
            let reason = format!("deposit dp-{deposit} left the chain, and the account had spent it");
            self.freezes.push(StatusChange {
                key,
                account,
                status: AccountStatus::Frozen,
                actor: "bursar".to_owned(),
                reason,
            });
        }
        self.findings.push(Finding {
            kind: FindingKind::TakenBack,
            subject: format!("dp-{deposit}"),
            detail: format!("user {} owes {} {}", user.map_or(0, UserId::get), receivable.units(), listing.symbol),
        });
    }

    async fn write(mut self, tx: &mut Tx, chain: &ChainRow, at: Timestamp) -> Result<PostedBatch, StoreError> {
        let mut writes = Writes::default();
        let replies = decide(tx, self.accounts, None, &self.operations, at, &mut writes).await?;
        for (operation, reply) in self.operations.iter().zip(replies) {
            // The entry says that it is not booked, and the journal must say the same; and the accounts were looked at.
            if reply != Reply::First(Outcome::Applied) {
                let what = format!("{} is not booked, and the ledger says {reply:?}", operation.key());
                return Err(StoreError::Corrupt { what });
            }
        }
        let residues: Vec<(ListingId, (RawAmount, Amount))> = self.residues.into_iter().collect();
        let columns = vec![
            Column::Ints(residues.iter().map(|(listing, _)| listing.0).collect()),
            Column::Strings(residues.iter().map(|(_, (residue, _))| residue.to_string()).collect()),
            Column::Ints(residues.iter().map(|(_, (_, opening))| opening.units()).collect()),
        ];
        writes.add(&WRITE_RESIDUES, columns, "residues");
        let columns = vec![
            Column::Ints(self.booked.iter().map(|(id, _)| *id).collect()),
            Column::Ints(self.booked.iter().map(|(_, booked)| booked.number()).collect()),
        ];
        writes.add(&BOOK_ENTRIES, columns, "entries");
        add_changes(&mut writes, self.changes, &self.before, at)?;
        writes.run(tx).await?;
        // A replay of a freeze is none: the journal of status changes has its key.
        self.freezes.dedup_by(|one, other| one.key == other.key);
        if !self.freezes.is_empty() {
            set_status(tx, &self.freezes, at).await?;
        }
        add_findings(tx, chain.id, &self.findings, at).await?;
        Ok(self.sum)
    }
}
