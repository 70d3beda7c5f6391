//! Bitcoin Core's JSON-RPC: the forms 1.0, 1.1 and 2.0, batches, named arguments, and Core's errors word for word where
//! a program may read them.

mod arguments;
mod blocks;
mod mempool;
mod mining;
mod node;
mod send;
mod transactions;

use domain::Timestamp;
use serde_json::Value;

use super::super::{View, Wire, WireReply};
use super::BitcoinDevnet;
use super::json::{Json, object};
use arguments::{Argument, Arguments, Kind, may, must};

/// No batch is longer than this.
const BATCH: usize = 10_000;

const MISC: i32 = -1;
const WRONG_TYPE: i32 = -3;
const UNKNOWN: i32 = -5;
const BAD_PARAMETER: i32 = -8;
const UNDECODABLE: i32 = -22;
const VERIFY: i32 = -25;
const REJECTED: i32 = -26;
const ALREADY_MINED: i32 = -27;
const BAD_REQUEST: i32 = -32_600;
const NO_METHOD: i32 = -32_601;
const UNPARSABLE: i32 = -32_700;

pub(super) struct Failure {
    code: i32,
    message: String,
}

impl Failure {
    fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

pub(super) type RpcResult = Result<Json, Failure>;

/// One call: the state, the endpoint that was asked, the arguments and the time.
struct Call<'a> {
    net: &'a mut BitcoinDevnet,
    view: &'a View,
    arguments: Arguments,
    now: Timestamp,
}

