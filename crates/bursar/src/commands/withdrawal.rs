//! `bursar withdrawal …`: what customers want paid out, and what became of it.

use custody::withdrawal::judge;
use domain::withdrawal::WithdrawalState;
use domain::{Approval, Clock, UserId};
use serde_json::{Value, json};
use server::api::withdrawal_answer::{WithdrawalAnswer, WithdrawalPayment};
use server::coins::{Coins, coin_of};
use store::Db;
use store::withdrawal::{DecisionReply, WithdrawalFilter, WithdrawalId, WithdrawalRow, WithdrawalVerdict};
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Failure};
use terminal::output::table;

use super::Context;
use super::approval::ApprovalArguments;
use super::wallet::signer as wallet_signer;
use crate::pins;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List withdrawals, newest first
    List(ListArguments),
    /// Show a withdrawal with its verdict, its jobs and its history
    Show {
        #[arg(value_name = "WITHDRAWAL_ID")]
        id: String,
    },
    /// Say what became of one that was signed in a time that this database does not know: two people
    ///
    /// A database that was put back from a backup has forgotten payments; the signer has not, and such withdrawals wait in manual_review. Look at the
    /// recipient on the chain first: what is judged unpaid is given back to the customer.
    Judge {
        #[arg(value_name = "WITHDRAWAL_ID")]
        id: String,
        /// paid, or unpaid: it was not, and nothing that was signed for it can be mined any more. unpaid-anywhere: the same of one that was taken over from
        /// another program and signed here as well
        #[arg(value_parser = verdict)]
        verdict: WithdrawalVerdict,
        #[command(flatten)]
        people: ApprovalArguments,
    },
}

fn verdict(text: &str) -> Result<WithdrawalVerdict, String> {
    match text {
        "paid" => Ok(WithdrawalVerdict::Paid),
        "unpaid" => Ok(WithdrawalVerdict::Unpaid),
        "unpaid-anywhere" => Ok(WithdrawalVerdict::UnpaidAnywhere),
        _ => Err("paid, unpaid or unpaid-anywhere".to_owned()),
    }
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
    /// Only in this state: pending, manual_review, approved, queued, completed, failed, rejected, cancelled
    #[arg(long, value_parser = state)]
    state: Option<WithdrawalState>,
    /// The next page: before this one
    #[arg(long, value_name = "WITHDRAWAL_ID")]
    cursor: Option<String>,
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    limit: i64,
}

fn state(text: &str) -> Result<WithdrawalState, String> {
    WithdrawalState::parse(text).ok_or_else(|| {
        let known: Vec<&str> = WithdrawalState::ALL.iter().map(|state| state.as_str()).collect();
        format!("one of {}", known.join(", "))
    })
}

pub async fn run(context: &Context, command: &Command) -> CommandResult {
    let db = context.open().await?;
    let done = match command {
        Command::List(arguments) => list(context, &db, arguments).await,
        Command::Show { id } => show(context, &db, parse_id(id)?).await,
        Command::Judge { id, verdict, people } => {
            say(context, &db, (parse_id(id)?, *verdict), &people.approval()?).await
        }
    };
    db.close().await;
    done
}

