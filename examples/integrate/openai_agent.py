# A tool of the OpenAI Agents SDK: the HTTP client shows the key, and the model sees none.
import asyncio
from pathlib import Path

import httpx
from agents import Agent, Runner, function_tool
from tiergate import GatewayAuth, by_key, explain, raise_for_error

gateway = "http://127.0.0.1:8000"
# A conversation bears no long wait: the model is told how long it would be.
http = httpx.AsyncClient(base_url=gateway, auth=GatewayAuth(gateway, by_key(Path("api.key")), max_wait=5))


@function_tool
async def forecast(city: str) -> str:
    """Gets the weather forecast of a city."""
    try:
        response = await http.get("/forecast", params={"city": city})
        raise_for_error(response)
        return response.text
    except Exception as error:
        return explain(error)


agent = Agent(name="Weather", model="gpt-5-mini", tools=[forecast])
print(asyncio.run(Runner.run(agent, "How is the weather in Lisbon?")).final_output)
