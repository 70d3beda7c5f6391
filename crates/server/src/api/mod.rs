//! The HTTP interface: one file per noun, and the description that is generated from them.
//!
//! | module | serves |
//! |---|---|
//! | [`transfers`] | `/api/v1/internal_transfer…` |
//! | [`aliases`] | `/api/v1/transfer…`, the older form of the same |
//! | [`assets`] | `/api/v1/assets` |
//! | [`balances`] | `/api/v1/balances` |
//! | [`deposit_addresses`] | `/api/v1/deposit_address` |
//! | [`deposits`] | `/api/v1/deposits…` |
//! | [`withdrawals`] | `/api/v1/withdrawals…` |
//! | [`withdrawal_terms`] | `/api/v1/withdrawals/quote` and `/api/v1/withdrawals/limits` |
//! | [`address_book`] | `/api/v1/address_book…` |
//! | [`operator`] | `/api/v1/operator/…`, for operators' tokens alone |
//! | [`health`] | `/health/…` |
//! | [`metrics`] | `/metrics` |
//! | [`openapi`] | `/openapi.json` and a page to browse it |
//!
//! Every request gets an id. The token is checked before the body is read.

pub mod address_book;
pub mod aliases;
pub mod answer;
pub mod assets;
pub mod balances;
pub mod deposit_addresses;
pub mod deposits;
pub mod error;
pub mod health;
pub mod metrics;
pub mod openapi;
pub mod operator;
pub mod request;
pub mod transfers;
pub mod withdrawal_answer;
pub mod withdrawal_request;
pub mod withdrawal_terms;
pub mod withdrawals;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use custody::bitcoin::Upkeep;
use custody::signer::SignerWatch;
use custody::treasury::TreasuryWatch;
use custody::wallet::{Pinned, WalletRows};
use custody::withdrawal::Remembers;
use domain::transfer::Rejection;
use domain::{Clock, Timestamp, UserId};
use http_body_util::{BodyExt, Limited};
use tracing::Instrument;
use transfer::metrics::Histogram;
use transfer::supervisor::caught;
use transfer::{Assets, Intake};

use crate::auth::Verifier;
use crate::coins::Coins;
use crate::limit::PerSecond;
use crate::listen::Connections;
use crate::withdrawal_intake::WithdrawalIntake;
use error::ApiError;
use operator::{OperatorAccess, RequestName};

/// The longest body of a single request: 16 KiB.
const REQUEST_BYTES: usize = 16 << 10;
/// The longest body of a batch: 1 MiB, which is room for a thousand requests of a kilobyte.
const BATCH_BYTES: usize = 1 << 20;
/// How long a body may take to arrive, unless the server is told otherwise.
pub const BODY_TIME: Duration = Duration::from_secs(10);

/// What the handlers share.
pub struct App {
    pub intake: Intake,
    /// Withdrawals that wait to be taken.
    pub withdrawals: WithdrawalIntake,
    pub assets: Arc<Assets>,
    /// What can be withdrawn where.
    pub coins: Arc<Coins>,
    pub verifier: Verifier,
    /// `None`: no operator gets in.
    pub operators: Option<OperatorAccess>,
    pub per_second: PerSecond,
    pub clock: Arc<dyn Clock>,
    /// Put before `docs/errors/…` in answers; empty, or an address that ends with a slash.
    pub docs: String,
    pub stopping: AtomicBool,
    pub requests: Requests,
    pub connections: Arc<Connections>,
    /// Of the Bitcoin wallets, if there are any.
    pub wallets: Arc<Upkeep>,
    /// Of wallet groups, operation wallets and users' wallets: which rows are not as the treasury file's keys say.
    pub wallet_rows: Arc<WalletRows>,
    /// What the last day has cost, and how long gas will do.
    pub treasury: Arc<TreasuryWatch>,
    /// The signer that the configuration names.
    pub signer: Option<Arc<SignerWatch>>,
    /// Who remembers what was signed: what gives money back asks first.
    pub remembers: Option<Arc<dyn Remembers>>,
    /// The wallet groups and operation wallets of the treasury file: what every address follows from.
    pub pinned: Arc<Pinned>,
    /// How long a body may take to arrive.
    pub body_time: Duration,
}

/// What the public listener shows beside the interface itself.
#[derive(Clone, Copy, Debug)]
pub struct Pages {
    /// `/docs` and `/openapi.json`.
    pub docs: bool,
    /// `/metrics` and the operators' routes, if operators have no listener of their own.
    pub metrics: bool,
}

