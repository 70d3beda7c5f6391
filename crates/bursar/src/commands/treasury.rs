//! `bursar treasury …`: what the house's own movements cost, what coins are worth, hot wallets beside their bands.

use custody::treasury::{GAS_RUNS_DRY, TreasuryStanding};
use domain::treasury::{BandAction, Price};
use domain::{Amount, Clock, Precision, RawAmount, Symbol};
use serde_json::{Value, json};
use store::Db;
use store::treasury::TreasuryKind;
use store::treasury::cost::{CostRow, GasWallet};
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Exit, Failure};
use terminal::output::table;

use super::Context;
use super::apply::Actor;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// What jobs have cost: by chain, kind and coin, beside what was expected, and for what comes home
    ///
    /// cost_bps is what it cost for each ten thousand units of value, by the newest prices (bursar treasury price).
    Costs {
        /// Only the last so many hours
        #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(i64).range(1..=24 * 366))]
        hours: i64,
    },
    /// Say what a whole coin is worth, in a unit that all prices share; without a price, show all of them
    ///
    /// Rules with most_cost_bps compare what a sweep costs with what it brings by these. The newest price counts; the others stay.
    Price {
        #[arg(value_name = "ASSET", requires = "price")]
        asset: Option<String>,
        /// Such as 0.25, with up to six decimals
        #[arg(value_name = "PRICE")]
        price: Option<String>,
        #[command(flatten)]
        actor: Actor,
    },
    /// Hot wallets beside their bands, and what would bring each back within: a refill is proposed to people, a surplus leaves by itself
    Bands,
    /// Gas wallets: what each has, what the last day used, and how long that will do
    ///
    /// Ends with 1 if one of them runs dry within a day, or cannot pay what waits.
    Gas,
}

/// Prices have six decimals.
const MICROS: u8 = 6;

pub async fn run(context: &Context, command: &Command) -> CommandResult {
    let db = context.open().await?;
    let done = match command {
        Command::Costs { hours } => costs(context, &db, *hours).await,
        Command::Price { asset: Some(asset), price: Some(price), actor } => {
            set_price(context, &db, asset, price, &actor.name()).await
        }
        Command::Price { .. } => prices(context, &db).await,
        Command::Bands => bands(context, &db).await,
        Command::Gas => gas(context, &db).await,
    };
    db.close().await;
    done
}

/// Lines of JSON as a table with these columns; those that are numbers on the right.
fn lines(columns: &[&str], right: &[usize], lines: &[Value]) -> String {
    let text = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let rows: Vec<Vec<String>> =
        lines.iter().map(|one| columns.iter().map(|column| text(&one[*column])).collect()).collect();
    table(columns, right, &rows)
}

/// Millionths as a decimal.
fn micros(value: u128) -> String {
    format!("{}.{:02}", value / 1_000_000, value % 1_000_000 / 10_000)
}

async fn costs(context: &Context, db: &Db, hours: i64) -> CommandResult {
    let since = SystemClock.now().plus_micros(-hours * 3_600 * 1_000_000);
    let TreasuryStanding { costs, prices, .. } = TreasuryStanding::since(db, since).await?;
    let cost = |row: &CostRow| {
        let decimals = row.fee_coin.decimals;
        let each = row.fee.checked_div(row.jobs);
        json!({
            "chain": row.chain, "kind": row.kind.as_str(), "asset": row.coin.symbol, "jobs": row.jobs,
            "moved": row.moved.in_coins(row.coin.decimals), "fee_coin": row.fee_coin.symbol, "fee": row.fee.in_coins(decimals),
            "fee_per_job": each.map(|each| each.in_coins(decimals)), "expected": row.expected.map(|expected| expected.in_coins(decimals)),
            "cost_bps": row.cost_bps(&prices),
        })
    };
    let rows: Vec<Value> = costs.rows.iter().map(cost).collect();
    let swept: Vec<Value> = costs
        .swept(&prices)
        .iter()
        .map(|one| {
            let (value, cost) = (micros(one.value_micros), micros(one.cost_micros));
            json!({ "chain": one.chain, "swept_value": value, "gas_and_sweeps": cost, "cost_bps": one.cost_bps })
        })
        .collect();
    context.print(&json!({ "hours": hours, "costs": rows, "swept": swept }), || {
        if rows.is_empty() {
            return format!("nothing was sent in the last {hours} hours");
        }
        let columns =
            ["chain", "kind", "asset", "jobs", "moved", "fee_coin", "fee", "fee_per_job", "expected", "cost_bps"];
        let table = lines(&columns, &[3, 4, 6, 7, 8, 9], &rows);
        if swept.is_empty() {
            return table;
        }
        let columns = ["chain", "swept_value", "gas_and_sweeps", "cost_bps"];
        format!("{table}\n\n{}", lines(&columns, &[1, 2, 3], &swept))
    });
    Ok(())
}

