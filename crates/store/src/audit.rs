//! `bursar audit`: laws 1, 2 and 7 (docs/laws.md), proven over live data.
//!
//! Everything is read from one snapshot, so traffic goes on meanwhile and causes no false alarm. Rows are streamed
//! or added up by the database; memory does not grow with the journal.
//!
//! | check | proves |
//! |---|---|
//! | `movements` | each row is as it was written, and makes sense by itself |
//! | `history` | nothing was removed since the last checkpoint's mark |
//! | `operations` | the movements of each key are complete and agree |
//! | `owners` | each account belongs to whom it was opened for, with a status that a recorded change led to |
//! | `accounts` | both accounts of each applied movement exist and have its asset |
//! | `holds` | each settle and release ends one hold of the same account, with its exact amount |
//! | `balances` | each user's available and frozen are the sums of the movements |
//! | `checkpoints` | the newest checkpoint is the sum of the movements it covers |
//! | `adjustments` | what people moved by hand names two of them and a reason, and is between accounts that may be moved so |
//! | `conservation` | for each asset, all accounts add up to zero |
//! | `transfers` | the history of each transfer is a walk through the state machine that ends at its state |
//! | `entries` | each transfer's entries in the journal are those of its state, and all that `clearing:spot` holds |
//! | `wallet_balances` | each address of ours has what its chain entries add up to |
//! | `custody` | of each coin on each chain, what is booked is what `custody:<chain>` has, and the residue |
//! | `deposits` | the history of each deposit is a walk through its states that fits its entry; what is credited is proven |
//! | `withdrawals` | the history of each withdrawal is a walk through its states, its hold is as its status says, and nothing that was given back can be paid |
//!
//! Not proven: that no rows were removed which moved nothing (a refused operation, say) and are younger than the last
//! checkpoint, and that settings are what `setting_changes` says. That is for database roles to prevent.

use std::collections::BTreeMap;

use futures_util::TryStreamExt;

use crate::db::{Db, Tx, TxInner};
use crate::deposit::audit as deposit;
use crate::dialect::PREFER_ONE_PASS;
use crate::error::StoreError;
use crate::ledger::accounts::account_checksum;
use crate::ledger::adjust::check_adjustments;
use crate::ledger::balances::{
    HIGHEST_MOVEMENT, Mark, add_movements, join_halves, latest_checkpoint, latest_mark, totals,
};
use crate::ledger::row::{COLUMNS, MovementRow};
use crate::transfer::audit::{check_entries, check_histories};

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub check: &'static str,
    /// The first row that breaks the law; `None` when all is well.
    pub violation: Option<Violation>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Where to look: a table and its key, such as `movements id=17`.
    pub row: String,
    pub problem: String,
}

#[derive(Clone, Debug)]
pub struct Report {
    pub movements: u64,
    pub findings: Vec<Finding>,
}

impl Report {
    pub fn clean(&self) -> bool {
        self.findings.iter().all(|finding| finding.violation.is_none())
    }
}

