//! Addresses to evaluate, with all that a decision rests on; and who evaluates a chain.
//!
//! One worker at a time has a chain's rules, fenced as chains are. It goes by what changed in blocks that have become final since, by what
//! rules still have to do with, in turn, and over all addresses once in a while.

use std::collections::HashMap;

use domain::outbound::JobState;
use domain::treasury::{Condition, Former, GasRule, Operator, Pace, RuleId, SweepRule};
use domain::{Amount, GroupId, RawAmount, RawSum, Timestamp};

use super::act::TreasuryKind;
use super::malformed;
use crate::db::{Db, Tx};
use crate::deposit::depth::deep_enough;
use crate::entry::{ChainId, ChainRow, ListingId};
use crate::error::StoreError;
use crate::outbound::JobId;
use crate::rows::{Column, ColumnType::Int, ColumnType::Text, RowsSql, fetch_rows};
use crate::transact;

/// Who evaluates a chain's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleWorker {
    pub chain: ChainId,
    pub(crate) fence: i64,
    /// What the row said of the last pass: whoever orders a new one writes another number.
    pub(crate) passed: i64,
}

/// How far rules were evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleStanding {
    /// `None`: never.
    pub evaluated: Option<i64>,
    /// A pass over all addresses has come this far.
    pub passing: Option<String>,
    /// When the last one ended. `None`: one is due.
    pub passed_at: Option<Timestamp>,
    /// The newest block that is final by the chain's own books. `None`: there is none, or the books are halted.
    pub settled: Option<i64>,
}

/// A user's address with its coins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvaluatedWallet {
    /// As the row claims it: whoever pays it derives it again.
    pub address: String,
    pub group: GroupId,
    pub index: i64,
    /// Nothing is sent from its group until people have looked: its keys may be stolen, so nothing is brought there either.
    pub stopped: bool,
    pub coins: Vec<EvaluatedCoin>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvaluatedCoin {
    pub listing: ListingId,
    /// What came in final blocks, less all that has left.
    pub spendable: RawAmount,
    pub needs_gas: bool,
    pub needs_consolidation: bool,
    pub waits: Option<String>,
}

/// The newest job of a kind, of a coin at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormerJob {
    pub former: Former,
    pub generation: i64,
    /// Why it is as it is.
    pub reason: String,
    /// Its number, while it waits for a slot: it can still be withdrawn.
    pub waiting: Option<JobId>,
}

/// People judge a job that no block of it says anything of: by then the books have seen whatever it did.
const JUDGED_SETTLES_MICROS: i64 = 3_600 * 1_000_000;

/// By address, coin and kind.
pub type Formers = HashMap<(String, ListingId, TreasuryKind), FormerJob>;

/// Active rules of a chain, in the order of their priorities.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChainRules {
    pub gas: Vec<GasRule>,
    pub sweeps: Vec<SweepRule>,
}

const WALLET: &str = "b.address, b.listing_id, b.on_chain_balance_raw, b.needs_gas, b.needs_consolidation, b.waits, g.name, u.derivation_index, \
    g.outbound_stopped IS NOT NULL";
type WalletColumns = (String, i64, String, bool, bool, Option<String>, String, i64, bool);

