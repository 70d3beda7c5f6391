//! `/api/v1/internal_transfer`: ask for transfers, look at them, list them.

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use domain::id::{self, Id};
use domain::transfer::{ClientOrderId, Direction, Rejection, Side, Transfer};
use domain::{AssetId, UserId};
use serde::{Deserialize, Serialize};
use store::transfer::Filter;
use transfer::{Created, IntakeError, TransferOrder};
use utoipa::{IntoParams, ToSchema};

use super::answer::{PublicState, TransferAnswer};
use super::assets::name_limit;
use super::error::{ApiError, ErrorAnswer, ErrorBody, json};
use super::request::{Account, BatchRequest, BatchRequestSchema, Form, TransferRequest, read_object};
use super::{App, BATCH_BYTES, REQUEST_BYTES, Shared, read_json};

/// The most transfers in one batch.
pub(super) const BATCH: usize = 1_000;

/// Move money between own accounts
///
/// Waits up to half a second for the end. 200: the money is at its target. 202: the transfer is recorded and on its way;
/// it ends by itself, ask for it by its `req_id`.
#[utoipa::path(post, path = "/api/v1/internal_transfer", tag = "transfers", operation_id = "createTransfer",
    request_body = TransferRequest,
    responses(
        (status = 200, description = "The money is at its target", body = TransferAnswer),
        (status = 202, description = "Recorded and on its way", body = TransferAnswer),
        (status = 400, description = "The request makes no sense: INVALID_REQUEST, INVALID_ACCOUNT_TYPE, UNSUPPORTED_ACCOUNT_TYPE, SAME_ACCOUNT, INVALID_ASSET, INVALID_AMOUNT, PRECISION_OVERFLOW, AMOUNT_TOO_SMALL, AMOUNT_TOO_LARGE, OVERFLOW", body = ErrorBody),
        (status = 401, description = "UNAUTHORIZED", body = ErrorBody),
        (status = 403, description = "FORBIDDEN: another user's account", body = ErrorBody),
        (status = 408, description = "REQUEST_TIMEOUT", body = ErrorBody),
        (status = 409, description = "DUPLICATE_REQUEST: the client_order_id stands for other content", body = ErrorBody),
        (status = 413, description = "PAYLOAD_TOO_LARGE", body = ErrorBody),
        (status = 415, description = "UNSUPPORTED_MEDIA_TYPE", body = ErrorBody),
        (status = 422, description = "Refused: ASSET_SUSPENDED, TRANSFER_NOT_ALLOWED, SOURCE_ACCOUNT_NOT_FOUND, TARGET_ACCOUNT_NOT_FOUND, ACCOUNT_FROZEN, ACCOUNT_DISABLED, INSUFFICIENT_BALANCE", body = ErrorBody),
        (status = 429, description = "RATE_LIMIT_EXCEEDED, DAILY_LIMIT_EXCEEDED, DAILY_AMOUNT_EXCEEDED", body = ErrorBody),
        (status = 503, description = "SYSTEM_ERROR, SERVER_STOPPING: nothing was done. OUTCOME_UNKNOWN: ask before you send it again", body = ErrorBody),
    ), security(("token" = [])))]
pub async fn create(State(app): Shared, headers: HeaderMap, request: Request) -> Result<Response, ApiError> {
    let transfer = ask(&app, &headers, request, Form::Plain).await?;
    let answer = TransferAnswer::new(&transfer, &app.assets.all());
    let status = if answer.state == PublicState::Pending { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok(json(status, &answer))
}

/// Both forms end here: all checks in their order, then the intake.
pub(super) async fn ask(
    app: &Arc<App>,
    headers: &HeaderMap,
    request: Request,
    form: Form,
) -> Result<Transfer, ApiError> {
    let user = app.admit(headers)?;
    let body = read_json(request, REQUEST_BYTES, app.body_time).await?;
    let order = TransferRequest::read(&body, user)?.order(user, form, app)?;
    app.limit(user)?;
    let asset = order.asset;
    transfer_or_error(app, app.intake.place_one(order).await?, asset)
}

/// To the client, a transfer that ended without moving the money is an error.
fn transfer_or_error(app: &App, created: Created, asset: AssetId) -> Result<Transfer, ApiError> {
    let transfer = match created {
        Created::Rejected(rejection) => {
            let mut error = name_limit(app, rejection, app.assets.all().get(&asset));
            if matches!(rejection, Rejection::DailyLimitExceeded | Rejection::DailyAmountExceeded) {
                let now = app.clock.now();
                let until = transfer::create::next_day(now).micros().saturating_sub(now.micros());
                error.retry_after_s = Some(until / 1_000_000 + 1);
            }
            return Err(error);
        }
        Created::New(transfer) | Created::Duplicate(transfer) => transfer,
    };
    match PublicState::of(transfer.state) {
        PublicState::Pending | PublicState::Committed => Ok(transfer),
        PublicState::Failed | PublicState::RolledBack => {
            let answer = TransferAnswer::new(&transfer, &app.assets.all());
            let mut error = ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, refusal_code(&transfer), answer.message);
            error.transfer = Some(Box::new(answer));
            Err(error)
        }
    }
}

