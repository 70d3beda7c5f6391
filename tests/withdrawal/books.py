"""What customers have asked for, and what they were told: books that no program of ours writes.

A request is one name of one customer. Whoever asks under a name again with the same content asks for the same; what has other content is another
`Ask` under the same name, and at most one of those is ever taken.
"""

import time
from collections import defaultdict

from payout.world import Job

from .client import Answer, code_of, is_nothing, is_unknown

ENDED = ("completed", "failed", "rejected", "cancelled")
RELEASED = ("failed", "rejected", "cancelled")
WAITING = ("pending", "manual_review", "approved", "queued")
# Where it may go from where it is. What is told later may skip states: nobody looks at every moment.
AFTER = {
    "pending": {"pending", "manual_review", "approved", "queued", *ENDED},
    "manual_review": {"manual_review", "pending", "approved", "queued", *ENDED},
    "approved": {"approved", "manual_review", "queued", *ENDED},
    # A hot wallet that has too little, and a signer that knows more: nobody may call it off all the same, but as state it is told.
    "queued": {"queued", "approved", "manual_review", "completed", "failed"},
    # A chain may take a payment back for good.
    "completed": {"completed", "failed"},
    "failed": {"failed"}, "rejected": {"rejected"}, "cancelled": {"cancelled"},
}


class Ask:
    """One content under a name."""

    def __init__(self, user, name, chain, coin, units, to, fee, payee):
        self.user, self.name, self.chain, self.coin, self.units, self.to = user, name, chain, coin, units, to
        # What it costs by the driver's own reckoning, and the customer who has the address, if somebody has.
        self.fee, self.payee = fee, payee
        self.id, self.state, self.refused, self.unknown, self.told = None, None, None, False, []
        # When the last answer about its state came.
        self.told_at = 0

    def body(self, world):
        shown = lambda units: world.written(self.chain, self.coin, units)  # noqa: E731
        return {"client_order_id": self.name, "asset": self.asset(), "chain": self.chain.name, "address": self.to,
                "amount": shown(self.units), "max_fee": shown(self.fee)}

    def asset(self):
        return self.chain.coins[self.coin].asset

    def raw(self):
        about = self.chain.coins[self.coin]
        return self.units * 10 ** (about.decimals - about.precision)

    def __str__(self):
        return f"{self.name} of customer {self.user} ({self.id or self.refused or 'unknown'}, last told: {self.state})"


