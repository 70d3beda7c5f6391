"""What becomes of real nodes: anvil and Bitcoin Core go back in time, lag, lie together; blocks with credits leave the chain."""

import time

from . import any_user, plot
from .usual import several

DEEP = 20
FAR_BEHIND = 50


def real_chains(world):
    return [chain for chain in world.chains if hasattr(chain, "save")]


def may_reorganise(chain, depth):
    height, _ = chain.tip()
    return height - chain.lowest() > depth and height <= getattr(chain, "highest", height)


def pay_and_mine(world, chain, blocks):
    """A payment in each of so many blocks."""
    for _ in range(blocks):
        world.pay(chain, any_user(world))
        chain.mine(1)


def credited(world, chain):
    return world.program.rows(f"""SELECT COUNT(*) AS many FROM deposits d JOIN chains c ON c.id = d.chain_id
        WHERE c.name = '{chain.name}' AND d.state IN ('credited', 'final')""")[0]["many"]


def wait_for_credits(world, chain, more_than):
    """So that what follows is about credits."""
    world.wait_until(f"more than {more_than} deposits on {chain.name} are credited", lambda: credited(world, chain) > more_than)


def pay_until_credited(world, chain, blocks):
    before = credited(world, chain)
    world.pay(chain, any_user(world), "coin", 5 * chain.coins["coin"].least)
    pay_and_mine(world, chain, blocks)
    wait_for_credits(world, chain, before)


def wait_until_level(world, chain):
    """Without any help: no worker is started, and no lease passes."""
    world.wait_until(f"all of {chain.name} is proven, with all nodes well", lambda: not world.oracle.standing(chain))


@plot(2, times=2)
def dead_node(world):
    """One of three nodes is killed while payments come, and is started again when all are healed."""
    well = [chain for chain in real_chains(world) if chain.name not in world.unwell]
    if not well:
        return several(world)
    chain, number = world.random.choice(well), world.random.randrange(3)
    chain.kill(number)
    world.unwell[chain.name] = number
    world.counts["nodes unwell"] += 1
    pay_and_mine(world, chain, world.random.randint(1, 4))
    return f"{chain.name}-{number} is dead"


@plot(0, times=1)
def deep_reorg(world):
    """Twenty blocks with credited deposits in them are others: once the payments move, once they are gone, once they wait again."""
    chains = real_chains(world) or world.chains[:1]
    for fate in ("moved", "dropped", "returned"):
        for chain in chains:
            depth = min(DEEP, chain.deepest)
            pay_until_credited(world, chain, depth)
            if may_reorganise(chain, depth):
                chain.reorg(depth, fate)
                world.counts["reorganisations"] += 1
        world.rest()
        world.agree()
    return f"{DEEP} blocks of {', '.join(chain.name for chain in chains)} are others, three times"


@plot(0, times=1)
def older_state(world):
    """All nodes of a chain are killed and begin again from an older state: credited deposits are gone. Others come instead."""
    chains = real_chains(world)
    if not chains:
        return several(world)
    world.heal()
    for chain in chains:
        state = chain.save()
        height, _ = chain.tip()
        pay_until_credited(world, chain, DEEP)
        chain.restart(state)
        world.counts["nodes put back"] += 1
        # The chain is shorter than it was, and some of its blocks are others.
        pay_and_mine(world, chain, 3)
        time.sleep(1)
        pay_and_mine(world, chain, DEEP)
        world.note(f"{chain.name} began again at block {height}")
    world.rest()
    world.agree()
    return f"{', '.join(chain.name for chain in chains)} began again at older blocks"


@plot(0, times=1)
def far_behind(world):
    """One of three nodes is replaced by one that is 50 blocks behind: nothing changes. Then two of them: nothing is credited."""
    chains = real_chains(world)
    if not chains:
        return several(world)
    world.heal()
    for chain in chains:
        state = chain.save()
        pay_and_mine(world, chain, 5)
        chain.mine(FAR_BEHIND)
        chain.put_back([1], state)
        pay_until_credited(world, chain, 4)
        world.rest(heal=False)
        world.agree()
        before = credited(world, chain)
        chain.put_back([1, 2], state)
        pay_and_mine(world, chain, 4)
        chain.mine(chain.final)
        time.sleep(3)
        if credited(world, chain) != before:
            world.fail(f"{chain.name}: two of three nodes are far behind, and more was credited")
        chain.heal()
        wait_for_credits(world, chain, before)
    return f"nodes of {', '.join(chain.name for chain in chains)} were 50 blocks behind"


