//! `eth_getLogs`.

use alloy_primitives::{Address, B256, Bloom, BloomInput, Log};
use serde_json::Value;

use super::parameters::{self, Args, BlockId, RpcError};
use super::render;
use super::seen::Seen;

/// As geth has it.
const MOST_TOPICS: usize = 4;
const MOST_ALTERNATIVES: usize = 1_000;

struct Filter {
    /// Any of them; all, if there is none.
    addresses: Vec<Address>,
    /// By position: any of them; all, if there is none.
    topics: Vec<Vec<B256>>,
}

impl Filter {
    fn may_be_in(&self, bloom: &Bloom) -> bool {
        let holds = |raw: &[u8]| bloom.contains_input(BloomInput::Raw(raw));
        let any = |all: bool, mut found: Box<dyn Iterator<Item = bool> + '_>| all || found.any(|found| found);
        any(self.addresses.is_empty(), Box::new(self.addresses.iter().map(|address| holds(address.as_slice()))))
            && self
                .topics
                .iter()
                .all(|topics| any(topics.is_empty(), Box::new(topics.iter().map(|topic| holds(topic.as_slice())))))
    }

    fn takes(&self, log: &Log) -> bool {
        let topics = log.data.topics();
        (self.addresses.is_empty() || self.addresses.contains(&log.address))
            && self.topics.len() <= topics.len()
            && self.topics.iter().zip(topics).all(|(wanted, topic)| wanted.is_empty() || wanted.contains(topic))
    }
}

pub(super) fn answer(seen: Seen<'_>, args: &Args) -> Result<String, RpcError> {
    let object = args.required(0)?;
    let Value::Object(object) = object else { return Err(RpcError::argument(0, "not an object")) };
    let given = |name: &str| object.get(name).filter(|value| !value.is_null());
    let filter = Filter { addresses: addresses(given("address"))?, topics: topics(given("topics"))? };
    let (from, to) = match given("blockHash") {
        Some(_) if given("fromBlock").is_some() || given("toBlock").is_some() => {
            return Err(RpcError::argument(0, "cannot specify both BlockHash and FromBlock/ToBlock"));
        }
        Some(hash) => {
            let hash = parameters::hash(hash).map_err(|problem| RpcError::argument(0, problem))?;
            let height = seen.height_of(hash).ok_or_else(|| RpcError::server("unknown block"))?;
            (height, height)
        }
        None => range(seen, given("fromBlock"), given("toBlock"))?,
    };
    let mut out = String::from("[");
    let mut found = 0;
    for block in (from..=to).map_while(|height| seen.block(height)) {
        if !filter.may_be_in(&block.header.logs_bloom) {
            continue;
        }
        for (index, receipt) in block.receipts.iter().enumerate().take(seen.shown(block)) {
            for (number, log) in seen.logs(block, receipt).iter().enumerate().filter(|(_, log)| filter.takes(log)) {
                found += 1;
                if found > seen.devnet.settings.log_results {
                    let most = seen.devnet.settings.log_results;
                    return Err(RpcError::new(-32_005, format!("query returned more than {most} results")));
                }
                if found > 1 {
                    out.push(',');
                }
                render::log(&mut out, seen, block, index, receipt.first_log + number, log);
            }
        }
    }
    out.push(']');
    Ok(out)
}

fn range(seen: Seen<'_>, from: Option<&Value>, to: Option<&Value>) -> Result<(u64, u64), RpcError> {
    let height = |value: Option<&Value>| match value {
        None => Ok(seen.head()),
        Some(value) => match parameters::block(value).map_err(|problem| RpcError::argument(0, problem))? {
            // A range may reach beyond the head.
            BlockId::Number(height) => Ok(height),
            id => seen.height(id).ok_or_else(|| RpcError::server("unknown block")),
        },
    };
    let (from, to) = (height(from)?, height(to)?);
    if from > to {
        return Err(RpcError::new(-32_602, "invalid block range params"));
    }
    let most = seen.devnet.settings.log_range;
    if to - from >= most {
        return Err(RpcError::new(-32_005, format!("exceed maximum block range: {most}")));
    }
    Ok((from, to))
}

fn addresses(value: Option<&Value>) -> Result<Vec<Address>, RpcError> {
    let one = |value: &Value| parameters::address(value).map_err(|problem| RpcError::argument(0, problem));
    match value {
        None => Ok(Vec::new()),
        Some(Value::Array(values)) if values.len() > MOST_ALTERNATIVES => {
            Err(RpcError::argument(0, "exceed max addresses or topics per search position"))
        }
        Some(Value::Array(values)) => values.iter().map(one).collect(),
        Some(value) => Ok(vec![one(value)?]),
    }
}

fn topics(value: Option<&Value>) -> Result<Vec<Vec<B256>>, RpcError> {
    let one = |value: &Value| parameters::hash(value).map_err(|problem| RpcError::argument(0, problem));
    let Some(value) = value else { return Ok(Vec::new()) };
    let Value::Array(positions) = value else { return Err(RpcError::argument(0, "invalid topics")) };
    if positions.len() > MOST_TOPICS {
        return Err(RpcError::argument(0, "exceed max topics"));
    }
    let position = |value: &Value| match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(values) if values.len() > MOST_ALTERNATIVES => {
            Err(RpcError::argument(0, "exceed max addresses or topics per search position"))
        }
        // One null among the alternatives makes the position match all, as in geth.
        Value::Array(values) if values.iter().any(Value::is_null) => Ok(Vec::new()),
        Value::Array(values) => values.iter().map(one).collect(),
        value => Ok(vec![one(value)?]),
    };
    positions.iter().map(position).collect()
}