statements! {
    INSERT_RULE_CURSOR = "INSERT INTO rule_cursors (chain_id, worker, fence, lease_until, evaluated_height, passed_address, passed_at, updated_at)
        VALUES ($1, '', 0, 0, -1, NULL, 0, $2) ON CONFLICT (chain_id) DO NOTHING";
    LOCK_RULE_CURSOR = "SELECT worker, fence, lease_until, evaluated_height, passed_address, passed_at FROM rule_cursors
        WHERE chain_id = $1 {FOR UPDATE}";
    TAKE_RULE_CURSOR = "UPDATE rule_cursors SET worker = $2, fence = $3, lease_until = $4, updated_at = $5 WHERE chain_id = $1";
    LEAVE_RULE_CURSOR = "UPDATE rule_cursors SET lease_until = 0 WHERE worker = $1";
    READ_BOOKS = "SELECT proven_height, halted IS NOT NULL FROM chain_cursors WHERE chain_id = $1";
    READ_GAS_RULES = "SELECT id, listing_id, operator, threshold, amount, priority, cool_down_s, most_per_hour FROM gas_topup_rules
        WHERE chain_id = $1 AND is_active ORDER BY priority, id";
    READ_SWEEP_RULES = "SELECT id, listing_id, operator, threshold, most_cost_bps, priority, cool_down_s, most_per_hour FROM consolidation_rules
        WHERE chain_id = $1 AND is_active ORDER BY priority, id";
    /// How many jobs each rule has made in a time. What a clock that was ahead has made counts for nothing.
    COUNT_MADE = "SELECT kind, rule_id, COUNT(*) FROM treasury_jobs WHERE chain_id = $1 AND created_at > $2 AND created_at <= $3
        AND rule_id IS NOT NULL GROUP BY kind, rule_id";
    /// The block with the entry that is one too many.
    FIND_CUT = "SELECT height FROM chain_entries WHERE chain_id = $1 AND alive AND height > $2 AND height <= $3 ORDER BY height LIMIT 1 OFFSET $4";
    FIND_CHANGED = "SELECT DISTINCT address FROM chain_entries WHERE chain_id = $1 AND alive AND height > $2 AND height <= $3 ORDER BY address";
    FIND_NEEDY = "SELECT DISTINCT address FROM wallet_balances WHERE chain_id = $1 AND (needs_gas OR needs_consolidation) AND address > $2
        ORDER BY address LIMIT $3";
    PAGE_WALLETS(WALLET) = "SELECT {columns} FROM (SELECT * FROM wallet_balances WHERE chain_id = $1 AND address > $2
            ORDER BY address, listing_id LIMIT $3) b
            JOIN user_wallets u ON u.address = b.address JOIN wallet_groups g ON g.id = u.wallet_group_id
        ORDER BY b.address, b.listing_id";
    /// The last address that such a page has rows of, and how many rows it has.
    PAGE_END = "SELECT MAX(address), COUNT(*) FROM (SELECT address FROM wallet_balances WHERE chain_id = $1 AND address > $2
        ORDER BY address, listing_id LIMIT $3) b";
    /// Gas and sweeps that people have asked for, and that are not final yet.
    READ_BY_PEOPLE = "SELECT j.kind, j.listing_id, l.address, j.to_address FROM outbound_jobs j JOIN outbound_lanes l ON l.id = j.lane_id
        WHERE j.chain_id = $1 AND j.kind IN ('gas_topup', 'consolidation') AND j.requester <> 'rules' AND (j.waiting
            OR EXISTS (SELECT 1 FROM outbound_slots s WHERE s.id = j.slot_id AND s.state = 'open'))";
    /// What has come since a block.
    READ_RECENT = "SELECT address, listing_id, amount_raw FROM chain_entries WHERE chain_id = $1 AND alive AND height > $2 AND side = 1";
}

static READ_WALLETS: RowsSql = RowsSql::listing(
    "READ_WALLETS",
    "SELECT {columns} FROM {rows} {join} wallet_balances b ON b.chain_id = r.chain_id AND b.address = r.address
         {join} user_wallets u ON u.address = b.address {join} wallet_groups g ON g.id = u.wallet_group_id
     ORDER BY b.address, b.listing_id",
    WALLET,
    &[("chain_id", Int), ("address", Text)],
);

