// A key that one process of a fleet replaces before it ends.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test, type TestContext } from "node:test";
import { fileURLToPath } from "node:url";
import { Tiergate, agentFetch } from "tiergate";
import { keptKey } from "tiergate/kept";
import { RIGHT, Scripted, answer, owner, service } from "./service.js";

function place(context: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "tiergate-kept-"));
  context.after(() => rmSync(folder, { recursive: true }));
  return join(folder, "agent.json");
}

/** Writes a key with this much of an hour's life left. */
function keep(file: string, apiKey: string, left: number): void {
  writeFileSync(file, JSON.stringify({ apiKey, endsAt: Math.floor(Date.now() / 1000) + left, expiresIn: 3_600 }), { mode: 0o600 });
}

function stored(file: string): { apiKey: string; endsAt: number } {
  return JSON.parse(readFileSync(file, "utf8"));
}

/** A service that issues keys, or refuses to, and a gateway that takes any. */
async function fake() {
  const at = { refuses: false, made: 0, bodies: [] as Record<string, unknown>[] };
  const server = await Scripted.start(({ method, url = "" }, response, body) => {
    if (!url.startsWith("/keys")) return answer(response, 200, RIGHT);
    assert.equal(method, "POST");
    at.bodies.push({ path: url, ...JSON.parse(body) });
    if (at.refuses) return answer(response, 500, { error: "x", errorType: "INTERNAL_ERROR", details: {}, timestamp: Date.now() });
    answer(response, 200, { ...RIGHT, apiKey: `svc_live_v1_${++at.made}` });
  });
  const tiergate = new Tiergate(server.url, { retries: 0 });
  const kept = (file: string) => keptKey(file, { service: tiergate, agentId: "4", signer: owner, expiresIn: 3_600 });
  return { at, server, kept };
}

describe("a kept key", { concurrency: true, timeout: 600_000 }, () => {
  test("is replaced once by many processes, none of which is refused", async (context) => {
    const tiergate = new Tiergate(service.api, { retries: 0 });
    const [file, id] = [place(context), service.diamond.at(-1)!];
    const { apiKey } = await tiergate.keys.generate(id, owner, { name: "fleet", expiresIn: 3_600 });
    keep(file, apiKey, 300);
    const program = fileURLToPath(new URL("fleet.js", import.meta.url));
    const given = [program, file, id, apiKey, service.api, service.gateway, service.owner];
    const size = process.env["TG_WHOLE"] === undefined ? 4 : 20;
    const fleet = Array.from({ length: size }, () => spawn(process.execPath, given, { stdio: ["pipe", "pipe", "inherit"] }));
    await Promise.all(fleet.map(({ stdout }) => once(stdout, "data")));
    for (const { stdin } of fleet) stdin.write("go\n");
    const told = await Promise.all(fleet.map(({ stdout }) => once(stdout, "data")));
    const next = stored(file).apiKey;
    for (const stdout of told) {
      const { refused, seen } = JSON.parse(String(stdout));
      assert.equal(refused, 0);
      assert.deepEqual(seen.filter((key: string) => key !== apiKey), [next]);
    }
    const { keys } = await tiergate.profile(id, owner);
    assert.deepEqual(keys.map(({ name, replaced }) => [name, replaced]), [["fleet", true], ["fleet", false]]);
    await Promise.all(fleet.map((each) => each.exitCode ?? once(each, "exit")));
    assert.deepEqual(readdirSync(join(file, "..")), ["agent.json"]);
  });

  test("is made where there is no file, in one that its user alone can read", async (context) => {
    const { at, server, kept } = await fake();
    const file = place(context);
    const keys = await Promise.all([kept(file), kept(file)].map((each) => each.current()));
    assert.deepEqual([keys, at.made], [["svc_live_v1_1", "svc_live_v1_1"], 1]);
    assert.deepEqual([at.bodies[0]!["path"], at.bodies[0]!["expiresIn"]], ["/keys/generate", 3_600]);
    assert.equal(statSync(file).mode & 0o777, 0o600);
    server.stop();
  });

  test("is followed in its file, and one that was alone there is replaced", async (context) => {
    const { at, server, kept } = await fake();
    const file = place(context);
    writeFileSync(file, "svc_live_v1_alone\n", { mode: 0o600 });
    const key = kept(file);
    const ask = agentFetch(server.url, { apiKey: key });
    await ask("/");
    assert.equal(server.requests.find(({ path }) => path === "/")?.headers["x-api-key"], "svc_live_v1_alone");
    // The refused key waits for the one that is under way.
    assert.equal(await key.current("svc_live_v1_alone"), "svc_live_v1_1");
    assert.deepEqual([at.bodies[0]!["path"], at.bodies[0]!["graceSeconds"]], ["/keys/rotate", 600]);
    keep(file, "svc_live_v1_other", 3_000);
    assert.equal(await key.current(), "svc_live_v1_other");
    assert.equal(await key.current("svc_live_v1_other"), "svc_live_v1_other");
    assert.equal(at.made, 1);
    server.stop();
  });

  test("stays in use where it can't be replaced, which is tried again after a minute and by one process alone", async (context) => {
    const { at, server, kept } = await fake();
    const file = place(context);
    keep(file, "old", 300);
    context.mock.method(console, "warn", () => undefined);
    at.refuses = true;
    const [one, other] = [kept(file), kept(file)];
    // A refused one is waited for, so that the try has ended.
    for (const each of [one, other, one, other]) assert.equal(await each.current("old"), "old");
    assert.equal(at.bodies.length, 1);
    const minuteAgo = Date.now() / 1000 - 61;
    utimesSync(`${file}.lock-1`, minuteAgo, minuteAgo);
    at.refuses = false;
    await Promise.all([one.current("old"), other.current("old")]);
    assert.deepEqual([at.made, at.bodies.length, stored(file).apiKey, existsSync(`${file}.lock-1`)], [1, 2, "svc_live_v1_1", false]);
    server.stop();
  });

  test("that has ended and can't be replaced fails its requests, without a further try", async (context) => {
    const { at, server, kept } = await fake();
    const file = place(context);
    keep(file, "old", -1);
    at.refuses = true;
    const key = kept(file);
    await assert.rejects(key.current(), { errorType: "INTERNAL_ERROR" });
    await assert.rejects(key.current(), { errorType: "NO_ANSWER", message: /a try has failed within the last minute/ });
    assert.equal(at.bodies.length, 1);
    server.stop();
  });

  test("names a wrong argument, and shows nothing of a file that holds no key", async (context) => {
    const file = place(context);
    const right = { service: new Tiergate("https://verify.example"), agentId: "4", signer: owner, expiresIn: 3_600 };
    const wrong: [object, RegExp][] = [
      [{ expiresIn: 60 }, /expiresIn/],
      [{ graceSeconds: 0 }, /graceSeconds/],
      [{ service: {} }, /service/],
      [{ signer: undefined }, /signer/],
      [{ tenants: "acme" }, /tenants/],
    ];
    for (const [each, message] of wrong) assert.throws(() => keptKey(file, { ...right, ...each } as typeof right), { name: "TypeError", message });
    writeFileSync(file, '{"apiKey":"svc_live_v1_x"', { mode: 0o600 });
    await assert.rejects(keptKey(file, right).current(), { name: "TypeError", message: "The file of the API key holds no key" });
  });
});
