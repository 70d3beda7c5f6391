//! `/api/v1/withdrawals/quote` and `/api/v1/withdrawals/limits`: what a withdrawal would cost, and what is left today.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use domain::Amount;
use domain::withdrawal::{WithdrawalPolicy, WithdrawalRefusal};
use serde::{Deserialize, Serialize};
use store::withdrawal::Allowance;
use utoipa::{IntoParams, ToSchema};

use super::Shared;
use super::error::{ApiError, ErrorBody, json};
use super::withdrawal_answer::{name_limit, refused};
use super::withdrawal_request::{amount, coin, quote_text};
use crate::coins::{CoinOnChain, coin_of};

/// What is to be withdrawn.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct QuoteParameters {
    #[param(pattern = "^[A-Z0-9]{1,16}$", example = "USDT")]
    pub asset: String,
    #[param(pattern = "^[a-z0-9-]{1,16}$", example = "bsc")]
    pub chain: String,
    #[param(pattern = r"^[0-9]+(\.[0-9]+)?$", example = "100.00")]
    pub amount: String,
}

/// What it would cost now.
#[derive(Serialize, ToSchema)]
pub struct FeeQuoteAnswer {
    #[schema(example = "USDT")]
    asset: String,
    #[schema(example = "bsc")]
    chain: String,
    #[schema(example = "100.000000")]
    amount: String,
    #[schema(example = "1.000000")]
    fee: String,
    /// Amount and fee: what will be held.
    #[schema(example = "101.000000")]
    total: String,
    /// Name it when you ask for the withdrawal, and this fee holds until `expires_at`. Absent: fees are not quoted for this asset; what counts is the
    /// fee at the time, and your `max_fee`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "fq-3-1763301600000000")]
    quote_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "2026-11-15T14:01:00.000000Z")]
    expires_at: Option<String>,
}

/// What a withdrawal would cost
///
/// Nothing is held, and nothing is recorded.
#[utoipa::path(get, path = "/api/v1/withdrawals/quote", tag = "withdrawals", operation_id = "quoteWithdrawal",
    params(QuoteParameters),
    responses(
        (status = 200, description = "The fee", body = FeeQuoteAnswer),
        (status = 400, description = "INVALID_REQUEST, INVALID_ASSET, INVALID_CHAIN, INVALID_AMOUNT, PRECISION_OVERFLOW, AMOUNT_TOO_SMALL, AMOUNT_TOO_LARGE, OVERFLOW", body = ErrorBody),
        (status = 401, description = "UNAUTHORIZED", body = ErrorBody),
        (status = 422, description = "WITHDRAWAL_NOT_OFFERED, WITHDRAWALS_OFF, FEE_ABOVE_AMOUNT", body = ErrorBody),
        (status = 429, description = "RATE_LIMIT_EXCEEDED", body = ErrorBody),
        (status = 503, description = "SYSTEM_ERROR", body = ErrorBody),
    ), security(("token" = [])))]
pub async fn quote(
    State(app): Shared,
    headers: HeaderMap,
    parameters: Result<Query<QuoteParameters>, QueryRejection>,
) -> Result<Response, ApiError> {
    let user = app.admit(&headers)?;
    let Query(parameters) = parameters.map_err(|error| ApiError::invalid(error.body_text()))?;
    let mut coin = coin(&app, &parameters.asset, &parameters.chain)?;
    let amount = amount(&parameters.amount, &coin)?;
    app.limit(user)?;
    // As it is now: a promise must not rest on what was seen a second ago.
    let policies = app.intake.coordinator().db().newest_withdrawal_policies().await?;
    let policy = policies.get(&coin.listing).map(|row| row.policy.clone());
    let policy = policy.ok_or_else(|| refused(WithdrawalRefusal::NotOffered))?;
    coin.policy = Some(policy.clone());
    let fee = fee(&policy, amount).map_err(|refusal| name_limit(refusal, None, &coin))?;
    let total = amount.checked_add(fee).ok_or_else(|| refused(WithdrawalRefusal::Overflow))?;
    let show = |amount: Amount| amount.display(coin.asset.precision).to_string();
    let quote = policy.quote(app.clock.now());
    let answer = FeeQuoteAnswer {
        asset: coin.asset.symbol.to_string(),
        chain: coin.chain.name.to_string(),
        amount: show(amount),
        fee: show(fee),
        total: show(total),
        quote_id: quote.map(quote_text),
        expires_at: quote.map(|quote| quote.expires.to_string()),
    };
    Ok(json(StatusCode::OK, &answer))
}

/// What the request alone decides: whether it would be taken depends on more.
fn fee(policy: &WithdrawalPolicy, amount: Amount) -> Result<Amount, WithdrawalRefusal> {
    if !policy.enabled {
        return Err(WithdrawalRefusal::SwitchedOff);
    }
    policy.fee_of(amount)
}

/// Which limits are wanted.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LimitParameters {
    #[param(pattern = "^[A-Z0-9]{1,16}$", example = "USDT")]
    pub asset: Option<String>,
    #[param(pattern = "^[a-z0-9-]{1,16}$", example = "bsc")]
    pub chain: Option<String>,
}

/// What it costs: a fixed part and a share of the amount, and never less than the least.
#[derive(Serialize, ToSchema)]
pub struct WithdrawalFeeAnswer {
    #[schema(example = "1.000000")]
    fixed: String,
    /// Hundredths of a percent of the amount.
    #[schema(example = 0)]
    share_bps: u32,
    #[schema(example = "0.000000")]
    least: String,
}

