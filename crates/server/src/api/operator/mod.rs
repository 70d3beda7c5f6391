//! The operators' routes: what waits, what people say of it, how it goes, and who did what.
//!
//! | module | serves |
//! |---|---|
//! | [`queue`] | `GET /api/v1/operator/withdrawals…`: what waits for people, and all of one |
//! | [`sign`] | `…/intent` and `…/approve`: what is to be signed, in words, and the signature |
//! | [`actions`] | `…/reject`, `…/review`, `…/assign`, `…/retry` |
//! | [`figures`] | `GET /api/v1/operator/figures` |
//! | [`log`] | `GET /api/v1/operator/log` |
//!
//! **A customer's token opens none of them, and an operator's token opens nothing else.** Who an operator is and what that person may do is read in the
//! database for each request, and once more in the transaction that acts.

pub mod actions;
pub mod figures;
pub mod log;
pub mod queue;
pub mod sign;

use std::sync::Arc;

use axum::Router;
use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::routing::{get, post};
use domain::operator::{OperatorAction, OperatorName};
use domain::transfer::Rejection;
use signer::names::SignerName;
use store::operator::{Door, NewLogLine, OperatorRow};
use store::withdrawal::WithdrawalId;

use super::App;
use super::error::ApiError;
use crate::auth::Verifier;
use crate::limit::PerSecond;

/// How operators get in.
pub struct OperatorAccess {
    pub verifier: Verifier,
    /// What people sign names the signer that it is for.
    pub signer: SignerName,
    /// Of each operator. Whatever is refused has a line in the log, so nobody may be refused at will.
    pub per_second: PerSecond,
}

/// The id that the middleware gave a request.
#[derive(Clone, Debug)]
pub struct RequestName(pub String);

pub(super) fn routes(router: Router<Arc<App>>) -> Router<Arc<App>> {
    router
        .route("/api/v1/operator/withdrawals", get(queue::list))
        .route("/api/v1/operator/withdrawals/{withdrawal_id}", get(queue::read))
        .route("/api/v1/operator/withdrawals/{withdrawal_id}/intent", get(sign::intent))
        .route("/api/v1/operator/withdrawals/{withdrawal_id}/approve", post(sign::approve))
        .route("/api/v1/operator/withdrawals/{withdrawal_id}/reject", post(actions::reject))
        .route("/api/v1/operator/withdrawals/{withdrawal_id}/review", post(actions::review))
        .route("/api/v1/operator/withdrawals/{withdrawal_id}/assign", post(actions::assign))
        .route("/api/v1/operator/withdrawals/{withdrawal_id}/retry", post(actions::retry))
        .route("/api/v1/operator/figures", get(figures::read))
        .route("/api/v1/operator/log", get(log::list))
}

impl App {
    /// The operator whose token the request carries, as the database has that person now.
    async fn admit_operator(&self, headers: &HeaderMap) -> Result<OperatorRow, ApiError> {
        let refuse = |reason: &str| {
            let mut error = ApiError::from(Rejection::Unauthorized);
            error.message = format!("{}: {reason}", error.message);
            error
        };
        let access = self.operators.as_ref().ok_or_else(|| refuse("this server has no key for operators' tokens"))?;
        let mut tokens = headers.get_all(AUTHORIZATION).iter();
        let (token, second) = (tokens.next(), tokens.next());
        if second.is_some() {
            return Err(refuse("there are two of them"));
        }
        let name: OperatorName = access
            .verifier
            .verify_operator(token.map(HeaderValue::as_bytes), self.clock.now())
            .map_err(|error| refuse(&error.to_string()))?;
        let found = self.intake.coordinator().db().operator(&name).await?;
        let found = found.filter(|operator| operator.active);
        let operator = found.ok_or_else(|| refuse("nobody by that name is an operator now"))?;
        access.per_second.allow_number(operator.id, 1, self.clock.now()).map_err(|wait| {
            let mut error = ApiError::from(Rejection::RateLimitExceeded);
            error.message = format!("{} (the limit is {} in a second)", error.message, access.per_second.limit());
            error.retry_after_s = Some(wait.seconds());
            error
        })?;
        Ok(operator)
    }

    /// The same of somebody who wants to do something. A refusal of what the person may not do is written down.
    async fn admit_action(
        &self,
        headers: &HeaderMap,
        action: OperatorAction,
        withdrawal: WithdrawalId,
        request: &RequestName,
    ) -> Result<OperatorRow, ApiError> {
        let operator = self.admit_operator(headers).await?;
        if operator.role.may(action) {
            return Ok(operator);
        }
        let line = NewLogLine {
            operator: operator.name.to_string(),
            door: Door::Http,
            action: action.as_str().to_owned(),
            subject: withdrawal.to_string(),
            reason: String::new(),
            request_id: request.0.clone(),
            outcome: "OPERATOR_FORBIDDEN".to_owned(),
        };
        self.intake.coordinator().db().log_operator(&line, self.clock.now()).await?;
        Err(forbidden(&format!("a {} may not {action} withdrawals", operator.role)))
    }
}

fn forbidden(message: &str) -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, "OPERATOR_FORBIDDEN", message)
}

fn not_found() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "WITHDRAWAL_NOT_FOUND", "there is no such withdrawal")
}

type PathId = Result<Path<String>, PathRejection>;

fn parse_id(id: PathId) -> Result<WithdrawalId, ApiError> {
    let Path(text) = id.map_err(|error| ApiError::invalid(error.body_text()))?;
    text.parse().map_err(|error: domain::id::BadId| ApiError::invalid(format!("the withdrawal's id: {error}")))
}

/// A commit without an answer may have been done; everything here may be sent again.
fn of_store(error: store::StoreError) -> ApiError {
    match &error {
        store::StoreError::CommitUnknown(_) => {
            let mut unknown = ApiError::unknown();
            "it is not known whether this was done: read the withdrawal, or send the same again"
                .clone_into(&mut unknown.message);
            unknown.because(error.code(), store::error::Causes(&error).to_string())
        }
        _ => error.into(),
    }
}