fn parse_id(text: &str) -> Result<WithdrawalId, Failure> {
    text.parse().map_err(|_| {
        let message = format!("{text} is no withdrawal");
        Failure::bad_input("WITHDRAWAL_NOT_FOUND", message, "such as wr-1734912345678901234")
    })
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// As its owner sees it, with what is the house's own.
fn shown(row: &WithdrawalRow, coins: &Coins) -> Value {
    let mut shown = json!(WithdrawalAnswer::new(row, coin_of(&coins.all(), row.listing)));
    shown["user"] = json!(row.user.get().to_string());
    shown["rule"] = json!(row.rule);
    shown["people"] = json!(row.people);
    shown["policy_version"] = json!(row.policy_version);
    shown["payee"] = json!(row.payee.map(|user| user.get().to_string()));
    shown
}

async fn list(context: &Context, db: &Db, arguments: &ListArguments) -> CommandResult {
    let before = arguments.cursor.as_deref().map(parse_id).transpose()?;
    let filter = WithdrawalFilter {
        user: arguments.user.and_then(UserId::new),
        chain: arguments.chain.clone(),
        asset: arguments.asset.clone(),
        state: arguments.state,
        client_order_id: None,
    };
    let coins = Coins::load(db).await?;
    let rows = db.list_withdrawals(&filter, before, arguments.limit).await?;
    let more = i64::try_from(rows.len()).is_ok_and(|count| count == arguments.limit);
    let next = rows.last().filter(|_| more).map(|last| last.id.to_string());
    let withdrawals: Vec<Value> = rows.iter().map(|row| shown(row, &coins)).collect();
    context.print(&json!({ "withdrawals": withdrawals, "next_cursor": next }), || {
        if withdrawals.is_empty() {
            return "no withdrawals".to_owned();
        }
        let columns = ["withdrawal_id", "user", "chain", "asset", "amount", "fee", "state", "rule", "created_at"];
        let cells = |row: &Value| columns.iter().map(|name| text(&row[*name])).collect();
        let shown = table(
            &["withdrawal", "user", "chain", "asset", "amount", "fee", "state", "rule", "asked for"],
            &[1, 4, 5],
            &withdrawals.iter().map(cells).collect::<Vec<Vec<String>>>(),
        );
        next.map_or_else(|| shown.clone(), |next| format!("{shown}\nthere may be more: --cursor {next}"))
    });
    Ok(())
}

async fn show(context: &Context, db: &Db, id: WithdrawalId) -> CommandResult {
    let row = db.withdrawals(&[id]).await?.pop().ok_or_else(|| {
        let message = format!("there is no withdrawal {id}");
        Failure::bad_input("WITHDRAWAL_NOT_FOUND", message, "bursar withdrawal list shows them")
    })?;
    let coins = Coins::load(db).await?;
    let mut shown = shown(&row, &coins);
    let payment = db.mined_payment(id).await?;
    let coin = coins.all();
    shown["payment"] = json!(payment.map(|payment| WithdrawalPayment::new(&payment, coin_of(&coin, row.listing))));
    let jobs: Vec<Value> = db
        .jobs_of_withdrawal(id)
        .await?
        .into_iter()
        .map(|(job, state)| json!({ "job": job.to_string(), "state": state.as_str() }))
        .collect();
    let history: Vec<Value> = db
        .withdrawal_history(id)
        .await?
        .iter()
        .map(|step| {
            json!({
                "version": step.version, "state": step.state.as_str(), "actor": step.actor, "reason": step.reason,
                "at": step.at.to_string(),
            })
        })
        .collect();
    shown["jobs"] = json!(jobs);
    shown["history"] = json!(history);
    // Written by this program: JSON, or the row was changed by hand.
    shown["inputs"] = serde_json::from_str(&row.inputs).unwrap_or_else(|_| json!(row.inputs));
    context.print(&shown, || {
        let fields = [
            "withdrawal_id",
            "user",
            "client_order_id",
            "chain",
            "asset",
            "amount",
            "fee",
            "total",
            "max_fee",
            "address",
            "state",
            "rule",
            "people",
            "policy_version",
            "payee",
            "created_at",
            "updated_at",
        ];
        let mut rows: Vec<Vec<String>> = fields
            .iter()
            .filter(|name| !shown[**name].is_null())
            .map(|name| vec![(*name).to_owned(), text(&shown[*name])])
            .collect();
        if let Some(payment) = shown["payment"].as_object() {
            let (transaction, height) = (text(&payment["transaction"]), text(&payment["height"]));
            rows.push(vec!["payment".to_owned(), format!("{transaction} in block {height}")]);
        }
        rows.extend(
            jobs.iter().map(|job| vec!["job".to_owned(), format!("{} {}", text(&job["job"]), text(&job["state"]))]),
        );
        let steps: Vec<Vec<String>> = history
            .iter()
            .map(|step| ["at", "state", "actor", "reason"].iter().map(|name| text(&step[*name])).collect())
            .collect();
        format!("{}\n\n{}", table(&["", ""], &[], &rows), table(&["at", "state", "who", "why"], &[], &steps))
    });
    Ok(())
}

async fn say(
    context: &Context,
    db: &Db,
    (id, verdict): (WithdrawalId, WithdrawalVerdict),
    people: &Approval,
) -> CommandResult {
    let pinned = pins::pinned(&context.config, db).await?;
    let Some(signer) = wallet_signer::configured(&context.config)? else {
        let hint = "set [signer] in the configuration: what it has signed is asked first";
        return Err(Failure::bad_input("CONFIG_INVALID", "no signer is configured", hint));
    };
    wallet_signer::check(&signer, db, &pinned).await?;
    let replies = judge(db, &*signer, &[(id, verdict)], people, SystemClock.now()).await?;
    let not_now = |why: &str, hint: &str| Err(Failure::bad_input("WITHDRAWAL_NOT_NOW", format!("{id}: {why}"), hint));
    match replies.into_iter().next() {
        Some(DecisionReply::Done(row) | DecisionReply::Before(row)) => {
            let state = row.state.as_str();
            context.print(&json!({ "withdrawal_id": id.to_string(), "state": state }), || format!("{id} is {state}"));
            Ok(())
        }
        Some(DecisionReply::NoSuchWithdrawal) | None => Err(Failure::bad_input(
            "WITHDRAWAL_NOT_FOUND",
            format!("there is no withdrawal {id}"),
            "bursar withdrawal list shows them",
        )),
        Some(DecisionReply::NotNow(state)) => not_now(
            &format!("it is {state}"),
            "judged is what waits in manual_review, and what is completed when its chain took the payment back",
        ),
        Some(DecisionReply::SignerKnowsMore) => not_now(
            "the signer has signed it here as well, in a time that this database does not know",
            "look at the recipient for the payments of both programs; if neither can be mined any more: unpaid-anywhere",
        ),
        Some(DecisionReply::NothingToJudge) => not_now(
            "the signer knows no more of it than this database",
            "it goes on by itself, or is approved or refused",
        ),
        Some(DecisionReply::SignerNotAsked) => {
            not_now("the signer cannot be asked what it has signed", "is it running? bursar wallet verify says more")
        }
    }
}
