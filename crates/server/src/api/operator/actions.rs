//! What operators do to a withdrawal, other than to agree to it.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use custody::withdrawal::operate;
use domain::operator::{OperatorAction, OperatorName};
use serde::{Deserialize, Serialize};
use store::operator::Door;
use store::withdrawal::{OperatorDeed, OperatorReply, OperatorWish};
use utoipa::ToSchema;

use super::{PathId, RequestName, forbidden, not_found, of_store, parse_id};
use crate::api::error::{ApiError, ErrorBody, json};
use crate::api::{App, REQUEST_BYTES, Shared, read_json};

/// Why.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReasonBody {
    /// For the history, and for the customer's support.
    #[schema(min_length = 1, max_length = 200, example = "the name at the destination is another")]
    reason: String,
}

/// Who sees to it.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AssignBody {
    /// An operator's name; left out: nobody in particular.
    #[schema(example = "ann")]
    to: Option<String>,
    #[serde(default)]
    #[schema(max_length = 200)]
    reason: String,
}

/// What became of it.
#[derive(Serialize, ToSchema)]
pub struct OperatorAnswer {
    #[schema(example = "wr-1734912345678901234")]
    withdrawal_id: String,
    /// The withdrawal's state now.
    #[schema(example = "rejected")]
    state: &'static str,
    /// The same was said before.
    again: bool,
}

/// Refuse a withdrawal: its customer has amount and fee back at once
#[utoipa::path(post, path = "/api/v1/operator/withdrawals/{withdrawal_id}/reject", tag = "operators", operation_id = "rejectWithdrawal",
    params(("withdrawal_id" = String, Path, pattern = "^wr-[1-9][0-9]{0,18}$", example = "wr-1734912345678901234")),
    request_body = ReasonBody,
    responses(
        (status = 200, description = "It is rejected", body = OperatorAnswer),
        (status = 400, description = "INVALID_REQUEST", body = ErrorBody),
        (status = 401, description = "UNAUTHORIZED", body = ErrorBody),
        (status = 403, description = "OPERATOR_FORBIDDEN", body = ErrorBody),
        (status = 404, description = "WITHDRAWAL_NOT_FOUND", body = ErrorBody),
        (status = 408, description = "REQUEST_TIMEOUT", body = ErrorBody),
        (status = 409, description = "WITHDRAWAL_NOT_NOW: it is being paid, or has ended", body = ErrorBody),
        (status = 413, description = "PAYLOAD_TOO_LARGE", body = ErrorBody),
        (status = 415, description = "UNSUPPORTED_MEDIA_TYPE", body = ErrorBody),
        (status = 429, description = "RATE_LIMIT_EXCEEDED", body = ErrorBody),
        (status = 503, description = "SYSTEM_ERROR, OUTCOME_UNKNOWN", body = ErrorBody),
    ), security(("operator" = [])))]
pub async fn reject(
    State(app): Shared,
    Extension(id): Extension<RequestName>,
    headers: HeaderMap,
    withdrawal_id: PathId,
    request: Request,
) -> Result<Response, ApiError> {
    with_reason(app, id, headers, withdrawal_id, request, OperatorAction::Reject, OperatorWish::Reject).await
}

/// Say that people have to look at a withdrawal before anybody agrees to it
#[utoipa::path(post, path = "/api/v1/operator/withdrawals/{withdrawal_id}/review", tag = "operators", operation_id = "reviewWithdrawal",
    params(("withdrawal_id" = String, Path, pattern = "^wr-[1-9][0-9]{0,18}$", example = "wr-1734912345678901234")),
    request_body = ReasonBody,
    responses(
        (status = 200, description = "It waits for people", body = OperatorAnswer),
        (status = 400, description = "INVALID_REQUEST", body = ErrorBody),
        (status = 401, description = "UNAUTHORIZED", body = ErrorBody),
        (status = 403, description = "OPERATOR_FORBIDDEN", body = ErrorBody),
        (status = 404, description = "WITHDRAWAL_NOT_FOUND", body = ErrorBody),
        (status = 408, description = "REQUEST_TIMEOUT", body = ErrorBody),
        (status = 409, description = "WITHDRAWAL_NOT_NOW: it is being paid, or has ended", body = ErrorBody),
        (status = 413, description = "PAYLOAD_TOO_LARGE", body = ErrorBody),
        (status = 415, description = "UNSUPPORTED_MEDIA_TYPE", body = ErrorBody),
        (status = 429, description = "RATE_LIMIT_EXCEEDED", body = ErrorBody),
        (status = 503, description = "SYSTEM_ERROR, OUTCOME_UNKNOWN", body = ErrorBody),
    ), security(("operator" = [])))]
