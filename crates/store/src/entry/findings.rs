//! What somebody should know of a chain. A finding stays until a person has seen to it.

use std::collections::BTreeSet;

use domain::Timestamp;

use super::types::ChainId;
use crate::db::{Db, Tx};
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Int, ColumnType::Text, RowsSql, execute_rows, fetch_rows};
use crate::transact;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// A node showed something that the proof does not have.
    Disproven,
    /// A node left out something that the proof has.
    LeftOut,
    /// Coins left an address of ours, and nothing of ours explains it.
    ForeignSpend,
    /// A credit was taken back, because its block left the chain.
    TakenBack,
    /// The row of an address has another one than its key gives.
    RowDiffers,
    /// The chain says another balance than the entries.
    BalanceDiffers,
    /// Nothing of the chain was proven for so long that somebody must look.
    Waits,
    /// The chain stopped.
    Halted,
    /// Nothing is sent from a wallet any more.
    LaneStopped,
    /// A person let it go on.
    Resumed,
    /// Two people took it back to a block.
    Rewound,
    /// Old blocks were read again, and have something that the books had not.
    FoundLate,
    /// Old blocks were read again, and the nodes show no longer what the books have.
    NotFoundAgain,
    /// A payment to a customer was taken back by the chain for good, and the customer has not the money again.
    NotGivenBack,
}

impl FindingKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Disproven => "disproven",
            Self::LeftOut => "left_out",
            Self::ForeignSpend => "foreign_spend",
            Self::TakenBack => "taken_back",
            Self::RowDiffers => "row_differs",
            Self::BalanceDiffers => "balance_differs",
            Self::Waits => "waits",
            Self::Halted => "halted",
            Self::LaneStopped => "lane_stopped",
            Self::Resumed => "resumed",
            Self::Rewound => "rewound",
            Self::FoundLate => "found_late",
            Self::NotFoundAgain => "not_found_again",
            Self::NotGivenBack => "not_given_back",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub kind: FindingKind,
    /// A node, a transaction, an address or a deposit.
    pub subject: String,
    pub detail: String,
}

/// A finding that nobody has seen to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenFinding {
    pub id: i64,
    pub chain: String,
    pub kind: String,
    pub subject: String,
    pub detail: String,
    pub at: Timestamp,
}

statements! {
    READ_OPEN_FINDINGS = "SELECT f.id, c.name, f.kind, f.subject, f.detail, f.at FROM chain_findings f
        JOIN chains c ON c.id = f.chain_id WHERE f.resolved_at IS NULL AND f.id > $1 AND ($3 = '' OR c.name = $3)
        ORDER BY f.id LIMIT $2";
    /// Unless it is there, and nobody has seen to it.
    INSERT_ONCE = "INSERT INTO chain_findings (chain_id, kind, subject, detail, at, resolved_by, resolved_at)
        SELECT c.id, $2, $3, $4, $5, NULL, NULL FROM chains c WHERE c.id = $1 AND NOT EXISTS (SELECT 1 FROM chain_findings f
            WHERE f.chain_id = $1 AND f.kind = $2 AND f.subject = $3 AND f.resolved_at IS NULL)";
    INSERT_RESOLVED = "INSERT INTO chain_findings (chain_id, kind, subject, detail, at, resolved_by, resolved_at)
        VALUES ($1, $2, $3, $4, $5, $6, $5)";
}

static INSERT_FINDINGS: RowsSql = RowsSql::new(
    "INSERT_FINDINGS",
    "INSERT INTO chain_findings (chain_id, kind, subject, detail, at, resolved_by, resolved_at)
     SELECT r.chain_id, r.kind, r.subject, r.detail, r.at, NULL, NULL FROM {rows}",
    &[("chain_id", Int), ("kind", Text), ("subject", Text), ("detail", Text), ("at", Int)],
);

static READ_OPEN_AMONG: RowsSql = RowsSql::new(
    "READ_OPEN_AMONG",
    "SELECT f.id FROM {rows} {join} chain_findings f ON f.id = r.id WHERE f.resolved_at IS NULL",
    &[("id", Int)],
);

