# A tool of LangChain: the HTTP client shows the key, and the model sees none.
from pathlib import Path

import httpx
from langchain.agents import create_agent
from tiergate import GatewayAuth, by_key, explain, raise_for_error

gateway = "http://127.0.0.1:8000"
# A conversation bears no long wait: the model is told how long it would be.
http = httpx.Client(base_url=gateway, auth=GatewayAuth(gateway, by_key(Path("api.key")), max_wait=5))


def forecast(city: str) -> str:
    """Gets the weather forecast of a city."""
    try:
        response = http.get("/forecast", params={"city": city})
        raise_for_error(response)
        return response.text
    except Exception as error:
        return explain(error)


agent = create_agent("openai:gpt-5-mini", tools=[forecast])
answer = agent.invoke({"messages": [{"role": "user", "content": "How is the weather in Lisbon?"}]})
print(answer["messages"][-1].content)
