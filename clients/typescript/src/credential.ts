// What agents show to the gateway.

import type { AgentId, Tiergate } from "./client.js";
import { Clock } from "./clock.js";
import { coverageAsked, coverageOf, signedBy, type Coverage, type MessageSigner, type Outgoing } from "./erc8128.js";
import type { TiergateError } from "./errors.js";
import { decimal, sign, type Signer } from "./signing.js";

/**
 * An agent's key; or its owner's signer and the service that tells what is signed; or an account that signs whole requests,
 * with their method, address and body, by ERC-8128. `chainId` is that of the gateway's registries. The key is shown as
 * `X-API-Key`, with `bearer` as `Authorization: Bearer`, for APIs with an `X-API-Key` of their own.
 */
export type Credential =
  | { apiKey: string; bearer?: boolean }
  | { agentId: AgentId; signer: Signer; service: Tiergate }
  | { agentId: AgentId; account: MessageSigner; chainId: number | bigint };

/** Shows a credential in the tries of one request. */
export interface Showing {
  /** Writes what one try shows into its headers. A signature is good for one try. */
  show(url: URL, headers: Headers, signal: AbortSignal | undefined): Promise<void>;
  /** True if a refusal tells what the next try has to show instead. */
  learnsFrom(response: Response, error: TiergateError | null): boolean;
}

/** Checks a credential, and returns what shows it: in requests of a method, with this body. No error shows a part of it. */
export function showingOf(credential: Credential): (method: string, body: ArrayBuffer) => Showing {
  if (typeof credential !== "object" || credential === null) {
    throw new TypeError("The credential is no object with an apiKey, a signer or an account");
  }
  if ("apiKey" in credential) {
    const { bearer = false } = credential;
    const apiKey = headerValue(credential.apiKey, "API key");
    return () => new Key(apiKey, bearer);
  }
  if ("signer" in credential) return () => new OwnersSignature(credential);
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

class Key implements Showing {
  constructor(
    private readonly apiKey: string,
    private readonly bearer: boolean,
  ) {}

  async show(_url: URL, headers: Headers): Promise<void> {
    const name = this.bearer ? "Authorization" : "X-API-Key";
    if (headers.has(name)) {
      const other = this.bearer ? "without bearer" : "with bearer";
      throw new TypeError(`The request has an ${name} of its own: show the agent's key ${other}`);
    }
    headers.set(name, this.bearer ? `Bearer ${this.apiKey}` : this.apiKey);
  }

  learnsFrom(): boolean {
    return false;
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
    headers.set("X-Agent-Signature", headerValue(await sign(signer, typedData), "signature"));
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
    const signed = await signedBy(this.account, this.chainId, request, coverage, now);
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
function headerValue(secret: string, name: string): string {
  const value = secret.trim();
  if (!/^[!-~]+$/.test(value)) throw new TypeError(`The ${name} is empty, or has other characters than those of ASCII`);
  return value;
}
