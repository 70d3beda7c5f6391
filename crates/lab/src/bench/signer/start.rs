//! How long a signer takes to start on a long log, and what it remembers.
//!
//! The log is written by the log's own code, batch by batch, and nothing is signed for it. A process of its own then starts on it, as a signer does: what this
//! one has freed would say nothing about memory.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use domain::id::first_at;
use domain::{Clock, RawAmount, Timestamp};
use serde::{Deserialize, Serialize};
use signer::digest::sha256;
use signer::log::Log;
use signer::log::entry::{Decision, Effects, Entry, IntentText, PayText};
use signer::log::folder::DiskFolder;
use signer::names::JobId;
use signer::slot::{Held, Place, Slot};
use signer::slots::JobRecord;
use signer::state::State;
use signer::text::{Hash, RawText};
use signer::{Authorizer, GroupId, Moment};
use terminal::clock::{Stopwatch, SystemClock};
use terminal::failure::{CommandResult, Failure};
use terminal::output::say;

use super::trouble;

#[derive(Debug, clap::Args)]
pub struct StartArguments {
    /// The folder of the log
    folder: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Started {
    pub(super) entries: u64,
    pub(super) replayed: u64,
    pub(super) seconds: f64,
    pub(super) remembered: u64,
    pub(super) resident_bytes: u64,
}

pub(super) struct Long {
    pub(super) started: Started,
    pub(super) log_bytes: u64,
    pub(super) snapshot_bytes: u64,
}

/// Of what the snapshot holds, so many entries are written with one sync.
const BATCH: u64 = 4_096;
/// Of what is replayed, as many as the calls of this bench.
const SMALL_BATCH: u64 = 64;
/// The entries are spread over half of what a service remembers unless told otherwise, so every job is remembered.
const SPREAD_US: i64 = 45 * 24 * 3_600 * 1_000_000;
/// A service takes a snapshot when the log has grown by so much, and by half a percent of what it remembers.
const SNAPSHOT: u64 = 50_000;
const SHARE: u64 = 200;

/// Of this process, as the system counts it.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4_096
}

/// What all payments of this log have in common.
struct Payments {
    group: GroupId,
    requester: signer::names::Person,
    chain: domain::ChainName,
    account: [u8; 20],
    fee: RawAmount,
    amount: RawAmount,
}

impl Payments {
    fn new(group: GroupId) -> Result<Self, Failure> {
        let raw = |text: &str| text.parse().map_err(|error: domain::raw::RawAmountError| trouble("an amount", error));
        let hot = tx::evm::address::parse("0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266");
        Ok(Self {
            group,
            requester: "alice".parse().map_err(|error| trouble("a name", error))?,
            chain: "bsc".parse().map_err(|error| trouble("a name", error))?,
            account: hot.map_err(|error| trouble("an address", error))?.into_array(),
            fee: raw("105000000000000")?,
            amount: raw("900")?,
        })
    }

    /// One payment, as the log keeps it.
    fn entry(&self, number: u64, at: i64) -> Result<Entry, Failure> {
        let digest = Hash(sha256(&number.to_be_bytes()));
        // Jobs of one time are told apart by what is left of their numbers.
        let job = JobId::Job(first_at(Timestamp::from_micros(at)) + i64::try_from(number % 1_000).unwrap_or(0));
        let pay = PayText {
            coin: "native".to_owned(),
            to: "0x734fa7A902F384DEDFe4a673eEd5a9ea2328008c".to_owned(),
            amount: RawText(self.amount),
            owner: None,
        };
        let intent = IntentText {
            job,
            round: 0,
            pay: Some(pay),
            cancels: Vec::new(),
            most_fee: RawText(self.fee),
            expires: at,
            builds: 1,
            requester: self.requester.clone(),
        };
        let decision = Decision {
            at,
            request: format!("job-{number}").parse().map_err(|error| trouble("a name", error))?,
            content: digest,
            policy: 1,
            rule: "hot/native/free".to_owned(),
            chain: self.chain.to_string(),
            group: self.group.clone(),
            intents: vec![intent],
            approvals: Vec::new(),
            fee: Some(RawText(self.fee)),
            fee_added: RawText(self.fee),
            indexes: vec![0],
            change: Vec::new(),
            again: Vec::new(),
        };
        let place = Place::Nonce { account: self.account, nonce: number };
        let record = JobRecord {
            payment: digest,
            round: 0,
            held: Held::Nonce(Slot { chain: self.chain.clone(), place }),
            cancelled: false,
            cancels: Vec::new(),
            intent: digest,
            approved: None,
            builds: std::collections::BTreeMap::new(),
            fee: RawText(self.fee),
            payload: digest,
        };
        let counted = vec![("native".to_owned(), RawText(self.amount))];
        let effects = Effects { payload: digest, jobs: vec![(job, record)], counted, amounts: Vec::new() };
        Ok(Entry::Approved { decision, effects })
    }
}

