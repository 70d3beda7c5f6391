"""The program under test, as its users run it, and its tables, which are only read; but see `leases_pass`."""

import glob
import json
import os
import signal
import sqlite3
import subprocess
import time

LONGEST_S = 180
# Debian's psql is a script that looks for this one, which takes longer than the query.
PSQL = next(iter(sorted(glob.glob("/usr/lib/postgresql/*/bin/psql"), reverse=True)), "psql")


class CommandFailed(Exception):
    pass


def role_of(words):
    """The role that a process is, by its command. None: it has no database, or ends by itself."""
    if words[0] == "run":
        return words[1].replace("-", "_")
    return {("utxo", "follow"): "follower"}.get(tuple(words[:2]), "serve" if words[0] == "serve" else None)


class Program:
    def __init__(self, path, folder, database_url):
        self.path, self.folder, self.url = path, folder, database_url
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("BURSAR")}
        self.environment["BURSAR_DATABASE_URL"] = database_url
        self.granted = False

    def environment_of(self, words):
        """On PostgreSQL whatever runs for ever logs in as its role and has the rights of that; what people type has all."""
        role = role_of(words)
        if role is None or not self.url.startswith("postgres://postgres@"):
            return self.environment
        if not self.granted:
            self.run("grants", "--apply")
            self.granted = True
        return {**self.environment, "BURSAR_DATABASE_URL": self.url.replace("//postgres@", f"//bursar_{role}@", 1)}

    def run(self, *words):
        done = subprocess.run([self.path, *words, "--json"], cwd=self.folder, env=self.environment, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LONGEST_S)
        if done.returncode != 0:
            said = (done.stdout + done.stderr).strip()[-2000:]
            raise CommandFailed(f"`bursar {' '.join(words)}` ended with {done.returncode}:\n{said}")
        return json.loads(done.stdout)

    def rows(self, sql):
        """What a query gives, as dictionaries. HEX(…) is the hexadecimal text of bytes on both engines."""
        if self.url.startswith("sqlite://"):
            with sqlite3.connect(f"file:{self.url[9:]}?mode=ro", uri=True, timeout=30) as connection:
                connection.row_factory = sqlite3.Row
                rows = [dict(row) for row in connection.execute(sql.replace("HEX(", "lower(hex(").replace(")HEX", "))"))]
            connection.close()
            return rows
        sql = sql.replace("HEX(", "encode(").replace(")HEX", ", 'hex')")
        said = self.psql(f"SELECT coalesce(json_agg(row_to_json(t)), '[]') FROM ({sql}) t")
        return json.loads(said)

    def psql(self, sql, quiet=False):
        return subprocess.run([PSQL, self.url, "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", sql], check=True, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL if quiet else None, timeout=LONGEST_S).stdout

    def can_write(self):
        """Whether nobody has SQLite's lock of writers, or PostgreSQL's of a chain's row."""
        if not self.url.startswith("sqlite://"):
            try:
                self.psql("SET lock_timeout = '300ms'; UPDATE chain_cursors SET lease_until = lease_until", quiet=True)
                return True
            except subprocess.CalledProcessError:
                return False
        connection = sqlite3.connect(self.url[9:], timeout=0.3, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
            return True
        except sqlite3.OperationalError:
            return False
        finally:
            connection.close()

    def kill_before_booking(self, workers):
        """Kills all workers while an entry that takes back waits to be booked: whoever has SQLite's lock keeps them from it. Whether
        that moment was caught; if not, all is booked and they run."""
        connection = sqlite3.connect(self.url[9:], timeout=30, isolation_level=None)
        try:
            for _ in range(3000):
                connection.execute("BEGIN IMMEDIATE")
                waits = connection.execute("SELECT COUNT(*) FROM chain_entries WHERE reverses IS NOT NULL AND posting = 0").fetchone()[0]
                if waits:
                    for worker in workers:
                        worker.kill()
                connection.execute("ROLLBACK")
                if waits:
                    return True
                time.sleep(0.001)
            return False
        finally:
            connection.close()

    def leases_pass(self):
        """What half a minute does when nobody renews the leases on chains: whoever comes next may have them. If their holder is
        alive, it was paused for so long: it must find out that it is too late. Nothing else is ever written."""
        sql = "UPDATE chain_cursors SET lease_until = 0"
        if self.url.startswith("sqlite://"):
            connection = sqlite3.connect(self.url[9:], timeout=30)
            with connection:
                connection.execute(sql)
            connection.close()
        else:
            self.psql(sql)


class Worker:
    """`bursar run deposits`, for ever."""

    def __init__(self, program, name, words):
        self.program, self.name, self.words = program, name, words
        self.log = program.folder / f"{name}.log"
        self.process, self.paused = None, False
        self.said_before = 0

    def runs(self):
        return self.process is not None

    def start(self):
        if self.process is None:
            with open(self.log, "ab") as log:
                self.said_before = log.tell()
                self.process = subprocess.Popen([self.program.path, *self.words, "--json"], cwd=self.program.folder,
                                                env=self.program.environment_of(self.words), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self):
        if self.process:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        self.process, self.paused = None, False

    def stop(self):
        """As an operator stops it. It must end by itself."""
        self.go_on()
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            return f"{self.name} was told to stop a minute ago and runs on"
        self.process = None
        said = self.log.read_bytes()[self.said_before:]
        # Before it says that it runs, the signal simply ends it.
        early = status == -signal.SIGTERM and b'"running"' not in said and b'"nodes"' not in said
        return None if status == 0 or early else f"{self.name} was told to stop and ended with {status}: {said[-1500:].decode(errors='replace')}"

    def pause(self):
        """All of its threads stand still when this returns."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self.paused = True

    def go_on(self):
        if self.paused:
            self.process.send_signal(signal.SIGCONT)
        self.paused = False

    def ended(self):
        """What it said, if it ended without being killed."""
        if self.process is None or self.process.poll() is None:
            return None
        status, self.process = self.process.returncode, None
        return f"{self.name} ended by itself with {status}: {self.log.read_text(errors='replace')[-1500:]}"
