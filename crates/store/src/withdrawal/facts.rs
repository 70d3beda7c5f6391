//! What a verdict rests on. All of it is read after the customers' accounts are locked, so that nobody spends or credits the same money meanwhile.

use std::collections::{BTreeSet, HashMap};

use domain::outbound::OutboundLimits;
use domain::{Amount, AssetId, Availability, ChainKind, GroupId, RawAmount, Timestamp, UserId};

use super::create::NewWithdrawal;
use super::types::{Columns, WithdrawalRow, day_of, day_start, malformed, withdrawal_rows};
use crate::db::Tx;
use crate::dialect::Many;
use crate::entry::{ChainId, ListingId};
use crate::error::StoreError;
use crate::ledger::balances::join_halves;
use crate::rows::{Column, ColumnType::Int, ColumnType::Text, RowsSql, Writes, execute_rows, fetch_rows};

statements! {
    /// With the hot wallets' group that is next in turn, one that sends before one that is stopped, or that waits for what another program has sent.
    READ_COINS = "SELECT l.id, l.asset_id, l.chain_id, c.kind, c.fee_cap, (SELECT g.name FROM operation_wallet_addresses w
                JOIN wallet_groups g ON g.id = w.wallet_group_id JOIN chains n ON n.id = w.chain_id
                LEFT JOIN outbound_lanes o ON o.chain_id = w.chain_id AND o.address = w.address
            WHERE w.chain_id = l.chain_id AND w.is_active AND w.role = 'hot'
            ORDER BY COALESCE(o.stopped, g.outbound_stopped) IS NOT NULL OR n.kind = 'evm' AND EXISTS (SELECT 1 FROM outbound_slots s
                WHERE s.lane_id = o.id AND s.state = 'open' AND s.imported), COALESCE(w.last_used_at, -1), w.id LIMIT 1)
        FROM asset_on_chain l JOIN chains c ON c.id = l.chain_id WHERE l.id {in $1}";
    READ_SWITCHES = "SELECT l.id, c.status, CASE WHEN a.status = 'active' THEN l.status ELSE a.status END
        FROM asset_on_chain l JOIN chains c ON c.id = l.chain_id JOIN assets a ON a.id = l.asset_id WHERE l.id {in $1}";
    /// Whoever takes or gives back something of a coin that nobody counts today. As long as one of them is under way nobody begins to count: the sum
    /// would miss what they have done, and they have not seen that there is a sum. SQLite has one writer.
    LOCK_UNCOUNTED = "SELECT pg_advisory_xact_lock_shared(4848291, CAST(n AS INTEGER))::TEXT FROM UNNEST($1::BIGINT[]) AS n"
        | "SELECT value FROM json_each($1) WHERE FALSE";
    /// Whoever begins to count a coin waits until those are done, and lets none begin.
    LOCK_FIRST_COUNT = "SELECT pg_advisory_xact_lock(4848291, CAST(n AS INTEGER))::TEXT FROM UNNEST($1::BIGINT[]) AS n"
        | "SELECT value FROM json_each($1) WHERE FALSE";
    /// In one order, as all who count.
    LOCK_WITHDRAWAL_DAYS = "SELECT listing_id, day, used FROM withdrawal_days WHERE listing_id {in $1} AND day {in $2}
        ORDER BY listing_id, day {FOR UPDATE}";
}

static READ_BY_ORDERS: RowsSql = RowsSql::listing(
    "READ_WITHDRAWALS_BY_ORDERS",
    "SELECT {columns w} FROM {rows} {join} withdrawal_requests w ON w.user_id = r.user_id AND w.client_order_id = r.name",
    super::types::COLUMNS,
    &[("user_id", Int), ("name", Text)],
);

/// What a user has asked for since the day began, how much of it nobody had to agree to, and how often since the window did.
static READ_USE: RowsSql = RowsSql::new(
    "READ_WITHDRAWAL_USE",
    "SELECT r.user_id, r.listing_id,
         CAST(COALESCE(SUM(CASE WHEN w.created_at >= r.day_start AND w.status NOT IN ('failed', 'rejected', 'cancelled') THEN w.amount END), 0)
             AS BIGINT),
         CAST(COALESCE(SUM(CASE WHEN w.created_at >= r.day_start AND w.people = 0 AND w.status NOT IN ('failed', 'rejected', 'cancelled')
             THEN w.amount END), 0) AS BIGINT),
         CAST(SUM(CASE WHEN w.created_at > r.window_start THEN 1 ELSE 0 END) AS BIGINT)
     FROM {rows} {join} withdrawal_requests w ON w.user_id = r.user_id AND w.listing_id = r.listing_id AND w.created_at >= r.first
     GROUP BY r.user_id, r.listing_id",
    &[("user_id", Int), ("listing_id", Int), ("first", Int), ("day_start", Int), ("window_start", Int)],
);

