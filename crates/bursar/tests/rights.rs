//! A process that logs in to PostgreSQL with other rights than its role should have does not start.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use store::Engine;
use store::grants::DatabaseRole;
use store::testing::{TestDb, on};

/// Each role, and the command that is it. Every one of them ends soon: there is no chain, no signer, and no free port.
const STARTS: [(DatabaseRole, &[&str]); 10] = [
    (DatabaseRole::Api, &["serve", "--only-api"]),
    (DatabaseRole::Serve, &["serve"]),
    (DatabaseRole::Deposits, &["run", "deposits", "--once"]),
    (DatabaseRole::BalanceSync, &["run", "balance-sync", "--once"]),
    (DatabaseRole::Outbound, &["run", "outbound", "--once"]),
    (DatabaseRole::Confirm, &["run", "confirm", "--once"]),
    (DatabaseRole::Withdrawals, &["run", "withdrawals", "--once"]),
    (DatabaseRole::Checks, &["run", "checks", "--once"]),
    (DatabaseRole::Rules, &["run", "rules", "--once"]),
    (DatabaseRole::Follower, &["utxo", "follow", "--once", "--node", "http://127.0.0.1:1"]),
];

/// The code that the program ends with.
fn code(folder: &Path, url: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("BURSAR_")) {
        command.env_remove(name);
    }
    command.current_dir(folder).env("BURSAR_DATABASE_URL", url).args(arguments).arg("--json");
    let output = command.output().expect("bursar runs");
    assert!(!output.status.success(), "{arguments:?} ends with an error");
    let text = String::from_utf8_lossy(&output.stderr);
    let body: Value = serde_json::from_str(text.lines().last().unwrap_or_default())
        .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {text}"));
    body["error"]["code"].as_str().or(body["code"].as_str()).unwrap_or_else(|| panic!("{text}")).to_owned()
}

fn configured(listen: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let settings = format!("[http]\nlisten = \"{listen}\"\n[auth]\nhs256_secret_file = \"jwt.secret\"\n");
    for (name, text) in [("bursar.toml", settings), ("jwt.secret", "s".repeat(48))] {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        let owner_only = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, owner_only).expect("set");
    }
    folder
}

/// How `bursar grants` ends: its exit code, what it prints, and the code of the error if there is one.
fn grants(folder: &Path, url: &str, prefix: &str, arguments: &[&str]) -> (Option<i32>, Value, Option<String>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("BURSAR_")) {
        command.env_remove(name);
    }
    command.current_dir(folder).env("BURSAR_DATABASE_URL", url).args(["grants", "--json", "--prefix", prefix]);
    let output = command.args(arguments).output().expect("bursar runs");
    let body = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let told = String::from_utf8_lossy(&output.stderr);
    let error: Value = serde_json::from_str(told.lines().last().unwrap_or_default()).unwrap_or_default();
    (output.status.code(), body, error["error"]["code"].as_str().map(ToOwned::to_owned))
}

fn count(body: &Value, list: &str) -> usize {
    body[list].as_array().unwrap_or_else(|| panic!("no {list}: {body}")).len()
}

async fn by_hand(db: &TestDb, text: &str) {
    db.by_hand(text).await.unwrap_or_else(|error| panic!("{text}: {error}"));
}

