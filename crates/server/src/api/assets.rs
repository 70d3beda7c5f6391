//! `/api/v1/assets`: what can be moved, where it lives, and every limit.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use domain::transfer::Rejection;
use domain::{Amount, Asset, Availability};
use serde::Serialize;
use store::catalog::{Catalog, read_catalog};
use utoipa::ToSchema;

use super::error::{ApiError, ErrorBody, json};
use super::{App, Shared, transfers};

/// How much may be moved between own accounts.
#[derive(Serialize, ToSchema)]
pub struct TransferLimitsAnswer {
    /// At least this, at once. Below it: AMOUNT_TOO_SMALL.
    #[schema(example = "1.000000")]
    min: String,
    /// At most this, at once. Above it: AMOUNT_TOO_LARGE.
    #[schema(example = "100000.000000")]
    max: String,
    /// At most this in a day (UTC), both ways together. Above it: DAILY_AMOUNT_EXCEEDED.
    #[schema(example = "1000000.000000")]
    daily: String,
}

/// An asset's form on a chain.
#[derive(Serialize, ToSchema)]
pub struct AssetChain {
    #[schema(example = "tron")]
    chain: String,
    /// bitcoin, evm or tron.
    #[schema(example = "tron")]
    kind: &'static str,
    /// Which network of that kind.
    #[schema(example = "mainnet")]
    network: String,
    /// The token's contract. Absent for the chain's own coin.
    #[serde(skip_serializing_if = "Option::is_none")]
    contract: Option<String>,
    /// Decimals on the chain.
    #[schema(example = 6)]
    decimals: u8,
    /// Less is not credited.
    #[schema(example = "1.000000")]
    min_deposit: String,
    /// How many blocks deep a deposit is when it is credited.
    #[schema(example = 19)]
    confirmations: u32,
    /// active, or suspended: the asset there, or the whole chain.
    #[schema(example = "active")]
    status: &'static str,
}

#[derive(Serialize, ToSchema)]
pub struct AssetAnswer {
    #[schema(example = "USDT")]
    asset: String,
    /// How many decimals an amount may have. More: PRECISION_OVERFLOW.
    #[schema(example = 6)]
    precision: u8,
    /// active or suspended.
    #[schema(example = "active")]
    status: &'static str,
    /// Whether it can be moved between own accounts at all.
    transfer_enabled: bool,
    transfer: TransferLimitsAnswer,
    chains: Vec<AssetChain>,
}

/// What is the same for every asset.
#[derive(Serialize, ToSchema)]
pub struct UserLimits {
    /// Requests of one user in one second. Above it: RATE_LIMIT_EXCEEDED. Absent: no limit.
    #[schema(example = 10)]
    #[serde(skip_serializing_if = "Option::is_none")]
    requests_per_second: Option<u32>,
    /// Transfers of one user in one day (UTC). Above it: DAILY_LIMIT_EXCEEDED. Absent: no limit.
    #[schema(example = 100)]
    #[serde(skip_serializing_if = "Option::is_none")]
    transfers_per_day: Option<i64>,
    /// Transfers in one batch.
    #[schema(example = 1000)]
    transfers_per_batch: usize,
}

#[derive(Serialize, ToSchema)]
pub struct AssetsAnswer {
    /// By their symbols.
    assets: Vec<AssetAnswer>,
    limits: UserLimits,
}

/// Assets and limits
///
/// What can be moved, on which chains it lives, and every limit that a request can meet.
#[utoipa::path(get, path = "/api/v1/assets", tag = "assets", operation_id = "readAssets",
    responses(
        (status = 200, description = "Assets and limits", body = AssetsAnswer),
        (status = 401, description = "UNAUTHORIZED", body = ErrorBody),
        (status = 429, description = "RATE_LIMIT_EXCEEDED", body = ErrorBody),
        (status = 503, description = "SYSTEM_ERROR", body = ErrorBody),
    ), security(("token" = [])))]
pub async fn read(State(app): Shared, headers: HeaderMap) -> Result<Response, ApiError> {
    let user = app.admit(&headers)?;
    app.limit(user)?;
    let catalog = read_catalog(&mut app.intake.coordinator().db().read().await?).await?;
    let assets = catalog.assets.values().map(|asset| asset_answer(asset, &catalog)).collect();
    let limits = UserLimits {
        requests_per_second: Some(app.per_second.limit()).filter(|limit| *limit > 0),
        transfers_per_day: Some(app.intake.coordinator().settings().daily_transfers).filter(|limit| *limit > 0),
        transfers_per_batch: transfers::BATCH,
    };
    Ok(json(StatusCode::OK, &AssetsAnswer { assets, limits }))
}

fn asset_answer(asset: &Asset, catalog: &Catalog) -> AssetAnswer {
    let show = |amount: Amount| amount.display(asset.precision).to_string();
    let listings = catalog.listings.values().filter(|listing| listing.asset == asset.symbol);
    let chains = listings.filter_map(|listing| {
        let chain = catalog.chains.get(&listing.chain)?;
        let active = [chain.status, listing.status] == [Availability::Active; 2];
        Some(AssetChain {
            chain: chain.name.to_string(),
            kind: chain.kind.as_str(),
            network: chain.network.clone(),
            contract: listing.form.contract().map(str::to_owned),
            decimals: listing.form.decimals(),
            min_deposit: show(listing.min_deposit),
            confirmations: chain.confirmations,
            status: if active { Availability::Active } else { Availability::Suspended }.as_str(),
        })
    });
    AssetAnswer {
        asset: asset.symbol.to_string(),
        precision: asset.precision.decimals(),
        status: asset.status.as_str(),
        transfer_enabled: asset.internal_transfer_enabled,
        transfer: TransferLimitsAnswer {
            min: show(asset.transfer.min),
            max: show(asset.transfer.max),
            daily: show(asset.transfer.daily),
        },
        chains: chains.collect(),
    }
}

/// The rejection, with the limit that it is about and its value.
pub(super) fn name_limit(app: &App, rejection: Rejection, asset: Option<&Asset>) -> ApiError {
    let mut error = ApiError::from(rejection);
    let amount = |limit: fn(&Asset) -> Amount| {
        asset.map(|asset| format!("{} {}", limit(asset).display(asset.precision), asset.symbol))
    };
    let limit = match rejection {
        Rejection::AmountTooSmall => amount(|asset| asset.transfer.min),
        Rejection::AmountTooLarge => amount(|asset| asset.transfer.max),
        Rejection::DailyAmountExceeded => amount(|asset| asset.transfer.daily),
        Rejection::PrecisionOverflow => asset.map(|asset| format!("{} decimals", asset.precision.decimals())),
        Rejection::DailyLimitExceeded => {
            Some(format!("{} in a day", app.intake.coordinator().settings().daily_transfers))
        }
        Rejection::RateLimitExceeded => Some(format!("{} in a second", app.per_second.limit())),
        _ => None,
    };
    if let Some(limit) = limit {
        error.message = format!("{} (the limit is {limit})", error.message);
    }
    error
}
