/** The version of this package. */
export declare const VERSION = "0.1.0";
/** Throws a `TypeError` that names what is wrong. */
export declare function want(isRight: boolean, sentence: string): asserts isRight;
/** Checks an object of options, which has these names alone. */
export declare function checkOptions(options: unknown, names: readonly string[]): void;
interface Process {
    versions?: {
        node?: string;
    };
    platform?: string;
}
/** That of Node and what is like it. Browsers have none. */
export declare const runtime: Process | undefined;
/** Names this package in requests. Other origins ask a browser's gateway for leave to send it, so browsers send their own. */
export declare const USER_AGENT: string | undefined;
export {};
