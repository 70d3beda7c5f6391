//! The HTTP calls: `/wallet/…` sees the newest block, `/walletsolidity/…` the newest solidified one.

use alloy_primitives::hex;
use domain::Timestamp;
use serde_json::{Map, Value};

use super::block::Mined;
use super::check::{prefixed, unprefixed};
use super::refusal::{Failed, TronRefusal};
use super::render::{self, Object, Shown};
use super::state::Owner;
use super::transaction::{Id, Received, address_bytes, from_json, integer, unhex};
use super::{TronDevnet, token};
use crate::{Lie, View, Wire, WireReply};

/// `getblockbylimitnext` and `getblockbylatestnum` give no more.
const BLOCKS: i64 = 100;

/// The parameters of a call: the JSON body of a POST, or the query of a GET.
pub struct Call<'a> {
    pub view: &'a View,
    pub now: Timestamp,
    parameters: Map<String, Value>,
    pub visible: bool,
    /// The newest height that this call sees.
    pub top: u64,
    pub solid: bool,
}

impl Call<'_> {
    pub fn text(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).and_then(Value::as_str)
    }

    pub fn integer(&self, name: &str) -> Result<i64, Failed> {
        integer(&self.parameters, name)
    }

    pub fn flag(&self, name: &str) -> bool {
        truth(self.parameters.get(name))
    }

    /// The 21 bytes of an address, if it is one.
    pub fn owner(&self, name: &str) -> Result<Owner, Failed> {
        let text = self.text(name).unwrap_or_default();
        let bytes = address_bytes(text, self.visible).ok_or_else(|| {
            Failed::new("org.tron.core.services.http.JsonFormat$ParseException", "1:12: INVALID hex String")
        })?;
        unprefixed(&bytes).ok_or_else(|| Failed::new("java.lang.IllegalArgumentException", "Invalid address"))
    }

    fn id(&self, name: &str) -> Option<Id> {
        self.text(name).and_then(unhex)?.try_into().ok()
    }
}

fn truth(value: Option<&Value>) -> bool {
    match value {
        Some(Value::Bool(truth)) => *truth,
        Some(Value::String(text)) => text == "true",
        _ => false,
    }
}

type Reply = Result<String, Failed>;

impl TronDevnet {
    pub(super) fn call(&mut self, view: &View, wire: Wire<'_>, now: Timestamp) -> WireReply {
        let path = wire.path.trim_matches('/');
        let (family, name) = path.split_once('/').unwrap_or((path, ""));
        let parameters = match parameters(wire) {
            Ok(parameters) => parameters,
            Err(failed) => return reply(Err(failed)),
        };
        let visible = truth(parameters.get("visible"));
        self.extend_contradiction(view);
        let tip = self.tip().saturating_sub(view.lag);
        let solid = family == "walletsolidity";
        let top = if solid { tip.saturating_sub(self.settings.solid_depth) } else { tip };
        let call = Call { view, now, parameters, visible, top, solid };
        let answer = match family {
            "wallet" | "walletsolidity" => self.wallet(name, &call),
            "v1" => self.event_call(name, &call),
            _ => None,
        };
        match answer {
            Some(answer) => reply(answer),
            None => WireReply { status: 404, body: b"{\"Error\":\"no such call\"}".to_vec() },
        }
    }

