//! `bursar approve` against servers that lie: what is signed is what is shown, and nothing that a server merely sent.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use domain::Timestamp;
use serde_json::{Value, json};
use signer::approval::GivenApproval;
use signer::policy::signed::SigningKey;
use signer::policy::{Approver, PublicKey};
use signer::wire::{ApprovalBody, IntentBody};
use signer::{Intent, IntentKind};
use tx::{Coin, Payment};

const ID: &str = "wr-1734912345678901234";
const COIN: &str = "0x55d398326f99059fF775485246999027B3197955";
const TREASURY: &str = "[assets.USDT]\nprecision = 6\nmin_transfer = \"1\"\nmax_transfer = \"10\"\ndaily_transfer = \"10\"\n\
    [chains.bsc]\nkind = \"evm\"\nnetwork = \"56\"\nconfirmations = 12\n\
    [[on_chain]]\nasset = \"USDT\"\nchain = \"bsc\"\ncontract = \"CONTRACT\"\ndecimals = 18\nmin_deposit = \"1\"\n";
const TO: &str = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";

fn address(text: &str) -> tx::Address {
    tx::Family::Evm.parse_address(text).expect("an address")
}

fn intent() -> Intent {
    Intent {
        signer: "signer".parse().expect("a name"),
        network: signer::SignerChain::Evm { chain_id: 56 },
        job: ID.parse().expect("a job"),
        round: 0,
        chain: "bsc".parse().expect("a chain"),
        group: "hot".parse().expect("a group"),
        kind: IntentKind::Pay {
            payment: Payment {
                to: address(TO),
                coin: Coin::Token(address(COIN)),
                amount: "2500000000000000000000".parse().expect("raw"),
            },
            owner: None,
        },
        most_fee: "4000000000000000".parse().expect("raw"),
        expires: Timestamp::from_micros(1_800_000_000_000_000),
        builds: 1,
        requester: "user-7".parse().expect("a person"),
    }
}

/// As an honest server shows it.
fn shown(intent: &Intent) -> Value {
    shown_on("bsc", intent)
}

fn shown_on(chain: &str, intent: &Intent) -> Value {
    json!({
        "withdrawal_id": ID, "state": "pending", "sentence": "pay 1 USDT", "amount": "1", "asset": "USDT", "decimals": 18, "chain": chain,
        "group": "hot", "to": TO, "most_fee": "0 BNB", "expires_at": "x", "intent": IntentBody::from(intent),
        "digest": signer::digest::hex(&intent.digest()),
    })
}

/// Answers every GET with this, and keeps what is posted.
struct Liar {
    url: String,
    posted: Arc<Mutex<Vec<Value>>>,
}

impl Liar {
    fn start(shown: Value) -> Self {
        Self::answering(shown, "pending")
    }

    /// Says this of the state after a signature.
    fn answering(shown: Value, state: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let posted: Arc<Mutex<Vec<Value>>> = Arc::default();
        let kept = Arc::clone(&posted);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client may open another connection before it has given the first one up.
                let (shown, kept) = (shown.clone(), Arc::clone(&kept));
                std::thread::spawn(move || serve(stream, &shown, state, &kept));
            }
        });
        Self { url, posted }
    }

    fn posted(&self) -> Vec<Value> {
        self.posted.lock().expect("kept").clone()
    }
}

