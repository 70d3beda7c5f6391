//! `bursar checkpoint`: writes down the system accounts' balances, so that reading them stays fast.

use domain::Clock;
use serde_json::json;
use terminal::clock::SystemClock;
use terminal::failure::CommandResult;

use super::Context;

pub async fn run(context: &Context) -> CommandResult {
    let db = context.open().await?;
    let through = db.checkpoint(SystemClock.now()).await?;
    context.print(&json!({ "through_movement": through }), || {
        format!("the system accounts' balances are written down through movement {through}")
    });
    Ok(())
}
