//! What a client is told about a withdrawal: where it stands, what happens next and when, or why it is not taken.

use axum::http::StatusCode;
use domain::withdrawal::{Judgement, WithdrawalRefusal, WithdrawalState};
use domain::{Amount, ChainKind, Timestamp, UserId};
use serde::Serialize;
use store::withdrawal::{MinedPayment, WithdrawalRow, WithdrawalStep};
use utoipa::ToSchema;

use super::deposits::hash_text;
use super::error::ApiError;
use crate::coins::CoinOnChain;
use crate::withdrawal_intake::WithdrawalIntakeError;

/// How far a withdrawal is.
#[derive(ToSchema)]
#[schema(as = WithdrawalState, rename_all = "snake_case")]
pub enum WithdrawalStateSchema {
    /// People have to agree.
    Pending,
    /// Somebody has to look at it.
    ManualReview,
    /// It may be paid.
    Approved,
    /// It is being paid. It cannot be called off any more.
    Queued,
    /// It was paid.
    Completed,
    /// It was not paid, and never will be. The money is available again.
    Failed,
    /// It was refused after it was taken. The money is available again.
    Rejected,
    /// It was called off. The money is available again.
    Cancelled,
}

/// What a withdrawal waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = WithdrawalNextAction)]
pub enum NextAction {
    /// People to agree.
    Approval,
    /// Somebody to look at it.
    Review,
    /// To be sent.
    Payment,
    /// Blocks.
    Confirmation,
    /// Nothing: it has ended.
    Nothing,
}

/// What happens next, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct NextStep {
    action: NextAction,
    message: &'static str,
    /// When it usually happens by. No promise: chains and people take their time. Absent where people decide, and at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "2026-11-15T14:02:00.000000Z")]
    expected_by: Option<String>,
}

/// How long a chain of this kind usually takes for a block.
const fn block_seconds(kind: ChainKind) -> i64 {
    match kind {
        ChainKind::Bitcoin => 600,
        ChainKind::Evm => 12,
        ChainKind::Tron => 3,
    }
}

/// How long a worker takes to come round.
const ROUND_SECONDS: i64 = 30;

impl NextStep {
    pub fn of(row: &WithdrawalRow, coin: Option<&CoinOnChain>) -> Self {
        let gathers = coin.map_or(0, |coin| i64::from(coin.chain.outbound.gather_s));
        let confirms =
            coin.map_or(0, |coin| block_seconds(coin.chain.kind) * (i64::from(coin.chain.confirmations) + 1));
        let after = |since: Timestamp, seconds: i64| Some(since.plus_micros(seconds * 1_000_000).to_string());
        let (action, message, expected_by) = match row.state {
            WithdrawalState::Pending => (NextAction::Approval, "People have to agree to it", None),
            WithdrawalState::ManualReview => (NextAction::Review, "Somebody has to look at it", None),
            WithdrawalState::Approved => {
                let by = after(row.updated, gathers + ROUND_SECONDS);
                (NextAction::Payment, "It is sent with the next payments", by)
            }
            WithdrawalState::Queued => {
                let by = after(row.queued.unwrap_or(row.updated), gathers + ROUND_SECONDS + confirms);
                (NextAction::Confirmation, "It is on its way, and cannot be called off any more", by)
            }
            WithdrawalState::Completed if row.payee.is_some() => {
                (NextAction::Nothing, "Settled inside: the address is one of ours, and no coin had to move", None)
            }
            WithdrawalState::Completed => (NextAction::Nothing, "Paid", None),
            WithdrawalState::Failed => (NextAction::Nothing, "Not paid; the money is available again", None),
            WithdrawalState::Rejected => (NextAction::Nothing, "Refused; the money is available again", None),
            WithdrawalState::Cancelled => (NextAction::Nothing, "Called off; the money is available again", None),
        };
        Self { action, message, expected_by }
    }
}

/// A withdrawal, as its owner sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct WithdrawalAnswer {
    #[schema(example = "wr-1734912345678901234")]
    pub withdrawal_id: String,
    #[schema(example = "payout-4711")]
    pub client_order_id: String,
    #[schema(example = "USDT")]
    pub asset: String,
    #[schema(example = "bsc")]
    pub chain: String,
    /// As the chain writes it.
    #[schema(example = "0x9858EfFD232B4033E47d90003D41EC34EcaEda94")]
    pub address: String,
    /// What the address gets, with all decimals of the asset.
    #[schema(example = "100.000000")]
    pub amount: String,
    /// What is paid on top of it.
    #[schema(example = "1.000000")]
    pub fee: String,
    /// Amount and fee: held until it has ended.
    #[schema(example = "101.000000")]
    pub total: String,
    #[schema(example = "1.000000")]
    pub max_fee: String,
    #[schema(value_type = WithdrawalStateSchema)]
    pub state: &'static str,
    pub next: NextStep,
    /// The address is one of ours: the books were changed, and no coin moved.
    pub settled_inside: bool,
    #[schema(example = "2026-11-15T14:00:00.000000Z")]
    pub created_at: String,
    pub updated_at: String,
}

