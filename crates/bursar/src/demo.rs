//! `bursar demo`: first success with nothing installed but Rust. A sample treasury on an embedded SQLite database, a
//! stream of ledger operations (good ones, refused ones, replays), then the balances and the audit's verdict.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use domain::ledger::{Movement, OpKey, Operation, Outcome as Decided, Reference, Reply};
use domain::random::Random;
use domain::{AccountId, AccountKind, Amount, AssetId, Clock, UserId};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use store::catalog::{Author, read_assets, read_catalog};
use store::db::sqlite_url;
use store::ledger::{NewAccount, Opened};
use store::{Db, Options};

use crate::clock::{Stopwatch, SystemClock};
use crate::commands::balances::Sheet;
use crate::commands::{audit, scratch};
use crate::failure::{Failure, Outcome};
use crate::output::{say, thousands};
use crate::treasury;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// How long to run, such as 10s, 2m or 500ms
    #[arg(long = "for", default_value = "10s", value_name = "TIME", value_parser = parse_duration)]
    time: Duration,
    /// The same seed makes the same operations, under new keys
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the database is kept; run again to go on with it
    #[arg(long, default_value = "bursar-demo", value_name = "FOLDER")]
    data_dir: PathBuf,
}

/// `500ms`, `10s`, `2m`; at most a day.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| "write a time such as 10s, 2m or 500ms".to_owned())?;
    let millis = match &text[digits.len()..] {
        "ms" => Some(number),
        "s" => number.checked_mul(1_000),
        "m" => number.checked_mul(60_000),
        _ => return Err("write a time such as 10s, 2m or 500ms".to_owned()),
    };
    match millis {
        Some(millis @ 1..=86_400_000) => Ok(Duration::from_millis(millis)),
        _ => Err("between 1ms and a day (1440m)".to_owned()),
    }
}

const TREASURY: &str = include_str!("../../../examples/treasury.toml");
const USERS: i64 = 200;
const BATCH: usize = 256;

pub async fn run(arguments: &Arguments, json: bool) -> Outcome {
    let tell = |text: String| {
        if !json {
            say(text);
        }
    };
    let file = arguments.data_dir.join("demo.db");
    tell(format!("1. database: {} (SQLite, every commit synced to disk)", file.display()));
    let options = Options { create: true, ..Options::default() };
    let db = Db::connect(&sqlite_url(&file), &options).await?;
    db.migrate(SystemClock.now()).await?;
    scratch::check(&db, "demo").await?;

    let known = read_catalog(&mut db.read().await?).await?;
    let wanted = treasury::parse(TREASURY, "examples/treasury.toml", &known.assets)?;
    let author = Author { actor: "demo", reason: "bursar demo" };
    db.apply_catalog(&wanted, &author, SystemClock.now()).await?;
    tell(format!(
        "2. treasury: {} assets, {} chains, {} assets on chains (examples/treasury.toml)",
        wanted.assets.len(),
        wanted.chains.len(),
        wanted.listings.len()
    ));

    let mut stream = Stream::open(&db, arguments.seed).await?;
    tell(format!("3. accounts: {} users with a funding account in each asset", USERS));
    tell(format!("4. operations: deposits, payments, holds, settles, releases; batches of {BATCH}, one commit each"));
    let watch = Stopwatch::start();
    let bar = progress_bar(arguments.time, json);
    while watch.elapsed() < arguments.time {
        stream.post_batch(&db).await?;
        bar.set_position(u64::try_from(watch.elapsed().as_millis()).unwrap_or(u64::MAX));
        bar.set_message(stream.counts.line());
    }
    bar.finish_and_clear();
    let elapsed = watch.elapsed();
    let per_second = u128::from(stream.counts.total()) * 1_000 / elapsed.as_millis().max(1);
    tell(format!("   {}: {per_second} a second, durable", stream.counts.line()));

    db.checkpoint(SystemClock.now()).await?;
    let sheet = Sheet::read(&db).await?;
    let report = audit::with_progress(&db, json).await?;
    db.close().await;
    if json {
        let body = json!({
            "seed": arguments.seed,
            "data_dir": arguments.data_dir.display().to_string(),
            "elapsed_ms": u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
            "operations": {
                "applied": stream.counts.applied, "refused": stream.counts.refused, "replayed": stream.counts.replayed,
            },
            "operations_per_s": u64::try_from(per_second).unwrap_or(u64::MAX),
            "balances": sheet.json(),
            "audit": audit::json(&report),
        });
        say(body);
    } else {
        let program = std::env::args_os().next().unwrap_or_else(|| "bursar".into()).display().to_string();
        say("5. balances (what is owed to each account; custody is negative by the coins it holds)\n");
        say(format!("{}\n", sheet.text()));
        say(format!("6. audit of {} movements\n\n{}", thousands(report.movements), audit::text(&report)));
        say(format!("\nlook around: BURSAR_DATABASE_URL={} {program} journal --limit 10", sqlite_url(&file)));
    }
    audit::verdict(&report)
}

