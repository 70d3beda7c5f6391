//! TLS 1.3 between a client and an engine on another machine. The engine has a certificate; the client knows it by its
//! pin, or trusts the authority that issued it for the engine's address. Who the client is, its token says.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use domain::Clock;
use ring::digest;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::rustls::client::WantsClientCert;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, ring as provider, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::time_provider::TimeProvider;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, InvalidMessage, RootCertStore,
    ServerConfig, SignatureScheme, WantsVerifier,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// The two directions of a connection, with TLS or without.
pub(super) type Reader = Box<dyn AsyncRead + Send + Unpin>;
pub(super) type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// What is wrong with a certificate, a key or a pin.
#[derive(Debug, thiserror::Error)]
pub enum BadTls {
    #[error("there is no certificate in PEM form in it")]
    NoCertificate,
    #[error("there is no private key in PEM form in it")]
    NoKey,
    #[error("a pin is the SHA-256 of the engine's certificate: 64 hexadecimal digits, with colons or without")]
    Pin,
    #[error("it cannot be used: {0}")]
    Unusable(#[from] Error),
}

/// The engine's certificate and its key.
#[derive(Clone)]
pub struct ServerTls(TlsAcceptor);

impl ServerTls {
    /// Both in PEM form. Certificates of authorities in between follow the engine's own.
    pub fn new(certificate: &[u8], key: &[u8]) -> Result<Self, BadTls> {
        let certificates = certificates(certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| BadTls::NoKey)?;
        let builder = ServerConfig::builder_with_provider(Arc::new(provider::default_provider()));
        let builder = builder.with_protocol_versions(&[&TLS13])?.with_no_client_auth();
        Ok(Self(TlsAcceptor::from(Arc::new(builder.with_single_cert(certificates, key)?))))
    }

    pub(super) async fn accept(&self, stream: TcpStream) -> io::Result<(Reader, Writer)> {
        let (reader, writer) = tokio::io::split(self.0.accept(stream).await?);
        Ok((Box::new(reader), Box::new(writer)))
    }
}

/// How a client knows its engine.
#[derive(Clone)]
pub struct ClientTls(TlsConnector);

impl ClientTls {
    /// A certificate that one of these authorities (PEM) issued for the engine's IP address, and that has not expired.
    pub fn authority(authorities: &[u8], clock: Arc<dyn Clock>) -> Result<Self, BadTls> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(authorities)? {
            roots.add(certificate)?;
        }
        Ok(Self::of(builder(clock)?.with_root_certificates(roots)))
    }

    /// The one certificate with this SHA-256, until the pin is changed: no date in it counts.
    pub fn pinned(pin: &str, clock: Arc<dyn Clock>) -> Result<Self, BadTls> {
        let sha256 = parse_pin(pin).ok_or(BadTls::Pin)?;
        let algorithms = provider::default_provider().signature_verification_algorithms;
        let verifier = Arc::new(Pinned { sha256, algorithms });
        Ok(Self::of(builder(clock)?.dangerous().with_custom_certificate_verifier(verifier)))
    }

    fn of(builder: ConfigBuilder<ClientConfig, WantsClientCert>) -> Self {
        Self(TlsConnector::from(Arc::new(builder.with_no_client_auth())))
    }

    /// `Err(Ok(words))`: the other side is not the engine that is wanted. `Err(Err(_))`: the connection broke.
    pub(super) async fn connect(
        &self,
        address: SocketAddr,
        stream: TcpStream,
    ) -> Result<(Reader, Writer), Result<String, io::Error>> {
        let name = ServerName::IpAddress(address.ip().into());
        let stream = self.0.connect(name, stream).await.map_err(|error| match words(&error) {
            Some(words) => Ok(words),
            None => Err(error),
        })?;
        let (reader, writer) = tokio::io::split(stream);
        Ok((Box::new(reader), Box::new(writer)))
    }
}

fn builder(clock: Arc<dyn Clock>) -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, BadTls> {
    let provider: Arc<CryptoProvider> = Arc::new(provider::default_provider());
    Ok(ClientConfig::builder_with_details(provider, Arc::new(Time(clock))).with_protocol_versions(&[&TLS13])?)
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, BadTls> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    found.ok().filter(|found| !found.is_empty()).ok_or(BadTls::NoCertificate)
}

fn parse_pin(text: &str) -> Option<[u8; 32]> {
    let digits: Vec<u32> =
        text.trim().chars().filter(|one| *one != ':').map(|one| one.to_digit(16)).collect::<Option<_>>()?;
    let bytes: Option<Vec<u8>> =
        digits.chunks(2).map(|pair| u8::try_from(pair.first()? * 16 + pair.get(1)?).ok()).collect();
    bytes?.try_into().ok()
}

/// What a failed handshake says about the other side; `None` if only the connection broke.
fn words(error: &io::Error) -> Option<String> {
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    let words = match error {
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => "whoever listens there does not speak TLS",
        Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure) => {
            "the engine's certificate is not the pinned one"
        }
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "the engine's certificate is not of the configured authority"
        }
        Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "the engine's certificate has expired"
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "the engine's certificate is not for its address",
        other => return Some(format!("no TLS connection could be made: {other}")),
    };
    Some(words.to_owned())
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

/// Believes the one certificate that has this SHA-256, if the other side has its key.
#[derive(Debug)]
struct Pinned {
    sha256: [u8; 32],
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if digest::digest(&digest::SHA256, certificate).as_ref() == self.sha256 {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    /// Only TLS 1.3 is spoken.
    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_is_sixty_four_digits_with_colons_or_without() {
        let digits = "00ff".repeat(16);
        let colons: Vec<&str> = digits.as_bytes().chunks(2).filter_map(|pair| std::str::from_utf8(pair).ok()).collect();
        let expected = Some([0x00, 0xff].repeat(16).try_into().expect("32 bytes"));
        assert_eq!(parse_pin(&digits), expected);
        assert_eq!(parse_pin(&format!(" {} \n", colons.join(":").to_uppercase())), expected);
        for bad in ["", "00", &digits[1..], &format!("{digits}0"), &format!("{digits}00"), &digits.replace('f', "g")] {
            assert_eq!(parse_pin(bad), None, "{bad:?}");
        }
    }
}
