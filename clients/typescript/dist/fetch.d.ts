import { type Credential } from "./credential.js";
import { type RetryOptions } from "./retry.js";
/** Options of {@link agentFetch}. */
export interface AgentFetchOptions extends RetryOptions {
    /** Used instead of the global `fetch`. */
    fetch?: typeof fetch;
}
/**
 * Returns a `fetch` that shows the agent's credential to the gateway, and to no other origin. Relative URLs are the
 * gateway's. Unless their body is a stream, requests are repeated that got 429 with `Retry-After`, or that the gateway
 * refused before it forwarded them: after a wait for 503 (`OVERLOADED`, `RPC_ERROR`, or signatures that can't be verified now),
 * and once for a time, signed by the service's clock, or for an `Accept-Signature`. Follows redirects of GET and HEAD only, without the credential once they
 * have left the gateway. Throws a `TypeError` if the gateway's address or the credential is malformed; the `fetch` does if the
 * request has a header that the credential is shown in, or a stream for a body whose digest is to be signed.
 */
export declare function agentFetch(gateway: string | URL, credential: Credential, options?: AgentFetchOptions): typeof fetch;
