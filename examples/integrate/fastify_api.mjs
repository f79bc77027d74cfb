// An API with Fastify that asks for tier 2.
import Fastify from "fastify";
import { fastifyAgent } from "tiergate/server";

const app = Fastify();
app.get("/forecast", { preHandler: fastifyAgent({ minTier: 2 }) }, async ({ agent }) => {
  return { weather: "sunny", agentId: agent.agentId, trustTier: agent.trustTier };
});
await app.listen({ port: 9001, host: "127.0.0.1" });
