//! `bursar job …`: payments that leave. What is made here is paid once, and what may be out ends only when the chain says so.

mod approve;

use std::path::PathBuf;
use std::sync::Arc;

use domain::id::Generator;
use domain::outbound::{JobKind, JobState};
use domain::{Amount, Clock, GroupId, RawAmount, UserId};
use serde_json::{Value, json};
use store::Db;
use store::entry::ChainRow;
use store::outbound::read::{JobReply, JobVerdict};
use store::outbound::{Added, AttemptKind, JobFilter, JobId, NewJob, OpenSlot, Payer, ShownJob};
use store::wallet::Place;
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Failure};
use terminal::output::table;
use tx::Family;

use super::Context;
use super::approval::ApprovalArguments;
use crate::roles::row_of;
use crate::{chains, pins};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Make a payment: it is given to a wallet at once, and paid once
    ///
    ///   bursar job add --chain bsc --asset USDT --amount 12.5 --to 0x… --reference invoice-4711 --actor ann
    ///
    /// The reference makes it one job however often it is typed: the same again changes nothing, other content is refused.
    #[command(verbatim_doc_comment)]
    Add(AddArguments),
    /// List jobs, newest first
    List(ListArguments),
    /// Show a job: why it waits, its slots with all that was ever signed, its history
    Show {
        #[arg(value_name = "JOB_ID")]
        id: String,
    },
    /// Try a job that rests now
    Retry {
        #[arg(value_name = "JOB_ID")]
        id: String,
        /// Who does this
        #[arg(long, env = "BURSAR_ACTOR")]
        actor: String,
    },
    /// End a job, as far as that is safe
    ///
    /// One without a slot ends at once. One that may be out is cancelled in its own slot on EVM, and not tried again: whichever of the two is
    /// mined decides. On TRON it ends when its time is over. What is in a block cannot be cancelled.
    Cancel {
        #[arg(value_name = "JOB_ID")]
        id: String,
        /// Who does this
        #[arg(long, env = "BURSAR_ACTOR")]
        actor: String,
    },
    /// Say what became of a job where the chain does not: two people
    ///
    /// For a job whose slot somebody else has used, or that paid something else than was asked for, or of which the signer says that it was
    /// signed for in a time that this database does not know. Look at the recipient first: `unpaid` and `again` pay twice if it was paid.
    Judge {
        #[arg(value_name = "JOB_ID")]
        id: String,
        /// paid, unpaid (it is over), or again (it is tried once more)
        #[arg(value_parser = verdict)]
        verdict: JobVerdict,
        #[command(flatten)]
        people: ApprovalArguments,
    },
    /// Approve what the signer does not pay by itself: a refill, or a payout above a limit
    ///
    ///   bursar job approve job-… --as ann-laptop --key ann.pem
    ///   bursar job approve job-… --as ann-laptop --key ann.pem --digest 5f0c…
    ///
    /// Without --digest it only says in words what would be signed, and its digest. With it that, and nothing else, is signed: whoever changes
    /// the job in between gets no signature. The signer judges each approval by its own policy; how many it wants stands there too.
    #[command(verbatim_doc_comment)]
    Approve {
        #[arg(value_name = "JOB_ID")]
        id: String,
        /// The name of the key in the signer's policy
        #[arg(long = "as", value_name = "KEY_NAME")]
        name: String,
        /// Your Ed25519 key, as `openssl genpkey -algorithm ed25519` makes it
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
        /// The digest of what you have read
        #[arg(long, value_name = "HEX")]
        digest: Option<String>,
    },
    /// Offer more for a job that waits for its block, at once, in the same slot
    Bump {
        #[arg(value_name = "JOB_ID")]
        id: String,
        /// Who does this
        #[arg(long, env = "BURSAR_ACTOR")]
        actor: String,
    },
}

