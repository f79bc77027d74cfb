// `tiergate keys`, as `npx` runs it of the installed package.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { chmodSync, lstatSync, mkdtempSync, openSync, readFileSync, readdirSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Tiergate } from "tiergate";
import { RIGHT, Scripted, agent, answer, owner, service } from "./service.js";

const folder = mkdtempSync(join(tmpdir(), "tiergate-command-"));
const program = join(process.cwd(), "node_modules/.bin/tiergate");
const tiergate = new Tiergate(service.api);

interface Ran {
  code: number | null;
  out: string;
  err: string;
}

/** Runs the command in a folder of its own, with text on standard input. */
function run(args: string[], input = "", variables: Record<string, string> = {}, out: "pipe" | number = "pipe"): Promise<Ran> {
  const env = { PATH: process.env["PATH"] ?? "", TIERGATE_URL: service.api, ...variables };
  const child = spawn(program, args, { cwd: folder, env, stdio: ["pipe", out, "pipe"] });
  const ran: Ran = { code: null, out: "", err: "" };
  child.stdout?.on("data", (piece) => (ran.out += String(piece)));
  child.stderr?.on("data", (piece) => (ran.err += String(piece)));
  child.stdin?.on("error", () => undefined);
  child.stdin?.end(input);
  return new Promise((resolve) => child.on("close", (code) => resolve({ ...ran, code })));
}

test("an owner makes, replaces and revokes a key, from a file, from standard input and with a signature made elsewhere", async () => {
  const id = agent("unstaked", 4);
  writeFileSync(join(folder, "owner.key"), service.owner, { mode: 0o600 });
  const signed = ["--agent-id", id, "--owner-key-file", "owner.key"];
  const made = await run(["keys", "generate", ...signed, "--out", "api.key", "--name", "ci", "--expires-in", "3600"]);
  assert.deepEqual([made.code, made.err, made.out], [0, "", `agentId  ${id}\nfile     api.key\n`]);
  assert.equal(statSync(join(folder, "api.key")).mode & 0o777, 0o600);
  const first = readFileSync(join(folder, "api.key"), "utf8");
  assert.match(first, /^svc_live_v1_[0-9a-f]{64}\n$/);

  const again = await run(["keys", "generate", ...signed, "-o", "json"]);
  assert.equal(again.code, 1);
  assert.equal((JSON.parse(again.out) as { errorType: string }).errorType, "KEY_ALREADY_EXISTS");
  const other = await run(["keys", "generate", ...signed, "--out", "api.key"]);
  assert.match(other.err, /api.key: it exists/);

  const terms = ["--grace-seconds", "60", "--tenants", "acme,other"];
  const replaced = await run(["keys", "rotate", "--agent-id", id, "--owner-key-file", "-", "--out", "api.key", ...terms], service.owner);
  assert.deepEqual([replaced.code, replaced.err], [0, ""]);
  assert.notEqual(readFileSync(join(folder, "api.key"), "utf8"), first);
  const [old, fresh] = (await tiergate.profile(id, owner)).keys;
  assert.deepEqual([old?.name, old?.replaced, fresh?.name, fresh?.tenants], ["ci", true, "ci", ["acme", "other"]]);
  assert.deepEqual([typeof old?.expiresAt, fresh?.expiresAt, typeof fresh?.madeOn], ["number", null, "string"]);
  assert.deepEqual(readdirSync(folder).sort(), ["api.key", "owner.key"]);

  const printed = await run(["keys", "revoke", "--agent-id", id, "--typed-data"]);
  writeFileSync(join(folder, "request.json"), printed.out);
  const { domain, types, primaryType, message } = JSON.parse(printed.out);
  const signature = await owner.signTypedData({ domain, types, primaryType, message });
  const second = ["keys", "revoke", "--signed", "request.json", "--signature", "-"];
  const wrong = await run([...second, "--agent-id", "1"], signature);
  assert.match(wrong.err, /--agent-id is 1, but request.json is for/);
  const revoked = await run(second, signature);
  assert.deepEqual([revoked.code, revoked.out], [0, `agentId  ${id}\nsuccess  true\n`]);
  assert.equal((await tiergate.keys.status(id)).hasKey, false);
  const status = await run(["keys", "status", "--agent-id", id, "-o", "json"]);
  assert.deepEqual(JSON.parse(status.out), { agentId: id, hasKey: false });
});

