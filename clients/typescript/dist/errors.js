// Errors: one class, told apart by `errorType`.
import { want } from "./options.js";
/** A request that failed. `message` has the service's sentence, type, status and request id; `said` is the sentence alone. */
export class TiergateError extends Error {
    errorType;
    said;
    status;
    details;
    retryAfter;
    timestamp;
    reason;
    name = "TiergateError";
    /** The request's id in the service's log. */
    requestId;
    constructor(errorType, 
    /** The service's sentence, for people. */
    said, 
    /** The HTTP status; 0 if no answer came. */
    status, details, 
    /** Seconds to wait before the next try, if the service named them. */
    retryAfter, 
    /** The service's clock in Unix milliseconds. */
    timestamp, 
    /** Why a signed request (ERC-8128) was refused. */
    reason, further = {}) {
        const facts = [errorType, status > 0 && `status ${status}`, further.requestId && `request ${further.requestId}`];
        super(`${said} (${facts.filter(Boolean).join(", ")}; see docs/errors.md)`, further);
        this.errorType = errorType;
        this.said = said;
        this.status = status;
        this.details = details;
        this.retryAfter = retryAfter;
        this.timestamp = timestamp;
        this.reason = reason;
        this.requestId = further.requestId;
    }
    /** True if it is of this type. `details` has the type's fields then. */
    is(errorType) {
        return this.errorType === errorType;
    }
}
/**
 * Returns the body of a successful answer of this shape, or throws the error. `unsure` ends its message where the request may
 * have been carried out.
 */
export async function bodyOf(response, shape, unsure) {
    const { status } = response;
    const body = parse(await response.text());
    if (isObject(body)) {
        if (response.ok && has(body, shape))
            return body;
        const error = errorIn(body, response);
        if (error)
            throw error;
    }
    // A browser does not tell the status of a redirect.
    const isRedirect = response.type === "opaqueredirect" || REDIRECTS.includes(status);
    const message = isRedirect ? redirectOf(response) : `Status ${status}, but no answer of Tiergate`;
    const mayBeDone = response.ok || status >= 500;
    const further = { requestId: requestIdOf(response.headers) };
    const said = mayBeDone ? message + unsure : message;
    throw new TiergateError("UNEXPECTED_ANSWER", said, status, {}, undefined, undefined, undefined, further);
}
function has(value, shape) {
    if (!isObject(value))
        return false;
    return Object.entries(shape).every(([field, wanted]) => {
        const found = value[field];
        if (typeof wanted === "object")
            return has(found, wanted);
        return wanted === true ? found === true : typeof found === wanted;
    });
}
/** Names the origin of a redirect. The rest of the address may hold a secret. */
function redirectOf({ headers, status, url }) {
    const location = headers.get("location");
    let origin = "an address that is not told";
    try {
        if (location !== null)
            ({ origin } = new URL(location, url));
    }
    catch {
        // Malformed: not told.
    }
    return `The service's address redirects to ${origin}${status ? ` (status ${status})` : ""}`;
}
/** Reads the error of the gateway or the API in an answer; `null` if it has none. The answer's body stays readable. */
export async function errorOf(response) {
    want(typeof response === "object" && response !== null && "headers" in response, "This is no Response");
    if (response.ok)
        return null;
    const body = parse(await beginningOf(response));
    return isObject(body) ? errorIn(body, response) : null;
}
/** No error of Tiergate is longer, in bytes. */
const ERROR_BYTES_MAX = 64 * 1024;
/** The body, which stays readable; nothing of a longer one. */
async function beginningOf(response) {
    const reader = response.clone().body?.getReader();
    const decoder = new TextDecoder();
    let text = "";
    for (let bytes = 0; reader;) {
        const { done, value } = await reader.read();
        if (done)
            break;
        bytes += value.length;
        if (bytes > ERROR_BYTES_MAX) {
            // It ends with the other half of the body.
            reader.cancel().catch(() => { });
            return "";
        }
        text += decoder.decode(value, { stream: true });
    }
    return text + decoder.decode();
}
function errorIn(body, { ok, status, headers }) {
    const { error, errorType, details, timestamp, reason } = body;
    if (ok || typeof error !== "string" || typeof errorType !== "string" || typeof timestamp !== "number")
        return null;
    const type = errorType;
    const known = (isObject(details) ? details : {});
    const why = typeof reason === "string" ? reason : undefined;
    return new TiergateError(type, error, status, known, retryAfter(headers), timestamp, why, { requestId: requestIdOf(headers) });
}
function requestIdOf(headers) {
    const id = headers.get("x-request-id") ?? "";
    return /^[!-~]{1,128}$/.test(id) ? id : undefined;
}
/** Statuses that name another address. */
export const REDIRECTS = [301, 302, 303, 307, 308];
/** Reads the address of a service or gateway, or throws. The error has no part of it: it may hold a password. */
export function addressOf(url) {
    if (URL.canParse(url)) {
        const address = new URL(url);
        if (/^https?:$/.test(address.protocol) && !address.username && !address.password)
            return address;
    }
    throw new TypeError("The address must be an http or https URL without user name and password");
}
/**
 * Reads the address that keys and signatures go to. By plain http everybody on the way reads them, so that it has to be this
 * machine, or the host that `allowHttp` names.
 */
export function addressForSecrets(url, allowHttp) {
    const address = addressOf(url);
    const { protocol, hostname } = address;
    const isThisMachine = /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/.test(hostname);
    const bare = (host) => host?.toLowerCase().replace(/^\[(.*)\]$/, "$1");
    const isSafe = protocol === "https:" || isThisMachine || bare(hostname) === bare(allowHttp);
    want(isSafe, "Keys and signatures go by https: others could read them on the way. If the way is safe, name the host as allowHttp");
    return address;
}
/** The seconds of `Retry-After`. Tiergate never sends a date. */
export function retryAfter(headers) {
    const text = headers.get("retry-after") ?? "";
    return /^\d{1,9}$/.test(text) ? Number(text) : undefined;
}
function parse(text) {
    try {
        return JSON.parse(text);
    }
    catch {
        return undefined;
    }
}
function isObject(value) {
    return typeof value === "object" && value !== null;
}