#[derive(Debug, clap::Args)]
pub struct AddArguments {
    #[arg(long)]
    chain: String,
    #[arg(long)]
    asset: String,
    /// In the asset's own unit, such as 12.5
    #[arg(long)]
    amount: String,
    /// The recipient's address
    #[arg(long, conflicts_with = "to_user", required_unless_present = "to_user")]
    to: Option<String>,
    /// A user's own deposit address instead: a gas top-up
    #[arg(long, value_parser = clap::value_parser!(i64).range(1..))]
    to_user: Option<i64>,
    /// What it is for: one job for each
    #[arg(long)]
    reference: String,
    /// withdrawal (from a hot wallet), refill (from treasury), gas_topup (from a gas wallet), consolidation (from --from-user)
    #[arg(long, default_value = "withdrawal", value_parser = kind)]
    kind: JobKind,
    /// The user whose deposit address is emptied: consolidation only
    #[arg(long, value_parser = clap::value_parser!(i64).range(1..))]
    from_user: Option<i64>,
    /// The lowest goes first [default: by its kind, 100 to 400]
    #[arg(long)]
    priority: Option<i64>,
    /// The most that it may cost, in the smallest unit of the chain's own coin [default: the chain's fee_cap]
    #[arg(long)]
    most_fee: Option<String>,
    /// No slot is taken for it after so long
    #[arg(long, value_name = "HOURS", default_value_t = 24, value_parser = clap::value_parser!(i64).range(1..=720))]
    expires: i64,
    /// Who wants it
    #[arg(long, env = "BURSAR_ACTOR")]
    actor: String,
}

#[derive(Debug, clap::Args)]
pub struct ListArguments {
    #[arg(long)]
    chain: Option<String>,
    /// queued, signing, broadcasting, broadcasted, confirming, confirmed, failed_retryable, failed_final
    #[arg(long, value_parser = state)]
    state: Option<JobState>,
    /// Only those that this address pays
    #[arg(long, value_name = "ADDRESS")]
    wallet: Option<String>,
    /// The next page: before this one
    #[arg(long, value_name = "JOB_ID")]
    cursor: Option<String>,
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=1_000))]
    limit: i64,
}

fn kind(text: &str) -> Result<JobKind, String> {
    JobKind::parse(text).ok_or_else(|| "withdrawal, refill, gas_topup or consolidation".to_owned())
}

fn verdict(text: &str) -> Result<JobVerdict, String> {
    match text {
        "paid" => Ok(JobVerdict::Paid),
        "unpaid" => Ok(JobVerdict::Unpaid),
        "again" => Ok(JobVerdict::Again),
        _ => Err("paid, unpaid or again".to_owned()),
    }
}

fn state(text: &str) -> Result<JobState, String> {
    JobState::parse(text).ok_or_else(|| {
        let known: Vec<&str> = JobState::ALL.iter().map(|state| state.as_str()).collect();
        format!("one of {}", known.join(", "))
    })
}

pub async fn run(context: &Context, command: &Command) -> CommandResult {
    let db = context.open().await?;
    let done = match command {
        Command::Add(arguments) => add(context, &db, arguments).await,
        Command::List(arguments) => list(context, &db, arguments).await,
        Command::Show { id } => show(context, &db, parse_id(id)?).await,
        Command::Retry { id, actor } => {
            let id = parse_id(id)?;
            asked(context, id, "is tried now", db.retry_job(id, actor, SystemClock.now()).await?)
        }
        Command::Cancel { id, actor } => {
            let id = parse_id(id)?;
            asked(context, id, "ends as soon as that is safe", db.cancel_job(id, actor, SystemClock.now()).await?)
        }
        Command::Judge { id, verdict, people } => {
            let (id, people) = (parse_id(id)?, people.approval()?);
            asked(context, id, "is judged", db.judge_job(id, *verdict, &people, SystemClock.now()).await?)
        }
        Command::Approve { id, name, key, digest } => {
            approve::run(context, &db, parse_id(id)?, (name, key, digest.as_deref())).await
        }
        Command::Bump { id, actor } => {
            let id = parse_id(id)?;
            asked(context, id, "is offered more for", db.bump_job(id, actor, SystemClock.now()).await?)
        }
    };
    db.close().await;
    done
}

