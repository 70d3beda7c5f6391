//! `/api/v1/deposits`: what was paid to a user's addresses, and what became of it.

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use custody::deposit::owner::address_of;
use domain::deposit::DepositState;
use domain::{Amount, ChainKind, ChainName, Symbol, UserId};
use serde::{Deserialize, Serialize};
use store::catalog::{Catalog, read_catalog};
use store::deposit::{DepositEventRow, DepositFilter, DepositRow};
use store::withdrawal::WithdrawalRow;
use tx::Family;
use utoipa::{IntoParams, ToSchema};

use super::Shared;
use super::error::{ApiError, ErrorBody, json};
use super::withdrawal_answer::WithdrawalAnswer;
use crate::coins::{CoinOnChain, coin_of};

/// How far a deposit is.
#[derive(ToSchema)]
#[schema(as = DepositState, rename_all = "lowercase")]
pub enum DepositStateSchema {
    /// A node shows it.
    Detected,
    /// Its block is proven; it waits for more blocks.
    Proven,
    /// It is in the user's funding account, and may not be withdrawn yet.
    Credited,
    /// It may be withdrawn.
    Final,
    /// Its block left the chain before it was credited.
    Orphaned,
    /// Its block left the chain after it was credited, and it was taken back.
    Reversed,
    /// Its transaction paid nothing.
    Refused,
    /// It is not credited; `reason` says why. Support can help.
    Unattributed,
}

/// Where a payment is on its chain.
#[derive(Serialize, ToSchema)]
pub struct DepositBlock {
    #[schema(example = 4_711_000)]
    height: i64,
    hash: String,
    /// How many proven blocks deep it is, its own included; 0 if it has left the chain.
    #[schema(example = 3)]
    confirmations: i64,
    /// At so many it is credited.
    #[schema(example = 12)]
    credited_at: i64,
    /// At so many it may be withdrawn.
    #[schema(example = 30)]
    final_at: i64,
}

#[derive(Serialize, ToSchema)]
pub struct DepositAnswer {
    #[schema(example = "dp-4711")]
    deposit_id: String,
    #[schema(example = "bsc")]
    chain: String,
    #[schema(example = "USDT")]
    asset: String,
    /// What the user is credited with. "0" with all decimals while it is not credited, and after it was taken back.
    #[schema(example = "100.000000")]
    credited: String,
    /// What was paid, to the last decimal of the chain.
    #[schema(example = "100.000000000000000000")]
    paid: String,
    address: String,
    #[schema(example = "0x88df016429689c079f3b2f6ad39fa052532c56795b733da78a91ebe6a713944b")]
    transaction: String,
    /// Which payment of the transaction: it may have several.
    #[schema(example = "log:0")]
    place: String,
    #[schema(value_type = DepositStateSchema)]
    state: &'static str,
    /// Why it is not credited, or was taken back: a code.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    block: DepositBlock,
    #[schema(example = "2026-11-15T14:00:00.000000Z")]
    created_at: String,
    updated_at: String,
}

/// One step in the life of a deposit.
#[derive(Serialize, ToSchema)]
pub struct DepositStep {
    #[schema(value_type = DepositStateSchema)]
    state: String,
    /// A code, where there is a reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    at: String,
}

#[derive(Serialize, ToSchema)]
pub struct DepositWithHistory {
    #[serde(flatten)]
    deposit: DepositAnswer,
    /// Oldest first.
    history: Vec<DepositStep>,
}

#[derive(Serialize, ToSchema)]
pub struct DepositsAnswer {
    /// Newest first.
    deposits: Vec<DepositAnswer>,
    /// There may be more: ask again with this cursor. Absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// What to list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DepositParameters {
    /// Where the page before ended: its `next_cursor`.
    #[param(pattern = "^dp-[1-9][0-9]{0,18}$", example = "dp-4711")]
    pub cursor: Option<String>,
    /// How many at most; 50 if it is not said.
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u16>,
    #[param(pattern = "^[a-z0-9-]{1,16}$", example = "bsc")]
    pub chain: Option<String>,
    #[param(pattern = "^[A-Z0-9]{1,16}$", example = "USDT")]
    pub asset: Option<String>,
    #[param(value_type = Option<DepositStateSchema>)]
    pub state: Option<String>,
}

