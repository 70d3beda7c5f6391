"""What is demanded of payments that leave. All that was paid is read from the blocks by the driver itself.

| what | must be |
|---|---|
| a recipient, at any time | paid once at most, the exact amount, by a wallet of ours |
| all bytes that any node was ever told of, by recipient | of one slot; of another only when the first is used up and has not paid, or its time is over for good |
| a job that is `confirmed` | paid |
| a job that is `failed_final` | not paid, and expected to fail by the case |
| any other job, when all is at rest | there is none: it would be stranded |
| a wallet's balance | what it was given, less payouts, less the fees of its transactions, less what the thief took |
| a wallet's transactions | a payout of a job, the thief's, or one that pays nobody: a cancel, or a token that refuses. On TRON no such |
| wallet_balances | what the node says: so every fee is in the books |
| `bursar audit` | clean |
"""

from collections import Counter, defaultdict

from deposit.program import CommandFailed

from .world import ENDED


class Oracle:
    def __init__(self, world):
        self.world = world
        # By chain and recipient: the slots in which nodes were told to pay it, in their order; of TRON with its end.
        self.told = defaultdict(dict)

    # ---- at any time -----------------------------------------------------------------------------------------

    def wrongs(self):
        """What may never be, whatever is under way."""
        found = []
        for chain in self.world.chains:
            spent, _ = chain.spent()
            found += self.payments(chain, spent) + self.broadcasts(chain, spent)
        return found

    def payments(self, chain, spent):
        found, paid = [], self.paid(spent)
        recipients = {job.to: job for job in self.world.jobs.values() if job.chain == chain.name}
        for to, job in recipients.items():
            got = paid.get(to, [])
            if len(got) > 1:
                found.append(f"PAID TWICE: {job.reference} ({job.id}), {to} on {chain.name}: {[one.tx for one, *_ in got]}")
            found += [f"{job.reference} ({job.id}): {amount} of the {coin} was paid by {one.tx}, wanted {job.amount} of the {job.coin}"
                      for one, coin, amount in got if (coin, amount) != (job.coin, job.amount)]
        for one in spent:
            ours = [to for to, *_ in one.paid if to in recipients]
            if one.paid and not (ours and len(one.paid) == 1 or one.tx in self.world.foreign):
                found.append(f"{chain.name}: {one.tx} of {one.sender} pays {one.paid}, which is no job")
        return found

    @staticmethod
    def paid(spent):
        paid = defaultdict(list)
        for one in spent:
            for to, coin, amount in one.paid:
                paid[to].append((one, coin, amount))
        return paid

    def broadcasts(self, chain, spent):
        """A second slot may pay a recipient only when the first cannot any more."""
        found, by_slot = [], {(one.sender, one.nonce): one for one in spent if one.nonce is not None}
        recipients = {job.to: job for job in self.world.jobs.values() if job.chain == chain.name}
        for to, slot, hash_, expires in chain.read_new_told():
            if to not in recipients:
                continue
            before = self.told[chain.name, to]
            for former, former_expires in before.items():
                if former == slot:
                    continue
                if expires is None:
                    used = by_slot.get(former)
                    over = used is not None and to not in [paid for paid, *_ in used.paid]
                else:
                    over = former_expires < chain.solid_time()
                if not over:
                    found.append(f"{recipients[to].reference}: nodes are told of {hash_} in slot {slot}, and that of {former} may still be mined")
            before[slot] = expires
        return found

    # ---- when all is at rest ---------------------------------------------------------------------------------

    def differences(self):
        found = [said for worker in self.world.workers if (said := worker.ended())]
        found += self.wrongs()
        if found:
            return found
        states = self.world.states()
        for chain in self.world.chains:
            spent, height = chain.spent()
            found += self.outcomes(chain, spent, states)
            found += self.balances(chain, spent)
            found += self.standing(chain, height)
        return found or [line for chain in self.world.chains for line in self.for_nothing(chain)]

    @staticmethod
    def for_nothing(chain):
        """Without nonces there is nothing to cancel: whatever pays nobody has only cost a fee."""
        return [f"FOR NOTHING: {chain.name}: {one.tx} of {one.sender} has cost {one.fee} and paid nobody"
                for one in chain.spent()[0] if one.nonce is None and not one.paid]

    def outcomes(self, chain, spent, states):
        found, paid = [], self.paid(spent)
        for job in self.world.jobs.values():
            if job.chain != chain.name:
                continue
            row, got = states.get(job.reference), paid.get(job.to, [])
            if row is None:
                found.append(f"{job.reference}: there is no such job")
                continue
            named = f"{job.reference} ({job.id}) of {row['address']} is {row['state']} ({row['reason']})"
            if row["state"] == "failed_final" and job.reference in self.world.paid_before:
                continue
            if row["state"] not in ENDED:
                found.append(f"{named}: stranded")
            elif (row["state"] == "confirmed") != bool(got):
                found.append(f"{named}, and the chain has {len(got)} payments to it")
            elif row["state"] == "failed_final" and job.reference not in self.world.may_fail:
                found.append(f"{named}, and nothing was wrong with it")
        return found

    def balances(self, chain, spent):
        found, left = [], Counter()
        for one in spent:
            left[one.sender, "coin"] += one.fee
            for _, coin, amount in one.paid:
                left[one.sender, coin] += amount
        pairs = [(address, coin) for address in chain.wallets.values() for coin in chain.coins]
        _, tip = chain.refresh()
        node = {(chain.key(address), coin): amount for (address, coin), amount in chain.balances(pairs, tip).items()}
        for key, amount in node.items():
            wanted = self.world.funded[chain.name, *key] - left[key]
            if amount != wanted:
                found.append(f"{chain.name}: {key[0]} has {amount} of its {key[1]}, its transactions leave {wanted}")
        rows = self.world.program.rows(
            f"""SELECT b.address, l.contract, b.on_chain_balance_raw AS amount FROM wallet_balances b
            JOIN asset_on_chain l ON l.id = b.listing_id JOIN chains c ON c.id = b.chain_id WHERE c.name = '{chain.name}'""")
        books = {(chain.key(row["address"]), chain.coin_of(row["contract"])): int(row["amount"]) for row in rows}
        return found + [f"{chain.name}: {key[0]} has {books.get(key, 0)} of its {key[1]} by the books, {amount} by the node"
                        for key, amount in node.items() if books.get(key, 0) != amount]

    def standing(self, chain, height):
        rows = self.world.program.rows(f"""SELECT s.id, s.state, s.nonce FROM outbound_slots s JOIN outbound_lanes l ON l.id = s.lane_id
            JOIN chains c ON c.id = l.chain_id WHERE c.name = '{chain.name}' AND s.state = 'open'""")
        found = [f"{chain.name}: slot {row['id']}, nonce {row['nonce']}, is open still" for row in rows]
        found += [f"{chain.name}: {address} is stopped: {why}" for address in chain.wallets if (why := self.world.stopped(chain, address))]
        if self.world.proven(chain) != height:
            found.append(f"{chain.name}: proven up to {self.world.proven(chain)}, the node has {height}")
        return found

    def audit(self):
        try:
            self.world.program.run("audit")
            return []
        except CommandFailed as failure:
            return [str(failure)]
