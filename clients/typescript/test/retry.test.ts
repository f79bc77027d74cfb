// Waiting and giving up, against a server that misbehaves on command.

import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { describe, test } from "node:test";
import { Tiergate, agentFetch } from "tiergate";
import { Scripted, answer, owner, refused, service } from "./service.js";

const { domain } = await new Tiergate(service.api).signing();
const issued = { apiKey: "svc_live_v1_x", agentId: "4", message: "" };
type Step = (response: ServerResponse) => void;

const refusal = (errorType: string, status: number, retryAfter?: string): Step => {
  return (response) => {
    const headers: Record<string, string> = retryAfter === undefined ? {} : { "retry-after": retryAfter };
    answer(response, status, { error: "Not now", errorType, details: {}, timestamp: Date.now() }, headers);
  };
};
const limited = (retryAfter?: string) => refusal("RATE_LIMITED", 429, retryAfter);
const succeeds: Step = (response) => answer(response, 200, { ...issued, hasKey: true, valid: true });

/** A service that does these steps in turn, and the last of them for ever. */
async function scripted(...steps: Step[]): Promise<Scripted> {
  let at = 0;
  return Scripted.start((request, response) => {
    if (request.url === "/.well-known/tiergate") answer(response, 200, { domain });
    else steps[Math.min(at++, steps.length - 1)]!(response);
  });
}

const tries = (server: Scripted) => server.requests.filter(({ path }) => path !== "/.well-known/tiergate");

describe("the client", { concurrency: true, timeout: 60_000 }, () => {
  test("waits as long as Retry-After says, and sends the same signature again", async () => {
    const server = await scripted(limited("1"), succeeds);
    assert.equal((await new Tiergate(server.url).keys.generate("4", owner)).apiKey, issued.apiKey);
    const [first, second] = tries(server);
    assert.ok(second!.at - first!.at >= 995, `${second!.at - first!.at} ms`);
    assert.equal(first!.body, second!.body);
    server.stop();
  });

  test("waits without Retry-After too, where the chain could not be read", async () => {
    const server = await scripted(refusal("RPC_ERROR", 503), succeeds);
    assert.equal((await new Tiergate(server.url).keys.rotate("4", owner)).apiKey, issued.apiKey);
    const [first, second] = tries(server);
    assert.ok(second!.at - first!.at >= 400, `${second!.at - first!.at} ms`);
    server.stop();
  });

  test("gives up after the tries that it may make", async () => {
    for (const retries of [0, 1, 3]) {
      const server = await scripted(limited("0"));
      await refused(new Tiergate(server.url, { retries }).verify({ apiKey: "k" }), "RATE_LIMITED");
      assert.equal(tries(server).length, retries + 1);
      server.stop();
    }
  });

  test("does not wait longer than it may, in all", async () => {
    const server = await scripted(limited("1"), limited("1"));
    await refused(new Tiergate(server.url, { maxWait: 1.5 }).verify({ apiKey: "k" }), "RATE_LIMITED");
    assert.equal(tries(server).length, 2);
    const long = await scripted(limited("61"));
    assert.equal((await refused(new Tiergate(long.url).verify({ apiKey: "k" }), "RATE_LIMITED")).retryAfter, 61);
    assert.equal(tries(long).length, 1);
    server.stop();
    long.stop();
  });

  const unknown: [string, "INTERNAL_ERROR" | "NO_ANSWER" | "UNEXPECTED_ANSWER", Step][] = [
    ["an internal error", "INTERNAL_ERROR", refusal("INTERNAL_ERROR", 500, "0")],
    ["a connection that breaks", "NO_ANSWER", (response) => response.destroy()],
    ["an answer that breaks off", "NO_ANSWER", (response) => {
      response.writeHead(201, { "content-length": "1000" }).write("{");
      setImmediate(() => response.destroy());
    }],
    ["a proxy's 503", "UNEXPECTED_ANSWER", (response) => response.writeHead(503, { "retry-after": "0" }).end("busy")],
    ["a proxy's 429", "UNEXPECTED_ANSWER", (response) => response.writeHead(429, { "retry-after": "0" }).end("busy")],
  ];
  for (const [name, errorType, step] of unknown) {
    test(`makes no key twice after ${name}`, async () => {
      const server = await scripted(step, succeeds);
      await refused(new Tiergate(server.url).keys.generate("4", owner), errorType);
      assert.equal(tries(server).length, 1);
      server.stop();
    });
  }

  test("gives up an answer that does not come in time", async () => {
    const server = await scripted(() => undefined);
    const error = await refused(new Tiergate(server.url, { timeout: 0.2 }).keys.status("4"), "NO_ANSWER");
    assert.match(error.message, /in time$/);
    server.stop();
  });

  test("stops at once when it is aborted, in a request and in a wait", async () => {
    for (const step of [() => undefined, limited("50")]) {
      const server = await scripted(step);
      const reason = new Error("stop");
      const abort = new AbortController();
      const call = new Tiergate(server.url).keys.status("4", { signal: abort.signal });
      while (tries(server).length === 0) await new Promise(setImmediate);
      // The wait has begun when the connection is idle again.
      setTimeout(() => abort.abort(reason), 50);
      await assert.rejects(call, reason);
      await assert.rejects(new Tiergate(server.url).keys.status("4", { signal: abort.signal }), reason);
      assert.equal(tries(server).length, 1);
      server.stop();
    }
  });

  test("follows no redirect: the credential stays", async () => {
    const elsewhere = await scripted(succeeds);
    const server = await scripted((response) => response.writeHead(307, { location: elsewhere.url }).end());
    await refused(new Tiergate(server.url).verify({ apiKey: "secret" }), "NO_ANSWER");
    assert.equal(elsewhere.requests.length, 0);
    server.stop();
    elsewhere.stop();
  });

  test("keeps no secret in an error", async () => {
    const server = await scripted((response) => response.destroy());
    const apiKey = `svc_live_v1_${"ab".repeat(32)}`;
    const error = await refused(new Tiergate(server.url).verify({ apiKey }), "NO_ANSWER");
    for (let at: unknown = error; at instanceof Error; at = at.cause) {
      assert.ok(!`${at.message} ${JSON.stringify(at)} ${at.stack}`.includes("abab"));
    }
    server.stop();
  });
});

