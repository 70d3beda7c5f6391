//! Bitcoin, through Bitcoin Core's JSON-RPC. Bytes are made and read in [`tx::bitcoin`].
//!
//! | module | holds |
//! |---|---|
//! | `raw` | a raw block, read in place and checked against its hash |
//! | `wire` | the calls, and the shapes of the answers |
//! | `scan` | what blocks pay to watched scripts; where a transaction is |
//! | `status` | what is known about a transaction that was sent |
//! | `fee` | what to offer |
//! | `mempool` | what is needed to replace a transaction or to push it by a child |
//! | `refusal` | a node's words, understood |
//! | `balance` | a search of all unspent outputs |
//! | `survey` | what one node serves |
//!
//! **A hash is all that needs a quorum.** A block's bytes are checked against its hash, so once enough nodes agree on
//! the hash at a height, any one of them can say what the block holds.
//!
//! Nodes work with or without `-txindex`. Without it a node finds a mined transaction only while one of its outputs is
//! unspent, and then [`crate::Chain::prove`] answers with an error rather than guess that there is none.

mod balance;
mod cluster;
mod fee;
mod mempool;
mod raw;
mod refusal;
mod scan;
mod status;
mod survey;
mod wire;

use std::sync::Arc;

use ::bitcoin::Network;
use ::bitcoin::constants::genesis_block;
use ::bitcoin::hashes::Hash;
use domain::{ChainKind, RawAmount};
use futures_util::FutureExt;
use serde_json::json;
use tx::bitcoin::{address, hash_of, transaction, turned};
use tx::{
    Address, BadAddress, BlockHash, BlockRef, BuildError, Coin, DecodeError, Draft, FeeCap, Meaning, Payment, TxHash,
    Unsigned,
};

pub use cluster::ClusterLimits;
pub use fee::FeeFacts;
pub use mempool::{Acceptance, MempoolFacts, Prospect};
pub use wire::Sat;

use crate::block::{Head, Header, Scan};
use crate::broadcast::{Broadcast, NodeRefusal};
use crate::client::{Answer, Chain, Nonces, Proven, Quote, Sent};
use crate::endpoint::{CallError, Node, Pool, ahead};
use crate::error::ChainError;
use crate::head;
use crate::status::Status;
use crate::survey::NodeReport;
use crate::watch::Watched;

#[derive(Clone, Copy, Debug)]
pub struct BitcoinSettings {
    pub network: Network,
    /// A block with so many above it is settled.
    pub confirmations: u64,
    /// Satoshi per 1,000 virtual bytes, offered when no node can estimate.
    pub fallback_fee: u64,
    /// Within how many blocks a payment should be mined.
    pub target_blocks: u16,
    /// How many blocks one call of [`Chain::status`] reads at most to find a transaction or what conflicts with it. The next
    /// call goes on where this one ended.
    pub search_blocks: u64,
}

impl BitcoinSettings {
    pub const fn new(network: Network) -> Self {
        Self { network, confirmations: 6, fallback_fee: 10_000, target_blocks: 6, search_blocks: 1_008 }
    }
}

pub struct BitcoinChain {
    settings: BitcoinSettings,
    pool: Pool,
    searched: status::Searched,
}

/// So many small calls go into one request.
const BATCH: usize = 500;

impl BitcoinChain {
    pub fn new(settings: BitcoinSettings, pool: Pool) -> Self {
        Self { settings, pool, searched: status::Searched::default() }
    }

    pub const fn settings(&self) -> &BitcoinSettings {
        &self.settings
    }

    /// The blocks that a quorum has at these heights. `None`: a quorum says that its chain does not reach there.
    async fn agreed(&self, heights: &[u64]) -> Result<Vec<Option<BlockHash>>, ChainError> {
        let read = |node: Arc<Node>| async move { wire::hashes_at(&node, heights).await };
        self.pool.agree_unless_ahead(read, |one, agreed| ahead(one, agreed, heights)).await
    }

