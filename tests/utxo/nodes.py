"""Real Bitcoin Core nodes on regtest that know nobody but the driver: it hands each its blocks and transactions."""

import base64
import http.client
import json
import signal
import socket
import subprocess
import time

LOGIN = "bursar:public"


class Refused(Exception):
    """The node has answered, and does not want it."""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Node:
    def __init__(self, program, folder, name, options=()):
        self.program, self.name = program, name
        self.folder = folder / name
        self.folder.mkdir()
        self.options = list(options)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = self.connection = None
        self.given = set()
        # How far the clock was turned when the mempool was last emptied: each time it must go further.
        self.turned_h = 0
        try:
            self.start()
        except BaseException:
            # Nobody else knows of it yet.
            self.stop()
            raise

    def start(self):
        """Its mempool is empty afterwards, and the newest blocks may be missing, as after the crash of a machine."""
        self.given.clear()
        with open(self.folder / "errors", "ab") as errors:
            self.process = self.begin(errors)
        deadline = time.monotonic() + 60
        while True:
            try:
                self.call("getblockcount")
                return
            except (OSError, http.client.HTTPException, Refused):
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise RuntimeError(f"{self.name} does not answer") from None
                time.sleep(0.05)

    def begin(self, errors):
        return subprocess.Popen(
            [self.program, "-regtest", f"-datadir={self.folder}", "-server=1", "-listen=0", "-connect=0", "-dnsseed=0",
             "-printtoconsole=0", "-nodebuglogfile", "-persistmempool=0", "-mempoolexpiry=1", "-maxtipage=1000000000",
             "-checkmempool=0", "-checkblockindex=0", "-par=1", "-rpcbind=127.0.0.1", "-rpcallowip=127.0.0.1",
             f"-rpcport={self.port}", "-rpcuser=bursar", "-rpcpassword=public", *self.options],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors)

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
        if self.connection:
            self.connection.close()
        self.process = self.connection = None

    def pause(self):
        """It answers nobody until it goes on."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def request(self, body):
        for attempt in range(2):
            if self.connection is None:
                self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
            try:
                authorization = base64.b64encode(LOGIN.encode()).decode()
                self.connection.request("POST", "/", json.dumps(body), {"Authorization": f"Basic {authorization}"})
                return json.loads(self.connection.getresponse().read())
            except (OSError, http.client.HTTPException, json.JSONDecodeError):
                # A node closes connections that were idle.
                self.connection.close()
                self.connection = None
                if self.process.poll() is not None:
                    said = (self.folder / "errors").read_text(errors="replace")[-1000:]
                    raise RuntimeError(f"{self.name} has ended with {self.process.returncode}: {said}") from None
                if attempt:
                    raise
        return None

    def call(self, method, *params):
        answer = self.request({"id": 0, "method": method, "params": params})
        if answer.get("error"):
            raise Refused(answer["error"]["message"])
        return answer["result"]

    def tip(self):
        return self.call("getbestblockhash")

    def give(self, block):
        """The block, and those below it that the node was not given yet."""
        missing = []
        while block is not None and block.hash not in self.given and not self.has(block):
            missing.append(block)
            block = block.parent
        for block in reversed(missing):
            refusal = self.call("submitblock", block.hex)
            if refusal not in (None, "inconclusive", "duplicate"):
                raise RuntimeError(f"{self.name} refuses the driver's block {block.height}: {refusal}")
            self.given.add(block.hash)

    def has(self, block):
        """A node that was just started may have it from before."""
        if not self.given:
            try:
                self.call("getblock", block.hash, 0)
                self.given.add(block.hash)
            except Refused:
                return False
        return block.hash in self.given

    def offer(self, tx):
        """Whether it waits there now."""
        try:
            self.call("sendrawtransaction", tx.raw.hex(), 0)
            return True
        except Refused as refusal:
            return "already in" in str(refusal) or "same-nonwitness" in str(refusal)

    def mempool(self):
        """Parents first."""
        entries = self.call("getrawmempool", True)
        return sorted(entries, key=lambda txid: (entries[txid]["ancestorcount"], txid))

    def empty_mempool(self, trigger):
        """All that waits is older than an hour now. Core looks at the age only when something new comes: `trigger`."""
        self.turned_h += 3
        self.call("setmocktime", int(time.time()) + 3600 * self.turned_h)
        try:
            self.offer(trigger)
        finally:
            self.call("setmocktime", 0)

    def unspent(self, scripts):
        """By the node's own search of all outputs: outpoint to satoshi, height, coinbase."""
        found = self.call("scantxoutset", "start", [f"raw({script.hex()})" for script in scripts])
        return {(one["txid"], one["vout"]): (satoshi(one["amount"]), one["height"], one["coinbase"])
                for one in found["unspents"]}


def satoshi(amount):
    return round(amount * 100_000_000) if isinstance(amount, float) else int(amount) * 100_000_000
