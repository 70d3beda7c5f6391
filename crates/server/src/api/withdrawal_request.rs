//! Reads what a client sends about withdrawals, strictly, and holds every rule against it that needs no database, in this order: the user, the form,
//! the asset and the chain, the destination, the amount.

use domain::transfer::{ClientOrderId, Rejection};
use domain::withdrawal::{FeeQuote, WithdrawalRefusal};
use domain::{Amount, AmountError, ChainName, Precision, RawAmount, Symbol, Timestamp, UserId};
use serde::Deserialize;
use serde_json::value::RawValue;
use store::withdrawal::TravelRule;
use utoipa::ToSchema;

use super::App;
use super::deposit_addresses::no_chain;
use super::error::ApiError;
use super::request::{Whose, present, read_object};
use super::withdrawal_answer::{name_limit, refused};
use crate::coins::CoinOnChain;
use crate::withdrawal_intake::WithdrawalOrder;
use axum::http::StatusCode;

/// Pay out to an address.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"client_order_id": "payout-4711", "asset": "USDT", "chain": "bsc",
    "address": "0x9858EfFD232B4033E47d90003D41EC34EcaEda94", "amount": "100.00", "max_fee": "1.00"}))]
pub struct WithdrawalRequest {
    /// Your own name for this request: 1 to 64 visible ASCII characters. Sending the same again gives the original
    /// result, never a second payout.
    #[schema(min_length = 1, max_length = 64, pattern = "^[!-~]+$", example = "payout-4711")]
    pub client_order_id: String,
    #[schema(pattern = "^[A-Z0-9]{1,16}$", example = "USDT")]
    pub asset: String,
    /// A chain's name, as in `/api/v1/assets`.
    #[schema(pattern = "^[a-z0-9-]{1,16}$", example = "bsc")]
    pub chain: String,
    /// Where to: an address of that chain's network.
    #[schema(min_length = 1, max_length = 128, example = "0x9858EfFD232B4033E47d90003D41EC34EcaEda94")]
    pub address: String,
    /// What the address gets: a plain decimal as text, with at most as many decimals as the asset has.
    #[schema(pattern = r"^[0-9]+(\.[0-9]+)?$", example = "100.00")]
    pub amount: String,
    /// The most that you agree to pay on top of it. A higher fee is refused, and nothing is done.
    #[schema(pattern = r"^[0-9]+(\.[0-9]+)?$", example = "1.00")]
    pub max_fee: String,
    /// The fee that was quoted, by its id.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = String, required = false, nullable = false, pattern = "^fq-[1-9][0-9]{0,18}-[1-9][0-9]{0,18}$",
        example = "fq-3-1763301600000000")]
    pub quote_id: Option<String>,
    /// What you say of where it goes, a JSON object of your own form. It is kept, and passed on to whoever checks the withdrawal.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Object, required = false, nullable = false, example = json!({"beneficiary": "Ada Lovelace"}))]
    pub travel_rule: Option<serde_json::Value>,
    /// If it is said, it must be the token's user.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = i64, required = false, nullable = false, minimum = 1, example = 7)]
    pub user_id: Option<i64>,
}

/// Many withdrawals of one user at once.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WithdrawalBatchRequest<'a> {
    /// Each is read by itself, so that one that is malformed does not spoil its neighbours.
    #[serde(borrow)]
    pub withdrawals: Vec<&'a RawValue>,
}

/// For the description of the interface: what [`WithdrawalBatchRequest`] holds.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = WithdrawalBatchRequest, description = "Many withdrawals of one user at once.")]
pub struct WithdrawalBatchSchema {
    /// 1 to 1,000 withdrawals, each with an outcome of its own.
    #[schema(min_items = 1, max_items = 1000)]
    pub withdrawals: Vec<WithdrawalRequest>,
}

impl WithdrawalRequest {
    pub fn read(body: &[u8], user: UserId) -> Result<Self, ApiError> {
        read_object(body).map_err(|error| {
            let whose = read_object::<Whose>(body).ok().and_then(|whose| whose.user_id);
            if whose.is_some_and(|id| id != user.get()) {
                return Rejection::Forbidden.into();
            }
            ApiError::invalid(format!("the body is not such a request: {error}"))
        })
    }

    /// Checks every rule that needs no database, and makes the order.
    pub fn order(&self, user: UserId, app: &App) -> Result<WithdrawalOrder, ApiError> {
        if self.user_id.is_some_and(|id| id != user.get()) {
            return Err(Rejection::Forbidden.into());
        }
        let client_order_id = ClientOrderId::new(self.client_order_id.as_str());
        let client_order_id = client_order_id.map_err(|error| ApiError::invalid(error.to_string()))?;
        let quote = self.quote_id.as_deref().map(parse_quote).transpose()?;
        let travel_rule = self.travel_rule.as_ref().map(TravelRule::new).transpose();
        let travel_rule = travel_rule.map_err(|error| ApiError::invalid(error.to_string()))?;
        if ![&self.amount, &self.max_fee].into_iter().all(|text| is_decimal(text)) {
            return Err(refused(WithdrawalRefusal::InvalidAmount));
        }
        let coin = coin(app, &self.asset, &self.chain)?;
        let to = destination(app, &coin, &self.address)?;
        let amount = amount(&self.amount, &coin)?;
        if !amount.is_positive() {
            return Err(refused(WithdrawalRefusal::InvalidAmount));
        }
        refuse_dust(amount, &to, &coin)?;
        let most_fee = self::amount(&self.max_fee, &coin)?;
        Ok(WithdrawalOrder {
            user,
            client_order_id,
            listing: coin.listing,
            to: to.to_string(),
            amount,
            most_fee,
            quote,
            travel_rule,
        })
    }
}

