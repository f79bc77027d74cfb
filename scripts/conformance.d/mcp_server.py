"""An MCP server with two tools, for the check of streamable HTTP: mcp_server.py PORT"""

import asyncio
import sys

import uvicorn
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("conformance")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@server.tool()
async def work(steps: int, ctx: Context) -> str:
    """Works for a while and says how far it is."""
    for step in range(steps):
        await ctx.report_progress(step + 1, steps)
        await asyncio.sleep(0.1)
    return "done"


uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=int(sys.argv[1]), log_level="info")
