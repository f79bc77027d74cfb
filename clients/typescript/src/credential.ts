// What agents show to the gateway.

import type { AgentId, Tiergate } from "./client.js";
import { Clock } from "./clock.js";
import { coverageAsked, coverageOf, signedBy, type Coverage, type MessageSigner, type Outgoing } from "./erc8128.js";
import type { TiergateError } from "./errors.js";
import { runtime, want } from "./options.js";
import { unlessAborted } from "./retry.js";
import { decimal, sign, type Signer } from "./signing.js";

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
export type Credential =
  | { apiKey: KeySource; bearer?: boolean }
  | { apiKeyFile: string | URL; bearer?: boolean }
  | { agentId: AgentId; signer: Signer; service: Tiergate }
  | { agentId: AgentId; account: MessageSigner; chainId: number | bigint };

/** Shows a credential in the tries of one request. */
export interface Showing {
  /** Writes what one try shows into its headers. A signature is good for one try. */
  show(url: URL, headers: Headers, signal: AbortSignal | undefined): Promise<void>;
  /** True if a refusal tells what the next try has to show instead. */
  learnsFrom(response: Response, error: TiergateError | null, signal: AbortSignal | undefined): boolean | Promise<boolean>;
}

/** Checks a credential, and returns what shows it: in requests of a method, with this body. No error shows a part of it. */
export function showingOf(credential: Credential): (method: string, body: ArrayBuffer) => Showing {
  const isOne = typeof credential === "object" && credential !== null;
  const kinds = ["apiKey", "apiKeyFile", "signer", "account"];
  const given = isOne && kinds.some((kind) => kind in credential);
  want(given, "The credential is no object with an apiKey, an apiKeyFile, a signer or an account");
  if ("apiKey" in credential || "apiKeyFile" in credential) {
    const { bearer = false } = credential;
    want(typeof bearer === "boolean", "The credential's bearer is neither true nor false");
    const keys = "apiKey" in credential ? keysOf(credential.apiKey) : new Keys(() => readKey(credential.apiKeyFile));
    return () => new Key(keys, bearer);
  }
  if ("signer" in credential) {
    decimal(credential.agentId);
    want(typeof Object(credential.service).typedData === "function", "The credential's service is no Tiergate");
    return () => new OwnersSignature(credential);
  }
  const { account } = credential;
  const agentId = decimal(credential.agentId);
  const chainId = /^[0-9]{1,78}$/.test(String(credential.chainId)) ? BigInt(credential.chainId) : 0n;
  if (chainId <= 0n) throw new TypeError("The chain's id is no positive integer");
  if (typeof Object(account).signMessage !== "function") {
    throw new TypeError("The account is neither one of viem, nor a signer of ethers, nor a wallet provider");
  }
  const clock = new Clock();
  return (method, body) => new RequestSignature(agentId, account, chainId, clock, method, body);
}

function keysOf(source: KeySource): Keys {
  if (typeof source === "function") return new Keys(async () => headerValue(await source(), "API key"));
  if (typeof Object(source).current === "function") {
    const living = source as LivingKey;
    return new Keys(async (refused) => headerValue(await living.current(refused), "API key"), true);
  }
  const key = headerValue(source, "API key");
  return new Keys(async () => key);
}

/** The key as a file has it. Errors don't name the file: it may be a key in the wrong place. */
async function readKey(file: string | URL): Promise<string> {
  return headerValue(await readSecret(file), "API key in the file");
}

/** The text of a file that others must not read. */
export async function readSecret(file: string | URL): Promise<string> {
  // Bundlers for browsers must not look for it.
  const files = "node:fs/promises";
  const { readFile, stat } = await import(files);
  try {
    const text: string = await readFile(file, "utf8");
    const { mode } = await stat(file);
    const isOpen = runtime?.platform !== "win32" && (mode & 0o044) !== 0;
    if (isOpen) console.warn("tiergate: others may read the file of the API key; keep it from them: chmod 600");
    return text;
  } catch (error) {
    throw new TypeError(`The file of the API key can't be read (${(error as { code?: string }).code ?? "malformed name"})`);
  }
}

/** Where a key comes from, and the key that came last, for all requests. */
class Keys {
  private kept: Promise<string> | undefined;

  constructor(
    private readonly ask: (refused?: string) => Promise<string>,
    private readonly isLiving = false,
  ) {}

  current(refused?: string): Promise<string> {
    if (this.isLiving) this.kept = undefined;
    return (this.kept ??= this.ask(refused));
  }

  /** The key that was asked for. If it can't be had, or not in time, the next request asks anew. */
  async of(asked: Promise<string>, signal: AbortSignal | undefined): Promise<string> {
    try {
      return await unlessAborted(asked, signal);
    } catch (error) {
      if (this.kept === asked) this.kept = undefined;
      throw error;
    }
  }

