//! The nodes that the bench reads from: started here, each in a process of its own, and gone with the bench.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chain::endpoint::json_rpc;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use terminal::failure::{CommandResult, Failure};

use crate::postgres::end_with_parent;
pub use crate::rig::nodes::{BITCOIN_LOGIN, pool};

/// A real node as a child, with its own folder.
pub struct RealNode {
    child: Mutex<Child>,
    command: Mutex<Command>,
    folder: PathBuf,
    pub url: String,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RealNode {
    /// Stops it or lets it go on, as a machine that hangs.
    pub fn signal(&self, signal: Signal) {
        // One that has ended is not there, which is what whoever asks it finds out.
        kill_process(Pid::from_child(&locked(&self.child)), signal).ok();
    }

    /// SIGKILL, and another start on the same files. To be called on the thread that began it: a child ends with the thread that started it.
    pub fn restart(&self) -> CommandResult {
        let (mut child, failed) = (locked(&self.child), |error| trouble("a node could not be started again", error));
        child.kill().map_err(failed)?;
        child.wait().map_err(failed)?;
        *child = locked(&self.command).spawn().map_err(failed)?;
        Ok(())
    }
}

impl Drop for RealNode {
    fn drop(&mut self) {
        // It is a node for one bench: nothing of it is worth a good end.
        let mut child = locked(&self.child);
        child.kill().ok();
        child.wait().ok();
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

pub fn trouble(what: &str, error: impl std::fmt::Display) -> Failure {
    let error = std::io::Error::other(format!("{what}: {error}"));
    Failure::outside("COMMAND_FAILED", &error, "the bench needs nodes that start; ./test installs them")
}

/// Where a tool is: as given, on the PATH, or where `./test` has put it.
pub fn find(given: Option<&Path>, name: &str, cached: &str) -> Option<PathBuf> {
    if let Some(given) = given {
        return Some(given.to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    on_path.or_else(|| {
        let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or(home)?.join("bursar");
        let mut folders: Vec<PathBuf> = std::fs::read_dir(cache).ok()?.flatten().map(|entry| entry.path()).collect();
        folders.sort();
        folders.iter().rev().map(|folder| folder.join(cached)).find(|file| file.is_file())
    })
}

fn free_port() -> Result<u16, Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| trouble("no port is free", error))?;
    Ok(listener.local_addr().map_err(|error| trouble("no port is free", error))?.port())
}

async fn start(
    mut command: Command,
    folder: PathBuf,
    url: String,
    probe: &str,
    login: Option<&str>,
) -> Result<RealNode, Failure> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    end_with_parent(&mut command, Signal::KILL);
    let child = command.spawn().map_err(|error| trouble("a node could not be started", error))?;
    let node = RealNode { child: Mutex::new(child), command: Mutex::new(command), folder, url };
    let pool = pool(&node.url, login)?;
    for _ in 0..300 {
        if pool.any(|node| async move { json_rpc::call::<Value>(&node, probe, json!([])).await }).await.is_ok() {
            return Ok(node);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err(trouble("a node did not answer", probe))
}

pub async fn anvil(program: &Path, folder: &Path) -> Result<RealNode, Failure> {
    let port = free_port()?;
    let mut command = Command::new(program);
    command.args(["--no-mining", "--silent", "--chain-id", "56", "--gas-limit", "100000000", "--port"]);
    command.arg(port.to_string());
    let folder = folder.join("anvil");
    std::fs::create_dir_all(&folder).map_err(|error| trouble("a folder", error))?;
    command.current_dir(&folder);
    start(command, folder, format!("http://127.0.0.1:{port}"), "eth_chainId", None).await
}

/// Its pool is forgotten when it is killed.
pub async fn bitcoind(program: &Path, folder: &Path) -> Result<RealNode, Failure> {
    let port = free_port()?;
    let folder = folder.join("bitcoind");
    std::fs::create_dir_all(&folder).map_err(|error| trouble("a folder", error))?;
    let mut command = Command::new(program);
    command.arg("-regtest").arg(format!("-datadir={}", folder.display())).arg(format!("-rpcport={port}"));
    command.args(["-rpcuser=bench", "-rpcpassword=bench", "-listen=0", "-rpcbind=127.0.0.1", "-rpcallowip=127.0.0.1"]);
    command.args(["-rpcworkqueue=256", "-rpcthreads=4", "-txindex=0", "-persistmempool=0"]);
    start(command, folder, format!("http://127.0.0.1:{port}"), "getblockchaininfo", Some(BITCOIN_LOGIN)).await
}
