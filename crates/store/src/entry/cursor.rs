//! Who reads a chain, how far, and that nobody else writes meanwhile.
//!
//! One worker at a time has a chain. Taking it over raises a number, the fence, which every write of a worker names: one that
//! was paused while another took over is refused, whatever either of their clocks says.

use domain::utxo::Hash;
use domain::{AccountKind, ChainKind, Timestamp};

use super::types::{ChainId, ChainRow, hash_of, height_of, row_height};
use crate::db::{Db, Tx};
use crate::dialect::LOCK_MIGRATIONS;
use crate::error::StoreError;
use crate::ledger::accounts::{NewAccount, Opened, open};
use crate::ledger::balances::system_balances;
use crate::rows::{Column, ColumnType::Int, RowsSql, execute_rows, expect_rows};
use crate::transact;

/// A worker that has a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worker {
    pub chain: ChainId,
    pub(crate) fence: i64,
}

#[derive(Debug, thiserror::Error)]
pub enum CursorError {
    #[error("another worker reads this chain, until {until} at least: {worker}")]
    Taken { worker: String, until: Timestamp },
    #[error("another worker has taken this chain over")]
    Fenced,
    #[error("this chain is halted: {why}")]
    Halted { why: String },
    /// The blocks do not follow what was passed before, or what was passed has changed meanwhile.
    #[error("the blocks do not fit those that were read before")]
    NotOnTrail,
    #[error("the database already keeps the payments of another Bitcoin chain")]
    SecondBitcoin,
    /// What such a block pays would never be booked.
    #[error(
        "the Bitcoin wallets have not read block {first} themselves: bursar utxo follow --rescan-from {first} reads it"
    )]
    NotRead { first: i64 },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl CursorError {
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Taken { .. } | Self::Fenced => "CHAIN_TAKEN",
            Self::Halted { .. } => "CHAIN_HALTED",
            Self::NotOnTrail => "CHAIN_TRAIL_BROKEN",
            Self::NotRead { .. } => "CHAIN_NOT_READ",
            Self::SecondBitcoin => "CHAIN_SECOND_BITCOIN",
            Self::Store(error) => error.code(),
        }
    }
}

/// How far a chain was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainStanding {
    pub first_height: u64,
    /// Of what was read, how much is proven. `None`: nothing yet.
    pub proven_height: Option<u64>,
    /// The newest block that was read.
    pub scanned: Option<(u64, Hash)>,
    pub worker: String,
    pub lease_until: Timestamp,
    pub halted: Option<String>,
    /// Blocks that people want read again, as far as they were not yet.
    pub rescan: Option<(u64, u64)>,
}

statements! {
    INSERT_CURSOR = "INSERT INTO chain_cursors (chain_id, first_height, proven_height, worker, fence, lease_until, halted, updated_at)
        VALUES ($1, $2, $3, '', 0, 0, NULL, $4) ON CONFLICT (chain_id) DO NOTHING";
    OTHER_BITCOIN = "SELECT n.name FROM chain_cursors c JOIN chains n ON n.id = c.chain_id
        WHERE n.kind = 'bitcoin' AND c.chain_id <> $1 LIMIT 1";
    /// The row is what writers of one chain queue for.
    LOCK_CURSOR = "SELECT fence, worker, lease_until, halted, proven_height FROM chain_cursors
        WHERE chain_id = $1 {FOR UPDATE}";
    TAKE_CURSOR = "UPDATE chain_cursors SET worker = $2, fence = fence + 1, lease_until = $3, updated_at = $4
        WHERE chain_id = $1 RETURNING fence";
    /// A lease never gets shorter by a clock that was corrected.
    RENEW_CURSOR = "UPDATE chain_cursors SET lease_until = CASE WHEN lease_until > $2 THEN lease_until ELSE $2 END, updated_at = $3
        WHERE chain_id = $1";
    END_CURSOR = "UPDATE chain_cursors SET lease_until = 0, updated_at = $3 WHERE chain_id = $1 AND fence = $2";
    SET_PROVEN = "UPDATE chain_cursors SET proven_height = $2, updated_at = $3 WHERE chain_id = $1";
    HALT = "UPDATE chain_cursors SET halted = $2, updated_at = $3 WHERE chain_id = $1";
    READ_CURSOR = "SELECT first_height, proven_height, worker, lease_until, halted, rescan_from, rescan_to FROM chain_cursors
        WHERE chain_id = $1";
    READ_LAST_BLOCK = "SELECT height, block_hash FROM chain_blocks WHERE chain_id = $1 ORDER BY height DESC LIMIT 1";
    READ_LAST_BITCOIN_BLOCK = "SELECT block_height, block_hash FROM blocks WHERE connected ORDER BY block_height DESC LIMIT 1";
    READ_TRAIL = "SELECT height, block_hash FROM chain_blocks WHERE chain_id = $1 ORDER BY height";
}

