export class TiergateError extends Error {
    errorType;
    status;
    details;
    retryAfter;
    timestamp;
    name = "TiergateError";
    constructor(errorType, message, status, details, retryAfter, timestamp, options) {
        super(message, options);
        this.errorType = errorType;
        this.status = status;
        this.details = details;
        this.retryAfter = retryAfter;
        this.timestamp = timestamp;
    }
    is(errorType) {
        return this.errorType === errorType;
    }
}
export async function bodyOf(response, shape) {
    const { status } = response;
    const body = parse(await response.text());
    if (isObject(body)) {
        if (response.ok && has(body, shape))
            return body;
        const error = errorIn(body, response);
        if (error)
            throw error;
    }
    const isRedirect = response.type === "opaqueredirect" || REDIRECTS.includes(status);
    const message = isRedirect ? redirectOf(response) : `Status ${status}, but no answer of Tiergate`;
    throw new TiergateError("UNEXPECTED_ANSWER", message, status, {});
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
function redirectOf({ headers, status, url }) {
    const location = headers.get("location");
    let origin = "an address that is not told";
    try {
        if (location !== null)
            ({ origin } = new URL(location, url));
    }
    catch {
    }
    return `The service's address redirects to ${origin}${status ? ` (status ${status})` : ""}`;
}
export async function errorOf(response) {
    if (response.ok)
        return null;
    const body = parse(await response.clone().text());
    return isObject(body) ? errorIn(body, response) : null;
}
function errorIn(body, { ok, status, headers }) {
    const { error, errorType, details, timestamp } = body;
    if (ok || typeof error !== "string" || typeof errorType !== "string" || typeof timestamp !== "number")
        return null;
    const type = errorType;
    const known = (isObject(details) ? details : {});
    return new TiergateError(type, error, status, known, retryAfter(headers), timestamp);
}
export const REDIRECTS = [301, 302, 303, 307, 308];
export function addressOf(url) {
    if (URL.canParse(url)) {
        const address = new URL(url);
        if (/^https?:$/.test(address.protocol) && !address.username && !address.password)
            return address;
    }
    throw new TypeError("The address must be an http or https URL without user name and password");
}
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
