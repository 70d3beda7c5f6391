//! Calls that make an unsigned transaction, or run a call without one.

use alloy_primitives::keccak256;

use super::TronDevnet;
use super::calls::{Call, object};
use super::check::{prefixed, unprefixed};
use super::execute::{self, check_call, simulate, transfer_parties};
use super::proto::{self, Raw, Transfer, Trigger};
use super::refusal::Failed;
use super::render::{self, Object};
use super::state::{Owner, Slot, State};
use super::token::{self, Called};
use super::transaction::{Received, unhex};

/// `trx.expiration.timeInMilliseconds`.
const LIFE_MS: i64 = 60_000;

type Reply = Result<String, Failed>;

impl TronDevnet {
    pub(super) fn create_transaction(&mut self, call: &Call<'_>) -> Reply {
        let transfer = Transfer {
            owner_address: prefixed(&call.owner("owner_address")?).to_vec(),
            to_address: prefixed(&call.owner("to_address")?).to_vec(),
            amount: call.integer("amount")?,
        };
        transfer_parties(&self.state, &transfer).map_err(Failed::validate)?;
        let mut raw = Raw::holding(proto::TRANSFER, Transfer::URL, &transfer);
        if let Some(memo) = call.text("extra_data") {
            raw.data = if call.visible { memo.as_bytes().to_vec() } else { unhex(memo).unwrap_or_default() };
        }
        let sent = self.unsigned(raw, call)?;
        let mut out = String::new();
        render::transaction(&mut out, &sent, None, Some(call.visible), call.visible);
        Ok(out)
    }

    /// Of a method that only reads, the answer as well.
    pub(super) fn trigger(&mut self, call: &Call<'_>) -> Reply {
        let trigger = requested(call)?;
        let fee_limit = call.integer("fee_limit")?;
        if unprefixed(&trigger.contract_address) != Some(token::TOKEN) {
            return Ok(refused("No contract or not a valid smart contract", call.visible));
        }
        if let Err(reason) = check_call(&self.state, &trigger, fee_limit) {
            return Ok(refused(reason, call.visible));
        }
        if token::is_view(&trigger.data) {
            return self.trigger_constant(call);
        }
        let raw = Raw { fee_limit, ..Raw::holding(proto::TRIGGER, Trigger::URL, &trigger) };
        let sent = self.unsigned(raw, call)?;
        let mut text = String::new();
        render::transaction(&mut text, &sent, None, Some(call.visible), call.visible);
        Ok(object(|o| o.raw("result", "{\"result\":true}").raw("transaction", &text)))
    }

    /// Runs a call on the state that this endpoint sees, and changes nothing.
    pub(super) fn trigger_constant(&mut self, call: &Call<'_>) -> Reply {
        let trigger = requested(call)?;
        if unprefixed(&trigger.contract_address) != Some(token::TOKEN) {
            return Ok(refused("Smart contract is not exist.", call.visible));
        }
        let called = self.simulate_at(call, &trigger);
        let sent = self.unsigned(Raw::holding(proto::TRIGGER, Trigger::URL, &trigger), call)?;
        let mut text = String::new();
        let ret = if called.ok { "{}" } else { "{\"ret\":\"FAILED\"}" };
        render::transaction(&mut text, &sent, None, Some(call.visible), call.visible);
        text.insert_str(1, &format!("\"ret\":[{ret}],"));
        Ok(object(|o| {
            let mut result = Object::open(o.key("result"));
            result.raw("result", "true");
            if !called.ok {
                render::message(&mut result, "message", "REVERT opcode executed", call.visible);
            }
            result.close();
            o.number("energy_used", called.energy);
            render::list(o.key("constant_result"), [&called.output], |out, output| render::quoted_hex(out, output));
            o.raw("transaction", &text)
        }))
    }

