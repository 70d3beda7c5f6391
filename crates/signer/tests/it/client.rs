//! The client and the service together: lost answers, a signer that is away, one that lies, a log that was put back, a disk that is full.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use signer::Authorizer;
use signer::client::transport::SignerPlace;
use signer::client::{ClientSettings, SignAnswer, SignerClient, SignerError};
use signer::log::entry::Entry;
use signer::log::walk;
use signer::service::{Limits, Standing};
use signer::wire::HeadBody;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use crate::faulty::{Faults, FaultyFolder};
use crate::served::*;
use crate::world::*;

/// How the service ends. One that goes on is noticed.
async fn ended(served: &Served) -> Standing {
    tokio::time::timeout(Duration::from_secs(20), served.service.ended()).await.expect("it goes on")
}

fn approved(disk: &FaultyFolder) -> Vec<String> {
    let mut ids = Vec::new();
    walk(disk, |_, entry| {
        if let Entry::Approved { decision, .. } = entry {
            ids.push(decision.request.to_string());
        }
    })
    .unwrap();
    ids
}

/// What stands between a client and the service, and how often it was spoken to.
struct Between {
    folder: tempfile::TempDir,
    calls: Arc<AtomicUsize>,
}

impl Between {
    /// Hands every request on, and `change`s each answer. An empty answer is a connection that breaks.
    fn new(served: &Served, change: impl Fn(usize, Vec<u8>) -> Vec<u8> + Send + 'static) -> Self {
        Self::repeating(served, 1, change)
    }

    /// Sends every request so often, and hands the last answer on.
    fn repeating(served: &Served, copies: usize, change: impl Fn(usize, Vec<u8>) -> Vec<u8> + Send + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        let (socket, calls) = (served.socket.clone(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&calls);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut question = Vec::new();
                let mut piece = [0; 65_536];
                while !is_whole(&question) {
                    let Ok(count @ 1..) = client.read(&mut piece).await else { break };
                    question.extend_from_slice(&piece[..count]);
                }
                let mut answer = Vec::new();
                for _ in 0..copies {
                    let mut signer = UnixStream::connect(&socket).await.unwrap();
                    signer.write_all(&question).await.unwrap();
                    answer.clear();
                    while !is_whole(&answer) {
                        let Ok(count @ 1..) = signer.read(&mut piece).await else { break };
                        answer.extend_from_slice(&piece[..count]);
                    }
                }
                let answer = change(counted.fetch_add(1, Ordering::Relaxed), answer);
                client.write_all(&answer).await.ok();
            }
        });
        Self { folder, calls }
    }

    fn client(&self, served: &Served, settings: ClientSettings) -> SignerClient {
        let place = SignerPlace::unix(&self.folder.path().join("socket"));
        let clock: Arc<TestTime> = Arc::clone(&served.time);
        SignerClient::new(place, credential("server"), clock, nonces(), settings, None)
    }
}

fn is_whole(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    body.len() >= length.unwrap_or(0)
}

