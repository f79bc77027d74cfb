// The credentials of agentFetch: who sees them, and in which requests.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { inspect } from "node:util";
import { Tiergate, agentFetch } from "tiergate";
import { RIGHT, Scripted, answer } from "./service.js";

const apiKey = "svc_live_v1_x";

/** A server that redirects each of these paths, and answers others. */
function redirecting(paths: Record<string, string>): Promise<Scripted> {
  return Scripted.start((request, response) => {
    const location = paths[request.url ?? ""];
    if (location !== undefined) response.writeHead(302, { location }).end();
    else answer(response, 200, RIGHT);
  });
}

describe("agentFetch", { timeout: 600_000 }, () => {
  test("shows the key to its gateway only, whatever is asked and wherever that redirects", async () => {
    const elsewhere = await redirecting({});
    const server = await redirecting({ "/away": `${elsewhere.url}/there`, "/near": "/end" });
    const ask = agentFetch(server.url, { apiKey });
    const headers = { authorization: "Basic x", "x-own": "1" };
    for (const input of [`${server.url}/away`, new URL("/away", server.url), new Request(`${server.url}/away`, { headers })]) {
      assert.equal((await ask(input, input instanceof Request ? undefined : { headers })).status, 200);
    }
    assert.equal((await ask(`${elsewhere.url}/directly`)).status, 200);
    assert.equal(elsewhere.requests.length, 4);
    for (const { headers } of elsewhere.requests) {
      assert.deepEqual([headers["x-api-key"], headers.authorization], [undefined, undefined]);
    }
    assert.equal(elsewhere.requests[0]!.headers["x-own"], "1");

    assert.equal((await ask("near")).url, `${server.url}/end`);
    assert.equal(server.requests.at(-1)!.headers["x-api-key"], apiKey);
    assert.equal((await ask("/near", { redirect: "manual" })).status, 302);
    assert.equal((await ask("/near", { method: "POST", body: "x" })).status, 302);
    await assert.rejects(ask("/near", { redirect: "error" }), TypeError);
    server.stop();
    elsewhere.stop();
  });

  test("sends a request that another origin chose without credentials: neither the agent's nor the caller's", async () => {
    const gateway = await redirecting({});
    const other = await redirecting({ "/bait": `${gateway.url}/transfer?to=other` });
    const between = await redirecting({ "/back": `${other.url}/bait` });
    const start = await redirecting({ "/out": `${between.url}/back` });
    const headers = { authorization: "Bearer of-the-caller", cookie: "a=b", "proxy-authorization": "Basic x" };
    for (const [base, url] of [
      [gateway.url, `${other.url}/bait`],
      [start.url, `${start.url}/out`],
    ] as const) {
      const ask = agentFetch(base, { apiKey });
      for (const method of ["GET", "HEAD"]) assert.equal((await ask(url, { method, headers })).status, 200);
    }
    assert.equal(gateway.requests.length, 4);
    for (const { headers } of gateway.requests) {
      const { "x-api-key": key, authorization, cookie, "proxy-authorization": proxy } = headers;
      assert.deepEqual([key, authorization, cookie, proxy], [undefined, undefined, undefined, undefined]);
    }
    // The caller's own reach the server that the caller named.
    assert.equal(other.requests[0]!.headers.authorization, headers.authorization);
    for (const server of [gateway, other, between, start]) server.stop();
  });

  test("does not return to the gateway with the credential", async () => {
    const other = await redirecting({});
    const gateway = await redirecting({ "/out": `${other.url}/bounce` });
    const bounce = agentFetch(gateway.url, { apiKey }, {
      fetch: async (input, init) => {
        const response = await fetch(input, init);
        if (!String(input).endsWith("/bounce")) return response;
        return new Response(null, { status: 302, headers: { location: `${gateway.url}/transfer` } });
      },
    });
    assert.equal((await bounce("/out")).status, 200);
    assert.deepEqual(gateway.requests.map(({ path, headers }) => [path, headers["x-api-key"]]), [["/out", apiKey], ["/transfer", undefined]]);
    gateway.stop();
    other.stop();
  });

  test("sends the caller's headers of one origin to no other", async () => {
    const sent: Headers[] = [];
    const headers = { authorization: "a", cookie: "b", "proxy-authorization": "c", host: "d", accept: "e" };
    const scripted: typeof fetch = async (_input, init) => {
      sent.push(new Headers(init?.headers));
      return sent.length === 2 ? new Response() : new Response(null, { status: 302, headers: { location: "https://two.example" } });
    };
    await agentFetch("https://one.example", { apiKey }, { fetch: scripted })("/", { headers });
    assert.deepEqual([...sent[0]!.keys()].sort(), [...Object.keys(headers), "user-agent", "x-api-key"].sort());
    assert.deepEqual([...sent[1]!.keys()], ["accept"]);
  });

  test("takes a key with the line's end of its file, and quotes none that is malformed", async () => {
    const server = await redirecting({});
    await agentFetch(server.url, { apiKey: `${apiKey}\n` })("/");
    assert.equal(server.requests[0]!.headers["x-api-key"], apiKey);
    for (const malformed of [`${apiKey}\n${apiKey}`, `${apiKey} x`, `${apiKey}é`, `${apiKey}\0`, "", "\n"]) {
      assert.throws(() => agentFetch(server.url, { apiKey: malformed }), isSilent);
    }
    const credential = { agentId: "4", signer: async () => `${apiKey}\n${apiKey}`, service: new Tiergate(server.url) };
    await assert.rejects(agentFetch(server.url, credential)("/"), isSilent);
    server.stop();
  });
});

function isSilent(error: unknown): boolean {
  assert.ok(error instanceof TypeError);
  assert.ok(!inspect(error).includes(apiKey), "the error has the secret");
  return true;
}
