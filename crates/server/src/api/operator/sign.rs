//! What an approver signs, in words, and the signature.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use custody::withdrawal::approve::ApprovalDesk;
use custody::withdrawal::operate::{self, ApprovalDeed, ApprovalReply};
use domain::operator::OperatorAction;
use domain::withdrawal::WithdrawalState;
use domain::{ChainName, Timestamp};
use serde::Serialize;
use signer::approval::GivenApproval;
use signer::intent::coin_text;
use signer::wire::{ApprovalBody, IntentBody};
use signer::{Intent, IntentKind};
use store::entry::ChainRow;
use store::operator::Door;
use store::withdrawal::WithdrawalRow;
use store::withdrawal::waiting::ShownWithdrawal;
use utoipa::ToSchema;

use super::actions::body;
use super::{OperatorAccess, PathId, RequestName, forbidden, not_found, of_store, parse_id};
use crate::api::error::{ApiError, ErrorBody, json};
use crate::api::{App, Shared};

/// What is to be signed. The digest follows from `intent`, `chain` and `group` alone: whoever signs makes it anew from them, and signs no other.
#[derive(Serialize, ToSchema)]
pub struct ToSign {
    #[schema(example = "wr-1734912345678901234")]
    withdrawal_id: String,
    /// The state of the withdrawal: only what waits for people can be signed.
    #[schema(example = "pending")]
    state: &'static str,
    /// All of it in one sentence.
    #[schema(example = "pay 2500.00 USDT on bsc to 0x…, for at most 0.004 BNB, until 2026-11-15T14:00:00.000000Z")]
    sentence: String,
    #[schema(example = "2500.00")]
    amount: String,
    #[schema(example = "USDT")]
    asset: String,
    /// How many decimals the coin has on its chain: `intent.pay.amount` is in its smallest unit.
    decimals: u8,
    #[schema(example = "bsc")]
    chain: String,
    /// The wallet group that pays.
    #[schema(example = "hot-evm")]
    group: String,
    to: String,
    /// In the chain's own coin.
    #[schema(example = "0.004 BNB")]
    most_fee: String,
    expires_at: String,
    intent: IntentBody,
    #[schema(pattern = "^[0-9a-f]{64}$")]
    digest: String,
}

/// What became of a signature.
#[derive(Serialize, ToSchema)]
pub struct ApprovalAnswer {
    #[schema(example = "wr-1734912345678901234")]
    withdrawal_id: String,
    #[schema(example = "pending")]
    state: &'static str,
    /// How many people have to agree, and how many have.
    wanted: u32,
    agree: u32,
    /// This person had signed the same before; nobody counts twice.
    again: bool,
}

/// What is to be signed for a withdrawal, in words, with its digest
#[utoipa::path(get, path = "/api/v1/operator/withdrawals/{withdrawal_id}/intent", tag = "operators", operation_id = "readIntent",
    params(("withdrawal_id" = String, Path, pattern = "^wr-[1-9][0-9]{0,18}$", example = "wr-1734912345678901234")),
    responses(
        (status = 200, description = "What is to be signed", body = ToSign),
        (status = 400, description = "INVALID_REQUEST: no such id can be", body = ErrorBody),
        (status = 401, description = "UNAUTHORIZED", body = ErrorBody),
        (status = 404, description = "WITHDRAWAL_NOT_FOUND", body = ErrorBody),
        (status = 409, description = "APPROVAL_UNCLEAR: nobody can say what would be paid", body = ErrorBody),
        (status = 429, description = "RATE_LIMIT_EXCEEDED", body = ErrorBody),
        (status = 503, description = "SYSTEM_ERROR", body = ErrorBody),
    ), security(("operator" = [])))]