  /** Asks once more, unless another request has since this one was shown. True if the key is another now. */
  async differsFrom(shown: Promise<string>, signal: AbortSignal | undefined): Promise<boolean> {
    if (this.kept === shown) this.kept = undefined;
    const refused = await shown;
    return (await this.of(this.current(refused), signal)) !== refused;
  }
}

class Key implements Showing {
  private shown: Promise<string> | undefined;

  constructor(
    private readonly keys: Keys,
    private readonly bearer: boolean,
  ) {}

  async show(_url: URL, headers: Headers, signal: AbortSignal | undefined): Promise<void> {
    const name = this.bearer ? "Authorization" : "X-API-Key";
    if (headers.has(name)) {
      const other = this.bearer ? "without bearer" : "with bearer";
      throw new TypeError(`The request has an ${name} of its own: show the agent's key ${other}`);
    }
    signal?.throwIfAborted();
    this.shown = this.keys.current();
    const key = await this.keys.of(this.shown, signal);
    headers.set(name, this.bearer ? `Bearer ${key}` : key);
  }

  async learnsFrom(_response: Response, error: TiergateError | null, signal: AbortSignal | undefined): Promise<boolean> {
    const isRefused = error !== null && error.status === 401 && error.is("INVALID_API_KEY");
    if (!isRefused || this.shown === undefined) return false;
    try {
      return await this.keys.differsFrom(this.shown, signal);
    } catch {
      signal?.throwIfAborted();
      // The caller gets the gateway's refusal. The error's text may have a part of the key.
      console.warn("tiergate: the gateway refused the key, and it can't be read again");
      return false;
    }
  }
}

class OwnersSignature implements Showing {
  constructor(private readonly credential: Extract<Credential, { signer: Signer }>) {}

  async show(_url: URL, headers: Headers, signal: AbortSignal | undefined): Promise<void> {
    const { agentId, signer, service } = this.credential;
    const typedData = await service.typedData(agentId, "verify", signal ? { signal } : {});
    signal?.throwIfAborted();
    const { message } = typedData;
    headers.set("X-Agent-Id", message.agentId);
    headers.set("X-Agent-Signature", headerValue(await unlessAborted(sign(signer, typedData), signal), "signature"));
    headers.set("X-Agent-Nonce", String(message.nonce));
    headers.set("X-Agent-Timestamp", String(message.timestamp));
  }

  learnsFrom(_response: Response, error: TiergateError | null): boolean {
    return this.credential.service.correctClock(error);
  }
}

class RequestSignature implements Showing {
  private shown: { request: Outgoing; coverage: Coverage } | undefined;
  private asked: Coverage | undefined;

  constructor(
    private readonly agentId: string,
    private readonly account: MessageSigner,
    private readonly chainId: bigint,
    private readonly clock: Clock,
    private readonly method: string,
    private readonly body: ArrayBuffer,
  ) {}

  async show(url: URL, headers: Headers, signal: AbortSignal | undefined): Promise<void> {
    for (const name of ["signature", "signature-input"]) {
      if (headers.has(name)) throw new TypeError(`The request has a ${name} of its own`);
    }
    signal?.throwIfAborted();
    headers.set("X-Agent-Id", this.agentId);
    // `fetch` writes some methods in capitals.
    const { method } = new Request(url, { method: this.method });
    const request = { method, url, headers, body: this.body };
    const coverage = this.asked ?? coverageOf(request);
    const now = Math.floor(this.clock.now() / 1000);
    const signed = await unlessAborted(signedBy(this.account, this.chainId, request, coverage, now), signal);
    for (const [name, value] of Object.entries(signed)) headers.set(name, value);
    this.shown = { request, coverage };
  }

  /** The gateway's time and `Accept-Signature`. Those of the API come with the agent's limit, after the request was charged. */
  learnsFrom({ headers, status }: Response, error: TiergateError | null): boolean {
    if (status !== 401 || headers.has("x-ratelimit-limit") || !this.shown) return false;
    const { request, coverage } = this.shown;
    this.asked = coverageAsked(headers.get("accept-signature") ?? "", request);
    const asksForMore = this.asked && (this.asked.nonce !== undefined || `${this.asked.components}` !== `${coverage.components}`);
    return this.clock.correct(error) || asksForMore === true;
  }
}

/** Refuses a secret that no header takes here: errors of `Headers` quote their values. */
function headerValue(secret: unknown, name: string): string {
  want(typeof secret === "string", `The ${name} is no text`);
  const value = secret.trim();
  if (!/^[!-~]+$/.test(value)) throw new TypeError(`The ${name} is empty, or has other characters than those of ASCII`);
  return value;
}
