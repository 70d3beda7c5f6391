//! What waits for people, and all of one withdrawal.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use domain::operator::{OperatorName, OperatorRole, are_enough};
use domain::outbound::JobState;
use domain::withdrawal::WithdrawalState;
use domain::{ChainName, Symbol, UserId};
use serde::{Deserialize, Serialize};
use store::outbound::{JobId, OpenSlot};
use store::withdrawal::waiting::{ShownWithdrawal, WaitingFilter};
use store::withdrawal::{CheckRow, CheckState, WithdrawalApproval, WithdrawalId, WithdrawalStep};
use utoipa::{IntoParams, ToSchema};

use super::{PathId, not_found, parse_id};
use crate::api::Shared;
use crate::api::error::{ApiError, ErrorBody, json};

/// What was heard of the check outside.
#[derive(Serialize, ToSchema)]
pub struct CheckAnswer {
    /// waiting, allowed, review, refused, or dropped: the withdrawal ended before anybody had answered.
    #[schema(example = "waiting")]
    state: &'static str,
    /// How often it was asked.
    tries: i64,
    /// When it is asked next, while it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_try_at: Option<String>,
    /// Why it has no answer yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answered_at: Option<String>,
}

/// The job that pays a withdrawal.
#[derive(Serialize, ToSchema)]
pub struct PayingJobAnswer {
    #[schema(example = "job-1734912345678901235")]
    job_id: String,
    #[schema(example = "broadcasted")]
    state: &'static str,
    /// Why it is as it is, in one sentence.
    reason: String,
}

/// A withdrawal as operators see it.
#[derive(Serialize, ToSchema)]
pub struct QueuedAnswer {
    #[schema(example = "wr-1734912345678901234")]
    withdrawal_id: String,
    #[schema(example = "7")]
    user_id: String,
    #[schema(example = "bsc")]
    chain: String,
    #[schema(example = "USDT")]
    asset: String,
    /// What the destination gets.
    #[schema(example = "2500.00")]
    amount: String,
    #[schema(example = "1.00")]
    fee: String,
    to: String,
    #[schema(example = "pending")]
    state: &'static str,
    /// What it waits for, in words. Empty if it has ended.
    #[schema(example = "1 of 2 people have agreed")]
    waits_for: String,
    /// The rule of the policy that decided, and its version.
    #[schema(example = "two_people")]
    rule: String,
    policy_version: i64,
    /// How many people have to agree, and how many have.
    people: u32,
    agreed: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<CheckAnswer>,
    /// Who sees to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    assigned_to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<PayingJobAnswer>,
    /// After this time nobody agrees to it any more, and it fails.
    expires_at: String,
    #[schema(example = "2026-11-15T14:00:00.000000Z")]
    created_at: String,
    /// Since when it is in this state.
    since: String,
}

