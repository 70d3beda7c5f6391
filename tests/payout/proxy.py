"""Stands between the program and a node of EVM or TRON, and writes down every transaction that it is told of. If it is told to, it answers
to them something else than the node, with or without showing them to it; or it says nothing at all.
"""

import http.client
import json
import socket
import struct
import threading
from collections import namedtuple
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

from deposit.proxy import Server

BROADCASTS = ("eth_sendRawTransaction", "/wallet/broadcasthex", "/wallet/broadcasttransaction")
# how: "words" (an error of the chain's protocol that says them), "500", "reset", "silent" or "garbage". shown: the node gets it.
Answer = namedtuple("Answer", "how words shown", defaults=["", True])
# So long nobody is answered. It is longer than the program waits.
SILENCE_S = 20


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        asked = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        proxy = self.server.proxy
        if proxy.dead:
            proxy.healed.wait(SILENCE_S)
            self.close_connection = True
            return
        try:
            self.say(*proxy.answer(self, asked))
        except Silence as silence:
            if silence.resets:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            else:
                proxy.healed.wait(SILENCE_S)
            self.close_connection = True

    def do_GET(self):
        self.do_POST()

    def say(self, status, said):
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)
        except OSError:
            self.close_connection = True

    def log_message(self, *_words):
        """Nothing: there are thousands."""


class Silence(Exception):
    """Nobody is answered. The connection is reset, or it stays as it is."""

    def __init__(self, resets):
        super().__init__()
        self.resets = resets


class BroadcastProxy:
    """`told` is the list of all that was broadcast through any proxy of a chain: bytes in hexadecimal, in their order."""

    def __init__(self, upstream, told):
        self.usual = self.upstream = upstream
        self.told = told
        self.healed, self.local = threading.Event(), threading.local()
        self.heal()
        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.proxy = self
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()

    def heal(self):
        self.upstream, self.dead, self.broadcasts = self.usual, False, None
        # Whoever waits is let go; whoever comes now waits for the next.
        self.healed.set()
        self.healed = threading.Event()

    def end(self):
        self.heal()
        self.server.shutdown()
        self.server.server_close()

    def answer(self, handler, asked):
        body = json.loads(asked) if asked.strip() else {}
        if isinstance(body, list):
            # As some providers do: what is broadcast comes alone. So every broadcast is seen here by itself.
            if any(one["method"] in BROADCASTS for one in body):
                return 200, json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no lists of transactions"}}).encode()
        elif body.get("method") in BROADCASTS or handler.path in BROADCASTS:
            return self.broadcast(handler, asked, body)
        return self.forward(handler.command, handler.path, asked)

    def broadcast(self, handler, asked, body):
        raw = body["params"][0] if "params" in body else body.get("transaction", asked.decode())
        self.told.append(raw.removeprefix("0x"))
        fault = self.broadcasts
        if fault is None:
            return self.forward(handler.command, handler.path, asked)
        if fault.shown:
            self.forward(handler.command, handler.path, asked)
        if fault.how == "500":
            return 500, b"<html>Internal Server Error</html>"
        if fault.how == "garbage":
            return 200, b'{"jsonrpc":"2.0","id":1,"resu'
        if fault.how == "words":
            return 200, json.dumps(refusal(body, fault.words)).encode()
        raise Silence(fault.how == "reset")

    def forward(self, command, path, asked):
        """On a connection of this thread, which is made again when the node is another one or has closed it."""
        place = urlsplit(self.upstream).netloc
        for fresh in (False, True):
            if fresh or getattr(self.local, "place", None) != place:
                self.local.connection, self.local.place = http.client.HTTPConnection(place, timeout=60), place
            try:
                self.local.connection.request(command, path, asked, {"Content-Type": "application/json"})
                answer = self.local.connection.getresponse()
                return answer.status, answer.read()
            except (OSError, http.client.HTTPException):
                self.local.connection.close()
        return 502, b"no node answers"


def refusal(asked, words):
    """As nodes of EVM and of TRON say no."""
    if "jsonrpc" in asked:
        return {"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32000, "message": words}}
    code, _, text = words.partition(": ")
    return {"result": False, "code": code, "txid": "", "message": text.encode().hex()}
