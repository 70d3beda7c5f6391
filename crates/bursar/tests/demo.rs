//! The demo as a guest on somebody's machine: it leaves nothing running and writes over nothing.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn bursar(folder: &Path, program: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("BURSAR_")) {
        command.env_remove(name);
    }
    command.current_dir(folder);
    command
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    bursar(folder, env!("CARGO_BIN_EXE_bursar")).args(arguments).output().expect("bursar runs")
}

#[track_caller]
fn ok(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Those processes whose command line has this in it, but for the one that is asked about.
fn processes_with(text: &str, but: u32) -> Vec<Pid> {
    let entries = std::fs::read_dir("/proc").expect("Linux").filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| u32::try_from(*pid) != Ok(but))
        .filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(text)
        })
        .filter_map(Pid::from_raw)
        .collect()
}

/// A shell starts what it runs in the background with SIGQUIT ignored, and its children inherit that.
#[test]
fn a_demo_that_is_killed_leaves_nothing_running() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let script =
        format!("trap '' INT QUIT; exec {} demo --for 10m --data-dir {}", env!("CARGO_BIN_EXE_bursar"), data.display());
    let mut demo =
        bursar(folder.path(), "bash").args(["-c", &script]).stdout(Stdio::piped()).spawn().expect("it starts");
    // The pipe stays open: a demo that can tell nobody anything ends.
    let mut lines = BufReader::new(demo.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    let started = lines.by_ref().find(|line| line.starts_with("2. processes:"));
    assert!(started.is_some(), "it did not come that far");
    let mark = data.display().to_string();
    // Signer, spot engine, server, and the workers of deposits and of Bitcoin's blocks. Short commands come and go.
    let all = (0..1_000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        processes_with(&mark, demo.id()).len() >= 5
    });
    assert!(all, "{:?}", processes_with(&mark, demo.id()));
    demo.kill().expect("killed");
    demo.wait().expect("ended");
    drop(lines);
    // The kernel has sent the signal by now; a process that has been sent SIGKILL takes a moment to be gone.
    let gone = (0..1_000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        processes_with(&mark, 0).is_empty()
    });
    let left = processes_with(&mark, 0);
    left.iter().for_each(|pid| kill_process(*pid, Signal::KILL).expect("our own process"));
    assert!(gone, "{left:?} ran on");
}

#[test]
fn a_demo_can_be_used_from_every_folder_and_be_moved() {
    let folder = tempfile::tempdir().expect("a folder");
    ok(folder.path(), &["demo", "--short", "--for", "200ms"]);
    let (made, moved) = (folder.path().join("bursar-demo"), folder.path().join("some where/else"));
    std::fs::create_dir_all(folder.path().join("some where")).expect("made");
    std::fs::rename(&made, &moved).expect("moved");
    let config = moved.join("bursar.toml").display().to_string();
    let body: Value =
        serde_json::from_str(&ok(Path::new("/"), &["--config", &config, "audit", "--json"])).expect("JSON");
    assert_eq!((&body["clean"], &body["spot_left_out"]), (&Value::Bool(true), &Value::Null), "{body}");
    assert!(body["movements"].as_u64() > Some(0), "{body}");
    ok(&moved, &["token", "--user", "7"]);
    // And another demo may begin there.
    ok(folder.path(), &["demo", "--short", "--for", "200ms", "--data-dir", "some where/else"]);
}

#[test]
fn a_demo_writes_over_nothing() {
    for (name, text) in
        [("bursar.toml", "[limits]\ndaily_transfers = 3\n"), ("spot.credentials", "mine"), ("notes", "")]
    {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join(name);
        std::fs::write(&file, text).expect("written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("a mode");
        let output = run(folder.path(), &["--json", "demo", "--for", "100ms", "--data-dir", "."]);
        let body: Value = serde_json::from_slice(&output.stderr).expect("an error");
        assert_eq!(body["error"]["code"], "NOT_A_SCRATCH_DATABASE", "{name}");
        assert_eq!(std::fs::read_to_string(&file).expect("there"), text, "{name}");
        assert_eq!(std::fs::read_dir(folder.path()).expect("there").count(), 1, "{name}: nothing was made");
    }
}

/// That the demo could not go on says nothing; that a signer has no room for the name of its socket says what to do.
#[test]
fn a_process_that_does_not_start_is_reported_with_its_own_code() {
    let folder = tempfile::tempdir().expect("a folder");
    let long = "a-name-that-no-socket-of-a-signer-could-have".repeat(3);
    let output = run(folder.path(), &["--json", "demo", "--short", "--for", "100ms", "--data-dir", &long]);
    let body: Value = serde_json::from_slice(&output.stderr).expect("an error");
    assert_eq!(
        (&body["error"]["code"], output.status.code()),
        (&Value::from("SIGNER_LISTEN_FAILED"), Some(3)),
        "{body}"
    );
}

/// What somebody has started on what a demo left would go on with files that are gone.
#[test]
fn a_demo_does_not_begin_anew_under_what_still_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    ok(folder.path(), &["demo", "--short", "--for", "100ms"]);
    let lock = std::fs::File::open(folder.path().join("bursar-demo/spot/lock")).expect("an engine");
    lock.lock().expect("nobody else has it");
    let output = run(folder.path(), &["--json", "demo", "--short", "--for", "100ms"]);
    let body: Value = serde_json::from_slice(&output.stderr).expect("an error");
    assert_eq!((&body["error"]["code"], output.status.code()), (&Value::from("SPOT_LOG_IN_USE"), Some(2)), "{body}");
    assert!(folder.path().join("bursar-demo/bursar.db").exists(), "nothing was removed");
}

/// The whole way of a coin, as the README shows it: what people read, and what the next commands find.
#[test]
fn a_demo_tells_its_story_in_a_screenful() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = ok(folder.path(), &["demo", "--for", "2s"]);
    let told = text.lines().filter_map(|line| line.split_once(". ")?.0.parse::<u32>().ok());
    assert_eq!(told.collect::<Vec<_>>(), (1..=11).collect::<Vec<_>>(), "each step once, in its order:\n{text}");
    assert!(text.contains("one node of each chain lies"), "{text}");
    // With four tables. A line for each customer or payment would be hundreds.
    assert!(text.lines().count() <= 120, "{} lines:\n{text}", text.lines().count());
    assert!(text.contains("audit: clean"), "{text}");
    let config = folder.path().join("bursar-demo/bursar.toml").display().to_string();
    let costs: Value =
        serde_json::from_str(&ok(folder.path(), &["--json", "--config", &config, "treasury", "costs"])).expect("JSON");
    assert!(costs["costs"].as_array().is_some_and(|rows| rows.len() >= 5), "{costs}");
}