/// What chains could still take back of a user's money, in two halves: it may be more than 64 bits. What was final and has left its chain all the same
/// counts until the books have taken it back: it is found by what is due at once, of which there is next to nothing, and not by all that is final or all that
/// the user was ever paid.
static READ_NOT_FINAL: RowsSql = RowsSql::new(
    "READ_NOT_FINAL",
    "SELECT r.user_id, r.asset_id,
         CAST(COALESCE((SELECT SUM(d.amount >> 32) FROM deposits d WHERE d.user_id = r.user_id AND d.state = 'credited'
             AND (SELECT l.asset_id FROM asset_on_chain l WHERE l.id = d.listing_id) = r.asset_id), 0)
           + COALESCE((SELECT SUM((SELECT SUM(d.amount >> 32) FROM chain_entries b JOIN deposits d ON d.id = b.reverses
                 WHERE b.chain_id = l.chain_id AND b.posting = 0 AND b.due_height <= 0 AND b.listing_id = l.id
                     AND d.user_id = r.user_id AND d.state <> 'credited'))
             FROM asset_on_chain l WHERE l.asset_id = r.asset_id), 0) AS BIGINT),
         CAST(COALESCE((SELECT SUM(d.amount & 4294967295) FROM deposits d WHERE d.user_id = r.user_id AND d.state = 'credited'
             AND (SELECT l.asset_id FROM asset_on_chain l WHERE l.id = d.listing_id) = r.asset_id), 0)
           + COALESCE((SELECT SUM((SELECT SUM(d.amount & 4294967295) FROM chain_entries b JOIN deposits d ON d.id = b.reverses
                 WHERE b.chain_id = l.chain_id AND b.posting = 0 AND b.due_height <= 0 AND b.listing_id = l.id
                     AND d.user_id = r.user_id AND d.state <> 'credited'))
             FROM asset_on_chain l WHERE l.asset_id = r.asset_id), 0) AS BIGINT)
     FROM {rows}",
    &[("user_id", Int), ("asset_id", Int)],
);

static READ_DESTINATIONS: RowsSql = RowsSql::new(
    "READ_DESTINATIONS",
    "SELECT r.user_id, r.chain_id, r.address,
         (SELECT MIN(b.added_at) FROM withdrawal_addresses b
             WHERE b.user_id = r.user_id AND b.chain_id = r.chain_id AND b.address = r.address AND b.removed_at IS NULL),
         (SELECT MIN(w.created_at) FROM withdrawal_requests w
             WHERE w.user_id = r.user_id AND w.chain_id = r.chain_id AND w.to_address = r.address AND w.status = 'completed'),
         CAST(CASE WHEN EXISTS (SELECT 1 FROM operation_wallet_addresses o WHERE o.address = r.address)
             THEN 1 ELSE 0 END AS BIGINT),
         CAST(CASE WHEN EXISTS (SELECT 1 FROM user_wallets u WHERE u.address = r.address AND u.user_id = r.user_id) THEN 1 ELSE 0 END AS BIGINT)
     FROM {rows}",
    &[("user_id", Int), ("chain_id", Int), ("address", Text)],
);

/// What was asked for on a day that nobody has counted yet. By another server's clock the next day may have begun.
static SUM_DAYS: RowsSql = RowsSql::new(
    "SUM_WITHDRAWAL_DAYS",
    "SELECT r.listing_id, CAST(SUM(w.amount >> 32) AS BIGINT), CAST(SUM(w.amount & 4294967295) AS BIGINT)
     FROM {rows} {join} withdrawal_requests w ON w.listing_id = r.listing_id AND w.created_at >= r.day_start
         AND w.created_at < r.day_start + 86400000000
     WHERE w.status NOT IN ('failed', 'rejected', 'cancelled') GROUP BY r.listing_id",
    &[("listing_id", Int), ("day_start", Int)],
);

