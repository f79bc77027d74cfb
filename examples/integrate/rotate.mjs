// For an administrator, who has the owner's key: replaces the agent's key, and the file that agents read.
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { Tiergate } from "tiergate";
import { privateKeyToAccount } from "viem/accounts";

const owner = privateKeyToAccount(readFileSync("owner.key", "utf8").trim());
const service = new Tiergate("http://127.0.0.1:8080");
const { apiKey } = await service.keys.rotate("4", owner);
// Whole or not at all: an agent may read it now.
writeFileSync("api.key.new", apiKey, { mode: 0o600 });
renameSync("api.key.new", "api.key");
console.log("rotated");
