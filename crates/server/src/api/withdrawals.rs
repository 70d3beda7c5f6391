//! `/api/v1/withdrawals`: ask for payouts, look at them, list them, call them off.

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use custody::withdrawal::signed;
use domain::transfer::{ClientOrderId, Rejection};
use domain::withdrawal::WithdrawalState;
use domain::{ChainName, Symbol, UserId, id};
use serde::{Deserialize, Serialize};
use store::entry::ListingId;
use store::withdrawal::{CreatedWithdrawal, DecisionReply, WithdrawalFilter, WithdrawalId, WithdrawalRow};
use utoipa::{IntoParams, ToSchema};

use super::deposit_addresses::no_chain;
use super::error::{ApiError, ErrorAnswer, ErrorBody, json};
use super::request::read_object;
use super::transfers::BATCH;
use super::withdrawal_answer::{
    WithdrawalAnswer, WithdrawalPayment, WithdrawalStateSchema, WithdrawalStepAnswer, WithdrawalWithHistory,
    name_limit, refused,
};
use super::withdrawal_request::{WithdrawalBatchRequest, WithdrawalBatchSchema, WithdrawalRequest};
use super::{App, BATCH_BYTES, REQUEST_BYTES, Shared, read_json};
use crate::coins::coin_of;
use crate::withdrawal_intake::WithdrawalOrder;

/// Pay out to an address
///
/// Amount and fee are held from now on. 202: it is recorded, and `next` says what happens next. 200: it has ended already: the same request was sent
/// before.
#[utoipa::path(post, path = "/api/v1/withdrawals", tag = "withdrawals", operation_id = "createWithdrawal",
    request_body = WithdrawalRequest,
    responses(
        (status = 200, description = "The same request was sent before, and has ended", body = WithdrawalAnswer),
        (status = 202, description = "Recorded and on its way", body = WithdrawalAnswer),
        (status = 400, description = "The request makes no sense: INVALID_REQUEST, INVALID_ASSET, INVALID_CHAIN, INVALID_AMOUNT, PRECISION_OVERFLOW, AMOUNT_TOO_SMALL, AMOUNT_TOO_LARGE, AMOUNT_DUST, OVERFLOW, ADDRESS_MALFORMED, ADDRESS_LENGTH, ADDRESS_CHECKSUM, ADDRESS_MIXED_CASE, ADDRESS_WRONG_NETWORK, ADDRESS_UNSPENDABLE, DESTINATION_TOKEN", body = ErrorBody),
        (status = 401, description = "UNAUTHORIZED", body = ErrorBody),
        (status = 403, description = "FORBIDDEN: another user's account", body = ErrorBody),
        (status = 408, description = "REQUEST_TIMEOUT", body = ErrorBody),
        (status = 409, description = "DUPLICATE_REQUEST: the client_order_id stands for other content. FEE_ABOVE_AGREED, QUOTE_EXPIRED: the fee is another now", body = ErrorBody),
        (status = 413, description = "PAYLOAD_TOO_LARGE", body = ErrorBody),
        (status = 415, description = "UNSUPPORTED_MEDIA_TYPE", body = ErrorBody),
        (status = 422, description = "Refused: WITHDRAWAL_NOT_OFFERED, WITHDRAWALS_OFF, CHAIN_SUSPENDED, ASSET_SUSPENDED, FEE_ABOVE_AMOUNT, DESTINATION_OURS, DESTINATION_OWN, DESTINATION_UNKNOWN, DESTINATION_COOLING_OFF, ACCOUNT_NOT_FOUND, ACCOUNT_FROZEN, ACCOUNT_DISABLED, INSUFFICIENT_BALANCE, DEPOSIT_NOT_FINAL", body = ErrorBody),
        (status = 429, description = "RATE_LIMIT_EXCEEDED, TOO_MANY_WITHDRAWALS, DAILY_AMOUNT_EXCEEDED, DAILY_TOTAL_EXCEEDED", body = ErrorBody),
        (status = 503, description = "SYSTEM_ERROR, SERVER_STOPPING: nothing was done. OUTCOME_UNKNOWN: ask before you send it again", body = ErrorBody),
    ), security(("token" = [])))]
pub async fn create(State(app): Shared, headers: HeaderMap, request: Request) -> Result<Response, ApiError> {
    let user = app.admit(&headers)?;
    // Before it is read: what makes no sense counts too, and is not read for nothing.
    app.limit(user)?;
    let body = read_json(request, REQUEST_BYTES, app.body_time).await?;
    let order = WithdrawalRequest::read(&body, user)?.order(user, &app)?;
    let listing = order.listing;
    let created = app.withdrawals.place(vec![order]).await?.pop().ok_or_else(ApiError::unknown)?;
    let row = row_or_error(&app, created, listing)?;
    Ok(json(status_of(&row), &answer(&app, &row)))
}

