//! Connections: on a unix socket that only its owner may use, or by TLS 1.3 on TCP. Plain TCP is not spoken. Their number is bounded, in all and by TCP
//! for each address; each has limited time to send its request, and when the service stops those that are open may finish what they began.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulConnection, GracefulShutdown};
use rustix::fs::Mode;
use rustix::net::sockopt::set_tcp_user_timeout;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring as provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use super::Service;

/// The longest headers of a request.
const HEADER_BYTES: usize = 16 << 10;
/// A client that takes nothing of its answer for so long is gone.
const UNREAD_MS: u32 = 30_000;
/// Nobody has shown a certificate or a key yet who is not through the handshake of TLS: whoever is silent gives the place back soon.
const HANDSHAKE_TIME: Duration = Duration::from_secs(5);
/// How many may wait to be accepted.
const BACKLOG: i32 = 1_024;

#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("{path} cannot be listened on")]
    Socket { path: String, source: io::Error },
    #[error("{path} is no place for a socket: {why}")]
    Place { path: String, why: &'static str },
    #[error("{address} cannot be listened on")]
    Address { address: SocketAddr, source: io::Error },
    #[error("TLS cannot be spoken: {0}")]
    Tls(&'static str),
}

impl ListenError {
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Socket { .. } | Self::Place { .. } | Self::Address { .. } => "SIGNER_LISTEN_FAILED",
            Self::Tls(_) => "SIGNER_TLS_INVALID",
        }
    }
}

/// The signer's certificate and its key, and whose clients' certificates are wanted.
#[derive(Clone)]
pub struct ServerTls(TlsAcceptor);

pub(crate) fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    found.ok().filter(|found| !found.is_empty())
}

pub(crate) fn roots(pem: &[u8]) -> Option<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem)? {
        roots.add(certificate).ok()?;
    }
    Some(roots)
}

impl ServerTls {
    /// All in PEM form. With an authority only clients with a certificate of it are spoken to, and they need a key of the service all the same.
    pub fn new(certificate: &[u8], key: &[u8], clients: Option<&[u8]>) -> Result<Self, ListenError> {
        let chain = certificates(certificate).ok_or(ListenError::Tls("there is no certificate in PEM form"))?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| ListenError::Tls("there is no key in PEM form"))?;
        let provider = Arc::new(provider::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder =
            builder.with_protocol_versions(&[&TLS13]).map_err(|_| ListenError::Tls("TLS 1.3 is not there"))?;
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let bad = ListenError::Tls("there is no certificate of an authority for clients in PEM form");
                let roots = roots(pem).ok_or(bad)?;
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                let unusable = |_| ListenError::Tls("the authority for clients cannot be used");
                builder.with_client_cert_verifier(verifier.map_err(unusable)?)
            }
        };
        let config = builder.with_single_cert(chain, key);
        let config = config.map_err(|_| ListenError::Tls("the key is not that of the certificate"))?;
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }
}

/// Where the service listens.
pub enum Listener {
    Unix { listener: UnixListener, path: PathBuf },
    Tls { listener: TcpListener, tls: ServerTls },
}

impl Listener {
    /// A socket that only its owner may use, in a folder that nobody else may write to: else another could put a socket of
    /// their own in its place, and be sent what people approved.
    pub fn unix(path: &Path) -> Result<Self, ListenError> {
        let place = |why| ListenError::Place { path: path.display().to_string(), why };
        let failed = |source| ListenError::Socket { path: path.display().to_string(), source };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let metadata = fs::metadata(folder).map_err(failed)?;
        let own = rustix::process::geteuid().as_raw();
        if metadata.mode() & 0o022 != 0 || (metadata.uid() != own && metadata.uid() != 0) {
            return Err(place("others may write to its folder"));
        }
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
            Ok(found) if !found.file_type().is_socket() => return Err(place("there is a file of this name")),
            // What a signer left that was killed.
            Ok(_) => match std::os::unix::net::UnixStream::connect(path) {
                Ok(_) => return Err(place("somebody listens there already")),
                Err(_) => fs::remove_file(path).map_err(failed)?,
            },
        }
        let bound = || -> io::Result<UnixListener> {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket: OwnedFd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
            // Before anybody can connect.
            rustix::fs::chmod(path, Mode::RUSR | Mode::WUSR)?;
            rustix::net::listen(&socket, BACKLOG)?;
            UnixListener::from_std(std::os::unix::net::UnixListener::from(socket))
        };
        Ok(Self::Unix { listener: bound().map_err(failed)?, path: path.to_owned() })
    }

    pub async fn tls(address: SocketAddr, tls: ServerTls) -> Result<Self, ListenError> {
        let listener = TcpListener::bind(address).await.map_err(|source| ListenError::Address { address, source })?;
        Ok(Self::Tls { listener, tls })
    }

    /// As clients name it.
    pub fn shown(&self) -> String {
        match self {
            Self::Unix { path, .. } => path.display().to_string(),
            Self::Tls { listener, .. } => {
                listener.local_addr().map_or_else(|_| "https://?".to_owned(), |address| format!("https://{address}"))
            }
        }
    }

    async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Unix { listener, .. } => Ok(Accepted::Unix(listener.accept().await?.0)),
            Self::Tls { listener, tls } => {
                let (stream, peer) = listener.accept().await?;
                Ok(Accepted::Tls(stream, peer.ip(), tls.clone()))
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix { path, .. } = self
            && let Err(error) = fs::remove_file(&*path)
        {
            tracing::debug!(%error, "the socket was gone already");
        }
    }
}