async fn gas(context: &Context, db: &Db) -> CommandResult {
    let standing = TreasuryStanding::read(db, SystemClock.now()).await?;
    let wallet = |one: &GasWallet| {
        let (decimals, supply) = (one.coin.decimals, &one.supply);
        let next = match supply.lasts_minutes() {
            _ if supply.left().is_none() => "jobs wait that it cannot pay".to_owned(),
            None => "nothing was used".to_owned(),
            Some(minutes) if supply.runs_dry() => format!("runs dry in {} h {} min", minutes / 60, minutes % 60),
            Some(minutes) => format!("lasts for {} days", minutes / 60 / 24),
        };
        json!({
            "chain": one.chain, "group": one.group, "index": one.index, "address": one.address, "coin": one.coin.symbol,
            "has": supply.has.in_coins(decimals), "leaving": supply.leaving.in_coins(decimals), "used": supply.used.in_coins(decimals),
            "lasts_minutes": supply.lasts_minutes(), "next": next,
        })
    };
    let wallets: Vec<Value> = standing.gas.iter().map(wallet).collect();
    let body = json!({ "wallets": wallets });
    context.print(&body, || {
        if wallets.is_empty() {
            return "there are no gas wallets: [[operation_wallets]] in the treasury file".to_owned();
        }
        lines(&["chain", "address", "coin", "has", "leaving", "used", "next"], &[3, 4, 5], &wallets)
    });
    let dry = standing.dry().count();
    if dry == 0 {
        return Ok(());
    }
    let message = format!("{dry} gas wallets have less than they gave in the last day");
    Err(Failure {
        code: GAS_RUNS_DRY.into(),
        messages: vec![message],
        hint: "send coins to the addresses above".into(),
        exit: Exit::Found,
    })
}

async fn set_price(context: &Context, db: &Db, asset: &str, price: &str, actor: &str) -> CommandResult {
    let symbol: Symbol = asset
        .parse()
        .map_err(|_| Failure::bad_input("INVALID_ASSET", format!("{asset:?} is no asset"), "write it like USDT"))?;
    let refuse = || {
        let message = format!("{price:?} is no price");
        Failure::bad_input("INVALID_AMOUNT", message, "a decimal above zero with up to six decimals, such as 0.25")
    };
    let precision = Precision::new(MICROS).ok_or_else(refuse)?;
    let micros = Amount::parse(price, precision).ok().filter(|price| price.is_positive()).ok_or_else(refuse)?;
    let micros = u64::try_from(micros.units()).map_err(|_| refuse())?;
    if !db.set_price(&symbol, Price(micros), actor, SystemClock.now()).await? {
        let message = format!("there is no asset {symbol}");
        return Err(Failure::bad_input(
            "INVALID_ASSET",
            message,
            "add it under [assets] in the treasury file, and apply it",
        ));
    }
    context.print(&json!({ "asset": symbol.to_string(), "price": price, "actor": actor }), || {
        format!("{symbol} is worth {price}, says {actor}")
    });
    Ok(())
}

async fn prices(context: &Context, db: &Db) -> CommandResult {
    let rows = db.prices().await?;
    let shown = |price: Price| RawAmount::from_u256(price.0.to_string().parse().unwrap_or_default()).in_coins(MICROS);
    let prices: Vec<Value> = rows
        .iter()
        .map(|row| {
            let (asset, price) = (row.symbol.to_string(), shown(row.price));
            json!({ "asset": asset, "price": price, "actor": row.actor, "at": row.at.to_string() })
        })
        .collect();
    context.print(&json!({ "prices": prices }), || {
        if rows.is_empty() {
            return "nobody has said what anything is worth: bursar treasury price USDT 1".to_owned();
        }
        let line = |row: &store::treasury::price::PriceRow| {
            vec![row.symbol.to_string(), shown(row.price), row.actor.clone(), row.at.to_string()]
        };
        table(&["asset", "price", "says", "at"], &[1], &rows.iter().map(line).collect::<Vec<_>>())
    });
    Ok(())
}

async fn bands(context: &Context, db: &Db) -> CommandResult {
    let mut rows_of_all = Vec::new();
    for name in db.chain_names().await? {
        let Some(chain) = db.chain(&name).await? else { continue };
        let Some(settled) = db.settled_height(&chain).await? else { continue };
        let rows = db.hot_wallets(&chain, settled).await?;
        let addresses: Vec<String> = rows.iter().map(|row| row.address.clone()).collect();
        let now = SystemClock.now();
        let formers = db.formers(chain.id, &addresses, settled, now).await?;
        for row in rows {
            let Some(listing) = chain.listing(row.listing) else { continue };
            let coin = row.hot_coin(&formers, now);
            let job = [TreasuryKind::Refill, TreasuryKind::Surplus].into_iter().find_map(|kind| {
                let job = row.former(&formers, kind).filter(|job| job.former.is_busy(now))?;
                Some(format!("its {} is not over: {}", kind.as_str(), job.reason))
            });
            let shown = |amount: RawAmount| amount.in_coins(listing.form.decimals());
            let next = match coin.decide() {
                _ if coin.stopped => {
                    format!("nothing goes there: it is stopped: {}", row.stopped.as_deref().unwrap_or_default())
                }
                _ if coin.busy => job.unwrap_or_default(),
                Some(BandAction::Refill(amount)) => {
                    format!("{} are to come from the treasury, if people approve it", shown(amount))
                }
                Some(BandAction::Surplus(amount)) => format!("{} leaves to the treasury", shown(amount)),
                None => "within".to_owned(),
            };
            rows_of_all.push(json!({
                "chain": chain.name.to_string(), "address": row.address, "asset": listing.symbol.to_string(),
                "floor": shown(row.band.floor), "target": shown(row.band.target), "ceiling": shown(row.band.ceiling),
                "spendable": shown(coin.spendable), "coming": shown(coin.coming), "next": next,
            }));
        }
    }
    context.print(&json!({ "bands": rows_of_all }), || {
        if rows_of_all.is_empty() {
            return "no hot wallet has a band: [[hot_bands]] in the treasury file".to_owned();
        }
        let columns = ["chain", "address", "asset", "floor", "target", "ceiling", "spendable", "coming", "next"];
        lines(&columns, &[3, 4, 5, 6, 7], &rows_of_all)
    });
    Ok(())
}
