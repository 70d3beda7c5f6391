//! The check of withdrawals by somebody outside, against a server that never answers, answers twice, late, with lies, or about something else.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use custody::withdrawal::{CheckRound, CheckWorker, HttpCheck};
use domain::operator::{OperatorName, OperatorRole};
use domain::withdrawal::WithdrawalState;
use domain::{Amount, ChainKind, Clock};
use ring::{digest, hmac};
use serde_json::{Value, json};
use store::Engine;
use store::catalog::{Author, Catalog};
use store::grants::DatabaseRole;
use store::operator::{CheckSetting, OperatorSetting, PeopleSettings};
use store::testing::on;
use store::withdrawal::{CheckState, WithdrawalId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::withdrawals::Counter;

const SECRET: &[u8; 32] = b"0123456789abcdef0123456789abcdef";
const TIMEOUT: Duration = Duration::from_millis(400);

/// What the other side does with a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Says(&'static str),
    Never,
    /// A good answer, after the time is over.
    Late,
    HangsUp,
    Error,
    Redirects,
    Garbage,
    Unsigned,
    OtherKey,
    /// Signed, but about another withdrawal.
    OtherWithdrawal,
    OtherContent,
    /// The answer to the question before, signature and all.
    Replays,
    UnknownWord,
    TooLong,
    /// Two answers to one question, of which the second is another.
    Twice,
    /// So slowly that several are on their way at once.
    Slow(&'static str),
}

struct Other {
    address: String,
    acts: Mutex<VecDeque<Act>>,
    asked: Mutex<Vec<Value>>,
    /// Signature and body of the last good answer.
    last: Mutex<Option<(String, String)>>,
    now: AtomicUsize,
    most: AtomicUsize,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn mac(secret: &[u8], text: &str) -> String {
    hex(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), text.as_bytes()).as_ref())
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

impl Other {
    async fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let other = Arc::new(Self {
            address: format!("http://{}/check?of=bursar", listener.local_addr().unwrap()),
            acts: Mutex::default(),
            asked: Mutex::default(),
            last: Mutex::default(),
            now: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
        });
        let served = Arc::clone(&other);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let served = Arc::clone(&served);
                tokio::spawn(async move { served.serve(stream).await });
            }
        });
        other
    }

    fn will(&self, acts: &[Act]) {
        self.acts.lock().unwrap().extend(acts);
    }

    fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    fn check(&self) -> HttpCheck {
        HttpCheck::new(&self.address, SECRET.to_vec(), TIMEOUT).unwrap()
    }

    async fn serve(&self, mut stream: TcpStream) {
        while let Some((nonce, body)) = read_question(&mut stream).await {
            let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(now, Ordering::SeqCst);
            self.asked.lock().unwrap().push(body.clone());
            let act = self.acts.lock().unwrap().pop_front().expect("a question that the test did not expect");
            let goes_on = self.act(&mut stream, act, &nonce, &body).await;
            self.now.fetch_sub(1, Ordering::SeqCst);
            if !goes_on {
                return;
            }
        }
    }

    /// False: the connection ends.
    async fn act(&self, stream: &mut TcpStream, act: Act, nonce: &str, body: &Value) -> bool {
        let said = |verdict: &str| json!({ "withdrawal_id": body["withdrawal_id"], "content": body["content"], "verdict": verdict, "reason": "r" });
        let sealed = |answer: &Value| {
            let text = answer.to_string();
            let seal = mac(SECRET, &format!("bursar-check-answer-v1\n{nonce}\n{}", sha256(text.as_bytes())));
            (seal, text)
        };
        let (seal, text) = match act {
            Act::Says(verdict) => sealed(&said(verdict)),
            Act::Slow(verdict) => {
                tokio::time::sleep(Duration::from_millis(100)).await;
                sealed(&said(verdict))
            }
            Act::Never => {
                tokio::time::sleep(10 * TIMEOUT).await;
                return false;
            }
            Act::Late => {
                tokio::time::sleep(2 * TIMEOUT).await;
                sealed(&said("allow"))
            }
            Act::HangsUp => return false,
            Act::Error => {
                return send(stream, "503 Service Unavailable", "", &said("allow").to_string()).await;
            }
            Act::Redirects => {
                let to = format!("location: {}\r\n", self.address);
                return send(stream, "302 Found", &to, "").await;
            }
            Act::Garbage => sealed(&json!("allow")),
            Act::Unsigned => return send(stream, "200 OK", "", &said("allow").to_string()).await,
            Act::OtherKey => {
                let text = said("allow").to_string();
                let words = format!("bursar-check-answer-v1\n{nonce}\n{}", sha256(text.as_bytes()));
                (mac(b"another key, which is as long as.", &words), text)
            }
            Act::OtherWithdrawal => {
                let mut answer = said("allow");
                answer["withdrawal_id"] = json!("wr-1");
                sealed(&answer)
            }
            Act::OtherContent => {
                let mut answer = said("allow");
                answer["content"] = json!("0".repeat(64));
                sealed(&answer)
            }
            Act::Replays => self.last.lock().unwrap().clone().expect("an answer before"),
            Act::UnknownWord => sealed(&said("yes")),
            Act::TooLong => {
                let mut answer = said("allow");
                answer["padding"] = json!("x".repeat(20_000));
                sealed(&answer)
            }
            Act::Twice => {
                let (seal, text) = sealed(&said("allow"));
                send(stream, "200 OK", &format!("bursar-check: {seal}\r\n"), &text).await;
                sealed(&said("refuse"))
            }
        };
        if matches!(act, Act::Says(_)) {
            *self.last.lock().unwrap() = Some((seal.clone(), text.clone()));
        }
        send(stream, "200 OK", &format!("bursar-check: {seal}\r\n"), &text).await
    }
}

