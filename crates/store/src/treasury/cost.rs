//! What jobs have cost, beside what they were expected to.

use std::collections::BTreeMap;

use domain::outbound::JobKind;
use domain::{RawAmount, RawSum, Timestamp};

use super::malformed;
use crate::db::Db;
use crate::entry::ListingId;
use crate::error::StoreError;

/// Of one chain, one kind of job and one coin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostRow {
    pub chain: String,
    pub kind: JobKind,
    pub listing: ListingId,
    pub asset: String,
    /// Of the coin that was moved, and of the chain's own.
    pub decimals: u8,
    pub jobs: u64,
    /// What was moved, in chain units.
    pub moved: RawAmount,
    /// In the chain's own coin.
    pub fee: RawAmount,
    /// Of those that rules have made.
    pub expected: RawAmount,
}

/// Rows that are in memory at a time.
const PAGE: i64 = 4_096;

statements! {
    /// A transaction of several payouts counts its fee once, with the first of them.
    PAGE_COSTS = "SELECT j.id, c.name, j.kind, j.listing_id, s.symbol, k.decimals, j.amount_raw, a.fee_raw, COALESCE(t.expected_cost_raw, '0'),
            j.id = (SELECT MIN(m.job_id) FROM outbound_slot_jobs m WHERE m.slot_id = a.slot_id), a.paid = 'in_full'
        FROM outbound_slot_jobs o JOIN outbound_jobs j ON j.id = o.job_id
            JOIN outbound_attempts a ON a.slot_id = o.slot_id AND a.mined_height IS NOT NULL
            JOIN chains c ON c.id = j.chain_id JOIN asset_on_chain k ON k.id = j.listing_id JOIN assets s ON s.id = k.asset_id
            LEFT JOIN treasury_jobs t ON t.job_id = j.id
        WHERE j.id > $1 AND a.created_at >= $2 ORDER BY j.id, o.slot_id LIMIT $3";
}

impl Db {
    /// What transactions that were made since a time have cost.
    pub async fn costs(&self, since: Timestamp) -> Result<Vec<CostRow>, StoreError> {
        type Row = (i64, String, String, i64, String, i64, String, Option<String>, String, bool, bool);
        let mut costs: BTreeMap<(String, JobKind, i64), CostRow> = BTreeMap::new();
        let tx = &mut self.read().await?;
        let mut after = i64::MIN;
        loop {
            let rows = fetch_all!(tx, PAGE_COSTS => Row, after, since.micros(), PAGE)?;
            let Some(last) = rows.last().map(|row| row.0) else { break };
            // A job may have several rows: the last one of a full page begins the next.
            let whole =
                rows.len() < usize::try_from(PAGE).unwrap_or(usize::MAX) || rows.iter().all(|row| row.0 == last);
            for (id, chain, kind, listing, asset, decimals, amount, fee, expected, first, paid) in rows {
                if id == last && !whole {
                    continue;
                }
                let kind = JobKind::parse(&kind).ok_or_else(|| malformed("kind"))?;
                let raw = |text: &str| text.parse::<RawAmount>().map_err(|_| malformed("amount"));
                let row = costs.entry((chain.clone(), kind, listing)).or_insert_with(|| CostRow {
                    chain,
                    kind,
                    listing: ListingId(listing),
                    asset,
                    decimals: u8::try_from(decimals).unwrap_or(0),
                    jobs: 0,
                    moved: RawAmount::ZERO,
                    fee: RawAmount::ZERO,
                    expected: RawAmount::ZERO,
                });
                if paid {
                    row.jobs += 1;
                    row.moved = sum(row.moved, raw(&amount)?);
                    row.expected = sum(row.expected, raw(&expected)?);
                }
                if first && let Some(fee) = fee {
                    row.fee = sum(row.fee, raw(&fee)?);
                }
            }
            after = if whole { last } else { last.saturating_sub(1) };
            if whole && after == i64::MAX {
                break;
            }
        }
        Ok(costs.into_values().collect())
    }
}

fn sum(one: RawAmount, other: RawAmount) -> RawAmount {
    let sum = RawSum::from(one).plus(RawSum::from(other));
    // More than a chain can have.
    sum.to_raw().unwrap_or_else(|| one.max(other))
}