/// Own deposits, newest first
#[utoipa::path(get, path = "/api/v1/deposits", tag = "deposits", operation_id = "listDeposits",
    params(DepositParameters),
    responses(
        (status = 200, description = "A page of them", body = DepositsAnswer),
        (status = 400, description = "INVALID_REQUEST, INVALID_CHAIN, INVALID_ASSET", body = ErrorBody),
        (status = 401, description = "UNAUTHORIZED", body = ErrorBody),
        (status = 429, description = "RATE_LIMIT_EXCEEDED", body = ErrorBody),
        (status = 503, description = "SYSTEM_ERROR", body = ErrorBody),
    ), security(("token" = [])))]
pub async fn list(
    State(app): Shared,
    headers: HeaderMap,
    parameters: Result<Query<DepositParameters>, QueryRejection>,
) -> Result<Response, ApiError> {
    let user = app.admit(&headers)?;
    let Query(parameters) = parameters.map_err(|error| ApiError::invalid(error.body_text()))?;
    let limit = parameters.limit.unwrap_or(50);
    if !(1..=200).contains(&limit) {
        return Err(ApiError::invalid("limit must be 1 to 200"));
    }
    let before = parameters.cursor.as_deref().map_or(Ok(i64::MAX), parse_id)?;
    let state = parameters.state.as_deref().map(parse_state).transpose()?;
    app.limit(user)?;
    let catalog = read_catalog(&mut app.intake.coordinator().db().read().await?).await?;
    let filter = parameters.filter(user, state, &catalog)?;
    let found = app.intake.coordinator().db().deposits(&filter, before, i64::from(limit)).await?;
    let next_cursor = found.last().filter(|_| found.len() == usize::from(limit)).map(|last| shown_id(last.id));
    let deposits = found.iter().map(|row| answer(row, &catalog)).collect();
    Ok(json(StatusCode::OK, &DepositsAnswer { deposits, next_cursor }))
}

/// One own deposit with its history
#[utoipa::path(get, path = "/api/v1/deposits/{deposit_id}", tag = "deposits", operation_id = "readDeposit",
    params(("deposit_id" = String, Path, pattern = "^dp-[1-9][0-9]{0,18}$", example = "dp-4711")),
    responses(
        (status = 200, description = "Where it stands, and how it came there", body = DepositWithHistory),
        (status = 400, description = "INVALID_REQUEST: no such id can be", body = ErrorBody),
        (status = 401, description = "UNAUTHORIZED", body = ErrorBody),
        (status = 404, description = "DEPOSIT_NOT_FOUND: none of this user", body = ErrorBody),
        (status = 429, description = "RATE_LIMIT_EXCEEDED", body = ErrorBody),
        (status = 503, description = "SYSTEM_ERROR", body = ErrorBody),
    ), security(("token" = [])))]
pub async fn read(
    State(app): Shared,
    headers: HeaderMap,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    let user = app.admit(&headers)?;
    let Path(text) = id.map_err(|error| ApiError::invalid(error.body_text()))?;
    let id = parse_id(&text)?;
    app.limit(user)?;
    let db = app.intake.coordinator().db();
    // Another user's is as good as none.
    let found = db.deposit(id).await?.filter(|(row, _)| row.user == Some(user.get()));
    let (row, events) = found.ok_or_else(|| {
        ApiError::new(StatusCode::NOT_FOUND, "DEPOSIT_NOT_FOUND", "there is no such deposit of this user")
    })?;
    let catalog = read_catalog(&mut db.read().await?).await?;
    let step = |event: DepositEventRow| {
        let reason = DepositState::parse(&event.state).and_then(|state| told(state, Some(&event.reason)));
        DepositStep { state: event.state, reason, at: event.at.to_string() }
    };
    let history = events.into_iter().map(step).collect();
    Ok(json(StatusCode::OK, &DepositWithHistory { deposit: answer(&row, &catalog), history }))
}

/// What another customer of the house has sent to one of the user's addresses. The books were changed, and no coin moved.
#[derive(Serialize, ToSchema)]
pub struct ReceivedInside {
    /// The sender's withdrawal, by which support finds it.
    #[schema(example = "wr-1734912345678901234")]
    withdrawal_id: String,
    #[schema(example = "USDT")]
    asset: String,
    #[schema(example = "bsc")]
    chain: String,
    /// The user's own address that it was sent to.
    #[schema(example = "0x9858EfFD232B4033E47d90003D41EC34EcaEda94")]
    address: String,
    #[schema(example = "100.000000")]
    amount: String,
    #[schema(example = "2026-11-15T14:00:00.000000Z")]
    received_at: String,
}

