//! `bursar utxo follow`: all wallets kept in step with Bitcoin nodes; a backup brought up to date.

use std::time::Duration;

use chain::bitcoin::BitcoinChain;
use chain::{Chain, ChainError};
use custody::bitcoin::{Behind, Follow, FollowError, Restored, Step, Upkeep};
use domain::{Clock, Timestamp};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use store::Db;
use store::grants::DatabaseRole;
use store::utxo::{UtxoError, Wallet, WalletId, WalletStatus};
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Exit, Failure};
use terminal::output::say;
use tokio::signal::unix::{SignalKind, signal};

use super::super::Context;
use super::super::grants::check_own;
use super::known_wallet;
use super::mark::Mark;
use super::nodes::{NodeArguments, chain};
use super::trouble::Trouble;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    nodes: NodeArguments,
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
    /// Read the blocks from this one on once more: an address was added that they may have paid. What is found is held until
    /// all of them were read; interrupted, the next run goes on where this one was
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

/// The mark is raised after so long even if nothing is known to have changed: payouts are made by other processes.
const MARK_MICROS: i64 = 60_000_000;

/// `--once` looks so often for a block that the nodes have and do not show, before it fails.
const TRIES: u32 = 5;

/// How often leases that ended are swept, and the nodes asked for their limits.
const UPKEEP_PAUSE: Duration = Duration::from_secs(10);

fn failed(error: FollowError) -> Failure {
    match error {
        FollowError::Store(error) => error.into(),
        other => Failure::outside(other.code(), &other, "see the page; the store is as it was before this step"),
    }
}

pub async fn run(context: &Context, db: &Db, arguments: &Arguments) -> CommandResult {
    check_own(context, db, DatabaseRole::Follower, false).await?;
    let (chain, quorum) = chain(context, db, &arguments.nodes).await?;
    if context.json {
        say(json!({ "event": "nodes", "nodes": arguments.nodes.count(), "quorum": quorum }));
    }
    if !arguments.once {
        db.watch_in_memory();
    }
    if let Some(from) = arguments.rescan_from {
        begin_rescan(db, from).await?;
    }
    let trouble = |error| Failure::outside("INTERNAL", &error, "this is a bug in Bursar: please report it");
    let mut terminate = signal(SignalKind::terminate()).map_err(trouble)?;
    let run = Run {
        context,
        db,
        chain: &chain,
        follow: Follow::new(db, &chain, arguments.birthday),
        once: arguments.once,
        trouble: Trouble::new(context.json),
        mark: Mark::of(context, db).await?,
        marked_at: None,
        reading: None,
    };
    let upkeep = Upkeep::default();
    tokio::select! {
        done = run.follow_to_end(arguments) => {
            // One that ends soon may have ended before the first round.
            if let (Ok(()), true, Err(error)) =
                (&done, arguments.once, upkeep.round(db, Some(&chain), SystemClock.now()).await)
            {
                tracing::debug!(code = error.code(), %error, "leases are swept the next time");
            }
            done
        }
        () = upkeep.watch(db, Some(&chain), &SystemClock, UPKEEP_PAUSE) => Ok(()),
        _ = tokio::signal::ctrl_c() => Ok(()),
        _ = terminate.recv() => Ok(()),
    }
}

/// From here on it is in the database, and whichever follower runs goes on with it.
async fn begin_rescan(db: &Db, from: u32) -> CommandResult {
    let tip = db.tip().await?.map(|(height, _)| height);
    if tip.is_none_or(|tip| from > tip) {
        let message = match tip {
            None => "no block was connected yet: there is nothing to read again".to_owned(),
            Some(tip) => format!("the store has no block {from}; its last is {tip}"),
        };
        return Err(Failure::bad_input("BAD_USAGE", message, "without --rescan-from it reads on from there"));
    }
    Ok(db.begin_rescan(from).await?)
}

struct Run<'a> {
    context: &'a Context,
    db: &'a Db,
    chain: &'a BitcoinChain,
    follow: Follow<'a>,
    once: bool,
    trouble: Trouble,
    mark: Mark,
    /// When the mark was last raised.
    marked_at: Option<Timestamp>,
    /// A rescan that is open: where it was when it was first seen, and its progress.
    reading: Option<(u32, ProgressBar)>,
}

