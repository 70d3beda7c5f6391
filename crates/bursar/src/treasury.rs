//! The declarative file of `bursar apply`: assets, chains, which asset lives on which chain, limits, wallet groups,
//! operation wallets, rules and bands, operators, and which withdrawals are checked outside.

mod people;
mod rules;
mod wallets;
mod withdrawals;

use std::collections::BTreeMap;

use custody::wallet::Pinned;

use domain::asset::TransferLimits;
use domain::outbound::OutboundLimits;
use domain::{
    Amount, AmountError, Asset, AssetOnChain, Availability, Chain, ChainKind, ChainName, Listing, Precision, RawAmount,
    Symbol,
};
use serde::Deserialize;
use store::catalog::Catalog;
use store::utxo::Network;
use terminal::failure::Failure;
use toml::{Table, Value};

use crate::config::parse_toml;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    assets: BTreeMap<String, AssetEntry>,
    #[serde(default)]
    chains: BTreeMap<String, ChainEntry>,
    #[serde(default)]
    on_chain: Vec<ListingEntry>,
    #[serde(default)]
    wallet_groups: BTreeMap<String, wallets::GroupEntry>,
    #[serde(default)]
    operation_wallets: Vec<wallets::WalletEntry>,
    #[serde(default)]
    gas_topup_rules: BTreeMap<String, rules::GasEntry>,
    #[serde(default)]
    consolidation_rules: BTreeMap<String, rules::SweepEntry>,
    #[serde(default)]
    hot_bands: Vec<rules::BandEntry>,
    #[serde(default)]
    withdrawals: Vec<withdrawals::PolicyEntry>,
    #[serde(default)]
    operator: Vec<people::OperatorEntry>,
    #[serde(default)]
    withdrawal_check: Vec<people::CheckEntry>,
}

/// What a treasury file says.
#[derive(Debug)]
pub struct Treasury {
    pub catalog: Catalog,
    /// Groups and operation wallets, with the addresses that the file's own keys give.
    pub pinned: Pinned,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AssetEntry {
    precision: u8,
    #[serde(default)]
    status: Status,
    #[serde(default = "yes")]
    internal_transfer: bool,
    min_transfer: String,
    max_transfer: String,
    daily_transfer: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChainEntry {
    kind: Kind,
    network: String,
    confirmations: u32,
    final_confirmations: Option<u32>,
    fee_price_cap: Option<u64>,
    fee_cap: Option<String>,
    in_flight: Option<u32>,
    stuck_after_s: Option<u32>,
    gather_s: Option<u32>,
    gather_most: Option<u32>,
    join_below: Option<u64>,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ListingEntry {
    asset: String,
    chain: String,
    contract: Option<String>,
    decimals: u8,
    min_deposit: String,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    #[default]
    Active,
    Suspended,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Bitcoin,
    Evm,
    Tron,
}

const fn yes() -> bool {
    true
}

impl From<Status> for Availability {
    fn from(status: Status) -> Self {
        match status {
            Status::Active => Self::Active,
            Status::Suspended => Self::Suspended,
        }
    }
}

impl From<Kind> for ChainKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Bitcoin => Self::Bitcoin,
            Kind::Evm => Self::Evm,
            Kind::Tron => Self::Tron,
        }
    }
}

const CODE: &str = "TREASURY_INVALID";

fn bad(place: &str, problem: impl std::fmt::Display, hint: &str) -> Failure {
    Failure::bad_input(CODE, format!("{place}: {problem}"), hint)
}

