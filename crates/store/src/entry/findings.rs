//! What somebody should know of a chain. A finding stays until a person has seen to it.

use domain::Timestamp;

use super::types::ChainId;
use crate::db::{Db, Tx};
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Int, ColumnType::Text, RowsSql, execute_rows};
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
    /// The chain stopped.
    Halted,
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
            Self::Halted => "halted",
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
        JOIN chains c ON c.id = f.chain_id WHERE f.resolved_at IS NULL AND f.id > $1 ORDER BY f.id LIMIT $2";
    RESOLVE_FINDING = "UPDATE chain_findings SET resolved_by = $2, resolved_at = $3 WHERE id = $1 AND resolved_at IS NULL";
}

static INSERT_FINDINGS: RowsSql = RowsSql::new(
    "INSERT_FINDINGS",
    "INSERT INTO chain_findings (chain_id, kind, subject, detail, at, resolved_by, resolved_at)
     SELECT r.chain_id, r.kind, r.subject, r.detail, r.at, NULL, NULL FROM {rows}",
    &[("chain_id", Int), ("kind", Text), ("subject", Text), ("detail", Text), ("at", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 1] = [&INSERT_FINDINGS];

impl Db {
    pub async fn add_findings(&self, chain: ChainId, found: &[Finding], at: Timestamp) -> Result<(), StoreError> {
        transact!(self, tx => add_findings(tx, chain, found, at).await)
    }

    pub async fn open_findings(&self, after: i64, most: i64) -> Result<Vec<OpenFinding>, StoreError> {
        type Row = (i64, String, String, String, String, i64);
        let rows = fetch_all!(&mut self.read().await?, READ_OPEN_FINDINGS => Row, after, most)?;
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

    /// Whether there was such a finding, and nobody had seen to it.
    pub async fn resolve_finding(&self, id: i64, who: &str, at: Timestamp) -> Result<bool, StoreError> {
        transact!(self, tx => Ok(execute!(tx, RESOLVE_FINDING, id, who, at.micros())? == 1))
    }
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