    async fn network_of_all(&self) -> Result<(), ChainError> {
        let network = self.settings.network;
        let answers = self
            .pool
            .each(|node| async move {
                let info: wire::ChainInfo = wire::call(&node, "getblockchaininfo", json!([])).await?;
                let genesis = wire::hashes_at(&node, &[0]).await?;
                Ok((info.chain, genesis.into_iter().flatten().next()))
            })
            .await;
        let mut answered = false;
        let mut failure = CallError::Unreachable { endpoint: "nobody".to_owned() };
        let first = turned(genesis_block(network).block_hash().to_byte_array());
        for (_, answer) in answers {
            match answer {
                // Regtest is everybody's own chain, and begins as its owner likes.
                Ok((chain, genesis)) => {
                    let wanted = network.to_core_arg();
                    let found = if chain != wanted {
                        chain
                    } else if network != Network::Regtest && genesis != Some(BlockHash(first)) {
                        format!("{chain} with another first block")
                    } else {
                        answered = true;
                        continue;
                    };
                    return Err(ChainError::WrongNetwork { wanted: wanted.to_owned(), found });
                }
                Err(error) => failure = error,
            }
        }
        if answered { Ok(()) } else { Err(ChainError::of_call(failure)) }
    }

    async fn tip(&self) -> Result<Head, ChainError> {
        let (network, confirmations) = (self.settings.network, self.settings.confirmations);
        let read = |node: Arc<Node>| async move {
            let info = wire::chain_info(&node, network).await?;
            let tip = BlockRef { height: info.blocks, hash: info.best };
            let tip = wire::headers_of(&node, &[tip]).await?.pop().ok_or_else(|| node.bad("no header"))?;
            Ok(Head { tip, settled: tip.height.checked_sub(confirmations) })
        };
        Ok(head::find(&self.pool, 0, read).await?.head)
    }

    async fn agreed_headers(&self, heights: &[u64]) -> Result<Vec<Header>, ChainError> {
        let mut headers = Vec::with_capacity(heights.len().min(BATCH));
        for some in heights.chunks(BATCH) {
            let hashes = self.agreed(some).await?;
            let mut blocks = Vec::with_capacity(some.len());
            for (&height, hash) in some.iter().zip(hashes) {
                blocks.push(BlockRef { height, hash: hash.ok_or(ChainError::BlockMissing { height })? });
            }
            // The hash is agreed on, and a header is checked against it: one node is enough.
            let blocks = &blocks;
            let some = self.pool.any(|node| async move { wire::headers_of(&node, blocks).await }).await?;
            headers.extend(some);
        }
        Ok(headers)
    }

    async fn send(&self, signed: &[u8]) -> Result<Broadcast, ChainError> {
        let transaction = match transaction::read_signed(signed) {
            Ok(transaction) => hash_of(transaction.compute_txid()),
            Err(error) => return Ok(Broadcast::Refused(NodeRefusal::Malformed, error.to_string())),
        };
        // Core's own limits on fees and burnt amounts stay as they are: `build` keeps within them.
        let hex = &alloy_primitives::hex::encode(signed);
        let answers = self
            .pool
            .each(|node| async move {
                match wire::call::<String>(&node, "sendrawtransaction", json!([hex])).await {
                    Ok(said) if said == transaction.to_string() => Ok(None),
                    Ok(_) => Err(node.bad("it took another transaction than was sent")),
                    Err(error) => match refusal::of_error(&error) {
                        Some(refusal::Said::HasIt) => Ok(None),
                        Some(refusal::Said::No(refusal)) => Ok(Some((refusal, words_of(&error)))),
                        None => Err(error),
                    },
                }
            })
            .await;
        let mut refusals = Vec::new();
        let mut failure = CallError::Unreachable { endpoint: "nobody".to_owned() };
        for (_, answer) in answers {
            match answer {
                Ok(None) => return Ok(Broadcast::Taken),
                Ok(Some(refused)) => refusals.push(refused),
                Err(error) => failure = error,
            }
        }
        // The refusal that says most: one that was understood, if there is one.
        let understood = refusals.iter().position(|(refusal, _)| *refusal != NodeRefusal::Other).unwrap_or(0);
        match refusals.into_iter().nth(understood) {
            Some((refusal, words)) => Ok(Broadcast::Refused(refusal, words)),
            None => Err(ChainError::Unreachable(failure)),
        }
    }
}

