import { type Assertion, type AssertionRules } from "./assertion.js";
import type { ErrorDetails } from "./errors.js";
import type { Agent } from "./server.js";
/** The headers that the gateway adds to requests of this agent, for requests to a server under test. */
export declare function agentHeaders(agent?: Partial<Agent>): Record<string, string>;
/** An assertion of this agent by a key of this call, and the rules that `verifyAssertion` takes it by. Needs the package jose. */
export declare function signedAssertion(agent?: Partial<Assertion>): Promise<{
    assertion: string;
    rules: AssertionRules;
}>;
/** The status and usual details of the refusals that a fake gateway knows. */
declare const REFUSALS: {
    readonly INVALID_API_KEY: readonly [401, {
        readonly agentId: null;
    }];
    readonly TIER_BLOCKED: readonly [403, {
        readonly agentId: "4";
        readonly currentTier: 1;
        readonly requiredTier: 2;
        readonly requiredStake: "10000000000000000000000";
    }];
    readonly RATE_LIMITED: readonly [429, {
        readonly agentId: "4";
        readonly tier: 1;
        readonly limit: 60;
        readonly retryAfter: 1;
    }];
    readonly RPC_ERROR: readonly [503, {}];
    readonly OVERLOADED: readonly [503, {}];
};
/** A refusal of a fake gateway. */
export interface FakeRefusal<T extends keyof typeof REFUSALS> {
    /** Seconds; for 429 and 503, 1 unless set. */
    retryAfter?: number;
    details?: Partial<ErrorDetails[T]>;
}
/** A gateway in memory: its `fetch` is an option of `agentFetch`. */
export declare class FakeGateway {
    private readonly api;
    /** The requests that it got, refused ones too. */
    readonly requests: Request[];
    private readonly refusals;
    /** `api` answers the requests that pass. */
    constructor(api?: (request: Request) => Response | Promise<Response>);
    /** The next request is refused; further calls are for those after it. */
    refuse<T extends keyof typeof REFUSALS>(errorType: T, refusal?: FakeRefusal<T>): this;
    /** Refuses requests without a credential with 401. */
    readonly fetch: typeof fetch;
}
export {};
