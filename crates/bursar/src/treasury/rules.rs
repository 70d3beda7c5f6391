//! Rules and bands of a treasury file: amounts are decimal texts in the asset's own precision.

use domain::treasury::{Condition, Operator};
use domain::{Amount, AmountError, Asset, ChainKind, ChainName, GroupId, RawAmount, Symbol};
use serde::Deserialize;
use store::catalog::Catalog;
use store::treasury::settings::BandKey;
use store::treasury::{BandSetting, GasRuleSetting, RuleSettings, SweepRuleSetting};
use terminal::failure::Failure;

use super::{bad, positive, yes};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GasEntry {
    chain: String,
    asset: String,
    operator: String,
    threshold: String,
    amount: String,
    #[serde(default = "gas_priority")]
    priority: i64,
    #[serde(default = "ten_minutes")]
    cool_down_s: u32,
    #[serde(default = "thousand")]
    most_per_hour: u32,
    #[serde(default = "yes")]
    active: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SweepEntry {
    chain: String,
    asset: String,
    operator: String,
    threshold: String,
    /// Hundredths of a percent.
    most_cost_bps: Option<u32>,
    #[serde(default = "sweep_priority")]
    priority: i64,
    #[serde(default = "ten_minutes")]
    cool_down_s: u32,
    #[serde(default = "thousand")]
    most_per_hour: u32,
    #[serde(default = "yes")]
    active: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BandEntry {
    chain: String,
    group: String,
    index: i64,
    asset: String,
    floor: String,
    target: String,
    ceiling: String,
    #[serde(default = "yes")]
    active: bool,
}

const fn gas_priority() -> i64 {
    domain::outbound::JobKind::GasTopup.priority()
}

const fn sweep_priority() -> i64 {
    domain::outbound::JobKind::Consolidation.priority()
}

const fn ten_minutes() -> u32 {
    600
}

const fn thousand() -> u32 {
    1_000
}

/// What a rule may name: the file's own things, and what the database has.
pub(super) struct Known<'a> {
    pub file: &'a Catalog,
    pub database: &'a Catalog,
}

impl Known<'_> {
    fn asset(&self, symbol: &Symbol) -> Option<&Asset> {
        self.file.assets.get(symbol).or_else(|| self.database.assets.get(symbol))
    }

    /// The chain, the asset, and whether that is the chain's own coin.
    pub(super) fn coin(&self, place: &str, chain: &str, asset: &str) -> Result<(ChainName, Asset, bool), Failure> {
        let chain: ChainName = chain.parse().map_err(|error| bad(place, error, "write it like bsc"))?;
        let symbol: Symbol = asset.parse().map_err(|error| bad(place, error, "write it like USDT"))?;
        let key = (symbol.clone(), chain.clone());
        let listing = self.file.listings.get(&key).or_else(|| self.database.listings.get(&key));
        let (Some(listing), Some(asset)) = (listing, self.asset(&symbol)) else {
            let hint = "list it under [[on_chain]], or correct the name";
            return Err(bad(place, format!("{symbol} does not live on {chain}"), hint));
        };
        Ok((chain, asset.clone(), listing.form.contract().is_none()))
    }

    fn is_bitcoin(&self, chain: &ChainName) -> bool {
        let chain = self.file.chains.get(chain).or_else(|| self.database.chains.get(chain));
        chain.is_some_and(|chain| chain.kind == ChainKind::Bitcoin)
    }
}

fn operator(place: &str, text: &str) -> Result<Operator, Failure> {
    Operator::parse(text).ok_or_else(|| bad(place, format!("{text:?} is no operator"), "one of > >= < <= == !="))
}

/// Zero is a good threshold.
pub(super) fn amount(place: &str, text: &str, asset: &Asset) -> Result<Amount, Failure> {
    match Amount::parse(text, asset.precision) {
        Ok(amount) if amount >= Amount::ZERO => Ok(amount),
        Ok(_) | Err(AmountError::Malformed | AmountError::TooPrecise(_) | AmountError::TooLarge) => {
            Err(bad(place, format!("{text:?} is no amount of {}", asset.symbol), "write it like \"12.5\""))
        }
    }
}

fn pace(place: &str, priority: i64, cool_down_s: u32, most_per_hour: u32) -> Result<(), Failure> {
    if !(0..=1_000_000).contains(&priority) {
        return Err(bad(place, "priority must be 0 to 1000000", "customers' payouts have 100: keep rules above it"));
    }
    if cool_down_s > 31 * 86_400 {
        return Err(bad(place, "cool_down_s must be a month at most", "600 is usual"));
    }
    if most_per_hour > 1_000_000 {
        return Err(bad(place, "most_per_hour must be 1000000 at most", "1000 is usual"));
    }
    Ok(())
}

