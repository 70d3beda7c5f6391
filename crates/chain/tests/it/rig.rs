//! A devnet of each kind on three endpoints, with a client that wants two of them to agree.
//!
//! A fourth endpoint has no faults: what it says is the truth that answers are compared with.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ::bitcoin::Network;
use ::bitcoin::hashes::{Hash, sha256};
use alloy_primitives::keccak256;
use chain::bitcoin::{BitcoinChain, BitcoinSettings};
use chain::client::Sent;
use chain::endpoint::{EndpointSettings, Event, Pool, PoolSettings, json_rpc};
use chain::evm::{EvmChain, EvmSettings};
use chain::tron::{TronChain, TronSettings};
use chain::{Broadcast, Chain, Header, Status, Watched};
use devnet::bitcoin::BitcoinDevnet;
use devnet::evm::{EvmDevnet, TETHER};
use devnet::tron::{TOKEN, TronDevnet};
use devnet::{Endpoint, Fate, Key, Model, Served, View, WireFaults, bitcoin, evm, tron};
use domain::{ChainKind, Clock, ManualClock, RawAmount, Timestamp};
use serde_json::{Value, json};
use tokio::sync::broadcast::Receiver;
use tx::Input;
use tx::bitcoin::finalize;
use tx::{Address, Coin, Draft, Fee, FeeCap, Payment, Slot, TxHash};

/// The endpoints that may have faults.
pub const ENDPOINTS: usize = 3;
/// A payment's life on TRON.
const LIFE_MICROS: i64 = 60_000_000;
const GWEI: u128 = 1_000_000_000;

pub struct Rig {
    pub kind: ChainKind,
    pub served: Served<dyn Model>,
    /// Two of three.
    pub chain: Box<dyn Chain>,
    /// By the endpoint without faults alone.
    pub truth: Box<dyn Chain>,
    rpc: Pool,
    clock: Arc<ManualClock>,
    pool: PoolSettings,
}

/// A payment that can be sent, and what is known of it beforehand.
pub struct SignedPayment {
    pub bytes: Vec<u8>,
    pub sent: Sent,
    pub payment: Payment,
    from: u32,
    inputs: Vec<Input>,
}

async fn serve<M: Model>(model: M, clock: &Arc<ManualClock>) -> Served<dyn Model> {
    let free: SocketAddr = ([127, 0, 0, 1], 0).into();
    let served = Served::start(model, &[free; ENDPOINTS + 1], Arc::<ManualClock>::clone(clock)).await;
    served.expect("free ports").into_dyn()
}

impl Rig {
    pub async fn start(kind: ChainKind) -> Self {
        Self::with(kind, PoolSettings::default()).await
    }

    /// With a client that does not wait for long.
    pub async fn hasty(kind: ChainKind) -> Self {
        let pool = PoolSettings {
            deadline: Duration::from_millis(500),
            procedure_deadline: Duration::from_secs(5),
            hedge: Duration::from_millis(50),
            answer_bytes: 8 << 20,
            ..PoolSettings::default()
        };
        Self::with(kind, pool).await
    }

    /// With a client that waits for an answer, but not long for more than it needs.
    pub async fn patient(kind: ChainKind) -> Self {
        let (deadline, hedge) = (Duration::from_secs(30), Duration::from_millis(200));
        Self::with(kind, PoolSettings { deadline, hedge, ..PoolSettings::default() }).await
    }

