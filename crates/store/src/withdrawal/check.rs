//! The check of a withdrawal that somebody outside makes (fraud, sanctions, travel rule): who has to be asked, what is to be asked, and what came of it.
//!
//! A check waits until it is answered. Its row is written with the withdrawal's, and nobody agrees to the withdrawal before it has an answer; a
//! trigger of the database says the same. A no is final: the customer has the money back in the commit that writes it down.

use std::collections::{BTreeSet, HashMap};

use domain::withdrawal::{WithdrawalEvent, WithdrawalState};
use domain::{Amount, Precision, Timestamp};

use super::MOST;
use super::advance::{Change, advance};
use super::create::NewWithdrawal;
use super::decide::{Decision, DecisionReply, Said, WithdrawalDecision, decide};
use super::facts::listing_numbers;
use super::signed::SignedRounds;
use super::types::{Columns, WithdrawalId, WithdrawalRow, lock, malformed, numbers, withdrawal_rows};
use crate::db::{Db, Tx};
use crate::entry::ListingId;
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Int, ColumnType::Text, RowsSql, Writes, execute_rows};
use crate::transact;

/// What a customer says of where the money goes, as JSON: one object, in its one short form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TravelRule(String);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a travel rule is a JSON object of at most {most} bytes", most = TravelRule::MOST_BYTES)]
pub struct BadTravelRule;

impl TravelRule {
    pub const MOST_BYTES: usize = 16_384;

    pub fn new(document: &serde_json::Value) -> Result<Self, BadTravelRule> {
        let text = document.to_string();
        if document.is_object() && text.len() <= Self::MOST_BYTES { Ok(Self(text)) } else { Err(BadTravelRule) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Where a check stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CheckState {
    Waiting,
    Allowed,
    /// People have to look at it first.
    Review,
    Refused,
    /// The withdrawal ended before anybody had answered.
    Dropped,
}

impl CheckState {
    pub const ALL: [Self; 5] = [Self::Waiting, Self::Allowed, Self::Review, Self::Refused, Self::Dropped];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Allowed => "allowed",
            Self::Review => "review",
            Self::Refused => "refused",
            Self::Dropped => "dropped",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// Whether people and policy may agree.
    pub const fn lets_pass(self) -> bool {
        match self {
            Self::Allowed | Self::Review => true,
            Self::Waiting | Self::Refused | Self::Dropped => false,
        }
    }
}

/// The check of one withdrawal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckRow {
    pub withdrawal: WithdrawalId,
    pub state: CheckState,
    pub tries: i64,
    pub due: Timestamp,
    /// Why it has no answer yet.
    pub trouble: Option<String>,
    pub reason: Option<String>,
    pub answered: Option<Timestamp>,
}

/// What is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueCheck {
    pub row: WithdrawalRow,
    pub asset: String,
    pub precision: Precision,
    pub chain: String,
    pub network: String,
    pub travel_rule: Option<String>,
    /// This one included.
    pub tries: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckVerdict {
    Allow,
    Review,
    Refuse,
}

/// What was heard of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckHeard {
    Answer {
        verdict: CheckVerdict,
        reason: String,
        /// Of what was asked about, as the answer names it.
        digest: String,
    },
    /// No answer, or none that can be believed: it is asked again.
    Nothing { trouble: String, again: Timestamp },
}

/// What became of checks that were heard of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChecksKept {
    pub allowed: usize,
    pub review: usize,
    /// Their customers get the money back next.
    pub refused: usize,
    pub waiting: usize,
    /// Somebody else had heard of them before, or the withdrawal had ended.
    pub late: usize,
}

