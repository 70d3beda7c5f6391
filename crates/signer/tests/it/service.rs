//! The service by its wire: who is let in, what a hostile client can do, and what many clients at once get.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use signer::SignRequest;
use signer::access::nonces::WINDOW_US;
use signer::access::stamp::{self, Line};
use signer::approval::revoke_digest;
use signer::client::{SignAnswer, SignerError};
use signer::digest::hex;
use signer::log::entry::Entry;
use signer::log::walk;
use signer::service::listen::{ListenError, Listener};
use signer::service::{Limits, Standing};
use signer::text::Hash;
use signer::wire::{BatchBody, RequestBody};

use crate::served::*;
use crate::world::*;

const NONCE: &str = "0123456789abcdef";

fn batch(requests: &[SignRequest]) -> Vec<u8> {
    let requests = requests.iter().map(|one| RequestBody::of(one).unwrap()).collect();
    serde_json::to_vec(&BatchBody { requests, pinned: None }).unwrap()
}

fn stamped(key: &str, method: &str, path: &str, body: &[u8], time: i64, nonce: &str) -> String {
    stamp::make(&credential(key), Line { method, path }, body, NOW + time, nonce)
}

#[track_caller]
fn has_code((status, answer): &(u16, String), expected: u16, code: &str) {
    assert!(*status == expected && answer.contains(&format!("\"code\":\"{code}\"")), "{expected} {code}: {answer}");
}