impl Run<'_> {
    async fn follow_to_end(mut self, arguments: &Arguments) -> CommandResult {
        // Before the nodes are asked: nothing may be selected while they are waited for.
        self.notice_backup().await?;
        self.reach_nodes().await?;
        if let Some(next) = self.db.followed().await?.rescan_next {
            self.reading = Some((next, reading_bar(self.context)));
        }
        let named = match &arguments.restore {
            None => Vec::new(),
            Some(ToRestore::All) => self.db.wallets().await?,
            Some(ToRestore::Named(name)) => vec![known_wallet(self.db, name).await?],
        };
        self.restore(named).await?;
        self.restore_closed().await?;
        self.go_on().await?;
        tell_end(self.context, self.db, self.chain).await
    }

    /// Whether the nodes serve the wallets' network. Nodes that do not answer are waited for; `--once` does not wait.
    async fn reach_nodes(&mut self) -> CommandResult {
        loop {
            match self.chain.check_network().await.map_err(FollowError::from) {
                Err(error) if !matches!(error, FollowError::Chain(ChainError::WrongNetwork { .. })) => {
                    self.wait_out(error).await?;
                }
                reached => return reached.map_err(failed),
            }
        }
    }

    /// What passes is told and waited out. What does not, and everything with `--once`, ends the command.
    async fn wait_out(&mut self, error: FollowError) -> CommandResult {
        if self.once || !passes(&error) {
            return Err(failed(error));
        }
        self.trouble.tell(error.code(), &failed(error).messages.join(": "));
        tokio::time::sleep(PAUSE).await;
        Ok(())
    }

    /// A database that is older than what this machine has written down was put back from a backup.
    async fn notice_backup(&mut self) -> CommandResult {
        if self.mark.notice_backup(self.db).await? {
            let words = "the database is older than its followers know: it was put back from a backup. Nothing of its wallets is \
                         spent until the nodes were asked what has happened since";
            self.trouble.tell("UTXO_DATABASE_BEHIND", words);
        }
        if self.mark.notice_stranger(self.db).await? {
            let words = "others have followed for this database, and this machine never has: whether it was put back from a backup \
                         is not known here. Nothing of its wallets is spent until the nodes were asked";
            self.trouble.tell("UTXO_DATABASE_BEHIND", words);
        }
        Ok(())
    }

    /// Wallets that a backup has closed, or a restore that did not come to its end. One that was imported waits for `--restore`:
    /// its import may still be running.
    async fn restore_closed(&mut self) -> CommandResult {
        let closed = |wallet: &Wallet| wallet.status == WalletStatus::Restoring && wallet.unread_from.is_none();
        self.restore(self.db.wallets().await?.into_iter().filter(closed).collect()).await
    }

    async fn restore(&mut self, mut wallets: Vec<Wallet>) -> CommandResult {
        // None of them is spent from until it has had its turn.
        for wallet in &wallets {
            self.db.begin_restore(wallet.id, SystemClock.now()).await?;
        }
        loop {
            let (mut left, mut first) = (Vec::new(), None);
            for wallet in wallets {
                // One that cannot be read must not keep the others closed.
                if let Err(error) = self.restore_one(&wallet).await {
                    left.push(wallet);
                    first = first.or(Some(error));
                }
            }
            let Some(error) = first else { return Ok(()) };
            if self.once || !passes(&error) {
                let hint =
                    "nothing of the wallet is spent until a restore has come to its end; run it again".to_owned();
                return Err(Failure { hint, ..failed(error) });
            }
            wallets = left;
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn restore_one(&mut self, wallet: &Wallet) -> Result<(), FollowError> {
        let bar = reading_bar(self.context);
        let restored = self.follow.restore(wallet.id, SystemClock.now(), |_, left| show_left(&bar, left)).await;
        bar.finish_and_clear();
        match restored {
            Ok(restored) => tell_restored(self.context, &wallet.name, wallet.id, &restored),
            Err(error) => {
                self.trouble.tell(error.code(), &format!("wallet {} stays closed: {error}", wallet.name));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Steps until it is told to stop. A node or a database that fails is asked again; what the store refuses ends it.
    async fn go_on(&mut self) -> CommandResult {
        let mut tries = 0;
        loop {
            let step = self.turn().await;
            // After every step that changed something, not only at rest: a first sync takes hours.
            let well = match &step {
                Ok(_) => self.raise_mark().await?,
                Err(_) => true,
            };
            match step {
                Err(error) => self.wait_out(error).await?,
                Ok(Step::Forward(height)) => tell(self.context, "connected", height),
                Ok(Step::Back(height)) => tell(self.context, "back to", height),
                Ok(Step::Again { height, left }) => {
                    let context = self.context;
                    let (_, bar) = self.reading.get_or_insert_with(|| (height, reading_bar(context)));
                    show_left(bar, left);
                }
                Ok(Step::Idle) => {
                    self.tell_state(well).await?;
                    if self.once {
                        match self.unfinished().await? {
                            None => return Ok(()),
                            Some(failure) if tries == TRIES => return Err(failure),
                            Some(_) => tries += 1,
                        }
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// A step; and when there is nothing new, the mempool.
    async fn turn(&mut self) -> Result<Step, FollowError> {
        let step = self.follow.step(BLOCKS, SystemClock.now()).await?;
        let changed = step != Step::Idle || self.follow.look(SystemClock.now()).await? > 0;
        if changed {
            self.marked_at = None;
        }
        Ok(step)
    }

    /// Writes down that the database has come so far, if it has changed. If it is behind by now, a backup was put in its place
    /// under our feet. False: it could not be written down.
    async fn raise_mark(&mut self) -> Result<bool, Failure> {
        let now = SystemClock.now();
        if self.marked_at.is_some_and(|at| now < at.plus_micros(MARK_MICROS)) {
            return Ok(true);
        }
        match self.mark.raise(self.db).await {
            Ok(true) => self.marked_at = Some(now),
            Ok(false) => {
                self.notice_backup().await?;
                self.restore_closed().await?;
            }
            Err(failure) if self.once => return Err(failure),
            Err(failure) => {
                self.trouble.tell(&failure.code, &failure.messages.join(": "));
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// That nodes are behind, that they are well again, and that a rescan has come to its end.
    async fn tell_state(&mut self, well: bool) -> CommandResult {
        match self.follow.behind() {
            // Then the command ends, and says so itself.
            Some(_) if self.once => {}
            Some(behind) => self.trouble.tell("CHAIN_BEHIND", &words_of(behind)),
            None if well => self.trouble.over(),
            None => {}
        }
        if self.reading.is_some() && self.db.followed().await?.rescan_next.is_none() {
            let to = self.db.tip().await?.map_or(0, |(height, _)| height);
            if let Some((from, bar)) = self.reading.take() {
                bar.finish_and_clear();
                if self.context.json {
                    say(json!({ "event": "read again", "from": from, "to": to }));
                } else {
                    say(format!("read blocks {from} to {to} again"));
                }
            }
        }
        Ok(())
    }

    /// Why the store has not got all that the nodes have, although no step was left. `None`: it has, or the nodes are behind.
    async fn unfinished(&self) -> Result<Option<Failure>, Failure> {
        if self.follow.behind().is_some() {
            return Ok(None);
        }
        let height = match self.follow.missed() {
            None => self.db.followed().await?.rescan_next.map(u64::from),
            missed => missed,
        };
        Ok(height.map(|height| failed(ChainError::BlockMissing { height }.into())))
    }
}

fn words_of(behind: Behind) -> String {
    format!("the nodes are at block {}, behind the store's {}", behind.nodes, behind.store)
}

/// Where the store is, and where the nodes are. Nodes that are behind the store have not said that they have its blocks: that
/// is no success.
async fn tell_end(context: &Context, db: &Db, chain: &BitcoinChain) -> CommandResult {
    let nodes = chain.head().await.map_err(|error| failed(error.into()))?.tip.height;
    let store = db.tip().await?.map(|(height, _)| height);
    if let Some(store) = store.filter(|store| u64::from(*store) > nodes) {
        return Err(Failure {
            code: "CHAIN_BEHIND".into(),
            messages: vec![words_of(Behind { store, nodes })],
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
