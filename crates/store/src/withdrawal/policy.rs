//! Policies for withdrawals: each version is a row that nobody changes, and the newest holds.

use std::collections::{BTreeSet, HashMap};

use domain::withdrawal::{FeeRule, PolicyError, Velocity, WhenShort, WithdrawalPolicy};
use domain::{Amount, Timestamp};

use super::types::malformed;
use crate::catalog::Author;
use crate::db::{Db, Tx};
use crate::dialect::Many;
use crate::entry::ListingId;
use crate::error::StoreError;
use crate::rows::{Column, ColumnType::Int, ColumnType::Text, RowsSql, execute_rows, fetch_rows};
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
    quote_life_us, auto_approve_daily, when_short, life_us, actor, reason, at";

statements! {
    /// Two who write a policy of the same coin take turns.
    LOCK_LISTING = "SELECT id FROM asset_on_chain WHERE id = $1 {FOR UPDATE}";
    READ_POLICIES(COLUMNS) = "SELECT {columns p} FROM withdrawal_policies p WHERE p.listing_id {in $1}
        AND p.version = (SELECT MAX(n.version) FROM withdrawal_policies n WHERE n.listing_id = p.listing_id)";
    READ_POLICY_HISTORY(COLUMNS) = "SELECT {columns} FROM withdrawal_policies WHERE listing_id = $1 ORDER BY version";
    /// The newest of every coin that has one.
    READ_ALL_POLICIES(COLUMNS) = "SELECT {columns p} FROM withdrawal_policies p
        WHERE p.version = (SELECT MAX(n.version) FROM withdrawal_policies n WHERE n.listing_id = p.listing_id)";
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
    quote_life: i64,
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
    quote_life = "quote_life_us",
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
        quote_life_us: row.quote_life,
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

    /// The newest version of every coin that has a policy.
    pub async fn newest_withdrawal_policies(&self) -> Result<HashMap<ListingId, PolicyRow>, StoreError> {
        newest_rows(&mut self.read().await?).await
    }

    /// All versions, the oldest first.
    pub async fn withdrawal_policies(&self, listing: ListingId) -> Result<Vec<PolicyRow>, StoreError> {
        let rows = fetch_all!(&mut self.read().await?, READ_POLICY_HISTORY => Columns, listing.0)?;
        rows.into_iter().map(|row| policy_row(row).map(|(_, policy)| policy)).collect()
    }
}

pub(crate) async fn newest_rows(tx: &mut Tx) -> Result<HashMap<ListingId, PolicyRow>, StoreError> {
    fetch_all!(tx, READ_ALL_POLICIES => Columns)?.into_iter().map(policy_row).collect()
}

static INSERT_POLICIES: RowsSql = RowsSql::new(
    "INSERT_POLICIES",
    "INSERT INTO withdrawal_policies (listing_id, version, is_enabled, is_incident, min_amount, max_amount, fee_fixed, fee_share_bps, fee_least,
         auto_approve, two_above, many_above, many_people, daily_user, daily_total, velocity_count, velocity_window_us, cooling_off_us, book_only,
         quote_life_us, auto_approve_daily, when_short, life_us, actor, reason, at)
     SELECT r.listing_id, r.version, r.enabled = 1, r.incident = 1, r.min_amount, r.max_amount, r.fee_fixed, r.fee_share_bps, r.fee_least,
         r.auto_approve, r.two_above, r.many_above, r.many_people, r.daily_user, r.daily_total, r.velocity_count, r.velocity_window_us,
         r.cooling_off_us, r.book_only = 1, r.quote_life_us, r.auto_approve_daily, r.when_short, r.life_us, r.actor, r.reason, r.at FROM {rows}",
    &[
        ("listing_id", Int),
        ("version", Int),
        ("enabled", Int),
        ("incident", Int),
        ("min_amount", Int),
        ("max_amount", Int),
        ("fee_fixed", Int),
        ("fee_share_bps", Int),
        ("fee_least", Int),
        ("auto_approve", Int),
        ("two_above", Int),
        ("many_above", Int),
        ("many_people", Int),
        ("daily_user", Int),
        ("daily_total", Int),
        ("velocity_count", Int),
        ("velocity_window_us", Int),
        ("cooling_off_us", Int),
        ("book_only", Int),
        ("quote_life_us", Int),
        ("auto_approve_daily", Int),
        ("when_short", Text),
        ("life_us", Int),
        ("actor", Text),
        ("reason", Text),
        ("at", Int),
    ],
);

