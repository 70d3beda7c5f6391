//! EVM chains: BSC first, and every other that speaks Ethereum's JSON-RPC.
//!
//! | file | holds |
//! |---|---|
//! | `fee` | quotes under a cap |
//! | `scan`, `outputs`, `trace`, `window` | what blocks pay to watched addresses |
//! | `proof`, `encode` | the same, held against the roots of headers |
//! | `status`, `broadcast` | what became of a transaction, and what nodes say to one |
//! | `survey` | what one node serves |
//! | `balance`, `rpc`, `wire` | many accounts at once; the calls; the answers |
//!
//! **The node's word "finalized" is not used**: chains and forks mean different things by it, and development nodes leave
//! it at zero. Settled is what has the chain's confirmations above it.

mod balance;
mod broadcast;
mod encode;
mod fee;
mod outputs;
mod proof;
mod rpc;
mod scan;
mod status;
mod survey;
mod trace;
mod window;
mod wire;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use alloy_primitives::{Address as Account, B256, keccak256};
use domain::{ChainKind, RawAmount};
use serde_json::json;
use tx::evm::{address, transaction};
use tx::{
    Address, BadAddress, BlockRef, BuildError, Coin, DecodeError, Draft, FeeCap, Meaning, Payment, Slot, TxHash,
    Unsigned,
};

use crate::block::{Head, Header, Scan};
use crate::broadcast::{Broadcast, NodeRefusal};
use crate::client::{Answer, Answers, Chain, Nonces, Proven, Quote, QuoteRequest, Sent, side_by_side};
use crate::endpoint::json_rpc::call;
use crate::endpoint::{CallError, Node, Pool, ahead};
use crate::error::ChainError;
use crate::head;
use crate::status::{Proof, Status};
use crate::survey::NodeReport;
use crate::watch::Watched;

/// No provider takes more calls in one request.
const MOST_BATCH: usize = 1_000;
const MOST_CONCURRENCY: usize = 64;

/// How [`Chain::prove_blocks`] proves what blocks hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockProof {
    /// One node's transactions and receipts hash to the roots of a header that a quorum has. It takes all receipts of a block
    /// in which a listed token may have logged, and blocks without types of transactions that are not known here.
    #[default]
    Roots,
    /// A quorum reads the same outputs and spends: for public nodes, where receipts cost too much, and for chains whose blocks
    /// hold more than Ethereum's types. With a quorum of one it is one node's word.
    SecondNode,
}

#[derive(Clone, Debug)]
pub struct EvmSettings {
    pub chain_id: u64,
    /// How many blocks must stand on a block before it is settled.
    pub confirmations: u64,
    /// The contracts whose `Transfer` events are payments. Everybody else's are air.
    pub tokens: Vec<Account>,
    /// Calls in one request.
    pub batch: usize,
    /// Requests for blocks on their way at the same time.
    pub concurrency: usize,
    /// The most blocks for one `eth_getLogs`; it shrinks when a provider wants less.
    pub log_window: u64,
    /// Also find coin that contracts move. It needs nodes that trace (`debug_…` with the `callTracer`), all of those that
    /// the quorum is made of, and their time.
    pub internal_transfers: bool,
    pub proof: BlockProof,
}

impl EvmSettings {
    pub const fn new(chain_id: u64, confirmations: u64) -> Self {
        Self {
            chain_id,
            confirmations,
            tokens: Vec::new(),
            batch: 50,
            concurrency: 4,
            log_window: 1_000,
            internal_transfers: false,
            proof: BlockProof::Roots,
        }
    }
}

pub struct EvmChain {
    settings: EvmSettings,
    pool: Pool,
    window: window::Window,
    /// The highest block that was settled by what a quorum told. No tip can be below it. One node alone must not raise
    /// it: it could claim a height that no other ever reaches, and nobody would be believed any more.
    settled: AtomicU64,
}

impl EvmChain {
    pub fn new(mut settings: EvmSettings, pool: Pool) -> Self {
        settings.batch = settings.batch.clamp(1, MOST_BATCH);
        settings.concurrency = settings.concurrency.clamp(1, MOST_CONCURRENCY);
        let window = window::Window::new(settings.log_window);
        Self { settings, pool, window, settled: AtomicU64::new(0) }
    }

    pub const fn settings(&self) -> &EvmSettings {
        &self.settings
    }

