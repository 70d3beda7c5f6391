//! `bursar lane …`: the wallets that send, who has each, and why one does not.

use domain::{Approval, Clock};
use serde_json::{Value, json};
use store::Db;
use store::outbound::ShownLane;
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Failure};
use terminal::output::table;

use super::Context;
use super::approval::ApprovalArguments;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List the lanes: a wallet on a chain, what waits and what is out
    List {
        #[arg(long)]
        chain: Option<String>,
    },
    /// Show the lanes of an address, with who has them
    Show {
        #[arg(value_name = "ADDRESS")]
        address: String,
    },
    /// Let a stopped lane send again: two people
    ///
    /// A lane is stopped when something used its nonces that no slot of ours explains, or when the signer knows more than this database: another
    /// program has the key, or an old backup was put back. Find out which before you do this: whatever was used of its nonces up to now counts
    /// as explained from then on. The whole group of the address sends again, and is paid again.
    Resume {
        #[arg(value_name = "ADDRESS")]
        address: String,
        #[arg(long)]
        chain: String,
        #[command(flatten)]
        people: ApprovalArguments,
    },
}

fn as_json(shown: &ShownLane) -> Value {
    let held: Vec<Value> = shown
        .held
        .iter()
        .map(|(duty, worker, until)| json!({ "duty": duty, "worker": worker, "until": until.to_string() }))
        .collect();
    json!({
        "chain": shown.chain, "address": shown.lane.address, "group": shown.lane.group.to_string(), "index": shown.lane.index,
        "waiting": shown.waiting, "open": shown.open, "stopped": shown.lane.stopped, "known_nonce": shown.lane.known_nonce, "held": held,
    })
}

pub async fn run(context: &Context, command: &Command) -> CommandResult {
    let db = context.open().await?;
    let done = match command {
        Command::List { chain } => {
            let lanes = db.lanes(chain.as_deref(), None, 0, 1_000).await?;
            print(context, &lanes);
            Ok(())
        }
        Command::Show { address } => {
            let lanes = db.lanes(None, Some(address), 0, 100).await?;
            if lanes.is_empty() {
                return Err(not_found(address));
            }
            print(context, &lanes);
            Ok(())
        }
        Command::Resume { address, chain, people } => {
            let people = people.approval()?;
            let lanes = db.lanes(Some(chain), Some(address), 0, 1).await?;
            let resumed = match lanes.first() {
                Some(shown) => db.resume_lane(shown.lane.id, &people, SystemClock.now()).await?,
                None if resume_group_of(&db, chain, address, &people).await? => true,
                None => return Err(not_found(address)),
            };
            if !resumed {
                let message = format!("{address} is not stopped on {chain}");
                return Err(Failure::bad_input("LANE_NOT_STOPPED", message, "bursar lane show says how it is"));
            }
            context.print(&json!({ "address": address, "chain": chain, "resumed": true }), || {
                format!("{address} sends again")
            });
            Ok(())
        }
    };
    db.close().await;
    done
}

/// A group may be stopped before anything was sent from any of its addresses.
async fn resume_group_of(db: &Db, chain: &str, address: &str, people: &Approval) -> Result<bool, Failure> {
    let chain = match chain.parse() {
        Ok(name) => db.chain(&name).await?,
        Err(_) => None,
    };
    let chain = chain.ok_or_else(|| not_found(address))?.id;
    Ok(db.resume_group_of(chain, address, people, SystemClock.now()).await?)
}

fn not_found(address: &str) -> Failure {
    let message = format!("nothing was ever sent from {address}");
    Failure::bad_input("LANE_NOT_FOUND", message, "bursar lane list shows the wallets that send")
}

fn print(context: &Context, lanes: &[ShownLane]) {
    let body: Vec<Value> = lanes.iter().map(as_json).collect();
    context.print(&json!({ "lanes": body }), || {
        if lanes.is_empty() {
            return "no lanes: a wallet gets one with its first job".to_owned();
        }
        let held = |one: &ShownLane, duty: &str| {
            one.held.iter().find(|(held, ..)| held == duty).map_or_else(String::new, |(_, worker, _)| worker.clone())
        };
        let cells = |one: &ShownLane| {
            vec![
                one.chain.clone(),
                one.lane.address.clone(),
                one.waiting.to_string(),
                one.open.to_string(),
                held(one, "send"),
                held(one, "watch"),
                one.lane.stopped.clone().unwrap_or_default(),
            ]
        };
        let rows: Vec<Vec<String>> = lanes.iter().map(cells).collect();
        table(&["chain", "wallet", "waiting", "out", "sent by", "watched by", "stopped because"], &[2, 3], &rows)
    });
}
