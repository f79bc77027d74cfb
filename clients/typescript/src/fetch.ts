// A `fetch` for APIs behind the gateway.

import { showingOf, type Credential } from "./credential.js";
import { REDIRECTS, addressForSecrets, errorOf, retryAfter, type TiergateError } from "./errors.js";
import { USER_AGENT, checkOptions } from "./options.js";
import { Patience, isRefusedForNow, type RetryOptions } from "./retry.js";

/** Options of {@link agentFetch}. */
export interface AgentFetchOptions extends RetryOptions {
  /** Used instead of the global `fetch`. */
  fetch?: typeof fetch;
  /** The host of the gateway, where it may be asked by plain http though it is not this machine, because the way to it is safe. */
  allowHttp?: string;
}

const OPTIONS = ["fetch", "allowHttp", "retries", "maxWaitMs", "onRetry"];

/** Bodies of a `Request` that are longer are not repeated, in bytes. */
const REPEATED_BYTES_MAX = 1024 * 1024;

const REDIRECTS_MAX = 20;

/** Headers of the caller that are for one origin only. */
const OF_ONE_ORIGIN = ["authorization", "cookie", "host", "proxy-authorization", "x-api-key"];

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
export function agentFetch(
  gateway: string | URL,
  credential: Credential,
  options: AgentFetchOptions = {},
): typeof fetch {
  checkOptions(options, OPTIONS);
  const base = addressForSecrets(gateway, options.allowHttp);
  const below = new URL(base.pathname.replace(/\/?$/, "/"), base);
  const show = showingOf(credential);
  const others = new Set<string>();
  return async (input, init = {}) => {
    const request = input instanceof Request ? input : undefined;
    const { method = "GET", headers: given, redirect = "follow", signal } = { ...pick(request), ...init };
    const isBodyless = /^(get|head)$/i.test(method);
    const patience = new Patience(options);
    const own = headersOf(given);
    let url = addressIn(request ? request.url : (input as string | URL), below);
    // Another origin must not choose a request that the agent is charged for, so it does not return with a redirect.
    let isShown = url.origin === base.origin;
    if (!isShown && !others.has(url.origin)) {
      others.add(url.origin);
      console.warn(`tiergate: ${url.origin} is not the gateway ${base.origin}: requests to it carry no credential`);
    }
    let isCorrected = false;
    const withBody = isBodyless ? undefined : request;
    const whole = !isShown ? undefined : "account" in credential ? await wholeBody(withBody, init.body, signal) : await shortBody(withBody, init.body, signal);
    // A form has another boundary each time it is encoded.
    if (whole?.type && !own.has("content-type")) own.set("content-type", whole.type);
    const isRepeatable = whole !== undefined || (!request?.body && !isStream(init.body));
    const showing = show(method, whole?.body ?? new ArrayBuffer(0));
    for (let redirects = 0; ; ) {
      const headers = new Headers(own);
      if (isShown && USER_AGENT && !headers.has("user-agent")) headers.set("user-agent", USER_AGENT);
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
        const error = isShown ? await refusalOf(response) : null;
        // What a stream's refusal tells is for the next request.
        const isLearned = isShown && !isCorrected && (await showing.learnsFrom(response, error, signal ?? undefined));
        if (!isRepeatable) return response;
        if (isLearned) {
          isCorrected = true;
        } else {
          const seconds = retryAfter(response.headers);
          const mayRepeat = response.status === 429 ? seconds !== undefined : isRefusedForNow(error);
          if (!mayRepeat || !(await patience.wait(response.status, error, seconds, signal))) return response;
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
  // The gateway's own 429 has a limit, too.
  const isOfApi = headers.has("x-ratelimit-limit") && status !== 429;
  return isJson && !isOfApi && [400, 401, 429, 503].includes(status) ? errorOf(response) : null;
}

/**
 * The body as `fetch` would send it, in memory, and its type; `undefined` if there is none. A stream is refused: it is signed
 * before it is sent, so that it would have to end first.
 */
async function wholeBody(
  request: Request | undefined,
  given: BodyInit | null | undefined,
  signal: AbortSignal | null | undefined,
): Promise<{ body: ArrayBuffer; type: string | null } | undefined> {
  if (isStream(given)) throw new TypeError("A stream can't be signed: give the body whole");
  if (given != null) {
    const encoded = new Response(given);
    return { body: await encoded.arrayBuffer(), type: encoded.headers.get("content-type") };
  }
  // Its headers have the type.
  const body = request?.body && (await read(request.body, Infinity, signal));
  return body ? { body, type: null } : undefined;
}

/** The body of a `Request`, in memory; `undefined` if there is none, or it is longer than what is repeated. */
async function shortBody(
  request: Request | undefined,
  given: BodyInit | null | undefined,
  signal: AbortSignal | null | undefined,
): Promise<{ body: ArrayBuffer; type: null } | undefined> {
  if (given != null || !request?.body) return undefined;
  const half = request.clone().body!;
  try {
    const body = await read(half, REPEATED_BYTES_MAX, signal);
    return body && { body, type: null };
  } catch (error) {
    // Its source ends when both halves do.
    request.body.cancel(error).catch(() => {});
    throw error;
  }
}

/** Reads a stream to its end; `undefined` if it is longer. Its source may never give a piece, so that the signal ends it. */
async function read(
  stream: ReadableStream<Uint8Array<ArrayBuffer>>,
  bytesMax: number,
  signal: AbortSignal | null | undefined,
): Promise<ArrayBuffer | undefined> {
  const pieces: Uint8Array<ArrayBuffer>[] = [];
  const reader = stream.getReader();
  // What is waited for ends with that.
  const stop = () => void reader.cancel(signal?.reason).catch(() => {});
  if (signal?.aborted) stop();
  signal?.addEventListener("abort", stop, { once: true });
  try {
    for (let bytes = 0; ; ) {
      const { done, value } = await reader.read();
      signal?.throwIfAborted();
      if (done) return await new Blob(pieces).arrayBuffer();
      bytes += value.length;
      if (bytes > bytesMax) {
        stop();
        return undefined;
      }
      pieces.push(value);
    }
  } finally {
    signal?.removeEventListener("abort", stop);
  }
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