    fn wallet(&mut self, name: &str, call: &Call<'_>) -> Option<Reply> {
        let name = name.to_ascii_lowercase();
        Some(match name.as_str() {
            "getnowblock" => Ok(self.block_json(call, call.top, true)),
            "getblock" => self.get_block(call),
            "getblockbynum" => call.integer("num").map(|height| self.block_at(call, height, true)),
            "getblockbyid" => Ok(self.block_by_id(call, call.id("value"), true)),
            "getblockbylimitnext" => self.block_range(call),
            "getblockbylatestnum" => self.latest_blocks(call),
            "gettransactionbyid" => Ok(self.transaction_json(call)),
            "gettransactioninfobyid" => Ok(self.info_json(call)),
            "gettransactioninfobyblocknum" => self.infos_of_block(call),
            "gettransactioncountbyblocknum" => call.integer("num").map(|height| {
                let block = u64::try_from(height).ok().filter(|height| *height <= call.top);
                let count = block.and_then(|height| self.block(height)).map_or(-1, |b| b.transactions.len() as i64);
                object(|o| o.raw("count", &count.to_string()))
            }),
            "getaccount" => self.get_account(call),
            "triggerconstantcontract" => self.trigger_constant(call),
            "estimateenergy" => self.estimate_energy(call),
            "getenergyprices" => Ok(self.prices_json(|rules| rules.energy_price)),
            "getbandwidthprices" => Ok(self.prices_json(|rules| rules.bandwidth_price)),
            "getnodeinfo" => Ok(self.node_info(call)),
            // The rest is not served for solidified blocks.
            _ if call.solid => return None,
            "broadcasttransaction" => self.broadcast_json(call),
            "broadcasthex" => self.broadcast_hex(call),
            "createtransaction" => self.create_transaction(call),
            "triggersmartcontract" => self.trigger(call),
            "getsignweight" => self.sign_weight(call),
            "getcontract" => self.get_contract(call),
            "getcontractinfo" => self.get_contract_info(call),
            "gettransactionfrompending" => Ok(self.pending_json(call)),
            "gettransactionlistfrompending" => Ok(object(|o| {
                render::list(o.key("txId"), &self.pool, |out, waiting| render::quoted_hex(out, &waiting.sent.id));
                o
            })),
            "getpendingsize" => Ok(object(|o| o.raw("pendingSize", &self.pool.len().to_string()))),
            "getaccountresource" | "getaccountnet" => self.get_resources(call),
            "getchainparameters" => Ok(self.chain_parameters()),
            "listnodes" => Ok("{}".to_owned()),
            "validateaddress" => Ok(validate_address(call)),
            _ => return None,
        })
    }

    fn get_block(&self, call: &Call<'_>) -> Reply {
        let detail = call.flag("detail");
        let asked = call.parameters.get("id_or_num");
        let text = match asked {
            None | Some(Value::Null) => return Ok(self.block_json(call, call.top, detail)),
            Some(Value::Number(number)) => number.to_string(),
            Some(Value::String(text)) if text.is_empty() => return Ok(self.block_json(call, call.top, detail)),
            Some(Value::String(text)) => text.clone(),
            Some(_) => return Err(Failed::new("java.lang.IllegalArgumentException", "id_or_num must be text")),
        };
        if text.len() == 64 {
            let id = unhex(&text).and_then(|bytes| bytes.try_into().ok());
            return Ok(self.block_by_id(call, id, detail));
        }
        match text.parse::<i64>() {
            Ok(height) => Ok(self.block_at(call, height, detail)),
            Err(_) => Err(Failed::new("java.lang.NumberFormatException", format!("For input string: \"{text}\""))),
        }
    }

    fn block_at(&self, call: &Call<'_>, height: i64, detail: bool) -> String {
        match u64::try_from(height) {
            Ok(height) if height <= call.top => self.block_json(call, height, detail),
            _ => "{}".to_owned(),
        }
    }

    fn block_by_id(&self, call: &Call<'_>, id: Option<Id>, detail: bool) -> String {
        let height = id.and_then(|id| Some((id, u64::from_be_bytes(*id.first_chunk()?))));
        match height {
            Some((id, height)) if height <= call.top && self.shown_id(call.view, height) == Some(id) => {
                self.block_json(call, height, detail)
            }
            _ => "{}".to_owned(),
        }
    }

    fn block_range(&self, call: &Call<'_>) -> Reply {
        let (start, end) = (call.integer("startNum")?, call.integer("endNum")?);
        if start < 0 || end <= start || end - start > BLOCKS {
            return Ok("{}".to_owned());
        }
        let heights = start.unsigned_abs()..end.unsigned_abs().min(call.top + 1);
        Ok(self.blocks_json(call, heights))
    }

    fn latest_blocks(&self, call: &Call<'_>) -> Reply {
        let count = call.integer("num")?;
        if !(1..BLOCKS).contains(&count) {
            return Ok("{}".to_owned());
        }
        let first = (call.top + 1).saturating_sub(count.unsigned_abs());
        Ok(self.blocks_json(call, first..call.top + 1))
    }

    fn blocks_json(&self, call: &Call<'_>, heights: std::ops::Range<u64>) -> String {
        if heights.is_empty() {
            return "{}".to_owned();
        }
        object(|o| {
            render::list(o.key("block"), heights, |out, height| self.write_block(out, call, height, true));
            o
        })
    }

    fn block_json(&self, call: &Call<'_>, height: u64, detail: bool) -> String {
        let mut out = String::new();
        self.write_block(&mut out, call, height, detail);
        out
    }