    async fn with(kind: ChainKind, pool: PoolSettings) -> Self {
        let (evm, tron, bitcoin) = (
            evm::Settings::default(),
            tron::Settings { solid_depth: 30, ..tron::Settings::default() },
            bitcoin::Settings::default(),
        );
        let start = match kind {
            ChainKind::Evm => Timestamp::from_micros(i64::try_from(evm.genesis_time).unwrap() * 1_000_000),
            ChainKind::Tron => tron.genesis,
            ChainKind::Bitcoin => bitcoin.start,
        };
        let clock = Arc::new(ManualClock::at(start));
        let served = match kind {
            ChainKind::Evm => serve(EvmDevnet::new(evm), &clock).await,
            ChainKind::Tron => serve(TronDevnet::new(tron), &clock).await,
            ChainKind::Bitcoin => serve(BitcoinDevnet::new(bitcoin), &clock).await,
        };
        let honest = PoolSettings::default();
        let (mut faulty, mut good) = (Vec::new(), Vec::new());
        for (number, endpoint) in served.endpoints.iter().enumerate() {
            let list = if number < ENDPOINTS { &mut faulty } else { &mut good };
            list.push(settings(number, endpoint));
        }
        let (chain, _) = client(kind, &faulty, &PoolSettings { quorum: Some(2), ..pool.clone() }, &clock);
        let (truth, _) = client(kind, &good, &honest, &clock);
        let rpc = Pool::new(&good, &honest, Arc::<ManualClock>::clone(&clock)).expect("a good endpoint");
        Self { kind, served, chain, truth, rpc, clock, pool }
    }

    /// Another client of the three endpoints, which has heard nothing of them yet.
    pub fn client(&self, quorum: usize) -> (Box<dyn Chain>, Receiver<Event>) {
        let faulty: Vec<_> =
            self.served.endpoints[..ENDPOINTS].iter().enumerate().map(|(n, one)| settings(n, one)).collect();
        client(self.kind, &faulty, &PoolSettings { quorum: Some(quorum), ..self.pool.clone() }, &self.clock)
    }

    /// A client that has nothing but this endpoint.
    pub fn client_of(&self, endpoint: usize) -> Box<dyn Chain> {
        client(self.kind, &[settings(endpoint, &self.served.endpoints[endpoint])], &self.pool, &self.clock).0
    }

    pub fn model<T>(&self, act: impl FnOnce(&mut dyn Model, Timestamp) -> T) -> T {
        let mut model = self.served.model.lock().unwrap_or_else(PoisonError::into_inner);
        act(&mut *model, self.clock.now())
    }

    pub const fn block_micros(&self) -> i64 {
        match self.kind {
            ChainKind::Evm | ChainKind::Tron => 3_000_000,
            ChainKind::Bitcoin => 600_000_000,
        }
    }

    /// How many blocks must stand on one before it is settled.
    pub const fn depth(&self) -> u64 {
        match self.kind {
            ChainKind::Evm => 12,
            ChainKind::Tron => 30,
            ChainKind::Bitcoin => 6,
        }
    }

    /// Lets the time of so many blocks pass without any.
    pub fn wait(&self, blocks: u64) {
        let passed = self.block_micros() * i64::try_from(blocks).unwrap();
        self.clock.set(self.clock.now().plus_micros(passed));
    }

    pub fn mine(&self, blocks: u64) {
        for _ in 0..blocks {
            self.wait(1);
            self.model(|model, now| model.mine(1, now));
        }
    }

    pub fn try_reorg(&self, depth: u64, fate: Fate, with: &[Vec<u8>]) -> Result<(), String> {
        self.wait(1);
        self.model(|model, now| model.reorg(depth, fate, with, now))
    }

    pub fn reorg(&self, depth: u64, fate: Fate, with: &[Vec<u8>]) {
        self.try_reorg(depth, fate, with).expect("a reorganisation of this depth");
    }

    pub fn height(&self) -> u64 {
        self.model(|model, _| model.height())
    }

    /// The true blocks.
    pub async fn headers(&self, from: u64, to: u64) -> Vec<Header> {
        let heights: Vec<u64> = (from..=to).collect();
        self.truth.headers(&heights).await.expect("the truth")
    }

    /// One endpoint sees the chain like this from now on.
    pub fn view(&self, endpoint: usize, view: View) {
        *self.served.endpoints[endpoint].view.lock().unwrap_or_else(PoisonError::into_inner) = view;
    }

    pub fn wire(&self, endpoint: usize, faults: WireFaults) {
        *self.served.endpoints[endpoint].wire.lock().unwrap_or_else(PoisonError::into_inner) = faults;
    }