static READ_FORMERS: RowsSql = RowsSql::new(
    "READ_FORMERS",
    // Failures in a row, as far as the last sixteen tell. What was withdrawn because it was not needed any more, or had become too dear, has not failed;
    // nor has what nobody approved, or could send, in its time: that time was its rest.
    // The newest of each coin and kind is looked up, and not all that an address ever had: a busy one has thousands.
    "SELECT t.job_id, t.address, t.listing_id, t.kind, t.generation, j.state, j.updated_at, COALESCE((SELECT MAX(a.mined_height)
             FROM outbound_slot_jobs k JOIN outbound_attempts a ON a.slot_id = k.slot_id WHERE k.job_id = t.job_id), -1),
         j.judged IS NOT NULL, j.reason, (SELECT COUNT(*) FROM treasury_jobs f
             WHERE (SELECT o.state = 'failed_final' AND o.reason NOT IN ('it is not needed any more',
                 'sending it would cost more than the rule''s share of its value', 'its address has enough gas already',
                 'its time is over, and nothing was sent', 'its time was over before it could be paid') FROM outbound_jobs o WHERE o.id = f.job_id) AND f.chain_id = t.chain_id AND f.address = t.address AND f.listing_id = t.listing_id AND f.kind = t.kind
                 AND f.generation > t.generation - 16 AND f.generation > COALESCE((SELECT MAX(c.generation) FROM treasury_jobs c
                     WHERE (SELECT p.state FROM outbound_jobs p WHERE p.id = c.job_id) = 'confirmed' AND c.chain_id = t.chain_id AND c.address = t.address
                         AND c.listing_id = t.listing_id AND c.kind = t.kind AND c.generation > t.generation - 16), -1))
     FROM {rows} {join} asset_on_chain s ON s.chain_id = r.chain_id
         AND EXISTS (SELECT 1 FROM treasury_jobs x WHERE x.chain_id = r.chain_id AND x.address = r.address)
         {join} (SELECT 'gas_topup' AS kind UNION ALL SELECT 'consolidation' UNION ALL SELECT 'refill' UNION ALL SELECT 'surplus') q ON TRUE
         {join} treasury_jobs t ON t.chain_id = r.chain_id AND t.address = r.address AND t.listing_id = s.id AND t.kind = q.kind
             AND t.generation = (SELECT MAX(n.generation) FROM treasury_jobs n WHERE n.chain_id = r.chain_id AND n.address = r.address
                 AND n.listing_id = s.id AND n.kind = q.kind)
         {join} outbound_jobs j ON j.id = t.job_id",
    &[("chain_id", Int), ("address", Text)],
);

