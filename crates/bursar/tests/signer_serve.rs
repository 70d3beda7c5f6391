//! `bursar signer serve` as a process: what it refuses to start with, how it ends, and that a kill at any time loses nothing that was answered.
//! `BURSAR_TEST_ROUNDS=100` kills it a hundred times.

#![allow(clippy::unwrap_used, reason = "in a test an unwrap is an assertion")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::id::first_at;
use domain::random::Random;
use domain::{Clock, Timestamp};
use ring_keys::Administrator;
use serde_json::{Value, json};
use signer::SignRequest;
use signer::access::Credential;
use signer::client::transport::SignerPlace;
use signer::client::{ClientSettings, SignAnswer, SignerClient};
use signer::keys::Entropy;
use signer::log::Head;
use signer::log::entry::Entry;
use signer::log::folder::DiskFolder;
use signer::log::walk;
use signer::policy::judge::Counter;
use signer::state::State;
use signer::wire::SignBody;
use terminal::clock::SystemClock;

/// Administrators' keys, made by openssl as the guide says.
mod ring_keys {
    use std::path::Path;
    use std::process::Command;

    pub struct Administrator {
        pub public: String,
    }

    impl Administrator {
        pub fn make(folder: &Path) -> Self {
            let openssl = |arguments: &[&str]| {
                let output = Command::new("openssl").args(arguments).current_dir(folder).output().expect("openssl");
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                output.stdout
            };
            openssl(&["genpkey", "-algorithm", "ed25519", "-out", "ada.key"]);
            let der = openssl(&["pkey", "-in", "ada.key", "-pubout", "-outform", "DER"]);
            Self { public: signer::digest::hex(&der[der.len() - 32..]) }
        }
    }
}

struct Random16;

impl Entropy for Random16 {
    fn fill(&self, bytes: &mut [u8]) -> std::io::Result<()> {
        terminal::entropy::fill(bytes)
    }
}

struct Place {
    folder: tempfile::TempDir,
}

/// With what it prints: a program whose reader is gone ends.
struct Running(Child, #[expect(dead_code, reason = "held, not read")] BufReader<ChildStdout>);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

const TO: &str = "0x734fa7a902f384dedfe4a673eed5a9ea2328008c";

impl Place {
    /// A signer with a policy and two API keys.
    fn new() -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap() };
        std::fs::write(place.path("passphrase"), "correct horse battery staple\n").unwrap();
        std::fs::set_permissions(place.path("passphrase"), std::fs::Permissions::from_mode(0o600)).unwrap();
        place.good("init --passphrase-file passphrase --group hot:hot:evm");
        let administrator = Administrator::make(place.folder.path());
        let policy = format!(
            "signer = \"test\"\nversion = 1\ncooling_off_hours = 1\nmost_intent_life_hours = 48\n\
             administrators = {{ needed = 1, keys = {{ ada = \"{}\" }} }}\n\
             chain = [{{ name = \"bsc\", kind = \"evm\", chain_id = 56 }}]\n\
             [[group]]\nid = \"hot\"\nchain = \"bsc\"\nrole = \"hot\"\nmost_fee = \"3000000000000000\"\n\
             most_fee_day = \"300000000000000000000\"\n\
             coin = [{{ coin = \"native\", payment = \"100000\", hour = \"1000000000\", day = \"10000000000\" }}]\n",
            administrator.public
        );
        std::fs::write(place.path("policy.toml"), policy).unwrap();
        place.good("policy sign policy.toml --as ada --key ada.key");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
        command.current_dir(self.folder.path()).stdin(Stdio::null()).env_remove("CREDENTIALS_DIRECTORY");
        command.args(["--json", "signer"]).args(words.split(' '));
        command
    }

    #[track_caller]
    fn good(&self, words: &str) -> Value {
        let output = self.command(words).output().unwrap();
        assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    #[track_caller]
    fn refused(&self, words: &str) -> (String, Option<i32>) {
        let output = self.command(words).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let report = stderr
            .lines()
            .rev()
            .find(|line| line.starts_with("{\"error\""))
            .unwrap_or_else(|| panic!("{words}: {stderr}"));
        let body: Value = serde_json::from_str(report).unwrap();
        assert!(body["error"]["hint"].as_str().is_some_and(|hint| !hint.is_empty()), "{report}");
        (body["error"]["code"].as_str().unwrap().to_owned(), output.status.code())
    }

    /// Started, and listening.
    fn serve(&self, more: &str) -> Running {
        let mut command = self.command(&format!("serve --passphrase-file passphrase{more}"));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let running = Running(child, output);
        assert!(line.contains("listening"), "{line}");
        running
    }

    fn client(&self, pinned: Option<Head>) -> SignerClient {
        let text = std::fs::read_to_string(self.path("server.credential")).unwrap();
        let place = SignerPlace::unix(&self.path("bursar-signer/socket"));
        let settings = ClientSettings {
            deadline: Duration::from_secs(60),
            pause: Duration::from_millis(20),
            ..ClientSettings::default()
        };
        let credential = Credential::parse(&text).unwrap();
        SignerClient::new(
            place,
            credential,
            Arc::new(SystemClock),
            Arc::new(Random16),
            settings,
            pinned.map(Into::into),
        )
    }

    /// What the log says, as it lies on the disk.
    fn log(&self) -> (State, BTreeMap<String, usize>) {
        let (mut state, mut approved) = (State::default(), BTreeMap::new());
        walk(&DiskFolder::for_reading(&self.path("bursar-signer/log")), |_, entry| {
            state.apply(entry).unwrap();
            if let Entry::Approved { decision, .. } = entry {
                *approved.entry(decision.request.to_string()).or_default() += 1;
            }
        })
        .unwrap();
        (state, approved)
    }
}

