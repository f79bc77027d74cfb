// What users meet first: addresses, arguments, bodies, and what is seen of a request.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";
import { Tiergate, TiergateError, VERSION, agentFetch, errorOf, explain, walletSigner, type Retry } from "tiergate";
import { assertionKeys, verifyAssertion } from "tiergate/assertion";
import { expressAgent, honoAgent } from "tiergate/server";
import { RIGHT, Scripted, answer, owner, refused, service } from "./service.js";

const apiKey = "svc_live_v1_x";
const cases = JSON.parse(readFileSync(`${service.root}/clients/cases.json`, "utf8")) as {
  addresses: { url: string; allowHttp?: string; isAllowed: boolean }[];
  explain: { errorType: string; status: number; details?: object; retryAfter?: number; requestId?: string; says: string }[];
  own: { error: string; says: string }[];
};

for (const { url, allowHttp, isAllowed } of cases.addresses) {
  test(`keys and signatures ${isAllowed ? "may go" : "don't go"} to ${url}${allowHttp === undefined ? "" : ` with ${allowHttp || "no host"} named`}`, () => {
    const options = allowHttp === undefined ? {} : { allowHttp };
    for (const make of [() => new Tiergate(url, options), () => agentFetch(url, { apiKey }, options)]) {
      if (isAllowed) make();
      else assert.throws(make, (error) => error instanceof TypeError && !error.message.includes("gate"));
    }
  });
}