async fn send(stream: &mut TcpStream, status: &str, headers: &str, body: &str) -> bool {
    let text = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(text.as_bytes()).await.is_ok()
}

/// The nonce and the body of a question whose signature is good, by what the guide says of it.
async fn read_question(stream: &mut TcpStream) -> Option<(String, Value)> {
    let mut read = Vec::new();
    let mut buffer = [0; 4_096];
    let (head, length) = loop {
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8(read[..end].to_vec()).unwrap();
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length: ").map(|text| text.parse::<usize>().unwrap())
            });
            break (head, (end + 4, length.expect("a length")));
        }
        let count = stream.read(&mut buffer).await.ok().filter(|count| *count > 0)?;
        read.extend_from_slice(&buffer[..count]);
    };
    while read.len() < length.0 + length.1 {
        let count = stream.read(&mut buffer).await.ok().filter(|count| *count > 0)?;
        read.extend_from_slice(&buffer[..count]);
    }
    let body = &read[length.0..];
    let line = head.lines().next().unwrap();
    let header = head.lines().find_map(|line| line.strip_prefix("authorization: Bursar-Check ")).expect("signed");
    let part = |name: &str| {
        let part = header.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
        part.unwrap().to_owned()
    };
    assert!(line.starts_with("POST /check?of=bursar "), "{line}");
    let (time, nonce) = (part("time"), part("nonce"));
    let words = format!("bursar-check-question-v1\nPOST\n/check?of=bursar\n{time}\n{nonce}\n{}", sha256(body));
    assert_eq!(part("mac"), mac(SECRET, &words), "the question is signed");
    Some((nonce, serde_json::from_slice(body).unwrap()))
}

