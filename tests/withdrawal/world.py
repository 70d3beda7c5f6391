"""The chains, a signer with approvals in its policy, the treasury with users' addresses and hot wallets, two servers with their spot engine, the
workers, and the customers with what they have asked for.

| process | how many | |
|---|---|---|
| `signer serve` | 1 | a window without approvals, and steps with one, two and three |
| `spot serve` | 1 | both servers' |
| `serve` | 2 | the first answers requests only, the second does all that there is to do besides |
| `run deposits`, `outbound`, `confirm`, `withdrawals` | 1 each | beside those in the second server |
"""

import os
import random
import shutil
import sqlite3
import subprocess
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from deposit import world as deposits
from deposit.program import PSQL, CommandFailed, Worker
from payout import world as payouts
from payout.clock import Clock
from payout.world import World as PayoutWorld
from payout.world import decimal
from utxo.nodes import free_port

from . import client
from .books import Books
from .client import People

# What a request costs, in hundredths of a percent, and besides.
SHARE_BPS, FIXED = 10, "0.001"
# Up to so many coins nobody has to agree, then one person, then two, then three. The signer's steps are the same.
AUTO, ONE, TWO = 1, 5, 20
MOST = 100_000
APPROVERS = ("bob", "carol", "dan")
# Customers who are given money at the beginning, and how many coins of each kind.
CUSTOMERS, GIVEN = 4, 500
ISSUER = "driver"
SERVERS = (1, 2)
ROLES = ("deposits", "outbound", "confirm", "withdrawals")


class SharedClock:
    """The clock that PostgreSQL has too. It never goes back: the next world begins where the last one ended."""

    def __init__(self):
        self.file = Path(os.environ["PAYOUT_CLOCK"])
        self.ahead = int.from_bytes(self.file.read_bytes(), "little")
        self.environment = {"LD_PRELOAD": str(self.file.with_name("clock.so")), "PAYOUT_CLOCK": str(self.file)}

    @staticmethod
    def is_there():
        return "PAYOUT_CLOCK" in os.environ

    pass_seconds = Clock.pass_seconds


