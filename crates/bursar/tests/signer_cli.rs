//! `bursar signer` as an operator types it: what is made, what is refused, and that no secret is in anything that it prints.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

const WORDS: &str = "test test test test test test test test test test test junk";
const PASSPHRASE: &str = "correct horse battery staple";
const OTHER: &str = "another passphrase than that";

struct Signer {
    folder: TempDir,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Signer {
    fn new() -> Self {
        let signer = Self { folder: tempfile::tempdir().expect("a folder") };
        signer.private("passphrase", PASSPHRASE);
        signer.private("other", OTHER);
        signer.private("words", WORDS);
        signer
    }

    fn private(&self, name: &str, content: &str) {
        let file = self.folder.path().join(name);
        std::fs::write(&file, format!("{content}\n")).expect("written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("a mode");
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
        command.current_dir(self.folder.path()).stdin(Stdio::null()).env_remove("CREDENTIALS_DIRECTORY");
        // The most that a log can say.
        command.env("BURSAR_LOG_LEVEL", "trace");
        command
    }

    /// Whatever is printed is looked through for secrets. A new session has no terminal to ask at.
    fn run(&self, words: &str) -> Output {
        let output = self.command().arg("signer").args(words.split(' ')).output().expect("it runs");
        let printed = format!("{}{}", text(&output.stdout), text(&output.stderr));
        for secret in ["junk", "horse", "another passphrase", "xprv"] {
            assert!(!printed.contains(secret), "{words} prints {secret}:\n{printed}");
        }
        output
    }

    fn good(&self, words: &str) -> Value {
        let output = self.run(&format!("--json {words}"));
        assert!(output.status.success(), "{words}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    fn refused(&self, words: &str) -> (String, Option<i32>) {
        let output = self.run(&format!("--json {words}"));
        let stderr = text(&output.stderr);
        let report =
            stderr.lines().rev().find(|line| line.starts_with("{\"error\"")).unwrap_or_else(|| panic!("{stderr}"));
        let body: Value = serde_json::from_str(report).expect("JSON");
        assert!(body["error"]["hint"].as_str().is_some_and(|hint| !hint.is_empty()));
        (body["error"]["code"].as_str().expect("a code").to_owned(), output.status.code())
    }
}

#[test]
fn a_keystore_is_made_in_three_commands_and_never_over_another() {
    let signer = Signer::new();
    let made = signer.good("init --passphrase-file passphrase --group hot:hot:evm --group users:deposit:tron:3");
    assert_eq!(made["groups"].as_array().map(Vec::len), Some(2));
    assert_eq!(made["groups"][1]["path"], "m/44'/195'/3'");
    let added =
        signer.good("group add cold --purpose treasury --chain bitcoin --words 12 --passphrase-file passphrase");
    assert!(added["address_0"].as_str().is_some_and(|address| address.starts_with("bc1q")), "{added}");
    let imported =
        signer.good("import dev --purpose gas --chain evm --mnemonic-file words --passphrase-file passphrase");
    assert_eq!(imported["address_0"], "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266");
    let listed = signer.good("group list");
    let names: Vec<&str> =
        listed["groups"].as_array().expect("groups").iter().filter_map(|one| one["id"].as_str()).collect();
    assert_eq!(names, ["hot", "users", "cold", "dev"]);
    let exported = signer.run("export-xpub dev");
    assert_eq!(text(&exported.stdout).trim(), imported["xpub"].as_str().expect("a key"));
    let mode =
        |name: &str| std::fs::metadata(signer.folder.path().join(name)).expect("there").permissions().mode() & 0o777;
    assert_eq!((mode("bursar-signer"), mode("bursar-signer/keystore")), (0o700, 0o600));
    assert_eq!(signer.refused("init --passphrase-file passphrase").0, "SIGNER_EXISTS");
    assert_eq!(signer.good("group list"), listed);

    signer.good("rotate-passphrase --passphrase-file passphrase --new-passphrase-file other");
    let add = "group add more --purpose hot --chain tron --passphrase-file";
    assert_eq!(signer.refused(&format!("{add} passphrase")), ("SIGNER_PASSPHRASE_WRONG".to_owned(), Some(2)));
    signer.good(&format!("{add} other"));
}

#[test]
fn every_wrong_input_has_its_code() {
    let signer = Signer::new();
    let (short, no_words) = ("short", "no-words");
    signer.private(short, "too short");
    signer.private(no_words, &WORDS.replace("junk", "test"));
    signer.private("exposed", PASSPHRASE);
    let exposed = signer.folder.path().join("exposed");
    std::fs::set_permissions(&exposed, std::fs::Permissions::from_mode(0o644)).expect("a mode");
    for (words, code) in [
        ("group list", "SIGNER_MISSING"),
        ("export-xpub hot", "SIGNER_MISSING"),
        ("group add hot --purpose hot --chain evm --passphrase-file passphrase", "SIGNER_MISSING"),
        ("init --passphrase-file nowhere", "FILE_NOT_READABLE"),
        ("init --passphrase-file short", "SIGNER_PASSPHRASE_WEAK"),
        ("init --passphrase-file exposed", "SECRET_EXPOSED"),
        ("init --passphrase-file passphrase --group hot", "SIGNER_GROUP_INVALID"),
        ("init --passphrase-file passphrase --group hot:hot:evm:x", "SIGNER_GROUP_INVALID"),
        ("init --passphrase-file passphrase --group hot:hot:dogecoin", "SIGNER_GROUP_INVALID"),
        ("init --passphrase-file passphrase --group hot:hot:evm --group hot:gas:tron", "SIGNER_GROUP_EXISTS"),
    ] {
        assert_eq!(signer.refused(words).0, code, "{words}");
        assert!(!signer.folder.path().join("bursar-signer/keystore").exists(), "{words}");
    }
    signer.good("init --passphrase-file passphrase --group hot:hot:evm");
    for (words, code) in [
        ("group add Hot --purpose hot --chain evm --passphrase-file passphrase", "SIGNER_GROUP_INVALID"),
        ("group add ../x --purpose hot --chain evm --passphrase-file passphrase", "SIGNER_GROUP_INVALID"),
        ("group add two --purpose cold --chain evm --passphrase-file passphrase", "SIGNER_GROUP_INVALID"),
        (
            "group add two --purpose hot --chain evm --account 2147483648 --passphrase-file passphrase",
            "SIGNER_GROUP_INVALID",
        ),
        ("group add two --purpose hot --chain evm --words 15 --passphrase-file passphrase", "SIGNER_MNEMONIC_INVALID"),
        ("group add hot --purpose hot --chain evm --passphrase-file passphrase", "SIGNER_GROUP_EXISTS"),
        ("group add two --purpose hot --chain evm --passphrase-file other", "SIGNER_PASSPHRASE_WRONG"),
        ("group adopt two", "FILE_NOT_READABLE"),
        (
            "import two --purpose hot --chain evm --mnemonic-file no-words --passphrase-file passphrase",
            "SIGNER_MNEMONIC_INVALID",
        ),
        (
            "import two --purpose hot --chain evm --mnemonic-file passphrase --passphrase-file passphrase",
            "SIGNER_MNEMONIC_INVALID",
        ),
        ("rotate-passphrase --passphrase-file other --new-passphrase-file passphrase", "SIGNER_PASSPHRASE_WRONG"),
        ("rotate-passphrase --passphrase-file passphrase --new-passphrase-file short", "SIGNER_PASSPHRASE_WEAK"),
        ("export-xpub nobody", "SIGNER_GROUP_UNKNOWN"),
        (
            "init --folder v --vault-address http://vault.example --vault-role-id r --vault-secret-id-file words",
            "SIGNER_VAULT_SETTING",
        ),
        (
            "init --folder v --vault-address http://127.0.0.1:1 --vault-role-id r --vault-secret-id-file passphrase",
            "SIGNER_VAULT_SETTING",
        ),
        (
            "init --folder v --vault-address http://127.0.0.1:1 --vault-role-id r --vault-secret-id-file exposed",
            "SECRET_EXPOSED",
        ),
    ] {
        assert_eq!(signer.refused(words).0, code, "{words}");
    }
    signer.private("secret-id", "a-secret-id");
    let nobody =
        "init --folder v --vault-address http://127.0.0.1:1 --vault-role-id r --vault-secret-id-file secret-id";
    assert_eq!(signer.refused(nobody), ("SIGNER_VAULT_UNREACHABLE".to_owned(), Some(3)));
    assert!(!signer.folder.path().join("v").exists(), "nothing was made");
    assert_eq!(signer.good("group list")["groups"].as_array().map(Vec::len), Some(1));
}

#[test]
fn systemd_gives_the_passphrase_as_a_credential() {
    let signer = Signer::new();
    let credentials = signer.folder.path().join("credentials");
    std::fs::create_dir(&credentials).expect("a folder");
    std::fs::rename(signer.folder.path().join("passphrase"), credentials.join("signer-passphrase")).expect("moved");
    let mut init = signer.command();
    init.args(["signer", "init", "--group", "hot:hot:evm"]).env("CREDENTIALS_DIRECTORY", &credentials);
    assert!(init.output().expect("it runs").status.success());
    signer.private("passphrase", PASSPHRASE);
    signer.good("group add two --purpose gas --chain evm --passphrase-file passphrase");
}

/// A process that is told to dump its memory must not: it would hold the keys.
#[test]
fn a_command_that_opens_keys_cannot_be_traced_and_dumps_no_core() {
    let signer = Signer::new();
    // The passphrase comes through a pipe that stays empty, so that the process waits with what it has set up.
    let pipe = signer.folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("it runs").success());
    let mut child = signer.command().args(["signer", "init", "--passphrase-file", "pipe"]).spawn().expect("started");
    let proc = format!("/proc/{}", child.id());
    let limits = || std::fs::read_to_string(format!("{proc}/limits")).unwrap_or_default();
    let core = |text: &str| text.lines().find(|line| line.starts_with("Max core file size")).map(str::to_owned);
    let mut tries = 0;
    while core(&limits()).is_none_or(|line| line.split_whitespace().filter(|word| *word == "0").count() != 2) {
        tries += 1;
        assert!(tries < 200, "{}", limits());
        std::thread::sleep(Duration::from_millis(20));
    }
    // The files of a process that is not dumpable belong to root, whoever runs it.
    let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(format!("{proc}/environ")).expect("there"));
    assert_eq!(owner, 0);
    let dumpable = std::fs::read_to_string(format!("{proc}/status")).expect("there");
    assert!(dumpable.contains("VmLck"), "{dumpable}");
    child.kill().expect("killed");
    child.wait().expect("ended");
}

/// Runs a command on a terminal of its own (`script` of util-linux), types an answer to each question, and gives the screen. The
/// answer may depend on all that the screen shows.
fn on_terminal(folder: &Path, words: &str, mut answer: impl FnMut(&str, &str) -> String) -> (String, bool) {
    let line = format!("{} signer {words}", env!("CARGO_BIN_EXE_bursar"));
    let mut child = Command::new("script")
        .args(["--quiet", "--flush", "--return", "--command", &line, "/dev/null"])
        .current_dir(folder)
        .env_remove("CREDENTIALS_DIRECTORY")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script runs");
    let mut keyboard = child.stdin.take().expect("a pipe");
    let mut output = child.stdout.take().expect("a pipe");
    let (mut screen, mut answered) = (String::new(), 0);
    let mut part = [0; 1_024];
    loop {
        let count = output.read(&mut part).unwrap_or(0);
        if count == 0 {
            break;
        }
        screen.push_str(&text(&part[..count]));
        // A question ends with a colon and a blank, and nothing follows until it is answered.
        if screen[answered..].ends_with(": ") {
            let question = screen[answered..].lines().last().unwrap_or_default().to_owned();
            answered = screen.len();
            keyboard.write_all(format!("{}\r", answer(&screen, &question)).as_bytes()).expect("typed");
        }
    }
    (screen, child.wait().expect("ended").success())
}

/// The word that the screen shows beside the number that is asked for.
fn shown_word(screen: &str, question: &str) -> String {
    let number = question.trim().trim_start_matches("word ").trim_end_matches([':', ' ']).to_owned();
    let words: Vec<&str> = screen.split_whitespace().skip_while(|word| *word != "again").skip(1).collect();
    let pairs = words.chunks(2).find(|pair| pair[0] == number);
    pairs.and_then(|pair| pair.get(1)).map_or_else(|| "none".to_owned(), |word| (*word).to_owned())
}

#[test]
fn what_is_typed_at_the_terminal_is_not_shown_and_the_words_are_asked_back() {
    let signer = Signer::new();
    let folder = signer.folder.path();
    let (screen, good) = on_terminal(folder, "init", |_, _| PASSPHRASE.to_owned());
    assert!(good && screen.contains("new passphrase: ") && screen.contains("once more: "), "{screen}");
    assert!(!screen.contains("horse"), "{screen}");

    // Three words of those that the screen has shown, by their numbers.
    let show = "group add hot --purpose hot --chain evm --words 12 --show-mnemonic --passphrase-file passphrase";
    let mut asked = 0;
    let (screen, good) = on_terminal(folder, show, |screen, question| {
        asked += 1;
        shown_word(screen, question)
    });
    assert!(good, "{screen}");
    assert_eq!(asked, 3);
    assert!(screen.contains("\u{1b}[3J"), "the words are taken off the screen");
    assert_eq!(signer.good("group list")["groups"][0]["id"], "hot");

    let (screen, good) = on_terminal(folder, &show.replacen(" hot ", " two ", 1), |_, _| "wrong".to_owned());
    assert!(!good && screen.contains("SIGNER_MNEMONIC_NOT_CONFIRMED"), "{screen}");
    assert_eq!(signer.good("group list")["groups"].as_array().map(Vec::len), Some(1), "nothing was made");

    let (screen, good) =
        on_terminal(folder, "import dev --purpose gas --chain evm --passphrase-file passphrase", |_, _| {
            WORDS.to_owned()
        });
    assert!(good && !screen.contains("junk"), "{screen}");
    let (screen, good) = on_terminal(folder, "rotate-passphrase --passphrase-file passphrase", |_, question| {
        if question.starts_with("once") { OTHER } else { PASSPHRASE }.to_owned()
    });
    assert!(!good && screen.contains("not the same"), "{screen}");
    // Ctrl-C: nothing is done, and the terminal is as it was.
    let (screen, good) = on_terminal(folder, "rotate-passphrase", |_, _| "\u{3}".to_owned());
    assert!(!good && screen.contains("SIGNER_NO_TERMINAL"), "{screen}");
    signer.good("group add more --purpose gas --chain tron --passphrase-file passphrase");
}

/// An Ed25519 key as `openssl genpkey -algorithm ed25519 -outform DER` writes it, from a seed.
fn administrator(signer: &Signer, name: &str, seed: u8) {
    let head = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
    std::fs::write(signer.folder.path().join(name), [&head[..], &[seed; 32]].concat()).expect("written");
}

fn policy(version: u64, hour: &str, ada: &str, ben: &str) -> String {
    format!(
        r#"signer = "test"
version = {version}
cooling_off_hours = 24
most_intent_life_hours = 48

[administrators]
needed = 2
keys = {{ ada = "{ada}", ben = "{ben}" }}

[[chain]]
name = "bsc"
kind = "evm"
chain_id = 56

[[group]]
id = "gas-bsc"
chain = "bsc"
role = "gas"
most_fee = "1000000000000000"
most_fee_day = "100000000000000000"

[[group.coin]]
coin = "native"
payment = "1000"
hour = "{hour}"
day = "9000"
"#
    )
}

#[test]
fn a_policy_is_signed_checked_compared_applied_and_logged() {
    let signer = Signer::new();
    let write = |text: &str| {
        std::fs::write(signer.folder.path().join("policy.toml"), text).expect("written");
        std::fs::remove_file(signer.folder.path().join("policy.toml.sig")).ok();
    };
    administrator(&signer, "ada.key", 1);
    administrator(&signer, "ben.key", 2);
    // Whoever signs is told the public key that belongs into the policy.
    write(&policy(1, "5000", &"1".repeat(64), &"2".repeat(64)));
    let public = |name: &str| {
        let signed = signer.good(&format!("policy sign policy.toml --as {name} --key {name}.key"));
        signed["public_key"].as_str().expect("a key").to_owned()
    };
    let (ada, ben) = (public("ada"), public("ben"));
    assert_eq!(signer.refused("policy check policy.toml"), ("SIGNER_POLICY_UNSIGNED".to_owned(), Some(2)));

    write(&policy(1, "5000", &ada, &ben));
    let sign = |name: &str| signer.good(&format!("policy sign policy.toml --as {name} --key {name}.key"));
    sign("ada");
    assert_eq!(signer.refused("policy check policy.toml"), ("SIGNER_POLICY_UNSIGNED".to_owned(), Some(2)));
    sign("ada");
    assert_eq!(sign("ben")["signed_by"].as_array().expect("names").len(), 2);
    assert_eq!(signer.good("policy check policy.toml")["in_force"], false);
    assert!(!signer.folder.path().join("bursar-signer").exists(), "a check changes nothing");
    signer.good("policy apply policy.toml");
    assert_eq!(signer.good("policy apply policy.toml")["in_force"], true, "again is nothing new");

    // Looser waits, tighter does not, and neither goes back.
    write(&policy(2, "5001", &ada, &ben));
    sign("ada");
    sign("ben");
    let looser = signer.good("policy diff policy.toml");
    assert_eq!(looser["looser"], serde_json::json!(["group gas-bsc on bsc: coin native"]));
    signer.good("policy apply policy.toml");
    write(&policy(3, "4000", &ada, &ben));
    sign("ada");
    sign("ben");
    assert_eq!(signer.good("policy diff policy.toml")["looser"], serde_json::json!([]));
    assert_eq!(signer.good("policy diff policy.toml")["in_force"], 1, "version 2 waits");
    signer.good("policy apply policy.toml");
    write(&policy(2, "5001", &ada, &ben));
    sign("ada");
    sign("ben");
    assert_eq!(signer.refused("policy apply policy.toml"), ("SIGNER_POLICY_OLD".to_owned(), Some(2)));
    write("version = 1");
    assert_eq!(signer.refused("policy check policy.toml"), ("SIGNER_POLICY_INVALID".to_owned(), Some(2)));

    write(&policy(4, "4000", &ada, &ben));
    assert_eq!(signer.good("policy simulate policy.toml")["asked"], 0);
    let verified = signer.good("log verify");
    assert_eq!((&verified["entries"], &verified["others"]), (&serde_json::json!(3), &serde_json::json!(3)));
    assert_eq!(signer.good("log show --last 2").as_array().expect("rows").len(), 2);
    // Whoever knows a head applies nothing to another log.
    let head = format!("3:{}", verified["hash"].as_str().expect("a hash"));
    sign("ada");
    sign("ben");
    for other in [format!("4:{}", &head[2..]), format!("3:{}", "0".repeat(64))] {
        let refused = signer.refused(&format!("policy apply policy.toml --pinned {other}"));
        assert_eq!(refused, ("SIGNER_LOG_ROLLED_BACK".to_owned(), Some(1)));
    }
    assert_eq!(signer.good("log verify")["entries"], 3);
    let exported = signer.run("log export");
    assert_eq!(text(&exported.stdout).lines().count(), 3);
    let head = format!("3:{}", verified["hash"].as_str().expect("a hash"));
    signer.good(&format!("log verify --pinned {head}"));
    let found = ("SIGNER_LOG_ROLLED_BACK".to_owned(), Some(1));
    assert_eq!(signer.refused(&format!("log verify --pinned {}", head.replacen('3', "4", 1))), found);
    assert_eq!(signer.refused(&format!("log verify --pinned 3:{}", "0".repeat(64))), found);
    // One byte of the first entry.
    let file = signer.folder.path().join("bursar-signer/log/log-00000000000000000001");
    let mut bytes = std::fs::read(&file).expect("the log");
    bytes[400] ^= 1;
    std::fs::write(&file, bytes).expect("written");
    assert_eq!(signer.refused("log verify"), ("SIGNER_LOG_DAMAGED".to_owned(), Some(1)));
}
