// Calls through the real gateway, to servers with Express and Hono.

import assert from "node:assert/strict";
import type { Server } from "node:http";
import { createAdaptorServer } from "@hono/node-server";
import { after, before, describe, test } from "node:test";
import express from "express";
import { Hono } from "hono";
import { Tiergate, agentFetch, errorOf } from "tiergate";
import { agentOf, agentProblem, expressAgent, fastifyAgent, honoAgent, type Agent } from "tiergate/server";
import { agent as anAgent, owner, refused, service, stranger } from "./service.js";

const tiergate = new Tiergate(service.api, { retries: 0 });
const agent = (kind: "unstaked" | "bronze" | "diamond" = "diamond") => anAgent(kind, 2);
const servers: Server[] = [];
const problems: string[] = [];
const log = (problem: string) => void problems.push(problem);

before(async () => {
  const app = express();
  app.use(express.text());
  app.get("/one/diamond", expressAgent({ minTier: 4 }), (_request, response) => void response.json({ passed: true }));
  app.use(expressAgent({ log }));
  app.all("/one/agent", (request, response) => void response.json({ ...response.locals["agent"], body: request.body, key: request.get("x-api-key") }));

  const hono = new Hono<{ Variables: { agent: Agent } }>();
  hono.get("/two/diamond", honoAgent({ minTier: 4 }), (c) => c.json({ passed: true }));
  hono.use(honoAgent({ log }));
  hono.all("/two/agent", async (c) => c.json({ ...c.var.agent, body: await c.req.text(), key: c.req.header("x-api-key") }));

  const listen = (server: Server, address: string) => {
    const [host, port] = address.split(":");
    servers.push(server);
    return new Promise<void>((done) => server.listen(Number(port), host, done));
  };
  const { createServer } = await import("node:http");
  await listen(createServer(app), service.upstreams[0]);
  await listen(createAdaptorServer({ fetch: hono.fetch }) as Server, service.upstreams[1]);
});
after(() => servers.forEach((server) => (server.closeAllConnections(), server.close())));

