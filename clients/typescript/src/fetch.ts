// A `fetch` for APIs behind the gateway.

import type { AgentId, Tiergate } from "./client.js";
import { REDIRECTS, addressOf, errorOf, retryAfter, type TiergateError } from "./errors.js";
import { Patience, isRefusedForNow, type RetryOptions } from "./retry.js";
import { sign, type Signer } from "./signing.js";

/**
 * An agent's key; or its owner's signer and the service that tells what is signed. The key is shown as `X-API-Key`, with
 * `bearer` as `Authorization: Bearer`, for APIs with an `X-API-Key` of their own.
 */
export type Credential =
  | { apiKey: string; bearer?: boolean }
  | { agentId: AgentId; signer: Signer; service: Tiergate };

/** Options of {@link agentFetch}. */
export interface AgentFetchOptions extends RetryOptions {
  /** Used instead of the global `fetch`. */
  fetch?: typeof fetch;
}

const REDIRECTS_MAX = 20;

/** Headers of the caller that are for one origin only. */
const OF_ONE_ORIGIN = ["authorization", "cookie", "host", "proxy-authorization", "x-api-key"];

/**
 * Returns a `fetch` that shows the agent's credential to the gateway, and to no other origin. Relative URLs are the
 * gateway's. Unless their body is a stream, requests are repeated that got 429 with `Retry-After`, or that the gateway
 * refused before it forwarded them: after a wait for 503 (`OVERLOADED`, `RPC_ERROR`), and once for a timestamp, signed by
 * the service's clock. Follows redirects of GET and HEAD only, without the credential once they have left the gateway.
 * Throws a `TypeError` if the gateway's address or the key is malformed; the `fetch` does if the request has the header
 * that the key is shown in.
 */
export function agentFetch(
  gateway: string | URL,
  credential: Credential,
  options: AgentFetchOptions = {},
): typeof fetch {
  const base = addressOf(gateway);
  const shown: Credential =
    "apiKey" in credential ? { ...credential, apiKey: headerValue(credential.apiKey, "API key") } : credential;
  return async (input, init = {}) => {
    const request = input instanceof Request ? input : undefined;
    const { method = "GET", headers: given, redirect = "follow", signal } = { ...pick(request), ...init };
    const isBodyless = /^(get|head)$/i.test(method);
    const isRepeatable = !request?.body && !isStream(init.body);
    const patience = new Patience(options);
    const own = new Headers(given);
    let url = new URL(request ? request.url : (input as string | URL), base);
    // Another origin must not choose a request that the agent is charged for, so it does not return with a redirect.
    let isShown = url.origin === base.origin;
    let isCorrected = false;
    if (isShown && "apiKey" in shown && own.has(nameOf(shown))) {
      const other = shown.bearer ? "without bearer" : "with bearer";
      throw new TypeError(`The request has an ${nameOf(shown)} of its own: show the agent's key ${other}`);
    }
    for (let redirects = 0; ; ) {
      const headers = new Headers(own);
      const further = isShown ? await headersOf(shown, signal ?? undefined) : {};
      for (const [name, value] of Object.entries(further)) headers.set(name, value);
      const target = request && redirects > 0 ? new Request(url, request) : (request ?? url);
      // fetch itself would show our headers to the redirect's origin.
      const mode = redirect === "follow" ? "manual" : redirect;
      const response = await (options.fetch ?? fetch)(target, { ...init, headers, redirect: mode });
      const location = response.headers.get("location");
      if (redirect === "follow" && response.type === "opaqueredirect") {
        throw new TypeError(`${url.origin} redirects, and a browser does not tell where to`);
      }
      if (redirect === "follow" && isBodyless && REDIRECTS.includes(response.status) && location !== null) {
        if (++redirects > REDIRECTS_MAX) throw new TypeError("Too many redirects");
        const next = new URL(location, url);
        if (next.origin !== url.origin) {
          isShown = false;
          for (const name of OF_ONE_ORIGIN) own.delete(name);
        }
        url = next;
      } else {
        if (!isRepeatable) return response;
        const error = isShown ? await refusalOf(response) : null;
        if (!isCorrected && "service" in shown && shown.service.correctClock(error)) {
          isCorrected = true;
        } else {
          const seconds = retryAfter(response.headers);
          const mayRepeat = response.status === 429 ? seconds !== undefined : isRefusedForNow(error);
          if (!mayRepeat || !(await patience.wait(seconds, signal))) return response;
        }
      }
      await response.body?.cancel();
    }
  };
}

/** The header that the key is shown in. */
function nameOf({ bearer = false }: { bearer?: boolean }): string {
  return bearer ? "Authorization" : "X-API-Key";
}

/**
 * The gateway's refusal in an answer that may be one. Other answers are not read. The gateway writes the agent's limit into
 * what comes from the API.
 */
async function refusalOf(response: Response): Promise<TiergateError | null> {
  const { headers, status } = response;
  const isJson = /^application\/json\b/.test(headers.get("content-type") ?? "");
  const isOfApi = headers.has("x-ratelimit-limit");
  return isJson && !isOfApi && [400, 503].includes(status) ? errorOf(response) : null;
}

/** Headers of one request. A signature is good for one. */
async function headersOf(credential: Credential, signal: AbortSignal | undefined): Promise<Record<string, string>> {
  if ("apiKey" in credential) {
    return { [nameOf(credential)]: credential.bearer ? `Bearer ${credential.apiKey}` : credential.apiKey };
  }
  const typedData = await credential.service.typedData(credential.agentId, "verify", signal ? { signal } : {});
  signal?.throwIfAborted();
  const { agentId, nonce, timestamp } = typedData.message;
  return {
    "X-Agent-Id": agentId,
    "X-Agent-Signature": headerValue(await sign(credential.signer, typedData), "signature"),
    "X-Agent-Nonce": String(nonce),
    "X-Agent-Timestamp": String(timestamp),
  };
}

/** Refuses a secret that no header takes here: errors of `Headers` quote their values. */
function headerValue(secret: string, name: string): string {
  const value = secret.trim();
  if (!/^[!-~]+$/.test(value)) throw new TypeError(`The ${name} is empty, or has other characters than those of ASCII`);
  return value;
}

function pick(request: Request | undefined): RequestInit {
  if (!request) return {};
  const { method, headers, redirect, signal } = request;
  return { method, headers, redirect, signal };
}

function isStream(body: unknown): boolean {
  return body instanceof ReadableStream || Symbol.asyncIterator in Object(body);
}
