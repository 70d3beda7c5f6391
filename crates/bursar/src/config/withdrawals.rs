//! Who is asked about withdrawals before anybody may agree to them.

use serde::{Deserialize, Serialize};

use super::is_in_the_clear;

/// Which withdrawals are asked about stands in the treasury file (`[[withdrawal_check]]`). Without `check_url` nobody asks, and they wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Withdrawals {
    pub check_url: String,
    pub check_key_file: String,
    pub check_timeout_ms: u32,
}

impl Default for Withdrawals {
    fn default() -> Self {
        Self { check_url: String::new(), check_key_file: String::new(), check_timeout_ms: 5_000 }
    }
}

impl Withdrawals {
    /// What is wrong with it, and what to do.
    pub fn problem(&self) -> Option<(&'static str, &'static str)> {
        if !(100..=60_000).contains(&self.check_timeout_ms) {
            return Some(("withdrawals.check_timeout_ms must be 100 to 60000", "5000 is a good start"));
        }
        if self.check_url.is_empty() {
            return None;
        }
        let http = self.check_url.starts_with("https://") || self.check_url.starts_with("http://");
        if !http || is_in_the_clear(&self.check_url) {
            let hint = "https://…, or http://… on this machine: it would tell of every withdrawal in the clear";
            return Some(("withdrawals.check_url is no address that may be asked", hint));
        }
        if self.check_key_file.is_empty() {
            let hint = "(umask 077; head -c 48 /dev/urandom | base64 > check.key), and give the other side the same";
            return Some(("withdrawals.check_key_file is not set, and what is not signed is not believed", hint));
        }
        None
    }
}
