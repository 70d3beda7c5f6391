//! TLS of the spot engine: the files and the pin that an operator names. Plain TCP stays on this machine.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use spot::net::{BadTls, ClientTls, ServerTls};
use terminal::clock::SystemClock;
use terminal::failure::Failure;
use terminal::files::read_secret;

const HINT: &str = "openssl req -x509 -newkey ed25519 -nodes -days 3650 -subj /CN=spot -keyout spot.key -out spot.crt; then \
                    openssl x509 -in spot.crt -noout -fingerprint -sha256 prints the pin";

fn bad(what: &str, error: impl std::fmt::Display) -> Failure {
    Failure::bad_input("SPOT_TLS_INVALID", format!("{what}: {error}"), HINT)
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(file).map_err(|error| bad(&file.display().to_string(), error))
}

/// The key is a secret: only its owner may read it.
fn read_key(file: &Path) -> Result<Vec<u8>, Failure> {
    read_secret(file).map_err(|failure| match failure.code.as_ref() {
        "FILE_NOT_READABLE" => bad(&file.display().to_string(), failure.messages.join(": ")),
        _ => failure,
    })
}

/// Nobody on the way may read a token or change an amount.
fn plain_to_another_machine(address: SocketAddr, hint: &str) -> Failure {
    let message = format!("{address} is reached from other machines: tokens and operations would travel in the clear");
    Failure::bad_input("SPOT_PLAIN_REMOTE", message, hint)
}

/// The engine's own certificate.
#[derive(Debug, clap::Args)]
pub struct Certificate {
    /// The engine's certificate in PEM form; clients then speak TLS, and --listen may be an address of another machine's reach
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key of the certificate, in PEM form
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

impl Certificate {
    /// `None`: plain TCP, on this machine.
    pub fn read(&self, listen: SocketAddr) -> Result<Option<ServerTls>, Failure> {
        match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => {
                let (pem, key_pem) = (read(certificate)?, read_key(key)?);
                let which = |error: &BadTls| if matches!(error, BadTls::NoKey) { key } else { certificate };
                let tls = ServerTls::new(&pem, &key_pem);
                Ok(Some(tls.map_err(|error| bad(&which(&error).display().to_string(), &error))?))
            }
            _ if listen.ip().is_loopback() => Ok(None),
            _ => Err(plain_to_another_machine(listen, "name --tls-cert and --tls-key, or listen on 127.0.0.1")),
        }
    }
}

/// How a client knows the engine that it connects to.
#[derive(Debug, Default, clap::Args)]
pub struct Known {
    /// The engine speaks TLS, with a certificate that an authority of this PEM file issued for its address
    #[arg(long, value_name = "FILE", conflicts_with = "tls_pin")]
    tls_ca: Option<PathBuf>,
    /// The engine speaks TLS, with the certificate that has this SHA-256
    #[arg(long, value_name = "SHA256")]
    tls_pin: Option<String>,
}

impl Known {
    /// As it is configured: "" for none.
    pub fn configured(ca_file: &str, pin: &str) -> Self {
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Self { tls_ca: some(ca_file).map(PathBuf::from), tls_pin: some(pin) }
    }

    /// `None`: plain TCP, on this machine.
    pub fn read(&self, address: SocketAddr) -> Result<Option<ClientTls>, Failure> {
        let clock = || Arc::new(SystemClock);
        match (&self.tls_ca, &self.tls_pin) {
            (Some(file), _) => {
                let tls = ClientTls::authority(&read(file)?, clock());
                Ok(Some(tls.map_err(|error| bad(&file.display().to_string(), &error))?))
            }
            (None, Some(pin)) => Ok(Some(ClientTls::pinned(pin, clock()).map_err(|error| bad("the pin", &error))?)),
            (None, None) if address.ip().is_loopback() => Ok(None),
            (None, None) => {
                let hint = "start the engine with --tls-cert and --tls-key, and name its certificate by --tls-pin or --tls-ca \
                            (spot.tls_pin, spot.tls_ca_file); or use a tunnel that ends on this machine";
                Err(plain_to_another_machine(address, hint))
            }
        }
    }
}
