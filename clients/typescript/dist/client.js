// The client of the verification API.
import { Clock } from "./clock.js";
import { TiergateError, addressForSecrets, bodyOf } from "./errors.js";
import { USER_AGENT, checkOptions, want } from "./options.js";
import { Patience, isRefusedForNow, unlessAborted } from "./retry.js";
import { decimal, sign, typedDataOf } from "./signing.js";
const AGENT = { agentId: "string", owner: "string", trustTier: "number" };
const VERIFIED = { valid: true, ...AGENT, endpointMismatch: "boolean" };
const ISSUED = { agentId: "string", apiKey: "string" };
const SIGNING = {
    domain: { name: "string", version: "string", chainId: "number", verifyingContract: "string" },
};
/** Method and path of each, and the shape of its answer. */
const OPERATIONS = {
    verify: ["POST", "verify/signature", VERIFIED],
    profile: ["POST", "profile", { ...AGENT, hasKey: "boolean" }],
    generate: ["POST", "keys/generate", ISSUED],
    rotate: ["POST", "keys/rotate", ISSUED],
    revoke: ["DELETE", "keys", { agentId: "string", success: true }],
};
/** The type that each is signed as, and its own type at services that have some. */
const TYPES = {
    verify: ["Verification"],
    profile: ["ProfileRead"],
    generate: ["Verification", "GenerateKey"],
    rotate: ["Verification", "RotateKey"],
    revoke: ["Verification", "RevokeKey"],
};
const TERMS = ["declaredEndpoint", "name", "expiresIn", "tenants"];
/** The further fields of each. */
const FIELDS = {
    verify: [],
    profile: [],
    generate: TERMS,
    rotate: [...TERMS, "graceSeconds"],
    revoke: ["name"],
};
/** Ends the message of an error after which a key may have been changed. */
const KEY_UNSURE = ": the key may have been changed. Ask keys.status; if there is a key that you have not seen, rotate it";
const OPTIONS = ["fetch", "timeoutMs", "allowHttp", "domain", "serviceName", "retries", "maxWaitMs", "onRetry"];
/** The service may change its domain: it allows five minutes. */
const SIGNING_KEPT_MS = 300_000;
/**
 * A service. Its calls fail with a {@link TiergateError}; an aborted one with the signal's reason, one whose signer fails
 * with the signer's error.
 */
