//! The spot engine under SIGKILL, a hundred times: what was answered is there, nothing is half there, and the money
//! adds up.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use domain::random::Random;
use spot::sim::model::Model;
use spot::{Core, Disk, Operation, Settings, Standing};

const KILLS: u64 = 50;

fn start(folder: &Path, run: u64, snapshots: bool) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
    command.args(["drill", "spot", "--run", &run.to_string()]).arg(folder);
    if snapshots {
        command.args(["--snapshot", "1"]);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().expect("the drill starts")
}

/// Lets the drill answer a while, kills it, and adds what it had said, up to the last whole line.
fn kill_after_a_while(
    mut drill: Child,
    longest: Duration,
    random: &mut Random,
    said: &mut HashMap<i64, (String, String)>,
) {
    let mut lines = BufReader::new(drill.stdout.take().expect("piped"));
    let mut read = |said: &mut HashMap<i64, (String, String)>| {
        let mut line = String::new();
        // A line cut off by the kill was not said.
        if lines.read_line(&mut line).expect("readable") == 0 || !line.ends_with('\n') {
            return false;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        said.insert(words[0].parse().expect("an id"), (words[1].to_owned(), words[2].to_owned()));
        true
    };
    for _ in 0..20 {
        assert!(read(said), "the drill ended by itself");
    }
    let killer = std::thread::spawn({
        let time = Duration::from_micros(random.below(u64::try_from(longest.as_micros()).expect("short")));
        move || {
            std::thread::sleep(time);
            drill.kill().expect("killed");
            drill.wait().expect("gone");
        }
    });
    while read(said) {}
    killer.join().expect("no panic");
}

fn settings() -> Settings {
    Settings { segment_bytes: 1 << 20, ..Settings::default() }
}

/// Starts from the files alone, and holds the result against what was said.
fn check_standings(folder: &Path, said: &HashMap<i64, (String, String)>) -> Core<Disk> {
    let disk = Disk::exclusive(folder).expect("opened").expect("the killed one let go of it");
    let (core, _) = Core::open(Arc::new(disk), &settings(), &mut |_| {}).expect("it starts after a kill");
    let standings: HashMap<i64, Standing> = core.state().standings().map(|(id, what)| (id.number(), what)).collect();
    for (id, (kind, outcome)) in said {
        let standing = standings.get(id).unwrap_or_else(|| panic!("{id} was answered {outcome} and is gone"));
        let fits = match (kind.as_str(), outcome.as_str(), standing) {
            ("rollback", "applied", Standing::RolledBack | Standing::Void | Standing::Refused(_)) => true,
            // A rollback that was not answered may have followed.
            ("run", "applied", Standing::Applied | Standing::RolledBack) => true,
            ("run", "WITHDRAWAL_VOIDED", Standing::Void) => true,
            ("run", code, Standing::Refused(refusal)) => refusal.code() == code,
            _ => false,
        };
        assert!(fits, "{id}: {kind} was answered {outcome}, and now stands {standing:?}");
    }
    core
}

#[test]
fn fifty_kills_and_every_batch_is_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut random = Random::from_seed(1);
    let mut said = HashMap::new();
    for run in 1..=KILLS {
        kill_after_a_while(start(folder.path(), run, false), Duration::from_millis(25), &mut random, &mut said);
        let core = check_standings(folder.path(), &said);
        if run % 10 == 0 {
            // The whole log once more, through the plain model: none half-applied, nothing lost, nothing made up.
            let mut model = Model::new(settings().retention_micros);
            let mut operations: Vec<Operation> = Vec::new();
            let disk = Disk::for_reading(folder.path());
            let verified = spot::tools::verify(&disk, &mut |_| {}, &mut |record, operation, _| {
                model.set_window(record.header.window);
                model.answer(&(*operation).into());
                operations.push(*operation);
            });
            assert_eq!(verified.expect("sound").state.digest(), core.state().digest());
            assert_eq!(model.difference(core.state()), None);
            assert!(operations.len() >= said.len());
        }
    }
    assert!(said.len() > 2_000, "{} operations were answered", said.len());
}

#[test]
fn fifty_kills_while_snapshots_are_taken() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut random = Random::from_seed(2);
    let mut said = HashMap::new();
    let mut snapshots = 0;
    for run in 1..=KILLS {
        kill_after_a_while(start(folder.path(), run, true), Duration::from_millis(80), &mut random, &mut said);
        let core = check_standings(folder.path(), &said);
        let verified =
            spot::tools::verify(&Disk::for_reading(folder.path()), &mut |_| {}, &mut |_, _, _| {}).expect("sound");
        assert_eq!(verified.state.digest(), core.state().digest());
        snapshots += u64::from(!verified.snapshots.is_empty());
    }
    assert!(snapshots > KILLS / 4, "{snapshots} kills found a snapshot");
}
