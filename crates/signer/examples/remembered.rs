//! What remembering costs: makes jobs through entries of the log, writes a snapshot, and opens it.
//!
//! ```text
//! cargo run --release -p signer --example remembered -- write FOLDER 1000000
//! cargo run --release -p signer --example remembered -- open FOLDER
//! ```
//!
//! Two processes, because memory that one has freed says nothing. A job is one payment on an EVM chain: a nonce, four
//! hashes, a request with a name of twenty-two letters.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::float_arithmetic,
    reason = "it measures, and stops where it fails"
)]

use std::path::Path;
use std::time::{Duration, Instant};

use domain::{RawAmount, Timestamp};
use signer::digest::sha256;
use signer::log::Log;
use signer::log::entry::{Decision, Effects, Entry};
use signer::log::folder::DiskFolder;
use signer::names::JobId;
use signer::slots::JobRecord;
use signer::state::State;
use signer::text::{Hash, RawText};

const START: i64 = 1_794_850_000_000_000;
const WALLETS: u64 = 64;
/// As many as one batch of the service has.
const BATCH: u64 = 64;

fn hash(what: &str, number: u64) -> Hash {
    Hash(sha256(format!("{what}/{number}").as_bytes()))
}

fn entry(number: u64, accounts: &[String]) -> Entry {
    let at = START + i64::try_from(number).unwrap() * 1_000;
    let job = JobId::Withdrawal(domain::id::first_at(Timestamp::from_micros(at)) + 1);
    let account = &accounts[usize::try_from(number % WALLETS).unwrap()];
    let fee = RawText("1260000000000000".parse().unwrap());
    let record = JobRecord {
        payment: hash("payment", number),
        round: 0,
        held: serde_json::from_value(serde_json::json!({"nonce": format!("bsc:{account}:{}", number / WALLETS)}))
            .unwrap(),
        cancelled: false,
        cancels: Vec::new(),
        intent: hash("intent", number),
        approved: None,
        builds: std::collections::BTreeMap::new(),
        fee,
        payload: hash("payload", number),
    };
    let effects = Effects {
        payload: record.payload,
        jobs: vec![(job, record)],
        counted: vec![("native".to_owned(), RawText(RawAmount::ZERO))],
        amounts: Vec::new(),
    };
    let decision = Decision {
        at,
        request: job.to_string().parse().unwrap(),
        content: hash("content", number),
        policy: 1,
        rule: "hot-bsc/native/free".to_owned(),
        chain: "bsc".to_owned(),
        group: "hot-bsc".parse().unwrap(),
        intents: Vec::new(),
        approvals: Vec::new(),
        fee: Some(fee),
        fee_added: fee,
        indexes: vec![0],
        change: Vec::new(),
        again: Vec::new(),
    };
    Entry::Approved { decision, effects }
}

/// Of this process now, and at its highest: kilobytes.
fn memory() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let of = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    (of("VmRSS:"), of("VmHWM:"))
}

fn per(kilobytes: u64, jobs: u64) -> u64 {
    kilobytes * 1_024 / jobs.max(1)
}

fn show(what: &str, took: Duration, before: (u64, u64), jobs: u64) {
    let (now, highest) = memory();
    println!(
        "{what}: {:.2} s, {} bytes of memory a job, {} at the highest",
        took.as_secs_f64(),
        per(now.saturating_sub(before.0), jobs),
        per(highest.saturating_sub(before.0), jobs)
    );
}

fn account(number: u64) -> String {
    let bytes = &sha256(&number.to_be_bytes())[..20];
    let small = format!("0x{}", signer::digest::hex(bytes));
    tx::Address::Evm(tx::evm::address::parse(&small).unwrap()).to_string()
}

fn write(folder: &Path, jobs: u64) {
    let accounts: Vec<String> = (0..WALLETS).map(account).collect();
    let disk = DiskFolder::exclusive(folder).unwrap().unwrap();
    let before = memory();
    let (mut log, mut state): (_, State) = Log::open(disk, None).unwrap();
    let start = Instant::now();
    // The log gets the last batch only: what came before is in the snapshot, and its entries would be gigabytes of syncs.
    let (mut last, mut applying) = (Vec::new(), Duration::ZERO);
    for number in 0..jobs {
        let entry = entry(number, &accounts);
        let start = Instant::now();
        state.apply(&entry).unwrap();
        applying += start.elapsed();
        if number + BATCH >= jobs {
            last.push(entry);
        }
    }
    log.append(&last).unwrap();
    show("entries made and taken up", start.elapsed(), before, jobs);
    show("of that, taken up", applying, before, jobs);
    let start = Instant::now();
    state.forget(state.last.plus_micros(-90 * 24 * 3_600 * 1_000_000));
    let taken = log.take_snapshot(&state).unwrap().unwrap();
    show("snapshot taken, while nothing is signed", start.elapsed(), before, jobs);
    let start = Instant::now();
    let written = taken.write().unwrap();
    show("snapshot written, while signing goes on", start.elapsed(), before, jobs);
    log.finish_snapshot(&written).unwrap();
    for batch in 0..16 {
        let tail: Vec<Entry> = (0..BATCH).map(|number| entry(jobs + batch * BATCH + number, &accounts)).collect();
        log.append(&tail).unwrap();
    }
    let length = |name: &std::fs::DirEntry| name.metadata().unwrap().len();
    let snapshot = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let longest = snapshot.map(|file| length(&file)).max().unwrap();
    println!("snapshot: {} bytes a job", longest / jobs.max(1));
}

fn open(folder: &Path) {
    let before = memory();
    let start = Instant::now();
    let disk = DiskFolder::exclusive(folder).unwrap().unwrap();
    let (_log, state) = Log::open(disk, None).unwrap();
    let jobs = u64::try_from(state.slots.count()).unwrap();
    println!("{jobs} jobs");
    show("opened", start.elapsed(), before, jobs);
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["write", folder, jobs] => write(Path::new(folder), jobs.parse().unwrap()),
        ["open", folder] => open(Path::new(folder)),
        _ => println!("remembered write FOLDER JOBS, or remembered open FOLDER"),
    }
}
