//! `bursar import withdrawals`: the migration guide of the source, Steps 1 to 5. What another program has begun is followed to its end here.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Subcommand;
use custody::withdrawal::{
    ImportChange, ImportGround, ImportKind, ImportNames, PlannedImport, changed_imports, plan_import,
};
use domain::withdrawal::WithdrawalState;
use domain::{ChainName, Clock, UserId};
use serde_json::{Value, json};
use store::Db;
use store::db::describe_url;
use store::old_withdrawals::{ENDED, OldBooks, OldDatabase, OldError};
use store::outbound::read::JobReply;
use store::withdrawal::{ChangedReply, ChangedThere, ImportReply, NewImport, WithdrawalId};
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Exit, Failure};
use terminal::files::read_text;
use terminal::output::table;
use transfer::IdMaker;

use super::Context;
use crate::pins;
use crate::roles::row_of;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Take over the withdrawals of an exchange's old tables: shows what would become of each; --apply does it
    ///
    /// Stop the old workers first. What has a transaction hash is followed by it and never sent again; what has none waits for people, and what may
    /// have been paid for two of them. It can be run again: what was taken over is passed over.
    Withdrawals(Arguments),
}

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The old database: postgres://…; one with a password belongs into the environment, because others on this machine see arguments
    #[arg(long, value_name = "URL", env = "BURSAR_IMPORT_FROM", hide_env_values = true)]
    from: String,
    /// A file that says which user is which here: a line OLD-ID,NUMBER for each
    #[arg(long, value_name = "FILE")]
    users: PathBuf,
    /// A chain that has another name there: OLD=NEW; give several
    #[arg(long, value_name = "OLD=NEW")]
    chain: Vec<String>,
    /// The table of the requests there: withdrawal_requests_backup, if it was refactored already
    #[arg(long, value_name = "NAME", default_value = "withdrawal_requests")]
    table: String,
    /// Back up into this file, which must not be there, instead of a table beside the old one
    #[arg(long, value_name = "FILE", requires = "apply")]
    backup_file: Option<PathBuf>,
    /// Do it; without this, nothing is written anywhere
    #[arg(long, requires_all = ["actor", "reason"])]
    apply: bool,
    /// Who does it
    #[arg(long, env = "BURSAR_ACTOR")]
    actor: Option<String>,
    /// Why, for the history
    #[arg(long)]
    reason: Option<String>,
}

/// So many are taken over in one commit.
const BATCH: usize = 256;

pub async fn run(context: &Context, command: &Command) -> CommandResult {
    let Command::Withdrawals(arguments) = command;
    withdrawals(context, arguments).await
}

async fn withdrawals(context: &Context, arguments: &Arguments) -> CommandResult {
    let names = names(arguments)?;
    let from = describe_url(&arguments.from)?;
    let mut old = OldDatabase::open(&arguments.from, &arguments.table).await.map_err(unreadable)?;
    // Step 3 comes before anything is written: what cannot be read is not backed up as if it could.
    check_schema(context, &mut old).await?;
    let db = context.open().await?;
    let pinned = pins::pinned(&context.config, &db).await?;
    pins::check(&context.config, &db, &pinned).await?;
    let mut chains = Vec::new();
    for name in db.chain_names().await? {
        chains.push(row_of(&db, &name).await?);
    }
    let backup = if arguments.apply { Some(back_up(&mut old, arguments).await?) } else { None };
    // Read first: what is taken over from now on is in no list of changes.
    let imported = db.all_imported_withdrawals().await?;
    let ids: Vec<String> = imported.iter().map(|one| one.old_id.clone()).collect();
    let books = old.read(&ids).await.map_err(unreadable)?;
    old.close().await.map_err(unreadable)?;
    let ground = ImportGround { chains: &chains, pinned: &pinned, names: &names };
    let plan = plan_import(&ground, &books);
    let changed = changed_imports(&imported, &books);
    let known: HashMap<&str, WithdrawalId> = imported.iter().map(|one| (one.old_id.as_str(), one.id)).collect();
    let shown = Shown { from, books: &books, plan: &plan, known: &known, changed: &changed };
    let Some(backup) = backup else {
        let (nothing, left) = (Done::default(), shown.left(&Done::default()));
        context
            .print(&shown.json(None, &nothing), || shown.text(&left, "nothing was written; --apply takes them over"));
        return Ok(());
    };
    let actor = format!(
        "{}: {}",
        arguments.actor.as_deref().unwrap_or_default(),
        arguments.reason.as_deref().unwrap_or_default()
    );
    // What may have been paid twice comes first.
    let doubted = doubt(&db, &changed, &actor).await?;
    let done = Done { doubted, taken: take_over(&db, &plan, &actor).await? };
    let left = shown.left(&done);
    context.print(&shown.json(Some(&backup), &done), || {
        let new = done.taken.iter().filter(|(_, reply)| matches!(reply, ImportReply::New(_))).count();
        shown.text(&left, &format!("{backup}\n{new} taken over now"))
    });
    match left.first() {
        None => Ok(()),
        Some(first) => Err(Failure {
            code: "IMPORT_LEFT_ROWS".into(),
            messages: vec![format!("{} rows were not taken over as they are now, such as {first}", left.len())],
            hint: "mend what each says, and run it again: what was taken over is passed over".to_owned(),
            exit: Exit::Found,
        }),
    }
}

