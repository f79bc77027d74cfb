// No message, log or inspection shows a key, whatever argument it is given as.

import assert from "node:assert/strict";
import { test } from "node:test";
import { format, inspect } from "node:util";
import { Tiergate, TiergateError, agentFetch, errorOf, walletSigner } from "tiergate";
import { assertionKeys, verifyAssertion } from "tiergate/assertion";
import { agentOf, expressAgent, honoAgent } from "tiergate/server";
import { Scripted, agent, answer, owner, service } from "./service.js";

const HEX = "47e179ec197488593b187f80a00eb0da91f1b9d0b13f8733639f19c30a34926a";
/** A private key, keys of an API, and forms of them that some check refuses. */
const CANARIES: unknown[] = [`0x${HEX}`, HEX, `svc_live_v1_${HEX}`, `${HEX} \n\u00e9`, `http://${HEX}:x@a.example`, Buffer.from(HEX), [HEX], { [HEX]: HEX }, BigInt(`0x${HEX}`)];
const SHOWN = new RegExp([...HEX.matchAll(/.{16}/g)].map(([part]) => part).concat(String(BigInt(`0x${HEX}`)).slice(0, 16)).join("|"), "i");

/** Everything that a log could make of it. */
function shownOf(value: unknown): string {
  const error = value instanceof Error ? [value.message, value.stack, String(value)] : [];
  return [...error, inspect(value, { depth: 9 }), format("%o %O", value, value)].join("\n");
}

/** True if a call with a canary, which may fail, shows it. An answer of fetch shows the address that was asked for. */
async function shows(call: () => unknown): Promise<boolean> {
  let result: unknown;
  try {
    result = await call();
  } catch (error) {
    result = error;
  }
  if (!(result instanceof Response)) return SHOWN.test(shownOf(result));
  await result.body?.cancel();
  return false;
}

test("no argument of the client is shown by an error, an answer or an inspection", { timeout: 600_000 }, async () => {
  // It refuses what it gets as the service does, which shortens what it shows.
  const server = await Scripted.start((_request, response) => {
    answer(response, 400, { error: "It is malformed", errorType: "VALIDATION_ERROR", details: { field: "x", received: null }, timestamp: Date.now() });
  });
  const domain = { name: "A", version: "1", chainId: 1, verifyingContract: "0xA1393CB409E2fE5573C0840189622aA0e33947b2" } as const;
  const typed = { domain, types: {}, primaryType: "Verification", message: { agentId: "4", nonce: "1", timestamp: 1 } };
  const at = (options: object = {}) => {
    const fetched: typeof fetch = (url, init) => (String(url).endsWith("tiergate") ? Promise.resolve(Response.json({ domain })) : fetch(url, init));
    return new Tiergate(server.url, { fetch: fetched, ...options });
  };
  const jose = { keys: assertionKeys(`${server.url}/keys`), issuer: "a", tenant: "b" };
  const credentials: ((canary: any) => any)[] = [
    (canary) => canary,
    (canary) => ({ apiKey: canary }),
    (canary) => ({ apiKey: "k", bearer: canary }),
    (canary) => ({ apiKey: () => canary }),
    (canary) => ({ apiKeyFile: canary }),
    (canary) => ({ agentId: canary, signer: owner, service: at() }),
    (canary) => ({ agentId: "4", signer: canary, service: at() }),
    (canary) => ({ agentId: "4", signer: async () => canary, service: at() }),
    (canary) => ({ agentId: "4", signer: owner, service: canary }),
    (canary) => ({ signer: canary }),
    (canary) => ({ account: canary }),
    (canary) => ({ agentId: canary, account: owner, chainId: 1 }),
    (canary) => ({ agentId: "4", account: canary, chainId: 1 }),
    (canary) => ({ agentId: "4", account: { address: canary, signMessage: () => canary }, chainId: 1 }),
    (canary) => ({ agentId: "4", account: { address: owner.address, signMessage: async () => canary }, chainId: 1 }),
    (canary) => ({ agentId: "4", account: owner, chainId: canary }),
  ];
  const entrances: Record<string, (canary: any) => unknown> = {
    url: (canary) => new Tiergate(canary),
    options: (canary) => new Tiergate(server.url, canary),
    serviceName: (canary) => at({ serviceName: canary }),
    verify: (canary) => at().verify(canary),
    apiKey: (canary) => at().verify({ apiKey: canary, agentId: "4" }),
    agentId: (canary) => at().verify({ apiKey: "k", agentId: canary }),
    origin: (canary) => at().verify({ apiKey: "k", origin: canary }),
    status: (canary) => at().keys.status(canary),
    declaredEndpoint: (canary) => at().keys.rotate("4", owner, { declaredEndpoint: canary }),
    operation: (canary) => at().send(canary, typed as never, "0x"),
    ofTypedData: (canary) => at().typedData("4", canary),
    typedData: (canary) => at().send("verify", canary, "0x"),
    signature: (canary) => at().send("verify", typed as never, canary),
    provider: (canary) => at().verifySignature("4", walletSigner(canary, owner.address)),
    account: (canary) => at().verifySignature("4", walletSigner({ request: async ({ params }) => assert.fail(String(params)) }, canary)),
    signing: (canary) => at().signing(canary),
    clock: (canary) => at().correctClock(canary),
    errorOf: (canary) => errorOf(canary),
    gateway: (canary) => agentFetch(canary, { apiKey: "k" }),
    request: (canary) => agentFetch(server.url, { apiKey: "k" })(canary),
    target: (canary) => agentFetch(server.url, { apiKey: "k" })(`http://${canary}:a:b`),
    headers: (canary) => agentFetch(server.url, { apiKey: "k" })("/", { headers: canary }),
    header: (canary) => agentFetch(server.url, { apiKey: "k" })("/", { headers: { authorization: canary } }),
    fetchOptions: (canary) => agentFetch(server.url, { apiKey: "k" }, canary)("/"),
    jwks: (canary) => assertionKeys(canary),
    assertion: (canary) => verifyAssertion(canary, jose),
    token: (canary) => verifyAssertion(`${canary}.${canary}.${canary}`, jose),
    rules: (canary) => verifyAssertion("a.b.c", canary),
    keys: (canary) => verifyAssertion("a.b.c", { ...jose, keys: canary }),
    agentOf: (canary) => agentOf(canary),
    express: (canary) => expressAgent(canary)({ headers: canary }, canary, () => {}),
    hono: (canary) => honoAgent(canary)(canary, async () => {}),
  };
  for (const operation of ["generate", "rotate", "revoke"] as const) {
    entrances[`${operation} of`] = (canary) => at().keys[operation](canary, owner);
    entrances[`${operation} by`] = (canary) => at().keys[operation]("4", canary);
    entrances[`${operation} with`] = (canary) => at().keys[operation]("4", owner, canary);
    entrances[`${operation} until`] = (canary) => at().keys[operation]("4", owner, { signal: canary });
  }
  for (const call of ["verifySignature", "profile"] as const) {
    entrances[`${call} of`] = (canary) => at()[call](canary, owner);
    entrances[`${call} by`] = (canary) => at()[call]("4", canary);
    entrances[`${call} signed as`] = (canary) => at()[call]("4", async () => canary);
    entrances[`${call} until`] = (canary) => at()[call]("4", owner, { signal: canary });
  }
  for (const option of ["fetch", "timeoutMs", "allowHttp", "onRetry", "retries", "maxWaitMs", "domain", "serviceName"]) {
    entrances[`option ${option}`] = (canary) => at({ [option]: canary });
    entrances[`client with ${option}`] = (canary) => at({ [option]: canary }).verify({ apiKey: "k" });
    entrances[`fetch with ${option}`] = (canary) => agentFetch(server.url, { apiKey: "k" }, { [option]: canary })("/");
  }
  credentials.forEach((credential, index) => {
    entrances[`credential ${index}`] = (canary) => agentFetch(server.url, credential(canary))("/", { method: "POST", body: "x" });
  });
  try {
    const showing = [];
    for (const [name, call] of Object.entries(entrances)) {
      for (const [index, canary] of CANARIES.entries()) if (await shows(() => call(canary))) showing.push(`${name}: canary ${index}`);
    }
    assert.deepEqual(showing, []);
  } finally {
    server.stop();
  }
});

