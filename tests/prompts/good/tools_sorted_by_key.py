import json
async def gather(servers):
    tools = {}
    for s in servers:
        for t in await s.list_tools():
            tools[t.name] = t
    return [tools[name] for name in sorted(tools)]
async def run(client, servers, messages):
    specs = [{"type": "function", "function": {"name": t.name, "parameters": json.loads(json.dumps(t.inputSchema, sort_keys=True))}} for t in await gather(servers)]
    return await client.chat.completions.create(model="m", messages=messages, tools=specs)
