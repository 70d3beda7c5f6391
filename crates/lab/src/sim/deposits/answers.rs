//! What the nodes answer, and what a client may conclude from three of them. This is the contract of `chain::Chain`, kept by the
//! simplest means: the real clients have tests of their own.

use chain::endpoint::CallError;
use chain::{ChainError, Head, Header, Output, Place, Scan, Spend, WatchKey, Watched};
use domain::random::Random;
use domain::{ChainKind, RawAmount};
use tx::{Address, BlockRef, Coin, TxHash};

use super::model::{Block, Branch, Money, Transaction, bytes};
use super::net::{ChainBooks, Lie, NODES, Net, QUORUM, SimNode, Spec};
use super::report::Report;

fn nobody() -> ChainError {
    ChainError::Unreachable(CallError::Unreachable { endpoint: "nobody".to_owned() })
}

impl Net {
    fn up(&self) -> impl Iterator<Item = &SimNode> {
        self.nodes.iter().filter(|node| !node.down)
    }

    /// The highest block that enough nodes have reached.
    pub fn head(&self) -> Result<Head, ChainError> {
        let mut tips: Vec<Header> = self.up().map(|node| node.view.tip().header()).collect();
        tips.sort_by_key(|tip| std::cmp::Reverse(tip.height));
        let enough = QUORUM.min(tips.len());
        let reached = enough.checked_sub(1).and_then(|last| tips.get(last)).map(|tip| tip.height).ok_or_else(nobody)?;
        let there = || tips.iter().filter(|tip| tip.height == reached);
        let tip = there().max_by_key(|tip| there().filter(|other| other.hash == tip.hash).count());
        let settled = reached.checked_sub(self.spec.confirmations).filter(|_| tips.len() >= QUORUM);
        Ok(Head { tip: *tip.ok_or_else(nobody)?, settled })
    }

    /// What a quorum has at a height.
    fn quorum_at(&self, height: u64) -> Result<&Block, ChainError> {
        let votes: Vec<Option<&Block>> = self.up().map(|node| node.view.at(height).map(|block| &**block)).collect();
        let count = |vote: &Option<&Block>| votes.iter().filter(|other| *other == vote).count();
        let agreed = votes.iter().map(count).max().unwrap_or(0);
        if agreed < QUORUM {
            return Err(ChainError::NoQuorum { wanted: QUORUM, agreed });
        }
        let block = votes.iter().find(|vote| count(vote) == agreed).copied().flatten();
        block.ok_or(ChainError::BlockMissing { height })
    }

    pub fn headers(&self, heights: &[u64]) -> Result<Vec<Header>, ChainError> {
        heights.iter().map(|height| Ok(self.quorum_at(*height)?.header())).collect()
    }

    /// From one node, which may lie.
    pub fn scan(
        &mut self,
        (from, to): (u64, u64),
        watched: &Watched,
        random: &mut Random,
        report: &mut Report,
    ) -> Result<Scan, ChainError> {
        let first = random.index(NODES);
        let can = |node: &SimNode| !node.down && (from..=to).all(|height| node.view.at(height).is_some());
        let chosen = (0..NODES).map(|step| (first + step) % NODES).find(|at| can(&self.nodes[*at]));
        let chosen = chosen.ok_or(ChainError::BlockMissing { height: to })?;
        let node = &self.nodes[chosen];
        let blocks: Vec<_> = (from..=to).filter_map(|height| node.view.at(height)).cloned().collect();
        let mut scan = show(&self.spec, blocks.iter().map(|block| &**block), watched);
        scan.source.clone_from(&node.name);
        let lied = Liar { net: self, watched, random, report }.spoil(chosen, &mut scan);
        self.nodes[chosen].lied_at.extend(lied);
        Ok(scan)
    }

    /// What a quorum's headers prove. On TRON the receipts must be shown alike by two nodes that have the block.
    pub fn prove(&self, from: u64, to: u64, watched: &Watched) -> Result<Scan, ChainError> {
        let mut blocks = Vec::new();
        for height in from..=to {
            let block = self.quorum_at(height)?;
            if blocks.last().is_some_and(|before: &&Block| before.hash != block.parent) {
                return Err(ChainError::BlockMissing { height });
            }
            let honest = self.up().filter(|node| node.lie == Lie::Truth && node.view.has(block.at())).count();
            let enough = match self.spec.kind {
                ChainKind::Tron => QUORUM,
                ChainKind::Evm | ChainKind::Bitcoin => 1,
            };
            if honest < enough {
                return Err(ChainError::BlockNotProven {
                    height,
                    why: "the nodes that have it do not agree".to_owned(),
                });
            }
            blocks.push(block);
        }
        let mut scan = show(&self.spec, blocks.into_iter(), watched);
        "quorum".clone_into(&mut scan.source);
        Ok(scan)
    }
}