fn parse_id(text: &str) -> Result<JobId, Failure> {
    let hint = "such as job-1734912345678901234; bursar job list shows them";
    text.parse().map_err(|_| Failure::bad_input("JOB_NOT_FOUND", format!("{text} is no job"), hint))
}

fn not_found(id: JobId) -> Failure {
    Failure::bad_input("JOB_NOT_FOUND", format!("there is no job {id}"), "bursar job list shows them")
}

fn asked(context: &Context, id: JobId, words: &str, asked: JobReply) -> CommandResult {
    match asked {
        JobReply::Done => {
            context.print(&json!({ "job_id": id.to_string(), "done": true }), || format!("{id} {words}"));
            Ok(())
        }
        JobReply::NoSuchJob => Err(not_found(id)),
        JobReply::NeverReplaced => Err(Failure::bad_input(
            "JOB_NOT_NOW",
            format!("nothing replaces the transaction of {id}"),
            "on TRON no slot lets only one of two be mined, and users' Bitcoin that comes home has no change to pay more from; it is told to the nodes again",
        )),
        JobReply::Requester => Err(Failure::bad_input(
            "APPROVAL_BY_REQUESTER",
            format!("{id} is a payment that you have asked for yourself"),
            "somebody else has to approve it",
        )),
        JobReply::KeyOff => Err(Failure::bad_input(
            "APPROVAL_BAD",
            "the key, or the person who has it, is switched off",
            "bursar operator list shows keys and people; the treasury file switches them on and off",
        )),
        JobReply::NotNow(state) => Err(Failure::bad_input(
            "JOB_NOT_NOW",
            format!("{id} is {state}"),
            "bursar job show says what it waits for; the page says what can be done in which state",
        )),
    }
}

/// Whose address something is, if it is one of ours.
type Ours = Option<(GroupId, i64)>;

