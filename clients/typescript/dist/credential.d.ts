import type { AgentId, Tiergate } from "./client.js";
import { type MessageSigner } from "./erc8128.js";
import type { TiergateError } from "./errors.js";
import { type Signer } from "./signing.js";
/** A key that may be another in each request: `keptKey` of `tiergate/kept` makes one. */
export interface LivingKey {
    /** Returns the key for the next request. `refused` is one that the gateway has refused. */
    current(refused?: string): Promise<string>;
}
/** An agent's key: as text, or a function that gets it, from a store of secrets for example. */
export type KeySource = string | (() => string | Promise<string>) | LivingKey;
/**
 * An agent's key, or a file (of Node) that has it; or its owner's signer and the service that tells what is signed; or an account that signs whole requests,
 * with their method, address and body, by ERC-8128. `chainId` is that of the gateway's registries. The key is shown as
 * `X-API-Key`, with `bearer` as `Authorization: Bearer`, for APIs with an `X-API-Key` of their own. Function and file are asked
 * once, and once more when the gateway refuses the key: it may have been rotated.
 */
export type Credential = {
    apiKey: KeySource;
    bearer?: boolean;
} | {
    apiKeyFile: string | URL;
    bearer?: boolean;
} | {
    agentId: AgentId;
    signer: Signer;
    service: Tiergate;
} | {
    agentId: AgentId;
    account: MessageSigner;
    chainId: number | bigint;
};
/** Shows a credential in the tries of one request. */
export interface Showing {
    /** Writes what one try shows into its headers. A signature is good for one try. */
    show(url: URL, headers: Headers, signal: AbortSignal | undefined): Promise<void>;
    /** True if a refusal tells what the next try has to show instead. */
    learnsFrom(response: Response, error: TiergateError | null, signal: AbortSignal | undefined): boolean | Promise<boolean>;
}
/** Checks a credential, and returns what shows it: in requests of a method, with this body. No error shows a part of it. */
export declare function showingOf(credential: Credential): (method: string, body: ArrayBuffer) => Showing;
/** The text of a file that others must not read. */
export declare function readSecret(file: string | URL): Promise<string>;
