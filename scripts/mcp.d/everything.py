"""A server of MCP with what the conformance suite calls: everything.py PORT"""

import base64
import sys

from mcp.server.mcpserver import Context, MCPServer
from mcp.types import AudioContent, EmbeddedResource, ImageContent, TextContent, TextResourceContents

server = MCPServer("everything")
PIXEL = base64.b64encode(b"\x89PNG\r\n").decode()


def image(): return ImageContent(type="image", data=PIXEL, mime_type="image/png")
def embedded(): return EmbeddedResource(type="resource", resource=TextResourceContents(uri="test://embedded", mime_type="text/plain", text="inside"))


@server.tool()
def test_simple_text() -> str: return "This is a simple text response for testing."
@server.tool()
def test_image_content() -> list[ImageContent]: return [image()]
@server.tool()
def test_audio_content() -> list[AudioContent]: return [AudioContent(type="audio", data=PIXEL, mime_type="audio/wav")]
@server.tool()
def test_embedded_resource() -> list[EmbeddedResource]: return [embedded()]
@server.tool()
def test_multiple_content_types() -> list[TextContent | ImageContent | EmbeddedResource]: return [TextContent(type="text", text="several"), image(), embedded()]
@server.tool()
def test_error_handling() -> str: raise ValueError("This tool intentionally returns an error for testing")
@server.tool()
async def test_tool_with_progress(ctx: Context) -> str:
    for part in (0, 50, 100):
        await ctx.report_progress(part, 100)
    return "done"
@server.tool()
async def test_sampling(prompt: str, ctx: Context) -> str:
    return str(await ctx.session.create_message([], max_tokens=10, related_request_id=ctx.request_id))
@server.resource("test://static-text")
def text() -> str: return "This is the content of the static text resource."
@server.resource("test://static-binary", mime_type="image/png")
def binary() -> bytes: return b"\x89PNG\r\n"
@server.resource("test://template/{id}/data")
def template(id: str) -> str: return f'{{"id":"{id}"}}'
@server.prompt()
def test_simple_prompt() -> str: return "This is a simple prompt for testing."
@server.prompt()
def test_prompt_with_arguments(arg1: str, arg2: str) -> str: return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


server.run(transport="streamable-http", port=int(sys.argv[1]))
