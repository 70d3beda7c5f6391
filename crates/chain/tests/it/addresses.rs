//! A client takes addresses of its own network, and says why it does not take others.

use std::sync::Arc;

use ::bitcoin::Network;
use chain::bitcoin::{BitcoinChain, BitcoinSettings};
use chain::endpoint::{EndpointSettings, Pool, PoolSettings};
use chain::evm::{EvmChain, EvmSettings};
use chain::tron::{TronChain, TronSettings};
use chain::{Chain, WatchKey};
use devnet::Key;
use domain::ManualClock;
use tx::{Address, BadAddress};

/// Reading an address asks no node.
fn pool() -> Pool {
    let endpoint = EndpointSettings {
        name: "never asked".to_owned(),
        url: "http://127.0.0.1:1".to_owned(),
        authorization: None,
        key: None,
        headers: Vec::new(),
        per_second: 0,
    };
    Pool::new(&[endpoint], &PoolSettings::default(), Arc::new(ManualClock::default())).expect("a good endpoint")
}

fn taken(client: &dyn Chain, address: &Address) {
    let parsed = client.parse_address(&address.to_string());
    assert_eq!(parsed.as_ref(), Ok(address));
    assert_eq!(parsed.map(|parsed| WatchKey::of(&parsed)), Ok(WatchKey::of(address)));
}

#[test]
fn a_bitcoin_client_takes_addresses_of_its_own_network() {
    let networks = [Network::Bitcoin, Network::Testnet, Network::Regtest];
    for ours in networks {
        let client = BitcoinChain::new(BitcoinSettings::new(ours), pool());
        for network in networks {
            for address in [Key::numbered(3).bitcoin(network), Key::numbered(3).taproot(network)] {
                if network == ours {
                    taken(&client, &address);
                } else {
                    assert_eq!(client.parse_address(&address.to_string()), Err(BadAddress::WrongNetwork), "{address}");
                }
            }
        }
    }
}

#[test]
fn an_evm_and_a_tron_client_tell_their_addresses_apart() {
    let key = Key::numbered(3);
    let evm = EvmChain::new(EvmSettings::new(56, 1), pool());
    let tron = TronChain::new(TronSettings::new(chain::tron::Network::Devnet, Vec::new()), pool()).expect("settings");
    taken(&evm, &key.evm());
    taken(&tron, &key.tron());
    assert_eq!(evm.parse_address(&key.tron().to_string()), Err(BadAddress::Malformed));
    assert_eq!(tron.parse_address(&key.evm().to_string()), Err(BadAddress::WrongNetwork));
    // The same 20 bytes: each chain has a watched set of its own.
    assert_eq!(WatchKey::of(&key.evm()), WatchKey::of(&key.tron()));
    assert_ne!(WatchKey::of(&key.evm()), WatchKey::of(&key.bitcoin(Network::Regtest)));
}
