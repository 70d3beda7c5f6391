//! What a caller passed, by position or by name.

use std::str::FromStr;

use ::bitcoin::Amount;
use serde_json::Value;

use super::{BAD_PARAMETER, Failure, MISC, WRONG_TYPE};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Number,
    Flag,
    List,
    Object,
    /// The method looks itself.
    Any,
}

pub(super) struct Argument {
    /// With other names after bars.
    names: &'static str,
    kind: Kind,
    needed: bool,
}

pub(super) const fn must(names: &'static str, kind: Kind) -> Argument {
    Argument { names, kind, needed: true }
}

pub(super) const fn may(names: &'static str, kind: Kind) -> Argument {
    Argument { names, kind, needed: false }
}

pub(super) struct Arguments(Vec<Value>);

const fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// How a method is called, for who called it otherwise.
pub(super) fn usage(method: &str, expected: &[Argument]) -> String {
    let mut text = method.to_owned();
    for argument in expected {
        let name = argument.names.split('|').next().unwrap_or_default();
        text.push_str(&if argument.needed { format!(" {name}") } else { format!(" ( {name} )") });
    }
    text.push('\n');
    text
}

impl Arguments {
    pub fn read(method: &str, expected: &[Argument], given: Value) -> Result<Self, Failure> {
        let mut values = match given {
            Value::Array(values) => values,
            Value::Object(mut named) => {
                let mut values = Vec::new();
                for argument in expected {
                    let found = argument.names.split('|').find_map(|name| named.remove(name));
                    values.push(found.unwrap_or(Value::Null));
                }
                if let Some(name) = named.keys().next() {
                    return Err(Failure::new(BAD_PARAMETER, format!("Unknown named parameter {name}")));
                }
                values
            }
            _ => Vec::new(),
        };
        let missing = expected.iter().enumerate().any(|(at, argument)| argument.needed && at >= values.len());
        if missing || values.len() > expected.len() {
            return Err(Failure::new(MISC, usage(method, expected)));
        }
        values.resize(expected.len(), Value::Null);
        let mut wrong = Vec::new();
        for (at, (argument, value)) in expected.iter().zip(&values).enumerate() {
            let wanted = match argument.kind {
                Kind::Text => "string",
                Kind::Number => "number",
                Kind::Flag => "bool",
                Kind::List => "array",
                Kind::Object => "object",
                Kind::Any => continue,
            };
            let found = type_name(value);
            if found != wanted && (argument.needed || !value.is_null()) {
                let name = argument.names;
                wrong.push(format!(
                    "    \"Position {} ({name})\": \"JSON value of type {found} is not of expected type {wanted}\"",
                    at + 1
                ));
            }
        }
        if wrong.is_empty() {
            Ok(Self(values))
        } else {
            Err(Failure::new(WRONG_TYPE, format!("Wrong type passed:\n{{\n{}\n}}", wrong.join(",\n"))))
        }
    }

    pub fn get(&self, at: usize) -> &Value {
        self.0.get(at).unwrap_or(&Value::Null)
    }

    pub fn is_given(&self, at: usize) -> bool {
        !self.get(at).is_null()
    }

    pub fn text(&self, at: usize) -> &str {
        self.get(at).as_str().unwrap_or_default()
    }

    pub fn flag(&self, at: usize, otherwise: bool) -> bool {
        self.get(at).as_bool().unwrap_or(otherwise)
    }

    pub fn list(&self, at: usize) -> &[Value] {
        self.get(at).as_array().map_or(&[], Vec::as_slice)
    }

    pub fn integer(&self, at: usize) -> Result<i64, Failure> {
        let number = self.get(at).as_i64().filter(|number| i32::try_from(*number).is_ok());
        number.ok_or_else(|| Failure::new(MISC, "JSON integer out of range"))
    }

    /// A number, or a flag that stands for 1 or 0.
    pub fn verbosity(&self, at: usize, otherwise: i64) -> Result<i64, Failure> {
        match self.get(at) {
            Value::Null => Ok(otherwise),
            Value::Bool(flag) => Ok(i64::from(*flag)),
            Value::Number(_) => self.integer(at),
            other => Err(Failure::new(
                WRONG_TYPE,
                format!("JSON value of type {} is not of expected type number", type_name(other)),
            )),
        }
    }

    pub fn hash<T: FromStr>(&self, at: usize, name: &str) -> Result<T, Failure> {
        hash(self.text(at), name)
    }

    /// In coins for a thousand virtual bytes; 0.1 if nobody says otherwise. 0 is no limit.
    pub fn fee_rate(&self, at: usize) -> Result<Amount, Failure> {
        let rate = self.amount(at)?.unwrap_or(Amount::from_sat(10_000_000));
        if rate >= Amount::ONE_BTC {
            let message = "Fee rates larger than or equal to 1BTC/kvB are not accepted";
            return Err(Failure::new(BAD_PARAMETER, message));
        }
        Ok(rate)
    }

    pub fn amount(&self, at: usize) -> Result<Option<Amount>, Failure> {
        let text = match self.get(at) {
            Value::Null => return Ok(None),
            Value::Number(number) => number.to_string(),
            Value::String(text) => text.clone(),
            _ => return Err(Failure::new(WRONG_TYPE, "Amount is not a number or string")),
        };
        if text.starts_with('-') {
            return Err(Failure::new(WRONG_TYPE, "Amount out of range"));
        }
        let sat = satoshi(&text).ok_or_else(|| Failure::new(WRONG_TYPE, "Invalid amount"))?;
        let amount = Some(Amount::from_sat(sat)).filter(|amount| *amount <= Amount::MAX_MONEY);
        amount.map(Some).ok_or_else(|| Failure::new(WRONG_TYPE, "Amount out of range"))
    }
}

pub(super) fn hash<T: FromStr>(text: &str, name: &str) -> Result<T, Failure> {
    if text.len() != 64 {
        let message = format!("{name} must be of length 64 (not {}, for '{text}')", text.len());
        return Err(Failure::new(BAD_PARAMETER, message));
    }
    let bad = |_| Failure::new(BAD_PARAMETER, format!("{name} must be hexadecimal string (not '{text}')"));
    text.parse().map_err(bad)
}

/// `0.1`, `1e-5`: exactly, or not at all.
fn satoshi(text: &str) -> Option<u64> {
    let (digits, exponent) = match text.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() || !(whole.len() + fraction.len() <= 20 && exponent.abs() <= 20) {
        return None;
    }
    let mut value: u64 = format!("{whole}{fraction}").parse().ok()?;
    let mut power = 8 + exponent - i32::try_from(fraction.len()).ok()?;
    while power < 0 {
        if !value.is_multiple_of(10) {
            return None;
        }
        value /= 10;
        power += 1;
    }
    10_u64.checked_pow(u32::try_from(power).ok()?)?.checked_mul(value)
}
