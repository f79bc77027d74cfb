// Assertions of the real gateway, and others that must be refused.

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { after, before, describe, test } from "node:test";
import { SignJWT, exportJWK, exportSPKI, generateKeyPair, importJWK, importPKCS8, type CryptoKey, type JWK } from "jose";
import { Tiergate, agentFetch } from "tiergate";
import { assertionKeys, verifyAssertion } from "tiergate/assertion";
import { agent, answer, owner, service, Scripted } from "./service.js";

const { issuer, jwks, registry } = service;
const rules = { keys: assertionKeys(jwks), issuer, tenant: "wide" };
const claims = { owner: owner.address, tier: 4, chain: 8004, registry, jti: "x" };

let upstream: Scripted;
let real: string;
let [id, kid] = ["", ""];
let gateways: CryptoKey;

/** An assertion that is right but for what is changed. */
async function forged(change: object = {}, key: CryptoKey = gateways, header: object = {}): Promise<string> {
  const now = Math.floor(Date.now() / 1000);
  const whole = { iss: issuer, aud: "wide", sub: "4", iat: now, exp: now + 60, ...claims, ...change };
  return new SignJWT(whole).setProtectedHeader({ alg: "ES256", typ: "JWT", kid, ...header }).sign(key);
}

const encoded = (part: object) => Buffer.from(JSON.stringify(part)).toString("base64url");
const refuses = async (assertion: string | null, code: string, by = rules) =>
  assert.rejects(verifyAssertion(assertion, by), { code }, assertion ?? "none");
const [EXPIRED, CLAIM, INVALID] = ["ERR_JWT_EXPIRED", "ERR_JWT_CLAIM_VALIDATION_FAILED", "ERR_JWT_INVALID"] as const;
const [ALGORITHM, SIGNATURE] = ["ERR_JOSE_ALG_NOT_ALLOWED", "ERR_JWS_SIGNATURE_VERIFICATION_FAILED"] as const;
const NO_KEY = "ERR_JWKS_NO_MATCHING_KEY";

before(async () => {
  upstream = await Scripted.start((_, response) => answer(response, 200, {}), service.asserted);
  const tiergate = new Tiergate(service.api);
  id = agent("diamond", 3);
  const { apiKey } = await tiergate.keys.generate(id, owner);
  const response = await agentFetch(service.gateway, { apiKey })("/asserted", { headers: { "x-agent-assertion": "a.b.c" } });
  assert.equal(response.status, 200);
  real = String(upstream.requests[0]?.headers["x-agent-assertion"]);
  gateways = await importPKCS8(service.signing, "ES256");
  ({ kid } = JSON.parse(Buffer.from(real.split(".")[0]!, "base64url").toString()) as { kid: string });
});
after(() => upstream.stop());

describe("assertions", { timeout: 600_000 }, () => {
  test("of the gateway say who calls", async () => {
    const { tier: trustTier, chain: chainId } = claims;
    assert.deepEqual(await verifyAssertion(real, rules), { agentId: id, owner: owner.address, trustTier, chainId, registry });
    assert.equal((await verifyAssertion(await forged(), rules)).agentId, "4", "what is changed below is right without the change");
  });

  test("that are expired, of the future or good for too long are refused", async () => {
    const now = (offset: number) => Math.floor(Date.now() / 1000) + offset;
    for (const [times, code] of [
      [() => ({ iat: now(-70), exp: now(-10) }), EXPIRED],
      [() => ({ iat: now(-70), exp: now(10) }), EXPIRED],
      [() => ({ iat: now(40), exp: now(100) }), CLAIM],
      [() => ({ iat: now(0), exp: now(61) }), INVALID],
      [() => ({ exp: undefined }), CLAIM],
      [() => ({ iat: undefined }), CLAIM],
    ] as const)
      await refuses(await forged(times()), code);
    await verifyAssertion(await forged({ iat: now(-60), exp: now(0) }), rules);
  });

  test("for another tenant or of another issuer are refused", async () => {
    await refuses(real, CLAIM, { ...rules, tenant: "narrow" });
    await refuses(real, CLAIM, { ...rules, issuer: "https://other.example" });
    for (const change of [{ aud: "narrow" }, { aud: undefined }, { iss: "x" }, { iss: undefined }, { sub: undefined }])
      await refuses(await forged(change), CLAIM);
    await refuses(await forged({ aud: ["wide", "narrow"] }), INVALID);
    for (const lacking of [{ ...rules, tenant: "" }, { ...rules, issuer: "" }])
      await assert.rejects(verifyAssertion(real, lacking), TypeError);
  });

  test("without a signature, of another algorithm or key are refused", async () => {
    const [, payload] = (await forged()).split(".");
    const spki = await exportSPKI(await importPublic());
    const header = (alg: string) => encoded({ alg, typ: "JWT", kid });
    const mac = (key: string | Buffer) => createHmac("sha256", key).update(`${header("HS256")}.${payload}`).digest("base64url");
    const other = await generateKeyPair("ES256");
    for (const nothing of [null, ""]) await refuses(nothing, INVALID);
    await refuses("a.b.c", "ERR_JWS_INVALID");
    await refuses(`${header("none")}.${payload}.`, ALGORITHM);
    await refuses(`${header("ES256")}.${payload}.`, SIGNATURE);
    for (const key of [spki, Buffer.from(spki.split("\n").slice(1, -2).join(""), "base64")])
      await refuses(`${header("HS256")}.${payload}.${mac(key)}`, ALGORITHM);
    await refuses(await forged({}, other.privateKey), SIGNATURE);
    await refuses(await forged({}, other.privateKey, { kid: "other" }), NO_KEY);
    await refuses(await forged({}, gateways, { typ: "at+jwt" }), CLAIM);
  });

  test("of a key that was rotated out are refused", async () => {
    const second = await generateKeyPair("ES256");
    const published = async (kid: string, key: CryptoKey): Promise<JWK> => ({ ...(await exportJWK(key)), use: "sig", alg: "ES256", kid });
    let keys = [await published(kid, await importPublic()), await published("second", second.publicKey)];
    const server = await Scripted.start((_, response) => answer(response, 200, { keys }));
    try {
      const rotating = { ...rules, keys: assertionKeys(server.url) };
      const newer = await forged({}, second.privateKey, { kid: "second" });
      for (const either of [real, newer]) await verifyAssertion(either, rotating);
      assert.equal(server.requests.length, 1, "keys are kept");
      keys = keys.slice(1);
      await rotating.keys.reload();
      await verifyAssertion(newer, rotating);
      await refuses(real, NO_KEY, rotating);
    } finally {
      server.stop();
    }
  });
});

/** The gateway's public key, as it is published. */
async function importPublic(): Promise<CryptoKey> {
  const { keys } = (await (await fetch(jwks)).json()) as { keys: JWK[] };
  return (await importJWK(keys[0]!, "ES256", { extractable: true })) as CryptoKey;
}
