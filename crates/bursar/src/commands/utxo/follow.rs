//! `bursar utxo follow`: all wallets kept in step with Bitcoin nodes; a backup brought up to date.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bitcoin::base64::Engine as _;
use bitcoin::base64::engine::general_purpose::STANDARD;
use chain::Chain;
use chain::bitcoin::{BitcoinChain, BitcoinSettings};
use chain::endpoint::{BadEndpoint, EndpointSettings, Pool, PoolSettings};
use custody::bitcoin::{Follow, FollowError, Restored, Step, network_of};
use domain::Clock;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use store::Db;
use store::utxo::{UtxoError, WalletId};
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Exit, Failure};
use terminal::files::read_secret;
use terminal::output::{say, warn};
use tokio::signal::unix::{SignalKind, signal};

use super::super::Context;
use super::known_wallet;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// A Bitcoin Core node; give several, and a quorum of them decides which blocks there are
    #[arg(long = "node", value_name = "URL", required = true)]
    nodes: Vec<String>,
    /// How many nodes must agree: more than half of them, or more [default: more than half]
    #[arg(long, value_name = "N")]
    quorum: Option<usize>,
    /// A file with user:password for the nodes, such as Core's .cookie
    #[arg(long, value_name = "FILE")]
    login_file: Option<PathBuf>,
    /// The first block of interest, where no block was followed yet; the hundred before it are read too
    #[arg(long, value_name = "HEIGHT", default_value_t = 0)]
    birthday: u32,
    /// Stop when the store has all that the nodes have
    #[arg(long)]
    once: bool,
    /// First bring a wallet up to date that was imported; without a name all of them, after a backup of the database was
    /// put back. Nothing of them is spent meanwhile
    #[arg(long, value_name = "WALLET", num_args = 0..=1, default_missing_value = NO_NAME, value_parser = to_restore)]
    restore: Option<ToRestore>,
    /// First read the blocks from this one on once more: an address was added that they may have paid
    #[arg(long, value_name = "HEIGHT")]
    rescan_from: Option<u32>,
}

/// The wallets that are brought up to date first.
#[derive(Clone, Debug)]
enum ToRestore {
    All,
    Named(String),
}

/// Stands for a `--restore` without a name. It cannot be typed: no argument contains a NUL.
const NO_NAME: &str = "\0";

fn to_restore(name: &str) -> Result<ToRestore, std::convert::Infallible> {
    Ok(if name == NO_NAME { ToRestore::All } else { ToRestore::Named(name.to_owned()) })
}

/// So many blocks at a time.
const BLOCKS: u32 = 32;

/// Between two looks at a chain that has nothing new.
const PAUSE: Duration = Duration::from_secs(1);

fn failed(error: FollowError) -> Failure {
    match error {
        FollowError::Store(error) => error.into(),
        other => Failure::outside(other.code(), &other, "see the page; the store is as it was before this step"),
    }
}

pub async fn run(context: &Context, db: &Db, arguments: &Arguments) -> CommandResult {
    let chain = chain(context, db, arguments).await?;
    chain.check_network().await.map_err(|error| failed(error.into()))?;
    let mut follow = Follow::new(db, &chain, arguments.birthday);
    if let Some(from) = arguments.rescan_from {
        rescan(context, db, &mut follow, from).await?;
    }
    if let Some(wallets) = &arguments.restore {
        restore(context, db, &mut follow, wallets).await?;
    }
    let trouble = |error| Failure::outside("INTERNAL", &error, "this is a bug in Bursar: please report it");
    let mut terminate = signal(SignalKind::terminate()).map_err(trouble)?;
    tokio::select! {
        done = go_on(context, &mut follow, arguments.once) => done?,
        _ = tokio::signal::ctrl_c() => return Ok(()),
        _ = terminate.recv() => return Ok(()),
    }
    tell_end(context, db, &chain).await
}