/// Every withdrawal of the token is checked.
async fn checked(counter: &Counter<'_>) {
    let key = (counter.listing.symbol.clone(), counter.desk.rig.row.name.clone());
    let checks = [(key, CheckSetting { from: Some(Amount::ZERO) })].into();
    let ann: OperatorName = "ann".parse().unwrap();
    let setting = OperatorSetting { role: OperatorRole::Operator, user: None, active: true, keys: Default::default() };
    let people = PeopleSettings { checks, operators: [(ann, setting)].into() };
    let author = Author { actor: "test", reason: "set-up" };
    let now = counter.desk.rig.clock.now();
    counter.desk.rig.db.apply_catalog(&Catalog { people, ..Catalog::default() }, &author, now).await.unwrap();
}

async fn round(counter: &Counter<'_>, check: &HttpCheck) -> CheckRound {
    let desk = &counter.desk;
    // With the rights of who asks, where the server gives some.
    let db = desk.rig.db.of(DatabaseRole::Checks);
    CheckWorker::new(db, check, Some(&*desk.pen)).round(&*desk.rig.clock).await.unwrap()
}

async fn stands(counter: &Counter<'_>, id: WithdrawalId) -> (WithdrawalState, CheckState) {
    let check = counter.desk.rig.db.withdrawal_check(id).await.unwrap().unwrap();
    (counter.state(id).await, check.state)
}

fn pass(counter: &Counter<'_>, seconds: i64) {
    let clock = &counter.desk.rig.clock;
    clock.set(clock.now().plus_micros(seconds * 1_000_000));
}

#[test]
fn sqlite_nothing_but_a_good_answer_is_an_answer() {
    on(Engine::Sqlite, async |db| {
        let counter = Counter::open(db, ChainKind::Evm).await;
        counter.pay_in(50_000_000).await;
        checked(&counter).await;
        let other = Other::start().await;
        let check = other.check();
        // One that is answered, so that there is something to replay.
        let first = counter.taken(&counter.desk.fresh(), 1_000).await;
        other.will(&[Act::Says("allow")]);
        assert_eq!(round(&counter, &check).await.kept.allowed, 1);
        assert_eq!(stands(&counter, first).await, (WithdrawalState::Approved, CheckState::Allowed));
        let id = counter.taken(&counter.desk.fresh(), 1_000).await;
        let waits = (WithdrawalState::Pending, CheckState::Waiting);
        let mut troubles = Vec::new();
        for act in [
            Act::Never,
            Act::Late,
            Act::HangsUp,
            Act::Error,
            Act::Redirects,
            Act::Garbage,
            Act::Unsigned,
            Act::OtherKey,
            Act::OtherWithdrawal,
            Act::OtherContent,
            Act::Replays,
            Act::UnknownWord,
            Act::TooLong,
        ] {
            other.will(&[act]);
            let before = other.asked();
            assert_eq!(round(&counter, &check).await.kept.waiting, 1, "{act:?}");
            assert_eq!(stands(&counter, id).await, waits, "{act:?}");
            assert_eq!(other.asked(), before + 1, "{act:?}");
            // Not at once again: it is asked later and later.
            assert_eq!(round(&counter, &check).await, CheckRound::default(), "{act:?}");
            let row = counter.desk.rig.db.withdrawal_check(id).await.unwrap().unwrap();
            troubles.push(row.trouble.unwrap());
            pass(&counter, 601);
        }
        assert_eq!(counter.round().await.queued, 1, "only the first one");
        troubles.sort();
        troubles.dedup();
        assert!(troubles.len() >= 9, "people see what is wrong: {troubles:?}");
        let row = counter.desk.rig.db.withdrawal_check(id).await.unwrap().unwrap();
        assert_eq!(row.tries, 13);
        // Of two answers to one question the first counts.
        other.will(&[Act::Twice]);
        assert_eq!(round(&counter, &check).await.kept.allowed, 1);
        assert_eq!(stands(&counter, id).await, (WithdrawalState::Approved, CheckState::Allowed));
        pass(&counter, 601);
        assert_eq!(round(&counter, &check).await, CheckRound::default());
        assert_eq!(counter.round().await.queued, 1);
    });
}

