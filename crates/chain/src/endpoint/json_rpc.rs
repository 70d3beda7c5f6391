//! JSON-RPC 2.0, single and batched, as Ethereum's nodes and Bitcoin Core speak it.
//!
//! Answers are read straight from the bytes. `serde_json` stops at 128 levels, so a depth bomb is a bad answer.

use std::fmt;

use bytes::Bytes;
use serde::de::{DeserializeOwned, DeserializeSeed, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::node::Reply;
use super::{CallError, Node};

/// "Limit exceeded" in Ethereum's list of errors; some providers put HTTP's number there.
const LIMIT_EXCEEDED: [i64; 2] = [-32_005, 429];

#[derive(Serialize)]
struct Call<'a> {
    jsonrpc: &'static str,
    id: usize,
    method: &'a str,
    params: &'a Value,
}

#[derive(Deserialize)]
struct Response<'a> {
    #[serde(default)]
    id: Id,
    /// `None` only when it is missing; `null` is a result.
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

#[derive(Default, Deserialize)]
#[serde(untagged)]
enum Id {
    Number(u64),
    Text(String),
    #[default]
    Missing,
}

impl Id {
    fn number(&self) -> Option<usize> {
        match self {
            Self::Number(number) => usize::try_from(*number).ok(),
            Self::Text(text) => text.parse().ok(),
            Self::Missing => None,
        }
    }
}

#[derive(Deserialize)]
struct RpcError {
    #[serde(default)]
    code: i64,
    #[serde(default)]
    message: String,
}

/// One call. `null` is an answer: read it into an `Option`.
pub async fn call<T: DeserializeOwned>(node: &Node, method: &str, params: Value) -> Result<T, CallError> {
    call_by_reference(node, method, &params).await
}

async fn call_by_reference<T: DeserializeOwned>(node: &Node, method: &str, params: &Value) -> Result<T, CallError> {
    let body = body_of(node, &Call { jsonrpc: "2.0", id: 0, method, params })?;
    let reply = node.send("", body, 1).await?;
    let response = single(node, &reply)?;
    // Some leave the id out when they refuse before reading it.
    if !matches!(response.id, Id::Missing) && response.id.number() != Some(0) {
        return Err(node.bad("the answer is to another call"));
    }
    read(node, &reply, &response)
}

/// Many calls in as few requests as the node takes, answered in their order.
pub async fn batch<T: DeserializeOwned>(
    node: &Node,
    calls: &[(&str, Value)],
) -> Result<Vec<Result<T, CallError>>, CallError> {
    let mut answers = Vec::with_capacity(calls.len());
    let mut rest = calls;
    let mut most = node.batch();
    // Each round answers at least one call or halves `most`, which grows again only between batches.
    while !rest.is_empty() {
        let (now, later) = rest.split_at(rest.len().min(most.max(1)));
        if let [(method, params)] = now {
            // Alone it goes as a plain call, for nodes that take no batches at all.
            match call_by_reference(node, method, params).await {
                answer @ (Ok(_) | Err(CallError::Refused { .. } | CallError::BadAnswer { .. })) => answers.push(answer),
                Err(error) => return Err(error),
            }
        } else {
            match together(node, now).await? {
                Some(answered) => answers.extend(answered),
                None => {
                    node.batch_refused(now.len());
                    most = now.len() / 2;
                    continue;
                }
            }
        }
        if now.len() == node.batch() {
            node.batch_fits(now.len());
        }
        rest = later;
    }
    Ok(answers)
}

/// Sends the requests of [`batch`] and reads no answer: what the transport alone costs. How many bytes came back.
pub async fn batch_unread(node: &Node, calls: &[(&str, Value)]) -> Result<u64, CallError> {
    let (mut bytes, mut rest) = (0_u64, calls);
    let mut most = node.batch();
    while !rest.is_empty() {
        let (now, later) = rest.split_at(rest.len().min(most.max(1)));
        let reply = if let [(method, params)] = now {
            let body = body_of(node, &Call { jsonrpc: "2.0", id: 0, method, params })?;
            node.send("", body, 1).await?
        } else if let Some(reply) = send_together(node, now).await?.filter(|reply| !is_object(reply)) {
            reply
        } else {
            node.batch_refused(now.len());
            most = now.len() / 2;
            continue;
        };
        if !reply.status.is_success() {
            return Err(node.bad(format!("HTTP {}", reply.status.as_u16())));
        }
        bytes = bytes.saturating_add(u64::try_from(reply.body.len()).unwrap_or(u64::MAX));
        rest = later;
    }
    Ok(bytes)
}

