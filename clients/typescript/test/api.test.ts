// Every endpoint of the real service.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";
import { Wallet } from "ethers";
import { Tiergate, type HeldKey, type TypedData } from "tiergate";
import { privateKeyToAccount, type PrivateKeyAccount } from "viem/accounts";
import { agent as anAgent, owner, refused, service, stranger } from "./service.js";

const tiergate = new Tiergate(service.api, { retries: 0 });
const agent = (kind: "unstaked" | "bronze" | "diamond" = "diamond") => anAgent(kind, 0);

describe("the API", { concurrency: true, timeout: 600_000 }, () => {
  test("signing() tells the domain and the tiers, and is asked once", async () => {
    let asked = 0;
    const counting = new Tiergate(service.api, { fetch: (...call) => (asked++, fetch(...call)) });
    const signing = await counting.signing();
    assert.deepEqual(await counting.signing(), signing);
    assert.equal(asked, 1);
    assert.equal(signing.domain.verifyingContract, service.registry);
    assert.deepEqual(
      signing.tiers.map(({ tier }) => tier),
      [0, 1, 2, 3, 4],
    );
  });

  test("a key is made, verifies, is rotated and revoked", async () => {
    const id = agent();
    assert.equal((await tiergate.keys.status(id)).hasKey, false);
    const made = await tiergate.keys.generate(id, owner, { declaredEndpoint: "https://app.example" });
    assert.equal(made.agentId, id);
    assert.deepEqual(made.rateLimit, { limit: 10, remaining: 9 });

    const verified = await tiergate.verify({ apiKey: made.apiKey, agentId: id, origin: "https://other.example" });
    assert.deepEqual([verified.valid, verified.agentId, verified.owner], [true, id, owner.address]);
    assert.deepEqual([verified.trustTier, verified.endpointMismatch], [4, true]);
    assert.deepEqual(verified.rateLimit, { limit: 2700, remaining: 2699 });
    assert.equal((await tiergate.verify({ apiKey: made.apiKey })).endpointMismatch, false);

    const rotated = await tiergate.keys.rotate(BigInt(id), new Wallet(service.owner));
    await refused(tiergate.verify({ apiKey: made.apiKey }), "INVALID_API_KEY");
    assert.equal((await tiergate.verify({ apiKey: rotated.apiKey })).agentId, id);
    assert.equal((await tiergate.keys.status(id)).hasKey, true);

    assert.equal((await tiergate.keys.revoke(id, owner)).success, true);
    await refused(tiergate.verify({ apiKey: rotated.apiKey }), "INVALID_API_KEY");
    assert.equal((await tiergate.keys.status(BigInt(id))).hasKey, false);
  });

  test("a key has a name, tenants, an end and a grace, which the profile tells", async () => {
    const id = agent();
    const first = await tiergate.keys.generate(id, owner, { name: "ci", tenants: ["wide"], expiresIn: 600 });
    const second = await tiergate.keys.rotate(id, owner, { name: "ci", graceSeconds: 60 });
    const { keys, timestamp } = await tiergate.profile(id, owner);
    const told = keys.map(({ name, tenants, replaced }: HeldKey) => [name, tenants, replaced]);
    assert.deepEqual(told, [["ci", ["wide"], true], ["ci", null, false]]);
    const [left, none] = keys.map(({ expiresAt }) => expiresAt && expiresAt - timestamp);
    assert.ok(left! > 0 && left! <= 60 && none === null, String(left));
    assert.equal((await tiergate.verify({ apiKey: second.apiKey })).agentId, id);
    await refused(tiergate.verify({ apiKey: first.apiKey }), "INVALID_API_KEY"); // It is for a tenant.
    await assert.rejects(tiergate.keys.revoke(id, owner, { name: "other" }), { errorType: "VALIDATION_ERROR" });
    assert.equal((await tiergate.keys.status(id)).hasKey, true);
    const typedData = await tiergate.typedData(id, "revoke");
    await tiergate.send("revoke", typedData, await owner.signTypedData(typedData as never), { name: "ci" });
    assert.equal((await tiergate.keys.status(id)).hasKey, false);
    for (const options of [{ graceSeconds: 1 }, { expiresIn: "1" }, { tenants: "wide" }, { name: 5 }] as object[]) {
      await assert.rejects(tiergate.keys.generate(id, owner, options), TypeError);
    }
  });

  test("a key is made, rotated and revoked by types of their own, for the service that is named", async () => {
    const byUrl = new Tiergate(service.owners, { retries: 0 });
    const byName = new Tiergate(service.named, { retries: 0, serviceName: service.owners });
    const id = agent();
    await byUrl.keys.generate(id, owner);
    const { apiKey } = await byName.keys.rotate(id, new Wallet(service.owner));
    assert.equal((await byName.verify({ apiKey })).agentId, id);
    const elsewhere = new Tiergate(service.named, { retries: 0, serviceName: "https://other.example" });
    await refused(elsewhere.keys.revoke(id, owner), "SIGNATURE_INVALID");
    const rotate = await byUrl.typedData(id, "rotate");
    assert.deepEqual([rotate.primaryType, rotate.message.service], ["RotateKey", service.owners]);
    const signature = await owner.signTypedData(rotate as never);
    await refused(byName.send("revoke", rotate, signature), "SIGNATURE_INVALID");
    await refused(byName.send("verify", rotate, signature), "SIGNATURE_INVALID");
    await byName.send("rotate", rotate, signature);
    await assert.rejects(new Tiergate(service.named).keys.revoke(id, owner), TypeError);
    assert.equal((await byUrl.keys.revoke(id, owner)).success, true);
  });

  test("an owner verifies by signature", async () => {
    const id = agent();
    const verified = await tiergate.verifySignature(id, owner);
    assert.deepEqual([verified.agentId, verified.trustTier], [id, 4]);
  });

  test("an owner reads the profile of an agent without stake", async () => {
    const id = agent("unstaked");
    const profile = await tiergate.profile(id, owner);
    assert.deepEqual([profile.agentId, profile.trustTier, profile.hasKey], [id, 0, false]);
    assert.equal(profile.owner, owner.address);
    assert.equal(profile.rateLimit?.limit, 60);
  });

  test("a signature to read the profile makes no key", async () => {
    const id = agent();
    const typed = await tiergate.typedData(id, "profile");
    const signature = await owner.signTypedData(typed as never);
    const asKey = { ...typed, message: { ...typed.message, nonce: "1" } };
    await refused(tiergate.send("generate", asKey, signature), "SIGNATURE_INVALID");
    assert.equal((await tiergate.send("profile", typed, signature)).hasKey, false);
  });

  test("typed data that was signed elsewhere is sent as it is", async () => {
    const id = agent();
    const typed = JSON.parse(JSON.stringify(await tiergate.typedData(id, "generate"))) as TypedData;
    const made = await tiergate.send("generate", typed, await owner.signTypedData(typed as never));
    assert.equal((await tiergate.verify({ apiKey: made.apiKey })).agentId, id);
  });

  test("a stranger's, a used and a malleated signature are refused for every operation", async () => {
    for (const operation of ["verify", "generate", "rotate", "revoke"] as const) {
      const id = agent();
      const typed = await tiergate.typedData(id, operation);
      const foreign = await stranger.signTypedData(typed as never);
      const { details } = await refused(tiergate.send(operation, typed, foreign), "SIGNATURE_INVALID");
      assert.deepEqual(details, { agentId: id, owner: owner.address, recoveredSigner: stranger.address });

      const signature = await owner.signTypedData(typed as never);
      const malleated = await refused(tiergate.send(operation, typed, twin(signature)), "SIGNATURE_INVALID");
      assert.equal(malleated.details.recoveredSigner, null);

      await tiergate.send(operation, typed, signature);
      const replayed = await refused(tiergate.send(operation, typed, signature), "REPLAY_DETECTED");
      assert.equal(replayed.details.nonce, typed.message.nonce);
    }
    const typed = await tiergate.typedData(agent("unstaked"), "profile");
    for (const signature of [await stranger.signTypedData(typed as never), twin(await owner.signTypedData(typed as never))]) {
      await refused(tiergate.send("profile", typed, signature), "SIGNATURE_INVALID");
    }
  });

  test("signatures that are made as the refused golden vectors are refused", async () => {
    const vectors = JSON.parse(readFileSync(`${service.root}/clients/vectors.json`, "utf8")) as {
      signatures: (TypedData & { name: string; privateKey: `0x${string}` })[];
      refused: (TypedData & { name: string; signature: string })[];
    };
    const vectorOf = (name: string) => vectors.signatures.find((vector) => vector.name === name)!;
    assert.deepEqual(vectors.refused.map(({ name }) => name), Object.keys(FORGERIES));
    const [signer, other] = ["golden", "another owner"].map((name) => privateKeyToAccount(vectorOf(name).privateKey));
    const elsewhere = vectorOf("another domain").domain;
    const ownTypes = new Tiergate(service.owners, { retries: 0 });
    const id = agent("bronze");
    for (const { name, signature, domain, primaryType, message } of vectors.refused) {
      const forge = FORGERIES[name]!;
      const operation = primaryType === "ProfileRead" ? "profile" : primaryType === "RotateKey" ? "rotate" : "verify";
      const client = operation === "rotate" ? ownTypes : tiergate;
      const fresh = await client.typedData(id, operation);
      const old = { ...fresh, domain, message };
      assert.equal(await forge({ typed: old, nonce: "8", signer: signer!, other: other!, elsewhere }), signature, name);
      const forged = await forge({ typed: fresh, nonce: "8", signer: owner, other: stranger, elsewhere });
      const isMalformed = ["short", "long", "empty", "no prefix"].includes(name);
      await refused(client.send(operation, fresh, forged), isMalformed ? "VALIDATION_ERROR" : "SIGNATURE_INVALID");
    }
    // All that is wrong with them is the signature.
    const fresh = await tiergate.typedData(id, "verify");
    assert.equal((await tiergate.send("verify", fresh, await signed(owner, fresh))).valid, true);
    const rotate = await ownTypes.typedData(id, "rotate");
    assert.equal((await ownTypes.send("rotate", rotate, await signed(owner, rotate))).agentId, id);
  });

  test("a key budget that is used up is not waited for", async () => {
    const id = agent("bronze");
    const patient = new Tiergate(service.api);
    for (let left = 9; left >= 0; left--) {
      assert.equal((await patient.keys.revoke(id, owner)).rateLimit?.remaining, left);
    }
    const { details, retryAfter } = await refused(patient.keys.revoke(id, owner), "RATE_LIMITED");
    assert.ok(details.retryAfter > 60 && retryAfter === details.retryAfter);
    assert.deepEqual([details.agentId, details.limit], [id, 10]);
  });
});

