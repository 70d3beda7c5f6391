//! `bursar config check`: reads the configuration as every other command would, and shows the result.

use std::path::Path;

use serde_json::json;

use super::Context;
use crate::failure::Outcome;
use crate::output::table;
use store::db::describe_url;

pub fn check(context: &Context, file: Option<&Path>) -> Outcome {
    let file = file.map_or_else(|| "none (defaults)".to_owned(), |file| file.display().to_string());
    let database = &context.config.database;
    let url = describe_url(&database.url)?;
    let body = json!({
        "ok": true,
        "file": file,
        "database": {
            "url": url,
            "max_connections": database.max_connections,
            "acquire_timeout_ms": database.acquire_timeout_ms,
        },
    });
    context.print(&body, || {
        let row = |name: &str, value: String| vec![name.to_owned(), value];
        let rows = [
            row("file", file.clone()),
            row("database.url", url.clone()),
            row("database.max_connections", database.max_connections.to_string()),
            row("database.acquire_timeout_ms", database.acquire_timeout_ms.to_string()),
        ];
        format!("{}\nthe configuration is good", table(&["setting", "value"], &[], &rows))
    });
    Ok(())
}
