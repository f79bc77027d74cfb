// An action of AgentKit whose wallet signs each request.
import { readFileSync } from "node:fs";
import { AgentKit, ViemWalletProvider, customActionProvider } from "@coinbase/agentkit";
import { Tiergate, agentFetch } from "tiergate";
import { createWalletClient, defineChain, http } from "viem";
import { privateKeyToAccount } from "viem/accounts";
import { z } from "zod";

const chain = defineChain({
  id: 8004,
  name: "Development",
  nativeCurrency: { name: "Ether", symbol: "ETH", decimals: 18 },
  rpcUrls: { default: { http: ["http://127.0.0.1:8545"] } },
});
const account = privateKeyToAccount(readFileSync("owner.key", "utf8").trim());
const walletProvider = new ViemWalletProvider(createWalletClient({ account, chain, transport: http() }));

const service = new Tiergate("http://127.0.0.1:8080");
const forecast = customActionProvider({
  name: "forecast",
  description: "Gets the weather forecast of a city.",
  schema: z.object({ city: z.string() }),
  invoke: async (wallet, { city }) => {
    const fetch = agentFetch("http://127.0.0.1:8000", { agentId: "4", signer: wallet, service });
    const response = await fetch(`/forecast?city=${encodeURIComponent(city)}`);
    return await response.text();
  },
});

const agentKit = await AgentKit.from({ walletProvider, actionProviders: [forecast] });
const action = agentKit.getActions().find(({ name }) => name.endsWith("forecast"));
console.log(await action.invoke({ city: "Lisbon" }));
process.exit(0);
