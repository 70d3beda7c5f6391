//! A whole Bursar to play with: a funded scratch database, a spot engine and a server as processes of their own, and
//! clients that keep their own records of what they were told. The demo shows it, `bursar chaos` kills it.

pub mod client;
pub mod customers;
pub mod keys;
pub mod nodes;
pub mod process;
pub mod program;
pub mod proxy;

use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use domain::ledger::{Movement, OpKey, Operation, Reference};
use domain::random::Random;
use domain::{AccountKind, Amount, Clock, Symbol, UserId};
use serde_json::json;
use spot::net::Role;
use store::catalog::{read_assets, read_catalog};
use store::db::sqlite_url;
use store::ledger::{NewAccount, Opened};
use store::{Db, Options};
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Failure};

use crate::scratch;
use process::Process;

/// What every user is given of each asset, in whole coins.
pub const COINS: i64 = 1_000;
/// What users move: an asset of many small coins, and one of few large ones.
pub const ASSETS: [&str; 2] = ["USDT", "BTC"];

/// How every configuration file of a rig begins, and how its folder is known.
pub const MADE_BY_US: &str = "# Made by bursar for a scratch treasury";

pub struct Rig {
    folder: PathBuf,
    database_url: String,
    pub users: i64,
    pub secret: Vec<u8>,
}

/// An asset as the clients need it.
#[derive(Clone, Debug)]
pub struct Coin {
    pub symbol: Symbol,
    pub precision: domain::Precision,
    pub smallest: Amount,
}

pub fn trouble(what: &str, error: std::io::Error) -> Failure {
    let mut failure = Failure::outside("LOAD_FAILED", &error, "is there room on the disk, and are the ports free?");
    failure.messages.insert(0, what.to_owned());
    failure
}

impl Rig {
    /// Makes or finds the scratch database, with funded users, and what the processes need to know each other.
    pub async fn prepare(
        folder: &Path,
        database_url: &str,
        author: &'static str,
        users: i64,
    ) -> Result<(Self, Db, Vec<Coin>), Failure> {
        scratch::check_folder(folder, MADE_BY_US)?;
        std::fs::create_dir_all(folder).map_err(|error| trouble("the folder could not be made", error))?;
        let named = std::path::absolute(folder).map_err(|error| trouble("the folder cannot be named", error))?;
        // A child may have another working directory than its parent.
        let folder = folder.canonicalize().map_err(|error| trouble("the folder is gone", error))?;
        // A SQLite file in the folder is named as seen from there: the folder can then be moved, or mounted elsewhere.
        let inside = database_url.strip_prefix(&format!("{}/", sqlite_url(&named)));
        let from_there = inside.map_or_else(|| database_url.to_owned(), |file| format!("sqlite://{file}"));
        let mut rig = Self { folder, database_url: from_there, users, secret: Vec::new() };
        // From now on the folder is known as ours, however soon this is interrupted.
        rig.configure_for_later()?;
        let options = Options { create: true, ..Options::default() };
        let db = Db::connect(database_url, &options).await?;
        db.migrate(SystemClock.now()).await?;
        scratch::check(&db, author).await?;
        program::apply_treasury(database_url, author, "a scratch treasury").await?;
        let coins = fund(&db, users).await?;
        rig.secret = own_secret(&rig.folder, "jwt.secret")?;
        own_credentials(&rig.folder)?;
        Ok((rig, db, coins))
    }

    /// The configuration of the n-th server.
    pub fn config_file(&self, server: usize) -> PathBuf {
        match server {
            0 => self.folder.join("bursar.toml"),
            other => self.folder.join(format!("bursar-{other}.toml")),
        }
    }

    /// Where the database file of `bursar chaos` is, with what belongs to it.
    pub fn database_folder(&self) -> PathBuf {
        self.folder.join("database")
    }

    pub fn spot_folder(&self) -> PathBuf {
        self.folder.join("spot")
    }

    /// Writes the configuration of a server: where it listens, and where its spot engine is.
    pub fn configure(&self, server: usize, http: &str, spot: &str) -> CommandResult {
        let settings = json!({
            "database": { "url": self.database_url, "any_rights": true },
            "http": { "listen": http, "operations_listen": "" },
            "auth": { "issuer": "rig", "audience": "rig", "hs256_secret_file": "jwt.secret" },
            "spot": { "kind": "remote", "address": spot, "credentials_file": "spot.credentials", "folder": "spot" },
            "transfer": {
                "call_timeout_ms": 300, "scan_interval_ms": 100, "first_pause_ms": 50, "longest_pause_ms": 500,
            },
            "limits": { "requests_per_second": 0, "daily_transfers": 0 },
        });
        self.write_config(server, &settings, ". The limits are off.")
    }

    /// The same treasury for a server that the user starts later: with the engine in its own process, and common limits.
    pub fn configure_for_later(&self) -> CommandResult {
        let settings = json!({
            "database": { "url": self.database_url, "any_rights": true },
            "auth": { "issuer": "rig", "audience": "rig", "hs256_secret_file": "jwt.secret" },
            "spot": { "credentials_file": "spot.credentials", "folder": "spot" },
        });
        self.write_config(0, &settings, ": bursar --config THIS serve")
    }

    fn write_config(&self, server: usize, settings: &serde_json::Value, comment: &str) -> CommandResult {
        let text =
            toml::to_string(settings).map_err(|error| trouble("no configuration", std::io::Error::other(error)))?;
        write_private(&self.config_file(server), &format!("{MADE_BY_US}{comment}\n{text}"))
    }

