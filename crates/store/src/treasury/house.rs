//! Hot wallets with their bands: what each has, what open jobs will take and bring.
//!
//! On Bitcoin the wallets of a group pay with the same coins, and the Bitcoin wallet of the group's name knows what became of each from the moment
//! that its transaction is signed. So there a wallet has what its group has, and only jobs that nothing is signed for are still to take and bring.

use std::collections::{BTreeSet, HashMap};

use domain::treasury::{Band, CoinId, Former, HotCoin};
use domain::{Amount, ChainKind, GroupId, RawAmount, RawSum, Timestamp};

use super::act::TreasuryKind;
use super::malformed;
use super::pass::{FormerJob, Formers};
use crate::db::{Db, Tx};
use crate::dialect::Many;
use crate::entry::{ChainId, ChainRow, ListingId};
use crate::error::StoreError;

/// A hot wallet's coin with its band.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotRow {
    pub address: String,
    pub group: GroupId,
    pub index: i64,
    pub listing: ListingId,
    pub band: Band,
    /// All that it has by its entries, less what came above the final block. On Bitcoin all that the group's Bitcoin wallet has, less what strangers
    /// have paid above it.
    pub spendable: RawAmount,
    /// What open jobs will take out of it.
    pub leaving: RawAmount,
    /// What open jobs will bring.
    pub coming: RawAmount,
    /// Why nothing is sent from it, or from its group. Then nothing goes there either.
    pub stopped: Option<String>,
}

/// Wallets that nothing is sent from until people have looked. Their keys may be stolen, so nothing goes there either.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoppedWallets {
    pub groups: BTreeSet<GroupId>,
    /// Of the house, on one chain: those of which the lane alone is stopped too.
    pub addresses: BTreeSet<String>,
}

impl HotRow {
    /// The newest job of its band.
    pub fn former<'f>(&self, formers: &'f Formers, kind: TreasuryKind) -> Option<&'f FormerJob> {
        formers.get(&(self.address.clone(), self.listing, kind))
    }

    /// As decisions see it. A band's own job that is open, or not final, or has failed a moment ago, makes it wait.
    pub fn hot_coin(&self, formers: &Formers, now: Timestamp) -> HotCoin {
        let former = |kind| self.former(formers, kind).map_or(Former::Never, |job| job.former);
        let (refill, surplus) = (former(TreasuryKind::Refill), former(TreasuryKind::Surplus));
        HotCoin {
            coin: CoinId(self.listing.0),
            band: self.band,
            spendable: self.spendable.checked_sub(self.leaving).unwrap_or(RawAmount::ZERO),
            coming: self.coming,
            busy: !refill.is_settled() || surplus.is_busy(now),
            refill_rests: refill.is_busy(now),
            stopped: self.stopped.is_some(),
        }
    }
}

