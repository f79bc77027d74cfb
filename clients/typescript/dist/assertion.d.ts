import { createRemoteJWKSet, type JWTVerifyGetKey } from "jose";
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
export declare function assertionKeys(url: string | URL): ReturnType<typeof createRemoteJWKSet>;
/** Verifies the value of `X-Agent-Assertion`. Throws an error of jose unless it is this issuer's, for this tenant and of now. */
export declare function verifyAssertion(assertion: string | null | undefined, rules: AssertionRules): Promise<Assertion>;
