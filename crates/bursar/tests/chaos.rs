//! The whole product under load while its parts are killed: nothing lost, nothing doubled, nothing stranded.

use std::process::Command;

use serde_json::Value;

fn chaos(arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_bursar"))
        .args(["--json", "chaos", "transfer"])
        .args(arguments)
        .output()
        .expect("bursar runs");
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{complaints}\n{}", String::from_utf8_lossy(&output.stdout));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn assert_whole(report: &Value) {
    for count in ["lost", "doubled", "stranded"] {
        assert_eq!(report[count], 0, "{report}");
    }
    assert_eq!(report["audit_clean"], true, "{report}");
    assert!(report["committed"].as_u64() > Some(100), "there was little load: {report}");
}

#[test]
fn server_and_spot_engine_may_be_killed() {
    assert_whole(&chaos(&["--engine", "sqlite", "--kills", "6"]));
}

/// Four processes with a scanner each, on the same transfers, with clocks that differ, and users that many clients share.
#[test]
fn postgres_four_servers_share_their_transfers_while_everything_is_killed() {
    let report = chaos(&["--engine", "postgres", "--kills", "9", "--servers", "4", "--clock-jumps"]);
    assert_whole(&report);
    assert_eq!((&report["clock_jumps"], &report["shared_users"]), (&3.into(), &8.into()), "{report}");
    for part in ["server", "spot", "database"] {
        assert_eq!(report["killed"][part], 3, "{report}");
    }
}