statements! {
    READ_CHECK_RULES = "SELECT r.listing_id, r.from_amount FROM withdrawal_check_rules r WHERE r.listing_id {in $1} AND r.from_amount IS NOT NULL
        AND r.version = (SELECT MAX(n.version) FROM withdrawal_check_rules n WHERE n.listing_id = r.listing_id)";
    READ_CHECKS = "SELECT withdrawal_id, state, tries, due_at, trouble, reason, answered_at FROM withdrawal_checks WHERE withdrawal_id {in $1}";
    LOCK_CHECKS = "SELECT withdrawal_id, state FROM withdrawal_checks WHERE withdrawal_id {in $1} ORDER BY withdrawal_id {FOR UPDATE}";
    READ_TRAVEL_RULES = "SELECT withdrawal_id, document FROM withdrawal_travel_rules WHERE withdrawal_id {in $1}";
    /// Written down before anybody is asked. Until it is due again nobody else asks.
    CLAIM_CHECKS = "UPDATE withdrawal_checks SET tries = tries + 1, due_at = $2, updated_at = $1
        WHERE state = 'waiting' AND withdrawal_id IN (SELECT c.withdrawal_id FROM withdrawal_checks c
            WHERE c.state = 'waiting' AND c.due_at <= $1 ORDER BY c.due_at, c.withdrawal_id LIMIT $3 {FOR UPDATE SKIP LOCKED})
        RETURNING withdrawal_id, tries";
    /// Their customers have not got their money back yet: the signer could not be asked.
    READ_REFUSED = "SELECT w.id FROM withdrawal_checks c JOIN withdrawal_requests w ON w.id = c.withdrawal_id
        WHERE c.state = 'refused' AND w.status IN ('pending', 'manual_review', 'approved') AND w.id > $1 ORDER BY w.id LIMIT $2";
    READ_REFUSALS = "SELECT withdrawal_id, reason FROM withdrawal_checks WHERE withdrawal_id {in $1} AND state = 'refused'";
    DROP_CHECKS = "UPDATE withdrawal_checks SET state = 'dropped', updated_at = $2 WHERE withdrawal_id {in $1} AND state = 'waiting'";
    ASK_CHECK_NOW = "UPDATE withdrawal_checks SET due_at = $2, updated_at = $2 WHERE withdrawal_id = $1 AND state = 'waiting'";
    READ_CHECK_NAMES = "SELECT w.id, a.symbol, a.precision, c.name, c.network FROM withdrawal_requests w JOIN assets a ON a.id = w.asset_id
        JOIN chains c ON c.id = w.chain_id WHERE w.id {in $1}";
    COUNT_CHECKS = "SELECT COUNT(*), MIN(created_at) FROM withdrawal_checks WHERE state = 'waiting'";
    /// For the audit: what was approved or paid although its check does not say so.
    FIND_UNCHECKED = "SELECT w.id, w.status, c.state FROM withdrawal_checks c JOIN withdrawal_requests w ON w.id = c.withdrawal_id
        WHERE w.status IN ('approved', 'queued', 'completed') AND w.judged IS NULL AND c.state NOT IN ('allowed', 'review') ORDER BY w.id LIMIT 1";
}

static INSERT_CHECKS: RowsSql = RowsSql::new(
    "INSERT_WITHDRAWAL_CHECKS",
    "INSERT INTO withdrawal_checks (withdrawal_id, state, tries, due_at, created_at, updated_at)
     SELECT r.id, 'waiting', 0, r.at, r.at, r.at FROM {rows}",
    &[("id", Int), ("at", Int)],
);

static INSERT_TRAVEL_RULES: RowsSql = RowsSql::new(
    "INSERT_TRAVEL_RULES",
    "INSERT INTO withdrawal_travel_rules (withdrawal_id, document, at) SELECT r.id, r.document, r.at FROM {rows}",
    &[("id", Int), ("document", Text), ("at", Int)],
);

static KEEP_ANSWERS: RowsSql = RowsSql::new(
    "KEEP_CHECK_ANSWERS",
    "UPDATE withdrawal_checks SET state = r.state, trouble = r.trouble, reason = r.reason, digest = r.digest, answered_at = r.answered_at,
         due_at = r.due_at, updated_at = r.at
     FROM {rows} WHERE withdrawal_checks.withdrawal_id = r.id AND COALESCE(withdrawal_checks.state, '') = 'waiting'",
    &[
        ("id", Int),
        ("state", Text),
        ("trouble", Text),
        ("reason", Text),
        ("digest", Text),
        ("answered_at", Int),
        ("due_at", Int),
        ("at", Int),
    ],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 3] = [&INSERT_CHECKS, &INSERT_TRAVEL_RULES, &KEEP_ANSWERS];

/// From which amount on each of these is checked, as far as it is.
pub(crate) async fn rules(
    tx: &mut Tx,
    listings: impl Iterator<Item = ListingId>,
) -> Result<HashMap<ListingId, Amount>, StoreError> {
    let rows = fetch_all!(tx, READ_CHECK_RULES => (i64, i64), listing_numbers(listings))?;
    Ok(rows.into_iter().map(|(listing, from)| (ListingId(listing), Amount::from_units(from))).collect())
}

