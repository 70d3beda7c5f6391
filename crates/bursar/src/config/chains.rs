//! The nodes of each chain that is followed, and how they are asked.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use domain::ChainName;
use serde::{Deserialize, Serialize};

/// By the names that the treasury file gives the chains. A chain that is not here, or has no nodes, is not followed.
pub type Chains = BTreeMap<String, ChainNodes>;

/// What makes a block of an EVM chain proven.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProofChoice {
    /// What the chain's kind has: roots on EVM and Bitcoin, a second node on TRON.
    #[default]
    Usual,
    /// Transactions and receipts hash to the roots of a header that a quorum has.
    Roots,
    /// A second node has the same logs.
    SecondNode,
}

/// Whether coin that contracts move is looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InternalTransfers {
    /// What the chain's kind has: yes on TRON, whose nodes keep them beside the receipts; no on EVM, where they must trace.
    #[default]
    Usual,
    Yes,
    No,
}

/// One chain's nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChainNodes {
    /// Zero: more than half of the nodes.
    pub quorum: u32,
    pub proof: ProofChoice,
    pub internal_transfers: InternalTransfers,
    pub call_timeout_ms: u32,
    pub hedge_ms: u32,
    pub lag_blocks: u32,
    pub batch: u32,
    pub nodes: Vec<NodeSettings>,
}

impl Default for ChainNodes {
    fn default() -> Self {
        Self {
            quorum: 0,
            proof: ProofChoice::Usual,
            internal_transfers: InternalTransfers::Usual,
            call_timeout_ms: 10_000,
            hedge_ms: 1_000,
            lag_blocks: 10,
            batch: 100,
            nodes: Vec::new(),
        }
    }
}

/// One node. What is secret of it is in a file, and here is the file's name.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NodeSettings {
    pub name: String,
    pub url: String,
    pub url_file: String,
    pub login_file: String,
    pub token_file: String,
    pub key_header: String,
    pub key_file: String,
    pub headers: BTreeMap<String, String>,
    pub per_second: u32,
}

/// Without the address: it may hold a provider's key, although that belongs into a file.
impl fmt::Debug for NodeSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeSettings").field("name", &self.name).finish_non_exhaustive()
    }
}

impl NodeSettings {
    /// What cannot be, whatever the files have in them.
    fn problem(&self) -> Option<&'static str> {
        let named = (1..=32).contains(&self.name.len()) && self.name.bytes().all(|byte| byte.is_ascii_graphic());
        let credentials = self.headers.keys().any(|name| {
            ["authorization", "proxy-authorization", "cookie"].iter().any(|secret| name.eq_ignore_ascii_case(secret))
        });
        if !named {
            Some("its name must be 1 to 32 visible characters without spaces")
        } else if self.url.is_empty() == self.url_file.is_empty() {
            Some("it must have either url or url_file")
        } else if !self.url.is_empty() && !self.url.starts_with("http://") && !self.url.starts_with("https://") {
            Some("its url must be http://… or https://…")
        } else if !self.login_file.is_empty() && !self.token_file.is_empty() {
            Some("login_file and token_file are for the same header: it can have one of them")
        } else if self.key_header.is_empty() != self.key_file.is_empty() {
            Some("key_header and key_file go together: the header's name, and a file with its value")
        } else if credentials {
            Some("credentials do not belong into this file: use login_file, token_file or key_file")
        } else if self.per_second > 100_000 {
            Some("per_second must be 0 to 100000")
        } else {
            None
        }
    }
}

impl ChainNodes {
    /// What cannot be, whatever the files have in them and whichever chain it is.
    pub fn problem(&self, chain: &str) -> Option<String> {
        if let Err(error) = chain.parse::<ChainName>() {
            return Some(format!("chains.{chain}: {error}"));
        }
        let numbers = [
            ("call_timeout_ms", self.call_timeout_ms, 100, 120_000),
            ("hedge_ms", self.hedge_ms, 1, 60_000),
            ("lag_blocks", self.lag_blocks, 1, 100_000),
            ("batch", self.batch, 1, 1_000),
        ];
        for (name, value, least, most) in numbers {
            if !(least..=most).contains(&value) {
                return Some(format!("chains.{chain}.{name} must be {least} to {most}"));
            }
        }
        for (at, node) in self.nodes.iter().enumerate() {
            if let Some(problem) = node.problem() {
                return Some(format!("chains.{chain}.nodes, entry {}: {problem}", at + 1));
            }
        }
        let names: BTreeSet<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
        if names.len() != self.nodes.len() {
            return Some(format!("chains.{chain}.nodes: each node has a name of its own"));
        }
        let (nodes, quorum) = (self.nodes.len(), usize::try_from(self.quorum).unwrap_or(usize::MAX));
        if quorum != 0 && nodes != 0 && !(nodes / 2 + 1..=nodes).contains(&quorum) {
            return Some(format!("chains.{chain}.quorum must be more than half of the {nodes} nodes, or 0 for that"));
        }
        None
    }
}
