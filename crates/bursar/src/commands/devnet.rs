//! `bursar devnet`: the three chains on this machine, with no node to install and no secret keys.

use std::sync::Arc;
use std::time::Duration;

use devnet::{Devnet, DevnetSettings, Key, PREFUNDED, bitcoin, evm, tron};
use serde_json::{Value, json};
use terminal::clock::SystemClock;
use terminal::duration::parse_duration;
use terminal::failure::{CommandResult, Failure};
use terminal::output::{say, table};
use tokio::signal::unix::{SignalKind, signal};

const ABOUT: &str = "\
Bitcoin (regtest), an EVM chain (chain id 56) and TRON on loopback, in memory, speaking their real protocols: ethers, \
tronweb and Bitcoin RPC libraries work against them unchanged. Ten public test keys own coins and a USDT-like token. \
Everything is forgotten at the end.

Faults are asked for at the control port, which lists them:
  curl http://127.0.0.1:8600
  curl -X POST http://127.0.0.1:8600/evm/reorg -d '{\"depth\": 20}'";

#[derive(Debug, clap::Args)]
#[command(after_help = ABOUT)]
pub struct Arguments {
    /// The first port of the EVM chain; further endpoints take the ports after it; 0 takes free ones
    #[arg(long, value_name = "PORT", default_value_t = 8545)]
    evm_port: u16,
    /// The first port of TRON
    #[arg(long, value_name = "PORT", default_value_t = 9090)]
    tron_port: u16,
    /// The first port of Bitcoin
    #[arg(long, value_name = "PORT", default_value_t = 18443)]
    bitcoin_port: u16,
    /// Where faults are asked for
    #[arg(long, value_name = "PORT", default_value_t = 8600)]
    control_port: u16,
    /// How many endpoints each chain has, each with faults of its own
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=9))]
    endpoints: u16,
    /// A block in each of these
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = parse_duration)]
    block_time: Duration,
    /// No block but by hand: POST /evm/mine at the control port
    #[arg(long)]
    by_hand: bool,
}

pub async fn run(arguments: &Arguments, as_json: bool) -> CommandResult {
    let mut terminate = signal(SignalKind::terminate())
        .map_err(|error| Failure::outside("INTERNAL", &error, "signals cannot be caught on this machine"))?;
    let settings = DevnetSettings {
        bitcoin_port: arguments.bitcoin_port,
        evm_port: arguments.evm_port,
        tron_port: arguments.tron_port,
        control_port: arguments.control_port,
        endpoints: arguments.endpoints,
        block_time: (!arguments.by_hand).then_some(arguments.block_time),
    };
    let devnet = Devnet::start(&settings, Arc::new(SystemClock)).await.map_err(|error| {
        let hint = "give another port (bursar devnet --help), or 0 for any that is free";
        Failure::outside("DEVNET_LISTEN_FAILED", &error, hint)
    })?;
    if as_json {
        say(listening(&devnet))
    } else {
        say(welcome(&devnet, arguments))
    }
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    Ok(())
}

fn urls(devnet: &Devnet, chain: &str) -> Vec<String> {
    devnet.chains.get(chain).map_or_else(Vec::new, |chain| chain.endpoints.iter().map(|one| one.url()).collect())
}

fn listening(devnet: &Devnet) -> Value {
    json!({
        "event": "listening",
        "control": devnet.control.address.to_string(),
        "bitcoin": urls(devnet, "bitcoin"),
        "evm": urls(devnet, "evm"),
        "tron": urls(devnet, "tron"),
        "evm_token": evm::TETHER.to_string(),
        "tron_token": tron::TOKEN.to_string(),
    })
}

fn welcome(devnet: &Devnet, arguments: &Arguments) -> String {
    let mut rows = Vec::new();
    for (chain, about) in [
        ("bitcoin", "regtest; any user and password".to_owned()),
        ("evm", format!("chain id {}; USDT {}", evm::CHAIN_ID, evm::TETHER)),
        ("tron", format!("USDT {}", tron::TOKEN)),
    ] {
        rows.push(vec![chain.to_owned(), urls(devnet, chain).join("  "), about]);
    }
    let (mut keys, mut addresses) = (Vec::new(), Vec::new());
    for number in 0..PREFUNDED {
        let key = Key::numbered(number);
        keys.push(vec![number.to_string(), key.secret().display_secret().to_string()]);
        let bitcoin = key.bitcoin(bitcoin::NETWORK).to_string();
        addresses.push(vec![number.to_string(), key.evm().to_string(), key.tron().to_string(), bitcoin]);
    }
    let blocks = if arguments.by_hand {
        "Blocks by hand: ".to_owned()
    } else {
        format!("A block every {:?}; more by hand: ", arguments.block_time)
    };
    let control = format!("http://{}", devnet.control.address);
    format!(
        "{}\n\nTen keys that everybody knows, and what they own coins and tokens on:\n\n{}\n\n{}\n\n{blocks}curl -X \
         POST {control}/evm/mine\nFaults: curl {control}\nEverything is in memory. Ctrl-C ends it.",
        table(&["chain", "endpoints", ""], &[], &rows),
        table(&["", "key"], &[], &keys),
        table(&["", "evm", "tron", "bitcoin"], &[], &addresses),
    )
}
