// Waiting before another try.
import { TiergateError } from "./errors.js";
/** Counts the tries of one call. */
export class Patience {
    left;
    seconds;
    step = 0.5;
    constructor({ retries = 2, maxWait = 60 }) {
        this.left = retries;
        this.seconds = maxWait;
    }
    /** Waits, and returns true; or returns false if the call is to fail. Without `retryAfter` waits grow from half a second. */
    async wait(retryAfter, signal) {
        const wait = retryAfter ?? (this.step *= 2) * (0.5 + Math.random() / 2);
        if (this.left === 0 || wait > this.seconds)
            return false;
        this.left -= 1;
        this.seconds -= wait;
        await sleep(wait * 1000, signal);
        return true;
    }
}
/** True if the request was refused before it did anything, and may succeed later. */
export function isRefusedForNow(error) {
    if (!(error instanceof TiergateError))
        return false;
    const isUnverified = error.reason === "signature_verification_unavailable";
    return isUnverified || error.is("RATE_LIMITED") || error.is("RPC_ERROR") || error.is("OVERLOADED");
}
function sleep(milliseconds, signal) {
    return new Promise((resolve, reject) => {
        signal?.throwIfAborted();
        const stop = () => {
            clearTimeout(timer);
            reject(signal?.reason);
        };
        const timer = setTimeout(() => {
            signal?.removeEventListener("abort", stop);
            resolve();
        }, milliseconds);
        signal?.addEventListener("abort", stop, { once: true });
    });
}
