"""Prices above the cap, pools that forget, gaps at the front, replacements and cancels."""

import time

from ..world import GWEI
from . import case


@case("anvil")
def capped(world):
    """The price rises above the cap, pools are emptied, jobs are added; then it falls, and all is paid once."""
    chain = world.chain("anvil")
    jobs = world.add(chain, count=4)
    world.wait_until_told(jobs)
    chain.set_price(100 * GWEI)
    chain.drop_pool()
    jobs += world.add(chain, count=3)
    for _ in range(5):
        chain.mine(1)
        world.time_passes(7)
        time.sleep(0.6)
        if world.random.random() < 0.5:
            chain.drop_pool()
    world.must_not_have_failed(jobs)
    chain.drop_pool()
    chain.set_price(None)
    world.time_passes(40)
    world.wait_for_states(jobs, "confirmed", mines=True)
    return f"{len(jobs)} jobs"


@case("anvil")
def dearer(world):
    """The price rises step by step below the cap: what waits is replaced by what offers more, and one of them is mined."""
    chain = world.chain("anvil")
    jobs = world.add(chain, count=4)
    world.wait_until_told(jobs)
    for price in (4, 9, 15):
        chain.set_price(price * GWEI)
        world.time_passes(5)
        time.sleep(0.6)
        if world.random.random() < 0.3:
            world.kill_some()
            world.leases_pass()
            world.start_all()
    return f"{len(jobs)} jobs"


@case("anvil")
def forgotten(world):
    """The pool forgets everything, three times over: the same bytes are told again."""
    chain = world.chain("anvil")
    jobs = world.add(chain, count=4)
    world.wait_until_told(jobs)
    for _ in range(3):
        world.wait_until("the pool has something", chain.waiting)
        chain.drop_pool()
        world.time_passes(5)
    return f"{len(jobs)} jobs"


@case("anvil")
def restarted(world):
    """The node is killed with everything in its pool, and begins again at the block where it was."""
    chain = world.chain("anvil")
    jobs = world.add(chain, count=4)
    world.wait_until_told(jobs)
    state = chain.save()
    chain.restart(state)
    world.time_passes(5)
    return f"{len(jobs)} jobs"


def front_gap(world, count, chain):
    jobs = world.add(chain, count=count)
    world.wait_until_told(jobs)
    world.wait_until("all are in the pool", lambda: len(chain.waiting()) >= count)
    nonces = {}
    for (sender, nonce), hash_ in chain.waiting().items():
        if sender in chain.wallets and (sender not in nonces or nonce < nonces[sender][0]):
            nonces[sender] = (nonce, hash_)
    for _, hash_ in nonces.values():
        chain.drop(hash_)
    # Blocks without it: nothing can be mined.
    chain.mine(2)
    if chain.spent()[0] and any(one.height > chain.refresh()[0] - 2 for one in chain.spent()[0]):
        world.fail("something was mined behind a gap")
    world.time_passes(5)
    return jobs


@case("anvil")
def gap(world):
    """The transaction of each wallet's lowest nonce is gone from every node, and others wait behind it."""
    return f"{len(front_gap(world, 9, world.chain('anvil')))} jobs"


@case("anvil", in_flight=291, wallets=1)
def gap_291(world):
    """291 nonces of one wallet wait, and the first of them is gone from every node."""
    return f"{len(front_gap(world, 291, world.chain('anvil')))} jobs"


@case("anvil")
def cancelled(world):
    """Jobs are cancelled while they wait for their block: paid or not, as the chain decides between the two."""
    chain = world.chain("anvil")
    jobs = world.add(chain, count=5)
    world.wait_until_told(jobs)
    some = world.random.sample(jobs, 3)
    for job in some:
        world.may_fail.add(job.reference)
        world.program.run("job", "cancel", job.id, "--actor", "ann")
    if world.random.random() < 0.3:
        # Perhaps before the cancels are out.
        chain.mine(1)
        return f"{len(jobs)} jobs, 3 cancelled too late"
    world.time_passes(5)
    world.wait_until("the cancels are signed", lambda: sum(row["kind"] == "cancel" for row in world.slots(some)) == len(some))
    if world.random.random() < 0.5:
        # The payments are in the pool again, before the cancels: one node had never heard of those.
        chain.drop_pool()
        for row in world.slots(some):
            if row["kind"] == "pay":
                chain.send_again(row["tx"])
        chain.mine(1)
        return f"{len(jobs)} jobs, 3 cancelled, and paid all the same"
    return f"{len(jobs)} jobs, 3 cancelled"


@case("anvil")
def bumped(world):
    """People want more to be offered for jobs that wait."""
    chain = world.chain("anvil")
    jobs = world.add(chain, count=3)
    world.wait_until_told(jobs)
    for job in jobs:
        world.program.run("job", "bump", job.id, "--actor", "ann")
    world.wait_until("more is offered", lambda: len(world.slots(jobs)) >= 2 * len(jobs))
    return f"{len(jobs)} jobs"
