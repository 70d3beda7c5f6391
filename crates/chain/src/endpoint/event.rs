//! What the outside hears of the nodes.

use std::fmt;

/// Why a node is set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// So many failures, one after the other.
    Fails { failures: u32 },
    /// It refuses our credentials.
    Credentials,
    /// It said other things than a quorum, or showed a block that does not hash to a quorum's header.
    Contradicts,
    /// It is so many blocks behind what enough others have.
    Lags { behind: u64 },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fails { failures } => write!(f, "{failures} failures in a row"),
            Self::Credentials => f.write_str("it refuses our credentials"),
            Self::Contradicts => f.write_str("it contradicts a quorum"),
            Self::Lags { behind } => write!(f, "it is {behind} blocks behind"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is not asked for a while, or not before it has caught up.
    SetAside {
        endpoint: String,
        why: Why,
        pause_micros: u64,
    },
    /// It is asked like any other again.
    Back {
        endpoint: String,
    },
    /// It gave another answer than the `agreed` nodes whose answer was taken.
    Contradicts {
        endpoint: String,
        agreed: usize,
    },
    /// It refused what the `agreed` nodes answered, or answered what they refused. That is no lie: it may lack history.
    Differs {
        endpoint: String,
        agreed: usize,
    },
    /// What it showed of the block at this height does not hash to the header that a quorum has.
    Forges {
        endpoint: String,
        height: u64,
        what: String,
    },
    Lags {
        endpoint: String,
        height: u64,
        confirmed: u64,
    },
    /// Its height went back further than a reorganisation should.
    WentBack {
        endpoint: String,
        from: u64,
        to: u64,
    },
    /// So many different answers, and none from a quorum. Nobody can tell who is wrong.
    Disagreement {
        answers: usize,
        agreed: usize,
        wanted: usize,
    },
}

impl Event {
    pub(super) fn trace(&self) {
        match self {
            Self::SetAside { endpoint, why, pause_micros } => {
                tracing::warn!(endpoint, %why, pause_micros, "endpoint set aside");
            }
            Self::Back { endpoint } => tracing::info!(endpoint, "endpoint back"),
            Self::Contradicts { endpoint, agreed } => {
                tracing::error!(endpoint, agreed, "endpoint contradicts the quorum");
            }
            Self::Differs { endpoint, agreed } => tracing::warn!(endpoint, agreed, "endpoint differs from the quorum"),
            Self::Forges { endpoint, height, what } => {
                tracing::error!(endpoint, height, what, "endpoint shows a block that is not the quorum's");
            }
            Self::Lags { endpoint, height, confirmed } => {
                tracing::warn!(endpoint, height, confirmed, "endpoint lags");
            }
            Self::WentBack { endpoint, from, to } => tracing::warn!(endpoint, from, to, "height went back"),
            Self::Disagreement { answers, agreed, wanted } => {
                tracing::error!(answers, agreed, wanted, "endpoints disagree, and none has a quorum");
            }
        }
    }
}

/// One row of a table of endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    pub endpoint: String,
    pub aside: Option<Why>,
    /// Until it is tried again.
    pub pause_micros: u64,
    /// A moving average; `None` before the first answer.
    pub latency_micros: Option<u64>,
    /// In a row.
    pub failures: u32,
    pub height: Option<u64>,
    /// Procedures that run on it now.
    pub running: u32,
    /// Procedures that it was asked to run, and those of them that failed.
    pub asked: u64,
    pub failed: u64,
}
