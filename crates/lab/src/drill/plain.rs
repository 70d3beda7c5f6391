//! `bursar drill plain` (hidden): internal transfers as the design documents tell them, done plainly, over HTTP at
//! `/plain`. The yardstick of `bursar bench transfer`, with the same stack around it: the same HTTP server, tokens and
//! spot engine. Only the way in which a transfer becomes durable is another.
//!
//! | step | funding to spot | spot to funding |
//! |---|---|---|
//! | 1 | insert, in INIT | insert, in INIT |
//! | 2 | to SOURCE_PENDING | to SOURCE_PENDING |
//! | 3 | take from the balance | *withdraw from the engine*, to SOURCE_DONE |
//! | 4 | to SOURCE_DONE | to TARGET_PENDING |
//! | 5 | to TARGET_PENDING, *deposit in the engine* | add to the balance |
//! | 6 | to COMMITTED | to COMMITTED |
//!
//! Each step is a commit of its own. Refusals on the way are answered, not compensated: the bench causes none.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::serve::ListenerExt;
use axum::{Json, Router};
use domain::id::{Generator, Id, NodeId, Transfer};
use domain::transfer::State;
use domain::{Amount, Asset, AssetId, Clock, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::json;
use server::auth::{Keys, Verifier};
use spot::service::Limits;
use spot::{Answer, Core, Decision as Decided, Disk, Engine, Move, Operation, Settings};
use store::catalog::read_assets;
use store::yardstick::{Direction, PlainLine, PlainTransfer};
use store::{Db, Options, StoreError};
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Failure};
use terminal::files::read_secret;
use terminal::output::say;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::load::command::BENCH;
use crate::scratch;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// A database that the bench has set up
    #[arg(long, value_name = "URL")]
    database_url: String,
    /// Connections to the database
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    connections: u32,
    /// The secret that tokens are signed with
    #[arg(long, value_name = "FILE")]
    secret_file: PathBuf,
    /// A folder for a new spot engine
    #[arg(long, value_name = "FOLDER")]
    spot: PathBuf,
    /// Users 1 to so many are given money in this asset
    #[arg(long, default_value = "USDT")]
    asset: String,
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(i64).range(1..=10_000_000))]
    users: i64,
}

/// What each user has to begin with, in units.
const FUNDS: i64 = 1_000_000_000_000;

