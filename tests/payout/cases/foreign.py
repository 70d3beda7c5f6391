"""Another program with the wallet's key, and a database that is older than its signer."""

import shutil
import time

from deposit.program import CommandFailed

from ..world import ENDED
from . import case


def used_wallet(world, chain):
    """A wallet that has paid something already: the program knows its nonces."""
    jobs = world.add(chain, count=world.hot[chain.name])
    world.wait_for_states(jobs, "confirmed", mines=True)
    world.wait_until("its blocks are final", lambda: world.mine() or all(row["state"] != "open" for row in world.slots(jobs)))
    return world.random.choice(list(chain.wallets.values()))


def jobs_of(world, chain, address, count):
    """So many jobs that this wallet pays: others pay some as well, because they take turns."""
    jobs, mine = [], []
    while len(mine) < count:
        jobs += world.add(chain, count=1)
        mine = [job for job in jobs if chain.key(world.states([job])[job.reference]["address"]) == chain.key(address)]
    return jobs, mine


def must_stop(world, chain, address):
    world.wait_until(f"the lane of {address} is stopped", lambda: world.mine() or world.stopped(chain, address))
    world.note(f"it says: {world.stopped(chain, address)}")


def sort_out(world, chain):
    """Until every wallet has paid a job since: a lane looks at its nonces when it has something to pay."""
    look(world, chain)
    world.add(chain, count=world.hot[chain.name])
    look(world, chain)


def look(world, chain):
    """Two people look at the chain: they judge the jobs whose slot somebody else has used, and let the lanes send again. What the program
    finds out later stops lanes again, and is looked at again."""
    deadline, quiet = time.monotonic() + world.settings.patience, 0
    # What the thief did is in the books, too, which may be slow: their worker was killed a moment ago.
    beyond = chain.refresh()[0]
    while quiet < 3:
        world.mine(4)
        time.sleep(0.6)
        paid = {to for one in chain.spent()[0] for to, *_ in one.paid}
        states = world.states()
        open_ = [job for job in world.jobs.values() if job.chain == chain.name and states[job.reference]["state"] not in ENDED]
        for job in open_:
            judge(world, chain, job, states[job.reference], job.to in paid)
        # Only then, for whatever is not judged is sent again.
        stopped = [address for address in chain.wallets if world.stopped(chain, address)]
        world.resume_all()
        quiet = 0 if open_ or stopped or world.proven(chain) <= beyond else quiet + 1
        if time.monotonic() > deadline:
            world.fail("people do not come to an end")
        if quiet == 0:
            world.time_passes(20)


def judge(world, chain, job, row, is_paid):
    """As far as the program lets people say it: of a slot that somebody else has used, and of one that the signer knows more about."""
    signing = row["state"] == "signing" and world.stopped(chain, row["address"])
    if not signing and "two people must" not in row["reason"]:
        return
    choices = ["paid"] if is_paid else ["unpaid"] if signing else ["again", "unpaid"]
    verdict = world.random.choice(choices)
    if verdict == "unpaid":
        world.may_fail.add(job.reference)
    try:
        world.people("job", "judge", job.id, verdict)
        world.note(f"two people judge {job.reference}: {verdict}; it was {row['state']}: {row['reason']}; {signing}")
    except CommandFailed as refused:
        # It has gone on meanwhile.
        world.note(f"two people cannot judge {job.reference}: {str(refused)[-300:]}")


@case("anvil")
def thief_before(world):
    """Another program with the key takes the next nonce while nothing of ours is out: the lane stops before it pays anything."""
    chain = world.chain("anvil")
    address = used_wallet(world, chain)
    world.steal(chain, address, chain.next_nonce(address))
    chain.mine(world.random.randint(1, chain.final + 2))
    jobs, _ = jobs_of(world, chain, address, 1)
    must_stop(world, chain, address)
    sort_out(world, chain)
    return f"{len(jobs)} jobs"


