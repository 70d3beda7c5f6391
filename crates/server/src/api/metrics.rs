//! `/metrics`: counters, gauges and histograms in Prometheus' text form (version 0.0.4).

use std::fmt::{Display, Write};
use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use domain::RawAmount;
use store::treasury::cost::{CostCoin, CostRow};
use transfer::metrics::Histogram;

use super::{App, Shared};

/// Counters, gauges and histograms in Prometheus' text form
#[utoipa::path(get, path = "/metrics", tag = "operations", operation_id = "metrics",
    responses((status = 200, description = "Counters", body = String, content_type = "text/plain")))]
pub async fn metrics(State(app): Shared) -> Response {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text(&app)).into_response()
}

/// The text, family by family. Writing to a string cannot fail.
#[derive(Default)]
struct Families(String);

impl Families {
    fn begin(&mut self, name: &str, kind: &str, help: &str) {
        write!(self.0, "# HELP bursar_{name} {help}\n# TYPE bursar_{name} {kind}\n").ok();
    }

    /// Values of labels are our own words: none has a quote, a backslash or a new line.
    fn value(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<String> = labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        writeln!(self.0, "bursar_{name}{labels} {value}").ok();
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.begin(name, kind, help);
        self.value(name, &[], value);
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        let (bounds, count, sum_micros) = histogram.read();
        self.begin(name, "histogram", help);
        let bucket = format!("{name}_bucket");
        for ((_, bound), value) in Histogram::BOUNDS.iter().zip(bounds) {
            self.value(&bucket, &[("le", bound)], value);
        }
        self.value(&bucket, &[("le", "+Inf")], count);
        let sum = format!("{}.{:06}", sum_micros / 1_000_000, sum_micros % 1_000_000);
        self.value(&format!("{name}_sum"), &[], sum);
        self.value(&format!("{name}_count"), &[], count);
    }
}

fn text(app: &App) -> String {
    let coordinator = app.intake.coordinator();
    let mut families = Families::default();
    for (name, help, value) in coordinator.metrics().read() {
        families.one(&format!("{name}_total"), "counter", help, value);
    }
    families.begin("http_requests_total", "counter", "answers by the first digit of their status");
    for (class, count) in app.requests.by_class.iter().enumerate().skip(2) {
        let class = format!("{class}xx");
        families.value("http_requests_total", &[("class", &class)], count.load(Ordering::Relaxed));
    }
    let (open, refused) = (&app.connections.open, &app.connections.refused);
    families.one("http_connections", "gauge", "open connections to the public listener", open.load(Ordering::Relaxed));
    let help = "connections refused because their address has too many";
    families.one("http_connections_refused_total", "counter", help, refused.load(Ordering::Relaxed));
    let unserved = app.requests.unserved();
    if !unserved.is_empty() {
        families.begin("http_unserved_total", "counter", "requests that failed on our side, by the code of the cause");
        for (code, count) in unserved {
            families.value("http_unserved_total", &[("code", code)], count);
        }
    }
    families.histogram("http_request_seconds", "how long requests took", &app.requests.latency);
    let help = "how long the transactions took that record transfers or move them on";
    families.histogram("commit_seconds", help, &coordinator.metrics().commits);
    open_transfers(&mut families, app);
    parts(&mut families, app);
    wallets(&mut families, app);
    let rows = app.wallet_rows.standing();
    let help = "rows of the wallets that are not as the keys of the treasury file say";
    families.one("wallet_rows_differ", "gauge", help, rows.differ);
    let help = "user wallets whose address this process has derived again";
    families.one("wallet_rows_checked_total", "counter", help, rows.checked);
    treasury(&mut families, app);
    if let Some(signer) = &app.signer {
        let help = "1 while the signer has the keys of the treasury file, and the log that answered before";
        families.one("signer_agrees", "gauge", help, u8::from(signer.agrees()));
    }
    families.begin("database_connections", "gauge", "connections to the database, by pool and use");
    for pool in coordinator.db().pools() {
        for (state, count) in [("in_use", pool.in_use), ("idle", pool.idle), ("most", pool.most)] {
            families.value("database_connections", &[("pool", pool.name), ("state", state)], count);
        }
    }
    families.begin("build_info", "gauge", "the program that runs; its value is always 1");
    let commit = option_env!("BURSAR_BUILD_COMMIT").unwrap_or("unknown");
    families.value("build_info", &[("version", env!("CARGO_PKG_VERSION")), ("commit", commit)], 1);
    families.0
}

