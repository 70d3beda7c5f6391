"""Deposits, payouts, replacements, what leaves the mempools and comes back."""

from . import plot
from ..bitcoin import LEAST_REWARD, STRANGER
from ..program import CommandFailed


def foreign(w, amount_of=0.9):
    """A stranger pays a stranger."""
    coin = w.stranger_coin()
    return w.make([coin], [(int(w.amount(coin) * amount_of), STRANGER)], 1_000)


def bumped(w, old, outputs, change=STRANGER, inputs=None):
    """Spends what another spends, for so much more that every node takes it instead."""
    evicted = w.fee_of(old)
    for tx in w.mempool():
        if any(parent == old.txid for parent, _ in tx.inputs):
            evicted += w.fee_of(tx)
    return w.make(inputs or old.inputs, outputs, evicted + 5_000 + len(old.raw) * 20, change)


def take(w, wallet, coins, time_text="5m"):
    words = [f"{txid}:{index}" for txid, index in coins]
    try:
        lock = w.program.run("utxo", "lease", "take", wallet, *words, "--new-lock", "--for", time_text)["lock"]
    except CommandFailed:
        # The program may see such a coin otherwise until it is brought to rest.
        return None
    w.counts["leases"] += 1
    return lock


# ---- deposits ----------------------------------------------------------------------------------------------------------

@plot("deposit", "deposits")
def deposit(w):
    """A stranger pays us."""
    if w.send(w.pays_us([w.stranger_coin()])):
        w.counts["deposits"] += 1
        yield "a deposit waits"


@plot("deposit-chain", "deposits with a waiting parent")
def deposit_chain(w):
    """A deposit whose foreign parent waits too; both are mined, or the parent first."""
    parent = foreign(w)
    child = w.pays_us([parent.outpoint(0)])
    if not (w.send(parent) and w.send(child)):
        return
    w.counts["deposits with a waiting parent"] += 1
    yield "a deposit whose parent waits"
    w.mine([parent])
    yield "its parent is mined"
    w.mine([child])
    yield "it is mined"


@plot("parent-replaced", "foreign parents replaced")
def parent_replaced(w):
    """D spends G:0 and pays us; G' replaces G and is mined. Our own child of D and X keeps X locked until D has ended."""
    grand = foreign(w)
    gift = w.pays_us([grand.outpoint(0)])
    x = w.our_coin(50_000)
    if not (w.send(grand) and w.send(gift)):
        return
    yield "D waits, which spends G:0"
    child = None
    if x and w.ledger.unspent(x):
        paid = next(index for index, (_, script) in enumerate(gift.outputs) if script in w.watched)
        child = w.make([gift.outpoint(paid), x], [(10_000, STRANGER)], 2_000, w.some_key().script)
        if not w.send(child):
            child = None
        yield "a child of ours spends D and our X"
    rival = w.make(grand.inputs, [], w.fee_of(grand) + w.fee_of(gift) + (w.fee_of(child) if child else 0) + 40_000)
    if w.random.random() < 0.7:
        w.send(rival)
        yield "G' replaces G in the mempools"
    w.mine([rival])
    if rival.txid not in w.ledger.height_of:
        return
    w.counts["foreign parents replaced"] += 1
    yield "G' is mined"
    for _ in range(10):
        w.mine()
    yield "ten blocks on: D has ended, X is free"
    if w.random.random() < 0.3 and w.room() > 30:
        depth = w.main.height - w.ledger.height_of.get(rival.txid, w.main.height) + 1
        if depth < min(40, w.room()):
            w.reorg(depth, keep=0, first=[grand, gift, *([child] if child else [])])
            w.counts["short reorganisations"] += 1
            yield "the chain brings G and D back"


@plot("parent-orphaned", "foreign coinbases orphaned under a deposit")
def parent_orphaned(w):
    """D spends G:0, G spends a foreign coinbase, and the coinbase's block is undone."""
    if w.room() < 125:
        return
    reward = next(block for block in (w.main.ancestor(w.main.height - depth) for depth in range(100, 110))
                  if block.coinbase.outputs[0][1] == STRANGER)
    if not w.ledger.unspent(reward.coinbase.outpoint(0)) or reward.coinbase.outpoint(0) in w.reserved:
        return
    if reward.coinbase.outputs[0][0] < LEAST_REWARD:
        return
    w.reserved.add(reward.coinbase.outpoint(0))
    grand = w.make([reward.coinbase.outpoint(0)], [], 1_000)
    gift = w.pays_us([grand.outpoint(0)])
    if not (w.send(grand) and w.send(gift)):
        return
    yield "D waits above a foreign coinbase"
    depth = w.main.height - reward.height + 2
    if depth > w.room():
        return
    w.reorg(depth)
    w.counts["foreign coinbases orphaned under a deposit"] += 1
    w.counts["deep reorganisations"] += 1
    yield "the coinbase's block is gone"
    for _ in range(10):
        w.mine()
    yield "ten blocks on: D has ended"


