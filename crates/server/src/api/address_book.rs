//! `/api/v1/address_book`: where a user means to be paid, and from when on.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use domain::withdrawal::WithdrawalRefusal;
use serde::{Deserialize, Serialize};
use store::withdrawal::{BookEntry, NewBookEntry};
use utoipa::ToSchema;

use super::deposit_addresses::no_chain;
use super::error::{ApiError, ErrorBody, json};
use super::request::{present, read_object};
use super::withdrawal_answer::refused;
use super::withdrawal_request::destination;
use super::{REQUEST_BYTES, Shared, read_json};
use crate::coins::CoinsByName;

/// So many addresses a user may have.
const MOST_ENTRIES: usize = 1_000;
const LONGEST_LABEL: usize = 100;

/// An address that you mean to be paid at.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"chain": "bsc", "address": "0x9858EfFD232B4033E47d90003D41EC34EcaEda94", "label": "my wallet"}))]
pub struct BookRequest {
    /// A chain's name, as in `/api/v1/assets`.
    #[schema(pattern = "^[a-z0-9-]{1,16}$", example = "bsc")]
    pub chain: String,
    #[schema(min_length = 1, max_length = 128, example = "0x9858EfFD232B4033E47d90003D41EC34EcaEda94")]
    pub address: String,
    /// For your own eyes: at most 100 characters, without control characters.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = String, required = false, nullable = false, max_length = 100, example = "my wallet")]
    pub label: Option<String>,
}

/// From when on an asset can be paid to an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct BookAsset {
    #[schema(example = "USDT")]
    asset: String,
    #[schema(example = "2026-11-16T14:00:00.000000Z")]
    available_at: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct BookEntryAnswer {
    #[schema(example = "ab-12")]
    entry_id: String,
    #[schema(example = "bsc")]
    chain: String,
    /// As the chain writes it.
    #[schema(example = "0x9858EfFD232B4033E47d90003D41EC34EcaEda94")]
    address: String,
    #[schema(example = "my wallet")]
    label: String,
    #[schema(example = "2026-11-15T14:00:00.000000Z")]
    added_at: String,
    /// From then on everything that can be withdrawn on the chain can be paid to it.
    #[schema(example = "2026-11-16T14:00:00.000000Z")]
    available_at: String,
    /// The same for each asset by itself: some may wait less.
    assets: Vec<BookAsset>,
}

#[derive(Serialize, ToSchema)]
pub struct BookAnswer {
    /// By chain and address. What was removed is not shown.
    entries: Vec<BookEntryAnswer>,
}

#[derive(Serialize, ToSchema)]
pub struct RemovedEntry {
    #[schema(example = "ab-12")]
    entry_id: String,
}

/// Own address book
#[utoipa::path(get, path = "/api/v1/address_book", tag = "withdrawals", operation_id = "listAddressBook",
    responses(
        (status = 200, description = "Where you mean to be paid", body = BookAnswer),
        (status = 401, description = "UNAUTHORIZED", body = ErrorBody),
        (status = 429, description = "RATE_LIMIT_EXCEEDED", body = ErrorBody),
        (status = 503, description = "SYSTEM_ERROR", body = ErrorBody),
    ), security(("token" = [])))]
pub async fn list(State(app): Shared, headers: HeaderMap) -> Result<Response, ApiError> {
    let user = app.admit(&headers)?;
    app.limit(user)?;
    let entries = app.intake.coordinator().db().book(user).await?;
    let coins = app.coins.all();
    let mut entries: Vec<BookEntryAnswer> = entries.iter().map(|entry| answer(entry, &coins)).collect();
    entries.sort_by(|one, other| (&one.chain, &one.address).cmp(&(&other.chain, &other.address)));
    Ok(json(StatusCode::OK, &BookAnswer { entries }))
}

/// Add an address
///
/// It can be used from `available_at` on. One that is there already stays as old as it is, with its label.
#[utoipa::path(post, path = "/api/v1/address_book", tag = "withdrawals", operation_id = "addToAddressBook",
    request_body = BookRequest,
    responses(
        (status = 200, description = "It is in the book", body = BookEntryAnswer),
        (status = 400, description = "INVALID_REQUEST, INVALID_CHAIN, ADDRESS_MALFORMED, ADDRESS_LENGTH, ADDRESS_CHECKSUM, ADDRESS_MIXED_CASE, ADDRESS_WRONG_NETWORK, ADDRESS_UNSPENDABLE, DESTINATION_TOKEN", body = ErrorBody),
        (status = 401, description = "UNAUTHORIZED", body = ErrorBody),
        (status = 408, description = "REQUEST_TIMEOUT", body = ErrorBody),
        (status = 413, description = "PAYLOAD_TOO_LARGE", body = ErrorBody),
        (status = 415, description = "UNSUPPORTED_MEDIA_TYPE", body = ErrorBody),
        (status = 422, description = "DESTINATION_OURS, WITHDRAWAL_NOT_OFFERED, ADDRESS_BOOK_FULL", body = ErrorBody),
        (status = 429, description = "RATE_LIMIT_EXCEEDED", body = ErrorBody),
        (status = 503, description = "SYSTEM_ERROR: nothing was done. OUTCOME_UNKNOWN: send it again", body = ErrorBody),
    ), security(("token" = [])))]
