//! `bursar run ROLE`: one role of Bursar in a process of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use clap::Subcommand;
use custody::signer::SignerWatch;
use custody::wallet::Pinned;
use domain::{ChainKind, Clock};
use serde_json::json;
use signer::names::SignerName;
use store::Db;
use store::grants::DatabaseRole;
use store::outbound::{Duty, Share};
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Failure};
use terminal::output::say;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use transfer::IdMaker;

use super::Context;
use super::grants::check_own;
use super::wallet::signer as wallet_signer;
use crate::chains::{self, FollowedChain};
use crate::pins;
use crate::roles::balance_sync::BalanceSyncRole;
use crate::roles::checks::{self, ChecksRole};
use crate::roles::deposits::DepositRole;
use crate::roles::outbound::OutboundRole;
use crate::roles::rules::RulesRole;
use crate::roles::withdrawals::WithdrawalsRole;
use crate::roles::{RoleBase, row_of};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Read chains, prove their blocks, and credit deposits once they are deep enough
    ///
    /// One worker at a time has a chain: start as many as you like, the others wait. It begins at the newest settled block of a
    /// chain that it has never read; --from names another. Bitcoin's blocks are read by bursar utxo follow; this role credits
    /// what they pay.
    Deposits(DepositArguments),
    /// Look at all wallets on their chain in turn, and write down what their entries do not explain
    ///
    /// bursar run deposits looks at what has changed, and at a few wallets with each block; this one only comes round, as the balance sync of the
    /// sources does, and needs that role. Any number may run side by side. Bitcoin's coins follow from its blocks: there is nothing to look at.
    BalanceSync(OutboundArguments),
    /// Send what is to be paid: give jobs their slots, have them signed, tell the nodes
    ///
    /// A wallet's lane is one worker's at a time: start as many as you like. It needs the signer of the configuration; see bursar job and
    /// bursar lane.
    Outbound(OutboundArguments),
    /// Ask the chains what became of what was sent, until that is final
    Confirm(OutboundArguments),
    /// Give approved withdrawals their jobs, and settle or give back what became of them
    ///
    /// Start as many as you like. What it makes are jobs, which bursar run outbound sends. Before it gives money back or makes a job it asks the signer what that
    /// has signed, so it needs the signer of the configuration.
    Withdrawals(OutboundArguments),
    /// Ask somebody outside about withdrawals before anybody may agree to them
    ///
    /// Who is asked stands in the configuration (withdrawals.check_url), which withdrawals in the treasury file. Start as many as you like.
    Checks(CheckArguments),
    /// Evaluate rules: gas for users' addresses, and their coins brought home
    ///
    /// One worker at a time has a chain's rules: start as many as you like. It needs no signer: what it makes are jobs, which bursar run outbound
    /// sends. See bursar rule and bursar treasury.
    Rules(OutboundArguments),
}

#[derive(Debug, clap::Args)]
pub struct OutboundArguments {
    /// A chain that has nodes in the configuration; give several, or none for all of them
    #[arg(long, value_name = "NAME")]
    chain: Vec<String>,
    /// Work until there is nothing to do, and end
    #[arg(long)]
    once: bool,
    /// Work although the database gives more rights than the role should have (see bursar grants)
    #[arg(long)]
    any_rights: bool,
}

#[derive(Debug, clap::Args)]
pub struct CheckArguments {
    /// Ask until nothing is due, and end
    #[arg(long)]
    once: bool,
    /// Work although the database gives more rights than the role should have (see bursar grants)
    #[arg(long)]
    any_rights: bool,
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
    /// Work although the database gives more rights than the role should have (see bursar grants)
    #[arg(long)]
    any_rights: bool,
}

