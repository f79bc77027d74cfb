# An agent with an account of eth-account: with a key, and with a signature for each request.
from pathlib import Path

import httpx
from eth_account import Account
from tiergate import GatewayAuth, Tiergate, by_key, by_signature

owner = Account.from_key(Path("owner.key").read_text().strip())
gateway = "http://127.0.0.1:8000"
key = by_key(Path("api.key"))
signature = by_signature(4, owner, Tiergate("http://127.0.0.1:8080"))
for credential in (key, signature):
    with httpx.Client(base_url=gateway, auth=GatewayAuth(gateway, credential)) as http:
        print(http.get("/forecast").status_code)
