// Waiting before another try.

import { TiergateError } from "./errors.js";

/** How often and how long to wait for the service. */
export interface RetryOptions {
  /** Tries after the first one; 2 unless set. */
  retries?: number;
  /** The most seconds that one call waits between its tries, in all; 60 unless set. A longer `Retry-After` is not waited for. */
  maxWait?: number;
}

/** Counts the tries of one call. */
export class Patience {
  private left: number;
  private seconds: number;
  private step = 0.5;

  constructor({ retries = 2, maxWait = 60 }: RetryOptions) {
    this.left = retries;
    this.seconds = maxWait;
  }

  /** Waits, and returns true; or returns false if the call is to fail. Without `retryAfter` waits grow from half a second. */
  async wait(retryAfter: number | undefined, signal: AbortSignal | null | undefined): Promise<boolean> {
    const wait = retryAfter ?? (this.step *= 2) * (0.5 + Math.random() / 2);
    if (this.left === 0 || wait > this.seconds) return false;
    this.left -= 1;
    this.seconds -= wait;
    await sleep(wait * 1000, signal);
    return true;
  }
}

/** True if the request was refused before it did anything, and may succeed later. */
export function isRefusedForNow(error: unknown): error is TiergateError {
  if (!(error instanceof TiergateError)) return false;
  const isUnverified = error.reason === "signature_verification_unavailable";
  return isUnverified || error.is("RATE_LIMITED") || error.is("RPC_ERROR") || error.is("OVERLOADED");
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
