//! A client of each chain that is followed. What the chain is (kind, network, confirmations, tokens) comes from the database's
//! rows; who is asked about it comes from the configuration. Nothing is asked here yet.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bitcoin::base64::Engine as _;
use bitcoin::base64::engine::general_purpose::STANDARD;
use chain::bitcoin::{BitcoinChain, BitcoinSettings};
use chain::endpoint::{EndpointSettings, Event, Pool, PoolSettings};
use chain::evm::{BlockProof, EvmChain, EvmSettings};
use chain::tron::{self, TronChain, TronSettings};
use domain::{Chain, ChainKind, ChainName, Clock};
use store::Db;
use store::catalog::{Catalog, read_catalog};
use terminal::failure::Failure;
use terminal::files::read_secret;
use tokio::sync::broadcast;
use tx::{Address, Family};

use crate::config::{ChainNodes, Config, InternalTransfers, NodeSettings, ProofChoice, is_in_the_clear, nearest};

/// What makes a block proven, so that what it pays may be credited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProofBy {
    /// All of the block hashes to the roots of a header that a quorum has.
    Roots,
    /// A second node says the same.
    SecondNode,
}

impl ProofBy {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Roots => "roots",
            Self::SecondNode => "second-node",
        }
    }
}

/// The client, by the kind of its chain.
#[derive(Clone)]
pub enum ChainClient {
    Bitcoin(Arc<BitcoinChain>),
    Evm(Arc<EvmChain>),
    Tron(Arc<TronChain>),
}

impl ChainClient {
    /// What is the same of all kinds.
    pub fn shared(&self) -> Arc<dyn chain::Chain> {
        match self {
            Self::Bitcoin(client) => Arc::clone(client) as Arc<dyn chain::Chain>,
            Self::Evm(client) => Arc::clone(client) as Arc<dyn chain::Chain>,
            Self::Tron(client) => Arc::clone(client) as Arc<dyn chain::Chain>,
        }
    }
}

/// A chain with nodes to ask.
pub struct FollowedChain {
    /// The database's row.
    pub row: Chain,
    pub client: ChainClient,
    pub proof: ProofBy,
    /// Coin that contracts move is looked for.
    pub internal_transfers: bool,
    /// The names of its nodes, as the configuration lists them.
    pub nodes: Vec<String>,
    /// How many of them must agree.
    pub quorum: usize,
    /// What the nodes do that somebody should know.
    pub events: broadcast::Receiver<Event>,
}

/// A client of every chain that the configuration has nodes for.
pub async fn open(config: &Config, db: &Db, clock: &Arc<dyn Clock>) -> Result<Vec<FollowedChain>, Failure> {
    let catalog = read_catalog(&mut db.read().await?).await?;
    of_catalog(config, &catalog, clock)
}

/// The same, of a catalog that was read. A name in the configuration that is none of the database's chains is an error: a typo
/// must not leave a chain unfollowed.
pub fn of_catalog(config: &Config, catalog: &Catalog, clock: &Arc<dyn Clock>) -> Result<Vec<FollowedChain>, Failure> {
    let mut followed = Vec::new();
    for (name, nodes) in &config.chains {
        let row = name.parse::<ChainName>().ok().and_then(|name| catalog.chains.get(&name));
        let row = row.ok_or_else(|| unknown(name, catalog))?;
        if !nodes.nodes.is_empty() {
            followed.push(one(row, catalog, nodes, clock)?);
        }
    }
    Ok(followed)
}

/// That a name is none of the database's chains.
pub fn unknown(name: &str, catalog: &Catalog) -> Failure {
    let known: Vec<&str> = catalog.chains.keys().map(ChainName::as_str).collect();
    let hint = match nearest(name, &known) {
        Some(nearest) => format!("did you mean {nearest}?"),
        None if known.is_empty() => "the database has no chains yet: bursar apply brings them in".to_owned(),
        None => format!("the database has: {}", known.join(", ")),
    };
    Failure::bad_input("INVALID_CHAIN", format!("there is no chain {name}"), hint)
}

fn one(row: &Chain, catalog: &Catalog, nodes: &ChainNodes, clock: &Arc<dyn Clock>) -> Result<FollowedChain, Failure> {
    let proof = proof_of(row, nodes)?;
    let internal_transfers = internal_transfers_of(row, nodes)?;
    let pool = pool(row.name.as_str(), nodes, clock)?;
    let (events, quorum) = (pool.events(), pool.quorum());
    let client = client(row, catalog, (proof, internal_transfers), pool)?;
    let nodes = nodes.nodes.iter().map(|node| node.name.clone()).collect();
    Ok(FollowedChain { row: row.clone(), client, proof, internal_transfers, nodes, quorum, events })
}