describe("agentFetch", { concurrency: true, timeout: 60_000 }, () => {
  const apiKey = "svc_live_v1_x";

  test("waits for Retry-After and sends the body again", async () => {
    const server = await scripted(limited("1"), succeeds);
    const ask = agentFetch(server.url, { apiKey });
    assert.equal((await ask("/orders", { method: "POST", body: "one" })).status, 200);
    const [first, second] = tries(server);
    assert.ok(second!.at - first!.at >= 995);
    assert.deepEqual([first!.body, second!.body], ["one", "one"]);
    assert.deepEqual([first!.headers["x-api-key"], second!.headers["x-api-key"]], [apiKey, apiKey]);
    const request = new Request(`${server.url}/orders`, { method: "PUT", body: "two", headers: { "x-own": "1" } });
    assert.equal((await ask(request)).status, 200);
    const third = tries(server)[2]!;
    assert.deepEqual([third.method, third.body, third.headers["x-own"]], ["PUT", "two", "1"]);
    assert.equal(third.headers["x-api-key"], apiKey);
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

  test("stops waiting when it is aborted", async () => {
    const server = await scripted(limited("50"));
    const abort = new AbortController();
    const call = agentFetch(server.url, { apiKey })("/", { signal: abort.signal });
    while (tries(server).length === 0) await new Promise(setImmediate);
    setTimeout(() => abort.abort(new Error("stop")), 50);
    await assert.rejects(call, /stop/);
    server.stop();
  });
});
