"""One process of the fleet of test_kept.py: asks the gateway until its key is another than the first, and a few times more."""

from __future__ import annotations

import json
import sys

import httpx
from eth_account import Account

from tiergate import GatewayAuth, KeptKey, Tiergate, by_key

file, agent, first, api, gateway, owner = sys.argv[1:]
key = KeptKey(file, Tiergate(api), agent, Account.from_key(owner), expires_in=3_600, name="fleet")
# All begin at once.
print("ready", flush=True)
sys.stdin.readline()
refused, seen, after = 0, set(), 0
with httpx.Client(auth=GatewayAuth(gateway, by_key(key)), timeout=60) as client:
    while after < 5:
        refused += client.get(gateway + "/gone").status_code == 401
        seen.add(key.current())
        after += key.current() != first
print(json.dumps({"refused": refused, "seen": sorted(seen)}))
