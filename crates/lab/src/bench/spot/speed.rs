//! Operations per second and their latency: in this process, over the network, and on the bare state.

use std::sync::Arc;
use std::time::Duration;

use domain::id::{self, Generator};
use domain::random::Random;
use domain::{Amount, Clock, UserId};
use spot::State;
use spot::net::Client;
use spot::{Answer, Decision as Decided, Engine, Move, Operation, Request, Settings};
use terminal::clock::{Stopwatch, SystemClock};
use terminal::failure::Failure;

use super::{ASSET, USERS, bug};

/// Makes operations: one unit in, one unit out, for users all over the table.
pub(super) struct Source {
    pub(super) ids: Arc<Generator<SystemClock>>,
    pub(super) random: Random,
}

impl Source {
    pub(super) fn next(&mut self) -> Result<Operation, Failure> {
        let id = self.ids.next::<id::Transfer>().map_err(bug)?.into();
        let word = self.random.next_u64();
        let user = user(1 + word % USERS)?;
        let of = Move { id, user, asset: ASSET, amount: Amount::from_units(1) };
        Ok(if word >> 63 == 0 { Operation::Deposit(of) } else { Operation::Withdraw(of) })
    }
}

pub(super) fn user(number: u64) -> Result<UserId, Failure> {
    i64::try_from(number).ok().and_then(UserId::new).ok_or_else(|| bug("a user has no number"))
}

/// Deposits for every user, so that no withdrawal is refused.
pub(super) fn funding(ids: &Generator<SystemClock>, users: u64) -> Result<Vec<Request>, Failure> {
    (1..=users)
        .map(|number| {
            let id = ids.next::<id::Transfer>().map_err(bug)?.into();
            let of = Move { id, user: user(number)?, asset: ASSET, amount: Amount::from_units(1_000_000_000) };
            Ok(Request::Run(Operation::Deposit(of)))
        })
        .collect()
}

/// Throughput and latency of one slice.
pub(super) struct Measured {
    pub(super) per_s: f64,
    /// In nanoseconds, sorted.
    pub(super) latencies: Vec<u32>,
}

impl Measured {
    pub(super) fn of(mut latencies: Vec<u32>, time: Duration) -> Self {
        latencies.sort_unstable();
        Self { per_s: latencies.len() as f64 / time.as_secs_f64(), latencies }
    }

    pub(super) fn quantile_us(&self, thousandths: usize) -> f64 {
        let at = self.latencies.len() * thousandths / 1_000;
        self.latencies.get(at).or(self.latencies.last()).map_or(0.0, |nanos| f64::from(*nanos) / 1e3)
    }
}

pub(super) fn nanos(time: Duration) -> u32 {
    u32::try_from(time.as_nanos()).unwrap_or(u32::MAX)
}

/// Single operations, each submitted by itself, so many of them outstanding at any time.
pub(super) async fn in_process(
    engine: &Engine,
    ids: &Arc<Generator<SystemClock>>,
    outstanding: u64,
    time: Duration,
) -> Result<Measured, Failure> {
    let watch = Stopwatch::start();
    let tasks: Vec<_> = (0..outstanding)
        .map(|number| {
            let engine = engine.clone();
            let mut source = Source { ids: Arc::clone(ids), random: Random::from_seed(number) };
            tokio::spawn(async move {
                let mut latencies = Vec::new();
                let mut before = watch.elapsed();
                while before < time {
                    let answer = engine.ask(source.next()?).await.map_err(bug)?;
                    if answer != Answer::First(Decided::Applied) {
                        return Err(bug(format!("{answer:?}")));
                    }
                    let now = watch.elapsed();
                    latencies.push(nanos(now - before));
                    before = now;
                }
                Ok(latencies)
            })
        })
        .collect();
    collect(tasks, watch).await
}

async fn collect(
    tasks: Vec<tokio::task::JoinHandle<Result<Vec<u32>, Failure>>>,
    watch: Stopwatch,
) -> Result<Measured, Failure> {
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await.map_err(bug)??);
    }
    Ok(Measured::of(latencies, watch.elapsed()))
}

/// Operations per frame over the network.
const FRAME: u64 = 64;

/// Frames of 64 operations over one connection. The latency of a frame is that of each of its operations.
pub(super) async fn loopback(
    client: &Client,
    ids: &Arc<Generator<SystemClock>>,
    outstanding: u64,
    time: Duration,
) -> Result<Measured, Failure> {
    let watch = Stopwatch::start();
    let tasks: Vec<_> = (0..outstanding / FRAME)
        .map(|number| {
            let client = client.clone();
            let mut source = Source { ids: Arc::clone(ids), random: Random::from_seed(number) };
            tokio::spawn(async move {
                let mut latencies = Vec::new();
                let mut before = watch.elapsed();
                while before < time {
                    let requests: Result<Vec<Request>, Failure> =
                        (0..FRAME).map(|_| source.next().map(Request::Run)).collect();
                    let answers = client.submit(&requests?).await.map_err(bug)?;
                    if let Some(other) = answers.iter().find(|answer| **answer != Answer::First(Decided::Applied)) {
                        return Err(bug(format!("{other:?}")));
                    }
                    let now = watch.elapsed();
                    latencies.extend(answers.iter().map(|_| nanos(now - before)));
                    before = now;
                }
                Ok(latencies)
            })
        })
        .collect();
    collect(tasks, watch).await
}

/// The same operations on the state alone: no log, no threads.
pub(super) fn apply_only(state: &mut State, source: &mut Source, time: Duration) -> Result<f64, Failure> {
    let mut done = 0_u64;
    let mut spent = Duration::ZERO;
    while spent < time {
        let requests: Result<Vec<Request>, Failure> = (0..4_096).map(|_| source.next().map(Request::Run)).collect();
        let requests = requests?;
        let window = state.window_at(SystemClock.now(), Settings::default().retention_micros);
        let watch = Stopwatch::start();
        state.set_window(window);
        for request in &requests {
            if state.answer(request).0 != Answer::First(Decided::Applied) {
                return Err(bug("a withdrawal was refused"));
            }
        }
        spent += watch.elapsed();
        done += requests.len() as u64;
    }
    Ok(done as f64 / spent.as_secs_f64())
}