interface Forged {
  typed: TypedData;
  nonce: string;
  signer: PrivateKeyAccount;
  other: PrivateKeyAccount;
  elsewhere: TypedData["domain"];
}

const uint256 = (...names: string[]) => names.map((name) => ({ name, type: "uint256" }));
const VERIFICATION = uint256("agentId", "nonce", "timestamp");
const OF_KEY = [{ name: "service", type: "string" }, ...VERIFICATION];
const PROFILE_READ = uint256("agentId", "timestamp");
const ORDER = "fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141";
const ZERO = "00".repeat(32);

const signed = (signer: PrivateKeyAccount, typed: object) => signer.signTypedData(typed as never) as Promise<string>;
/** Changes the owner's signature: r, s, and v in hex. */
const changed = (change: (r: string, s: string, v: string) => string) => async ({ signer, typed }: Forged) => {
  const signature = await signed(signer, typed);
  return change(signature.slice(2, 66), signature.slice(66, 130), signature.slice(130));
};

/** How each refused vector is made: from the vector's message and keys, and from a fresh message and those of the service. */
const FORGERIES: Record<string, (forged: Forged) => Promise<string>> = {
  stranger: ({ other, typed }) => signed(other, typed),
  "another nonce": ({ signer, typed, nonce }) => signed(signer, { ...typed, message: { ...typed.message, nonce } }),
  "another domain": ({ signer, typed, elsewhere }) => signed(signer, { ...typed, domain: elsewhere }),
  "another type": ({ signer, typed: { domain, message } }) =>
    signed(signer, { domain, types: { ProfileRead: PROFILE_READ }, primaryType: "ProfileRead", message }),
  "another type for a profile": ({ signer, typed: { domain, message } }) =>
    signed(signer, { domain, types: { Verification: VERIFICATION }, primaryType: "Verification", message: { ...message, nonce: "7" } }),
  "another change of the key": ({ signer, typed: { domain, message } }) =>
    signed(signer, { domain, types: { GenerateKey: OF_KEY }, primaryType: "GenerateKey", message }),
  "another service": ({ signer, typed }) =>
    signed(signer, { ...typed, message: { ...typed.message, service: "https://other.example" } }),
  "a verification for a change of the key": ({ signer, typed: { domain, message } }) =>
    signed(signer, { domain, types: { Verification: VERIFICATION }, primaryType: "Verification", message }),
  "a change of the key for a verification": ({ signer, typed: { domain, message } }) => {
    const change = { service: "https://verify.example", ...message };
    return signed(signer, { domain, types: { RotateKey: OF_KEY }, primaryType: "RotateKey", message: change });
  },
  "high s": async (forged) => twin(await signed(forged.signer, forged.typed)),
  "flipped v": changed((r, s, v) => `0x${r}${s}${v === "1b" ? "1c" : "1b"}`),
  "v of 2": changed((r, s) => `0x${r}${s}02`),
  "v of 29": changed((r, s) => `0x${r}${s}1d`),
  "v of EIP-155": changed((r, s) => `0x${r}${s}25`),
  "r of zero": changed((_, s) => `0x${ZERO}${s}1b`),
  "s of zero": changed((r) => `0x${r}${ZERO}1b`),
  "r of the order": changed((_, s) => `0x${ORDER}${s}1b`),
  "s of the order": changed((r) => `0x${r}${ORDER}1b`),
  short: changed((r, s) => `0x${r}${s}`),
  long: changed((r, s, v) => `0x${r}${s}${v}00`),
  empty: async () => "0x",
  "no prefix": changed((r, s, v) => r + s + v),
};

/** The same signature with s as n - s and the other v: a library that is not strict takes it for the owner's. */
function twin(signature: string): string {
  const order = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n;
  const s = (order - BigInt(`0x${signature.slice(66, 130)}`)).toString(16).padStart(64, "0");
  return `${signature.slice(0, 66)}${s}${signature.endsWith("1b") ? "1c" : "1b"}`;
}
