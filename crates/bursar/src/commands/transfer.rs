//! `bursar transfer …`: what is on its way, the life of one transfer, and what a person may do with one that is stuck.

use std::sync::Arc;

use domain::UserId;
use domain::id::{self, Id};
use domain::transfer::Transfer;
use serde_json::{Value, json};
use server::api::answer::TransferAnswer;
use store::Db;
use store::catalog::read_assets;
use store::transfer::{Filter, history, list, open, read, read_unproven};
use terminal::failure::{CommandResult, Exit, Failure};
use terminal::output::table;
use transfer::leg::Reason;
use transfer::operator::{Author, OperatorError, Wanted};
use transfer::{Assets, Coordinator, pair};

use super::approval::{ApprovalArguments, approval};
use super::{Context, serve, stops};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List transfers: those that have not ended, oldest first, or a user's, newest first
    List {
        /// A user's transfers instead
        #[arg(long, value_parser = clap::value_parser!(i64).range(1..))]
        user: Option<i64>,
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
        limit: i64,
        /// The next page: after (or, of a user, before) this one
        #[arg(long, value_name = "REQ_ID")]
        cursor: Option<String>,
    },
    /// Show a transfer and its history, commit by commit
    Show {
        #[arg(value_name = "REQ_ID")]
        id: String,
    },
    /// Have a transfer tried at once instead of when it is due
    Retry {
        #[arg(value_name = "REQ_ID")]
        id: String,
        #[command(flatten)]
        author: AuthorArguments,
    },
    /// Stop transfers of an asset from SPOT to FUNDING, on every server: new ones are refused, open ones wait
    Stop {
        /// The asset, such as USDT
        #[arg(long)]
        asset: String,
        #[command(flatten)]
        author: AuthorArguments,
    },
    /// Let transfers of a stopped asset go on: two people say so
    ///
    /// A stop that the check made by itself comes back with the next check, unless the engine and the books agree by then.
    Resume {
        /// The asset, such as USDT
        #[arg(long)]
        asset: String,
        #[command(flatten)]
        people: ApprovalArguments,
    },
    /// List what was stopped, newest first
    Stops,
    /// Say how a transfer ended; refused unless the legs' own records prove it
    ///
    /// For a transfer whose leg answers, but with nothing that decides. The leg is asked what it remembers: a deposit or
    /// withdrawal that took effect proves `committed`, one that was refused or undone proves `rolled-back`. Nothing
    /// else does. No state is skipped; who and why is written to the history.
    ///
    /// Where the engine has forgotten the transfer for good (OPERATION_EXPIRED), nothing proves anything any more, and
    /// two people may say it with --without-proof. Their word then counts like the engine's answer: if it was wrong, the
    /// engine's total differs from the books, and the check that runs by itself stops the asset. Where the engine has a
    /// record, that is refused; so is bringing money of a stopped asset to FUNDING.
    Resolve {
        #[arg(value_name = "REQ_ID")]
        id: String,
        #[arg(long = "as", value_enum)]
        wanted: End,
        #[command(flatten)]
        author: AuthorArguments,
        /// Two people say it, because no record can
        #[arg(long, requires = "second", requires = "evidence")]
        without_proof: bool,
        /// Who else has looked at it and agrees: another person
        #[arg(long, requires = "without_proof")]
        second: Option<String>,
        /// What the two go by: a ticket, a copy of the engine's log, a statement of the user
        #[arg(long, requires = "without_proof", value_parser = said)]
        evidence: Option<String>,
    },
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum End {
    Committed,
    RolledBack,
}

#[derive(Debug, clap::Args)]
pub struct AuthorArguments {
    /// Why: it is written to the history
    #[arg(long, value_parser = said)]
    pub reason: String,
    /// Who does this
    #[arg(long, env = "BURSAR_ACTOR", value_parser = said)]
    pub actor: String,
}

pub fn said(text: &str) -> Result<String, String> {
    let fits = !text.trim().is_empty() && text.len() <= 150 && !text.chars().any(char::is_control);
    if fits { Ok(text.to_owned()) } else { Err("1 to 150 bytes without control characters".to_owned()) }
}

impl AuthorArguments {
    fn author(&self) -> Author {
        Author { actor: self.actor.clone(), reason: self.reason.clone() }
    }
}

