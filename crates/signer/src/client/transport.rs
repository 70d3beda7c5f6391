//! How a signer is reached, and whether what it answers fits what it was asked.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use domain::Clock;
use http_body_util::Full;
use hyper::Uri;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::crypto::ring as provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::time_provider::TimeProvider;
use tokio_rustls::rustls::version::TLS13;
use tx::{Address, Meaning, TxHash};

use super::{SignAnswer, SignerError};
use crate::approved::{Signed, SignerChain};
use crate::digest::unhex;
use crate::intent::SignRequest;
use crate::service::listen::{ListenError, certificates, roots};
use crate::wire::AnswerBody;

pub(super) type Connection = http1::SendRequest<Full<Bytes>>;

/// Where a signer is.
#[derive(Clone)]
pub struct SignerPlace(Kind);

#[derive(Clone)]
enum Kind {
    Unix(PathBuf),
    Tls { host: String, port: u16, name: ServerName<'static>, connector: TlsConnector },
}

/// The injected clock, as rustls wants it.
struct Time(Arc<dyn Clock>);

impl TimeProvider for Time {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.0.now().micros() / 1_000_000).ok()?;
        Some(UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds)))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Time")
    }
}

impl SignerPlace {
    pub fn unix(path: &Path) -> Self {
        Self(Kind::Unix(path.to_owned()))
    }

    /// `https://host:port`. The authority, in PEM form, issued the signer's certificate for this host; `own` is this client's certificate and its
    /// key, if the signer wants one.
    pub fn tls(
        url: &str,
        authority: &[u8],
        own: Option<(&[u8], &[u8])>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ListenError> {
        let bad = ListenError::Tls("a signer's address is https://host:port");
        let Ok(uri) = url.parse::<Uri>() else { return Err(bad) };
        let (Some("https"), Some(host), Some(port), "/") = (uri.scheme_str(), uri.host(), uri.port_u16(), uri.path())
        else {
            return Err(bad);
        };
        let host = host.trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(host.clone()).map_err(|_| bad)?;
        let roots = roots(authority).ok_or(ListenError::Tls("there is no certificate of an authority in PEM form"))?;
        let builder = ClientConfig::builder_with_details(Arc::new(provider::default_provider()), Arc::new(Time(clock)));
        let builder =
            builder.with_protocol_versions(&[&TLS13]).map_err(|_| ListenError::Tls("TLS 1.3 is not there"))?;
        let builder = builder.with_root_certificates(roots);
        let config = match own {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let bad = |_| ListenError::Tls("the client's own certificate or key cannot be used");
                let chain = certificates(certificate).ok_or(ListenError::Tls("there is no certificate in PEM form"))?;
                let key = PrivateKeyDer::from_pem_slice(key);
                let key = key.map_err(|_| ListenError::Tls("there is no key in PEM form"))?;
                builder.with_client_auth_cert(chain, key).map_err(bad)?
            }
        };
        Ok(Self(Kind::Tls { host, port, name, connector: TlsConnector::from(Arc::new(config)) }))
    }

    pub(super) async fn connect(&self) -> io::Result<Connection> {
        match &self.0 {
            Kind::Unix(path) => speak(UnixStream::connect(path).await?).await,
            Kind::Tls { host, port, name, connector } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                speak(connector.connect(name.clone(), stream).await?).await
            }
        }
    }
}

async fn speak<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S) -> io::Result<Connection> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to the signer ended badly");
        }
    });
    Ok(sender)
}

/// The answers, if they are to these requests: the same ids in the same order, and bytes that do what each payload does.
pub(super) fn fit(requests: &[SignRequest], answers: Vec<AnswerBody>) -> Result<Vec<SignAnswer>, SignerError> {
    let wrong = |why| SignerError::WrongAnswer { why };
    if answers.len() != requests.len() {
        return Err(wrong("another number of answers than of requests"));
    }
    let mut fitting = Vec::with_capacity(answers.len());
    for (request, answer) in requests.iter().zip(answers) {
        if answer.id != request.id {
            return Err(wrong("an answer is to another request"));
        }
        let AnswerBody { signed_tx, tx_hash, refused, policy, rule, .. } = answer;
        fitting.push(match (signed_tx, tx_hash, refused) {
            (Some(bytes), Some(hash), None) => {
                let (signed, from) =
                    read_signed(request, &bytes, &hash).ok_or(wrong("the bytes are not what was asked for"))?;
                SignAnswer::Signed { signed, from, policy, rule }
            }
            (None, None, Some(refused)) => SignAnswer::Refused {
                code: refused.code,
                message: refused.message,
                signed_before: refused.signed_before,
                holder: refused.holder,
                policy,
                rule,
            },
            _ => return Err(wrong("neither signed nor refused")),
        });
    }
    Ok(fitting)
}

/// The bytes, if they pay what the payload pays, in its slot, and have this hash.
fn read_signed(request: &SignRequest, bytes: &str, hash: &str) -> Option<(Signed, Option<Address>)> {
    let bytes = unhex(bytes.strip_prefix("0x").unwrap_or(bytes))?;
    let hash: TxHash = hash.strip_prefix("0x").unwrap_or(hash).parse().ok()?;
    let chain = request.intents.first()?.network;
    let (asked, signed) = meanings(chain, &request.payload, &bytes)?;
    // On Bitcoin the fee follows from inputs and payments.
    let same_fee = asked.fee == signed.fee || matches!(chain, SignerChain::Bitcoin(_));
    let same = asked.payments == signed.payments && asked.slot == signed.slot && same_fee;
    // TRON's bytes say who pays. On the other chains that follows from the signatures, and whoever knows the wallet's address compares it.
    let same = same && (asked.from.is_none() || asked.from == signed.from);
    let same = same && signed.hash == Some(hash);
    same.then_some((Signed { bytes, hash }, signed.from))
}

fn meanings(chain: SignerChain, payload: &[u8], bytes: &[u8]) -> Option<(Meaning, Meaning)> {
    match chain {
        SignerChain::Evm { chain_id } => {
            Some((tx::evm::decode_unsigned(payload, chain_id).ok()?, tx::evm::decode_signed(bytes, chain_id).ok()?))
        }
        SignerChain::Tron => Some((
            tx::tron::transaction::decode_unsigned(payload).ok()?,
            tx::tron::transaction::decode_signed(bytes).ok()?,
        )),
        SignerChain::Bitcoin(network) => Some((
            tx::bitcoin::decode_unsigned(payload, network).ok()?,
            tx::bitcoin::decode_signed(bytes, network).ok()?,
        )),
    }
}
