const EIP712Domain = [
    { name: "name", type: "string" },
    { name: "version", type: "string" },
    { name: "chainId", type: "uint256" },
    { name: "verifyingContract", type: "address" },
];
const Verification = [
    { name: "agentId", type: "uint256" },
    { name: "nonce", type: "uint256" },
    { name: "timestamp", type: "uint256" },
];
const ProfileRead = [
    { name: "agentId", type: "uint256" },
    { name: "timestamp", type: "uint256" },
];
const types = { Verification: { EIP712Domain, Verification }, ProfileRead: { EIP712Domain, ProfileRead } };
export function walletSigner(provider, address) {
    return (typedData) => provider.request({ method: "eth_signTypedData_v4", params: [address, JSON.stringify(typedData)] });
}
export function sign(signer, typedData) {
    if (typeof signer === "function")
        return signer(typedData);
    if (!("getAddress" in signer))
        return signer.signTypedData(typedData);
    const { EIP712Domain: _, ...own } = typedData.types;
    return signer.signTypedData(typedData.domain, own, typedData.message);
}
export function nonce() {
    const words = crypto.getRandomValues(new BigUint64Array(4));
    return words.reduce((number, word) => (number << 64n) | word, 0n).toString();
}
export function typedDataOf(domain, agentId, primaryType) {
    const timestamp = Math.floor(Date.now() / 1000);
    const message = primaryType === "Verification" ? { agentId, nonce: nonce(), timestamp } : { agentId, timestamp };
    return { domain, types: types[primaryType], primaryType, message };
}