async fn add(context: &Context, db: &Db, arguments: &AddArguments) -> CommandResult {
    let pinned = pins::pinned(&context.config, db).await?;
    pins::check(&context.config, db, &pinned).await?;
    let catalog = store::catalog::read_catalog(&mut db.read().await?).await?;
    let name = arguments.chain.parse().map_err(|_| chains::unknown(&arguments.chain, &catalog))?;
    if !catalog.chains.contains_key(&name) {
        return Err(chains::unknown(&arguments.chain, &catalog));
    }
    let chain = row_of(db, &name).await?;
    if chain.kind == domain::ChainKind::Bitcoin && matches!(arguments.kind, JobKind::GasTopup | JobKind::Consolidation)
    {
        let message = format!("nobody asks for {} jobs of Bitcoin by hand", arguments.kind.as_str());
        let hint =
            "fees are paid out of the coins themselves; what users' addresses have comes home by a consolidation rule";
        return Err(Failure::bad_input("INVALID_CHAIN", message, hint));
    }
    let family =
        Family::of_chain(chain.kind, &chain.network).ok_or_else(|| chains::unknown(name.as_str(), &catalog))?;
    let listing = chain.listings.iter().find(|one| one.symbol.as_str() == arguments.asset).ok_or_else(|| {
        let known: Vec<&str> = chain.listings.iter().map(|one| one.symbol.as_str()).collect();
        let message = format!("{} is not listed on {name}", arguments.asset);
        Failure::bad_input("INVALID_ASSET", message, format!("there are: {}", known.join(", ")))
    })?;
    let precision = catalog.assets.get(&listing.symbol).map(|asset| asset.precision);
    let precision = precision.ok_or_else(|| {
        Failure::bad_input("INVALID_ASSET", format!("there is no asset {}", listing.symbol), "bursar apply lists it")
    })?;
    let amount: Amount = crate::treasury::positive("--amount", &arguments.amount, precision)?;
    let raw = RawAmount::from_ledger(amount, &listing.form)
        .map_err(|error| Failure::bad_input("OVERFLOW", format!("--amount: {error}"), "use a smaller amount"))?;
    let users = || {
        pinned.deposit_group(family).map_err(|why| {
            Failure::bad_input("WALLET_GROUP_UNUSABLE", why, "users' addresses come from the treasury file")
        })
    };
    let user_address = |user: i64| -> Result<(String, (GroupId, i64)), Failure> {
        let group = users()?;
        let number = UserId::new(user).map(UserId::get).unwrap_or(user);
        let address = group
            .group
            .address(number.unsigned_abs())
            .map_err(|error| Failure::bad_input("INVALID_USER", error.to_string(), "users have positive numbers"))?;
        Ok((address.to_string(), (group.group.id.clone(), number)))
    };
    let (to, owner): (String, Ours) = match (&arguments.to, arguments.to_user) {
        (_, Some(user)) => user_address(user).map(|(address, owner)| (address, Some(owner)))?,
        (Some(text), None) => {
            let to = family.parse_address(text).map_err(|error| {
                Failure::bad_input(error.code(), format!("--to: {error}"), "copy the address again, and mind the chain")
            })?;
            let ours = pinned.wallets().find(|(on, _, wallet)| **on == name && wallet.address == to);
            let owner = ours.and_then(|(_, place, _)| match place {
                Place::Derived { group, index } => Some((group.clone(), *index)),
                Place::Written(_) => None,
            });
            (to.to_string(), owner)
        }
        (None, None) => {
            return Err(Failure::bad_input("BAD_USAGE", "--to or --to-user is missing", "bursar job add --help"));
        }
    };
    let payer = match (arguments.kind.payer(), arguments.from_user) {
        (Some(role), None) => Payer::Role(role),
        (None, Some(user)) => {
            let (address, (group, index)) = user_address(user)?;
            Payer::Wallet { group, index, address }
        }
        (Some(_), Some(_)) | (None, None) => {
            let message = "--from-user and --kind consolidation belong together";
            return Err(Failure::bad_input("BAD_USAGE", message, "bursar job add --help"));
        }
    };
    let most_fee = match &arguments.most_fee {
        None => chain.outbound.fee_cap,
        Some(text) => text.parse().map_err(|error: domain::raw::RawAmountError| {
            Failure::bad_input("INVALID_AMOUNT", format!("--most-fee: {error}"), "a whole number of the smallest unit")
        })?,
    };
    let now = SystemClock.now();
    let job = NewJob {
        id: new_id(db).await?,
        listing: listing.id,
        kind: arguments.kind,
        reference: reference(&arguments.reference)?,
        to: to.clone(),
        owner,
        amount: raw,
        most_fee,
        priority: arguments.priority.unwrap_or_else(|| arguments.kind.priority()),
        requester: requester(&arguments.actor)?,
        expires: now.plus_micros(arguments.expires * 3_600 * 1_000_000),
        payer,
    };
    let added = db.add_jobs(chain.id, std::slice::from_ref(&job), now).await?;
    let shown = amount.display(precision).to_string();
    report(context, &chain, added.first(), &format!("{shown} {} to {to}", listing.symbol))
}

