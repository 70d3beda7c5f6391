//! JSON-RPC 2.0 over `POST /`: one call, or a batch.

use domain::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::EvmDevnet;
use super::methods;
use super::parameters::RpcError;
use crate::{View, Wire, WireReply};

/// As geth has it.
const LARGEST_BATCH: usize = 1_000;
const LARGEST_REPLY: usize = 25 << 20;

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(default)]
    jsonrpc: Option<String>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    params: Option<Value>,
}

/// A null id is an id, other than none at all.
fn present<'de: 'a, 'a, D: serde::Deserializer<'de>>(value: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(value).map(Some)
}

pub(super) fn answer(devnet: &mut EvmDevnet, view: &View, wire: Wire<'_>, now: Timestamp) -> WireReply {
    if wire.path != "/" && !wire.path.is_empty() {
        return WireReply { status: 404, body: b"404 page not found\n".to_vec() };
    }
    match wire.method {
        "POST" => {}
        // Load balancers ask so whether a node lives.
        "GET" if wire.body.is_empty() => return WireReply { status: 200, body: Vec::new() },
        _ => return WireReply { status: 405, body: b"method not allowed\n".to_vec() },
    }
    WireReply { status: 200, body: answer_text(devnet, view, wire.body, now).into_bytes() }
}

fn answer_text(devnet: &mut EvmDevnet, view: &View, body: &[u8], now: Timestamp) -> String {
    let Ok(text) = serde_json::from_slice::<&RawValue>(body) else {
        return refusal("null", &RpcError::new(-32_700, "parse error"));
    };
    if !text.get().starts_with('[') {
        return answer_one(devnet, view, text, now).unwrap_or_default();
    }
    let Ok(calls) = serde_json::from_str::<Vec<&RawValue>>(text.get()) else {
        return refusal("null", &RpcError::new(-32_700, "parse error"));
    };
    if calls.is_empty() {
        return refusal("null", &RpcError::new(-32_600, "empty batch"));
    }
    if calls.len() > LARGEST_BATCH {
        return refusal("null", &RpcError::new(-32_600, "batch too large"));
    }
    let mut out = String::from("[");
    for call in calls {
        let answer = match out.len() > LARGEST_REPLY {
            true => Some(refusal(id_of(call), &RpcError::new(-32_003, "response too large"))),
            false => answer_one(devnet, view, call, now),
        };
        if let Some(answer) = answer {
            if out.len() > 1 {
                out.push(',');
            }
            out.push_str(&answer);
        }
    }
    // A batch of notifications has no answer at all.
    if out.len() == 1 {
        return String::new();
    }
    out.push(']');
    out
}

fn id_of(call: &RawValue) -> &str {
    let call = serde_json::from_str::<Call<'_>>(call.get());
    call.ok().and_then(|call| call.id).map_or("null", RawValue::get)
}

/// None for a notification, which nobody wants answered.
fn answer_one(devnet: &mut EvmDevnet, view: &View, call: &RawValue, now: Timestamp) -> Option<String> {
    let invalid = || RpcError::new(-32_600, "invalid request");
    let Ok(call) = serde_json::from_str::<Call<'_>>(call.get()) else { return Some(refusal("null", &invalid())) };
    let id = match call.id {
        None if call.method.is_some() => return None,
        None => "null",
        Some(id) => id.get(),
    };
    if id.starts_with(['{', '[', 't', 'f']) {
        return Some(refusal("null", &invalid()));
    }
    let (Some(method), Some("2.0")) = (&call.method, call.jsonrpc.as_deref()) else {
        return Some(refusal(id, &invalid()));
    };
    let result = match call.params {
        None | Some(Value::Null) => methods::answer(devnet, view, method, Vec::new(), now),
        Some(Value::Array(params)) => methods::answer(devnet, view, method, params, now),
        Some(_) => Err(RpcError::new(-32_602, "non-array args")),
    };
    Some(match result {
        Ok(result) => format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}"),
        Err(error) => refusal(id, &error),
    })
}

fn refusal(id: &str, error: &RpcError) -> String {
    let mut body = serde_json::json!({ "code": error.code, "message": error.message });
    if let (Some(data), Some(fields)) = (&error.data, body.as_object_mut()) {
        fields.insert("data".to_owned(), Value::from(data.clone()));
    }
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{body}}}")
}
