//! The chain as a worker sees it: each call takes its time, may fail, and may be the last that its process makes.

use std::collections::HashMap;

use chain::client::{Nonces, Proven, Sent};
use chain::endpoint::CallError;
use chain::status::{Mined as SeenMined, Proof, Reason};
use chain::{
    Answer, Broadcast, Chain, ChainError, Head, Header, NodeRefusal, NodeReport, Quote, Scan, Status, Watched,
};
use domain::{ChainKind, RawAmount};
use tx::{
    Address, BadAddress, BlockRef, BuildError, Coin, DecodeError, Draft, Family, Fee, FeeCap, Meaning, Payment, Slot,
    TxHash, Unsigned,
};

use super::super::turn::{die, park};
use super::coins::{NETWORK, inputs_of};
use super::model::{Branch, GAS, Net, SOLID, TOKEN_GAS, TRON_FEE, Waiting, raw, units};
use super::world::{Shared, World};

pub(crate) const CHAIN_ID: u64 = 56;

/// How one process reaches one chain.
pub(crate) struct SimChain {
    pub world: Shared,
    pub net: usize,
    pub kind: ChainKind,
}

fn unreachable() -> ChainError {
    ChainError::Unreachable(CallError::Unreachable { endpoint: "the simulated nodes".to_owned() })
}

fn refused(message: &str) -> ChainError {
    let endpoint = "the simulated nodes".to_owned();
    ChainError::Refused(CallError::Refused { endpoint, code: 3, message: message.to_owned() })
}

/// Nothing in this simulation asks this.
fn not_here<T: Send + 'static>() -> Answer<'static, T> {
    Box::pin(std::future::ready(Err(refused("this call is not simulated"))))
}

impl SimChain {
    const fn family(&self) -> Family {
        match self.kind {
            ChainKind::Evm => Family::Evm,
            ChainKind::Tron => Family::Tron,
            ChainKind::Bitcoin => Family::Bitcoin(NETWORK),
        }
    }

    /// All blocks that a quorum has, and what waits, as one node shows it.
    pub async fn everything(&self) -> Result<(Branch, Vec<Waiting>), ChainError> {
        self.call(|world| {
            let pool = world.nets[self.net].pool.clone();
            Ok((self.agreed(world)?, pool))
        })
        .await
    }

