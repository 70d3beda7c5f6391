//! Reads what a client sends, strictly: each text is exactly what it should be, or the error says what is wrong.
//!
//! The rules of a transfer that need no database are checked here, in their order: the user, the form, the accounts,
//! the asset, the amount.

use domain::transfer::{ClientOrderId, Direction, Rejection, Side, check_asset, parse_amount};
use domain::{Amount, AmountError, Precision, Symbol, UserId};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use transfer::TransferOrder;
use utoipa::ToSchema;

use super::App;
use super::assets::name_limit;
use super::error::ApiError;

/// Where a user's money can be.
#[derive(ToSchema)]
#[schema(rename_all = "UPPERCASE")]
pub enum Account {
    Funding,
    Spot,
}

/// The same in the older form.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum AliasAccount {
    Funding,
    Trading,
}

/// Move money between the accounts of the token's user.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"from": "FUNDING", "to": "SPOT", "asset": "USDT", "amount": "100.00"}))]
pub struct TransferRequest {
    /// Where the money is.
    #[schema(value_type = Account)]
    pub from: String,
    /// Where it shall go: the other one.
    #[schema(value_type = Account)]
    pub to: String,
    #[schema(pattern = "^[A-Z0-9]{1,16}$", example = "USDT")]
    pub asset: String,
    /// A plain decimal as text, with at most as many decimals as the asset has.
    #[schema(pattern = r"^[0-9]+(\.[0-9]+)?$", example = "100.00")]
    pub amount: String,
    /// Your own name for this request: 1 to 64 visible ASCII characters. Sending the same again gives the original
    /// result, never a second transfer.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = String, required = false, nullable = false, min_length = 1, max_length = 64,
        pattern = "^[!-~]+$", example = "order-4711")]
    pub client_order_id: Option<String>,
    /// If it is said, it must be the token's user.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = i64, required = false, nullable = false, minimum = 1, example = 7)]
    pub user_id: Option<i64>,
}

/// A member that is there must have a value: an explicit `null` is a mistake of the sender, and not the same as leaving
/// the member out.
pub(super) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Many transfers of one user at once.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchRequest<'a> {
    /// Each is read by itself, so that one that is malformed does not spoil its neighbours.
    #[serde(borrow)]
    pub transfers: Vec<&'a RawValue>,
}

/// For the description of the interface: what [`BatchRequest`] holds.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = BatchRequest, description = "Many transfers of one user at once.")]
pub struct BatchRequestSchema {
    /// 1 to 1,000 transfers, each with an outcome of its own.
    #[schema(min_items = 1, max_items = 1000)]
    pub transfers: Vec<TransferRequest>,
}

/// For the description of the interface: a [`TransferRequest`] with the older names.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = AliasRequest, description = "Move money between the accounts of the token's user.",
    example = json!({"from": "funding", "to": "trading", "asset": "BTC", "amount": "1.5", "user_id": 7}))]
pub struct AliasRequestSchema {
    /// Where the money is.
    #[schema(value_type = AliasAccount)]
    pub from: String,
    /// Where it shall go: the other one.
    #[schema(value_type = AliasAccount)]
    pub to: String,
    #[schema(pattern = "^[A-Z0-9]{1,16}$", example = "BTC")]
    pub asset: String,
    /// A plain decimal as text, with at most as many decimals as the asset has.
    #[schema(pattern = r"^[0-9]+(\.[0-9]+)?$", example = "1.5")]
    pub amount: String,
    /// Your own name for this request: 1 to 64 visible ASCII characters. Sending the same again gives the original
    /// result, never a second transfer.
    #[schema(value_type = String, required = false, nullable = false, min_length = 1, max_length = 64,
        pattern = "^[!-~]+$", example = "order-4711")]
    pub client_order_id: Option<String>,
    /// If it is said, it must be the token's user.
    #[schema(value_type = i64, required = false, nullable = false, minimum = 1, example = 4001)]
    pub user_id: Option<i64>,
}

/// Which names of accounts a form of the interface uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// FUNDING and SPOT.
    Plain,
    /// funding and trading, as the older form has it.
    Alias,
}

impl Form {
    fn side(self, text: &str) -> Result<Side, Rejection> {
        match (self, text) {
            (Self::Plain, text) => Side::parse(text),
            (Self::Alias, "funding") => Ok(Side::Funding),
            (Self::Alias, "trading") => Ok(Side::Spot),
            (Self::Alias, _) => Err(Rejection::InvalidAccountType),
        }
    }
}

/// Only the user of a body that is otherwise wrong: whether it is the token's user is checked first.
#[derive(Deserialize)]
pub(super) struct Whose {
    pub user_id: Option<i64>,
}

/// Reads a JSON object, and nothing else: serde would also take an array of the values without their names.
pub fn read_object<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, String> {
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err("it must be a JSON object".to_owned());
    }
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}

impl TransferRequest {
    pub fn read(body: &[u8], user: UserId) -> Result<Self, ApiError> {
        read_object(body).map_err(|error| {
            let whose = read_object::<Whose>(body).ok().and_then(|whose| whose.user_id);
            if whose.is_some_and(|id| id != user.get()) {
                return Rejection::Forbidden.into();
            }
            ApiError::invalid(format!("the body is not such a request: {error}"))
        })
    }

    /// Whether the amount is a plain decimal. Whether the asset allows it is checked later.
    fn has_amount(&self) -> bool {
        let finest = Precision::new(Precision::MAX);
        finest.is_some_and(|finest| Amount::parse(&self.amount, finest) != Err(AmountError::Malformed))
    }

    /// Checks every rule that needs no database, and makes the order.
    pub fn order(&self, user: UserId, form: Form, app: &App) -> Result<TransferOrder, ApiError> {
        if self.user_id.is_some_and(|id| id != user.get()) {
            return Err(Rejection::Forbidden.into());
        }
        let client_order_id = self.client_order_id.as_deref().map(ClientOrderId::new).transpose();
        let client_order_id = client_order_id.map_err(|error| ApiError::invalid(error.to_string()))?;
        let (from, to) = (form.side(&self.from), form.side(&self.to));
        if [from, to].contains(&Err(Rejection::InvalidAccountType)) {
            return Err(Rejection::InvalidAccountType.into());
        }
        if !self.has_amount() {
            return Err(Rejection::InvalidAmount.into());
        }
        // From here on the content is checked. The texts are compared, because two equal kinds that are not served are
        // the same account too.
        if self.from == self.to {
            return Err(Rejection::SameAccount.into());
        }
        let direction = Direction::between(from?, to?)?;
        let symbol: Symbol = self.asset.parse().map_err(|_| Rejection::InvalidAsset)?;
        let (id, asset) = app.assets.by_symbol(&symbol).ok_or(Rejection::InvalidAsset)?;
        check_asset(asset.status, asset.internal_transfer_enabled)?;
        let amount =
            parse_amount(&self.amount, &asset).map_err(|rejection| name_limit(app, rejection, Some(&asset)))?;
        Ok(TransferOrder { user, asset: id, amount, direction, client_order_id })
    }
}