statements! {
    COUNT_MOVEMENTS = "SELECT COUNT(*) FROM movements";
    STREAM_MOVEMENTS(COLUMNS) = "SELECT {columns} FROM movements ORDER BY id";
    FIND_RAGGED_OPERATION = "SELECT op_key FROM movements GROUP BY op_key
        HAVING MIN(leg) <> 0 OR MAX(leg) <> COUNT(*) - 1 OR MIN(action) <> MAX(action)
            OR MIN(outcome) <> MAX(outcome)
        ORDER BY op_key LIMIT 1";
    FIND_STRAY_MOVEMENT = "SELECT m.id FROM movements m
            LEFT JOIN accounts f ON f.id = m.from_account LEFT JOIN accounts t ON t.id = m.to_account
        WHERE m.outcome = 0 AND (f.id IS NULL OR t.id IS NULL OR f.asset_id <> m.asset_id OR t.asset_id <> m.asset_id)
        ORDER BY m.id LIMIT 1";
    /// Each hold with its ends, in one pass and without a join: signed amounts that must cancel out.
    FIND_BROKEN_HOLD = "SELECT hold FROM (
            SELECT COALESCE(hold_key, op_key) AS hold, from_account,
                CASE WHEN action = 2 THEN 1 ELSE 0 END AS taken,
                CASE WHEN action > 2 AND leg = 0 THEN 1 ELSE 0 END AS ended,
                CASE WHEN action = 2 THEN -amount ELSE amount END AS signed
            FROM movements WHERE outcome = 0 AND action >= 2) ends
        GROUP BY hold
        HAVING SUM(ended) > 0 AND (SUM(taken) <> 1 OR SUM(ended) <> 1 OR MIN(from_account) <> MAX(from_account)
            OR CAST(SUM(signed >> 32) AS BIGINT) + (CAST(SUM(signed & 4294967295) AS BIGINT) >> 32) <> 0
            OR CAST(SUM(signed & 4294967295) AS BIGINT) & 4294967295 <> 0)
        ORDER BY hold LIMIT 1";
    /// Sums are kept in two halves of 32 bits, so that no number of movements overflows them, then normalised.
    FIND_WRONG_BALANCE = "SELECT a.id, a.available, a.frozen,
            COALESCE(d.available_high, 0), COALESCE(d.available_low, 0),
            COALESCE(d.frozen_high, 0), COALESCE(d.frozen_low, 0)
        FROM accounts a LEFT JOIN (
            SELECT account_id,
                CAST(SUM(available >> 32) AS BIGINT) AS available_high,
                CAST(SUM(available & 4294967295) AS BIGINT) AS available_low,
                CAST(SUM(frozen >> 32) AS BIGINT) AS frozen_high,
                CAST(SUM(frozen & 4294967295) AS BIGINT) AS frozen_low
            FROM (SELECT to_account AS account_id,
                        CASE WHEN action = 2 THEN 0 ELSE amount END AS available,
                        CASE WHEN action = 2 THEN amount ELSE 0 END AS frozen
                    FROM movements WHERE outcome = 0 AND to_account > 0
                UNION ALL
                SELECT from_account,
                        CASE WHEN action <= 2 THEN -amount ELSE 0 END,
                        CASE WHEN action <= 2 THEN 0 ELSE -amount END
                    FROM movements WHERE outcome = 0 AND from_account > 0) deltas
            GROUP BY account_id) d ON d.account_id = a.id
        WHERE a.id > 0 AND (
            COALESCE(d.available_high, 0) + (COALESCE(d.available_low, 0) >> 32) <> a.available >> 32
            OR COALESCE(d.available_low, 0) & 4294967295 <> a.available & 4294967295
            OR COALESCE(d.frozen_high, 0) + (COALESCE(d.frozen_low, 0) >> 32) <> a.frozen >> 32
            OR COALESCE(d.frozen_low, 0) & 4294967295 <> a.frozen & 4294967295
            OR a.available < 0 OR a.frozen < 0)
        ORDER BY a.id LIMIT 1";
    PAGE_ACCOUNTS = "SELECT id, owner, kind, asset_id, checksum FROM accounts WHERE id > $1 ORDER BY id LIMIT 4096";
    /// A status that the last recorded change did not lead to.
    FIND_UNEXPLAINED_STATUS = "SELECT a.id, a.status FROM accounts a
        WHERE a.status <> COALESCE((SELECT c.after_status FROM account_status_changes c
                WHERE c.account_id = a.id AND c.outcome = 0 ORDER BY c.id DESC LIMIT 1), 'active')
        ORDER BY a.id LIMIT 1";
    READ_SYMBOL = "SELECT symbol FROM assets WHERE id = $1";
}