/// Numbers requests, and counts their answers by the first digit of the status.
pub struct Requests {
    run: u64,
    next: AtomicU64,
    pub by_class: [AtomicU64; 6],
    pub latency: Histogram,
    /// Requests that failed on our side, by the code of the cause.
    unserved: Mutex<BTreeMap<&'static str, u64>>,
}

impl Requests {
    /// `run` tells the ids of one run of the server from those of another.
    pub fn new(run: u64) -> Self {
        Self {
            run,
            next: AtomicU64::new(1),
            by_class: Default::default(),
            latency: Histogram::default(),
            unserved: Mutex::default(),
        }
    }

    fn count_unserved(&self, code: &'static str) {
        *self.unserved.lock().unwrap_or_else(PoisonError::into_inner).entry(code).or_default() += 1;
    }

    pub fn unserved(&self) -> BTreeMap<&'static str, u64> {
        self.unserved.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn id(&self) -> String {
        format!("req-{:x}-{}", self.run, self.next.fetch_add(1, Ordering::Relaxed))
    }

    fn count(&self, status: StatusCode, begun: Timestamp, ended: Timestamp) {
        let class = usize::from(status.as_u16() / 100).min(5);
        self.by_class[class].fetch_add(1, Ordering::Relaxed);
        self.latency.observe(begun, ended);
    }
}

pub type Shared = State<Arc<App>>;

/// The public listener. Load balancers ask it whether it is ready.
pub fn router(app: Arc<App>, pages: Pages) -> Router {
    let mut router = Router::new()
        .route("/api/v1/internal_transfer", post(transfers::create).get(transfers::list))
        .route("/api/v1/internal_transfer/batch", post(transfers::create_batch))
        .route("/api/v1/internal_transfer/{req_id}", get(transfers::read))
        .route("/api/v1/transfer", post(aliases::create))
        .route("/api/v1/transfer/{req_id}", get(aliases::read))
        .route("/api/v1/assets", get(assets::read))
        .route("/api/v1/balances", get(balances::read))
        .route("/api/v1/deposit_address", post(deposit_addresses::give).get(deposit_addresses::list))
        .route("/api/v1/deposits", get(deposits::list))
        .route("/api/v1/deposits/inside", get(deposits::received_inside))
        .route("/api/v1/deposits/{deposit_id}", get(deposits::read))
        .route("/api/v1/withdrawals", post(withdrawals::create).get(withdrawals::list))
        .route("/api/v1/withdrawals/batch", post(withdrawals::create_batch))
        .route("/api/v1/withdrawals/quote", get(withdrawal_terms::quote))
        .route("/api/v1/withdrawals/limits", get(withdrawal_terms::limits))
        .route("/api/v1/withdrawals/{withdrawal_id}", get(withdrawals::read))
        .route("/api/v1/withdrawals/{withdrawal_id}/cancel", post(withdrawals::cancel))
        .route("/api/v1/address_book", post(address_book::add).get(address_book::list))
        .route("/api/v1/address_book/{entry_id}", delete(address_book::remove))
        .route("/health/live", get(health::live))
        .route("/health/ready", get(health::ready));
    if pages.metrics {
        router = operator::routes(router.route("/metrics", get(metrics::metrics)));
    }
    if pages.docs {
        router = router.route("/openapi.json", get(openapi::document)).route("/docs", get(openapi::page));
    }
    finished(router, app)
}

/// The listener of the operators, which answers also when the public one is full.
pub fn operations_router(app: Arc<App>) -> Router {
    let router = Router::new()
        .route("/health/live", get(health::live))
        .route("/health/ready", get(health::ready))
        .route("/metrics", get(metrics::metrics));
    finished(operator::routes(router), app)
}

fn finished(router: Router<Arc<App>>, app: Arc<App>) -> Router {
    router
        .fallback(unknown_path)
        .method_not_allowed_fallback(unknown_method)
        .layer(middleware::from_fn_with_state(Arc::clone(&app), number))
        .with_state(app)
}

static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// An error travels as an extension of an empty response to the middleware, which knows the request's id and writes the
/// body.
#[derive(Clone)]
struct Failed(ApiError);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.status;
        response.extensions_mut().insert(Failed(self));
        response
    }
}

/// Gives the request an id (the client's own, if it is fit), which every event about it carries, and the answer its error
/// body and headers.
async fn number(State(app): Shared, request: Request, next: Next) -> Response {
    let begun = app.clock.now();
    let own = request.headers().get(&REQUEST_ID).and_then(|value| value.to_str().ok());
    let fit = |id: &&str| (1..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic());
    let id = own.filter(fit).map_or_else(|| app.requests.id(), ToOwned::to_owned);
    // At the highest level, so that it is there at every level.
    let span = tracing::error_span!("request", request = id);
    answer(app, begun, id, request, next).instrument(span).await
}

