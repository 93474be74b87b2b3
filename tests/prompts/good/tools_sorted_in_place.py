async def run(client, servers, messages):
    tools = []
    for s in servers:
        tools.extend(await s.list_tools())
    tools.sort(key=lambda t: t.name)
    return await client.chat.completions.create(model="m", messages=messages, tools=[t.model_dump() for t in tools])
