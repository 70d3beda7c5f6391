//! `bursar serve`: the whole thing, until it is told to stop. Gateway, coordinator, scanner, and the spot engine if it is
//! embedded.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use custody::treasury::TreasuryWatch;
use custody::withdrawal::Remembers;
use domain::Clock;
use serde_json::json;
use server::alerts::webhook::Webhook;
use server::alerts::{Alerts, Intervals, Sink};
use server::api::health::{check_database, watch_database};
use server::api::operator::OperatorAccess;
use server::api::{App, BODY_TIME, Pages, Requests, operations_router, router};
use server::auth::{Keys, Verifier};
use server::coins::Coins;
use server::limit::PerSecond;
use server::listen::{Bounds, serve};
use server::withdrawal_intake::{WithdrawalIntake, WithdrawalIntakeSettings};
use spot::Engine;
use spot::net::{Client, ClientError, Credentials, Role, Server};
use spot::service::{Ended, Limits};
use store::Db;
use store::error::Causes;
use store::grants::DatabaseRole;
use terminal::clock::{Stopwatch, SystemClock};
use terminal::failure::{CommandResult, Failure};
use terminal::files::{read_secret, read_text};
use terminal::output::say;
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use transfer::leg::Leg;
use transfer::leg::http::HttpLeg;
use transfer::leg::spot::SpotLeg;
use transfer::pair::{self, PairError};
use transfer::supervisor::{Pauses, Supervisor};
use transfer::{
    Assets, Coordinator, IdMaker, Intake, IntakeSettings, Lent, Metrics, Readiness, Settings, invariant, scanner,
};

use super::grants::check_own;
use super::spot::tls::Known;
use super::wallet::signer as wallet_signer;
use super::{Context, spot as spot_command};
use crate::config::{Config, Http, SpotKind};
use crate::pins;
use crate::roles::checks::{self, ChecksRole};
use crate::roles::rules::RulesRole;
use crate::roles::withdrawals::WithdrawalsRole;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Make a new, empty spot engine in spot.folder; only the first time
    #[arg(long)]
    create_spot: bool,
    /// Believe the clock although it is more than spot.retention_h ahead of the embedded engine's log: after a long stop
    #[arg(long)]
    accept_clock: bool,
    /// Only the HTTP interface and internal transfers: the workers run in processes of their own (see bursar run)
    #[arg(long)]
    only_api: bool,
    /// Work although the database gives more rights than the role should have (see bursar grants)
    #[arg(long)]
    any_rights: bool,
}