/// 200 for what has ended, 202 for what is on its way.
const fn status_of(row: &WithdrawalRow) -> StatusCode {
    if row.state.holds() { StatusCode::ACCEPTED } else { StatusCode::OK }
}

fn answer(app: &App, row: &WithdrawalRow) -> WithdrawalAnswer {
    WithdrawalAnswer::new(row, coin_of(&app.coins.all(), row.listing))
}

fn row_or_error(app: &App, created: CreatedWithdrawal, listing: ListingId) -> Result<WithdrawalRow, ApiError> {
    match created {
        CreatedWithdrawal::New(row) | CreatedWithdrawal::Before(row) => Ok(*row),
        CreatedWithdrawal::Refused { refusal, judged } => {
            let coins = app.coins.all();
            let coin = coin_of(&coins, listing);
            Err(coin.map_or_else(|| refused(refusal), |coin| name_limit(refusal, judged.as_deref(), coin)))
        }
    }
}

/// One outcome of a batch: a withdrawal, or an error.
#[derive(Serialize, ToSchema)]
pub struct WithdrawalResult {
    /// The status that the request would have had by itself.
    #[schema(example = 202)]
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    withdrawal: Option<WithdrawalAnswer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorAnswer>,
}

#[derive(Serialize, ToSchema)]
pub struct WithdrawalBatchAnswer {
    /// As many as were asked for, in their order.
    results: Vec<WithdrawalResult>,
}

/// Pay out many times at once
///
/// Up to 1,000 withdrawals of the token's user, each with its own outcome: one that is refused does not spoil its
/// neighbours. They share their commit, which is what makes them fast. A batch of n counts as n requests of the
/// second's limit, and may have no more withdrawals than that limit.
#[utoipa::path(post, path = "/api/v1/withdrawals/batch", tag = "withdrawals", operation_id = "createWithdrawals",
    request_body = WithdrawalBatchSchema,
    responses(
        (status = 200, description = "What became of each", body = WithdrawalBatchAnswer),
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
    // One for the batch, whatever is in it, and the others when it is known how many they are.
    app.limit(user)?;
    let body = read_json(request, BATCH_BYTES, app.body_time).await?;
    let batch: WithdrawalBatchRequest<'_> =
        read_object(&body).map_err(|error| ApiError::invalid(format!("the body is not such a batch: {error}")))?;
    // A batch that counts as more than the limit could never be let through.
    let most = app.per_second.most().map_or(BATCH, |limit| limit.min(BATCH));
    let count = batch.withdrawals.len();
    if !(1..=most).contains(&count) {
        return Err(ApiError::invalid(format!("a batch has 1 to {most} withdrawals")));
    }
    app.limit_many(user, count - 1)?;
    let read =
        |text: &serde_json::value::RawValue| WithdrawalRequest::read(text.get().as_bytes(), user)?.order(user, &app);
    let orders: Vec<Result<WithdrawalOrder, ApiError>> = batch.withdrawals.iter().map(|text| read(text)).collect();
    let good: Vec<WithdrawalOrder> = orders.iter().filter_map(|order| order.as_ref().ok().cloned()).collect();
    let mut created = app.withdrawals.place(good).await?.into_iter();
    let coins = app.coins.all();
    let results = orders.into_iter().map(|order| {
        let created = order.and_then(|order| Ok((created.next().ok_or_else(ApiError::unknown)?, order.listing)));
        match created.and_then(|(one, listing)| row_or_error(&app, one, listing)) {
            Ok(row) => WithdrawalResult {
                status: status_of(&row).as_u16(),
                withdrawal: Some(WithdrawalAnswer::new(&row, coin_of(&coins, row.listing))),
                error: None,
            },
            Err(error) => WithdrawalResult {
                status: error.status.as_u16(),
                withdrawal: None,
                error: Some(error.body(None, &app.docs)),
            },
        }
    });
    Ok(json(StatusCode::OK, &WithdrawalBatchAnswer { results: results.collect() }))
}

type PathId = Result<Path<String>, PathRejection>;

pub(super) fn parse_id(id: PathId) -> Result<WithdrawalId, ApiError> {
    let Path(text) = id.map_err(|error| ApiError::invalid(error.body_text()))?;
    text.parse().map_err(|error: id::BadId| ApiError::invalid(format!("withdrawal_id: {error}")))
}

fn not_found() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "WITHDRAWAL_NOT_FOUND", "there is no such withdrawal of this user")
}

