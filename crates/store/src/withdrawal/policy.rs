//! Policies for withdrawals: each version is a row that nobody changes, and the newest holds.

use std::collections::HashMap;

use domain::withdrawal::{FeeRule, PolicyError, Velocity, WhenShort, WithdrawalPolicy};
use domain::{Amount, Timestamp};

use super::types::malformed;
use crate::catalog::Author;
use crate::db::{Db, Tx};
use crate::dialect::Many;
use crate::entry::ListingId;
use crate::error::StoreError;
use crate::transact;

/// A version of a policy: who made it, when and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRow {
    pub policy: WithdrawalPolicy,
    pub actor: String,
    pub reason: String,
    pub at: Timestamp,
}

/// What came of a policy that was to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicySet {
    /// It holds from now on, as this version.
    New(i64),
    /// The newest version says the same.
    Same(i64),
    NoSuchListing,
    Refused(PolicyError),
}

pub(crate) const COLUMNS: &str = "listing_id, version, is_enabled, is_incident, min_amount, max_amount, fee_fixed, fee_share_bps, fee_least, \
    auto_approve, two_above, many_above, many_people, daily_user, daily_total, velocity_count, velocity_window_us, cooling_off_us, book_only, \
    auto_approve_daily, when_short, life_us, actor, reason, at";

statements! {
    /// Two who write a policy of the same coin take turns.
    LOCK_LISTING = "SELECT id FROM asset_on_chain WHERE id = $1 {FOR UPDATE}";
    READ_POLICIES(COLUMNS) = "SELECT {columns p} FROM withdrawal_policies p WHERE p.listing_id {in $1}
        AND p.version = (SELECT MAX(n.version) FROM withdrawal_policies n WHERE n.listing_id = p.listing_id)";
    READ_POLICY_HISTORY(COLUMNS) = "SELECT {columns} FROM withdrawal_policies WHERE listing_id = $1 ORDER BY version";
    INSERT_POLICY = "INSERT INTO withdrawal_policies (listing_id, version, is_enabled, is_incident, min_amount, max_amount, fee_fixed, fee_share_bps,
            fee_least, auto_approve, two_above, many_above, many_people, daily_user, daily_total, velocity_count, velocity_window_us, cooling_off_us,
            book_only, auto_approve_daily, when_short, life_us, actor, reason, at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25)";
}

struct Columns {
    listing: i64,
    version: i64,
    enabled: bool,
    incident: bool,
    min: i64,
    max: i64,
    fee_fixed: i64,
    fee_share_bps: i64,
    fee_least: i64,
    auto_approve: i64,
    two_above: i64,
    many_above: i64,
    many: i64,
    daily_user: Option<i64>,
    daily_total: Option<i64>,
    velocity_count: Option<i64>,
    velocity_window: Option<i64>,
    cooling_off: i64,
    book_only: bool,
    auto_approve_daily: Option<i64>,
    when_short: String,
    life_us: i64,
    actor: String,
    reason: String,
    at: i64,
}

from_row!(Columns {
    listing = "listing_id",
    version = "version",
    enabled = "is_enabled",
    incident = "is_incident",
    min = "min_amount",
    max = "max_amount",
    fee_fixed = "fee_fixed",
    fee_share_bps = "fee_share_bps",
    fee_least = "fee_least",
    auto_approve = "auto_approve",
    two_above = "two_above",
    many_above = "many_above",
    many = "many_people",
    daily_user = "daily_user",
    daily_total = "daily_total",
    velocity_count = "velocity_count",
    velocity_window = "velocity_window_us",
    cooling_off = "cooling_off_us",
    book_only = "book_only",
    auto_approve_daily = "auto_approve_daily",
    when_short = "when_short",
    life_us = "life_us",
    actor = "actor",
    reason = "reason",
    at = "at",
});