pub async fn run(arguments: &Arguments) -> CommandResult {
    let trouble = |error: std::io::Error| Failure::outside("COMMAND_FAILED", &error, "the bench starts this by itself");
    let mut terminate = signal(SignalKind::terminate()).map_err(trouble)?;
    let options = Options {
        max_connections: arguments.connections,
        jitter_seed: u64::from(std::process::id()),
        ..Options::default()
    };
    let db = Db::connect(&arguments.database_url, &options).await?;
    scratch::check(&db, "bench").await?;
    let assets = read_assets(&mut db.read().await?).await?;
    let assets: HashMap<String, (AssetId, Asset)> =
        assets.into_iter().map(|(id, asset)| (asset.symbol.to_string(), (id, asset))).collect();
    if let Some((asset, _)) = assets.get(&arguments.asset) {
        db.prepare_plain(arguments.users, *asset, Amount::from_units(FUNDS)).await?;
    }
    Disk::make_folder(&arguments.spot).map_err(trouble)?;
    let disk = Disk::lock(&arguments.spot)?;
    Core::create(&disk, SystemClock.now().micros().cast_unsigned(), &Settings::default())?;
    let (core, _) = Core::open(Arc::new(disk), &Settings::default(), &mut |_| {})?;
    let engine = Engine::start(core, Limits::default(), Arc::new(SystemClock)).map_err(trouble)?;
    let node = NodeId::new(1).ok_or_else(|| trouble(std::io::Error::other("no node")))?;
    let plain = Arc::new(Plain {
        lines: Lines::new(db.plain_lines(arguments.connections).await?),
        engine: engine.clone(),
        assets,
        ids: Generator::new(SystemClock, node),
        verifier: bench_verifier(&arguments.secret_file)?,
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(trouble)?;
    let address = listener.local_addr().map_err(trouble)?;
    // A failure is harmless: answers would still come, only later.
    let listener = listener.tap_io(|stream| {
        stream.set_nodelay(true).ok();
    });
    let router = Router::new().route("/plain", post(answer)).with_state(plain);
    say(json!({ "event": "listening", "http": address.to_string() }));
    tokio::select! {
        ended = axum::serve(listener, router) => ended.map_err(trouble)?,
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    engine.stop().await;
    Ok(())
}

/// The same check of tokens as the server's.
fn bench_verifier(secret: &Path) -> Result<Verifier, Failure> {
    let mut keys = Keys::default();
    keys.add_hs256(None, read_secret(secret)?)
        .map_err(|error| Failure::bad_input("AUTH_KEYS_INVALID", error.to_string(), "use a longer secret"))?;
    Ok(Verifier::new(keys, BENCH, BENCH, 30))
}

struct Plain {
    lines: Lines,
    engine: Engine,
    assets: HashMap<String, (AssetId, Asset)>,
    ids: Generator<SystemClock>,
    verifier: Verifier,
}

/// The connections to the database; `free` are those that no request uses.
struct Lines {
    free: Mutex<Vec<PlainLine>>,
    turns: Semaphore,
}

impl Lines {
    fn new(lines: Vec<PlainLine>) -> Self {
        Self { turns: Semaphore::new(lines.len()), free: Mutex::new(lines) }
    }

    async fn take(&self) -> Result<Line<'_>, Refused> {
        let turn = self.turns.acquire().await.map_err(|_| Refused::Bug)?;
        let line = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Ok(Line { lines: self, line, _turn: turn })
    }
}

/// A connection, until it is dropped.
struct Line<'a> {
    lines: &'a Lines,
    line: Option<PlainLine>,
    _turn: SemaphorePermit<'a>,
}

impl Line<'_> {
    /// There are as many turns as lines.
    fn get(&mut self) -> Result<&mut PlainLine, Refused> {
        self.line.as_mut().ok_or(Refused::Bug)
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        // Before the turn is passed on: that field is dropped after this.
        self.lines.free.lock().unwrap_or_else(PoisonError::into_inner).extend(self.line.take());
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlainRequest<'a> {
    from: &'a str,
    to: &'a str,
    asset: &'a str,
    amount: &'a str,
}

#[derive(Serialize)]
struct Done<'a> {
    transfer_id: String,
    req_id: String,
    from: &'a str,
    to: &'a str,
    asset: &'a str,
    amount: &'a str,
    state: &'static str,
    message: &'static str,
}

enum Refused {
    Token,
    Request,
    Balance,
    Spot(String),
    Store(StoreError),
    Bug,
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let (status, code, message) = match self {
            Self::Token => (StatusCode::UNAUTHORIZED, "BAD_USAGE", "no token, or not a good one".to_owned()),
            Self::Request => (StatusCode::BAD_REQUEST, "BAD_USAGE", "not a transfer".to_owned()),
            Self::Balance => (StatusCode::UNPROCESSABLE_ENTITY, "INSUFFICIENT_BALANCE", "not enough".to_owned()),
            Self::Spot(what) => (StatusCode::UNPROCESSABLE_ENTITY, "INTERNAL", what),
            Self::Store(error) => (StatusCode::SERVICE_UNAVAILABLE, error.code(), error.to_string()),
            Self::Bug => (StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL", "a step was lost".to_owned()),
        };
        (status, Json(json!({ "error": { "code": code, "message": message } }))).into_response()
    }
}

