"""Makes tokens.json: tokens of a library that is not ours, good and bad, with what a verifier must say of each.

    python3 -m venv venv && venv/bin/pip install pyjwt cryptography
    venv/bin/python make_tokens.py > tokens.json

PyJWT signs wherever it lets itself be made to. What it refuses to make (duplicate members, a public key as an HMAC
secret, base64 with padding) is put together by hand. The RSA keys are new on every run, and no private key is kept.
"""

import base64
import hashlib
import hmac
import json
import sys
from importlib.metadata import version

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import OKPAlgorithm, RSAAlgorithm

NOW = 1_800_000_000
SKEW = 30
ISSUER = "https://login.example"
AUDIENCE = "bursar"
SECRET = hashlib.sha256(b"a secret for tests").digest()

RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
ED_KEY = ed25519.Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"ed25519 key for tests").digest())
OTHER_ED_KEY = ed25519.Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"another").digest())
EC_KEY = ec.generate_private_key(ec.SECP256R1())

GOOD = {"sub": "42", "iss": ISSUER, "aud": AUDIENCE, "iat": NOW - 5, "nbf": NOW - 5, "exp": NOW + 300}

tokens = []


def add(name, token, verdict="ok", user=None):
    tokens.append({"name": name, "verdict": verdict, **({"user": user} if user else {}), "token": token})


def claims(**changes):
    return {name: value for name, value in {**GOOD, **changes}.items() if value is not None}


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def by_hand(header, payload, key=SECRET, digest=hashlib.sha256):
    """Header and payload as texts, signed with HMAC."""
    signed = b64(header.encode()) + "." + b64(payload.encode())
    return signed + "." + b64(hmac.new(key, signed.encode(), digest).digest())


def jwk(algorithm, key, kid):
    public = json.loads(algorithm.to_jwk(key.public_key()))
    return {**public, "kid": kid, "use": "sig"}


SIGNERS = {"HS256": ("hs", SECRET), "RS256": ("rsa", RSA_KEY), "EdDSA": ("ed", ED_KEY)}


def encode(payload, algorithm="EdDSA", **headers):
    kid, key = SIGNERS[algorithm]
    headers = {name: value for name, value in {"kid": kid, **headers}.items() if value is not ...}
    return jwt.encode(payload, key, algorithm=algorithm, headers=headers)


# Good ones, of each algorithm.
for algorithm in SIGNERS:
    add(f"{algorithm}: plain", encode(GOOD, algorithm), user=42)
    add(f"{algorithm}: no kid, but the only key", encode(GOOD, algorithm, kid=...), user=42)
    add(f"{algorithm}: type at+jwt", encode(GOOD, algorithm, typ="at+jwt"), user=42)
    add(f"{algorithm}: type AT+JWT", encode(GOOD, algorithm, typ="AT+JWT"), user=42)
    add(f"{algorithm}: no type", encode(GOOD, algorithm, typ=None), user=42)
    add(f"{algorithm}: several audiences", encode(claims(aud=["other", AUDIENCE]), algorithm), user=42)
    add(f"{algorithm}: only what is required", encode(claims(iat=None, nbf=None), algorithm), user=42)
    add(f"{algorithm}: times with fractions", encode(claims(iat=NOW - 0.25, exp=NOW + 0.5), algorithm), user=42)
    add(f"{algorithm}: expired within the skew", encode(claims(exp=NOW - SKEW + 1), algorithm), user=42)
    add(f"{algorithm}: issued within the skew", encode(claims(iat=NOW + SKEW, nbf=NOW + SKEW), algorithm), user=42)
    add(f"{algorithm}: the last user", encode(claims(sub=str(2**63 - 1)), algorithm), user=2**63 - 1)
    add(f"{algorithm}: more claims", encode(claims(scope="a b", deep={"a": [1, {"b": None}]}), algorithm), user=42)

