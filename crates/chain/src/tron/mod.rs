//! TRON, through java-tron's HTTP API. Bytes are made and read in [`tx::tron`].
//!
//! | module | holds |
//! |---|---|
//! | `wire` | the JSON of the HTTP API, and what in it cannot be |
//! | `scan`, `movement` | blocks, what they pay and what they take, from one node |
//! | `proof`, `bytes` | the same, held against the roots of headers; protobuf as java-tron reads it |
//! | `status` | what a quorum proves about a transaction |
//! | `fee`, `balance`, `broadcast`, `survey` | the rest |
//!
//! **Nothing conflicts on TRON.** A transaction that was sent can be stopped by nothing but its expiry; only when a block
//! later than that is solidified, and every block in which it could be has been read, is it impossible.

mod balance;
mod broadcast;
mod bytes;
mod fee;
mod movement;
mod proof;
mod scan;
mod status;
mod survey;
mod wire;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use domain::{ChainKind, RawAmount};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::json;
use tx::tron::{TronAddress, transaction};
use tx::{
    Address, BadAddress, BlockHash, BlockRef, BuildError, Coin, DecodeError, Draft, Fee, FeeCap, Meaning, Payment,
    Slot, TxHash, Unsigned,
};

use crate::block::{Head, Header, Scan};
use crate::broadcast::Broadcast;
use crate::client::{Answer, Answers, Chain, Nonces, Proven, Quote, QuoteRequest, Sent, side_by_side};
use crate::endpoint::{CallError, Node, Pool, ahead};
use crate::error::ChainError;
use crate::status::{Mined, Proof, Reason, Status};
use crate::survey::NodeReport;
use crate::watch::Watched;

/// Addresses are the same on all of them: only the first block's id tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    Mainnet,
    Nile,
    Shasta,
    /// Any that is none of the public ones.
    Devnet,
}

const MAINNET: &str = "00000000000000001ebf88508a03865c71d452e25f4d51194196a1d22b6653dc";
const NILE: &str = "0000000000000000d698d4192c56cb6be724a558448e2684802de4d6cd8690dc";
const SHASTA: &str = "0000000000000000de1aa88295e1fcf982742f773e0419c5a9c134c994a9059e";

impl Network {
    const fn name(self) -> &'static str {
        match self {
            Self::Mainnet => "mainnet",
            Self::Nile => "nile",
            Self::Shasta => "shasta",
            Self::Devnet => "devnet",
        }
    }

    fn of_genesis(hash: &BlockHash) -> Self {
        match hash.to_string().as_str() {
            MAINNET => Self::Mainnet,
            NILE => Self::Nile,
            SHASTA => Self::Shasta,
            _ => Self::Devnet,
        }
    }
}

#[derive(Clone, Debug)]
pub struct TronSettings {
    pub network: Network,
    /// The contracts whose `Transfer` logs count.
    pub tokens: Vec<Address>,
    /// Calls to one node at a time.
    pub calls: usize,
    /// Percent that is added to the energy which a call takes now.
    pub energy_margin: u32,
    /// Also find TRX that contracts move. Only nodes that keep them show them (`vm.saveInternalTx`); a quorum of nodes of
    /// which some do not cannot agree on a block in which contracts pay or take from a watched address.
    pub internal_transfers: bool,
}

impl TronSettings {
    pub fn new(network: Network, tokens: Vec<Address>) -> Self {
        Self { network, tokens, calls: 16, energy_margin: 20, internal_transfers: true }
    }
}

pub struct TronChain {
    settings: TronSettings,
    /// Sorted.
    tokens: Vec<TronAddress>,
    pool: Pool,
}

impl TronChain {
    pub fn new(settings: TronSettings, pool: Pool) -> Result<Self, ChainError> {
        let mut tokens = settings.tokens.iter().map(own).collect::<Result<Vec<_>, _>>()?;
        tokens.sort_unstable();
        Ok(Self { settings, tokens, pool })
    }

    fn calls(&self) -> usize {
        self.settings.calls.max(1)
    }

    fn wanted<'a>(&'a self, watched: &'a Watched) -> movement::Wanted<'a> {
        movement::Wanted { watched, tokens: &self.tokens, internal: self.settings.internal_transfers }
    }