enum Accepted {
    Unix(UnixStream),
    Tls(TcpStream, IpAddr, ServerTls),
}

/// The connections of each address, so that one cannot take all.
struct Addresses {
    most: usize,
    open: Mutex<BTreeMap<IpAddr, usize>>,
}

/// One connection's place among those of its address, given back when it is dropped.
struct Place {
    of: Arc<Addresses>,
    address: IpAddr,
}

impl Addresses {
    /// Three quarters of all are room for one machine with all of its workers, and leave some for another.
    fn new(connections: usize) -> Arc<Self> {
        Arc::new(Self { most: connections - connections / 4, open: Mutex::default() })
    }

    /// `None`: the address has too many.
    fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let address = household(address);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(address).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(Place { of: Arc::clone(self), address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.of.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.address);
            }
        }
    }
}

/// Whoever has one address of IPv6 has the 2^64 that begin like it.
fn household(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
    }
}

impl Service {
    /// Serves until `stop` is done, then takes no more connections and lets the open ones finish what they began.
    pub async fn serve(&self, listener: Listener, stop: impl Future<Output = ()>) {
        let limits = self.0.limits;
        let room = Arc::new(Semaphore::new(limits.connections));
        let addresses = Addresses::new(limits.connections);
        let graceful = GracefulShutdown::new();
        tokio::pin!(stop);
        loop {
            let permit = tokio::select! {
                permit = Arc::clone(&room).acquire_owned() => permit,
                () = &mut stop => break,
            };
            let Ok(permit) = permit else { break };
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = &mut stop => break,
            };
            let accepted = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, say: others may close soon.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let place = match &accepted {
                Accepted::Unix(_) => None,
                Accepted::Tls(_, peer, _) => {
                    let Some(place) = addresses.enter(*peer) else {
                        tracing::debug!(%peer, "an address has too many connections: one more is closed");
                        continue;
                    };
                    Some(place)
                }
            };
            let (service, watcher) = (self.clone(), graceful.watcher());
            tokio::spawn(async move {
                let counts = Arc::clone(&service.0.counts);
                counts.connections.fetch_add(1, Ordering::Relaxed);
                match accepted {
                    Accepted::Unix(stream) => watcher.watch(service.connection(stream)).await.unwrap_or_else(ended),
                    Accepted::Tls(stream, _, tls) => {
                        if let Some(stream) = handshake(stream, &tls, limits.header_time.min(HANDSHAKE_TIME)).await {
                            watcher.watch(service.connection(stream)).await.unwrap_or_else(ended);
                        }
                    }
                }
                counts.connections.fetch_sub(1, Ordering::Relaxed);
                drop((permit, place));
            });
        }
        drop(listener);
        self.begin_stop();
        if tokio::time::timeout(limits.drain, graceful.shutdown()).await.is_err() {
            tracing::warn!("some requests did not end in time");
        }
    }

    fn connection<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        stream: S,
    ) -> impl GracefulConnection<Error = hyper::Error> + use<S> {
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(self.0.limits.header_time).max_buf_size(HEADER_BYTES);
        let service = self.clone();
        let handler = service_fn(move |request| {
            let service = service.clone();
            async move { Ok::<_, std::convert::Infallible>(service.answer(request).await) }
        });
        builder.serve_connection(TokioIo::new(stream), handler)
    }
}

fn ended(error: hyper::Error) {
    tracing::debug!(%error, "a connection ended badly");
}

async fn handshake(
    stream: TcpStream,
    tls: &ServerTls,
    time: Duration,
) -> Option<tokio_rustls::server::TlsStream<TcpStream>> {
    let set = stream.set_nodelay(true).and_then(|()| Ok(set_tcp_user_timeout(&stream, UNREAD_MS)?));
    if let Err(error) = set {
        tracing::debug!(%error, "small answers may be late, and silent clients stay");
    }
    match tokio::time::timeout(time, tls.0.accept(stream)).await {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(error)) => {
            tracing::debug!(%error, "no TLS was spoken");
            None
        }
        Err(_) => None,
    }
}