impl ReceivedInside {
    fn new(row: &WithdrawalRow, coin: Option<&CoinOnChain>) -> Self {
        let WithdrawalAnswer { withdrawal_id, asset, chain, address, amount, updated_at, .. } =
            WithdrawalAnswer::new(row, coin);
        Self { withdrawal_id, asset, chain, address, amount, received_at: updated_at }
    }
}

#[derive(Serialize, ToSchema)]
pub struct ReceivedInsideAnswer {
    /// Newest first.
    received: Vec<ReceivedInside>,
    /// There may be more: ask again with this cursor. Absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// Which page.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReceivedInsideParameters {
    /// Where the page before ended: its `next_cursor`.
    #[param(pattern = "^wr-[1-9][0-9]{0,18}$", example = "wr-1734912345678901234")]
    pub cursor: Option<String>,
    /// How many at most; 50 if it is not said.
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u16>,
}

/// What other customers of the house have sent to own addresses, newest first
///
/// It is in the funding account at once, and is no deposit: no chain shows it.
#[utoipa::path(get, path = "/api/v1/deposits/inside", tag = "deposits", operation_id = "listReceivedInside",
    params(ReceivedInsideParameters),
    responses(
        (status = 200, description = "A page of them", body = ReceivedInsideAnswer),
        (status = 400, description = "INVALID_REQUEST", body = ErrorBody),
        (status = 401, description = "UNAUTHORIZED", body = ErrorBody),
        (status = 429, description = "RATE_LIMIT_EXCEEDED", body = ErrorBody),
        (status = 503, description = "SYSTEM_ERROR", body = ErrorBody),
    ), security(("token" = [])))]
pub async fn received_inside(
    State(app): Shared,
    headers: HeaderMap,
    parameters: Result<Query<ReceivedInsideParameters>, QueryRejection>,
) -> Result<Response, ApiError> {
    let user = app.admit(&headers)?;
    let Query(parameters) = parameters.map_err(|error| ApiError::invalid(error.body_text()))?;
    let limit = parameters.limit.unwrap_or(50);
    if !(1..=200).contains(&limit) {
        return Err(ApiError::invalid("limit must be 1 to 200"));
    }
    let before = parameters.cursor.map(|cursor| super::withdrawals::parse_id(Ok(Path(cursor)))).transpose()?;
    app.limit(user)?;
    let found = app.intake.coordinator().db().received_inside(user, before, i64::from(limit)).await?;
    let next_cursor = found.last().filter(|_| found.len() == usize::from(limit)).map(|last| last.id.to_string());
    let coins = app.coins.all();
    let received = found.iter().map(|row| ReceivedInside::new(row, coin_of(&coins, row.listing))).collect();
    Ok(json(StatusCode::OK, &ReceivedInsideAnswer { received, next_cursor }))
}

impl DepositParameters {
    fn filter(&self, user: UserId, state: Option<DepositState>, catalog: &Catalog) -> Result<DepositFilter, ApiError> {
        let chain = self.chain.as_deref().map(|name| {
            let known = name.parse::<ChainName>().ok().filter(|name| catalog.chains.contains_key(name));
            known.map(|name| name.to_string()).ok_or_else(super::deposit_addresses::no_chain)
        });
        let asset = self.asset.as_deref().map(|symbol| {
            let known = symbol.parse::<Symbol>().ok().filter(|symbol| catalog.assets.contains_key(symbol));
            known.map(|symbol| symbol.to_string()).ok_or(domain::transfer::Rejection::InvalidAsset)
        });
        Ok(DepositFilter { user: Some(user), chain: chain.transpose()?, asset: asset.transpose()?, state })
    }
}

/// As people and programs name a deposit.
pub fn shown_id(id: i64) -> String {
    format!("dp-{id}")
}

/// `None`: the text is no such name. There is one text for each.
pub fn id_of(text: &str) -> Option<i64> {
    let id = text.strip_prefix("dp-")?.parse::<i64>().ok().filter(|id| *id > 0)?;
    (shown_id(id) == text).then_some(id)
}

