//! Alerts: what needs a person is told to the log, and to a webhook and a command if there are any.
//!
//! What is told follows from what there is: from the rows of transfers that have not ended, and from the parts that are in
//! trouble. Nothing is told at the moment when it happens, so a process that dies at that moment loses nothing; the next
//! check finds it, in this process or in another. A message that is not taken is tried again at the next check.

pub mod command;
pub mod webhook;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use custody::signer::SignerWatch;
use custody::treasury::{GAS_RUNS_DRY, TreasuryStanding, TreasuryWatch};
use custody::wallet::{ROW_DIFFERS, WalletRows};
use domain::Timestamp;
use serde_json::{Value, json};
use store::StoreError;
use store::error::Causes;
use store::transfer::{OpenTransfers, read_stops};
use store::treasury::cost::GasWallet;
use transfer::Coordinator;

/// So many stuck transfers are named in a message; the others are counted.
const NAMED: i64 = 20;
/// So many stops are looked at, the newest first.
const STOPS: i64 = 1_000;

/// What a message is sent to.
#[derive(Clone, Debug)]
pub enum Sink {
    Log,
    Webhook(webhook::Webhook),
    Command(command::Command),
}

#[derive(Clone, Copy, Debug)]
pub struct Intervals {
    /// How often it is looked.
    pub check: Duration,
    /// How often the same is told again while it lasts.
    pub repeat: Duration,
    /// A part in trouble for so long is told of.
    pub lasting: Duration,
}

/// One thing that needs a person.
#[derive(Clone, Debug, PartialEq)]
pub struct Alert {
    /// Has a page in `docs/errors`.
    pub code: &'static str,
    /// The part of the process that is in trouble, if it is one.
    pub part: Option<&'static str>,
    pub message: String,
    pub details: Value,
}

/// Looks at intervals, and tells.
pub struct Alerts {
    coordinator: Arc<Coordinator>,
    intervals: Intervals,
    /// Since when each part is in trouble.
    since: BTreeMap<&'static str, Timestamp>,
    receivers: Vec<Receiver>,
    wallet_rows: Option<Arc<WalletRows>>,
    signer: Option<Arc<SignerWatch>>,
    treasury: Option<Arc<TreasuryWatch>>,
}

/// A sink, and what it was told last.
struct Receiver {
    sink: Sink,
    told: BTreeSet<(&'static str, Option<&'static str>)>,
    at: Timestamp,
}

/// Somebody has changed the database: an address that a row names is not the user's, or not ours.
fn differing_rows(rows: &WalletRows) -> Option<Alert> {
    let standing = rows.standing();
    let first = standing.first?;
    let message = format!("{} rows of the wallets are not as the keys of the treasury file say", standing.differ);
    // No user and no address: those are in the log.
    let details = json!({ "differ": standing.differ, "row": first.row });
    Some(Alert { code: ROW_DIFFERS, part: None, message, details })
}

/// Other keys and an old log are told at once; a signer that is away, when it has been for a while.
fn signer_trouble(signer: &SignerWatch, now: Timestamp, lasting: Duration) -> Option<Alert> {
    let (standing, since) = signer.standing();
    let code = standing.code()?;
    let due = standing.is_certain() || passed(since, now, lasting);
    let details = json!({ "since": since.to_string() });
    due.then(|| Alert { code, part: None, message: standing.words(), details })
}

/// Users' coins stay where they are when nobody can pay for bringing them home.
fn dry_gas_wallets(standing: &TreasuryStanding) -> Option<Alert> {
    let dry: Vec<&GasWallet> = standing.dry().collect();
    let message = format!("{} gas wallets have less than they gave in the last day", dry.len());
    let wallet = |one: &&GasWallet| {
        json!({ "chain": one.chain, "group": one.group, "index": one.index, "coin": one.coin.symbol,
            "lasts_minutes": one.supply.lasts_minutes() })
    };
    let details = json!({ "wallets": dry.iter().map(wallet).collect::<Vec<Value>>() });
    (!dry.is_empty()).then_some(Alert { code: GAS_RUNS_DRY, part: None, message, details })
}

impl Alerts {
    pub fn new(coordinator: Arc<Coordinator>, sinks: Vec<Sink>, intervals: Intervals) -> Self {
        let never = Timestamp::from_micros(0);
        let receivers = sinks.into_iter().map(|sink| Receiver { sink, told: BTreeSet::new(), at: never });
        let (since, receivers) = (BTreeMap::new(), receivers.collect());
        Self { coordinator, intervals, since, receivers, wallet_rows: None, signer: None, treasury: None }
    }

