//! JSON as java-tron prints it: fields of value zero are left out; addresses are hex, or base58 when `visible`.

use std::borrow::Cow;
use std::fmt::Write;

use alloy_primitives::{U256, hex};
use prost::Message as _;

use super::block::{Block, Mined};
use super::execute::{Execution, Ret};
use super::proto::{self, Header, Transfer};
use super::token::{self, Log};
use super::transaction::{Action, Id, Received};
use crate::Lie;
use tx::tron::TronAddress;

/// Writes the members of one object.
pub struct Object<'a> {
    out: &'a mut String,
    any: bool,
}

impl<'a> Object<'a> {
    pub fn open(out: &'a mut String) -> Self {
        out.push('{');
        Self { out, any: false }
    }

    pub fn close(self) {
        self.out.push('}');
    }

    /// For a value that the caller writes.
    pub fn key(&mut self, name: &str) -> &mut String {
        if self.any {
            self.out.push(',');
        }
        self.any = true;
        self.out.push('"');
        self.out.push_str(name);
        self.out.push_str("\":");
        self.out
    }

    pub fn raw(&mut self, name: &str, json: &str) -> &mut Self {
        self.key(name).push_str(json);
        self
    }

    /// Left out when it is zero.
    pub fn number(&mut self, name: &str, number: i64) -> &mut Self {
        if number != 0 {
            // Writing to a String cannot fail.
            write!(self.key(name), "{number}").ok();
        }
        self
    }

    pub fn text(&mut self, name: &str, text: &str) -> &mut Self {
        quote(self.key(name), text);
        self
    }

    /// Left out when it is empty.
    pub fn hex(&mut self, name: &str, bytes: &[u8]) -> &mut Self {
        if !bytes.is_empty() {
            quoted_hex(self.key(name), bytes);
        }
        self
    }

    pub fn address(&mut self, name: &str, bytes: &[u8], visible: bool) -> &mut Self {
        if visible && !bytes.is_empty() {
            let text = bitcoin::base58::encode_check(bytes);
            return self.text(name, &text);
        }
        self.hex(name, bytes)
    }
}

pub fn quote(out: &mut String, text: &str) {
    // A text always has a JSON form.
    out.push_str(&serde_json::to_string(text).unwrap_or_default());
}

pub fn quoted_hex(out: &mut String, bytes: &[u8]) {
    out.push('"');
    out.push_str(&hex::encode(bytes));
    out.push('"');
}

pub fn list<T>(out: &mut String, items: impl IntoIterator<Item = T>, mut each: impl FnMut(&mut String, T)) {
    out.push('[');
    for (place, item) in items.into_iter().enumerate() {
        if place > 0 {
            out.push(',');
        }
        each(out, item);
    }
    out.push(']');
}

/// How many of a block's transactions a lying endpoint shows.
pub fn shown_of(block: &Block, lie: Lie) -> usize {
    block.transactions.len().saturating_sub(usize::from(lie == Lie::TransactionLeftOut))
}

/// What an endpoint that leaves out the last log of a block says about one transaction of it.
pub fn lie_about(block: &Block, mined: &Mined, lie: Lie) -> Lie {
    let last = block.transactions.iter().rev().find(|one| !one.outcome.logs.is_empty());
    match lie {
        Lie::LogLeftOut if last.is_none_or(|last| last.sent.id != mined.sent.id) => Lie::Truth,
        lie => lie,
    }
}

/// What a lying endpoint makes of an outcome.
pub fn told(mined: &Mined, lie: Lie) -> Execution {
    let mut outcome = mined.outcome.clone();
    match lie {
        Lie::Truth | Lie::Missing | Lie::TransactionLeftOut | Lie::ValueInflated | Lie::Swapped => {}
        Lie::LogLeftOut => {
            outcome.logs.pop();
        }
        Lie::Inflated => {
            for log in &mut outcome.logs {
                let amount = U256::from_be_slice(&log.data[log.data.len().saturating_sub(32)..]);
                log.data = amount.saturating_mul(U256::from(10)).to_be_bytes_vec();
            }
        }
        Lie::Flipped if outcome.ret == Ret::Success => {
            outcome.ret = Ret::Revert;
            outcome.logs.clear();
            outcome.output.clear();
            outcome.message = "REVERT opcode executed".to_owned();
        }
        Lie::Flipped => {
            outcome.ret = Ret::Success;
            outcome.message.clear();
            outcome.output = U256::from(1).to_be_bytes_vec();
            outcome.logs = claimed_logs(&mined.sent);
        }
    }
    outcome
}