fn names(arguments: &Arguments) -> Result<ImportNames, Failure> {
    let mut chains = BTreeMap::new();
    for pair in &arguments.chain {
        let named = pair.split_once('=').and_then(|(old, new)| Some((old.to_owned(), new.parse::<ChainName>().ok()?)));
        let (old, new) = named.ok_or_else(|| {
            Failure::bad_input(
                "BAD_USAGE",
                format!("--chain {pair}: OLD=NEW is wanted"),
                "such as --chain \"BNB Chain=bsc\"",
            )
        })?;
        chains.insert(old, new);
    }
    Ok(ImportNames { users: users(&arguments.users)?, chains })
}

/// Two ids that are one user are as wrong as one id that is two: somebody would get what is somebody else's.
fn users(file: &Path) -> Result<HashMap<String, UserId>, Failure> {
    let text = read_text(file)?;
    let (mut users, mut taken) = (HashMap::new(), HashMap::new());
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |why: &str| {
            let message = format!("{}, line {}: {why}", file.display(), at + 1);
            Failure::bad_input("IMPORT_USERS_INVALID", message, "a line is OLD-ID,NUMBER")
        };
        let (old, number) = line.split_once(',').ok_or_else(|| wrong("there is no comma"))?;
        let user =
            number.trim().parse().ok().and_then(UserId::new).ok_or_else(|| wrong("the number is none of a user"))?;
        let old = old.trim().to_lowercase();
        if let Some(other) = taken.insert(user, old.clone()) {
            return Err(wrong(&format!("the number is that of {other} already")));
        }
        if users.insert(old, user).is_some() {
            return Err(wrong("the id was there before"));
        }
    }
    Ok(users)
}

fn unreadable(error: OldError) -> Failure {
    match error {
        OldError::BadUrl | OldError::BadName(_) => Failure::bad_input(
            "BAD_USAGE",
            error.to_string(),
            "--from postgres://user@host/name, and --table as it is named there",
        ),
        OldError::Database(_) | OldError::File(_) => Failure::outside(
            "IMPORT_SOURCE_UNREADABLE",
            &error,
            "the log-in must read withdrawal_requests, chains, assets, asset_on_chain and operation_wallet_addresses, and with --apply make a table, or use --backup-file",
        ),
    }
}

/// Step 3 of the source's guide.
async fn check_schema(context: &Context, old: &mut OldDatabase) -> CommandResult {
    let differences = old.differences().await.map_err(unreadable)?;
    if differences.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = differences.iter().map(ToString::to_string).collect();
    context.print(&json!({ "differences": lines }), || lines.join("\n"));
    let message = format!("{} columns are not as the source has them before its refactoring", lines.len());
    let hint = "if it was refactored already, the rows as they were are in the backup: --table withdrawal_requests_backup; what has changed since is not \
                taken over, and two people look at the rest";
    Err(Failure::bad_input("IMPORT_SCHEMA_DIFFERS", message, hint))
}

