//! `/api/v1/deposit_address`: where a user pays to.
//!
//! **No address leaves here because a row says so**: `custody::wallet` derives it from the pinned key, and a row that differs is
//! refused and told to people.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use custody::wallet::{Difference, UserWallet, WalletError, deposit_wallet, show};
use domain::{Availability, Chain, ChainName};
use serde::{Deserialize, Serialize};
use store::catalog::{Catalog, read_catalog};
use store::error::Causes;
use tx::Family;
use utoipa::ToSchema;

use super::error::{ApiError, ErrorBody, json};
use super::request::read_object;
use super::{App, REQUEST_BYTES, Shared, read_json};

/// Which chain to pay on.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"chain": "bsc"}))]
pub struct DepositAddressRequest {
    /// A chain's name, as in `/api/v1/assets`.
    #[schema(pattern = "^[a-z0-9-]{1,16}$", example = "bsc")]
    pub chain: String,
}

/// What may be paid to an address.
#[derive(Serialize, ToSchema)]
pub struct DepositAsset {
    #[schema(example = "USDT")]
    asset: String,
    /// The token's contract; payments of any other are not credited. Absent for the chain's own coin.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "0x55d398326f99059ff775485246999027b3197955")]
    contract: Option<String>,
    /// A payment of less is not credited.
    #[schema(example = "1.000000")]
    min_deposit: String,
}

/// Where to pay to, and what.
#[derive(Serialize, ToSchema)]
pub struct DepositAddressAnswer {
    #[schema(example = "bsc")]
    chain: String,
    /// The same address may serve several chains of one kind. Pay on this chain only.
    #[schema(example = "0x9858EfFD232B4033E47d90003D41EC34EcaEda94")]
    address: String,
    /// False: a newer address has taken its place. What is paid to this one is still credited.
    current: bool,
    /// active, or suspended: what is paid now is credited when the chain is active again.
    #[schema(example = "active")]
    status: &'static str,
    /// How many blocks deep a payment is when it is credited.
    #[schema(example = 12)]
    confirmations: u32,
    /// What is credited. Nothing else may be sent.
    assets: Vec<DepositAsset>,
}

#[derive(Serialize, ToSchema)]
pub struct DepositAddressesAnswer {
    /// By chain; of one chain the current one first.
    addresses: Vec<DepositAddressAnswer>,
}

/// Own deposit address on a chain
///
/// The same every time: it follows from the user's number, and is made the first time that it is asked for.
#[utoipa::path(post, path = "/api/v1/deposit_address", tag = "deposits", operation_id = "giveDepositAddress",
    request_body = DepositAddressRequest,
    responses(
        (status = 200, description = "Where to pay to", body = DepositAddressAnswer),
        (status = 400, description = "INVALID_REQUEST, INVALID_CHAIN", body = ErrorBody),
        (status = 401, description = "UNAUTHORIZED", body = ErrorBody),
        (status = 408, description = "REQUEST_TIMEOUT", body = ErrorBody),
        (status = 413, description = "PAYLOAD_TOO_LARGE", body = ErrorBody),
        (status = 415, description = "UNSUPPORTED_MEDIA_TYPE", body = ErrorBody),
        (status = 422, description = "CHAIN_SUSPENDED, SIGNER_PATH_INVALID, WALLET_GROUP_UNUSABLE", body = ErrorBody),
        (status = 429, description = "RATE_LIMIT_EXCEEDED", body = ErrorBody),
        (status = 503, description = "SYSTEM_ERROR, WALLET_ROW_DIFFERS", body = ErrorBody),
    ), security(("token" = [])))]
pub async fn give(State(app): Shared, headers: HeaderMap, request: Request) -> Result<Response, ApiError> {
    let user = app.admit(&headers)?;
    let body = read_json(request, REQUEST_BYTES, app.body_time).await?;
    let wanted: DepositAddressRequest =
        read_object(&body).map_err(|error| ApiError::invalid(format!("the body is not such a request: {error}")))?;
    app.limit(user)?;
    let db = app.intake.coordinator().db();
    let catalog = read_catalog(&mut db.read().await?).await?;
    let name: ChainName = wanted.chain.parse().map_err(|_| no_chain())?;
    let chain = catalog.chains.get(&name).ok_or_else(no_chain)?;
    if chain.status == Availability::Suspended {
        let message = format!("{name} is suspended: nothing that is paid there is credited now");
        return Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "CHAIN_SUSPENDED", message));
    }
    let family = Family::of_chain(chain.kind, &chain.network).ok_or_else(no_chain)?;
    let wallet = match deposit_wallet(db, &app.pinned, family, user, app.clock.now()).await {
        Ok(wallet) => wallet,
        Err(error) => return Err(app.refused_wallet(error).await),
    };
    Ok(json(StatusCode::OK, &answer(chain, &wallet, true, &catalog)))
}

