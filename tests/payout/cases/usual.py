"""Nothing unusual, workers that die, nodes that answer errors, lag or are silent, reorganisations."""

import time

from ..proxy import Answer
from . import case

# What nodes were seen to say to a transaction that they had taken all the same.
WORDS = ["nonce too low", "already known", "replacement transaction underpriced", "transaction underpriced", "txpool is full",
         "insufficient funds for gas * price + value", "internal error", "max fee per gas less than block base fee"]
ANSWERS = [("words", words) for words in WORDS] + [("500", ""), ("reset", ""), ("silent", ""), ("garbage", "")]


@case("any")
def plain(world):
    """A few jobs on every chain, and blocks."""
    jobs = [job for chain in world.chains for job in world.add(chain, count=3)]
    world.wait_for_states(jobs, "confirming", "confirmed", mines=True)
    return f"{len(jobs)} jobs"


@case("any", heals=False)
def killed(world):
    """Workers and the signer are killed again and again while jobs are paid."""
    jobs = []
    for _ in range(4):
        jobs += world.add(count=world.random.randint(1, 4))
        world.pace()
        world.kill_some()
        world.mine(world.random.randint(0, 2))
        world.pace()
        world.leases_pass()
        world.start_all()
    return f"{len(jobs)} jobs"


@case("any", timed=True)
def paused(world):
    """Those who send are stopped for so long that others take over, and then go on where they were."""
    jobs = world.add(count=4)
    senders = [worker for worker in world.workers if worker.name.startswith("outbound") and worker.runs()]
    world.pace()
    senders[0].pause()
    world.leases_pass()
    world.wait_until_told(jobs)
    senders[0].go_on()
    world.mine(2)
    jobs += world.add(count=2)
    return f"{len(jobs)} jobs, {senders[0].name} slept"


def answers(world, fault):
    for chain in world.chains:
        for proxy in chain.proxies:
            proxy.broadcasts = fault
    world.counts["nodes that answer otherwise"] += 1


@case("anvil")
def nonce_too_low(world):
    """Every node says "nonce too low" to every broadcast, and has taken it. All is paid while they say so."""
    answers(world, Answer("words", "nonce too low"))
    jobs = world.add(world.chain("anvil"), count=4)
    world.wait_for_states(jobs, "confirmed", mines=True)
    return f"{len(jobs)} jobs"


@case("anvil")
def nonce_too_low_lost(world):
    """Every node says "nonce too low" to every broadcast, and has not taken it. Nothing ends by that; healed, all is paid."""
    answers(world, Answer("words", "nonce too low", False))
    jobs = world.add(world.chain("anvil"), count=4)
    world.wait_until_told(jobs)
    for _ in range(4):
        world.mine(2)
        world.time_passes(10)
        time.sleep(0.5)
    for row in world.states(jobs).values():
        if row["state"] != "broadcasted":
            world.fail(f"{row} was never shown to a node that keeps it")
    return f"{len(jobs)} jobs"


@case("anvil")
def errors(world):
    """Each error that a node can answer, to a broadcast that it has taken: words, HTTP 500, resets, silence, garbage."""
    chain, jobs = world.chain("anvil"), []
    for how, words in world.random.sample(ANSWERS, 4):
        answers(world, Answer(how, words))
        some = world.add(chain, count=2)
        world.wait_for_states(some, "confirming", "confirmed", mines=True)
        jobs += some
    return f"{len(jobs)} jobs"


@case("anvil", heals=False)
def errors_lost(world):
    """The same errors, of nodes that have not taken it."""
    chain, jobs = world.chain("anvil"), []
    for how, words in world.random.sample(ANSWERS, 4):
        answers(world, Answer(how, words, False))
        jobs += world.add(chain, count=2)
        world.time_passes(3)
        world.mine(1)
        time.sleep(0.5)
    world.must_not_have_ended(jobs)
    return f"{len(jobs)} jobs"


@case("anvil", heals=False)
def every_error(world):
    """All of these, one after the other, half of them on one node only."""
    chain, jobs = world.chain("anvil"), []
    for number, (how, words) in enumerate(ANSWERS):
        answers(world, None)
        for proxy in chain.proxies[:1 if number % 2 else 3]:
            proxy.broadcasts = Answer(how, words, number % 3 != 0)
        jobs += world.add(chain, count=1)
        world.time_passes(3)
        world.mine(1)
        time.sleep(0.2)
    world.must_not_have_failed(jobs)
    return f"{len(jobs)} jobs"


@case("any")
def silent_node(world):
    """One of three nodes never answers anything. The others are enough."""
    for chain in world.chains:
        world.random.choice(chain.proxies).dead = True
    jobs = [job for chain in world.chains for job in world.add(chain, count=3)]
    world.wait_for_states(jobs, "confirmed", mines=True)
    return f"{len(jobs)} jobs"


@case("any", heals=False)
def silent_nodes(world):
    """Two of three nodes never answer: nothing is known, and nothing ends. Healed, all is paid."""
    for chain in world.chains:
        for proxy in world.random.sample(chain.proxies, 2):
            proxy.dead = True
    jobs = [job for chain in world.chains for job in world.add(chain, count=2)]
    for _ in range(3):
        world.mine(3)
        time.sleep(1)
    world.must_not_have_ended(jobs)
    return f"{len(jobs)} jobs"


@case("anvil")
def lagging_node(world):
    """One of three nodes is 50 blocks behind, and is told of everything as well."""
    chain = world.chain("anvil")
    state = chain.save()
    chain.mine(50)
    chain.put_back([world.random.randrange(3)], state)
    jobs = world.add(chain, count=4)
    world.wait_for_states(jobs, "confirmed", mines=True)
    return f"{len(jobs)} jobs"


@case("anvil")
def reorganised(world):
    """A reorganisation takes payouts that are confirmed, and not final, out of the chain and out of the pool: the same bytes again."""
    chain = world.chain("anvil")
    jobs = world.add(chain, count=3)
    world.wait_until_told(jobs)
    chain.mine(1 + chain.confirmations)
    world.wait_for_states(jobs, "confirmed")
    before = {row["tx"] for row in world.slots(jobs)}
    chain.reorg(1 + chain.confirmations, "dropped")
    # The new branch grows without them.
    chain.drop_pool()
    chain.mine(1)
    world.counts["reorganisations"] += 1
    world.wait_until("their blocks are missed", lambda: any(row["state"] != "confirmed" for row in world.states(jobs).values()))
    world.wait_for_states(jobs, "confirmed", mines=True)
    after = {row["tx"] for row in world.slots(jobs)}
    # What waits too long may be offered more for in the same slot; what was signed stays.
    if not before <= after:
        world.fail(f"other bytes were signed after the reorganisation: {before} {after}")
    return f"{len(jobs)} jobs"
