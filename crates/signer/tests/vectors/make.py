"""Makes approvals.json: intents with their digests and signatures, by Python's cryptography and by soft-webauthn. Every
assertion, also each forged one, is one that the package webauthn accepts, for the digest, the site and the demands that stand
beside it as `accepted_for`; so whatever the signer refuses is refused because it is not what it should be for.

    tests/tools/python.sh crates/signer/tests/vectors/make.py [--check]
"""

import hashlib
import json
import pathlib
import struct
import sys

import cbor2
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from soft_webauthn import SoftWebauthnDevice
from webauthn import verify_authentication_response
from webauthn.helpers import bytes_to_base64url

HERE = pathlib.Path(__file__).parent
PARTY, ORIGIN = "bursar.example", "https://console.bursar.example"


def seeded(*words):
    return hashlib.sha256(" ".join(["bursar", "signer", *map(str, words)]).encode()).digest()


def digest(label, fields):
    """The form that crates/signer/src/digest.rs describes."""
    out = label.encode() + b"\0"
    for field in fields:
        data = str(field).encode()
        out += struct.pack(">I", len(data)) + data
    return hashlib.sha256(out).digest()


FIELDS = ["signer", "network", "job", "round", "chain", "group", "kind", "coin", "to", "amount", "cancels", "most_fee", "expires", "builds", "requester"]


def intent(**changed):
    case = {
        "signer": "test", "network": "evm:56", "job": "wr-380770000000000001", "round": "0", "chain": "bsc", "group": "hot-bsc", "kind": "pay", "coin": "native",
        "to": "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", "amount": "5000000000000000000", "cancels": "",
        "most_fee": "2000000000000000", "expires": "1794900000000000", "builds": "1", "requester": "erin",
    }
    case.update(changed)
    case["digest"] = digest("bursar-signer-intent-v1", [case[field] for field in FIELDS]).hex()
    return case


class Key:
    """A private key that signs the same bytes the same way every time, so that the file can be compared."""

    def __init__(self, name):
        self.key = ec.derive_private_key(int.from_bytes(seeded(name), "big") % (2**255), ec.SECP256R1())

    def sign(self, data, _algorithm):
        return self.key.sign(data, ec.ECDSA(hashes.SHA256(), deterministic_signing=True))

    def public_key(self):
        return self.key.public_key()


class Device(SoftWebauthnDevice):
    """soft-webauthn's device with a key that is not random."""

    def __init__(self, name, party=PARTY, count=0):
        super().__init__()
        self.credential_id, self.private_key, self.rp_id, self.user_handle = seeded(name, "id"), Key(name), party, b"user"
        self.sign_count = count

    def point(self):
        return self.private_key.public_key().public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)

    def cose(self):
        point = self.point()
        return cbor2.dumps({1: 2, 3: -7, -1: 1, -2: point[1:33], -3: point[33:]})

    def assertion(self, challenge, origin=ORIGIN, flags=None, client=None):
        """As soft-webauthn gives it, which is without the user verified; with `flags` or more client data signed anew."""
        made = self.get({"publicKey": {"rpId": self.rp_id, "challenge": challenge}}, origin)["response"]
        data, said = bytearray(made["authenticatorData"]), made["clientDataJSON"]
        if flags is not None or client:
            if flags is not None:
                data[32] = flags
            if client:
                said = json.dumps({**json.loads(said), **client}).encode()
            made["signature"] = self.private_key.sign(bytes(data) + hashlib.sha256(said).digest(), None)
        return {"authenticator_data": bytes(data).hex(), "client_data": said.hex(), "signature": made["signature"].hex()}


def accepted(device, assertion, challenge, party=PARTY, origin=ORIGIN, verified=True):
    raw = {name: bytes_to_base64url(bytes.fromhex(assertion[field])) for name, field in
           [("authenticatorData", "authenticator_data"), ("clientDataJSON", "client_data"), ("signature", "signature")]}
    name = bytes_to_base64url(device.credential_id)
    verify_authentication_response(
        credential={"id": name, "rawId": name, "type": "public-key", "response": raw}, expected_challenge=challenge,
        expected_rp_id=party, expected_origin=origin, credential_public_key=device.cose(), credential_current_sign_count=0,
        require_user_verification=verified)
    return {"digest": challenge.hex(), "relying_party": party, "origin": origin, "user_verified": verified}


