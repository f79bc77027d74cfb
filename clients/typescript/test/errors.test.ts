// Every errorType is typed, and comes from the real service where it can be had there.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { after, before, describe, test } from "node:test";
import { Tiergate, TiergateError, agentFetch, errorOf, type ErrorType } from "tiergate";
import { RIGHT, Scripted, agent as anAgent, answer, owner, refused, service, stranger } from "./service.js";

const tiergate = new Tiergate(service.api, { retries: 0 });
const agent = (kind: "unstaked" | "bronze" | "diamond" = "diamond") => anAgent(kind, 1);

/** The place where each is tried. The compiler says when one is missing here, the test of the page when one is missing there. */
const TRIED: Record<ErrorType, "api" | "gateway" | "scripted" | "client"> = {
  VALIDATION_ERROR: "api",
  REPLAY_DETECTED: "api",
  INVALID_API_KEY: "api",
  SIGNATURE_INVALID: "api",
  TIER_BLOCKED: "api",
  AGENT_NOT_FOUND: "api",
  NOT_FOUND: "api",
  METHOD_NOT_ALLOWED: "api",
  KEY_ALREADY_EXISTS: "api",
  PAYLOAD_TOO_LARGE: "api",
  RATE_LIMITED: "api",
  RPC_ERROR: "api",
  FORBIDDEN: "gateway",
  ENDPOINT_MISMATCH: "gateway",
  REQUEST_HEADER_FIELDS_TOO_LARGE: "gateway",
  UPSTREAM_ERROR: "gateway",
  UPSTREAM_TIMEOUT: "gateway",
  OVERLOADED: "gateway",
  LOOP_DETECTED: "gateway",
  INTERNAL_ERROR: "scripted",
  REQUEST_TIMEOUT: "scripted",
  INSUFFICIENT_DEPOSIT: "scripted",
  RELAY_FAILED: "scripted",
  UNEXPECTED_ANSWER: "client",
  NO_ANSWER: "client",
};
const seen = new Set<ErrorType>();

/** Fields of every answer about an agent. */
const AGENT = ["agentId", "owner", "trustTier"];

async function sees<T extends ErrorType>(call: Promise<unknown>, errorType: T, status: number): Promise<TiergateError<T>> {
  const error = await refused(call, errorType);
  assert.equal(error.status, status, error.message);
  if (status > 0 && errorType !== "UNEXPECTED_ANSWER") assert.ok(Math.abs(error.timestamp! - Date.now()) < 60_000);
  seen.add(errorType);
  return error;
}

/** The error of an answer of fetch, thrown. */
async function thrown(call: Promise<Response>): Promise<Response> {
  const response = await call;
  const error = await errorOf(response);
  if (error) throw error;
  return response;
}

test("docs/errors.md has the types that the client knows, and no other", () => {
  const page = readFileSync(`${service.root}/docs/errors.md`, "utf8");
  const rows = [...page.matchAll(/^\| \d{3} \| `([A-Z_]+)`/gm)].map(([, name]) => name);
  const reserved = [...page.matchAll(/`([A-Z_]+)` \(\d{3}\)/g)].map(([, name]) => name);
  const own = Object.keys(TRIED).filter((name) => TRIED[name as ErrorType] !== "client");
  assert.deepEqual(own.sort(), [...rows, ...reserved].sort());
});

