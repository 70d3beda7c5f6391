#!/usr/bin/env python3
"""Has jobs paid on chains whose nodes lie, forget and reorganise, kills the workers and the signer, and counts what arrived.

    tests/payout_driver.py                                  a short mix on SQLite, about a minute
    tests/payout_driver.py --rounds 200 --seed 7            the long run
    tests/payout_driver.py --engine postgres                on a private PostgreSQL (bursar with-postgres)
    tests/payout_driver.py --case NAME [--case NAME …]      only these, each in a world of its own, compared after each
    tests/payout_driver.py --case all                       all that are not red
    tests/payout_driver.py --chains anvil                   only this chain
    tests/payout_driver.py --cases                          the names, and what each is
    tests/payout_driver.py --sabotage                       what the oracle must notice is done on purpose (SQLite)

The program is target/debug/bursar, or what BURSAR names. The chains are a real anvil behind three proxies that lie about broadcasts, and
TRON of `bursar devnet` behind three more. anvil comes from tests/tools, or from BURSAR_TEST_ANVIL. There are a signer service with a
keystore and a policy, a treasury with hot wallets, and two each of `bursar run outbound` and `run confirm` beside `run deposits`. Each job
has a recipient of its own. Nothing of Bursar's own code is used to judge: the driver walks every block by itself, decodes every transaction
that any node was told of, and reads Bursar's tables as they are (tests/payout/oracle.py says what is demanded). Time is set forward for all
programs at once (tests/payout/clock.c): leases and pauses are not waited for.

In each round some cases (tests/payout/cases) happen with workers that are killed in between; then all nodes are healed, blocks are mined
until everything is final, and all is compared. A disagreement that does not go away within --patience seconds, or one that may never be
(somebody is paid twice), ends the run with exit code 1, the seed, the round, the difference and what led to it; the folder with the
database, its tables as text and the logs is kept. The same seed makes the same cases; when a worker is killed is up to the machine. A case
that is marked red is one that the program is known to fail.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

sys.dont_write_bytecode = True
import deposit_driver
from deposit.program import CommandFailed
from payout.cases import CASES
from payout.killer import Killer
from payout.oracle import Oracle
from payout.sabotage import SABOTAGES
from payout.world import World

CHAINS = ["anvil", "tron"]
ROUNDS = 4
TABLES = ["outbound_jobs", "outbound_job_events", "outbound_lanes", "outbound_leases", "outbound_slots", "outbound_slot_jobs",
          "outbound_attempts", "chain_cursors", "chain_entries", "chain_findings", "wallet_balances", "wallet_groups"]
# What does not go away by waiting.
NEVER = ("ended by itself", "PAID TWICE", "may still be mined", "FOR NOTHING")


class Disagreement(Exception):
    """The program sees otherwise than the nodes."""


class Run(World):
    def __init__(self, settings, folder, limits=None):
        super().__init__(settings, folder, limits)
        self.oracle = Oracle(self)
        self.round = 0
        self.deck = []

    def fail(self, words):
        found = self.oracle.wrongs()
        raise Disagreement("\n".join([words, *found, *self.waits()]))

    def waits(self):
        rows = [row for row in self.states().values() if row["state"] not in ("confirmed", "failed_final")]
        lines = [f"{row['reference']} of {row['address']} is {row['state']}: {row['reason']}" for row in rows[:10]]
        for chain in self.chains:
            lines += [f"{address} is stopped: {why}" for address in chain.wallets if (why := self.stopped(chain, address))]
        return lines

    def must_hold(self):
        """What may never be is looked for after every step, and ends the run at once."""
        found = self.oracle.wrongs()
        if found:
            raise Disagreement("\n".join(found[:20]))

    def heal_all(self):
        self.heal()
        for chain in self.chains:
            if chain.kind == "evm" and chain.price is not None:
                chain.set_price(None)

    def rest(self):
        """Everything comes to an end: nodes are well, workers run, time passes, blocks are mined."""
        self.heal_all()
        self.leases_pass()
        self.start_all()
        self.note("all is brought to rest")

    def agree(self):
        """Blocks are mined until nothing differs any more."""
        started, passed = time.monotonic(), time.monotonic()
        while True:
            found = self.oracle.differences() or self.oracle.audit()
            if not found:
                self.counts["comparisons"] += 1
                self.note("nothing differs")
                return
            never = [line for line in found if any(words in line for words in NEVER)]
            if never or time.monotonic() > started + self.settings.patience:
                raise Disagreement("\n".join((never or found)[:20]))
            if any("stranded" in line or "is open still" in line for line in found):
                self.mine()
            if time.monotonic() > passed + 4:
                # What rests is tried again after half a minute, and then after more.
                self.time_passes(100)
                passed = time.monotonic()
            time.sleep(0.3)

    def play(self, name):
        if CASES[name].heals:
            self.heal_all()
        self.note(f"{name}: {CASES[name](self)}")
        self.must_hold()

    def play_round(self):
        self.round += 1
        self.trail.append(f"round {self.round}")
        names = [name for name, function in CASES.items() if function.mixed and (function.chain == "any" or self.chain(function.chain))]
        for _ in range(self.random.randint(1, 3)):
            if not self.deck:
                self.deck = list(names)
                self.random.shuffle(self.deck)
            name, seed = self.deck.pop(), self.random.getrandbits(32)
            with nullcontext() if CASES[name].timed or self.random.random() < 0.4 else Killer(self, seed):
                self.play(name)
            if self.random.random() < 0.4:
                self.kill_some()
                self.pace()
                self.leases_pass()
                self.start_all()
        self.rest()
        self.agree()

    def play_case(self, name):
        self.play(name)
        self.rest()
        self.agree()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, help=f"[{ROUNDS}; with --case none, and otherwise after the cases]")
    parser.add_argument("--engine", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--case", action="append", default=[], metavar="NAME")
    parser.add_argument("--chains", type=lambda words: words.split(","), default=CHAINS, metavar="NAME,NAME", help="[all]")
    parser.add_argument("--sabotage", action="store_true", help="do on purpose what the oracle must notice, and see that it does")
    parser.add_argument("--cases", action="store_true", help="list the cases and end")
    parser.add_argument("--patience", type=float, default=90, metavar="SECONDS", help="for the workers to be done [90]")
    parser.add_argument("--verbose", action="store_true", help="say every step")
    parser.add_argument("--keep", action="store_true", help="leave the folder with the database and the logs in any case")
    parser.add_argument("--keep-in", type=Path, metavar="FOLDER", help="where that folder is left")
    settings = parser.parse_args()
    if settings.rounds is None:
        settings.rounds = 0 if settings.case or settings.sabotage else ROUNDS
    if settings.case == ["all"]:
        settings.case = [name for name, function in CASES.items() if not function.red]
    return settings


def explain(run, settings, what, words):
    again = f"tests/payout_driver.py --engine {settings.engine} --seed {settings.seed} "
    again += f"--rounds {run.round}" if what.startswith("round") or what == "at the end" else f"--case {what}"
    again += f" --chains {','.join(settings.chains)}" if settings.chains != CHAINS else ""
    print(f"\nerror: the program disagrees with the nodes, {what}, seed {settings.seed}, {settings.engine}:\n{words}\n", file=sys.stderr)
    print("what led to it:", file=sys.stderr)
    for line in run.trail[-40:]:
        print(f"  {line}", file=sys.stderr)
    print(f"\nagain: {again} --verbose\n", file=sys.stderr, flush=True)


def write_tables(run):
    for table in TABLES:
        try:
            rows = run.program.rows(f"SELECT * FROM {table}")
        except Exception as trouble:  # noqa: BLE001: it must not hide the disagreement.
            rows = [str(trouble)]
        (run.folder / f"{table}.jsonl").write_text("".join(json.dumps(row, default=lambda data: data.hex()) + "\n" for row in rows))


def live(settings, folder, what, limits, plays):
    """One world from its beginning to its end. Whether all agreed."""
    started = time.monotonic()
    folder.mkdir()
    run = Run(settings, folder, limits)
    try:
        run.begin()
        run.note("the world is there")
        plays(run)
        agrees = True
    except (Disagreement, CommandFailed) as difference:
        agrees = False
        explain(run, settings, what if run.round == 0 else f"round {run.round}", difference)
        write_tables(run)
    finally:
        run.end()
    did = ", ".join(f"{count} {name}" for name, count in sorted(run.counts.items()))
    told = sum(len(chain.told) for chain in run.chains)
    print(f"{what}: {'agrees' if agrees else 'DISAGREES'}, {time.monotonic() - started:.0f} s, {did}, {told} broadcasts", flush=True)
    return agrees


def mix(settings):
    def plays(run):
        while run.round < settings.rounds:
            run.play_round()
            print(f"round {run.round}, {run.counts['jobs']} jobs, {run.counts['kills']} kills", flush=True)
    return plays


def notices(sabotage):
    """Plays it on a world at rest."""
    def plays(run):
        run.play_case("plain")
        wanted = sabotage(run)
        found = run.oracle.differences()
        if not any(wanted in line for line in found):
            raise Disagreement(f"{sabotage.__name__} was not noticed: wanted {wanted!r}, found {found}")
    return plays


def play(settings, folder):
    disagreements, started = 0, time.monotonic()
    for sabotage in SABOTAGES if settings.sabotage else []:
        name = sabotage.__name__.replace("_", "-")
        disagreements += not live(settings, folder / name, f"sabotage {name}", {}, notices(sabotage))
    for name in settings.case:
        function = CASES[name]
        if function.chain != "any" and function.chain not in settings.chains:
            continue
        disagreements += not live(settings, folder / name, name, function.limits, lambda run, name=name: run.play_case(name))
    if settings.rounds:
        disagreements += not live(settings, folder / "mix", "the mix", {}, mix(settings))
    print(f"payouts: {settings.engine}, seed {settings.seed}, {len(settings.case)} cases, {settings.rounds} rounds in "
          f"{time.monotonic() - started:.0f} s, {disagreements} disagreements")
    return 1 if disagreements else 0


def main():
    settings = arguments()
    if settings.cases:
        for name, function in CASES.items():
            red = f" (red: {function.red})" if function.red else ""
            print(f"{name:<22}{function.__doc__.splitlines()[0]}{red}")
        return 0
    unknown = [name for name in settings.case if name not in CASES]
    if unknown:
        print(f"error: no case {', '.join(unknown)}; --cases lists them", file=sys.stderr)
        return 2
    deposit_driver.find_programs(settings)
    signal.signal(signal.SIGTERM, lambda _signal, _frame: sys.exit(130))
    if settings.keep_in:
        settings.keep_in = settings.keep_in.resolve()
        settings.keep_in.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bursar-payout-driver.", dir=settings.keep_in))
    status = 1
    try:
        status = play(settings, folder)
        return status
    except (SystemExit, KeyboardInterrupt):
        # Somebody stopped it: there is nothing to look at.
        status = 130
        raise
    finally:
        if settings.keep or status == 1:
            print(f"the databases and the logs are in {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