def passkeys(good, others):
    """Each with the digest that the signer is asked to take it for."""
    cases, wanted = [], bytes.fromhex(good["digest"])
    device = Device("alice")

    def case(name, why, assertion, on=device, challenge=wanted, asked=wanted, **how):
        cases.append({"name": name, "refuse": why, "digest": asked.hex(), "public": device.point().hex(),
                      "accepted_for": accepted(on, assertion, challenge, **how), **assertion})

    case("good", None, device.assertion(wanted, flags=0x05))
    case("good, backed up", None, device.assertion(wanted, flags=0x1d))
    case("good, with more client data", None, device.assertion(wanted, flags=0x05, client={"other_keys_can_be_added_here": "x", "crossOrigin": False}))
    for other in others:
        challenge = bytes.fromhex(other["digest"])
        case(f"for {other['name']}", "another digest", device.assertion(challenge, flags=0x05), challenge=challenge)
    case("soft-webauthn's own: present, not verified", "not verified", device.assertion(wanted), verified=False)
    case("another site", "another site", device.assertion(wanted, "https://console.bursar.example.evil.example", flags=0x05),
         origin="https://console.bursar.example.evil.example")
    case("the same site without TLS", "another site", device.assertion(wanted, "http://console.bursar.example", flags=0x05),
         origin="http://console.bursar.example")
    case("framed by another site", "another site", device.assertion(wanted, flags=0x05, client={"crossOrigin": True}))
    elsewhere = Device("alice", party="evil.example")
    case("another relying party", "another relying party", elsewhere.assertion(wanted, flags=0x05), on=elsewhere, party="evil.example")
    mallory = Device("mallory")
    case("another key", "does not fit", mallory.assertion(wanted, flags=0x05), on=mallory)
    return cases


def main():
    good = intent()
    words = {
        "one unit more": {"amount": "5000000000000000001"}, "one byte of the recipient": {"to": "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359"},
        "another chain": {"chain": "eth"}, "another group": {"group": "hot-eth"}, "another coin": {"coin": "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb"},
        "another job": {"job": "wr-380770000000000002"}, "the next round": {"round": "1"}, "a higher fee": {"most_fee": "2000000000000001"},
        "a later expiry": {"expires": "1794900000000001"}, "more builds": {"builds": "2"}, "another requester": {"requester": "frank"},
        "another signer": {"signer": "staging"}, "another network": {"network": "evm:97"}, "TRON": {"network": "tron"},
        "a network of Bitcoin": {"network": "bitcoin:testnet4"},
        "a cancel": {"kind": "cancel", "coin": "", "to": "", "amount": "", "cancels": "wr-380770000000000001", "job": "job-380770000000000003"},
    }
    others = [{"name": name, **intent(**changed)} for name, changed in words.items()]
    signer = ed25519.Ed25519PrivateKey.from_private_bytes(seeded("bob"))
    public = signer.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    signatures = [{"digest": one["digest"], "public": public.hex(),
                   "signature": signer.sign(b"bursar-signer-approval-v1\0" + bytes.fromhex(one["digest"])).hex()} for one in [good, *others]]
    text = json.dumps({"relying_party": PARTY, "origin": ORIGIN, "intents": [{"name": "good", **good}, *others],
                       "ed25519": signatures, "passkeys": passkeys(good, others)}, indent=1) + "\n"
    file = HERE / "approvals.json"
    if "--check" not in sys.argv:
        file.write_text(text)
        print(f"wrote {file}", file=sys.stderr)
    elif not file.exists() or file.read_text() != text:
        sys.exit(f"error: {file} is not what {__file__} makes")


main()