static MAKE_DAYS: RowsSql = RowsSql::new(
    "MAKE_WITHDRAWAL_DAYS",
    "INSERT INTO withdrawal_days (listing_id, day, used) SELECT r.listing_id, r.day, r.used FROM {rows} WHERE true
     ORDER BY r.listing_id ON CONFLICT (listing_id, day) DO NOTHING",
    &[("listing_id", Int), ("day", Int), ("used", Int)],
);

static SET_DAYS: RowsSql = RowsSql::new(
    "SET_WITHDRAWAL_DAYS",
    "UPDATE withdrawal_days SET used = r.used FROM {rows} WHERE withdrawal_days.listing_id = r.listing_id AND withdrawal_days.day = r.day",
    &[("listing_id", Int), ("day", Int), ("used", Int)],
);

#[cfg(feature = "testing")]
pub(crate) static ROWS_STATEMENTS: [&RowsSql; 7] =
    [&READ_BY_ORDERS, &READ_USE, &READ_NOT_FINAL, &READ_DESTINATIONS, &SUM_DAYS, &MAKE_DAYS, &SET_DAYS];

/// What an asset on a chain is, and what pays it there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Coin {
    pub asset: AssetId,
    pub chain: ChainId,
    /// The most that a payment may cost, in the chain's own coin.
    pub network_fee: RawAmount,
    /// The wallet group that is next in turn. `None`: no hot wallet is active on the chain.
    pub group: Option<GroupId>,
}

pub(crate) fn listing_numbers(listings: impl Iterator<Item = ListingId>) -> Many<i64> {
    let distinct: BTreeSet<i64> = listings.map(|listing| listing.0).collect();
    Many(distinct.into_iter().collect())
}

pub(crate) async fn coins(tx: &mut Tx, new: &[NewWithdrawal]) -> Result<HashMap<ListingId, Coin>, StoreError> {
    coins_of(tx, new.iter().map(|one| one.listing)).await
}

pub(crate) async fn coins_of(
    tx: &mut Tx,
    listings: impl Iterator<Item = ListingId>,
) -> Result<HashMap<ListingId, Coin>, StoreError> {
    let listings = listing_numbers(listings);
    type Row = (i64, i64, i64, String, Option<String>, Option<String>);
    let rows = fetch_all!(tx, READ_COINS => Row, listings.clone())?;
    let coin = |(id, asset, chain, kind, cap, group): Row| {
        let kind = ChainKind::parse(&kind).ok_or_else(|| malformed("kind of chain"))?;
        let network_fee = match cap {
            Some(cap) => cap.parse().map_err(|_| malformed("fee"))?,
            None => OutboundLimits::usual(kind).fee_cap,
        };
        let group = group.map(|name| name.parse().map_err(|_| malformed("wallet group"))).transpose()?;
        Ok((ListingId(id), Coin { asset: AssetId(asset), chain: ChainId(chain), network_fee, group }))
    };
    rows.into_iter().map(coin).collect()
}

/// Whether the chain, and whether the asset and its form on it are active.
pub(crate) type Switches = HashMap<ListingId, (Availability, Availability)>;

pub(crate) async fn switches(tx: &mut Tx, listings: impl Iterator<Item = ListingId>) -> Result<Switches, StoreError> {
    let listings = listing_numbers(listings);
    let rows = fetch_all!(tx, READ_SWITCHES => (i64, String, String), listings.clone())?;
    let status = |text: &str| Availability::parse(text).ok_or_else(|| malformed("switch"));
    rows.into_iter().map(|(id, chain, asset)| Ok((ListingId(id), (status(&chain)?, status(&asset)?)))).collect()
}

/// The withdrawals that these users have asked for under these names before.
pub(crate) async fn earlier(
    tx: &mut Tx,
    names: impl Iterator<Item = (UserId, &str)>,
) -> Result<Vec<WithdrawalRow>, StoreError> {
    let names: BTreeSet<(i64, &str)> = names.map(|(user, name)| (user.get(), name)).collect();
    let columns = vec![
        Column::Ints(names.iter().map(|(user, _)| *user).collect()),
        Column::Texts(names.iter().map(|(_, name)| *name).collect()),
    ];
    let rows: Vec<Columns> = fetch_rows(tx, &READ_BY_ORDERS, columns).await?;
    withdrawal_rows(rows)
}

/// What a user has asked for of a coin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UserUse {
    pub today: Amount,
    /// Of that, what nobody had to agree to.
    pub auto_approved: Amount,
    /// How often in the policy's window.
    pub recent: i64,
}