@plot("deposit-replaced", "replaced by strangers")
def deposit_replaced(w):
    """The sender replaces a deposit: by one that pays us otherwise, or not at all."""
    old = w.pays_us([w.stranger_coin()])
    if not w.send(old):
        return
    yield "a deposit waits"
    if not w.waits(old):
        return
    pays = [(30_000, w.some_key().script)] if w.random.random() < 0.5 else []
    new = bumped(w, old, pays)
    if w.send(new) == 0:
        return
    w.counts["replaced by strangers"] += 1
    yield "its sender has replaced it"
    if w.random.random() < 0.5:
        w.mine([old] if w.random.random() < 0.3 else [new])
        yield "one of the two is mined"


@plot("double-spend", "double spends mined")
def double_spend(w):
    """A block has another spender of a deposit's input, which no mempool has shown."""
    gift = w.pays_us([w.stranger_coin()])
    if not w.send(gift):
        return
    yield "a deposit waits"
    other = w.make(gift.inputs, [], 9_000) if w.random.random() < 0.6 else w.pays_us(gift.inputs, 1, 9_000)
    w.mine([other])
    if other.txid not in w.ledger.height_of:
        return
    w.counts["double spends mined"] += 1
    yield "a block has its rival"


# ---- what we pay -------------------------------------------------------------------------------------------------------

