// Where an agent's key comes from, and when it is asked for again.

import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test, type TestContext } from "node:test";
import { agentFetch, type Credential } from "tiergate";
import { RIGHT, Scripted, agent, answer, owner, service } from "./service.js";
import { Tiergate } from "tiergate";

/** A gateway that takes one key, which `rotate` replaces. */
async function gateway(first = "one") {
  const at = { key: first };
  const server = await Scripted.start((request, response) => {
    if (request.headers["x-api-key"] === at.key) return answer(response, 200, {});
    const details = { agentId: null };
    return answer(response, 401, { error: "Unknown", errorType: "INVALID_API_KEY", details, timestamp: Date.now() });
  });
  const shown = () => server.requests.map(({ headers }) => headers["x-api-key"]);
  return { server, shown, rotate: (key: string) => void (at.key = key) };
}

/** A folder with a file of a key. */
function keyFile(context: TestContext, key: string, mode = 0o600): string {
  const folder = mkdtempSync(join(tmpdir(), "tiergate-keys-"));
  context.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, "api.key");
  writeFileSync(file, `${key}\n`, { mode });
  chmodSync(file, mode);
  return file;
}

describe("a key that was rotated", { concurrency: true, timeout: 600_000 }, () => {
  const kinds: [string, (context: TestContext) => { credential: Credential; replace: (key: string) => void }][] = [
    ["a function", () => {
      let key = "one";
      return { credential: { apiKey: () => key }, replace: (next) => void (key = next) };
    }],
    ["an asynchronous function", () => {
      let key = "one";
      return { credential: { apiKey: async () => key }, replace: (next) => void (key = next) };
    }],
    ["a file", (context) => {
      const file = keyFile(context, "one");
      return { credential: { apiKeyFile: file }, replace: (next) => writeFileSync(file, next) };
    }],
  ];
  for (const [name, make] of kinds) {
    test(`is asked for once more from ${name}, and the request is repeated`, async (context) => {
      const { credential, replace } = make(context);
      const { server, shown, rotate } = await gateway();
      const ask = agentFetch(server.url, credential);
      assert.equal((await ask("/")).status, 200);
      rotate("two");
      replace("two");
      const again = await ask("/orders", { method: "POST", body: "x" });
      assert.deepEqual([again.status, server.requests.map(({ body }) => body)], [200, ["", "x", "x"]]);
      assert.equal((await ask("/")).status, 200);
      assert.deepEqual(shown(), ["one", "one", "two", "two"]);
      server.stop();
    });
  }

  test("is no reason to repeat where the key is the same, and its 401 is handed over", async () => {
    const { server, shown, rotate } = await gateway();
    rotate("gone");
    let asked = 0;
    for (const apiKey of ["one", () => (asked++, "one")]) {
      const response = await agentFetch(server.url, { apiKey })("/");
      assert.deepEqual([response.status, ((await response.json()) as { errorType: string }).errorType], [401, "INVALID_API_KEY"]);
    }
    assert.deepEqual([shown(), asked], [["one", "one"], 2]);
    server.stop();
  });

  test("is answered by the gateway's 401 where its source fails", async (context) => {
    const warn = context.mock.method(console, "warn", () => undefined);
    const { server, rotate } = await gateway();
    rotate("gone");
    const keys = [() => "one", () => Promise.reject(new Error("sealed"))];
    const response = await agentFetch(server.url, { apiKey: () => keys.shift()!() })("/");
    assert.deepEqual([response.status, warn.mock.callCount()], [401, 1]);
    await response.body?.cancel();
    server.stop();
  });

  test("is repeated once, however often the key changes", async () => {
    const { server, shown, rotate } = await gateway();
    rotate("gone");
    let asked = 0;
    assert.equal((await agentFetch(server.url, { apiKey: () => `key${++asked}` })("/")).status, 401);
    assert.deepEqual(shown(), ["key1", "key2"]);
    server.stop();
  });

  test("is asked for once by requests that are refused at once", async () => {
    const { server, rotate } = await gateway();
    let [asked, key] = [0, "one"];
    const ask = agentFetch(server.url, { apiKey: async () => (asked++, key) });
    await ask("/");
    rotate("two");
    key = "two";
    const answers = await Promise.all(Array.from({ length: 8 }, () => ask("/")));
    assert.deepEqual([answers.map(({ status }) => status), asked], [Array(8).fill(200), 2]);
    server.stop();
  });

  test("is asked for again after a stream was refused, which is not repeated", async () => {
    const { server, shown, rotate } = await gateway();
    let key = "one";
    const ask = agentFetch(server.url, { apiKey: () => key });
    await ask("/");
    rotate("two");
    key = "two";
    const stream = { method: "POST", body: new Blob(["x"]).stream(), duplex: "half" } as RequestInit;
    assert.deepEqual([(await ask("/", stream)).status, (await ask("/")).status, shown()], [401, 200, ["one", "one", "two"]]);
    server.stop();
  });

  test("is no matter of an API's own 401", async () => {
    const server = await Scripted.start((_request, response) => {
      const body = { error: "Log in", errorType: "INVALID_API_KEY", details: {}, timestamp: 1 };
      answer(response, 401, body, { "x-ratelimit-limit": "16" });
    });
    let asked = 0;
    assert.equal((await agentFetch(server.url, { apiKey: () => `k${++asked}` })("/")).status, 401);
    assert.deepEqual([asked, server.requests.length], [1, 1]);
    server.stop();
  });

  test("is followed at the real gateway", async () => {
    const tiergate = new Tiergate(service.api, { retries: 0 });
    const id = agent("bronze", 3);
    const first = (await tiergate.keys.generate(id, owner)).apiKey;
    const second = (await tiergate.keys.rotate(id, owner)).apiKey;
    const keys = [first, second];
    const ask = agentFetch(service.gateway, { apiKey: () => keys.shift() ?? "none" });
    assert.notEqual((await ask("/gone")).status, 401);
  });
});