fn gas(place: &str, entry: &GasEntry, known: &Known<'_>) -> Result<GasRuleSetting, Failure> {
    let (chain, asset, native) = known.coin(place, &entry.chain, &entry.asset)?;
    if !native {
        return Err(bad(place, "gas is the chain's own coin", "name that: TRX on TRON, BNB on BSC"));
    }
    if known.is_bitcoin(&chain) {
        let hint = "coins pay for themselves there: a consolidation rule alone brings them home";
        return Err(bad(place, "Bitcoin has no gas", hint));
    }
    pace(place, entry.priority, entry.cool_down_s, entry.most_per_hour)?;
    let (operator, threshold) = (operator(place, &entry.operator)?, amount(place, &entry.threshold, &asset)?);
    let brings = positive(&format!("{place}: amount"), &entry.amount, asset.precision)?;
    let raw = |amount: Amount| amount.units().to_string().parse::<RawAmount>().ok();
    let ends = raw(threshold)
        .zip(raw(brings))
        .is_some_and(|(threshold, brings)| Condition { operator, threshold }.ends_with(brings));
    if !ends {
        let hint = "such as operator \"<\", threshold \"30\", amount \"40\": what it brings must be enough";
        return Err(bad(place, "an address that was just given its gas would ask for it again, for ever", hint));
    }
    Ok(GasRuleSetting {
        operator,
        threshold,
        amount: brings,
        chain,
        asset: asset.symbol,
        priority: entry.priority,
        cool_down_s: entry.cool_down_s.into(),
        most_per_hour: entry.most_per_hour,
        active: entry.active,
    })
}

fn sweep(place: &str, entry: &SweepEntry, known: &Known<'_>) -> Result<SweepRuleSetting, Failure> {
    let (chain, asset, _) = known.coin(place, &entry.chain, &entry.asset)?;
    pace(place, entry.priority, entry.cool_down_s, entry.most_per_hour)?;
    if entry.most_cost_bps.is_some_and(|bps| bps > 10_000) {
        return Err(bad(place, "most_cost_bps must be 0 to 10000", "200 are two percent of the value"));
    }
    Ok(SweepRuleSetting {
        operator: operator(place, &entry.operator)?,
        threshold: amount(place, &entry.threshold, &asset)?,
        most_cost_bps: entry.most_cost_bps,
        chain,
        asset: asset.symbol,
        priority: entry.priority,
        cool_down_s: entry.cool_down_s.into(),
        most_per_hour: entry.most_per_hour,
        active: entry.active,
    })
}

type Named<T> = std::collections::BTreeMap<String, T>;

pub(super) fn rules(
    (gas_rules, sweep_rules, bands): (&Named<GasEntry>, &Named<SweepEntry>, &[BandEntry]),
    known: &Known<'_>,
) -> Result<RuleSettings, Failure> {
    let mut settings = RuleSettings::default();
    for (name, entry) in gas_rules {
        settings.gas.insert(rule_name(name)?, gas(&format!("gas_topup_rules.{name}"), entry, known)?);
    }
    for (name, entry) in sweep_rules {
        settings.sweeps.insert(rule_name(name)?, sweep(&format!("consolidation_rules.{name}"), entry, known)?);
    }
    for entry in bands {
        let place = format!("hot_bands {} of wallet {} of {}", entry.asset, entry.index, entry.group);
        let (chain, asset, _) = known.coin(&place, &entry.chain, &entry.asset)?;
        let group: GroupId = entry.group.parse().map_err(|error| bad(&place, error, "write it like hot-evm"))?;
        let same = |(on, of, index, _): &BandKey| *on == chain && *of == group && *index != entry.index;
        if known.is_bitcoin(&chain) && settings.bands.keys().any(same) {
            let hint = "on Bitcoin the wallets of a group pay with the same coins: one band is the band of all of them";
            return Err(bad(&place, "another wallet of the group has a band", hint));
        }
        let texts = [&entry.floor, &entry.target, &entry.ceiling];
        let [floor, target, ceiling] = texts.map(|text| amount(&place, text, &asset));
        let band = BandSetting { floor: floor?, target: target?, ceiling: ceiling?, active: entry.active };
        if band.floor > band.target || band.target > band.ceiling {
            return Err(bad(&place, "the band is out of order", "floor <= target <= ceiling"));
        }
        if settings.bands.insert((chain, group, entry.index, asset.symbol), band).is_some() {
            return Err(bad(&place, "stands there twice", "keep one of the two"));
        }
    }
    Ok(settings)
}

fn rule_name(name: &str) -> Result<String, Failure> {
    let good = (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    if good {
        Ok(name.to_owned())
    } else {
        Err(bad(name, "a rule's name is 1 to 64 small letters, digits and hyphens", "such as tron-gas"))
    }
}