fn client(row: &Chain, catalog: &Catalog, how: (ProofBy, bool), pool: Pool) -> Result<ChainClient, Failure> {
    let (proof, internal_transfers) = how;
    Ok(match row.kind {
        ChainKind::Bitcoin => {
            let Some(Family::Bitcoin(network)) = Family::of_chain(row.kind, &row.network) else {
                return Err(no_network(row));
            };
            let confirmations = row.confirmations.into();
            let settings = BitcoinSettings { confirmations, ..BitcoinSettings::new(network) };
            ChainClient::Bitcoin(Arc::new(BitcoinChain::new(settings, pool)))
        }
        ChainKind::Evm => {
            let chain_id = row.network.parse().map_err(|_| no_network(row))?;
            let mut settings = EvmSettings::new(chain_id, row.confirmations.into());
            settings.internal_transfers = internal_transfers;
            settings.proof = match proof {
                ProofBy::Roots => BlockProof::Roots,
                ProofBy::SecondNode => BlockProof::SecondNode,
            };
            for token in tokens(row, catalog)? {
                if let Address::Evm(contract) = token {
                    settings.tokens.push(contract);
                }
            }
            ChainClient::Evm(Arc::new(EvmChain::new(settings, pool)))
        }
        ChainKind::Tron => {
            let network = tron_network(&row.network).ok_or_else(|| no_network(row))?;
            let settings = TronSettings { internal_transfers, ..TronSettings::new(network, tokens(row, catalog)?) };
            let client = TronChain::new(settings, pool)
                .map_err(|error| Failure::outside(error.code(), &error, "this is a bug in Bursar: please report it"))?;
            ChainClient::Tron(Arc::new(client))
        }
    })
}

/// By the names of the treasury file. `testnet` is Nile, which outlived the others.
fn tron_network(name: &str) -> Option<tron::Network> {
    match name {
        "mainnet" => Some(tron::Network::Mainnet),
        "testnet" | "nile" => Some(tron::Network::Nile),
        "shasta" => Some(tron::Network::Shasta),
        "regtest" => Some(tron::Network::Devnet),
        _ => None,
    }
}

fn no_network(row: &Chain) -> Failure {
    let message = format!("chain {}: there is no {} network {:?}", row.name, row.kind.as_str(), row.network);
    Failure::bad_input("INVALID_CHAIN", message, "correct it under [chains] in the treasury file, and apply it")
}

/// A setting that the chain's kind does not have is refused: whoever wrote it believes something that is not so.
fn proof_of(row: &Chain, nodes: &ChainNodes) -> Result<ProofBy, Failure> {
    let place = format!("chains.{}", row.name);
    let refuse = |what: &str, hint: &str| Err(Failure::bad_input("CONFIG_INVALID", format!("{place}.{what}"), hint));
    match (row.kind, nodes.proof) {
        (ChainKind::Bitcoin, ProofChoice::Usual | ProofChoice::Roots)
        | (ChainKind::Evm, ProofChoice::Usual | ProofChoice::Roots) => Ok(ProofBy::Roots),
        (ChainKind::Evm | ChainKind::Tron, ProofChoice::SecondNode) | (ChainKind::Tron, ProofChoice::Usual) => {
            // A network of our own has nobody who could lie about it.
            if nodes.nodes.len() == 1 && row.network != "regtest" {
                let what = "nodes has one entry, and a block is proven by a second node";
                return refuse(what, "add a node of somebody else; nothing can be credited by one");
            }
            Ok(ProofBy::SecondNode)
        }
        (ChainKind::Bitcoin, ProofChoice::SecondNode) => {
            refuse("proof: a block of Bitcoin is proven by its root, always", "leave it out")
        }
        (ChainKind::Tron, ProofChoice::Roots) => {
            refuse("proof: no root of TRON covers what a transaction did", "leave it out: a second node is asked")
        }
    }
}

fn internal_transfers_of(row: &Chain, nodes: &ChainNodes) -> Result<bool, Failure> {
    match (row.kind, nodes.internal_transfers) {
        (ChainKind::Tron, InternalTransfers::Usual | InternalTransfers::Yes)
        | (ChainKind::Evm, InternalTransfers::Yes) => Ok(true),
        (_, InternalTransfers::Usual | InternalTransfers::No) => Ok(false),
        (ChainKind::Bitcoin, InternalTransfers::Yes) => {
            let message = format!("chains.{}.internal_transfers: Bitcoin has no contracts", row.name);
            Err(Failure::bad_input("CONFIG_INVALID", message, "leave it out"))
        }
    }
}