    /// Tells of rows of the wallets that differ, too.
    #[must_use]
    pub fn with_wallet_rows(self, rows: Arc<WalletRows>) -> Self {
        Self { wallet_rows: Some(rows), ..self }
    }

    /// Tells of a signer that is away, has other keys, or runs on an old copy of its log, too.
    #[must_use]
    pub fn with_signer(self, signer: Option<Arc<SignerWatch>>) -> Self {
        Self { signer, ..self }
    }

    /// Tells of gas wallets that run dry, too.
    #[must_use]
    pub fn with_treasury(self, treasury: Arc<TreasuryWatch>) -> Self {
        Self { treasury: Some(treasury), ..self }
    }

    pub async fn run(mut self) {
        loop {
            self.check().await;
            tokio::time::sleep(self.intervals.check).await;
        }
    }

    /// Looks once, and tells what is new or due again. Returns what there is.
    pub async fn check(&mut self) -> Vec<Alert> {
        let now = self.coordinator.now();
        let mut alerts = self.troubles(now);
        // What could not be read may still be so: it is not over.
        let mut complete = true;
        match self.coordinator.open_transfers(NAMED).await {
            Ok(open) => {
                alerts.extend(stuck(&open, now));
                self.coordinator.metrics().set_open(Some(open));
            }
            // Readiness tells of a database that is away. What was read before must not pass for what is.
            Err(error) => {
                tracing::debug!(code = error.code(), error = %Causes(&error), "open transfers could not be read");
                self.coordinator.metrics().set_open(None);
                complete = false;
            }
        }
        alerts.extend(self.wallet_rows.as_ref().and_then(|rows| differing_rows(rows)));
        let lasting = self.intervals.lasting;
        alerts.extend(self.signer.as_ref().and_then(|signer| signer_trouble(signer, now, lasting)));
        match self.treasury.as_ref().map(|treasury| treasury.standing()) {
            Some(Some(standing)) => alerts.extend(dry_gas_wallets(&standing)),
            Some(None) => complete = false,
            None => {}
        }
        match self.stopped_assets().await {
            Ok(stopped) => alerts.extend(stopped),
            Err(error) => {
                tracing::debug!(code = error.code(), error = %Causes(&error), "stops could not be read");
                complete = false;
            }
        }
        match self.findings().await {
            Ok(found) => alerts.extend(found),
            Err(error) => {
                tracing::debug!(code = error.code(), error = %Causes(&error), "findings could not be read");
                complete = false;
            }
        }
        for receiver in &mut self.receivers {
            receiver.tell(&alerts, complete, now, self.intervals.repeat, &self.coordinator).await;
        }
        alerts
    }

    /// The assets whose way back from SPOT is stopped, by a check or by a person.
    async fn stopped_assets(&self) -> Result<Option<Alert>, StoreError> {
        let stops = read_stops(&mut self.coordinator.db().read().await?, STOPS).await?;
        let open: Vec<Value> = stops
            .iter()
            .filter(|stop| stop.resumed.is_none())
            .map(|stop| json!({ "asset": stop.asset.0, "since": stop.since.to_string(), "by": stop.stopped_by }))
            .collect();
        let message = format!("transfers of {} assets from SPOT to FUNDING are stopped", open.len());
        let details = json!({ "assets": open });
        let alert = Alert { code: "TRANSFER_STOPPED", part: None, message, details };
        Ok((!stops.iter().all(|stop| stop.resumed.is_some())).then_some(alert))
    }

    /// What workers of chains found, and nobody has seen to.
    async fn findings(&self) -> Result<Option<Alert>, StoreError> {
        let open = self.coordinator.db().open_findings(0, NAMED).await?;
        let named: Vec<Value> = open
            .iter()
            .map(|one| {
                json!({ "id": one.id, "chain": one.chain, "kind": one.kind, "subject": one.subject, "detail": one.detail,
                    "at": one.at.to_string() })
            })
            .collect();
        let message = format!("chains have {} findings that nobody has seen to, or more", open.len());
        let alert = Alert { code: "CHAIN_FINDING", part: None, message, details: json!({ "findings": named }) };
        Ok((!open.is_empty()).then_some(alert))
    }

