//! The end: everything is well again, blocks come until all is final, and then what the chains have is held against what the jobs say and
//! what the books say.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use domain::RawAmount;
use domain::outbound::{JobKind, JobState};
use serde_json::{Value, json};
use store::Db;
use store::entry::FindingKind;
use store::outbound::{JobFilter, JobId, ShownJob};
use terminal::failure::Failure;
use tx::{Address, Coin};

use super::ground::GAS_BELOW;
use super::net::Net;
use super::people::Order;
use super::{AskedFor, customers};
use crate::rig::program;

/// What is wrong, counted, with the first few in words.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub confirmed: u64,
    pub failed: u64,
    /// Why jobs are over without a payment, and how many.
    pub because: BTreeMap<String, u64>,
    /// Withdrawals by their states.
    pub withdrawals: BTreeMap<&'static str, u64>,
    pub counts: BTreeMap<&'static str, u64>,
    pub first: Vec<String>,
}

/// All that a run is judged by. None may be counted.
pub(super) const WRONGS: [&str; 12] = [
    "paid_twice",
    "lost",
    "stranded",
    "paid_otherwise",
    "failed_and_paid",
    "wallets_differ",
    "unswept",
    "lanes_stopped",
    "findings",
    "customers_differ",
    "audit_failed",
    "reader_disagrees",
];

const FIRST: usize = 8;

impl Verdict {
    pub fn add(&mut self, what: &'static str, words: String) {
        *self.counts.entry(what).or_default() += 1;
        if self.first.len() < FIRST {
            self.first.push(format!("{what}: {words}"));
        }
    }

    pub fn count(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or(0)
    }

    pub fn is_clean(&self) -> bool {
        self.counts.values().all(|count| *count == 0)
    }
}

/// What the jobs say of themselves.
pub(super) async fn states(db: &Db) -> Result<HashMap<JobId, ShownJob>, Failure> {
    let (mut found, mut before) = (HashMap::new(), i64::MAX);
    loop {
        let page = db.jobs(&JobFilter::default(), before, 1_000).await?;
        let Some(last) = page.last() else { return Ok(found) };
        before = last.job.id.number();
        found.extend(page.into_iter().map(|shown| (shown.job.id, shown)));
    }
}

pub(super) fn is_over(state: JobState) -> bool {
    matches!(state, JobState::Confirmed | JobState::FailedFinal)
}

pub(super) async fn judge(
    db: &Db,
    nets: &[std::sync::Arc<Net>],
    asked: &AskedFor,
    config: &Path,
) -> Result<Verdict, Failure> {
    let mut verdict = Verdict::default();
    verdict.withdrawals =
        customers::judge(db, nets, (&asked.customers.wanted, &asked.customers.refused), &mut verdict).await?;
    let asked = &asked.orders;
    let jobs = states(db).await?;
    for (number, net) in nets.iter().enumerate() {
        let mine: Vec<&Order> = asked.iter().filter(|one| one.net == number).collect();
        let places: Vec<(Address, Coin)> = mine.iter().map(|one| (one.to.clone(), one.coin.clone())).collect();
        for (one, has) in mine.into_iter().zip(net.balances(&places).await?) {
            judge_job(&mut verdict, one, jobs.get(&one.id), has, net.name);
        }
        for words in wallets_differ(db, net).await? {
            verdict.add("wallets_differ", words);
        }
        for user in net.unswept().await? {
            let why = program::told(config, &["rule", "eval", "--dry-run", "--wallet", &user.to_string()]).await;
            let why = why.map_or_else(|failure| failure.messages.join("; "), |told| told.to_string());
            verdict.add(
                "unswept",
                format!("{user} on {} has tokens that a rule should have brought home: {why}", net.name),
            );
        }
    }
    for lane in db.lanes(None, None, 0, 1_000).await? {
        if let Some(why) = lane.lane.stopped {
            verdict.add("lanes_stopped", format!("{}: {why}", lane.lane.address));
        }
    }
    for finding in db.open_findings(0, 1_000).await? {
        // A credited deposit whose block left the chain is told to people, as it should be. No block leaves that is final.
        if finding.kind == FindingKind::TakenBack.as_str() {
            let shown = program::told(config, &["deposit", "show", &finding.subject]).await?;
            let was = |step: &Value| step["state"] == "final";
            if !shown["history"].as_array().is_some_and(|steps| steps.iter().any(was)) {
                continue;
            }
        }
        verdict.add("findings", format!("{finding:?}"));
    }
    // The exit code says it too: a report of broken books is a failure of the command.
    match program::told(config, &["audit"]).await {
        Ok(report) if report["clean"] == true => {}
        Ok(report) => verdict.add("audit_failed", report.to_string()),
        Err(failure) => verdict.add("audit_failed", failure.messages.join("; ")),
    }
    Ok(verdict)
}

/// Its destination is its own: what is there, it has paid.
fn judge_job(verdict: &mut Verdict, asked: &Order, job: Option<&ShownJob>, has: RawAmount, chain: &str) {
    let Some(shown) = job else {
        return verdict.add("lost", format!("{} was taken, and is not there", asked.id));
    };
    let words = || {
        format!(
            "{} on {chain}, {} {} to {}: {} ({}); the recipient has {has}",
            asked.id,
            asked.amount,
            asked.symbol,
            asked.to,
            shown.job.state.as_str(),
            shown.job.reason
        )
    };
    let nothing = has == RawAmount::ZERO;
    if has > asked.amount {
        verdict.add("paid_twice", words());
    } else if !nothing && has != asked.amount {
        verdict.add("paid_otherwise", words());
    }
    match shown.job.state {
        JobState::Confirmed => {
            verdict.confirmed += 1;
            if nothing {
                verdict.add("lost", words());
            }
        }
        JobState::FailedFinal => {
            verdict.failed += 1;
            // Without the figures, which are others for each.
            let reason: String = shown.job.reason.chars().filter(|one| !one.is_ascii_digit()).take(60).collect();
            *verdict.because.entry(reason).or_default() += 1;
            if !nothing {
                verdict.add("failed_and_paid", words());
            }
        }
        _ => verdict.add("stranded", words()),
    }
}