/// What customers have said of those that were made before.
pub(crate) async fn travel_rules(
    tx: &mut Tx,
    ids: impl Iterator<Item = WithdrawalId>,
) -> Result<HashMap<i64, String>, StoreError> {
    let ids = numbers(ids);
    if ids.0.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = fetch_all!(tx, READ_TRAVEL_RULES => (i64, String), ids.clone())?;
    Ok(rows.into_iter().collect())
}

/// The checks of these new withdrawals, and what their customers say.
pub(crate) fn add(writes: &mut Writes, checked: &[WithdrawalId], said: &[(WithdrawalId, String)], at: Timestamp) {
    let columns = vec![
        Column::Ints(checked.iter().map(|id| id.number()).collect()),
        Column::Ints(vec![at.micros(); checked.len()]),
    ];
    writes.add(&INSERT_CHECKS, columns, "checks of withdrawals");
    let columns = vec![
        Column::Ints(said.iter().map(|(id, _)| id.number()).collect()),
        Column::Strings(said.iter().map(|(_, document)| document.clone()).collect()),
        Column::Ints(vec![at.micros(); said.len()]),
    ];
    writes.add(&INSERT_TRAVEL_RULES, columns, "travel rules");
}

/// Whether two requests say the same of where the money goes.
pub(crate) fn says_the_same(before: Option<&String>, new: &NewWithdrawal) -> bool {
    before.map(String::as_str) == new.travel_rule.as_ref().map(TravelRule::as_str)
}

/// Those of these whose check has not let them pass.
pub(crate) async fn held_up(tx: &mut Tx, ids: impl Iterator<Item = WithdrawalId>) -> Result<BTreeSet<i64>, StoreError> {
    let ids = numbers(ids);
    if ids.0.is_empty() {
        return Ok(BTreeSet::new());
    }
    let rows = fetch_all!(tx, LOCK_CHECKS => (i64, String), ids.clone())?;
    let mut held = BTreeSet::new();
    for (id, state) in rows {
        if !CheckState::parse(&state).ok_or_else(|| malformed("check"))?.lets_pass() {
            held.insert(id);
        }
    }
    Ok(held)
}

/// Lets a check be made at once. False: it has an answer, or there is none.
pub(crate) async fn ask_now(tx: &mut Tx, id: WithdrawalId, at: Timestamp) -> Result<bool, StoreError> {
    Ok(execute!(tx, ASK_CHECK_NOW, id.number(), at.micros())? == 1)
}

pub(crate) async fn read_checks(
    tx: &mut Tx,
    ids: impl Iterator<Item = WithdrawalId>,
) -> Result<HashMap<i64, CheckRow>, StoreError> {
    type Row = (i64, String, i64, i64, Option<String>, Option<String>, Option<i64>);
    let ids = numbers(ids);
    let rows = fetch_all!(tx, READ_CHECKS => Row, ids.clone())?;
    let check = |(id, state, tries, due, trouble, reason, answered): Row| {
        let row = CheckRow {
            withdrawal: super::types::withdrawal_id(id)?,
            state: CheckState::parse(&state).ok_or_else(|| malformed("check"))?,
            tries,
            due: Timestamp::from_micros(due),
            trouble,
            reason,
            answered: answered.map(Timestamp::from_micros),
        };
        Ok((id, row))
    };
    rows.into_iter().map(check).collect()
}

impl Db {
    /// Takes up to so many checks that are due, for so long: whoever dies with them is followed by another after that. What has ended meanwhile is dropped.
    pub async fn claim_checks(&self, most: i64, until: Timestamp, at: Timestamp) -> Result<Vec<DueCheck>, StoreError> {
        transact!(self, tx => claim(tx, most, until, at).await)
    }

    /// Writes down what was heard, with what follows from it.
    pub async fn keep_check_answers(
        &self,
        heard: &[(WithdrawalId, CheckHeard)],
        at: Timestamp,
    ) -> Result<ChecksKept, StoreError> {
        if heard.is_empty() {
            return Ok(ChecksKept::default());
        }
        if heard.len() > MOST {
            return Err(StoreError::BatchTooLarge { count: heard.len(), most: MOST });
        }
        transact!(self, tx => keep(tx, heard, at).await)
    }

    pub async fn withdrawal_check(&self, id: WithdrawalId) -> Result<Option<CheckRow>, StoreError> {
        let found = read_checks(&mut self.read().await?, std::iter::once(id)).await?;
        Ok(found.into_values().next())
    }

    pub async fn travel_rule(&self, id: WithdrawalId) -> Result<Option<String>, StoreError> {
        let found = travel_rules(&mut self.read().await?, std::iter::once(id)).await?;
        Ok(found.into_values().next())
    }

