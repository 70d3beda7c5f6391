//! `bursar config check`: reads the configuration as every other command would, and shows the result.

use serde_json::json;
use terminal::failure::{CommandResult, Failure};
use terminal::output::table;

use super::Context;
use store::db::describe_url;

pub fn check(context: &Context) -> CommandResult {
    let file = context.file.as_deref().map_or_else(|| "none (defaults)".to_owned(), |file| file.display().to_string());
    let mut config = context.config.clone();
    // Without the password.
    config.database.url = describe_url(&config.database.url)?;
    if !config.alerts.webhook_url.is_empty() {
        // The addresses of chat services are secrets.
        config.alerts.webhook_url = "(set)".to_owned();
    }
    let bug = |error| Failure::outside("INTERNAL", &error, "this is a bug in Bursar: please report it");
    let mut body = serde_json::to_value(&config).map_err(bug)?;
    body["ok"] = json!(true);
    body["file"] = json!(file);
    context.print(&body, || {
        let mut rows = vec![vec!["file".to_owned(), file.clone()]];
        for (section, settings) in body.as_object().into_iter().flatten() {
            for (name, value) in settings.as_object().into_iter().flatten() {
                let value = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
                rows.push(vec![format!("{section}.{name}"), value]);
            }
        }
        format!("{}\nthe configuration is good", table(&["setting", "value"], &[], &rows))
    });
    Ok(())
}
