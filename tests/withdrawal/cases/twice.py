"""Names that are used twice, answers that do not come, cancels, approvals and requests at once."""

import http.client
import json
import time

from .. import client
from . import case


@case()
def two_servers_one_name(world):
    """One name to both servers at once: with one content it is one withdrawal, with two contents one of them is refused."""
    books = world.books
    for _ in range(4):
        chain, user = world.random.choice(world.chains), world.random.choice(world.customers)
        same = books.new(user=user, chain=chain, coins="0.11")
        world.at_once(*[lambda server=server: books.send(same, server) for server in [*world.places] * 3])
        one = books.new(user=user, chain=chain, coins="0.12")
        other = books.new(user=user, chain=chain, coins="0.13", name=one.name)
        world.at_once(*[lambda what=what, server=server: books.send(what, server) for what in (one, other) for server in [*world.places] * 2])
        for what in (same, one, other):
            world.ask_until_known(what)
        world.must_be_taken([same])
        if bool(one.id) == bool(other.id) or "DUPLICATE_REQUEST" not in (one.refused, other.refused):
            world.fail(f"one of two contents is taken, the other is a duplicate: {one} {one.told}, {other} {other.told}")
    return "4 names, each to both servers at once"


@case(timed=True)
def timeout_then_same_again(world):
    """A server stands still while it is asked; the customer has no answer, asks the other one, and then the first again."""
    books, asks = world.books, []
    for server in world.places:
        other = next(one for one in world.places if one != server)
        worker = world.servers[server - 1]
        if not worker.runs():
            world.start_all()
            world.wait_until("both servers answer", world.all_answer)
        one = books.new(coins="0.21")
        asks.append(one)
        worker.pause()
        try:
            answer = books.send(one, server, patience=1)
            if answer.status is not None:
                world.fail(f"a server that stands still has answered {answer}")
            world.ask_until_known(one, other)
        finally:
            worker.go_on()
        # What it was asked before it stood still is done now, if at all.
        world.ask_until_known(one, server)
        # An answer that nobody waited for: the request may be read, or not.
        late = books.new(coins="0.22")
        asks.append(late)
        books.send(late, server, patience=world.random.choice([0.001, 0.003, 0.01, 0.03]))
        world.ask_until_known(late, other)
    world.must_be_taken(asks)
    return f"{len(asks)} requests"


@case(timed=True)
def kill_between_hold_and_answer(world):
    """A server is killed as soon as the money is held, and the customer never hears of it; the same again is the same."""
    books = world.books
    for server in [*world.places] * 2:
        world.start_all()
        world.wait_until("both servers answer", world.all_answer)
        one = books.new(coins="0.31")
        connection = http.client.HTTPConnection(world.places[server], timeout=client.PATIENCE_S)
        bearer = client.token(world.secrets["customers"], "customers", one.user, world.time_now())
        asked_at = time.monotonic()
        connection.request("POST", "/api/v1/withdrawals", json.dumps(one.body(world)),
                           {"Authorization": f"Bearer {bearer}", "Content-Type": "application/json"})
        sql = f"SELECT COUNT(*) AS count FROM withdrawal_requests WHERE user_id = {one.user} AND client_order_id = '{one.name}'"
        world.wait_until("the money is held", lambda: world.program.rows(sql)[0]["count"])
        world.servers[server - 1].kill()
        connection.close()
        world.counts["kills"] += 1
        books.learn(one, client.Answer(None, "killed"), asked_at)
        world.ask_until_known(one, next(other for other in world.places if other != server))
        world.must_be_taken([one])
    world.start_all()
    return "4 servers killed"


@case()
def cancel_approve_retry(world):
    """Called off, agreed to, asked for again and refused at once, at both servers: it is paid once or given back once, never both."""
    books, asks = world.books, []
    for number in range(6):
        # Every other one waits for a person; the rest is on its way to be paid at once.
        one = books.ask(coins="2" if number % 2 else "0.4")
        world.ask_until_known(one)
        world.must_be_taken([one])
        asks.append(one)
        if number % 2 == 0 and world.random.random() < 0.5:
            world.pace()
        first, second = world.random.sample([*world.places], 2)
        calls = [lambda: books.cancel(one, first), lambda: books.send(one, second), lambda: books.cancel(one, second), lambda: books.send(one, first),
                 lambda: world.approve(one, "bob", second), lambda: world.approve(one, "carol", first), lambda: world.retry(one, first)]
        if world.random.random() < 0.3:
            calls.append(lambda: world.reject(one, second))
        world.random.shuffle(calls)
        world.at_once(*calls)
        if world.random.random() < 0.5:
            world.mine()
    world.must_hold()
    return f"{len(asks)} requests"