class World(PayoutWorld):
    """`limits`: of the chain anvil, as the payouts have them, and of withdrawals:

    | name | |
    |---|---|
    | `when_short` | what the policy says of a hot wallet that has too little: `fail` or `wait` |
    | `hot_token` | how many tokens a hot wallet is given, in whole ones |
    | `hour` | how many coins the signer lets go in an hour without approvals |
    | `wallets` | how many hot wallets |
    """

    number = 0

    def __init__(self, settings, folder, limits=None):
        limits = dict(limits or {})
        self.terms = {name: limits.pop(name, usual) for name, usual in (("when_short", None), ("hot_token", None), ("hour", None))}
        super().__init__(settings, folder, limits)
        # A world of its own in the same server.
        World.number += 1
        if self.is_postgres():
            self.clock = SharedClock()
            self.program.environment.update(self.clock.environment)
            self.program.url = self.named(f"withdrawals_{World.number}")
            self.on_server(f"CREATE DATABASE {self.database()}")
            self.program.environment["BURSAR_DATABASE_URL"] = self.program.url
        self.books = Books(self)
        self.customers, self.places, self.servers = [], {}, []
        self.secrets = {name: f"{name}: not a secret, but it has to be long enough".encode() for name in ("customers", "operators")}
        self.credited, self.lock = {}, threading.Lock()
        # Nothing else is played beside the case that is.
        self.alone = True

    # ---- the beginning ---------------------------------------------------------------------------------------

    def begin(self):
        self.start_chains()
        self.make_treasury()
        self.program.run("migrate")
        self.program.run("apply", "treasury.toml")
        for wallet in self.program.run("wallet", "show")["operation_wallets"]:
            if wallet["role"] == "hot":
                chain = self.chain(wallet["chain"])
                chain.wallets[chain.key(wallet["address"])] = wallet["address"]
        self.signer = Worker(self.program, "signer", ["signer", "serve", "--passphrase-file", "passphrase"])
        spot = ["spot", "serve", "spot", "--listen", self.spot_place, "--credentials", "spot.credentials", "--accept-clock", "--segment", "4"]
        self.spot = Worker(self.program, "spot", spot)
        self.workers = [self.signer, self.spot]
        self.signer.start()
        self.make_spot()
        self.wait_until("the signer listens", lambda: (self.folder / "bursar-signer/socket").exists())
        self.servers = [Worker(self.program, f"server-{number}", ["serve", "--config", f"server-{number}.toml"]) for number in SERVERS]
        self.workers += self.servers
        self.workers += [Worker(self.program, role, ["run", role]) for role in ROLES]
        for worker in self.workers:
            worker.start()
        self.wait_for_cursors()
        self.wait_until("both servers answer", self.all_answer)
        self.fund()
        self.give_money()

    def make_spot(self):
        """The folder is made by the first start."""
        self.spot.words.append("--create")
        self.spot.start()
        self.wait_until("the spot engine listens", lambda: b"listening" in self.spot.log.read_bytes())
        self.spot.words.remove("--create")

    def all_answer(self):
        return all(self.get(server, "/health/ready", 1).status == 200 for server in SERVERS)

    def make_treasury(self):
        self.secret_file("passphrase", "not a secret: everybody knows these words")
        for name, secret in self.secrets.items():
            self.secret_file(f"{name}.secret", secret.decode())
        self.people_keys = People(self.folder, ("ada", "mallory", *APPROVERS))
        kinds = [chain.kind for chain in self.chains]
        words = [word for kind in kinds for word in ("--group", f"users-{kind}:deposit:{deposits.FAMILIES[kind]}")]
        made = self.program.run("signer", "init", "--passphrase-file", "passphrase", *words)["groups"]
        self.xpubs = {group["id"]: group["xpub"] for group in made}
        for kind in kinds:
            self.secret_file(f"words-{kind}", payouts.WORDS[kind])
            imported = self.program.run("signer", "import", f"hot-{kind}", "--purpose", "hot", "--chain", kind, "--mnemonic-file",
                                        f"words-{kind}", "--passphrase-file", "passphrase")
            self.xpubs[f"hot-{kind}"] = imported["xpub"]
        self.make_policy()
        groups = ",".join(f"hot-{kind}" for kind in kinds)
        self.program.run("signer", "key", "add", "server", "--sign", groups, "--derive", "--read", "--credential", "server.credential")
        self.write_treasury()
        self.configure()

    def treasury_of_policies(self):
        lines = []
        for chain in self.chains:
            for coin in chain.coins.values():
                lines += ["[[withdrawals]]", f'asset = "{coin.asset}"', f'chain = "{chain.name}"', 'min = "0.01"', f'max = "{MOST}"',
                          f'fee = "{FIXED}"', f"fee_share_bps = {SHARE_BPS}", f'auto_approve = "{AUTO}"', f'two_above = "{ONE}"',
                          f'many_above = "{TWO}"', "many = 3"]
                lines += [f'when_short = "{self.terms["when_short"]}"'] if self.terms["when_short"] else []
        return lines

    def write_treasury(self):
        """As the payouts have it, with users' wallets, policies and people besides."""
        hot, users = {}, []
        for chain in self.chains:
            hot[chain.kind] = self.xpubs[f"hot-{chain.kind}"]
            users += [f"[wallet_groups.users-{chain.kind}]", f'chain = "{deposits.FAMILIES[chain.kind]}"', 'purpose = "deposit"',
                      f'xpub = "{self.xpubs[f"users-{chain.kind}"]}"']
        all_keys, self.xpubs = self.xpubs, hot
        super().write_treasury()
        self.xpubs = all_keys
        people = []
        for name in APPROVERS:
            people += ["[[operator]]", f'name = "{name}"', 'role = "approver"',
                       f'keys.{name}-laptop = {{ ed25519 = "{self.people_keys.public[name]}" }}']
        people += ["[[operator]]", 'name = "olga"', 'role = "operator"']
        file = self.folder / "treasury.toml"
        file.write_text("\n".join([file.read_text(), *users, *self.treasury_of_policies(), *people]) + "\n")

    def make_policy(self):
        """Hot wallets pay a little by themselves; more needs people."""
        much, keys = str(10 ** 30), self.people_keys
        lines = ['signer = "payouts"', "version = 1", "cooling_off_hours = 24", "most_intent_life_hours = 48", "tron_margin_minutes = 1",
                 f'administrators = {{ needed = 1, keys = {{ ada = "{keys.public["ada"]}" }} }}']
        for name in APPROVERS:
            lines += ["[[approver]]", f'key = "{name}-laptop"', f'person = "{name}"', f'ed25519 = "{keys.public[name]}"']
        for chain in self.chains:
            place = f"chain_id = {chain.network}" if chain.kind == "evm" else ""
            lines += ["[[chain]]", f'name = "{chain.name}"', f'kind = "{chain.kind}"', place]
        of = ", ".join(f'"{name}"' for name in APPROVERS)
        for chain in self.chains:
            lines += ["[[group]]", f'id = "hot-{chain.kind}"', f'chain = "{chain.name}"', 'role = "hot"', 'most_fee = "4000000000000000"',
                      f'most_fee_day = "{much}"', f"highest_index = {self.hot[chain.name] - 1}"]
            for coin in chain.coins.values():
                unit = 10 ** coin.decimals
                window = str(self.terms["hour"] * unit) if self.terms["hour"] else much
                steps = ", ".join(f'{{ up_to = "{up_to * unit}", approvals = {number}, of = [{of}] }}'
                                  for up_to, number in ((ONE, 1), (TWO, 2), (MOST, 3)))
                lines += ["[[group.coin]]", f'coin = "{coin.contract or "native"}"', f'payment = "{AUTO * unit}"', f'hour = "{window}"',
                          f'day = "{window}"', f"step = [{steps}]"]
        (self.folder / "policy.toml").write_text("\n".join(lines) + "\n")
        self.program.run("signer", "policy", "sign", "policy.toml", "--as", "ada", "--key", "ada.key")
        self.program.run("signer", "policy", "apply", "policy.toml")

    def configure(self):
        """bursar.toml for workers and commands; a file for each server. The first knows no nodes, so it only answers."""
        self.secret_file("spot.credentials", "\n".join(f"{role} {role}-is-not-a-secret-but-long-enough"
                                                       for role in ("coordinator", "order-engine", "operator", "observer")))
        ports = iter([free_port() for _ in range(2 * len(SERVERS) + 1)])
        self.spot_place = f"127.0.0.1:{next(ports)}"
        common = ["[spot]", 'kind = "remote"', f'address = "{self.spot_place}"', 'credentials_file = "spot.credentials"', 'folder = "spot"',
                  "[auth]", f'issuer = "{ISSUER}"', 'audience = "customers"', 'hs256_secret_file = "customers.secret"',
                  "[operators]", f'issuer = "{ISSUER}"', 'audience = "operators"', 'hs256_secret_file = "operators.secret"',
                  "[limits]", "requests_per_second = 0", "daily_transfers = 0"]
        nodes = self.configuration()
        plain = nodes.split("[chains.")[0] + nodes[nodes.index("[signer]"):]
        (self.folder / "bursar.toml").write_text("\n".join([nodes, *common]) + "\n")
        self.desks = {}
        for server in SERVERS:
            self.places[server] = f"127.0.0.1:{next(ports)}"
            self.desks[server] = f"127.0.0.1:{next(ports)}"
            http = ["[http]", f'listen = "{self.places[server]}"', f'operations_listen = "{self.desks[server]}"']
            (self.folder / f"server-{server}.toml").write_text("\n".join([plain if server == 1 else nodes, *common, *http]) + "\n")

    def fund(self):
        for chain in self.chains:
            funds = dict(payouts.FUNDS if chain.kind == "evm" else payouts.TRON_FUNDS)
            if self.terms["hot_token"] is not None:
                funds["token"] = self.terms["hot_token"] * 10 ** chain.coins["token"].decimals
            for address in chain.wallets.values():
                for coin, amount in funds.items():
                    if amount:
                        chain.pay(address, coin, amount)
                    self.funded[chain.name, chain.key(address), coin] = amount
            chain.mine(chain.depth_at_rest())

    def give_money(self):
        """Everybody has the same, by deposits."""
        for user in range(1, CUSTOMERS + 1):
            self.customers.append(user)
            for chain in self.chains:
                said = self.post(2, "/api/v1/deposit_address", user, {"chain": chain.name})
                if said.status != 200:
                    raise RuntimeError(f"customer {user} has no address on {chain.name}: {said}")
                self.learn(chain, said.body["address"], user)
                for coin in chain.coins:
                    self.deposit(chain, user, coin, GIVEN * 10 ** chain.coins[coin].decimals)
        for chain in self.chains:
            chain.mine(chain.depth_at_rest())
        self.wait_until("customers have their money", self.is_credited)

    def deposit(self, chain, user, coin, raw):
        about = chain.coins[coin]
        chain.pay(self.address_of(chain, user), coin, raw)
        key = user, about.asset
        self.credited[key] = self.credited.get(key, 0) + raw // 10 ** (about.decimals - about.precision)

    def is_credited(self):
        """All that was paid is final."""
        self.mine()
        sums = {}
        for row in self.program.rows("""SELECT d.user_id, s.symbol, d.amount FROM deposits d JOIN asset_on_chain l ON l.id = d.listing_id
                JOIN assets s ON s.id = l.asset_id WHERE d.state = 'final'"""):
            sums[row["user_id"], row["symbol"]] = sums.get((row["user_id"], row["symbol"]), 0) + row["amount"]
        return all(sums.get(key) == units for key, units in self.credited.items())

    def end(self):
        super().end()
        if self.is_postgres():
            self.on_server(f"DROP DATABASE IF EXISTS {self.database()} WITH (FORCE)")

    # ---- speaking to servers ---------------------------------------------------------------------------------

    def time_now(self):
        """As the programs see it."""
        return time.time() + self.clock.ahead / 1_000_000

    def get(self, server, path, user):
        return client.ask(self.places[server], "GET", path, client.token(self.secrets["customers"], "customers", user, self.time_now()))

    def post(self, server, path, user, body, patience=client.PATIENCE_S):
        bearer = client.token(self.secrets["customers"], "customers", user, self.time_now())
        return client.ask(self.places[server], "POST", path, bearer, body, patience)

    def operate(self, server, person, method, path, body=None):
        """What somebody of the house asks for."""
        bearer = client.token(self.secrets["operators"], "operators", person, self.time_now())
        return client.ask(self.desks[server], method, "/api/v1/operator" + path, bearer, body)

    def some_server(self):
        return self.random.choice(SERVERS)

    def at_once(self, *calls):
        """Each in a thread of its own, begun together. What they gave, in their order."""
        gate, given, troubles = threading.Barrier(len(calls)), [None] * len(calls), []

        def run(place, call):
            gate.wait()
            try:
                given[place] = call()
            except Exception as trouble:  # noqa: BLE001: it is raised below.
                troubles.append(trouble)
        threads = [threading.Thread(target=run, args=one, daemon=True) for one in enumerate(calls)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if troubles:
            raise troubles[0]
        return given

    # ---- what chains and people do ---------------------------------------------------------------------------

    def units(self, chain, coin, coins):
        """Of so many coins, which may be a text: ledger units."""
        whole, _, part = str(coins).partition(".")
        precision = chain.coins[coin].precision
        return int(whole) * 10 ** precision + int((part + "0" * precision)[:precision] or 0)

    def fee(self, chain, coin, units):
        """As the policy says, computed once more."""
        fixed = self.units(chain, coin, FIXED)
        return fixed + -(-units * SHARE_BPS // 10_000)

    def written(self, chain, coin, units):
        return decimal(units, chain.coins[coin].precision)

    @staticmethod
    def dice(seed):
        """For a thread: the world's own would give each run others."""
        return random.Random(seed)

    def worker(self, name):
        return next(worker for worker in self.workers if worker.name == name)

    @staticmethod
    def approvers():
        return APPROVERS

    def must_be_taken(self, asks):
        for one in asks:
            if one.id is None:
                self.fail(f"{one} was not taken: {one.told}")

    def ask_until_known(self, one, server=None):
        """As a customer whose answer did not come sends the same again."""
        def knows():
            said = self.books.send(one, server)
            return not client.is_unknown(said) and not client.is_nothing(said)
        self.wait_until(f"somebody says what became of {one}", knows)

    def look_until(self, one, state, why):
        self.wait_until(f"somebody says where {one} stands", lambda: self.books.look(one).status == 200)
        if one.state != state:
            self.fail(f"{one} is {one.state}, and not {state}: {why}")

    def wait_for(self, asks, state, mines=False):
        """Until customers are told so of all."""
        def is_so():
            if mines:
                self.mine()
                time.sleep(0.4)
            for one in asks:
                if one.state != state:
                    self.books.look(one)
            return all(one.state == state for one in asks)
        self.wait_until(f"{len(asks)} withdrawals are {state}", is_so)

    def intent(self, one, server=None, person="bob"):
        return self.operate(server or self.some_server(), person, "GET", f"/withdrawals/{one.id}/intent")

    def digest(self, one):
        """What is to be signed. The words beside it are what was asked for."""
        answer = None

        def says():
            nonlocal answer
            answer = self.intent(one)
            return answer.status == 200
        self.wait_until(f"somebody shows what is to be signed of {one}", says)
        self.check_words(one, answer.body)
        return answer.body["digest"]

    def check_words(self, one, said):
        wanted = (one.id, one.asset(), one.chain.name, one.to.lower())
        shown = (said["withdrawal_id"], said["asset"], said["chain"], said["to"].lower())
        if shown != wanted or one.to.lower() not in said["sentence"].lower():
            self.fail(f"{one} is shown to people as {said}")

    def send_approval(self, one, person, digest, signature, server=None, key=None):
        body = {"digest": digest, "key": key or f"{person}-laptop", "ed25519": signature}
        return self.operate(server or self.some_server(), person, "POST", f"/withdrawals/{one.id}/approve", body)

    def approve(self, one, person, server=None):
        """Once, whatever comes of it."""
        said = self.intent(one, server, person)
        if said.status != 200:
            return said
        self.check_words(one, said.body)
        signature = self.people_keys.signature(person, said.body["digest"])
        self.counts["approvals"] += 1
        return self.send_approval(one, person, said.body["digest"], signature, server)

    def approve_until_known(self, one, person, server=None):
        answer = None

        def approves():
            nonlocal answer
            answer = self.approve(one, person, server)
            return not client.is_unknown(answer) and not client.is_nothing(answer)
        self.wait_until(f"{person} has approved {one}", approves)
        if answer.status != 200:
            self.fail(f"{person} cannot approve {one}: {answer}")

    def reject(self, one, server=None, person="carol"):
        return self.operate(server or self.some_server(), person, "POST", f"/withdrawals/{one.id}/reject", {"reason": "looks wrong"})

    def retry(self, one, server=None):
        return self.operate(server or self.some_server(), "olga", "POST", f"/withdrawals/{one.id}/retry", {"reason": "try again"})

    def write(self, statement):
        """As the database's owner, whom neither triggers nor checks keep from anything."""
        if self.is_postgres():
            self.program.psql(f"SET session_replication_role = replica; {statement}", quiet=True)
            return
        connection = sqlite3.connect(self.program.url[9:], timeout=30, isolation_level=None)
        try:
            connection.execute("PRAGMA ignore_check_constraints = ON")
            connection.execute("BEGIN IMMEDIATE")
            triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
            for name, _ in triggers:
                connection.execute(f"DROP TRIGGER {name}")
            connection.execute(statement)
            for _, text in triggers:
                connection.execute(text)
            connection.execute("COMMIT")
        finally:
            connection.close()

    @staticmethod
    def approval_tables():
        """Where approvals are kept, and by which column they are somebody's."""
        return [("withdrawal_approvals", "withdrawal_id")]

    # ---- after a restore -------------------------------------------------------------------------------------

    def look_after_restore(self, asks):
        """Two people look at the chain, and say what became of whatever the database has forgotten."""
        # What is paid now is paid: what was sent before the restore may be in blocks that come only now.
        deadline, quiet = time.monotonic() + self.settings.patience, 0
        while quiet < 3:
            self.mine(4)
            time.sleep(0.6)
            self.must_hold()
            said = sum(self.judge(chain, one) for chain in self.chains for one in asks if one.chain is chain)
            stopped = [address for chain in self.chains for address in chain.wallets if self.stopped(chain, address)]
            self.resume_all()
            open_ = [one for one in asks if self.books.look(one).status != 200 or one.state in ("approved", "queued")]
            quiet = 0 if said or stopped or open_ else quiet + 1
            if time.monotonic() > deadline:
                self.fail(f"people do not come to an end: {[(str(one), self.oracle.why(one)) for one in open_]}, {stopped}")
            if quiet == 0:
                self.time_passes(20)

    def judge(self, chain, one):
        """As far as the program lets people say it. Whether something was said."""
        paid = chain.key(one.to) in self.oracle.paid(chain.spent()[0])
        verdict = "paid" if paid else "unpaid"
        rows = self.program.rows(f"""SELECT w.status, j.id, j.state, j.reason, l.address FROM withdrawal_requests w
            LEFT JOIN withdrawal_jobs k ON k.withdrawal_id = w.id AND k.number = w.jobs LEFT JOIN outbound_jobs j ON j.id = k.job_id
            LEFT JOIN outbound_lanes l ON l.id = j.lane_id WHERE w.id = {one.id[3:]}""")
        row = rows[0]
        if row["status"] == "manual_review":
            return self.says("withdrawal", "judge", one.id, verdict)
        if row["status"] == "pending" and paid:
            # Nobody has asked the signer of it since. Whoever says no to it has it asked.
            self.note(f"{one} was paid, and waits for people: {self.reject(one)}")
            return True
        if row["status"] == "queued" and row["state"] == "signing" and self.stopped(chain, row["address"]):
            return self.says("job", "judge", f"job-{row['id']}", verdict)
        if row["status"] == "queued" and "two people must" in (row["reason"] or ""):
            return self.says("job", "judge", f"job-{row['id']}", verdict if paid else self.random.choice(["again", "unpaid"]))
        return False

    def says(self, *words):
        try:
            self.people(*words)
            self.note(f"two people: {' '.join(words)}")
            return True
        except CommandFailed as refused:
            # It has gone on meanwhile, or there is nothing to judge.
            self.note(f"two people cannot say {' '.join(words)}: {str(refused)[-300:]}")
            return False

    # ---- a backup --------------------------------------------------------------------------------------------

    def is_postgres(self):
        return self.settings.engine == "postgres"

    def database(self):
        return urlsplit(self.program.url).path[1:]

    def named(self, name):
        return urlunsplit(urlsplit(self.settings.database_url)._replace(path=f"/{name}"))

    def on_server(self, sql):
        """Beside the databases of worlds: one that is copied or dropped has no other connection."""
        subprocess.run([PSQL, self.settings.database_url, "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", sql], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)

    def back_up(self):
        """Everything stands still for it, as a machine whose disk is copied. The signer's folder is no part of it, nor is the chain; the spot engine's
        is: the two belong together."""
        self.stop_all()
        if self.is_postgres():
            self.on_server(f"DROP DATABASE IF EXISTS {self.database()}_backup")
            self.on_server(f"CREATE DATABASE {self.database()}_backup TEMPLATE {self.database()}")
        self.copy(self.folder, self.folder / "backup")
        self.start_again()
        self.note("a backup is made")

    def put_back(self):
        self.stop_all()
        if self.is_postgres():
            self.on_server(f"DROP DATABASE {self.database()} WITH (FORCE)")
            self.on_server(f"CREATE DATABASE {self.database()} TEMPLATE {self.database()}_backup")
        for name in ("bursar.db-wal", "bursar.db-shm"):
            (self.folder / name).unlink(missing_ok=True)
        self.copy(self.folder / "backup", self.folder)
        self.books.forget()
        self.counts["restores"] += 1
        self.note("the backup is put back")

    @staticmethod
    def copy(source, target):
        target.mkdir(exist_ok=True)
        for name in ("bursar.db", "bursar.db-wal", "bursar.db-shm"):
            if (source / name).exists():
                shutil.copy(source / name, target / name)
        shutil.rmtree(target / "spot", ignore_errors=True)
        shutil.copytree(source / "spot", target / "spot")

    def start_again(self):
        self.leases_pass()
        self.start_all()
        self.wait_until("both servers answer", self.all_answer)

    # ---- what payouts look at --------------------------------------------------------------------------------

    @property
    def jobs(self):
        """Everything that was asked to be paid on a chain, as the oracle of payouts knows jobs."""
        return self.books.jobs() if hasattr(self, "books") else {}

    @jobs.setter
    def jobs(self, _none):
        """The payouts' own begin empty."""

