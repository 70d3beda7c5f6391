"""Nothing unusual, requests in a crowd, refusals, batches, addresses of other customers."""

import threading
import time

from . import case


@case()
def plain(world):
    """A few requests that nobody has to agree to, on every chain, and blocks."""
    asks = [world.books.ask(chain=chain, coin=coin, coins="0.5") for chain in world.chains for coin in chain.coins]
    world.must_be_taken(asks)
    world.wait_for(asks, "completed", mines=True)
    return f"{len(asks)} requests"


@case(often=4)
def busy(world):
    """A crowd for some seconds: customers ask, ask again, look and call off at any server; people agree and refuse; blocks come."""
    until = time.monotonic() + world.random.uniform(3, 6)
    seeds = [world.random.getrandbits(32) for _ in world.customers] + [world.random.getrandbits(32)]
    before = len(world.books.asks)
    troubles = []

    def run(work, *arguments):
        try:
            work(world, until, *arguments)
        except Exception as trouble:  # noqa: BLE001: it is raised below.
            troubles.append(trouble)
    threads = [threading.Thread(target=run, args=(customer, user, world.dice(seed)), daemon=True) for user, seed in zip(world.customers, seeds)]
    threads.append(threading.Thread(target=run, args=(house, world.dice(seeds[-1])), daemon=True))
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        world.mine()
        time.sleep(0.5)
    if troubles:
        raise troubles[0]
    return f"{len(world.books.asks) - before} requests in a crowd"


def customer(world, until, user, random):
    books = world.books
    mine = []
    while time.monotonic() < until:
        what = random.random()
        if what < 0.45 or not mine:
            one = books.new(user=user, chain=random.choice(world.chains), coin=random.choice(["coin", "token"]),
                            coins=random.choice(["0.01", "0.3", "0.999", "1", "1.001", "4", "7", "25", "600"]),
                            payee=random.choice([None, None, None, *[other for other in world.customers if other != user][:1]]))
            mine.append(one)
            if random.random() < 0.3:
                world.at_once(*[lambda server=server: books.send(one, server) for server in world.places])
            else:
                books.send(one, random.choice(list(world.places)))
        elif what < 0.6:
            books.send(random.choice(mine), random.choice(list(world.places)))
        elif what < 0.75:
            one = random.choice(mine)
            if one.id:
                books.cancel(one, random.choice(list(world.places)))
        elif what < 0.85:
            # The same name with other content.
            former = random.choice(mine)
            other = books.new(user=user, chain=former.chain, coin=former.coin, coins="0.02", name=former.name)
            books.send(other, random.choice(list(world.places)))
        else:
            one = random.choice(mine)
            if one.id:
                books.look(one, random.choice(list(world.places)))
        time.sleep(random.uniform(0, 0.2))


def house(world, until, random):
    """People who decide something, right or wrong."""
    while time.monotonic() < until:
        waits = [one for one in world.books.taken() if one.state in ("pending", "manual_review")]
        if waits:
            one = random.choice(waits)
            if random.random() < 0.2:
                world.reject(one, server=random.choice(list(world.places)))
            else:
                world.approve(one, random.choice(world.approvers()), server=random.choice(list(world.places)))
        time.sleep(random.uniform(0, 0.2))


@case()
def killed(world):
    """Everything is killed again and again while requests come and are paid."""
    asks = []
    for _ in range(3):
        for _ in range(world.random.randint(2, 4)):
            one = world.books.new()
            asks.append(one)
            world.books.send(one)
        world.pace()
        world.kill_some()
        world.mine(world.random.randint(0, 2))
        world.pace()
        world.leases_pass()
        world.start_all()
    return f"{len(asks)} requests"


@case()
def deposits_meanwhile(world):
    """A customer is given more, asks for nearly all of it as soon as it can be had, and gets it."""
    chain, user = world.random.choice(world.chains), world.random.choice(world.customers)
    coin = world.random.choice(list(chain.coins))
    world.deposit(chain, user, coin, 3 * 10 ** chain.coins[coin].decimals)
    world.wait_until("it can be had", world.is_credited)
    one = world.books.ask(user=user, chain=chain, coin=coin, coins="0.9")
    return f"3 of {one.asset()} to customer {user}"


@case()
def refused(world):
    """What nobody may have: too much, too little, to the house's wallet, to their own address, of another network, with a bad checksum."""
    books, chain = world.books, world.random.choice(world.chains)
    user = world.random.choice(world.customers)
    wallet = next(iter(chain.wallets.values()))
    own = world.address_of(chain, user)
    wrong = [dict(coins="99999", coin="coin"), dict(coins="0.001", coin="coin"), dict(coins="0"), dict(coins="0.1", to=wallet),
             dict(coins="0.1", to=own), dict(coins="0.1", to="bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080"),
             dict(coins="0.1", to=own[:-1] + ("1" if own[-1] != "1" else "2")), dict(coins="0.1", to="0x" + 40 * "0")]
    for what in wrong:
        server = world.some_server()
        one = books.new(user=user, chain=chain, **what)
        world.ask_until_known(one, server)
        if one.refused is None:
            world.fail(f"{one} was taken: {what}")
    return f"{len(wrong)} requests that make no sense"


@case()
def batches(world):
    """A hundred at once, good and bad ones among them, some of them twice, at both servers at once."""
    books, chain, user = world.books, world.random.choice(world.chains), world.random.choice(world.customers)
    asks = [books.new(user=user, chain=chain, coins=world.random.choice(["0.01", "0.02", "0.001", "88888", "2"])) for _ in range(40)]
    for _ in range(2):
        world.at_once(*[lambda server=server: books.send_batch(user, asks, server) for server in world.places])
    for one in asks:
        if one.id is None and one.refused is None:
            world.ask_until_known(one)
    taken = [one for one in asks if one.id]
    if len(taken) != sum(1 for one in asks if one.units not in (world.units(one.chain, one.coin, "0.001"), world.units(one.chain, one.coin, "88888"))):
        world.fail(f"{len(taken)} of {len(asks)} were taken: {[(str(one), one.told) for one in asks][:8]}")
    return f"{len(taken)} of {len(asks)} taken"


@case()
def inside_no_coin_moves(world):
    """To another customer's address: both books change, and no wallet of the house sends anything."""
    for chain in world.chains:
        payer, payee = world.random.sample(world.customers, 2)
        before = {one.tx for one in chain.spent()[0]}
        told = len(chain.told)
        asks = [world.books.ask(user=payer, chain=chain, coin=coin, coins="0.7", payee=payee) for coin in chain.coins]
        world.must_be_taken(asks)
        world.wait_for(asks, "completed", mines=True)
        ours = {chain.key(world.address_of(chain, payee))}
        for one in chain.spent()[0]:
            if one.tx not in before and any(to in ours for to, *_ in one.paid):
                world.fail(f"coins moved to a customer's address: {one}")
        if world.alone and len(chain.told) != told:
            world.fail("something was sent, and nobody has asked for anything but the books")
        for one in asks:
            answer = world.books.look(one)
            if not (answer.status == 200 and answer.body["settled_inside"]):
                world.fail(f"{one} does not say that it was settled inside: {answer}")
    return f"{len(asks)} on each chain"
