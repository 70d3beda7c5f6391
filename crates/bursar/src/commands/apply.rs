//! `bursar apply FILE`: shows what a treasury file changes, and changes it in one transaction.

use std::path::PathBuf;

use custody::wallet::watch_house;
use domain::{Chain, ChainKind, Clock};
use serde_json::json;
use store::catalog::{Author, Change, read_catalog};
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Failure};
use terminal::files::read_text;
use terminal::output::table;
use tx::Family;

use super::Context;
use crate::treasury;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The treasury file (TOML): [assets.X], [chains.x], [[on_chain]], [wallet_groups.x], [[operation_wallets]], rules and bands. See
    /// examples/treasury.toml
    file: PathBuf,
    /// Show the difference and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Why, for the history
    #[arg(long, default_value = "bursar apply")]
    reason: String,
    #[command(flatten)]
    actor: Actor,
}

/// Who does it, for the history.
#[derive(Debug, clap::Args)]
pub struct Actor {
    /// Who does it, for the history
    #[arg(long, env = "BURSAR_ACTOR")]
    actor: Option<String>,
}

impl Actor {
    pub fn name(&self) -> String {
        let user = || std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).ok();
        let said = self.actor.clone().filter(|actor| !actor.trim().is_empty());
        said.or_else(user).unwrap_or_else(|| "unnamed operator".to_owned())
    }
}

pub async fn run(context: &Context, arguments: &Arguments) -> CommandResult {
    if arguments.reason.trim().is_empty() {
        return Err(Failure::bad_input("REASON_MISSING", "a reason must say something", "--reason \"case 4711\""));
    }
    let text = read_text(&arguments.file)?;
    let db = context.open().await?;
    let known = read_catalog(&mut db.read().await?).await?;
    let wanted = treasury::parse(&text, &arguments.file.display().to_string(), &known)?;
    let wallets = wanted.pinned.settings();
    let changes = if arguments.dry_run {
        db.plan_treasury(&wanted.catalog, &wallets).await?
    } else {
        let author = Author { actor: &arguments.actor.name(), reason: &arguments.reason };
        let changes = db.apply_treasury(&wanted.catalog, &wallets, &author, SystemClock.now()).await?;
        // What is paid to the house on Bitcoin is seen from now on, whether anybody follows the chain yet or not. (Of two such
        // chains the database can keep one: whoever is followed first.)
        let on_bitcoin: Vec<&Chain> =
            wanted.catalog.chains.values().filter(|chain| chain.kind == ChainKind::Bitcoin).collect();
        if let [chain] = on_bitcoin.as_slice()
            && let Some(family) = Family::of_chain(chain.kind, &chain.network)
        {
            let watched = watch_house(&db, &wanted.pinned, (&chain.name, family), SystemClock.now()).await;
            watched.map_err(super::wallet::failed)?;
        }
        changes
    };
    db.close().await;
    let listed: Vec<_> = changes
        .iter()
        .map(|change| {
            json!({
                "entity": change.entity, "field": change.field, "before": change.before, "after": change.after,
            })
        })
        .collect();
    let applied = !arguments.dry_run;
    // Its keys are believed from the file alone, so a server must know where the file is.
    let unpinned = !wanted.pinned.is_empty() && context.config.treasury.file.is_empty();
    let note =
        unpinned.then(|| format!("next: set treasury.file = \"{}\" in the configuration", arguments.file.display()));
    context.print(&json!({ "applied": applied, "changes": listed, "next": note }), || {
        note.iter().fold(show(&changes, applied), |shown, note| format!("{shown}\n{note}"))
    });
    Ok(())
}

fn show(changes: &[Change], applied: bool) -> String {
    if changes.is_empty() {
        return "nothing to change: the database already is as the file says".to_owned();
    }
    let rows: Vec<Vec<String>> = changes
        .iter()
        .map(|change| {
            let before = change.before.clone().unwrap_or_else(|| "(new)".to_owned());
            vec![change.entity.clone(), change.field.to_owned(), before, change.after.clone()]
        })
        .collect();
    let verdict = if applied { "applied" } else { "not applied (--dry-run)" };
    format!("{}\n{} changes {verdict}", table(&["what", "field", "before", "after"], &[], &rows), changes.len())
}