pub async fn intent(State(app): Shared, headers: HeaderMap, withdrawal_id: PathId) -> Result<Response, ApiError> {
    app.admit_operator(&headers).await?;
    let id = parse_id(withdrawal_id)?;
    let access = access(&app)?;
    let db = app.intake.coordinator().db();
    let shown = db.withdrawal_shown(id).await?.ok_or_else(not_found)?;
    let chain = chain_of(&app, &shown.chain).await?;
    let desk = ApprovalDesk { row: &chain, pinned: &app.pinned, signer: &access.signer, approvers: &[] };
    let (row, intent) = desk.read(db, id).await.map_err(|error| internal(&error))?.ok_or_else(not_found)?;
    let intent = intent.map_err(unclear)?;
    Ok(json(StatusCode::OK, &to_sign(&shown, &row, &chain, &intent)?))
}

/// Agree to a withdrawal, by a signature over the digest of what it pays
#[utoipa::path(post, path = "/api/v1/operator/withdrawals/{withdrawal_id}/approve", tag = "operators", operation_id = "approveWithdrawal",
    params(("withdrawal_id" = String, Path, pattern = "^wr-[1-9][0-9]{0,18}$", example = "wr-1734912345678901234")),
    request_body = ApprovalBody,
    responses(
        (status = 200, description = "The signature is kept; `state` says whether enough people agree", body = ApprovalAnswer),
        (status = 400, description = "INVALID_REQUEST", body = ErrorBody),
        (status = 401, description = "UNAUTHORIZED", body = ErrorBody),
        (status = 403, description = "OPERATOR_FORBIDDEN; APPROVAL_BY_REQUESTER: nobody agrees to their own", body = ErrorBody),
        (status = 404, description = "WITHDRAWAL_NOT_FOUND", body = ErrorBody),
        (status = 408, description = "REQUEST_TIMEOUT", body = ErrorBody),
        (status = 409, description = "APPROVAL_OTHER_DIGEST: it was signed for something else. WITHDRAWAL_NOT_NOW, WITHDRAWAL_EXPIRED, CHECK_WAITS, APPROVAL_UNCLEAR", body = ErrorBody),
        (status = 413, description = "PAYLOAD_TOO_LARGE", body = ErrorBody),
        (status = 415, description = "UNSUPPORTED_MEDIA_TYPE", body = ErrorBody),
        (status = 422, description = "APPROVAL_BAD: the signature is not good, or the key is none of this person's", body = ErrorBody),
        (status = 429, description = "RATE_LIMIT_EXCEEDED", body = ErrorBody),
        (status = 503, description = "SYSTEM_ERROR, OUTCOME_UNKNOWN", body = ErrorBody),
    ), security(("operator" = [])))]
pub async fn approve(
    State(app): Shared,
    Extension(request_id): Extension<RequestName>,
    headers: HeaderMap,
    withdrawal_id: PathId,
    request: Request,
) -> Result<Response, ApiError> {
    let id = parse_id(withdrawal_id)?;
    let operator = app.admit_action(&headers, OperatorAction::Approve, id, &request_id).await?;
    let body: ApprovalBody = body(&app, request).await?;
    let given: GivenApproval = body.given().map_err(|error| ApiError::invalid(error.to_string()))?;
    let access = access(&app)?;
    let db = app.intake.coordinator().db();
    let deed = ApprovalDeed { operator: operator.name, door: Door::Http, request_id: request_id.0, withdrawal: id };
    let Some(shown) = db.withdrawal_shown(id).await? else {
        operate::note(db, &deed, "WITHDRAWAL_NOT_FOUND", app.clock.now()).await.map_err(of_store)?;
        return Err(not_found());
    };
    let chain = chain_of(&app, &shown.chain).await?;
    let place = operate::ApprovalPlace { row: &chain, pinned: &app.pinned, signer: &access.signer };
    let reply = operate::approve(db, &place, &deed, &given, app.clock.now()).await.map_err(|error| match error {
        custody::outbound::OutboundError::Store(error) => of_store(error),
        other => internal(&other),
    })?;
    let answer = |state: WithdrawalState, wanted, agree, again| {
        let withdrawal_id = id.to_string();
        Ok(json(StatusCode::OK, &ApprovalAnswer { withdrawal_id, state: state.as_str(), wanted, agree, again }))
    };
    let refused = |status, message: &str| Err(ApiError::new(status, reply.outcome(), message));
    match &reply {
        ApprovalReply::Approved { row, wanted, agree } => answer(row.state, *wanted, *agree, false),
        ApprovalReply::Kept { wanted, agree } => answer(shown.row.state, *wanted, *agree, false),
        ApprovalReply::Before { wanted, agree } => answer(shown.row.state, *wanted, *agree, true),
        ApprovalReply::NoSuchWithdrawal => Err(not_found()),
        ApprovalReply::NoSuchOperator => Err(forbidden("you are no operator any more")),
        ApprovalReply::Forbidden => Err(forbidden("your role does not allow this any more")),
        ApprovalReply::NotNow(state) => {
            refused(StatusCode::CONFLICT, &format!("the withdrawal is {state}, in which nobody has to agree"))
        }
        ApprovalReply::TooLate => refused(StatusCode::CONFLICT, "its time is over: nobody agrees to it any more"),
        ApprovalReply::CheckWaits => {
            refused(StatusCode::CONFLICT, "the check outside has not let it pass yet, and nobody agrees before")
        }
        ApprovalReply::OtherDigest | ApprovalReply::Changed => refused(
            StatusCode::CONFLICT,
            "it was signed for something else than this withdrawal pays now: read it again, and sign that",
        ),
        ApprovalReply::Requester => refused(StatusCode::FORBIDDEN, "it is your own: somebody else has to agree to it"),
        ApprovalReply::UnknownKey => refused(StatusCode::UNPROCESSABLE_ENTITY, "you have no such key"),
        ApprovalReply::BadSignature(why) => refused(StatusCode::UNPROCESSABLE_ENTITY, why),
        ApprovalReply::Unclear(why) => Err(unclear(why.clone())),
    }
}