pub(crate) type Use = HashMap<(UserId, ListingId), UserUse>;

/// `windows` says how long each policy's window is.
pub(crate) async fn used(
    tx: &mut Tx,
    pairs: &BTreeSet<(UserId, ListingId)>,
    windows: &HashMap<ListingId, i64>,
    at: Timestamp,
) -> Result<Use, StoreError> {
    let day = day_start(at).micros();
    let window = |listing: &ListingId| at.micros().saturating_sub(windows.get(listing).copied().unwrap_or(0));
    let starts: Vec<i64> = pairs.iter().map(|(_, listing)| window(listing)).collect();
    let columns = vec![
        Column::Ints(pairs.iter().map(|(user, _)| user.get()).collect()),
        Column::Ints(pairs.iter().map(|(_, listing)| listing.0).collect()),
        Column::Ints(starts.iter().map(|start| day.min(*start)).collect()),
        Column::Ints(vec![day; pairs.len()]),
        Column::Ints(starts),
    ];
    let rows: Vec<(i64, i64, i64, i64, i64)> = fetch_rows(tx, &READ_USE, columns).await?;
    let one = |(user, listing, today, auto_approved, recent)| {
        let user = UserId::new(user).ok_or_else(|| malformed("user"))?;
        let (today, auto_approved) = (Amount::from_units(today), Amount::from_units(auto_approved));
        Ok(((user, ListingId(listing)), UserUse { today, auto_approved, recent }))
    };
    rows.into_iter().map(one).collect()
}

/// What does not fit counts as the most there is: nothing is withdrawable then, or nothing more.
fn saturated(high: i64, low: i64) -> Amount {
    i64::try_from(join_halves(high, low)).map_or(Amount::MAX, Amount::from_units)
}

pub(crate) async fn not_final(
    tx: &mut Tx,
    pairs: &BTreeSet<(UserId, AssetId)>,
) -> Result<HashMap<(UserId, AssetId), Amount>, StoreError> {
    let columns = vec![
        Column::Ints(pairs.iter().map(|(user, _)| user.get()).collect()),
        Column::Ints(pairs.iter().map(|(_, asset)| asset.0).collect()),
    ];
    let rows: Vec<(i64, i64, i64, i64)> = fetch_rows(tx, &READ_NOT_FINAL, columns).await?;
    let one = |(user, asset, high, low)| {
        let user = UserId::new(user).ok_or_else(|| malformed("user"))?;
        Ok(((user, AssetId(asset)), saturated(high, low)))
    };
    rows.into_iter().map(one).collect()
}

/// What is known of a destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Destination {
    pub in_book_since: Option<Timestamp>,
    pub paid_since: Option<Timestamp>,
    pub house_wallet: bool,
    pub own_address: bool,
}

pub(crate) type DestinationKey = (UserId, ChainId, String);

pub(crate) async fn destinations(
    tx: &mut Tx,
    keys: &BTreeSet<DestinationKey>,
) -> Result<HashMap<DestinationKey, Destination>, StoreError> {
    let columns = vec![
        Column::Ints(keys.iter().map(|(user, _, _)| user.get()).collect()),
        Column::Ints(keys.iter().map(|(_, chain, _)| chain.0).collect()),
        Column::Texts(keys.iter().map(|(_, _, address)| address.as_str()).collect()),
    ];
    type Row = (i64, i64, String, Option<i64>, Option<i64>, i64, i64);
    let rows: Vec<Row> = fetch_rows(tx, &READ_DESTINATIONS, columns).await?;
    let one = |(user, chain, address, in_book, paid, house, own): Row| {
        let user = UserId::new(user).ok_or_else(|| malformed("user"))?;
        let destination = Destination {
            in_book_since: in_book.map(Timestamp::from_micros),
            paid_since: paid.map(Timestamp::from_micros),
            house_wallet: house != 0,
            own_address: own != 0,
        };
        Ok(((user, ChainId(chain), address), destination))
    };
    rows.into_iter().map(one).collect()
}

