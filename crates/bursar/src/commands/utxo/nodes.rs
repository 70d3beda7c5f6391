//! The nodes that `bursar utxo follow` and `bursar utxo give-up` ask.

use std::path::PathBuf;
use std::sync::Arc;

use bitcoin::base64::Engine as _;
use bitcoin::base64::engine::general_purpose::STANDARD;
use chain::bitcoin::{BitcoinChain, BitcoinSettings};
use chain::endpoint::{BadEndpoint, EndpointSettings, Pool, PoolSettings};
use custody::bitcoin::network_of;
use store::Db;
use terminal::clock::SystemClock;
use terminal::failure::Failure;
use terminal::files::read_secret;
use terminal::output::warn;

use super::super::Context;

#[derive(Debug, clap::Args)]
pub struct NodeArguments {
    /// A Bitcoin Core node; give several, and a quorum of them decides which blocks there are
    #[arg(long = "node", value_name = "URL", required = true)]
    nodes: Vec<String>,
    /// How many nodes must agree: more than half of them, or more [default: more than half]
    #[arg(long, value_name = "N")]
    quorum: Option<usize>,
    /// A file with user:password for the nodes, such as Core's .cookie
    #[arg(long, value_name = "FILE")]
    login_file: Option<PathBuf>,
}

impl NodeArguments {
    pub fn count(&self) -> usize {
        self.nodes.len()
    }
}

/// A client of these nodes, for the network of the wallets, and how many of them must agree. Nothing is asked yet.
pub async fn chain(context: &Context, db: &Db, arguments: &NodeArguments) -> Result<(BitcoinChain, usize), Failure> {
    let wallets = db.wallets().await?;
    let Some(wallet) = wallets.first() else {
        let hint = "make one: bursar utxo create hot --network regtest";
        return Err(Failure::bad_input("UTXO_UNKNOWN_WALLET", "there is no wallet to follow for", hint));
    };
    let authorization = match &arguments.login_file {
        None => None,
        Some(file) => {
            let bad = |why: String| {
                let message = format!("--login-file {}: {why}", file.display());
                Failure::bad_input("BAD_USAGE", message, "name a file with user:password, such as Core's .cookie")
            };
            let login = read_secret(file).map_err(|failure| match failure.code.as_ref() {
                "FILE_NOT_READABLE" => bad(failure.messages.join(": ")),
                _ => failure,
            })?;
            let login = String::from_utf8(login).map_err(|error| bad(error.to_string()))?;
            if !login.contains(':') {
                return Err(bad("there is no user:password in it".to_owned()));
            }
            Some(format!("Basic {}", STANDARD.encode(login)))
        }
    };
    let endpoints: Vec<EndpointSettings> = (1..)
        .zip(&arguments.nodes)
        .map(|(number, url)| EndpointSettings {
            name: format!("node {number}"),
            url: url.clone(),
            authorization: authorization.clone(),
            key: None,
            headers: Vec::new(),
            per_second: 0,
        })
        .collect();
    let settings = PoolSettings { quorum: arguments.quorum, ..PoolSettings::default() };
    let pool = Pool::new(&endpoints, &settings, Arc::new(SystemClock)).map_err(|error| {
        let hint = match error {
            BadEndpoint::Quorum { .. } => "leave --quorum out: it is more than half of the nodes then",
            BadEndpoint::Url { .. } | BadEndpoint::Credentials { .. } | BadEndpoint::Twice { .. } => {
                "--node http://127.0.0.1:8332"
            }
        };
        Failure::bad_input("BAD_USAGE", error.to_string(), hint)
    })?;
    if !context.json && endpoints.len() == 1 {
        warn("one node alone: whatever it says is believed; give --node several times, and more than half must agree");
    }
    let quorum = pool.quorum();
    Ok((BitcoinChain::new(BitcoinSettings::new(network_of(wallet.network)), pool), quorum))
}