    fn write_block(&self, out: &mut String, call: &Call<'_>, height: u64, detail: bool) {
        let Some(block) = self.block(height) else { return out.push_str("{}") };
        let other = self.contradiction(call.view, height);
        let shown = match other {
            Some((id, header, witness_signature)) => Shown { id, header, witness_signature },
            None => Shown { id: &block.id, header: &block.header, witness_signature: &block.witness_signature },
        };
        render::block(out, &shown, detail.then_some(block), call.view.lie, call.visible);
    }

    /// A mined transaction that the call can see.
    fn mined(&self, call: &Call<'_>) -> Option<(&Mined, u64)> {
        let (height, place) = *self.index.get(&call.id("value")?)?;
        if height > call.top || call.view.lie == Lie::Missing {
            return None;
        }
        let block = self.block(height)?;
        Some((block.transactions.get(place).filter(|_| place < render::shown_of(block, call.view.lie))?, height))
    }

    fn transaction_json(&self, call: &Call<'_>) -> String {
        let mut out = String::new();
        match self.mined(call) {
            Some((mined, _)) => {
                let ret = render::flipped(mined.outcome.ret, call.view.lie).name();
                render::transaction(&mut out, &mined.sent, Some(ret), None, call.visible);
            }
            None => out.push_str("{}"),
        }
        out
    }

    fn info_json(&self, call: &Call<'_>) -> String {
        let mut out = String::new();
        match self.mined(call).and_then(|(mined, height)| Some((mined, self.block(height)?))) {
            Some((mined, block)) => {
                let lie = render::lie_about(block, mined, call.view.lie);
                render::info(&mut out, mined, &block.header, lie, call.visible);
            }
            None => out.push_str("{}"),
        }
        out
    }

    fn infos_of_block(&self, call: &Call<'_>) -> Reply {
        let height = call.integer("num")?;
        if height <= 0 {
            return Ok("{}".to_owned());
        }
        let mut out = String::new();
        let block = Some(height.unsigned_abs()).filter(|height| *height <= call.top && call.view.lie != Lie::Missing);
        match block.and_then(|height| self.block(height)) {
            Some(block) => {
                let shown = block.transactions.iter().take(render::shown_of(block, call.view.lie));
                render::list(&mut out, shown, |out, mined| {
                    let lie = render::lie_about(block, mined, call.view.lie);
                    render::info(out, mined, &block.header, lie, call.visible);
                });
            }
            None => out.push_str("[]"),
        }
        Ok(out)
    }

    fn pending_json(&self, call: &Call<'_>) -> String {
        let mut out = String::new();
        let id = call.id("value");
        match self.pool.iter().find(|waiting| Some(waiting.sent.id) == id) {
            Some(waiting) => render::transaction(&mut out, &waiting.sent, None, None, call.visible),
            None => out.push_str("{}"),
        }
        out
    }

    fn broadcast_json(&mut self, call: &Call<'_>) -> Reply {
        let sent = from_json(&call.parameters, call.visible)?;
        let id = sent.id;
        let result = self.broadcast(sent);
        Ok(object(|o| {
            if let Err(TronRefusal { code, message }) = &result {
                o.text("code", code);
                render::message(o, "message", message, call.visible);
            } else {
                o.raw("result", "true");
            }
            o.hex("txid", &id)
        }))
    }

    /// Its message is text, not hex, and it returns the transaction as text.
    fn broadcast_hex(&mut self, call: &Call<'_>) -> Reply {
        let bytes = call.text("transaction").and_then(unhex);
        let bytes = bytes.ok_or_else(|| {
            Failed::new("org.bouncycastle.util.encoders.DecoderException", "exception decoding Hex string")
        })?;
        let sent = Received::decode(&bytes)
            .map_err(|error| Failed::new("com.google.protobuf.InvalidProtocolBufferException", error.to_string()))?;
        let id = sent.id;
        let mut text = String::new();
        render::transaction(&mut text, &sent, None, None, true);
        let (code, message) = match self.broadcast(sent) {
            Ok(()) => ("SUCCESS", String::new()),
            Err(TronRefusal { code, message }) => (code, message),
        };
        Ok(object(|o| {
            o.raw("result", if code == "SUCCESS" { "true" } else { "false" })
                .text("code", code)
                .text("message", &message)
                .text("transaction", &text)
                .hex("txid", &id)
        }))
    }

