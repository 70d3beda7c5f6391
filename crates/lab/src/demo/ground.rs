//! What the demo stands on: a folder with everything that makes one treasury, laid by the program's own commands, and its parts as processes.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use terminal::failure::{CommandResult, Failure};

use super::chains::{Chains, Net};
use super::policy;
use super::wrong;
use crate::rig::keys::{self, KeyGroup};
use crate::rig::process::{Process, Running};
use crate::rig::proxy::Proxy;
use crate::rig::{MADE_BY_US, own_credentials, own_secret, program, start_spot, trouble, write_private};
use crate::scratch;

const TREASURY: &str = include_str!("treasury.toml");

/// Who is asked to agree to large withdrawals, and the name of each one's key.
pub const APPROVERS: [(&str, &str); 2] = [("bob", "bob-laptop"), ("carol", "carol-laptop")];

/// The wallet groups of each chain.
const PURPOSES: [&str; 4] = ["deposit", "hot", "gas", "treasury"];

/// The name of the group of a chain that is for this.
pub fn group(net: Net, purpose: &str) -> String {
    let prefix = if purpose == "deposit" { "users" } else { purpose };
    format!("{prefix}-{}", net.name())
}

/// On Bitcoin fees are paid out of the coins themselves.
pub fn groups(net: Net) -> impl Iterator<Item = (String, &'static str)> {
    PURPOSES
        .into_iter()
        .filter(move |purpose| !(net == Net::Bitcoin && *purpose == "gas"))
        .map(move |purpose| (group(net, purpose), purpose))
}

/// A worker of the treasury, in a process of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Worker {
    /// Reads the blocks of Bitcoin.
    Follow,
    Deposits,
    Rules,
    Outbound,
    Confirm,
    Withdrawals,
}

impl Worker {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Follow => "follow",
            Self::Deposits => "deposits",
            Self::Rules => "rules",
            Self::Outbound => "outbound",
            Self::Confirm => "confirm",
            Self::Withdrawals => "withdrawals",
        }
    }
}

/// The files of the treasury.
pub struct Files {
    pub folder: PathBuf,
    /// The server's configuration: it has no nodes, and its key of the signer signs nothing.
    pub config: PathBuf,
    /// The workers'.
    pub workers: PathBuf,
}

impl Files {
    pub fn at(&self, name: &str) -> String {
        self.folder.join(name).to_string_lossy().into_owned()
    }

    fn log(&self, name: &str) -> PathBuf {
        self.folder.join("logs").join(format!("{name}.log"))
    }
}

/// An empty folder that is known as ours. What an earlier demo has left there is about chains that are gone with it.
pub fn make_folder(folder: &Path) -> Result<Files, Failure> {
    scratch::check_folder(folder, MADE_BY_US)?;
    if folder.exists() {
        refuse_in_use(folder)?;
        for entry in std::fs::read_dir(folder).map_err(gone)? {
            let path = entry.map_err(gone)?.path();
            // Last of all: by it the folder is known as ours.
            if path.file_name().is_none_or(|name| name != "bursar.toml") {
                if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) }
                    .map_err(gone)?;
            }
        }
    }
    std::fs::create_dir_all(folder).map_err(|error| trouble("the folder could not be made", error))?;
    // A child may have another working directory than its parent.
    let folder = folder.canonicalize().map_err(gone)?;
    let files = Files { config: folder.join("bursar.toml"), workers: folder.join("workers.toml"), folder };
    // From now on it is ours, however soon this is interrupted.
    write_private(&files.config, &format!("{MADE_BY_US}\n"))?;
    std::fs::create_dir_all(files.folder.join("logs")).map_err(gone)?;
    Ok(files)
}

fn gone(error: std::io::Error) -> Failure {
    trouble("the folder of an earlier run cannot be made anew", error)
}

/// A server that somebody has started on what an earlier demo left would go on with files that are gone.
fn refuse_in_use(folder: &Path) -> CommandResult {
    let lock = folder.join("spot/lock");
    if File::open(&lock).is_ok_and(|lock| lock.try_lock_shared().is_err()) {
        let message = format!("{} is locked: something still runs on what an earlier demo left", lock.display());
        let hint = "stop the server that you have started there, or choose another --data-dir";
        return Err(Failure::bad_input("SPOT_LOG_IN_USE", message, hint));
    }
    Ok(())
}

