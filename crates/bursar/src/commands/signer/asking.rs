//! How a command asks a running signer.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use signer::access::Credential;
use signer::client::transport::SignerPlace;
use signer::client::{ClientSettings, SignerClient, SignerError};
use signer::service::listen::ListenError;
use signer::wire::HeadBody;
use terminal::clock::SystemClock;
use terminal::failure::{Exit, Failure};
use terminal::files::{read_secret, read_text};
use zeroize::Zeroizing;

use super::System;
use super::key::access_failed;
use super::log::pinned;

/// The socket's name in the signer's folder.
pub const SOCKET: &str = "socket";

#[derive(Debug, clap::Args)]
pub struct Asking {
    /// The file with an API key, as bursar signer key add makes it
    #[arg(long, value_name = "FILE")]
    pub credential: Option<PathBuf>,
    /// The signer's unix socket
    #[arg(long, value_name = "FILE", default_value = "bursar-signer/socket", conflicts_with = "url")]
    socket: PathBuf,
    /// The address of a signer that speaks TLS: https://host:port
    #[arg(long, value_name = "URL", requires = "tls_ca")]
    url: Option<String>,
    /// The authority that issued the signer's certificate, in PEM form
    #[arg(long, value_name = "FILE", requires = "url")]
    tls_ca: Option<PathBuf>,
    /// This client's certificate in PEM form, if the signer wants one
    #[arg(long, value_name = "FILE", requires_all = ["url", "tls_key"])]
    tls_cert: Option<PathBuf>,
    /// The private key of this client's certificate, in PEM form
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// For how long to try
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    deadline: u32,
}

impl Asking {
    /// `known` is the newest head that the operator knows, as `ENTRY:HASH`.
    pub fn client(&self, known: Option<&str>) -> Result<SignerClient, Failure> {
        let known = known.map(pinned).transpose()?.map(HeadBody::from);
        let Some(file) = &self.credential else {
            let hint = "bursar signer key add NAME --credential FILE makes one";
            return Err(Failure::bad_input("SIGNER_API_KEYS_INVALID", "a running signer asks for --credential", hint));
        };
        let bytes = Zeroizing::new(read_secret(file)?);
        let text = std::str::from_utf8(&bytes).unwrap_or_default();
        let credential = Credential::parse(text).map_err(|error| access_failed(&error))?;
        let settings =
            ClientSettings { deadline: Duration::from_secs(self.deadline.into()), ..ClientSettings::default() };
        let clock = Arc::new(SystemClock);
        Ok(SignerClient::new(self.place()?, credential, clock, Arc::new(System), settings, known))
    }

    fn place(&self) -> Result<SignerPlace, Failure> {
        let (Some(url), Some(authority)) = (&self.url, &self.tls_ca) else {
            return Ok(SignerPlace::unix(&self.socket));
        };
        let authority = read_text(authority)?;
        let own = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => Some((read_text(certificate)?, Zeroizing::new(read_secret(key)?))),
            _ => None,
        };
        let own = own.as_ref().map(|(certificate, key)| (certificate.as_bytes(), key.as_slice()));
        SignerPlace::tls(url, authority.as_bytes(), own, Arc::new(SystemClock)).map_err(|error| listen_failed(&error))
    }
}

pub fn listen_failed(error: &ListenError) -> Failure {
    let hint = match error {
        ListenError::Socket { .. } => "is its folder there, and may it be written to? name another with --socket",
        ListenError::Place { .. } => {
            "name a socket in a folder of the signer's own with --socket, or stop what listens there"
        }
        ListenError::Address { .. } => "is it taken? name another with --listen",
        ListenError::Tls(_) => {
            return Failure::bad_input(
                error.code(),
                error.to_string(),
                "docs/guide/signer.md shows how certificates are made",
            );
        }
    };
    Failure::outside(error.code(), error, hint)
}

pub fn ask_failed(error: &SignerError) -> Failure {
    let (exit, hint) = match error {
        SignerError::Unavailable { .. } => {
            (Exit::Outside, "does the signer run, and is its socket this one? nothing was signed")
        }
        SignerError::Unknown { .. } => (Exit::Outside, "ask again with the same ids: what was signed is given again"),
        SignerError::Rejected { .. } => (Exit::BadInput, "nothing was decided; bursar explain has the code's page"),
        SignerError::RolledBack { .. } => (Exit::Found, "stop: this is not the newest copy of the signer's folder"),
        SignerError::WrongAnswer { .. } => (Exit::Found, "stop: whoever answered is not the signer that was asked"),
    };
    Failure { code: error.code().to_owned().into(), messages: vec![error.to_string()], hint: hint.to_owned(), exit }
}