    async fn scan_blocks(&self, from: u64, to: u64, watched: &Watched) -> Result<Scan, ChainError> {
        // That a node lacks a block is a reason to ask another, and only then one to give up.
        let missing = Mutex::new(None);
        let scanned = self.pool.any(|node| {
            let missing = &missing;
            async move {
                self.scan_of(&node, from, to, watched).await.map_err(|trouble| match trouble {
                    // No refusal says anything about blocks: another node may have them.
                    scan::Trouble::Call(CallError::Refused { message, .. }) => node.lacks(message),
                    scan::Trouble::Call(error) => error,
                    scan::Trouble::Moved => node.bad("answers of two branches"),
                    scan::Trouble::Missing(height) => {
                        *missing.lock().unwrap_or_else(PoisonError::into_inner) = Some(height);
                        node.lacks(format!("there is no block {height}"))
                    }
                })
            }
        });
        let scanned = scanned.await;
        let missing = missing.into_inner().unwrap_or_else(PoisonError::into_inner);
        match (scanned, missing) {
            (Err(ChainError::Refused(CallError::Lacks { .. })), Some(height)) => {
                Err(ChainError::BlockMissing { height })
            }
            (scanned, _) => scanned,
        }
    }

    async fn scan_of(&self, node: &Arc<Node>, from: u64, to: u64, watched: &Watched) -> Result<Scan, scan::Trouble> {
        let scanner = scan::Scanner { settings: &self.settings, window: &self.window, node: Arc::clone(node), watched };
        scanner.scan(from, to).await
    }