class Books:
    def __init__(self, world):
        self.world = world
        self.asks, self.wrongs = [], []
        self.by_name = defaultdict(list)
        # By name: customers who were told that it is called off.
        self.called_off = set()

    # ---- asking ----------------------------------------------------------------------------------------------

    def new(self, user=None, chain=None, coin=None, coins=None, to=None, payee=None, name=None):
        """A wish that nobody was told of yet. Each has a destination of its own, unless one is named."""
        world = self.world
        chain = chain or world.random.choice(world.chains)
        coin = coin or world.random.choice(["coin", "token"])
        units = world.units(chain, coin, coins) if coins is not None else self.usual(chain, coin)
        user = user or world.random.choice(world.customers)
        to = to or (world.address_of(chain, payee) if payee else world.new_address(chain))
        with world.lock:
            name = name or f"order-{len(self.asks) + 1}"
            one = Ask(user, name, chain, coin, units, to, world.fee(chain, coin, units), payee)
            self.asks.append(one)
            self.by_name[user, name].append(one)
        world.counts["requests"] += 1
        return one

    def usual(self, chain, coin):
        """Mostly what nobody has to agree to."""
        random, precision = self.world.random, chain.coins[coin].precision
        if random.random() < 0.7:
            return random.randrange(10 ** precision // 100, 10 ** precision)
        return random.randrange(10 ** precision + 1, 30 * 10 ** precision)

    def send(self, one, server=None, patience=None):
        """Asks for it, once. What comes is written down, and given."""
        more = {} if patience is None else {"patience": patience}
        asked_at = time.monotonic()
        answer = self.world.post(server or self.world.some_server(), "/api/v1/withdrawals", one.user, one.body(self.world), **more)
        self.learn(one, answer, asked_at)
        return answer

    def send_batch(self, user, asks, server):
        """Many in one request, each with an outcome of its own."""
        asked_at = time.monotonic()
        answer = self.world.post(server, "/api/v1/withdrawals/batch", user, {"withdrawals": [one.body(self.world) for one in asks]})
        if answer.status != 200:
            for one in asks:
                self.learn(one, answer, asked_at)
            return answer
        for one, result in zip(asks, answer.body["results"], strict=True):
            said = result["withdrawal"] if "withdrawal" in result else {"error": result["error"]}
            self.learn(one, Answer(result["status"], said), asked_at)
        return answer

    def learn(self, one, answer, asked_at):
        with self.world.lock:
            one.told.append((answer.status, code_of(answer) or (answer.body.get("state") if isinstance(answer.body, dict) else answer.body)))
            if is_unknown(answer):
                one.unknown = True
            elif is_nothing(answer):
                # It says that nothing was done. What was asked before without an answer may have been.
                one.refused = one.refused or (None if one.id or one.unknown else code_of(answer))
            elif answer.status in (200, 202):
                one.unknown, one.refused = False, None
                self.see(one, answer.body, asked_at)
            elif one.id is not None:
                self.wrongs.append(f"{one} was taken, and the same again is answered {answer}")
            else:
                one.refused = code_of(answer) or f"{answer}"

    def ask(self, server=None, **what):
        one = self.new(**what)
        self.send(one, server)
        return one

    def ask_until_known(self, one):
        """As a customer whose answer did not come sends the same again."""
        self.world.wait_until(f"somebody says what became of {one.name}", lambda: not (is_unknown(said := self.send(one)) or is_nothing(said)))

    def forget(self):
        """The database was put back: what was told since the backup has not happened. Those who were told something else ask again."""
        with self.world.lock:
            for one in self.asks:
                one.state = None
                one.unknown = one.unknown or one.refused is None
            self.called_off.clear()

    # ---- being told ------------------------------------------------------------------------------------------

    def see(self, one, body, asked_at):
        """A withdrawal, as a server shows it."""
        said = (body["client_order_id"], body["asset"], body["chain"], body["address"], body["amount"], body["fee"])
        shown = lambda units: self.world.written(one.chain, one.coin, units)  # noqa: E731
        wanted = (one.name, one.asset(), one.chain.name, one.to, shown(one.units), shown(one.fee))
        if tuple(map(str.lower, said)) != tuple(map(str.lower, wanted)):
            self.wrongs.append(f"{one}: asked for {wanted}, and is told of {said}")
        if one.id not in (None, body["withdrawal_id"]):
            self.wrongs.append(f"TWO FOR ONE NAME: {one} is {body['withdrawal_id']} now")
        one.id = body["withdrawal_id"]
        for other in self.by_name[one.user, one.name]:
            if other is not one and other.id:
                self.wrongs.append(f"TWO FOR ONE NAME: {one} and {other}")
        new, old = body["state"], one.state
        # Of two that were asked at the same time, nobody knows which answer is the older.
        if asked_at < one.told_at and old and old in AFTER[new]:
            return
        if old and new not in AFTER[old]:
            self.wrongs.append(f"TAKEN BACK: {one} is {new}")
        one.state, one.told_at = new, time.monotonic()

    def look(self, one, server=None):
        """Where it stands, if it is there."""
        asked_at = time.monotonic()
        answer = self.world.get(server or self.world.some_server(), f"/api/v1/withdrawals/{one.id}", one.user)
        if answer.status == 200:
            with self.world.lock:
                self.see(one, answer.body, asked_at)
        return answer

    def all_of(self, server, user):
        """Every page of a customer's list, as the server has it, or None."""
        found, cursor = [], ""
        while True:
            answer = self.world.get(server, f"/api/v1/withdrawals?limit=200{cursor}", user)
            if answer.status != 200:
                return None
            found += answer.body["withdrawals"]
            if "next_cursor" not in answer.body:
                return found
            cursor = f"&cursor={answer.body['next_cursor']}"

    # ---- what customers do -----------------------------------------------------------------------------------

    def cancel(self, one, server=None):
        asked_at = time.monotonic()
        answer = self.world.post(server or self.world.some_server(), f"/api/v1/withdrawals/{one.id}/cancel", one.user, None)
        if answer.status == 200:
            with self.world.lock:
                self.see(one, answer.body, asked_at)
                if answer.body["state"] != "cancelled":
                    self.wrongs.append(f"{one} is called off, and is {answer.body['state']}")
                self.called_off.add((one.user, one.name))
        return answer

    # ---- for others ------------------------------------------------------------------------------------------

    def taken(self):
        return [one for one in self.asks if one.id]

    def jobs(self):
        """By name of the job: what may be paid on a chain. Those of which nobody knows have names of their own."""
        with self.world.lock:
            return {one.id or f"{one.user}/{one.name}/{number}": Job(one.id, one.id or one.name, one.chain.name, one.coin, one.raw(), one.chain.key(one.to))
                    for number, one in enumerate(self.asks) if one.payee is None}