    /// The answer is found before the others have had their turns, or after; so it may be old when it comes.
    async fn call<T: Send>(&self, ask: impl Fn(&mut World) -> Result<T, ChainError> + Send) -> Result<T, ChainError> {
        let dies = |before: bool| {
            let mut world = self.world.lock();
            let dies = world.chance(500);
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
        if world.chance(600) {
            world.report.calls_failed += 1;
            return Err(unreachable());
        }
        answer
    }

    /// What a quorum has.
    fn agreed(&self, world: &World) -> Result<Branch, ChainError> {
        world.nets[self.net].agreed().ok_or(ChainError::NoQuorum { wanted: 2, agreed: 1 })
    }

    fn status_of(&self, world: &World, sent: &Sent) -> Result<Status, ChainError> {
        let agreed = self.agreed(world)?;
        if let Some((block, mined)) = agreed.find(sent.hash) {
            let (paid, fee) = (Net::judged(mined), Some(raw(mined.fee)));
            return Ok(Status::Mined(SeenMined { block: block.at(), paid, fee }));
        }
        let net = &world.nets[self.net];
        let waits = net.pool.iter().any(|one| one.hash == sent.hash);
        let open = if waits { Status::Mempool } else { Status::Unknown };
        match (&sent.meaning.slot, &sent.meaning.from) {
            (Slot::Nonce(nonce), Some(from)) => {
                let Some(settled) = agreed.tip().height.checked_sub(net.confirmations) else { return Ok(open) };
                let same = |one: &&super::model::Mined| one.from == *from && one.nonce == Some(*nonce);
                let taken = agreed.0.iter().filter(|block| block.height <= settled);
                let taken = taken.into_iter().find_map(|block| Some((block, block.transactions.iter().find(same)?)));
                Ok(taken.map_or(open, |(block, by)| {
                    Status::Impossible(Proof::simulated(Reason::NonceTaken { by: by.hash, block: block.at() }))
                }))
            }
            (Slot::Expiry(expiry), _) => {
                let solid = agreed.tip().height.checked_sub(SOLID).and_then(|height| agreed.at(height));
                Ok(solid.filter(|solid| solid.time > *expiry).map_or(open, |solid| {
                    Status::Impossible(Proof::simulated(Reason::Expired { solidified: solid.at(), time: solid.time }))
                }))
            }
            (Slot::Inputs(inputs), _) => {
                let Some(settled) = agreed.tip().height.checked_sub(net.confirmations) else { return Ok(open) };
                let blocks = agreed.0.iter().filter(|block| block.height <= settled);
                let found = blocks.into_iter().find_map(|block| {
                    let by = block.transactions.iter().find_map(|one| {
                        let input = inputs_of(&one.meaning).iter().find(|input| inputs.contains(input))?;
                        Some((one.hash, *input))
                    });
                    by.map(|(by, input)| (block, by, input))
                });
                Ok(found.map_or(open, |(block, by, input)| {
                    Status::Impossible(Proof::simulated(Reason::InputSpent { input, by, block: block.at() }))
                }))
            }
            (Slot::Nonce(_), _) => Ok(open),
        }
    }

    fn tell(&self, world: &mut World, bytes: &[u8]) -> Result<Broadcast, ChainError> {
        let Ok(meaning) = self.decode_signed(bytes) else {
            world.breaks("bytes that cannot be read were sent".to_owned());
            return Err(unreachable());
        };
        let Some(hash) = meaning.hash else { return Err(unreachable()) };
        if world.chance(2_500) {
            world.report.broadcasts_lost += 1;
            return Err(unreachable());
        }
        if world.chance(2_000) {
            world.report.broadcasts_forgotten += 1;
            return Ok(Broadcast::Taken);
        }
        let net = &mut world.nets[self.net];
        let from = meaning.from.clone().or_else(|| net.spender(&meaning));
        let taken = match from {
            Some(from) => net.take(Waiting { hash, from, meaning, bytes: bytes.into() }),
            None => Err("bad-txns-inputs-missingorspent"),
        };
        if world.chance(2_000) {
            // It is in the pool, and the node says no all the same.
            world.report.taken_and_refused += 1;
            let (kind, words) = match world.random.below(3) {
                0 => (NodeRefusal::NonceTooLow, "nonce too low"),
                1 => (NodeRefusal::InsufficientFunds, "insufficient funds for gas * price + value"),
                _ => (NodeRefusal::Other, "internal error"),
            };
            return Ok(Broadcast::Refused(kind, words.to_owned()));
        }
        Ok(match taken {
            Ok(()) | Err("already known") => Broadcast::Taken,
            Err(words) => {
                let kind = if words == "nonce too low" { NodeRefusal::NonceTooLow } else { NodeRefusal::Other };
                Broadcast::Refused(kind, words.to_owned())
            }
        })
    }

    fn quoted(&self, world: &mut World, from: &Address, payment: &Payment, cap: FeeCap) -> Result<Quote, ChainError> {
        let net = &world.nets[self.net];
        if payment.coin != Coin::Native {
            if net.paused {
                return Err(refused("execution reverted: paused"));
            }
            if net.tokens(from) < units(payment.amount) {
                return Err(refused("execution reverted: transfer amount exceeds balance"));
            }
        }
        if let FeeCap(Fee::PerKvb(cap)) = cap {
            let rate = u64::try_from(net.rate().max(1_000)).unwrap_or(u64::MAX);
            world.report.above_the_cap += u64::from(rate > cap);
            let fee = Fee::PerKvb(rate.min(cap));
            return Ok(Quote {
                fee,
                capped: rate > cap,
                gas: 0,
                most: RawAmount::ZERO,
                expected: RawAmount::ZERO,
                needs: RawAmount::ZERO,
                reference: None,
            });
        }
        if self.kind != ChainKind::Evm {
            let tip = net.agreed().and_then(|agreed| Some(agreed.at(agreed.tip().height.checked_sub(SOLID)?)?.clone()));
            let solid = tip.ok_or_else(unreachable)?;
            let FeeCap(Fee::FeeLimit(most)) = cap else { return Err(unreachable()) };
            let limit = if payment.coin == Coin::Native { 0 } else { i64::try_from(TRON_FEE).unwrap_or(0).min(most) };
            return Ok(Quote {
                fee: Fee::FeeLimit(limit),
                capped: false,
                gas: 0,
                most: raw(u128::from(TRON_FEE)),
                expected: raw(u128::from(TRON_FEE)),
                needs: raw(u128::from(TRON_FEE)),
                reference: Some((solid.at(), solid.time)),
            });
        }
        let FeeCap(Fee::Eip1559 { max_fee: most, .. }) = cap else { return Err(unreachable()) };
        let tip = 1_000_000_000;
        let now = net.price.saturating_add(tip);
        let capped = now > most;
        world.report.above_the_cap += u64::from(capped);
        let max_fee = world.nets[self.net].price.saturating_mul(2).saturating_add(tip).min(most);
        let gas = if payment.coin == Coin::Native { GAS } else { TOKEN_GAS };
        let fee = Fee::Eip1559 { max_fee, max_priority: tip.min(max_fee) };
        let most = raw(u128::from(gas).saturating_mul(max_fee));
        Ok(Quote { fee, capped, gas, most, expected: most, needs: most, reference: None })
    }
}

impl Chain for SimChain {
    fn kind(&self) -> ChainKind {
        self.kind
    }

