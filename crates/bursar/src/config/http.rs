//! Where the interface is served, and to how many at a time.

use serde::{Deserialize, Serialize};

/// Where the interface is served.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    pub listen: String,
    pub allow_remote: bool,
    pub docs_url: String,
    pub stop_delay_ms: u32,
    pub operations_listen: String,
    pub docs: bool,
    pub connections: u32,
    pub connections_per_address: u32,
    pub header_timeout_s: u32,
}

impl Default for Http {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:7410".to_owned(),
            allow_remote: false,
            docs_url: String::new(),
            stop_delay_ms: 0,
            operations_listen: "127.0.0.1:7412".to_owned(),
            docs: true,
            connections: 4_096,
            connections_per_address: 2_048,
            header_timeout_s: 60,
        }
    }
}
