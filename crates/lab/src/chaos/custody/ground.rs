//! What a run begins with: a private database, chains with coins for our wallets, a signer with their keys, rules, users with deposit addresses,
//! and the files that make all of it one treasury. Everything is done as an operator does it, by the program's own commands.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use custody::wallet::Pinned;
use devnet::{Devnet, DevnetSettings, Key};
use domain::{Clock, UserId};
use serde_json::{Value, json};
use store::db::sqlite_url;
use store::wallet::NewUserWallet;
use store::{Db, Options};
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Failure};
use tokio::sync::Mutex;
use tx::{AccountKey, Address, Coin, Family, Group};

use super::actor::{Actor, Part};
use super::customers::{APPROVER, Office, PRECISION};
use super::net::{Anvil, Core, Machine, Net, Payable};
use super::wrong;
use crate::bench::scan::{BITCOIN_LOGIN, anvil, bitcoind, deploy_token, find, pool};
use crate::bench::site::EngineName;
use crate::postgres::PrivatePostgres;
use crate::rig::keys::{self, KeyGroup};
use crate::rig::{MADE_BY_US, nodes, program, trouble, write_private};

/// What the header of [`BITCOIN_LOGIN`] says.
pub(super) const BITCOIN_USER: &str = "bench:bench";
/// Hot wallets on each chain.
const WALLETS: u64 = 2;
/// Users with deposit addresses, where coins are swept.
const USERS: i64 = 6;
/// An address with less of the chain's own coin than this gets gas: what the reader of the chains holds top-ups against, in chain units.
pub(super) const GAS_BELOW: [(&str, &str); 2] = [("anvil", "500000000000000000"), ("tron", "50000000")];
/// A transaction that waits so long is sent again, or offers more.
const STUCK_S: u32 = 3;
const CONFIRMATIONS: [(&str, u32, u32); 3] = [("anvil", 2, 8), ("tron", 3, 20), ("bitcoin", 2, 6)];
/// Coins of fifty that each of our wallets on Bitcoin gets.
const COINBASES: u64 = 6;
/// Blocks before a coinbase may be spent.
const MATURITY: u64 = 101;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ChainChoice {
    Anvil,
    Tron,
    Bitcoin,
}

impl ChainChoice {
    pub const ALL: [Self; 3] = [Self::Anvil, Self::Tron, Self::Bitcoin];
}

/// A folder that is removed when the run is over, unless it is worth a look.
pub(super) struct Folder {
    pub path: PathBuf,
    pub keep: bool,
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.keep {
            terminal::output::warn(format!("database and logs are left in {}", self.path.display()));
        } else if let Err(error) = std::fs::remove_dir_all(&self.path) {
            terminal::output::warn(format!("{}: {error}", self.path.display()));
        }
    }
}

pub(super) struct Ground {
    pub db: Db,
    pub nets: Vec<Arc<Net>>,
    /// Where people say something of withdrawals.
    pub office: Arc<Office>,
    pub config: PathBuf,
    pub actors: Vec<Actor>,
    pub postgres: Option<PrivatePostgres>,
    /// The last to go: everything else has its files there.
    pub folder: Folder,
}

