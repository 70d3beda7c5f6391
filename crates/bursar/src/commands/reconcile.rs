//! `bursar reconcile spot`: what the spot engine has and the database has not, and the other way round.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use domain::transfer::Direction;
use serde_json::json;
use spot::service::Limits;
use spot::{Disk, tools};
use store::catalog::read_assets;
use terminal::failure::{CommandResult, Failure};
use terminal::output::table;
use transfer::audit::{AuditError, check_totals, check_users};
use transfer::leg::Leg;
use transfer::leg::spot::SpotLeg;
use transfer::pair::{self, PairError};
use transfer::reconcile::{Difference, Mend, Moved, Side, differences, only_at_engine};
use transfer::{Coordinator, Lent};

use super::approval::approval;
use super::{Context, decimal, serve, spot as spot_command};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Compare the database with its spot engine, transfer by transfer, and mend what is provable
    ///
    /// For when one of the two was put back from a backup (SPOT_PAIR_DATABASE_BEHIND, SPOT_PAIR_ENGINE_BEHIND). The
    /// server and the engine must be stopped; run it where the engine's folder is. What the engine has more is recorded in
    /// the database under the same id; what the database has more is carried out by the engine again under the same id. What
    /// the engine took out for a transfer to FUNDING that ended without it is undone at the engine. The history of each
    /// transfer says who did so, and why.
    /// What cannot be proven is listed and left to people. Run it with --dry-run first: it moves nothing, though the engine's
    /// log gets an empty record, as at every start and stop. A transfer that is recorded again has lost its client_order_id:
    /// tell the users not to send old orders again.
    Spot(Arguments),
}

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Only say what differs
    #[arg(long)]
    dry_run: bool,
    /// The engine's folder [default: spot.folder]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Make the pair although differences are left that cannot be mended here
    #[arg(long)]
    accept_rest: bool,
    /// The engine of this database is lost for good: bind this one, which has no database yet, in its place; if the folder
    /// has no log, a new and empty engine is made there
    #[arg(long)]
    rebind: bool,
    /// Who does this
    #[arg(long, env = "BURSAR_ACTOR", required_unless_present = "dry_run")]
    actor: Option<String>,
    /// Who else has looked at it and agrees: another person
    #[arg(long, required_unless_present = "dry_run")]
    second: Option<String>,
    /// Why, for the history
    #[arg(long, required_unless_present = "dry_run")]
    reason: Option<String>,
}

pub async fn run(context: &Context, command: &Command) -> CommandResult {
    let Command::Spot(arguments) = command;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let people = match arguments.dry_run {
        true => None,
        false => Some(approval(&text(&arguments.actor), &text(&arguments.second), &text(&arguments.reason))?),
    };
    let config = &context.config;
    let db = context.open().await?;
    let folder = arguments.folder.clone().unwrap_or_else(|| PathBuf::from(&config.spot.folder));
    // A folder that was put back may be older than the retention, and that is what this command is for.
    let settings = spot::Settings { accept_clock: true, ..serve::spot_settings(config) };
    let create = arguments.rebind && !arguments.dry_run && is_empty(&folder)?;
    let (engine, _) = spot_command::serve::open(&folder, create, &settings, Limits::default(), context.json)?;
    let leg = Arc::new(SpotLeg::engine(engine.clone()));
    let done = reconcile(context, arguments, people.as_ref(), &db, &leg, &folder).await;
    engine.stop().await;
    db.close().await;
    done
}

async fn reconcile(
    context: &Context,
    arguments: &Arguments,
    people: Option<&domain::Approval>,
    db: &store::Db,
    leg: &Arc<SpotLeg>,
    folder: &Path,
) -> CommandResult {
    match pair::check(db, leg).await {
        Ok(_) | Err(PairError::DatabaseBehind(_) | PairError::EngineBehind(_)) => {}
        Err(PairError::Other(_)) if arguments.rebind && may_rebind(db, leg).await? => {}
        Err(error) => return Err(serve::pair_failure(&error)),
    }
    let found = compare(db, leg, folder).await?;
    let Some(people) = people else {
        return show(context, db, &found).await;
    };
    let coordinator = serve::coordinator(&context.config, db, Arc::clone(leg) as Arc<dyn Leg>);
    if coordinator.renew_lease().await? == Lent::NoneFree {
        let hint = "stop servers that are not needed; a lease ends two minutes after its server";
        return Err(Failure::bad_input("NODE_NUMBERS_EXHAUSTED", "all node numbers are lent", hint));
    }
    let mut left = Vec::new();
    // In the order of their ids: a later id would make the engine forget the earlier ones. What was not sent for want of
    // money is tried once more at the end, when all deposits are there.
    for difference in found.iter().cloned() {
        if let Err(problem) = mend(&coordinator, &difference, people).await? {
            left.push(Difference { problem: Some(problem), ..difference });
        }
    }
    let again = std::mem::take(&mut left);
    for difference in again {
        let original = found.iter().find(|one| one.id == difference.id && one.only == difference.only).cloned();
        let Some(original) = original else { continue };
        if let Err(problem) = mend(&coordinator, &original, people).await? {
            left.push(Difference { problem: Some(problem), ..original });
        }
    }
    let mended = found.len() - left.len();
    if !left.is_empty() && !arguments.accept_rest {
        show(context, db, &left).await?;
        let message = format!("{mended} mended, {} differences are left", left.len());
        let hint = "bring each to an end by hand (bursar adjust, bursar transfer resolve), or say --accept-rest";
        return Err(Failure::bad_input("SPOT_PAIR_DIFFERENCES_LEFT", message, hint));
    }
    let differ = books(context, db, leg).await?;
    if let Some(problem) = &differ
        && !arguments.accept_rest
    {
        let message = format!("{mended} mended, and the books still differ: {problem}");
        let hint = "something is older than what the engine remembers: compare with newer copies, or say --accept-rest";
        return Err(Failure::bad_input("SPOT_PAIR_DIFFERENCES_LEFT", message, hint));
    }
    let counter = coordinator.accept_pair(&left, people).await.map_err(|error| serve::pair_failure(&error))?;
    let report = json!({ "mended": mended, "left": left.len(), "counter": counter, "books_differ": differ });
    context.print(&report, || {
        let done = format!("{mended} mended, {} left as they are; the two are a pair again", left.len());
        differ.map_or_else(
            || done.clone(),
            |problem| {
                format!(
                    "{done}\nthe books still differ, and the asset will be stopped: {problem}\n\
                     next: bursar adjust spot writes the difference down, then bursar transfer resume"
                )
            },
        )
    });
    Ok(())
}