/// Reads a treasury file; `known` is what the database has already, which listings and wallets may name too.
pub fn parse(text: &str, name: &str, known: &Catalog) -> Result<Treasury, Failure> {
    let file: File = parse_toml(text, name, CODE).map_err(|failure| all_missing(text, name).unwrap_or(failure))?;
    let mut catalog = Catalog::default();
    for (symbol, entry) in &file.assets {
        let asset = asset(&format!("assets.{symbol}"), symbol, entry)?;
        catalog.assets.insert(asset.symbol.clone(), asset);
    }
    for (name, entry) in &file.chains {
        let chain = chain(&format!("chains.{name}"), name, entry)?;
        catalog.chains.insert(chain.name.clone(), chain);
    }
    for entry in &file.on_chain {
        let place = format!("on_chain {} on {}", entry.asset, entry.chain);
        let listing = listing(&place, entry, &catalog.assets, &known.assets)?;
        let key = (listing.asset.clone(), listing.chain.clone());
        if catalog.listings.insert(key, listing).is_some() {
            return Err(bad(&place, "is listed twice", "keep one of the two"));
        }
    }
    refuse_same_coin(&catalog, known)?;
    catalog.withdrawals = withdrawals::policies(&file.withdrawals, &rules::Known { file: &catalog, database: known })?;
    let parts = (&file.gas_topup_rules, &file.consolidation_rules, file.hot_bands.as_slice());
    catalog.rules = rules::rules(parts, &rules::Known { file: &catalog, database: known })?;
    let database = rules::Known { file: &catalog, database: known };
    catalog.people = people::people(&file.operator, &file.withdrawal_check, &database)?;
    let chain = |name: &ChainName| catalog.chains.get(name).or_else(|| known.chains.get(name));
    let pinned = wallets::pin(&file.wallet_groups, &file.operation_wallets, chain)?;
    Ok(Treasury { catalog, pinned })
}

/// Two assets that are one coin of a chain: what is paid in it could be either's.
fn refuse_same_coin(catalog: &Catalog, known: &Catalog) -> Result<(), Failure> {
    // Digits of an EVM address may be written in capitals.
    let coin = |listing: &Listing| {
        listing.form.contract().map(|text| if text.starts_with("0x") { text.to_lowercase() } else { text.to_owned() })
    };
    for listing in catalog.listings.values() {
        let replaced = |other: &&Listing| !catalog.listings.contains_key(&(other.asset.clone(), other.chain.clone()));
        let others = catalog.listings.values().chain(known.listings.values().filter(replaced));
        let same = |other: &&Listing| {
            other.chain == listing.chain && other.asset != listing.asset && coin(other) == coin(listing)
        };
        if let Some(other) = others.into_iter().find(same) {
            let place = format!("on_chain {} on {}", listing.asset, listing.chain);
            let what = match listing.form.contract() {
                None => format!("{} is the chain's own coin already", other.asset),
                Some(_) => format!("{} has the same contract", other.asset),
            };
            return Err(bad(&place, what, "one coin of a chain is one asset"));
        }
    }
    Ok(())
}

/// What every entry must say. The types above are what is believed; this list only lets an author see all at once.
const REQUIRED: [(&str, &[&str]); 11] = [
    ("assets", &["precision", "min_transfer", "max_transfer", "daily_transfer"]),
    ("chains", &["kind", "network", "confirmations"]),
    ("on_chain", &["asset", "chain", "decimals", "min_deposit"]),
    ("wallet_groups", &["chain", "purpose", "xpub"]),
    ("operation_wallets", &["role", "chain"]),
    ("gas_topup_rules", &["chain", "asset", "operator", "threshold", "amount"]),
    ("consolidation_rules", &["chain", "asset", "operator", "threshold"]),
    ("hot_bands", &["chain", "group", "index", "asset", "floor", "target", "ceiling"]),
    ("withdrawals", &["asset", "chain", "min", "max", "auto_approve", "two_above", "many_above"]),
    ("operator", &["name", "role"]),
    ("withdrawal_check", &["asset", "chain", "from"]),
];

/// What an entry may say too.
const OPTIONAL: [&str; 37] = [
    "status",
    "internal_transfer",
    "contract",
    "active",
    "group",
    "index",
    "address",
    "final_confirmations",
    "fee_price_cap",
    "fee_cap",
    "in_flight",
    "stuck_after_s",
    "gather_s",
    "gather_most",
    "join_below",
    "priority",
    "cool_down_s",
    "most_per_hour",
    "most_cost_bps",
    "enabled",
    "incident",
    "fee",
    "fee_share_bps",
    "fee_least",
    "quote_s",
    "many",
    "daily_user",
    "daily_total",
    "requests",
    "requests_s",
    "cooling_off_s",
    "book_only",
    "auto_approve_daily",
    "when_short",
    "life_s",
    "user",
    "keys",
];

