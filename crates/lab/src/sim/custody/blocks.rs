//! What nodes show of blocks on EVM and TRON: payments to watched addresses, what left them, and balances at a block. (Nodes that lie about this
//! are simulated by `bursar sim deposits`.)

use std::collections::HashMap;

use chain::{ChainError, Output, Place, Scan, Spend, WatchKey, Watched};
use domain::random::Random;
use domain::{ChainKind, RawAmount};
use tx::{Address, BlockRef, Coin};

use super::model::{Block, Branch, Mined, NODES, Net, SimNode, raw, units};

impl Branch {
    fn lowest(&self) -> u64 {
        self.0.first().map_or(0, |block| block.height)
    }

    /// The newest block that both have.
    fn fork_with(&self, other: &Self) -> Option<u64> {
        let mut height = self.tip().height.min(other.tip().height);
        while self.at(height).map(|block| block.hash) != other.at(height).map(|block| block.hash) {
            height = height.checked_sub(1).filter(|height| *height >= self.lowest())?;
        }
        Some(height)
    }
}

impl Net {
    /// One node's word.
    pub fn scan(&self, (from, to): (u64, u64), watched: &Watched, random: &mut Random) -> Result<Scan, ChainError> {
        let first = random.index(NODES);
        let can = |node: &&SimNode| !node.down && (from..=to).all(|height| node.view.at(height).is_some());
        let nodes = (0..NODES).filter_map(|step| self.nodes.get((first + step) % NODES));
        let node = nodes.into_iter().find(can).ok_or(ChainError::BlockMissing { height: to })?;
        let mut scan = show((from..=to).filter_map(|height| node.view.at(height)).map(|block| &**block), watched);
        "a simulated node".clone_into(&mut scan.source);
        Ok(scan)
    }

    /// What a quorum has.
    pub fn prove(&self, agreed: &Branch, (from, to): (u64, u64), watched: &Watched) -> Result<Scan, ChainError> {
        let mut blocks = Vec::new();
        for height in from..=to {
            blocks.push(&**agreed.at(height).ok_or(ChainError::BlockMissing { height })?);
        }
        let mut scan = show(blocks.into_iter(), watched);
        "quorum".clone_into(&mut scan.source);
        Ok(scan)
    }

    /// Balances at a block, by a quorum. On TRON only the newest block and the solidified one have a state.
    pub fn balances_at(
        &self,
        (kind, agreed): (ChainKind, &Branch),
        wanted: &[(Address, Coin)],
        near: BlockRef,
    ) -> Result<(BlockRef, Vec<RawAmount>), ChainError> {
        let at = match kind {
            ChainKind::Tron => {
                let height = agreed.tip().height.saturating_sub(self.confirmations - 1).max(agreed.lowest());
                agreed.at(height).ok_or(ChainError::BlockMissing { height })?.at()
            }
            ChainKind::Evm | ChainKind::Bitcoin => near,
        };
        let missing = ChainError::BlockMissing { height: at.height };
        if !agreed.has(at) {
            return Err(missing);
        }
        let fork = self.truth.fork_with(agreed).ok_or(missing)?.min(at.height);
        let mut changes: HashMap<(&Address, bool), i128> = HashMap::new();
        let (undone, done) = (self.truth.0.iter(), agreed.0.iter());
        let undone = undone.filter(|block| block.height > fork).map(|block| (block, -1));
        let done = done.filter(|block| block.height > fork && block.height <= at.height).map(|block| (block, 1));
        for (block, sign) in undone.chain(done) {
            for (address, native, change) in block.transactions.iter().flat_map(|one| self.effects(one)) {
                *changes.entry((address, native)).or_default() += sign * change;
            }
        }
        let of = |(address, coin): &(Address, Coin)| {
            let native = *coin == Coin::Native;
            let purse = self.purses.get(address).copied().unwrap_or_default();
            let now = if native { purse.native } else { purse.token };
            let change = changes.get(&(address, native)).copied().unwrap_or(0);
            raw(now.saturating_add_signed(change))
        };
        Ok((at, wanted.iter().map(of).collect()))
    }
}

fn show<'a>(blocks: impl Iterator<Item = &'a Block>, watched: &Watched) -> Scan {
    let mut scan = Scan::default();
    for block in blocks {
        scan.headers.push(block.header());
        block.transactions.iter().for_each(|one| told(block.at(), one, watched, &mut scan));
    }
    scan
}

fn told(block: BlockRef, one: &Mined, watched: &Watched, scan: &mut Scan) {
    let (transaction, ok) = (one.hash, one.ok);
    let number = |address: &Address| watched.find(&WatchKey::of(address));
    for payment in one.meaning.payments.iter().filter(|payment| units(payment.amount) > 0) {
        let place = if payment.coin == Coin::Native { Place::Value } else { Place::Log(0) };
        let (to, coin, amount) = (payment.to.clone(), payment.coin.clone(), payment.amount);
        if let Some(watched) = number(&one.from).filter(|_| ok) {
            let (from, to, coin) = (one.from.clone(), Some(to.clone()), coin.clone());
            scan.spends.push(Spend { block, transaction, place, watched, from, to, coin, amount, ok });
        }
        // A call of a token that reverts leaves no log.
        if let Some(watched) = number(&to).filter(|_| ok || place == Place::Value) {
            scan.outputs.push(Output { block, transaction, place, watched, to, coin, amount, ok, coinbase: false });
        }
    }
    if let Some(watched) = number(&one.from).filter(|_| one.fee > 0) {
        let (place, from, amount) = (Place::Fee, one.from.clone(), raw(one.fee));
        scan.spends.push(Spend { block, transaction, place, watched, from, to: None, coin: Coin::Native, amount, ok });
    }
}
