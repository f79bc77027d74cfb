"""nghttp2's own client and load generator."""

import os
import re

from harness import check, equal, holds, run


def targets(world):
    yield "in the clear", world.clear, "http"
    yield "over TLS", world.tls, "https"


def statistics(out):
    """The statuses and sizes of all answers, which `nghttp -s` shows."""
    return re.findall(r"^ +\d+ .* (\d+) +(\S+) /\S*$", out, re.MULTILINE)


@check("nghttp: a request and its answer, in the clear and over TLS")
def _get(world):
    for name, gateway, scheme in targets(world):
        url = f"{scheme}://127.0.0.1:{gateway.port}/public/bytes?count=70000"
        status, out, err = run(["nghttp", "-ns", "-H:authority: http.example", "-y", url])
        equal((status, statistics(out)), (0, [("200", "68K")]), f"{name}: the answer ({out} {err})")


@check("nghttp: an offer to upgrade to h2c is declined")
def _upgrade(world):
    url = f"http://127.0.0.1:{world.clear.port}/public/echo"
    _, out, err = run(["nghttp", "-vu", "-H:authority: http.example", "-Hhost: http.example", url])
    _, _, answer = out.partition("HTTP Upgrade response\n")
    is_plain = answer.startswith("HTTP/1.1 200") and '"target": "/public/echo"' in answer
    holds(is_plain, f"no plain answer: {out + err}")
    holds("HTTP Upgrade failed" in out + err, f"nghttp took it for an upgrade: {out + err}")


@check("nghttp: 100 uploads of 100 kB on one connection, padded")
def _uploads(world):
    body = os.path.join(world.folder, "upload")
    with open(body, "wb") as file:
        file.write(os.urandom(100_000))
    before = len(world.upstream.seen)
    url = f"http://127.0.0.1:{world.clear.port}/public/echo"
    status, out, err = run(["nghttp", "-n", "-m", "100", "-b", "255", "-d", body, "-H:authority: http.example", url])
    equal(status, 0, f"nghttp's status ({out} {err})")
    seen = world.upstream.seen[before:]
    equal([len(request["body"]) for request in seen], [100_000] * 100, "bodies")


@check("nghttp: small windows (2^14) carry a megabyte")
def _windows(world):
    url = f"http://127.0.0.1:{world.clear.port}/public/bytes?count=1000000"
    status, out, err = run(["nghttp", "-ns", "-w", "14", "-W", "14", "-H:authority: http.example", url], timeout=30)
    equal((status, statistics(out)), (0, [("200", "976K")]), f"the answer ({out} {err})")


for title, options in (("HTTP/2", []), ("HTTP/1.1", ["--h1"])):

    @check(f"h2load: 20,000 requests over {title}, none failed")
    def _load(world, options=options):
        rates = []
        for _, gateway, scheme in targets(world):
            url = f"{scheme}://127.0.0.1:{gateway.port}/public/echo"
            name = ["-H", ":authority: http.example"]
            seen = len(world.upstream.seen)
            few = ["-n", "20000", "-c", "8", *([] if options else ["-m", "32"])]
            status, out, err = run(["h2load", *few, *options, *name, url], timeout=120)
            holds(status == 0 and "20000 succeeded, 0 failed, 0 errored, 0 timeout" in out, out + err)
            codes = re.search(r"status codes: (\d+) 2xx", out)
            equal(codes and codes[1], "20000", "answers with 2xx")
            equal(len(world.upstream.seen) - seen, 20_000, "requests at the upstream")
            rates.append(re.search(r"([\d.]+) req/s", out)[1])
        return f"{' and '.join(rates)} requests/s"