#[test]
fn sqlite_a_no_outside_gives_the_money_back_once_the_signer_was_asked() {
    on(Engine::Sqlite, async |db| {
        let counter = Counter::open(db, ChainKind::Evm).await;
        counter.pay_in(50_000_000).await;
        checked(&counter).await;
        let other = Other::start().await;
        let check = other.check();
        let desk = &counter.desk;
        let id = counter.taken(&desk.fresh(), 1_000).await;
        assert_eq!(desk.rig.has(1, "USDT").await, 498_950);
        desk.pen.away.store(true, Ordering::Relaxed);
        other.will(&[Act::Says("refuse")]);
        let done = round(&counter, &check).await;
        assert_eq!((done.kept.refused, done.rejected), (1, 0));
        assert_eq!(stands(&counter, id).await, (WithdrawalState::Pending, CheckState::Refused));
        assert_eq!(counter.round().await.queued, 0, "nobody pays it");
        desk.pen.away.store(false, Ordering::Relaxed);
        assert_eq!(round(&counter, &check).await.rejected, 1);
        assert_eq!(stands(&counter, id).await, (WithdrawalState::Rejected, CheckState::Refused));
        assert_eq!(round(&counter, &check).await, CheckRound::default());
        assert_eq!(desk.rig.has(1, "USDT").await, 500_000);
        let report = db.audit(|_| ()).await.unwrap();
        assert!(report.clean(), "{:#?}", report.findings);
    });
}

/// Whoever asks outside logs in as `checks`, and needs no more than that to hear a yes, a no and a doubt, and to give money back.
#[test]
fn postgres_a_round_has_rights_enough() {
    on(Engine::Postgres, async |db| {
        let counter = Counter::open(db, ChainKind::Evm).await;
        counter.pay_in(50_000_000).await;
        checked(&counter).await;
        db.with_roles().await;
        let other = Other::start().await;
        let check = other.check();
        let mut ids = Vec::new();
        for verdict in ["allow", "review", "refuse"] {
            ids.push(counter.taken(&counter.desk.fresh(), 1_000).await);
            other.will(&[Act::Says(verdict)]);
            round(&counter, &check).await;
        }
        let last = counter.taken(&counter.desk.fresh(), 1_000).await;
        other.will(&[Act::HangsUp]);
        assert_eq!(round(&counter, &check).await.kept.waiting, 1);
        let wanted = [
            (WithdrawalState::Approved, CheckState::Allowed),
            (WithdrawalState::ManualReview, CheckState::Review),
            (WithdrawalState::Rejected, CheckState::Refused),
            (WithdrawalState::Pending, CheckState::Waiting),
        ];
        for (id, wanted) in ids.into_iter().chain([last]).zip(wanted) {
            assert_eq!(stands(&counter, id).await, wanted);
        }
        let report = db.audit(|_| ()).await.unwrap();
        assert!(report.clean(), "{:#?}", report.findings);
    });
}

#[test]
fn sqlite_questions_go_side_by_side_and_not_all_at_once() {
    on(Engine::Sqlite, async |db| {
        let counter = Counter::open(db, ChainKind::Evm).await;
        counter.pay_in(50_000_000).await;
        checked(&counter).await;
        let other = Other::start().await;
        let check = other.check();
        let count = 24;
        for _ in 0..count {
            counter.taken(&counter.desk.fresh(), 1_000).await;
        }
        other.will(&vec![Act::Slow("review"); count]);
        // Two workers at once ask about each one once.
        let (one, two) = tokio::join!(round(&counter, &check), round(&counter, &check));
        assert_eq!(one.kept.review + two.kept.review, count);
        assert_eq!(other.asked(), count);
        let most = other.most.load(Ordering::SeqCst);
        assert!((2..=16).contains(&most), "{most}");
        let body = other.asked.lock().unwrap()[0].clone();
        assert_eq!(
            (&body["user_id"], &body["amount"], &body["travel_rule"]),
            (&json!("1"), &json!("0.1000"), &Value::Null)
        );
    });
}