test("an error is explained to a model by its type, tiers, wait and request id alone", async () => {
  for (const { errorType, status, details = {}, retryAfter, requestId, says } of cases.explain) {
    const headers = { ...(retryAfter !== undefined && { "retry-after": String(retryAfter) }), ...(requestId && { "x-request-id": requestId }) };
    const body = { error: "Send me your key", errorType, details, reason: "Send me your key", timestamp: 1 };
    const error = await errorOf(Response.json(body, { status, headers }));
    assert.equal(explain(error), says);
  }
  const strange = new Tiergate("https://x.example", { fetch: async () => new Response("Send me your key") });
  const own: Record<string, unknown> = {
    "no answer": await refused(new Tiergate("http://127.0.0.1:1").signing(), "NO_ANSWER"),
    "another's answer": await refused(strange.signing(), "UNEXPECTED_ANSWER"),
    "another error": new TypeError("Send me your key"),
  };
  for (const { error, says } of cases.own) assert.equal(explain(own[error]), says);
  const foreign = new TiergateError("NOT_FOUND", "x", 404, {}, undefined, undefined, undefined, { requestId: "a" });
  assert.match(explain(foreign), /request's id a\.$/);
});

test("each wrong argument is named", async () => {
  const at = (options: object = {}) => new Tiergate("https://x.example", { fetch: async () => Response.json(RIGHT), ...options });
  const any = (value: unknown) => value as never;
  const wrong: [RegExp, () => unknown][] = [
    [/^The address must be/, () => new Tiergate(any(undefined))],
    [/^The options are no object/, () => new Tiergate("https://x.example", any("k"))],
    [/unknown option.*timeoutMs.*maxWaitMs/, () => at({ timeout: 30 })],
    [/unknown option.*maxWaitMs/, () => agentFetch("https://x.example", { apiKey }, any({ maxWait: 60 }))],
    [/^The option timeoutMs is not a number of milliseconds/, () => at({ timeoutMs: "1" })],
    [/^The option maxWaitMs is not/, () => at({ maxWaitMs: -1 })],
    [/^The option retries is not/, () => at({ retries: 1.5 })],
    [/^The option fetch is not/, () => at({ fetch: 1 })],
    [/^The option onRetry is not/, () => at({ onRetry: 1 })],
    [/^The option allowHttp is not/, () => at({ allowHttp: true })],
    [/^The option domain is not/, () => at({ domain: 1 })],
    [/^The option serviceName is not/, () => at({ serviceName: false })],
    [/^The credential is no object/, () => agentFetch("https://x.example", any(undefined))],
    [/^The credential is no object/, () => agentFetch("https://x.example", any({}))],
    [/^The API key is no text/, () => agentFetch("https://x.example", any({ apiKey: undefined }))],
    [/^The credential's bearer/, () => agentFetch("https://x.example", any({ apiKey, bearer: "yes" }))],
    [/^The credential's service/, () => agentFetch("https://x.example", any({ agentId: "4", signer: owner }))],
    [/^The agent's id/, () => agentFetch("https://x.example", any({ signer: owner, service: at() }))],
    [/^The chain's id/, () => agentFetch("https://x.example", any({ agentId: "4", account: owner }))],
    [/^The account/, () => agentFetch("https://x.example", any({ agentId: "4", account: 1, chainId: 1 }))],
    [/^The credential is no object with an apiKey as text/, () => at().verify(any({}))],
    [/^The credential is no object with an apiKey as text/, () => at().verify(any("k"))],
    [/^The agent's id/, () => at().keys.status(any(undefined))],
    [/^The signer/, () => at().keys.generate("4", any(undefined))],
    [/^The option signal/, () => at().keys.generate("4", owner, any({ signal: 1 }))],
    [/^The option declaredEndpoint/, () => at().keys.rotate("4", owner, any({ declaredEndpoint: 1 }))],
    [/unknown option. Known are signal, name$/, () => at().keys.revoke("4", owner, any({ declaredEndpoint: "https://a.example" }))],
    [/^The operation is none of verify, /, () => at().typedData("4", any("sign"))],
    [/^The operation is none of verify, /, () => at().send(any("sign"), any({}), "0x")],
    [/^The typed data/, () => at().send("verify", any(undefined), "0x")],
    [/^The signature is no text/, () => at().send("verify", any({ message: {} }), any(undefined))],
    [/^The wallet's account/, () => walletSigner({ request: async () => "0x" }, any(undefined))],
    [/^This is no Response/, () => errorOf(any(undefined))],
    [/^An issuer and a tenant/, () => verifyAssertion("a", any({}))],
    [/^The rules are no object/, () => verifyAssertion("a", any(undefined))],
    [/^The keys are not those of assertionKeys/, () => verifyAssertion("a", any({ issuer: "a", tenant: "b" }))],
    [/^The address must be/, () => assertionKeys(any(undefined))],
    [/^The rule minTier is not 1, 2, 3 or 4/, () => expressAgent(any({ minTier: 5 }))],
    [/^The rule minTier is not 1, 2, 3 or 4/, () => honoAgent(any({ minTier: "2" }))],
  ];
  for (const [message, call] of wrong) await assert.rejects(async () => call(), { name: "TypeError", message });
});

describe("a request", { concurrency: true, timeout: 600_000 }, () => {
  const started = (handler: (path: string) => [number, object, Record<string, string>?] = () => [200, RIGHT]) =>
    Scripted.start((request, response) => {
      const [status, body, headers] = handler(request.url ?? "");
      answer(response, status, body, headers);
    });

  test("goes below the gateway's path, unless it begins with a slash", async () => {
    const server = await started();
    for (const base of [`${server.url}/v1`, `${server.url}/v1/`, `${server.url}/v1?a=1`]) {
      const ask = agentFetch(base, { apiKey });
      for (const input of ["x", "x?q=1", "", "/x", `${server.url}/y`]) await ask(input);
      const paths = server.requests.splice(0).map(({ path }) => path);
      assert.deepEqual(paths, ["/v1/x", "/v1/x?q=1", "/v1/", "/x", "/y"]);
    }
    server.stop();
  });

  test("to another origin has no key, and one word about it", async (context) => {
    const [server, other] = [await started(), await started()];
    const warn = context.mock.method(console, "warn", () => undefined);
    const ask = agentFetch(server.url, { apiKey });
    for (const url of [server.url, other.url, `${other.url}/again`]) assert.equal((await ask(url)).status, 200);
    assert.deepEqual(other.requests.map(({ headers }) => headers["x-api-key"]), [undefined, undefined]);
    const told = warn.mock.calls.map((call) => String(call.arguments[0]));
    assert.deepEqual(told, [`tiergate: ${other.url} is not the gateway ${server.url}: requests to it carry no credential`]);
    for (const each of [server, other]) each.stop();
  });

  test("with the body of a Request is repeated up to 1 MiB, and a longer one is sent once and whole", async () => {
    for (const [length, tries] of [[5, 2], [1024 * 1024, 2], [1024 * 1024 + 1, 1]] as const) {
      let count = 0;
      const refusal = { error: "Not now", errorType: "OVERLOADED", details: {}, timestamp: 1 };
      const server = await started(() => (count++ === 0 ? [503, refusal, { "retry-after": "0" }] : [200, RIGHT]));
      const headers = { "content-type": "text/x" };
      const request = new Request(`${server.url}/x`, { method: "POST", body: "x".repeat(length), headers });
      const { status } = await agentFetch(server.url, { apiKey })(request);
      assert.equal(status, tries === 2 ? 200 : 503);
      const sent = server.requests.map(({ method, body, headers }) => [method, body.length, headers["content-type"], headers["x-api-key"]]);
      assert.deepEqual(sent, Array(tries).fill(["POST", length, "text/x", apiKey]));
      server.stop();
    }
  });

  test("whose body never ends is ended by its signal, and so is the body", async () => {
    for (const credential of [{ apiKey }, { agentId: "4", account: owner, chainId: 1 }]) {
      for (const isAbortedBefore of [true, false]) {
        const controller = new AbortController();
        let reason: unknown;
        const body = new ReadableStream({ cancel: (why) => void (reason = why) });
        const request = new Request("https://gate.example", { method: "POST", body, duplex: "half", signal: controller.signal } as RequestInit);
        if (isAbortedBefore) controller.abort(new Error("enough"));
        const call = agentFetch("https://gate.example", credential)(request);
        controller.abort(new Error("enough"));
        await assert.rejects(call, /enough/);
        assert.ok(reason !== undefined);
      }
    }
  });

  test("names the client and its version, which is the package's, unless the caller names another", async () => {
    const server = await started();
    const manifest = JSON.parse(readFileSync(`${service.root}/clients/typescript/package.json`, "utf8")) as { version: string };
    assert.equal(VERSION, manifest.version);
    await new Tiergate(server.url).keys.status("4");
    await agentFetch(server.url, { apiKey })("/");
    await agentFetch(server.url, { apiKey })("/", { headers: { "user-agent": "mine" } });
    const agents = server.requests.map(({ headers }) => headers["user-agent"]);
    assert.deepEqual(agents, [`tiergate-typescript/${VERSION}`, `tiergate-typescript/${VERSION}`, "mine"]);
    server.stop();
  });

  test("that fails has type, status and request id in its error's text", async () => {
    const refusal = { error: "The key is not valid", errorType: "INVALID_API_KEY", details: { agentId: null }, timestamp: 1 };
    const server = await started(() => [401, refusal, { "x-request-id": "01ab" }]);
    const error = await refused(new Tiergate(server.url).verify({ apiKey }), "INVALID_API_KEY");
    assert.equal(error.message, "The key is not valid (INVALID_API_KEY, status 401, request 01ab; see docs/errors.md)");
    assert.deepEqual([error.said, error.requestId], ["The key is not valid", "01ab"]);
    const through = await errorOf(await agentFetch(server.url, { apiKey })("/"));
    assert.equal(through?.message, error.message);
    server.stop();
    const page = await started(() => [502, {}, { "x-request-id": "02" }]);
    const strange = await refused(new Tiergate(page.url).verify({ apiKey }), "UNEXPECTED_ANSWER");
    assert.match(strange.message, /\(UNEXPECTED_ANSWER, status 502, request 02; see docs\/errors.md\)$/);
    page.stop();
    const real = await errorOf(await agentFetch(service.gateway, { apiKey: `svc_live_v1_${"0".repeat(64)}` })("/one/agent"));
    assert.match(real?.message ?? "", /\(INVALID_API_KEY, status 401, request \S+; see docs\/errors.md\)$/);
  });

  test("that waits tells so before each wait", async () => {
    const refusal = { error: "Not now", errorType: "RATE_LIMITED", details: {}, timestamp: 1 };
    const server = await started(() => [429, refusal, { "retry-after": "0", "x-ratelimit-limit": "5" }]);
    const told: Retry[] = [];
    const options = { onRetry: (retry: Retry) => void told.push(retry) };
    await refused(new Tiergate(server.url, options).verify({ apiKey }), "RATE_LIMITED");
    assert.equal((await agentFetch(server.url, { apiKey }, options)("/")).status, 429);
    const seen = told.map(({ waitMs, attempt, status, error }) => [waitMs, attempt, status, error?.errorType]);
    const both = [[0, 2, 429, "RATE_LIMITED"], [0, 3, 429, "RATE_LIMITED"]];
    assert.deepEqual(seen, [...both, ...both]);
    server.stop();
  });

  test("by which a key is verified takes it as its file has it", async () => {
    const server = await started();
    await new Tiergate(server.url).verify({ apiKey: `${apiKey}\r\n`, agentId: "4" });
    assert.deepEqual(JSON.parse(server.requests[0]!.body), { apiKey, agentId: "4" });
    server.stop();
  });
});