/// The logs that a call would have had.
fn claimed_logs(sent: &Received) -> Vec<Log> {
    let Action::Trigger(trigger) = &sent.action else { return Vec::new() };
    let from = super::check::unprefixed(&trigger.owner_address);
    let claimed = from.zip(token::transfer_arguments(&trigger.data));
    claimed.map(|(from, (to, amount))| token::transfer_log(&from, &to, amount)).into_iter().collect()
}

/// A block's header as an endpoint shows it.
pub struct Shown<'a> {
    pub id: &'a Id,
    pub header: &'a Header,
    pub witness_signature: &'a [u8; 65],
}

pub fn block(out: &mut String, shown: &Shown<'_>, transactions: Option<&Block>, lie: Lie, visible: bool) {
    let mut object = Object::open(out);
    object.hex("blockID", shown.id);
    let header = shown.header;
    let mut outer = Object::open(object.key("block_header"));
    let mut raw = Object::open(outer.key("raw_data"));
    raw.number("number", header.number)
        .hex("txTrieRoot", &header.tx_trie_root)
        .address("witness_address", &header.witness_address, visible)
        .hex("parentHash", &header.parent_hash)
        .number("version", header.version.into())
        .number("timestamp", header.timestamp);
    raw.close();
    outer.hex("witness_signature", shown.witness_signature);
    outer.close();
    if let Some(block) = transactions.filter(|block| shown_of(block, lie) > 0) {
        list(object.key("transactions"), in_order(block, lie), |out, mined| {
            let sent = claimed(&mined.sent, lie);
            transaction(out, &sent, Some(flipped(mined.outcome.ret, lie).name()), None, visible);
        });
    }
    object.close();
}

/// The transactions of a block as an endpoint lines them up.
fn in_order(block: &Block, lie: Lie) -> Vec<&Mined> {
    let mut order: Vec<&Mined> = block.transactions.iter().take(shown_of(block, lie)).collect();
    let count = order.len();
    if lie == Lie::Swapped && count > 1 {
        order.swap(count - 2, count - 1);
    }
    order
}

/// A transaction as an endpoint shows it in its block: with ten times the amount, and its old name.
fn claimed(sent: &Received, lie: Lie) -> Cow<'_, Received> {
    let (Lie::ValueInflated, Action::Transfer(transfer)) = (lie, &sent.action) else { return Cow::Borrowed(sent) };
    let transfer = Transfer { amount: transfer.amount.saturating_mul(10), ..transfer.clone() };
    let mut raw = sent.raw.clone();
    if let Some(parameter) = raw.contract.first_mut().and_then(|contract| contract.parameter.as_mut()) {
        parameter.value = transfer.encode_to_vec();
    }
    Cow::Owned(Received { id: sent.id, ..Received::new(raw, sent.signatures.clone()) })
}

pub fn flipped(ret: Ret, lie: Lie) -> Ret {
    match (lie, ret) {
        (Lie::Flipped, Ret::Success) => Ret::Revert,
        (Lie::Flipped, Ret::Revert | Ret::OutOfEnergy) => Ret::Success,
        (
            Lie::Truth
            | Lie::Missing
            | Lie::Inflated
            | Lie::LogLeftOut
            | Lie::TransactionLeftOut
            | Lie::ValueInflated
            | Lie::Swapped,
            ret,
        ) => ret,
    }
}

