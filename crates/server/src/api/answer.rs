//! What a client is told about a transfer.

use std::collections::BTreeMap;

use domain::transfer::{ClientOrderId, State, Transfer};
use domain::{Asset, AssetId, Precision};
use serde::Serialize;
use utoipa::ToSchema;

use super::request::Account;

/// How far a transfer is, as far as a client must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[schema(as = Outcome)]
pub enum PublicState {
    /// On its way. It will end by itself.
    Pending,
    /// The money is at its target.
    Committed,
    /// The source refused; nothing moved.
    Failed,
    /// The target refused; the money is at its source again.
    RolledBack,
}

impl PublicState {
    pub const fn of(state: State) -> Self {
        match state {
            State::Committed => Self::Committed,
            State::Failed => Self::Failed,
            State::RolledBack => Self::RolledBack,
            State::Init | State::SourcePending | State::SourceDone | State::TargetPending | State::Compensating => {
                Self::Pending
            }
        }
    }
}

/// A transfer, as its owner sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct TransferAnswer {
    /// The number within `req_id`. Text, because it does not fit a JavaScript number.
    #[schema(example = "1734912345678901234")]
    pub transfer_id: String,
    #[schema(example = "sr-1734912345678901234")]
    pub req_id: String,
    #[schema(value_type = Account)]
    pub from: &'static str,
    #[schema(value_type = Account)]
    pub to: &'static str,
    #[schema(example = "USDT")]
    pub asset: String,
    /// Always with all decimals of the asset.
    #[schema(example = "100.000000")]
    pub amount: String,
    pub state: PublicState,
    /// The exact state of the machine behind it.
    #[schema(example = "COMMITTED")]
    pub stage: &'static str,
    /// Why it failed or went back: a code. What keeps it waiting is not the client's business.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_order_id: Option<String>,
    pub message: &'static str,
    #[schema(example = "2026-11-15T14:00:00.000000Z")]
    pub created_at: String,
    pub updated_at: String,
}

impl TransferAnswer {
    /// Assets are never removed, so the asset is known. If it were not, the amount would be shown in ledger units.
    pub fn new(transfer: &Transfer, assets: &BTreeMap<AssetId, Asset>) -> Self {
        let asset = assets.get(&transfer.asset);
        let whole = Precision::new(0);
        let precision = asset.map(|asset| asset.precision).or(whole);
        let amount = precision.map_or_else(
            || transfer.amount.units().to_string(),
            |precision| transfer.amount.display(precision).to_string(),
        );
        Self {
            transfer_id: transfer.id.number().to_string(),
            req_id: transfer.id.to_string(),
            from: transfer.direction.from().as_str(),
            to: transfer.direction.to().as_str(),
            asset: asset.map_or_else(|| transfer.asset.0.to_string(), |asset| asset.symbol.to_string()),
            amount,
            state: PublicState::of(transfer.state),
            stage: transfer.state.as_str(),
            error: transfer.error.clone().filter(|_| transfer.state.is_terminal()),
            client_order_id: transfer.client_order_id.as_ref().map(ClientOrderId::as_str).map(ToOwned::to_owned),
            message: message(transfer.state),
            created_at: transfer.created_at.to_string(),
            updated_at: transfer.updated_at.to_string(),
        }
    }
}

pub const fn message(state: State) -> &'static str {
    match PublicState::of(state) {
        PublicState::Pending => "Transfer on its way",
        PublicState::Committed => "Transfer successful",
        PublicState::Failed => "Transfer refused; nothing was moved",
        PublicState::RolledBack => "Transfer refused by its target; the money is at its source again",
    }
}