test("what goes wrong is a sentence, an exit code, and no word of a key", async () => {
  writeFileSync(join(folder, "wide.key"), service.owner);
  chmodSync(join(folder, "wide.key"), 0o644);
  const nowhere = "http://127.0.0.1:1";
  const key = ["--agent-id", "4", "--owner-key-file"];
  for (const [args, code, words] of [
    [["keys", "revoke", ...key, "wide.key", "--url", nowhere], 1, /warning: others may read wide.key/],
    [["keys", "revoke", ...key, "none", "--url", nowhere], 1, /none: can't be read: ENOENT; name a file/],
    [["keys", "status", "--agent-id", "4", "--url", nowhere], 1, /NO_ANSWER/],
    [["keys", "status", "--agent-id", "4", "--url", "localhost:8080"], 2, /such as https:\/\/keys.example/],
    [["keys", "status", "--agent-id", "4", "--url", "http://keys.invalid"], 2, /--allow-http keys.invalid/],
    [["keys", "status"], 2, /--agent-id/],
    [["keys", "surprise"], 2, /Usage: tiergate keys/],
    [["keys", "revoke", ...key, "wide.key", "--expires-in", "9"], 2, /revoke takes no --expires-in/],
    [["keys", "rotate", ...key, "wide.key", "--expires-in", "1d"], 2, /--expires-in is a whole number of seconds/],
    [["keys", "status", "--surprise"], 2, /Usage: tiergate keys/],
  ] as const) {
    const ran = await run([...args]);
    assert.deepEqual([ran.code, words.test(ran.err)], [code, true], `${args.join(" ")}: ${ran.err}`);
    assert.ok(!`${ran.out}${ran.err}`.includes(service.owner.slice(2)));
  }
  const help = await run(["--help"]);
  assert.match(help.out, /npx --package tiergate --package viem tiergate keys generate/);
});

test("a key that may be changed and is not shown gives exit code 3, a key that is not changed 1", async () => {
  const refusal = (errorType: string) => ({ error: "no", errorType, details: {}, timestamp: Date.now() });
  const pipe = "pipe";
  const full = openSync("/dev/full", "w");
  for (const [status, body, out, code] of [
    [200, RIGHT, full, 3],
    [200, RIGHT, pipe, 0],
    [504, refusal("UPSTREAM_TIMEOUT"), pipe, 3],
    [500, refusal("INTERNAL_ERROR"), pipe, 3],
    [502, "<html>", pipe, 3],
    [503, refusal("RPC_ERROR"), pipe, 1],
    [403, refusal("TIER_BLOCKED"), pipe, 1],
  ] as const) {
    const server = await Scripted.start(({ method }, response) => answer(response, method === "GET" ? 200 : status, method === "GET" ? RIGHT : body, { "retry-after": "900" }));
    const variables = { TIERGATE_OWNER_KEY: service.owner, TIERGATE_URL: server.url };
    const ran = await run(["keys", "rotate", "--agent-id", "4"], "", variables, out);
    assert.equal(ran.code, code, `${status} ${JSON.stringify(body)}: ${ran.err}`);
    server.stop();
  }
});

test("a new key goes where a link leads, of any prefix, and a file that is no request is not quoted", async () => {
  const server = await Scripted.start((_request, response) => answer(response, 200, RIGHT));
  const variables = { TIERGATE_OWNER_KEY: service.owner, TIERGATE_URL: server.url };
  writeFileSync(join(folder, "real.key"), `acme-${"0".repeat(64)}\n`);
  symlinkSync("real.key", join(folder, "link.key"));
  const ran = await run(["keys", "rotate", "--agent-id", "4", "--out", "link.key"], "", variables);
  assert.deepEqual([ran.code, ran.err], [0, ""]);
  assert.ok(lstatSync(join(folder, "link.key")).isSymbolicLink());
  assert.equal(readFileSync(join(folder, "real.key"), "utf8"), `${RIGHT.apiKey}\n`);

  writeFileSync(join(folder, "private.key"), service.owner, { mode: 0o600 });
  const kept = await run(["keys", "rotate", "--agent-id", "4", "--out", "private.key"], "", variables);
  assert.match(kept.err, /is no API key that may be replaced/);
  const wrong = await run(["keys", "revoke", "--signed", "private.key", "--signature", "-"], "", variables);
  assert.match(wrong.err, /^tiergate: private.key is not what --typed-data prints\n$/);
  server.stop();
});
