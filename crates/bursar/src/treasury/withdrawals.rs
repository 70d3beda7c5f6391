//! Policies for withdrawals in a treasury file: amounts are decimal texts in the asset's own precision.

use domain::withdrawal::{FeeRule, Velocity, WhenShort, WithdrawalPolicy};
use domain::{Amount, Asset};
use serde::Deserialize;
use store::withdrawal::{PolicySetting, PolicySettings};
use terminal::failure::Failure;

use super::bad;
use super::rules::{Known, amount};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyEntry {
    asset: String,
    chain: String,
    /// Left out: as it is; of a new policy true.
    enabled: Option<bool>,
    /// Left out: as it is; of a new policy false.
    incident: Option<bool>,
    min: String,
    max: String,
    #[serde(default = "zero")]
    fee: String,
    #[serde(default)]
    fee_share_bps: u32,
    #[serde(default = "zero")]
    fee_least: String,
    #[serde(default)]
    quote_s: u32,
    auto_approve: String,
    auto_approve_daily: Option<String>,
    two_above: String,
    many_above: String,
    #[serde(default = "three")]
    many: u32,
    daily_user: Option<String>,
    daily_total: Option<String>,
    requests: Option<u32>,
    requests_s: Option<u32>,
    #[serde(default)]
    cooling_off_s: u32,
    #[serde(default)]
    book_only: bool,
    #[serde(default = "fail")]
    when_short: String,
    #[serde(default = "a_day")]
    life_s: u32,
}

fn zero() -> String {
    "0".to_owned()
}

fn fail() -> String {
    WhenShort::Fail.as_str().to_owned()
}

const fn a_day() -> u32 {
    86_400
}

const fn three() -> u32 {
    3
}

/// A year.
const LONGEST_S: u32 = 366 * 86_400;

pub(super) fn policies(entries: &[PolicyEntry], known: &Known<'_>) -> Result<PolicySettings, Failure> {
    let mut settings = PolicySettings::new();
    for entry in entries {
        let place = format!("withdrawals of {} on {}", entry.asset, entry.chain);
        let (chain, asset, _) = known.coin(&place, &entry.chain, &entry.asset)?;
        let policy = policy(&place, entry, &asset)?;
        let setting = PolicySetting { policy, enabled: entry.enabled, incident: entry.incident };
        if settings.insert((asset.symbol, chain), setting).is_some() {
            return Err(bad(&place, "stand there twice", "keep one of the two"));
        }
    }
    Ok(settings)
}

fn policy(place: &str, entry: &PolicyEntry, asset: &Asset) -> Result<WithdrawalPolicy, Failure> {
    let read = |field: &str, text: &str| amount(&format!("{place}: {field}"), text, asset);
    let limit = |field: &str, text: &Option<String>| text.as_deref().map(|text| read(field, text)).transpose();
    if entry.cooling_off_s > LONGEST_S || entry.requests_s.is_some_and(|window| window > LONGEST_S) {
        return Err(bad(place, "cooling_off_s and requests_s are a year at most", "86400 are a day"));
    }
    let velocity = match (entry.requests, entry.requests_s) {
        (None, None) => None,
        (Some(count), Some(window)) => Some(Velocity { count, window_us: micros(window) }),
        _ => {
            let hint = "such as requests = 10 and requests_s = 3600: ten in an hour";
            return Err(bad(place, "requests and requests_s go together", hint));
        }
    };
    let policy = WithdrawalPolicy {
        version: 0,
        enabled: entry.enabled.unwrap_or(true),
        incident: entry.incident.unwrap_or(false),
        min: read("min", &entry.min)?,
        max: read("max", &entry.max)?,
        fee: FeeRule {
            fixed: read("fee", &entry.fee)?,
            share_bps: entry.fee_share_bps,
            least: read("fee_least", &entry.fee_least)?,
        },
        auto_approve: read("auto_approve", &entry.auto_approve)?,
        auto_approve_daily: limit("auto_approve_daily", &entry.auto_approve_daily)?,
        two_above: read("two_above", &entry.two_above)?,
        many_above: read("many_above", &entry.many_above)?,
        many: entry.many,
        daily_user: limit("daily_user", &entry.daily_user)?,
        daily_total: limit("daily_total", &entry.daily_total)?,
        velocity,
        cooling_off_us: micros(entry.cooling_off_s),
        book_only: entry.book_only,
        quote_life_us: micros(entry.quote_s),
        when_short: WhenShort::parse(&entry.when_short).ok_or_else(|| {
            bad(
                place,
                format!("when_short is {:?}", entry.when_short),
                "fail: the customer has the money back; wait: it is paid later",
            )
        })?,
        life_us: micros(entry.life_s),
    };
    policy.check().map_err(|error| bad(place, error, "docs/guide/withdrawals.md says what each field is for"))?;
    if policy.fee.fee(policy.min).is_none_or(|fee: Amount| fee > policy.min) {
        let hint = "raise min, or lower fee and fee_least";
        return Err(bad(place, "the fee of the smallest withdrawal would be more than the withdrawal", hint));
    }
    Ok(policy)
}

fn micros(seconds: u32) -> i64 {
    i64::from(seconds) * 1_000_000
}