fn toml_of(settings: &Value) -> Result<String, Failure> {
    toml::to_string(settings).map_err(wrong)
}

/// Files, keys, database. What is read here was made by commands that any operator has.
pub async fn lay(files: &Files, chains: &Chains) -> CommandResult {
    let settings = json!({
        "database": { "url": "sqlite://bursar.db" },
        "treasury": { "file": "treasury.toml" },
        "signer": { "name": "demo", "socket": "signer/socket", "credential_file": "server.credential" },
        "spot": { "address": "", "folder": "spot" },
        "chains": chains.settings()?,
    });
    let text = toml_of(&settings)?;
    write_private(&files.workers, &format!("{MADE_BY_US}. Its chains are gone with the demo.\n{text}"))?;
    // The devnet lets everybody in.
    write_private(&files.folder.join("core.login"), "any:any")?;
    let mut people = Vec::new();
    for (person, key) in APPROVERS {
        people.push((person, key, keys::write_key(&files.folder, person)?));
    }
    let of = |net: Net| groups(net).map(move |(name, purpose)| KeyGroup { name, purpose, family: net.family() });
    let groups: Vec<KeyGroup> = Net::ALL.into_iter().flat_map(of).collect();
    let xpubs = keys::make_signer(&files.workers, &files.folder, &groups, |ada| policy::text(ada, &people)).await?;
    // The server asks what was signed before it gives anything back. With this key nobody can have anything signed.
    let (home, gateway) = (files.at("signer"), files.at("gateway.credential"));
    let add = ["signer", "key", "add", "gateway", "--folder", &home, "--derive", "--read", "--credential", &gateway];
    program::told(&files.workers, &add).await?;
    let wallets = wallets(&groups, &xpubs)?;
    let people = policy::people(&people);
    write_private(&files.folder.join("treasury.toml"), &format!("{TREASURY}\n{people}\n{wallets}"))?;
    own_secret(&files.folder, "jwt.secret")?;
    own_secret(&files.folder, "operators.secret")?;
    own_credentials(&files.folder)?;
    program::told(&files.workers, &["migrate"]).await?;
    let apply = ["apply", &files.at("treasury.toml"), "--actor", "demo", "--reason", "a treasury to look at"];
    program::told(&files.workers, &apply).await?;
    for (asset, price) in [("USDT", "1"), ("BTC", "60000"), ("BNB", "600"), ("TRX", "0.25")] {
        program::told(&files.workers, &["treasury", "price", asset, price, "--actor", "demo"]).await?;
    }
    Ok(())
}

/// The part of the treasury file that the keys decide.
fn wallets(groups: &[KeyGroup], xpubs: &BTreeMap<String, String>) -> Result<String, Failure> {
    let (mut pinned, mut wallets) = (serde_json::Map::new(), Vec::new());
    for one in groups {
        let xpub = xpubs.get(&one.name).ok_or_else(|| wrong("a group has no key"))?;
        pinned.insert(one.name.clone(), json!({ "chain": one.family, "purpose": one.purpose, "xpub": xpub }));
        let chain = one.name.rsplit('-').next().unwrap_or_default();
        if one.purpose != "deposit" {
            wallets.push(json!({ "role": one.purpose, "chain": chain, "group": one.name, "index": 0 }));
        }
    }
    toml_of(&json!({ "wallet_groups": pinned, "operation_wallets": wallets }))
}

/// What runs.
pub struct Parts {
    spot: Process,
    signer: Running,
    server: Option<Process>,
    workers: BTreeMap<Worker, Running>,
    /// The wire between server and spot engine.
    pub wire: Proxy,
    pub address: SocketAddr,
}

impl Parts {
    /// The signer, the spot engine and the server.
    pub async fn start(files: &Files) -> Result<Self, Failure> {
        let signer = start_signer(files).await?;
        let spot = start_spot(&files.folder, "127.0.0.1:0").await?;
        let wire = Proxy::start(spot.address).await?;
        configure(files, "127.0.0.1:0", &wire.address.to_string())?;
        let server = start_server(files).await?;
        let address = server.address;
        // Whoever starts it again finds the same door.
        configure(files, &address.to_string(), &wire.address.to_string())?;
        Ok(Self { spot, signer, server: Some(server), workers: BTreeMap::new(), wire, address })
    }

