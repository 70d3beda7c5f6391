#!/usr/bin/env python3
"""Drives `bursar utxo` through a random life on three real Bitcoin Core nodes, and compares every output with theirs.

    tests/utxo_driver.py                                     30 rounds on SQLite, about a minute
    tests/utxo_driver.py --rounds 1000 --seed 7              the long run
    tests/utxo_driver.py --engine postgres                   on a private PostgreSQL (bursar with-postgres)
    tests/utxo_driver.py --case NAME [--case NAME …]         only this plot, compared after each of its steps
    tests/utxo_driver.py --cases                             the names, and what each is

The program is target/debug/bursar, or what BURSAR names. bitcoind comes from tests/tools/bitcoind.sh, or BURSAR_TEST_BITCOIND
names it. Nothing of Bursar's own code is used: the oracle is a node's `scantxoutset` and the mempools of the majority
(tests/utxo/oracle.py says what is demanded), transactions and blocks are the driver's own.

In each round a few plots (tests/utxo/plots) take a step: deposits, payouts, replacements by fee, transactions that vanish
and come back, reorganisations of up to 150 blocks, orphaned coinbases, addresses that are added late, leases, prunes. One node
lags or is on a branch of its own at times. Two followers work on one database, or none and `follow --once` does; they are
killed at any moment. Then everything is brought to rest and compared.

A disagreement that does not go away within --patience seconds ends the run with exit code 1, the seed, the round, the
difference and what led to it. So does a promised event that has not happened even in a hundred rounds more. The same seed
makes the same plots; when a follower is killed is up to the machine. --keep leaves the folder with the database and the logs.
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
from utxo.oracle import MINUTE_S, Oracle, point
from utxo.plots import PLOTS
from utxo.program import CommandFailed
from utxo.world import World

ROOT = Path(__file__).resolve().parent.parent
MOST_PLOTS = 6
MOST_STEPS = 6
# So many rounds are added while something that was promised has not happened.
MORE = 100


class Disagreement(Exception):
    """The program sees otherwise than the nodes."""


class Run(World):
    def __init__(self, settings, folder):
        super().__init__(settings, folder)
        self.oracle = Oracle(self)
        self.round = 0
        self.active = []
        self.deck = []
        self.late = 0

    # ---- what plots may ask ------------------------------------------------------------------------------------

    def fail(self, words):
        raise Disagreement(words)

    def follow_once(self, *more):
        try:
            self.program.follow_once(self.nodes, *more)
        except CommandFailed as failure:
            self.fail(str(failure))

    def rest(self):
        """The program is level with the majority: a command that follows sees what the driver sees."""
        self.meet()
        self.agree()

    def must_refuse_lease(self, coin, words):
        wallet = self.watched[self.all[coin[0]].outputs[coin[1]][1]].wallet
        text = f"{coin[0]}:{coin[1]}"
        if self.program.refused("utxo", "lease", "take", wallet, text, "--new-lock", "--for", "1m") is None:
            self.fail(f"{words}: {text}")

    def rescan_and_kill(self, key, start, probe):
        """Reads blocks again for a new key, and is killed between the block that pays the key and the one that has spent
        it: the nodes answer only a little at a time. Whether it came so far."""
        process = self.program.begin(*self.program.follow_words(self.nodes, "--once", "--rescan-from", str(start)))
        seen = []
        try:
            while not seen and process.poll() is None:
                time.sleep(0.02)
                for node in self.nodes:
                    node.pause()
                # What was under way is over now, or waits for a node.
                time.sleep(0.05)
                seen = self.program.outputs_of(key.wallet, key.address)
                for row in seen if probe else []:
                    self.must_refuse_lease(point(row["outpoint"]), "leased while the blocks are still read again")
                if not seen:
                    for node in self.nodes:
                        node.go_on()
        finally:
            running = process.poll() is None
            process.kill()
            process.communicate()
            for node in self.nodes:
                node.go_on()
        return running and bool(seen)

    # ---- rounds ------------------------------------------------------------------------------------------------

    def agree(self):
        """Compares until nothing differs. What does not go away is a disagreement."""
        running = any(follower.process for follower in self.followers)
        if not running:
            self.follow_once()
        patience = self.settings.patience if running else 0
        started = begun = time.monotonic()
        while True:
            found = self.oracle.differences()
            if not found:
                return
            now, ended = time.monotonic(), any("ended by itself" in line for line in found)
            if self.oracle.too_soon and now < begun + 2 * MINUTE_S and not ended:
                # Patience begins when it is no longer too soon: what was read around that moment may be of before and after.
                started = now
            elif now > started + patience or ended:
                raise Disagreement("\n".join(found[:20]))
            time.sleep(0.3 if running else 5)
            if not running:
                self.follow_once()

    def meet(self):
        """More than half of the nodes are on the same block."""
        while len(self.absent()) > 1:
            self.rejoin(self.random.choice(self.absent()))
        for node in self.absent():
            if self.random.random() < 0.35:
                self.rejoin(node)
        if not self.settings.case and self.random.random() < 0.6:
            self.spread()

    def step(self):
        """Takes one plot a step further, or begins another."""
        if self.active and (len(self.active) >= MOST_PLOTS or self.random.random() < 0.6):
            name, going = self.random.choice(self.active)
        else:
            name = self.next_plot()
            going = PLOTS[name](self)
            self.active.append((name, going))
        try:
            self.note(f"{name}: {next(going)}")
        except StopIteration:
            self.active.remove((name, going))

    def next_plot(self):
        """From a deck that holds each plot, so that none is left out for long. In the rounds that were added because something
        has never happened, that comes first."""
        if self.round > self.settings.rounds:
            active = {name for name, _ in self.active}
            missing = [name for name in usual_plots(self.settings) if name not in active
                       and any(not self.counts[one] for one in PLOTS[name].promises)]
            if missing:
                return self.random.choice(missing)
        if not self.deck:
            often = ["deposit", "payout", "blocks", "blocks", "kill", "kill", "reorg"]
            self.deck = [*usual_plots(self.settings), *often]
            self.random.shuffle(self.deck)
            # Those that have not happened yet come first.
            self.deck.sort(key=lambda name: any(not self.counts[one] for one in PLOTS[name].promises))
        return self.deck.pop()

    def play_round(self):
        self.round += 1
        self.trail.append(f"round {self.round}")
        del self.trail[:-400]
        if self.random.random() < 0.5:
            self.start_followers()
            self.counts["rounds with two followers"] += 1
        else:
            self.stop_followers()
        for _ in range(self.random.randint(1, MOST_STEPS)):
            self.step()
            if any(follower.runs() for follower in self.followers):
                time.sleep(self.random.uniform(0, 0.4))
        self.meet()
        # Those that were killed are started again only now and then: the other one must do.
        if any(follower.runs() for follower in self.followers) and self.random.random() < 0.5:
            self.start_followers()
        self.agree()

    def play_case(self, name):
        self.trail = []
        for what in PLOTS[name](self):
            self.note(f"{name}: {what}")
            self.meet()
            self.agree()


def usual_plots(settings):
    return [name for name, function in PLOTS.items() if not function.once and name not in settings.without]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--engine", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--case", action="append", default=[], metavar="NAME")
    parser.add_argument("--without", action="append", default=[], metavar="NAME", help="leave a plot out of the random run")
    parser.add_argument("--cases", action="store_true", help="list the cases and end")
    parser.add_argument("--patience", type=float, default=60, metavar="SECONDS", help="for two followers to be level [60]")
    parser.add_argument("--json", action="store_true", help="the table at the end as JSON")
    parser.add_argument("--verbose", action="store_true", help="say every step")
    parser.add_argument("--keep", action="store_true", help="leave the folder with the database and the logs")
    return parser.parse_args()


def find_programs(settings):
    settings.bursar = str(Path(os.environ.get("BURSAR") or ROOT / "target/debug/bursar").resolve())
    if not os.access(settings.bursar, os.X_OK):
        sys.exit(f"error: {settings.bursar} is not there; build it, or let BURSAR name another")
    settings.bitcoind = os.environ.get("BURSAR_TEST_BITCOIND") or subprocess.run(
        [ROOT / "tests/tools/bitcoind.sh"], check=True, text=True, stdout=subprocess.PIPE).stdout.strip()
    settings.database_url = None
    if settings.engine == "postgres":
        settings.database_url = os.environ.get("BURSAR_DATABASE_URL")
        if not settings.database_url:
            os.environ["BURSAR"] = settings.bursar
            os.execv(settings.bursar, ["bursar", "with-postgres", "--", sys.executable, *sys.argv])


def never_happened(run, settings):
    played = [PLOTS[name] for name in settings.case or usual_plots(settings)]
    return sorted({promise for function in played for promise in function.promises if not run.counts[promise]})


def report(run, settings, seconds, disagreements):
    never = [] if disagreements else never_happened(run, settings)
    totals = {"engine": settings.engine, "seed": settings.seed, "rounds": run.round, "seconds": round(seconds),
              "blocks in the chain": run.main.height if run.main else 0, **dict(sorted(run.counts.items())),
              "disagreements": disagreements, "never happened": never}
    if settings.json:
        print(json.dumps(totals))
    else:
        width = max(map(len, totals))
        for name, value in totals.items():
            print(f"{name:<{width}}  {', '.join(value) or 'none' if isinstance(value, list) else value}")
    return 1 if disagreements or never else 0


def explain(run, settings, what, words):
    again = f"tests/utxo_driver.py --engine {settings.engine} --seed {settings.seed} "
    again += " ".join(f"--case {name}" for name in settings.case) or f"--rounds {run.round}"
    print(f"\nerror: {what}, seed {settings.seed}, {settings.engine}:\n{words}\n", file=sys.stderr)
    print("what led to it:", file=sys.stderr)
    for line in run.trail[-40:]:
        print(f"  {line}", file=sys.stderr)
    print(f"\nagain: {again} --verbose --keep\n", file=sys.stderr, flush=True)


def play(settings, folder):
    started = time.monotonic()
    run, disagreements, what = None, 0, "before the first round"
    try:
        run = Run(settings, folder)
        run.begin()
        run.agree()
        if settings.case:
            for what in settings.case:
                run.play_case(what)
                if not settings.json:
                    print(f"{what}: agrees", flush=True)
        else:
            # What was promised may need a few rounds more.
            while run.round < settings.rounds or (never_happened(run, settings) and run.round < settings.rounds + MORE):
                what = f"round {run.round + 1}"
                run.play_round()
                if run.round % 10 == 0 and not settings.json:
                    print(f"round {run.round}, block {run.main.height}, {time.monotonic() - started:.0f} s", flush=True)
            what = "at the end"
            run.stop_followers()
            run.agree()
    except Disagreement as difference:
        disagreements = 1
        explain(run, settings, f"the program disagrees with the nodes, {what}", difference)
    finally:
        if run:
            run.end()
    return report(run, settings, time.monotonic() - started, disagreements)


def main():
    settings = arguments()
    if settings.cases:
        for name, function in PLOTS.items():
            print(f"{name:<26}{function.__doc__.splitlines()[0]}")
        return 0
    unknown = [name for name in settings.case + settings.without if name not in PLOTS]
    if unknown:
        print(f"error: no case {', '.join(unknown)}; --cases lists them", file=sys.stderr)
        return 2
    find_programs(settings)
    signal.signal(signal.SIGTERM, lambda _signal, _frame: sys.exit(130))
    folder = Path(tempfile.mkdtemp(prefix="bursar-utxo-driver."))
    try:
        return play(settings, folder)
    finally:
        if settings.keep:
            print(f"the database and the logs are in {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