fn access(app: &App) -> Result<&OperatorAccess, ApiError> {
    app.operators.as_ref().ok_or_else(ApiError::system)
}

async fn chain_of(app: &Arc<App>, name: &str) -> Result<ChainRow, ApiError> {
    let name: ChainName = name.parse().map_err(|_| ApiError::system())?;
    app.intake.coordinator().db().chain(&name).await?.ok_or_else(ApiError::system)
}

fn internal(error: &(dyn std::error::Error + 'static)) -> ApiError {
    ApiError::system().because("SYSTEM_ERROR", store::error::Causes(error).to_string())
}

fn unclear(why: String) -> ApiError {
    ApiError::new(StatusCode::CONFLICT, "APPROVAL_UNCLEAR", format!("nobody can say what would be paid: {why}"))
}

/// The words come from the intent that is signed, not from the row.
fn to_sign(
    shown: &ShownWithdrawal,
    row: &WithdrawalRow,
    chain: &ChainRow,
    intent: &Intent,
) -> Result<ToSign, ApiError> {
    let IntentKind::Pay { payment, .. } = &intent.kind else { return Err(ApiError::system()) };
    let listing = chain.listing(row.listing).ok_or_else(ApiError::system)?;
    let decimals = listing.form.decimals();
    let (fee_coin, fee_decimals) =
        chain.native().map(|one| (one.symbol.to_string(), one.form.decimals())).unwrap_or_default();
    let amount = payment.amount.in_coins(decimals);
    let most_fee = format!("{} {fee_coin}", intent.most_fee.in_coins(fee_decimals));
    let (asset, to, until): (&str, String, Timestamp) = (&shown.asset, payment.to.to_string(), intent.expires);
    let coin = coin_text(&payment.coin);
    let sentence = format!(
        "pay {amount} {asset} ({coin}) on {} to {to}, for at most {most_fee} of fee, until {until}, as {} asked for",
        intent.chain, intent.requester
    );
    Ok(ToSign {
        withdrawal_id: row.id.to_string(),
        state: row.state.as_str(),
        sentence,
        amount,
        asset: asset.to_owned(),
        decimals,
        chain: intent.chain.to_string(),
        group: intent.group.to_string(),
        to,
        most_fee,
        expires_at: until.to_string(),
        intent: IntentBody::from(intent),
        digest: signer::digest::hex(&intent.digest()),
    })
}
