# A tool of LangChain: the HTTP client shows the key, and the model sees none.
from pathlib import Path

import httpx
from langchain.agents import create_agent
from tiergate import GatewayAuth, by_key, raise_for_error

gateway = "http://127.0.0.1:8000"
http = httpx.Client(base_url=gateway, auth=GatewayAuth(gateway, by_key(Path("api.key").read_text())))


def forecast(city: str) -> str:
    """Gets the weather forecast of a city."""
    response = http.get("/forecast", params={"city": city})
    raise_for_error(response)
    return response.text


agent = create_agent("openai:gpt-5-mini", tools=[forecast])
answer = agent.invoke({"messages": [{"role": "user", "content": "How is the weather in Lisbon?"}]})
print(answer["messages"][-1].content)