export class Tiergate {
    /** Not for inspection. */
    #options;
    base;
    kept;
    clock = new Clock();
    /**
     * `url` is the address of the API; it may have a path. Throws a `TypeError` if it is no URL of https, or has a
     * login. Plain http is for this machine, and for the host that `allowHttp` names.
     */
    constructor(url, options = {}) {
        checkOptions(options, OPTIONS);
        this.#options = options;
        const { origin, pathname } = addressForSecrets(url, options.allowHttp);
        this.base = (origin + pathname).replace(/\/*$/, "/");
    }
    /** Returns what owners sign and the tiers. Kept for five minutes. */
    async signing(options = {}) {
        if (this.kept && Date.now() < this.kept.until)
            return this.kept.signing;
        const signing = await this.request("GET", ".well-known/tiergate", SIGNING, undefined, options);
        this.kept = { signing, until: Date.now() + SIGNING_KEPT_MS };
        return signing;
    }
    /** Verifies an agent by its API key. */
    async verify(credential, options = {}) {
        want(typeof Object(credential).apiKey === "string", "The credential is no object with an apiKey as text");
        const { agentId, apiKey, ...rest } = credential;
        // Files end with a line's end.
        const key = { ...rest, apiKey: apiKey.trim() };
        const body = agentId === undefined ? key : { ...key, agentId: decimal(agentId) };
        return this.request("POST", "verify", VERIFIED, body, options);
    }
    /** Verifies an agent by its owner's signature. */
    verifySignature(agentId, signer, options = {}) {
        return this.signed("verify", agentId, signer, options);
    }
    /** Reads an agent's profile as its owner. The agent may have any tier. */
    profile(agentId, signer, options = {}) {
        return this.signed("profile", agentId, signer, options);
    }
    /** Makes, replaces and revokes an agent's key. */
    keys = {
        /** Makes the agent's key. The answer has it this once, in `apiKey`; `console.log` of the answer does not show it. */
        generate: (agentId, signer, options = {}) => this.signed("generate", agentId, signer, options),
        /** Replaces the agent's key. The old one is invalid at once, or after `graceSeconds`. */
        rotate: (agentId, signer, options = {}) => this.signed("rotate", agentId, signer, options),
        /** Revokes the agent's keys, or the one that `name` says. Succeeds also without one. */
        revoke: (agentId, signer, options = {}) => this.signed("revoke", agentId, signer, options),
        /** Tells if the agent has a key. */
        status: async (agentId, options = {}) => {
            const path = `keys/status?agentId=${decimal(agentId)}`;
            return this.request("GET", path, { agentId: "string", hasKey: "boolean" }, undefined, options);
        },
    };
    /** Returns what an operation's signer signs, for signers elsewhere: give the signature to {@link send}. */
    async typedData(agentId, operation, options = {}) {
        const id = decimal(agentId);
        want(Object.hasOwn(TYPES, operation), `The operation is none of ${Object.keys(TYPES).join(", ")}`);
        const signing = await this.signing(options);
        const [usualType, ownType] = TYPES[operation];
        const service = ownType && this.serviceName(signing);
        const primaryType = ownType && service !== undefined ? ownType : usualType;
        const domain = { ...signing.domain, ...this.#options.domain };
        return typedDataOf(domain, id, primaryType, this.now(), service);
    }
    /** The name that changes of keys are signed for; `undefined` at a service without own types. A service could name another. */
    serviceName({ keyOperations }) {
        const { serviceName } = this.#options;
        if (typeof serviceName === "string")
            return serviceName;
        const name = keyOperations?.service;
        const url = this.base.replace(/\/$/, "");
        if (name === undefined || serviceName === true || name === url)
            return name;
        throw new TypeError(`${url} calls itself ${JSON.stringify(name)}: if you mean that service, give its name as serviceName`);
    }
    /** Sends an operation with the signature that was made of its typed data. Once it is refused for its timestamp, {@link typedData} has the service's time. */
    async send(operation, typedData, signature, options = {}) {
        want(Object.hasOwn(TYPES, operation), `The operation is none of ${Object.keys(TYPES).join(", ")}`);
        want(typeof Object(typedData).message === "object", "The typed data has no message");
        want(typeof signature === "string", "The signature is no text");
        checkOptions(options, ["signal", ...FIELDS[operation]]);
        try {
            return await this.sent(operation, typedData, signature, options, new Patience(this.#options));
        }
        catch (error) {
            this.correctClock(error);
            throw error;
        }
    }
    /** The service's time in Unix milliseconds: this computer's, unless {@link correctClock} has set it. */
    now() {
        return this.clock.now();
    }
    /**
     * Takes the service's time from an error that refuses a timestamp. True if it is known now, from this error or from that
     * of a request beside this one: signing again may succeed, once. Clocks that are more than a day apart stay so.
     */
    correctClock(error) {
        return this.clock.correct(error);
    }
    async signed(operation, agentId, signer, options) {
        checkOptions(options, ["signal", ...FIELDS[operation]]);
        const patience = new Patience(this.#options);
        const once = async () => {
            const typedData = await this.typedData(agentId, operation, options);
            options.signal?.throwIfAborted();
            return this.sent(operation, typedData, await unlessAborted(sign(signer, typedData), options.signal), options, patience);
        };
        try {
            return await once();
        }
        catch (error) {
            if (!this.correctClock(error))
                throw error;
            return once();
        }
    }
    sent(operation, { message: { service: _, ...message } }, signature, { signal, ...further }, patience) {
        const [method, path, shape] = OPERATIONS[operation];
        return this.request(method, path, shape, { ...message, signature, ...further }, signal ? { signal } : {}, patience);
    }
    /** Repeats only what the service refused before it did anything: no key is made, and no verification charged, twice. */
    async request(method, path, shape, body, { signal }, patience = new Patience(this.#options)) {
        for (;;) {
            try {
                return await this.once(method, path, shape, body, signal);
            }
            catch (error) {
                if (!isRefusedForNow(error) || !(await patience.wait(error.status, error, error.retryAfter, signal)))
                    throw error;
            }
        }
    }
    async once(method, path, shape, body, signal) {
        want(signal === undefined || typeof signal === "object", "The signal is no AbortSignal");
        const timeout = AbortSignal.timeout(this.#options.timeoutMs ?? 30_000);
        const init = {
            method,
            // A redirect would take the credential elsewhere. The service sends none.
            redirect: "manual",
            signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
        };
        const unsure = method !== "GET" && path.startsWith("keys") ? KEY_UNSURE : "";
        const headers = new Headers(USER_AGENT ? { "user-agent": USER_AGENT } : {});
        if (body)
            headers.set("content-type", "application/json");
        Object.assign(init, { headers }, body && { body: JSON.stringify(body) });
        try {
            const response = await (this.#options.fetch ?? fetch)(this.base + path, init);
            const answer = await bodyOf(response, shape, unsure);
            return discreet({ ...answer, rateLimit: rateLimitOf(response.headers) });
        }
        catch (cause) {
            if (cause instanceof TiergateError)
                throw cause;
            signal?.throwIfAborted();
            const reason = timeout.aborted ? " in time" : "";
            const message = `No answer came from ${this.base}${path.split("?")[0]}${reason}${unsure}`;
            throw new TiergateError("NO_ANSWER", message, 0, {}, undefined, undefined, undefined, { cause });
        }
    }
}
/** An answer that shows no key to who inspects it: to `console.log` of Node, Deno and Bun. Its JSON has the key. */
function discreet(answer) {
    if (!("apiKey" in answer))
        return answer;
    const shown = () => ({ ...answer, apiKey: "(not shown)" });
    return Object.defineProperty(answer, Symbol.for("nodejs.util.inspect.custom"), { value: shown });
}
function rateLimitOf(headers) {
    const [limit, remaining] = [headers.get("x-ratelimit-limit"), headers.get("x-ratelimit-remaining")];
    return limit !== null && remaining !== null ? { limit: Number(limit), remaining: Number(remaining) } : null;
}