/// Pays 900 wei with this nonce.
fn body(id: &str, nonce: u16, start: Timestamp) -> Value {
    // Two digits of a nonce below 128 stand for themselves; a longer one has its length before it.
    let nonce_bytes = match nonce {
        0 => "80".to_owned(),
        1..128 => format!("{nonce:02x}"),
        128..256 => format!("81{nonce:02x}"),
        _ => format!("82{nonce:04x}"),
    };
    let fields = format!("38{nonce_bytes}843b9aca008502540be40082ea6094{}82038480c0", &TO[2..]);
    let payload = format!("02{:02x}{fields}", 0xc0 + fields.len() / 2);
    json!({
        "id": id, "chain": "bsc", "wallet_group_id": "hot", "derivation_index": 0, "unsigned_tx_payload": payload,
        "intents": [{
            "signer": "test", "network": "evm:56", "job": format!("job-{}", first_at(start) + i64::from(nonce)),
            "pay": { "coin": "native", "to": TO, "amount": "900" }, "most_fee": "600000000000000",
            "expires": start.plus_micros(24 * 3_600 * 1_000_000).micros(), "requester": "alice",
        }],
    })
}

fn request(id: &str, nonce: u16, start: Timestamp) -> SignRequest {
    let text = body(id, nonce, start).to_string();
    SignBody::read(text.as_bytes(), |_| true).unwrap().unwrap().requests.remove(0)
}

