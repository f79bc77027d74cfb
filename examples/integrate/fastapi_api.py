# An API with FastAPI that asks for tier 2.
from typing import Annotated

import uvicorn
from fastapi import Depends, FastAPI
from tiergate import Agent
from tiergate.fastapi import AgentRefused, agent_refused, require_agent

app = FastAPI()
app.add_exception_handler(AgentRefused, agent_refused)


@app.get("/forecast")
def forecast(agent: Annotated[Agent, Depends(require_agent(min_tier=2))]) -> dict[str, str | int]:
    return {"weather": "sunny", "agentId": str(agent.agent_id), "trustTier": agent.trust_tier}


uvicorn.run(app, host="127.0.0.1", port=9001)
