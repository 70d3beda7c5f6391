//! The devnet without a wire and a real bitcoind, as nodes of the table.

use bitcoin::Block;
use bitcoin::consensus::encode::deserialize_hex;
use devnet::bitcoin::{BitcoinDevnet, Settings};
use devnet::{Model, View, Wire};
use serde_json::{Value, json};

use super::NOW;
use crate::cases_bitcoin::Node;
use crate::nodes::bitcoind::Bitcoind;
use crate::nodes::{Blocking, post};

pub struct Direct {
    pub net: BitcoinDevnet,
    pub view: View,
}

impl Direct {
    pub fn new() -> Self {
        Self { net: BitcoinDevnet::new(Settings::default()), view: View::default() }
    }

    pub fn post(&mut self, body: &str) -> (u16, Value) {
        let wire = Wire { method: "POST", path: "/", query: "", body: body.as_bytes() };
        let reply = self.net.answer(&self.view, wire, NOW);
        (reply.status, serde_json::from_slice(&reply.body).unwrap_or(Value::Null))
    }

    pub fn mine(&mut self, blocks: u64) {
        self.net.mine(blocks, NOW);
    }

    pub fn seen_by(&mut self, view: View) -> &mut Self {
        self.view = view;
        self
    }

    /// A block of the active chain.
    pub fn block(&mut self, height: u64) -> Block {
        let hash = self.must("getblockhash", json!([height]));
        deserialize_hex(self.must("getblock", json!([hash, 0])).as_str().unwrap()).unwrap()
    }

    pub fn height(&mut self) -> u64 {
        self.must("getblockcount", json!([])).as_u64().unwrap()
    }
}

fn read_reply(reply: &Value) -> Result<Value, (i64, String)> {
    if reply["error"].is_null() {
        return Ok(reply["result"].clone());
    }
    Err((reply["error"]["code"].as_i64().unwrap(), reply["error"]["message"].as_str().unwrap().to_owned()))
}

impl Node for Direct {
    fn call(&mut self, method: &str, parameters: Value) -> Result<Value, (i64, String)> {
        let request = json!({ "id": 1, "method": method, "params": parameters });
        let (_, reply) = self.post(&request.to_string());
        read_reply(&reply)
    }
}

impl Node for Blocking<Bitcoind> {
    fn call(&mut self, method: &str, parameters: Value) -> Result<Value, (i64, String)> {
        let request = json!({ "id": 1, "method": method, "params": parameters });
        let (_, reply) = post(self.node.address, "/", &request.to_string());
        read_reply(&serde_json::from_str(&reply).unwrap())
    }
}