fn open(folder: &Path) -> Result<DiskFolder, Failure> {
    let disk = DiskFolder::exclusive(folder).map_err(|error| trouble("log", error))?;
    disk.ok_or_else(|| trouble("log", "another process has it"))
}

/// A log of so many entries, with the snapshot as far back as a service ever lets it be.
fn write(folder: &Path, entries: u64, payments: &Payments) -> Result<(), Failure> {
    let failed = |error: signer::log::LogError| trouble("log", error);
    let now = SystemClock.now();
    let at = |number: u64| {
        let done = i128::from(SPREAD_US) * i128::from(number) / i128::from(entries.max(1));
        now.micros() - SPREAD_US + i64::try_from(done).unwrap_or(0)
    };
    let (mut log, mut state): (Log<DiskFolder>, State) = Log::open(open(folder)?, None).map_err(failed)?;
    let in_snapshot = entries.saturating_sub(SNAPSHOT.max(entries / SHARE));
    let mut number = 0;
    while number < entries {
        let (batch, end) = if number < in_snapshot { (BATCH, in_snapshot) } else { (SMALL_BATCH, entries) };
        let last = (number + batch).min(end);
        let made =
            (number..last).map(|number| payments.entry(number, at(number))).collect::<Result<Vec<_>, Failure>>()?;
        if number < in_snapshot {
            made.iter().try_for_each(|entry| state.apply(entry)).map_err(|error| trouble("log", error))?;
        }
        log.append(&made).map_err(failed)?;
        number = last;
        if number == in_snapshot {
            log.snapshot(&state).map_err(failed)?;
        }
    }
    Ok(())
}

/// Makes the log, and has another process start on it.
pub(super) async fn measure(folder: &Path, entries: u64, group: GroupId) -> Result<Long, Failure> {
    let folder = folder.join("long");
    write(&folder, entries, &Payments::new(group)?)?;
    let failed = |error: std::io::Error| Failure::outside("COMMAND_FAILED", &error, "the bench starts itself again");
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = tokio::process::Command::new(program);
    command.args(["bench", "signer-start"]).arg(&folder).stdout(Stdio::piped()).kill_on_drop(true);
    let output = command.output().await.map_err(failed)?;
    let started: Option<Started> = serde_json::from_slice(&output.stdout).ok().filter(|_| output.status.success());
    let started = started.ok_or_else(|| failed(std::io::Error::other("the process that starts on the log failed")))?;
    let size = |prefix: &str| -> u64 {
        let files = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let of_kind = files.filter(|one| one.file_name().to_string_lossy().starts_with(prefix));
        of_kind.filter_map(|one| one.metadata().ok()).map(|one| one.len()).sum()
    };
    Ok(Long { started, log_bytes: size("log-"), snapshot_bytes: size("snapshot-") })
}

/// The other process.
pub fn run_start(arguments: &StartArguments) -> CommandResult {
    let before = resident_bytes();
    let watch = Stopwatch::start();
    let moment = Moment { date: SystemClock.now(), uptime_us: 0 };
    let authorizer = Authorizer::open(open(&arguments.folder)?, None, moment).map_err(|error| trouble("log", error))?;
    let started = Started {
        seconds: watch.elapsed().as_secs_f64(),
        entries: authorizer.head().entries,
        replayed: authorizer.since_snapshot(),
        remembered: u64::try_from(authorizer.state().requests.len()).unwrap_or(u64::MAX),
        resident_bytes: resident_bytes().saturating_sub(before),
    };
    say(serde_json::to_string(&started).map_err(|error| trouble("what was measured", error))?);
    Ok(())
}