@plot("payout", "payouts")
def payout(w):
    """Our coins pay strangers, and the change comes back."""
    coins = [coin for coin in (w.our_coin() for _ in range(w.random.randint(1, 3))) if coin]
    if not coins:
        return
    lock = None
    if w.random.random() < 0.5:
        wallets = {w.watched[w.all[txid].outputs[index][1]].wallet for txid, index in coins}
        if len(wallets) == 1 and not any(follower.runs() for follower in w.followers):
            lock = take(w, wallets.pop(), coins)
    total = sum(map(w.amount, coins))
    change = w.some_key().script if w.random.random() < 0.8 else None
    paid = int(total * w.random.uniform(0.1, 0.8)) if change else total - 3_000
    tx = w.make(coins, [(paid, STRANGER)], w.random.randint(500, 3_000), change)
    if not w.send(tx):
        return
    w.counts["payouts"] += 1
    yield f"a payout waits{' under a lease' if lock else ''}"
    if change and w.random.random() < 0.6 and w.waits(tx):
        more = w.make([tx.outpoint(1)], [(w.amount(tx.outpoint(1)) // 3, STRANGER)], 1_500, w.some_key().script) \
            if w.amount(tx.outpoint(1)) > 20_000 else None
        if more and w.send(more):
            w.counts["payouts from unconfirmed change"] += 1
            yield "a payout from its change"


@plot("payout-replaced", "replaced by us")
def payout_replaced(w):
    """We replace our own payout by a higher fee, once or twice."""
    coin = w.our_coin(200_000)
    if not coin:
        return
    old = w.make([coin], [(w.amount(coin) // 3, STRANGER)], 800, w.some_key().script)
    if not w.send(old):
        return
    yield "a payout waits"
    for _ in range(w.random.randint(1, 2)):
        if not w.waits(old):
            return
        new = bumped(w, old, [old.outputs[0]], old.outputs[1][1])
        if not w.send(new):
            return
        w.counts["replaced by us"] += 1
        old = new
        yield "it is replaced by a higher fee"
    w.mine([old])
    yield "the last one is mined"


@plot("dropped-input", "replacements that drop an input")
def dropped_input(w):
    """T spends A and B; T', made elsewhere, spends A only. While T' is not deep, a miner may still take T."""
    coins = [w.our_coin(100_000), w.our_coin(100_000)]
    if not all(coins):
        return
    old = w.make(coins, [(sum(map(w.amount, coins)) // 2, STRANGER)], 800, w.some_key().script)
    if not w.send(old):
        return
    yield "T waits, which spends A and B"
    if not w.waits(old):
        return
    new = w.make(coins[:1], [(w.amount(coins[0]) // 2, STRANGER)], w.fee_of(old) + 20_000, w.some_key().script)
    if not w.send(new):
        return
    w.counts["replacements that drop an input"] += 1
    yield "T' replaces it, and spends A only"
    if w.settings.case:
        w.must_refuse_lease(coins[1], "B looks free, though T can still be mined")
    w.mine([w.random.choice([old, new])])
    yield "one of the two is mined"


@plot("spend-waiting", "payouts from a waiting deposit")
def spend_waiting(w):
    """Our payout spends a deposit that waits; the sender replaces the deposit."""
    gift = w.pays_us([w.stranger_coin()], 1)
    if not w.send(gift):
        return
    yield "a deposit waits"
    if not w.waits(gift):
        return
    child = w.make([gift.outpoint(0)], [(w.amount(gift.outpoint(0)) // 2, STRANGER)], 1_200, w.some_key().script)
    if not w.send(child):
        return
    w.counts["payouts from a waiting deposit"] += 1
    yield "a payout spends it"
    if not w.waits(gift):
        return
    rival = bumped(w, gift, [])
    if w.send(rival):
        w.counts["replaced by strangers"] += 1
    yield "the deposit is replaced"
    if w.random.random() < 0.5:
        w.mine([gift, child])
        yield "a miner takes the deposit and the payout all the same"


# ---- mempools ----------------------------------------------------------------------------------------------------------

@plot("vanish", "vanished from the mempools", "came back")
def vanish(w):
    """A transaction leaves the mempools and comes back, through a mempool or a block."""
    coin = w.our_coin(100_000) if w.random.random() < 0.5 else None
    tx = w.make([coin], [(w.amount(coin) // 2, STRANGER)], 900, w.some_key().script) if coin \
        else w.pays_us([w.stranger_coin()])
    if not w.send(tx):
        return
    yield "a transaction waits"
    if not w.waits(tx):
        return
    w.vanish([tx])
    if w.waits(tx):
        return
    w.counts["vanished from the mempools"] += 1
    yield "it has left the mempools"
    if w.random.random() < 0.5:
        if not w.send(tx):
            return
    else:
        w.mine([tx])
        if tx.txid not in w.ledger.height_of:
            return
    w.counts["came back"] += 1
    yield "it is back"


@plot("replaced-and-back", "replaced and back")
def replaced_and_back(w):
    """T is replaced by T'; T' leaves the mempools, and T is there again, with a child."""
    ours = w.our_coin(200_000)
    if ours and (w.settings.case or w.random.random() < 0.6):
        old = w.make([ours], [(w.amount(ours) // 3, STRANGER)], 800, w.some_key().script)
    else:
        ours, old = None, w.pays_us([w.stranger_coin()], 1)
    if not w.send(old):
        return
    yield "T waits"
    if not w.waits(old):
        return
    new = bumped(w, old, [old.outputs[0]] if w.random.random() < 0.5 else [(20_000, STRANGER)], w.some_key().script)
    if not w.send(new):
        return
    yield "T' replaces it"
    if not w.waits(new):
        return
    w.vanish([new])
    if not w.send(old) or not w.waits(old):
        return
    w.counts["replaced and back"] += 1
    yield "T' is gone, T waits again"
    if ours and w.waits(old):
        more = w.make([old.outpoint(1)], [(w.amount(old.outpoint(1)) // 3, STRANGER)], 1_500, w.some_key().script)
        if w.send(more):
            yield "and has a child"


@plot("split-mempools", "mempools that disagree")
def split_mempools(w):
    """Two rivals, each at other nodes; a quorum has the first, or none."""
    coin = w.stranger_coin()
    one, other = w.pays_us([coin]), w.pays_us([coin], fee=700)
    order = w.random.sample(w.nodes, len(w.nodes))
    sent = w.send(one, order[:2]) + w.send(other, order[2:])
    if sent < 2:
        return
    w.counts["mempools that disagree"] += 1
    yield "one node has another deposit than two"
    w.mine([w.random.choice([one, other])])
    yield "one of them is mined"


@plot("two-of-three", "deposits that one node lacks")
def two_of_three(w):
    """A deposit waits at two nodes; the third, whichever it is, has never heard of it."""
    for node in w.nodes * (4 if w.settings.case else 1):
        gift = w.pays_us([w.stranger_coin()])
        if w.send(gift, [other for other in w.nodes if other is not node]) == 2:
            w.counts["deposits that one node lacks"] += 1
        yield f"{node.name} lacks a deposit"
