// An API with Express that asks for tier 2.
import express from "express";
import { expressAgent } from "tiergate/server";

const app = express();
app.get("/forecast", expressAgent({ minTier: 2 }), (_request, response) => {
  const { agentId, trustTier } = response.locals.agent;
  response.json({ weather: "sunny", agentId, trustTier });
});
app.listen(9001, "127.0.0.1");
