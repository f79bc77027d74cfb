// Waiting before another try.

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
export class Patience {
  private attempt = 1;
  private leftMs: number;
  private stepMs = 500;

  constructor(private readonly options: RetryOptions) {
    this.leftMs = options.maxWaitMs ?? 60_000;
  }

  /** Waits, and returns true; or returns false if the call is to fail. Without `retryAfter` waits grow from half a second. */
  async wait(
    status: number,
    error: TiergateError | null,
    retryAfter: number | undefined,
    signal: AbortSignal | null | undefined,
  ): Promise<boolean> {
    const { retries = 2, onRetry } = this.options;
    const waitMs = retryAfter === undefined ? (this.stepMs *= 2) * (0.5 + Math.random() / 2) : retryAfter * 1000;
    if (this.attempt > retries || waitMs > this.leftMs) return false;
    this.attempt += 1;
    this.leftMs -= waitMs;
    onRetry?.({ waitMs, attempt: this.attempt, status, error });
    await sleep(waitMs, signal);
    return true;
  }
}

/** True if the request was refused before it did anything, and may succeed later. */
export function isRefusedForNow(error: unknown): error is TiergateError {
  if (!(error instanceof TiergateError)) return false;
  const isUnverified = error.reason === "signature_verification_unavailable";
  return isUnverified || error.is("RATE_LIMITED") || error.is("RPC_ERROR") || error.is("OVERLOADED");
}

/** What was asked for, unless the signal ends the wait for it. */
export function unlessAborted<T>(asked: Promise<T> | T, signal: AbortSignal | undefined): Promise<T> {
  return new Promise((resolve, reject) => {
    const stop = () => reject(signal?.reason);
    if (signal?.aborted) stop();
    signal?.addEventListener("abort", stop, { once: true });
    Promise.resolve(asked).then(resolve, reject).finally(() => signal?.removeEventListener("abort", stop));
  });
}

function sleep(milliseconds: number, signal: AbortSignal | null | undefined): Promise<void> {
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