pub async fn run(context: &Context, command: &Command) -> CommandResult {
    match command {
        Command::List { user, limit, cursor } => show_list(context, *user, *limit, cursor.as_deref()).await,
        Command::Show { id } => show(context, parse(id)?).await,
        Command::Stop { asset, author } => stops::stop(context, asset, &author.actor, &author.reason).await,
        Command::Resume { asset, people } => stops::resume(context, asset, &people.approval()?).await,
        Command::Stops => stops::list(context).await,
        Command::Retry { id, author } => {
            let (db, coordinator) = connect(context).await?;
            let ended = coordinator.retry(parse(id)?, &author.author()).await;
            told(context, &db, ended).await
        }
        Command::Resolve { id, wanted, author, without_proof: _, second, evidence } => {
            let wanted = match wanted {
                End::Committed => Wanted::Committed,
                End::RolledBack => Wanted::RolledBack,
            };
            let (db, coordinator) = connect(context).await?;
            let ended = match (second, evidence) {
                (Some(second), Some(evidence)) => {
                    let approval = approval(&author.actor, second, &author.reason)?;
                    coordinator.resolve_without_proof(parse(id)?, wanted, &approval, evidence).await
                }
                // The command line is refused if it has only one of them.
                _ => coordinator.resolve(parse(id)?, wanted, &author.author()).await,
            };
            told(context, &db, ended).await
        }
    }
}

fn parse(text: &str) -> Result<Id<id::Transfer>, Failure> {
    text.parse().map_err(|error: id::BadId| {
        Failure::bad_input("INVALID_REQUEST", format!("{text:?}: {error}"), "bursar transfer list")
    })
}

/// A coordinator that speaks to the engine as the server does: over TCP, or HTTP. It makes no transfers, so that it needs
/// no node number.
async fn connect(context: &Context) -> Result<(Db, Coordinator), Failure> {
    let db = context.open().await?;
    let assets = Arc::new(Assets::load(&db).await?);
    let remote = serve::Remote::elsewhere(&context.config, &assets)?;
    if let Some(spot) = remote.leg.spot() {
        // An engine that does not belong to this database proves nothing about its transfers.
        let patience = std::time::Duration::from_millis(context.config.transfer.call_timeout_ms.into());
        let late = |_| pair::PairError::NoAnswer(Reason::new("LEG_TIMEOUT", "it did not answer in time"));
        let proven = tokio::time::timeout(patience, pair::prove(&db, spot)).await.map_err(late);
        proven.and_then(|proven| proven).map_err(|error| serve::pair_failure(&error))?;
    }
    let coordinator = serve::coordinator(&context.config, &db, remote.leg);
    Ok((db, coordinator))
}

async fn told(context: &Context, db: &Db, ended: Result<Transfer, OperatorError>) -> CommandResult {
    match ended {
        Ok(transfer) => show_one(context, db, &transfer).await,
        Err(error) => Err(failure(error)),
    }
}

fn failure(error: OperatorError) -> Failure {
    let message = error.to_string();
    match error {
        OperatorError::Store(error) => error.into(),
        OperatorError::NotFound(_) => Failure::bad_input("TRANSFER_NOT_FOUND", message, "bursar transfer list"),
        OperatorError::Ended(..) => Failure::bad_input("TRANSFER_ENDED", message, "what has ended stays as it is"),
        OperatorError::NotProven(_) => {
            let hint =
                "bursar transfer retry; if the engine has forgotten it for good, --without-proof is for two people";
            Failure::bad_input("TRANSFER_NOT_PROVEN", message, hint)
        }
        OperatorError::Provable(_) => {
            let hint = "bursar transfer retry, or resolve without --without-proof";
            Failure::bad_input("TRANSFER_PROVABLE", message, hint)
        }
        OperatorError::Stopped(_) => {
            let hint = "bursar transfer stops says why; bursar transfer resume when it is mended, or --as rolled-back";
            Failure::bad_input("TRANSFER_STOPPED", message, hint)
        }
        OperatorError::NotTaken(code) => Failure {
            code: code.into(),
            messages: vec![message],
            hint: "bursar account activate, or resolve it the other way".to_owned(),
            exit: Exit::BadInput,
        },
    }
}

