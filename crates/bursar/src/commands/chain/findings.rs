//! `bursar chain findings` and `resolve`: what somebody should know of a chain, and who has seen to it.

use serde_json::{Value, json};
use store::Db;
use store::entry::OpenFinding;
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Failure};
use terminal::output::table;

use domain::Clock as _;

use super::super::Context;
use super::orders::chain_row;

#[derive(Debug, clap::Args)]
pub struct FindingsArguments {
    /// Only of this chain
    chain: Option<String>,
    /// Those after this one
    #[arg(long, value_name = "ID", default_value_t = 0)]
    after: i64,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=1000))]
    limit: i64,
}

#[derive(Debug, clap::Args)]
pub struct ResolveArguments {
    /// Their numbers, as bursar chain findings shows them
    #[arg(required = true)]
    findings: Vec<i64>,
    /// Who has seen to them
    #[arg(long, env = "BURSAR_ACTOR")]
    actor: String,
}

pub async fn list(context: &Context, db: &Db, arguments: &FindingsArguments) -> CommandResult {
    let chain = match &arguments.chain {
        Some(name) => chain_row(db, name).await?.name.to_string(),
        None => String::new(),
    };
    let found = db.open_findings_of(&chain, arguments.after, arguments.limit).await?;
    let more = i64::try_from(found.len()).is_ok_and(|count| count == arguments.limit);
    let next = found.last().filter(|_| more).map(|last| last.id);
    let shown = |one: &OpenFinding| {
        json!({ "finding": one.id, "chain": one.chain, "kind": one.kind, "subject": one.subject, "detail": one.detail,
            "at": one.at.to_string() })
    };
    let body: Vec<Value> = found.iter().map(shown).collect();
    context.print(&json!({ "findings": body, "next": next }), || {
        if found.is_empty() {
            return "nothing that nobody has seen to".to_owned();
        }
        let row = |one: &OpenFinding| {
            let OpenFinding { id, chain, kind, subject, detail, at } = one;
            vec![id.to_string(), at.to_string(), chain.clone(), kind.clone(), subject.clone(), detail.clone()]
        };
        let rows: Vec<Vec<String>> = found.iter().map(row).collect();
        let shown = table(&["finding", "at", "chain", "kind", "of", "what"], &[0], &rows);
        next.map_or_else(|| shown.clone(), |next| format!("{shown}\nthere may be more: --after {next}"))
    });
    Ok(())
}

pub async fn resolve(context: &Context, db: &Db, arguments: &ResolveArguments) -> CommandResult {
    let actor = arguments.actor.trim();
    if actor.is_empty() {
        return Err(Failure::bad_input("REASON_MISSING", "somebody has to say who has seen to it", "--actor ann"));
    }
    let known = db.resolve_findings(&arguments.findings, actor, SystemClock.now()).await?;
    if let Err(unknown) = known {
        let message = format!("there is no open finding {unknown}; nothing was changed");
        return Err(Failure::bad_input(
            "FINDING_NOT_FOUND",
            message,
            "bursar chain findings lists those that are open",
        ));
    }
    let count = arguments.findings.len();
    context.print(&json!({ "resolved": arguments.findings, "actor": actor }), || {
        format!("{count} {} seen to by {actor}", if count == 1 { "finding is" } else { "findings are" })
    });
    Ok(())
}
