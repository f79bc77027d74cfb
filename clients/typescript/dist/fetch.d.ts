import type { AgentId, Tiergate } from "./client.js";
import { type RetryOptions } from "./retry.js";
import { type Signer } from "./signing.js";
/** An agent's key; or its owner's signer and the service that tells what is signed. */
export type Credential = {
    apiKey: string;
} | {
    agentId: AgentId;
    signer: Signer;
    service: Tiergate;
};
/** Options of {@link agentFetch}. */
export interface AgentFetchOptions extends RetryOptions {
    /** Used instead of the global `fetch`. */
    fetch?: typeof fetch;
}
/**
 * Returns a `fetch` that shows the agent's credential to the gateway, and to no other origin. Relative URLs are the
 * gateway's. Waits and repeats requests that got 429 with `Retry-After`, unless their body is a stream. Follows redirects
 * of GET and HEAD only, without the credential once they have left the gateway. Throws a `TypeError` if the gateway's
 * address or the key is malformed.
 */
export declare function agentFetch(gateway: string | URL, credential: Credential, options?: AgentFetchOptions): typeof fetch;
