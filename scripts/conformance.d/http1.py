"""HTTP/1.0, HTTP/1.1 and the ways to HTTP/2, with curl and with plain sockets."""

import hashlib
import json
import os
import socket
import ssl

from harness import KNOWN, check, equal, holds, seconds

CODE = ["-w", "\n%{http_code} %{http_version}"]

KNOWN["curl: trailers of an answer are passed on over HTTP/2"] = (
    "the proxy library reads an HTTP/1 upstream's trailers and drops them, as RFC 9110, section 6.5.1, allows",
    "a whole answer without the trailer",
)
KNOWN["curl: an interim answer (103) is passed on over HTTP/2"] = (
    "the proxy library drops interim answers there",
    "only the final answer came",
)


def exchange(gateway, request, until_close=False):
    """Sends bytes and gives what comes back: up to a whole answer, or to the end."""
    with socket.create_connection(("127.0.0.1", gateway.port), seconds(10)) as stream:
        stream.sendall(request)
        answer = b""
        while True:
            piece = stream.recv(65536)
            answer += piece
            if not piece or (not until_close and b"\r\n0\r\n" in answer):
                return answer


def seen_by(out):
    """The request that the upstream says it has seen."""
    try:
        return json.loads(out)
    except ValueError:
        raise AssertionError(f"no answer of the upstream: {out[:200]!r}") from None


def answered(out, path="/public/echo"):
    """The status and the version of an answer of the upstream, which `CODE` has written."""
    body, _, last = out.rpartition("\n")
    equal(seen_by(body)["target"], path, "the target at the upstream")
    return tuple(last.split())


def has_trailer(out, body, name):
    """Fails unless the body came, and the trailer behind it."""
    holds(body in out and " 200" in out.splitlines()[0], f"no answer: {out!r}")
    holds(name in out.lower(), "a whole answer without the trailer")


def is_cut_off(status, out, body):
    """Fails unless curl has seen an answer break off: 18 and 92 say so over HTTP/1 and HTTP/2, and a part of its body may
    have come; or the gateway answers 502 in its place. `out` ends with curl's status code of three digits."""
    came, code = out[:-3], out[-3:]
    is_refusal = (status, code) == (0, "502") and "UPSTREAM_ERROR" in came
    holds(is_refusal or (status in (18, 92) and body.startswith(came)), f"status {status}: {out}")


for version, flag in (("1.0", "--http1.0"), ("1.1", "--http1.1"), ("2", "--http2-prior-knowledge")):

    @check(f"curl: HTTP/{version} in the clear")
    def _clear(world, flag=flag, version=version):
        _, out, err = world.clear.curl("/public/echo", flag, *CODE)
        # Nobody must answer HTTP/1.0 with another minor version than it has (RFC 9110, section 2.5).
        code, spoken = answered(out + err)
        holds(code == "200" and spoken in (version, "1.1"), out + err)
        return f"answered as HTTP/{spoken}"


for version, flag in (("1.1", "--http1.1"), ("2", "--http2")):

    @check(f"curl: HTTP/{version} over TLS, chosen by ALPN")
    def _tls(world, flag=flag, version=version):
        _, out, err = world.tls.curl("/public/echo", flag, *CODE)
        equal(answered(out + err), ("200", version), "the answer")


@check("openssl: a client without ALPN speaks HTTP/1.1 over TLS")
def _no_alpn(world):
    context = ssl.create_default_context(cafile=world.tls.ca)
    with socket.create_connection(("127.0.0.1", world.tls.port), seconds(10)) as plain:
        with context.wrap_socket(plain, server_hostname="http.example") as stream:
            stream.sendall(b"GET /public/echo HTTP/1.1\r\nHost: http.example\r\nConnection: close\r\n\r\n")
            answer = b""
            while piece := stream.recv(65536):
                answer += piece
            holds(answer.startswith(b"HTTP/1.1 200") and b'"target": "/public/echo"' in answer, str(answer))
            return stream.version()