# Bad claims under good signatures.
for algorithm in SIGNERS:
    for name, changes, verdict in [
        ("expired", {"exp": NOW - SKEW}, "expired"),
        ("expired by a fraction", {"exp": NOW - SKEW - 0.25}, "expired"),
        ("no expiry", {"exp": None}, "no_expiry"),
        ("expiry in a far exponent", {"exp": 1e300}, "bad_time"),
        ("not yet valid", {"nbf": NOW + SKEW + 1}, "not_yet_valid"),
        ("issued in the future", {"iat": NOW + SKEW + 1}, "issued_in_future"),
        ("wrong issuer", {"iss": ISSUER + "/"}, "wrong_issuer"),
        ("no issuer", {"iss": None}, "wrong_issuer"),
        ("wrong audience", {"aud": "other"}, "wrong_audience"),
        ("wrong audiences", {"aud": ["other", "Bursar"]}, "wrong_audience"),
        ("no audience", {"aud": None}, "wrong_audience"),
        ("user 0", {"sub": "0"}, "bad_subject"),
        ("user with a leading zero", {"sub": "042"}, "bad_subject"),
        ("negative user", {"sub": "-42"}, "bad_subject"),
        ("too great a user", {"sub": str(2**63)}, "bad_subject"),
        ("no user", {"sub": None}, "bad_subject"),
        ("a name as user", {"sub": "alice"}, "bad_subject"),
    ]:
        add(f"{algorithm}: {name}", encode(claims(**changes), algorithm), verdict)

