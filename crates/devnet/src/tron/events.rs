//! Events as an event server tells them: `/v1/contracts/{address}/events`, `/v1/transactions/{id}/events`,
//! `/v1/blocks/{number}/events`.

use alloy_primitives::{U256, hex};

use super::block::{Block, Mined};
use super::calls::{Call, object};
use super::refusal::Failed;
use super::render::{self, Object};
use super::token::Log;
use super::{TronDevnet, parse_address, token};
use crate::Lie;
use tx::tron::TronAddress;

const DEFAULT_LIMIT: i64 = 20;
const LIMIT: i64 = 200;

/// Which events are asked for.
struct Wanted {
    name: Option<String>,
    first: u64,
    last: u64,
    since: i64,
    until: i64,
    skip: usize,
    limit: usize,
    ascending: bool,
}

impl TronDevnet {
    pub(super) fn event_call(&self, path: &str, call: &Call<'_>) -> Option<Result<String, Failed>> {
        let parts: Vec<&str> = path.split('/').collect();
        let wanted = match self.wanted(call) {
            Ok(wanted) => wanted,
            Err(failed) => return Some(Err(failed)),
        };
        Some(Ok(match parts.as_slice() {
            ["contracts", contract, "events"] => {
                let known = parse_address(contract) == Some(token::TOKEN);
                self.events(call, wanted, |_| known)
            }
            ["transactions", id, "events"] => {
                let id = super::transaction::unhex(id).unwrap_or_default();
                let place = <[u8; 32]>::try_from(id.as_slice()).ok().and_then(|id| self.index.get(&id));
                let Some((height, _)) = place.copied().filter(|(height, _)| *height <= wanted.last) else {
                    return Some(Ok(page(call, 0, "[]", None)));
                };
                let one = Wanted { first: height, last: height, ascending: true, ..wanted };
                self.events(call, one, |mined| mined.sent.id[..] == id[..])
            }
            ["blocks", number, "events"] => {
                let height = if *number == "latest" { Some(wanted.last) } else { number.parse().ok() };
                let Some(height) = height.filter(|height| *height <= wanted.last) else {
                    return Some(Ok(page(call, 0, "[]", None)));
                };
                self.events(call, Wanted { first: height, last: height, ..wanted }, |_| true)
            }
            _ => return None,
        }))
    }

    fn wanted(&self, call: &Call<'_>) -> Result<Wanted, Failed> {
        let solid = call.top.saturating_sub(self.settings.solid_depth);
        let (mut first, mut last) = (0, call.top);
        if call.flag("only_confirmed") {
            last = solid;
        } else if call.flag("only_unconfirmed") {
            first = solid + 1;
        }
        if let Ok(height @ 1..) = call.integer("block_number") {
            first = first.max(height.unsigned_abs());
            last = last.min(height.unsigned_abs());
        }
        let limit = match call.integer("limit")? {
            0 => DEFAULT_LIMIT,
            limit => limit.clamp(1, LIMIT),
        };
        let until = match call.integer("max_block_timestamp")? {
            0 => i64::MAX,
            until => until,
        };
        Ok(Wanted {
            name: call.text("event_name").map(str::to_owned),
            first,
            last,
            since: call.integer("min_block_timestamp")?,
            until,
            skip: usize::try_from(call.integer("fingerprint")?).unwrap_or(0),
            limit: usize::try_from(limit).unwrap_or(0),
            ascending: call.text("order_by").is_some_and(|order| order.ends_with("asc")),
        })
    }

    fn events(&self, call: &Call<'_>, wanted: Wanted, fits: impl Fn(&Mined) -> bool) -> String {
        let lie = call.view.lie;
        let solid = call.top.saturating_sub(self.settings.solid_depth);
        let first = usize::try_from(wanted.first).unwrap_or(usize::MAX);
        let end = usize::try_from(wanted.last.saturating_add(1)).unwrap_or(usize::MAX).min(self.blocks.len());
        let blocks = self.blocks.get(first.min(end)..end).unwrap_or_default();
        let timed = |block: &&Block| (wanted.since..=wanted.until).contains(&block.header.timestamp);
        let ordered: Box<dyn Iterator<Item = &Block>> =
            if wanted.ascending { Box::new(blocks.iter()) } else { Box::new(blocks.iter().rev()) };
        let mut found = ordered
            .filter(timed)
            .filter(|_| lie != Lie::Missing)
            .flat_map(|block| {
                block.transactions.iter().take(render::shown_of(block, lie)).map(move |mined| (block, mined))
            })
            .filter(|(_, mined)| fits(mined))
            .flat_map(|(block, mined)| {
                let logs = render::told(mined, render::lie_about(block, mined, lie)).logs.into_iter().enumerate();
                logs.map(move |(place, log)| (block, mined, place, log))
            })
            .filter(|(.., log)| wanted.name.as_deref().is_none_or(|name| name == event_name(log)))
            .skip(wanted.skip)
            .peekable();
        let mut data = String::new();
        let shown: Vec<_> = found.by_ref().take(wanted.limit).collect();
        let next = found.peek().map(|_| wanted.skip + shown.len());
        render::list(&mut data, &shown, |out, (block, mined, place, log)| {
            write_event(out, block, mined, *place, log, block.height() > solid);
        });
        page(call, shown.len(), &data, next)
    }
}

fn page(call: &Call<'_>, size: usize, data: &str, next: Option<usize>) -> String {
    object(|o| {
        o.raw("success", "true").raw("data", data);
        let mut meta = Object::open(o.key("meta"));
        meta.number("at", call.now.millis()).raw("page_size", &size.to_string());
        if let Some(next) = next {
            meta.text("fingerprint", &next.to_string());
        }
        meta.close();
        o
    })
}

fn event_name(log: &Log) -> &'static str {
    let transfer = alloy_primitives::keccak256(b"Transfer(address,address,uint256)");
    if log.topics.first() == Some(&transfer.0) { "Transfer" } else { "Approval" }
}

fn write_event(out: &mut String, block: &Block, mined: &Mined, place: usize, log: &Log, unconfirmed: bool) {
    let name = event_name(log);
    let (first, second) = if name == "Transfer" { ("from", "to") } else { ("owner", "spender") };
    let account = |topic: usize| {
        let bytes = log.topics.get(topic).map_or(&[][..], |topic| &topic[12..]);
        format!("0x{}", hex::encode(bytes))
    };
    let values = [account(1), account(2), U256::from_be_slice(&log.data).to_string()];
    let contract = TronAddress(log.contract).to_string();
    let mut object = Object::open(out);
    object
        .number("block_number", block.header.number)
        .number("block_timestamp", block.header.timestamp)
        .text("caller_contract_address", &contract)
        .text("contract_address", &contract)
        .raw("event_index", &place.to_string())
        .text("event_name", name)
        .text("event", &format!("{name}(address indexed {first}, address indexed {second}, uint256 value)"))
        .hex("transaction_id", &mined.sent.id);
    let mut result = Object::open(object.key("result"));
    for (name, value) in ["0", "1", "2", first, second, "value"].iter().zip(values.iter().cycle()) {
        result.text(name, value);
    }
    result.close();
    let mut types = Object::open(object.key("result_type"));
    types.text(first, "address").text(second, "address").text("value", "uint256");
    types.close();
    if unconfirmed {
        object.raw("_unconfirmed", "true");
    }
    object.close();
}
