// Makes erc8128.json: requests signed by ERC-8128 (the text of August 2026), which the service and its clients in every
// language must make and read alike.
//
//   node clients/erc8128.mjs            writes them
//   node clients/erc8128.mjs --check    exits 1 if they differ
//
// The values of the components stand here as they are signed, so that no code under test derives them. viem signs, and ethers
// must sign the same; both come from tools/. The private keys are publicly known. The first three vectors have hash and
// signature of the text itself, or of the same request with `x-agent-id`.

import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(new URL("../tools/package.json", import.meta.url));
const { hashMessage } = require("viem");
const { privateKeyToAccount } = require("viem/accounts");
const { Wallet } = require("ethers");

const file = new URL("erc8128.json", import.meta.url);
const ONE = `0x${"1".padStart(64, "0")}`;
const ALICE = "0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d";
const UINT256_MAX = (2n ** 256n - 1n).toString();
const JSON_TYPE = ["Content-Type", "application/json"];
const get = { method: "GET", url: "https://api.example/items", agent: "7" };
const hello = { method: "POST", agent: "7", headers: [JSON_TYPE], body: '{"hello":"world"}' };

const vectors = [
  await signed("of the text: a body", {
    ...hello,
    url: "https://api.example/items?view=full",
    agent: null,
    nonce: "EjRWeJCrze8BI0VniavN7w",
    values: { "@path": "/items", "@query": "?view=full", "content-digest": digest(hello.body), "content-type": "application/json" },
    hash: "0xa7a6074cd2ab23379c04a8839a3566e98689326367a0ad9cd8ef389a961f96de",
  }),
  await signed("of the text: no body, no query", {
    ...get,
    agent: null,
    nonce: "AAAAAAAAAAAAAAAAAAAAAA",
    values: { "@path": "/items", "@query": "?" },
    hash: "0x315dece7c9b06123e9e6fb6273829c10507e422d644d5cd20986d72def2d2cc1",
  }),
  await signed("an agent", {
    ...get,
    nonce: "AAAAAAAAAAAAAAAAAAAAAQ",
    values: { "@path": "/items", "@query": "?", "x-agent-id": "7" },
    hash: "0x0fbf105585e9378bf3f2ce61e17a97f33b0459ff7ffdb4b04db1b603920b35fe",
  }),
  await signed("an agent, a body", {
    ...hello,
    url: "https://api.example/items?view=full",
    values: {
      ...{ "@path": "/items", "@query": "?view=full", "x-agent-id": "7" },
      ...{ "content-digest": digest(hello.body), "content-type": "application/json" },
    },
  }),
  await signed("a body beyond ASCII, of no type", {
    ...{ method: "PUT", url: "https://api.example/notes/1", agent: "7", body: "Prüfung 東京\r\n" },
    values: {
      ...{ "@path": "/notes/1", "@query": "?", "x-agent-id": "7" },
      "content-digest": digest("Prüfung 東京\r\n"),
    },
  }),
  await signed("a type without a body", {
    ...{ method: "POST", url: "https://api.example/items", agent: "7", headers: [JSON_TYPE] },
    values: { "@path": "/items", "@query": "?", "x-agent-id": "7", "content-type": "application/json" },
  }),
  await signed("escapes and reserved characters in the query", {
    ...get,
    url: "https://api.example/items?q=a%20b&plus=a+b&slash=%2F&lower=%c3%a9&mark=?&&empty=&=x;y=(z)",
    values: {
      ...{ "@path": "/items", "@query": "?q=a%20b&plus=a+b&slash=%2F&lower=%c3%a9&mark=?&&empty=&=x;y=(z)" },
      "x-agent-id": "7",
    },
  }),
  await signed("escapes in the path", {
    ...get,
    url: "https://api.example/a%20b/%E6%9D%B1%2f/;v=1/@x:y//",
    values: { "@path": "/a%20b/%E6%9D%B1%2f/;v=1/@x:y//", "@query": "?", "x-agent-id": "7" },
  }),
  await signed("an empty query", {
    ...get,
    url: "https://api.example/items?",
    values: { "@path": "/items", "@query": "?", "x-agent-id": "7" },
  }),
  await signed("a host in capitals, and no path", {
    ...get,
    url: "https://API.Example?a=1",
    values: { "@path": "/", "@query": "?a=1", "x-agent-id": "7" },
  }),
  await signed("the default port of https", {
    ...get,
    url: "https://api.example:443/items",
    values: { "@path": "/items", "@query": "?", "x-agent-id": "7" },
  }),
  await signed("the default port of http", {
    ...get,
    url: "http://api.example:80/items",
    values: { "@scheme": "http", "@path": "/items", "@query": "?", "x-agent-id": "7" },
  }),
  await signed("the other scheme's port", {
    ...get,
    url: "http://api.example:443/items",
    values: { "@scheme": "http", "@authority": "api.example:443", "@path": "/items", "@query": "?", "x-agent-id": "7" },
  }),
  await signed("an address of IPv6 with a port", {
    ...get,
    url: "https://[2001:db8::1]:8443/items",
    values: { "@authority": "[2001:db8::1]:8443", "@path": "/items", "@query": "?", "x-agent-id": "7" },
  }),
  await signed("an address of IPv6 with the default port", {
    ...get,
    url: "http://[::1]:80/items",
    values: { "@scheme": "http", "@authority": "[::1]", "@path": "/items", "@query": "?", "x-agent-id": "7" },
  }),
  await signed("a header that stands twice, with blanks around it", {
    ...get,
    headers: [["X-Note", "  one, two "], ["X-Other", "no part of it"], ["X-Note", "three   four"]],
    values: { "@path": "/items", "@query": "?", "x-agent-id": "7", "x-note": "one, two, three   four" },
  }),
  await signed("an empty header", {
    ...get,
    headers: [["X-Note", ""]],
    values: { "@path": "/items", "@query": "?", "x-agent-id": "7", "x-note": "" },
  }),
  await signed("another order, label, nonce and time", {
    ...hello,
    ...{ method: "DELETE", url: "https://api.example/items", label: "sig-b2.6*", nonce: ' !"\\~', created: 0, expires: 60 },
    values: {
      ...{ "x-agent-id": "7", "content-type": "application/json", "@query": "?", "@path": "/items", "@method": "DELETE" },
      ...{ "@authority": "api.example", "@scheme": "https", "content-digest": digest(hello.body) },
    },
  }),
  await signed("the largest agent, another account and chain", {
    ...get,
    ...{ agent: UINT256_MAX, privateKey: ALICE, chain: Number.MAX_SAFE_INTEGER },
    values: { "@path": "/items", "@query": "?", "x-agent-id": UINT256_MAX },
  }),
];