pub async fn run(context: &Context, command: &Command) -> CommandResult {
    match command {
        Command::Deposits(arguments) => deposits(context, arguments).await,
        Command::BalanceSync(arguments) => balance_sync(context, arguments).await,
        Command::Outbound(arguments) => outbound(context, arguments, Duty::Send).await,
        Command::Confirm(arguments) => outbound(context, arguments, Duty::Watch).await,
        Command::Withdrawals(arguments) => withdrawals(context, arguments).await,
        Command::Checks(arguments) => ask_outside(context, arguments).await,
        Command::Rules(arguments) => rules(context, arguments).await,
    }
}

async fn outbound(context: &Context, arguments: &OutboundArguments, duty: Duty) -> CommandResult {
    let sends = duty == Duty::Send;
    let db = context.open().await?;
    let login = if sends { DatabaseRole::Outbound } else { DatabaseRole::Confirm };
    check_own(context, &db, login, arguments.any_rights).await?;
    let pinned = pins::pinned(&context.config, &db).await?;
    pins::check(&context.config, &db, &pinned).await?;
    let Some(signer) = wallet_signer::configured(&context.config)? else {
        let hint = "set [signer] in the configuration: nothing leaves without a signature";
        return Err(Failure::bad_input("CONFIG_INVALID", "no signer is configured", hint));
    };
    if sends {
        wallet_signer::check(&signer, &db, &pinned).await?;
    }
    let mut roles = outbound_roles(context, &db, &pinned, &signer).await?;
    let names: Vec<String> = roles.iter().map(|role| role.base.name.to_string()).collect();
    check_chains(&arguments.chain, &names)?;
    roles.retain(|role| {
        arguments.chain.is_empty() || arguments.chain.iter().any(|name| name == role.base.name.as_str())
    });
    if arguments.once {
        for role in &roles {
            let sent = role.until_idle(duty).await.map_err(|error| {
                Failure::outside("OUTBOUND_WAITS", &error, "bursar chain check shows what the nodes of the chain say")
            })?;
            let name = role.base.name.as_str();
            context.print(&json!({ "chain": name, "changed": sent }), || {
                let what = if sends { "transactions sent" } else { "slots changed" };
                format!("{name}: {sent} {what}")
            });
        }
        if let Some(role) = roles.first() {
            role.ids.give_back(&db).await?;
        }
        return Ok(());
    }
    let looking = tokio::spawn(wallet_signer::watch(Some(signer), db.clone(), Arc::clone(&pinned), SIGNER_PAUSE));
    let names: Vec<String> = roles.iter().map(|role| role.base.name.to_string()).collect();
    let word = if sends { "outbound" } else { "confirm" };
    let (ids, given) = (roles.first().map(|role| Arc::clone(&role.ids)), db.clone());
    let start = |role: OutboundRole, stopped| {
        if sends { tokio::spawn(role.send(stopped)) } else { tokio::spawn(role.confirm(stopped)) }
    };
    let done = forever(context, (word, &names), roles, start).await;
    looking.abort();
    if let Some(ids) = ids {
        ids.give_back(&given).await?;
    }
    done
}

async fn ask_outside(context: &Context, arguments: &CheckArguments) -> CommandResult {
    let db = context.open().await?;
    check_own(context, &db, DatabaseRole::Checks, arguments.any_rights).await?;
    let Some(check) = checks::configured(&context.config)? else {
        let hint = "set withdrawals.check_url in the configuration";
        return Err(Failure::bad_input("CONFIG_INVALID", "nobody is named who could be asked", hint));
    };
    let signer = wallet_signer::configured(&context.config)?;
    let pinned = pins::pinned(&context.config, &db).await?;
    if let Some(signer) = &signer {
        wallet_signer::check(signer, &db, &pinned).await?;
    }
    let role = ChecksRole { db: db.clone(), check, signer: signer.clone() };
    if arguments.once {
        let done = role
            .until_idle()
            .await
            .map_err(|error| Failure::outside(error.code(), &error, "the page of the code says what to do"))?;
        let kept = done.kept;
        let body = json!({ "allowed": kept.allowed, "review": kept.review, "refused": kept.refused, "waiting": kept.waiting,
            "given_back": done.rejected });
        context.print(&body, || {
            format!(
                "{} allowed, {} to be looked at, {} refused ({} given back), {} without an answer",
                kept.allowed, kept.review, kept.refused, done.rejected, kept.waiting
            )
        });
        return Ok(());
    }
    let looking = tokio::spawn(wallet_signer::watch(signer, db, pinned, SIGNER_PAUSE));
    let names = ["all chains".to_owned()];
    let done = forever(context, ("checks", &names), vec![role], |role, stopped| tokio::spawn(role.run(stopped))).await;
    looking.abort();
    done
}