/// What `wallet_balances` says, by address and symbol.
async fn balances(db: &Db, net: &Net) -> Result<HashMap<(String, String), String>, Failure> {
    let mut booked: HashMap<(String, String), String> = HashMap::new();
    let mut after = String::new();
    loop {
        let page = db.wallet_balances(&net.row, &after, 1_000).await?;
        let Some(last) = page.last() else { return Ok(booked) };
        after.clone_from(&last.address);
        booked.extend(page.into_iter().map(|one| ((one.address, one.asset.to_string()), one.raw)));
    }
}

/// What our wallets have by their entries, and what the chain says.
pub(super) async fn wallets_differ(db: &Db, net: &Net) -> Result<Vec<String>, Failure> {
    let booked = balances(db, net).await?;
    let places: Vec<(Address, &str, Coin)> = net
        .wallets
        .iter()
        .flat_map(|wallet| net.coins.iter().map(|one| (wallet.clone(), one.symbol, one.coin.clone())))
        .collect();
    let wanted: Vec<(Address, Coin)> = places.iter().map(|(wallet, _, coin)| (wallet.clone(), coin.clone())).collect();
    let mut differ = Vec::new();
    for ((wallet, symbol, _), has) in places.iter().zip(net.balances(&wanted).await?) {
        let books = booked.get(&(booked_as(wallet), (*symbol).to_owned())).cloned().unwrap_or_else(|| "0".to_owned());
        if books != has.to_string() {
            differ.push(format!("{wallet} on {} has {has} {symbol}, and its entries come to {books}", net.name));
        }
    }
    Ok(differ)
}

/// How entries name a wallet: on Bitcoin by its script.
fn booked_as(wallet: &Address) -> String {
    match wallet.script_bytes() {
        Some(script) => format!("script:{}", signer::digest::hex(&script)),
        None => wallet.to_string(),
    }
}

/// How nodes name what entries name so.
fn shown_as(net: &Net, booked: String) -> String {
    net.wallets.iter().find(|wallet| booked_as(wallet) == booked).map_or(booked, ToString::to_string)
}

/// All that somebody who walks the chains needs to know of this run.
pub(super) async fn record(db: &Db, nets: &[std::sync::Arc<Net>], asked: &AskedFor) -> Result<Value, Failure> {
    let withdrawals = customers::record(db, &asked.customers.wanted).await?;
    let asked = &asked.orders;
    let jobs = states(db).await?;
    let mut chains = Vec::new();
    for (number, net) in nets.iter().enumerate() {
        let mine = asked.iter().filter(|one| one.net == number);
        let of_customers = withdrawals.iter().filter(|(net, _)| *net == number).map(|(_, words)| words.clone());
        let told: Vec<Value> = mine
            .map(|one| {
                let state = jobs.get(&one.id).map_or("missing", |shown| shown.job.state.as_str());
                json!({
                    "job": one.id.to_string(), "to": one.to.to_string(), "asset": one.symbol,
                    "amount": one.amount.to_string(), "state": state,
                })
            })
            .chain(of_customers)
            .collect();
        let coins: Vec<Value> = net
            .coins
            .iter()
            .map(|one| {
                let contract = match &one.coin {
                    Coin::Native => Value::Null,
                    Coin::Token(token) => json!(token.to_string()),
                };
                json!({ "asset": one.symbol, "contract": contract })
            })
            .collect();
        let texts = |some: &[Address]| -> Vec<String> { some.iter().map(ToString::to_string).collect() };
        let wallets = texts(&net.wallets);
        let mut topups: BTreeMap<String, u64> = BTreeMap::new();
        let paid = jobs.values().filter(|one| one.job.kind == JobKind::GasTopup && one.chain == net.name);
        for one in paid.filter(|one| one.job.state == JobState::Confirmed) {
            *topups.entry(one.job.to.clone()).or_default() += 1;
        }
        let below = GAS_BELOW.into_iter().find(|(name, _)| *name == net.name).map_or("0", |(_, below)| below);
        let gas = json!({ "wallets": texts(&net.gas), "users": texts(&net.users), "below": below, "topups": topups });
        let entries = entries(db, net).await?;
        let balances = balances(db, net).await?;
        let balances: Vec<Value> = balances
            .into_iter()
            .map(|((address, asset), raw)| json!({ "wallet": shown_as(net, address), "asset": asset, "amount": raw }))
            .collect();
        chains.push(json!({
            "name": net.name, "kind": net.kind, "url": net.urls.first(), "login": super::ground::BITCOIN_USER, "coins": coins, "wallets": wallets, "gas": gas,
            "jobs": told, "entries": entries, "balances": balances,
        }));
    }
    Ok(json!({ "chains": chains }))
}

async fn entries(db: &Db, net: &Net) -> Result<Vec<Value>, Failure> {
    let (mut told, mut after) = (Vec::new(), 0);
    loop {
        let page = db.booked_entries(&net.row, after, 1_000).await?;
        let Some(last) = page.last() else { return Ok(told) };
        after = last.id;
        told.extend(page.into_iter().map(|one| {
            let transaction = one.transaction.map(|bytes| signer::digest::hex(&bytes));
            json!({
                "wallet": shown_as(net, one.address), "asset": one.asset, "transaction": transaction, "height": one.height,
                "place": one.place, "cause": one.cause, "amount": one.raw,
            })
        }));
    }
}
