"""The chains, a signer with its policy, the treasury with its hot wallets, the workers, and the jobs that the driver has made."""

import json
import subprocess
import time
from collections import namedtuple

from deposit import world as deposits
from deposit.program import CommandFailed, Worker
from deposit.wire import Endpoint, tron_text

from . import keys
from .chains import PaidAnvil, PaidTron
from .clock import Clock

# Everybody knows these words: so the driver can be the other program that has the key.
WORDS = {"evm": "abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon about",
         "tron": "legal winner thank year wave sausage worth useful legal winner thank yellow"}
WALLETS = {"anvil": 3, "tron": 2}
FUNDS = {"coin": 10 ** 21, "token": 10 ** 13}
# Of TRON's coin: a million, in millionths.
TRON_FUNDS = {"coin": 10 ** 12, "token": 10 ** 13}
GWEI = 10 ** 9
PRICE_CAP = 20 * GWEI
ENDED = ("confirmed", "failed_final")
# How long a worker takes to begin, on a busy machine.
BEGINNING_S = 1
# How many seconds of the programs' clock a killed worker's lanes stay taken, and more.
LEASE_S = 65

Job = namedtuple("Job", "id reference chain coin amount to")


class World(deposits.World):
    """`limits` go into the treasury file: of the chain anvil."""

    def __init__(self, settings, folder, limits=None):
        super().__init__(settings, folder)
        self.clock = Clock(folder)
        self.program.environment.update(self.clock.environment)
        self.limits = dict(limits or {})
        self.hot = {**WALLETS, "anvil": self.limits.pop("wallets", WALLETS["anvil"])}
        self.limits = {"fee_price_cap": PRICE_CAP, "fee_cap": '"4000000000000000"', "in_flight": 16, "stuck_after_s": 2, **self.limits}
        self.jobs, self.made = {}, 0
        # What the driver itself has paid with a wallet's key, by transaction.
        self.foreign = set()
        # Jobs of which it is right that they fail.
        self.may_fail = set()
        # Jobs that people gave up in a database that did not know of their payment.
        self.paid_before = set()
        self.funded, self.last_start = {}, 0

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
        self.workers = [self.signer]
        self.signer.start()
        self.wait_until("the signer listens", lambda: (self.folder / "bursar-signer/socket").exists())
        for role in ("deposits", "outbound", "confirm"):
            numbers = (1, 2) if role != "deposits" else (1,)
            self.workers += [Worker(self.program, f"{role}-{number}", ["run", role]) for number in numbers]
        for worker in self.workers:
            worker.start()
        self.wait_for_cursors()
        self.fund()

    def start_chains(self):
        ports = [word for name in ("evm", "tron", "bitcoin", "control") for word in (f"--{name}-port", "0")]
        with open(self.folder / "devnet.log", "wb") as log:
            self.devnet = subprocess.Popen(
                [self.settings.bursar, "devnet", "--json", "--by-hand", "--endpoints", str(deposits.ENDPOINTS + 1), *ports],
                env=self.program.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
        said = json.loads(self.devnet.stdout.readline())
        self.control = Endpoint(f"http://{said['control']}")
        for name in self.settings.chains:
            self.chains.append({
                "anvil": lambda: PaidAnvil(self.settings.anvil, self.folder),
                "tron": lambda: PaidTron(self.control, said["tron"], said["tron_token"]),
            }[name]())

    def secret_file(self, name, text):
        file = self.folder / name
        file.write_text(text + "\n")
        file.chmod(0o600)

    def make_treasury(self):
        self.secret_file("passphrase", "not a secret: everybody knows these words")
        self.program.run("signer", "init", "--passphrase-file", "passphrase")
        xpubs = {}
        for chain in self.chains:
            group = f"hot-{chain.kind}"
            self.secret_file(f"words-{chain.kind}", WORDS[chain.kind])
            xpubs[chain.kind] = self.program.run("signer", "import", group, "--purpose", "hot", "--chain", chain.kind, "--mnemonic-file",
                                                 f"words-{chain.kind}", "--passphrase-file", "passphrase")["xpub"]
        self.make_policy()
        groups = ",".join(f"hot-{chain.kind}" for chain in self.chains)
        self.program.run("signer", "key", "add", "server", "--sign", groups, "--derive", "--read", "--credential", "server.credential")
        self.xpubs = xpubs
        self.write_treasury()
        (self.folder / "bursar.toml").write_text(self.configuration())

    def write_treasury(self):
        lines = []
        assets = {coin.asset: coin.precision for chain in self.chains for coin in chain.coins.values()}
        for asset, precision in assets.items():
            lines += [f"[assets.{asset}]", f"precision = {precision}", 'min_transfer = "1"', 'max_transfer = "1000"',
                      'daily_transfer = "1000"']
        for chain in self.chains:
            lines += [f"[chains.{chain.name}]", f'kind = "{chain.kind}"', f'network = "{chain.network}"',
                      f"confirmations = {chain.confirmations}", f"final_confirmations = {chain.final}"]
            limits = self.limits if chain.kind == "evm" else {"stuck_after_s": 2}
            lines += [f"{name} = {value}" for name, value in limits.items()]
            for coin in chain.coins.values():
                lines += ["[[on_chain]]", f'asset = "{coin.asset}"', f'chain = "{chain.name}"', f"decimals = {coin.decimals}",
                          'min_deposit = "0.001"']
                lines += [f'contract = "{coin.contract}"'] if coin.contract else []
            for index in range(self.hot[chain.name]):
                lines += ["[[operation_wallets]]", 'role = "hot"', f'chain = "{chain.name}"', f'group = "hot-{chain.kind}"',
                          f"index = {index}"]
            lines += [f"[wallet_groups.hot-{chain.kind}]", f'chain = "{chain.kind}"', 'purpose = "hot"', f'xpub = "{self.xpubs[chain.kind]}"']
        self.secret_file("treasury.toml", "\n".join(lines))

    def make_policy(self):
        """Everything is allowed: this is no test of the signer's limits."""
        key = self.folder / "ada.key"
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True, stderr=subprocess.DEVNULL)
        key.chmod(0o600)
        public = subprocess.run(["openssl", "pkey", "-in", key, "-pubout", "-outform", "DER"], check=True, stdout=subprocess.PIPE).stdout[-32:]
        much = str(10 ** 30)
        lines = ['signer = "payouts"', "version = 1", "cooling_off_hours = 24", "most_intent_life_hours = 48", "tron_margin_minutes = 1",
                 f'administrators = {{ needed = 1, keys = {{ ada = "{public.hex()}" }} }}']
        for chain in self.chains:
            place = f"chain_id = {chain.network}" if chain.kind == "evm" else ""
            lines += ["[[chain]]", f'name = "{chain.name}"', f'kind = "{chain.kind}"', place]
        for chain in self.chains:
            lines += ["[[group]]", f'id = "hot-{chain.kind}"', f'chain = "{chain.name}"', 'role = "hot"', 'most_fee = "4000000000000000"',
                      f'most_fee_day = "{much}"', f"highest_index = {self.hot[chain.name] - 1}"]
            for coin in chain.coins.values():
                lines += ["[[group.coin]]", f'coin = "{coin.contract or "native"}"', f'payment = "{much}"', f'hour = "{much}"', f'day = "{much}"']
        (self.folder / "policy.toml").write_text("\n".join(lines) + "\n")
        self.program.run("signer", "policy", "sign", "policy.toml", "--as", "ada", "--key", "ada.key")
        self.program.run("signer", "policy", "apply", "policy.toml")

    def configuration(self):
        asked = ["[signer]", 'name = "payouts"', 'socket = "bursar-signer/socket"', 'credential_file = "server.credential"']
        return super().configuration() + "\n".join(asked) + "\n"

    def fund(self):
        for chain in self.chains:
            for address in chain.wallets.values():
                for coin, amount in (FUNDS if chain.kind == "evm" else TRON_FUNDS).items():
                    chain.pay(address, coin, amount)
                    self.funded[chain.name, chain.key(address), coin] = amount
            chain.mine(chain.depth_at_rest())

    # ---- jobs ------------------------------------------------------------------------------------------------

    def add(self, chain=None, coin=None, count=1, priority=None):
        """Each has a recipient of its own."""
        chain = chain or self.random.choice(self.chains)
        started, jobs = [], []
        for _ in range(count):
            self.made += 1
            what = coin or self.random.choice(["coin", "token"])
            about = chain.coins[what]
            units = self.random.randrange(10 ** about.precision // 100, 10 * 10 ** about.precision)
            to = self.new_address(chain)
            words = ["job", "add", "--chain", chain.name, "--asset", about.asset, "--amount", decimal(units, about.precision), "--to", to,
                     "--reference", f"invoice-{self.made}", "--actor", "driver", "--json"]
            words += ["--priority", str(priority)] if priority is not None else []
            started.append((f"invoice-{self.made}", what, units * 10 ** (about.decimals - about.precision), to, words))
        # Not more at a time than there are processors.
        for start in range(0, count, 2):
            jobs += self.add_some(chain, started[start:start + 2])
        self.note(f"{count} jobs on {chain.name}")
        return jobs

    def add_some(self, chain, some):
        running = [subprocess.Popen([self.program.path, *one[-1]], cwd=self.folder, env=self.program.environment, text=True,
                                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for one in some]
        jobs = []
        for process, (reference, coin, amount, to, words) in zip(running, some):
            said, trouble = process.communicate(timeout=120)
            if process.returncode != 0:
                raise CommandFailed(f"`bursar {' '.join(words)}` ended with {process.returncode}:\n{trouble[-2000:]}")
            job = Job(json.loads(said)["job_id"], reference, chain.name, coin, amount, chain.key(to))
            self.jobs[reference] = job
            self.counts["jobs"] += 1
            jobs.append(job)
        return jobs

    def new_address(self, chain):
        raw = self.random.randbytes(20)
        return "0x" + raw.hex() if chain.kind == "evm" else tron_text(b"\x41" + raw)

    def states(self, jobs=None):
        """By reference: the row of each job."""
        rows = self.program.rows("""SELECT j.id, j.reference, j.state, j.reason, j.tries, l.address, c.name AS chain FROM outbound_jobs j
            JOIN outbound_lanes l ON l.id = j.lane_id JOIN chains c ON c.id = j.chain_id""")
        wanted = None if jobs is None else {job.reference for job in jobs}
        return {row["reference"]: row for row in rows if wanted is None or row["reference"] in wanted}

    def slots(self, jobs=None):
        """Each attempt that was signed, with its slot and job."""
        wanted = {job.reference for job in jobs or self.jobs.values()}
        rows = self.program.rows("""SELECT j.reference, s.id AS slot, s.nonce, s.state, a.number, a.kind, HEX(a.tx_hash)HEX AS tx, a.told_at, a.said,
            l.address, a.mined_height FROM outbound_attempts a JOIN outbound_slots s ON s.id = a.slot_id JOIN outbound_lanes l ON l.id = s.lane_id
            JOIN outbound_slot_jobs k ON k.slot_id = s.id JOIN outbound_jobs j ON j.id = k.job_id WHERE a.signed IS NOT NULL ORDER BY s.nonce""")
        return [row for row in rows if row["reference"] in wanted]

    def wait_for_states(self, jobs, *states, mines=False):
        names = " or ".join(states)

        def is_so():
            if mines:
                # Ten blocks a second are more than three nodes can be asked about alike.
                self.mine()
                time.sleep(0.4)
            return all(row["state"] in states for row in self.states(jobs).values())
        self.wait_until(f"{len(jobs)} jobs are {names}", is_so)

    def wait_until_told(self, jobs):
        """Their transactions are signed, and nodes were told of them, whatever they said."""
        self.wait_until(f"{len(jobs)} jobs are told to nodes", lambda: len({row["reference"] for row in self.slots(jobs)}) == len(jobs)
                        and all(row["state"] != "broadcasting" for row in self.states(jobs).values()))

    def must_not_have_ended(self, jobs):
        """Nothing that was said so far proves anything of them."""
        for row in self.states(jobs).values():
            if row["state"] in ENDED:
                self.fail(f"{row['reference']} has ended, and nothing proves that: {row}")

    def must_not_have_failed(self, jobs):
        for row in self.states(jobs).values():
            if row["state"] == "failed_final":
                self.fail(f"{row['reference']} has failed, and nothing was wrong with it: {row}")

    def mine(self, blocks=1):
        for chain in self.chains if blocks else []:
            chain.mine(blocks)

    # ---- time and workers ------------------------------------------------------------------------------------

    def time_passes(self, seconds):
        """For all at once, as if the machine had stood still so long. Whoever begins is given a moment: with no database in all that time it
        would end again, as it should."""
        time.sleep(max(0, self.last_start + BEGINNING_S - time.monotonic()))
        self.clock.pass_seconds(seconds)
        self.note(f"{seconds} s pass")

    def wait_for_days(self, what, is_so, seconds):
        """Blocks are mined, and so many seconds pass now and then, until it is so. Not all the time: calls that are on their way fail by it."""
        passed = time.monotonic()

        def looks():
            nonlocal passed
            if time.monotonic() > passed + 3:
                self.time_passes(seconds)
                passed = time.monotonic()
            self.mine()
            time.sleep(0.2)
            return is_so()
        self.wait_until(what, looks)

    def leases_pass(self):
        self.time_passes(LEASE_S)

    def kill_some(self, most=3):
        """At random; the signer too. They begin again at once, or with `start_all`."""
        some = self.random.sample(self.workers, self.random.randint(1, most))
        for worker in some:
            worker.go_on()
            worker.kill()
            self.counts["kills"] += 1
            if self.random.random() < 0.7:
                worker.start()
                self.last_start = time.monotonic()
        self.note("killed: " + ", ".join(worker.name for worker in some))

    def start_all(self):
        for worker in self.workers:
            if not worker.runs():
                self.last_start = time.monotonic()
            worker.go_on()
            worker.start()

    def stop_all(self):
        """As a machine that loses its power stops them."""
        for worker in self.workers:
            worker.kill()

    # ---- the other program -----------------------------------------------------------------------------------

    def key_of(self, chain, address):
        index = list(chain.wallets).index(chain.key(address))
        key = keys.private_key(WORDS["evm"], 60, index)
        assert keys.address_of(keys.times(key)) == chain.key(address), "these are the wallet's words"
        return key

    def steal(self, chain, address, nonce, amount=10 ** 15):
        """A payment by another program that has the wallet's key, to somebody who is nobody's recipient."""
        raw = keys.transaction(self.key_of(chain, address), chain.id_number, nonce, self.new_address(chain), amount, 100 * GWEI, 5 * GWEI)
        hash_ = chain.honest.rpc("eth_sendRawTransaction", "0x" + raw.hex())
        self.foreign.add(hash_)
        self.counts["foreign transactions"] += 1
        return hash_

    def lanes(self, chain):
        rows = self.program.rows(f"""SELECT l.address, l.stopped, g.outbound_stopped AS group_stopped FROM outbound_lanes l
            JOIN chains c ON c.id = l.chain_id JOIN wallet_groups g ON g.id = l.wallet_group_id WHERE c.name = '{chain.name}'""")
        return {chain.key(row["address"]): row for row in rows}

    def stopped(self, chain, address):
        """Why its lane sends nothing, or None."""
        row = self.lanes(chain).get(chain.key(address))
        return row and (row["stopped"] or row["group_stopped"])

    def proven(self, chain):
        """How far the books are."""
        rows = self.program.rows(f"SELECT k.proven_height FROM chain_cursors k JOIN chains c ON c.id = k.chain_id WHERE c.name = '{chain.name}'")
        return rows[0]["proven_height"] or 0

    def people(self, *words):
        return self.program.run(*words, "--reason", "looked at the chain", "--actor", "ann", "--second", "bob")

    def resume_all(self):
        """Two people have looked at every lane that is stopped."""
        for chain in self.chains:
            for address in chain.wallets:
                # Whoever lets one send lets its group.
                row = self.lanes(chain).get(address)
                if row and (row["stopped"] or row["group_stopped"]):
                    self.people("lane", "resume", row["address"], "--chain", chain.name)
                    self.note(f"two people let {row['address']} send again: {row['stopped'] or row['group_stopped']}")

    @staticmethod
    def now():
        return time.monotonic()

    def pace(self):
        time.sleep(self.random.uniform(0, 0.3))


def decimal(units, precision):
    whole, part = divmod(units, 10 ** precision)
    return f"{whole}.{part:0{precision}d}"
