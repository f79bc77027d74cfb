import { TiergateError } from "./errors.js";
/** How often and how long to wait for the service. */
export interface RetryOptions {
    /** Tries after the first one; 2 unless set. */
    retries?: number;
    /** The most seconds that one call waits between its tries, in all; 60 unless set. A longer `Retry-After` is not waited for. */
    maxWait?: number;
}
/** Counts the tries of one call. */
export declare class Patience {
    private left;
    private seconds;
    private step;
    constructor({ retries, maxWait }: RetryOptions);
    /** Waits, and returns true; or returns false if the call is to fail. Without `retryAfter` waits grow from half a second. */
    wait(retryAfter: number | undefined, signal: AbortSignal | null | undefined): Promise<boolean>;
}
/** True if the request was refused before it did anything, and may succeed later. */
export declare function isRefusedForNow(error: unknown): error is TiergateError;
