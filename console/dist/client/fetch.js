import { REDIRECTS, addressOf, retryAfter } from "./errors.js";
import { Patience } from "./retry.js";
import { sign } from "./signing.js";
const REDIRECTS_MAX = 20;
const OF_ONE_ORIGIN = ["authorization", "cookie", "host", "proxy-authorization"];
export function agentFetch(gateway, credential, options = {}) {
    const base = addressOf(gateway);
    const shown = "apiKey" in credential ? { apiKey: headerValue(credential.apiKey, "API key") } : credential;
    return async (input, init = {}) => {
        const request = input instanceof Request ? input : undefined;
        const { method = "GET", headers: given, redirect = "follow", signal } = { ...pick(request), ...init };
        const isBodyless = /^(get|head)$/i.test(method);
        const isRepeatable = !request?.body && !isStream(init.body);
        const patience = new Patience(options);
        const own = new Headers(given);
        let url = new URL(request ? request.url : input, base);
        let isShown = url.origin === base.origin;
        for (let redirects = 0;;) {
            const headers = new Headers(own);
            const further = isShown ? await headersOf(shown, signal ?? undefined) : {};
            for (const [name, value] of Object.entries(further))
                headers.set(name, value);
            const target = request && redirects > 0 ? new Request(url, request) : (request ?? url);
            const mode = redirect === "follow" ? "manual" : redirect;
            const response = await (options.fetch ?? fetch)(target, { ...init, headers, redirect: mode });
            const location = response.headers.get("location");
            if (redirect === "follow" && response.type === "opaqueredirect") {
                throw new TypeError(`${url.origin} redirects, and a browser does not tell where to`);
            }
            if (redirect === "follow" && isBodyless && REDIRECTS.includes(response.status) && location !== null) {
                if (++redirects > REDIRECTS_MAX)
                    throw new TypeError("Too many redirects");
                const next = new URL(location, url);
                if (next.origin !== url.origin) {
                    isShown = false;
                    for (const name of OF_ONE_ORIGIN)
                        own.delete(name);
                }
                url = next;
            }
            else {
                const seconds = retryAfter(response.headers);
                const mayRepeat = response.status === 429 && seconds !== undefined && isRepeatable;
                if (!mayRepeat || !(await patience.wait(seconds, signal)))
                    return response;
            }
            await response.body?.cancel();
        }
    };
}
async function headersOf(credential, signal) {
    if ("apiKey" in credential)
        return { "X-API-Key": credential.apiKey };
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
function headerValue(secret, name) {
    const value = secret.trim();
    if (!/^[!-~]+$/.test(value))
        throw new TypeError(`The ${name} is empty, or has other characters than those of ASCII`);
    return value;
}
function pick(request) {
    if (!request)
        return {};
    const { method, headers, redirect, signal } = request;
    return { method, headers, redirect, signal };
}
function isStream(body) {
    return body instanceof ReadableStream || Symbol.asyncIterator in Object(body);
}
