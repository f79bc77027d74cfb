// An agent that has a key and nothing else. After a rotation it reads the file again.
import { agentFetch, errorOf, explain } from "tiergate";

const fetch = agentFetch("http://127.0.0.1:8000", { apiKeyFile: "api.key" });
const response = await fetch("/forecast?city=Lisbon");
const refusal = await errorOf(response);
console.log(refusal ? explain(refusal) : await response.text());