    pub fn wire_all(&self, faults: WireFaults) {
        (0..ENDPOINTS).for_each(|endpoint| self.wire(endpoint, faults));
    }

    /// No faults on any endpoint.
    pub fn heal(&self) {
        for endpoint in 0..ENDPOINTS {
            self.view(endpoint, View::default());
            self.wire(endpoint, WireFaults::default());
        }
    }

    pub fn address(&self, key: u32) -> Address {
        let key = Key::numbered(key);
        match self.kind {
            ChainKind::Evm => key.evm(),
            ChainKind::Tron => key.tron(),
            ChainKind::Bitcoin => key.bitcoin(Network::Regtest),
        }
    }

    /// The chain's token; Bitcoin has none.
    pub fn token(&self) -> Option<Coin> {
        match self.kind {
            ChainKind::Evm => Some(Coin::Token(Address::Evm(TETHER))),
            ChainKind::Tron => Some(Coin::Token(Address::Tron(TOKEN))),
            ChainKind::Bitcoin => None,
        }
    }

    /// The token, or the chain's own coin where there is none.
    pub fn coin(&self) -> Coin {
        self.token().unwrap_or(Coin::Native)
    }

    pub fn fund(&self, to: &Address, coin: &Coin, amount: u64) {
        let token = match coin {
            Coin::Native => None,
            Coin::Token(token) => Some(token.to_string()),
        };
        self.model(|model, now| model.fund(&to.to_string(), token.as_deref(), raw(amount), now)).expect("a gift");
    }

    /// Coins for an address, mined.
    pub async fn deposit(&self, to: &Address, coin: &Coin, amount: u64) -> TxHash {
        self.fund(to, coin, amount);
        self.mine(1);
        let height = self.height();
        let scan = self.truth.scan(height, height, &watch(&[to])).await.expect("the newest block");
        let paid = scan.outputs.iter().find(|output| output.amount == raw(amount));
        paid.expect("the gift is in the newest block").transaction
    }

    pub fn payment(&self, to: u32, coin: Coin, amount: u64) -> Payment {
        Payment { to: self.address(to), coin, amount: raw(amount) }
    }

    pub const fn cap(&self) -> FeeCap {
        FeeCap(match self.kind {
            ChainKind::Evm => Fee::Eip1559 { max_fee: 20 * GWEI, max_priority: 5 * GWEI },
            ChainKind::Tron => Fee::FeeLimit(100_000_000),
            ChainKind::Bitcoin => Fee::PerKvb(200_000),
        })
    }

    /// A payment of the chain's own coin between two of the rich keys, signed and not sent.
    pub async fn pay(&self, from: u32, to: u32, amount: u64) -> SignedPayment {
        self.pay_coin(from, self.payment(to, Coin::Native, amount), None).await
    }

    /// With this much gas (EVM) or this fee limit in sun (TRON), whatever the nodes say that it takes.
    pub async fn pay_coin(&self, from: u32, payment: Payment, limit: Option<u64>) -> SignedPayment {
        let (payer, head) = (self.address(from), self.truth.head().await.expect("a head").tip);
        // What cannot work cannot be quoted either.
        let quoted = Payment { amount: raw(1), ..payment.clone() };
        let quote = self.truth.quote(&payer, &quoted, self.cap()).await.expect("a quote");
        let mut inputs = Vec::new();
        let draft = match self.kind {
            ChainKind::Evm => Draft::Evm {
                nonce: self.truth.nonces(std::slice::from_ref(&payer)).await.expect("a nonce")[0].pending,
                from: payer,
                payment: payment.clone(),
                gas_limit: limit.unwrap_or(quote.gas),
                fee: quote.fee,
            },
            ChainKind::Tron => {
                let Fee::FeeLimit(fee_limit) = quote.fee else { panic!("a fee limit") };
                let now = head.time.max(self.clock.now());
                Draft::Tron {
                    from: payer,
                    payment: payment.clone(),
                    fee_limit: limit.map_or(fee_limit, |limit| i64::try_from(limit).unwrap()),
                    reference: quote.reference.expect("a reference").0,
                    created: now,
                    expires: now.plus_micros(LIFE_MICROS),
                }
            }
            ChainKind::Bitcoin => {
                inputs = vec![self.coins_of(&payer).await.remove(0)];
                self.spend(inputs.clone(), payment.clone(), from, 2_000)
            }
        };
        self.sign(from, &draft, payment, head.height, inputs)
    }