@plot(1, times=2)
def two_liars(world):
    """Of three endpoints one leaves out logs and one inflates amounts, while all kinds of payments come. Only on anvil."""
    chain = world.chain("anvil")
    if not chain or chain.name in world.unwell:
        return several(world)
    for number, lie in enumerate(("logs_left_out", "inflated")):
        chain.fault(number, lie=lie)
        world.liars.add((chain.name, f"{chain.name}-{number}"))
    # The honest one is not asked first.
    chain.proxies[2].slow, chain.proxies[2].slow_s = b"jsonrpc", 0.1
    world.unwell[chain.name] = 0
    world.counts["lies"] += 2
    for coin in ("coin", "token", "minted", "taxed"):
        world.pay(chain, any_user(world), coin)
    address, amount = world.address_of(chain, any_user(world)), chain.coins["coin"].least
    world.promise(chain, address, "coin", amount)
    chain.pay_by_call(address, "coin", amount)
    chain.mine(1)
    # They go on lying while it is credited.
    world.rest(heal=False)
    world.agree()
    return "two of anvil's endpoints lied"


@plot(0, times=1)
def slow_traces(world):
    """All nodes take longer for traces than the program waits, while a contract pays. When they are fast again, it is credited. Only on
    anvil."""
    chain = world.chain("anvil")
    if not chain:
        return several(world)
    for proxy in chain.proxies:
        proxy.slow, proxy.slow_s = b"debug_trace", 1.5 * world.CALL_TIMEOUT_S
    address, amount = world.address_of(chain, any_user(world)), 5 * chain.coins["coin"].least
    world.promise(chain, address, "coin", amount)
    chain.pay_by_call(address, "coin", amount)
    chain.mine(1)
    # Long enough for a scan and a proof that give up on each trace.
    time.sleep(8 * world.CALL_TIMEOUT_S)
    return f"traces were slow when a contract paid {amount} to {address}"


@plot(0, times=1)
def moves_under_scan(world):
    """While a scan waits for an answer, its blocks become others, and one of them pays a user who is newer than the scan. No node has
    lied, and none may be blamed. Only on anvil."""
    chain = world.chain("anvil")
    if not chain or chain.tip()[0] > chain.highest:
        return several(world)
    chain.mine(5)
    world.rest()
    world.agree()
    for proxy in chain.proxies:
        # A scan asks for whole blocks; whoever asks for the newest one asks for less.
        proxy.hold(b",true]")
    chain.mine(4)
    world.wait_until("somebody reads anvil's blocks", lambda: any(proxy.waits.is_set() for proxy in chain.proxies))
    chain.go_back(3)
    user = world.new_user(["evm"])
    said = world.pay(chain, user, "coin")
    chain.mine(4)
    for proxy in chain.proxies:
        proxy.release()
    world.give_addresses(user, [kind for kind in world.kinds() if kind != "evm"])
    return f"blocks became others during a scan; {said}"


@plot(0, times=1)
def all_liars(world):
    """All three endpoints leave out logs for a while, so that nothing can be proven, and blocks come; then all are well. Only on anvil."""
    chain = world.chain("anvil")
    if not chain:
        return several(world)
    for number in range(3):
        chain.fault(number, lie="logs_left_out")
        world.liars.add((chain.name, f"{chain.name}-{number}"))
    world.counts["lies"] += 3
    said = world.pay(chain, any_user(world), "token", 5 * chain.coins["token"].least)
    # One alone has the chain, and remembers.
    world.workers[0].kill()
    world.expire_leases()
    for _ in range(5):
        chain.mine(1)
        time.sleep(1)
    chain.heal()
    wait_until_level(world, chain)
    return f"all of anvil's endpoints lied; {said}"
