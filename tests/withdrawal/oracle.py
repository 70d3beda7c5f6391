"""What is demanded of withdrawals. What was paid is read from the blocks by the driver itself; what was asked and told stands in the customers' books.

| what | must be |
|---|---|
| a destination, at any time | paid once at most, the exact amount, by a wallet of ours; and only if its request was taken and not given back |
| all bytes that any node was told of | as for payouts |
| a name of a customer, at any time | one withdrawal at most, with the content that was asked for; what was told to have ended has ended |
| of each customer and asset, at rest | asked = completed + released + refused + waiting; completed: the chain has paid it, or it was settled inside |
| of each customer and asset, at rest | balance = what was credited − completed − its fees; of that frozen is what waits, with its fees |
| a withdrawal that is `completed`, at rest | paid on the chain once, or inside, never both |
| one that is `failed`, `rejected` or `cancelled` | not paid |
| one that is `approved` or `queued` at rest | there is none: it would be stranded |
| a withdrawal that nobody asked for | there is none, on no server |
| `fees` and `suspense` in the ledger | the fees of what is completed; what strangers have paid to the house |
| wallets, their books, lanes, slots and the audit | as for payouts |
"""

from collections import Counter, defaultdict

from deposit.program import CommandFailed
from payout.oracle import Oracle as PayoutOracle

from .books import RELEASED, WAITING

# What does not go away by waiting.
NEVER = ("ended by itself", "PAID TWICE", "PAID ALTHOUGH", "TWO FOR ONE NAME", "TAKEN BACK", "may still be mined", "FOR NOTHING", "NOBODY ASKED",
         "asked for (", "and the same again is answered", "is called off, and is")