@case("anvil")
def thief_between(world):
    """Another program with the key takes the nonce of one of ours that is out, between two others: nobody is paid twice for it."""
    chain = world.chain("anvil")
    address = used_wallet(world, chain)
    jobs, mine = jobs_of(world, chain, address, 3)
    world.wait_until_told(jobs)
    nonce = chain.next_nonce(address)
    # The pool holds ours at that nonce: the other offers more.
    world.steal(chain, address, nonce + 1)
    chain.mine(1)
    must_stop(world, chain, address)
    sort_out(world, chain)
    return f"{len(jobs)} jobs"


@case("anvil")
def thief_after(world):
    """Another program with the key takes the nonce after all of ours that are out."""
    chain = world.chain("anvil")
    address = used_wallet(world, chain)
    jobs, mine = jobs_of(world, chain, address, 2)
    world.wait_until_told(jobs)
    world.steal(chain, address, chain.next_nonce(address) + 2)
    chain.mine(1)
    must_stop(world, chain, address)
    sort_out(world, chain)
    return f"{len(jobs)} jobs"


@case("anvil")
def thief_explained(world):
    """What another program took stops the wallet once: when two people have let it send again, it does."""
    chain = world.chain("anvil")
    address = used_wallet(world, chain)
    world.steal(chain, address, chain.next_nonce(address))
    must_stop(world, chain, address)
    chain.mine(chain.final + 2)
    world.wait_until("the books know all", lambda: world.proven(chain) == chain.refresh()[0])
    time.sleep(1)
    world.people("lane", "resume", address, "--chain", chain.name)
    jobs, mine = jobs_of(world, chain, address, 1)
    world.wait_for_states(mine, "confirmed", mines=True)
    return f"{len(jobs)} jobs"


@case("anvil")
def thief_in_pool(world):
    """Another program's transaction has the next nonce in the pool when ours are added: ours replace it, or wait, or stop."""
    chain = world.chain("anvil")
    address = used_wallet(world, chain)
    hash_ = world.steal(chain, address, chain.next_nonce(address))
    jobs, mine = jobs_of(world, chain, address, 3)
    time.sleep(1)
    chain.mine(1)
    if chain.honest.rpc("eth_getTransactionReceipt", hash_):
        must_stop(world, chain, address)
        sort_out(world, chain)
    return f"{len(jobs)} jobs"


@case("anvil")
def reorganised_stolen(world):
    """A reorganisation takes a confirmed payout out, and another program with the key takes its nonce in the new branch."""
    chain = world.chain("anvil")
    address = used_wallet(world, chain)
    jobs, mine = jobs_of(world, chain, address, 1)
    world.wait_for_states(mine, "confirmed", mines=True)
    row = next(row for row in world.slots(mine) if row["mined_height"])
    depth = int(chain.honest.rpc("eth_blockNumber"), 16) - row["mined_height"] + 1
    chain.honest.rpc("anvil_rollback", depth)
    chain.drop_pool()
    world.steal(chain, address, row["nonce"])
    chain.mine(depth + 1)
    world.counts["reorganisations"] += 1
    must_stop(world, chain, address)
    sort_out(world, chain)
    return f"{len(jobs)} jobs, {depth} blocks"


def restore(world, chain, count):
    """The database as it was before the jobs were sent; the signer's log and the chain go on."""
    jobs = world.add(chain, count=2)
    world.wait_for_states(jobs, "confirmed", mines=True)
    senders = [worker for worker in world.workers if worker.name.startswith("outbound")]
    for worker in senders:
        worker.kill()
    jobs = world.add(chain, count=count)
    world.stop_all()
    for name in ("bursar.db", "bursar.db-wal", "bursar.db-shm"):
        if (world.folder / name).exists():
            shutil.copy(world.folder / name, world.folder / f"backup-{name}")
    world.leases_pass()
    world.start_all()
    world.wait_until_told(jobs)
    return jobs


def put_back(world):
    world.stop_all()
    replace_database(world)
    world.leases_pass()
    world.start_all()


