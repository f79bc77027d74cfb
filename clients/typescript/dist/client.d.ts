import type { components } from "./openapi.js";
import { type RetryOptions } from "./retry.js";
import { type Domain, type Signer, type TypedData } from "./signing.js";
type Schemas = components["schemas"];
/** An agent's id: a uint256, in decimal if it is text. */
export type AgentId = string | bigint;
/** The domain, types and tiers of a service. */
export type Signing = Schemas["Signing"];
export type VerificationResult = Schemas["VerificationResult"];
export type Profile = Schemas["Profile"];
/** One of the agent's keys, in its profile: what is known of it but the key. */
export type HeldKey = Profile["keys"][number];
export type IssuedKey = Schemas["IssuedKey"];
export type RevokedKey = Schemas["RevokedKey"];
export type KeyStatus = Schemas["KeyStatus"];
/** The limit that the request counted against; `null` where the answer does not tell (a page of another origin). */
export type RateLimit = {
    limit: number;
    remaining: number;
} | null;
/** An answer, with the limit that it counted against. */
export type Answer<T> = T & {
    rateLimit: RateLimit;
};
/** The signed requests, and their answers. */
export interface Operations {
    verify: VerificationResult;
    profile: Profile;
    generate: IssuedKey;
    rotate: IssuedKey;
    revoke: RevokedKey;
}
/** Options of the client. */
export interface TiergateOptions extends RetryOptions {
    /** Used instead of the global `fetch`. */
    fetch?: typeof fetch;
    /** Milliseconds to wait for each answer; 30,000 unless set. */
    timeoutMs?: number;
    /** The host that may be asked by plain http though it is not this machine, because the way to it is safe. */
    allowHttp?: string;
    /** Parts of the domain that are known beforehand. They win over the service's. */
    domain?: Partial<Domain>;
    /**
     * The service's name. Changes of keys are signed for it, as types of their own. Unless set, they are where the service says
     * so, and its name must be the client's URL. `true` takes every name, for signers whose owner reads it.
     */
    serviceName?: string | true;
}
/** Options of a call. */
export interface CallOptions {
    signal?: AbortSignal;
}
/** Options of a call that makes a key. They are not part of what is signed. */
export interface KeyOptions extends CallOptions {
    /** The URL that the key is for. */
    declaredEndpoint?: string;
    /** Tells the key from the agent's others: 1 to 32 letters, digits, `.`, `_` and `-`. */
    name?: string;
    /** After how many seconds the key is refused. Left out, it does not end. */
    expiresIn?: number;
    /** The ids of the gateway's tenants that the key opens, and no other. Left out, it opens all. */
    tenants?: readonly string[];
}
/** Options of a call that replaces a key. `name` says which; left out, it is the only one, or that without a name. */
export interface RotateOptions extends KeyOptions {
    /** For how many seconds the replaced key goes on, an hour at most. Left out, it is refused at once. */
    graceSeconds?: number;
}
/** Options of a call that revokes keys. */
export interface RevokeOptions extends CallOptions {
    /** The one that is revoked. Left out, all are. */
    name?: string;
}
/**
 * A service. Its calls fail with a {@link TiergateError}; an aborted one with the signal's reason, one whose signer fails
 * with the signer's error.
 */
export declare class Tiergate {
    #private;
    private readonly base;
    private kept;
    private readonly clock;
    /**
     * `url` is the address of the API; it may have a path. Throws a `TypeError` if it is no URL of https, or has a
     * login. Plain http is for this machine, and for the host that `allowHttp` names.
     */
    constructor(url: string | URL, options?: TiergateOptions);
    /** Returns what owners sign and the tiers. Kept for five minutes. */
    signing(options?: CallOptions): Promise<Signing>;
    /** Verifies an agent by its API key. */
    verify(credential: {
        apiKey: string;
        agentId?: AgentId;
        origin?: string;
    }, options?: CallOptions): Promise<Answer<VerificationResult>>;
    /** Verifies an agent by its owner's signature. */
    verifySignature(agentId: AgentId, signer: Signer, options?: CallOptions): Promise<Answer<VerificationResult>>;
    /** Reads an agent's profile as its owner. The agent may have any tier. */
    profile(agentId: AgentId, signer: Signer, options?: CallOptions): Promise<Answer<Profile>>;
    /** Makes, replaces and revokes an agent's key. */
    readonly keys: {
        /** Makes the agent's key. The answer has it this once, in `apiKey`; `console.log` of the answer does not show it. */
        generate: (agentId: AgentId, signer: Signer, options?: KeyOptions) => Promise<Answer<IssuedKey>>;
        /** Replaces the agent's key. The old one is invalid at once, or after `graceSeconds`. */
        rotate: (agentId: AgentId, signer: Signer, options?: RotateOptions) => Promise<Answer<IssuedKey>>;
        /** Revokes the agent's keys, or the one that `name` says. Succeeds also without one. */
        revoke: (agentId: AgentId, signer: Signer, options?: RevokeOptions) => Promise<Answer<RevokedKey>>;
        /** Tells if the agent has a key. */
        status: (agentId: AgentId, options?: CallOptions) => Promise<Answer<KeyStatus>>;
    };
    /** Returns what an operation's signer signs, for signers elsewhere: give the signature to {@link send}. */
    typedData(agentId: AgentId, operation: keyof Operations, options?: CallOptions): Promise<TypedData>;
    /** The name that changes of keys are signed for; `undefined` at a service without own types. A service could name another. */
    private serviceName;
    /** Sends an operation with the signature that was made of its typed data. Once it is refused for its timestamp, {@link typedData} has the service's time. */
    send<O extends keyof Operations>(operation: O, typedData: TypedData, signature: string, options?: RotateOptions): Promise<Answer<Operations[O]>>;
    /** The service's time in Unix milliseconds: this computer's, unless {@link correctClock} has set it. */
    now(): number;
    /**
     * Takes the service's time from an error that refuses a timestamp. True if it is known now, from this error or from that
     * of a request beside this one: signing again may succeed, once. Clocks that are more than a day apart stay so.
     */
    correctClock(error: unknown): boolean;
    private signed;
    private sent;
    /** Repeats only what the service refused before it did anything: no key is made, and no verification charged, twice. */
    private request;
    private once;
}
export {};