/// The code under which a leg refused, if it is one that clients know.
fn refusal_code(transfer: &Transfer) -> &'static str {
    let code = transfer.error.as_deref().unwrap_or_default();
    let known = Rejection::ALL.iter().map(|rejection| rejection.code()).find(|known| *known == code);
    match known {
        Some(known) => known,
        // The engine has a code of its own for an account that does not exist.
        None if code == "ACCOUNT_NOT_FOUND" => Rejection::SourceAccountNotFound.code(),
        None => "LEG_REFUSED",
    }
}

/// One outcome of a batch: a transfer, or an error.
#[derive(Serialize, ToSchema)]
pub struct BatchResult {
    /// The status that the request would have had by itself.
    #[schema(example = 200)]
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    transfer: Option<TransferAnswer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorAnswer>,
}

#[derive(Serialize, ToSchema)]
pub struct BatchAnswer {
    /// As many as were asked for, in their order.
    results: Vec<BatchResult>,
}

/// Move money many times at once
///
/// Up to 1,000 transfers of the token's user, each with its own outcome: one that is refused does not spoil its
/// neighbours. They share their commits, which is what makes them fast. A batch of n counts as n requests of the
/// second's limit, and may have no more transfers than that limit.
#[utoipa::path(post, path = "/api/v1/internal_transfer/batch", tag = "transfers", operation_id = "createTransfers",
    request_body = BatchRequestSchema,
    responses(
        (status = 200, description = "What became of each", body = BatchAnswer),
        (status = 400, description = "INVALID_REQUEST: the batch makes no sense as a whole", body = ErrorBody),
        (status = 401, description = "UNAUTHORIZED", body = ErrorBody),
        (status = 408, description = "REQUEST_TIMEOUT", body = ErrorBody),
        (status = 413, description = "PAYLOAD_TOO_LARGE", body = ErrorBody),
        (status = 415, description = "UNSUPPORTED_MEDIA_TYPE", body = ErrorBody),
        (status = 429, description = "RATE_LIMIT_EXCEEDED", body = ErrorBody),
        (status = 503, description = "SYSTEM_ERROR, SERVER_STOPPING: nothing was done. OUTCOME_UNKNOWN: ask before you send it again", body = ErrorBody),
    ), security(("token" = [])))]
pub async fn create_batch(State(app): Shared, headers: HeaderMap, request: Request) -> Result<Response, ApiError> {
    let user = app.admit(&headers)?;
    let body = read_json(request, BATCH_BYTES, app.body_time).await?;
    let batch: BatchRequest<'_> =
        read_object(&body).map_err(|error| ApiError::invalid(format!("the body is not such a batch: {error}")))?;
    // A batch that counts as more than the limit could never be let through.
    let most = app.per_second.most().map_or(BATCH, |limit| limit.min(BATCH));
    let count = batch.transfers.len();
    if !(1..=most).contains(&count) {
        return Err(ApiError::invalid(format!("a batch has 1 to {most} transfers")));
    }
    let read = |text: &serde_json::value::RawValue| {
        TransferRequest::read(text.get().as_bytes(), user)?.order(user, Form::Plain, &app)
    };
    let orders: Vec<Result<TransferOrder, ApiError>> = batch.transfers.iter().map(|text| read(text)).collect();
    app.limit_many(user, count)?;
    let good: Vec<TransferOrder> = orders.iter().filter_map(|order| order.as_ref().ok().cloned()).collect();
    let placed = app.intake.place(good).await;
    if let Some(error) = told_once(&placed) {
        return Err(error);
    }
    let mut placed = placed.into_iter();
    let assets = app.assets.all();
    let results = orders.into_iter().map(|order| {
        let created = order.and_then(|order| Ok((placed.next().ok_or_else(ApiError::system)??, order.asset)));
        match created.and_then(|(one, asset)| transfer_or_error(&app, one, asset)) {
            Ok(transfer) => {
                let transfer = TransferAnswer::new(&transfer, &assets);
                let status = if transfer.state == PublicState::Pending { 202 } else { 200 };
                BatchResult { status, transfer: Some(transfer), error: None }
            }
            Err(error) => {
                let status = error.status.as_u16();
                BatchResult { status, transfer: None, error: Some(error.body(None, &app.docs)) }
            }
        }
    });
    Ok(json(StatusCode::OK, &BatchAnswer { results: results.collect() }))
}

