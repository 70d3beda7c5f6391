//! The nodes of the bench: started here, each in a process of its own, with a client, coins for our wallets, and blocks by hand.

use std::path::Path;
use std::sync::Arc;

use chain::client::side_by_side;
use chain::endpoint::{Node as Endpoint, Pool};
use chain::evm::{EvmChain, EvmSettings};
use chain::tron::{Network, TronChain, TronSettings};
use chain::{Broadcast, Chain};
use devnet::Key;
use domain::{ChainKind, RawAmount};
use serde_json::{Value, json};
use terminal::clock::Stopwatch;
use terminal::failure::{CommandResult, Failure};
use tx::{Address, Coin, Draft, Fee, Payment};

use super::super::scan::{self, RealNode, ask, pool, sign};
use super::{blocks, failed};
use crate::rig::process::Process;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Target {
    Anvil,
    DevnetEvm,
    DevnetTron,
}

impl Target {
    pub const ALL: [Self; 3] = [Self::Anvil, Self::DevnetEvm, Self::DevnetTron];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Anvil => "anvil",
            Self::DevnetEvm => "devnet_evm",
            Self::DevnetTron => "devnet_tron",
        }
    }

    pub const fn kind(self) -> ChainKind {
        match self {
            Self::Anvil | Self::DevnetEvm => ChainKind::Evm,
            Self::DevnetTron => ChainKind::Tron,
        }
    }
}

pub(in crate::bench) struct Host {
    pub target: Target,
    pub chain: Arc<dyn Chain>,
    pub token: Address,
    /// For what the bench itself asks.
    pool: Pool,
    /// The devnet's control interface.
    control: Option<Pool>,
    process: Option<Process>,
    _real: Option<RealNode>,
}

impl Host {
    /// `None`: anvil is not installed.
    pub async fn start(target: Target, anvil: Option<&Path>, folder: &Path) -> Result<Option<Self>, Failure> {
        let (mut process, mut control, mut real) = (None, None, None);
        let url = match target {
            Target::Anvil => {
                let Some(program) = scan::find(anvil, "anvil", "node_modules/.bin/anvil") else { return Ok(None) };
                real.insert(scan::anvil(&program, folder).await?).url.clone()
            }
            Target::DevnetEvm | Target::DevnetTron => {
                let quiet = ["--evm-port", "0", "--tron-port", "0", "--bitcoin-port", "0", "--control-port", "0"];
                let start = ["--json", "devnet", "--by-hand", "--endpoints", "1"];
                let started = Process::start(&[&start[..], &quiet[..]].concat(), "control").await?;
                let url = started.said[target.kind().as_str()][0].as_str().unwrap_or_default().to_owned();
                control = Some(pool(&format!("http://{}", started.address), None)?);
                process = Some(started);
                url
            }
        };
        let own = pool(&url, None)?;
        let pool = pool(&url, None)?;
        let token = match target {
            Target::Anvil => scan::deploy_token(&pool).await?,
            Target::DevnetEvm => Address::Evm(devnet::evm::TETHER),
            Target::DevnetTron => Address::Tron(devnet::tron::TOKEN),
        };
        let chain: Arc<dyn Chain> = match &token {
            Address::Evm(contract) => {
                let mut settings = EvmSettings::new(devnet::evm::CHAIN_ID, u64::from(super::CONFIRMATIONS));
                settings.tokens.push(*contract);
                Arc::new(EvmChain::new(settings, own))
            }
            _ => {
                Arc::new(TronChain::new(TronSettings::new(Network::Devnet, vec![token.clone()]), own).map_err(failed)?)
            }
        };
        Ok(Some(Self { target, chain, token, pool, control, process, _real: real }))
    }

    pub async fn stop(self) -> CommandResult {
        match self.process {
            Some(process) => process.kill().await,
            None => Ok(()),
        }
    }

    async fn command(&self, path: &str, body: Value) -> CommandResult {
        let control = self.control.as_ref().ok_or_else(|| failed("this node has no control port"))?;
        let (path, body) = (path.to_owned(), body.to_string());
        let post = |node: Arc<Endpoint>| {
            let (path, body) = (path.clone(), body.clone());
            async move { node.post(&path, body.into()).await.map(|_| ()) }
        };
        control.any(post).await.map_err(failed)
    }

    pub async fn mine(&self, blocks: u64) -> CommandResult {
        match self.target {
            Target::Anvil => ask(&self.pool, "anvil_mine", json!([format!("0x{blocks:x}")])).await.map(drop),
            Target::DevnetEvm => self.command("/evm/mine", json!({ "blocks": blocks })).await,
            Target::DevnetTron => self.command("/tron/mine", json!({ "blocks": blocks })).await,
        }
    }