async fn show(context: &Context, id: Id<id::Transfer>) -> CommandResult {
    let db = context.open().await?;
    let found = read(&mut db.read().await?, &[id]).await?.into_iter().next();
    match found {
        Some(transfer) => show_one(context, &db, &transfer).await,
        None => Err(failure(OperatorError::NotFound(id))),
    }
}

async fn show_one(context: &Context, db: &Db, transfer: &Transfer) -> CommandResult {
    let mut tx = db.read().await?;
    let assets = read_assets(&mut tx).await?;
    let rows = history(&mut tx, transfer.id).await?;
    let unproven = read_unproven(&mut tx, transfer.id).await?.map(|(one, at)| {
        json!({
            "actor": one.approval.actor(), "second": one.approval.second(), "reason": one.approval.reason(),
            "evidence": one.evidence, "answer": one.answer, "at": at.to_string(),
        })
    });
    let steps: Vec<Value> = rows
        .iter()
        .map(|row| json!({ "version": row.version, "path": row.path, "reason": row.reason, "at": row.at.to_string() }))
        .collect();
    let body = json!({
        "transfer": line(transfer, &TransferAnswer::new(transfer, &assets)), "history": steps, "unproven": unproven,
    });
    context.print(&body, || {
        let answer = TransferAnswer::new(transfer, &assets);
        let cells: Vec<Vec<String>> =
            rows.iter().map(|row| vec![row.at.to_string(), row.path.clone(), row.reason.clone()]).collect();
        format!("{}\n\n{}", listing(&[(transfer, answer)]), table(&["time", "path", "reason"], &[], &cells))
    });
    Ok(())
}

fn line(transfer: &Transfer, answer: &TransferAnswer) -> Value {
    json!({
        "req_id": answer.req_id, "user": transfer.user.get(), "from": answer.from, "to": answer.to,
        "asset": answer.asset, "amount": answer.amount, "state": answer.stage, "error": transfer.error,
        "client_order_id": answer.client_order_id, "tries": transfer.tries, "due_at": transfer.due_at.to_string(),
        "alerted_at": transfer.alerted_at.map(|at| at.to_string()), "created_at": answer.created_at,
        "updated_at": answer.updated_at,
    })
}

fn listing(transfers: &[(&Transfer, TransferAnswer)]) -> String {
    let cells: Vec<Vec<String>> = transfers
        .iter()
        .map(|(transfer, answer)| {
            vec![
                answer.req_id.clone(),
                transfer.user.get().to_string(),
                format!("{} → {}", answer.from, answer.to),
                answer.amount.clone(),
                answer.asset.clone(),
                answer.stage.to_owned(),
                transfer.error.clone().unwrap_or_default(),
                transfer.tries.to_string(),
                answer.created_at.clone(),
            ]
        })
        .collect();
    table(&["req_id", "user", "way", "amount", "asset", "state", "error", "tries", "created"], &[1, 3, 7], &cells)
}

async fn show_list(context: &Context, user: Option<i64>, limit: i64, cursor: Option<&str>) -> CommandResult {
    let cursor = cursor.map(parse).transpose()?;
    let db = context.open().await?;
    let mut tx = db.read().await?;
    let assets = read_assets(&mut tx).await?;
    let transfers = match user.and_then(UserId::new) {
        Some(user) => list(&mut tx, user, &Filter { before: cursor, ..Filter::default() }, limit).await?,
        None => open(&mut tx, cursor.map_or(0, Id::number), limit).await?,
    };
    let lines: Vec<(&Transfer, TransferAnswer)> =
        transfers.iter().map(|transfer| (transfer, TransferAnswer::new(transfer, &assets))).collect();
    let more = lines.len() == usize::try_from(limit).unwrap_or(0);
    let next = lines.last().filter(|_| more).map(|(_, answer)| answer.req_id.clone());
    let body: Vec<Value> = lines.iter().map(|(transfer, answer)| line(transfer, answer)).collect();
    context.print(&json!({ "transfers": body, "next_cursor": next }), || match (lines.is_empty(), user) {
        (true, None) => "nothing is on its way".to_owned(),
        (true, Some(_)) => "no transfers".to_owned(),
        (false, _) => {
            let more = next.as_ref().map_or_else(String::new, |cursor| format!("\nmore: --cursor {cursor}"));
            format!("{}{more}", listing(&lines))
        }
    });
    Ok(())
}