pub async fn run(context: &Context, arguments: &Arguments) -> CommandResult {
    let config = &context.config;
    let (verifier, sinks) = (verifier(config)?, alert_sinks(config)?);
    let (operators, check) = (operator_access(config)?, checks::configured(config)?);
    let db = context.open().await?;
    let login = if arguments.only_api { DatabaseRole::Api } else { DatabaseRole::Serve };
    check_own(context, &db, login, arguments.any_rights).await?;
    // What was paid to an address that is not ours is lost: nothing runs on rows that somebody has changed.
    let pinned = pins::pinned(&context.config, &db).await?;
    pins::check(&context.config, &db, &pinned).await?;
    let signer = wallet_signer::configured(config)?;
    if let Some(signer) = &signer {
        wallet_signer::check(signer, &db, &pinned).await?;
    }
    let roles = match arguments.only_api {
        false => super::run::deposit_roles(context, &db, &pinned).await?,
        true => Vec::new(),
    };
    let payers = match &signer {
        Some(_) if arguments.only_api => Vec::new(),
        Some(signer) => super::run::outbound_roles(context, &db, &pinned, signer).await?,
        None => Vec::new(),
    };
    let ruled: Vec<RulesRole> = payers.iter().map(RulesRole::of).collect();
    let withdrawn: Vec<WithdrawalsRole> = payers.iter().map(WithdrawalsRole::of).collect();
    let payer_ids = payers.first().map(|role| Arc::clone(&role.ids));
    // Before the engine is touched: a second server on the same port must not open anything.
    let (listener, address) = bind("http.listen", &config.http.listen).await?;
    let operations = match config.http.operations_listen.as_str() {
        "" => None,
        // A server on any free port is one of several on this machine.
        usual if usual == Http::default().operations_listen && config.http.listen.ends_with(":0") => {
            Some(bind("http.operations_listen", "127.0.0.1:0").await?)
        }
        address => Some(bind("http.operations_listen", address).await?),
    };
    let terminate = signal(SignalKind::terminate());
    let mut terminate =
        terminate.map_err(|error| Failure::outside("INTERNAL", &error, "no signals can be received"))?;
    let assets = Arc::new(Assets::load(&db).await?);
    let mut remote = Remote::open(config, &db, arguments, &assets, context.json).await?;
    let coordinator = Arc::new(coordinator(config, &db, Arc::clone(&remote.leg)));
    if coordinator.renew_lease().await? == Lent::NoneFree {
        remote.stop().await;
        let hint = "stop servers that are not needed; a lease ends two minutes after its server";
        return Err(Failure::bad_input("NODE_NUMBERS_EXHAUSTED", "all node numbers are lent", hint));
    }
    let keeper = pair::Keeper::new(&coordinator).map(Arc::new);
    if let Some(keeper) = &keeper
        && let Err(error) = begin_pair(keeper, config).await
    {
        remote.stop().await;
        db.close().await;
        return Err(error);
    }
    if let Err(error) = remote.let_order_engines_in(&coordinator) {
        remote.stop().await;
        db.close().await;
        return Err(error);
    }
    let compared = config.spot.kind != SpotKind::Http;
    check_database(&coordinator).await;
    let coins = Arc::new(Coins::load(&db).await?);
    let intake = Intake::open(Arc::clone(&coordinator), intake_settings(config));
    let app = Arc::new(App {
        intake,
        withdrawals: WithdrawalIntake::open(&coordinator, WithdrawalIntakeSettings::default()),
        assets: Arc::clone(&assets),
        coins: Arc::clone(&coins),
        verifier,
        operators,
        per_second: PerSecond::new(config.limits.requests_per_second),
        clock: Arc::new(SystemClock),
        docs: config.http.docs_url.clone(),
        stopping: false.into(),
        requests: Requests::new(SystemClock.now().millis().unsigned_abs()),
        connections: Arc::default(),
        remembers: signer.clone().map(|signer| signer as Arc<dyn Remembers>),
        wallets: Arc::default(),
        wallet_rows: Arc::default(),
        treasury: Arc::default(),
        signer,
        pinned: Arc::clone(&pinned),
        body_time: BODY_TIME,
    });
    let (stop, stopped) = watch::channel(false);
    let scan_interval = Duration::from_millis(config.transfer.scan_interval_ms.into());
    let scanner = supervised(&coordinator, "scanner", {
        let (coordinator, stopped) = (Arc::clone(&coordinator), stopped.clone());
        move || scanner::scan(Arc::clone(&coordinator), scan_interval, stopped.clone())
    });
    // Whoever else reads the same chains waits: one worker has each.
    let deposits = supervised(&coordinator, "deposits", {
        let (roles, stopped) = (roles, stopped.clone());
        move || {
            let tasks: JoinSet<()> = roles.clone().into_iter().map(|role| role.run(stopped.clone())).collect();
            async move { drop(tasks.join_all().await) }
        }
    });
    // Whoever else pays from the same wallets has other lanes.
    let outbound = supervised(&coordinator, "outbound", {
        let (roles, stopped) = (payers, stopped.clone());
        move || {
            let mut tasks = JoinSet::new();
            for role in roles.clone() {
                tasks.spawn(role.clone().send(stopped.clone()));
                tasks.spawn(role.confirm(stopped.clone()));
            }
            async move { drop(tasks.join_all().await) }
        }
    });
    // Whoever else asks the same has other questions.
    let asking = check.filter(|_| !arguments.only_api).map(|check| {
        let role = ChecksRole { db: db.clone(), check, signer: app.signer.clone() };
        let stopped = stopped.clone();
        supervised(&coordinator, "checks", move || role.clone().run(stopped.clone()))
    });
    // Whoever else does the same is harmless: each step is taken from the state that was seen under its lock.
    let withdrawals = supervised(&coordinator, "withdrawals", {
        let (roles, stopped) = (withdrawn, stopped.clone());
        move || {
            let tasks: JoinSet<()> = roles.clone().into_iter().map(|role| role.run(stopped.clone())).collect();
            async move { drop(tasks.join_all().await) }
        }
    });
    // Whoever else evaluates the same rules waits: one worker has those of each chain.
    let rules = supervised(&coordinator, "rules", {
        let (roles, stopped) = (ruled, stopped.clone());
        move || {
            let tasks: JoinSet<()> = roles.clone().into_iter().map(|role| role.run(stopped.clone())).collect();
            async move { drop(tasks.join_all().await) }
        }
    });
    let keeping = keeper.map(|keeper| {
        let (stopped, patience) = (stopped.clone(), Duration::from_millis(config.transfer.call_timeout_ms.into()));
        supervised(&coordinator, "pair keeper", move || {
            let (keeper, stopped) = (Arc::clone(&keeper), stopped.clone());
            async move { keeper.keep(PAIR_PAUSE, patience, stopped).await }
        })
    });
    let checks = compared.then(|| {
        let interval = Duration::from_secs(config.transfer.check_interval_s.into());
        let (watched, stopped) = (Arc::clone(&coordinator), stopped.clone());
        supervised(&coordinator, "invariant", move || invariant::watch(Arc::clone(&watched), interval, stopped.clone()))
    });
    // Whoever asks whether this server is ready is told the truth from the first time on.
    coordinator.check_engine().await;
    let background = [
        supervised(&coordinator, "lease", {
            let coordinator = Arc::clone(&coordinator);
            move || {
                let coordinator = Arc::clone(&coordinator);
                async move { coordinator.keep_lease().await }
            }
        }),
        supervised(&coordinator, "engine watch", {
            let coordinator = Arc::clone(&coordinator);
            move || {
                let coordinator = Arc::clone(&coordinator);
                async move { coordinator.watch_engine().await }
            }
        }),
        supervised(&coordinator, "assets", {
            let db = db.clone();
            move || {
                let (assets, db) = (Arc::clone(&assets), db.clone());
                async move { assets.follow(&db).await }
            }
        }),
        supervised(&coordinator, "coins", {
            let db = db.clone();
            move || {
                let (coins, db) = (Arc::clone(&coins), db.clone());
                async move { coins.follow(&db).await }
            }
        }),
        supervised(&coordinator, "wallets", {
            let (wallets, db) = (Arc::clone(&app.wallets), db.clone());
            move || {
                let (wallets, db) = (Arc::clone(&wallets), db.clone());
                async move { wallets.watch(&db, None, &SystemClock, UPKEEP_PAUSE).await }
            }
        }),
        supervised(&coordinator, "wallet rows", {
            let (rows, db, pinned) = (Arc::clone(&app.wallet_rows), db.clone(), Arc::clone(&pinned));
            move || pins::watch(Arc::clone(&rows), db.clone(), Arc::clone(&pinned), UPKEEP_PAUSE)
        }),
        supervised(&coordinator, "treasury", {
            let (treasury, db) = (Arc::clone(&app.treasury), db.clone());
            move || watch_treasury(Arc::clone(&treasury), db.clone())
        }),
        supervised(&coordinator, "signer", {
            let (signer, db, pinned) = (app.signer.clone(), db.clone(), Arc::clone(&pinned));
            move || wallet_signer::watch(signer.clone(), db.clone(), Arc::clone(&pinned), UPKEEP_PAUSE)
        }),
        supervised(&coordinator, "database watch", {
            let coordinator = Arc::clone(&coordinator);
            move || watch_database(Arc::clone(&coordinator), Duration::from_secs(1))
        }),
        supervised(&coordinator, "alerts", {
            let coordinator = Arc::clone(&coordinator);
            let intervals = alert_intervals(config);
            let (rows, signer) = (Arc::clone(&app.wallet_rows), app.signer.clone());
            let treasury = Arc::clone(&app.treasury);
            move || {
                let alerts = Alerts::new(Arc::clone(&coordinator), sinks.clone(), intervals);
                let alerts = alerts.with_wallet_rows(Arc::clone(&rows)).with_treasury(Arc::clone(&treasury));
                alerts.with_signer(signer.clone()).run()
            }
        }),
        supervised(&coordinator, "snapshots watch", {
            let (engine, readiness) = (remote.engine.clone(), Arc::clone(coordinator.readiness()));
            move || watch_snapshots(engine.clone(), Arc::clone(&readiness))
        }),
    ];
    let for_operators = operations.as_ref().map(|(_, address)| address.to_string());
    if context.json {
        say(json!({ "event": "listening", "http": address.to_string(), "operations": for_operators }));
    } else {
        let docs = if config.http.docs { ", documentation at /docs" } else { "" };
        let also = for_operators.as_ref().map(|address| format!(", for operators on http://{address}"));
        say(format!("listening on http://{address}{docs}{}; Ctrl-C stops it", also.unwrap_or_default()));
    }
    tracing::info!(http = %address, operations = for_operators, version = env!("CARGO_PKG_VERSION"), "serving");
    let until_stopped = |mut stopped: watch::Receiver<bool>| async move {
        // The sender lives as long as this command.
        stopped.wait_for(|stop| *stop).await.ok();
    };
    let pages = Pages { docs: config.http.docs, metrics: operations.is_none() };
    let public = router(Arc::clone(&app), pages);
    let counts = Arc::clone(&app.connections);
    let mut serving = tokio::spawn(serve(listener, public, bounds(config), counts, until_stopped(stopped.clone())));
    let mut for_operators = operations.map(|(listener, _)| {
        let router = operations_router(Arc::clone(&app));
        tokio::spawn(serve(listener, router, Bounds::default(), Arc::default(), until_stopped(stopped.clone())))
    });
    let failed = tokio::select! {
        _ = terminate.recv() => None,
        _ = tokio::signal::ctrl_c() => None,
        error = remote.failed() => Some(error),
        ended = &mut serving => Some(listener_ended(ended)),
        // Nobody would see how the server is.
        ended = async { for_operators.as_mut().expect("there is one").await }, if for_operators.is_some() => {
            for_operators = None;
            Some(listener_ended(ended))
        }
    };
    app.stopping.store(true, Ordering::Relaxed);
    if failed.is_none() {
        // The load balancer must see that this server is not ready any more before it refuses connections.
        tokio::time::sleep(Duration::from_millis(config.http.stop_delay_ms.into())).await;
    }
    stop.send_replace(true);
    // First the requests, then what they left, then the engine under it all.
    let ended = |error: tokio::task::JoinError| Failure::outside("INTERNAL", &error, "this is a bug in Bursar");
    if !serving.is_finished() {
        serving.await.map_err(ended)?;
    }
    if let Some(for_operators) = for_operators {
        for_operators.await.map_err(ended)?;
    }
    app.withdrawals.close().await;
    app.intake.close().await;
    scanner.await.map_err(ended)?;
    deposits.await.map_err(ended)?;
    outbound.await.map_err(ended)?;
    withdrawals.await.map_err(ended)?;
    if let Some(asking) = asking {
        asking.await.map_err(ended)?;
    }
    rules.await.map_err(ended)?;
    if let Some(ids) = payer_ids {
        ids.give_back(&db).await?;
    }
    if let Some(keeping) = keeping {
        keeping.await.map_err(ended)?;
    }
    if let Some(checks) = checks {
        checks.await.map_err(ended)?;
    }
    background.iter().for_each(tokio::task::JoinHandle::abort);
    coordinator.give_back_lease().await;
    remote.stop().await;
    db.close().await;
    if let Some(error) = failed {
        return Err(error);
    }
    context.print(&json!({ "event": "stopped" }), || "stopped in good order".to_owned());
    Ok(())
}

