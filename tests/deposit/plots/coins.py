"""How coins come: many outputs, contracts, remainders, tokens that are not what they seem."""

from ..tokens import BALANCES, NOTHING, TRANSFERS
from ..world import USUAL
from . import any_user, plot
from .usual import several

EVERYTHING = 2 ** 256 - 1


def usual_coins(chain):
    return [name for name in USUAL if name in chain.coins]


@plot(1, times=2)
def ten_outputs(world):
    """Ten outputs of one transaction pay one address, some of them the same amount. On Bitcoin, and by a contract on anvil."""
    chains = [chain for chain in world.chains if hasattr(chain, "pay_many") or hasattr(chain, "pay_inside")]
    if not chains:
        return several(world)
    said = []
    for chain in chains:
        address, least = world.address_of(chain, any_user(world)), chain.coins["coin"].least
        amounts = [least * (1 + number // 2) + number % 2 for number in range(10)]
        for amount in amounts:
            world.promise(chain, address, "coin", amount)
        pay = getattr(chain, "pay_many", None) or chain.pay_inside
        pay([(address, amount) for amount in amounts])
        chain.mine(1)
        said.append(f"ten outputs on {chain.name} to {address}")
    return "; ".join(said)


@plot(1, times=2)
def by_contract(world):
    """A contract pays a token, a contract pays coins, and a contract that is made only to end leaves its coins. Only on anvil."""
    chain = world.chain("anvil")
    if not chain:
        return several(world)
    said = []
    for coin in ("coin", "minted"):
        address, amount = world.address_of(chain, any_user(world)), world.amount(chain, coin)
        world.promise(chain, address, coin, amount)
        chain.pay_by_call(address, coin, amount)
        said.append(f"{amount} of {chain.coins[coin].asset} to {address} by a call")
    address, amount = world.address_of(chain, any_user(world)), world.amount(chain, "coin")
    world.promise(chain, address, "coin", amount)
    chain.pay_as_legacy(address, amount)
    chain.mine(1)
    return "; ".join([*said, f"{amount} left to {address}"])


@plot(1, times=1)
def coinbase(world):
    """A miner's reward is paid to a user: it is credited when it can be spent, and not before. Only on Bitcoin."""
    chain = world.chain("bitcoin")
    if not chain:
        return several(world)
    address = world.address_of(chain, any_user(world))
    amount = chain.mine_to(address)
    world.promise(chain, address, "coin", amount)
    # Some of them are waited for.
    blocks = world.random.choice([1, 80, 110])
    chain.mine(blocks)
    return f"{amount} are a miner's at {address}, {blocks} blocks ago"


@plot(0, times=1)
def house_everywhere(world):
    """Every usual coin of every chain is paid to each of the house's addresses: hot, gas and treasury."""
    paid = 0
    for chain in world.chains:
        for key, owner in list(world.owners[chain.name].items()):
            if owner is None:
                for coin in usual_coins(chain):
                    amount, address = world.amount(chain, coin), world.shown[chain.name][key]
                    world.promise(chain, address, coin, amount)
                    chain.pay(address, coin, amount)
                    paid += 1
        chain.mine(1)
    return f"{paid} payments to the house"


@plot(1, times=2)
def remainders(world):
    """Amounts that are no whole number of ledger units, which add up to some."""
    said = []
    for chain in world.chains:
        for coin in usual_coins(chain):
            about = chain.coins[coin]
            unit = 10 ** (about.decimals - about.precision)
            user = any_user(world)
            for rest in (unit - 1, unit // 2, unit - unit // 2, 1) if unit > 1 else (1,):
                world.pay(chain, user, coin, about.least + rest)
            said.append(f"{about.asset} on {chain.name} to user {user}")
        chain.mine(1)
    return "; ".join(said)


@plot(0, times=1)
def everything(world):
    """As much of a token as there can be, 2^256 - 1, is paid to two users, and something ordinary to a third. Only on anvil."""
    chain = world.chain("anvil")
    if not chain:
        return several(world)
    for _ in range(2):
        world.pay(chain, world.new_user(), "minted", EVERYTHING)
    chain.mine(1)
    said = world.pay(chain, world.new_user(), "minted", 7 * chain.coins["minted"].least)
    chain.mine(1)
    return f"twice 2^256 - 1, and {said}"


@plot(1, times=2)
def taxed(world):
    """A token keeps a hundredth of what is sent: the user gets what came, as its log says. Only on anvil."""
    chain = world.chain("anvil")
    if not chain:
        return several(world)
    said = [world.pay(chain, any_user(world), "taxed") for _ in range(2)]
    chain.mine(1)
    return "; ".join(said)


@plot(1, times=2)
def paused(world):
    """A token is paused: what is sent then is refused by it, and nobody is credited. Only on anvil."""
    chain = world.chain("anvil")
    if not chain:
        return several(world)
    before = world.pay(chain, any_user(world), "minted")
    chain.mine(1)
    chain.refuse("minted", TRANSFERS)
    address = world.address_of(chain, any_user(world))
    chain.pay(address, "minted", 5 * chain.coins["minted"].least)
    chain.mine(1)
    chain.refuse("minted", NOTHING)
    return f"{before}; refused to {address}; {world.pay(chain, any_user(world), 'minted')}"


@plot(0, times=1)
def speechless(world):
    """A token says no balances for a while. What else is paid meanwhile is credited; what is paid of it, later. Only on anvil."""
    chain = world.chain("anvil")
    if not chain:
        return several(world)
    chain.refuse("minted", BALANCES)
    user, other = world.new_user(), world.new_user()
    said = [world.pay(chain, user, "minted", 3 * chain.coins["minted"].least), world.pay(chain, other, "token", 3 * chain.coins["token"].least)]
    chain.mine(chain.final + 1)
    world.wait_for_deposit(other, 0, "final")
    chain.refuse("minted", NOTHING)
    return "; ".join(said)


@plot(0, times=1)
def fees(world):
    """Whoever makes blocks pays the fees to a user's address: no transaction shows it. Somebody must be told. Only on anvil."""
    chain = world.chain("anvil")
    if not chain:
        return several(world)
    address = world.address_of(chain, world.new_user())
    world.unseen.add((chain.name, chain.key(address)))
    chain.mine_for(address)
    world.rest()
    # What is found is booked when blocks stand on the one at which it was found.
    world.wait_until("a finding names it", lambda: chain.key(address) in world.oracle.named_addresses())
    return f"the fees of a block were paid to {address}"


def pay_odd(world, coin):
    """Once to a new user, beside something ordinary. Then blocks above the payment are others, then its own is."""
    chain = world.chain("anvil")
    if not chain:
        return several(world)
    said = [world.pay(chain, world.new_user(), coin, 7 * chain.coins[coin].least + 1), world.pay(chain, any_user(world), "token")]
    chain.mine(1)
    paid, _ = chain.tip()
    for fate in ("moved", "dropped"):
        world.rest()
        world.agree()
        height, _ = chain.tip()
        depth = 3 if fate == "moved" else height - paid + 1
        if height <= chain.highest and depth <= chain.deepest + 10:
            chain.reorg(depth, fate)
            world.counts["reorganisations"] += 1
    return "; ".join(said)


@plot(0, times=1)
def unpaid(world):
    """A token logs what it does not pay. Nobody may be credited, and somebody must be told. Only on anvil."""
    return pay_odd(world, "unpaid")


@plot(0, times=1)
def air(world):
    """A token logs twice that it pays all that there can be to one address, and pays nothing. Others are credited as ever. Only on anvil."""
    chain = world.chain("anvil")
    if not chain:
        return several(world)
    user = world.new_user()
    said = [world.pay(chain, user, "unpaid", EVERYTHING) for _ in range(2)] + [world.pay(chain, world.new_user(), "minted")]
    chain.mine(1)
    return "; ".join(said)


@plot(0, times=1)
def overstated(world):
    """A token logs more than it pays. Nobody may be credited with more than came. Only on anvil."""
    return pay_odd(world, "overstated")


@plot(0, times=1)
def unlogged(world):
    """A token pays and logs nothing. Somebody must be told. Only on anvil."""
    return pay_odd(world, "unlogged")