    /// The same blocks, in the same requests and as many at a time, and nothing done with them: the yardstick of
    /// `bursar bench scan`. How many bytes came.
    pub fn fetch_only(&self, from: u64, to: u64) -> Answer<'_, u64> {
        let (calls, receipts) = (self.calls(), !self.tokens.is_empty() || self.settings.internal_transfers);
        let fetch = move |node| async move { scan::fetch_only(node, (from, to), receipts, calls).await };
        Box::pin(self.pool.any(fetch))
    }

    async fn quote_all(&self, requests: &[QuoteRequest<'_>]) -> Vec<Result<Quote, ChainError>> {
        let one_by_one = || requests.iter().map(|one| self.quote(one.from, one.payment, one.cap)).collect();
        let wanted: Result<Vec<fee::Wanted<'_>>, ChainError> = requests.iter().map(wanted_of).collect();
        let wanted = match wanted {
            Ok(wanted) if !wanted.is_empty() => wanted,
            Ok(_) | Err(_) => return side_by_side(one_by_one()).await,
        };
        let (wanted, margin, calls) = (&wanted, self.settings.energy_margin, self.calls());
        let quotes = match self.pool.any(|node| async move { fee::quotes(&node, wanted, margin, calls).await }).await {
            Ok(quotes) => quotes,
            Err(error) => return requests.iter().map(|_| Err(error.clone())).collect(),
        };
        // One node gave all of them, at one moment: they refer to the same block.
        if let Some(quote) = quotes.iter().flatten().next()
            && let Err(error) = self.check_reference(quote).await
        {
            return requests.iter().map(|_| Err(error.clone())).collect();
        }
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

    /// The bytes live and die with this block and its time: with one invented they could never be mined, and with a time far ahead they
    /// would not expire either.
    async fn check_reference(&self, quote: &Quote) -> Result<(), ChainError> {
        let Some((block, time)) = quote.reference else { return Ok(()) };
        let agreed = self.headers(&[block.height]).await?;
        if agreed.first().is_none_or(|agreed| agreed.at() != block || agreed.time != time) {
            return Err(ChainError::NoQuorum { wanted: self.pool.quorum(), agreed: 1 });
        }
        Ok(())
    }

    async fn status_of(&self, sent: &Sent) -> Result<Status, ChainError> {
        let wanted = asked_of(sent)?;
        let mined = |node: Arc<Node>| async move { status::mined(&node, wanted).await };
        let mined = self.pool.agree_unless_ahead(mined, Mined::ahead).await?;
        if let Some(mined) = mined {
            return Ok(Status::Mined(mined));
        }
        self.status_of_unmined(sent).await
    }

    /// Of one that is in no block.
    async fn status_of_unmined(&self, sent: &Sent) -> Result<Status, ChainError> {
        if let Some(proof) = self.expired(sent).await? {
            return Ok(Status::Impossible(proof));
        }
        let hash = sent.hash;
        let held = self.pool.each_soon(|node| async move { status::pending(&node, hash).await }).await;
        let held = held.into_iter().any(|(_, answer)| answer.unwrap_or(false));
        Ok(if held { Status::Mempool } else { Status::Unknown })
    }

    async fn statuses_of(&self, sent: &[Sent]) -> Vec<Result<Status, ChainError>> {
        if sent.is_empty() {
            // A node that is asked nothing must not be taken for one that answers.
            return Vec::new();
        }
        let each = || side_by_side(sent.iter().map(|one| self.status(one)).collect());
        let wanted: Result<Vec<status::AskedHash>, ChainError> = sent.iter().map(asked_of).collect();
        let Ok(wanted) = wanted else { return each().await };
        let (wanted, calls) = (&wanted, self.calls());
        let mined = |node: Arc<Node>| async move { status::mined_all(node, wanted, calls).await };
        // Nodes that differ in one of them agree on the others: then each is asked about by itself.
        let ahead = |one: &Vec<_>, agreed: &Vec<_>| status::ahead_in(one, agreed);
        let Ok(mined) = self.pool.agree_unless_ahead(mined, ahead).await else { return each().await };
        let mut open: Vec<Answer<'_, Status>> = Vec::new();
        for (mined, sent) in mined.iter().zip(sent) {
            if mined.is_none() {
                open.push(Box::pin(self.status_of_unmined(sent)));
            }
        }
        let mut open = side_by_side(open).await.into_iter();
        let nobody = || Err(ChainError::Unreachable(CallError::Unreachable { endpoint: "nobody".to_owned() }));
        let status = |mined: Option<Mined>| match mined {
            Some(mined) => Ok(Status::Mined(mined)),
            None => open.next().unwrap_or_else(nobody),
        };
        mined.into_iter().map(status).collect()
    }

    async fn expired(&self, sent: &Sent) -> Result<Option<Proof>, ChainError> {
        let Slot::Expiry(expires) = sent.meaning.slot else { return Ok(None) };
        let (hash, since, calls) = (sent.hash, sent.since, self.calls());
        let read = |node: Arc<Node>| async move { status::expiry(&node, hash, since, expires, calls).await };
        let said = self.pool.agree_unless_ahead(read, status::Expiry::ahead).await;
        match said {
            Ok(status::Expiry::Over { block, time }) => {
                Ok(Some(Proof::new(Reason::Expired { solidified: block, time })))
            }
            // Nodes solidify at different moments, so they need not agree about this, and not all of them keep the blocks.
            // Then nothing is proven.
            Ok(status::Expiry::Open | status::Expiry::Held)
            | Err(ChainError::NoQuorum { .. } | ChainError::Refused(CallError::Lacks { .. })) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Whose balances, of which coins.
fn whose(wanted: &[(Address, Coin)]) -> Result<Vec<balance::BalanceOf>, ChainError> {
    let one = |(address, coin): &(Address, Coin)| {
        let token = match coin {
            Coin::Native => None,
            Coin::Token(token) => Some(own(token)?),
        };
        Ok((own(address)?, token))
    };
    wanted.iter().map(one).collect()
}

fn own(address: &Address) -> Result<TronAddress, ChainError> {
    match address {
        Address::Tron(address) => Ok(*address),
        Address::Bitcoin(_) | Address::Evm(_) => Err(ChainError::ForeignAddress),
    }
}

/// A block's header without its transactions. `None`: the node has no such block.
async fn header(node: &Node, height: u64) -> Result<Option<Header>, CallError> {
    let body = json!({ "id_or_num": height.to_string(), "detail": false });
    let answer = wire::ask(node, "/wallet/getblock", &body).await?;
    let block: wire::Block<'_> = wire::read(node, &answer)?;
    let header = block.header(node)?;
    if header.is_some_and(|header| header.height != height) {
        return Err(node.bad("another block than was asked for"));
    }
    Ok(header)
}

async fn headers(node: &Node, heights: &[u64], calls: usize) -> Result<Vec<Option<Header>>, CallError> {
    let asked = heights.iter().copied().map(|height| header(node, height));
    stream::iter(asked).buffered(calls).try_collect().await
}

async fn head(node: &Node) -> Result<Head, CallError> {
    // In this order, so that the tip cannot be behind what was settled a moment before.
    let answer = wire::ask(node, "/walletsolidity/getnowblock", &json!({})).await?;
    let solid = wire::read::<wire::Block<'_>>(node, &answer)?.header(node)?;
    let answer = wire::ask(node, "/wallet/getnowblock", &json!({})).await?;
    let tip = wire::read::<wire::Block<'_>>(node, &answer)?.header(node)?;
    let tip = tip.ok_or_else(|| node.bad("no block at all"))?;
    let settled = solid.map(|solid| solid.height);
    if settled.is_some_and(|settled| settled > tip.height) {
        return Err(node.bad("a solidified block above the tip"));
    }
    Ok(Head { tip, settled })
}

impl Chain for TronChain {
    fn kind(&self) -> ChainKind {
        ChainKind::Tron
    }

    fn parse_address(&self, text: &str) -> Result<Address, BadAddress> {
        TronAddress::parse(text).map(Address::Tron)
    }

    fn check_network(&self) -> Answer<'_, ()> {
        Box::pin(async move {
            let mut failed = CallError::Unreachable { endpoint: "nobody".to_owned() };
            let mut right = false;
            for (_, answer) in self.pool.each(|node| async move { header(&node, 0).await }).await {
                let genesis = match answer {
                    Ok(genesis) => genesis.map(|header| header.hash).unwrap_or_default(),
                    Err(error) => {
                        failed = error;
                        continue;
                    }
                };
                let (wanted, found) = (self.settings.network, Network::of_genesis(&genesis));
                if wanted != found {
                    let found = if found == Network::Devnet { genesis.to_string() } else { found.name().to_owned() };
                    return Err(ChainError::WrongNetwork { wanted: wanted.name().to_owned(), found });
                }
                right = true;
            }
            if right { Ok(()) } else { Err(ChainError::of_call(failed)) }
        })
    }

    fn head(&self) -> Answer<'_, Head> {
        Box::pin(async move {
            let found = crate::head::find(&self.pool, 0, |node| async move { head(&node).await }).await?;
            Ok(found.head)
        })
    }

    fn headers<'a>(&'a self, heights: &'a [u64]) -> Answer<'a, Vec<Header>> {
        Box::pin(async move {
            let calls = self.calls();
            let read = |node: Arc<Node>| async move { headers(&node, heights, calls).await };
            let found = self.pool.agree_unless_ahead(read, |one, agreed| ahead(one, agreed, heights)).await?;
            let found = found.into_iter().zip(heights);
            found.map(|(header, height)| header.ok_or(ChainError::BlockMissing { height: *height })).collect()
        })
    }

    fn scan<'a>(&'a self, from: u64, to: u64, watched: &'a Watched) -> Answer<'a, Scan> {
        Box::pin(async move {
            let (wanted, calls) = (self.wanted(watched), self.calls());
            // That a node lacks a block is a reason to ask another, and only then one to give up.
            let missing = Mutex::new(None);
            let found = self.pool.any(|node| {
                let missing = &missing;
                async move {
                    let scanned = scan::scan(Arc::clone(&node), (from, to), wanted, calls).await?;
                    scanned.map_err(|height| {
                        *missing.lock().unwrap_or_else(PoisonError::into_inner) = Some(height);
                        node.lacks(format!("there is no block {height}"))
                    })
                }
            });
            let found = found.await;
            let missing = missing.into_inner().unwrap_or_else(PoisonError::into_inner);
            match (found, missing) {
                (Err(ChainError::Refused(CallError::Lacks { .. })), Some(height)) => {
                    Err(ChainError::BlockMissing { height })
                }
                (found, _) => found,
            }
        })
    }

    fn prove_blocks<'a>(&'a self, from: u64, to: u64, watched: &'a Watched) -> Answer<'a, Scan> {
        Box::pin(self.proven_blocks(from, to, watched))
    }

    fn prove<'a>(&'a self, transaction: TxHash, watched: &'a Watched) -> Answer<'a, Option<Proven>> {
        let wanted = self.wanted(watched);
        let prove = move |node: Arc<Node>| async move { status::proven(&node, transaction, wanted).await };
        Box::pin(self.pool.agree_unless_ahead(prove, Proven::ahead))
    }

    fn balances_at<'a>(
        &'a self,
        wanted: &'a [(Address, Coin)],
        // The newest state has also what waits to be mined: it is no block's.
        _: BlockRef,
    ) -> Answer<'a, (BlockRef, Vec<RawAmount>)> {
        Box::pin(async move {
            let wanted = whose(wanted)?;
            let (wanted, calls) = (wanted.as_slice(), self.calls());
            let read = |node: Arc<Node>| async move { balance::solidified(&node, wanted, calls).await };
            self.pool.agree_at_a_block(read).await
        })
    }

    fn survey(&self) -> Answer<'_, Vec<NodeReport>> {
        Box::pin(async move {
            let wanted = self.settings.network;
            let examine = |node: Arc<Node>| async move { survey::examine(&node, wanted).await };
            let hash_at = |node: Arc<Node>, height: u64| async move {
                Ok(header(&node, height).await?.map(|header| header.hash))
            };
            Ok(crate::survey::of_all(&self.pool, examine, hash_at).await)
        })
    }

    fn balances<'a>(&'a self, wanted: &'a [(Address, Coin)]) -> Answer<'a, Vec<RawAmount>> {
        Box::pin(async move {
            let wanted = whose(wanted)?;
            let (wanted, calls) = (wanted.as_slice(), self.calls());
            self.pool.any(|node| async move { balance::balances(&node, wanted, calls).await }).await
        })
    }

    fn nonces<'a>(&'a self, of: &'a [Address]) -> Answer<'a, Vec<Nonces>> {
        Box::pin(std::future::ready(Ok(vec![Nonces { mined: 0, pending: 0 }; of.len()])))
    }

    fn nonces_at<'a>(&'a self, _: &'a [Address], _: BlockRef) -> Answer<'a, Vec<u64>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn quote<'a>(&'a self, from: &'a Address, payment: &'a Payment, cap: FeeCap) -> Answer<'a, Quote> {
        Box::pin(async move {
            let wanted = [wanted_of(&QuoteRequest { from, payment, cap })?];
            let (wanted, margin, calls) = (&wanted, self.settings.energy_margin, self.calls());
            let ask = |node: Arc<Node>| async move {
                let quote = fee::quotes(&node, wanted, margin, calls).await?.pop();
                quote.unwrap_or_else(|| Err(node.bad("no quote")))
            };
            let quote = self.pool.any(ask).await?;
            self.check_reference(&quote).await?;
            Ok(quote)
        })
    }

    fn quotes<'a>(&'a self, requests: &'a [QuoteRequest<'a>]) -> Answers<'a, Quote> {
        Box::pin(self.quote_all(requests))
    }

    fn build(&self, draft: &Draft) -> Result<Unsigned, BuildError> {
        transaction::build(draft)
    }

    fn decode_unsigned(&self, bytes: &[u8]) -> Result<Meaning, DecodeError> {
        transaction::decode_unsigned(bytes)
    }

    fn decode_signed(&self, bytes: &[u8]) -> Result<Meaning, DecodeError> {
        transaction::decode_signed(bytes)
    }

    fn broadcast<'a>(&'a self, signed: &'a [u8]) -> Answer<'a, Broadcast> {
        Box::pin(broadcast::broadcast(&self.pool, signed))
    }

    fn status<'a>(&'a self, sent: &'a Sent) -> Answer<'a, Status> {
        Box::pin(self.status_of(sent))
    }

    fn statuses<'a>(&'a self, sent: &'a [Sent]) -> Answers<'a, Status> {
        Box::pin(self.statuses_of(sent))
    }

    fn glimpse(&self, from: u64, to: u64) -> Answer<'_, Option<HashMap<TxHash, u64>>> {
        Box::pin(async move {
            let to = to.min(from.saturating_add(scan::CHUNK - 1));
            let read = |node: Arc<Node>| async move {
                let answer = scan::fetch(&node, from, to).await?;
                match scan::read_blocks(&node, &answer, from, to, None)? {
                    scan::Found::Whole(blocks) => Ok(blocks),
                    scan::Found::Missing(_) | scan::Found::Torn => Err(node.lacks("the newest blocks")),
                }
            };
            let blocks = self.pool.any(read).await?;
            let of_block =
                |block: scan::Read| block.transactions.into_iter().map(move |hash| (hash, block.header.height));
            Ok(Some(blocks.into_iter().flat_map(of_block).collect()))
        })
    }
}

fn wanted_of<'a>(request: &QuoteRequest<'a>) -> Result<fee::Wanted<'a>, ChainError> {
    let from = own(request.from)?;
    own(&request.payment.to)?;
    if let Coin::Token(token) = &request.payment.coin {
        own(token)?;
    }
    let FeeCap(Fee::FeeLimit(cap)) = request.cap else { return Err(ChainError::ForeignAddress) };
    Ok(fee::Wanted { from, payment: request.payment, cap })
}

fn asked_of(sent: &Sent) -> Result<status::AskedHash, ChainError> {
    let token = match sent.meaning.payments.as_slice() {
        [Payment { to: Address::Tron(to), coin: Coin::Token(Address::Tron(token)), amount }] => {
            let Some(Address::Tron(from)) = sent.meaning.from else { return Err(ChainError::ForeignAddress) };
            Some(status::TokenPayment { token: *token, from, to: *to, amount: amount.to_u256() })
        }
        _ => None,
    };
    Ok((sent.hash, token))
}