pub async fn add(State(app): Shared, headers: HeaderMap, request: Request) -> Result<Response, ApiError> {
    let user = app.admit(&headers)?;
    let body = read_json(request, REQUEST_BYTES, app.body_time).await?;
    let wanted: BookRequest =
        read_object(&body).map_err(|error| ApiError::invalid(format!("the body is not such a request: {error}")))?;
    let label = wanted.label.unwrap_or_default();
    if label.chars().count() > LONGEST_LABEL || label.chars().any(char::is_control) {
        let message = format!("a label has at most {LONGEST_LABEL} characters, and no control characters");
        return Err(ApiError::invalid(message));
    }
    let coins = app.coins.all();
    let chain = wanted.chain.parse().ok().filter(|chain| app.coins.knows_chain(chain)).ok_or_else(no_chain)?;
    let coin = coins.values().find(|coin| coin.chain.name == chain);
    let coin = coin.ok_or_else(|| refused(WithdrawalRefusal::NotOffered))?;
    let address = destination(&app, coin, &wanted.address)?.to_string();
    app.limit(user)?;
    let db = app.intake.coordinator().db();
    let known = db.book(user).await?;
    let there = |entry: &BookEntry| entry.chain == coin.chain_id && entry.address == address;
    if known.len() >= MOST_ENTRIES && !known.iter().any(there) {
        let message = format!("an address book has at most {MOST_ENTRIES} addresses: remove one that you do not need");
        return Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "ADDRESS_BOOK_FULL", message));
    }
    let entry = NewBookEntry { user, chain: coin.chain_id, address, label };
    let added = db.add_to_book(&[entry], app.clock.now()).await.map_err(said_again)?;
    let added = added.first().ok_or_else(ApiError::unknown)?;
    Ok(json(StatusCode::OK, &answer(added, &coins)))
}

/// Remove an address
///
/// Added again, it is new. Withdrawals to it that were taken before are not changed.
#[utoipa::path(delete, path = "/api/v1/address_book/{entry_id}", tag = "withdrawals", operation_id = "removeFromAddressBook",
    params(("entry_id" = String, Path, pattern = "^ab-[1-9][0-9]{0,18}$", example = "ab-12")),
    responses(
        (status = 200, description = "It is not in the book any more", body = RemovedEntry),
        (status = 400, description = "INVALID_REQUEST: no such id can be", body = ErrorBody),
        (status = 401, description = "UNAUTHORIZED", body = ErrorBody),
        (status = 404, description = "ADDRESS_NOT_FOUND: none in this user's book", body = ErrorBody),
        (status = 429, description = "RATE_LIMIT_EXCEEDED", body = ErrorBody),
        (status = 503, description = "SYSTEM_ERROR: nothing was done. OUTCOME_UNKNOWN: send it again", body = ErrorBody),
    ), security(("token" = [])))]
pub async fn remove(
    State(app): Shared,
    headers: HeaderMap,
    entry_id: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    let user = app.admit(&headers)?;
    let Path(text) = entry_id.map_err(|error| ApiError::invalid(error.body_text()))?;
    let id = id_of(&text).ok_or_else(|| ApiError::invalid("an entry's id is ab- and its number, such as ab-12"))?;
    app.limit(user)?;
    if !app.intake.coordinator().db().remove_from_book(user, id, app.clock.now()).await.map_err(said_again)? {
        let message = "there is no such entry in this user's address book";
        return Err(ApiError::new(StatusCode::NOT_FOUND, "ADDRESS_NOT_FOUND", message));
    }
    Ok(json(StatusCode::OK, &RemovedEntry { entry_id: text }))
}

/// After a commit without an answer the same may be sent again.
fn said_again(error: store::StoreError) -> ApiError {
    if !matches!(error, store::StoreError::CommitUnknown(_)) {
        return error.into();
    }
    let mut unknown = ApiError::unknown();
    "it is not known whether the address book was changed: look at it, or send the same again"
        .clone_into(&mut unknown.message);
    unknown.because(error.code(), error.to_string())
}

fn shown_id(id: i64) -> String {
    format!("ab-{id}")
}

/// `None`: the text is no such name. There is one text for each.
fn id_of(text: &str) -> Option<i64> {
    let id = text.strip_prefix("ab-")?.parse::<i64>().ok().filter(|id| *id > 0)?;
    (shown_id(id) == text).then_some(id)
}

fn answer(entry: &BookEntry, coins: &CoinsByName) -> BookEntryAnswer {
    let here = || coins.values().filter(|coin| coin.chain_id == entry.chain);
    let offered = here().filter_map(|coin| Some((coin, coin.policy.as_ref()?)));
    let waits: Vec<_> = offered.map(|(coin, policy)| (&coin.asset.symbol, policy.available_at(entry.added))).collect();
    let last = waits.iter().map(|(_, at)| *at).max().unwrap_or(entry.added);
    BookEntryAnswer {
        entry_id: shown_id(entry.id),
        chain: here().next().map_or_else(|| entry.chain.0.to_string(), |coin| coin.chain.name.to_string()),
        address: entry.address.clone(),
        label: entry.label.clone(),
        added_at: entry.added.to_string(),
        available_at: last.to_string(),
        assets: waits
            .into_iter()
            .map(|(asset, at)| BookAsset { asset: asset.to_string(), available_at: at.to_string() })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_one_text() {
        assert_eq!(id_of("ab-12"), Some(12));
        for bad in ["", "12", "ab-", "ab-0", "ab-012", "ab--1", "ab-+1", "ab-9223372036854775808", "AB-1"] {
            assert_eq!(id_of(bad), None, "{bad}");
        }
    }
}