/// What no transfer of the batch got past is told once, for the whole. A long batch is recorded in parts, and these may fail
/// differently: then each transfer has its own answer, because of one part nothing was done, and of another it is not known.
fn told_once(placed: &[Result<Created, IntakeError>]) -> Option<ApiError> {
    let errors: Vec<ApiError> =
        placed.iter().map_while(|one| one.as_ref().err()).map(|error| error.clone().into()).collect();
    let first = errors.first().filter(|_| errors.len() == placed.len())?.clone();
    errors.iter().all(|error| error.code == first.code).then_some(first)
}

/// One transfer
#[utoipa::path(get, path = "/api/v1/internal_transfer/{req_id}", tag = "transfers", operation_id = "readTransfer",
    params(("req_id" = String, Path, description = "As it was answered when the transfer was asked for", pattern = "^sr-[1-9][0-9]{0,18}$", example = "sr-1734912345678901234")),
    responses(
        (status = 200, description = "Where it stands", body = TransferAnswer),
        (status = 400, description = "INVALID_REQUEST: no such id can be", body = ErrorBody),
        (status = 401, description = "UNAUTHORIZED", body = ErrorBody),
        (status = 404, description = "TRANSFER_NOT_FOUND: none of this user", body = ErrorBody),
        (status = 429, description = "RATE_LIMIT_EXCEEDED", body = ErrorBody),
        (status = 503, description = "SYSTEM_ERROR", body = ErrorBody),
    ), security(("token" = [])))]
pub async fn read(State(app): Shared, headers: HeaderMap, req_id: PathId) -> Result<Response, ApiError> {
    let transfer = find(&app, &headers, req_id).await?;
    Ok(json(StatusCode::OK, &TransferAnswer::new(&transfer, &app.assets.all())))
}

/// The id in a path, or why there is none. The client is told that only after its token was checked.
pub(super) type PathId = Result<Path<String>, PathRejection>;

/// Another user's transfer is answered like one that does not exist.
pub(super) async fn find(app: &App, headers: &HeaderMap, req_id: PathId) -> Result<Transfer, ApiError> {
    let user = app.admit(headers)?;
    let Path(req_id) = req_id.map_err(|error| ApiError::invalid(error.body_text()))?;
    let id = parse_id(&req_id)?;
    app.limit(user)?;
    let mut tx = app.intake.coordinator().db().read().await?;
    let found = store::transfer::read(&mut tx, &[id]).await?;
    found.into_iter().find(|transfer| transfer.user == user).ok_or_else(ApiError::not_found)
}

fn parse_id(text: &str) -> Result<Id<id::Transfer>, ApiError> {
    text.parse().map_err(|error: id::BadId| ApiError::invalid(format!("req_id: {error}")))
}

/// What to list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListParameters {
    /// Where the page before ended: its `next_cursor`.
    #[param(pattern = "^sr-[1-9][0-9]{0,18}$", example = "sr-1734912345678901234")]
    pub cursor: Option<String>,
    /// How many at most; 50 if it is not said.
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u16>,
    #[param(pattern = "^[A-Z0-9]{1,16}$", example = "USDT")]
    pub asset: Option<String>,
    /// Where the money came from.
    #[param(value_type = Option<Account>)]
    pub from: Option<String>,
    #[param(value_type = Option<PublicState>)]
    pub state: Option<String>,
    #[param(min_length = 1, max_length = 64, pattern = "^[!-~]+$")]
    pub client_order_id: Option<String>,
}

