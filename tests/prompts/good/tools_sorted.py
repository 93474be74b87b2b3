import json


async def tools_of(servers):
    found = []
    for server in servers:
        found.extend((await server.list_tools()).tools)
    return sorted(found, key=lambda tool: tool.name)


def render(tools):
    return "\n".join(json.dumps(tool.inputSchema, sort_keys=True) for tool in tools)


async def step(client, servers, messages):
    tools = await tools_of(servers)
    specs = [{"type": "function", "function": {"name": t.name, "parameters": t.inputSchema}} for t in tools]
    system = {"role": "system", "content": "Tools:\n" + render(tools) + "\nUse one tool at a time, and explain why you do."}
    return await client.chat.completions.create(model="agent", messages=[system, *messages], tools=specs)