#[derive(Serialize, ToSchema)]
pub struct QueueAnswer {
    /// The oldest first.
    withdrawals: Vec<QueuedAnswer>,
    /// There may be more: ask again with this cursor. Absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// A signature.
#[derive(Serialize, ToSchema)]
pub struct KeptApproval {
    #[schema(example = "ann")]
    person: String,
    #[schema(example = "ann-laptop")]
    key: String,
    digest: String,
    at: String,
    /// It was made since the withdrawal waits, or for the last time that it did, and neither key nor person was switched off since.
    counts: bool,
}

/// A step of its history: who, when and why.
#[derive(Serialize, ToSchema)]
pub struct QueuedStep {
    state: &'static str,
    actor: String,
    reason: String,
    at: String,
}

/// A transaction that was signed for it.
#[derive(Serialize, ToSchema)]
pub struct SignedTransactionAnswer {
    /// pay, or cancel.
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    nonce: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    transaction: Option<String>,
    /// The block that has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    height: Option<u64>,
}

/// All that there is of one.
#[derive(Serialize, ToSchema)]
pub struct WholeWithdrawal {
    #[serde(flatten)]
    withdrawal: QueuedAnswer,
    /// What it was judged on.
    #[schema(value_type = Object)]
    inputs: serde_json::Value,
    /// What its customer says of where it goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    travel_rule: Option<serde_json::Value>,
    approvals: Vec<KeptApproval>,
    /// Oldest first.
    history: Vec<QueuedStep>,
    transactions: Vec<SignedTransactionAnswer>,
}

/// What to list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct QueueParameters {
    /// Where the page before ended: its `next_cursor`.
    #[param(pattern = "^wr-[1-9][0-9]{0,18}$", example = "wr-1734912345678901234")]
    pub cursor: Option<String>,
    /// How many at most; 50 if it is not said.
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u16>,
    /// pending, manual_review, approved, queued, completed, failed, rejected or cancelled; left out: what waits for people.
    #[param(pattern = "^[a-z_]{1,16}$", example = "pending")]
    pub state: Option<String>,
    #[param(pattern = "^[a-z0-9-]{1,16}$", example = "bsc")]
    pub chain: Option<String>,
    #[param(pattern = "^[A-Z0-9]{1,16}$", example = "USDT")]
    pub asset: Option<String>,
    /// Of one customer.
    #[param(pattern = "^[1-9][0-9]{0,18}$", example = "7")]
    pub user_id: Option<String>,
    /// That this operator sees to.
    #[param(pattern = "^[a-z][a-z0-9._-]{0,63}$", example = "ann")]
    pub assigned_to: Option<String>,
}

impl QueueParameters {
    fn filter(&self) -> Result<WaitingFilter, ApiError> {
        let state = self.state.as_deref().map(|state| {
            WithdrawalState::parse(state).ok_or_else(|| {
                let known: Vec<&str> = WithdrawalState::ALL.iter().map(|state| state.as_str()).collect();
                ApiError::invalid(format!("state must be one of {}", known.join(", ")))
            })
        });
        let invalid = |error: &dyn std::fmt::Display| ApiError::invalid(error.to_string());
        let chain = self.chain.as_deref().map(str::parse::<ChainName>).transpose();
        let asset = self.asset.as_deref().map(str::parse::<Symbol>).transpose();
        let assigned = self.assigned_to.as_deref().map(str::parse::<OperatorName>).transpose();
        let user = self.user_id.as_deref().map(|text| {
            let number = text.parse().ok().filter(|number: &i64| number.to_string() == text).and_then(UserId::new);
            number.ok_or_else(|| ApiError::invalid("user_id is a positive number"))
        });
        Ok(WaitingFilter {
            states: state.transpose()?.into_iter().collect(),
            chain: chain.map_err(|error| invalid(&error))?.map_or_else(String::new, |chain| chain.to_string()),
            asset: asset.map_err(|error| invalid(&error))?.map_or_else(String::new, |asset| asset.to_string()),
            user: user.transpose()?,
            assigned: assigned.map_err(|error| invalid(&error))?,
        })
    }
}

/// What waits for people, and why
#[utoipa::path(get, path = "/api/v1/operator/withdrawals", tag = "operators", operation_id = "listQueue",
    params(QueueParameters),
    responses(
        (status = 200, description = "A page of them, the oldest first", body = QueueAnswer),
        (status = 400, description = "INVALID_REQUEST", body = ErrorBody),
        (status = 401, description = "UNAUTHORIZED", body = ErrorBody),
        (status = 429, description = "RATE_LIMIT_EXCEEDED", body = ErrorBody),
        (status = 503, description = "SYSTEM_ERROR", body = ErrorBody),
    ), security(("operator" = [])))]
