// A `fetch` for APIs behind the gateway.

import { showingOf, type Credential } from "./credential.js";
import { REDIRECTS, addressOf, errorOf, retryAfter, type TiergateError } from "./errors.js";
import { Patience, isRefusedForNow, type RetryOptions } from "./retry.js";

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
 * refused before it forwarded them: after a wait for 503 (`OVERLOADED`, `RPC_ERROR`, or signatures that can't be verified now),
 * and once for a time, signed by the service's clock, or for an `Accept-Signature`. Follows redirects of GET and HEAD only, without the credential once they
 * have left the gateway. Throws a `TypeError` if the gateway's address or the credential is malformed; the `fetch` does if the
 * request has a header that the credential is shown in, or a stream for a body whose digest is to be signed.
 */
export function agentFetch(
  gateway: string | URL,
  credential: Credential,
  options: AgentFetchOptions = {},
): typeof fetch {
  const base = addressOf(gateway);
  const show = showingOf(credential);
  return async (input, init = {}) => {
    const request = input instanceof Request ? input : undefined;
    const { method = "GET", headers: given, redirect = "follow", signal } = { ...pick(request), ...init };
    const isBodyless = /^(get|head)$/i.test(method);
    const patience = new Patience(options);
    const own = headersOf(given);
    let url = addressIn(request ? request.url : (input as string | URL), base);
    // Another origin must not choose a request that the agent is charged for, so it does not return with a redirect.
    let isShown = url.origin === base.origin;
    let isCorrected = false;
    const whole = isShown && "account" in credential ? await wholeBody(isBodyless ? undefined : request, init.body) : undefined;
    // A form has another boundary each time it is encoded.
    if (whole?.type && !own.has("content-type")) own.set("content-type", whole.type);
    const isRepeatable = whole !== undefined || (!request?.body && !isStream(init.body));
    const showing = show(method, whole?.body ?? new ArrayBuffer(0));
    for (let redirects = 0; ; ) {
      const headers = new Headers(own);
      if (isShown) await showing.show(url, headers, signal ?? undefined);
      const target = request && redirects > 0 ? new Request(url, request) : (request ?? url);
      // fetch itself would show our headers to the redirect's origin.
      const mode = redirect === "follow" ? "manual" : redirect;
      const response = await (options.fetch ?? fetch)(target, { ...init, ...(whole && { body: whole.body }), headers, redirect: mode });
      const location = response.headers.get("location");
      if (redirect === "follow" && response.type === "opaqueredirect") {
        throw new TypeError(`${url.origin} redirects, and a browser does not tell where to`);
      }
      if (redirect === "follow" && isBodyless && REDIRECTS.includes(response.status) && location !== null) {
        if (++redirects > REDIRECTS_MAX) throw new TypeError("Too many redirects");
        const next = addressIn(location, url);
        if (next.origin !== url.origin) {
          isShown = false;
          for (const name of OF_ONE_ORIGIN) own.delete(name);
        }
        url = next;
      } else {
        if (!isRepeatable) return response;
        const error = isShown ? await refusalOf(response) : null;
        if (isShown && !isCorrected && showing.learnsFrom(response, error)) {
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

/**
 * The gateway's refusal in an answer that may be one. Other answers are not read. The gateway writes the agent's limit into
 * what comes from the API.
 */
async function refusalOf(response: Response): Promise<TiergateError | null> {
  const { headers, status } = response;
  const isJson = /^application\/json\b/.test(headers.get("content-type") ?? "");
  const isOfApi = headers.has("x-ratelimit-limit");
  const mayBeRefusal = [400, 503].includes(status) || (status === 401 && headers.has("accept-signature"));
  return isJson && !isOfApi && mayBeRefusal ? errorOf(response) : null;
}

/**
 * The body as `fetch` would send it, in memory, and its type; `undefined` if there is none. A stream is refused: it is signed
 * before it is sent, so that it would have to end first.
 */
async function wholeBody(
  request: Request | undefined,
  given: BodyInit | null | undefined,
): Promise<{ body: ArrayBuffer; type: string | null } | undefined> {
  if (isStream(given)) throw new TypeError("A stream can't be signed: give the body whole");
  if (given != null) {
    const encoded = new Response(given);
    return { body: await encoded.arrayBuffer(), type: encoded.headers.get("content-type") };
  }
  // Its headers have the type.
  if (request && request.body !== null) return { body: await request.arrayBuffer(), type: null };
  return undefined;
}

/** Errors of `Headers` and `URL` quote what they can't take. It may hold a secret. */
function headersOf(given: HeadersInit | undefined): Headers {
  try {
    return new Headers(given);
  } catch {
    throw new TypeError("The request's headers are malformed");
  }
}

function addressIn(text: string | URL, base: URL): URL {
  const url = URL.canParse(text, base) ? new URL(text, base) : undefined;
  if (url && !url.username && !url.password) return url;
  throw new TypeError("The address of the request, or of a redirect, is malformed, or has a login");
}

function pick(request: Request | undefined): RequestInit {
  if (!request) return {};
  const { method, headers, redirect, signal } = request;
  return { method, headers, redirect, signal };
}

function isStream(body: unknown): boolean {
  return body instanceof ReadableStream || Symbol.asyncIterator in Object(body);
}