    pub async fn start_worker(&mut self, worker: Worker, files: &Files, chains: &Chains) -> CommandResult {
        let config = files.workers.to_string_lossy().into_owned();
        let (login, urls) = (files.at("core.login"), chains.urls(Net::Bitcoin)?);
        let mut words = vec!["--json", "--config", &config];
        let event = match worker {
            Worker::Follow => {
                words.extend(["utxo", "follow", "--login-file", &login]);
                words.extend(urls.iter().flat_map(|url| ["--node", url.as_str()]));
                "nodes"
            }
            Worker::Deposits => {
                words.extend(["run", "deposits", "--from", "0"]);
                "running"
            }
            Worker::Rules | Worker::Outbound | Worker::Confirm | Worker::Withdrawals => {
                words.extend(["run", worker.name()]);
                "running"
            }
        };
        let running = Running::start(&words, event, &files.log(worker.name())).await?;
        self.workers.insert(worker, running);
        Ok(())
    }

    pub fn runs(&self, worker: Worker) -> bool {
        self.workers.contains_key(&worker)
    }

    /// SIGKILL.
    pub async fn kill_worker(&mut self, worker: Worker) -> CommandResult {
        match self.workers.remove(&worker) {
            Some(running) => running.kill().await,
            None => Ok(()),
        }
    }

    /// SIGKILL, and started again.
    pub async fn restart_server(&mut self, files: &Files) -> CommandResult {
        if let Some(server) = self.server.take() {
            server.kill().await?;
        }
        self.server = Some(start_server(files).await?);
        Ok(())
    }

    /// All of it ends in good order.
    pub async fn stop(self, files: &Files) -> CommandResult {
        for (_, worker) in self.workers {
            worker.stop().await?;
        }
        if let Some(server) = self.server {
            server.stop().await?;
        }
        self.spot.stop().await?;
        self.signer.stop().await?;
        configure_for_later(files)
    }
}

async fn start_signer(files: &Files) -> Result<Running, Failure> {
    let (home, passphrase) = (files.at("signer"), files.at("passphrase"));
    let words = ["--json", "signer", "serve", "--folder", &home, "--passphrase-file", &passphrase];
    Running::start(&words, "listening", &files.log("signer")).await
}

async fn start_server(files: &Files) -> Result<Process, Failure> {
    let config = files.config.to_string_lossy().into_owned();
    Process::start_logged(&["--json", "--config", &config, "serve"], "http", &files.log("server")).await
}

/// The server while the demo runs: without limits, so that a few customers make much traffic.
fn configure(files: &Files, http: &str, spot: &str) -> CommandResult {
    let settings = json!({
        "database": { "url": "sqlite://bursar.db" },
        "treasury": { "file": "treasury.toml" },
        "signer": { "name": "demo", "socket": "signer/socket", "credential_file": "gateway.credential" },
        "http": { "listen": http, "operations_listen": "" },
        "auth": { "issuer": "rig", "audience": "rig", "hs256_secret_file": "jwt.secret" },
        "operators": { "issuer": "rig", "audience": "rig-operators", "hs256_secret_file": "operators.secret" },
        "spot": { "kind": "remote", "address": spot, "credentials_file": "spot.credentials", "folder": "spot" },
        "transfer": {
            "call_timeout_ms": 300, "scan_interval_ms": 100, "first_pause_ms": 50, "longest_pause_ms": 500,
        },
        "limits": { "requests_per_second": 0, "daily_transfers": 0 },
    });
    write_private(&files.config, &format!("{MADE_BY_US}. The limits are off.\n{}", toml_of(&settings)?))
}

/// The same treasury for a server that the user starts later: with the engine in its own process, and common limits. The chains are gone.
fn configure_for_later(files: &Files) -> CommandResult {
    let settings = json!({
        "database": { "url": "sqlite://bursar.db" },
        "treasury": { "file": "treasury.toml" },
        "signer": { "name": "demo" },
        "auth": { "issuer": "rig", "audience": "rig", "hs256_secret_file": "jwt.secret" },
        "operators": { "issuer": "rig", "audience": "rig-operators", "hs256_secret_file": "operators.secret" },
        "spot": { "credentials_file": "spot.credentials", "folder": "spot" },
    });
    write_private(&files.config, &format!("{MADE_BY_US}: bursar --config THIS serve\n{}", toml_of(&settings)?))
}