fn policy_row(row: Columns) -> Result<(ListingId, PolicyRow), StoreError> {
    let count = |number: i64| u32::try_from(number).map_err(|_| malformed("policy"));
    let units = Amount::from_units;
    let velocity = match row.velocity_count.zip(row.velocity_window) {
        Some((most, window_us)) => Some(Velocity { count: count(most)?, window_us }),
        None => None,
    };
    let policy = WithdrawalPolicy {
        version: row.version,
        enabled: row.enabled,
        incident: row.incident,
        min: units(row.min),
        max: units(row.max),
        fee: FeeRule { fixed: units(row.fee_fixed), share_bps: count(row.fee_share_bps)?, least: units(row.fee_least) },
        auto_approve: units(row.auto_approve),
        auto_approve_daily: row.auto_approve_daily.map(units),
        two_above: units(row.two_above),
        many_above: units(row.many_above),
        many: count(row.many)?,
        daily_user: row.daily_user.map(units),
        daily_total: row.daily_total.map(units),
        velocity,
        cooling_off_us: row.cooling_off,
        book_only: row.book_only,
        when_short: WhenShort::parse(&row.when_short).ok_or_else(|| malformed("policy"))?,
        life_us: row.life_us,
    };
    // One that makes no sense was written by hand, and nothing is decided by it.
    policy.check().map_err(|_| malformed("policy"))?;
    let at = Timestamp::from_micros(row.at);
    Ok((ListingId(row.listing), PolicyRow { policy, actor: row.actor, reason: row.reason, at }))
}

impl Db {
    /// Makes this the newest version of the policy, whatever version it says itself. One that says the same as the newest changes nothing.
    pub async fn set_withdrawal_policy(
        &self,
        listing: ListingId,
        policy: &WithdrawalPolicy,
        author: &Author<'_>,
        at: Timestamp,
    ) -> Result<PolicySet, StoreError> {
        if let Err(error) = policy.check() {
            return Ok(PolicySet::Refused(error));
        }
        transact!(self, tx => set(tx, listing, policy, author, at).await)
    }

    /// All versions, the oldest first.
    pub async fn withdrawal_policies(&self, listing: ListingId) -> Result<Vec<PolicyRow>, StoreError> {
        let rows = fetch_all!(&mut self.read().await?, READ_POLICY_HISTORY => Columns, listing.0)?;
        rows.into_iter().map(|row| policy_row(row).map(|(_, policy)| policy)).collect()
    }
}

async fn set(
    tx: &mut Tx,
    listing: ListingId,
    policy: &WithdrawalPolicy,
    author: &Author<'_>,
    at: Timestamp,
) -> Result<PolicySet, StoreError> {
    if fetch_optional!(tx, LOCK_LISTING => (i64,), listing.0)?.is_none() {
        return Ok(PolicySet::NoSuchListing);
    }
    let before = newest(tx, &[listing]).await?.remove(&listing);
    let newest = before.as_ref().map_or(0, |before| before.version);
    if before.is_some_and(|before| before == WithdrawalPolicy { version: newest, ..policy.clone() }) {
        return Ok(PolicySet::Same(newest));
    }
    let version = newest.checked_add(1).ok_or_else(|| malformed("policy"))?;
    let velocity = policy.velocity;
    execute!(
        tx,
        INSERT_POLICY,
        listing.0,
        version,
        policy.enabled,
        policy.incident,
        policy.min.units(),
        policy.max.units(),
        policy.fee.fixed.units(),
        i64::from(policy.fee.share_bps),
        policy.fee.least.units(),
        policy.auto_approve.units(),
        policy.two_above.units(),
        policy.many_above.units(),
        i64::from(policy.many),
        policy.daily_user.map(Amount::units),
        policy.daily_total.map(Amount::units),
        velocity.map(|velocity| i64::from(velocity.count)),
        velocity.map(|velocity| velocity.window_us),
        policy.cooling_off_us,
        policy.book_only,
        policy.auto_approve_daily.map(Amount::units),
        policy.when_short.as_str(),
        policy.life_us,
        author.actor,
        author.reason,
        at.micros()
    )?;
    Ok(PolicySet::New(version))
}

/// The newest version of each, as far as there is one.
pub(crate) async fn newest(
    tx: &mut Tx,
    listings: &[ListingId],
) -> Result<HashMap<ListingId, WithdrawalPolicy>, StoreError> {
    let listings = Many(listings.iter().map(|listing| listing.0).collect::<Vec<i64>>());
    let rows = fetch_all!(tx, READ_POLICIES => Columns, listings.clone())?;
    rows.into_iter().map(|row| policy_row(row).map(|(listing, row)| (listing, row.policy))).collect()
}
