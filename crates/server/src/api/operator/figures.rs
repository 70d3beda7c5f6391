//! How withdrawals go, in figures.

use std::collections::BTreeMap;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use domain::outbound::JobState;
use domain::withdrawal::WithdrawalState;
use serde::{Deserialize, Serialize};
use store::withdrawal::figures::{GasFigure, WithdrawalFigures};
use utoipa::{IntoParams, ToSchema};

use crate::api::Shared;
use crate::api::error::{ApiError, ErrorBody, json};

const HOUR_MICROS: i64 = 3_600_000_000;

/// What transactions of withdrawals have cost on a chain.
#[derive(Serialize, ToSchema)]
pub struct GasAnswer {
    #[schema(example = "bsc")]
    chain: String,
    /// Jobs that were confirmed.
    jobs: i64,
    /// In the chain's own coin, of all mined transactions.
    #[schema(example = "0.0123")]
    total: String,
    /// For each of those jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "0.000041")]
    per_job: Option<String>,
    #[schema(example = "BNB")]
    coin: String,
}

/// The monitoring figures. Rates are hundredths of a percent; what there was none of is left out.
#[derive(Serialize, ToSchema)]
pub struct FiguresAnswer {
    /// Of what was asked for since then, and of all that is still open.
    since: String,
    /// What waits for people now, and since when the oldest does.
    pending_approvals: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_pending_at: Option<String>,
    /// From the request to the approval, where people had to agree.
    #[serde(skip_serializing_if = "Option::is_none")]
    average_approval_ms: Option<i64>,
    /// Requests in each state.
    requests: BTreeMap<&'static str, i64>,
    /// Of those that have ended, how many were paid.
    #[serde(skip_serializing_if = "Option::is_none")]
    completion_rate_bps: Option<i64>,
    /// Jobs in each state.
    jobs: BTreeMap<&'static str, i64>,
    failed_jobs: i64,
    /// From the broadcast to the depth that counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    average_confirmation_ms: Option<i64>,
    /// Of all jobs, how many were tried more than once.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_rate_bps: Option<i64>,
    gas: Vec<GasAnswer>,
    /// Checks outside that have no answer yet, and since when the oldest waits.
    checks_waiting: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_check_at: Option<String>,
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct FiguresParameters {
    /// Of the last so many hours; a day if it is not said.
    #[param(minimum = 1, maximum = 8_760)]
    pub hours: Option<i64>,
}

/// How withdrawals go: what waits, how long people and chains take, what fails, what it costs
#[utoipa::path(get, path = "/api/v1/operator/figures", tag = "operators", operation_id = "readFigures",
    params(FiguresParameters),
    responses(
        (status = 200, description = "The figures", body = FiguresAnswer),
        (status = 400, description = "INVALID_REQUEST", body = ErrorBody),
        (status = 401, description = "UNAUTHORIZED", body = ErrorBody),
        (status = 429, description = "RATE_LIMIT_EXCEEDED", body = ErrorBody),
        (status = 503, description = "SYSTEM_ERROR", body = ErrorBody),
    ), security(("operator" = [])))]
pub async fn read(
    State(app): Shared,
    headers: HeaderMap,
    parameters: Result<Query<FiguresParameters>, QueryRejection>,
) -> Result<Response, ApiError> {
    app.admit_operator(&headers).await?;
    let Query(parameters) = parameters.map_err(|error| ApiError::invalid(error.body_text()))?;
    let hours = parameters.hours.unwrap_or(24);
    if !(1..=8_760).contains(&hours) {
        return Err(ApiError::invalid("hours must be 1 to 8760"));
    }
    let since = app.clock.now().plus_micros(-hours.saturating_mul(HOUR_MICROS));
    let figures = app.intake.coordinator().db().withdrawal_figures(since).await?;
    Ok(json(StatusCode::OK, &answer(figures, since.to_string())))
}

/// Hundredths of a percent. `None`: of nothing.
fn rate_bps(part: i64, whole: i64) -> Option<i64> {
    part.checked_mul(10_000)?.checked_div(whole)
}