#[derive(Serialize, ToSchema)]
pub struct ListAnswer {
    /// Newest first.
    transfers: Vec<TransferAnswer>,
    /// There may be more: ask again with this cursor. Absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// Own transfers, newest first
#[utoipa::path(get, path = "/api/v1/internal_transfer", tag = "transfers", operation_id = "listTransfers",
    params(ListParameters),
    responses(
        (status = 200, description = "A page of them", body = ListAnswer),
        (status = 400, description = "INVALID_REQUEST, INVALID_ACCOUNT_TYPE, UNSUPPORTED_ACCOUNT_TYPE, INVALID_ASSET", body = ErrorBody),
        (status = 401, description = "UNAUTHORIZED", body = ErrorBody),
        (status = 429, description = "RATE_LIMIT_EXCEEDED", body = ErrorBody),
        (status = 503, description = "SYSTEM_ERROR", body = ErrorBody),
    ), security(("token" = [])))]
pub async fn list(
    State(app): Shared,
    headers: HeaderMap,
    parameters: Result<Query<ListParameters>, QueryRejection>,
) -> Result<Response, ApiError> {
    let user = app.admit(&headers)?;
    let Query(parameters) = parameters.map_err(|error| ApiError::invalid(error.body_text()))?;
    let limit = parameters.limit.unwrap_or(50);
    if !(1..=200).contains(&limit) {
        return Err(ApiError::invalid("limit must be 1 to 200"));
    }
    let filter = parameters.filter(&app)?;
    app.limit(user)?;
    let found = page(&app, user, &filter, limit).await?;
    let next_cursor = found.last().filter(|_| found.len() == usize::from(limit)).map(|last| last.id.to_string());
    let assets = app.assets.all();
    let transfers = found.iter().map(|transfer| TransferAnswer::new(transfer, &assets)).collect();
    Ok(json(StatusCode::OK, &ListAnswer { transfers, next_cursor }))
}

async fn page(app: &App, user: UserId, filter: &Filter, limit: u16) -> Result<Vec<Transfer>, ApiError> {
    let mut tx = app.intake.coordinator().db().read().await?;
    Ok(store::transfer::list(&mut tx, user, filter, i64::from(limit)).await?)
}

impl ListParameters {
    fn filter(&self, app: &App) -> Result<Filter, ApiError> {
        let asset = self.asset.as_deref().map(|symbol| {
            let symbol = symbol.parse().map_err(|_| Rejection::InvalidAsset)?;
            app.assets.by_symbol(&symbol).map(|(id, _)| id).ok_or(Rejection::InvalidAsset)
        });
        let direction = self.from.as_deref().map(|from| {
            Side::parse(from).map(|from| match from {
                Side::Funding => Direction::ToSpot,
                Side::Spot => Direction::ToFunding,
            })
        });
        let state = self.state.as_deref().map(|state| match state {
            "PENDING" => Ok(domain::transfer::State::Init),
            "COMMITTED" => Ok(domain::transfer::State::Committed),
            "FAILED" => Ok(domain::transfer::State::Failed),
            "ROLLED_BACK" => Ok(domain::transfer::State::RolledBack),
            _ => Err(ApiError::invalid("state must be PENDING, COMMITTED, FAILED or ROLLED_BACK")),
        });
        let name = self.client_order_id.as_deref().map(ClientOrderId::new).transpose();
        Ok(Filter {
            before: self.cursor.as_deref().map(parse_id).transpose()?,
            asset: asset.transpose()?,
            direction: direction.transpose()?,
            state: state.transpose()?,
            client_order_id: name.map_err(|error| ApiError::invalid(error.to_string()))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_told_one_thing_only_if_it_is_true_of_all_of_it() {
        let (nothing, unknown) = (|| Err(IntakeError::Full), || Err(IntakeError::Late));
        let rejected = || Ok(Created::Rejected(Rejection::InsufficientBalance));
        let code = |placed: &[Result<Created, IntakeError>]| told_once(placed).map(|error| error.code);
        assert_eq!(code(&[nothing(), nothing()]), Some("SYSTEM_ERROR"));
        assert_eq!(code(&[unknown(), unknown()]), Some("OUTCOME_UNKNOWN"));
        assert_eq!(code(&[nothing(), unknown()]), None, "of the second it is not known");
        assert_eq!(code(&[unknown(), nothing()]), None);
        assert_eq!(code(&[nothing(), rejected()]), None);
        assert_eq!(code(&[rejected()]), None);
        assert_eq!(code(&[]), None);
    }
}
