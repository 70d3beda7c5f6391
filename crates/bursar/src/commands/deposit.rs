//! `bursar deposit …`: what was paid to our addresses, what became of it, and whose an unattributed one is.

use domain::deposit::DepositState;
use domain::{Clock, UserId};
use serde_json::{Value, json};
use server::api::deposits::{answer, id_of, shown_id};
use store::Db;
use store::catalog::read_catalog;
use store::deposit::{Assigned, Assignment, Collected, DepositFilter};
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Failure};
use terminal::output::table;

use super::Context;
use super::approval::ApprovalArguments;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List deposits, newest first
    List(ListArguments),
    /// Show a deposit with its block and its history
    Show {
        #[arg(value_name = "DEPOSIT_ID")]
        id: String,
    },
    /// Say whose an unattributed deposit is: two people
    ///
    /// The user is credited with what `suspense` has of it. Nothing else can be assigned, and nothing twice.
    Assign {
        #[arg(value_name = "DEPOSIT_ID")]
        id: String,
        /// Who gets it
        #[arg(long, value_parser = clap::value_parser!(i64).range(1..))]
        user: i64,
        #[command(flatten)]
        people: ApprovalArguments,
    },
    /// Collect what a user owes since a deposit was taken back: two people
    ///
    /// It is taken from what the user has, also from a frozen account, and goes to `suspense`, which paid it. What is collected is not kept
    /// back when the payment is mined again. Never collect with `bursar adjust`: the debt would stay, and be paid twice.
    Collect {
        #[arg(value_name = "DEPOSIT_ID")]
        id: String,
        #[command(flatten)]
        people: ApprovalArguments,
    },
}

#[derive(Debug, clap::Args)]
pub struct ListArguments {
    /// Only this user's
    #[arg(long, value_parser = clap::value_parser!(i64).range(1..))]
    user: Option<i64>,
    /// Only on this chain
    #[arg(long)]
    chain: Option<String>,
    /// Only of this asset
    #[arg(long)]
    asset: Option<String>,
    /// Only in this state: detected, proven, credited, final, orphaned, reversed, refused, unattributed
    #[arg(long, value_parser = state)]
    state: Option<DepositState>,
    /// The next page: before this one
    #[arg(long, value_name = "DEPOSIT_ID")]
    cursor: Option<String>,
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    limit: i64,
}

fn state(text: &str) -> Result<DepositState, String> {
    DepositState::parse(text).ok_or_else(|| {
        let known: Vec<&str> = DepositState::ALL.iter().map(|state| state.as_str()).collect();
        format!("one of {}", known.join(", "))
    })
}

pub async fn run(context: &Context, command: &Command) -> CommandResult {
    let db = context.open().await?;
    let done = match command {
        Command::List(arguments) => list(context, &db, arguments).await,
        Command::Show { id } => show(context, &db, parse_id(id)?).await,
        Command::Collect { id, people } => collect(context, &db, parse_id(id)?, people).await,
        Command::Assign { id, user, people } => assign(context, &db, parse_id(id)?, *user, people).await,
    };
    db.close().await;
    done
}

fn parse_id(text: &str) -> Result<i64, Failure> {
    id_of(text)
        .ok_or_else(|| Failure::bad_input("DEPOSIT_NOT_FOUND", format!("{text} is no deposit"), "such as dp-4711"))
}