/// How often leases of the Bitcoin wallets that ended are swept, and what operators watch is read.
const UPKEEP_PAUSE: Duration = Duration::from_secs(10);

/// How often the costs of the last day and the gas wallets are read, at least; and how much longer it rests than that took.
const TREASURY_PAUSE: Duration = Duration::from_secs(60);
const TREASURY_RESTS: u32 = 20;

/// How often the database and the spot engine are compared while both run.
const PAIR_PAUSE: Duration = Duration::from_secs(1);

/// Refuses to start on a database and an engine that certainly do not belong together as they are. If the engine cannot
/// be asked now, the server starts, is not ready, and asks again.
async fn begin_pair(keeper: &pair::Keeper, config: &Config) -> Result<(), Failure> {
    let patience = Duration::from_millis(config.transfer.call_timeout_ms.into()) + Duration::from_secs(10);
    match tokio::time::timeout(patience, keeper.begin()).await {
        Ok(Err(error)) if error.is_certain() => Err(pair_failure(&error)),
        // The reason is in the log, and at /health/ready.
        Ok(Err(_)) | Err(_) | Ok(Ok(())) => Ok(()),
    }
}

/// Why the database and the engine are no pair, and the way out.
pub fn pair_failure(error: &PairError) -> Failure {
    let hint = match error {
        PairError::Other(_) => {
            "name the database and the engine that belong together; if the engine is lost for good, see \
             bursar reconcile spot --help"
        }
        PairError::DatabaseBehind(_) | PairError::EngineBehind(_) => {
            "one of the two was put back from a backup: bursar reconcile spot --dry-run says what the other has more"
        }
        PairError::Store(_) | PairError::NoAnswer(_) => "is the engine running, and the database?",
    };
    Failure::bad_input(error.code(), error.to_string(), hint)
}