@check("openssl: TLS 1.2 is spoken, TLS 1.1 is refused")
def _old_tls(world):
    def handshake(version):
        context = ssl.create_default_context(cafile=world.tls.ca)
        context.minimum_version = context.maximum_version = version
        context.set_ciphers("ALL:@SECLEVEL=0")
        with socket.create_connection(("127.0.0.1", world.tls.port), seconds(10)) as plain:
            return context.wrap_socket(plain, server_hostname="http.example").version()

    equal(handshake(ssl.TLSVersion.TLSv1_2), "TLSv1.2", "the version")
    try:
        handshake(ssl.TLSVersion.TLSv1_1)
    except ssl.SSLError as error:
        # The server's words; a client that can't speak it has others.
        holds(error.reason in ("TLSV1_ALERT_PROTOCOL_VERSION", "SSLV3_ALERT_HANDSHAKE_FAILURE"), str(error))
        return error.reason
    raise AssertionError("it was accepted")


@check("curl: an offer to upgrade to h2c is declined and answered as HTTP/1.1")
def _h2c_upgrade(world):
    _, out, err = world.clear.curl("/public/echo", "--http2", "-D", "-", "-w", "\n%{http_version}")
    holds(out.startswith("HTTP/1.1 200") and out.endswith("1.1"), out + err)
    seen = seen_by(out.splitlines()[-2])
    names = {name for name, _ in seen["headers"]}
    holds(not names & {"upgrade", "http2-settings"}, f"the upstream saw {names}")


@check("curl: two requests share a connection")
def _keep_alive(world):
    url = f"http://http.example:{world.clear.port}/public/echo"
    _, out, err = world.clear.curl("/public/echo", "-v", "-w", "\n", url)
    equal([seen_by(line)["target"] for line in out.splitlines()], ["/public/echo"] * 2, f"the targets ({err[-300:]})")
    holds("Re-using existing connection" in err, err[-300:])


@check("curl: Expect: 100-continue is answered before the body is sent")
def _expect(world):
    body = os.path.join(world.folder, "megabyte")
    with open(body, "wb") as file:
        file.write(os.urandom(1 << 20))
    _, out, err = world.clear.curl(
        "/public/echo", "-H", "Expect: 100-continue", "--expect100-timeout", "15", "-T", body, "-v"
    )
    holds("< HTTP/1.1 100" in err, err[-300:])
    holds("Done waiting for 100-continue" not in err, "curl did not wait for it to the end")
    equal(seen_by(out)["bytes"], 1 << 20, "body length")


@check("curl: Expect: 100-continue of a request that is refused gets the refusal and no 100")
def _expect_refused(world):
    body = os.path.join(world.folder, "megabyte")
    _, out, err = world.clear.curl("/private", "-H", "Expect: 100-continue", "-T", body, "-v", "-w", "%{http_code}")
    holds(out.endswith("401") and "< HTTP/1.1 100" not in err, out + err[-200:])


@check("curl: an upload in chunks arrives whole, over HTTP/1.1 and HTTP/2")
def _chunked(world):
    body = os.urandom(300_000)
    path = os.path.join(world.folder, "chunks")
    with open(path, "wb") as file:
        file.write(body)
    for version in ("--http1.1", "--http2-prior-knowledge"):
        chunked = [] if "2" in version else ["-H", "Transfer-Encoding: chunked"]
        _, out, err = world.clear.curl("/public/echo", version, *chunked, "-T", path)
        equal(seen_by(out)["sha256"], hashlib.sha256(body).hexdigest(), f"digest ({version} {err})")


@check("sockets: trailers of an upload don't smuggle in identity, or are dropped")
def _request_trailers(world):
    request = (
        b"POST /public/echo HTTP/1.1\r\nHost: http.example\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        b"2\r\nhi\r\n0\r\nX-Agent-Id: 1\r\nX_Agent_Tier: 4\r\nX-Note: 1\r\n\r\n"
    )
    answer = exchange(world.clear, request, until_close=True)
    seen = seen_by(answer[answer.index(b'{"method') :].split(b"\r\n")[0])
    equal(seen["bytes"], 2, "body length")
    holds(not any("agent" in trailer.lower() for trailer in seen["trailers"]), f"trailers: {seen['trailers']}")
    return f"the upstream saw {seen['trailers']}"


@check("curl: ranges")
def _ranges(world):
    for version in ("--http1.1", "--http2-prior-knowledge"):
        _, out, err = world.clear.curl(
            "/public/bytes?count=1000", version, "-r", "100-199", "-D", "-", "-o", "/dev/null"
        )
        holds(" 206" in out.splitlines()[0] and "bytes 100-199/1000" in out, out + err)


@check("curl: HEAD has the headers of GET and no body")
def _head(world):
    for version in ("--http1.1", "--http2-prior-knowledge"):
        status, out, err = world.clear.curl("/public/bytes?count=1000", version, "-I")
        holds(status == 0 and "content-length: 1000" in out.lower(), out + err)