    /// Refused ones that are still held, behind this one.
    pub async fn checks_refused(
        &self,
        after: Option<WithdrawalId>,
        most: i64,
    ) -> Result<Vec<WithdrawalId>, StoreError> {
        let after = after.map_or(0, WithdrawalId::number);
        let rows = fetch_all!(&mut self.read().await?, READ_REFUSED => (i64,), after, most)?;
        rows.into_iter().map(|(id,)| super::types::withdrawal_id(id)).collect()
    }

    /// Gives back what was refused, as far as the signer has signed nothing of it that is not known here. Says of how many.
    pub async fn reject_refused(
        &self,
        ids: &[WithdrawalId],
        signed: &SignedRounds,
        at: Timestamp,
    ) -> Result<usize, StoreError> {
        transact!(self, tx => reject(tx, ids, signed, at).await)
    }

    /// How many checks have no answer yet, and since when the oldest of them waits.
    pub async fn checks_waiting(&self) -> Result<(i64, Option<Timestamp>), StoreError> {
        let row = fetch_optional!(&mut self.read().await?, COUNT_CHECKS => (i64, Option<i64>))?;
        let (count, oldest) = row.unwrap_or_default();
        Ok((count, oldest.map(Timestamp::from_micros)))
    }
}

async fn claim(tx: &mut Tx, most: i64, until: Timestamp, at: Timestamp) -> Result<Vec<DueCheck>, StoreError> {
    let claimed = fetch_all!(tx, CLAIM_CHECKS => (i64, i64), at.micros(), until.micros(), most)?;
    if claimed.is_empty() {
        return Ok(Vec::new());
    }
    let tries: HashMap<i64, i64> = claimed.into_iter().collect();
    let ids = crate::dialect::Many(tries.keys().copied().collect::<Vec<i64>>());
    let rows = withdrawal_rows(fetch_all!(tx, super::types::READ_WITHDRAWALS => Columns, ids.clone())?)?;
    let (wanted, ended): (Vec<WithdrawalRow>, Vec<WithdrawalRow>) =
        rows.into_iter().partition(|row| !row.state.is_released());
    if !ended.is_empty() {
        execute!(tx, DROP_CHECKS, numbers(ended.iter().map(|row| row.id)), at.micros())?;
    }
    type Names = (i64, String, i64, String, String);
    let names = fetch_all!(tx, READ_CHECK_NAMES => Names, numbers(wanted.iter().map(|row| row.id)))?;
    let mut names: HashMap<i64, Names> = names.into_iter().map(|names| (names.0, names)).collect();
    let mut said = travel_rules(tx, wanted.iter().map(|row| row.id)).await?;
    let due = |row: WithdrawalRow| {
        let id = row.id.number();
        let (_, asset, precision, chain, network) = names.remove(&id).ok_or_else(|| malformed("coin"))?;
        let precision = u8::try_from(precision).ok().and_then(Precision::new).ok_or_else(|| malformed("precision"))?;
        let tries = tries.get(&id).copied().ok_or_else(|| malformed("check"))?;
        Ok(DueCheck { row, asset, precision, chain, network, travel_rule: said.remove(&id), tries })
    };
    wanted.into_iter().map(due).collect()
}

async fn keep(tx: &mut Tx, heard: &[(WithdrawalId, CheckHeard)], at: Timestamp) -> Result<ChecksKept, StoreError> {
    // The withdrawals first, as everybody locks them.
    let rows = lock(tx, heard.iter().map(|(id, _)| *id)).await?;
    let mut rows: HashMap<WithdrawalId, WithdrawalRow> = rows.into_iter().map(|row| (row.id, row)).collect();
    let states = fetch_all!(tx, LOCK_CHECKS => (i64, String), numbers(heard.iter().map(|(id, _)| *id)))?;
    let waiting: BTreeSet<i64> =
        states.into_iter().filter(|(_, state)| state == CheckState::Waiting.as_str()).map(|(id, _)| id).collect();
    let mut kept = ChecksKept::default();
    let mut answers = Vec::new();
    let mut changes = Vec::new();
    for (id, heard) in heard {
        // Each is taken out, so that of two answers to one check in a batch the first is heard.
        let row = rows.remove(id).filter(|row| waiting.contains(&id.number()) && !row.state.is_released());
        let Some(row) = row else {
            kept.late += 1;
            continue;
        };
        match heard {
            CheckHeard::Nothing { .. } => kept.waiting += 1,
            CheckHeard::Answer { verdict, reason, .. } => {
                match verdict {
                    CheckVerdict::Allow => kept.allowed += 1,
                    CheckVerdict::Review => kept.review += 1,
                    CheckVerdict::Refuse => kept.refused += 1,
                }
                // A no gives money back, and that needs the signer's word: it is the next step.
                changes.extend(follows(row, *verdict, reason));
            }
        }
        answers.push((*id, heard));
    }
    write_answers(tx, &answers, at).await?;
    advance(tx, changes, at).await?;
    Ok(kept)
}