/// Whether the text is a plain decimal without a sign. Whether the asset allows it is checked later.
fn is_decimal(text: &str) -> bool {
    let finest = Precision::new(Precision::MAX);
    finest.is_some_and(|finest| Amount::parse(text, finest) != Err(AmountError::Malformed)) && !text.starts_with('-')
}

/// What is asked for, if it lives there.
pub fn coin(app: &App, asset: &str, chain: &str) -> Result<CoinOnChain, ApiError> {
    let symbol: Symbol = asset.parse().map_err(|_| Rejection::InvalidAsset)?;
    if app.assets.by_symbol(&symbol).is_none() {
        return Err(Rejection::InvalidAsset.into());
    }
    let chain: ChainName = chain.parse().map_err(|_| no_chain())?;
    match app.coins.by_name(&symbol, &chain) {
        Some(coin) => Ok(coin),
        None if app.coins.knows_chain(&chain) => Err(refused(WithdrawalRefusal::NotOffered)),
        None => Err(no_chain()),
    }
}

/// An address of the coin's chain that can be paid. Whose it is, is looked at under lock; only what is certain without that is refused here.
pub fn destination(app: &App, coin: &CoinOnChain, text: &str) -> Result<tx::Address, ApiError> {
    let family = coin.family.ok_or_else(|| refused(WithdrawalRefusal::NotOffered))?;
    let bad = |error: tx::BadAddress| ApiError::new(StatusCode::BAD_REQUEST, error.code(), error.to_string());
    let address = family.parse_address(text).map_err(bad)?;
    if address.is_nobodys() {
        return Err(bad(tx::BadAddress::Unspendable));
    }
    let listed = app.coins.all();
    let mut contracts = listed.values().filter(|other| other.chain.name == coin.chain.name);
    let is_contract = |other: &CoinOnChain| {
        other
            .form
            .form
            .contract()
            .is_some_and(|contract| family.parse_address(contract).is_ok_and(|token| token == address))
    };
    if contracts.any(is_contract) {
        let message = "the address is the contract of a token: what is sent there is lost";
        return Err(ApiError::new(StatusCode::BAD_REQUEST, "DESTINATION_TOKEN", message));
    }
    // By the keys, not by a row.
    if app.pinned.wallets().any(|(_, _, wallet)| wallet.address == address) {
        return Err(refused(WithdrawalRefusal::DestinationOurs));
    }
    Ok(address)
}

pub fn amount(text: &str, coin: &CoinOnChain) -> Result<Amount, ApiError> {
    Amount::parse(text, coin.asset.precision).map_err(|error| match error {
        AmountError::Malformed => refused(WithdrawalRefusal::InvalidAmount),
        AmountError::TooPrecise(_) => {
            let mut error = ApiError::from(Rejection::PrecisionOverflow);
            error.message = format!("{} (the limit is {} decimals)", error.message, coin.asset.precision.decimals());
            error
        }
        AmountError::TooLarge => name_limit(WithdrawalRefusal::Overflow, None, coin),
    })
}

/// Nodes pass on no output that is worth less than it costs to spend.
fn refuse_dust(amount: Amount, to: &tx::Address, coin: &CoinOnChain) -> Result<(), ApiError> {
    let Some(least) = to.dust_limit() else { return Ok(()) };
    let raw = RawAmount::from_ledger(amount, &coin.form.form).map_err(|_| refused(WithdrawalRefusal::Overflow))?;
    let enough = least.to_string().parse::<RawAmount>().is_ok_and(|least| raw >= least);
    if !enough {
        let message = format!("the amount is dust: nodes pass on {least} satoshi or more to that address");
        return Err(ApiError::new(StatusCode::BAD_REQUEST, "AMOUNT_DUST", message));
    }
    Ok(())
}

/// As it was answered: the policy's version, and when it ends.
pub fn quote_text(quote: FeeQuote) -> String {
    format!("fq-{}-{}", quote.version, quote.expires.micros())
}

pub fn parse_quote(text: &str) -> Result<FeeQuote, ApiError> {
    let parts = || {
        let (version, expires) = text.strip_prefix("fq-")?.split_once('-')?;
        let number = |text: &str| text.parse::<i64>().ok().filter(|number| *number > 0);
        let quote = FeeQuote { version: number(version)?, expires: Timestamp::from_micros(number(expires)?) };
        (quote_text(quote) == text).then_some(quote)
    };
    parts().ok_or_else(|| ApiError::invalid("quote_id is that of a quote, such as fq-3-1763301600000000"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quote_has_one_text() {
        let quote = FeeQuote { version: 3, expires: Timestamp::from_micros(17) };
        assert_eq!(parse_quote(&quote_text(quote)).map_err(|error| error.code), Ok(quote));
        for bad in [
            "",
            "fq-3",
            "fq-0-1",
            "fq-1-0",
            "fq-03-1",
            "fq-3-+1",
            "fq--3-1",
            "FQ-3-1",
            "fq-3-9223372036854775808",
            "fq-3-1-",
        ] {
            assert_eq!(parse_quote(bad).map_err(|error| error.code), Err("INVALID_REQUEST"), "{bad}");
        }
    }

    #[test]
    fn an_amount_is_a_plain_decimal() {
        for good in ["0", "1", "0.5", "100.000000000000000000"] {
            assert!(is_decimal(good), "{good}");
        }
        for bad in ["", "-1", "+1", "1e3", ".5", "5.", "1,5", " 1", "0x1", "NaN", "1_000", "١"] {
            assert!(!is_decimal(bad), "{bad}");
        }
    }
}