@check("curl: HEAD that is refused has the headers of the refusal and no body")
def _head_refused(world):
    for version in ("--http1.1", "--http2-prior-knowledge"):
        status, out, err = world.clear.curl("/private", version, "-I")
        holds(status == 0 and " 401" in out.splitlines()[0], out + err)


@check("curl: answers without a body (204, 304)")
def _bare(world):
    for code in ("204", "304"):
        for version in ("--http1.1", "--http2-prior-knowledge"):
            status, out, err = world.clear.curl(f"/public/status?code={code}", version, "-w", "%{http_code}")
            equal((status, out), (0, code), f"the answer ({err})")


for version, flag in (("1.1", "--http1.1"), ("2", "--http2-prior-knowledge")):

    @check(f"curl: an interim answer (103) is passed on over HTTP/{version}")
    def _early(world, flag=flag):
        status, out, err = world.clear.curl("/public/early", flag, "-D", "-")
        equal(status, 0, "curl's status")
        holds(out.endswith("final") and " 200" in out, out + err)
        holds(" 103" in out, "only the final answer came")


@check("curl: trailers of an answer are passed on over HTTP/2")
def _trailers_http2(world):
    _, out, err = world.clear.curl("/public/trailers", "--http2-prior-knowledge", "-D", "-")
    has_trailer(out + err, "hello", "x-sum: 5")


@check("curl: trailers of an answer are passed on over HTTP/1.1")
def _trailers_http1(world):
    _, out, err = world.clear.curl("/public/trailers", "--http1.1", "-D", "-", "-H", "TE: trailers")
    has_trailer(out + err, "hello", "x-sum: 5")


@check("curl: a body that ends with the upstream's connection arrives whole")
def _to_the_end(world):
    for version in ("--http1.0", "--http1.1", "--http2-prior-knowledge"):
        status, out, err = world.clear.curl("/public/close", version)
        equal((status, out), (0, "until the end"), f"the answer ({err})")


@check("curl: an answer that breaks off is seen to break off")
def _broken(world):
    for version in ("--http1.1", "--http2-prior-knowledge"):
        is_cut_off(*world.clear.curl("/public/broken", version, "-w", "%{http_code}")[:2], "half")


@check("curl: ten megabytes down, over every version")
def _download(world):
    gateways = [(world.clear, "--http2-prior-knowledge"), (world.tls, "--http2")]
    for gateway, second in gateways:
        for version in ("--http1.1", second):
            options = [version, "-o", "/dev/null", "-w", "%{size_download}"]
            status, out, err = gateway.curl("/public/bytes?count=10000000", *options)
            equal((status, out), (0, "10000000"), f"the download ({version} {err})")


@check("curl: an agent's key admits, identity is told, forged identity is not")
def _identity(world):
    for gateway, version in (
        (world.clear, "--http1.1"),
        (world.clear, "--http2-prior-knowledge"),
        (world.tls, "--http2"),
    ):
        forged = ["-H", "X-Agent-Id: 99", "-H", "X_Agent_Tier: 9", "-H", "x-agent-role: root"]
        _, out, err = gateway.curl("/private", version, "-H", f"X-API-Key: {gateway.key}", *forged)
        headers = seen_by(out)["headers"]
        ours = {name: value for name, value in headers if name.replace("_", "-").startswith("x-agent")}
        equal((ours.get("x-agent-id"), ours.get("x-agent-tier")), ("4", "4"), f"identity ({err})")
        holds("x-agent-role" not in ours and "x_agent_tier" not in ours, f"forged headers came through: {ours}")
        holds(not any(gateway.key in value for _, value in headers), "the upstream saw the key")


@check("sockets: requests in a pipeline are answered in order")
def _pipeline(world):
    one = "GET /public/echo?{} HTTP/1.1\r\nHost: http.example\r\n\r\n"
    last = "GET /public/echo?last HTTP/1.1\r\nHost: http.example\r\nConnection: close\r\n\r\n"
    requests = "".join(one.format(number) for number in range(5)) + last
    answer = exchange(world.clear, requests.encode(), until_close=True).decode()
    targets = [piece.split('"')[0] for piece in answer.split("/public/echo?")[1:]]
    equal(targets, ["0", "1", "2", "3", "4", "last"], "order")