fn report(context: &Context, chain: &ChainRow, added: Option<&Added>, what: &str) -> CommandResult {
    match added {
        Some(Added::New { id, from }) => {
            let body = json!({ "job_id": id.to_string(), "from": from, "again": false });
            context.print(&body, || format!("{id}: {what}, from {from}"));
            Ok(())
        }
        Some(Added::Before(id)) => {
            context.print(&json!({ "job_id": id.to_string(), "again": true }), || format!("{id}: {what}, made before"));
            Ok(())
        }
        Some(Added::Taken(id)) => Err(Failure::bad_input(
            "JOB_REFERENCE_TAKEN",
            format!("the reference is that of {id}, which pays something else"),
            "bursar job show says what; another payment has another reference",
        )),
        Some(Added::OfWithdrawal) => Err(Failure::bad_input(
            "JOB_REFERENCE_TAKEN",
            "the reference is a withdrawal's name, and withdrawals make their own jobs",
            "bursar withdrawal show says where it stands; another payment has a reference that does not begin with wr-",
        )),
        Some(Added::NoWallet) | None => Err(Failure::bad_input(
            "JOB_NO_WALLET",
            format!("no wallet that could pay it is active on {}", chain.name),
            "add one under [[operation_wallets]] in the treasury file, and apply it; bursar wallet show lists them",
        )),
    }
}

fn reference(text: &str) -> Result<String, Failure> {
    let good = (1..=128).contains(&text.len()) && text.chars().all(|one| !one.is_control());
    let hint = "1 to 128 characters that name what is paid";
    if good {
        Ok(text.to_owned())
    } else {
        Err(Failure::bad_input("BAD_USAGE", "--reference is empty or too long", hint))
    }
}

/// As the signer knows people.
fn requester(text: &str) -> Result<String, Failure> {
    let lower = text.trim().to_lowercase();
    if lower == custody::treasury::REQUESTER {
        // What this name has asked for is taken for a rule's own, and a rule would ask for the same again.
        return Err(Failure::bad_input("BAD_USAGE", "--actor: rules have this name", "name the person who asks"));
    }
    let named: Result<signer::names::Person, _> = lower.parse();
    named.map(|_| lower).map_err(|error| Failure::bad_input("BAD_USAGE", format!("--actor: {error}"), "--actor ann"))
}

/// A number that no other process makes.
async fn new_id(db: &Db) -> Result<JobId, Failure> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let now = clock.now();
    let holder = format!("job add {}/{}", std::process::id(), now.micros());
    let node = db.lease_node(&holder, now, now.plus_micros(10_000_000)).await?.ok_or_else(|| {
        Failure::bad_input("NODE_NUMBERS_EXHAUSTED", "all node numbers are lent", "try again in a minute")
    })?;
    let made = Generator::new(Arc::clone(&clock), node).next();
    db.give_back_node(node, &holder, clock.now().plus_micros(1_000)).await?;
    made.map_err(|error| Failure::outside("INTERNAL", &error, "the clock of this machine is wrong"))
}

/// In one sentence.
fn why(shown: &ShownJob) -> String {
    let job = &shown.job;
    match (&shown.lane_stopped, &shown.payee_stopped, job.state) {
        (_, _, JobState::Confirmed | JobState::FailedFinal) => job.reason.clone(),
        (Some(stopped), ..) => format!("nothing is sent from its wallet: {stopped}"),
        (None, Some(stopped), _) => format!("nothing is sent to that wallet: {stopped}"),
        (None, None, JobState::FailedRetryable) => format!("{}; tried again at {}", job.reason, job.due),
        (None, None, _) => job.reason.clone(),
    }
}

fn as_json(shown: &ShownJob) -> Value {
    let job = &shown.job;
    json!({
        "job_id": job.id.to_string(), "kind": job.kind.as_str(), "reference": job.reference, "chain": shown.chain,
        "asset": shown.asset, "amount": job.amount.in_coins(shown.decimals), "amount_raw": job.amount.to_string(),
        "to": job.to, "from": shown.from, "priority": job.priority, "state": job.state.as_str(), "why": why(shown),
        "tries": job.tries, "slots": job.rounds, "most_fee_raw": job.most_fee.to_string(), "requester": job.requester,
        "created_at": job.created.to_string(), "expires_at": job.expires.to_string(),
    })
}

