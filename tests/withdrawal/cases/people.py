"""Approvals: good, forged, missing; refusals."""

import time

from . import case


@case()
def agreed(world):
    """As many people agree as the amount wants, and it is paid; one too few, and it is not."""
    asks = []
    for coins, people in (("3", 1), ("12", 2), ("40", 3)):
        one = world.books.ask(coins=coins)
        world.ask_until_known(one)
        world.must_be_taken([one])
        asks.append(one)
        for number, person in enumerate(world.random.sample(world.approvers(), people)):
            world.look_until(one, "pending", f"{number} people have agreed, and it wants {people}")
            world.approve_until_known(one, person)
    world.wait_for(asks, "completed", mines=True)
    return f"{len(asks)} requests"


@case()
def rejected(world):
    """A person says no, once or twice, and the customer has the money back once."""
    one = world.books.ask(coins="3")
    world.ask_until_known(one)
    world.must_be_taken([one])
    world.at_once(lambda: world.reject(one, 1), lambda: world.reject(one, 2))
    world.wait_until("it is refused", lambda: world.reject(one) and world.books.look(one).status == 200 and one.state in ("rejected", "cancelled"))
    return str(one)


@case()
def forged_approval(world):
    """Signatures that are no good: another's key, another withdrawal's digest, one bit, a person twice, nobody's name. None counts."""
    books, keys = world.books, world.people_keys
    one, other = books.ask(coins="12"), books.ask(coins="12.5")
    for wish in (one, other):
        world.ask_until_known(wish)
    world.must_be_taken([one, other])
    digest, others = world.digest(one), world.digest(other)
    if digest == others:
        world.fail("two withdrawals have one digest")
    good = keys.signature("bob", digest)
    bad = [("bob", digest, keys.signature("mallory", digest)), ("bob", digest, keys.signature("carol", digest)),
           ("bob", others, keys.signature("bob", others)), ("bob", digest, keys.signature("bob", others)),
           ("bob", digest, good[:-2] + f"{int(good[-2:], 16) ^ 1:02x}"), ("bob", digest[:-1] + ("0" if digest[-1] != "0" else "1"), good),
           ("mallory", digest, keys.signature("mallory", digest)), ("bob", digest, ""), ("bob", digest, "00" * 64)]
    for person, of, signature in bad:
        for server in world.places:
            answer = world.send_approval(one, person, of, signature, server)
            if answer.status == 200:
                world.fail(f"{person}'s approval was taken: {of} {signature} {answer}")
    # A token of somebody else than the key's person.
    answer = world.send_approval(one, "carol", digest, good, key="bob-laptop")
    if answer.status == 200:
        world.fail(f"carol has sent what bob signed, and it was taken as hers: {answer}")
    # Neither a customer's token nor one of a person who may not.
    for person in ("olga", "7", "mallory"):
        answer = world.send_approval(one, person, digest, good, key="bob-laptop")
        if answer.status == 200:
            world.fail(f"{person} has approved: {answer}")
    for server in world.places:
        world.approve_until_known(one, "bob", server)
    world.look_until(one, "pending", "one person has agreed, twice")
    time.sleep(1)
    world.look_until(one, "pending", "one person has agreed, twice")
    world.approve_until_known(one, "dan")
    world.wait_for([one], "completed", mines=True)
    world.look_until(other, "pending", "what was signed for another is none of its own")
    return f"{len(bad)} forgeries"


@case(mixed=False, compared=False)
def approvals_travel_to_signer(world):
    """Above the signer's window nothing is signed without approvals, whatever the rows say; with them it is."""
    for chain in world.chains:
        bare, signed = [world.books.ask(chain=chain, coins=coins) for coins in ("3.5", "3.25")]
        world.must_be_taken([bare, signed])
        # A row that says that people have agreed. They have not.
        world.write(f"UPDATE withdrawal_requests SET status = 'approved' WHERE id = {bare.id[3:]}")
        world.approve_until_known(signed, "carol")
        world.wait_for([signed], "completed", mines=True)
        for _ in range(6):
            world.mine()
            world.time_passes(40)
            time.sleep(0.5)
        if chain.key(bare.to) in world.oracle.paid(chain.spent()[0]):
            world.fail(f"{bare} was paid, and nobody has agreed")
        world.note(f"{bare} was not paid: {world.oracle.why(bare)}")
    world.must_hold()
    return "two on each chain"
