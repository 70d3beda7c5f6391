//! A client of one node of a chain: what addresses have there, as the chain says it.

use std::sync::Arc;
use std::time::Duration;

use chain::Chain;
use chain::bitcoin::{BitcoinChain, BitcoinSettings};
use chain::endpoint::{EndpointSettings, Pool, PoolSettings};
use chain::evm::{EvmChain, EvmSettings};
use chain::tron::{Network, TronChain, TronSettings};
use domain::{ChainKind, RawAmount};
use terminal::clock::SystemClock;
use terminal::failure::Failure;
use tx::{Address, Coin};

use super::trouble;

/// What a user of basic authentication sends; the node of one bench has no secrets.
pub const BITCOIN_LOGIN: &str = "Basic YmVuY2g6YmVuY2g=";

fn wrong(error: impl std::fmt::Display) -> Failure {
    trouble("a node could not be asked", std::io::Error::other(error.to_string()))
}

/// The nodes of one endpoint.
pub fn pool(url: &str, authorization: Option<&str>) -> Result<Pool, Failure> {
    let endpoint = EndpointSettings {
        name: "bench".to_owned(),
        url: url.to_owned(),
        authorization: authorization.map(str::to_owned),
        key: None,
        headers: Vec::new(),
        per_second: 0,
    };
    let settings = PoolSettings { deadline: Duration::from_secs(60), ..PoolSettings::default() };
    Pool::new(&[endpoint], &settings, Arc::new(SystemClock)).map_err(wrong)
}

/// A client of the node at this address, on the networks of the devnet. TRON's client knows the tokens that it is told.
pub fn client(kind: ChainKind, url: &str, confirmations: u32, tokens: Vec<Address>) -> Result<Arc<dyn Chain>, Failure> {
    Ok(match kind {
        ChainKind::Evm => {
            let settings = EvmSettings::new(56, u64::from(confirmations));
            Arc::new(EvmChain::new(settings, pool(url, None)?))
        }
        ChainKind::Bitcoin => {
            let settings = BitcoinSettings::new(devnet::bitcoin::NETWORK);
            Arc::new(BitcoinChain::new(settings, pool(url, Some(BITCOIN_LOGIN))?))
        }
        ChainKind::Tron => {
            let settings = TronSettings::new(Network::Mainnet, tokens);
            Arc::new(TronChain::new(settings, pool(url, None)?).map_err(wrong)?)
        }
    })
}

/// What addresses have now.
pub async fn balances(chain: &dyn Chain, wanted: &[(Address, Coin)]) -> Result<Vec<RawAmount>, Failure> {
    let mut found = Vec::with_capacity(wanted.len());
    for some in wanted.chunks(50) {
        found.extend(chain.balances(some).await.map_err(wrong)?);
    }
    Ok(found)
}