async fn answer(app: Arc<App>, begun: Timestamp, id: String, mut request: Request, next: Next) -> Response {
    request.extensions_mut().insert(RequestName(id.clone()));
    let reads = request.method().is_safe();
    let mut response = caught(next.run(request)).await.unwrap_or_else(|words| {
        // What a handler did before its panic is not known; a handler that only reads did nothing.
        let error = if reads { ApiError::system() } else { ApiError::unknown() };
        error.because("TASK_PANICKED", words).into_response()
    });
    if let Some(Failed(error)) = response.extensions_mut().remove::<Failed>() {
        let allow = response.headers_mut().remove(axum::http::header::ALLOW);
        if error.status.is_server_error() {
            app.note_unserved(&error);
        }
        response = error.respond(&id, &app.docs);
        if let Some(allow) = allow {
            response.headers_mut().insert(axum::http::header::ALLOW, allow);
        }
    }
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(&REQUEST_ID, value);
    }
    let headers = response.headers_mut();
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    headers.insert("cache-control", HeaderValue::from_static("no-store"));
    app.requests.count(response.status(), begun, app.clock.now());
    response
}

async fn unknown_path() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "PATH_NOT_FOUND", "there is nothing at this path; see /docs")
}

async fn unknown_method() -> ApiError {
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "METHOD_NOT_ALLOWED",
        "this path does not take this method; see /docs",
    )
}

impl App {
    /// A request failed on our side. A database that is full or away is a state of the process, with one event when it
    /// begins and one when it ends: as many lines as requests would only fill the disk further.
    fn note_unserved(&self, error: &ApiError) {
        let (code, words) = error.cause.as_ref().map_or((error.code, ""), |cause| (cause.code, cause.words.as_str()));
        self.requests.count_unserved(code);
        let readiness = self.intake.coordinator().readiness();
        // A request that was refused because the process is not ready has asked nobody, and says nothing new.
        let met = error.cause.as_ref().is_some_and(|cause| cause.met);
        if met && matches!(code, "DATABASE_FULL" | "DATABASE_UNAVAILABLE") {
            readiness.trouble("database", code, words);
        } else if !readiness.read().iter().any(|(_, trouble)| trouble.as_ref().is_some_and(|one| one.code == code)) {
            tracing::error!(code, words, answered = error.code, "a request could not be served");
        }
    }

    /// The user whose token the request carries.
    fn admit(&self, headers: &HeaderMap) -> Result<UserId, ApiError> {
        let now = self.clock.now();
        let mut tokens = headers.get_all(AUTHORIZATION).iter();
        let (token, second) = (tokens.next(), tokens.next());
        let refuse = |reason: &str| {
            let mut error = ApiError::from(Rejection::Unauthorized);
            error.message = format!("{}: {reason}", error.message);
            error
        };
        if second.is_some() {
            return Err(refuse("there are two of them"));
        }
        let identity = self
            .verifier
            .verify_header(token.map(HeaderValue::as_bytes), now)
            .map_err(|error| refuse(&error.to_string()))?;
        Ok(identity.user)
    }

    fn remembers(&self) -> Option<&dyn Remembers> {
        self.remembers.as_deref()
    }

    /// The order of checks of transfers wants this one after all that need only the request itself. Of withdrawals it is the first.
    fn limit(&self, user: UserId) -> Result<(), ApiError> {
        self.limit_many(user, 1)
    }

    fn limit_many(&self, user: UserId, count: usize) -> Result<(), ApiError> {
        self.per_second.allow(user, count, self.clock.now()).map_err(|wait| {
            let mut error = assets::name_limit(self, Rejection::RateLimitExceeded, None);
            error.retry_after_s = Some(wait.seconds());
            error
        })
    }
}

/// A JSON body of at most so many bytes.
async fn read_json(request: Request, most: usize, time: Duration) -> Result<Bytes, ApiError> {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        let message = "the body must be JSON, and the header Content-Type must say application/json";
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UNSUPPORTED_MEDIA_TYPE", message));
    }
    let too_large = || {
        let message = format!("the body may have at most {most} bytes");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "PAYLOAD_TOO_LARGE", message)
    };
    // What is announced to be too long is not waited for.
    if usize::try_from(request.body().size_hint().lower()).map_or(true, |announced| announced > most) {
        return Err(too_large());
    }
    let collected = tokio::time::timeout(time, Limited::new(request.into_body(), most).collect()).await;
    match collected {
        Err(_) => Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "REQUEST_TIMEOUT", "the body did not arrive in time")),
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(ApiError::invalid("the body ended before it was complete")),
    }
}
