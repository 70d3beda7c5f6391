"""What may happen in any round: payments, blocks, reorganisations, workers that die, nodes that lie."""

from . import any_user, plot


@plot(3)
def new_address(world):
    """A new user gets an address, and is paid at once."""
    user = world.new_user()
    chain = world.random.choice(world.chains)
    said = world.pay(chain, user)
    mined = world.random.random() < 0.7
    if mined:
        chain.mine(1)
    return f"user {user} is new: {said}{', mined' if mined else ''}"


@plot(6)
def several(world):
    """Several payments to users, to one or to many, in one block."""
    chain = world.random.choice(world.chains)
    one = any_user(world)
    same = world.random.random() < 0.3
    said = [world.pay(chain, one if same else any_user(world)) for _ in range(world.random.randint(1, 6))]
    if world.random.random() < 0.8:
        chain.mine(1)
        said.append("mined")
    return "; ".join(said)


@plot(2)
def house(world):
    """A payment to a hot, gas or treasury wallet, which is no user's."""
    chain = world.random.choice(world.chains)
    said = world.pay(chain, None)
    chain.mine(1)
    return said


@plot(2)
def inside(world):
    """Coins paid by a contract, in one transaction; or paid and undone in the same. Only on anvil, which traces."""
    chain = world.chain("anvil")
    if not chain:
        return several(world)
    world.counts["payments from inside"] += 1
    if world.random.random() < 0.3:
        kept, undone = (world.address_of(chain, any_user(world)) for _ in range(2))
        amount = world.amount(chain, "coin")
        world.promise(chain, kept, "coin", amount)
        chain.pretend(kept, undone, amount)
        chain.mine(1)
        return f"{amount} to {kept}, and undone to {undone}"
    payments = [(world.address_of(chain, any_user(world)), world.amount(chain, "coin")) for _ in range(world.random.randint(1, 5))]
    for address, amount in payments:
        world.promise(chain, address, "coin", amount)
    chain.pay_inside(payments)
    chain.mine(1)
    return f"inside: {payments}"


@plot(5)
def blocks(world):
    """A few blocks more."""
    chain, count = world.random.choice(world.chains), world.random.randint(1, 6)
    chain.mine(count)
    return f"{count} blocks on {chain.name}"


@plot(4)
def reorg(world):
    """The newest blocks are others; their payments move, wait again, or are gone."""
    chain = world.random.choice(world.chains)
    height, _ = chain.tip()
    deepest = min(chain.deepest, height - chain.lowest() - 1)
    if deepest < 1 or height > getattr(chain, "highest", height):
        return blocks(world)
    depth, fate = world.random.randint(1, deepest), world.random.choice(["moved", "dropped", "returned"])
    chain.reorg(depth, fate)
    world.counts["reorganisations"] += 1
    return f"{depth} blocks of {chain.name} are others, payments {fate}"


@plot(4)
def kill(world):
    """A worker is killed, and perhaps started again. Its leases pass."""
    worker = world.random.choice(world.workers)
    again = world.random.random() < 0.7
    if worker.runs():
        worker.kill()
        world.counts["kills"] += 1
    if again:
        worker.start()
    if world.random.random() < 0.7:
        world.expire_leases()
    return f"{worker.name} killed{', started again' if again else ''}"


@plot(2)
def pause(world):
    """A worker is held where it is, until another has its chains; then it goes on, too late. Or it goes on in time."""
    running = [worker for worker in world.workers if worker.runs()]
    if not running:
        return kill(world)
    worker = world.random.choice(running)
    if worker.paused:
        worker.go_on()
        return f"{worker.name} goes on"
    worker.pause()
    if not world.program.can_write():
        # It was held while it had a lock that others need. Then all wait for it, and that is no fault of theirs.
        worker.go_on()
        return f"{worker.name} was held for a moment"
    world.counts["pauses"] += 1
    if world.random.random() < 0.7:
        world.expire_leases()
    return f"{worker.name} is held"


@plot(1)
def takeover(world):
    """The leases pass while their holders work."""
    world.expire_leases()
    world.counts["takeovers"] += 1
    return "leases pass under living workers"


@plot(1)
def stop(world):
    """A worker is stopped as an operator does it, and started again."""
    running = [worker for worker in world.workers if worker.runs()]
    if not running:
        return kill(world)
    worker = world.random.choice(running)
    wrong = worker.stop()
    if wrong:
        world.fail(wrong)
    worker.start()
    world.counts["stops"] += 1
    return f"{worker.name} stopped and started"


@plot(4)
def unwell(world):
    """One of a chain's nodes lies, lags, answers rubbish or nothing, until it is healed. Never two of one chain."""
    well = [chain for chain in world.chains if hasattr(chain, "fault") and chain.name not in world.unwell]
    if not well or world.random.random() < 0.3:
        world.heal()
        return "all nodes are well"
    chain, number = world.random.choice(well), world.random.randrange(3)
    kind = world.random.choice(["lie", "lie", "lie", "lag", "contradict", "wire"] if hasattr(chain, "wires") else ["lie"])
    if kind == "lie":
        faults = {"lie": world.random.choice(chain.lies)}
        world.liars.add((chain.name, f"{chain.name}-{number}"))
        world.counts["lies"] += 1
    elif kind == "lag":
        faults = {"lag": world.random.randint(1, 12)}
    elif kind == "contradict":
        faults = {"contradict": chain.tip()[0] - world.random.randint(-2, 5)}
        world.liars.add((chain.name, f"{chain.name}-{number}"))
        world.counts["lies"] += 1
    else:
        faults = world.random.choice(chain.wires)
    chain.fault(number, **faults)
    world.unwell[chain.name] = number
    world.counts["nodes unwell"] += 1
    return f"{chain.name}-{number}: {faults}"
