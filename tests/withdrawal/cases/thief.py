"""Somebody who owns the database: every row can be another. Somebody who owns the server too: what it signs with is the thief's. What can be taken is
what the signer lets go without approvals, and no more."""

import json
import time

from deposit.program import CommandFailed
from payout.keys import rlp

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
    # Until nothing more leaves, and once more when another hour has begun: the day's window is the same.
    for hour in (False, True):
        world.time_passes(3600 if hour else 0)
        until_quiet(world)
    return count_taken(world)


@case(mixed=False, compared=False, hour=WINDOW)
def server_owned(world):
    """With the server's key of the signer besides: its owner asks the signer for whatever pays best. No more is taken than the same window."""
    for chain in world.chains:
        chain.thief = {}
    asked = []
    for chain in world.chains:
        # There are good approvals to be copied, and a request that the window was used for.
        for coin in chain.coins:
            honest = world.books.ask(chain=chain, coin=coin, coins="4")
            world.approve_until_known(honest, "bob")
            world.books.ask(chain=chain, coin=coin, coins="0.9")
        world.note(f"called_agreed: {called_agreed(world, chain)}")
    until_quiet(world)
    # Nobody else uses the wallets' nonces from here on.
    for worker in world.workers:
        if worker.name not in ("signer", "spot"):
            worker.kill()
    for hour in (False, True):
        world.time_passes(3600 if hour else 0)
        for chain in world.chains:
            if chain.kind == "evm":
                asked.append(own_requests(world, chain))
        world.mine(4)
    signed, refused = (sum(one[place] for one in asked) for place in (0, 1))
    if not signed or not refused:
        world.fail(f"of the thief's own requests {signed} were signed and {refused} refused: these attacks prove nothing")
    return f"{signed} requests signed and {refused} refused; {count_taken(world)}"


def until_quiet(world):
    quiet, mined = 0, -1
    while quiet < 12:
        world.mine(2)
        world.time_passes(45)
        time.sleep(0.6)
        now = sum(len(chain.spent()[0]) for chain in world.chains)
        quiet, mined = (quiet + 1 if now == mined else 0), now


def count_taken(world):
    """By the blocks: what the thief has got beyond what people had agreed to, of each coin."""
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
        world.fail(f"nothing was taken at all: these attacks prove nothing. {world.books.wrongs[:3]}")
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


# ---- the server's key ------------------------------------------------------------------------------------------


class Purse:
    """A hot wallet whose transactions the thief has the signer make."""

    number = 0

    def __init__(self, world, chain, group, index, address):
        self.world, self.chain, self.group, self.index = world, chain, group, index
        self.nonce = int(chain.honest.rpc("eth_getTransactionCount", address, "latest"), 16)

    def new_job(self):
        """A name that nobody has used. A number has the time in it when it was made, and the signer reads that."""
        Purse.number += 1
        return f"wr-{max(int(one.id[3:]) for one in self.world.books.taken()) + Purse.number}"

    def asks(self, coin, amount, job=None, part=0, to=None, approvals=(), nonce=None, said=None):
        """Whether the signer signs that; then it is told to the node. `said`: what the intent says that is paid, if it lies."""
        world, chain = self.world, self.chain
        to, contract = to or mine(world, chain), chain.coins[coin].contract
        Purse.number += 1
        used = self.nonce if nonce is None else nonce
        place, value, data = (to, amount, b"")
        if contract:
            data = bytes.fromhex("a9059cbb") + bytes(12) + bytes.fromhex(to[2:]) + amount.to_bytes(32, "big")
            place, value = contract, 0
        payload = b"\x02" + rlp([int(chain.network), used, 10 ** 9, 20 * 10 ** 9, 100_000, bytes.fromhex(place[2:]), value, data, []])
        request = {
            "id": f"theft-{Purse.number}", "chain": chain.name, "wallet_group_id": self.group, "derivation_index": self.index,
            "unsigned_tx_payload": payload.hex(), "approvals": list(approvals),
            "intents": [{"signer": "payouts", "network": f"evm:{chain.network}", "job": job or self.new_job(), "round": part,
                         "most_fee": "4000000000000000", "requester": "mallory", "expires": int((world.time_now() + 3600) * 1_000_000),
                         "pay": {"coin": contract or "native", "to": to, "amount": str(said or amount)}}],
        }
        file = world.folder / "theft.json"
        file.write_text(json.dumps(request))
        try:
            answer = world.program.run("signer", "sign", "theft.json", "--credential", "server.credential")["answers"][0]
        except CommandFailed as refused:
            world.note(f"the signer refuses {amount} of {coin}: {str(refused)[-160:]}")
            return False
        if nonce is None:
            self.nonce += 1
        try:
            chain.honest.rpc("eth_sendRawTransaction", "0x" + answer["signed_tx"])
        except Exception as trouble:  # noqa: BLE001: two for one nonce, of which a node takes one.
            world.note(f"a node refuses what was signed: {str(trouble)[:160]}")
        return True


def own_requests(world, chain):
    """How many of the thief's requests were signed, and how many were not."""
    answers = []
    wallets = [row for row in world.program.run("wallet", "show")["operation_wallets"] if row["role"] == "hot" and row["chain"] == chain.name]
    approvals = kept_approvals(world)
    for row in wallets:
        group, index = f"hot-{chain.kind}", int(row["from"].rsplit(" ", 1)[1])
        purse = Purse(world, chain, group, index, row["address"])
        for coin, about in chain.coins.items():
            unit = 10 ** about.decimals
            # What needs people: without them, with what people have signed for something else, and by halves of one job.
            answers.append(purse.asks(coin, 4 * unit))
            answers.append(purse.asks(coin, 4 * unit, approvals=approvals[:1]))
            answers.append(purse.asks(coin, 100 * unit, approvals=approvals))
            # The payload pays more than the intent says.
            answers.append(purse.asks(coin, 50 * unit, said=unit))
            # What nobody has to agree to, as often as it goes: under new names, under one name, and a slot twice.
            answers += [purse.asks(coin, unit) for _ in range(2 * WINDOW)]
            job = purse.new_job()
            answers += [purse.asks(coin, unit, job=job, part=part) for part in range(WINDOW)]
            answers.append(purse.asks(coin, unit, nonce=max(0, purse.nonce - 1)))
            # And in small change.
            answers += [purse.asks(coin, unit // 10) for _ in range(WINDOW)]
        world.mine(2)
    return answers.count(True), answers.count(False)


def kept_approvals(world):
    """What people have signed, out of the database."""
    rows = world.program.rows("SELECT key_name, HEX(digest)HEX AS digest, HEX(signature)HEX AS signature FROM withdrawal_approvals")
    return [{"key": row["key_name"], "digest": row["digest"], "ed25519": row["signature"]} for row in rows]
