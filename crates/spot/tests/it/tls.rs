//! The engine over TLS, with certificates that are made here. Whoever is not the engine that the client knows is told
//! apart before a token is shown, and nothing ever hangs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use domain::{ManualClock, Timestamp};
use spot::net::{Client, ClientError, ClientTls, ConnectionState, Credentials, Role, Server, ServerTls, Token};
use spot::service::Limits;
use spot::sim::FaultyDisk;
use spot::{Answer, Decision, Engine, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::common::{NOW, applied, create, deposit};

/// The year 2100. Certificates that are made now for a hundred years are good then, whenever now is.
const TODAY: Timestamp = Timestamp::from_micros(4_102_444_800_000_000);
/// The year 5000: they have expired by then.
const LATE: Timestamp = Timestamp::from_micros(95_617_584_000_000_000);

fn token() -> Token {
    Token::new("coordinator-of-the-tests").expect("long enough")
}

/// A certificate and its key in PEM form, made by the command that the documents name.
struct Pair {
    folder: tempfile::TempDir,
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Pair {
    fn make(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str| folder.path().join(name);
        let mut openssl = std::process::Command::new("openssl");
        openssl
            .args(["req", "-x509", "-newkey", "ed25519", "-nodes", "-days", "36500", "-subj", "/CN=spot", "-keyout"]);
        openssl.arg(file("key.pem")).arg("-out").arg(file("certificate.pem")).args(more);
        let made = openssl.output().expect("these tests need openssl");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let read = |name: &str| std::fs::read(file(name)).expect("it was made");
        let (certificate, key) = (read("certificate.pem"), read("key.pem"));
        Self { folder, certificate, key }
    }

    /// A certificate for an address, of this authority.
    fn issue(&self, address: &str) -> Self {
        let file = |name: &str| self.folder.path().join(name).to_str().expect("text").to_owned();
        let name = format!("subjectAltName=IP:{address}");
        let (certificate, key) = (file("certificate.pem"), file("key.pem"));
        Self::make(&["-CA", &certificate, "-CAkey", &key, "-addext", &name, "-addext", "basicConstraints=CA:FALSE"])
    }

    fn tls(&self) -> ServerTls {
        ServerTls::new(&self.certificate, &self.key).expect("a certificate and its key")
    }

    fn pin(&self) -> String {
        let file = self.folder.path().join("certificate.pem");
        let mut openssl = std::process::Command::new("openssl");
        openssl.args(["x509", "-noout", "-fingerprint", "-sha256", "-in"]).arg(file);
        let text = String::from_utf8(openssl.output().expect("these tests need openssl").stdout).expect("text");
        text.trim().rsplit('=').next().expect("a pin").to_owned()
    }

    /// How a client knows the engines of this authority.
    fn known(&self, now: Timestamp) -> ClientTls {
        ClientTls::authority(&self.certificate, Arc::new(ManualClock::at(now))).expect("an authority")
    }
}

fn pinned(pin: &str, now: Timestamp) -> ClientTls {
    ClientTls::pinned(pin, Arc::new(ManualClock::at(now))).expect("a pin")
}

async fn serve(tls: Option<ServerTls>) -> (Engine, SocketAddr, JoinHandle<()>) {
    let clock = Arc::new(ManualClock::at(NOW));
    let engine = Engine::start(create(&FaultyDisk::new(1)), Limits::default(), clock).expect("threads");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let server = Server::new(listener, engine.clone(), Credentials::one(Role::Coordinator, token()));
    let server = match tls {
        Some(tls) => server.with_tls(tls),
        None => server,
    };
    (engine, address, tokio::spawn(server.run()))
}

/// What the client makes of the engine there: an answer, or why it does not want to speak with it.
async fn meet(address: SocketAddr, tls: Option<ClientTls>) -> Result<Answer, ClientError> {
    let client = Client::start_with(tls, address, token(), 1, |_| Ok(()));
    timeout(Duration::from_secs(10), client.ask(deposit(1, 7, 500))).await.expect("no client hangs")
}

fn refused(words: &str) -> Result<Answer, ClientError> {
    Err(ClientError::Tls(words.to_owned()))
}

#[tokio::test]
async fn the_pinned_engine_is_spoken_with_and_no_other() {
    let (ours, theirs) = (Pair::make(&[]), Pair::make(&[]));
    let (engine, address, _server) = serve(Some(ours.tls())).await;
    let other = "the engine's certificate is not the pinned one";
    assert_eq!(meet(address, Some(pinned(&theirs.pin(), TODAY))).await, refused(other));
    assert_eq!(engine.counters().requests.load(Ordering::Relaxed), 0, "nothing was sent");
    let welcome = meet(address, Some(pinned(&ours.pin().replace(':', "").to_lowercase(), TODAY))).await;
    assert_eq!(welcome, Ok(Answer::First(Decision::Applied)));
    // A pin is about this one certificate, and not about its dates.
    assert_eq!(meet(address, Some(pinned(&ours.pin(), LATE))).await, Ok(Answer::Replay(Decision::Applied)));
}

#[tokio::test]
async fn an_authority_vouches_for_an_address_and_for_a_time() {
    let (ours, theirs) = (Pair::make(&[]), Pair::make(&[]));
    let (engine, address, _server) = serve(Some(ours.issue("127.0.0.1").tls())).await;
    let stranger = "the engine's certificate is not of the configured authority";
    assert_eq!(meet(address, Some(theirs.known(TODAY))).await, refused(stranger));
    assert_eq!(meet(address, Some(ours.known(LATE))).await, refused("the engine's certificate has expired"));
    let (moved, elsewhere, _server) = serve(Some(ours.issue("10.0.0.7").tls())).await;
    let not_there = "the engine's certificate is not for its address";
    assert_eq!(meet(elsewhere, Some(ours.known(TODAY))).await, refused(not_there));
    for engine in [&engine, &moved] {
        assert_eq!(engine.counters().requests.load(Ordering::Relaxed), 0, "nothing was sent");
    }
    assert_eq!(meet(address, Some(ours.known(TODAY))).await, Ok(Answer::First(Decision::Applied)));
}

#[tokio::test]
async fn a_side_with_tls_and_one_without_say_so_at_once() {
    let ours = Pair::make(&[]);
    let (engine, secure, _server) = serve(Some(ours.tls())).await;
    let words = "the engine speaks TLS, and this side does not: name its certificate or authority";
    assert_eq!(meet(secure, None).await, refused(words));
    let (other, plain, _server) = serve(None).await;
    let words = "whoever listens there does not speak TLS";
    assert_eq!(meet(plain, Some(pinned(&ours.pin(), TODAY))).await, refused(words));
    for engine in [&engine, &other] {
        assert_eq!(engine.counters().requests.load(Ordering::Relaxed), 0, "nothing was sent");
    }
}

/// A listener that accepts and says nothing, and one that hangs up: the client says that the engine is away, and goes on.
#[tokio::test]
async fn silence_instead_of_a_handshake_is_no_rejection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let ours = Pair::make(&[]);
    let client = Client::start_with(Some(pinned(&ours.pin(), TODAY)), address, token(), 1, |_| Ok(()));
    let (silent, _) = listener.accept().await.expect("it connects");
    let mut state = client.state();
    let away = state.wait_for(|state| matches!(state, ConnectionState::Away(_)));
    drop(timeout(Duration::from_secs(20), away).await.expect("it does not wait for ever").expect("the client lives"));
    drop(silent);
    let (gone, _) = listener.accept().await.expect("it connects again");
    drop(gone);
    drop(listener.accept().await.expect("and again"));
    assert!(matches!(*client.state().borrow(), ConnectionState::Away(_)));
}

#[tokio::test]
async fn a_client_that_never_ends_its_handshake_stalls_only_itself() {
    let ours = Pair::make(&[]);
    let (_engine, address, _server) = serve(Some(ours.tls())).await;
    let mut idle = TcpStream::connect(address).await.expect("connected");
    idle.write_all(&[0x16, 0x03, 0x01]).await.expect("the first bytes of a hello");
    assert_eq!(meet(address, Some(pinned(&ours.pin(), TODAY))).await, Ok(Answer::First(Decision::Applied)));
    let mut rest = Vec::new();
    timeout(Duration::from_secs(20), idle.read_to_end(&mut rest)).await.expect("it is dropped").ok();
}

/// Large frames both ways: everything that TLS holds back in its buffers arrives in the end.
#[tokio::test]
async fn large_submissions_come_through_tls_whole() {
    let ours = Pair::make(&[]);
    let (_engine, address, _server) = serve(Some(ours.tls())).await;
    let client = Client::start_with(Some(pinned(&ours.pin(), TODAY)), address, token(), 1, |_| Ok(()));
    let tasks: Vec<_> = (0..8_i64)
        .map(|task| {
            let client = client.clone();
            tokio::spawn(async move {
                let requests: Vec<Request> =
                    (0..4_000).map(|number| deposit(task * 4_000 + number, task + 1, 1).into()).collect();
                assert_eq!(client.submit(&requests).await, Ok(applied(4_000)));
            })
        })
        .collect();
    for task in tasks {
        timeout(Duration::from_secs(60), task).await.expect("in time").expect("no panic");
    }
    let total = client.ask(Request::Total(domain::AssetId(1))).await;
    assert_eq!(total.map(|answer| format!("{answer:?}")), Ok("Total(Amount(32000))".into()));
}

#[test]
fn what_is_no_certificate_and_no_key_is_refused() {
    let (ours, theirs) = (Pair::make(&[]), Pair::make(&[]));
    let made = |certificate: &[u8], key: &[u8]| ServerTls::new(certificate, key).err().map(|error| error.to_string());
    assert_eq!(made(&ours.certificate, &ours.key), None);
    assert!(made(&ours.key, &ours.key).is_some_and(|words| words.contains("no certificate")));
    assert!(made(&ours.certificate, &ours.certificate).is_some_and(|words| words.contains("no private key")));
    assert!(made(&ours.certificate, &theirs.key).is_some_and(|words| words.contains("cannot be used")));
    assert!(ClientTls::authority(b"nothing", Arc::new(ManualClock::at(TODAY))).is_err());
    assert!(ClientTls::pinned("12:34", Arc::new(ManualClock::at(TODAY))).is_err());
}
