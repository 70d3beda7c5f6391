//! The chain as a worker sees it: each call takes its time, may fail, and may be the last that its process makes.

use chain::client::{Nonces, Proven, Sent};
use chain::endpoint::CallError;
use chain::{Answer, Broadcast, Chain, ChainError, Head, Header, NodeReport, Quote, Scan, Status, Watched};
use domain::{ChainKind, RawAmount};
use tx::{
    Address, BadAddress, BlockRef, BuildError, Coin, DecodeError, Draft, FeeCap, Meaning, Payment, TxHash, Unsigned,
};

use super::super::turn::{die, park};
use super::net::Spec;
use super::world::{Shared, World};

/// How one process reaches one chain.
pub(crate) struct SimChain {
    world: Shared,
    net: usize,
    spec: Spec,
}

fn unreachable() -> ChainError {
    ChainError::Unreachable(CallError::Unreachable { endpoint: "the simulated nodes".to_owned() })
}

fn too_slow() -> ChainError {
    ChainError::Unreachable(CallError::Timeout { endpoint: "the simulated nodes".to_owned() })
}

/// Nothing in the simulation asks this.
fn not_here<T: Send + 'static>() -> Answer<'static, T> {
    let error = CallError::Lacks { endpoint: "the simulation".to_owned(), what: "this call".to_owned() };
    Box::pin(std::future::ready(Err(ChainError::Refused(error))))
}

impl SimChain {
    pub fn new(world: &Shared, net: usize) -> Self {
        let spec = world.lock().nets[net].spec.clone();
        Self { world: world.clone(), net, spec }
    }

    /// The answer is found before the others have had their turns, or after; so it may be old when it comes.
    async fn call<T>(&self, ask: impl Fn(&mut World) -> Result<T, ChainError> + Send) -> Result<T, ChainError>
    where
        T: Send,
    {
        let dies = |before: bool| {
            let mut world = self.world.lock();
            let dies = world.chance(600);
            world.report.killed_before_call += u64::from(dies && before);
            world.report.killed_after_call += u64::from(dies && !before);
            dies
        };
        if dies(true) {
            die(&self.world).await;
        }
        let early = {
            let mut world = self.world.lock();
            if world.random.below(2) == 0 { Some(ask(&mut world)) } else { None }
        };
        park(&self.world).await;
        let answer = match early {
            Some(answer) => answer,
            None => ask(&mut self.world.lock()),
        };
        if dies(false) {
            die(&self.world).await;
        }
        let mut world = self.world.lock();
        world.report.no_quorum += u64::from(matches!(answer, Err(ChainError::NoQuorum { .. })));
        world.report.blocks_missing += u64::from(matches!(answer, Err(ChainError::BlockMissing { .. })));
        world.report.blocks_not_proven += u64::from(matches!(answer, Err(ChainError::BlockNotProven { .. })));
        if world.chance(400) {
            world.report.calls_failed += 1;
            return Err(unreachable());
        }
        answer
    }
}

impl Chain for SimChain {
    fn kind(&self) -> ChainKind {
        self.spec.kind
    }

    fn parse_address(&self, text: &str) -> Result<Address, BadAddress> {
        self.spec.family.parse_address(text)
    }

    fn check_network(&self) -> Answer<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn head(&self) -> Answer<'_, Head> {
        Box::pin(self.call(|world| world.nets[self.net].head()))
    }

    fn headers<'a>(&'a self, heights: &'a [u64]) -> Answer<'a, Vec<Header>> {
        Box::pin(self.call(|world| world.nets[self.net].headers(heights)))
    }

    fn scan<'a>(&'a self, from: u64, to: u64, watched: &'a Watched) -> Answer<'a, Scan> {
        Box::pin(self.call(move |world| {
            if to > from && world.chance(2_000) {
                world.report.scans_too_long += 1;
                return Err(too_slow());
            }
            let World { nets, random, report, .. } = world;
            nets[self.net].scan((from, to), watched, random, report)
        }))
    }

    fn prove_blocks<'a>(&'a self, from: u64, to: u64, watched: &'a Watched) -> Answer<'a, Scan> {
        Box::pin(self.call(move |world| world.nets[self.net].prove(from, to, watched)))
    }

    fn prove<'a>(&'a self, _: TxHash, _: &'a Watched) -> Answer<'a, Option<Proven>> {
        not_here()
    }

    fn balances<'a>(&'a self, _: &'a [(Address, Coin)]) -> Answer<'a, Vec<RawAmount>> {
        not_here()
    }

    fn balances_at<'a>(
        &'a self,
        wanted: &'a [(Address, Coin)],
        near: BlockRef,
    ) -> Answer<'a, (BlockRef, Vec<RawAmount>)> {
        Box::pin(self.call(move |world| world.nets[self.net].balances_at(wanted, near)))
    }

    fn survey(&self) -> Answer<'_, Vec<NodeReport>> {
        not_here()
    }

    fn nonces<'a>(&'a self, _: &'a [Address]) -> Answer<'a, Vec<Nonces>> {
        not_here()
    }

    fn nonces_at<'a>(&'a self, _: &'a [Address], _: BlockRef) -> Answer<'a, Vec<u64>> {
        not_here()
    }

    fn quote<'a>(&'a self, _: &'a Address, _: &'a Payment, _: FeeCap) -> Answer<'a, Quote> {
        not_here()
    }

    fn build(&self, _: &Draft) -> Result<Unsigned, BuildError> {
        Err(BuildError::Inconsistent("nothing is sent in this simulation"))
    }

    fn decode_unsigned(&self, _: &[u8]) -> Result<Meaning, DecodeError> {
        Err(DecodeError::Malformed("nothing is sent in this simulation"))
    }

    fn decode_signed(&self, _: &[u8]) -> Result<Meaning, DecodeError> {
        Err(DecodeError::Malformed("nothing is sent in this simulation"))
    }

    fn broadcast<'a>(&'a self, _: &'a [u8]) -> Answer<'a, Broadcast> {
        not_here()
    }

    fn status<'a>(&'a self, _: &'a Sent) -> Answer<'a, Status> {
        not_here()
    }
}