    /// What wallets ask before they sign: the id, and which keys may.
    fn sign_weight(&self, call: &Call<'_>) -> Reply {
        let sent = from_json(&call.parameters, call.visible)?;
        let owner = unprefixed(sent.owner()).unwrap_or_default();
        let mut inner = String::new();
        render::transaction(&mut inner, &sent, None, None, call.visible);
        Ok(object(|o| {
            let mut result = Object::open(o.key("result"));
            result.text("code", "NOT_ENOUGH_PERMISSION");
            result.close();
            let mut permission = Object::open(o.key("permission"));
            render::list(permission.key("keys"), [owner], |out, owner| {
                let mut key = Object::open(out);
                key.address("address", &prefixed(&owner), call.visible).number("weight", 1);
                key.close();
            });
            permission.number("threshold", 1).text("permission_name", "owner");
            permission.close();
            let mut outer = Object::open(o.key("transaction"));
            outer.raw("result", "{\"result\":true}").hex("txid", &sent.id).raw("transaction", &inner);
            outer.close();
            o
        }))
    }

    /// The id of a block as an endpoint shows it.
    fn shown_id(&self, view: &View, height: u64) -> Option<Id> {
        match self.contradiction(view, height) {
            Some((id, ..)) => Some(*id),
            None => self.block(height).map(|block| block.id),
        }
    }

    pub(super) fn shown_name(&self, view: &View, height: u64) -> String {
        format!("Num:{height},ID:{}", hex::encode(self.shown_id(view, height).unwrap_or_default()))
    }
}

pub fn object(write: impl for<'a, 'b> FnOnce(&'b mut Object<'a>) -> &'b mut Object<'a>) -> String {
    let mut out = String::new();
    let mut object = Object::open(&mut out);
    write(&mut object);
    object.close();
    out
}

fn reply(answer: Reply) -> WireReply {
    let text = answer
        .unwrap_or_else(|failed| object(|o| o.text("Error", &format!("class {} : {}", failed.class, failed.message))));
    WireReply { status: 200, body: text.into_bytes() }
}

fn parameters(wire: Wire<'_>) -> Result<Map<String, Value>, Failed> {
    if wire.method == "POST" && !wire.body.is_empty() {
        return match serde_json::from_slice(wire.body) {
            Ok(Value::Object(map)) => Ok(map),
            Ok(_) => Err(Failed::new("com.alibaba.fastjson.JSONException", "can not cast to JSONObject.")),
            Err(error) => Err(Failed::new("com.alibaba.fastjson.JSONException", error.to_string())),
        };
    }
    let pairs = wire.query.split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    Ok(pairs.map(|(name, value)| (unescape(name), Value::String(unescape(value)))).collect())
}

/// `%2C` and the like, and `+` for a blank.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let code = tail.get(..2).and_then(|digits| hex::decode(digits).ok()).and_then(|code| code.first().copied());
        match (first, code) {
            (b'%', Some(code)) => {
                bytes.push(code);
                rest = &tail[2..];
            }
            (b'+', _) => {
                bytes.push(b' ');
                rest = tail;
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn validate_address(call: &Call<'_>) -> String {
    let text = call.text("address").unwrap_or_default();
    let (bytes, message) = match text.len() {
        42 => (address_bytes(text, false), "Hex string format"),
        34 => (address_bytes(text, true), "Base58check format"),
        28 => (None, "Base64 format"),
        _ => (None, "Length error"),
    };
    match bytes.as_deref().and_then(unprefixed) {
        Some(_) => object(|o| o.raw("result", "true").text("message", message)),
        None => {
            let message = if message == "Length error" { message } else { "Invalid address" };
            object(|o| o.raw("result", "false").text("message", message))
        }
    }
}

impl TronDevnet {
    fn get_contract(&self, call: &Call<'_>) -> Reply {
        Ok(if call.owner("value")? == token::TOKEN { contract_json(call.visible) } else { "{}".to_owned() })
    }

    fn get_contract_info(&self, call: &Call<'_>) -> Reply {
        if call.owner("value")? != token::TOKEN {
            return Ok("{}".to_owned());
        }
        Ok(object(|o| o.raw("smart_contract", &contract_json(call.visible)).raw("contract_state", "{}")))
    }
}

fn contract_json(visible: bool) -> String {
    let address = prefixed(&token::TOKEN);
    object(|o| {
        o.text("bytecode", "60806040")
            .number("consume_user_resource_percent", 100)
            .text("name", "TetherToken")
            .address("origin_address", &address, visible)
            .raw("abi", token::ABI)
            .number("origin_energy_limit", 10_000_000)
            .address("contract_address", &address, visible)
            .hex("code_hash", &alloy_primitives::keccak256(b"bursar devnet token").0)
    })
}