/// As they were read last, a few seconds ago. Nothing is shown if they could not be read: an old number would pass for a
/// new one.
fn open_transfers(families: &mut Families, app: &App) {
    let Some(open) = app.intake.coordinator().metrics().open() else { return };
    let states: Vec<_> = domain::transfer::State::ALL.into_iter().filter(|state| !state.is_terminal()).collect();
    let of = |state| open.by_state.iter().find(|one| one.state == state);
    families.begin("transfers_open", "gauge", "transfers that have not ended, by state");
    for state in &states {
        let count = of(*state).map_or(0, |one| one.count);
        families.value("transfers_open", &[("state", state.as_str())], count);
    }
    families.begin("transfers_stuck", "gauge", "those of them that were tried too often or are too old, by state");
    for state in &states {
        let count = of(*state).map_or(0, |one| one.stuck);
        families.value("transfers_stuck", &[("state", state.as_str())], count);
    }
    let now = app.clock.now().micros();
    let age_s = open.oldest().map_or(0, |oldest| now.saturating_sub(oldest.micros()).max(0) / 1_000_000);
    families.one("transfers_oldest_age_seconds", "gauge", "how long ago the oldest of them was made", age_s);
}

/// Of the Bitcoin wallets, as it was read last.
fn wallets(families: &mut Families, app: &App) {
    let Some(standing) = app.wallets.standing() else { return };
    let leases = standing.leases;
    families.begin(
        "utxo_leases",
        "gauge",
        "leases of outputs: active, ended and not swept yet, or of a rescan that is open",
    );
    families.value("utxo_leases", &[("state", "active")], leases.active);
    families.value("utxo_leases", &[("state", "ended")], leases.ended);
    families.value("utxo_leases", &[("state", "rescan")], leases.found);
    let help = "free outputs that nobody may spend: a transaction that may still be mined spends them";
    families.one("utxo_claimed", "gauge", help, leases.claimed);
    let now = app.clock.now().micros();
    let age_s = leases.oldest_end.map_or(0, |end| now.saturating_sub(end.micros()).max(0) / 1_000_000);
    let help = "how long ago the first of the leases ended that were not swept yet";
    families.one("utxo_lease_oldest_ended_age_seconds", "gauge", help, age_s);
    let help = "leases that this process has swept";
    families.one("utxo_leases_swept_total", "counter", help, standing.sweeps.swept);
    let help = "how long after its end the lease was swept that had waited longest, in the last sweep of this process";
    families.one("utxo_lease_cleanup_seconds", "gauge", help, standing.sweeps.latency_micros.max(0) / 1_000_000);
    families.one("utxo_unspent", "gauge", "unspent outputs of all wallets", standing.unspent);
    families.begin("utxo_rows_made", "gauge", "rows that each table of the wallets has had since it was made");
    for one in &standing.rows_made {
        families.value("utxo_rows_made", &[("table", &one.table)], one.rows);
    }
}