pub async fn list(
    State(app): Shared,
    headers: HeaderMap,
    parameters: Result<Query<QueueParameters>, QueryRejection>,
) -> Result<Response, ApiError> {
    app.admit_operator(&headers).await?;
    let Query(parameters) = parameters.map_err(|error| ApiError::invalid(error.body_text()))?;
    let limit = parameters.limit.unwrap_or(50);
    if !(1..=200).contains(&limit) {
        return Err(ApiError::invalid("limit must be 1 to 200"));
    }
    let after = parameters.cursor.as_deref().map(str::parse::<WithdrawalId>).transpose();
    let after = after.map_err(|error| ApiError::invalid(format!("cursor: {error}")))?;
    let filter = parameters.filter()?;
    let db = app.intake.coordinator().db();
    let found = db.withdrawals_waiting(&filter, after, i64::from(limit)).await?;
    let ids: Vec<WithdrawalId> = found.iter().map(|one| one.row.id).collect();
    let approvals = if ids.is_empty() { Vec::new() } else { db.withdrawal_approvals(&ids).await? };
    let next_cursor = found.last().filter(|_| found.len() == usize::from(limit)).map(|last| last.row.id.to_string());
    let withdrawals = found.iter().map(|one| answer(one, &approvals)).collect();
    Ok(json(StatusCode::OK, &QueueAnswer { withdrawals, next_cursor }))
}

/// One withdrawal with all that belongs to it
#[utoipa::path(get, path = "/api/v1/operator/withdrawals/{withdrawal_id}", tag = "operators", operation_id = "readQueued",
    params(("withdrawal_id" = String, Path, pattern = "^wr-[1-9][0-9]{0,18}$", example = "wr-1734912345678901234")),
    responses(
        (status = 200, description = "Its verdict, approvals, check, job and history", body = WholeWithdrawal),
        (status = 400, description = "INVALID_REQUEST: no such id can be", body = ErrorBody),
        (status = 401, description = "UNAUTHORIZED", body = ErrorBody),
        (status = 404, description = "WITHDRAWAL_NOT_FOUND", body = ErrorBody),
        (status = 429, description = "RATE_LIMIT_EXCEEDED", body = ErrorBody),
        (status = 503, description = "SYSTEM_ERROR", body = ErrorBody),
    ), security(("operator" = [])))]
pub async fn read(State(app): Shared, headers: HeaderMap, withdrawal_id: PathId) -> Result<Response, ApiError> {
    app.admit_operator(&headers).await?;
    let id = parse_id(withdrawal_id)?;
    let db = app.intake.coordinator().db();
    let shown = db.withdrawal_shown(id).await?.ok_or_else(not_found)?;
    let approvals = db.withdrawal_approvals(&[id]).await?;
    let history = db.withdrawal_history(id).await?;
    let travel_rule = db.travel_rule(id).await?;
    let slots = match &shown.job {
        Some((job, ..)) => slots_of(db, *job).await?,
        None => Vec::new(),
    };
    let whole = WholeWithdrawal {
        withdrawal: answer(&shown, &approvals),
        inputs: serde_json::from_str(&shown.row.inputs).unwrap_or_default(),
        travel_rule: travel_rule.and_then(|text| serde_json::from_str(&text).ok()),
        approvals: approvals.into_iter().map(kept).collect(),
        history: history.into_iter().map(step).collect(),
        transactions: slots.iter().flat_map(transactions).collect(),
    };
    Ok(json(StatusCode::OK, &whole))
}

async fn slots_of(db: &store::Db, job: JobId) -> Result<Vec<OpenSlot>, ApiError> {
    Ok(db.job(job).await?.map(|(_, slots, _)| slots).unwrap_or_default())
}

fn transactions(slot: &OpenSlot) -> Vec<SignedTransactionAnswer> {
    let nonce = slot.nonce;
    let one = |attempt: &store::outbound::AttemptRow| SignedTransactionAnswer {
        kind: match attempt.kind {
            store::outbound::AttemptKind::Pay => "pay",
            store::outbound::AttemptKind::Cancel(_) => "cancel",
        },
        nonce,
        transaction: attempt.signed.as_ref().map(|(_, hash)| hash.to_string()),
        height: attempt.mined.as_ref().map(|mined| mined.height),
    };
    slot.attempts.iter().map(one).collect()
}

fn kept(approval: WithdrawalApproval) -> KeptApproval {
    KeptApproval {
        person: approval.person,
        key: approval.key,
        digest: signer::digest::hex(&approval.digest),
        at: approval.at.to_string(),
        counts: approval.counts,
    }
}

