//! How long a signer takes to start on a long log, and what it remembers.

use std::path::Path;

use domain::id::first_at;
use domain::{Clock, Timestamp};
use signer::digest::{hex, sha256};
use signer::log::Log;
use signer::log::entry::Entry;
use signer::log::folder::DiskFolder;
use signer::state::State;
use signer::{Authorizer, GroupId, Moment};
use terminal::clock::{Stopwatch, SystemClock};
use terminal::failure::Failure;

use super::trouble;

pub(super) struct Started {
    pub(super) entries: u64,
    pub(super) replayed: u64,
    pub(super) seconds: f64,
    pub(super) log_bytes: u64,
    pub(super) snapshot_bytes: u64,
    pub(super) bytes_per_job: u64,
}

const BATCH: u64 = 4_096;
/// What a service forgets, as it is unless told otherwise.
const HORIZON_US: i64 = 90 * 24 * 3_600 * 1_000_000;
/// The entries are spread over so long: every job is within the horizon, and so remembered.
const SPREAD_US: i64 = HORIZON_US / 2;
/// A service takes a snapshot when the log has grown by so much, and by half a percent of what it remembers.
const SNAPSHOT: u64 = 50_000;

/// Of this process, as the system counts it.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4_096
}

/// One payment, as the log keeps it.
fn entry(number: u64, at: i64, group: &GroupId) -> Result<Entry, Failure> {
    let digest = hex(&sha256(&number.to_be_bytes()));
    // Jobs of one time are told apart by what is left of their numbers.
    let job = first_at(Timestamp::from_micros(at)) + i64::try_from(number % 1_000).unwrap_or(0);
    let to = "0x734fa7a902f384dedfe4a673eed5a9ea2328008c";
    let from = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266";
    let text = format!(
        r#"{{"entry":"approved","decision":{{"at":{at},"request":"job-{number}","content":"{digest}","policy":1,
        "rule":"hot/native/free","chain":"bsc","group":"{group}","intents":[{{"job":"job-{job}",
        "pay":{{"coin":"native","to":"{to}","amount":"900"}},"most_fee":"105000000000000","expires":{at},"builds":1,
        "requester":"alice"}}],"fee":"105000000000000","fee_added":"105000000000000","indexes":[0]}},
        "effects":{{"payload":"{digest}","jobs":[["job-{job}",{{"payment":"{digest}","round":0,
        "held":{{"nonce":"bsc:{from}:{number}"}},"intent":"{digest}","fee":"105000000000000",
        "payload":"{digest}"}}]],"counted":[["native","900"]]}}}}"#
    );
    serde_json::from_str(&text).map_err(|error| trouble("an entry", error))
}

pub(super) fn measure(folder: &Path, entries: u64, group: GroupId) -> Result<Started, Failure> {
    let folder = folder.join("long");
    let open = || -> Result<DiskFolder, Failure> {
        let disk = DiskFolder::exclusive(&folder).map_err(|error| trouble("log", error))?;
        disk.ok_or_else(|| trouble("log", "another process has it"))
    };
    let failed = |error: signer::log::LogError| trouble("log", error);
    let now = SystemClock.now();
    {
        let (mut log, mut state): (Log<DiskFolder>, State) = Log::open(open()?, None).map_err(failed)?;
        let mut number = 0;
        while number < entries {
            let last = (number + BATCH).min(entries);
            let at = |number: u64| {
                let done = i128::from(SPREAD_US) * i128::from(number) / i128::from(entries.max(1));
                now.micros() - SPREAD_US + i64::try_from(done).unwrap_or(0)
            };
            let batch =
                (number..last).map(|number| entry(number, at(number), &group)).collect::<Result<Vec<_>, _>>()?;
            for entry in &batch {
                state.apply(entry).map_err(|error| trouble("log", error))?;
            }
            log.append(&batch).map_err(failed)?;
            number = last;
            let remembered = u64::try_from(state.requests.len()).unwrap_or(u64::MAX);
            if log.since_snapshot() >= SNAPSHOT.max(remembered / 200) {
                state.forget(state.last.plus_micros(-HORIZON_US));
                log.snapshot(&state).map_err(failed)?;
                log.drop_old_snapshots().map_err(failed)?;
            }
        }
    }
    let size = |prefix: &str| -> u64 {
        let files = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let of_kind = files.filter(|one| one.file_name().to_string_lossy().starts_with(prefix));
        of_kind.filter_map(|one| one.metadata().ok()).map(|one| one.len()).max().unwrap_or(0)
    };
    let before = resident_bytes();
    let disk = open()?;
    let watch = Stopwatch::start();
    let authorizer = Authorizer::open(disk, None, Moment { date: SystemClock.now(), uptime_us: 0 }).map_err(failed)?;
    let seconds = watch.elapsed().as_secs_f64();
    let remembered = u64::try_from(authorizer.state().requests.len()).unwrap_or(1).max(1);
    Ok(Started {
        entries: authorizer.head().entries,
        replayed: authorizer.since_snapshot(),
        seconds,
        log_bytes: size("log-"),
        snapshot_bytes: size("snapshot-"),
        bytes_per_job: resident_bytes().saturating_sub(before) / remembered,
    })
}
