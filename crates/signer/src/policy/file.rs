//! The policy's TOML. An unknown key, a name that leads nowhere, or a rule that could never be met makes it no policy.

use std::collections::{BTreeMap, BTreeSet};

use domain::{ChainName, RawAmount};
use serde::Deserialize;
use tx::tron::TronAddress;
use tx::{Address, Coin};

use super::{Administrators, Approver, Caps, CoinRule, FIRST_CHANGE, Group, Passkey, Policy, PublicKey, Role, Step};
use crate::approved::SignerChain;
use crate::digest::{sha256, unhex, unhex32};
use crate::names::{GroupId, KeyName, Person};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no policy: {0}")]
pub struct BadPolicy(pub String);

fn bad<T>(why: impl Into<String>) -> Result<T, BadPolicy> {
    Err(BadPolicy(why.into()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    signer: String,
    version: u64,
    cooling_off_hours: u32,
    most_intent_life_hours: u32,
    #[serde(default = "a_day")]
    most_tron_life_hours: u32,
    #[serde(default = "ten_minutes")]
    tron_margin_minutes: u32,
    #[serde(default = "thrice")]
    most_tron_builds: u32,
    administrators: AdministratorsTable,
    #[serde(default)]
    operators: Vec<String>,
    #[serde(default)]
    approver: Vec<ApproverTable>,
    chain: Vec<ChainTable>,
    group: Vec<GroupTable>,
}

const fn a_day() -> u32 {
    24
}

const fn ten_minutes() -> u32 {
    10
}

const fn thrice() -> u32 {
    3
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AdministratorsTable {
    needed: usize,
    keys: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApproverTable {
    key: String,
    person: String,
    ed25519: Option<String>,
    passkey: Option<PasskeyTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PasskeyTable {
    /// 130 digits: 04, x and y.
    public: String,
    relying_party: String,
    origins: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChainTable {
    name: String,
    kind: String,
    chain_id: Option<u64>,
    network: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupTable {
    id: String,
    chain: String,
    role: String,
    most_fee: String,
    most_fee_day: String,
    highest_index: Option<u64>,
    destinations: Option<Vec<String>>,
    coin: Vec<CoinTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CoinTable {
    coin: String,
    payment: Option<String>,
    hour: Option<String>,
    day: Option<String>,
    #[serde(default)]
    step: Vec<StepTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepTable {
    up_to: String,
    approvals: usize,
    of: Vec<String>,
}

/// Ten years. Nobody means more, and a larger number would not fit as microseconds.
const MOST_HOURS: u32 = 10 * 365 * 24;
/// A week.
const MOST_MARGIN_MINUTES: u32 = 7 * 24 * 60;

/// Reads the exact bytes that administrators signed.
pub fn parse(bytes: &[u8]) -> Result<Policy, BadPolicy> {
    let text = std::str::from_utf8(bytes).map_err(|_| BadPolicy("it is not UTF-8".to_owned()))?;
    let file: File = toml::from_str(text).map_err(|error| BadPolicy(error.to_string()))?;
    let hours = |hours: u32| i64::from(hours) * 3_600_000_000;
    if file.version == 0 || file.most_intent_life_hours == 0 || !(1..=24).contains(&file.most_tron_life_hours) {
        return bad("versions start at 1, intents live at least an hour, and TRON's transactions 1 to 24 hours");
    }
    if file.cooling_off_hours > MOST_HOURS || file.most_intent_life_hours > MOST_HOURS {
        return bad(format!("a policy's hours are at most {MOST_HOURS}: ten years"));
    }
    if !(1..=MOST_MARGIN_MINUTES).contains(&file.tron_margin_minutes) {
        return bad(format!("clocks differ: tron_margin_minutes is 1 to {MOST_MARGIN_MINUTES}"));
    }
    if file.most_tron_builds == 0 {
        return bad("most_tron_builds is at least 1: an approval that pays nothing is none");
    }
    let approvers = approvers(file.approver)?;
    let operators = file.operators.iter().map(|name| person(name)).collect::<Result<BTreeSet<_>, _>>()?;
    let people: BTreeSet<Person> = approvers.values().map(|approver| approver.person.clone()).collect();
    if let Some(stranger) = operators.iter().find(|one| !people.contains(*one)) {
        return bad(format!("operator {stranger} has no key among the approvers"));
    }
    let chains = chains(file.chain)?;
    let groups = groups(file.group, &chains, &people)?;
    Ok(Policy {
        signer: file.signer.parse().map_err(|error| BadPolicy(format!("{:?}: {error}", file.signer)))?,
        version: file.version,
        hash: sha256(bytes),
        cooling_off_us: hours(file.cooling_off_hours),
        most_intent_life_us: hours(file.most_intent_life_hours),
        most_tron_life_us: hours(file.most_tron_life_hours),
        tron_margin_us: i64::from(file.tron_margin_minutes) * 60_000_000,
        most_tron_builds: file.most_tron_builds,
        administrators: administrators(file.administrators)?,
        approvers,
        operators,
        chains,
        groups,
    })
}

fn person(name: &str) -> Result<Person, BadPolicy> {
    name.parse().map_err(|error| BadPolicy(format!("{name:?}: {error}")))
}

fn amount(text: &str) -> Result<RawAmount, BadPolicy> {
    text.parse().map_err(|error| BadPolicy(format!("{text:?}: {error}")))
}

fn ed25519(text: &str) -> Result<[u8; 32], BadPolicy> {
    unhex32(text).ok_or_else(|| BadPolicy(format!("{text:?} is no Ed25519 key: 64 small hexadecimal digits")))
}

fn administrators(table: AdministratorsTable) -> Result<Administrators, BadPolicy> {
    let mut keys = BTreeMap::new();
    for (name, key) in table.keys {
        let key = ed25519(&key)?;
        if keys.values().any(|other| *other == key) {
            return bad("two administrators have the same key");
        }
        keys.insert(person(&name)?, key);
    }
    if table.needed == 0 || table.needed > keys.len() {
        return bad("administrators.needed is at least 1 and at most the number of keys");
    }
    Ok(Administrators { needed: table.needed, keys })
}

fn approvers(tables: Vec<ApproverTable>) -> Result<BTreeMap<KeyName, Approver>, BadPolicy> {
    let mut approvers: BTreeMap<KeyName, Approver> = BTreeMap::new();
    for table in tables {
        let name: KeyName = table.key.parse().map_err(|error| BadPolicy(format!("{:?}: {error}", table.key)))?;
        let key = match (table.ed25519, table.passkey) {
            (Some(key), None) => PublicKey::Ed25519(ed25519(&key)?),
            (None, Some(passkey)) => PublicKey::Passkey(read_passkey(passkey)?),
            _ => return bad(format!("approver {name} has one key: ed25519 or passkey")),
        };
        // Else one key could count as two people.
        if approvers.values().any(|other| same_key(&other.key, &key)) {
            return bad(format!("the key {name} is listed twice"));
        }
        if approvers.insert(name.clone(), Approver { person: person(&table.person)?, key }).is_some() {
            return bad(format!("two keys are named {name}"));
        }
    }
    Ok(approvers)
}

fn same_key(one: &PublicKey, other: &PublicKey) -> bool {
    match (one, other) {
        (PublicKey::Ed25519(one), PublicKey::Ed25519(other)) => one == other,
        (PublicKey::Passkey(one), PublicKey::Passkey(other)) => one.public == other.public,
        _ => false,
    }
}

fn read_passkey(table: PasskeyTable) -> Result<Passkey, BadPolicy> {
    let public = unhex(&table.public).filter(|public| public.len() == 65 && public[0] == 4);
    let Some(public) = public else { return bad("a passkey's public key is 04 and 128 small hexadecimal digits") };
    let origins: BTreeSet<String> = table.origins.into_iter().collect();
    if table.relying_party.is_empty() || origins.is_empty() {
        return bad("a passkey has a relying party and origins");
    }
    Ok(Passkey { public, relying_party: table.relying_party, origins })
}

fn chains(tables: Vec<ChainTable>) -> Result<BTreeMap<ChainName, SignerChain>, BadPolicy> {
    let mut chains: BTreeMap<ChainName, SignerChain> = BTreeMap::new();
    for table in tables {
        let name: ChainName = table.name.parse().map_err(|error| BadPolicy(format!("{:?}: {error}", table.name)))?;
        let protocol = match (table.kind.as_str(), table.chain_id, table.network.as_deref()) {
            ("evm", Some(chain_id), None) if chain_id > 0 => SignerChain::Evm { chain_id },
            ("tron", None, None) => SignerChain::Tron,
            ("bitcoin", None, Some(network)) => SignerChain::Bitcoin(
                network.parse().map_err(|_| BadPolicy(format!("{network:?} is no network of Bitcoin")))?,
            ),
            _ => return bad(format!("chain {name}: evm has a chain_id, bitcoin a network, tron neither")),
        };
        // Caps and slots are kept by a chain's name, and under two names each coin could be sent twice. TRON has no number
        // that tells its networks apart; there a group is on one chain only.
        if protocol != SignerChain::Tron && chains.values().any(|other| *other == protocol) {
            return bad(format!("chain {name} is listed under another name too"));
        }
        if chains.insert(name.clone(), protocol).is_some() {
            return bad(format!("two chains are named {name}"));
        }
    }
    Ok(chains)
}

/// An address as the chain writes it.
pub fn address(text: &str, protocol: SignerChain) -> Result<Address, BadPolicy> {
    let read = match protocol {
        SignerChain::Evm { .. } => tx::evm::address::parse(text).map(Address::Evm),
        SignerChain::Tron => TronAddress::parse(text).map(Address::Tron),
        SignerChain::Bitcoin(network) => tx::bitcoin::address::parse(text, network).map(Address::Bitcoin),
    };
    read.map_err(|error| BadPolicy(format!("{text:?}: {error}")))
}

pub fn coin(text: &str, protocol: SignerChain) -> Result<Coin, BadPolicy> {
    match (text, protocol) {
        ("native", _) => Ok(Coin::Native),
        (_, SignerChain::Bitcoin(_)) => bad("Bitcoin has no other coin than native"),
        (contract, _) => address(contract, protocol).map(Coin::Token),
    }
}

fn groups(
    tables: Vec<GroupTable>,
    chains: &BTreeMap<ChainName, SignerChain>,
    people: &BTreeSet<Person>,
) -> Result<BTreeMap<(GroupId, ChainName), Group>, BadPolicy> {
    let mut groups: BTreeMap<(GroupId, ChainName), Group> = BTreeMap::new();
    for table in tables {
        let id: GroupId = table.id.parse().map_err(|error| BadPolicy(format!("{:?}: {error}", table.id)))?;
        let chain = table.chain.parse().ok().filter(|chain| chains.contains_key(chain));
        let Some(chain): Option<ChainName> = chain else {
            return bad(format!("group {id}: no chain {:?}", table.chain));
        };
        let protocol = chains[&chain];
        let role = match table.role.as_str() {
            "deposit" => Role::Deposit,
            "hot" => Role::Hot,
            "gas" => Role::Gas,
            "treasury" => Role::Treasury,
            other => return bad(format!("group {id}: a role is deposit, hot, gas or treasury, not {other:?}")),
        };
        let mut coins = BTreeMap::new();
        for one in table.coin {
            let name = coin(&one.coin, protocol)?;
            let rule =
                coin_rule(one, role, people).map_err(|BadPolicy(why)| BadPolicy(format!("group {id}: {why}")))?;
            if role == Role::Gas && name != Coin::Native {
                return bad(format!("group {id}: a gas wallet sends the chain's own coin only"));
            }
            if coins.insert(name, rule).is_some() {
                return bad(format!("group {id}: a coin is listed twice"));
            }
        }
        if table.destinations.is_some() && !matches!(role, Role::Hot | Role::Treasury) {
            return bad(format!("group {id}: only hot and treasury wallets have destinations"));
        }
        if table.highest_index.is_some_and(|index| role == Role::Deposit || index >= FIRST_CHANGE) {
            return bad(format!("group {id}: highest_index is below 2^31, and a deposit group has none"));
        }
        let listed = |list: Vec<String>| list.iter().map(|text| address(text, protocol)).collect();
        let group = Group {
            role,
            coins,
            most_fee: amount(&table.most_fee)?,
            most_fee_day: amount(&table.most_fee_day)?,
            highest_index: table.highest_index.unwrap_or_default(),
            destinations: table.destinations.map(listed).transpose()?,
        };
        let evm = |chain: &ChainName| matches!(chains.get(chain), Some(SignerChain::Evm { .. }));
        for ((_, other), before) in groups.iter().filter(|((other, _), _)| *other == id) {
            // Only an EVM transaction says itself which chain it is for.
            if !evm(other) || !evm(&chain) || before.role != role || *other == chain {
                return bad(format!("group {id} is listed twice: only on several EVM chains, and in one role"));
            }
        }
        groups.insert((id, chain), group);
    }
    Ok(groups)
}

fn coin_rule(table: CoinTable, role: Role, people: &BTreeSet<Person>) -> Result<CoinRule, BadPolicy> {
    let given = [table.payment.as_ref(), table.hour.as_ref(), table.day.as_ref()].iter().flatten().count();
    let free = match (table.payment, table.hour, table.day) {
        (Some(payment), Some(hour), Some(day)) => {
            Some(Caps { payment: amount(&payment)?, hour: amount(&hour)?, day: amount(&day)? })
        }
        _ => None,
    };
    match role {
        Role::Deposit if given > 0 || !table.step.is_empty() => {
            return bad("a deposit group has no caps: its money stays");
        }
        Role::Treasury if given > 0 => return bad("nothing leaves a treasury without approvals"),
        Role::Hot | Role::Gas if free.is_none() => return bad("caps per payment, hour and day, each of them"),
        Role::Gas if !table.step.is_empty() => return bad("approvals do not lift the caps of a gas wallet"),
        Role::Deposit | Role::Hot | Role::Gas | Role::Treasury => {}
    }
    let free = if role == Role::Treasury { Some(Caps::default()) } else { free };
    let mut steps: Vec<Step> = Vec::new();
    for step in table.step {
        let of = step.of.iter().map(|name| person(name)).collect::<Result<BTreeSet<_>, _>>()?;
        if let Some(stranger) = of.iter().find(|one| !people.contains(*one)) {
            return bad(format!("{stranger} has no key among the approvers"));
        }
        if step.approvals == 0 || step.approvals > of.len() {
            return bad("a step needs at least one approval, and at most as many as it has people");
        }
        let step = Step { up_to: amount(&step.up_to)?, approvals: step.approvals, of };
        if steps.last().is_some_and(|last| last.up_to >= step.up_to) {
            return bad("steps rise in their amounts");
        }
        steps.push(step);
    }
    Ok(CoinRule { free, steps })
}
