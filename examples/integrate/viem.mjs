// An agent with an account of viem: with the key that is there, and with a signature for each request.
import { readFileSync } from "node:fs";
import { Tiergate, agentFetch } from "tiergate";
import { privateKeyToAccount } from "viem/accounts";

const withKey = agentFetch("http://127.0.0.1:8000", { apiKeyFile: "api.key" });
console.log((await withKey("/forecast")).status);

// Without a key: the owner signs each request.
const owner = privateKeyToAccount(readFileSync("owner.key", "utf8").trim());
const service = new Tiergate("http://127.0.0.1:8080");
const signed = agentFetch("http://127.0.0.1:8000", { agentId: "4", signer: owner, service });
console.log((await signed("/forecast")).status);