/// Own deposit addresses
///
/// Those that were asked for, on every chain that they serve, older ones too. One that was never asked for is not listed.
#[utoipa::path(get, path = "/api/v1/deposit_address", tag = "deposits", operation_id = "listDepositAddresses",
    responses(
        (status = 200, description = "Where to pay to", body = DepositAddressesAnswer),
        (status = 401, description = "UNAUTHORIZED", body = ErrorBody),
        (status = 429, description = "RATE_LIMIT_EXCEEDED", body = ErrorBody),
        (status = 503, description = "SYSTEM_ERROR, WALLET_ROW_DIFFERS", body = ErrorBody),
    ), security(("token" = [])))]
pub async fn list(State(app): Shared, headers: HeaderMap) -> Result<Response, ApiError> {
    let user = app.admit(&headers)?;
    app.limit(user)?;
    let db = app.intake.coordinator().db();
    let catalog = read_catalog(&mut db.read().await?).await?;
    let found = match show(db, &app.pinned, user).await {
        Ok(found) => found,
        Err(error) => return Err(app.refused_wallet(error).await),
    };
    // A list that leaves one out would look whole.
    if let Some(difference) = found.differ.first() {
        return Err(app.refused_row(difference).await);
    }
    let mut addresses = Vec::new();
    for chain in catalog.chains.values() {
        let Some(family) = Family::of_chain(chain.kind, &chain.network) else { continue };
        let current = app.pinned.deposit_group(family).ok().map(|group| &group.group.id);
        let mut here: Vec<(bool, &UserWallet)> = found
            .wallets
            .iter()
            .filter(|wallet| app.pinned.group(&wallet.group).is_some_and(|group| group.group.family() == family))
            .map(|wallet| (current == Some(&wallet.group), wallet))
            .collect();
        here.sort_by_key(|(current, wallet)| (!current, std::cmp::Reverse(wallet.id)));
        addresses.extend(here.into_iter().map(|(current, wallet)| answer(chain, wallet, current, &catalog)));
    }
    Ok(json(StatusCode::OK, &DepositAddressesAnswer { addresses }))
}

pub(super) fn no_chain() -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, "INVALID_CHAIN", "there is no such chain; /api/v1/assets lists them")
}

fn answer(chain: &Chain, wallet: &UserWallet, current: bool, catalog: &Catalog) -> DepositAddressAnswer {
    let listings = catalog.listings.values().filter(|listing| listing.chain == chain.name);
    let assets = listings.filter_map(|listing| {
        let asset = catalog.assets.get(&listing.asset)?;
        ([asset.status, listing.status] == [Availability::Active; 2]).then(|| DepositAsset {
            asset: asset.symbol.to_string(),
            contract: listing.form.contract().map(str::to_owned),
            min_deposit: listing.min_deposit.display(asset.precision).to_string(),
        })
    });
    DepositAddressAnswer {
        chain: chain.name.to_string(),
        address: wallet.address.to_string(),
        current,
        status: chain.status.as_str(),
        confirmations: chain.confirmations,
        assets: assets.collect(),
    }
}

impl App {
    async fn refused_wallet(&self, error: WalletError) -> ApiError {
        match &error {
            WalletError::Differs(difference) => self.refused_row(difference).await,
            // To ask again is safe, also after a commit without an answer: the address is the same.
            WalletError::Store(error) => error.into(),
            WalletError::Derivation(error) => {
                ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, error.code(), "this user's number has no address")
            }
            WalletError::GroupUnusable { .. } | WalletError::NoDepositGroup { .. } | WalletError::Bitcoin(_) => {
                let message = "no addresses are given on this chain at the moment";
                ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "WALLET_GROUP_UNUSABLE", message)
                    .because(error.code(), error.to_string())
            }
            WalletError::Ended(_) => ApiError::system().because(error.code(), Causes(&error).to_string()),
        }
    }

    /// Somebody has written to the database. Nothing of the row is shown, and people are told.
    async fn refused_row(&self, difference: &Difference) -> ApiError {
        self.wallet_rows.met(difference).await;
        let message = "the address cannot be shown now; do not pay to an older one before you are told that it is good";
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, custody::wallet::ROW_DIFFERS, message)
            .because(custody::wallet::ROW_DIFFERS, format!("{}: {}", difference.row, difference.what))
    }
}