describe("of the API", { concurrency: true, timeout: 600_000 }, () => {
  const key = `svc_live_v1_${"0".repeat(64)}`;

  test("VALIDATION_ERROR", async () => {
    const { details } = await sees(tiergate.verify({ apiKey: "secret" }), "VALIDATION_ERROR", 400);
    assert.equal(details.field, "apiKey");
  });

  test("REPLAY_DETECTED for a timestamp that is too old", async () => {
    const typed = await tiergate.typedData(agent(), "verify");
    typed.message.timestamp -= 10_000;
    const signature = await owner.signTypedData(typed as never);
    const { details } = await sees(tiergate.send("verify", typed, signature), "REPLAY_DETECTED", 400);
    assert.equal(details.field, "timestamp");
  });

  test("INVALID_API_KEY", async () => {
    const { details } = await sees(tiergate.verify({ apiKey: key, agentId: "7" }), "INVALID_API_KEY", 401);
    assert.equal(details.agentId, "7");
  });

  test("SIGNATURE_INVALID", async () => {
    const { details } = await sees(tiergate.verifySignature(agent(), stranger), "SIGNATURE_INVALID", 401);
    assert.deepEqual([details.owner, details.recoveredSigner], [owner.address, stranger.address]);
  });

  test("TIER_BLOCKED", async () => {
    const { details } = await sees(tiergate.verifySignature(agent("unstaked"), owner), "TIER_BLOCKED", 403);
    assert.deepEqual([details.currentTier, details.requiredTier], [0, 1]);
    assert.match(details.requiredStake ?? "", /^\d+$/);
  });

  test("AGENT_NOT_FOUND", async () => {
    const { details } = await sees(tiergate.verifySignature("0", owner), "AGENT_NOT_FOUND", 404);
    assert.equal(details.agentId, "0");
  });

  test("NOT_FOUND for a wrong address", async () => {
    const wrong = new Tiergate(`${service.api}/nowhere/`, { retries: 0 });
    await sees(wrong.verify({ apiKey: key }), "NOT_FOUND", 404);
  });

  test("METHOD_NOT_ALLOWED", async () => {
    await sees(thrown(fetch(`${service.api}/verify`)), "METHOD_NOT_ALLOWED", 405);
  });

  test("KEY_ALREADY_EXISTS", async () => {
    const id = agent();
    await tiergate.keys.generate(id, owner);
    const { details } = await sees(tiergate.keys.generate(id, owner), "KEY_ALREADY_EXISTS", 409);
    assert.equal(details.agentId, id);
  });

  test("PAYLOAD_TOO_LARGE", async () => {
    await sees(tiergate.verify({ apiKey: key, origin: "x".repeat(20_000) }), "PAYLOAD_TOO_LARGE", 413);
  });

  test("RATE_LIMITED", async () => {
    const id = agent("bronze");
    await tiergate.verifySignature(id, owner);
    const error = await sees(tiergate.verifySignature(id, owner), "RATE_LIMITED", 429);
    assert.deepEqual([error.details.agentId, error.details.tier, error.details.limit], [id, 1, 1]);
    assert.ok(error.retryAfter! > 0 && error.retryAfter === error.details.retryAfter);
  });

  test("RPC_ERROR", async () => {
    const chainless = new Tiergate(service.chainless, { retries: 0 });
    const { details } = await sees(chainless.verifySignature("1", owner), "RPC_ERROR", 503);
    assert.match(details.rpcUrl, /^http:/);
  });
});

describe("of the gateway", { concurrency: true, timeout: 600_000 }, () => {
  let upstream: Scripted;
  const held: ServerResponse[] = [];
  before(async () => {
    upstream = await Scripted.start((request, response) => {
      if (request.url === "/plain/held") held.push(response);
      else if (request.url !== "/plain/silent") answer(response, 200, { path: request.url });
    }, service.upstreams[2]);
  });
  after(() => upstream.stop());

  const as = async (id: string, gateway: string, declaredEndpoint?: string): Promise<typeof fetch> => {
    const { apiKey } = await tiergate.keys.generate(id, owner, declaredEndpoint ? { declaredEndpoint } : {});
    return agentFetch(gateway, { apiKey }, { retries: 0 });
  };

  test("FORBIDDEN, LOOP_DETECTED, UPSTREAM_ERROR, UPSTREAM_TIMEOUT, REQUEST_HEADER_FIELDS_TOO_LARGE", async () => {
    const ask = await as(agent(), service.gateway);
    assert.equal(await errorOf(await ask("/plain/fine")), null);
    await sees(thrown(ask("/denied")), "FORBIDDEN", 403);
    await sees(thrown(ask("/plain/looped", { headers: { via: "1.1 edge" } })), "LOOP_DETECTED", 508);
    await sees(thrown(ask("/gone")), "UPSTREAM_ERROR", 502);
    await sees(thrown(ask("/plain/silent")), "UPSTREAM_TIMEOUT", 504);
    const headers = { "x-long": "x".repeat(33_000) };
    await sees(thrown(ask("/plain/long", { headers })), "REQUEST_HEADER_FIELDS_TOO_LARGE", 431);
  });

  test("ENDPOINT_MISMATCH", async () => {
    const ask = await as(agent(), service.narrow, "https://app.example");
    const headers = { origin: "https://other.example" };
    await sees(thrown(ask("/plain/fine", { headers })), "ENDPOINT_MISMATCH", 403);
  });

  test("OVERLOADED, and a real RATE_LIMITED whose Retry-After is waited for", async () => {
    const [mine, other] = [agent(), agent()];
    const { apiKey } = await tiergate.keys.generate(mine, owner);
    const ask = agentFetch(service.narrow, { apiKey });
    const [stubborn, others] = [agentFetch(service.narrow, { apiKey }, { retries: 0 }), await as(other, service.narrow)];
    const first = ask("/plain/held");
    while (held.length === 0) await new Promise(setImmediate);
    const { details, retryAfter } = await sees(thrown(stubborn("/plain/refused")), "RATE_LIMITED", 429);
    assert.deepEqual([details.agentId, retryAfter], [mine, 1]);
    await sees(thrown(others("/plain/refused")), "OVERLOADED", 503);
    const second = ask("/plain/second");
    answer(held[0]!, 200, {});
    assert.equal((await first).status, 200);
    assert.equal((await second).status, 200);
    const arrived = upstream.requests.map(({ path }) => path).filter((path) => /held|refused|second/.test(path));
    assert.deepEqual(arrived, ["/plain/held", "/plain/second"]);
  });
});