/// `ret`: the result, of a mined one. `mark`: the field `visible`, of one that was just made.
pub fn transaction(out: &mut String, sent: &Received, ret: Option<&str>, mark: Option<bool>, visible: bool) {
    let mut object = Object::open(out);
    if let Some(ret) = ret {
        object.raw("ret", &format!("[{{\"contractRet\":\"{ret}\"}}]"));
    }
    if let Some(mark) = mark {
        object.raw("visible", if mark { "true" } else { "false" });
    }
    if !sent.signatures.is_empty() {
        list(object.key("signature"), &sent.signatures, |out, signature| quoted_hex(out, signature));
    }
    object.hex("txID", &sent.id);
    let mut raw = Object::open(object.key("raw_data"));
    list(raw.key("contract"), &sent.raw.contract, |out, contract| write_contract(out, contract, &sent.action, visible));
    raw.hex("ref_block_bytes", &sent.raw.ref_block_bytes)
        .hex("ref_block_hash", &sent.raw.ref_block_hash)
        .number("ref_block_num", sent.raw.ref_block_num)
        .number("expiration", sent.raw.expiration)
        .hex("data", &sent.raw.data)
        .hex("scripts", &sent.raw.scripts)
        .number("fee_limit", sent.raw.fee_limit)
        .number("timestamp", sent.raw.timestamp);
    raw.close();
    quoted_hex(object.key("raw_data_hex"), &sent.raw_bytes);
    object.close();
}

fn write_contract(out: &mut String, contract: &proto::Contract, action: &Action, visible: bool) {
    let mut object = Object::open(out);
    let mut parameter = Object::open(object.key("parameter"));
    let mut value = Object::open(parameter.key("value"));
    let kind = match action {
        Action::Transfer(transfer) => {
            value.number("amount", transfer.amount).address("owner_address", &transfer.owner_address, visible).address(
                "to_address",
                &transfer.to_address,
                visible,
            );
            "TransferContract"
        }
        Action::Trigger(trigger) => {
            value
                .hex("data", &trigger.data)
                .address("owner_address", &trigger.owner_address, visible)
                .address("contract_address", &trigger.contract_address, visible)
                .number("call_value", trigger.call_value)
                .number("call_token_value", trigger.call_token_value)
                .number("token_id", trigger.token_id);
            "TriggerSmartContract"
        }
        Action::Other => "UNRECOGNIZED",
    };
    value.close();
    parameter.text("type_url", contract.parameter.as_ref().map_or("", |parameter| &parameter.type_url));
    parameter.close();
    object.text("type", kind);
    object.number("Permission_id", contract.permission_id.into());
    object.close();
}

pub fn info(out: &mut String, mined: &Mined, header: &Header, lie: Lie, visible: bool) {
    let outcome = told(mined, lie);
    let mut object = Object::open(out);
    object
        .hex("id", &mined.sent.id)
        .number("fee", outcome.fee)
        .number("blockNumber", header.number)
        .number("blockTimeStamp", header.timestamp);
    list(object.key("contractResult"), [&outcome.output], |out, output| quoted_hex(out, output));
    if let Some(contract) = outcome.contract {
        object.address("contract_address", &super::check::prefixed(&contract), visible);
    }
    let mut receipt = Object::open(object.key("receipt"));
    receipt
        .number("energy_fee", outcome.energy_fee)
        .number("energy_usage_total", outcome.energy_used)
        .number("net_usage", outcome.net_usage)
        .number("net_fee", outcome.net_fee);
    if outcome.contract.is_some() {
        receipt.text("result", outcome.ret.name());
    }
    receipt.close();
    if !outcome.logs.is_empty() {
        list(object.key("log"), &outcome.logs, |out, log| write_log(out, log, visible));
    }
    if outcome.ret != Ret::Success {
        object.text("result", "FAILED");
        message(&mut object, "resMessage", &outcome.message, visible);
    }
    object.close();
}

fn write_log(out: &mut String, log: &Log, visible: bool) {
    let mut object = Object::open(out);
    if visible {
        object.text("address", &TronAddress(log.contract).to_string());
    } else {
        object.hex("address", &log.contract);
    }
    list(object.key("topics"), &log.topics, |out, topic| quoted_hex(out, topic));
    object.hex("data", &log.data);
    object.close();
}

/// Messages are bytes: hex, or text when `visible`.
pub fn message(object: &mut Object<'_>, name: &str, text: &str, visible: bool) {
    if visible {
        object.text(name, text);
    } else {
        object.hex(name, text.as_bytes());
    }
}