    fn parse_address(&self, text: &str) -> Result<Address, BadAddress> {
        self.family().parse_address(text)
    }

    fn check_network(&self) -> Answer<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn head(&self) -> Answer<'_, Head> {
        Box::pin(self.call(|world| {
            let agreed = self.agreed(world)?;
            let tip = agreed.tip().header();
            Ok(Head { tip, settled: tip.height.checked_sub(world.nets[self.net].confirmations) })
        }))
    }

    fn headers<'a>(&'a self, heights: &'a [u64]) -> Answer<'a, Vec<Header>> {
        Box::pin(self.call(move |world| {
            let agreed = self.agreed(world)?;
            let header = |height: &u64| {
                agreed.at(*height).map(|block| block.header()).ok_or(ChainError::BlockMissing { height: *height })
            };
            heights.iter().map(header).collect()
        }))
    }

    fn scan<'a>(&'a self, from: u64, to: u64, watched: &'a Watched) -> Answer<'a, Scan> {
        Box::pin(self.call(move |world| {
            let World { nets, random, .. } = world;
            nets[self.net].scan((from, to), watched, random)
        }))
    }

    fn prove_blocks<'a>(&'a self, from: u64, to: u64, watched: &'a Watched) -> Answer<'a, Scan> {
        Box::pin(self.call(move |world| {
            let agreed = self.agreed(world)?;
            world.nets[self.net].prove(&agreed, (from, to), watched)
        }))
    }

    fn prove<'a>(&'a self, _: TxHash, _: &'a Watched) -> Answer<'a, Option<Proven>> {
        not_here()
    }

    fn balances<'a>(&'a self, wanted: &'a [(Address, Coin)]) -> Answer<'a, Vec<RawAmount>> {
        Box::pin(self.call(move |world| {
            let lies = world.chance(4_000);
            world.report.balances_lied += u64::from(lies);
            let net = &world.nets[self.net];
            let has = |(address, coin): &(Address, Coin)| {
                let native = || net.purses.get(address).map_or(0, |purse| purse.native);
                let units = if *coin == Coin::Native { native() } else { net.tokens(address) };
                raw(if lies { units.saturating_mul(3) } else { units })
            };
            Ok(wanted.iter().map(has).collect())
        }))
    }

