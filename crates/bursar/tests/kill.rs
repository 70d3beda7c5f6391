//! Laws 1 and 2 under SIGKILL: whatever was acknowledged is there, once, and the books balance after every restart.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use domain::random::Random;
use lab::postgres::PrivatePostgres;
use store::ledger::journal::{MovementFilter, list_movements};
use store::testing::{TestDb, on};
use store::{Db, Engine, Options};

const KILLS: u64 = 20;

fn bursar(url: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
    command.env("BURSAR_DATABASE_URL", url).current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    command
}

fn prepare(url: &str) {
    for arguments in [&["migrate"][..], &["apply", "examples/treasury.toml", "--actor", "drill"]] {
        let done = bursar(url).args(arguments).output().expect("bursar runs");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
}

fn start_drill(url: &str, run: u64) -> Child {
    let mut command = bursar(url);
    command.args(["drill", "ledger", "--run", &run.to_string()]).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the drill starts")
}

/// Lets the drill acknowledge at least a few batches and go on for a random while; then `kill` strikes. Returns what
/// was acknowledged up to the last whole line.
fn acknowledged(mut drill: Child, random: &mut Random, kill: impl FnOnce(&mut Child)) -> HashMap<String, i64> {
    let mut lines = BufReader::new(drill.stdout.take().expect("piped"));
    let mut read_line = move || {
        let mut line = String::new();
        let read = lines.read_line(&mut line).expect("readable");
        // A line cut off by the kill is no acknowledgement.
        (read > 0 && line.ends_with('\n')).then_some(line)
    };
    let mut found = HashMap::new();
    let mut record = |line: String| {
        let (key, outcome) = line.trim_end().split_once(' ').expect("KEY NUMBER");
        found.insert(key.to_owned(), outcome.parse::<i64>().expect("a number"));
    };
    for _ in 0..64 {
        match read_line() {
            Some(line) => record(line),
            None => {
                let output = drill.wait_with_output().expect("ended");
                panic!("the drill ended by itself: {}", String::from_utf8_lossy(&output.stderr));
            }
        }
    }
    // The rest is read while the drill runs: a full pipe would hold it back, and hide what happens at full speed.
    let reader = std::thread::spawn(move || std::iter::from_fn(read_line).collect::<Vec<_>>());
    std::thread::sleep(Duration::from_micros(random.below(60_000)));
    kill(&mut drill);
    drill.wait().expect("ended");
    for line in reader.join().expect("no panic") {
        record(line);
    }
    found
}

async fn assert_all_there(db: &Db, acknowledged: &HashMap<String, i64>) {
    let report = db.audit(|_| ()).await.expect("the audit runs");
    assert!(report.clean(), "{:#?}", report.findings);
    let mut recorded = HashMap::new();
    let mut before = i64::MAX;
    loop {
        let mut tx = db.read().await.expect("a snapshot");
        let page = list_movements(&mut tx, &MovementFilter::All, before, 10_000).await.expect("a page");
        recorded.extend(page.movements.iter().map(|row| (row.op_key.clone(), row.outcome)));
        match page.next_before {
            Some(next) => before = next,
            None => break,
        }
    }
    for (key, outcome) in acknowledged {
        assert_eq!(recorded.get(key), Some(outcome), "{key} was acknowledged");
    }
}

fn a_killed_process_loses_nothing(engine: Engine) {
    on(engine, async |db: &TestDb| {
        prepare(&db.url);
        let mut random = Random::from_seed(42);
        let mut everything = HashMap::new();
        for run in 0..KILLS {
            let drill = start_drill(&db.url, run);
            everything.extend(acknowledged(drill, &mut random, |drill| drill.kill().expect("SIGKILL")));
            assert_all_there(db, &everything).await;
        }
        assert!(everything.len() >= 64 * usize::try_from(KILLS).expect("small"));
    });
}

#[test]
fn sqlite_a_killed_process_loses_nothing() {
    a_killed_process_loses_nothing(Engine::Sqlite);
}

#[test]
fn postgres_a_killed_process_loses_nothing() {
    a_killed_process_loses_nothing(Engine::Postgres);
}

/// The server itself is killed, sessions and all, in mid-batch; a new one starts from the same files.
#[test]
fn postgres_server_killed_in_mid_batch_loses_nothing() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut server = PrivatePostgres::start().expect("a private server");
    let url = server.url();
    prepare(&url);
    let mut random = Random::from_seed(7);
    let mut everything = HashMap::new();
    for run in 0..5 {
        let drill = start_drill(&url, run);
        // The drill then fails by itself, with an error and not with a panic.
        everything.extend(acknowledged(drill, &mut random, |drill| {
            server.kill();
            let status = drill.wait().expect("ended");
            assert_eq!(status.code(), Some(3), "the drill reports that the database is gone");
        }));
        server.restart().expect("the server starts again");
        runtime.block_on(async {
            let db = Db::connect(&url, &Options::default()).await.expect("the server answers");
            assert_all_there(&db, &everything).await;
            db.close().await;
        });
    }
}