/// Step 1 of the source's guide. Says what it is.
async fn back_up(old: &mut OldDatabase, arguments: &Arguments) -> Result<String, Failure> {
    let Some(file) = &arguments.backup_file else {
        if arguments.table.ends_with("_backup") {
            return Ok(format!("{} is a backup itself", arguments.table));
        }
        let backup = old.back_up().await.map_err(unreadable)?;
        let is = if backup.made { "was made" } else { "was there and was left as it is" };
        return Ok(format!(
            "backup: the table {} {is}: {} rows, {} rows are newer",
            backup.table, backup.rows, backup.newer
        ));
    };
    let taken = |error: std::io::Error| {
        Failure::outside(
            "FILE_NOT_WRITABLE",
            &error,
            format!("{} must not be there, and its folder must be writable", file.display()),
        )
    };
    let mut into = OpenOptions::new().write(true).create_new(true).open(file).map_err(taken)?;
    let (rows, sum) = old.dump(&mut into).await.map_err(unreadable)?;
    into.sync_all().map_err(taken)?;
    let beside = PathBuf::from(format!("{}.crc32c", file.display()));
    let mut note = OpenOptions::new().write(true).create_new(true).open(&beside).map_err(taken)?;
    writeln!(note, "{sum:08x} {rows}").and_then(|()| note.sync_all()).map_err(taken)?;
    Ok(format!("backup: the file {} with {rows} rows; CRC-32C {sum:08x}, in {}", file.display(), beside.display()))
}

