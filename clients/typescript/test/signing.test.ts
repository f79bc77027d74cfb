// The golden vectors, with every kind of signer.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { NonceManager, Wallet } from "ethers";
import { Tiergate, walletSigner, type Domain, type Message, type Signer, type TypedData } from "tiergate";
import { createPublicClient, createWalletClient, custom, hashTypedData, http, recoverTypedDataAddress } from "viem";
import { entryPoint07Abi, entryPoint07Address, toSmartAccount } from "viem/account-abstraction";
import { privateKeyToAccount } from "viem/accounts";
import { RIGHT, service } from "./service.js";

interface Vector {
  name: string;
  privateKey: `0x${string}`;
  address: `0x${string}`;
  domain: Domain;
  primaryType: TypedData["primaryType"];
  message: Message;
  digest: string;
  signature: string;
}
const vectors = JSON.parse(readFileSync(`${service.root}/clients/vectors.json`, "utf8")) as { signatures: Vector[] };

const OPERATIONS = {
  Verification: "verify",
  ProfileRead: "profile",
  GenerateKey: "generate",
  RotateKey: "rotate",
  RevokeKey: "revoke",
} as const;

/** A client of a service with this domain, and the requests that it made. */
function clientOf(domain: Domain, serviceName?: string): { client: Tiergate; sent: Record<string, unknown>[] } {
  const sent: Record<string, unknown>[] = [];
  const client = new Tiergate("https://service.example", {
    retries: 0,
    ...(serviceName !== undefined && { serviceName }),
    fetch: async (_url, init) => {
      if (init?.body) sent.push(JSON.parse(String(init.body)) as Record<string, unknown>);
      return Response.json({ ...RIGHT, domain });
    },
  });
  return { client, sent };
}

/** The typed data that the client gives to its signer, with the vector's message instead of one of now. */
async function signedBy(signer: Signer, vector: Vector): Promise<unknown> {
  const { agentId, service } = vector.message;
  const { client, sent } = clientOf(vector.domain, service);
  const operation = OPERATIONS[vector.primaryType];
  const typedData = await client.typedData(agentId, operation);
  assert.deepEqual(Object.keys(typedData.message).sort(), Object.keys(vector.message).sort());
  const replayed: Signer = (fresh) => run(signer, { ...fresh, message: vector.message });
  assert.equal(typedData.message.service, service);
  if (operation === "profile") await client.profile(agentId, replayed);
  else if (operation === "verify") await client.verifySignature(agentId, replayed);
  else await client.keys[operation](agentId, replayed);
  assert.ok(!("service" in sent[0]!));
  return sent[0]?.["signature"];
}

function run(signer: Signer, typedData: TypedData): Promise<string> {
  if (typeof signer === "function") return signer(typedData);
  if (!("resolveName" in signer)) return signer.signTypedData(typedData);
  const { EIP712Domain: _, ...types } = typedData.types;
  return signer.signTypedData(typedData.domain, types, typedData.message);
}

for (const vector of vectors.signatures) {
  test(`all signers sign the golden vector: ${vector.name}`, async () => {
    const account = privateKeyToAccount(vector.privateKey);
    const viemClient = createWalletClient({ account, transport: http("http://127.0.0.1:1") });
    const wallet = walletSigner(
      {
        request: async ({ method, params }) => {
          assert.equal(method, "eth_signTypedData_v4");
          assert.equal(params[0], vector.address);
          const typed = JSON.parse(params[1]) as TypedData;
          assert.equal(hashTypedData(typed as never), vector.digest);
          return account.signTypedData(typed as never);
        },
      },
      vector.address,
    );
    for (const signer of [account, viemClient, new Wallet(vector.privateKey), wallet] satisfies Signer[]) {
      assert.equal(await signedBy(signer, vector), vector.signature);
    }
  });
}

/** A wallet provider of AgentKit: `getAddress` as in ethers, `signTypedData` as in viem. */
class AgentKitProvider {
  constructor(private readonly account: ReturnType<typeof privateKeyToAccount>) {}
  getAddress(): string {
    return this.account.address;
  }
  getName(): string {
    return "viem_wallet_provider";
  }
  signTypedData({ domain, types, primaryType, message }: any): Promise<`0x${string}`> {
    return this.account.signTypedData({ domain, types, primaryType, message });
  }
}