/// How much of each coin all have asked for today, where somebody counts it: because a policy limits it, or did so earlier today. Those rows are
/// locked, so that two that ask at once take turns.
///
/// Who read the policies a moment before a limit was set counts nothing, and has perhaps not committed: so whoever makes the first sum of a day waits for
/// all of them, and adds up in a statement of its own, which sees what they have done.
pub(crate) async fn lock_totals(
    tx: &mut Tx,
    listings: &BTreeSet<ListingId>,
    limited: &BTreeSet<ListingId>,
    at: Timestamp,
) -> Result<HashMap<ListingId, Amount>, StoreError> {
    lock_uncounted(tx, listings.difference(limited).copied()).await?;
    let found = read_totals(tx, listings, at).await?;
    let missing = uncounted(&found, limited);
    if missing.is_empty() {
        return Ok(found);
    }
    drop(fetch_all!(tx, LOCK_FIRST_COUNT => (String,), Many(missing))?);
    // Somebody else may have begun meanwhile.
    let found = read_totals(tx, listings, at).await?;
    let missing = uncounted(&found, limited);
    if missing.is_empty() {
        return Ok(found);
    }
    let used = sums(tx, &missing, at).await?.into_iter().map(|(_, used)| used.units()).collect();
    let days = Column::Ints(vec![day_of(at); missing.len()]);
    execute_rows(tx, &MAKE_DAYS, vec![Column::Ints(missing), days, Column::Ints(used)]).await?;
    read_totals(tx, listings, at).await
}

/// The same for whoever only wants to know: nobody's first sum of a day is written.
pub(crate) async fn see_totals(
    tx: &mut Tx,
    listings: &BTreeSet<ListingId>,
    limited: &BTreeSet<ListingId>,
    at: Timestamp,
) -> Result<HashMap<ListingId, Amount>, StoreError> {
    let mut found = read_totals(tx, listings, at).await?;
    let missing = uncounted(&found, limited);
    if !missing.is_empty() {
        found.extend(sums(tx, &missing, at).await?);
    }
    Ok(found)
}

/// From here on nobody makes the first sum of these coins before this transaction has ended. Who makes one now is waited for, and has been seen then.
pub(crate) async fn lock_uncounted(tx: &mut Tx, listings: impl Iterator<Item = ListingId>) -> Result<(), StoreError> {
    let listings = listing_numbers(listings);
    if listings.0.is_empty() {
        return Ok(());
    }
    fetch_all!(tx, LOCK_UNCOUNTED => (String,), listings.clone()).map(drop)
}

/// Those of which a policy limits the sum and that have none, in one order.
fn uncounted(found: &HashMap<ListingId, Amount>, limited: &BTreeSet<ListingId>) -> Vec<i64> {
    limited.iter().filter(|listing| !found.contains_key(listing)).map(|listing| listing.0).collect()
}

/// What was asked for of these today, in their order.
async fn sums(tx: &mut Tx, listings: &[i64], at: Timestamp) -> Result<Vec<(ListingId, Amount)>, StoreError> {
    let columns = vec![Column::Ints(listings.to_vec()), Column::Ints(vec![day_start(at).micros(); listings.len()])];
    let rows: Vec<(i64, i64, i64)> = fetch_rows(tx, &SUM_DAYS, columns).await?;
    let sums: HashMap<i64, Amount> =
        rows.into_iter().map(|(listing, high, low)| (listing, saturated(high, low))).collect();
    let sum = |listing: &i64| (ListingId(*listing), sums.get(listing).copied().unwrap_or(Amount::ZERO));
    Ok(listings.iter().map(sum).collect())
}

async fn read_totals(
    tx: &mut Tx,
    listings: &BTreeSet<ListingId>,
    at: Timestamp,
) -> Result<HashMap<ListingId, Amount>, StoreError> {
    let (listings, days) = (listing_numbers(listings.iter().copied()), Many(vec![day_of(at)]));
    let rows = fetch_all!(tx, LOCK_WITHDRAWAL_DAYS => (i64, i64, i64), listings.clone(), days.clone())?;
    Ok(rows.into_iter().map(|(listing, _, used)| (ListingId(listing), Amount::from_units(used))).collect())
}

/// Writes where the sums of a day stand now. They were locked in this transaction.
pub(crate) fn set_totals(writes: &mut Writes, totals: &HashMap<ListingId, Amount>, at: Timestamp) {
    let columns = vec![
        Column::Ints(totals.keys().map(|listing| listing.0).collect()),
        Column::Ints(vec![day_of(at); totals.len()]),
        Column::Ints(totals.values().map(|used| used.units()).collect()),
    ];
    writes.add(&SET_DAYS, columns, "sums of a day");
}
