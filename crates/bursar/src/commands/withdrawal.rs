//! `bursar withdrawal …`: what people say of withdrawals that the database cannot say by itself.

use custody::withdrawal::judge;
use domain::Clock;
use serde_json::json;
use store::withdrawal::{DecisionReply, WithdrawalId, WithdrawalVerdict};
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Failure};

use super::Context;
use super::approval::ApprovalArguments;
use super::wallet::signer as wallet_signer;
use crate::pins;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Say what became of one that was signed in a time that this database does not know: two people
    ///
    /// A database that was put back from a backup has forgotten payments; the signer has not, and such withdrawals wait in manual_review. Look at the
    /// recipient on the chain first: what is judged unpaid is given back to the customer.
    Judge {
        #[arg(value_name = "WITHDRAWAL_ID")]
        id: String,
        /// paid, or unpaid: it was not, and nothing that was signed for it can be mined any more
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
        _ => Err("paid or unpaid".to_owned()),
    }
}

pub async fn run(context: &Context, command: &Command) -> CommandResult {
    match command {
        Command::Judge { id, verdict, people } => say(context, id, *verdict, people).await,
    }
}

async fn say(context: &Context, id: &str, verdict: WithdrawalVerdict, people: &ApprovalArguments) -> CommandResult {
    let hint = "such as wr-1734912345678901234";
    let id: WithdrawalId =
        id.parse().map_err(|_| Failure::bad_input("WITHDRAWAL_NOT_FOUND", format!("{id} is no withdrawal"), hint))?;
    let people = people.approval()?;
    let db = context.open().await?;
    let pinned = pins::pinned(&context.config, &db).await?;
    let Some(signer) = wallet_signer::configured(&context.config)? else {
        let hint = "set [signer] in the configuration: what it has signed is asked first";
        return Err(Failure::bad_input("CONFIG_INVALID", "no signer is configured", hint));
    };
    wallet_signer::check(&signer, &db, &pinned).await?;
    let replies = judge(&db, &*signer, &[(id, verdict)], &people, SystemClock.now()).await?;
    db.close().await;
    let not_now = |why: &str, hint: &str| Err(Failure::bad_input("WITHDRAWAL_NOT_NOW", format!("{id}: {why}"), hint));
    match replies.into_iter().next() {
        Some(DecisionReply::Done(row) | DecisionReply::Before(row)) => {
            let state = row.state.as_str();
            context.print(&json!({ "withdrawal_id": id.to_string(), "state": state }), || format!("{id} is {state}"));
            Ok(())
        }
        Some(DecisionReply::NoSuchWithdrawal) | None => {
            Err(Failure::bad_input("WITHDRAWAL_NOT_FOUND", format!("there is no withdrawal {id}"), hint))
        }
        Some(DecisionReply::NotNow(state)) => {
            not_now(&format!("it is {state}"), "only what waits in manual_review is judged")
        }
        Some(DecisionReply::NothingToJudge | DecisionReply::SignerKnowsMore) => {
            not_now("the signer knows no more of it than this database", "it goes on by itself, or is approved or refused")
        }
        Some(DecisionReply::SignerNotAsked) => {
            not_now("the signer cannot be asked what it has signed", "is it running? bursar wallet verify says more")
        }
    }
}
