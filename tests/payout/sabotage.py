"""Does on purpose what the oracle must notice: an oracle that never says no proves nothing. Each is done to a world at rest."""

import sqlite3

from . import keys
from .world import GWEI


def write(world, sql):
    with sqlite3.connect(world.program.url[9:], timeout=30) as connection:
        # The database itself refuses most of it.
        connection.execute("PRAGMA ignore_check_constraints = ON")
        assert connection.execute(sql).rowcount, sql
    connection.close()


def any_paid(world):
    chain = world.chain("anvil")
    return chain, next(job for job in world.jobs.values() if job.chain == chain.name and job.coin == "coin")


def pays_again(world, chain, job, nonce_off=0):
    address = world.random.choice(list(chain.wallets.values()))
    nonce = chain.next_nonce(address) + nonce_off
    return keys.transaction(world.key_of(chain, address), chain.id_number, nonce, job.to, job.amount, 100 * GWEI, 5 * GWEI)


def paid_twice(world):
    """A recipient gets the same again."""
    chain, job = any_paid(world)
    chain.honest.rpc("eth_sendRawTransaction", "0x" + pays_again(world, chain, job).hex())
    chain.mine(1)
    return "PAID TWICE"


def two_slots(world):
    """A node is told to pay in a second slot, and nothing is mined."""
    chain, job = any_paid(world)
    chain.told.append(pays_again(world, chain, job, 5).hex())
    return "may still be mined"


def no_job(world):
    """A wallet pays somebody who is nobody's recipient."""
    chain, _ = any_paid(world)
    address = next(iter(chain.wallets.values()))
    hash_ = world.steal(chain, address, chain.next_nonce(address))
    world.foreign.remove(hash_)
    chain.mine(1)
    return "which is no job"


def called_failed(world):
    """A job that was paid is said to have failed."""
    _, job = any_paid(world)
    write(world, f"UPDATE outbound_jobs SET state = 'failed_final' WHERE reference = '{job.reference}'")
    return "the chain has 1 payments"


def called_paid(world):
    """A job that nobody has paid is said to be confirmed."""
    for worker in world.workers:
        worker.kill()
    job = world.add(world.chain("anvil"))[0]
    write(world, f"UPDATE outbound_jobs SET state = 'confirmed' WHERE reference = '{job.reference}'")
    return "the chain has 0 payments"


def stranded(world):
    """Nobody sends."""
    for worker in world.workers:
        worker.kill()
    world.add(world.chain("anvil"))
    return "stranded"


def hole(world):
    """The books do not have a fee."""
    first = "(SELECT MIN(listing_id) FROM wallet_balances)"
    write(world, f"UPDATE wallet_balances SET on_chain_balance_raw = on_chain_balance_raw || '0' WHERE listing_id = {first}")
    return "by the books"


SABOTAGES = [paid_twice, two_slots, no_job, called_failed, called_paid, stranded, hole]