fn step(step: WithdrawalStep) -> QueuedStep {
    QueuedStep { state: step.state.as_str(), actor: step.actor, reason: step.reason, at: step.at.to_string() }
}

fn answer(shown: &ShownWithdrawal, approvals: &[WithdrawalApproval]) -> QueuedAnswer {
    let row = &shown.row;
    // As the transaction counts them that approves.
    let of_it = approvals.iter().filter(|one| one.withdrawal == row.id && one.counts);
    let people: std::collections::BTreeMap<&str, OperatorRole> =
        of_it.filter_map(|one| Some((one.person.as_str(), one.role.filter(|role| role.signs())?))).collect();
    let agreed = u32::try_from(people.len()).unwrap_or(u32::MAX);
    let enough = are_enough(&people.into_values().collect::<Vec<_>>(), row.people);
    QueuedAnswer {
        withdrawal_id: row.id.to_string(),
        user_id: row.user.get().to_string(),
        chain: shown.chain.clone(),
        asset: shown.asset.clone(),
        amount: row.amount.display(shown.precision).to_string(),
        fee: row.fee.display(shown.precision).to_string(),
        to: row.to.clone(),
        state: row.state.as_str(),
        waits_for: waits_for(shown, agreed, enough),
        rule: row.rule.clone(),
        policy_version: row.policy_version,
        people: row.people,
        agreed,
        check: shown.check.as_ref().map(check),
        assigned_to: shown.assigned.as_ref().map(|assigned| assigned.to.to_string()),
        job: shown.job.as_ref().map(|(id, state, reason)| PayingJobAnswer {
            job_id: id.to_string(),
            state: state.as_str(),
            reason: reason.clone(),
        }),
        expires_at: row.expires.to_string(),
        created_at: row.created.to_string(),
        since: row.updated.to_string(),
    }
}

fn check(row: &CheckRow) -> CheckAnswer {
    CheckAnswer {
        state: row.state.as_str(),
        tries: row.tries,
        next_try_at: (row.state == CheckState::Waiting).then(|| row.due.to_string()),
        trouble: row.trouble.clone(),
        reason: row.reason.clone(),
        answered_at: row.answered.map(|at| at.to_string()),
    }
}

/// What keeps it from going on, in words.
fn waits_for(shown: &ShownWithdrawal, agreed: u32, enough: bool) -> String {
    let row = &shown.row;
    let people = || {
        let wanted = row.people.max(1);
        // Administrators alone are never enough.
        let missing = if agreed >= wanted && !enough { ", and an approver is missing" } else { "" };
        format!("{agreed} of {wanted} people have agreed{missing}")
    };
    let unchecked = shown.check.as_ref().is_some_and(|check| !check.state.lets_pass());
    match row.state {
        WithdrawalState::Pending | WithdrawalState::ManualReview if unchecked => {
            let trouble = shown.check.as_ref().and_then(|check| check.trouble.as_deref());
            trouble.map_or_else(
                || "the check outside has not answered yet".to_owned(),
                |trouble| format!("the check outside has not answered yet: {trouble}"),
            )
        }
        WithdrawalState::Pending => people(),
        WithdrawalState::ManualReview => format!("somebody has to look at it; {}", people()),
        WithdrawalState::Approved => "a worker makes its job".to_owned(),
        WithdrawalState::Queued => shown.job.as_ref().map_or_else(String::new, |(id, state, reason)| match state {
            JobState::Confirmed | JobState::FailedFinal => format!("{id} has ended; a worker settles it"),
            JobState::Queued
            | JobState::Picked
            | JobState::BuildingTx
            | JobState::Signing
            | JobState::Broadcasting
            | JobState::Broadcasted
            | JobState::Confirming
            | JobState::FailedRetryable => format!("{id} is {state}: {reason}", state = state.as_str()),
        }),
        WithdrawalState::Completed
        | WithdrawalState::Failed
        | WithdrawalState::Rejected
        | WithdrawalState::Cancelled => String::new(),
    }
}
