//! `bursar signer serve`: the signing service, until it is told to stop or its log fails.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use domain::Clock;
use serde_json::json;
use signer::access::ApiKeys;
use signer::keys::Keyring;
use signer::service::listen::{Listener, ServerTls};
use signer::service::{Limits, Service, Standing};
use signer::{Authorizer, Moment, MomentClock};
use terminal::clock::{Stopwatch, SystemClock};
use terminal::failure::{CommandResult, Failure};
use terminal::files::{read_secret, read_text};
use terminal::output::say;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::asking::{SOCKET, listen_failed};
use super::key::access_failed;
use super::log::{LogFolder, log_failed, pinned};
use super::passphrase::Given;
use super::vault::VaultFile;
use super::{Folder, failed, in_vault, keystore};

/// Sign what can be read and what the policy allows, over a unix socket or TLS
///
/// Needs keys (bursar signer init, group add), a policy (bursar signer policy apply) and API keys (bursar signer key add). SIGTERM finishes what was begun,
/// writes a snapshot and ends; SIGHUP reads the API keys again. It exits with 3 when its log cannot be written, and with 1 when somebody was answered from
/// a newer log than this.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    folder: Folder,
    #[command(flatten)]
    passphrase: Given,
    /// The unix socket, which only its owner may use [default: socket in the folder]
    #[arg(long, value_name = "FILE", conflicts_with = "listen")]
    socket: Option<PathBuf>,
    /// Listen for TLS on this address instead; plain TCP is not spoken
    #[arg(long, value_name = "ADDRESS", requires_all = ["tls_cert", "tls_key"])]
    listen: Option<SocketAddr>,
    /// The signer's certificate in PEM form
    #[arg(long, value_name = "FILE", requires = "listen")]
    tls_cert: Option<PathBuf>,
    /// The private key of the certificate, in PEM form
    #[arg(long, value_name = "FILE", requires = "listen")]
    tls_key: Option<PathBuf>,
    /// Only speak with clients that have a certificate of this authority, in PEM form
    #[arg(long, value_name = "FILE", requires = "listen")]
    tls_client_ca: Option<PathBuf>,
    /// The newest head of the log that you know: the number of its entry, a colon, its hash. Without it in the log nothing starts
    #[arg(long, value_name = "ENTRY:HASH")]
    pinned: Option<String>,
    /// Jobs that were made longer ago are forgotten, and refused
    #[arg(long, value_name = "DAYS", default_value_t = 90, value_parser = clap::value_parser!(u32).range(7..=3_650))]
    horizon: u32,
    /// Write a snapshot when the log has grown by so many entries (and by half a percent of what is remembered)
    #[arg(long, value_name = "ENTRIES", default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1_000..))]
    snapshot: u32,
    /// Connections at a time
    #[arg(long, value_name = "COUNT", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
}

/// The machine's clocks: its date, and a time that only ever goes up.
struct Machine(Stopwatch);

impl MomentClock for Machine {
    fn moment(&self) -> Moment {
        let uptime_us = i64::try_from(self.0.elapsed().as_micros()).unwrap_or(i64::MAX);
        Moment { date: SystemClock.now(), uptime_us }
    }
}

impl Arguments {
    fn limits(&self) -> Limits {
        Limits {
            connections: usize::try_from(self.connections).unwrap_or(usize::MAX),
            snapshot_entries: self.snapshot.into(),
            horizon_us: i64::from(self.horizon) * 24 * 3_600 * 1_000_000,
            ..Limits::default()
        }
    }

    async fn listener(&self) -> Result<Listener, Failure> {
        let (Some(address), Some(certificate), Some(key)) = (self.listen, &self.tls_cert, &self.tls_key) else {
            let socket = self.socket.clone().unwrap_or_else(|| self.folder.path().join(SOCKET));
            return Listener::unix(&socket).map_err(|error| listen_failed(&error));
        };
        let clients = self.tls_client_ca.as_deref().map(read_text).transpose()?;
        let (certificate, key) = (read_text(certificate)?, read_secret(key)?);
        let tls = ServerTls::new(certificate.as_bytes(), &key, clients.as_deref().map(str::as_bytes));
        let tls = tls.map_err(|error| listen_failed(&error))?;
        Listener::tls(address, tls).await.map_err(|error| listen_failed(&error))
    }