test("an issued key is in its answer and in the answer's JSON, and not in what an inspection shows", async () => {
  const tiergate = new Tiergate(service.api, { retries: 0 });
  const id = agent("diamond", 4);
  for (const issued of [await tiergate.keys.generate(id, owner), await tiergate.keys.rotate(id, owner)]) {
    assert.match(issued.apiKey, /^svc_live_v1_[0-9a-f]{64}$/);
    assert.equal((JSON.parse(JSON.stringify(issued)) as { apiKey: string }).apiKey, issued.apiKey);
    for (const shown of [shownOf(issued), shownOf({ issued: [issued] })]) {
      assert.ok(shown.includes(id) && !shown.includes(issued.apiKey.slice(12, 28)), shown);
    }
  }
});

test("an error after which a key may have been changed says so, and how to find out", async () => {
  const cut = await Scripted.start((request) => request.socket.destroy());
  const proxy = await Scripted.start((_request, response) => response.writeHead(502).end("<html>"));
  const wrong = await Scripted.start((_request, response) => response.writeHead(404).end("<html>"));
  const domain = { name: "A", version: "1", chainId: 1, verifyingContract: "0xA1393CB409E2fE5573C0840189622aA0e33947b2" };
  const message = async (at: Scripted, call: (client: Tiergate) => Promise<unknown>) => {
    const fetched: typeof fetch = (url, init) => (String(url).endsWith("tiergate") ? Promise.resolve(Response.json({ domain })) : fetch(url, init));
    const error = await call(new Tiergate(at.url, { retries: 0, fetch: fetched })).then(() => undefined, (error: unknown) => error);
    assert.ok(error instanceof TiergateError && String(error.stack).includes(error.message), String(error));
    return error.message;
  };
  try {
    for (const operation of ["generate", "rotate", "revoke"] as const) {
      const change = (client: Tiergate) => client.keys[operation]("4", owner);
      for (const lost of [cut, proxy]) assert.match(await message(lost, change), /may have been changed. Ask keys.status/);
      assert.doesNotMatch(await message(wrong, change), /changed/);
    }
    for (const lost of [cut, proxy]) {
      assert.doesNotMatch(await message(lost, (client) => client.keys.status("4")), /changed/);
      assert.doesNotMatch(await message(lost, (client) => client.verify({ apiKey: "k" })), /changed/);
    }
  } finally {
    for (const server of [cut, proxy, wrong]) server.stop();
  }
});