/// An answer with another body.
fn with_body(answer: &[u8], change: impl Fn(&str) -> String) -> Vec<u8> {
    let text = String::from_utf8_lossy(answer);
    let (_, body) = text.split_once("\r\n\r\n").unwrap();
    let body = change(body);
    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        .into_bytes()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_asked_again_gives_the_same_bytes_and_counts_once() {
    let (served, disk) = Served::new(Limits::default());
    // The first two answers are lost after the signer has signed.
    let between = Between::new(&served, |call, answer| if call < 2 { Vec::new() } else { answer });
    let client = between.client(&served, QUICK);
    let request = evm(1, 1, 900).request("a");
    let answer = client.sign(std::slice::from_ref(&request)).await.unwrap().remove(0);
    let SignAnswer::Signed { rule, .. } = &answer else { panic!("{answer:?}") };
    assert_eq!(rule, "replay", "the first try had been signed");
    assert_eq!(between.calls.load(Ordering::Relaxed), 3);
    assert_eq!(approved(&disk), ["a"]);
    let direct = served.client("server").sign(&[request]).await.unwrap();
    assert_eq!(bytes_of(&direct[0]), bytes_of(&answer));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_at_all_is_unknown_and_an_absent_signer_is_not() {
    let (served, disk) = Served::new(Limits::default());
    let short = ClientSettings { deadline: Duration::from_secs(1), ..QUICK };
    let between = Between::new(&served, |_, _| Vec::new());
    let error = between.client(&served, short).sign(&[evm(1, 1, 900).request("a")]).await.unwrap_err();
    assert!(matches!(error, SignerError::Unknown { .. }) && !error.is_nothing_signed(), "{error}");
    assert_eq!(approved(&disk), ["a"], "and indeed it was signed");
    // A signer that takes the question and never answers.
    let folder = tempfile::tempdir().unwrap();
    let silent = UnixListener::bind(folder.path().join("socket")).unwrap();
    let clock: Arc<TestTime> = Arc::clone(&served.time);
    let place = || SignerPlace::unix(&folder.path().join("socket"));
    let client = SignerClient::new(place(), credential("server"), clock.clone(), nonces(), short, None);
    let error = client.sign(&[evm(2, 2, 900).request("b")]).await.unwrap_err();
    assert!(matches!(error, SignerError::Unknown { .. }), "{error}");
    drop(silent);
    // None at all.
    let client = SignerClient::new(place(), credential("server"), clock, nonces(), short, None);
    let error = client.sign(&[evm(2, 2, 900).request("b")]).await.unwrap_err();
    assert!(matches!(error, SignerError::Unavailable { .. }) && error.is_nothing_signed(), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_as_a_whole_after_a_lost_answer_stays_unknown() {
    let (served, disk) = Served::new(Limits::default());
    let service = served.service.clone();
    let between = Between::new(&served, move |call, answer| {
        if call == 0 {
            // Signed, lost, and then the key is taken away.
            let mut fewer = api_keys();
            fewer.remove(&"server".parse().unwrap()).unwrap();
            service.set_keys(fewer);
            return Vec::new();
        }
        answer
    });
    let client = between.client(&served, QUICK);
    let error = client.sign(&[evm(1, 1, 900).request("a")]).await.unwrap_err();
    assert!(matches!(error, SignerError::Unknown { .. }), "{error}");
    assert_eq!(approved(&disk), ["a"]);
    // With nothing lost, the same is certain.
    let error = served.client("server").sign(&[evm(2, 2, 900).request("b")]).await.unwrap_err();
    assert!(matches!(&error, SignerError::Rejected { code, .. } if code == "SIGNER_UNAUTHORIZED"), "{error}");
    assert!(error.is_nothing_signed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_says_when_something_was_signed_under_its_id_before() {
    let (served, _) = Served::new(Limits::default());
    let client = served.client("server");
    let request = evm(1, 1, 900).request("a");
    client.sign(std::slice::from_ref(&request)).await.unwrap();
    let other = evm(1, 1, 901).request("a");
    let answers = client.sign(&[other, evm(2, 1, 900).request("b")]).await.unwrap();
    let before = |answer: &SignAnswer| match answer {
        SignAnswer::Refused { signed_before, code, holder, .. } => (*signed_before, code.clone(), *holder),
        SignAnswer::Signed { .. } => panic!("{answer:?}"),
    };
    assert_eq!(before(&answers[0]), (true, "SIGNER_REQUEST_REUSED".to_owned(), None));
    assert_eq!(before(&answers[1]), (false, "SIGNER_SLOT_TAKEN".to_owned(), Some(job(1))));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_does_not_fit_is_not_believed() {
    let (served, _) = Served::new(Limits::default());
    let (first, second) = (evm(1, 1, 900).request("a"), evm(2, 2, 800).request("b"));
    let both = served.client("server").sign(&[first.clone(), second.clone()]).await.unwrap();
    let [one, two] = [0, 1].map(|place| signer::digest::hex(&bytes_of(&both[place])));
    type Lie = Box<dyn Fn(&str) -> String + Send>;
    let lies: Vec<(&str, Lie)> = vec![
        ("another id", Box::new(|body| body.replacen("\"id\":\"a\"", "\"id\":\"c\"", 1))),
        ("the other's bytes", Box::new(move |body| body.replacen(&one, &two, 1))),
        (
            "one answer too few",
            Box::new(|body| {
                let mut json: serde_json::Value = serde_json::from_str(body).unwrap();
                json["answers"].as_array_mut().unwrap().pop();
                json.to_string()
            }),
        ),
        (
            "another order",
            Box::new(|body| {
                let mut json: serde_json::Value = serde_json::from_str(body).unwrap();
                json["answers"].as_array_mut().unwrap().reverse();
                json.to_string()
            }),
        ),
        (
            "the other's bytes and hash",
            Box::new(|body| {
                let mut json: serde_json::Value = serde_json::from_str(body).unwrap();
                for field in ["signed_tx", "tx_hash"] {
                    json["answers"][0][field] = json["answers"][1][field].clone();
                }
                json.to_string()
            }),
        ),
        (
            "another hash",
            Box::new(|body| {
                let mut json: serde_json::Value = serde_json::from_str(body).unwrap();
                json["answers"][0]["tx_hash"] = format!("0x{}", "ab".repeat(32)).into();
                json.to_string()
            }),
        ),
        (
            "signed and refused",
            Box::new(|body| {
                let mut json: serde_json::Value = serde_json::from_str(body).unwrap();
                json["answers"][0]["refused"] =
                    serde_json::json!({ "code": "X", "message": "", "signed_before": false });
                json.to_string()
            }),
        ),
        ("no JSON", Box::new(|_| "yes".to_owned())),
    ];
    for (what, lie) in lies {
        let between = Between::new(&served, move |_, answer| with_body(&answer, &lie));
        let error = between.client(&served, QUICK).sign(&[first.clone(), second.clone()]).await.unwrap_err();
        assert!(matches!(error, SignerError::WrongAnswer { .. }), "{what}: {error}");
        assert!(!error.is_nothing_signed(), "{what}");
    }
    let between = Between::new(&served, |_, answer| answer);
    assert_eq!(between.client(&served, QUICK).sign(&[first, second]).await.unwrap().len(), 2, "nothing else is wrong");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_was_put_back_is_noticed_by_whoever_has_a_newer_head() {
    let (served, disk) = Served::new(Limits::default());
    let client = served.client("server");
    client.sign(&[evm(1, 1, 900).request("a")]).await.unwrap();
    let yesterday = disk.copy();
    client.sign(&[evm(2, 2, 900).request("b")]).await.unwrap();
    let newest = client.pinned();
    served.stop().await;
    // Yesterday's copy: nothing in it is damaged.
    let old = Authorizer::open(yesterday.clone(), None, after(0)).unwrap();
    let served = Served::of(old, Limits::default());
    let client = served.client_with("server", QUICK, newest);
    // A client that only reads sees it too.
    let error = client.groups().await.unwrap_err();
    assert!(matches!(error, SignerError::RolledBack { .. }), "{error}");
    let error = client.sign(&[evm(3, 2, 900).request("c")]).await.unwrap_err();
    assert!(matches!(error, SignerError::RolledBack { .. }), "{error}");
    assert_eq!(approved(&yesterday), ["a"], "nothing was decided");
    // From then on it signs for nobody, also not for those who know no better.
    let Standing::Failed(error) = ended(&served).await else { panic!("it should have failed") };
    assert_eq!(error.code(), "SIGNER_LOG_ROLLED_BACK");
    let short = ClientSettings { deadline: Duration::from_secs(2), ..QUICK };
    let error = served.client_with("server", short, None).sign(&[evm(3, 2, 900).request("c")]).await.unwrap_err();
    assert!(matches!(&error, SignerError::Unavailable { code, .. } if code == "SIGNER_STOPPED"), "{error}");
    let (status, answer) = served.send("GET /health/ready", None, b"").await;
    assert!(status == 503 && answer.contains("SIGNER_LOG_ROLLED_BACK"), "{answer}");
    let (status, _) = served.send("GET /health/live", None, b"").await;
    assert_eq!(status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_only_asks_for_the_head_stops_an_old_copy_too() {
    let (served, disk) = Served::new(Limits::default());
    let client = served.client("server");
    client.sign(&[evm(1, 1, 900).request("a")]).await.unwrap();
    let yesterday = disk.copy();
    client.sign(&[evm(2, 2, 900).request("b")]).await.unwrap();
    client.confirm().await.unwrap();
    let newest = client.pinned();
    served.stop().await;
    let served = Served::of(Authorizer::open(yesterday, None, after(0)).unwrap(), Limits::default());
    // It has grown beyond the head since: only the hash tells.
    let other = served.client("server");
    other.sign(&[evm(3, 3, 900).request("c"), evm(4, 4, 900).request("d")]).await.unwrap();
    let error = served.client_with("reader", QUICK, newest).confirm().await.unwrap_err();
    assert!(matches!(error, SignerError::RolledBack { .. }), "{error}");
    let Standing::Failed(error) = ended(&served).await else { panic!("it should have failed") };
    assert_eq!(error.code(), "SIGNER_LOG_ROLLED_BACK");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_the_signer_never_gave_is_refused_and_stops_nobody() {
    let (served, disk) = Served::new(Limits::default());
    let client = served.client("server");
    client.sign(&[evm(1, 1, 900).request("a")]).await.unwrap();
    let real = client.pinned().unwrap();
    let hash = |byte: u8| signer::text::Hash([byte; 32]);
    let lies = [
        HeadBody { entries: 1_000, hash: hash(1), proof: None },
        HeadBody { entries: 1_000, hash: hash(1), proof: Some(hash(2)) },
        // A true proof, of another head.
        HeadBody { entries: 1_000, ..real },
        HeadBody { hash: hash(3), ..real },
        HeadBody { entries: u64::MAX, ..real },
        HeadBody { entries: 0, ..real },
    ];
    for (number, lie) in lies.into_iter().enumerate() {
        let thief = served.client_with("server", QUICK, Some(lie));
        let slot = 10 + u64::try_from(number).unwrap();
        let error =
            thief.sign(&[evm(i64::try_from(slot).unwrap(), slot, 900).request(&format!("thief-{number}"))]).await;
        assert!(matches!(error, Err(SignerError::RolledBack { .. })), "{number}: {error:?}");
        let error = served.client_with("reader", QUICK, Some(lie)).confirm().await;
        assert!(matches!(error, Err(SignerError::RolledBack { .. })), "{number}: {error:?}");
        // Those who have the true one are served.
        let request = evm(100 + i64::try_from(slot).unwrap(), 100 + slot, 900).request(&format!("good-{number}"));
        bytes_of(&client.sign(&[request]).await.unwrap()[0]);
    }
    assert!(matches!(served.service.standing(), Standing::Running));
    assert!(approved(&disk).iter().all(|id| !id.starts_with("thief")), "{:?}", approved(&disk));
    // The true one without its proof is in the log all the same.
    served.client_with("reader", QUICK, Some(HeadBody { proof: None, ..real })).confirm().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_head_is_looked_for_while_signing_goes_on() {
    let (served, disk) = Served::new(Limits { snapshot_entries: 5, ..Limits::default() });
    let client = served.client("server");
    let mut heads = Vec::new();
    for number in 0..40 {
        let request = evm(100 + number, u64::try_from(number).unwrap(), 100).request(&format!("r-{number}"));
        bytes_of(&client.sign(&[request]).await.unwrap()[0]);
        heads.push(client.pinned().unwrap());
    }
    // After a start only what followed the last snapshot is in memory.
    served.stop().await;
    let served = Served::of(reopen(&disk, client.head(), 0), Limits { snapshot_entries: 5, ..Limits::default() });
    let client = served.client_with("server", QUICK, client.pinned());
    disk.hold_readers(true);
    let old = served.client_with("server", QUICK, Some(heads[1]));
    let waiting = tokio::spawn(async move { old.sign(&[evm(200, 200, 100).request("old")]).await });
    let short = ClientSettings { deadline: Duration::from_millis(100), ..QUICK };
    // The thread that looks stands still. Everybody else is served; who brings another old head asks again later.
    loop {
        let other = served.client_with("server", short, Some(heads[2]));
        match other.sign(&[evm(201, 201, 100).request("busy")]).await {
            Err(SignerError::Unavailable { code, .. }) if code == "SIGNER_BUSY" => break,
            Err(SignerError::Unknown { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    bytes_of(&client.sign(&[evm(202, 202, 100).request("new")]).await.unwrap()[0]);
    assert!(!waiting.is_finished());
    disk.hold_readers(false);
    bytes_of(&waiting.await.unwrap().unwrap()[0]);
    // Once found it is not looked for again.
    disk.hold_readers(true);
    served.client_with("reader", QUICK, Some(heads[1])).confirm().await.unwrap();
    disk.hold_readers(false);
    // An old one that is not of this log, and was given: by a copy that went another way.
    let fork = Served::of(Authorizer::open(FaultyFolder::new(9), None, after(0)).unwrap(), Limits::default());
    fork.client("reader").groups().await.unwrap();
    let text = policy(1);
    fork.client("admin").apply_policy(&text, &signed(&text, &["ada", "cyd"])).await.unwrap();
    let (forked, astray) = (fork.client("server"), evm(9, 9, 9).request("x"));
    forked.sign(&[astray]).await.unwrap();
    let astray = forked.pinned();
    let error = served.client_with("reader", QUICK, astray).confirm().await.unwrap_err();
    assert!(matches!(error, SignerError::RolledBack { .. }), "{error}");
    assert!(matches!(served.service.ended().await, Standing::Failed(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_somebody_sent_on_twice_is_no_certain_no() {
    let (served, disk) = Served::new(Limits::default());
    // The first copy is signed and its answer kept by whoever stands between; ours is told that the stamp was used.
    let between = Between::repeating(&served, 2, |_, answer| answer);
    let short = ClientSettings { deadline: Duration::from_secs(1), ..QUICK };
    let error = between.client(&served, short).sign(&[evm(1, 1, 900).request("a")]).await.unwrap_err();
    assert!(matches!(error, SignerError::Unknown { .. }) && !error.is_nothing_signed(), "{error}");
    assert_eq!(approved(&disk), ["a"], "and indeed it was signed");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_log_of_the_same_length_is_noticed_too() {
    let (served, disk) = Served::new(Limits::default());
    let fork = disk.copy();
    let client = served.client("server");
    client.sign(&[evm(1, 1, 900).request("a")]).await.unwrap();
    let newest = client.pinned();
    served.stop().await;
    let served = Served::of(Authorizer::open(fork, None, after(0)).unwrap(), Limits::default());
    served.client("server").sign(&[evm(2, 1, 900).request("b")]).await.unwrap();
    assert_eq!(served.service.head().entries, newest.unwrap().entries);
    let client = served.client_with("server", QUICK, newest);
    let error = client.sign(&[evm(3, 3, 900).request("c")]).await.unwrap_err();
    assert!(matches!(error, SignerError::RolledBack { .. }), "{error}");
}

/// What the disk does, and whether the entry is there afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_fails_stops_everything_and_the_outcome_is_unknown() {
    let full = |disk: &FaultyFolder, room: usize| {
        // What was written ahead is used up, too.
        let used: usize = disk.files().iter().map(|name| disk.frames(name).len()).sum();
        Faults { capacity: Some(used + room), ..Faults::default() }
    };
    // Full before the write, in its middle, and an error at the sync.
    for (name, faults) in [
        ("before", &full as &dyn Fn(&FaultyFolder, usize) -> Faults),
        ("during", &full),
        ("after", &|_: &FaultyFolder, _| Faults { sync_fails: true, ..Faults::default() }),
    ] {
        let (served, disk) = Served::new(Limits::default());
        let short = ClientSettings { deadline: Duration::from_secs(1), ..QUICK };
        let client = served.client_with("server", short, None);
        let first = client.sign(&[evm(1, 1, 900).request("a")]).await.unwrap();
        let head = client.head();
        disk.set_faults(faults(&disk, if name == "during" { 100 } else { 0 }));
        let request = evm(2, 2, 900).request("b");
        let error = client.sign(std::slice::from_ref(&request)).await.unwrap_err();
        assert!(matches!(error, SignerError::Unknown { .. }), "{name}: {error}");
        let Standing::Failed(error) = served.service.ended().await else { panic!("{name}: it goes on") };
        assert_eq!(error.code(), "SIGNER_LOG_UNWRITABLE", "{name}");
        let (status, _) = served.send("GET /health/ready", None, b"").await;
        assert_eq!(status, 503, "{name}");
        assert!(matches!(served.stop().await, Standing::Failed(_)), "{name}");
        // The power goes too. The next life agrees with whatever was answered.
        disk.crash();
        let served = Served::of(reopen(&disk, head, 0), Limits::default());
        let client = served.client_with("server", QUICK, head.map(Into::into));
        let again = client.sign(&[evm(1, 1, 900).request("a")]).await.unwrap();
        assert_eq!(bytes_of(&again[0]), bytes_of(&first[0]), "{name}");
        bytes_of(&client.sign(&[request]).await.unwrap()[0]);
        assert_eq!(approved(&disk), ["a", "b"], "{name}: each once");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_is_full_says_so_and_nothing_is_lost() {
    let (served, disk) = Served::new(Limits { queue: 1, batch: 1, ..Limits::default() });
    let mut tasks = Vec::new();
    for number in 0..50 {
        let patient = ClientSettings { deadline: Duration::from_secs(120), ..QUICK };
        let client = served.client_with("server", patient, None);
        let request = evm(100 + number, u64::try_from(number).unwrap(), 100).request(&format!("r-{number}"));
        // Those who are turned away ask again.
        tasks.push(tokio::spawn(async move { bytes_of(&client.sign(&[request]).await.unwrap()[0]) }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(approved(&disk).len(), 50);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_begun_when_it_stops_is_finished_and_the_next_life_agrees() {
    let (served, disk) = Served::new(Limits::default());
    let mut tasks = Vec::new();
    for number in 0..30 {
        let settings = ClientSettings { deadline: Duration::from_millis(500), ..QUICK };
        let client = served.client_with("server", settings, None);
        let request = evm(100 + number, u64::try_from(number).unwrap(), 100).request(&format!("r-{number}"));
        tasks.push(tokio::spawn(async move { (number, client.sign(&[request]).await) }));
    }
    tokio::task::yield_now().await;
    assert!(matches!(served.stop().await, Standing::Stopped));
    let logged = approved(&disk);
    for task in tasks {
        let (number, answer) = task.await.unwrap();
        let there = logged.contains(&format!("r-{number}"));
        match answer {
            Ok(answer) => {
                bytes_of(&answer[0]);
                assert!(there, "{number}: signed without an entry");
            }
            Err(error) => assert!(!there || !error.is_nothing_signed(), "{number}: {error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_clients_with_heads_of_their_own_agree() {
    let (served, _) = Served::new(Limits { snapshot_entries: 7, ..Limits::default() });
    let mut tasks = Vec::new();
    for worker in 0..8 {
        let client = served.client("server");
        tasks.push(tokio::spawn(async move {
            for number in 0..10 {
                let slot = worker * 10 + number;
                let request = evm(100 + slot, u64::try_from(slot).unwrap(), 100).request(&format!("r-{slot}"));
                bytes_of(&client.sign(&[request]).await.unwrap()[0]);
                client.groups().await.unwrap_or_else(|error| panic!("{error}"));
            }
        }));
    }
    for task in tasks {
        task.await.unwrap_or_else(|_| panic!("a worker"));
    }
    assert_eq!(served.service.head().entries, 81);
}
