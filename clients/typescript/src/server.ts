// For servers behind the gateway: who calls. The headers are true only if nobody but the gateway can reach the server.

import { want } from "./options.js";

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
export function agentOf(headers: HeadersLike): Agent | null {
  const read = readAgent(headers);
  return typeof read === "string" ? null : read;
}

/** Names the header that is missing or malformed, for the server's log; `null` where there is an agent. */
export function agentProblem(headers: HeadersLike): string | null {
  const read = readAgent(headers);
  return typeof read === "string" ? read : null;
}

/** The forms of the gateway's headers. Of the last two one is there always. */
const FORMS = {
  "x-agent-id": /^\d{1,78}$/,
  "x-agent-owner": /^0x[0-9a-fA-F]{40}$/,
  "x-agent-tier": /^[1-4]$/,
  "x-agent-endpoint-mismatch": /^(true|false)$/,
  "x-agent-staked-amount": /^\d{1,78}$/,
  "x-agent-tier-source": /^[a-z0-9_]{1,32}$/,
} as const;

/** The agent, or what is wrong. It has no part of a header: that may be a key in the wrong place. */
function readAgent(headers: HeadersLike): Agent | string {
  want(typeof headers === "object" && headers !== null, "The headers are neither those of fetch nor those of Node");
  const found: Partial<Record<keyof typeof FORMS, string>> = {};
  for (const [name, form] of Object.entries(FORMS) as [keyof typeof FORMS, RegExp][]) {
    const value = (headers instanceof Headers ? headers.get(name) : headers[name]) ?? undefined;
    if (value === undefined) continue;
    if (typeof value !== "string" || !form.test(value)) return `${name} is malformed, or there twice`;
    found[name] = value;
  }
  const { "x-agent-staked-amount": stakedAmount, "x-agent-tier-source": tierSource, ...always } = found;
  const missing = Object.keys(FORMS).slice(0, 4).filter((name) => !(name in always));
  if (missing.length > 0) return `${missing.join(", ")} ${missing.length === 1 ? "is" : "are"} missing`;
  if (stakedAmount === undefined && tierSource === undefined) return "x-agent-staked-amount and x-agent-tier-source are missing";
  return {
    agentId: always["x-agent-id"]!,
    owner: always["x-agent-owner"] as Agent["owner"],
    trustTier: Number(always["x-agent-tier"]) as Agent["trustTier"],
    ...(stakedAmount !== undefined && { stakedAmount }),
    ...(tierSource !== undefined && { tierSource }),
    endpointMismatch: always["x-agent-endpoint-mismatch"] === "true",
  };
}

/** The agents that a server lets in. */
export interface AgentRules {
  /** The lowest tier that passes; 1 unless set. */
  minTier?: Agent["trustTier"];
  /** Told which header of a request is missing or malformed; `console.warn` unless set. The agent is not told. */
  log?: (problem: string) => void;
}

interface Refusal {
  error: string;
  errorType: "FORBIDDEN" | "TIER_BLOCKED";
  details: object;
  timestamp: number;
}

function checkRules(rules: AgentRules): void {
  want([undefined, 1, 2, 3, 4].includes(Object(rules).minTier), "The rule minTier is not 1, 2, 3 or 4");
}

/** The agent, or the body of a 403. The agent can't mend a missing header, so that it must not hear of its key. */
function check(headers: HeadersLike, { minTier = 1, log = console.warn }: AgentRules): { agent: Agent } | { refusal: Refusal } {
  const agent = readAgent(headers);
  const timestamp = Date.now();
  if (typeof agent === "string") {
    log(`tiergate: a request has not come through the gateway as an agent's: ${agent}`);
    const error = "The request has not come through the gateway as an agent's";
    return { refusal: { error, errorType: "FORBIDDEN", details: {}, timestamp } };
  }
  if (agent.trustTier >= minTier) return { agent };
  const details = { agentId: agent.agentId, currentTier: agent.trustTier, requiredTier: minTier };
  const error = "The agent does not have the tier that is required";
  return { refusal: { error, errorType: "TIER_BLOCKED", details, timestamp } };
}

interface ExpressResponse {
  locals: Record<string, unknown>;
  status(code: number): { json(body: unknown): unknown };
}

/** Middleware of Express: 403, or the agent in `res.locals.agent`. */
export function expressAgent(rules: AgentRules = {}) {
  checkRules(rules);
  return (
    request: { headers: Record<string, string | string[] | undefined> },
    response: ExpressResponse,
    next: () => void,
  ): void => {
    const checked = check(request.headers, rules);
    if ("refusal" in checked) {
      response.status(403).json(checked.refusal);
      return;
    }
    response.locals["agent"] = checked.agent;
    next();
  };
}

/** A `preHandler` of Fastify: 403, or the agent in `request.agent`. */
export function fastifyAgent(rules: AgentRules = {}) {
  checkRules(rules);
  return async (
    request: { headers: Record<string, string | string[] | undefined>; agent?: Agent },
    reply: { code(status: number): { send(body: unknown): unknown } },
  ): Promise<unknown> => {
    const checked = check(request.headers, rules);
    if ("refusal" in checked) return reply.code(403).send(checked.refusal);
    request.agent = checked.agent;
    return undefined;
  };
}

interface HonoContext {
  req: { raw: Request };
  set(name: "agent", agent: Agent): void;
}

/** Middleware of Hono: 403, or the agent in `c.var.agent` (`new Hono<{ Variables: { agent: Agent } }>()`). */
export function honoAgent(rules: AgentRules = {}) {
  checkRules(rules);
  return async (context: HonoContext, next: () => Promise<void>): Promise<Response | void> => {
    const checked = check(context.req.raw.headers, rules);
    if ("refusal" in checked) return Response.json(checked.refusal, { status: 403 });
    context.set("agent", checked.agent);
    await next();
  };
}
