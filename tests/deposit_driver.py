#!/usr/bin/env python3
"""Pays addresses of ours on chains that reorganise and lie, kills `bursar run deposits`, and holds its books against the nodes.

    tests/deposit_driver.py                                  15 rounds on SQLite
    tests/deposit_driver.py --rounds 1000 --seed 7           the long run
    tests/deposit_driver.py --engine postgres                on a private PostgreSQL (bursar with-postgres)
    tests/deposit_driver.py --case NAME [--case NAME …]      only this, a few times, compared after each
    tests/deposit_driver.py --cases                          the names, and what each is

The program is target/debug/bursar, or what BURSAR names. The chains are an EVM chain and TRON of `bursar devnet`, each with four
endpoints, of which one is the driver's own and honest; and a real anvil, if BURSAR_TEST_ANVIL names the program. Nothing of
Bursar's own code is used: the driver reads blocks and balances from the nodes itself (tests/deposit/oracle.py says what is
demanded) and Bursar's tables as they are.

In each round a few plots (tests/deposit/plots.py) happen, while two workers run. Then, after most rounds, all nodes are healed,
blocks are mined until everything is final, and everything is compared. A disagreement that does not go away within --patience
seconds ends the run with exit code 1, the seed, the round, the difference and what led to it. The same seed makes the same plots;
when a worker is killed is up to the machine. --keep leaves the folder with the database and the logs.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
from deposit.oracle import Oracle
from deposit.plots import PLOTS
from deposit.world import World

ROOT = Path(__file__).resolve().parent.parent
MOST_STEPS = 6


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

    def rest(self):
        """Everything that is under way comes to an end: nodes are well, workers run, all payments are final."""
        self.heal()
        for worker in self.workers:
            worker.go_on()
            worker.start()
        for chain in self.chains:
            # What waited is in the first of these.
            chain.mine(max(chain.final, chain.confirmations) + 2)
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
                self.deck = [name for name, function in PLOTS.items() for _ in range(function.often)]
                self.random.shuffle(self.deck)
            self.play(self.deck.pop())
            time.sleep(self.random.uniform(0, 0.4) * self.random.random())
        if self.random.random() < 0.7:
            self.rest()
            self.agree()

    def play_case(self, name):
        for _ in range(5):
            for step in ("several", name, "blocks", name):
                self.play(step)
            self.rest()
            self.agree()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--engine", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--case", action="append", default=[], metavar="NAME")
    parser.add_argument("--cases", action="store_true", help="list the cases and end")
    parser.add_argument("--patience", type=float, default=90, metavar="SECONDS", help="for the workers to be level [90]")
    parser.add_argument("--verbose", action="store_true", help="say every step")
    parser.add_argument("--keep", action="store_true", help="leave the folder with the database and the logs")
    return parser.parse_args()


def find_programs(settings):
    settings.bursar = str(Path(os.environ.get("BURSAR") or ROOT / "target/debug/bursar").resolve())
    if not os.access(settings.bursar, os.X_OK):
        sys.exit(f"error: {settings.bursar} is not there; build it, or let BURSAR name another")
    settings.database_url = None
    if settings.engine == "postgres":
        settings.database_url = os.environ.get("BURSAR_DATABASE_URL")
        if not settings.database_url:
            os.environ["BURSAR"] = settings.bursar
            os.execv(settings.bursar, ["bursar", "with-postgres", "--", sys.executable, *sys.argv])


def explain(run, settings, what, words):
    again = f"tests/deposit_driver.py --engine {settings.engine} --seed {settings.seed} "
    again += " ".join(f"--case {name}" for name in settings.case) or f"--rounds {run.round}"
    print(f"\nerror: the program disagrees with the nodes, {what}, seed {settings.seed}, {settings.engine}:\n{words}\n", file=sys.stderr)
    print("what led to it:", file=sys.stderr)
    for line in run.trail[-40:]:
        print(f"  {line}", file=sys.stderr)
    print(f"\nagain: {again} --verbose --keep\n", file=sys.stderr, flush=True)


def play(settings, folder):
    started = time.monotonic()
    run, disagreements, what = Run(settings, folder), 0, "before the first round"
    try:
        run.begin()
        for what in settings.case:
            run.play_case(what)
            print(f"{what}: agrees", flush=True)
        while not settings.case and run.round < settings.rounds:
            what = f"round {run.round + 1}"
            run.play_round()
            if run.round % 10 == 0:
                print(f"round {run.round}, {run.counts['payments']} payments, {time.monotonic() - started:.0f} s", flush=True)
        what = "at the end"
        run.rest()
        run.agree()
    except Disagreement as difference:
        disagreements = 1
        explain(run, settings, what, difference)
    finally:
        run.end()
    report(run, settings, time.monotonic() - started, disagreements)
    return 1 if disagreements else 0


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
            print(f"{name:<14}{function.__doc__.splitlines()[0]}")
        return 0
    unknown = [name for name in settings.case if name not in PLOTS]
    if unknown:
        print(f"error: no case {', '.join(unknown)}; --cases lists them", file=sys.stderr)
        return 2
    find_programs(settings)
    signal.signal(signal.SIGTERM, lambda _signal, _frame: sys.exit(130))
    folder = Path(tempfile.mkdtemp(prefix="bursar-deposit-driver."))
    try:
        return play(settings, folder)
    finally:
        if settings.keep:
            print(f"the database and the logs are in {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
