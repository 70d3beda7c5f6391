//! Whose tokens open the operators' routes.

use serde::{Deserialize, Serialize};

/// Keys of their own: whoever can make customers' tokens must not be able to make operators'. Without a key there are no such routes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Operators {
    pub issuer: String,
    pub audience: String,
    pub hs256_secret_file: String,
    pub hs256_kid: String,
    pub jwks_file: String,
}

impl Default for Operators {
    fn default() -> Self {
        Self {
            issuer: "bursar".to_owned(),
            audience: "bursar-operators".to_owned(),
            hs256_secret_file: String::new(),
            hs256_kid: String::new(),
            jwks_file: String::new(),
        }
    }
}

impl Operators {
    pub const fn is_configured(&self) -> bool {
        !self.hs256_secret_file.is_empty() || !self.jwks_file.is_empty()
    }

    /// What is wrong with it beside the customers' settings, and what to do. A token must never open both doors.
    pub fn problem(&self, customers: &super::Auth) -> Option<(&'static str, &'static str)> {
        if self.audience.is_empty() || self.audience == customers.audience {
            return Some((
                "operators.audience is empty, or that of the customers' tokens",
                "a token is for one of the two: bursar-operators is a good audience",
            ));
        }
        let same = |one: &str, other: &str| !one.is_empty() && one == other;
        if same(&self.hs256_secret_file, &customers.hs256_secret_file) || same(&self.jwks_file, &customers.jwks_file) {
            return Some((
                "operators' tokens are checked with the customers' key",
                "make another: (umask 077; head -c 48 /dev/urandom | base64 > operators.secret)",
            ));
        }
        None
    }
}
