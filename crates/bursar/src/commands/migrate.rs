//! `bursar migrate`: makes the schema, or brings it up to date.

use domain::Clock;
use serde_json::json;
use store::db::describe_url;
use store::{Db, Options};
use terminal::clock::SystemClock;
use terminal::failure::CommandResult;

use super::Context;

pub async fn run(context: &Context) -> CommandResult {
    let options = Options { create: true, ..context.config.store_options() };
    let db = Db::connect(&context.config.database.url, &options).await?;
    let applied = db.migrate(SystemClock.now()).await?;
    db.close().await;
    let names: Vec<&str> = applied.iter().map(|migration| migration.name).collect();
    let database = describe_url(&context.config.database.url)?;
    context.print(&json!({ "database": database, "applied": names }), || match names.as_slice() {
        [] => format!("{database}: up to date"),
        names => format!("{database}: applied {}", names.join(", ")),
    });
    Ok(())
}