statements! {
    READ_BANDS = "SELECT w.address, g.name, w.derivation_index, b.listing_id, b.floor_amount, b.target_amount, b.ceiling_amount,
            COALESCE(n.stopped, g.outbound_stopped), COALESCE(x.on_chain_balance_raw, '0')
        FROM hot_bands b JOIN operation_wallet_addresses w ON w.id = b.operation_wallet_address_id AND w.is_active
            JOIN wallet_groups g ON g.id = w.wallet_group_id
            LEFT JOIN outbound_lanes n ON n.chain_id = w.chain_id AND n.address = w.address
            LEFT JOIN wallet_balances x ON x.chain_id = w.chain_id AND x.address = w.address AND x.listing_id = b.listing_id
        WHERE w.chain_id = $1 AND b.is_active ORDER BY w.id, b.listing_id";
    READ_STOPPED_GROUPS = "SELECT name FROM wallet_groups WHERE outbound_stopped IS NOT NULL";
    READ_STOPPED_WALLETS = "SELECT w.address FROM operation_wallet_addresses w JOIN outbound_lanes l ON l.chain_id = w.chain_id
            AND l.address = w.address AND l.stopped IS NOT NULL
        WHERE w.chain_id = $1";
    READ_RECENT_OF = "SELECT address, listing_id, amount_raw FROM chain_entries WHERE chain_id = $1 AND alive AND height > $2 AND side = 1
        AND address {in $3}";
    /// Of jobs that wait, and of those that are in an open slot: until the chain's own books have passed the block that paid them.
    READ_LEAVING = "SELECT l.address, j.listing_id, j.amount_raw FROM outbound_lanes l JOIN outbound_jobs j ON j.chain_id = l.chain_id
            AND j.lane_id = l.id AND j.waiting
        WHERE l.chain_id = $1 AND l.address {in $2}
        UNION ALL SELECT l.address, j.listing_id, j.amount_raw FROM outbound_lanes l JOIN outbound_slots s ON s.lane_id = l.id AND s.state = 'open'
            JOIN outbound_jobs j ON j.slot_id = s.id
        WHERE l.chain_id = $1 AND l.address {in $2} AND NOT EXISTS (SELECT 1 FROM outbound_attempts a WHERE a.slot_id = s.id
            AND a.mined_height <= (SELECT COALESCE(MAX(b.height), -1) FROM chain_blocks b WHERE b.chain_id = $1))";
    /// Of jobs that rules have made, until their coins are final where they go: a slot is open until that. A refill that people have not
    /// approved may never come.
    READ_COMING = "SELECT j.to_address, j.listing_id, j.amount_raw FROM outbound_jobs j JOIN treasury_jobs t ON t.job_id = j.id
        WHERE j.chain_id = $1 AND j.to_address {in $2} AND j.waiting AND t.kind <> 'refill'
        UNION ALL SELECT j.to_address, j.listing_id, j.amount_raw FROM outbound_slots s JOIN outbound_jobs j ON j.slot_id = s.id
            JOIN treasury_jobs t ON t.job_id = j.id
        WHERE s.state = 'open' AND j.chain_id = $1 AND j.to_address {in $2} AND (j.state <> 'confirmed' OR EXISTS (
            SELECT 1 FROM outbound_attempts a WHERE a.slot_id = j.slot_id AND a.mined_height > $3))";
    /// Bitcoin: all that the wallets of these names have.
    READ_GROUP_TOTALS = "SELECT w.name, CAST(SUM(t.confirmed + t.unconfirmed) AS BIGINT) FROM wallets w JOIN account_totals t ON t.wallet_id = w.id
        WHERE w.name {in $1} GROUP BY w.name";
    /// Bitcoin: what strangers pay them in blocks above one, or in none: it may never come.
    READ_GROUP_STRANGERS = "SELECT w.name, u.amount FROM wallets w
            JOIN transactions t ON t.wallet_id = w.id AND t.block_height IS NULL AND t.status IN ('pending', 'published')
            JOIN utxos u ON u.wallet_id = t.wallet_id AND u.tx_id = t.id AND u.spent_by_tx_id IS NULL AND u.valid
        WHERE w.name {in $1} AND NOT t.is_own
        UNION ALL SELECT w.name, u.amount FROM wallets w JOIN transactions t ON t.wallet_id = w.id AND t.block_height > $2
            JOIN utxos u ON u.wallet_id = t.wallet_id AND u.tx_id = t.id AND u.spent_by_tx_id IS NULL AND u.valid
        WHERE w.name {in $1} AND NOT t.is_own";
    /// Bitcoin: of jobs of these groups that nothing is signed for. By all their wallets, which pay with the same coins.
    READ_GROUP_LEAVING = "SELECT g.name, j.listing_id, j.amount_raw FROM wallet_groups g JOIN outbound_lanes l ON l.wallet_group_id = g.id
            JOIN outbound_jobs j ON j.chain_id = l.chain_id AND j.lane_id = l.id AND j.state IN ('queued', 'failed_retryable')
        WHERE l.chain_id = $1 AND g.name {in $2}
        UNION ALL SELECT g.name, j.listing_id, j.amount_raw FROM wallet_groups g JOIN outbound_lanes l ON l.wallet_group_id = g.id
            JOIN outbound_slots s ON s.lane_id = l.id AND s.state = 'open' JOIN outbound_jobs j ON j.slot_id = s.id
        WHERE l.chain_id = $1 AND g.name {in $2}
            AND NOT EXISTS (SELECT 1 FROM outbound_attempts a WHERE a.slot_id = s.id AND a.signed IS NOT NULL)";
    /// Bitcoin: of jobs that rules have made and nothing is signed for. A refill that people have not approved may never come.
    READ_UNSIGNED_COMING = "SELECT j.to_address, j.listing_id, j.amount_raw FROM outbound_jobs j JOIN treasury_jobs t ON t.job_id = j.id
        WHERE j.chain_id = $1 AND j.to_address {in $2} AND j.state IN ('queued', 'failed_retryable') AND t.kind <> 'refill'
        UNION ALL SELECT j.to_address, j.listing_id, j.amount_raw FROM outbound_slots s JOIN outbound_jobs j ON j.slot_id = s.id
            JOIN treasury_jobs t ON t.job_id = j.id
        WHERE s.state = 'open' AND j.chain_id = $1 AND j.to_address {in $2}
            AND NOT EXISTS (SELECT 1 FROM outbound_attempts a WHERE a.slot_id = s.id AND a.signed IS NOT NULL)";
}

/// A band with its wallet: address, group, index, coin, floor, target, ceiling, why it is stopped, balance.
type BandRow = (String, String, i64, i64, i64, i64, i64, Option<String>, String);

/// Amounts by address and coin.
type Sums = HashMap<(String, i64), RawSum>;

