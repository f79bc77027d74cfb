import type { AgentId, Tiergate } from "./client.js";
import { type RetryOptions } from "./retry.js";
import { type Signer } from "./signing.js";
/**
 * An agent's key; or its owner's signer and the service that tells what is signed. The key is shown as `X-API-Key`, with
 * `bearer` as `Authorization: Bearer`, for APIs with an `X-API-Key` of their own.
 */
export type Credential = {
    apiKey: string;
    bearer?: boolean;
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
 * gateway's. Unless their body is a stream, requests are repeated that got 429 with `Retry-After`, or that the gateway
 * refused before it forwarded them: after a wait for 503 (`OVERLOADED`, `RPC_ERROR`), and once for a timestamp, signed by
 * the service's clock. Follows redirects of GET and HEAD only, without the credential once they have left the gateway.
 * Throws a `TypeError` if the gateway's address or the key is malformed; the `fetch` does if the request has the header
 * that the key is shown in.
 */
export declare function agentFetch(gateway: string | URL, credential: Credential, options?: AgentFetchOptions): typeof fetch;
