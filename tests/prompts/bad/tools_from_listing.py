async def run(client, servers, messages):
    tools = [t for s in servers for t in await s.list_tools()]  # <- tool-order
    return await client.chat.completions.create(
        model="agent",
        messages=messages,
        tools=tools,
    )
