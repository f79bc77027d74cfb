// A key that one of the processes with its file replaces before it ends. For Node, whose files it needs.
import { readSecret } from "./credential.js";
import { TiergateError } from "./errors.js";
import { checkOptions, want } from "./options.js";
import { decimal } from "./signing.js";
/** After so long the process with a lock is dead, or a failed try may be repeated. */
const LOCK_MS = 60_000;
/** A process that could not replace the key looks again after so long. */
const PAUSE_MS = 1_000;
/** Ends a try, with both of its requests, before others take its lock for a dead one's. */
const TRY_MS = 45_000;
/** Requests without a key wait for one so long. */
const WAIT_MS = 60_000;
const LIFE_MIN_SECONDS = 1_200;
const GRACE_SECONDS = [120, 3_600];
/**
 * A key in a file, for any number of processes, in TypeScript and Python: give it as `apiKey`. A process that finds less than a
 * tenth of the key's life left takes a lock beside the file and replaces the key; the others read the file again. If that fails, the
 * old key stays in use, and one of them tries again after a minute. Without a file the key is made, which the service refuses where
 * there is one already: then write that into the file. Throws a `TypeError` that names a wrong argument.
 */
export function keptKey(file, options) {
    want(typeof file === "string" && file.length > 0, "The file is no name");
    want(typeof options === "object" && options !== null, "The options are no object");
    const { service, agentId, signer, ...terms } = options;
    want(typeof Object(service).keys?.rotate === "function", "The service is no Tiergate");
    want(Boolean(signer), "The signer is missing");
    checkOptions(terms, ["declaredEndpoint", "name", "expiresIn", "tenants", "graceSeconds"]);
    const { expiresIn, graceSeconds = 600 } = terms;
    want(expiresIn >= LIFE_MIN_SECONDS, `expiresIn is less than ${LIFE_MIN_SECONDS} seconds`);
    const [least, most] = GRACE_SECONDS;
    want(graceSeconds >= least && graceSeconds <= most, `graceSeconds is not within ${least} and ${most}`);
    return new KeptKey(file, service, decimal(agentId), signer, { ...terms, graceSeconds });
}
class KeptKey {
    file;
    service;
    agentId;
    signer;
    terms;
    held;
    /** Tells one file of this name from the next. */
    stamp = "";
    trying;
    nextTry = 0;
    constructor(file, service, agentId, signer, terms) {
        this.file = file;
        this.service = service;
        this.agentId = agentId;
        this.signer = signer;
        this.terms = terms;
    }
    async current(refused) {
        for (const end = Date.now() + WAIT_MS;;) {
            await this.look();
            const held = this.held;
            if (held && !isDue(held))
                return held.apiKey;
            if (held && !hasEnded(held)) {
                // The file has a key that is refused where its process died before it wrote the next one.
                if (held.apiKey === refused)
                    await this.tried();
                else if (Date.now() >= this.nextTry)
                    void this.tried();
                return this.held?.apiKey ?? held.apiKey;
            }
            if (await this.once())
                continue;
            if (Date.now() > end)
                throw notReplaced("another process has not replaced it in time");
            await new Promise((done) => setTimeout(done, 100));
        }
    }
    /** Tries to replace a key that is good for a while yet. */
    async tried() {
        this.nextTry = Date.now() + PAUSE_MS;
        try {
            await this.once();
        }
        catch (error) {
            console.warn(`tiergate: the agent's key was not replaced, and is tried again: ${String(error)}`);
        }
    }
    /** Reads the file if it is another one. */
    async look() {
        const { stat } = await files();
        const found = await stat(this.file, { bigint: true }).catch((error) => {
            if (error.code === "ENOENT")
                return undefined;
            throw new TypeError(`The file of the API key can't be read (${error.code ?? "malformed name"})`);
        });
        const stamp = found ? `${found.ino} ${found.mtimeNs} ${found.size}` : "";
        if (stamp === this.stamp)
            return;
        this.held = found && read(await readSecret(this.file));
        this.stamp = stamp;
    }
    once() {
        return (this.trying ??= this.replace().finally(() => (this.trying = undefined)));
    }
    /** Replaces the key. False if another process does that now. */
    async replace() {
        const { open, rename, rm, writeFile } = await files();
        const lock = await this.lock();
        if (lock === undefined)
            return false;
        // Another process may have replaced it since.
        await this.look();
        if (!this.held || isDue(this.held)) {
            const beside = `${this.file}.new-${crypto.randomUUID()}`;
            try {
                const opened = await open(beside, "wx", 0o600);
                try {
                    await opened.writeFile(`${JSON.stringify(await this.issue())}\n`);
                    await opened.sync();
                }
                finally {
                    await opened.close();
                }
                // Whoever took this try for a dead one's has replaced its key.
                if ((await this.locks()).at(-1) !== lock)
                    throw notReplaced("another process took over");
                await rename(beside, this.file);
            }
            catch (error) {
                // The lock stays: no process tries again before it is old.
                await writeFile(this.lockFile(lock), "failed\n").catch(() => undefined);
                await rm(beside, { force: true });
                throw error;
            }
        }
        for (const each of await this.locks())
            if (each <= lock)
                await rm(this.lockFile(each), { force: true });
        await this.look();
        return true;
    }
    async issue() {
        const { graceSeconds, ...terms } = this.terms;
        const signal = AbortSignal.timeout(TRY_MS);
        const { expiresIn } = terms;
        const endsAt = Math.floor(Date.now() / 1000) + expiresIn;
        const { apiKey } = this.held
            ? await this.service.keys.rotate(this.agentId, this.signer, { ...terms, graceSeconds, signal })
            : await this.service.keys.generate(this.agentId, this.signer, { ...terms, signal });
        return { apiKey, endsAt, expiresIn };
    }
    /** Takes the next lock if there is none, or only old ones: one process alone can make the next. */
    async lock() {
        const { open, stat } = await files();
        const last = (await this.locks()).at(-1) ?? 0;
        if (last > 0) {
            const found = await stat(this.lockFile(last)).catch(() => undefined);
            if (!found)
                return undefined;
            if (Date.now() - found.mtimeMs < LOCK_MS) {
                if (found.size > 0 && (!this.held || hasEnded(this.held)))
                    throw notReplaced("a try has failed within the last minute");
                return undefined;
            }
        }
        try {
            await (await open(this.lockFile(last + 1), "wx", 0o600)).close();
            return last + 1;
        }
        catch (error) {
            if (error.code === "EEXIST")
                return undefined;
            throw error;
        }
    }
    /** The numbers of the locks, in their order. */
    async locks() {
        const { readdir, basename, dirname } = await files();
        const start = `${basename(this.file)}.lock-`;
        const names = await readdir(dirname(this.file));
        const ends = names.filter((name) => name.startsWith(start)).map((name) => name.slice(start.length));
        return ends.filter((end) => /^\d{1,9}$/.test(end)).map(Number).sort((one, other) => one - other);
    }
    lockFile(number) {
        return `${this.file}.lock-${number}`;
    }
}
function isDue({ endsAt, expiresIn }) {
    return endsAt - Date.now() / 1000 < expiresIn / 10;
}
function hasEnded({ endsAt }) {
    return endsAt !== 0 && endsAt <= Date.now() / 1000;
}
/** The key and its end; or a key alone, as other programs write it. */
function read(text) {
    if (/^\s*[!-z|~]+\s*$/.test(text))
        return { apiKey: text.trim(), endsAt: 0, expiresIn: 0 };
    try {
        const { apiKey, endsAt, expiresIn } = JSON.parse(text);
        if (typeof apiKey === "string" && Number.isInteger(endsAt) && Number.isInteger(expiresIn))
            return { apiKey, endsAt, expiresIn };
    }
    catch {
        // The error would quote the file.
    }
    throw new TypeError("The file of the API key holds no key");
}
function notReplaced(why) {
    return new TiergateError("NO_ANSWER", `The agent's key was not replaced: ${why}`, 0, {});
}
/** Bundlers for browsers must not look for them. */
async function files() {
    const [promises, path] = ["node:fs/promises", "node:path"];
    const [fs, { basename, dirname }] = await Promise.all([import(promises), import(path)]);
    return { ...fs, basename, dirname };
}
