// For servers behind the gateway that check its assertions instead of believing their network. Needs the package jose.

import { createRemoteJWKSet, errors, jwtVerify, type JWTVerifyGetKey } from "jose";
import { addressOf } from "./errors.js";
import { want } from "./options.js";

/** How long an assertion may be good for, in seconds. */
const LIFE_MAX = 60;

/** How far the clocks of gateway and server may be apart, in seconds. */
const CLOCK_LEEWAY = 5;

/** For how long keys are kept, in milliseconds. */
const KEYS_KEPT_MS = 300_000;

/** An agent as the gateway asserts it. */
export interface Assertion {
  agentId: string;
  /** The owner's address (EIP-55). */
  owner: `0x${string}`;
  trustTier: 1 | 2 | 3 | 4;
  /** The id of the chain, and the identity registry on it. */
  chainId: number;
  registry: `0x${string}`;
}

/** What the claims are called that JWT has no names for. */
type Claims = Pick<Assertion, "owner" | "registry"> & { tier: Assertion["trustTier"]; chain: number };

/** What an assertion must be. */
export interface AssertionRules {
  /** The keys of the gateway: those of `assertionKeys`, made once. */
  keys: JWTVerifyGetKey;
  /** The gateway's `assertion.issuer`. */
  issuer: string;
  /** The `id` of the tenant that this server is behind. */
  tenant: string;
}

/**
 * The keys at the gateway's `/.well-known/jwks.json`. They are kept for five minutes, and read again when an assertion names
 * another one, at most every half minute.
 */
export function assertionKeys(url: string | URL): ReturnType<typeof createRemoteJWKSet> {
  return createRemoteJWKSet(addressOf(url), { cacheMaxAge: KEYS_KEPT_MS });
}

/** Verifies the value of `X-Agent-Assertion`. Throws an error of jose unless it is this issuer's, for this tenant and of now. */
export async function verifyAssertion(assertion: string | null | undefined, rules: AssertionRules): Promise<Assertion> {
  want(typeof rules === "object" && rules !== null, "The rules are no object with keys, issuer and tenant");
  const { keys, issuer, tenant } = rules;
  // Without a value jose would not compare it.
  want(!!issuer && !!tenant, "An issuer and a tenant are needed");
  want(typeof keys === "function", "The keys are not those of assertionKeys");
  if (!assertion) throw new errors.JWTInvalid("There is no assertion");
  const { payload } = await jwtVerify<Claims>(assertion, keys, {
    algorithms: ["ES256"],
    typ: "JWT",
    issuer,
    audience: tenant,
    maxTokenAge: LIFE_MAX,
    clockTolerance: CLOCK_LEEWAY,
    requiredClaims: ["sub", "exp", "owner", "tier", "chain", "registry"],
  });
  const { sub, iat = 0, exp = Infinity, aud, owner, tier, chain, registry } = payload;
  if (!sub || aud !== tenant || exp - iat > LIFE_MAX) throw new errors.JWTInvalid("The assertion is not one of Tiergate's");
  return { agentId: sub, owner, trustTier: tier, chainId: chain, registry };
}