#[test]
fn postgres_a_role_with_other_rights_does_not_start() {
    on(Engine::Postgres, async |db| {
        db.with_roles().await;
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        let folder = configured(&taken.local_addr().expect("its address").to_string());
        for (role, arguments) in STARTS {
            let login = role.login(&db.prefix());
            let start = |login: &str| code(folder.path(), &db.url_of(login), arguments);
            let refused = |code: &str| code.starts_with("RIGHTS_");
            assert!(!refused(&start(&login)), "{login} has the rights that it should have");
            // The owner of the tables may do everything.
            assert_eq!(start("postgres"), "RIGHTS_TOO_MANY", "{arguments:?}");
            by_hand(db, &format!("GRANT DELETE ON movements TO {login}")).await;
            assert_eq!(start(&login), "RIGHTS_TOO_MANY", "{login}");
            by_hand(db, &format!("REVOKE DELETE ON movements FROM {login}; REVOKE SELECT ON chains FROM {login}"))
                .await;
            assert_eq!(start(&login), "RIGHTS_MISSING", "{login}");
            by_hand(db, &format!("GRANT SELECT ON chains TO {login}")).await;
            assert!(!refused(&start(&login)), "{login} has them again");
            // Who says so runs with more, and never with less.
            if role != DatabaseRole::Follower {
                let told = [arguments, &["--any-rights"]].concat();
                assert!(!refused(&code(folder.path(), &db.url_of("postgres"), &told)), "{told:?}");
                by_hand(db, &format!("REVOKE SELECT ON chains FROM {login}")).await;
                assert_eq!(code(folder.path(), &db.url_of(&login), &told), "RIGHTS_MISSING", "{told:?}");
                by_hand(db, &format!("GRANT SELECT ON chains TO {login}")).await;
            }
        }
    });
}

#[test]
fn postgres_grants_are_applied_once_and_a_right_too_many_is_found() {
    on(Engine::Postgres, async |db| {
        let folder = tempfile::tempdir().expect("a folder");
        let prefix = db.prefix();
        let run = |arguments: &[&str]| grants(folder.path(), &db.url, &prefix, arguments);
        // There are no roles yet. What is printed makes nothing.
        let (exit, body, _) = run(&[]);
        assert!(exit == Some(0) && count(&body, "statements") > 50, "{exit:?}: {body}");
        let (exit, body, code) = run(&["--check"]);
        assert_eq!((exit, code.as_deref()), (Some(1), Some("RIGHTS_MISSING")), "{body}");
        assert_eq!(count(&body, "differences"), DatabaseRole::ALL.len(), "{body}");
        let (exit, body, _) = run(&["--apply"]);
        assert!(exit == Some(0) && count(&body, "statements") > 50, "{exit:?}: {body}");
        // From here on the test takes the roles away when it ends.
        db.with_roles().await;
        let clean = |(exit, body, code): (Option<i32>, Value, Option<String>)| {
            assert_eq!((exit, code), (Some(0), None), "{body}");
            assert_eq!(count(&body, "differences"), 0, "{body}");
            body
        };
        assert_eq!(count(&clean(run(&["--apply"])), "statements"), 0, "once is enough");
        clean(run(&["--check"]));
        let login = DatabaseRole::Confirm.login(&prefix);
        by_hand(db, &format!("GRANT DELETE ON movements TO {login}")).await;
        let (exit, body, code) = run(&["--check"]);
        assert_eq!((exit, code.as_deref()), (Some(1), Some("RIGHTS_TOO_MANY")), "{body}");
        let found = &body["differences"][0];
        assert_eq!((count(&body, "differences"), &found["role"]), (1, &Value::from("confirm")), "{body}");
        assert_eq!(
            (&found["too_much"], &found["says"]),
            (&Value::Bool(true), &Value::from("it may remove from movements"))
        );
        // A right that is missing beside it does not hide it.
        by_hand(db, &format!("REVOKE SELECT ON chains FROM {login}")).await;
        let (exit, body, code) = run(&["--check"]);
        assert_eq!(
            (exit, code.as_deref(), count(&body, "differences")),
            (Some(1), Some("RIGHTS_TOO_MANY"), 2),
            "{body}"
        );
        let (exit, body, _) = run(&["--apply"]);
        assert!(exit == Some(0) && count(&body, "differences") == 2, "{exit:?}: {body}");
        clean(run(&["--check"]));
        let (exit, _, code) = grants(folder.path(), &db.url, "9a", &["--apply"]);
        assert_eq!((exit, code.as_deref()), (Some(2), Some("BAD_USAGE")), "no role begins with a digit");
    });
}
