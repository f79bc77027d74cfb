import { TiergateError } from "./errors.js";
/** How often and how long to wait for the service. */
export interface RetryOptions {
    /** Tries after the first one; 2 unless set. */
    retries?: number;
    /** The most milliseconds that one call waits between its tries, in all; 60,000 unless set. A longer `Retry-After` is not waited for. */
    maxWaitMs?: number;
    /** Called before each wait. */
    onRetry?: (retry: Retry) => void;
}
/** A wait before another try. */
export interface Retry {
    waitMs: number;
    /** The number of the try that follows: 2 for the first repetition. */
    attempt: number;
    /** The HTTP status of the refusal. */
    status: number;
    /** The refusal, where it has the form of Tiergate's. */
    error: TiergateError | null;
}
/** Counts the tries of one call. */
export declare class Patience {
    private readonly options;
    private attempt;
    private leftMs;
    private stepMs;
    constructor(options: RetryOptions);
    /** Waits, and returns true; or returns false if the call is to fail. Without `retryAfter` waits grow from half a second. */
    wait(status: number, error: TiergateError | null, retryAfter: number | undefined, signal: AbortSignal | null | undefined): Promise<boolean>;
}
/** True if the request was refused before it did anything, and may succeed later. */
export declare function isRefusedForNow(error: unknown): error is TiergateError;
/** What was asked for, unless the signal ends the wait for it. */
export declare function unlessAborted<T>(asked: Promise<T> | T, signal: AbortSignal | undefined): Promise<T>;