    /// The same blocks, in the same requests and as many at a time, and nothing done with them: the yardstick of
    /// `bursar bench scan`. How many bytes came.
    pub fn fetch_only(&self, from: u64, to: u64) -> Answer<'_, u64> {
        let settings = &self.settings;
        Box::pin(self.pool.any(move |node| async move { scan::fetch_only(&node, (from, to), settings).await }))
    }

    /// What we cannot read ourselves is not shown to anybody.
    fn unreadable(&self, signed: &[u8]) -> Option<Broadcast> {
        let error = self.decode_signed(signed).err()?;
        let refusal = match error {
            DecodeError::OtherNetwork => NodeRefusal::WrongNetwork,
            DecodeError::BadSignature => NodeRefusal::BadSignature,
            DecodeError::Malformed(_) | DecodeError::NotUnderstood(_) => NodeRefusal::Malformed,
        };
        Some(Broadcast::Refused(refusal, error.to_string()))
    }

    async fn tell(&self, signed: &[u8]) -> Result<Broadcast, ChainError> {
        if let Some(refused) = self.unreadable(signed) {
            return Ok(refused);
        }
        let hash = keccak256(signed);
        let said = self.pool.each(|node| async move { broadcast::send(&node, signed, hash).await }).await;
        broadcast::outcome(said.into_iter().map(|(_, said)| said))
    }

    async fn tell_all(&self, signed: &[&[u8]]) -> Vec<Result<Broadcast, ChainError>> {
        let mut told: Vec<Option<Result<Broadcast, ChainError>>> =
            signed.iter().map(|bytes| self.unreadable(bytes).map(Ok)).collect();
        let places: Vec<usize> = (0..signed.len()).filter(|place| told[*place].is_none()).collect();
        let readable: Vec<(&[u8], B256)> =
            places.iter().map(|place| (signed[*place], keccak256(signed[*place]))).collect();
        let (readable, chunk) = (&readable, self.settings.batch);
        let said = if readable.is_empty() {
            Vec::new()
        } else {
            self.pool.each(|node| async move { broadcast::send_all(&node, readable, chunk).await }).await
        };
        for (number, place) in places.into_iter().enumerate() {
            let of_one = |(_, said): &(Arc<Node>, broadcast::SaidOfAll)| match said {
                Ok(said) => said.get(number).cloned(),
                Err(error) => Some(Err(error.clone())),
            };
            told[place] = Some(broadcast::outcome(said.iter().filter_map(of_one)));
        }
        let nobody = || Err(ChainError::Unreachable(CallError::Unreachable { endpoint: "nobody".to_owned() }));
        told.into_iter().map(|told| told.unwrap_or_else(nobody)).collect()
    }

    async fn quote_all(&self, requests: &[QuoteRequest<'_>]) -> Vec<Result<Quote, ChainError>> {
        let wanted: Result<Vec<_>, ChainError> =
            requests.iter().map(|one| Ok((call_of(one.from, one.payment)?, one.cap))).collect();
        let wanted = match wanted {
            Ok(wanted) if !wanted.is_empty() => wanted,
            Ok(_) | Err(_) => return self.quote_each(requests).await,
        };
        let (wanted, size) = (&wanted, (self.settings.batch, self.settings.concurrency));
        let quotes = match self.pool.any(|node| async move { fee::quotes(&node, wanted, size).await }).await {
            Ok(quotes) => quotes,
            Err(error) => return requests.iter().map(|_| Err(error.clone())).collect(),
        };
        let mut answers = Vec::with_capacity(requests.len());
        for (quote, one) in quotes.into_iter().zip(requests) {
            answers.push(match quote {
                Ok(quote) => Ok(quote),
                Err(error @ CallError::Refused { .. }) => Err(ChainError::Refused(error)),
                // An answer that cannot be: another node may have a better one, and the others need not wait for that.
                Err(_) => self.quote(one.from, one.payment, one.cap).await,
            });
        }
        answers
    }

    fn quote_each<'a>(&'a self, requests: &'a [QuoteRequest<'a>]) -> Answers<'a, Quote> {
        side_by_side(requests.iter().map(|one| self.quote(one.from, one.payment, one.cap)).collect())
    }

    async fn statuses_of(&self, sent: &[Sent]) -> Vec<Result<Status, ChainError>> {
        let (confirmations, chunk) = (self.settings.confirmations, self.settings.batch);
        if sent.is_empty() {
            // A node that is asked nothing must not be taken for one that answers.
            return Vec::new();
        }
        let each = || side_by_side(sent.iter().map(|one| self.status(one)).collect());
        let wanted: Result<Vec<status::Wanted>, ChainError> = sent.iter().map(wanted_of).collect();
        let Ok(wanted) = wanted else { return each().await };
        let wanted = &wanted;
        let find = |node: Arc<Node>| async move { status::find_all(&node, wanted, confirmations, chunk).await };
        let ahead = |one: &Vec<_>, agreed: &Vec<_>| status::ahead_in(one, agreed, confirmations);
        // Nodes that differ in one of them agree on the others: then each is asked about by itself.
        let Ok(findings) = self.pool.agree_unless_ahead(find, ahead).await else { return each().await };
        let open: Vec<B256> = findings
            .iter()
            .zip(wanted)
            .filter(|(finding, _)| **finding == status::Finding::Nothing)
            .map(|(_, wanted)| wanted.hash)
            .collect();
        let mut waiting: HashSet<B256> = HashSet::new();
        if !open.is_empty() {
            let hashes = &open;
            let waits = |node: Arc<Node>| async move { status::wait_all(&node, hashes, chunk).await };
            for said in self.pool.each_soon(waits).await.into_iter().filter_map(|(_, said)| said.ok()) {
                waiting.extend(open.iter().zip(said).filter(|(_, waits)| *waits).map(|(hash, _)| *hash));
            }
        }
        let status = |(finding, wanted): (status::Finding, &status::Wanted)| match finding {
            status::Finding::Mined(mined) => Ok(Status::Mined(mined)),
            status::Finding::Taken(reason) => Ok(Status::Impossible(Proof::new(reason))),
            status::Finding::Nothing if waiting.contains(&wanted.hash) => Ok(Status::Mempool),
            status::Finding::Nothing => Ok(Status::Unknown),
        };
        findings.into_iter().zip(wanted).map(status).collect()
    }

    async fn status_of(&self, sent: &Sent) -> Result<Status, ChainError> {
        let wanted = wanted_of(sent)?;
        let hash = wanted.hash;
        let confirmations = self.settings.confirmations;
        let find = |node: Arc<Node>| async move { status::find(&node, wanted, confirmations).await };
        match self.pool.agree_unless_ahead(find, |one, agreed| one.ahead(agreed, confirmations)).await {
            Ok(status::Finding::Mined(mined)) => return Ok(Status::Mined(mined)),
            Ok(status::Finding::Taken(reason)) => return Ok(Status::Impossible(Proof::new(reason))),
            // Where no node keeps the state that would prove it, nothing is proven.
            Ok(status::Finding::Nothing) | Err(ChainError::Refused(CallError::Lacks { .. })) => {}
            Err(error) => return Err(error),
        }
        let waits = self.pool.each_soon(|node| async move { status::waits(&node, hash).await }).await;
        let anywhere = waits.iter().any(|(_, waits)| *waits == Ok(true));
        Ok(if anywhere { Status::Mempool } else { Status::Unknown })
    }
}

