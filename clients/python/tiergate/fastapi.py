"""Agents in FastAPI, for servers behind the gateway. Believe them only if the gateway alone can reach the server."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import HTTPException
from fastapi.responses import JSONResponse
from starlette.requests import HTTPConnection, Request

from .gateway import Agent, agent_of


class AgentRefused(HTTPException):
    """401 or 403. `detail` is the contract's error."""


def require_agent(min_tier: int = 1) -> Callable[[HTTPConnection], Coroutine[Any, Any, Agent]]:
    """Returns a dependency that gives the gateway's agent, or refuses as the gateway does."""

    async def dependency(connection: HTTPConnection) -> Agent:
        agent = agent_of(connection.headers)
        if agent is None:
            message = "The request has not come through the gateway as an agent's"
            raise _refused(401, "INVALID_API_KEY", message, {"agentId": None})
        if agent.trust_tier < min_tier:
            message = "The agent does not have the tier that is required"
            tiers = {"currentTier": agent.trust_tier, "requiredTier": min_tier}
            raise _refused(403, "TIER_BLOCKED", message, {"agentId": str(agent.agent_id), **tiers})
        return agent

    return dependency


def _refused(status: int, error_type: str, message: str, details: dict[str, Any]) -> AgentRefused:
    body = {"error": message, "errorType": error_type, "details": details, "timestamp": int(time.time() * 1000)}
    headers = {"WWW-Authenticate": 'Bearer realm="agents"'} if status == 401 else None
    return AgentRefused(status, body, headers)


async def agent_refused(_: Request, error: Exception) -> JSONResponse:
    """Answers a refusal in the contract's form: `app.add_exception_handler(AgentRefused, agent_refused)`."""
    assert isinstance(error, AgentRefused)
    return JSONResponse(error.detail, error.status_code, error.headers)