static RESOLVE_FINDINGS: RowsSql = RowsSql::new(
    "RESOLVE_FINDINGS",
    "UPDATE chain_findings SET resolved_by = r.who, resolved_at = r.at FROM {rows}
     WHERE chain_findings.id = r.id AND chain_findings.resolved_at IS NULL",
    &[("id", Int), ("who", Text), ("at", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 3] = [&INSERT_FINDINGS, &READ_OPEN_AMONG, &RESOLVE_FINDINGS];

impl Db {
    pub async fn add_findings(&self, chain: ChainId, found: &[Finding], at: Timestamp) -> Result<(), StoreError> {
        transact!(self, tx => add_findings(tx, chain, found, at).await)
    }

    /// Says it once, until somebody has seen to it.
    pub async fn add_finding_once(&self, chain: ChainId, found: &Finding, at: Timestamp) -> Result<(), StoreError> {
        let (kind, subject, detail) = (found.kind.as_str(), found.subject.as_str(), found.detail.as_str());
        transact!(self, tx => execute!(tx, INSERT_ONCE, chain.0, kind, subject, detail, at.micros()).map(|_| ()))
    }

    pub async fn open_findings(&self, after: i64, most: i64) -> Result<Vec<OpenFinding>, StoreError> {
        self.open_findings_of("", after, most).await
    }

    /// Those of one chain; of all, if it has no name.
    pub async fn open_findings_of(&self, chain: &str, after: i64, most: i64) -> Result<Vec<OpenFinding>, StoreError> {
        type Row = (i64, String, String, String, String, i64);
        let rows = fetch_all!(&mut self.read().await?, READ_OPEN_FINDINGS => Row, after, most, chain)?;
        let open = |(id, chain, kind, subject, detail, at)| OpenFinding {
            id,
            chain,
            kind,
            subject,
            detail,
            at: Timestamp::from_micros(at),
        };
        Ok(rows.into_iter().map(open).collect())
    }

    /// Somebody has seen to all of these. `Err`: one that is not open; nothing was changed then.
    pub async fn resolve_findings(&self, ids: &[i64], who: &str, at: Timestamp) -> Result<Result<(), i64>, StoreError> {
        let wanted: BTreeSet<i64> = ids.iter().copied().collect();
        transact!(self, tx => {
            let columns = vec![Column::Ints(wanted.iter().copied().collect())];
            let rows: Vec<(i64,)> = fetch_rows(tx, &READ_OPEN_AMONG, columns).await?;
            let open: BTreeSet<i64> = rows.into_iter().map(|(id,)| id).collect();
            if let Some(unknown) = wanted.difference(&open).next() {
                return Ok(Err(*unknown));
            }
            let count = wanted.len();
            let columns = vec![
                Column::Ints(wanted.iter().copied().collect()),
                Column::Texts(vec![who; count]),
                Column::Ints(vec![at.micros(); count]),
            ];
            execute_rows(tx, &RESOLVE_FINDINGS, columns).await?;
            Ok(Ok(()))
        })
    }
}

/// What a person did, which nobody has to see to.
pub(crate) async fn add_resolved(
    tx: &mut Tx,
    chain: ChainId,
    told: &Finding,
    who: &str,
    at: Timestamp,
) -> Result<(), StoreError> {
    let (kind, subject, detail) = (told.kind.as_str(), told.subject.as_str(), told.detail.as_str());
    execute!(tx, INSERT_RESOLVED, chain.0, kind, subject, detail, at.micros(), who).map(|_| ())
}

pub(crate) async fn add_findings(
    tx: &mut Tx,
    chain: ChainId,
    found: &[Finding],
    at: Timestamp,
) -> Result<(), StoreError> {
    if found.is_empty() {
        return Ok(());
    }
    let columns = vec![
        Column::Ints(vec![chain.0; found.len()]),
        Column::Texts(found.iter().map(|one| one.kind.as_str()).collect()),
        Column::Texts(found.iter().map(|one| one.subject.as_str()).collect()),
        Column::Texts(found.iter().map(|one| one.detail.as_str()).collect()),
        Column::Ints(vec![at.micros(); found.len()]),
    ];
    execute_rows(tx, &INSERT_FINDINGS, columns).await.map(|_| ())
}
