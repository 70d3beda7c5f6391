//! `bursar chain status`.

use std::collections::BTreeMap;

use domain::{Availability, Chain};
use serde_json::{Value, json};
use store::Db;
use store::catalog::{Catalog, read_catalog};
use store::entry::ChainStanding;
use terminal::failure::CommandResult;
use terminal::output::table;

use super::super::Context;
use crate::chains::unknown;
use crate::config::ChainNodes;

/// No more findings are counted: whoever has a thousand has trouble enough.
const FINDINGS: i64 = 1_000;

pub async fn run(context: &Context, db: &Db) -> CommandResult {
    let catalog = read_catalog(&mut db.read().await?).await?;
    let named = |name: &&String| catalog.chains.keys().any(|chain| chain.as_str() == name.as_str());
    if let Some(stranger) = context.config.chains.keys().find(|name| !named(name)) {
        return Err(unknown(stranger, &catalog));
    }
    let mut findings: BTreeMap<String, u64> = BTreeMap::new();
    for finding in db.open_findings(0, FINDINGS).await? {
        *findings.entry(finding.chain).or_default() += 1;
    }
    let mut open: BTreeMap<String, BTreeMap<String, i64>> = BTreeMap::new();
    for (chain, state, count) in db.count_deposits().await? {
        open.entry(chain).or_default().insert(state, count);
    }
    let mut chains = Vec::new();
    for chain in catalog.chains.values() {
        let standing = match db.chain(&chain.name).await? {
            Some(row) => db.chain_standing(&row).await?,
            None => None,
        };
        let mut shown = chain_json(chain, context.config.chains.get(chain.name.as_str()), &catalog);
        shown["reading"] = standing.as_ref().map_or(Value::Null, standing_json);
        shown["open_deposits"] = json!(open.get(chain.name.as_str()).cloned().unwrap_or_default());
        shown["findings"] = json!(findings.get(chain.name.as_str()).copied().unwrap_or(0));
        chains.push(shown);
    }
    context.print(&json!({ "chains": chains }), || match chains.as_slice() {
        [] => "no chains: bursar apply brings them in".to_owned(),
        chains => chains_text(chains),
    });
    Ok(())
}

fn chain_json(chain: &Chain, nodes: Option<&ChainNodes>, catalog: &Catalog) -> Value {
    let here = catalog.listings.values().filter(|listing| listing.chain == chain.name);
    let assets: Vec<&str> =
        here.filter(|one| one.status == Availability::Active).map(|one| one.asset.as_str()).collect();
    let (count, quorum) = nodes.map_or((0, 0), |nodes| (nodes.nodes.len(), quorum_of(nodes)));
    json!({
        "chain": chain.name.as_str(), "kind": chain.kind.as_str(), "network": chain.network,
        "status": chain.status.as_str(), "confirmations": chain.confirmations,
        "final_confirmations": chain.final_confirmations, "followed": count > 0, "nodes": count, "quorum": quorum,
        "assets": assets,
    })
}

fn standing_json(standing: &ChainStanding) -> Value {
    json!({
        "first": standing.first_height, "read": standing.scanned.map(|(height, _)| height),
        "proven": standing.proven_height, "worker": standing.worker,
        "lease_until": standing.lease_until.to_string(), "halted": standing.halted,
        "reads_again": standing.rescan.map(|(from, to)| json!({ "from": from, "to": to })),
    })
}

/// More than half, where nothing is said.
fn quorum_of(nodes: &ChainNodes) -> usize {
    match usize::try_from(nodes.quorum) {
        Ok(0) | Err(_) => nodes.nodes.len() / 2 + usize::from(!nodes.nodes.is_empty()),
        Ok(quorum) => quorum,
    }
}

fn chains_text(chains: &[Value]) -> String {
    let text = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let nodes = |chain: &Value| match chain["followed"].as_bool() {
        Some(true) => format!("{} of {}", chain["quorum"], chain["nodes"]),
        Some(false) | None => "not followed".to_owned(),
    };
    let list = |value: &Value| {
        let names: Vec<&str> = value.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        names.join(", ")
    };
    let row = |chain: &Value| {
        let depths = format!("{}, {}", chain["confirmations"], chain["final_confirmations"]);
        let reading = &chain["reading"];
        vec![
            text(&chain["chain"]),
            format!("{} {}", text(&chain["kind"]), text(&chain["network"])),
            text(&chain["status"]),
            nodes(chain),
            depths,
            text(&reading["read"]),
            text(&reading["proven"]),
            text(&chain["findings"]),
            list(&chain["assets"]),
        ]
    };
    let heads = ["chain", "network", "status", "nodes", "credited, final at", "read", "proven", "findings", "assets"];
    let mut shown = table(&heads, &[5, 6, 7], &chains.iter().map(row).collect::<Vec<_>>());
    for chain in chains.iter().filter(|chain| chain["reading"]["halted"].is_string()) {
        shown.push_str(&format!("\n{} is halted: {}", text(&chain["chain"]), text(&chain["reading"]["halted"])));
    }
    for chain in chains.iter().filter(|chain| chain["reading"]["reads_again"].is_object()) {
        let blocks = &chain["reading"]["reads_again"];
        shown.push_str(&format!(
            "\n{} reads blocks {} to {} again",
            text(&chain["chain"]),
            blocks["from"],
            blocks["to"]
        ));
    }
    shown
}