class Oracle(PayoutOracle):
    def __init__(self, world):
        super().__init__(world)

    # ---- at any time -----------------------------------------------------------------------------------------

    def wrongs(self):
        found = super().wrongs() + list(self.world.books.wrongs)
        for chain in self.world.chains:
            found += self.paid_wrongly(chain)
        return found

    def paid_wrongly(self, chain):
        """Nobody is paid who was told that it was refused, given back or called off, nor whoever was never told that it was taken."""
        found, paid = [], self.paid(chain.spent()[0])
        for one in self.world.books.asks:
            if one.chain is not chain or chain.key(one.to) not in paid:
                continue
            if one.payee is not None:
                found.append(f"PAID ALTHOUGH the address is a customer's: {one}")
            elif one.state in RELEASED:
                found.append(f"PAID ALTHOUGH it was given back: {one}, {one.told}")
            elif one.refused and not one.unknown:
                found.append(f"PAID ALTHOUGH it was refused: {one}, {one.told}")
        return found

    # ---- when all is at rest ---------------------------------------------------------------------------------

    def differences(self):
        books = self.world.books
        found = [said for worker in self.world.workers if (said := worker.ended())]
        for one in [one for one in books.asks if one.unknown]:
            # Whoever does not know asks again.
            books.send(one)
        found += [f"it is not known what became of {one}: {one.told[-3:]}" for one in books.asks if one.unknown]
        found += self.wrongs()
        if found:
            return found
        rows = self.listed(found)
        if found:
            return found
        for chain in self.world.chains:
            spent, height = chain.spent()
            found += self.outcomes_on(chain, spent, rows)
            found += self.balances(chain, spent)
            found += self.standing(chain, height)
        found += self.sums(rows) + self.house(rows)
        return found or [line for chain in self.world.chains for line in self.for_nothing(chain)]

    def listed(self, found):
        """By customer and name: what the servers list, which is the same on both."""
        books, rows = self.world.books, {}
        for user in self.world.customers:
            lists = [books.all_of(server, user) for server in self.world.places]
            if None in lists or any(one != lists[0] for one in lists):
                found.append(f"the servers list other withdrawals of customer {user}, or none: {[one and len(one) for one in lists]}")
                continue
            for row in lists[0]:
                if (user, row["client_order_id"]) in rows:
                    found.append(f"TWO FOR ONE NAME: {row}")
                rows[user, row["client_order_id"]] = row
        known = {(one.user, one.name): one for one in books.asks if one.id}
        for key, row in rows.items():
            if key not in known or known[key].id != row["withdrawal_id"]:
                found.append(f"NOBODY ASKED for {row}, or was told of it; known: {known.get(key)}")
            else:
                books.see(known[key], row, float("inf"))
        found += [f"{one} was taken, and is not listed" for key, one in known.items() if key not in rows]
        count = self.world.program.rows("SELECT COUNT(*) AS count FROM withdrawal_requests")[0]["count"]
        if count != len(rows):
            found.append(f"the table has {count} withdrawals, all customers together see {len(rows)}")
        found += list(books.wrongs)
        return rows

    def outcomes_on(self, chain, spent, rows):
        found, paid = [], self.paid(spent)
        for one in self.world.books.taken():
            row = rows[one.user, one.name]
            if one.chain is not chain:
                continue
            got = paid.get(chain.key(one.to), []) if one.payee is None else []
            state, inside = row["state"], row["settled_inside"]
            if state in ("approved", "queued"):
                found.append(f"{one}: stranded, {self.why(one)}")
            if state == "completed" and inside != (one.payee is not None):
                found.append(f"{one}: settled inside is {inside}, and its address is {'a' if one.payee else 'no'} customer's")
            if (state == "completed" and not inside) != bool(got) and not (state == "queued" and got):
                found.append(f"{one} is {state}, and the chain has {len(got)} payments to it")
        return found

    def why(self, one):
        rows = self.world.program.rows(f"""SELECT j.state, j.reason FROM outbound_jobs j JOIN withdrawal_jobs w ON w.job_id = j.id
            WHERE w.withdrawal_id = {one.id[3:]} ORDER BY w.number DESC""")
        return [f"{row['state']}: {row['reason']}" for row in rows] or "it has no job"

    def sums(self, rows):
        """To the unit. What is completed is said by the chain, what is inside by what the other customer was given."""
        found, sums = [], defaultdict(Counter)
        paid = {chain.name: self.paid(chain.spent()[0]) for chain in self.world.chains}
        for one in self.world.books.asks:
            key, row = (one.user, one.asset()), rows.get((one.user, one.name)) if one.id else None
            sums[key]["asked"] += one.units
            if row is None:
                if one.refused is None:
                    found.append(f"{one} was neither taken nor refused: {one.told}")
                sums[key]["refused"] += one.units
            elif row["state"] in WAITING:
                sums[key]["waiting"] += one.units
                sums[key]["frozen"] += one.units + one.fee
            elif row["state"] in RELEASED:
                sums[key]["released"] += one.units
            if row and row["state"] == "completed":
                sums[key]["fees"] += one.fee
            if row and one.payee and row["settled_inside"]:
                sums[key]["completed"] += one.units
                sums[one.payee, one.asset()]["received"] += one.units
            about = one.chain.coins[one.coin]
            if one.payee is None and (row is None or row["state"] not in WAITING):
                sums[key]["completed"] += sum(amount for _, _, amount in paid[one.chain.name].get(one.chain.key(one.to), [])) \
                    // 10 ** (about.decimals - about.precision)
        for user in self.world.customers:
            answer = self.world.get(self.world.some_server(), "/api/v1/balances", user)
            if answer.status != 200:
                return found + [f"the balances of customer {user} cannot be asked: {answer}"]
            has = {row["asset"]: row["funding"] for row in answer.body["balances"] if "funding" in row}
            for asset, precision in self.assets().items():
                found += self.of_one((user, asset), sums[user, asset], has.get(asset), precision)
        return found

    def assets(self):
        return {coin.asset: coin.precision for chain in self.world.chains for coin in chain.coins.values()}

    def of_one(self, key, sums, has, precision):
        found = []
        ends = sums["completed"] + sums["released"] + sums["refused"] + sums["waiting"]
        if sums["asked"] != ends:
            found.append(f"customer {key[0]}, {key[1]}: asked for {sums['asked']} units; completed {sums['completed']}, released {sums['released']}, "
                         f"refused {sums['refused']}, waiting {sums['waiting']}, together {ends}")
        units = lambda text: int(text.replace(".", "")) if has else 0  # noqa: E731
        available, frozen = (units(has["available"]), units(has["frozen"])) if has else (0, 0)
        if has and any(len(has[name].partition(".")[2]) != precision for name in ("available", "frozen")):
            found.append(f"customer {key[0]} is told of {has}, and {key[1]} has {precision} decimals")
        wanted = self.world.credited.get(key, 0) + sums["received"] - sums["completed"] - sums["fees"]
        if available + frozen != wanted:
            found.append(f"customer {key[0]} has {available} + {frozen} units of {key[1]}; credited {self.world.credited.get(key, 0)} + "
                         f"{sums['received']} inside, completed {sums['completed']}, fees {sums['fees']} leave {wanted}")
        if frozen != sums["frozen"]:
            found.append(f"customer {key[0]} has {frozen} units of {key[1]} frozen, what waits is {sums['frozen']} with its fees")
        return found

    def house(self, rows):
        """What was earned, and what strangers have paid to hot wallets."""
        wanted, found = defaultdict(Counter), []
        for one in self.world.books.taken():
            if rows[one.user, one.name]["state"] == "completed":
                wanted["fees"][one.asset()] += one.fee
        for (name, _, coin), raw in self.world.funded.items():
            about = self.world.chain(name).coins[coin]
            wanted["suspense"][about.asset] += raw // 10 ** (about.decimals - about.precision)
        has = self.ledger(wanted)
        for kind, of in wanted.items():
            found += [f"the house has {has[kind][asset]} units of {asset} in {kind}, wanted: {units}" for asset, units in of.items()
                      if has[kind][asset] != units]
        return found

    def ledger(self, kinds):
        has = defaultdict(Counter)
        for kind in kinds:
            for row in self.world.program.rows(f"""SELECT s.symbol, CASE WHEN m.to_account = a.id THEN m.amount ELSE -m.amount END AS moved
                    FROM movements m JOIN accounts a ON a.kind = '{kind}' AND a.asset_id = m.asset_id AND a.id IN (m.from_account, m.to_account)
                    JOIN assets s ON s.id = a.asset_id WHERE m.outcome = 0"""):
                has[kind][row["symbol"]] += row["moved"]
        return has


__all__ = ["CommandFailed", "NEVER", "Oracle"]
