// Makes vectors.json: signatures that the service, and its clients in every language, must make and read alike.
//
//   node clients/vectors.mjs            writes them
//   node clients/vectors.mjs --check    exits 1 if they differ
//
// viem signs, and ethers must sign the same; both come from tools/. The private keys are publicly known.

import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(new URL("../tools/package.json", import.meta.url));
const { hashTypedData, parseSignature, serializeSignature } = require("viem");
const { privateKeyToAccount } = require("viem/accounts");
const { Wallet } = require("ethers");

const file = new URL("vectors.json", import.meta.url);
const THROW_AWAY = "0x4c0883a69102937d6231471b5dbb6204fe5129617082792ae468d01a3f362318";
const ALICE = "0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d";
const BOB = "0x5de4111afa1a4b94908f83103eb1f1706367c2e68ca870fc3fb9a804cdab365a";
const ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n;
const UINT256_MAX = (2n ** 256n - 1n).toString();

const domain = {
  name: "Service Verification",
  version: "1",
  chainId: 8004,
  verifyingContract: "0xA1393CB409E2fE5573C0840189622aA0e33947b2",
};
const elsewhere = {
  name: "Vérification 東京",
  version: "2",
  chainId: 9007199254740991,
  verifyingContract: "0x5FbDB2315678afecb367f032d93F642f64180aa3",
};
const uints = (...names) => names.map((name) => ({ name, type: "uint256" }));
const ofKey = [{ name: "service", type: "string" }, ...uints("agentId", "nonce", "timestamp")];
const TYPES = {
  Verification: uints("agentId", "nonce", "timestamp"),
  ProfileRead: uints("agentId", "timestamp"),
  GenerateKey: ofKey,
  RotateKey: ofKey,
  RevokeKey: ofKey,
};
const EIP712Domain = [
  { name: "name", type: "string" },
  { name: "version", type: "string" },
  { name: "chainId", type: "uint256" },
  { name: "verifyingContract", type: "address" },
];

const golden = { agentId: "42", nonce: "7", timestamp: 1700000000 };
const read = { agentId: "42", timestamp: 1700000000 };
const change = { service: "https://verify.example", ...golden };
const signatures = [
  await signed("golden", THROW_AWAY, domain, "Verification", golden),
  await signed("another nonce", THROW_AWAY, domain, "Verification", { ...golden, nonce: "8" }),
  await signed("another owner", ALICE, domain, "Verification", golden),
  await signed("zeros", ALICE, domain, "Verification", { agentId: "0", nonce: "0", timestamp: 0 }),
  await signed("largest numbers", BOB, domain, "Verification", {
    agentId: UINT256_MAX,
    nonce: UINT256_MAX,
    timestamp: Number.MAX_SAFE_INTEGER,
  }),
  await signed("numbers beyond 64 bits", ALICE, domain, "Verification", {
    agentId: (2n ** 64n).toString(),
    nonce: (2n ** 128n + 1n).toString(),
    timestamp: 1700000001,
  }),
  await signed("another domain", ALICE, elsewhere, "Verification", golden),
  await signed("profile", THROW_AWAY, domain, "ProfileRead", read),
  await signed("profile of the largest agent", BOB, elsewhere, "ProfileRead", { ...read, agentId: UINT256_MAX }),
  await signed("generate", THROW_AWAY, domain, "GenerateKey", change),
  await signed("rotate", THROW_AWAY, domain, "RotateKey", change),
  await signed("revoke", THROW_AWAY, domain, "RevokeKey", change),
  await signed("rotate at another service", THROW_AWAY, domain, "RotateKey", { ...change, service: "https://other.example" }),
  await signed("a service with a name in words", BOB, elsewhere, "GenerateKey", {
    service: 'Hafen "東京" \\',
    agentId: UINT256_MAX,
    nonce: UINT256_MAX,
    timestamp: Number.MAX_SAFE_INTEGER,
  }),
];

const [first, otherNonce, alices] = signatures;
const named = (wanted) => signatures.find(({ name }) => name === wanted);
const [profile, generate, rotate] = ["profile", "generate", "rotate"].map(named);
const otherDomain = (await signed("", THROW_AWAY, elsewhere, "Verification", golden)).signature;
const of = parseSignature(first.signature);
const twin = serializeSignature({ r: of.r, s: hex32(ORDER - BigInt(of.s)), yParity: 1 - of.yParity });
const body = first.signature.slice(2, -2);
const refused = [
  refuse("stranger", "another account signed", alices.signature),
  refuse("another nonce", "the owner signed another nonce", otherNonce.signature),
  refuse("another domain", "the owner signed for another domain", otherDomain),
  refuse("another type", "the owner signed ProfileRead", profile.signature),
  refuse("another type for a profile", "the owner signed Verification", first.signature, profile),
  refuse("another change of the key", "the owner signed GenerateKey", generate.signature, rotate),
  refuse("another service", "the owner signed for another service", named("rotate at another service").signature, rotate),
  refuse("a verification for a change of the key", "the owner signed Verification", first.signature, rotate),
  refuse("a change of the key for a verification", "the owner signed RotateKey", rotate.signature),
  refuse("high s", "the twin of the owner's signature: s is n - s, v is flipped", twin),
  refuse("flipped v", "v is of another public key", `0x${body}${of.yParity === 0 ? "1c" : "1b"}`),
  refuse("v of 2", "v is none of 0, 1, 27, 28", `0x${body}02`),
  refuse("v of 29", "v is none of 0, 1, 27, 28", `0x${body}1d`),
  refuse("v of EIP-155", "v is none of 0, 1, 27, 28", `0x${body}25`),
  refuse("r of zero", "r is zero", `0x${"00".repeat(32)}${body.slice(64)}1b`),
  refuse("s of zero", "s is zero", `0x${body.slice(0, 64)}${"00".repeat(32)}1b`),
  refuse("r of the order", "r is n", `0x${ORDER.toString(16)}${body.slice(64)}1b`),
  refuse("s of the order", "s is n", `0x${body.slice(0, 64)}${ORDER.toString(16)}1b`),
  refuse("short", "64 bytes, without v", `0x${body}`),
  refuse("long", "66 bytes", `${first.signature}00`),
  refuse("empty", "no bytes", "0x"),
  refuse("no prefix", "no 0x", first.signature.slice(2)),
];

const text = `${JSON.stringify({ signatures, refused }, null, 2)}\n`;
if (!process.argv.includes("--check")) writeFileSync(file, text);
else if (readFileSync(file, "utf8") !== text) {
  console.error("vectors.json is not what clients/vectors.mjs makes");
  process.exit(1);
}

async function signed(name, privateKey, domain, primaryType, message) {
  const typed = { domain, types: { EIP712Domain, [primaryType]: TYPES[primaryType] }, primaryType, message };
  const account = privateKeyToAccount(privateKey);
  const signature = await account.signTypedData(typed);
  const same = await new Wallet(privateKey).signTypedData(domain, { [primaryType]: TYPES[primaryType] }, message);
  if (signature !== same) throw new Error(`viem and ethers differ: ${name}`);
  return { name, privateKey, address: account.address, domain, primaryType, message, digest: hashTypedData(typed), signature };
}

/** A signature that must not be taken for the owner's. */
function refuse(name, why, signature, { domain, primaryType, message, address } = first) {
  return { name, why, domain, primaryType, message, signature, owner: address };
}

function hex32(number) {
  return `0x${number.toString(16).padStart(64, "0")}`;
}