/// What the other program has gone on with waits for two people, and what is about to be paid a second time is called off. What cannot be written keeps
/// nothing else from that: it is told when all was tried, and the next run does it again.
async fn doubt(db: &Db, changed: &[ImportChange], actor: &str) -> Result<Vec<ChangedReply>, Failure> {
    let (mut replies, mut failed) = (Vec::with_capacity(changed.len()), None);
    for batch in changed.chunks(BATCH) {
        let there = |one: &ImportChange| ChangedThere { id: one.id, followed: one.followed, words: one.words.clone() };
        let there: Vec<ChangedThere> = batch.iter().map(there).collect();
        match db.doubt_imports(&there, actor, SystemClock.now()).await {
            Ok(some) => replies.extend(some),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    match failed {
        None => Ok(replies),
        Some(error) => Err(error.into()),
    }
}

/// Step 4. Each batch is one commit; whoever is killed between two is followed by the next run.
async fn take_over(db: &Db, plan: &[PlannedImport], actor: &str) -> Result<Vec<(String, ImportReply)>, Failure> {
    let ids = IdMaker::new(format!("import-{}-{}", std::process::id(), SystemClock.now().micros()));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    if !ids.renew(db, &clock).await? {
        let hint = "stop servers that are not needed; a lease ends two minutes after its server";
        return Err(Failure::bad_input("NODE_NUMBERS_EXHAUSTED", "all node numbers are lent", hint));
    }
    let make = || ids.next(&SystemClock).ok().map(|id| id.number());
    let mut done = Vec::new();
    let drafts: Vec<_> = plan.iter().filter_map(|one| one.draft.as_ref().ok()).collect();
    for batch in drafts.chunks(BATCH) {
        ids.renew(db, &clock).await?;
        let new: Option<Vec<NewImport>> = batch.iter().map(|draft| draft.numbered(&make)).collect();
        let new = new.ok_or_else(|| {
            Failure::bad_input(
                "NODE_NUMBERS_EXHAUSTED",
                "this process has no number to make ids with",
                "run it again: what was taken over is passed over",
            )
        })?;
        let replies = db.import_withdrawals(&new, actor, SystemClock.now()).await?;
        done.extend(new.into_iter().map(|one| one.old_id).zip(replies));
    }
    ids.give_back(db).await?;
    Ok(done)
}

/// What was done. Nothing without --apply.
#[derive(Default)]
struct Done {
    /// To each that the other program has gone on with, in their order.
    doubted: Vec<ChangedReply>,
    taken: Vec<(String, ImportReply)>,
}

/// What is told.
struct Shown<'a> {
    from: String,
    books: &'a OldBooks,
    plan: &'a [PlannedImport],
    known: &'a HashMap<&'a str, WithdrawalId>,
    changed: &'a [ImportChange],
}

/// What becomes of one that the other program has gone on with.
fn then(change: &ImportChange, reply: Option<ChangedReply>) -> String {
    let id = change.id;
    match reply {
        None => "two people look, once --apply says so".to_owned(),
        Some(ChangedReply::Doubted | ChangedReply::Before) => "two people have to look at it".to_owned(),
        Some(ChangedReply::DoubtedWithJob(JobReply::Done)) => {
            format!(
                "its job here is called off and ends as soon as that is safe; what nodes have of it may be paid twice: bursar withdrawal show {id}"
            )
        }
        Some(ChangedReply::DoubtedWithJob(JobReply::NotNow(state))) => {
            format!(
                "its job here is {state} and cannot be called off: it may be paid twice: bursar withdrawal show {id}"
            )
        }
        Some(ChangedReply::DoubtedWithJob(
            JobReply::NoSuchJob | JobReply::NeverReplaced | JobReply::Requester | JobReply::KeyOff,
        )) => {
            format!("its job here cannot be called off: it may be paid twice: bursar withdrawal show {id}")
        }
        Some(ChangedReply::TooLate(WithdrawalState::Queued)) => {
            "here it is followed by the hash that it had".to_owned()
        }
        Some(ChangedReply::TooLate(state)) => format!("here it is {state} already: bursar withdrawal show {id}"),
    }
}

impl Shown<'_> {
    /// How many of each status go each way.
    fn ways(&self) -> BTreeMap<(String, ImportKind), usize> {
        let mut ways = BTreeMap::new();
        for one in self.plan {
            *ways.entry((one.status.clone(), one.kind())).or_default() += 1;
        }
        ways
    }

    /// What is not as it should be: rows that have changed since they were taken over, and why others are not, in the plan or when they were to be.
    fn left(&self, done: &Done) -> Vec<String> {
        let mut replies = done.doubted.iter().copied();
        let changed = self.changed.iter().map(|one| (one, replies.next()));
        let mut lines: Vec<String> =
            changed.map(|(one, reply)| format!("{}: {}; {}", one.old_id, one.words, then(one, reply))).collect();
        let live = self.books.live.as_deref().unwrap_or_default();
        let made_since = |(id, status): &(String, String)| {
            format!("{id}: it is {status} in {live}, and was made after {live} was copied: nothing reads it there")
        };
        lines.extend(self.books.newer.iter().map(made_since));
        let told: HashSet<&str> = self.changed.iter().map(|one| one.old_id.as_str()).collect();
        let refused = self.plan.iter().filter_map(|one| Some((one.old_id.as_str(), one.draft.as_ref().err()?.clone())));
        let later = done.taken.iter().filter_map(|(old, reply)| match reply {
            ImportReply::New(_) | ImportReply::Before(_) => None,
            ImportReply::Changed { id, old_status, .. } => {
                let words = format!(
                    "it was {old_status} when it became {id}, and has changed since: the other program is still at work"
                );
                Some((old.as_str(), words))
            }
            ImportReply::Refused(refusal) => Some((old.as_str(), refusal.words().to_owned())),
        });
        let others = refused.chain(later).filter(|(old, _)| !told.contains(old));
        lines.extend(others.map(|(old, why)| format!("{old}: {why}")));
        lines
    }

    fn text(&self, left: &[String], end: &str) -> String {
        let mut rows: Vec<Vec<String>> = Vec::new();
        for count in self.books.counts.iter().filter(|count| ENDED.contains(&count.status.as_str())) {
            let what = match (count.status.as_str(), count.hashed) {
                ("completed", _) => "left there: it has ended",
                (_, true) => "left there: it has ended, though it has a hash: was it paid?",
                (_, false) => "left there: it has ended",
            };
            rows.push(vec![count.status.clone(), count.rows.to_string(), what.to_owned()]);
        }
        for ((status, kind), count) in self.ways() {
            rows.push(vec![status, count.to_string(), kind.words().to_owned()]);
        }
        let mut lines = vec![self.from.clone(), table(&["status there", "rows", "what becomes of them"], &[1], &rows)];
        lines.extend_from_slice(left);
        let before = self.plan.iter().filter(|one| self.known.contains_key(one.old_id.as_str())).count();
        lines.push(format!("{before} of them were taken over before"));
        lines.push(end.to_owned());
        lines.join("\n")
    }

    fn json(&self, backup: Option<&str>, done: &Done) -> Value {
        let counts: Vec<Value> = self
            .books
            .counts
            .iter()
            .map(|one| json!({ "status": one.status, "hashed": one.hashed, "rows": one.rows, "ended": ENDED.contains(&one.status.as_str()) }))
            .collect();
        let rows: Vec<Value> = self
            .plan
            .iter()
            .map(|one| {
                let known = self.known.get(one.old_id.as_str()).map(ToString::to_string);
                json!({ "id": one.old_id, "status": one.status, "becomes": one.kind().words(), "why_not": one.draft.as_ref().err(), "before": known })
            })
            .collect();
        let mut replies = done.doubted.iter().copied();
        let changed: Vec<Value> = self
            .changed
            .iter()
            .map(|one| {
                let then = then(one, replies.next());
                json!({ "id": one.old_id, "withdrawal": one.id.to_string(), "changed": one.words, "then": then })
            })
            .collect();
        let done: Vec<Value> = done
            .taken
            .iter()
            .map(|(old, reply)| match reply {
                ImportReply::New(row) => {
                    json!({ "id": old, "withdrawal": row.id.to_string(), "state": row.state.as_str() })
                }
                ImportReply::Before(id) => json!({ "id": old, "withdrawal": id.to_string(), "before": true }),
                ImportReply::Changed { id, .. } => json!({ "id": old, "withdrawal": id.to_string(), "changed": true }),
                ImportReply::Refused(refusal) => json!({ "id": old, "why_not": refusal.words() }),
            })
            .collect();
        json!({ "from": self.from, "counts": counts, "rows": rows, "changed": changed, "backup": backup, "done": done })
    }
}

