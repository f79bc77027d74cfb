# An API with aiohttp that asks for tier 2.
import logging

from aiohttp import web
from tiergate import agent_of, agent_problem


async def forecast(request: web.Request) -> web.Response:
    agent = agent_of(request.headers)
    if agent is None:
        logging.warning("no agent: %s", agent_problem(request.headers))
        raise web.HTTPForbidden
    if agent.trust_tier < 2:
        raise web.HTTPForbidden
    return web.json_response({"weather": "sunny", "agentId": str(agent.agent_id), "trustTier": agent.trust_tier})


app = web.Application()
app.router.add_get("/forecast", forecast)
web.run_app(app, host="127.0.0.1", port=9001)
