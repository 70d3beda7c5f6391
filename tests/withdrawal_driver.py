#!/usr/bin/env python3
"""Customers withdraw with books of their own, while everything is killed, put back, set forward and asked twice; then all books are compared.

    tests/withdrawal_driver.py                              a short mix on SQLite, about two minutes
    tests/withdrawal_driver.py --rounds 100 --seed 7        the long run
    tests/withdrawal_driver.py --engine postgres            on a private PostgreSQL (bursar with-postgres)
    tests/withdrawal_driver.py --case NAME [--case NAME …]  only these, each in a world of its own, compared after each
    tests/withdrawal_driver.py --case all                   all that are not red
    tests/withdrawal_driver.py --chains anvil,tron          on both chains; usual is anvil alone
    tests/withdrawal_driver.py --cases                      the names, and what each is
    tests/withdrawal_driver.py --sabotage                   what the oracle must notice is done on purpose (SQLite)

The program is target/debug/bursar, or what BURSAR names; anvil comes from tests/tools, or from BURSAR_TEST_ANVIL. There are a signer whose
policy wants approvals above a window, a spot engine, two servers, and workers besides (tests/withdrawal/world.py). Customers are given money by
deposits on the chain. They speak HTTP; people of the house speak HTTP too and sign with openssl. What was paid is read from the blocks by the
driver itself, and nothing of Bursar's own code judges: tests/withdrawal/oracle.py says what is demanded, to the unit. Time is set forward for
all programs at once (tests/payout/clock.c).

In each round some cases (tests/withdrawal/cases) happen while servers, workers, spot engine and signer are killed; in some rounds the database
is put back from a backup in the middle. Then nodes are healed, blocks are mined until all is final, and all is compared. A disagreement that
does not go away within --patience seconds, or one that may never be (somebody is paid twice), ends the run with exit code 1, the seed, the
round, the difference and what led to it; the folder with the database, its tables as text and the logs is kept. The same seed makes the same
cases; when a process is killed, and in which order servers answer, is up to the machine. A case that is marked red is one that the program is
known to fail.

Between a backup and its restore customers ask for nothing new: what the database has never heard of, nobody can know.
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
from contextlib import nullcontext
from pathlib import Path

sys.dont_write_bytecode = True
import deposit_driver
from deposit.program import CommandFailed
from deposit.wire import StoodStill
from payout.clock import Clock
from payout.killer import Killer
from withdrawal.cases import CASES
from withdrawal.oracle import NEVER, Oracle
from withdrawal.sabotage import SABOTAGES
from withdrawal.world import SharedClock, World

CHAINS = ["anvil"]
ROUNDS = 3
TABLES = ["withdrawal_requests", "withdrawal_events", "withdrawal_jobs", "withdrawal_approvals", "withdrawal_policies", "operator_log", "accounts",
          "movements", "deposits", "outbound_jobs", "outbound_job_events", "outbound_lanes", "outbound_slots", "outbound_slot_jobs", "outbound_attempts",
          "chain_cursors", "chain_entries", "chain_findings", "wallet_balances", "wallet_groups"]
# As tests/deposit_driver.py has it: a run of which anvil was the end says nothing.
STOOD_STILL = deposit_driver.STOOD_STILL


class Disagreement(Exception):
    """The program sees otherwise than its customers."""


class Run(World):
    def __init__(self, settings, folder, limits=None):
        super().__init__(settings, folder, limits)
        self.oracle = Oracle(self)
        self.round = 0
        self.deck = []

    def fail(self, words):
        raise Disagreement("\n".join([words, *self.oracle.wrongs(), *self.waits()]))

    def waits(self):
        lines = [f"{one}: {self.oracle.why(one)}" for one in self.books.taken() if one.state in ("approved", "queued")][:10]
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
        """Everything comes to an end: nodes are well, everything runs, time passes, blocks are mined."""
        self.heal_all()
        self.leases_pass()
        self.start_all()
        self.wait_until("both servers answer", self.all_answer)
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
        self.heal_all()
        words = CASES[name](self)
        self.note(f"{name}: {words}")
        if CASES[name].compared:
            self.must_hold()
        else:
            print(f"{name}: {words}", flush=True)

    def play_round(self):
        """A mix, with kills on the way, and sometimes a restore of what was before it."""
        self.round += 1
        self.trail.append(f"round {self.round}")
        names = [name for name, function in CASES.items() if function.mixed for _ in range(function.often)]
        for _ in range(self.random.randint(1, 3)):
            if not self.deck:
                self.deck = list(names)
                self.random.shuffle(self.deck)
            name, seed = self.deck.pop(), self.random.getrandbits(32)
            self.alone = CASES[name].timed or self.random.random() < 0.4
            with nullcontext() if self.alone else Killer(self, seed):
                self.play(name)
            if self.random.random() < 0.4:
                self.kill_some()
                self.pace()
                self.leases_pass()
                self.start_all()
        if self.random.random() < 0.5:
            self.put_back_in_the_middle()
        self.rest()
        self.agree()

    def put_back_in_the_middle(self):
        """Some wait; a backup; people agree, customers call off, the chain pays; the backup is put back, and people look at the chain."""
        self.rest()
        # What the backup does not have can never be known again.
        for one in [one for one in self.books.asks if one.unknown]:
            self.ask_until_known(one)
        asks = [self.books.new(coins=self.random.choice(["0.2", "0.8", "1.5", "4", "7"])) for _ in range(self.random.randint(2, 5))]
        for one in asks:
            self.ask_until_known(one)
            self.pace()
        self.back_up()
        for one in [one for one in asks if one.id]:
            if self.random.random() < 0.5:
                self.approve(one, self.random.choice(self.approvers()))
            if self.random.random() < 0.3:
                self.books.cancel(one)
            self.mine(self.random.randint(0, 1))
            self.pace()
        self.put_back()
        self.start_again()
        self.look_after_restore(self.books.taken())

    def play_case(self, name):
        self.play(name)
        if CASES[name].compared:
            self.rest()
            self.agree()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, help=f"[{ROUNDS}; with --case none, and otherwise after the cases]")
    parser.add_argument("--engine", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--case", action="append", default=[], metavar="NAME")
    parser.add_argument("--chains", type=lambda words: words.split(","), default=CHAINS, metavar="NAME,NAME", help="[anvil]")
    parser.add_argument("--sabotage", action="store_true", help="do on purpose what the oracle must notice, and see that it does")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="of the sabotages")
    parser.add_argument("--cases", action="store_true", help="list the cases and end")
    parser.add_argument("--patience", type=float, default=90, metavar="SECONDS", help="for everything to be done [90]")
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
    again = f"tests/withdrawal_driver.py --engine {settings.engine} --seed {settings.seed} "
    again += f"--rounds {run.round}" if run.round else f"--case {what}"
    again += f" --chains {','.join(settings.chains)}" if settings.chains != CHAINS else ""
    print(f"\nerror: the books disagree, {what}, seed {settings.seed}, {settings.engine}:\n{words}\n", file=sys.stderr)
    print("what led to it:", file=sys.stderr)
    for line in run.trail[-60:]:
        print(f"  {line}", file=sys.stderr)
    print(f"\nagain: {again} --verbose\n", file=sys.stderr, flush=True)


def write_tables(run):
    for table in TABLES:
        try:
            rows = run.program.rows(f"SELECT * FROM {table}")
        except Exception as trouble:  # noqa: BLE001: it must not hide the disagreement.
            rows = [str(trouble)]
        (run.folder / f"{table}.jsonl").write_text("".join(json.dumps(row, default=lambda data: data.hex()) + "\n" for row in rows))
    asked = [{"id": one.id, "user": one.user, "name": one.name, "to": one.to, "units": one.units, "state": one.state, "refused": one.refused,
              "told": one.told} for one in run.books.asks]
    (run.folder / "asked.jsonl").write_text("".join(json.dumps(one) + "\n" for one in asked))


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
    print(f"{what}: {'agrees' if agrees else 'DISAGREES'}, {time.monotonic() - started:.0f} s, {did}", flush=True)
    return agrees


def mix(settings):
    def plays(run):
        while run.round < settings.rounds:
            run.play_round()
            print(f"round {run.round}, {run.counts['requests']} requests, {run.counts['kills']} kills", flush=True)
    return plays


def notices(sabotage):
    """Plays it on a world at rest."""
    def plays(run):
        run.play_case("plain")
        wanted = sabotage(run)
        found = []
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and not any(wanted in line for line in found):
            found = run.oracle.differences()
        if not any(wanted in line for line in found):
            raise Disagreement(f"{sabotage.__name__} was not noticed: wanted {wanted!r}, found {found}")
    return plays


def play(settings, folder):
    disagreements, started = 0, time.monotonic()
    for sabotage in SABOTAGES if settings.sabotage else []:
        name = sabotage.__name__.replace("_", "-")
        if not settings.only or name in settings.only:
            disagreements += not live(settings, folder / name, f"sabotage {name}", {}, notices(sabotage))
    for name in settings.case:
        disagreements += not live(settings, folder / name, name, CASES[name].limits, lambda run, name=name: run.play_case(name))
    if settings.rounds:
        disagreements += not live(settings, folder / "mix", "the mix", {}, mix(settings))
    print(f"withdrawals: {settings.engine}, seed {settings.seed}, {len(settings.case)} cases, {settings.rounds} rounds in "
          f"{time.monotonic() - started:.0f} s, {disagreements} disagreements")
    return 1 if disagreements else 0


def with_postgres(settings):
    """PostgreSQL lives in the time that is set forward, too: servers compare its clock with their own. The driver itself does not."""
    if settings.engine != "postgres" or SharedClock.is_there():
        return
    program = str(Path(os.environ.get("BURSAR") or deposit_driver.ROOT / "target/debug/bursar").resolve())
    # The server is another user's.
    folder = Path(tempfile.mkdtemp(prefix="bursar-withdrawal-clock."))
    folder.chmod(0o755)
    environment = {**os.environ, **Clock(folder).environment, "BURSAR": program}
    inner = ["env", "-u", "LD_PRELOAD", sys.executable, *sys.argv]
    try:
        sys.exit(subprocess.run([program, "with-postgres", "--", *inner], env=environment, check=False).returncode)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main():
    settings = arguments()
    if settings.cases:
        for name, function in CASES.items():
            red = f" (red: {function.red})" if function.red else ""
            print(f"{name:<29}{function.__doc__.splitlines()[0]}{red}")
        return 0
    unknown = [name for name in settings.case if name not in CASES]
    if unknown:
        print(f"error: no case {', '.join(unknown)}; --cases lists them", file=sys.stderr)
        return 2
    with_postgres(settings)
    deposit_driver.find_programs(settings)
    signal.signal(signal.SIGTERM, lambda _signal, _frame: sys.exit(130))
    if settings.keep_in:
        settings.keep_in = settings.keep_in.resolve()
        settings.keep_in.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bursar-withdrawal-driver.", dir=settings.keep_in))
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
            print(f"the databases and the logs are in {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
