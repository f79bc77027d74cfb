# A tool of the Claude Agent SDK: the HTTP client shows the key, and the model sees none.
import asyncio
from pathlib import Path
from typing import Any

import httpx
from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, create_sdk_mcp_server, query, tool
from tiergate import GatewayAuth, by_key, explain, raise_for_error

gateway = "http://127.0.0.1:8000"
# A conversation bears no long wait: the model is told how long it would be.
http = httpx.AsyncClient(base_url=gateway, auth=GatewayAuth(gateway, by_key(Path("api.key")), max_wait=5))


@tool("forecast", "Gets the weather forecast of a city.", {"city": str})
async def forecast(arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        response = await http.get("/forecast", params={"city": arguments["city"]})
        raise_for_error(response)
        text = response.text
    except Exception as error:
        text = explain(error)
    return {"content": [{"type": "text", "text": text}]}


async def main() -> None:
    servers = {"weather": create_sdk_mcp_server("weather", tools=[forecast])}
    # It has this tool alone, and reads no settings of this computer.
    options = ClaudeAgentOptions(
        mcp_servers=servers, tools=[], allowed_tools=["mcp__weather__forecast"], setting_sources=[]
    )
    async for message in query(prompt="How is the weather in Lisbon?", options=options):
        if isinstance(message, ResultMessage):
            print(message.result)


asyncio.run(main())
