//! `bursar wallet add`: users get their deposit wallets, thousands at a time.

use std::sync::Arc;

use custody::wallet::{Pinned, assign};
use domain::{Clock, UserId};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use store::Db;
use store::wallet::users::MOST;
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Failure};
use terminal::output::thousands;

use super::super::Context;
use super::{count, difference_json, failed, group, user, verdict, wallet_json, wallet_table};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The wallet group; its purpose is deposit
    #[arg(long)]
    group: String,
    /// A user's number; may be given several times
    #[arg(long, allow_negative_numbers = true, required_unless_present = "from", conflicts_with_all = ["from", "to"])]
    user: Vec<i64>,
    /// All users from this number on …
    #[arg(long, requires = "to", allow_negative_numbers = true)]
    from: Option<i64>,
    /// … to this one, both included
    #[arg(long, requires = "from", allow_negative_numbers = true)]
    to: Option<i64>,
}

pub async fn run(context: &Context, db: &Db, pinned: &Arc<Pinned>, arguments: &Arguments) -> CommandResult {
    let group = group(&arguments.group)?;
    if let Some((from, to)) = arguments.from.zip(arguments.to) {
        return range(context, db, pinned, &group, user(from)?.get(), user(to)?.get()).await;
    }
    let users = arguments.user.iter().map(|number| user(*number)).collect::<Result<Vec<UserId>, _>>()?;
    let assigned = assign(db, pinned, &group, &users, SystemClock.now()).await.map_err(failed)?;
    let body = json!({
        "added": assigned.added,
        "wallets": assigned.wallets.iter().map(wallet_json).collect::<Vec<_>>(),
        "differ": assigned.differ.iter().map(difference_json).collect::<Vec<_>>(),
    });
    context.print(&body, || format!("{}\n{} new", wallet_table(&assigned.wallets), thousands(assigned.added)));
    verdict(count(assigned.differ.len()), assigned.differ.first())
}

/// Page by page, so that a million users need no more memory than ten thousand.
async fn range(
    context: &Context,
    db: &Db,
    pinned: &Arc<Pinned>,
    group: &domain::GroupId,
    from: i64,
    to: i64,
) -> CommandResult {
    if from > to {
        return Err(Failure::bad_input("INVALID_USER", format!("{from} is greater than {to}"), "--from 1 --to 100000"));
    }
    let all = to.abs_diff(from).saturating_add(1);
    let bar = if context.json { ProgressBar::hidden() } else { ProgressBar::new(all) };
    if let Ok(style) = ProgressStyle::with_template("{spinner} deriving {bar:30} {human_pos}/{human_len} users") {
        bar.set_style(style);
    }
    let (mut added, mut differ, mut first) = (0, 0, None);
    let mut next = Some(from);
    while let Some(start) = next {
        let most = i64::try_from(MOST).unwrap_or(i64::MAX);
        let end = start.saturating_add(most - 1).min(to);
        let users: Vec<UserId> = (start..=end).filter_map(UserId::new).collect();
        let assigned = assign(db, pinned, group, &users, SystemClock.now()).await.map_err(failed)?;
        bar.inc(count(users.len()));
        added += assigned.added;
        differ += count(assigned.differ.len());
        first = first.or_else(|| assigned.differ.into_iter().next());
        next = (end < to).then(|| end + 1);
    }
    bar.finish_and_clear();
    context.print(&json!({ "users": all, "added": added, "differ": differ }), || {
        format!("{} users have their wallets in {group}, {} of them new", thousands(all - differ), thousands(added))
    });
    verdict(differ, first.as_ref())
}
