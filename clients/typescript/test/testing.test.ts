// The helpers for users' own tests do as the real gateway does.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Tiergate, agentFetch, errorOf } from "tiergate";
import { verifyAssertion } from "tiergate/assertion";
import { agentOf, expressAgent } from "tiergate/server";
import { FakeGateway, agentHeaders, signedAssertion } from "tiergate/testing";
import { agent as anAgent, owner, service } from "./service.js";

test("headers of an agent are those that a server reads", () => {
  const usual = { agentId: "4", trustTier: 4, endpointMismatch: false, stakedAmount: "500000000000000000000000" };
  const { owner: _, ...read } = agentOf(agentHeaders())!;
  assert.deepEqual(read, usual);
  const other = { agentId: "7", owner: owner.address, trustTier: 2, endpointMismatch: true, tierSource: "erc20" } as const;
  assert.deepEqual(agentOf(agentHeaders(other)), other);
  let passed = false;
  expressAgent({ minTier: 4 })({ headers: agentHeaders() }, { locals: {}, status: () => assert.fail() }, () => (passed = true));
  assert.ok(passed);
});

test("an assertion is taken by its own rules alone, and says what was asked for", async () => {
  const { assertion, rules } = await signedAssertion({ agentId: "7", trustTier: 2 });
  const { agentId, trustTier } = await verifyAssertion(assertion, rules);
  assert.deepEqual([agentId, trustTier], ["7", 2]);
  await assert.rejects(verifyAssertion(assertion, (await signedAssertion()).rules), { code: "ERR_JWS_SIGNATURE_VERIFICATION_FAILED" });
  await assert.rejects(verifyAssertion(assertion, { ...rules, tenant: "other" }));
});

test("a fake gateway refuses as it is told, and lets others pass to the API", async () => {
  const gateway = new FakeGateway(async (request) => Response.json({ path: new URL(request.url).pathname, body: await request.text() }));
  const ask = agentFetch("https://api.example", { apiKey: "k" }, { fetch: gateway.fetch });
  gateway.refuse("RATE_LIMITED", { retryAfter: 0 }).refuse("OVERLOADED", { retryAfter: 0 });
  const answer = await ask("/orders", { method: "POST", body: "x" });
  assert.deepEqual([answer.status, await answer.json()], [200, { path: "/orders", body: "x" }]);
  assert.deepEqual([gateway.requests.length, answer.headers.get("x-ratelimit-limit")], [3, "60"]);

  const error = await errorOf(await (gateway.refuse("TIER_BLOCKED", { details: { requiredTier: 3 } }), ask("/")));
  assert.ok(error?.is("TIER_BLOCKED") && error.details.requiredTier === 3 && error.status === 403);
  const late = await errorOf(await (gateway.refuse("RATE_LIMITED", { retryAfter: 61 }), ask("/")));
  assert.ok(late?.is("RATE_LIMITED") && late.retryAfter === 61 && late.details.retryAfter === 61);
  const keys = ["one", "two"];
  const rotated = agentFetch("https://api.example", { apiKey: () => keys.shift() ?? "none" }, { fetch: gateway.refuse("INVALID_API_KEY").fetch });
  assert.equal((await rotated("/")).status, 200);
  assert.equal(gateway.requests.at(-1)!.headers.get("x-api-key"), "two");
  assert.equal((await gateway.fetch("https://api.example/")).status, 401);
  assert.throws(() => gateway.refuse("TEAPOT" as never), /^TypeError: The refusal is none of INVALID_API_KEY, /);
});

test("a fake gateway's 401 and 403 have the fields and headers of the real one's", async () => {
  const unknown = await agentFetch(service.gateway, { apiKey: `svc_live_v1_${"0".repeat(64)}` })("/one/x");
  const tiergate = new Tiergate(service.api);
  const signed = { agentId: anAgent("unstaked", 4), signer: owner, service: tiergate };
  const low = await agentFetch(service.gateway, signed)("/one/x");
  const told = async (response: Response) => {
    const { details, ...body } = (await response.json()) as { details: object };
    return { status: response.status, fields: Object.keys(body).sort(), details: Object.keys(details), headers: [...response.headers.keys()] };
  };
  for (const [real, type] of [[unknown, "INVALID_API_KEY"], [low, "TIER_BLOCKED"]] as const) {
    const fake = await new FakeGateway().refuse(type).fetch("https://api.example/", { headers: { "x-api-key": "k" } });
    const [ours, theirs] = [await told(fake), await told(real)];
    assert.deepEqual([ours.status, ours.fields], [theirs.status, theirs.fields]);
    for (const part of ["details", "headers"] as const) {
      assert.deepEqual(ours[part].filter((name) => !theirs[part].includes(name)), [], `${type}: ${part}`);
    }
  }
});