/// The contracts of all tokens that are listed on the chain. Those that are suspended too: what is paid in them is not lost.
fn tokens(row: &Chain, catalog: &Catalog) -> Result<Vec<Address>, Failure> {
    let family = Family::of_chain(row.kind, &row.network).ok_or_else(|| no_network(row))?;
    let here = catalog.listings.values().filter(|listing| listing.chain == row.name);
    here.filter_map(|listing| Some((listing, listing.form.contract()?)))
        .map(|(listing, contract)| {
            family.parse_address(contract).map_err(|error| {
                let message = format!("{} on {}: the contract {contract}: {error}", listing.asset, row.name);
                Failure::bad_input(error.code(), message, "list the asset anew with the contract's address")
            })
        })
        .collect()
}

/// The nodes, with what is secret of them read from its files. Nothing is asked.
pub fn pool(chain: &str, nodes: &ChainNodes, clock: &Arc<dyn Clock>) -> Result<Pool, Failure> {
    let endpoints = nodes.nodes.iter().map(|node| endpoint(chain, node)).collect::<Result<Vec<_>, _>>()?;
    let millis = |number: u32| Duration::from_millis(number.into());
    let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    let settings = PoolSettings {
        quorum: (nodes.quorum > 0).then_some(count(nodes.quorum)),
        deadline: millis(nodes.call_timeout_ms),
        hedge: millis(nodes.hedge_ms),
        lag_blocks: nodes.lag_blocks.into(),
        batch: count(nodes.batch),
        ..PoolSettings::default()
    };
    Pool::new(&endpoints, &settings, Arc::clone(clock)).map_err(|error| {
        let message = format!("chains.{chain}: {error}");
        Failure::bad_input("CONFIG_INVALID", message, "see chains in examples/bursar.toml")
    })
}

fn endpoint(chain: &str, node: &NodeSettings) -> Result<EndpointSettings, Failure> {
    let place = format!("chains.{chain}.nodes.{}", node.name);
    let secret = |setting: &str, file: &str| -> Result<Option<String>, Failure> {
        if file.is_empty() {
            return Ok(None);
        }
        let named = |mut failure: Failure| {
            failure.messages.insert(0, format!("{place}.{setting}"));
            failure
        };
        let text = String::from_utf8(read_secret(Path::new(file)).map_err(named)?);
        let text = text.ok().filter(|text| !text.is_empty()).ok_or_else(|| {
            let message = format!("{place}.{setting}: {file} is empty, or no text");
            Failure::bad_input("CONFIG_INVALID", message, "see chains in examples/bursar.toml")
        })?;
        Ok(Some(text))
    };
    let login = secret("login_file", &node.login_file)?;
    if login.as_ref().is_some_and(|login| !login.contains(':')) {
        let message = format!("{place}.login_file: there is no user:password in it");
        return Err(Failure::bad_input("CONFIG_INVALID", message, "such as Bitcoin Core's .cookie"));
    }
    let token = secret("token_file", &node.token_file)?;
    let authorization = login
        .map(|login| format!("Basic {}", STANDARD.encode(login)))
        .or_else(|| token.map(|token| format!("Bearer {token}")));
    let key = secret("key_file", &node.key_file)?.map(|key| (node.key_header.clone(), key));
    let url = secret("url_file", &node.url_file)?.unwrap_or_else(|| node.url.clone());
    if (authorization.is_some() || key.is_some() || !node.url_file.is_empty()) && is_in_the_clear(&url) {
        let message = format!("{place}: its credentials would travel in the clear, over http:// to another machine");
        let hint = "use https://, or a tunnel that ends on this machine";
        return Err(Failure::bad_input("CONFIG_INVALID", message, hint));
    }
    let headers = node.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    Ok(EndpointSettings { name: node.name.clone(), url, authorization, key, headers, per_second: node.per_second })
}