fn parse_id(text: &str) -> Result<i64, ApiError> {
    id_of(text).ok_or_else(|| ApiError::invalid("a deposit's id is dp- and its number, such as dp-4711"))
}

fn parse_state(text: &str) -> Result<DepositState, ApiError> {
    DepositState::parse(text).ok_or_else(|| {
        let known: Vec<&str> = DepositState::ALL.iter().map(|state| state.as_str()).collect();
        ApiError::invalid(format!("state must be one of {}", known.join(", ")))
    })
}

/// Chain units as a decimal text of the coin: exact, with all its decimals. The text is the store's own, of digits only.
pub fn paid_text(raw: &str, decimals: i64) -> String {
    let decimals = usize::try_from(decimals).unwrap_or(0);
    if decimals == 0 {
        return raw.to_owned();
    }
    let digits = format!("{raw:0>width$}", width = decimals + 1);
    let (whole, part) = digits.split_at(digits.len() - decimals);
    format!("{whole}.{part}")
}

/// EVM writes hashes with a prefix, the others without.
pub(super) fn hash_text(hash: &domain::utxo::Hash, kind: Option<ChainKind>) -> String {
    match kind {
        Some(ChainKind::Evm) => format!("0x{hash}"),
        Some(ChainKind::Bitcoin | ChainKind::Tron) | None => hash.to_string(),
    }
}

/// What its owner may know of a reason: the code of why it is not credited. A node's name, or who assigned it, is the house's own.
fn told(state: DepositState, reason: Option<&str>) -> Option<String> {
    let is_code = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    match state {
        DepositState::Orphaned | DepositState::Reversed | DepositState::Refused | DepositState::Unattributed => {
            reason.filter(is_code).map(str::to_owned)
        }
        DepositState::Detected | DepositState::Proven | DepositState::Credited | DepositState::Final => None,
    }
}

/// A deposit as its owner sees it.
pub fn answer(row: &DepositRow, catalog: &Catalog) -> DepositAnswer {
    let chain = row.chain.parse::<ChainName>().ok().and_then(|name| catalog.chains.get(&name));
    let kind = chain.map(|chain| chain.kind);
    let family = chain.and_then(|chain| Family::of_chain(chain.kind, &chain.network));
    // What has left the chain is in no block, and nobody has it.
    let gone = matches!(row.state, DepositState::Orphaned | DepositState::Reversed);
    let credited = if gone { Amount::ZERO } else { row.amount };
    // Its own block is the first confirmation.
    let deep = row.proven_height.saturating_sub(row.height).saturating_add(1).max(0);
    let confirmations = if gone { 0 } else { deep };
    DepositAnswer {
        deposit_id: shown_id(row.id),
        chain: row.chain.clone(),
        asset: row.asset.to_string(),
        credited: credited.display(row.precision).to_string(),
        paid: paid_text(&row.amount_raw, row.decimals),
        address: family.map_or_else(|| row.address.clone(), |family| address_of(&row.address, family)),
        transaction: hash_text(&row.transaction, kind),
        place: row.place.clone(),
        state: row.state.as_str(),
        reason: told(row.state, row.reason.as_deref()),
        block: DepositBlock {
            height: row.height,
            hash: hash_text(&row.block, kind),
            confirmations,
            credited_at: row.confirmations,
            final_at: row.final_confirmations,
        },
        created_at: row.created_at.to_string(),
        updated_at: row.updated_at.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_paid_is_shown_to_the_last_decimal() {
        for (raw, decimals, text) in [
            ("1", 18, "0.000000000000000001"),
            ("1000000", 6, "1.000000"),
            ("123", 0, "123"),
            ("0", 2, "0.00"),
            (
                "115792089237316195423570985008687907853269984665640564039457584007913129639935",
                8,
                "1157920892373161954235709850086879078532699846656405640394575840079131.29639935",
            ),
        ] {
            assert_eq!(paid_text(raw, decimals), text);
        }
    }

    #[test]
    fn an_id_has_one_text() {
        assert_eq!(id_of("dp-4711"), Some(4711));
        for bad in ["", "4711", "dp-", "dp-0", "dp-01", "dp--1", "dp-+1", "dp-9223372036854775808", "DP-1"] {
            assert_eq!(id_of(bad), None, "{bad}");
        }
    }
}