#[cfg(test)]
mod tests {
    use domain::outbound::JobState;

    use super::*;

    #[test]
    fn what_the_other_program_has_gone_on_with_is_named_once_and_first() {
        let id = WithdrawalId::new(7).unwrap();
        let change = ImportChange {
            old_id: "one".to_owned(),
            id,
            followed: false,
            words: "it was pending, and is completed now".to_owned(),
        };
        let refused = |old: &str| PlannedImport {
            old_id: old.to_owned(),
            status: "pending".to_owned(),
            draft: Err("no such user".to_owned()),
        };
        let (plan, known) = ([refused("one"), refused("two")], HashMap::from([("one", id)]));
        let books = OldBooks::default();
        let shown = Shown { from: String::new(), books: &books, plan: &plan, known: &known, changed: &[change] };
        let taken = vec![("one".to_owned(), ImportReply::Changed { id, old_status: "pending".to_owned(), hash: None })];
        for (reply, then) in [
            (ChangedReply::Doubted, "two people"),
            (ChangedReply::DoubtedWithJob(JobReply::Done), "is called off"),
            (
                ChangedReply::DoubtedWithJob(JobReply::NotNow(JobState::Broadcasted)),
                "is broadcasted and cannot be called off",
            ),
            (ChangedReply::TooLate(WithdrawalState::Queued), "followed by the hash"),
            (ChangedReply::TooLate(WithdrawalState::Cancelled), "cancelled already"),
        ] {
            let left = shown.left(&Done { doubted: vec![reply], taken: taken.clone() });
            assert_eq!(left.len(), 2, "{left:?}");
            assert!(left[0].starts_with("one: it was pending, and is completed now; ") && left[0].contains(then));
            assert_eq!(left[1], "two: no such user");
        }
        assert!(shown.left(&Done::default())[0].contains("--apply"));
    }
}
