"""Blocks, reorganisations, coinbases, nodes that lag or go astray."""

import time

from . import plot
from ..bitcoin import LEAST_REWARD, STRANGER


# ---- blocks ------------------------------------------------------------------------------------------------------------

@plot("blocks", "blocks")
def blocks(w):
    """A few blocks with all, some or none of what waits; some pay us."""
    for _ in range(w.random.randint(1, 4)):
        share = w.random.choice([0, 0.5, 1, 1])
        chosen = [tx for tx in w.mempool() if w.random.random() < share]
        w.mine(chosen, w.some_key().script if w.random.random() < 0.25 else None)
        w.counts["blocks"] += 1
    yield f"blocks up to {w.main.height}"


@plot("odd-block", "blocks that nobody expected")
def odd_block(w):
    """A block has transactions that were replaced, have vanished, or wait."""
    candidates = [tx for tx in w.all.values() if not tx.coinbase and w.ledger.fits(tx)]
    known = [tx for tx in candidates if any(script in w.watched for _, script in tx.outputs)
             or any(w.all[txid].outputs[index][1] in w.watched for txid, index in tx.inputs)]
    waiting, _ = w.waiting()
    chosen = [tx for tx in known if tx.txid not in waiting]
    if not chosen:
        chosen = [w.pays_us([w.stranger_coin()])]
    w.mine(w.random.sample(chosen, min(len(chosen), w.random.randint(1, 3))))
    w.counts["blocks that nobody expected"] += 1
    yield "a block with what no mempool has"


@plot("reorg", "short reorganisations")
def reorg(w):
    """The newest blocks give way to others."""
    depth = w.random.randint(1, 8)
    if depth > w.room():
        return
    old = w.reorg(depth, w.random.choice([0, 0.5, 1]))
    w.counts["short reorganisations"] += 1
    yield f"{depth} blocks are others"
    if w.random.random() < 0.4 and w.back_to(old):
        w.counts["branches that won again"] += 1
        yield "the first branch wins"


@plot("own-after-reorg", "payouts from a deposit that a reorganisation undid")
def own_after_reorg(w):
    """A payout spends a deposit that a block has; the block is undone. A stranger may take the deposit back: the payout's
    change is not our own any more."""
    gift = w.pays_us([w.stranger_coin()], 1)
    w.mine([gift])
    if w.amount(gift.outpoint(0)) < 50_000:
        return
    yield "a deposit is in a block"
    if gift.txid not in w.ledger.height_of or gift.outpoint(0) in w.ledger.spender:
        return
    tx = w.make([gift.outpoint(0)], [(w.amount(gift.outpoint(0)) // 3, STRANGER)], 1_000, w.some_key().script)
    if not w.send(tx):
        return
    yield "a payout spends it"
    depth = w.main.height - w.ledger.height_of.get(gift.txid, 0) + 1
    if depth > min(20, w.room()):
        return
    w.reorg(depth, keep=0)
    w.send(gift)
    w.send(tx)
    w.counts["payouts from a deposit that a reorganisation undid"] += 1
    w.counts["short reorganisations"] += 1
    yield "the deposit waits again"


@plot("deep-reorg", "deep reorganisations")
def deep_reorg(w):
    """Up to 150 blocks give way to others."""
    if w.room() < 60:
        return
    depth = w.random.randint(w.room() // 2, w.room())
    w.reorg(depth, w.random.choice([0, 0.5, 1]))
    w.counts["deep reorganisations"] += 1
    yield f"{depth} blocks are others"


@plot("coinbase-orphaned", "coinbases of ours orphaned")
def coinbase_orphaned(w):
    """A block pays its reward to us, and is undone; perhaps it comes back."""
    block = w.mine(to=w.some_key().script)
    w.mine(w.mempool())
    yield "a coinbase pays us"
    depth = w.main.height - block.height + 1
    if depth > w.room() or w.main.ancestor(block.height) is not block:
        return
    old = w.reorg(depth)
    w.counts["coinbases of ours orphaned"] += 1
    yield "its block is gone"
    if w.random.random() < 0.4 and w.back_to(old):
        w.counts["branches that won again"] += 1
        yield "its block is back"


@plot("spent-coinbase-orphaned", "spent coinbases of ours orphaned")
def spent_coinbase_orphaned(w):
    """A coinbase of ours is mature and spent; then its block is undone, with all that built on it."""
    mine = [txid for txid, height in w.ledger.height_of.items()
            if w.all[txid].coinbase and w.all[txid].outputs[0][1] in w.watched and w.main.height - height >= 99
            and w.ledger.unspent((txid, 0)) and w.main.height - height + 3 < w.room() and (txid, 0) not in w.reserved
            and w.amount((txid, 0)) >= LEAST_REWARD]
    if not mine:
        return
    coin = (w.random.choice(sorted(mine)), 0)
    w.reserved.add(coin)
    fund = w.our_coin(50_000) if w.random.random() < 0.5 else None
    spender = w.make([coin, *([fund] if fund else [])], [(w.amount(coin) // 2, STRANGER)], 1_000, w.some_key().script)
    if not w.send(spender):
        return
    if w.random.random() < 0.5:
        w.mine([spender])
    yield "a mature coinbase of ours is spent"
    if coin[0] not in w.ledger.height_of:
        return
    depth = w.main.height - w.ledger.height_of[coin[0]] + 1
    if depth > w.room():
        return
    w.reorg(depth, keep=1)
    w.counts["spent coinbases of ours orphaned"] += 1
    w.counts["deep reorganisations"] += 1
    yield "its block is gone"


# ---- nodes -------------------------------------------------------------------------------------------------------------

@plot("lag", "a node lagged")
def lag(w):
    """One of three nodes does not get its blocks for a while."""
    if w.absent():
        return
    node = w.random.choice(w.nodes)
    w.lag(node)
    for _ in range(w.random.randint(1, 6)):
        w.mine(w.mempool())
    w.counts["a node lagged"] += 1
    yield f"{node.name} lags"


@plot("own-branch", "a node was on its own branch")
def own_branch(w):
    """One of three nodes is on a longer branch of its own; it comes back, or the others go there."""
    if len(w.absent()) > 1 or w.room() < 12:
        return
    node = w.random.choice([node for node in w.nodes if not w.away[node.name]])
    tip = w.own_branch(node, w.random.randint(1, 8), w.mempool()[:5] if w.random.random() < 0.5 else [])
    w.counts["a node was on its own branch"] += 1
    yield f"{node.name} is on its own branch"
    depth = w.main.height - next(height for height in range(w.main.height, 0, -1)
                                 if tip.ancestor(height) is w.main.ancestor(height))
    if w.away[node.name] == "own" and w.random.random() < 0.4 and tip.height > w.main.height and depth <= w.room():
        w.ledger.move(tip)
        w.main, w.away[node.name] = tip, None
        w.deliver()
        w.counts["a branch of one node won"] += 1
        yield "the others have followed it"


@plot("node-restart", "nodes restarted")
def node_restart(w):
    """A node is killed and started again, with an empty mempool."""
    node = w.random.choice(w.nodes)
    waiting = node.mempool()
    node.stop()
    time.sleep(w.random.uniform(0, 0.5))
    node.start()
    w.deliver()
    w.counts["nodes restarted"] += 1
    if w.random.random() < 0.5:
        for txid in waiting:
            node.offer(w.all[txid])
    yield f"{node.name} was restarted"
