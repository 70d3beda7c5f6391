//! A chain of which one thing is not as it is: its nodes say what they like to whatever they are told, or it has no base fee. It remembers what
//! it was told.

use std::sync::{Mutex, PoisonError};

use chain::client::{Nonces, Proven, Sent};
use chain::endpoint::CallError;
use chain::{
    Answer, Broadcast, Chain, ChainError, Head, Header, NodeRefusal, NodeReport, Quote, Scan, Status, Watched,
};
use domain::{ChainKind, RawAmount};
use proptest::prelude::{Strategy, any};
use tx::{
    Address, BadAddress, BlockRef, BuildError, Coin, DecodeError, Draft, Fee, FeeCap, Meaning, Payment, TxHash,
    Unsigned,
};

pub struct Bent<'a> {
    nodes: &'a dyn Chain,
    /// What they say instead of passing anything on.
    says: Option<(NodeRefusal, String)>,
    /// Every price is one for a unit of gas.
    legacy: bool,
    /// No contract has a balance for it.
    speechless: Option<Address>,
    /// Tokens refuse this one as recipient.
    frozen: Option<Address>,
    heard: Mutex<Vec<Vec<u8>>>,
}

impl<'a> Bent<'a> {
    /// Nothing is bent: it only remembers.
    pub fn listening(nodes: &'a dyn Chain) -> Self {
        Self { nodes, says: None, legacy: false, speechless: None, frozen: None, heard: Mutex::default() }
    }

    pub fn has_heard(&self, bytes: &[u8]) -> bool {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|one| one == bytes)
    }

    /// Nodes that pass nothing on.
    pub fn talking(nodes: &'a dyn Chain, says: (NodeRefusal, String)) -> Self {
        Self { says: Some(says), ..Self::listening(nodes) }
    }

    /// Tokens whose contracts fail when they are asked about this address.
    pub fn speechless(nodes: &'a dyn Chain, address: Address) -> Self {
        Self { speechless: Some(address), ..Self::listening(nodes) }
    }

    /// An EVM chain as before EIP-1559.
    pub fn without_base_fee(nodes: &'a dyn Chain) -> Self {
        Self { legacy: true, ..Self::listening(nodes) }
    }

    /// Tokens whose owners have frozen an address.
    pub fn freezing(nodes: &'a dyn Chain, frozen: Address) -> Self {
        Self { frozen: Some(frozen), ..Self::listening(nodes) }
    }
}

pub const REFUSALS: [NodeRefusal; 13] = [
    NodeRefusal::NonceTooLow,
    NodeRefusal::NonceTooHigh,
    NodeRefusal::Underpriced,
    NodeRefusal::FeeTooLow,
    NodeRefusal::InsufficientFunds,
    NodeRefusal::InputMissing,
    NodeRefusal::Expired,
    NodeRefusal::BadReference,
    NodeRefusal::BadSignature,
    NodeRefusal::WrongNetwork,
    NodeRefusal::Malformed,
    NodeRefusal::Busy,
    NodeRefusal::Other,
];

/// Whatever a node may say. Clients leave no control characters in it.
pub fn words() -> impl Strategy<Value = String> {
    any::<String>().prop_map(|text| text.chars().map(|one| if one.is_control() { ' ' } else { one }).collect())
}

#[rustfmt::skip]
impl Chain for Bent<'_> {
    fn broadcast<'a>(&'a self, signed: &'a [u8]) -> Answer<'a, Broadcast> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).push(signed.to_vec());
        match self.says.clone() {
            Some((kind, words)) => Box::pin(std::future::ready(Ok(Broadcast::Refused(kind, words)))),
            None => self.nodes.broadcast(signed),
        }
    }

    fn quote<'a>(&'a self, from: &'a Address, payment: &'a Payment, cap: FeeCap) -> Answer<'a, Quote> {
        if payment.coin != Coin::Native && self.frozen.as_ref() == Some(&payment.to) {
            let refused = CallError::Refused { endpoint: "one".to_owned(), code: 3, message: "it is frozen".to_owned() };
            return Box::pin(std::future::ready(Err(ChainError::Refused(refused))));
        }
        let cap = match cap.0 {
            Fee::Eip1559 { max_fee, .. } if self.legacy => FeeCap(Fee::Legacy { gas_price: max_fee }),
            _ => cap,
        };
        self.nodes.quote(from, payment, cap)
    }

    fn balances_at<'a>(&'a self, wanted: &'a [(Address, Coin)], near: BlockRef) -> Answer<'a, (BlockRef, Vec<RawAmount>)> {
        if wanted.iter().any(|(address, coin)| Some(address) == self.speechless.as_ref() && *coin != Coin::Native) {
            let said = CallError::Lacks { endpoint: "node".to_owned(), what: "execution reverted".to_owned() };
            return Box::pin(std::future::ready(Err(ChainError::Refused(said))));
        }
        self.nodes.balances_at(wanted, near)
    }

    fn kind(&self) -> ChainKind { self.nodes.kind() }
    fn parse_address(&self, text: &str) -> Result<Address, BadAddress> { self.nodes.parse_address(text) }
    fn check_network(&self) -> Answer<'_, ()> { self.nodes.check_network() }
    fn head(&self) -> Answer<'_, Head> { self.nodes.head() }
    fn headers<'a>(&'a self, heights: &'a [u64]) -> Answer<'a, Vec<Header>> { self.nodes.headers(heights) }
    fn scan<'a>(&'a self, from: u64, to: u64, watched: &'a Watched) -> Answer<'a, Scan> { self.nodes.scan(from, to, watched) }
    fn prove_blocks<'a>(&'a self, from: u64, to: u64, watched: &'a Watched) -> Answer<'a, Scan> { self.nodes.prove_blocks(from, to, watched) }
    fn prove<'a>(&'a self, transaction: TxHash, watched: &'a Watched) -> Answer<'a, Option<Proven>> { self.nodes.prove(transaction, watched) }
    fn balances<'a>(&'a self, wanted: &'a [(Address, Coin)]) -> Answer<'a, Vec<RawAmount>> { self.nodes.balances(wanted) }
    fn survey(&self) -> Answer<'_, Vec<NodeReport>> { self.nodes.survey() }
    fn nonces<'a>(&'a self, of: &'a [Address]) -> Answer<'a, Vec<Nonces>> { self.nodes.nonces(of) }
    fn nonces_at<'a>(&'a self, of: &'a [Address], at: BlockRef) -> Answer<'a, Vec<u64>> { self.nodes.nonces_at(of, at) }
    fn build(&self, draft: &Draft) -> Result<Unsigned, BuildError> { self.nodes.build(draft) }
    fn decode_unsigned(&self, bytes: &[u8]) -> Result<Meaning, DecodeError> { self.nodes.decode_unsigned(bytes) }
    fn decode_signed(&self, bytes: &[u8]) -> Result<Meaning, DecodeError> { self.nodes.decode_signed(bytes) }
    fn status<'a>(&'a self, sent: &'a Sent) -> Answer<'a, Status> { self.nodes.status(sent) }
}
