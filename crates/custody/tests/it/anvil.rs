//! The real anvil, with the devnet's token where the devnet has it: a private chain in memory that mines when it is told to, at the times it is told.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use devnet::Key;
use devnet::evm::TETHER;
use domain::{RawAmount, Timestamp};
use serde_json::{Value, json};
use tempfile::TempDir;
use tx::{Address, Coin};

pub struct Anvil {
    address: SocketAddr,
    process: Child,
    _folder: TempDir,
}

impl Drop for Anvil {
    fn drop(&mut self) {
        // It is gone already, or goes now.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

impl Anvil {
    /// On a free port.
    pub async fn start(chain_id: u64, genesis: u64) -> Self {
        let program = std::env::var_os("BURSAR_TEST_ANVIL").expect("BURSAR_TEST_ANVIL is the path of anvil");
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let process = Command::new(program)
            .args(["--host", "127.0.0.1", "--port", "0", "--no-mining", "--order", "fifo"])
            .args(["--chain-id", &chain_id.to_string(), "--timestamp", &genesis.to_string()])
            .stdin(Stdio::null())
            .stdout(File::create(&log).unwrap())
            .stderr(Stdio::null())
            .spawn()
            .expect("anvil starts");
        // From here on it is killed when this drops.
        let mut anvil = Self { address: ([127, 0, 0, 1], 0).into(), process, _folder: folder };
        for _ in 0..1_000 {
            let said = std::fs::read_to_string(&log).unwrap();
            if let Some((_, rest)) = said.split_once("Listening on ")
                && let Some((address, _)) = rest.split_once('\n')
            {
                anvil.address = address.trim().parse().unwrap();
                anvil.put_token();
                return anvil;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("anvil does not listen");
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// One of anvil's own accounts, which it signs for: a stranger.
    fn stranger() -> String {
        Key::numbered(0).evm().to_string()
    }

    /// The token's code is that of the devnet; the stranger has all of it.
    fn put_token(&self) {
        let mut code: String =
            devnet::evm::contract("Tether").unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
        // What its constructor takes: the symbol, the decimals, the supply.
        for word in [96, 18, 1 << 100, 4_u128] {
            code += &format!("{word:064x}");
        }
        code += &format!("{:0<64}", "55534454");
        let deploy = json!([{ "from": Self::stranger(), "data": format!("0x{code}"), "gas": "0x2dc6c0" }]);
        let hash = self.ask("eth_sendTransaction", deploy);
        self.ask("evm_mine", json!([]));
        let receipt = self.ask("eth_getTransactionReceipt", json!([hash]));
        let code = self.ask("eth_getCode", json!([receipt["contractAddress"], "latest"]));
        self.ask("anvil_setCode", json!([TETHER.to_string(), code]));
        self.ask("anvil_dealERC20", json!([Self::stranger(), TETHER.to_string(), "0xd3c21bcecceda1000000"]));
    }

    pub fn mine(&self, at: Timestamp) {
        self.ask("evm_setNextBlockTimestamp", json!([at.micros() / 1_000_000]));
        self.ask("evm_mine", json!([]));
    }

    /// So many blocks are replaced by empty ones. What was in them is forgotten.
    pub fn reorg(&self, depth: u64) {
        self.ask("anvil_reorg", json!([depth, []]));
    }

    pub fn height(&self) -> u64 {
        let height = self.ask("eth_blockNumber", json!([]));
        u64::from_str_radix(height.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
    }

    /// A payment by a stranger, in the next block.
    pub fn pay(&self, to: &Address, coin: &Coin, amount: RawAmount) {
        let (to, amount) = (to.to_string(), amount.to_u256());
        let payment = match coin {
            Coin::Native => json!({ "from": Self::stranger(), "to": to, "value": format!("{amount:#x}") }),
            Coin::Token(token) => {
                let data = format!("0xa9059cbb{:0>64}{amount:064x}", to.trim_start_matches("0x"));
                json!({ "from": Self::stranger(), "to": token.to_string(), "data": data, "gas": "0x30d40" })
            }
        };
        self.ask("eth_sendTransaction", json!([payment]));
    }

    /// What is refused fails the test.
    fn ask(&self, method: &str, params: Value) -> Value {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        let mut stream = TcpStream::connect(self.address).unwrap();
        let length = body.len();
        let request = format!(
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let (_, body) = reply.split_once("\r\n\r\n").unwrap();
        let mut answer: Value = serde_json::from_str(body).unwrap();
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].take()
    }
}