/// `None`: the node refuses so long a request, or so long an answer.
async fn send_together(node: &Node, calls: &[(&str, Value)]) -> Result<Option<Reply>, CallError> {
    let numbered = calls.iter().enumerate();
    let request: Vec<Call> =
        numbered.map(|(id, (method, params))| Call { jsonrpc: "2.0", id, method, params }).collect();
    match node.send("", body_of(node, &request)?, calls.len()).await {
        Err(CallError::TooLong { .. }) => Ok(None),
        Ok(reply) if reply.status == hyper::StatusCode::PAYLOAD_TOO_LARGE => Ok(None),
        reply => reply.map(Some),
    }
}

/// One request. `None`: the node refuses so many calls at once, or so long an answer.
async fn together<T: DeserializeOwned>(
    node: &Node,
    calls: &[(&str, Value)],
) -> Result<Option<Vec<Result<T, CallError>>>, CallError> {
    let Some(reply) = send_together(node, calls).await? else { return Ok(None) };
    if is_object(&reply) {
        return match read::<T>(node, &reply, &single(node, &reply)?) {
            Err(CallError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
            Ok(_) => Err(node.bad("one answer to many calls")),
        };
    }
    let mut slots: Vec<Option<Response>> = Vec::new();
    slots.resize_with(calls.len(), || None);
    let mut deserializer = serde_json::Deserializer::from_slice(&reply.body);
    Slots(&mut slots)
        .deserialize(&mut deserializer)
        .and_then(|()| deserializer.end())
        .map_err(|error| unreadable(node, &reply, &error.to_string()))?;
    let responses: Option<Vec<Response>> = slots.into_iter().collect();
    let responses = responses.ok_or_else(|| node.bad("there are fewer answers than calls"))?;
    Ok(Some(responses.iter().map(|response| read(node, &reply, response)).collect()))
}

/// Puts each answer in the place of its call. It keeps no more than it has places for, however long the list is.
struct Slots<'s, 'de>(&'s mut [Option<Response<'de>>]);

impl<'de> DeserializeSeed<'de> for Slots<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Slots<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list with an answer to each call")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        use serde::de::Error;
        while let Some(response) = list.next_element::<Response>()? {
            let slot = response.id.number().and_then(|id| self.0.get_mut(id));
            let slot = slot.ok_or_else(|| A::Error::custom("an answer to no call"))?;
            if slot.replace(response).is_some() {
                return Err(A::Error::custom("two answers to one call"));
            }
        }
        Ok(())
    }
}

fn is_object(reply: &Reply) -> bool {
    reply.body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{')
}

fn single<'a>(node: &Node, reply: &'a Reply) -> Result<Response<'a>, CallError> {
    // Serde would read a list as the members in their order.
    if !is_object(reply) {
        return Err(unreadable(node, reply, "the answer is no object"));
    }
    serde_json::from_slice(&reply.body).map_err(|error| unreadable(node, reply, &error.to_string()))
}

fn body_of(node: &Node, request: &impl Serialize) -> Result<Bytes, CallError> {
    serde_json::to_vec(request).map(Bytes::from).map_err(|_| node.bad("the call cannot be written as JSON"))
}

fn unreadable(node: &Node, reply: &Reply, what: &str) -> CallError {
    if reply.status.is_success() {
        node.bad(what)
    } else {
        node.bad(format!("HTTP {}, and no JSON-RPC", reply.status.as_u16()))
    }
}

fn read<T: DeserializeOwned>(node: &Node, reply: &Reply, response: &Response) -> Result<T, CallError> {
    if let Some(error) = response.error {
        let RpcError { code, message } = rpc_error(error);
        return Err(if LIMIT_EXCEEDED.contains(&code) && !too_much_asked(&message) {
            node.rate_limited(None)
        } else {
            node.refused(code, &message)
        });
    }
    if !reply.status.is_success() {
        return Err(node.bad(format!("HTTP {} without an error", reply.status.as_u16())));
    }
    let result = response.result.ok_or_else(|| node.bad("neither a result nor an error"))?;
    serde_json::from_str(result.get()).map_err(|error| node.bad(error.to_string()))
}

/// Errors that keep to no form are still refusals.
fn rpc_error(error: &RawValue) -> RpcError {
    let members = if error.get().starts_with('{') { serde_json::from_str(error.get()).ok() } else { None };
    members.unwrap_or_else(|| {
        let message = serde_json::from_str(error.get()).unwrap_or_else(|_| "an error without a message".to_owned());
        RpcError { code: 0, message }
    })
}

/// Infura and others say "limit exceeded" of one call that asks for too much, too. Waiting does not help there.
fn too_much_asked(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    ["results", "range", "blocks", "logs", "response size"].iter().any(|word| message.contains(word))
}
