//! What operators are told: alerts and the log.

use serde::{Deserialize, Serialize};
use server::alerts::webhook::Webhook;

/// Who is told what needs a person. The log always is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Alerts {
    pub webhook_url: String,
    pub command: Vec<String>,
    pub every_s: u32,
}

impl Default for Alerts {
    fn default() -> Self {
        Self { webhook_url: String::new(), command: Vec::new(), every_s: 60 }
    }
}

impl Alerts {
    pub fn problem(&self) -> Option<String> {
        if !self.webhook_url.is_empty()
            && let Err(error) = Webhook::new(&self.webhook_url)
        {
            return Some(format!("alerts.webhook_url: {error}"));
        }
        let nameless = self.command.first().is_some_and(String::is_empty);
        nameless.then(|| "alerts.command names no program".to_owned())
    }
}

/// The least that an event must matter to be written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Text,
    Json,
}

/// What is written to standard error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    pub level: LogLevel,
    pub format: LogFormat,
}

impl Default for Log {
    fn default() -> Self {
        Self { level: LogLevel::Info, format: LogFormat::Text }
    }
}