type Method = (&'static str, &'static [Argument], fn(&mut Call<'_>) -> RpcResult);

const HASH: Argument = must("blockhash", Kind::Text);
const TXID: Argument = must("txid", Kind::Text);
const RATE: Argument = may("maxfeerate", Kind::Any);
const BURN: Argument = may("maxburnamount", Kind::Any);

static METHODS: &[Method] = &[
    ("getblockchaininfo", &[], node::chain_info),
    ("getblockcount", &[], blocks::count),
    ("getbestblockhash", &[], blocks::best_hash),
    ("getblockhash", &[must("height", Kind::Number)], blocks::hash),
    ("getblockheader", &[HASH, may("verbose", Kind::Flag)], blocks::header),
    ("getblock", &[HASH, may("verbosity|verbose", Kind::Any)], blocks::block),
    ("getchaintips", &[], blocks::tips),
    ("getdifficulty", &[], node::difficulty),
    ("getnetworkinfo", &[], node::network_info),
    ("getconnectioncount", &[], node::connections),
    ("getindexinfo", &[may("index_name", Kind::Text)], node::index_info),
    ("uptime", &[], node::uptime),
    ("help", &[may("command", Kind::Text)], node::help),
    ("validateaddress", &[must("address", Kind::Text)], node::validate_address),
    ("estimatesmartfee", &[must("conf_target", Kind::Number), may("estimate_mode", Kind::Text)], node::estimate_fee),
    (
        "getrawtransaction",
        &[TXID, may("verbosity|verbose", Kind::Any), may("blockhash", Kind::Text)],
        transactions::raw_transaction,
    ),
    ("decoderawtransaction", &[must("hexstring", Kind::Text), may("iswitness", Kind::Flag)], transactions::decode),
    ("decodescript", &[must("hexstring", Kind::Text)], transactions::decode_script),
    ("gettxout", &[TXID, must("n", Kind::Number), may("include_mempool", Kind::Flag)], transactions::output),
    ("gettxoutsetinfo", &[may("hash_type", Kind::Text)], transactions::set_info),
    ("scantxoutset", &[must("action", Kind::Text), may("scanobjects", Kind::List)], transactions::scan),
    ("sendrawtransaction", &[must("hexstring", Kind::Text), RATE, BURN], send::send),
    ("testmempoolaccept", &[must("rawtxs", Kind::List), RATE], send::test),
    ("submitpackage", &[must("package", Kind::List), RATE, BURN], send::package),
    ("getmempoolinfo", &[], mempool::info),
    ("getrawmempool", &[may("verbose", Kind::Flag), may("mempool_sequence", Kind::Flag)], mempool::all),
    ("getmempoolentry", &[TXID], mempool::entry),
    ("getmempoolancestors", &[TXID, may("verbose", Kind::Flag)], mempool::ancestors),
    ("getmempooldescendants", &[TXID, may("verbose", Kind::Flag)], mempool::descendants),
    ("gettxspendingprevout", &[must("outputs", Kind::List), may("options", Kind::Object)], mempool::spending),
    (
        "generatetoaddress",
        &[must("nblocks", Kind::Number), must("address", Kind::Text), may("maxtries", Kind::Number)],
        mining::to_address,
    ),
    (
        "generatetodescriptor",
        &[must("num_blocks", Kind::Number), must("descriptor", Kind::Text), may("maxtries", Kind::Number)],
        mining::to_descriptor,
    ),
    (
        "generateblock",
        &[must("output", Kind::Text), must("transactions", Kind::List), may("submit", Kind::Flag)],
        mining::block,
    ),
    ("invalidateblock", &[HASH], mining::invalidate),
    ("reconsiderblock", &[HASH], mining::reconsider),
];

pub(super) fn answer(net: &mut BitcoinDevnet, view: &View, wire: Wire<'_>, now: Timestamp) -> WireReply {
    net.since.get_or_insert(now);
    // A node without a wallet has but one path.
    if wire.path != "/" {
        return WireReply { status: 404, body: Vec::new() };
    }
    if wire.method != "POST" {
        return WireReply { status: 405, body: b"JSONRPC server handles only POST requests".to_vec() };
    }
    let (status, json) = match serde_json::from_slice(wire.body) {
        Err(_) => refuse(None, false, Failure::new(UNPARSABLE, "Parse error")),
        Ok(Value::Array(requests)) if requests.len() > BATCH => {
            refuse(None, false, Failure::new(UNPARSABLE, "this batch is too long for a devnet"))
        }
        Ok(Value::Array(requests)) => {
            let empty = requests.is_empty();
            let replies = requests.into_iter().map(|request| single(net, view, request, now));
            let replies: Vec<Json> = replies.filter_map(|(_, reply)| reply).collect();
            if replies.is_empty() && !empty { (204, None) } else { (200, Some(Json::Array(replies))) }
        }
        Ok(request @ Value::Object(_)) => single(net, view, request, now),
        Ok(_) => refuse(None, false, Failure::new(UNPARSABLE, "Top-level object parse error")),
    };
    let mut body = Vec::new();
    if let Some(json) = json {
        json.write(&mut body);
        body.push(b'\n');
    }
    WireReply { status, body }
}

fn single(net: &mut BitcoinDevnet, view: &View, request: Value, now: Timestamp) -> (u16, Option<Json>) {
    let Value::Object(mut fields) = request else {
        return refuse(None, false, Failure::new(BAD_REQUEST, "Invalid Request object"));
    };
    let id = fields.remove("id");
    let new = match fields.remove("jsonrpc") {
        None | Some(Value::Null) => false,
        Some(Value::String(version)) if version == "1.0" => false,
        Some(Value::String(version)) if version == "2.0" => true,
        Some(Value::String(_)) => {
            return refuse(id, false, Failure::new(BAD_REQUEST, "JSON-RPC version not supported"));
        }
        Some(_) => return refuse(id, false, Failure::new(BAD_REQUEST, "jsonrpc field must be a string")),
    };
    let method = match fields.remove("method") {
        Some(Value::String(method)) => method,
        None | Some(Value::Null) => return malformed(id, new, "Missing method"),
        Some(_) => return malformed(id, new, "Method must be a string"),
    };
    let parameters = match fields.remove("params") {
        None | Some(Value::Null) => Value::Array(Vec::new()),
        Some(parameters @ (Value::Array(_) | Value::Object(_))) => parameters,
        Some(_) => return malformed(id, new, "Params must be an array or object"),
    };
    let outcome = run(net, view, &method, parameters, now);
    if new && id.is_none() {
        // A notification: done, and not spoken of.
        return (204, None);
    }
    match outcome {
        Err(failure) => refuse(id, new, failure),
        Ok(result) if new => (200, Some(with_id(object! { "jsonrpc" => "2.0", "result" => result }, id))),
        Ok(result) => (200, Some(with_id(object! { "result" => result, "error" => Json::Null }, id))),
    }
}

fn run(net: &mut BitcoinDevnet, view: &View, method: &str, parameters: Value, now: Timestamp) -> RpcResult {
    let found = METHODS.iter().find(|(name, _, _)| *name == method);
    let (name, expected, run) = found.ok_or_else(|| Failure::new(NO_METHOD, "Method not found"))?;
    let arguments = Arguments::read(name, expected, parameters)?;
    run(&mut Call { net, view, arguments, now })
}

fn with_id(mut reply: Json, id: Option<Value>) -> Json {
    if let Some(id) = id {
        reply.push("id", Json::Echo(id));
    }
    reply
}

/// A request that cannot be read has a status of its own even in the form 2.0.
fn malformed(id: Option<Value>, new: bool, message: &str) -> (u16, Option<Json>) {
    let (_, reply) = refuse(id, new, Failure::new(BAD_REQUEST, message));
    (400, reply)
}

fn refuse(id: Option<Value>, new: bool, failure: Failure) -> (u16, Option<Json>) {
    let status = match failure.code {
        _ if new => 200,
        BAD_REQUEST => 400,
        NO_METHOD => 404,
        _ => 500,
    };
    let error = object! { "code" => failure.code, "message" => failure.message };
    let reply = if new {
        object! { "jsonrpc" => "2.0", "error" => error }
    } else {
        object! { "result" => Json::Null, "error" => error }
    };
    // What could not be read has the id null.
    let id = id.or((failure.code == UNPARSABLE).then_some(Value::Null));
    (status, Some(with_id(reply, id)))
}
