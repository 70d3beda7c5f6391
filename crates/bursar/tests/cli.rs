//! The command line as a user meets it: what it prints, and its exit codes, also for wrong input.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

struct Shell {
    folder: tempfile::TempDir,
}

impl Shell {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    /// With a database that is migrated and has the example treasury.
    fn with_treasury() -> Self {
        let shell = Self::new();
        shell.ok(&["migrate"]);
        shell.ok(&["apply", &example("treasury.toml")]);
        shell
    }

    /// In the shell's folder, and without the settings of whoever runs the tests.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("BURSAR_")) {
            command.env_remove(name);
        }
        command.current_dir(self.folder.path()).env("USER", "tester");
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(env!("CARGO_BIN_EXE_bursar")).args(arguments).output().expect("bursar runs")
    }

    #[track_caller]
    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[arguments, &["--json"]].concat())).expect("JSON")
    }

    /// The code, hint and exit code of a failure, from its JSON; nothing else is printed.
    #[track_caller]
    fn refused(&self, arguments: &[&str]) -> (String, String, i32) {
        let output = self.run(&[arguments, &["--json"]].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        // What was logged on the way stands above it.
        let last = stderr.lines().next_back().unwrap_or_default();
        let body: Value = serde_json::from_str(last).unwrap_or_else(|_| panic!("{arguments:?}: {stderr}"));
        let field = |name: &str| body["error"][name].as_str().expect(name).to_owned();
        assert!(root().join(field("help")).exists(), "{} has no page", field("help"));
        (field("code"), field("hint"), output.status.code().expect("an exit code"))
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).expect("written");
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn example(name: &str) -> String {
    root().join("examples").join(name).display().to_string()
}

fn code(code: &str, exit: i32) -> impl Fn((String, String, i32)) {
    let code = code.to_owned();
    move |(found, hint, status)| assert_eq!((found.as_str(), status), (code.as_str(), exit), "hint: {hint}")
}

#[test]
#[cfg(feature = "lab")]
fn the_demo_ends_with_balanced_books() {
    let shell = Shell::new();
    let body = shell.json(&["demo", "--for", "3s", "--seed", "7"]);
    assert_eq!(body["audit"]["clean"], true);
    // The debug build beside eight workers: each customer trades at least once or so.
    assert!(body["transfers"]["committed"].as_u64() > Some(16), "{body}");
    for fault in ["server_killed", "worker_killed", "wire_held"] {
        assert!(body["faults"][fault].as_u64() > Some(0), "{fault}: {body}");
    }
    assert_eq!([&body["lost"], &body["doubled"], &body["stranded"]], [0, 0, 0], "{body}");
    assert_eq!(body["balances"]["USDT"]["sum"], "0.000000");
    let deposits = &body["deposits"];
    assert_eq!([&deposits["paid"], &deposits["credited"]], [48, 48], "{body}");
    assert_eq!([&deposits["taken_back"], &deposits["credited_again"]], [1, 1], "{body}");
    assert_eq!(body["treasury"]["gas"], 24, "each customer's address of tokens: {body}");
    let withdrawals = &body["withdrawals"];
    assert_eq!([&withdrawals["asked"], &withdrawals["completed"]], [24, 23], "{body}");
    assert_eq!([&withdrawals["called_off"], &withdrawals["inside"]], [1, 1], "{body}");
    assert_eq!(withdrawals["approvals"], 3, "one signature, and two: {body}");
    assert!(withdrawals["replaced"].as_u64() > Some(0), "fees rose: {body}");
    // Again, in the same folder: it begins anew.
    let text = shell.ok(&["demo", "--short", "--for", "200ms"]);
    assert!(text.contains("audit: clean"), "{text}");
    let again = shell.json(&["--config", "bursar-demo/bursar.toml", "audit"]);
    assert_eq!(again["clean"], true);
    assert_eq!(again["checks"].as_array().map(Vec::len), Some(21), "the spot engine is compared too: {again}");
}

/// A person at the command line need be no operator. What was refused stands in the log as well; what was never understood does not.
#[test]
fn what_is_tried_at_the_command_line_is_in_the_log_of_operators() {
    let shell = Shell::with_treasury();
    assert_eq!(shell.json(&["operator", "log"])["lines"], serde_json::json!([]));
    let people = ["--actor", "ann", "--second", "bob", "--reason", "case 7"];
    code("DEPOSIT_NOT_FOUND", 2)(shell.refused(&["deposit", "show", "dp-1"]));
    code("DEPOSIT_NOT_FOUND", 2)(shell.refused(&["deposit", "show", "one"]));
    let assign = ["deposit", "assign", "dp-1", "--user", "7"];
    let alone = ["--actor", "ann", "--second", "Ann", "--reason", "case 7"];
    code("SECOND_PERSON_MISSING", 2)(shell.refused(&[&assign[..], &alone].concat()));
    code("DEPOSIT_NOT_FOUND", 2)(shell.refused(&[&assign[..], &people].concat()));
    code("JOB_NOT_FOUND", 2)(shell.refused(&[&["job", "judge", "job-4711", "again"][..], &people].concat()));
    code("JOB_NOT_FOUND", 2)(shell.refused(&["job", "cancel", "job-4711", "--actor", "eve"]));
    let log = shell.json(&["operator", "log"]);
    let fields = ["door", "operator", "action", "subject", "outcome", "reason"];
    let line = |line: &Value| fields.map(|field| line[field].as_str().expect(field).to_owned()).join(" ");
    let lines: Vec<String> = log["lines"].as_array().expect("lines").iter().map(line).collect();
    let newest_first = [
        "command_line eve cancel job-4711 JOB_NOT_FOUND ",
        "command_line bob judge job-4711 JOB_NOT_FOUND again: case 7",
        "command_line ann judge job-4711 JOB_NOT_FOUND again: case 7",
        "command_line bob assign dp-1 DEPOSIT_NOT_FOUND user 7: case 7",
        "command_line ann assign dp-1 DEPOSIT_NOT_FOUND user 7: case 7",
    ];
    assert_eq!(lines, newest_first);
    let of_bob = shell.json(&["operator", "log", "--operator", "bob", "--action", "judge"]);
    assert_eq!(of_bob["lines"].as_array().map(Vec::len), Some(1), "{of_bob}");
}

#[test]
fn an_operator_opens_freezes_and_looks() {
    let shell = Shell::with_treasury();
    let opened = shell.json(&["account", "open", "--user", "7", "--asset", "USDT"]);
    assert_eq!(opened["existed"], false);
    let again = shell.json(&["account", "open", "--user", "7", "--asset", "USDT"]);
    assert_eq!((&again["id"], &again["existed"]), (&opened["id"], &Value::Bool(true)), "opening again finds it");
    assert!(
        shell.ok(&["account", "open", "--user", "7", "--asset", "USDT"]).contains("which was there already (active)")
    );
    let id = opened["id"].to_string();
    shell.ok(&["account", "freeze", &id, "--reason", "case 1"]);
    let listed = shell.json(&["account", "--user", "7"]);
    assert_eq!(listed["accounts"][0]["status"], "frozen");
    assert_eq!(listed["accounts"][0]["available"], "0.000000");
    shell.ok(&["account", "activate", &id, "--reason", "case 1 closed"]);
    let text = shell.ok(&["account", "--asset", "USDT"]);
    assert!(text.contains("custody:tron") && text.contains("clearing:spot"), "{text}");
    assert_eq!(shell.json(&["journal"])["movements"], serde_json::json!([]));
    assert_eq!(shell.json(&["checkpoint"])["through_movement"], 0);
    assert_eq!(shell.json(&["balances"])["balances"]["BTC"]["sum"], "0.00000000");
    let page = shell.json(&["account", "--limit", "2"]);
    assert_eq!(page["next_after"], page["accounts"][1]["id"]);
}

/// Page after page has each account once, and the last page does not promise another.
#[test]
fn accounts_are_listed_in_pages() {
    let shell = Shell::with_treasury();
    for user in 1..=4 {
        shell.ok(&["account", "open", "--user", &user.to_string(), "--asset", "USDT"]);
    }
    let ids = |body: &Value| -> Vec<i64> {
        body["accounts"].as_array().expect("accounts").iter().filter_map(|one| one["id"].as_i64()).collect()
    };
    let whole = ids(&shell.json(&["account", "--limit", "1000"]));
    let (mut found, mut after) = (Vec::new(), String::from("-9223372036854775808"));
    loop {
        let page = shell.json(&["account", "--limit", "3", "--after", &after]);
        found.extend(ids(&page));
        match page["next_after"].as_i64() {
            Some(next) => after = next.to_string(),
            None => break,
        }
    }
    assert_eq!(found, whole);
    let exact = whole.len().to_string();
    assert_eq!(
        shell.json(&["account", "--limit", &exact])["next_after"],
        Value::Null,
        "there is no page after the last"
    );
    let text = shell.ok(&["account", "--asset", "USDT", "--limit", "2"]);
    let next = text.lines().last().and_then(|line| line.strip_prefix("more: bursar ")).expect("the next page");
    let words: Vec<&str> = next.split(' ').collect();
    assert!(shell.ok(&words).contains("USDT"), "the line can be typed as it is: {next}");
}

#[test]
fn no_movements_and_no_account_are_two_things() {
    let shell = Shell::with_treasury();
    let opened = shell.json(&["account", "open", "--user", "7", "--asset", "USDT"]);
    assert_eq!(shell.ok(&["journal", "--account", &opened["id"].to_string()]), "no movements\n");
    for none in ["999", "-999", "0"] {
        code("ACCOUNT_NOT_FOUND", 2)(shell.refused(&["journal", "--account", none]));
    }
}

/// An operator at three in the morning has the program, and perhaps not the documents.
#[test]
fn the_program_has_every_page_of_an_error_in_it() {
    let shell = Shell::new();
    let codes = shell.ok(&["explain"]);
    let pages = std::fs::read_dir(root().join("docs/errors")).expect("a folder").count() - 1;
    assert_eq!(codes.lines().count(), pages, "a page for each code");
    for code in codes.lines() {
        let page = std::fs::read_to_string(root().join(format!("docs/errors/{code}.md"))).expect(code);
        assert_eq!(shell.ok(&["explain", code]).trim_end(), page.trim_end(), "{code}");
    }
    assert!(shell.ok(&["explain", "insufficient_balance:"]).starts_with("# INSUFFICIENT_BALANCE"));
    let (found, hint, exit) = shell.refused(&["explain", "INSUFICIENT_BALANCE"]);
    assert_eq!((found.as_str(), exit), ("UNKNOWN_CODE", 2));
    assert!(hint.starts_with("did you mean INSUFFICIENT_BALANCE?"), "{hint}");
}

#[test]
fn two_people_bring_money_in_once() {
    let shell = Shell::with_treasury();
    shell.ok(&["account", "open", "--user", "7", "--asset", "USDT"]);
    let people = ["--actor", "ann", "--second", "bob", "--reason", "case 4711"];
    let adjust = |words: &[&str]| -> Vec<String> {
        let common = ["--asset", "USDT", "--amount", "100"];
        ["adjust"].iter().chain(words).chain(&common).chain(&people).map(ToString::to_string).collect()
    };
    let json = |words: &[&str]| {
        let words = adjust(words);
        shell.json(&words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let refused = |words: &[&str]| {
        let words = adjust(words);
        shell.refused(&words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let gift = ["credit", "--user", "7", "--from", "external:tron", "--key", "gift"];
    code("HOUSE_BALANCE_TOO_LOW", 2)(refused(&gift));
    assert_eq!(json(&["capital-in", "--chain", "tron", "--key", "k1", "--dry-run"])["dry_run"], true);
    code("HOUSE_BALANCE_TOO_LOW", 2)(refused(&gift));
    assert_eq!(json(&["capital-in", "--chain", "tron", "--key", "k1"])["outcome"], "applied");
    assert_eq!(json(&gift)["outcome"], "applied");
    assert_eq!(json(&gift)["outcome"], "replayed", "the same command line again moves nothing more");
    code("EXISTS_WITH_DIFFERENT_FROM", 2)(refused(&["credit", "--user", "7", "--from", "fees", "--key", "gift"]));
    code("HOUSE_BALANCE_TOO_LOW", 2)(refused(&["capital-out", "--chain", "tron", "--key", "k2"]));
    assert_eq!(shell.json(&["account", "--user", "7"])["accounts"][0]["available"], "100.000000");
    assert_eq!(json(&["debit", "--user", "7", "--to", "custody:tron", "--key", "k3"])["outcome"], "applied");
    code("INSUFFICIENT_BALANCE", 2)(refused(&["debit", "--user", "7", "--to", "suspense", "--key", "k4"]));
    code("INVALID_ACCOUNT_TYPE", 2)(refused(&["credit", "--user", "7", "--from", "clearing:spot", "--key", "k5"]));
    code("ACCOUNT_NOT_FOUND", 2)(refused(&["credit", "--user", "8", "--from", "custody:tron", "--key", "k5"]));
    code("ACCOUNT_NOT_FOUND", 2)(refused(&["credit", "--user", "7", "--from", "custody:moon", "--key", "k5"]));
    let alone = ["adjust", "credit", "--user", "7", "--from", "custody:tron", "--key", "k6", "--asset", "USDT"];
    // Another size of a letter, a Cyrillic one, a blank of no width: they look like one person.
    for alike in ["Ann", "\u{430}nn", "ann\u{200b}"] {
        let words = [&alone[..], &["--amount", "1", "--actor", "ann", "--second", alike, "--reason", "x"]].concat();
        code("SECOND_PERSON_MISSING", 2)(shell.refused(&words));
    }
    code("HOUSE_BALANCE_TOO_LOW", 2)(refused(&["credit", "--user", "7", "--from", "suspense", "--key", "k7"]));
    let journal = shell.json(&["journal", "--key", "adjust:gift"]);
    assert_eq!(journal["movements"][0]["reference"], "ann + bob: case 4711");
    assert_eq!(shell.json(&["balances"])["balances"]["USDT"]["sum"], "0.000000");
    assert_eq!(shell.json(&["audit"])["clean"], true);
}

#[test]
fn applying_shows_the_difference_and_does_it_once() {
    let shell = Shell::new();
    shell.ok(&["migrate"]);
    assert!(shell.ok(&["migrate"]).contains("up to date"));
    let file = example("treasury.toml");
    let planned = shell.json(&["apply", &file, "--dry-run"]);
    assert_eq!(planned["applied"], false);
    let applied = shell.json(&["apply", &file]);
    assert_eq!((applied["applied"].as_bool(), &applied["changes"]), (Some(true), &planned["changes"]));
    assert_eq!(shell.json(&["apply", &file])["changes"], serde_json::json!([]));
    let changed =
        std::fs::read_to_string(&file).expect("the example").replace("confirmations = 12", "confirmations = 15");
    shell.write("changed.toml", &changed);
    expect_test::expect![[r#"
        what       field                before  after
        ─────────  ───────────────────  ──────  ─────
        chain bsc  confirmations        12      15
        chain bsc  final_confirmations  12      15
        2 changes applied
    "#]]
    .assert_eq(&shell.ok(&["apply", "changed.toml"]));
}

#[test]
fn what_would_break_live_data_is_refused() {
    let shell = Shell::with_treasury();
    shell.ok(&["account", "open", "--user", "7", "--asset", "USDT"]);
    let text = std::fs::read_to_string(example("treasury.toml")).expect("the example");
    let (usdt, rest) = text.split_once("[assets.BTC]").expect("BTC follows USDT");
    shell.write("finer.toml", &format!("{}[assets.BTC]{rest}", usdt.replace("precision = 6", "precision = 5")));
    code("SETTING_IN_USE", 2)(shell.refused(&["apply", "finer.toml"]));
    shell.write("zero.toml", &text.replacen("min_transfer = \"1\"", "min_transfer = \"0\"", 1));
    code("INVALID_AMOUNT", 2)(shell.refused(&["apply", "zero.toml"]));
    assert_eq!(shell.json(&["apply", &example("treasury.toml")])["changes"], serde_json::json!([]), "nothing changed");
}

#[test]
fn wrong_input_says_what_to_do() {
    let shell = Shell::new();
    code("DATABASE_UNAVAILABLE", 3)(shell.refused(&["audit"]));
    assert!(!shell.folder.path().join("bursar-data").exists(), "looking makes nothing");
    shell.ok(&["migrate"]);
    code("INVALID_ASSET", 2)(shell.refused(&["account", "open", "--user", "7", "--asset", "DOGE"]));
    code("FILE_NOT_READABLE", 2)(shell.refused(&["apply", "none.toml"]));
    shell.ok(&["apply", &example("treasury.toml")]);
    code("INVALID_USER", 2)(shell.refused(&["account", "open", "--user", "0", "--asset", "USDT"]));
    code("INVALID_USER", 2)(shell.refused(&["account", "open", "--user", "-5", "--asset", "USDT"]));
    code("INVALID_ASSET", 2)(shell.refused(&["account", "--asset", "usdt"]));
    code("ACCOUNT_NOT_FOUND", 2)(shell.refused(&["account", "freeze", "99", "--reason", "x"]));
    code("SYSTEM_ACCOUNT_STATUS", 2)(shell.refused(&["account", "freeze", "-1", "--reason", "x"]));
    code("REASON_MISSING", 2)(shell.refused(&["account", "freeze", "1", "--reason", " "]));
    for usage in [&["frobnicate"][..], &["demo", "--for", "ten"], &["journal", "--limit", "0"], &["audit", "extra"]] {
        code("BAD_USAGE", 2)(shell.refused(usage));
    }
    shell.write("bursar.toml", "[database]\nurll = \"sqlite://x.db\"");
    let (found, hint, exit) = shell.refused(&["config", "check"]);
    assert_eq!((found.as_str(), hint.as_str(), exit), ("CONFIG_INVALID", "did you mean url?", 2));
    code("FILE_NOT_READABLE", 2)(shell.refused(&["--config", "none.toml", "config", "check"]));
    shell.write("bursar.toml", "[database]\nurl = \"postgres://nobody@127.0.0.1:1/none\"\nacquire_timeout_ms = 300");
    code("DATABASE_UNAVAILABLE", 3)(shell.refused(&["audit"]));
}

#[test]
fn the_example_configuration_is_the_default_one() {
    let shell = Shell::new();
    let mut plain = shell.json(&["config", "check"]);
    shell.write("bursar.toml", &std::fs::read_to_string(example("bursar.toml")).expect("the example"));
    let body = shell.json(&["config", "check"]);
    plain["file"] = body["file"].clone();
    assert_eq!(body, plain);
}

#[test]
fn a_closed_pipe_is_no_panic() {
    let shell = Shell::with_treasury();
    let script = format!("{} account | true; exit ${{PIPESTATUS[0]}}", env!("CARGO_BIN_EXE_bursar"));
    for _ in 0..5 {
        let output = shell.command("bash").args(["-c", &script]).output().expect("bash");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    }
}

/// The demo and the benches make up money; a database with somebody's settings is not theirs to play with.
#[test]
#[cfg(feature = "lab")]
fn made_up_money_stays_out_of_real_databases() {
    let shell = Shell::with_treasury();
    let real = shell.folder.path().join("bursar-data/bursar.db");
    assert!(real.exists(), "where the demo would put its own");
    code("NOT_A_SCRATCH_DATABASE", 2)(shell.refused(&["demo", "--for", "100ms", "--data-dir", "bursar-data"]));
    let url = format!("sqlite://{}", real.display());
    code("NOT_A_SCRATCH_DATABASE", 2)(shell.refused(&[
        "bench",
        "ledger",
        "--engine",
        "sqlite",
        "--database-url",
        &url,
    ]));
    code("NOT_A_SCRATCH_DATABASE", 2)(shell.refused(&["drill", "ledger", "--run", "1"]));
    assert_eq!(shell.json(&["journal"])["movements"], serde_json::json!([]));
    // Odd characters in a folder's name are the same folder.
    let odd = "per%41 cent?x&y";
    shell.ok(&["demo", "--short", "--for", "100ms", "--data-dir", odd]);
    assert!(shell.folder.path().join(odd).join("bursar.db").exists());
}

#[test]
fn what_is_not_text_is_no_panic() {
    use std::os::unix::ffi::OsStringExt;
    let shell = Shell::with_treasury();
    let garbage = std::ffi::OsString::from_vec(vec![0xff, 0xfe]);
    let mut command = shell.command(env!("CARGO_BIN_EXE_bursar"));
    let output = command.arg("balances").env("SOME_VARIABLE", &garbage).output().expect("bursar runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut command = shell.command(env!("CARGO_BIN_EXE_bursar"));
    let output = command.arg("balances").arg(&garbage).output().expect("bursar runs");
    assert_eq!(output.status.code(), Some(2));
    let script = format!("{} account freeze 99 --reason x 2>/dev/full", env!("CARGO_BIN_EXE_bursar"));
    let output = shell.command("bash").args(["-c", &script]).output().expect("bash");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn help_teaches() {
    let shell = Shell::new();
    let text = shell.ok(&["--help"]);
    for word in ["bursar migrate", "Exit codes"] {
        assert!(text.contains(word), "{word} is missing:\n{text}");
    }
    for word in ["bursar demo", "with-postgres"] {
        assert_eq!(text.contains(word), cfg!(feature = "lab"), "{word} belongs to the lab:\n{text}");
    }
    assert!(!text.contains("drill"), "tools for tests stay hidden");
}

/// The "Show" of the foundation: a movement or a balance broken by hand is named, with exit 1.
#[test]
#[cfg(feature = "lab")]
fn broken_books_exit_1_and_name_the_row() {
    let shell = Shell::new();
    shell.ok(&["demo", "--short", "--for", "200ms"]);
    let config = ["--config", "bursar-demo/bursar.toml", "audit"];
    shell.ok(&config);
    let by_hand = |statement: &'static str| {
        let url = format!("sqlite://{}", shell.folder.path().join("bursar-demo/bursar.db").display());
        store::testing::sqlite_by_hand(&url, statement);
    };
    by_hand("UPDATE movements SET amount = amount + 1 WHERE id = 5");
    let output = shell.run(&config);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("movements id=5"));
    by_hand("UPDATE movements SET amount = amount - 1 WHERE id = 5");
    shell.ok(&config);
    by_hand("UPDATE accounts SET available = available + 1 WHERE id = 9");
    code("BOOKS_BROKEN", 1)(shell.refused(&config));
}

#[test]
#[cfg(feature = "lab")]
fn a_devnet_says_where_it_is_and_leaves_taken_ports_alone() {
    let shell = Shell::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let free = ["--tron-port", "0", "--bitcoin-port", "0", "--control-port", "0", "--endpoints", "1"];
    let start = ["devnet", "--evm-port"];
    code("DEVNET_LISTEN_FAILED", 3)(shell.refused(&[&start[..], &[port.as_str()], &free[..]].concat()));
    code("BAD_USAGE", 2)(shell.refused(&["devnet", "--endpoints", "0"]));

    let mut devnet = shell
        .command(env!("CARGO_BIN_EXE_bursar"))
        .args([&["--json"], &start[..], &["0"], &free[..]].concat())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("bursar runs");
    let mut line = String::new();
    let said = devnet.stdout.take().expect("a pipe");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(said), &mut line).expect("a line");
    devnet.kill().expect("it runs");
    devnet.wait().expect("it ends");
    let said: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(said["event"], "listening");
    for chain in ["bitcoin", "evm", "tron"] {
        assert_eq!(said[chain].as_array().map(Vec::len), Some(1), "{chain}");
    }
}

/// Runs `bursar serve` with these variables, asks each path of the public and of the operators' listener, and stops it.
/// Returns the statuses and what was written to standard error.
fn serve_once(json: bool, variables: &[(&str, &str)], paths: &[&str]) -> (Vec<(u16, u16)>, String) {
    use std::io::{BufRead, BufReader, Read, Write};
    let shell = Shell::new();
    shell.ok(&["migrate"]);
    let secret = shell.folder.path().join("jwt.secret");
    std::fs::write(&secret, [b'x'; 48]).expect("written");
    std::fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("set");
    let arguments: &[&str] = if json { &["--json", "serve", "--create-spot"] } else { &["serve", "--create-spot"] };
    let mut server = shell
        .command(env!("CARGO_BIN_EXE_bursar"))
        .args(arguments)
        .env("BURSAR_HTTP_LISTEN", "127.0.0.1:0")
        .env("BURSAR_HTTP_OPERATIONS_LISTEN", "127.0.0.1:0")
        .env("BURSAR_SPOT_ADDRESS", "")
        .env("BURSAR_AUTH_HS256_SECRET_FILE", "jwt.secret")
        .envs(variables.iter().copied())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("bursar runs");
    let mut said = BufReader::new(server.stdout.take().expect("a pipe"));
    let (public, operations) = loop {
        let mut line = String::new();
        assert!(said.read_line(&mut line).expect("read") > 0, "it ended before it listened");
        let words: Vec<&str> =
            line.split(['"', ' ', ',', ';', '\n']).filter(|word| word.contains("127.0.0.1:")).collect();
        if let [public, operations] = words[..] {
            let address = |word: &str| word.trim_start_matches("http://").to_owned();
            break (address(public), address(operations));
        }
    };
    let status = |address: &str, path: &str| {
        let mut stream = std::net::TcpStream::connect(address).expect("it listens");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("asked");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        answer[9..12].parse::<u16>().expect("a status")
    };
    let statuses = paths.iter().map(|path| (status(&public, path), status(&operations, path))).collect();
    let id = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("told to stop");
    let output = server.wait_with_output().expect("it ends");
    let text = String::from_utf8(output.stderr).expect("text");
    assert!(output.status.success(), "{text}");
    (statuses, text)
}

#[test]
fn the_log_has_the_level_and_the_form_that_are_asked_for_and_operators_have_a_listener_of_their_own() {
    let paths = ["/health/live", "/health/ready", "/metrics", "/docs", "/api/v1/balances"];
    let (statuses, text) = serve_once(false, &[], &paths);
    assert_eq!(statuses, [(200, 200), (200, 200), (404, 200), (200, 404), (401, 404)]);
    assert!(text.lines().any(|line| line.contains(" INFO ") && line.contains("serving")), "{text}");
    let (_, text) = serve_once(false, &[("BURSAR_LOG_LEVEL", "warn")], &[]);
    assert_eq!(text, "");
    for (json, variables) in [(true, &[][..]), (false, &[("BURSAR_LOG_FORMAT", "json")][..])] {
        let (_, text) = serve_once(json, variables, &[]);
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
        let serving = lines.iter().find(|line| line["message"] == "serving").unwrap_or_else(|| panic!("{text}"));
        assert_eq!((&serving["level"], &serving["target"]), (&"INFO".into(), &"bursar::commands::serve".into()));
    }
    let shell = Shell::new();
    let output = shell.command(env!("CARGO_BIN_EXE_bursar")).arg("migrate").env("BURSAR_LOG_LEVEL", "loud").output();
    let output = output.expect("bursar runs");
    assert_eq!(output.status.code(), Some(2), "a bad level is bad input");
}
