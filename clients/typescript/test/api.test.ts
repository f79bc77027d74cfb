// Every endpoint of the real service.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Wallet } from "ethers";
import { Tiergate, type TypedData } from "tiergate";
import { agent as anAgent, owner, refused, service, stranger } from "./service.js";

const tiergate = new Tiergate(service.api, { retries: 0 });
const agent = (kind: "unstaked" | "bronze" | "diamond" = "diamond") => anAgent(kind, 0);

describe("the API", { concurrency: true, timeout: 60_000 }, () => {
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

/** The same signature with s as n - s and the other v: a library that is not strict takes it for the owner's. */
function twin(signature: string): string {
  const order = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n;
  const s = (order - BigInt(`0x${signature.slice(66, 130)}`)).toString(16).padStart(64, "0");
  return `${signature.slice(0, 66)}${s}${signature.endsWith("1b") ? "1c" : "1b"}`;
}
