// An app of Hono that asks for tier 2, for a server of its own and for functions.
import { Hono } from "hono";
import { honoAgent } from "tiergate/server";

export const app = new Hono();
app.get("/forecast", honoAgent({ minTier: 2 }), (c) => {
  const { agentId, trustTier } = c.var.agent;
  return c.json({ weather: "sunny", agentId, trustTier });
});