async fn mend(
    coordinator: &Coordinator,
    difference: &Difference,
    people: &domain::Approval,
) -> Result<Result<(), String>, Failure> {
    let hint = "look at the database, and run this again: every mend happens once";
    coordinator.mend(difference, people).await.map_err(|error| Failure::outside("COMMAND_FAILED", &error, hint))
}

/// Is there no log in the folder, or no folder?
fn is_empty(folder: &Path) -> Result<bool, Failure> {
    Ok(!folder.is_dir() || spot::log::read::segments(&Disk::for_reading(folder))?.is_empty())
}

/// An engine of another database is never taken: it would refuse the mark. One that is marked as ours was left by a rebind
/// that was cut off.
async fn may_rebind(db: &store::Db, leg: &SpotLeg) -> Result<bool, Failure> {
    let engine = leg.pair().await.map_err(|reason| serve::pair_failure(&PairError::NoAnswer(reason)))?;
    let ours = db.pair().await?.database;
    Ok(engine.database.is_none_or(|database| database == ours))
}

/// What the totals say when every difference that is known was mended. An engine forgets what is older than its retention, so
/// what was lost before that shows only here.
async fn books(context: &Context, db: &store::Db, leg: &SpotLeg) -> Result<Option<String>, Failure> {
    let mut violation = check_totals(db, leg).await;
    if !context.config.spot.trading && matches!(violation, Ok(None)) {
        violation = check_users(db, leg).await;
    }
    match violation {
        Ok(violation) => Ok(violation.map(|found| format!("{}: {}", found.row, found.problem))),
        Err(AuditError::Store(error)) => Err(error.into()),
        Err(error @ (AuditError::NoAnswer | AuditError::NotTold)) => {
            Err(Failure::outside("LEG_ANSWER_INVALID", &error, "look at the engine's folder, and try again"))
        }
    }
}

async fn compare(db: &store::Db, leg: &SpotLeg, folder: &Path) -> Result<Vec<Difference>, Failure> {
    let failed = |error: PairError| serve::pair_failure(&error);
    let at_engine = only_at_engine(db, leg).await.map_err(failed)?;
    let wanted: BTreeSet<i64> = at_engine.iter().copied().collect();
    let mut contents = BTreeMap::new();
    if !wanted.is_empty() {
        tools::verify(&Disk::for_reading(folder), &mut |_| {}, &mut |_, operation, _| {
            let number = operation.id().number();
            if wanted.contains(&number)
                && let Some(moved) = Moved::by(operation)
            {
                contents.insert(number, moved);
            }
        })?;
    }
    differences(db, leg, &at_engine, &contents).await.map_err(failed)
}

async fn show(context: &Context, db: &store::Db, found: &[Difference]) -> CommandResult {
    let assets = read_assets(&mut db.read().await?).await?;
    let amount = |moved: &Moved| match assets.get(&moved.asset) {
        Some(asset) => format!("{} {}", decimal(moved.amount.units().into(), asset.precision), asset.symbol),
        None => format!("{} units of asset {}", moved.amount.units(), moved.asset.0),
    };
    let direction = |moved: &Moved| match moved.direction {
        Direction::ToSpot => "FUNDING to SPOT",
        Direction::ToFunding => "SPOT to FUNDING",
    };
    let only = |side: Side| match side {
        Side::Engine => "engine",
        Side::Database => "database",
    };
    let lines: Vec<serde_json::Value> = found
        .iter()
        .map(|one| {
            json!({
                "id": one.id.to_string(), "only": only(one.only),
                "user": one.moved.map(|moved| moved.user.get().to_string()),
                "direction": one.moved.as_ref().map(direction),
                "amount": one.moved.as_ref().map(amount), "ended": one.ended.map(|state| state.as_str()),
                "mend": one.mend().map(Mend::as_str), "problem": one.problem,
            })
        })
        .collect();
    context.print(&json!({ "differences": lines }), || {
        if found.is_empty() {
            return "the database and the engine have the same transfers".to_owned();
        }
        let rows: Vec<Vec<String>> = found
            .iter()
            .map(|one| {
                let text = |text: Option<String>| text.unwrap_or_else(|| "?".to_owned());
                vec![
                    one.id.to_string(),
                    only(one.only).to_owned(),
                    text(one.moved.map(|moved| moved.user.get().to_string())),
                    text(one.moved.as_ref().map(|moved| direction(moved).to_owned())),
                    text(one.moved.as_ref().map(amount)),
                    match (&one.problem, one.mend()) {
                        (Some(problem), _) => problem.clone(),
                        (None, Some(mend)) => format!("would be {}", mend.as_str()),
                        (None, None) => String::new(),
                    },
                ]
            })
            .collect();
        table(&["transfer", "only in the", "user", "direction", "amount", ""], &[2, 4], &rows)
    });
    Ok(())
}