async fn answer(Shared(plain): Shared<Arc<Plain>>, headers: HeaderMap, body: Bytes) -> Result<Response, Refused> {
    let now = SystemClock.now();
    let token = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
    let user = plain.verifier.verify_header(token, now).map_err(|_| Refused::Token)?.user;
    let request: PlainRequest<'_> = serde_json::from_slice(&body).map_err(|_| Refused::Request)?;
    let direction = match (request.from, request.to) {
        ("FUNDING", "SPOT") => Direction::FundingToSpot,
        ("SPOT", "FUNDING") => Direction::SpotToFunding,
        _ => return Err(Refused::Request),
    };
    let (asset, of) = plain.assets.get(request.asset).ok_or(Refused::Request)?;
    let amount = Amount::parse(request.amount, of.precision).map_err(|_| Refused::Request)?;
    if amount < of.transfer.min || amount > of.transfer.max {
        return Err(Refused::Request);
    }
    let id = plain.ids.next::<Transfer>().map_err(|_| Refused::Bug)?;
    let transfer = PlainTransfer { id, direction, user, asset: *asset, amount };
    let number = match direction {
        Direction::FundingToSpot => plain.move_in(&transfer).await?,
        Direction::SpotToFunding => plain.move_out(&transfer).await?,
    };
    let done = Done {
        transfer_id: number.to_string(),
        req_id: id.to_string(),
        from: request.from,
        to: request.to,
        asset: request.asset,
        amount: request.amount,
        state: State::Committed.as_str(),
        message: "Transfer successful",
    };
    Ok(Json(done).into_response())
}

/// A step that must find the transfer where the last one left it.
async fn advance(line: &mut Line<'_>, id: Id<Transfer>, from: State, to: State, at: Timestamp) -> Result<(), Refused> {
    if line.get()?.advance(id, [from, to], at).await? { Ok(()) } else { Err(Refused::Bug) }
}

impl Plain {
    async fn move_in(&self, transfer: &PlainTransfer) -> Result<i64, Refused> {
        let (id, at) = (transfer.id, SystemClock.now());
        let mut line = self.lines.take().await?;
        let number = line.get()?.insert(transfer, at).await?;
        advance(&mut line, id, State::Init, State::SourcePending, at).await?;
        if !line.get()?.withdraw(transfer).await? {
            advance(&mut line, id, State::SourcePending, State::Failed, at).await?;
            return Err(Refused::Balance);
        }
        advance(&mut line, id, State::SourcePending, State::SourceDone, at).await?;
        advance(&mut line, id, State::SourceDone, State::TargetPending, at).await?;
        // Others use it while the engine works.
        drop(line);
        self.ask(Operation::Deposit(of(transfer))).await?;
        let mut line = self.lines.take().await?;
        advance(&mut line, id, State::TargetPending, State::Committed, SystemClock.now()).await?;
        Ok(number)
    }

    async fn move_out(&self, transfer: &PlainTransfer) -> Result<i64, Refused> {
        let (id, at) = (transfer.id, SystemClock.now());
        let mut line = self.lines.take().await?;
        let number = line.get()?.insert(transfer, at).await?;
        advance(&mut line, id, State::Init, State::SourcePending, at).await?;
        drop(line);
        self.ask(Operation::Withdraw(of(transfer))).await?;
        let at = SystemClock.now();
        let mut line = self.lines.take().await?;
        advance(&mut line, id, State::SourcePending, State::SourceDone, at).await?;
        advance(&mut line, id, State::SourceDone, State::TargetPending, at).await?;
        line.get()?.deposit(transfer).await?;
        advance(&mut line, id, State::TargetPending, State::Committed, at).await?;
        Ok(number)
    }

    /// One durable operation.
    async fn ask(&self, operation: Operation) -> Result<(), Refused> {
        match self.engine.ask(operation).await {
            Ok(Answer::First(Decided::Applied)) => Ok(()),
            other => Err(Refused::Spot(format!("{other:?}"))),
        }
    }
}

fn of(transfer: &PlainTransfer) -> Move {
    Move { id: transfer.id.into(), user: transfer.user, asset: transfer.asset, amount: transfer.amount }
}