#[test]
fn an_operator_starts_it_asks_it_and_stops_it() {
    let place = Place::new();
    let serve = "serve --passphrase-file passphrase";
    assert_eq!(place.refused(serve), ("SIGNER_API_KEYS_INVALID".to_owned(), Some(2)));
    for (words, code) in [
        ("key add server --credential server.credential", "SIGNER_API_KEYS_INVALID"),
        ("key add server --sign nobody --credential server.credential", "SIGNER_GROUP_UNKNOWN"),
        ("key add Server --read --credential server.credential", "SIGNER_API_KEYS_INVALID"),
        ("key add server --read --credential policy.toml", "FILE_NOT_WRITABLE"),
        ("key remove server", "SIGNER_API_KEYS_INVALID"),
    ] {
        assert_eq!(place.refused(words).0, code, "{words}");
        assert!(!place.path("server.credential").exists(), "{words}");
    }
    place.good("key add server --sign hot --derive --read --credential server.credential");
    place.good("key add ops --administer --read --credential ops.credential");
    assert_eq!(place.refused("key add ops --read --credential more").0, "SIGNER_API_KEYS_INVALID");
    assert!(!place.path("more").exists(), "a secret that opens nothing");
    assert_eq!(place.good("key list")["keys"].as_array().unwrap().len(), 2);
    let mode = std::fs::metadata(place.path("server.credential")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);

    std::fs::write(place.path("request.json"), body("first", 0, SystemClock.now()).to_string()).unwrap();
    let ask = "sign request.json --deadline 1 --credential server.credential";
    assert_eq!(place.refused(ask), ("SIGNER_UNAVAILABLE".to_owned(), Some(3)));
    assert_eq!(place.refused(&format!("{serve} --listen 127.0.0.1:0")).0, "BAD_USAGE", "plain TCP is not spoken");
    assert_eq!(place.refused(&format!("{serve} --socket nowhere/socket")).0, "SIGNER_LISTEN_FAILED");

    let mut running = place.serve("");
    assert_eq!(place.refused(serve), ("SIGNER_LOG_UNWRITABLE".to_owned(), Some(3)), "there is one on this log");
    assert_eq!(place.refused(ask).0, "SIGNER_WALLET_UNKNOWN", "there is no policy yet");
    assert_eq!(place.refused("policy apply policy.toml").0, "SIGNER_LOG_UNWRITABLE", "the signer has the log");
    let by = |key: &str| format!("policy apply policy.toml --credential {key}.credential");
    assert_eq!(place.refused(&by("server")).0, "SIGNER_FORBIDDEN");
    assert_eq!(place.good(&by("ops"))["version"], 1);
    let signed = place.good(ask);
    assert_eq!(signed["answers"][0]["what"], "signed");
    assert_eq!(place.good(ask)["answers"][0]["signed_tx"], signed["answers"][0]["signed_tx"]);
    std::fs::write(place.path("lie.json"), body("second", 0, SystemClock.now()).to_string().replace("900", "901"))
        .unwrap();
    assert_eq!(
        place.refused("sign lie.json --credential server.credential"),
        ("SIGNER_PAYMENT_UNEXPLAINED".to_owned(), Some(2))
    );

    // A key that is taken away is a stranger after SIGHUP.
    place.good("key remove ops");
    let pid = rustix::process::Pid::from_child(&running.0);
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    let mut tries = 0;
    while place.command(&by("ops")).output().unwrap().status.success() {
        tries += 1;
        assert!(tries < 50);
    }
    assert_eq!(place.refused(&by("ops")).0, "SIGNER_UNAUTHORIZED");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(running.0.wait().unwrap().code(), Some(0));
    assert!(!place.path("bursar-signer/socket").exists());
    let snapshots = std::fs::read_dir(place.path("bursar-signer/log")).unwrap();
    let snapshots =
        snapshots.filter(|one| one.as_ref().unwrap().file_name().to_string_lossy().starts_with("snapshot-"));
    assert_eq!(snapshots.count(), 1, "an orderly end writes a snapshot");
    let head = format!("{}:{}", signed["head"]["entries"], signed["head"]["hash"].as_str().unwrap());
    assert_eq!(place.good(&format!("log verify --pinned {head}"))["approved"], 1);
}

#[test]
fn a_log_from_yesterday_ends_the_signer_that_a_newer_client_asks() {
    let place = Place::new();
    place.good("key add server --sign hot --credential server.credential");
    place.good("policy apply policy.toml");
    let start = SystemClock.now();
    let copy = |from: &str, to: &str| {
        assert!(Command::new("cp").arg("-rp").arg(place.path(from)).arg(place.path(to)).status().unwrap().success());
    };
    copy("bursar-signer/log", "yesterday");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = place.client(None);
    let running = place.serve("");
    runtime.block_on(client.sign(&[request("a", 0, start)])).unwrap();
    drop(running);
    std::fs::rename(place.path("bursar-signer/log"), place.path("newest")).unwrap();
    copy("yesterday", "bursar-signer/log");
    let head = client.head().unwrap();
    let pinned = format!("serve --passphrase-file passphrase --pinned {}:{}", head.entries, head.hash);
    assert_eq!(place.refused(&pinned), ("SIGNER_LOG_ROLLED_BACK".to_owned(), Some(1)), "not even started");
    let mut running = place.serve("");
    let error = runtime.block_on(client.sign(&[request("b", 1, start)])).unwrap_err();
    assert_eq!(error.code(), "SIGNER_LOG_ROLLED_BACK");
    assert_eq!(running.0.wait().unwrap().code(), Some(1), "it has ended by itself");
    assert_eq!(place.log().1.len(), 0);
}