async fn list(context: &Context, db: &Db, arguments: &ListArguments) -> CommandResult {
    let before = arguments.cursor.as_deref().map_or(Ok(i64::MAX), |text| parse_id(text).map(JobId::number))?;
    let filter = JobFilter { chain: arguments.chain.clone(), state: arguments.state, lane: arguments.wallet.clone() };
    let rows = db.jobs(&filter, before, arguments.limit).await?;
    let more = i64::try_from(rows.len()).is_ok_and(|count| count == arguments.limit);
    let next = rows.last().filter(|_| more).map(|last| last.job.id.to_string());
    let jobs: Vec<Value> = rows.iter().map(as_json).collect();
    context.print(&json!({ "jobs": jobs, "next_cursor": next }), || {
        if jobs.is_empty() {
            return "no jobs".to_owned();
        }
        let cells = |job: &Value| {
            ["job_id", "kind", "chain", "asset", "amount", "state", "why"]
                .map(|name| job[name].as_str().unwrap_or_default().to_owned())
                .to_vec()
        };
        let rows: Vec<Vec<String>> = jobs.iter().map(cells).collect();
        let shown = table(&["job", "kind", "chain", "asset", "amount", "state", "why"], &[4], &rows);
        next.as_ref().map_or_else(|| shown.clone(), |next| format!("{shown}\nthere may be more: --cursor {next}"))
    });
    Ok(())
}

fn slot_json(slot: &OpenSlot) -> Value {
    let attempts: Vec<Value> = slot
        .attempts
        .iter()
        .map(|attempt| {
            json!({
                "number": attempt.number,
                "kind": match attempt.kind { AttemptKind::Pay => "pay", AttemptKind::Cancel(_) => "cancel" },
                "transaction": attempt.signed.as_ref().map(|(_, hash)| hash.to_string()),
                "refused": attempt.refused, "told_at": attempt.told.map(|at| at.to_string()), "nodes_said": attempt.said,
                "block": attempt.mined.as_ref().map(|mined| mined.height),
                "fee_raw": attempt.mined.as_ref().and_then(|mined| mined.fee).map(|fee| fee.to_string()),
            })
        })
        .collect();
    json!({ "slot": slot.id.0.to_string(), "nonce": slot.nonce, "attempts": attempts })
}