    fn spend(&self, inputs: Vec<Input>, payment: Payment, from: u32, fee: u64) -> Draft {
        let owned: u64 = inputs.iter().map(|input| input.amount_sat).sum();
        let paid: u64 = payment.amount.to_string().parse().unwrap();
        let change = self.payment(from, Coin::Native, owned - paid - fee);
        Draft::Bitcoin { inputs, payments: vec![payment, change], lock_time: 0 }
    }

    /// Another payment that cannot be mined beside this one: a higher offer to somebody else. TRON has none.
    pub fn conflicting(&self, with: &SignedPayment, to: u32) -> Option<SignedPayment> {
        let payment = Payment { to: self.address(to), ..with.payment.clone() };
        let draft = match (&with.sent.meaning.slot, with.sent.meaning.fee) {
            (Slot::Nonce(nonce), Fee::Eip1559 { max_fee, max_priority }) => Draft::Evm {
                from: self.address(with.from),
                nonce: *nonce,
                payment: payment.clone(),
                gas_limit: 100_000,
                fee: Fee::Eip1559 { max_fee: max_fee * 2, max_priority: max_priority * 2 },
            },
            (Slot::Inputs(_), _) => self.spend(with.inputs.clone(), payment.clone(), with.from, 20_000),
            _ => return None,
        };
        Some(self.sign(with.from, &draft, payment, with.sent.since, with.inputs.clone()))
    }

    /// Unsigned, read, signed, read again.
    fn sign(&self, from: u32, draft: &Draft, payment: Payment, since: u64, inputs: Vec<Input>) -> SignedPayment {
        let unsigned = self.chain.build(draft).expect("a good draft");
        let read = self.chain.decode_unsigned(&unsigned.bytes).expect("our own bytes");
        assert_eq!(read, unsigned.meaning);
        let bytes = signed(self.kind, &Key::numbered(from), &unsigned.bytes);
        let meaning = self.chain.decode_signed(&bytes).expect("our own signature");
        assert_eq!((&meaning.payments, &meaning.slot), (&read.payments, &read.slot));
        let hash = meaning.hash.expect("what is signed has a hash");
        SignedPayment { bytes, sent: Sent { meaning, hash, since }, payment, from, inputs }
    }

    /// What the address can spend, as Bitcoin Core finds it.
    async fn coins_of(&self, owner: &Address) -> Vec<Input> {
        let params = json!(["start", [format!("addr({owner})")]]);
        let found: Value = self.ask("scantxoutset", params).await;
        let input = |one: &Value| Input {
            transaction: one["txid"].as_str().unwrap().parse().unwrap(),
            index: u32::try_from(one["vout"].as_u64().unwrap()).unwrap(),
            amount_sat: satoshi(&one["amount"]),
            script: alloy_primitives::hex::decode(one["scriptPubKey"].as_str().unwrap()).unwrap(),
            sequence: 0xffff_fffd,
        };
        found["unspents"].as_array().expect("a list").iter().map(input).collect()
    }

    async fn ask(&self, method: &str, params: Value) -> Value {
        let params = &params;
        let answer = self.rpc.any(|node| async move { json_rpc::call(&node, method, params.clone()).await });
        answer.await.expect("an answer")
    }

    pub async fn send(&self, paid: &SignedPayment) {
        assert_eq!(self.chain.broadcast(&paid.bytes).await, Ok(Broadcast::Taken));
    }

