async def collect(servers):
    tools = []
    for server in servers:
        for tool in await server.list_tools():  # <- tool-order
            tools.append({"type": "function", "function": {"name": tool.name, "parameters": tool.inputSchema}})
    return tools


async def step(client, servers, messages):
    tools = await collect(servers)
    return await client.chat.completions.create(model="agent", messages=messages, tools=tools)