pub async fn review(
    State(app): Shared,
    Extension(id): Extension<RequestName>,
    headers: HeaderMap,
    withdrawal_id: PathId,
    request: Request,
) -> Result<Response, ApiError> {
    with_reason(app, id, headers, withdrawal_id, request, OperatorAction::Review, OperatorWish::Review).await
}

/// Let what rests be tried now, if that is provably safe; else the answer says why it is not
#[utoipa::path(post, path = "/api/v1/operator/withdrawals/{withdrawal_id}/retry", tag = "operators", operation_id = "retryWithdrawal",
    params(("withdrawal_id" = String, Path, pattern = "^wr-[1-9][0-9]{0,18}$", example = "wr-1734912345678901234")),
    request_body = ReasonBody,
    responses(
        (status = 200, description = "It is tried now", body = OperatorAnswer),
        (status = 400, description = "INVALID_REQUEST", body = ErrorBody),
        (status = 401, description = "UNAUTHORIZED", body = ErrorBody),
        (status = 403, description = "OPERATOR_FORBIDDEN", body = ErrorBody),
        (status = 404, description = "WITHDRAWAL_NOT_FOUND", body = ErrorBody),
        (status = 408, description = "REQUEST_TIMEOUT", body = ErrorBody),
        (status = 409, description = "RETRY_NOT_SAFE, with the reason", body = ErrorBody),
        (status = 413, description = "PAYLOAD_TOO_LARGE", body = ErrorBody),
        (status = 415, description = "UNSUPPORTED_MEDIA_TYPE", body = ErrorBody),
        (status = 429, description = "RATE_LIMIT_EXCEEDED", body = ErrorBody),
        (status = 503, description = "SYSTEM_ERROR, OUTCOME_UNKNOWN", body = ErrorBody),
    ), security(("operator" = [])))]
pub async fn retry(
    State(app): Shared,
    Extension(id): Extension<RequestName>,
    headers: HeaderMap,
    withdrawal_id: PathId,
    request: Request,
) -> Result<Response, ApiError> {
    with_reason(app, id, headers, withdrawal_id, request, OperatorAction::Retry, OperatorWish::Retry).await
}

/// Say who sees to a withdrawal
#[utoipa::path(post, path = "/api/v1/operator/withdrawals/{withdrawal_id}/assign", tag = "operators", operation_id = "assignWithdrawal",
    params(("withdrawal_id" = String, Path, pattern = "^wr-[1-9][0-9]{0,18}$", example = "wr-1734912345678901234")),
    request_body = AssignBody,
    responses(
        (status = 200, description = "That person sees to it", body = OperatorAnswer),
        (status = 400, description = "INVALID_REQUEST", body = ErrorBody),
        (status = 401, description = "UNAUTHORIZED", body = ErrorBody),
        (status = 403, description = "OPERATOR_FORBIDDEN", body = ErrorBody),
        (status = 404, description = "WITHDRAWAL_NOT_FOUND; OPERATOR_NOT_FOUND: nobody by that name is an operator now", body = ErrorBody),
        (status = 408, description = "REQUEST_TIMEOUT", body = ErrorBody),
        (status = 413, description = "PAYLOAD_TOO_LARGE", body = ErrorBody),
        (status = 415, description = "UNSUPPORTED_MEDIA_TYPE", body = ErrorBody),
        (status = 429, description = "RATE_LIMIT_EXCEEDED", body = ErrorBody),
        (status = 503, description = "SYSTEM_ERROR, OUTCOME_UNKNOWN", body = ErrorBody),
    ), security(("operator" = [])))]
