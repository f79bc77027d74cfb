// The app as a handler of AWS Lambda.
import { handle } from "hono/aws-lambda";
import { app } from "./hono_app.mjs";

export const handler = handle(app);