/// Every pool made once, so that each setting is held against all rules, and each secret was read.
pub fn check(chains: &BTreeMap<String, ChainNodes>, clock: &Arc<dyn Clock>) -> Result<(), Failure> {
    for (name, nodes) in chains.iter().filter(|(_, nodes)| !nodes.nodes.is_empty()) {
        pool(name, nodes, clock)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use terminal::clock::SystemClock;

    const TREASURY: &str = r#"
[assets.USDT]
precision = 6
min_transfer = "1"
max_transfer = "1000"
daily_transfer = "5000"
[assets.BNB]
precision = 8
min_transfer = "1"
max_transfer = "1000"
daily_transfer = "5000"
[chains.bsc]
kind = "evm"
network = "56"
confirmations = 12
[chains.tron]
kind = "tron"
network = "mainnet"
confirmations = 19
[chains.nile]
kind = "tron"
network = "nile"
confirmations = 19
[chains.bitcoin]
kind = "bitcoin"
network = "testnet4"
confirmations = 3
[[on_chain]]
asset = "USDT"
chain = "bsc"
contract = "0x55d398326f99059ff775485246999027b3197955"
decimals = 18
min_deposit = "1"
status = "suspended"
[[on_chain]]
asset = "BNB"
chain = "bsc"
decimals = 18
min_deposit = "1"
[[on_chain]]
asset = "USDT"
chain = "tron"
contract = "TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t"
decimals = 6
min_deposit = "1"
"#;

    fn catalog(text: &str) -> Catalog {
        crate::treasury::parse(text, "treasury.toml", &Catalog::default()).expect("a treasury").catalog
    }

    fn node(name: &str) -> NodeSettings {
        NodeSettings { name: name.to_owned(), url: format!("https://{name}.example"), ..NodeSettings::default() }
    }

    fn config(chain: &str, names: &[&str], change: impl FnOnce(&mut ChainNodes)) -> Config {
        let mut nodes = ChainNodes { nodes: names.iter().map(|name| node(name)).collect(), ..ChainNodes::default() };
        change(&mut nodes);
        Config { chains: [(chain.to_owned(), nodes)].into(), ..Config::default() }
    }

    fn made(config: &Config, text: &str) -> Result<Vec<FollowedChain>, Failure> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        of_catalog(config, &catalog(text), &clock)
    }

    #[track_caller]
    fn refused(config: &Config, text: &str, code: &str, words: &str) {
        let failure = made(config, text).err().expect("refused");
        assert!(failure.code == code && failure.messages.join(": ").contains(words), "{failure:?}");
    }

    /// Nothing is hard-coded: what the rows say is what the client is made for.
    #[test]
    fn a_client_is_made_of_the_rows_and_the_nodes() {
        let followed =
            made(&config("bsc", &["a", "b", "c"], |nodes| nodes.internal_transfers = InternalTransfers::Yes), TREASURY);
        let followed = followed.expect("good").remove(0);
        assert_eq!((followed.row.name.as_str(), followed.quorum, followed.proof), ("bsc", 2, ProofBy::Roots));
        assert_eq!(followed.nodes, ["a", "b", "c"]);
        let ChainClient::Evm(client) = &followed.client else { panic!("an EVM chain") };
        let settings = client.settings();
        assert_eq!((settings.chain_id, settings.confirmations, settings.internal_transfers), (56, 12, true));
        assert_eq!(settings.proof, BlockProof::Roots);
        assert_eq!(settings.tokens.len(), 1, "a suspended token is watched too; the chain's own coin is none");
        let followed = made(&config("bitcoin", &["a"], |nodes| nodes.quorum = 1), TREASURY).expect("good").remove(0);
        let ChainClient::Bitcoin(client) = &followed.client else { panic!("Bitcoin") };
        assert_eq!((client.settings().network.to_core_arg(), client.settings().confirmations), ("testnet4", 3));
        for name in ["tron", "nile"] {
            let followed = made(&config(name, &["a", "b"], |_| {}), TREASURY).expect("good").remove(0);
            assert_eq!((followed.proof, followed.quorum, followed.internal_transfers), (ProofBy::SecondNode, 2, true));
            assert!(matches!(followed.client, ChainClient::Tron(_)));
        }
        assert!(made(&config("bsc", &[], |_| {}), TREASURY).expect("good").is_empty(), "not followed");
    }

    #[test]
    fn what_the_rows_do_not_allow_is_refused() {
        let hint = made(&config("bcs", &["a"], |_| {}), TREASURY).err().expect("refused").hint;
        assert_eq!(hint, "did you mean bsc?");
        refused(&config("bcs", &[], |_| {}), TREASURY, "INVALID_CHAIN", "there is no chain bcs");
        refused(&config("tron", &["a"], |_| {}), TREASURY, "CONFIG_INVALID", "proven by a second node");
        let roots = |nodes: &mut ChainNodes| nodes.proof = ProofChoice::Roots;
        refused(&config("tron", &["a", "b"], roots), TREASURY, "CONFIG_INVALID", "no root of TRON");
        let second = |nodes: &mut ChainNodes| nodes.proof = ProofChoice::SecondNode;
        refused(&config("bitcoin", &["a", "b"], second), TREASURY, "CONFIG_INVALID", "by its root, always");
        refused(&config("bsc", &["a"], second), TREASURY, "CONFIG_INVALID", "proven by a second node");
        let traces = |nodes: &mut ChainNodes| nodes.internal_transfers = InternalTransfers::Yes;
        refused(&config("bitcoin", &["a"], traces), TREASURY, "CONFIG_INVALID", "Bitcoin has no contracts");
        let broken =
            TREASURY.replace("0x55d398326f99059ff775485246999027b3197955", "0x55d398326f99059ff77548524699902");
        refused(&config("bsc", &["a"], |_| {}), &broken, "ADDRESS_LENGTH", "USDT on bsc: the contract");
    }
}
