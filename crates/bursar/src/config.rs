//! One TOML file plus `BURSAR_…` environment variables. An unknown key is an error, with a suggestion:
//! a typo in a limit must not become a default.

pub mod chains;
mod http;
mod operators;
mod reports;
mod signer;
mod treasury;
mod withdrawals;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use store::Options;
use store::db::describe_url;
use terminal::failure::Failure;
use terminal::files::read_text;
use toml::{Table, Value};

use crate::paths;
pub use chains::{ChainNodes, Chains, InternalTransfers, NodeSettings, ProofChoice};
pub use http::Http;
pub use operators::Operators;
pub use reports::{Alerts, Log, LogFormat, LogLevel};
pub use signer::Signer;
pub use treasury::Treasury;
pub use withdrawals::Withdrawals;

/// Every setting has a default, so every setting has a name to be found by.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub database: Database,
    pub treasury: Treasury,
    pub signer: Signer,
    pub http: Http,
    pub auth: Auth,
    pub operators: Operators,
    pub withdrawals: Withdrawals,
    pub spot: Spot,
    pub transfer: Transfer,
    pub limits: Limits,
    pub alerts: Alerts,
    pub log: Log,
    pub chains: Chains,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Database {
    pub url: String,
    pub max_connections: u32,
    pub acquire_timeout_ms: u64,
    /// Outside of the database, so that it is not put back with it.
    pub mark_folder: String,
    /// PostgreSQL: a role works although the server gives it more rights than it should have.
    pub any_rights: bool,
}

impl Default for Database {
    fn default() -> Self {
        Self {
            url: "sqlite://bursar-data/bursar.db".to_owned(),
            max_connections: 16,
            acquire_timeout_ms: 5_000,
            mark_folder: "bursar-state".to_owned(),
            any_rights: false,
        }
    }
}

/// Whose tokens are believed. There is no default secret: without a key nothing is served.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Auth {
    pub issuer: String,
    pub audience: String,
    pub hs256_secret_file: String,
    pub hs256_kid: String,
    pub jwks_file: String,
    pub clock_skew_s: u32,
}

impl Default for Auth {
    fn default() -> Self {
        Self {
            issuer: "bursar".to_owned(),
            audience: "bursar".to_owned(),
            hs256_secret_file: String::new(),
            hs256_kid: String::new(),
            jwks_file: String::new(),
            clock_skew_s: 30,
        }
    }
}

/// Which engine has the users' spot money.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SpotKind {
    /// Bursar's own, in the server's process.
    Embedded,
    /// Bursar's own, in a process of its own.
    Remote,
    /// Any other, over HTTP.
    Http,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Spot {
    pub kind: SpotKind,
    pub folder: String,
    pub retention_h: u32,
    pub address: String,
    pub credentials_file: String,
    pub tls_ca_file: String,
    pub tls_pin: String,
    pub token_file: String,
    pub url: String,
    pub freezes: bool,
    pub trading: bool,
}