impl Chain for EvmChain {
    fn kind(&self) -> ChainKind {
        ChainKind::Evm
    }

    fn parse_address(&self, text: &str) -> Result<Address, BadAddress> {
        address::parse(text).map(Address::Evm)
    }

    fn check_network(&self) -> Answer<'_, ()> {
        Box::pin(async move {
            let ask = |node: Arc<Node>| async move {
                let wire::Hex(id): wire::Hex<u64> = call(&node, "eth_chainId", json!([])).await?;
                Ok(id)
            };
            let mut lost = Some(CallError::Unreachable { endpoint: "nobody".to_owned() });
            let mut answered = false;
            for (_, id) in self.pool.each(ask).await {
                match id {
                    Ok(id) if id == self.settings.chain_id => answered = true,
                    Ok(id) => {
                        let wanted = self.settings.chain_id.to_string();
                        return Err(ChainError::WrongNetwork { wanted, found: id.to_string() });
                    }
                    Err(error) => lost = Some(error),
                }
            }
            match lost.filter(|_| !answered) {
                Some(error) => Err(ChainError::of_call(error)),
                None => Ok(()),
            }
        })
    }

    fn head(&self) -> Answer<'_, Head> {
        Box::pin(async move {
            let confirmations = self.settings.confirmations;
            let read = |node: Arc<Node>| async move {
                let tip = rpc::tip(&node).await?;
                Ok(Head { tip, settled: tip.height.checked_sub(confirmations) })
            };
            let found = head::find(&self.pool, self.settled.load(Ordering::Relaxed), read).await?;
            // What too few have said must not keep us from believing the others later.
            if found.by_quorum && self.pool.quorum() > 1 {
                self.settled.fetch_max(found.head.settled.unwrap_or(0), Ordering::Relaxed);
            }
            Ok(found.head)
        })
    }

    fn headers<'a>(&'a self, heights: &'a [u64]) -> Answer<'a, Vec<Header>> {
        Box::pin(async move {
            let chunk = self.settings.batch;
            let read = |node: Arc<Node>| async move { rpc::headers(&node, heights, chunk).await };
            let headers = self.pool.agree_unless_ahead(read, |one, agreed| ahead(one, agreed, heights)).await?;
            let headers = headers.into_iter().zip(heights);
            headers.map(|(header, height)| header.ok_or(ChainError::BlockMissing { height: *height })).collect()
        })
    }

    fn scan<'a>(&'a self, from: u64, to: u64, watched: &'a Watched) -> Answer<'a, Scan> {
        Box::pin(self.scan_blocks(from, to, watched))
    }

    fn prove_blocks<'a>(&'a self, from: u64, to: u64, watched: &'a Watched) -> Answer<'a, Scan> {
        Box::pin(self.proven_blocks(from, to, watched))
    }

    fn prove<'a>(&'a self, transaction: TxHash, watched: &'a Watched) -> Answer<'a, Option<Proven>> {
        let hash = B256::from(transaction.0);
        Box::pin(async move {
            let settings = &self.settings;
            let prove = |node: Arc<Node>| async move { status::prove(&node, hash, settings, watched).await };
            self.pool.agree_unless_ahead(prove, Proven::ahead).await
        })
    }

    fn balances_at<'a>(
        &'a self,
        wanted: &'a [(Address, Coin)],
        near: BlockRef,
    ) -> Answer<'a, (BlockRef, Vec<RawAmount>)> {
        Box::pin(async move {
            let asked = whose(wanted)?;
            let (asked, chunk) = (&asked, self.settings.batch);
            let read = |node: Arc<Node>| async move { balance::balances_at(&node, asked, near.hash, chunk).await };
            Ok((near, self.pool.agree(read).await?))
        })
    }

    fn survey(&self) -> Answer<'_, Vec<NodeReport>> {
        Box::pin(async move {
            let wanted = self.settings.chain_id;
            let examine = |node: Arc<Node>| async move { survey::examine(&node, wanted).await };
            let hash_at = |node: Arc<Node>, height: u64| async move {
                Ok(rpc::header(&node, height).await?.map(|header| header.hash))
            };
            Ok(crate::survey::of_all(&self.pool, examine, hash_at).await)
        })
    }

    fn balances<'a>(&'a self, wanted: &'a [(Address, Coin)]) -> Answer<'a, Vec<RawAmount>> {
        Box::pin(async move {
            let asked = whose(wanted)?;
            let (asked, chunk) = (&asked, self.settings.batch);
            self.pool.any(|node| async move { balance::balances(&node, asked, chunk).await }).await
        })
    }

    fn nonces<'a>(&'a self, of: &'a [Address]) -> Answer<'a, Vec<Nonces>> {
        Box::pin(async move {
            let accounts = of.iter().map(account).collect::<Result<Vec<_>, ChainError>>()?;
            let (accounts, chunk) = (&accounts, self.settings.batch);
            self.pool.any(|node| async move { balance::nonces(&node, accounts, chunk).await }).await
        })
    }

    fn nonces_at<'a>(&'a self, of: &'a [Address], at: BlockRef) -> Answer<'a, Vec<u64>> {
        Box::pin(async move {
            let accounts = of.iter().map(account).collect::<Result<Vec<_>, ChainError>>()?;
            let (accounts, chunk) = (&accounts, self.settings.batch);
            let read = |node: Arc<Node>| async move { balance::nonces_at(&node, accounts, at.hash, chunk).await };
            self.pool.agree(read).await
        })
    }

    fn quote<'a>(&'a self, from: &'a Address, payment: &'a Payment, cap: FeeCap) -> Answer<'a, Quote> {
        Box::pin(async move {
            let wanted = call_of(from, payment)?;
            self.pool.any(|node| async move { fee::quote(&node, wanted, cap).await }).await
        })
    }

    fn quotes<'a>(&'a self, requests: &'a [QuoteRequest<'a>]) -> Answers<'a, Quote> {
        Box::pin(self.quote_all(requests))
    }

    fn build(&self, draft: &Draft) -> Result<Unsigned, BuildError> {
        transaction::build(draft, self.settings.chain_id)
    }

    fn decode_unsigned(&self, bytes: &[u8]) -> Result<Meaning, DecodeError> {
        transaction::decode_unsigned(bytes, self.settings.chain_id)
    }

    fn decode_signed(&self, bytes: &[u8]) -> Result<Meaning, DecodeError> {
        transaction::decode_signed(bytes, self.settings.chain_id)
    }

    fn broadcast<'a>(&'a self, signed: &'a [u8]) -> Answer<'a, Broadcast> {
        Box::pin(self.tell(signed))
    }

    fn broadcast_all<'a>(&'a self, signed: &'a [&'a [u8]]) -> Answers<'a, Broadcast> {
        Box::pin(self.tell_all(signed))
    }

    fn status<'a>(&'a self, sent: &'a Sent) -> Answer<'a, Status> {
        Box::pin(self.status_of(sent))
    }

    fn statuses<'a>(&'a self, sent: &'a [Sent]) -> Answers<'a, Status> {
        Box::pin(self.statuses_of(sent))
    }
}

