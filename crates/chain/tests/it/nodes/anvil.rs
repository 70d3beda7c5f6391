//! The real anvil: a private chain in memory that mines when it is told to.

use std::fs::File;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::Blocking;

pub struct Anvil {
    pub url: String,
    pub address: SocketAddr,
    /// Killed when it drops.
    _process: Child,
    _folder: TempDir,
}

impl Anvil {
    /// On a free port. Blocks come from `anvil_mine` alone.
    pub async fn start(chain_id: u64) -> Self {
        Self::with(chain_id, &["--order", "fifo"]).await
    }

    /// As Osaka is: no transaction may take more than its limit of gas, and the best pay first.
    pub fn osaka(chain_id: u64) -> Blocking<Self> {
        Blocking::start(Self::with(chain_id, &["--hardfork", "osaka", "--enable-tx-gas-limit"]))
    }

    async fn with(chain_id: u64, arguments: &[&str]) -> Self {
        let program = std::env::var_os("BURSAR_TEST_ANVIL").expect("BURSAR_TEST_ANVIL is the path of anvil");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let log = folder.path().join("log");
        let process = Command::new(program)
            .args(["--host", "127.0.0.1", "--port", "0", "--no-mining"])
            .args(["--chain-id", &chain_id.to_string()])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(File::create(&log).expect("a file for its words"))
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("anvil starts");
        for _ in 0..1_000 {
            let said = std::fs::read_to_string(&log).expect("its words");
            if let Some((_, rest)) = said.split_once("Listening on ")
                && let Some((address, _)) = rest.split_once('\n')
            {
                let address: SocketAddr = address.trim().parse().expect("an address");
                return Self { url: format!("http://{address}"), address, _process: process, _folder: folder };
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("anvil does not listen");
    }
}
