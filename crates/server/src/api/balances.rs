//! `/api/v1/balances`: what the user has, on both sides.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use domain::{AccountStatus, Amount, Asset, AssetId, UserId};
use serde::Serialize;
use store::ledger::balances::funding_of;
use utoipa::ToSchema;

use super::Shared;
use super::error::{ApiError, ErrorBody, json};

/// Money at rest, in the ledger.
#[derive(Serialize, ToSchema)]
pub struct FundingBalance {
    #[schema(example = "900.000000")]
    available: String,
    /// Held for something, such as a transfer on its way.
    #[schema(example = "100.000000")]
    frozen: String,
    /// active, frozen or disabled.
    #[schema(example = "active")]
    status: &'static str,
}

/// Money to trade with, in the spot engine.
#[derive(Serialize, ToSchema)]
pub struct SpotBalance {
    #[schema(example = "100.000000")]
    available: String,
    /// Reserved for orders.
    #[schema(example = "0.000000")]
    reserved: String,
    #[schema(example = "active")]
    status: &'static str,
}

#[derive(Serialize, ToSchema)]
pub struct AssetBalance {
    #[schema(example = "USDT")]
    asset: String,
    /// Absent: the user has no funding account in this asset.
    #[serde(skip_serializing_if = "Option::is_none")]
    funding: Option<FundingBalance>,
    /// Absent: the user never had spot money in this asset, or `spot_known` is false.
    #[serde(skip_serializing_if = "Option::is_none")]
    spot: Option<SpotBalance>,
}

#[derive(Serialize, ToSchema)]
pub struct BalancesAnswer {
    balances: Vec<AssetBalance>,
    /// False: the spot engine does not answer at the moment, or does not tell.
    spot_known: bool,
}

/// How long the spot engine may take to answer before the balances are shown without it.
const PATIENCE: Duration = Duration::from_millis(500);

/// Own balances
///
/// Of every asset in which the user has an account. The two sides are read one after the other: the money of a transfer
/// that is on its way may be seen on neither, or for a moment on both (frozen in funding, available in spot).
#[utoipa::path(get, path = "/api/v1/balances", tag = "balances", operation_id = "readBalances",
    responses(
        (status = 200, description = "What there is", body = BalancesAnswer),
        (status = 401, description = "UNAUTHORIZED", body = ErrorBody),
        (status = 429, description = "RATE_LIMIT_EXCEEDED", body = ErrorBody),
        (status = 503, description = "SYSTEM_ERROR", body = ErrorBody),
    ), security(("token" = [])))]
pub async fn read(State(app): Shared, headers: HeaderMap) -> Result<Response, ApiError> {
    let user = app.admit(&headers)?;
    app.limit(user)?;
    let assets = app.assets.all();
    let mut tx = app.intake.coordinator().db().read().await?;
    let funding = funding_of(&mut tx, user).await?;
    drop(tx);
    let pairs: Vec<(UserId, AssetId)> = assets.keys().map(|asset| (user, *asset)).collect();
    let leg = app.intake.coordinator().leg();
    // An engine that is not known to be the database's own tells nothing.
    let spot = match app.intake.coordinator().trusts_engine() {
        true => tokio::time::timeout(PATIENCE, leg.holdings(&pairs)).await.ok().flatten(),
        false => None,
    };
    let mut spot_of: BTreeMap<AssetId, SpotBalance> = BTreeMap::new();
    for ((_, id), holding) in pairs.iter().zip(spot.iter().flatten()) {
        if let (Some(holding), Some(asset)) = (holding, assets.get(id)) {
            let balance = SpotBalance {
                available: show(holding.available, asset),
                reserved: show(holding.reserved, asset),
                status: holding.status.as_str(),
            };
            spot_of.insert(*id, balance);
        }
    }
    let mut funding_by: BTreeMap<AssetId, (Amount, Amount, AccountStatus)> =
        funding.into_iter().map(|(_, state)| (state.asset, (state.available, state.frozen, state.status))).collect();
    let balances = assets.iter().filter_map(|(id, asset)| {
        let funding = funding_by.remove(id).map(|(available, frozen, status)| FundingBalance {
            available: show(available, asset),
            frozen: show(frozen, asset),
            status: status.as_str(),
        });
        let spot = spot_of.remove(id);
        let any = funding.is_some() || spot.is_some();
        any.then(|| AssetBalance { asset: asset.symbol.to_string(), funding, spot })
    });
    let answer = BalancesAnswer { balances: balances.collect(), spot_known: spot.is_some() };
    Ok(json(StatusCode::OK, &answer))
}

fn show(amount: Amount, asset: &Asset) -> String {
    amount.display(asset.precision).to_string()
}