describe("through the gateway", { concurrency: true, timeout: 600_000 }, () => {
  for (const [name, folder, upstream] of [
    ["Express", "one", service.upstreams[0]],
    ["Hono", "two", service.upstreams[1]],
  ] as const) {
    test(`a server with ${name} knows the agent by key and by signature`, async () => {
      const id = agent();
      const { apiKey } = await tiergate.keys.generate(id, owner, { declaredEndpoint: "https://app.example" });
      const expected = { agentId: id, owner: owner.address, trustTier: 4, endpointMismatch: false };
      const stakedAmount = (await tiergate.verify({ apiKey })).stakedAmount;
      for (const credential of [{ apiKey }, { agentId: id, signer: owner, service: tiergate }]) {
        const ask = agentFetch(service.gateway, credential);
        for (let call = 0; call < 2; call++) {
          // What a client writes under the gateway's names does not count.
          const init = { method: "POST", body: "hello", headers: { "x-agent-tier": "1", "content-type": "text/plain" } };
          const response = await ask(`/${folder}/agent`, "apiKey" in credential ? init : { ...init, headers: { "content-type": "text/plain" } });
          assert.equal(response.status, 200);
          assert.deepEqual(await response.json(), { ...expected, stakedAmount, body: "hello" });
          assert.equal(response.headers.get("x-ratelimit-limit"), "2700");
        }
      }
      const bearer = agentFetch(service.gateway, { apiKey, bearer: true });
      const beside = await bearer(`/${folder}/agent`, { headers: { "x-api-key": "the upstream's" } });
      const told = (await beside.json()) as Agent & { key: string };
      assert.deepEqual([beside.status, told.agentId, told.key], [200, id, "the upstream's"]);
      const origin = { origin: "https://other.example" };
      const mismatched = await agentFetch(service.gateway, { apiKey })(`/${folder}/agent`, { headers: origin });
      assert.equal(((await mismatched.json()) as Agent).endpointMismatch, true);
    });

    test(`a server with ${name} refuses a lower tier, and requests that did not come through the gateway`, async () => {
      const { apiKey } = await tiergate.keys.generate(agent("bronze"), owner);
      const low = await agentFetch(service.gateway, { apiKey })(`/${folder}/diamond`);
      assert.equal(low.status, 403);
      const error = await errorOf(low);
      assert.ok(error?.is("TIER_BLOCKED"));
      assert.deepEqual([error.details.currentTier, error.details.requiredTier], [1, 4]);
      assert.equal(low.headers.get("www-authenticate"), null);

      const around = await fetch(`http://${upstream}/${folder}/agent`);
      // Its key is not what is wrong. The server's log has the rest.
      assert.deepEqual([around.status, (await errorOf(around))?.errorType], [403, "FORBIDDEN"]);
      assert.match(problems.pop() ?? "", /as an agent's: x-agent-id, x-agent-owner, x-agent-tier, x-agent-endpoint-mismatch are missing$/);
    });
  }

  test("requests that an account signs whole pass, with their body", async () => {
    const id = agent();
    const { domain } = await tiergate.signing();
    const credential = { agentId: id, account: owner, chainId: domain.chainId };
    const headers = { "content-type": "text/plain" };
    for (const folder of ["one", "two"]) {
      const ask = agentFetch(service.signed, credential);
      for (const init of [{ method: "POST", body: "hello ü", headers }, { method: "PUT", body: "", headers }, {}]) {
        const response = await ask(`/${folder}/agent?q=a b&%2f=ü`, init);
        const told = (await response.json()) as Agent & { body?: string };
        assert.deepEqual([response.status, told.agentId, told.body || ""], [200, id, init.body ?? ""]);
      }
    }
    const foreign = await agentFetch(service.signed, { ...credential, account: stranger })("/one/agent");
    assert.equal(foreign.status, 401);
    assert.match(foreign.headers.get("www-authenticate") ?? "", /ERC8128 error="principal_not_allowed"/);
  });

  test("a stranger's and a used signature do not pass", async () => {
    const credential = { agentId: agent(), signer: stranger, service: tiergate };
    const foreign = await agentFetch(service.gateway, credential)("/one/agent");
    assert.ok((await errorOf(foreign))?.is("SIGNATURE_INVALID"));

    const typed = await tiergate.typedData(credential.agentId, "verify");
    const signature = await owner.signTypedData(typed as never);
    await tiergate.send("verify", typed, signature);
    const { nonce = "", timestamp } = typed.message;
    const headers = {
      "x-agent-id": credential.agentId,
      "x-agent-signature": signature,
      "x-agent-nonce": nonce,
      "x-agent-timestamp": String(timestamp),
    };
    assert.ok((await errorOf(await fetch(`${service.gateway}/one/agent`, { headers })))?.is("REPLAY_DETECTED"));
    const { details } = await refused(tiergate.send("verify", typed, signature), "REPLAY_DETECTED");
    assert.equal(details.field, undefined);
  });
});

test("headers are an agent's only if all are there and well-formed", () => {
  const headers = {
    "x-agent-id": "115792089237316195423570985008687907853269984665640564039457584007913129639935",
    "x-agent-owner": owner.address,
    "x-agent-tier": "3",
    "x-agent-staked-amount": "100000000000000000000000",
    "x-agent-endpoint-mismatch": "true",
  };
  const expected = {
    agentId: headers["x-agent-id"],
    owner: owner.address,
    trustTier: 3,
    stakedAmount: "100000000000000000000000",
    endpointMismatch: true,
  };
  assert.deepEqual(agentOf(headers), expected);
  assert.deepEqual(agentOf(new Headers(headers)), expected);
  assert.equal(agentProblem(headers), null);
  for (const name of Object.keys(headers)) {
    for (const value of [undefined, "", "x", "0x", "-1", "5", "0", "1, 1", "True", ["1", "1"]]) {
      const isFine = ["0", "5"].includes(String(value)) && ["x-agent-id", "x-agent-staked-amount"].includes(name);
      assert.equal(agentOf({ ...headers, [name]: value }) !== null, isFine, `${name}: ${value}`);
      const problem = agentProblem({ ...headers, [name]: value });
      if (!isFine) assert.ok(problem?.includes(`${name} ${value === undefined ? "" : "is malformed"}`.trim()), String(problem));
    }
  }
});

test("Fastify's hook gives the agent, or refuses with 403", async () => {
  const { agentHeaders } = await import("tiergate/testing");
  const answered = async (headers: Record<string, string>) => {
    const request: { headers: Record<string, string>; agent?: Agent } = { headers };
    let [status, sent] = [0, {} as { errorType?: string }];
    const reply = { code: (code: number) => ((status = code), { send: (body: object) => ((sent = body), reply) }) };
    const passed = await fastifyAgent({ minTier: 2, log })(request, reply as never);
    return [status, sent.errorType, request.agent?.agentId, passed === undefined];
  };
  assert.deepEqual(await answered(agentHeaders({ agentId: "7", trustTier: 2 })), [0, undefined, "7", true]);
  assert.deepEqual(await answered(agentHeaders({ trustTier: 1 })), [403, "TIER_BLOCKED", undefined, false]);
  assert.deepEqual(await answered({}), [403, "FORBIDDEN", undefined, false]);
});

test("the source of the tier is told beside the stake, or instead of it where no stake is read", () => {
  const common = { "x-agent-id": "7", "x-agent-owner": owner.address, "x-agent-tier": "2", "x-agent-endpoint-mismatch": "false" };
  const expected = { agentId: "7", owner: owner.address, trustTier: 2, endpointMismatch: false };
  const [stake, source] = [{ "x-agent-staked-amount": "0" }, { "x-agent-tier-source": "erc20" }];
  for (const read of [(headers: Record<string, string>) => headers, (headers: Record<string, string>) => new Headers(headers)]) {
    assert.deepEqual(agentOf(read({ ...common, ...source })), { ...expected, tierSource: "erc20" });
    assert.deepEqual(agentOf(read({ ...common, ...stake, ...source })), { ...expected, stakedAmount: "0", tierSource: "erc20" });
    assert.equal(agentOf(read(common)), null);
    for (const wrong of ["", "erc20, list", "Erc20", "a".repeat(33)]) {
      assert.equal(agentOf(read({ ...common, ...stake, "x-agent-tier-source": wrong })), null, wrong);
    }
    assert.equal(agentOf(read({ ...common, ...source, "x-agent-staked-amount": "" })), null);
  }
});