/// A chain before there is a database.
struct Laid {
    name: &'static str,
    kind: &'static str,
    urls: Vec<String>,
    coins: Vec<(&'static str, Coin, u8, u64)>,
    node: Machine,
}

impl Laid {
    /// Users pay in here, and rules bring their coins home.
    fn is_swept(&self) -> bool {
        self.kind != "bitcoin"
    }
}

pub(super) async fn lay(
    engine: EngineName,
    chosen: &[ChainChoice],
    [anvil, bitcoind]: [Option<&Path>; 2],
    folder: PathBuf,
) -> Result<Ground, Failure> {
    let postgres = match engine {
        EngineName::Postgres => Some(PrivatePostgres::start()?),
        EngineName::Sqlite => None,
    };
    make_private(&folder)?;
    let folder = Folder { path: folder.canonicalize().map_err(|error| trouble("the folder", error))?, keep: false };
    let url = postgres.as_ref().map_or_else(|| sqlite_url(&folder.path.join("bursar.db")), PrivatePostgres::url);
    let mut laid = Vec::new();
    for chain in chosen {
        laid.push(match chain {
            ChainChoice::Anvil => lay_anvil(anvil, &folder.path).await?,
            ChainChoice::Tron => lay_tron().await?,
            ChainChoice::Bitcoin => lay_bitcoin(bitcoind, &folder.path).await?,
        });
    }
    let config = folder.path.join("bursar.toml");
    write_private(&config, &configuration(&url, &laid)?)?;
    let keys = make_signer(&config, &folder.path, &laid).await?;
    write_private(&folder.path.join("treasury.toml"), &treasury(&laid, &keys)?)?;
    program::told(&config, &["migrate"]).await?;
    let file = text(&folder.path.join("treasury.toml"));
    program::told(&config, &["apply", &file, "--actor", "chaos", "--reason", "a scratch treasury"]).await?;
    let options = Options { max_connections: 4, acquire_timeout: Duration::from_secs(20), ..Options::default() };
    let db = Db::connect(&url, &options).await?;
    let pinned = Arc::new(pin(&laid, &keys)?);
    let office = Arc::new(Office::open(&db, &folder.path, pinned, keys::signing_key(keys::ADMINISTRATOR)?)?);
    let wallets = wallets(&config).await?;
    let mut nets = Vec::new();
    for one in laid {
        let own = wallets.get(one.name).cloned().unwrap_or_default();
        let users = users(&db, &one, &keys).await?;
        nets.push(Arc::new(open(one, (own, users), &db).await?));
    }
    for net in &nets {
        fund(net).await?;
    }
    let actors = actors(&config, &folder.path, &nets);
    Ok(Ground { db, nets, office, config, actors, postgres, folder })
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn make_private(folder: &Path) -> CommandResult {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| trouble("the folder could not be made", error))
}

// ---- chains ----------------------------------------------------------------------------------------------------

async fn lay_anvil(program: Option<&Path>, folder: &Path) -> Result<Laid, Failure> {
    let found = find(program, "anvil", "node_modules/.bin/anvil");
    let program =
        found.ok_or_else(|| wrong("anvil is not installed: tests/tools/anvil.sh does it, or --anvil says where"))?;
    let process = anvil(&program, folder).await?;
    let urls = vec![process.url.clone()];
    let pool = pool(&process.url, None)?;
    let token = deploy_token(&pool).await?;
    let anvil = Anvil { process, pool, blocks: Mutex::new(()) };
    let moody = deploy_moody(&anvil).await?;
    let coins = vec![
        ("ETH", Coin::Native, 18, 1_000_000_000_000),
        ("USDT", Coin::Token(token), 18, 1_000_000),
        ("MOODY", Coin::Token(moody), 18, 1_000_000),
    ];
    Ok(Laid { name: "anvil", kind: "evm", urls, coins, node: Machine::Anvil(Box::new(anvil)) })
}

/// A token that refuses transfers in every third block.
async fn deploy_moody(anvil: &Anvil) -> Result<Address, Failure> {
    let mut code = devnet::evm::contract("Moody").unwrap_or_default().to_vec();
    code.extend([[0; 16], (1_u128 << 100).to_be_bytes()].concat());
    let data = format!("0x{}", signer::digest::hex(&code));
    let from = Key::numbered(0).evm().to_string();
    let sent = anvil.ask("eth_sendTransaction", json!([{ "from": from, "data": data, "gas": "0x2dc6c0" }])).await?;
    anvil.mine(1).await?;
    let receipt = anvil.ask("eth_getTransactionReceipt", json!([sent])).await?;
    let made = receipt["contractAddress"].as_str().unwrap_or_default();
    Family::Evm.parse_address(made).map_err(wrong)
}

async fn lay_tron() -> Result<Laid, Failure> {
    let settings =
        DevnetSettings { bitcoin_port: 0, evm_port: 0, tron_port: 0, control_port: 0, endpoints: 3, block_time: None };
    let devnet = Devnet::start(&settings, Arc::new(SystemClock)).await.map_err(wrong)?;
    let served = devnet.chains.get("tron").ok_or_else(|| wrong("the devnet has no TRON"))?;
    let urls = served.endpoints.iter().map(devnet::Endpoint::url).collect();
    let token = Coin::Token(Address::Tron(devnet::tron::TOKEN));
    let coins = vec![("TRX", Coin::Native, 6, 1_000_000), ("USDT", token, 6, 1_000)];
    Ok(Laid { name: "tron", kind: "tron", urls, coins, node: Machine::Tron(Arc::new(devnet)) })
}

async fn lay_bitcoin(program: Option<&Path>, folder: &Path) -> Result<Laid, Failure> {
    let found = find(program, "bitcoind", "bitcoind");
    let program = found
        .ok_or_else(|| wrong("bitcoind is not installed: tests/tools/bitcoind.sh does it, or --bitcoind says where"))?;
    let process = bitcoind(&program, folder).await?;
    write_private(&folder.join("core.login"), BITCOIN_USER)?;
    let (urls, pool) = (vec![process.url.clone()], pool(&process.url, Some(BITCOIN_LOGIN))?);
    let core = Core { process, pool, blocks: Mutex::new(()), branch: AtomicU32::new(0) };
    core.mine(1).await?;
    let coins = vec![("BTC", Coin::Native, 8, 20_000)];
    Ok(Laid { name: "bitcoin", kind: "bitcoin", urls, coins, node: Machine::Bitcoin(Box::new(core)) })
}

async fn open(laid: Laid, (own, users): (Vec<(String, Address)>, Vec<Address>), db: &Db) -> Result<Net, Failure> {
    let row = db.chain(&laid.name.parse().map_err(wrong)?).await?.ok_or_else(|| wrong("a chain is not there"))?;
    let url = laid.urls.first().cloned().unwrap_or_default();
    let tokens = laid.coins.iter().filter_map(|(_, coin, ..)| match coin {
        Coin::Token(token) => Some(token.clone()),
        Coin::Native => None,
    });
    let chain = nodes::client(row.kind, &url, row.confirmations, tokens.collect())?;
    let mut coins = Vec::new();
    for (symbol, coin, _, unit) in laid.coins {
        let listing = row.listings.iter().find(|one| one.symbol.as_str() == symbol);
        let listing = listing.ok_or_else(|| wrong("a coin is not listed"))?.id;
        coins.push(Payable { symbol, coin, listing, unit });
    }
    let deepest = u64::from(row.final_confirmations).div_ceil(2).min(10);
    let (name, kind, urls, node) = (laid.name, laid.kind, laid.urls, laid.node);
    let gas = own.iter().filter(|(role, _)| role == "gas").map(|(_, address)| address.clone()).collect();
    let wallets = own.into_iter().map(|(_, address)| address).chain(users.iter().cloned()).collect();
    Ok(Net { name, kind, urls, row, chain, wallets, users, gas, coins, deepest, node })
}

/// Our wallets get coins as they would from somebody else: by transactions, which the books find.
async fn fund(net: &Net) -> CommandResult {
    match &net.node {
        Machine::Anvil(anvil) => {
            let from = Key::numbered(0).evm().to_string();
            for wallet in funded(net) {
                let to = wallet.to_string();
                let coin = json!([{ "from": from, "to": to, "value": "0x3635c9adc5dea00000" }]);
                anvil.ask("eth_sendTransaction", coin).await?;
                anvil.mine(1).await?;
                for payable in net.coins.iter().filter(|_| !net.gas.contains(wallet)) {
                    if let Coin::Token(token) = &payable.coin {
                        fund_token(net, anvil, &from, wallet, token).await?;
                    }
                }
            }
            anvil.mine(3).await
        }
        Machine::Tron(devnet) => {
            let served = devnet.chains.get("tron").ok_or_else(|| wrong("the devnet has no TRON"))?;
            for wallet in funded(net) {
                let to = wallet.to_string();
                for (token, amount) in [(None, "100000000000"), (Some("USDT"), "1000000000")] {
                    let amount = amount.parse().map_err(wrong)?;
                    let mut model = served.model.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    model.fund(&to, token, amount, served.now()).map_err(wrong)?;
                }
            }
            net.mine(22).await
        }
        Machine::Bitcoin(core) => {
            for wallet in &net.wallets {
                core.ask("generatetoaddress", json!([COINBASES, wallet.to_string()])).await?;
            }
            core.mine(MATURITY).await
        }
    }
}

/// Wallets that pay something. Users and the treasury are paid.
fn funded(net: &Net) -> impl Iterator<Item = &Address> {
    net.wallets.iter().filter(|wallet| !net.users.contains(wallet))
}

/// Until a block has taken it: one of the tokens refuses in every third.
async fn fund_token(net: &Net, anvil: &Anvil, from: &str, to: &Address, token: &Address) -> CommandResult {
    let digits = to.to_string().trim_start_matches("0x").to_owned();
    let data = format!("0xa9059cbb{digits:0>64}{:064x}", 1_000_000_000_000_000_u64);
    for _ in 0..6 {
        let call = json!([{ "from": from, "to": token.to_string(), "data": data, "gas": "0x30d40" }]);
        anvil.ask("eth_sendTransaction", call).await?;
        anvil.mine(1).await?;
        let has = net.balances(&[(to.clone(), Coin::Token(token.clone()))]).await?;
        if has.iter().any(|has| *has != domain::RawAmount::ZERO) {
            return Ok(());
        }
    }
    Err(wrong("a token cannot be paid"))
}

// ---- files -----------------------------------------------------------------------------------------------------

fn configuration(url: &str, laid: &[Laid]) -> Result<String, Failure> {
    let nodes = |one: &Laid| -> Value {
        let node = |(number, url): (usize, &String)| {
            let mut node = json!({ "name": format!("{}-{number}", one.name), "url": url });
            if one.kind == "bitcoin" {
                node["login_file"] = json!("core.login");
            }
            node
        };
        let nodes: Vec<Value> = one.urls.iter().enumerate().map(node).collect();
        json!({ "call_timeout_ms": 2_000, "hedge_ms": 300, "nodes": nodes })
    };
    let chains: serde_json::Map<String, Value> = laid.iter().map(|one| (one.name.to_owned(), nodes(one))).collect();
    let settings = json!({
        "database": { "url": url, "max_connections": 4, "any_rights": true },
        "treasury": { "file": "treasury.toml" },
        "signer": { "name": "signer", "socket": "signer/socket", "credential_file": "server.credential" },
        "spot": { "address": "", "folder": "spot" },
        "chains": chains,
    });
    let text = toml::to_string(&settings).map_err(wrong)?;
    Ok(format!("{MADE_BY_US}. Its chains are gone with the run.\n{text}"))
}

/// As the signer and the treasury file call it.
fn family(kind: &'static str) -> &'static str {
    if kind == "bitcoin" { "bitcoin-regtest" } else { kind }
}

fn group(one: &Laid) -> String {
    format!("hot-{}", one.name)
}

/// The groups of a chain, with what they are for. On Bitcoin nothing is swept.
fn groups(one: &Laid) -> Vec<(String, &'static str)> {
    let mut groups = vec![(group(one), "hot")];
    if one.is_swept() {
        let more = [("users", "deposit"), ("gas", "gas"), ("treasury", "treasury")];
        groups.extend(more.map(|(name, purpose)| (format!("{name}-{}", one.name), purpose)));
    }
    groups
}

fn treasury(laid: &[Laid], keys: &BTreeMap<String, String>) -> Result<String, Failure> {
    let (mut assets, mut chains, mut listings) = (serde_json::Map::new(), serde_json::Map::new(), Vec::new());
    let (mut pinned, mut wallets) = (serde_json::Map::new(), Vec::new());
    let (mut gas_rules, mut sweep_rules) = (serde_json::Map::new(), serde_json::Map::new());
    for one in laid {
        let (_, confirmations, settled) =
            CONFIRMATIONS.into_iter().find(|(name, ..)| *name == one.name).ok_or_else(|| wrong("a chain"))?;
        let network = match one.kind {
            "evm" => "56",
            "bitcoin" => "regtest",
            _ => "mainnet",
        };
        let mut chain = json!({
            "kind": one.kind, "network": network, "confirmations": confirmations, "final_confirmations": settled,
            "stuck_after_s": STUCK_S,
        });
        match one.kind {
            "evm" => chain["in_flight"] = json!(8),
            "bitcoin" => (chain["gather_s"], chain["gather_most"]) = (json!(2), json!(8)),
            _ => {}
        }
        chains.insert(one.name.to_owned(), chain);
        for (symbol, coin, decimals, _) in &one.coins {
            let limits =
                json!({ "precision": PRECISION, "min_transfer": "1", "max_transfer": "9", "daily_transfer": "9" });
            assets.insert((*symbol).to_owned(), limits);
            let mut listing = json!({ "asset": symbol, "chain": one.name, "decimals": decimals, "min_deposit": "1" });
            if let Coin::Token(token) = coin {
                listing["contract"] = json!(token.to_string());
            }
            listings.push(listing);
        }
        for (name, purpose) in groups(one) {
            let xpub = keys.get(&name).ok_or_else(|| wrong("a group has no key"))?;
            let count = match purpose {
                "hot" => WALLETS,
                "deposit" => 0,
                _ => 1,
            };
            for index in 0..count {
                wallets.push(json!({ "role": purpose, "chain": one.name, "group": name, "index": index }));
            }
            pinned.insert(name, json!({ "chain": family(one.kind), "purpose": purpose, "xpub": xpub }));
        }
        let (coin, below, brings) = match one.kind {
            _ if !one.is_swept() => continue,
            "evm" => ("ETH", "0.5", "1"),
            "tron" => ("TRX", "50", "100"),
            _ => continue,
        };
        let pace = json!({ "chain": one.name, "cool_down_s": 1, "most_per_hour": 100_000 });
        let rule = |more: Value| -> Value {
            let fields = [&pace, &more].into_iter().filter_map(Value::as_object).flatten();
            fields.map(|(name, value)| (name.clone(), value.clone())).collect::<serde_json::Map<_, _>>().into()
        };
        let gas = json!({ "asset": coin, "operator": "<", "threshold": below, "amount": brings });
        gas_rules.insert(format!("gas-{}", one.name), rule(gas));
        let sweep = json!({ "asset": "USDT", "operator": ">", "threshold": "1" });
        sweep_rules.insert(format!("sweep-{}", one.name), rule(sweep));
    }
    let file = json!({
        "assets": assets, "chains": chains, "on_chain": listings, "wallet_groups": pinned, "operation_wallets": wallets,
        "gas_topup_rules": gas_rules, "consolidation_rules": sweep_rules,
    });
    toml::to_string(&file).map_err(wrong)
}

fn policy(laid: &[Laid], administrator: &str) -> String {
    let much = "1000000000000000000000000000000";
    let chain = |one: &Laid| match one.kind {
        "evm" => format!("{{ name = \"{}\", kind = \"evm\", chain_id = 56 }}", one.name),
        "bitcoin" => format!("{{ name = \"{}\", kind = \"bitcoin\", network = \"regtest\" }}", one.name),
        kind => format!("{{ name = \"{}\", kind = \"{kind}\" }}", one.name),
    };
    let chains: Vec<String> = laid.iter().map(chain).collect();
    let mut text = format!(
        "signer = \"signer\"\nversion = 1\ncooling_off_hours = 1\nmost_intent_life_hours = 100\ntron_margin_minutes = 1\n\
         administrators = {{ needed = 1, keys = {{ ada = \"{administrator}\" }} }}\nchain = [{}]\n",
        chains.join(", ")
    );
    text += &format!("[[approver]]\nkey = \"{APPROVER}\"\nperson = \"{APPROVER}\"\ned25519 = \"{administrator}\"\n");
    for one in laid {
        for (name, role) in groups(one) {
            let coin = |(_, coin, ..): &(&str, Coin, u8, u64)| {
                let name = match coin {
                    Coin::Native => "native".to_owned(),
                    Coin::Token(_) if role == "gas" => return None,
                    Coin::Token(token) => token.to_string(),
                };
                Some(match role {
                    "hot" | "gas" => {
                        format!("{{ coin = \"{name}\", payment = \"{much}\", hour = \"{much}\", day = \"{much}\" }}")
                    }
                    _ => format!("{{ coin = \"{name}\" }}"),
                })
            };
            let coins: Vec<String> = one.coins.iter().filter_map(coin).collect();
            let highest = if role == "hot" { format!("highest_index = {}\n", WALLETS - 1) } else { String::new() };
            text += &format!(
                "[[group]]\nid = \"{name}\"\nchain = \"{}\"\nrole = \"{role}\"\nmost_fee = \"{much}\"\nmost_fee_day = \"{much}\"\n{highest}coin = [{}]\n",
                one.name,
                coins.join(", ")
            );
        }
    }
    text
}

/// The groups as the treasury file has them.
fn pin(laid: &[Laid], keys: &BTreeMap<String, String>) -> Result<Pinned, Failure> {
    let mut pinned = Pinned::default();
    for one in laid {
        for (name, purpose) in groups(one) {
            let xpub = keys.get(&name).ok_or_else(|| wrong("a group has no key"))?;
            let key = AccountKey::parse(xpub, address_family(one.kind)).map_err(wrong)?;
            let purpose = domain::Purpose::parse(purpose).ok_or_else(|| wrong("a purpose"))?;
            let group = Group { id: name.parse().map_err(wrong)?, purpose, key };
            pinned.add_group(group, true).map_err(wrong)?;
        }
    }
    Ok(pinned)
}

fn address_family(kind: &str) -> Family {
    match kind {
        "tron" => Family::Tron,
        "bitcoin" => Family::Bitcoin(devnet::bitcoin::NETWORK),
        _ => Family::Evm,
    }
}

/// A signer with a keystore, a policy and a key for the workers. The extended public keys of its groups.
async fn make_signer(config: &Path, folder: &Path, laid: &[Laid]) -> Result<BTreeMap<String, String>, Failure> {
    let of = |one: &Laid| -> Vec<KeyGroup> {
        let kind = one.kind;
        groups(one).into_iter().map(|(name, purpose)| KeyGroup { name, purpose, family: family(kind) }).collect()
    };
    let groups: Vec<KeyGroup> = laid.iter().flat_map(of).collect();
    keys::make_signer(config, folder, &groups, |administrator| policy(laid, administrator)).await
}

/// Users get deposit addresses, as people give them.
async fn users(db: &Db, one: &Laid, keys: &BTreeMap<String, String>) -> Result<Vec<Address>, Failure> {
    let Some((name, _)) = groups(one).into_iter().find(|(_, purpose)| *purpose == "deposit") else {
        return Ok(Vec::new());
    };
    let family = if one.kind == "tron" { Family::Tron } else { Family::Evm };
    let xpub = keys.get(&name).ok_or_else(|| wrong("a group has no key"))?;
    let key = AccountKey::parse(xpub, family).map_err(wrong)?;
    let group = Group { id: name.parse().map_err(wrong)?, purpose: domain::Purpose::Deposit, key };
    let (mut addresses, mut rows) = (Vec::new(), Vec::new());
    for user in (1..=USERS).filter_map(UserId::new) {
        let address = group.address(user.get().unsigned_abs()).map_err(wrong)?;
        rows.push(NewUserWallet { user, address: address.to_string() });
        addresses.push(address);
    }
    db.assign_user_wallets(&group.id, &rows, SystemClock.now()).await?;
    Ok(addresses)
}

/// Our wallets by the names of their chains, each with its role.
async fn wallets(config: &Path) -> Result<BTreeMap<String, Vec<(String, Address)>>, Failure> {
    let shown = program::told(config, &["wallet", "show"]).await?;
    let mut found: BTreeMap<String, Vec<(String, Address)>> = BTreeMap::new();
    for wallet in shown["operation_wallets"].as_array().into_iter().flatten() {
        let (chain, address) = (wallet["chain"].as_str().unwrap_or_default(), wallet["address"].as_str());
        let family = address_family(chain);
        let address = family.parse_address(address.unwrap_or_default()).map_err(wrong)?;
        let role = wallet["role"].as_str().unwrap_or_default().to_owned();
        found.entry(chain.to_owned()).or_default().push((role, address));
    }
    Ok(found)
}

/// The signer; and of each chain two that send, two that watch, two that give withdrawals their jobs, and one that keeps its books. Bitcoin's blocks have a reader of their own.
fn actors(config: &Path, folder: &Path, nets: &[Arc<Net>]) -> Vec<Actor> {
    let (config, home, passphrase) = (text(config), text(&folder.join("signer")), text(&folder.join("passphrase")));
    let base = ["--json".to_owned(), "--config".to_owned(), config];
    let words = |more: &[&str]| base.iter().cloned().chain(more.iter().map(|word| (*word).to_owned())).collect();
    let log = |name: &str| folder.join(format!("{name}.log"));
    let serve = ["signer", "serve", "--folder", &home, "--passphrase-file", &passphrase];
    let mut actors = vec![Actor::new(Part::Signer, words(&serve), log("signer"))];
    for net in nets {
        let chain = net.name;
        for number in [1, 2] {
            for part in [Part::Outbound, Part::Confirm, Part::Withdrawals] {
                let name = format!("{}-{chain}-{number}", part.name());
                actors.push(Actor::new(part, words(&["run", part.name(), "--chain", chain]), log(&name)));
            }
        }
        if let (Machine::Bitcoin(_), Some(url)) = (&net.node, net.urls.first()) {
            let login = text(&folder.join("core.login"));
            let follow = words(&["utxo", "follow", "--login-file", &login, "--node", url]);
            actors.push(Actor::new(Part::Follow, follow, log("follow-bitcoin")));
        }
        if !net.users.is_empty() {
            for number in [1, 2] {
                let name = format!("rules-{chain}-{number}");
                actors.push(Actor::new(Part::Rules, words(&["run", "rules", "--chain", chain]), log(&name)));
            }
        }
        let books = words(&["run", "deposits", "--chain", chain, "--from", "0"]);
        actors.push(Actor::new(Part::Deposits, books, log(&format!("deposits-{chain}"))));
    }
    actors
}