/// Of the last day, as it was read last. Series are bounded: chains, kinds of jobs and coins of the treasury file, and its gas wallets. Nothing is shown if it
/// could not be read.
fn treasury(families: &mut Families, app: &App) {
    let Some(standing) = app.treasury.standing() else { return };
    let now = app.clock.now().micros();
    families.begin("withdrawals_open", "gauge", "withdrawals that hold a customer's money, by chain and status");
    for one in &standing.withdrawals {
        families.value("withdrawals_open", &[("chain", &one.chain), ("status", one.state.as_str())], one.count);
    }
    families.begin("withdrawals_oldest_age_seconds", "gauge", "how long ago the oldest of them was asked for");
    for one in &standing.withdrawals {
        let age_s = now.saturating_sub(one.oldest.micros()).max(0) / 1_000_000;
        families.value(
            "withdrawals_oldest_age_seconds",
            &[("chain", &one.chain), ("status", one.state.as_str())],
            age_s,
        );
    }
    let whole = |amount: RawAmount, coin: &CostCoin| amount.in_coins(coin.decimals);
    type Value<'a> = &'a dyn Fn(&CostRow) -> Option<String>;
    let families_of_rows: [(&str, &str, Value<'_>); 5] = [
        ("treasury_jobs_day", "jobs that were paid in the last day", &|row| Some(row.jobs.to_string())),
        ("treasury_moved_coins_day", "what they moved, in whole coins", &|row| Some(whole(row.moved, &row.coin))),
        ("treasury_fees_coins_day", "what that cost, in whole coins of the chain", &|row| {
            Some(whole(row.fee, &row.fee_coin))
        }),
        ("treasury_fees_expected_coins_day", "what rules expected it to cost", &|row| {
            row.expected.map(|expected| whole(expected, &row.fee_coin))
        }),
        ("treasury_cost_bps_day", "what it cost for each ten thousand units of value that were moved", &|row| {
            row.cost_bps(&standing.prices).map(|bps| bps.to_string())
        }),
    ];
    for (name, help, value) in families_of_rows {
        families.begin(name, "gauge", help);
        for row in &standing.costs.rows {
            if let Some(value) = value(row) {
                let labels =
                    [("chain", row.chain.as_str()), ("kind", row.kind.as_str()), ("asset", row.coin.symbol.as_str())];
                families.value(name, &labels, value);
            }
        }
    }
    let help = "what gas and sweeps cost for each ten thousand units of value that came home in the last day";
    families.begin("treasury_swept_cost_bps_day", "gauge", help);
    for swept in standing.costs.swept(&standing.prices) {
        if let Some(bps) = swept.cost_bps {
            families.value("treasury_swept_cost_bps_day", &[("chain", swept.chain.as_str())], bps);
        }
    }
    families.begin("treasury_gas_coins", "gauge", "what gas wallets have, less what open jobs will take");
    for (wallet, index) in standing.gas.iter().map(|wallet| (wallet, wallet.index.to_string())) {
        let labels = [("chain", wallet.chain.as_str()), ("group", wallet.group.as_str()), ("index", index.as_str())];
        let left = wallet.supply.left().unwrap_or(RawAmount::ZERO);
        families.value("treasury_gas_coins", &labels, whole(left, &wallet.coin));
    }
    let help = "how long that will do if every day is like the last one; of wallets that gave something";
    families.begin("treasury_gas_lasts_seconds", "gauge", help);
    for (wallet, index) in standing.gas.iter().map(|wallet| (wallet, wallet.index.to_string())) {
        if let Some(minutes) = wallet.supply.lasts_minutes() {
            let labels =
                [("chain", wallet.chain.as_str()), ("group", wallet.group.as_str()), ("index", index.as_str())];
            families.value("treasury_gas_lasts_seconds", &labels, minutes.saturating_mul(60));
        }
    }
}

fn parts(families: &mut Families, app: &App) {
    let parts = app.intake.coordinator().readiness().read();
    let well = |name: &str| parts.iter().all(|(part, trouble)| *part != name || trouble.is_none());
    let ready = app.verdict().is_ok();
    families.one("ready", "gauge", "1 if this process takes transfers", u8::from(ready));
    let up = well("engine") && well("pair");
    families.one("engine_up", "gauge", "1 if the spot engine answers and is the right one", u8::from(up));
    families.begin("part_ready", "gauge", "1 for each part of this process that is well");
    for (part, trouble) in &parts {
        families.value("part_ready", &[("part", part)], u8::from(trouble.is_none()));
    }
}
