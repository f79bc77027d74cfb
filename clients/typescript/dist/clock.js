// The service's time, for what is signed.
import { TiergateError } from "./errors.js";
/** A service must not get signatures of next year. */
const APART_MAX_MS = 24 * 3_600_000;
/** Clocks that are closer are no reason to sign again: answers take time. */
const APART_MIN_MS = 1_000;
/** This computer's time, until a refusal tells another. */
export class Clock {
    aheadMs = 0;
    /** In Unix milliseconds. */
    now() {
        return Date.now() + this.aheadMs;
    }
    /**
     * Takes the time from an error that refuses a timestamp. True if it is known now, from this error or from that of a request
     * beside this one: signing again may succeed, once. Clocks that are more than a day apart stay so.
     */
    correct(error) {
        if (!(error instanceof TiergateError && isOfTime(error)))
            return false;
        const ahead = (error.timestamp ?? NaN) - Date.now();
        if (!(Math.abs(ahead) <= APART_MAX_MS))
            return false;
        if (Math.abs(ahead - this.aheadMs) >= APART_MIN_MS)
            this.aheadMs = ahead;
        return true;
    }
}
function isOfTime(error) {
    if (error.is("REPLAY_DETECTED") && error.details.field === "timestamp")
        return true;
    return error.reason === "request_expired" || error.reason === "request_not_yet_valid";
}