impl Db {
    /// The hot wallets of a chain that have bands, by blocks up to `settled`.
    pub async fn hot_wallets(&self, chain: &ChainRow, settled: i64) -> Result<Vec<HotRow>, StoreError> {
        let tx = &mut self.read().await?;
        let mut rows = fetch_all!(tx, READ_BANDS => BandRow, chain.id.0)?;
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let (came, leaving, coming) = if chain.kind == ChainKind::Bitcoin {
            with_groups(tx, chain, settled, &mut rows).await?
        } else {
            let addresses = Many(rows.iter().map(|row| row.0.clone()).collect::<Vec<String>>());
            let came = fetch_all!(tx, READ_RECENT_OF => (String, i64, String), chain.id.0, settled, addresses.clone())?;
            let leaving = fetch_all!(tx, READ_LEAVING => (String, i64, String), chain.id.0, addresses.clone())?;
            let coming = fetch_all!(tx, READ_COMING => (String, i64, String), chain.id.0, addresses.clone(), settled)?;
            (sums(came)?, sums(leaving)?, sums(coming)?)
        };
        let hot = |(address, group, index, listing, floor, target, ceiling, stopped, balance): BandRow| {
            let form = &chain.listing(ListingId(listing)).ok_or_else(|| malformed("coin"))?.form;
            let raw = |units| RawAmount::from_ledger(Amount::from_units(units), form).map_err(|_| malformed("amount"));
            let band = Band { floor: raw(floor)?, target: raw(target)?, ceiling: raw(ceiling)? };
            let balance: RawSum = balance.parse().map_err(|_| malformed("balance"))?;
            let key = (address, listing);
            let sum = |sums: &Sums| sums.get(&key).copied().unwrap_or(RawSum::ZERO);
            let amount = |sum: RawSum| sum.to_raw().unwrap_or(RawAmount::ZERO);
            Ok(HotRow {
                spendable: amount(balance.plus(-sum(&came))),
                leaving: amount(sum(&leaving)),
                coming: amount(sum(&coming)),
                address: key.0.clone(),
                group: group.parse().map_err(|_| malformed("group"))?,
                index,
                listing: ListingId(listing),
                band,
                stopped,
            })
        };
        rows.into_iter().map(hot).collect()
    }

    /// Groups that are stopped, and wallets of the house on a chain whose lanes are.
    pub async fn stopped_wallets(&self, chain: ChainId) -> Result<StoppedWallets, StoreError> {
        let tx = &mut self.read().await?;
        let groups = fetch_all!(tx, READ_STOPPED_GROUPS => (String,))?;
        let group = |(name,): (String,)| name.parse().map_err(|_| malformed("group"));
        let addresses = fetch_all!(tx, READ_STOPPED_WALLETS => (String,), chain.0)?;
        Ok(StoppedWallets {
            groups: groups.into_iter().map(group).collect::<Result<_, _>>()?,
            addresses: addresses.into_iter().map(|(address,)| address).collect(),
        })
    }
}

/// Bitcoin: each wallet has what its group has. What came, leaves and comes beside that, by addresses as everywhere.
async fn with_groups(
    tx: &mut Tx,
    chain: &ChainRow,
    settled: i64,
    rows: &mut [BandRow],
) -> Result<(Sums, Sums, Sums), StoreError> {
    let groups = Many(rows.iter().map(|row| row.1.clone()).collect::<Vec<String>>());
    let addresses = Many(rows.iter().map(|row| row.0.clone()).collect::<Vec<String>>());
    let totals = fetch_all!(tx, READ_GROUP_TOTALS => (String, i64), groups.clone())?;
    let mut totals: HashMap<String, i64> = totals.into_iter().collect();
    for (group, amount) in fetch_all!(tx, READ_GROUP_STRANGERS => (String, i64), groups.clone(), settled)? {
        totals.entry(group).and_modify(|total| *total = total.saturating_sub(amount));
    }
    let leaving = fetch_all!(tx, READ_GROUP_LEAVING => (String, i64, String), chain.id.0, groups.clone())?;
    let of_groups = sums(leaving)?;
    let coming = fetch_all!(tx, READ_UNSIGNED_COMING => (String, i64, String), chain.id.0, addresses.clone())?;
    let mut leaving = Sums::new();
    for (address, group, _, listing, .., balance) in rows.iter_mut() {
        *balance = totals.get(group).copied().unwrap_or(0).to_string();
        let sum = of_groups.get(&(group.clone(), *listing)).copied();
        leaving.extend(sum.map(|sum| ((address.clone(), *listing), sum)));
    }
    Ok((Sums::new(), leaving, sums(coming)?))
}

fn sums(rows: Vec<(String, i64, String)>) -> Result<Sums, StoreError> {
    let mut sums = Sums::new();
    for (address, listing, amount) in rows {
        let amount: RawSum = amount.parse().map_err(|_| malformed("amount"))?;
        let sum = sums.entry((address, listing)).or_insert(RawSum::ZERO);
        *sum = sum.plus(amount);
    }
    Ok(sums)
}