/// What is simulated for a payment.
fn call_of(from: &Address, payment: &Payment) -> Result<fee::Call, ChainError> {
    let token = match &payment.coin {
        Coin::Native => None,
        Coin::Token(contract) => Some(account(contract)?),
    };
    Ok(fee::Call { from: account(from)?, to: account(&payment.to)?, token, amount: payment.amount.to_u256() })
}

fn wanted_of(sent: &Sent) -> Result<status::Wanted, ChainError> {
    let (Some(Address::Evm(from)), Slot::Nonce(nonce)) = (&sent.meaning.from, &sent.meaning.slot) else {
        return Err(ChainError::ForeignAddress);
    };
    let token = match sent.meaning.payments.as_slice() {
        [Payment { to: Address::Evm(to), coin: Coin::Token(Address::Evm(token)), amount }] => {
            Some((*token, *to, amount.to_u256()))
        }
        _ => None,
    };
    Ok(status::Wanted { hash: B256::from(sent.hash.0), from: *from, nonce: *nonce, since: sent.since, token })
}

/// Whose balances, of which coins.
fn whose(wanted: &[(Address, Coin)]) -> Result<Vec<balance::BalanceOf>, ChainError> {
    let one = |(owner, coin): &(Address, Coin)| {
        let token = match coin {
            Coin::Native => None,
            Coin::Token(contract) => Some(account(contract)?),
        };
        Ok((account(owner)?, token))
    };
    wanted.iter().map(one).collect()
}

const fn account(address: &Address) -> Result<Account, ChainError> {
    match address {
        Address::Evm(account) => Ok(*account),
        Address::Bitcoin(_) | Address::Tron(_) => Err(ChainError::ForeignAddress),
    }
}
