import type { AgentId, RotateOptions, Tiergate } from "./client.js";
import { type LivingKey } from "./credential.js";
import { type Signer } from "./signing.js";
/** Options of {@link keptKey}. */
export interface KeptKeyOptions extends Omit<RotateOptions, "signal" | "expiresIn"> {
    service: Tiergate;
    agentId: AgentId;
    /** The owner's. Whoever has it may make keys. */
    signer: Signer;
    /** The seconds of a key's life, 1,200 at least. The last tenth is for replacing it. */
    expiresIn: number;
    /** For how many seconds the others may go on with the replaced key: 120 to 3,600; 600 unless set. */
    graceSeconds?: number;
}
/**
 * A key in a file, for any number of processes, in TypeScript and Python: give it as `apiKey`. A process that finds less than a
 * tenth of the key's life left takes a lock beside the file and replaces the key; the others read the file again. If that fails, the
 * old key stays in use, and one of them tries again after a minute. Without a file the key is made, which the service refuses where
 * there is one already: then write that into the file. Throws a `TypeError` that names a wrong argument.
 */
export declare function keptKey(file: string, options: KeptKeyOptions): LivingKey;