    /// Much of the coin and of the token.
    pub async fn fund(&self, wallets: &[Address]) -> CommandResult {
        let from = Key::numbered(9).evm().to_string();
        for wallet in wallets {
            let to = wallet.to_string();
            match self.target {
                Target::Anvil => {
                    let coin = json!([{ "from": from, "to": to, "value": "0xde0b6b3a7640000" }]);
                    ask(&self.pool, "eth_sendTransaction", coin).await?;
                    let digits = to.trim_start_matches("0x");
                    let data = format!("0xa9059cbb{digits:0>64}{:064x}", 100_000_000_000_u64);
                    let token = json!([{ "from": from, "to": self.token.to_string(), "data": data }]);
                    ask(&self.pool, "eth_sendTransaction", token).await?;
                }
                Target::DevnetEvm | Target::DevnetTron => {
                    let chain = self.target.kind().as_str();
                    let coins = if chain == "evm" { "100000000000000000000" } else { "1000000000000" };
                    for (token, amount) in [(None, coins), (Some("USDT"), "100000000000")] {
                        let body = json!({ "address": to, "amount": amount, "token": token });
                        self.command(&format!("/{chain}/fund"), body).await?;
                    }
                }
            }
        }
        self.mine(22).await
    }

    /// Payments signed beforehand, by as many keys as there are wallets.
    pub async fn signed(&self, count: u32, senders: u32, first: u32) -> Result<Vec<Vec<u8>>, Failure> {
        let keys: Vec<Key> = (0..senders).map(Key::numbered).collect();
        let addresses: Vec<Address> = keys.iter().map(Key::evm).collect();
        let evm = self.target.kind() == ChainKind::Evm;
        let mut nonces = if evm { self.mined_nonces(&addresses).await? } else { Vec::new() };
        let tip = self.chain.head().await.map_err(failed)?.tip;
        let mut signed = Vec::new();
        for number in 0..count {
            let sender = usize::try_from(number % senders).unwrap_or(0);
            let coin = if number % 2 == 0 { Coin::Native } else { Coin::Token(self.token.clone()) };
            let token = coin != Coin::Native;
            let to = scan::address(self.target.kind(), 1_000_000_000 + first + number);
            let payment = Payment { to, coin, amount: amount(self.target.kind()) };
            let draft = if evm {
                let nonce = nonces[sender];
                nonces[sender] += 1;
                let fee = Fee::Eip1559 { max_fee: 100_000_000_000, max_priority: 1_000_000_000 };
                let gas_limit = if token { 100_000 } else { 21_000 };
                Draft::Evm { from: addresses[sender].clone(), nonce, payment, gas_limit, fee }
            } else {
                Draft::Tron {
                    from: keys[sender].tron(),
                    payment,
                    fee_limit: if token { 100_000_000 } else { 0 },
                    reference: tip.at(),
                    created: tip.time.plus_micros(i64::from(number) * 1_000),
                    expires: tip.time.plus_micros(12 * 3_600 * 1_000_000),
                }
            };
            let unsigned = self.chain.build(&draft).map_err(failed)?;
            signed.push(sign(self.target.kind(), &keys[sender], &unsigned)?);
        }
        Ok(signed)
    }

    /// A block holds only so much: what was told before may need a few more.
    async fn mined_nonces(&self, addresses: &[Address]) -> Result<Vec<u64>, Failure> {
        for _ in 0..100 {
            let nonces = self.chain.nonces(addresses).await.map_err(failed)?;
            if nonces.iter().all(|one| one.mined == one.pending) {
                return Ok(nonces.into_iter().map(|one| one.mined).collect());
            }
            self.mine(1).await?;
        }
        Err(failed("what was sent raw is in no block after a hundred"))
    }

    /// Tells the node of all of them, so many at a time, while blocks come: no store, no signer, no questions. It waits for no block. Transactions per
    /// second.
    pub async fn send_raw(&self, signed: &[Vec<u8>], piece: usize, how: Raw) -> Result<f64, Failure> {
        let watch = Stopwatch::start();
        let told = async {
            for some in signed.chunks(piece.max(1)) {
                let some: Vec<&[u8]> = some.iter().map(Vec::as_slice).collect();
                let said = match how {
                    Raw::OneByOne => side_by_side(some.iter().map(|bytes| self.chain.broadcast(bytes)).collect()).await,
                    Raw::Together => self.chain.broadcast_all(&some).await,
                };
                for answer in said {
                    match answer.map_err(failed)? {
                        Broadcast::Taken => {}
                        Broadcast::Refused(_, words) => return Err(failed(words)),
                    }
                }
            }
            Ok(signed.len() as f64 / watch.elapsed().as_secs_f64())
        };
        let told = tokio::select! {
            told = told => told?,
            failed = blocks(self) => return Err(failed),
        };
        self.mine(1).await?;
        Ok(told)
    }
}

/// How the client tells the node of many transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bench) enum Raw {
    /// A call for each, as many side by side as the client has.
    OneByOne,
    /// In as few calls as the node allows, as the worker does.
    Together,
}

/// What each payment pays. On Bitcoin less would be dust.
pub(super) fn amount(kind: ChainKind) -> RawAmount {
    let units: u64 = if kind == ChainKind::Bitcoin { 10_000 } else { 1_000 };
    RawAmount::from_u256(units.try_into().unwrap_or_default())
}
