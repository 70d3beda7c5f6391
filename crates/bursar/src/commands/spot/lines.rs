//! Operations, requests and answers as JSON lines. Amounts are strings of the asset's smallest unit: no JSON number
//! ever holds money. Ids are strings too when they are written: many readers of JSON round numbers of that size.

use domain::{AccountStatus, Amount, AssetId, UserId};
use serde::Deserialize;
use serde_json::{Value, json};
use spot::{Answer, Move, OpId, Operation, Request, Settle, Standing};

/// The fields of an operation, without its id and kind.
pub fn describe(operation: &Operation) -> Value {
    let mut line = match operation {
        Operation::Deposit(of)
        | Operation::Withdraw(of)
        | Operation::Rollback(of)
        | Operation::Reserve(of)
        | Operation::Release(of) => {
            json!({ "user": of.user.get(), "asset": of.asset.0, "amount": of.amount.units().to_string() })
        }
        Operation::SetStatus { user, asset, status, .. } => {
            json!({ "user": user.get(), "asset": asset.0, "status": status.as_str() })
        }
        Operation::Mark(of) => json!({ "database": of.database.to_string(), "counter": of.counter.to_string() }),
        Operation::Settle(of) => json!({
            "buyer": of.buyer.get(), "seller": of.seller.get(), "fees": of.fees.get(),
            "base": of.base.0, "quote": of.quote.0,
            "base_amount": of.base_amount.units().to_string(), "quote_amount": of.quote_amount.units().to_string(),
            "buyer_fee": of.buyer_fee.units().to_string(), "seller_fee": of.seller_fee.units().to_string(),
        }),
    };
    line["id"] = operation.id().to_string().into();
    line["kind"] = operation.name().into();
    line
}

/// A request as it could be sent again.
pub fn request(request: &Request) -> Value {
    match request {
        Request::Run(operation) => describe(operation),
        Request::Query(id) => json!({ "kind": "query", "id": id.to_string() }),
        Request::Balance { user, asset } => json!({ "kind": "balance", "user": user.get(), "asset": asset.0 }),
        Request::Total(asset) => json!({ "kind": "total", "asset": asset.0 }),
        Request::Pair => json!({ "kind": "pair" }),
    }
}

/// An answer, as fields to add to a line.
pub fn answer(answer: &Answer) -> Value {
    match answer {
        Answer::First(decided) => json!({ "outcome": decided.name() }),
        Answer::Replay(decided) => json!({ "outcome": decided.name(), "replay": true }),
        Answer::Conflict | Answer::Expired | Answer::TooEarly | Answer::NoRoom => {
            json!({ "undecided": answer.code().unwrap_or_default() })
        }
        Answer::Standing(None) => json!({ "standing": null }),
        Answer::Standing(Some(standing)) => json!({ "standing": match standing {
            Standing::Applied => "applied",
            Standing::RolledBack => "rolled-back",
            Standing::Void => "void",
            Standing::Refused(refusal) => refusal.code(),
        }}),
        Answer::Balance(None) => json!({ "balance": null }),
        Answer::Balance(Some(balance)) => json!({ "balance": {
            "available": balance.available.units().to_string(),
            "reserved": balance.reserved.units().to_string(),
            "status": balance.status.as_str(),
        }}),
        Answer::Total(amount) => json!({ "total": amount.units().to_string() }),
        Answer::Pair(pair) => json!({ "pair": {
            "log": format!("{:016x}", pair.log_id),
            "database": pair.database.map(|database| database.to_string()),
            "counter": pair.counter.to_string(),
            "batch": pair.sequence.to_string(),
            "time": pair.time.to_string(),
        }}),
    }
}

/// What may stand in a line. Each kind asks for its own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    kind: String,
    id: Option<Number>,
    user: Option<i64>,
    asset: Option<i64>,
    amount: Option<String>,
    status: Option<String>,
    buyer: Option<i64>,
    seller: Option<i64>,
    fees: Option<i64>,
    base: Option<i64>,
    quote: Option<i64>,
    base_amount: Option<String>,
    quote_amount: Option<String>,
    buyer_fee: Option<String>,
    seller_fee: Option<String>,
    // What answers and dumps add to a line, so that those can be sent again.
    #[serde(rename = "batch")]
    _batch: Option<Value>,
    #[serde(rename = "time")]
    _time: Option<Value>,
    #[serde(rename = "outcome")]
    _outcome: Option<Value>,
    #[serde(rename = "replay")]
    _replay: Option<Value>,
    #[serde(rename = "undecided")]
    _undecided: Option<Value>,
    #[serde(rename = "unanswered")]
    _unanswered: Option<Value>,
}

/// A number, or a string of its digits.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Number {
    Plain(i64),
    Text(String),
}

impl Number {
    fn get(&self) -> Option<i64> {
        match self {
            Self::Plain(number) => Some(*number),
            Self::Text(text) => text.parse().ok(),
        }
    }
}

fn user(name: &str, number: Option<i64>) -> Result<UserId, String> {
    number.and_then(UserId::new).ok_or_else(|| format!("\"{name}\" must be a positive number"))
}

