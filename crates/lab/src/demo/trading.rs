//! Customers move money between their funding and spot accounts over HTTP, while the server is killed and its connection to the spot engine is
//! stalled. Meanwhile rules bring gas and coins home, by workers of which one is killed too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use domain::Clock;
use terminal::clock::{Stopwatch, SystemClock};
use terminal::failure::CommandResult;
use terminal::output::thousands;

use super::Stage;
use super::ground::Worker;
use super::people::{CUSTOMERS, coins};
use super::screen::Line;
use super::wrong;
use crate::rig::customers::{Counters, Customer, Verdict, drain};

/// Connections: each has two of the customers.
const TRADERS: i64 = CUSTOMERS / 2;
/// How long the wire is held: longer than the server waits for its engine.
const HELD: Duration = Duration::from_millis(500);

/// What it came to.
#[derive(Debug, Default)]
pub struct Trading {
    pub verdict: Verdict,
    pub resent: u64,
    pub per_s: u64,
    pub server_killed: u32,
    pub wire_held: u32,
    pub worker_killed: u32,
}

impl Stage<'_> {
    pub async fn trading(&mut self, time: Duration, seed: u64) -> CommandResult {
        let (stop, counters) = (Arc::new(AtomicBool::new(false)), Arc::new(Counters::default()));
        let (run, coins) = (SystemClock.now().micros(), coins()?);
        let opening = self.people.opening(&coins);
        let customers: Vec<_> = (0..TRADERS)
            .map(|number| {
                let (secret, numbers) = (self.secret.clone(), [number, TRADERS, CUSTOMERS]);
                let address = vec![self.parts.address];
                let customer = Customer::new(address, secret, coins.clone(), numbers, seed, run + number);
                let customer = customer.opening(opening.clone());
                tokio::spawn(customer.trade(Arc::clone(&stop), Arc::clone(&counters), Duration::from_millis(1)))
            })
            .collect();
        let watch = Stopwatch::start();
        // A fault in every quarter of a short run, and every two seconds of a long one; first the wire, then the server.
        let every = (time / 5).min(Duration::from_secs(2));
        let mut next = every;
        while watch.elapsed() < time {
            tokio::time::sleep(Duration::from_millis(50)).await;
            self.screen.show(Line::Transfers, &counters);
            if watch.elapsed() >= next {
                next += every;
                self.disturb().await?;
            }
        }
        stop.store(true, Ordering::Relaxed);
        let elapsed = watch.elapsed();
        let committed = counters.committed.load(Ordering::Relaxed);
        let per_s = u128::from(committed) * 1_000 / elapsed.as_millis().max(1);
        let mut done = Vec::new();
        for customer in customers {
            done.push(customer.await.map_err(|error| wrong(format!("a customer ended: {error}")))?);
        }
        drain(&mut done).await;
        let found = &mut self.found.trading;
        for customer in done {
            found.verdict.add(customer.check().await);
        }
        found.resent = counters.resent.load(Ordering::Relaxed);
        found.per_s = u64::try_from(per_s).unwrap_or(u64::MAX);
        let kills = if found.worker_killed > 0 { ", a worker that sends payments too" } else { "" };
        self.screen.tell(format!(
            "5. transfers between funding and spot, over HTTP: {counters}: {} a second, durable; server killed {} times{kills}, \
             wire to the spot engine held {} times",
            thousands(found.per_s),
            found.server_killed,
            found.wire_held
        ));
        Ok(())
    }

    async fn disturb(&mut self) -> CommandResult {
        let found = &mut self.found.trading;
        if found.wire_held <= found.server_killed {
            found.wire_held += 1;
            self.parts.wire.hold(true);
            tokio::time::sleep(HELD).await;
            self.parts.wire.hold(false);
        } else {
            found.server_killed += 1;
            self.parts.restart_server(self.files).await?;
            // Wherever it is with a payment: the next one finds it in the database.
            if self.parts.runs(Worker::Outbound) {
                self.found.trading.worker_killed += 1;
                self.parts.kill_worker(Worker::Outbound).await?;
                self.parts.start_worker(Worker::Outbound, self.files, self.chains).await?;
            }
        }
        self.show_trouble();
        Ok(())
    }

    pub fn show_trouble(&self) {
        let found = &self.found.trading;
        let words = format!(
            "server killed {} times, a worker {} times, wire held {} times",
            found.server_killed, found.worker_killed, found.wire_held
        );
        self.screen.show(Line::Trouble, words);
    }
}