    async fn keyring(&self) -> Result<Keyring, Failure> {
        let folder = self.folder.path();
        if in_vault(folder) {
            let vault = VaultFile::in_folder(folder)?.vault(folder)?;
            Keyring::open(&vault).await
        } else {
            Keyring::open(&keystore(folder, self.passphrase.read()?)).await
        }
        .map_err(failed)
    }
}

fn receive(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::outside("INTERNAL", &error, "no signals can be received"))
}

pub async fn run(arguments: &Arguments, json: bool) -> CommandResult {
    let folder = arguments.folder.path();
    let known = arguments.pinned.as_deref().map(pinned).transpose()?;
    let keys = ApiKeys::in_folder(folder).map_err(|error| access_failed(&error))?;
    if keys.is_empty() {
        let hint = "bursar signer key add NAME --sign GROUP --credential FILE makes one";
        return Err(Failure::bad_input("SIGNER_API_KEYS_INVALID", "there are no API keys: nobody could ask", hint));
    }
    let keyring = Arc::new(arguments.keyring().await?);
    // The log is locked before a socket is looked at: what a running signer listens on is not taken for left over.
    let disk = LogFolder::of(folder).exclusive()?;
    let clock = Arc::new(Machine(Stopwatch::start()));
    let authorizer = Authorizer::open(disk, known, clock.moment()).map_err(|error| log_failed(&error))?;
    let (mut terminate, mut hang_up) = (receive(SignalKind::terminate())?, receive(SignalKind::hangup())?);
    let policy = authorizer.policy(clock.moment()).map(|policy| policy.version);
    let listener = arguments.listener().await?;
    let shown = listener.shown();
    let service = Service::start(authorizer, keyring, keys, clock, arguments.limits())
        .map_err(|error| Failure::outside("INTERNAL", &error, "the machine has no threads left"))?;
    greet(&service, &shown, policy, json);
    let stop = async {
        loop {
            tokio::select! {
                _ = terminate.recv() => break,
                _ = tokio::signal::ctrl_c() => break,
                _ = service.ended() => break,
                _ = hang_up.recv() => read_keys_again(&service, arguments),
            }
        }
    };
    service.serve(listener, stop).await;
    match service.stop().await {
        Standing::Failed(error) => Err(log_failed(&error)),
        Standing::Running | Standing::Stopped => {
            let head = service.head();
            if json {
                say(json!({ "event": "stopped", "entries": head.entries, "hash": head.hash.to_string() }));
            } else {
                say(format!("stopped in good order\nhead {}:{}", head.entries, head.hash));
            }
            Ok(())
        }
    }
}

fn greet(service: &Service, shown: &str, policy: Option<u64>, json: bool) {
    let head = service.head();
    tracing::info!(listening = shown, policy, entries = head.entries, version = env!("CARGO_PKG_VERSION"), "serving");
    if json {
        say(json!({
            "event": "listening", "address": shown, "policy": policy, "entries": head.entries,
            "hash": head.hash.to_string(),
        }));
        return;
    }
    let policy = policy.map_or_else(
        || "no policy yet, so nothing is signed: bursar signer policy apply".to_owned(),
        |version| format!("policy version {version}"),
    );
    say(format!("listening on {shown}; {policy}; Ctrl-C stops it"));
}

/// A file that cannot be read leaves the keys as they were.
fn read_keys_again(service: &Service, arguments: &Arguments) {
    match ApiKeys::in_folder(arguments.folder.path()) {
        Ok(keys) => {
            tracing::info!(keys = keys.iter().count(), "the API keys were read again");
            service.set_keys(keys);
        }
        Err(error) => tracing::error!(code = error.code(), %error, "the API keys stay as they were"),
    }
}
