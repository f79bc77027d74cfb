"""Sends requests until its standard input closes, half of them over one connection that is kept: load.py KEY

Fails if one is not answered with 200. At most 20 a second, for the agent's limit is 2,700 a minute, and at most 3 minutes.
"""

import http.client
import select
import sys
import time

HEADERS = {"X-API-Key": sys.argv[1], "Host": "api.example"}


def ask(connection):
    connection.request("GET", "/", headers=HEADERS)
    answer = connection.getresponse()
    answer.read()
    return answer.status


kept = http.client.HTTPConnection("127.0.0.1", 8000, timeout=60)
statuses = {}
longest = 0.0
end = time.monotonic() + 180
ended = False
while not ended and time.monotonic() < end:
    for connection in (kept, http.client.HTTPConnection("127.0.0.1", 8000, timeout=60)):
        begun = time.monotonic()
        try:
            status = ask(connection)
        except (OSError, http.client.HTTPException) as error:
            status = repr(error)
            connection.close()
        if connection is not kept:
            connection.close()
        longest = max(longest, time.monotonic() - begun)
        statuses[status] = statuses.get(status, 0) + 1
    ended = bool(select.select([sys.stdin], [], [], 0.1)[0])
print(f"{statuses}, the longest took {longest:.1f} s", flush=True)
sys.exit(set(statuses) != {200})
