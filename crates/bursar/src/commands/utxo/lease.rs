//! `bursar utxo lease …`: outputs that are set aside for a payment.

use std::io::Read;
use std::time::Duration;

use domain::Clock;
use serde_json::{Value, json};
use store::Db;
use store::utxo::{LeaseRow, LockId, OutPoint, RESCAN_LOCK, UtxoId};
use terminal::clock::SystemClock;
use terminal::duration::parse_duration;
use terminal::failure::{CommandResult, Failure};

use super::super::Context;
use super::{input, known_wallet, shown};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Lease outputs: all of them or none
    ///
    /// Whoever has the lock may lease them again, for longer or shorter.
    ///
    /// Example:
    ///   bursar utxo lease take hot 9f64…22:0 9f64…22:1 --new-lock --for 10m
    #[command(verbatim_doc_comment)]
    Take(TakeArguments),
    /// Move the end of the leases that a lock holds; an error if it holds none any more
    Renew {
        /// The wallet's name
        wallet: String,
        /// The lock, as `lease take` has printed it
        #[arg(value_parser = input::lock)]
        lock: LockId,
        /// How long from now, such as 10m, at most a day
        #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
        time: Duration,
    },
    /// End the leases of a lock
    Release {
        /// The wallet's name
        wallet: String,
        /// The lock, as `lease take` has printed it
        #[arg(value_parser = input::lock)]
        lock: LockId,
    },
    /// List a wallet's leases, also those that have ended and were not swept; and outputs that are claimed
    List {
        /// The wallet's name
        wallet: String,
        /// Only outputs with ids above this one: the next page
        #[arg(long, value_name = "ID", allow_negative_numbers = true)]
        after: Option<i64>,
        /// At most so many
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
    },
    /// Remove the leases of all wallets that have ended; they bind nobody, and only take room
    Sweep,
}

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("holder").required(true).args(["lock", "new_lock"]))]
pub struct TakeArguments {
    /// The wallet's name
    wallet: String,
    /// Which outputs, as HASH:NUMBER
    #[arg(required = true, value_name = "OUTPOINT", value_parser = input::outpoint)]
    outpoints: Vec<OutPoint>,
    /// The lock that holds them: 64 hexadecimal digits, one for each piece of work
    #[arg(long, value_name = "HEX", value_parser = input::lock)]
    lock: Option<LockId>,
    /// Make a lock and print it
    #[arg(long)]
    new_lock: bool,
    /// How long from now, such as 10m, at most a day
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    time: Duration,
}

pub async fn run(context: &Context, db: &Db, command: &Command) -> CommandResult {
    match command {
        Command::Take(arguments) => take(context, db, arguments).await,
        Command::Renew { wallet, lock, time } => renew(context, db, wallet, *lock, *time).await,
        Command::Release { wallet, lock } => {
            let wallet = known_wallet(db, wallet).await?;
            let count = db.release(wallet.id, *lock).await?;
            context.print(&json!({ "released": count }), || format!("{} released", shown::counted(count, "output")));
            Ok(())
        }
        Command::List { wallet, after, limit } => list(context, db, wallet, after.map(UtxoId), *limit).await,
        Command::Sweep => {
            let count = db.sweep_leases(SystemClock.now()).await?;
            context.print(&json!({ "swept": count }), || format!("{} removed", shown::counted(count, "ended lease")));
            Ok(())
        }
    }
}

async fn take(context: &Context, db: &Db, arguments: &TakeArguments) -> CommandResult {
    let wallet = known_wallet(db, &arguments.wallet).await?;
    let lock = match arguments.lock {
        Some(lock) => lock,
        None => new_lock()?,
    };
    let now = SystemClock.now();
    let until = input::end_of(now, arguments.time);
    db.lease(wallet.id, &arguments.outpoints, lock, until, now).await?;
    let mut distinct = arguments.outpoints.clone();
    distinct.sort_unstable();
    distinct.dedup();
    let texts: Vec<String> = distinct.iter().map(OutPoint::to_string).collect();
    let lock = shown::hex(&lock.0);
    let body = json!({ "wallet": wallet.name, "lock": lock, "until": until.to_string(), "outpoints": texts });
    context.print(&body, || {
        let count = u64::try_from(texts.len()).unwrap_or(u64::MAX);
        format!("{} leased until {until}\nlock {lock}", shown::counted(count, "output"))
    });
    Ok(())
}

