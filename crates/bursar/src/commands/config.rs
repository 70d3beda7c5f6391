//! `bursar config check` reads the configuration as every other command would, shows the result, and looks at every file that
//! it names. `bursar config init` writes a configuration file to begin with.

use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use domain::Clock;
use serde_json::{Value, json};
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Failure};
use terminal::output::{say, table};
use toml::Table;

use super::Context;
use crate::chains;
use crate::config::DEFAULT_FILE;
use crate::paths;
use store::db::describe_url;

/// The file that shows every setting with its default and says what it is for.
const EXAMPLE: &str = include_str!("../../../../examples/bursar.toml");

pub fn check(context: &Context) -> CommandResult {
    let file = context.file.as_deref().map_or_else(|| "none (defaults)".to_owned(), |file| file.display().to_string());
    let mut config = context.config.clone();
    let settings = Table::try_from(&config)
        .map_err(|error| Failure::outside("INTERNAL", &error, "this is a bug in Bursar: please report it"))?;
    let files = paths::look(&settings)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    chains::check(&config.chains, &clock)?;
    // Without the password.
    config.database.url = describe_url(&config.database.url)?;
    if !config.alerts.webhook_url.is_empty() {
        // The addresses of chat services are secrets.
        config.alerts.webhook_url = "(set)".to_owned();
    }
    if !config.withdrawals.check_url.is_empty() {
        config.withdrawals.check_url = "(set)".to_owned();
    }
    // So may be the addresses of nodes, and their headers.
    for node in config.chains.values_mut().flat_map(|chain| &mut chain.nodes) {
        for text in std::iter::once(&mut node.url).chain(node.headers.values_mut()).filter(|text| !text.is_empty()) {
            "(set)".clone_into(text);
        }
    }
    let bug = |error| Failure::outside("INTERNAL", &error, "this is a bug in Bursar: please report it");
    let mut body = serde_json::to_value(&config).map_err(bug)?;
    body["ok"] = json!(true);
    body["file"] = json!(file);
    let mut rows = vec![vec!["file".to_owned(), file]];
    for (section, settings) in body.as_object().into_iter().flatten() {
        for (name, value) in settings.as_object().into_iter().flatten() {
            if section == "chains" {
                rows.push(vec![format!("{section}.{name}"), shown_chain(value)]);
                continue;
            }
            let value = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
            rows.push(vec![format!("{section}.{name}"), value]);
        }
    }
    let looked: Vec<_> = files
        .iter()
        .map(
            |found| json!({ "setting": found.setting, "path": found.path.display().to_string(), "state": found.state }),
        )
        .collect();
    body["files"] = json!(looked);
    context.print(&body, || {
        let settings = table(&["setting", "value"], &[], &rows);
        let cells: Vec<Vec<String>> = files
            .iter()
            .map(|found| vec![found.setting.clone(), found.path.display().to_string(), found.state.clone()])
            .collect();
        let files = table(&["named by", "file", "state"], &[], &cells);
        format!("{settings}\n\n{files}\n\nthe configuration is good")
    });
    Ok(())
}

/// How many of which nodes must agree.
fn shown_chain(settings: &Value) -> String {
    let nodes = settings["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names: Vec<&str> = nodes.iter().filter_map(|node| node["name"].as_str()).collect();
    match (names.as_slice(), settings["quorum"].as_u64()) {
        ([], _) => "no nodes: not followed".to_owned(),
        (names, Some(0) | None) => format!("more than half of {}", names.join(", ")),
        (names, Some(quorum)) => format!("{quorum} of {}", names.join(", ")),
    }
}

/// Writes the example where the configuration is looked for. A file that is there is somebody's, and stays.
pub fn init(file: Option<&Path>, json: bool) -> CommandResult {
    let file = file.unwrap_or(Path::new(DEFAULT_FILE));
    let (shown, example) = (file.display(), EXAMPLE.replace("examples/bursar.toml", &file.display().to_string()));
    // It may come to hold a password.
    let opened = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    let written = opened.and_then(|mut opened| {
        opened.write_all(example.as_bytes())?;
        opened.sync_all()
    });
    match written {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let message = format!("{shown} is there already, and is not overwritten");
            let hint = "bursar config check shows what it says; --config FILE names another one to write";
            return Err(Failure::bad_input("CONFIG_EXISTS", message, hint));
        }
        Err(error) => {
            let hint = "is the folder there, and may you write in it?";
            return Err(Failure::outside("FILE_NOT_WRITABLE", &error, format!("{shown}: {hint}")));
        }
    }
    if json {
        say(json!({ "file": shown.to_string() }));
    } else {
        say(format!("{shown}: every setting with its default, and what it is for\ncheck it with: bursar config check"));
    }
    Ok(())
}