async fn restore(context: &Context, db: &Db, follow: &mut Follow<'_>, wallets: &ToRestore) -> CommandResult {
    let wallets = match wallets {
        ToRestore::All => db.wallets().await?,
        ToRestore::Named(name) => vec![known_wallet(db, name).await?],
    };
    // None of them is spent from until it has had its turn.
    for wallet in &wallets {
        db.begin_restore(wallet.id, SystemClock.now()).await?;
    }
    let mut first = Ok(());
    for wallet in &wallets {
        let bar = reading_bar(context);
        let restored = follow.restore(wallet.id, SystemClock.now(), |_, left| show_left(&bar, left)).await;
        bar.finish_and_clear();
        match restored {
            Ok(restored) => tell_restored(context, &wallet.name, wallet.id, &restored),
            // One that cannot be read must not keep the others closed.
            Err(error) => {
                warn(format!("{}: wallet {} stays closed: {error}", error.code(), wallet.name));
                let hint =
                    "nothing of the wallet is spent until a restore has come to its end; run it again".to_owned();
                first = first.and(Err(Failure { hint, ..failed(error) }));
            }
        }
    }
    first
}

async fn rescan(context: &Context, db: &Db, follow: &mut Follow<'_>, from: u32) -> CommandResult {
    let tip = db.tip().await?.map(|(height, _)| height);
    let Some(tip) = tip.filter(|tip| from <= *tip) else {
        let message = match tip {
            None => "no block was connected yet: there is nothing to read again".to_owned(),
            Some(tip) => format!("the store has no block {from}; its last is {tip}"),
        };
        return Err(Failure::bad_input("BAD_USAGE", message, "without --rescan-from it reads on from there"));
    };
    let bar = reading_bar(context);
    let done = follow.rescan(from, tip, SystemClock.now(), |_, left| show_left(&bar, left)).await;
    bar.finish_and_clear();
    done.map_err(failed)?;
    if context.json {
        say(json!({ "event": "read again", "from": from, "to": tip }));
    } else {
        say(format!("read blocks {from} to {tip} again"));
    }
    Ok(())
}

/// Where the store is, and where the nodes are. Nodes that are behind the store have not said that they have its blocks: that
/// is no success.
async fn tell_end(context: &Context, db: &Db, chain: &BitcoinChain) -> CommandResult {
    let nodes = chain.head().await.map_err(|error| failed(error.into()))?.tip.height;
    let store = db.tip().await?.map(|(height, _)| height);
    if let Some(store) = store.filter(|store| u64::from(*store) > nodes) {
        return Err(Failure {
            code: "CHAIN_BEHIND".into(),
            messages: vec![format!("the nodes are at block {nodes}, behind the store's {store}")],
            hint: "wait until they have caught up; if they never do, is this the same chain?".to_owned(),
            exit: Exit::Outside,
        });
    }
    match store {
        _ if context.json => say(json!({ "event": "done", "height": store, "nodes": nodes })),
        None => say(format!("no block was connected; the nodes are at block {nodes}")),
        Some(store) => say(format!("at block {store}, the nodes at {nodes}")),
    }
    Ok(())
}

fn reading_bar(context: &Context) -> ProgressBar {
    let bar = if context.json { ProgressBar::hidden() } else { ProgressBar::new(0) };
    if let Ok(style) = ProgressStyle::with_template("reading again {bar:30} {human_pos}/{human_len} blocks  {elapsed}")
    {
        bar.set_style(style);
    }
    bar
}

fn show_left(bar: &ProgressBar, left: u32) {
    bar.inc(1);
    bar.set_length(bar.position() + u64::from(left));
}