/// Every field that is missing, where the file is good TOML and has no name that is not known. `None`: that is not what is
/// wrong with it.
fn all_missing(text: &str, name: &str) -> Option<Failure> {
    let table: Table = text.parse().ok()?;
    let mut missing = Vec::new();
    for (section, fields) in REQUIRED {
        let entries: Vec<(String, &Value)> = match table.get(section) {
            Some(Value::Table(entries)) => {
                entries.iter().map(|(key, entry)| (format!("{section}.{key}"), entry)).collect()
            }
            Some(Value::Array(entries)) => {
                entries.iter().enumerate().map(|(at, entry)| (format!("{section}, entry {}", at + 1), entry)).collect()
            }
            _ => Vec::new(),
        };
        for (place, entry) in entries {
            let entry = entry.as_table()?;
            if entry.keys().any(|key| !fields.contains(&key.as_str()) && !OPTIONAL.contains(&key.as_str())) {
                return None;
            }
            let absent: Vec<&str> = fields.iter().copied().filter(|field| !entry.contains_key(*field)).collect();
            if !absent.is_empty() {
                missing.push(format!("{place}: {}", absent.join(", ")));
            }
        }
    }
    let message = format!("{name}: fields are missing: {}", missing.join("; "));
    (!missing.is_empty()).then(|| Failure::bad_input(CODE, message, "examples/treasury.toml has them all"))
}

fn asset(place: &str, symbol: &str, entry: &AssetEntry) -> Result<Asset, Failure> {
    let symbol: Symbol = symbol.parse().map_err(|error| bad(place, error, "write it like USDT"))?;
    let precision =
        Precision::new(entry.precision).ok_or_else(|| bad(place, "precision is at most 18", "8 decimals are usual"))?;
    let limit = |field: &str, text: &str| positive(&format!("{place}.{field}"), text, precision);
    let transfer = TransferLimits {
        min: limit("min_transfer", &entry.min_transfer)?,
        max: limit("max_transfer", &entry.max_transfer)?,
        daily: limit("daily_transfer", &entry.daily_transfer)?,
    };
    if transfer.min > transfer.max || transfer.max > transfer.daily {
        return Err(bad(place, "limits are out of order", "min_transfer <= max_transfer <= daily_transfer"));
    }
    Ok(Asset {
        symbol,
        precision,
        status: entry.status.into(),
        internal_transfer_enabled: entry.internal_transfer,
        transfer,
    })
}

fn chain(place: &str, name: &str, entry: &ChainEntry) -> Result<Chain, Failure> {
    let name: ChainName = name.parse().map_err(|error| bad(place, error, "write it like bsc"))?;
    let kind = ChainKind::from(entry.kind);
    let known = match kind {
        ChainKind::Evm => entry.network.parse::<u64>().is_ok_and(|id| id > 0 && !entry.network.starts_with('+')),
        // By the names of `bursar utxo create --network`.
        ChainKind::Bitcoin => Network::ALL.iter().any(|network| network.name() == entry.network),
        // testnet is Nile.
        ChainKind::Tron => ["mainnet", "testnet", "nile", "shasta", "regtest"].contains(&entry.network.as_str()),
    };
    if !known {
        let hint = "an EVM chain id such as \"56\"; else mainnet, testnet or regtest, of Bitcoin also testnet4 or signet, of TRON nile or shasta";
        return Err(bad(place, format!("there is no {} network {:?}", kind.as_str(), entry.network), hint));
    }
    if !(1..=100_000).contains(&entry.confirmations) {
        return Err(bad(place, "confirmations must be 1 to 100000", "BSC 12, TRON 19, Bitcoin 6 are usual"));
    }
    let (network, confirmations) = (entry.network.clone(), entry.confirmations);
    let final_confirmations = entry.final_confirmations.unwrap_or(confirmations);
    if !(confirmations..=100_000).contains(&final_confirmations) {
        let hint = "leave it out: what is credited may then be withdrawn";
        return Err(bad(place, "final_confirmations must be confirmations to 100000", hint));
    }
    let outbound = outbound(place, kind, entry)?;
    Ok(Chain { name, kind, network, confirmations, final_confirmations, outbound, status: entry.status.into() })
}

