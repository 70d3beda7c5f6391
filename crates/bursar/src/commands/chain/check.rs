//! `bursar chain check`: every node is asked, and what they say is held against each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use chain::{Feature, Has, NodeReport};
use domain::{Chain, ChainName, Clock};
use serde_json::{Value, json};
use store::Db;
use store::catalog::{Catalog, read_catalog};
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Exit, Failure};
use terminal::output::table;

use super::super::Context;
use super::judge::{BALANCES, INTERNAL, NodeView, RECEIPTS, SOLIDIFIED, TRACES, Verdict, Wanted, judge};
use crate::chains::{of_catalog, unknown};
use crate::config::{ChainNodes, Config};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Only this chain
    chain: Option<String>,
}

pub async fn run(context: &Context, db: &Db, arguments: &Arguments) -> CommandResult {
    let catalog = read_catalog(&mut db.read().await?).await?;
    let wanted = wanted_chains(&context.config, &catalog, arguments.chain.as_deref())?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let mut checked = Vec::new();
    for (row, nodes) in &wanted {
        let only = Config { chains: [(row.name.to_string(), (*nodes).clone())].into(), ..Config::default() };
        // It also refuses what the chain's kind does not allow.
        let Some(followed) = of_catalog(&only, &catalog, &clock)?.pop() else { continue };
        let surveyed = followed.client.shared().survey().await;
        let surveyed = surveyed.map_err(|error| Failure::outside(error.code(), &error, "are the nodes running?"))?;
        let views: Vec<NodeView> = surveyed.into_iter().map(view).collect();
        let traces = followed.internal_transfers;
        let mut here = catalog.listings.values().filter(|listing| listing.chain == row.name);
        let tokens = here.any(|listing| listing.form.contract().is_some());
        let lag_blocks = nodes.lag_blocks.into();
        let rules = Wanted { quorum: followed.quorum, proof: followed.proof, lag_blocks, traces, tokens };
        checked.push((row, rules, judge(rules, &views), views));
    }
    let body = json!({ "chains": checked.iter().map(|(row, rules, verdict, views)| {
        chain_json(row, *rules, verdict, views)
    }).collect::<Vec<_>>() });
    context.print(&body, || match checked.as_slice() {
        [] => "no chain has nodes: nothing is followed; see chains in examples/bursar.toml".to_owned(),
        checked => {
            let shown = checked.iter().map(|(row, rules, verdict, views)| chain_text(row, *rules, verdict, views));
            shown.collect::<Vec<_>>().join("\n\n")
        }
    });
    let failed = checked.iter().find_map(|(row, _, verdict, _)| Some((row, verdict, verdict.code?)));
    match failed {
        None => Ok(()),
        Some((row, verdict, code)) => Err(Failure {
            code: code.into(),
            messages: vec![format!("{}: {}", row.name, verdict.words.first().cloned().unwrap_or_default())],
            hint: "the table says what each node answered".to_owned(),
            exit: Exit::Outside,
        }),
    }
}

/// All chains that have nodes, or the one that was named.
fn wanted_chains<'a>(
    config: &'a Config,
    catalog: &'a Catalog,
    named: Option<&str>,
) -> Result<Vec<(&'a Chain, &'a ChainNodes)>, Failure> {
    let row = |name: &str| {
        let found = name.parse::<ChainName>().ok().and_then(|name| catalog.chains.get(&name));
        found.ok_or_else(|| unknown(name, catalog))
    };
    // A name in the configuration that is no chain's is an error whatever was asked for.
    let all = config.chains.iter().map(|(name, nodes)| Ok((row(name)?, nodes)));
    let mut all = all.collect::<Result<Vec<_>, Failure>>()?;
    if let Some(name) = named {
        let wanted = row(name)?;
        all.retain(|(row, nodes)| row.name == wanted.name && !nodes.nodes.is_empty());
        if all.is_empty() {
            let message = format!("{name} has no nodes in the configuration: it is not followed");
            let hint = format!("add them under [[chains.{name}.nodes]]; see examples/bursar.toml");
            return Err(Failure::bad_input("CONFIG_INVALID", message, hint));
        }
    }
    Ok(all)
}

fn view(report: NodeReport) -> NodeView {
    let other = report.network.filter(|_| !report.right_network);
    let features = report.features.into_iter().map(|(feature, has)| (feature_name(feature), feature_has(has)));
    NodeView {
        name: report.endpoint,
        other_network: other,
        failure: report.error,
        head: report.height,
        lag: report.lag,
        agrees: report.agrees,
        features: features.collect(),
        latency_ms: report.latency_ms,
    }
}

fn feature_name(feature: Feature) -> String {
    match feature {
        Feature::ReceiptsByBlock => RECEIPTS.to_owned(),
        Feature::Traces => TRACES.to_owned(),
        Feature::InternalTransactions => INTERNAL.to_owned(),
        Feature::BalancesByBlockHash => BALANCES.to_owned(),
        Feature::TransactionIndex => "transaction index".to_owned(),
        Feature::BlocksFrom(0) => "all blocks".to_owned(),
        Feature::BlocksFrom(height) => format!("blocks from {height}"),
        Feature::SolidifiedState => SOLIDIFIED.to_owned(),
    }
}

const fn feature_has(has: Has) -> Option<bool> {
    match has {
        Has::Yes => Some(true),
        Has::No => Some(false),
        Has::Unknown => None,
    }
}

fn chain_json(row: &Chain, rules: Wanted, verdict: &Verdict, views: &[NodeView]) -> Value {
    let node = |view: &NodeView| {
        json!({
            "name": view.name, "state": view.state(rules.lag_blocks), "network": view.other_network, "head": view.head,
            "lag": view.lag, "agrees": view.agrees, "latency_ms": view.latency_ms, "failure": view.failure,
            "features": view.features.iter().cloned().collect::<BTreeMap<_, _>>(),
        })
    };
    json!({
        "chain": row.name.as_str(), "status": row.status.as_str(), "network": row.network, "quorum": rules.quorum,
        "proof": rules.proof.as_str(), "credits": verdict.credits, "code": verdict.code, "says": verdict.words,
        "nodes": views.iter().map(node).collect::<Vec<_>>(),
    })
}

fn chain_text(row: &Chain, rules: Wanted, verdict: &Verdict, views: &[NodeView]) -> String {
    let number = |value: Option<u64>| value.map_or_else(String::new, |value| value.to_string());
    let rows: Vec<Vec<String>> = views
        .iter()
        .map(|view| {
            let said = view.other_network.as_ref().map(|found| format!("it serves {found}"));
            let can = view.features.iter().filter(|(_, there)| *there == Some(true)).map(|(name, _)| name.as_str());
            let can = can.collect::<Vec<_>>().join(", ");
            vec![
                view.name.clone(),
                view.state(rules.lag_blocks).to_owned(),
                number(view.head),
                number(view.lag),
                number(view.latency_ms),
                view.failure.clone().or(said).unwrap_or(can),
            ]
        })
        .collect();
    let nodes = table(&["node", "state", "head", "behind", "ms", "says"], &[2, 3, 4], &rows);
    let suspended = if row.status == domain::Availability::Suspended { " (suspended)" } else { "" };
    let head =
        format!("{}{suspended}: {} of {}, proof by {}", row.name, rules.quorum, views.len(), rules.proof.as_str());
    format!("{head}\n{nodes}\n{}", verdict.words.join("\n"))
}
