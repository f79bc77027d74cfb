// For users' own tests: the gateway's headers and assertions, and a gateway that refuses when it is told to.

import { type Assertion, type AssertionRules } from "./assertion.js";
import type { ErrorDetails } from "./errors.js";
import { want } from "./options.js";
import type { Agent } from "./server.js";

const OWNER = "0x15d34AAf54267DB7D7c367839AAf71A00a2C6A65";

/** The headers that the gateway adds to requests of this agent, for requests to a server under test. */
export function agentHeaders(agent: Partial<Agent> = {}): Record<string, string> {
  const { agentId = "4", owner = OWNER, trustTier = 4, endpointMismatch = false, tierSource } = agent;
  const stakedAmount = agent.stakedAmount ?? (tierSource === undefined ? "500000000000000000000000" : undefined);
  return {
    "x-agent-id": agentId,
    "x-agent-owner": owner,
    "x-agent-tier": String(trustTier),
    "x-agent-endpoint-mismatch": String(endpointMismatch),
    ...(stakedAmount !== undefined && { "x-agent-staked-amount": stakedAmount }),
    ...(tierSource !== undefined && { "x-agent-tier-source": tierSource }),
  };
}

/** An assertion of this agent by a key of this call, and the rules that `verifyAssertion` takes it by. Needs the package jose. */
export async function signedAssertion(agent: Partial<Assertion> = {}): Promise<{ assertion: string; rules: AssertionRules }> {
  const { SignJWT, createLocalJWKSet, exportJWK, generateKeyPair } = await import("jose");
  const { agentId = "4", owner = OWNER, trustTier = 4, chainId = 8004, registry = OWNER } = agent;
  const [issuer, tenant, kid] = ["https://gate.example", "test", "test"];
  const { privateKey, publicKey } = await generateKeyPair("ES256");
  const claims = { owner, tier: trustTier, chain: chainId, registry, jti: crypto.randomUUID() };
  const token = new SignJWT(claims).setProtectedHeader({ alg: "ES256", typ: "JWT", kid }).setIssuer(issuer);
  const assertion = await token.setAudience(tenant).setSubject(agentId).setIssuedAt().setExpirationTime("60s").sign(privateKey);
  const keys = createLocalJWKSet({ keys: [{ ...(await exportJWK(publicKey)), kid, alg: "ES256", use: "sig" }] });
  return { assertion, rules: { keys, issuer, tenant } };
}

/** The status and usual details of the refusals that a fake gateway knows. */
const REFUSALS = {
  INVALID_API_KEY: [401, { agentId: null }],
  TIER_BLOCKED: [403, { agentId: "4", currentTier: 1, requiredTier: 2, requiredStake: "10000000000000000000000" }],
  RATE_LIMITED: [429, { agentId: "4", tier: 1, limit: 60, retryAfter: 1 }],
  RPC_ERROR: [503, {}],
  OVERLOADED: [503, {}],
} as const;

/** A refusal of a fake gateway. */
export interface FakeRefusal<T extends keyof typeof REFUSALS> {
  /** Seconds; for 429 and 503, 1 unless set. */
  retryAfter?: number;
  details?: Partial<ErrorDetails[T]>;
}

/** A gateway in memory: its `fetch` is an option of `agentFetch`. */
export class FakeGateway {
  /** The requests that it got, refused ones too. */
  readonly requests: Request[] = [];
  private readonly refusals: (() => Response)[] = [];

  /** `api` answers the requests that pass. */
  constructor(private readonly api: (request: Request) => Response | Promise<Response> = () => Response.json({})) {}

  /** The next request is refused; further calls are for those after it. */
  refuse<T extends keyof typeof REFUSALS>(errorType: T, refusal: FakeRefusal<T> = {}): this {
    want(Object.hasOwn(REFUSALS, errorType), `The refusal is none of ${Object.keys(REFUSALS).join(", ")}`);
    this.refusals.push(() => refused(errorType, refusal));
    return this;
  }

  /** Refuses requests without a credential with 401. */
  readonly fetch: typeof fetch = async (input, init) => {
    const request = new Request(input, init);
    this.requests.push(request);
    const shown = ["x-api-key", "authorization", "x-agent-signature", "signature"];
    if (!shown.some((name) => request.headers.has(name))) return refused("INVALID_API_KEY", {});
    const refusal = this.refusals.shift();
    if (refusal) return refusal();
    const answer = await this.api(request.clone());
    const headers = new Headers(answer.headers);
    for (const [name, value] of Object.entries(limit(59))) headers.set(name, value);
    return new Response(answer.body, { status: answer.status, headers });
  };
}

const limit = (remaining: number) => ({ "x-ratelimit-limit": "60", "x-ratelimit-remaining": String(remaining), "x-request-id": "test" });

function refused<T extends keyof typeof REFUSALS>(errorType: T, { retryAfter = 1, details }: FakeRefusal<T>): Response {
  const [status, usual] = REFUSALS[errorType];
  const told = { ...usual, ...(status === 429 && { retryAfter }), ...details };
  const headers = {
    "x-request-id": "test",
    ...(status === 429 && limit(0)),
    ...(status >= 429 && { "retry-after": String(retryAfter) }),
    ...(status === 401 && { "www-authenticate": 'Bearer realm="agents"' }),
  };
  const body = { error: "Refused by a test", errorType, details: told, timestamp: Date.now() };
  return Response.json(body, { status, headers });
}