fn not_found(id: i64) -> Failure {
    let message = format!("there is no deposit {}", shown_id(id));
    Failure::bad_input("DEPOSIT_NOT_FOUND", message, "bursar deposit list shows them")
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

async fn list(context: &Context, db: &Db, arguments: &ListArguments) -> CommandResult {
    let before = arguments.cursor.as_deref().map_or(Ok(i64::MAX), parse_id)?;
    let filter = DepositFilter {
        user: arguments.user.and_then(UserId::new),
        chain: arguments.chain.clone(),
        asset: arguments.asset.clone(),
        state: arguments.state,
    };
    let catalog = read_catalog(&mut db.read().await?).await?;
    let rows = db.deposits(&filter, before, arguments.limit).await?;
    let more = i64::try_from(rows.len()).is_ok_and(|count| count == arguments.limit);
    let next = rows.last().filter(|_| more).map(|last| shown_id(last.id));
    let deposits: Vec<Value> = rows
        .iter()
        .map(|row| {
            let mut shown = json!(answer(row, &catalog));
            shown["user"] = json!(row.user.map(|user| user.to_string()));
            shown["reason"] = json!(row.reason);
            shown["receivable"] = json!(row.receivable.display(row.precision).to_string());
            shown
        })
        .collect();
    context.print(&json!({ "deposits": deposits, "next_cursor": next }), || {
        if deposits.is_empty() {
            return "no deposits".to_owned();
        }
        let columns = ["deposit_id", "user", "chain", "asset", "paid", "credited", "state", "reason"];
        let cells = |row: &Value| {
            columns.iter().map(|name| if row[*name].is_null() { String::new() } else { text(&row[*name]) }).collect()
        };
        let shown = table(
            &["deposit", "user", "chain", "asset", "paid", "credited", "state", "why"],
            &[1, 4, 5],
            &deposits.iter().map(cells).collect::<Vec<Vec<String>>>(),
        );
        next.map_or_else(|| shown.clone(), |next| format!("{shown}\nthere may be more: --cursor {next}"))
    });
    Ok(())
}

async fn show(context: &Context, db: &Db, id: i64) -> CommandResult {
    let (row, events) = db.deposit(id).await?.ok_or_else(|| not_found(id))?;
    let catalog = read_catalog(&mut db.read().await?).await?;
    let mut shown = json!(answer(&row, &catalog));
    shown["user"] = json!(row.user.map(|user| user.to_string()));
    shown["reason"] = json!(row.reason);
    shown["receivable"] = json!(row.receivable.display(row.precision).to_string());
    shown["in_suspense"] = json!(row.left_over.display(row.precision).to_string());
    shown["generation"] = json!(row.generation);
    let history: Vec<Value> = events
        .iter()
        .map(|event| json!({ "version": event.version, "state": event.state, "reason": event.reason, "at": event.at.to_string() }))
        .collect();
    shown["history"] = json!(history);
    context.print(&shown, || {
        let fields = [
            "deposit_id",
            "user",
            "chain",
            "asset",
            "paid",
            "credited",
            "in_suspense",
            "receivable",
            "state",
            "reason",
            "address",
            "transaction",
            "place",
            "generation",
            "created_at",
        ];
        let mut rows: Vec<Vec<String>> = fields
            .iter()
            .filter(|name| !shown[**name].is_null())
            .map(|name| vec![(*name).to_owned(), text(&shown[*name])])
            .collect();
        let block = &shown["block"];
        rows.push(vec!["block".to_owned(), format!("{} {}", block["height"], text(&block["hash"]))]);
        let depth = format!("{} of {}; final at {}", block["confirmations"], block["credited_at"], block["final_at"]);
        rows.push(vec!["confirmations".to_owned(), depth]);
        let steps: Vec<Vec<String>> = history
            .iter()
            .map(|step| ["at", "state", "reason"].iter().map(|name| text(&step[*name])).collect())
            .collect();
        format!("{}\n\n{}", table(&["", ""], &[], &rows), table(&["at", "state", "why"], &[], &steps))
    });
    Ok(())
}

async fn collect(context: &Context, db: &Db, id: i64, people: &ApprovalArguments) -> CommandResult {
    let people = people.approval()?;
    let (row, _) = db.deposit(id).await?.ok_or_else(|| not_found(id))?;
    let shown = shown_id(id);
    let nothing = |message: String, hint: &str| Err(Failure::bad_input("DEPOSIT_NOTHING_OWED", message, hint));
    match db.collect_receivable(id, &people, SystemClock.now()).await? {
        Collected::NoSuchDeposit => Err(not_found(id)),
        Collected::NothingOwed => {
            nothing(format!("nobody owes anything for {shown}"), "bursar deposit show says what is receivable")
        }
        Collected::RepaidBy(again) => nothing(
            format!("{shown} was repaid by {}, when the payment was mined again", shown_id(again)),
            "if that one was taken back as well, its user owes it for that one: bursar deposit show",
        ),
        Collected::NothingThere => {
            nothing(format!("the user has nothing that could be taken for {shown}"), "it stays owed; try again later")
        }
        Collected::Done { amount, left } => {
            let text = |amount: domain::Amount| amount.display(row.precision).to_string();
            let body = json!({ "deposit_id": shown, "asset": row.asset.to_string(), "collected": text(amount), "still_owed": text(left) });
            context.print(&body, || {
                format!("{} {} collected for {shown}; {} still owed", text(amount), row.asset, text(left))
            });
            Ok(())
        }
    }
}

async fn assign(context: &Context, db: &Db, id: i64, user: i64, people: &ApprovalArguments) -> CommandResult {
    let user = UserId::new(user).ok_or_else(|| {
        Failure::bad_input("INVALID_USER", format!("{user} is no user"), "users have positive numbers")
    })?;
    let assignment = Assignment { deposit: id, user, people: people.approval()? };
    let shown = shown_id(id);
    let refuse = |message: String, hint: &str| Err(Failure::bad_input("DEPOSIT_NOT_ASSIGNABLE", message, hint));
    match db.assign_deposit(&assignment, SystemClock.now()).await? {
        Assigned::NoSuchDeposit => Err(not_found(id)),
        Assigned::NotUnattributed(state) => refuse(
            format!("{shown} is {state}"),
            "only an unattributed deposit can be assigned: bursar deposit list --state unattributed",
        ),
        Assigned::Nothing => {
            refuse(format!("{shown} has nothing to give"), "its block has left the chain, or it was never booked")
        }
        Assigned::TakesNothing => refuse(
            format!("the account of user {} takes nothing", user.get()),
            "it is disabled, or would have more than an account can hold",
        ),
        Assigned::Halted { why } => Err(Failure::bad_input(
            "CHAIN_HALTED",
            format!("the chain of {shown} is halted: {why}"),
            "it may be of a branch that is dead: see the page for the ways out, and assign it afterwards",
        )),
        done @ (Assigned::Done { .. } | Assigned::Before) => {
            let again = matches!(done, Assigned::Before);
            let body = json!({ "deposit_id": shown, "user": user.get().to_string(), "again": again });
            context.print(&body, || {
                let already = if again { " already" } else { "" };
                format!("user {} has {shown}{already}", user.get())
            });
            Ok(())
        }
    }
}
