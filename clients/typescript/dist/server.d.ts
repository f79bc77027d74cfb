/** The agent that the gateway admitted. */
export interface Agent {
    agentId: string;
    /** The owner's address (EIP-55). */
    owner: `0x${string}`;
    trustTier: 1 | 2 | 3 | 4;
    /** In the token's smallest unit, in decimal; absent where no stake is read. */
    stakedAmount?: string;
    /** What gave the tier; absent where only stakes do. */
    tierSource?: string;
    /** True if the request's `Origin` is not the endpoint declared for the key. */
    endpointMismatch: boolean;
}
/** Headers of fetch, or of Node. */
export type HeadersLike = Headers | Record<string, string | string[] | undefined>;
/** Reads the gateway's headers; `null` if one is missing or malformed, which {@link agentProblem} names. */
export declare function agentOf(headers: HeadersLike): Agent | null;
/** Names the header that is missing or malformed, for the server's log; `null` where there is an agent. */
export declare function agentProblem(headers: HeadersLike): string | null;
/** The agents that a server lets in. */
export interface AgentRules {
    /** The lowest tier that passes; 1 unless set. */
    minTier?: Agent["trustTier"];
    /** Told which header of a request is missing or malformed; `console.warn` unless set. The agent is not told. */
    log?: (problem: string) => void;
}
interface ExpressResponse {
    locals: Record<string, unknown>;
    status(code: number): {
        json(body: unknown): unknown;
    };
}
/** Middleware of Express: 403, or the agent in `res.locals.agent`. */
export declare function expressAgent(rules?: AgentRules): (request: {
    headers: Record<string, string | string[] | undefined>;
}, response: ExpressResponse, next: () => void) => void;
/** A `preHandler` of Fastify: 403, or the agent in `request.agent`. */
export declare function fastifyAgent(rules?: AgentRules): (request: {
    headers: Record<string, string | string[] | undefined>;
    agent?: Agent;
}, reply: {
    code(status: number): {
        send(body: unknown): unknown;
    };
}) => Promise<unknown>;
interface HonoContext {
    req: {
        raw: Request;
    };
    set(name: "agent", agent: Agent): void;
}
/** Middleware of Hono: 403, or the agent in `c.var.agent` (`new Hono<{ Variables: { agent: Agent } }>()`). */
export declare function honoAgent(rules?: AgentRules): (context: HonoContext, next: () => Promise<void>) => Promise<Response | void>;
export {};