impl WithdrawalAnswer {
    /// Coins are never removed, so the coin is known. If it were not, amounts would be shown in ledger units.
    pub fn new(row: &WithdrawalRow, coin: Option<&CoinOnChain>) -> Self {
        let show = |amount: Amount| {
            coin.map_or_else(|| amount.units().to_string(), |coin| amount.display(coin.asset.precision).to_string())
        };
        Self {
            withdrawal_id: row.id.to_string(),
            client_order_id: row.client_order_id.as_str().to_owned(),
            asset: coin.map_or_else(|| row.asset.0.to_string(), |coin| coin.asset.symbol.to_string()),
            chain: coin.map_or_else(|| row.chain.0.to_string(), |coin| coin.chain.name.to_string()),
            address: row.to.clone(),
            amount: show(row.amount),
            fee: show(row.fee),
            // A row whose sum is beyond any balance cannot be written.
            total: show(row.amount.checked_add(row.fee).unwrap_or(Amount::MAX)),
            max_fee: show(row.most_fee),
            state: row.state.as_str(),
            next: NextStep::of(row, coin),
            settled_inside: row.payee.is_some(),
            created_at: row.created.to_string(),
            updated_at: row.updated.to_string(),
        }
    }
}

/// Who took a step. Which person of the house it was is the house's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = WithdrawalActor)]
pub enum StepBy {
    You,
    House,
}

/// One step in the life of a withdrawal.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct WithdrawalStepAnswer {
    #[schema(value_type = WithdrawalStateSchema)]
    state: &'static str,
    by: StepBy,
    at: String,
}

impl WithdrawalStepAnswer {
    pub fn new(step: &WithdrawalStep, user: UserId) -> Self {
        let by = if step.actor == format!("user {}", user.get()) { StepBy::You } else { StepBy::House };
        Self { state: step.state.as_str(), by, at: step.at.to_string() }
    }
}

/// The payment, where a block has it now. A chain may take a block back: then it is sent again, and may have another hash.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct WithdrawalPayment {
    #[schema(example = "0x88df016429689c079f3b2f6ad39fa052532c56795b733da78a91ebe6a713944b")]
    transaction: String,
    #[schema(example = 4_711_000)]
    height: i64,
}

impl WithdrawalPayment {
    pub fn new(payment: &MinedPayment, coin: Option<&CoinOnChain>) -> Self {
        let kind = coin.map(|coin| coin.chain.kind);
        Self { transaction: hash_text(&payment.transaction, kind), height: payment.height }
    }
}

#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct WithdrawalWithHistory {
    #[serde(flatten)]
    pub withdrawal: WithdrawalAnswer,
    /// Absent while no block has it, and of what was settled inside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payment: Option<WithdrawalPayment>,
    /// Oldest first.
    pub history: Vec<WithdrawalStepAnswer>,
}

/// Which status goes with which refusal.
pub const fn status_of(refusal: WithdrawalRefusal) -> StatusCode {
    match refusal {
        WithdrawalRefusal::InvalidAmount
        | WithdrawalRefusal::AmountTooSmall
        | WithdrawalRefusal::AmountTooLarge
        | WithdrawalRefusal::Overflow => StatusCode::BAD_REQUEST,
        // What was agreed has changed since.
        WithdrawalRefusal::DuplicateRequest | WithdrawalRefusal::QuoteExpired | WithdrawalRefusal::FeeAboveAgreed => {
            StatusCode::CONFLICT
        }
        WithdrawalRefusal::NotOffered
        | WithdrawalRefusal::ChainSuspended
        | WithdrawalRefusal::AssetSuspended
        | WithdrawalRefusal::SwitchedOff
        | WithdrawalRefusal::FeeAboveAmount
        | WithdrawalRefusal::DestinationOurs
        | WithdrawalRefusal::DestinationOwn
        | WithdrawalRefusal::DestinationUnknown
        | WithdrawalRefusal::DestinationCoolingOff
        | WithdrawalRefusal::AccountNotFound
        | WithdrawalRefusal::AccountFrozen
        | WithdrawalRefusal::AccountDisabled
        | WithdrawalRefusal::InsufficientBalance
        | WithdrawalRefusal::DepositNotFinal => StatusCode::UNPROCESSABLE_ENTITY,
        WithdrawalRefusal::TooManyWithdrawals
        | WithdrawalRefusal::DailyAmountExceeded
        | WithdrawalRefusal::DailyTotalExceeded => StatusCode::TOO_MANY_REQUESTS,
    }
}

