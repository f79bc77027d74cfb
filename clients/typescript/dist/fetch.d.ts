import { type Credential } from "./credential.js";
import { type RetryOptions } from "./retry.js";
/** Options of {@link agentFetch}. */
export interface AgentFetchOptions extends RetryOptions {
    /** Used instead of the global `fetch`. */
    fetch?: typeof fetch;
    /** The host of the gateway, where it may be asked by plain http though it is not this machine, because the way to it is safe. */
    allowHttp?: string;
}
/**
 * Returns a `fetch` that shows the agent's credential to the gateway, and to no other origin. Relative URLs are
 * below the gateway's address: `x` is below its path, `/x` below its origin. Unless their body is a stream, or a `Request`'s of more
 * than 1 MiB, requests are repeated that got 429 with `Retry-After`, or that the gateway
 * refused before it forwarded them: after a wait for 503 (`OVERLOADED`, `RPC_ERROR`, or signatures that can't be verified now),
 * and once for a time, signed by the service's clock, for an `Accept-Signature`, or for a key that
 * was rotated. A `Request`'s body is read before it is sent: whole where its digest is signed, else up to 1 MiB. Follows redirects of GET and HEAD only, without the credential once they
 * have left the gateway. Throws a `TypeError` if the gateway's address or the credential is malformed; the `fetch` does if the
 * request has a header that the credential is shown in, or a stream for a body whose digest is to be signed.
 */
export declare function agentFetch(gateway: string | URL, credential: Credential, options?: AgentFetchOptions): typeof fetch;
