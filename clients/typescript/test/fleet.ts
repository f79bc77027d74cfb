// One process of the fleet of kept.test.ts: asks the gateway until its key is another than the first, and a few times more.

import { once } from "node:events";
import { agentFetch, Tiergate } from "tiergate";
import { keptKey } from "tiergate/kept";
import { privateKeyToAccount } from "viem/accounts";

const [file, agentId, first, api, gateway, key] = process.argv.slice(2) as [string, string, string, string, string, `0x${string}`];
const service = new Tiergate(api);
const apiKey = keptKey(file, { service, agentId, signer: privateKeyToAccount(key), expiresIn: 3_600, name: "fleet" });
const ask = agentFetch(gateway, { apiKey });
// All begin at once.
console.log("ready");
await once(process.stdin, "data");
process.stdin.destroy();
const seen = new Set<string>();
let refused = 0;
for (let after = 0; after < 5; ) {
  const response = await ask("/gone");
  await response.body?.cancel();
  if (response.status === 401) refused++;
  const shown = await apiKey.current();
  seen.add(shown);
  if (shown !== first) after++;
}
console.log(JSON.stringify({ refused, seen: [...seen] }));