# Algorithms that are not taken, and keys that are not theirs.
pem = RSA_KEY.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
der = RSA_KEY.public_key().public_bytes(
    serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
modulus = RSA_KEY.public_key().public_numbers().n.to_bytes(256, "big")
ed_public = ED_KEY.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
good = json.dumps(GOOD)

for kid in ["hs", "rsa", "ed"]:
    add(f"none, kid {kid}", jwt.encode(GOOD, None, algorithm="none", headers={"kid": kid}), "unsupported_algorithm")
add("none, no kid", jwt.encode(GOOD, None, algorithm="none"), "unsupported_algorithm")
for algorithm, key in [("HS384", SECRET * 2), ("HS512", SECRET * 2), ("RS384", RSA_KEY), ("RS512", RSA_KEY),
                       ("PS256", RSA_KEY), ("ES256", EC_KEY)]:
    add(algorithm, jwt.encode(GOOD, key, algorithm=algorithm), "unsupported_algorithm")
for what, public in [("PEM", pem), ("DER", der), ("modulus", modulus)]:
    add(f"RSA public key ({what}) as HMAC secret, kid rsa",
        by_hand('{"alg":"HS256","kid":"rsa"}', good, public), "algorithm_mismatch")
    add(f"RSA public key ({what}) as HMAC secret, no kid", by_hand('{"alg":"HS256"}', good, public), "bad_signature")
    add(f"RSA public key ({what}) as HMAC secret, said to be RS256",
        by_hand('{"alg":"RS256","kid":"rsa"}', good, public), "bad_signature")
add("Ed25519 public key as HMAC secret", by_hand('{"alg":"HS256","kid":"ed"}', good, ed_public), "algorithm_mismatch")
add("EdDSA under the RSA kid", jwt.encode(GOOD, ED_KEY, "EdDSA", {"kid": "rsa"}), "algorithm_mismatch")
add("RS256 under the Ed25519 kid", jwt.encode(GOOD, RSA_KEY, "RS256", {"kid": "ed"}), "algorithm_mismatch")
add("unknown kid", jwt.encode(GOOD, ED_KEY, "EdDSA", {"kid": "Ed"}), "unknown_key")
add("another RSA key", jwt.encode(GOOD, OTHER_RSA_KEY, "RS256", {"kid": "rsa"}), "bad_signature")
add("another Ed25519 key", jwt.encode(GOOD, OTHER_ED_KEY, "EdDSA", {"kid": "ed"}), "bad_signature")
add("another secret", jwt.encode(GOOD, SECRET[::-1], "HS256", {"kid": "hs"}), "bad_signature")
add("its own key in the header", jwt.encode(
    GOOD, OTHER_ED_KEY, "EdDSA", {"kid": "ed", "jwk": jwk(OKPAlgorithm, OTHER_ED_KEY, "ed")}), "bad_signature")

# Headers.
add("critical extension", encode(GOOD, crit=["exp"]), "critical_header")
add("payload not encoded (b64)", jwt.api_jws.encode(
    good.encode(), ED_KEY, "EdDSA", {"kid": "ed", "b64": False, "crit": ["b64"]}, is_payload_detached=True),
    "critical_header")
add("detached payload", jwt.api_jws.encode(good.encode(), ED_KEY, "EdDSA", {"kid": "ed"}).replace(
    "." + b64(good.encode()) + ".", ".."), "bad_signature")
add("type of another token", encode(GOOD, typ="logout+jwt"), "wrong_type")
add("algorithm twice", by_hand('{"alg":"none","alg":"HS256"}', good), "bad_header")
add("algorithm missing", by_hand('{"kid":"hs"}', good), "unsupported_algorithm")
add("claim twice", by_hand('{"alg":"HS256"}', '{"sub":"1",' + good[1:]), "bad_payload")
add("number as user", by_hand('{"alg":"HS256"}', json.dumps(claims(sub=42))), "bad_subject")
add("text as expiry", by_hand('{"alg":"HS256"}', json.dumps(claims(exp=str(NOW + 300)))), "bad_time")
add("payload is a list", by_hand('{"alg":"HS256"}', "[" + good + "]"), "bad_payload")

# Spelling.
plain = encode(GOOD)
head, body, signature = plain.split(".")
add("one part", head, "not_three_parts")
add("two parts", f"{head}.{body}", "not_three_parts")
add("four parts", f"{plain}.{signature}", "not_three_parts")
add("five parts", f"{head}.{body}.{signature}.{body}.{signature}", "not_three_parts")
add("padding", f"{plain}==", "bad_encoding")
add("line break", f"{plain}\n", "bad_encoding")
alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
# 64 bytes take 86 characters, of which the last carries 2 bits: the other 4 must be zero.
add("same signature, other spelling", plain[:-1] + alphabet[alphabet.index(plain[-1]) + 1], "bad_encoding")
add("signature missing", f"{head}.{body}.", "bad_signature")
add("signature cut", by_hand('{"alg":"HS256"}', good)[:-7], "bad_signature")
add("other payload", ".".join([head, encode(claims(sub="43")).split(".")[1], signature]), "bad_signature")
add("other header", ".".join([encode(GOOD, typ="at+jwt").split(".")[0], body, signature]), "bad_signature")
add("too long", encode(claims(padding="x" * 4000)), "too_long")

# The library agrees with itself on the good ones. It looks at the machine's clock, so the times are left out.
for entry in tokens:
    if entry["verdict"] == "ok":
        algorithm = jwt.get_unverified_header(entry["token"])["alg"]
        key = SIGNERS[algorithm][1]
        public = key if algorithm == "HS256" else key.public_key()
        options = {"verify_exp": False, "verify_nbf": False, "verify_iat": False}
        decoded = jwt.decode(entry["token"], public, [algorithm], options, audience=AUDIENCE, issuer=ISSUER)
        assert decoded["sub"] == str(entry["user"]), entry["name"]

json.dump({
    "made_by": f"make_tokens.py with PyJWT {version('pyjwt')} and cryptography {version('cryptography')}",
    "now": NOW,
    "skew_seconds": SKEW,
    "issuer": ISSUER,
    "audience": AUDIENCE,
    "hs256": {"kid": "hs", "secret": b64(SECRET)},
    "jwks": {"keys": [jwk(RSAAlgorithm, RSA_KEY, "rsa"), jwk(OKPAlgorithm, ED_KEY, "ed")]},
    "tokens": tokens,
}, sys.stdout, indent=1)
print()