impl Net {
    /// Balances at a block, by a quorum. On TRON only the newest block and the solidified one have a state.
    pub fn balances_at(
        &self,
        wanted: &[(Address, Coin)],
        near: BlockRef,
    ) -> Result<(BlockRef, Vec<RawAmount>), ChainError> {
        let honest = || self.up().filter(|node| node.lie == Lie::Truth);
        let at = match self.spec.kind {
            // A block is solidified there as soon as it is deep enough to be credited.
            ChainKind::Tron => {
                let solid =
                    self.head()?.tip.height.saturating_sub(self.spec.confirmations - 1).max(self.truth.lowest());
                self.quorum_at(solid)?.at()
            }
            ChainKind::Evm | ChainKind::Bitcoin => near,
        };
        let have: Vec<&SimNode> = honest().filter(|node| node.view.has(at)).collect();
        let Some(node) = have.first().filter(|_| have.len() >= QUORUM) else {
            return Err(ChainError::NoQuorum { wanted: QUORUM, agreed: have.len() });
        };
        let state = self.state_at(&node.view, at.height);
        let money = |coin: &Coin| match coin {
            Coin::Native => Money::Native,
            Coin::Token(contract) if *contract == self.spec.hollow => Money::Hollow,
            Coin::Token(_) => Money::Token,
        };
        let of = |(address, coin): &(Address, Coin)| {
            let key = (address.clone(), money(coin));
            let now = self.books.balances.get(&key).copied().unwrap_or_default();
            now.plus(state.balances.get(&key).copied().unwrap_or_default()).to_raw().unwrap_or_default()
        };
        Ok((at, wanted.iter().map(of).collect()))
    }

    /// What is different at a block of a branch from what the chain has now.
    fn state_at(&self, view: &Branch, height: u64) -> ChainBooks {
        let mut difference = ChainBooks::default();
        let fork = self.truth.fork_with(view).min(height);
        for block in self.truth.above(fork) {
            for transaction in &block.transactions {
                difference.add(&self.owners.effects(transaction), &self.spec.unit, -1);
            }
        }
        for block in view.above(fork).take_while(|block| block.height <= height) {
            for transaction in &block.transactions {
                difference.add(&self.owners.effects(transaction), &self.spec.unit, 1);
            }
        }
        difference
    }
}

pub(crate) fn coin(spec: &Spec, money: Money) -> Coin {
    match money {
        Money::Native => Coin::Native,
        Money::Token => Coin::Token(spec.token.clone()),
        Money::Air => Coin::Token(spec.air.clone()),
        Money::Hollow => Coin::Token(spec.hollow.clone()),
    }
}

/// Blocks as an honest node shows them.
fn show<'a>(spec: &Spec, blocks: impl Iterator<Item = &'a Block>, watched: &Watched) -> Scan {
    let mut scan = Scan::default();
    for block in blocks {
        scan.headers.push(block.header());
        for transaction in &block.transactions {
            let (outputs, spends) = told(spec, block.at(), transaction, watched);
            scan.outputs.extend(outputs);
            scan.spends.extend(spends);
        }
    }
    scan
}

fn told(spec: &Spec, block: BlockRef, transaction: &Transaction, watched: &Watched) -> (Vec<Output>, Vec<Spend>) {
    let (hash, ok) = (transaction.hash, transaction.ok);
    let (mut outputs, mut spends) = (Vec::new(), Vec::new());
    for one in &transaction.moves {
        let coin = || coin(spec, one.money);
        if let Some(number) = watched.find(&WatchKey::of(&one.to)) {
            outputs.push(Output {
                block,
                transaction: hash,
                place: one.place,
                watched: number,
                to: one.to.clone(),
                coin: coin(),
                amount: one.raw,
                ok,
                coinbase: false,
            });
        }
        if let Some(number) = watched.find(&WatchKey::of(&one.from)).filter(|_| ok) {
            spends.push(Spend {
                block,
                transaction: hash,
                place: one.place,
                watched: number,
                from: one.from.clone(),
                to: Some(one.to.clone()),
                coin: coin(),
                amount: one.raw,
                ok,
            });
        }
    }
    let payer = watched.find(&WatchKey::of(&transaction.sender)).filter(|_| transaction.fee > RawAmount::ZERO);
    if let Some(number) = payer {
        let from = transaction.sender.clone();
        let (place, coin, amount) = (Place::Fee, Coin::Native, transaction.fee);
        spends.push(Spend { block, transaction: hash, place, watched: number, from, to: None, coin, amount, ok });
    }
    (outputs, spends)
}

