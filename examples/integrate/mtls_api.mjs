// An API that takes connections only from who shows a certificate of its authority.
import { readFileSync } from "node:fs";
import { createServer } from "node:https";
import express from "express";
import { expressAgent } from "tiergate/server";

const app = express();
app.get("/forecast", expressAgent(), (_request, response) => {
  response.json({ weather: "sunny", agentId: response.locals.agent.agentId });
});
const [key, cert, ca] = ["server.key", "server.crt", "ca.crt"].map((name) => readFileSync(name));
createServer({ key, cert, ca, requestCert: true, rejectUnauthorized: true }, app).listen(9003, "127.0.0.1");