/// One own withdrawal with its history
#[utoipa::path(get, path = "/api/v1/withdrawals/{withdrawal_id}", tag = "withdrawals", operation_id = "readWithdrawal",
    params(("withdrawal_id" = String, Path, pattern = "^wr-[1-9][0-9]{0,18}$", example = "wr-1734912345678901234")),
    responses(
        (status = 200, description = "Where it stands, and how it came there", body = WithdrawalWithHistory),
        (status = 400, description = "INVALID_REQUEST: no such id can be", body = ErrorBody),
        (status = 401, description = "UNAUTHORIZED", body = ErrorBody),
        (status = 404, description = "WITHDRAWAL_NOT_FOUND: none of this user", body = ErrorBody),
        (status = 429, description = "RATE_LIMIT_EXCEEDED", body = ErrorBody),
        (status = 503, description = "SYSTEM_ERROR", body = ErrorBody),
    ), security(("token" = [])))]
pub async fn read(State(app): Shared, headers: HeaderMap, withdrawal_id: PathId) -> Result<Response, ApiError> {
    let user = app.admit(&headers)?;
    let id = parse_id(withdrawal_id)?;
    app.limit(user)?;
    let db = app.intake.coordinator().db();
    // Another user's is as good as none.
    let row = db.withdrawals(&[id]).await?.into_iter().find(|row| row.user == user).ok_or_else(not_found)?;
    let history = db.withdrawal_history(id).await?;
    let payment = db.mined_payment(id).await?;
    let coins = app.coins.all();
    let answer = WithdrawalWithHistory {
        withdrawal: WithdrawalAnswer::new(&row, coin_of(&coins, row.listing)),
        payment: payment.map(|payment| WithdrawalPayment::new(&payment, coin_of(&coins, row.listing))),
        history: history.iter().map(|step| WithdrawalStepAnswer::new(step, user)).collect(),
    };
    Ok(json(StatusCode::OK, &answer))
}

/// Call a withdrawal off
///
/// As long as it is not being paid. The money is available again at once. To call off what was called off changes nothing.
#[utoipa::path(post, path = "/api/v1/withdrawals/{withdrawal_id}/cancel", tag = "withdrawals", operation_id = "cancelWithdrawal",
    params(("withdrawal_id" = String, Path, pattern = "^wr-[1-9][0-9]{0,18}$", example = "wr-1734912345678901234")),
    responses(
        (status = 200, description = "It is called off", body = WithdrawalAnswer),
        (status = 400, description = "INVALID_REQUEST: no such id can be", body = ErrorBody),
        (status = 401, description = "UNAUTHORIZED", body = ErrorBody),
        (status = 404, description = "WITHDRAWAL_NOT_FOUND: none of this user", body = ErrorBody),
        (status = 409, description = "WITHDRAWAL_NOT_NOW: it is being paid, or has ended. WITHDRAWALS_WAIT: not at the moment, try again", body = ErrorBody),
        (status = 429, description = "RATE_LIMIT_EXCEEDED", body = ErrorBody),
        (status = 503, description = "SYSTEM_ERROR: nothing was done. OUTCOME_UNKNOWN: send it again", body = ErrorBody),
    ), security(("token" = [])))]
pub async fn cancel(State(app): Shared, headers: HeaderMap, withdrawal_id: PathId) -> Result<Response, ApiError> {
    let user = app.admit(&headers)?;
    let id = parse_id(withdrawal_id)?;
    app.limit(user)?;
    let db = app.intake.coordinator().db();
    let said = signed::cancel(db, app.remembers(), &[(user, id)], app.clock.now()).await;
    let reply = match said {
        Ok(mut replies) => replies.pop().ok_or_else(ApiError::system)?,
        // To ask again is safe: the answer is the same.
        Err(error @ store::StoreError::CommitUnknown(_)) => {
            let mut unknown = ApiError::unknown();
            "it is not known whether the withdrawal was called off: send the same again"
                .clone_into(&mut unknown.message);
            return Err(unknown.because(error.code(), error.to_string()));
        }
        Err(error) => return Err(error.into()),
    };
    match reply {
        DecisionReply::Done(row) | DecisionReply::Before(row) => Ok(json(StatusCode::OK, &answer(&app, &row))),
        DecisionReply::NoSuchWithdrawal => Err(not_found()),
        DecisionReply::NotNow(state) => Err(not_now(state)),
        DecisionReply::SignerNotAsked => {
            let message = "the withdrawal cannot be called off at the moment; nothing was done: try again";
            let mut error = ApiError::new(StatusCode::CONFLICT, "WITHDRAWALS_WAIT", message);
            error.retry_after_s = Some(10);
            Err(error)
        }
        DecisionReply::SignerKnowsMore => {
            let message = "somebody has to look at the withdrawal before it can be called off";
            Err(ApiError::new(StatusCode::CONFLICT, "WITHDRAWAL_NOT_NOW", message))
        }
        // Only verdicts of people are answered so.
        DecisionReply::NothingToJudge => Err(ApiError::system()),
    }
}