/// A node that shows something else than its blocks have.
struct Liar<'a> {
    net: &'a Net,
    watched: &'a Watched,
    random: &'a mut Random,
    report: &'a mut Report,
}

impl Liar<'_> {
    /// Gives the heights that it lied about.
    fn spoil(mut self, node: usize, scan: &mut Scan) -> Vec<u64> {
        match self.net.nodes[node].lie {
            Lie::Truth | Lie::Forks => Vec::new(),
            Lie::LeavesOut => self.leave_out(scan),
            Lie::Inflates => self.inflate(scan),
            Lie::Invents => self.invent(scan),
            Lie::Misplaces => self.misplace(scan),
        }
    }

    fn leave_out(&mut self, scan: &mut Scan) -> Vec<u64> {
        let mut heights = Vec::new();
        let random = &mut *self.random;
        let mut keeps = |height: u64| {
            let keeps = random.below(2) == 0;
            if !keeps {
                heights.push(height);
            }
            keeps
        };
        scan.outputs.retain(|output| keeps(output.block.height));
        scan.spends.retain(|spend| keeps(spend.block.height));
        self.report.lies_left_out += heights.len() as u64;
        heights
    }

    fn inflate(&mut self, scan: &mut Scan) -> Vec<u64> {
        let mut heights = Vec::new();
        for output in &mut scan.outputs {
            if let Some(more) = output.amount.checked_add(output.amount).filter(|_| self.random.below(2) == 0) {
                output.amount = more;
                heights.push(output.block.height);
            }
        }
        self.report.lies_inflated += heights.len() as u64;
        heights
    }

    fn block_of(&mut self, scan: &Scan) -> Option<BlockRef> {
        scan.headers.get(self.random.index(scan.headers.len())).map(|header| header.at())
    }

    fn invent(&mut self, scan: &mut Scan) -> Vec<u64> {
        let (Some(block), users) = (self.block_of(scan), &self.net.owners.users) else { return Vec::new() };
        let Some(to) = users.get(self.random.index(users.len())).cloned() else { return Vec::new() };
        let Some(number) = self.watched.find(&WatchKey::of(&to)) else { return Vec::new() };
        let unit = self.net.spec.unit.get(&Money::Token).copied().unwrap_or(1);
        let raw = u128::from(10 + self.random.below(1_000)) * unit;
        scan.outputs.push(Output {
            block,
            transaction: TxHash(bytes(self.random)),
            place: Place::Log(0),
            watched: number,
            to,
            coin: coin(&self.net.spec, Money::Token),
            amount: raw.to_string().parse().unwrap_or_default(),
            ok: true,
            coinbase: false,
        });
        self.report.lies_invented += 1;
        vec![block.height]
    }

    /// A payment is shown in another block than its own; or one that waits, or that comes later, is shown in a block.
    fn misplace(&mut self, scan: &mut Scan) -> Vec<u64> {
        let Some(block) = self.block_of(scan) else { return Vec::new() };
        let shown: Vec<(TxHash, u64)> = scan.outputs.iter().map(|one| (one.transaction, one.block.height)).collect();
        let chosen = shown.get(self.random.index(shown.len())).filter(|(_, height)| *height != block.height);
        if let Some((hash, height)) = chosen.copied().filter(|_| self.random.below(3) != 0) {
            let outputs = scan.outputs.iter_mut().filter(|one| one.transaction == hash).map(|one| &mut one.block);
            let spends = scan.spends.iter_mut().filter(|one| one.transaction == hash).map(|one| &mut one.block);
            outputs.chain(spends).for_each(|shown| *shown = block);
            self.report.lies_misplaced += 1;
            return vec![height, block.height];
        }
        let waiting = &self.net.waiting;
        let later = self.net.truth.above(block.height).take(4).find_map(|block| block.transactions.first());
        let found = if self.random.below(2) == 0 { later } else { waiting.get(self.random.index(waiting.len())) };
        let known = |hash: TxHash| shown.iter().any(|(other, _)| *other == hash);
        let Some(found) = found.filter(|found| !known(found.hash)) else { return Vec::new() };
        if scan.spends.iter().any(|spend| spend.transaction == found.hash) {
            return Vec::new();
        }
        let (outputs, spends) = told(&self.net.spec, block, found, self.watched);
        if outputs.is_empty() && spends.is_empty() {
            return Vec::new();
        }
        scan.outputs.extend(outputs);
        scan.spends.extend(spends);
        self.report.lies_misplaced += 1;
        vec![block.height]
    }
}
