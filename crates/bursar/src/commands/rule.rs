//! `bursar rule …`: the rules that bring gas to users' addresses and their coins home, and what they would do.

use std::sync::Arc;

use custody::treasury::Decided;
use domain::treasury::{CoinId, TreasuryAction};
use domain::{Clock, RawAmount};
use serde_json::{Value, json};
use store::Db;
use store::catalog::{Catalog, read_catalog};
use store::entry::{ChainRow, ListingId};
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Failure};
use terminal::output::table;

use super::Context;
use super::run::{evaluate, rules_roles};
use crate::pins;
use crate::roles::rules::RulesRole;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List the rules of the treasury file, as the database has them
    List,
    /// Evaluate rules now: make the jobs that they ask for, or only show what they would do and why
    ///
    /// A decision rests on coins in final blocks, and on jobs that are final too. `bursar run rules` does the same for ever.
    Eval(EvalArguments),
}

#[derive(Debug, clap::Args)]
pub struct EvalArguments {
    /// Show every decision with its reason, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Only this address; with --dry-run
    #[arg(long, value_name = "ADDRESS", requires = "dry_run")]
    wallet: Option<String>,
    /// A chain that has nodes in the configuration; give several, or none for all of them
    #[arg(long, value_name = "NAME")]
    chain: Vec<String>,
}

pub async fn run(context: &Context, command: &Command) -> CommandResult {
    let db = context.open().await?;
    let done = match command {
        Command::List => list(context, &db).await,
        Command::Eval(arguments) => eval(context, &db, arguments).await,
    };
    db.close().await;
    done
}

