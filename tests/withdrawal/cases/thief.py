"""Somebody who owns the database: every row can be another. What can be taken is what the signer lets go without approvals."""

import time

from . import case

WINDOW = 6


@case(mixed=False, compared=False, hour=WINDOW)
def database_owned(world):
    """With SQL as its owner: destinations, amounts, states, approvals, policies, balances. No more is taken than the signer's window."""
    books = world.books
    for chain in world.chains:
        # By address: what people have agreed to be paid there.
        chain.thief = {}
    attacks = [moved_destinations, raised_amounts, called_agreed, copied_approvals, loose_policy, made_up_money, stolen_limits, made_up_jobs]
    for attack in attacks:
        for chain in world.chains:
            world.note(f"{attack.__name__}: {attack(world, chain)}")
    for _ in range(12):
        world.mine(2)
        world.time_passes(45)
        time.sleep(0.6)
    lines, worst = [], []
    for chain in world.chains:
        paid = world.oracle.paid(chain.spent()[0])
        for coin, about in chain.coins.items():
            taken = sum(max(0, amount - agreed) for to, agreed in chain.thief.items() for _, name, amount in paid.get(to, []) if name == coin)
            lines.append(f"{taken / 10 ** about.decimals:g} of {WINDOW} {about.asset} on {chain.name}")
            if taken > WINDOW * 10 ** about.decimals:
                worst.append(lines[-1])
        gone = sum(one.fee for one in chain.spent()[0])
        lines.append(f"{gone} for fees on {chain.name}")
    if worst:
        world.fail(f"more was taken than the signer lets go without approvals: {worst}")
    if not any(world.oracle.paid(chain.spent()[0]).get(to) for chain in world.chains for to, agreed in chain.thief.items() if not agreed):
        world.fail(f"nothing was taken at all: these attacks prove nothing. {books.wrongs[:3]}")
    return "taken: " + ", ".join(lines)


def mine(world, chain, agreed=0):
    """An address of the thief."""
    to = world.new_address(chain)
    chain.thief[chain.key(to)] = agreed
    return to


def sql(world, *statements):
    """What the database itself refuses is no attack that failed: its owner takes triggers away first."""
    for one in statements:
        try:
            world.write(one)
        except Exception as refused:  # noqa: BLE001: an attack that does not fit these tables.
            world.note(f"the database refuses {one[:90]}: {str(refused)[:200]}")


def moved_destinations(world, chain):
    """Small ones that wait for their job, and big ones that people have agreed to, are paid to somebody else."""
    asks = [world.books.ask(chain=chain, coin=coin, coins="0.9") for coin in chain.coins]
    big = [world.books.ask(chain=chain, coin=coin, coins="4") for coin in chain.coins]
    for one in big:
        world.approve_until_known(one, "bob")
    for one in [*asks, *big]:
        to = mine(world, chain)
        sql(world, f"UPDATE withdrawal_requests SET to_address = '{to}' WHERE id = {one.id[3:]}",
            f"UPDATE outbound_jobs SET to_address = '{to}' WHERE reference = '{one.id}'")
    return f"{len(asks) + len(big)} destinations"


def raised_amounts(world, chain):
    """What people have agreed to is made more."""
    for coin in chain.coins:
        about = chain.coins[coin]
        one = world.books.ask(chain=chain, coin=coin, coins="4", to=mine(world, chain, 4 * 10 ** about.decimals))
        units, raw = 400 * one.units, 400 * one.raw()
        world.approve_until_known(one, "carol")
        sql(world, f"UPDATE withdrawal_requests SET amount = {units}, most_fee = {units} WHERE id = {one.id[3:]}",
            f"UPDATE outbound_jobs SET amount_raw = '{raw}' WHERE reference = '{one.id}'")
    return "a thousand coins each"


def called_agreed(world, chain):
    """Nobody has agreed, and the row says that it is approved and wants nobody."""
    for coin in chain.coins:
        one = world.books.ask(chain=chain, coin=coin, coins="15", to=mine(world, chain))
        sql(world, f"UPDATE withdrawal_requests SET status = 'approved', people = 0 WHERE id = {one.id[3:]}")
    return "15 coins each"


def copied_approvals(world, chain):
    """The good approvals of one stand in another's name."""
    for coin in chain.coins:
        honest = world.books.ask(chain=chain, coin=coin, coins="4")
        world.approve_until_known(honest, "dan")
        one = world.books.ask(chain=chain, coin=coin, coins="4", to=mine(world, chain))
        for table, column in world.approval_tables():
            sql(world, f"UPDATE {table} SET {column} = {one.id[3:]} WHERE {column} = {honest.id[3:]}")
        sql(world, f"UPDATE withdrawal_requests SET status = 'approved' WHERE id = {one.id[3:]}")
    return "the approvals of two"


def loose_policy(world, chain):
    """Nobody has to agree to anything any more."""
    sql(world, "UPDATE withdrawal_policies SET auto_approve = 9000000000000, two_above = 9000000000000, many_above = 9000000000000")
    asks = [world.books.ask(chain=chain, coin=coin, coins="100", to=mine(world, chain)) for coin in chain.coins]
    return f"{sum(1 for one in asks if one.state == 'approved')} of {len(asks)} approved by themselves"


def made_up_money(world, chain):
    """A customer who has a fortune by the books asks for many small ones, to which nobody has to agree."""
    sql(world, "UPDATE accounts SET available = 900000000000 WHERE kind = 'funding'", "UPDATE accounts SET available = 900000000000 WHERE id > 0")
    asks = [world.books.ask(chain=chain, coin=coin, coins="1", to=mine(world, chain)) for coin in chain.coins for _ in range(3 * WINDOW)]
    return f"{sum(1 for one in asks if one.id)} of {len(asks)} taken"


def stolen_limits(world, chain):
    """Days are emptied, switches thrown back, and the jobs that rest are due at once."""
    sql(world, "DELETE FROM withdrawal_days", "UPDATE outbound_jobs SET due_at = 0, tries = 0")
    return "no limits"


def made_up_jobs(world, chain):
    """Jobs that rest are given the thief's address, another amount and another life."""
    to = mine(world, chain)
    sql(world, f"UPDATE outbound_jobs SET to_address = '{to}', due_at = 0 WHERE state IN ('queued', 'failed_retryable') AND chain_id = "
               f"(SELECT id FROM chains WHERE name = '{chain.name}') AND id % 2 = 0")
    return to