test("a key that can't be had fails the request, and is asked for anew by the next one", async () => {
  const { server } = await gateway();
  const answers: (() => unknown)[] = [() => Promise.reject(new Error("sealed")), () => 5, () => "", () => "one"];
  const ask = agentFetch(server.url, { apiKey: () => answers.shift()!() as string });
  await assert.rejects(ask("/"), /sealed/);
  await assert.rejects(ask("/"), { name: "TypeError", message: "The API key is no text" });
  await assert.rejects(ask("/"), { name: "TypeError", message: /^The API key is empty/ });
  assert.equal((await ask("/")).status, 200);
  server.stop();
});

test("a key or a signature that does not come is waited for no longer than its request, and the next one asks anew", { timeout: 600_000 }, async () => {
  const { server, rotate } = await gateway();
  const tiergate = new Tiergate(server.url, { fetch: async () => Response.json(RIGHT) });
  const abort = { now: () => {} };
  const never = () => (setImmediate(abort.now), new Promise<string>(() => {}));
  const keys = [never, () => "one", never, () => "two"];
  const byKey = agentFetch(server.url, { apiKey: () => keys.shift()!() });
  const bySigner = agentFetch(server.url, { agentId: "4", signer: never, service: tiergate });
  const byAccount = agentFetch(server.url, { agentId: "4", chainId: 1, account: { address: owner.address, signMessage: never } });
  const isAborted = async (call: (signal: AbortSignal) => Promise<unknown>) => {
    const [reason, controller] = [new Error("stop"), new AbortController()];
    abort.now = () => controller.abort(reason);
    await assert.rejects(call(controller.signal), reason);
  };
  await isAborted((signal) => byKey("/", { signal }));
  assert.equal((await byKey("/")).status, 200);
  rotate("two");
  // The key was refused, and the source is asked once more.
  await isAborted((signal) => byKey("/", { signal }));
  assert.equal((await byKey("/")).status, 200);
  for (const ask of [bySigner, byAccount]) await isAborted((signal) => ask("/", { signal }));
  await isAborted((signal) => tiergate.keys.rotate("4", never, { signal }));
  server.stop();
});

test("a key's file that others can use is warned about, and one that is not there is an error that does not name it", async (context) => {
  const { server } = await gateway();
  const warn = context.mock.method(console, "warn", () => undefined);
  for (const [mode, warnings] of [[0o600, 0], [0o640, 1], [0o604, 1]] as const) {
    warn.mock.resetCalls();
    assert.equal((await agentFetch(server.url, { apiKeyFile: keyFile(context, "one", mode) })("/")).status, 200);
    assert.equal(warn.mock.callCount(), warnings, mode.toString(8));
  }
  await assert.rejects(agentFetch(server.url, { apiKeyFile: "/nowhere/svc_live" })("/"), {
    name: "TypeError",
    message: "The file of the API key can't be read (ENOENT)",
  });
  server.stop();
});