fn not_now(state: WithdrawalState) -> ApiError {
    let message = format!("the withdrawal is {state}, and cannot be called off any more");
    ApiError::new(StatusCode::CONFLICT, "WITHDRAWAL_NOT_NOW", message)
}

/// What to list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WithdrawalParameters {
    /// Where the page before ended: its `next_cursor`.
    #[param(pattern = "^wr-[1-9][0-9]{0,18}$", example = "wr-1734912345678901234")]
    pub cursor: Option<String>,
    /// How many at most; 50 if it is not said.
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u16>,
    #[param(pattern = "^[a-z0-9-]{1,16}$", example = "bsc")]
    pub chain: Option<String>,
    #[param(pattern = "^[A-Z0-9]{1,16}$", example = "USDT")]
    pub asset: Option<String>,
    #[param(value_type = Option<WithdrawalStateSchema>)]
    pub state: Option<String>,
    #[param(min_length = 1, max_length = 64, pattern = "^[!-~]+$")]
    pub client_order_id: Option<String>,
}

#[derive(Serialize, ToSchema)]
pub struct WithdrawalsAnswer {
    /// Newest first.
    withdrawals: Vec<WithdrawalAnswer>,
    /// There may be more: ask again with this cursor. Absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// Own withdrawals, newest first
#[utoipa::path(get, path = "/api/v1/withdrawals", tag = "withdrawals", operation_id = "listWithdrawals",
    params(WithdrawalParameters),
    responses(
        (status = 200, description = "A page of them", body = WithdrawalsAnswer),
        (status = 400, description = "INVALID_REQUEST, INVALID_CHAIN, INVALID_ASSET", body = ErrorBody),
        (status = 401, description = "UNAUTHORIZED", body = ErrorBody),
        (status = 429, description = "RATE_LIMIT_EXCEEDED", body = ErrorBody),
        (status = 503, description = "SYSTEM_ERROR", body = ErrorBody),
    ), security(("token" = [])))]
pub async fn list(
    State(app): Shared,
    headers: HeaderMap,
    parameters: Result<Query<WithdrawalParameters>, QueryRejection>,
) -> Result<Response, ApiError> {
    let user = app.admit(&headers)?;
    let Query(parameters) = parameters.map_err(|error| ApiError::invalid(error.body_text()))?;
    let limit = parameters.limit.unwrap_or(50);
    if !(1..=200).contains(&limit) {
        return Err(ApiError::invalid("limit must be 1 to 200"));
    }
    let before = parameters.cursor.clone().map(|cursor| parse_id(Ok(Path(cursor)))).transpose()?;
    let filter = parameters.filter(user, &app)?;
    app.limit(user)?;
    let found = app.intake.coordinator().db().list_withdrawals(&filter, before, i64::from(limit)).await?;
    let next_cursor = found.last().filter(|_| found.len() == usize::from(limit)).map(|last| last.id.to_string());
    let coins = app.coins.all();
    let withdrawals = found.iter().map(|row| WithdrawalAnswer::new(row, coin_of(&coins, row.listing))).collect();
    Ok(json(StatusCode::OK, &WithdrawalsAnswer { withdrawals, next_cursor }))
}

impl WithdrawalParameters {
    fn filter(&self, user: UserId, app: &App) -> Result<WithdrawalFilter, ApiError> {
        let state = self.state.as_deref().map(|state| {
            WithdrawalState::parse(state).ok_or_else(|| {
                let known: Vec<&str> = WithdrawalState::ALL.iter().map(|state| state.as_str()).collect();
                ApiError::invalid(format!("state must be one of {}", known.join(", ")))
            })
        });
        let name = self.client_order_id.as_deref().map(ClientOrderId::new).transpose();
        Ok(WithdrawalFilter {
            user: Some(user),
            chain: known_chain(app, self.chain.as_deref())?,
            asset: known_asset(app, self.asset.as_deref())?,
            state: state.transpose()?,
            client_order_id: name.map_err(|error| ApiError::invalid(error.to_string()))?,
        })
    }
}

/// The name of a chain that there is, if one is named.
pub(super) fn known_chain(app: &App, name: Option<&str>) -> Result<Option<String>, ApiError> {
    let Some(name) = name else { return Ok(None) };
    let known = name.parse::<ChainName>().ok().filter(|name| app.coins.knows_chain(name));
    known.map(|name| Some(name.to_string())).ok_or_else(no_chain)
}

/// The symbol of an asset that there is, if one is named.
pub(super) fn known_asset(app: &App, symbol: Option<&str>) -> Result<Option<String>, ApiError> {
    let Some(symbol) = symbol else { return Ok(None) };
    let known = symbol.parse::<Symbol>().ok().filter(|symbol| app.assets.by_symbol(symbol).is_some());
    known.map(|symbol| Some(symbol.to_string())).ok_or_else(|| Rejection::InvalidAsset.into())
}