const text = `${JSON.stringify(vectors, null, 2)}\n`;
if (!process.argv.includes("--check")) writeFileSync(file, text);
else if (readFileSync(file, "utf8") !== text) {
  console.error("erc8128.json is not what clients/erc8128.mjs makes");
  process.exit(1);
}

/** `values` are those of the covered components. The first five are put before them unless they stand there. */
async function signed(name, request) {
  const { method, url, headers = [], body = null, agent, values, hash } = request;
  const { label = "request", nonce = "Dxb8JfJlxqAT0uaA9Ztj3A", created = 1700000000, expires = 1700000060 } = request;
  const { privateKey = ONE, chain = 1 } = request;
  const account = privateKeyToAccount(privateKey);
  const keyid = `eip155:${chain}:${account.address.toLowerCase()}`;
  const first = { "@scheme": "https", "@authority": "api.example", "@method": method };
  const components = "@method" in values ? values : { ...first, ...values };
  const covered = Object.keys(components);
  const list = covered.map((name) => `"${name}"`).join(" ");
  const quoted = nonce.replace(/["\\]/g, "\\$&");
  const params = `(${list});created=${created};expires=${expires};nonce="${quoted}";keyid="${keyid}";tag="erc8128"`;
  const lines = covered.map((name) => `"${name}": ${components[name]}`);
  const base = [...lines, `"@signature-params": ${params}`].join("\n");
  if (hash !== undefined && hash !== hashMessage(base)) throw new Error(`not the hash of the text: ${name}`);
  const signature = await account.signMessage({ message: base });
  const same = await new Wallet(privateKey).signMessage(base);
  if (signature !== same) throw new Error(`viem and ethers differ: ${name}`);
  const sent = [...headers];
  if (agent !== null) sent.push(["X-Agent-Id", agent]);
  if (covered.includes("content-digest")) sent.push(["Content-Digest", components["content-digest"]]);
  return {
    ...{ name, privateKey, method, url, headers: sent, body, agent },
    ...{ created, expires, nonce, keyid, label, covered, params, base },
    hash: hashMessage(base),
    signature: Buffer.from(signature.slice(2), "hex").toString("base64"),
  };
}

function digest(body) {
  return `sha-256=:${createHash("sha256").update(body).digest("base64")}:`;
}
