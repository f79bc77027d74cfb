// Two events as a function URL makes them: with the gateway's headers, and without.
import { handler } from "./lambda.mjs";

const gateway = {
  "x-agent-id": "4",
  "x-agent-owner": "0x15d34AAf54267DB7D7c367839AAf71A00a2C6A65",
  "x-agent-tier": "4",
  "x-agent-staked-amount": "500000000000000000000000",
  "x-agent-endpoint-mismatch": "false",
};
for (const headers of [gateway, {}]) {
  const requestContext = { http: { method: "GET", path: "/forecast" }, domainName: "function.example" };
  const event = { version: "2.0", rawPath: "/forecast", rawQueryString: "", headers, requestContext };
  const { statusCode, body } = await handler(event);
  console.log(statusCode, body);
}
