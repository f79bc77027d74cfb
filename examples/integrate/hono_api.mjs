// Serves the app on Node.
import { serve } from "@hono/node-server";
import { app } from "./hono_app.mjs";

serve({ fetch: app.fetch, port: 9001, hostname: "127.0.0.1" });