    pub async fn status(&self, paid: &SignedPayment) -> Status {
        self.chain.status(&paid.sent).await.expect("a status")
    }
}

/// The amount is printed with eight decimals; money is not read through a float.
fn satoshi(amount: &Value) -> u64 {
    let text = amount.to_string();
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    format!("{whole}{part:0<8}").parse().expect("digits")
}

pub fn signed(kind: ChainKind, key: &Key, unsigned: &[u8]) -> Vec<u8> {
    match kind {
        ChainKind::Evm => {
            let (signature, odd) = key.sign(keccak256(unsigned).0);
            tx::evm::attach(unsigned, &signature, odd).expect("our own bytes")
        }
        ChainKind::Tron => {
            let (signature, odd) = key.sign(sha256::Hash::hash(unsigned).to_byte_array());
            tx::tron::transaction::attach(unsigned, &signature, odd).expect("our own bytes")
        }
        ChainKind::Bitcoin => finalize(&key.sign_psbt(unsigned)).expect("our own coins"),
    }
}

fn settings(number: usize, endpoint: &Endpoint) -> EndpointSettings {
    EndpointSettings {
        name: format!("node {number}"),
        url: endpoint.url(),
        authorization: None,
        key: None,
        headers: Vec::new(),
        per_second: 0,
    }
}

fn client(
    kind: ChainKind,
    endpoints: &[EndpointSettings],
    settings: &PoolSettings,
    clock: &Arc<ManualClock>,
) -> (Box<dyn Chain>, Receiver<Event>) {
    let pool = Pool::new(endpoints, settings, Arc::<ManualClock>::clone(clock)).expect("good endpoints");
    let events = pool.events();
    let chain: Box<dyn Chain> = match kind {
        ChainKind::Evm => {
            let settings = EvmSettings { tokens: vec![TETHER], ..EvmSettings::new(56, 12) };
            Box::new(EvmChain::new(settings, pool))
        }
        ChainKind::Tron => {
            let settings = TronSettings::new(chain::tron::Network::Devnet, vec![Address::Tron(TOKEN)]);
            Box::new(TronChain::new(settings, pool).expect("a token of TRON"))
        }
        ChainKind::Bitcoin => Box::new(BitcoinChain::new(BitcoinSettings::new(Network::Regtest), pool)),
    };
    (chain, events)
}

pub fn raw(amount: u64) -> RawAmount {
    amount.to_string().parse().expect("digits")
}

pub fn watch(addresses: &[&Address]) -> Watched {
    let mut watched = Watched::default();
    for address in addresses {
        watched.insert(chain::WatchKey::of(address));
    }
    watched
}

pub fn happened(events: &mut Receiver<Event>) -> Vec<Event> {
    std::iter::from_fn(|| events.try_recv().ok()).collect()
}

/// Whether the endpoint was said to contradict, and set aside for it.
pub fn was_found_lying(events: &[Event], endpoint: usize) -> bool {
    let name = format!("node {endpoint}");
    let said = events.iter().any(|event| matches!(event, Event::Contradicts { endpoint, .. } if *endpoint == name));
    let aside = events.iter().any(|event| {
        matches!(event, Event::SetAside { endpoint, why: chain::endpoint::Why::Contradicts, .. } if *endpoint == name)
    });
    said && aside
}

/// A test of each law on each chain.
macro_rules! on_every_chain {
    ($start:ident: $($law:ident)*) => {
        mod evm {
            $(#[tokio::test]
            async fn $law() {
                super::$law(crate::rig::Rig::$start(domain::ChainKind::Evm).await).await;
            })*
        }
        mod tron {
            $(#[tokio::test]
            async fn $law() {
                super::$law(crate::rig::Rig::$start(domain::ChainKind::Tron).await).await;
            })*
        }
        mod bitcoin {
            $(#[tokio::test]
            async fn $law() {
                super::$law(crate::rig::Rig::$start(domain::ChainKind::Bitcoin).await).await;
            })*
        }
    };
}
pub(crate) use on_every_chain;
