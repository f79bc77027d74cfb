import { retryAfter } from "./errors.js";
import { Patience } from "./retry.js";
import { sign } from "./signing.js";
const REDIRECTS = [301, 302, 303, 307, 308];
const REDIRECTS_MAX = 20;
export function agentFetch(gateway, credential, options = {}) {
    const base = new URL(gateway);
    return async (input, init = {}) => {
        const request = input instanceof Request ? input : undefined;
        const { method = "GET", headers: given, redirect = "follow", signal } = { ...pick(request), ...init };
        const isBodyless = /^(get|head)$/i.test(method);
        const isRepeatable = !request?.body && !isStream(init.body);
        const patience = new Patience(options);
        let url = new URL(request ? request.url : input, base);
        for (let redirects = 0;;) {
            const headers = new Headers(given);
            if (url.origin === base.origin) {
                for (const [name, value] of Object.entries(await headersOf(credential)))
                    headers.set(name, value);
            }
            else if (redirects > 0) {
                headers.delete("authorization");
            }
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
                url = new URL(location, url);
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
async function headersOf(credential) {
    if ("apiKey" in credential)
        return { "X-API-Key": credential.apiKey };
    const typedData = await credential.service.typedData(credential.agentId, "verify");
    const { agentId, nonce, timestamp } = typedData.message;
    return {
        "X-Agent-Id": agentId,
        "X-Agent-Signature": await sign(credential.signer, typedData),
        "X-Agent-Nonce": String(nonce),
        "X-Agent-Timestamp": String(timestamp),
    };
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
