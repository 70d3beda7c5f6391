//! The demo's chains, in the memory of this process: three nodes each, a block now and then, and what goes wrong with them.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use chain::Chain;
use devnet::{Devnet, DevnetSettings, Endpoint, Fate, Key, Lie, Model, Served, View};
use domain::{ChainKind, RawAmount};
use serde_json::{Value, json};
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Failure};
use tx::{Address, Coin, Family};

use super::wrong;
use crate::rig::nodes;

/// Between two blocks of a chain.
const BLOCK: Duration = Duration::from_millis(350);
/// For each chain.
const ENDPOINTS: u16 = 3;

/// A chain of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Net {
    Bitcoin,
    Bsc,
    Tron,
}

impl Net {
    pub const ALL: [Self; 3] = [Self::Bitcoin, Self::Bsc, Self::Tron];

    /// As the treasury file calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bitcoin => "bitcoin",
            Self::Bsc => "bsc",
            Self::Tron => "tron",
        }
    }

    pub const fn kind(self) -> ChainKind {
        match self {
            Self::Bitcoin => ChainKind::Bitcoin,
            Self::Bsc => ChainKind::Evm,
            Self::Tron => ChainKind::Tron,
        }
    }

    /// As the signer and the treasury file call its family.
    pub const fn family(self) -> &'static str {
        match self {
            Self::Bitcoin => "bitcoin-regtest",
            Self::Bsc => "evm",
            Self::Tron => "tron",
        }
    }

    /// What customers pay in and withdraw here.
    pub const fn paid_in(self) -> &'static str {
        match self {
            Self::Bitcoin => "BTC",
            Self::Bsc | Self::Tron => "USDT",
        }
    }

    /// Of what customers pay in.
    pub const fn decimals(self) -> u32 {
        match self {
            Self::Bitcoin => 8,
            Self::Bsc => 18,
            Self::Tron => 6,
        }
    }

    /// As the devnet calls it.
    const fn on_devnet(self) -> &'static str {
        match self {
            Self::Bitcoin => "bitcoin",
            Self::Bsc => "evm",
            Self::Tron => "tron",
        }
    }

    fn parse(self, address: &str) -> Result<Address, Failure> {
        let family = match self {
            Self::Bitcoin => Family::Bitcoin(devnet::bitcoin::NETWORK),
            Self::Bsc => Family::Evm,
            Self::Tron => Family::Tron,
        };
        family.parse_address(address).map_err(wrong)
    }

    /// Somebody's address out there, by a number. Its key is everybody's.
    pub fn outside(self, number: u32) -> String {
        let key = Key::numbered(number);
        match self {
            Self::Bitcoin => key.bitcoin(devnet::bitcoin::NETWORK).to_string(),
            Self::Bsc => key.evm().to_string(),
            Self::Tron => key.tron().to_string(),
        }
    }

    /// What customers pay in here, as its client names it.
    fn token(self) -> Result<Coin, Failure> {
        Ok(match self {
            Self::Bitcoin => Coin::Native,
            Self::Bsc => Coin::Token(self.parse(&devnet::evm::TETHER.to_string())?),
            Self::Tron => Coin::Token(Address::Tron(devnet::tron::TOKEN)),
        })
    }
}

pub struct Chains {
    devnet: Devnet,
    clients: BTreeMap<Net, Arc<dyn Chain>>,
}

impl Chains {
    pub async fn start() -> Result<Self, Failure> {
        let settings = DevnetSettings {
            bitcoin_port: 0,
            evm_port: 0,
            tron_port: 0,
            control_port: 0,
            endpoints: ENDPOINTS,
            block_time: Some(BLOCK),
        };
        let devnet = Devnet::start(&settings, Arc::new(SystemClock)).await.map_err(wrong)?;
        let mut chains = Self { devnet, clients: BTreeMap::new() };
        for net in Net::ALL {
            let url = chains.served(net)?.endpoints.first().map(Endpoint::url).unwrap_or_default();
            let tokens = match net.token()? {
                Coin::Native => Vec::new(),
                Coin::Token(token) => vec![token],
            };
            chains.clients.insert(net, nodes::client(net.kind(), &url, 1, tokens)?);
        }
        Ok(chains)
    }

    fn served(&self, net: Net) -> Result<&Served<dyn Model>, Failure> {
        let name = net.on_devnet();
        self.devnet.chains.get(name).ok_or_else(|| wrong(format!("there is no devnet {name}")))
    }

    fn model(&self, net: Net) -> Result<MutexGuard<'_, dyn Model + 'static>, Failure> {
        // A model's methods do not panic, so that it is never left half-changed.
        Ok(self.served(net)?.model.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The nodes of every chain, as a configuration has them.
    pub fn settings(&self) -> Result<Value, Failure> {
        let mut chains = serde_json::Map::new();
        for net in Net::ALL {
            let node = |(number, endpoint): (usize, &Endpoint)| {
                let mut node = json!({ "name": format!("{}-{number}", net.name()), "url": endpoint.url() });
                if net == Net::Bitcoin {
                    node["login_file"] = json!("core.login");
                }
                node
            };
            let nodes: Vec<Value> = self.served(net)?.endpoints.iter().enumerate().map(node).collect();
            chains.insert(net.name().to_owned(), json!({ "nodes": nodes }));
        }
        Ok(chains.into())
    }

    pub fn urls(&self, net: Net) -> Result<Vec<String>, Failure> {
        Ok(self.served(net)?.endpoints.iter().map(Endpoint::url).collect())
    }

    /// Somebody pays an address. `token`: what customers pay in here, else the chain's own coin. Raw units.
    pub fn pay(&self, net: Net, address: &str, token: bool, amount: &RawAmount) -> CommandResult {
        let token = (token && net != Net::Bitcoin).then_some("USDT");
        let now = self.served(net)?.now();
        self.model(net)?.fund(address, token, *amount, now).map_err(wrong)
    }

    pub fn mine(&self, net: Net, blocks: u64) -> CommandResult {
        self.served(net)?.mine(blocks);
        Ok(())
    }

    /// No block comes by itself any more, or they come again.
    pub fn hold(&self, net: Net, hold: bool) -> CommandResult {
        self.served(net)?.halt(hold);
        Ok(())
    }

    /// The last node of a chain tells lies, or the truth again.
    pub fn lie(&self, net: Net, lie: Lie) -> CommandResult {
        let served = self.served(net)?;
        let liar = served.endpoints.last().ok_or_else(|| wrong("a chain without nodes"))?;
        *liar.view.lock().unwrap_or_else(PoisonError::into_inner) = View { lie, ..View::default() };
        Ok(())
    }

    /// The newest blocks are replaced by others that have none of their transactions, which wait in the pool again.
    pub fn reorganise(&self, net: Net, depth: u64) -> CommandResult {
        let now = self.served(net)?.now();
        self.model(net)?.reorg(depth, Fate::Returned, &[], now).map_err(wrong)
    }

    pub fn fees(&self, net: Net, times: u32) -> CommandResult {
        self.model(net)?.fee_factor(times);
        Ok(())
    }

    /// What addresses have of what customers pay in, as the chain says it now.
    pub async fn balances(&self, net: Net, addresses: &[String]) -> Result<Vec<RawAmount>, Failure> {
        let coin = net.token()?;
        let wanted: Vec<(Address, Coin)> =
            addresses.iter().map(|text| Ok((net.parse(text)?, coin.clone()))).collect::<Result<_, Failure>>()?;
        let client = self.clients.get(&net).ok_or_else(|| wrong("a chain without a client"))?;
        nodes::balances(&**client, &wanted).await
    }
}
