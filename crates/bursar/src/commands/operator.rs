//! `bursar operator …`: who looks after other people's money, and what each has done.

use serde_json::json;
use store::Db;
use store::operator::{LogFilter, LogLine, ShownOperator};
use terminal::failure::CommandResult;
use terminal::output::table;

use super::Context;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List operators with their roles and keys, also those that are switched off
    ///
    /// Who is an operator stands in the treasury file ([[operator]]); bursar apply makes it so.
    List,
    /// List what operators did, and what was refused, newest first
    Log(LogArguments),
}

#[derive(Debug, clap::Args)]
pub struct LogArguments {
    /// Only of this person
    #[arg(long, value_name = "NAME")]
    operator: Option<String>,
    /// Only of this: a withdrawal, a job, a deposit, or a wallet's address
    #[arg(long, value_name = "ID")]
    subject: Option<String>,
    /// Only this: assign, review, retry, reject or approve; and at the command line also judge, cancel, bump, resume or collect
    #[arg(long)]
    action: Option<String>,
    /// The next page: before this line
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(i64).range(1..))]
    cursor: Option<i64>,
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    limit: i64,
}

pub async fn run(context: &Context, command: &Command) -> CommandResult {
    let db = context.open().await?;
    let done = match command {
        Command::List => list(context, &db).await,
        Command::Log(arguments) => log(context, &db, arguments).await,
    };
    db.close().await;
    done
}

async fn list(context: &Context, db: &Db) -> CommandResult {
    let operators = db.operators().await?;
    let keys = |one: &ShownOperator| -> Vec<serde_json::Value> {
        let key = |(name, (key, active)): (&String, &(store::operator::OperatorKey, bool))| json!({ "key": name, "kind": key.kind(), "public": key.public, "active": active });
        one.keys.iter().map(key).collect()
    };
    let listed: Vec<_> = operators
        .iter()
        .map(|one| {
            json!({ "name": one.row.name.as_str(), "role": one.row.role.as_str(), "user_id": one.row.user.map(|user| user.get().to_string()),
                "active": one.row.active, "keys": keys(one), "created_at": one.created.to_string(), "updated_at": one.updated.to_string() })
        })
        .collect();
    context.print(&json!({ "operators": listed }), || {
        if operators.is_empty() {
            return "no operators: [[operator]] in the treasury file, then bursar apply".to_owned();
        }
        let row = |one: &ShownOperator| {
            let named = |(name, (_, active)): (&String, &(store::operator::OperatorKey, bool))| {
                if *active { name.clone() } else { format!("{name} (off)") }
            };
            let keys: Vec<String> = one.keys.iter().map(named).collect();
            let user = one.row.user.map_or_else(String::new, |user| user.get().to_string());
            let active = if one.row.active { "yes" } else { "no" };
            vec![one.row.name.to_string(), one.row.role.to_string(), active.to_owned(), user, keys.join(", ")]
        };
        table(&["operator", "role", "active", "user", "keys"], &[], &operators.iter().map(row).collect::<Vec<_>>())
    });
    Ok(())
}

async fn log(context: &Context, db: &Db, arguments: &LogArguments) -> CommandResult {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let filter = LogFilter {
        operator: text(&arguments.operator),
        subject: text(&arguments.subject),
        action: text(&arguments.action),
    };
    let lines = db.operator_log(&filter, arguments.cursor.unwrap_or(i64::MAX), arguments.limit).await?;
    let full = i64::try_from(lines.len()).is_ok_and(|count| count == arguments.limit);
    let next = lines.last().filter(|_| full).map(|last| last.id);
    let listed: Vec<_> = lines
        .iter()
        .map(|LogLine { id, line, at }| {
            json!({ "line_id": id.to_string(), "at": at.to_string(), "operator": line.operator, "door": line.door.as_str(),
                "action": line.action, "subject": line.subject, "outcome": line.outcome, "reason": line.reason, "request_id": line.request_id })
        })
        .collect();
    context.print(&json!({ "lines": listed, "next_cursor": next.map(|next| next.to_string()) }), || {
        if lines.is_empty() {
            return "nobody has done anything".to_owned();
        }
        let row = |LogLine { line, at, .. }: &LogLine| {
            let texts = [&line.operator, &line.action, &line.subject, &line.outcome, &line.reason];
            std::iter::once(at.to_string()).chain(texts.into_iter().cloned()).collect()
        };
        let rows: Vec<Vec<String>> = lines.iter().map(row).collect();
        let shown = table(&["at", "operator", "action", "on", "outcome", "reason"], &[], &rows);
        next.iter().fold(shown, |shown, next| format!("{shown}\nmore: --cursor {next}"))
    });
    Ok(())
}