async fn show(context: &Context, db: &Db, id: JobId) -> CommandResult {
    let (shown, slots, steps) = db.job(id).await?.ok_or_else(|| not_found(id))?;
    let mut body = as_json(&shown);
    body["history"] = steps
        .iter()
        .map(|step| json!({ "version": step.version, "state": step.state, "reason": step.reason, "at": step.at.to_string() }))
        .collect();
    body["attempts"] = slots.iter().map(slot_json).collect();
    context.print(&body, || {
        let fields = [
            "job_id",
            "why",
            "state",
            "kind",
            "reference",
            "chain",
            "asset",
            "amount",
            "to",
            "from",
            "requester",
            "created_at",
        ];
        let rows: Vec<Vec<String>> = fields
            .iter()
            .map(|name| vec![(*name).to_owned(), body[*name].as_str().unwrap_or_default().to_owned()])
            .collect();
        let mut tries = Vec::new();
        for slot in &slots {
            for attempt in &slot.attempts {
                let kind = match attempt.kind {
                    AttemptKind::Pay => "pay",
                    AttemptKind::Cancel(_) => "cancel",
                };
                let hash =
                    attempt.signed.as_ref().map_or_else(|| "not signed".to_owned(), |(_, hash)| hash.to_string());
                let what = match (&attempt.mined, &attempt.refused, &attempt.said) {
                    (Some(mined), ..) => format!("in block {}", mined.height),
                    (None, Some(refused), _) => format!("refused: {refused}"),
                    (None, None, Some(said)) => said.clone(),
                    (None, None, None) => String::new(),
                };
                let nonce = slot.nonce.map_or_else(String::new, |nonce| nonce.to_string());
                tries.push(vec![nonce, attempt.number.to_string(), kind.to_owned(), hash, what]);
            }
        }
        let history: Vec<Vec<String>> =
            steps.iter().map(|step| vec![step.at.to_string(), step.state.clone(), step.reason.clone()]).collect();
        let mut text = table(&["", ""], &[], &rows);
        if !tries.is_empty() {
            text = format!("{text}\n\n{}", table(&["nonce", "", "kind", "transaction", "what"], &[0, 1], &tries));
        }
        format!("{text}\n\n{}", table(&["at", "state", "why"], &[], &history))
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use domain::Timestamp;
    use store::entry::ListingId;
    use store::outbound::{JobRow, LaneId};

    use super::*;

    fn shown(state: JobState, reason: &str, lane_stopped: Option<&str>) -> ShownJob {
        let at = Timestamp::from_micros(1_800_000_000_000_000);
        let job = JobRow {
            id: JobId::new(7).expect("a number above zero"),
            lane: LaneId(1),
            listing: ListingId(1),
            kind: JobKind::Withdrawal,
            reference: "invoice-1".to_owned(),
            to: "0x2".to_owned(),
            owner: None,
            amount: RawAmount::ZERO,
            most_fee: RawAmount::ZERO,
            priority: 200,
            requester: "ann".to_owned(),
            expires: at,
            withdrawal: None,
            state,
            version: 1,
            tries: 1,
            rounds: 0,
            slot: None,
            give_up: false,
            bump: false,
            reason: reason.to_owned(),
            due: at,
            created: at,
        };
        let (chain, asset, from) = ("bsc".to_owned(), "BNB".to_owned(), "0x1".to_owned());
        let lane_stopped = lane_stopped.map(str::to_owned);
        ShownJob { job, chain, asset, decimals: 18, from, lane_stopped, payee_stopped: None }
    }

    /// What keeps the wallet keeps the job, whatever the job itself waits for; one that is over waits for nothing.
    #[test]
    fn a_job_says_in_one_sentence_what_it_waits_for() {
        use JobState::{Broadcasted, Confirmed, FailedFinal, FailedRetryable, Queued};
        let coins = "its wallet has 5 of the chain's coin to spare, and needs 7";
        let cap = "the network asks for a higher price than is allowed";
        let people = "the signer refused: 0 of 2 approvals (SIGNER_APPROVALS_MISSING)";
        let stopped = "2 of its nonces were used by somebody else";
        let again = |reason: &str| format!("{reason}; tried again at 2027-01-15T08:00:00.000000Z");
        let kept = format!("nothing is sent from its wallet: {stopped}");
        for (state, reason, lane, expected) in [
            (FailedRetryable, coins, None, again(coins)),
            (FailedRetryable, cap, None, again(cap)),
            (FailedRetryable, people, None, again(people)),
            (Broadcasted, "waits for a block; nodes have it", None, "waits for a block; nodes have it".to_owned()),
            (Queued, "", Some(stopped), kept.clone()),
            (FailedRetryable, coins, Some(stopped), kept.clone()),
            (Broadcasted, "waits for a block; nodes have it", Some(stopped), kept),
            (Confirmed, "paid", Some(stopped), "paid".to_owned()),
            (FailedFinal, people, Some(stopped), people.to_owned()),
        ] {
            let shown = shown(state, reason, lane);
            assert_eq!(why(&shown), expected, "{state:?}");
            assert_eq!(as_json(&shown)["why"], expected, "what is printed is this sentence");
        }
        let to_stopped = |state| ShownJob { payee_stopped: Some("stolen".to_owned()), ..shown(state, coins, None) };
        assert_eq!(why(&to_stopped(FailedRetryable)), "nothing is sent to that wallet: stolen");
        assert_eq!(why(&to_stopped(FailedFinal)), coins);
    }
}
