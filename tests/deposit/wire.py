"""HTTP with JSON, and addresses of TRON as people write them."""

import hashlib
import http.client
import json
from urllib.parse import urlsplit

ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


class Refused(Exception):
    """The other side has answered, and does not want it."""


class StoodStill(Exception):
    """A program of somebody else's does not answer any more. That says nothing of Bursar."""


class Endpoint:
    """One connection that is kept, and made again when it is gone."""

    def __init__(self, url):
        self.url = url
        self.place = urlsplit(url).netloc
        self.connection = None

    def ask(self, method, path, body=None):
        text = None if body is None else json.dumps(body)
        for fresh in (False, True):
            if self.connection is None or fresh:
                self.connection = http.client.HTTPConnection(self.place, timeout=60)
            try:
                self.connection.request(method, path, text, {"Content-Type": "application/json"})
                answer = self.connection.getresponse()
                said = answer.read()
                break
            except (OSError, http.client.HTTPException):
                self.connection.close()
                if fresh:
                    raise
        if answer.status != 200:
            raise Refused(f"{method} {path} {text}: {answer.status} {said.decode(errors='replace')[:300]}")
        return json.loads(said)

    def rpc(self, method, *params):
        return self.rpc_all([(method, list(params))])[0]

    def rpc_all(self, calls):
        """Many in one request, answered in the order of the calls."""
        if not calls:
            return []
        body = [{"jsonrpc": "2.0", "id": number, "method": method, "params": params}
                for number, (method, params) in enumerate(calls)]
        answers = {answer["id"]: answer for answer in self.ask("POST", "/", body)}
        results = []
        for number, call in enumerate(calls):
            if answers[number].get("error"):
                raise Refused(f"{call}: {answers[number]['error']}")
            results.append(answers[number]["result"])
        return results


def checksum(payload):
    return hashlib.sha256(hashlib.sha256(payload).digest()).digest()[:4]


def tron_text(raw):
    """The address of these 21 bytes."""
    number, text = int.from_bytes(raw + checksum(raw), "big"), ""
    while number:
        number, digit = divmod(number, 58)
        text = ALPHABET[digit] + text
    return text


def tron_bytes(text):
    number = 0
    for letter in text:
        number = number * 58 + ALPHABET.index(letter)
    raw = number.to_bytes(25, "big")
    if checksum(raw[:21]) != raw[21:]:
        raise ValueError(f"{text} is no address of TRON")
    return raw[:21]
