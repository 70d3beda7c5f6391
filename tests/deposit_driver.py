#!/usr/bin/env python3
"""Pays addresses of ours on chains that reorganise and lie, kills `bursar run deposits`, and holds its books against the nodes.

    tests/deposit_driver.py                                  15 rounds on SQLite
    tests/deposit_driver.py --rounds 1000 --seed 7           the long run
    tests/deposit_driver.py --engine postgres                on a private PostgreSQL (bursar with-postgres)
    tests/deposit_driver.py --case NAME [--case NAME …]      only this, a few times, compared after each; with --rounds before them
    tests/deposit_driver.py --plots NAME [--plots NAME …]    this too in the random run, which leaves it out else
    tests/deposit_driver.py --chains anvil,bitcoin           only these
    tests/deposit_driver.py --cases                          the names, and what each is

The program is target/debug/bursar, or what BURSAR names. The chains are an EVM chain and TRON of `bursar devnet`, each with four
endpoints, of which one is the driver's own and honest; a real anvil behind three proxies that lie if they are told to; and Bitcoin
on three nodes of Bitcoin Core, with `bursar utxo follow`. anvil and bitcoind come from tests/tools, or from BURSAR_TEST_ANVIL and
BURSAR_TEST_BITCOIND. Nothing of Bursar's own code is used: the driver reads blocks and balances from the nodes itself
(tests/deposit/oracle.py says what is demanded) and Bursar's tables as they are.

In each round a few plots (tests/deposit/plots) happen, while two workers and two followers run. Then, after most rounds, all nodes
are healed, blocks are mined until everything is final, and everything is compared. A disagreement that does not go away within
--patience seconds ends the run with exit code 1, the seed, the round, the difference and what led to it; the folder with the
database, its tables as text and the logs is kept. The same seed makes the same plots; when a worker is killed is up to the machine.
A case that is marked red is one that the program is known to fail.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
from deposit.oracle import Oracle
from deposit.plots import PLOTS
from deposit.program import CommandFailed
from deposit.wire import StoodStill
from deposit.world import World

ROOT = Path(__file__).resolve().parent.parent
MOST_STEPS = 6
# The exit code of a run that says nothing, because a program of somebody else's stood still.
STOOD_STILL = 75
CHAINS = ["bsc", "tron", "anvil", "bitcoin"]
# What is written down of the database when something disagrees.
TABLES = ["chain_cursors", "chain_blocks", "chain_entries", "wallet_balances", "deposits", "deposit_events", "chain_findings",
          "chain_residues", "accounts", "movements", "user_wallets"]


class Disagreement(Exception):
    """The program sees otherwise than the nodes."""


class Run(World):
    def __init__(self, settings, folder):
        super().__init__(settings, folder)
        self.oracle = Oracle(self)
        self.round = 0
        self.deck = []

    def fail(self, words):
        raise Disagreement(words)

    def rest(self, heal=True):
        """Everything that is under way comes to an end: nodes are well, workers run, all payments are final."""
        if heal:
            self.heal()
        for worker in self.workers:
            worker.go_on()
            worker.start()
        for chain in self.chains:
            # What waited is in the first of these.
            chain.mine(chain.depth_at_rest())
        self.expire_leases()
        self.note("all is brought to rest")

    def agree(self):
        started = time.monotonic()
        while True:
            found = self.oracle.differences() or self.oracle.audit()
            if not found:
                self.counts["comparisons"] += 1
                self.note("nothing differs")
                return
            if time.monotonic() > started + self.settings.patience or any("ended by itself" in line for line in found):
                raise Disagreement("\n".join(found[:20]))
            time.sleep(0.2)

    def play(self, name):
        self.note(f"{name}: {PLOTS[name](self)}")

    def play_round(self):
        self.round += 1
        self.trail.append(f"round {self.round}")
        for _ in range(self.random.randint(1, MOST_STEPS)):
            if not self.deck:
                self.deck = [name for name, function in PLOTS.items() for _ in range(function.often)] + self.settings.plots
                self.random.shuffle(self.deck)
            self.play(self.deck.pop())
            time.sleep(self.random.uniform(0, 0.4) * self.random.random())
        if self.random.random() < 0.7:
            self.rest()
            self.agree()

    def play_case(self, name):
        for _ in range(PLOTS[name].times):
            for step in ("several", name, "blocks", name) if PLOTS[name].times > 1 else ("several", name):
                self.play(step)
            self.rest()
            self.agree()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, help="[15; with --case none, and otherwise after the cases]")
    parser.add_argument("--engine", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--case", action="append", default=[], metavar="NAME")
    parser.add_argument("--plots", action="append", default=[], metavar="NAME", help="put it into the random run's deck")
    parser.add_argument("--chains", type=lambda words: words.split(","), default=CHAINS, metavar="NAME,NAME", help="[all]")
    parser.add_argument("--cases", action="store_true", help="list the cases and end")
    parser.add_argument("--patience", type=float, default=90, metavar="SECONDS", help="for the workers to be level [90]")
    parser.add_argument("--verbose", action="store_true", help="say every step")
    parser.add_argument("--keep", action="store_true", help="leave the folder with the database and the logs in any case")
    parser.add_argument("--keep-in", type=Path, metavar="FOLDER", help="where that folder is left")
    settings = parser.parse_args()
    if settings.rounds is None:
        settings.rounds = 0 if settings.case else 15
    return settings


def tool(name):
    said = os.environ.get(f"BURSAR_TEST_{name.upper()}")
    return said or subprocess.run([ROOT / f"tests/tools/{name}.sh"], check=True, text=True, stdout=subprocess.PIPE).stdout.strip()


def find_programs(settings):
    settings.bursar = str(Path(os.environ.get("BURSAR") or ROOT / "target/debug/bursar").resolve())
    if not os.access(settings.bursar, os.X_OK):
        sys.exit(f"error: {settings.bursar} is not there; build it, or let BURSAR name another")
    settings.anvil = tool("anvil") if "anvil" in settings.chains else None
    settings.bitcoind = tool("bitcoind") if "bitcoin" in settings.chains else None
    settings.database_url = None
    if settings.engine == "postgres":
        settings.database_url = os.environ.get("BURSAR_DATABASE_URL")
        if not settings.database_url:
            os.environ["BURSAR"] = settings.bursar
            os.execv(settings.bursar, ["bursar", "with-postgres", "--", sys.executable, *sys.argv])


def explain(run, settings, what, words):
    again = f"tests/deposit_driver.py --engine {settings.engine} --seed {settings.seed} "
    again += " ".join([*(f"--case {name}" for name in settings.case), f"--rounds {run.round}"])
    again += "".join(f" --plots {name}" for name in settings.plots)
    again += f" --chains {','.join(settings.chains)}" if settings.chains != CHAINS else ""
    print(f"\nerror: the program disagrees with the nodes, {what}, seed {settings.seed}, {settings.engine}:\n{words}\n", file=sys.stderr)
    print("what led to it:", file=sys.stderr)
    for line in run.trail[-40:]:
        print(f"  {line}", file=sys.stderr)
    print(f"\nagain: {again} --verbose\n", file=sys.stderr, flush=True)


def play(settings, folder):
    started = time.monotonic()
    run, disagreements, what = Run(settings, folder), 0, "before the first round"
    try:
        run.begin()
        for what in settings.case:
            run.play_case(what)
            print(f"{what}: agrees", flush=True)
        while run.round < settings.rounds:
            what = f"round {run.round + 1}"
            run.play_round()
            if run.round % 10 == 0:
                print(f"round {run.round}, {run.counts['payments']} payments, {time.monotonic() - started:.0f} s", flush=True)
        what = "at the end"
        run.rest()
        run.agree()
    except (Disagreement, CommandFailed) as difference:
        disagreements = 1
        explain(run, settings, what, difference)
        write_tables(run, folder)
    finally:
        run.end()
    report(run, settings, time.monotonic() - started, disagreements)
    return 1 if disagreements else 0


def write_tables(run, folder):
    """A private PostgreSQL is gone with the run; what it held may tell why."""
    for table in TABLES:
        try:
            hexed = {"chain_blocks": "height, HEX(block_hash)HEX AS hash, source, chain_id"}.get(table, "*")
            rows = run.program.rows(f"SELECT {hexed} FROM {table}")
        except Exception as trouble:  # noqa: BLE001: it must not hide the disagreement.
            rows = [str(trouble)]
        (folder / f"{table}.jsonl").write_text("".join(json.dumps(row, default=lambda data: data.hex()) + "\n" for row in rows))


def report(run, settings, seconds, disagreements):
    names = ["payments", "comparisons", "kills", "pauses", "takeovers", "stops", "reorganisations", "lies", "nodes unwell"]
    names += sorted(run.counts.keys() - set(names))
    did = ", ".join(f"{run.counts[name]} {name}" for name in names)
    seen = ", ".join(f"{len(ids)} {kind}" for kind, ids in sorted(run.seen_findings.items())) or "none"
    print(f"chains: {', '.join(chain.name for chain in run.chains)}; findings of the program: {seen}")
    print(f"deposits: {settings.engine}, seed {settings.seed}, {run.round} rounds in {seconds:.0f} s, {did}, {disagreements} disagreements")


def main():
    settings = arguments()
    if settings.cases:
        for name, function in PLOTS.items():
            red = f" (red: {function.red})" if function.red else ""
            print(f"{name:<17}{function.__doc__.splitlines()[0]}{red}")
        return 0
    unknown = [name for name in settings.case + settings.plots if name not in PLOTS]
    if unknown:
        print(f"error: no case {', '.join(unknown)}; --cases lists them", file=sys.stderr)
        return 2
    find_programs(settings)
    signal.signal(signal.SIGTERM, lambda _signal, _frame: sys.exit(130))
    if settings.keep_in:
        settings.keep_in = settings.keep_in.resolve()
        settings.keep_in.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bursar-deposit-driver.", dir=settings.keep_in))
    status = 1
    try:
        status = play(settings, folder)
        return status
    except StoodStill as error:
        print(f"{error}: this run says nothing", file=sys.stderr)
        status = STOOD_STILL
        return status
    except (SystemExit, KeyboardInterrupt):
        # Somebody stopped it: there is nothing to look at.
        status = 130
        raise
    finally:
        if settings.keep or status == 1:
            print(f"the database and the logs are in {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
