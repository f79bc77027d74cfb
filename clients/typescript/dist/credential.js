// What agents show to the gateway.
import { Clock } from "./clock.js";
import { coverageAsked, coverageOf, signedBy } from "./erc8128.js";
import { runtime, want } from "./options.js";
import { unlessAborted } from "./retry.js";
import { decimal, sign } from "./signing.js";
/** Checks a credential, and returns what shows it: in requests of a method, with this body. No error shows a part of it. */
export function showingOf(credential) {
    const isOne = typeof credential === "object" && credential !== null;
    const kinds = ["apiKey", "apiKeyFile", "signer", "account"];
    const given = isOne && kinds.some((kind) => kind in credential);
    want(given, "The credential is no object with an apiKey, an apiKeyFile, a signer or an account");
    if ("apiKey" in credential || "apiKeyFile" in credential) {
        const { bearer = false } = credential;
        want(typeof bearer === "boolean", "The credential's bearer is neither true nor false");
        const keys = "apiKey" in credential ? keysOf(credential.apiKey) : new Keys(() => readKey(credential.apiKeyFile));
        return () => new Key(keys, bearer);
    }
    if ("signer" in credential) {
        decimal(credential.agentId);
        want(typeof Object(credential.service).typedData === "function", "The credential's service is no Tiergate");
        return () => new OwnersSignature(credential);
    }
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
function keysOf(source) {
    if (typeof source === "function")
        return new Keys(async () => headerValue(await source(), "API key"));
    if (typeof Object(source).current === "function") {
        const living = source;
        return new Keys(async (refused) => headerValue(await living.current(refused), "API key"), true);
    }
    const key = headerValue(source, "API key");
    return new Keys(async () => key);
}
/** The key as a file has it. Errors don't name the file: it may be a key in the wrong place. */
async function readKey(file) {
    return headerValue(await readSecret(file), "API key in the file");
}
/** The text of a file that others must not read. */
export async function readSecret(file) {
    // Bundlers for browsers must not look for it.
    const files = "node:fs/promises";
    const { readFile, stat } = await import(files);
    try {
        const text = await readFile(file, "utf8");
        const { mode } = await stat(file);
        const isOpen = runtime?.platform !== "win32" && (mode & 0o044) !== 0;
        if (isOpen)
            console.warn("tiergate: others may read the file of the API key; keep it from them: chmod 600");
        return text;
    }
    catch (error) {
        throw new TypeError(`The file of the API key can't be read (${error.code ?? "malformed name"})`);
    }
}
/** Where a key comes from, and the key that came last, for all requests. */
class Keys {
    ask;
    isLiving;
    kept;
    constructor(ask, isLiving = false) {
        this.ask = ask;
        this.isLiving = isLiving;
    }
    current(refused) {
        if (this.isLiving)
            this.kept = undefined;
        return (this.kept ??= this.ask(refused));
    }
    /** The key that was asked for. If it can't be had, or not in time, the next request asks anew. */
    async of(asked, signal) {
        try {
            return await unlessAborted(asked, signal);
        }
        catch (error) {
            if (this.kept === asked)
                this.kept = undefined;
            throw error;
        }
    }
    /** Asks once more, unless another request has since this one was shown. True if the key is another now. */
    async differsFrom(shown, signal) {
        if (this.kept === shown)
            this.kept = undefined;
        const refused = await shown;
        return (await this.of(this.current(refused), signal)) !== refused;
    }
}
class Key {
    keys;
    bearer;
    shown;
    constructor(keys, bearer) {
        this.keys = keys;
        this.bearer = bearer;
    }
    async show(_url, headers, signal) {
        const name = this.bearer ? "Authorization" : "X-API-Key";
        if (headers.has(name)) {
            const other = this.bearer ? "without bearer" : "with bearer";
            throw new TypeError(`The request has an ${name} of its own: show the agent's key ${other}`);
        }
        signal?.throwIfAborted();
        this.shown = this.keys.current();
        const key = await this.keys.of(this.shown, signal);
        headers.set(name, this.bearer ? `Bearer ${key}` : key);
    }
    async learnsFrom(_response, error, signal) {
        const isRefused = error !== null && error.status === 401 && error.is("INVALID_API_KEY");
        if (!isRefused || this.shown === undefined)
            return false;
        try {
            return await this.keys.differsFrom(this.shown, signal);
        }
        catch {
            signal?.throwIfAborted();
            // The caller gets the gateway's refusal. The error's text may have a part of the key.
            console.warn("tiergate: the gateway refused the key, and it can't be read again");
            return false;
        }
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
        headers.set("X-Agent-Signature", headerValue(await unlessAborted(sign(signer, typedData), signal), "signature"));
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
        const signed = await unlessAborted(signedBy(this.account, this.chainId, request, coverage, now), signal);
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
    want(typeof secret === "string", `The ${name} is no text`);
    const value = secret.trim();
    if (!/^[!-~]+$/.test(value))
        throw new TypeError(`The ${name} is empty, or has other characters than those of ASCII`);
    return value;
}