fn serve(stream: TcpStream, shown: &Value, state: &str, kept: &Mutex<Vec<Value>>) {
    let mut reader = BufReader::new(stream.try_clone().expect("a stream"));
    loop {
        let (mut first, mut length) = (String::new(), 0);
        if reader.read_line(&mut first).unwrap_or(0) == 0 {
            return;
        }
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = text.trim().parse().expect("a length");
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("a body");
        let answer = if first.starts_with("GET") {
            shown.to_string()
        } else {
            kept.lock().expect("kept").push(serde_json::from_slice(&body).expect("JSON"));
            json!({ "withdrawal_id": ID, "state": state, "wanted": 2, "agree": 1, "again": false }).to_string()
        };
        let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{answer}", answer.len());
        (&stream).write_all(text.as_bytes()).expect("sent");
    }
}

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { folder: tempfile::tempdir().expect("a folder") };
        let head = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
        place.write("ann.key", &[&head[..], &[7; 32]].concat());
        place.write("ann.token", b"a-token");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).expect("written");
        std::fs::set_permissions(self.path(name), std::fs::Permissions::from_mode(0o600)).expect("a mode");
    }

    /// A treasury file of its own, in which USDT has this contract.
    fn treasury(&self, contract: &str) {
        self.write("treasury.toml", TREASURY.replace("CONTRACT", contract).as_bytes());
        self.write("bursar.toml", b"[treasury]\nfile = \"treasury.toml\"\n");
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("BURSAR_")) {
            command.env_remove(name);
        }
        command.current_dir(self.folder.path());
        command
    }

    fn words(server: &Liar) -> String {
        format!("approve {ID} --as ann-1 --key ann.key --token ann.token --server {}", server.url)
    }

    /// Without a terminal, wherever the test itself runs.
    fn approve(&self, server: &Liar, more: &[&str]) -> Output {
        let mut command = self.command("setsid");
        command.arg("--wait").arg(env!("CARGO_BIN_EXE_bursar")).args(Self::words(server).split(' '));
        command.args(more).output().expect("bursar runs")
    }

    /// On a terminal of its own (`script` of util-linux), with one answer. What the terminal shows.
    fn on_terminal(&self, server: &Liar, more: &str, answer: &str) -> String {
        let line = format!("{} {} {more}", env!("CARGO_BIN_EXE_bursar"), Self::words(server));
        let mut command = self.command("script");
        command.args(["--quiet", "--flush", "--return", "--command", &line, "/dev/null"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("script runs");
        let mut keyboard = child.stdin.take().expect("a pipe");
        let mut output = child.stdout.take().expect("a pipe");
        let (mut screen, mut part, mut asked) = (String::new(), [0; 1_024], false);
        loop {
            let count = output.read(&mut part).unwrap_or(0);
            if count == 0 {
                break;
            }
            screen.push_str(&String::from_utf8_lossy(&part[..count]));
            if !asked && screen.ends_with("Type yes: ") {
                asked = true;
                keyboard.write_all(format!("{answer}\r").as_bytes()).expect("typed");
            }
        }
        child.wait().expect("ended");
        screen
    }

    fn refused(&self, server: &Liar, more: &[&str]) -> (String, String) {
        let output = self.approve(server, &[more, &["--json"]].concat());
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let body: Value =
            serde_json::from_str(stderr.lines().last().unwrap_or_default()).unwrap_or_else(|_| panic!("{stderr}"));
        let text = |name: &str| body["error"][name].as_str().expect(name).to_owned();
        (text("code"), text("message"))
    }
}

#[test]
fn what_is_signed_is_what_is_shown() {
    let (place, intent) = (Place::new(), intent());
    place.treasury(COIN);
    let server = Liar::start(shown(&intent));
    let output = place.approve(&server, &["--yes"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    // The words come from the intent: the server's own sentence speaks of one coin.
    for part in [
        "2500 USDT",
        "2500000000000000000000 of its smallest unit, 18 decimals by the treasury file",
        COIN,
        TO,
        "user-7",
        "1 of 2 people agree",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("pay 1 USDT"), "{text}");
    let posted = server.posted();
    assert_eq!(posted.len(), 1);
    let given: GivenApproval =
        serde_json::from_value::<ApprovalBody>(posted[0].clone()).expect("an approval").given().expect("good");
    assert_eq!(given.digest, intent.digest());
    let key = SigningKey::read(&std::fs::read(place.path("ann.key")).expect("there")).expect("a key");
    let public = PublicKey::Ed25519(key.public().try_into().expect("32 bytes"));
    let ann = Approver { person: "ann".parse().expect("a person"), key: public };
    assert_eq!(given.check(&ann), Ok(None));
}

#[test]
fn nothing_is_signed_for_a_server_that_shows_something_else_than_it_asks_for() {
    let place = Place::new();
    let honest = intent();
    let mut dearer = honest.clone();
    if let IntentKind::Pay { payment, .. } = &mut dearer.kind {
        payment.amount = "9999999999999999999999999".parse().expect("raw");
    }
    let mut elsewhere = honest.clone();
    if let IntentKind::Pay { payment, .. } = &mut elsewhere.kind {
        payment.to = address(COIN);
    }
    // It shows one and asks for the other.
    for asked in [&dearer, &elsewhere] {
        let mut lie = shown(&honest);
        lie["digest"] = json!(signer::digest::hex(&asked.digest()));
        let server = Liar::start(lie);
        let (code, message) = place.refused(&server, &["--yes"]);
        assert_eq!(code, "APPROVAL_OTHER_DIGEST", "{message}");
        assert_eq!(server.posted(), Vec::<Value>::new());
    }
    // It shows another withdrawal, another chain or group in the frame than in what is signed.
    let mut other = honest.clone();
    other.job = "wr-5".parse().expect("a job");
    let mut chain = shown(&honest);
    chain["chain"] = json!("eth");
    let mut cancel = honest.clone();
    cancel.kind = IntentKind::Cancel { jobs: vec![ID.parse().expect("a job")] };
    for lie in [shown(&other), chain, shown(&cancel)] {
        let server = Liar::start(lie);
        let (code, message) = place.refused(&server, &["--yes"]);
        assert_eq!(code, "APPROVAL_OTHER_DIGEST", "{message}");
        assert_eq!(server.posted(), Vec::<Value>::new());
    }
    // It is no Bursar.
    let server = Liar::start(json!({ "hello": "world" }));
    assert_eq!(place.refused(&server, &["--yes"]).0, "SERVER_ANSWER_WRONG");
}

/// A terminal obeys what it is sent: letters that move its cursor would paint other words over those that are made here.
#[test]
fn nothing_that_a_server_sends_moves_the_cursor() {
    let place = Place::new();
    let obeyed = |text: &str| text.contains(['\u{1b}', '\r', '\u{9b}', '\u{202e}']);
    // What it calls the coin is not even read.
    for asset in ["USDT\u{1b}[1A\u{1b}[2K", "USDT\nto  somebody else", "U\u{202e}SDT", "usdt", ""] {
        let mut lie = shown(&intent());
        lie["asset"] = json!(asset);
        let server = Liar::start(lie);
        let output = place.approve(&server, &["--yes"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && !obeyed(&text), "{asset:?}: {text}");
        assert!(!text.contains("USDT") && !text.contains("usdt") && !text.contains("somebody"), "{asset:?}: {text}");
        assert_eq!(server.posted().len(), 1);
    }
    // What it says after the signature, too.
    let server = Liar::answering(shown(&intent()), "pending\u{1b}[2J");
    let output = place.approve(&server, &["--yes"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("pending\u{fffd}[2J") && !text.contains('\u{1b}'), "{text}");
    // And what is refused: in a digest, and where it is no Bursar's answer and the error repeats it.
    let paint = "\u{1b}[2J\u{1b}[H\r\u{9b}1A\u{202e}";
    let mut digest = shown(&intent());
    digest["digest"] = json!(paint);
    let mut field = shown(&intent());
    field["intent"][paint] = json!(1);
    let mut chain = shown(&intent());
    chain["chain"] = json!(paint);
    for (lie, code) in
        [(digest, "APPROVAL_OTHER_DIGEST"), (field, "SERVER_ANSWER_WRONG"), (chain, "APPROVAL_OTHER_DIGEST")]
    {
        for more in [&["--yes"][..], &["--yes", "--json"]] {
            let server = Liar::start(lie.clone());
            let output = place.approve(&server, more);
            let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert!(!output.status.success() && err.contains(code), "{out}{err}");
            assert!(!obeyed(&out) && !obeyed(&err), "{code}, {more:?}: {:?}", (out, err));
            assert_eq!(server.posted(), Vec::<Value>::new());
        }
    }
}

/// A server could call any coin USDT, and say that it has fewer decimals: without the treasury file nobody here knows better, so it is not said at all.
#[test]
fn without_a_treasury_file_a_coin_has_no_name() {
    let place = Place::new();
    for decimals in [18, 21, 36] {
        let mut lie = shown(&intent());
        lie["decimals"] = json!(decimals);
        let server = Liar::start(lie);
        let output = place.approve(&server, &["--yes"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        for part in ["2500000000000000000000 of the coin's smallest unit", COIN, "no treasury file is named"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        for part in ["USDT", "decimals", "2500 ", "2.5 "] {
            assert!(!text.contains(part), "{part}: {text}");
        }
        assert_eq!(server.posted().len(), 1);
    }
}

/// Wherever output is sent: whoever says yes has seen what to.
#[test]
fn the_words_are_where_the_question_is() {
    let place = Place::new();
    place.treasury(COIN);
    for (more, yes) in [("--json >out", true), (">out", true), ("", true), ("--json >out", false)] {
        let server = Liar::start(shown(&intent()));
        let screen = place.on_terminal(&server, more, if yes { "yes" } else { "no" });
        let (words, _) = screen.split_once("Sign this?").unwrap_or_else(|| panic!("{more}: {screen}"));
        for part in ["2500 USDT", COIN, TO] {
            assert_eq!(words.matches(part).count(), 1, "{more}: {part}: {screen}");
        }
        assert_eq!(server.posted().len(), usize::from(yes), "{more}: {screen}");
    }
    // Without a terminal nobody can be asked.
    let server = Liar::start(shown(&intent()));
    assert_eq!(place.refused(&server, &[]).0, "APPROVAL_DECLINED");
    assert_eq!(server.posted(), Vec::<Value>::new());
}

/// The digest of such an intent is honest, and so is every word about the payment. But each of its transactions pays, as soon as the one before is past.
#[test]
fn one_signature_is_for_one_transaction() {
    let place = Place::new();
    let to = tx::Family::Tron.parse_address("TUEZSdKsoDHQMeZwihtdoBiN46zxhGWYdH").expect("an address");
    let intent = |builds| Intent {
        network: signer::SignerChain::Tron,
        chain: "tron".parse().expect("a chain"),
        kind: IntentKind::Pay {
            payment: Payment { to: to.clone(), coin: Coin::Native, amount: "5000000".parse().expect("raw") },
            owner: None,
        },
        builds,
        ..intent()
    };
    for builds in [0, 2, 1_000, u32::MAX] {
        let server = Liar::start(shown_on("tron", &intent(builds)));
        let (code, message) = place.refused(&server, &["--yes"]);
        assert_eq!(code, "APPROVAL_OTHER_DIGEST", "{message}");
        assert!(message.contains(&format!("{builds} transactions")), "{message}");
        assert_eq!(server.posted(), Vec::<Value>::new());
    }
    let server = Liar::start(shown_on("tron", &intent(1)));
    let output = place.approve(&server, &["--yes"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let line = text.lines().find(|line| line.starts_with("transactions")).expect("a line");
    assert_eq!(line.split_whitespace().last(), Some("1"), "{text}");
    assert_eq!(server.posted().len(), 1);
}

/// A server that says that a coin has fewer decimals than it has makes a payment look smaller: the treasury file knows better.
#[test]
fn the_treasury_file_says_what_a_coin_is() {
    let place = Place::new();
    let mut lie = shown(&intent());
    lie["decimals"] = json!(21);
    let server = Liar::start(lie);
    place.treasury(COIN);
    let output = place.approve(&server, &["--yes"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.contains("2500 USDT") && text.contains("18 decimals by the treasury file"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    // A coin that is not listed is not signed for.
    place.treasury(TO);
    assert_eq!(place.refused(&server, &["--yes"]).0, "APPROVAL_OTHER_DIGEST");
    assert_eq!(server.posted().len(), 1);
}

#[test]
fn the_token_stays_on_this_machine_or_goes_over_tls() {
    let place = Place::new();
    let server = Liar { url: "http://bursar.example".to_owned(), posted: Arc::default() };
    assert_eq!(place.refused(&server, &["--yes"]).0, "BAD_USAGE");
    std::fs::set_permissions(place.path("ann.token"), std::fs::Permissions::from_mode(0o644)).expect("a mode");
    let server = Liar::start(shown(&intent()));
    assert_eq!(place.refused(&server, &["--yes"]).0, "SECRET_EXPOSED");
    assert_eq!(server.posted(), Vec::<Value>::new());
}

/// A token is good for minutes, a key for years.
#[test]
fn a_key_that_others_may_read_signs_nothing() {
    let place = Place::new();
    let server = Liar::start(shown(&intent()));
    for mode in [0o644, 0o640, 0o620] {
        std::fs::set_permissions(place.path("ann.key"), std::fs::Permissions::from_mode(mode)).expect("a mode");
        assert_eq!(place.refused(&server, &["--yes"]).0, "SECRET_EXPOSED", "{mode:o}");
    }
    assert_eq!(server.posted(), Vec::<Value>::new());
    // Its bytes are taken as they are: those of a key may look like a newline.
    let head = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
    place.write("ann.key", &[&head[..], &[b'\n'; 32]].concat());
    let output = place.approve(&server, &["--yes"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(server.posted().len(), 1);
}