pub async fn assign(
    State(app): Shared,
    Extension(request_id): Extension<RequestName>,
    headers: HeaderMap,
    withdrawal_id: PathId,
    request: Request,
) -> Result<Response, ApiError> {
    let id = parse_id(withdrawal_id)?;
    let operator = app.admit_action(&headers, OperatorAction::Assign, id, &request_id).await?;
    let body: AssignBody = body(&app, request).await?;
    let reason = checked_reason(&body.reason, true)?;
    let to = body.to.as_deref().map(str::parse::<OperatorName>).transpose();
    let to = to.map_err(|error| ApiError::invalid(format!("to: {error}")))?;
    let wish = OperatorWish::Assign(to);
    let deed = OperatorDeed {
        operator: operator.name,
        door: Door::Http,
        request_id: request_id.0,
        withdrawal: id,
        wish,
        reason,
    };
    done(&app, &deed).await
}

async fn with_reason(
    app: Arc<App>,
    request_id: RequestName,
    headers: HeaderMap,
    withdrawal_id: PathId,
    request: Request,
    action: OperatorAction,
    wish: OperatorWish,
) -> Result<Response, ApiError> {
    let id = parse_id(withdrawal_id)?;
    let operator = app.admit_action(&headers, action, id, &request_id).await?;
    let body: ReasonBody = body(&app, request).await?;
    let reason = checked_reason(&body.reason, false)?;
    let deed = OperatorDeed {
        operator: operator.name,
        door: Door::Http,
        request_id: request_id.0,
        withdrawal: id,
        wish,
        reason,
    };
    done(&app, &deed).await
}

pub(super) async fn body<T: serde::de::DeserializeOwned>(app: &App, request: Request) -> Result<T, ApiError> {
    let bytes = read_json(request, REQUEST_BYTES, app.body_time).await?;
    serde_json::from_slice(&bytes).map_err(|error| ApiError::invalid(format!("the body: {error}")))
}

fn checked_reason(text: &str, may_be_empty: bool) -> Result<String, ApiError> {
    let text = text.trim();
    let good = (may_be_empty || !text.is_empty()) && text.len() <= 200 && !text.chars().any(char::is_control);
    if good { Ok(text.to_owned()) } else { Err(ApiError::invalid("reason: 1 to 200 bytes without control characters")) }
}

async fn done(app: &App, deed: &OperatorDeed) -> Result<Response, ApiError> {
    let db = app.intake.coordinator().db();
    let reply = operate::operate(db, app.remembers(), deed, app.clock.now()).await.map_err(of_store)?;
    let conflict = |code: &'static str, message: String| Err(ApiError::new(StatusCode::CONFLICT, code, message));
    let (row, again) = match reply {
        OperatorReply::Done(row) => (row, false),
        OperatorReply::Before(row) => (row, true),
        OperatorReply::NoSuchWithdrawal => return Err(not_found()),
        // Switched off, or given another role, while the request was on its way.
        OperatorReply::NoSuchOperator => return Err(forbidden("you are no operator any more")),
        OperatorReply::Forbidden => return Err(forbidden("your role does not allow this any more")),
        OperatorReply::NotNow(state) => {
            return conflict("WITHDRAWAL_NOT_NOW", format!("the withdrawal is {state}, in which that cannot be said"));
        }
        OperatorReply::NotSafe(why) => return conflict("RETRY_NOT_SAFE", why),
        OperatorReply::NoSuchAssignee => {
            let message = "nobody by that name is an operator now";
            return Err(ApiError::new(StatusCode::NOT_FOUND, "OPERATOR_NOT_FOUND", message));
        }
        OperatorReply::SignerNotAsked => {
            let mut error = ApiError::system()
                .because("SIGNER_UNAVAILABLE", "a refusal gives money back, and the signer was not asked");
            error.message =
                "the signer cannot be asked now whether this was paid; nothing was done: try again".to_owned();
            return Err(error);
        }
        OperatorReply::SignerKnowsMore => {
            let why = "the signer has signed it in a time that the database does not know: two people must judge it";
            return conflict("WITHDRAWAL_NOT_NOW", why.to_owned());
        }
    };
    let answer = OperatorAnswer { withdrawal_id: row.id.to_string(), state: row.state.as_str(), again };
    Ok(json(StatusCode::OK, &answer))
}