    /// The parts that have been in trouble for a while. A panic is told at once: a task that is started again looks well
    /// soon, and may panic again and again.
    fn troubles(&mut self, now: Timestamp) -> Vec<Alert> {
        let parts = self.coordinator.readiness().read();
        let troubles: Vec<_> = parts.into_iter().filter_map(|(part, trouble)| Some((part, trouble?))).collect();
        self.since.retain(|part, _| troubles.iter().any(|(other, _)| other == part));
        let mut alerts = Vec::new();
        for (part, trouble) in troubles {
            let since = *self.since.entry(part).or_insert(now);
            if trouble.code == "TASK_PANICKED" || passed(since, now, self.intervals.lasting) {
                let details = json!({ "since": since.to_string() });
                alerts.push(Alert { code: trouble.code, part: Some(part), message: trouble.words, details });
            }
        }
        alerts
    }
}

/// Whether so much time has passed. A clock that was set back must not silence an alert.
fn passed(since: Timestamp, now: Timestamp, time: Duration) -> bool {
    let age = now.micros().saturating_sub(since.micros());
    u64::try_from(age).map_or(true, |age| u128::from(age) >= time.as_micros())
}

fn stuck(open: &OpenTransfers, now: Timestamp) -> Option<Alert> {
    let count = open.stuck_count();
    if count == 0 {
        return None;
    }
    let age_s = |at: Timestamp| now.micros().saturating_sub(at.micros()) / 1_000_000;
    let by_state: serde_json::Map<String, Value> =
        open.by_state.iter().map(|one| (one.state.to_string(), json!(one.count))).collect();
    let named = open.stuck.iter().map(|transfer| {
        json!({
            "id": transfer.id.to_string(), "state": transfer.state.to_string(), "tries": transfer.tries,
            "age_s": age_s(transfer.created_at), "error": transfer.error,
        })
    });
    let details = json!({
        "open": open.count(), "stuck": count, "oldest_age_s": open.oldest().map_or(0, age_s), "by_state": by_state,
        "transfers": named.collect::<Vec<Value>>(),
    });
    let message = format!("{count} transfers have not ended and are tried again and again");
    Some(Alert { code: "TRANSFERS_STUCK", part: None, message, details })
}

impl Receiver {
    /// At once when something is new or all is over; else at intervals, while anything lasts.
    async fn tell(
        &mut self,
        alerts: &[Alert],
        complete: bool,
        now: Timestamp,
        repeat: Duration,
        coordinator: &Coordinator,
    ) {
        let mut keys: BTreeSet<_> = alerts.iter().map(|alert| (alert.code, alert.part)).collect();
        if !complete {
            if alerts.is_empty() {
                return;
            }
            keys.extend(self.told.iter().copied());
        }
        let news = !keys.is_subset(&self.told) || (keys.is_empty() && !self.told.is_empty());
        if !news && (keys.is_empty() || !passed(self.at, now, repeat)) {
            // What is over is forgotten, so that it is news when it comes back.
            self.told = keys;
            return;
        }
        let sent = match &self.sink {
            Sink::Log => {
                alerts.iter().for_each(log);
                Ok(())
            }
            Sink::Webhook(webhook) => webhook.send(message(alerts, now)).await,
            Sink::Command(command) => command.run(&message(alerts, now)).await,
        };
        let metrics = coordinator.metrics();
        match sent {
            Ok(()) => {
                if !matches!(self.sink, Sink::Log) {
                    metrics.alerts_delivered.fetch_add(1, Ordering::Relaxed);
                }
                (self.told, self.at) = (keys, now);
            }
            Err(why) => {
                metrics.alerts_undelivered.fetch_add(1, Ordering::Relaxed);
                tracing::error!(code = "ALERT_UNDELIVERED", sink = self.sink.name(), why, "an alert was not taken");
            }
        }
    }
}

impl Sink {
    const fn name(&self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Webhook(_) => "webhook",
            Self::Command(_) => "command",
        }
    }
}

/// Codes, ids of transfers and times: no user, no amount, no secret.
fn message(alerts: &[Alert], now: Timestamp) -> String {
    let alerts: Vec<Value> = alerts
        .iter()
        .map(|alert| {
            let mut value = json!({ "code": alert.code, "message": alert.message, "details": alert.details });
            if let Some(part) = alert.part {
                value["part"] = json!(part);
            }
            value
        })
        .collect();
    let status = if alerts.is_empty() { "over" } else { "alert" };
    json!({ "source": "bursar", "time": now.to_string(), "status": status, "alerts": alerts }).to_string()
}

fn log(alert: &Alert) {
    tracing::error!(code = alert.code, part = alert.part, details = %alert.details, "{}", alert.message);
}
