import json

SYSTEM = "You plan trips. Use a tool where one fits, and say which train somebody should take, and where to change. " * 3


def described(tools):
    found = []
    for tool in tools:
        schema = tool.args_schema.schema() if tool.args_schema else {}
        parameters = {name: field["type"] for name, field in schema.get("properties", {}).items()}
        arguments = [f"- {name}: {given}" for name, given in tool.args.items()]
        found.append({"name": tool.name, "parameters": parameters, "description": "\n".join(arguments)})
    return found


def step(client, tools, messages):
    return client.chat.completions.create(
        model="m", messages=[{"role": "system", "content": SYSTEM}, *messages], tools=described(tools)
    )


def as_text(client, tools, question):
    listed = "\n".join(json.dumps(tool) for tool in described(tools))
    return client.chat.completions.create(
        model="m",
        messages=[{"role": "system", "content": listed + SYSTEM}, {"role": "user", "content": question}],
    )
