// Requests signed by ERC-8128: the vectors, an independent verifier, and what the gateway asks for.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, mock, test } from "node:test";
import { NonceManager, Wallet } from "ethers";
import { verifySignature } from "http-message-sig";
import { agentFetch, type MessageSigner } from "tiergate";
import { createWalletClient, http, recoverMessageAddress, toHex } from "viem";
import { privateKeyToAccount } from "viem/accounts";
import { Scripted, answer, service } from "./service.js";

interface Vector {
  name: string;
  privateKey: `0x${string}`;
  method: string;
  url: string;
  headers: [string, string][];
  body: string | null;
  agent: string | null;
  created: number;
  nonce: string;
  keyid: string;
  label: string;
  covered: string[];
  params: string;
  base: string;
  signature: string;
}
const vectors = JSON.parse(readFileSync(`${service.root}/clients/erc8128.json`, "utf8")) as Vector[];
const chainOf = ({ keyid }: Vector) => Number(keyid.split(":")[1]);
const account = privateKeyToAccount(`0x${"1".padStart(64, "0")}`);
const credential = { agentId: "7", account, chainId: 1 };
const DERIVED = ["@scheme", "@authority", "@method", "@path", "@query"];
const FLOOR = [...DERIVED, "x-agent-id"];

/** A `fetch` that keeps what it is given, and answers this in turn. */
function noted(...answers: Response[]): { sent: Request[]; fetch: typeof fetch } {
  const sent: Request[] = [];
  return {
    sent,
    fetch: async (input, init) => {
      sent.push(new Request(input, init));
      return answers.shift() ?? new Response();
    },
  };
}

function asks(components: string[], { label = "request", parameters = ';created;expires;tag="erc8128"', headers = {} } = {}): Response {
  const list = components.map((name) => `"${name}"`).join(" ");
  return new Response(null, { status: 401, headers: { "accept-signature": `${label}=(${list})${parameters}`, ...headers } });
}

const coveredBy = (request: Request) =>
  [.../^[^(]*\(([^)]*)\)/.exec(request.headers.get("signature-input") ?? "")![1]!.matchAll(/"([^"]+)"/g)].map(([, name]) => name);
const nonceOf = (request: Request) => /;nonce="([^"]*)"/.exec(request.headers.get("signature-input") ?? "")?.[1];

