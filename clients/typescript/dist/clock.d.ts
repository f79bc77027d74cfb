/** This computer's time, until a refusal tells another. */
export declare class Clock {
    private aheadMs;
    /** In Unix milliseconds. */
    now(): number;
    /**
     * Takes the time from an error that refuses a timestamp. True if it is known now, from this error or from that of a request
     * beside this one: signing again may succeed, once. Clocks that are more than a day apart stay so.
     */
    correct(error: unknown): boolean;
}
