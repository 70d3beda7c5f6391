//! `bursar grants`: a PostgreSQL role for each role of Bursar, with the rights that its work needs and no others.

use serde_json::json;
use store::Db;
use store::db::Engine;
use store::grants::apply::script;
use store::grants::{DatabaseRole, GrantError, RoleDifference, markdown};
use terminal::failure::{CommandResult, Exit, Failure};
use terminal::output::say;

use super::Context;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Make the roles and bring their rights to what they should be, in one transaction; run again, it does nothing
    #[arg(long, conflicts_with_all = ["check", "matrix"])]
    apply: bool,
    /// Say how roles and rights differ from what they should be; exit 1 if they do
    #[arg(long, conflicts_with = "matrix")]
    check: bool,
    /// Print who may do what with which table, as in docs/guide/roles.md
    #[arg(long)]
    matrix: bool,
    /// What the names of the roles begin with: several Bursars on one server have different ones
    #[arg(long, default_value = "bursar_", value_name = "TEXT")]
    prefix: String,
}

fn failure(error: GrantError) -> Failure {
    let hint = match error {
        GrantError::Store(error) => {
            let mut failure = Failure::from(error);
            "run it as the owner of the tables, who may make roles".clone_into(&mut failure.hint);
            return failure;
        }
        GrantError::NoRoles => "nothing is to be done: guard the file and its folder; separate roles need PostgreSQL",
        GrantError::BadPrefix(_) => "such as bursar_",
        GrantError::Stays(_) => {
            "it was given by somebody other than the owner, or to a role that the owner cannot change: take it away as the server's administrator"
        }
    };
    Failure::bad_input(error.code(), error.to_string(), hint)
}

pub async fn run(context: &Context, arguments: &Arguments) -> CommandResult {
    if arguments.matrix {
        say(markdown());
        return Ok(());
    }
    let url = &context.config.database.url;
    if Engine::of_url(url) == Some(Engine::Sqlite) {
        if arguments.apply || arguments.check {
            return Err(failure(GrantError::NoRoles));
        }
        let words = "SQLite has no roles: who may write the file may do everything. Guard the file and its folder.";
        context.print(&json!({ "engine": "sqlite", "statements": [] }), || words.to_owned());
        return Ok(());
    }
    if arguments.apply {
        return apply(context, &arguments.prefix).await;
    }
    if arguments.check {
        return check(context, &arguments.prefix).await;
    }
    let statements = script(&arguments.prefix).map_err(failure)?;
    context.print(&json!({ "engine": "postgres", "statements": statements }), || {
        let lines: Vec<String> = statements.iter().map(|statement| format!("{statement};")).collect();
        format!("BEGIN;\n{}\nCOMMIT;", lines.join("\n"))
    });
    Ok(())
}

async fn apply(context: &Context, prefix: &str) -> CommandResult {
    let db = context.open().await?;
    let granted = db.apply_grants(prefix).await.map_err(failure)?;
    let body = json!({ "differences": shown(&granted.differences), "statements": granted.statements });
    context.print(&body, || {
        if granted.statements.is_empty() {
            return "every role has the rights that it should have; nothing was done".to_owned();
        }
        let mut lines: Vec<String> = granted.differences.iter().map(line).collect();
        lines.push(format!("mended, with {} statements", granted.statements.len()));
        lines
            .push("Each role still needs a way to log in: ALTER ROLE … PASSWORD, or a line in pg_hba.conf.".to_owned());
        lines.join("\n")
    });
    Ok(())
}

async fn check(context: &Context, prefix: &str) -> CommandResult {
    let db = context.open().await?;
    let differences = db.compare_grants(prefix).await?;
    let Some(first) = differences.iter().max_by_key(|one| one.difference.is_too_much()) else {
        context.print(&json!({ "differences": [] }), || "every role has the rights that it should have".to_owned());
        return Ok(());
    };
    let code = if first.difference.is_too_much() { TOO_MANY } else { MISSING };
    let lines: Vec<String> = differences.iter().map(line).collect();
    context.print(&json!({ "differences": shown(&differences) }), || lines.join("\n"));
    let message = format!("{} differences, such as: {}", differences.len(), line(first));
    Err(Failure { code: code.into(), messages: vec![message], hint: APPLY.to_owned(), exit: Exit::Found })
}

fn line(one: &RoleDifference) -> String {
    format!("{}: {}", one.name, one.difference)
}

fn shown(differences: &[RoleDifference]) -> Vec<serde_json::Value> {
    let one = |one: &RoleDifference| json!({ "role": one.role.name(), "name": one.name, "too_much": one.difference.is_too_much(), "says": one.difference.to_string() });
    differences.iter().map(one).collect()
}

const TOO_MANY: &str = "RIGHTS_TOO_MANY";
const MISSING: &str = "RIGHTS_MISSING";
const APPLY: &str = "as the owner of the tables: bursar grants --apply";
/// So many are named.
const NAMED: usize = 5;

/// Refuses to work as a role with other rights than it should have: with more, whoever breaks into this process has them too; with fewer, it would
/// stop in the middle. Unless it was told that any will do.
pub async fn check_own(context: &Context, db: &Db, role: DatabaseRole, any_rights: bool) -> CommandResult {
    let Some((login, differences)) = db.compare_own_rights(role).await? else { return Ok(()) };
    let too_many = differences.iter().any(store::grants::RightsDifference::is_too_much);
    if differences.is_empty() || ((any_rights || context.config.database.any_rights) && too_many) {
        return Ok(());
    }
    let told = differences.iter().filter(|one| one.is_too_much() == too_many);
    let told: Vec<String> = told.map(ToString::to_string).collect();
    let more = told.len().saturating_sub(NAMED);
    let mut words = told.into_iter().take(NAMED).collect::<Vec<_>>().join("; ");
    if more > 0 {
        words = format!("{words}; and {more} more");
    }
    let (code, hint) = if too_many {
        let hint = format!(
            "make the roles with bursar grants --apply and log in as {}; to run with any rights all the same: --any-rights, or database.any_rights = true",
            role.login("bursar_")
        );
        (TOO_MANY, hint)
    } else {
        (MISSING, APPLY.to_owned())
    };
    let message = format!("the database lets {login} in, which is not as the role {} should be: {words}", role.name());
    Err(Failure { code: code.into(), messages: vec![message], hint, exit: Exit::BadInput })
}
