// The waits before another try. Timers are replaced, so no test waits; and no server runs here, because it needs timers.

import assert from "node:assert/strict";
import { describe, test, type TestContext } from "node:test";
import { Tiergate, agentFetch } from "tiergate";
import { RIGHT, owner, refused } from "./service.js";

const url = "https://service.example";
const apiKey = "svc_live_v1_x";

/** A refusal; the service sends `Retry-After` with most. */
const refusal = (errorType: string, status: number, retryAfter?: string) => () => {
  const headers: Record<string, string> = retryAfter === undefined ? {} : { "retry-after": retryAfter };
  return Response.json({ error: "Not now", errorType, details: {}, timestamp: Date.now() }, { status, headers });
};
const limited = (retryAfter: string) => refusal("RATE_LIMITED", 429, retryAfter);
const succeeds = () => Response.json(RIGHT);

/** A `fetch` whose tries are answered in turn, and by the last answer for ever. */
function scripted(...answers: (() => Response)[]): { fetch: typeof fetch; tries: RequestInit[] } {
  const tries: RequestInit[] = [];
  const answer: typeof fetch = async (input, init = {}) => {
    if (String(input).endsWith("/.well-known/tiergate")) return succeeds();
    tries.push(init);
    return answers[Math.min(tries.length, answers.length) - 1]!();
  };
  return { fetch: answer, tries };
}

/** Ends all waits at once, and tells how many milliseconds they would have taken. */
function waits(context: TestContext): number[] {
  const told: number[] = [];
  context.mock.method(globalThis, "setTimeout", (done: () => void, milliseconds: number) => {
    told.push(milliseconds);
    setImmediate(done);
  });
  return told;
}

// One after the other: they share the timers.
describe("waits", { timeout: 600_000 }, () => {
  test("last as long as Retry-After says, and the same signature is sent again", async (context) => {
    const waited = waits(context);
    const { fetch, tries } = scripted(limited("7"), succeeds);
    assert.equal((await new Tiergate(url, { fetch }).keys.generate("4", owner)).apiKey, RIGHT.apiKey);
    assert.deepEqual(waited, [7_000]);
    assert.equal(tries.length, 2);
    assert.equal(tries[0]!.body, tries[1]!.body);
  });

  test("grow without Retry-After, where the chain could not be read", async (context) => {
    const waited = waits(context);
    const { fetch, tries } = scripted(refusal("RPC_ERROR", 503), refusal("RPC_ERROR", 503), succeeds);
    assert.equal((await new Tiergate(url, { fetch }).keys.rotate("4", owner)).apiKey, RIGHT.apiKey);
    assert.equal(tries.length, 3);
    const [first = 0, second = 0, ...further] = waited;
    assert.deepEqual(further, []);
    assert.ok(first >= 500 && first <= 1_000 && second >= 1_000 && second <= 2_000, `${waited} ms`);
  });

  test("last no longer than they may, in all", async (context) => {
    const waited = waits(context);
    const two = scripted(limited("30"), limited("31"));
    await refused(new Tiergate(url, { fetch: two.fetch }).verify({ apiKey }), "RATE_LIMITED");
    assert.equal(two.tries.length, 2);
    assert.deepEqual(waited, [30_000]);
    const long = scripted(limited("61"));
    const error = await refused(new Tiergate(url, { fetch: long.fetch }).verify({ apiKey }), "RATE_LIMITED");
    assert.deepEqual([error.retryAfter, long.tries.length, waited.length], [61, 1, 1]);
  });

  test("of agentFetch last as long as Retry-After says, and the body is sent again", async (context) => {
    const waited = waits(context);
    const { fetch, tries } = scripted(limited("7"), succeeds);
    const ask = agentFetch(url, { apiKey }, { fetch });
    assert.equal((await ask("/orders", { method: "POST", body: "one" })).status, 200);
    assert.deepEqual(waited, [7_000]);
    assert.deepEqual(tries.map(({ body }) => body), ["one", "one"]);
    assert.deepEqual(tries.map(({ headers }) => (headers as Headers).get("x-api-key")), [apiKey, apiKey]);
  });

  test("of agentFetch are for refusals of the gateway, not for an API's answers that look like one", async (context) => {
    const waited = waits(context);
    const refused = { error: "Not now", errorType: "OVERLOADED", details: {}, timestamp: 1 };
    const answers: [object, Record<string, string>][] = [
      [refused, { "x-ratelimit-limit": "16" }],
      [{ ...refused, error: "x".repeat(65_536) }, {}],
    ];
    for (const [body, further] of answers) {
      const headers = { "retry-after": "1", ...further };
      const { fetch, tries } = scripted(() => Response.json(body, { status: 503, headers }));
      const answer = await agentFetch(url, { apiKey }, { fetch })("/orders", { method: "POST", body: "one" });
      assert.deepEqual([answer.status, tries.length, waited], [503, 1, []]);
      assert.deepEqual(await answer.json(), body, "the caller reads it whole");
    }
  });

  type Call = (options: { fetch: typeof fetch; maxWaitMs: number }, signal: AbortSignal) => Promise<unknown>;
  const calls: [string, Call][] = [
    ["the client", (options, signal) => new Tiergate(url, options).keys.status("4", { signal })],
    ["agentFetch", (options, signal) => agentFetch(url, { apiKey }, options)("/", { signal })],
  ];
  for (const [name, call] of calls) {
    test(`of ${name} end when it is aborted`, async (context) => {
      const { fetch, tries } = scripted(limited("3600"));
      // These timers never end by themselves.
      const timer = context.mock.method(globalThis, "setTimeout", () => 0);
      const abort = new AbortController();
      const waiting = call({ fetch, maxWaitMs: 2e9 }, abort.signal);
      while (timer.mock.callCount() === 0) await new Promise(setImmediate);
      const reason = new Error("stop");
      abort.abort(reason);
      await assert.rejects(waiting, reason);
      assert.deepEqual([tries.length, timer.mock.callCount()], [1, 1]);
    });
  }
});
