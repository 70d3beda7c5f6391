"""What may happen in a round. Each takes the world and says in words what it did."""

LIES = ["missing", "flipped", "inflated", "log_left_out", "transaction_left_out", "value_inflated", "swapped"]
PLOTS = {}


def plot(often):
    def add(function):
        function.often = often
        PLOTS[function.__name__.replace("_", "-")] = function
        return function
    return add


def any_user(world):
    return world.random.randint(1, world.users) if world.users else world.new_user()


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
    """A payment to a hot or a gas wallet, which is no user's."""
    chain = world.random.choice(world.chains)
    said = world.pay(chain, None)
    chain.mine(1)
    return said


@plot(2)
def inside(world):
    """Coins paid by a contract, in one transaction; or paid and undone in the same. Only on anvil, which traces."""
    anvils = [chain for chain in world.chains if hasattr(chain, "pay_inside")]
    if not anvils:
        return several(world)
    chain = anvils[0]
    world.counts["payments from inside"] += 1
    if world.random.random() < 0.3:
        kept, undone = (world.address_of(chain, any_user(world)) for _ in range(2))
        amount = world.amount(chain, "coin")
        world.asked[chain.name][chain.key(kept), "coin"] += amount
        chain.pretend(kept, undone, amount)
        chain.mine(1)
        return f"{amount} to {kept}, and undone to {undone}"
    payments = [(world.address_of(chain, any_user(world)), world.amount(chain, "coin")) for _ in range(world.random.randint(1, 5))]
    for address, amount in payments:
        world.asked[chain.name][chain.key(address), "coin"] += amount
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
    deepest = min(chain.deepest, height - chain.first - 1)
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
    kind = world.random.choice(["lie", "lie", "lie", "lag", "contradict", "wire"])
    if kind == "lie":
        faults = {"lie": world.random.choice(LIES)}
        world.liars.add((chain.name, f"{chain.name}-{number}"))
        world.counts["lies"] += 1
    elif kind == "lag":
        faults = {"lag": world.random.randint(1, 12)}
    elif kind == "contradict":
        faults = {"contradict": chain.tip()[0] - world.random.randint(-2, 5)}
        world.liars.add((chain.name, f"{chain.name}-{number}"))
        world.counts["lies"] += 1
    else:
        faults = world.random.choice([{"garbage": "html"}, {"garbage": "truncated"}, {"garbage": "wrong_type"}, {"garbage": "absurd"},
                                      {"delay_ms": 400}, {"connection": "half_closed"}, {"connection": "silent"}])
    chain.fault(number, **faults)
    world.unwell[chain.name] = number
    world.counts["nodes unwell"] += 1
    return f"{chain.name}-{number}: {faults}"


@plot(0)
def full_account(world):
    """A user gets nearly as much as an account can hold, and more comes for the same user. Others must still be credited. Only on anvil."""
    anvils = [chain for chain in world.chains if hasattr(chain, "pay_inside")]
    if not anvils:
        return several(world)
    chain, user = anvils[0], any_user(world)
    coin = chain.coins["token"]
    unit = 10 ** (coin.decimals - coin.precision)
    world.nearly_full.add((user, coin.asset))
    said = [world.pay(chain, user, "token", 2 ** 63 * unit - 1), world.pay(chain, user, "token", 7 * coin.least)]
    chain.mine(1)
    other = world.new_user()
    said.append(world.pay(chain, other, "token", 7 * coin.least))
    chain.mine(1)
    return "; ".join(said)


@plot(0)
def owed(world):
    """A payment leaves the chain when its user has nothing to give back, and comes again: what is owed is paid with it."""
    return owe(world, came_in_vain=False)


@plot(0)
def owed_longer(world):
    """The same; but the payment is mined in vain once more before it comes to stay. What is owed is still paid with it."""
    return owe(world, came_in_vain=True)


@plot(0)
def owed_killed(world):
    """The same; but the worker is killed when the blocks are undone and the ledger has not followed. Only on SQLite, whose lock stops it there."""
    if world.settings.engine != "sqlite":
        return owed(world)
    return owe(world, came_in_vain=False, killed=True)


def owe(world, came_in_vain, killed=False):
    chain, user = world.chains[0], world.new_user()
    coin = chain.coins["token"]
    said = world.pay(chain, user, "token", 3 * coin.least)
    world.rest()
    world.agree()
    # A frozen account gives nothing, as one that has spent all.
    account = world.program.rows(f"SELECT id FROM accounts WHERE owner = {user}")[0]["id"]
    world.may_owe.add(user)
    world.program.run("account", "freeze", str(account), "--reason", "the driver wants it to owe", "--actor", "driver")
    address = chain.key(world.address_of(chain, user))
    paid = next(height for height, block in chain.blocks.items() for one in block.payments if one.address == address)
    chain.reorg(chain.tip()[0] - paid + 1, "returned")
    # The moment is missed at times. The last line says how often it was caught.
    if killed and world.program.kill_before_booking(world.workers):
        world.counts["killed between undoing and booking"] += 1
    else:
        world.wait_for_deposit(user, 0, "reversed")
    if came_in_vain:
        chain.mine(1)
        world.wait_for_deposit(user, 1, "proven")
        chain.reorg(1, "returned")
        world.wait_for_deposit(user, 1, "orphaned")
    chain.mine(1)
    world.rest()
    world.wait_for_deposit(user, 2 if came_in_vain else 1, "final")
    world.program.run("account", "activate", str(account), "--reason", "that was all", "--actor", "driver")
    return f"{said}, taken back, {'mined in vain, ' if came_in_vain else ''}mined again"
