"""Does on purpose what the oracle must notice: an oracle that never says no proves nothing. Each is done to a world at rest."""

from payout import keys
from payout.world import GWEI


def completed(world):
    return next(one for one in world.books.taken() if one.state == "completed" and one.payee is None and one.coin == "coin" and one.chain.kind == "evm")


def waiting(world, coins="3"):
    one = world.books.ask(coins=coins, chain=world.chain("anvil"), coin="coin")
    world.must_be_taken([one])
    return one


def pays(world, to, amount):
    chain = world.chain("anvil")
    address = next(iter(chain.wallets.values()))
    raw = keys.transaction(world.key_of(chain, address), chain.id_number, chain.next_nonce(address), to, amount, 100 * GWEI, 5 * GWEI)
    chain.honest.rpc("eth_sendRawTransaction", "0x" + raw.hex())
    chain.mine(1)


def paid_twice(world):
    """A destination gets the same again."""
    one = completed(world)
    pays(world, one.to, one.raw())
    return "PAID TWICE"


def paid_and_given_back(world):
    """What was called off is paid all the same."""
    one = waiting(world)
    if world.books.cancel(one).status != 200:
        world.fail(f"{one} was not called off")
    pays(world, one.to, one.raw())
    return "PAID ALTHOUGH it was given back"


def paid_what_was_refused(world):
    """What was refused is paid."""
    one = world.books.ask(coins="0.001", chain=world.chain("anvil"), coin="coin")
    pays(world, one.to, one.raw())
    return "PAID ALTHOUGH it was refused"


def called_completed(world):
    """What nobody has paid is said to be completed: the customer's money is gone."""
    one = waiting(world)
    world.write(f"UPDATE withdrawal_requests SET status = 'completed', payee_id = NULL, jobs = 1, queued_at = 1 WHERE id = {one.id[3:]}")
    return "the chain has 0 payments"


def called_failed(world):
    """What was paid is said to have failed."""
    one = completed(world)
    world.write(f"UPDATE withdrawal_requests SET status = 'failed' WHERE id = {one.id[3:]}")
    return "the chain has 1 payments"


def called_again(world):
    """What was called off waits again."""
    one = waiting(world)
    if world.books.cancel(one).status != 200:
        world.fail(f"{one} was not called off")
    world.write(f"UPDATE withdrawal_requests SET status = 'pending' WHERE id = {one.id[3:]}")
    return "TAKEN BACK"


def forgotten(world):
    """A withdrawal is no longer there."""
    one = waiting(world)
    world.write(f"UPDATE withdrawal_requests SET client_order_id = 'somebody-elses' WHERE id = {one.id[3:]}")
    return "NOBODY ASKED"


def other_amount(world):
    """One unit less is asked for."""
    one = waiting(world)
    world.write(f"UPDATE withdrawal_requests SET amount = amount - 1 WHERE id = {one.id[3:]}")
    return "asked for ("


def one_unit_more(world):
    """A customer has one unit more."""
    world.write(f"UPDATE accounts SET available = available + 1 WHERE owner = {world.customers[0]} AND id > 0")
    return "inside, completed"


def hold_lost(world):
    """A hold is let go, and the withdrawal waits on."""
    one = waiting(world)
    world.write(f"UPDATE accounts SET available = available + {one.units}, frozen = frozen - {one.units} WHERE owner = {one.user} AND frozen >= {one.units} "
                f"AND asset_id = (SELECT id FROM assets WHERE symbol = '{one.asset()}')")
    return "what waits is"


def fee_lost(world):
    """The house has not got the fee."""
    world.write("DELETE FROM movements WHERE to_account IN (SELECT id FROM accounts WHERE kind = 'fees')")
    return "in fees, wanted"


def stranded(world):
    """Nobody pays."""
    for worker in world.workers:
        if worker not in (world.servers[0], world.spot, world.signer):
            worker.kill()
    one = world.books.new(coins="0.5", chain=world.chain("anvil"))
    world.books.send(one, 1)
    # The servers are compared: the other one answers, and does nothing.
    world.places[2] = world.places[1]
    return "stranded"


SABOTAGES = [paid_twice, paid_and_given_back, paid_what_was_refused, called_completed, called_failed, called_again, forgotten, other_amount,
             one_unit_more, hold_lost, fee_lost, stranded]
