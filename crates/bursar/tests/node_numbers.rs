//! Node numbers as the server borrows them: one that is stopped in good order gives its number back.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use domain::{Clock, Timestamp};
use store::{Db, Options};
use terminal::clock::SystemClock;

const SETTINGS: &str = r#"
[http]
listen = "127.0.0.1:0"
[auth]
hs256_secret_file = "jwt.secret"
[spot]
address = "127.0.0.1:1"
credentials_file = "spot.credentials"
"#;

fn bursar(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("BURSAR_")) {
        command.env_remove(name);
    }
    command.current_dir(folder).args(arguments).arg("--json");
    command
}

fn migrated() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        let owner_only = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, owner_only).expect("set");
    };
    file("bursar.toml", SETTINGS);
    file("jwt.secret", &"s".repeat(48));
    file("spot.credentials", &format!("coordinator {}\n", "t".repeat(32)));
    assert!(bursar(folder.path(), &["migrate"]).output().expect("bursar runs").status.success());
    folder
}

/// The first number that is free at the time given.
fn first_free(folder: &Path, at: Timestamp) -> u16 {
    let url = format!("sqlite://{}", folder.join("bursar-data/bursar.db").display());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let db = Db::connect(&url, &Options::default()).await.expect("it opens");
        let number = db.lease_node("test", at, at).await.expect("read").expect("one is free").number();
        db.close().await;
        number
    })
}

#[test]
fn a_server_that_is_stopped_in_good_order_gives_its_number_back() {
    let folder = migrated();
    let started = SystemClock.now();
    let mut server = bursar(folder.path(), &["serve", "--create-spot"])
        .env("BURSAR_SPOT_ADDRESS", "")
        .stdout(Stdio::piped())
        .spawn()
        .expect("bursar runs");
    let mut lines = BufReader::new(server.stdout.take().expect("piped")).lines();
    assert!(lines.any(|line| line.expect("text").contains("listening")), "it listens");
    let begun = SystemClock.now();
    let pid = i32::try_from(server.id()).ok().and_then(rustix::process::Pid::from_raw).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("told");
    assert!(server.wait().expect("ended").success());
    // It made no id, so that the number is free a minute after it was lent. Otherwise it would be two.
    assert_eq!(first_free(folder.path(), started.plus_micros(59_000_000)), 1);
    assert_eq!(first_free(folder.path(), begun.plus_micros(61_000_000)), 0);
}
