const [AGENTS_MAX, ASKED_MAX] = [20, 200];
const [OWNER_OF, BALANCE_OF, TOKEN_OF_OWNER] = ["0x6352211e", "0x70a08231", "0x2f745c59"];
const TRANSFER = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";
export async function agentsOf(connection, account, signing) {
    const registry = signing.contracts?.["identity"] ?? signing.domain.verifyingContract;
    if (connection.chainId !== BigInt(signing.chainId ?? signing.domain.chainId))
        return [];
    const owner = word(account);
    const read = async (data) => BigInt((await connection.ask("eth_call", [{ to: registry, data }, "latest"])));
    const enumerated = async () => {
        const count = Math.min(Number(await read(BALANCE_OF + owner)), AGENTS_MAX);
        return Promise.all(Array.from({ length: count }, (_, at) => read(TOKEN_OF_OWNER + owner + word(at.toString(16)))));
    };
    const logged = async () => {
        const filter = { address: registry, topics: [TRANSFER, null, `0x${owner}`], fromBlock: "0x0", toBlock: "latest" };
        const logs = (await connection.ask("eth_getLogs", [filter]));
        const received = [...new Set(logs.map(({ topics }) => topics[3] ?? "").reverse())].slice(0, ASKED_MAX);
        const isOwned = async (agent) => (await read(OWNER_OF + word(agent)).catch(() => 0n)) === BigInt(`0x${owner}`);
        const found = [];
        for (let at = 0; at < received.length && found.length < AGENTS_MAX; at += AGENTS_MAX) {
            const some = received.slice(at, at + AGENTS_MAX);
            const owned = await Promise.all(some.map(isOwned));
            found.push(...some.filter((_, nth) => owned[nth]).map(BigInt));
        }
        return found.slice(0, AGENTS_MAX);
    };
    const agents = await enumerated().catch(logged).catch(() => []);
    return agents.sort((one, other) => (one < other ? -1 : 1)).map(String);
}
const word = (hex) => hex.replace(/^0x/, "").toLowerCase().padStart(64, "0");