fn progress_bar(time: Duration, quiet: bool) -> ProgressBar {
    let length = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(length) };
    if let Ok(style) = ProgressStyle::with_template("   {bar:30} {percent:>3} %  {msg}") {
        bar.set_style(style);
    }
    bar
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    applied: u64,
    refused: u64,
    replayed: u64,
}

impl Counts {
    const fn total(&self) -> u64 {
        self.applied + self.refused + self.replayed
    }

    fn line(&self) -> String {
        format!(
            "{} applied, {} refused, {} replayed",
            thousands(self.applied),
            thousands(self.refused),
            thousands(self.replayed)
        )
    }
}

/// The accounts of one asset that the stream moves between.
struct Desk {
    asset: AssetId,
    /// One coin in ledger units.
    coin: i64,
    custody: AccountId,
    clearing: AccountId,
    fees: AccountId,
    users: Vec<AccountId>,
}

struct OpenHold {
    key: OpKey,
    desk: usize,
    user: AccountId,
    amount: Amount,
}

/// A seeded stream of operations, as an exchange's day would bring them.
struct Stream {
    random: Random,
    desks: Vec<Desk>,
    holds: Vec<OpenHold>,
    /// What was answered to some operations of the past: asked again, the answer must be the same.
    remembered: Vec<(Operation, Decided)>,
    run: i64,
    next: u64,
    counts: Counts,
}

impl Stream {
    async fn open(db: &Db, seed: u64) -> Result<Self, Failure> {
        let catalog = read_catalog(&mut db.read().await?).await?;
        let assets = read_assets(&mut db.read().await?).await?;
        let mut desks = Vec::new();
        for (asset, details) in assets {
            let Some((_, chain)) = catalog.listings.keys().find(|(symbol, _)| *symbol == details.symbol) else {
                continue;
            };
            let kinds = [AccountKind::Custody(chain.clone()), AccountKind::Suspense, AccountKind::Fees];
            let system = kinds.iter().filter_map(|kind| NewAccount::system(kind, asset));
            let users = (1..=USERS).filter_map(UserId::new).map(|user| NewAccount::funding(user, asset));
            let wanted: Vec<NewAccount> = system.chain(users).collect();
            let ids: HashMap<usize, AccountId> = db
                .open(&wanted, SystemClock.now())
                .await?
                .into_iter()
                .enumerate()
                .filter_map(|(at, opened)| match opened {
                    Opened::Account(id) => Some((at, id)),
                    Opened::UnknownAsset => None,
                })
                .collect();
            let coin = 10_i64.pow(u32::from(details.precision.decimals()));
            let users = (3..wanted.len()).map(|at| ids[&at]).collect();
            desks.push(Desk { asset, coin, custody: ids[&0], clearing: ids[&1], fees: ids[&2], users });
        }
        let run = SystemClock.now().micros();
        let (random, holds, remembered) = (Random::from_seed(seed), Vec::new(), Vec::new());
        Ok(Self { random, desks, holds, remembered, run, next: 0, counts: Counts::default() })
    }

