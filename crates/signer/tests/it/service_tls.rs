//! The service by TLS, with certificates that openssl makes: who is not the signer is not spoken to, nor who is no client of ours.

use std::sync::Arc;

use domain::ManualClock;
use domain::Timestamp;
use signer::client::transport::SignerPlace;
use signer::client::{ClientSettings, SignerClient, SignerError};
use signer::service::listen::{ListenError, Listener, ServerTls};
use signer::service::{Limits, Service};

use crate::served::*;
use crate::world::*;

/// A certificate and its key in PEM form.
struct Pair {
    folder: tempfile::TempDir,
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Pair {
    fn make(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let mut openssl = std::process::Command::new("openssl");
        openssl.args([
            "req",
            "-x509",
            "-newkey",
            "ed25519",
            "-nodes",
            "-days",
            "36500",
            "-subj",
            "/CN=signer",
            "-keyout",
        ]);
        openssl.arg(file("key.pem")).arg("-out").arg(file("certificate.pem")).args(more);
        let made = openssl.output().expect("these tests need openssl");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let read = |name: &str| std::fs::read(file(name)).unwrap();
        let (certificate, key) = (read("certificate.pem"), read("key.pem"));
        Self { folder, certificate, key }
    }

    /// A certificate of this authority.
    fn issue(&self, extension: &str) -> Self {
        let file = |name: &str| self.folder.path().join(name).to_str().unwrap().to_owned();
        let (certificate, key) = (file("certificate.pem"), file("key.pem"));
        Self::make(&["-CA", &certificate, "-CAkey", &key, "-addext", extension, "-addext", "basicConstraints=CA:FALSE"])
    }
}

const ADDRESS: &str = "subjectAltName=IP:127.0.0.1";

struct Secure {
    url: String,
    service: Service,
}

impl Secure {
    async fn new(tls: ServerTls) -> Self {
        Self::with(tls, Limits::default()).await
    }

    async fn with(tls: ServerTls, limits: Limits) -> Self {
        let (authorizer, _) = signer();
        let time = Arc::new(TestTime::default());
        let service = Service::start(authorizer, Arc::new(keyring()), api_keys(), time, limits).unwrap();
        let listener = Listener::tls("127.0.0.1:0".parse().unwrap(), tls).await.unwrap();
        let url = listener.shown();
        let serving = service.clone();
        tokio::spawn(async move { serving.serve(listener, std::future::pending()).await });
        Self { url, service }
    }

    async fn ask(&self, authority: &[u8], own: Option<(&[u8], &[u8])>) -> Result<usize, SignerError> {
        // The service's time is the world's; certificates are made today and good for a hundred years.
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(4_102_444_800_000_000)));
        let place = SignerPlace::tls(&self.url, authority, own, clock).unwrap();
        let settings = ClientSettings { deadline: std::time::Duration::from_millis(1_500), ..QUICK };
        let time = Arc::new(TestTime::default());
        let client = SignerClient::new(place, credential("server"), time, nonces(), settings, None);
        Ok(client.sign(&[evm(1, 1, 900).request("a")]).await?.len())
    }
}

#[track_caller]
fn not_spoken_to(answer: Result<usize, SignerError>) {
    let error = answer.unwrap_err();
    assert!(matches!(error, SignerError::Unavailable { .. } | SignerError::Unknown { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_spoken_with_the_signer_and_nobody_else() {
    let (authority, stranger) = (Pair::make(&[]), Pair::make(&[]));
    let own = authority.issue(ADDRESS);
    let secure = Secure::new(ServerTls::new(&own.certificate, &own.key, None).unwrap()).await;
    assert_eq!(secure.ask(&authority.certificate, None).await, Ok(1));
    not_spoken_to(secure.ask(&stranger.certificate, None).await);
    let elsewhere = authority.issue("subjectAltName=IP:127.0.0.9");
    let secure = Secure::new(ServerTls::new(&elsewhere.certificate, &elsewhere.key, None).unwrap()).await;
    not_spoken_to(secure.ask(&authority.certificate, None).await);
    assert_eq!(secure.service.head().entries, 1, "nothing was decided");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_clients_need_a_certificate_a_key_alone_opens_nothing() {
    let (authority, others) = (Pair::make(&[]), Pair::make(&[]));
    let own = authority.issue(ADDRESS);
    let tls = ServerTls::new(&own.certificate, &own.key, Some(&authority.certificate)).unwrap();
    let secure = Secure::new(tls).await;
    not_spoken_to(secure.ask(&authority.certificate, None).await);
    let forged = others.issue("subjectAltName=DNS:client");
    not_spoken_to(secure.ask(&authority.certificate, Some((&forged.certificate, &forged.key))).await);
    assert_eq!(secure.service.head().entries, 1, "nothing was decided");
    let client = authority.issue("subjectAltName=DNS:client");
    assert_eq!(secure.ask(&authority.certificate, Some((&client.certificate, &client.key))).await, Ok(1));
}

/// Whoever has no key and says nothing keeps nobody else from the signer, and gives the place back soon.
#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_silent_does_not_keep_another_out() {
    use tokio::io::AsyncReadExt;
    let authority = Pair::make(&[]);
    let own = authority.issue(ADDRESS);
    let limits = Limits { connections: 4, header_time: std::time::Duration::from_secs(60), ..Limits::default() };
    let secure = Secure::with(ServerTls::new(&own.certificate, &own.key, None).unwrap(), limits).await;
    let place = secure.url.trim_start_matches("https://").parse().unwrap();
    let mut silent = Vec::new();
    for _ in 0..16 {
        // Loopback has more addresses than one.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        silent.push(socket.connect(place).await.unwrap());
    }
    assert_eq!(secure.ask(&authority.certificate, None).await, Ok(1));
    // A handshake that does not come is not waited for as long as a request.
    for mut stream in silent {
        let ended = tokio::time::timeout(std::time::Duration::from_secs(20), stream.read(&mut [0])).await;
        assert!(!matches!(ended.expect("its time is over"), Ok(read) if read > 0), "nothing is said to it");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_http_gets_no_answer_from_a_tls_listener() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let authority = Pair::make(&[]);
    let own = authority.issue(ADDRESS);
    let secure = Secure::new(ServerTls::new(&own.certificate, &own.key, None).unwrap()).await;
    let mut stream = tokio::net::TcpStream::connect(secure.url.trim_start_matches("https://")).await.unwrap();
    stream.write_all(b"GET /health/live HTTP/1.1\r\nhost: s\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.ok();
    assert!(!answer.starts_with(b"HTTP"), "{}", String::from_utf8_lossy(&answer));
    let clock = || Arc::new(ManualClock::at(Timestamp::from_micros(NOW)));
    for url in ["http://127.0.0.1:1", "127.0.0.1:1", "https://127.0.0.1", "https://127.0.0.1:1/path"] {
        let place = SignerPlace::tls(url, &authority.certificate, None, clock());
        assert!(matches!(place, Err(ListenError::Tls(_))), "{url}");
    }
    assert!(matches!(ServerTls::new(b"", &own.key, None), Err(ListenError::Tls(_))));
    assert!(matches!(ServerTls::new(&own.certificate, b"", None), Err(ListenError::Tls(_))));
    assert!(matches!(ServerTls::new(&own.certificate, &authority.key, None), Err(ListenError::Tls(_))));
}
