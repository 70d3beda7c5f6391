"""Customers and operators, as they speak to servers: HTTP with tokens and signatures that the driver makes by itself."""

import base64
import hashlib
import hmac
import http.client
import json
import subprocess
import time
from collections import namedtuple

LABEL = b"bursar-signer-approval-v1\0"
# So long a customer waits. Whoever has no answer by then knows nothing.
PATIENCE_S = 20

# status None: no answer came, and nobody knows whether anything was done.
Answer = namedtuple("Answer", "status body")


def part(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def token(secret, audience, subject, now):
    """A JWT with HS256."""
    head = part(b'{"alg":"HS256","typ":"JWT"}')
    says = {"sub": str(subject), "iss": "driver", "aud": audience, "iat": int(now) - 5, "exp": int(now) + 600}
    text = head + b"." + part(json.dumps(says).encode())
    return (text + b"." + part(hmac.new(secret, text, hashlib.sha256).digest())).decode()


def code_of(answer):
    """Of an error."""
    error = answer.body.get("error") if isinstance(answer.body, dict) else None
    return error.get("code") if isinstance(error, dict) else None


def is_unknown(answer):
    """Whether it may have been done, and may still be."""
    return answer.status is None or answer.status == 408 or code_of(answer) == "OUTCOME_UNKNOWN"


def is_nothing(answer):
    """Whether the server was not able to do anything, which says nothing of the request."""
    return answer.status in (429, 503) and code_of(answer) in ("SYSTEM_ERROR", "SERVER_STOPPING", "RATE_LIMIT_EXCEEDED", "SERVER_BUSY")


def ask(place, method, path, bearer, body=None, patience=PATIENCE_S):
    """On a connection of its own: whoever is killed leaves no half of an answer in it."""
    connection = http.client.HTTPConnection(place, timeout=patience)
    head = {"Authorization": f"Bearer {bearer}"}
    text = None
    if body is not None:
        head["Content-Type"], text = "application/json", json.dumps(body)
    try:
        connection.request(method, path, text, head)
        answer = connection.getresponse()
        said = answer.read()
        return Answer(answer.status, json.loads(said) if said else None)
    except ConnectionRefusedError:
        # Nobody was there, so nothing was asked.
        return Answer(503, {"error": {"code": "SYSTEM_ERROR", "message": "nobody listens"}})
    except (OSError, http.client.HTTPException, json.JSONDecodeError) as trouble:
        return Answer(None, str(trouble))
    finally:
        connection.close()


class People:
    """Keys of persons, made by openssl and used by it."""

    def __init__(self, folder, names):
        self.folder, self.public = folder, {}
        for name in names:
            file = self.file(name)
            subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", file], check=True, stderr=subprocess.DEVNULL)
            file.chmod(0o600)
            shown = subprocess.run(["openssl", "pkey", "-in", file, "-pubout", "-outform", "DER"], check=True, stdout=subprocess.PIPE)
            self.public[name] = shown.stdout[-32:].hex()

    def file(self, name):
        return self.folder / f"{name}.key"

    def signature(self, name, digest):
        """Over the digest of an intent, as the signer reads it."""
        message = self.folder / f"{name}-{time.monotonic_ns()}.message"
        message.write_bytes(LABEL + bytes.fromhex(digest))
        done = subprocess.run(["openssl", "pkeyutl", "-sign", "-rawin", "-inkey", self.file(name), "-in", message], check=True,
                              stdout=subprocess.PIPE)
        message.unlink()
        return done.stdout.hex()
