"""Drives the devnet's TRON chain with tronpy. Mines by writing `mine n` and waiting for an answer.

python tron.py <url> <token> <key> <recipient>
"""
import sys

from tronpy import Tron
from tronpy.keys import PrivateKey
from tronpy.providers import HTTPProvider

url, token, secret, recipient = sys.argv[1:]
client = Tron(HTTPProvider(url))
key = PrivateKey(bytes.fromhex(secret))
owner = key.public_key.to_base58check_address()


def mine(blocks):
    print(f"mine {blocks}", flush=True)
    assert sys.stdin.readline().strip() == "mined"


before = client.get_account_balance(recipient)
sent = client.trx.transfer(owner, recipient, 1_500_000).build().sign(key).broadcast()
mine(1)
assert client.get_transaction(sent.txid)["ret"][0]["contractRet"] == "SUCCESS"
assert client.get_account_balance(recipient) * 1_000_000 == before * 1_000_000 + 1_500_000
mine(19)
assert client.get_solid_transaction_info(sent.txid)["id"] == sent.txid

usdt = client.get_contract(token)
assert usdt.functions.symbol() == "USDT" and usdt.functions.decimals() == 6
held = usdt.functions.balanceOf(recipient)
call = usdt.functions.transfer(recipient, 2_500_000).with_owner(owner).fee_limit(50_000_000).build().sign(key).broadcast()
mine(1)
# USDT on TRON answers false when it has moved the tokens.
assert call.result() is False
assert call.wait()["receipt"]["result"] == "SUCCESS"
assert usdt.functions.balanceOf(recipient) == held + 2_500_000
events = list(usdt.events.Transfer.process_receipt(client.get_transaction_info(call.txid)))
assert events[0]["args"]["value"] == 2_500_000, events
print("tronpy: all well")
