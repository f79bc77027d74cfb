// Typed data (EIP-712) and the signers that sign it.
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
const ofKey = [{ name: "service", type: "string" }, ...Verification];
/** Types are the client's own, so that no service can have something else signed. */
const types = {
    Verification: { EIP712Domain, Verification },
    ProfileRead: { EIP712Domain, ProfileRead },
    GenerateKey: { EIP712Domain, GenerateKey: ofKey },
    RotateKey: { EIP712Domain, RotateKey: ofKey },
    RevokeKey: { EIP712Domain, RevokeKey: ofKey },
};
/** Signs with a wallet of the browser, `eth_signTypedData_v4`. */
export function walletSigner(provider, address) {
    // Wallets quote what they can't take.
    if (!/^0x[0-9a-f]{40}$/i.test(address))
        throw new TypeError("The wallet's account is no address");
    return (typedData) => provider.request({ method: "eth_signTypedData_v4", params: [address, JSON.stringify(typedData)] });
}
/** Signs typed data. A key is no signer: the error shows nothing of it. */
export function sign(signer, typedData) {
    if (typeof signer === "function")
        return signer(typedData);
    if (typeof Object(signer).signTypedData !== "function") {
        throw new TypeError("The signer is neither an account, nor a wallet client, nor a signer, nor a function");
    }
    if (!("resolveName" in signer))
        return signer.signTypedData(typedData);
    // ethers adds the domain's type by itself.
    const { EIP712Domain: _, ...own } = typedData.types;
    return signer.signTypedData(typedData.domain, own, typedData.message);
}
/** An agent's id as the API writes it, or throws. The error has no part of it: it may be a key in the wrong place. */
export function decimal(agentId) {
    const number = /^[0-9]{1,78}$/.test(String(agentId)) ? BigInt(agentId) : -1n;
    if (number < 0n || number >> 256n)
        throw new TypeError("The agent's id is no uint256");
    return String(number);
}
/** Returns a random nonce: a uint256 in decimal. */
export function nonce() {
    const words = crypto.getRandomValues(new BigUint64Array(4));
    return words.reduce((number, word) => (number << 64n) | word, 0n).toString();
}
/** Returns a message of this time (Unix milliseconds), ready to be signed. `service` is for the types that name it. */
export function typedDataOf(domain, agentId, primaryType, now, service) {
    const timestamp = Math.floor(now / 1000);
    const read = { agentId, timestamp };
    const once = { agentId, nonce: nonce(), timestamp };
    const message = primaryType === "ProfileRead" ? read : service === undefined ? once : { service, ...once };
    return { domain, types: types[primaryType], primaryType, message };
}