/// Steps until it is told to stop. A node or a database that fails is asked again; what the store refuses ends it.
async fn go_on(context: &Context, follow: &mut Follow<'_>, once: bool) -> CommandResult {
    loop {
        let step = match follow.step(BLOCKS, SystemClock.now()).await {
            Err(error) if !once && passes(&error) => {
                warn(format!("{}: {error}; asked again", error.code()));
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            step => step.map_err(failed)?,
        };
        match step {
            Step::Forward(height) => tell(context, "connected", height),
            Step::Back(height) => tell(context, "back to", height),
            Step::Idle => {
                let seen = follow.look(SystemClock.now()).await;
                match seen {
                    Err(error) if !once && passes(&error) => warn(format!("{}: {error}; asked again", error.code())),
                    seen => {
                        seen.map_err(failed)?;
                    }
                }
                if once {
                    return Ok(());
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// A node or the database that is not there now may be there later.
fn passes(error: &FollowError) -> bool {
    use store::StoreError::{CommitUnknown, Contention, Unavailable};
    matches!(
        error,
        FollowError::Chain(_) | FollowError::Store(UtxoError::Store(Unavailable(_) | Contention(_) | CommitUnknown(_)))
    )
}

fn tell(context: &Context, what: &str, height: u32) {
    if context.json {
        say(json!({ "event": what, "height": height }));
    } else {
        say(format!("{what} block {height}"));
    }
}

fn tell_restored(context: &Context, name: &str, wallet: WalletId, restored: &Restored) {
    let texts = |hashes: &[store::utxo::Hash]| hashes.iter().map(ToString::to_string).collect::<Vec<_>>();
    if context.json {
        say(json!({
            "event": "restored", "wallet": name, "id": wallet.0, "waiting": texts(&restored.waiting),
            "settled": texts(&restored.settled), "unheard": texts(&restored.unheard),
        }));
        return;
    }
    let (waiting, settled) = (restored.waiting.len(), restored.settled.len());
    say(format!("restored {name}: of the unconfirmed transactions {waiting} wait at the node, {settled} are settled"));
    for hash in &restored.unheard {
        say(format!("no node has heard of {hash}: broadcast it again, or replace it"));
    }
}

async fn chain(context: &Context, db: &Db, arguments: &Arguments) -> Result<BitcoinChain, Failure> {
    let wallets = db.wallets().await?;
    let Some(wallet) = wallets.first() else {
        let hint = "make one: bursar utxo create hot --network regtest";
        return Err(Failure::bad_input("UTXO_UNKNOWN_WALLET", "there is no wallet to follow for", hint));
    };
    let authorization = match &arguments.login_file {
        None => None,
        Some(file) => {
            let bad = |why: String| {
                let message = format!("--login-file {}: {why}", file.display());
                Failure::bad_input("BAD_USAGE", message, "name a file with user:password, such as Core's .cookie")
            };
            let login = read_secret(file).map_err(|failure| match failure.code.as_ref() {
                "FILE_NOT_READABLE" => bad(failure.messages.join(": ")),
                _ => failure,
            })?;
            let login = String::from_utf8(login).map_err(|error| bad(error.to_string()))?;
            if !login.contains(':') {
                return Err(bad("there is no user:password in it".to_owned()));
            }
            Some(format!("Basic {}", STANDARD.encode(login)))
        }
    };
    let endpoints: Vec<EndpointSettings> = (1..)
        .zip(&arguments.nodes)
        .map(|(number, url)| EndpointSettings {
            name: format!("node {number}"),
            url: url.clone(),
            authorization: authorization.clone(),
            key: None,
            per_second: 0,
        })
        .collect();
    let settings = PoolSettings { quorum: arguments.quorum, ..PoolSettings::default() };
    let pool = Pool::new(&endpoints, &settings, Arc::new(SystemClock)).map_err(|error| {
        let hint = match error {
            BadEndpoint::Quorum { .. } => "leave --quorum out: it is more than half of the nodes then",
            BadEndpoint::Url { .. } | BadEndpoint::Credentials { .. } | BadEndpoint::Twice { .. } => {
                "--node http://127.0.0.1:8332"
            }
        };
        Failure::bad_input("BAD_USAGE", error.to_string(), hint)
    })?;
    if context.json {
        say(json!({ "event": "nodes", "nodes": endpoints.len(), "quorum": pool.quorum() }));
    } else if endpoints.len() == 1 {
        warn("one node alone: whatever it says is believed; give --node several times, and more than half must agree");
    }
    Ok(BitcoinChain::new(BitcoinSettings::new(network_of(wallet.network)), pool))
}
