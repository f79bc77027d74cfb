import type { components } from "./openapi.js";
type Schemas = components["schemas"];
/** There are none. */
type None = Record<string, never>;
/** The `details` of each `errorType`. An answer without `details` has `{}`. */
export interface ErrorDetails {
    VALIDATION_ERROR: Schemas["ValidationError"]["details"];
    /** `field` is there only if the timestamp was refused, and not the nonce. */
    REPLAY_DETECTED: Partial<Schemas["ReplayDetected"]["details"]> & {
        agentId: string;
    };
    INVALID_API_KEY: Schemas["InvalidApiKey"]["details"];
    SIGNATURE_INVALID: Schemas["SignatureInvalid"]["details"];
    /** `requiredStake` is missing where a server behind the gateway refused: it does not know the stakes. */
    TIER_BLOCKED: Omit<Schemas["TierBlocked"]["details"], "requiredStake"> & {
        requiredStake?: string;
    };
    FORBIDDEN: None;
    ENDPOINT_MISMATCH: Schemas["AgentNotFound"]["details"];
    AGENT_NOT_FOUND: Schemas["AgentNotFound"]["details"];
    NOT_FOUND: None;
    METHOD_NOT_ALLOWED: None;
    REQUEST_TIMEOUT: None;
    KEY_ALREADY_EXISTS: Schemas["KeyAlreadyExists"]["details"];
    PAYLOAD_TOO_LARGE: None;
    RATE_LIMITED: Schemas["RateLimited"]["details"];
    REQUEST_HEADER_FIELDS_TOO_LARGE: None;
    /** The request may have been carried out. */
    INTERNAL_ERROR: None;
    UPSTREAM_ERROR: None;
    RPC_ERROR: Schemas["RpcError"]["details"];
    OVERLOADED: None;
    UPSTREAM_TIMEOUT: None;
    LOOP_DETECTED: None;
    INSUFFICIENT_DEPOSIT: {
        agentId: string;
        currentBalance: string;
        requiredAmount: string;
    };
    RELAY_FAILED: {
        agentId: string;
        reason: string;
        txHash: string;
    };
    /**
     * Of the client: the answer is not one of Tiergate, most often a proxy's, or is a redirect. With a status of 2xx or 5xx
     * the request may have been carried out.
     */
    UNEXPECTED_ANSWER: None;
    /** Of the client: no answer came. The request may have been carried out. */
    NO_ANSWER: None;
}
/** The types of the service's errors, and two of the client's own. */
export type ErrorType = keyof ErrorDetails;
/** More about a failed request. */
export interface Further extends ErrorOptions {
    /** The request's id in the service's log. */
    requestId?: string | undefined;
}
/** A request that failed. `message` has the service's sentence, type, status and request id; `said` is the sentence alone. */
export declare class TiergateError<T extends ErrorType = ErrorType> extends Error {
    readonly errorType: T;
    /** The service's sentence, for people. */
    readonly said: string;
    /** The HTTP status; 0 if no answer came. */
    readonly status: number;
    readonly details: ErrorDetails[T];
    /** Seconds to wait before the next try, if the service named them. */
    readonly retryAfter?: number | undefined;
    /** The service's clock in Unix milliseconds. */
    readonly timestamp?: number | undefined;
    /** Why a signed request (ERC-8128) was refused. */
    readonly reason?: string | undefined;
    readonly name = "TiergateError";
    /** The request's id in the service's log. */
    readonly requestId: string | undefined;
    constructor(errorType: T, 
    /** The service's sentence, for people. */
    said: string, 
    /** The HTTP status; 0 if no answer came. */
    status: number, details: ErrorDetails[T], 
    /** Seconds to wait before the next try, if the service named them. */
    retryAfter?: number | undefined, 
    /** The service's clock in Unix milliseconds. */
    timestamp?: number | undefined, 
    /** Why a signed request (ERC-8128) was refused. */
    reason?: string | undefined, further?: Further);
    /** True if it is of this type. `details` has the type's fields then. */
    is<U extends ErrorType>(errorType: U): this is TiergateError<U>;
}
/** Fields of a right answer that its readers decide by: their types, or `true` where they have no other value. */
export interface Shape {
    [field: string]: true | "string" | "number" | "boolean" | Shape;
}
/**
 * Returns the body of a successful answer of this shape, or throws the error. `unsure` ends its message where the request may
 * have been carried out.
 */
export declare function bodyOf(response: Response, shape: Shape, unsure: string): Promise<object>;
/** Reads the error of the gateway or the API in an answer; `null` if it has none. The answer's body stays readable. */
export declare function errorOf(response: Response): Promise<TiergateError | null>;
/** Statuses that name another address. */
export declare const REDIRECTS: number[];
/** Reads the address of a service or gateway, or throws. The error has no part of it: it may hold a password. */
export declare function addressOf(url: string | URL): URL;
/**
 * Reads the address that keys and signatures go to. By plain http everybody on the way reads them, so that it has to be this
 * machine, or the host that `allowHttp` names.
 */
export declare function addressForSecrets(url: string | URL, allowHttp: string | undefined): URL;
/** The seconds of `Retry-After`. Tiergate never sends a date. */
export declare function retryAfter(headers: Headers): number | undefined;
export {};
