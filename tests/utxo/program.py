"""The program under test, as its users run it: commands, and followers as processes of their own."""

import json
import os
import signal
import subprocess
import time

from .nodes import LOGIN

LONGEST_S = 180


class CommandFailed(Exception):
    def __init__(self, words, status, said):
        self.status, self.said = status, said
        super().__init__(f"`bursar {' '.join(words)}` ended with {status}:\n{said.strip()[-2000:]}")


class Program:
    def __init__(self, path, folder, database_url):
        self.path, self.folder = path, folder
        self.login = folder / "login"
        self.login.write_text(LOGIN)
        self.login.chmod(0o600)
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("BURSAR")}
        self.environment["BURSAR_DATABASE_URL"] = database_url
        self.url, self.granted = database_url, False

    def environment_of(self, words):
        """On PostgreSQL a follower logs in as its role and has the rights of that; what people type has all."""
        if tuple(words[:2]) != ("utxo", "follow") or not self.url.startswith("postgres://postgres@"):
            return self.environment
        if not self.granted:
            self.granted = True
            self.run("grants", "--apply")
        return {**self.environment, "BURSAR_DATABASE_URL": self.url.replace("//postgres@", "//bursar_follower@", 1)}

    def begin(self, *words):
        """Started, not waited for."""
        return subprocess.Popen([self.path, *words, "--json"], cwd=self.folder, env=self.environment_of(words), text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def result(self, words, process):
        try:
            said, errors = process.communicate(timeout=LONGEST_S)
        except subprocess.TimeoutExpired:
            process.kill()
            said, errors = process.communicate()
            raise CommandFailed(words, f"no end after {LONGEST_S} s", said + errors) from None
        if process.returncode != 0:
            raise CommandFailed(words, process.returncode, said + errors)
        return said

    def run(self, *words):
        return json.loads(self.result(words, self.begin(*words)))

    def run_all(self, commands):
        """Several that only read, at the same time."""
        started = [(words, self.begin(*words)) for words in commands]
        return [json.loads(self.result(words, process)) for words, process in started]

    def refused(self, *words):
        """The code of the error, or None if the command was carried out."""
        try:
            self.run(*words)
            return None
        except CommandFailed as failure:
            for line in failure.said.splitlines():
                try:
                    body = json.loads(line)
                except json.JSONDecodeError:
                    continue
                if isinstance(body, dict) and "error" in body:
                    return body["error"].get("code") if isinstance(body["error"], dict) else body["error"]
            return failure.said.strip()

    def follow_words(self, nodes, *more):
        words = ["utxo", "follow", "--login-file", str(self.login)]
        for node in nodes:
            words += ["--node", node.url]
        return words + list(more)

    def follow_once(self, nodes, *more):
        words = self.follow_words(nodes, "--once", *more)
        self.result(words, self.begin(*words))

    def follow_and_kill(self, nodes, after_s, *more):
        """Whether it was still running when it was killed."""
        process = self.begin(*self.follow_words(nodes, "--once", *more))
        time.sleep(after_s)
        running = process.poll() is None
        process.kill()
        process.communicate()
        return running

    def outputs(self, wallet, *more):
        """Every page of `utxo list`."""
        rows, after = [], []
        while True:
            page = self.run("utxo", "list", wallet, "--limit", "10000", *more, *after)
            rows += page["outputs"]
            if page["next_after"] is None:
                return rows
            after = ["--after", str(page["next_after"])]


    def outputs_of(self, wallet, address):
        return [row for row in self.outputs(wallet, "--all") if row["address"] == address]


class Follower:
    """`bursar utxo follow`, for ever."""

    def __init__(self, program, nodes, name):
        self.program, self.nodes = program, nodes
        self.log = program.folder / f"{name}.log"
        self.process = None

    def start(self):
        with open(self.log, "ab") as log:
            words = self.program.follow_words(self.nodes)
            self.process = subprocess.Popen([self.program.path, *words, "--json"], cwd=self.program.folder,
                                            env=self.program.environment_of(words),
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def runs(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        if self.process:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        self.process = None

    def ended(self):
        """What it said, if it ended without being killed."""
        if self.process is None or self.process.poll() is None:
            return None
        status, self.process = self.process.returncode, None
        return f"a follower ended by itself with {status}: {self.log.read_text(errors='replace')[-800:]}"