/** A smart account of viem, whose wallet is signed for by this account, with the digests that it signed. */
async function smartAccount(account: ReturnType<typeof privateKeyToAccount>) {
  const digests: string[] = [];
  const unused = () => assert.fail("only typed data is signed");
  const smart = await toSmartAccount({
    // It asks if the wallet is deployed.
    client: createPublicClient({ transport: custom({ request: async () => "0x01" }) }),
    entryPoint: { abi: entryPoint07Abi, address: entryPoint07Address, version: "0.7" },
    getAddress: async () => "0xA1393CB409E2fE5573C0840189622aA0e33947b2",
    getFactoryArgs: async () => ({ factory: undefined, factoryData: undefined }),
    signTypedData: async (typedData) => {
      digests.push(hashTypedData(typedData as never));
      return account.signTypedData(typedData as never);
    },
    encodeCalls: unused,
    getStubSignature: unused,
    signMessage: unused,
    signUserOperation: unused,
  });
  return { smart, digests };
}

test("every kind of signer signs the whole request, and its owner is recovered from what is sent", async () => {
  const { domain, privateKey } = vectors.signatures[0]!;
  const { client, sent } = clientOf(domain);
  const account = privateKeyToAccount(privateKey);
  const { smart, digests } = await smartAccount(account);
  const wallet = new Wallet(privateKey);
  const signers: Signer[] = [
    account,
    createWalletClient({ account, transport: http("http://127.0.0.1:1") }),
    wallet,
    new NonceManager(wallet),
    new AgentKitProvider(account),
    smart,
  ];
  for (const signer of signers) await client.verifySignature("4", signer);
  const { types, primaryType } = await client.typedData("4", "verify");
  for (const body of sent) {
    const { signature, ...message } = body;
    const signed = { domain, types, primaryType, message } as never;
    assert.equal(await recoverTypedDataAddress({ ...(signed as object), signature } as never), account.address);
    if (body === sent.at(-1)) assert.deepEqual(digests, [hashTypedData(signed)]);
  }
  assert.equal(sent.length, signers.length);
});

test("a service can't have other types signed, and no other domain than the one that is known", async () => {
  const domain = vectors.signatures[0]!.domain;
  const Permit = [{ name: "spender", type: "address" }];
  const client = new Tiergate("https://service.example", {
    fetch: async () => Response.json({ domain, types: { Permit }, primaryType: "Permit" }),
    domain: { chainId: 1 },
  });
  const typed = await client.typedData("4", "generate");
  assert.deepEqual(Object.keys(typed.types), ["EIP712Domain", "Verification"]);
  assert.equal(typed.primaryType, "Verification");
  assert.deepEqual(typed.domain, { ...domain, chainId: 1 });
});

test("a change of a key is signed for the client's own URL or the name that is known, whatever the service says", async () => {
  const { domain } = vectors.signatures[0]!;
  const of = (keyOperations: unknown, serviceName?: string | true, url = "https://service.example/") => {
    const fetch = async () => Response.json({ ...RIGHT, domain, keyOperations });
    return new Tiergate(url, { fetch, ...(serviceName !== undefined && { serviceName }) });
  };
  const signedBy = async (client: Tiergate) => {
    const { primaryType, message } = await client.typedData("4", "rotate");
    return [primaryType, message.service];
  };
  const named = (service: unknown) => ({ service, rotate: { primaryType: "Permit" } });
  for (const older of [null, undefined, {}]) assert.deepEqual(await signedBy(of(older)), ["Verification", undefined]);
  for (const url of ["https://service.example", "HTTPS://SERVICE.example:443/", "https://service.example/a/b/"]) {
    const name = url.includes("a/b") ? "https://service.example/a/b" : "https://service.example";
    assert.deepEqual(await signedBy(of(named(name), undefined, url)), ["RotateKey", name]);
  }
  for (const other of ["http://service.example", "https://service.example/", "https://service.example.evil.example", "Hafen", "", 5]) {
    await assert.rejects(signedBy(of(named(other))), { name: "TypeError", message: /calls itself/ });
    assert.equal((await of(named(other)).typedData("4", "verify")).primaryType, "Verification");
  }
  assert.deepEqual(await signedBy(of(named("Hafen"), true)), ["RotateKey", "Hafen"]);
  // A service that says it has no types of its own gets no other signature for that.
  for (const told of [null, named("other")]) assert.deepEqual(await signedBy(of(told, "Hafen")), ["RotateKey", "Hafen"]);
});

test("nonces are random uint256 in decimal", async () => {
  const { client } = clientOf(RIGHT.domain as Domain);
  const typed = Array.from({ length: 1000 }, () => client.typedData("4", "verify"));
  const nonces = (await Promise.all(typed)).map(({ message }) => message.nonce!);
  assert.equal(new Set(nonces).size, 1000);
  for (const text of nonces) assert.ok(/^\d+$/.test(text) && BigInt(text) < 2n ** 256n);
  assert.ok(nonces.some((text) => BigInt(text) >= 2n ** 255n), "all bits are used");
});
