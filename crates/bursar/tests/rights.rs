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
