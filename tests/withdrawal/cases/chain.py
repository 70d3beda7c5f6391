"""A database that is older than its signer, reorganisations, hot wallets that have too little."""

import time

from . import case


@case(mixed=False)
def restore_pays_once(world):
    """A backup of a time at which nothing had a job is put back after all was paid: nobody is paid again, and no customer gets money for what was."""
    books = world.books
    first = [books.ask(chain=chain, coins="0.5") for chain in world.chains for _ in range(2)]
    world.wait_for(first, "completed", mines=True)
    # Nobody makes jobs.
    makers = [world.worker("withdrawals"), world.servers[1]]
    for worker in makers:
        worker.kill()
    asks = [books.ask(chain=chain, coins=coins, server=1) for chain in world.chains for coins in ("0.6", "0.7", "0.8", "2.5", "2.6")]
    world.must_be_taken(asks)
    world.back_up()
    agreed = [one for one in asks if one.units > world.units(one.chain, one.coin, 1)][::2]
    for one in agreed:
        world.approve_until_known(one, "bob")
    paid = [one for one in asks if one in agreed or one.units < world.units(one.chain, one.coin, 1)]
    world.wait_for(paid, "completed", mines=True)
    world.put_back()
    world.start_again()
    # Customers who know better try to call it off: what was paid must not be given back.
    for one in asks:
        if world.random.random() < 0.5:
            world.note(f"called off after the restore: {one}: {books.cancel(one)}")
    world.look_after_restore(asks)
    return f"{len(asks)} requests, {len(paid)} paid before the restore"


@case(mixed=False)
def restore_between(world):
    """The backup has jobs that were not sent, and some that were."""
    books = world.books
    first = [books.ask(chain=chain, coins="0.5") for chain in world.chains for _ in range(2)]
    world.wait_for(first, "completed", mines=True)
    for worker in (world.worker("outbound"), world.servers[1]):
        worker.kill()
    asks = [books.ask(chain=chain, coins=coins, server=1) for chain in world.chains for coins in ("0.6", "0.7", "0.8")]
    world.must_be_taken(asks)
    world.wait_for(asks, "queued")
    world.back_up()
    world.wait_for(asks, "completed", mines=True)
    world.put_back()
    world.start_again()
    world.look_after_restore(asks)
    return f"{len(asks)} requests with jobs"


@case(mixed=False)
def restore_called_off(world):
    """What was called off after the backup waits again after the restore, and is called off again: it is given back once."""
    books = world.books
    asks = [books.ask(chain=chain, coins="3") for chain in world.chains for _ in range(3)]
    for one in asks:
        world.ask_until_known(one)
    world.back_up()
    for one in asks:
        world.wait_until(f"{one} is called off", lambda one=one: books.cancel(one).status == 200)
    world.put_back()
    world.start_again()
    for one in asks:
        world.wait_until(f"{one} is called off", lambda one=one: books.cancel(one).status == 200)
    return f"{len(asks)} requests"


@case()
def reorg_after_completed(world):
    """A reorganisation takes payments out of which customers were told that they are made: they stay completed, and are paid once."""
    chain = world.chain("anvil")
    if chain is None:
        return "not on this chain"
    if chain.refresh()[0] > chain.highest:
        return "the chain is too high: anvil forgets"
    asks = [world.books.ask(chain=chain, coins="0.45") for _ in range(3)]
    for one in asks:
        world.ask_until_known(one)
    world.must_be_taken(asks)
    world.wait_for(asks, "completed", mines=True)
    chain.reorg(1 + chain.confirmations, "dropped")
    chain.drop_pool()
    chain.mine(1)
    world.counts["reorganisations"] += 1
    return f"{len(asks)} requests"


@case(mixed=False, hot_token=3, wallets=1, when_short="fail")
def short_hot_wallet_fails(world):
    """The hot wallet has less than is asked for: it fails, and the customer has the money back. What fits is paid."""
    return short(world, "failed")


@case(mixed=False, hot_token=3, wallets=1, when_short="wait")
def short_hot_wallet_waits(world):
    """The same, and it waits; nobody has anything back. When the wallet has more it is paid."""
    return short(world, "completed")


def short(world, end):
    chain, asks = world.chain("anvil"), []
    big = world.books.ask(chain=chain, coin="token", coins="4.5")
    world.ask_until_known(big)
    world.approve_until_known(big, "dan")
    small = world.books.ask(chain=chain, coin="token", coins="0.5")
    asks = [big, small]
    world.must_be_taken(asks)
    world.wait_for([small], "completed", mines=True)
    if end == "failed":
        world.wait_for_days("it has failed", lambda: world.books.look(big).status == 200 and big.state == "failed", 60)
        return f"{big}"
    for _ in range(6):
        world.mine()
        world.time_passes(60)
        time.sleep(0.5)
    world.books.look(big)
    if big.state not in ("approved", "queued"):
        world.fail(f"{big} waits no more")
    address = next(iter(chain.wallets.values()))
    raw = 10 * 10 ** chain.coins["token"].decimals
    chain.pay(address, "token", raw)
    world.funded[chain.name, chain.key(address), "token"] += raw
    world.wait_for_days("it is paid", lambda: world.books.look(big).status == 200 and big.state == "completed", 60)
    return f"{big}"