/// A background task that is started again if it panics. It ends with the server.
fn supervised<F: Future<Output = ()> + Send + 'static>(
    coordinator: &Coordinator,
    part: &'static str,
    start: impl FnMut() -> F + Send + 'static,
) -> tokio::task::JoinHandle<()> {
    let supervisor = Supervisor::new(Arc::clone(coordinator.readiness()), part, Pauses::default());
    tokio::spawn(async move { supervisor.run(start).await })
}

/// Nobody could reach the server any more, so it ends, and whoever watches over it starts it again.
fn listener_ended(ended: Result<(), tokio::task::JoinError>) -> Failure {
    let hint = "this is a bug in Bursar: please report it, and start the server again";
    match ended {
        Ok(()) => Failure::outside("INTERNAL", &std::io::Error::other("the HTTP listener has ended"), hint),
        Err(error) => Failure::outside("INTERNAL", &error, hint),
    }
}

fn bounds(config: &Config) -> Bounds {
    let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    Bounds {
        connections: count(config.http.connections),
        per_address: count(config.http.connections_per_address),
        header_time: Duration::from_secs(config.http.header_timeout_s.into()),
    }
}

fn alert_sinks(config: &Config) -> Result<Vec<Sink>, Failure> {
    let mut sinks = vec![Sink::Log];
    if !config.alerts.webhook_url.is_empty() {
        let webhook = Webhook::new(&config.alerts.webhook_url).map_err(|error| {
            Failure::bad_input("CONFIG_INVALID", format!("alerts.webhook_url: {error}"), "or be empty")
        })?;
        sinks.push(Sink::Webhook(webhook));
    }
    sinks.extend(server::alerts::command::Command::new(&config.alerts.command).map(Sink::Command));
    Ok(sinks)
}