test("the others, from a server that says them", { timeout: 600_000 }, async () => {
  const details: Partial<Record<ErrorType, object>> = {
    INSUFFICIENT_DEPOSIT: { agentId: "4", currentBalance: "1", requiredAmount: "2" },
    RELAY_FAILED: { agentId: "4", reason: "reverted", txHash: "0x01" },
  };
  let next: [ErrorType, number] = ["INTERNAL_ERROR", 500];
  const server = await Scripted.start((_request, response) => {
    const [errorType, status] = next;
    answer(response, status, { error: "It failed", errorType, details: details[errorType], timestamp: Date.now() });
  });
  const scripted = new Tiergate(server.url);
  const rows: [ErrorType, number][] = [
    ["INTERNAL_ERROR", 500],
    ["REQUEST_TIMEOUT", 408],
    ["INSUFFICIENT_DEPOSIT", 400],
    ["RELAY_FAILED", 500],
  ];
  for (const row of rows) {
    next = row;
    const error = await sees(scripted.keys.status("4"), ...row);
    assert.deepEqual(error.details, details[row[0]] ?? {}, "details that are missing can be asked");
  }
  // None of them is worth another try.
  assert.equal(server.requests.length, rows.length);
  server.stop();
});

describe("of the client", { concurrency: true, timeout: 600_000 }, () => {
  const answers: [string, number, string][] = [
    ["a proxy's page", 502, "<html>Bad gateway</html>"],
    ["another service's error", 404, '{"error":"no route"}'],
    ["another service's answer", 200, '{"ok":true}'],
    ["a page with status 200", 200, "<html>Log in</html>"],
    ["nothing", 200, ""],
  ];
  for (const [name, status, body] of answers) {
    test(`UNEXPECTED_ANSWER for ${name}`, async () => {
      const server = await Scripted.start((_request, response) => response.writeHead(status).end(body));
      const strange = new Tiergate(server.url);
      const error = await sees(strange.verify({ apiKey: "k" }), "UNEXPECTED_ANSWER", status);
      assert.match(error.message, new RegExp(String(status)));
      server.stop();
    });
  }

  const calls: [string, (client: Tiergate) => Promise<unknown>, string[]][] = [
    ["signing", (client) => client.signing(), ["domain"]],
    ["verify", (client) => client.verify({ apiKey: "k" }), ["valid", ...AGENT, "endpointMismatch"]],
    ["verifySignature", (client) => client.verifySignature("4", owner), ["valid", ...AGENT, "endpointMismatch"]],
    ["profile", (client) => client.profile("4", owner), [...AGENT, "hasKey"]],
    ["generate", (client) => client.keys.generate("4", owner), ["agentId", "apiKey"]],
    ["rotate", (client) => client.keys.rotate("4", owner), ["agentId", "apiKey"]],
    ["revoke", (client) => client.keys.revoke("4", owner), ["agentId", "success"]],
    ["status", (client) => client.keys.status("4"), ["agentId", "hasKey"]],
  ];
  for (const [name, call, fields] of calls) {
    test(`UNEXPECTED_ANSWER if a field that ${name}() is asked for is missing or of another type`, async () => {
      const answered = (body: object) => {
        const respond: typeof fetch = async (url) => Response.json(String(url).endsWith("tiergate") && name !== "signing" ? RIGHT : body);
        return call(new Tiergate("https://service.example", { fetch: respond }));
      };
      await answered(RIGHT);
      for (const field of fields) {
        const { [field as keyof typeof RIGHT]: right, ...without } = RIGHT;
        await refused(answered(without), "UNEXPECTED_ANSWER");
        const others = [null, {}, [], "", 1, true].filter((value) => typeof value !== typeof right || typeof right === "object");
        if (field === "valid" || field === "success") others.push(false);
        for (const value of others) await refused(answered({ ...without, [field]: value }), "UNEXPECTED_ANSWER");
      }
    });
  }

  test("NO_ANSWER where nobody listens", async () => {
    const error = await sees(new Tiergate("http://127.0.0.1:1").keys.status("1"), "NO_ANSWER", 0);
    assert.ok(error.cause, "the cause is told");
  });
});

after(() => assert.deepEqual([...seen].sort(), Object.keys(TRIED).sort(), "every type was seen"));
