//! `bursar treasury …`: what the house's own movements cost, what coins are worth, hot wallets beside their bands.

use domain::treasury::{BandAction, Price};
use domain::{Amount, Clock, Precision, RawAmount, Symbol};
use serde_json::{Value, json};
use store::Db;
use store::treasury::TreasuryKind;
use store::treasury::cost::CostRow;
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Failure};
use terminal::output::table;

use super::Context;
use super::apply::Actor;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// What jobs have cost: by chain, kind and coin, beside what was expected
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
    };
    db.close().await;
    done
}

/// An amount of chain units in whole coins, to the last digit.
fn whole(amount: impl std::fmt::Display, decimals: u8) -> String {
    let digits = amount.to_string();
    let decimals = usize::from(decimals);
    let padded = format!("{digits:0>width$}", width = decimals + 1);
    let (before, after) = padded.split_at(padded.len() - decimals);
    let after = after.trim_end_matches('0');
    if after.is_empty() { before.to_owned() } else { format!("{before}.{after}") }
}

async fn costs(context: &Context, db: &Db, hours: i64) -> CommandResult {
    let since = SystemClock.now().plus_micros(-hours * 3_600 * 1_000_000);
    let rows = db.costs(since).await?;
    // Fees are in the chain's own coin.
    let mut coins = std::collections::HashMap::new();
    for name in db.chain_names().await? {
        let row = db.chain(&name).await?;
        let native = row.as_ref().and_then(|row| row.native()).map(|one| (one.symbol.to_string(), one.form.decimals()));
        coins.insert(name.to_string(), native.unwrap_or_default());
    }
    let costs: Vec<Value> = rows
        .iter()
        .map(|row: &CostRow| {
            let (coin, decimals) = coins.get(&row.chain).cloned().unwrap_or_default();
            let each = row.fee.checked_div(row.jobs);
            json!({
                "chain": row.chain, "kind": row.kind.as_str(), "asset": row.asset, "jobs": row.jobs, "moved": whole(row.moved, row.decimals),
                "fee_coin": coin, "fee": whole(row.fee, decimals), "fee_per_job": each.map(|each| whole(each, decimals)),
                "expected": whole(row.expected, decimals),
            })
        })
        .collect();
    context.print(&json!({ "hours": hours, "costs": costs }), || {
        if costs.is_empty() {
            return format!("nothing was sent in the last {hours} hours");
        }
        let columns = ["chain", "kind", "asset", "jobs", "moved", "fee_coin", "fee", "fee_per_job", "expected"];
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let rows: Vec<Vec<String>> =
            costs.iter().map(|one| columns.iter().map(|column| text(&one[*column])).collect()).collect();
        table(&columns, &[3, 4, 6, 7, 8], &rows)
    });
    Ok(())
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
    let shown = |price: Price| whole(price.0, MICROS);
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
    let mut lines = Vec::new();
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
            let shown = |amount: RawAmount| whole(amount, listing.form.decimals());
            let next = match coin.decide() {
                _ if coin.busy => job.unwrap_or_default(),
                Some(BandAction::Refill(amount)) => {
                    format!("{} are to come from the treasury, if people approve it", shown(amount))
                }
                Some(BandAction::Surplus(amount)) => format!("{} leaves to the treasury", shown(amount)),
                None => "within".to_owned(),
            };
            lines.push(json!({
                "chain": chain.name.to_string(), "address": row.address, "asset": listing.symbol.to_string(),
                "floor": shown(row.band.floor), "target": shown(row.band.target), "ceiling": shown(row.band.ceiling),
                "spendable": shown(coin.spendable), "coming": shown(coin.coming), "next": next,
            }));
        }
    }
    context.print(&json!({ "bands": lines }), || {
        if lines.is_empty() {
            return "no hot wallet has a band: [[hot_bands]] in the treasury file".to_owned();
        }
        let columns = ["chain", "address", "asset", "floor", "target", "ceiling", "spendable", "coming", "next"];
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let rows: Vec<Vec<String>> =
            lines.iter().map(|one| columns.iter().map(|column| text(&one[*column])).collect()).collect();
        table(&columns, &[3, 4, 5, 6, 7], &rows)
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chain_units_are_shown_in_whole_coins_to_the_last_digit() {
        let raw = |text: &str| text.parse::<RawAmount>().unwrap();
        assert_eq!(whole(raw("0"), 6), "0");
        assert_eq!(whole(raw("1"), 6), "0.000001");
        assert_eq!(whole(raw("1500000"), 6), "1.5");
        assert_eq!(whole(raw("1000000000000000000"), 18), "1");
        assert_eq!(whole(raw("12"), 0), "12");
    }
}
