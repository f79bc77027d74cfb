// The client of the verification API.

import { Clock } from "./clock.js";
import { TiergateError, addressForSecrets, bodyOf, type Shape } from "./errors.js";
import type { components } from "./openapi.js";
import { USER_AGENT, checkOptions, want } from "./options.js";
import { Patience, isRefusedForNow, unlessAborted, type RetryOptions } from "./retry.js";
import { decimal, sign, typedDataOf, type Domain, type PrimaryType, type Signer, type TypedData } from "./signing.js";

type Schemas = components["schemas"];

/** An agent's id: a uint256, in decimal if it is text. */
export type AgentId = string | bigint;
/** The domain, types and tiers of a service. */
export type Signing = Schemas["Signing"];
export type VerificationResult = Schemas["VerificationResult"];
export type Profile = Schemas["Profile"];
/** One of the agent's keys, in its profile: what is known of it but the key. */
export type HeldKey = Profile["keys"][number];
export type IssuedKey = Schemas["IssuedKey"];
export type RevokedKey = Schemas["RevokedKey"];
export type KeyStatus = Schemas["KeyStatus"];

/** The limit that the request counted against; `null` where the answer does not tell (a page of another origin). */
export type RateLimit = { limit: number; remaining: number } | null;

/** An answer, with the limit that it counted against. */
export type Answer<T> = T & { rateLimit: RateLimit };

/** The signed requests, and their answers. */
export interface Operations {
  verify: VerificationResult;
  profile: Profile;
  generate: IssuedKey;
  rotate: IssuedKey;
  revoke: RevokedKey;
}

const AGENT = { agentId: "string", owner: "string", trustTier: "number" } as const;
const VERIFIED: Shape = { valid: true, ...AGENT, endpointMismatch: "boolean" };
const ISSUED: Shape = { agentId: "string", apiKey: "string" };
const SIGNING: Shape = {
  domain: { name: "string", version: "string", chainId: "number", verifyingContract: "string" },
};

/** Method and path of each, and the shape of its answer. */
const OPERATIONS: Record<keyof Operations, readonly [string, string, Shape]> = {
  verify: ["POST", "verify/signature", VERIFIED],
  profile: ["POST", "profile", { ...AGENT, hasKey: "boolean" }],
  generate: ["POST", "keys/generate", ISSUED],
  rotate: ["POST", "keys/rotate", ISSUED],
  revoke: ["DELETE", "keys", { agentId: "string", success: true }],
};

/** The type that each is signed as, and its own type at services that have some. */
const TYPES: Record<keyof Operations, readonly [PrimaryType, PrimaryType?]> = {
  verify: ["Verification"],
  profile: ["ProfileRead"],
  generate: ["Verification", "GenerateKey"],
  rotate: ["Verification", "RotateKey"],
  revoke: ["Verification", "RevokeKey"],
};

const TERMS = ["declaredEndpoint", "name", "expiresIn", "tenants"];

/** The further fields of each. */
const FIELDS: Record<keyof Operations, readonly string[]> = {
  verify: [],
  profile: [],
  generate: TERMS,
  rotate: [...TERMS, "graceSeconds"],
  revoke: ["name"],
};

/** Options of the client. */
export interface TiergateOptions extends RetryOptions {
  /** Used instead of the global `fetch`. */
  fetch?: typeof fetch;
  /** Milliseconds to wait for each answer; 30,000 unless set. */
  timeoutMs?: number;
  /** The host that may be asked by plain http though it is not this machine, because the way to it is safe. */
  allowHttp?: string;
  /** Parts of the domain that are known beforehand. They win over the service's. */
  domain?: Partial<Domain>;
  /**
   * The service's name. Changes of keys are signed for it, as types of their own. Unless set, they are where the service says
   * so, and its name must be the client's URL. `true` takes every name, for signers whose owner reads it.
   */
  serviceName?: string | true;
}

/** Options of a call. */
export interface CallOptions {
  signal?: AbortSignal;
}

/** Options of a call that makes a key. They are not part of what is signed. */
export interface KeyOptions extends CallOptions {
  /** The URL that the key is for. */
  declaredEndpoint?: string;
  /** Tells the key from the agent's others: 1 to 32 letters, digits, `.`, `_` and `-`. */
  name?: string;
  /** After how many seconds the key is refused. Left out, it does not end. */
  expiresIn?: number;
  /** The ids of the gateway's tenants that the key opens, and no other. Left out, it opens all. */
  tenants?: readonly string[];
}

/** Options of a call that replaces a key. `name` says which; left out, it is the only one, or that without a name. */
export interface RotateOptions extends KeyOptions {
  /** For how many seconds the replaced key goes on, an hour at most. Left out, it is refused at once. */
  graceSeconds?: number;
}

/** Options of a call that revokes keys. */
export interface RevokeOptions extends CallOptions {
  /** The one that is revoked. Left out, all are. */
  name?: string;
}

/** Ends the message of an error after which a key may have been changed. */
const KEY_UNSURE = ": the key may have been changed. Ask keys.status; if there is a key that you have not seen, rotate it";

