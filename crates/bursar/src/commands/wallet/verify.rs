//! `bursar wallet verify`: every row derived again; each that differs is printed when it is found.

use std::sync::Arc;

use custody::signer::{SignerStanding, SignerWatch};
use custody::wallet::{Difference, Pinned, verify};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use store::Db;
use terminal::failure::CommandResult;
use terminal::output::{say, thousands};

use super::super::Context;
use super::{failed, group, verdict};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Only the users' wallets of this group; groups and the house's own wallets are always compared
    #[arg(long)]
    group: Option<String>,
}

pub async fn run(
    context: &Context,
    db: &Db,
    pinned: &Arc<Pinned>,
    signer: Option<&SignerWatch>,
    arguments: &Arguments,
) -> CommandResult {
    let group = arguments.group.as_deref().map(group).transpose()?;
    let bar = if context.json { ProgressBar::hidden() } else { ProgressBar::new(0) };
    if let Ok(style) = ProgressStyle::with_template("{spinner} deriving {bar:30} {human_pos}/{human_len} wallets") {
        bar.set_style(style);
    }
    let mut first = None;
    let found = |difference: Difference| {
        bar.suspend(|| {
            if context.json {
                say(json!({ "event": "differs", "row": difference.row, "what": difference.what }));
            } else {
                say(format!("{}: {}", difference.row, difference.what));
            }
        });
        first.get_or_insert(difference);
    };
    let progress = |all, done| {
        bar.set_length(all);
        bar.set_position(done);
    };
    let verified = verify(db, pinned, group.as_ref(), found, progress).await.map_err(failed);
    bar.finish_and_clear();
    let verified = verified?;
    let body = json!({
        "event": "verified", "groups": verified.groups, "operation_wallets": verified.operation_wallets,
        "user_wallets": verified.user_wallets, "differ": verified.differ,
    });
    context.print(&body, || {
        format!(
            "{} wallet groups, {} operation wallets and {} user wallets derived again: {}",
            verified.groups,
            verified.operation_wallets,
            thousands(verified.user_wallets),
            if verified.differ == 0 {
                "all agree".to_owned()
            } else {
                format!("{} differ", thousands(verified.differ))
            }
        )
    });
    let told = match signer {
        Some(signer) => Some(super::signer::ask(signer, db, pinned).await?),
        None => None,
    };
    if let Some(told) = &told {
        let body = json!({ "event": "signer", "agrees": *told == SignerStanding::Agrees, "words": told.words() });
        context.print(&body, || told.words());
    }
    verdict(verified.differ, first.as_ref())?;
    match told {
        Some(told) if told != SignerStanding::Agrees => Err(super::signer::failure(&told)),
        Some(_) | None => Ok(()),
    }
}