    async fn post_batch(&mut self, db: &Db) -> Outcome {
        let mut operations = Vec::with_capacity(BATCH);
        let mut expected: HashMap<OpKey, Decided> = HashMap::new();
        while operations.len() < BATCH {
            if self.random.below(50) == 0 && !self.remembered.is_empty() {
                let (operation, outcome) = &self.remembered[self.random.index(self.remembered.len())];
                expected.insert(operation.key().clone(), *outcome);
                operations.push(operation.clone());
            } else {
                operations.push(self.operation().map_err(|error| internal(&error))?);
            }
        }
        let replies = db.post(&operations, SystemClock.now()).await?;
        for (operation, reply) in operations.into_iter().zip(replies) {
            match reply {
                Reply::First(outcome) => {
                    match outcome {
                        Decided::Applied => self.counts.applied += 1,
                        Decided::Refused(_) => self.counts.refused += 1,
                    }
                    if self.remembered.len() < 1_000 {
                        self.remembered.push((operation, outcome));
                    }
                }
                Reply::Replay(outcome) => {
                    self.counts.replayed += 1;
                    if expected.get(operation.key()).is_some_and(|first| *first != outcome) {
                        let what = format!("{} was answered differently when sent again", operation.key());
                        return Err(store::StoreError::Corrupt { what }.into());
                    }
                }
                Reply::Conflict(difference) => {
                    let what = format!("{}: {difference}", operation.key());
                    return Err(store::StoreError::Corrupt { what }.into());
                }
            }
        }
        Ok(())
    }

    fn operation(&mut self) -> Result<Operation, domain::ledger::BadOperation> {
        self.next += 1;
        let key = OpKey::new(format!("demo-{}-{}", self.run, self.next))?;
        let at = self.random.index(self.desks.len());
        let kind = self.random.below(100);
        let (one, other) = (self.random.next_u64(), self.random.next_u64());
        let share = 1 + self.random.below(200);
        let desk = &self.desks[at];
        let user = |number: u64| desk.users[usize::try_from(number).unwrap_or(0) % desk.users.len()];
        // Up to two coins, in hundredths.
        let amount = Amount::from_units((desk.coin / 100).max(1) * i64::try_from(share).unwrap_or(1));
        let movement = |from, to, amount| Movement { from, to, asset: desk.asset, amount };
        match kind {
            0..=29 => Operation::post(key, vec![movement(desk.custody, user(one), amount)], Reference::new("deposit")?),
            30..=44 => {
                let (from, to) = (user(one), user(other));
                let to = if from == to { desk.fees } else { to };
                Operation::post(key, vec![movement(from, to, amount)], Reference::new("payment to another user")?)
            }
            // Asks for far too much, and is refused.
            45..=46 => {
                let far_too_much = Amount::from_units(desk.coin.saturating_mul(1_000_000));
                Operation::post(key, vec![movement(user(one), desk.fees, far_too_much)], Reference::new("overdraft")?)
            }
            47..=72 => {
                let user = user(one);
                self.holds.push(OpenHold { key: key.clone(), desk: at, user, amount });
                Ok(Operation::hold(key, user, desk.asset, amount, Reference::new("hold for a transfer to spot")?))
            }
            _ => match self.holds.pop() {
                None => {
                    Operation::post(key, vec![movement(desk.custody, user(one), amount)], Reference::new("deposit")?)
                }
                Some(hold) => end_of_hold(key, hold, &self.desks, kind >= 95),
            },
        }
    }
}

/// Most holds are settled, amount to the spot engine and a fee to the house; some are released.
fn end_of_hold(
    key: OpKey,
    hold: OpenHold,
    desks: &[Desk],
    release: bool,
) -> Result<Operation, domain::ledger::BadOperation> {
    let desk = &desks[hold.desk];
    if release {
        let note = Reference::new("the transfer was refused")?;
        return Ok(Operation::release(key, hold.key, hold.user, desk.asset, hold.amount, note));
    }
    let fee = hold.amount.units() / 1_000;
    let paid = Amount::from_units(hold.amount.units() - fee);
    let movement = |to, amount| Movement { from: hold.user, to, asset: desk.asset, amount };
    let mut movements = vec![movement(desk.clearing, paid)];
    if fee > 0 {
        movements.push(movement(desk.fees, Amount::from_units(fee)));
    }
    Operation::settle(key, hold.key, movements, Reference::new("transfer to spot")?)
}

fn internal(error: &(dyn std::error::Error + 'static)) -> Failure {
    Failure::outside("INTERNAL", error, "this is a bug in Bursar: please report it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_or_refused() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        for bad in ["", "10", "s", "-1s", "1.5s", "10h", "0s", "1441m", "99999999999999999999s", "10 s"] {
            assert!(parse_duration(bad).is_err(), "{bad:?}");
        }
    }
}
