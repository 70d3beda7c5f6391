"""Payouts that run out of time, prices that change, nodes that refuse and mine all the same."""

import time

from ..proxy import Answer
from . import case
from .usual import answers

WORDS = ["CONTRACT_VALIDATE_ERROR: Contract validate error : account does not exist", "TRANSACTION_EXPIRATION_ERROR: Transaction expired",
         "SIGERROR: Validate signature error", "DUP_TRANSACTION_ERROR: Dup transaction.", "SERVER_BUSY: Server busy.",
         "TAPOS_ERROR: Tapos check error.", "BANDWITH_ERROR: Account resource insufficient error.", "OTHER_ERROR: other"]
# Of a transaction and of the signer's margin, in seconds.
LIFE_S = 20 * 60
MARGIN_S = 2 * 60


def fresh(world):
    """The chain, with blocks of the present: a transaction's time begins with that of a solidified one."""
    chain = world.chain("tron")
    chain.mine(chain.depth_at_rest())
    return chain


def lead(world, chain):
    """How many seconds the chain is ahead of the clock: many blocks were mined at once."""
    return max(0, chain.head_time() / 1000 - time.time() - world.clock.ahead / 1_000_000)


def sent(world, jobs):
    return {row["tx"] for row in world.slots(jobs)}


@case("tron", timed=True)
def tron_expired(world):
    """No node keeps what it is told of, until its time is over for good: it is built anew, and paid once."""
    chain = fresh(world)
    answers(world, Answer("words", "SERVER_BUSY: Server busy.", False))
    jobs = world.add(chain, count=3)
    world.wait_until_told(jobs)
    first = sent(world, jobs)
    world.time_passes(LIFE_S + MARGIN_S + lead(world, chain))
    # Its time is over by the newest block, and not yet by one that nobody can undo: nothing may be built now.
    chain.mine(3)
    time.sleep(1.5)
    if sent(world, jobs) != first:
        world.fail("another was built before the end of the first one was solidified")
    world.heal()
    chain.mine(chain.depth_at_rest())
    world.wait_for_days("they are built anew", lambda: len(sent(world, jobs)) >= 2 * len(jobs), 100)
    return f"{len(jobs)} jobs"


@case("tron", timed=True)
def tron_late(world):
    """No node keeps what it is told of until shortly before its end; then it is mined."""
    chain = fresh(world)
    answers(world, Answer("words", "SERVER_BUSY: Server busy.", False))
    jobs = world.add(chain, count=3)
    world.wait_until_told(jobs)
    world.time_passes(LIFE_S - 90 + lead(world, chain))
    world.heal()
    world.wait_for_states(jobs, "confirming", "confirmed", mines=True)
    if len(sent(world, jobs)) != len(jobs):
        world.fail("another was built although the first could still be mined")
    return f"{len(jobs)} jobs"


@case("tron")
def tron_refused(world):
    """Every node refuses every broadcast, in all of its words, and mines it all the same."""
    chain, jobs = world.chain("tron"), []
    for words in world.random.sample(WORDS, 3):
        answers(world, Answer("words", words))
        some = world.add(chain, count=2)
        world.wait_for_states(some, "confirming", "confirmed", mines=True)
        jobs += some
    return f"{len(jobs)} jobs"


@case("tron")
def tron_price(world):
    """The price of energy changes between payouts of tokens, up and down: none runs out of energy."""
    chain, jobs = world.chain("tron"), []
    for times in (2, 3, 1):
        world.control.ask("POST", "/tron/fees", {"times": times})
        some = world.add(chain, "token", count=2)
        world.wait_for_states(some, "confirming", "confirmed", mines=True)
        jobs += some
    return f"{len(jobs)} jobs"


@case("tron")
def tron_price_in_flight(world):
    """The price of energy doubles while payouts of tokens wait for their block: none runs out of energy."""
    chain = world.chain("tron")
    jobs = world.add(chain, "token", count=3)
    world.wait_until_told(jobs)
    world.control.ask("POST", "/tron/fees", {"times": 2})
    chain.mine(1)
    for _ in range(4):
        # The signer lets nothing else be built before the time of the first is over.
        world.time_passes(LIFE_S)
        chain.mine(chain.depth_at_rest())
        time.sleep(2)
    world.control.ask("POST", "/tron/fees", {"times": 1})
    return f"{len(jobs)} jobs"


@case("tron")
def tron_reorganised(world):
    """A reorganisation takes payouts out of the chain and out of the pool: the same bytes again."""
    chain = world.chain("tron")
    jobs = world.add(chain, count=3)
    world.wait_until_told(jobs)
    chain.mine(1 + chain.confirmations)
    world.wait_for_states(jobs, "confirmed")
    before = sent(world, jobs)
    chain.reorg(1 + chain.confirmations, "dropped")
    world.counts["reorganisations"] += 1
    chain.mine(1)
    world.time_passes(5)
    world.wait_for_states(jobs, "confirmed", mines=True)
    if sent(world, jobs) != before:
        world.fail("other bytes were built after the reorganisation")
    return f"{len(jobs)} jobs"


@case("tron", heals=False)
def tron_dropped(world):
    """The chain takes what it is told of and forgets it, or mines it a few blocks later."""
    chain = world.chain("tron")
    jobs = []
    for fault in ("drop", {"delay": 3}, "duplicate"):
        world.control.ask("POST", "/tron/broadcasts", {"fault": fault})
        jobs += world.add(chain, count=2)
        world.time_passes(5)
        time.sleep(0.5)
        chain.mine(1)
    return f"{len(jobs)} jobs"