pub fn refused(refusal: WithdrawalRefusal) -> ApiError {
    ApiError::new(status_of(refusal), refusal.code(), refusal.to_string())
}

/// The refusal, with the limit that it is about, as far as the customer may know it, and when to try again.
pub fn name_limit(refusal: WithdrawalRefusal, judged: Option<&Judgement>, coin: &CoinOnChain) -> ApiError {
    let mut error = refused(refusal);
    let Some(policy) = &coin.policy else { return error };
    let show = |amount: Amount| format!("{} {}", amount.display(coin.asset.precision), coin.asset.symbol);
    let words = match refusal {
        WithdrawalRefusal::AmountTooSmall => Some(format!("the limit is {}", show(policy.min))),
        WithdrawalRefusal::AmountTooLarge => Some(format!("the limit is {}", show(policy.max))),
        WithdrawalRefusal::FeeAboveAmount | WithdrawalRefusal::FeeAboveAgreed => {
            let fee = judged.and_then(|judged| policy.fee.fee(judged.request.amount));
            fee.map(|fee| format!("the fee is {}", show(fee)))
        }
        WithdrawalRefusal::DailyAmountExceeded => {
            policy.daily_user.map(|limit| format!("the limit is {} in a day", show(limit)))
        }
        WithdrawalRefusal::TooManyWithdrawals => policy
            .velocity
            .map(|velocity| format!("the limit is {} in {} seconds", velocity.count, velocity.window_us / 1_000_000)),
        WithdrawalRefusal::DestinationCoolingOff => judged
            .and_then(|judged| {
                let paid = judged.facts.paid_since.filter(|_| !policy.book_only);
                [judged.facts.in_book_since, paid].into_iter().flatten().min()
            })
            .map(|since| format!("from {} on", policy.available_at(since))),
        WithdrawalRefusal::DuplicateRequest
        | WithdrawalRefusal::NotOffered
        | WithdrawalRefusal::ChainSuspended
        | WithdrawalRefusal::AssetSuspended
        | WithdrawalRefusal::SwitchedOff
        | WithdrawalRefusal::InvalidAmount
        | WithdrawalRefusal::Overflow
        | WithdrawalRefusal::QuoteExpired
        | WithdrawalRefusal::DestinationOurs
        | WithdrawalRefusal::DestinationOwn
        | WithdrawalRefusal::DestinationUnknown
        // What all users withdraw together is the house's own.
        | WithdrawalRefusal::DailyTotalExceeded
        | WithdrawalRefusal::AccountNotFound
        | WithdrawalRefusal::AccountFrozen
        | WithdrawalRefusal::AccountDisabled
        | WithdrawalRefusal::InsufficientBalance
        | WithdrawalRefusal::DepositNotFinal => None,
    };
    if let Some(words) = words {
        error.message = format!("{} ({words})", error.message);
    }
    let daily = matches!(refusal, WithdrawalRefusal::DailyAmountExceeded | WithdrawalRefusal::DailyTotalExceeded);
    if let Some(judged) = judged.filter(|_| daily) {
        let now = judged.facts.now;
        let until = transfer::create::next_day(now).micros().saturating_sub(now.micros());
        error.retry_after_s = Some(until / 1_000_000 + 1);
    }
    error
}

impl From<WithdrawalIntakeError> for ApiError {
    fn from(error: WithdrawalIntakeError) -> Self {
        let unknown = || {
            let mut error = Self::unknown();
            "it is not known whether the request was recorded: list your withdrawals, or send the same client_order_id again"
                .clone_into(&mut error.message);
            error
        };
        match error {
            WithdrawalIntakeError::Stopping => transfer::IntakeError::Stopping.into(),
            WithdrawalIntakeError::UserBusy => transfer::IntakeError::UserBusy.into(),
            WithdrawalIntakeError::Full => transfer::IntakeError::Full.into(),
            WithdrawalIntakeError::NoIds => Self::system().because("SYSTEM_ERROR", error.to_string()),
            WithdrawalIntakeError::Late => unknown(),
            WithdrawalIntakeError::Store(error) => Self::from(&*error),
            WithdrawalIntakeError::Unknown(source) => {
                unknown().because(source.code(), store::error::Causes(&*source).to_string())
            }
        }
    }
}
