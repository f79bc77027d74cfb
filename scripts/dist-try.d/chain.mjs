// Puts the registries on a fresh node of anvil, where docs/install.md has them, and agent 4 with the stake of tier 4.
import { readFileSync } from "node:fs";

const [url, artifacts] = process.argv.slice(2);
const { createWalletClient, createPublicClient, http, parseAbi, defineChain } = await import("viem");
const { privateKeyToAccount } = await import("viem/accounts");

// The first account of every anvil, which deploys, and the fifth, which owns the agent.
const deployer = privateKeyToAccount("0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80");
const owner = "0x15d34AAf54267DB7D7c367839AAf71A00a2C6A65";
const chain = defineChain({ id: 8004, name: "try", nativeCurrency: { name: "E", symbol: "E", decimals: 18 }, rpcUrls: { default: { http: [url] } } });
const wallet = createWalletClient({ account: deployer, chain, transport: http(url) });
const node = createPublicClient({ chain, transport: http(url), pollingInterval: 50 });
const artifact = (name) => JSON.parse(readFileSync(`${artifacts}/${name}.json`, "utf8"));
const mined = (hash) => node.waitForTransactionReceipt({ hash });

await node.request({
  method: "anvil_setCode",
  params: ["0xcA11bde05977b3631167028862bE2a173976CA11", artifact("Multicall3").deployedBytecode],
});
const addresses = [];
for (const name of ["IdentityRegistry", "StakeVault"]) {
  const hash = await wallet.deployContract({ abi: [], bytecode: artifact(name).bytecode });
  addresses.push((await mined(hash)).contractAddress);
}
const [identity, vault] = addresses;
const write = async (address, text, functionName, args) =>
  mined(await wallet.writeContract({ address, abi: parseAbi([text]), functionName, args }));
await write(identity, "function mintWithId(address,uint256,string)", "mintWithId", [owner, 4n, ""]);
await write(vault, "function stake(uint256,uint256)", "stake", [4n, 500_000n * 10n ** 18n]);
console.log(identity, vault);