fn words_of(error: &CallError) -> String {
    match error {
        CallError::Refused { code, message, .. } => format!("{code}: {message}"),
        other => other.to_string(),
    }
}

impl Chain for BitcoinChain {
    fn kind(&self) -> ChainKind {
        ChainKind::Bitcoin
    }

    fn parse_address(&self, text: &str) -> Result<Address, BadAddress> {
        address::parse(text, self.settings.network).map(Address::Bitcoin)
    }

    fn check_network(&self) -> Answer<'_, ()> {
        self.network_of_all().boxed()
    }

    fn head(&self) -> Answer<'_, Head> {
        self.tip().boxed()
    }

    fn headers<'a>(&'a self, heights: &'a [u64]) -> Answer<'a, Vec<Header>> {
        self.agreed_headers(heights).boxed()
    }

    fn scan<'a>(&'a self, from: u64, to: u64, watched: &'a Watched) -> Answer<'a, Scan> {
        self.scan_blocks(from, to, watched).boxed()
    }

    fn prove_blocks<'a>(&'a self, from: u64, to: u64, watched: &'a Watched) -> Answer<'a, Scan> {
        self.proven_blocks(from, to, watched).boxed()
    }

    fn prove<'a>(&'a self, transaction: TxHash, watched: &'a Watched) -> Answer<'a, Option<Proven>> {
        self.prove_payment(transaction, watched).boxed()
    }

    fn balances<'a>(&'a self, wanted: &'a [(Address, Coin)]) -> Answer<'a, Vec<RawAmount>> {
        self.search_unspent(wanted).boxed()
    }

    fn balances_at<'a>(&'a self, wanted: &'a [(Address, Coin)], _: BlockRef) -> Answer<'a, (BlockRef, Vec<RawAmount>)> {
        self.unspent_at(wanted).boxed()
    }

    fn survey(&self) -> Answer<'_, Vec<NodeReport>> {
        let network = self.settings.network;
        let examine = move |node: Arc<Node>| async move { survey::examine(&node, network).await };
        let hash_at = |node: Arc<Node>, height: u64| async move {
            Ok(wire::hashes_at(&node, &[height]).await?.into_iter().flatten().next())
        };
        async move { Ok(crate::survey::of_all(&self.pool, examine, hash_at).await) }.boxed()
    }

    fn nonces<'a>(&'a self, of: &'a [Address]) -> Answer<'a, Vec<Nonces>> {
        let none = vec![Nonces { mined: 0, pending: 0 }; of.len()];
        std::future::ready(Ok(none)).boxed()
    }

    fn nonces_at<'a>(&'a self, _: &'a [Address], _: BlockRef) -> Answer<'a, Vec<u64>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn quote<'a>(&'a self, from: &'a Address, payment: &'a Payment, cap: FeeCap) -> Answer<'a, Quote> {
        self.offer(from, payment, cap).boxed()
    }

    fn build(&self, draft: &Draft) -> Result<Unsigned, BuildError> {
        transaction::build(draft, self.settings.network)
    }

    fn decode_unsigned(&self, bytes: &[u8]) -> Result<Meaning, DecodeError> {
        transaction::decode_unsigned(bytes, self.settings.network)
    }

    fn decode_signed(&self, bytes: &[u8]) -> Result<Meaning, DecodeError> {
        transaction::decode_signed(bytes, self.settings.network)
    }

    fn broadcast<'a>(&'a self, signed: &'a [u8]) -> Answer<'a, Broadcast> {
        self.send(signed).boxed()
    }

    fn status<'a>(&'a self, sent: &'a Sent) -> Answer<'a, Status> {
        self.status_of(sent).boxed()
    }
}