/// Where the audit stands, for a progress bar.
#[derive(Clone, Copy, Debug)]
pub enum Progress {
    Started { movements: u64 },
    Movements(u64),
    Check(&'static str),
}

impl Db {
    /// Runs every check, to the end: the first offending row of each is in the report.
    pub async fn audit(&self, mut progress: impl FnMut(Progress)) -> Result<Report, StoreError> {
        let mut tx = self.read().await?;
        let tx = &mut tx;
        let movements = fetch_optional!(tx, COUNT_MOVEMENTS => (i64,))?.map_or(0, |row| row.0);
        let movements = u64::try_from(movements).unwrap_or(0);
        progress(Progress::Started { movements });
        execute!(tx, PREFER_ONE_PASS)?;
        let mut findings = Vec::new();
        let mut found = |check, violation| findings.push(Finding { check, violation });
        let mark = latest_mark(tx).await?;
        let (violation, tally) = check_movements(tx, mark.through, &mut progress).await?;
        found("movements", violation);
        found("history", check_history(mark, tally));
        progress(Progress::Check("operations"));
        found("operations", check_operations(tx).await?);
        progress(Progress::Check("owners"));
        found("owners", check_owners(tx).await?);
        progress(Progress::Check("accounts"));
        found("accounts", check_accounts(tx).await?);
        progress(Progress::Check("holds"));
        found("holds", check_holds(tx).await?);
        progress(Progress::Check("balances"));
        found("balances", check_balances(tx).await?);
        progress(Progress::Check("checkpoints"));
        found("checkpoints", check_checkpoints(tx).await?);
        progress(Progress::Check("adjustments"));
        found("adjustments", check_adjustments(tx).await?);
        progress(Progress::Check("conservation"));
        found("conservation", check_conservation(tx).await?);
        progress(Progress::Check("transfers"));
        found("transfers", check_histories(tx).await?);
        progress(Progress::Check("entries"));
        found("entries", check_entries(tx).await?);
        progress(Progress::Check("wallet_balances"));
        found("wallet_balances", deposit::check_balances(tx).await?);
        progress(Progress::Check("custody"));
        found("custody", deposit::check_books(tx).await?);
        progress(Progress::Check("deposits"));
        found("deposits", deposit::check_deposits(tx).await?);
        progress(Progress::Check("outbound"));
        found("outbound", crate::outbound::audit::check_jobs(tx).await?);
        progress(Progress::Check("withdrawals"));
        found("withdrawals", crate::withdrawal::audit::check_withdrawals(tx).await?);
        Ok(Report { movements, findings })
    }
}

pub(crate) fn violation(row: impl Into<String>, problem: impl Into<String>) -> Option<Violation> {
    Some(Violation { row: row.into(), problem: problem.into() })
}

/// Reads every movement; the tally is of those with an id up to `through`.
async fn check_movements(
    tx: &mut Tx,
    through: i64,
    progress: &mut impl FnMut(Progress),
) -> Result<(Option<Violation>, Mark), StoreError> {
    let mut seen = 0_u64;
    let mut tally = Mark { through, ..Mark::default() };
    let mut each = |row: &MovementRow| {
        seen += 1;
        if row.id <= through {
            tally.movements = tally.movements.saturating_add(1);
            tally.checksums = tally.checksums.saturating_add(row.checksum);
        }
        if seen.is_multiple_of(4_096) {
            progress(Progress::Movements(seen));
        }
        movement_problem(row)
    };
    macro_rules! stream {
        ($tx:expr, $text:expr) => {{
            let mut rows = sqlx::query_as::<_, MovementRow>($text).fetch(&mut **$tx);
            let mut first = None;
            // Read to the end also after a finding: a half-read stream would spoil the connection.
            let mut last = 0;
            loop {
                let row = match rows.try_next().await {
                    Ok(Some(row)) => row,
                    Ok(None) => break,
                    // Text that is no text, say. The rows behind it cannot be read either.
                    Err(sqlx::Error::ColumnDecode { index, source }) => {
                        let problem = format!("the next row's column {index} cannot be read: {source}");
                        first = first.or(violation(format!("movements id>{last}"), problem));
                        break;
                    }
                    Err(error) => return Err(error.into()),
                };
                last = row.id;
                if let Some(problem) = each(&row)
                    && first.is_none()
                {
                    first = violation(format!("movements id={}", row.id), problem);
                }
            }
            first
        }};
    }
    tx.next_statement().await?;
    let first = match &mut tx.inner {
        TxInner::Postgres(tx) => stream!(tx, STREAM_MOVEMENTS.postgres),
        TxInner::Sqlite(tx) => stream!(tx, STREAM_MOVEMENTS.sqlite),
    };
    Ok((first, tally))
}

/// Rows are only ever added: up to the last mark there are as many as there were, with the same sum of checksums.
fn check_history(mark: Mark, tally: Mark) -> Option<Violation> {
    if mark == tally {
        return None;
    }
    violation(
        format!("journal_marks through_movement={}", mark.through),
        format!(
            "there were {} movements through this id with checksums that add up to {}, now {} with {}",
            mark.movements, mark.checksums, tally.movements, tally.checksums
        ),
    )
}

/// What is wrong with a row taken by itself.
fn movement_problem(row: &MovementRow) -> Option<String> {
    if row.checksum != row.expected_checksum() {
        return Some(format!("its content was changed after it was written (key {})", row.op_key));
    }
    if row.action().is_none() {
        return Some(format!("unknown action {}", row.action));
    }
    if row.outcome().is_none() {
        return Some(format!("unknown outcome {}", row.outcome));
    }
    if row.outcome == 0 && row.amount <= 0 {
        return Some(format!("applied with the amount {}", row.amount));
    }
    None
}

async fn check_operations(tx: &mut Tx) -> Result<Option<Violation>, StoreError> {
    let ragged = fetch_optional!(tx, FIND_RAGGED_OPERATION => (String,))?;
    Ok(ragged.and_then(|(key,)| violation(format!("movements op_key={key}"), "its legs are incomplete or disagree")))
}

async fn check_accounts(tx: &mut Tx) -> Result<Option<Violation>, StoreError> {
    let stray = fetch_optional!(tx, FIND_STRAY_MOVEMENT => (i64,))?;
    Ok(stray.and_then(|(id,)| {
        violation(format!("movements id={id}"), "an account of it does not exist or has another asset")
    }))
}

async fn check_owners(tx: &mut Tx) -> Result<Option<Violation>, StoreError> {
    let mut after = i64::MIN;
    loop {
        let page = fetch_all!(tx, PAGE_ACCOUNTS => (i64, i64, String, i64, i64), after)?;
        for (id, owner, kind, asset, checksum) in &page {
            if account_checksum(*owner, kind, *asset) != *checksum {
                let problem = format!("its owner ({owner}), kind ({kind}) or asset was changed after it was opened");
                return Ok(violation(format!("accounts id={id}"), problem));
            }
        }
        match page.last() {
            Some(last) => after = last.0,
            None => break,
        }
    }
    let unexplained = fetch_optional!(tx, FIND_UNEXPLAINED_STATUS => (i64, String))?;
    Ok(unexplained.and_then(|(id, status)| {
        violation(format!("accounts id={id}"), format!("no recorded change made it {status}"))
    }))
}

async fn check_holds(tx: &mut Tx) -> Result<Option<Violation>, StoreError> {
    let broken = fetch_optional!(tx, FIND_BROKEN_HOLD => (String,))?;
    Ok(broken.and_then(|(hold,)| {
        let problem = "what ends this hold is not exactly one settle or release of its account and amount";
        violation(format!("movements hold_key={hold}"), problem)
    }))
}

async fn check_balances(tx: &mut Tx) -> Result<Option<Violation>, StoreError> {
    let wrong = fetch_optional!(tx, FIND_WRONG_BALANCE => (i64, i64, i64, i64, i64, i64, i64))?;
    Ok(wrong.and_then(|(id, available, frozen, available_high, available_low, frozen_high, frozen_low)| {
        let expected_available = join_halves(available_high, available_low);
        let expected_frozen = join_halves(frozen_high, frozen_low);
        violation(
            format!("accounts id={id}"),
            format!(
                "available/frozen are {available}/{frozen}, its movements add up to \
                 {expected_available}/{expected_frozen} (ledger units)"
            ),
        )
    }))
}

async fn check_checkpoints(tx: &mut Tx) -> Result<Option<Violation>, StoreError> {
    let (through, mut written) = match latest_checkpoint(tx).await {
        Err(StoreError::Corrupt { what }) => return Ok(violation("checkpoints", what)),
        other => other?,
    };
    let highest = fetch_optional!(tx, HIGHEST_MOVEMENT => (i64,))?.map_or(0, |row| row.0);
    if through > highest {
        let row = format!("checkpoints through_movement={through}");
        return Ok(violation(row, format!("the journal ends at movement {highest}")));
    }
    let mut sums = BTreeMap::new();
    if through > 0 {
        add_movements(tx, &mut sums, 0, through).await?;
    }
    for account in sums.keys() {
        written.entry(*account).or_default();
    }
    let wrong = written.into_iter().find(|(account, balance)| sums.get(account).copied().unwrap_or(0) != *balance);
    Ok(wrong.and_then(|(account, balance)| {
        let sum = sums.get(&account).copied().unwrap_or(0);
        violation(
            format!("checkpoints through_movement={through} account_id={account}"),
            format!("it says {balance}, the movements add up to {sum} (ledger units)"),
        )
    }))
}

async fn check_conservation(tx: &mut Tx) -> Result<Option<Violation>, StoreError> {
    let totals = match totals(tx).await {
        Err(StoreError::Corrupt { what }) => return Ok(violation("movements", what)),
        other => other?,
    };
    let Some((asset, total)) = totals.iter().find(|(_, total)| total.sum() != 0) else { return Ok(None) };
    let symbol = fetch_optional!(tx, READ_SYMBOL => (String,), asset.0)?.map_or_else(String::new, |row| row.0);
    Ok(violation(
        format!("assets id={} symbol={symbol}", asset.0),
        format!("all its accounts add up to {} ledger units instead of 0", total.sum()),
    ))
}
