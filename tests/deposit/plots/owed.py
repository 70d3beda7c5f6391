"""Users who owe something, and accounts that are full."""

from . import any_user, plot
from .usual import several


@plot(0, times=1)
def full_account(world):
    """A user gets nearly as much as an account can hold, and more comes for the same user. Others must still be credited. Only on anvil."""
    chain, user = world.chain("anvil"), any_user(world)
    if not chain:
        return several(world)
    coin = chain.coins["token"]
    unit = 10 ** (coin.decimals - coin.precision)
    world.nearly_full.add((user, coin.asset))
    said = [world.pay(chain, user, "token", 2 ** 63 * unit - 1), world.pay(chain, user, "token", 7 * coin.least)]
    chain.mine(1)
    other = world.new_user()
    said.append(world.pay(chain, other, "token", 7 * coin.least))
    chain.mine(1)
    return "; ".join(said)


@plot(0, times=1)
def owed(world):
    """A payment leaves the chain when its user has nothing to give back, and comes again: what is owed is paid with it."""
    return owe(world, came_in_vain=False)


@plot(0, times=1)
def owed_longer(world):
    """The same; but the payment is mined in vain once more before it comes to stay. What is owed is still paid with it."""
    return owe(world, came_in_vain=True)


@plot(0, times=1)
def owed_killed(world):
    """The same; but the worker is killed when the blocks are undone and the ledger has not followed. Only on SQLite, whose lock stops it there."""
    if world.settings.engine != "sqlite":
        return owed(world)
    return owe(world, came_in_vain=False, killed=True)


def owe(world, came_in_vain, killed=False):
    chain, user = next(chain for chain in world.chains if "token" in chain.coins), world.new_user()
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
