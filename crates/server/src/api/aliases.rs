//! `/api/v1/transfer`: the older form. The same handler, other names: `funding` and `trading`, lower-case states.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use super::Shared;
use super::answer::{PublicState, message};
use super::error::{ApiError, ErrorAnswer, ErrorBody, json};
use super::request::{AliasRequestSchema, Form};
use super::transfers::{PathId, ask, find};

#[derive(Serialize, ToSchema)]
pub struct AliasAnswer {
    #[schema(example = "sr-1734912345678901234")]
    req_id: String,
    /// committed or pending. A transfer that failed is answered with the status 422, and with the error beside these three.
    #[schema(example = "committed")]
    status: &'static str,
    message: &'static str,
}

/// Why it was refused. If a transfer was recorded, which ended without moving the money, in the words of the older form too.
#[derive(Serialize, ToSchema)]
pub struct AliasRefusal {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "sr-1734912345678901234")]
    req_id: Option<String>,
    /// failed, whether the source refused or the money is at its source again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "failed")]
    status: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'static str>,
    error: ErrorAnswer,
}

#[derive(Serialize, ToSchema)]
pub struct AliasState {
    #[schema(example = "sr-1734912345678901234")]
    req_id: String,
    /// pending, committed, failed or rolled_back.
    #[schema(example = "committed")]
    state: &'static str,
    /// Milliseconds since 1970.
    #[schema(example = 1_702_400_000_000_i64)]
    created_at: i64,
}

const fn lower(state: PublicState) -> &'static str {
    match state {
        PublicState::Pending => "pending",
        PublicState::Committed => "committed",
        PublicState::Failed => "failed",
        PublicState::RolledBack => "rolled_back",
    }
}

/// Move money between own accounts, older form
///
/// As `POST /api/v1/internal_transfer`, with `funding` and `trading` for the accounts.
#[utoipa::path(post, path = "/api/v1/transfer", tag = "older form", operation_id = "createTransferAlias",
    request_body = AliasRequestSchema,
    responses(
        (status = 200, description = "The money is at its target", body = AliasAnswer),
        (status = 202, description = "Recorded and on its way", body = AliasAnswer),
        (status = 400, description = "The request makes no sense", body = ErrorBody),
        (status = 401, description = "UNAUTHORIZED", body = ErrorBody),
        (status = 403, description = "FORBIDDEN: another user's account", body = ErrorBody),
        (status = 408, description = "REQUEST_TIMEOUT", body = ErrorBody),
        (status = 409, description = "DUPLICATE_REQUEST", body = ErrorBody),
        (status = 413, description = "PAYLOAD_TOO_LARGE", body = ErrorBody),
        (status = 415, description = "UNSUPPORTED_MEDIA_TYPE", body = ErrorBody),
        (status = 422, description = "Refused", body = AliasRefusal),
        (status = 429, description = "A limit is exceeded", body = ErrorBody),
        (status = 503, description = "SYSTEM_ERROR, SERVER_STOPPING, OUTCOME_UNKNOWN", body = ErrorBody),
    ), security(("token" = [])))]
pub async fn create(State(app): Shared, headers: HeaderMap, request: Request) -> Result<Response, ApiError> {
    let transfer = match ask(&app, &headers, request, Form::Alias).await {
        Ok(transfer) => transfer,
        Err(error) => return refused(&error, &app.docs).ok_or(error),
    };
    let state = PublicState::of(transfer.state);
    let status = if state == PublicState::Pending { StatusCode::ACCEPTED } else { StatusCode::OK };
    let answer =
        AliasAnswer { req_id: transfer.id.to_string(), status: lower(state), message: message(transfer.state) };
    Ok(json(status, &answer))
}

/// `003` §12 answers a recorded transfer that failed with `"status": "failed"`. `None`: nothing was recorded.
fn refused(error: &ApiError, docs: &str) -> Option<Response> {
    let transfer = error.transfer.as_deref()?;
    let body = AliasRefusal {
        req_id: Some(transfer.req_id.clone()),
        status: Some("failed"),
        message: Some(transfer.message),
        error: error.body(None, docs),
    };
    Some(json(error.status, &body))
}

/// One transfer, older form
#[utoipa::path(get, path = "/api/v1/transfer/{req_id}", tag = "older form", operation_id = "readTransferAlias",
    params(("req_id" = String, Path, pattern = "^sr-[1-9][0-9]{0,18}$", example = "sr-1734912345678901234")),
    responses(
        (status = 200, description = "Where it stands", body = AliasState),
        (status = 400, description = "INVALID_REQUEST: no such id can be", body = ErrorBody),
        (status = 401, description = "UNAUTHORIZED", body = ErrorBody),
        (status = 404, description = "TRANSFER_NOT_FOUND: none of this user", body = ErrorBody),
        (status = 429, description = "RATE_LIMIT_EXCEEDED", body = ErrorBody),
        (status = 503, description = "SYSTEM_ERROR", body = ErrorBody),
    ), security(("token" = [])))]
pub async fn read(State(app): Shared, headers: HeaderMap, req_id: PathId) -> Result<Response, ApiError> {
    let transfer = find(&app, &headers, req_id).await?;
    let answer = AliasState {
        req_id: transfer.id.to_string(),
        state: lower(PublicState::of(transfer.state)),
        created_at: transfer.created_at.millis(),
    };
    Ok(json(StatusCode::OK, &answer))
}