/// A lock of 256 random bits: no other holder has the same.
fn new_lock() -> Result<LockId, Failure> {
    let mut lock = [0; 32];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut lock))
        .map_err(|error| Failure::outside("INTERNAL", &error, "choose a lock yourself: --lock HEX"))?;
    Ok(LockId(lock))
}

/// The holder of a lock renews it because it is about to spend. If the lease has ended, another may have taken the
/// outputs, so nothing to renew is an error.
async fn renew(context: &Context, db: &Db, wallet: &str, lock: LockId, time: Duration) -> CommandResult {
    let wallet = known_wallet(db, wallet).await?;
    let now = SystemClock.now();
    let until = input::end_of(now, time);
    let count = db.renew(wallet.id, lock, until, now).await?;
    if count == 0 {
        let message = format!("the lock {} holds nothing in wallet {}", shown::hex(&lock.0), wallet.name);
        return Err(Failure::bad_input("UTXO_LEASE_ENDED", message, "take the outputs again: bursar utxo lease take"));
    }
    context.print(&json!({ "renewed": count, "until": until.to_string() }), || {
        format!("{} leased until {until}", shown::counted(count, "output"))
    });
    Ok(())
}

async fn list(context: &Context, db: &Db, wallet: &str, after: Option<UtxoId>, limit: u32) -> CommandResult {
    let wallet = known_wallet(db, wallet).await?;
    let now = SystemClock.now();
    let leases = db.leases(wallet.id, after, limit).await?;
    let full = leases.len() == usize::try_from(limit).unwrap_or(0);
    let next = leases.last().filter(|_| full).map(|lease| lease.id.0);
    // A rescan's leases have a lock of their own; what is only claimed has none.
    let state = |lease: &LeaseRow| match (lease.lock, lease.until) {
        (Some(RESCAN_LOCK), _) => "rescan",
        (_, Some(until)) if until > now => "held",
        (_, Some(_)) => "ended",
        (_, None) => "claimed",
    };
    let body: Vec<Value> = leases
        .iter()
        .map(|lease| {
            json!({
                "id": lease.id.0, "outpoint": lease.outpoint.to_string(), "amount": shown::btc(lease.amount),
                "account": lease.account, "lock": lease.lock.map(|lock| shown::hex(&lock.0)),
                "until": lease.until.map(|until| until.to_string()), "state": state(lease),
                "claimed_by": lease.claimed_by.map(|hash| hash.to_string()),
            })
        })
        .collect();
    context.print(&json!({ "wallet": wallet.name, "leases": body, "next_after": next }), || {
        if leases.is_empty() {
            return "no leases".to_owned();
        }
        let cells: Vec<Vec<String>> = leases
            .iter()
            .map(|lease| {
                vec![
                    lease.id.0.to_string(),
                    lease.outpoint.to_string(),
                    shown::btc(lease.amount),
                    lease.account.to_string(),
                    lease.lock.map_or_else(String::new, |lock| shown::hex(&lock.0)),
                    lease.until.map_or_else(String::new, shown::end),
                    state(lease).to_owned(),
                    lease.claimed_by.map_or_else(String::new, |hash| hash.to_string()),
                ]
            })
            .collect();
        let more = next.map_or_else(String::new, |id| format!("\nmore: --after {id}"));
        let header = ["id", "outpoint", "amount", "account", "lock", "until", "state", "claimed by"];
        format!("{}{more}", shown::narrow_table(&header, &[0, 2, 3], &cells))
    });
    Ok(())
}