static INSERT_OPENINGS: RowsSql = RowsSql::new(
    "INSERT_OPENINGS",
    "INSERT INTO chain_residues (listing_id, residue_raw, opening) SELECT r.listing_id, '0', r.opening FROM {rows}",
    &[("listing_id", Int), ("opening", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 1] = [&INSERT_OPENINGS];

/// What custody has before the first entry: the coins that the books began with.
async fn write_openings(tx: &mut Tx, chain: &ChainRow) -> Result<(), StoreError> {
    let custody = AccountKind::Custody(chain.name.clone());
    let wanted = chain.listings.iter().filter_map(|listing| NewAccount::system(&custody, listing.asset));
    let opened = open(tx, &wanted.collect::<Vec<_>>(), Timestamp::from_micros(0)).await?;
    let balances = system_balances(tx).await?;
    let has = |opened: &Opened| match opened {
        Opened::Account(id) => balances.get(id).copied().unwrap_or(0),
        Opened::UnknownAsset => 0,
    };
    // A custody account is negative by the coins on its addresses.
    let beyond = |_| StoreError::Corrupt { what: "custody has more than 64 bits can hold".to_owned() };
    let openings = opened.iter().map(|one| i64::try_from(-has(one)).map_err(beyond)).collect::<Result<_, _>>()?;
    let columns =
        vec![Column::Ints(chain.listings.iter().map(|listing| listing.id.0).collect()), Column::Ints(openings)];
    let count = chain.listings.len();
    expect_rows(execute_rows(tx, &INSERT_OPENINGS, columns).await?, count, "openings")
}

/// A chain's row while it is locked.
pub(crate) struct Locked {
    /// -1: no block is proven.
    pub proven: i64,
    pub halted: Option<String>,
}

impl Db {
    /// The payments of a chain are kept from now on: blocks above `first` are read. The same again changes nothing.
    pub async fn begin_chain(
        &self,
        chain: &ChainRow,
        first: u64,
        hash: Hash,
        at: Timestamp,
    ) -> Result<(), CursorError> {
        let first_row = row_height(first)?;
        let bitcoin = chain.kind == ChainKind::Bitcoin;
        let refused = transact!(self, tx => {
            // What custody has is written down below: nobody moves it by hand meanwhile.
            fetch_optional!(tx, LOCK_MIGRATIONS => (String,))?;
            if bitcoin {
                super::bitcoin::hold_followers(tx).await?;
            }
            if bitcoin && fetch_optional!(tx, OTHER_BITCOIN => (String,), chain.id.0)?.is_some() {
                return Ok(Some(CursorError::SecondBitcoin));
            }
            if bitcoin && let Some(unread) = super::bitcoin::first_unread(tx, first_row).await? {
                return Ok(Some(CursorError::NotRead { first: unread }));
            }
            // The first block itself is only the ground to stand on.
            let added = execute!(tx, INSERT_CURSOR, chain.id.0, first_row, first_row, at.micros())?;
            if added == 1 {
                write_openings(tx, chain).await?;
            }
            if added == 1 && bitcoin {
                // What the wallet store has read above it already.
                super::bitcoin::connected_above(tx, first_row, at).await?;
            } else if added == 1 {
                super::blocks::insert_trail(tx, chain.id, &[(first_row, hash)], "").await?;
            }
            Ok(None)
        })?;
        refused.map_or(Ok(()), Err)
    }

    /// Takes a chain for a worker, until a time. A worker that has it already gets it again, with a new number. A lease that is
    /// longer than this one asks for was given by a clock that was wrong: it keeps nobody out.
    pub async fn take_chain(
        &self,
        chain: ChainId,
        worker: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<Worker, CursorError> {
        transact!(self, tx => {
            let row = fetch_optional!(tx, LOCK_CURSOR => CursorRow, chain.0)?;
            let Some((_, holder, lease, _, _)) = row else {
                return Err(StoreError::Corrupt { what: "the chain was not begun".to_owned() });
            };
            if holder != worker && (now.micros() + 1..=until.micros()).contains(&lease) {
                return Ok(Err(CursorError::Taken { worker: holder, until: Timestamp::from_micros(lease) }));
            }
            let fence = fetch_optional!(tx, TAKE_CURSOR => (i64,), chain.0, worker, until.micros(), now.micros())?;
            let fence = fence.ok_or_else(|| StoreError::Corrupt { what: "a locked row is gone".to_owned() })?.0;
            Ok(Ok(Worker { chain, fence }))
        })?
    }

    /// Until a later time. Fenced: it is another's.
    pub async fn renew_chain(&self, worker: &Worker, until: Timestamp, now: Timestamp) -> Result<(), CursorError> {
        transact!(self, tx => {
            let held = lock_cursor(tx, worker).await?;
            if held.is_ok() {
                execute!(tx, RENEW_CURSOR, worker.chain.0, until.micros(), now.micros())?;
            }
            Ok(held.map(|_| ()))
        })?
    }

    /// Another worker may begin at once.
    pub async fn leave_chain(&self, worker: &Worker, now: Timestamp) -> Result<(), StoreError> {
        transact!(self, tx => {
            execute!(tx, END_CURSOR, worker.chain.0, worker.fence, now.micros())?;
            Ok(())
        })
    }

    /// Nothing of the chain moves until a person lets it go on (`None`).
    pub async fn halt_chain(&self, chain: ChainId, why: Option<&str>, now: Timestamp) -> Result<(), StoreError> {
        transact!(self, tx => {
            execute!(tx, HALT, chain.0, why, now.micros())?;
            Ok(())
        })
    }

    /// `None`: its payments are not kept.
    pub async fn chain_standing(&self, chain: &ChainRow) -> Result<Option<ChainStanding>, StoreError> {
        let mut tx = self.read().await?;
        type Row = (i64, i64, String, i64, Option<String>, Option<i64>, Option<i64>);
        let row = fetch_optional!(&mut tx, READ_CURSOR => Row, chain.id.0)?;
        let Some((first, proven, worker, lease, halted, from, to)) = row else { return Ok(None) };
        let rescan = from.zip(to).map(|(from, to)| Ok::<_, StoreError>((height_of(from)?, height_of(to)?)));
        let last = match chain.kind {
            ChainKind::Bitcoin => fetch_optional!(&mut tx, READ_LAST_BITCOIN_BLOCK => (i64, Vec<u8>))?,
            ChainKind::Evm | ChainKind::Tron => {
                fetch_optional!(&mut tx, READ_LAST_BLOCK => (i64, Vec<u8>), chain.id.0)?
            }
        };
        let scanned =
            last.map(|(height, hash)| Ok::<_, StoreError>((height_of(height)?, hash_of(&hash)?))).transpose()?;
        Ok(Some(ChainStanding {
            first_height: height_of(first)?,
            proven_height: u64::try_from(proven).ok(),
            scanned,
            worker,
            lease_until: Timestamp::from_micros(lease),
            halted,
            rescan: rescan.transpose()?,
        }))
    }

    /// The blocks that were passed and are still kept, oldest first.
    pub async fn trail(&self, chain: ChainId) -> Result<Vec<(u64, Hash)>, StoreError> {
        let rows = fetch_all!(&mut self.read().await?, READ_TRAIL => (i64, Vec<u8>), chain.0)?;
        rows.into_iter().map(|(height, hash)| Ok((height_of(height)?, hash_of(&hash)?))).collect()
    }
}

pub(crate) type CursorRow = (i64, String, i64, Option<String>, i64);

/// Locks the chain's row, whoever reads the chain, and says why it is halted, if it is.
pub(crate) async fn hold_chain(tx: &mut Tx, chain: ChainId) -> Result<Option<String>, StoreError> {
    Ok(fetch_optional!(tx, LOCK_CURSOR => CursorRow, chain.0)?.and_then(|(_, _, _, halted, _)| halted))
}

/// Locks the chain's row for this worker. Refused if it is another's by now.
pub(crate) async fn lock_cursor(tx: &mut Tx, worker: &Worker) -> Result<Result<Locked, CursorError>, StoreError> {
    let row = fetch_optional!(tx, LOCK_CURSOR => CursorRow, worker.chain.0)?;
    Ok(match row {
        Some((fence, _, _, halted, proven)) if fence == worker.fence => Ok(Locked { proven, halted }),
        Some(_) | None => Err(CursorError::Fenced),
    })
}

/// Locks the chain's row for a write that is true whoever reads the chain. A halted chain does not get it.
pub(crate) async fn lock_visited(tx: &mut Tx, chain: ChainId) -> Result<Result<Locked, CursorError>, StoreError> {
    let row = fetch_optional!(tx, LOCK_CURSOR => CursorRow, chain.0)?;
    Ok(match row {
        Some((_, _, _, Some(why), _)) => Err(CursorError::Halted { why }),
        Some((_, _, _, None, proven)) => Ok(Locked { proven, halted: None }),
        None => Err(CursorError::NotOnTrail),
    })
}

/// Locks the chain's row for this worker, for writes that a halted chain does not get.
pub(crate) async fn lock_moving(tx: &mut Tx, worker: &Worker) -> Result<Result<Locked, CursorError>, StoreError> {
    Ok(match lock_cursor(tx, worker).await? {
        Ok(Locked { halted: Some(why), .. }) => Err(CursorError::Halted { why }),
        locked => locked,
    })
}
