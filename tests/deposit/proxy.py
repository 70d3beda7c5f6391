"""Stands between the program and an EVM node, and tells it something else than the node says, if it is told to."""

import http.client
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

LIES = ["logs_left_out", "inflated"]


def twice(text):
    """Of a number in hexadecimal, in as many digits if it had a word's."""
    digits = len(text) - 2
    return f"0x{(2 * int(text, 16)) % 2 ** 256:0{64 if digits == 64 else 0}x}"


def without_logs(method, result):
    if method == "eth_getLogs":
        return []
    if method == "eth_getBlockReceipts":
        return [without_logs("eth_getTransactionReceipt", receipt) for receipt in result]
    if method == "eth_getTransactionReceipt":
        return {**result, "logs": []}
    return result


def inflated_trace(frame):
    calls = {"calls": [inflated_trace(call) for call in frame["calls"]]} if "calls" in frame else {}
    value = {"value": twice(frame["value"])} if "value" in frame else {}
    return {**frame, **value, **calls}


def inflated(method, result):
    if method == "eth_getLogs":
        return [{**log, "data": twice(log["data"])} if len(log["data"]) == 66 else log for log in result]
    if method == "eth_getBlockReceipts":
        return [inflated("eth_getTransactionReceipt", receipt) for receipt in result]
    if method == "eth_getTransactionReceipt":
        return {**result, "logs": inflated("eth_getLogs", result["logs"])}
    if method in ("eth_getBlockByNumber", "eth_getBlockByHash"):
        sent = [inflated("eth_getTransactionByHash", one) if isinstance(one, dict) else one for one in result["transactions"]]
        return {**result, "transactions": sent}
    if method == "eth_getTransactionByHash":
        return {**result, "value": twice(result["value"])}
    if method in ("debug_traceBlockByNumber", "debug_traceBlockByHash"):
        return [{**one, "result": inflated_trace(one["result"])} for one in result]
    if method == "debug_traceTransaction":
        return inflated_trace(result)
    if method == "eth_getBalance" or (method == "eth_call" and len(result) == 66):
        return twice(result)
    return result


ALTER = {"logs_left_out": without_logs, "inflated": inflated}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        proxy = self.server.proxy
        asked = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        proxy.wait(asked)
        try:
            status, said = proxy.forward(asked)
        except (OSError, http.client.HTTPException):
            status, said = 502, b"no node answers"
        if status == 200 and proxy.lie:
            said = proxy.alter(asked, said)
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


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, _request, _address):
        """Whoever asked was killed. That is what this driver does."""


class Proxy:
    def __init__(self, upstream):
        self.usual = self.upstream = upstream
        self.lie = None
        # Calls with these words in them are kept waiting: so long, or until they are let go.
        self.slow, self.slow_s, self.held = None, 0, None
        self.waits, self.let_go = threading.Event(), threading.Event()
        self.local = threading.local()
        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.proxy = self
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()

    def heal(self):
        self.upstream, self.lie, self.slow = self.usual, None, None
        self.release()

    def hold(self, words):
        """From now on; `waits` is set when one such call has come."""
        self.waits.clear()
        self.let_go.clear()
        self.held = words

    def release(self):
        self.held = None
        self.let_go.set()

    def wait(self, asked):
        if self.held and self.held in asked:
            self.waits.set()
            self.let_go.wait(30)
        if self.slow and self.slow in asked:
            time.sleep(self.slow_s)

    def end(self):
        self.server.shutdown()
        self.server.server_close()

    def forward(self, asked):
        """On a connection of this thread, which is made again when the node is another one or has closed it."""
        place = urlsplit(self.upstream).netloc
        for fresh in (False, True):
            if fresh or getattr(self.local, "place", None) != place:
                self.local.connection, self.local.place = http.client.HTTPConnection(place, timeout=60), place
            try:
                self.local.connection.request("POST", "/", asked, {"Content-Type": "application/json"})
                answer = self.local.connection.getresponse()
                return answer.status, answer.read()
            except (OSError, http.client.HTTPException):
                self.local.connection.close()
                if fresh:
                    raise
        return None

    def alter(self, asked, said):
        asked, said = json.loads(asked), json.loads(said)
        single = isinstance(asked, dict)
        methods = {one["id"]: one["method"] for one in ([asked] if single else asked)}
        answers = [said] if single else said
        for answer in answers:
            if answer.get("result"):
                answer["result"] = ALTER[self.lie](methods[answer["id"]], answer["result"])
        return json.dumps(answers[0] if single else answers).encode()
