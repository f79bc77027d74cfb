// For servers behind the gateway: who calls. The headers are true only if nobody but the gateway can reach the server.

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

/** Reads the gateway's headers; `null` if one is missing or malformed. */
export function agentOf(headers: HeadersLike): Agent | null {
  const named = (name: string) => (headers instanceof Headers ? headers.get(name) : headers[name]) ?? undefined;
  const get = (name: string, pattern: RegExp): string | null => {
    const value = named(name);
    return typeof value === "string" && pattern.test(value) ? value : null;
  };
  // Absent, or well-formed.
  const some = (name: string, pattern: RegExp) => (named(name) === undefined ? undefined : get(name, pattern));
  const agentId = get("x-agent-id", /^\d{1,78}$/);
  const owner = get("x-agent-owner", /^0x[0-9a-fA-F]{40}$/);
  const trustTier = get("x-agent-tier", /^[1-4]$/);
  const stakedAmount = some("x-agent-staked-amount", /^\d{1,78}$/);
  const tierSource = some("x-agent-tier-source", /^[a-z0-9_]{1,32}$/);
  const mismatch = get("x-agent-endpoint-mismatch", /^(true|false)$/);
  if (!agentId || !owner || !trustTier || !mismatch) return null;
  // One of them is there always.
  if (stakedAmount === null || tierSource === null || !(stakedAmount ?? tierSource)) return null;
  return {
    agentId,
    owner: owner as Agent["owner"],
    trustTier: Number(trustTier) as Agent["trustTier"],
    ...(stakedAmount !== undefined && { stakedAmount }),
    ...(tierSource !== undefined && { tierSource }),
    endpointMismatch: mismatch === "true",
  };
}

/** The agents that a server lets in. */
export interface AgentRules {
  /** The lowest tier that passes; 1 unless set. */
  minTier?: Agent["trustTier"];
}

interface Refusal {
  status: 401 | 403;
  headers: Record<string, string>;
  body: { error: string; errorType: string; details: object; timestamp: number };
}

function check(headers: HeadersLike, { minTier = 1 }: AgentRules): { agent: Agent } | { refusal: Refusal } {
  const agent = agentOf(headers);
  if (agent && agent.trustTier >= minTier) return { agent };
  const timestamp = Date.now();
  if (!agent) {
    const error = "The request has not come through the gateway as an agent's";
    const body = { error, errorType: "INVALID_API_KEY", details: { agentId: null }, timestamp };
    const headers = { "WWW-Authenticate": 'Bearer realm="agents"' };
    return { refusal: { status: 401, headers, body } };
  }
  const details = { agentId: agent.agentId, currentTier: agent.trustTier, requiredTier: minTier };
  const error = "The agent does not have the tier that is required";
  const body = { error, errorType: "TIER_BLOCKED", details, timestamp };
  return { refusal: { status: 403, headers: {}, body } };
}

interface ExpressResponse {
  locals: Record<string, unknown>;
  set(headers: Record<string, string>): unknown;
  status(code: number): { json(body: unknown): unknown };
}

/** Middleware of Express: 401 or 403, or the agent in `res.locals.agent`. */
export function expressAgent(rules: AgentRules = {}) {
  return (
    request: { headers: Record<string, string | string[] | undefined> },
    response: ExpressResponse,
    next: () => void,
  ): void => {
    const checked = check(request.headers, rules);
    if ("refusal" in checked) {
      const { status, headers, body } = checked.refusal;
      response.set(headers);
      response.status(status).json(body);
      return;
    }
    response.locals["agent"] = checked.agent;
    next();
  };
}

interface HonoContext {
  req: { raw: Request };
  set(name: "agent", agent: Agent): void;
}

/** Middleware of Hono: 401 or 403, or the agent in `c.var.agent` (`new Hono<{ Variables: { agent: Agent } }>()`). */
export function honoAgent(rules: AgentRules = {}) {
  return async (context: HonoContext, next: () => Promise<void>): Promise<Response | void> => {
    const checked = check(context.req.raw.headers, rules);
    if ("refusal" in checked) {
      const { status, headers, body } = checked.refusal;
      return Response.json(body, { status, headers });
    }
    context.set("agent", checked.agent);
    await next();
  };
}
