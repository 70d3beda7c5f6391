//! `bursar demo`: the whole way of a coin, with nothing installed but Rust. Three chains with three nodes each in this process; signer, server, spot
//! engine and workers as processes of their own, on a SQLite database. Everything is done by commands and routes that a user has.
//!
//! | module | holds |
//! |---|---|
//! | `ground` | the folder, the files, the processes |
//! | `policy` | what the signer allows |
//! | `chains` | three devnets, and what goes wrong with them |
//! | `people` | the customers and their own records |
//! | `deposits` | they pay in, nodes lie, and a reorganisation takes a payment back |
//! | `trading` | they move money to spot and back, while processes are killed |
//! | `home` | rules give gas and bring coins home |
//! | `withdrawals` | they withdraw, people agree, fees rise |
//! | `records` | the end: records, balances, costs, audit |
//! | `screen`, `watch` | what the terminal shows meanwhile |

mod chains;
mod deposits;
mod ground;
mod home;
mod people;
mod policy;
mod records;
mod screen;
mod trading;
mod watch;
mod withdrawals;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use terminal::clock::Stopwatch;
use terminal::duration::parse_duration;
use terminal::failure::{CommandResult, Exit, Failure};
use terminal::output::say;

use crate::rig::{own_secret, program, trouble};
use chains::{Chains, Net};
use deposits::Deposits;
use ground::{Files, Parts, Worker};
use home::Home;
use people::People;
use screen::Screen;
use trading::Trading;
use watch::Watch;
use withdrawals::{DemoWithdrawal, Withdrawals};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// How long customers trade, such as 10s, 2m or 500ms
    #[arg(long = "for", default_value = "8s", value_name = "TIME", value_parser = parse_duration)]
    time: Duration,
    /// The same seed makes the customers ask for the same
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where everything is kept; an earlier demo there is removed first
    #[arg(long, default_value = "bursar-demo", value_name = "FOLDER")]
    data_dir: PathBuf,
    /// Only deposits and transfers: nothing leaves
    #[arg(long)]
    short: bool,
}

fn wrong(what: impl std::fmt::Display) -> Failure {
    trouble("the demo did not go as it should", std::io::Error::other(what.to_string()))
}

/// What was found on the way.
#[derive(Default)]
struct Found {
    deposits: Deposits,
    trading: Trading,
    home: Home,
    withdrawals: Withdrawals,
}

/// What runs, and what is done to it.
struct Stage<'a> {
    screen: Arc<Screen>,
    files: &'a Files,
    chains: &'a Chains,
    parts: Parts,
    watch: Watch,
    people: People,
    /// The key that tokens are signed with.
    secret: Vec<u8>,
    /// The house's own wallets, by what they are for.
    wallets: BTreeMap<(Net, String), String>,
    /// What customers have asked to be paid out.
    asked: Vec<DemoWithdrawal>,
    found: Found,
}

pub async fn run(arguments: &Arguments, json: bool) -> CommandResult {
    let (screen, clock) = (Arc::new(Screen::new(json)), Stopwatch::start());
    let files = ground::make_folder(&arguments.data_dir)?;
    let chains = Chains::start().await?;
    ground::lay(&files, &chains).await?;
    screen.tell(format!(
        "1. {}: a SQLite database, a signer with an encrypted keystore, rules, people; and in memory three nodes each of Bitcoin, \
         an EVM chain and TRON",
        arguments.data_dir.display()
    ));
    let mut parts = Parts::start(&files).await?;
    for worker in [Worker::Follow, Worker::Deposits] {
        parts.start_worker(worker, &files, &chains).await?;
    }
    screen.tell(format!(
        "2. processes: signer, spot engine, server on http://{}, and a worker for each task; logs are in {}",
        parts.address,
        arguments.data_dir.join("logs").display()
    ));
    let secret = own_secret(&files.folder, "jwt.secret")?;
    let mut stage = Stage {
        watch: Watch::start(files.workers.clone(), Arc::clone(&screen)),
        people: People::new(parts.address, secret.clone()),
        wallets: wallets(&files.workers).await?,
        screen: Arc::clone(&screen),
        files: &files,
        chains: &chains,
        parts,
        secret,
        asked: Vec::new(),
        found: Found::default(),
    };
    let played = stage.play(arguments).await;
    screen.finish();
    // Whatever went wrong on stage, what runs ends with this command.
    let ending = played?;
    if json {
        let mut body = stage.as_json(&ending);
        body["seed"] = json!(arguments.seed);
        body["data_dir"] = json!(arguments.data_dir.display().to_string());
        body["elapsed_ms"] = json!(u64::try_from(clock.elapsed().as_millis()).unwrap_or(u64::MAX));
        say(body);
    } else {
        stage.tell_end(&ending).await?;
    }
    let first: Vec<String> = stage.found.trading.verdict.first.iter().chain(&ending.records.first).cloned().collect();
    let clean = stage.found.trading.verdict.clean() && ending.records.is_clean();
    stage.parts.stop(&files).await?;
    if !json {
        go_on(&arguments.data_dir.join("bursar.toml"), clock.elapsed());
    }
    ending.audit.verdict()?;
    if clean {
        return Ok(());
    }
    let hint = "this is a bug in Bursar: please report it, with the folder".to_owned();
    Err(Failure { code: "CHAOS_FAILED".into(), messages: first, hint, exit: Exit::Found })
}

/// The house's own wallets.
async fn wallets(config: &Path) -> Result<BTreeMap<(Net, String), String>, Failure> {
    let shown = program::told(config, &["wallet", "show"]).await?;
    let mut found = BTreeMap::new();
    for wallet in shown["operation_wallets"].as_array().into_iter().flatten() {
        let text = |name: &str| wallet[name].as_str().unwrap_or_default().to_owned();
        if let Some(net) = Net::ALL.into_iter().find(|net| net.name() == text("chain")) {
            found.insert((net, text("role")), text("address"));
        }
    }
    Ok(found)
}

impl Stage<'_> {
    async fn play(&mut self, arguments: &Arguments) -> Result<records::Ending, Failure> {
        self.deposits(arguments.seed).await?;
        self.reorganisation().await?;
        if !arguments.short {
            self.start_home().await?;
        }
        self.trading(arguments.time, arguments.seed).await?;
        if !arguments.short {
            self.home().await?;
            self.withdrawals().await?;
        }
        self.end().await
    }

    fn wallet(&self, net: Net, role: &str) -> Result<&str, Failure> {
        let found = self.wallets.get(&(net, role.to_owned()));
        found.map(String::as_str).ok_or_else(|| wrong(format!("no {role} wallet on {}", net.name())))
    }
}

fn go_on(config: &Path, elapsed: Duration) {
    let program = std::env::args_os().next().unwrap_or_else(|| "bursar".into()).display().to_string();
    let config = config.display();
    say(format!(
        "\nthat took {} s; go on by yourself:\n  {program} --config {config} transfer list --user 7\n  {program} --config \
         {config} treasury costs\n  {program} --config {config} serve        # then in another terminal:\n  {program} \
         --config {config} token --user 7",
        elapsed.as_secs()
    ));
}
