//! Which signer has the keys, and how it is asked.

use serde::{Deserialize, Serialize};

/// Without `socket` and `url` no signer is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Signer {
    pub name: String,
    pub socket: String,
    pub url: String,
    pub credential_file: String,
    pub tls_ca_file: String,
    pub tls_cert_file: String,
    pub tls_key_file: String,
}

impl Default for Signer {
    fn default() -> Self {
        Self {
            name: "signer".to_owned(),
            socket: String::new(),
            url: String::new(),
            credential_file: String::new(),
            tls_ca_file: String::new(),
            tls_cert_file: String::new(),
            tls_key_file: String::new(),
        }
    }
}

impl Signer {
    pub const fn is_configured(&self) -> bool {
        !self.socket.is_empty() || !self.url.is_empty()
    }

    /// What is wrong with it, and what to do.
    pub fn problem(&self) -> Option<(&'static str, &'static str)> {
        let named = (1..=64).contains(&self.name.len()) && self.name.chars().all(|one| one.is_ascii_graphic());
        if !named {
            return Some(("signer.name must be 1 to 64 letters, digits or signs", "signer is a good one"));
        }
        if !self.is_configured() {
            return None;
        }
        if !self.socket.is_empty() && !self.url.is_empty() {
            return Some(("signer.socket and signer.url are two places", "leave one of them empty"));
        }
        if self.credential_file.is_empty() {
            let hint = "bursar signer key add NAME --derive --credential FILE makes one";
            return Some(("signer.credential_file is not set, and the signer answers nobody without a key", hint));
        }
        if !self.url.is_empty() && (!self.url.starts_with("https://") || self.tls_ca_file.is_empty()) {
            let hint = "https://host:port, and signer.tls_ca_file for the authority of its certificate";
            return Some(("a signer on another machine is asked by TLS, and known by its authority", hint));
        }
        if self.tls_cert_file.is_empty() != self.tls_key_file.is_empty() {
            return Some(("signer.tls_cert_file and signer.tls_key_file belong together", "set both, or none"));
        }
        None
    }
}