    fn balances_at<'a>(
        &'a self,
        wanted: &'a [(Address, Coin)],
        near: BlockRef,
    ) -> Answer<'a, (BlockRef, Vec<RawAmount>)> {
        Box::pin(self.call(move |world| {
            let agreed = self.agreed(world)?;
            world.nets[self.net].balances_at((self.kind, &agreed), wanted, near)
        }))
    }

    fn survey(&self) -> Answer<'_, Vec<NodeReport>> {
        not_here()
    }

    fn nonces<'a>(&'a self, of: &'a [Address]) -> Answer<'a, Vec<Nonces>> {
        Box::pin(self.call(move |world| {
            let lies = world.chance(20_000);
            world.report.nonces_lied += u64::from(lies);
            let tip = world.nets[self.net].truth.tip();
            let count = |address: &Address| {
                let mined = if lies { 1_000_000 } else { tip.nonces.get(address).copied().unwrap_or(0) };
                Nonces { mined, pending: mined }
            };
            Ok(of.iter().map(count).collect())
        }))
    }

    fn nonces_at<'a>(&'a self, of: &'a [Address], at: BlockRef) -> Answer<'a, Vec<u64>> {
        Box::pin(self.call(move |world| {
            let agreed = self.agreed(world)?;
            let block = agreed.at(at.height).filter(|_| agreed.has(at));
            let block = block.ok_or(ChainError::BlockMissing { height: at.height })?;
            Ok(of.iter().map(|address| block.nonces.get(address).copied().unwrap_or(0)).collect())
        }))
    }

    fn quote<'a>(&'a self, from: &'a Address, payment: &'a Payment, cap: FeeCap) -> Answer<'a, Quote> {
        Box::pin(self.call(move |world| self.quoted(world, from, payment, cap)))
    }

    fn build(&self, draft: &Draft) -> Result<Unsigned, BuildError> {
        match self.kind {
            ChainKind::Evm => tx::evm::build(draft, CHAIN_ID),
            ChainKind::Tron => tx::tron::transaction::build(draft),
            ChainKind::Bitcoin => tx::bitcoin::transaction::build(draft, NETWORK),
        }
    }

    fn decode_unsigned(&self, bytes: &[u8]) -> Result<Meaning, DecodeError> {
        match self.kind {
            ChainKind::Evm => tx::evm::decode_unsigned(bytes, CHAIN_ID),
            ChainKind::Tron => tx::tron::transaction::decode_unsigned(bytes),
            ChainKind::Bitcoin => tx::bitcoin::transaction::decode_unsigned(bytes, NETWORK),
        }
    }

    fn decode_signed(&self, bytes: &[u8]) -> Result<Meaning, DecodeError> {
        match self.kind {
            ChainKind::Evm => tx::evm::decode_signed(bytes, CHAIN_ID),
            ChainKind::Tron => tx::tron::transaction::decode_signed(bytes),
            ChainKind::Bitcoin => tx::bitcoin::transaction::decode_signed(bytes, NETWORK),
        }
    }

    fn broadcast<'a>(&'a self, signed: &'a [u8]) -> Answer<'a, Broadcast> {
        Box::pin(async move {
            // Once, whenever it is: a second delivery is another call.
            let dies = |before: bool| {
                let mut world = self.world.lock();
                let dies = world.chance(1_000);
                world.report.killed_before_call += u64::from(dies && before);
                world.report.killed_after_call += u64::from(dies && !before);
                dies
            };
            if dies(true) {
                die(&self.world).await;
            }
            park(&self.world).await;
            let answer = self.tell(&mut self.world.lock(), signed);
            park(&self.world).await;
            if dies(false) {
                die(&self.world).await;
            }
            answer
        })
    }

    fn status<'a>(&'a self, sent: &'a Sent) -> Answer<'a, Status> {
        Box::pin(self.call(move |world| self.status_of(world, sent)))
    }

    fn glimpse(&self, from: u64, to: u64) -> Answer<'_, Option<HashMap<TxHash, u64>>> {
        if self.kind != ChainKind::Tron {
            return Box::pin(std::future::ready(Ok(None)));
        }
        // One node's blocks, which may be of a branch that a quorum does not have.
        Box::pin(self.call(move |world| {
            let blocks = world.nets[self.net].truth.0.iter().filter(|block| (from..=to).contains(&block.height));
            let hashes = |block: &super::model::Block| {
                let height = block.height;
                block.transactions.iter().map(move |one| (one.hash, height)).collect::<Vec<_>>()
            };
            Ok(Some(blocks.into_iter().flat_map(|block| hashes(block)).collect()))
        }))
    }
}
