//! A signer that is away, has other keys, or runs on an old copy of its log is told to people; one that is away for a moment is not.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use custody::signer::{SignerStanding, SignerWatch};
use custody::wallet::Pinned;
use domain::{Clock, Purpose};
use serde_json::{Value, json};
use signer::access::{Credential, KeySecret};
use signer::client::transport::SignerPlace;
use signer::client::{ClientSettings, SignerClient};
use signer::keys::Entropy;
use store::db_test;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use tx::{AccountKey, Family, Group};

use crate::alerts::Hook;
use crate::support::*;

const XPUB: &str =
    "xpub6DCoCpSuQZB2jawqnGMEPS63ePKWkwWPH4TU45Q7LPXWuNd8TMtVxRrgjtEshuqpK3mdhaWHPFsBngh5GFZaM6si3yZdUsT8ddYM3PwnATt";

/// What the signer of a test does when it is asked.
#[derive(Clone, Copy, PartialEq)]
enum Does {
    Answer,
    HangUp,
    /// It says that its log does not contain the head that it once gave.
    Forget,
}

/// Somebody's signer on a socket: it has one group, and a log of seven entries.
struct Signer {
    does: Arc<Mutex<Does>>,
    watch: SignerWatch,
    _folder: tempfile::TempDir,
}

struct Counting(Mutex<u8>);

impl Entropy for Counting {
    fn fill(&self, bytes: &mut [u8]) -> std::io::Result<()> {
        let mut next = self.0.lock().unwrap();
        *next = next.wrapping_add(1);
        bytes.fill(*next);
        Ok(())
    }
}

fn answer(does: Does, request: &str) -> (u16, Value) {
    let head = json!({ "entries": 7, "hash": "ab".repeat(32), "proof": "cd".repeat(32) });
    if does == Does::Forget {
        let error = json!({ "code": "SIGNER_LOG_ROLLED_BACK", "message": "it ends before entry 7", "docs": "" });
        return (409, json!({ "error": error }));
    }
    if request.starts_with("POST /v1/head ") {
        return (200, json!({ "head": head }));
    }
    assert!(request.starts_with("GET /v1/groups "), "{request}");
    let path = "m/44'/60'/0'";
    let group =
        json!({ "id": "users", "purpose": "deposit", "chain": "evm", "account": 0, "path": path, "xpub": XPUB });
    (200, json!({ "groups": [group], "head": head }))
}

impl Signer {
    fn listen(clock: Arc<dyn Clock>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let does = Arc::new(Mutex::new(Does::Answer));
        let now = Arc::clone(&does);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut text = Vec::new();
                while !text.windows(4).any(|four| four == b"\r\n\r\n") {
                    let mut part = [0; 4096];
                    match stream.read(&mut part).await.unwrap() {
                        0 => break,
                        count => text.extend_from_slice(&part[..count]),
                    }
                }
                let does = *now.lock().unwrap();
                if does == Does::HangUp {
                    continue;
                }
                let (status, body) = answer(does, &String::from_utf8_lossy(&text));
                let body = body.to_string();
                let head =
                    format!("HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
                stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
            }
        });
        let credential = Credential { key: "server".parse().unwrap(), secret: KeySecret::new([9; 32]) };
        let settings = ClientSettings { deadline: Duration::from_millis(500), ..ClientSettings::default() };
        let entropy = Arc::new(Counting(Mutex::new(0)));
        let client = SignerClient::new(SignerPlace::unix(&path), credential, clock, entropy, settings, None);
        Self { does, watch: SignerWatch::new(client, "signer".to_owned()), _folder: folder }
    }
}

/// The group that the signer has, under this name.
fn pinning(name: &str) -> Pinned {
    let key = AccountKey::parse(XPUB, Family::Evm).unwrap();
    let mut pinned = Pinned::default();
    pinned.add_group(Group { id: name.parse().unwrap(), purpose: Purpose::Deposit, key }, true).unwrap();
    pinned
}

db_test! {
    async fn a_signer_that_is_away_for_long_or_wrong_at_all_is_told_and_over_when_it_is_right_again(db: TestDb) {
        let server = Server::with(db, Choice::default()).await;
        let hook = Hook::listen().await;
        let signer = Signer::listen(Arc::clone(&server.clock) as Arc<dyn Clock>);
        let Signer { does, watch, _folder } = signer;
        let (watch, right) = (Arc::new(watch), pinning("users"));
        let mut alerts = hook.alerts(&server).with_signer(Some(Arc::clone(&watch)));
        let look = async |pinned: &Pinned| watch.look(db, pinned, server.clock.now()).await.unwrap();
        // Not asked yet, and then good: there is nothing to tell.
        assert!(alerts.check().await.is_empty());
        assert_eq!(look(&right).await, SignerStanding::Agrees);
        assert!(alerts.check().await.is_empty() && watch.agrees());
        // Away. For ten seconds that is nobody's business, though nothing that depends on it is done.
        *does.lock().unwrap() = Does::HangUp;
        let since = server.clock.now();
        for _ in 0..2 {
            assert!(matches!(look(&right).await, SignerStanding::Away { .. }));
            assert!(alerts.check().await.is_empty() && !watch.agrees());
            server.pass(Duration::from_secs(4));
        }
        server.pass(Duration::from_secs(2));
        look(&right).await;
        alerts.check().await;
        let told = hook.told();
        assert_eq!(told.len(), 1, "{told:?}");
        let alert = &told[0]["alerts"][0];
        assert_eq!((&told[0]["status"], &alert["code"]), (&"alert".into(), &"SIGNER_UNAVAILABLE".into()));
        assert_eq!(alert["details"]["since"], since.to_string(), "since it went, not since it was asked last");
        *does.lock().unwrap() = Does::Answer;
        assert_eq!(look(&right).await, SignerStanding::Agrees);
        alerts.check().await;
        assert_eq!(hook.told()[0]["status"], "over");
        // Other keys, and an old log: at once.
        assert!(matches!(look(&pinning("others")).await, SignerStanding::Differs(_)));
        alerts.check().await;
        let told = hook.told();
        assert_eq!(told[0]["alerts"][0]["code"], "WALLET_GROUPS_DIFFER");
        assert!(!told[0].to_string().contains(XPUB), "{}", told[0]);
        *does.lock().unwrap() = Does::Forget;
        assert!(matches!(look(&right).await, SignerStanding::OldCopy { .. }));
        let found = alerts.check().await;
        let codes: Vec<&str> = found.iter().map(|alert| alert.code).collect();
        assert_eq!(codes, ["SIGNER_LOG_ROLLED_BACK"]);
        assert_eq!(hook.told()[0]["alerts"][0]["code"], "SIGNER_LOG_ROLLED_BACK");
        assert!(!watch.agrees());
    }
}
