# A server of MCP on port 9002 that knows which agent calls its tool.
import asyncio

from mcp.server.mcpserver import Context, MCPServer
from tiergate import agent_of

server = MCPServer("weather")


@server.tool()
async def forecast(city: str, ctx: Context) -> str:
    """Gets the weather forecast of a city."""
    agent = agent_of(ctx.request_context.request.headers)
    for step in (1, 2):
        await ctx.report_progress(step, 2)
        await asyncio.sleep(0.1)
    return f"Sunny in {city} for agent {agent.agent_id} of tier {agent.trust_tier}"


server.run(transport="streamable-http", host="127.0.0.1", port=9002)