/// What may be spent on getting payments through. What the file leaves out is as usual.
fn outbound(place: &str, kind: ChainKind, entry: &ChainEntry) -> Result<OutboundLimits, Failure> {
    let usual = OutboundLimits::usual(kind);
    let price_cap = entry.fee_price_cap.unwrap_or(usual.price_cap);
    // Of EVM and Bitcoin; TRON's price is the network's.
    if (kind == ChainKind::Tron) != (price_cap == 0) || i64::try_from(price_cap).is_err() {
        let problem = "fee_price_cap is wei for a unit of gas, or satoshi for 1,000 virtual bytes; TRON has none";
        return Err(bad(place, problem, "leave it out: 20 Gwei and 200 satoshi for a virtual byte are usual"));
    }
    let fee_cap = match &entry.fee_cap {
        None => usual.fee_cap,
        Some(text) => {
            let hint = "a whole number of the smallest unit of the chain's own coin, such as \"4000000000000000\"";
            let cap: RawAmount = text.parse().map_err(|error| bad(place, format!("fee_cap: {error}"), hint))?;
            if cap == RawAmount::ZERO {
                return Err(bad(place, "fee_cap is zero, and nothing is mined for nothing", hint));
            }
            cap
        }
    };
    let in_flight = entry.in_flight.unwrap_or(usual.in_flight);
    if !(1..=1_000).contains(&in_flight) {
        return Err(bad(place, "in_flight must be 1 to 1000", "nodes keep 16 of an account for sure"));
    }
    let stuck_after_s = entry.stuck_after_s.unwrap_or(usual.stuck_after_s);
    if !(1..=86_400).contains(&stuck_after_s) {
        return Err(bad(place, "stuck_after_s must be 1 to 86400", "a few blocks' time is usual"));
    }
    let (gather_s, gather_most, join_below) = gathering(place, kind, entry, &usual)?;
    Ok(OutboundLimits { price_cap, fee_cap, in_flight, stuck_after_s, gather_s, gather_most, join_below })
}

/// How payouts of Bitcoin share a transaction.
fn gathering(
    place: &str,
    kind: ChainKind,
    entry: &ChainEntry,
    usual: &OutboundLimits,
) -> Result<(u32, u32, u64), Failure> {
    let said = entry.gather_s.is_some() || entry.gather_most.is_some() || entry.join_below.is_some();
    if kind != ChainKind::Bitcoin && said {
        let problem = "gather_s, gather_most and join_below are of Bitcoin: elsewhere a transaction pays one";
        return Err(bad(place, problem, "leave them out"));
    }
    let gather_s = entry.gather_s.unwrap_or(usual.gather_s);
    if gather_s > 86_400 {
        return Err(bad(place, "gather_s must be 0 to 86400", "half a minute is usual"));
    }
    let gather_most = entry.gather_most.unwrap_or(usual.gather_most);
    if kind == ChainKind::Bitcoin && !(1..=1_000).contains(&gather_most) {
        return Err(bad(place, "gather_most must be 1 to 1000", "a hundred payouts in a transaction are usual"));
    }
    let join_below = entry.join_below.unwrap_or(usual.join_below);
    if join_below > 1_000_000 {
        let hint = "satoshi for 1,000 virtual bytes: 3000 is usual";
        return Err(bad(place, "join_below must be 0 to 1000000", hint));
    }
    Ok((gather_s, gather_most, join_below))
}

fn listing(
    place: &str,
    entry: &ListingEntry,
    assets: &BTreeMap<Symbol, Asset>,
    known: &BTreeMap<Symbol, Asset>,
) -> Result<Listing, Failure> {
    let symbol: Symbol = entry.asset.parse().map_err(|error| bad(place, error, "write it like USDT"))?;
    let chain: ChainName = entry.chain.parse().map_err(|error| bad(place, error, "write it like bsc"))?;
    let asset = assets.get(&symbol).or_else(|| known.get(&symbol)).ok_or_else(|| {
        let hint = "add it under [assets], or correct the name";
        Failure::bad_input("INVALID_ASSET", format!("{place}: there is no asset {symbol}"), hint)
    })?;
    let plain = |text: &str| (1..=128).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !entry.contract.as_deref().is_none_or(plain) {
        let problem = "a contract's address is 1 to 128 letters and digits";
        return Err(bad(place, problem, "leave it out for the chain's own coin"));
    }
    let form = AssetOnChain::new(asset.precision, entry.decimals, entry.contract.clone())
        .map_err(|error| bad(place, error, "give the asset at most the chain's decimals"))?;
    let min_deposit = positive(&format!("{place}: min_deposit"), &entry.min_deposit, asset.precision)?;
    Ok(Listing { asset: symbol, chain, form, min_deposit, status: entry.status.into() })
}