fn answer(figures: WithdrawalFigures, since: String) -> FiguresAnswer {
    let of = |states: &[WithdrawalState]| -> i64 {
        states.iter().filter_map(|state| figures.requests.get(state.as_str())).sum()
    };
    let completed = of(&[WithdrawalState::Completed]);
    let ended = completed + of(&[WithdrawalState::Failed, WithdrawalState::Rejected, WithdrawalState::Cancelled]);
    let jobs: i64 = figures.jobs.values().sum();
    let millis = |micros: Option<i64>| micros.map(|micros| micros / 1_000);
    FiguresAnswer {
        since,
        pending_approvals: figures.pending_approvals,
        oldest_pending_at: figures.oldest_pending.map(|at| at.to_string()),
        average_approval_ms: millis(figures.approval.average_us()),
        completion_rate_bps: rate_bps(completed, ended),
        failed_jobs: figures.jobs.get(JobState::FailedFinal.as_str()).copied().unwrap_or(0),
        average_confirmation_ms: millis(figures.confirmation.average_us()),
        retry_rate_bps: rate_bps(figures.retried, jobs),
        gas: figures.gas.iter().map(gas).collect(),
        checks_waiting: figures.checks_waiting,
        oldest_check_at: figures.oldest_check.map(|at| at.to_string()),
        requests: figures.requests,
        jobs: figures.jobs,
    }
}

fn gas(figure: &GasFigure) -> GasAnswer {
    GasAnswer {
        chain: figure.chain.clone(),
        jobs: figure.jobs,
        total: figure.fee.in_coins(figure.decimals),
        per_job: figure.per_job().map(|fee| fee.in_coins(figure.decimals)),
        coin: figure.coin.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use store::withdrawal::figures::Took;

    use super::*;

    #[test]
    fn figures_are_shown_as_rates_averages_and_coins() {
        let gas = |chain: &str, coin: &str, decimals, jobs, fee: &str| GasFigure {
            chain: chain.to_owned(),
            coin: coin.to_owned(),
            decimals,
            jobs,
            fee: fee.parse().expect("an amount"),
        };
        let figures = WithdrawalFigures {
            pending_approvals: 1,
            approval: Took { count: 2, sum_us: 3_000_999 },
            requests: [("completed", 2), ("failed", 1), ("cancelled", 1), ("rejected", 4), ("queued", 1)].into(),
            jobs: [("confirmed", 2), ("failed_final", 1), ("failed_retryable", 1)].into(),
            confirmation: Took { count: 2, sum_us: 120_000_000 },
            retried: 3,
            gas: vec![gas("bsc", "BNB", 18, 2, "21000000000000000007"), gas("tron", "TRX", 6, 0, "1500000")],
            ..WithdrawalFigures::default()
        };
        let shown = serde_json::to_value(answer(figures, "since".to_owned())).expect("it is JSON");
        assert_eq!(
            shown,
            json!({
                "since": "since", "pending_approvals": 1, "average_approval_ms": 1_500,
                "requests": { "completed": 2, "failed": 1, "cancelled": 1, "rejected": 4, "queued": 1 },
                "completion_rate_bps": 2_500,
                "jobs": { "confirmed": 2, "failed_final": 1, "failed_retryable": 1 },
                "failed_jobs": 1, "average_confirmation_ms": 60_000, "retry_rate_bps": 7_500,
                "gas": [
                    { "chain": "bsc", "jobs": 2, "total": "21.000000000000000007", "per_job": "10.500000000000000003", "coin": "BNB" },
                    { "chain": "tron", "jobs": 0, "total": "1.5", "coin": "TRX" },
                ],
                "checks_waiting": 0,
            })
        );
        let nothing = serde_json::to_value(answer(WithdrawalFigures::default(), String::new())).expect("it is JSON");
        for rate in ["average_approval_ms", "completion_rate_bps", "average_confirmation_ms", "retry_rate_bps"] {
            assert!(nothing.get(rate).is_none(), "there was none, so there is no rate of it: {nothing}");
        }
    }
}
