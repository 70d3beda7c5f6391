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


@plot(0, times=1)
def assigned(world):
    """Too little for a credit is given to another user by two people; then its block goes, and it is mined again: it is nobody's again."""
    chain, user, other = token_chain(world), world.new_user(), world.new_user()
    said = world.pay(chain, user, "token", chain.coins["token"].least - 1)
    assign(world, chain, user, other, 0)
    undo(world, chain, user)
    world.wait_for_deposit(other, 0, "reversed")
    chain.mine(1)
    return f"{said}, given to user {other}, taken back, mined again"


@plot(0, times=1)
def assigned_owed(world):
    """The same; but when its block goes the other user has nothing to give back, and gets it again: what is owed is paid with it."""
    chain, user, other = token_chain(world), world.new_user(), world.new_user()
    said = world.pay(chain, user, "token", chain.coins["token"].least - 1)
    assign(world, chain, user, other, 0)
    account = freeze(world, other)
    undo(world, chain, user)
    world.wait_for_deposit(other, 0, "reversed")
    chain.mine(1)
    world.program.run("account", "activate", account, "--reason", "that was all", "--actor", "driver")
    assign(world, chain, user, other, 1)
    return f"{said}, given to user {other}, taken back, mined and given again"


def assign(world, chain, user, other, generation):
    """Two people give the user's only payment, which was mined for this time, to another."""
    world.rest()
    # Between a debt and its payment accounts have more than the chains say.
    if generation == 0:
        world.agree()
    else:
        world.wait_for_deposit(user, generation, "unattributed")
        chain.refresh()
    address = chain.key(world.address_of(chain, user))
    block, payment = next((block, one) for block in chain.blocks.values() for one in block.payments if one.address == address)
    sql = f"SELECT id FROM deposits WHERE user_id = {user} AND generation = {generation} AND state = 'unattributed'"
    deposit = world.program.rows(sql)[0]["id"]
    world.program.run("deposit", "assign", f"dp-{deposit}", "--user", str(other), "--reason", "the driver wants it", "--actor", "anna",
                      "--second", "bert")
    world.assigned[chain.name, payment.tx, address, block.hash] = other
    world.agree()


def token_chain(world):
    return next(chain for chain in world.chains if "token" in chain.coins)


def freeze(world, user):
    """A frozen account gives nothing, as one that has spent all. Its number."""
    account = str(world.program.rows(f"SELECT id FROM accounts WHERE owner = {user}")[0]["id"])
    world.may_owe.add(user)
    world.program.run("account", "freeze", account, "--reason", "the driver wants it to owe", "--actor", "driver")
    return account


def undo(world, chain, user):
    """The block of the user's only payment leaves the chain, with all above it. The payment waits again."""
    address = chain.key(world.address_of(chain, user))
    paid = next(height for height, block in chain.blocks.items() for one in block.payments if one.address == address)
    chain.reorg(chain.tip()[0] - paid + 1, "returned")


def owe(world, came_in_vain, killed=False):
    chain, user = token_chain(world), world.new_user()
    said = world.pay(chain, user, "token", 3 * chain.coins["token"].least)
    world.rest()
    world.agree()
    account = freeze(world, user)
    undo(world, chain, user)
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
    world.program.run("account", "activate", account, "--reason", "that was all", "--actor", "driver")
    return f"{said}, taken back, {'mined in vain, ' if came_in_vain else ''}mined again"
