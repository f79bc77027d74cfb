// An API with Express that asks for tier 2.
import express from "express";
import { expressAgent } from "tiergate/server";

export const app = express();
app.get("/forecast", expressAgent({ minTier: 2 }), (_request, response) => {
  const { agentId, trustTier } = response.locals.agent;
  response.json({ weather: "sunny", agentId, trustTier });
});