/// The conditions of the active rules that top-ups are of.
static READ_CONDITIONS: RowsSql = RowsSql::new(
    "READ_CONDITIONS",
    "SELECT t.job_id, g.listing_id, g.operator, g.threshold FROM {rows} {join} treasury_jobs t ON t.job_id = r.job_id
         {join} gas_topup_rules g ON g.id = t.rule_id
     WHERE t.kind = 'gas_topup' AND g.is_active",
    &[("job_id", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 3] = [&READ_WALLETS, &READ_FORMERS, &READ_CONDITIONS];

impl Db {
    /// Takes the rules of a chain, or has them longer. `None`: another worker has them.
    pub async fn take_rules(
        &self,
        chain: &ChainRow,
        worker: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<Option<(RuleWorker, RuleStanding)>, StoreError> {
        transact!(self, tx => {
            execute!(tx, INSERT_RULE_CURSOR, chain.id.0, now.micros())?;
            let row = fetch_optional!(tx, LOCK_RULE_CURSOR => (String, i64, i64, i64, Option<String>, i64), chain.id.0)?;
            let Some((holder, fence, lease, evaluated, passing, passed_at)) = row else {
                return Err(malformed("cursor"));
            };
            // A lease that is longer than this one asks for was given by a clock that was wrong: it keeps nobody out.
            let free = holder == worker || lease <= now.micros() || lease > until.micros();
            if !free {
                return Ok(None);
            }
            let fence = if holder == worker { fence } else { fence.saturating_add(1) };
            execute!(tx, TAKE_RULE_CURSOR, chain.id.0, worker, fence, until.micros(), now.micros())?;
            let standing = RuleStanding {
                evaluated: (evaluated >= 0).then_some(evaluated),
                passing,
                passed_at: (passed_at > 0).then_some(Timestamp::from_micros(passed_at)),
                settled: settled(tx, chain).await?,
            };
            Ok(Some((RuleWorker { chain: chain.id, fence, passed: passed_at }, standing)))
        })
    }

    /// Others may have the rules at once.
    pub async fn leave_rules(&self, worker: &str) -> Result<(), StoreError> {
        transact!(self, tx => execute!(tx, LEAVE_RULE_CURSOR, worker).map(|_| ()))
    }

    /// The newest block that is final by the chain's own books. `None`: there is none, or the books are halted.
    pub async fn settled_height(&self, chain: &ChainRow) -> Result<Option<i64>, StoreError> {
        settled(&mut self.read().await?, chain).await
    }

    pub async fn chain_rules(&self, chain: &ChainRow) -> Result<ChainRules, StoreError> {
        let tx = &mut self.read().await?;
        let mut rules = ChainRules::default();
        let raw = |listing: i64, units: i64| ledger_raw(chain, listing, units);
        type Gas = (i64, i64, String, i64, i64, i64, i64, i64);
        for (id, listing, sign, threshold, amount, priority, cool_down_s, most) in
            fetch_all!(tx, READ_GAS_RULES => Gas, chain.id.0)?
        {
            rules.gas.push(GasRule {
                id: RuleId::Gas(id),
                condition: condition(&sign, raw(listing, threshold)?)?,
                amount: raw(listing, amount)?,
                pace: pace(priority, cool_down_s, most)?,
            });
        }
        type Sweep = (i64, i64, String, i64, Option<i64>, i64, i64, i64);
        for (id, listing, sign, threshold, bps, priority, cool_down_s, most) in
            fetch_all!(tx, READ_SWEEP_RULES => Sweep, chain.id.0)?
        {
            rules.sweeps.push(SweepRule {
                id: RuleId::Sweep(id),
                coin: domain::treasury::CoinId(listing),
                condition: condition(&sign, raw(listing, threshold)?)?,
                most_cost_bps: bps.map(|bps| u32::try_from(bps).map_err(|_| malformed("share"))).transpose()?,
                pace: pace(priority, cool_down_s, most)?,
            });
        }
        Ok(rules)
    }

    /// Under which conditions these top-ups are needed: those of their rules, as far as rules have made them and are still active.
    pub async fn topup_conditions(
        &self,
        chain: &ChainRow,
        jobs: &[JobId],
    ) -> Result<HashMap<JobId, Condition>, StoreError> {
        if jobs.is_empty() {
            return Ok(HashMap::new());
        }
        let columns = vec![Column::Ints(jobs.iter().map(|job| job.number()).collect())];
        let rows: Vec<(i64, i64, String, i64)> = fetch_rows(&mut self.read().await?, &READ_CONDITIONS, columns).await?;
        let needed = |(job, listing, sign, threshold): (i64, i64, String, i64)| {
            let job = JobId::new(job).map_err(|_| malformed("job"))?;
            Ok((job, condition(&sign, ledger_raw(chain, listing, threshold)?)?))
        };
        rows.into_iter().map(needed).collect()
    }

    /// How many jobs each rule of the chain has made since a time.
    pub async fn made_by_rules(
        &self,
        chain: ChainId,
        since: Timestamp,
        now: Timestamp,
    ) -> Result<Vec<(RuleId, u32)>, StoreError> {
        let tx = &mut self.read().await?;
        let rows = fetch_all!(tx, COUNT_MADE => (String, i64, i64), chain.0, since.micros(), now.micros())?;
        let made = |(kind, rule, count): (String, i64, i64)| {
            let rule = if kind == TreasuryKind::GasTopup.as_str() { RuleId::Gas(rule) } else { RuleId::Sweep(rule) };
            Ok((rule, u32::try_from(count).unwrap_or(u32::MAX)))
        };
        rows.into_iter().map(made).collect()
    }

    /// Addresses that something came to or left in these blocks, by about so many entries: up to the block that is said.
    pub async fn changed_between(
        &self,
        chain: ChainId,
        after: i64,
        to: i64,
        most: i64,
    ) -> Result<(Vec<String>, i64), StoreError> {
        let tx = &mut self.read().await?;
        let cut = fetch_optional!(tx, FIND_CUT => (i64,), chain.0, after, to, most)?;
        // A block is taken whole, however much it has.
        let to = cut.map_or(to, |(height,)| height.saturating_sub(1).max(after.saturating_add(1)));
        let rows = fetch_all!(tx, FIND_CHANGED => (String,), chain.0, after, to)?;
        Ok((rows.into_iter().map(|(address,)| address).collect(), to))
    }

    /// Addresses that rules have something to do with, behind one.
    pub async fn needy_after(&self, chain: ChainId, after: &str, most: i64) -> Result<Vec<String>, StoreError> {
        let rows = fetch_all!(&mut self.read().await?, FIND_NEEDY => (String,), chain.0, after, most)?;
        Ok(rows.into_iter().map(|(address,)| address).collect())
    }

    /// These addresses, if they are users', with what they may spend by the blocks up to `settled`.
    pub async fn wallets_at(
        &self,
        chain: ChainId,
        addresses: &[String],
        settled: i64,
    ) -> Result<Vec<EvaluatedWallet>, StoreError> {
        if addresses.is_empty() {
            return Ok(Vec::new());
        }
        read_wallets(&mut self.read().await?, chain, addresses, settled).await
    }

    /// The next addresses behind one, by so many rows, and the last of them. `None` at the end.
    pub async fn wallet_page(
        &self,
        chain: ChainId,
        after: &str,
        rows: i64,
        settled: i64,
    ) -> Result<Option<(Vec<EvaluatedWallet>, String)>, StoreError> {
        let tx = &mut self.read().await?;
        let end = fetch_optional!(tx, PAGE_END => (Option<String>, i64), chain.0, after, rows)?;
        let Some((Some(last), count)) = end else { return Ok(None) };
        let page = fetch_all!(tx, PAGE_WALLETS => WalletColumns, chain.0, after, rows)?;
        let mut wallets = evaluated(page, &recent(tx, chain, settled).await?)?;
        if count < rows {
            return Ok(Some((wallets, last)));
        }
        // The last one may have more coins than the page had room for: it begins the next page.
        let cut = wallets.iter().rposition(|wallet| wallet.address < last).map_or(0, |at| at + 1);
        match wallets.get(cut.wrapping_sub(1)).map(|wallet| wallet.address.clone()) {
            Some(before) => {
                wallets.truncate(cut);
                Ok(Some((wallets, before)))
            }
            // None on it is a user's, but perhaps the last, which is read whole: there may be nobody before it to go on behind.
            None => {
                let whole = read_wallets(tx, chain, std::slice::from_ref(&last), settled).await?;
                Ok(Some((whole, last)))
            }
        }
    }

    /// What became of the newest jobs of these addresses. What people have asked for counts too.
    pub async fn formers(
        &self,
        chain: ChainId,
        addresses: &[String],
        settled: i64,
        now: Timestamp,
    ) -> Result<Formers, StoreError> {
        if addresses.is_empty() {
            return Ok(Formers::new());
        }
        let columns = vec![
            Column::Ints(vec![chain.0; addresses.len()]),
            Column::Texts(addresses.iter().map(String::as_str).collect()),
        ];
        let tx = &mut self.read().await?;
        let rows: Vec<FormerColumns> = fetch_rows(tx, &READ_FORMERS, columns).await?;
        let mut formers = rows.into_iter().map(|row| former(row, settled, now)).collect::<Result<Formers, _>>()?;
        for (kind, listing, from, to) in fetch_all!(tx, READ_BY_PEOPLE => (String, i64, String, String), chain.0)? {
            let (address, kind) = match TreasuryKind::parse(&kind) {
                Some(kind @ TreasuryKind::GasTopup) => (to, kind),
                Some(kind @ TreasuryKind::Consolidation) => (from, kind),
                Some(TreasuryKind::Refill | TreasuryKind::Surplus) | None => return Err(malformed("kind")),
            };
            let reason = "people have asked for it".to_owned();
            let none = FormerJob { former: Former::Open, generation: -1, reason, waiting: None };
            formers.entry((address, ListingId(listing), kind)).or_insert(none).former = Former::Open;
        }
        Ok(formers)
    }
}

type FormerColumns = (i64, String, i64, String, i64, String, i64, i64, bool, String, i64);

fn former(
    (job, address, listing, kind, generation, state, updated, mined, judged, reason, failures): FormerColumns,
    settled: i64,
    now: Timestamp,
) -> Result<((String, ListingId, TreasuryKind), FormerJob), StoreError> {
    let kind = TreasuryKind::parse(&kind).ok_or_else(|| malformed("kind"))?;
    let state = JobState::parse(&state).ok_or_else(|| malformed("state"))?;
    let former = match state {
        JobState::Confirmed | JobState::FailedFinal => {
            // A clock that was ahead keeps nobody waiting.
            let at = Timestamp::from_micros(updated).min(now);
            let looked_at = !judged || mined >= 0 || at.plus_micros(JUDGED_SETTLES_MICROS) <= now;
            let failures = u32::try_from(failures).map_err(|_| malformed("count"))?;
            Former::Ended { at, settled: mined <= settled && looked_at, failures }
        }
        JobState::Queued
        | JobState::Picked
        | JobState::BuildingTx
        | JobState::Signing
        | JobState::Broadcasting
        | JobState::Broadcasted
        | JobState::Confirming
        | JobState::FailedRetryable => Former::Open,
    };
    let waiting = match state {
        JobState::Queued | JobState::FailedRetryable => Some(JobId::new(job).map_err(|_| malformed("job"))?),
        JobState::Picked
        | JobState::BuildingTx
        | JobState::Signing
        | JobState::Broadcasting
        | JobState::Broadcasted
        | JobState::Confirming
        | JobState::Confirmed
        | JobState::FailedFinal => None,
    };
    Ok(((address, ListingId(listing), kind), FormerJob { former, generation, reason, waiting }))
}

async fn settled(tx: &mut Tx, chain: &ChainRow) -> Result<Option<i64>, StoreError> {
    let books = fetch_optional!(tx, READ_BOOKS => (i64, bool), chain.id.0)?;
    Ok(books.filter(|(_, halted)| !halted).and_then(|(proven, _)| deep_enough(proven, chain.final_confirmations)))
}

/// Ledger units of a listed coin, in the chain's own.
fn ledger_raw(chain: &ChainRow, listing: i64, units: i64) -> Result<RawAmount, StoreError> {
    let form = &chain.listing(ListingId(listing)).ok_or_else(|| malformed("coin"))?.form;
    RawAmount::from_ledger(Amount::from_units(units), form).map_err(|_| malformed("amount"))
}

fn condition(sign: &str, threshold: RawAmount) -> Result<Condition, StoreError> {
    let operator = Operator::parse(sign).ok_or_else(|| malformed("operator"))?;
    Ok(Condition { operator, threshold })
}

fn pace(priority: i64, cool_down_s: i64, most: i64) -> Result<Pace, StoreError> {
    let most_per_hour = u32::try_from(most).map_err(|_| malformed("count"))?;
    Ok(Pace { priority, cool_down_us: cool_down_s.saturating_mul(1_000_000), most_per_hour })
}

async fn read_wallets(
    tx: &mut Tx,
    chain: ChainId,
    addresses: &[String],
    settled: i64,
) -> Result<Vec<EvaluatedWallet>, StoreError> {
    let columns = vec![
        Column::Ints(vec![chain.0; addresses.len()]),
        Column::Texts(addresses.iter().map(String::as_str).collect()),
    ];
    let rows: Vec<WalletColumns> = fetch_rows(tx, &READ_WALLETS, columns).await?;
    evaluated(rows, &recent(tx, chain, settled).await?)
}

/// What each address got above a block.
async fn recent(tx: &mut Tx, chain: ChainId, settled: i64) -> Result<HashMap<(String, i64), RawSum>, StoreError> {
    let mut came: HashMap<(String, i64), RawSum> = HashMap::new();
    for (address, listing, amount) in fetch_all!(tx, READ_RECENT => (String, i64, String), chain.0, settled)? {
        let amount: RawSum = amount.parse().map_err(|_| malformed("amount"))?;
        let sum = came.entry((address, listing)).or_insert(RawSum::ZERO);
        *sum = sum.plus(amount);
    }
    Ok(came)
}

fn evaluated(
    rows: Vec<WalletColumns>,
    recent: &HashMap<(String, i64), RawSum>,
) -> Result<Vec<EvaluatedWallet>, StoreError> {
    let mut wallets: Vec<EvaluatedWallet> = Vec::new();
    for (address, listing, balance, needs_gas, needs_consolidation, waits, group, index, stopped) in rows {
        let balance: RawSum = balance.parse().map_err(|_| malformed("balance"))?;
        // A balance below zero is the books' trouble: nothing of it can be spent.
        let key = (address, listing);
        let spendable = match recent.get(&key) {
            None => balance.to_raw(),
            Some(came) => balance.plus(-*came).to_raw(),
        };
        let coin = EvaluatedCoin {
            listing: ListingId(listing),
            spendable: spendable.unwrap_or(RawAmount::ZERO),
            needs_gas,
            needs_consolidation,
            waits,
        };
        match wallets.last_mut().filter(|wallet| wallet.address == key.0) {
            Some(wallet) => wallet.coins.push(coin),
            None => wallets.push(EvaluatedWallet {
                address: key.0,
                group: group.parse().map_err(|_| malformed("group"))?,
                index,
                stopped,
                coins: vec![coin],
            }),
        }
    }
    Ok(wallets)
}