async fn withdrawals(context: &Context, arguments: &OutboundArguments) -> CommandResult {
    let db = context.open().await?;
    check_own(context, &db, DatabaseRole::Withdrawals, arguments.any_rights).await?;
    let pinned = pins::pinned(&context.config, &db).await?;
    pins::check(&context.config, &db, &pinned).await?;
    let Some(signer) = wallet_signer::configured(&context.config)? else {
        let hint = "set [signer] in the configuration: it says what was signed before money is given back";
        return Err(Failure::bad_input("CONFIG_INVALID", "no signer is configured", hint));
    };
    wallet_signer::check(&signer, &db, &pinned).await?;
    let senders = outbound_roles(context, &db, &pinned, &signer).await?;
    let mut roles: Vec<WithdrawalsRole> = senders.iter().map(WithdrawalsRole::of).collect();
    let names: Vec<String> = roles.iter().map(|role| role.base.name.to_string()).collect();
    check_chains(&arguments.chain, &names)?;
    roles.retain(|role| {
        arguments.chain.is_empty() || arguments.chain.iter().any(|name| name == role.base.name.as_str())
    });
    let names: Vec<String> = roles.iter().map(|role| role.base.name.to_string()).collect();
    let ids = roles.first().map(|role| Arc::clone(&role.ids));
    let done = if arguments.once {
        withdraw_once(context, &roles).await
    } else {
        let looking = tokio::spawn(wallet_signer::watch(Some(signer), db.clone(), Arc::clone(&pinned), SIGNER_PAUSE));
        let done =
            forever(context, ("withdrawals", &names), roles, |role, stopped| tokio::spawn(role.run(stopped))).await;
        looking.abort();
        done
    };
    if let Some(ids) = ids {
        ids.give_back(&db).await?;
    }
    done
}

/// Rounds until there is nothing to do.
async fn withdraw_once(context: &Context, roles: &[WithdrawalsRole]) -> CommandResult {
    for role in roles {
        let done = role.until_idle().await.map_err(|error| {
            Failure::outside(error.code(), &error, "bursar chain check shows what the nodes of the chain say")
        })?;
        let name = role.base.name.as_str();
        let ids = |all: &[store::withdrawal::WithdrawalId]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        let body = json!({ "chain": name, "queued": done.queued, "inside": done.inside, "completed": done.completed, "failed": done.failed,
            "given_back": done.given_back, "short": done.short, "doubted": ids(&done.doubted), "kept": ids(&done.kept), "waits": done.waits });
        context.print(&body, || match &done.waits {
            Some(why) => format!("{name}: {why}"),
            None => format!(
                "{name}: {} queued, {} settled inside, {} completed, {} failed",
                done.queued, done.inside, done.completed, done.failed
            ),
        });
    }
    Ok(())
}

