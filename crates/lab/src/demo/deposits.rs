//! The second act of the demo: customers ask for addresses and pay on three devnets, and a reorganisation takes a payment back
//! that was credited. The chains live in memory, so this treasury begins anew with each run.

use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use devnet::{Devnet, DevnetSettings, Fate, Model, Served};
use domain::{Clock, UserId};
use serde_json::{Value, json};
use terminal::audit::AuditReport;
use terminal::clock::{Stopwatch, SystemClock};
use terminal::failure::{CommandResult, Failure};

use crate::rig::client::Client;
use crate::rig::process::Process;
use crate::rig::{MADE_BY_US, own_secret, program, trouble, write_private};
use crate::scratch;

const TREASURY: &str = include_str!("treasury.toml");

/// A customer's payment: on which chain (and what the devnet calls it), of what, and how much in the chain's units.
struct Payment {
    user: i64,
    chain: &'static str,
    devnet: &'static str,
    asset: &'static str,
    token: Option<&'static str>,
    shown: &'static str,
    raw: &'static str,
}

const fn payment(
    user: i64,
    [chain, devnet, asset]: [&'static str; 3],
    token: Option<&'static str>,
    [shown, raw]: [&'static str; 2],
) -> Payment {
    Payment { user, chain, devnet, asset, token, shown, raw }
}

const PAYMENTS: [Payment; 6] = [
    payment(1, ["bitcoin", "bitcoin", "BTC"], None, ["0.25", "25000000"]),
    payment(2, ["bitcoin", "bitcoin", "BTC"], None, ["1.5", "150000000"]),
    payment(3, ["bsc", "evm", "BNB"], None, ["2", "2000000000000000000"]),
    payment(4, ["bsc", "evm", "USDT"], Some("USDT"), ["250", "250000000000000000000"]),
    payment(5, ["tron", "tron", "TRX"], None, ["900", "900000000"]),
    payment(6, ["tron", "tron", "USDT"], Some("USDT"), ["1200", "1200000000"]),
];

/// Whose payment the reorganisation takes back.
const UNLUCKY: i64 = 4;
/// So many blocks above a payment make it credited. TRON's tokens wait until their block is solidified.
const ABOVE: [(&str, u64); 3] = [("bitcoin", 3), ("evm", 3), ("tron", 22)];
/// What a reorganisation replaces: the block of the last payment on the EVM chain, and those above it.
const REPLACED: u64 = 4;
/// Until it is credited, or taken back. A worker looks at its chain every half second.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the second act came to.
pub struct Told {
    pub paid: usize,
    pub credited: usize,
    pub taken_back: usize,
    pub credited_again: usize,
    pub audit: AuditReport,
    pub config: PathBuf,
}

fn wrong(what: impl Into<String>) -> Failure {
    trouble("the deposits did not go as they should", std::io::Error::other(what.into()))
}

struct Act {
    folder: PathBuf,
    devnet: Devnet,
    client: Client,
}

/// Plays it, and tells the reader what happens as it happens.
pub async fn play(folder: &Path, tell: &dyn Fn(String)) -> Result<Told, Failure> {
    let settings =
        DevnetSettings { bitcoin_port: 0, evm_port: 0, tron_port: 0, control_port: 0, endpoints: 3, block_time: None };
    let devnet = Devnet::start(&settings, Arc::new(SystemClock)).await.map_err(|error| wrong(error.to_string()))?;
    let config = prepare(folder, &devnet).await?;
    let config_text = config.to_string_lossy().into_owned();
    let server = Process::start(&["--json", "--config", &config_text, "serve", "--create-spot"], "http").await?;
    tell(format!(
        "8. deposits: three nodes each of Bitcoin, an EVM chain and TRON, in memory; a server with a worker for each on \
         http://{}",
        server.address
    ));
    let client = Client::new(vec![server.address], 0, own_secret(folder, "jwt.secret")?);
    let mut act = Act { folder: folder.to_owned(), devnet, client };
    let told = act.perform(&config, tell).await;
    // Whatever went wrong on stage, the server ends.
    let stopped = server.stop().await;
    let (credited, taken_back, credited_again) = told?;
    stopped?;
    let audit = program::audit(&config).await?;
    Ok(Told { paid: PAYMENTS.len(), credited, taken_back, credited_again, audit, config })
}

/// A treasury of its own beside the demo's. What an earlier run has left is about chains that are gone.
async fn prepare(folder: &Path, devnet: &Devnet) -> Result<PathBuf, Failure> {
    scratch::check_folder(folder, MADE_BY_US)?;
    if folder.exists() {
        std::fs::remove_dir_all(folder)
            .map_err(|error| trouble("the folder of an earlier run cannot be removed", error))?;
    }
    std::fs::create_dir_all(folder).map_err(|error| trouble("the folder could not be made", error))?;
    let folder = folder.canonicalize().map_err(|error| trouble("the folder is gone", error))?;
    let config = folder.join("bursar.toml");
    let nodes = |chain: &str, login: Option<&str>| -> Value {
        let endpoints = devnet.chains.get(chain).map_or(&[][..], |served| served.endpoints.as_slice());
        let nodes = endpoints.iter().enumerate().map(|(number, endpoint)| {
            let mut node = json!({ "name": format!("{chain}-{number}"), "url": endpoint.url() });
            if let Some(login) = login {
                node["login_file"] = json!(login);
            }
            node
        });
        json!({ "nodes": nodes.collect::<Vec<Value>>() })
    };
    let settings = json!({
        "database": { "url": "sqlite://bursar.db" },
        "http": { "listen": "127.0.0.1:0", "operations_listen": "" },
        "auth": { "issuer": "rig", "audience": "rig", "hs256_secret_file": "jwt.secret" },
        // Nobody but this server asks its engine.
        "spot": { "address": "", "folder": "spot" },
        "treasury": { "file": "treasury.toml" },
        "chains": { "bitcoin": nodes("bitcoin", Some("core.login")), "bsc": nodes("evm", None), "tron": nodes("tron", None) },
    });
    let text = toml::to_string(&settings).map_err(|error| wrong(error.to_string()))?;
    write_private(&config, &format!("{MADE_BY_US}. Its chains are gone with the demo.\n{text}"))?;
    write_private(&folder.join("treasury.toml"), TREASURY)?;
    // The devnet lets everybody in.
    write_private(&folder.join("core.login"), "any:any")?;
    own_secret(&folder, "jwt.secret")?;
    program::told(&config, &["migrate"]).await?;
    let treasury = folder.join("treasury.toml").to_string_lossy().into_owned();
    program::told(&config, &["apply", &treasury, "--actor", "demo", "--reason", "deposits to look at"]).await?;
    Ok(config)
}

impl Act {
    async fn perform(&mut self, config: &Path, tell: &dyn Fn(String)) -> Result<(usize, usize, usize), Failure> {
        let mut addresses = Vec::new();
        for payment in &PAYMENTS {
            addresses.push(self.address(payment).await?);
        }
        self.follow(config).await?;
        self.wait(config, "the workers begin", |_, chains| chains.iter().all(|chain| !chain["reading"].is_null()))
            .await?;
        for (payment, address) in PAYMENTS.iter().zip(&addresses) {
            tell(format!(
                "   customer {} pays {} {} on {} to {address}",
                payment.user, payment.shown, payment.asset, payment.chain
            ));
            let raw = payment.raw.parse().map_err(|_| wrong("an amount"))?;
            let chain = self.chain(payment.devnet)?;
            lock(chain).fund(address, payment.token, raw, SystemClock.now()).map_err(wrong)?;
            // Each payment is in a block of its own, so that a reorganisation can take one and leave the others.
            chain.mine(1);
        }
        for (chain, blocks) in ABOVE {
            self.chain(chain)?.mine(blocks);
        }
        self.follow(config).await?;
        let is_credited = |row: &Value| row["state"] == "credited" || row["state"] == "final";
        let rows = self
            .wait(config, "every payment is credited", |deposits, _| {
                deposits.len() == PAYMENTS.len() && deposits.iter().all(is_credited)
            })
            .await?;
        tell(format!("   found, proven, and credited once it was deep enough:\n\n{}\n", self.shown(config).await?));
        tell(format!(
            "9. a reorganisation: the EVM chain replaces its newest {REPLACED} blocks; none of the new ones pays customer \
             {UNLUCKY}\n"
        ));
        lock(self.chain("evm")?).reorg(REPLACED, Fate::Returned, &[], SystemClock.now()).map_err(wrong)?;
        let unlucky = UNLUCKY.to_string();
        let of_unlucky = |row: &&Value| row["user"] == unlucky.as_str();
        let gone = self
            .wait(config, "the credit is taken back", |deposits, _| {
                deposits.iter().filter(of_unlucky).all(|row| row["state"] == "reversed")
            })
            .await?;
        tell(format!("{}\n\n   customer {UNLUCKY} has {} USDT\n", self.shown_of(config).await?, self.has().await?));
        self.chain("evm")?.mine(REPLACED);
        let again = self
            .wait(config, "it is credited again", |deposits, _| deposits.iter().filter(of_unlucky).any(is_credited))
            .await?;
        tell(format!(
            "   its transaction waited in the pool and is mined again: that is a new deposit\n\n{}\n\n   customer {UNLUCKY} \
             has {} USDT\n",
            self.shown_of(config).await?,
            self.has().await?
        ));
        let count = |rows: &[Value], state: &str| rows.iter().filter(|row| row["state"] == state).count();
        let credited = rows.iter().filter(|row| is_credited(row)).count();
        Ok((credited, count(&gone, "reversed"), again.iter().filter(of_unlucky).filter(|row| is_credited(row)).count()))
    }

    fn chain(&self, name: &str) -> Result<&Served<dyn Model>, Failure> {
        self.devnet.chains.get(name).ok_or_else(|| wrong(format!("there is no devnet {name}")))
    }

    async fn address(&mut self, payment: &Payment) -> Result<String, Failure> {
        let user = UserId::new(payment.user).ok_or_else(|| wrong("a user"))?;
        let asked = json!({ "chain": payment.chain });
        let answer = self.client.ask(user, "POST", "/api/v1/deposit_address", Some(&asked)).await;
        let (status, body) = answer.map_err(|_| wrong("the server does not answer"))?;
        let address = body["address"].as_str().filter(|_| status == 200);
        address.map(str::to_owned).ok_or_else(|| wrong(format!("no address: {status} {body}")))
    }

    /// What the unlucky customer is told to have.
    async fn has(&mut self) -> Result<String, Failure> {
        let user = UserId::new(UNLUCKY).ok_or_else(|| wrong("a user"))?;
        let answer = self.client.ask(user, "GET", "/api/v1/balances", None).await;
        let (_, body) = answer.map_err(|_| wrong("the server does not answer"))?;
        let balances = body["balances"].as_array().map_or(&[][..], Vec::as_slice);
        let usdt = balances.iter().find(|balance| balance["asset"] == "USDT");
        let available = usdt.and_then(|balance| balance["funding"]["available"].as_str());
        available.map(str::to_owned).ok_or_else(|| wrong(format!("no balance: {body}")))
    }

    /// Bitcoin's wallets are kept in step by a command of their own.
    async fn follow(&self, config: &Path) -> CommandResult {
        let login = self.folder.join("core.login").to_string_lossy().into_owned();
        let urls: Vec<String> = self.chain("bitcoin")?.endpoints.iter().map(devnet::Endpoint::url).collect();
        let nodes = urls.iter().flat_map(|url| ["--node", url]);
        let words: Vec<&str> = ["utxo", "follow", "--once", "--login-file", &login].into_iter().chain(nodes).collect();
        program::told(config, &words).await.map(|_| ())
    }

    /// All deposits, as soon as they and the chains are so.
    async fn wait(
        &self,
        config: &Path,
        until: &str,
        is_so: impl Fn(&[Value], &[Value]) -> bool,
    ) -> Result<Vec<Value>, Failure> {
        let watch = Stopwatch::start();
        loop {
            let deposits = rows(program::told(config, &["deposit", "list"]).await?, "deposits");
            let chains = rows(program::told(config, &["chain", "status"]).await?, "chains");
            if is_so(&deposits, &chains) {
                return Ok(deposits);
            }
            if watch.elapsed() > PATIENCE {
                return Err(wrong(format!("waited in vain until {until}: {}", json!(deposits))));
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn shown(&self, config: &Path) -> Result<String, Failure> {
        program::shown(config, &["deposit", "list"]).await
    }

    async fn shown_of(&self, config: &Path) -> Result<String, Failure> {
        program::shown(config, &["deposit", "list", "--user", &UNLUCKY.to_string()]).await
    }
}

/// A model's methods do not panic, so that it is never left half-changed.
fn lock(chain: &Served<dyn Model>) -> MutexGuard<'_, dyn Model + 'static> {
    chain.model.lock().unwrap_or_else(PoisonError::into_inner)
}

fn rows(mut body: Value, name: &str) -> Vec<Value> {
    match body[name].take() {
        Value::Array(rows) => rows,
        _ => Vec::new(),
    }
}
