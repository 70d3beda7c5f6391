"""The chains, the program's folder with its treasury, its workers, and what the driver knows of addresses."""

import json
import random
import subprocess
import time
from collections import Counter, defaultdict

from .anvil import Anvil
from .bitcoind import Bitcoin
from .chains import DevnetEvm, DevnetTron
from .program import Program, Worker
from .wire import Endpoint

# Those that the program is told of; one more is the driver's own, and never lies.
ENDPOINTS = 3
GROUPS = [("users", "deposit"), ("hot", "hot"), ("gas", "gas"), ("treasury", "treasury")]
FAMILIES = {"evm": "evm", "tron": "tron", "bitcoin": "bitcoin-regtest"}
# Plots pay these to anybody at any time. The others of a chain are odd, and only some plots know how.
USUAL = ("coin", "token")
LOG = '[log]\nlevel = "debug"\n'


class World:
    CALL_TIMEOUT_S = 2

    def __init__(self, settings, folder):
        self.settings, self.folder = settings, folder
        self.random = random.Random(settings.seed)
        self.counts, self.trail = Counter(), []
        self.started = time.monotonic()
        self.devnet = None
        self.chains, self.workers = [], []
        url = settings.database_url or f"sqlite://{folder}/bursar.db"
        self.program = Program(settings.bursar, folder, url)
        # By chain: whose an address is (None: the house's), how it is written, and what was asked to be paid to it.
        self.owners, self.shown = defaultdict(dict), defaultdict(dict)
        self.asked = defaultdict(Counter)
        self.users = 0
        # Users whose accounts gave nothing when a payment of theirs left the chain.
        self.may_owe = set()
        # Users and assets: more was paid than one account can hold, so what is credited of it is up to the program.
        self.nearly_full = set()
        # Chain, transaction, address and block of a payment: the user whom two people gave it to.
        self.assigned = {}
        # Chains and addresses that get coins in a way that no transaction shows.
        self.unseen = set()
        self.seen_findings = defaultdict(set)
        # Nodes that have said something untrue at some time, and those that are not well now.
        self.liars, self.unwell = set(), {}

    def note(self, words):
        self.trail.append(words)
        del self.trail[:-300]
        if self.settings.verbose:
            print(f"  {time.monotonic() - self.started:.1f} s {words}", flush=True)

    # ---- the beginning and the end ---------------------------------------------------------------------------

    def begin(self):
        self.start_chains()
        self.make_treasury()
        self.program.run("migrate")
        self.program.run("apply", "treasury.toml")
        self.learn_house()
        # There is a wallet to follow Bitcoin for as soon as somebody has an address there.
        self.new_user()
        self.workers = [Worker(self.program, f"worker-{number}", ["run", "deposits"]) for number in (1, 2)]
        self.workers += [Worker(self.program, f"follower-{number}", self.follow_words(chain)) for chain in self.chains
                         for number in (1, 2) if chain.kind == "bitcoin"]
        for worker in self.workers:
            worker.start()
        self.wait_for_cursors()

    def end(self):
        for worker in self.workers:
            worker.kill()
        for chain in self.chains:
            chain.end()
        if self.devnet:
            self.devnet.kill()
            self.devnet.wait()

    def start_chains(self):
        ports = [word for name in ("evm", "tron", "bitcoin", "control") for word in (f"--{name}-port", "0")]
        with open(self.folder / "devnet.log", "wb") as log:
            self.devnet = subprocess.Popen(
                [self.settings.bursar, "devnet", "--json", "--by-hand", "--endpoints", str(ENDPOINTS + 1), *ports],
                env=self.program.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
        said = json.loads(self.devnet.stdout.readline())
        control = Endpoint(f"http://{said['control']}")
        self.control = control
        # Added one by one: whatever was started is ended, also when the next does not begin.
        for name in self.settings.chains:
            self.chains.append({
                "bsc": lambda: DevnetEvm(control, said["evm"], said["evm_token"]),
                "tron": lambda: DevnetTron(control, said["tron"], said["tron_token"]),
                "anvil": lambda: Anvil(self.settings.anvil, self.folder),
                "bitcoin": lambda: Bitcoin(self.settings.bitcoind, self.folder),
            }[name]())

    def follow_words(self, chain):
        nodes = [word for url in chain.urls for word in ("--node", url)]
        return ["utxo", "follow", "--login-file", str(chain.login), *nodes]

    def make_treasury(self):
        passphrase = self.folder / "passphrase"
        passphrase.write_text("not a secret: these keys hold nothing\n")
        passphrase.chmod(0o600)
        groups = [(f"{name}-{kind}", purpose, FAMILIES[kind]) for kind in self.kinds() for name, purpose in GROUPS
                  if (kind, purpose) != ("bitcoin", "gas")]
        words = [word for name, purpose, family in groups for word in ("--group", f"{name}:{purpose}:{family}")]
        made = self.program.run("signer", "init", "--passphrase-file", "passphrase", *words)["groups"]
        xpubs = {group["id"]: group["xpub"] for group in made}
        lines = []
        assets = {coin.asset: coin.precision for chain in self.chains for coin in chain.coins.values()}
        for asset, precision in assets.items():
            lines += [f"[assets.{asset}]", f"precision = {precision}", 'min_transfer = "1"', 'max_transfer = "1000"',
                      'daily_transfer = "1000"']
        for chain in self.chains:
            lines += [f"[chains.{chain.name}]", f'kind = "{chain.kind}"', f'network = "{chain.network}"',
                      f"confirmations = {chain.confirmations}", f"final_confirmations = {chain.final}"]
            for coin in chain.coins.values():
                least = f"{coin.least / 10 ** coin.decimals:.8f}".rstrip("0").rstrip(".")
                lines += ["[[on_chain]]", f'asset = "{coin.asset}"', f'chain = "{chain.name}"', f"decimals = {coin.decimals}",
                          f'min_deposit = "{least}"']
                lines += [f'contract = "{coin.contract}"'] if coin.contract else []
            for role in ("hot", "treasury") if chain.kind == "bitcoin" else ("hot", "gas", "treasury"):
                lines += ["[[operation_wallets]]", f'role = "{role}"', f'chain = "{chain.name}"', f'group = "{role}-{chain.kind}"',
                          "index = 0"]
        for name, purpose, family in groups:
            lines += [f"[wallet_groups.{name}]", f'chain = "{family}"', f'purpose = "{purpose}"', f'xpub = "{xpubs[name]}"']
        treasury = self.folder / "treasury.toml"
        treasury.write_text("\n".join(lines) + "\n")
        treasury.chmod(0o600)
        (self.folder / "bursar.toml").write_text(self.configuration())

    def configuration(self):
        lines = ["[treasury]", 'file = "treasury.toml"', LOG]
        for chain in self.chains:
            lines += [f"[chains.{chain.name}]", f"call_timeout_ms = {1000 * self.CALL_TIMEOUT_S}", "hedge_ms = 300"]
            lines += ['internal_transfers = "yes"'] if getattr(chain, "traced", False) else []
            for number, url in enumerate(chain.urls):
                lines += [f"[[chains.{chain.name}.nodes]]", f'name = "{chain.name}-{number}"', f'url = "{url}"']
                lines += [f'login_file = "{chain.login}"'] if chain.kind == "bitcoin" else []
        return "\n".join(lines) + "\n"

    def learn_house(self):
        for wallet in self.program.run("wallet", "show")["operation_wallets"]:
            self.learn(next(chain for chain in self.chains if chain.name == wallet["chain"]), wallet["address"], None)

    def learn(self, chain, address, user):
        self.owners[chain.name][chain.key(address)] = user
        self.shown[chain.name][chain.key(address)] = address

    def wait_for_cursors(self):
        deadline = time.monotonic() + 60
        while len(self.program.rows("SELECT chain_id FROM chain_cursors")) < len(self.chains):
            if time.monotonic() > deadline:
                raise RuntimeError("the workers do not begin: " + self.workers[0].log.read_text(errors="replace")[-1500:])
            time.sleep(0.1)
        for chain in self.chains:
            chain.refresh()
            chain.mine(2)

    # ---- what plots do ---------------------------------------------------------------------------------------

    def new_user(self, kinds=None):
        """With an address on every chain, or on those of some kinds."""
        self.users += 1
        self.give_addresses(self.users, kinds or self.kinds())
        return self.users

    def kinds(self):
        return sorted({chain.kind for chain in self.chains})

    def give_addresses(self, user, kinds):
        """EVM chains have the same."""
        for kind in kinds:
            wallet = self.program.run("wallet", "add", "--group", f"users-{kind}", "--user", str(user))["wallets"][0]
            for chain in self.chains:
                if chain.kind == kind:
                    self.learn(chain, wallet["address"], user)

    def address_of(self, chain, user):
        """Of the house, if that is no user."""
        addresses = [key for key, owner in self.owners[chain.name].items() if owner == user]
        return self.shown[chain.name][self.random.choice(addresses)]

    def amount(self, chain, coin):
        """Around the minimum, with and without remainders below the ledger's unit, or nearly nothing."""
        about = chain.coins[coin]
        unit = 10 ** (about.decimals - about.precision)
        nothing = [0] if coin == "token" else []
        beyond = [2 ** 63 * unit, 2 ** 200, 2 ** 255] if coin == "token" and chain.name == "anvil" else []
        choices = [about.least - 1, about.least, about.least + unit - 1, 1, unit, *nothing]
        if beyond and self.random.random() < 0.05:
            return self.random.choice(beyond)
        if self.random.random() < 0.35:
            return self.random.choice(choices)
        return about.least + self.random.randrange(20 * about.least)

    def pay(self, chain, user, coin=None, amount=None):
        coin = coin or self.random.choice([name for name in USUAL if name in chain.coins])
        address = self.address_of(chain, user)
        amount = self.amount(chain, coin) if amount is None else amount
        self.promise(chain, address, coin, amount)
        chain.pay(address, coin, amount)
        return f"{amount} of {chain.coins[coin].asset} on {chain.name} to {address}"

    def promise(self, chain, address, coin, amount):
        """So much is about to be paid there."""
        self.asked[chain.name][chain.key(address), coin] += amount
        self.counts["payments"] += 1

    def pairs(self, chain):
        """The addresses, as they are written, and coins whose balances count. Odd coins only where they were paid."""
        usual = [name for name in USUAL if name in chain.coins]
        asked = self.asked[chain.name]
        return [(address, coin) for key, address in self.shown[chain.name].items() for coin in chain.coins
                if coin in usual or (key, coin) in asked]

    def chain(self, name):
        """None: it does not take part."""
        return next((chain for chain in self.chains if chain.name == name), None)

    def wait_until(self, what, is_so):
        deadline = time.monotonic() + self.settings.patience
        while not is_so():
            if time.monotonic() > deadline:
                self.fail(f"for {self.settings.patience:.0f} s it was waited for in vain that {what}")
            time.sleep(0.1)

    def wait_for_deposit(self, user, generation, state):
        """The user's only payment, when it was mined for this time."""
        sql = f"SELECT state FROM deposits WHERE user_id = {user} AND generation = {generation}"
        self.wait_until(f"the payment of user {user}, mined for the {generation + 1}. time, is {state}",
                        lambda: [row["state"] for row in self.program.rows(sql)] == [state])

    def heal(self):
        self.control.ask("POST", "/heal", {})
        for chain in self.chains:
            chain.heal()
        self.unwell.clear()

    def expire_leases(self):
        self.program.leases_pass()