describe("the vectors", () => {
  for (const vector of vectors.filter(({ agent }) => agent !== null)) {
    const viem = privateKeyToAccount(vector.privateKey);
    const ethers = new Wallet(vector.privateKey);
    const signers: [string, MessageSigner][] = [
      ["an account of viem", viem],
      ["a wallet client of viem", createWalletClient({ account: viem, transport: http("http://127.0.0.1:1") })],
      ["a wallet of ethers", ethers],
      ["another signer of ethers", new NonceManager(ethers)],
      ["a wallet provider of AgentKit", { getAddress: () => viem.address, signMessage: (text: string) => viem.signMessage({ message: text }) }],
    ];
    for (const [name, account] of signers) {
      test(`${name} signs the request of the vector: ${vector.name}`, async (t) => {
        t.mock.timers.enable({ apis: ["Date"], now: vector.created * 1000 });
        const bytes = Buffer.from(vector.nonce, "base64url");
        t.mock.method(crypto, "getRandomValues", (array: Uint8Array) => (array.set(bytes), array));
        const quoted = vector.nonce.replace(/["\\]/g, "\\$&");
        const isOurs = bytes.length === 16;
        const parameters = `;created;expires;tag="erc8128"${isOurs ? "" : `;nonce="${quoted}"`}`;
        const { sent, fetch } = noted(asks(vector.covered, { label: vector.label, parameters }));
        const own = vector.headers.filter(([name]) => !/^(x-agent-id|content-digest)$/i.test(name));
        const ask = agentFetch(vector.url, { agentId: vector.agent!, account, chainId: chainOf(vector) }, { fetch, allowHttp: new URL(vector.url).hostname });
        await ask(vector.url, { method: vector.method, headers: own, body: vector.body === null ? null : Buffer.from(vector.body) });
        const last = sent.at(-1)!;
        const headers = new Headers(vector.headers);
        for (const name of headers.keys()) assert.equal(last.headers.get(name), headers.get(name), name);
        assert.equal(last.headers.get("signature-input"), `${vector.label}=${vector.params}`);
        assert.equal(last.headers.get("signature"), `${vector.label}=:${vector.signature}:`);
        assert.equal(await last.text(), vector.body ?? "");
        const isUsual = isOurs && !vector.covered.includes("x-note");
        assert.equal(sent.length, isUsual ? 1 : 2, "what a vector covers is covered unasked, but for its own header and order");
      });
    }
  }
});

describe("a verifier of HTTP message signatures that knows nothing of us", { timeout: 600_000 }, () => {
  /** Verifies what arrived at a server. */
  async function verified(request: IncomingMessage, body: Buffer): Promise<void> {
    const { rawHeaders, method = "", url = "", headers } = request;
    const fields = rawHeaders.flatMap((name, at) => (at % 2 === 0 ? [{ name, value: rawHeaders[at + 1] ?? "" }] : []));
    const now = Math.floor(Date.now() / 1000);
    const needed = [...FLOOR, ...(body.length ? ["content-digest"] : []), ...(headers["content-type"] ? ["content-type"] : [])];
    const { parameters } = await verifySignature(
      { kind: "request", method, targetUri: `http://${headers.host}${url}`, fields },
      {
        policy: {
          algorithms: ["eip191"],
          requiredComponents: needed,
          requiredParameters: ["created", "expires", "keyid", "nonce", "tag"],
          now,
        },
        resolveVerifier: ({ parameters }) => ({
          algorithm: "eip191",
          verify: async (data, bytes) => {
            const address = await recoverMessageAddress({ message: { raw: data }, signature: toHex(bytes) });
            return parameters.keyid === `eip155:1:${address.toLowerCase()}`;
          },
        }),
      },
    );
    assert.equal(parameters.tag, "erc8128");
    assert.match(parameters.nonce ?? "", /^[\w-]{22}$/);
    assert.ok(Math.abs((parameters.created ?? 0) - now) <= 60);
    assert.equal((parameters.expires ?? 0) - (parameters.created ?? 0), 60);
    assert.equal(headers["x-agent-id"], "7");
    const digest = Buffer.from(await crypto.subtle.digest("SHA-256", new Uint8Array(body))).toString("base64");
    assert.equal(headers["content-digest"], body.length ? `sha-256=:${digest}:` : undefined);
  }

  const form = new FormData();
  form.set("file", new Blob(["a\r\nb", new Uint8Array([0, 255])]), "näme");
  const requests: [string, string, RequestInit?][] = [
    ["no body", "/items"],
    ["a query", "/items?a=b c&ü=東京&%2f=%zz&q='\"`{}|^\\"],
    ["an empty query and a fragment", "/items?#part"],
    ["a path with escapes", "/a b/./x/../%2e%2e/%2F;v=1//ü"],
    ["a method that fetch writes in capitals", "/items", { method: "delete" }],
    ["another method", "/items", { method: "PROPFIND" }],
    ["a text", "/items", { method: "POST", body: "Prüfung" }],
    ["an empty text", "/items", { method: "POST", body: "" }],
    ["no body, but a type", "/items", { method: "POST", headers: { "content-type": "text/plain" } }],
    ["bytes", "/items", { method: "PUT", body: new Uint8Array([0, 128, 255]) }],
    ["a part of bytes", "/items", { method: "PUT", body: new Uint8Array([0, 128, 255]).subarray(1) }],
    ["parameters", "/items", { method: "PATCH", body: new URLSearchParams({ a: "b c", d: "&" }) }],
    ["a blob", "/items", { method: "POST", body: new Blob(["{}"], { type: "application/json" }) }],
    ["a form", "/items", { method: "POST", body: form }],
    ["a type of its own", "/items", { method: "POST", body: "{}", headers: { "Content-Type": " application/json; a=b " } }],
    ["a wrong digest and agent of its own", "/items", { method: "POST", body: "{}", headers: { "content-digest": "sha-256=:AAAA:", "x-agent-id": "8" } }],
  ];
  for (const [name, path, init] of requests) {
    for (const isRequest of [false, true]) {
      test(`takes a request with ${name}, given ${isRequest ? "as a Request" : "by its address"}`, async () => {
        const problems: unknown[] = [];
        let count = 0;
        const server = createServer((request: IncomingMessage, response: ServerResponse) => {
          const pieces: Buffer[] = [];
          request.on("data", (piece: Buffer) => pieces.push(piece));
          request.on("end", () => {
            verified(request, Buffer.concat(pieces)).catch((error: unknown) => problems.push(error)).finally(() => {
              // The second try is signed anew, over the same body.
              if (count++ === 0) response.writeHead(429, { "retry-after": "0" }).end();
              else response.end("fine");
            });
          });
        });
        await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
        const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
        const ask = agentFetch(url, credential);
        const response = isRequest ? await ask(new Request(url + path, init)) : await ask(path, init);
        assert.deepEqual(problems, []);
        assert.deepEqual([response.status, await response.text(), count], [200, "fine", 2]);
        server.close();
      });
    }
  }
});

describe("a request", () => {
  test("has a nonce and times of its own in each try", async () => {
    const busy = () => new Response(null, { status: 429, headers: { "retry-after": "0" } });
    const { sent, fetch } = noted(busy(), busy());
    await agentFetch("https://api.example", credential, { fetch })("/", { method: "POST", body: "x" });
    const nonces = sent.map(nonceOf);
    assert.equal(new Set(nonces).size, 3);
    for (const nonce of nonces) assert.equal(Buffer.from(nonce ?? "", "base64url").length, 16);
  });

  test("with a stream for its body is not sent", async () => {
    const { sent, fetch } = noted();
    const ask = agentFetch("https://api.example", credential, { fetch });
    const pieces = async function* () {
      yield new TextEncoder().encode("x");
    };
    for (const body of [new ReadableStream(), pieces() as unknown as BodyInit]) {
      await assert.rejects(ask("/", { method: "POST", body, duplex: "half" } as RequestInit), /stream can't be signed/);
    }
    assert.equal(sent.length, 0);
    // Another origin gets no signature, and the stream.
    await ask("https://other.example", { method: "POST", body: new ReadableStream(), duplex: "half" } as RequestInit);
    assert.equal(sent[0]!.headers.get("signature"), null);
  });

  test("with a signature of its own is not sent", async () => {
    const { sent, fetch } = noted();
    const ask = agentFetch("https://api.example", credential, { fetch });
    for (const name of ["Signature", "Signature-Input"]) {
      await assert.rejects(ask("/", { headers: { [name]: "a=:AA==:" } }), { name: "TypeError", message: /of its own/ });
    }
    assert.equal(sent.length, 0);
  });

  test("is not sent with a field that no signature can cover", async () => {
    const { sent, fetch } = noted();
    const ask = agentFetch("https://api.example", credential, { fetch });
    await assert.rejects(ask("/", { headers: { "content-type": "text/ü" } }), { name: "TypeError", message: /content-type can't be signed/ });
    assert.equal(sent.length, 0);
  });

  test("is not sent if the signer fails, has no address, or returns no signature", async () => {
    const { sent, fetch } = noted();
    const signers: [MessageSigner, RegExp][] = [
      [{ address: account.address, signMessage: () => Promise.reject(new Error("no wallet")) }, /^Error: no wallet$/],
      [{ address: "0x12", signMessage: async () => "0x12" }, /no address/],
      [{ account: undefined, signMessage: async () => "0x12" }, /no address/],
      [{ getAddress: () => account.address, signMessage: async () => "secret" }, /^TypeError: The signer returned no signature in hex$/],
    ];
    for (const [account, error] of signers) {
      const ask = agentFetch("https://api.example", { ...credential, account }, { fetch });
      await assert.rejects(ask("/"), (thrown) => error.test(String(thrown)));
    }
    const asked = mock.fn(async () => "0x12");
    const ask = agentFetch("https://api.example", { ...credential, account: { address: account.address, signMessage: asked } }, { fetch });
    await assert.rejects(ask("/", { signal: AbortSignal.abort(new Error("stop")) }), /stop/);
    assert.deepEqual([asked.mock.callCount(), sent.length], [0, 0]);
  });

  test("names the agent in decimal, and no other than a uint256, on a chain that exists", async () => {
    const { sent, fetch } = noted();
    for (const agentId of ["007", 7n]) await agentFetch("https://api.example", { ...credential, agentId }, { fetch })("/");
    assert.deepEqual(sent.map(({ headers }) => headers.get("x-agent-id")), ["7", "7"]);
    for (const agentId of ["", "-1", "0x7", "7 ", -1n, 2n ** 256n]) {
      assert.throws(() => agentFetch("https://api.example", { ...credential, agentId }), TypeError);
    }
    for (const chainId of [0, -1, 0n]) assert.throws(() => agentFetch("https://api.example", { ...credential, chainId }), TypeError);
    assert.throws(() => agentFetch("https://api.example", { ...credential, chainId: 1.5 }), TypeError);
  });
});

describe("an Accept-Signature", () => {
  const more = [...FLOOR, "content-digest", "content-type", "x-note"];
  const init = { method: "POST", body: "{}", headers: { "x-note": "a", "content-type": "application/json" } };

  test("is followed once, with exactly these components in this order", async () => {
    const asked = [...more].reverse();
    const { sent, fetch } = noted(asks(asked, { label: "sig1" }), asks(more));
    const response = await agentFetch("https://api.example", credential, { fetch })("/", init);
    assert.equal(response.status, 401);
    assert.deepEqual(sent.map(coveredBy), [more.slice(0, -1), asked]);
    assert.match(sent[1]!.headers.get("signature-input") ?? "", /^sig1=/);
    assert.match(sent[1]!.headers.get("signature") ?? "", /^sig1=:/);
    assert.notEqual(nonceOf(sent[0]!), nonceOf(sent[1]!));
    assert.equal(await sent[1]!.text(), "{}");
  });

  test("has the gateway's nonce used, also for the same components", async () => {
    const parameters = ';created;expires;nonce="a\\"b";tag="erc8128"';
    const { sent, fetch } = noted(asks(FLOOR, { parameters }));
    await agentFetch("https://api.example", credential, { fetch })("/");
    assert.equal(sent.length, 2);
    assert.ok(sent[1]!.headers.get("signature-input")?.includes(';nonce="a\\"b";'));
  });

  test("is found behind members of other profiles", async () => {
    const list = more.map((name) => `"${name}"`).join(" ");
    const challenge = `a=("@method";req "x"), b=(${list});tag="other",c=();tag="erc8128" , d=( ${list} ); created;expires;tag="erc8128"`;
    const { sent, fetch } = noted(new Response(null, { status: 401, headers: { "accept-signature": challenge } }));
    await agentFetch("https://api.example", credential, { fetch })("/", init);
    assert.deepEqual(sent.map(coveredBy), [more.slice(0, -1), more]);
    assert.match(sent[1]!.headers.get("signature-input") ?? "", /^d=/);
  });

  test("has a digest of nothing covered where the gateway wants it", async () => {
    const { sent, fetch } = noted(asks([...FLOOR, "content-digest"]));
    await agentFetch("https://api.example", credential, { fetch })("/");
    assert.equal(sent[1]!.headers.get("content-digest"), "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:");
  });

  const without = (name: string) => more.filter((each) => each !== name);
  const others: [string, Response][] = [
    ["the components that were covered", asks(more.slice(0, -1))],
    ["a header that the request has not", asks([...more, "x-other"])],
    ["the signature before", asks([...more, "signature"])],
    ["a component beyond the profile", asks([...more, "@target-uri"])],
    ["a component twice", asks([...more, "x-note"])],
    ["too many components", asks([...more, ...Array.from({ length: 30 }, (_, at) => `x-${at}`)])],
    ...[...DERIVED, "x-agent-id", "content-digest", "content-type"].map(
      (name): [string, Response] => [`less, without ${name}`, asks(without(name))],
    ),
    ["another tag", asks(more, { parameters: ';created;expires;tag="other"' })],
    ["no tag", asks(more, { parameters: ";created;expires" })],
    ["an algorithm", asks(more, { parameters: ';created;expires;tag="erc8128";alg="eip191"' })],
    ["another account", asks(more, { parameters: ';created;expires;tag="erc8128";keyid="eip155:1:0x00"' })],
    ["a time of its own", asks(more, { parameters: ';created=1;expires;tag="erc8128"' })],
    ["a nonce that is no text", asks(more, { parameters: ';nonce=1;tag="erc8128"' })],
    ["a nonce that is too long", asks(more, { parameters: `;nonce="${"n".repeat(129)}";tag="erc8128"` })],
    ["more than fits", asks(more, { parameters: `;tag="erc8128";${" ".repeat(4096)}created` })],
    ["no dictionary", new Response(null, { status: 401, headers: { "accept-signature": '"@method" ())(=' } })],
    ["what the API wants, behind the gateway", asks(more, { headers: { "x-ratelimit-limit": "16" } })],
    ["another status", new Response(null, { status: 403, headers: { "accept-signature": asks(more).headers.get("accept-signature")! } })],
  ];
  for (const [name, refusal] of others) {
    test(`is not followed if it asks for ${name}`, async () => {
      const { sent, fetch } = noted(refusal);
      const response = await agentFetch("https://api.example", credential, { fetch })("/", init);
      assert.deepEqual([sent.length, response.status], [1, refusal.status]);
    });
  }

  test("of another origin is not followed", async () => {
    const { sent, fetch } = noted(asks([...FLOOR].reverse()));
    await agentFetch("https://api.example", credential, { fetch })("https://other.example/");
    assert.deepEqual([sent.length, sent[0]!.headers.get("signature")], [1, null]);
  });
});

describe("a clock that is wrong", () => {
  /** A refusal of the gateway, whose clock is so many seconds ahead. It asks for what every 401 asks for. */
  const refusal = (reason: string, ahead: number, headers = {}) => {
    const body = { error: "No", errorType: "SIGNATURE_INVALID", reason, details: { agentId: "7" }, timestamp: Date.now() + ahead * 1_000 };
    const asked = asks(FLOOR).headers.get("accept-signature")!;
    return Response.json(body, { status: 401, headers: { "accept-signature": asked, ...headers } });
  };
  const createdOf = (request: Request) => Number(/;created=(\d+);/.exec(request.headers.get("signature-input") ?? "")?.[1]);

  for (const [reason, ahead] of [["request_expired", 7_200], ["request_not_yet_valid", -7_200]] as const) {
    test(`is corrected once by the gateway's after ${reason}, and stays so`, async () => {
      const { sent, fetch } = noted(refusal(reason, ahead));
      const ask = agentFetch("https://api.example", credential, { fetch });
      for (const path of ["/one", "/two"]) assert.equal((await ask(path)).status, 200);
      const offsets = sent.map((request) => createdOf(request) - Date.now() / 1_000);
      assert.equal(offsets.length, 3);
      for (const [at, offset] of offsets.entries()) assert.ok(Math.abs(offset - (at && ahead)) < 10, `${offsets}`);
      assert.equal(new Set(sent.map(nonceOf)).size, 3);
    });
  }

  const others: [string, Response][] = [
    ["more than a day", refusal("request_expired", 90_000)],
    ["another reason", refusal("bad_signature", 7_200)],
    ["the API's word, behind the gateway", refusal("request_expired", 7_200, { "x-ratelimit-limit": "16" })],
  ];
  for (const [name, response] of others) {
    test(`is not corrected for ${name}`, async () => {
      const { sent, fetch } = noted(response);
      assert.equal((await agentFetch("https://api.example", credential, { fetch })("/")).status, 401);
      assert.equal(sent.length, 1);
    });
  }

  test("is corrected once for one request", async () => {
    const { sent, fetch } = noted(refusal("request_expired", 600), refusal("request_expired", 1_200));
    assert.equal((await agentFetch("https://api.example", credential, { fetch })("/")).status, 401);
    assert.equal(sent.length, 2);
  });
});

test("a gateway that can't verify signatures now is asked again, with another nonce", async () => {
  const unverified = (errorType: string) => {
    const body = { error: "Later", errorType, reason: "signature_verification_unavailable", details: { agentId: "7" }, timestamp: 0 };
    return Response.json(body, { status: 503, headers: { "retry-after": "0" } });
  };
  const { sent, fetch } = noted(unverified("REPLAY_DETECTED"), unverified("RPC_ERROR"));
  assert.equal((await agentFetch("https://api.example", credential, { fetch })("/", { method: "POST", body: "x" })).status, 200);
  assert.equal(new Set(sent.map(nonceOf)).size, 3);
});

test("a redirect within the gateway is signed for its own address, and one to elsewhere is not signed", async () => {
  const elsewhere = await Scripted.start((_request, response) => answer(response, 401, {}, { "accept-signature": 'a=();tag="erc8128"' }));
  const gateway = await Scripted.start((request, response) => {
    const location = request.url === "/one" ? "/two?x" : `${elsewhere.url}/three`;
    response.writeHead(302, { location }).end();
  });
  await agentFetch(gateway.url, credential)("/one");
  const [one, two] = gateway.requests.map(({ headers }) => headers["signature"]);
  assert.ok(one && two && one !== two);
  const shown = ["signature", "signature-input", "x-agent-id", "content-digest"];
  assert.deepEqual(elsewhere.requests.map(({ headers }) => shown.filter((name) => name in headers)), [[]]);
  gateway.stop();
  elsewhere.stop();
});
