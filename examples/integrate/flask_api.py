# An API with Flask that asks for tier 2.
from flask import Flask, abort, request
from tiergate import agent_of, agent_problem

app = Flask(__name__)


@app.get("/forecast")
def forecast() -> dict[str, str | int]:
    agent = agent_of(request.headers)
    if agent is None:
        app.logger.warning("no agent: %s", agent_problem(request.headers))
        abort(403)
    if agent.trust_tier < 2:
        abort(403)
    return {"weather": "sunny", "agentId": str(agent.agent_id), "trustTier": agent.trust_tier}


app.run(host="127.0.0.1", port=9001)