    /// The spot engine, on a port of its own the first time and on the same one afterwards.
    pub async fn start_spot(&self, listen: &str) -> Result<Process, Failure> {
        start_spot(&self.folder, listen).await
    }

    pub async fn start_server(&self, server: usize) -> Result<Process, Failure> {
        self.start_server_ahead(server, 0).await
    }

    /// With a clock that is ahead of the machine's, or behind it.
    pub async fn start_server_ahead(&self, server: usize, ahead_ms: i64) -> Result<Process, Failure> {
        let config = self.config_file(server).to_string_lossy().into_owned();
        let ahead = ahead_ms.to_string();
        let clock = [(terminal::clock::AHEAD_MS, ahead.as_str())];
        let variables: &[(&str, &str)] = if ahead_ms == 0 { &[] } else { &clock };
        Process::start_with(&["--json", "--config", &config, "serve"], "http", variables).await
    }
}

/// The spot engine of a scratch treasury in this folder.
pub async fn start_spot(treasury: &Path, listen: &str) -> Result<Process, Failure> {
    let (folder, known) = (treasury.join("spot"), treasury.join("spot.credentials"));
    let (folder_text, known) = (folder.to_string_lossy().into_owned(), known.to_string_lossy().into_owned());
    let mut arguments = vec![
        "--json",
        "spot",
        "serve",
        &folder_text,
        "--listen",
        listen,
        "--credentials",
        &known,
        "--segment",
        "4",
        // A folder may be played with again after months.
        "--accept-clock",
    ];
    if !folder.exists() {
        arguments.push("--create");
    }
    Process::start(&arguments, "address").await
}

/// A text that is made once, for this scratch treasury alone. It guards nothing but play money.
pub fn own_secret(folder: &Path, name: &str) -> Result<Vec<u8>, Failure> {
    let file = folder.join(name);
    if !file.exists() {
        let seed = SystemClock.now().micros().cast_unsigned() ^ u64::from(std::process::id()).rotate_left(40);
        let mut random = Random::from_seed(seed);
        let text: String = (0..4).map(|_| format!("{:016x}", random.next_u64())).collect();
        write_private(&file, &text)?;
    }
    std::fs::read(&file).map_err(|error| trouble("the secret cannot be read", error))
}

/// A token for each role of the spot engine.
pub fn own_credentials(folder: &Path) -> CommandResult {
    let secret = own_secret(folder, "spot.secret")?;
    let line = |role: Role| format!("{role} {role}-{}\n", String::from_utf8_lossy(&secret));
    write_private(&folder.join("spot.credentials"), &Role::ALL.into_iter().map(line).collect::<String>())
}

/// Writes a file whole or not at all. Only its owner may read it.
pub fn write_private(file: &Path, text: &str) -> CommandResult {
    let write = || -> std::io::Result<()> {
        let beside = file.with_extension("new");
        let mut options = std::fs::OpenOptions::new();
        let mut opened = options.write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        std::io::Write::write_all(&mut opened, text.as_bytes())?;
        opened.sync_all()?;
        std::fs::rename(&beside, file)
    };
    write().map_err(|error| trouble("a file could not be written", error))
}

/// Out of custody, as deposits would come. The keys make it happen once, however often it is asked for.
async fn fund(db: &Db, users: i64) -> Result<Vec<Coin>, Failure> {
    let bug = |what: String| trouble("the users could not be funded", std::io::Error::other(what));
    let catalog = read_catalog(&mut db.read().await?).await?;
    let assets = read_assets(&mut db.read().await?).await?;
    let mut coins = Vec::new();
    for (id, asset) in assets.iter().filter(|(_, asset)| ASSETS.contains(&asset.symbol.as_str())) {
        let chain = catalog.listings.keys().find(|(symbol, _)| *symbol == asset.symbol).map(|(_, chain)| chain.clone());
        let chain = chain.ok_or_else(|| bug(format!("{} is on no chain", asset.symbol)))?;
        let custody = NewAccount::system(&AccountKind::Custody(chain), *id);
        let wanted: Vec<NewAccount> = custody
            .into_iter()
            .chain((1..=users).filter_map(UserId::new).map(|user| NewAccount::funding(user, *id)))
            .collect();
        let opened = db.open(&wanted, SystemClock.now()).await?;
        let accounts: Vec<_> = opened
            .into_iter()
            .filter_map(|one| match one {
                Opened::Account(account) => Some(account),
                Opened::UnknownAsset => None,
            })
            .collect();
        let (custody, users) = accounts.split_first().ok_or_else(|| bug("there are no accounts".to_owned()))?;
        let amount = Amount::from_units(COINS * 10_i64.pow(u32::from(asset.precision.decimals())));
        for users in users.chunks(2_000) {
            let operations = users
                .iter()
                .map(|user| {
                    let movement = Movement { from: *custody, to: *user, asset: *id, amount };
                    let key = OpKey::new(format!("rig-fund-{user}"))?;
                    Operation::move_available(key, vec![movement], Reference::new("a deposit to play with")?)
                })
                .collect::<Result<Vec<_>, _>>()
                .map_err(|error| bug(error.to_string()))?;
            db.post(&operations, SystemClock.now()).await?;
        }
        coins.push(Coin { symbol: asset.symbol.clone(), precision: asset.precision, smallest: asset.transfer.min });
    }
    Ok(coins)
}
