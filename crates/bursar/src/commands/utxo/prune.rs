//! `bursar utxo prune`: the only delete, of what is final.

use std::collections::{BTreeMap, HashMap};

use domain::Clock;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use store::Db;
use store::utxo::{Hash, UtxoError, UtxoRefusal, Wallet};
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Failure};
use terminal::output::thousands;

use super::super::Context;
use super::super::transfer::AuthorArguments;
use super::{input, known_wallet, shown};

#[derive(Debug, clap::Args)]
#[command(override_usage = "bursar utxo prune [OPTIONS] --reason <REASON> --actor <ACTOR> <WALLET> <HASH|--all>")]
#[command(group = clap::ArgGroup::new("which").required(true).args(["hash", "all"]))]
pub struct Arguments {
    /// The wallet's name
    wallet: String,
    /// The transaction's hash, as a node prints it
    #[arg(value_parser = input::hash)]
    hash: Option<Hash>,
    /// Everything that is final
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    author: AuthorArguments,
    /// Say what would go, and delete nothing
    #[arg(long)]
    dry_run: bool,
}

pub async fn run(context: &Context, db: &Db, arguments: &Arguments) -> CommandResult {
    let wallet = known_wallet(db, &arguments.wallet).await?;
    let work = Work { db, wallet: &wallet, author: &arguments.author, dry_run: arguments.dry_run };
    match arguments.hash {
        Some(hash) => {
            work.prune(hash).await?;
            let body = json!({ "wallet": wallet.name, "hash": hash.to_string(), "dry_run": arguments.dry_run });
            let said = if arguments.dry_run { "would be pruned" } else { "was pruned; its history stays" };
            context.print(&body, || format!("transaction {hash} {said}"));
        }
        None => {
            let bar = progress_bar(context.json);
            let tally = work.prune_all(&bar).await;
            bar.finish_and_clear();
            report(context, &wallet, &tally?, arguments.dry_run);
        }
    }
    Ok(())
}

fn progress_bar(quiet: bool) -> ProgressBar {
    let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(0) };
    if let Ok(style) = ProgressStyle::with_template("pruning {bar:40} {human_pos}/{human_len} looked at") {
        bar.set_style(style);
    }
    bar
}

#[derive(Default)]
struct Tally {
    pruned: u64,
    /// What may go but for one thing, which is said.
    refused: HashMap<Hash, &'static str>,
}

struct Work<'a> {
    db: &'a Db,
    wallet: &'a Wallet,
    author: &'a AuthorArguments,
    dry_run: bool,
}

impl Work<'_> {
    async fn prune(&self, hash: Hash) -> Result<(), UtxoError> {
        let AuthorArguments { actor, reason } = self.author;
        if self.dry_run {
            self.db.may_prune(self.wallet.id, hash).await
        } else {
            self.db.prune(self.wallet.id, hash, actor, reason, SystemClock.now()).await
        }
    }

    /// In waves: what spent or depended on a transaction that is gone may be final now. What was refused is asked about
    /// once more when nothing else is left, because something may have gone since.
    async fn prune_all(&self, bar: &ProgressBar) -> Result<Tally, Failure> {
        let mut tally = Tally::default();
        // How many were gone when the refused ones began to be asked about.
        let mut gone_before = 0;
        loop {
            let gone = self.wave(&mut tally, bar).await?;
            if self.dry_run || (gone == 0 && tally.pruned == gone_before) {
                return Ok(tally);
            }
            if gone == 0 {
                gone_before = tally.pruned;
                tally.refused.clear();
            }
        }
    }

    /// Looks once at all that may be final, and says how many went.
    async fn wave(&self, tally: &mut Tally, bar: &ProgressBar) -> Result<u64, Failure> {
        let (before, mut after) = (tally.pruned, None);
        loop {
            let page = self.db.prunable(self.wallet.id, after).await?;
            bar.inc_length(u64::try_from(page.len()).unwrap_or(0));
            // A page goes on after one that is still there.
            let mut left = None;
            for hash in page {
                if tally.refused.contains_key(&hash) || self.stays(hash, tally).await? {
                    left = Some(hash);
                }
                bar.inc(1);
            }
            match left {
                Some(left) => after = Some(left),
                None => return Ok(tally.pruned - before),
            }
        }
    }

    /// Prunes one, and says whether it is still there.
    async fn stays(&self, hash: Hash, tally: &mut Tally) -> Result<bool, Failure> {
        match self.prune(hash).await {
            Ok(()) => {
                tally.pruned += 1;
                Ok(self.dry_run)
            }
            Err(UtxoError::Refused(UtxoRefusal::NotFinal(why))) => {
                tally.refused.insert(hash, why);
                Ok(true)
            }
            // Another process has pruned it meanwhile.
            Err(UtxoError::Refused(UtxoRefusal::UnknownTransaction(_))) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

fn report(context: &Context, wallet: &Wallet, tally: &Tally, dry_run: bool) {
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    tally.refused.values().for_each(|why| *reasons.entry(*why).or_default() += 1);
    let refused = u64::try_from(tally.refused.len()).unwrap_or(u64::MAX);
    let body = json!({
        "wallet": wallet.name, "dry_run": dry_run, "pruned": tally.pruned, "refused": refused, "reasons": reasons,
    });
    context.print(&body, || {
        let count = shown::counted(tally.pruned, "transaction");
        let first = if dry_run {
            format!("{count} would be pruned at once; what depends on them may follow")
        } else {
            format!("{count} pruned; the history stays")
        };
        let lines = reasons.iter().map(|(why, count)| format!("\n  {}: {why}", thousands(*count)));
        let others = if refused == 0 { String::new() } else { format!("\n{} not final yet", thousands(refused)) };
        format!("{first}{others}{}", lines.collect::<String>())
    });
}
