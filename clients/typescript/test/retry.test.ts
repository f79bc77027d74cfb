// Repeating and giving up, against a server that misbehaves on command.

import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { describe, test } from "node:test";
import { inspect } from "node:util";
import { Tiergate, agentFetch, errorOf, type Signer } from "tiergate";
import { RIGHT, Scripted, answer, owner, refused } from "./service.js";

type Step = (response: ServerResponse) => void;

const refusal = (errorType: string, status: number, retryAfter?: string): Step => {
  return (response) => {
    const headers: Record<string, string> = retryAfter === undefined ? {} : { "retry-after": retryAfter };
    answer(response, status, { error: "Not now", errorType, details: {}, timestamp: Date.now() }, headers);
  };
};
const limited = (retryAfter?: string) => refusal("RATE_LIMITED", 429, retryAfter);
const succeeds: Step = (response) => answer(response, 200, RIGHT);
const breaks: Step = (response) => response.destroy();

/** A service that does these steps in turn, and the last of them for ever. */
async function scripted(...steps: Step[]): Promise<Scripted> {
  let at = 0;
  return Scripted.start((request, response) => {
    if (request.url === "/.well-known/tiergate") succeeds(response);
    else steps[Math.min(at++, steps.length - 1)]!(response);
  });
}

const tries = (server: Scripted) => server.requests.filter(({ path }) => path !== "/.well-known/tiergate");
const turn = () => new Promise(setImmediate);