async fn balance_sync(context: &Context, arguments: &OutboundArguments) -> CommandResult {
    let db = context.open().await?;
    check_own(context, &db, DatabaseRole::BalanceSync, arguments.any_rights).await?;
    let pinned = pins::pinned(&context.config, &db).await?;
    pins::check(&context.config, &db, &pinned).await?;
    let roles = deposit_roles(context, &db, &pinned).await?.into_iter();
    let roles = roles.filter(|one| one.base.row.kind != ChainKind::Bitcoin);
    let mut roles: Vec<BalanceSyncRole> = roles.map(|one| BalanceSyncRole { base: one.base }).collect();
    let names: Vec<String> = roles.iter().map(|role| role.base.name.to_string()).collect();
    check_chains(&arguments.chain, &names)?;
    roles.retain(|role| {
        arguments.chain.is_empty() || arguments.chain.iter().any(|name| name == role.base.name.as_str())
    });
    if arguments.once {
        return look_once(context, &roles).await;
    }
    let names: Vec<String> = roles.iter().map(|role| role.base.name.to_string()).collect();
    forever(context, ("balance-sync", &names), roles, |role, stopped| tokio::spawn(role.run(stopped))).await
}

/// All wallets of each chain once.
async fn look_once(context: &Context, roles: &[BalanceSyncRole]) -> CommandResult {
    for role in roles {
        let hint = "bursar chain check shows what the nodes of the chain say";
        let done = role.once().await.map_err(|error| Failure::outside(error.code(), &error, hint))?;
        let (name, same, differing) = (role.base.name.as_str(), done.looked.same, done.looked.differing);
        context.print(&json!({ "chain": name, "same": same, "differing": differing }), || {
            format!("{name}: {same} balances are as their entries say, {differing} are not")
        });
        // What nobody could say is not the same as what is right.
        if let Some(error) = done.waits {
            return Err(Failure::outside(error.code(), &error, hint));
        }
    }
    Ok(())
}

async fn rules(context: &Context, arguments: &OutboundArguments) -> CommandResult {
    let db = context.open().await?;
    check_own(context, &db, DatabaseRole::Rules, arguments.any_rights).await?;
    let pinned = pins::pinned(&context.config, &db).await?;
    pins::check(&context.config, &db, &pinned).await?;
    let mut roles = rules_roles(context, &db, &pinned).await?;
    let names: Vec<String> = roles.iter().map(|role| role.base.name.to_string()).collect();
    check_chains(&arguments.chain, &names)?;
    roles.retain(|role| {
        arguments.chain.is_empty() || arguments.chain.iter().any(|name| name == role.base.name.as_str())
    });
    let names: Vec<String> = roles.iter().map(|role| role.base.name.to_string()).collect();
    let ids = roles.first().map(|role| Arc::clone(&role.ids));
    let done = if arguments.once {
        evaluate(context, &roles).await
    } else {
        forever(context, ("rules", &names), roles, |role, stopped| tokio::spawn(role.run(stopped))).await
    };
    if let Some(ids) = ids {
        ids.give_back(&db).await?;
    }
    done
}

/// Rounds until there is nothing to do.
pub async fn evaluate(context: &Context, roles: &[RulesRole]) -> CommandResult {
    for role in roles {
        let done = role.until_idle().await.map_err(|error| {
            Failure::outside(error.code(), &error, "bursar chain check shows what the nodes of the chain say")
        })?;
        let name = role.base.name.as_str();
        let body = json!({ "chain": name, "looked": done.looked, "jobs": done.jobs, "flags": done.flags, "waits": done.waits });
        context.print(&body, || match &done.waits {
            Some(why) => format!("{name}: {why}"),
            None => format!("{name}: {} addresses looked at, {} jobs made", done.looked, done.jobs),
        });
    }
    Ok(())
}

/// The rules of every chain that the configuration has nodes for.
pub async fn rules_roles(context: &Context, db: &Db, pinned: &Arc<Pinned>) -> Result<Vec<RulesRole>, Failure> {
    let ids = Arc::new(IdMaker::new(worker_name()));
    let role = |one: DepositRole| RulesRole { base: one.base, ids: Arc::clone(&ids) };
    let roles = deposit_roles(context, db, pinned).await?;
    Ok(roles.into_iter().map(role).collect())
}

/// How often the signer is asked whether it has the keys.
const SIGNER_PAUSE: Duration = Duration::from_secs(10);