fn entries(disk: &crate::faulty::FaultyFolder) -> Vec<Entry> {
    let mut all = Vec::new();
    walk(disk, |_, entry| all.push(entry.clone())).unwrap();
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_signed_and_asked_again_it_is_the_same_bytes() {
    let (served, disk) = Served::new(Limits::default());
    let client = served.client("server");
    let requests = [evm(1, 1, 900).request("a"), evm(2, 2, 2_000_000).request("too-much"), evm(3, 3, 800).request("c")];
    let first = client.sign(&requests).await.unwrap();
    assert_eq!(code_of(&first[1]), "SIGNER_APPROVALS_MISSING");
    for (answer, request) in [(&first[0], &requests[0]), (&first[2], &requests[2])] {
        let meaning = tx::evm::decode_signed(&bytes_of(answer), CHAIN_ID).unwrap();
        assert_eq!(&meaning.payments[0], request.intents[0].payment().unwrap());
        let wallet = signer::Addresses::address(&keyring(), &group("hot-bsc"), 0);
        assert_eq!(meaning.from, wallet);
    }
    let head = client.head().unwrap();
    let again = client.sign(&requests[..1]).await.unwrap();
    assert_eq!(bytes_of(&again[0]), bytes_of(&first[0]));
    assert_eq!(client.head(), Some(head), "a replay leaves no entry");
    assert_eq!(entries(&disk).len(), 4, "the policy and three decisions");
    assert!(matches!(served.stop().await, Standing::Stopped));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_request_by_itself_is_the_same_thing() {
    let (served, _) = Served::new(Limits::default());
    let mut body = serde_json::to_value(RequestBody::of(&evm(1, 1, 900).request("a")).unwrap()).unwrap();
    let mut answers = Vec::new();
    for (number, id) in [(0, Some("a")), (1, Some("a")), (2, None), (3, None)] {
        let object = body.as_object_mut().unwrap();
        object.remove("id");
        object.extend(id.map(|id| ("id".to_owned(), id.into())));
        let bytes = serde_json::to_vec(&body).unwrap();
        let stamp = stamped("server", "POST", "/v1/sign", &bytes, 0, &format!("nonce-0000000000{number}"));
        let (status, answer) = served.send("POST /v1/sign", Some(&stamp), &bytes).await;
        assert_eq!(status, 200, "{answer}");
        let json: serde_json::Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        assert!(json["signed_tx"].as_str().unwrap().starts_with("0x02"), "{json}");
        assert!(json["tx_hash"].as_str().unwrap().starts_with("0x") && json["head"]["entries"].is_u64(), "{json}");
        answers.push(json);
    }
    // Without an id the content is the id, so the same content is the same request; under another id it is the job's replacement.
    for (first, again) in [(0, 1), (2, 3)] {
        assert_eq!(answers[again]["rule"], "replay");
        for member in ["id", "signed_tx", "tx_hash", "head"] {
            assert_eq!(answers[first][member], answers[again][member], "{member}");
        }
    }
    assert_eq!(answers[0]["signed_tx"], answers[2]["signed_tx"], "the same payload has one signature");
    body["intents"][0]["pay"]["amount"] = "901".into();
    let bytes = serde_json::to_vec(&body).unwrap();
    let stamp = stamped("server", "POST", "/v1/sign", &bytes, 0, "nonce-00000000009");
    let (status, answer) = served.send("POST /v1/sign", Some(&stamp), &bytes).await;
    assert!(status == 422 && answer.contains("SIGNER_PAYMENT_UNEXPLAINED"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stamp_is_for_one_request_at_one_time() {
    let (served, disk) = Served::new(Limits::default());
    // So that a stamp can be too old without being from before the start.
    served.time.set(10 * MINUTE);
    let now = 10 * MINUTE;
    let (body, other) = (batch(&[evm(1, 1, 900).request("a")]), batch(&[evm(1, 1, 901).request("a")]));
    let good = |time: i64, nonce: &str| stamped("server", "POST", "/v1/sign", &body, now + time, nonce);
    let unauthorized = [
        (good(0, NONCE), "POST /v1/sign", &other),
        (good(0, NONCE), "POST /v1/sign?", &body),
        (stamped("server", "GET", "/v1/sign", &body, now, NONCE), "POST /v1/sign", &body),
        (stamped("server", "POST", "/v1/revoke", &body, now, NONCE), "POST /v1/sign", &body),
        (good(0, NONCE).replace("key=server", "key=hot"), "POST /v1/sign", &body),
        (good(0, NONCE).replace("key=server", "key=nobody"), "POST /v1/sign", &body),
        (good(0, NONCE).replace(NONCE, "0123456789abcdeg"), "POST /v1/sign", &body),
        (
            good(0, NONCE).replace(&format!("time={}", NOW + now), &format!("time={}", NOW + now + 1)),
            "POST /v1/sign",
            &body,
        ),
        ("Bursar".to_owned(), "POST /v1/sign", &body),
    ];
    for (stamp, line, body) in &unauthorized {
        has_code(&served.send(line, Some(stamp), body).await, 401, "SIGNER_UNAUTHORIZED");
    }
    has_code(&served.send("POST /v1/sign", None, &body).await, 401, "SIGNER_UNAUTHORIZED");
    let twice = format!("{}\r\nauthorization: {}", good(0, NONCE), good(0, NONCE));
    has_code(&served.send("POST /v1/sign", Some(&twice), &body).await, 401, "SIGNER_UNAUTHORIZED");
    for late in [-WINDOW_US - 1, WINDOW_US + 1] {
        has_code(&served.send("POST /v1/sign", Some(&good(late, NONCE)), &body).await, 401, "SIGNER_STAMP_STALE");
    }
    assert_eq!(entries(&disk).len(), 1, "nothing was decided");
    // The first of those was proven, and so used, although its body was another.
    has_code(&served.send("POST /v1/sign", Some(&good(0, NONCE)), &body).await, 401, "SIGNER_STAMP_REPLAYED");
    let fresh = good(0, "fresh-nonce-0123");
    let (status, answer) = served.send("POST /v1/sign", Some(&fresh), &body).await;
    assert!(status == 200 && answer.contains("signed_tx"), "{answer}");
    has_code(&served.send("POST /v1/sign", Some(&fresh), &body).await, 401, "SIGNER_STAMP_REPLAYED");
    served.time.set(now + WINDOW_US);
    has_code(&served.send("POST /v1/sign", Some(&fresh), &body).await, 401, "SIGNER_STAMP_REPLAYED");
    served.time.set(now + WINDOW_US + 1);
    has_code(&served.send("POST /v1/sign", Some(&fresh), &body).await, 401, "SIGNER_STAMP_STALE");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_may_do_what_it_is_for_and_nothing_else() {
    let (served, disk) = Served::new(Limits::default());
    let sign = batch(&[evm(1, 1, 900).request("a")]);
    let treasury = batch(&[evm(1, 1, 900).request("b"), evm(2, 2, 900).from("gas-bsc", 0).request("c")]);
    let addresses = br#"{"wallet_group_id":"hot-bsc","derivation_indexes":[0]}"#.to_vec();
    let policy_body = serde_json::to_vec(&serde_json::json!({ "text": policy(1), "signatures": [] })).unwrap();
    let revoke = br#"{"approved":"00","revocation":{}}"#.to_vec();
    let questions: [(&str, &str, &[u8]); 8] = [
        ("POST", "/v1/sign", &sign),
        ("POST", "/v1/sign", &treasury),
        ("POST", "/v1/addresses", &addresses),
        ("GET", "/v1/groups", b""),
        ("GET", "/v1/policy", b""),
        ("POST", "/v1/policy", &policy_body),
        ("POST", "/v1/revoke", &revoke),
        ("POST", "/v1/rounds", br#"{"jobs":["wr-7"]}"#),
    ];
    // Which are answered with something else than 403.
    let may = BTreeMap::from([
        ("server", [true, true, true, true, true, false, false, true]),
        ("hot", [true, false, false, false, false, false, false, true]),
        ("deriver", [false, false, true, true, false, false, false, true]),
        ("reader", [false, false, false, true, true, false, false, true]),
        ("admin", [false, false, false, false, false, true, true, false]),
    ]);
    for (key, may) in may {
        for (number, ((method, path, body), may)) in questions.iter().zip(may).enumerate() {
            let stamp = stamped(key, method, path, body, 0, &format!("{NONCE}-{number}"));
            let answer = served.send(&format!("{method} {path}"), Some(&stamp), body).await;
            if may {
                assert!(![0, 401, 403].contains(&answer.0), "{key} {method} {path}: {}", answer.1);
            } else {
                has_code(&answer, 403, "SIGNER_FORBIDDEN");
            }
        }
    }
    let treasury_asked = entries(&disk).iter().any(|entry| matches!(entry, Entry::Approved { decision, .. } | Entry::Refused { decision, .. } if decision.group.as_str().starts_with("treasury")));
    assert!(!treasury_asked);
    // A key that was removed is a stranger from then on.
    let mut fewer = api_keys();
    fewer.remove(&"reader".parse().unwrap()).unwrap();
    served.service.set_keys(fewer);
    let stamp = stamped("reader", "GET", "/v1/groups", b"", 0, "after-0123456789");
    has_code(&served.send("GET /v1/groups", Some(&stamp), b"").await, 401, "SIGNER_UNAUTHORIZED");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_client_costs_little_and_gets_nothing() {
    let limits = Limits {
        header_time: Duration::from_millis(100),
        body_time: Duration::from_millis(100),
        body_bytes: 100_000,
        ..Limits::default()
    };
    let (served, disk) = Served::new(limits);
    let stamp = |body: &[u8], nonce: &str| stamped("server", "POST", "/v1/sign", body, 0, nonce);
    let head = |stamp: &str, length: &str| {
        format!(
            "POST /v1/sign HTTP/1.1\r\nhost: s\r\ncontent-type: application/json\r\nauthorization: {stamp}\r\n{length}\r\n\r\n"
        )
    };
    // A gigabyte is refused by its announcement: by a stranger before its length is looked at, by a key at once.
    let gigabyte = "content-length: 1073741824";
    let answer = served.raw(head("Bursar no", gigabyte).as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 401") && answer.contains("connection: close"), "{answer}");
    let answer = served.raw(head(&stamp(b"", "gigabyte-0123456"), gigabyte).as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    // Without an announcement, when it becomes too long.
    let mut chunked = head(&stamp(b"", "chunked-01234567"), "transfer-encoding: chunked").into_bytes();
    for _ in 0..30 {
        chunked.extend_from_slice(format!("1000\r\n{}\r\n", "x".repeat(0x1000)).as_bytes());
    }
    let answer = served.raw(&chunked).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    // A body that never comes, and headers that never end.
    let answer = served.raw(head(&stamp(b"", "slow-0123456789a"), "content-length: 10").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    let answer = served.raw(b"POST /v1/sign HTTP/1.1\r\nhost: ").await;
    assert!(!answer.contains("200"), "{answer}");
    let mut endless = b"POST /v1/sign HTTP/1.1\r\n".to_vec();
    endless.extend(std::iter::repeat_n(b"x: y\r\n".to_vec(), 10_000).flatten());
    let answer = served.raw(&endless).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    // Malformed bodies. Depth is bounded before it is looked for anything in it.
    let deep = format!("{{\"requests\":{}", "[".repeat(90_000));
    let bodies = [
        deep.as_str(),
        "",
        "null",
        "[]",
        "{",
        "{\"requests\":[]}",
        "{\"requests\":[{}]}",
        "{\"requests\":[],\"more\":1}",
        "{\"hash\":\"00\"}",
        "\u{0}",
    ];
    for (number, body) in bodies.into_iter().enumerate() {
        let stamp = stamp(body.as_bytes(), &format!("malformed-0123-{number}"));
        let answer = served.send("POST /v1/sign", Some(&stamp), body.as_bytes()).await;
        has_code(&answer, 400, "SIGNER_REQUEST_MALFORMED");
    }
    // What cannot be signed cannot be asked for: there is no such path, and none takes another method.
    for path in ["/v1/sign/hash", "/v1/export", "/v1/keys", "/", "/v1/sign/", "/v1/groups/hot-bsc"] {
        has_code(&served.send(&format!("POST {path}"), None, b"").await, 404, "PATH_NOT_FOUND");
    }
    has_code(&served.send("GET /v1/sign", None, b"").await, 405, "METHOD_NOT_ALLOWED");
    has_code(&served.send("DELETE /v1/policy", None, b"").await, 405, "METHOD_NOT_ALLOWED");
    assert_eq!(entries(&disk).len(), 1);
    // After all this it still works.
    assert_eq!(served.client("server").sign(&[evm(1, 1, 900).request("a")]).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn so_many_connections_and_the_next_waits() {
    let limits = Limits { connections: 2, header_time: Duration::from_millis(300), ..Limits::default() };
    let (served, _) = Served::new(limits);
    // Two who say nothing. The third is served when their time is over.
    let silent = [
        tokio::net::UnixStream::connect(&served.socket).await.unwrap(),
        tokio::net::UnixStream::connect(&served.socket).await.unwrap(),
    ];
    assert_eq!(served.client("server").groups().await.unwrap().len(), 12);
    drop(silent);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_requests_at_once_for_one_slot_exactly_one_is_signed() {
    let (served, disk) = Served::new(Limits::default());
    let mut tasks = Vec::new();
    for number in 0..16 {
        let client = served.client_with("server", QUICK, None);
        let request = evm(100 + number, 7, 900).request(&format!("at-once-{number}"));
        tasks.push(tokio::spawn(async move { client.sign(&[request]).await.unwrap().remove(0) }));
    }
    let mut signed = 0;
    for task in tasks {
        match task.await.unwrap() {
            SignAnswer::Signed { .. } => signed += 1,
            SignAnswer::Refused { code, .. } => assert_eq!(code, "SIGNER_SLOT_TAKEN"),
        }
    }
    assert_eq!(signed, 1);
    let approved = entries(&disk).iter().filter(|entry| matches!(entry, Entry::Approved { .. })).count();
    assert_eq!(approved, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_says_whose_signature_it_is() {
    let (served, _) = Served::new(Limits::default());
    let client = served.client("server");
    let answers = client.sign(&[evm(1, 1, 900).request("a")]).await.unwrap();
    let SignAnswer::Signed { from, .. } = &answers[0] else { panic!("{answers:?}") };
    let addresses = client.addresses(&group("hot-bsc"), &[0]).await.unwrap();
    assert_eq!(from.as_ref().map(ToString::to_string), addresses.first().cloned());
}

/// Whoever has forgotten a payment is told that it was signed, and nothing is written for the question.
#[tokio::test(flavor = "multi_thread")]
async fn it_says_in_how_many_slots_jobs_were_signed() {
    let (served, _) = Served::new(Limits::default());
    let client = served.client("server");
    let (signed, refused) = (evm(1, 1, 900).request("a"), evm(2, 1, 900).request("b"));
    let jobs = [signed.intents[0].job, refused.intents[0].job, evm(3, 2, 900).request("c").intents[0].job];
    client.sign(&[signed, refused]).await.unwrap();
    let head = client.head();
    assert_eq!(served.client("deriver").rounds(&jobs).await.unwrap(), [Some(1), Some(0), Some(0)]);
    assert_eq!((served.client("server").rounds(&jobs[..1]).await.unwrap(), client.head()), (vec![Some(1)], head));
    let many = vec![jobs[2]; signer::wire::MOST_ROUNDS + 1];
    assert_eq!(client.rounds(&many).await.unwrap().len(), many.len(), "it asks twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_wait_together_share_a_sync() {
    let (served, disk) = Served::new(Limits::default());
    let mut tasks = Vec::new();
    for number in 0..200 {
        let client = served.client("server");
        let request = evm(100 + number, u64::try_from(number).unwrap(), 100).request(&format!("r-{number}"));
        tasks.push(tokio::spawn(async move { bytes_of(&client.sign(&[request]).await.unwrap()[0]) }));
    }
    let mut all = std::collections::BTreeSet::new();
    for task in tasks {
        all.insert(task.await.unwrap());
    }
    assert_eq!(all.len(), 200, "each got its own bytes");
    let mut batches = 0;
    signer::log::walk_frames(&disk, |_| batches += 1, |_, _| {}).unwrap();
    assert!(batches < 200, "{batches} batches for 200 calls");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_s_head_comes_with_every_answer_and_grows() {
    let (served, _) = Served::new(Limits::default());
    let client = served.client("server");
    client.groups().await.unwrap();
    let first = client.head().unwrap();
    assert_eq!(first.entries, 1);
    client.sign(&[evm(1, 1, 900).request("a")]).await.unwrap();
    let second = client.head().unwrap();
    assert_eq!(second.entries, 2);
    client.addresses(&group("deposit-bsc"), &[1, 2]).await.unwrap();
    client.policy().await.unwrap();
    assert_eq!(client.head(), Some(second));
    assert_eq!(served.service.head(), second);
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_and_groups_are_those_of_the_keys() {
    let (served, _) = Served::new(Limits::default());
    let client = served.client("deriver");
    let indexes: Vec<u64> = (0..50).chain([1 << 31, (1 << 62) - 1]).collect();
    let addresses = client.addresses(&group("deposit-tron"), &indexes).await.unwrap();
    let keys = keyring();
    for (index, address) in indexes.iter().zip(&addresses) {
        let expected = signer::Addresses::address(&keys, &group("deposit-tron"), *index).unwrap();
        assert_eq!(*address, expected.to_string());
    }
    for (group, indexes, code) in
        [(group("nobody"), vec![1], "SIGNER_GROUP_UNKNOWN"), (group("hot-bsc"), vec![1 << 62], "SIGNER_PATH_INVALID")]
    {
        let error = client.addresses(&group, &indexes).await.unwrap_err();
        assert!(matches!(&error, SignerError::Rejected { code: said, .. } if said == code), "{error}");
    }
    let groups = client.groups().await.unwrap();
    let ours: Vec<(String, String)> =
        keys.groups().map(|group| (group.id.to_string(), group.key.to_string())).collect();
    let theirs: Vec<(String, String)> = groups.into_iter().map(|group| (group.id, group.xpub)).collect();
    assert_eq!(ours, theirs);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_and_a_revocation_come_by_the_administrators_key() {
    let (served, _) = Served::new(Limits::default());
    let (admin, server, reader) = (served.client("admin"), served.client("server"), served.client("reader"));
    let before = reader.policy().await.unwrap();
    assert_eq!((before.in_force.unwrap().version, before.waiting), (1, None));
    let rejected = |error: SignerError| match error {
        SignerError::Rejected { code, .. } => code,
        other => panic!("{other}"),
    };
    let looser = policy(2).replace("payment = \"1000000\"", "payment = \"1500000\"");
    let error = admin.apply_policy(&looser, &signed(&looser, &["ada"])).await.unwrap_err();
    assert_eq!(rejected(error), "SIGNER_POLICY_UNSIGNED");
    let taken = admin.apply_policy(&looser, &signed(&looser, &["ada", "ben"])).await.unwrap();
    assert_eq!((taken.in_force.unwrap().version, taken.waiting.unwrap().version), (1, 2));
    let tighter = policy(3).replace("payment = \"1000000\"", "payment = \"500\"");
    let taken = admin.apply_policy(&tighter, &signed(&tighter, &["cyd", "ben"])).await.unwrap();
    assert_eq!((taken.in_force.unwrap().version, taken.waiting), (3, None));
    assert_eq!(code_of(&server.sign(&[evm(1, 1, 900).request("a")]).await.unwrap()[0]), "SIGNER_APPROVALS_MISSING");

    let mut request = evm(2, 2, 600).request("b");
    let digest = request.intents[0].digest();
    request.approvals = vec![approve("bob", digest)];
    let error = admin.revoke(&Hash(digest), &approve("carol", digest)).await.unwrap_err();
    assert_eq!(rejected(error), "SIGNER_APPROVAL_BAD");
    admin.revoke(&Hash(digest), &approve("bob", revoke_digest(&digest))).await.unwrap();
    let refused = server.sign(std::slice::from_ref(&request)).await.unwrap();
    assert!(code_of(&refused[0]).starts_with("SIGNER_APPROVAL"), "{refused:?}");
    request.approvals = vec![approve("carol", digest)];
    bytes_of(&server.sign(&[request]).await.unwrap()[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn health_metrics_and_the_description_need_no_key_and_tell_no_secret() {
    let (served, _) = Served::new(Limits::default());
    served.client("server").sign(&[evm(1, 1, 900).request("a"), evm(2, 1, 900).request("b")]).await.unwrap();
    for (path, words) in [
        ("/health/live", "\"ok\""),
        ("/health/ready", "\"ok\""),
        ("/openapi.json", "\"openapi\""),
        ("/metrics", "bursar_signer_refusals_total{code=\"SIGNER_SLOT_TAKEN\"} 1"),
        ("/metrics", "bursar_signer_decisions_total{verdict=\"approved\"} 1"),
        ("/metrics", "bursar_signer_log_entries 3"),
        ("/metrics", "bursar_signer_policy_version 1"),
    ] {
        let (status, answer) = served.send(&format!("GET {path}"), None, b"").await;
        assert!(status == 200 && answer.contains(words), "{path} {words}: {answer}");
        for name in ["server", "hot"] {
            assert!(!answer.contains(&hex(&signer::digest::sha256(name.as_bytes()))), "{path} has a secret");
        }
    }
    // Paths and keys that somebody invents make no new series.
    for number in 0..20 {
        served.send(&format!("GET /invented/{number}"), Some(&format!("Bursar key=x{number}")), b"").await;
    }
    let (_, answer) = served.send("GET /metrics", None, b"").await;
    assert!(!answer.contains("invented") && answer.contains("path=\"other\",class=\"4xx\"} 20"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_is_its_owner_s_in_a_folder_that_others_cannot_write_to() {
    let (served, _) = Served::new(Limits::default());
    let mode = std::fs::metadata(&served.socket).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let why = |path: &std::path::Path| match Listener::unix(path) {
        Err(ListenError::Place { why, .. }) => why,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it listens"),
    };
    assert_eq!(why(&served.socket), "somebody listens there already");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    std::fs::write(&path, "not a socket").unwrap();
    assert_eq!(why(&path), "there is a file of this name");
    std::fs::remove_file(&path).unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(why(&path), "others may write to its folder");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    // What a signer left that was killed.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let listener = Listener::unix(&path).unwrap();
    drop(listener);
    assert!(!path.exists(), "an orderly end leaves nothing");
}
