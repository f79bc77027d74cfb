// What callers give: each wrong argument is named, and none is shown, for it may be a key in the wrong place.
/** The version of this package. */
export const VERSION = "0.1.0";
/** Throws a `TypeError` that names what is wrong. */
export function want(isRight, sentence) {
    if (!isRight)
        throw new TypeError(sentence);
}
const isFunction = (value) => typeof value === "function";
const isNumber = (value) => typeof value === "number" && value >= 0 && value <= 2 ** 31 - 1;
const isCount = (value) => isNumber(value) && Number.isInteger(value);
/** What each option has to be. A timer takes no more milliseconds. */
const RIGHT = {
    fetch: [isFunction, "a function"],
    retries: [isCount, "a number of tries"],
    timeoutMs: [isNumber, "a number of milliseconds"],
    maxWaitMs: [isNumber, "a number of milliseconds"],
    onRetry: [isFunction, "a function"],
    allowHttp: [(value) => typeof value === "string", "the name of a host"],
    domain: [(value) => typeof value === "object", "an object"],
    serviceName: [(value) => typeof value === "string" || value === true, "a name, or true"],
    signal: [(value) => typeof value === "object", "an AbortSignal"],
    declaredEndpoint: [(value) => typeof value === "string", "a URL as text"],
    name: [(value) => typeof value === "string", "a name as text"],
    expiresIn: [isCount, "a number of seconds"],
    graceSeconds: [isCount, "a number of seconds"],
    tenants: [(value) => Array.isArray(value) && value.every((id) => typeof id === "string"), "a list of ids as text"],
};
/** Checks an object of options, which has these names alone. */
export function checkOptions(options, names) {
    want(typeof options === "object" && options !== null, `The options are no object with ${names.join(", ")}`);
    for (const [name, value] of Object.entries(options)) {
        want(names.includes(name), `There is an unknown option. Known are ${names.join(", ")}`);
        const [isRight, kind] = RIGHT[name];
        want(value === undefined || isRight(value), `The option ${name} is not ${kind}`);
    }
}
/** That of Node and what is like it. Browsers have none. */
export const runtime = globalThis.process;
/** Names this package in requests. Other origins ask a browser's gateway for leave to send it, so browsers send their own. */
export const USER_AGENT = runtime?.versions?.node ? `tiergate-typescript/${VERSION}` : undefined;