/// An amount greater than zero, written as a decimal string.
pub fn positive(place: &str, text: &str, precision: Precision) -> Result<Amount, Failure> {
    let refuse = |code, problem: String, hint: &str| {
        Err(Failure::bad_input(code, format!("{place} is {text:?}: {problem}"), hint))
    };
    match Amount::parse(text, precision) {
        Ok(amount) if amount.is_positive() => Ok(amount),
        Ok(_) => refuse("INVALID_AMOUNT", "an amount must be greater than zero".to_owned(), "use a positive amount"),
        Err(error @ AmountError::Malformed) => refuse("INVALID_AMOUNT", error.to_string(), "write it like \"12.5\""),
        Err(error @ AmountError::TooPrecise(_)) => {
            refuse("PRECISION_OVERFLOW", error.to_string(), "drop the decimals that the asset does not have")
        }
        Err(error @ AmountError::TooLarge) => refuse("OVERFLOW", error.to_string(), "use a smaller amount"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
[assets.USDT]
precision = 6
min_transfer = "1"
max_transfer = "1000"
daily_transfer = "5000"

[chains.bsc]
kind = "evm"
network = "56"
confirmations = 12

[[on_chain]]
asset = "USDT"
chain = "bsc"
contract = "0x55d398326f99059ff775485246999027b3197955"
decimals = 18
min_deposit = "1"

# Of the published words "abandon … about".
[wallet_groups.gas-evm]
chain = "evm"
purpose = "gas"
xpub = "xpub6DCoCpSuQZB2jawqnGMEPS63ePKWkwWPH4TU45Q7LPXWuNd8TMtVxRrgjtEshuqpK3mdhaWHPFsBngh5GFZaM6si3yZdUsT8ddYM3PwnATt"

[[operation_wallets]]
role = "gas"
chain = "bsc"
group = "gas-evm"
index = 0

[[operation_wallets]]
role = "cold"
chain = "bsc"
address = "0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed"
"#;

    fn read(text: &str) -> Result<Treasury, Failure> {
        parse(text, "treasury.toml", &Catalog::default())
    }

    #[test]
    fn a_good_file_is_read() {
        let Treasury { catalog, pinned } = read(GOOD).expect("good");
        assert_eq!((catalog.assets.len(), catalog.chains.len(), catalog.listings.len()), (1, 1, 1));
        assert_eq!((pinned.groups().count(), pinned.wallets().count()), (1, 2));
        let addresses: Vec<String> = pinned.wallets().map(|(_, _, wallet)| wallet.address.to_string()).collect();
        // The first is what every wallet shows for these words; the other is as it was written, but for its capitals.
        let first = "0x9858EfFD232B4033E47d90003D41EC34EcaEda94";
        assert_eq!(addresses, [first, "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"]);
    }

    #[test]
    fn the_example_and_the_demo_are_good() {
        read(include_str!("../../../examples/treasury.toml")).expect("good");
    }

    /// Each line: what to replace in the good file, by what, and the code that answers.
    #[test]
    fn bad_values_have_their_codes() {
        for (from, to, code) in [
            ("min_transfer = \"1\"", "min_transfer = \"0\"", "INVALID_AMOUNT"),
            ("min_transfer = \"1\"", "min_transfer = \"-1\"", "INVALID_AMOUNT"),
            ("min_transfer = \"1\"", "min_transfer = \"1e3\"", "INVALID_AMOUNT"),
            ("min_transfer = \"1\"", "min_transfer = \"0.0000001\"", "PRECISION_OVERFLOW"),
            ("min_transfer = \"1\"", "min_transfer = \"99999999999999999999\"", "OVERFLOW"),
            ("min_transfer = \"1\"", "min_transfer = 1", "TREASURY_INVALID"),
            ("min_transfer = \"1\"", "min_transfer = \"2000\"", "TREASURY_INVALID"),
            ("precision = 6", "precision = 19", "TREASURY_INVALID"),
            ("precision = 6", "precison = 6", "TREASURY_INVALID"),
            ("[assets.USDT]", "[assets.usdt]", "TREASURY_INVALID"),
            ("kind = \"evm\"", "kind = \"solana\"", "TREASURY_INVALID"),
            ("network = \"56\"", "network = \"mainnet\"", "TREASURY_INVALID"),
            ("confirmations = 12", "confirmations = 0", "TREASURY_INVALID"),
            ("decimals = 18", "decimals = 5", "TREASURY_INVALID"),
            ("decimals = 18", "decimals = 200", "TREASURY_INVALID"),
            ("contract = \"0x55d3", "contract = \"a\\u0000b", "TREASURY_INVALID"),
            ("asset = \"USDT\"", "asset = \"USDC\"", "INVALID_ASSET"),
            ("min_deposit = \"1\"", "min_deposit = \"\"", "INVALID_AMOUNT"),
            ("[wallet_groups.gas-evm]", "[wallet_groups.Gas]", "TREASURY_INVALID"),
            ("chain = \"evm\"", "chain = \"tron\"", "TREASURY_INVALID"),
            ("chain = \"evm\"", "chain = \"bitcoin-regtest\"", "SIGNER_XPUB_INVALID"),
            ("chain = \"evm\"", "chain = \"solana\"", "TREASURY_INVALID"),
            ("purpose = \"gas\"", "purpose = \"cold\"", "TREASURY_INVALID"),
            ("purpose = \"gas\"", "purpose = \"hot\"", "TREASURY_INVALID"),
            ("xpub = \"xpub6D", "xpub = \"xpub6E", "SIGNER_XPUB_INVALID"),
            ("role = \"gas\"", "role = \"deposit\"", "TREASURY_INVALID"),
            ("role = \"gas\"", "role = \"cold\"", "TREASURY_INVALID"),
            ("group = \"gas-evm\"", "group = \"gas-tron\"", "TREASURY_INVALID"),
            ("group = \"gas-evm\"", "", "TREASURY_INVALID"),
            ("index = 0", "index = 2147483648", "TREASURY_INVALID"),
            ("index = 0", "index = -1", "TREASURY_INVALID"),
            ("index = 0", "", "TREASURY_INVALID"),
            ("index = 0", "index = 0\naddress = \"0x9858EfFD232B4033E47d90003D41EC34EcaEda94\"", "TREASURY_INVALID"),
            ("role = \"cold\"", "role = \"hot\"", "TREASURY_INVALID"),
            (
                "0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed",
                "0x5aaeb6053f3e94c9b9a09f33669435e7ef1beae",
                "ADDRESS_LENGTH",
            ),
            (
                "0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed",
                "0x9858EfFD232B4033E47d90003D41EC34EcaEda94",
                "TREASURY_INVALID",
            ),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let failure = read(&GOOD.replace(from, to)).expect_err(to);
            assert_eq!(failure.code, code, "{to}: {:?}", failure.messages);
        }
    }

    #[test]
    fn a_typo_is_met_with_a_suggestion() {
        let failure = read(&GOOD.replace("min_deposit", "min_depost")).expect_err("a typo");
        assert_eq!(failure.hint, "did you mean min_deposit?");
        let failure = read(&GOOD.replace("[[on_chain]]", "[[onchain]]")).expect_err("a typo");
        assert_eq!(failure.hint, "did you mean on_chain?");
    }

    const RULES: &str = r#"
[assets.BNB]
precision = 8
min_transfer = "1"
max_transfer = "10"
daily_transfer = "100"

[[on_chain]]
asset = "BNB"
chain = "bsc"
decimals = 18
min_deposit = "1"

[gas_topup_rules.low]
chain = "bsc"
asset = "BNB"
operator = "<"
threshold = "0.002"
amount = "0.01"

[consolidation_rules.usdt]
chain = "bsc"
asset = "USDT"
operator = ">"
threshold = "100"
most_cost_bps = 200

[[hot_bands]]
chain = "bsc"
group = "hot-evm"
index = 0
asset = "USDT"
floor = "100"
target = "500"
ceiling = "900"

[[operator]]
name = "ann"
role = "viewer"

[[withdrawal_check]]
asset = "USDT"
chain = "bsc"
from = "0"

[[withdrawals]]
asset = "USDT"
chain = "bsc"
min = "10"
max = "50000"
fee = "1"
auto_approve = "1000"
two_above = "10000"
many_above = "20000"
daily_user = "60000"
requests = 10
requests_s = 3600
"#;

    #[test]
    fn a_policy_is_read_whole_and_what_makes_no_sense_is_refused() {
        let whole = format!("{GOOD}\n{RULES}");
        let policies = read(&whole).expect("good policies").catalog.withdrawals;
        let (key, setting) = policies.first_key_value().expect("one");
        assert_eq!((key.0.as_str(), key.1.as_str()), ("USDT", "bsc"));
        let policy = &setting.policy;
        let units = |amount: Amount| amount.units();
        assert_eq!(
            (units(policy.min), units(policy.fee.fixed), units(policy.auto_approve)),
            (10_000_000, 1_000_000, 1_000_000_000)
        );
        assert_eq!((policy.many, policy.quote_life_us, policy.daily_total), (3, 0, None));
        assert_eq!(policy.velocity, Some(domain::withdrawal::Velocity { count: 10, window_us: 3_600_000_000 }));
        assert_eq!((setting.enabled, setting.incident), (None, None), "what is not said stays as it is");
        for (good, wrong) in [
            ("min = \"10\"", "min = \"0\""),
            ("min = \"10\"", "min = \"50001\""),
            ("fee = \"1\"", "fee = \"-1\""),
            ("fee = \"1\"", "fee = \"0.0000001\""),
            ("fee = \"1\"", "fee_share_bps = 10001"),
            ("two_above = \"10000\"", "two_above = \"999\""),
            ("daily_user = \"60000\"", "daily_user = \"9\""),
            ("requests_s = 3600", ""),
            ("requests = 10", "requests = 0"),
            ("requests_s = 3600", "requests_s = 3600\nmany = 2"),
            ("requests_s = 3600", "requests_s = 3600\nauto_approve_daily = \"999\""),
            ("requests_s = 3600", "requests_s = 3600\nwhen_short = \"never\""),
            ("requests_s = 3600", "requests_s = 3600\nlife_s = 59"),
            ("requests_s = 3600", "requests_s = 3600\nquote_s = 86401"),
            ("requests_s = 3600", "requests_s = 3600\ncooling_off_s = 40000000"),
            ("chain = \"bsc\"\nmin", "chain = \"tron\"\nmin"),
        ] {
            assert!(whole.contains(good), "{good}");
            let failure = read(&whole.replace(good, wrong)).expect_err(wrong);
            assert!(
                ["TREASURY_INVALID", "INVALID_AMOUNT", "PRECISION_OVERFLOW"].contains(&&*failure.code),
                "{wrong}: {failure:?}"
            );
        }
        let policy = &whole[whole.rfind("[[withdrawals]]").expect("there")..];
        assert_eq!(read(&format!("{whole}{policy}")).expect_err("twice").code, "TREASURY_INVALID");
    }

    #[test]
    fn rules_that_make_no_sense_are_refused() {
        let whole = format!("{GOOD}\n{RULES}");
        let rules = read(&whole).expect("good rules").catalog.rules;
        assert_eq!((rules.gas.len(), rules.sweeps.len(), rules.bands.len()), (1, 1, 1));
        for (good, wrong) in [
            ("asset = \"BNB\"\noperator", "asset = \"USDT\"\noperator"),
            ("operator = \"<\"", "operator = \"=<\""),
            ("threshold = \"0.002\"", "threshold = \"-1\""),
            ("threshold = \"0.002\"", "threshold = \"0.000000001\""),
            ("amount = \"0.01\"", "amount = \"0\""),
            ("most_cost_bps = 200", "most_cost_bps = 10001"),
            ("most_cost_bps = 200", "priority = -1"),
            ("floor = \"100\"", "floor = \"501\""),
            ("[gas_topup_rules.low]", "[gas_topup_rules.\"Low Gas\"]"),
            ("[consolidation_rules.usdt]\nchain = \"bsc\"", "[consolidation_rules.usdt]\nchain = \"tron\""),
        ] {
            assert!(whole.contains(good), "{good}");
            let failure = read(&whole.replace(good, wrong)).expect_err(wrong);
            assert!(
                ["TREASURY_INVALID", "INVALID_AMOUNT", "PRECISION_OVERFLOW"].contains(&&*failure.code),
                "{wrong}: {failure:?}"
            );
        }
    }

    /// Coins pay for themselves there, and the wallets of a group pay with the same coins.
    #[test]
    fn bitcoin_has_consolidation_rules_no_gas_and_one_band_for_a_group() {
        let coin = "[assets.BTC]\nprecision = 8\nmin_transfer = \"1\"\nmax_transfer = \"10\"\ndaily_transfer = \"100\"\n\
             [chains.bitcoin]\nkind = \"bitcoin\"\nnetwork = \"regtest\"\nconfirmations = 6\n\
             [[on_chain]]\nasset = \"BTC\"\nchain = \"bitcoin\"\ndecimals = 8\nmin_deposit = \"0.0001\"\n";
        let place = "chain = \"bitcoin\"\nasset = \"BTC\"\n";
        let sweep =
            format!("[consolidation_rules.btc]\n{place}operator = \">\"\nthreshold = \"0.05\"\nmost_cost_bps = 100\n");
        let gas = format!("[gas_topup_rules.btc]\n{place}operator = \"<\"\nthreshold = \"1\"\namount = \"2\"\n");
        let band = |group: &str, index: i64| {
            let amounts = "floor = \"1\"\ntarget = \"2\"\nceiling = \"3\"\n";
            format!("[[hot_bands]]\n{place}group = \"{group}\"\nindex = {index}\n{amounts}")
        };
        let one = format!("{GOOD}\n{coin}{sweep}{}{}", band("hot-btc", 1), band("other-btc", 2));
        let rules = read(&one).expect("good rules").catalog.rules;
        assert_eq!((rules.sweeps.len(), rules.bands.len()), (1, 2));
        for more in [gas, band("hot-btc", 2)] {
            let failure = read(&format!("{one}{more}")).expect_err(&more);
            assert_eq!(failure.code, "TREASURY_INVALID", "{failure:?}");
        }
    }

    #[test]
    fn all_that_is_missing_is_said_at_once() {
        let bare = "[assets.USDT]\nprecision = 6\n[chains.bsc]\nkind = \"evm\"\n[[on_chain]]\nasset = \"USDT\"\n";
        let failure = read(bare).expect_err("a good deal");
        assert_eq!(
            failure.messages,
            ["treasury.toml: fields are missing: assets.USDT: min_transfer, max_transfer, daily_transfer; \
              chains.bsc: network, confirmations; on_chain, entry 1: chain, decimals, min_deposit"]
        );
        // The list knows every field without which an entry is not read.
        let whole = format!("{GOOD}\n{RULES}");
        read(&whole).expect("good rules");
        for field in REQUIRED.iter().flat_map(|(_, fields)| fields.iter()) {
            let lines: Vec<&str> = whole.lines().filter(|line| !line.starts_with(&format!("{field} = "))).collect();
            let failure = read(&lines.join("\n")).expect_err(field);
            assert!(failure.messages[0].contains(&format!(": {field}")), "{field}: {:?}", failure.messages);
        }
        let lines: Vec<&str> = GOOD.lines().filter(|line| !line.starts_with("contract")).collect();
        read(&lines.join("\n")).expect("all else may be left out");
    }

    // It may be a private key that somebody has copied from the wrong line.
    #[test]
    fn a_key_that_is_none_is_not_repeated() {
        let failure = read(&GOOD.replace("xpub6D", "xprv6D")).expect_err("no public key");
        assert_eq!(failure.code, "SIGNER_XPUB_INVALID");
        assert!(!format!("{failure:?}").contains("xprv6D"), "{failure:?}");
    }

    /// What is paid in one coin of a chain is one asset's.
    #[test]
    fn two_assets_that_are_one_coin_are_refused() {
        let asset = |symbol: &str| {
            format!(
                "[assets.{symbol}]\nprecision = 6\nmin_transfer = \"1\"\nmax_transfer = \"2\"\ndaily_transfer = \"3\"\n"
            )
        };
        let chain = "[chains.bsc]\nkind = \"evm\"\nnetwork = \"56\"\nconfirmations = 12\n";
        let listing = |symbol: &str, contract: &str| {
            format!(
                "[[on_chain]]\nasset = \"{symbol}\"\nchain = \"bsc\"\n{contract}decimals = 18\nmin_deposit = \"1\"\n"
            )
        };
        let usdt = "contract = \"0x55d398326f99059ff775485246999027b3197955\"\n";
        let text = |one: &str, other: &str| {
            format!("{}{}{chain}{}{}", asset("ONE"), asset("TWO"), listing("ONE", one), listing("TWO", other))
        };
        assert!(read(&text(usdt, "")).is_ok());
        for (one, other) in [("", ""), (usdt, usdt), (usdt, &usdt.replace("55d398326f99059ff", "55D398326F99059fF"))] {
            let failure = read(&text(one, other)).expect_err("one coin");
            assert!(failure.code == "TREASURY_INVALID", "{failure:?}");
        }
    }

    #[test]
    fn listed_twice_is_refused() {
        let wallet = &GOOD[GOOD.rfind("[[operation_wallets]]").expect("there")..];
        assert_eq!(read(&format!("{GOOD}{wallet}")).expect_err("twice").code, "TREASURY_INVALID");
        let twice = format!(
            "{GOOD}{}",
            &GOOD[GOOD.find("[[on_chain]]").expect("there")..GOOD.find("# Of the published").expect("there")]
        );
        assert_eq!(read(&twice).expect_err("twice").code, "TREASURY_INVALID");
    }
}
