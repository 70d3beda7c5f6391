//! What a client is told when its request is not done: a code, words, the request's id and a page to read.

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use domain::transfer::Rejection;
use serde::Serialize;
use store::error::Causes;
use transfer::{CoordinatorError, IntakeError};
use utoipa::ToSchema;

use super::answer::TransferAnswer;

/// Why a request was not done.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ErrorAnswer {
    /// Names the reason, for programs. It never changes.
    #[schema(example = "INSUFFICIENT_BALANCE")]
    pub code: String,
    /// The same for people.
    pub message: String,
    /// Quote it when you ask for help. Also in the header X-Request-Id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Where the code is explained.
    #[schema(example = "docs/errors/INSUFFICIENT_BALANCE.md")]
    pub docs: String,
    /// The transfer that was recorded and ended without moving the money. Absent when nothing was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer: Option<Box<TransferAnswer>>,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ErrorBody {
    pub error: ErrorAnswer,
}

/// An error on its way to the client.
#[derive(Clone, Debug)]
pub struct ApiError {
    pub status: StatusCode,
    pub code: &'static str,
    pub message: String,
    pub retry_after_s: Option<i64>,
    pub transfer: Option<Box<TransferAnswer>>,
    pub cause: Option<Cause>,
}

/// What failed on our side: for the log, never for the client.
#[derive(Clone, Debug)]
pub struct Cause {
    pub code: &'static str,
    pub words: String,
    /// This very request met it. Else it was refused because the process knew of it already.
    pub met: bool,
}

impl ApiError {
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), retry_after_s: None, transfer: None, cause: None }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "INVALID_REQUEST", message)
    }

    pub fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "TRANSFER_NOT_FOUND", "there is no such transfer of this user")
    }

    /// A part of Bursar failed and nothing was done. The log says which part; the client is not told.
    pub fn system() -> Self {
        let message = "something failed on our side and this request did nothing; try again";
        let mut error = Self::new(StatusCode::SERVICE_UNAVAILABLE, "SYSTEM_ERROR", message);
        error.retry_after_s = Some(1);
        error
    }

    /// It may have been recorded.
    pub fn unknown() -> Self {
        let message = "it is not known whether the request was recorded: list your transfers, or send the same \
                       client_order_id again";
        let mut error = Self::new(StatusCode::SERVICE_UNAVAILABLE, "OUTCOME_UNKNOWN", message);
        error.retry_after_s = Some(1);
        error
    }

    pub fn because(mut self, code: &'static str, words: impl Into<String>) -> Self {
        self.cause = Some(Cause { code, words: words.into(), met: true });
        self
    }

    pub fn body(&self, request_id: Option<&str>, docs: &str) -> ErrorAnswer {
        ErrorAnswer {
            code: self.code.to_owned(),
            message: self.message.clone(),
            request_id: request_id.map(ToOwned::to_owned),
            docs: format!("{docs}docs/errors/{}.md", self.code),
            transfer: self.transfer.clone(),
        }
    }

    /// With the request's id, as the middleware knows it.
    pub fn respond(&self, request_id: &str, docs: &str) -> Response {
        let body = ErrorBody { error: self.body(Some(request_id), docs) };
        let mut response = json(self.status, &body);
        let headers = response.headers_mut();
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.retry_after_s
            && let Ok(value) = HeaderValue::from_str(&seconds.to_string())
        {
            headers.insert(RETRY_AFTER, value);
        }
        response
    }
}

pub fn json(status: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(bytes) => (status, [(CONTENT_TYPE, HeaderValue::from_static("application/json"))], bytes).into_response(),
        Err(error) => {
            tracing::error!(%error, "an answer could not be written as JSON");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Which status goes with which rejection.
pub const fn status_of(rejection: Rejection) -> StatusCode {
    match rejection {
        Rejection::Unauthorized => StatusCode::UNAUTHORIZED,
        Rejection::Forbidden => StatusCode::FORBIDDEN,
        Rejection::InvalidAccountType
        | Rejection::UnsupportedAccountType
        | Rejection::SameAccount
        | Rejection::InvalidAsset
        | Rejection::InvalidAmount
        | Rejection::PrecisionOverflow
        | Rejection::Overflow
        | Rejection::AmountTooSmall
        | Rejection::AmountTooLarge => StatusCode::BAD_REQUEST,
        Rejection::AssetSuspended
        | Rejection::TransferNotAllowed
        | Rejection::SourceAccountNotFound
        | Rejection::TargetAccountNotFound
        | Rejection::AccountFrozen
        | Rejection::AccountDisabled
        | Rejection::InsufficientBalance => StatusCode::UNPROCESSABLE_ENTITY,
        Rejection::TransferStopped => StatusCode::SERVICE_UNAVAILABLE,
        Rejection::DuplicateRequest => StatusCode::CONFLICT,
        Rejection::RateLimitExceeded | Rejection::DailyLimitExceeded | Rejection::DailyAmountExceeded => {
            StatusCode::TOO_MANY_REQUESTS
        }
    }
}

impl From<Rejection> for ApiError {
    fn from(rejection: Rejection) -> Self {
        Self::new(status_of(rejection), rejection.code(), rejection.to_string())
    }
}

impl From<IntakeError> for ApiError {
    fn from(error: IntakeError) -> Self {
        match error {
            IntakeError::Stopping => {
                let message = "the server is stopping and takes nothing more; nothing was done";
                let mut error = Self::new(StatusCode::SERVICE_UNAVAILABLE, "SERVER_STOPPING", message);
                error.retry_after_s = Some(1);
                error
            }
            IntakeError::UserBusy => {
                let mut error = Self::from(Rejection::RateLimitExceeded);
                error.retry_after_s = Some(1);
                error
            }
            IntakeError::Full => {
                tracing::error!(%error, "a request was not taken");
                Self::system()
            }
            IntakeError::Late => Self::unknown(),
            IntakeError::Coordinator(error) => match &*error {
                CoordinatorError::NoLease(error) => Self::system().because("SYSTEM_ERROR", error.to_string()),
                // A state that lasts has a line in the log about each change of it, not one for each request.
                CoordinatorError::NotReady { part, trouble } => {
                    let mut error = Self::system();
                    let words = format!("{part}: {}", trouble.words);
                    error.cause = Some(Cause { code: trouble.code, words, met: false });
                    error
                }
                CoordinatorError::Store(error) => error.into(),
                CoordinatorError::Unknown { source, .. } => {
                    Self::unknown().because(source.code(), Causes(source).to_string())
                }
            },
        }
    }
}

impl From<&store::StoreError> for ApiError {
    fn from(error: &store::StoreError) -> Self {
        Self::system().because(error.code(), Causes(error).to_string())
    }
}

impl From<store::StoreError> for ApiError {
    fn from(error: store::StoreError) -> Self {
        Self::from(&error)
    }
}