describe("the client", { concurrency: true, timeout: 600_000 }, () => {
  test("gives up after the tries that it may make", async () => {
    for (const retries of [0, 1, 3]) {
      const server = await scripted(limited("0"));
      await refused(new Tiergate(server.url, { retries }).verify({ apiKey: "k" }), "RATE_LIMITED");
      assert.equal(tries(server).length, retries + 1);
      server.stop();
    }
  });

  const unknown: [string, "INTERNAL_ERROR" | "NO_ANSWER" | "UNEXPECTED_ANSWER" | "REPLAY_DETECTED", Step][] = [
    ["an internal error", "INTERNAL_ERROR", refusal("INTERNAL_ERROR", 500, "0")],
    ["a refused nonce", "REPLAY_DETECTED", refusal("REPLAY_DETECTED", 400, "0")],
    ["a connection that breaks", "NO_ANSWER", breaks],
    ["an answer that breaks off", "NO_ANSWER", (response) => {
      response.writeHead(201, { "content-length": "1000" }).write("{");
      setImmediate(() => response.destroy());
    }],
    ["a proxy's 503", "UNEXPECTED_ANSWER", (response) => response.writeHead(503, { "retry-after": "0" }).end("busy")],
    ["a proxy's 429", "UNEXPECTED_ANSWER", (response) => response.writeHead(429, { "retry-after": "0" }).end("busy")],
  ];
  const calls: [string, (client: Tiergate) => Promise<unknown>][] = [
    ["makes no key twice", (client) => client.keys.generate("4", owner)],
    ["has no verification by key charged twice", (client) => client.verify({ apiKey: "k" })],
    ["has no verification by signature charged twice", (client) => client.verifySignature("4", owner)],
  ];
  for (const [name, errorType, step] of unknown) {
    for (const [promise, call] of calls) {
      test(`${promise} after ${name}`, async () => {
        const server = await scripted(step, succeeds);
        await refused(call(new Tiergate(server.url)), errorType);
        assert.equal(tries(server).length, 1);
        server.stop();
      });
    }
  }

  test("gives up an answer that does not come in time", async () => {
    const server = await scripted(() => undefined);
    const error = await refused(new Tiergate(server.url, { timeoutMs: 200 }).keys.status("4"), "NO_ANSWER");
    assert.match(error.message, /in time \(NO_ANSWER; see/);
    server.stop();
  });

  test("stops at once when it is aborted in a request, and makes none afterwards", async () => {
    const server = await scripted(() => undefined);
    const reason = new Error("stop");
    const abort = new AbortController();
    const client = new Tiergate(server.url);
    const call = client.keys.status("4", { signal: abort.signal });
    while (tries(server).length === 0) await turn();
    abort.abort(reason);
    await assert.rejects(call, reason);
    await assert.rejects(client.keys.status("4", { signal: abort.signal }), reason);
    assert.equal(tries(server).length, 1);
    server.stop();
  });

  test("asks no signer after it is aborted", async () => {
    const server = await scripted(succeeds);
    const client = new Tiergate(server.url);
    await client.signing();
    const reason = new Error("stop");
    const unasked: Signer = () => assert.fail("the signer is asked");
    await assert.rejects(client.keys.generate("4", unasked, { signal: AbortSignal.abort(reason) }), reason);
    server.stop();
  });

  test("follows no redirect, so that the credential stays, and names its origin", async () => {
    const elsewhere = await scripted(succeeds);
    for (const status of [301, 302, 303, 307, 308]) {
      const location = `${elsewhere.url}/verify?token=secret`;
      const server = await scripted((response) => response.writeHead(status, { location }).end());
      const error = await refused(new Tiergate(server.url).verify({ apiKey: "secret" }), "UNEXPECTED_ANSWER");
      assert.equal(error.status, status);
      assert.match(error.message, new RegExp(`redirects to ${elsewhere.url} `));
      assert.ok(!error.message.includes("secret"));
      server.stop();
    }
    // As browsers tell it.
    const opaque = Object.defineProperty(Response.error(), "type", { value: "opaqueredirect" });
    const error = await refused(new Tiergate("https://x", { fetch: async () => opaque }).keys.status("4"), "UNEXPECTED_ANSWER");
    assert.match(error.message, /redirects/);
    assert.equal(elsewhere.requests.length, 0);
    elsewhere.stop();
  });

  test("keeps no secret in an error", async () => {
    const server = await scripted(breaks);
    const apiKey = `svc_live_v1_${"ab".repeat(32)}`;
    const error = await refused(new Tiergate(server.url).verify({ apiKey }), "NO_ANSWER");
    for (let at: unknown = error; at instanceof Error; at = at.cause) {
      assert.ok(!`${at.message} ${JSON.stringify(at)} ${at.stack}`.includes("abab"));
    }
    server.stop();
  });

  test("refuses an address that is none, or has a login, and does not tell it", () => {
    for (const address of ["not a url", "//u:hidden@host", "https://u:hidden@host", "https://u:hidden@host:port", "ftp://host", "https://hidden@host"]) {
      for (const make of [() => new Tiergate(address), () => agentFetch(address, { apiKey: "k" })]) {
        assert.throws(make, (error) => {
          assert.ok(error instanceof TypeError);
          assert.ok(!inspect(error).includes("hidden@"));
          return true;
        });
      }
    }
  });

  test("asks below the path of its address", async () => {
    const server = await scripted(succeeds);
    for (const address of [`${server.url}/api`, `${server.url}/api//`, new URL(`${server.url}/api/?page=1#part`)]) {
      await new Tiergate(address).keys.status("4");
      assert.equal(server.requests.at(-1)!.path, "/api/keys/status?agentId=4");
    }
    server.stop();
  });
});

describe("a clock that is wrong", { concurrency: true, timeout: 600_000 }, () => {
  /** A service whose clock is so many seconds ahead, refuses timestamps that are 60 seconds off, and then does the steps. */
  const serviceAt = async (ahead: number, ...steps: Step[]) => {
    const signed: number[] = [];
    let at = 0;
    const server = await Scripted.start((request, response, body) => {
      if (request.url === "/.well-known/tiergate") return succeeds(response);
      const timestamp = Number(request.headers["x-agent-timestamp"] ?? JSON.parse(body || "{}").timestamp);
      signed.push(timestamp);
      const now = Date.now() + ahead * 1_000;
      if (at < steps.length) return steps[at++]!(response);
      if (Math.abs(timestamp - now / 1_000) < 60) return succeeds(response);
      const details = { agentId: "4", nonce: "1", field: "timestamp" };
      return answer(response, 400, { error: "Too old", errorType: "REPLAY_DETECTED", details, timestamp: now });
    });
    return { server, signed };
  };
  type Call = (client: Tiergate, url: string) => Promise<unknown>;
  const ways: [string, Call][] = [
    ["the client", (client) => client.keys.generate("4", owner)],
    ["agentFetch", async (service, url) => {
      const response = await agentFetch(url, { agentId: "4", signer: owner, service })("/", { method: "POST", body: "{}" });
      if (!response.ok) throw await errorOf(response);
    }],
  ];
  for (const [name, call] of ways) {
    for (const ahead of [-7_200, 7_200]) {
      test(`is corrected once by ${name} from the service's, ${ahead} s away`, async () => {
        const { server, signed } = await serviceAt(ahead);
        const client = new Tiergate(server.url);
        await call(client, server.url);
        assert.equal(signed.length, 2);
        await call(client, server.url);
        assert.equal(signed.length, 3, "the client has learnt the time");
        assert.ok(Math.abs(client.now() - Date.now() - ahead * 1_000) < 60_000);
        server.stop();
      });
    }

    test(`is corrected by ${name} for all requests that were signed at once`, async () => {
      const { server, signed } = await serviceAt(7_200);
      const client = new Tiergate(server.url);
      await Promise.all([call(client, server.url), call(client, server.url), call(client, server.url)]);
      assert.ok(signed.length <= 6);
      server.stop();
    });

    test(`is not followed by ${name} for more than a day, nor more than once`, async () => {
      const far = await serviceAt(25 * 3_600);
      const client = new Tiergate(far.server.url);
      const error = await refused(call(client, far.server.url), "REPLAY_DETECTED");
      assert.deepEqual([error.details.field, far.signed.length], ["timestamp", 1]);
      far.server.stop();

      // It tells another time with each refusal.
      let told = 0;
      const stale: Step = (response) => {
        const details = { agentId: "4", field: "timestamp" };
        const timestamp = Date.now() + ++told * 600_000;
        answer(response, 400, { error: "Too old", errorType: "REPLAY_DETECTED", details, timestamp });
      };
      const fickle = await serviceAt(0, stale, stale, stale);
      await refused(call(new Tiergate(fickle.server.url), fickle.server.url), "REPLAY_DETECTED");
      assert.equal(fickle.signed.length, 2);
      fickle.server.stop();
    });

    test(`is not what a refused nonce is about: ${name} signs no second time`, async () => {
      const { server, signed } = await serviceAt(0, refusal("REPLAY_DETECTED", 400), refusal("REPLAY_DETECTED", 400));
      await refused(call(new Tiergate(server.url), server.url), "REPLAY_DETECTED");
      assert.equal(signed.length, 1);
      server.stop();
    });
  }

  test("is corrected for the next request after a signature from elsewhere was refused", async () => {
    const { server, signed } = await serviceAt(7_200);
    const client = new Tiergate(server.url);
    const send = async () => {
      const typed = await client.typedData("4", "verify");
      return client.send("verify", typed, await owner.signTypedData(typed as never));
    };
    await refused(send(), "REPLAY_DETECTED");
    await send();
    assert.equal(signed.length, 2);
    server.stop();
  });
});

describe("agentFetch", { concurrency: true, timeout: 600_000 }, () => {
  const apiKey = "svc_live_v1_x";

  test("sends a Request with its body", async () => {
    const server = await scripted(succeeds);
    const request = new Request(`${server.url}/orders`, { method: "PUT", body: "two", headers: { "x-own": "1" } });
    assert.equal((await agentFetch(server.url, { apiKey })(request)).status, 200);
    const sent = tries(server)[0]!;
    assert.deepEqual([sent.method, sent.body, sent.headers["x-own"], sent.headers["x-api-key"]], ["PUT", "two", "1", apiKey]);
    server.stop();
  });

  test("hands over a 429 that it may not or can not repeat", async () => {
    const server = await scripted(limited("0"));
    const statusOf = async (ask: typeof fetch, init: RequestInit = {}) => (await ask("/", init)).status;
    assert.equal(await statusOf(agentFetch(server.url, { apiKey }, { retries: 1 })), 429);
    assert.equal(tries(server).length, 2);
    const body = new Blob(["one"]).stream();
    const stream = { method: "POST", body, duplex: "half" } as RequestInit;
    assert.equal(await statusOf(agentFetch(server.url, { apiKey }), stream), 429);
    assert.equal(tries(server).length, 3);
    server.stop();
    const dateless = await scripted(limited());
    assert.equal(await statusOf(agentFetch(dateless.url, { apiKey })), 429);
    assert.equal(tries(dateless).length, 1);
    dateless.stop();
  });

  const own = { "x-api-key": "the upstream's", authorization: "Bearer the upstream's" };
  for (const [name, bearer] of [["x-api-key", false], ["authorization", true]] as const) {
    test(`shows the key as ${name}, and leaves the other header to the upstream`, async () => {
      const server = await scripted(succeeds);
      const ask = agentFetch(server.url, { apiKey, bearer });
      const other = bearer ? "x-api-key" : "authorization";
      await ask("/", { headers: { [other]: own[other] } });
      const { headers } = tries(server)[0]!;
      assert.deepEqual([headers[name], headers[other]], [bearer ? `Bearer ${apiKey}` : apiKey, own[other]]);
      await assert.rejects(ask("/", { headers: own }), { name: "TypeError", message: /of its own: .* bearer$/ });
      assert.equal(tries(server).length, 1);
      server.stop();
    });
  }

  test("repeats what the gateway refused with 503 before it forwarded it", async () => {
    const steps = [refusal("OVERLOADED", 503, "0"), refusal("RPC_ERROR", 503, "0")];
    const server = await scripted(...steps, succeeds);
    const response = await agentFetch(server.url, { apiKey })("/orders", { method: "POST", body: "one" });
    assert.deepEqual([response.status, tries(server).map(({ body }) => body)], [200, ["one", "one", "one"]]);
    server.stop();
  });

  test("hands over a 503 that it may not or can not repeat", async () => {
    const upstreams: Step[] = [
      (response) => response.writeHead(503, { "retry-after": "0" }).end("busy"),
      (response) => answer(response, 503, { error: "busy" }, { "retry-after": "0" }),
      refusal("UPSTREAM_ERROR", 503, "0"),
      refusal("OVERLOADED", 500, "0"),
    ];
    for (const step of upstreams) {
      const server = await scripted(step);
      const response = await agentFetch(server.url, { apiKey })("/");
      assert.ok((await response.text()).length > 0, "the body is there to read");
      assert.equal(tries(server).length, 1);
      server.stop();
    }
    const server = await scripted(refusal("OVERLOADED", 503, "0"));
    const stream = { method: "POST", body: new Blob(["one"]).stream(), duplex: "half" } as RequestInit;
    assert.equal((await agentFetch(server.url, { apiKey })("/", stream)).status, 503);
    // Another origin is none of the gateway.
    assert.equal((await agentFetch("https://gateway.example", { apiKey })(`${server.url}/`)).status, 503);
    assert.equal(tries(server).length, 2);
    assert.equal((await agentFetch(server.url, { apiKey }, { retries: 1 })("/")).status, 503);
    assert.equal(tries(server).length, 4);
    server.stop();
  });

  test("signs every try anew", async () => {
    const server = await scripted(limited("0"), succeeds);
    const credential = { agentId: "4", signer: owner, service: new Tiergate(server.url) };
    assert.equal((await agentFetch(server.url, credential)("/forecast")).status, 200);
    const [first, second] = tries(server);
    assert.equal(second!.headers["x-agent-id"], "4");
    assert.match(String(second!.headers["x-agent-signature"]), /^0x[0-9a-f]{130}$/);
    assert.notEqual(first!.headers["x-agent-nonce"], second!.headers["x-agent-nonce"]);
    assert.notEqual(first!.headers["x-agent-signature"], second!.headers["x-agent-signature"]);
    server.stop();
  });

  test("asks no service and no signer after it is aborted", async () => {
    const unasked: Signer = () => assert.fail("the signer is asked");
    const reason = new Error("stop");
    const server = await scripted(succeeds);
    const client = new Tiergate(server.url);
    const ask = agentFetch(server.url, { agentId: "4", signer: unasked, service: client });
    await assert.rejects(ask("/", { signal: AbortSignal.abort(reason) }), reason);
    assert.equal(server.requests.length, 0);
    await client.signing();
    await assert.rejects(ask("/", { signal: AbortSignal.abort(reason) }), reason);
    assert.equal(server.requests.length, 1);
    server.stop();
  });
});
