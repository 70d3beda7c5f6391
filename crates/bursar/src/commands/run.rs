//! `bursar run ROLE`: one role of Bursar in a process of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use clap::Subcommand;
use custody::wallet::Pinned;
use domain::Clock;
use serde_json::json;
use store::Db;
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Failure};
use terminal::output::say;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::Context;
use crate::chains::{self, FollowedChain};
use crate::pins;
use crate::roles::deposits::{DepositRole, row_of};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Read chains, prove their blocks, and credit deposits once they are deep enough
    ///
    /// One worker at a time has a chain: start as many as you like, the others wait. It begins at the newest settled block of a
    /// chain that it has never read; --from names another. Bitcoin's blocks are read by bursar utxo follow; this role credits
    /// what they pay.
    Deposits(DepositArguments),
}

#[derive(Debug, clap::Args)]
pub struct DepositArguments {
    /// A chain that has nodes in the configuration; give several, or none for all of them
    #[arg(long, value_name = "NAME")]
    chain: Vec<String>,
    /// Where a chain begins that was never read: a block below the first payment
    #[arg(long, value_name = "HEIGHT")]
    from: Option<u64>,
    /// Work until there is nothing to do, and end
    #[arg(long)]
    once: bool,
}

pub async fn run(context: &Context, command: &Command) -> CommandResult {
    match command {
        Command::Deposits(arguments) => deposits(context, arguments).await,
    }
}

async fn deposits(context: &Context, arguments: &DepositArguments) -> CommandResult {
    let db = context.open().await?;
    let pinned = pins::pinned(&context.config, &db).await?;
    pins::check(&context.config, &db, &pinned).await?;
    let mut roles = deposit_roles(context, &db, &pinned).await?;
    for name in &arguments.chain {
        if !roles.iter().any(|role| role.name.as_str() == name) {
            let message = format!("the configuration has no nodes for a chain {name}");
            let hint = "see chains in examples/bursar.toml; bursar chain check shows what there is";
            return Err(Failure::bad_input("INVALID_CHAIN", message, hint));
        }
    }
    roles.retain(|role| arguments.chain.is_empty() || arguments.chain.iter().any(|name| name == role.name.as_str()));
    roles.iter_mut().for_each(|role| role.from = arguments.from);
    if roles.is_empty() {
        let hint = "see chains in examples/bursar.toml";
        return Err(Failure::bad_input("INVALID_CHAIN", "the configuration has no nodes for any chain", hint));
    }
    if arguments.once { once(context, &roles).await } else { forever(context, roles).await }
}

/// The worker of every chain that the configuration has nodes for.
pub async fn deposit_roles(context: &Context, db: &Db, pinned: &Arc<Pinned>) -> Result<Vec<DepositRole>, Failure> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let config = Arc::new(context.config.clone());
    // Before the clients are made: what is applied in between is noticed.
    let mut rows = BTreeMap::new();
    for name in db.chain_names().await? {
        rows.insert(name.clone(), row_of(db, &name).await?);
    }
    let role = |chain: FollowedChain| {
        Some(DepositRole {
            db: db.clone(),
            config: Arc::clone(&config),
            chain: chain.client.shared(),
            row: rows.get(&chain.row.name)?.clone(),
            name: chain.row.name.clone(),
            pinned: Arc::clone(pinned),
            worker: worker_name(),
            from: None,
        })
    };
    Ok(chains::open(&context.config, db, &clock).await?.into_iter().filter_map(role).collect())
}

/// Who this process is, for whoever waits for a chain.
fn worker_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    // In containers hostname and number may be the same.
    format!("{}-{}-{}", host.trim(), std::process::id(), SystemClock.now().micros())
}

async fn once(context: &Context, roles: &[DepositRole]) -> CommandResult {
    for role in roles {
        let (mut passed, mut credited, mut taken_back) = (0, 0, 0);
        let done = role.until_idle(|worked| {
            passed += worked.passed;
            credited += worked.posted.credited;
            taken_back += worked.posted.taken_back;
        });
        done.await.map_err(|error| {
            Failure::outside(error.code(), &error, "bursar chain check shows what the nodes of the chain say")
        })?;
        let name = role.name.as_str();
        context
            .print(&json!({ "chain": name, "blocks": passed, "credited": credited, "taken_back": taken_back }), || {
                format!("{name}: {passed} blocks read, {credited} deposits credited, {taken_back} taken back")
            });
    }
    Ok(())
}

async fn forever(context: &Context, roles: Vec<DepositRole>) -> CommandResult {
    let failed = |error: std::io::Error| Failure::outside("INTERNAL", &error, "this is a bug in Bursar");
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let (stop, stopped) = watch::channel(false);
    let names: Vec<String> = roles.iter().map(|role| role.name.to_string()).collect();
    if context.json {
        say(json!({ "event": "running", "role": "deposits", "chains": names }));
    } else {
        say(format!("deposits of {}; Ctrl-C stops it", names.join(", ")));
    }
    let tasks: Vec<_> = roles.into_iter().map(|role| tokio::spawn(role.run(stopped.clone()))).collect();
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    stop.send_replace(true);
    for task in tasks {
        task.await.map_err(|error| Failure::outside("INTERNAL", &error, "this is a bug in Bursar"))?;
    }
    Ok(())
}
