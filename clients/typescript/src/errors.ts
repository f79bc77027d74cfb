// Errors: one class, told apart by `errorType`.

import type { components } from "./openapi.js";
import { want } from "./options.js";

type Schemas = components["schemas"];

/** There are none. */
type None = Record<string, never>;

/** The `details` of each `errorType`. An answer without `details` has `{}`. */
export interface ErrorDetails {
  VALIDATION_ERROR: Schemas["ValidationError"]["details"];
  /** `field` is there only if the timestamp was refused, and not the nonce. */
  REPLAY_DETECTED: Partial<Schemas["ReplayDetected"]["details"]> & { agentId: string };
  INVALID_API_KEY: Schemas["InvalidApiKey"]["details"];
  SIGNATURE_INVALID: Schemas["SignatureInvalid"]["details"];
  /** `requiredStake` is missing where a server behind the gateway refused: it does not know the stakes. */
  TIER_BLOCKED: Omit<Schemas["TierBlocked"]["details"], "requiredStake"> & { requiredStake?: string };
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
  INSUFFICIENT_DEPOSIT: { agentId: string; currentBalance: string; requiredAmount: string };
  RELAY_FAILED: { agentId: string; reason: string; txHash: string };
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
export class TiergateError<T extends ErrorType = ErrorType> extends Error {
  override readonly name = "TiergateError";
  /** The request's id in the service's log. */
  readonly requestId: string | undefined;

  constructor(
    readonly errorType: T,
    /** The service's sentence, for people. */
    readonly said: string,
    /** The HTTP status; 0 if no answer came. */
    readonly status: number,
    readonly details: ErrorDetails[T],
    /** Seconds to wait before the next try, if the service named them. */
    readonly retryAfter?: number,
    /** The service's clock in Unix milliseconds. */
    readonly timestamp?: number,
    /** Why a signed request (ERC-8128) was refused. */
    readonly reason?: string,
    further: Further = {},
  ) {
    const facts = [errorType, status > 0 && `status ${status}`, further.requestId && `request ${further.requestId}`];
    super(`${said} (${facts.filter(Boolean).join(", ")}; see docs/errors.md)`, further);
    this.requestId = further.requestId;
  }

  /** True if it is of this type. `details` has the type's fields then. */
  is<U extends ErrorType>(errorType: U): this is TiergateError<U> {
    return (this.errorType as ErrorType) === errorType;
  }
}

/** Fields of a right answer that its readers decide by: their types, or `true` where they have no other value. */
export interface Shape {
  [field: string]: true | "string" | "number" | "boolean" | Shape;
}

/**
 * Returns the body of a successful answer of this shape, or throws the error. `unsure` ends its message where the request may
 * have been carried out.
 */
export async function bodyOf(response: Response, shape: Shape, unsure: string): Promise<object> {
  const { status } = response;
  const body = parse(await response.text());
  if (isObject(body)) {
    if (response.ok && has(body, shape)) return body;
    const error = errorIn(body, response);
    if (error) throw error;
  }
  // A browser does not tell the status of a redirect.
  const isRedirect = response.type === "opaqueredirect" || REDIRECTS.includes(status);
  const message = isRedirect ? redirectOf(response) : `Status ${status}, but no answer of Tiergate`;
  const mayBeDone = response.ok || status >= 500;
  const further = { requestId: requestIdOf(response.headers) };
  const said = mayBeDone ? message + unsure : message;
  throw new TiergateError("UNEXPECTED_ANSWER", said, status, {}, undefined, undefined, undefined, further);
}

function has(value: unknown, shape: Shape): boolean {
  if (!isObject(value)) return false;
  return Object.entries(shape).every(([field, wanted]) => {
    const found = value[field];
    if (typeof wanted === "object") return has(found, wanted);
    return wanted === true ? found === true : typeof found === wanted;
  });
}

/** Names the origin of a redirect. The rest of the address may hold a secret. */
function redirectOf({ headers, status, url }: Response): string {
  const location = headers.get("location");
  let origin = "an address that is not told";
  try {
    if (location !== null) ({ origin } = new URL(location, url));
  } catch {
    // Malformed: not told.
  }
  return `The service's address redirects to ${origin}${status ? ` (status ${status})` : ""}`;
}

/** Reads the error of the gateway or the API in an answer; `null` if it has none. The answer's body stays readable. */
export async function errorOf(response: Response): Promise<TiergateError | null> {
  want(typeof response === "object" && response !== null && "headers" in response, "This is no Response");
  if (response.ok) return null;
  const body = parse(await beginningOf(response));
  return isObject(body) ? errorIn(body, response) : null;
}

/** No error of Tiergate is longer, in bytes. */
const ERROR_BYTES_MAX = 64 * 1024;

/** The body, which stays readable; nothing of a longer one. */
async function beginningOf(response: Response): Promise<string> {
  const reader = response.clone().body?.getReader();
  const decoder = new TextDecoder();
  let text = "";
  for (let bytes = 0; reader; ) {
    const { done, value } = await reader.read();
    if (done) break;
    bytes += value.length;
    if (bytes > ERROR_BYTES_MAX) {
      // It ends with the other half of the body.
      reader.cancel().catch(() => {});
      return "";
    }
    text += decoder.decode(value, { stream: true });
  }
  return text + decoder.decode();
}

function errorIn(body: Record<string, unknown>, { ok, status, headers }: Response): TiergateError | null {
  const { error, errorType, details, timestamp, reason } = body;
  if (ok || typeof error !== "string" || typeof errorType !== "string" || typeof timestamp !== "number") return null;
  const type = errorType as ErrorType;
  const known = (isObject(details) ? details : {}) as ErrorDetails[ErrorType];
  const why = typeof reason === "string" ? reason : undefined;
  return new TiergateError(type, error, status, known, retryAfter(headers), timestamp, why, { requestId: requestIdOf(headers) });
}

function requestIdOf(headers: Headers): string | undefined {
  const id = headers.get("x-request-id") ?? "";
  return /^[!-~]{1,128}$/.test(id) ? id : undefined;
}

/** Statuses that name another address. */
export const REDIRECTS = [301, 302, 303, 307, 308];

/** Reads the address of a service or gateway, or throws. The error has no part of it: it may hold a password. */
export function addressOf(url: string | URL): URL {
  if (URL.canParse(url)) {
    const address = new URL(url);
    if (/^https?:$/.test(address.protocol) && !address.username && !address.password) return address;
  }
  throw new TypeError("The address must be an http or https URL without user name and password");
}

/**
 * Reads the address that keys and signatures go to. By plain http everybody on the way reads them, so that it has to be this
 * machine, or the host that `allowHttp` names.
 */
export function addressForSecrets(url: string | URL, allowHttp: string | undefined): URL {
  const address = addressOf(url);
  const { protocol, hostname } = address;
  const isThisMachine = /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/.test(hostname);
  const bare = (host: string | undefined) => host?.toLowerCase().replace(/^\[(.*)\]$/, "$1");
  const isSafe = protocol === "https:" || isThisMachine || bare(hostname) === bare(allowHttp);
  want(isSafe, "Keys and signatures go by https: others could read them on the way. If the way is safe, name the host as allowHttp");
  return address;
}

/** The seconds of `Retry-After`. Tiergate never sends a date. */
export function retryAfter(headers: Headers): number | undefined {
  const text = headers.get("retry-after") ?? "";
  return /^\d{1,9}$/.test(text) ? Number(text) : undefined;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}
