// An agent with an account of viem: with a key, and with a signature for each request.
import { readFileSync, writeFileSync } from "node:fs";
import { Tiergate, agentFetch } from "tiergate";
import { privateKeyToAccount } from "viem/accounts";

const owner = privateKeyToAccount(readFileSync("owner.key", "utf8").trim());
const service = new Tiergate("http://127.0.0.1:8080");

// With a key. This replaces the agent's key; `generate` makes the first one. It is shown this once.
const { apiKey } = await service.keys.rotate("4", owner);
writeFileSync("api.key", apiKey, { mode: 0o600 });
const withKey = agentFetch("http://127.0.0.1:8000", { apiKey });
console.log((await withKey("/forecast")).status);

// Without a key: the owner signs each request.
const signed = agentFetch("http://127.0.0.1:8000", { agentId: "4", signer: owner, service });
console.log((await signed("/forecast")).status);
