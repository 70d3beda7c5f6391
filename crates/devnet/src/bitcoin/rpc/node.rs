//! The node itself: its version, its fee estimate, and what it thinks of an address.

use super::super::faucet;
use super::super::json::{Json, object};
use super::super::policy::{INCREMENTAL, MIN_RELAY};
use super::super::seconds;
use super::arguments::usage;
use super::blocks::{DIFFICULTY, TARGET, chain_work};
use super::{BAD_PARAMETER, Call, Failure, METHODS, RpcResult};

const WARNING: &str = "This is a devnet: its coins are worth nothing";
/// The longest horizon of Core's estimator.
const TARGETS: i64 = 1_008;

pub(super) fn chain_info(call: &mut Call<'_>) -> RpcResult {
    let lens = call.net.lens(call.view);
    let tip = lens.tip();
    let bytes = lens.chain.all().iter().map(|stored| stored.raw.len()).fold(0, usize::saturating_add);
    Ok(object! {
        "chain" => "regtest",
        "blocks" => lens.height(),
        "headers" => lens.height(),
        "bestblockhash" => tip.hash,
        "bits" => "207fffff",
        "target" => TARGET,
        "difficulty" => Json::raw(DIFFICULTY),
        "time" => tip.header.time,
        "mediantime" => tip.stored.median_time,
        "verificationprogress" => 1,
        "initialblockdownload" => false,
        "chainwork" => chain_work(lens.height()),
        "size_on_disk" => bytes,
        "pruned" => false,
        "warnings" => vec![Json::from(WARNING)],
    })
}

pub(super) fn difficulty(_: &mut Call<'_>) -> RpcResult {
    Ok(Json::raw(DIFFICULTY))
}

pub(super) fn connections(_: &mut Call<'_>) -> RpcResult {
    Ok(0.into())
}

pub(super) fn network_info(_: &mut Call<'_>) -> RpcResult {
    let network = |name: &str| {
        object! {
            "name" => name,
            "limited" => false,
            "reachable" => true,
            "proxy" => "",
            "proxy_randomize_credentials" => false,
        }
    };
    let services = "NETWORK WITNESS NETWORK_LIMITED P2P_V2".split(' ');
    Ok(object! {
        "version" => 319_900,
        "subversion" => "/Satoshi:31.99.0(bursar devnet)/",
        "protocolversion" => 70_017,
        "localservices" => "0000000000000c09",
        "localservicesnames" => services.map(Json::from).collect::<Vec<_>>(),
        "localrelay" => true,
        "timeoffset" => 0,
        "networkactive" => true,
        "connections" => 0,
        "connections_in" => 0,
        "connections_out" => 0,
        "networks" => vec![network("ipv4"), network("ipv6")],
        "relayfee" => Json::amount(MIN_RELAY),
        "incrementalfee" => Json::amount(INCREMENTAL),
        "localaddresses" => Vec::new(),
        "warnings" => vec![Json::from(WARNING)],
    })
}

pub(super) fn index_info(call: &mut Call<'_>) -> RpcResult {
    let name = call.arguments.text(0).to_owned();
    let height = call.net.lens(call.view).height();
    if name.is_empty() || name == "txindex" {
        return Ok(object! { "txindex" => object! { "synced" => true, "best_block_height" => height } });
    }
    Ok(object! {})
}

pub(super) fn uptime(call: &mut Call<'_>) -> RpcResult {
    let since = call.net.since.unwrap_or(call.now);
    Ok(seconds(call.now).saturating_sub(seconds(since)).max(0).into())
}

pub(super) fn help(call: &mut Call<'_>) -> RpcResult {
    let command = call.arguments.text(0);
    let found: Vec<String> = METHODS
        .iter()
        .filter(|(name, _, _)| command.is_empty() || *name == command)
        .map(|(name, expected, _)| usage(name, expected))
        .collect();
    if found.is_empty() {
        return Ok(format!("help: unknown command: {command}\n").into());
    }
    Ok(found.concat().trim_end().into())
}

pub(super) fn estimate_fee(call: &mut Call<'_>) -> RpcResult {
    let target = call.arguments.integer(0)?;
    if !(1..=TARGETS).contains(&target) {
        let message = format!("Invalid conf_target, must be between 1 and {TARGETS}");
        return Err(Failure::new(BAD_PARAMETER, message));
    }
    let mode = call.arguments.text(1).to_lowercase();
    if !["", "unset", "economical", "conservative"].contains(&mode.as_str()) {
        let message = "Invalid estimate_mode parameter, must be one of: \"unset\", \"economical\", \"conservative\"";
        return Err(Failure::new(BAD_PARAMETER, message));
    }
    Ok(match call.net.estimate() {
        // Core answers for two blocks when it is asked for one.
        Some(rate) => object! { "feerate" => Json::amount(rate), "blocks" => target.max(2) },
        None => object! { "errors" => vec![Json::from("Insufficient data or no feerate found")], "blocks" => 0 },
    })
}

pub(super) fn validate_address(call: &mut Call<'_>) -> RpcResult {
    let text = call.arguments.text(0);
    let Some(address) = faucet::parse(text) else {
        let bech = text.to_lowercase().starts_with("bcrt");
        let why = if bech {
            "Invalid or unsupported Segwit (Bech32) encoding."
        } else if ::bitcoin::base58::decode(text).is_ok() && text.len() <= 100 {
            "Invalid checksum or length of Base58 address (P2PKH or P2SH)"
        } else {
            "Invalid or unsupported Segwit (Bech32) or Base58 encoding."
        };
        return Ok(object! { "isvalid" => false, "error_locations" => Vec::new(), "error" => why });
    };
    let script = address.script_pubkey();
    let mut json = object! {
        "isvalid" => true,
        "address" => address.to_string(),
        "scriptPubKey" => Json::Hex(script.to_bytes()),
        "isscript" => script.is_p2sh() || script.is_p2wsh() || script.is_p2tr(),
        "iswitness" => script.is_witness_program(),
    };
    if let Some(program) = address.witness_program() {
        json.push("witness_version", u32::from(program.version().to_num()));
        json.push("witness_program", Json::Hex(program.program().as_bytes().to_vec()));
    }
    Ok(json)
}