const OPTIONS = ["fetch", "timeoutMs", "allowHttp", "domain", "serviceName", "retries", "maxWaitMs", "onRetry"];

/** The service may change its domain: it allows five minutes. */
const SIGNING_KEPT_MS = 300_000;

/**
 * A service. Its calls fail with a {@link TiergateError}; an aborted one with the signal's reason, one whose signer fails
 * with the signer's error.
 */
export class Tiergate {
  /** Not for inspection. */
  readonly #options: TiergateOptions;
  private readonly base: string;
  private kept: { signing: Signing; until: number } | undefined;
  private readonly clock = new Clock();

  /**
   * `url` is the address of the API; it may have a path. Throws a `TypeError` if it is no URL of https, or has a
   * login. Plain http is for this machine, and for the host that `allowHttp` names.
   */
  constructor(
    url: string | URL,
    options: TiergateOptions = {},
  ) {
    checkOptions(options, OPTIONS);
    this.#options = options;
    const { origin, pathname } = addressForSecrets(url, options.allowHttp);
    this.base = (origin + pathname).replace(/\/*$/, "/");
  }

  /** Returns what owners sign and the tiers. Kept for five minutes. */
  async signing(options: CallOptions = {}): Promise<Signing> {
    if (this.kept && Date.now() < this.kept.until) return this.kept.signing;
    const signing = await this.request<Signing>("GET", ".well-known/tiergate", SIGNING, undefined, options);
    this.kept = { signing, until: Date.now() + SIGNING_KEPT_MS };
    return signing;
  }

  /** Verifies an agent by its API key. */
  async verify(
    credential: { apiKey: string; agentId?: AgentId; origin?: string },
    options: CallOptions = {},
  ): Promise<Answer<VerificationResult>> {
    want(typeof Object(credential).apiKey === "string", "The credential is no object with an apiKey as text");
    const { agentId, apiKey, ...rest } = credential;
    // Files end with a line's end.
    const key = { ...rest, apiKey: apiKey.trim() };
    const body = agentId === undefined ? key : { ...key, agentId: decimal(agentId) };
    return this.request("POST", "verify", VERIFIED, body, options);
  }

  /** Verifies an agent by its owner's signature. */
  verifySignature(agentId: AgentId, signer: Signer, options: CallOptions = {}): Promise<Answer<VerificationResult>> {
    return this.signed("verify", agentId, signer, options);
  }

  /** Reads an agent's profile as its owner. The agent may have any tier. */
  profile(agentId: AgentId, signer: Signer, options: CallOptions = {}): Promise<Answer<Profile>> {
    return this.signed("profile", agentId, signer, options);
  }

  /** Makes, replaces and revokes an agent's key. */
  readonly keys = {
    /** Makes the agent's key. The answer has it this once, in `apiKey`; `console.log` of the answer does not show it. */
    generate: (agentId: AgentId, signer: Signer, options: KeyOptions = {}): Promise<Answer<IssuedKey>> =>
      this.signed("generate", agentId, signer, options),
    /** Replaces the agent's key. The old one is invalid at once, or after `graceSeconds`. */
    rotate: (agentId: AgentId, signer: Signer, options: RotateOptions = {}): Promise<Answer<IssuedKey>> =>
      this.signed("rotate", agentId, signer, options),
    /** Revokes the agent's keys, or the one that `name` says. Succeeds also without one. */
    revoke: (agentId: AgentId, signer: Signer, options: RevokeOptions = {}): Promise<Answer<RevokedKey>> =>
      this.signed("revoke", agentId, signer, options),
    /** Tells if the agent has a key. */
    status: async (agentId: AgentId, options: CallOptions = {}): Promise<Answer<KeyStatus>> => {
      const path = `keys/status?agentId=${decimal(agentId)}`;
      return this.request("GET", path, { agentId: "string", hasKey: "boolean" }, undefined, options);
    },
  };

  /** Returns what an operation's signer signs, for signers elsewhere: give the signature to {@link send}. */
  async typedData(agentId: AgentId, operation: keyof Operations, options: CallOptions = {}): Promise<TypedData> {
    const id = decimal(agentId);
    want(Object.hasOwn(TYPES, operation), `The operation is none of ${Object.keys(TYPES).join(", ")}`);
    const signing = await this.signing(options);
    const [usualType, ownType] = TYPES[operation];
    const service = ownType && this.serviceName(signing);
    const primaryType = ownType && service !== undefined ? ownType : usualType;
    const domain = { ...(signing.domain as Domain), ...this.#options.domain };
    return typedDataOf(domain, id, primaryType, this.now(), service);
  }

  /** The name that changes of keys are signed for; `undefined` at a service without own types. A service could name another. */
  private serviceName({ keyOperations }: Signing): string | undefined {
    const { serviceName } = this.#options;
    if (typeof serviceName === "string") return serviceName;
    const name = keyOperations?.service;
    const url = this.base.replace(/\/$/, "");
    if (name === undefined || serviceName === true || name === url) return name;
    throw new TypeError(`${url} calls itself ${JSON.stringify(name)}: if you mean that service, give its name as serviceName`);
  }

  /** Sends an operation with the signature that was made of its typed data. Once it is refused for its timestamp, {@link typedData} has the service's time. */
  async send<O extends keyof Operations>(
    operation: O,
    typedData: TypedData,
    signature: string,
    options: RotateOptions = {},
  ): Promise<Answer<Operations[O]>> {
    want(Object.hasOwn(TYPES, operation), `The operation is none of ${Object.keys(TYPES).join(", ")}`);
    want(typeof Object(typedData).message === "object", "The typed data has no message");
    want(typeof signature === "string", "The signature is no text");
    checkOptions(options, ["signal", ...FIELDS[operation]]);
    try {
      return await this.sent(operation, typedData, signature, options, new Patience(this.#options));
    } catch (error) {
      this.correctClock(error);
      throw error;
    }
  }

  /** The service's time in Unix milliseconds: this computer's, unless {@link correctClock} has set it. */
  now(): number {
    return this.clock.now();
  }

  /**
   * Takes the service's time from an error that refuses a timestamp. True if it is known now, from this error or from that
   * of a request beside this one: signing again may succeed, once. Clocks that are more than a day apart stay so.
   */
  correctClock(error: unknown): boolean {
    return this.clock.correct(error);
  }

  private async signed<O extends keyof Operations>(
    operation: O,
    agentId: AgentId,
    signer: Signer,
    options: RotateOptions,
  ): Promise<Answer<Operations[O]>> {
    checkOptions(options, ["signal", ...FIELDS[operation]]);
    const patience = new Patience(this.#options);
    const once = async () => {
      const typedData = await this.typedData(agentId, operation, options);
      options.signal?.throwIfAborted();
      return this.sent(operation, typedData, await unlessAborted(sign(signer, typedData), options.signal), options, patience);
    };
    try {
      return await once();
    } catch (error) {
      if (!this.correctClock(error)) throw error;
      return once();
    }
  }

  private sent<O extends keyof Operations>(
    operation: O,
    { message: { service: _, ...message } }: TypedData,
    signature: string,
    { signal, ...further }: RotateOptions,
    patience: Patience,
  ): Promise<Answer<Operations[O]>> {
    const [method, path, shape] = OPERATIONS[operation];
    return this.request(method, path, shape, { ...message, signature, ...further }, signal ? { signal } : {}, patience);
  }

  /** Repeats only what the service refused before it did anything: no key is made, and no verification charged, twice. */
  private async request<T>(
    method: string,
    path: string,
    shape: Shape,
    body: object | undefined,
    { signal }: CallOptions,
    patience = new Patience(this.#options),
  ): Promise<Answer<T>> {
    for (;;) {
      try {
        return await this.once(method, path, shape, body, signal);
      } catch (error) {
        if (!isRefusedForNow(error) || !(await patience.wait(error.status, error, error.retryAfter, signal))) throw error;
      }
    }
  }

  private async once<T>(
    method: string,
    path: string,
    shape: Shape,
    body: object | undefined,
    signal: AbortSignal | undefined,
  ): Promise<Answer<T>> {
    want(signal === undefined || typeof signal === "object", "The signal is no AbortSignal");
    const timeout = AbortSignal.timeout(this.#options.timeoutMs ?? 30_000);
    const init: RequestInit = {
      method,
      // A redirect would take the credential elsewhere. The service sends none.
      redirect: "manual",
      signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
    };
    const unsure = method !== "GET" && path.startsWith("keys") ? KEY_UNSURE : "";
    const headers = new Headers(USER_AGENT ? { "user-agent": USER_AGENT } : {});
    if (body) headers.set("content-type", "application/json");
    Object.assign(init, { headers }, body && { body: JSON.stringify(body) });
    try {
      const response = await (this.#options.fetch ?? fetch)(this.base + path, init);
      const answer = await bodyOf(response, shape, unsure);
      return discreet({ ...(answer as T), rateLimit: rateLimitOf(response.headers) });
    } catch (cause) {
      if (cause instanceof TiergateError) throw cause;
      signal?.throwIfAborted();
      const reason = timeout.aborted ? " in time" : "";
      const message = `No answer came from ${this.base}${path.split("?")[0]}${reason}${unsure}`;
      throw new TiergateError("NO_ANSWER", message, 0, {}, undefined, undefined, undefined, { cause });
    }
  }
}

/** An answer that shows no key to who inspects it: to `console.log` of Node, Deno and Bun. Its JSON has the key. */
function discreet<T extends object>(answer: T): T {
  if (!("apiKey" in answer)) return answer;
  const shown = () => ({ ...answer, apiKey: "(not shown)" });
  return Object.defineProperty(answer, Symbol.for("nodejs.util.inspect.custom"), { value: shown });
}

function rateLimitOf(headers: Headers): RateLimit {
  const [limit, remaining] = [headers.get("x-ratelimit-limit"), headers.get("x-ratelimit-remaining")];
  return limit !== null && remaining !== null ? { limit: Number(limit), remaining: Number(remaining) } : null;
}
