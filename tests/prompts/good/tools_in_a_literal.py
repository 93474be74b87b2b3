from pydantic import BaseModel


class Search(BaseModel):
    query: str
    limit: int = 10


class Fetch(BaseModel):
    url: str


REGISTRY = {"search": Search, "fetch": Fetch}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": model.model_json_schema()}}
    for name, model in REGISTRY.items()
]


def step(client, messages):
    known = {tool["function"]["name"] for tool in TOOLS}
    reply = client.chat.completions.create(model="agent", messages=messages, tools=TOOLS)
    for call in reply.choices[0].message.tool_calls or []:
        if call.function.name not in known:
            raise ValueError(call.function.name)
    return reply
