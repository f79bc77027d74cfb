// Waiting before another try.
import { TiergateError } from "./errors.js";
/** Counts the tries of one call. */
export class Patience {
    options;
    attempt = 1;
    leftMs;
    stepMs = 500;
    constructor(options) {
        this.options = options;
        this.leftMs = options.maxWaitMs ?? 60_000;
    }
    /** Waits, and returns true; or returns false if the call is to fail. Without `retryAfter` waits grow from half a second. */
    async wait(status, error, retryAfter, signal) {
        const { retries = 2, onRetry } = this.options;
        const waitMs = retryAfter === undefined ? (this.stepMs *= 2) * (0.5 + Math.random() / 2) : retryAfter * 1000;
        if (this.attempt > retries || waitMs > this.leftMs)
            return false;
        this.attempt += 1;
        this.leftMs -= waitMs;
        onRetry?.({ waitMs, attempt: this.attempt, status, error });
        await sleep(waitMs, signal);
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
/** What was asked for, unless the signal ends the wait for it. */
export function unlessAborted(asked, signal) {
    return new Promise((resolve, reject) => {
        const stop = () => reject(signal?.reason);
        if (signal?.aborted)
            stop();
        signal?.addEventListener("abort", stop, { once: true });
        Promise.resolve(asked).then(resolve, reject).finally(() => signal?.removeEventListener("abort", stop));
    });
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
