//! One row of the journal, and its checksum.

use domain::ledger::{Action, Movement, OpKey, Operation, Outcome, Reference};
use domain::{AccountId, Amount, AssetId};

use crate::error::StoreError;

/// The columns of a [`MovementRow`].
pub(crate) const COLUMNS: &str =
    "id, op_key, leg, action, outcome, from_account, to_account, asset_id, amount, hold_key,
    reference, at, checksum";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovementRow {
    pub id: i64,
    pub op_key: String,
    /// Its place among the movements of its operation, from 0. (The column is called `leg`; a transfer's legs are
    /// others.)
    pub position: i64,
    pub action: i64,
    pub outcome: i64,
    pub from_account: i64,
    pub to_account: i64,
    pub asset_id: i64,
    pub amount: i64,
    pub hold_key: Option<String>,
    pub reference: String,
    pub at: i64,
    pub checksum: i64,
}

from_row!(MovementRow { id = "id", op_key = "op_key", position = "leg", action = "action", outcome = "outcome", from_account = "from_account", to_account = "to_account", asset_id = "asset_id", amount = "amount", hold_key = "hold_key", reference = "reference", at = "at", checksum = "checksum" });

/// CRC-32C over every column but the id, texts with their lengths. It finds a row changed by mistake, not a forgery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Content<'a> {
    pub op_key: &'a str,
    pub numbers: [i64; 8],
    pub hold_key: Option<&'a str>,
    pub reference: &'a str,
}

impl Content<'_> {
    pub(crate) fn checksum(&self) -> i64 {
        let mut crc = 0;
        for text in [Some(self.op_key), self.hold_key, Some(self.reference)] {
            let length = text.map_or(u64::MAX, |text| text.len().try_into().unwrap_or(u64::MAX));
            crc = crc32c::crc32c_append(crc, &length.to_le_bytes());
            crc = crc32c::crc32c_append(crc, text.unwrap_or_default().as_bytes());
        }
        for number in self.numbers {
            crc = crc32c::crc32c_append(crc, &number.to_le_bytes());
        }
        i64::from(crc)
    }
}

impl MovementRow {
    pub fn expected_checksum(&self) -> i64 {
        let content = Content {
            op_key: &self.op_key,
            numbers: [
                self.position,
                self.action,
                self.outcome,
                self.from_account,
                self.to_account,
                self.asset_id,
                self.amount,
                self.at,
            ],
            hold_key: self.hold_key.as_deref(),
            reference: &self.reference,
        };
        content.checksum()
    }

    pub fn outcome(&self) -> Option<Outcome> {
        i16::try_from(self.outcome).ok().and_then(Outcome::from_number)
    }

    pub fn action(&self) -> Option<Action> {
        let hold = self.hold_key.as_deref().map(OpKey::new).transpose().ok()?;
        Action::from_columns(i16::try_from(self.action).ok()?, hold)
    }

    pub const fn movement(&self) -> Movement {
        Movement {
            from: AccountId(self.from_account),
            to: AccountId(self.to_account),
            asset: AssetId(self.asset_id),
            amount: Amount::from_units(self.amount),
        }
    }
}

/// The operation that the rows of one key make up, in the order of their positions.
pub(crate) fn operation(rows: &[MovementRow]) -> Result<(Operation, Outcome), StoreError> {
    let broken = || StoreError::Corrupt {
        what: format!("movements of key {:?} make no operation", rows.first().map(|r| &r.op_key)),
    };
    let first = rows.first().ok_or_else(broken)?;
    let outcome = first.outcome().ok_or_else(broken)?;
    let action = first.action().ok_or_else(broken)?;
    let key = OpKey::new(first.op_key.as_str()).map_err(|_| broken())?;
    let reference = Reference::new(first.reference.as_str()).map_err(|_| broken())?;
    let movements = rows.iter().map(MovementRow::movement).collect();
    let operation = Operation::new(key, action, movements, reference).map_err(|_| broken())?;
    Ok((operation, outcome))
}