/// Of the user, on this day (UTC).
#[derive(Serialize, ToSchema)]
pub struct DailyAllowance {
    #[schema(example = "100000.000000")]
    limit: String,
    /// Without what was given back.
    #[schema(example = "100.000000")]
    used: String,
    #[schema(example = "99900.000000")]
    left: String,
    #[schema(example = "2026-11-16T00:00:00.000000Z")]
    resets_at: String,
}

/// How often the user may ask.
#[derive(Serialize, ToSchema)]
pub struct RequestAllowance {
    #[schema(example = 10)]
    limit: u32,
    #[schema(example = 3600)]
    window_s: i64,
    #[schema(example = 9)]
    left: i64,
}

/// An asset on a chain, and what the user may withdraw of it there.
#[derive(Serialize, ToSchema)]
pub struct WithdrawalLimitsAnswer {
    #[schema(example = "USDT")]
    asset: String,
    #[schema(example = "bsc")]
    chain: String,
    /// False: nothing is taken at the moment.
    open: bool,
    /// At least this, at once. Below it: AMOUNT_TOO_SMALL.
    #[schema(example = "10.000000")]
    min: String,
    /// At most this, at once. Above it: AMOUNT_TOO_LARGE.
    #[schema(example = "50000.000000")]
    max: String,
    fee: WithdrawalFeeAnswer,
    /// What is available and final, for amount and fee together. The same money may be withdrawn on one chain or on another.
    #[schema(example = "900.000000")]
    withdrawable: String,
    /// Absent: there is no daily limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    daily: Option<DailyAllowance>,
    /// Absent: as often as you like.
    #[serde(skip_serializing_if = "Option::is_none")]
    requests: Option<RequestAllowance>,
    /// A destination can be used so long after it was first known.
    #[schema(example = 86400)]
    cooling_off_s: i64,
    /// Only what is in the address book is paid to.
    address_book_only: bool,
}

#[derive(Serialize, ToSchema)]
pub struct WithdrawalLimitsList {
    /// Of everything that can be withdrawn, by asset and chain.
    limits: Vec<WithdrawalLimitsAnswer>,
}

/// What may be withdrawn, and what is left today
#[utoipa::path(get, path = "/api/v1/withdrawals/limits", tag = "withdrawals", operation_id = "readWithdrawalLimits",
    params(LimitParameters),
    responses(
        (status = 200, description = "Limits, and what is left of them", body = WithdrawalLimitsList),
        (status = 400, description = "INVALID_REQUEST, INVALID_ASSET, INVALID_CHAIN", body = ErrorBody),
        (status = 401, description = "UNAUTHORIZED", body = ErrorBody),
        (status = 429, description = "RATE_LIMIT_EXCEEDED", body = ErrorBody),
        (status = 503, description = "SYSTEM_ERROR", body = ErrorBody),
    ), security(("token" = [])))]
pub async fn limits(
    State(app): Shared,
    headers: HeaderMap,
    parameters: Result<Query<LimitParameters>, QueryRejection>,
) -> Result<Response, ApiError> {
    let user = app.admit(&headers)?;
    let Query(parameters) = parameters.map_err(|error| ApiError::invalid(error.body_text()))?;
    let asset = super::withdrawals::known_asset(&app, parameters.asset.as_deref())?;
    let chain = super::withdrawals::known_chain(&app, parameters.chain.as_deref())?;
    app.limit(user)?;
    let now = app.clock.now();
    let allowances = app.intake.coordinator().db().withdrawal_allowances(user, now).await?;
    let coins = app.coins.all();
    let mut limits: Vec<WithdrawalLimitsAnswer> = allowances
        .iter()
        .filter_map(|one| Some((one, coin_of(&coins, one.listing)?)))
        .filter(|(_, coin)| asset.as_ref().is_none_or(|asset| *asset == coin.asset.symbol.as_str()))
        .filter(|(_, coin)| chain.as_ref().is_none_or(|chain| *chain == coin.chain.name.as_str()))
        .map(|(one, coin)| answer(one, coin, transfer::create::next_day(now).to_string()))
        .collect();
    limits.sort_by(|one, other| (&one.asset, &one.chain).cmp(&(&other.asset, &other.chain)));
    Ok(json(StatusCode::OK, &WithdrawalLimitsList { limits }))
}

fn answer(one: &Allowance, coin: &CoinOnChain, resets_at: String) -> WithdrawalLimitsAnswer {
    let show = |amount: Amount| amount.display(coin.asset.precision).to_string();
    let policy = &one.policy;
    let daily = policy.daily_user.zip(one.left_today()).map(|(limit, left)| DailyAllowance {
        limit: show(limit),
        used: show(one.used),
        left: show(left),
        resets_at,
    });
    let requests = policy.velocity.map(|velocity| RequestAllowance {
        limit: velocity.count,
        window_s: velocity.window_us / 1_000_000,
        left: i64::from(velocity.count).saturating_sub(one.recent).max(0),
    });
    WithdrawalLimitsAnswer {
        asset: coin.asset.symbol.to_string(),
        chain: coin.chain.name.to_string(),
        open: one.open && coin.family.is_some(),
        min: show(policy.min),
        max: show(policy.max),
        fee: WithdrawalFeeAnswer {
            fixed: show(policy.fee.fixed),
            share_bps: policy.fee.share_bps,
            least: show(policy.fee.least),
        },
        withdrawable: show(one.withdrawable),
        daily,
        requests,
        cooling_off_s: policy.cooling_off_us / 1_000_000,
        address_book_only: policy.book_only,
    }
}