/// What an answer does to a withdrawal that waits.
fn follows(row: WithdrawalRow, verdict: CheckVerdict, reason: &str) -> Option<Change> {
    let (event, actor, words) = match (verdict, row.state) {
        // Nobody has to agree: what the policy said at first is done now.
        (CheckVerdict::Allow, WithdrawalState::Pending) if row.people == 0 => {
            let words = format!("{}; the check allows it", row.rule);
            (WithdrawalEvent::Approved, format!("policy {}", row.policy_version), words)
        }
        (CheckVerdict::Review, WithdrawalState::Pending) => {
            (WithdrawalEvent::Doubted, CHECK.to_owned(), reason.to_owned())
        }
        (CheckVerdict::Allow | CheckVerdict::Review | CheckVerdict::Refuse, _) => return None,
    };
    Some(Change::new(row, event, &actor, words))
}

async fn reject(tx: &mut Tx, ids: &[WithdrawalId], signed: &SignedRounds, at: Timestamp) -> Result<usize, StoreError> {
    let refusals = fetch_all!(tx, READ_REFUSALS => (i64, String), numbers(ids.iter().copied()))?;
    let mut said = Vec::with_capacity(refusals.len());
    for (id, reason) in refusals {
        let id = super::types::withdrawal_id(id)?;
        let decision = WithdrawalDecision { id, decision: Decision::Refuse, actor: CHECK.to_owned(), reason };
        said.push(Said::of_decision(&decision));
    }
    let replies = decide(tx, &said, signed, at).await?;
    Ok(replies.iter().filter(|reply| matches!(reply, DecisionReply::Done(_))).count())
}

/// What the check calls itself in the history.
const CHECK: &str = "check";

async fn write_answers(tx: &mut Tx, answers: &[(WithdrawalId, &CheckHeard)], at: Timestamp) -> Result<(), StoreError> {
    if answers.is_empty() {
        return Ok(());
    }
    let state = |heard: &CheckHeard| match heard {
        CheckHeard::Nothing { .. } => CheckState::Waiting,
        CheckHeard::Answer { verdict: CheckVerdict::Allow, .. } => CheckState::Allowed,
        CheckHeard::Answer { verdict: CheckVerdict::Review, .. } => CheckState::Review,
        CheckHeard::Answer { verdict: CheckVerdict::Refuse, .. } => CheckState::Refused,
    };
    let trouble = |heard: &CheckHeard| match heard {
        CheckHeard::Nothing { trouble, .. } => Some(trouble.clone()),
        CheckHeard::Answer { .. } => None,
    };
    let answer = |heard: &CheckHeard| match heard {
        CheckHeard::Nothing { .. } => (None, None),
        CheckHeard::Answer { reason, digest, .. } => (Some(reason.clone()), Some(digest.clone())),
    };
    let due = |heard: &CheckHeard| match heard {
        CheckHeard::Nothing { again, .. } => again.micros(),
        CheckHeard::Answer { .. } => at.micros(),
    };
    let columns = vec![
        Column::Ints(answers.iter().map(|(id, _)| id.number()).collect()),
        Column::Texts(answers.iter().map(|(_, heard)| state(heard).as_str()).collect()),
        Column::OptionalStrings(answers.iter().map(|(_, heard)| trouble(heard)).collect()),
        Column::OptionalStrings(answers.iter().map(|(_, heard)| answer(heard).0).collect()),
        Column::OptionalStrings(answers.iter().map(|(_, heard)| answer(heard).1).collect()),
        Column::OptionalInts(
            answers.iter().map(|(_, heard)| (state(heard) != CheckState::Waiting).then_some(at.micros())).collect(),
        ),
        Column::Ints(answers.iter().map(|(_, heard)| due(heard)).collect()),
        Column::Ints(vec![at.micros(); answers.len()]),
    ];
    let written = execute_rows(tx, &KEEP_ANSWERS, columns).await?;
    crate::rows::expect_rows(written, answers.len(), "answers to checks")
}
