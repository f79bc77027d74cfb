// Tests of the API without a gateway.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { agentHeaders } from "tiergate/testing";
import { app } from "./express_app.mjs";

let server;
let url;
before(async () => {
  server = app.listen(0, "127.0.0.1");
  await new Promise((listens) => server.once("listening", listens));
  url = `http://127.0.0.1:${server.address().port}/forecast`;
});
after(() => server.close());

test("an agent of tier 2 gets the forecast", async () => {
  const response = await fetch(url, { headers: agentHeaders({ agentId: "7", trustTier: 2 }) });
  assert.deepEqual(await response.json(), { weather: "sunny", agentId: "7", trustTier: 2 });
});

test("an agent of tier 1, and who comes past the gateway, get none", async () => {
  for (const headers of [agentHeaders({ trustTier: 1 }), {}]) assert.equal((await fetch(url, { headers })).status, 403);
});
