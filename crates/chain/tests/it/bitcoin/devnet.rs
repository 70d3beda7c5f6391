//! The devnet as a network of the suite, over HTTP like any other node.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};

use chain::Chain;
use chain::bitcoin::BitcoinChain;
use chain::endpoint::{EndpointSettings, json_rpc};
use devnet::bitcoin::{BitcoinDevnet, Settings};
use devnet::{Fate, Key, Model, Served};
use domain::{Clock, ManualClock, Timestamp};
use serde_json::json;
use tx::Address;
use tx::Input;

use super::{CONFIRMATIONS, Net, REGTEST, watching};
use crate::nodes::bitcoind::{client, input_of, pay_from, pool};

/// One of the keys that a devnet begins with coins for, and none of those that the cases use.
const PURSE: u32 = 0;

pub struct Devnet {
    served: Served<BitcoinDevnet>,
    clock: Arc<ManualClock>,
    purse: Vec<Input>,
}

impl Devnet {
    pub async fn start() -> Self {
        let settings = Settings::default();
        let clock = Arc::new(ManualClock::at(settings.start));
        let free: SocketAddr = ([127, 0, 0, 1], 0).into();
        let served = Served::start(BitcoinDevnet::new(settings), &[free], clock.clone()).await.expect("a free port");
        let mut net = Self { served, clock, purse: Vec::new() };
        let tip = net.act(|model, _| model.height());
        let own = watching(&[Key::numbered(PURSE).bitcoin(REGTEST)]);
        let scan = net.client().scan(1, tip, &own).await.expect("the first blocks");
        net.purse = scan.outputs.iter().map(input_of).collect();
        assert_eq!(net.purse.len(), 5);
        net
    }

    pub fn endpoint(&self) -> EndpointSettings {
        EndpointSettings {
            name: "devnet".to_owned(),
            url: self.served.endpoints[0].url(),
            authorization: None,
            key: None,
            headers: Vec::new(),
            per_second: 0,
        }
    }

    fn act<T>(&self, act: impl FnOnce(&mut BitcoinDevnet, Timestamp) -> T) -> T {
        act(&mut self.served.model.lock().unwrap_or_else(PoisonError::into_inner), self.clock.now())
    }
}

impl Net for Devnet {
    fn client(&self) -> BitcoinChain {
        client(&[self.endpoint()], 1, CONFIRMATIONS)
    }

    async fn mine(&mut self, blocks: u64) {
        self.act(|model, now| model.mine(blocks, now));
    }

    async fn mine_to(&mut self, blocks: u64, address: &Address) {
        let call = &json!([blocks, address.to_string()]);
        let pool = pool(&[self.endpoint()], 1);
        let mined = pool.any(|node| async move { json_rpc::call(&node, "generatetoaddress", call.clone()).await });
        let mined: Vec<String> = mined.await.expect("it mines");
        assert_eq!(mined.len() as u64, blocks);
    }

    async fn fund(&mut self, payments: &[(Address, u64)]) {
        let coin = self.purse.pop().expect("the purse is not empty");
        let chain = self.client();
        let signed = pay_from(&chain, PURSE, coin, payments);
        assert_eq!(chain.broadcast(&signed).await, Ok(chain::Broadcast::Taken));
        self.mine(1).await;
    }

    async fn reorg(&mut self, depth: u64, with: &[Vec<u8>]) {
        self.act(|model, now| model.reorg(depth, Fate::Returned, with, now)).expect("above the first blocks");
    }
}