/// Writes these versions. Their listings are locked, and each is the one behind the newest.
pub(crate) async fn insert(
    tx: &mut Tx,
    policies: &[(ListingId, WithdrawalPolicy)],
    author: &Author<'_>,
    at: Timestamp,
) -> Result<(), StoreError> {
    let ints = |each: &dyn Fn(&WithdrawalPolicy) -> i64| {
        Column::Ints(policies.iter().map(|(_, policy)| each(policy)).collect::<Vec<i64>>())
    };
    let maybe = |each: &dyn Fn(&WithdrawalPolicy) -> Option<i64>| {
        Column::OptionalInts(policies.iter().map(|(_, policy)| each(policy)).collect())
    };
    let columns = vec![
        Column::Ints(policies.iter().map(|(listing, _)| listing.0).collect()),
        ints(&|policy| policy.version),
        ints(&|policy| policy.enabled.into()),
        ints(&|policy| policy.incident.into()),
        ints(&|policy| policy.min.units()),
        ints(&|policy| policy.max.units()),
        ints(&|policy| policy.fee.fixed.units()),
        ints(&|policy| policy.fee.share_bps.into()),
        ints(&|policy| policy.fee.least.units()),
        ints(&|policy| policy.auto_approve.units()),
        ints(&|policy| policy.two_above.units()),
        ints(&|policy| policy.many_above.units()),
        ints(&|policy| policy.many.into()),
        maybe(&|policy| policy.daily_user.map(Amount::units)),
        maybe(&|policy| policy.daily_total.map(Amount::units)),
        maybe(&|policy| policy.velocity.map(|velocity| velocity.count.into())),
        maybe(&|policy| policy.velocity.map(|velocity| velocity.window_us)),
        ints(&|policy| policy.cooling_off_us),
        ints(&|policy| policy.book_only.into()),
        ints(&|policy| policy.quote_life_us),
        maybe(&|policy| policy.auto_approve_daily.map(Amount::units)),
        Column::Texts(policies.iter().map(|(_, policy)| policy.when_short.as_str()).collect()),
        ints(&|policy| policy.life_us),
        Column::Texts(vec![author.actor; policies.len()]),
        Column::Texts(vec![author.reason; policies.len()]),
        Column::Ints(vec![at.micros(); policies.len()]),
    ];
    execute_rows(tx, &INSERT_POLICIES, columns).await.map(|_| ())
}

/// What a version of a policy says of its fee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FeeVersion {
    pub rule: FeeRule,
    pub quote_life_us: i64,
    /// When the version after it was made.
    pub superseded: Option<Timestamp>,
}

static READ_FEE_VERSIONS: RowsSql = RowsSql::new(
    "READ_FEE_VERSIONS",
    "SELECT r.listing_id, r.version, p.fee_fixed, p.fee_share_bps, p.fee_least, p.quote_life_us, n.at
     FROM {rows} {join} withdrawal_policies p ON p.listing_id = r.listing_id AND p.version = r.version
         LEFT JOIN withdrawal_policies n ON n.listing_id = r.listing_id AND n.version = r.version + 1",
    &[("listing_id", Int), ("version", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 2] = [&INSERT_POLICIES, &READ_FEE_VERSIONS];

/// Those of these versions that there are.
pub(crate) async fn fee_versions(
    tx: &mut Tx,
    wanted: &BTreeSet<(ListingId, i64)>,
) -> Result<HashMap<(ListingId, i64), FeeVersion>, StoreError> {
    if wanted.is_empty() {
        return Ok(HashMap::new());
    }
    let columns = vec![
        Column::Ints(wanted.iter().map(|(listing, _)| listing.0).collect()),
        Column::Ints(wanted.iter().map(|(_, version)| *version).collect()),
    ];
    type Row = (i64, i64, i64, i64, i64, i64, Option<i64>);
    let rows: Vec<Row> = fetch_rows(tx, &READ_FEE_VERSIONS, columns).await?;
    let one = |(listing, version, fixed, share_bps, least, quote_life_us, superseded): Row| {
        let (fixed, least) = (Amount::from_units(fixed), Amount::from_units(least));
        let share_bps = u32::try_from(share_bps).map_err(|_| malformed("policy"))?;
        let superseded = superseded.map(Timestamp::from_micros);
        let rule = FeeRule { fixed, share_bps, least };
        Ok(((ListingId(listing), version), FeeVersion { rule, quote_life_us, superseded }))
    };
    rows.into_iter().map(one).collect()
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
    insert(tx, &[(listing, WithdrawalPolicy { version, ..policy.clone() })], author, at).await?;
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
