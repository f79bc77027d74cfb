"""Agents in FastAPI, for servers behind the gateway. Believe them only if the gateway alone can reach the server."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import HTTPException
from fastapi.responses import JSONResponse
from starlette.requests import HTTPConnection, Request

from .gateway import Agent, refusal_of


class AgentRefused(HTTPException):
    """403. `detail` is the contract's error."""


def require_agent(min_tier: int = 1) -> Callable[[HTTPConnection], Coroutine[Any, Any, Agent]]:
    """Returns a dependency that gives the gateway's agent, or refuses with 403. The log has the header that is missing."""
    if min_tier not in (1, 2, 3, 4):
        raise ValueError("min_tier is not 1, 2, 3 or 4")

    async def dependency(connection: HTTPConnection) -> Agent:
        agent = refusal_of(connection.headers, min_tier)
        if isinstance(agent, Agent):
            return agent
        raise AgentRefused(403, agent)

    return dependency


async def agent_refused(_: Request, error: Exception) -> JSONResponse:
    """Answers a refusal in the contract's form: `app.add_exception_handler(AgentRefused, agent_refused)`."""
    assert isinstance(error, AgentRefused)
    return JSONResponse(error.detail, error.status_code, error.headers)
