"""What is demanded when everything is at rest. All expectations come from nodes, read by the driver itself.

| what | must be |
|---|---|
| an address and a coin in wallet_balances | what a node says that it has, at the newest block's hash |
| deposits that are final or unattributed | each payment in the chain's blocks, once; and no other |
| a user's account | the payments of at least the minimum, each floored to the ledger's unit |
| suspense | the other payments, floored likewise |
| findings | name only nodes that have lied; nobody spends, nothing halts |
| `bursar audit` | clean |

Of a coin whose logs are not to be believed (`Coin.logs`) only balances count:

| what | must be |
|---|---|
| an address in wallet_balances | what a node says, too |
| a user's account | no more than the balance of the user's addresses |
| an address whose balance no log explains | named by a finding `balance_differs` |
"""

from collections import Counter, defaultdict

from .chains import floored
from .program import CommandFailed

GIVEN = ("credited", "final", "unattributed")


class OwnBooksWrong(Exception):
    """The driver contradicts itself: its fault, or that of a node."""


class Oracle:
    def __init__(self, world):
        self.world, self.program = world, world.program
        self.tips, self.heights = {}, {}

    def differences(self):
        found = [said for worker in self.world.workers if (said := worker.ended())]
        expected, suspense = defaultdict(int), defaultdict(int)
        late = [line for chain in self.world.chains for line in self.standing(chain)]
        if found or late:
            return found + late
        # By user and asset: what the balances allow, of coins whose logs are not to be believed.
        self.allowed, self.named = defaultdict(int), self.named_addresses()
        for chain in self.world.chains:
            paid, self.unseen = self.paid(chain), {}
            self.left_over = self.left_over_of(chain)
            found += self.balances(chain, paid)
            found += self.deposits(chain, paid)
            self.count(chain, paid, expected, suspense)
        found += self.accounts(expected) + self.suspense(suspense) + self.findings()
        return found

    def audit(self):
        try:
            self.program.run("audit", "--ledger-only")
            return []
        except CommandFailed as failure:
            return [str(failure)]

    # ---- how far ---------------------------------------------------------------------------------------------

    def standing(self, chain):
        """Whether all of the chain is proven and booked."""
        height, tip = chain.refresh()
        self.tips[chain.name], self.heights[chain.name] = tip, height
        newest = "SELECT HEX(b.block_hash)HEX FROM chain_blocks b WHERE b.chain_id = k.chain_id ORDER BY b.height DESC LIMIT 1"
        if chain.kind == "bitcoin":
            newest = "SELECT HEX(b.block_hash)HEX FROM blocks b WHERE b.connected ORDER BY b.block_height DESC LIMIT 1"
        rows = self.program.rows(f"""SELECT k.proven_height, k.halted, k.worker, ({newest}) AS newest
            FROM chain_cursors k JOIN chains c ON c.id = k.chain_id WHERE c.name = '{chain.name}'""")
        if not rows:
            return [f"{chain.name}: it is not read"]
        row = rows[0]
        if row["halted"]:
            return [f"{chain.name}: it was halted: {row['halted']}"]
        if (row["proven_height"], row["newest"]) != (height, tip):
            return [f"{chain.name}: proven up to {row['proven_height']}, newest block {row['newest']}, by {row['worker']}; "
                    f"the node has {height} {tip}"]
        return []

    # ---- what the nodes say ----------------------------------------------------------------------------------

    def paid(self, chain):
        """Every payment to an address of ours that is in the chain."""
        ours = self.world.owners[chain.name]
        # Two people said whose they are, each in the block that it is in.
        assigned = {(tx, address, block): user for (name, tx, address, block), user in self.world.assigned.items() if name == chain.name}
        self.assigned = {(one.tx, one.address): assigned[one.tx, one.address, block.hash] for block in chain.blocks.values()
                         for one in block.payments if (one.tx, one.address, block.hash) in assigned}
        return [one for one in chain.payments() if one.address in ours]

    def count(self, chain, paid, expected, suspense):
        for one in paid:
            if self.waits(chain, one):
                continue
            coin, user = chain.coins[one.coin], self.world.owners[chain.name][one.address]
            units = floored(coin, one.amount)
            if units >= 2 ** 63:
                continue
            if (one.tx, one.address) in self.assigned:
                expected[self.assigned[one.tx, one.address], coin.asset] += units
            elif user is not None and one.amount >= coin.least and not self.is_too_much(one.tx, user, coin.asset):
                expected[user, coin.asset] += units
            else:
                suspense[coin.asset] += units

        # What only a balance shows is nobody's.
        for key, amount in self.unseen.items():
            suspense[chain.coins[key[1]].asset] += floored(chain.coins[key[1]], amount)

    def waits(self, chain, payment):
        """It cannot be spent yet. Credited it is not before it can be, and as many blocks later as others are."""
        return bool(payment.mature) and self.heights[chain.name] < payment.mature + chain.confirmations - 1

    def left_over_of(self, chain):
        """Transactions of payments that the program says are more than an account can hold."""
        rows = self.program.rows(f"""SELECT HEX(d.tx_hash)HEX AS tx FROM deposits d JOIN chains c ON c.id = d.chain_id
            WHERE c.name = '{chain.name}' AND d.state = 'unattributed' AND d.reason = 'beyond_ledger'""")
        return {row["tx"] for row in rows}

    def is_too_much(self, tx, user, asset):
        """Believed only of users who were paid enough to fill an account."""
        return tx in self.left_over and (user, asset) in self.world.nearly_full

    # ---- held against the tables -----------------------------------------------------------------------------

    def balances(self, chain, paid):
        tip = self.tips[chain.name]
        node = {(chain.key(address), coin): amount
                for (address, coin), amount in chain.balances(self.world.pairs(chain), tip).items()}
        own = Counter()
        for one in paid:
            own[one.address, one.coin] += one.amount
        asked = self.world.asked[chain.name]
        for key, amount in node.items():
            if (chain.name, key[0]) in self.world.unseen and key[1] == "coin":
                self.unseen[key] = amount - own[key]
            elif chain.coins[key[1]].logs and (own[key] != amount or asked[key] < amount):
                raise OwnBooksWrong(f"{chain.name} {key}: blocks pay {own[key]}, the balance is {amount}, asked for was {asked[key]}")
        rows = self.program.rows(
            f"""SELECT b.address, l.contract, b.on_chain_balance_raw AS amount FROM wallet_balances b
            JOIN asset_on_chain l ON l.id = b.listing_id JOIN chains c ON c.id = b.chain_id WHERE c.name = '{chain.name}'""")
        table = {(chain.key(row["address"]), chain.coin_of(row["contract"])): int(row["amount"]) for row in rows}
        for key in node:
            self.allow(chain, key, node[key])
        found = [f"{chain.name}: {key[0]} has {table.get(key, 0)} of its {key[1]} by wallet_balances, {node.get(key, 0)} by the node"
                 for key in sorted(table.keys() | node.keys()) if table.get(key, 0) != node.get(key, 0)]
        odd = [key for key in node if self.is_unexplained(chain, key, node[key]) and key[0] not in self.named]
        return found + [f"{chain.name}: {key[0]} has {node[key]} of its {key[1]}, which no log explains, and no finding says so" for key in odd]

    def allow(self, chain, key, balance):
        """No user has more of a coin whose logs are not to be believed than there is."""
        coin, user = chain.coins[key[1]], self.world.owners[chain.name].get(key[0])
        if user is not None and not coin.logs:
            self.allowed[user, coin.asset] += floored(coin, balance)

    def is_unexplained(self, chain, key, balance):
        """A token that logs nothing has paid something, or another less than it has logged. What left the chain again is nothing."""
        if self.unseen.get(key):
            return True
        return not chain.coins[key[1]].logs and (balance > 0 or key[1] == "unpaid")

    def named_addresses(self):
        rows = self.program.rows("SELECT subject, detail FROM chain_findings WHERE kind = 'balance_differs'")
        said = " ".join(f"{row['subject']} {row['detail']}" for row in rows).lower()
        return {key for owners in self.world.owners.values() for key in owners if key.lower() in said}

    def deposits(self, chain, paid):
        rows = self.program.rows(
            f"""SELECT d.id, HEX(d.tx_hash)HEX AS tx, d.place, d.address, l.contract, d.amount_raw, d.state, d.user_id, d.amount + d.repaid AS amount, d.height,
            d.receivable, d.reason, CASE WHEN e.alive THEN 1 ELSE 0 END AS alive
            FROM deposits d JOIN chain_entries e ON e.id = d.id JOIN asset_on_chain l ON l.id = d.listing_id
            JOIN chains c ON c.id = d.chain_id WHERE c.name = '{chain.name}' ORDER BY d.id""")
        found, have, places = [], Counter(), Counter()
        for row in rows:
            coin = chain.coin_of(row["contract"])
            if not chain.coins[coin].logs:
                continue
            address, amount = chain.key(row["address"]), int(row["amount_raw"])
            named = f"{chain.name}: dp-{row['id']} ({row['tx'][:12]}… {row['place']}, {amount} of the {coin} to {address})"
            if row["state"] in GIVEN:
                if amount:
                    have[row["tx"], address, coin, amount] += 1
                places[row["tx"], row["place"]] += 1
            waits = any(self.waits(chain, one) for one in paid if one.tx == row["tx"])
            wanted = "proven" if waits else self.wanted_state(chain, row["tx"], address, coin, amount)
            if row["alive"] and row["state"] != wanted:
                found.append(f"{named} is {row['state']} ({row['reason']}), wanted: {wanted}")
            owner = self.assigned.get((row["tx"], address), self.world.owners[chain.name][address])
            if row["state"] == "final" and row["user_id"] != owner:
                found.append(f"{named} was credited to user {row['user_id']}")
            if row["state"] == "final" and row["amount"] != floored(chain.coins[coin], amount):
                found.append(f"{named} was credited with {row['amount']} units")
            if row["receivable"] and row["user_id"] not in self.world.may_owe:
                found.append(f"{named}: a receivable of {row['receivable']}, and nobody has spent anything")
        wanted = Counter((one.tx, one.address, one.coin, one.amount) for one in paid if one.amount and not self.waits(chain, one))
        found += [f"{chain.name}: {count} × {what} is in the chain and not in the deposits" for what, count in (wanted - have).items()]
        found += [f"{chain.name}: {count} × {what} is in the deposits and not in the chain" for what, count in (have - wanted).items()]
        found += [f"{chain.name}: {what} is credited {count} times" for what, count in places.items() if count > 1]
        return found

    def wanted_state(self, chain, tx, address, coin, amount):
        if (tx, address) in self.assigned:
            return "final"
        coin, user = chain.coins[coin], self.world.owners[chain.name].get(address)
        if user is None or amount < coin.least or floored(coin, amount) >= 2 ** 63 or self.is_too_much(tx, user, coin.asset):
            return "unattributed"
        return "final"

    def accounts(self, expected):
        rows = self.program.rows("""SELECT a.owner, s.symbol, a.available, a.frozen, a.status FROM accounts a
            JOIN assets s ON s.id = a.asset_id WHERE a.id > 0""")
        odd = self.odd_assets()
        table = {(row["owner"], row["symbol"]): row["available"] for row in rows if row["symbol"] not in odd}
        found = [f"user {key[0]} has {table.get(key, 0)} units of {key[1]}, the chains have paid {expected.get(key, 0)}"
                 for key in sorted(table.keys() | expected.keys()) if table.get(key, 0) != expected.get(key, 0)]
        for row in rows:
            allowed = self.allowed[row["owner"], row["symbol"]]
            if row["symbol"] in odd and row["available"] > allowed:
                found.append(f"user {row['owner']} has {row['available']} units of {row['symbol']}, the balances allow {allowed}")
        return found + [f"the account {row} is frozen, and nobody has spent anything" for row in rows
                        if row["status"] != "active" or row["frozen"]]

    def odd_assets(self):
        return {coin.asset for chain in self.world.chains for coin in chain.coins.values() if not coin.logs}

    def suspense(self, expected):
        rows = self.program.rows("""SELECT s.symbol, CASE WHEN m.to_account = a.id THEN m.amount ELSE -m.amount END AS moved
            FROM movements m JOIN accounts a ON a.kind = 'suspense' AND a.asset_id = m.asset_id AND a.id IN (m.from_account, m.to_account)
            JOIN assets s ON s.id = a.asset_id WHERE m.outcome = 0""")
        # Added up here: it may be more than 64 bits hold.
        table, odd = Counter(), self.odd_assets()
        for row in rows:
            if row["symbol"] not in odd:
                table[row["symbol"]] += row["moved"]
        return [f"suspense has {table.get(asset, 0)} units of {asset}, unattributed is {expected.get(asset, 0)}"
                for asset in sorted(table.keys() | expected.keys()) if table.get(asset, 0) != expected.get(asset, 0)]

    def findings(self):
        rows = self.program.rows("""SELECT f.id, c.name AS chain, f.kind, f.subject, f.detail FROM chain_findings f
            JOIN chains c ON c.id = f.chain_id ORDER BY f.id""")
        found = []
        for row in rows:
            self.world.seen_findings[row["kind"]].add(row["id"])
            if row["kind"] in ("disproven", "left_out") and (row["chain"], row["subject"]) not in self.world.liars:
                found.append(f"a finding blames a node that has not lied: {row}")
            odd = row["kind"] == "balance_differs" and self.is_odd(row)
            if row["kind"] not in ("disproven", "left_out", "taken_back") and not odd:
                found.append(f"a finding that nothing explains: {row}")
        return found

    def is_odd(self, row):
        """Whether it names an address to which an odd coin was paid."""
        said = f"{row['subject']} {row['detail']}".lower()
        chain = self.world.chain(row["chain"])
        odd = [key for key, coin in self.world.asked[chain.name] if not chain.coins[coin].logs]
        return any(key.lower() in said for key in [*odd, *(key for name, key in self.world.unseen if name == chain.name)])
