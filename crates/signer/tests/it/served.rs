//! A signer that is served on a socket, with keys of the words that everybody knows, and clients of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use domain::{Clock, Timestamp};
use signer::access::{ApiKey, ApiKeys, Credential, KeySecret, Rights};
use signer::client::transport::SignerPlace;
use signer::client::{ClientSettings, SignAnswer, SignerClient};
use signer::digest::sha256;
use signer::keys::{Entropy, Keyring, Purpose};
use signer::service::listen::Listener;
use signer::service::{Limits, Service, Standing};
use signer::wire::HeadBody;
use signer::{Authorizer, Moment, MomentClock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::faulty::FaultyFolder;
use crate::keystore::seeded;
use crate::made::{JUNK, secret};
use crate::world::*;

/// The time of the service and of its clients, which a test sets.
#[derive(Default)]
pub struct TestTime {
    micros: AtomicI64,
}

impl TestTime {
    pub fn set(&self, micros: i64) {
        self.micros.store(micros, Ordering::Relaxed);
    }
}

impl MomentClock for TestTime {
    fn moment(&self) -> Moment {
        after(self.micros.load(Ordering::Relaxed))
    }
}

impl Clock for TestTime {
    fn now(&self) -> Timestamp {
        self.moment().date
    }
}

/// All groups of the world's policy.
pub fn keyring() -> Keyring {
    let mut secrets = Vec::new();
    for (number, purpose) in Purpose::ALL.into_iter().enumerate() {
        for (name, chain) in [("bsc", "evm"), ("tron", "tron"), ("btc", "bitcoin-regtest")] {
            let name = format!("{}-{name}", purpose.as_str());
            secrets.push(secret(&name, purpose, chain, u32::try_from(number).unwrap(), JUNK));
        }
    }
    Keyring::of(secrets).unwrap()
}

pub fn credential(name: &str) -> Credential {
    Credential { key: name.parse().unwrap(), secret: KeySecret::new(sha256(name.as_bytes())) }
}

/// `server` signs for every group but the treasury's, `hot` for one; the others have one right each.
pub fn api_keys() -> ApiKeys {
    let mut keys = ApiKeys::default();
    let groups = |names: &[&str]| names.iter().map(|name| group(name)).collect();
    let server =
        ["hot-bsc", "hot-tron", "hot-btc", "gas-bsc", "gas-tron", "deposit-bsc", "deposit-tron", "deposit-btc"];
    for (name, rights) in [
        ("server", Rights { sign: groups(&server), derive: true, read: true, administer: false }),
        ("hot", Rights { sign: groups(&["hot-bsc"]), ..Rights::default() }),
        ("deriver", Rights { derive: true, ..Rights::default() }),
        ("reader", Rights { read: true, ..Rights::default() }),
        ("admin", Rights { administer: true, ..Rights::default() }),
    ] {
        keys.add(name.parse().unwrap(), ApiKey { secret: credential(name).secret, rights }).unwrap();
    }
    keys
}

pub const QUICK: ClientSettings = ClientSettings {
    deadline: Duration::from_secs(5),
    try_time: Duration::from_secs(2),
    pause: Duration::from_millis(5),
    idle: 4,
};

/// Each client has nonces of its own.
pub fn nonces() -> Arc<dyn Entropy> {
    static CLIENTS: AtomicI64 = AtomicI64::new(1);
    seeded(CLIENTS.fetch_add(1, Ordering::Relaxed).cast_unsigned() << 32)
}

pub struct Served {
    pub service: Service,
    pub time: Arc<TestTime>,
    pub socket: PathBuf,
    folder: tempfile::TempDir,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
}

impl Served {
    /// On a disk with the first policy.
    pub fn new(limits: Limits) -> (Self, FaultyFolder) {
        let (authorizer, disk) = signer();
        (Self::of(authorizer, limits), disk)
    }

    pub fn of(authorizer: Authorizer<FaultyFolder>, limits: Limits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let time = Arc::new(TestTime::default());
        let clock: Arc<TestTime> = Arc::clone(&time);
        let service = Service::start(authorizer, Arc::new(keyring()), api_keys(), clock, limits).unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let listener = Listener::unix(&socket).unwrap();
        let serving = tokio::spawn({
            let service = service.clone();
            async move {
                service
                    .serve(listener, async {
                        stopped.await.ok();
                    })
                    .await;
            }
        });
        Self { service, time, socket, folder, stop: Some(stop), serving }
    }

    pub fn client(&self, name: &str) -> SignerClient {
        self.client_with(name, QUICK, None)
    }

    pub fn client_with(&self, name: &str, settings: ClientSettings, pinned: Option<HeadBody>) -> SignerClient {
        let clock: Arc<TestTime> = Arc::clone(&self.time);
        SignerClient::new(SignerPlace::unix(&self.socket), credential(name), clock, nonces(), settings, pinned)
    }

    /// Sends bytes as they are, and gives what comes back until the other side closes, or half a second is over.
    pub async fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = UnixStream::connect(&self.socket).await.unwrap();
        // A service that has answered and closed need not have read all.
        stream.write_all(bytes).await.ok();
        let mut answer = Vec::new();
        let read = async {
            let mut piece = [0; 4_096];
            while let Ok(count @ 1..) = stream.read(&mut piece).await {
                answer.extend_from_slice(&piece[..count]);
            }
        };
        tokio::time::timeout(Duration::from_millis(500), read).await.ok();
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// One request with a stamp, whatever it says.
    pub async fn send(&self, line: &str, stamp: Option<&str>, body: &[u8]) -> (u16, String) {
        let stamp = stamp.map(|stamp| format!("authorization: {stamp}\r\n")).unwrap_or_default();
        let head = format!(
            "{line} HTTP/1.1\r\nhost: signer\r\nconnection: close\r\ncontent-type: application/json\r\n{stamp}content-length: {}\r\n\r\n",
            body.len()
        );
        let answer = self.raw(&[head.as_bytes(), body].concat()).await;
        let status = answer.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
        (status, answer)
    }

    pub async fn stop(mut self) -> Standing {
        self.stop.take().unwrap().send(()).unwrap();
        (&mut self.serving).await.unwrap();
        let standing = self.service.stop().await;
        drop(self.folder);
        standing
    }
}

#[track_caller]
pub fn bytes_of(answer: &SignAnswer) -> Vec<u8> {
    match answer {
        SignAnswer::Signed { signed, .. } => signed.bytes.clone(),
        SignAnswer::Refused { code, message, .. } => panic!("{code}: {message}"),
    }
}

#[track_caller]
pub fn code_of(answer: &SignAnswer) -> String {
    match answer {
        SignAnswer::Signed { rule, .. } => panic!("signed by {rule}"),
        SignAnswer::Refused { code, .. } => code.clone(),
    }
}