/// Refuses a chain that there is no worker for.
fn check_chains(wanted: &[String], known: &[String]) -> CommandResult {
    if let Some(name) = wanted.iter().find(|name| !known.contains(name)) {
        let message = format!("the configuration has no nodes for a chain {name}");
        let hint = "see chains in examples/bursar.toml; bursar chain check shows what there is";
        return Err(Failure::bad_input("INVALID_CHAIN", message, hint));
    }
    if known.is_empty() {
        let hint = "see chains in examples/bursar.toml";
        return Err(Failure::bad_input("INVALID_CHAIN", "the configuration has no nodes for any chain", hint));
    }
    Ok(())
}

/// The worker of every chain that the configuration has nodes for.
pub async fn outbound_roles(
    context: &Context,
    db: &Db,
    pinned: &Arc<Pinned>,
    signer: &Arc<SignerWatch>,
) -> Result<Vec<OutboundRole>, Failure> {
    let signer_name = context.config.signer.name.parse().map_err(|error: domain::BadName| {
        Failure::bad_input("CONFIG_INVALID", format!("signer.name: {error}"), "it is the name that its policy has")
    })?;
    let ids = Arc::new(IdMaker::new(worker_name()));
    let deposits = deposit_roles(context, db, pinned).await?;
    let role = |one: DepositRole| OutboundRole {
        base: one.base,
        signer: Arc::clone(signer),
        signer_name: SignerName::clone(&signer_name),
        ids: Arc::clone(&ids),
        share: Share::ALL,
    };
    Ok(deposits.into_iter().map(role).collect())
}

async fn deposits(context: &Context, arguments: &DepositArguments) -> CommandResult {
    let db = context.open().await?;
    check_own(context, &db, DatabaseRole::Deposits, arguments.any_rights).await?;
    let pinned = pins::pinned(&context.config, &db).await?;
    pins::check(&context.config, &db, &pinned).await?;
    let mut roles = deposit_roles(context, &db, &pinned).await?;
    let names: Vec<String> = roles.iter().map(|role| role.base.name.to_string()).collect();
    check_chains(&arguments.chain, &names)?;
    roles.retain(|role| {
        arguments.chain.is_empty() || arguments.chain.iter().any(|name| name == role.base.name.as_str())
    });
    roles.iter_mut().for_each(|role| role.from = arguments.from);
    if arguments.once {
        return once(context, &roles).await;
    }
    let names: Vec<String> = roles.iter().map(|role| role.base.name.to_string()).collect();
    forever(context, ("deposits", &names), roles, |role, stopped| tokio::spawn(role.run(stopped))).await
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
        let base = RoleBase {
            db: db.clone(),
            config: Arc::clone(&config),
            chain: chain.client.shared(),
            row: rows.get(&chain.row.name)?.clone(),
            name: chain.row.name.clone(),
            pinned: Arc::clone(pinned),
            worker: worker_name(),
        };
        Some(DepositRole { base, from: None })
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
        let name = role.base.name.as_str();
        context
            .print(&json!({ "chain": name, "blocks": passed, "credited": credited, "taken_back": taken_back }), || {
                format!("{name}: {passed} blocks read, {credited} deposits credited, {taken_back} taken back")
            });
    }
    Ok(())
}

async fn forever<R>(
    context: &Context,
    (word, names): (&str, &[String]),
    roles: Vec<R>,
    start: impl Fn(R, watch::Receiver<bool>) -> JoinHandle<()>,
) -> CommandResult {
    let failed = |error: std::io::Error| Failure::outside("INTERNAL", &error, "this is a bug in Bursar");
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let (stop, stopped) = watch::channel(false);
    if context.json {
        say(json!({ "event": "running", "role": word, "chains": names }));
    } else {
        say(format!("{word} of {}; Ctrl-C stops it", names.join(", ")));
    }
    let tasks: Vec<_> = roles.into_iter().map(|role| start(role, stopped.clone())).collect();
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