def replace_database(world):
    for name in ("bursar.db", "bursar.db-wal", "bursar.db-shm"):
        (world.folder / name).unlink(missing_ok=True)
        if (world.folder / f"backup-{name}").exists():
            shutil.copy(world.folder / f"backup-{name}", world.folder / name)


def is_sqlite(world):
    return world.program.url.startswith("sqlite://")


@case("anvil", mixed=False)
def restored(world):
    """The database is put back as it was before jobs were sent, which are mined; the signer's log is kept."""
    return restored_mined(world, look)


@case("anvil", mixed=False)
def restored_goes_on(world):
    """The same, and when people have judged everything the wallets pay what comes next."""
    return restored_mined(world, sort_out)


def restored_mined(world, people):
    if not is_sqlite(world):
        return "not on this engine"
    chain = world.chain("anvil")
    jobs = restore(world, chain, 5)
    chain.mine(chain.final + 2)
    put_back(world)
    people(world, chain)
    return f"{len(jobs)} jobs"


@case("anvil", mixed=False)
def restored_waiting(world):
    """The same, while what was sent waits in the pool: it is mined after the database was put back."""
    if not is_sqlite(world):
        return "not on this engine"
    chain = world.chain("anvil")
    jobs = restore(world, chain, 5)
    put_back(world)
    time.sleep(2)
    sort_out(world, chain)
    return f"{len(jobs)} jobs"


@case("anvil", mixed=False)
def restored_other(world):
    """The same, and before anything is sent again there are other jobs, which come first: they must not take the slots of what is out."""
    if not is_sqlite(world):
        return "not on this engine"
    chain = world.chain("anvil")
    jobs = restore(world, chain, 5)
    world.stop_all()
    replace_database(world)
    jobs += world.add(chain, count=4, priority=1)
    world.leases_pass()
    world.start_all()
    time.sleep(3)
    look(world, chain)
    return f"{len(jobs)} jobs"


@case("tron", mixed=False)
def restored_tron(world):
    """The same on TRON, where no nonce tells that a payment is there already."""
    if not is_sqlite(world):
        return "not on this engine"
    chain = world.chain("tron")
    jobs = restore(world, chain, 4)
    chain.mine(chain.depth_at_rest())
    put_back(world)
    sort_out(world, chain)
    return f"{len(jobs)} jobs"


@case("tron", mixed=False)
def restored_tron_late(world):
    """The same, and the time of what was sent is over before the database is put back: half an hour, with a block every three seconds."""
    return late(world, 600, cancel)


@case("tron", mixed=False)
def restored_tron_halted(world):
    """The same, and the chain stood still for most of the half hour."""
    return late(world, 30, cancel)


@case("tron", mixed=False)
def restored_tron_resumed(world):
    """The same, and people let the wallets send again, because they cannot say of queued jobs that they were paid."""
    return late(world, 600, say_paid)


def late(world, blocks, then):
    if not is_sqlite(world):
        return "not on this engine"
    chain = world.chain("tron")
    jobs = restore(world, chain, 4)
    chain.mine(chain.depth_at_rest())
    world.stop_all()
    world.time_passes(30 * 60 - 3 * blocks)
    chain.mine(blocks)
    world.time_passes(3 * blocks)
    before = len(chain.told)
    put_back(world)
    world.wait_until("the group is stopped", lambda: chain.mine(1) or world.stopped(chain, list(chain.wallets)[0]))
    time.sleep(2)
    chain.mine(3)
    world.must_hold()
    if len(chain.told) > before:
        world.fail("something was sent before anybody has looked at what the old database does not know")
    for job in jobs:
        then(world, job)
    sort_out(world, chain)
    return f"{len(jobs)} jobs"


def cancel(world, job):
    """All that people can do with a queued job. It was paid, and is called failed."""
    world.paid_before.add(job.reference)
    world.program.run("job", "cancel", job.id, "--actor", "ann")


def say_paid(world, job):
    try:
        world.people("job", "judge", job.id, "paid")
    except CommandFailed as refused:
        world.note(f"{job.reference} was paid, and people cannot say so: {str(refused)[-200:]}")
