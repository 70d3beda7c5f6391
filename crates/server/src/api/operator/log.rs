//! Who did what, and what was refused.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use store::operator::{LogFilter, LogLine};
use utoipa::{IntoParams, ToSchema};

use crate::api::Shared;
use crate::api::error::{ApiError, ErrorBody, json};

/// One action.
#[derive(Serialize, ToSchema)]
pub struct LogLineAnswer {
    #[schema(example = "4711")]
    line_id: String,
    #[schema(example = "ann")]
    operator: String,
    /// http, or command_line.
    #[schema(example = "http")]
    door: &'static str,
    #[schema(example = "approve")]
    action: String,
    #[schema(example = "wr-1734912345678901234")]
    subject: String,
    reason: String,
    request_id: String,
    /// done, or the code of why not.
    #[schema(example = "done")]
    outcome: String,
    at: String,
}

#[derive(Serialize, ToSchema)]
pub struct LogAnswer {
    /// Newest first.
    lines: Vec<LogLineAnswer>,
    /// There may be more: ask again with this cursor. Absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LogParameters {
    /// Where the page before ended: its `next_cursor`.
    #[param(pattern = "^[1-9][0-9]{0,18}$", example = "4711")]
    pub cursor: Option<String>,
    /// How many at most; 50 if it is not said.
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u16>,
    #[param(max_length = 64, example = "ann")]
    pub operator: Option<String>,
    #[param(max_length = 64, example = "wr-1734912345678901234")]
    pub subject: Option<String>,
    /// assign, review, retry, reject or approve; and at the command line also judge, cancel, bump, resume or collect.
    #[param(max_length = 32, example = "approve")]
    pub action: Option<String>,
}

/// Who did what, and what was refused
#[utoipa::path(get, path = "/api/v1/operator/log", tag = "operators", operation_id = "listOperatorLog",
    params(LogParameters),
    responses(
        (status = 200, description = "A page of it, newest first", body = LogAnswer),
        (status = 400, description = "INVALID_REQUEST", body = ErrorBody),
        (status = 401, description = "UNAUTHORIZED", body = ErrorBody),
        (status = 429, description = "RATE_LIMIT_EXCEEDED", body = ErrorBody),
        (status = 503, description = "SYSTEM_ERROR", body = ErrorBody),
    ), security(("operator" = [])))]
pub async fn list(
    State(app): Shared,
    headers: HeaderMap,
    parameters: Result<Query<LogParameters>, QueryRejection>,
) -> Result<Response, ApiError> {
    app.admit_operator(&headers).await?;
    let Query(parameters) = parameters.map_err(|error| ApiError::invalid(error.body_text()))?;
    let limit = parameters.limit.unwrap_or(50);
    if !(1..=200).contains(&limit) {
        return Err(ApiError::invalid("limit must be 1 to 200"));
    }
    let before = match parameters.cursor.as_deref() {
        None => i64::MAX,
        Some(text) => text
            .parse::<i64>()
            .ok()
            .filter(|number| *number > 0 && number.to_string() == text)
            .ok_or_else(|| ApiError::invalid("cursor is the next_cursor of a page"))?,
    };
    let filter = LogFilter {
        operator: text(parameters.operator, 64)?,
        subject: text(parameters.subject, 64)?,
        action: text(parameters.action, 32)?,
    };
    let found = app.intake.coordinator().db().operator_log(&filter, before, i64::from(limit)).await?;
    let next_cursor = found.last().filter(|_| found.len() == usize::from(limit)).map(|last| last.id.to_string());
    Ok(json(StatusCode::OK, &LogAnswer { lines: found.into_iter().map(answer).collect(), next_cursor }))
}

/// What is looked for.
fn text(text: Option<String>, most: usize) -> Result<String, ApiError> {
    let text = text.unwrap_or_default();
    // PostgreSQL has no zero bytes in its texts.
    if text.len() <= most && !text.contains('\0') {
        Ok(text)
    } else {
        Err(ApiError::invalid("a filter is too long, or no text"))
    }
}

fn answer(line: LogLine) -> LogLineAnswer {
    let LogLine { id, line, at } = line;
    LogLineAnswer {
        line_id: id.to_string(),
        operator: line.operator,
        door: line.door.as_str(),
        action: line.action,
        subject: line.subject,
        reason: line.reason,
        request_id: line.request_id,
        outcome: line.outcome,
        at: at.to_string(),
    }
}