async fn list(context: &Context, db: &Db) -> CommandResult {
    let catalog = read_catalog(&mut db.read().await?).await?;
    let shown = |catalog: &Catalog, asset: &domain::Symbol, amount: domain::Amount| {
        let precision = catalog.assets.get(asset).map(|asset| asset.precision);
        precision.map_or_else(|| amount.units().to_string(), |precision| amount.display(precision).to_string())
    };
    let gas = catalog.rules.gas.iter().map(|(name, rule)| {
        let threshold = shown(&catalog, &rule.asset, rule.threshold);
        let amount = shown(&catalog, &rule.asset, rule.amount);
        json!({
            "rule": name, "kind": "gas_topup", "chain": rule.chain.to_string(), "asset": rule.asset.to_string(),
            "condition": format!("{} {} {threshold}", rule.asset, rule.operator), "does": format!("sends {amount} {}", rule.asset),
            "priority": rule.priority, "cool_down_s": rule.cool_down_s, "most_per_hour": rule.most_per_hour, "active": rule.active,
        })
    });
    let sweeps = catalog.rules.sweeps.iter().map(|(name, rule)| {
        let threshold = shown(&catalog, &rule.asset, rule.threshold);
        let does = match rule.most_cost_bps {
            Some(bps) => format!("brings it home for {}.{:02} % of its value at most", bps / 100, bps % 100),
            None => "brings it home".to_owned(),
        };
        json!({
            "rule": name, "kind": "consolidation", "chain": rule.chain.to_string(), "asset": rule.asset.to_string(),
            "condition": format!("{} {} {threshold}", rule.asset, rule.operator), "does": does,
            "priority": rule.priority, "cool_down_s": rule.cool_down_s, "most_per_hour": rule.most_per_hour, "active": rule.active,
        })
    });
    let rules: Vec<Value> = gas.chain(sweeps).collect();
    context.print(&json!({ "rules": rules }), || {
        if rules.is_empty() {
            return "there are no rules: [gas_topup_rules.x] and [consolidation_rules.x] in the treasury file"
                .to_owned();
        }
        let rows: Vec<Vec<String>> = rules
            .iter()
            .map(|rule| {
                let columns = [
                    "rule",
                    "kind",
                    "chain",
                    "condition",
                    "does",
                    "priority",
                    "cool_down_s",
                    "most_per_hour",
                    "active",
                ];
                columns.iter().map(|column| text(&rule[*column])).collect()
            })
            .collect();
        let heads = ["rule", "kind", "chain", "if", "then", "priority", "cool-down", "per hour", "active"];
        table(&heads, &[5, 6, 7], &rows)
    });
    Ok(())
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

async fn eval(context: &Context, db: &Db, arguments: &EvalArguments) -> CommandResult {
    let pinned = pins::pinned(&context.config, db).await?;
    pins::check(&context.config, db, &pinned).await?;
    let mut roles = rules_roles(context, db, &pinned).await?;
    if let Some(name) =
        arguments.chain.iter().find(|name| !roles.iter().any(|role| role.base.name.as_str() == name.as_str()))
    {
        let message = format!("there are no rules for a chain {name}");
        return Err(Failure::bad_input("INVALID_CHAIN", message, "one that has nodes in the configuration"));
    }
    roles.retain(|role| {
        arguments.chain.is_empty() || arguments.chain.iter().any(|name| name == role.base.name.as_str())
    });
    let ids = roles.first().map(|role| Arc::clone(&role.ids));
    let done = if arguments.dry_run {
        dry_run(context, &roles, arguments.wallet.as_deref()).await
    } else {
        evaluate(context, &roles).await
    };
    if let Some(ids) = ids {
        ids.give_back(db).await?;
    }
    done
}

async fn dry_run(context: &Context, roles: &[RulesRole], wallet: Option<&str>) -> CommandResult {
    let (mut decisions, mut waiting) = (Vec::new(), Vec::new());
    for role in roles {
        let make = || None;
        let outside = |error: custody::treasury::TreasuryError| {
            Failure::outside(error.code(), &error, "bursar chain check shows what the nodes of the chain say")
        };
        let worker = role.worker(&make).map_err(outside)?;
        let dry = worker.dry_run(wallet, SystemClock.now()).await.map_err(outside)?;
        decisions.extend(dry.decided.iter().flat_map(|one| shown(&role.base.row, one)));
        let chain = role.base.row.name.to_string();
        waiting.extend(dry.waits.map(|reason| json!({ "chain": chain, "reason": reason })));
    }
    if decisions.is_empty()
        && waiting.is_empty()
        && let Some(wallet) = wallet
    {
        let hint = "bursar wallet list shows users' addresses; it has nothing yet, or is none of them";
        return Err(Failure::bad_input("WALLET_NOT_FOUND", format!("{wallet} has no balance of a user's"), hint));
    }
    context.print(&json!({ "decisions": decisions, "waits": waiting }), || {
        let wait = |one: &Value| format!("{}: nothing is decided: {}", text(&one["chain"]), text(&one["reason"]));
        let mut lines: Vec<String> = waiting.iter().map(wait).collect();
        if decisions.is_empty() {
            if lines.is_empty() {
                lines.push("no rule matches anything".to_owned());
            }
            return lines.join("\n");
        }
        let columns = ["chain", "address", "asset", "has", "decision", "reason"];
        let rows: Vec<Vec<String>> =
            decisions.iter().map(|one| columns.iter().map(|column| text(&one[*column])).collect()).collect();
        lines.push(table(&columns, &[3], &rows));
        lines.join("\n")
    });
    Ok(())
}

/// An amount in whole coins.
fn coins(chain: &ChainRow, coin: CoinId, amount: RawAmount) -> String {
    amount.in_coins(chain.listing(ListingId(coin.0)).map_or(0, |listing| listing.form.decimals()))
}

/// A line for each coin of an address that something is decided of.
fn shown(chain: &ChainRow, decided: &Decided) -> Vec<Value> {
    let Decided { wallet, verdict } = decided;
    let line = |coin: CoinId, decision: String, reason: String| {
        let has = wallet.coins.iter().find(|one| one.listing.0 == coin.0).map_or(RawAmount::ZERO, |one| one.spendable);
        let symbol = chain.listing(ListingId(coin.0)).map(|listing| listing.symbol.to_string());
        json!({
            "chain": chain.name.to_string(), "address": wallet.address, "asset": symbol, "has": coins(chain, coin, has),
            "decision": decision, "reason": reason, "needs_gas": verdict.needs_gas.contains(&coin),
            "needs_consolidation": verdict.needs_consolidation.contains(&coin),
        })
    };
    let native = chain.native().map_or(CoinId(0), |listing| CoinId(listing.id.0));
    let reason = |cost: RawAmount| {
        let symbol = chain.native().map_or("", |listing| listing.symbol.as_str());
        format!("a rule asks for it; it will cost about {} {symbol}", coins(chain, native, cost))
    };
    let asked = |coin: CoinId, what: &str, amount: RawAmount, cost: RawAmount| {
        let symbol = chain.listing(ListingId(coin.0)).map_or("", |listing| listing.symbol.as_str());
        line(coin, format!("{what} of {} {symbol}", coins(chain, coin, amount)), reason(cost))
    };
    let acted = verdict.actions.iter().map(|action| match action {
        TreasuryAction::TopUp { amount, expected_cost, .. } => asked(native, "gas top-up", *amount, *expected_cost),
        TreasuryAction::Sweep { coin, amount, expected_cost, .. } => asked(*coin, "sweep", *amount, *expected_cost),
    });
    let waits = verdict.waits.iter().map(|(coin, why)| line(*coin, "waits".to_owned(), why.to_string()));
    let mut lines: Vec<Value> = acted.chain(waits).collect();
    if lines.is_empty() {
        let nothing = |coin: &store::treasury::pass::EvaluatedCoin| {
            line(CoinId(coin.listing.0), "nothing".to_owned(), "no rule matches it".to_owned())
        };
        lines.extend(wallet.coins.iter().map(nothing));
    }
    lines
}