fn alert_intervals(config: &Config) -> Intervals {
    Intervals {
        check: Duration::from_secs(5),
        repeat: Duration::from_secs(config.alerts.every_s.into()),
        lasting: Duration::from_secs(10),
    }
}

/// Says whether an embedded engine can take snapshots: its threads know nothing of readiness.
async fn watch_snapshots(engine: Option<Engine>, readiness: Arc<Readiness>) {
    let Some(engine) = engine else { return };
    loop {
        if engine.counters().snapshots_panicking.load(Ordering::Relaxed) {
            readiness.trouble("snapshots", "TASK_PANICKED", "the spot engine's snapshot thread panics");
        } else {
            readiness.well("snapshots");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn bind(name: &str, address: &str) -> Result<(TcpListener, SocketAddr), Failure> {
    let trouble = |error: std::io::Error| {
        Failure::outside("HTTP_LISTEN_FAILED", &error, format!("is {address} taken? name another as {name}"))
    };
    let listener = TcpListener::bind(address).await.map_err(trouble)?;
    let bound = listener.local_addr().map_err(trouble)?;
    Ok((listener, bound))
}

/// Connections that may wait to be accepted.
const WAITING: u32 = 1_024;

/// An address that nobody else gets. Nobody is let in before it is listened on.
async fn take_address(name: &str, address: &str) -> Result<TcpSocket, Failure> {
    let trouble = |error: std::io::Error| {
        Failure::outside("HTTP_LISTEN_FAILED", &error, format!("is {address} taken? name another as {name}"))
    };
    let mut found = tokio::net::lookup_host(address).await.map_err(trouble)?;
    let Some(found) = found.next() else { return Err(trouble(std::io::ErrorKind::AddrNotAvailable.into())) };
    let socket = if found.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }.map_err(trouble)?;
    // As for every listener: a port that was in use a moment ago may be used again.
    socket.set_reuseaddr(true).map_err(trouble)?;
    socket.bind(found).map_err(trouble)?;
    Ok(socket)
}

const AUTH_HINT: &str =
    "(umask 077; head -c 48 /dev/urandom | base64 > jwt.secret); then auth.hs256_secret_file = \"jwt.secret\"";

/// The keys that customers' tokens are checked with.
fn customers_keys(config: &Config) -> Result<Keys, Failure> {
    let auth = &config.auth;
    let mut keys = Keys::default();
    let bad = |error: &server::auth::KeyError| Failure::bad_input("AUTH_KEYS_INVALID", error.to_string(), AUTH_HINT);
    if !auth.hs256_secret_file.is_empty() {
        let kid = Some(auth.hs256_kid.as_str()).filter(|kid| !kid.is_empty());
        keys.add_hs256(kid, read_secret(Path::new(&auth.hs256_secret_file))?).map_err(|error| bad(&error))?;
    }
    if !auth.jwks_file.is_empty() {
        let text = read_text(Path::new(&auth.jwks_file))?;
        keys.add_jwks(&text).map_err(|error| {
            let hint = "auth.jwks_file holds public keys: RSA for RS256, Ed25519 for EdDSA";
            Failure::bad_input("AUTH_KEYS_INVALID", format!("{}: {error}", auth.jwks_file), hint)
        })?;
    }
    Ok(keys)
}

fn verifier(config: &Config) -> Result<Verifier, Failure> {
    let (auth, keys) = (&config.auth, customers_keys(config)?);
    if keys.is_empty() || auth.issuer.is_empty() || auth.audience.is_empty() {
        let message = "there is no key to check tokens with, or no issuer, or no audience: nobody could log in";
        return Err(Failure::bad_input("AUTH_KEYS_INVALID", message, AUTH_HINT));
    }
    let verifier = Verifier::new(keys, auth.issuer.as_str(), auth.audience.as_str(), auth.clock_skew_s);
    Ok(verifier.beside(config.operators.audience.as_str()))
}

/// `None`: there is no key for operators' tokens, and nobody gets in.
fn operator_access(config: &Config) -> Result<Option<OperatorAccess>, Failure> {
    let operators = &config.operators;
    if !operators.is_configured() {
        return Ok(None);
    }
    let mut keys = Keys::default();
    let hint = "(umask 077; head -c 48 /dev/urandom | base64 > operators.secret); then operators.hs256_secret_file = \"operators.secret\"";
    let bad = |error: &server::auth::KeyError| Failure::bad_input("AUTH_KEYS_INVALID", error.to_string(), hint);
    if !operators.hs256_secret_file.is_empty() {
        let kid = Some(operators.hs256_kid.as_str()).filter(|kid| !kid.is_empty());
        keys.add_hs256(kid, read_secret(Path::new(&operators.hs256_secret_file))?).map_err(|error| bad(&error))?;
    }
    if !operators.jwks_file.is_empty() {
        let text = read_text(Path::new(&operators.jwks_file))?;
        keys.add_jwks(&text).map_err(|error| {
            let hint = "operators.jwks_file holds public keys: RSA for RS256, Ed25519 for EdDSA";
            Failure::bad_input("AUTH_KEYS_INVALID", format!("{}: {error}", operators.jwks_file), hint)
        })?;
    }
    if keys.shares_with(&customers_keys(config)?) {
        let message = "a key of the operators' tokens is one of the customers', whatever its file is called: whoever can make their tokens could make operators'";
        return Err(Failure::bad_input("AUTH_KEYS_INVALID", message, hint));
    }
    let signer = config.signer.name.parse().map_err(|error: domain::BadName| {
        Failure::bad_input("CONFIG_INVALID", format!("signer.name: {error}"), "it is the name that its policy has")
    })?;
    let (issuer, audience) = (operators.issuer.as_str(), operators.audience.as_str());
    let verifier =
        Verifier::new(keys, issuer, audience, config.auth.clock_skew_s).beside(config.auth.audience.as_str());
    let per_second = PerSecond::new(config.limits.requests_per_second);
    Ok(Some(OperatorAccess { verifier, signer, per_second }))
}

/// It makes no transfers until it has a node number.
pub fn coordinator(config: &Config, db: &Db, leg: Arc<dyn Leg>) -> Coordinator {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    // No other process has this number at this microsecond on this host.
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let holder = format!("{host}/{}/{}", std::process::id(), clock.now().micros());
    let ids = Arc::new(IdMaker::new(holder));
    Coordinator::new(db.clone(), leg, clock, ids, transfer_settings(config), Arc::new(Metrics::default()))
}

pub fn transfer_settings(config: &Config) -> Settings {
    let transfer = &config.transfer;
    let millis = |number: u32| Duration::from_millis(number.into());
    let call_timeout = millis(transfer.call_timeout_ms);
    Settings {
        call_timeout,
        // Longer than the request that made a transfer can be busy with it; an engine over HTTP takes a batch in turns.
        grace: call_timeout * if config.spot.kind == SpotKind::Http { 20 } else { 2 } + Duration::from_secs(5),
        first_pause: millis(transfer.first_pause_ms),
        longest_pause: millis(transfer.longest_pause_ms.max(transfer.first_pause_ms)),
        alert_tries: transfer.alert_tries.into(),
        alert_after: Duration::from_secs(transfer.alert_after_s.into()),
        clocks_apart: millis(transfer.clocks_apart_ms),
        daily_transfers: config.limits.daily_transfers.into(),
        ..Settings::default()
    }
}

fn intake_settings(config: &Config) -> IntakeSettings {
    let transfer = &config.transfer;
    IntakeSettings {
        lanes: usize::try_from(transfer.lanes).unwrap_or(1),
        queue: usize::try_from(transfer.queue).unwrap_or(1),
        wait: Duration::from_millis(transfer.wait_ms.into()),
        ..IntakeSettings::default()
    }
}

/// The far end of all transfers, and what of it runs in this process.
pub struct Remote {
    pub leg: Arc<dyn Leg>,
    engine: Option<Engine>,
    /// Where order engines will be let in, and who they are.
    entrance: Option<(TcpSocket, Credentials)>,
    serving: Option<tokio::task::JoinHandle<()>>,
}

impl Remote {
    async fn open(
        config: &Config,
        db: &Db,
        arguments: &Arguments,
        assets: &Arc<Assets>,
        json: bool,
    ) -> Result<Self, Failure> {
        match config.spot.kind {
            SpotKind::Embedded => Self::embedded(config, db, arguments, json).await,
            SpotKind::Remote | SpotKind::Http if arguments.create_spot => {
                let message = "only an embedded engine can be made here";
                Err(Failure::bad_input("CONFIG_INVALID", message, "leave out --create-spot, or set spot.kind"))
            }
            SpotKind::Remote | SpotKind::Http => Self::elsewhere(config, assets),
        }
    }

    async fn embedded(config: &Config, db: &Db, arguments: &Arguments, json: bool) -> Result<Self, Failure> {
        if arguments.create_spot
            && let Some(engine) = db.pair().await?.engine
        {
            // An empty engine under a used database would make every spot balance vanish.
            let error = PairError::Other(format!("this database has an engine already, {engine:016x}"));
            return Err(pair_failure(&error));
        }
        let settings = spot::Settings { accept_clock: arguments.accept_clock, ..spot_settings(config) };
        let entrance = if config.spot.address.is_empty() {
            None
        } else {
            let credentials = spot_command::credentials::read(spot_credentials(config)?)?;
            Some((take_address("spot.address", &config.spot.address).await?, credentials))
        };
        let folder = Path::new(&config.spot.folder);
        let opened = spot_command::serve::open(folder, arguments.create_spot, &settings, Limits::default(), json);
        let (engine, found) = opened.map_err(with_flags_of_serve)?;
        spot_command::serve::greet(&found, json);
        Ok(Self { leg: Arc::new(SpotLeg::engine(engine.clone())), engine: Some(engine), entrance, serving: None })
    }

    /// Listens for order engines as soon as this engine is proven to be the database's own, and not before: they would
    /// trade on balances that are about to be refused.
    fn let_order_engines_in(&mut self, coordinator: &Arc<Coordinator>) -> Result<(), Failure> {
        let (Some((socket, known)), Some(engine)) = (self.entrance.take(), self.engine.clone()) else { return Ok(()) };
        let coordinator = Arc::clone(coordinator);
        self.serving = Some(if coordinator.trusts_engine() {
            let hint = "is it taken? name another as spot.address";
            let listener =
                socket.listen(WAITING).map_err(|error| Failure::outside("SPOT_LISTEN_FAILED", &error, hint))?;
            tokio::spawn(Server::new(listener, engine, known).run())
        } else {
            tokio::spawn(async move {
                coordinator.engine_trusted().await;
                match socket.listen(WAITING) {
                    Ok(listener) => Server::new(listener, engine, known).run().await,
                    Err(error) => {
                        coordinator.readiness().trouble("order engines", "SPOT_LISTEN_FAILED", error.to_string());
                    }
                }
            })
        });
        Ok(())
    }

    /// An engine that runs somewhere else.
    pub fn elsewhere(config: &Config, assets: &Arc<Assets>) -> Result<Self, Failure> {
        let leg: Arc<dyn Leg> = match config.spot.kind {
            SpotKind::Http => {
                let token =
                    (!config.spot.token_file.is_empty()).then(|| read_secret(Path::new(&config.spot.token_file)));
                let not_text = |_| {
                    let message = format!("{}: a token is a text of one line", config.spot.token_file);
                    Failure::bad_input("CONFIG_INVALID", message, "see docs/http-leg.md")
                };
                let token = token.transpose()?.map(String::from_utf8).transpose().map_err(not_text)?;
                let timeout = Duration::from_millis(config.transfer.call_timeout_ms.into());
                let leg =
                    HttpLeg::new(&config.spot.url, token.as_deref(), timeout, config.spot.freezes, Arc::clone(assets));
                Arc::new(leg.map_err(|error| {
                    Failure::bad_input("CONFIG_INVALID", format!("spot.url: {error}"), "see docs/http-leg.md")
                })?)
            }
            SpotKind::Remote | SpotKind::Embedded => Arc::new(spot_client(config, &[Role::Coordinator])?),
        };
        Ok(Self { leg, engine: None, entrance: None, serving: None })
    }

    /// Only an engine in this process can fail by itself; this waits for ever for any other.
    async fn failed(&self) -> Failure {
        match &self.engine {
            None => std::future::pending().await,
            Some(engine) => match engine.ended().await {
                Ended::Failed(error) => spot_command::serve::failed(&error),
                Ended::Asked => std::future::pending().await,
            },
        }
    }

    async fn stop(&self) {
        if let Some(engine) = &self.engine {
            engine.stop().await;
        }
        if let Some(serving) = &self.serving {
            serving.abort();
        }
    }
}

/// The engine's own command has other flags than this one.
fn with_flags_of_serve(mut failure: Failure) -> Failure {
    let hint = match failure.code.as_ref() {
        "SPOT_LOG_MISSING" => "check spot.folder; for a new and empty engine say --create-spot",
        "SPOT_LOG_EXISTS" => "leave out --create-spot",
        _ => return failure,
    };
    hint.clone_into(&mut failure.hint);
    failure
}

pub fn spot_settings(config: &Config) -> spot::Settings {
    let retention_micros = i64::from(config.spot.retention_h) * 3_600 * 1_000_000;
    spot::Settings { retention_micros, ..spot::Settings::default() }
}

/// The file of credentials that is configured.
fn spot_credentials(config: &Config) -> Result<&Path, Failure> {
    if config.spot.credentials_file.is_empty() {
        let message = "spot.credentials_file is not set, and the spot engine is reached over TCP";
        let hint = format!(
            "{}; or spot.address = \"\" if nobody else needs an embedded engine",
            spot_command::credentials::HINT
        );
        return Err(Failure::bad_input("SPOT_CREDENTIALS_INVALID", message, hint));
    }
    Ok(Path::new(&config.spot.credentials_file))
}

/// The configured engine, over TCP, with the token of the first of these roles that the file of credentials has.
pub fn spot_client(config: &Config, roles: &[Role]) -> Result<SpotLeg, Failure> {
    let address: SocketAddr = config.spot.address.parse().map_err(|_| {
        let message = "spot.address must be an address and a port";
        Failure::bad_input("CONFIG_INVALID", message, "such as 127.0.0.1:7411")
    })?;
    let token = spot_command::credentials::token(spot_credentials(config)?, roles)?;
    let roles = roles.to_vec();
    let tls = Known::configured(&config.spot.tls_ca_file, &config.spot.tls_pin).read(address)?;
    let seed = u64::from(std::process::id());
    Ok(SpotLeg::elsewhere(|is_ours| {
        // The engine's own file may give the token another role than ours does. Better to know that before the first
        // call.
        let accept = move |welcome: &spot::net::Welcome| match roles.contains(&welcome.role) {
            true => is_ours(welcome),
            false => Err(ClientError::Forbidden),
        };
        Client::start_with(tls, address, token, seed, accept)
    }))
}

/// Reads what the treasury costs, and how long its gas will do, for ever. What runs dry is an alert, and all of it is in `/metrics`.
async fn watch_treasury(treasury: Arc<TreasuryWatch>, db: Db) {
    loop {
        let took = Stopwatch::start();
        // Readiness tells of a database that is away.
        if let Err(error) = treasury.look(&db, SystemClock.now()).await {
            tracing::debug!(code = error.code(), error = %Causes(&error), "costs of the treasury could not be read");
        }
        tokio::time::sleep((took.elapsed() * TREASURY_RESTS).max(TREASURY_PAUSE)).await;
    }
}
