//! `bursar transfer stop|resume|stops`: assets whose transfers from SPOT to FUNDING are stopped.

use domain::{Approval, Clock};
use serde_json::{Value, json};
use store::catalog::read_assets;
use store::transfer::{Stop, read_stops};
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Failure};
use terminal::output::table;

use super::Context;
use super::adjust::known_asset;

/// How many are listed.
const LISTED: i64 = 100;

pub async fn stop(context: &Context, asset: &str, actor: &str, reason: &str) -> CommandResult {
    let db = context.open().await?;
    let (id, asset) = known_asset(&db, asset).await?;
    let first = db.stop_asset(id, actor, reason, SystemClock.now()).await?;
    db.close().await;
    context.print(&json!({ "asset": asset.symbol.as_str(), "stopped": true, "was_stopped": !first }), || {
        let how = if first { "stopped" } else { "stopped already, and stays so" };
        format!("{}: SPOT to FUNDING is {how}", asset.symbol)
    });
    Ok(())
}

pub async fn resume(context: &Context, asset: &str, people: &Approval) -> CommandResult {
    let db = context.open().await?;
    let (id, asset) = known_asset(&db, asset).await?;
    let resumed = db.resume_asset(id, people, SystemClock.now()).await?;
    db.close().await;
    if !resumed {
        let message = format!("{} is not stopped", asset.symbol);
        return Err(Failure::bad_input("TRANSFER_NOT_STOPPED", message, "bursar transfer stops"));
    }
    context.print(&json!({ "asset": asset.symbol.as_str(), "stopped": false }), || {
        format!(
            "{}: SPOT to FUNDING goes on; the next check stops it again if the engine and the books differ",
            asset.symbol
        )
    });
    Ok(())
}

pub async fn list(context: &Context) -> CommandResult {
    let db = context.open().await?;
    let mut tx = db.read().await?;
    let assets = read_assets(&mut tx).await?;
    let stops = read_stops(&mut tx, LISTED).await?;
    drop(tx);
    db.close().await;
    let symbol = |stop: &Stop| assets.get(&stop.asset).map_or_else(|| "?".to_owned(), |asset| asset.symbol.to_string());
    let body: Vec<Value> = stops
        .iter()
        .map(|stop| {
            let resumed = stop.resumed.as_ref().map(|(at, people)| {
                json!({
                    "at": at.to_string(), "actor": people.actor(), "second": people.second(),
                    "reason": people.reason(),
                })
            });
            json!({
                "asset": symbol(stop), "since": stop.since.to_string(), "stopped_by": stop.stopped_by,
                "reason": stop.reason, "resumed": resumed,
            })
        })
        .collect();
    context.print(&json!({ "stops": body }), || {
        if stops.is_empty() {
            return "nothing was ever stopped".to_owned();
        }
        let cells: Vec<Vec<String>> = stops
            .iter()
            .map(|stop| {
                let resumed = stop.resumed.as_ref();
                let (at, people) = resumed.map_or_else(
                    || ("still".to_owned(), String::new()),
                    |(at, people)| (at.to_string(), people.to_string()),
                );
                vec![symbol(stop), stop.since.to_string(), stop.stopped_by.clone(), stop.reason.clone(), at, people]
            })
            .collect();
        table(&["asset", "since", "by", "why", "resumed", "by whom"], &[], &cells)
    });
    Ok(())
}
