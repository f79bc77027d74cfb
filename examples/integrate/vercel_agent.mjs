// A tool of the Vercel AI SDK: its fetch shows the key, and the model sees none.
import { openai } from "@ai-sdk/openai";
import { generateText, jsonSchema, stepCountIs, tool } from "ai";
import { agentFetch, errorOf, explain } from "tiergate";

// A conversation bears no long wait: the model is told how long it would be.
const fetch = agentFetch("http://127.0.0.1:8000", { apiKeyFile: "api.key" }, { maxWaitMs: 5_000 });

const forecast = tool({
  description: "Gets the weather forecast of a city.",
  inputSchema: jsonSchema({ type: "object", properties: { city: { type: "string" } }, required: ["city"] }),
  execute: async ({ city }) => {
    try {
      const response = await fetch(`/forecast?city=${encodeURIComponent(city)}`);
      const refusal = await errorOf(response);
      return refusal ? explain(refusal) : await response.text();
    } catch (error) {
      return explain(error);
    }
  },
});

const model = openai("gpt-5-mini");
const { text } = await generateText({ model, tools: { forecast }, stopWhen: stepCountIs(5), prompt: "How is the weather in Lisbon?" });
console.log(text);