/// What is in clients' hands: for each id its nonce, and the bytes that came.
type Hands = BTreeMap<String, (u16, Vec<u8>)>;

#[test]
fn a_kill_at_any_time_loses_nothing_that_was_answered() {
    let kills: u32 = std::env::var("BURSAR_TEST_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    let place = Arc::new(Place::new());
    place.good("key add server --sign hot --credential server.credential");
    place.good("policy apply policy.toml");
    let start = SystemClock.now();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let hands: Arc<Mutex<Hands>> = Arc::default();
    let newest: Arc<Mutex<Option<Head>>> = Arc::default();
    let stop = Arc::new(AtomicBool::new(false));
    let mut running = place.serve("");
    let workers: Vec<_> = (0..4_u16)
        .map(|worker| {
            let (place, hands, newest, stop) =
                (Arc::clone(&place), Arc::clone(&hands), Arc::clone(&newest), Arc::clone(&stop));
            runtime.spawn(async move {
                let client = place.client(None);
                for round in 0..4_000 {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let nonce = round * 4 + worker;
                    let id = format!("r-{nonce}");
                    let answer =
                        client.sign(&[request(&id, nonce, start)]).await.unwrap_or_else(|error| panic!("{error}"));
                    let SignAnswer::Signed { signed, .. } = &answer[0] else { panic!("{id}: {answer:?}") };
                    hands.lock().unwrap().insert(id, (nonce, signed.bytes.clone()));
                    let (head, mut newest) = (client.head().unwrap(), newest.lock().unwrap());
                    if newest.is_none_or(|newest| newest.entries < head.entries) {
                        *newest = Some(head);
                    }
                }
            })
        })
        .collect();
    let mut random = Random::from_seed(u64::from(kills));
    for kill in 0..kills {
        std::thread::sleep(Duration::from_micros(20_000 + random.below(200_000)));
        drop(running);
        // Nothing can come any more: what is in anybody's hands has its entry.
        let held: Vec<String> = hands.lock().unwrap().keys().cloned().collect();
        let (_, approved) = place.log();
        for id in &held {
            assert_eq!(approved.get(id), Some(&1), "kill {kill}: {id} was signed and has no entry, or two");
        }
        let pinned = *newest.lock().unwrap();
        let pinned = pinned.map(|head| format!(" --pinned {}:{}", head.entries, head.hash)).unwrap_or_default();
        running = place.serve(&pinned);
    }
    std::thread::sleep(Duration::from_millis(100));
    stop.store(true, Ordering::Relaxed);
    runtime.block_on(async {
        for worker in workers {
            worker.await.unwrap();
        }
    });
    // The last life agrees with every earlier one: the same bytes, and each counted once.
    let hands = hands.lock().unwrap().clone();
    assert!(hands.len() > usize::try_from(kills).unwrap(), "{} were signed", hands.len());
    let client = place.client(*newest.lock().unwrap());
    for chunk in hands.iter().collect::<Vec<_>>().chunks(500) {
        let requests: Vec<SignRequest> = chunk.iter().map(|(id, (nonce, _))| request(id, *nonce, start)).collect();
        let answers = runtime.block_on(client.sign(&requests)).unwrap();
        for ((id, (_, bytes)), answer) in chunk.iter().zip(&answers) {
            let SignAnswer::Signed { signed, rule, .. } = answer else { panic!("{id}: {answer:?}") };
            assert!(signed.bytes == *bytes && rule == "replay", "{id}: {rule}");
        }
    }
    drop(running);
    let (state, approved) = place.log();
    assert!(approved.values().all(|count| *count == 1));
    let counter = Counter::Coin(tx::Coin::Native);
    let spent = state.spent.spent("bsc", &"hot".parse().unwrap(), &counter, SystemClock.now());
    assert_eq!(spent.day.to_string(), (900 * approved.len()).to_string(), "no counter was lost");
    assert!(approved.len() >= hands.len());
}
