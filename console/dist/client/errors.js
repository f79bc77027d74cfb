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
export async function bodyOf(response, field) {
    const { status } = response;
    const body = parse(await response.text());
    if (isObject(body)) {
        if (response.ok && field in body)
            return body;
        const error = errorIn(body, response);
        if (error)
            throw error;
    }
    throw new TiergateError("UNEXPECTED_ANSWER", `Status ${status}, but no answer of Tiergate`, status, undefined);
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
    return new TiergateError(type, error, status, details, retryAfter(headers), timestamp);
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
