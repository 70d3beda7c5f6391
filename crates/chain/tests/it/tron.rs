//! The TRON client: against answers written by hand after java-tron's documentation, and, in [`live`], against whatever
//! speaks its protocol.

mod answers;
mod devnet;
pub mod live;
mod movements;
mod stub;
mod verdicts;

use std::sync::Arc;

use chain::Watched;
use chain::endpoint::{EndpointSettings, Pool, PoolSettings};
use chain::tron::{Network, TronChain, TronSettings};
use domain::{ManualClock, Timestamp};
use tx::Address;

/// A client of these nodes, of which so many must agree.
pub fn client(urls: &[&str], quorum: usize, tokens: Vec<Address>) -> TronChain {
    client_of(Network::Devnet, urls, quorum, tokens)
}

fn client_of(network: Network, urls: &[&str], quorum: usize, tokens: Vec<Address>) -> TronChain {
    let endpoints: Vec<EndpointSettings> = urls
        .iter()
        .enumerate()
        .map(|(number, url)| EndpointSettings {
            name: format!("node {number}"),
            url: (*url).to_owned(),
            authorization: None,
            key: None,
            headers: Vec::new(),
            per_second: 0,
        })
        .collect();
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(stub::START_MS * 1_000)));
    // At least the majority, without which there is no pool.
    let quorum = Some(quorum.max(urls.len() / 2 + 1));
    let settings = PoolSettings { quorum, ..PoolSettings::default() };
    let pool = Pool::new(&endpoints, &settings, clock).expect("good endpoints");
    TronChain::new(TronSettings::new(network, tokens), pool).expect("TRON's own tokens")
}

fn watching(addresses: &[Address]) -> Watched {
    let mut watched = Watched::default();
    for address in addresses {
        watched.insert(chain::WatchKey::of(address));
    }
    watched
}