impl Default for Spot {
    fn default() -> Self {
        Self {
            kind: SpotKind::Embedded,
            folder: "bursar-data/spot".to_owned(),
            retention_h: 168,
            address: "127.0.0.1:7411".to_owned(),
            credentials_file: String::new(),
            tls_ca_file: String::new(),
            tls_pin: String::new(),
            token_file: String::new(),
            url: String::new(),
            freezes: false,
            trading: false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Transfer {
    pub wait_ms: u32,
    pub call_timeout_ms: u32,
    pub scan_interval_ms: u32,
    pub first_pause_ms: u32,
    pub longest_pause_ms: u32,
    pub alert_tries: u32,
    pub alert_after_s: u32,
    pub clocks_apart_ms: u32,
    pub check_interval_s: u32,
    pub queue: u32,
    pub lanes: u32,
}

impl Default for Transfer {
    fn default() -> Self {
        Self {
            wait_ms: 500,
            call_timeout_ms: 2_000,
            scan_interval_ms: 1_000,
            first_pause_ms: 250,
            longest_pause_ms: 60_000,
            alert_tries: 10,
            alert_after_s: 300,
            clocks_apart_ms: 5_000,
            check_interval_s: 60,
            queue: 10_000,
            lanes: 2,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    pub requests_per_second: u32,
    pub daily_transfers: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { requests_per_second: 10, daily_transfers: 100 }
    }
}

/// From Friday evening to Monday evening: an engine that nobody misses over a weekend still knows what it did.
pub const RETENTION_LEAST_H: u32 = 72;

/// Where the file is looked for when none is named.
pub const DEFAULT_FILE: &str = "bursar.toml";

/// Variables that start with `BURSAR_` but are no settings.
const OTHER_VARIABLES: [&str; 6] =
    ["BURSAR_CONFIG", "BURSAR_ACTOR", "BURSAR_SPOT_TOKEN", "BURSAR_COPY_FROM", "BURSAR_COPY_TO", "BURSAR_IMPORT_FROM"];
/// So do those that only the tests read.
const OF_TESTS: &str = "BURSAR_TEST_";

impl Config {
    /// This process's environment. What is not text cannot be a setting.
    pub fn environment() -> impl Iterator<Item = (String, String)> {
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
    }

    /// The file named, or `bursar.toml` if there is one; then the environment on top.
    pub fn load(
        file: Option<&Path>,
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<(Self, Option<PathBuf>), Failure> {
        let file = match file {
            Some(file) => Some(file.to_owned()),
            None => Some(PathBuf::from(DEFAULT_FILE)).filter(|file| file.exists()),
        };
        let config: Self = match &file {
            Some(file) => read_toml::<Self>(file, "CONFIG_INVALID")?.beside(file)?,
            None => Self::default(),
        };
        let config = config.with_environment(environment)?;
        config.check()?;
        Ok((config, file))
    }

    /// The same configuration, with its relative paths beginning in the folder of the file that it was read from.
    fn beside(self, file: &Path) -> Result<Self, Failure> {
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        let Some(folder) = folder else { return Ok(self) };
        let mut table = Table::try_from(&self).map_err(|error| internal(&error))?;
        paths::resolve(&mut table, folder);
        table.try_into().map_err(|error| internal(&error))
    }

    fn with_environment(self, environment: impl Iterator<Item = (String, String)>) -> Result<Self, Failure> {
        let mut table = Table::try_from(&self).map_err(|error| internal(&error))?;
        let names = setting_names(&table);
        for (variable, text) in environment.filter(|(variable, _)| variable.starts_with("BURSAR_")) {
            if OTHER_VARIABLES.contains(&variable.as_str()) || variable.starts_with(OF_TESTS) {
                continue;
            }
            let Some((_, path)) = names.iter().find(|(name, _)| *name == variable) else {
                let known: Vec<&str> = names.iter().map(|(name, _)| name.as_str()).collect();
                let message = format!("the environment variable {variable} is no setting");
                return Err(Failure::bad_input("CONFIG_INVALID", message, suggestion(&variable, &known)));
            };
            set(&mut table, path, &text).map_err(|expected| {
                let message = format!("the environment variable {variable} must be {expected}");
                Failure::bad_input("CONFIG_INVALID", message, format!("see {} in examples/bursar.toml", path.join(".")))
            })?;
        }
        // The file was read before, so that a value that is none of its setting's comes from a variable.
        table.try_into().map_err(|error| {
            let message = format!("an environment variable: {}", error.message().replace('\n', " "));
            Failure::bad_input("CONFIG_INVALID", message, hint_of(error.message()))
        })
    }

    fn check(&self) -> Result<(), Failure> {
        let refuse = |message: &str, hint: &str| Err(Failure::bad_input("CONFIG_INVALID", message, hint));
        if let Err(error) = describe_url(&self.database.url) {
            let cause = std::error::Error::source(&error).map_or_else(String::new, |cause| format!(": {cause}"));
            return refuse(&format!("database.url is not a database URL{cause}"), error.hint());
        }
        if !(1..=1_000).contains(&self.database.max_connections) {
            return refuse("database.max_connections must be 1 to 1000", "16 is a good start");
        }
        if !(1..=600_000).contains(&self.database.acquire_timeout_ms) {
            return refuse("database.acquire_timeout_ms must be 1 to 600000", "5000 is a good start");
        }
        if let Some((message, hint)) = self.signer.problem() {
            return refuse(message, hint);
        }
        if let Some((message, hint)) = self.operators.problem(&self.auth).or_else(|| self.withdrawals.problem()) {
            return refuse(message, hint);
        }
        if let Some(problem) = self.chains.iter().find_map(|(name, chain)| chain.problem(name)) {
            return refuse(&problem, "see chains in examples/bursar.toml");
        }
        self.check_server()
    }

    fn check_server(&self) -> Result<(), Failure> {
        let refuse = |message: String, hint: &str| Err(Failure::bad_input("CONFIG_INVALID", message, hint));
        let address = |name: &str, text: &str, remote: Option<bool>| match text.parse::<SocketAddr>() {
            Err(_) => refuse(format!("{name} must be an address and a port"), "such as 127.0.0.1:7410"),
            Ok(address) if remote == Some(false) && !address.ip().is_loopback() => {
                let hint = "listen on 127.0.0.1 behind a proxy that ends TLS, or set http.allow_remote = true";
                refuse(format!("{name} can be reached by other machines"), hint)
            }
            Ok(_) => Ok(()),
        };
        address("http.listen", &self.http.listen, Some(self.http.allow_remote))?;
        if !self.http.operations_listen.is_empty() {
            address("http.operations_listen", &self.http.operations_listen, Some(self.http.allow_remote))?;
        }
        match self.spot.kind {
            SpotKind::Embedded if self.spot.address.is_empty() => {}
            // An embedded engine listens there; it is no place for strangers.
            SpotKind::Embedded => address("spot.address", &self.spot.address, Some(false))?,
            SpotKind::Remote => {
                address("spot.address", &self.spot.address, None)?;
                self.check_engine_tls()?;
            }
            SpotKind::Http => self.check_engine_url()?,
        }
        if self.spot.kind != SpotKind::Http && !self.spot.token_file.is_empty() {
            let message =
                "spot.token_file is the token of an engine over HTTP; Bursar's own engine has spot.credentials_file";
            return refuse(message.to_owned(), "a line of that file is a role and a token: coordinator TOKEN");
        }
        if let Some(problem) = self.alerts.problem() {
            return refuse(problem, "see alerts in examples/bursar.toml");
        }
        if !(self.http.docs_url.is_empty() || self.http.docs_url.ends_with('/')) {
            return refuse("http.docs_url must end with a slash".to_owned(), "or be empty");
        }
        let numbers = [
            ("auth.clock_skew_s", self.auth.clock_skew_s, 0, 600),
            ("http.connections", self.http.connections, 1, 1_000_000),
            ("http.connections_per_address", self.http.connections_per_address, 1, 1_000_000),
            ("http.header_timeout_s", self.http.header_timeout_s, 1, 600),
            ("http.stop_delay_ms", self.http.stop_delay_ms, 0, 60_000),
            ("transfer.wait_ms", self.transfer.wait_ms, 0, 30_000),
            ("transfer.call_timeout_ms", self.transfer.call_timeout_ms, 10, 60_000),
            ("transfer.scan_interval_ms", self.transfer.scan_interval_ms, 10, 600_000),
            ("transfer.first_pause_ms", self.transfer.first_pause_ms, 1, 600_000),
            ("transfer.longest_pause_ms", self.transfer.longest_pause_ms, 1, 3_600_000),
            ("transfer.alert_tries", self.transfer.alert_tries, 1, 1_000_000),
            ("transfer.alert_after_s", self.transfer.alert_after_s, 1, 1_000_000),
            // Much less than the minute for which the node number of a server that ended is not lent.
            ("transfer.clocks_apart_ms", self.transfer.clocks_apart_ms, 100, 20_000),
            ("transfer.check_interval_s", self.transfer.check_interval_s, 1, 3_600),
            ("transfer.queue", self.transfer.queue, 1, 1_000_000),
            ("transfer.lanes", self.transfer.lanes, 1, 64),
            ("alerts.every_s", self.alerts.every_s, 1, 86_400),
        ];
        self.check_retention()?;
        for (name, value, least, most) in numbers {
            if !(least..=most).contains(&value) {
                return refuse(format!("{name} must be {least} to {most}"), "see examples/bursar.toml");
            }
        }
        Ok(())
    }

    /// What the engine has forgotten can never be proven again. So it remembers for longer than any outage lasts, and
    /// people are told of a stuck transfer long before.
    fn check_retention(&self) -> Result<(), Failure> {
        let (hours, alert_s) = (self.spot.retention_h, self.transfer.alert_after_s);
        let (message, hint) = if !(RETENTION_LEAST_H..=87_600).contains(&hours) {
            let message = format!("spot.retention_h must be {RETENTION_LEAST_H} to 87600");
            (message, "an engine that is away over a long weekend must still know what it did; 168 is a good start")
        } else if u64::from(alert_s) > u64::from(hours) * 3_600 / 2 {
            let message = "transfer.alert_after_s must be at most half of spot.retention_h".to_owned();
            (message, "people need time before the engine forgets; 300 is a good start")
        } else {
            return Ok(());
        };
        Err(Failure::bad_input("CONFIG_INVALID", message, hint))
    }

    /// Plain TCP stays on this machine, as plain HTTP does.
    fn check_engine_tls(&self) -> Result<(), Failure> {
        let refuse = |message: &str, hint: &str| Err(Failure::bad_input("CONFIG_INVALID", message, hint));
        let here = self.spot.address.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback());
        match (self.spot.tls_ca_file.is_empty(), self.spot.tls_pin.is_empty()) {
            (false, false) => {
                refuse("spot.tls_ca_file and spot.tls_pin say the same in two ways", "leave one of them empty")
            }
            (true, true) if !here => refuse(
                "spot.address is another machine, without TLS: the token and every transfer would travel in the clear",
                "set spot.tls_pin or spot.tls_ca_file, or use a tunnel that ends on this machine",
            ),
            _ => Ok(()),
        }
    }

    /// A token and every balance would travel in the clear.
    fn check_engine_url(&self) -> Result<(), Failure> {
        if !is_in_the_clear(&self.spot.url) {
            return Ok(());
        }
        let message = "spot.url is http:// to another machine: the token and every transfer would travel in the clear";
        let hint = "use https://, or a tunnel that ends on this machine";
        Err(Failure::bad_input("CONFIG_INVALID", message, hint))
    }

    pub fn store_options(&self) -> Options {
        Options {
            max_connections: self.database.max_connections,
            acquire_timeout: Duration::from_millis(self.database.acquire_timeout_ms),
            create: false,
            jitter_seed: u64::from(std::process::id()),
        }
    }
}

/// Over plain HTTP, to somewhere else than this machine.
pub fn is_in_the_clear(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("http://") else { return false };
    let host = rest.split('/').next().unwrap_or_default();
    let here = ["localhost", "127.0.0.1", "[::1]"];
    !here.iter().any(|name| host == *name || host.strip_prefix(name).is_some_and(|rest| rest.starts_with(':')))
}

/// Every leaf as its variable and its path: `BURSAR_DATABASE_URL` and `["database", "url"]`.
fn setting_names(table: &Table) -> Vec<(String, Vec<String>)> {
    fn walk(table: &Table, path: &[String], names: &mut Vec<(String, Vec<String>)>) {
        for (key, value) in table {
            let mut path = path.to_vec();
            path.push(key.clone());
            match value {
                Value::Table(inner) => walk(inner, &path, names),
                _ => names.push((format!("BURSAR_{}", path.join("_").to_uppercase()), path)),
            }
        }
    }
    let mut names = Vec::new();
    walk(table, &[], &mut names);
    names
}

/// Writes the text over the value at the path, as the kind of value that is there. Else says what it must be.
fn set(table: &mut Table, path: &[String], text: &str) -> Result<(), &'static str> {
    let Some((key, inner)) = path.split_first() else { return Err("a setting") };
    match table.get_mut(key) {
        Some(Value::Table(table)) => return set(table, inner, text),
        Some(Value::String(old)) => text.clone_into(old),
        Some(Value::Integer(old)) => *old = text.parse::<u32>().map_err(|_| "a whole number")?.into(),
        Some(Value::Boolean(old)) => *old = text.parse().map_err(|_| "true or false")?,
        Some(Value::Array(old)) => {
            let list = "a list, such as [\"a\", \"b\"]";
            let read: Table = toml::from_str(&format!("list = {text}")).map_err(|_| list)?;
            let Some(Value::Array(new)) = read.get("list") else { return Err(list) };
            new.clone_into(old);
        }
        _ => return Err("a text"),
    }
    Ok(())
}

fn internal(error: &(dyn std::error::Error + 'static)) -> Failure {
    Failure::outside("INTERNAL", error, "this is a bug in Bursar: please report it")
}

/// Reads a TOML file into a type that knows all its keys. Errors say the line, and what was probably meant.
pub fn read_toml<T: DeserializeOwned>(file: &Path, code: &'static str) -> Result<T, Failure> {
    let text = read_text(file)?;
    parse_toml(&text, &file.display().to_string(), code)
}

pub fn parse_toml<T: DeserializeOwned>(text: &str, name: &str, code: &'static str) -> Result<T, Failure> {
    toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        let message = format!("{name}, line {line}: {}", error.message().replace('\n', " "));
        Failure::bad_input(code, message, hint_of(error.message()))
    })
}

/// "unknown field `datbase`, expected `database` or `log`": the first name is the culprit, the others are known.
fn hint_of(message: &str) -> String {
    let names: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    match names.split_first() {
        Some((unknown, known)) if message.starts_with("unknown") && !known.is_empty() => suggestion(unknown, known),
        _ => "correct the line; see the files in examples/".to_owned(),
    }
}

fn suggestion(unknown: &str, known: &[&str]) -> String {
    match nearest(unknown, known) {
        Some(nearest) => format!("did you mean {nearest}?"),
        None => format!("known are: {}", known.join(", ")),
    }
}

/// The known name that the author of the file probably meant.
pub fn nearest<'a>(unknown: &str, known: &[&'a str]) -> Option<&'a str> {
    let likeness = |name: &str| strsim::jaro_winkler(unknown, name);
    // Two letters swapped make short names look unlike.
    let meant = |name: &&str| likeness(name) > 0.7 || strsim::osa_distance(unknown, name) == 1;
    known.iter().copied().filter(meant).max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str, environment: &[(&str, &str)]) -> Result<Config, Failure> {
        let config: Config = parse_toml(text, "bursar.toml", "CONFIG_INVALID")?;
        let pairs = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let config = config.with_environment(pairs)?;
        config.check()?;
        Ok(config)
    }

    #[track_caller]
    fn refused(text: &str, environment: &[(&str, &str)], expected: &str) {
        let failure = load(text, environment).expect_err("refused");
        assert_eq!(format!("{} | {}", failure.messages.join(": "), failure.hint), expected);
    }

    #[test]
    fn an_empty_file_is_the_defaults() {
        assert_eq!(load("", &[]).expect("fine"), Config::default());
    }

    #[test]
    fn the_environment_stands_above_the_file() {
        let text = "[database]\nurl = \"sqlite://a.db\"\nmax_connections = 3";
        let config = load(text, &[("BURSAR_DATABASE_URL", "postgres://x/y"), ("PATH", "ignored")]).expect("fine");
        assert_eq!((config.database.url.as_str(), config.database.max_connections), ("postgres://x/y", 3));
    }

    #[test]
    fn a_plain_connection_to_another_machine_is_refused() {
        let remote = |more: &str| format!("[spot]\nkind = \"remote\"\n{more}");
        let clear = "spot.address is another machine, without TLS: the token and every transfer would travel in the \
                     clear | set spot.tls_pin or spot.tls_ca_file, or use a tunnel that ends on this machine";
        refused(&remote("address = \"10.0.0.7:7411\""), &[], clear);
        refused(&remote("address = \"0.0.0.0:7411\""), &[], clear);
        refused(
            &remote("address = \"10.0.0.7:7411\"\ntls_pin = \"00\"\ntls_ca_file = \"ca.pem\""),
            &[],
            "spot.tls_ca_file and spot.tls_pin say the same in two ways | leave one of them empty",
        );
        for good in [
            "address = \"127.0.0.1:7411\"",
            "address = \"[::1]:7411\"",
            "address = \"10.0.0.7:7411\"\ntls_pin = \"00\"",
        ] {
            assert!(load(&remote(good), &[]).is_ok(), "{good}");
        }
    }

    #[test]
    fn typos_are_errors_with_a_suggestion() {
        refused(
            "[database]\nmax_conections = 3",
            &[],
            "bursar.toml, line 2: unknown field `max_conections`, expected one of `url`, `max_connections`, \
             `acquire_timeout_ms`, `mark_folder`, `any_rights` | did you mean max_connections?",
        );
        refused(
            "\n[datbase]\nurl = \"x\"",
            &[],
            "bursar.toml, line 2: unknown field `datbase`, expected one of `database`, `treasury`, `signer`, `http`, `auth`, `operators`, `withdrawals`, `spot`, `transfer`, `limits`, `alerts`, `log`, `chains` | did you mean database?",
        );
        refused(
            "",
            &[("BURSAR_DATABSE_URL", "x")],
            "the environment variable BURSAR_DATABSE_URL is no setting | did you mean BURSAR_DATABASE_URL?",
        );
    }

    #[test]
    fn wrong_kinds_and_values_are_refused() {
        for (text, environment) in [
            ("[database]\nurl = 3", &[][..]),
            ("[database]\nmax_connections = -1", &[]),
            ("[database]\nmax_connections = 0", &[]),
            ("[database]\nurl = \"mysql://x\"", &[]),
            ("[database]\nurl = \"postgres://h:99999/x\"", &[]),
            ("[database]\nurl = \"postgres://h/x?sslmode=bogus\"", &[]),
            ("[database]\nurl = \"postgres://h/x?sslmod=verify-full\"", &[]),
            ("[database]\nurl = \"sqlite://x.db?mode=nonsense\"", &[]),
            ("[database]\nurl = \"sqlite::memory:\"", &[]),
            ("[database]\nurl = \"sqlite://\"", &[]),
            ("[database", &[]),
            ("", &[("BURSAR_DATABASE_MAX_CONNECTIONS", "many")]),
            ("", &[("BURSAR_DATABASE_URL", "nonsense")]),
        ] {
            assert_eq!(load(text, environment).expect_err(text).code, "CONFIG_INVALID");
        }
    }

    #[test]
    fn a_retention_shorter_than_an_outage_is_refused() {
        for text in [
            "[spot]\nretention_h = 71",
            "[spot]\nretention_h = 0",
            "[transfer]\nalert_after_s = 302401",
            "[spot]\nretention_h = 72\n[transfer]\nalert_after_s = 129601",
        ] {
            assert_eq!(load(text, &[]).expect_err(text).code, "CONFIG_INVALID");
        }
        for text in
            ["[spot]\nretention_h = 72\n[transfer]\nalert_after_s = 129600", "[transfer]\nalert_after_s = 302400"]
        {
            assert!(load(text, &[]).is_ok(), "{text}");
        }
    }

    const NODES: &str = "[chains.bsc]\nquorum = 2\n[[chains.bsc.nodes]]\nname = \"a\"\nurl = \"https://a.example/secret-path\"\n\
                         [[chains.bsc.nodes]]\nname = \"b\"\nurl_file = \"b.url\"\nheaders = { x-team = \"t\" }\n";

    #[test]
    fn nodes_are_read_and_the_environment_reaches_them() {
        let config = load(NODES, &[("BURSAR_CHAINS_BSC_HEDGE_MS", "50")]).expect("fine");
        let chain = &config.chains["bsc"];
        assert_eq!((chain.quorum, chain.hedge_ms, chain.batch, chain.nodes.len()), (2, 50, 100, 2));
        assert_eq!(chain.nodes[1].headers["x-team"], "t");
        assert!(!format!("{config:?}").contains("secret-path"), "{config:?}");
        let one =
            [("BURSAR_CHAINS_BSC_NODES", "[{ name = \"c\", url = \"http://c\" }]"), ("BURSAR_CHAINS_BSC_QUORUM", "0")];
        assert_eq!(load(NODES, &one).expect("fine").chains["bsc"].nodes[0].name, "c");
        refused(
            "",
            &[("BURSAR_CHAINS_BSC_QUORUM", "2")],
            "the environment variable BURSAR_CHAINS_BSC_QUORUM is no setting | did you mean BURSAR_SIGNER_SOCKET?",
        );
    }

    #[test]
    fn nodes_that_cannot_be_are_refused() {
        let node = |more: &str| format!("[[chains.bsc.nodes]]\nname = \"a\"\n{more}\n");
        let url = "url = \"https://a.example\"";
        for (text, expected) in [
            ("[chains.BSC]".to_owned(), "chains.BSC: a chain name is 1 to 16 characters of a-z, 0-9 and -"),
            (
                NODES.replace("quorum = 2", "quorum = 1"),
                "chains.bsc.quorum must be more than half of the 2 nodes, or 0 for that",
            ),
            (
                NODES.replace("quorum = 2", "quorum = 3"),
                "chains.bsc.quorum must be more than half of the 2 nodes, or 0 for that",
            ),
            (NODES.replace("\"b\"", "\"a\""), "chains.bsc.nodes: each node has a name of its own"),
            (
                NODES.replace("\"a\"", "\"a b\""),
                "chains.bsc.nodes, entry 1: its name must be 1 to 32 visible characters without spaces",
            ),
            (NODES.replace("quorum = 2", "hedge_ms = 0"), "chains.bsc.hedge_ms must be 1 to 60000"),
            (node(""), "chains.bsc.nodes, entry 1: it must have either url or url_file"),
            (
                node(&format!("{url}\nurl_file = \"x\"")),
                "chains.bsc.nodes, entry 1: it must have either url or url_file",
            ),
            (node("url = \"a.example\""), "chains.bsc.nodes, entry 1: its url must be http://… or https://…"),
            (
                node(&format!("{url}\nlogin_file = \"x\"\ntoken_file = \"y\"")),
                "chains.bsc.nodes, entry 1: login_file and token_file are for the same header: it can have one of them",
            ),
            (
                node(&format!("{url}\nkey_file = \"x\"")),
                "chains.bsc.nodes, entry 1: key_header and key_file go together: the header's name, and a file with its value",
            ),
            (
                node(&format!("{url}\nheaders = {{ Authorization = \"Basic x\" }}")),
                "chains.bsc.nodes, entry 1: credentials do not belong into this file: use login_file, token_file or key_file",
            ),
        ] {
            refused(&text, &[], &format!("{expected} | see chains in examples/bursar.toml"));
        }
        let typo = load("[chains.bsc]\nquorm = 2", &[]).expect_err("a typo");
        assert_eq!((typo.code.as_ref(), typo.hint.as_str()), ("CONFIG_INVALID", "did you mean quorum?"));
        assert!(load("[chains.bsc]", &[]).is_ok(), "a chain without nodes is not followed");
    }

    #[test]
    fn a_password_is_never_shown() {
        for (url, shown) in [
            ("postgres://ann:secret@db/x?sslmode=require", "postgres://ann@db:5432/x"),
            ("postgres://ann:se%3Fcret@db:99/x", "postgres://ann@db:99/x"),
            ("postgres://ann@db/x?password=secret", "postgres://ann@db:5432/x"),
            ("sqlite://x.db", "sqlite://x.db"),
        ] {
            assert_eq!(describe_url(url).expect(url), shown);
        }
    }
}
