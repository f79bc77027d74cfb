// What agents show to the gateway.
import { Clock } from "./clock.js";
import { coverageAsked, coverageOf, signedBy } from "./erc8128.js";
import { decimal, sign } from "./signing.js";
/** Checks a credential, and returns what shows it: in requests of a method, with this body. No error shows a part of it. */
export function showingOf(credential) {
    if (typeof credential !== "object" || credential === null) {
        throw new TypeError("The credential is no object with an apiKey, a signer or an account");
    }
    if ("apiKey" in credential) {
        const { bearer = false } = credential;
        const apiKey = headerValue(credential.apiKey, "API key");
        return () => new Key(apiKey, bearer);
    }
    if ("signer" in credential)
        return () => new OwnersSignature(credential);
    const { account } = credential;
    const agentId = decimal(credential.agentId);
    const chainId = /^[0-9]{1,78}$/.test(String(credential.chainId)) ? BigInt(credential.chainId) : 0n;
    if (chainId <= 0n)
        throw new TypeError("The chain's id is no positive integer");
    if (typeof Object(account).signMessage !== "function") {
        throw new TypeError("The account is neither one of viem, nor a signer of ethers, nor a wallet provider");
    }
    const clock = new Clock();
    return (method, body) => new RequestSignature(agentId, account, chainId, clock, method, body);
}
class Key {
    apiKey;
    bearer;
    constructor(apiKey, bearer) {
        this.apiKey = apiKey;
        this.bearer = bearer;
    }
    async show(_url, headers) {
        const name = this.bearer ? "Authorization" : "X-API-Key";
        if (headers.has(name)) {
            const other = this.bearer ? "without bearer" : "with bearer";
            throw new TypeError(`The request has an ${name} of its own: show the agent's key ${other}`);
        }
        headers.set(name, this.bearer ? `Bearer ${this.apiKey}` : this.apiKey);
    }
    learnsFrom() {
        return false;
    }
}
class OwnersSignature {
    credential;
    constructor(credential) {
        this.credential = credential;
    }
    async show(_url, headers, signal) {
        const { agentId, signer, service } = this.credential;
        const typedData = await service.typedData(agentId, "verify", signal ? { signal } : {});
        signal?.throwIfAborted();
        const { message } = typedData;
        headers.set("X-Agent-Id", message.agentId);
        headers.set("X-Agent-Signature", headerValue(await sign(signer, typedData), "signature"));
        headers.set("X-Agent-Nonce", String(message.nonce));
        headers.set("X-Agent-Timestamp", String(message.timestamp));
    }
    learnsFrom(_response, error) {
        return this.credential.service.correctClock(error);
    }
}
class RequestSignature {
    agentId;
    account;
    chainId;
    clock;
    method;
    body;
    shown;
    asked;
    constructor(agentId, account, chainId, clock, method, body) {
        this.agentId = agentId;
        this.account = account;
        this.chainId = chainId;
        this.clock = clock;
        this.method = method;
        this.body = body;
    }
    async show(url, headers, signal) {
        for (const name of ["signature", "signature-input"]) {
            if (headers.has(name))
                throw new TypeError(`The request has a ${name} of its own`);
        }
        signal?.throwIfAborted();
        headers.set("X-Agent-Id", this.agentId);
        // `fetch` writes some methods in capitals.
        const { method } = new Request(url, { method: this.method });
        const request = { method, url, headers, body: this.body };
        const coverage = this.asked ?? coverageOf(request);
        const now = Math.floor(this.clock.now() / 1000);
        const signed = await signedBy(this.account, this.chainId, request, coverage, now);
        for (const [name, value] of Object.entries(signed))
            headers.set(name, value);
        this.shown = { request, coverage };
    }
    /** The gateway's time and `Accept-Signature`. Those of the API come with the agent's limit, after the request was charged. */
    learnsFrom({ headers, status }, error) {
        if (status !== 401 || headers.has("x-ratelimit-limit") || !this.shown)
            return false;
        const { request, coverage } = this.shown;
        this.asked = coverageAsked(headers.get("accept-signature") ?? "", request);
        const asksForMore = this.asked && (this.asked.nonce !== undefined || `${this.asked.components}` !== `${coverage.components}`);
        return this.clock.correct(error) || asksForMore === true;
    }
}
/** Refuses a secret that no header takes here: errors of `Headers` quote their values. */
function headerValue(secret, name) {
    const value = secret.trim();
    if (!/^[!-~]+$/.test(value))
        throw new TypeError(`The ${name} is empty, or has other characters than those of ASCII`);
    return value;
}