fn asset(name: &str, number: Option<i64>) -> Result<AssetId, String> {
    let small = number.filter(|number| u32::try_from(*number).is_ok_and(|number| number > 0));
    small.map(AssetId).ok_or_else(|| format!("\"{name}\" must be a number from 1 to 4294967295"))
}

fn amount(name: &str, text: Option<&String>) -> Result<Amount, String> {
    let units = text.and_then(|text| text.parse::<i64>().ok());
    units.map(Amount::from_units).ok_or_else(|| format!("\"{name}\" must be a whole number in quotes, such as \"500\""))
}

/// Reads a line. `new_id` gives an id to an operation that has none.
pub fn parse(text: &str, new_id: impl FnOnce() -> Result<OpId, String>) -> Result<Request, String> {
    let line: Line = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let given = match line.id {
        Some(number) => Some(number.get().and_then(OpId::new).ok_or("\"id\" must be a positive number")?),
        None => None,
    };
    let kind = line.kind.as_str();
    match kind {
        "balance" => {
            return Ok(Request::Balance { user: user("user", line.user)?, asset: asset("asset", line.asset)? });
        }
        "total" => return Ok(Request::Total(asset("asset", line.asset)?)),
        "pair" => return Ok(Request::Pair),
        "query" => return given.map(Request::Query).ok_or_else(|| "a query needs an \"id\"".into()),
        "rollback" if given.is_none() => return Err("a rollback needs the \"id\" of its withdrawal".into()),
        _ => {}
    }
    let id = given.map_or_else(new_id, Ok)?;
    if kind == "settle" {
        return Ok(Request::Run(Operation::Settle(Settle {
            id,
            buyer: user("buyer", line.buyer)?,
            seller: user("seller", line.seller)?,
            fees: user("fees", line.fees)?,
            base: asset("base", line.base)?,
            quote: asset("quote", line.quote)?,
            base_amount: amount("base_amount", line.base_amount.as_ref())?,
            quote_amount: amount("quote_amount", line.quote_amount.as_ref())?,
            buyer_fee: amount("buyer_fee", line.buyer_fee.as_ref())?,
            seller_fee: amount("seller_fee", line.seller_fee.as_ref())?,
        })));
    }
    let (user, asset) = (user("user", line.user)?, asset("asset", line.asset)?);
    if kind == "set-status" {
        let status = line.status.as_deref().and_then(AccountStatus::parse);
        let status = status.ok_or("\"status\" must be active, frozen or disabled")?;
        return Ok(Request::Run(Operation::SetStatus { id, user, asset, status }));
    }
    let of = Move { id, user, asset, amount: amount("amount", line.amount.as_ref())? };
    Ok(Request::Run(match kind {
        "deposit" => Operation::Deposit(of),
        "withdraw" => Operation::Withdraw(of),
        "rollback" => Operation::Rollback(of),
        "reserve" => Operation::Reserve(of),
        "release" => Operation::Release(of),
        unknown => return Err(format!("unknown kind {unknown:?}; see bursar spot send --help")),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Request, String> {
        parse(text, || OpId::new(99).ok_or_else(String::new))
    }

    #[test]
    fn what_is_dumped_can_be_sent() {
        for text in [
            r#"{"kind":"deposit","id":1,"user":7,"asset":1,"amount":"500"}"#,
            r#"{"kind":"rollback","id":2,"user":7,"asset":1,"amount":"500"}"#,
            r#"{"kind":"set-status","id":3,"user":7,"asset":1,"status":"frozen"}"#,
            r#"{"kind":"settle","id":4,"buyer":1,"seller":2,"fees":3,"base":1,"quote":2,"base_amount":"5",
                "quote_amount":"6","buyer_fee":"0","seller_fee":"1"}"#,
        ] {
            let Ok(Request::Run(operation)) = read(text) else { panic!("{text}: {:?}", read(text)) };
            assert_eq!(read(&describe(&operation).to_string()), Ok(Request::Run(operation)));
        }
    }

    #[test]
    fn a_bad_line_says_what_is_wrong() {
        for (text, reason) in [
            ("{}", "missing field `kind`"),
            (r#"{"kind":"deposit","user":7,"asset":1,"amount":500}"#, "expected a string"),
            (r#"{"kind":"deposit","user":7,"asset":1,"amount":"5.5"}"#, "\"amount\" must be a whole number"),
            (r#"{"kind":"deposit","user":0,"asset":1,"amount":"5"}"#, "\"user\" must be"),
            (r#"{"kind":"deposit","user":1,"asset":5000000000,"amount":"5"}"#, "\"asset\" must be"),
            (r#"{"kind":"deposit","id":-1,"user":1,"asset":1,"amount":"5"}"#, "\"id\" must be"),
            (r#"{"kind":"rollback","user":1,"asset":1,"amount":"5"}"#, "needs the \"id\""),
            (r#"{"kind":"steal","user":1,"asset":1,"amount":"5"}"#, "unknown kind"),
            (r#"{"kind":"deposit","user":1,"asset":1,"amount":"5","note":"x"}"#, "unknown field"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