    pub(super) fn estimate_energy(&mut self, call: &Call<'_>) -> Reply {
        let trigger = requested(call)?;
        if unprefixed(&trigger.contract_address) != Some(token::TOKEN) {
            return Ok(refused("Smart contract is not exist.", call.visible));
        }
        let called = self.simulate_at(call, &trigger);
        Ok(object(|o| {
            let mut result = Object::open(o.key("result"));
            if called.ok {
                result.raw("result", "true");
            } else {
                result.text("code", "CONTRACT_EXE_ERROR");
                render::message(&mut result, "message", "REVERT opcode executed", call.visible);
            }
            result.close();
            if called.ok { o.number("energy_required", called.energy) } else { o }
        }))
    }

    /// An endpoint that lags, or that asks for solidified blocks, sees what was then. The pool does not show.
    fn simulate_at(&self, call: &Call<'_>, trigger: &Trigger) -> Called {
        let mut owners = vec![unprefixed(&trigger.owner_address).unwrap_or_default()];
        let words = trigger.data.get(4..).unwrap_or_default().chunks_exact(32);
        owners.extend(words.take(3).filter_map(|word| Owner::try_from(&word[12..]).ok()));
        // These are all the cells that a call can touch.
        let mut then = State::default();
        for first in &owners {
            for slot in owners.iter().map(|second| Slot::Allowance(*first, *second)).chain([Slot::Holding(*first)]) {
                then.set(slot, self.cell_at(call.top, slot));
            }
        }
        simulate(&mut then, &self.rules, trigger)
    }

    fn unsigned(&self, mut raw: Raw, call: &Call<'_>) -> Result<Received, Failed> {
        if let Some(contract) = raw.contract.first_mut() {
            contract.permission_id = i32::try_from(call.integer("Permission_id")?).unwrap_or(0);
        }
        // The newest solidified block, as java-tron refers to by default.
        let solid = call.top.saturating_sub(if call.solid { 0 } else { self.settings.solid_depth });
        let reference = self.block(solid).unwrap_or_else(|| self.head());
        self.stamp(&mut raw, reference, LIFE_MS, call.now);
        Ok(Received::new(raw, Vec::new()))
    }
}

fn requested(call: &Call<'_>) -> Result<Trigger, Failed> {
    let not_hex = || Failed::new("org.bouncycastle.util.encoders.DecoderException", "exception decoding Hex string");
    let data = match call.text("function_selector").filter(|selector| !selector.is_empty()) {
        Some(selector) => {
            let parameter = unhex(call.text("parameter").unwrap_or_default()).ok_or_else(not_hex)?;
            [&keccak256(selector.as_bytes())[..4], &parameter].concat()
        }
        None => unhex(call.text("data").unwrap_or_default()).ok_or_else(not_hex)?,
    };
    let contract = match call.text("contract_address") {
        None | Some("") => {
            return Err(Failed::new("java.security.InvalidParameterException", "contract_address isn't set."));
        }
        Some(_) => call.owner("contract_address")?,
    };
    Ok(Trigger {
        owner_address: prefixed(&call.owner("owner_address")?).to_vec(),
        contract_address: prefixed(&contract).to_vec(),
        call_value: call.integer("call_value")?,
        data,
        call_token_value: call.integer("call_token_value")?,
        token_id: call.integer("token_id")?,
    })
}

fn refused(reason: &str, visible: bool) -> String {
    object(|o| {
        let mut result = Object::open(o.key("result"));
        result.text("code", "CONTRACT_VALIDATE_ERROR");
        render::message(&mut result, "message", reason, visible);
        result.close();
        o
    })
}

/// What `getchainparameters` says of fees that are not prices.
pub const FIXED_FEES: [(&str, i64); 4] = [
    ("getCreateAccountFee", execute::ACCOUNT_BANDWIDTH_FEE),
    ("getCreateNewAccountFeeInSystemContract", execute::ACCOUNT_FEE),
    ("getMemoFee", execute::MEMO_FEE),
    ("getMaxFeeLimit", execute::FEE_LIMIT),
];
